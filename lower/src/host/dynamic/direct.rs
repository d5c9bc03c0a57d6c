//! Which functions have no caller that analysis did not see: their calls check arguments and results once, on one side.

use relax_ir::analysis::Typed;
use relax_ir::relax::{Binding, BindingValue, Callee, Expr, ExprKind, Function, RVar, SeqExpr, StructInfo};
use relax_ir::Func;
use std::collections::HashSet;

/// The functions of a module by how they are called.
#[derive(Default)]
pub struct Direct {
    globals: HashSet<String>,
    /// Variables that are bound to a function where it is written down.
    locals: HashSet<RVar>,
    /// Those that are values too: passed, returned, stored or given another name.
    global_values: HashSet<String>,
    local_values: HashSet<RVar>,
}

impl Direct {
    pub fn new(typed: &Typed) -> Direct {
        let mut d = Direct::default();
        for f in &typed.module.funcs {
            if let Func::Relax(f) = f {
                d.globals.insert(f.name.clone());
                d.seq(&f.body);
            }
        }
        d
    }

    /// Does this call a function that states its result, and so has checked it?
    pub fn result_of(&self, e: &Expr) -> bool {
        let ExprKind::Call(c) = e.kind() else { return false };
        match &c.callee {
            Callee::Expr(f) => match f.kind() {
                ExprKind::GlobalVar(n) => self.globals.contains(n),
                ExprKind::Var(v) => self.locals.contains(v),
                _ => false,
            },
            Callee::Op(_) => false,
        }
    }

    /// Has every caller of the function checked its arguments? `this` is the variable of a local function.
    pub fn arguments_of(&self, f: &Function, this: Option<&RVar>) -> bool {
        let direct = match this {
            Some(v) => self.locals.contains(v) && !self.local_values.contains(v),
            None => self.globals.contains(&f.name) && !self.global_values.contains(&f.name),
        };
        direct && f.params.iter().all(|p| p.annotation.as_ref().is_none_or(|s| !states_scalar(s)))
    }

    fn seq(&mut self, s: &SeqExpr) {
        for b in s.blocks.iter().flat_map(|b| &b.bindings) {
            self.binding(b);
        }
        self.expr(&s.body);
    }

    fn binding(&mut self, b: &Binding) {
        match &b.value {
            BindingValue::Expr(e) => {
                if let ExprKind::Function(f) = e.kind() {
                    self.locals.insert(b.var.clone());
                    self.seq(&f.body);
                } else {
                    self.expr(e);
                }
            }
            BindingValue::MatchCast { value, .. } => self.expr(value),
        }
    }

    fn expr(&mut self, e: &Expr) {
        match e.kind() {
            ExprKind::Var(v) => drop(self.local_values.insert(v.clone())),
            ExprKind::GlobalVar(n) => drop(self.global_values.insert(n.clone())),
            ExprKind::Tuple(f) => f.iter().for_each(|x| self.expr(x)),
            ExprKind::TupleGetItem(t, _) => self.expr(t),
            ExprKind::Seq(s) => self.seq(s),
            ExprKind::Function(f) => self.seq(&f.body),
            ExprKind::If { cond, then, otherwise } => {
                self.expr(cond);
                self.seq(then);
                self.seq(otherwise);
            }
            ExprKind::Call(c) => {
                if let Callee::Expr(f) = &c.callee {
                    if !matches!(f.kind(), ExprKind::GlobalVar(_) | ExprKind::Var(_)) {
                        self.expr(f);
                    }
                }
                c.args.iter().for_each(|a| self.expr(a));
            }
            _ => {}
        }
    }
}

/// Is the value of a scalar part of what is stated? Analysis leaves an unknown one to the callee.
fn states_scalar(s: &StructInfo) -> bool {
    match s {
        StructInfo::Prim { value, .. } => value.is_some(),
        StructInfo::Tuple(f) => f.iter().any(states_scalar),
        _ => false,
    }
}
