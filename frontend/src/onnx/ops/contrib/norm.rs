//! Normalisation with the sums before it, and the first layer of encoders.

use super::{by, ms, plus, wide};
use crate::onnx::node::NodeCx;
use crate::onnx::ops::reduce::reduce_axes;
use crate::onnx::ops::{op, OnnxOp};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    // onnxruntime has this one in the standard's domain.
    op("SimplifiedLayerNormalization", &[(1, simplified)]),
    ms("SimplifiedLayerNormalization", &[(1, simplified)]),
    ms("SkipLayerNormalization", &[(1, |cx| skip(cx, true))]),
    ms("SkipSimplifiedLayerNormalization", &[(1, |cx| skip(cx, false))]),
    ms("EmbedLayerNormalization", &[(1, |cx| embed(cx, false))]),
    ms("QEmbedLayerNormalization", &[(1, |cx| embed(cx, true))]),
];

/// What normalising gives: the result, the mean (if it is taken off), and the inverse of the deviation.
pub struct Normal {
    pub y: Tensor,
    mean: Option<Tensor>,
    inverse: Tensor,
}

/// `(x - mean) / sqrt(variance + eps) * scale + bias` over the dims from `axis` on; without `centred` no mean is
/// taken off.
pub fn normalise(cx: &mut NodeCx, x: &Tensor, axis: usize, centred: bool, eps: f64) -> Res<Normal> {
    let axes: Vec<usize> = (axis..x.rank()).collect();
    let (mean, v) = match centred {
        true => {
            let mean = reduce_axes(cx, x, "mean", &axes, true)?;
            let v = cx.op("subtract", &[x, &mean])?;
            (Some(mean), v)
        }
        false => (None, x.clone()),
    };
    let square = cx.op("square", &[&v])?;
    let var = reduce_axes(cx, &square, "mean", &axes, true)?;
    let var = by(cx, "add", &var, eps)?;
    let std = cx.op("sqrt", &[&var])?;
    let y = cx.op("divide", &[&v, &std])?;
    let unit = cx.like(&std, 1.0);
    let inverse = cx.op("divide", &[&unit, &std])?;
    Ok(Normal { y, mean, inverse })
}

fn simplified(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.axis(cx.int("axis", -1), x.rank())?;
    let v = wide(cx, &x)?;
    let n = normalise(cx, &v, axis, false, cx.float("epsilon", 1e-5))?;
    let y = cx.cast(&n.y, scale.dtype)?;
    let y = cx.op("multiply", &[&y, &scale])?;
    Ok(vec![y.into(), n.inverse.into()])
}

/// Of `input + skip + bias`.
fn skip(cx: &mut NodeCx, centred: bool) -> Res<Vec<Value>> {
    let (x, skip, gamma) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let beta = if centred { cx.optional(3)? } else { None };
    let bias = cx.optional(if centred { 4 } else { 3 })?;
    let dtype = x.dtype;
    let (x, skip, gamma) = (wide(cx, &x)?, wide(cx, &skip)?, wide(cx, &gamma)?);
    let beta = beta.map(|b| wide(cx, &b)).transpose()?;
    let bias = bias.map(|b| wide(cx, &b)).transpose()?;
    let sum = cx.op("add", &[&x, &skip])?;
    let sum = plus(cx, sum, bias)?;
    let n = normalise(cx, &sum, sum.rank().saturating_sub(1), centred, cx.float("epsilon", 1e-5))?;
    let y = cx.op("multiply", &[&n.y, &gamma])?;
    let y = plus(cx, y, beta)?;
    let (y, sum) = (cx.cast(&y, dtype)?, cx.cast(&sum, dtype)?);
    let mean = n.mean.unwrap_or_else(|| n.inverse.clone());
    Ok(vec![y.into(), mean.into(), n.inverse.into(), sum.into()])
}

/// Embeddings of words, positions and segments, summed and normalised; and how many entries of the mask are 1.
/// `quantised`: the tables are of 8 bits, each with a scale and a zero point behind the mask.
fn embed(cx: &mut NodeCx, quantised: bool) -> Res<Vec<Value>> {
    let (ids, segments) = (cx.input(0)?, cx.optional(1)?);
    let (words, places, kinds) = (cx.input(2)?, cx.input(3)?, cx.optional(4)?);
    let (gamma, beta, mask) = (cx.input(5)?, cx.input(6)?, cx.optional(7)?);
    let at = if quantised { None } else { cx.optional(8)? };
    if ids.rank() != 2 || places.rank() != 2 {
        return Err(cx.error("ids and tables must have two dims"));
    }
    // What is read of the table that is input `i`, as a number.
    let real = |cx: &mut NodeCx, x: Tensor, i: usize| {
        if !quantised {
            return Ok(x);
        }
        let (scale, zero) = (cx.input(i + 6)?, cx.input(i + 11)?);
        let (x, zero) = (cx.cast(&x, scale.dtype)?, cx.cast(&zero, scale.dtype)?);
        let x = cx.op("subtract", &[&x, &zero])?;
        cx.op("multiply", &[&x, &scale])
    };
    let rows = |cx: &mut NodeCx, table: &Tensor, at: &Tensor| {
        cx.call("take", &[table.into(), at.into()], &[("axis", AttrValue::Int(0))])
    };
    let sum = rows(cx, &words, &ids)?;
    let mut sum = real(cx, sum, 2)?;
    let place = match at {
        Some(at) => rows(cx, &places, &at)?,
        None => {
            let (zero, n) = ([PrimExpr::i64(0)], [ids.dims[1].clone()]);
            crate::onnx::ops::movement::slice_axes(cx, &places, &[0], &zero, &n, &[1])?
        }
    };
    let place = real(cx, place, 3)?;
    sum = cx.op("add", &[&sum, &place])?;
    if let (Some(s), Some(k)) = (&segments, &kinds) {
        let k = rows(cx, k, s)?;
        let k = real(cx, k, 4)?;
        sum = cx.op("add", &[&sum, &k])?;
    }
    let v = wide(cx, &sum)?;
    let n = normalise(cx, &v, 2, true, cx.float("epsilon", 1e-12))?;
    let (gamma, beta) = (real(cx, gamma, 5)?, real(cx, beta, 6)?);
    let (gamma, beta) = (wide(cx, &gamma)?, wide(cx, &beta)?);
    let y = cx.op("multiply", &[&n.y, &gamma])?;
    let y = cx.op("add", &[&y, &beta])?;
    let y = cx.cast(&y, sum.dtype)?;
    let count = match mask {
        Some(m) => {
            let unit = Tensor::scalar_int(m.dtype, 1);
            let ones = cx.op("equal", &[&m, &unit])?;
            let ones = cx.cast(&ones, DType::I32)?;
            reduce_axes(cx, &ones, "sum", &[1], false)?
        }
        None => {
            let zero = Tensor::scalar_int(DType::I32, 0);
            cx.broadcast_to(&zero, &[ids.dims[0].clone()])?
        }
    };
    Ok(vec![y.into(), count.into(), sum.into()])
}
