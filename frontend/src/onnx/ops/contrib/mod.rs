//! Operators of the domain `com.microsoft`: what onnxruntime's optimiser fuses, and what quantisers emit.
//!
//! Source: ContribOperators.md of onnxruntime; where that is silent, what its CPU kernels compute.

mod attention;
mod dense;
mod fused;
mod layout;
mod norm;
mod qlinear;
mod quant;

use super::{one, op_of, OnnxOp, Translate};
use crate::onnx::node::NodeCx;
use crate::onnx::value::Tensor;
use crate::onnx::Res;
use relax_ir::{AttrValue, DType, PrimExpr};

pub static FAMILIES: &[&[OnnxOp]] =
    &[attention::OPS, dense::OPS, fused::OPS, layout::OPS, norm::OPS, qlinear::OPS, quant::OPS];

/// An operator of the domain, which has one version.
const fn ms(name: &'static str, translate: &'static [(i64, Translate)]) -> OnnxOp {
    op_of("com.microsoft", name, translate)
}

/// `x` by a scalar of its dtype.
fn by(cx: &mut NodeCx, relax: &str, x: &Tensor, v: f64) -> Res<Tensor> {
    let v = cx.like(x, v);
    cx.op(relax, &[x, &v])
}

/// Adds `bias` if there is one.
fn plus(cx: &mut NodeCx, x: Tensor, bias: Option<Tensor>) -> Res<Tensor> {
    match bias {
        Some(b) => cx.op("add", &[&x, &b]),
        None => Ok(x),
    }
}

/// 16-bit floats as float32: these kernels round once, at the end.
fn wide(cx: &mut NodeCx, x: &Tensor) -> Res<Tensor> {
    match x.dtype.is_float() && x.dtype.bits < 32 {
        true => cx.cast(x, DType::F32),
        false => Ok(x.clone()),
    }
}

/// Entries `from..to` of the last dim.
fn columns(cx: &mut NodeCx, x: &Tensor, from: &PrimExpr, to: &PrimExpr) -> Res<Tensor> {
    let last = x.rank().saturating_sub(1);
    super::movement::slice_axes(cx, x, &[last], std::slice::from_ref(from), std::slice::from_ref(to), &[1])
}

fn concat(cx: &mut NodeCx, parts: &[Tensor], axis: usize) -> Res<Tensor> {
    cx.call("concat", &[parts.into()], &[("axis", AttrValue::Int(axis as i64))])
}

/// Entry `i` of dim 0, which goes.
fn entry(cx: &mut NodeCx, x: &Tensor, i: i64) -> Res<Tensor> {
    let (from, to) = ([PrimExpr::i64(i)], [PrimExpr::i64(i + 1)]);
    let y = super::movement::slice_axes(cx, x, &[0], &from, &to, &[1])?;
    cx.reshape(&y, &x.dims[1..])
}
