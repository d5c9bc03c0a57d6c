//! One name for several loop variables or axes, and lists that take a shape apart: `for iters in T.grid(*x.shape)`.

use super::context::{Cx, Value};
use super::syntax::*;
use relax_ir::prim::PrimExpr;
use relax_ir::{Span, Var};

impl<'a> Cx<'a> {
    /// The variables behind a name that stands for several.
    pub fn variables(&self, e: &Expr<'a>) -> Option<&[Var]> {
        match e.as_name().and_then(|n| self.names.get(n)) {
            Some(Value::Several(vars)) => Some(vars),
            _ => None,
        }
    }

    /// Binds `name` to the variable where there is one, else to all of them.
    pub fn bind_several(&mut self, name: &'a str, vars: Vec<Var>) {
        let meaning = match <[Var; 1]>::try_from(vars) {
            Ok([var]) => Value::Prim(var),
            Err(vars) => Value::Several(vars),
        };
        self.names.bind(name, meaning);
    }

    /// What `*value` gives among indices or extents: the variables behind a name, the dims or strides of a buffer.
    pub fn spread(&mut self, value: &Expr<'a>, span: Span) -> Option<Vec<PrimExpr>> {
        if let Some(vars) = self.variables(value) {
            return Some(vars.iter().map(|v| v.expr().with_span(span)).collect());
        }
        match &value.kind {
            ExprKind::Attribute(owner, field) if matches!(field.name, "shape" | "strides") => {
                let buffer = self.buffer(owner)?;
                Some(if field.name == "shape" { buffer.shape.clone() } else { self.strides_of(&buffer) })
            }
            _ => self.expected(value, "the shape of a buffer or a name for several variables"),
        }
    }
}
