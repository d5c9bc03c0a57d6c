//! Padding and pixel shuffling.

use crate::diag::Diagnostic;
use crate::op::families::border::{outside, sides};
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::PrimFunc;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "nn.pad",
        "`data` with `pad_width[2 * i]` elements added before and `pad_width[2 * i + 1]` after dim `i`: mirrored without \
         the edge (\"reflect\"), the edge (\"replicate\") or the other end (\"circular\"), in any other mode a value. \
         Negative widths crop. Source: TVM `legalize_ops/nn.py`, `_nn_pad`.",
        &[
            operand("data"),
            attr("pad_width", Default::Required),
            attr("pad_mode", Default::Str("constant")),
            attr("pad_value", Default::Float(0.0)),
        ],
        infer_pad,
        Compute::Kernel(pad),
    ),
    OpDecl::pure(
        "nn.pixel_shuffle",
        "Channels to pixels: (.., C * r * r, H, W) becomes (.., C, H * r, W * r) for `upscale_factor` r.",
        &[operand("data"), attr("upscale_factor", Default::Required)],
        infer_shuffle,
        Compute::Kernel(shuffle),
    ),
];

/// Widths before and after each dim.
fn widths(attrs: &crate::Attrs, ndim: usize) -> Option<Vec<(i64, i64)>> {
    let w = attrs.ints("pad_width")?;
    (w.len() == 2 * ndim).then(|| w.chunks(2).map(|c| (c[0], c[1])).collect())
}

/// The modes that take the elements of `data`; any other adds a value.
const TAKING: &[&str] = &["reflect", "replicate", "circular"];

fn infer_pad(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let mode = cx.attrs.str("pad_mode").unwrap_or("constant").to_string();
    let Some(n) = t.ndim else { return Ok(StructInfo::Tensor(t.with_dims(None, None))) };
    let w = widths(cx.attrs, n)
        .ok_or_else(|| cx.error(format!("pad_width must have {} integers: two for each of {n} dims", 2 * n)))?;
    let Some(dims) = t.known_dims() else { return Ok(StructInfo::Tensor(t)) };
    let mut out = vec![];
    for (i, (d, (before, after))) in dims.iter().zip(&w).enumerate() {
        let most = PrimExpr::i64(*before.max(after));
        let (enough, text) = match mode.as_str() {
            "reflect" => (d.clone().gt(most.clone()), "more elements than are mirrored"),
            "circular" => (d.clone().ge(most.clone()), "as many elements as are taken from the other end"),
            _ => (PrimExpr::bool(true), ""),
        };
        if !most.is_int(0) {
            cx.require(enough, || format!("dim {i} must have {text}"))?;
        }
        out.push(cx.simplify(d.clone() + (before + after)));
    }
    Ok(StructInfo::Tensor(t.with_dims(Some(out), None)))
}

fn pad(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, out) = (&inputs[0], cx.result()?);
    let w = widths(cx.attrs, x.ndim()).ok_or_else(|| cx.error("pad_width must have two integers for each dim"))?;
    let mode = cx.attrs.str("pad_mode").unwrap_or("constant");
    let source =
        |i: &[PrimExpr]| -> Vec<PrimExpr> { i.iter().zip(&w).map(|(i, (before, _))| i.clone() - *before).collect() };
    if TAKING.contains(&mode) {
        let begin: Vec<i64> = w.iter().map(|p| p.0).collect();
        let continued = match mode {
            "circular" => "wrap",
            "replicate" => "edge",
            m => m,
        };
        if let Some(sides) = sides(continued, &begin, &x.shape, out.dims) {
            let y = k.compute("pad", out.dims, out.dtype, |i| outside(x, i, &sides, vec![]));
            return Ok(k.finish(&[y]));
        }
        let y = k.compute("pad", out.dims, out.dtype, |i| {
            let at = |p: &(i64, i64), i: PrimExpr, n: &PrimExpr| {
                let zero = PrimExpr::i64(0);
                match mode {
                    _ if *p == (0, 0) => i,
                    "reflect" => {
                        let i = i.clone().lt(zero.clone()).select(zero - i.clone(), i);
                        let mirrored = n.clone() * 2 - 2 - i.clone();
                        i.clone().lt(n.clone()).select(i, mirrored)
                    }
                    "circular" => {
                        let i = i.clone().lt(zero).select(i.clone() + n.clone(), i);
                        i.clone().lt(n.clone()).select(i.clone(), i - n.clone())
                    }
                    _ => i.max(zero).min(n.clone() - 1),
                }
            };
            let from = w.iter().zip(source(i)).zip(&x.shape);
            x.at(from.map(|((p, i), n)| at(p, i, n)).collect::<Vec<_>>())
        });
        return Ok(k.finish(&[y]));
    }
    let value = match cx.attrs.float("pad_value") {
        Some(v) if out.dtype.is_float() => PrimExpr::float(out.dtype, v),
        Some(v) => PrimExpr::int(out.dtype, v as i64),
        None => PrimExpr::zero(out.dtype),
    };
    if w.iter().any(|(a, b)| *a < 0 || *b < 0) {
        let y = k.compute("pad", out.dims, out.dtype, |i| {
            let from = source(i);
            let inside = from.iter().zip(&x.shape).fold(PrimExpr::bool(true), |all, (i, n)| {
                all.and(i.clone().ge(PrimExpr::i64(0))).and(i.clone().lt(n.clone()))
            });
            inside.if_then_else(x.at(from), value)
        });
        return Ok(k.finish(&[y]));
    }
    // Fill, then copy the inside: both run over adjacent elements without a test. Along one axis both ends are filled alone.
    let y = k.buffer("pad", out.dims, out.dtype);
    let padded: Vec<usize> = (0..w.len()).filter(|i| w[*i] != (0, 0)).collect();
    match padded.as_slice() {
        [] => {}
        [axis] => {
            let (before, after) = w[*axis];
            for (begin, len) in [(PrimExpr::i64(0), before), (x.shape[*axis].clone() + before, after)] {
                if len > 0 {
                    let mut dims = out.dims.to_vec();
                    dims[*axis] = PrimExpr::i64(len);
                    let to = |i: &[PrimExpr]| {
                        let mut at = i.to_vec();
                        at[*axis] = at[*axis].clone() + begin.clone();
                        at
                    };
                    k.write("pad_value", &y, &dims, to, |_| value.clone());
                }
            }
        }
        _ => k.write("pad_value", &y, out.dims, <[PrimExpr]>::to_vec, |_| value),
    }
    let to = |i: &[PrimExpr]| i.iter().zip(&w).map(|(i, (before, _))| i.clone() + *before).collect();
    k.write("pad_inside", &y, &x.shape, to, |i| x.at(i));
    Ok(k.finish(&[y]))
}

fn infer_shuffle(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let r = cx.int("upscale_factor")?;
    if r < 1 {
        return Err(cx.error(format!("upscale_factor must be positive, it is {r}")));
    }
    if t.ndim.is_some_and(|n| n < 3) {
        return Err(cx.error(format!("data must have at least 3 dims, it has {}", t.ndim.unwrap_or_default())));
    }
    let Some(dims) = t.known_dims() else { return Ok(StructInfo::Tensor(t)) };
    let mut dims = dims.to_vec();
    let n = dims.len();
    let squared = PrimExpr::i64(r * r);
    cx.require_eq(&dims[n - 3].clone().floor_mod(squared.clone()), &PrimExpr::i64(0), || {
        format!("the number of channels, {}, must be divisible by {}", rule::dim_text(&dims[n - 3]), r * r)
    })?;
    dims[n - 3] = cx.simplify(dims[n - 3].clone().floor_div(squared));
    dims[n - 2] = cx.simplify(dims[n - 2].clone() * r);
    dims[n - 1] = cx.simplify(dims[n - 1].clone() * r);
    Ok(StructInfo::Tensor(t.with_dims(Some(dims), None)))
}

fn shuffle(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, out) = (&inputs[0], cx.result()?);
    let r = cx.attrs.int("upscale_factor").ok_or_else(|| cx.error("upscale_factor must be an integer"))?;
    let n = x.ndim();
    let y = k.buffer("pixel_shuffle", out.dims, out.dtype);
    // Loops: leading dims and channels, H, r, W, r.
    let mut extents = out.dims[..n - 2].to_vec();
    extents.extend([x.shape[n - 2].clone(), PrimExpr::i64(r), x.shape[n - 1].clone(), PrimExpr::i64(r)]);
    let to = |i: &[PrimExpr]| {
        let mut at = i[..n - 2].to_vec();
        at.push(i[n - 2].clone() * r + i[n - 1].clone());
        at.push(i[n].clone() * r + i[n + 1].clone());
        at
    };
    k.write("pixel_shuffle", &y, &extents, to, |i| {
        let mut at = i[..n - 2].to_vec();
        at[n - 3] = i[n - 3].clone() * (r * r) + i[n - 1].clone() * r + i[n + 1].clone();
        at.extend([i[n - 2].clone(), i[n].clone()]);
        x.at(at)
    });
    Ok(k.finish(&[y]))
}
