//! Pooling over regions of interest and decoding of boxes.

use crate::attrs::Attrs;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::wide_dtype;
use crate::op::families::conv::layout_over;
use crate::op::families::layout::{self, Layout};
use crate::op::families::rules;
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr, Var};
use crate::relax::StructInfo;
use crate::tir::{Buffer, ForKind, PrimFunc, Reducer, Stmt, StmtKind};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "vision.roi_align",
        "Mean (`avg`) or maximum (`max`; `max_tap`: of their four weighed elements, as ONNX has it) of bilinear samples over each bin of regions of interest `(batch, x1, y1, x2, y2)`: `(n, c, h, w), (r, 5) -> (r, c, ph, pw)` (or channels last). `sample_ratio` samples per bin and dim, by default as many as the bin has elements; `aligned` does not stretch regions to one element. Source: ONNX `RoiAlign`, TVM `topi.vision.roi_align`.",
        &[
            operand("data"),
            operand("rois"),
            attr("pooled_size", Default::Required),
            attr("spatial_scale", Default::Required),
            attr("sample_ratio", Default::Int(-1)),
            attr("aligned", Default::Bool(false)),
            attr("layout", Default::Str("NCHW")),
            attr("mode", Default::Str("avg")),
        ],
        infer_roi,
        Compute::Kernel(roi_align),
    )
    .ulp(8),
    OpDecl::pure(
        "vision.roi_pool",
        "Maximum over each bin of regions of interest `(batch, x1, y1, x2, y2)`, 0 for empty bins: `(n, c, h, w), (r, 5) -> (r, c, ph, pw)`. Source: ONNX `MaxRoiPool`, TVM `topi.vision.roi_pool`.",
        &[
            operand("data"),
            operand("rois"),
            attr("pooled_size", Default::Required),
            attr("spatial_scale", Default::Required),
            attr("layout", Default::Str("NCHW")),
        ],
        infer_roi,
        Compute::Kernel(roi_pool),
    ),
    OpDecl::pure(
        "vision.multibox_transform_loc",
        "Decodes SSD boxes: class scores `(b, c, n)`, encodings `(b, 4 n)` as (x, y, w, h) per anchor, anchors `(1, n, 4)` as (left, top, right, bottom). Returns boxes `(b, n, 4)` as (ymin, xmin, ymax, xmax) and scores `(b, c, n)` after an optional softmax over classes, 0 below `threshold`.",
        &[
            operand("cls_pred"),
            operand("loc_pred"),
            operand("anchor"),
            attr("clip", Default::Bool(false)),
            attr("threshold", Default::Float(0.0)),
            attr("variances", Default::None),
            attr("keep_background", Default::Bool(true)),
            attr("apply_softmax", Default::Bool(true)),
        ],
        infer_multibox,
        Compute::Kernel(multibox),
    )
    .ulp(8),
];

/// `layout` and `pooled_size`.
fn roi_attrs(attrs: &Attrs) -> Result<(Layout, Vec<i64>), String> {
    let layout = layout_over("layout", attrs.str("layout").unwrap_or(""), "NC", "HW")?;
    let size = layout::per_dim(attrs, "pooled_size", 2).filter(|v| v.iter().all(|s| *s > 0));
    Ok((layout, size.ok_or("pooled_size must be two positive integers")?))
}

fn infer_roi(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (layout, size) = roi_attrs(cx.attrs).map_err(|e| cx.error(e))?;
    let (x, r) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?);
    let order = cx.attrs.str("layout").unwrap_or("NCHW");
    let orders: &[&str] = if cx.op.name == "vision.roi_pool" { &["NCHW"] } else { &["NCHW", "NHWC"] };
    if !orders.contains(&order) {
        return Err(cx.error(format!("layout is \"{order}\", it must be {}", orders.join(" or "))));
    }
    if !matches!(cx.attrs.str("mode").unwrap_or("avg"), "avg" | "max" | "max_tap") {
        return Err(cx.error("mode must be \"avg\", \"max\" or \"max_tap\""));
    }
    cx.require_float(0, x.dtype)?;
    // Regions may be of another dtype; integers where TVM has a meaning for them.
    if cx.op.name == "vision.roi_pool" || !r.dtype.is_some_and(|d| d.is_int()) {
        cx.require_float(1, r.dtype)?;
    }
    let dtype = x.dtype;
    rules::require_ndim(cx, 0, layout.rank())?;
    rules::require_ndim(cx, 1, 2)?;
    let (Some(xd), Some(rd)) = (x.known_dims(), r.known_dims()) else {
        return Ok(rules::unknown(Some(layout.rank()), dtype));
    };
    cx.require_eq(&rd[1], &PrimExpr::i64(5), || {
        format!("a region has 5 numbers (batch, x1, y1, x2, y2), here {}", dim_text(&rd[1]))
    })?;
    let dims = layout.dims(|a| match a {
        'N' => rd[0].clone(),
        'C' => layout.size(xd, 'C'),
        'H' => PrimExpr::i64(size[0]),
        _ => PrimExpr::i64(size[1]),
    });
    Ok(rules::known(dims, dtype))
}

/// Number `n` of region `i`.
fn region(rois: &Buffer, i: &PrimExpr, n: i64, real: DType) -> PrimExpr {
    rois.at([i.clone(), PrimExpr::i64(n)]).cast(real)
}

/// Of a bin, where the region says how many: beyond, positions no longer tell them apart.
const MOST_SAMPLES: f64 = (1u64 << 40) as f64;

fn roi_align(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (layout, size) = roi_attrs(cx.attrs).map_err(|e| cx.error(e))?;
    let (data, out) = (cx.tensor(0)?, cx.result()?);
    let (mut k, inputs) = cx.kernel()?;
    let (x, rois) = (&inputs[0], &inputs[1]);
    let real = wide_dtype(out.dtype);
    let c = |v: f64| PrimExpr::float(real, v);
    let ratio = cx.attrs.int("sample_ratio").unwrap_or(-1);
    let scale = cx.attrs.float("spatial_scale").unwrap_or(1.0);
    let aligned = cx.attrs.bool("aligned").unwrap_or(false);
    let taps_apart = cx.attrs.str("mode") == Some("max_tap");
    let maximum = taps_apart || cx.attrs.str("mode") == Some("max");
    let axes = [('h', 'H', 2, 4), ('w', 'W', 1, 3)];
    // Per region and axis: start, extent of a bin, number of samples in a bin.
    let per_roi = [layout.size(out.dims, 'N')];
    let mut tables = vec![];
    for (n, (name, _, from, to)) in axes.into_iter().enumerate() {
        let start = k.compute(&format!("start_{name}"), &per_roi, real, |i| region(rois, &i[0], from, real) * c(scale));
        let bin = k.compute(&format!("bin_{name}"), &per_roi, real, |i| {
            let extent = region(rois, &i[0], to, real) * c(scale) - start.at(i);
            let extent = if aligned { extent } else { extent.max(c(1.0)) };
            extent / c(size[n] as f64)
        });
        let count = k.compute(&format!("samples_{name}"), &per_roi, DType::I64, |i| match ratio > 0 {
            true => PrimExpr::i64(ratio),
            false => bin.at(i).call1(Intrin::Ceil).min(c(MOST_SAMPLES)).cast(DType::I64),
        });
        tables.push((start, bin, count));
    }
    // Where sample `tap` of place `at` of an axis is: in the middle of its part of the bin, for regions of integers at the
    // beginning, as the half is an integer then. Source: TVM `topi.vision.roi_align`.
    let middle = if rois.dtype().is_float() { c(0.5) } else { c(0.0) };
    let position = |n: usize, roi: &PrimExpr, at: PrimExpr, tap: PrimExpr| {
        let (start, bin, count) = &tables[n];
        let roi = [roi.clone()];
        let bin = bin.at(roi.clone());
        let offset = (tap.cast(real) + middle.clone()) * bin.clone() / count.at(roi.clone()).cast(real);
        start.at(roi) + at.cast(real) * bin + offset
    };
    let extent = |n: usize| layout.size(data.dims, axes[n].1);
    let beyond =
        |n: usize, at: PrimExpr| at.clone().lt(c(-1.0)).select(PrimExpr::bool(true), at.gt(extent(n).cast(real)));
    // The element before it, and how far behind that one it is.
    let element = |n: usize, at: PrimExpr| {
        let last = extent(n) - 1;
        let at = at.max(c(0.0)).min(last.clone().cast(real));
        let low = at.clone().call1(Intrin::Floor);
        let t = at - low.clone();
        (low.cast(DType::I64).min(last).max(0), t)
    };
    // All of it is the same for every channel: tables, where the number of samples is known. What lies outside is infinitely
    // far behind an element, which nothing else is.
    let far = c(f64::INFINITY);
    let known: Vec<[Buffer; 2]> = match ratio > 0 {
        false => vec![],
        true => axes
            .into_iter()
            .enumerate()
            .map(|(n, (name, ..))| {
                let dims = [per_roi[0].clone(), PrimExpr::i64(size[n]), PrimExpr::i64(ratio)];
                let at = |i: &[PrimExpr]| position(n, &i[0], i[1].clone(), i[2].clone());
                let place = k.compute(&format!("place_{name}"), &dims, real, at);
                [
                    k.compute(&format!("element_{name}"), &dims, DType::I64, |i| element(n, place.at(i)).0),
                    k.compute(&format!("behind_{name}"), &dims, real, |i| {
                        beyond(n, place.at(i)).select(far.clone(), element(n, place.at(i)).1)
                    }),
                ]
            })
            .collect(),
    };
    let batches = k.compute("batch", &per_roi, DType::I64, |i| region(rois, &i[0], 0, real).cast(DType::I64));
    let sample = |i: &[PrimExpr], taps: &[PrimExpr]| {
        let roi = [layout.along(i, 'N')];
        let mut outside = PrimExpr::bool(false);
        let mut sides = vec![];
        for (n, (_, letter, ..)) in axes.into_iter().enumerate() {
            let along = layout.along(i, letter);
            let (beyond, low, t) = match known.get(n) {
                Some([element, behind]) => {
                    let at = [roi[0].clone(), along, taps[n].clone()];
                    let t = behind.at(at.clone());
                    (t.clone().eq(far.clone()), element.at(at), t)
                }
                None => {
                    let at = position(n, &roi[0], along, taps[n].clone());
                    let (low, t) = element(n, at.clone());
                    (beyond(n, at), low, t)
                }
            };
            outside = outside.select(PrimExpr::bool(true), beyond);
            let high = (low.clone() + 1).min(extent(n) - 1);
            sides.push([(low, c(1.0) - t.clone()), (high, t)]);
        }
        let batch = batches.at(roi);
        let mut value: Option<PrimExpr> = None;
        for (y, wy) in &sides[0] {
            for (xx, wx) in &sides[1] {
                let v = x.at(layout.index(|a| match a {
                    'N' => batch.clone(),
                    'C' => layout.along(i, 'C'),
                    'H' => y.clone(),
                    _ => xx.clone(),
                }));
                let v = v.cast(real) * (wx.clone() * wy.clone());
                value = Some(match value {
                    Some(s) if taps_apart => s.max(v),
                    Some(s) => s + v,
                    None => v,
                });
            }
        }
        let value = value.unwrap_or(c(0.0));
        // Where there are elements at all one can be read in any case.
        let there = (0..2).all(|n| extent(n).as_int().is_some_and(|n| n > 0));
        match there && !known.is_empty() {
            true => outside.select(c(0.0), value),
            false => outside.if_then_else(c(0.0), value),
        }
    };
    let init = if maximum { PrimExpr::min_value(real) } else { c(0.0) };
    let combine = |a: PrimExpr, b: PrimExpr| if maximum { a.max(b) } else { a + b };
    let pooled = if ratio > 0 {
        let taps = [PrimExpr::i64(ratio), PrimExpr::i64(ratio)];
        k.reduce("roi_align", out.dims, real, &taps, Reducer { init, combine: &combine }, sample)
    } else {
        // Samples outside of the image are 0. Of regions that are much larger, only those near the image are looked at:
        // from `first` to `end`, with one or two to spare for rounding.
        let near: Vec<[Buffer; 2]> = axes
            .into_iter()
            .enumerate()
            .map(|(n, (name, ..))| {
                let dims = [per_roi[0].clone(), PrimExpr::i64(size[n])];
                let at = |i: &[PrimExpr], edge: PrimExpr, spare: f64| {
                    let (start, bin, count) = &tables[n];
                    let (bin, count) = (bin.at([i[0].clone()]), count.at([i[0].clone()]).cast(real));
                    let begin = start.at([i[0].clone()]) + i[1].clone().cast(real) * bin.clone();
                    let tap = (edge - begin) / (bin / count.clone()) + c(spare);
                    tap.max(c(0.0)).min(count).cast(DType::I64)
                };
                [
                    k.compute(&format!("first_{name}"), &dims, DType::I64, |i| at(i, c(-1.0), -3.0)),
                    k.compute(&format!("end_{name}"), &dims, DType::I64, |i| at(i, extent(n).cast(real), 3.0)),
                ]
            })
            .collect();
        let y = k.buffer("roi_align", out.dims, real);
        k.rows("roi_align", out.dims, |i| {
            let taps = [Var::dim("rh"), Var::dim("rw")];
            let step = combine(y.at(i), sample(i, &[taps[0].expr(), taps[1].expr()]));
            let mut body = Stmt::store(&y, i.to_vec(), step);
            let mut all = PrimExpr::bool(true);
            for n in [1, 0] {
                let at = [layout.along(i, 'N'), layout.along(i, axes[n].1)];
                let (first, end) = (near[n][0].at(at.clone()), near[n][1].at(at.clone()));
                let extent = end - first.clone();
                // Where there is no sample at all ONNX has 0, TVM the least number.
                let least = tables[n].2.at([at[0].clone()]).max(i64::from(taps_apart));
                all = all.and(extent.clone().ge(least));
                body = Stmt::new(StmtKind::For {
                    var: taps[n].clone(),
                    min: first,
                    extent,
                    kind: ForKind::Serial,
                    annotations: vec![],
                    body,
                });
            }
            let init = if maximum { all.select(init, c(0.0)) } else { init };
            Stmt::seq(vec![Stmt::store(&y, i.to_vec(), init), body])
        });
        y
    };
    let y = match maximum {
        true => rules::narrow(&mut k, pooled, out.dtype),
        false => k.compute("roi_mean", out.dims, out.dtype, |i| {
            let roi = [layout.along(i, 'N')];
            let count = tables[0].2.at(roi.clone()).cast(real) * tables[1].2.at(roi).cast(real);
            pooled.at(i) / count.max(c(1.0))
        }),
    };
    Ok(k.finish(&[y]))
}

fn roi_pool(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (layout, size) = roi_attrs(cx.attrs).map_err(|e| cx.error(e))?;
    let (data, out) = (cx.tensor(0)?, cx.result()?);
    let (mut k, inputs) = cx.kernel()?;
    let (x, rois) = (&inputs[0], &inputs[1]);
    let real = wide_dtype(out.dtype);
    let c = |v: f64| PrimExpr::float(real, v);
    let scale = cx.attrs.float("spatial_scale").unwrap_or(1.0);
    let int = |e: PrimExpr| e.cast(DType::I64);
    // Rounds halves up, as ONNX's reference does.
    let round = |e: PrimExpr| int((e * c(scale) + c(0.5)).call1(Intrin::Floor));
    let mut bounds = vec![];
    for (n, (letter, from, to)) in [('H', 2, 4), ('W', 1, 3)].into_iter().enumerate() {
        let shape = [layout.size(out.dims, 'N'), PrimExpr::i64(size[n])];
        let extent = layout.size(data.dims, letter);
        let mut bound = |name: &str, next: i64| {
            k.compute(&format!("{name}_{letter}"), &shape, DType::I64, |i| {
                let start = round(region(rois, &i[0], from, real));
                let length = (round(region(rois, &i[0], to, real)) - start.clone() + 1).max(1);
                let bin = length.cast(real) / c(size[n] as f64);
                let at = (i[1].clone() + next).cast(real) * bin;
                let at = if next == 0 { at.call1(Intrin::Floor) } else { at.call1(Intrin::Ceil) };
                (int(at) + start).max(0).min(extent.clone())
            })
        };
        bounds.push((bound("begin", 0), bound("end", 1)));
    }
    let y = k.buffer("roi_pool", out.dims, out.dtype);
    k.rows("roi_pool", out.dims, |i| {
        let roi = layout.along(i, 'N');
        let cell = |n: usize, letter: char| {
            let at = [roi.clone(), layout.along(i, letter)];
            let begin = bounds[n].0.at(at.clone());
            (begin.clone(), bounds[n].1.at(at) - begin)
        };
        let ((h, nh), (w, nw)) = (cell(0, 'H'), cell(1, 'W'));
        let (rh, rw) = (Var::dim("rh"), Var::dim("rw"));
        let batch = int(region(rois, &roi, 0, real));
        let source = x.at(layout.index(|a| match a {
            'N' => batch.clone(),
            'C' => layout.along(i, 'C'),
            'H' => h.clone() + rh.expr(),
            _ => w.clone() + rw.expr(),
        }));
        let step = Stmt::store(&y, i.to_vec(), y.at(i).max(source));
        let loops = Stmt::for_serial(&rh, nh.clone().max(0), Stmt::for_serial(&rw, nw.clone().max(0), step));
        let empty = nh.le(0).or(nw.le(0));
        let init = empty.select(PrimExpr::zero(out.dtype), PrimExpr::min_value(out.dtype));
        Stmt::seq(vec![Stmt::store(&y, i.to_vec(), init), loops])
    });
    Ok(k.finish(&[y]))
}

fn infer_multibox(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (cls, loc, anchor) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?, rules::tensor(cx, 2)?);
    cx.require_float(0, cls.dtype)?;
    let dtype = cx.same_dtype(&[("cls_pred", cls.dtype), ("loc_pred", loc.dtype), ("anchor", anchor.dtype)])?;
    for (i, n) in [(0, 3), (1, 2), (2, 3)] {
        rules::require_ndim(cx, i, n)?;
    }
    let variances = cx.attrs.get("variances").and_then(|v| v.as_list()).map(<[_]>::len);
    if variances.is_some_and(|n| n != 4) {
        return Err(cx.error("variances must be four numbers"));
    }
    let scores = StructInfo::Tensor(cls.with_dtype(dtype));
    let Some(cd) = cls.known_dims() else {
        return Ok(StructInfo::Tuple(vec![rules::unknown(Some(3), dtype), scores]));
    };
    if let Some(ld) = loc.known_dims() {
        let wanted = cd[2].clone() * 4;
        cx.require_eq(&ld[0], &cd[0], || {
            format!("batch differs: loc_pred has {}, cls_pred {}", dim_text(&ld[0]), dim_text(&cd[0]))
        })?;
        cx.require_eq(&ld[1], &wanted, || {
            format!("loc_pred has {} numbers, {} anchors take 4 each", dim_text(&ld[1]), dim_text(&cd[2]))
        })?;
    }
    if let Some(ad) = anchor.known_dims() {
        for (d, w) in [(&ad[0], &PrimExpr::i64(1)), (&ad[1], &cd[2]), (&ad[2], &PrimExpr::i64(4))] {
            cx.require_eq(d, w, || {
                format!(
                    "anchor must be (1, {}, 4), a dim is {} instead of {}",
                    dim_text(&cd[2]),
                    dim_text(d),
                    dim_text(w)
                )
            })?;
        }
    }
    let boxes = rules::known(vec![cd[0].clone(), cd[2].clone(), PrimExpr::i64(4)], dtype);
    Ok(StructInfo::Tuple(vec![boxes, scores]))
}

fn multibox(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let outs = cx.results()?;
    let (mut k, x) = cx.kernel()?;
    let (cls, loc, anchor) = (&x[0], &x[1], &x[2]);
    let real = wide_dtype(cls.dtype());
    let c = |v: f64| PrimExpr::float(real, v);
    let variances: Vec<f64> = match cx.attrs.get("variances").and_then(|v| v.as_list()) {
        Some(v) => v.iter().map(|v| v.as_float().unwrap_or(1.0)).collect(),
        None => vec![1.0; 4],
    };
    let clip = cx.attrs.bool("clip").unwrap_or(false);
    let boxes = k.compute("boxes", outs[0].dims, outs[0].dtype, |i| {
        let corner = |n: i64| anchor.at([PrimExpr::i64(0), i[1].clone(), PrimExpr::i64(n)]).cast(real);
        let code = |n: usize| {
            let v = loc.at([i[0].clone(), i[1].clone() * 4 + n as i64]).cast(real);
            v * c(variances.get(n).copied().unwrap_or(1.0))
        };
        // Centre and half extent along an axis whose corners are numbers `from` and `from + 2`.
        let side = |from: i64, centre: usize, extent: usize| {
            let (low, high) = (corner(from), corner(from + 2));
            let span = high.clone() - low.clone();
            let middle = code(centre) * span.clone() + (low + high) * c(0.5);
            (middle, c(0.5) * code(extent).call1(Intrin::Exp) * span)
        };
        let ((x, w), (y, h)) = (side(0, 0, 2), side(1, 1, 3));
        let limit = |v: PrimExpr| if clip { v.min(c(1.0)).max(c(0.0)) } else { v };
        let n = |v: i64| i[2].clone().eq(v);
        let far = n(2).select(limit(y.clone() + h.clone()), limit(x.clone() + w.clone()));
        n(0).select(limit(y - h), n(1).select(limit(x - w), far))
    });
    let scores = if cx.attrs.bool("apply_softmax").unwrap_or(true) {
        let rest = [cls.shape[0].clone(), cls.shape[2].clone()];
        let classes = [cls.shape[1].clone()];
        let at = |s: &[PrimExpr], r: &[PrimExpr]| cls.at([s[0].clone(), r[0].clone(), s[1].clone()]).cast(real);
        let reducer = Reducer { init: PrimExpr::min_value(real), combine: &|a, b| a.max(b) };
        let max = k.reduce("softmax_max", &rest, real, &classes, reducer, at);
        let row = |i: &[PrimExpr]| [i[0].clone(), i[2].clone()];
        let exp =
            k.compute("softmax_exp", &cls.shape, real, |i| (cls.at(i).cast(real) - max.at(row(i))).call1(Intrin::Exp));
        let sum =
            k.sum("softmax_sum", &rest, real, &classes, |s, r| exp.at([s[0].clone(), r[0].clone(), s[1].clone()]));
        k.compute("softmax_norm", &cls.shape, real, |i| exp.at(i) / sum.at(row(i)))
    } else {
        cls.clone()
    };
    let threshold = c(cx.attrs.float("threshold").unwrap_or(0.0));
    let background = cx.attrs.bool("keep_background").unwrap_or(true);
    let scores = k.compute("scores", outs[1].dims, outs[1].dtype, |i| {
        let v = scores.at(i).cast(real);
        let keep = v.clone().ge(threshold);
        let keep = if background { keep } else { keep.and(i[1].clone().ne(0)) };
        keep.select(v, c(0.0))
    });
    Ok(k.finish(&[boxes, scores]))
}
