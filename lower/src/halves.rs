//! Rule `halves`: convolutions and pools of float16 are those of float32 between two conversions, before layouts are chosen.
//!
//! Their sums are float32 as they are, rounded once. So they have the kernels of float32; the conversions go into the kernels
//! around them. Weights stay float16 in the library: kernels read them so ([`crate::layout`]).

use crate::layout::{CONVOLUTIONS, TRANSPOSED};
use relax_ir::analysis::{infer_expr, Typed};
use relax_ir::attrs::Attrs;
use relax_ir::op::lookup;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Callee, Expr, ExprKind, RVar, StructInfo};
use relax_ir::sym::Facts;
use relax_ir::{AttrValue, DType, Func, Span};

const POOLS: &[&str] = &["nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d"];

/// Rewrites every Relax function.
pub fn halves(typed: &mut Typed) {
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            f.body = map_bindings(&f.body, &mut |b, dataflow| wide(b, dataflow, typed));
        }
    }
    typed.module.funcs = funcs;
}

fn is_half(info: &StructInfo) -> bool {
    info.as_tensor().is_some_and(|t| t.dtype == Some(DType::F16))
}

fn astype(x: Expr, dtype: DType, span: Span) -> Option<Expr> {
    let mut attrs = Attrs::default();
    attrs.set("dtype", AttrValue::DType(dtype));
    let call = Call { callee: Callee::Op(lookup("astype")?), args: vec![x], attrs, sinfo_args: vec![] };
    Some(Expr::new(ExprKind::Call(call), span))
}

/// The operator of `b` over float32, and its result as float16 again.
fn wide(b: &Binding, dataflow: bool, typed: &mut Typed) -> Option<Vec<Binding>> {
    let BindingValue::Expr(e) = &b.value else { return None };
    let c = e.as_call()?;
    let name = c.op()?.name;
    let tensors = match name {
        _ if CONVOLUTIONS.contains(&name) || TRANSPOSED.contains(&name) => 2,
        _ if POOLS.contains(&name) => 1,
        _ => return None,
    };
    let halves = c.args.get(..tensors)?.iter().all(|a| typed.info_of(a).is_some_and(|i| is_half(&i)));
    if !halves || !typed.sinfo.get(&b.var).is_some_and(is_half) {
        return None;
    }
    let mut list = vec![];
    let mut bind = |typed: &mut Typed, name: &str, value: Expr| -> Option<RVar> {
        let info = infer_expr(&mut Facts::new(), &value, &typed.sinfo, &typed.module).ok()?;
        let var = RVar::new(name, dataflow, e.span());
        typed.sinfo.insert(var.clone(), info);
        let value = BindingValue::Expr(value);
        list.push(Binding { var: var.clone(), annotation: None, value, span: e.span() });
        Some(var)
    };
    let mut wide = c.clone();
    for a in &mut wide.args[..tensors] {
        *a = bind(typed, "wide", astype(a.clone(), DType::F32, e.span())?)?.expr();
    }
    if wide.attrs.get("out_dtype").is_some() {
        wide.attrs.set("out_dtype", AttrValue::DType(DType::F32));
    }
    let sum = bind(typed, b.var.name(), Expr::new(ExprKind::Call(wide), e.span()))?;
    list.push(Binding { value: BindingValue::Expr(astype(sum.expr(), DType::F16, e.span())?), ..b.clone() });
    Some(list)
}
