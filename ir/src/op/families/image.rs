//! Resizing of images and volumes.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::families::conv::layout_over;
use crate::op::families::layout::{self, Layout};
use crate::op::families::rules;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::StructInfo;
use crate::tir::{Buffer, KernelBuilder, PrimFunc};

const DOC: &str = "Resizes the spatial dims to `size` by `nearest_neighbor`, `linear` or `cubic` interpolation in float32. `coordinate_transformation_mode` says which input position an output element has (`half_pixel`, `align_corners`, `asymmetric`, `pytorch_half_pixel`, `tf_half_pixel_for_nn`, `tf_crop_and_resize` with `roi` and `extrapolation_value`), `rounding_method` which element `nearest_neighbor` takes. Source: ONNX `Resize`, TVM `topi.image.resize`.";

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "image.resize2d",
        DOC,
        &[
            operand("data"),
            operand("size"),
            attr("roi", Default::None),
            attr("layout", Default::Str("NCHW")),
            attr("method", Default::Str("linear")),
            attr("coordinate_transformation_mode", Default::Str("half_pixel")),
            attr("rounding_method", Default::Str("round")),
            attr("cubic_alpha", Default::Float(-0.75)),
            attr("cubic_exclude", Default::Int(0)),
            attr("extrapolation_value", Default::Float(0.0)),
            attr("out_dtype", Default::None),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(8),
    OpDecl::pure(
        "image.resize3d",
        DOC,
        &[
            operand("data"),
            operand("size"),
            attr("roi", Default::None),
            attr("layout", Default::Str("NCDHW")),
            attr("method", Default::Str("linear")),
            attr("coordinate_transformation_mode", Default::Str("half_pixel")),
            attr("rounding_method", Default::Str("")),
            attr("cubic_alpha", Default::Float(-0.75)),
            attr("cubic_exclude", Default::Int(0)),
            attr("extrapolation_value", Default::Float(0.0)),
            attr("out_dtype", Default::None),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(8),
];

const MODES: [&str; 6] =
    ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn", "tf_crop_and_resize"];
const ROUNDINGS: [&str; 6] = ["", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"];

fn layout_of(name: &str, attrs: &crate::attrs::Attrs) -> Result<(Layout, &'static str), String> {
    let axes = layout::spatial(layout::rank_of(name));
    Ok((layout_over("layout", attrs.str("layout").unwrap_or(""), "NC", axes)?, axes))
}

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (layout, axes) = layout_of(&cx.op.name[6..], cx.attrs).map_err(|e| cx.error(e))?;
    let x = rules::tensor(cx, 0)?;
    let dtype = cx.dtype("out_dtype")?.or(x.dtype);
    rules::require_ndim(cx, 0, layout.rank())?;
    let allowed: [(&str, &[&str]); 3] = [
        ("method", &["nearest_neighbor", "linear", "cubic"]),
        ("coordinate_transformation_mode", &MODES),
        ("rounding_method", &ROUNDINGS),
    ];
    for (name, values) in allowed {
        let v = cx.attrs.str(name).unwrap_or("");
        if !values.contains(&v) {
            return Err(cx.error(format!("{name} is \"{v}\", it must be one of {}", values.join(", "))));
        }
    }
    let number = matches!(cx.infos.get(1), Some(StructInfo::Prim { dtype, .. }) if dtype.is_int() || dtype.is_bool());
    if let Some(list) = cx.attrs.get("roi").and_then(|v| v.as_list()).filter(|l| l.len() < 2 * axes.len()) {
        return Err(cx.error(format!("roi must have {} numbers, it has {}", 2 * axes.len(), list.len())));
    }
    let (size, ndim) = match cx.scalar(1).filter(|_| number) {
        Some(v) => (Some(vec![v.cast(DType::I64); axes.len()]), Some(axes.len())),
        None => cx.shape_operand(1)?,
    };
    if ndim.is_some_and(|n| n != axes.len()) {
        return Err(cx.error(format!("size must have {} values", axes.len())));
    }
    let (Some(dims), Some(size)) = (x.known_dims(), size) else {
        return Ok(rules::unknown(Some(layout.rank()), dtype));
    };
    let out = layout.dims(|a| match axes.find(a) {
        Some(i) => size[i].clone(),
        None => layout.size(dims, a),
    });
    Ok(rules::known(out.into_iter().map(|d| cx.simplify(d)).collect(), dtype))
}

/// One spatial axis of the resize.
struct Axis<'a> {
    cx: &'a ComputeCx<'a>,
    input: PrimExpr,
    output: PrimExpr,
    /// Begin and end of the region of interest.
    roi: (f64, f64),
    real: DType,
}

impl Axis<'_> {
    fn mode(&self) -> &str {
        self.cx.attrs.str("coordinate_transformation_mode").unwrap_or("")
    }

    fn float(&self, v: f64) -> PrimExpr {
        PrimExpr::float(self.real, v)
    }

    /// `a / b` of two sizes, rounded once when they are known.
    fn ratio(&self, a: PrimExpr, b: PrimExpr) -> PrimExpr {
        match (a.as_int(), b.as_int()) {
            (Some(x), Some(y)) => self.float(x as f64 / y as f64),
            _ => a.cast(self.real) / b.cast(self.real),
        }
    }

    /// The position in the input of output element `i`.
    fn position(&self, i: &PrimExpr) -> PrimExpr {
        let x = i.clone().cast(self.real);
        let scale = self.ratio(self.input.clone(), self.output.clone());
        let half = || (x.clone() + self.float(0.5)) * scale.clone() - self.float(0.5);
        let spread = || self.ratio(self.input.clone() - 1, (self.output.clone() - 1).max(1));
        match self.mode() {
            "align_corners" => spread() * x,
            "asymmetric" => scale * x,
            "pytorch_half_pixel" => self.output.clone().gt(1).select(half(), self.float(0.0)),
            "tf_half_pixel_for_nn" => (x + self.float(0.5)) * scale,
            "tf_crop_and_resize" => {
                let (from, to) = self.roi;
                let last = (self.input.clone() - 1).cast(self.real);
                let many = self.float(from) * last.clone() + x * self.float(to - from) * spread();
                self.output.clone().gt(1).select(many, self.float(0.5 * (from + to)) * last)
            }
            _ => half(),
        }
    }

    /// The element that `nearest_neighbor` takes for output element `i`.
    fn nearest(&self, i: &PrimExpr) -> PrimExpr {
        let rounding = match (self.cx.attrs.str("rounding_method").unwrap_or(""), self.mode()) {
            ("", "align_corners") => "round",
            ("", _) => "floor",
            (r, _) => r,
        };
        if let (Some(a), Some(b)) = (self.input.as_int(), self.output.as_int()) {
            if self.mode() == "asymmetric" && rounding == "floor" && a > 0 && b % a == 0 {
                return i.clone().floor_div(b / a);
            }
        }
        let at = self.position(i);
        let at = match rounding {
            "round" => at.call1(Intrin::Round),
            "round_prefer_floor" => (at - self.float(0.5)).call1(Intrin::Ceil),
            "round_prefer_ceil" => (at + self.float(0.5)).call1(Intrin::Floor),
            // The same margin as TVM's against rounding errors of the position.
            "floor" => (at + self.float(1e-5)).call1(Intrin::Floor),
            _ => (at - self.float(1e-5)).call1(Intrin::Ceil),
        };
        self.clamp(at.cast(DType::I64))
    }

    fn clamp(&self, at: PrimExpr) -> PrimExpr {
        at.min(self.input.clone() - 1).max(0)
    }

    /// Stages with, per tap and output element, the input element and its weight.
    fn taps(&self, k: &mut KernelBuilder, name: char, taps: i64) -> Taps {
        let shape = [PrimExpr::i64(taps), self.output.clone()];
        let floor = |i: &PrimExpr| self.position(i).call1(Intrin::Floor);
        let lead = taps / 2 - 1;
        let at = k.compute(&format!("at_{name}"), &shape, DType::I64, |i| {
            self.clamp(floor(&i[1]).cast(DType::I64) + i[0].clone() - lead)
        });
        let table = k.compute(&format!("raw_weight_{name}"), &shape, self.real, |i| {
            let t = self.position(&i[1]) - floor(&i[1]);
            let mut weights = match taps {
                2 => vec![self.float(1.0) - t.clone(), t],
                _ => self.cubic(t),
            };
            if taps == 4 && self.cx.attrs.bool("cubic_exclude") == Some(true) {
                for (n, w) in weights.iter_mut().enumerate() {
                    let p = floor(&i[1]).cast(DType::I64) + (n as i64 - 1);
                    let outside = p.clone().lt(0).or(p.ge(self.input.clone()));
                    *w = outside.select(self.float(0.0), w.clone());
                }
                let sum = weights.iter().cloned().reduce(|a, b| a + b).unwrap_or(self.float(1.0));
                weights = weights.into_iter().map(|w| w / sum.clone()).collect();
            }
            let mut weights = weights.into_iter().enumerate().rev();
            let last = weights.next().map_or(self.float(1.0), |(_, w)| w);
            weights.fold(last, |rest, (n, w)| i[0].clone().eq(n as i64).select(w, rest))
        });
        Taps { at, weight: table, taps }
    }

    fn cubic(&self, t: PrimExpr) -> Vec<PrimExpr> {
        let alpha = self.cx.attrs.float("cubic_alpha").unwrap_or(-0.75);
        let c = |v: f64| self.float(v);
        let t2 = t.clone() * t.clone();
        let t3 = t2.clone() * t.clone();
        vec![
            c(alpha) * (t3.clone() - c(2.0) * t2.clone() + t.clone()),
            c(alpha + 2.0) * t3.clone() - c(3.0 + alpha) * t2.clone() + c(1.0),
            c(-(alpha + 2.0)) * t3.clone() + c(3.0 + 2.0 * alpha) * t2.clone() - c(alpha) * t,
            c(-alpha) * t3 + c(alpha) * t2,
        ]
    }

    /// Is the position of output element `i` within the input?
    fn inside(&self, i: &PrimExpr) -> PrimExpr {
        let at = self.position(i);
        at.clone().ge(self.float(0.0)).and(at.le((self.input.clone() - 1).cast(self.real)))
    }
}

struct Taps {
    at: Buffer,
    weight: Buffer,
    taps: i64,
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (layout, letters) = layout_of(&cx.op.name[6..], cx.attrs).map_err(|e| cx.error(e))?;
    let (input, out) = (cx.tensor(0)?, cx.result()?);
    let (mut k, x) = cx.kernel()?;
    let x = &x[0];
    let real = if input.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let roi: Vec<f64> = match cx.attrs.get("roi").and_then(|v| v.as_list()) {
        Some(v) => v.iter().map(|v| v.as_float().unwrap_or(0.0)).collect(),
        None => vec![],
    };
    let rank = letters.len();
    let axes: Vec<Axis> = letters
        .chars()
        .enumerate()
        .map(|(i, a)| {
            // TVM orders the region of a volume from the last axis to the first.
            let r = if rank == 3 { rank - 1 - i } else { i };
            let at = |j: usize| roi.get(j).copied().unwrap_or(0.0);
            let (input, output) = (layout.size(input.dims, a), layout.size(out.dims, a));
            Axis { cx, input, output, roi: (at(r), at(r + rank)), real }
        })
        .collect();
    let method = cx.attrs.str("method").unwrap_or("");
    let taps: Vec<Taps> = match method {
        "linear" | "cubic" => {
            let n = if method == "linear" { 2 } else { 4 };
            letters.chars().zip(&axes).map(|(a, axis)| axis.taps(&mut k, a, n)).collect()
        }
        _ => vec![],
    };
    let crop = cx.attrs.str("coordinate_transformation_mode") == Some("tf_crop_and_resize");
    let y = k.compute("resize", out.dims, out.dtype, |i| {
        let along = |n: usize| layout.along(i, letters.as_bytes()[n] as char);
        let source = |at: &[PrimExpr]| {
            x.at(layout.index(|a| match letters.find(a) {
                Some(n) => at[n].clone(),
                None => layout.along(i, a),
            }))
        };
        let value = if taps.is_empty() {
            source(&axes.iter().enumerate().map(|(n, a)| a.nearest(&along(n))).collect::<Vec<_>>())
        } else {
            mix(&taps, &along, &mut vec![], &|at| source(at).cast(real))
        };
        if !crop {
            return value;
        }
        let inside = axes.iter().enumerate().map(|(n, a)| a.inside(&along(n)));
        let inside = inside.reduce(|a, b| a.and(b)).unwrap_or(PrimExpr::bool(true));
        let other = PrimExpr::float(real, cx.attrs.float("extrapolation_value").unwrap_or(0.0));
        inside.select(value.clone(), other.cast(value.dtype()))
    });
    Ok(k.finish(&[y]))
}

/// The weighted sum over the taps of the axes from number `at.len()` on.
fn mix(
    taps: &[Taps],
    along: &dyn Fn(usize) -> PrimExpr,
    at: &mut Vec<PrimExpr>,
    source: &dyn Fn(&[PrimExpr]) -> PrimExpr,
) -> PrimExpr {
    let Some(axis) = taps.get(at.len()) else { return source(at) };
    let i = along(at.len());
    let mut sum: Option<PrimExpr> = None;
    for t in 0..axis.taps {
        let entry = [PrimExpr::i64(t), i.clone()];
        at.push(axis.at.at(entry.clone()));
        let term = mix(taps, along, at, source) * axis.weight.at(entry);
        at.pop();
        sum = Some(match sum {
            Some(s) => s + term,
            None => term,
        });
    }
    sum.unwrap_or(PrimExpr::f32(0.0))
}
