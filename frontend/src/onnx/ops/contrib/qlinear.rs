//! Operators on quantised tensors: each takes the value of its inputs, computes, and quantises anew.

use super::{concat, ms, one};
use crate::onnx::node::NodeCx;
use crate::onnx::ops::pool::pool_of;
use crate::onnx::ops::quant::{dequantize, quantize};
use crate::onnx::ops::reduce::reduce_axes;
use crate::onnx::ops::OnnxOp;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, DType};

pub const OPS: &[OnnxOp] = &[
    ms("QLinearAdd", &[(1, |cx| binary(cx, "add"))]),
    ms("QLinearMul", &[(1, |cx| binary(cx, "multiply"))]),
    ms("QLinearSigmoid", &[(1, sigmoid)]),
    ms("QLinearLeakyRelu", &[(1, leaky_relu)]),
    ms("QLinearSoftmax", &[(1, softmax)]),
    ms("QLinearAveragePool", &[(1, average_pool)]),
    ms("QLinearGlobalAveragePool", &[(1, global_average_pool)]),
    ms("QLinearReduceMean", &[(1, reduce_mean)]),
    ms("QLinearConcat", &[(1, concatenate)]),
    ms("QLinearWhere", &[(1, select)]),
    ms("QuantizeLinear", &[(1, quantize_linear)]),
    ms("DequantizeLinear", &[(1, dequantize_linear)]),
];

/// The value of input `i`, with the scale and the zero point after it.
fn real(cx: &mut NodeCx, i: usize) -> Res<Tensor> {
    let (x, scale, zero) = (cx.input(i)?, cx.input(i + 1)?, cx.optional(i + 2)?);
    dequantize(cx, &x, &scale, zero, 0, 0, DType::F32)
}

/// `y` with the scale at input `i` and the zero point after it, in the dtype of input `like` when that is left out.
fn quantised(cx: &mut NodeCx, y: &Tensor, i: usize, like: usize) -> Res<Tensor> {
    let scale = cx.input(i)?;
    let zero = match cx.optional(i + 1)? {
        Some(z) => z,
        None => Tensor::scalar_int(cx.input(like)?.dtype, 0),
    };
    quantize(cx, y, &scale, &zero, 0, 0)
}

fn binary(cx: &mut NodeCx, relax: &str) -> Res<Vec<Value>> {
    let (a, b) = (real(cx, 0)?, real(cx, 3)?);
    let y = cx.op(relax, &[&a, &b])?;
    one(quantised(cx, &y, 6, 0)?)
}

fn sigmoid(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = real(cx, 0)?;
    let y = cx.op("sigmoid", &[&x])?;
    one(quantised(cx, &y, 3, 0)?)
}

fn leaky_relu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = real(cx, 0)?;
    let alpha = cx.float("alpha", 0.01);
    let y = cx.call("nn.leakyrelu", &[(&x).into()], &[("alpha", AttrValue::Float(alpha))])?;
    one(quantised(cx, &y, 3, 0)?)
}

/// Over the dims from `axis` on before version 13 of the standard's operator, over `axis` alone since.
fn softmax(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = real(cx, 0)?;
    let axis = cx.axis(cx.int("axis", -1), x.rank())?;
    let flat = match cx.int("opset", 13) < 13 {
        true => {
            let mut dims = x.dims[..axis].to_vec();
            dims.push(cx.simplify(relax_ir::PrimExpr::product(&x.dims[axis..])));
            cx.reshape(&x, &dims)?
        }
        false => x.clone(),
    };
    let y = cx.call("nn.softmax", &[(&flat).into()], &[("axis", AttrValue::Int(axis as i64))])?;
    let y = cx.reshape(&y, &x.dims.clone())?;
    one(quantised(cx, &y, 3, 0)?)
}

/// Channels moved from the last dim to dim 1, or back.
fn channels(cx: &mut NodeCx, x: &Tensor, to_front: bool) -> Res<Tensor> {
    let n = x.rank();
    if n < 3 {
        return Ok(x.clone());
    }
    let perm: Vec<usize> = match to_front {
        true => [0, n - 1].into_iter().chain(1..n - 1).collect(),
        false => [0].into_iter().chain(2..n).chain([1]).collect(),
    };
    cx.transpose(x, &perm)
}

/// What `f` makes of input 0 with channels at dim 1.
fn over_channels(cx: &mut NodeCx, f: impl Fn(&mut NodeCx, &Tensor) -> Res<Tensor>) -> Res<Vec<Value>> {
    let x = real(cx, 0)?;
    let last = cx.flag("channels_last", false);
    let x = if last { channels(cx, &x, true)? } else { x };
    let y = f(cx, &x)?;
    let y = if last { channels(cx, &y, false)? } else { y };
    one(quantised(cx, &y, 3, 0)?)
}

fn average_pool(cx: &mut NodeCx) -> Res<Vec<Value>> {
    over_channels(cx, |cx, x| pool_of(cx, x, "avg"))
}

fn global_average_pool(cx: &mut NodeCx) -> Res<Vec<Value>> {
    over_channels(cx, |cx, x| {
        let axes: Vec<usize> = (2..x.rank()).collect();
        reduce_axes(cx, x, "mean", &axes, true)
    })
}

fn reduce_mean(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = real(cx, 0)?;
    let axes = cx.ints("axes").unwrap_or_default();
    let axes = if axes.is_empty() { (0..x.rank()).collect() } else { cx.axes(&axes, x.rank())? };
    let keep = cx.flag("keepdims", true);
    let y = reduce_axes(cx, &x, "mean", &axes, keep)?;
    one(quantised(cx, &y, 3, 0)?)
}

/// The result's scale and zero point come first, then each part with its own.
fn concatenate(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let n = cx.inputs.len();
    if n < 5 || n % 3 != 2 {
        return Err(cx.error(format!("{n} inputs: each part needs a scale and a zero point")));
    }
    let parts = (2..n).step_by(3).map(|i| real(cx, i)).collect::<Res<Vec<_>>>()?;
    let axis = cx.int_opt("axis");
    let axis = cx.axis(cx.required("axis", axis)?, parts[0].rank())?;
    let y = concat(cx, &parts, axis)?;
    one(quantised(cx, &y, 0, 2)?)
}

fn select(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let condition = cx.input(0)?;
    let (x, y) = (real(cx, 1)?, real(cx, 4)?);
    let z = cx.op("where", &[&condition, &x, &y])?;
    one(quantised(cx, &z, 7, 1)?)
}

/// The standard's operator for more types; the scale may be that of an axis.
fn quantize_linear(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let zero = cx.optional(2)?.unwrap_or_else(|| Tensor::scalar_int(DType::U8, 0));
    one(quantize(cx, &x, &scale, &zero, cx.int("axis", 1), 0)?)
}

fn dequantize_linear(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, scale, zero) = (cx.input(0)?, cx.input(1)?, cx.optional(2)?);
    let to = scale.dtype;
    one(dequantize(cx, &x, &scale, zero, cx.int("axis", 1), 0, to)?)
}
