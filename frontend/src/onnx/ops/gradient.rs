//! `ai.onnx.preview.training.Gradient`: reverse-mode differentiation of the nodes in front of it.

use super::reduce::reduce_axes;
use super::{op_of, OnnxOp};
use crate::onnx::node::NodeCx;
use crate::onnx::proto::NodeProto;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use std::collections::{HashMap, HashSet};

pub const OPS: &[OnnxOp] = &[op_of("ai.onnx.preview.training", "Gradient", &[(1, gradient)])];

fn gradient(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let xs = cx.strings("xs");
    let xs = cx.required("xs", xs)?;
    let zs = cx.strings("zs").unwrap_or_default();
    let y = cx.str_opt("y");
    let y = cx.required("y", y)?;
    if !xs.iter().chain(&zs).eq(&cx.node.input) {
        return Err(cx.unsupported("a gradient at other values than those of the graph"));
    }
    let nodes = cx.im.nodes_here();
    let mut depends: HashSet<&str> = xs.iter().map(String::as_str).collect();
    for n in nodes.iter() {
        if n.input.iter().any(|i| depends.contains(i.as_str())) {
            depends.extend(n.output.iter().map(String::as_str));
        }
    }
    let top = tensor(cx, &y)?;
    let seed = cx.like(&top, 1.0);
    let seed = cx.broadcast_to(&seed, &top.dims.clone())?;
    let mut grads: HashMap<String, Tensor> = HashMap::from([(y, seed)]);
    for n in nodes.iter().rev() {
        // What comes behind `y` has no gradient.
        let Some((k, g)) = n.output.iter().enumerate().find_map(|(k, o)| Some((k, grads.get(o)?.clone()))) else {
            continue;
        };
        if xs.contains(&n.output[k]) || !n.input.iter().any(|i| depends.contains(i.as_str())) {
            continue;
        }
        let parts = if k == 0 { rule(cx, n, &g)? } else { None };
        let Some(parts) = parts else {
            let op = n.op_type.as_deref().unwrap_or("");
            return Err(cx.unsupported(format!("the gradient of {op}")));
        };
        for (name, part) in n.input.iter().zip(parts) {
            let Some(part) = part.filter(|_| depends.contains(name.as_str())) else { continue };
            let sum = match grads.get(name).cloned() {
                Some(before) => cx.op("add", &[&before, &part])?,
                None => part,
            };
            grads.insert(name.clone(), sum);
        }
    }
    let mut out = vec![];
    for x in &xs {
        out.push(match grads.get(x) {
            Some(g) => g.clone().into(),
            None => {
                let t = tensor(cx, x)?;
                let zero = cx.like(&t, 0.0);
                cx.broadcast_to(&zero, &t.dims)?.into()
            }
        });
    }
    Ok(out)
}

/// The tensor of this name.
fn tensor(cx: &NodeCx, name: &str) -> Res<Tensor> {
    match cx.im.lookup(name) {
        Some(Value::Tensor(t)) if t.dtype.is_float() => Ok(t),
        Some(Value::Tensor(_)) => Err(cx.error(format!("`{name}` is no tensor of floats"))),
        _ => Err(cx.error(format!("`{name}` is the name of no tensor in front of the node"))),
    }
}

/// What flows back to each input of `n` from the gradient `g` of its output; `None`: there is no rule.
fn rule(cx: &mut NodeCx, n: &NodeProto, g: &Tensor) -> Res<Option<Vec<Option<Tensor>>>> {
    if !n.domain.as_deref().unwrap_or("").is_empty() {
        return Ok(None);
    }
    let input = |cx: &NodeCx, i: usize| tensor(cx, n.input.get(i).map_or("", String::as_str));
    let x = input(cx, 0)?;
    let y = tensor(cx, &n.output[0])?;
    let one = cx.like(&x, 1.0);
    let all = match n.op_type.as_deref().unwrap_or("") {
        "Identity" => vec![g.clone()],
        "Add" => vec![g.clone(), g.clone()],
        "Sub" => vec![g.clone(), cx.op("negative", &[g])?],
        "Sum" => vec![g.clone(); n.input.len()],
        "Mul" => {
            let b = input(cx, 1)?;
            vec![cx.op("multiply", &[g, &b])?, cx.op("multiply", &[g, &x])?]
        }
        "Div" => {
            let b = input(cx, 1)?;
            let left = cx.op("divide", &[g, &b])?;
            let right = cx.op("multiply", &[&left, &y])?;
            vec![left, cx.op("negative", &[&right])?]
        }
        "Neg" => vec![cx.op("negative", &[g])?],
        "Exp" => vec![cx.op("multiply", &[g, &y])?],
        "Log" => vec![cx.op("divide", &[g, &x])?],
        "Sqrt" => {
            let twice = cx.op("add", &[&y, &y])?;
            vec![cx.op("divide", &[g, &twice])?]
        }
        "Sin" => {
            let c = cx.op("cos", &[&x])?;
            vec![cx.op("multiply", &[g, &c])?]
        }
        "Cos" => {
            let s = cx.op("sin", &[&x])?;
            let s = cx.op("multiply", &[g, &s])?;
            vec![cx.op("negative", &[&s])?]
        }
        "Tanh" => {
            let square = cx.op("multiply", &[&y, &y])?;
            let slope = cx.op("subtract", &[&one, &square])?;
            vec![cx.op("multiply", &[g, &slope])?]
        }
        "Sigmoid" => {
            let rest = cx.op("subtract", &[&one, &y])?;
            let slope = cx.op("multiply", &[&y, &rest])?;
            vec![cx.op("multiply", &[g, &slope])?]
        }
        "Relu" => {
            let zero = cx.like(&x, 0.0);
            let on = cx.op("greater", &[&x, &zero])?;
            vec![cx.op("where", &[&on, g, &zero])?]
        }
        "Abs" => {
            let sign = cx.op("sign", &[&x])?;
            vec![cx.op("multiply", &[g, &sign])?]
        }
        "MatMul" => {
            let b = input(cx, 1)?;
            if x.rank() < 2 || b.rank() < 2 {
                return Ok(None);
            }
            let turned = |cx: &mut NodeCx, t: &Tensor| {
                let mut perm: Vec<usize> = (0..t.rank()).collect();
                perm.swap(t.rank() - 2, t.rank() - 1);
                cx.transpose(t, &perm)
            };
            let (xt, bt) = (turned(cx, &x)?, turned(cx, &b)?);
            vec![cx.op("matmul", &[g, &bt])?, cx.op("matmul", &[&xt, g])?]
        }
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => return Ok(Some(vec![Some(cx.reshape(g, &x.dims)?)])),
        "Transpose" => {
            let given = n.attribute.iter().find(|a| a.name.as_deref() == Some("perm"));
            let perm: Vec<usize> = match given {
                Some(a) => cx.axes(&a.ints, x.rank())?,
                None => (0..x.rank()).rev().collect(),
            };
            let mut back = vec![0; perm.len()];
            perm.iter().enumerate().for_each(|(i, p)| back[*p] = i);
            vec![cx.transpose(g, &back)?]
        }
        _ => return Ok(None),
    };
    let mut parts = vec![];
    for (i, part) in all.into_iter().enumerate() {
        let to = input(cx, i)?;
        parts.push(Some(unbroadcast(cx, &part, &to)?));
    }
    Ok(Some(parts))
}

/// The sum over the dims along which `to` was broadcast.
fn unbroadcast(cx: &mut NodeCx, g: &Tensor, to: &Tensor) -> Res<Tensor> {
    if g.dims == to.dims {
        return Ok(g.clone());
    }
    let lead = g.rank().saturating_sub(to.rank());
    let stretched = |i: &usize| *i < lead || (to.dims[*i - lead].is_int(1) && !g.dims[*i].is_int(1));
    let axes: Vec<usize> = (0..g.rank()).filter(stretched).collect();
    let g = match axes.is_empty() {
        true => g.clone(),
        false => reduce_axes(cx, g, "sum", &axes, true)?,
    };
    cx.reshape(&g, &to.dims.clone())
}
