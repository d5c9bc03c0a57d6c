//! From canonical form back to expressions.

use super::{Atom, Cond, Facts, Poly};
use crate::prim::{BinOp, PrimExpr};
use crate::DType;

impl Facts {
    /// The expression of a canonical polynomial: atoms in the order they were first seen, higher powers first, the
    /// constant last.
    pub fn expr(&self, p: &Poly, dtype: DType) -> PrimExpr {
        let mut sum: Option<PrimExpr> = None;
        let constant = p.terms().iter().filter(|(m, _)| m.is_empty());
        // A negative first term would need a negation: start with a positive one when there is one.
        let mut ordered: Vec<_> = p.terms().iter().filter(|(m, _)| !m.is_empty()).collect();
        ordered.sort_by_key(|(_, c)| *c < 0);
        for (m, c) in ordered.into_iter().chain(constant) {
            let negative = *c < 0 && sum.is_some() && *c != i64::MIN;
            let k = if negative { -c } else { *c };
            let mut product: Option<PrimExpr> = None;
            for id in m {
                let a = self.atom_expr(self.atom(*id), dtype);
                product = Some(match product {
                    Some(p) => p * a,
                    None => a,
                });
            }
            let term = match product {
                Some(p) if k == 1 => p,
                Some(p) => p * PrimExpr::int(dtype, k),
                None => PrimExpr::int(dtype, k),
            };
            sum = Some(match sum {
                Some(s) if negative => PrimExpr::raw_binary(BinOp::Sub, s, term),
                Some(s) => PrimExpr::raw_binary(BinOp::Add, s, term),
                None => term,
            });
        }
        sum.unwrap_or_else(|| PrimExpr::int(dtype, 0))
    }

    fn atom_expr(&self, a: &Atom, d: DType) -> PrimExpr {
        let fold = |op: BinOp, v: &[Poly]| {
            let mut parts = v.iter().map(|p| self.expr(p, d));
            let first = parts.next().unwrap_or_else(|| PrimExpr::int(d, 0));
            parts.fold(first, |a, b| PrimExpr::binary(op, a, b))
        };
        match a {
            Atom::Var(v) => v.expr().cast(d),
            Atom::FloorDiv(a, b) => self.expr(a, d).floor_div(self.expr(b, d)),
            Atom::FloorMod(a, b) => self.expr(a, d).floor_mod(self.expr(b, d)),
            Atom::Min(v) => fold(BinOp::Min, v),
            Atom::Max(v) => fold(BinOp::Max, v),
            Atom::Select(c, a, b) => self.cond_expr(c, d).select(self.expr(a, d), self.expr(b, d)),
            Atom::Opaque(e) => e.clone().cast(d),
        }
    }

    fn cond_expr(&self, c: &Cond, d: DType) -> PrimExpr {
        let fold = |op: BinOp, v: &[Cond]| {
            let mut parts = v.iter().map(|c| self.cond_expr(c, d));
            let first = parts.next().unwrap_or_else(|| PrimExpr::bool(op == BinOp::And));
            parts.fold(first, |a, b| PrimExpr::binary(op, a, b))
        };
        match c {
            Cond::Const(v) => PrimExpr::bool(*v),
            Cond::Zero(p) => {
                let (a, b) = self.sides(p, d);
                a.eq(b)
            }
            Cond::NonNegative(p) => {
                let (a, b) = self.sides(p, d);
                a.ge(b)
            }
            Cond::And(v) => fold(BinOp::And, v),
            Cond::Or(v) => fold(BinOp::Or, v),
            Cond::Not(c) => match &**c {
                Cond::Zero(p) => {
                    let (a, b) = self.sides(p, d);
                    a.ne(b)
                }
                c => self.cond_expr(c, d).not(),
            },
            Cond::Opaque(e) => e.clone(),
        }
    }

    /// `p == 0` as `positive terms == negative terms`.
    fn sides(&self, p: &Poly, d: DType) -> (PrimExpr, PrimExpr) {
        let part = |sign: i64| {
            let terms = p.terms().iter().filter(|(_, c)| c.signum() == sign);
            let terms = terms.map(|(m, c)| (m.clone(), c.checked_mul(sign).unwrap_or(i64::MAX))).collect();
            self.expr(&Poly::from_terms(terms).unwrap_or_default(), d)
        };
        (part(1), part(-1))
    }
}
