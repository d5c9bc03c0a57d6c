//! From expressions to canonical form.

use super::{Answer, Atom, Cond, Facts, Poly};
use crate::prim::{BinOp, Intrin, PrimExpr, PrimKind};
use crate::{DType, TypeCode};
use std::collections::HashMap;

/// Deeper expressions become opaque atoms.
const MAX_DEPTH: u32 = 256;

/// Larger expressions have opaque parts: shared ones are walked once for each use.
const MAX_STEPS: u32 = 4096;

impl Facts {
    /// The canonical form of an integer expression under the equalities known now.
    pub fn canonical(&mut self, e: &PrimExpr) -> Poly {
        self.steps = 0;
        self.canon(e, 0)
    }

    /// The canonical form of a condition.
    pub fn condition(&mut self, e: &PrimExpr) -> Cond {
        self.steps = 0;
        self.cond(e, 0)
    }

    fn opaque(&mut self, e: &PrimExpr) -> Poly {
        self.poly_of(Atom::Opaque(e.clone()))
    }

    fn canon(&mut self, e: &PrimExpr, depth: u32) -> Poly {
        self.steps += 1;
        if depth > MAX_DEPTH || self.steps > MAX_STEPS {
            return self.opaque(e);
        }
        self.try_canon(e, depth + 1).unwrap_or_else(|| self.opaque(e))
    }

    fn try_canon(&mut self, e: &PrimExpr, depth: u32) -> Option<Poly> {
        let d = e.dtype();
        if d.lanes != 1 {
            return None;
        }
        if d.is_bool() && !matches!(e.kind(), PrimKind::Int(_) | PrimKind::Var(_)) {
            let c = self.cond(e, depth);
            return Some(self.select(c, Poly::constant(1), Poly::constant(0)));
        }
        match e.kind() {
            PrimKind::Int(v) if !d.is_uint() || *v >= 0 => Some(Poly::constant(*v)),
            PrimKind::Var(v) if d.is_int() || d.is_bool() => Some(self.poly_of(Atom::Var(v.clone()))),
            // Unsigned arithmetic wraps at 0: left alone.
            _ if d.is_uint() && !matches!(e.kind(), PrimKind::Cast(_)) => None,
            _ if !d.is_int() => None,
            PrimKind::Cast(a) => self.cast(a, d, depth),
            PrimKind::Neg(a) => self.canon(a, depth).scale(-1),
            PrimKind::Binary(op, a, b) => self.binary(*op, a, b, depth),
            PrimKind::Select(c, a, b) | PrimKind::IfThenElse(c, a, b) => {
                let c = self.cond(c, depth);
                let (a, b) = (self.canon(a, depth), self.canon(b, depth));
                Some(self.select(c, a, b))
            }
            PrimKind::Call(Intrin::Abs, args) => {
                let x = self.canon(args.first()?, depth);
                let minus = x.scale(-1)?;
                self.extremum(true, vec![x, minus])
            }
            PrimKind::Call(Intrin::Likely, args) => Some(self.canon(args.first()?, depth)),
            PrimKind::Let(v, value, body) => {
                let map = HashMap::from([(v.clone(), value.clone())]);
                Some(self.canon(&body.substitute(&map), depth))
            }
            _ => None,
        }
    }

    /// Conversions that keep every value are no operation.
    fn cast(&mut self, a: &PrimExpr, to: DType, depth: u32) -> Option<Poly> {
        let from = a.dtype();
        let keeps = match (from.code, to.code) {
            (TypeCode::Bool, _) => true,
            (x, y) if x == y => from.bits <= to.bits,
            (TypeCode::UInt, TypeCode::Int) => from.bits < to.bits,
            _ => false,
        };
        if !keeps && (!from.is_int() || !to.is_int()) {
            return None;
        }
        let p = self.canon(a, depth);
        if keeps {
            return Some(p);
        }
        let r = self.range(&p);
        let hi = if to == DType::U64 { i64::MAX } else { to.int_max() };
        (r.lo >= to.int_min() as i128 && r.hi <= hi as i128).then_some(p)
    }

    fn binary(&mut self, op: BinOp, a: &PrimExpr, b: &PrimExpr, depth: u32) -> Option<Poly> {
        let (x, y) = (self.canon(a, depth), self.canon(b, depth));
        let p = match op {
            BinOp::Add => x.add(&y)?,
            BinOp::Sub => x.sub(&y)?,
            BinOp::Mul => x.mul(&y)?,
            BinOp::FloorDiv => return self.floor_div(&x, &y),
            BinOp::FloorMod => return self.floor_mod(&x, &y),
            BinOp::TruncDiv | BinOp::Div | BinOp::TruncMod => {
                // Truncating and flooring agree where nothing is negative.
                if self.range(&y).lo < 0 {
                    return None;
                }
                if self.decide_non_negative(&x) != Answer::Yes {
                    // What is less than one divisor below 0 counts as 0.
                    let k = y.as_const().filter(|k| *k > 0 && op != BinOp::TruncMod)?;
                    if self.decide_non_negative(&x.offset(k - 1)?) != Answer::Yes {
                        return None;
                    }
                    let x = self.extremum(true, vec![Poly::default(), x])?;
                    return self.floor_div(&x, &y);
                }
                return match op {
                    BinOp::TruncMod => self.floor_mod(&x, &y),
                    _ => self.floor_div(&x, &y),
                };
            }
            BinOp::Min => return self.extremum(false, vec![x, y]),
            BinOp::Max => return self.extremum(true, vec![x, y]),
            BinOp::Shl => {
                let k = y.as_const().filter(|k| (0..62).contains(k))?;
                x.scale(1i64 << k)?
            }
            BinOp::Shr => {
                let k = y.as_const().filter(|k| (0..62).contains(k))?;
                return self.floor_div(&x, &Poly::constant(1i64 << k));
            }
            BinOp::BitAnd => {
                let mask = y.as_const().filter(|m| *m >= 0 && (m & m.checked_add(1).unwrap_or(1)) == 0)?;
                return self.floor_mod(&x, &Poly::constant(mask.checked_add(1)?));
            }
            _ => return None,
        };
        Some(self.meet_div_mod(p))
    }

    fn cond(&mut self, e: &PrimExpr, depth: u32) -> Cond {
        self.steps += 1;
        if depth > MAX_DEPTH || self.steps > MAX_STEPS {
            return Cond::Opaque(e.clone());
        }
        let depth = depth + 1;
        match e.kind() {
            PrimKind::Int(v) => Cond::Const(*v != 0),
            PrimKind::Not(a) => negate(self.cond(a, depth)),
            PrimKind::Call(Intrin::Likely, args) if !args.is_empty() => self.cond(&args[0], depth),
            PrimKind::Binary(op @ (BinOp::And | BinOp::Or), a, b) => {
                let (a, b) = (self.cond(a, depth), self.cond(b, depth));
                self.join(*op == BinOp::And, vec![a, b])
            }
            PrimKind::Binary(op, a, b) if op.is_compare() && comparable(a.dtype()) => {
                let (x, y) = (self.canon(a, depth), self.canon(b, depth));
                self.compare(*op, &x, &y).unwrap_or_else(|| Cond::Opaque(e.clone()))
            }
            PrimKind::Cast(a) if comparable(a.dtype()) => {
                let x = self.canon(a, depth);
                negate(self.zero(&x))
            }
            PrimKind::Var(v) if v.dtype().is_bool() => {
                let x = self.canon(e, depth);
                negate(self.zero(&x))
            }
            _ => Cond::Opaque(e.clone()),
        }
    }

    pub(super) fn compare(&mut self, op: BinOp, x: &Poly, y: &Poly) -> Option<Cond> {
        let d = self.meet_div_mod(x.sub(y)?);
        Some(match op {
            BinOp::Eq => self.zero(&d),
            BinOp::Ne => negate(self.zero(&d)),
            BinOp::Ge => self.non_negative(d),
            BinOp::Gt => self.non_negative(d.offset(-1)?),
            BinOp::Le => self.non_negative(d.scale(-1)?),
            _ => self.non_negative(d.scale(-1)?.offset(-1)?),
        })
    }

    /// `p == 0`
    pub(super) fn zero(&self, p: &Poly) -> Cond {
        match p.as_const() {
            Some(v) => Cond::Const(v == 0),
            None => Cond::Zero(p.normalised()),
        }
    }

    /// `p >= 0`, divided by the greatest common divisor of the atoms' coefficients.
    fn non_negative(&self, p: Poly) -> Cond {
        if let Some(v) = p.as_const() {
            return Cond::Const(v >= 0);
        }
        let g = p.content_of_atoms();
        let c = p.constant_term();
        let reduced = p.offset(c.wrapping_neg()).filter(|_| g > 1).map(|q| q.divide_exact(g));
        match reduced.and_then(|q| q.offset(c.div_euclid(g))) {
            Some(q) => Cond::NonNegative(q),
            None => Cond::NonNegative(p),
        }
    }

    pub(super) fn join(&mut self, and: bool, parts: Vec<Cond>) -> Cond {
        let mut list = vec![];
        for c in parts {
            match c {
                Cond::And(v) if and => list.extend(v),
                Cond::Or(v) if !and => list.extend(v),
                c => list.push(c),
            }
        }
        let mut kept: Vec<Cond> = vec![];
        for c in list {
            match self.decide(&c) {
                Answer::Yes if and => {}
                Answer::No if !and => {}
                Answer::Unknown => {
                    if !kept.contains(&c) {
                        kept.push(c);
                    }
                }
                _ => return Cond::Const(!and),
            }
        }
        match kept.len() {
            0 => Cond::Const(and),
            1 => kept.swap_remove(0),
            _ if and => Cond::And(kept),
            _ => Cond::Or(kept),
        }
    }

    pub(super) fn resolve_condition(&mut self, c: &Cond) -> Cond {
        match c {
            Cond::Const(_) | Cond::Opaque(_) => c.clone(),
            Cond::Zero(p) => {
                let p = self.resolve(p);
                self.zero(&p)
            }
            Cond::NonNegative(p) => {
                let p = self.resolve(p);
                self.non_negative(p)
            }
            Cond::And(v) | Cond::Or(v) => {
                let parts = v.iter().map(|c| self.resolve_condition(c)).collect();
                self.join(matches!(c, Cond::And(_)), parts)
            }
            Cond::Not(inner) => negate(self.resolve_condition(inner)),
        }
    }
}

fn comparable(d: DType) -> bool {
    (d.is_int() || d.is_bool()) && d.lanes == 1
}

pub(super) fn negate(c: Cond) -> Cond {
    match c {
        Cond::Const(v) => Cond::Const(!v),
        Cond::Not(inner) => *inner,
        Cond::NonNegative(ref p) => match p.scale(-1).and_then(|q| q.offset(-1)) {
            Some(q) => Cond::NonNegative(q),
            None => Cond::Not(Box::new(c)),
        },
        c => Cond::Not(Box::new(c)),
    }
}
