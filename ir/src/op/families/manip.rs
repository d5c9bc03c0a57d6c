//! Shape manipulation and data movement: reshapes, transposes, concatenation, repetition.
//!
//! Kernels are one block per input region with unit stride in the innermost loop, without division where a loop nest
//! can say it.

use super::index_map;
use super::view::{infer_batch_flatten, infer_expand_dims, infer_flatten, infer_reshape, infer_squeeze, reshape};
use crate::attrs::AttrValue;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{flat_index, Elem};
use crate::op::rule::{dim_text, dims_text, length};
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::{StructInfo, TensorInfo};
use crate::tir::PrimFunc;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "reshape",
        "The same elements in row-major order under other dims; one dim may be -1, 0 keeps the dim of `x`.",
        &[operand("x"), operand("shape")],
        infer_reshape,
        Compute::Kernel(reshape),
    ),
    OpDecl::pure("flatten", "The elements as a vector.", &[operand("x")], infer_flatten, Compute::Kernel(reshape)),
    OpDecl::pure(
        "nn.batch_flatten",
        "All dims but the first made one.",
        &[operand("data")],
        infer_batch_flatten,
        Compute::Kernel(reshape),
    ),
    OpDecl::pure(
        "expand_dims",
        "Dims of 1 inserted at the positions `axis` of the result.",
        &[operand("x"), attr("axis", Default::Required)],
        infer_expand_dims,
        Compute::Kernel(reshape),
    ),
    OpDecl::pure(
        "squeeze",
        "Dims of 1 removed: those of `axis`, or all; a dim of `axis` with more elements stays.",
        &[operand("x"), attr("axis", Default::None)],
        infer_squeeze,
        Compute::Kernel(reshape),
    ),
    OpDecl::pure(
        "permute_dims",
        "The dims in the order of `axes`, reversed without.",
        &[operand("x"), attr("axes", Default::None)],
        infer_permute,
        Compute::Kernel(permute),
    ),
    OpDecl::pure(
        "broadcast_to",
        "`x` broadcast to a shape: dims align at the right, equal or 1.",
        &[operand("x"), operand("shape")],
        infer_broadcast_to,
        Compute::Kernel(broadcast_to),
    ),
    OpDecl::pure(
        "concat",
        "The tensors one after the other along `axis`; other dims and dtypes agree.",
        &[operand("tensors"), attr("axis", Default::Int(0))],
        infer_concat,
        Compute::Kernel(concat),
    ),
    OpDecl::pure(
        "split",
        "A tuple of parts along `axis`: so many of equal size (the last may be smaller), or cut at the given indices.",
        &[operand("x"), attr("indices_or_sections", Default::Required), attr("axis", Default::Int(0))],
        infer_split,
        Compute::Kernel(split),
    ),
    OpDecl::pure(
        "stack",
        "Tensors of one shape side by side along a new dim at `axis`.",
        &[operand("tensors"), attr("axis", Default::Int(0))],
        infer_stack,
        Compute::Kernel(stack),
    ),
    OpDecl::pure(
        "tile",
        "`data` repeated as a whole, so many times per dim; repeats and dims align at the right.",
        &[operand("data"), attr("repeats", Default::Required)],
        infer_tile,
        Compute::Kernel(tile),
    ),
    OpDecl::pure(
        "repeat",
        "Each element repeated along `axis` (in the flattened tensor without one).",
        &[operand("data"), attr("repeats", Default::Required), attr("axis", Default::None)],
        infer_repeat,
        Compute::Kernel(repeat),
    ),
    OpDecl::pure(
        "flip",
        "The elements in reverse order along `axis`.",
        &[operand("data"), attr("axis", Default::Required)],
        infer_flip,
        Compute::Kernel(flip),
    ),
    OpDecl::pure(
        "layout_transform",
        "The element at index `i` moved to `index_map(i)`; positions that no index reaches hold `pad_value`.",
        &[operand("x"), attr("index_map", Default::Required), attr("pad_value", Default::None)],
        index_map::infer,
        Compute::Kernel(index_map::layout),
    ),
    OpDecl::pure(
        "meshgrid",
        "Vectors broadcast to a common grid, one result per vector; with indexing \"xy\" the first two dims are swapped.",
        &[operand("tensors"), attr("indexing", Default::Str("ij"))],
        infer_meshgrid,
        Compute::Kernel(meshgrid),
    ),
    OpDecl::pure(
        "reverse_sequence",
        "The first `seq_lengths[b]` elements along `seq_axis` reversed for each `b` of `batch_axis`.",
        &[
            operand("data"),
            operand("seq_lengths"),
            attr("seq_axis", Default::Int(1)),
            attr("batch_axis", Default::Int(0)),
        ],
        infer_reverse_sequence,
        Compute::Kernel(reverse_sequence),
    ),
];

fn infer_permute(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let Some(n) = t.ndim else { return Ok(StructInfo::Tensor(t.with_dims(None, None))) };
    let axes = cx.axes("axes", n)?.unwrap_or_else(|| (0..n).rev().collect());
    if axes.len() != n {
        return Err(cx.error(format!("axes has {} entries, x has {n} dims", axes.len())));
    }
    let dims = t.known_dims().map(|d| axes.iter().map(|&a| d[a].clone()).collect());
    Ok(StructInfo::Tensor(t.with_dims(dims, Some(n))))
}

fn permute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let n = inputs[0].ndim();
    let axes = cx.axes("axes", n)?.unwrap_or_else(|| (0..n).rev().collect());
    let out = cx.result()?;
    let y = k.compute("transpose", out.dims, out.dtype, |i| {
        let mut idx = vec![PrimExpr::i64(0); n];
        for (p, &a) in axes.iter().enumerate() {
            idx[a] = i[p].clone();
        }
        inputs[0].at(idx)
    });
    Ok(k.finish(&[y]))
}

fn infer_broadcast_to(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let (target, ndim) = cx.shape_operand(1)?;
    if let (Some(a), Some(b)) = (t.ndim, ndim) {
        if a > b {
            return Err(cx.error(format!("x has {a} dims, more than the {b} of the shape")));
        }
    }
    if let (Some(from), Some(to)) = (t.known_dims(), &target) {
        let lead = to.len() - from.len();
        for (a, b) in from.iter().zip(&to[lead..]) {
            if !a.is_int(1) {
                cx.require_eq(a, b, || {
                    format!("a tensor of shape {} does not broadcast to {}", dims_text(from), dims_text(to))
                })?;
            }
        }
    }
    Ok(StructInfo::Tensor(t.with_dims(target, ndim)))
}

fn broadcast_to(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let out = cx.result()?;
    let x = Elem::Buffer(inputs[0].clone());
    let y = k.compute("broadcast", out.dims, out.dtype, |i| x.at(i));
    Ok(k.finish(&[y]))
}

/// Tensors with their common dtype and rank, where known.
type Fields = (Vec<TensorInfo>, Option<DType>, Option<usize>);

/// The tensors of a tuple operand.
fn tuple(cx: &InferCx) -> Result<Fields, Diagnostic> {
    let list: Vec<TensorInfo> = cx.tensors(0)?.into_iter().cloned().collect();
    if list.is_empty() {
        return Err(cx.error("needs at least one tensor"));
    }
    let mut dtype = list[0].dtype;
    for t in &list {
        match (dtype, t.dtype) {
            (Some(a), Some(b)) if a != b => {
                return Err(cx.error(format!("the tensors have different dtypes: {a} and {b}")));
            }
            (Some(_), Some(_)) => {}
            _ => dtype = None,
        }
    }
    let ndim = list.iter().find_map(|t| t.ndim);
    if let Some(t) = list.iter().find(|t| t.ndim.is_some() && t.ndim != ndim) {
        return Err(cx.error(format!(
            "the tensors have different ranks: {} and {}",
            ndim.unwrap_or_default(),
            t.ndim.unwrap_or_default()
        )));
    }
    Ok((list, dtype, ndim))
}

fn infer_concat(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (list, dtype, ndim) = tuple(cx)?;
    let out = list[0].with_dtype(dtype);
    let Some(n) = ndim else { return Ok(StructInfo::Tensor(out.with_dims(None, None))) };
    let axis = match cx.attrs.int("axis") {
        Some(a) => cx.axis(a, n)?,
        None if n == 1 => 0,
        None => return Err(cx.error("without an axis the tensors must have one dim")),
    };
    let known: Vec<Vec<PrimExpr>> = list.iter().filter_map(|t| t.known_dims().map(<[PrimExpr]>::to_vec)).collect();
    if let Some(first) = known.first() {
        for other in &known[1..] {
            for (i, (a, b)) in first.iter().zip(other).enumerate() {
                if i != axis {
                    cx.require_eq(a, b, || {
                        let (a, b, s, t) = (dim_text(a), dim_text(b), dims_text(first), dims_text(other));
                        format!("shapes {s} and {t} differ outside of axis {axis}: dims {a} and {b}")
                    })?;
                }
            }
        }
    }
    if known.len() < list.len() {
        return Ok(StructInfo::Tensor(out.with_dims(None, Some(n))));
    }
    let total = known.iter().fold(PrimExpr::i64(0), |a, d| a + d[axis].clone());
    let mut dims = known[0].clone();
    // Where one tensor says a dim as a number, so does the result.
    for (i, d) in dims.iter_mut().enumerate() {
        if let Some(v) = known.iter().map(|k| &k[i]).find(|v| v.as_int().is_some()) {
            *d = v.clone();
        }
    }
    dims[axis] = cx.simplify(total);
    Ok(StructInfo::Tensor(out.with_dims(Some(dims), None)))
}

fn concat(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let out = cx.result()?;
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(0), out.dims.len())?;
    let y = k.buffer("concat", out.dims, out.dtype);
    let mut offset = PrimExpr::i64(0);
    for (n, x) in inputs.iter().enumerate() {
        let at = offset.clone();
        let to = |i: &[PrimExpr]| {
            let mut i = i.to_vec();
            i[axis] = i[axis].clone() + at;
            i
        };
        k.write(&format!("concat_{n}"), &y, &x.shape, to, |i| x.at(i));
        offset = offset + x.shape[axis].clone();
    }
    Ok(k.finish(&[y]))
}

/// The start of each part along an axis of `dim` elements, and one entry more: the end of the last.
fn cuts(attrs: &crate::Attrs, dim: &PrimExpr) -> Option<Vec<PrimExpr>> {
    match attrs.get("indices_or_sections")? {
        AttrValue::List(list) => {
            let mut out = vec![PrimExpr::i64(0)];
            for v in list {
                let cut = match v {
                    AttrValue::Prim(p) => p.clone().cast(DType::I64),
                    other => PrimExpr::i64(other.as_int()?),
                };
                let cut = match cut.as_int() {
                    Some(c) if c < 0 => (dim.clone() + cut).max(PrimExpr::i64(0)),
                    _ => cut.min(dim.clone()),
                };
                out.push(cut);
            }
            out.push(dim.clone());
            Some(out)
        }
        other => {
            let n = other.as_int().filter(|n| *n > 0)?;
            let part = (dim.clone() + (n - 1)).floor_div(PrimExpr::i64(n));
            let mut out: Vec<PrimExpr> = (0..n).map(|i| (part.clone() * i).min(dim.clone())).collect();
            out.push(dim.clone());
            Some(out)
        }
    }
}

/// More fields than any tuple of a real model has.
const PARTS: i64 = 65_536;

fn infer_split(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let parts = match cx.attrs.get("indices_or_sections") {
        Some(AttrValue::List(l)) => l.len() + 1,
        Some(v) => match v.as_int() {
            Some(n) if n > PARTS => return Err(cx.error(format!("{n} parts: more than {PARTS} are not supported"))),
            Some(n) if n > 0 => n as usize,
            _ => return Err(cx.error("indices_or_sections must be a positive number or a list of indices")),
        },
        None => return Err(cx.error("indices_or_sections is missing")),
    };
    let axis = cx.int("axis")?;
    let axis = t.ndim.map(|n| cx.axis(axis, n)).transpose()?;
    // One part is the tensor, and no tuple.
    if parts == 1 {
        return Ok(StructInfo::Tensor(t));
    }
    let (Some(dims), Some(axis)) = (t.known_dims(), axis) else {
        return Ok(StructInfo::Tuple(vec![StructInfo::Tensor(t.with_dims(None, t.ndim)); parts]));
    };
    let cuts = cuts(cx.attrs, &dims[axis]).ok_or_else(|| cx.error("indices_or_sections must be integers"))?;
    let symbolic_sections = dims[axis].as_int().is_none() && cx.attrs.int("indices_or_sections").is_some();
    let mut fields = vec![];
    for (i, w) in cuts.windows(2).enumerate() {
        let mut len = length(&w[0], &w[1]);
        if symbolic_sections {
            // Equal parts are known to start inside: part, .., dim - part * (n - 1).
            let n = parts as i64;
            let part = (dims[axis].clone() + (n - 1)).floor_div(PrimExpr::i64(n));
            len = if i + 1 < parts { part } else { dims[axis].clone() - part * (n - 1) };
        } else if cx.attrs.int("indices_or_sections").is_none() {
            len = len.max(PrimExpr::i64(0));
        }
        let mut d = dims.to_vec();
        d[axis] = cx.simplify(len);
        fields.push(StructInfo::Tensor(t.with_dims(Some(d), None)));
    }
    Ok(StructInfo::Tuple(fields))
}

fn split(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(0), x.ndim())?;
    let cuts = cuts(cx.attrs, &x.shape[axis]).ok_or_else(|| cx.error("indices_or_sections must be integers"))?;
    let mut outputs = vec![];
    for (n, (part, start)) in cx.results()?.iter().zip(&cuts).enumerate() {
        outputs.push(k.compute(&format!("split_{n}"), part.dims, part.dtype, |i| {
            let mut i = i.to_vec();
            i[axis] = i[axis].clone() + start.clone();
            x.at(i)
        }));
    }
    Ok(k.finish(&outputs))
}

fn infer_stack(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (list, dtype, ndim) = tuple(cx)?;
    let out = list[0].with_dtype(dtype);
    let Some(n) = ndim else { return Ok(StructInfo::Tensor(out.with_dims(None, None))) };
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(0), n + 1)?;
    let known: Vec<Vec<PrimExpr>> = list.iter().filter_map(|t| t.known_dims().map(<[PrimExpr]>::to_vec)).collect();
    if let Some(first) = known.first() {
        for other in &known[1..] {
            for (a, b) in first.iter().zip(other) {
                cx.require_eq(a, b, || {
                    format!("the tensors have different shapes: {} and {}", dims_text(first), dims_text(other))
                })?;
            }
        }
    }
    let Some(mut dims) = known.into_iter().next() else {
        return Ok(StructInfo::Tensor(out.with_dims(None, Some(n + 1))));
    };
    dims.insert(axis, PrimExpr::i64(list.len() as i64));
    Ok(StructInfo::Tensor(out.with_dims(Some(dims), None)))
}

fn stack(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let out = cx.result()?;
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(0), out.dims.len())?;
    let y = k.buffer("stack", out.dims, out.dtype);
    for (n, x) in inputs.iter().enumerate() {
        let to = |i: &[PrimExpr]| {
            let mut i = i.to_vec();
            i.insert(axis, PrimExpr::i64(n as i64));
            i
        };
        k.write(&format!("stack_{n}"), &y, &x.shape, to, |i| x.at(i));
    }
    Ok(k.finish(&[y]))
}

/// Repeats aligned at the right with the dims of the result.
fn repeats(cx_attrs: &crate::Attrs, ndim: usize) -> Option<Vec<i64>> {
    let r = cx_attrs.ints("repeats")?;
    let n = ndim.max(r.len());
    let mut out = vec![1; n - r.len()];
    out.extend(r);
    Some(out)
}

fn infer_tile(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let Some(n) = t.ndim else { return Ok(StructInfo::Tensor(t.with_dims(None, None))) };
    let r = repeats(cx.attrs, n).ok_or_else(|| cx.error("repeats must be integers"))?;
    if let Some(bad) = r.iter().find(|r| **r < 0) {
        return Err(cx.error(format!("a repeat is negative: {bad}")));
    }
    let lead = r.len() - n;
    let dims = t.known_dims().map(<[PrimExpr]>::to_vec).map(|d| {
        let one = PrimExpr::i64(1);
        (0..r.len()).map(|i| cx.simplify(if i < lead { one.clone() } else { d[i - lead].clone() } * r[i])).collect()
    });
    Ok(StructInfo::Tensor(t.with_dims(dims, Some(r.len()))))
}

fn tile(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, out) = (&inputs[0], cx.result()?);
    let r = repeats(cx.attrs, x.ndim()).ok_or_else(|| cx.error("repeats must be integers"))?;
    let lead = r.len() - x.ndim();
    let y = k.buffer("tile", out.dims, out.dtype);
    // Per dim of the result a loop over repeats (where there are any), then one over the dim of x.
    let mut extents = vec![];
    let mut axes: Vec<(Option<usize>, Option<usize>)> = vec![];
    for (i, &times) in r.iter().enumerate() {
        let outer = (times != 1).then(|| {
            extents.push(PrimExpr::i64(times));
            extents.len() - 1
        });
        let inner = (i >= lead).then(|| {
            extents.push(x.shape[i - lead].clone());
            extents.len() - 1
        });
        axes.push((outer, inner));
    }
    let zero = PrimExpr::i64(0);
    let to = |i: &[PrimExpr]| {
        axes.iter()
            .enumerate()
            .map(|(d, (outer, inner))| {
                let at = inner.map_or(zero.clone(), |p| i[p].clone());
                match outer {
                    Some(o) if d >= lead => i[*o].clone() * x.shape[d - lead].clone() + at,
                    Some(o) => i[*o].clone(),
                    None => at,
                }
            })
            .collect()
    };
    k.write("tile", &y, &extents, to, |i| {
        x.at(axes[lead..].iter().filter_map(|(_, inner)| inner.map(|p| i[p].clone())).collect::<Vec<_>>())
    });
    Ok(k.finish(&[y]))
}

fn infer_repeat(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let times = cx.int("repeats")?;
    if times < 1 {
        return Err(cx.error(format!("repeats must be at least 1, not {times}")));
    }
    let dims = t.known_dims().map(<[PrimExpr]>::to_vec);
    let Some(axis) = cx.attrs.int("axis") else {
        let flat = dims.map(|d| vec![cx.simplify(PrimExpr::product(&d) * times)]);
        return Ok(StructInfo::Tensor(t.with_dims(flat, Some(1))));
    };
    let Some(n) = t.ndim else { return Ok(StructInfo::Tensor(t.with_dims(None, None))) };
    let axis = cx.axis(axis, n)?;
    let dims = dims.map(|mut d| {
        d[axis] = cx.simplify(d[axis].clone() * times);
        d
    });
    Ok(StructInfo::Tensor(t.with_dims(dims, Some(n))))
}

fn repeat(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, out) = (&inputs[0], cx.result()?);
    let times = cx.attrs.int("repeats").ok_or_else(|| cx.error("repeats must be an integer"))?;
    if let Some(axis) = cx.attrs.int("axis") {
        let axis = cx.axis(axis, x.ndim())?;
        let y = k.compute("repeat", out.dims, out.dtype, |i| {
            let mut i = i.to_vec();
            i[axis] = i[axis].clone().floor_div(times);
            x.at(i)
        });
        return Ok(k.finish(&[y]));
    }
    let y = k.buffer("repeat", out.dims, out.dtype);
    let mut extents = x.shape.clone();
    extents.push(PrimExpr::i64(times));
    let n = x.ndim();
    let to = |i: &[PrimExpr]| vec![flat_index(&i[..n], &x.shape) * times + i[n].clone()];
    k.write("repeat", &y, &extents, to, |i| x.at(&i[..n]));
    Ok(k.finish(&[y]))
}

fn infer_flip(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    cx.one_axis("axis")?;
    let t = cx.tensor(0)?.clone();
    if let Some(n) = t.ndim {
        cx.axes("axis", n)?;
    }
    Ok(StructInfo::Tensor(t))
}

fn flip(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, out) = (&inputs[0], cx.result()?);
    let axes = cx.axes("axis", x.ndim())?.unwrap_or_default();
    let y = k.compute("flip", out.dims, out.dtype, |i| {
        let mut i = i.to_vec();
        for &a in &axes {
            i[a] = x.shape[a].clone() - 1 - i[a].clone();
        }
        x.at(i)
    });
    Ok(k.finish(&[y]))
}

fn infer_meshgrid(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (list, _, ndim) = tuple(cx)?;
    if ndim.is_some_and(|n| n > 1) {
        return Err(cx.error("the tensors must have one dim"));
    }
    let known: Option<Vec<PrimExpr>> =
        list.iter().map(|t| t.known_dims().map(|d| d.first().cloned().unwrap_or(PrimExpr::i64(1)))).collect();
    let dims = known.map(|mut d| {
        if swaps(cx.attrs) && d.len() > 1 {
            d.swap(0, 1);
        }
        d
    });
    let n = list.len();
    Ok(StructInfo::Tuple(list.iter().map(|t| StructInfo::Tensor(t.with_dims(dims.clone(), Some(n)))).collect()))
}

fn swaps(attrs: &crate::Attrs) -> bool {
    attrs.str("indexing") == Some("xy")
}

fn meshgrid(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let mut outputs = vec![];
    for (n, (x, out)) in inputs.iter().zip(cx.results()?).enumerate() {
        let axis = if swaps(cx.attrs) && inputs.len() > 1 && n < 2 { 1 - n } else { n };
        outputs.push(k.compute(&format!("meshgrid_{n}"), out.dims, out.dtype, |i| match x.ndim() {
            0 => x.at([]),
            _ => x.at([i[axis].clone()]),
        }));
    }
    Ok(k.finish(&outputs))
}

fn infer_reverse_sequence(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let lengths = cx.tensor(1)?.clone();
    cx.require_int(1, lengths.dtype)?;
    if let Some(d) = lengths.dtype.filter(|d| ![DType::I32, DType::I64].contains(d)) {
        return Err(cx.error(format!("seq_lengths must be of dtype int32 or int64, it is {d}")));
    }
    if lengths.ndim.is_some_and(|n| n != 1) {
        return Err(cx.error("seq_lengths must have one dim"));
    }
    if let Some(n) = t.ndim {
        cx.axis(cx.int("seq_axis")?, n)?;
        let batch = cx.axis(cx.int("batch_axis")?, n)?;
        if let (Some(d), Some(l)) = (t.known_dims(), lengths.known_dims()) {
            cx.require_eq(&d[batch], &l[0], || {
                format!("seq_lengths has {} entries, the batch axis has {}", dim_text(&l[0]), dim_text(&d[batch]))
            })?;
        }
    }
    Ok(StructInfo::Tensor(t))
}

fn reverse_sequence(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, lengths, out) = (&inputs[0], &inputs[1], cx.result()?);
    let seq = cx.axis(cx.attrs.int("seq_axis").unwrap_or(1), x.ndim())?;
    let batch = cx.axis(cx.attrs.int("batch_axis").unwrap_or(0), x.ndim())?;
    let y = k.compute("reverse", out.dims, out.dtype, |i| {
        let len = lengths.at([i[batch].clone()]).cast(DType::I64).min(x.shape[seq].clone());
        let mut idx = i.to_vec();
        idx[seq] = i[seq].clone().lt(len.clone()).select(len - 1 - i[seq].clone(), i[seq].clone());
        x.at(idx)
    });
    Ok(k.finish(&[y]))
}
