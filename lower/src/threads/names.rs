//! Kernels in which every name is bound once.
//!
//! A scheduled kernel binds the variable of an axis anew for each tile over it. Whoever moves statements past one another
//! would move them to another value of the same name.

use relax_ir::flat::FlatStmt;
use relax_ir::prim::Var;
use relax_ir::PrimExpr;
use std::collections::{HashMap, HashSet};

/// The statements with a name of its own for whatever binds one again.
pub fn bound_once(body: &[FlatStmt]) -> Vec<FlatStmt> {
    Names::default().block(body, &HashMap::new())
}

#[derive(Default)]
struct Names {
    bound: HashSet<Var>,
}

type Renamed = HashMap<Var, PrimExpr>;

impl Names {
    fn block(&mut self, body: &[FlatStmt], outer: &Renamed) -> Vec<FlatStmt> {
        let mut own = outer.clone();
        body.iter().map(|s| self.statement(s, &mut own)).collect()
    }

    /// The name that is bound here, and known by that from here on.
    fn bind(&mut self, var: &Var, own: &mut Renamed) -> Var {
        if self.bound.insert(var.clone()) {
            own.remove(var);
            return var.clone();
        }
        let fresh = Var::new(var.name(), var.dtype());
        self.bound.insert(fresh.clone());
        own.insert(var.clone(), fresh.expr());
        fresh
    }

    fn statement(&mut self, s: &FlatStmt, own: &mut Renamed) -> FlatStmt {
        let of = |e: &PrimExpr, own: &Renamed| if own.is_empty() { e.clone() } else { e.substitute(own) };
        let all = |list: &[PrimExpr], own: &Renamed| list.iter().map(|e| of(e, own)).collect();
        match s {
            FlatStmt::Let { var, value } => {
                let value = of(value, own);
                FlatStmt::Let { var: self.bind(var, own), value }
            }
            FlatStmt::Local { var, init } => {
                let init = of(init, own);
                FlatStmt::Local { var: self.bind(var, own), init }
            }
            FlatStmt::Assign { var, value } => {
                let register = own.get(var).and_then(|e| e.as_var()).unwrap_or(var).clone();
                FlatStmt::Assign { var: register, value: of(value, own) }
            }
            FlatStmt::Store { ptr, offset, value } => {
                FlatStmt::Store { ptr: of(ptr, own), offset: of(offset, own), value: of(value, own) }
            }
            FlatStmt::Prefetch { ptr } => FlatStmt::Prefetch { ptr: of(ptr, own) },
            FlatStmt::For { var, begin, end, step, body } => {
                let (begin, end, mut inner) = (of(begin, own), of(end, own), own.clone());
                let var = self.bind(var, &mut inner);
                FlatStmt::For { var, begin, end, step: *step, body: self.block(body, &inner) }
            }
            FlatStmt::While { cond, body } => FlatStmt::While { cond: of(cond, own), body: self.block(body, own) },
            FlatStmt::If { cond, then, otherwise } => {
                FlatStmt::If { cond: of(cond, own), then: self.block(then, own), otherwise: self.block(otherwise, own) }
            }
            FlatStmt::Call { callee, args, result } => {
                let args = all(args, own);
                let result = result.as_ref().map(|v| self.bind(v, own));
                FlatStmt::Call { callee: callee.clone(), args, result }
            }
            FlatStmt::CallIndirect { target, callee, args, result } => {
                let (target, args) = (of(target, own), all(args, own));
                let result = result.as_ref().map(|v| self.bind(v, own));
                FlatStmt::CallIndirect { target, callee: callee.clone(), args, result }
            }
            FlatStmt::Stack { var, bytes, align } => {
                FlatStmt::Stack { var: self.bind(var, own), bytes: *bytes, align: *align }
            }
            FlatStmt::Address { var, symbol } => FlatStmt::Address { var: self.bind(var, own), symbol: symbol.clone() },
            FlatStmt::Return(e) => FlatStmt::Return(e.as_ref().map(|e| of(e, own))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relax_ir::DType;

    /// A value that was made of an older binding stays that when statements change places.
    #[test]
    fn bindings_have_names_of_their_own() {
        let [x, y, p] = [("x", DType::I64), ("y", DType::I64), ("p", DType::HANDLE)].map(|(n, d)| Var::new(n, d));
        let bind = |var: &Var, value: PrimExpr| FlatStmt::Let { var: var.clone(), value };
        let store = |at: &Var| FlatStmt::Store { ptr: p.expr(), offset: at.expr(), value: x.expr() };
        let inner = vec![bind(&x, y.expr()), store(&y)];
        let (begin, end) = (PrimExpr::i64(0), x.expr());
        let body = vec![
            bind(&x, PrimExpr::i64(0)),
            bind(&y, x.expr() + 1),
            bind(&x, PrimExpr::i64(12)),
            FlatStmt::For { var: y.clone(), begin, end, step: 1, body: inner },
            store(&y),
        ];
        let out = bound_once(&body);
        assert_eq!(out[..2], body[..2]);
        let FlatStmt::Let { var: second, .. } = &out[2] else { panic!("{out:?}") };
        let FlatStmt::For { var, end, body: inner, .. } = &out[3] else { panic!("{out:?}") };
        let FlatStmt::Let { var: third, value } = &inner[0] else { panic!("{out:?}") };
        assert!(*second != x && *var != y && *third != x && third != second);
        assert_eq!((end, value), (&second.expr(), &var.expr()));
        let at = |at: &Var, value: &Var| FlatStmt::Store { ptr: p.expr(), offset: at.expr(), value: value.expr() };
        assert_eq!((&inner[1], &out[4]), (&at(var, third), &at(&y, second)));
    }
}
