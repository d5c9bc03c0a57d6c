//! Bindings that nothing uses and that have no effect are dropped, and PrimFuncs that nothing calls.
//!
//! Only inside dataflow blocks and for pure values: a binding outside of one may check something at run time, and the
//! specification leaves a program's checks outside of DataflowBlocks in place. A kernel call has no effect, so it may
//! go wherever it stands.

use relax_ir::analysis::Typed;
use relax_ir::op::Answer;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Expr, ExprKind, Function, RVar, StructInfoMap};
use relax_ir::sym::Facts;
use relax_ir::{Func, PrimExpr};
use std::collections::{HashMap, HashSet};

pub fn remove_dead(typed: &mut Typed) {
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    // Where shape variables are born, too: kernels use them without the value.
    let checked: HashSet<RVar> =
        typed.checks.iter().map(|c| c.before.clone()).chain(typed.births.keys().cloned()).collect();
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            remove_in(f, &checked, &typed.sinfo);
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

fn remove_in(f: &mut Function, checked: &HashSet<RVar>, infos: &StructInfoMap) {
    loop {
        let mut uses: HashMap<RVar, usize> = HashMap::new();
        f.body.walk(&mut |e| {
            if let ExprKind::Var(v) = e.kind() {
                *uses.entry(v.clone()).or_default() += 1;
            }
        });
        let mut candidates: Vec<(RVar, Expr)> = vec![];
        map_bindings(&f.body, &mut |b, dataflow| {
            if !checked.contains(&b.var) && (removable(b, dataflow) || view(b, infos)) {
                candidates.push((b.var.clone(), b.expr().clone()));
            }
            None
        });
        // From the end: what only a dropped binding uses is dropped too. What stands inside of a dropped function is
        // seen in the next round, so that nothing is counted twice.
        let mut dropped: HashSet<RVar> = HashSet::new();
        for (var, e) in candidates.into_iter().rev() {
            if uses.get(&var).is_some_and(|n| *n > 0) {
                continue;
            }
            dropped.insert(var);
            if !matches!(e.kind(), ExprKind::Function(_) | ExprKind::If { .. } | ExprKind::Seq(_)) {
                e.walk(&mut |e| {
                    if let Some(n) = e.as_var().and_then(|v| uses.get_mut(v)) {
                        *n -= 1;
                    }
                });
            }
        }
        if dropped.is_empty() {
            return;
        }
        f.body = map_bindings(&f.body, &mut |b, _| dropped.contains(&b.var).then(Vec::new));
    }
}

fn removable(b: &Binding, dataflow: bool) -> bool {
    match &b.value {
        BindingValue::MatchCast { .. } => false,
        BindingValue::Expr(e) => dataflow && pure(e) || kernel_or_leaf(e),
    }
}

/// Other dims for a tensor, of as many elements whatever values open ones take: nothing is left to check.
fn view(b: &Binding, infos: &StructInfoMap) -> bool {
    let elements = |v: &RVar| {
        let dims = infos.get(v)?.as_tensor()?.known_dims()?;
        Some(PrimExpr::product(dims))
    };
    let BindingValue::Expr(e) = &b.value else { return false };
    let from = e.as_op_call("reshape").and_then(|c| elements(c.args.first()?.as_var()?));
    from.zip(elements(&b.var)).is_some_and(|(from, to)| Facts::new().equal(&from, &to) == Answer::Yes)
}

fn kernel_or_leaf(e: &Expr) -> bool {
    match e.kind() {
        ExprKind::Call(c) => c.is_op("call_tir"),
        ExprKind::TupleGetItem(..) | ExprKind::Function(_) => true,
        // It may not be there.
        ExprKind::ExternFunc(..) => false,
        _ => e.is_leaf(),
    }
}

/// What is written in place, other names of the argument see.
fn pure(e: &Expr) -> bool {
    match e.kind() {
        ExprKind::Call(c) if c.is_op("call_tir_inplace") || c.is_op("call_inplace_packed") => false,
        ExprKind::Call(c) => c.op().is_some_and(|o| o.purity == relax_ir::op::Purity::Pure && o.name != "assert_op"),
        ExprKind::If { .. } => false,
        _ => true,
    }
}
