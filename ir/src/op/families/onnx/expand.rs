//! Broadcasting of dims that are only known at run time.

use crate::diag::Diagnostic;
use crate::op::families::rules;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::PrimFunc;

pub static OPS: &[OpDecl] = &[OpDecl::pure(
    "onnx.expand",
    "`x` broadcast with `shape` in both directions: of two dims that differ the one that is not 1 counts, and which one \
     that is may show at run time only. Source: ONNX `Expand`.",
    &[operand("x"), operand("shape")],
    infer,
    Compute::Kernel(expand),
)];

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    let (to, n) = cx.shape_operand(1)?;
    let (Some(from), Some(to)) = (x.known_dims(), to) else {
        return Ok(rules::unknown(x.ndim.zip(n).map(|(a, b)| a.max(b)), x.dtype));
    };
    let n = from.len().max(to.len());
    let at = |d: &[PrimExpr], i: usize| (i + d.len()).checked_sub(n).map_or(PrimExpr::i64(1), |j| d[j].clone());
    let mut dims = vec![];
    for i in 0..n {
        let (a, b) = (at(from, i), at(&to, i));
        dims.push(match (a.as_int(), b.as_int()) {
            (Some(1), _) => b,
            (_, Some(1)) => a,
            _ if cx.proved_eq(&a, &b) => a,
            _ => {
                let fits =
                    a.clone().eq(b.clone()).or(a.clone().eq(PrimExpr::i64(1))).or(b.clone().eq(PrimExpr::i64(1)));
                cx.require(fits, || {
                    let (a, b) = (rule::dim_text(&a), rule::dim_text(&b));
                    format!("dims {a} and {b} differ and neither is 1")
                })?;
                match (a.as_int(), b.as_int()) {
                    (Some(_), _) => a,
                    (_, Some(_)) => b,
                    _ => a.clone().eq(PrimExpr::i64(1)).select(b, a),
                }
            }
        });
    }
    Ok(rules::known(dims, x.dtype))
}

fn expand(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let out = cx.result()?;
    let lead = out.dims.len() - x.ndim();
    let y = k.compute("expand", out.dims, out.dtype, |i| {
        let at = x.shape.iter().enumerate().map(|(j, d)| match (d.as_int(), i[lead + j].clone()) {
            (Some(1), _) => PrimExpr::i64(0),
            (None, i) if *d != out.dims[lead + j] => d.clone().eq(PrimExpr::i64(1)).select(0, i),
            (_, i) => i,
        });
        x.at(at.collect::<Vec<_>>())
    });
    Ok(k.finish(&[y]))
}
