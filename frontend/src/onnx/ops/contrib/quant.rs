//! Products of quantised tensors.

use super::{by, ms, one, plus};
use crate::onnx::node::NodeCx;
use crate::onnx::ops::quant::{centred, dequantize, dynamic_range, quantize};
use crate::onnx::ops::recurrent::{layer, part, Kind};
use crate::onnx::ops::OnnxOp;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::constant::Coded;
use relax_ir::{Constant, DType};

pub const OPS: &[OnnxOp] = &[
    ms("DynamicQuantizeLSTM", &[(1, |cx| layer(cx, Kind::Lstm, stored_weights))]),
    ms("DynamicQuantizeMatMul", &[(1, dynamic_matmul)]),
    ms("MatMulIntegerToFloat", &[(1, matmul_to_float)]),
    ms("QGemm", &[(1, qgemm)]),
    ms("MatMulNBits", &[(1, matmul_nbits)]),
];

/// `a * b` with zero points taken off, times the product of both scales: float32. Zero points and scales may be one
/// number, one per row of `a`, or one per column of `b`.
pub fn product(cx: &mut NodeCx, a: [&Tensor; 2], b: [&Tensor; 2], zeros: [Option<Tensor>; 2]) -> Res<Tensor> {
    let [za, zb] = zeros;
    let x = centred(cx, a[0], za, a[0].rank().saturating_sub(2))?;
    let y = centred(cx, b[0], zb, b[0].rank().saturating_sub(1))?;
    let sum = cx.op("matmul", &[&x, &y])?;
    let sum = cx.cast(&sum, DType::F32)?;
    let (sa, sb) = (single(cx, a[1])?, single(cx, b[1])?);
    let sa = match sa.rank() {
        1 => cx.unsqueeze(&sa, &[1])?,
        _ => sa,
    };
    let scale = cx.op("multiply", &[&sa, &sb])?;
    cx.op("multiply", &[&sum, &scale])
}

/// A tensor of one element as a scalar.
fn single(cx: &mut NodeCx, t: &Tensor) -> Res<Tensor> {
    match t.literal_len() {
        Some(1) => cx.reshape(t, &[]),
        _ => Ok(t.clone()),
    }
}

/// The left side is quantised over its range first.
fn dynamic_matmul(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (a, b, scale) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (zero, bias) = (cx.optional(3)?, cx.optional(4)?);
    let (a_scale, a_zero) = dynamic_range(cx, &a)?;
    let a = quantize(cx, &a, &a_scale, &a_zero, 0, 0)?;
    let y = product(cx, [&a, &a_scale], [&b, &scale], [Some(a_zero), zero])?;
    one(plus(cx, y, bias)?)
}

/// The weights of DynamicQuantizeLSTM as floats: they are stored as `(input, 4 * hidden)` of bytes, whose scale and zero
/// point (of all, or of each column) follow the inputs of the standard's operator. Data and states are not quantised.
fn stored_weights(cx: &mut NodeCx, i: usize, d: usize) -> Res<Option<Tensor>> {
    let Some(w) = part(cx, i, d)? else { return Ok(None) };
    if !matches!(w.dtype, DType::I8 | DType::U8) {
        return Err(cx.error(format!("input {i} is of {}, int8 or uint8 is needed", w.dtype)));
    }
    let at = 6 + 2 * i;
    let Some(scale) = part(cx, at, d)? else { return Err(cx.error(format!("input {at} is missing"))) };
    let zero = part(cx, at + 1, d)?;
    let w = dequantize(cx, &w, &scale, zero, 1, 0, DType::F32)?;
    Ok(Some(cx.transpose(&w, &[1, 0])?))
}

fn matmul_to_float(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (a, b, a_scale, b_scale) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3)?);
    let (a_zero, b_zero, bias) = (cx.optional(4)?, cx.optional(5)?, cx.optional(6)?);
    let y = product(cx, [&a, &a_scale], [&b, &b_scale], [a_zero, b_zero])?;
    one(plus(cx, y, bias)?)
}

/// `alpha * a * b + c`, quantised when the scale of the result is given, float32 otherwise.
fn qgemm(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (mut a, a_scale, a_zero) = (cx.input(0)?, cx.input(1)?, cx.optional(2)?);
    let (mut b, b_scale, b_zero) = (cx.input(3)?, cx.input(4)?, cx.optional(5)?);
    let (c, scale, zero) = (cx.optional(6)?, cx.optional(7)?, cx.optional(8)?);
    if cx.flag("transA", false) {
        a = cx.transpose(&a, &[1, 0])?;
    }
    if cx.flag("transB", false) {
        b = cx.transpose(&b, &[1, 0])?;
    }
    let dtype = a.dtype;
    let a = centred(cx, &a, a_zero, 0)?;
    let b = centred(cx, &b, b_zero, 1)?;
    let sum = cx.op("matmul", &[&a, &b])?;
    // The bias is in units of the product.
    let sum = plus(cx, sum, c)?;
    let sum = cx.cast(&sum, DType::F32)?;
    let (a_scale, b_scale) = (single(cx, &a_scale)?, single(cx, &b_scale)?);
    let factor = cx.op("multiply", &[&a_scale, &b_scale])?;
    let factor = by(cx, "multiply", &factor, cx.float("alpha", 1.0))?;
    let y = cx.op("multiply", &[&sum, &factor])?;
    let Some(scale) = scale else { return one(y) };
    let zero = zero.unwrap_or_else(|| Tensor::scalar_int(dtype, 0));
    one(quantize(cx, &y, &scale, &zero, 0, 0)?)
}

/// A product with weights of a few bits, in blocks along the inner dim with a scale each.
fn matmul_nbits(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (a, b, scales, zeros) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.optional(3)?);
    let (order, bias) = (cx.optional(4)?, cx.optional(5)?);
    if order.is_some() {
        return Err(cx.unsupported("weights whose groups are reordered (g_idx)"));
    }
    let shape =
        Blocks { k: cx.int("K", 0), n: cx.int("N", 0), bits: cx.int("bits", 4), block: cx.int("block_size", 32) };
    if shape.k < 1 || shape.n < 1 || !matches!(shape.bits, 2 | 4 | 8) || shape.block < 1 {
        return Err(cx.error(format!("K {}, N {}, {} bits, blocks of {}", shape.k, shape.n, shape.bits, shape.block)));
    }
    let constants = [Some(&b), Some(&scales), zeros.as_ref()].map(|t| t.and_then(Tensor::to_constant));
    let [Some(weights), Some(factors), points] = constants else {
        return Err(cx.unsupported("weights that are not constant"));
    };
    if zeros.is_some() && points.is_none() {
        return Err(cx.unsupported("zero points that are not constant"));
    }
    let dense = shape.dense(&weights, &factors, points.as_ref());
    let dense = dense.ok_or_else(|| cx.error("the sizes of weights, scales and zero points do not fit K and N"))?;
    let v = super::wide(cx, &a)?;
    let y = cx.op("matmul", &[&v, &Tensor::constant(dense)])?;
    let y = cx.cast(&y, a.dtype)?;
    one(plus(cx, y, bias)?)
}

/// How the weights of MatMulNBits are laid out.
struct Blocks {
    k: i64,
    n: i64,
    bits: i64,
    block: i64,
}

impl Blocks {
    /// The weights as float32 of `(k, n)`, which remember their codes.
    fn dense(&self, weights: &Constant, scales: &Constant, zeros: Option<&Constant>) -> Option<Constant> {
        let (k, n, block) = (self.k as usize, self.n as usize, self.block as usize);
        let blocks = k.div_ceil(block);
        let packed = |elements: usize| (elements * self.bits as usize).div_ceil(8);
        if weights.dtype != DType::U8 || weights.bytes().len() != n.checked_mul(blocks)?.checked_mul(packed(block))? {
            return None;
        }
        if scales.elements() != n * blocks {
            return None;
        }
        let mask = ((1u16 << self.bits) - 1) as u8;
        let code = |bytes: &[u8], i: usize| {
            let bit = i * self.bits as usize;
            (bytes[bit / 8] >> (bit % 8)) & mask
        };
        // Zero points: packed like the weights, row by row, or floats.
        let row = packed(blocks);
        let zero = |i: usize, j: usize| -> Option<f64> {
            match zeros {
                None => Some((1u32 << (self.bits - 1)) as f64),
                Some(z) if z.dtype == DType::U8 && z.bytes().len() == n * row => {
                    Some(code(&z.bytes()[i * row..(i + 1) * row], j) as f64)
                }
                Some(z) if z.dtype.is_float() && z.elements() == n * blocks => Some(z.get_f64(i * blocks + j)),
                Some(_) => None,
            }
        };
        let mut out = Coded {
            rows: k,
            columns: n,
            block,
            bits: self.bits as u32,
            codes: vec![0; k * n],
            scales: vec![0.0; blocks * n],
            zeros: vec![0.0; blocks * n],
        };
        for i in 0..n {
            for j in 0..blocks {
                let at = (i * blocks + j) * packed(block);
                let bytes = &weights.bytes()[at..at + packed(block)];
                out.scales[j * n + i] = scales.get_f64(i * blocks + j) as f32;
                out.zeros[j * n + i] = zero(i, j)? as f32;
                for l in 0..block.min(k - j * block) {
                    out.codes[(j * block + l) * n + i] = code(bytes, l);
                }
            }
        }
        Some(out.constant())
    }
}
