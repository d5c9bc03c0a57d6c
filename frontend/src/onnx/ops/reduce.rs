//! Reductions and positions of extremes.

use super::{one, op, OnnxOp};
use crate::onnx::node::{ints, NodeCx};
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

/// The axes along which a node reduces.
enum Axes {
    /// None: nothing is reduced.
    Known(Vec<usize>),
    Computed(Tensor),
}

/// As the node says: an attribute in old versions, an input in new ones.
fn axes(cx: &mut NodeCx, x: &Tensor) -> Res<Axes> {
    let input = if cx.attr("axes").is_some() { None } else { cx.optional(1)? };
    let known = match (cx.ints("axes"), input) {
        (Some(a), _) => a,
        (None, None) => vec![],
        (None, Some(t)) => match t.as_ints() {
            Some(a) => a,
            None => return Ok(Axes::Computed(t)),
        },
    };
    Ok(Axes::Known(match known.is_empty() {
        false => cx.axes(&known, x.rank())?,
        true if cx.flag("noop_with_empty_axes", false) => vec![],
        true => (0..x.rank()).collect(),
    }))
}

/// Reduces `x` along the node's axes.
fn reduced(cx: &mut NodeCx, x: &Tensor, relax: &str) -> Res<Tensor> {
    let keep = cx.flag("keepdims", true);
    match axes(cx, x)? {
        Axes::Known(a) if a.is_empty() => Ok(x.clone()),
        Axes::Known(a) => reduce_axes(cx, x, relax, &a, keep),
        Axes::Computed(t) => reduce_computed(cx, x, relax, &t, keep),
    }
}

/// Axes that are only known at run time: a kernel of its own reads them.
fn reduce_computed(cx: &mut NodeCx, x: &Tensor, relax: &str, axes: &Tensor, keep: bool) -> Res<Tensor> {
    let n = axes.dims.first().and_then(PrimExpr::as_int).unwrap_or(0);
    if !keep && n == x.rank() as i64 {
        // As many axes as dims: all of them.
        let all: Vec<usize> = (0..x.rank()).collect();
        return reduce_axes(cx, x, relax, &all, false);
    }
    let mut axes = axes.clone();
    if axes.dims.first().is_some_and(|d| d.as_int().is_none()) && keep && !cx.flag("noop_with_empty_axes", false) {
        axes = all_if_none(cx, &axes, x.rank() as i64)?;
    }
    let attrs = [("kind", AttrValue::Str(relax.into())), ("keepdims", AttrValue::Bool(keep))];
    cx.call("onnx.reduce", &[x.into(), (&axes).into()], &attrs)
}

/// Axes whose number varies: all of `rank` when there are none. As many as dims, those beside them out of range.
fn all_if_none(cx: &mut NodeCx, axes: &Tensor, rank: i64) -> Res<Tensor> {
    let n = axes.dims[0].clone();
    let axes = cx.cast(axes, DType::I64)?;
    let axes = cx.reshape(&axes, &[n.clone(), PrimExpr::i64(1)])?;
    let axes = cx.wrap(&axes, &Tensor::scalar_int(DType::I64, rank))?;
    let every = Tensor::ints(&(0..rank).collect::<Vec<_>>());
    let hit = cx.op("equal", &[&axes, &every])?;
    let hit = cx.cast(&hit, DType::I64)?;
    let hits = reduce_axes(cx, &hit, "sum", &[0], false)?;
    let zero = Tensor::scalar_int(DType::I64, 0);
    let named = cx.op("greater", &[&hits, &zero])?;
    let none = Tensor::known(&[], DType::I64, vec![n]);
    let none = cx.op("equal", &[&none, &zero])?;
    let chosen = cx.op("logical_or", &[&named, &none])?;
    cx.op("where", &[&chosen, &every, &Tensor::scalar_int(DType::I64, rank)])
}

/// Calls a Relax reduction.
pub fn reduce_axes(cx: &mut NodeCx, x: &Tensor, relax: &str, axes: &[usize], keep: bool) -> Res<Tensor> {
    cx.call(relax, &[x.into()], &[("axis", ints(axes.iter().map(|a| *a as i64))), ("keepdims", AttrValue::Bool(keep))])
}

fn reduce(cx: &mut NodeCx, relax: &str) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    if let Some(t) = product_known(cx, &x, relax).or_else(|| literal_known(cx, &x, relax)) {
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

/// All of a vector of literals, as exporters reduce lists of sizes.
fn literal_known(cx: &mut NodeCx, x: &Tensor, relax: &str) -> Option<Tensor> {
    let elements = x.elements().filter(|e| x.rank() == 1 && !e.is_empty())?;
    let axes = cx.ints("axes").or_else(|| cx.optional(1).ok()??.as_ints());
    let whole = match axes.as_deref() {
        None | Some([]) => !cx.flag("noop_with_empty_axes", false) && !cx.has(1),
        Some(a) => matches!(a, [0 | -1]),
    };
    if !whole {
        return None;
    }
    let total = if x.dtype.is_float() {
        let values = elements.iter().map(PrimExpr::as_float).collect::<Option<Vec<f64>>>()?;
        PrimExpr::float(
            x.dtype,
            values.into_iter().reduce(match relax {
                "max" => f64::max,
                "min" => f64::min,
                _ => return None,
            })?,
        )
    } else {
        let values = elements.iter().map(PrimExpr::as_int).collect::<Option<Vec<i64>>>()?;
        PrimExpr::int(
            x.dtype,
            match relax {
                "max" => values.into_iter().max()?,
                "min" => values.into_iter().min()?,
                _ => return None,
            },
        )
    };
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

/// The maximum is taken out first, where it is finite, so that no exponential is too large; not where axes are computed.
fn log_sum_exp(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let most = match axes(cx, &x)? {
        Axes::Known(a) if x.dtype.is_float() && !a.is_empty() => {
            let most = reduce_axes(cx, &x, "max", &a, true)?;
            let finite = cx.op("isfinite", &[&most])?;
            Some(cx.op("where", &[&finite, &most, &Tensor::scalar(x.dtype, 0.0)])?)
        }
        _ => None,
    };
    let inner = match &most {
        Some(most) => cx.op("subtract", &[&x, most])?,
        None => x,
    };
    let y = cx.op("exp", &[&inner])?;
    let y = reduced(cx, &y, "sum")?;
    let y = cx.op("log", &[&y])?;
    let Some(most) = most else { return one(y) };
    let most = cx.reshape(&most, &y.dims)?;
    one(cx.op("add", &[&y, &most])?)
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
