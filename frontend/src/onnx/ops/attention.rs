//! Attention in its variants, and rotary embeddings.

use super::movement::slice_axes;
use super::nn::softmax_f16;
use super::reduce::reduce_axes;
use super::select::positions;
use super::{one, op, op_of, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::{counted, NodeCx};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("Attention", &[(23, attention)]),
    op_of("ai.onnx.preview", "FlexAttention", &[(1, flex_attention)]),
    op("LinearAttention", &[(1, linear_attention)]),
    op("RotaryEmbedding", &[(23, rotary)]),
];

/// `(b, s, h d)` as `(b, h, s, d)`.
pub fn heads(cx: &mut NodeCx, x: &Tensor, n: i64) -> Res<Tensor> {
    if n < 1 {
        return Err(cx.error("the number of heads must be positive"));
    }
    if x.rank() != 3 {
        return Err(cx.error(format!("heads of a tensor of {}: 3 are needed", counted(x.rank(), "dim"))));
    }
    let d = cx.simplify(x.dims[2].clone().floor_div(n));
    let y = cx.reshape(x, &[x.dims[0].clone(), x.dims[1].clone(), PrimExpr::i64(n), d])?;
    cx.transpose(&y, &[0, 2, 1, 3])
}

/// `(b, h, s, d)` as `(b, s, h d)`.
pub fn joined(cx: &mut NodeCx, x: &Tensor) -> Res<Tensor> {
    let y = cx.transpose(x, &[0, 2, 1, 3])?;
    let last = cx.simplify(y.dims[2].clone() * y.dims[3].clone());
    let dims = [y.dims[0].clone(), y.dims[1].clone(), last];
    cx.reshape(&y, &dims)
}

fn concat(cx: &mut NodeCx, a: &Tensor, b: &Tensor, axis: usize) -> Res<Tensor> {
    cx.call("concat", &[[a.clone(), b.clone()].as_slice().into()], &[("axis", AttrValue::Int(axis as i64))])
}

/// A scalar of the dims in play.
fn int(v: &PrimExpr) -> Tensor {
    Tensor::known(&[], DType::I64, vec![v.clone()])
}

/// 0 where `allowed`, minus infinity elsewhere.
fn mask_of(cx: &mut NodeCx, allowed: &Tensor, dtype: DType) -> Res<Tensor> {
    let (zero, low) = (Tensor::scalar(dtype, 0.0), Tensor::scalar(dtype, f64::NEG_INFINITY));
    cx.op("where", &[allowed, &zero, &low])
}

/// Joins two masks, either of which may be missing.
fn both(cx: &mut NodeCx, a: Option<Tensor>, b: Tensor) -> Res<Option<Tensor>> {
    Ok(Some(match a {
        Some(a) => cx.op("add", &[&a, &b])?,
        None => b,
    }))
}

fn attention(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (mut q, mut k, mut v) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let dtype = q.dtype;
    let flat = q.rank() == 3;
    if flat {
        let (n, m) = (cx.int_opt("q_num_heads"), cx.int_opt("kv_num_heads"));
        let (n, m) = (cx.required("q_num_heads", n)?, cx.required("kv_num_heads", m)?);
        q = heads(cx, &q, n)?;
        k = heads(cx, &k, m)?;
        v = heads(cx, &v, m)?;
    }
    if q.rank() != 4 || k.rank() != 4 || v.rank() != 4 {
        return Err(cx.error("query, key and value must have three or four dims"));
    }
    let (past_k, past_v, lens) = (cx.optional(4)?, cx.optional(5)?, cx.optional(6)?);
    let has_past = past_k.is_some();
    let past = past_k.as_ref().map_or(PrimExpr::i64(0), |p| p.dims[2].clone());
    if let (Some(pk), Some(pv)) = (&past_k, &past_v) {
        k = concat(cx, pk, &k, 2)?;
        v = concat(cx, pv, &v, 2)?;
    }
    let (present_k, present_v) = (k.clone(), v.clone());
    let (queries, keys) = (q.dims[2].clone(), k.dims[2].clone());
    // The additive mask.
    let mut mask = match cx.optional(3)? {
        Some(m) => {
            let m = if m.dtype.is_bool() { mask_of(cx, &m, dtype)? } else { cx.cast(&m, dtype)? };
            Some(widened(cx, m, &keys)?)
        }
        None => None,
    };
    // The place of a query among the keys.
    let offset = match &lens {
        Some(l) if !has_past => {
            let l = cx.cast(l, DType::I64)?;
            let l = cx.reshape(&l, &[q.dims[0].clone(), 1.into(), 1.into(), 1.into()])?;
            cx.op("subtract", &[&l, &int(&queries)])?
        }
        _ => int(&past),
    };
    let (left, right) = (cx.int("left_window_size", -1), cx.int("right_window_size", -1));
    let causal = cx.flag("is_causal", false);
    if causal || left >= 0 || right >= 0 {
        let rows = positions(cx, &queries, 2, 0)?;
        let columns = positions(cx, &keys, 2, 1)?;
        let rows = cx.op("add", &[&rows, &offset])?;
        let distance = cx.op("subtract", &[&rows, &columns])?;
        let bounds = [
            (causal, "greater_equal", 0),
            (left >= 0, "less_equal", left),
            (right >= 0, "greater_equal", right.saturating_neg()),
        ];
        for (_, relax, limit) in bounds.into_iter().filter(|b| b.0) {
            let limit = Tensor::scalar_int(DType::I64, limit);
            let allowed = cx.op(relax, &[&distance, &limit])?;
            let m = mask_of(cx, &allowed, dtype)?;
            mask = both(cx, mask, m)?;
        }
    }
    if let Some(l) = &lens {
        let l = cx.cast(l, DType::I64)?;
        let l = cx.reshape(&l, &[q.dims[0].clone(), 1.into(), 1.into(), 1.into()])?;
        let columns = positions(cx, &keys, 2, 1)?;
        let allowed = cx.op("less", &[&columns, &l])?;
        let m = mask_of(cx, &allowed, dtype)?;
        mask = both(cx, mask, m)?;
    }
    (k, v) = grouped(cx, &q, k, v)?;
    let scale = match (cx.float_opt("scale"), q.dims[3].as_int()) {
        (Some(s), _) => Tensor::scalar(dtype, s.sqrt()),
        (None, Some(d)) => Tensor::scalar(dtype, (1.0 / (d.max(1) as f64).sqrt()).sqrt()),
        (None, None) => {
            let s = inverse_root(cx, &q.dims[3].clone())?;
            let s = cx.op("sqrt", &[&s])?;
            cx.cast(&s, dtype)?
        }
    };
    let q = cx.op("multiply", &[&q, &scale])?;
    let k = cx.op("multiply", &[&k, &scale])?;
    let k = cx.transpose(&k, &[0, 1, 3, 2])?;
    let mut scores = cx.op("matmul", &[&q, &k])?;
    let cap = cx.float("softcap", 0.0);
    if cap > 0.0 {
        let cap = Tensor::scalar(dtype, cap);
        scores = cx.op("divide", &[&scores, &cap])?;
        scores = cx.op("tanh", &[&scores])?;
        scores = cx.op("multiply", &[&scores, &cap])?;
    }
    let biased = match &mask {
        Some(m) => cx.op("add", &[&scores, m])?,
        None => scores.clone(),
    };
    let precision = cx.dtype_opt("softmax_precision")?.unwrap_or(dtype);
    let wide = cx.cast(&biased, precision)?;
    let mut weights = match precision {
        DType::F16 => softmax_f16(cx, &wide, wide.rank() - 1)?,
        _ => cx.call("nn.softmax", &[(&wide).into()], &[("axis", AttrValue::Int(-1))])?,
    };
    if let Some(m) = &mask {
        // A row that may attend to nothing gives 0.
        let last = m.rank() - 1;
        let top = reduce_axes(cx, m, "max", &[last], true)?;
        let low = Tensor::scalar(dtype, f64::NEG_INFINITY);
        let lowest = Tensor::scalar(dtype, if dtype == DType::F16 { -65504.0 } else { f32::MIN as f64 });
        let closed = cx.op("less", &[&top, &lowest])?;
        let closed_too = cx.op("equal", &[&top, &low])?;
        let closed = cx.op("logical_or", &[&closed, &closed_too])?;
        let zero = Tensor::scalar(precision, 0.0);
        weights = cx.op("where", &[&closed, &zero, &weights])?;
    }
    let weights = cx.cast(&weights, dtype)?;
    let y = cx.op("matmul", &[&weights, &v])?;
    let y = if flat { joined(cx, &y)? } else { y };
    let shown = match cx.int("qk_matmul_output_mode", 0) {
        2 => biased,
        3 => weights,
        _ => scores,
    };
    Ok(vec![y.into(), present_k.into(), present_v.into(), shown.into()])
}

/// `1 / sqrt(dim)` of a dim that varies, as float32; 1 of 0, as sums over nothing are 0 whatever they are scaled by.
fn inverse_root(cx: &mut NodeCx, dim: &PrimExpr) -> Res<Tensor> {
    let d = Tensor::known(&[], DType::I64, vec![dim.clone().max(1)]);
    let d = cx.cast(&d, DType::F32)?;
    let d = cx.op("sqrt", &[&d])?;
    let unit = cx.like(&d, 1.0);
    cx.op("divide", &[&unit, &d])
}

/// A mask over fewer keys than there are: the others are masked.
fn widened(cx: &mut NodeCx, m: Tensor, keys: &PrimExpr) -> Res<Tensor> {
    let Some(last) = m.dims.last() else { return Ok(m) };
    let fewer = match (last.as_int(), keys.as_int()) {
        (Some(a), Some(b)) => a < b,
        // That varies: known when it runs.
        (None, _) => last != keys,
        (Some(_), None) => false,
    };
    match fewer {
        true => {
            let mut dims = m.dims.clone();
            if let Some(d) = dims.last_mut() {
                *d = keys.clone();
            }
            let begin = vec![PrimExpr::i64(0); m.rank()];
            let low = Tensor::scalar(m.dtype, f64::NEG_INFINITY);
            cx.call("onnx.pad", &[(&m).into(), Arg::prims(&begin), Arg::shape(&dims), (&low).into()], &[])
        }
        false => Ok(m),
    }
}

fn linear_attention(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (q, k, v) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (past, decay, beta) = (cx.optional(3)?, cx.optional(4)?, cx.optional(5)?);
    let (n, m) = (cx.int_opt("q_num_heads"), cx.int_opt("kv_num_heads"));
    let (n, m) = (cx.required("q_num_heads", n)?, cx.required("kv_num_heads", m)?);
    let (q4, k4, v4) = (heads(cx, &q, n)?, heads(cx, &k, m)?, heads(cx, &v, m)?);
    let decay = match decay {
        Some(d) => heads(cx, &d, m)?.into(),
        None => Arg::absent(),
    };
    let beta = match beta {
        Some(b) if b.dims[2].is_int(1) => heads(cx, &b, 1)?.into(),
        // One for all heads or one for each.
        Some(b) if b.dims[2].as_int().is_none() => {
            let dims = [b.dims[0].clone(), b.dims[1].clone(), PrimExpr::i64(m)];
            let b = cx.builder().widened(&b, &dims)?;
            heads(cx, &b, m)?.into()
        }
        Some(b) => heads(cx, &b, m)?.into(),
        None => Arg::absent(),
    };
    let state = match past {
        Some(p) => p,
        None => {
            let zero = Tensor::scalar(q.dtype, 0.0);
            let dims = [k4.dims[0].clone(), k4.dims[1].clone(), k4.dims[3].clone(), v4.dims[3].clone()];
            cx.broadcast_to(&zero, &dims)?
        }
    };
    let scale = cx.float("scale", 0.0);
    let args = [(&q4).into(), (&k4).into(), (&v4).into(), (&state).into(), decay, beta];
    let all = cx.call_multi("onnx.linear_attention", &args, &[("scale", AttrValue::Float(scale))])?;
    let y = joined(cx, &all[0])?;
    Ok(vec![y.into(), all[1].clone().into()])
}

fn rotary(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, mut cos, mut sin) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let at = cx.optional(3)?;
    let flat = x.rank() == 3;
    let v = if flat {
        let n = cx.int("num_heads", 0);
        heads(cx, &x, n)?
    } else {
        x.clone()
    };
    let size = v.dims[3].clone();
    let turned = match cx.int("rotary_embedding_dim", 0) {
        0 => size.clone(),
        d => PrimExpr::i64(d),
    };
    let half = cx.simplify(turned.clone().floor_div(2));
    if let Some(at) = at {
        let attrs = [("axis", AttrValue::Int(0))];
        cos = cx.call("take", &[(&cos).into(), (&at).into()], &attrs)?;
        sin = cx.call("take", &[(&sin).into(), (&at).into()], &attrs)?;
    }
    // (b, s, d / 2) beside (b, h, s, d).
    let (cos, sin) = (cx.unsqueeze(&cos, &[1])?, cx.unsqueeze(&sin, &[1])?);
    let zero = PrimExpr::i64(0);
    let cut = |cx: &mut NodeCx, t: &Tensor, from: &PrimExpr, to: &PrimExpr| {
        slice_axes(cx, t, &[t.rank() - 1], std::slice::from_ref(from), std::slice::from_ref(to), &[1])
    };
    let whole = turned == size;
    let part = if whole { v.clone() } else { cut(cx, &v, &zero, &turned)? };
    let interleaved = cx.flag("interleaved", false);
    let mut pairs = part.dims.clone();
    pairs.pop();
    let (a, b, axis) = if interleaved {
        pairs.extend([half.clone(), PrimExpr::i64(2)]);
        let p = cx.reshape(&part, &pairs)?;
        (cut(cx, &p, &zero, &PrimExpr::i64(1))?, cut(cx, &p, &PrimExpr::i64(1), &PrimExpr::i64(2))?, 4)
    } else {
        (cut(cx, &part, &zero, &half)?, cut(cx, &part, &half, &turned)?, 3)
    };
    let shape = |t: &Tensor| {
        let mut d = t.dims.clone();
        d.truncate(3);
        d.push(half.clone());
        d
    };
    let dims = shape(&part);
    let (a, b) = (cx.reshape(&a, &dims)?, cx.reshape(&b, &dims)?);
    let product = |cx: &mut NodeCx, relax: &str, x: [&Tensor; 4]| {
        let l = cx.op("multiply", &[x[0], x[1]])?;
        let r = cx.op("multiply", &[x[2], x[3]])?;
        cx.op(relax, &[&l, &r])
    };
    let re = product(cx, "subtract", [&cos, &a, &sin, &b])?;
    let im = product(cx, "add", [&sin, &a, &cos, &b])?;
    let mut y = if axis == 4 {
        let (re, im) = (cx.unsqueeze(&re, &[4])?, cx.unsqueeze(&im, &[4])?);
        concat(cx, &re, &im, 4)?
    } else {
        concat(cx, &re, &im, 3)?
    };
    y = cx.reshape(&y, &part.dims.clone())?;
    if !whole {
        let rest = cut(cx, &v, &turned, &size)?;
        y = concat(cx, &y, &rest, 3)?;
    }
    one(if flat { joined(cx, &y)? } else { y })
}

/// Attention whose scores and weights go through graphs of the model's own.
fn flex_attention(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (q, mut k, mut v) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    if q.rank() != 4 || k.rank() != 4 || v.rank() != 4 {
        return Err(cx.error("query, key and value must have four dims"));
    }
    let dtype = q.dtype;
    (k, v) = grouped(cx, &q, k, v)?;
    let precision = match cx.dtype_opt("softmax_precision")? {
        Some(p) => p,
        None if dtype.bits < 32 => DType::F32,
        None => dtype,
    };
    let scale = match (cx.float_opt("scale"), q.dims[3].as_int()) {
        (Some(s), _) => Tensor::scalar(precision, s),
        (None, Some(d)) => Tensor::scalar(precision, 1.0 / (d.max(1) as f64).sqrt()),
        (None, None) => {
            let s = inverse_root(cx, &q.dims[3].clone())?;
            cx.cast(&s, precision)?
        }
    };
    let k = cx.transpose(&k, &[0, 1, 3, 2])?;
    let (wide_q, wide_k) = (cx.cast(&q, precision)?, cx.cast(&k, precision)?);
    let scores = cx.op("matmul", &[&wide_q, &wide_k])?;
    let scores = cx.op("multiply", &[&scores, &scale])?;
    let scores = modified(cx, "score_mod", scores)?;
    let weights = cx.call("nn.softmax", &[(&scores).into()], &[("axis", AttrValue::Int(-1))])?;
    let weights = modified(cx, "prob_mod", weights)?;
    let v = cx.cast(&v, weights.dtype)?;
    let y = cx.op("matmul", &[&weights, &v])?;
    one(cx.cast(&y, dtype)?)
}

/// `x` through the graph attribute `name`, if there is one.
fn modified(cx: &mut NodeCx, name: &str, x: Tensor) -> Res<Tensor> {
    let Some(g) = cx.graph(name).cloned() else { return Ok(x) };
    match cx.im.subgraph(name, &g, vec![x.into()])?.into_iter().next() {
        Some(Value::Tensor(t)) => Ok(t),
        _ => Err(cx.error(format!("the graph `{name}` must give one tensor"))),
    }
}

/// One key head serves several query heads.
fn grouped(cx: &mut NodeCx, q: &Tensor, k: Tensor, v: Tensor) -> Res<(Tensor, Tensor)> {
    match (q.dims[1].as_int(), k.dims[1].as_int()) {
        (Some(n), Some(m)) if n != m && m > 0 && n % m == 0 => {
            let attrs = [("repeats", AttrValue::Int(n / m)), ("axis", AttrValue::Int(1))];
            Ok((cx.call("repeat", &[(&k).into()], &attrs)?, cx.call("repeat", &[(&v).into()], &attrs)?))
        }
        (Some(_), Some(_)) => Ok((k, v)),
        _ if q.dims[1] == k.dims[1] => Ok((k, v)),
        // Numbers of heads that vary.
        _ => {
            let several = q.dims[1].clone().floor_div(k.dims[1].clone().max(1));
            let several = cx.simplify(several);
            let mut each = |t: &Tensor| {
                let [b, h, s, d] = [0, 1, 2, 3].map(|i| t.dims[i].clone());
                let apart = cx.reshape(t, &[b.clone(), h.clone(), PrimExpr::i64(1), s.clone(), d.clone()])?;
                let wide = cx.builder().widened(&apart, &[b.clone(), h, several.clone(), s.clone(), d.clone()])?;
                cx.reshape(&wide, &[b, q.dims[1].clone(), s, d])
            };
            Ok((each(&k)?, each(&v)?))
        }
    }
}
