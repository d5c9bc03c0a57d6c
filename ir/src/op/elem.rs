//! Pieces of computations that several families share: elementwise operands, broadcasting, 16-bit floats.

use super::rule::{scalar_value, scalar_values, wrap_axis};
use super::ComputeCx;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::{Buffer, KernelBuilder, PrimFunc};

/// An operand of an elementwise operator.
#[derive(Clone, Debug)]
pub enum Elem {
    Buffer(Buffer),
    /// A scalar value: the same for every element.
    Value(PrimExpr),
}

impl Elem {
    /// The element that broadcasts to index `out`: aligned at the right, index 0 where the dim is 1.
    pub fn at(&self, out: &[PrimExpr]) -> PrimExpr {
        match self {
            Elem::Value(v) => v.clone(),
            Elem::Buffer(b) => {
                let lead = out.len() - b.ndim().min(out.len());
                let idx: Vec<PrimExpr> = b
                    .shape
                    .iter()
                    .zip(&out[lead..])
                    .map(|(d, i)| if d.is_int(1) { PrimExpr::i64(0) } else { i.clone() })
                    .collect();
                b.at(idx)
            }
        }
    }
}

/// Floats of 16 bits and fewer are storage types: arithmetic happens in float32.
pub fn wide(e: PrimExpr) -> PrimExpr {
    if is_half(e.dtype()) {
        e.cast(DType::F32)
    } else {
        e
    }
}

/// A float of 16 bits or fewer.
pub fn is_half(d: DType) -> bool {
    d.is_float() && d.bits <= 16
}

/// The dtype that arithmetic on `d` happens in.
pub fn wide_dtype(d: DType) -> DType {
    if is_half(d) {
        DType::F32
    } else {
        d
    }
}

/// `e` as `to`, the way `R.astype` converts: to bool is `!= 0`.
pub fn convert(e: PrimExpr, to: DType) -> PrimExpr {
    if e.dtype() == to {
        return e;
    }
    let e = wide(e);
    if to.is_bool() {
        let zero = PrimExpr::zero(e.dtype());
        return e.ne(zero);
    }
    if is_half(to) && !e.dtype().is_float() {
        return e.cast(DType::F32).cast(to);
    }
    e.cast(to)
}

/// The row-major flat index of `idx` in `dims`.
pub fn flat_index(idx: &[PrimExpr], dims: &[PrimExpr]) -> PrimExpr {
    let (mut idx, mut dims) = (idx.iter(), dims.iter().skip(1));
    let Some(first) = idx.next() else { return PrimExpr::i64(0) };
    idx.zip(&mut dims).fold(first.clone(), |acc, (i, d)| acc * d.clone() + i.clone())
}

/// The index in `dims` of row-major flat index `flat`.
pub fn unflatten(flat: PrimExpr, dims: &[PrimExpr]) -> Vec<PrimExpr> {
    let mut out = vec![];
    let mut rest = flat;
    for (i, d) in dims.iter().enumerate().rev() {
        if i == 0 {
            out.push(rest.clone());
        } else {
            out.push(rest.clone().floor_mod(d.clone()));
            rest = rest.floor_div(d.clone());
        }
    }
    out.reverse();
    out
}

impl ComputeCx<'_> {
    /// A builder and, by operand, its elements: a buffer, a scalar value, or nothing (absent, tuples, shapes).
    pub fn elems(&self) -> Result<(KernelBuilder, Vec<Option<Elem>>), Diagnostic> {
        let (k, inputs) = self.kernel()?;
        let mut next = inputs.into_iter();
        let mut out = vec![];
        for (i, info) in self.infos.iter().enumerate() {
            out.push(match info {
                StructInfo::Tensor(_) => next.next().map(Elem::Buffer),
                StructInfo::Tuple(f) => {
                    f.iter().filter(|f| f.as_tensor().is_some()).for_each(|_| drop(next.next()));
                    None
                }
                StructInfo::Prim { .. } if self.has(i) => {
                    let value = scalar_value(self.args.get(i), Some(info));
                    Some(Elem::Value(value.ok_or_else(|| self.error("the value of a scalar operand is not known"))?))
                }
                _ => None,
            });
        }
        Ok((k, out))
    }

    /// A kernel that applies `f` to the elements of the operands, broadcast to the result. 16-bit floats arrive as
    /// float32; the value is converted to the result's dtype.
    pub fn elementwise(&self, f: impl FnOnce(&[PrimExpr]) -> PrimExpr) -> Result<PrimFunc, Diagnostic> {
        let (mut k, elems) = self.elems()?;
        let out = self.result()?;
        let y = k.compute("compute", out.dims, out.dtype, |i| {
            let values: Vec<PrimExpr> = elems.iter().flatten().map(|e| wide(e.at(i))).collect();
            convert(f(&values), out.dtype)
        });
        Ok(k.finish(&[y]))
    }

    /// The value of scalar operand `i`, when it is given.
    pub fn scalar(&self, i: usize) -> Option<PrimExpr> {
        self.args.get(i).filter(|_| self.has(i)).and_then(|a| scalar_value(Some(a), self.infos.get(i)))
    }

    /// The scalars of tuple (or shape) operand `i`.
    pub fn scalars(&self, i: usize) -> Option<Vec<PrimExpr>> {
        self.args.get(i).filter(|_| self.has(i)).and_then(|a| scalar_values(Some(a), self.infos.get(i)))
    }

    /// `axis` of a tensor of rank `ndim`, counted from the end when negative.
    pub fn axis(&self, axis: i64, ndim: usize) -> Result<usize, Diagnostic> {
        wrap_axis(axis, ndim)
            .ok_or_else(|| self.error(format!("axis {axis} is out of range for a tensor of rank {ndim}")))
    }

    /// The axes of attribute `name` in the order written; `None` when it is `None`.
    pub fn axes(&self, name: &str, ndim: usize) -> Result<Option<Vec<usize>>, Diagnostic> {
        match self.attrs.get(name) {
            Some(v) if !v.is_none() => {
                let list = v.as_ints().ok_or_else(|| self.error(format!("{name} must be integers")))?;
                list.into_iter().map(|a| self.axis(a, ndim)).collect::<Result<Vec<_>, _>>().map(Some)
            }
            _ => Ok(None),
        }
    }
}
