//! Sampling at computed positions.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::wide_dtype;
use crate::op::families::layout;
use crate::op::families::rules;
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::StructInfo;
use crate::tir::{Buffer, KernelBuilder, PrimFunc};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "image.grid_sample",
        "Samples `data` `(n, c, d?, h, w)`, or `(n, h, w, c)` by `layout`, at the positions of `grid` `(n, 2 or 3 and more, d?, h', w')`, x first (more coordinates are not read), where -1 and 1 are the borders of the image (`align_corners`: the centres of the border elements). `method` is `nearest`, `bilinear` or (2-d) `bicubic`, `padding_mode` `zeros`, `border` or `reflection`. Source: ONNX `GridSample`, TVM `topi.image.grid_sample`.",
        &[
            operand("data"),
            operand("grid"),
            attr("method", Default::Str("bilinear")),
            attr("layout", Default::Str("NCHW")),
            attr("padding_mode", Default::Str("zeros")),
            attr("align_corners", Default::Bool(false)),
        ],
        infer_grid_sample,
        Compute::Kernel(grid_sample),
    )
    .ulp(8),
    OpDecl::pure(
        "image.affine_grid",
        "The positions for `image.grid_sample` of an affine map: `(n, 2, 3)` and `size` `(h, w)` give `(n, 2, h, w)`, `(n, 3, 4)` and `(d, h, w)` give `(n, 3, d, h, w)`.",
        &[operand("data"), operand("size"), attr("align_corners", Default::Bool(true))],
        infer_affine_grid,
        Compute::Kernel(affine_grid),
    )
    .ulp(4),
];

fn infer_grid_sample(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, g) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?);
    let (rank, channel) = match cx.attrs.str("layout") {
        Some("NCHW") => (2, 1),
        Some("NHWC") => (2, 3),
        Some("NCDHW") => (3, 1),
        _ => return Err(cx.error("layout must be \"NCHW\", \"NHWC\" or \"NCDHW\"")),
    };
    let method = cx.attrs.str("method").unwrap_or("");
    if !(matches!(method, "nearest" | "bilinear") || method == "bicubic" && rank == 2) {
        return Err(cx.error(format!("method \"{method}\" is not one of nearest, bilinear and (2-d) bicubic")));
    }
    let padding = cx.attrs.str("padding_mode").unwrap_or("");
    if !matches!(padding, "zeros" | "border" | "reflection") {
        return Err(cx.error(format!("padding_mode \"{padding}\" is not one of zeros, border and reflection")));
    }
    rules::require_ndim(cx, 0, rank + 2)?;
    rules::require_ndim(cx, 1, rank + 2)?;
    cx.require_float(1, g.dtype)?;
    let (Some(xd), Some(gd)) = (x.known_dims(), g.known_dims()) else {
        return Ok(rules::unknown(Some(rank + 2), x.dtype));
    };
    cx.require_eq(&xd[0], &gd[0], || {
        format!("batch differs: data has {}, grid has {}", dim_text(&xd[0]), dim_text(&gd[0]))
    })?;
    // What else a position has is not read: TVM 0.27 hands on a grid whose coordinates come last as it is.
    cx.require(gd[1].clone().ge(rank as i64), || {
        format!("the grid has {} coordinates, {rank} are needed", dim_text(&gd[1]))
    })?;
    let mut dims = vec![xd[0].clone()];
    dims.extend_from_slice(&gd[2..]);
    dims.insert(channel, xd[channel].clone());
    Ok(rules::known(dims, x.dtype))
}

/// What sampling along one axis needs.
struct Axis<'a> {
    cx: &'a ComputeCx<'a>,
    size: PrimExpr,
    real: DType,
}

impl Axis<'_> {
    fn float(&self, v: f64) -> PrimExpr {
        PrimExpr::float(self.real, v)
    }

    fn corners(&self) -> bool {
        self.cx.attrs.bool("align_corners").unwrap_or(false)
    }

    /// From -1..1 to elements.
    fn position(&self, g: PrimExpr) -> PrimExpr {
        let one = self.float(1.0);
        match self.corners() {
            true => (g + one) * (self.size.clone() - 1).cast(self.real) / self.float(2.0),
            false => (g + one) * self.size.clone().cast(self.real) / self.float(2.0) - self.float(0.5),
        }
    }

    fn clip(&self, at: PrimExpr) -> PrimExpr {
        at.max(self.float(0.0)).min((self.size.clone() - 1).cast(self.real))
    }

    /// Mirrors a position at the borders until it is inside.
    fn reflect(&self, at: PrimExpr) -> PrimExpr {
        let (size, start) = match self.corners() {
            true => (self.size.clone() - 1, 0.0),
            false => (self.size.clone(), -0.5),
        };
        let start = self.float(start);
        let span = size.clone().cast(self.real);
        let distance = (start.clone() - at.clone()).call1(Intrin::Abs);
        let times = distance.clone().cast(DType::I64).trunc_div(size.max(1));
        let extra = distance - times.clone().cast(self.real) * span.clone();
        let even = times.floor_mod(2).eq(0);
        let folded = even.select(extra.clone() + start.clone(), span.clone() - extra + start.clone());
        let inside = at.clone().ge(start.clone()).and(at.clone().le(span + start));
        inside.select(at, folded)
    }

    /// Applies `padding_mode` to a position.
    fn pad(&self, at: PrimExpr) -> PrimExpr {
        match self.cx.attrs.str("padding_mode") {
            Some("border") => self.clip(at),
            Some("reflection") => self.clip(self.reflect(at)),
            _ => at,
        }
    }

    /// Elements and weights around the one with this number, `behind` which the position is.
    fn beside(&self, element: PrimExpr, behind: Option<PrimExpr>) -> Vec<(PrimExpr, PrimExpr)> {
        let one = self.float(1.0);
        match behind {
            None => vec![(element, one)],
            Some(t) => vec![(element.clone(), one - t.clone()), (element + 1, t)],
        }
    }

    /// Elements and weights of cubic interpolation around position `at`.
    fn taps(&self, at: PrimExpr) -> Vec<(PrimExpr, PrimExpr)> {
        let floor = at.clone().call1(Intrin::Floor);
        let base = floor.clone().cast(DType::I64);
        let t = at - floor;
        let c = |v: f64| self.float(v);
        // Keys' kernel with a = -0.75, as PyTorch.
        let a = -0.75;
        let near = |f: PrimExpr| (c(a + 2.0) * f.clone() - c(a + 3.0)) * f.clone() * f + c(1.0);
        let far = |f: PrimExpr| ((c(a) * f.clone() - c(5.0 * a)) * f.clone() + c(8.0 * a)) * f - c(4.0 * a);
        let weights = [far(t.clone() + c(1.0)), near(t.clone()), near(c(1.0) - t.clone()), far(c(2.0) - t)];
        let at = |i: i64| match self.cx.attrs.str("padding_mode") {
            Some("zeros") => base.clone() + (i - 1),
            _ => self.pad((base.clone() + (i - 1)).cast(self.real)).cast(DType::I64),
        };
        weights.into_iter().enumerate().map(|(i, w)| (at(i as i64), w)).collect()
    }
}

fn grid_sample(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (data, out) = (cx.tensor(0)?, cx.result()?);
    let (mut k, inputs) = cx.kernel()?;
    let (x, grid) = (&inputs[0], &inputs[1]);
    let rank = out.dims.len() - 2;
    // Where the channels are, and the first of the other axes.
    let (channel, first) = if cx.attrs.str("layout") == Some("NHWC") { (3, 1) } else { (1, 2) };
    let real = match wide_dtype(grid.dtype()) {
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    let axes: Vec<Axis> = (0..rank).map(|i| Axis { cx, size: data.dims[i + first].clone(), real }).collect();
    let bicubic = cx.attrs.str("method") == Some("bicubic");
    // Positions are the same for all channels: one stage per axis.
    let mut shape = out.dims.to_vec();
    shape.remove(channel);
    let positions: Vec<Buffer> = axes
        .iter()
        .zip(layout::spatial(rank).chars())
        .enumerate()
        .map(|(n, (axis, letter))| {
            k.compute(&format!("position_{letter}"), &shape, real, |i| {
                let mut at = i.to_vec();
                at.insert(1, PrimExpr::i64((rank - 1 - n) as i64));
                let p = axis.position(grid.at(at).cast(real));
                if bicubic {
                    p
                } else {
                    axis.pad(p)
                }
            })
        })
        .collect();
    // So are the elements before them, and how far behind these they are.
    let near = |k: &mut KernelBuilder, (p, letter): (&Buffer, char)| {
        let nearest = cx.attrs.str("method") == Some("nearest");
        let whole = if nearest { Intrin::NearbyInt } else { Intrin::Floor };
        let whole = |i: &[PrimExpr]| p.at(i).call1(whole);
        let base = k.compute(&format!("element_{letter}"), &shape, DType::I64, |i| whole(i).cast(DType::I64));
        let behind = (!nearest).then(|| k.compute(&format!("behind_{letter}"), &shape, real, |i| p.at(i) - whole(i)));
        (base, behind)
    };
    let elements: Vec<(Buffer, Option<Buffer>)> = match bicubic {
        true => vec![],
        false => positions.iter().zip(layout::spatial(rank).chars()).map(|p| near(&mut k, p)).collect(),
    };
    // And these are whole floats.
    let there = axes.iter().all(|a| a.size.as_int().is_some_and(|n| (1..1 << 23).contains(&n)));
    if there && !bicubic {
        return from_tables(cx, k, &axes, &positions, &elements, &shape, channel, x);
    }
    let y = k.compute("grid_sample", out.dims, out.dtype, |i| {
        let mut at = i.to_vec();
        at.remove(channel);
        let taps: Vec<_> = match bicubic {
            true => axes.iter().zip(&positions).map(|(a, p)| a.taps(p.at(at.clone()))).collect(),
            false => axes
                .iter()
                .zip(&elements)
                .map(|(a, (e, b))| a.beside(e.at(at.clone()), b.as_ref().map(|b| b.at(at.clone()))))
                .collect(),
        };
        let source = |at: &[PrimExpr]| {
            let mut index = vec![i[0].clone()];
            let mut inside = PrimExpr::bool(true);
            let both = |a: PrimExpr, b: PrimExpr| if there { a.select(b, PrimExpr::bool(false)) } else { a.and(b) };
            for (a, p) in axes.iter().zip(at) {
                inside = both(inside, both(p.clone().ge(0), p.clone().lt(a.size.clone())));
                index.push(if there { p.clone().max(0).min(a.size.clone() - 1) } else { p.clone() });
            }
            index.insert(channel, i[channel].clone());
            // Where there are elements at all one can be read in any case.
            let (value, zero) = (x.at(index).cast(real), PrimExpr::zero(real));
            if there {
                inside.select(value, zero)
            } else {
                inside.if_then_else(value, zero)
            }
        };
        if cx.attrs.str("method") == Some("nearest") {
            return source(&taps.iter().map(|t| t[0].0.clone()).collect::<Vec<_>>());
        }
        mix(&taps, &mut vec![], &source, &|v, w| v * w.clone())
    });
    Ok(k.finish(&[y]))
}

/// Samples of images that have elements: which one each tap reads, and its weight, are tables for all channels. The
/// weight of what lies outside is infinite, which no other is.
#[allow(clippy::too_many_arguments)]
fn from_tables(
    cx: &ComputeCx,
    mut k: KernelBuilder,
    axes: &[Axis],
    positions: &[Buffer],
    elements: &[(Buffer, Option<Buffer>)],
    shape: &[PrimExpr],
    channel: usize,
    x: &Buffer,
) -> Result<PrimFunc, Diagnostic> {
    let out = cx.result()?;
    let mut tables: Vec<Vec<(Buffer, Buffer)>> = vec![];
    for (n, (axis, (element, behind))) in axes.iter().zip(elements).enumerate() {
        let position = &positions[n];
        let whole = if behind.is_some() { Intrin::Floor } else { Intrin::NearbyInt };
        let taps = |i: &[PrimExpr]| axis.beside(element.at(i), behind.as_ref().map(|b| b.at(i)));
        let count = if behind.is_some() { 2 } else { 1 };
        let table = |t: usize| {
            let at = k.compute(&format!("tap_{n}_{t}"), shape, DType::I64, |i| {
                taps(i)[t].0.clone().max(0).min(axis.size.clone() - 1)
            });
            let weight = k.compute(&format!("weight_{n}_{t}"), shape, axis.real, |i| {
                // Whole floats, so that no vector has numbers of two sizes.
                let at = position.at(i).call1(whole) + axis.float(t as f64);
                let size = axis.size.clone().cast(axis.real);
                let outside = at.clone().lt(axis.float(0.0)).select(PrimExpr::bool(true), at.ge(size));
                outside.select(axis.float(f64::INFINITY), taps(i)[t].1.clone())
            });
            (at, weight)
        };
        tables.push((0..count).map(table).collect());
    }
    let y = k.compute("grid_sample", out.dims, out.dtype, |i| {
        let mut point = i.to_vec();
        point.remove(channel);
        let taps: Vec<Vec<_>> = (tables.iter())
            .map(|axis| axis.iter().map(|(at, weight)| (at.at(point.clone()), weight.at(point.clone()))).collect())
            .collect();
        let source = |at: &[PrimExpr]| {
            let mut index = [&i[..1], at].concat();
            index.insert(channel, i[channel].clone());
            x.at(index).cast(axes[0].real)
        };
        let weighted = |v: PrimExpr, w: &PrimExpr| {
            let outside = w.clone().eq(axes[0].float(f64::INFINITY));
            outside.select(axes[0].float(0.0), v * w.clone())
        };
        mix(&taps, &mut vec![], &source, &weighted)
    });
    Ok(k.finish(&[y]))
}

/// The weighted sum over the taps of the axes from number `at.len()` on.
fn mix(
    taps: &[Vec<(PrimExpr, PrimExpr)>],
    at: &mut Vec<PrimExpr>,
    source: &dyn Fn(&[PrimExpr]) -> PrimExpr,
    weighted: &dyn Fn(PrimExpr, &PrimExpr) -> PrimExpr,
) -> PrimExpr {
    let Some(axis) = taps.get(at.len()) else { return source(at) };
    let mut sum: Option<PrimExpr> = None;
    for (p, w) in axis {
        at.push(p.clone());
        let term = weighted(mix(taps, at, source, weighted), w);
        at.pop();
        sum = Some(match sum {
            Some(s) => s + term,
            None => term,
        });
    }
    sum.unwrap_or(PrimExpr::f32(0.0))
}

fn infer_affine_grid(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    cx.require_float(0, x.dtype)?;
    rules::require_ndim(cx, 0, 3)?;
    let (size, ndim) = cx.shape_operand(1)?;
    if ndim.is_some_and(|n| n != 2 && n != 3) {
        return Err(cx.error("size must have 2 or 3 values"));
    }
    let (Some(dims), Some(size)) = (x.known_dims(), size) else {
        return Ok(rules::unknown(ndim.map(|n| n + 2), x.dtype));
    };
    let rank = size.len() as i64;
    for (dim, wanted) in [(&dims[1], rank), (&dims[2], rank + 1)] {
        cx.require_eq(dim, &PrimExpr::i64(wanted), || {
            format!("data must be (n, {rank}, {}) for {rank} spatial dims, a dim is {}", rank + 1, dim_text(dim))
        })?;
    }
    if cx.attrs.bool("align_corners").unwrap_or(true) {
        for s in &size {
            cx.require(s.clone().gt(1), || format!("with align_corners a size of {} is too small", dim_text(s)))?;
        }
    }
    Ok(rules::known([vec![dims[0].clone(), PrimExpr::i64(rank)], size].concat(), x.dtype))
}

fn affine_grid(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let out = cx.result()?;
    let (mut k, x) = cx.kernel()?;
    let acc = wide_dtype(out.dtype);
    let size = &out.dims[2..];
    let corners = cx.attrs.bool("align_corners").unwrap_or(true);
    // (start, step) of each spatial axis.
    let steps: Vec<(PrimExpr, PrimExpr)> = size
        .iter()
        .map(|s| {
            let float = |v: f64| PrimExpr::float(acc, v);
            match (s.as_int(), corners) {
                (Some(s), true) => (float(-1.0), float((2.0 - 1e-7) / (s - 1).max(1) as f64)),
                (Some(s), false) => (float(-1.0 + 1.0 / s as f64), float(2.0 / s as f64)),
                (None, true) => (float(-1.0), float(2.0 - 1e-7) / (s.clone() - 1).max(1).cast(acc)),
                (None, false) => {
                    let s = s.clone().cast(acc);
                    (float(-1.0) + float(1.0) / s.clone(), float(2.0) / s)
                }
            }
        })
        .collect();
    let y = k.compute("affine_grid", out.dims, out.dtype, |i| {
        let rank = size.len();
        let entry = |c: usize| x[0].at([i[0].clone(), i[1].clone(), PrimExpr::i64(c as i64)]).cast(acc);
        let mut v = entry(rank);
        for (n, (start, step)) in steps.iter().enumerate() {
            let at = start.clone() + i[n + 2].clone().cast(acc) * step.clone();
            v = v + entry(rank - 1 - n) * at;
        }
        v
    });
    Ok(k.finish(&[y]))
}
