//! Index arithmetic in canonical form: polynomials over int64 atoms (loop variables, dims, opaque expressions).
//!
//! Index expressions are assumed not to wrap in the integer type they are written in, so widening casts, and
//! narrowing casts of sums of variables, are transparent. Everything is rebuilt in int64.

use super::Ranges;
use relax_ir::prim::{floor_div, floor_mod, BinOp, PrimKind};
use relax_ir::{DType, PrimExpr, Var};

/// A sum of monomials: atoms (a multiset) times a coefficient, none of them zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Poly {
    pub terms: Vec<(Vec<PrimExpr>, i64)>,
}

/// Whether two monomials hold the same atoms.
fn same_atoms(a: &[PrimExpr], b: &[PrimExpr]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut used = vec![false; b.len()];
    a.iter().all(|x| match (0..b.len()).find(|&i| !used[i] && b[i] == *x) {
        Some(i) => {
            used[i] = true;
            true
        }
        None => false,
    })
}

impl Poly {
    pub fn constant(c: i64) -> Poly {
        Poly { terms: if c == 0 { vec![] } else { vec![(vec![], c)] } }
    }

    pub fn atom(e: PrimExpr) -> Poly {
        Poly { terms: vec![(vec![e], 1)] }
    }

    pub fn var(v: &Var) -> Poly {
        Poly::atom(v.expr().cast(DType::I64))
    }

    pub fn as_const(&self) -> Option<i64> {
        match self.terms.as_slice() {
            [] => Some(0),
            [(atoms, c)] if atoms.is_empty() => Some(*c),
            _ => None,
        }
    }

    pub fn is_zero(&self) -> bool {
        self.terms.is_empty()
    }

    fn push(&mut self, atoms: Vec<PrimExpr>, c: i64) {
        if c == 0 {
            return;
        }
        if let Some(i) = self.terms.iter().position(|(a, _)| same_atoms(a, &atoms)) {
            self.terms[i].1 = self.terms[i].1.wrapping_add(c);
            if self.terms[i].1 == 0 {
                self.terms.remove(i);
            }
        } else {
            self.terms.push((atoms, c));
        }
    }

    pub fn add(&self, o: &Poly) -> Poly {
        let mut r = self.clone();
        for (a, c) in &o.terms {
            r.push(a.clone(), *c);
        }
        r
    }

    pub fn scale(&self, k: i64) -> Poly {
        if k == 0 {
            return Poly::default();
        }
        Poly { terms: self.terms.iter().map(|(a, c)| (a.clone(), c.wrapping_mul(k))).collect() }
    }

    pub fn sub(&self, o: &Poly) -> Poly {
        self.add(&o.scale(-1))
    }

    pub fn mul(&self, o: &Poly) -> Poly {
        let mut r = Poly::default();
        for (a, c) in &self.terms {
            for (b, d) in &o.terms {
                let mut atoms = a.clone();
                atoms.extend(b.iter().cloned());
                r.push(atoms, c.wrapping_mul(*d));
            }
        }
        r
    }

    /// The constant term and the rest.
    pub fn split_const(&self) -> (i64, Poly) {
        let mut rest = self.clone();
        match rest.terms.iter().position(|(a, _)| a.is_empty()) {
            Some(i) => {
                let c = rest.terms.remove(i).1;
                (c, rest)
            }
            None => (0, rest),
        }
    }

    pub fn uses(&self, v: &Var) -> bool {
        self.terms.iter().any(|(a, _)| a.iter().any(|e| e.uses(v)))
    }

    /// `self = stride * v + rest` with neither part using `v`; `None` when it is not linear in `v`.
    pub fn split(&self, v: &Var) -> Option<(Poly, Poly)> {
        let (mut stride, mut rest) = (Poly::default(), Poly::default());
        for (atoms, c) in &self.terms {
            let (with, without): (Vec<PrimExpr>, Vec<PrimExpr>) = atoms.iter().cloned().partition(|e| e.uses(v));
            match with.as_slice() {
                [] => rest.push(without, *c),
                [only] if is_var(only, v) => stride.push(without, *c),
                _ => return None,
            }
        }
        Some((stride, rest))
    }

    /// How many values of `v` that follow each other have the same one of these: `v // n`, and nothing else of `v`.
    pub fn repeats(&self, v: &Var) -> Option<i64> {
        let mut with = self.terms.iter().filter(|(atoms, _)| atoms.iter().any(|e| e.uses(v)));
        let (Some((atoms, 1)), None) = (with.next(), with.next()) else { return None };
        let [only] = atoms.as_slice() else { return None };
        match only.kind() {
            PrimKind::Binary(BinOp::FloorDiv, x, n) if is_var(x, v) => n.as_int().filter(|n| *n > 1),
            _ => None,
        }
    }

    /// In how many rows of neighbours the elements lie that values of `v` that follow each other choose by turns: these are
    /// number `(v + c) // n` of row `(v + c) % n`, and nothing else of `v`.
    pub fn turns(&self, v: &Var) -> Option<i64> {
        let (mut count, mut along) = (None, 0);
        for (atoms, c) in &self.terms {
            let mut with = atoms.iter().filter(|e| e.uses(v));
            let Some(atom) = with.next() else { continue };
            let (op, _, n) = part(atom, v)?;
            if with.next().is_some() || *count.get_or_insert(n) != n {
                return None;
            }
            if op == BinOp::FloorDiv {
                along += if atoms.len() == 1 { *c } else { return None };
            }
        }
        count.filter(|_| along == 1)
    }

    /// The offset of turn `k` of those (see [`Poly::turns`]), for values of `v` that are multiples of their number.
    pub fn turn(&self, v: &Var, k: i64) -> Poly {
        let mut out = Poly::default();
        for (atoms, c) in &self.terms {
            let mut term = Poly::constant(*c);
            for e in atoms {
                term = term.mul(&match part(e, v) {
                    Some((BinOp::FloorMod, c, n)) => Poly::constant((c + k).rem_euclid(n)),
                    Some((_, c, n)) => {
                        let first = PrimExpr::raw_binary(BinOp::FloorDiv, v.expr(), PrimExpr::i64(n));
                        Poly::atom(first).add(&Poly::constant((c + k).div_euclid(n)))
                    }
                    None => Poly::atom(e.clone()),
                });
            }
            out = out.add(&term);
        }
        out
    }

    /// As an int64 expression.
    pub fn expr(&self) -> PrimExpr {
        let mut sum: Option<PrimExpr> = None;
        let mut constant = 0i64;
        for (atoms, c) in &self.terms {
            if atoms.is_empty() {
                constant = *c;
                continue;
            }
            let prod = atoms.iter().skip(1).fold(atoms[0].clone(), |a, b| a * b.clone());
            sum = Some(match sum {
                None => prod * *c,
                Some(s) if *c < 0 && *c != i64::MIN => s - prod * -*c,
                Some(s) => s + prod * *c,
            });
        }
        match sum {
            None => PrimExpr::i64(constant),
            Some(s) if constant < 0 && constant != i64::MIN => s - PrimExpr::i64(-constant),
            Some(s) => s + PrimExpr::i64(constant),
        }
    }

    /// Canonical form of an integer expression.
    pub fn of(e: &PrimExpr, r: &Ranges) -> Poly {
        match e.kind() {
            PrimKind::Int(v) => Poly::constant(*v),
            PrimKind::Var(v) => match r.value(v) {
                Some(p) => p.clone(),
                None => Poly::var(v),
            },
            PrimKind::Cast(a) if a.dtype().is_int() && (a.dtype().bits <= e.dtype().bits || plain(a)) => Poly::of(a, r),
            PrimKind::Neg(a) => Poly::of(a, r).scale(-1),
            PrimKind::Binary(op, a, b) if e.dtype().is_int() => {
                let wide = e.dtype().bits >= 32;
                match op {
                    BinOp::Add if wide => Poly::of(a, r).add(&Poly::of(b, r)).merged(r),
                    BinOp::Sub if wide => Poly::of(a, r).sub(&Poly::of(b, r)),
                    BinOp::Mul if wide => Poly::of(a, r).mul(&Poly::of(b, r)),
                    BinOp::FloorDiv => div(&Poly::of(a, r), &Poly::of(b, r), r),
                    BinOp::FloorMod => modulo(&Poly::of(a, r), &Poly::of(b, r), r),
                    BinOp::TruncDiv | BinOp::Div | BinOp::TruncMod => {
                        let (x, y) = (Poly::of(a, r), Poly::of(b, r));
                        if r.nonneg(&x) && r.bounds(&y).0.is_some_and(|l| l > 0) {
                            if *op == BinOp::TruncMod {
                                modulo(&x, &y, r)
                            } else {
                                div(&x, &y, r)
                            }
                        } else {
                            opaque(e)
                        }
                    }
                    BinOp::Min | BinOp::Max => {
                        let (x, y) = (Poly::of(a, r), Poly::of(b, r));
                        let d = x.sub(&y);
                        if r.nonneg(&d) {
                            if *op == BinOp::Max {
                                x
                            } else {
                                y
                            }
                        } else if r.nonneg(&d.scale(-1)) {
                            if *op == BinOp::Max {
                                y
                            } else {
                                x
                            }
                        } else {
                            Poly::atom(PrimExpr::binary(*op, x.expr(), y.expr()))
                        }
                    }
                    _ => opaque(e),
                }
            }
            _ => opaque(e),
        }
    }

    /// Without the terms linear in `v`.
    pub fn without(&self, v: &Var) -> Poly {
        Poly { terms: self.terms.iter().filter(|(a, _)| !a.iter().any(|e| e.uses(v))).cloned().collect() }
    }

    /// Normal form after additions: see [`Poly::merged`].
    pub fn simplified(&self, r: &Ranges) -> Poly {
        self.merged(r)
    }

    /// Applies `c * (x // c) + x % c = x`.
    fn merged(&self, r: &Ranges) -> Poly {
        for (i, (atoms, c)) in self.terms.iter().enumerate() {
            for (j, m) in atoms.iter().enumerate() {
                let PrimKind::Binary(BinOp::FloorMod, x, k) = m.kind() else { continue };
                let div_atom = PrimExpr::raw_binary(BinOp::FloorDiv, x.clone(), k.clone());
                let mut rest = atoms.clone();
                rest.remove(j);
                let scale = Poly { terms: vec![(rest, *c)] };
                let wanted = scale.mul(&Poly::atom(div_atom)).mul(&Poly::of(k, r));
                let [(want_atoms, want_c)] = wanted.terms.as_slice() else { continue };
                let found = self.terms.iter().position(|(a, d)| d == want_c && same_atoms(a, want_atoms));
                if let Some(k) = found {
                    let mut out = Poly::default();
                    for (n, (a, d)) in self.terms.iter().enumerate() {
                        if n != i && n != k {
                            out.push(a.clone(), *d);
                        }
                    }
                    return out.add(&scale.mul(&Poly::of(x, r))).merged(r);
                }
            }
        }
        self.clone()
    }
}

/// Int arithmetic of variables and literals only: narrowing it loses nothing in a valid program.
fn plain(e: &PrimExpr) -> bool {
    let mut ok = true;
    e.walk(&mut |n| {
        ok &= matches!(
            n.kind(),
            PrimKind::Var(_)
                | PrimKind::Int(_)
                | PrimKind::Cast(_)
                | PrimKind::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::FloorDiv | BinOp::FloorMod, ..)
        )
    });
    ok
}

fn is_var(e: &PrimExpr, v: &Var) -> bool {
    match e.kind() {
        PrimKind::Var(w) => w == v,
        PrimKind::Cast(a) => a.as_var() == Some(v),
        _ => false,
    }
}

/// `(v + c) // n` or `(v + c) % n`: which, `c` and `n`.
fn part(e: &PrimExpr, v: &Var) -> Option<(BinOp, i64, i64)> {
    let PrimKind::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), x, n) = e.kind() else { return None };
    let n = n.as_int().filter(|n| *n > 1)?;
    match x.kind() {
        _ if is_var(x, v) => Some((*op, 0, n)),
        PrimKind::Binary(BinOp::Add, x, c) if is_var(x, v) => Some((*op, c.as_int()?, n)),
        PrimKind::Binary(BinOp::Sub, x, c) if is_var(x, v) => Some((*op, -c.as_int()?, n)),
        _ => None,
    }
}

fn opaque(e: &PrimExpr) -> Poly {
    Poly::atom(e.clone().cast(DType::I64))
}

/// Splits `p = d * q + rest` term by term.
fn split_multiple(p: &Poly, d: &Poly) -> Option<(Poly, Poly)> {
    let [(datoms, dc)] = d.terms.as_slice() else { return None };
    if *dc <= 0 {
        return None;
    }
    let (mut q, mut rest) = (Poly::default(), Poly::default());
    for (atoms, c) in &p.terms {
        let mut left = atoms.clone();
        let divides = datoms.iter().all(|x| match left.iter().position(|a| a == x) {
            Some(i) => {
                left.remove(i);
                true
            }
            None => false,
        });
        if !divides {
            rest.push(atoms.clone(), *c);
            continue;
        }
        let (whole, part) = (floor_div(*c, *dc)?, floor_mod(*c, *dc)?);
        q.push(left, whole);
        rest.push(atoms.clone(), part);
    }
    Some((q, rest))
}

fn div(a: &Poly, b: &Poly, r: &Ranges) -> Poly {
    if b.as_const() == Some(1) {
        return a.clone();
    }
    match split_multiple(a, b) {
        Some((q, rest)) if rest.is_zero() => q,
        Some((q, rest)) if r.below(&rest, b) => q,
        Some((q, rest)) if !q.is_zero() => q.add(&Poly::atom(rest.expr().floor_div(b.expr()))),
        _ => match (a.as_const(), b.as_const()) {
            (Some(x), Some(y)) if y != 0 => Poly::constant(floor_div(x, y).unwrap_or(0)),
            _ => Poly::atom(PrimExpr::raw_binary(BinOp::FloorDiv, a.expr(), b.expr())),
        },
    }
}

fn modulo(a: &Poly, b: &Poly, r: &Ranges) -> Poly {
    if b.as_const() == Some(1) {
        return Poly::default();
    }
    match split_multiple(a, b) {
        Some((_, rest)) if rest.is_zero() => rest,
        Some((_, rest)) if r.below(&rest, b) => rest,
        Some((q, rest)) if !q.is_zero() => modulo(&rest, b, r),
        _ => match (a.as_const(), b.as_const()) {
            (Some(x), Some(y)) if y != 0 => Poly::constant(floor_mod(x, y).unwrap_or(0)),
            _ => Poly::atom(PrimExpr::raw_binary(BinOp::FloorMod, a.expr(), b.expr())),
        },
    }
}
