//! Attention whose memory is a matrix that every step updates.

use super::{each, local, set};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, wide};
use crate::op::families::rules;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::StructInfo;
use crate::tir::{Buffer, PrimFunc, Stmt};

pub static OPS: &[OpDecl] = &[OpDecl::pure(
    "onnx.linear_attention",
    "Per head, for each step of `q (b, h, t, d)`, `k (b, g, t, d)` and `v (b, g, t, m)`, where `h` is a multiple of `g`: the state `s (b, g, d, m)` is multiplied by `exp(decay)` (`(b, g, t, 1 or d)`), then `k` times `v` is added, where with `beta` (`(b, g or 1, t, 1)`) `v` is replaced by `beta (v - k s)`; the result is `scale q s`. Gives `(b, h, t, m)` and the last state. Source: ONNX `LinearAttention`.",
    &[
        operand("q"),
        operand("k"),
        operand("v"),
        operand("state"),
        optional("decay"),
        optional("beta"),
        attr("scale", Default::Float(1.0)),
    ],
    infer,
    Compute::Kernel(compute),
)
.ulp(32)];

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (q, v, s) = (rules::tensor(cx, 0)?, rules::tensor(cx, 2)?, rules::tensor(cx, 3)?);
    for i in 0..4 {
        rules::require_ndim(cx, i, 4)?;
    }
    let dims = match (q.known_dims(), v.known_dims()) {
        (Some(q), Some(v)) => Some(vec![q[0].clone(), q[1].clone(), q[2].clone(), v[3].clone()]),
        _ => None,
    };
    Ok(StructInfo::Tuple(vec![StructInfo::Tensor(q.with_dims(dims, Some(4))), StructInfo::Tensor(s)]))
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut b, inputs) = cx.kernel()?;
    let (q, k, v, s0) = (&inputs[0], &inputs[1], &inputs[2], &inputs[3]);
    let mut rest = inputs[4..].iter();
    let decay = if cx.has(4) { rest.next() } else { None };
    let beta = if cx.has(5) { rest.next() } else { None };
    let outs = cx.results()?;
    let f = DType::F32;
    let scale = PrimExpr::float(f, cx.attrs.float("scale").unwrap_or(1.0));
    let (heads, groups, steps) = (q.shape[1].clone(), k.shape[1].clone(), q.shape[2].clone());
    let (d, m) = (k.shape[3].clone(), v.shape[3].clone());
    let y = b.buffer("y", outs[0].dims, outs[0].dtype);
    let state = b.buffer("state_now", &s0.shape, f);
    let last = b.buffer("state_last", &s0.shape, outs[1].dtype);
    let row = b.buffer("row", &[k.shape[0].clone(), groups.clone(), m.clone()], f);
    let sum = Buffer::new("sum", vec![PrimExpr::i64(1)], f);
    b.rows("attend", &[k.shape[0].clone(), groups.clone()], |i| {
        let (n, g) = (&i[0], &i[1]);
        let at =
            |x: &Buffer, a: &PrimExpr, c: &PrimExpr| wide(x.at([n.clone(), g.clone(), a.clone(), c.clone()])).cast(f);
        let s = |a: &PrimExpr, c: &PrimExpr| state.at([n.clone(), g.clone(), a.clone(), c.clone()]);
        let put = |a: &PrimExpr, c: &PrimExpr, v: PrimExpr| {
            Stmt::store(&state, vec![n.clone(), g.clone(), a.clone(), c.clone()], v)
        };
        let each_state = |body: &dyn Fn(&PrimExpr, &PrimExpr) -> Stmt| each(&d, "a", |a| each(&m, "c", |c| body(a, c)));
        let total = sum.at([PrimExpr::i64(0)]);
        let step = each(&steps, "t", |t| {
            let mut body = vec![];
            if let Some(x) = decay {
                body.push(each_state(&|a, c| {
                    let place = if x.shape[3].is_int(1) { PrimExpr::i64(0) } else { a.clone() };
                    put(a, c, s(a, c) * at(x, t, &place).call1(Intrin::Exp))
                }));
            }
            body.push(each(&m, "c", |c| {
                let to = vec![n.clone(), g.clone(), c.clone()];
                let Some(x) = beta else { return Stmt::store(&row, to, at(v, t, c)) };
                let head = if x.shape[1].is_int(1) { PrimExpr::i64(0) } else { g.clone() };
                let factor = wide(x.at([n.clone(), head, t.clone(), PrimExpr::i64(0)])).cast(f);
                let known = each(&d, "a", |a| set(&sum, 0, total.clone() + s(a, c) * at(k, t, a)));
                let store = Stmt::store(&row, to, factor * (at(v, t, c) - total.clone()));
                Stmt::seq(vec![set(&sum, 0, PrimExpr::zero(f)), known, store])
            }));
            body.push(each_state(&|a, c| put(a, c, s(a, c) + at(k, t, a) * row.at([n.clone(), g.clone(), c.clone()]))));
            let per_group = heads.clone().floor_div(groups.clone());
            body.push(each(&per_group, "h", |h| {
                let head = g.clone() * heads.clone().floor_div(groups.clone()) + h.clone();
                each(&m, "c", |c| {
                    let product = each(&d, "a", |a| {
                        let query = wide(q.at([n.clone(), head.clone(), t.clone(), a.clone()])).cast(f);
                        set(&sum, 0, total.clone() + query * s(a, c))
                    });
                    let to = vec![n.clone(), head.clone(), t.clone(), c.clone()];
                    let store = Stmt::store(&y, to, convert(scale.clone() * total.clone(), y.dtype()));
                    Stmt::seq(vec![set(&sum, 0, PrimExpr::zero(f)), product, store])
                })
            }));
            Stmt::seq(body)
        });
        let begin = each_state(&|a, c| put(a, c, at(s0, a, c)));
        let end = each_state(&|a, c| {
            Stmt::store(&last, vec![n.clone(), g.clone(), a.clone(), c.clone()], convert(s(a, c), last.dtype()))
        });
        local(&sum, Stmt::seq(vec![begin, step, end]))
    });
    Ok(b.finish(&[y, last]))
}
