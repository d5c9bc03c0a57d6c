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
    "Per head, for each step of `q (b, h, t, d)`, `k (b, g, t, d)` and `v (b, g, t, m)`, where `h` is a multiple of `g`: the state `s (b, g, d, m)` is multiplied by `exp(decay)` (`(b, g, t, 1 or d)`), then `k` times `v` is added, where with `beta` (`(b, g or 1, t, 1)`) `v` is replaced by `beta (v - k s)`; the result is `scale q s`, where a scale of 0 stands for `1 / sqrt(d)`. Gives `(b, h, t, m)` and the last state. Source: ONNX `LinearAttention`.",
    &[
        operand("q"),
        operand("k"),
        operand("v"),
        operand("state"),
        optional("decay"),
        optional("beta"),
        attr("scale", Default::Float(0.0)),
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
    check(cx)?;
    let dims = match (q.known_dims(), v.known_dims()) {
        (Some(q), Some(v)) => Some(vec![q[0].clone(), q[1].clone(), q[2].clone(), v[3].clone()]),
        _ => None,
    };
    Ok(StructInfo::Tuple(vec![StructInfo::Tensor(q.with_dims(dims, Some(4))), StructInfo::Tensor(s)]))
}

/// Requires dims that fit those of `k` and `v`.
fn check(cx: &mut InferCx) -> Result<(), Diagnostic> {
    let dims = |cx: &InferCx, i: usize| -> Result<Option<Vec<PrimExpr>>, Diagnostic> {
        match cx.has(i) {
            true => Ok(rules::tensor(cx, i)?.known_dims().map(<[PrimExpr]>::to_vec)),
            false => Ok(None),
        }
    };
    let (Some(q), Some(k), Some(v)) = (dims(cx, 0)?, dims(cx, 1)?, dims(cx, 2)?) else { return Ok(()) };
    let [b, g, t, d] = &k[..] else { return Ok(()) };
    let (h, m) = (&q[1], &v[3]);
    let wanted =
        [(0, [b, h, t, d]), (2, [b, g, t, m]), (3, [b, g, d, m]), (4, [b, g, t, d]), (5, [b, g, t, &PrimExpr::i64(1)])];
    for (i, wanted) in wanted {
        let Some(got) = dims(cx, i)? else { continue };
        if got.len() != 4 {
            return Err(cx.error(format!("operand {} must have 4 dims", cx.operand(i))));
        }
        for (axis, (x, w)) in got.iter().zip(wanted).enumerate() {
            let name = cx.operand(i);
            let text = |x: &PrimExpr| {
                let (x, w) = (rule::dim_text(x), rule::dim_text(w));
                format!("dim {axis} of {name} is {x}, it must be {w}")
            };
            // One decay for all of a head, one beta for all heads.
            match (i, axis) {
                (4, 3) | (5, 1) if x.is_int(1) || cx.proved_eq(x, w) => {}
                (4, 3) | (5, 1) => {
                    let fits = x.clone().eq(w.clone()).or(x.clone().eq(PrimExpr::i64(1)));
                    cx.require(fits, || text(x))?;
                }
                _ => cx.require_eq(x, w, || text(x))?,
            }
        }
    }
    let whole = h.clone().floor_mod(g.clone().max(PrimExpr::i64(1))).eq(PrimExpr::i64(0));
    if h.as_int().zip(g.as_int()).is_some_and(|(h, g)| g > 0 && h % g == 0) {
        return Ok(());
    }
    cx.require(whole, || format!("{} heads of q for {} of k", rule::dim_text(h), rule::dim_text(g)))
}

/// Index `i` along a dim of `of` that is 1 or as wide as it runs.
fn spread(of: &PrimExpr, full: &PrimExpr, i: &PrimExpr) -> PrimExpr {
    match of.as_int() {
        Some(1) => PrimExpr::i64(0),
        None if of != full => of.clone().eq(PrimExpr::i64(1)).select(0, i.clone()),
        _ => i.clone(),
    }
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut b, inputs) = cx.kernel()?;
    let (q, k, v, s0) = (&inputs[0], &inputs[1], &inputs[2], &inputs[3]);
    let mut rest = inputs[4..].iter();
    let decay = if cx.has(4) { rest.next() } else { None };
    let beta = if cx.has(5) { rest.next() } else { None };
    let outs = cx.results()?;
    let f = DType::F32;
    let scale = match cx.attrs.float("scale").unwrap_or(0.0) {
        0.0 => PrimExpr::float(f, 1.0) / k.shape[3].clone().cast(f).call1(Intrin::Sqrt),
        s => PrimExpr::float(f, s),
    };
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
                    let place = spread(&x.shape[3], &d, a);
                    put(a, c, s(a, c) * at(x, t, &place).call1(Intrin::Exp))
                }));
            }
            body.push(each(&m, "c", |c| {
                let to = vec![n.clone(), g.clone(), c.clone()];
                let Some(x) = beta else { return Stmt::store(&row, to, at(v, t, c)) };
                let head = spread(&x.shape[1], &groups, g);
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
