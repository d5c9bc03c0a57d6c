//! Sequences and optionals. Their structure is static: they exist during import, only their tensors reach the code.

use super::control::choose;
use super::movement::{select_at, slice_axes, stack};
use super::{one, op, OnnxOp};
use crate::onnx::node::NodeCx;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("SequenceEmpty", &[(11, |_| Ok(vec![Value::Sequence(vec![])]))]),
    op("SequenceConstruct", &[(11, construct)]),
    op("SequenceInsert", &[(11, insert)]),
    op("SequenceErase", &[(11, erase)]),
    op("SequenceAt", &[(11, at)]),
    op("SequenceLength", &[(11, length)]),
    op("SplitToSequence", &[(11, split)]),
    op("ConcatFromSequence", &[(11, concat)]),
    op("SequenceMap", &[(17, map)]),
    op("Optional", &[(15, optional)]),
    op("OptionalGetElement", &[(15, get_element)]),
    op("OptionalHasElement", &[(15, has_element)]),
];

/// Input `i`, a sequence.
fn sequence(cx: &NodeCx, i: usize) -> Res<Vec<Value>> {
    match cx.value(i)? {
        Value::Sequence(v) => Ok(v),
        Value::Optional(Some(v)) => match *v {
            Value::Sequence(v) => Ok(v),
            _ => Err(cx.error(format!("input {i} must be a sequence"))),
        },
        _ => Err(cx.error(format!("input {i} must be a sequence"))),
    }
}

/// A position in a sequence of `n`, negative ones from the end; `None`: only known at run time.
fn position(cx: &NodeCx, t: &Tensor, n: usize) -> Res<Option<usize>> {
    let Some(v) = t.as_ints() else { return Ok(None) };
    let p = v.first().copied().unwrap_or(0);
    let p = if p < 0 { p + n as i64 } else { p };
    match usize::try_from(p) {
        Ok(p) if p <= n => Ok(Some(p)),
        _ => Err(cx.error(format!("position {p} in a sequence of {n}"))),
    }
}

fn construct(cx: &mut NodeCx) -> Res<Vec<Value>> {
    one(Value::Sequence((0..cx.inputs.len()).map(|i| cx.value(i)).collect::<Res<_>>()?))
}

fn insert(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let mut s = sequence(cx, 0)?;
    let v = cx.value(1)?;
    let p = match cx.optional(2)? {
        Some(t) => match position(cx, &t, s.len())? {
            Some(p) => p,
            None => return insert_computed(cx, &s, &v, &t),
        },
        None => s.len(),
    };
    s.insert(p, v);
    one(Value::Sequence(s))
}

/// Each element of the result is one of three.
fn insert_computed(cx: &mut NodeCx, s: &[Value], v: &Value, at: &Tensor) -> Res<Vec<Value>> {
    let old = tensors(cx, s)?;
    let Value::Tensor(new) = v else { return Err(cx.error("the elements of the sequence must be tensors")) };
    let at = cx.cast(at, DType::I64)?;
    let at = cx.reshape(&at, &[])?;
    let at = cx.wrap(&at, &Tensor::scalar_int(DType::I64, old.len() as i64))?;
    let mut out = vec![];
    for i in 0..=old.len() {
        let here = Tensor::scalar_int(DType::I64, i as i64);
        let mut t = new.clone();
        if let Some(x) = old.get(i) {
            let before = cx.op("less", &[&here, &at])?;
            t = choose(cx, &before, x, &t)?;
        }
        if let Some(x) = i.checked_sub(1).and_then(|i| old.get(i)) {
            let behind = cx.op("greater", &[&here, &at])?;
            t = choose(cx, &behind, x, &t)?;
        }
        out.push(t.into());
    }
    one(Value::Sequence(out))
}

fn erase(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let mut s = sequence(cx, 0)?;
    let p = match cx.optional(1)? {
        Some(t) => position(cx, &t, s.len())?
            .ok_or_else(|| cx.unsupported("a position in a sequence that is only known at run time"))?,
        None => s.len().saturating_sub(1),
    };
    if p >= s.len() {
        return Err(cx.error(format!("position {p} in a sequence of {}", s.len())));
    }
    s.remove(p);
    one(Value::Sequence(s))
}

fn at(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let s = sequence(cx, 0)?;
    let t = cx.input(1)?;
    if let Some(p) = position(cx, &t, s.len())? {
        let v = s.into_iter().nth(p);
        return one(v.ok_or_else(|| cx.error(format!("there is nothing at position {p}")))?);
    }
    // Elements of one shape: a gather of their stack.
    let tensors = tensors(cx, &s)?;
    if tensors.windows(2).any(|w| w[0].dims != w[1].dims) || tensors.is_empty() {
        return Err(
            cx.unsupported("a position that is only known at run time in a sequence of tensors of several shapes")
        );
    }
    let n = PrimExpr::i64(tensors.len() as i64);
    let all = stack(cx, &tensors, 0)?;
    let t = cx.reshape(&t, &[])?;
    let t = super::movement::wrap_indices(cx, &t, &n)?;
    one(cx.call("take", &[(&all).into(), (&t).into()], &[("axis", AttrValue::Int(0))])?)
}

fn tensors(cx: &NodeCx, s: &[Value]) -> Res<Vec<Tensor>> {
    s.iter()
        .map(|v| match v {
            Value::Tensor(t) => Ok(t.clone()),
            _ => Err(cx.error("the elements of the sequence must be tensors")),
        })
        .collect()
}

fn length(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let s = sequence(cx, 0)?;
    one(Tensor::known(&[], DType::I64, vec![PrimExpr::i64(s.len() as i64)]))
}

fn split(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", 0), x.rank())?;
    let total = |cx: &NodeCx| {
        let open = || cx.unsupported("a sequence of a length that is only known at run time");
        x.dims[axis].as_int().ok_or_else(open)
    };
    let sizes: Vec<PrimExpr> = match cx.optional(1)? {
        None => {
            let total = total(cx)?;
            let keep = cx.flag("keepdims", true);
            let mut out = vec![];
            for i in 0..total {
                let t = select_at(cx, &x, axis, i)?;
                out.push(Value::from(if keep { cx.unsqueeze(&t, &[axis])? } else { t }));
            }
            return one(Value::Sequence(out));
        }
        Some(t) if t.rank() == 0 => {
            let Some(size) = t.as_ints().and_then(|v| v.first().copied()).filter(|s| *s > 0) else {
                let d = cx.unsupported("a part size that is only known at run time");
                return Err(d.help("state its value with --structure NAME=[VALUE]: code is compiled for it"));
            };
            let total = total(cx)?;
            let n = (total + size - 1) / size;
            (0..n).map(|i| PrimExpr::i64(size.min(total - i * size))).collect()
        }
        Some(t) => cx.read(&t)?,
    };
    let mut out = vec![];
    let mut begin = PrimExpr::i64(0);
    for s in sizes {
        let end = cx.simplify(begin.clone() + s);
        out.push(slice_axes(cx, &x, &[axis], &[begin], &[end.clone()], &[1])?.into());
        begin = end;
    }
    one(Value::Sequence(out))
}

fn concat(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let s = sequence(cx, 0)?;
    let all = tensors(cx, &s)?;
    let Some(first) = all.first() else { return Err(cx.error("the sequence is empty")) };
    let axis = cx.int_opt("axis");
    let axis = cx.required("axis", axis)?;
    if cx.flag("new_axis", false) {
        let axis = cx.axis(axis, first.rank() + 1)?;
        return one(stack(cx, &all, axis)?);
    }
    let axis = cx.axis(axis, first.rank())?;
    one(cx.call("concat", &[all.as_slice().into()], &[("axis", AttrValue::Int(axis as i64))])?)
}

/// The body for each element; other inputs are sequences that go along, or tensors that every step sees.
fn map(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let body = cx.graph("body").cloned();
    let body = cx.required("body", body)?;
    let n = sequence(cx, 0)?.len();
    let mut out: Vec<Vec<Value>> = vec![vec![]; body.output.len()];
    for i in 0..n {
        let mut args = vec![];
        for k in 0..cx.inputs.len() {
            args.push(match cx.value(k)? {
                Value::Sequence(s) => {
                    s.get(i).cloned().ok_or_else(|| cx.error(format!("input {k} has fewer elements than input 0")))?
                }
                v => v,
            });
        }
        for (list, v) in out.iter_mut().zip(cx.im.subgraph("body", &body, args)?) {
            list.push(v);
        }
    }
    Ok(out.into_iter().map(Value::Sequence).collect())
}

fn optional(cx: &mut NodeCx) -> Res<Vec<Value>> {
    one(Value::Optional(cx.inputs.first().cloned().flatten().map(Box::new)))
}

fn get_element(cx: &mut NodeCx) -> Res<Vec<Value>> {
    match cx.value(0)? {
        Value::Optional(Some(v)) => one(*v),
        Value::Optional(None) => Err(cx.error("the optional is empty")),
        v => one(v),
    }
}

fn has_element(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let has = match cx.inputs.first().cloned().flatten() {
        None | Some(Value::Optional(None)) => 0,
        Some(_) => 1,
    };
    one(Tensor::known(&[], DType::BOOL, vec![PrimExpr::bool(has != 0)]))
}
