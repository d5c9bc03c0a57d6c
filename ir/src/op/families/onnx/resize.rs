//! Resizing along one axis: `Resize` is separable, so the importer resizes axis by axis.

use super::{bind, cell, each, local, set};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, wide, wide_dtype};
use crate::op::families::rules;
use crate::op::rule::scalar_value;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::StructInfo;
use crate::tir::{Buffer, KernelBuilder, PrimFunc, Stmt};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
    "onnx.resize",
    "Resizes `x` to `dims` along `axes` at once, by scales that are only known at run time: `params` holds scale, start and end of the region for each of `axes`. Attributes as of `onnx.resize_axis`. Source: ONNX `Resize` and its reference implementation.",
    &[
        operand("x"),
        operand("params"),
        operand("dims"),
        attr("axes", Default::Required),
        attr("mode", Default::Str("nearest")),
        attr("coordinates", Default::Str("half_pixel")),
        attr("nearest", Default::Str("round_prefer_floor")),
        attr("cubic_a", Default::Float(-0.75)),
        attr("exclude_outside", Default::Bool(false)),
        attr("antialias", Default::Bool(false)),
        attr("extrapolation", Default::Float(0.0)),
    ],
    infer_all,
    Compute::Kernel(compute_all),
)
.ulp(16),
    OpDecl::pure(
    "onnx.resize_axis",
    "Resizes `x` along `axis` to `size` elements. `params` is a float64 vector: the scale and, for `tf_crop_and_resize`, start and end of the region in units of the axis. `mode` is `nearest`, `linear` or `cubic`; `antialias` widens the filter when the axis shrinks. Source: ONNX `Resize` and its reference implementation.",
    &[
        operand("x"),
        operand("params"),
        operand("size"),
        attr("axis", Default::Int(0)),
        attr("mode", Default::Str("nearest")),
        attr("coordinates", Default::Str("half_pixel")),
        attr("nearest", Default::Str("round_prefer_floor")),
        attr("cubic_a", Default::Float(-0.75)),
        attr("exclude_outside", Default::Bool(false)),
        attr("antialias", Default::Bool(false)),
        attr("extrapolation", Default::Float(0.0)),
    ],
    infer,
    Compute::Kernel(compute),
)
.ulp(16),
];

const F: DType = DType::F64;

fn f(v: f64) -> PrimExpr {
    PrimExpr::float(F, v)
}

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    let size = scalar_value(cx.args.get(2), cx.infos.get(2));
    let Some(n) = x.ndim else { return Ok(StructInfo::Tensor(x.with_dims(None, None))) };
    let axis = cx.axis(cx.int("axis")?, n)?;
    let dims = match (x.known_dims(), size) {
        (Some(d), Some(size)) => {
            let mut d = d.to_vec();
            d[axis] = size.cast(DType::I64);
            Some(d)
        }
        _ => None,
    };
    Ok(StructInfo::Tensor(x.with_dims(dims, Some(n))))
}

/// The position in `n` elements of element `o` of the result; scale, start and end stand in `params` from `first` on.
fn position(cx: &ComputeCx, params: &Buffer, first: i64, o: &PrimExpr, n: &PrimExpr, size: &PrimExpr) -> PrimExpr {
    let scale = || cell(params, first);
    let (x, n, size) = (o.clone().cast(F), n.clone().cast(F), size.clone().cast(F));
    let width = || scale() * n.clone();
    let half = |x: PrimExpr| (x + f(0.5)) / scale() - f(0.5);
    match cx.attrs.str("coordinates").unwrap_or("half_pixel") {
        "asymmetric" => x / scale(),
        "align_corners" => width().eq(f(1.0)).select(f(0.0), x * (n.clone() - f(1.0)) / (width() - f(1.0))),
        "pytorch_half_pixel" => width().eq(f(1.0)).select(f(-0.5), half(x)),
        "half_pixel_symmetric" => n.clone() / f(2.0) * (f(1.0) - size / width()) + half(x),
        "tf_half_pixel_for_nn" => (x + f(0.5)) / scale(),
        "tf_crop_and_resize" => {
            let (from, to) = (cell(params, first + 1), cell(params, first + 2));
            let last = n.clone() - f(1.0);
            let extent = (to - from.clone()) * last.clone();
            let middle = extent.clone() / f(2.0);
            width().eq(f(1.0)).select(middle, x * extent / (width() - f(1.0))) + from * last
        }
        _ => half(x),
    }
}

/// The weight of an element at distance `d` (not negative).
fn weight(cubic: bool, a: f64, d: PrimExpr) -> PrimExpr {
    if !cubic {
        return (f(1.0) - d).max(f(0.0));
    }
    let near = ((d.clone() * f(a + 2.0) - f(a + 3.0)) * d.clone() * d.clone()) + f(1.0);
    let far = ((d.clone() * f(a) - f(5.0 * a)) * d.clone() + f(8.0 * a)) * d.clone() - f(4.0 * a);
    d.clone().le(f(1.0)).select(near, d.lt(f(2.0)).select(far, f(0.0)))
}

/// The element that `nearest` takes for position `p`.
fn rounded(how: &str, p: PrimExpr) -> PrimExpr {
    let low = p.clone().call1(Intrin::Floor);
    let rest = p.clone() - low.clone();
    let up = low.clone() + f(1.0);
    let whole = match how {
        "floor" => low,
        "ceil" => p.call1(Intrin::Ceil),
        "round_prefer_ceil" => rest.lt(f(0.5)).select(low, up),
        _ => rest.le(f(0.5)).select(low, up),
    };
    whole.cast(DType::I64)
}

fn infer_all(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    let (dims, n) = cx.shape_operand(2)?;
    if let (Some(n), Some(r)) = (n, x.ndim) {
        if n != r {
            return Err(cx.error(format!("{n} dims for a tensor of {r}")));
        }
        cx.axes("axes", r)?;
    }
    Ok(StructInfo::Tensor(x.with_dims(dims, n)))
}

/// What the loops over taps share.
struct All<'a> {
    cx: &'a ComputeCx<'a>,
    x: &'a Buffer,
    params: &'a Buffer,
    axes: Vec<usize>,
    out: &'a [PrimExpr],
    acc: DType,
    /// By axis: the weighted sum and the sum of weights; then the value of each level.
    sums: Buffer,
    values: Buffer,
}

impl All<'_> {
    /// Leaves in `values[level]` the value at `i` for the places in `at` of the axes before `level`.
    fn level(&self, level: usize, i: &[PrimExpr], at: Vec<PrimExpr>) -> Stmt {
        let result = |v: PrimExpr| set(&self.values, level as i64, v);
        let Some(&axis) = self.axes.get(level) else {
            return result(wide(self.x.at(at)).cast(self.acc));
        };
        let (n, attrs) = (self.x.shape[axis].clone(), self.cx.attrs);
        let p = position(self.cx, self.params, 3 * level as i64, &i[axis], &n, &self.out[axis]);
        let scale = cell(self.params, 3 * level as i64);
        let mode = attrs.str("mode").unwrap_or("nearest");
        let (sum, total) = (2 * level as i64, 2 * level as i64 + 1);
        let inner = |q: &PrimExpr| {
            let mut at = at.clone();
            at[axis] = q.clone().max(PrimExpr::i64(0)).min(n.clone() - 1);
            self.level(level + 1, i, at)
        };
        let below = cell(&self.values, level as i64 + 1);
        let body = bind("position", p, |p| {
            let sample = if mode == "nearest" {
                let how = attrs.str("nearest").unwrap_or("round_prefer_floor");
                bind("place", rounded(how, p.clone()), |q| Stmt::seq(vec![inner(q), result(below.clone())]))
            } else {
                let cubic = mode == "cubic";
                let a = attrs.float("cubic_a").unwrap_or(-0.75);
                let exclude = attrs.bool("exclude_outside").unwrap_or(false);
                let support = if cubic { 2.0 } else { 1.0 };
                let narrow = if attrs.bool("antialias") == Some(true) { scale.clone().min(f(1.0)) } else { f(1.0) };
                let walk = bind("narrow", narrow, |s| {
                    bind("reach", (f(support) / s.clone()).call1(Intrin::Ceil).cast(DType::I64), |reach| {
                        let low = p.clone().call1(Intrin::Floor).cast(DType::I64) - reach.clone();
                        each(&(reach.clone() * 2 + 2), "t", |t| {
                            bind("place", low + t.clone(), |q| {
                                let distance = (p.clone() - q.clone().cast(F)).call1(Intrin::Fabs) * s.clone();
                                bind("w", weight(cubic, a, distance), |w| {
                                    let inside = q.clone().ge(0).and(q.clone().lt(n.clone()));
                                    let used = w.clone().ne(f(0.0));
                                    let used = if exclude { used.and(inside) } else { used };
                                    let add = Stmt::seq(vec![
                                        inner(q),
                                        set(&self.sums, sum, cell(&self.sums, sum) + w.clone() * below.clone().cast(F)),
                                        set(&self.sums, total, cell(&self.sums, total) + w.clone()),
                                    ]);
                                    Stmt::if_then(used, add)
                                })
                            })
                        })
                    })
                });
                let v = cell(&self.sums, sum) / cell(&self.sums, total);
                Stmt::seq(vec![
                    set(&self.sums, sum, f(0.0)),
                    set(&self.sums, total, f(0.0)),
                    walk,
                    result(v.cast(self.acc)),
                ])
            };
            if attrs.str("coordinates") != Some("tf_crop_and_resize") {
                return sample;
            }
            let outside = p.clone().lt(f(0.0)).or(p.clone().gt(n.clone().cast(F) - f(1.0)));
            let e = attrs.float("extrapolation").unwrap_or(0.0);
            Stmt::if_else(outside, result(PrimExpr::float(self.acc, e)), sample)
        });
        body
    }
}

fn compute_all(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, params) = (&inputs[0], &inputs[1]);
    let out = cx.result()?;
    let axes = cx.axes("axes", x.ndim())?.ok_or_else(|| cx.error("axes must be integers"))?;
    let wide_x = wide_dtype(x.dtype());
    let nearest = cx.attrs.str("mode") == Some("nearest");
    let acc = if nearest || wide_x.is_float() { wide_x } else { F };
    let n = axes.len() as i64;
    let sums = Buffer::new("sums", vec![PrimExpr::i64(2 * n)], F);
    let values = Buffer::new("values", vec![PrimExpr::i64(n + 1)], acc);
    let all = All { cx, x, params, axes, out: out.dims, acc, sums: sums.clone(), values: values.clone() };
    let y = k.buffer("resize", out.dims, out.dtype);
    k.rows("resize", out.dims, |i| {
        let body = all.level(0, i, i.to_vec());
        let body = Stmt::seq(vec![body, Stmt::store(&y, i.to_vec(), convert(cell(&values, 0), out.dtype))]);
        local(&sums, local(&values, body))
    });
    Ok(k.finish(&[y]))
}

struct Resize<'a> {
    x: &'a Buffer,
    axis: usize,
    n: PrimExpr,
    /// Positions, by element of the result along the axis.
    at: Buffer,
    /// What stands where the position is outside, and only then (`tf_crop_and_resize`).
    outside: Option<f64>,
    acc: DType,
}

impl Resize<'_> {
    /// The element that stands for place `p`: the border where that is outside.
    fn limited(&self, p: PrimExpr) -> PrimExpr {
        p.max(PrimExpr::i64(0)).min(self.n.clone() - 1)
    }

    /// Element `p` along the axis, which is one of it.
    fn element(&self, i: &[PrimExpr], p: PrimExpr) -> PrimExpr {
        let mut at = i.to_vec();
        at[self.axis] = p;
        wide(self.x.at(at)).cast(self.acc)
    }

    fn guarded(&self, i: &[PrimExpr], v: PrimExpr) -> PrimExpr {
        match self.outside {
            None => v,
            Some(e) => {
                let p = self.at.at([i[self.axis].clone()]);
                let out = p.clone().lt(f(0.0)).or(p.gt(self.n.clone().cast(F) - f(1.0)));
                out.select(PrimExpr::float(v.dtype(), e), v)
            }
        }
    }

    fn inside(&self, p: &PrimExpr) -> PrimExpr {
        p.clone().ge(0).and(p.clone().lt(self.n.clone()))
    }
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, params) = (&inputs[0], &inputs[1]);
    let out = cx.result()?;
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(0), x.ndim())?;
    let n = x.shape[axis].clone();
    let size = out.dims[axis].clone();
    let line = [size.clone()];
    let at = k.compute("position", &line, F, |o| position(cx, params, 0, &o[0], &n, &size));
    let crop = cx.attrs.str("coordinates") == Some("tf_crop_and_resize");
    let outside = crop.then(|| cx.attrs.float("extrapolation").unwrap_or(0.0));
    let wide_x = wide_dtype(x.dtype());
    let nearest = cx.attrs.str("mode") == Some("nearest");
    let acc = if nearest || wide_x.is_float() { wide_x } else { F };
    let r = Resize { x, axis, n, at, outside, acc };
    if nearest {
        let how = cx.attrs.str("nearest").unwrap_or("round_prefer_floor");
        let index = k.compute("nearest", &line, DType::I64, |o| r.limited(rounded(how, r.at.at(o))));
        let y = k.compute("resize", out.dims, out.dtype, |i| {
            let v = r.element(i, index.at([i[axis].clone()]));
            convert(r.guarded(i, v), out.dtype)
        });
        return Ok(k.finish(&[y]));
    }
    let cubic = cx.attrs.str("mode") == Some("cubic");
    let a = cx.attrs.float("cubic_a").unwrap_or(-0.75);
    let exclude = cx.attrs.bool("exclude_outside").unwrap_or(false);
    let y = match cx.attrs.bool("antialias").unwrap_or(false) {
        true => smooth(&mut k, &r, params, out, cubic, a, exclude),
        false => taps(&mut k, &r, out, cubic, a, exclude),
    };
    Ok(k.finish(&[y]))
}

/// 2 or 4 neighbours, with a table of their weights.
fn taps(k: &mut KernelBuilder, r: &Resize, out: TensorArg, cubic: bool, a: f64, exclude: bool) -> Buffer {
    let count: i64 = if cubic { 4 } else { 2 };
    let line = [out.dims[r.axis].clone()];
    let first =
        k.compute("first", &line, DType::I64, |o| r.at.at(o).call1(Intrin::Floor).cast(DType::I64) - (count / 2 - 1));
    let raw = |o: &PrimExpr, t: PrimExpr| {
        let p = first.at([o.clone()]) + t;
        let distance = (r.at.at([o.clone()]) - p.clone().cast(F)).call1(Intrin::Fabs);
        let w = weight(cubic, a, distance);
        if exclude {
            r.inside(&p).select(w, f(0.0))
        } else {
            w
        }
    };
    let table = [line[0].clone(), PrimExpr::i64(count)];
    let weights = k.compute("weights", &table, r.acc, |i| {
        let w = raw(&i[0], i[1].clone());
        if !exclude {
            return w.cast(r.acc);
        }
        let total = (0..count).fold(f(0.0), |s, t| s + raw(&i[0], PrimExpr::i64(t)));
        (w / total).cast(r.acc)
    });
    let places: Vec<Buffer> =
        (0..count).map(|t| k.compute("place", &line, DType::I64, |o| r.limited(first.at(o) + t))).collect();
    k.compute("resize", out.dims, out.dtype, |i| {
        let o = i[r.axis].clone();
        let sum = places.iter().enumerate().map(|(t, place)| {
            let w = weights.at([o.clone(), PrimExpr::i64(t as i64)]);
            w * r.element(i, place.at([o.clone()]))
        });
        let sum = sum.reduce(|a, b| a + b).unwrap_or_else(|| PrimExpr::zero(r.acc));
        convert(r.guarded(i, sum), out.dtype)
    })
}

/// A filter that is as wide as the scale asks for: weights are summed on the way.
fn smooth(
    k: &mut KernelBuilder,
    r: &Resize,
    params: &Buffer,
    out: TensorArg,
    cubic: bool,
    a: f64,
    exclude: bool,
) -> Buffer {
    let support = if cubic { 2.0 } else { 1.0 };
    let y = k.buffer("resize", out.dims, out.dtype);
    let sums = Buffer::new("sums", vec![PrimExpr::i64(2)], F);
    k.rows("resize", out.dims, |i| {
        let p = r.at.at([i[r.axis].clone()]);
        let body = bind("scale", cell(params, 0).min(f(1.0)), |s| {
            bind("reach", (f(support) / s.clone()).call1(Intrin::Ceil).cast(DType::I64), |reach| {
                bind("low", p.clone().call1(Intrin::Floor).cast(DType::I64) - reach.clone(), |low| {
                    let walk = each(&(reach.clone() * 2 + 2), "t", |t| {
                        bind("place", low.clone() + t.clone(), |q| {
                            let distance = (p.clone() - q.clone().cast(F)).call1(Intrin::Fabs) * s.clone();
                            bind("w", weight(cubic, a, distance), |w| {
                                let v = w.clone() * r.element(i, r.limited(q.clone())).cast(F);
                                let add = Stmt::seq(vec![
                                    set(&sums, 0, cell(&sums, 0) + v),
                                    set(&sums, 1, cell(&sums, 1) + w.clone()),
                                ]);
                                if exclude {
                                    Stmt::if_then(r.inside(q), add)
                                } else {
                                    add
                                }
                            })
                        })
                    });
                    let v = cell(&sums, 0) / cell(&sums, 1);
                    Stmt::seq(vec![
                        set(&sums, 0, f(0.0)),
                        set(&sums, 1, f(0.0)),
                        walk,
                        Stmt::store(&y, i.to_vec(), convert(r.guarded(i, v), out.dtype)),
                    ])
                })
            })
        });
        local(&sums, body)
    });
    y
}
