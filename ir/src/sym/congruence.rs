//! Residues: what a polynomial leaves when divided by a number.

use super::poly::mono_div;
use super::{gcd, Atom, AtomId, Facts, Poly};

/// `value ≡ remainder (mod modulus)`; modulus 0 is exactly `remainder`, modulus 1 says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residue {
    pub modulus: i64,
    pub remainder: i64,
}

impl Residue {
    pub const ANY: Residue = Residue { modulus: 1, remainder: 0 };

    pub fn new(modulus: i64, remainder: i64) -> Residue {
        match modulus.checked_abs() {
            Some(0) => Residue { modulus: 0, remainder },
            Some(m) => Residue { modulus: m, remainder: remainder.rem_euclid(m) },
            None => Residue::ANY,
        }
    }

    fn add(self, o: Residue) -> Residue {
        match self.remainder.checked_add(o.remainder) {
            Some(r) => Residue::new(gcd(self.modulus, o.modulus), r),
            None => Residue::ANY,
        }
    }

    fn mul(self, o: Residue) -> Residue {
        let parts = || {
            let a = self.modulus.checked_mul(o.modulus)?;
            let b = self.modulus.checked_mul(o.remainder)?;
            let c = o.modulus.checked_mul(self.remainder)?;
            Some(Residue::new(gcd(gcd(a, b), c), self.remainder.checked_mul(o.remainder)?))
        };
        parts().unwrap_or(Residue::ANY)
    }

    /// Is this never 0?
    pub fn excludes_zero(self) -> bool {
        self.remainder != 0
    }

    /// The remainder of a division by `k > 0`, when it is the same everywhere.
    pub fn modulo(self, k: i64) -> Option<i64> {
        (self.modulus % k == 0).then(|| self.remainder.rem_euclid(k))
    }
}

impl Facts {
    pub(super) fn residue(&self, p: &Poly) -> Residue {
        let mut sum = Residue::new(0, 0);
        for (m, c) in p.terms() {
            let product = m.iter().fold(Residue::new(0, *c), |r, a| r.mul(self.atom_residue(*a)));
            sum = sum.add(product);
            if sum.modulus == 1 {
                return Residue::ANY;
            }
        }
        sum
    }

    fn atom_residue(&self, id: AtomId) -> Residue {
        if let Some(r) = self.residues.get(&id) {
            return *r;
        }
        match self.atom(id) {
            Atom::FloorMod(a, b) => match b.as_const() {
                Some(k) if k > 0 => {
                    let r = self.residue(a);
                    Residue::new(gcd(r.modulus, k), r.remainder)
                }
                _ => Residue::ANY,
            },
            Atom::Select(_, a, b) => {
                let (a, b) = (self.residue(a), self.residue(b));
                match a.remainder.checked_sub(b.remainder) {
                    Some(d) => Residue::new(gcd(gcd(a.modulus, b.modulus), d), a.remainder),
                    None => Residue::ANY,
                }
            }
            _ => Residue::ANY,
        }
    }
}

/// Divisors up to this one have their quotients looked for.
const MOST_SHARES: i64 = 8;

impl Facts {
    /// `p` with shares put together: `x // 2 + (x + 1) // 2` is `x`, and so for every divisor `k`, whose `k` shares
    /// `(x + i) // k` are the elements at every k-th place (Hermite's identity).
    pub(super) fn join_shares(&self, p: &Poly) -> Option<Poly> {
        p.terms().iter().find_map(|(mono, c)| mono.iter().find_map(|&id| self.join_share(p, mono, *c, id)))
    }

    fn join_share(&self, p: &Poly, mono: &[AtomId], c: i64, id: AtomId) -> Option<Poly> {
        let Atom::FloorDiv(x, by) = self.atom(id) else { return None };
        let k = by.as_const().filter(|k| (2..=MOST_SHARES).contains(k) && x.constant_term() % k == 0)?;
        let rest = Poly::from_terms(vec![(mono_div(&mono.to_vec(), &vec![id])?, c)])?;
        let mut out = p.clone();
        for i in 0..k {
            let share = *self.numbers.get(&Atom::FloorDiv(x.offset(i)?, by.clone()))?;
            let term = rest.mul(&Poly::atom(share))?;
            p.terms().contains(term.terms().first()?).then_some(())?;
            out = out.sub(&term)?;
        }
        out.add(&rest.mul(x)?)
    }
}
