//! Conditions on the shape variables of a signature that the user states: the function attribute
//! `{"shape_constraints": ["n % m == 0", "n * m == k * 4"]}`. They are facts inside the function; its callers prove them
//! or check them, as the entry does for calls from outside.

use super::vars;
use crate::attrs::{AttrValue, CAST_DIMS, SHAPE_CONSTRAINTS, SOLVABLE, SOLVED_DIMS};
use crate::diag::Diagnostic;
use crate::prim::{text, BinOp, PrimExpr, PrimKind, Var};
use crate::relax::{Function, StructInfo};

/// A condition of a signature.
#[derive(Clone, Debug)]
pub struct Stated {
    /// As the user wrote it.
    pub text: String,
    pub condition: PrimExpr,
    /// It says that a dim of the signature has a solution: the dim's name, and the dim as it was written.
    pub solves: Option<(Var, String)>,
}

impl Stated {
    /// The condition for a run: a divisor that is 0 makes it false.
    pub fn guarded(&self) -> PrimExpr {
        divisors(&self.condition).into_iter().rev().fold(self.condition.clone(), |c, d| {
            let zero = PrimExpr::raw_binary(BinOp::Ne, d.clone(), PrimExpr::int(d.dtype(), 0));
            zero.if_then_else(c, PrimExpr::bool(false))
        })
    }
}

/// What divides in `e` and is no number.
pub fn divisors(e: &PrimExpr) -> Vec<PrimExpr> {
    let mut out: Vec<PrimExpr> = vec![];
    e.walk(&mut |e| {
        if let PrimKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, _, d) = e.kind() {
            if d.as_int().is_none() && !out.contains(d) {
                out.push(d.clone());
            }
        }
    });
    // What is inside is looked at before it divides: inner ones are walked later.
    out
}

/// The conditions that `f` states of the shape variables of `params`.
///
/// # Errors
/// A text that is no condition over these variables.
pub fn of<'a>(f: &Function, params: impl Iterator<Item = &'a StructInfo>) -> Result<Vec<Stated>, Diagnostic> {
    if f.attrs.get(SHAPE_CONSTRAINTS).is_none() && f.attrs.get(SOLVABLE).is_none() {
        return Ok(vec![]);
    }
    let own: Vec<Var> = vars::lone_vars(params).into_iter().map(|(v, _)| v).collect();
    let lookup = |name: &str| own.iter().find(|v| v.name() == name).map(Var::expr);
    let mut out = vec![];
    let mut read = |t: &AttrValue, solves: Option<(Var, String)>| {
        let wrong = |why: &str| {
            let d = Diagnostic::error("shape-constraint", f.signature_span, format!("`{}`: {why}", f.name));
            d.help("a constraint is a text such as \"n % m == 0\" or \"n * m == 4 * k\"")
        };
        let Some(text) = t.as_str() else { return Err(wrong("a shape constraint must be a string")) };
        let condition =
            text::condition(text, &lookup).map_err(|e| wrong(&format!("shape constraint \"{text}\": {e}")))?;
        out.push(Stated { text: solved_text(f, text).to_string(), condition, solves });
        Ok(())
    };
    match f.attrs.get(SHAPE_CONSTRAINTS) {
        Some(AttrValue::List(l)) => l.iter().try_for_each(|t| read(t, None))?,
        Some(one) => read(one, None)?,
        None => {}
    }
    if let Some(AttrValue::Dict(d)) = f.attrs.get(SOLVABLE) {
        for (name, t) in d {
            let solves = own.iter().find(|v| v.name() == name).map(|v| (v.clone(), solved_text(f, name).to_string()));
            read(t, solves)?;
        }
    }
    Ok(out)
}

/// The dim that got this name, or the condition that became this one, as it was written; the name itself for any other.
pub fn solved_text<'a>(f: &'a Function, name: &'a str) -> &'a str {
    written(f, name).unwrap_or(name)
}

/// As [`solved_text`], `None` for any other name.
pub fn written<'a>(f: &'a Function, name: &str) -> Option<&'a str> {
    match f.attrs.get(SOLVED_DIMS) {
        Some(AttrValue::Dict(d)) => d.iter().find(|(k, _)| k == name).and_then(|(_, t)| t.as_str()),
        _ => None,
    }
}

/// What casts want of dims that were solved (`k_times_4 // 4 * 4`), and these dims as they were written (`k * 4`).
pub fn solved_casts(f: &Function) -> Vec<(String, String)> {
    let Some(AttrValue::Dict(d)) = f.attrs.get(CAST_DIMS) else { return vec![] };
    d.iter().filter_map(|(wanted, dim)| Some((wanted.clone(), dim.as_str()?.to_string()))).collect()
}

/// A text with the dims that casts want as they were written.
pub fn as_written(f: &Function, text: String) -> String {
    solved_casts(f).into_iter().fold(text, |t, (wanted, dim)| t.replace(&wanted, &dim))
}
