//! Functions whose batch is a number, as functions of an open batch.

use super::Apart;
use relax_ir::analysis::{self, vars, Typed};
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Expr, ExprKind, Function, Param, RVar, StructInfo};
use relax_ir::{DType, Func, PrimExpr, Var};
use std::collections::HashSet;

/// The first dim of the first parameter is taken for the batch. Parameters that begin with it, and what is reshaped of what
/// comes of them, begin with a variable instead; `None` where the rest of the function is not right for any batch.
pub(super) fn opened(f: &Function, typed: &Typed) -> Option<Apart> {
    let dims = |p: &Param| p.annotation.as_ref()?.as_tensor()?.known_dims().map(<[PrimExpr]>::to_vec);
    let count = f.params.first().and_then(dims)?.first()?.as_int().filter(|n| *n >= 2)?;
    let batch = Var::new("batch", DType::I64);
    let open = |dim: &PrimExpr| match dim.as_int() {
        Some(n) if n == count => batch.expr(),
        Some(n) if n > 0 && n % count == 0 => batch.expr() * (n / count),
        _ => dim.clone(),
    };
    let begins = |s: &StructInfo| match s {
        StructInfo::Tensor(t) => t.known_dims().is_some_and(|d| d.first().is_some_and(|d| d.is_int(count))),
        _ => false,
    };
    let first = |s: &StructInfo| {
        let mut place = 0;
        vars::map_dims(s, &mut |dim| {
            place += 1;
            if place == 1 {
                open(dim)
            } else {
                dim.clone()
            }
        })
    };
    let mut g = f.clone();
    let mut images: HashSet<RVar> = HashSet::new();
    for p in &mut g.params {
        if let Some(a) = p.annotation.as_mut().filter(|a| begins(a)) {
            *a = first(a);
            images.insert(p.var.clone());
        }
    }
    g.ret = Some(each_field(f.ret.as_ref()?, &|s| if begins(s) { first(s) } else { s.clone() }));
    g.body = map_bindings(&f.body, &mut |b, _| {
        let BindingValue::Expr(e) = &b.value else { return None };
        let mut of_images = false;
        e.walk(&mut |e| of_images |= e.as_var().is_some_and(|v| images.contains(v)));
        if !of_images {
            return None;
        }
        images.insert(b.var.clone());
        let value = BindingValue::Expr(reshaped(e, &open).unwrap_or_else(|| e.clone()));
        Some(vec![Binding { annotation: None, value, ..b.clone() }])
    });
    let mut t = typed.clone();
    for other in &mut t.module.funcs {
        match other {
            Func::Relax(other) if other.name == f.name => *other = g.clone(),
            _ => {}
        }
    }
    analysis::materialise(&mut t).ok()?;
    Some(Apart { typed: t, batch, count: Some(count) })
}

/// A call of `reshape` whose first dim is another one.
fn reshaped(e: &Expr, open: &dyn Fn(&PrimExpr) -> PrimExpr) -> Option<Expr> {
    let c = e.as_op_call("reshape")?;
    let ExprKind::Shape(dims) = c.args.get(1)?.kind() else { return None };
    let (first, rest) = dims.split_first()?;
    let dims = [&[open(first)], rest].concat();
    let args = vec![c.args[0].clone(), Expr::new(ExprKind::Shape(dims), c.args[1].span())];
    Some(Expr::new(ExprKind::Call(Call { args, ..c.clone() }), e.span()))
}

/// Struct info with each tensor in it changed.
fn each_field(s: &StructInfo, change: &dyn Fn(&StructInfo) -> StructInfo) -> StructInfo {
    match s {
        StructInfo::Tuple(fields) => StructInfo::Tuple(fields.iter().map(|s| each_field(s, change)).collect()),
        s => change(s),
    }
}
