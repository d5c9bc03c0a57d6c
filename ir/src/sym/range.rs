//! Intervals of polynomials.

use super::{Atom, AtomId, Facts, Poly};
use crate::TypeCode;

/// A closed interval; the ends saturate to "no bound".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub lo: i128,
    pub hi: i128,
}

/// No lower bound.
pub const LOW: i128 = i128::MIN;
/// No upper bound.
pub const HIGH: i128 = i128::MAX;

impl Range {
    pub const ALL: Range = Range { lo: LOW, hi: HIGH };
    pub const NON_NEGATIVE: Range = Range { lo: 0, hi: HIGH };
    pub fn point(v: i64) -> Range {
        Range { lo: v as i128, hi: v as i128 }
    }
    pub fn new(lo: i128, hi: i128) -> Range {
        Range { lo, hi }
    }
    pub fn contains(self, v: i128) -> bool {
        self.lo <= v && v <= self.hi
    }
    /// Both hold. Contradictory bounds leave the first one.
    pub fn meet(self, o: Range) -> Range {
        let r = Range { lo: self.lo.max(o.lo), hi: self.hi.min(o.hi) };
        if r.lo > r.hi {
            self
        } else {
            r
        }
    }
    /// The hull.
    pub fn join(self, o: Range) -> Range {
        Range { lo: self.lo.min(o.lo), hi: self.hi.max(o.hi) }
    }
    fn add(self, o: Range) -> Range {
        Range { lo: add_end(self.lo, o.lo, LOW), hi: add_end(self.hi, o.hi, HIGH) }
    }
    fn mul(self, o: Range) -> Range {
        let p = [mul_end(self.lo, o.lo), mul_end(self.lo, o.hi), mul_end(self.hi, o.lo), mul_end(self.hi, o.hi)];
        Range { lo: p.into_iter().fold(HIGH, i128::min), hi: p.into_iter().fold(LOW, i128::max) }
    }
    /// Of a square: never negative.
    fn squared(self) -> Range {
        let r = self.mul(self);
        if self.contains(0) {
            Range { lo: 0, hi: r.hi }
        } else {
            Range { lo: r.lo.max(0), hi: r.hi }
        }
    }
}

fn bounded(v: i128) -> bool {
    v != LOW && v != HIGH
}

fn add_end(a: i128, b: i128, unbounded: i128) -> i128 {
    if !bounded(a) || !bounded(b) {
        return unbounded;
    }
    a.checked_add(b).unwrap_or(unbounded)
}

fn mul_end(a: i128, b: i128) -> i128 {
    if a == 0 || b == 0 {
        return 0;
    }
    let negative = (a < 0) != (b < 0);
    let far = if negative { LOW } else { HIGH };
    if !bounded(a) || !bounded(b) {
        return far;
    }
    a.checked_mul(b).unwrap_or(far)
}

fn div_end(a: i128, k: i128) -> i128 {
    if bounded(a) {
        a.div_euclid(k)
    } else {
        a
    }
}

impl Facts {
    /// The interval of a polynomial under everything known.
    pub(super) fn range(&mut self, p: &Poly) -> Range {
        let mut sum = Range::point(0);
        for (m, c) in p.terms() {
            let mut r = Range::point(*c);
            let mut i = 0;
            while i < m.len() {
                let one = self.atom_range(m[i]);
                if i + 1 < m.len() && m[i + 1] == m[i] {
                    r = r.mul(one.squared());
                    i += 2;
                } else {
                    r = r.mul(one);
                    i += 1;
                }
            }
            sum = sum.add(r);
        }
        match self.stated.get(p) {
            Some(stated) => sum.meet(*stated),
            None => sum,
        }
    }

    pub(super) fn atom_range(&mut self, id: AtomId) -> Range {
        if let Some(r) = self.range_cache.get(&id) {
            return *r;
        }
        let r = match self.atom(id).clone() {
            Atom::Var(v) => match v.dtype().code {
                TypeCode::Bool => Range::new(0, 1),
                TypeCode::Int | TypeCode::UInt if !self.signed.contains(&v) => Range::NON_NEGATIVE,
                _ => Range::ALL,
            },
            Atom::FloorDiv(a, b) => {
                let (ra, rb) = (self.range(&a), self.range(&b));
                match b.as_const() {
                    Some(k) if k > 0 => Range::new(div_end(ra.lo, k as i128), div_end(ra.hi, k as i128)),
                    // Large divisors bring quotients close to 0, or to -1 from below.
                    _ if rb.lo >= 1 => {
                        let far = |a: i128| if bounded(a) { a.div_euclid(rb.lo) } else { a };
                        let near = |a: i128, limit: i128| match bounded(rb.hi) && bounded(a) {
                            true => a.div_euclid(rb.hi),
                            false => limit,
                        };
                        let lo = if ra.lo >= 0 { near(ra.lo, 0) } else { far(ra.lo) };
                        let hi = if ra.hi >= 0 { far(ra.hi) } else { near(ra.hi, -1) };
                        Range::new(lo, hi)
                    }
                    _ => Range::ALL,
                }
            }
            Atom::FloorMod(a, b) => {
                let (ra, rb) = (self.range(&a), self.range(&b));
                if rb.lo >= 1 {
                    let hi = if bounded(rb.hi) { rb.hi - 1 } else { HIGH };
                    Range::new(0, if ra.lo >= 0 { hi.min(ra.hi) } else { hi })
                } else {
                    Range::ALL
                }
            }
            Atom::Min(v) => v
                .iter()
                .map(|p| self.range(p))
                .fold(Range::new(HIGH, HIGH), |a, b| Range::new(a.lo.min(b.lo), a.hi.min(b.hi))),
            Atom::Max(v) => v
                .iter()
                .map(|p| self.range(p))
                .fold(Range::new(LOW, LOW), |a, b| Range::new(a.lo.max(b.lo), a.hi.max(b.hi))),
            Atom::Select(_, a, b) => {
                let (ra, rb) = (self.range(&a), self.range(&b));
                ra.join(rb)
            }
            Atom::Opaque(_) => Range::ALL,
        };
        let r = match self.bounds.get(&id) {
            Some(b) => r.meet(*b),
            None => r,
        };
        self.range_cache.insert(id, r);
        r
    }
}
