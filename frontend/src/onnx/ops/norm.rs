//! Normalisation.

use super::reduce::reduce_axes;
use super::{op, OnnxOp};
use crate::onnx::node::NodeCx;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{DType, PrimExpr};

pub const OPS: &[OnnxOp] =
    &[op("BatchNormalization", &[(1, batch_norm)]), op("LayerNormalization", &[(17, layer_norm)])];

/// A vector over dim 1 of a tensor of `rank` dims.
fn per_channel(cx: &mut NodeCx, t: &Tensor, rank: usize) -> Res<Tensor> {
    let mut dims = vec![t.dims.first().cloned().unwrap_or_else(|| PrimExpr::i64(1))];
    dims.extend(vec![PrimExpr::i64(1); rank.saturating_sub(2)]);
    cx.reshape(t, &dims)
}

/// `(x - mean) / sqrt(var + eps) * scale + bias`, written as `x * a + b` with `a` and `b` per channel.
fn batch_norm(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let (scale, bias, mut mean, mut var) = (cx.input(1)?, cx.input(2)?, cx.input(3)?, cx.input(4)?);
    let mut running: Vec<Value> = vec![];
    if cx.version >= 14 && cx.flag("training_mode", false) {
        // The moments of the batch, and how they move the running ones.
        let wide = cx.cast(&x, mean.dtype)?;
        let axes: Vec<usize> = (0..x.rank()).filter(|a| *a != 1).collect();
        let batch_mean = reduce_axes(cx, &wide, "mean", &axes, false)?;
        let channels = per_channel(cx, &batch_mean, x.rank())?;
        let centred = cx.op("subtract", &[&wide, &channels])?;
        let square = cx.op("square", &[&centred])?;
        let batch_var = reduce_axes(cx, &square, "mean", &axes, false)?;
        let momentum = cx.float("momentum", 0.9);
        for (old, new) in [(&mean, &batch_mean), (&var, &batch_var)] {
            let (keep, take) = (cx.like(old, momentum), cx.like(new, 1.0 - momentum));
            let old = cx.op("multiply", &[old, &keep])?;
            let new = cx.op("multiply", &[new, &take])?;
            running.push(cx.op("add", &[&old, &new])?.into());
        }
        mean = batch_mean;
        var = batch_var;
    }
    let eps = cx.float("epsilon", 1e-5);
    let eps = cx.like(&var, eps);
    let var = cx.op("add", &[&var, &eps])?;
    let std = cx.op("sqrt", &[&var])?;
    let scale = cx.cast(&scale, std.dtype)?;
    let bias = cx.cast(&bias, std.dtype)?;
    let a = cx.op("divide", &[&scale, &std])?;
    let shift = cx.op("multiply", &[&mean, &a])?;
    let b = cx.op("subtract", &[&bias, &shift])?;
    let (a, b) = (per_channel(cx, &a, x.rank())?, per_channel(cx, &b, x.rank())?);
    let (a, b) = (cx.cast(&a, x.dtype)?, cx.cast(&b, x.dtype)?);
    let y = cx.op("multiply", &[&x, &a])?;
    let mut out = vec![Value::from(cx.op("add", &[&y, &b])?)];
    out.extend(running);
    Ok(out)
}

fn layer_norm(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let bias = cx.optional(2)?;
    let axis = cx.axis(cx.int("axis", -1), x.rank())?;
    let axes: Vec<usize> = (axis..x.rank()).collect();
    let wide = if x.dtype.bits < 32 { DType::F32 } else { x.dtype };
    let v = cx.cast(&x, wide)?;
    let mean = reduce_axes(cx, &v, "mean", &axes, true)?;
    let centred = cx.op("subtract", &[&v, &mean])?;
    let square = cx.op("square", &[&centred])?;
    let var = reduce_axes(cx, &square, "mean", &axes, true)?;
    let eps = Tensor::scalar(wide, cx.float("epsilon", 1e-5));
    let var = cx.op("add", &[&var, &eps])?;
    let std = cx.op("sqrt", &[&var])?;
    let y = cx.op("divide", &[&centred, &std])?;
    let y = cx.cast(&y, x.dtype)?;
    let mut y = cx.op("multiply", &[&y, &scale])?;
    if let Some(b) = bias {
        y = cx.op("add", &[&y, &b])?;
    }
    let mut out: Vec<Value> = vec![y.into(), mean.into()];
    if cx.wants(2) {
        let one_ = Tensor::scalar(wide, 1.0);
        out.push(cx.op("divide", &[&one_, &std])?.into());
    }
    Ok(out)
}
