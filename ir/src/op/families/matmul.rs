//! Matmul and outer product.

use crate::diag::Diagnostic;
use crate::op::elem::wide_dtype;
use crate::op::families::rules;
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::PrimFunc;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "matmul",
        "Matrix product over the last two dims with NumPy broadcasting of the leading ones: `(.., n, k) x (.., k, m) -> (.., n, m)`; a 1-d operand counts as a row (lhs) or column (rhs) and its dim is dropped. Sums in `out_dtype` (float32 for the 16-bit floats), which defaults to the dtype of the operands. Source: TVM `relax.matmul`.",
        &[operand("x1"), operand("x2"), attr("out_dtype", Default::None)],
        infer_matmul,
        Compute::Kernel(compute_matmul),
    )
    .ulp(4),
    OpDecl::pure(
        "outer",
        "Outer product of two vectors: `(n), (m) -> (n, m)`.",
        &[operand("x1"), operand("x2")],
        infer_outer,
        Compute::Kernel(compute_outer),
    ),
];

fn infer_matmul(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (a, b) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?);
    let dtype = rules::product_dtype(cx, &a, &b)?;
    let (Some(an), Some(bn)) = (a.ndim, b.ndim) else {
        return Ok(rules::unknown(None, dtype));
    };
    for (n, which) in [(an, "lhs"), (bn, "rhs")] {
        if n == 0 {
            return Err(cx.error(format!("{which} is a scalar; at least one dim is needed")));
        }
    }
    let (Some(ad), Some(bd)) = (a.known_dims(), b.known_dims()) else {
        let ndim = an.max(2).max(bn) - (an == 1) as usize - (bn == 1) as usize;
        return Ok(rules::unknown(Some(ndim), dtype));
    };
    let (lk, rk) = (&ad[an - 1], if bn == 1 { &bd[0] } else { &bd[bn - 2] });
    cx.require_eq(lk, rk, || format!("reduction dims differ: lhs k = {}, rhs k = {}", dim_text(lk), dim_text(rk)))?;
    let mut dims = cx.broadcast_dims(&ad[..an.saturating_sub(2)], &bd[..bn.saturating_sub(2)])?;
    if an > 1 {
        dims.push(ad[an - 2].clone());
    }
    if bn > 1 {
        dims.push(bd[bn - 1].clone());
    }
    Ok(rules::known(dims, dtype))
}

fn compute_matmul(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (a, b, out) = (cx.tensor(0)?, cx.tensor(1)?, cx.result()?);
    let (mut k, inputs) = cx.kernel()?;
    let (x, y) = (&inputs[0], &inputs[1]);
    let (an, bn) = (a.dims.len(), b.dims.len());
    if an == 0 || bn == 0 {
        return Err(cx.error("the operands must have at least one dim"));
    }
    let batch = out.dims.len() - (an > 1) as usize - (bn > 1) as usize;
    let (abatch, bbatch) = (&a.dims[..an.saturating_sub(2)], &b.dims[..bn.saturating_sub(2)]);
    let reduce = [a.dims[an - 1].clone()];
    let acc = wide_dtype(out.dtype);
    let y = k.sum("matmul", out.dims, acc, &reduce, |s, r| {
        let mut xi = rules::broadcast_index(abatch, &s[..batch]);
        let mut yi = rules::broadcast_index(bbatch, &s[..batch]);
        if an > 1 {
            xi.push(s[batch].clone());
        }
        xi.push(r[0].clone());
        yi.push(r[0].clone());
        if bn > 1 {
            yi.push(s[s.len() - 1].clone());
        }
        x.at(xi).cast(acc) * y.at(yi).cast(acc)
    });
    let y = rules::narrow(&mut k, y, out.dtype);
    Ok(k.finish(&[y]))
}

fn infer_outer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (a, b) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?);
    // TVM: the result has the dtype of the left vector, whatever the right one has.
    let dtype = a.dtype;
    rules::require_ndim(cx, 0, 1)?;
    rules::require_ndim(cx, 1, 1)?;
    Ok(match (a.known_dims(), b.known_dims()) {
        (Some(x), Some(y)) => rules::known(vec![x[0].clone(), y[0].clone()], dtype),
        _ => rules::unknown(Some(2), dtype),
    })
}

fn compute_outer(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let out = cx.result()?;
    let (mut k, x) = cx.kernel()?;
    let y = k.compute("outer", out.dims, out.dtype, |i| {
        let (a, b) = (PrimExpr::load(&x[0], [i[0].clone()]), PrimExpr::load(&x[1], [i[1].clone()]));
        elem::convert(a, out.dtype) * elem::convert(b, out.dtype)
    });
    Ok(k.finish(&[y]))
}
