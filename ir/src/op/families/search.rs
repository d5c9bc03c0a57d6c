//! Positions and selection: argmax, argmin, buckets, where.

use super::reduce::{fold, reduced, Fold, Reduction};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, wide, wide_dtype};
use crate::op::*;
use crate::prim::{BinOp, PrimExpr, Var};
use crate::relax::StructInfo;
use crate::tir::{Buffer, PrimFunc, Stmt, StmtKind};

const RED: &[ParamDecl] = &[operand("x"), attr("axis", Default::None), attr("keepdims", Default::Bool(false))];

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "argmax",
        "The int64 index of the first largest element along `axis`; without an axis, in the flattened tensor.",
        RED,
        infer_arg,
        Compute::Kernel(|cx| arg(cx, Fold::Max)),
    ),
    OpDecl::pure(
        "argmin",
        "The int64 index of the first smallest element along `axis`; without an axis, in the flattened tensor.",
        RED,
        infer_arg,
        Compute::Kernel(|cx| arg(cx, Fold::Min)),
    ),
    OpDecl::pure(
        "where",
        "`x1` where `condition` (bool) holds, `x2` elsewhere, with broadcasting of all three.",
        &[operand("condition"), operand("x1"), operand("x2")],
        infer_where,
        Compute::Kernel(|cx| {
            cx.elementwise(|x| {
                let other = convert(x[2].clone(), x[1].dtype());
                convert(x[0].clone(), DType::BOOL).select(x[1].clone(), other)
            })
        }),
    ),
    OpDecl::pure(
        "bucketize",
        "For each element the number of `boundaries` (ascending, one-dimensional) below it, or not above it with `right`; \
         int64, or int32 with `out_int32`.",
        &[
            operand("input_tensor"),
            operand("boundaries"),
            attr("out_int32", Default::Bool(false)),
            attr("right", Default::Bool(false)),
        ],
        infer_bucketize,
        Compute::Kernel(bucketize),
    ),
];

fn infer_arg(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    cx.one_axis("axis")?;
    Ok(StructInfo::Tensor(reduced(cx)?.with_dtype(Some(DType::I64))))
}

/// Two stages that both vectorise: the extreme value, then the least index that holds it.
fn arg(cx: &ComputeCx, how: Fold) -> Result<PrimFunc, Diagnostic> {
    let r = Reduction::of(cx)?;
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let d = if x.dtype().is_bool() { DType::U8 } else { wide_dtype(x.dtype()) };
    let element = |i: &[PrimExpr], j: &[PrimExpr]| convert(wide(x.at(r.index(i, j))), d);
    let best = fold(&mut k, "best", &r, d, how, element);
    let last = r.count() - 1;
    // Vectors hold twice as many positions of 32 bits.
    let short = last.as_int().is_some_and(|n| n <= i32::MAX as i64);
    let d = if short { DType::I32 } else { DType::I64 };
    let all = |v: &[PrimExpr]| v.iter().map(|e| e.clone().cast(d)).collect::<Vec<_>>();
    let last = last.cast(d);
    let index = fold(&mut k, "index", &r, d, Fold::Min, |i, j| {
        let position = elem::flat_index(&all(j), &all(&r.extents)).cast(d);
        element(i, j).eq(best.at(i)).select(position, last.clone())
    });
    let y = k.compute("position", &r.out, DType::I64, |i| index.at(i).min(last.clone()).cast(DType::I64));
    Ok(k.finish(&[y]))
}

fn infer_where(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (c, a, b) = (cx.elements(0)?, cx.tensor(1)?.clone(), cx.tensor(2)?.clone());
    if let Some(d) = c.dtype.filter(|d| !d.is_bool()) {
        return Err(cx.error(format!("condition must be bool, it is {d}")));
    }
    let dtype = cx.same_dtype(&[("x1", a.dtype), ("x2", b.dtype)])?;
    Ok(StructInfo::Tensor(cx.broadcast(&[a, b, c])?.with_dtype(dtype)))
}

fn infer_bucketize(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let b = cx.tensor(1)?;
    if b.ndim.is_some_and(|n| n != 1) {
        return Err(cx.error("boundaries must have one dim"));
    }
    let d = if cx.attrs.bool("out_int32").unwrap_or(false) { DType::I32 } else { DType::I64 };
    Ok(StructInfo::Tensor(cx.tensor(0)?.with_dtype(Some(d))))
}

/// Binary search per element.
fn bucketize(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let right = cx.attrs.bool("right").unwrap_or(false);
    let (mut k, inputs) = cx.kernel()?;
    let (x, bounds) = (inputs[0].clone(), inputs[1].clone());
    let out = cx.result()?;
    let y = k.buffer("bucket", out.dims, out.dtype);
    k.rows("search", out.dims, |i| {
        let range = Buffer::new("range", vec![PrimExpr::i64(2)], DType::I64);
        let cell = |n: i64| vec![PrimExpr::i64(n)];
        let (lo, hi) = (range.at(cell(0)), range.at(cell(1)));
        let mid = Var::dim("mid");
        let (v, b) = (wide(x.at(i)), wide(bounds.at([mid.expr()])));
        // Integers are compared with floats as floats, and floats of two sizes as the longer ones.
        let common = match (v.dtype().is_float(), b.dtype().is_float()) {
            (true, false) => v.dtype(),
            (false, true) => b.dtype(),
            _ if v.dtype().bits >= b.dtype().bits => v.dtype(),
            _ => b.dtype(),
        };
        let (v, b) = (convert(v, common), convert(b, common));
        let below = PrimExpr::binary(if right { BinOp::Le } else { BinOp::Lt }, b, v);
        let halve = (lo.clone() + hi.clone()).floor_div(PrimExpr::i64(2));
        let step = Stmt::if_else(
            below,
            Stmt::store(&range, cell(0), mid.expr() + 1),
            Stmt::store(&range, cell(1), mid.expr()),
        );
        let body = Stmt::seq(vec![
            Stmt::store(&range, cell(0), PrimExpr::i64(0)),
            Stmt::store(&range, cell(1), bounds.shape[0].clone()),
            Stmt::while_loop(lo.clone().lt(hi), Stmt::let_in(&mid, halve, step)),
            Stmt::store(&y, i.to_vec(), lo.cast(out.dtype)),
        ]);
        Stmt::new(StmtKind::Alloc { buffer: range, body })
    });
    Ok(k.finish(&[y]))
}
