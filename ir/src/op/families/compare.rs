//! Elementwise comparisons, with broadcasting; the result is bool.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::*;
use crate::prim::{BinOp, PrimExpr};
use crate::relax::StructInfo;

const XY: &[ParamDecl] = &[operand("x1"), operand("x2")];

macro_rules! compare {
    ($name:literal, $op:ident, $doc:literal) => {
        OpDecl::pure(
            $name,
            $doc,
            XY,
            infer,
            Compute::Kernel(|cx| cx.elementwise(|x| compare(BinOp::$op, x[0].clone(), x[1].clone()))),
        )
    };
}

pub static OPS: &[OpDecl] = &[
    compare!("equal", Eq, "`x1 == x2` with broadcasting."),
    compare!("not_equal", Ne, "`x1 != x2` with broadcasting."),
    compare!("less", Lt, "`x1 < x2` with broadcasting."),
    compare!("less_equal", Le, "`x1 <= x2` with broadcasting."),
    compare!("greater", Gt, "`x1 > x2` with broadcasting."),
    compare!("greater_equal", Ge, "`x1 >= x2` with broadcasting."),
];

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (a, b) = (cx.elements(0)?, cx.elements(1)?);
    Ok(StructInfo::Tensor(cx.broadcast(&[a, b])?.with_dtype(Some(DType::BOOL))))
}

fn compare(op: BinOp, a: PrimExpr, b: PrimExpr) -> PrimExpr {
    let (a, b) = common(a, b);
    PrimExpr::binary(op, a, b)
}

/// Both in one dtype: float over integer, the wider of two of a kind; bools compare as integers.
fn common(a: PrimExpr, b: PrimExpr) -> (PrimExpr, PrimExpr) {
    let number = |e: PrimExpr| if e.dtype().is_bool() { e.cast(DType::I32) } else { e };
    let (a, b) = (number(a), number(b));
    let (da, db) = (a.dtype(), b.dtype());
    let rank = |d: DType| (d.is_float(), d.bits, d.is_signed());
    let d = if rank(da) >= rank(db) { da } else { db };
    (a.cast(d), b.cast(d))
}
