//! Operators of the standard under another domain, and relatives of them.

use super::{ms, one};
use crate::onnx::node::NodeCx;
use crate::onnx::ops::pool::pool_of;
use crate::onnx::ops::reduce::reduce_axes;
use crate::onnx::ops::{find, OnnxOp};
use crate::onnx::value::Value;
use crate::onnx::Res;

pub const OPS: &[OnnxOp] = &[
    ms("Trilu", &[(1, |cx| standard(cx, "Trilu"))]),
    ms("GatherND", &[(1, |cx| standard(cx, "GatherND"))]),
    ms("Pad", &[(1, |cx| standard(cx, "Pad"))]),
    ms("GridSample", &[(1, |cx| standard(cx, "GridSample"))]),
    ms("ExpandDims", &[(1, expand_dims)]),
    ms("CDist", &[(1, distances)]),
    ms("NhwcMaxPool", &[(1, max_pool)]),
];

/// The newest version of the standard's operator.
fn standard(cx: &mut NodeCx, name: &str) -> Res<Vec<Value>> {
    cx.version = i64::MAX;
    let translate = find("", name, cx.version).ok_or_else(|| cx.unsupported("this operator is not supported"))?;
    translate(cx)
}

fn expand_dims(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, axis) = (cx.input(0)?, cx.input(1)?);
    let axis = axis.as_ints().and_then(|a| a.first().copied());
    let axis = axis.ok_or_else(|| cx.unsupported("an axis that is only known at run time"))?;
    let axis = cx.axis(axis, x.rank() + 1)?;
    one(cx.unsqueeze(&x, &[axis])?)
}

/// Of each row of one matrix to each of another.
fn distances(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    if a.rank() != 2 || b.rank() != 2 {
        return Err(cx.error("both inputs must be matrices"));
    }
    let (a, b) = (cx.unsqueeze(&a, &[1])?, cx.unsqueeze(&b, &[0])?);
    let off = cx.op("subtract", &[&a, &b])?;
    let off = cx.op("square", &[&off])?;
    let sum = reduce_axes(cx, &off, "sum", &[2], false)?;
    match cx.str("metric", "sqeuclidean").as_str() {
        "sqeuclidean" => one(sum),
        "euclidean" => one(cx.op("sqrt", &[&sum])?),
        m => Err(cx.error(format!("metric `{m}` is unknown"))),
    }
}

/// With channels last.
fn max_pool(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let n = x.rank();
    if n < 3 {
        return Err(cx.error(format!("pooling of {n} dims")));
    }
    let front: Vec<usize> = [0, n - 1].into_iter().chain(1..n - 1).collect();
    let back: Vec<usize> = [0].into_iter().chain(2..n).chain([1]).collect();
    let x = cx.transpose(&x, &front)?;
    let y = pool_of(cx, &x, "max")?;
    one(cx.transpose(&y, &back)?)
}
