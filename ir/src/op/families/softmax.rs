//! Softmax and its logarithm.

use crate::diag::Diagnostic;
use crate::op::elem::wide_dtype;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::StructInfo;
use crate::tir::{Buffer, PrimFunc, Reducer};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "nn.softmax",
        "`exp(x - max) / sum(exp(x - max))` along `axis`. Float dtypes; the 16-bit ones compute in float32.",
        &[operand("data"), attr("axis", Default::Int(-1))],
        infer,
        Compute::Kernel(softmax),
    )
    .ulp(8),
    OpDecl::pure(
        "nn.log_softmax",
        "`x - max - log(sum(exp(x - max)))` along `axis`. Float dtypes; the 16-bit ones compute in float32.",
        &[operand("data"), attr("axis", Default::Int(-1))],
        infer,
        Compute::Kernel(log_softmax),
    )
    .ulp(8),
];

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = cx.tensor(0)?.clone();
    cx.require_float(0, x.dtype)?;
    if let Some(n) = x.ndim {
        cx.axis(cx.int("axis")?, n)?;
    }
    Ok(StructInfo::Tensor(x))
}

/// The axis, and the dims without it.
fn split(cx: &ComputeCx, dims: &[PrimExpr]) -> Result<(usize, Vec<PrimExpr>), Diagnostic> {
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(-1), dims.len())?;
    let mut rest = dims.to_vec();
    rest.remove(axis);
    Ok((axis, rest))
}

fn without(index: &[PrimExpr], axis: usize) -> Vec<PrimExpr> {
    let mut rest = index.to_vec();
    rest.remove(axis);
    rest
}

fn with(index: &[PrimExpr], axis: usize, at: &PrimExpr) -> Vec<PrimExpr> {
    let mut whole = index.to_vec();
    whole.insert(axis, at.clone());
    whole
}

fn maximum(k: &mut crate::tir::KernelBuilder, x: &Buffer, rest: &[PrimExpr], axis: usize) -> Buffer {
    let acc = wide_dtype(x.dtype());
    let extent = [x.shape[axis].clone()];
    let reducer = Reducer { init: PrimExpr::min_value(acc), combine: &|a, b| a.max(b) };
    k.reduce("softmax_max", rest, acc, &extent, reducer, |s, r| x.at(with(s, axis, &r[0])).cast(acc))
}

fn softmax(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let out = cx.result()?;
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let acc = wide_dtype(x.dtype());
    let (axis, rest) = split(cx, out.dims)?;
    let max = maximum(&mut k, x, &rest, axis);
    let exp =
        k.compute("softmax_exp", out.dims, acc, |i| (x.at(i).cast(acc) - max.at(without(i, axis))).call1(Intrin::Exp));
    let extent = [out.dims[axis].clone()];
    let sum = k.sum("softmax_sum", &rest, acc, &extent, |s, r| exp.at(with(s, axis, &r[0])));
    // One division for each sum: they take as long as all the rest where each element has its own.
    let part = k.compute("softmax_part", &rest, acc, |i| PrimExpr::one(acc) / sum.at(i));
    let y = k.compute("softmax_norm", out.dims, out.dtype, |i| exp.at(i) * part.at(without(i, axis)));
    Ok(k.finish(&[y]))
}

fn log_softmax(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let out = cx.result()?;
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let acc = wide_dtype(x.dtype());
    let (axis, rest) = split(cx, out.dims)?;
    let max = maximum(&mut k, x, &rest, axis);
    let extent = [out.dims[axis].clone()];
    let sum = k.sum("softmax_sum", &rest, acc, &extent, |s, r| {
        (x.at(with(s, axis, &r[0])).cast(acc) - max.at(s)).call1(Intrin::Exp)
    });
    let log = k.compute("softmax_log", &rest, acc, |i| sum.at(i).call1(Intrin::Log));
    let y = k.compute("log_softmax", out.dims, out.dtype, |i| {
        let rest = without(i, axis);
        x.at(i).cast(acc) - max.at(rest.clone()) - log.at(rest)
    });
    Ok(k.finish(&[y]))
}
