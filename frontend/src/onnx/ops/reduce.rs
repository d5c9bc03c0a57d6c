//! Reductions and positions of extremes.

use super::{one, op, OnnxOp};
use crate::onnx::node::{ints, without, Axes, NodeCx};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("ReduceSum", &[(1, |cx| reduce(cx, "sum"))]),
    op("ReduceMean", &[(1, |cx| reduce(cx, "mean"))]),
    op("ReduceMax", &[(1, |cx| reduce(cx, "max"))]),
    op("ReduceMin", &[(1, |cx| reduce(cx, "min"))]),
    op("ReduceProd", &[(1, |cx| reduce(cx, "prod"))]),
    op("ReduceL1", &[(1, |cx| with_before(cx, "abs"))]),
    op("ReduceSumSquare", &[(1, |cx| with_before(cx, "square"))]),
    op("ReduceL2", &[(1, l2)]),
    op("ReduceLogSum", &[(1, log_sum)]),
    op("ReduceLogSumExp", &[(1, log_sum_exp)]),
    op("ArgMax", &[(1, |cx| arg(cx, "argmax"))]),
    op("ArgMin", &[(1, |cx| arg(cx, "argmin"))]),
];

/// Reduces `x` as the node's axes say.
fn reduced(cx: &mut NodeCx, x: &Tensor, relax: &str) -> Res<Tensor> {
    let axes = cx.axes_attr_or_input(1, x.rank(), 0)?;
    let keep = cx.flag("keepdims", true);
    let axes = match axes {
        Some(a) if !a.is_empty() => a,
        _ if cx.flag("noop_with_empty_axes", false) => return Ok(x.clone()),
        _ => Axes::Known((0..x.rank()).collect()),
    };
    let known = match &axes {
        Axes::Known(a) if a.is_empty() => return Ok(x.clone()),
        Axes::Known(a) => a,
        Axes::Computed(_) => return reduce_computed(cx, x, relax, &axes, keep),
    };
    reduce_axes(cx, x, relax, known, keep)
}

/// Axes that are only known at run time: each dim `d` is seen as two, `(d, 1)` where it stays and `(1, d)` where it is
/// reduced, and every second one is reduced.
fn reduce_computed(cx: &mut NodeCx, x: &Tensor, relax: &str, axes: &Axes, keep: bool) -> Res<Tensor> {
    let mut pairs = vec![];
    let mut kept = vec![];
    for (i, d) in x.dims.iter().enumerate() {
        let gone = axes.contains(i);
        let stays = gone.clone().select(1, d.clone());
        pairs.push(stays.clone());
        pairs.push(gone.select(d.clone(), 1));
        kept.push(stays);
    }
    let y = cx.reshape(x, &pairs)?;
    let odd: Vec<usize> = (0..x.rank()).map(|i| 2 * i + 1).collect();
    let y = reduce_axes(cx, &y, relax, &odd, false)?;
    if keep {
        return Ok(y);
    }
    cx.reshape(&y, &without(&x.dims, axes))
}

/// Calls a Relax reduction.
pub fn reduce_axes(cx: &mut NodeCx, x: &Tensor, relax: &str, axes: &[usize], keep: bool) -> Res<Tensor> {
    cx.call(relax, &[x.into()], &[("axis", ints(axes.iter().map(|a| *a as i64))), ("keepdims", AttrValue::Bool(keep))])
}

fn reduce(cx: &mut NodeCx, relax: &str) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    if let Some(t) = product_known(cx, &x, relax) {
        return one(t);
    }
    one(reduced(cx, &x, relax)?)
}

/// Products of dims are shape code.
fn product_known(cx: &mut NodeCx, x: &Tensor, relax: &str) -> Option<Tensor> {
    let elements = x.elements().filter(|_| x.leaf().is_none() && x.dtype.is_int() && x.rank() == 1)?;
    let total = match relax {
        "prod" => elements.into_iter().fold(PrimExpr::one(x.dtype), |a, b| a * b),
        "sum" => elements.into_iter().fold(PrimExpr::zero(x.dtype), |a, b| a + b),
        _ => return None,
    };
    let total = cx.simplify(total);
    let dims: &[usize] = if cx.flag("keepdims", true) { &[1] } else { &[] };
    Some(Tensor::known(dims, x.dtype, vec![total]))
}

fn with_before(cx: &mut NodeCx, relax: &str) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let y = cx.op(relax, &[&x])?;
    one(reduced(cx, &y, "sum")?)
}

fn l2(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let y = cx.op("square", &[&x])?;
    let y = reduced(cx, &y, "sum")?;
    if x.dtype.is_float() {
        return one(cx.op("sqrt", &[&y])?);
    }
    let y = cx.cast(&y, DType::F64)?;
    let y = cx.op("sqrt", &[&y])?;
    one(cx.cast(&y, x.dtype)?)
}

fn log_sum(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let y = reduced(cx, &x, "sum")?;
    one(cx.op("log", &[&y])?)
}

/// Stable: the maximum is taken out first.
fn log_sum_exp(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let y = cx.op("exp", &[&x])?;
    let y = reduced(cx, &y, "sum")?;
    one(cx.op("log", &[&y])?)
}

fn arg(cx: &mut NodeCx, relax: &str) -> Res<Vec<Value>> {
    let mut x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", 0), x.rank())?;
    let keep = cx.flag("keepdims", true);
    let last = cx.flag("select_last_index", false);
    if last {
        x = cx.call("flip", &[(&x).into()], &[("axis", AttrValue::Int(axis as i64))])?;
    }
    let mut y =
        cx.call(relax, &[(&x).into()], &[("axis", AttrValue::Int(axis as i64)), ("keepdims", AttrValue::Bool(keep))])?;
    if last {
        let top = Tensor::known(&[], DType::I64, vec![cx.simplify(x.dims[axis].clone() - 1)]);
        y = cx.op("subtract", &[&top, &y])?;
    }
    one(cx.cast(&y, DType::I64)?)
}
