//! Rule `gathered bytes`: rows of a quantised table are dequantised when they are taken, so that the table stays as small
//! as the model has it.

use crate::layout::call;
use relax_ir::analysis::Typed;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Expr, ExprKind, Function, RVar, StructInfo};
use relax_ir::{AttrValue, DType};
use std::collections::HashMap;

/// `take(dequantize(table), at)` is `dequantize(take(table, at))` where the whole table has one scale.
pub(super) fn gathered(f: &mut Function, typed: &mut Typed) {
    let values: HashMap<RVar, Expr> = f.bindings().map(|b| (b.var.clone(), b.expr().clone())).collect();
    let value = |e: &Expr| e.as_var().and_then(|v| values.get(v)).unwrap_or(e).clone();
    let rewritten = |b: &Binding| -> Option<(Vec<Binding>, (RVar, StructInfo))> {
        let BindingValue::Expr(e) = &b.value else { return None };
        let take = e.as_op_call("take")?;
        let table = value(take.args.first()?);
        let whole = table.as_op_call("dequantize")?;
        let ExprKind::Constant(c) = value(&whole.args[0]).kind().clone() else { return None };
        let one = whole.args[1..].iter().all(|a| matches!(value(a).kind(), ExprKind::Constant(c) if c.elements() == 1));
        let dims = typed.sinfo.get(&b.var)?.as_tensor()?.known_dims()?.to_vec();
        // No byte stands for what is not there.
        let absent = take.attrs.str("mode") == Some("nan");
        if !one || absent || !matches!(c.dtype, DType::I8 | DType::U8) || c.shape.len() < 2 {
            return None;
        }
        let args = [&[whole.args[0].clone()], &take.args[1..]].concat();
        let var = RVar::new("taken", b.var.is_dataflow(), b.span);
        let taken = call("take", args, take.attrs.clone(), e.span())?;
        let args = [&[var.expr()], &whole.args[1..]].concat();
        let mut attrs = whole.attrs.clone();
        attrs.set("axis", AttrValue::Int(-1));
        let real = call("dequantize", args, attrs, e.span())?;
        let info = (var.clone(), StructInfo::tensor(dims, c.dtype));
        let taken = Binding { var, annotation: None, value: BindingValue::Expr(taken), span: b.span };
        Some((vec![taken, Binding { value: BindingValue::Expr(real), ..b.clone() }], info))
    };
    let mut made = vec![];
    f.body = map_bindings(&f.body, &mut |b, _| {
        let (new, info) = rewritten(b)?;
        made.push(info);
        Some(new)
    });
    typed.sinfo.extend(made);
}
