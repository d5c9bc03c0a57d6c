//! The bindings that take the place of one: calls of operators, one after the other, and the last one under its name.

use relax_ir::analysis::{infer_expr, Typed};
use relax_ir::attrs::Attrs;
use relax_ir::op::lookup;
use relax_ir::relax::{Binding, BindingValue, Call, Callee, Expr, ExprKind, RVar};
use relax_ir::sym::Facts;
use relax_ir::{Constant, DType, Span};
use std::collections::HashSet;

pub struct Written<'a> {
    pub typed: &'a mut Typed,
    list: Vec<Binding>,
    b: &'a Binding,
}

impl<'a> Written<'a> {
    pub fn instead_of(b: &'a Binding, typed: &'a mut Typed) -> Written<'a> {
        Written { typed, list: vec![], b }
    }

    pub fn span(&self) -> Span {
        self.b.span
    }

    /// Whose place they take.
    pub fn var(&self) -> &RVar {
        &self.b.var
    }

    /// A float32.
    pub fn number(&self, v: f64) -> Expr {
        self.constant(&Constant::scalar_f64(DType::F32, v))
    }

    pub fn constant(&self, c: &Constant) -> Expr {
        Expr::new(ExprKind::Constant(c.clone()), self.span())
    }

    /// A call without attributes; `None` where there is no such operator.
    pub fn call<const N: usize>(&self, op: &str, args: [Expr; N]) -> Option<Expr> {
        let call =
            Call { callee: Callee::Op(lookup(op)?), args: args.to_vec(), attrs: Attrs::default(), sinfo_args: vec![] };
        Some(Expr::new(ExprKind::Call(call), self.span()))
    }

    /// The variable of such a call; `None` where it has no struct info.
    pub fn op<const N: usize>(&mut self, op: &str, args: [Expr; N]) -> Option<Expr> {
        let value = self.call(op, args)?;
        self.bind(value)
    }

    pub fn bind(&mut self, value: Expr) -> Option<Expr> {
        let info = infer_expr(&mut Facts::new(), &value, &self.typed.sinfo, &self.typed.module).ok()?;
        let var = RVar::new(self.b.var.name(), self.b.var.is_dataflow(), self.span());
        self.typed.sinfo.insert(var.clone(), info);
        let value = BindingValue::Expr(value);
        self.list.push(Binding { var: var.clone(), annotation: None, value, span: self.b.span });
        Some(var.expr())
    }

    /// What a variable of the list stands for.
    pub fn value(&self, e: &Expr) -> Option<&Expr> {
        let v = e.as_var()?;
        self.list.iter().find(|b| b.var == *v).map(Binding::expr)
    }

    /// All of them that `last` needs, and `last` under the name of the binding.
    pub fn done(mut self, last: Expr) -> Vec<Binding> {
        // The one before has no other name.
        let value = match self.list.last() {
            Some(b) if last.as_var() == Some(&b.var) => self.list.pop().map(|b| b.value),
            _ => None,
        };
        let value = value.unwrap_or(BindingValue::Expr(last));
        self.list.push(Binding { value, ..self.b.clone() });
        let mut needed: HashSet<RVar> = HashSet::from([self.b.var.clone()]);
        let mut kept = vec![];
        for b in self.list.into_iter().rev() {
            if needed.contains(&b.var) {
                b.expr().walk(&mut |e| needed.extend(e.as_var().cloned()));
                kept.push(b);
            }
        }
        kept.reverse();
        kept
    }
}
