//! The bindings that take the place of one: calls of operators, one after the other, and the last one under its name.

use relax_ir::analysis::{infer_expr, Typed};
use relax_ir::attrs::Attrs;
use relax_ir::op::lookup;
use relax_ir::relax::{Binding, BindingValue, Call, Callee, Expr, ExprKind, RVar};
use relax_ir::sym::Facts;
use relax_ir::{Constant, DType, Span};

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

    /// All of them, with `last` under the name of the binding.
    pub fn done(mut self, last: Expr) -> Vec<Binding> {
        self.list.push(Binding { value: BindingValue::Expr(last), ..self.b.clone() });
        self.list
    }
}
