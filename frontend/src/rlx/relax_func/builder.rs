//! What a body says of its function in the words of TVM's script builder: `R.arg("x", TYPE)` is a parameter more,
//! `R.func_ret_type(TYPE)` the stated result.
//!
//! Source: TVM `relax.script.builder.ir.arg`, `func_ret_type`.

use super::super::context::{Births, Cx};
use super::super::syntax::*;
use relax_ir::relax::{Expr as RExpr, ExprKind as RKind, Param, RVar, StructInfo};
use relax_ir::{Diagnostic, Span};

/// What the body under way has said so far.
#[derive(Default)]
pub struct Said {
    pub params: Vec<Param>,
    pub result: Option<StructInfo>,
}

impl<'a> Cx<'a> {
    /// `R.arg("x", TYPE)`: the parameter, which follows those of the signature.
    pub fn stated_parameter(&mut self, call: &CallExpr<'a>, span: Span) -> Option<RExpr> {
        self.known_keywords(call, &["name", "ty"]);
        let (Some(name), Some(info), true) = (call.arg(0, "name"), call.arg(1, "ty"), call.args.len() <= 2) else {
            return self.error("argument", span, "R.arg takes a name and a type");
        };
        let name = self.string(name)?;
        let annotation = self.of_signature(info)?;
        if let Some(first) = self.said.params.iter().find(|p| p.var.name() == name) {
            let first = first.var.span();
            let d = Diagnostic::error("syntax", span, format!("two parameters are called `{name}`"));
            return self.report(d.label(first, "the first of them"));
        }
        let var = RVar::new(&name, false, span);
        self.names.types.state(&var, &annotation);
        if let StructInfo::Prim { dtype, value: None } = &annotation {
            self.names.scalars.insert(var.clone(), (*dtype, None));
        }
        self.said.params.push(Param { var: var.clone(), annotation: Some(annotation) });
        Some(RExpr::new(RKind::Var(var), span))
    }

    /// `R.func_ret_type(TYPE)`
    pub(super) fn stated_result(&mut self, call: &CallExpr<'a>, span: Span) -> Option<()> {
        let [info] = call.args.as_slice() else {
            return self.error("argument", span, "R.func_ret_type takes a type");
        };
        let info = self.of_signature(info)?;
        if self.said.result.replace(info).is_some() {
            return self.error("syntax", span, "the result of this function is stated twice");
        }
        Some(())
    }

    /// A type that belongs to the signature, where dims in quotes are born.
    fn of_signature(&mut self, e: &Expr<'a>) -> Option<StructInfo> {
        let outer = std::mem::replace(&mut self.names.births, Births::Signature);
        let info = self.struct_info(e);
        self.names.births = outer;
        info
    }

    /// What the body has said, put behind the parameters and the result of the signature.
    pub(super) fn join_said(
        &mut self,
        said: Said,
        params: &mut Vec<Param>,
        ret: &mut Option<StructInfo>,
    ) -> Option<()> {
        for p in said.params {
            if let Some(first) = params.iter().find(|q| q.var.name() == p.var.name()) {
                let message = format!("two parameters are called `{}`", p.var.name());
                let d = Diagnostic::error("syntax", p.var.span(), message);
                return self.report(d.label(first.var.span(), "the first of them"));
            }
            params.push(p);
        }
        if let Some(info) = said.result {
            *ret = Some(info);
        }
        Some(())
    }
}
