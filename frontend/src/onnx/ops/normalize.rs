//! Normalisation over instances, groups, rows and norms.

use super::reduce::reduce_axes;
use super::{one, op, OnnxOp};
use crate::onnx::node::NodeCx;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("GroupNormalization", &[(18, |cx| group_norm(cx, true)), (21, |cx| group_norm(cx, false))]),
    op("InstanceNormalization", &[(1, instance_norm)]),
    op("LpNormalization", &[(1, lp_norm)]),
    op("MeanVarianceNormalization", &[(9, mean_variance)]),
    op("RMSNormalization", &[(23, rms_norm)]),
];

/// The dtype in which statistics are computed.
fn stash(cx: &NodeCx, d: DType) -> Res<DType> {
    Ok(match cx.dtype_opt("stash_type")? {
        Some(s) if d.bits < 32 => s,
        _ if d.bits < 32 => DType::F32,
        _ => d,
    })
}

/// `(x - mean) / sqrt(variance + eps)` over `axes`.
fn standard(cx: &mut NodeCx, x: &Tensor, axes: &[usize], eps: f64) -> Res<Tensor> {
    let mean = reduce_axes(cx, x, "mean", axes, true)?;
    let centred = cx.op("subtract", &[x, &mean])?;
    let square = cx.op("square", &[&centred])?;
    let var = reduce_axes(cx, &square, "mean", axes, true)?;
    let eps = cx.like(&var, eps);
    let var = cx.op("add", &[&var, &eps])?;
    let std = cx.op("sqrt", &[&var])?;
    cx.op("divide", &[&centred, &std])
}

/// A vector over dim 1 of a tensor of `rank` dims.
fn over_channels(cx: &mut NodeCx, t: &Tensor, rank: usize) -> Res<Tensor> {
    let mut dims = vec![t.dims.first().cloned().unwrap_or_else(|| PrimExpr::i64(1))];
    dims.extend(vec![PrimExpr::i64(1); rank.saturating_sub(2)]);
    cx.reshape(t, &dims)
}

/// `x * scale + bias`, in the dtype of `x`, then of the result.
fn scaled(cx: &mut NodeCx, x: &Tensor, scale: &Tensor, bias: &Tensor, to: DType) -> Res<Tensor> {
    let (scale, bias) = (cx.cast(scale, x.dtype)?, cx.cast(bias, x.dtype)?);
    let y = cx.op("multiply", &[x, &scale])?;
    let y = cx.op("add", &[&y, &bias])?;
    cx.cast(&y, to)
}

fn instance_norm(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, scale, bias) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let wide = stash(cx, x.dtype)?;
    let v = cx.cast(&x, wide)?;
    let axes: Vec<usize> = (2..x.rank()).collect();
    let y = standard(cx, &v, &axes, cx.float("epsilon", 1e-5))?;
    let (scale, bias) = (over_channels(cx, &scale, x.rank())?, over_channels(cx, &bias, x.rank())?);
    one(scaled(cx, &y, &scale, &bias, x.dtype)?)
}

/// Scale and bias: one per group before version 21, then one per channel.
fn group_norm(cx: &mut NodeCx, per_group: bool) -> Res<Vec<Value>> {
    let (x, scale, bias) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let groups = cx.int_opt("num_groups");
    let groups = cx.required("num_groups", groups)?;
    if groups < 1 || x.rank() < 2 {
        return Err(cx.error("num_groups must be positive and the input must have channels"));
    }
    let wide = stash(cx, x.dtype)?;
    let v = cx.cast(&x, wide)?;
    let mut split = vec![x.dims[0].clone(), PrimExpr::i64(groups)];
    split.push(cx.simplify(x.dims[1].clone().floor_div(groups)));
    split.extend(x.dims[2..].iter().cloned());
    let v = cx.reshape(&v, &split)?;
    let axes: Vec<usize> = (2..split.len()).collect();
    let y = standard(cx, &v, &axes, cx.float("epsilon", 1e-5))?;
    if per_group {
        let (scale, bias) = (over_channels(cx, &scale, split.len())?, over_channels(cx, &bias, split.len())?);
        let y = scaled(cx, &y, &scale, &bias, x.dtype)?;
        return one(cx.reshape(&y, &x.dims.clone())?);
    }
    let y = cx.reshape(&y, &x.dims.clone())?;
    let (scale, bias) = (over_channels(cx, &scale, x.rank())?, over_channels(cx, &bias, x.rank())?);
    one(scaled(cx, &y, &scale, &bias, x.dtype)?)
}

/// The `p`-norm over `axes`, which stay as dims of 1.
pub fn p_norm(cx: &mut NodeCx, x: &Tensor, p: i64, axes: &[usize]) -> Res<Tensor> {
    match p {
        1 => {
            let y = cx.op("abs", &[x])?;
            reduce_axes(cx, &y, "sum", axes, true)
        }
        2 => {
            let y = cx.op("square", &[x])?;
            let y = reduce_axes(cx, &y, "sum", axes, true)?;
            cx.op("sqrt", &[&y])
        }
        p => {
            let y = cx.op("abs", &[x])?;
            let power = cx.like(&y, p as f64);
            let y = cx.op("power", &[&y, &power])?;
            let y = reduce_axes(cx, &y, "sum", axes, true)?;
            let root = cx.like(&y, 1.0 / p as f64);
            cx.op("power", &[&y, &root])
        }
    }
}

fn lp_norm(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", -1), x.rank())?;
    let norm = p_norm(cx, &x, cx.int("p", 2), &[axis])?;
    let zero = cx.like(&x, 0.0);
    let nothing = cx.op("equal", &[&norm, &zero])?;
    let unit = cx.like(&x, 1.0);
    let by = cx.op("where", &[&nothing, &unit, &norm])?;
    let y = cx.op("divide", &[&x, &by])?;
    one(cx.op("where", &[&nothing, &zero, &y])?)
}

fn mean_variance(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axes = cx.axes(&cx.ints("axes").unwrap_or_else(|| vec![0, 2, 3]), x.rank())?;
    let wide = stash(cx, x.dtype)?;
    let v = cx.cast(&x, wide)?;
    // The standard's function adds 1e-9 to the deviation; the variance is E[x^2] - E[x]^2.
    let mean = reduce_axes(cx, &v, "mean", &axes, true)?;
    let centred = cx.op("subtract", &[&v, &mean])?;
    let square = cx.op("square", &[&centred])?;
    let var = reduce_axes(cx, &square, "mean", &axes, true)?;
    let std = cx.op("sqrt", &[&var])?;
    let eps = cx.like(&std, 1e-9);
    let std = cx.op("add", &[&std, &eps])?;
    let y = cx.op("divide", &[&centred, &std])?;
    one(cx.cast(&y, x.dtype)?)
}

fn rms_norm(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.axis(cx.int("axis", -1), x.rank())?;
    let wide = stash(cx, x.dtype)?;
    let v = cx.cast(&x, wide)?;
    let axes: Vec<usize> = (axis..x.rank()).collect();
    let square = cx.op("square", &[&v])?;
    let mean = reduce_axes(cx, &square, "mean", &axes, true)?;
    let eps = cx.like(&mean, cx.float("epsilon", 1e-5));
    let mean = cx.op("add", &[&mean, &eps])?;
    let root = cx.op("sqrt", &[&mean])?;
    let y = cx.op("divide", &[&v, &root])?;
    let y = cx.cast(&y, scale.dtype)?;
    one(cx.op("multiply", &[&y, &scale])?)
}
