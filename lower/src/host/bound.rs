//! Upper bounds of sizes: polynomials of the dims with coefficients from 0 on.
//!
//! `(rows + 1) // 2 * 128` is at most `rows * 64 + 64`. Such bounds grow with every dim, one is below another where each
//! of its coefficients is, and their sums and maxima are bounds again, so that nothing has to be asked of the prover.

use super::memory::ALIGN;
use relax_ir::op::{Answer, ShapeFacts};
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::{PrimExpr, Var};
use std::collections::{BTreeMap, HashMap};

/// What dims are taken for where one of two bounds is chosen.
const LIKELY: f64 = 128.0;

/// By dims (a multiset, sorted): how many bytes for their product. None are 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bound(BTreeMap<Vec<Var>, i64>);

impl Bound {
    /// Of a size, as tight as roundings allow: `None` where it is no polynomial, or may be below 0.
    pub fn of(size: &PrimExpr, facts: &mut dyn ShapeFacts) -> Option<Bound> {
        let sum = Side { facts }.upper(size)?;
        let mut out = BTreeMap::new();
        for (dims, q) in sum.0 {
            let whole = i64::try_from((q.0 + q.1 - 1).div_euclid(q.1)).ok()?;
            if whole > 0 {
                out.insert(dims, whole);
            }
        }
        Some(Bound(out))
    }

    /// `None` where a coefficient is no int64.
    pub fn plus(&self, other: &Bound) -> Option<Bound> {
        let mut out = self.clone();
        for (dims, c) in &other.0 {
            let of = out.0.entry(dims.clone()).or_insert(0);
            *of = of.checked_add(*c)?;
        }
        Some(out)
    }

    pub fn constant(bytes: i64) -> Bound {
        Bound(if bytes > 0 { BTreeMap::from([(vec![], bytes)]) } else { BTreeMap::new() })
    }

    /// At least both.
    pub fn join(&self, other: &Bound) -> Bound {
        let mut out = self.clone();
        for (dims, c) in &other.0 {
            let of = out.0.entry(dims.clone()).or_insert(0);
            *of = (*of).max(*c);
        }
        out
    }

    /// Whether it is so by each coefficient.
    pub fn at_most(&self, other: &Bound) -> bool {
        self.0.iter().all(|(dims, c)| other.0.get(dims).is_some_and(|o| c <= o))
    }

    /// Bytes that rounding up to [`ALIGN`] may add.
    pub fn slack(&self) -> i64 {
        match self.0.values().all(|c| c % ALIGN == 0) {
            true => 0,
            false => ALIGN - 1,
        }
    }

    /// For these dims; `None` where that is no int64.
    pub fn evaluate(&self, values: &HashMap<Var, i64>) -> Option<i64> {
        let term = |(dims, c): (&Vec<Var>, &i64)| dims.iter().try_fold(*c, |c, d| c.checked_mul(*values.get(d)?));
        self.0.iter().map(term).try_fold(0i64, |sum, t| sum.checked_add(t?))
    }

    pub fn expr(&self) -> PrimExpr {
        let term = |(dims, c): (&Vec<Var>, &i64)| match dims.iter().map(Var::expr).reduce(|a, b| a * b) {
            Some(product) => product * *c,
            None => PrimExpr::i64(*c),
        };
        // Those of most dims first.
        self.0.iter().rev().map(term).reduce(|a, b| a + b).unwrap_or_else(|| PrimExpr::i64(0))
    }
}

/// Numerator and denominator, which is above 0.
type Ratio = (i128, i128);

fn ratio(n: i128, d: i128) -> Ratio {
    fn gcd(a: i128, b: i128) -> i128 {
        if b == 0 {
            a.abs().max(1)
        } else {
            gcd(b, a % b)
        }
    }
    let g = gcd(n, d);
    (n / g, d / g)
}

fn plus(a: Ratio, b: Ratio) -> Option<Ratio> {
    let n = a.0.checked_mul(b.1)?.checked_add(b.0.checked_mul(a.1)?)?;
    Some(ratio(n, a.1.checked_mul(b.1)?))
}

/// A polynomial with rational coefficients.
#[derive(Clone, Default)]
struct Sum(BTreeMap<Vec<Var>, Ratio>);

impl Sum {
    fn constant(c: i64) -> Sum {
        Sum(BTreeMap::from([(vec![], (c as i128, 1))]))
    }

    fn plus(mut self, other: &Sum) -> Option<Sum> {
        for (dims, q) in &other.0 {
            let of = self.0.entry(dims.clone()).or_insert((0, 1));
            *of = plus(*of, *q)?;
        }
        Some(self)
    }

    fn times(&self, other: &Sum) -> Option<Sum> {
        let mut out = Sum::default();
        for (a, p) in &self.0 {
            for (b, q) in &other.0 {
                let mut dims = [a.as_slice(), b].concat();
                dims.sort();
                let product = ratio(p.0.checked_mul(q.0)?, p.1.checked_mul(q.1)?);
                out = out.plus(&Sum(BTreeMap::from([(dims, product)])))?;
            }
        }
        Some(out)
    }

    fn over(&self, c: i64) -> Option<Sum> {
        self.times(&Sum(BTreeMap::from([(vec![], (1, c as i128))])))
    }

    fn negative(&self) -> Sum {
        Sum(self.0.iter().map(|(dims, q)| (dims.clone(), (-q.0, q.1))).collect())
    }

    /// Whether no coefficient is below 0.
    fn grows(&self) -> bool {
        self.0.values().all(|q| q.0 >= 0)
    }

    /// With all dims at this value.
    fn about(&self, value: f64) -> f64 {
        self.0.iter().map(|(dims, q)| value.powi(dims.len() as i32) * q.0 as f64 / q.1 as f64).sum()
    }

    /// At least both.
    fn join(mut self, other: &Sum) -> Option<Sum> {
        let less = |a: Ratio, b: Ratio| Some(a.0.checked_mul(b.1)? < b.0.checked_mul(a.1)?);
        let all: Vec<Vec<Var>> = self.0.keys().chain(other.0.keys()).cloned().collect();
        for dims in all {
            let (a, b) = (self.0.get(&dims).copied().unwrap_or((0, 1)), other.0.get(&dims).copied().unwrap_or((0, 1)));
            self.0.insert(dims, if less(a, b)? { b } else { a });
        }
        Some(self)
    }
}

struct Side<'a> {
    facts: &'a mut dyn ShapeFacts,
}

impl Side<'_> {
    /// At or above the value; `None` where that is not known.
    fn upper(&mut self, e: &PrimExpr) -> Option<Sum> {
        match e.kind() {
            PrimKind::Int(c) => Some(Sum::constant(*c)),
            PrimKind::Var(v) => self.is_positive(e).then(|| Sum(BTreeMap::from([(vec![v.clone()], (1, 1))]))),
            PrimKind::Neg(a) => Some(self.lower(a)?.negative()),
            PrimKind::Binary(op, a, b) => match op {
                BinOp::Add => self.upper(a)?.plus(&self.upper(b)?),
                BinOp::Sub => self.upper(a)?.plus(&self.lower(b)?.negative()),
                BinOp::Mul => match (a.as_int(), b.as_int()) {
                    (Some(c), _) if c < 0 => self.lower(b)?.times(&Sum::constant(c)),
                    (_, Some(c)) if c < 0 => self.lower(a)?.times(&Sum::constant(c)),
                    (Some(c), _) => self.upper(b)?.times(&Sum::constant(c)),
                    (_, Some(c)) => self.upper(a)?.times(&Sum::constant(c)),
                    _ if self.is_positive(a) && self.is_positive(b) => self.upper(a)?.times(&self.upper(b)?),
                    _ => None,
                },
                BinOp::FloorDiv => self.upper(a)?.over(b.as_int().filter(|c| *c > 0)?),
                BinOp::FloorMod => Some(Sum::constant(b.as_int().filter(|c| *c > 0)? - 1)),
                BinOp::Max => self.upper(a)?.join(&self.upper(b)?),
                BinOp::Min => match (self.upper(a), self.upper(b)) {
                    // Each is one: that which is the smaller one for dims of this size.
                    (Some(a), Some(b)) => Some(if a.about(LIKELY) <= b.about(LIKELY) { a } else { b }),
                    (a, b) => a.or(b),
                },
                _ => None,
            },
            PrimKind::Select(_, a, b) | PrimKind::IfThenElse(_, a, b) => self.upper(a)?.join(&self.upper(b)?),
            _ => None,
        }
    }

    /// At or below the value.
    fn lower(&mut self, e: &PrimExpr) -> Option<Sum> {
        match e.kind() {
            PrimKind::Int(_) | PrimKind::Var(_) => self.upper(e),
            PrimKind::Neg(a) => Some(self.upper(a)?.negative()),
            PrimKind::Binary(op, a, b) => match op {
                BinOp::Add => self.lower(a)?.plus(&self.lower(b)?),
                BinOp::Sub => self.lower(a)?.plus(&self.upper(b)?.negative()),
                BinOp::Mul => match (a.as_int(), b.as_int()) {
                    (Some(c), _) if c < 0 => self.upper(b)?.times(&Sum::constant(c)),
                    (_, Some(c)) if c < 0 => self.upper(a)?.times(&Sum::constant(c)),
                    (Some(c), _) => self.lower(b)?.times(&Sum::constant(c)),
                    (_, Some(c)) => self.lower(a)?.times(&Sum::constant(c)),
                    _ if self.is_positive(a) && self.is_positive(b) => {
                        let (a, b) = (self.lower(a)?, self.lower(b)?);
                        // Of what may lie below 0 the product may lie above the value.
                        if a.grows() && b.grows() {
                            a.times(&b)
                        } else {
                            Some(Sum::default())
                        }
                    }
                    _ => None,
                },
                BinOp::FloorDiv => {
                    let c = b.as_int().filter(|c| *c > 0)?;
                    self.lower(a)?.plus(&Sum::constant(1 - c))?.over(c)
                }
                BinOp::FloorMod => b.as_int().filter(|c| *c > 0).map(|_| Sum::default()),
                BinOp::Max => self.lower(a).or_else(|| self.lower(b)),
                _ if self.is_positive(e) => Some(Sum::default()),
                _ => None,
            },
            _ if self.is_positive(e) => Some(Sum::default()),
            _ => None,
        }
    }

    /// Whether it is known to be 0 or more.
    fn is_positive(&mut self, e: &PrimExpr) -> bool {
        let made = match e.kind() {
            PrimKind::Int(c) => *c >= 0,
            PrimKind::Binary(BinOp::Add | BinOp::Mul | BinOp::Min, a, b) => self.is_positive(a) && self.is_positive(b),
            PrimKind::Binary(BinOp::Max, a, b) => self.is_positive(a) || self.is_positive(b),
            PrimKind::Binary(BinOp::FloorDiv, a, b) => b.as_int().is_some_and(|c| c > 0) && self.is_positive(a),
            PrimKind::Binary(BinOp::FloorMod, _, b) => b.as_int().is_some_and(|c| c > 0),
            PrimKind::Select(_, a, b) => self.is_positive(a) && self.is_positive(b),
            _ => false,
        };
        made || self.facts.prove(&e.clone().ge(0)) == Answer::Yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use relax_ir::sym::Facts;
    use relax_ir::DType;

    fn dims() -> (Var, Var, Facts) {
        let (n, m) = (Var::new("n", DType::I64), Var::new("m", DType::I64));
        let mut facts = Facts::default();
        [&n, &m].iter().for_each(|v| facts.assume(&v.expr().ge(0)));
        (n, m, facts)
    }

    /// Rows and columns of an image that was halved, in channels.
    #[test]
    fn halves_of_rows_and_columns_cost_no_more_than_their_rounding() {
        let (n, m, mut facts) = dims();
        let half = |v: &Var| (v.expr() + 1).floor_div(2);
        let bound = Bound::of(&(half(&n) * half(&m) * 256), &mut facts).expect("a bound");
        let wanted = n.expr() * m.expr() * 64 + n.expr() * 64 + m.expr() * 64 + 64;
        assert!(bound == Bound::of(&wanted, &mut facts).expect("a bound"), "{bound:?}");
        let simplified = facts.simplify(&(half(&n) * half(&m) * 256));
        let bound = Bound::of(&simplified, &mut facts).expect("a bound");
        for (n_, m_) in [(224, 224), (7, 1000)] {
            let values = [(n.clone(), n_), (m.clone(), m_)].into_iter().collect();
            let (size, most) = (simplified.evaluate(&values).unwrap(), bound.expr().evaluate(&values).unwrap());
            assert!(size <= most && most <= size + 256 * (n_ + m_ + 1), "{size} {most}");
        }
    }

    proptest! {
        #[test]
        fn no_value_is_above(ops in proptest::collection::vec((0..9usize, 1..7i64, 0..99usize, 0..99usize), 1..14)) {
            let (n, m, mut facts) = dims();
            let mut all = vec![n.expr(), m.expr()];
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
                    _ => a + c,
                });
            }
            for e in all.into_iter().filter(|e| !e.exceeds(200)) {
                let Some(bound) = Bound::of(&e, &mut facts) else { continue };
                for (x, y) in [(0, 0), (1, 0), (0, 3), (2, 5), (7, 7), (100, 1), (64, 33)] {
                    let values = [(n.clone(), x), (m.clone(), y)].into_iter().collect();
                    if let (Some(value), Some(most)) = (e.evaluate(&values), bound.expr().evaluate(&values)) {
                        prop_assert!(value <= most, "{e:?} is {value} at {x}, {y}, above {bound:?}");
                    }
                }
            }
        }
    }
}
