//! `if` of Relax: its branches, and what they end with.

use super::super::context::{Cx, Value};
use super::super::syntax::*;
use super::{first_line, outputs, Body, Place};
use relax_ir::relax::{
    Binding, BindingBlock, BindingValue, Expr as RExpr, ExprKind as RKind, RVar, SeqExpr, StructInfo,
};
use relax_ir::{Diagnostic, Span};
use std::sync::Arc;

struct Branch<'a> {
    name: &'a str,
    seq: SeqExpr,
    annotation: Option<StructInfo>,
    /// The binding of the result, where `seq` ends by its value instead.
    last: Option<Binding>,
    /// Where the result is bound.
    span: Span,
}

impl Branch<'_> {
    /// With its own variable as the result, and so with its own annotation.
    fn bound(mut self) -> Self {
        if let Some(b) = self.last.take().filter(|b| b.annotation.is_some()) {
            self.seq.body = RExpr::new(RKind::Var(b.var.clone()), b.var.span());
            let span = b.span;
            self.seq.blocks.push(BindingBlock { dataflow: false, bindings: vec![b], span });
        }
        self
    }
}

impl<'a> Cx<'a> {
    /// `if`/`else`: both branches end by binding one name, which the whole binds.
    pub(super) fn branches(
        &mut self,
        cond: &Expr<'a>,
        then: &[Stmt<'a>],
        otherwise: &[Stmt<'a>],
        span: Span,
        body: &mut Body<'a>,
    ) -> Option<()> {
        let cond = if cond.is_error() { None } else { self.relax(cond) };
        if otherwise.is_empty() {
            let d = Diagnostic::error("syntax", first_line(self.text, span), "an `if` of Relax needs an `else`");
            self.diags.push(d.help("both branches must bind the same name"));
        }
        let yes = self.branch(then);
        let no = self.branch(otherwise);
        let (yes, no) = (yes?, no?);
        if otherwise.is_empty() {
            return None;
        }
        if yes.name != no.name {
            let d = Diagnostic::error(
                "branch",
                yes.span,
                format!("the branches end with different names, `{}` and `{}`", yes.name, no.name),
            );
            let d = d.here("the first branch's result").label(no.span, "the second branch's result");
            return self.report(d.help("both branches must end by binding the same name"));
        }
        let same = yes.annotation == no.annotation;
        let annotation = if same { yes.annotation.clone() } else { None };
        let (yes, no) = if same { (yes, no) } else { (yes.bound(), no.bound()) };
        let var = RVar::new(yes.name, false, yes.span);
        self.names.bind(yes.name, Value::Relax(var.clone()));
        let kind = RKind::If { cond: cond?, then: Arc::new(yes.seq), otherwise: Arc::new(no.seq) };
        let value = BindingValue::Expr(RExpr::new(kind, span));
        self.emit(body, Binding { var, annotation, value, span });
        Some(())
    }

    fn branch(&mut self, stmts: &[Stmt<'a>]) -> Option<Branch<'a>> {
        let mut body = Body::new();
        self.names.push();
        self.statements(stmts, &mut body, Place::Branch);
        let python = bound_last(stmts).filter(|n| matches!(self.names.own(n), Some(Value::Python(_))));
        self.names.pop();
        if let (Some(name), Some(last)) = (python, stmts.last()) {
            let d =
                Diagnostic::error("branch", last.span, format!("`{name}` is a value of Python, no result of a branch"));
            return self.report(d.help("R.null_value() and R.str(..) are values of Relax"));
        }
        if !body.ok {
            return None;
        }
        let last = stmts.iter().rev().find(|s| !matches!(s.kind, StmtKind::Pass))?;
        let span = last.span;
        let named = bound_last(stmts).filter(|_| {
            // What a dataflow block binds last must be among its outputs.
            let binding = body.blocks.last().and_then(|b| b.bindings.last());
            binding.is_some_and(|b| match last.kind {
                StmtKind::With { .. } => !b.var.is_dataflow(),
                StmtKind::Expr(_) => b.var.name() == "_",
                _ => true,
            })
        });
        let Some(name) = named else {
            let d = Diagnostic::error("branch", first_line(self.text, span), "a branch must end by binding its result");
            return self.report(d.help("end both branches with `name: TYPE = value`"));
        };
        // A last binding of a plain value names the result; any other keeps its variable.
        let mut bindings_left = body.blocks;
        let block = bindings_left.last_mut()?;
        if block.dataflow {
            let b = block.bindings.last()?;
            let result = RExpr::new(RKind::Var(b.var.clone()), b.var.span());
            let annotation = b.annotation.clone();
            return Some(Branch {
                name,
                seq: SeqExpr { blocks: bindings_left, body: result },
                annotation,
                last: None,
                span,
            });
        }
        let binding = block.bindings.pop()?;
        let annotation = binding.annotation.clone();
        let mut last_binding = None;
        let result = match &binding.value {
            BindingValue::Expr(e) if e.is_leaf() => {
                let e = e.clone();
                last_binding = Some(binding);
                e
            }
            _ => {
                let e = RExpr::new(RKind::Var(binding.var.clone()), binding.var.span());
                block.bindings.push(binding);
                e
            }
        };
        if block.bindings.is_empty() {
            bindings_left.pop();
        }
        let at = match &last.kind {
            StmtKind::Assign { target, .. } => target.span,
            _ => first_line(self.text, span),
        };
        let seq = SeqExpr { blocks: bindings_left, body: result };
        Some(Branch { name, seq, annotation, last: last_binding, span: at })
    }
}

/// The name that the last statement binds.
pub(super) fn bound_last<'a>(stmts: &[Stmt<'a>]) -> Option<&'a str> {
    match &stmts.last()?.kind {
        StmtKind::Assign { target, .. } => target.as_name(),
        StmtKind::If { then, .. } => bound_last(then),
        StmtKind::Function(f) => Some(f.name.name),
        StmtKind::With { body, .. } => {
            let end = body.iter().rposition(|s| !outputs(s))?;
            bound_last(&body[..=end])
        }
        // A value without a name: `R.print(..)`.
        StmtKind::Expr(_) if !outputs(stmts.last()?) => Some("_"),
        _ => None,
    }
}
