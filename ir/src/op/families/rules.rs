//! Pieces that shape rules of several families share.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::{InferCx, TensorArg};
use crate::prim::{BinOp, PrimExpr, PrimKind};
use crate::relax::{StructInfo, TensorInfo};

/// A dim as a message shows it: `n`, `16`, `n + 1`.
pub fn show(dim: &PrimExpr) -> String {
    let binary = |op: &str, a: &PrimExpr, b: &PrimExpr| format!("{} {op} {}", show_operand(a), show_operand(b));
    match dim.kind() {
        PrimKind::Var(v) => v.name().to_string(),
        PrimKind::Int(v) => v.to_string(),
        PrimKind::Binary(op, a, b) => match op {
            BinOp::Add => binary("+", a, b),
            BinOp::Sub => binary("-", a, b),
            BinOp::Mul => binary("*", a, b),
            BinOp::FloorDiv | BinOp::TruncDiv | BinOp::Div => binary("//", a, b),
            BinOp::FloorMod | BinOp::TruncMod => binary("%", a, b),
            BinOp::Min => format!("min({}, {})", show(a), show(b)),
            BinOp::Max => format!("max({}, {})", show(a), show(b)),
            _ => "..".to_string(),
        },
        _ => "..".to_string(),
    }
}

fn show_operand(e: &PrimExpr) -> String {
    match e.kind() {
        PrimKind::Binary(BinOp::Min | BinOp::Max, ..) => show(e),
        PrimKind::Binary(..) => format!("({})", show(e)),
        _ => show(e),
    }
}

/// Dims as a message shows them: `(n, 16)`.
pub fn show_all(dims: &[PrimExpr]) -> String {
    format!("({})", dims.iter().map(show).collect::<Vec<_>>().join(", "))
}

/// The tensor operands' infos by value, so that requirements can be stated while they are read.
pub fn tensor(cx: &InferCx, i: usize) -> Result<TensorInfo, Diagnostic> {
    cx.tensor(i).cloned()
}

/// The common dtype of two operands; `None` when either is unknown.
pub fn common_dtype(cx: &InferCx, a: &TensorInfo, b: &TensorInfo) -> Result<Option<DType>, Diagnostic> {
    match (a.dtype, b.dtype) {
        (Some(x), Some(y)) if x != y => Err(cx.error(format!("the operands have different dtypes: {x} and {y}"))),
        (x, y) => Ok(x.and(y)),
    }
}

/// The attribute `out_dtype`, where `None` and `"void"` mean that it is not given.
pub fn out_dtype(cx: &InferCx) -> Option<DType> {
    cx.attrs.dtype("out_dtype")
}

/// `axis` counted from the front; an error when it is out of range.
pub fn axis(cx: &InferCx, axis: i64, ndim: usize) -> Result<usize, Diagnostic> {
    let n = ndim as i64;
    if (-n..n).contains(&axis) {
        Ok(if axis < 0 { axis + n } else { axis } as usize)
    } else {
        Err(cx.error(format!("axis {axis} is out of range for {ndim} dims")))
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

/// Requires operand `what` to have `ndim` dims; unknown rank passes.
pub fn require_ndim(cx: &InferCx, t: &TensorInfo, ndim: usize, what: &str) -> Result<(), Diagnostic> {
    match t.ndim {
        Some(n) if n != ndim => Err(cx.error(format!("{what} must have {ndim} dims, it has {n}"))),
        _ => Ok(()),
    }
}

/// Dims of NumPy broadcasting. A dim that may or may not be 1 gives `if a == 1 then b else a` and a check.
pub fn broadcast(cx: &mut InferCx, a: &[PrimExpr], b: &[PrimExpr]) -> Result<Vec<PrimExpr>, Diagnostic> {
    let rank = a.len().max(b.len());
    let one = PrimExpr::i64(1);
    let mut out = Vec::with_capacity(rank);
    for i in 0..rank {
        let x = (i + a.len()).checked_sub(rank).map_or(&one, |k| &a[k]);
        let y = (i + b.len()).checked_sub(rank).map_or(&one, |k| &b[k]);
        let (x1, y1) = (x.clone().eq(1), y.clone().eq(1));
        let same = x.clone().eq(y.clone());
        if cx.facts.prove(&x1) == crate::op::Answer::Yes {
            out.push(y.clone());
        } else if cx.facts.prove(&y1) == crate::op::Answer::Yes || cx.facts.prove(&same) == crate::op::Answer::Yes {
            out.push(x.clone());
        } else {
            let text =
                || format!("cannot broadcast dim {} of {} with {} of {}", show(x), show_all(a), show(y), show_all(b));
            cx.require(same.or(x1.clone()).or(y1), text)?;
            out.push(match (x.as_int(), y.as_int()) {
                (Some(_), None) => x.clone(),
                (None, Some(_)) => y.clone(),
                _ => x1.if_then_else(y.clone(), x.clone()),
            });
        }
    }
    Ok(out)
}

/// The index into a tensor that broadcasts to `out`: aligned at the last dim, 0 where the dim is 1.
pub fn broadcast_index(t: &TensorArg, out: &[PrimExpr], index: &[PrimExpr]) -> Vec<PrimExpr> {
    let skip = out.len() - t.dims.len();
    let mut result = Vec::with_capacity(t.dims.len());
    for (k, d) in t.dims.iter().enumerate() {
        let i = index[skip + k].clone();
        let zero = PrimExpr::zero(i.dtype());
        result.push(match d.as_int() {
            Some(1) => zero,
            Some(_) => i,
            None if *d == out[skip + k] => i,
            None => d.clone().eq(1).select(zero, i),
        });
    }
    result
}

/// Requires that `dim` is a multiple of `by`.
pub fn require_divisible(cx: &mut InferCx, dim: &PrimExpr, by: i64, what: &str) -> Result<(), Diagnostic> {
    if by == 1 {
        return Ok(());
    }
    cx.require(dim.clone().floor_mod(by).eq(0), || format!("{what} {} are not divisible by {by}", show(dim)))
}
