//! What is known about the variables of a kernel: loop ranges, values of let-bound index variables.

use super::poly::Poly;
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::{PrimExpr, Var};
use std::collections::HashMap;

/// Ranges of loop variables. Variables without one are shape variables (not negative) or runtime values (anything).
#[derive(Clone, Default)]
pub struct Ranges {
    /// `[min, min + extent)`
    loops: HashMap<Var, (Poly, Poly)>,
    values: HashMap<Var, Poly>,
    /// Shape variables and other variables that are never negative.
    dims: Vec<Var>,
    /// What values are multiples of.
    divisors: HashMap<Var, i64>,
    /// Some of them were stated.
    pub told: bool,
}

type Interval = (Option<i64>, Option<i64>);

impl Ranges {
    pub fn add_dim(&mut self, v: &Var) {
        self.dims.push(v.clone());
    }
    pub fn add_loop(&mut self, v: &Var, min: Poly, extent: Poly) {
        self.loops.insert(v.clone(), (min, extent));
    }
    pub fn set_value(&mut self, v: &Var, value: Poly) {
        self.values.insert(v.clone(), value);
    }
    pub fn set_divisor(&mut self, v: &Var, divisor: i64) {
        self.divisors.insert(v.clone(), divisor);
    }

    /// A number that divides the value of `e`; 0 when the value is 0.
    pub fn divisor(&self, e: &PrimExpr) -> i64 {
        match e.kind() {
            PrimKind::Int(v) => v.saturating_abs(),
            PrimKind::Var(v) => self.divisors.get(v).copied().unwrap_or(1),
            PrimKind::Cast(a) if a.dtype().is_int() && e.dtype().bits >= a.dtype().bits => self.divisor(a),
            PrimKind::Binary(BinOp::Add | BinOp::Sub | BinOp::Min | BinOp::Max, a, b) => {
                gcd(self.divisor(a), self.divisor(b))
            }
            PrimKind::Binary(BinOp::Mul, a, b) => self.divisor(a).checked_mul(self.divisor(b)).unwrap_or(1),
            _ => 1,
        }
    }

    /// Takes back [`Ranges::set_value`].
    pub fn restore(&mut self, v: &Var, old: Option<Poly>) {
        match old {
            Some(p) => self.set_value(v, p),
            None => drop(self.values.remove(v)),
        }
    }
    pub fn value(&self, v: &Var) -> Option<&Poly> {
        self.values.get(v)
    }

    /// Constant bounds, inclusive.
    pub fn bounds(&self, p: &Poly) -> Interval {
        let (mut lo, mut hi) = (Some(0i64), Some(0i64));
        for (atoms, c) in &p.terms {
            let (mut l, mut h) = (Some(1i64), Some(1i64));
            for a in atoms {
                let (al, ah) = self.atom_bounds(a);
                // Products of values that may be negative: unknown.
                if !(al.is_some_and(|x| x >= 0) && l.is_some_and(|x| x >= 0)) {
                    if atoms.len() == 1 {
                        (l, h) = (al, ah);
                    } else {
                        (l, h) = (None, None);
                    }
                    continue;
                }
                l = mul(l, al);
                h = mul(h, ah);
            }
            if *c < 0 {
                (l, h) = (h, l);
            }
            lo = add(lo, mul(l, Some(*c)));
            hi = add(hi, mul(h, Some(*c)));
        }
        (lo, hi)
    }

    fn atom_bounds(&self, e: &PrimExpr) -> Interval {
        match e.kind() {
            PrimKind::Int(v) => (Some(*v), Some(*v)),
            PrimKind::Cast(a) if a.dtype().is_int() => match self.atom_bounds(a) {
                (None, _) if a.dtype().is_uint() && a.dtype().bits < 64 => (Some(0), None),
                b => b,
            },
            PrimKind::Var(v) => {
                if let Some((min, extent)) = self.loops.get(v) {
                    let lo = self.bounds(min).0;
                    let hi = add(add(self.bounds(min).1, self.bounds(extent).1), Some(-1));
                    return (lo, hi);
                }
                (if self.dims.contains(v) { Some(0) } else { None }, None)
            }
            PrimKind::Binary(BinOp::FloorMod, _, k) => match k.as_int() {
                Some(k) if k > 0 => (Some(0), Some(k - 1)),
                _ if self.atom_bounds(k).0.is_some_and(|l| l >= 0) => (Some(0), None),
                _ => (None, None),
            },
            PrimKind::Binary(BinOp::FloorDiv, x, k) => match k.as_int() {
                Some(k) if k > 0 => {
                    let (l, h) = self.bounds(&Poly::of(x, self));
                    (l.map(|l| l.div_euclid(k)), h.map(|h| h.div_euclid(k)))
                }
                _ => {
                    let (l, h) = self.bounds(&Poly::of(x, self));
                    let positive = self.atom_bounds(k).0.is_some_and(|l| l >= 0);
                    if positive && l.is_some_and(|l| l >= 0) {
                        (Some(0), h)
                    } else {
                        (None, None)
                    }
                }
            },
            PrimKind::Binary(op @ (BinOp::Min | BinOp::Max), a, b) => {
                let (al, ah) = self.bounds(&Poly::of(a, self));
                let (bl, bh) = self.bounds(&Poly::of(b, self));
                if *op == BinOp::Min {
                    (al.zip(bl).map(|(a, b)| a.min(b)), min_some(ah, bh))
                } else {
                    (max_some(al, bl), ah.zip(bh).map(|(a, b)| a.max(b)))
                }
            }
            PrimKind::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul, ..) if e.dtype().bits == 64 => {
                self.bounds(&Poly::of(e, self))
            }
            _ => (None, None),
        }
    }

    /// Provably `>= 0`, extents taken as at least 1 where their loop runs.
    pub fn nonneg(&self, p: &Poly) -> bool {
        if self.bounds(p).0.is_some_and(|l| l >= 0) {
            return true;
        }
        // Replace variables with negative coefficient by their greatest value, symbolically.
        let Some(least) = self.extreme(p, false) else { return false };
        least
            .terms
            .iter()
            .all(|(atoms, c)| *c >= 0 && atoms.iter().all(|a| self.atom_bounds(a).0.is_some_and(|l| l >= 0)))
    }

    /// Provably `0 <= p < d`.
    pub fn below(&self, p: &Poly, d: &Poly) -> bool {
        if !self.nonneg(p) {
            return false;
        }
        self.nonneg(&d.sub(p).add(&Poly::constant(-1)))
    }

    /// Replaces loop variables by an end of their range, so that the result is a lower (or upper) bound of `p`.
    fn extreme(&self, p: &Poly, upper: bool) -> Option<Poly> {
        let mut p = p.clone();
        // Inner loops may have bounds in outer variables: repeat.
        for _ in 0..4 {
            let mut out = Poly::default();
            let mut changed = false;
            for (atoms, c) in &p.terms {
                let position = atoms.iter().position(|a| self.loops.contains_key_of(a));
                let Some(i) = position else {
                    out = out.add(&Poly { terms: vec![(atoms.clone(), *c)] });
                    continue;
                };
                let mut rest = atoms.clone();
                let a = rest.remove(i);
                if !rest.iter().all(|a| self.atom_bounds(a).0.is_some_and(|l| l >= 0)) {
                    return None;
                }
                let v = var_of(&a)?;
                let (min, extent) = self.loops.get(v)?;
                let end = if (*c > 0) == upper { min.add(extent).add(&Poly::constant(-1)) } else { min.clone() };
                out = out.add(&end.mul(&Poly { terms: vec![(rest, *c)] }));
                changed = true;
            }
            p = out;
            if !changed {
                return Some(p);
            }
        }
        None
    }
}

trait ContainsKeyOf {
    fn contains_key_of(&self, e: &PrimExpr) -> bool;
}
impl ContainsKeyOf for HashMap<Var, (Poly, Poly)> {
    fn contains_key_of(&self, e: &PrimExpr) -> bool {
        var_of(e).is_some_and(|v| self.contains_key(v))
    }
}

fn var_of(e: &PrimExpr) -> Option<&Var> {
    match e.kind() {
        PrimKind::Var(v) => Some(v),
        PrimKind::Cast(a) => a.as_var(),
        _ => None,
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

fn add(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    a?.checked_add(b?)
}
fn mul(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    a?.checked_mul(b?)
}
fn min_some(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        _ => a.or(b),
    }
}
fn max_some(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        _ => a.or(b),
    }
}
