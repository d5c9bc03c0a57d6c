//! What may be called where (relax_spec.md, "Purity and Dataflow Blocks").

use super::Deriver;
use crate::analysis::signature;
use crate::diag::Diagnostic;
use crate::module::Func;
use crate::op::Purity;
use crate::relax::{Call, Callee, ExprKind, StructInfo};
use crate::span::Span;

impl Deriver<'_> {
    /// Type rules 10 and 11: pure functions and dataflow blocks call nothing impure.
    pub(super) fn check_purity(&mut self, c: &Call, span: Span) {
        let (name, pure) = match &c.callee {
            Callee::Op(op) => (format!("R.{}", op.name), op.purity == Purity::Pure),
            Callee::Expr(f) => match f.kind() {
                ExprKind::GlobalVar(name) => {
                    if self.dataflow && self.recursive.contains(name) {
                        let what = if *name == self.context.name { "recursive" } else { "mutually recursive" };
                        let d = Diagnostic::error(
                            "dataflow",
                            span,
                            format!("a {what} call of `{name}` inside a dataflow block (well-formedness 6)"),
                        );
                        self.report(d);
                    }
                    let pure = match self.module.get(name) {
                        Some(Func::Relax(f)) => signature::is_pure(f),
                        Some(Func::Prim(f)) => f.is_pure(),
                        None => true,
                    };
                    (format!("`{name}`"), pure)
                }
                ExprKind::ExternFunc(name, stated) => {
                    (format!("packed function \"{name}\""), stated.as_ref().is_some_and(|f| f.pure))
                }
                ExprKind::Var(v) => {
                    let pure = !matches!(self.sinfo.get(v), Some(StructInfo::Func(f)) if !f.pure);
                    (format!("`{}`", v.name()), pure)
                }
                _ => return,
            },
        };
        if pure {
            return;
        }
        if self.dataflow {
            let d = Diagnostic::error(
                "dataflow",
                span,
                format!("{name} is not pure: it may not be called inside a dataflow block (well-formedness 6)"),
            )
            .help("call it outside of `with R.dataflow():`");
            self.report(d);
        } else if self.context.pure && !self.forced() {
            let d = Diagnostic::error(
                "purity",
                span,
                format!("{name} is not pure, but `{}` is declared pure", self.context.name),
            )
            .help("declare the function with @R.function(pure=False)");
            self.report(d);
        }
    }

    fn forced(&self) -> bool {
        self.module.relax(&self.context.name).is_some_and(signature::forced_pure)
    }
}
