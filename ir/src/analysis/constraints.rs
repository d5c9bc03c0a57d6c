//! Conditions on the shape variables of a signature that the user states: the function attribute
//! `{"shape_constraints": ["n % m == 0", "n * m == k * 4"]}`. They are facts inside the function; its callers prove them
//! or check them, as the entry does for calls from outside.

use super::vars;
use crate::attrs::{AttrValue, CAST_DIMS, SHAPE_CONSTRAINTS, SOLVABLE, SOLVED_DIMS, SOLVED_VARS};
use crate::diag::Diagnostic;
use crate::op::{Answer, ShapeFacts};
use crate::prim::{text, BinOp, PrimExpr, PrimKind, Var};
use crate::relax::{Function, StructInfo};
use crate::sym::Facts;

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
    /// See [`guarded`].
    pub fn guarded(&self) -> PrimExpr {
        guarded(&self.condition, divisors(&self.condition))
    }
}

/// The condition for a run: one of these divisors that is 0 makes it false.
pub fn guarded(condition: &PrimExpr, divisors: Vec<PrimExpr>) -> PrimExpr {
    divisors.into_iter().rev().fold(condition.clone(), |c, d| {
        let zero = PrimExpr::raw_binary(BinOp::Ne, d.clone(), PrimExpr::int(d.dtype(), 0));
        zero.if_then_else(c, PrimExpr::bool(false))
    })
}

/// The divisors in a condition that may be 0 as far as `facts` knows.
pub fn open_divisors(condition: &PrimExpr, facts: &mut Facts) -> Vec<PrimExpr> {
    let mut list = divisors(condition);
    list.retain(|d| facts.prove(&d.clone().ne(PrimExpr::int(d.dtype(), 0))) != Answer::Yes);
    list
}

/// The divisors of a branch's condition that must not be 0, or it has no answer. Where one part of the condition decides whether
/// another is looked at, there are none.
pub fn decisive_divisors(condition: &PrimExpr, facts: &mut Facts) -> Vec<PrimExpr> {
    let mut whole = true;
    condition.walk(&mut |e| {
        let parts = matches!(
            e.kind(),
            PrimKind::Binary(BinOp::And | BinOp::Or, ..) | PrimKind::IfThenElse(..) | PrimKind::Select(..)
        );
        whole &= !parts;
    });
    if whole {
        open_divisors(condition, facts).into_iter().rev().collect()
    } else {
        vec![]
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

/// The variable for which the dim of this name was solved.
pub fn solved_var<'a>(f: &'a Function, name: &str) -> Option<&'a str> {
    match f.attrs.get(SOLVED_VARS) {
        Some(AttrValue::Dict(d)) => d.iter().find(|(k, _)| k == name).and_then(|(_, v)| v.as_str()),
        _ => None,
    }
}

/// The dim that was solved for the variable `name`, and its size where the variable is `value`; `None` for the size where
/// that takes other variables.
pub fn solved_for(f: &Function, name: &str, value: i64) -> Option<(String, Option<i64>)> {
    let Some(AttrValue::Dict(d)) = f.attrs.get(SOLVED_VARS) else { return None };
    let own = d.iter().find(|(_, v)| v.as_str() == Some(name)).map(|(own, _)| own.clone())?;
    let text = written(f, &own)?;
    let lookup = |n: &str| (n == name).then(|| PrimExpr::i64(value));
    let size = text::dim(text, &lookup).ok().and_then(|e| e.as_int());
    Some((own, size))
}

/// What casts want of dims that were solved (`k_times_4 // 4 * 4`), and these dims as they were written (`k * 4`).
pub fn solved_casts(f: &Function) -> Vec<(String, String)> {
    let Some(AttrValue::Dict(d)) = f.attrs.get(CAST_DIMS) else { return vec![] };
    d.iter().filter_map(|(wanted, dim)| Some((wanted.clone(), dim.as_str()?.to_string()))).collect()
}

/// What stands for dims and variables of a function that were solved, and what they were: `m_times_4` for `m * 4`, and
/// `m_times_4 // 4` for `m`; the longest first.
pub fn solved_texts(f: &Function) -> Vec<(String, String)> {
    let mut out = solved_casts(f);
    if let Some(AttrValue::Dict(d)) = f.attrs.get(SOLVED_DIMS) {
        let texts = d.iter().filter(|(name, _)| !name.is_empty());
        out.extend(texts.filter_map(|(name, t)| Some((name.clone(), t.as_str()?.to_string()))));
    }
    out.sort_by_key(|(name, text)| (std::cmp::Reverse(name.len()), name.clone(), text.clone()));
    out.dedup();
    out
}

/// A text with [`solved_texts`] as they were written.
pub fn as_written(texts: &[(String, String)], text: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let joins = |c: Option<char>| c.is_some_and(|c| "+-*/%".contains(c));
    let mut out = text.to_string();
    for (name, written) in texts {
        let mut from = 0;
        while let Some(at) = out.get(from..).and_then(|rest| rest.find(name.as_str())).map(|i| i + from) {
            let (before, after) = (&out[..at], &out[at + name.len()..]);
            from = at + name.len();
            if before.ends_with(word) || after.starts_with(word) {
                continue;
            }
            // In parentheses where it is an operand.
            let operand = joins(before.trim_end().chars().next_back()) || joins(after.trim_start().chars().next());
            let new = if operand && written.contains(' ') { format!("({written})") } else { written.clone() };
            // What was an expression in parentheses is a name without.
            let name_alone = !written.contains(' ') && before.ends_with('(') && after.starts_with(')');
            let called = before.strip_suffix('(').is_some_and(|b| b.ends_with(word));
            if name_alone && !called {
                out.replace_range(at - 1..at + name.len() + 1, &new);
                from = at - 1 + new.len();
                continue;
            }
            from = at + new.len();
            out.replace_range(at..at + name.len(), &new);
        }
    }
    out
}
