//! Quantisation.

use super::nn::{add_bias, convolve};
use super::reduce::reduce_axes;
use super::{one, op, OnnxOp};
use crate::onnx::kind::Kind;
use crate::onnx::node::NodeCx;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("QuantizeLinear", &[(10, quantize_linear)]),
    op("DequantizeLinear", &[(10, dequantize_linear)]),
    op("DynamicQuantizeLinear", &[(11, dynamic_quantize_linear)]),
    op("MatMulInteger", &[(10, matmul_integer)]),
    op("ConvInteger", &[(10, conv_integer)]),
    op("QLinearMatMul", &[(10, qlinear_matmul)]),
    op("QLinearConv", &[(10, qlinear_conv)]),
];

/// A scale or zero point laid out over the dims of `x`: per tensor, per `axis`, or per block of `axis`.
fn spread(cx: &mut NodeCx, t: &Tensor, x: &Tensor, axis: i64, block: i64) -> Res<Tensor> {
    if t.literal_len() == Some(1) {
        return cx.reshape(t, &[]);
    }
    let axis = cx.axis(axis, x.rank())?;
    if block > 0 {
        let wide = cx.call(
            "repeat",
            &[t.into()],
            &[("repeats", AttrValue::Int(block)), ("axis", AttrValue::Int(axis as i64))],
        )?;
        if wide.dims[axis] == x.dims[axis] {
            return Ok(wide);
        }
        // The last block may be a part.
        let end = x.dims[axis].clone();
        return super::movement::slice_axes(cx, &wide, &[axis], &[PrimExpr::i64(0)], &[end], &[1]);
    }
    let mut dims = vec![PrimExpr::i64(1); x.rank()];
    dims[axis] = t.dims.first().cloned().unwrap_or_else(|| PrimExpr::i64(1));
    cx.reshape(t, &dims)
}

/// Is the scale one number, or one per entry of an axis?
fn is_plain(scale: &Tensor, block: i64) -> bool {
    block == 0 && scale.rank() <= 1
}

fn quantize_linear(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let zero = cx.optional(2)?;
    let (to, kind) = match (&zero, cx.storage_opt("output_dtype")?) {
        (Some(z), _) => (z.dtype, z.kind),
        (None, Some(to)) => to,
        (None, None) => (DType::U8, Kind::Plain),
    };
    let (axis, block) = (cx.int("axis", 1), cx.int("block_size", 0));
    if let Some((low, high)) = kind.range() {
        let zero = match zero {
            Some(z) => cx.decode(&z)?,
            None => Tensor::scalar_int(to, 0),
        };
        return one(quantize_within(cx, &x, &scale, &zero, axis, block, (low as f64, high as f64))?.of_kind(kind));
    }
    if kind != Kind::Plain {
        // Small floats are not rounded to integers; their zero point is 0.
        let scale = spread(cx, &scale, &x, axis, block)?;
        let (v, scale) = (cx.cast(&x, DType::F32)?, cx.cast(&scale, DType::F32)?);
        let y = cx.op("divide", &[&v, &scale])?;
        // The zero point is added: there is no negative zero after it.
        let y = cx.op("add", &[&y, &Tensor::scalar(DType::F32, 0.0)])?;
        let saturate = cx.flag("saturate", true);
        return one(cx.cast_kind(&y, (to, kind), saturate, "up")?);
    }
    let zero = zero.unwrap_or_else(|| Tensor::scalar_int(to, 0));
    one(quantize(cx, &x, &scale, &zero, axis, block)?)
}

/// `clip(round(x / scale) + zero)` in the dtype of `zero`.
pub fn quantize(cx: &mut NodeCx, x: &Tensor, scale: &Tensor, zero: &Tensor, axis: i64, block: i64) -> Res<Tensor> {
    let taken = |t: &Tensor| t.dtype == DType::F16 || t.dtype == DType::F32;
    let x = if taken(x) { x.clone() } else { cx.cast(x, DType::F32)? };
    let scale = &if taken(scale) { scale.clone() } else { cx.cast(scale, DType::F32)? };
    if is_plain(scale, block) {
        let axis = if x.rank() == 0 || scale.literal_len() == Some(1) { -1 } else { cx.axis(axis, x.rank())? as i64 };
        let zero = if scale.literal_len() == Some(1) || zero.literal_len() != Some(1) {
            zero.clone()
        } else {
            cx.broadcast_to(zero, &scale.dims.clone())?
        };
        return cx.call(
            "quantize",
            &[(&x).into(), scale.into(), (&zero).into()],
            &[("axis", AttrValue::Int(axis)), ("out_dtype", AttrValue::DType(zero.dtype))],
        );
    }
    let to = zero.dtype;
    quantize_within(cx, &x, scale, zero, axis, block, (to.int_min() as f64, to.int_max() as f64))
}

/// As [`quantize`], within any range.
fn quantize_within(
    cx: &mut NodeCx,
    x: &Tensor,
    scale: &Tensor,
    zero: &Tensor,
    axis: i64,
    block: i64,
    range: (f64, f64),
) -> Res<Tensor> {
    let to = zero.dtype;
    let scale = spread(cx, scale, x, axis, block)?;
    let zero = if zero.literal_len() == Some(1) { cx.reshape(zero, &[])? } else { spread(cx, zero, x, axis, block)? };
    let (v, scale) = (cx.cast(x, DType::F32)?, cx.cast(&scale, DType::F32)?);
    let y = cx.op("divide", &[&v, &scale])?;
    let y = cx.op("round", &[&y])?;
    let zero = cx.cast(&zero, DType::F32)?;
    let y = cx.op("add", &[&y, &zero])?;
    let (low, high) = (Tensor::scalar(DType::F32, range.0), Tensor::scalar(DType::F32, range.1));
    let y = cx.op("maximum", &[&y, &low])?;
    let y = cx.op("minimum", &[&y, &high])?;
    cx.cast(&y, to)
}

fn dequantize_linear(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let x = cx.decode(&x)?;
    let zero = match cx.optional(2)? {
        Some(z) => Some(cx.decode(&z)?),
        None => None,
    };
    let scale = cx.decode(&scale)?;
    let (axis, block) = (cx.int("axis", 1), cx.int("block_size", 0));
    let to = cx.dtype_opt("output_dtype")?.unwrap_or(scale.dtype);
    one(dequantize(cx, &x, &scale, zero, axis, block, to)?)
}

/// `(x - zero) * scale`
pub fn dequantize(
    cx: &mut NodeCx,
    x: &Tensor,
    scale: &Tensor,
    zero: Option<Tensor>,
    axis: i64,
    block: i64,
    to: DType,
) -> Res<Tensor> {
    let taken = |d: DType| d == DType::F16 || d == DType::F32;
    let same_len = zero.as_ref().is_none_or(|z| z.dims == scale.dims || z.literal_len() == Some(1));
    if is_plain(scale, block) && same_len && taken(scale.dtype) && taken(to) && x.dtype.is_int() {
        let per_tensor = x.rank() == 0 || scale.literal_len() == Some(1);
        let axis = if per_tensor { -1 } else { cx.axis(axis, x.rank())? as i64 };
        let zero = zero.unwrap_or_else(|| Tensor::scalar_int(x.dtype, 0));
        return cx.call(
            "dequantize",
            &[x.into(), scale.into(), zero.into()],
            &[("axis", AttrValue::Int(axis)), ("out_dtype", AttrValue::DType(to))],
        );
    }
    let scale = spread(cx, scale, x, axis, block)?;
    let mut v = cx.cast(x, DType::F32)?;
    if let Some(z) = zero {
        let z = if z.literal_len() == Some(1) { cx.reshape(&z, &[])? } else { spread(cx, &z, x, axis, block)? };
        let z = cx.cast(&z, DType::F32)?;
        v = cx.op("subtract", &[&v, &z])?;
    }
    let scale = cx.cast(&scale, DType::F32)?;
    let y = cx.op("multiply", &[&v, &scale])?;
    cx.cast(&y, to)
}

/// To uint8 over the range of the data, 0 included.
fn dynamic_quantize_linear(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let (scale, point) = dynamic_range(cx, &x)?;
    let y = quantize(cx, &x, &scale, &point, 0, 0)?;
    Ok(vec![y.into(), scale.into(), point.into()])
}

/// The scale and the zero point, of uint8, that span the range of `x` with 0.
pub fn dynamic_range(cx: &mut NodeCx, x: &Tensor) -> Res<(Tensor, Tensor)> {
    let axes: Vec<usize> = (0..x.rank()).collect();
    let zero = cx.like(x, 0.0);
    let low = reduce_axes(cx, x, "min", &axes, false)?;
    let low = cx.op("minimum", &[&low, &zero])?;
    let high = reduce_axes(cx, x, "max", &axes, false)?;
    let high = cx.op("maximum", &[&high, &zero])?;
    let range = cx.op("subtract", &[&high, &low])?;
    // Where there are only zeros, any scale serves: that of onnx's reference, as 0 / 0 is no number.
    let (none, unit) = (cx.op("equal", &[&range, &zero])?, cx.like(x, 1.0));
    let range = cx.op("where", &[&none, &unit, &range])?;
    let top = cx.like(x, 255.0);
    let scale = cx.op("divide", &[&range, &top])?;
    let point = cx.op("divide", &[&low, &scale])?;
    let point = cx.op("subtract", &[&zero, &point])?;
    let point = cx.op("round", &[&point])?;
    let point = cx.op("maximum", &[&point, &zero])?;
    let point = cx.op("minimum", &[&point, &top])?;
    Ok((scale, cx.cast(&point, DType::U8)?))
}

/// Integers as int32 with the zero point taken off. `axis`: where a zero point with several entries lies.
pub fn centred(cx: &mut NodeCx, t: &Tensor, zero: Option<Tensor>, axis: usize) -> Res<Tensor> {
    let x = cx.cast(t, DType::I32)?;
    let Some(z) = zero else { return Ok(x) };
    let z = cx.cast(&z, DType::I32)?;
    let z = match z.rank() {
        _ if z.literal_len() == Some(1) => cx.reshape(&z, &[])?,
        1 if axis >= x.rank() => {
            let say = format!("a zero point with several entries lies along dim {axis}: a tensor of {} dims", x.rank());
            return Err(cx.error(say));
        }
        1 => {
            let mut dims = vec![PrimExpr::i64(1); x.rank()];
            dims[axis] = z.dims[0].clone();
            cx.reshape(&z, &dims)?
        }
        _ => z,
    };
    cx.op("subtract", &[&x, &z])
}

fn matmul_integer(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let (za, zb) = (cx.optional(2)?, cx.optional(3)?);
    let a = centred(cx, &a, za, a.rank().saturating_sub(2))?;
    let b = centred(cx, &b, zb, b.rank().saturating_sub(1))?;
    one(cx.op("matmul", &[&a, &b])?)
}

fn conv_integer(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    let (zx, zw) = (cx.optional(2)?, cx.optional(3)?);
    let x = centred(cx, &x, zx, 1)?;
    let w = centred(cx, &w, zw, 0)?;
    one(convolve(cx, &x, &w)?)
}

/// An int32 sum times the scales of its factors, quantised anew. `axis`: of scales with several entries.
fn requantize(
    cx: &mut NodeCx,
    sum: &Tensor,
    scales: [&Tensor; 2],
    to: (&Tensor, &Tensor),
    axes: [usize; 2],
) -> Res<Tensor> {
    let mut v = cx.cast(sum, DType::F32)?;
    for (s, axis) in scales.into_iter().zip(axes) {
        let s = cx.cast(s, DType::F32)?;
        let s = if s.rank() <= 1 { spread(cx, &s, &v, axis as i64, 0)? } else { s };
        v = cx.op("multiply", &[&v, &s])?;
    }
    let scale = cx.cast(to.0, DType::F32)?;
    let Some(rows) = v.dims.get(axes[0]).cloned().filter(|_| scale.rank() == 1 && scale.dims[0].as_int().is_none())
    else {
        return quantize(cx, &v, &scale, to.1, axes[0] as i64, 0);
    };
    // One number or one for each row: known when it runs.
    let scale = cx.builder().widened(&scale, &[rows.clone()])?;
    let zero = cx.builder().widened(to.1, &[rows])?;
    quantize(cx, &v, &scale, &zero, axes[0] as i64, 0)
}

fn qlinear_matmul(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (a, b) = (cx.input(0)?, cx.input(3)?);
    let (sa, sb, sy) = (cx.input(1)?, cx.input(4)?, cx.input(6)?);
    let (za, zb, zy) = (cx.optional(2)?, cx.optional(5)?, cx.input(7)?);
    let row = a.rank().saturating_sub(2);
    let column = b.rank().saturating_sub(1);
    let a = centred(cx, &a, za, row)?;
    let b = centred(cx, &b, zb, column)?;
    let y = cx.op("matmul", &[&a, &b])?;
    let n = y.rank();
    one(requantize(cx, &y, [&sa, &sb], (&sy, &zy), [n.saturating_sub(2), n.saturating_sub(1)])?)
}

fn qlinear_conv(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, w) = (cx.input(0)?, cx.input(3)?);
    let (sx, sw, sy) = (cx.input(1)?, cx.input(4)?, cx.input(6)?);
    let (zx, zw, zy) = (cx.optional(2)?, cx.optional(5)?, cx.input(7)?);
    let bias = cx.optional(8)?;
    let x = centred(cx, &x, zx, 1)?;
    let w = centred(cx, &w, zw, 0)?;
    let y = convolve(cx, &x, &w)?;
    let y = add_bias(cx, y, bias)?;
    one(requantize(cx, &y, [&sx, &sw], (&sy, &zy), [1, 1])?)
}
