//! The warnings that the specification asks for: what may turn out incompatible (derivation rules 8, 11 and 12), and a
//! function that counts as pure although it calls something impure (type rule 11). `relax-aot check` shows them; a
//! compilation does not, since each of the former is a check with a number in the header.

use super::{signature, Typed};
use crate::diag::Diagnostic;
use crate::op::Purity;
use crate::relax::{BindingValue, Call, Callee, Expr, ExprKind, SeqExpr, StructInfo};
use crate::span::Span;

/// In the order of the text, as far as one file goes.
pub fn of(typed: &Typed) -> Vec<Diagnostic> {
    let mut out: Vec<Diagnostic> = typed
        .checks
        .iter()
        .map(|c| {
            let d = Diagnostic::warning("possibly-incompatible", c.span, c.message.clone());
            d.note(format!("this is known when it runs: a check there asks whether {}", super::show::dim(&c.condition)))
        })
        .collect();
    out.extend(typed.looks.iter().map(|l| {
        let d = Diagnostic::warning("possibly-incompatible", l.span, l.message.clone());
        d.note(format!("this is known when it runs: a check there looks whether it is {}", l.stated))
    }));
    for f in typed.module.relax_funcs().filter(|f| signature::forced_pure(f)) {
        let mut first = None;
        impure(&f.body, typed, &mut |name, span| {
            first.get_or_insert((name, span));
        });
        if let Some((name, span)) = first {
            let what = format!("`{}` counts as pure by its attribute, yet it calls {name}, which is not", f.name);
            out.push(Diagnostic::warning("force-pure", span, what));
        }
    }
    out.sort_by_key(|d| d.span().lo);
    out
}

fn impure(seq: &SeqExpr, typed: &Typed, found: &mut dyn FnMut(String, Span)) {
    for b in seq.blocks.iter().flat_map(|b| &b.bindings) {
        let (BindingValue::Expr(e) | BindingValue::MatchCast { value: e, .. }) = &b.value;
        match e.kind() {
            ExprKind::If { then, otherwise, .. } => {
                impure(then, typed, found);
                impure(otherwise, typed, found);
            }
            ExprKind::Seq(s) => impure(s, typed, found),
            ExprKind::Call(c) => {
                if let Some(name) = impure_callee(c, typed) {
                    found(name, e.span());
                }
            }
            _ => {}
        }
    }
}

fn impure_callee(c: &Call, typed: &Typed) -> Option<String> {
    let f: &Expr = match &c.callee {
        Callee::Op(op) => return (op.purity != Purity::Pure).then(|| format!("R.{}", op.name)),
        Callee::Expr(f) => f,
    };
    match f.kind() {
        ExprKind::ExternFunc(_, Some(f)) if f.pure => None,
        ExprKind::ExternFunc(n, _) => Some(format!("the packed function \"{n}\"")),
        ExprKind::GlobalVar(n) => typed.module.relax(n).filter(|f| !signature::is_pure(f)).map(|_| format!("`{n}`")),
        ExprKind::Var(v) => match typed.sinfo.get(v) {
            Some(StructInfo::Func(f)) if !f.pure => Some(format!("`{}`", v.name())),
            _ => None,
        },
        _ => None,
    }
}
