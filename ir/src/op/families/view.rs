//! Operators that only change the shape: the same elements in the same row-major order under other dims.

use crate::diag::Diagnostic;
use crate::op::elem::{flat_index, unflatten};
use crate::op::rule::dims_text;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::PrimFunc;

/// Operators whose result is their first operand under other dims: lowering may alias instead of copying.
pub const VIEW_OPS: &[&str] = &["reshape", "flatten", "nn.batch_flatten", "expand_dims", "squeeze"];

/// The same elements under the dims of the result. Dims that both shapes share are loops of their own; only groups of
/// dims that differ are flattened and split.
pub fn reshape(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, out) = (&inputs[0], cx.result()?);
    let groups = groups(&x.shape, out.dims);
    let y = k.compute("reshape", out.dims, out.dtype, |i| {
        let mut idx = vec![];
        for (from, to) in &groups {
            let flat = flat_index(&i[to.clone()], &out.dims[to.clone()]);
            idx.extend(match from.len() {
                0 => vec![],
                1 => vec![flat],
                _ => unflatten(flat, &x.shape[from.clone()]),
            });
        }
        x.at(idx)
    });
    Ok(k.finish(&[y]))
}

type Range = std::ops::Range<usize>;

/// Runs of dims of both shapes with equal products, as short as can be told, left to right.
fn groups(from: &[PrimExpr], to: &[PrimExpr]) -> Vec<(Range, Range)> {
    let mut out = vec![];
    let (mut a, mut b) = (0, 0);
    while a < from.len() || b < to.len() {
        let (i, j) = shortest(&from[a..], &to[b..]);
        out.push((a..a + i, b..b + j));
        a += i;
        b += j;
    }
    out
}

/// Lengths of the shortest prefixes with equal products; everything when none is found.
fn shortest(from: &[PrimExpr], to: &[PrimExpr]) -> (usize, usize) {
    if from.first().is_some_and(|d| d.is_int(1)) && to.first().is_none_or(|d| !d.is_int(1)) {
        return (1, 0);
    }
    if to.first().is_some_and(|d| d.is_int(1)) && from.first().is_none_or(|d| !d.is_int(1)) {
        return (0, 1);
    }
    for total in 2..=from.len() + to.len() {
        for i in total.saturating_sub(to.len()).max(1)..=(total - 1).min(from.len()) {
            if same_product(&from[..i], &to[..total - i]) {
                return (i, total - i);
            }
        }
    }
    (from.len(), to.len())
}

/// Equal literal factors and the same symbolic factors in any order.
fn same_product(a: &[PrimExpr], b: &[PrimExpr]) -> bool {
    let literal = |d: &[PrimExpr]| d.iter().filter_map(PrimExpr::as_int).product::<i64>();
    let symbols = |d: &[PrimExpr]| -> Vec<PrimExpr> { d.iter().filter(|e| e.as_int().is_none()).cloned().collect() };
    if literal(a) != literal(b) || literal(a) == 0 {
        return false;
    }
    let (x, mut y) = (symbols(a), symbols(b));
    x.len() == y.len()
        && x.iter().all(|e| match y.iter().position(|f| f == e) {
            Some(p) => {
                y.swap_remove(p);
                true
            }
            None => false,
        })
}

pub fn infer_reshape(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let (target, ndim) = cx.shape_operand(1)?;
    let Some(mut target) = target else { return Ok(StructInfo::Tensor(t.with_dims(None, ndim))) };
    let from = t.known_dims();
    // 0 copies the dim, unless x has no elements: then it is what it says.
    if let Some(from) = from.filter(|f| !PrimExpr::product(*f).is_int(0)) {
        for (d, same) in target.iter_mut().zip(from) {
            if d.is_int(0) {
                *d = same.clone();
            }
        }
    }
    if let Some(d) = target.iter().find(|d| d.as_int().is_some_and(|d| d < -1)) {
        return Err(cx.error(format!(
            "a dim cannot be {}: it is a size, 0 (the same as before) or -1",
            crate::op::rule::dim_text(d)
        )));
    }
    let holes = target.iter().filter(|d| d.is_int(-1)).count();
    if holes > 1 {
        return Err(cx.error("more than one dim is -1"));
    }
    if let Some(from) = from {
        let all = PrimExpr::product(from);
        if holes == 1 {
            let rest = PrimExpr::product(target.iter().filter(|d| !d.is_int(-1)));
            let divides = all.clone().floor_mod(rest.clone());
            let text = dims_text(&target);
            // Beside no elements any size would do.
            let zero = PrimExpr::i64(0);
            if rest.as_int().is_some() || !cx.proved_eq(&divides, &zero) {
                cx.require(rest.clone().ne(zero), || format!("{text} has no size for -1 beside a dim of 0"))?;
            }
            cx.require_eq(&divides, &PrimExpr::i64(0), || format!("{} does not divide into {text}", dims_text(from)))?;
            let whole = cx.simplify(all.floor_div(rest));
            target.iter_mut().filter(|d| d.is_int(-1)).for_each(|d| *d = whole.clone());
        } else {
            let new = PrimExpr::product(&target);
            let text = dims_text(&target);
            cx.require_eq(&all, &new, || {
                format!(
                    "a tensor of shape {} cannot be reshaped to {text}: the numbers of elements differ",
                    dims_text(from)
                )
            })?;
        }
    } else if holes == 1 {
        return Ok(StructInfo::Tensor(t.with_dims(None, ndim)));
    }
    Ok(StructInfo::Tensor(t.with_dims(Some(target), None)))
}

pub fn infer_flatten(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let dims = t.known_dims().map(PrimExpr::product).map(|d| vec![cx.simplify(d)]);
    Ok(StructInfo::Tensor(t.with_dims(dims, Some(1))))
}

pub fn infer_batch_flatten(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    if t.ndim.is_some_and(|n| n < 2) {
        return Err(cx.error("data must have at least two dims"));
    }
    let dims = t.known_dims().map(<[PrimExpr]>::to_vec);
    let dims = dims.map(|d| vec![d[0].clone(), cx.simplify(PrimExpr::product(&d[1..]))]);
    Ok(StructInfo::Tensor(t.with_dims(dims, Some(2))))
}

pub fn infer_expand_dims(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let added = cx.attrs.ints("axis").ok_or_else(|| cx.error("axis must be integers"))?.len();
    let Some(n) = t.ndim else { return Ok(StructInfo::Tensor(t.with_dims(None, None))) };
    let axes = cx.axes("axis", n + added)?.unwrap_or_default();
    let dims = t.known_dims().map(|d| {
        let mut old = d.iter().cloned();
        (0..n + added)
            .map(|i| if axes.contains(&i) { PrimExpr::i64(1) } else { old.next().unwrap_or(PrimExpr::i64(1)) })
            .collect()
    });
    Ok(StructInfo::Tensor(t.with_dims(dims, Some(n + added))))
}

pub fn infer_squeeze(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let Some(n) = t.ndim else { return Ok(StructInfo::Tensor(t.with_dims(None, None))) };
    let axes = cx.axes("axis", n)?;
    let Some(dims) = t.known_dims() else {
        let left = axes.map(|a| n - a.len());
        return Ok(StructInfo::Tensor(t.with_dims(None, left)));
    };
    let mut kept = vec![];
    for (i, d) in dims.iter().enumerate() {
        let named = axes.as_ref().map(|a| a.contains(&i));
        match (d.as_int(), named) {
            (Some(1), None | Some(true)) => continue,
            (None, Some(true)) => {
                cx.require_eq(d, &PrimExpr::i64(1), || format!("axis {i} must have 1 element to be squeezed"))?;
                continue;
            }
            (None, None) => {
                let not_one = d.clone().ne(PrimExpr::i64(1));
                cx.require(not_one, || {
                    format!("axis {i} is taken to have more than 1 element: name the axes to squeeze")
                })?;
            }
            _ => {}
        }
        kept.push(d.clone());
    }
    Ok(StructInfo::Tensor(t.with_dims(Some(kept), None)))
}
