//! What older dialects say differently, brought to today's form after parsing.
//!
//! TVM 0.25 and before passes scalars to a PrimFunc by `tir_vars=R.shape([m, n])`, and the PrimFunc takes them after
//! its outputs. Since 0.26 they are ordinary arguments and come before the outputs. A PrimFunc all of whose calls
//! state `tir_vars` is reordered together with these calls; any other keeps the old form.

use relax_ir::relax::{
    Binding, BindingBlock, BindingValue, Call, Callee, Expr, ExprKind, Function, SeqExpr, StructInfo,
};
use relax_ir::tir::{PrimFunc, PrimParam};
use relax_ir::{Func, IRModule};
use std::collections::HashMap;
use std::sync::Arc;

/// How many outputs and scalars the calls of a PrimFunc state; `None` when they disagree.
type Uses = HashMap<String, Option<(usize, usize)>>;

pub fn modernize(module: &mut IRModule) {
    let mut uses = Uses::new();
    for f in &module.funcs {
        if let Func::Relax(f) = f {
            map_function(f, &mut |c| {
                if let Some((name, outputs, scalars, _)) = scalar_call(c) {
                    let use_ = Some((outputs, scalars));
                    let known = uses.entry(name.to_string()).or_insert(use_);
                    if *known != use_ {
                        *known = None;
                    }
                } else if let Some(name) = callee(c) {
                    uses.insert(name.to_string(), None);
                }
                None
            });
        }
    }
    let mut moved: Vec<String> = vec![];
    for f in &mut module.funcs {
        let Func::Prim(p) = f else { continue };
        if let Some(Some((outputs, scalars))) = uses.get(&p.name).copied() {
            if reorder(p, outputs, scalars) {
                moved.push(p.name.clone());
            }
        }
    }
    if moved.is_empty() {
        return;
    }
    for f in &mut module.funcs {
        let Func::Relax(f) = f else { continue };
        let changed = map_function(f, &mut |c| {
            let (name, _, _, at) = scalar_call(c)?;
            if !moved.iter().any(|m| m == name) {
                return None;
            }
            let mut c = c.clone();
            let vars = c.args.remove(at);
            let ExprKind::Shape(dims) = vars.kind() else { return None };
            let ExprKind::Tuple(fields) = c.args[1].kind() else { return None };
            let scalars = dims.iter().map(|d| Expr::new(ExprKind::Prim(d.clone()), d.span()));
            let fields = fields.iter().cloned().chain(scalars).collect();
            c.args[1] = Expr::new(ExprKind::Tuple(fields), c.args[1].span());
            Some(c)
        });
        if let Some(changed) = changed {
            *f = changed;
        }
    }
}

/// The PrimFunc called, directly or through an operator.
fn callee(c: &Call) -> Option<&str> {
    let callee = match &c.callee {
        Callee::Op(_) => c.args.first()?,
        Callee::Expr(e) => e,
    };
    match callee.kind() {
        ExprKind::GlobalVar(n) => Some(n),
        _ => None,
    }
}

/// A call with `tir_vars`: function, outputs, scalars, and which argument the scalars are.
fn scalar_call(c: &Call) -> Option<(&str, usize, usize, usize)> {
    if !["call_tir", "call_tir_inplace", "call_tir_with_grad"].iter().any(|op| c.is_op(op)) {
        return None;
    }
    let last = c.args.len().checked_sub(1).filter(|n| *n >= 2)?;
    match (callee(c), c.args[1].kind(), c.args[last].kind()) {
        (Some(name), ExprKind::Tuple(_), ExprKind::Shape(d)) => Some((name, outputs(c), d.len(), last)),
        _ => None,
    }
}

/// How many outputs have memory of their own: a parameter each.
fn outputs(c: &Call) -> usize {
    match c.attrs.ints("inplace_indices").filter(|_| c.is_op("call_tir_inplace")) {
        Some(places) => places.iter().filter(|&&i| i < 0).count(),
        None => match c.sinfo_args.as_slice() {
            [StructInfo::Tuple(fields)] => fields.len(),
            list => list.len(),
        },
    }
}

/// Moves the trailing scalars before the outputs; false when the parameters are not so.
fn reorder(p: &mut PrimFunc, outputs: usize, scalars: usize) -> bool {
    let n = p.params.len();
    if n < outputs + scalars {
        return false;
    }
    let (rest, last) = p.params.split_at(n - scalars);
    let outs = &rest[rest.len() - outputs..];
    if !last.iter().all(|q| matches!(q, PrimParam::Scalar(_))) || !outs.iter().all(|q| q.buffer().is_some()) {
        return false;
    }
    p.params[n - scalars - outputs..].rotate_left(outputs);
    true
}

/// Rewrites calls, innermost last; `None` when nothing changes. The height of the tree is bounded by the parser.
type Rewrite<'r> = dyn FnMut(&Call) -> Option<Call> + 'r;

fn map_function(f: &Function, rewrite: &mut Rewrite) -> Option<Function> {
    let body = map_seq(&f.body, rewrite)?;
    Some(Function { body: Arc::new(body), ..f.clone() })
}

fn map_seq(s: &SeqExpr, rewrite: &mut Rewrite) -> Option<SeqExpr> {
    let mut changed = false;
    let mut blocks = vec![];
    for b in &s.blocks {
        let mut bindings: Vec<Binding> = vec![];
        for x in &b.bindings {
            let new = map_expr(x.expr(), rewrite);
            changed |= new.is_some();
            bindings.push(match new {
                None => x.clone(),
                Some(e) => {
                    let value = match &x.value {
                        BindingValue::Expr(_) => BindingValue::Expr(e),
                        BindingValue::MatchCast { struct_info, .. } => {
                            BindingValue::MatchCast { value: e, struct_info: struct_info.clone() }
                        }
                    };
                    Binding { value, ..x.clone() }
                }
            });
        }
        blocks.push(BindingBlock { bindings, ..b.clone() });
    }
    let body = map_expr(&s.body, rewrite);
    if !changed && body.is_none() {
        return None;
    }
    Some(SeqExpr { blocks, body: body.unwrap_or_else(|| s.body.clone()) })
}

fn map_expr(e: &Expr, rewrite: &mut Rewrite) -> Option<Expr> {
    let list = |items: &[Expr], rewrite: &mut Rewrite| -> Option<Vec<Expr>> {
        let new: Vec<Option<Expr>> = items.iter().map(|i| map_expr(i, rewrite)).collect();
        if new.iter().all(Option::is_none) {
            return None;
        }
        Some(new.into_iter().zip(items).map(|(n, i)| n.unwrap_or_else(|| i.clone())).collect())
    };
    let kind = match e.kind() {
        ExprKind::Tuple(fields) => ExprKind::Tuple(list(fields, rewrite)?),
        ExprKind::TupleGetItem(t, i) => ExprKind::TupleGetItem(map_expr(t, rewrite)?, *i),
        ExprKind::Seq(s) => ExprKind::Seq(Arc::new(map_seq(s, rewrite)?)),
        ExprKind::Function(f) => ExprKind::Function(Arc::new(map_function(f, rewrite)?)),
        ExprKind::If { cond, then, otherwise } => {
            let (a, b) = (map_seq(then, rewrite), map_seq(otherwise, rewrite));
            if a.is_none() && b.is_none() {
                return None;
            }
            let pick = |n: Option<SeqExpr>, old: &Arc<SeqExpr>| n.map_or_else(|| old.clone(), Arc::new);
            ExprKind::If { cond: cond.clone(), then: pick(a, then), otherwise: pick(b, otherwise) }
        }
        ExprKind::Call(c) => {
            let inner = list(&c.args, rewrite).map(|args| Call { args, ..c.clone() });
            match rewrite(inner.as_ref().unwrap_or(c)).or(inner) {
                Some(c) => ExprKind::Call(c),
                None => return None,
            }
        }
        _ => return None,
    };
    Some(Expr::new(kind, e.span()))
}
