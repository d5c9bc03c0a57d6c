//! Variables that are any object by what is stated of them: operators see no tensor there (rules 8.2 and 8.3).
//!
//! The analysis keeps what it knows of their values; this is about what may be written. The result of a call has the type
//! that its annotation says, a MatchCast that of the cast; any other value keeps its own.

use crate::diag::Diagnostic;
use crate::op::Compute;
use crate::relax::{Call, Expr, ExprKind, RVar, StructInfo};
use crate::span::Span;
use std::collections::HashSet;

#[derive(Default)]
pub(super) struct Vague {
    objects: HashSet<RVar>,
    /// Tuples that hold such a variable.
    holders: HashSet<RVar>,
}

impl Vague {
    /// `var: annotation = e`, whose value is `info`.
    pub fn bind(&mut self, var: &RVar, annotation: Option<&StructInfo>, e: &Expr, info: &StructInfo) {
        let of = |set: &HashSet<RVar>, e: &Expr| matches!(e.kind(), ExprKind::Var(v) if set.contains(v));
        match e.kind() {
            ExprKind::Call(_) => self.state(var, annotation, info),
            ExprKind::Tuple(f) if f.iter().any(|e| self.is(e)) => drop(self.holders.insert(var.clone())),
            _ if of(&self.objects, e) => drop(self.objects.insert(var.clone())),
            _ if of(&self.holders, e) => drop(self.holders.insert(var.clone())),
            _ => {}
        }
    }

    /// `var` is said to be `stated`, and is `info`.
    pub fn state(&mut self, var: &RVar, stated: Option<&StructInfo>, info: &StructInfo) {
        if matches!((stated, info), (Some(StructInfo::Object), StructInfo::Tensor(_) | StructInfo::Tuple(_))) {
            self.objects.insert(var.clone());
        }
    }

    /// Is `e` such a variable, or a tuple with one?
    fn is(&self, e: &Expr) -> bool {
        match e.kind() {
            ExprKind::Var(v) => self.objects.contains(v) || self.holders.contains(v),
            ExprKind::Tuple(f) => f.iter().any(|e| self.is(e)),
            _ => false,
        }
    }

    /// An operator that computes with one, or a kernel that takes one.
    pub fn operand(&self, c: &Call, span: Span) -> Option<Diagnostic> {
        let kernel = |op: &crate::op::OpDecl| matches!(op.compute, Compute::Kernel(_) | Compute::DataDependent(_));
        let op = c.op().filter(|op| kernel(op) || op.name.starts_with("call_tir"))?;
        let what = c.args.iter().find(|a| self.is(a))?;
        let name = what.as_var().map_or("a field of the tuple", |v| v.name());
        let d = Diagnostic::error("operator", span, format!("R.{}: `{name}` is any object as stated", op.name));
        let d = match what.as_var() {
            Some(v) => d.label(v.span(), "bound here"),
            None => d,
        };
        Some(d.help("leave the annotation or the cast out, or state the type of the tensor"))
    }

    /// A field of one.
    pub fn field(&self, e: &Expr) -> Option<Diagnostic> {
        let ExprKind::TupleGetItem(t, _) = e.kind() else { return None };
        let v = t.as_var().filter(|v| self.objects.contains(v))?;
        let d = Diagnostic::error("tuple-index", e.span(), format!("`{}` is any object as stated: no tuple", v.name()));
        Some(
            d.label(v.span(), "bound here")
                .help("leave the annotation or the cast out, or state the type of the tuple"),
        )
    }
}
