//! Bindings that nothing uses and that have no effect are dropped, and PrimFuncs that nothing calls.
//!
//! Only inside dataflow blocks and for pure values: a binding outside of one may check something at run time, and the
//! specification leaves a program's checks outside of DataflowBlocks in place. A kernel call has no effect, so it may
//! go wherever it stands.

use relax_ir::analysis::Typed;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Expr, ExprKind, Function, RVar};
use relax_ir::Func;
use std::collections::{HashMap, HashSet};

pub fn remove_dead(typed: &mut Typed) {
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let checked: HashSet<RVar> = typed.checks.iter().map(|c| c.before.clone()).collect();
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            remove_in(f, &checked);
        }
    }
    let mut called: HashSet<String> = HashSet::new();
    for f in &funcs {
        if let Func::Relax(f) = f {
            f.body.walk(&mut |e| {
                if let ExprKind::GlobalVar(g) = e.kind() {
                    called.insert(g.clone());
                }
            });
        }
    }
    funcs.retain(|f| match f {
        Func::Relax(_) => true,
        Func::Prim(p) => !p.private || called.contains(&p.name),
    });
    typed.module.funcs = funcs;
}

fn remove_in(f: &mut Function, checked: &HashSet<RVar>) {
    loop {
        let mut uses: HashMap<RVar, usize> = HashMap::new();
        f.body.walk(&mut |e| {
            if let ExprKind::Var(v) = e.kind() {
                *uses.entry(v.clone()).or_default() += 1;
            }
        });
        let mut removed = false;
        f.body = map_bindings(&f.body, &mut |b, dataflow| {
            if uses.contains_key(&b.var) || checked.contains(&b.var) || !removable(b, dataflow) {
                return None;
            }
            removed = true;
            Some(vec![])
        });
        if !removed {
            return;
        }
    }
}

fn removable(b: &Binding, dataflow: bool) -> bool {
    match &b.value {
        BindingValue::MatchCast { .. } => false,
        BindingValue::Expr(e) => dataflow && pure(e) || kernel_or_leaf(e),
    }
}

fn kernel_or_leaf(e: &Expr) -> bool {
    match e.kind() {
        ExprKind::Call(c) => c.is_op("call_tir"),
        ExprKind::TupleGetItem(..) | ExprKind::Function(_) => true,
        _ => e.is_leaf(),
    }
}

fn pure(e: &Expr) -> bool {
    match e.kind() {
        ExprKind::Call(c) => c.op().is_some_and(|o| o.purity == relax_ir::op::Purity::Pure && o.name != "assert_op"),
        ExprKind::If { .. } => false,
        _ => true,
    }
}
