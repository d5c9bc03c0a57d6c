//! Kernels that are the same up to names become one: a model with a thousand equal layers has each kernel once.

use relax_ir::analysis::Typed;
use relax_ir::attrs::AttrValue;
use relax_ir::printer::print_prim_func;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Expr, ExprKind};
use relax_ir::structural::compare_prim_funcs;
use relax_ir::tir::PrimFunc;
use relax_ir::{Func, IRModule};
use std::collections::{HashMap, HashSet};

/// Operators whose first operand is a kernel.
const CALLS: [&str; 4] = ["call_tir", "call_tir_inplace", "call_tir_with_grad", "vm.call_tir_dyn"];

/// Calls of private kernels go to the first one that is the same; the others are dropped.
pub fn share_kernels(typed: &mut Typed) {
    let mut first: HashMap<String, Vec<PrimFunc>> = HashMap::new();
    let mut instead: HashMap<String, String> = HashMap::new();
    for f in &typed.module.funcs {
        let Func::Prim(p) = f else { continue };
        if !p.private {
            continue;
        }
        let plain = anonymous(p);
        let same = first.entry(print_prim_func(&plain)).or_default();
        match same.iter().find(|s| compare_prim_funcs(&anonymous(s), &plain).is_ok()) {
            Some(s) => drop(instead.insert(p.name.clone(), s.name.clone())),
            None => same.push(p.clone()),
        }
    }
    if instead.is_empty() {
        return;
    }
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            f.body = map_bindings(&f.body, &mut |b, _| Some(vec![redirect(b, &instead)?]));
        }
    }
    // A kernel that is mentioned in another way than by a call stays.
    let mut mentioned: HashSet<String> = HashSet::new();
    for f in &funcs {
        if let Func::Relax(f) = f {
            f.body.walk(&mut |e| {
                if let ExprKind::GlobalVar(name) = e.kind() {
                    mentioned.insert(name.clone());
                }
            });
        }
    }
    funcs.retain(|f| !instead.contains_key(f.name()) || mentioned.contains(f.name()));
    typed.module.funcs = funcs;
}

/// Names a kernel that was made while planning, and adds it unless there is the same one already, whose name it gets.
pub fn place(kernel: &mut PrimFunc, module: &IRModule, kernels: &mut Vec<PrimFunc>) {
    let same = kernels.iter().find(|k| k.params.len() == kernel.params.len() && compare_prim_funcs(k, kernel).is_ok());
    if let Some(same) = same {
        kernel.name = same.name.clone();
        return;
    }
    let base = kernel.name.clone();
    let taken = |n: &str| module.get(n).is_some() || kernels.iter().any(|k| k.name == n);
    let names = (0..).map(|i| if i == 0 { base.clone() } else { format!("{base}_{i}") });
    kernel.name = names.into_iter().find(|n| !taken(n)).unwrap_or_default();
    kernels.push(kernel.clone());
}

/// Without what names it.
fn anonymous(p: &PrimFunc) -> PrimFunc {
    let mut p = PrimFunc { name: "kernel".to_string(), ..p.clone() };
    if p.attrs.get("global_symbol").is_some() {
        p.attrs.set("global_symbol", AttrValue::Str("kernel".to_string()));
    }
    p
}

fn redirect(b: &Binding, instead: &HashMap<String, String>) -> Option<Binding> {
    let BindingValue::Expr(e) = &b.value else { return None };
    let call = e.as_call().filter(|c| c.op().is_some_and(|o| CALLS.contains(&o.name)))?;
    let callee = call.args.first()?;
    let ExprKind::GlobalVar(name) = callee.kind() else { return None };
    let mut args = call.args.clone();
    args[0] = Expr::new(ExprKind::GlobalVar(instead.get(name)?.clone()), callee.span());
    let value = Expr::new(ExprKind::Call(Call { args, ..call.clone() }), e.span());
    Some(Binding { value: BindingValue::Expr(value), ..b.clone() })
}
