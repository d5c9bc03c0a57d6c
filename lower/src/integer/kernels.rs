//! Kernels over 8-bit integers, in block form. Those that the library of a target may have carry [`ATTR`].

use super::matching::Product;
use relax_ir::relax::Expr;
use relax_ir::tir::{KernelBuilder, PrimFunc};
use relax_ir::{AttrValue, DType, PrimExpr};

/// The attribute of kernels that stand for a function of the library: its name, then its numbers.
pub const ATTR: &str = "relax_aot.library";

/// The window of a convolution.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    pub kernel: [i64; 2],
    pub strides: [i64; 2],
    pub dilation: [i64; 2],
    /// Padding above and to the left.
    pub before: [i64; 2],
    pub depthwise: bool,
}

/// 8-bit data with what one of its steps is worth, and its zero point.
pub struct Part {
    pub data: Expr,
    pub scale: f32,
    pub zero: i64,
    pub dtype: DType,
}

/// `a + b`, their scales in steps of the result.
pub struct Sum {
    pub a: Part,
    pub b: Part,
    pub y_dtype: DType,
    pub y_zero: i64,
    pub limits: (i64, i64),
}

fn dims(d: &[i64]) -> Vec<PrimExpr> {
    d.iter().map(|v| PrimExpr::i64(*v)).collect()
}

fn int(v: i64) -> PrimExpr {
    PrimExpr::int(DType::I32, v)
}

/// 1.5 * 2^23: the sum of it and a number below 2^22 has that number, rounded half to even, in its last bits.
const MAGIC: f32 = 12_582_912.0;

/// Steps of the result, as float (below 2^22), to the result.
fn rounded(v: PrimExpr, zero: i64, (low, high): (i64, i64), dtype: DType) -> PrimExpr {
    let bits = (v + PrimExpr::f32(MAGIC)).reinterpret(DType::I32);
    let i = bits + int(zero - i64::from(MAGIC.to_bits()));
    i.max(int(low)).min(int(high)).cast(dtype)
}

fn finish(mut prim: PrimFunc, name: &str, numbers: &[i64]) -> PrimFunc {
    let mut list = vec![AttrValue::Str(name.to_string())];
    list.extend(numbers.iter().map(|n| AttrValue::Int(*n)));
    prim.attrs.set(ATTR, AttrValue::List(list));
    prim
}

/// Data and result have their channels last; `x` and `y` are the dims with the channels second.
pub fn convolution(p: &Product, x: &[i64], y: &[i64]) -> Option<PrimFunc> {
    let w = p.window_or_point();
    let (&[n, c, h, width], &[_, o, oh, ow]) = (x, y) else { return None };
    let name = if w.depthwise { "integer_depthwise" } else { "integer_conv2d" };
    let mut k = KernelBuilder::new(name);
    let data = k.input("data", &dims(&[n, h, width, c]), p.x_dtype);
    let weights = k.input("weights", &dims(&p.weights.shape), DType::I8);
    let bias = k.input("bias", &dims(&[o]), DType::I32);
    let scales = k.input("scales", &dims(&[o]), DType::F32);
    let mut extents = w.kernel.to_vec();
    if !w.depthwise {
        extents.push(c);
    }
    let shape = dims(&[n, oh, ow, o]);
    let sum = k.sum("sum", &shape, DType::I32, &dims(&extents), |s, r| {
        let at = |i: usize| s[1 + i].clone() * w.strides[i] + r[i].clone() * w.dilation[i] - w.before[i];
        let (row, column) = (at(0), at(1));
        let channel = if w.depthwise { s[3].clone() } else { r[2].clone() };
        let tap = if w.depthwise {
            vec![r[0].clone(), r[1].clone(), s[3].clone()]
        } else {
            vec![s[3].clone(), r[0].clone(), r[1].clone(), r[2].clone()]
        };
        let value = data.at([s[0].clone(), row.clone(), column.clone(), channel]).cast(DType::I32) - int(p.x_zero);
        let mut inside = PrimExpr::bool(true);
        for (v, i, size, out) in [(row, 0, h, oh), (column, 1, width, ow)] {
            if w.before[i] > 0 {
                inside = inside.and(v.clone().ge(0));
            }
            if (out - 1) * w.strides[i] + (w.kernel[i] - 1) * w.dilation[i] - w.before[i] >= size {
                inside = inside.and(v.lt(size));
            }
        }
        inside.if_then_else(value, int(0)) * weights.at(tap).cast(DType::I32)
    });
    let out = k.compute("requantize", &shape, p.y_dtype, |i| {
        let v = (sum.at(i) + bias.at([i[3].clone()])).cast(DType::F32) * scales.at([i[3].clone()]);
        rounded(v, p.y_zero, p.limits, p.y_dtype)
    });
    let prim = k.finish(&[out]);
    if p.x_dtype != DType::I8 || p.y_dtype != DType::I8 || w.dilation != [1, 1] {
        return Some(prim);
    }
    let numbers = [
        n,
        h,
        width,
        c,
        oh,
        ow,
        o,
        w.kernel[0],
        w.kernel[1],
        w.strides[0],
        w.strides[1],
        w.before[0],
        w.before[1],
        p.x_zero,
        p.y_zero,
        p.limits.0,
        p.limits.1,
    ];
    Some(finish(prim, name, &numbers))
}

/// Over the last axis of `x`.
pub fn matrix_product(p: &Product, x: &[i64], y: &[i64]) -> Option<PrimFunc> {
    let (last, rows) = x.split_last()?;
    let outputs = *y.last()?;
    if y.len() != x.len() || y[..rows.len()] != *rows {
        return None;
    }
    let mut k = KernelBuilder::new("integer_dense");
    let data = k.input("data", &dims(x), p.x_dtype);
    let weights = k.input("weights", &dims(&p.weights.shape), DType::I8);
    let bias = k.input("bias", &dims(&[outputs]), DType::I32);
    let scales = k.input("scales", &dims(&[outputs]), DType::F32);
    let shape = dims(y);
    let end = rows.len();
    let sum = k.sum("sum", &shape, DType::I32, &dims(&[*last]), |s, r| {
        let mut at = s.to_vec();
        at[end] = r[0].clone();
        let value = data.at(at).cast(DType::I32) - int(p.x_zero);
        value * weights.at([s[end].clone(), r[0].clone()]).cast(DType::I32)
    });
    let out = k.compute("requantize", &shape, p.y_dtype, |i| {
        let v = (sum.at(i) + bias.at([i[end].clone()])).cast(DType::F32) * scales.at([i[end].clone()]);
        rounded(v, p.y_zero, p.limits, p.y_dtype)
    });
    let prim = k.finish(&[out]);
    if p.x_dtype != DType::I8 || p.y_dtype != DType::I8 {
        return Some(prim);
    }
    let m = rows.iter().product();
    let (low, high) = p.limits;
    // A convolution whose window is one pixel.
    let numbers = [1, 1, m, *last, 1, m, outputs, 1, 1, 1, 1, 0, 0, p.x_zero, p.y_zero, low, high];
    Some(finish(prim, "integer_conv2d", &numbers))
}

pub fn sum(s: &Sum, shape: &[i64]) -> PrimFunc {
    let mut k = KernelBuilder::new("integer_add");
    let a = k.input("a", &dims(shape), s.a.dtype);
    let b = k.input("b", &dims(shape), s.b.dtype);
    let out = k.compute("requantize", &dims(shape), s.y_dtype, |i| {
        let part = |x: PrimExpr, p: &Part| (x.cast(DType::I32) - int(p.zero)).cast(DType::F32) * PrimExpr::f32(p.scale);
        rounded(part(a.at(i), &s.a) + part(b.at(i), &s.b), s.y_zero, s.limits, s.y_dtype)
    });
    let prim = k.finish(&[out]);
    if [s.a.dtype, s.b.dtype, s.y_dtype] != [DType::I8; 3] {
        return prim;
    }
    let bits = |p: &Part| i64::from(p.scale.to_bits() as i32);
    let n = shape.iter().product();
    let (low, high) = s.limits;
    finish(prim, "integer_add", &[n, s.a.zero, bits(&s.a), s.b.zero, bits(&s.b), s.y_zero, low, high])
}

/// Of an image (n, h, w, c), as float.
pub fn mean([n, h, w, c]: [i64; 4], y: &[i64], p: &Part) -> PrimFunc {
    let mut k = KernelBuilder::new("integer_mean");
    let x = k.input("data", &dims(&[n, h, w, c]), p.dtype);
    let sum = k.sum("sum", &dims(&[n, c]), DType::I32, &dims(&[h, w]), |s, r| {
        x.at([s[0].clone(), r[0].clone(), r[1].clone(), s[1].clone()]).cast(DType::I32) - int(p.zero)
    });
    let step = (f64::from(p.scale) / (h * w) as f64) as f32;
    let out = k.compute("mean", &dims(y), DType::F32, |i| {
        sum.at([i[0].clone(), i[1].clone()]).cast(DType::F32) * PrimExpr::f32(step)
    });
    k.finish(&[out])
}

/// `to[i] = from[i permuted]`: axis `d` of `from` is the axis `axes[d]` of `to`.
pub fn transpose(name: &str, from: &[i64], to: &[i64], axes: [usize; 4], dtype: DType) -> PrimFunc {
    let mut k = KernelBuilder::new(name);
    let x = k.input("data", &dims(from), dtype);
    let out = k.compute(name, &dims(to), dtype, |i| x.at(axes.map(|a| i[a].clone())));
    k.finish(&[out])
}
