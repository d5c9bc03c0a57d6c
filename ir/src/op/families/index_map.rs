//! Maps of indices: `R.layout_transform`.

use crate::attrs::{AttrValue, IndexMap};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::convert;
use crate::op::*;
use crate::prim::{BinOp, PrimExpr, PrimKind, Var};
use crate::relax::StructInfo;
use crate::tir::PrimFunc;
use std::collections::HashMap;

/// Sizes of open dims that a map is tried with: every open dim takes another one.
const SAMPLES: [[i64; 4]; 2] = [[3, 5, 7, 11], [4, 6, 9, 10]];

/// One more than the largest value of an index expression whose variables lie in `[0, extent)`; `None` where that
/// cannot be told.
fn extent_of(e: &PrimExpr, vars: &HashMap<Var, PrimExpr>) -> Option<PrimExpr> {
    match e.kind() {
        PrimKind::Int(v) => Some(PrimExpr::i64(v + 1)),
        PrimKind::Var(v) => vars.get(v).cloned(),
        PrimKind::Cast(a) => extent_of(a, vars),
        PrimKind::Binary(op, a, b) => {
            let (x, c) = (extent_of(a, vars)?, b.as_int());
            match op {
                BinOp::Add => Some(x + extent_of(b, vars)? - 1),
                BinOp::Sub if c.is_some() => Some(x - c?),
                BinOp::Mul => match (a.as_int(), c) {
                    (_, Some(c)) if c >= 0 => Some((x - 1) * c + 1),
                    (Some(c), _) if c >= 0 => Some((extent_of(b, vars)? - 1) * c + 1),
                    _ => None,
                },
                BinOp::FloorDiv if c? > 0 => Some((x + (c? - 1)).floor_div(PrimExpr::i64(c?))),
                // Blocks of `c` elements are whole, the last one padded. Source: TVM `IndexMap::MapShape`.
                BinOp::FloorMod if c? > 0 => Some(PrimExpr::i64(c?)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn index_map(attrs: &crate::Attrs) -> Option<&IndexMap> {
    match attrs.get("index_map")? {
        AttrValue::IndexMap(m) => Some(m),
        _ => None,
    }
}

pub fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let map = index_map(cx.attrs).ok_or_else(|| cx.error("index_map must be T.index_map(lambda ..)"))?.clone();
    if t.ndim.is_some_and(|n| n != map.params.len()) {
        let n = t.ndim.unwrap_or_default();
        return Err(cx.error(format!("index_map takes {} indices, x has {n} dims", map.params.len())));
    }
    if let (Some(AttrValue::Prim(p)), Some(d)) = (cx.attrs.get("pad_value"), t.dtype) {
        if p.dtype() != d {
            return Err(cx.error(format!("pad_value is of dtype {}, x of {d}", p.dtype())));
        }
    }
    if let (Some(AttrValue::Float(_)), Some(d)) = (cx.attrs.get("pad_value"), t.dtype.filter(|d| !d.is_float())) {
        return Err(cx.error(format!("pad_value is a float, x is of {d}")));
    }
    let ndim = Some(map.results.len());
    let Some(dims) = t.known_dims() else { return Ok(StructInfo::Tensor(t.with_dims(None, ndim))) };
    let vars: HashMap<Var, PrimExpr> = map.params.iter().cloned().zip(dims.iter().cloned()).collect();
    let mut out = vec![];
    let zero: HashMap<Var, PrimExpr> = map.params.iter().map(|v| (v.clone(), PrimExpr::int(v.dtype(), 0))).collect();
    for r in &map.results {
        // Elements lie from index 0 on. Source: TVM `IndexMap::MapShape`.
        let moved = matches!(r.kind(), PrimKind::Binary(BinOp::Add | BinOp::Sub, ..));
        if moved && cx.simplify(r.substitute(&zero)).as_int().is_some_and(|v| v != 0) {
            return Err(cx.error("index_map must map indices of 0 to 0"));
        }
        let e = extent_of(r, &vars).ok_or_else(|| cx.error("the range of an index_map result cannot be derived"))?;
        out.push(cx.simplify(e));
    }
    // Of open dims samples are looked at: a map that TVM can invert reaches every index whatever they are.
    let mut open: Vec<Var> = vec![];
    dims.iter().flat_map(|d| d.vars()).for_each(|v| {
        if !open.contains(&v) {
            open.push(v)
        }
    });
    for sample in SAMPLES {
        let size = |i: usize| PrimExpr::i64(sample[i % sample.len()]);
        let sizes: HashMap<Var, PrimExpr> = open.iter().enumerate().map(|(i, v)| (v.clone(), size(i))).collect();
        let mut sized = |dims: &[PrimExpr]| {
            dims.iter().map(|d| cx.simplify(d.substitute(&sizes)).as_int()).collect::<Option<Vec<i64>>>()
        };
        if let (Some(from), Some(to)) = (sized(dims), sized(&out)) {
            if to.is_empty() || covers(&map, &from, &to).or_else(|| independent(&map, &from)) == Some(false) {
                return Err(
                    cx.error("index_map must reach every index of its result, its results depend on each other")
                );
            }
        }
        if open.is_empty() {
            break;
        }
    }
    Ok(StructInfo::Tensor(t.with_dims(Some(out), None)))
}

/// Does the map of whole blocks from `from` reach every index of `to`? `None` where that is too many to see.
///
/// TVM asks for a map that it can invert over the padded source (`IndexMap::NonSurjectiveInverse`): one whose results are
/// independent parts of the indices.
fn covers(map: &IndexMap, from: &[i64], to: &[i64]) -> Option<bool> {
    const MOST: i64 = 1 << 16;
    let block = map.results.iter().try_fold(1, |n, r| blocks(r, n))?;
    let whole: Vec<i64> =
        from.iter().map(|d| d.checked_add(block - 1).map(|d| d / block * block)).collect::<Option<_>>()?;
    let total = |dims: &[i64]| dims.iter().try_fold(1i64, |n, d| n.checked_mul(*d)).filter(|n| *n <= MOST);
    let (count, cells) = (total(&whole)?, total(to)?);
    let mut reached = vec![false; cells as usize];
    for flat in 0..count {
        let mut rest = flat;
        let mut at: HashMap<Var, PrimExpr> = HashMap::new();
        for (v, d) in map.params.iter().zip(&whole).rev() {
            at.insert(v.clone(), PrimExpr::int(v.dtype(), rest % d));
            rest /= d;
        }
        let mut cell = Some(0);
        for (r, d) in map.results.iter().zip(to) {
            let i = r.substitute(&at).as_int()?;
            cell = cell.filter(|_| (0..*d).contains(&i)).map(|c| c * d + i);
        }
        if let Some(c) = cell {
            reached[c as usize] = true;
        }
    }
    Some(reached.into_iter().all(|r| r))
}

/// The least common multiple of `n` and the divisors in `e`.
fn blocks(e: &PrimExpr, n: i64) -> Option<i64> {
    match e.kind() {
        PrimKind::Binary(op, a, b) => {
            let n = blocks(b, blocks(a, n)?)?;
            match (op, b.as_int()) {
                (BinOp::FloorDiv | BinOp::FloorMod | BinOp::TruncDiv | BinOp::TruncMod, Some(d)) if d > 0 => {
                    let (mut a, mut b) = (n, d);
                    while b != 0 {
                        (a, b) = (b, a % b);
                    }
                    n.checked_mul(d / a)
                }
                _ => Some(n),
            }
        }
        PrimKind::Cast(a) | PrimKind::Neg(a) => blocks(a, n),
        _ => Some(n),
    }
}

/// Part `x // lower % extent` of what runs through a mark.
#[derive(Clone, PartialEq)]
struct Split {
    mark: Mark,
    lower: i64,
    extent: i64,
}

/// What is split.
#[derive(Clone, PartialEq)]
enum Mark {
    /// The index with this number.
    Index(usize),
    /// A sum of parts, each behind the ones before it: `i * 4 + j` with `j` below 4.
    Sum(Vec<Split>),
}

/// Parts and what each is multiplied by.
type Terms = Vec<(Split, i64)>;

/// As [`covers`] for any number of elements, by the parts of indices that the results are made of: a gap in a result, or a part
/// that two results share, leaves some index out. `None` where the results are no sums of parts.
fn independent(map: &IndexMap, from: &[i64]) -> Option<bool> {
    let mut used: Vec<Split> = vec![];
    for r in &map.results {
        let mut terms = terms(r, map, from)?;
        terms.sort_by_key(|(_, scale)| *scale);
        let mut reach = 0i64;
        for (split, scale) in terms {
            if scale > reach + 1 {
                return Some(false);
            }
            reach = reach.checked_add(scale.checked_mul(split.extent - 1)?)?;
            used.push(split);
        }
    }
    // A sum takes all of its parts, once for all splits of it.
    let mut sums: Vec<Vec<Split>> = vec![];
    let mut at = 0;
    while let Some(s) = used.get(at).cloned() {
        if let Mark::Sum(parts) = s.mark {
            if !sums.contains(&parts) {
                used.extend(parts.iter().cloned());
                sums.push(parts);
            }
        }
        at += 1;
    }
    let mut sure = true;
    for (i, a) in used.iter().enumerate() {
        for b in used[..i].iter().filter(|b| b.mark == a.mark) {
            let (low, high) = if a.lower < b.lower { (a, b) } else { (b, a) };
            let end = low.lower.checked_mul(low.extent)?;
            if high.lower < end {
                return Some(false);
            }
            sure &= high.lower % end == 0;
        }
    }
    sure.then_some(true)
}

/// `e` as a sum of parts; none of an extent of 1.
fn terms(e: &PrimExpr, map: &IndexMap, from: &[i64]) -> Option<Terms> {
    match e.kind() {
        PrimKind::Int(0) => Some(vec![]),
        PrimKind::Var(v) => {
            let index = map.params.iter().position(|p| p == v)?;
            let split = Split { mark: Mark::Index(index), lower: 1, extent: from[index] };
            Some(if split.extent == 1 { vec![] } else { vec![(split, 1)] })
        }
        PrimKind::Cast(a) => terms(a, map, from),
        PrimKind::Binary(BinOp::Add, a, b) => {
            let mut out = terms(a, map, from)?;
            out.extend(terms(b, map, from)?);
            Some(out)
        }
        PrimKind::Binary(BinOp::Mul, a, b) => {
            let (a, c) = match (a.as_int(), b.as_int()) {
                (_, Some(c)) => (a, c),
                (Some(c), _) => (b, c),
                _ => return None,
            };
            let scaled = |(s, by): (Split, i64)| Some((s, by.checked_mul(c).filter(|c| *c > 0)?));
            terms(a, map, from)?.into_iter().map(scaled).collect()
        }
        PrimKind::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod | BinOp::TruncDiv | BinOp::TruncMod), a, b) => {
            let by = b.as_int().filter(|b| *b > 0)?;
            let (whole, rest): (Terms, Terms) =
                terms(a, map, from)?.into_iter().partition(|(_, scale)| scale % by == 0);
            let end = rest.iter().try_fold(1i64, |n, (s, scale)| n.checked_add(scale.checked_mul(s.extent - 1)?))?;
            let divides = matches!(op, BinOp::FloorDiv | BinOp::TruncDiv);
            if end <= by {
                let over = |(s, scale): (Split, i64)| (s, scale / by);
                return Some(if divides { whole.into_iter().map(over).collect() } else { rest });
            }
            let s = one([whole, rest].concat())?;
            let (lower, extent) = match divides {
                true => (s.lower.checked_mul(by)?, s.extent.checked_add(by - 1)? / by),
                false => (s.lower, by),
            };
            // Only an index itself is padded to whole blocks.
            if s.extent % by != 0 && !(s.lower == 1 && matches!(s.mark, Mark::Index(_))) {
                return None;
            }
            Some(if extent == 1 { vec![] } else { vec![(Split { lower, extent, ..s }, 1)] })
        }
        _ => None,
    }
}

/// A sum as one split: each part stands behind the ones before it.
fn one(mut terms: Terms) -> Option<Split> {
    terms.sort_by_key(|(_, scale)| *scale);
    let mut extent = 1i64;
    for (s, scale) in &terms {
        if *scale != extent {
            return None;
        }
        extent = extent.checked_mul(s.extent)?;
    }
    let mut parts: Vec<Split> = terms.into_iter().map(|(s, _)| s).collect();
    if parts.len() == 1 {
        return parts.pop();
    }
    Some(Split { mark: Mark::Sum(parts), lower: 1, extent })
}

pub fn layout(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, out) = (&inputs[0], cx.result()?);
    let map = index_map(cx.attrs).ok_or_else(|| cx.error("index_map must be T.index_map(lambda ..)"))?;
    let pad = match cx.attrs.get("pad_value") {
        Some(AttrValue::Prim(p)) => convert(p.clone(), out.dtype),
        Some(v) => match v.as_float() {
            Some(v) if out.dtype.is_float() => PrimExpr::float(out.dtype, v),
            Some(v) => PrimExpr::int(out.dtype, v as i64),
            None => PrimExpr::zero(out.dtype),
        },
        None => PrimExpr::zero(out.dtype),
    };
    let y = k.buffer("layout", out.dims, out.dtype);
    let literal = |dims: &[PrimExpr]| PrimExpr::product(dims).as_int();
    if literal(out.dims).is_none() || literal(out.dims) != literal(&x.shape) {
        k.write("pad", &y, out.dims, <[PrimExpr]>::to_vec, |_| pad);
    }
    let to = |i: &[PrimExpr]| {
        let at: HashMap<Var, PrimExpr> =
            map.params.iter().zip(i).map(|(v, e)| (v.clone(), e.clone().cast(v.dtype()))).collect();
        map.results.iter().map(|r| r.substitute(&at).cast(DType::I64)).collect()
    };
    k.write("layout", &y, &x.shape, to, |i| x.at(i));
    Ok(k.finish(&[y]))
}
