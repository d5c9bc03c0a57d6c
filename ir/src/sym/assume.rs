//! Taking in facts.

use super::canon::negate;
use super::{Answer, Atom, AtomId, Cond, Facts, Poly, PrimExpr, Range, Residue, HIGH, LOW};
use crate::prim::Var;

/// More inequalities than this are not kept: each proof looks at all of them.
const MAX_INEQUALITIES: usize = 64;

impl Facts {
    /// Takes a condition for true from here on.
    pub fn assume(&mut self, condition: &PrimExpr) {
        let c = self.condition(condition);
        self.assume_condition(&c);
    }

    /// Takes `var` for equal to `value`: the definition of a variable, or its solution.
    pub fn define(&mut self, var: &Var, value: &PrimExpr) {
        let id = self.number(Atom::Var(var.clone()));
        let p = self.canonical(value);
        if self.solved.contains_key(&id) || self.occurs(id, &p) {
            let v = self.resolve_atom(id);
            if let Some(d) = v.sub(&p) {
                self.assume_zero(&d);
            }
        } else {
            self.substitute(id, p);
        }
    }

    pub(super) fn assume_condition(&mut self, c: &Cond) {
        match c {
            Cond::Const(_) => {}
            Cond::Zero(p) => self.assume_zero(p),
            Cond::NonNegative(p) => self.assume_non_negative(p),
            Cond::And(v) => v.iter().for_each(|c| {
                let c = self.resolve_condition(c);
                self.assume_condition(&c)
            }),
            Cond::Or(_) | Cond::Opaque(_) => {
                self.conditions.insert(c.clone(), true);
                self.changed();
            }
            Cond::Not(inner) => match &**inner {
                Cond::Zero(p) => {
                    self.non_zeros.insert(p.clone());
                    self.changed();
                    self.exclude_ends(p);
                }
                Cond::Or(v) => v.iter().for_each(|c| self.assume_condition(&negate(c.clone()))),
                inner => {
                    self.conditions.insert(inner.clone(), false);
                    self.changed();
                }
            },
        }
    }

    /// `p != 0` moves an end of the interval that is 0.
    fn exclude_ends(&mut self, p: &Poly) {
        let r = self.range(p);
        let one_sided = match (r.lo, r.hi) {
            (0, _) => p.offset(-1),
            (_, 0) => p.scale(-1).and_then(|q| q.offset(-1)),
            _ => None,
        };
        if let Some(q) = one_sided {
            self.assume_non_negative(&q);
        }
    }

    /// `p == 0`: solved for the youngest atom that stands alone, else kept as it is.
    pub(super) fn assume_zero(&mut self, p: &Poly) {
        let mut p = self.resolve(p).normalised();
        if let Some(case) = self.refuted_case(&p) {
            self.assume_condition(&negate(case));
            p = self.resolve(&p).normalised();
        }
        if p.as_const().is_some() || p.constant_term() % p.content_of_atoms().max(1) != 0 {
            return;
        }
        let candidates: Vec<AtomId> =
            p.terms().iter().filter(|(m, c)| m.len() == 1 && c.abs() == 1).map(|(m, _)| m[0]).collect();
        let rank = |f: &Facts, id: AtomId| match f.atom(id) {
            Atom::Var(v) => (1, v.id()),
            Atom::Opaque(_) => (2, 0),
            _ => (3, id.0),
        };
        let mut best: Option<(AtomId, Poly)> = None;
        for id in candidates {
            let Some((_, c)) = p.terms().iter().find(|(m, _)| m.as_slice() == [id]) else { continue };
            // c * x + rest = 0, so x = -c * rest.
            let rest = p.sub(&Poly::atom(id).scale(*c).unwrap_or_default()).and_then(|r| r.scale(-c));
            let Some(rest) = rest.filter(|r| !self.occurs(id, r)) else { continue };
            if best.as_ref().is_none_or(|(b, _)| rank(self, id) > rank(self, *b)) {
                best = Some((id, rest));
            }
        }
        match best {
            Some((id, rest)) => self.substitute(id, rest),
            None => {
                if self.zeros.insert(p.clone()) {
                    self.consequences(&p);
                }
            }
        }
    }

    /// A side of a minimum or maximum in `p` that cannot be, as `p == 0`: from `(max(n, 1) + 1) // 2 == (n + 1) // 2`
    /// follows that `n` is at least 1.
    fn refuted_case(&mut self, p: &Poly) -> Option<Cond> {
        if self.depth > 0 {
            return None;
        }
        let Cond::NonNegative(q) = self.split(p)? else { return None };
        for side in [q.clone(), q.scale(-1)?] {
            let case = Cond::NonNegative(side);
            for case in [case.clone(), negate(case)] {
                let open = self.decide(&case) == Answer::Unknown;
                let refuted = |f: &mut Facts| {
                    let q = f.resolve(p);
                    f.decide_zero(&q)
                };
                if open && self.under(&case, refuted) == Answer::No {
                    return Some(case);
                }
            }
        }
        None
    }

    /// What follows from `p == 0` where no atom can be solved for: an atom with coefficient 1 has a residue, what equals a
    /// largest part is at least each part. From `n == max(n // 2, 3) * 2` follows that `n` is even and at least 6.
    fn consequences(&mut self, p: &Poly) {
        let constant = p.constant_term();
        for (m, c) in p.terms() {
            let ([id], c) = (&m[..], *c) else { continue };
            let id = *id;
            if matches!(c, 1 | -1) {
                let others = p.terms().iter().filter(|(n, _)| !n.is_empty() && n != m);
                let g = others.fold(0, |g, (_, k)| super::gcd(g, *k));
                // id = -c * (constant + g * ..)
                if let Some(r) = constant.checked_mul(-c).filter(|_| g > 1) {
                    self.note_residue(id, Residue::new(g, r));
                }
            }
            let (parts, max) = match self.atom(id).clone() {
                Atom::Max(v) => (v, true),
                Atom::Min(v) => (v, false),
                _ => continue,
            };
            for part in parts {
                let other = Poly::atom(id).scale(c).and_then(|t| p.sub(&t)).zip(part.scale(c));
                let Some(q) = other.and_then(|(rest, part)| rest.add(&part)) else { continue };
                // rest = -c * max(..): for c < 0 at least -c * part.
                let q = if (c < 0) == max { Some(q) } else { q.scale(-1) };
                if let Some(q) = q {
                    self.assume_non_negative(&q);
                }
            }
        }
    }

    /// Does the atom occur in the polynomial, at any depth?
    fn occurs(&self, id: AtomId, p: &Poly) -> bool {
        p.atoms().any(|a| a == id || self.occurs_in_atom(id, a))
    }

    fn occurs_in_atom(&self, id: AtomId, a: AtomId) -> bool {
        match self.atom(a) {
            Atom::Var(_) => false,
            Atom::FloorDiv(x, y) | Atom::FloorMod(x, y) => self.occurs(id, x) || self.occurs(id, y),
            Atom::Min(v) | Atom::Max(v) => v.iter().any(|p| self.occurs(id, p)),
            Atom::Select(c, x, y) => self.occurs(id, x) || self.occurs(id, y) || self.occurs_in_condition(id, c),
            Atom::Opaque(e) => match self.atom(id) {
                Atom::Var(v) => e.uses(v),
                _ => true,
            },
        }
    }

    fn occurs_in_condition(&self, id: AtomId, c: &Cond) -> bool {
        match c {
            Cond::Const(_) => false,
            Cond::Zero(p) | Cond::NonNegative(p) => self.occurs(id, p),
            Cond::And(v) | Cond::Or(v) => v.iter().any(|c| self.occurs_in_condition(id, c)),
            Cond::Not(c) => self.occurs_in_condition(id, c),
            Cond::Opaque(e) => match self.atom(id) {
                Atom::Var(v) => e.uses(v),
                _ => true,
            },
        }
    }

    fn substitute(&mut self, id: AtomId, p: Poly) {
        // What is known of the atom's interval and residue holds for its value.
        let range = self.atom_range(id);
        if let Atom::FloorMod(x, k) = self.atom(id).clone() {
            // (x + c) mod k = r: x leaves r - c.
            let c = x.constant_term();
            let lone = c.checked_neg().and_then(|c| x.offset(c)).and_then(|x| x.as_atom());
            if let (Some(x), Some(k), Some(r)) = (lone, k.as_const(), p.as_const().and_then(|r| r.checked_sub(c))) {
                if k > 0 && matches!(self.atom(x), Atom::Var(_)) {
                    self.note_residue(x, Residue::new(k, r));
                }
            }
        }
        let residue = self.residues.get(&id).copied();
        self.solved.insert(id, p.clone());
        self.changed();
        self.narrow(&p, range);
        if let (Some(r), Some(a)) = (residue, p.as_atom()) {
            self.note_residue(a, r);
        }
        self.refresh();
    }

    /// Facts about polynomials that have a shorter form now, while there are few.
    fn refresh(&mut self) {
        if self.zeros.len() + self.non_zeros.len() + self.non_negative.len() + self.conditions.len() > 256 {
            return;
        }
        for p in std::mem::take(&mut self.non_negative) {
            let p = self.resolve(&p);
            if p.as_const().is_none() {
                self.non_negative.push(p);
            }
        }
        let mut zeros: Vec<Poly> = std::mem::take(&mut self.non_zeros).into_iter().collect();
        zeros.sort_by(|a, b| a.terms().cmp(b.terms()));
        for p in zeros {
            let p = self.resolve(&p).normalised();
            self.non_zeros.insert(p);
        }
        let mut zeros: Vec<Poly> = std::mem::take(&mut self.zeros).into_iter().collect();
        zeros.sort_by(|a, b| a.terms().cmp(b.terms()));
        for p in zeros {
            let now = self.resolve(&p).normalised();
            if now == p {
                self.zeros.insert(p);
            } else {
                self.assume_zero(&now);
            }
        }
    }

    /// The interval of `p` lies within `range`.
    pub(super) fn narrow(&mut self, p: &Poly, range: Range) {
        if range.lo != LOW {
            if let Some(q) = i64::try_from(range.lo).ok().and_then(|lo| p.offset(lo.checked_neg()?)) {
                self.assume_non_negative(&q);
            }
        }
        if range.hi != HIGH {
            if let Some(q) = i64::try_from(range.hi).ok().and_then(|hi| p.scale(-1)?.offset(hi)) {
                self.assume_non_negative(&q);
            }
        }
    }

    pub(super) fn assume_non_negative(&mut self, p: &Poly) {
        let p = self.resolve(p);
        if p.as_const().is_some() || self.range(&p).lo >= 0 {
            return;
        }
        // c * x + k >= 0 bounds x.
        let c = p.constant_term();
        if let Some((m, a)) = p.terms().iter().find(|(m, _)| !m.is_empty()) {
            let lone = m.len() == 1 && p.terms().len() == if c == 0 { 1 } else { 2 };
            if lone && c.checked_neg().is_some() && a.checked_neg().is_some() {
                let (id, a) = (m[0], *a);
                let bound = if a > 0 {
                    // x >= ceil(-c / a)
                    Range::new(-(c.div_euclid(a) as i128), HIGH)
                } else {
                    Range::new(LOW, c.div_euclid(-a) as i128)
                };
                let old = self.bounds.get(&id).copied().unwrap_or(Range::ALL);
                self.bounds.insert(id, old.meet(bound));
                self.changed();
                self.fix(id);
                return;
            }
        }
        if self.non_negative.len() < MAX_INEQUALITIES && !self.non_negative.contains(&p) {
            self.non_negative.push(p);
            self.changed();
        }
    }

    /// An interval of one number is that number.
    pub(super) fn fix(&mut self, id: AtomId) {
        let now = self.atom_range(id);
        if let Some(v) = i64::try_from(now.lo).ok().filter(|_| now.lo == now.hi) {
            self.solved.entry(id).or_insert_with(|| Poly::constant(v));
            self.changed();
            self.refresh();
        }
    }

    pub(super) fn note_residue(&mut self, id: AtomId, r: Residue) {
        let old = self.residues.get(&id).copied().unwrap_or(Residue::ANY);
        if let Some(both) = combine(old, r) {
            self.residues.insert(id, both);
            self.changed();
        }
    }

    fn changed(&mut self) {
        self.epoch += 1;
        self.range_cache.clear();
    }

    /// Under an assumption: `f` sees the facts with it, which are forgotten after.
    pub(super) fn under(&mut self, c: &Cond, f: impl FnOnce(&mut Facts) -> Answer) -> Answer {
        let mut inner = self.clone();
        inner.depth += 1;
        inner.assume_condition(c);
        f(&mut inner)
    }
}

/// Both residues hold: the modulus becomes the least common multiple. `None` where they contradict or are too large.
fn combine(a: Residue, b: Residue) -> Option<Residue> {
    if a.modulus == 0 {
        return Some(a);
    }
    if b.modulus == 0 {
        return Some(b);
    }
    if b.modulus % a.modulus == 0 && b.remainder.rem_euclid(a.modulus) == a.remainder {
        return Some(b);
    }
    if a.modulus % b.modulus == 0 && a.remainder.rem_euclid(b.modulus) == b.remainder {
        return Some(a);
    }
    let lcm = (a.modulus / super::gcd(a.modulus, b.modulus)).checked_mul(b.modulus)?;
    if lcm > 1 << 20 {
        return None;
    }
    let mut x = a.remainder;
    while x < lcm {
        if x % b.modulus == b.remainder {
            return Some(Residue::new(lcm, x));
        }
        x += a.modulus;
    }
    None
}
