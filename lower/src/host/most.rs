//! The most that a size can be where data decides it, over the entry's variables.
//!
//! Intervals: what grows with a dim takes its bound, what falls with it its least, 0. `n - m` of an `m` that data tells is at
//! most `n`, whatever bounds `m`.

use relax_ir::op::{Answer, ShapeFacts};
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::sym::Facts;
use relax_ir::{DType, PrimExpr, Var};
use std::collections::{HashMap, HashSet};

/// What is known of dims that are read from data.
pub struct Most<'a> {
    /// At most that much, over the entry's variables.
    pub bounds: &'a HashMap<Var, PrimExpr>,
    /// Of any size.
    pub unbounded: &'a HashSet<Var>,
    pub facts: &'a mut Facts,
}

impl Most<'_> {
    /// Does data decide it?
    pub fn told(&self, e: &PrimExpr) -> bool {
        self.first_told(e).is_some()
    }

    /// A variable of it that is read from data.
    pub fn first_told(&self, e: &PrimExpr) -> Option<Var> {
        e.vars().into_iter().find(|v| self.bounds.contains_key(v) || self.unbounded.contains(v))
    }

    /// At or above an int64 whatever the data is; `None` where that is not known.
    pub fn of(&mut self, e: &PrimExpr) -> Option<PrimExpr> {
        if !self.told(e) {
            return Some(e.clone());
        }
        // Terms that cancel are gone from the simplified one; the written one may be plainer.
        let simple = self.facts.simplify(e);
        let most = self.upper(&simple).or_else(|| self.upper(e))?;
        Some(self.facts.simplify(&most))
    }

    fn upper(&mut self, e: &PrimExpr) -> Option<PrimExpr> {
        if !self.told(e) {
            return Some(e.clone());
        }
        match e.kind() {
            PrimKind::Var(v) if self.unbounded.contains(v) => None,
            PrimKind::Var(v) => self.bounds.get(v).cloned(),
            PrimKind::Cast(a) if widens(a.dtype(), e.dtype()) => Some(self.upper(a)?.cast(e.dtype())),
            PrimKind::Neg(a) => Some(negative(self.lower(a)?)),
            PrimKind::Binary(op, a, b) => match op {
                BinOp::Add => Some(self.upper(a)? + self.upper(b)?),
                BinOp::Sub => Some(self.upper(a)? - self.lower(b)?),
                BinOp::Mul => match (a.as_int(), b.as_int()) {
                    (Some(c), _) if c < 0 => Some(self.lower(b)? * c),
                    (_, Some(c)) if c < 0 => Some(self.lower(a)? * c),
                    _ if self.is_positive(a) && self.is_positive(b) => Some(self.upper(a)? * self.upper(b)?),
                    _ => None,
                },
                BinOp::FloorDiv | BinOp::TruncDiv if self.is_positive(a) && self.is_positive(b) => {
                    let most = self.upper(a)?;
                    // A divisor that data tells is 1 at least: it is no 0 where this is reached.
                    Some(if self.told(b) || !self.is_above_0(b) { most } else { most.floor_div(b.clone()) })
                }
                BinOp::FloorDiv => {
                    let c = b.as_int().filter(|c| *c > 0)?;
                    Some(self.upper(a)?.floor_div(c))
                }
                BinOp::FloorMod if self.is_positive(b) => self.upper(b),
                BinOp::TruncMod if self.is_positive(a) && self.is_positive(b) => self.upper(b),
                BinOp::Max => Some(self.upper(a)?.max(self.upper(b)?)),
                BinOp::Min => match (self.upper(a), self.upper(b)) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                },
                _ => None,
            },
            PrimKind::Select(_, a, b) | PrimKind::IfThenElse(_, a, b) => Some(self.upper(a)?.max(self.upper(b)?)),
            _ => None,
        }
    }

    /// At or below it.
    fn lower(&mut self, e: &PrimExpr) -> Option<PrimExpr> {
        if !self.told(e) {
            return Some(e.clone());
        }
        let least = match e.kind() {
            PrimKind::Cast(a) if widens(a.dtype(), e.dtype()) => self.lower(a).map(|a| a.cast(e.dtype())),
            PrimKind::Neg(a) => self.upper(a).map(negative),
            PrimKind::Binary(op, a, b) => match op {
                BinOp::Add => self.lower(a).zip(self.lower(b)).map(|(a, b)| a + b),
                BinOp::Sub => self.lower(a).zip(self.upper(b)).map(|(a, b)| a - b),
                BinOp::Mul => match (a.as_int(), b.as_int()) {
                    (Some(c), _) if c < 0 => self.upper(b).map(|b| b * c),
                    (_, Some(c)) if c < 0 => self.upper(a).map(|a| a * c),
                    (Some(c), _) => self.lower(b).map(|b| b * c),
                    (_, Some(c)) => self.lower(a).map(|a| a * c),
                    _ => None,
                },
                BinOp::FloorDiv => b.as_int().filter(|c| *c > 0).and_then(|c| Some(self.lower(a)?.floor_div(c))),
                BinOp::FloorMod if self.is_positive(b) => Some(PrimExpr::int(e.dtype(), 0)),
                BinOp::Max => match (self.lower(a), self.lower(b)) {
                    (Some(a), Some(b)) => Some(a.max(b)),
                    (a, b) => a.or(b),
                },
                BinOp::Min => self.lower(a).zip(self.lower(b)).map(|(a, b)| a.min(b)),
                _ => None,
            },
            PrimKind::Select(_, a, b) | PrimKind::IfThenElse(_, a, b) => {
                self.lower(a).zip(self.lower(b)).map(|(a, b)| a.min(b))
            }
            _ => None,
        };
        let zero = self.is_positive(e).then(|| PrimExpr::int(e.dtype(), 0));
        match (least, zero) {
            (Some(least), Some(zero)) => Some(least.max(zero)),
            (least, zero) => least.or(zero),
        }
    }

    /// Whether it is known to be 0 or more.
    fn is_positive(&mut self, e: &PrimExpr) -> bool {
        let made = match e.kind() {
            PrimKind::Binary(BinOp::Add | BinOp::Mul | BinOp::Min, a, b) => self.is_positive(a) && self.is_positive(b),
            PrimKind::Binary(BinOp::Max, a, b) => self.is_positive(a) || self.is_positive(b),
            PrimKind::Binary(BinOp::FloorDiv, a, b) => self.is_positive(a) && self.is_positive(b),
            PrimKind::Binary(BinOp::FloorMod, _, b) => self.is_positive(b),
            _ => false,
        };
        made || self.facts.prove(&e.clone().ge(PrimExpr::int(e.dtype(), 0))) == Answer::Yes
    }

    fn is_above_0(&mut self, e: &PrimExpr) -> bool {
        self.facts.prove(&e.clone().gt(PrimExpr::int(e.dtype(), 0))) == Answer::Yes
    }
}

fn negative(e: PrimExpr) -> PrimExpr {
    PrimExpr::int(e.dtype(), 0) - e
}

/// Does the cast keep every value?
fn widens(from: DType, to: DType) -> bool {
    let int = |d: DType| d.is_int() || d.is_uint();
    int(from) && to.is_int() && (from.bits < to.bits || from == to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A size of the entry, two dims that data tells and the facts: `0 <= m <= n`, `0 <= k <= n + 3`.
    fn dims() -> ([Var; 3], HashMap<Var, PrimExpr>, Facts) {
        let [n, m, k] = ["n", "m", "k"].map(Var::dim);
        let bounds = HashMap::from([(m.clone(), n.expr()), (k.clone(), n.expr() + 3)]);
        let mut facts = Facts::default();
        bounds.iter().for_each(|(v, b)| facts.assume(&v.expr().le(b.clone())));
        ([n, m, k], bounds, facts)
    }

    /// A size that falls with a dim is largest where that is 0, not where it is largest.
    #[test]
    fn what_is_left_is_at_most_all() {
        let ([n, m, _], bounds, mut facts) = dims();
        let none = HashSet::new();
        let mut most = Most { bounds: &bounds, unbounded: &none, facts: &mut facts };
        assert_eq!(most.of(&(n.expr() - m.expr())), Some(n.expr()));
    }

    /// One bound of a minimum is enough.
    #[test]
    fn a_minimum_with_a_dim_of_any_size_is_at_most_the_other() {
        let ([n, m, _], bounds, mut facts) = dims();
        let s = Var::dim("s");
        facts.declare_signed(&s);
        let any = HashSet::from([s.clone()]);
        let mut most = Most { bounds: &bounds, unbounded: &any, facts: &mut facts };
        assert_eq!(most.of(&s.expr().max(PrimExpr::i64(0)).min(m.expr())), Some(n.expr()));
        assert_eq!(most.of(&(s.expr() + 1)), None);
    }

    proptest! {
        #[test]
        fn no_value_is_above(ops in proptest::collection::vec((0..11usize, 1..7i64, 0..99usize, 0..99usize), 1..12)) {
            let ([n, m, k], bounds, mut facts) = dims();
            let none = HashSet::new();
            let mut all = vec![n.expr(), m.expr(), k.expr()];
            for (op, c, i, j) in ops {
                let (a, b) = (all[i % all.len()].clone(), all[j % all.len()].clone());
                all.push(match op {
                    0 => a + b,
                    1 => a - b,
                    2 => a * b,
                    3 => a * -c,
                    4 => a.floor_div(c),
                    5 => a.floor_mod(c),
                    6 => a.max(b),
                    7 => a.min(b),
                    8 => a.floor_div(b),
                    9 => a.clone().lt(b.clone()).select(a, b),
                    _ => a + c,
                });
            }
            for e in all.into_iter().filter(|e| !e.exceeds(120)) {
                let Some(bound) = (Most { bounds: &bounds, unbounded: &none, facts: &mut facts }).of(&e) else { continue };
                for (x, y, z) in [(0, 0, 0), (1, 0, 4), (3, 3, 0), (5, 2, 8), (7, 7, 10), (100, 1, 50), (64, 33, 0)] {
                    let values = [(n.clone(), x), (m.clone(), y), (k.clone(), z)].into_iter().collect();
                    if let (Some(value), Some(most)) = (e.evaluate(&values), bound.evaluate(&values)) {
                        prop_assert!(value <= most, "{e:?} is {value} at {x}, {y}, {z}, above {bound:?}");
                    }
                }
            }
        }
    }
}
