//! Branches: what each knows, and how their results join (relax_spec.md, "Derivation Rules", 6).

use super::{Deriver, Failed};
use crate::analysis::{relate, show, vars};
use crate::diag::Diagnostic;
use crate::op::{Answer, ShapeFacts};
use crate::relax::{Expr, ExprKind, SeqExpr, StructInfo};
use crate::DType;
use std::sync::Arc;

impl Deriver<'_> {
    /// Before lowering, the one branch of an `if` that ever runs: its types are then those of the value.
    pub(super) fn live_branch(&mut self, e: &Expr) -> Option<Arc<SeqExpr>> {
        let ExprKind::If { cond, then, otherwise } = e.kind() else { return None };
        if !self.name_dims {
            return None;
        }
        let holds = match self.env().infer(cond) {
            Ok(StructInfo::Prim { value: Some(v), .. }) => self.facts.prove(&v),
            _ => match cond.kind() {
                ExprKind::Constant(c) if c.bytes().iter().all(|b| *b == 0) => Answer::No,
                ExprKind::Constant(_) => Answer::Yes,
                _ => Answer::Unknown,
            },
        };
        match holds {
            Answer::Yes => Some(then.clone()),
            Answer::No => Some(otherwise.clone()),
            Answer::Unknown => None,
        }
    }

    /// Rule 6.
    pub(super) fn branches(
        &mut self,
        e: &Expr,
        cond: &Expr,
        then: &SeqExpr,
        otherwise: &SeqExpr,
    ) -> (Expr, Result<StructInfo, Failed>) {
        if self.dataflow {
            self.report(Diagnostic::error(
                "dataflow",
                e.span(),
                "`if` inside a dataflow block (well-formedness 6)".to_string(),
            ));
        }
        let condition = self.leaf(cond);
        if let Ok(info) = &condition {
            let bad = match info {
                StructInfo::Tensor(t) => t.dtype.is_some_and(|d| !d.is_bool()) || t.ndim.is_some_and(|n| n != 0),
                StructInfo::Prim { dtype, .. } => *dtype != DType::BOOL,
                StructInfo::Object => false,
                _ => true,
            };
            if bad {
                let d = Diagnostic::error("condition", cond.span(), "a condition must be a bool scalar")
                    .here(format!("this is {}", show::info(info)));
                self.report(d);
            }
        }
        // Each branch knows what a condition over shape variables says.
        let decided = match &condition {
            Ok(StructInfo::Prim { value: Some(v), .. }) if !v.vars().is_empty() => Some(v.clone()),
            _ => None,
        };
        let mut branch = |seq: &SeqExpr, holds: bool| {
            let (scope, facts) = (self.scope.clone(), self.facts.clone());
            if let Some(c) = &decided {
                self.facts.assume(&if holds { c.clone() } else { c.clone().not() });
            }
            self.inside += 1;
            let (seq, info) = self.sequence(seq);
            self.inside -= 1;
            let info = info.map(|s| {
                let s = relate::simplify(&s, &mut self.facts);
                let (inner, sinfo) = (&scope, &self.sinfo);
                vars::erase(&s, &|v| inner.contains(v), &|v| sinfo.contains_key(v))
            });
            self.scope = scope;
            (Arc::new(seq), info, std::mem::replace(&mut self.facts, facts))
        };
        let (then, a, mut in_then) = branch(then, true);
        let (otherwise, b, mut in_else) = branch(otherwise, false);
        let info = match (a, b) {
            (Ok(a), Ok(b)) => {
                let (a, b) = relate::reconcile(&a, &b, &mut in_then, &mut in_else);
                Ok(relate::join(&a, &b, &mut self.facts))
            }
            _ => Err(Failed),
        };
        let rebuilt = ExprKind::If { cond: cond.clone(), then, otherwise };
        (Expr::new(rebuilt, e.span()), info)
    }
}
