//! Reductions and scans along axes that are only known at run time.

use super::{bind, cell, each, local, nest, set};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, unflatten, wide, wide_dtype};
use crate::op::families::rules;
use crate::op::*;
use crate::prim::{BinOp, PrimExpr};
use crate::relax::StructInfo;
use crate::tir::{Buffer, PrimFunc, Stmt};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "onnx.reduce",
        "Reduces `x` over the axes that the integer vector `axes` holds (negative ones count from the end): `kind` is `sum`, `prod`, `max`, `min` or `mean`. Source: ONNX `ReduceSum` and its kin with axes as input.",
        &[operand("x"), operand("axes"), attr("kind", Default::Str("sum")), attr("keepdims", Default::Bool(true))],
        infer_reduce,
        Compute::DataDependent(reduce),
    )
    .ulp(8),
    OpDecl::pure(
        "onnx.cumulate",
        "Running sums (`kind` `sum`) or products (`prod`) along the axis that the integer tensor `axis` of one element holds. `exclusive` leaves the element itself out, `reverse` starts at the end. Source: ONNX `CumSum`, `CumProd`.",
        &[
            operand("x"),
            operand("axis"),
            attr("kind", Default::Str("sum")),
            attr("exclusive", Default::Bool(false)),
            attr("reverse", Default::Bool(false)),
        ],
        infer_cumulate,
        Compute::Kernel(cumulate),
    ),
];

fn infer_reduce(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, axes) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?);
    cx.require_int(1, axes.dtype)?;
    rules::require_ndim(cx, 1, 1)?;
    if !matches!(cx.attrs.str("kind"), Some("sum" | "prod" | "max" | "min" | "mean")) {
        return Err(cx.error("kind must be sum, prod, max, min or mean"));
    }
    let rank = match cx.attrs.bool("keepdims") {
        Some(false) => {
            let n = axes.known_dims().and_then(|d| d[0].as_int());
            x.ndim.zip(n).map(|(r, n)| r.saturating_sub(n.max(0) as usize))
        }
        _ => x.ndim,
    };
    Ok(rules::unknown(rank, x.dtype))
}

/// What an empty reduction gives.
pub fn start(kind: &str, d: DType) -> PrimExpr {
    match kind {
        "prod" => PrimExpr::one(d),
        "max" if d.is_float() => PrimExpr::float(d, f64::NEG_INFINITY),
        "min" if d.is_float() => PrimExpr::float(d, f64::INFINITY),
        "max" => PrimExpr::min_value(d),
        "min" => PrimExpr::max_value(d),
        _ => PrimExpr::zero(d),
    }
}

/// Joins two partial results.
pub fn join(kind: &str, a: PrimExpr, b: PrimExpr) -> PrimExpr {
    match kind {
        "prod" => a * b,
        "max" => a.max(b),
        "min" => a.min(b),
        _ => a + b,
    }
}

fn reduce(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, axes) = (&inputs[0], &inputs[1]);
    let kind = cx.attrs.str("kind").unwrap_or("sum");
    let keep = cx.attrs.bool("keepdims").unwrap_or(true);
    let out = cx.result()?;
    let (rank, out_rank) = (x.ndim(), out.dims.len());
    let acc = if x.dtype().is_bool() { DType::U8 } else { wide_dtype(x.dtype()) };
    let one = PrimExpr::i64(1);
    let total = x.shape.iter().fold(one.clone(), |n, d| n * d.clone().max(1));
    let mut bound = vec![one.clone(); out_rank];
    if let Some(first) = bound.first_mut() {
        *first = total.clone();
    }
    let partial = k.buffer("partial", std::slice::from_ref(&total), acc);
    let y = k.buffer("reduced", &bound, out.dtype);
    let dims = k.buffer("dims", &[PrimExpr::i64(out_rank as i64)], DType::I64);
    let n = PrimExpr::i64(rank as i64);
    let flags = Buffer::new("flags", vec![n.clone()], DType::I64);
    let strides = Buffer::new("strides", vec![n.clone()], DType::I64);
    let state = Buffer::new("state", vec![PrimExpr::i64(2)], DType::I64);
    k.rows("reduce", &[], |_| {
        let at = |d: usize| PrimExpr::i64(d as i64);
        let reduced = |d: usize| cell(&flags, at(d)).ne(0);
        let mut body: Vec<Stmt> = (0..rank).map(|d| set(&flags, at(d), 0)).collect();
        body.push(each(&axes.shape[0], "a", |a| {
            bind("axis", axes.at([a.clone()]).cast(DType::I64), |axis| {
                let axis = axis.clone().lt(0).select(axis.clone() + n.clone(), axis.clone());
                bind("place", axis, |p| {
                    Stmt::if_then(p.clone().ge(0).and(p.clone().lt(n.clone())), set(&flags, p.clone(), 1))
                })
            })
        }));
        // Dims of the result: state 0 is the next of them.
        body.push(set(&state, 0, 0));
        for d in 0..rank {
            let next = cell(&state, 0);
            let put = |v: PrimExpr| {
                let store = Stmt::seq(vec![set(&dims, next.clone(), v), set(&state, 0, next.clone() + 1)]);
                Stmt::if_then(next.clone().lt(out_rank as i64), store)
            };
            body.push(match keep {
                true => Stmt::if_else(reduced(d), put(one.clone()), put(x.shape[d].clone())),
                false => Stmt::if_then(reduced(d).not(), put(x.shape[d].clone())),
            });
        }
        // Strides in the result; state 1 ends as its number of elements.
        body.push(set(&state, 1, 1));
        for d in (0..rank).rev() {
            let size = cell(&state, 1);
            let kept = Stmt::seq(vec![set(&strides, at(d), size.clone()), set(&state, 1, size * x.shape[d].clone())]);
            body.push(Stmt::if_else(reduced(d), set(&strides, at(d), 0), kept));
        }
        let count = cell(&state, 1);
        body.push(each(&count, "i", |i| set(&partial, i.clone(), start(kind, acc))));
        body.push(nest(&x.shape, "x", |i| {
            let to = (0..rank).fold(PrimExpr::i64(0), |s, d| s + i[d].clone() * cell(&strides, at(d)));
            let v = convert(wide(x.at(i)), acc);
            bind("to", to, |to| set(&partial, to.clone(), join(kind, cell(&partial, to.clone()), v)))
        }));
        body.push(each(&count, "o", |o| {
            let mut v = cell(&partial, o.clone());
            if kind == "mean" {
                let n = PrimExpr::product(&x.shape).floor_div(count.clone().max(1)).cast(acc);
                v = if acc.is_float() { v / n } else { v.trunc_div(n.max(PrimExpr::one(acc))) };
            }
            Stmt::store(&y, unflatten(o.clone(), &bound), convert(v, out.dtype))
        }));
        local(&flags, local(&strides, local(&state, Stmt::seq(body))))
    });
    Ok(k.finish(&[y, dims]))
}

fn infer_cumulate(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, axis) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?);
    cx.require_int(1, axis.dtype)?;
    Ok(StructInfo::Tensor(x))
}

fn cumulate(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, axis) = (&inputs[0], &inputs[1]);
    let kind = cx.attrs.str("kind").unwrap_or("sum");
    let exclusive = cx.attrs.bool("exclusive").unwrap_or(false);
    let reverse = cx.attrs.bool("reverse").unwrap_or(false);
    let acc = wide_dtype(x.dtype());
    let rank = x.ndim();
    let y = k.buffer("cumulated", &x.shape, x.dtype());
    let sum = Buffer::new("running", vec![PrimExpr::i64(1)], acc);
    k.rows("cumulate", &[], |_| {
        let chosen = axis.at(vec![PrimExpr::i64(0); axis.ndim()]).cast(DType::I64);
        let along = |d: usize| {
            let mut others = x.shape.clone();
            let n = others.remove(d);
            nest(&others, "i", |i| {
                let line = each(&n, "p", |p| {
                    let mut at = i.to_vec();
                    at.insert(d, if reverse { n.clone() - 1 - p.clone() } else { p.clone() });
                    let add = set(&sum, 0, join(kind, cell(&sum, 0), wide(x.at(at.clone())).cast(acc)));
                    let put = Stmt::store(&y, at, convert(cell(&sum, 0), x.dtype()));
                    Stmt::seq(if exclusive { vec![put, add] } else { vec![add, put] })
                });
                Stmt::seq(vec![set(&sum, 0, start(kind, acc)), line])
            })
        };
        let body = bind("axis", chosen, |a| {
            let is = |d: usize| {
                let (d, n) = (d as i64, rank as i64);
                PrimExpr::binary(BinOp::Or, a.clone().eq(d), a.clone().eq(d - n))
            };
            Stmt::seq((0..rank).map(|d| Stmt::if_then(is(d), along(d))).collect())
        });
        local(&sum, body)
    });
    Ok(k.finish(&[y]))
}
