//! Symbolic reasoning on shape dims.
//!
//! A dim is brought into canonical form: a polynomial with integer coefficients over *atoms*, which are shape variables
//! and the operations that no polynomial expresses (floor division and modulus, minimum, maximum, selection). Two
//! dims with one canonical form are equal everywhere. On top of it, [`Facts`] knows
//!
//! * intervals: shape variables are never negative unless said otherwise; declared bounds narrow them;
//! * residues: `n % 8 == 0` and what follows from it;
//! * equalities: each one solved for an atom becomes a substitution, others are kept as polynomials that are 0;
//! * inequalities: polynomials that are never negative;
//! * other conditions, by canonical form.
//!
//! [`Facts::prove`] gives one of three answers. They are sound: `Yes` means true and `No` means false under *every*
//! assignment of integers to the variables that meets the facts and divides by zero nowhere. Dims are mathematical
//! integers: that no product of dims leaves 64 bits is checked where memory is sized, not here.
//!
//! Everything is deterministic: atoms are numbered as they appear.

mod arith;
mod assume;
mod canon;
mod congruence;
mod emit;
mod poly;
mod prove;
mod range;

pub use congruence::Residue;
pub use poly::{AtomId, Mono, Poly};
pub use range::{Range, HIGH, LOW};

pub(crate) use poly::gcd;

use crate::op::{Answer, ShapeFacts};
use crate::prim::{PrimExpr, Var};
use crate::span::Span;
use std::collections::{HashMap, HashSet};

/// What a polynomial is made of. Operands are canonical when the atom is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Atom {
    Var(Var),
    FloorDiv(Poly, Poly),
    FloorMod(Poly, Poly),
    /// At least two, sorted, none a constant apart from another.
    Min(Vec<Poly>),
    Max(Vec<Poly>),
    Select(Box<Cond>, Poly, Poly),
    /// Anything else: a load, an unsigned or float computation. Nothing is known but that equal ones are equal.
    Opaque(PrimExpr),
}

/// A condition in canonical form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cond {
    Const(bool),
    /// The polynomial (normalised) is 0.
    Zero(Poly),
    /// The polynomial is at least 0.
    NonNegative(Poly),
    And(Vec<Cond>),
    Or(Vec<Cond>),
    Not(Box<Cond>),
    Opaque(PrimExpr),
}

/// A requirement that could not be decided: it is checked at run time.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    pub condition: PrimExpr,
    pub message: String,
    pub span: Span,
}

/// Whether a value may stand where it does is known only when somebody looks at it: of its shape, or of what a function
/// takes, too little is known to write a condition over shape variables.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    pub message: String,
    /// What is stated of the value.
    pub stated: String,
    pub span: Span,
}

/// What is known about the dims of one function.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    atoms: Vec<Atom>,
    /// Of the canonical form at work.
    steps: u32,
    numbers: HashMap<Atom, AtomId>,
    /// Equalities solved for an atom. Right-hand sides may be stale: [`Facts::resolve`] brings them up to date.
    solved: HashMap<AtomId, Poly>,
    /// Counts substitutions: what was resolved under an older count is resolved again.
    epoch: u32,
    resolved: HashMap<AtomId, (u32, Poly)>,
    /// Variables that may be negative.
    signed: HashSet<Var>,
    bounds: HashMap<AtomId, Range>,
    residues: HashMap<AtomId, Residue>,
    /// Stated intervals of whole polynomials.
    stated: HashMap<Poly, Range>,
    /// Normalised polynomials that are 0, and that are never 0.
    zeros: HashSet<Poly>,
    non_zeros: HashSet<Poly>,
    /// Polynomials that are never negative.
    non_negative: Vec<Poly>,
    conditions: HashMap<Cond, bool>,
    range_cache: HashMap<AtomId, Range>,
    /// Case distinctions under way.
    depth: u32,
    /// Requirements recorded since the last [`Facts::take_requirements`].
    requirements: Vec<Requirement>,
    /// As `requirements`, what has no condition, since the last [`Facts::take_looks`].
    looks: Vec<Look>,
    /// Requirements over shape variables that hold, since the last [`Facts::take_proved`].
    proved: Vec<PrimExpr>,
}

impl Facts {
    pub fn new() -> Facts {
        Facts::default()
    }

    /// `var` may be negative (a scalar that is no dim).
    pub fn declare_signed(&mut self, var: &Var) {
        self.signed.insert(var.clone());
        self.range_cache.clear();
    }

    /// `lo <= var <= hi`; either end may be open.
    pub fn declare_bounds(&mut self, var: &Var, lo: Option<i64>, hi: Option<i64>) {
        let id = self.number(Atom::Var(var.clone()));
        let stated = Range::new(lo.map_or(LOW, i128::from), hi.map_or(HIGH, i128::from));
        let old = self.bounds.get(&id).copied().unwrap_or(Range::ALL);
        self.bounds.insert(id, old.meet(stated));
        self.range_cache.clear();
        self.fix(id);
    }

    /// `var` is a multiple of `divisor`.
    pub fn declare_divisor(&mut self, var: &Var, divisor: i64) {
        if divisor > 1 {
            let id = self.number(Atom::Var(var.clone()));
            self.note_residue(id, Residue::new(divisor, 0));
        }
    }

    /// The interval of a dim: `(lo, hi)`, `None` where there is no bound.
    pub fn interval(&mut self, dim: &PrimExpr) -> (Option<i64>, Option<i64>) {
        let p = self.canonical(dim);
        let r = self.range(&p);
        (i64::try_from(r.lo).ok(), i64::try_from(r.hi).ok())
    }

    /// The largest known divisor of a dim: 0 when the dim is 0, 1 when nothing is known.
    pub fn divisor(&mut self, dim: &PrimExpr) -> i64 {
        let p = self.canonical(dim);
        let r = self.residue(&p);
        gcd(r.modulus, r.remainder)
    }

    /// Are two dims equal under everything known?
    pub fn equal(&mut self, a: &PrimExpr, b: &PrimExpr) -> Answer {
        if a == b {
            return Answer::Yes;
        }
        let (a, b) = (self.canonical(a), self.canonical(b));
        self.prove_equal(&a, &b)
    }

    /// The requirements recorded by [`ShapeFacts::check_at_run_time`] since the last call.
    pub fn take_requirements(&mut self) -> Vec<Requirement> {
        std::mem::take(&mut self.requirements)
    }

    /// Something that only a look at a value decides.
    pub fn note_look(&mut self, look: Look) {
        self.looks.push(look);
    }

    /// What [`Facts::note_look`] recorded since the last call.
    pub fn take_looks(&mut self) -> Vec<Look> {
        std::mem::take(&mut self.looks)
    }

    /// The conditions noted by [`ShapeFacts::note_proved`] since the last call.
    pub fn take_proved(&mut self) -> Vec<PrimExpr> {
        std::mem::take(&mut self.proved)
    }

    fn atom(&self, id: AtomId) -> &Atom {
        &self.atoms[id.0 as usize]
    }

    fn number(&mut self, atom: Atom) -> AtomId {
        if let Some(id) = self.numbers.get(&atom) {
            return *id;
        }
        let id = AtomId(self.atoms.len() as u32);
        self.atoms.push(atom.clone());
        self.numbers.insert(atom, id);
        id
    }

    /// The canonical polynomial of an atom: what it is known to equal, or itself.
    fn poly_of(&mut self, atom: Atom) -> Poly {
        let id = self.number(atom);
        self.resolve_atom(id)
    }
}

impl ShapeFacts for Facts {
    fn prove(&mut self, condition: &PrimExpr) -> Answer {
        let c = self.condition(condition);
        self.prove_condition(&c)
    }

    fn simplify(&mut self, dim: &PrimExpr) -> PrimExpr {
        if dim.as_int().is_some() || !dim.dtype().is_int() || dim.dtype().lanes != 1 {
            return dim.clone();
        }
        let p = self.canonical(dim);
        self.expr(&p, dim.dtype())
    }

    /// Records the requirement. What follows the check may rely on it, so it also becomes a fact.
    fn check_at_run_time(&mut self, condition: PrimExpr, message: String, span: Span) {
        self.assume(&condition);
        self.requirements.push(Requirement { condition, message, span });
    }

    fn note_proved(&mut self, condition: &PrimExpr) {
        if !condition.vars().is_empty() {
            self.proved.push(condition.clone());
        }
    }
}

#[cfg(test)]
mod tests;
