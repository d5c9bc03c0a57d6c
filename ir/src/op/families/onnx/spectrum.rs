//! Discrete Fourier transforms and determinants.

use super::{bind, cell, each, each_from, local, set};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, wide, wide_dtype};
use crate::op::families::rules;
use crate::op::rule::scalar_value;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::StructInfo;
use crate::tir::{Buffer, PrimFunc, Stmt};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "onnx.dft",
        "The discrete Fourier transform of length `length` along `axis`; the last dim of `x` holds real and imaginary parts, or real parts alone. `onesided` gives the first `length / 2 + 1` terms; with `inverse` too, it takes such terms and gives the `length` real values. Source: ONNX `DFT`.",
        &[
            operand("x"),
            operand("length"),
            attr("axis", Default::Int(1)),
            attr("inverse", Default::Bool(false)),
            attr("onesided", Default::Bool(false)),
        ],
        infer_dft,
        Compute::Kernel(dft),
    )
    .ulp(64),
    OpDecl::pure(
        "onnx.window",
        "The sum of `terms[k] * cos(2 pi k i / n)` for `i` below `size`, where `n` is `size`, one less when not `periodic`. Source: ONNX `HannWindow`, `HammingWindow`, `BlackmanWindow`.",
        &[
            operand("size"),
            attr("terms", Default::Required),
            attr("periodic", Default::Bool(true)),
            attr("dtype", Default::Str("float32")),
        ],
        infer_window,
        Compute::Kernel(window),
    )
    .ulp(16),
    OpDecl::pure(
        "onnx.stft",
        "The transforms of frames of `length` elements of `x (b, n, 1 or 2)` that begin every `step` elements, weighed by `window`: `(b, frames, terms, 2)`. `onesided` gives the first `length / 2 + 1` terms. Source: ONNX `STFT`.",
        &[
            operand("x"),
            operand("step"),
            operand("length"),
            optional("window"),
            attr("onesided", Default::Bool(true)),
        ],
        infer_stft,
        Compute::Kernel(stft),
    )
    .ulp(64),
    OpDecl::pure(
        "onnx.det",
        "The determinants of square matrices `(.., n, n)`. Source: ONNX `Det`.",
        &[operand("x")],
        infer_det,
        Compute::Kernel(det),
    )
    .ulp(64),
];

fn infer_dft(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    cx.require_float(0, x.dtype)?;
    let Some(n) = x.ndim else { return Ok(rules::unknown(None, x.dtype)) };
    let axis = cx.axis(cx.int("axis")?, n)?;
    if axis + 1 == n {
        return Err(cx.error("axis is the dim of real and imaginary parts"));
    }
    let (inverse, onesided) = (cx.attrs.bool("inverse") == Some(true), cx.attrs.bool("onesided") == Some(true));
    let length = scalar_value(cx.args.get(1), cx.infos.get(1)).map(|l| l.cast(DType::I64));
    let dims = match (x.known_dims(), length) {
        (Some(d), Some(l)) => {
            let mut d = d.to_vec();
            let real = inverse && onesided;
            d[axis] = if onesided && !inverse { l.floor_div(2) + 1 } else { l };
            d[n - 1] = PrimExpr::i64(if real { 1 } else { 2 });
            Some(d.into_iter().map(|e| cx.simplify(e)).collect())
        }
        _ => None,
    };
    Ok(StructInfo::Tensor(x.with_dims(dims, Some(n))))
}

fn dft(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let out = cx.result()?;
    let rank = x.ndim();
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(1), rank)?;
    let length = cx.scalar(1).ok_or_else(|| cx.error("length must be stated"))?.cast(DType::I64);
    let (inverse, onesided) = (cx.attrs.bool("inverse") == Some(true), cx.attrs.bool("onesided") == Some(true));
    let complex = match x.shape[rank - 1].as_int() {
        Some(1) => false,
        Some(2) => true,
        _ => return Err(cx.error("the last dim must be 1 or 2")),
    };
    let acc = wide_dtype(x.dtype());
    let line = [length.clone()];
    let angle = |i: &[PrimExpr], f: Intrin| {
        let turn = i[0].clone().cast(DType::F64) / length.clone().cast(DType::F64);
        (turn * PrimExpr::float(DType::F64, std::f64::consts::TAU)).call1(f).cast(acc)
    };
    // Tables take memory: not of a length that comes from data.
    let tables = length.as_int().map(|_| {
        let cos = k.compute("cos", &line, acc, |i| angle(i, Intrin::Cos));
        (cos, k.compute("sin", &line, acc, |i| angle(i, Intrin::Sin)))
    });
    let factors = |phase: PrimExpr| match &tables {
        Some((c, s)) => (c.at([phase.clone()]), s.at([phase])),
        None => (angle(&[phase.clone()], Intrin::Cos), angle(&[phase], Intrin::Sin)),
    };
    // A real result from one side: the other terms are the conjugates.
    let mirrored = inverse && onesided;
    let terms = x.shape[axis].clone();
    let used = if mirrored { length.clone() } else { terms.clone().min(length.clone()) };
    let sum = k.sum("terms", out.dims, acc, &[used], |i, t| {
        let phase = (i[axis].clone() * t[0].clone()).floor_mod(length.clone());
        let (c, s) = factors(phase);
        let half = length.clone().floor_div(2);
        let far = t[0].clone().gt(half);
        let place =
            if mirrored { far.clone().select(length.clone() - t[0].clone(), t[0].clone()) } else { t[0].clone() };
        let mut at = i.to_vec();
        at[axis] = place.clone();
        let part = |n: i64| {
            let mut at = at.clone();
            at[rank - 1] = PrimExpr::i64(n);
            let v = wide(x.at(at)).cast(acc);
            if mirrored {
                place.clone().lt(terms.clone()).if_then_else(v, PrimExpr::zero(acc))
            } else {
                v
            }
        };
        let re = part(0);
        let im = if complex { part(1) } else { PrimExpr::zero(acc) };
        let im = if mirrored { far.select(im.clone().neg(), im) } else { im };
        // (re + i im) (c -+ i s)
        let s = if inverse { s } else { s.neg() };
        let real = re.clone() * c.clone() - im.clone() * s.clone();
        if mirrored {
            return real;
        }
        i[rank - 1].clone().eq(0).select(real, re * s + im * c)
    });
    let y = k.compute("dft", out.dims, out.dtype, |i| {
        let v = sum.at(i);
        convert(if inverse { v / length.clone().cast(acc) } else { v }, out.dtype)
    });
    Ok(k.finish(&[y]))
}

fn infer_window(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let dtype = cx.dtype("dtype")?.unwrap_or(DType::F32);
    if !dtype.is_float() {
        return Err(cx.error(format!("dtype must be a float type, it is {dtype}")));
    }
    let size = scalar_value(cx.args.first(), cx.infos.first());
    Ok(match size {
        Some(n) => rules::known(vec![n.cast(DType::I64)], Some(dtype)),
        None => rules::unknown(Some(1), Some(dtype)),
    })
}

fn window(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, _) = cx.kernel()?;
    let out = cx.result()?;
    let f = DType::F64;
    let terms: Option<Vec<f64>> =
        cx.attrs.get("terms").and_then(|t| t.as_list()).map(|l| l.iter().filter_map(|v| v.as_float()).collect());
    let terms = terms.ok_or_else(|| cx.error("terms must be numbers"))?;
    let periodic = cx.attrs.bool("periodic").unwrap_or(true);
    let size = out.dims[0].clone();
    let n = if periodic { size } else { size - 1 };
    let y = k.compute("window", out.dims, out.dtype, |i| {
        let turn = i[0].clone().cast(f) / n.cast(f) * PrimExpr::float(f, std::f64::consts::TAU);
        let mut v = PrimExpr::zero(f);
        for (k, t) in terms.iter().enumerate() {
            let angle = turn.clone() * PrimExpr::float(f, k as f64);
            v = v + PrimExpr::float(f, *t) * angle.call1(Intrin::Cos);
        }
        convert(v, out.dtype)
    });
    Ok(k.finish(&[y]))
}

fn infer_stft(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    cx.require_float(0, x.dtype)?;
    rules::require_ndim(cx, 0, 3)?;
    let scalar = |cx: &InferCx, i: usize| scalar_value(cx.args.get(i), cx.infos.get(i)).map(|v| v.cast(DType::I64));
    let dims = match (x.known_dims(), scalar(cx, 1), scalar(cx, 2)) {
        (Some(d), Some(step), Some(length)) => {
            let frames = (d[1].clone() - length.clone()).floor_div(step) + 1;
            let terms = if cx.attrs.bool("onesided") == Some(false) { length } else { length.floor_div(2) + 1 };
            let dims = [d[0].clone(), frames, terms, PrimExpr::i64(2)];
            Some(dims.into_iter().map(|e| cx.simplify(e)).collect())
        }
        _ => None,
    };
    Ok(StructInfo::Tensor(x.with_dims(dims, Some(4))))
}

fn stft(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, window) = (&inputs[0], inputs.get(1));
    let out = cx.result()?;
    let stated = |i: usize, what: &str| {
        let v = cx.scalar(i).ok_or_else(|| cx.error(format!("{what} must be stated")))?;
        Ok::<_, Diagnostic>(v.cast(DType::I64))
    };
    let (step, length) = (stated(1, "step")?, stated(2, "length")?);
    let acc = wide_dtype(x.dtype());
    let complex = x.shape[2].is_int(2);
    let sum = k.sum("terms", out.dims, acc, std::slice::from_ref(&length), |i, t| {
        let at = i[1].clone() * step.clone() + t[0].clone();
        let part = |n: i64| wide(x.at([i[0].clone(), at.clone(), PrimExpr::i64(n)])).cast(acc);
        let phase = (i[2].clone() * t[0].clone()).floor_mod(length.clone()).cast(DType::F64);
        let turn = phase / length.clone().cast(DType::F64) * PrimExpr::float(DType::F64, std::f64::consts::TAU);
        let (c, s) = (turn.clone().call1(Intrin::Cos).cast(acc), turn.call1(Intrin::Sin).cast(acc));
        let re = part(0);
        let im = if complex { part(1) } else { PrimExpr::zero(acc) };
        let real = re.clone() * c.clone() + im.clone() * s.clone();
        let v = i[3].clone().eq(0).select(real, im * c - re * s);
        match window {
            Some(w) => v * wide(w.at([t[0].clone()])).cast(acc),
            None => v,
        }
    });
    let y = k.compute("stft", out.dims, out.dtype, |i| convert(sum.at(i), out.dtype));
    Ok(k.finish(&[y]))
}

fn infer_det(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    cx.require_float(0, x.dtype)?;
    let Some(n) = x.ndim else { return Ok(rules::unknown(None, x.dtype)) };
    if n < 2 {
        return Err(cx.error("x must have at least two dims"));
    }
    let dims = x.known_dims().map(<[PrimExpr]>::to_vec);
    if let Some(d) = &dims {
        cx.require_eq(&d[n - 2], &d[n - 1], || "the matrices are not square".into())?;
    }
    Ok(StructInfo::Tensor(x.with_dims(dims.map(|d| d[..n - 2].to_vec()), Some(n - 2))))
}

/// Elimination with the largest pivot of each column.
fn det(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let out = cx.result()?;
    let acc = wide_dtype(x.dtype());
    let n = x.shape[x.ndim() - 1].clone();
    let work = k.buffer("work", &x.shape, acc);
    let y = k.buffer("det", out.dims, out.dtype);
    let product = Buffer::new("product", vec![PrimExpr::i64(2)], acc);
    let pivot = Buffer::new("pivot", vec![PrimExpr::i64(1)], DType::I64);
    k.rows("det", out.dims, |row| {
        let at = |i: &PrimExpr, j: &PrimExpr| -> Vec<PrimExpr> {
            row.iter().cloned().chain([i.clone(), j.clone()]).collect()
        };
        let w = |i: &PrimExpr, j: &PrimExpr| work.at(at(i, j));
        let size = |v: PrimExpr| v.call1(Intrin::Fabs);
        let load = each(&n, "i", |i| each(&n, "j", |j| Stmt::store(&work, at(i, j), wide(x.at(at(i, j))).cast(acc))));
        let eliminate = each(&n, "c", |c| {
            let p = cell(&pivot, 0);
            let (below, largest) = (c.clone() + 1, cell(&product, 1));
            let find = each_from(&below, &n, "i", |i| {
                bind("size", size(w(i, c)), |s| {
                    let better = Stmt::seq(vec![set(&pivot, 0, i.clone()), set(&product, 1, s.clone())]);
                    Stmt::if_then(s.clone().gt(largest), better)
                })
            });
            // What is left of the diagonal is not read again.
            let swap = each_from(c, &n, "j", |j| {
                bind("kept", w(c, j), |kept| {
                    Stmt::seq(vec![Stmt::store(&work, at(c, j), w(&p, j)), Stmt::store(&work, at(&p, j), kept.clone())])
                })
            });
            let swap = Stmt::seq(vec![swap, set(&product, 0, cell(&product, 0).neg())]);
            // Rows are counted from the one below, so that they are seen to be others.
            let clear = each(&(n.clone() - below.clone()), "i", |i| {
                let i = below.clone() + i.clone();
                bind("factor", w(&i, c) / w(c, c), |f| {
                    each_from(&below, &n, "j", |j| Stmt::store(&work, at(&i, j), w(&i, j) - f.clone() * w(c, j)))
                })
            });
            Stmt::seq(vec![
                set(&pivot, 0, c.clone()),
                set(&product, 1, size(w(c, c))),
                find,
                Stmt::if_then(p.clone().ne(c.clone()), swap),
                set(&product, 0, cell(&product, 0) * w(c, c)),
                Stmt::if_then(w(c, c).ne(PrimExpr::zero(acc)), clear),
            ])
        });
        let body = Stmt::seq(vec![
            load,
            set(&product, 0, PrimExpr::one(acc)),
            eliminate,
            Stmt::store(&y, row.to_vec(), convert(cell(&product, 0), out.dtype)),
        ]);
        local(&product, local(&pivot, body))
    });
    Ok(k.finish(&[y]))
}
