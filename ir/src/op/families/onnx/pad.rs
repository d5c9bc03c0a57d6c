//! Padding and cropping by widths that are only known at run time.

use crate::diag::Diagnostic;
use crate::op::families::border::{outside, sides};
use crate::op::families::rules;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::PrimFunc;

pub static OPS: &[OpDecl] = &[OpDecl::pure(
    "onnx.pad",
    "A tensor of dims `dims` whose element `i` is element `i - begin` of `x`: negative begins crop. `mode` says what stands outside: `constant` (the scalar tensor `value`, or 0), `edge`, `reflect` or `wrap`. Source: ONNX `Pad`, `CenterCropPad`.",
    &[
        operand("x"),
        operand("begin"),
        operand("dims"),
        optional("value"),
        attr("mode", Default::Str("constant")),
    ],
    infer,
    Compute::Kernel(compute),
)];

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    let (begin, n) = cx.shape_operand(1)?;
    let (dims, m) = cx.shape_operand(2)?;
    if !matches!(cx.attrs.str("mode"), Some("constant" | "edge" | "reflect" | "wrap")) {
        return Err(cx.error("mode must be constant, edge, reflect or wrap"));
    }
    if begin.is_none() {
        return Err(cx.error("begin must be stated"));
    }
    for (name, len) in [("begin", n), ("dims", m)] {
        if let (Some(len), Some(r)) = (len, x.ndim) {
            if len != r {
                return Err(cx.error(format!("{name} has {len} entries, x has {r} dims")));
            }
        }
    }
    Ok(StructInfo::Tensor(x.with_dims(dims, m)))
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let begin = cx.scalars(1).ok_or_else(|| cx.error("begin must be stated"))?;
    let mode = cx.attrs.str("mode").unwrap_or("constant");
    let out = cx.result()?;
    let zero = || PrimExpr::i64(0);
    let begins: Option<Vec<i64>> = begin.iter().map(PrimExpr::as_int).collect();
    if let Some(sides) = begins.and_then(|b| sides(mode, &b, &x.shape, out.dims)) {
        let y = k.compute("pad", out.dims, out.dtype, |i| outside(x, i, &sides, vec![]));
        return Ok(k.finish(&[y]));
    }
    let y = k.compute("pad", out.dims, out.dtype, |i| {
        let mut inside = PrimExpr::bool(true);
        let mut at = vec![];
        for (d, n) in x.shape.iter().enumerate() {
            let b = begin[d].clone().cast(n.dtype());
            let p = i[d].clone() - b.clone();
            if b.is_int(0) && out.dims[d] == *n {
                at.push(p);
                continue;
            }
            at.push(match mode {
                "edge" => p.max(zero()).min(n.clone() - 1),
                "wrap" => p.floor_mod(n.clone().max(1)),
                "reflect" => {
                    let period = ((n.clone() - 1) * 2).max(1);
                    let m = p.floor_mod(period.clone());
                    m.clone().lt(n.clone()).select(m.clone(), period - m)
                }
                _ => {
                    inside = inside.clone().and(p.clone().ge(zero())).and(p.clone().lt(n.clone()));
                    p
                }
            });
        }
        let value = match inputs.get(1) {
            Some(v) => v.at(vec![zero(); v.ndim()]).cast(out.dtype),
            None => PrimExpr::zero(out.dtype),
        };
        inside.if_then_else(x.at(at), value)
    });
    Ok(k.finish(&[y]))
}
