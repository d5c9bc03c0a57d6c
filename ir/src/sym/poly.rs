//! Polynomials with integer coefficients over atoms.

/// An atom of one [`super::Facts`], by number. Ordered by creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AtomId(pub(super) u32);

/// A product of atoms: sorted, an atom once per power. Empty is 1.
pub type Mono = Vec<AtomId>;

/// A sum of monomials with nonzero coefficients, sorted by monomial (the constant first). Equal polynomials are equal
/// values. Arithmetic answers `None` when a coefficient leaves 64 bits or the sum grows past [`MAX_TERMS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Poly {
    terms: Vec<(Mono, i64)>,
}

/// Products of larger sums are not expanded: the product becomes an atom.
pub const MAX_TERMS: usize = 48;

impl Poly {
    pub fn constant(v: i64) -> Poly {
        Poly { terms: if v == 0 { vec![] } else { vec![(vec![], v)] } }
    }
    pub fn atom(a: AtomId) -> Poly {
        Poly { terms: vec![(vec![a], 1)] }
    }
    pub fn terms(&self) -> &[(Mono, i64)] {
        &self.terms
    }
    pub fn is_zero(&self) -> bool {
        self.terms.is_empty()
    }
    /// The value, when there is no atom.
    pub fn as_const(&self) -> Option<i64> {
        match self.terms.as_slice() {
            [] => Some(0),
            [(m, c)] if m.is_empty() => Some(*c),
            _ => None,
        }
    }
    pub fn constant_term(&self) -> i64 {
        match self.terms.first() {
            Some((m, c)) if m.is_empty() => *c,
            _ => 0,
        }
    }
    /// The lone atom, when the polynomial is one with coefficient 1.
    pub fn as_atom(&self) -> Option<AtomId> {
        match self.terms.as_slice() {
            [(m, 1)] if m.len() == 1 => Some(m[0]),
            _ => None,
        }
    }

    fn build(mut terms: Vec<(Mono, i64)>) -> Option<Poly> {
        terms.sort_by(|a, b| a.0.cmp(&b.0));
        let mut out: Vec<(Mono, i64)> = Vec::with_capacity(terms.len());
        for (m, c) in terms {
            match out.last_mut() {
                Some((last, k)) if *last == m => *k = k.checked_add(c)?,
                _ => out.push((m, c)),
            }
        }
        out.retain(|(_, c)| *c != 0);
        (out.len() <= MAX_TERMS).then_some(Poly { terms: out })
    }

    pub fn from_terms(terms: Vec<(Mono, i64)>) -> Option<Poly> {
        Poly::build(terms)
    }

    pub fn add(&self, o: &Poly) -> Option<Poly> {
        Poly::build(self.terms.iter().chain(&o.terms).cloned().collect())
    }
    pub fn sub(&self, o: &Poly) -> Option<Poly> {
        self.add(&o.scale(-1)?)
    }
    pub fn scale(&self, k: i64) -> Option<Poly> {
        if k == 0 {
            return Some(Poly::default());
        }
        let mut terms = self.terms.clone();
        for (_, c) in &mut terms {
            *c = c.checked_mul(k)?;
        }
        Some(Poly { terms })
    }
    pub fn offset(&self, k: i64) -> Option<Poly> {
        self.add(&Poly::constant(k))
    }
    pub fn mul(&self, o: &Poly) -> Option<Poly> {
        if self.terms.len() * o.terms.len() > 4 * MAX_TERMS {
            return None;
        }
        let mut terms = Vec::with_capacity(self.terms.len() * o.terms.len());
        for (ma, a) in &self.terms {
            for (mb, b) in &o.terms {
                terms.push((mono_mul(ma, mb), a.checked_mul(*b)?));
            }
        }
        Poly::build(terms)
    }

    /// The greatest common divisor of all coefficients; 0 for the zero polynomial.
    pub fn content(&self) -> i64 {
        self.terms.iter().fold(0, |g, (_, c)| gcd(g, *c))
    }
    /// The greatest common divisor of the coefficients of the atoms.
    pub fn content_of_atoms(&self) -> i64 {
        self.terms.iter().filter(|(m, _)| !m.is_empty()).fold(0, |g, (_, c)| gcd(g, *c))
    }
    /// Divides every coefficient; they must be divisible.
    pub fn divide_exact(&self, k: i64) -> Poly {
        Poly { terms: self.terms.iter().map(|(m, c)| (m.clone(), c / k)).collect() }
    }
    /// The term that leads in a division: of the highest degree, among these the last. This order of monomials is kept by
    /// products.
    fn leading(&self) -> Option<&(Mono, i64)> {
        self.terms.iter().max_by_key(|(m, _)| (m.len(), m))
    }
    /// With `value` for an atom, in every product and power.
    pub fn with_atom(&self, id: AtomId, value: &Poly) -> Option<Poly> {
        let mut sum = Poly::default();
        for (m, c) in &self.terms {
            let mut others = m.clone();
            others.retain(|a| *a != id);
            let power = m.len() - others.len();
            let mut term = Poly { terms: vec![(others, *c)] };
            for _ in 0..power {
                term = term.mul(value)?;
            }
            sum = sum.add(&term)?;
        }
        Some(sum)
    }
    /// The quotient by another polynomial, when there is no remainder.
    pub fn divide_poly(&self, o: &Poly) -> Option<Poly> {
        let (lead, k) = o.leading()?;
        let mut rest = self.clone();
        let mut quotient = vec![];
        while let Some((m, c)) = rest.leading().cloned() {
            let q = mono_div(&m, lead)?;
            if c % k != 0 || quotient.len() >= MAX_TERMS {
                return None;
            }
            let term = Poly { terms: vec![(q, c / k)] };
            let next = rest.sub(&term.mul(o)?)?;
            debug_assert!(next.terms.iter().all(|(n, _)| *n != m), "the leading term goes away");
            quotient.extend(term.terms);
            rest = next;
        }
        Poly::build(quotient)
    }
    /// The largest monomial that divides every term.
    pub fn common_mono(&self) -> Mono {
        let mut terms = self.terms.iter();
        let Some((first, _)) = terms.next() else { return vec![] };
        let mut common = first.clone();
        for (m, _) in terms {
            let mut left = m.clone();
            common.retain(|a| match left.iter().position(|b| b == a) {
                Some(i) => {
                    left.remove(i);
                    true
                }
                None => false,
            });
        }
        common
    }
    /// Content 1 and a positive last coefficient: the same for `p` and `k * p`.
    pub fn normalised(&self) -> Poly {
        let g = self.content();
        let Some((_, last)) = self.terms.last() else { return self.clone() };
        self.divide_exact(if *last < 0 { -g } else { g })
    }
    pub fn atoms(&self) -> impl Iterator<Item = AtomId> + '_ {
        self.terms.iter().flat_map(|(m, _)| m.iter().copied())
    }
}

fn mono_mul(a: &Mono, b: &Mono) -> Mono {
    let mut m = Vec::with_capacity(a.len() + b.len());
    m.extend_from_slice(a);
    m.extend_from_slice(b);
    m.sort();
    m
}

/// `a / b`, when every atom of `b` is in `a`.
pub fn mono_div(a: &Mono, b: &Mono) -> Option<Mono> {
    let mut m = a.clone();
    for x in b {
        let i = m.iter().position(|y| y == x)?;
        m.remove(i);
    }
    Some(m)
}

/// Never negative; `gcd(0, x)` is `|x|`.
pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(1)
}
