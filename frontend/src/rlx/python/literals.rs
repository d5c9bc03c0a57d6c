//! What Python says of literals: whether two are equal, what one counts as, an element of a list.

use crate::rlx::scalar::{parse_float, parse_int};
use crate::rlx::syntax::*;

/// Is `e` among these? A literal equals no value of TVM; whether two of those are one is not known here.
pub fn among<'e, 'a: 'e>(e: &Expr<'a>, mut items: impl Iterator<Item = &'e Expr<'a>>) -> Option<bool> {
    items.try_fold(false, |found, item| Some(found | equal(e, item)?))
}

/// What Python's `==` says of two literals.
pub fn equal(a: &Expr, b: &Expr) -> Option<bool> {
    enum Literal<'e> {
        Number(f64),
        Text(&'e str),
        None,
    }
    fn literal<'e>(e: &'e Expr) -> Option<Literal<'e>> {
        Some(match &e.kind {
            ExprKind::Str(s) => Literal::Text(s),
            ExprKind::None => Literal::None,
            ExprKind::Bool(b) => Literal::Number(f64::from(*b)),
            ExprKind::Float(t) => Literal::Number(parse_float(t)?.0),
            _ => Literal::Number(integer(e)? as f64),
        })
    }
    match (literal(a), literal(b)) {
        (Some(Literal::Number(x)), Some(Literal::Number(y))) => Some(x == y),
        (Some(Literal::Text(x)), Some(Literal::Text(y))) => Some(x == y),
        (Some(Literal::None), Some(Literal::None)) => Some(true),
        (None, None) => None,
        _ => Some(false),
    }
}

/// `[a, b][1]`, `{"k": a}["k"]`, of `tuples` too.
pub fn element<'a>(base: &Expr<'a>, index: &Expr<'a>, tuples: bool) -> Option<Expr<'a>> {
    let at = |items: &[Expr<'a>], i: i128| {
        let at = if i < 0 { i + items.len() as i128 } else { i };
        items.get(usize::try_from(at).ok()?).cloned()
    };
    match (&base.kind, integer(index)) {
        (ExprKind::List(items), Some(i)) => at(items, i),
        (ExprKind::Tuple(items), Some(i)) if tuples => at(items, i),
        (ExprKind::Dict(entries), ..) => {
            entries.iter().rev().find(|(k, _)| equal(k, index) == Some(true)).map(|(_, v)| v.clone())
        }
        _ => None,
    }
}

/// `[a, b, c][1:]`, `(a, b, c)[::-1]`: a list of a list, a tuple of a tuple.
pub fn slice<'a>(base: &Expr<'a>, index: &Expr<'a>) -> Option<ExprKind<'a>> {
    let ExprKind::Slice(from, to, step) = &index.kind else { return None };
    let items = base.elements().filter(|items| items.iter().all(|e| !matches!(e.kind, ExprKind::Starred(_))))?;
    let len = items.len() as i128;
    let absent = |e: &Option<Box<Expr<'a>>>| e.as_ref().is_none_or(|e| matches!(e.kind, ExprKind::None));
    let step = if absent(step) { 1 } else { integer(step.as_deref()?)? };
    let (first, end) = if step > 0 { (0, len) } else { (len - 1, -1) };
    let bound = |e: &Option<Box<Expr<'a>>>, otherwise: i128| match absent(e) {
        true => Some(otherwise),
        false => integer(e.as_deref()?)
            .map(|i| if i < 0 { i.saturating_add(len) } else { i }.clamp(first.min(end), first.max(end))),
    };
    let (mut at, to, mut taken) = (bound(from, first)?, bound(to, end)?, vec![]);
    while step != 0 && if step > 0 { at < to } else { at > to } {
        taken.push(items.get(usize::try_from(at).ok()?)?.clone());
        at = at.checked_add(step)?;
    }
    match &base.kind {
        _ if step == 0 => None,
        ExprKind::List(_) => Some(ExprKind::List(taken)),
        _ => Some(ExprKind::Tuple(taken)),
    }
}

pub fn integer(e: &Expr) -> Option<i128> {
    match &e.kind {
        ExprKind::Int(t) => parse_int(t),
        ExprKind::Unary(UnaryOp::Neg, a) => integer(a).and_then(i128::checked_neg),
        _ => None,
    }
}

/// A literal of a float.
pub fn float(e: &Expr) -> Option<f64> {
    match &e.kind {
        ExprKind::Float(t) => parse_float(t).map(|(v, _)| v),
        ExprKind::Unary(UnaryOp::Neg, a) => float(a).map(|v| -v),
        _ => None,
    }
}

pub fn floor_div(x: i128, y: i128) -> Option<i128> {
    let (q, r) = (x.checked_div_euclid(y)?, x.checked_rem_euclid(y)?);
    Some(if y < 0 && r != 0 { q - 1 } else { q })
}

/// What Python takes a literal, or a comparison of integers, for.
pub fn truth(e: &Expr) -> Option<bool> {
    match &e.kind {
        ExprKind::Bool(b) => Some(*b),
        ExprKind::None => Some(false),
        ExprKind::Unary(UnaryOp::Not, a) => truth(a).map(|b| !b),
        ExprKind::Binary(BinaryOp::And, a, b) => Some(truth(a)? && truth(b)?),
        ExprKind::Binary(BinaryOp::Or, a, b) => Some(truth(a)? || truth(b)?),
        ExprKind::Binary(op, a, b) => {
            if let (ExprKind::List(x), ExprKind::List(y)) = (&a.kind, &b.kind) {
                let all =
                    |x: &[Expr], y: &[Expr]| x.iter().zip(y).try_fold(true, |all, (x, y)| Some(all && equal(x, y)?));
                let same = if x.len() == y.len() { all(x, y)? } else { false };
                return match op {
                    BinaryOp::Eq => Some(same),
                    BinaryOp::Ne => Some(!same),
                    _ => None,
                };
            }
            let (a, b) = (integer(a)?, integer(b)?);
            match op {
                BinaryOp::Eq => Some(a == b),
                BinaryOp::Ne => Some(a != b),
                BinaryOp::Lt => Some(a < b),
                BinaryOp::Le => Some(a <= b),
                BinaryOp::Gt => Some(a > b),
                BinaryOp::Ge => Some(a >= b),
                _ => None,
            }
        }
        _ => integer(e).map(|v| v != 0),
    }
}

pub fn size(e: &Expr) -> usize {
    1 + e.children().into_iter().map(size).sum::<usize>()
}

pub fn names(e: &Expr, name: &str) -> bool {
    e.as_name() == Some(name) || e.children().into_iter().any(|c| names(c, name))
}
