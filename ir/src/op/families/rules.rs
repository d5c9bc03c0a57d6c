//! Pieces that the algorithmic operators share: results with unknown dims, requirements, stages.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::rule::dim_text;
use crate::op::InferCx;
use crate::prim::PrimExpr;
use crate::relax::{StructInfo, TensorInfo};
use crate::tir::{Buffer, KernelBuilder};

/// Operand `i` by value, so that requirements can be stated while it is read.
pub fn tensor(cx: &InferCx, i: usize) -> Result<TensorInfo, Diagnostic> {
    cx.tensor(i).cloned()
}

/// The dtype of the result of a product: attribute `out_dtype`, or that of the operands.
pub fn product_dtype(cx: &InferCx, a: &TensorInfo, b: &TensorInfo) -> Result<Option<DType>, Diagnostic> {
    match cx.dtype("out_dtype")? {
        Some(d) => Ok(Some(d)),
        None => cx.arithmetic_dtype((cx.operand(0), a.dtype), (cx.operand(1), b.dtype)),
    }
}

/// A tensor of which the rank and the dtype may be known.
pub fn unknown(ndim: Option<usize>, dtype: Option<DType>) -> StructInfo {
    StructInfo::tensor_ndim(ndim, dtype)
}

/// A tensor with these dims.
pub fn known(dims: Vec<PrimExpr>, dtype: Option<DType>) -> StructInfo {
    StructInfo::Tensor(TensorInfo::dims(dims, dtype))
}

/// Requires operand `i` to have `ndim` dims; unknown rank passes.
pub fn require_ndim(cx: &InferCx, i: usize, ndim: usize) -> Result<(), Diagnostic> {
    match cx.tensor(i)?.ndim {
        Some(n) if n != ndim => Err(cx.error(format!("{} must have {ndim} dims, it has {n}", cx.operand(i)))),
        _ => Ok(()),
    }
}

/// Requires that `dim` is a multiple of `by`.
pub fn require_divisible(cx: &mut InferCx, dim: &PrimExpr, by: i64, what: &str) -> Result<(), Diagnostic> {
    if by == 1 {
        return Ok(());
    }
    cx.require(dim.clone().floor_mod(by).eq(0), || format!("{what} {} are not divisible by {by}", dim_text(dim)))
}

/// The index into a tensor of dims `dims` that broadcasts to `index`: aligned at the last dim, 0 where the dim is 1.
pub fn broadcast_index(dims: &[PrimExpr], index: &[PrimExpr]) -> Vec<PrimExpr> {
    let skip = index.len() - dims.len().min(index.len());
    dims.iter().zip(&index[skip..]).map(|(d, i)| if d.is_int(1) { PrimExpr::i64(0) } else { i.clone() }).collect()
}

/// A stage that converts `x` to `dtype`; none when it has it already.
pub fn narrow(k: &mut KernelBuilder, x: Buffer, dtype: DType) -> Buffer {
    if x.dtype() == dtype {
        return x;
    }
    let shape = x.shape.clone();
    k.compute("cast", &shape, dtype, |i| x.at(i))
}
