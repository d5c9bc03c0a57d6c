//! Bindings that are scalars, which dims and scalars of later bindings may name.

use super::super::context::Cx;
use relax_ir::relax::{
    Binding, BindingBlock, BindingValue, Callee, Expr as RExpr, ExprKind as RKind, RVar, StructInfo,
};
use relax_ir::{DType, Var};
use std::collections::HashMap;
use std::sync::Arc;

impl Cx<'_> {
    /// Notes whether `var` is a scalar, which dims and scalars of later bindings may name.
    pub(super) fn scalar_binding(&mut self, var: &RVar, annotation: Option<&StructInfo>, value: &BindingValue) {
        let (stated, bound) = match value {
            BindingValue::MatchCast { struct_info, .. } => (Some(struct_info), None),
            BindingValue::Expr(e) => (annotation, Some(e.kind())),
        };
        let dtype = match (stated, bound) {
            (_, Some(RKind::Prim(p))) | (Some(StructInfo::Prim { value: Some(p), .. }), _) => {
                self.names.known.insert(var.clone(), p.clone());
                return;
            }
            (_, Some(RKind::Var(other))) => {
                let known = self.names.known.get(other).cloned().or_else(|| {
                    let (dtype, named) = self.names.scalars.get_mut(other)?;
                    Some(named.get_or_insert_with(|| Var::with_span(other.name(), *dtype, other.span())).expr())
                });
                self.names.known.extend(known.map(|e| (var.clone(), e)));
                return;
            }
            (Some(StructInfo::Prim { dtype, .. }), _) => *dtype,
            (None, Some(RKind::Call(call))) => match &call.callee {
                Callee::Op(op) => match op.name {
                    "inspect.tensor_shape_i" | "inspect.tensor_stride_i" => DType::I64,
                    _ => return,
                },
                _ => return,
            },
            _ => return,
        };
        if dtype.is_int() {
            self.names.scalars.insert(var.clone(), (dtype, None));
        }
    }
}

/// A cast that names its value follows the binding of each scalar that a dim or another scalar names.
pub(super) fn name_scalars(blocks: &mut [BindingBlock], scalars: &HashMap<RVar, (DType, Option<Var>)>) {
    if scalars.values().all(|(_, v)| v.is_none()) {
        return;
    }
    for block in blocks {
        let bindings = std::mem::take(&mut block.bindings);
        for mut b in bindings {
            if let BindingValue::Expr(e) = &b.value {
                if let RKind::If { cond, then, otherwise } = e.kind() {
                    let (mut then, mut otherwise) = (then.clone(), otherwise.clone());
                    name_scalars(&mut Arc::make_mut(&mut then).blocks, scalars);
                    name_scalars(&mut Arc::make_mut(&mut otherwise).blocks, scalars);
                    let kind = RKind::If { cond: cond.clone(), then, otherwise };
                    b.value = BindingValue::Expr(RExpr::new(kind, e.span()));
                }
            }
            let cast = match scalars.get(&b.var) {
                Some((dtype, Some(v))) => {
                    let struct_info = StructInfo::Prim { dtype: *dtype, value: Some(v.expr()) };
                    let value = RExpr::new(RKind::Var(b.var.clone()), b.span);
                    let var = RVar::new("_", block.dataflow, b.span);
                    let value = BindingValue::MatchCast { value, struct_info };
                    Some(Binding { var, annotation: None, value, span: b.span })
                }
                _ => None,
            };
            block.bindings.push(b);
            block.bindings.extend(cast);
        }
    }
}
