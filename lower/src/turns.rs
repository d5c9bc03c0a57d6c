//! Transpositions that move nothing: rule `unit_turn`, a `permute_dims` that keeps the order of all axes of more than one
//! element is a reshape, and rule `turned_back`, one that undoes another is what that one turned.

use relax_ir::analysis::Typed;
use relax_ir::attrs::Attrs;
use relax_ir::op::lookup;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Callee, Expr, ExprKind, RVar};
use relax_ir::{Func, PrimExpr};
use std::collections::{HashMap, HashSet};

/// Rewrites every Relax function, before operators become kernels. The result shares its tensor with what was turned:
/// neither may be one of `shared`, the variables whose tensor somebody may write to.
pub fn turns(typed: &mut Typed, shared: &HashSet<RVar>) {
    let sinfo = &typed.sinfo;
    let dims = |v: &RVar| -> Option<Vec<PrimExpr>> { Some(sinfo.get(v)?.as_tensor()?.known_dims()?.to_vec()) };
    // What was turned, and how.
    let mut made: HashMap<RVar, (RVar, Vec<i64>)> = HashMap::new();
    for f in &mut typed.module.funcs {
        let Func::Relax(f) = f else { continue };
        f.body = map_bindings(&f.body, &mut |b, _| {
            let c = b.expr().as_op_call("permute_dims")?;
            let x = c.args.first()?.as_var()?.clone();
            if shared.contains(&b.var) || shared.contains(&x) {
                return None;
            }
            let to = dims(&b.var)?;
            let rank = to.len() as i64;
            let mut axes = match c.attrs.ints("axes") {
                Some(axes) => axes.iter().map(|a| a.rem_euclid(rank.max(1))).collect(),
                None => (0..rank).rev().collect::<Vec<i64>>(),
            };
            let (mut source, mut from) = (x.clone(), dims(&x)?);
            made.insert(b.var.clone(), (x.clone(), axes.clone()));
            if let Some((first, before)) = made.get(&x) {
                let both: Vec<i64> = axes.iter().filter_map(|a| before.get(*a as usize).copied()).collect();
                let dims = dims(first)?;
                if keeps(&both, &dims) {
                    (source, axes, from) = (first.clone(), both, dims);
                }
            }
            let value = match keeps(&axes, &from) {
                false => return None,
                true if from == to => source.expr(),
                true => {
                    let shape = Expr::new(ExprKind::Shape(to), b.span);
                    let args = vec![source.expr(), shape];
                    let call = Call {
                        callee: Callee::Op(lookup("reshape")?),
                        args,
                        attrs: Attrs::default(),
                        sinfo_args: vec![],
                    };
                    Expr::new(ExprKind::Call(call), b.expr().span())
                }
            };
            Some(vec![Binding { value: BindingValue::Expr(value), ..b.clone() }])
        });
    }
}

/// Whether a permutation of these dims keeps the order of all axes of more than one element.
fn keeps(axes: &[i64], dims: &[PrimExpr]) -> bool {
    let long = axes.iter().filter(|a| !dims.get(**a as usize).is_some_and(|d| d.is_int(1)));
    axes.len() == dims.len() && long.clone().zip(long.skip(1)).all(|(a, b)| a < b)
}
