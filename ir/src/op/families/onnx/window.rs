//! Sums over windows that no convolution expresses.

use crate::attrs::Attrs;
use crate::diag::Diagnostic;
use crate::op::elem::{convert, flat_index, wide, wide_dtype};
use crate::op::families::rules;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::StructInfo;
use crate::tir::PrimFunc;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "onnx.affine_grid",
        "The positions `(n, size.., r)` that the affine maps `theta (n, r, r + 1)` give the elements of an image of `size`, x first, from -1 to 1. Source: ONNX `AffineGrid`.",
        &[operand("theta"), operand("size"), attr("align_corners", Default::Bool(false))],
        infer_affine,
        Compute::Kernel(affine),
    )
    .ulp(8),
    OpDecl::pure(
        "onnx.col2im",
        "Adds up blocks: `x (n, c k, l)` holds a column of `k` elements, the block's dims `block`, for each of `l` places; the result is `(n, c, image..)`. `padding` holds begins, then ends. Source: ONNX `Col2Im`.",
        &[
            operand("x"),
            operand("image"),
            operand("block"),
            attr("strides", Default::Required),
            attr("padding", Default::Required),
            attr("dilation", Default::Required),
        ],
        infer_col2im,
        Compute::Kernel(col2im),
    )
    .ulp(4),
    OpDecl::pure(
        "onnx.deform_conv",
        "Convolution of `(n, c, h, w)` by `(o, c / group, kh, kw)` whose taps are moved by `offset (n, 2 g kh kw, h', w')` (y, x) and weighed by `mask (n, g kh kw, h', w')`, for `g` groups of channels; between elements it interpolates, outside is 0. Source: ONNX `DeformConv`.",
        &[
            operand("x"),
            operand("w"),
            operand("offset"),
            optional("mask"),
            attr("strides", Default::Required),
            attr("padding", Default::Required),
            attr("dilation", Default::Required),
            attr("group", Default::Int(1)),
            attr("offset_group", Default::Int(1)),
        ],
        infer_deform,
        Compute::Kernel(deform),
    )
    .ulp(16),
];

struct Steps {
    strides: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
}

fn steps(attrs: &Attrs, n: usize) -> Result<Steps, String> {
    let list = |name: &str, n: usize| {
        let v = attrs.ints(name).filter(|v| v.len() == n);
        v.ok_or_else(|| format!("{name} must be {n} integers"))
    };
    let s = Steps { strides: list("strides", n)?, padding: list("padding", 2 * n)?, dilation: list("dilation", n)? };
    if s.strides.iter().chain(&s.dilation).any(|v| *v <= 0) {
        return Err("strides and dilation must be positive".into());
    }
    Ok(s)
}

fn infer_col2im(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    rules::require_ndim(cx, 0, 3)?;
    let (image, n) = cx.shape_operand(1)?;
    let (block, m) = cx.shape_operand(2)?;
    if n != m {
        return Err(cx.error("image and block differ in their number of dims"));
    }
    let s = steps(cx.attrs, n.unwrap_or(0)).map_err(|e| cx.error(e))?;
    if let (Some(d), Some(image), Some(block)) = (x.known_dims(), &image, &block) {
        let n = image.len();
        let places = (0..n).map(|i| {
            let room =
                image[i].clone() + (s.padding[i] + s.padding[i + n] - 1) - (block[i].clone() - 1) * s.dilation[i];
            room.floor_div(s.strides[i]) + 1
        });
        let (got, wanted) = (d[2].clone(), PrimExpr::product(&places.collect::<Vec<_>>()));
        let wanted = cx.simplify(wanted);
        cx.require_eq(&got, &wanted, || {
            format!("x has {} columns, the image takes {}", rule::dim_text(&got), rule::dim_text(&wanted))
        })?;
    }
    let dims = match (x.known_dims(), image, block) {
        (Some(d), Some(image), Some(block)) => {
            let mut out = vec![d[0].clone(), d[1].clone().floor_div(PrimExpr::product(&block))];
            out.extend(image);
            Some(out.into_iter().map(|e| cx.simplify(e)).collect())
        }
        _ => None,
    };
    Ok(StructInfo::Tensor(x.with_dims(dims, n.map(|n| n + 2))))
}

/// Which place along an axis, from an element's own number, meets it with this part of its block, and what must be tested.
#[derive(Clone, Copy)]
struct Tap {
    before: i64,
    begins: bool,
    ends: bool,
}

/// Parts of a block that are added element by element, and tests of all of them, at most: kernels have loops of their own for
/// what these leave.
const MOST_TAPS: usize = 9;
const MOST_TESTS: usize = 4;

/// The parts of few blocks by steps of 1, of known sizes, in their order.
fn few_taps(s: &Steps, image: &[PrimExpr], block: &[PrimExpr], places: &[PrimExpr]) -> Option<Vec<Vec<Tap>>> {
    let (mut all, mut tests) = (vec![vec![]], 0);
    for d in 0..image.len() {
        let (size, parts, places) = (image[d].as_int()?, block[d].as_int()?, places[d].as_int()?);
        if s.strides[d] != 1 || places < 1 || !(1..=MOST_TAPS as i64).contains(&parts) {
            return None;
        }
        let tap = |t: i64| {
            let before = s.padding[d] - t * s.dilation[d];
            Tap { before, begins: before < 0, ends: size - 1 + before >= places }
        };
        tests += (0..parts).map(|t| tap(t).begins as usize + tap(t).ends as usize).sum::<usize>();
        all = all.iter().flat_map(|a| (0..parts).map(move |t| [&a[..], &[tap(t)]].concat())).collect();
    }
    (all.len() <= MOST_TAPS && tests <= MOST_TESTS).then_some(all)
}

fn col2im(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let shape = |i: usize| cx.scalars(i).map(|v| v.into_iter().map(|e| e.cast(crate::DType::I64)).collect::<Vec<_>>());
    let image = shape(1).ok_or_else(|| cx.error("image must be stated"))?;
    let block = shape(2).ok_or_else(|| cx.error("block must be stated"))?;
    let n = image.len();
    let s = steps(cx.attrs, n).map_err(|e| cx.error(e))?;
    let out = cx.result()?;
    let acc = wide_dtype(x.dtype());
    let places: Vec<PrimExpr> = (0..n)
        .map(|d| {
            let room =
                image[d].clone() + (s.padding[d] + s.padding[d + n] - 1) - (block[d].clone() - 1) * s.dilation[d];
            room.floor_div(s.strides[d]) + 1
        })
        .collect();
    if let Some(taps) = few_taps(&s, &image, &block, &places) {
        let zero = PrimExpr::zero(acc);
        let y = k.compute("col2im", out.dims, out.dtype, |i| {
            let mut sum: Option<PrimExpr> = None;
            for (part, tap) in taps.iter().enumerate() {
                let at: Vec<PrimExpr> = (0..n).map(|d| i[2 + d].clone() + tap[d].before).collect();
                let channel = i[1].clone() * taps.len() as i64 + part as i64;
                let mut v = wide(x.at([i[0].clone(), channel, flat_index(&at, &places)]));
                for d in 0..n {
                    let begins = tap[d].begins.then(|| at[d].clone().ge(0));
                    let ends = tap[d].ends.then(|| at[d].clone().lt(places[d].clone()));
                    if let Some(inside) = begins.into_iter().chain(ends).reduce(PrimExpr::and) {
                        v = inside.if_then_else(v, zero.clone());
                    }
                }
                sum = Some(match sum {
                    Some(s) => s + v,
                    None => v,
                });
            }
            convert(sum.unwrap_or(zero), out.dtype)
        });
        return Ok(k.finish(&[y]));
    }
    // Padded by places that no block begins at, so that sums need no conditions on elements.
    let border: Vec<PrimExpr> =
        (0..n).map(|d| ((block[d].clone() - 1) * s.dilation[d]).floor_div(s.strides[d])).collect();
    let reach = |d: usize| (image[d].clone() + (s.padding[d] - 1)).floor_div(s.strides[d]) + 1;
    let mut dims = vec![out.dims[0].clone(), out.dims[1].clone()];
    dims.extend(block.iter().cloned());
    dims.extend((0..n).map(|d| reach(d) + border[d].clone()));
    let ends = |d: usize| reach(d).as_int().zip(places[d].as_int()).is_none_or(|(reached, places)| reached > places);
    let padded = k.compute("padded", &dims, x.dtype(), |i| {
        let mut inside: Option<PrimExpr> = None;
        let mut at = vec![];
        for d in 0..n {
            let place = i[2 + n + d].clone() - border[d].clone();
            let begins = (!border[d].is_int(0)).then(|| place.clone().ge(0));
            let ends = ends(d).then(|| place.clone().lt(places[d].clone()));
            inside = inside.into_iter().chain(begins).chain(ends).reduce(PrimExpr::and);
            at.push(place);
        }
        let channel = i[1].clone() * PrimExpr::product(&block) + flat_index(&i[2..2 + n], &block);
        let v = x.at([i[0].clone(), channel, flat_index(&at, &places)]);
        match inside {
            Some(inside) => inside.if_then_else(v, PrimExpr::zero(x.dtype())),
            None => v,
        }
    });
    // Elements whose positions have the same remainder by the strides are met by the same parts of blocks, in a row: without
    // dilation by each part whose number has that remainder, too.
    let mut dims = vec![out.dims[0].clone(), out.dims[1].clone()];
    dims.extend(s.strides.iter().map(|v| PrimExpr::i64(*v)));
    dims.extend((0..n).map(reach));
    let dense = s.dilation.iter().all(|v| *v == 1);
    let parts: Vec<PrimExpr> = match dense {
        true => (0..n).map(|d| (block[d].clone() + (s.strides[d] - 1)).floor_div(s.strides[d])).collect(),
        false => block.clone(),
    };
    let term = |i: &[PrimExpr], t: &[PrimExpr]| {
        let mut met: Option<PrimExpr> = None;
        let (mut part, mut at) = (vec![], vec![]);
        for d in 0..n {
            let (t, stride, phase) = (t[d].clone(), s.strides[d], i[2 + d].clone());
            let (number, moved, test) = if dense {
                let number = if stride == 1 { t.clone() } else { t.clone() * stride + phase };
                let even = block[d].as_int().is_some_and(|k| k % stride == 0);
                (number.clone(), t, (!even).then(|| number.lt(block[d].clone())))
            } else {
                let moved = t.clone() * s.dilation[d];
                let test = (stride > 1).then(|| moved.clone().floor_mod(stride).eq(phase));
                (t, moved.floor_div(stride), test)
            };
            met = met.into_iter().chain(test).reduce(PrimExpr::and);
            part.push(number);
            at.push(i[2 + n + d].clone() + border[d].clone() - moved);
        }
        let v = wide(padded.at([&i[..2], &part, &at].concat()));
        match met {
            Some(met) => met.if_then_else(v, PrimExpr::zero(acc)),
            None => v,
        }
    };
    let sum = match parts.iter().all(|p| p.is_int(1)) {
        true => k.compute("sum", &dims, acc, |i| term(i, &vec![PrimExpr::i64(0); n])),
        false => k.sum("sum", &dims, acc, &parts, term),
    };
    let y = k.compute("col2im", out.dims, out.dtype, |i| {
        let mut at = vec![i[0].clone(), i[1].clone()];
        let moved = |d: usize| i[2 + d].clone() + s.padding[d];
        at.extend((0..n).map(|d| moved(d).floor_mod(s.strides[d])));
        at.extend((0..n).map(|d| moved(d).floor_div(s.strides[d])));
        convert(sum.at(at), out.dtype)
    });
    Ok(k.finish(&[y]))
}

fn infer_deform(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, w, offset) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?, rules::tensor(cx, 2)?);
    for i in 0..3 {
        rules::require_ndim(cx, i, 4)?;
    }
    steps(cx.attrs, 2).map_err(|e| cx.error(e))?;
    if let (Some(x), Some(w), Some(o)) = (x.known_dims(), w.known_dims(), offset.known_dims()) {
        let (group, sets) = (cx.attrs.int("group").unwrap_or(1), cx.attrs.int("offset_group").unwrap_or(1));
        let taps = w[2].clone() * w[3].clone() * sets;
        let mut equal = vec![
            (o[0].clone(), x[0].clone(), "the batch of the offsets"),
            (o[1].clone(), taps.clone() * 2, "the channels of the offsets"),
            (x[1].clone(), w[1].clone() * group, "the channels of x"),
        ];
        if cx.has(3) {
            let mask = rules::tensor(cx, 3)?;
            let m = mask.known_dims().filter(|m| m.len() == 4).ok_or_else(|| cx.error("the mask must have 4 dims"))?;
            equal.push((m[0].clone(), x[0].clone(), "the batch of the mask"));
            equal.push((m[1].clone(), taps, "the channels of the mask"));
            equal.push((m[2].clone(), o[2].clone(), "the height of the mask"));
            equal.push((m[3].clone(), o[3].clone(), "the width of the mask"));
        }
        for (got, wanted, what) in equal {
            let wanted = cx.simplify(wanted);
            cx.require_eq(&got, &wanted, || {
                format!("{what}: {}, it must be {}", rule::dim_text(&got), rule::dim_text(&wanted))
            })?;
        }
    }
    let dims = match (x.known_dims(), w.known_dims(), offset.known_dims()) {
        (Some(x), Some(w), Some(o)) => Some(vec![x[0].clone(), w[0].clone(), o[2].clone(), o[3].clone()]),
        _ => None,
    };
    Ok(StructInfo::Tensor(x.with_dims(dims, Some(4))))
}

fn deform(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, w, offset, mask) = (&inputs[0], &inputs[1], &inputs[2], inputs.get(3));
    let s = steps(cx.attrs, 2).map_err(|e| cx.error(e))?;
    let out = cx.result()?;
    let acc = wide_dtype(x.dtype());
    let group = cx.attrs.int("group").unwrap_or(1);
    let sets = cx.attrs.int("offset_group").unwrap_or(1);
    let (channels, per_group) = (x.shape[1].clone(), w.shape[1].clone());
    let (kh, kw) = (w.shape[2].clone(), w.shape[3].clone());
    let per_out = out.dims[1].clone().floor_div(group);
    let per_set = channels.floor_div(sets);
    let taps = [per_group.clone(), kh.clone(), kw.clone()];
    let sum = k.sum("sum", out.dims, acc, &taps, |i, t| {
        let c = i[1].clone().floor_div(per_out) * per_group + t[0].clone();
        let tap = (c.clone().floor_div(per_set) * kh + t[1].clone()) * kw + t[2].clone();
        let moved = |d: usize| {
            let channel = tap.clone() * 2 + d as i64;
            let at = [i[0].clone(), channel, i[2].clone(), i[3].clone()];
            let whole = i[d + 2].clone() * s.strides[d] + t[d + 1].clone() * s.dilation[d] - s.padding[d];
            whole.cast(acc) + wide(offset.at(at)).cast(acc)
        };
        let (py, px) = (moved(0), moved(1));
        let (ly, lx) = (py.clone().call1(Intrin::Floor), px.clone().call1(Intrin::Floor));
        let (fy, fx) = (py - ly.clone(), px - lx.clone());
        let i64_ = crate::DType::I64;
        let one = PrimExpr::one(acc);
        let mut v = PrimExpr::zero(acc);
        for (dy, dx) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let (y, x_) = (ly.clone().cast(i64_) + dy, lx.clone().cast(i64_) + dx);
            let inside = y.clone().ge(0).and(y.clone().lt(x.shape[2].clone()));
            let inside = inside.and(x_.clone().ge(0)).and(x_.clone().lt(x.shape[3].clone()));
            let weight = |n: i64, f: &PrimExpr| if n == 1 { f.clone() } else { one.clone() - f.clone() };
            let e = wide(x.at([i[0].clone(), c.clone(), y, x_])).cast(acc) * weight(dy, &fy) * weight(dx, &fx);
            v = v + inside.if_then_else(e, PrimExpr::zero(acc));
        }
        if let Some(m) = mask {
            v = v * wide(m.at([i[0].clone(), tap.clone(), i[2].clone(), i[3].clone()])).cast(acc);
        }
        v * wide(w.at([i[1].clone(), t[0].clone(), t[1].clone(), t[2].clone()])).cast(acc)
    });
    let y = k.compute("deform_conv", out.dims, out.dtype, |i| convert(sum.at(i), out.dtype));
    Ok(k.finish(&[y]))
}

fn infer_affine(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let theta = rules::tensor(cx, 0)?;
    rules::require_ndim(cx, 0, 3)?;
    let (size, n) = cx.shape_operand(1)?;
    let dims = match (theta.known_dims(), size, n) {
        (Some(t), Some(size), Some(n)) => {
            let mut d = vec![t[0].clone()];
            d.extend(size);
            d.push(PrimExpr::i64(n as i64));
            Some(d)
        }
        _ => None,
    };
    Ok(StructInfo::Tensor(theta.with_dims(dims, n.map(|n| n + 2))))
}

fn affine(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let theta = &inputs[0];
    let out = cx.result()?;
    let rank = out.dims.len() - 2;
    let acc = wide_dtype(out.dtype);
    let c = |v: f64| PrimExpr::float(acc, v);
    let corners = cx.attrs.bool("align_corners").unwrap_or(false);
    let y = k.compute("affine_grid", out.dims, out.dtype, |i| {
        let entry = |j: PrimExpr| wide(theta.at([i[0].clone(), i[rank + 1].clone(), j])).cast(acc);
        let mut v = entry(PrimExpr::i64(rank as i64));
        for j in 0..rank {
            // Coordinate j counts from the last dim.
            let d = rank - j;
            let (at, n) = (i[d].clone().cast(acc), out.dims[d].clone().cast(acc));
            let place = if corners {
                let last = (n - c(1.0)).max(c(1.0));
                at * c(2.0) / last - c(1.0)
            } else {
                (at * c(2.0) + c(1.0)) / n - c(1.0)
            };
            v = v + entry(PrimExpr::i64(j as i64)) * place;
        }
        convert(v, out.dtype)
    });
    Ok(k.finish(&[y]))
}
