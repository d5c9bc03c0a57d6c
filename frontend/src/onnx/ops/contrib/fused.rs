//! Activations, alone and fused with a bias.

use super::{by, ms, one, plus, wide};
use crate::onnx::node::NodeCx;
use crate::onnx::ops::OnnxOp;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    ms("Gelu", &[(1, |cx| gelu(cx, "nn.gelu"))]),
    ms("BiasGelu", &[(1, |cx| gelu(cx, "nn.gelu"))]),
    ms("FastGelu", &[(1, |cx| gelu(cx, "nn.gelu_tanh"))]),
    ms("QuickGelu", &[(1, quick_gelu)]),
    ms("BiasAdd", &[(1, bias_add)]),
    ms("BiasSoftmax", &[(1, bias_softmax)]),
    ms("BiasSplitGelu", &[(1, bias_split_gelu)]),
];

/// Of the input and its bias.
fn gelu(cx: &mut NodeCx, relax: &str) -> Res<Vec<Value>> {
    let (x, bias) = (cx.input(0)?, cx.optional(1)?);
    let dtype = x.dtype;
    let x = wide(cx, &x)?;
    let bias = bias.map(|b| wide(cx, &b)).transpose()?;
    let x = plus(cx, x, bias)?;
    let y = cx.op(relax, &[&x])?;
    one(cx.cast(&y, dtype)?)
}

/// `x * sigmoid(alpha * x)`
fn quick_gelu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let v = wide(cx, &x)?;
    let y = by(cx, "multiply", &v, cx.float("alpha", 1.702))?;
    let y = cx.op("sigmoid", &[&y])?;
    let y = cx.op("multiply", &[&v, &y])?;
    one(cx.cast(&y, x.dtype)?)
}

/// `x + bias + skip`
fn bias_add(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, bias, skip) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let y = cx.op("add", &[&x, &bias])?;
    one(cx.op("add", &[&y, &skip])?)
}

/// Softmax over the dims from `axis` on, of the sum with a bias that repeats over inner or outer dims.
fn bias_softmax(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, bias) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.axis(cx.int("axis", 1), x.rank())?;
    let y = cx.op("add", &[&x, &bias])?;
    let mut dims = y.dims[..axis].to_vec();
    dims.push(cx.simplify(PrimExpr::product(&y.dims[axis..])));
    let flat = cx.reshape(&y, &dims)?;
    let s = cx.call("nn.softmax", &[(&flat).into()], &[("axis", AttrValue::Int(-1))])?;
    one(cx.reshape(&s, &y.dims.clone())?)
}

/// `left * gelu(right)` of the halves of `x + bias`.
fn bias_split_gelu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, bias) = (cx.input(0)?, cx.input(1)?);
    let y = cx.op("add", &[&x, &bias])?;
    let (left, right) = halves(cx, &y)?;
    let right = cx.op("nn.gelu", &[&right])?;
    one(cx.op("multiply", &[&left, &right])?)
}

fn halves(cx: &mut NodeCx, x: &Tensor) -> Res<(Tensor, Tensor)> {
    let last = x.dims.last().cloned().ok_or_else(|| cx.error("a scalar has no halves"))?;
    let half = cx.simplify(last.clone().floor_div(2));
    let left = super::columns(cx, x, &PrimExpr::i64(0), &half)?;
    Ok((left, super::columns(cx, x, &half, &last)?))
}
