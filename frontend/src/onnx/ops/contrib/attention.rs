//! Attention as onnxruntime's optimiser fuses it, and rotary embeddings.

use super::{by, columns, concat, entry, ms, one, plus};
use crate::onnx::builder::Arg;
use crate::onnx::node::NodeCx;
use crate::onnx::ops::attention::{heads, joined};
use crate::onnx::ops::movement::slice_axes;
use crate::onnx::ops::select::positions;
use crate::onnx::ops::OnnxOp;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    ms("Attention", &[(1, |cx| packed_attention(cx, false))]),
    ms("QAttention", &[(1, |cx| packed_attention(cx, true))]),
    ms("MultiHeadAttention", &[(1, multi_head)]),
    ms("GroupQueryAttention", &[(1, group_query)]),
    ms("RotaryEmbedding", &[(1, rotary)]),
];

/// What one attention computes: `(b, h, s, d)` each.
struct Attend {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    /// Added to the scores, each of them broadcast.
    added: Vec<Tensor>,
    /// Scores that do not count, where false.
    allowed: Option<Tensor>,
    scale: f64,
    softcap: f64,
    /// Something more in the denominator of each row: its logit, `(1, h, 1, 1)`.
    sink: Option<Tensor>,
}

impl Attend {
    /// The context, and the scores before they are normalised.
    fn run(self, cx: &mut NodeCx) -> Res<(Tensor, Tensor)> {
        let dtype = self.q.dtype;
        let (q, k, v) = (super::wide(cx, &self.q)?, super::wide(cx, &self.k)?, super::wide(cx, &self.v)?);
        let k = cx.transpose(&k, &[0, 1, 3, 2])?;
        let scores = cx.op("matmul", &[&q, &k])?;
        let mut scores = by(cx, "multiply", &scores, self.scale)?;
        if self.softcap > 0.0 {
            scores = by(cx, "divide", &scores, self.softcap)?;
            scores = cx.op("tanh", &[&scores])?;
            scores = by(cx, "multiply", &scores, self.softcap)?;
        }
        if let Some(a) = &self.allowed {
            // Not minus infinity: a row without a place to attend to stays a number.
            let low = cx.like(&scores, f32::MIN as f64);
            scores = cx.op("where", &[a, &scores, &low])?;
        }
        for m in &self.added {
            let m = cx.cast(m, scores.dtype)?;
            scores = cx.op("add", &[&scores, &m])?;
        }
        let axis = [("axis", AttrValue::Int(-1))];
        let weights = match &self.sink {
            None => cx.call("nn.softmax", &[(&scores).into()], &axis)?,
            Some(sink) => {
                // A column more, which is dropped after.
                let mut dims = scores.dims.clone();
                let keys = dims.pop().unwrap_or_else(|| PrimExpr::i64(0));
                dims.push(PrimExpr::i64(1));
                let sink = cx.cast(sink, scores.dtype)?;
                let sink = cx.broadcast_to(&sink, &dims)?;
                let all = concat(cx, &[scores.clone(), sink], 3)?;
                let all = cx.call("nn.softmax", &[(&all).into()], &axis)?;
                columns(cx, &all, &PrimExpr::i64(0), &keys)?
            }
        };
        let y = cx.op("matmul", &[&weights, &v])?;
        Ok((cx.cast(&y, dtype)?, scores))
    }
}

/// A scalar of the dims in play.
fn int(v: &PrimExpr) -> Tensor {
    Tensor::known(&[], DType::I64, vec![v.clone()])
}

/// Each query sees the keys up to its own place: `(s, t)`.
fn causal(cx: &mut NodeCx, queries: &PrimExpr, keys: &PrimExpr, past: &PrimExpr) -> Res<Tensor> {
    let rows = positions(cx, queries, 2, 0)?;
    let rows = cx.op("add", &[&rows, &int(past)])?;
    let columns = positions(cx, keys, 2, 1)?;
    cx.op("greater_equal", &[&rows, &columns])
}

/// A mask of one, two or three dims as something to add to the scores: `filter` where it is 0.
fn padding(cx: &mut NodeCx, mask: &Tensor, batch: &PrimExpr, keys: &PrimExpr, filter: f64) -> Res<Tensor> {
    let four = |cx: &mut NodeCx, t: &Tensor, dims: [PrimExpr; 4]| cx.reshape(t, &dims);
    let (unit, zero) = (PrimExpr::i64(1), Tensor::scalar_int(mask.dtype, 0));
    let allowed = match mask.rank() {
        1 => {
            // Where the keys of each batch element end, and (twice as many numbers) where they begin.
            let columns = positions(cx, keys, 4, 3)?;
            let n = mask.dims[0].clone();
            let part = |cx: &mut NodeCx, from: PrimExpr, to: PrimExpr| {
                let p = slice_axes(cx, mask, &[0], &[from], &[to], &[1])?;
                let p = cx.cast(&p, DType::I64)?;
                four(cx, &p, [batch.clone(), unit.clone(), unit.clone(), unit.clone()])
            };
            let ends = part(cx, PrimExpr::i64(0), batch.clone())?;
            let before = cx.op("less", &[&columns, &ends])?;
            let twice = cx.simplify(batch.clone() * 2);
            match cx.simplify(n.clone()) {
                n if n == *batch || n == unit => before,
                n if n == twice => {
                    let begins = part(cx, batch.clone(), twice)?;
                    let after = cx.op("greater_equal", &[&columns, &begins])?;
                    cx.op("logical_and", &[&before, &after])?
                }
                _ => return Err(cx.unsupported("a mask of cumulated lengths")),
            }
        }
        2 => {
            let m = cx.op("greater", &[mask, &zero])?;
            four(cx, &m, [mask.dims[0].clone(), unit.clone(), unit, mask.dims[1].clone()])?
        }
        3 => {
            let m = cx.op("greater", &[mask, &zero])?;
            let [b, s, t] = [0, 1, 2].map(|i| mask.dims[i].clone());
            four(cx, &m, [b, unit, s, t])?
        }
        n => return Err(cx.unsupported(format!("a mask of {n} dims"))),
    };
    let (zero, low) = (Tensor::scalar(DType::F32, 0.0), Tensor::scalar(DType::F32, filter));
    cx.op("where", &[&allowed, &zero, &low])
}

/// One over the square root of the head size, unless stated.
fn scale(cx: &NodeCx, size: &PrimExpr) -> Res<f64> {
    match (cx.float("scale", 0.0), size.as_int()) {
        (s, _) if s != 0.0 => Ok(s),
        (_, Some(d)) if d > 0 => Ok(1.0 / (d as f64).sqrt()),
        _ => Err(cx.unsupported("a head size that varies, without a scale")),
    }
}

/// Query, key and value projected from one input by one matrix; `quantised`: from integers.
fn packed_attention(cx: &mut NodeCx, quantised: bool) -> Res<Vec<Value>> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    if x.rank() != 3 || w.rank() != 2 {
        return Err(cx.error("the input must have three dims and the weights two"));
    }
    let (bias, mask, past, more);
    let all = if quantised {
        let (sx, sw) = (cx.input(3)?, cx.input(4)?);
        let zeros = [cx.optional(6)?, cx.optional(7)?];
        (bias, mask, past, more) = (cx.optional(2)?, cx.optional(5)?, cx.optional(8)?, None);
        super::quant::product(cx, [&x, &sx], [&w, &sw], zeros)?
    } else {
        if cx.flag("do_rotary", false) {
            return Err(cx.unsupported("rotary embeddings inside of attention"));
        }
        if cx.has(6) {
            return Err(cx.unsupported("a past that shares its buffer with the present"));
        }
        (bias, mask, past, more) = (cx.optional(2)?, cx.optional(3)?, cx.optional(4)?, cx.optional(5)?);
        cx.op("matmul", &[&x, &w])?
    };
    let all = plus(cx, all, bias)?;
    let n = cx.int_opt("num_heads");
    let n = cx.required("num_heads", n)?;
    let width = w.dims[1].clone();
    let third = cx.simplify(width.floor_div(3));
    let sizes = match cx.ints("qkv_hidden_sizes").filter(|s| !s.is_empty()) {
        Some(s) if s.len() == 3 => s.into_iter().map(PrimExpr::i64).collect(),
        Some(s) => return Err(cx.error(format!("{} qkv_hidden_sizes", s.len()))),
        None => vec![third; 3],
    };
    let mut parts = vec![];
    let mut from = PrimExpr::i64(0);
    for s in sizes {
        let to = cx.simplify(from.clone() + s);
        let part = columns(cx, &all, &from, &to)?;
        parts.push(heads(cx, &part, n)?);
        from = to;
    }
    let [q, mut k, mut v] = [parts[0].clone(), parts[1].clone(), parts[2].clone()];
    let mut before = PrimExpr::i64(0);
    if let Some(p) = &past {
        if p.rank() != 5 {
            return Err(cx.error("the past must have five dims"));
        }
        before = p.dims[3].clone();
        let (pk, pv) = (entry(cx, p, 0)?, entry(cx, p, 1)?);
        k = concat(cx, &[pk, k], 2)?;
        v = concat(cx, &[pv, v], 2)?;
    }
    let keys = cx.simplify(k.dims[2].clone());
    let present = match cx.wants(1) {
        true => {
            let (k, v) = (cx.unsqueeze(&k, &[0])?, cx.unsqueeze(&v, &[0])?);
            Some(concat(cx, &[k, v], 0)?)
        }
        false => None,
    };
    let filter = cx.float("mask_filter_value", -10000.0);
    let mut added = vec![];
    if let Some(m) = &mask {
        added.push(padding(cx, m, &x.dims[0].clone(), &keys, filter)?);
    }
    added.extend(more);
    let allowed = match cx.flag("unidirectional", false) {
        true => Some(causal(cx, &x.dims[1].clone(), &keys, &before)?),
        false => None,
    };
    let scale = scale(cx, &q.dims[3])?;
    let (y, _) = Attend { q, k, v, added, allowed, scale, softcap: 0.0, sink: None }.run(cx)?;
    let mut out: Vec<Value> = vec![joined(cx, &y)?.into()];
    out.extend(present.map(Value::from));
    Ok(out)
}

/// Query, key and value given apart, or packed together.
fn multi_head(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let n = cx.int_opt("num_heads");
    let n = cx.required("num_heads", n)?;
    let (query, key, value, bias) = (cx.input(0)?, cx.optional(1)?, cx.optional(2)?, cx.optional(3)?);
    let (mask, more, past_k, past_v) = (cx.optional(4)?, cx.optional(5)?, cx.optional(6)?, cx.optional(7)?);
    if cx.has(8) || cx.has(9) {
        return Err(cx.unsupported("a past that shares its buffer with the present"));
    }
    let (mut q, mut k, mut v) = match (&key, &value) {
        // (b, s, h, 3, d) and (b, t, h, 2, d).
        (None, None) => (unpacked(cx, &query, 3, 0)?, unpacked(cx, &query, 3, 1)?, unpacked(cx, &query, 3, 2)?),
        (Some(kv), None) => (heads(cx, &query, n)?, unpacked(cx, kv, 2, 0)?, unpacked(cx, kv, 2, 1)?),
        (Some(k), Some(v)) => {
            let apart = |cx: &mut NodeCx, t: &Tensor| match t.rank() {
                4 => Ok(t.clone()),
                _ => heads(cx, t, n),
            };
            (heads(cx, &query, n)?, apart(cx, k)?, apart(cx, v)?)
        }
        (None, Some(_)) => return Err(cx.error("a value without a key")),
    };
    if let Some(b) = &bias {
        // Of queries, keys and values one after the other; not of keys that come from elsewhere.
        let width = |cx: &mut NodeCx, t: &Tensor| cx.simplify(t.dims[1].clone() * t.dims[3].clone());
        let mut from = PrimExpr::i64(0);
        let crossed = key.as_ref().is_some_and(|k| k.rank() == 4);
        for (i, t) in [&mut q, &mut k, &mut v].into_iter().enumerate() {
            let w = width(cx, t);
            let to = cx.simplify(from.clone() + w);
            if i == 0 || !crossed {
                let part = columns(cx, b, &from, &to)?;
                let part = cx.reshape(&part, &[PrimExpr::i64(n), PrimExpr::i64(1), t.dims[3].clone()])?;
                *t = cx.op("add", &[t, &part])?;
            }
            from = to;
        }
    }
    let mut before = PrimExpr::i64(0);
    if let (Some(pk), Some(pv)) = (past_k, past_v) {
        before = pk.dims[2].clone();
        k = concat(cx, &[pk, k], 2)?;
        v = concat(cx, &[pv, v], 2)?;
    }
    let keys = cx.simplify(k.dims[2].clone());
    let filter = cx.float("mask_filter_value", -10000.0);
    let mut added = vec![];
    if let Some(m) = &mask {
        added.push(padding(cx, m, &q.dims[0].clone(), &keys, filter)?);
    }
    added.extend(more);
    let allowed = match cx.flag("unidirectional", false) {
        true => Some(causal(cx, &q.dims[2].clone(), &keys, &before)?),
        false => None,
    };
    let scale = scale(cx, &q.dims[3])?;
    let (present_k, present_v) = (k.clone(), v.clone());
    let (y, scores) = Attend { q, k, v, added, allowed, scale, softcap: 0.0, sink: None }.run(cx)?;
    Ok(vec![joined(cx, &y)?.into(), present_k.into(), present_v.into(), scores.into()])
}

/// Part `i` of `(b, s, h, parts, d)` as `(b, h, s, d)`.
fn unpacked(cx: &mut NodeCx, x: &Tensor, parts: i64, i: i64) -> Res<Tensor> {
    if x.rank() != 5 || !x.dims[3].is_int(parts) {
        return Err(cx.error(format!("packed tensors must have five dims, the fourth of them {parts}")));
    }
    let y = slice_axes(cx, x, &[3], &[PrimExpr::i64(i)], &[PrimExpr::i64(i + 1)], &[1])?;
    let y = cx.reshape(&y, &[x.dims[0].clone(), x.dims[1].clone(), x.dims[2].clone(), x.dims[4].clone()])?;
    cx.transpose(&y, &[0, 2, 1, 3])
}

/// How the pairs of a head are turned.
struct Turn {
    cos: Tensor,
    sin: Tensor,
    /// Of the table's rows: `(b, s)` or `(1, s)`.
    at: Tensor,
    interleaved: bool,
}

impl Turn {
    /// Turns `(b, h, s, d)`; what lies beyond twice the table's columns stays.
    fn run(&self, cx: &mut NodeCx, x: &Tensor) -> Res<Tensor> {
        let (half, size) = (self.cos.dims[1].clone(), x.dims[3].clone());
        let turned = cx.simplify(half.clone() * 2);
        let rows = |cx: &mut NodeCx, t: &Tensor| {
            let r = cx.call("take", &[t.into(), (&self.at).into()], &[("axis", AttrValue::Int(0))])?;
            cx.unsqueeze(&r, &[1])
        };
        let (cos, sin) = (rows(cx, &self.cos)?, rows(cx, &self.sin)?);
        let zero = PrimExpr::i64(0);
        let part = if turned == size { x.clone() } else { columns(cx, x, &zero, &turned)? };
        let mut single = part.dims[..3].to_vec();
        single.push(half.clone());
        let (a, b) = match self.interleaved {
            true => {
                let mut pairs = single.clone();
                pairs.push(PrimExpr::i64(2));
                let p = cx.reshape(&part, &pairs)?;
                let (a, b) = (columns(cx, &p, &zero, &1.into())?, columns(cx, &p, &1.into(), &2.into())?);
                (cx.reshape(&a, &single)?, cx.reshape(&b, &single)?)
            }
            false => (columns(cx, &part, &zero, &half)?, columns(cx, &part, &half, &turned)?),
        };
        let mix = |cx: &mut NodeCx, relax: &str, x: [&Tensor; 4]| {
            let l = cx.op("multiply", &[x[0], x[1]])?;
            let r = cx.op("multiply", &[x[2], x[3]])?;
            cx.op(relax, &[&l, &r])
        };
        let re = mix(cx, "subtract", [&a, &cos, &b, &sin])?;
        let im = mix(cx, "add", [&b, &cos, &a, &sin])?;
        let y = match self.interleaved {
            true => {
                let (re, im) = (cx.unsqueeze(&re, &[4])?, cx.unsqueeze(&im, &[4])?);
                let y = concat(cx, &[re, im], 4)?;
                cx.reshape(&y, &part.dims.clone())?
            }
            false => concat(cx, &[re, im], 3)?,
        };
        if turned == size {
            return Ok(y);
        }
        let rest = columns(cx, x, &turned, &size)?;
        concat(cx, &[y, rest], 3)
    }
}

fn rotary(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, at, cos, sin) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3)?);
    if cos.rank() != 2 || !matches!(x.rank(), 3 | 4) {
        return Err(cx.error("the input must have three or four dims and the tables two"));
    }
    let flat = x.rank() == 3;
    let v = match flat {
        true => {
            // Without a count of heads their size is twice the table's columns.
            let n = match (cx.int("num_heads", 0), x.dims[2].as_int(), cos.dims[1].as_int()) {
                (0, Some(w), Some(h)) if h > 0 => w / h / 2,
                (n, _, _) => n,
            };
            heads(cx, &x, n)?
        }
        false => x.clone(),
    };
    let mut at = cx.cast(&at, DType::I64)?;
    if at.rank() <= 1 {
        // Where the first one is.
        let first = cx.reshape(&at, &[])?;
        let p = positions(cx, &v.dims[2].clone(), 2, 1)?;
        at = cx.op("add", &[&p, &first])?;
    }
    let turn = Turn { cos, sin, at, interleaved: cx.flag("interleaved", false) };
    let y = turn.run(cx, &v)?;
    let y = by_scale(cx, y)?;
    one(if flat { joined(cx, &y)? } else { y })
}

fn by_scale(cx: &mut NodeCx, y: Tensor) -> Res<Tensor> {
    match cx.float("scale", 1.0) {
        1.0 => Ok(y),
        s => by(cx, "multiply", &y, s),
    }
}

/// Attention of decoders: fewer heads of keys than of queries, a cache, and lengths of their own for each batch
/// element.
fn group_query(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let n = cx.int_opt("num_heads");
    let n = cx.required("num_heads", n)?;
    let m = cx.int_opt("kv_num_heads");
    let m = cx.required("kv_num_heads", m)?;
    if n < 1 || m < 1 || n % m != 0 {
        return Err(cx.error(format!("{n} heads of queries, {m} of keys")));
    }
    let (query, key, value) = (cx.input(0)?, cx.optional(1)?, cx.optional(2)?);
    let (past_k, past_v, lens, total) = (cx.optional(3)?, cx.optional(4)?, cx.input(5)?, cx.input(6)?);
    let (cos, sin, at, bias, sinks) =
        (cx.optional(7)?, cx.optional(8)?, cx.optional(9)?, cx.optional(10)?, cx.optional(11)?);
    if query.rank() != 3 {
        return Err(cx.error("the query must have three dims"));
    }
    if (12..16).any(|i| cx.has(i)) || cx.flag("sliding_window_cache", false) || !cx.flag("causal", true) {
        return Err(cx.unsupported("a quantised or sliding cache, norms of queries and keys, or no causal mask"));
    }
    let (mut q, mut k, v) = match (&key, &value) {
        (Some(k), Some(v)) => (heads(cx, &query, n)?, heads(cx, k, m)?, heads(cx, v, m)?),
        _ => {
            let all = heads(cx, &query, n + 2 * m)?;
            let part = |cx: &mut NodeCx, from: i64, to: i64| {
                slice_axes(cx, &all, &[1], &[PrimExpr::i64(from)], &[PrimExpr::i64(to)], &[1])
            };
            (part(cx, 0, n)?, part(cx, n, n + m)?, part(cx, n + m, n + 2 * m)?)
        }
    };
    let (batch, fresh, size) = (q.dims[0].clone(), q.dims[2].clone(), q.dims[3].clone());
    let room = past_k.as_ref().map_or(PrimExpr::i64(0), |p| p.dims[2].clone());
    let total = cx.reshape(&total, &[PrimExpr::i64(1)])?;
    let total = cx.read(&total)?.first().cloned().ok_or_else(|| cx.error("no total_sequence_length"))?;
    let keys = cx.simplify(total.clone().max(room.clone()));
    // Keys of each batch element, and how many of them are older than this call: none in the first one, whatever is
    // padded.
    let lens = cx.cast(&lens, DType::I64)?;
    let lens = cx.reshape(&lens, &[batch.clone()])?;
    let one_more = Tensor::scalar_int(DType::I64, 1);
    let lens = cx.op("add", &[&lens, &one_more])?;
    let older = cx.op("subtract", &[&lens, &int(&fresh)])?;
    let zero = Tensor::scalar_int(DType::I64, 0);
    let first = cx.op("equal", &[&int(&total), &int(&fresh)])?;
    let older = cx.op("where", &[&first, &zero, &older])?;
    let older = cx.op("maximum", &[&older, &zero])?;
    if cx.flag("do_rotary", false) {
        let (Some(cos), Some(sin)) = (cos, sin) else {
            return Err(cx.error("rotary embeddings need cos_cache and sin_cache"));
        };
        let at = match at {
            Some(at) => cx.cast(&at, DType::I64)?,
            None => {
                let steps = positions(cx, &fresh, 2, 1)?;
                let older = cx.reshape(&older, &[batch.clone(), PrimExpr::i64(1)])?;
                cx.op("add", &[&steps, &older])?
            }
        };
        let turn = Turn { cos, sin, at, interleaved: cx.flag("rotary_interleaved", false) };
        q = turn.run(cx, &q)?;
        k = turn.run(cx, &k)?;
    }
    // The cache after the call: what is older, then what is new; zeros after.
    let older4 = cx.reshape(&older, &[batch.clone(), 1.into(), 1.into(), 1.into()])?;
    let columns4 = positions(cx, &keys, 4, 2)?;
    let new_at = cx.op("subtract", &[&columns4, &older4])?;
    let is_old = cx.op("less", &[&columns4, &older4])?;
    let is_new = cx.op("less", &[&new_at, &int(&fresh)])?;
    let cache = |cx: &mut NodeCx, past: &Option<Tensor>, new: &Tensor| -> Res<Tensor> {
        let dims = [batch.clone(), PrimExpr::i64(m), keys.clone(), size.clone()];
        let gather = |cx: &mut NodeCx, from: &Tensor, at: &Tensor, rows: &PrimExpr| {
            let last = cx.op("subtract", &[&int(rows), &Tensor::scalar_int(DType::I64, 1)])?;
            let at = cx.op("minimum", &[at, &last])?;
            let at = cx.op("maximum", &[&at, &Tensor::scalar_int(DType::I64, 0)])?;
            let at = cx.broadcast_to(&at, &dims)?;
            cx.call("gather_elements", &[Arg::from(from), (&at).into()], &[("axis", AttrValue::Int(2))])
        };
        let nothing = Tensor::scalar(new.dtype, 0.0);
        let y = gather(cx, new, &new_at, &fresh)?;
        let y = cx.op("where", &[&is_new, &y, &nothing])?;
        match past {
            Some(p) if !room.is_int(0) => {
                // A cache may have no rows: one of zeros keeps the place valid.
                let zeros = cx.broadcast_to(&nothing, &[batch.clone(), m.into(), 1.into(), size.clone()])?;
                let p = concat(cx, &[p.clone(), zeros], 2)?;
                let old = gather(cx, &p, &columns4, &p.dims[2].clone())?;
                cx.op("where", &[&is_old, &old, &y])
            }
            _ => Ok(y),
        }
    };
    let present_k = cache(cx, &past_k, &k)?;
    let present_v = cache(cx, &past_v, &v)?;
    // A query sees the keys up to its own place, and no further back than the window.
    let rows = positions(cx, &fresh, 4, 2)?;
    let rows = cx.op("add", &[&rows, &older4])?;
    let columns4 = positions(cx, &keys, 4, 3)?;
    let mut allowed = cx.op("greater_equal", &[&rows, &columns4])?;
    let lens = cx.reshape(&lens, &[batch.clone(), 1.into(), 1.into(), 1.into()])?;
    let there = cx.op("less", &[&columns4, &lens])?;
    allowed = cx.op("logical_and", &[&allowed, &there])?;
    let window = cx.int("local_window_size", -1);
    if window > 0 {
        let distance = cx.op("subtract", &[&rows, &columns4])?;
        let near = cx.op("less", &[&distance, &Tensor::scalar_int(DType::I64, window)])?;
        allowed = cx.op("logical_and", &[&allowed, &near])?;
    }
    let (mut k, mut v) = (present_k.clone(), present_v.clone());
    if n != m {
        let attrs = [("repeats", AttrValue::Int(n / m)), ("axis", AttrValue::Int(1))];
        k = cx.call("repeat", &[(&k).into()], &attrs)?;
        v = cx.call("repeat", &[(&v).into()], &attrs)?;
    }
    let sink = match sinks {
        Some(s) => Some(cx.reshape(&s, &[1.into(), n.into(), 1.into(), 1.into()])?),
        None if cx.flag("smooth_softmax", false) => Some(Tensor::scalar(DType::F32, 0.0)),
        None => None,
    };
    let scale = scale(cx, &size)?;
    let softcap = cx.float("softcap", 0.0);
    let added = bias.into_iter().collect();
    let (y, scores) = Attend { q, k, v, added, allowed: Some(allowed), scale, softcap, sink }.run(cx)?;
    Ok(vec![joined(cx, &y)?.into(), present_k.into(), present_v.into(), scores.into()])
}
