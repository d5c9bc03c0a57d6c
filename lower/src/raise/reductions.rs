//! Reductions over whole dims, and products of matrices.

use super::{loaded, Raise, Space, Sum, Value};
use crate::schedule::poly::Poly;
use crate::schedule::stage::{Acc, Axis, Out, Stage};
use relax_ir::attrs::AttrValue;
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::relax::Expr;
use relax_ir::tir::Buffer;
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// What is added to an accumulator, or compared with it, and the operation.
pub(super) fn step(acc: &Acc) -> Option<(BinOp, &PrimExpr)> {
    let PrimKind::Binary(op, a, b) = acc.update.kind() else { return None };
    let own = |e: &PrimExpr| e.as_var() == Some(&acc.var);
    let term = match op {
        BinOp::Add | BinOp::Mul if own(b) => a,
        // The order decides what becomes of NaN.
        BinOp::Add | BinOp::Mul | BinOp::Max | BinOp::Min if own(a) => b,
        _ => return None,
    };
    (!term.uses(&acc.var) && starts(*op, &acc.init)).then_some((*op, term))
}

/// Whether a reduction begins with what changes nothing.
fn starts(op: BinOp, init: &PrimExpr) -> bool {
    let d = init.dtype();
    match (op, init.kind()) {
        (BinOp::Add, PrimKind::Float(v)) => v.0 == 0.0,
        (BinOp::Add, PrimKind::Int(v)) => *v == 0,
        (BinOp::Mul, PrimKind::Float(v)) => v.0 == 1.0,
        (BinOp::Mul, PrimKind::Int(v)) => *v == 1,
        (BinOp::Max, _) => *init == PrimExpr::min_value(d),
        (BinOp::Min, _) => *init == PrimExpr::max_value(d),
        _ => false,
    }
}

impl Raise<'_> {
    /// A sum, product, maximum or minimum over dims of a tensor of values.
    pub(super) fn reduction(&mut self, s: &Stage, acc: &Acc, out: &Out) -> Option<Value> {
        let (op, term) = step(acc)?;
        let name = match op {
            BinOp::Add => "sum",
            BinOp::Mul => "prod",
            BinOp::Max => "max",
            BinOp::Min => "min",
            _ => return None,
        };
        // The dims of the load that has the most.
        let mut widest: Option<Space> = None;
        term.walk(&mut |e| {
            let Some(space) = loaded(e).and_then(|(b, i)| self.dims_of(b, i, s)) else { return };
            let count = |s: &Space| s.iter().flatten().count();
            if widest.as_ref().is_none_or(|w| count(w) < count(&space)) {
                widest = Some(space);
            }
        });
        let space = widest.filter(|w| w.iter().flatten().count() == s.spatial.len() + s.reduce.len())?;
        let kept = |a: &&Axis| s.spatial.iter().any(|b| b.var == a.var);
        let order: Vec<&Var> = space.iter().flatten().filter(kept).map(|a| &a.var).collect();
        let written: Vec<&PrimExpr> = out.indices.iter().filter(|i| i.as_int().is_none()).collect();
        let plain = |(v, i): (&&Var, &&PrimExpr)| Poly::of(i, &self.ranges) == Poly::var(v);
        if order.len() != written.len() || !order.iter().zip(&written).all(plain) {
            return None;
        }
        let x = self.value(term, &space, &mut HashMap::new())?;
        let mut wanted = vec![];
        for a in &space {
            wanted.push(a.as_ref().map_or(PrimExpr::i64(1), |a| self.caller(&a.extent)));
        }
        if !super::same(self.info(&x)?.known_dims()?, &wanted) {
            return None;
        }
        let reduced = |a: &Option<Axis>| a.as_ref().is_some_and(|a| s.reduce.iter().any(|r| r.var == a.var));
        let axes: Vec<i64> = (0..space.len()).filter(|&d| reduced(&space[d])).map(|d| d as i64).collect();
        let attrs = [("axis", super::ints(&axes)), ("keepdims", AttrValue::Bool(true))];
        let kept = self.op(name, vec![x.clone()], &attrs)?;
        let dims = self.info(&kept)?.known_dims()?.to_vec();
        let expr = Some(self.reshaped(kept.clone(), self.shape(&out.buffer))?);
        let count = s.reduce.iter().try_fold(1i64, |n, a| n.checked_mul(a.len()?));
        let sum = count.filter(|n| op == BinOp::Add && *n > 0).map(|count| Sum { of: x, axes, count });
        Some(Value { expr, kept: Some((kept, dims)), sum, ..Value::default() })
    }

    /// The axis of each dim, where the indices are axes over all of their dims.
    fn dims_of(&self, b: &Buffer, indices: &[PrimExpr], s: &Stage) -> Option<Space> {
        let one = |(i, n): (&PrimExpr, &PrimExpr)| {
            let p = Poly::of(i, &self.ranges);
            if p.is_zero() && n.is_int(1) {
                return Some(None);
            }
            let a = s.spatial.iter().chain(&s.reduce).find(|a| p == Poly::var(&a.var))?;
            self.equal(&a.extent, n).then(|| Some(a.clone()))
        };
        indices.iter().zip(&b.shape).map(one).collect()
    }

    /// A convolution or a product of matrices.
    pub(super) fn product(&mut self, s: &Stage, acc: &Acc, out: &Out, space: &Space) -> Option<Expr> {
        let (BinOp::Add, term) = step(acc)? else { return None };
        let PrimKind::Binary(BinOp::Mul, a, b) = term.kind() else { return None };
        let d = out.buffer.dtype();
        // Factors may be of a narrower type than their sum.
        let factor = |e: &PrimExpr| -> Option<(Buffer, Vec<PrimExpr>, DType)> {
            let inner = match e.kind() {
                PrimKind::Cast(x) if x.dtype() != e.dtype() => x,
                _ => e,
            };
            let (b, i) = loaded(inner)?;
            Some((b.clone(), i.to_vec(), inner.dtype()))
        };
        let (x, y) = (factor(a)?, factor(b)?);
        if x.2 != y.2 || x.2.is_float() != d.is_float() || (d.is_float() && d.bits <= 16) {
            return None;
        }
        let wide = if x.2 == d { AttrValue::None } else { AttrValue::DType(d) };
        for (x, y) in [(&x, &y), (&y, &x)] {
            let found = self.convolution(s, (&x.0, &x.1), (&y.0, &y.1), space, &wide);
            if found.is_some() {
                return found;
            }
        }
        for (x, y) in [(&x, &y), (&y, &x)] {
            let found = self.matrices(s, (&x.0, &x.1), (&y.0, &y.1), out, &wide);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Products of rows of one tensor with columns of another, for each of the leading dims that both have.
    fn matrices(
        &mut self,
        s: &Stage,
        x: (&Buffer, &[PrimExpr]),
        y: (&Buffer, &[PrimExpr]),
        out: &Out,
        wide: &AttrValue,
    ) -> Option<Expr> {
        let [depth] = s.reduce.as_slice() else { return None };
        let uses = |i: &[PrimExpr], a: &Axis| i.iter().any(|e| e.uses(&a.var));
        if !uses(x.1, depth) || !uses(y.1, depth) {
            return None;
        }
        // In the order of the result: what both have, rows, columns.
        let mut order: Vec<(u8, &Axis)> = vec![];
        for i in &out.indices {
            let p = Poly::of(i, &self.ranges);
            let Some(a) = s.spatial.iter().find(|a| p == Poly::var(&a.var)) else { continue };
            let kind = match (uses(x.1, a), uses(y.1, a)) {
                (true, true) => 0,
                (true, false) => 1,
                (false, true) => 2,
                (false, false) => return None,
            };
            order.push((kind, a));
        }
        let of = |kind: u8| -> Vec<Axis> { order.iter().filter(|o| o.0 == kind).map(|o| o.1.clone()).collect() };
        let (both, rows, columns) = (of(0), of(1), of(2));
        if order.len() != s.spatial.len() || !order.is_sorted_by_key(|o| o.0) || columns.len() > 1 {
            return None;
        }
        if !both.is_empty() && rows.len() > 1 {
            return None;
        }
        let lead = || both.iter().cloned().map(Some);
        let or_unit = |v: &[Axis]| if v.is_empty() { vec![None] } else { v.iter().cloned().map(Some).collect() };
        let left: Space = lead().chain(or_unit(&rows)).chain([Some(depth.clone())]).collect();
        let right: Space = lead().chain([Some(depth.clone())]).chain(or_unit(&columns)).collect();
        let (a, b) = (self.view(x.0, x.1, &left)?, self.view(y.0, y.1, &right)?);
        // Both whole: nothing of them broadcasts, and a dim of 1 is one.
        let (a, b) = (self.whole(a, &left)?, self.whole(b, &right)?);
        let e = self.op("matmul", vec![a, b], &[("out_dtype", wide.clone())])?;
        self.reshaped(e, self.shape(&out.buffer))
    }

    /// The tensor with each dim of `space`.
    fn whole(&mut self, x: Expr, space: &Space) -> Option<Expr> {
        let mut dims = vec![];
        for a in space {
            dims.push(a.as_ref().map_or(PrimExpr::i64(1), |a| self.caller(&a.extent)));
        }
        self.reshaped(x, dims)
    }
}
