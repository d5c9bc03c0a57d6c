//! Windows, filter banks, random numbers and other sources of signals.

use super::movement::{iota, slice_axes};
use super::{one, op, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::NodeCx;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("Bernoulli", &[(15, bernoulli)]),
    op("BlackmanWindow", &[(17, |cx| window(cx, &[0.42, -0.5, 0.08]))]),
    op("Det", &[(11, det)]),
    op("Einsum", &[(12, einsum)]),
    op("HammingWindow", &[(17, |cx| window(cx, &[25.0 / 46.0, 25.0 / 46.0 - 1.0]))]),
    op("HannWindow", &[(17, |cx| window(cx, &[0.5, -0.5]))]),
    op("MelWeightMatrix", &[(17, mel_weights)]),
    op("RandomNormal", &[(1, |cx| random(cx, false, true))]),
    op("RandomNormalLike", &[(1, |cx| random(cx, true, true))]),
    op("RandomUniform", &[(1, |cx| random(cx, false, false))]),
    op("RandomUniformLike", &[(1, |cx| random(cx, true, false))]),
];

fn einsum(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let all = cx.tensors(0)?;
    let equation = cx.str("equation", "");
    one(cx.call("einsum", &[all.as_slice().into()], &[("subscripts", AttrValue::Str(equation))])?)
}

fn det(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    one(cx.op("onnx.det", &[&x])?)
}

/// A tensor of one integer, as a scalar of the function.
pub fn scalar(cx: &mut NodeCx, t: &Tensor) -> Res<PrimExpr> {
    let t = cx.reshape(t, &[PrimExpr::i64(1)])?;
    let t = cx.cast(&t, DType::I64)?;
    Ok(cx.read(&t)?.into_iter().next().unwrap_or_else(|| PrimExpr::i64(0)))
}

/// A window that is a sum of cosines.
fn window(cx: &mut NodeCx, terms: &[f64]) -> Res<Vec<Value>> {
    let size = cx.input(0)?;
    let size = scalar(cx, &size)?;
    let dtype = cx.dtype_opt("output_datatype")?.unwrap_or(DType::F32);
    let attrs = [
        ("terms", AttrValue::List(terms.iter().map(|t| AttrValue::Float(*t)).collect())),
        ("periodic", AttrValue::Bool(cx.flag("periodic", true))),
        ("dtype", AttrValue::DType(dtype)),
    ];
    one(cx.call("onnx.window", &[Arg::prim(size)], &attrs)?)
}

/// Weights that map the bins of a spectrum to those of the mel scale: triangles between neighbours. As ONNX's reference
/// has it, in float64.
fn mel_weights(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (bands, length) = (cx.input(0)?, cx.input(1)?);
    let (bands, length) = (scalar(cx, &bands)?, scalar(cx, &length)?);
    let dtype = cx.dtype_opt("output_datatype")?.unwrap_or(DType::F32);
    let wide = |cx: &mut NodeCx, i: usize| -> Res<Tensor> {
        let t = cx.input(i)?;
        let t = cx.reshape(&t, &[])?;
        cx.cast(&t, DType::F64)
    };
    let (rate, low, high) = (wide(cx, 2)?, wide(cx, 3)?, wide(cx, 4)?);
    let number = |v: f64| Tensor::scalar(DType::F64, v);
    let mel = |cx: &mut NodeCx, hertz: &Tensor| -> Res<Tensor> {
        let x = cx.op("divide", &[hertz, &number(700.0)])?;
        let x = cx.op("add", &[&x, &number(1.0)])?;
        let x = cx.op("log", &[&x])?;
        cx.op("multiply", &[&x, &number(2595.0 / std::f64::consts::LN_10)])
    };
    let (low, high) = (mel(cx, &low)?, mel(cx, &high)?);
    // The edges of the triangles, in bins of the spectrum.
    let edges = cx.simplify(bands.clone() + 2);
    let count = Tensor::known(&[], DType::I64, vec![edges.clone()]);
    let count = cx.cast(&count, DType::F64)?;
    let step = cx.op("subtract", &[&high, &low])?;
    let step = cx.op("divide", &[&step, &count])?;
    let at = iota(cx, &edges)?;
    let at = cx.cast(&at, DType::F64)?;
    let at = cx.op("multiply", &[&at, &step])?;
    let at = cx.op("add", &[&at, &low])?;
    let at = cx.op("multiply", &[&at, &number(std::f64::consts::LN_10 / 2595.0)])?;
    let at = cx.op("exp", &[&at])?;
    let at = cx.op("subtract", &[&at, &number(1.0)])?;
    let at = cx.op("multiply", &[&at, &number(700.0)])?;
    let points = Tensor::known(&[], DType::I64, vec![length.clone() + 1]);
    let points = cx.cast(&points, DType::F64)?;
    let at = cx.op("multiply", &[&at, &points])?;
    let at = cx.op("divide", &[&at, &rate])?;
    let at = cx.op("floor", &[&at])?;
    let at = cx.cast(&at, DType::I64)?;
    let mut edge = vec![];
    for i in 0..3 {
        let end = cx.simplify(bands.clone() + i);
        edge.push(slice_axes(cx, &at, &[0], &[PrimExpr::i64(i)], &[end], &[1])?);
    }
    let bins = cx.simplify(length.floor_div(2) + 1);
    let j = iota(cx, &bins)?;
    let j = cx.reshape(&j, &[bins.clone(), PrimExpr::i64(1)])?;
    let [lower, center, higher] = &edge[..] else { return Err(cx.error("no edges")) };
    let ratio = |cx: &mut NodeCx, a: &Tensor, b: &Tensor| -> Res<Tensor> {
        let (a, b) = (cx.cast(a, DType::F64)?, cx.cast(b, DType::F64)?);
        cx.op("divide", &[&a, &b])
    };
    let zero = Tensor::scalar_int(DType::I64, 0);
    let rise = cx.op("subtract", &[center, lower])?;
    let up = cx.op("subtract", &[&j, lower])?;
    let up = ratio(cx, &up, &rise)?;
    let flat = cx.op("equal", &[&rise, &zero])?;
    let up = cx.op("where", &[&flat, &number(1.0), &up])?;
    let (above, below) = (cx.op("greater_equal", &[&j, lower])?, cx.op("less_equal", &[&j, center])?);
    let rising = cx.op("logical_and", &[&above, &below])?;
    let y = cx.op("where", &[&rising, &up, &number(0.0)])?;
    let fall = cx.op("subtract", &[higher, center])?;
    let down = cx.op("subtract", &[higher, &j])?;
    let down = ratio(cx, &down, &fall)?;
    let (above, below) = (cx.op("greater_equal", &[&j, center])?, cx.op("less", &[&j, higher])?);
    let falling = cx.op("logical_and", &[&above, &below])?;
    let y = cx.op("where", &[&falling, &down, &y])?;
    one(cx.cast(&y, dtype)?)
}

/// Numbers of [0, 1) for a shape.
pub fn uniform(cx: &mut NodeCx, dims: &[PrimExpr], dtype: DType, salt: i64) -> Res<Tensor> {
    // Dropout has an integer, the others a float.
    let seed = match cx.attr("seed") {
        Some(a) => a.f.map_or(a.i.unwrap_or(0), |f| f.to_bits() as i64),
        None => 0,
    };
    let attrs = [("seed", AttrValue::Int(seed.wrapping_add(salt))), ("dtype", AttrValue::DType(dtype))];
    cx.call("onnx.random", &[Arg::shape(dims)], &attrs)
}

fn bernoulli(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let dtype = cx.dtype_opt("dtype")?.unwrap_or(x.dtype);
    let wide = if x.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let p = cx.cast(&x, wide)?;
    let u = uniform(cx, &x.dims.clone(), wide, 1)?;
    let y = cx.op("less", &[&u, &p])?;
    one(cx.cast(&y, dtype)?)
}

fn random(cx: &mut NodeCx, like: bool, normal: bool) -> Res<Vec<Value>> {
    let (dims, default) = match like {
        true => {
            let x = cx.input(0)?;
            (x.dims.clone(), x.dtype)
        }
        false => {
            let shape = cx.ints("shape");
            let shape = cx.required("shape", shape)?;
            (shape.into_iter().map(PrimExpr::i64).collect(), DType::F32)
        }
    };
    let dtype = cx.dtype_opt("dtype")?.unwrap_or(default);
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let u = uniform(cx, &dims, wide, 1)?;
    let (from, by) = match normal {
        true => (cx.float("mean", 0.0), cx.float("scale", 1.0)),
        false => {
            let low = cx.float("low", 0.0);
            (low, cx.float("high", 1.0) - low)
        }
    };
    let mut y = u;
    if normal {
        // Box and Muller: sqrt(-2 ln(1 - u)) cos(2 pi v).
        let unit = cx.like(&y, 1.0);
        let r = cx.op("subtract", &[&unit, &y])?;
        let r = cx.op("log", &[&r])?;
        let factor = cx.like(&r, -2.0);
        let r = cx.op("multiply", &[&r, &factor])?;
        let r = cx.op("sqrt", &[&r])?;
        let v = uniform(cx, &dims, wide, 2)?;
        let turn = cx.like(&v, std::f64::consts::TAU);
        let v = cx.op("multiply", &[&v, &turn])?;
        let v = cx.op("cos", &[&v])?;
        y = cx.op("multiply", &[&r, &v])?;
    }
    let by = cx.like(&y, by);
    let y = cx.op("multiply", &[&y, &by])?;
    let from = cx.like(&y, from);
    let y = cx.op("add", &[&y, &from])?;
    one(cx.cast(&y, dtype)?)
}
