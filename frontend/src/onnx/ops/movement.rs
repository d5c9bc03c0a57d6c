//! Data movement: transposes, concatenation, slices, gathers, repetition.

use super::{one, op, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::known;
use crate::onnx::node::{counted, ints, Axes, NodeCx};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("Transpose", &[(1, transpose)]),
    op("Concat", &[(1, concat)]),
    op("Split", &[(1, split)]),
    op("Slice", &[(1, slice_v1), (10, slice)]),
    op("Gather", &[(1, gather)]),
    op("GatherND", &[(11, gather_nd)]),
    op("Tile", &[(6, tile)]),
    op("Range", &[(11, range)]),
    op("Pad", &[(1, pad)]),
];

fn transpose(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let perm = match cx.ints("perm") {
        Some(p) => cx.axes(&p, x.rank())?,
        None => (0..x.rank()).rev().collect(),
    };
    if perm.len() != x.rank() {
        return Err(cx.error(format!(
            "perm has {}, the tensor {}",
            counted(perm.len(), "entry"),
            counted(x.rank(), "dim")
        )));
    }
    one(cx.transpose(&x, &perm)?)
}

fn concat(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let parts = cx.tensors(0)?;
    let first = cx.input(0)?;
    let axis = cx.int_opt("axis");
    let axis = match axis {
        None if cx.version < 4 => 1,
        a => cx.required("axis", a)?,
    };
    let axis = cx.axis(axis, first.rank())?;
    if parts.len() == 1 {
        return one(first);
    }
    if let Some(t) = known::concat(&parts, axis) {
        return one(t);
    }
    one(cx.call("concat", &[parts.as_slice().into()], &[("axis", AttrValue::Int(axis as i64))])?)
}

fn split(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", 0), x.rank())?;
    let sizes: Vec<PrimExpr> = match (cx.ints("split"), cx.optional(1)?) {
        (Some(s), _) => s.into_iter().map(PrimExpr::i64).collect(),
        (None, Some(t)) => cx.read(&t)?,
        (None, None) => {
            let n = cx.int("num_outputs", cx.outputs() as i64);
            if n < 1 {
                return Err(cx.error(format!("num_outputs is {n}")));
            }
            let d = x.dims[axis].clone();
            let part = cx.simplify((d.clone() + (n - 1)).floor_div(n));
            let last = cx.simplify(d - part.clone() * (n - 1));
            let mut v = vec![part; n as usize - 1];
            v.push(last);
            v
        }
    };
    let mut out = vec![];
    let mut at = PrimExpr::i64(0);
    for s in sizes {
        let end = cx.simplify(at.clone() + s);
        out.push(slice_axes(cx, &x, &[axis], &[at], &[end.clone()], &[1])?.into());
        at = end;
    }
    Ok(out)
}

/// `x[begin:end:step]` on some axes, as Python has it.
pub fn slice_axes(
    cx: &mut NodeCx,
    x: &Tensor,
    axes: &[usize],
    begin: &[PrimExpr],
    end: &[PrimExpr],
    step: &[i64],
) -> Res<Tensor> {
    if let Some(t) = slice_known(x, axes, begin, end, step) {
        return Ok(t);
    }
    let axes: Vec<PrimExpr> = axes.iter().map(|a| PrimExpr::i64(*a as i64)).collect();
    let step: Vec<PrimExpr> = step.iter().map(|s| PrimExpr::i64(*s)).collect();
    // The rule clips one-sidedly; values far outside would overflow.
    let tame = |v: &PrimExpr| match v.as_int() {
        Some(i) => PrimExpr::i64(i.clamp(-(1 << 48), 1 << 48)),
        None => v.clone(),
    };
    let begin: Vec<PrimExpr> = begin.iter().map(tame).collect();
    let end: Vec<PrimExpr> = end.iter().map(tame).collect();
    cx.call(
        "strided_slice",
        &[x.into(), Arg::prims(&axes), Arg::prims(&begin), Arg::prims(&end), Arg::prims(&step)],
        &[],
    )
}

fn slice_known(x: &Tensor, axes: &[usize], begin: &[PrimExpr], end: &[PrimExpr], step: &[i64]) -> Option<Tensor> {
    x.elements()?;
    let from = x.literal_dims()?;
    let mut dims = from.clone();
    let mut start = vec![0i64; from.len()];
    let mut steps = vec![1i64; from.len()];
    for (i, a) in axes.iter().enumerate() {
        let n = from[*a] as i64;
        // A step beyond any dim is as good as a far larger one.
        let (b, e, s) = (begin[i].as_int()?, end[i].as_int()?, step[i].clamp(-(1 << 40), 1 << 40));
        let wrap = |v: i64| if v < 0 { v.saturating_add(n) } else { v };
        let (low, high) = if s > 0 { (0, n) } else { (-1, n - 1) };
        let (b, e) = (wrap(b).clamp(low, high), wrap(e).clamp(low, high));
        let len = if s > 0 { (e - b + s - 1).div_euclid(s) } else { (b - e - s - 1).div_euclid(-s) };
        dims[*a] = len.max(0) as usize;
        start[*a] = b;
        steps[*a] = s;
    }
    known::gather(x, &dims, |index| {
        let at: Vec<usize> = (0..from.len()).map(|i| (start[i] + index[i] as i64 * steps[i]) as usize).collect();
        Some(known::flat(&at, &from))
    })
}

fn slice_v1(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let (starts, ends) = (cx.ints("starts"), cx.ints("ends"));
    let (starts, ends) = (cx.required("starts", starts)?, cx.required("ends", ends)?);
    let axes = cx.ints("axes").unwrap_or_else(|| (0..starts.len() as i64).collect());
    let to = |v: Vec<i64>| v.into_iter().map(PrimExpr::i64).collect::<Vec<_>>();
    let steps = vec![1; starts.len()];
    sliced(cx, x, to(starts), to(ends), axes, steps)
}

fn slice(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let (starts, ends) = (cx.input(1)?, cx.input(2)?);
    let steps = cx.optional(4)?;
    let count = starts.literal_len();
    let Some(n) = count.filter(|n| ends.literal_len() == Some(*n)) else {
        return Err(cx.error("starts and ends must be vectors of one length"));
    };
    let axes = match cx.optional(3)? {
        Some(t) => t,
        None => Tensor::ints(&(0..n as i64).collect::<Vec<_>>()),
    };
    let steps = steps.unwrap_or_else(|| Tensor::ints(&vec![1; n]));
    if axes.literal_len() != Some(n) || steps.literal_len() != Some(n) {
        return Err(cx.error("starts, ends, axes and steps must have the same length"));
    }
    match (starts.elements(), ends.elements(), axes.as_ints(), steps.as_ints()) {
        (Some(b), Some(e), Some(axes), Some(steps)) => {
            let wide = |v: Vec<PrimExpr>| v.into_iter().map(|e| e.cast(DType::I64)).collect();
            sliced(cx, x, wide(b), wide(e), axes, steps)
        }
        _ => slice_computed(cx, &x, &starts, &ends, &axes, &steps),
    }
}

/// Bounds that are only known at run time: a slice of every axis, the bounds laid out over the axes by a mask.
fn slice_computed(
    cx: &mut NodeCx,
    x: &Tensor,
    starts: &Tensor,
    ends: &Tensor,
    axes: &Tensor,
    steps: &Tensor,
) -> Res<Vec<Value>> {
    let rank = x.rank() as i64;
    let wide = |cx: &mut NodeCx, t: &Tensor| -> Res<Tensor> {
        let t = cx.cast(t, DType::I64)?;
        let n = t.dims.first().cloned().unwrap_or_else(|| PrimExpr::i64(1));
        cx.reshape(&t, &[n, PrimExpr::i64(1)])
    };
    let axes = wide(cx, axes)?;
    let axes = cx.wrap(&axes, &Tensor::scalar_int(DType::I64, rank))?;
    let every = Tensor::ints(&(0..rank).collect::<Vec<_>>());
    let mask = cx.op("equal", &[&axes, &every])?;
    let mask = cx.cast(&mask, DType::I64)?;
    let sum = |cx: &mut NodeCx, t: &Tensor| {
        cx.call("sum", &[t.into()], &[("axis", ints([0])), ("keepdims", AttrValue::Bool(false))])
    };
    let chosen = sum(cx, &mask)?;
    let one_ = Tensor::scalar_int(DType::I64, 1);
    let others = cx.op("subtract", &[&one_, &chosen])?;
    let mut bounds = vec![];
    for (t, default) in
        [(starts, Tensor::scalar_int(DType::I64, 0)), (ends, Tensor::shape(x.dims.clone())), (steps, one_.clone())]
    {
        let t = wide(cx, t)?;
        let t = cx.op("multiply", &[&mask, &t])?;
        let t = sum(cx, &t)?;
        let rest = cx.op("multiply", &[&others, &default])?;
        bounds.push(cx.op("add", &[&t, &rest])?);
    }
    one(cx.op("dynamic_strided_slice", &[x, &bounds[0], &bounds[1], &bounds[2]])?)
}

fn sliced(
    cx: &mut NodeCx,
    x: Tensor,
    starts: Vec<PrimExpr>,
    ends: Vec<PrimExpr>,
    axes: Vec<i64>,
    steps: Vec<i64>,
) -> Res<Vec<Value>> {
    if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
        return Err(cx.error("starts, ends, axes and steps must have the same length"));
    }
    if steps.contains(&0) {
        return Err(cx.error("a step is 0"));
    }
    let axes = cx.axes(&axes, x.rank())?;
    // The whole axis: nothing to do, and nothing for the prover to doubt.
    let mut keep = vec![];
    for i in 0..starts.len() {
        let whole = steps[i] == 1
            && starts[i].is_int(0)
            && (ends[i] == x.dims[axes[i]] || ends[i].as_int().is_some_and(|e| e >= i32::MAX as i64));
        if !whole {
            keep.push(i);
        }
    }
    if keep.is_empty() {
        return one(x);
    }
    let pick = |v: &[PrimExpr]| keep.iter().map(|i| v[*i].clone()).collect::<Vec<_>>();
    let kept_axes: Vec<usize> = keep.iter().map(|i| axes[*i]).collect();
    let kept_steps: Vec<i64> = keep.iter().map(|i| steps[*i]).collect();
    one(slice_axes(cx, &x, &kept_axes, &pick(&starts), &pick(&ends), &kept_steps)?)
}

fn gather(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.axis(cx.int("axis", 0), x.rank())?;
    within(cx, &indices, &x, &[axis])?;
    if let Some(t) = gather_known(&x, &indices, axis) {
        return one(t);
    }
    let indices = wrap_indices(cx, &indices, &x.dims[axis])?;
    one(cx.call("take", &[(&x).into(), (&indices).into()], &[("axis", AttrValue::Int(axis as i64))])?)
}

/// Known indices lie inside of these axes of `x`, one after the other along the last dim; those of the call are clamped.
pub fn within(cx: &NodeCx, indices: &Tensor, x: &Tensor, axes: &[usize]) -> Res<()> {
    let constant = indices.as_constant();
    let count = match (indices.elements(), &constant) {
        (Some(e), _) => e.len(),
        (None, Some(c)) => c.elements(),
        (None, None) => return Ok(()),
    };
    if axes.is_empty() || indices.dtype.is_float() || axes.iter().all(|a| x.dims[*a].as_int().is_none()) {
        return Ok(());
    }
    let known = indices.elements();
    for i in 0..count {
        let axis = axes[i % axes.len()];
        let v = match (&known, &constant) {
            (Some(e), _) => e[i].as_int(),
            (None, Some(c)) => Some(c.get_i64(i)),
            (None, None) => None,
        };
        if let (Some(v), Some(n)) = (v, x.dims[axis].as_int()) {
            if v >= n || v < -n {
                let what = format!("index {v} is outside of dim {axis}, which is {n}");
                return Err(cx.error(match n {
                    0 => what,
                    n => format!("{what}: it must be from {} to {}", -n, n - 1),
                }));
            }
        }
    }
    Ok(())
}

/// The axes that indices with one entry for each axis along their last dim are for, after `first` dims.
pub fn leading(indices: &Tensor, first: usize, rank: usize) -> Vec<usize> {
    let count = indices.dims.last().and_then(PrimExpr::as_int).unwrap_or(0);
    let end = usize::try_from(count).map_or(first, |k| first.saturating_add(k));
    if end <= rank {
        (first..end).collect()
    } else {
        vec![]
    }
}

/// Indices that count from the end when negative, made non-negative: for a dim of `n`.
pub fn wrap_indices(cx: &mut NodeCx, indices: &Tensor, n: &PrimExpr) -> Res<Tensor> {
    if !indices.dtype.is_signed() {
        return Ok(indices.clone());
    }
    if let Some(values) = indices.as_ints() {
        if values.iter().all(|v| *v >= 0) {
            return Ok(indices.clone());
        }
    }
    let size = Tensor::known(&[], DType::I64, vec![n.clone()]);
    let size = cx.cast(&size, indices.dtype)?;
    wrap_by(cx, indices, &size)
}

/// Adds `size`, broadcast, to negative indices; those outside become the nearest inside: ONNX calls them an error, and
/// memory beside the tensor is never touched.
fn wrap_by(cx: &mut NodeCx, indices: &Tensor, size: &Tensor) -> Res<Tensor> {
    if indices.as_ints().is_some_and(|v| v.iter().all(|v| *v >= 0)) {
        return Ok(indices.clone());
    }
    if let Some(t) = known::zip(&[indices, size], indices.dtype, |v| match v[0].as_int() {
        Some(i) if i < 0 => Some(v[0].clone() + v[1].clone()),
        Some(_) => Some(v[0].clone()),
        None => None,
    }) {
        return Ok(t);
    }
    let zero = Tensor::scalar_int(indices.dtype, 0);
    let negative = cx.op("less", &[indices, &zero])?;
    let wrapped = cx.op("add", &[indices, size])?;
    let wrapped = cx.op("where", &[&negative, &wrapped, indices])?;
    let last = cx.op("subtract", &[size, &Tensor::scalar_int(indices.dtype, 1)])?;
    let wrapped = cx.op("minimum", &[&wrapped, &last])?;
    cx.op("maximum", &[&wrapped, &zero])
}

fn gather_known(x: &Tensor, indices: &Tensor, axis: usize) -> Option<Tensor> {
    x.elements()?;
    let from = x.literal_dims()?;
    let at = indices.as_ints()?;
    let index_dims = indices.literal_dims()?;
    let n = from[axis] as i64;
    let mut dims = from[..axis].to_vec();
    dims.extend(&index_dims);
    dims.extend(&from[axis + 1..]);
    let k = index_dims.len();
    known::gather(x, &dims, |index| {
        let i = at.get(known::flat(&index[axis..axis + k], &index_dims))?;
        let i = if *i < 0 { i + n } else { *i };
        let mut source = index[..axis].to_vec();
        source.push(usize::try_from(i).ok().filter(|i| *i < from[axis])?);
        source.extend(&index[axis + k..]);
        Some(known::flat(&source, &from))
    })
}

fn gather_nd(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let batch = cx.int("batch_dims", 0);
    let last = indices.dims.last().and_then(PrimExpr::as_int);
    let Some(k) = last.and_then(|k| usize::try_from(k).ok()) else {
        return Err(cx.unsupported("indices whose last dim varies"));
    };
    let first = usize::try_from(batch).ok().filter(|b| b + k <= x.rank());
    let Some(first) = first else {
        return Err(cx.error(format!("{k} indices after {batch} batch dims for {} dims", x.rank())));
    };
    within(cx, &indices, &x, &leading(&indices, first, x.rank()))?;
    // Negative indices count from the end: one size per entry of the last dim.
    let sizes = Tensor::shape(x.dims[first..first + k].to_vec());
    let sizes = cx.cast(&sizes, indices.dtype)?;
    let indices = wrap_by(cx, &indices, &sizes)?;
    one(cx.call("gather_nd", &[(&x).into(), (&indices).into()], &[("batch_dims", AttrValue::Int(batch))])?)
}

fn tile(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, repeats) = (cx.input(0)?, cx.input(1)?);
    let repeats = cx.read(&repeats)?;
    if repeats.len() != x.rank() {
        return Err(cx.error(format!("{} for {}", counted(repeats.len(), "repeat"), counted(x.rank(), "dim"))));
    }
    // [a, b] -> [1, a, 1, b] -> [r, a, s, b] -> [r * a, s * b]: any repeats, known or not.
    let (mut split, mut wide, mut dims) = (vec![], vec![], vec![]);
    for (d, r) in x.dims.iter().zip(&repeats) {
        if !r.is_int(1) {
            split.push(PrimExpr::i64(1));
            wide.push(r.clone());
        }
        split.push(d.clone());
        wide.push(d.clone());
        dims.push(cx.simplify(d.clone() * r.clone()));
    }
    if let (Some(from), Some(to)) = (x.literal_dims(), x.elements().and_then(|_| literal(&dims))) {
        let t = known::gather(&x, &to, |i| {
            let at: Vec<usize> = i.iter().zip(&from).map(|(i, n)| i % n).collect();
            Some(known::flat(&at, &from))
        });
        if let Some(t) = t {
            return one(t);
        }
    }
    let y = cx.reshape(&x, &split)?;
    let y = cx.broadcast_to(&y, &wide)?;
    one(cx.reshape(&y, &dims)?)
}

fn literal(dims: &[PrimExpr]) -> Option<Vec<usize>> {
    dims.iter().map(|d| d.as_int().and_then(|v| v.try_into().ok())).collect()
}

fn range(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let all = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let dtype = all[0].dtype;
    if let (Some(s), Some(l), Some(d)) = (all[0].as_floats(), all[1].as_floats(), all[2].as_floats()) {
        let (Some(s), Some(l), Some(d)) = (s.first(), l.first(), d.first()) else {
            return Err(cx.error("start, limit and delta must be scalars"));
        };
        if *d == 0.0 {
            return Err(cx.error("delta is 0"));
        }
        let n = ((l - s) / d).ceil().max(0.0);
        if n <= crate::onnx::value::MAX_KNOWN as f64 {
            let n = n as usize;
            let element = |i: usize| match dtype.is_float() {
                true => PrimExpr::float(dtype, s + i as f64 * d),
                false => PrimExpr::int(dtype, *s as i64 + i as i64 * *d as i64),
            };
            return one(Tensor::known(&[n], dtype, (0..n).map(element).collect()));
        }
    }
    if let (Some(b), Some(e), Some(s)) = (all[0].elements(), all[1].elements(), all[2].as_ints()) {
        if let ([b], [e], [s], false) = (b.as_slice(), e.as_slice(), s.as_slice(), dtype.is_float()) {
            let bounds = [b.clone().cast(DType::I64), e.clone().cast(DType::I64), PrimExpr::i64(*s)];
            let args = bounds.map(Arg::prim);
            return one(cx.call("arange", &args, &[("dtype", AttrValue::DType(dtype))])?);
        }
    }
    // The number of elements is computed as the standard says, then the elements from their positions.
    let wide = match dtype {
        d if !d.is_float() => DType::I64,
        d if d.bits < 32 => DType::F32,
        d => d,
    };
    let mut v = vec![];
    for t in &all {
        let t = cx.reshape(t, &[])?;
        v.push(cx.cast(&t, wide)?);
    }
    let n = cx.op("subtract", &[&v[0], &v[1]])?;
    let n = match dtype.is_float() {
        true => {
            let n = cx.op("divide", &[&n, &v[2]])?;
            cx.op("floor", &[&n])?
        }
        false => cx.op("floor_divide", &[&n, &v[2]])?,
    };
    let n = cx.op("negative", &[&n])?;
    let n = cx.cast(&n, DType::I64)?;
    let zero = Tensor::scalar_int(DType::I64, 0);
    let n = cx.op("maximum", &[&n, &zero])?;
    let n = cx.read(&n)?.into_iter().next().unwrap_or_else(|| PrimExpr::i64(0));
    let at = iota(cx, &n)?;
    let at = cx.cast(&at, wide)?;
    let y = cx.op("multiply", &[&at, &v[2]])?;
    let y = cx.op("add", &[&y, &v[0]])?;
    one(cx.cast(&y, dtype)?)
}

fn pad(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let n = x.rank();
    let pads = match (cx.ints("pads").or_else(|| cx.ints("paddings")), cx.optional(1)?) {
        (Some(p), _) => p.into_iter().map(PrimExpr::i64).collect(),
        (None, Some(t)) => cx.read(&t)?,
        (None, None) => return Err(cx.error("pads are missing")),
    };
    let axes = match cx.axes_attr_or_input(3, n, 0)? {
        Some(a) => a,
        None => Axes::Known((0..n).collect()),
    };
    let k = axes.len();
    if pads.len() != 2 * k {
        return Err(cx.error(format!("{} for {}", counted(pads.len(), "pad"), counted(k, "axis"))));
    }
    let (mut before, mut after) = (vec![], vec![]);
    for i in 0..n {
        let (mut b, mut a) = (PrimExpr::i64(0), PrimExpr::i64(0));
        for j in 0..k {
            let here = match &axes {
                Axes::Known(v) => PrimExpr::bool(v[j] == i),
                Axes::Computed(v) => v[j].clone().eq(PrimExpr::i64(i as i64)),
            };
            b = here.clone().select(pads[j].clone(), b);
            a = here.select(pads[j + k].clone(), a);
        }
        before.push(b);
        after.push(a);
    }
    let mode = cx.str("mode", "constant");
    let value = match cx.optional(2)? {
        Some(t) => t,
        None => Tensor::scalar(x.dtype, cx.float("value", 0.0)),
    };
    one(pad_by(cx, x, &before, &after, &mode, &value)?)
}

/// Pads each dim by so many elements before and after; negative numbers cut.
pub fn pad_by(
    cx: &mut NodeCx,
    x: Tensor,
    before: &[PrimExpr],
    after: &[PrimExpr],
    mode: &str,
    value: &Tensor,
) -> Res<Tensor> {
    let n = x.rank();
    let ints_of = |v: &[PrimExpr]| v.iter().map(PrimExpr::as_int).collect::<Option<Vec<i64>>>();
    let scalar = value.as_floats().and_then(|v| v.first().copied());
    let (Some(b), Some(a), Some(scalar)) = (ints_of(before), ints_of(after), scalar) else {
        return pad_computed(cx, x, before, after, mode, value);
    };
    let mut y = x;
    if b.iter().chain(&a).any(|p| *p < 0) {
        let cut: Vec<usize> = (0..n).filter(|i| b[*i] < 0 || a[*i] < 0).collect();
        let begin: Vec<PrimExpr> = cut.iter().map(|i| PrimExpr::i64(b[*i].saturating_neg().max(0))).collect();
        let end: Vec<PrimExpr> =
            cut.iter().map(|i| y.dims[*i].clone() - PrimExpr::i64(a[*i].saturating_neg().max(0))).collect();
        let steps = vec![1; cut.len()];
        y = slice_axes(cx, &y, &cut, &begin, &end, &steps)?;
    }
    let widths: Vec<i64> = b.iter().zip(&a).flat_map(|(b, a)| [(*b).max(0), (*a).max(0)]).collect();
    if widths.iter().all(|w| *w == 0) {
        return Ok(y);
    }
    if mode != "constant" {
        // Reflections may go over a short dim more than once: by index.
        return pad_computed(
            cx,
            y,
            &b.iter().map(|v| PrimExpr::i64((*v).max(0))).collect::<Vec<_>>(),
            &a.iter().map(|v| PrimExpr::i64((*v).max(0))).collect::<Vec<_>>(),
            mode,
            value,
        );
    }
    cx.call(
        "nn.pad",
        &[(&y).into()],
        &[
            ("pad_width", ints(widths)),
            ("pad_mode", AttrValue::Str("constant".into())),
            ("pad_value", AttrValue::Float(scalar)),
        ],
    )
}

/// Padding by widths or by a value that are only known at run time.
fn pad_computed(
    cx: &mut NodeCx,
    x: Tensor,
    before: &[PrimExpr],
    after: &[PrimExpr],
    mode: &str,
    value: &Tensor,
) -> Res<Tensor> {
    let mut dims = vec![];
    for (d, (b, a)) in x.dims.iter().zip(before.iter().zip(after)) {
        dims.push(cx.simplify(d.clone() + b.clone() + a.clone()));
    }
    let value = cx.cast(value, x.dtype)?;
    let args = [(&x).into(), Arg::prims(before), Arg::shape(&dims), (&value).into()];
    cx.call("onnx.pad", &args, &[("mode", AttrValue::Str(mode.into()))])
}

/// The part of `x` at position `i` of `axis`, without that dim.
pub fn select_at(cx: &mut NodeCx, x: &Tensor, axis: usize, i: i64) -> Res<Tensor> {
    let at = Tensor::known(&[], DType::I64, vec![PrimExpr::i64(i)]);
    if let Some(t) = gather_known(x, &at, axis) {
        return Ok(t);
    }
    let part = slice_axes(cx, x, &[axis], &[PrimExpr::i64(i)], &[PrimExpr::i64(i + 1)], &[1])?;
    let mut dims = part.dims.clone();
    dims.remove(axis);
    cx.reshape(&part, &dims)
}

/// Tensors of one shape side by side along a new dim.
pub fn stack(cx: &mut NodeCx, parts: &[Tensor], axis: usize) -> Res<Tensor> {
    let mut wide = vec![];
    for p in parts {
        wide.push(cx.unsqueeze(p, &[axis])?);
    }
    match wide.as_slice() {
        [single] => Ok(single.clone()),
        all => {
            if all.iter().any(|p| p.leaf().is_none()) {
                if let Some(t) = known::concat(all, axis) {
                    return Ok(t);
                }
            }
            cx.call("concat", &[all.into()], &[("axis", AttrValue::Int(axis as i64))])
        }
    }
}

/// 0, 1, ..., n - 1 as int64.
pub fn iota(cx: &mut NodeCx, n: &PrimExpr) -> Res<Tensor> {
    cx.call("arange", &[Arg::prim(0), Arg::prim(n.clone()), Arg::prim(1)], &[("dtype", AttrValue::DType(DType::I64))])
}
