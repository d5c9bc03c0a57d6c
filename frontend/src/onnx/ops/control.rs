//! Control flow: conditionals, loops and scans.
//!
//! What is decided at import leaves no control flow behind: a known condition picks its branch, a loop whose trip count
//! and condition are known is unrolled, as is a scan over a known number of steps. Of a loop whose states change their ranks in
//! its first steps, those are translated in line where they are known to run.

use super::movement::{select_at, stack};
use super::rolled::{self, Outcome, Start};
use super::{op, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::NodeCx;
use crate::onnx::proto::GraphProto;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::prim::{fresh_id, PrimKind};
use relax_ir::relax::{Expr, ExprKind, SeqExpr, StructInfo, TensorInfo};
use relax_ir::{AttrValue, DType, PrimExpr, Span};
use std::sync::Arc;

/// Steps of a loop that is unrolled.
const MAX_STEPS: i64 = 1024;

/// Steps in front of a loop whose states become what they stay.
const MAX_PEELED: i64 = 3;

pub const OPS: &[OnnxOp] = &[op("If", &[(1, if_)]), op("Loop", &[(1, loop_)]), op("Scan", &[(8, scan_v8), (9, scan)])];

/// A graph attribute.
fn graph(cx: &NodeCx, name: &str) -> Res<GraphProto> {
    let g = cx.graph(name).cloned();
    cx.required(name, g)
}

fn node_name(cx: &NodeCx) -> String {
    let name = cx.node.name.as_deref().filter(|n| !n.is_empty());
    name.or(cx.node.op_type.as_deref()).unwrap_or("").to_string()
}

/// The value of a scalar, when it is known.
fn literal(t: &Tensor) -> Option<i64> {
    match t.as_ints()?.as_slice() {
        [v] => Some(*v),
        _ => None,
    }
}

/// The tensors inside a value, in order.
pub(super) fn flatten(v: &Value, out: &mut Vec<Tensor>) {
    match v {
        Value::Tensor(t) => out.push(t.clone()),
        Value::Sequence(items) => items.iter().for_each(|i| flatten(i, out)),
        Value::Optional(Some(v)) => flatten(v, out),
        Value::Optional(None) | Value::Choice(..) | Value::Poison => {}
    }
}

/// A value of the same structure with other tensors.
pub(super) fn rebuild(v: &Value, tensors: &mut dyn Iterator<Item = Tensor>) -> Value {
    match v {
        Value::Tensor(_) => tensors.next().map_or(Value::Poison, Value::Tensor),
        Value::Sequence(items) => Value::Sequence(items.iter().map(|i| rebuild(i, tensors)).collect()),
        Value::Optional(Some(v)) => Value::Optional(Some(Box::new(rebuild(v, tensors)))),
        Value::Optional(None) => Value::Optional(None),
        Value::Choice(..) => v.clone(),
        Value::Poison => Value::Poison,
    }
}

pub(super) fn same_structure(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Tensor(_), Value::Tensor(_)) | (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Sequence(a), Value::Sequence(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_structure(a, b))
        }
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => same_structure(a, b),
        _ => false,
    }
}

fn if_(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let cond = cx.input(0)?;
    let graphs = (graph(cx, "then_branch")?, graph(cx, "else_branch")?);
    let (then, otherwise) = (&graphs.0, &graphs.1);
    let name = node_name(cx);
    if let Some(c) = literal(&cond).map(|c| c != 0).or_else(|| cx.im.side(&cond)) {
        let g = if c { then } else { otherwise };
        return cx.im.subgraph(&name, g, vec![]);
    }
    let cond_tensor = cx.reshape(&cond, &[])?;
    let cond = cx.im.b.expr(&cond_tensor)?;
    let mark = fresh_id();
    let (a, then) = branch(cx, &name, then)?;
    let (b, otherwise) = branch(cx, &name, otherwise)?;
    if a.iter().chain(&b).any(|v| matches!(v, Value::Poison)) {
        return Ok(vec![Value::Poison; a.len()]);
    }
    if a.len() != b.len() {
        return Err(cx.error("the branches have different numbers of results"));
    }
    let (mut left, mut right) = (vec![], vec![]);
    a.iter().for_each(|v| flatten(v, &mut left));
    b.iter().for_each(|v| flatten(v, &mut right));
    let alike = a.iter().zip(&b).all(|(a, b)| same_structure(a, b));
    if !alike || left.iter().zip(&right).any(|(a, b)| a.dtype != b.dtype || a.rank() != b.rank()) {
        return both(cx, &name, &graphs, &cond_tensor);
    }
    let mut infos = vec![];
    for (x, y) in left.iter().zip(&right) {
        infos.push(joined(cx, x, y, mark)?);
    }
    let info = match infos.len() {
        1 => infos.swap_remove(0),
        _ => StructInfo::Tuple(infos),
    };
    let e = ExprKind::If { cond, then: Arc::new(then), otherwise: Arc::new(otherwise) };
    let e = cx.im.b.bind_typed("branch", Expr::new(e, Span::NONE), info.clone());
    let mut tensors = cx.im.b.tensors("branch", e, info)?.into_iter();
    Ok(a.iter().map(|v| rebuild(v, &mut tensors)).collect())
}

/// Branches whose results differ in structure: both are computed, and what uses them is translated for each, until
/// results are alike again.
fn both(cx: &mut NodeCx, name: &str, graphs: &(GraphProto, GraphProto), cond: &Tensor) -> Res<Vec<Value>> {
    let a = cx.im.supposing((cond, true), |im| im.subgraph(name, &graphs.0, vec![]))?;
    let b = cx.im.supposing((cond, false), |im| im.subgraph(name, &graphs.1, vec![]))?;
    a.into_iter().zip(b).map(|(a, b)| join(cx, cond, a, b)).collect()
}

/// The one of two values that `cond` picks.
pub fn join(cx: &mut NodeCx, cond: &Tensor, a: Value, b: Value) -> Res<Value> {
    let (mut left, mut right) = (vec![], vec![]);
    flatten(&a, &mut left);
    flatten(&b, &mut right);
    let alike = |(a, b): (&Tensor, &Tensor)| a.dtype == b.dtype && a.rank() == b.rank();
    // Numbers that follow from the structure decide what is done with it.
    let told = |(a, b): (&Tensor, &Tensor)| is_known(a) && is_known(b) && a.elements() != b.elements();
    if !same_structure(&a, &b) || !left.iter().zip(&right).all(|x| alike(x) && !told(x)) {
        return Ok(Value::Choice(cond.clone(), Box::new((a, b))));
    }
    let mut chosen = vec![];
    for (x, y) in left.iter().zip(&right) {
        chosen.push(choose(cx, cond, x, y)?);
    }
    Ok(rebuild(&a, &mut chosen.into_iter()))
}

/// Are the elements known integers, sizes or truth values?
fn is_known(t: &Tensor) -> bool {
    !t.dtype.is_float() && t.elements().is_some()
}

/// One of two tensors of as many dims.
pub fn choose(cx: &mut NodeCx, cond: &Tensor, a: &Tensor, b: &Tensor) -> Res<Tensor> {
    let same = a.dims == b.dims;
    let info = match (a.dtype == b.dtype, a.rank() == b.rank()) {
        (true, true) if same => StructInfo::tensor(a.dims.clone(), a.dtype),
        (true, true) => StructInfo::tensor_ndim(Some(a.rank()), Some(a.dtype)),
        _ => return Err(cx.unsupported("a choice between tensors of different ranks or dtypes")),
    };
    let (left, right) = (cx.im.b.expr(a)?, cx.im.b.expr(b)?);
    let cond = cx.reshape(cond, &[])?;
    let cond = cx.im.b.expr(&cond)?;
    let branch = |body| Arc::new(SeqExpr { blocks: vec![], body });
    let e = ExprKind::If { cond, then: branch(left), otherwise: branch(right) };
    let e = cx.im.b.bind_typed("choice", Expr::new(e, Span::NONE), info.clone());
    Ok(cx.im.b.tensor("choice", e, info)?.of_kind(a.kind))
}

/// Translates a branch: its values, and its code.
fn branch(cx: &mut NodeCx, name: &str, g: &GraphProto) -> Res<(Vec<Value>, SeqExpr)> {
    cx.im.b.open();
    let values = cx.im.subgraph(name, g, vec![]);
    let mut leaves = vec![];
    let mut failed = None;
    match &values {
        Ok(values) => {
            let mut tensors = vec![];
            values.iter().for_each(|v| flatten(v, &mut tensors));
            for t in &tensors {
                match cx.im.b.expr(t) {
                    Ok(e) => leaves.push(e),
                    Err(d) => failed = Some(d),
                }
            }
        }
        Err(d) => failed = Some(d.clone()),
    }
    let body = match leaves.len() {
        1 => leaves.swap_remove(0),
        _ => Expr::new(ExprKind::Tuple(leaves), Span::NONE),
    };
    let seq = cx.im.b.close(body);
    match failed {
        Some(d) => Err(d),
        None => Ok((values?, seq)),
    }
}

/// What is known of a value that is one of two tensors. Shape variables made after `mark` do not leave the branches.
fn joined(cx: &mut NodeCx, a: &Tensor, b: &Tensor, mark: u32) -> Res<StructInfo> {
    if a.dtype != b.dtype {
        return Err(cx.error(format!("the branches give {} and {}", a.dtype, b.dtype)));
    }
    if a.rank() != b.rank() {
        return Err(cx.unsupported(format!("branches whose results have {} and {} dims", a.rank(), b.rank())));
    }
    let same = a.dims.iter().zip(&b.dims).all(|(x, y)| x == y && !is_younger(x, mark));
    Ok(match same {
        true => StructInfo::Tensor(TensorInfo::dims(a.dims.clone(), Some(a.dtype))),
        false => StructInfo::tensor_ndim(Some(a.rank()), Some(a.dtype)),
    })
}

/// Does a dim depend on a variable made after `mark`?
fn is_younger(e: &PrimExpr, mark: u32) -> bool {
    let mut found = false;
    e.walk(&mut |n| {
        if let PrimKind::Var(v) = n.kind() {
            found |= v.id() >= mark;
        }
    });
    found
}

/// What the steps of a loop left: the states, and the values of each scan output.
struct Steps {
    states: Vec<Value>,
    scans: Vec<Vec<Tensor>>,
}

fn loop_(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let body = graph(cx, "body")?;
    let trip = cx.optional(0)?;
    let cond = cx.optional(1)?;
    let states: Vec<Value> = (2..cx.inputs.len()).map(|i| cx.value(i)).collect::<Res<_>>()?;
    let count = match &trip {
        Some(t) => literal(t),
        None => Some(i64::MAX),
    };
    let start = match &cond {
        Some(t) => literal(t),
        None => Some(1),
    };
    let name = node_name(cx);
    if let (Some(count), Some(start)) = (count, start) {
        let before = cx.im.diags.list.len();
        cx.im.b.open();
        match unrolled(cx, &name, &body, count, start != 0, states.clone()) {
            Ok(Some(steps)) => {
                cx.im.b.splice();
                return finish(cx, &body, steps);
            }
            Ok(None) => {
                cx.im.b.discard();
                cx.im.diags.list.truncate(before);
            }
            Err(d) => {
                cx.im.b.discard();
                return Err(d);
            }
        }
    }
    let mut step = |cx: &mut NodeCx, i: &Tensor, states: Vec<Value>| {
        let n = states.len();
        let mut inputs: Vec<Value> = vec![i.clone().into(), Tensor::scalar_int(DType::BOOL, 1).into()];
        inputs.extend(states);
        let out = cx.im.step(&name, &body, inputs)?;
        rolled_step(cx, out, true, n)
    };
    let mut start = Start { go: cond, states, done: 0, scans: vec![] };
    loop {
        match rolled::run(cx, trip.as_ref(), &start, &mut step)? {
            Outcome::Done(mut out, scans) => {
                out.extend(scans.into_iter().map(Value::from));
                return Ok(out);
            }
            Outcome::Failed => break,
            Outcome::Changed(why) => {
                let runs = start.go.as_ref().is_none_or(|go| literal(go).is_some_and(|go| go != 0));
                if !runs || start.done == MAX_PEELED || count.is_none_or(|n| n <= start.done) {
                    return Err(why);
                }
                match peeled(cx, start, &mut step)? {
                    Some(s) => start = s,
                    None => break,
                }
            }
        }
    }
    Ok(vec![Value::Poison; body.output.len().saturating_sub(1)])
}

/// A loop without its next step, which is translated here. `None`: that failed, and was reported.
fn peeled(cx: &mut NodeCx, start: Start, body: rolled::Body) -> Res<Option<Start>> {
    let i = Tensor::known(&[], DType::I64, vec![PrimExpr::i64(start.done)]);
    let Some(step) = body(cx, &i, start.states)? else { return Ok(None) };
    let mut scans = vec![];
    for (k, t) in step.scans.iter().enumerate() {
        let t = cx.unsqueeze(t, &[0])?;
        scans.push(match start.scans.get(k) {
            Some(all) => cx.call("concat", &[[all.clone(), t].as_slice().into()], &[("axis", AttrValue::Int(0))])?,
            None => t,
        });
    }
    Ok(Some(Start { go: Some(step.go), states: step.states, done: start.done + 1, scans }))
}

/// What the outputs of a body are to a loop of any number of steps: the condition (of `Loop` alone), `n` states, and
/// scan outputs. `None`: something failed, and was reported.
fn rolled_step(cx: &NodeCx, out: Vec<Value>, conditional: bool, n: usize) -> Res<Option<rolled::Step>> {
    if out.iter().any(|v| matches!(v, Value::Poison)) {
        return Ok(None);
    }
    let mut out = out.into_iter();
    let go = match conditional {
        true => match out.next() {
            Some(Value::Tensor(c)) => c,
            _ => return Err(cx.error("the condition must be a tensor")),
        },
        false => Tensor::scalar_int(DType::BOOL, 1),
    };
    let states: Vec<Value> = out.by_ref().take(n).collect();
    let mut scans = vec![];
    for v in out {
        match v {
            Value::Tensor(t) => scans.push(t),
            _ => return Err(cx.error("scan outputs must be tensors")),
        }
    }
    Ok(Some(rolled::Step { go, states, scans }))
}

/// Unrolls as long as the condition is known; `None` when it is not, or when there are too many steps.
fn unrolled(
    cx: &mut NodeCx,
    name: &str,
    body: &GraphProto,
    count: i64,
    start: bool,
    mut states: Vec<Value>,
) -> Res<Option<Steps>> {
    let n = states.len();
    let outputs = body.output.len();
    if outputs < n + 1 {
        return Err(cx.error(format!("the body has {outputs} outputs for {n} states")));
    }
    let mut scans: Vec<Vec<Tensor>> = vec![vec![]; outputs - n - 1];
    let mut go = start;
    let mut i = 0;
    while go && i < count {
        if i >= MAX_STEPS || (count != i64::MAX && count > MAX_STEPS) {
            return Ok(None);
        }
        let mut inputs: Vec<Value> = vec![
            Tensor::known(&[], DType::I64, vec![PrimExpr::i64(i)]).into(),
            Tensor::scalar_int(DType::BOOL, 1).into(),
        ];
        inputs.append(&mut states);
        let mut out = cx.im.step(name, body, inputs)?.into_iter();
        match out.next() {
            Some(Value::Tensor(c)) => match literal(&c) {
                Some(c) => go = c != 0,
                None => return Ok(None),
            },
            Some(Value::Poison) => go = false,
            _ => return Err(cx.error("the condition must be a tensor")),
        }
        states = out.by_ref().take(n).collect();
        for (list, v) in scans.iter_mut().zip(out) {
            match v {
                Value::Tensor(t) => list.push(t),
                Value::Poison => {}
                _ => return Err(cx.error("scan outputs must be tensors")),
            }
        }
        i += 1;
    }
    Ok(Some(Steps { states, scans }))
}

/// The values of a loop's outputs.
fn finish(cx: &mut NodeCx, body: &GraphProto, steps: Steps) -> Res<Vec<Value>> {
    let mut out = steps.states;
    let first = body.output.len() - steps.scans.len();
    for (i, list) in steps.scans.into_iter().enumerate() {
        if list.is_empty() {
            out.push(no_steps(cx, body, first + i)?.into());
            continue;
        }
        out.push(stack(cx, &list, 0)?.into());
    }
    Ok(out)
}

/// A scan output of no steps: what its type states, with 0 in front.
fn no_steps(cx: &mut NodeCx, body: &GraphProto, output: usize) -> Res<Tensor> {
    use crate::onnx::proto::{DimValue, TypeValue};
    let info = body.output.get(output).and_then(|o| o.r#type.as_ref()).and_then(|t| t.value.as_ref());
    let Some(TypeValue::Tensor(t)) = info else {
        return Err(cx.unsupported("a scan output of no steps and no stated type"));
    };
    let dtype = crate::onnx::tensor::require_dtype(t.elem_type.unwrap_or(0))?;
    let mut dims = vec![PrimExpr::i64(0)];
    for d in t.shape.iter().flat_map(|s| &s.dim) {
        dims.push(match d.value {
            Some(DimValue::Value(v)) => PrimExpr::i64(v.max(0)),
            _ => PrimExpr::i64(0),
        });
    }
    zeros(cx, &dims, dtype)
}

/// Attributes of a scan.
struct Scan {
    body: GraphProto,
    input_axes: Vec<i64>,
    input_directions: Vec<i64>,
    output_axes: Vec<i64>,
    output_directions: Vec<i64>,
}

fn scan(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let body = graph(cx, "body")?;
    let n = cx.int_opt("num_scan_inputs");
    let n = cx.required("num_scan_inputs", n)? as usize;
    let all: Vec<Tensor> = cx.tensors(0)?;
    let Some(states) = all.len().checked_sub(n) else { return Err(cx.error("inputs are missing")) };
    let Some(outputs) = body.output.len().checked_sub(states) else {
        return Err(cx.error("the body has fewer outputs than states"));
    };
    let list = |cx: &NodeCx, name: &str, n: usize| cx.ints(name).unwrap_or_else(|| vec![0; n]);
    let s = Scan {
        input_axes: list(cx, "scan_input_axes", n),
        input_directions: list(cx, "scan_input_directions", n),
        output_axes: list(cx, "scan_output_axes", outputs),
        output_directions: list(cx, "scan_output_directions", outputs),
        body,
    };
    scan_steps(cx, &s, all[..states].to_vec(), &all[states..])
}

fn scan_steps(cx: &mut NodeCx, s: &Scan, states: Vec<Tensor>, inputs: &[Tensor]) -> Res<Vec<Value>> {
    let n = states.len();
    let mut axes = vec![];
    for (t, a) in inputs.iter().zip(&s.input_axes) {
        axes.push(cx.axis(*a, t.rank())?);
    }
    let length = match inputs.first() {
        Some(t) => t.dims[axes[0]].as_int().filter(|d| *d <= MAX_STEPS),
        None => return Err(cx.error("there is nothing to scan")),
    };
    let name = node_name(cx);
    let Some(length) = length else { return scan_rolled(cx, &name, s, states, inputs, &axes) };
    let mut states: Vec<Value> = states.into_iter().map(Value::from).collect();
    let mut scans: Vec<Vec<Tensor>> = vec![vec![]; s.body.output.len() - n];
    for i in 0..length {
        let mut args = std::mem::take(&mut states);
        for (k, t) in inputs.iter().enumerate() {
            let at = if s.input_directions.get(k) == Some(&1) { length - 1 - i } else { i };
            args.push(select_at(cx, t, axes[k], at)?.into());
        }
        let mut out = cx.im.step(&name, &s.body, args)?.into_iter();
        states = out.by_ref().take(n).collect();
        for (list, v) in scans.iter_mut().zip(out) {
            match v {
                Value::Tensor(t) => list.push(t),
                Value::Poison => {}
                _ => return Err(cx.error("scan outputs must be tensors")),
            }
        }
    }
    let mut out = states;
    if length == 0 {
        out.extend(scan_of_nothing(cx, &name, s, &out.clone(), inputs, &axes)?);
        return Ok(out);
    }
    for (k, mut list) in scans.into_iter().enumerate() {
        // What failed was reported.
        let Some(first) = list.first() else {
            out.push(Value::Poison);
            continue;
        };
        let axis = cx.axis(s.output_axes.get(k).copied().unwrap_or(0), first.rank() + 1)?;
        if s.output_directions.get(k) == Some(&1) {
            list.reverse();
        }
        out.push(stack(cx, &list, axis)?.into());
    }
    Ok(out)
}

/// The scan outputs of no steps: what a step over zeros makes tells their dims, and nothing else of it is used.
fn scan_of_nothing(
    cx: &mut NodeCx,
    name: &str,
    s: &Scan,
    states: &[Value],
    inputs: &[Tensor],
    axes: &[usize],
) -> Res<Vec<Value>> {
    let mut args = states.to_vec();
    for (t, axis) in inputs.iter().zip(axes) {
        let mut dims = t.dims.clone();
        dims.remove(*axis);
        args.push(zeros(cx, &dims, t.dtype)?.into());
    }
    let step = cx.im.step(name, &s.body, args)?;
    let mut out = vec![];
    for (k, v) in step.into_iter().skip(states.len()).enumerate() {
        let Value::Tensor(t) = v else {
            out.push(Value::Poison);
            continue;
        };
        let mut dims = t.dims.clone();
        let axis = cx.axis(s.output_axes.get(k).copied().unwrap_or(0), dims.len() + 1)?;
        dims.insert(axis, PrimExpr::i64(0));
        out.push(zeros(cx, &dims, t.dtype)?.into());
    }
    Ok(out)
}

fn zeros(cx: &mut NodeCx, dims: &[PrimExpr], dtype: DType) -> Res<Tensor> {
    let zero = Tensor::scalar(dtype, 0.0);
    cx.call("full", &[Arg::shape(dims), zero.into()], &[("dtype", AttrValue::DType(dtype))])
}

/// A scan over a number of steps that varies.
fn scan_rolled(
    cx: &mut NodeCx,
    name: &str,
    s: &Scan,
    states: Vec<Tensor>,
    inputs: &[Tensor],
    axes: &[usize],
) -> Res<Vec<Value>> {
    let n = states.len();
    let length = Tensor::known(&[], DType::I64, vec![inputs[0].dims[axes[0]].clone()]);
    let states: Vec<Value> = states.into_iter().map(Value::from).collect();
    let mut step = |cx: &mut NodeCx, i: &Tensor, states: Vec<Value>| {
        let mut args = states;
        for (k, t) in inputs.iter().enumerate() {
            let at = match s.input_directions.get(k) {
                Some(1) => {
                    let last = Tensor::known(&[], DType::I64, vec![t.dims[axes[k]].clone() - 1]);
                    cx.op("subtract", &[&last, i])?
                }
                _ => i.clone(),
            };
            args.push(cx.call("take", &[t.into(), (&at).into()], &[("axis", AttrValue::Int(axes[k] as i64))])?.into());
        }
        let out = cx.im.step(name, &s.body, args)?;
        rolled_step(cx, out, false, n)
    };
    let start = Start { go: None, states, done: 0, scans: vec![] };
    let (mut out, scans) = match rolled::run(cx, Some(&length), &start, &mut step)? {
        Outcome::Done(out, scans) => (out, scans),
        Outcome::Failed => return Ok(vec![Value::Poison; s.body.output.len()]),
        Outcome::Changed(why) => return Err(why),
    };
    for (k, mut t) in scans.into_iter().enumerate() {
        if s.output_directions.get(k) == Some(&1) {
            t = cx.call("flip", &[(&t).into()], &[("axis", AttrValue::Int(0))])?;
        }
        let axis = cx.axis(s.output_axes.get(k).copied().unwrap_or(0), t.rank())?;
        let mut perm: Vec<usize> = (1..t.rank()).collect();
        perm.insert(axis, 0);
        out.push(cx.transpose(&t, &perm)?.into());
    }
    Ok(out)
}

/// Version 8: a batch dim in front of everything; each element of the batch is a scan of its own.
fn scan_v8(cx: &mut NodeCx) -> Res<Vec<Value>> {
    if cx.has(0) {
        return Err(cx.unsupported("sequence lengths"));
    }
    let body = graph(cx, "body")?;
    let n = cx.int_opt("num_scan_inputs");
    let n = cx.required("num_scan_inputs", n)? as usize;
    let all: Vec<Tensor> = cx.tensors(1)?;
    let Some(states) = all.len().checked_sub(n) else { return Err(cx.error("inputs are missing")) };
    let batch = all.first().and_then(|t| t.dims.first()).and_then(PrimExpr::as_int).filter(|b| *b <= MAX_STEPS);
    let Some(batch) = batch else { return Err(cx.unsupported("a batch of a size that varies")) };
    let outputs = body.output.len().saturating_sub(states);
    let s = Scan {
        body,
        input_axes: vec![0; n],
        input_directions: cx.ints("directions").unwrap_or_else(|| vec![0; n]),
        output_axes: vec![0; outputs],
        output_directions: vec![0; outputs],
    };
    let mut results: Vec<Vec<Tensor>> = vec![];
    for b in 0..batch {
        let mut one = vec![];
        for t in &all {
            one.push(select_at(cx, t, 0, b)?);
        }
        let out = scan_steps(cx, &s, one[..states].to_vec(), &one[states..])?;
        results.resize(out.len(), vec![]);
        for (list, v) in results.iter_mut().zip(out) {
            match v {
                Value::Tensor(t) => list.push(t),
                _ => return Ok(vec![Value::Poison; states + outputs]),
            }
        }
    }
    results.iter().map(|list| Ok(stack(cx, list, 0)?.into())).collect()
}
