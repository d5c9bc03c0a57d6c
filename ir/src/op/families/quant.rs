//! Quantisation.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{wide_dtype, Elem};
use crate::op::families::rules;
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::{StructInfo, TensorInfo};
use crate::small_float::SmallFloat;
use crate::tir::{Buffer, PrimFunc};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "quantize",
        "`clip(round(data / scale) + zero_point)` to `out_dtype`, rounding half to even; per tensor when `scale` and `zero_point` have one element, else one entry along `axis`. Float data; a float `out_dtype` is not rounded.",
        &[
            operand("data"),
            operand("scale"),
            operand("zero_point"),
            attr("axis", Default::Int(-1)),
            attr("out_dtype", Default::Str("int8")),
        ],
        |cx| infer(cx, true),
        Compute::Kernel(quantize),
    ),
    OpDecl::pure(
        "dequantize",
        "`(data - zero_point) * scale` in `out_dtype`; per tensor when `scale` and `zero_point` have one element, else one entry along `axis`.",
        &[
            operand("data"),
            operand("scale"),
            operand("zero_point"),
            attr("axis", Default::Int(-1)),
            attr("out_dtype", Default::Str("float32")),
        ],
        |cx| infer(cx, false),
        Compute::Kernel(dequantize),
    )
    .ulp(1),
];

// What TVM's operators take and give.
const FLOATS: [DType; 2] = [DType::F16, DType::F32];
const SHORT: [DType; 4] = [DType::I8, DType::U8, DType::I16, DType::U16];
const BYTES: [DType; 2] = [DType::small(SmallFloat::E4M3Fn), DType::small(SmallFloat::E5M2)];

fn infer(cx: &mut InferCx, quantize: bool) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    let to = cx.dtype("out_dtype")?.ok_or_else(|| cx.error("out_dtype must be a dtype"))?;
    let allowed = |what: &str, d: Option<DType>, lists: &[&[DType]]| match d {
        Some(d) if !lists.iter().any(|l| l.contains(&d)) => {
            let names: Vec<String> = lists.iter().flat_map(|l| l.iter()).map(DType::to_string).collect();
            Err(cx.error(format!("{what} cannot be {d}: it must be one of {}", names.join(", "))))
        }
        _ => Ok(()),
    };
    if quantize {
        allowed("the dtype of data", x.dtype, &[&FLOATS])?;
        allowed("out_dtype", Some(to), &[&SHORT, &BYTES])?;
    } else {
        allowed("the dtype of data", x.dtype, &[&SHORT, &[DType::I32], &BYTES, &FLOATS])?;
        allowed("out_dtype", Some(to), &[&FLOATS])?;
    }
    allowed("the dtype of scale", cx.tensor(1)?.dtype, &[&FLOATS])?;
    allowed("the dtype of zero_point", cx.tensor(2)?.dtype, &[&SHORT, &[DType::I32, DType::U32, DType::F16]])?;
    if let Some(n) = x.ndim.filter(|n| *n > 0) {
        cx.axis(cx.int("axis")?, n)?;
    }
    for i in 1..3 {
        let p = cx.tensor(i)?.clone();
        let (Some(n), Some(dims)) = (x.ndim, p.known_dims()) else { continue };
        if dims.iter().all(|d| d.is_int(1)) {
            continue;
        }
        rules::require_ndim(cx, i, 1)?;
        let axis = cx.axis(cx.int("axis")?, n)?;
        if let Some(d) = x.known_dims() {
            let name = cx.operand(i);
            cx.require_eq(&dims[0], &d[axis], || {
                format!("{name} has {} entries, axis {axis} of the data has {}", dim_text(&dims[0]), dim_text(&d[axis]))
            })?;
        }
    }
    Ok(StructInfo::Tensor(TensorInfo { dtype: Some(to), ..x }))
}

/// The scale or zero point of the element at `index`.
fn entry(p: &Elem, index: &[PrimExpr], axis: usize) -> PrimExpr {
    match p {
        Elem::Value(v) => v.clone(),
        Elem::Buffer(b) if b.shape.iter().all(|d| d.is_int(1)) => b.at(vec![PrimExpr::i64(0); b.ndim()]),
        Elem::Buffer(b) => b.at([index[axis].clone()]),
    }
}

/// `v` limited to the range of `to`, then converted.
fn clip(v: PrimExpr, to: DType) -> PrimExpr {
    let from = v.dtype();
    let (low, high) = (PrimExpr::min_value(to).cast(from), PrimExpr::max_value(to).cast(from));
    v.min(high).max(low).cast(to)
}

/// The operands, the axis and the kernel under construction.
struct Parts {
    k: crate::tir::KernelBuilder,
    x: Buffer,
    scale: Elem,
    zero: Elem,
    axis: usize,
}

fn parts(cx: &ComputeCx) -> Result<Parts, Diagnostic> {
    let ndim = cx.result()?.dims.len();
    let (k, elems) = cx.elems()?;
    let axis = cx.attrs.int("axis").unwrap_or(-1);
    let axis = if ndim == 0 { 0 } else { cx.axis(axis, ndim)? };
    match <[Option<Elem>; 3]>::try_from(elems) {
        Ok([Some(Elem::Buffer(x)), Some(scale), Some(zero)]) => Ok(Parts { k, x, scale, zero, axis }),
        _ => Err(cx.error("takes a tensor, a scale and a zero point")),
    }
}

fn quantize(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let out = cx.result()?;
    let Parts { mut k, x, scale, zero, axis } = parts(cx)?;
    let acc = wide_dtype(x.dtype());
    let y = k.compute("quantize", out.dims, out.dtype, |i| {
        let v = x.at(i).cast(acc) / entry(&scale, i, axis).cast(acc);
        let v = if out.dtype.is_int() { v.call1(Intrin::Round) } else { v };
        clip(v + entry(&zero, i, axis).cast(acc), out.dtype)
    });
    Ok(k.finish(&[y]))
}

fn dequantize(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let out = cx.result()?;
    let Parts { mut k, x, scale, zero, axis } = parts(cx)?;
    let y = k.compute("dequantize", out.dims, out.dtype, |i| {
        let zero = entry(&zero, i, axis);
        let float = x.dtype().is_float() || zero.dtype().is_float();
        let sub = if float { DType::F32 } else { DType::I32 };
        let v = (x.at(i).cast(sub) - zero.cast(sub)).cast(DType::F32) * entry(&scale, i, axis).cast(DType::F32);
        if out.dtype.bits <= 16 {
            clip(v, out.dtype)
        } else {
            v
        }
    });
    Ok(k.finish(&[y]))
}
