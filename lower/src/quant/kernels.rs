//! Kernels between floats and held tensors, and maxima: the same for every target.

use super::{Scale, Value};
use crate::layout::open::likely;
use crate::schedule::int8::Pixels;
use relax_ir::prim::Intrin;
use relax_ir::tir::{Buffer, KernelBuilder, PrimFunc, Reducer};
use relax_ir::{AttrValue, DType, PrimExpr};

/// The attribute of kernels whose results are images with their channels last: what reads these may be so, too.
pub(crate) const LAST: &str = "relax_aot.channels_last";

/// `clip(round(v))` as the bytes of `to`.
pub(super) fn rounded(v: PrimExpr, to: &Scale) -> PrimExpr {
    let v = v.max(PrimExpr::f32(-to.zero as f32)).min(PrimExpr::f32((255 - to.zero) as f32));
    (v.call1(Intrin::NearbyInt).cast(DType::I32) + PrimExpr::i32(to.zero as i32)).cast(DType::U8)
}

/// The real value of a byte.
pub(super) fn real(v: PrimExpr, from: &Scale) -> PrimExpr {
    (v.cast(DType::I32) - PrimExpr::i32(from.zero as i32)).cast(DType::F32) * PrimExpr::f32(from.scale)
}

/// The position of an element in the tensor as the model has it, or (`last`) with its channels last, and whether it is one.
pub(super) fn outside(value: &Value, i: &[PrimExpr], last: bool) -> (Vec<PrimExpr>, PrimExpr) {
    let [_, h, w] = value.images.clone();
    let [top, left, bottom, right] = value.pads;
    let (y, x) = (i[1].clone() - value.pads[0], i[2].clone() - value.pads[1]);
    let mut inside = PrimExpr::bool(true);
    let zero = PrimExpr::i64(0);
    if top + bottom > 0 {
        inside = inside.and(y.clone().ge(zero.clone())).and(y.clone().lt(h));
    }
    if left + right > 0 {
        inside = inside.and(x.clone().ge(zero)).and(x.clone().lt(w));
    }
    if value.channels() > value.outputs {
        inside = inside.and(i[3].clone().lt(PrimExpr::i64(value.outputs)));
    }
    let at = match value.rank {
        4 if last => vec![i[0].clone(), y, x, i[3].clone()],
        4 => vec![i[0].clone(), i[3].clone(), y, x],
        3 => vec![i[0].clone(), x, i[3].clone()],
        _ => vec![x, i[3].clone()],
    };
    (at, inside)
}

/// From floats, as the model has them or (`last`) with their channels last.
pub(super) fn bytes(value: &Value, last: bool, vector_bytes: u32) -> PrimFunc {
    let mut k = KernelBuilder::new("quantize");
    let dims = if last { value.last_dims().to_vec() } else { value.dims() };
    let x = k.input("x", &dims, DType::F32);
    let y = k.compute("y", &value.shape(), DType::U8, |i| {
        let (at, inside) = outside(value, i, last);
        let v = rounded(x.at(at) / PrimExpr::f32(value.scale.scale), &value.scale);
        inside.if_then_else(v, PrimExpr::int(DType::U8, value.scale.zero))
    });
    let mut f = k.finish(&[y]);
    if let (planes @ 1..=4, 4, false) = (value.outputs, value.rank, last) {
        let ([batch, rows, columns], [_, out_h, out_w]) = (&value.images, value.bordered());
        let [rows, columns, out_h, out_w] = likely([rows, columns, &out_h, &out_w]).unwrap_or([1; 4]);
        let ([top, left, ..], Scale { zero, scale, .. }) = (value.pads, value.scale);
        let p = Pixels {
            batch: batch.as_int().unwrap_or(1),
            planes,
            rows,
            columns,
            out_h,
            out_w,
            top,
            left,
            zero,
            scale,
            vector_bytes: vector_bytes as i64,
            open: value.is_open(),
        };
        p.mark(&mut f);
    }
    f
}

/// To floats; images of known sizes have their channels last.
pub(super) fn floats(value: &Value) -> PrimFunc {
    let mut k = KernelBuilder::new("dequantize");
    let x = k.input("x", &value.shape(), DType::U8);
    let at = |x: &Buffer, i: &[PrimExpr]| match i {
        [n, h, w, c] => {
            let [h, w, c] = if value.is_image() { [h, w, c] } else { [w, c, h] };
            x.at([n.clone(), h.clone() + value.pads[0], w.clone() + value.pads[1], c.clone()])
        }
        [n, m, k] => x.at([n.clone(), PrimExpr::i64(0), m.clone(), k.clone()]),
        _ => x.at([PrimExpr::i64(0), PrimExpr::i64(0), i[0].clone(), i[1].clone()]),
    };
    let dims = if value.is_image() { value.last_dims().to_vec() } else { value.dims() };
    let y = k.compute("y", &dims, DType::F32, |i| real(at(&x, i), &value.scale));
    let mut f = k.finish(&[y]);
    if value.is_image() {
        f.attrs.set(LAST, AttrValue::Bool(true));
    }
    f
}

/// Maxima over windows, the first of which begins at `off`.
pub(super) fn maximum(value: &Value, x: &Value, window: [i64; 2], strides: [i64; 2], off: [i64; 2]) -> PrimFunc {
    let mut k = KernelBuilder::new("qmax_pool2d");
    let input = k.input("x", &x.shape(), DType::U8);
    let [n, h, w] = value.images.clone();
    let most = Reducer { init: PrimExpr::zero(DType::U8), combine: &|a, b| a.max(b) };
    let shape = [n, h, w, PrimExpr::i64(value.channels())];
    let z = k.reduce("max", &shape, DType::U8, &window.map(PrimExpr::i64), most, |i, r| {
        let at = |axis: usize| i[axis + 1].clone() * strides[axis] + r[axis].clone() + off[axis];
        input.at([i[0].clone(), at(0), at(1), i[3].clone()])
    });
    if value.pads == [0; 4] && value.scale == x.scale {
        return k.finish(&[z]);
    }
    let y = k.compute("y", &value.shape(), DType::U8, |i| {
        let inner = Value { rank: 4, ..value.clone() };
        let (at, inside) = outside(&inner, i, false);
        let [n, c, h, w] = &at[..] else { return PrimExpr::zero(DType::U8) };
        let v = z.at([n.clone(), h.clone(), w.clone(), c.clone()]);
        let v = if value.scale == x.scale {
            v
        } else {
            rounded(real(v, &x.scale) / PrimExpr::f32(value.scale.scale), &value.scale)
        };
        inside.if_then_else(v, PrimExpr::int(DType::U8, value.scale.zero))
    });
    k.finish(&[y])
}
