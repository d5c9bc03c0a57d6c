//! Running sums and products along an axis.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, unflatten, wide_dtype};
use crate::op::*;
use crate::prim::{PrimExpr, Var};
use crate::relax::StructInfo;
use crate::tir::{PrimFunc, Stmt};

const PARAMS: &[ParamDecl] = &[
    operand("data"),
    attr("axis", Default::None),
    attr("dtype", Default::None),
    attr("exclusive", Default::Bool(false)),
];

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "cumsum",
        "Sums of the elements up to each position along `axis` (of the flattened tensor without one); without the element \
         itself when exclusive.",
        PARAMS,
        infer,
        Compute::Kernel(|cx| scan(cx, PrimExpr::zero, |a, b| a + b)),
    )
    .ulp(4),
    OpDecl::pure(
        "cumprod",
        "Products of the elements up to each position along `axis` (of the flattened tensor without one); without the \
         element itself when exclusive.",
        PARAMS,
        infer,
        Compute::Kernel(|cx| scan(cx, PrimExpr::one, |a, b| a * b)),
    )
    .ulp(4),
];

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    cx.one_axis("axis")?;
    let dtype = cx.dtype("dtype")?;
    let t = cx.tensor(0)?;
    let out = t.with_dtype(dtype.or(t.dtype));
    if cx.attrs.int("axis").is_some() {
        if let Some(n) = t.ndim {
            cx.axes("axis", n)?;
        }
        return Ok(StructInfo::Tensor(out));
    }
    let flat = t.known_dims().map(PrimExpr::product);
    let flat = flat.map(|d| vec![cx.simplify(d)]);
    Ok(StructInfo::Tensor(out.with_dims(flat, Some(1))))
}

/// The dims before the axis are rows; the dims after it are the inner loop, so that it runs over adjacent elements.
fn scan(
    cx: &ComputeCx,
    init: fn(DType) -> PrimExpr,
    combine: fn(PrimExpr, PrimExpr) -> PrimExpr,
) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = inputs[0].clone();
    let out = cx.result()?;
    let d = if out.dtype.is_bool() { DType::I32 } else { wide_dtype(out.dtype) };
    let flat = cx.attrs.int("axis").is_none();
    let axis = match cx.attrs.int("axis") {
        Some(a) => cx.axis(a, x.ndim())?,
        None => 0,
    };
    let acc = k.buffer("scan", out.dims, d);
    let exclusive = cx.attrs.bool("exclusive").unwrap_or(false);
    let n = out.dims[axis].clone();
    let element = |i: &[PrimExpr]| {
        let idx = if flat { unflatten(i[0].clone(), &x.shape) } else { i.to_vec() };
        convert(x.at(idx), d)
    };
    k.rows("scan", &out.dims[..axis], |row| {
        let inner: Vec<(Var, PrimExpr)> =
            out.dims[axis + 1..].iter().enumerate().map(|(i, e)| (Var::dim(format!("i{i}")), e.clone())).collect();
        let at = |p: PrimExpr| -> Vec<PrimExpr> {
            row.iter().cloned().chain([p]).chain(inner.iter().map(|(v, _)| v.expr())).collect()
        };
        let nest = |s: Stmt| inner.iter().rev().fold(s, |s, (v, e)| Stmt::for_serial(v, e.clone(), s));
        let zero = PrimExpr::i64(0);
        let first = if exclusive { init(d) } else { element(&at(zero.clone())) };
        let (f, p) = (Var::dim("f"), Var::dim("p"));
        let head = Stmt::for_serial(&f, n.clone().min(PrimExpr::i64(1)), nest(Stmt::store(&acc, at(zero), first)));
        let next = p.expr() + 1;
        let from = if exclusive { p.expr() } else { next.clone() };
        let value = combine(acc.at(at(p.expr())), element(&at(from)));
        let tail = Stmt::for_serial(&p, n - 1, nest(Stmt::store(&acc, at(next), value)));
        Stmt::seq(vec![head, tail])
    });
    if d == out.dtype {
        return Ok(k.finish(&[acc]));
    }
    let y = k.compute("cast", out.dims, out.dtype, |i| convert(acc.at(i), out.dtype));
    Ok(k.finish(&[y]))
}
