//! The three answers.

use super::canon::negate;
use super::{gcd, Answer, Atom, Cond, Facts, Poly};

/// Case distinctions nest at most this deep.
const MAX_CASES: u32 = 3;

/// Divisions within divisions are cleared this often.
const MAX_CLEARED: u32 = 3;

impl Facts {
    pub(super) fn prove_equal(&mut self, a: &Poly, b: &Poly) -> Answer {
        match a.sub(b) {
            Some(d) => self.prove_zero(&d),
            None => Answer::Unknown,
        }
    }

    /// Everything there is: what [`Facts::decide`] knows, then case distinctions.
    pub(super) fn prove_condition(&mut self, c: &Cond) -> Answer {
        match c {
            Cond::Zero(p) => self.prove_zero(p),
            Cond::NonNegative(p) => self.prove_non_negative(p),
            Cond::Not(inner) => not(self.prove_condition(inner)),
            Cond::And(v) | Cond::Or(v) => {
                if let Some(known) = self.conditions.get(c) {
                    return answer(*known);
                }
                let and = matches!(c, Cond::And(_));
                let mut all = true;
                for part in v {
                    match self.prove_condition(part) {
                        Answer::Unknown => all = false,
                        Answer::Yes if !and => return Answer::Yes,
                        Answer::No if and => return Answer::No,
                        _ => {}
                    }
                }
                if all {
                    return answer(and);
                }
                // The first part decides which world the others live in.
                if self.depth < MAX_CASES {
                    let first = if and { v[0].clone() } else { negate(v[0].clone()) };
                    let rest = if v.len() == 2 {
                        v[1].clone()
                    } else if and {
                        Cond::And(v[1..].to_vec())
                    } else {
                        Cond::Or(v[1..].to_vec())
                    };
                    let inner = self.under(&first, |f| {
                        let rest = f.resolve_condition(&rest);
                        f.prove_condition(&rest)
                    });
                    // Under "the first holds": And is the rest. Under "the first fails": Or is the rest. In the
                    // other world And is false and Or is true.
                    return match (and, inner) {
                        (true, Answer::No) => Answer::No,
                        (false, Answer::Yes) => Answer::Yes,
                        _ => Answer::Unknown,
                    };
                }
                Answer::Unknown
            }
            _ => self.decide(c),
        }
    }

    /// Without case distinctions.
    pub(super) fn decide(&mut self, c: &Cond) -> Answer {
        if let Some(known) = self.conditions.get(c) {
            return answer(*known);
        }
        match c {
            Cond::Const(v) => answer(*v),
            Cond::Zero(p) => self.decide_zero(p),
            Cond::NonNegative(p) => self.decide_non_negative(p),
            Cond::Not(inner) => not(self.decide(inner)),
            Cond::And(v) | Cond::Or(v) => {
                let and = matches!(c, Cond::And(_));
                let mut all = true;
                for part in v {
                    match self.decide(part) {
                        Answer::Unknown => all = false,
                        Answer::Yes if !and => return Answer::Yes,
                        Answer::No if and => return Answer::No,
                        _ => {}
                    }
                }
                if all {
                    answer(and)
                } else {
                    Answer::Unknown
                }
            }
            Cond::Opaque(_) => Answer::Unknown,
        }
    }

    pub(super) fn decide_zero(&mut self, p: &Poly) -> Answer {
        match self.decide_zero_as_it_stands(p) {
            Answer::Unknown => match self.cleared(p) {
                Some(q) => self.decide_zero_as_it_stands(&q),
                None => Answer::Unknown,
            },
            decided => decided,
        }
    }

    /// A positive multiple of `p` in which divisions by numbers have given way to their operands and remainders:
    /// `h // 2` and `h // 4 * 2` have no common form over the integers, four times both has one. `None` where there is
    /// no such division.
    fn cleared(&mut self, p: &Poly) -> Option<Poly> {
        let mut q = p.clone();
        for _ in 0..MAX_CLEARED {
            let mut factor = 1i64;
            for (m, c) in q.terms() {
                let divisor = m.iter().try_fold(1i64, |d, id| match self.atom(*id) {
                    Atom::FloorDiv(_, k) => d.checked_mul(k.as_const().filter(|k| *k > 0).unwrap_or(1)),
                    _ => Some(d),
                })?;
                let missing = divisor / gcd(*c, divisor);
                factor = (factor / gcd(factor, missing)).checked_mul(missing)?;
            }
            if factor == 1 {
                break;
            }
            q = q.scale(factor)?;
            q = self.meet_div_mod(q);
        }
        (q != *p).then_some(q)
    }

    fn decide_zero_as_it_stands(&mut self, p: &Poly) -> Answer {
        let p = self.meet_div_mod(p.clone());
        if let Some(v) = p.as_const() {
            return answer(v == 0);
        }
        let n = p.normalised();
        if self.zeros.contains(&n) {
            return Answer::Yes;
        }
        if self.non_zeros.contains(&n) {
            return Answer::No;
        }
        let r = self.range(&n);
        if r.lo == 0 && r.hi == 0 {
            return Answer::Yes;
        }
        if !r.contains(0) || self.residue(&n).excludes_zero() {
            return Answer::No;
        }
        if self.decide_non_negative_of(n.offset(-1)) == Answer::Yes
            || self.decide_non_negative_of(n.scale(-1).and_then(|q| q.offset(-1))) == Answer::Yes
        {
            return Answer::No;
        }
        // A product is 0 where a factor is.
        let common = n.common_mono();
        if !common.is_empty() {
            let factors_positive = common.iter().all(|a| !self.atom_range(*a).contains(0));
            let quotient = Poly::from_terms(vec![(common, 1)]).and_then(|c| n.divide_poly(&c));
            if let Some(q) = quotient.filter(|q| q != &n) {
                return match self.decide_zero(&q) {
                    Answer::Yes => Answer::Yes,
                    Answer::No if factors_positive => Answer::No,
                    _ => Answer::Unknown,
                };
            }
        }
        Answer::Unknown
    }

    fn decide_non_negative_of(&mut self, p: Option<Poly>) -> Answer {
        p.map_or(Answer::Unknown, |p| self.decide_non_negative(&p))
    }

    pub(super) fn decide_non_negative(&mut self, p: &Poly) -> Answer {
        let r = self.range(p);
        if r.lo >= 0 {
            return Answer::Yes;
        }
        if r.hi < 0 {
            return Answer::No;
        }
        let Some(minus) = p.scale(-1).and_then(|q| q.offset(-1)) else { return Answer::Unknown };
        if self.relaxed_non_negative(p, 3) {
            return Answer::Yes;
        }
        if self.relaxed_non_negative(&minus, 3) {
            return Answer::No;
        }
        for i in 0..self.non_negative.len() {
            let fact = self.non_negative[i].clone();
            // p = k * fact + rest with fact >= 0 and k > 0: p >= rest.
            for (q, result) in [(p, Answer::Yes), (&minus, Answer::No)] {
                let Some(k) = multiple(q, &fact) else { continue };
                let rest = fact.scale(k).and_then(|f| q.sub(&f));
                if rest.is_some_and(|r| self.range(&r).lo >= 0) {
                    return result;
                }
            }
        }
        match self.cleared(p).map(|q| self.range(&q)) {
            Some(r) if r.lo >= 0 => Answer::Yes,
            Some(r) if r.hi < 0 => Answer::No,
            _ => Answer::Unknown,
        }
    }

    /// Is `p >= 0` after atoms gave way to linear bounds on the safe side?
    fn relaxed_non_negative(&mut self, p: &Poly, steps: u32) -> bool {
        if steps == 0 {
            return false;
        }
        let terms = p.terms().iter().filter(|(m, _)| m.len() == 1);
        for (id, c) in terms.map(|(m, c)| (m[0], *c)).collect::<Vec<_>>() {
            let candidates: Vec<Option<Poly>> = match self.atom(id).clone() {
                Atom::FloorDiv(x, d) => match d.as_const() {
                    // x // k + r >= 0 where x + k * r >= 0; r - x // k >= 0 where k * r + k - 1 - x >= 0.
                    Some(k) if k > 0 && (c == 1 || c == -1) => {
                        let rest = Poly::atom(id).scale(c).and_then(|t| p.sub(&t)).and_then(|r| r.scale(k));
                        let end = if c > 0 { Some(x) } else { x.scale(-1).and_then(|x| x.offset(k - 1)) };
                        let both = rest.zip(end).and_then(|(r, e)| r.add(&e));
                        vec![both.map(|q| self.meet_div_mod(q))]
                    }
                    // x // k is at most x / k and at least (x - k + 1) / k.
                    Some(k) if k > 0 => {
                        let end = if c > 0 { x.offset(1 - k) } else { Some(x) };
                        let lost = Poly::atom(id).scale(c).and_then(|t| p.sub(&t));
                        let scaled = lost.and_then(|l| l.scale(k)).zip(end.and_then(|e| e.scale(c)));
                        vec![scaled.and_then(|(l, e)| l.add(&e))]
                    }
                    _ => continue,
                },
                // x % k is at most k - 1, and at most x.
                Atom::FloorMod(x, d) if c < 0 && self.range(&d).lo > 0 => {
                    let below = d.offset(-1).filter(|_| d.as_const().is_none());
                    let itself = (self.range(&x).lo >= 0).then_some(x);
                    [itself, below].iter().flatten().map(|q| replace(p, id, c, q)).collect()
                }
                Atom::Max(v) if c > 0 => v.iter().map(|x| replace(p, id, c, x)).collect(),
                Atom::Min(v) if c < 0 => v.iter().map(|x| replace(p, id, c, x)).collect(),
                _ => continue,
            };
            for q in candidates.into_iter().flatten() {
                if self.range(&q).lo >= 0 || self.relaxed_non_negative(&q, steps - 1) {
                    return true;
                }
            }
        }
        false
    }

    fn prove_zero(&mut self, p: &Poly) -> Answer {
        match self.decide_zero(p) {
            Answer::Unknown => match self.join_shares(p) {
                Some(q) => self.prove_zero(&q),
                None => self.by_cases(p, Facts::prove_zero),
            },
            decided => decided,
        }
    }

    fn prove_non_negative(&mut self, p: &Poly) -> Answer {
        match self.decide_non_negative(p) {
            Answer::Unknown => match self.join_shares(p) {
                Some(q) => self.prove_non_negative(&q),
                None => self.by_cases(p, Facts::prove_non_negative),
            },
            decided => decided,
        }
    }

    /// Tries both sides of the innermost selection, minimum or maximum in `p`.
    fn by_cases(&mut self, p: &Poly, prove: fn(&mut Facts, &Poly) -> Answer) -> Answer {
        if self.depth >= MAX_CASES {
            return Answer::Unknown;
        }
        let Some(cond) = self.split(p) else { return Answer::Unknown };
        let mut side = |c: Cond| {
            self.under(&c, |f| {
                let q = f.resolve(p);
                let q = f.meet_div_mod(q);
                prove(f, &q)
            })
        };
        match side(cond.clone()) {
            Answer::Unknown => Answer::Unknown,
            first if side(negate(cond)) == first => first,
            _ => Answer::Unknown,
        }
    }

    /// A condition that decides an atom of `p`, at any depth.
    pub(super) fn split(&self, p: &Poly) -> Option<Cond> {
        p.atoms().find_map(|id| match self.atom(id) {
            Atom::Var(_) | Atom::Opaque(_) => None,
            Atom::FloorDiv(a, b) | Atom::FloorMod(a, b) => self.split(a).or_else(|| self.split(b)),
            Atom::Select(c, a, b) => self.split(a).or_else(|| self.split(b)).or_else(|| Some((**c).clone())),
            Atom::Max(v) | Atom::Min(v) => {
                v.iter().find_map(|p| self.split(p)).or_else(|| v[0].sub(&v[1]).map(Cond::NonNegative))
            }
        })
    }
}

/// A positive whole number `k` for which `p - k * fact` loses the last term of `fact`.
fn multiple(p: &Poly, fact: &Poly) -> Option<i64> {
    let (m, c) = fact.terms().last()?;
    let (_, d) = p.terms().iter().find(|(n, _)| n == m)?;
    (d % c == 0 && d / c > 0).then_some(d / c)
}

/// Replaces an atom where it stands alone: in a product the sign of the other factors would matter.
fn replace(p: &Poly, id: super::AtomId, c: i64, value: &Poly) -> Option<Poly> {
    let without = p.sub(&Poly::atom(id).scale(c)?)?;
    without.add(&value.scale(c)?)
}

fn answer(v: bool) -> Answer {
    if v {
        Answer::Yes
    } else {
        Answer::No
    }
}

fn not(a: Answer) -> Answer {
    match a {
        Answer::Yes => Answer::No,
        Answer::No => Answer::Yes,
        Answer::Unknown => Answer::Unknown,
    }
}
