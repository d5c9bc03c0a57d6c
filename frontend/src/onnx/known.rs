//! Compile-time value flow: what operators make of tensors whose elements are known at import, symbolically for
//! integers and bools, literally for floats. Exporters' shape code runs through here and leaves no code behind.

use super::value::{Tensor, MAX_KNOWN};
use relax_ir::{DType, PrimExpr};

/// Elements of another dtype. Floats are literals only.
pub fn cast(t: &Tensor, dtype: DType) -> Option<Tensor> {
    let dims = t.literal_dims()?;
    let elements = t.elements()?.into_iter().map(|e| cast_element(e, dtype)).collect::<Option<Vec<_>>>()?;
    Some(Tensor::known(&dims, dtype, elements))
}

fn cast_element(e: PrimExpr, dtype: DType) -> Option<PrimExpr> {
    match (e.as_int(), e.as_float()) {
        (Some(_), _) => Some(e.cast(dtype)),
        (_, Some(v)) if dtype.is_float() => Some(PrimExpr::float(dtype, v)),
        (_, Some(v)) if dtype.is_bool() => Some(PrimExpr::bool(v != 0.0)),
        (_, Some(v)) if v.is_finite() && v.abs() < 9e18 => Some(PrimExpr::int(dtype, v as i64)),
        (_, Some(_)) => None,
        _ if dtype.is_float() => None,
        _ if e.dtype().is_bool() => Some(e.select(PrimExpr::int(dtype, 1), PrimExpr::int(dtype, 0))),
        _ if dtype.is_bool() => Some(e.clone().ne(PrimExpr::zero(e.dtype()))),
        _ => Some(e.cast(dtype)),
    }
}

/// The same elements under other literal dims.
pub fn reshape(t: &Tensor, dims: &[PrimExpr]) -> Option<Tensor> {
    let dims: Vec<usize> = dims.iter().map(|d| d.as_int().and_then(|v| v.try_into().ok())).collect::<Option<_>>()?;
    let elements = t.elements()?;
    // What is computed at run time too keeps its code.
    let free = t.leaf().is_none() || t.as_constant().is_some();
    (free && dims.iter().product::<usize>() == elements.len()).then(|| Tensor::known(&dims, t.dtype, elements))
}

/// The tensor whose element at `index` is the element of `t` at `from(index)`; `None` from `from` gives up.
pub fn gather(t: &Tensor, dims: &[usize], mut from: impl FnMut(&[usize]) -> Option<usize>) -> Option<Tensor> {
    let n = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).filter(|n| *n <= MAX_KNOWN)?;
    let source = t.elements()?;
    let mut index = vec![0; dims.len()];
    let mut elements = Vec::with_capacity(n);
    for _ in 0..n {
        elements.push(source.get(from(&index)?)?.clone());
        step(&mut index, dims);
    }
    Some(Tensor::known(dims, t.dtype, elements))
}

/// The next index in row-major order.
fn step(index: &mut [usize], dims: &[usize]) {
    for (i, d) in index.iter_mut().zip(dims).rev() {
        *i += 1;
        if *i < *d {
            return;
        }
        *i = 0;
    }
}

/// The position of `index` in row-major order.
pub fn flat(index: &[usize], dims: &[usize]) -> usize {
    index.iter().zip(dims).fold(0, |f, (i, d)| f * d + i)
}

pub fn transpose(t: &Tensor, perm: &[usize]) -> Option<Tensor> {
    let from = t.literal_dims()?;
    let dims: Vec<usize> = perm.iter().map(|p| from.get(*p).copied()).collect::<Option<_>>()?;
    let mut source = vec![0; from.len()];
    gather(t, &dims, |index| {
        for (i, p) in perm.iter().enumerate() {
            source[*p] = index[i];
        }
        Some(flat(&source, &from))
    })
}

pub fn broadcast(t: &Tensor, dims: &[PrimExpr]) -> Option<Tensor> {
    let to: Vec<usize> = dims.iter().map(|d| d.as_int().and_then(|v| v.try_into().ok())).collect::<Option<_>>()?;
    let from = t.literal_dims()?;
    let lead = to.len().checked_sub(from.len())?;
    from.iter().zip(&to[lead..]).all(|(a, b)| *a == 1 || a == b).then_some(())?;
    gather(t, &to, |index| Some(broadcast_flat(&index[lead..], &from)))
}

fn broadcast_flat(index: &[usize], dims: &[usize]) -> usize {
    index.iter().zip(dims).fold(0, |f, (i, d)| f * d + if *d == 1 { 0 } else { *i })
}

/// The dims that literal dims broadcast to.
fn broadcast_dims(all: &[Vec<usize>]) -> Option<Vec<usize>> {
    let n = all.iter().map(Vec::len).max()?;
    (0..n)
        .map(|i| {
            let mut out = 1;
            for d in all {
                match (i + d.len()).checked_sub(n).map(|j| d[j]) {
                    None | Some(1) => {}
                    Some(v) if out == 1 || out == v => out = v,
                    Some(_) => return None,
                }
            }
            Some(out)
        })
        .collect()
}

/// Elementwise with broadcasting; `f` gives up with `None`.
pub fn zip(tensors: &[&Tensor], dtype: DType, mut f: impl FnMut(&[PrimExpr]) -> Option<PrimExpr>) -> Option<Tensor> {
    let from: Vec<Vec<usize>> = tensors.iter().map(|t| t.literal_dims()).collect::<Option<_>>()?;
    let sources: Vec<Vec<PrimExpr>> = tensors.iter().map(|t| t.elements()).collect::<Option<_>>()?;
    let dims = broadcast_dims(&from)?;
    let n = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).filter(|n| *n <= MAX_KNOWN)?;
    let mut index = vec![0; dims.len()];
    let mut elements = Vec::with_capacity(n);
    let mut args = vec![];
    for _ in 0..n {
        args.clear();
        for (d, s) in from.iter().zip(&sources) {
            args.push(s.get(broadcast_flat(&index[dims.len() - d.len()..], d))?.clone());
        }
        elements.push(f(&args)?);
        step(&mut index, &dims);
    }
    Some(Tensor::known(&dims, dtype, elements))
}

/// The parts one after the other along `axis`.
pub fn concat(parts: &[Tensor], axis: usize) -> Option<Tensor> {
    let from: Vec<Vec<usize>> = parts.iter().map(Tensor::literal_dims).collect::<Option<_>>()?;
    let sources: Vec<Vec<PrimExpr>> = parts.iter().map(Tensor::elements).collect::<Option<_>>()?;
    let first = from.first()?;
    let mut dims = first.clone();
    for d in &from {
        let same = d.len() == first.len() && (0..d.len()).all(|i| i == axis || d[i] == first[i]);
        same.then_some(())?;
    }
    dims[axis] = from.iter().map(|d| d[axis]).sum();
    let outer: usize = dims[..axis].iter().product();
    let mut elements = vec![];
    for o in 0..outer {
        for (d, s) in from.iter().zip(&sources) {
            let run: usize = d[axis..].iter().product();
            elements.extend_from_slice(s.get(o * run..(o + 1) * run)?);
        }
    }
    (elements.len() <= MAX_KNOWN).then(|| Tensor::known(&dims, parts[0].dtype, elements))
}
