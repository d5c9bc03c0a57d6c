//! Attention.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::wide_dtype;
use crate::op::families::rules;
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::{BinOp, Intrin, PrimExpr};
use crate::relax::{StructInfo, TensorInfo};
use crate::tir::{Buffer, KernelBuilder, PrimFunc, Reducer};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "nn.attention",
        "`softmax(q k^T * scale + bias) v` for each head: `(b, s, h, d), (b, t, g, d), (b, t, g, e) -> (b, s, h, e)`, where `h` is a multiple of `g`: `h / g` heads of the query in turn share one of the keys and values. `scale` defaults to `1 / sqrt(d)`. `causal_mask` `TopLeft` lets query i see keys up to i, `BottomRight` up to `i + |t - s|` (as TVM); `window_size` only the last so many of them, or with no mask those less than so far away.",
        &[
            operand("query"),
            operand("key"),
            operand("value"),
            optional("bias"),
            attr("scale", Default::None),
            attr("causal_mask", Default::None),
            attr("window_size", Default::None),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(16),
    OpDecl::pure(
        "nn.attention_bias",
        "`nn.attention` with a bias of shape `(b or 1, h or 1, s or 1, t)` that adds to the scores: a bool one adds 0 or 1, as in TVM.",
        &[
            operand("query"),
            operand("key"),
            operand("value"),
            optional("bias"),
            attr("scale", Default::None),
            attr("causal_mask", Default::None),
            attr("window_size", Default::None),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(16),
    OpDecl::pure(
        "nn.attention_var_len",
        "`nn.attention` over sequences packed along the second axis: `seqstart_q` and `seqstart_k` (default: `seqstart_q`) hold where each sequence starts, and the total length. A query sees the keys of its own sequence only; `BottomRight` aligns the ends of its queries and keys. The two maximal lengths are hints.",
        &[
            operand("queries"),
            operand("keys"),
            operand("values"),
            operand("seqstart_q"),
            operand("max_seqlen_q"),
            optional("seqstart_k"),
            optional("max_seqlen_k"),
            attr("scale", Default::None),
            attr("causal_mask", Default::None),
            attr("window_size", Default::None),
        ],
        infer,
        Compute::Kernel(compute_var_len),
    )
    .ulp(16),
];

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (q, k, v) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?, rules::tensor(cx, 2)?);
    cx.require_float(0, q.dtype)?;
    // The result has the query's dtype, whatever that of the others (TVM `InferTypeAttention`).
    let dtype = q.dtype;
    if let Some(wrong) = [k.dtype, v.dtype].into_iter().flatten().find(|d| d.is_handle() || d.lanes != 1) {
        return Err(cx.error(format!("keys and values are numbers, not {wrong}")));
    }
    (0..3).try_for_each(|i| rules::require_ndim(cx, i, 4))?;
    (3..7).filter(|i| cx.has(*i)).try_for_each(|i| cx.tensor(i).map(|_| ()))?;
    match cx.attrs.get("causal_mask") {
        Some(m) if !m.is_none() && !matches!(m.as_str(), Some("TopLeft" | "BottomRight")) => {
            return Err(cx.error("causal_mask must be \"TopLeft\", \"BottomRight\" or None"));
        }
        _ => {}
    }
    if cx.attrs.int("window_size").is_some_and(|w| w < 1) {
        return Err(cx.error("window_size must be positive"));
    }
    let (Some(qd), Some(kd), Some(vd)) = (q.known_dims(), k.known_dims(), v.known_dims()) else {
        return Ok(rules::unknown(Some(4), dtype));
    };
    let pairs = [
        (&qd[0], &kd[0], "batch", "query", "key"),
        (&qd[0], &vd[0], "batch", "query", "value"),
        (&qd[3], &kd[3], "head dim", "query", "key"),
        (&kd[1], &vd[1], "sequence length", "key", "value"),
    ];
    for (a, b, what, x, y) in pairs {
        cx.require_eq(a, b, || format!("{what} differs: {x} has {}, {y} has {}", dim_text(a), dim_text(b)))?;
    }
    for (d, of) in [(&kd[2], "key"), (&vd[2], "value")] {
        if d != &qd[2] {
            let rest = PrimExpr::raw_binary(BinOp::FloorMod, qd[2].clone(), d.clone());
            let whole = PrimExpr::raw_binary(BinOp::Eq, rest, PrimExpr::i64(0));
            cx.require(whole, || {
                let (heads, own) = (dim_text(&qd[2]), dim_text(d));
                format!("the number of heads is no multiple: query has {heads}, {of} has {own}")
            })?;
        }
    }
    if cx.op.name != "nn.attention_var_len" && cx.has(3) {
        let bias = rules::tensor(cx, 3)?;
        require_addend(cx, q.dtype, bias.dtype)?;
        require_bias(cx, &bias, [&qd[0], &qd[2], &qd[1], &kd[1]])?;
    }
    Ok(rules::known(vec![qd[0].clone(), qd[1].clone(), qd[2].clone(), vd[3].clone()], dtype))
}

/// The bias adds to scores of the query's dtype, which takes integers, bools (0 and 1, as TVM reads them) and floats
/// of no more bits.
fn require_addend(cx: &mut InferCx, query: Option<DType>, bias: Option<DType>) -> Result<(), Diagnostic> {
    let (Some(q), Some(b)) = (query, bias) else { return Ok(()) };
    let fits = b.is_bool() || b.is_int() || b.is_float() && (b == q || b.bits < q.bits);
    if fits && b.lanes == 1 {
        return Ok(());
    }
    Err(cx.error(format!("the bias is {b}, which does not add to scores of {q}")))
}

/// All four dims are there, and only the keys must be as many (TVM `InferTypeAttention`).
fn require_bias(cx: &mut InferCx, bias: &TensorInfo, scores: [&PrimExpr; 4]) -> Result<(), Diagnostic> {
    if let Some(n) = bias.known_dims().map(<[_]>::len).or(bias.ndim).filter(|n| *n != 4) {
        return Err(cx.error(format!("the bias must have 4 dims, it has {n}")));
    }
    let Some(dims) = bias.known_dims() else { return Ok(()) };
    for (i, (d, s)) in dims.iter().zip(&scores).enumerate() {
        if i == 3 || !d.is_int(1) {
            cx.require_eq(d, s, || {
                let wanted = scores.map(dim_text).join(", ");
                format!("bias dim {} does not broadcast to {} of ({wanted})", dim_text(d), dim_text(s))
            })?;
        }
    }
    Ok(())
}

/// The head of the keys or values that head `i` of the query reads, `own` heads for `heads`.
fn shared_head(i: &PrimExpr, heads: &PrimExpr, own: &PrimExpr) -> PrimExpr {
    match (heads == own, heads.as_int(), own.as_int()) {
        (true, ..) => i.clone(),
        (_, _, Some(1)) => PrimExpr::i64(0),
        (_, Some(heads), Some(own)) if own > 0 => i.clone().floor_div(heads / own),
        _ => i.clone().floor_div(heads.clone().floor_div(own.clone())),
    }
}

/// The factor of the scores: the attribute, or `1 / sqrt(head dim)`.
fn scale(cx: &ComputeCx, acc: DType, head: &PrimExpr) -> PrimExpr {
    match (cx.attrs.float("scale"), head.as_int()) {
        (Some(s), _) => PrimExpr::float(acc, s),
        (None, Some(d)) => PrimExpr::float(acc, 1.0 / (d as f64).sqrt()),
        (None, None) => PrimExpr::one(acc) / head.clone().cast(acc).call1(Intrin::Sqrt),
    }
}

/// May the query at `i` see the key at `j`? `shift` aligns the last query and key of `BottomRight`.
fn visible(cx: &ComputeCx, i: PrimExpr, j: PrimExpr, shift: PrimExpr) -> PrimExpr {
    let window = cx.attrs.int("window_size");
    let last = match cx.attrs.str("causal_mask") {
        Some("BottomRight") => i + shift,
        Some(_) => i,
        None => {
            return match window {
                Some(w) => j.clone().lt(i.clone() + w).and(i.lt(j + w)),
                None => PrimExpr::bool(true),
            }
        }
    };
    let seen = j.clone().le(last.clone());
    match window {
        Some(w) => seen.and(last.lt(j + w)),
        None => seen,
    }
}

struct Parts<'a> {
    q: &'a Buffer,
    k: &'a Buffer,
    v: &'a Buffer,
}

/// The stages from scores to result. `bias` adds to the score at `(b, h, i, j)`, `seen` says whether it counts.
fn stages(
    cx: &ComputeCx,
    k: &mut KernelBuilder,
    p: Parts,
    bias: impl FnOnce(&[PrimExpr], PrimExpr) -> PrimExpr,
    seen: impl Fn(&[PrimExpr]) -> PrimExpr,
) -> Result<Buffer, Diagnostic> {
    let out = cx.result()?;
    let acc = wide_dtype(out.dtype);
    let [b, s, h, d] = [0, 1, 2, 3].map(|i| p.q.shape[i].clone());
    let t = p.k.shape[1].clone();
    let rows = [b.clone(), h.clone(), s.clone()];
    let cells = [b, h, s, t.clone()];
    let product = k.sum("scores", &cells, acc, std::slice::from_ref(&d), |i, r| {
        let (b, h, r) = (i[0].clone(), i[1].clone(), r[0].clone());
        let query = p.q.at([b.clone(), i[2].clone(), h.clone(), r.clone()]).cast(acc);
        let shared = shared_head(&h, &p.q.shape[2], &p.k.shape[2]);
        query * p.k.at([b, i[3].clone(), shared, r]).cast(acc)
    });
    let factor = scale(cx, acc, &d);
    let scores = k.compute("scaled", &cells, acc, |i| bias(i, product.at(i) * factor));
    let lowest = PrimExpr::min_value(acc);
    let reducer = Reducer { init: lowest.clone(), combine: &|a, b| a.max(b) };
    let keys = std::slice::from_ref(&t);
    let max = k.reduce("scores_max", &rows, acc, keys, reducer, |i, r| {
        let at = [i, r].concat();
        seen(&at).select(scores.at(at), lowest)
    });
    let exp = k.compute("scores_exp", &cells, acc, |i| {
        let e = (scores.at(i) - max.at(&i[..3])).call1(Intrin::Exp);
        seen(i).select(e, PrimExpr::zero(acc))
    });
    let sum = k.sum("scores_sum", &rows, acc, keys, |i, r| exp.at([i, r].concat()));
    let mixed = k.sum("mixed", out.dims, acc, keys, |i, r| {
        let (b, h, r) = (i[0].clone(), i[2].clone(), r[0].clone());
        let weight = exp.at([b.clone(), h.clone(), i[1].clone(), r.clone()]);
        let shared = shared_head(&h, &p.q.shape[2], &p.v.shape[2]);
        weight * p.v.at([b, r, shared, i[3].clone()]).cast(acc)
    });
    Ok(k.compute("attention", out.dims, out.dtype, |i| {
        mixed.at(i) / sum.at([i[0].clone(), i[2].clone(), i[1].clone()])
    }))
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, x) = cx.kernel()?;
    let (s, t) = (x[0].shape[1].clone(), x[1].shape[1].clone());
    let shift = (t.clone() - s.clone()).max(s - t);
    let bias = |i: &[PrimExpr], v: PrimExpr| match x.get(3) {
        Some(b) => {
            let to = v.dtype();
            v + b.at(rules::broadcast_index(&b.shape, i)).cast(to)
        }
        None => v,
    };
    let seen = |i: &[PrimExpr]| visible(cx, i[2].clone(), i[3].clone(), shift.clone());
    let y = stages(cx, &mut k, Parts { q: &x[0], k: &x[1], v: &x[2] }, bias, seen)?;
    Ok(k.finish(&[y]))
}

fn compute_var_len(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, x) = cx.kernel()?;
    // TVM prints the operands in another order than its function takes them: the vectors are the starts.
    let starts: Vec<&Buffer> = x[3..].iter().filter(|b| b.ndim() == 1).collect();
    let first = *starts.first().ok_or_else(|| cx.error("seqstart_q must have one dim"))?;
    let (sq, sk) = (first, starts.get(1).copied().unwrap_or(first));
    let dtype = DType::I64;
    let sequences = [sq.shape[0].clone() - 1];
    let rows = [x[0].shape[1].clone()];
    let sequence = k.sum("sequence", &rows, dtype, &sequences, |i, r| {
        let end = sq.at([r[0].clone() + 1]).cast(dtype);
        end.le(i[0].clone()).select(1, 0)
    });
    let mut bound = |name: &str, of: &Buffer, next: i64| {
        let most = of.shape[0].clone() - (2 - next);
        k.compute(name, &rows, dtype, |i| of.at([sequence.at(i).min(most) + next]))
    };
    let (q0, q1) = (bound("query_start", sq, 0), bound("query_end", sq, 1));
    let (k0, k1) = (bound("key_start", sk, 0), bound("key_end", sk, 1));
    let seen = |i: &[PrimExpr]| {
        let row = [i[2].clone()];
        let [q0, q1, k0, k1] = [&q0, &q1, &k0, &k1].map(|b| b.at(row.clone()));
        let own = i[3].clone().ge(k0.clone()).and(i[3].clone().lt(k1.clone()));
        let shift = (k1 - k0.clone()) - (q1 - q0.clone());
        own.and(visible(cx, i[2].clone() - q0, i[3].clone() - k0, shift))
    };
    let y = stages(cx, &mut k, Parts { q: &x[0], k: &x[1], v: &x[2] }, |_, v| v, seen)?;
    Ok(k.finish(&[y]))
}
