//! Blocks that copy: constants around a tensor, tensors one after the other, other dims for the same elements.

use super::{ints, loaded, same, Padded, Raise, Space, Value, MOST_POINTS};
use crate::schedule::poly::Poly;
use crate::schedule::stage::{Axis, Out};
use crate::schedule::Ranges;
use relax_ir::attrs::AttrValue;
use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::relax::{Expr, ExprKind};
use relax_ir::tir::Buffer;
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

impl Raise<'_> {
    pub(super) fn copied(&mut self, out: &Out, space: &Space) -> Option<Value> {
        if let Some((b, indices)) = loaded(&out.value) {
            let same = self.same_elements(b, indices, out, space).map(Value::from);
            return same.or_else(|| self.turned_weights(b, indices, space));
        }
        let PrimKind::IfThenElse(cond, then, otherwise) = out.value.kind() else { return None };
        if let Some(v) = self.padded(cond, then, otherwise, out, space) {
            return Some(v);
        }
        if let Some(v) = self.spread(cond, then, otherwise, out, space) {
            return Some(v);
        }
        self.joined(out, space).map(Value::from)
    }

    /// The same elements in the same order.
    fn same_elements(&mut self, b: &Buffer, indices: &[PrimExpr], out: &Out, space: &Space) -> Option<Expr> {
        let flat = |b: &Buffer, indices: &[PrimExpr]| {
            let mut at = PrimExpr::i64(0);
            for (i, n) in indices.iter().zip(&b.shape) {
                at = at * n.clone().cast(DType::I64) + i.clone().cast(DType::I64);
            }
            at
        };
        let (from, to) = (flat(b, indices), flat(&out.buffer, &out.indices));
        let size = |b: &Buffer| {
            let all = self.shape(b).into_iter().fold(PrimExpr::i64(1), |n, d| n * d);
            Poly::of(&all, &Ranges::default())
        };
        let of = |e: &PrimExpr| Poly::of(e, &self.ranges).simplified(&self.ranges);
        let proved = || of(&from).sub(&of(&to)).simplified(&self.ranges).is_zero();
        if !size(b).sub(&size(&out.buffer)).is_zero() || !(proved() || at_each_point(&from, &to, space)) {
            return None;
        }
        let (x, dims) = (self.expr(b)?, self.shape(&out.buffer));
        self.reshaped(x, dims)
    }

    /// `value` around the elements of a tensor.
    fn padded(&mut self, cond: &PrimExpr, x: &PrimExpr, value: &PrimExpr, out: &Out, space: &Space) -> Option<Value> {
        let (b, indices) = loaded(x)?;
        let value = value.as_float()?;
        if indices.len() != space.len() {
            return None;
        }
        // Where the elements begin and end in each dim.
        let (mut widths, mut dims, mut inside) = (vec![], vec![], vec![]);
        for (d, i) in indices.iter().enumerate() {
            let of = |e: &PrimExpr| Poly::of(e, &self.ranges);
            let own = space[d].as_ref().map_or(Poly::default(), |a| Poly::var(&a.var));
            let (size, total) = (of(&b.shape[d]), of(&out.buffer.shape[d]));
            let before = own.sub(&of(i)).as_const()?;
            let after = total.sub(&size).as_const()? - before;
            if before < 0 || after < 0 {
                return None;
            }
            widths.extend([before, after]);
            dims.push(size.as_const());
            inside.push((Poly::constant(before), size.add(&Poly::constant(before)), before == 0, after == 0));
        }
        let mut all = vec![];
        conjuncts(cond, &mut all);
        for c in all {
            let (d, lo, hi) = self.bound(c, space)?;
            let (first, end, begins, ends) = &mut inside[d];
            let other = |p: &Poly, q: &Poly| !p.sub(q).is_zero();
            if lo.is_some_and(|lo| other(&lo, first)) || hi.as_ref().is_some_and(|hi| other(hi, end)) {
                return None;
            }
            *begins |= hi.is_none();
            *ends |= hi.is_some();
        }
        if !inside.iter().all(|(.., begins, ends)| *begins && *ends) {
            return None;
        }
        if let Some(mut spread) = self.values.get(b)?.spread.clone() {
            let own = spread.widths.iter().all(|w| *w == 0) && value == 0.0 && widths[..4].iter().all(|w| *w == 0);
            spread.widths = widths[4..].to_vec();
            return own.then(|| Value { spread: Some(spread), ..Value::default() });
        }
        let of = self.expr(b)?;
        let attrs = [("pad_width", ints(&widths)), ("pad_value", AttrValue::Float(value))];
        let expr = Some(self.op("nn.pad", vec![of.clone()], &attrs)?);
        Some(Value { expr, padded: Some(Padded { of, dims, widths, value }), ..Value::default() })
    }

    /// A condition on one axis: the dim, and from where or up to where it holds.
    fn bound(&self, c: &PrimExpr, space: &Space) -> Option<(usize, Option<Poly>, Option<Poly>)> {
        let PrimKind::Binary(op, a, b) = c.kind() else { return None };
        // `a < b`, `a <= b`: b - a has a least value.
        let (a, b, least) = match op {
            BinOp::Lt => (a, b, 1),
            BinOp::Le => (a, b, 0),
            BinOp::Gt => (b, a, 1),
            BinOp::Ge => (b, a, 0),
            _ => return None,
        };
        let p = Poly::of(b, &self.ranges).sub(&Poly::of(a, &self.ranges));
        let d = space.iter().position(|a| a.as_ref().is_some_and(|a| p.uses(&a.var)))?;
        let (step, rest) = p.split(&space[d].as_ref()?.var)?;
        match step.as_const()? {
            1 => Some((d, Some(Poly::constant(least).sub(&rest)), None)),
            -1 => Some((d, None, Some(rest.add(&Poly::constant(1 - least))))),
            _ => None,
        }
    }

    /// Tensors one after the other along one dim: `if start <= i then x[i - start] else ..`.
    fn joined(&mut self, out: &Out, space: &Space) -> Option<Expr> {
        let (mut parts, mut rest, mut dim) = (vec![], &out.value, None);
        let mut end = None;
        while let PrimKind::IfThenElse(cond, then, otherwise) = rest.kind() {
            let (d, start, None) = self.bound(cond, space)? else { return None };
            let start = start?.as_const()?;
            let until = match end {
                Some(end) => end,
                None => out.buffer.shape[d].as_int()?,
            };
            if dim.is_some_and(|own| own != d) {
                return None;
            }
            dim = Some(d);
            parts.push(self.part(then, space, d, start, until)?);
            (end, rest) = (Some(start), otherwise);
        }
        let d = dim?;
        parts.push(self.part(rest, space, d, 0, end?)?);
        parts.reverse();
        let all = Expr::new(ExprKind::Tuple(parts), self.w.span());
        self.op("concat", vec![all], &[("axis", AttrValue::Int(d as i64))])
    }

    /// All of a tensor that stands at `start` of dim `d`.
    fn part(&self, e: &PrimExpr, space: &Space, d: usize, start: i64, end: i64) -> Option<Expr> {
        let (b, indices) = loaded(e)?;
        let own = |(at, (i, a)): (usize, (&PrimExpr, &Option<Axis>))| {
            let p = Poly::of(i, &self.ranges);
            let wanted = match a {
                Some(a) => Poly::var(&a.var),
                None => Poly::default(),
            };
            p.sub(&wanted).as_const() == Some(if at == d { -start } else { 0 })
        };
        let fits = indices.len() == space.len() && b.shape[d].as_int() == Some(end - start);
        let info = self.values.get(b)?.expr.clone()?;
        let whole = same(self.info(&info)?.known_dims()?, &self.shape(b));
        (fits && whole && indices.iter().zip(space).enumerate().all(own)).then_some(info)
    }
}

/// Whether both have the same value at every point of `space`, of which there are not too many to try.
fn at_each_point(a: &PrimExpr, b: &PrimExpr, space: &Space) -> bool {
    let axes: Vec<&Axis> = space.iter().flatten().collect();
    let Some(lens) = axes.iter().map(|a| a.len()).collect::<Option<Vec<i64>>>() else { return false };
    let Some(points) = lens.iter().try_fold(1i64, |n, l| n.checked_mul(*l)).filter(|n| *n <= MOST_POINTS) else {
        return false;
    };
    let mut place: HashMap<Var, i64> = HashMap::new();
    (0..points).all(|mut point| {
        for (a, len) in axes.iter().zip(&lens).rev() {
            place.insert(a.var.clone(), point % len);
            point /= len;
        }
        let value = a.evaluate(&place);
        value.is_some() && value == b.evaluate(&place)
    })
}

/// The conditions that must all hold.
pub(super) fn conjuncts<'a>(e: &'a PrimExpr, out: &mut Vec<&'a PrimExpr>) {
    match e.kind() {
        PrimKind::Binary(BinOp::And, a, b) => {
            conjuncts(a, out);
            conjuncts(b, out);
        }
        PrimKind::Call(Intrin::Likely, a) => conjuncts(&a[0], out),
        _ => out.push(e),
    }
}
