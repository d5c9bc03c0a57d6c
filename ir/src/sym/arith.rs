//! Operations between canonical polynomials.

use super::poly::mono_div;
use super::{Answer, Atom, AtomId, Cond, Facts, Poly};
use crate::prim::{floor_div, floor_mod};

impl Facts {
    pub(super) fn floor_div(&mut self, a: &Poly, b: &Poly) -> Option<Poly> {
        if let (Some(x), Some(y)) = (a.as_const(), b.as_const()) {
            return floor_div(x, y).map(Poly::constant);
        }
        if b.is_zero() {
            return None;
        }
        if a.is_zero() {
            return Some(Poly::default());
        }
        if let Some(k) = b.as_const() {
            return self.floor_div_const(a, k);
        }
        if let Some(q) = a.divide_poly(b).or_else(|| self.divide_by_quotient(a, b)) {
            return Some(q);
        }
        // A divisor is never 0: what both sides have in common is of no account.
        if let [(lead, _)] = b.terms() {
            let mut left = a.common_mono();
            left.retain(|x| lead.contains(x));
            if let Some(x) = left.first() {
                let common = Poly::atom(*x);
                return self.floor_div(&a.divide_poly(&common)?, &b.divide_poly(&common)?);
            }
        }
        // What the divisor divides comes out, whatever the signs are.
        if let [(lead, k)] = b.terms() {
            let (mut whole, mut rest) = (vec![], vec![]);
            for (m, c) in a.terms() {
                match mono_div(m, lead) {
                    Some(q) if c % k == 0 => whole.push((q, c / k)),
                    _ => rest.push((m.clone(), *c)),
                }
            }
            if !whole.is_empty() {
                let inner = self.floor_div(&Poly::from_terms(rest)?, b)?;
                return Poly::from_terms(whole)?.add(&inner);
            }
        }
        let (ra, rb) = (self.range(a), self.range(b));
        if ra.lo >= 0 && rb.lo >= 1 {
            let less = b.sub(a)?.offset(-1)?;
            if self.range(&less).lo >= 0 {
                return Some(Poly::default());
            }
        }
        Some(self.poly_of(Atom::FloorDiv(a.clone(), b.clone())))
    }

    /// `a / b` where `b` has a factor `x // d` of which `a` is a multiple, as [`Self::meet_div_mod`] has it: in `x - x % d`.
    fn divide_by_quotient(&mut self, a: &Poly, b: &Poly) -> Option<Poly> {
        let [(factors, _)] = b.terms() else { return None };
        factors.iter().find_map(|id| {
            let Atom::FloorDiv(x, d) = self.atom(*id).clone() else { return None };
            let whole = x.sub(&self.floor_mod(&x, &d)?)?;
            a.divide_poly(&whole)?.mul(&d)?.mul(&Poly::atom(*id))?.divide_poly(b)
        })
    }

    fn floor_div_const(&mut self, a: &Poly, k: i64) -> Option<Poly> {
        if k < 0 {
            return self.floor_div_const(&a.scale(-1)?, k.checked_neg()?);
        }
        if k == 1 {
            return Some(a.clone());
        }
        if let Some(q) = self.exact_quotient(a, k) {
            return Some(self.meet_div_mod(q));
        }
        let (mut whole, mut rest) = (vec![], vec![]);
        for (m, c) in a.terms() {
            // Constants leave their residue behind; other coefficients keep their sign.
            let (q, r) = if m.is_empty() { (c.div_euclid(k), c.rem_euclid(k)) } else { (c / k, c % k) };
            if q != 0 {
                whole.push((m.clone(), q));
            }
            if r != 0 {
                rest.push((m.clone(), r));
            }
        }
        let whole = Poly::from_terms(whole)?;
        let mut rest = Poly::from_terms(rest)?;
        let r = self.range(&rest);
        if r.lo >= 0 && r.hi < k as i128 {
            return Some(whole);
        }
        // A known remainder is of no account.
        if let Some(r) = self.residue(&rest).modulo(k).filter(|r| *r != 0) {
            rest = rest.offset(r.checked_neg()?)?;
        }
        let inner = self.floor_div_rest(&rest, k)?;
        whole.add(&inner)
    }

    /// `a // k` where nothing but a constant is left over once each remainder `x % m` in `a` is written as
    /// `x - m * (x // m)`: `h * q - h % 8 * q` is `8 * (h // 8) * q`. `None` where there is no remainder.
    fn exact_quotient(&mut self, a: &Poly, k: i64) -> Option<Poly> {
        let mut p = a.clone();
        let mut seen: Vec<AtomId> = vec![];
        for id in a.atoms() {
            let Atom::FloorMod(x, m) = self.atom(id).clone() else { continue };
            let Some(m) = m.as_const().filter(|m| *m > 1 && !seen.contains(&id)) else { continue };
            seen.push(id);
            let whole = self.floor_div_const(&x, m)?;
            p = p.with_atom(id, &x.sub(&whole.scale(m)?)?)?;
        }
        if seen.is_empty() || p.content_of_atoms() % k != 0 {
            return None;
        }
        let c = p.constant_term();
        p.offset(c.checked_neg()?)?.divide_exact(k).offset(c.div_euclid(k))
    }

    /// No coefficient of an atom is a multiple of `k`, the constant is in `[0, k)`.
    fn floor_div_rest(&mut self, a: &Poly, k: i64) -> Option<Poly> {
        let g = super::gcd(a.content_of_atoms(), k);
        if g > 1 {
            // floor((g*p + c) / (g*k)) = floor((p + floor(c / g)) / k)
            let c = a.constant_term();
            let p = a.offset(-c)?.divide_exact(g).offset(c.div_euclid(g))?;
            return self.floor_div_const(&p, k / g);
        }
        // floor(floor(x / m) / k) = floor(x / (m * k)) for m > 0, also with a constant added to the inner one.
        let c = a.constant_term();
        let inner = a.offset(-c)?.as_atom();
        if let Some(Atom::FloorDiv(x, m)) = inner.map(|id| self.atom(id).clone()) {
            if let Some(m) = m.as_const().filter(|m| *m > 0) {
                let x = x.offset(c.checked_mul(m)?)?;
                return self.floor_div_const(&x, m.checked_mul(k)?);
            }
        }
        // max(x, y) // k is the larger quotient; worth it where that is known: max(1, n) // 2 = n // 2.
        if let Some((max, Atom::Max(v) | Atom::Min(v))) =
            inner.map(|id| (matches!(self.atom(id), Atom::Max(_)), self.atom(id).clone()))
        {
            let parts = v.iter().map(|x| self.floor_div_const(&x.offset(c)?, k)).collect::<Option<Vec<_>>>()?;
            let one = self.extremum(max, parts)?;
            let several = |id| matches!(self.atom(id), Atom::Max(_) | Atom::Min(_));
            if !one.atoms().any(several) {
                return Some(one);
            }
        }
        Some(self.poly_of(Atom::FloorDiv(a.clone(), Poly::constant(k))))
    }

    pub(super) fn floor_mod(&mut self, a: &Poly, b: &Poly) -> Option<Poly> {
        if let (Some(x), Some(y)) = (a.as_const(), b.as_const()) {
            return floor_mod(x, y).map(Poly::constant);
        }
        if b.is_zero() {
            return None;
        }
        if let Some(k) = b.as_const() {
            if k < 0 {
                // a mod -k = -((-a) mod k)
                return self.floor_mod(&a.scale(-1)?, &Poly::constant(k.checked_neg()?))?.scale(-1);
            }
            if k == 1 {
                return Some(Poly::default());
            }
            if let Some(r) = self.residue(a).modulo(k) {
                return Some(Poly::constant(r));
            }
            let terms = a.terms().iter().map(|(m, c)| (m.clone(), c.rem_euclid(k))).collect();
            let rest = Poly::from_terms(terms)?;
            for p in [a, &rest] {
                let r = self.range(p);
                if r.lo >= 0 && r.hi < k as i128 {
                    return Some(p.clone());
                }
            }
            if let Some(p) = self.without_remainders(&rest, k) {
                return self.floor_mod(&p, b);
            }
            // (g * p) mod (g * k) = g * (p mod k)
            let g = super::gcd(rest.content(), k);
            if g > 1 {
                return self.floor_mod(&rest.divide_exact(g), &Poly::constant(k / g))?.scale(g);
            }
            // -p mod k = k - 1 - (p - 1) mod k: what is missing and what is left over meet in the smaller coefficient.
            let lead = rest.terms().iter().find(|(m, _)| !m.is_empty()).map_or(0, |(_, c)| *c);
            if lead > k / 2 {
                let left = self.floor_mod(&rest.scale(-1)?.offset(-1)?, b)?;
                return left.scale(-1)?.offset(k - 1);
            }
            return Some(self.poly_of(Atom::FloorMod(rest, Poly::constant(k))));
        }
        if a.divide_poly(b).is_some() {
            return Some(Poly::default());
        }
        let mut rest = a.clone();
        if let [(lead, k)] = b.terms() {
            let keep = |m: &super::Mono, c: i64| mono_div(m, lead).is_none() || c % k != 0;
            let terms = a.terms().iter().filter(|(m, c)| keep(m, *c)).cloned().collect();
            rest = Poly::from_terms(terms)?;
        }
        let (ra, rb) = (self.range(&rest), self.range(b));
        if ra.lo >= 0 && rb.lo >= 1 {
            let less = b.sub(&rest)?.offset(-1)?;
            if self.range(&less).lo >= 0 {
                return Some(rest);
            }
        }
        Some(self.poly_of(Atom::FloorMod(rest, b.clone())))
    }

    /// `p` with `x` for a term `c * (x % m)` where `k` divides `c * m`, which leaves the same when divided by `k`.
    fn without_remainders(&self, p: &Poly, k: i64) -> Option<Poly> {
        p.terms().iter().find_map(|(mono, c)| {
            let [id] = mono[..] else { return None };
            let Atom::FloorMod(x, m) = self.atom(id) else { return None };
            let m = m.as_const().filter(|m| *m > 0)?;
            if m.checked_mul(*c)? % k != 0 {
                return None;
            }
            p.sub(&Poly::atom(id).scale(*c)?)?.add(&x.scale(*c)?)
        })
    }

    /// `k * (x // m)` where `m` divides `k` becomes `k / m * (x - x % m)`: sums of both forms meet in one.
    pub(super) fn meet_div_mod(&mut self, p: Poly) -> Poly {
        let found = p.terms().iter().find_map(|(m, c)| {
            m.iter().enumerate().find_map(|(i, id)| {
                let Atom::FloorDiv(x, d) = self.atom(*id) else { return None };
                let mut others = m.clone();
                others.remove(i);
                let quotient = match d.terms() {
                    [(dm, k)] if c % k == 0 => (mono_div(&others, dm)?, c / k),
                    _ => return None,
                };
                Some(((m.clone(), *c), quotient, x.clone(), d.clone()))
            })
        });
        let Some((term, quotient, x, d)) = found else { return p };
        let rewritten = || {
            let rest = p.sub(&Poly::from_terms(vec![term])?)?;
            let modulus = self.floor_mod(&x, &d)?;
            let whole = x.sub(&modulus)?.mul(&Poly::from_terms(vec![quotient])?)?;
            rest.add(&whole)
        };
        match { rewritten }() {
            Some(q) => self.meet_div_mod(q),
            None => p,
        }
    }

    /// The smallest (`max` false) or largest of some polynomials.
    pub(super) fn extremum(&mut self, max: bool, parts: Vec<Poly>) -> Option<Poly> {
        let mut flat: Vec<Poly> = vec![];
        for p in parts {
            let inner = p.as_atom().map(|id| self.atom(id).clone());
            match inner {
                Some(Atom::Max(v)) if max => flat.extend(v),
                Some(Atom::Min(v)) if !max => flat.extend(v),
                _ => flat.push(p),
            }
        }
        // No value of 64 bits is larger.
        if !max && flat.len() > 1 {
            let all = Poly::constant(i64::MAX);
            let others = flat.iter().any(|p| *p != all);
            flat.retain(|p| !others || *p != all);
        }
        let mut kept: Vec<Poly> = vec![];
        for p in flat {
            let mut dominated = false;
            let mut i = 0;
            while i < kept.len() {
                let d = if max { kept[i].sub(&p)? } else { p.sub(&kept[i])? };
                if self.decide_non_negative(&d) == Answer::Yes {
                    dominated = true;
                    break;
                }
                if self.decide_non_negative(&d.scale(-1)?) == Answer::Yes {
                    kept.remove(i);
                } else {
                    i += 1;
                }
            }
            if !dominated {
                kept.push(p);
            }
        }
        if kept.len() == 1 {
            return kept.pop();
        }
        // A common constant comes out: max(n + 1, m + 1) = max(n, m) + 1.
        let shift = kept.iter().map(Poly::constant_term).min().unwrap_or(0);
        let mut list = vec![];
        for p in kept {
            list.push(p.offset(shift.checked_neg()?)?);
        }
        list.sort_by(|a, b| a.terms().cmp(b.terms()));
        let atom = if max { Atom::Max(list) } else { Atom::Min(list) };
        self.poly_of(atom).offset(shift)
    }

    pub(super) fn select(&mut self, cond: Cond, a: Poly, b: Poly) -> Poly {
        if a == b {
            return a;
        }
        match self.decide(&cond) {
            Answer::Yes => a,
            Answer::No => b,
            Answer::Unknown => {
                if let Cond::Not(inner) = cond {
                    return self.poly_of(Atom::Select(inner, b, a));
                }
                self.poly_of(Atom::Select(Box::new(cond), a, b))
            }
        }
    }

    /// Brings a polynomial up to date with the equalities known now.
    pub(super) fn resolve(&mut self, p: &Poly) -> Poly {
        let mut changed = false;
        for id in p.atoms().collect::<Vec<AtomId>>() {
            let now = self.resolve_atom(id);
            changed |= now.as_atom() != Some(id);
        }
        if !changed {
            return p.clone();
        }
        let mut rebuild = || {
            let mut sum = Poly::default();
            for (m, c) in p.terms() {
                let mut term = Poly::constant(*c);
                for id in m {
                    term = term.mul(&self.resolve_atom(*id))?;
                }
                sum = sum.add(&term)?;
            }
            Some(sum)
        };
        match rebuild() {
            Some(q) => self.meet_div_mod(q),
            None => p.clone(),
        }
    }

    pub(super) fn resolve_atom(&mut self, id: AtomId) -> Poly {
        if let Some((epoch, p)) = self.resolved.get(&id) {
            if *epoch == self.epoch {
                return p.clone();
            }
        }
        let p = if let Some(p) = self.solved.get(&id).cloned() {
            let p = self.resolve(&p);
            self.solved.insert(id, p.clone());
            p
        } else {
            // Rebuilding may come back to the same atom: then it stays as it is.
            self.resolved.insert(id, (self.epoch, Poly::atom(id)));
            self.rebuild_atom(id).unwrap_or_else(|| Poly::atom(id))
        };
        self.resolved.insert(id, (self.epoch, p.clone()));
        p
    }

    fn rebuild_atom(&mut self, id: AtomId) -> Option<Poly> {
        match self.atom(id).clone() {
            Atom::Var(_) | Atom::Opaque(_) => None,
            Atom::FloorDiv(a, b) => {
                let (x, y) = (self.resolve(&a), self.resolve(&b));
                if x == a && y == b {
                    return None;
                }
                self.floor_div(&x, &y)
            }
            Atom::FloorMod(a, b) => {
                let (x, y) = (self.resolve(&a), self.resolve(&b));
                if x == a && y == b {
                    return None;
                }
                self.floor_mod(&x, &y)
            }
            Atom::Min(v) => self.rebuild_extremum(false, v),
            Atom::Max(v) => self.rebuild_extremum(true, v),
            Atom::Select(c, a, b) => {
                let (d, x, y) = (self.resolve_condition(&c), self.resolve(&a), self.resolve(&b));
                match self.decide(&d) {
                    Answer::Yes => Some(x),
                    Answer::No => Some(y),
                    Answer::Unknown if d == *c && x == a && y == b => None,
                    Answer::Unknown => Some(self.select(d, x, y)),
                }
            }
        }
    }

    fn rebuild_extremum(&mut self, max: bool, v: Vec<Poly>) -> Option<Poly> {
        let now: Vec<Poly> = v.iter().map(|p| self.resolve(p)).collect();
        self.extremum(max, now)
    }
}
