//! One name for each value: rule `fields of tuples`, a field of a tuple that is written out is what it was written with, and
//! rule `aliases`, a variable that another one is bound to is that one. Rule `dropout`: what inference leaves of it is its
//! operand. Torch's importer returns maxima with their places as
//! such a tuple; what nothing reads any more goes away.

use relax_ir::analysis::Typed;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Expr, ExprKind, RVar};
use relax_ir::Func;
use std::collections::{HashMap, HashSet};

/// Rewrites the dataflow blocks of every Relax function. Dropouts of, and to, `shared` tensors, which somebody may write to, copy.
pub fn aliases(typed: &mut Typed, shared: &HashSet<RVar>) {
    let sinfo = &typed.sinfo;
    let mut names: HashMap<RVar, Expr> = HashMap::new();
    let mut tuples: HashMap<RVar, Vec<Expr>> = HashMap::new();
    for f in &mut typed.module.funcs {
        let Func::Relax(f) = f else { continue };
        f.body = map_bindings(&f.body, &mut |b, dataflow| {
            let BindingValue::Expr(e) = &b.value else { return None };
            let new = renamed(e, &names);
            let value = new.as_ref().unwrap_or(e);
            if dataflow {
                let own = |x: &Expr| !x.as_var().is_some_and(|x| shared.contains(x)) && !shared.contains(&b.var);
                if let Some(x) = value.as_op_call("nn.dropout").and_then(|c| c.args.first()).filter(|x| own(x)) {
                    tuples.insert(b.var.clone(), vec![x.clone()]);
                }
                let first = match value.kind() {
                    ExprKind::TupleGetItem(t, i) => t.as_var().and_then(|t| tuples.get(t)?.get(*i)).cloned(),
                    ExprKind::Tuple(_) | ExprKind::Var(_) => Some(value.clone()),
                    _ => None,
                };
                if let Some(ExprKind::Tuple(fields)) = first.as_ref().map(Expr::kind) {
                    tuples.insert(b.var.clone(), fields.clone());
                }
                // Outside of the block what is no output has no name.
                let same = first.filter(|x| {
                    b.var.is_dataflow()
                        && x.as_var().is_some_and(|x| sinfo.get(x).is_some_and(|i| Some(i) == sinfo.get(&b.var)))
                });
                if let Some(x) = same {
                    names.insert(b.var.clone(), x);
                }
            }
            Some(vec![Binding { value: BindingValue::Expr(new?), ..b.clone() }])
        });
    }
    if !names.is_empty() {
        crate::dead::remove_dead(typed);
    }
}

/// The expression with first names, if that is another one.
pub(crate) fn renamed(e: &Expr, names: &HashMap<RVar, Expr>) -> Option<Expr> {
    let all = |list: &[Expr]| -> Option<Vec<Expr>> {
        let new: Vec<Option<Expr>> = list.iter().map(|x| renamed(x, names)).collect();
        new.iter()
            .any(Option::is_some)
            .then(|| new.into_iter().zip(list).map(|(n, x)| n.unwrap_or_else(|| x.clone())).collect())
    };
    let kind = match e.kind() {
        ExprKind::Var(v) => return names.get(v).cloned(),
        ExprKind::Tuple(fields) => ExprKind::Tuple(all(fields)?),
        ExprKind::TupleGetItem(t, i) => ExprKind::TupleGetItem(renamed(t, names)?, *i),
        ExprKind::Call(c) => ExprKind::Call(Call { args: all(&c.args)?, ..c.clone() }),
        _ => return None,
    };
    Some(Expr::new(kind, e.span()))
}
