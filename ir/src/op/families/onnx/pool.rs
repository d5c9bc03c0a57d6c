//! Pooling in any number of dims, with the positions of maxima, and normalisation over channels.

use super::axes::start;
use super::{bind, cell, local, set};
use crate::attrs::Attrs;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, flat_index, wide, wide_dtype};
use crate::op::families::rules;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr, Var};
use crate::relax::StructInfo;
use crate::tir::{Buffer, KernelBuilder, PrimFunc, Reducer, Stmt};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "onnx.pool",
        "Pooling of `(n, c, d1, ..)` over windows: `kind` is `max`, `avg` or `lp` (the `p`-norm). `padding` holds begins, then ends; `ceil_mode` rounds the number of windows up, as long as each starts inside. With `indices` the result is a tuple of the maxima and where in `x` they are (int64, row-major, or column-major within an image for `column_major`). Source: ONNX `MaxPool`, `AveragePool`, `LpPool`.",
        &[
            operand("x"),
            attr("kind", Default::Str("max")),
            attr("kernel", Default::Required),
            attr("strides", Default::Required),
            attr("padding", Default::Required),
            attr("dilation", Default::Required),
            attr("ceil_mode", Default::Bool(false)),
            attr("count_include_pad", Default::Bool(false)),
            attr("p", Default::Int(2)),
            attr("indices", Default::Bool(false)),
            attr("column_major", Default::Bool(false)),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(8),
    OpDecl::pure(
        "onnx.lrn",
        "`x / (bias + alpha / size * s) ** beta` where `s` is the sum of squares over `size` neighbouring channels. Source: ONNX `LRN`.",
        &[
            operand("x"),
            attr("size", Default::Required),
            attr("alpha", Default::Float(0.0001)),
            attr("beta", Default::Float(0.75)),
            attr("bias", Default::Float(1.0)),
        ],
        |cx| Ok(StructInfo::Tensor(rules::tensor(cx, 0)?)),
        Compute::Kernel(lrn),
    )
    .ulp(8),
];

struct Window {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    before: Vec<i64>,
    after: Vec<i64>,
    dilation: Vec<i64>,
    ceil: bool,
}

impl Window {
    fn read(attrs: &Attrs, rank: usize) -> Result<Window, String> {
        let list = |name: &str, n: usize| {
            let v = attrs.ints(name).filter(|v| v.len() == n);
            v.ok_or_else(|| format!("{name} must be {n} integers"))
        };
        let mut before = list("padding", 2 * rank)?;
        let after = before.split_off(rank);
        let w = Window {
            kernel: list("kernel", rank)?,
            strides: list("strides", rank)?,
            before,
            after,
            dilation: list("dilation", rank)?,
            ceil: attrs.bool("ceil_mode").unwrap_or(false),
        };
        let positive = w.kernel.iter().chain(&w.strides).chain(&w.dilation).all(|v| *v > 0);
        if !positive {
            return Err("kernel, strides and dilation must be positive".into());
        }
        Ok(w)
    }

    /// Windows over dim `d`, which has `size` elements.
    fn count(&self, d: usize, size: &PrimExpr) -> PrimExpr {
        let reach = self.dilation[d] * (self.kernel[d] - 1) + 1;
        let stride = self.strides[d];
        let room = size.clone() + (self.before[d] + self.after[d] - reach);
        if !self.ceil {
            return room.floor_div(stride) + 1;
        }
        let all = (room + (stride - 1)).floor_div(stride) + 1;
        all.min((size.clone() + (self.before[d] - 1)).floor_div(stride) + 1)
    }

    /// Where tap `t` of window `o` is in dim `d`.
    fn at(&self, d: usize, o: &PrimExpr, t: &PrimExpr) -> PrimExpr {
        o.clone() * self.strides[d] + (t.clone() * self.dilation[d] - self.before[d])
    }

    fn extents(&self) -> Vec<PrimExpr> {
        self.kernel.iter().map(|k| PrimExpr::i64(*k)).collect()
    }

    /// Places of a tap and whether they are all inside.
    fn place(&self, x: &Buffer, i: &[PrimExpr], t: &[PrimExpr]) -> (Vec<PrimExpr>, PrimExpr) {
        let mut at = i[..2].to_vec();
        let mut inside = PrimExpr::bool(true);
        for d in 0..t.len() {
            let p = self.at(d, &i[d + 2], &t[d]);
            if self.before[d] > 0 {
                inside = inside.and(p.clone().ge(0));
            }
            if self.after[d] > 0 || self.ceil {
                inside = inside.and(p.clone().lt(x.shape[d + 2].clone()));
            }
            at.push(p);
        }
        (at, inside)
    }
}

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    let n = cx.attrs.ints("kernel").map_or(0, |k| k.len());
    let w = Window::read(cx.attrs, n).map_err(|e| cx.error(e))?;
    rules::require_ndim(cx, 0, n + 2)?;
    let dims = x.known_dims().map(|d| {
        let windows = (0..n).map(|i| w.count(i, &d[i + 2]));
        d[..2].iter().cloned().chain(windows).collect::<Vec<_>>()
    });
    let dims = dims.map(|d| d.into_iter().map(|e| cx.simplify(e)).collect());
    let y = x.with_dims(dims, Some(n + 2));
    if !cx.attrs.bool("indices").unwrap_or(false) {
        return Ok(StructInfo::Tensor(y));
    }
    let index = StructInfo::Tensor(y.with_dtype(Some(DType::I64)));
    Ok(StructInfo::Tuple(vec![StructInfo::Tensor(y), index]))
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let n = x.ndim().saturating_sub(2);
    let w = Window::read(cx.attrs, n).map_err(|e| cx.error(e))?;
    let outs = cx.results()?;
    let (dims, dtype) = (outs[0].dims, outs[0].dtype);
    let acc = wide_dtype(x.dtype());
    let outputs = match cx.attrs.str("kind") {
        Some("max") if outs.len() == 2 => positions(cx, &mut k, x, &w, dims, acc),
        Some("max") => {
            let r = Reducer { init: start("max", acc), combine: &|a, b| a.max(b) };
            let m = k.reduce("max", dims, acc, &w.extents(), r, |i, t| {
                let (at, inside) = w.place(x, i, t);
                inside.if_then_else(wide(x.at(at)), start("max", acc))
            });
            vec![rules::narrow(&mut k, m, dtype)]
        }
        Some("avg") => vec![average(cx, &mut k, x, &w, dims, acc)],
        _ => {
            let p = cx.attrs.int("p").unwrap_or(2) as f64;
            let power = |v: PrimExpr, p: f64| match p {
                1.0 => v,
                2.0 => v.clone() * v,
                0.5 => v.call1(Intrin::Sqrt),
                p => PrimExpr::call(Intrin::Pow, [v, PrimExpr::float(acc, p)]),
            };
            let s = k.sum("norm", dims, acc, &w.extents(), |i, t| {
                let (at, inside) = w.place(x, i, t);
                inside.if_then_else(power(wide(x.at(at)).call1(Intrin::Abs), p), PrimExpr::zero(acc))
            });
            vec![k.compute("root", dims, dtype, |i| convert(power(s.at(i), 1.0 / p), dtype))]
        }
    };
    Ok(k.finish(&outputs))
}

/// Sums, divided by the number of taps: inside the image, or inside the padding too.
fn average(cx: &ComputeCx, k: &mut KernelBuilder, x: &Buffer, w: &Window, dims: &[PrimExpr], acc: DType) -> Buffer {
    let all = cx.attrs.bool("count_include_pad").unwrap_or(false);
    let counts: Vec<Buffer> = (0..w.kernel.len())
        .map(|d| {
            let (extent, taps) = ([dims[d + 2].clone()], [PrimExpr::i64(w.kernel[d])]);
            k.sum(&format!("count{d}"), &extent, acc, &taps, |o, t| {
                let p = w.at(d, &o[0], &t[0]);
                let (low, high) = if all { (-w.before[d], w.after[d]) } else { (0, 0) };
                let inside = p.clone().ge(low).and(p.lt(x.shape[d + 2].clone() + high));
                inside.select(PrimExpr::one(acc), PrimExpr::zero(acc))
            })
        })
        .collect();
    let sum = k.sum("sum", dims, acc, &w.extents(), |i, t| {
        let (at, inside) = w.place(x, i, t);
        inside.if_then_else(wide(x.at(at)), PrimExpr::zero(acc))
    });
    let dtype = x.dtype();
    k.compute("average", dims, dtype, |i| {
        let n = counts.iter().enumerate().fold(PrimExpr::one(acc), |n, (d, c)| n * c.at([i[d + 2].clone()]));
        convert(sum.at(i) / n, dtype)
    })
}

/// Maxima and where they are.
fn positions(
    cx: &ComputeCx,
    k: &mut KernelBuilder,
    x: &Buffer,
    w: &Window,
    dims: &[PrimExpr],
    acc: DType,
) -> Vec<Buffer> {
    let column_major = cx.attrs.bool("column_major").unwrap_or(false);
    let y = k.buffer("max", dims, x.dtype());
    let index = k.buffer("index", dims, DType::I64);
    let best = Buffer::new("best", vec![PrimExpr::i64(1)], acc);
    let found = Buffer::new("found", vec![PrimExpr::i64(1)], DType::I64);
    k.rows("positions", dims, |i| {
        let scan = super::nest(&w.extents(), "t", |t| {
            let (at, inside) = w.place(x, i, t);
            let flat = match column_major {
                false => flat_index(&at, &x.shape),
                true => {
                    let image = flat_index(&at[..2], &x.shape[..2]) * PrimExpr::product(&x.shape[2..]);
                    let (mut places, mut sizes) = (at[2..].to_vec(), x.shape[2..].to_vec());
                    places.reverse();
                    sizes.reverse();
                    image + flat_index(&places, &sizes)
                }
            };
            let test = bind("v", wide(x.at(at)), |v| {
                let better = v.clone().gt(cell(&best, 0)).or(cell(&found, 0).lt(0));
                Stmt::if_then(better, Stmt::seq(vec![set(&best, 0, v.clone()), set(&found, 0, flat)]))
            });
            Stmt::if_then(inside, test)
        });
        let body = Stmt::seq(vec![
            set(&best, 0, start("max", acc)),
            set(&found, 0, -1),
            scan,
            Stmt::store(&y, i.to_vec(), convert(cell(&best, 0), x.dtype())),
            Stmt::store(&index, i.to_vec(), cell(&found, 0)),
        ]);
        local(&best, local(&found, body))
    });
    vec![y, index]
}

/// `base ** beta`, for the usual 0.75 by roots: that of minus infinity is infinity, as of the power, and of -0.0 it is 0.0.
fn power(base: PrimExpr, beta: PrimExpr) -> PrimExpr {
    if beta.as_float() != Some(0.75) {
        return PrimExpr::call(Intrin::Pow, [base, beta]);
    }
    let d = base.dtype();
    let (x, root) = (Var::new("base", d), Var::new("root", d));
    let lowest = x.expr().eq(PrimExpr::float(d, f64::NEG_INFINITY));
    let square = lowest.select(PrimExpr::float(d, f64::INFINITY), (x.expr() + PrimExpr::zero(d)).call1(Intrin::Sqrt));
    let y = PrimExpr::let_in(root.clone(), square, root.expr() * root.expr().call1(Intrin::Sqrt));
    PrimExpr::let_in(x, base, y)
}

/// A window of open channels with more than these is clipped to them.
const MOST_CHANNELS: i64 = 64;

fn lrn(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    if x.ndim() < 2 {
        return Err(cx.error("x must have a channel dim"));
    }
    let size = cx.attrs.int("size").filter(|s| *s > 0).ok_or_else(|| cx.error("size must be positive"))?;
    let acc = wide_dtype(x.dtype());
    let f = |name: &str, default: f64| PrimExpr::float(acc, cx.attrs.float(name).unwrap_or(default));
    // No window has more channels than there are on either side of its own.
    let (before, after) = ((size - 1) / 2, size / 2);
    let (before, after) = match x.shape[1].as_int() {
        Some(n) => (before.min((n - 1).max(0)), after.min((n - 1).max(0))),
        None => (before, after),
    };
    let sides = match x.shape[1].as_int() {
        None if size > MOST_CHANNELS => {
            let last = x.shape[1].clone() - 1;
            let side = |n: i64| PrimExpr::i64(n).min(last.clone());
            (side(before), side(after))
        }
        _ => (PrimExpr::i64(before), PrimExpr::i64(after)),
    };
    let (before, after) = sides;
    let sum = k.sum("squares", &x.shape, acc, &[before.clone() + after + 1], |i, t| {
        let c = i[1].clone() + t[0].clone() - before.clone();
        let mut at = i.to_vec();
        at[1] = c.clone();
        let v = wide(x.at(at));
        c.clone().ge(0).and(c.lt(x.shape[1].clone())).if_then_else(v.clone() * v, PrimExpr::zero(acc))
    });
    let scale = PrimExpr::float(acc, cx.attrs.float("alpha").unwrap_or(0.0001) / size as f64);
    let y = k.compute("lrn", &x.shape, x.dtype(), |i| {
        convert(wide(x.at(i)) / power(f("bias", 1.0) + scale * sum.at(i), f("beta", 0.75)), x.dtype())
    });
    Ok(k.finish(&[y]))
}
