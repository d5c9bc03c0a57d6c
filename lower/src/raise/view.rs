//! Loads as tensors that are aligned with axes: slices, turned dims and dims of 1 are made where indices ask for them.

use super::{same, Raise, Space};
use crate::schedule::poly::Poly;
use crate::schedule::stage::Axis;
use relax_ir::relax::{Expr, ExprKind};
use relax_ir::tir::Buffer;
use relax_ir::{PrimExpr, Var};

/// An index: `step * axis + begin`, or `begin` alone.
struct Index {
    axis: Option<Var>,
    begin: i64,
    step: i64,
}

impl Raise<'_> {
    /// `b[indices]` for all points of `space`, in whose dims the result broadcasts.
    pub(super) fn view(&mut self, b: &Buffer, indices: &[PrimExpr], space: &Space) -> Option<Expr> {
        let axes: Vec<&Axis> = space.iter().flatten().collect();
        let found: Vec<Index> = indices.iter().map(|i| self.index(i, &axes)).collect::<Option<_>>()?;
        let place = |v: &Var| space.iter().position(|a| a.as_ref().is_some_and(|a| a.var == *v));
        let mut places: Vec<Option<usize>> = vec![];
        for i in &found {
            let p = match &i.axis {
                Some(v) => Some(place(v)?),
                None => None,
            };
            if p.is_some() && places.contains(&p) {
                return None;
            }
            places.push(p);
        }
        let extent = |p: &Option<usize>| match p {
            Some(p) => space[*p].as_ref().map(|a| a.extent.clone()),
            None => Some(PrimExpr::i64(1)),
        };
        let extents: Vec<PrimExpr> = places.iter().map(extent).collect::<Option<_>>()?;
        // A slice of each dim that is not read as a whole.
        let mut cuts: Vec<(i64, i64, i64, i64)> = vec![];
        for (d, (i, n)) in found.iter().zip(&extents).enumerate() {
            if i.begin == 0 && i.step == 1 && self.equal(n, &b.shape[d]) {
                continue;
            }
            let (dim, n) = (b.shape[d].as_int()?, n.as_int()?);
            let end = i.begin + i.step * (n - 1) + 1;
            if i.begin < 0 || i.step < 1 || n < 1 || end > dim {
                return None;
            }
            cuts.push((d as i64, i.begin, end, i.step));
        }
        // Where a dim was reduced a moment ago, its tensor with that dim is there.
        let from = places.iter().flatten().min().copied().unwrap_or(space.len());
        let target: Vec<PrimExpr> = (from..space.len())
            .map(|p| match places.contains(&Some(p)) {
                true => space[p].as_ref().map(|a| self.caller(&a.extent)),
                false => Some(PrimExpr::i64(1)),
            })
            .collect::<Option<_>>()?;
        let kept = self.values.get(b)?.kept.clone();
        if let Some((e, dims)) = kept.filter(|_| cuts.is_empty()) {
            let lead = dims.len().saturating_sub(target.len());
            let sorted = places.iter().flatten().is_sorted();
            if sorted
                && dims.len() >= target.len()
                && dims[..lead].iter().all(|d| d.is_int(1))
                && same(&dims[lead..], &target)
                && dims.len() <= space.len()
            {
                return Some(e);
            }
        }
        let mut x = self.expr(b)?;
        if !cuts.is_empty() {
            let list = |f: fn(&(i64, i64, i64, i64)) -> i64| {
                let values = cuts.iter().map(|c| Expr::new(ExprKind::Prim(PrimExpr::i64(f(c))), self.w.span()));
                Expr::new(ExprKind::Tuple(values.collect()), self.w.span())
            };
            let args = vec![x, list(|c| c.0), list(|c| c.1), list(|c| c.2), list(|c| c.3)];
            x = self.op("strided_slice", args, &[])?;
        }
        // Dims in the order of the axes, those of 1 in front.
        if !places.iter().flatten().is_sorted() {
            let mut order: Vec<usize> = (0..places.len()).collect();
            order.sort_by_key(|&d| places[d]);
            let axes: Vec<i64> = order.iter().map(|&d| d as i64).collect();
            x = self.op("permute_dims", vec![x], &[("axes", super::ints(&axes))])?;
            places = order.iter().map(|&d| places[d]).collect();
        }
        let (rank, all) = (places.len(), space.len());
        let aligned = rank <= all && places.iter().enumerate().all(|(d, p)| p.is_none_or(|p| p == all - rank + d));
        if aligned {
            return Some(x);
        }
        self.reshaped(x, target)
    }

    fn index(&self, i: &PrimExpr, axes: &[&Axis]) -> Option<Index> {
        let p = Poly::of(i, &self.ranges).simplified(&self.ranges);
        if let Some(begin) = p.as_const() {
            return Some(Index { axis: None, begin, step: 1 });
        }
        let mut used = axes.iter().filter(|a| p.uses(&a.var));
        let (Some(a), None) = (used.next(), used.next()) else { return None };
        let (step, begin) = p.split(&a.var)?;
        Some(Index { axis: Some(a.var.clone()), begin: begin.as_const()?, step: step.as_const()? })
    }
}
