//! Rule `halves`: convolutions and pools of float16 are those of float32 between two conversions, before layouts are chosen.
//!
//! Their sums are float32 as they are, rounded once. So they have the kernels of float32; the conversions go into the kernels
//! around them. What is added to such a sum, a bias or a residual, is added before it is rounded, unless floats are strict.
//! Weights stay float16 in the library: kernels read them so ([`crate::layout`]).

use crate::layout::{readers, CONVOLUTIONS, TRANSPOSED};
use relax_ir::analysis::{infer_expr, Typed};
use relax_ir::attrs::Attrs;
use relax_ir::op::lookup;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Callee, Expr, ExprKind, RVar, StructInfo};
use relax_ir::sym::Facts;
use relax_ir::{AttrValue, DType, Func, Span};
use std::collections::HashMap;

const POOLS: &[&str] = &["nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d"];

/// Rewrites every Relax function.
pub fn halves(typed: &mut Typed, strict: bool) {
    let readers = readers(typed);
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut pass = Pass { typed: &mut *typed, strict, readers, sums: HashMap::new() };
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            f.body = map_bindings(&f.body, &mut |b, dataflow| pass.binding(b, dataflow));
        }
    }
    let changed = !pass.sums.is_empty();
    typed.module.funcs = funcs;
    if changed {
        crate::dead::remove_dead(typed);
    }
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

struct Pass<'a> {
    typed: &'a mut Typed,
    strict: bool,
    /// How often each variable is used.
    readers: HashMap<RVar, usize>,
    /// Values of float16 that one operator reads, and what they were rounded from.
    sums: HashMap<RVar, RVar>,
}

impl Pass<'_> {
    /// How many of the operands of a call are float32 then.
    fn operands(&self, c: &Call) -> Option<usize> {
        let name = c.op()?.name;
        let sum = |a: &Expr| a.as_var().is_some_and(|v| self.sums.contains_key(v));
        match name {
            _ if CONVOLUTIONS.contains(&name) || TRANSPOSED.contains(&name) => Some(2),
            _ if POOLS.contains(&name) => Some(1),
            "add" if !self.strict && c.args.iter().any(sum) => Some(2),
            _ => None,
        }
    }

    /// The operator of `b` over float32, and its result as float16 again.
    fn binding(&mut self, b: &Binding, dataflow: bool) -> Option<Vec<Binding>> {
        let BindingValue::Expr(e) = &b.value else { return None };
        let c = e.as_call()?;
        let tensors = self.operands(c)?;
        let halves = c.args.get(..tensors)?.iter().all(|a| self.typed.info_of(a).is_some_and(|i| is_half(&i)));
        if !halves || !self.typed.sinfo.get(&b.var).is_some_and(is_half) {
            return None;
        }
        let mut list = vec![];
        let typed = &mut *self.typed;
        let mut bind = |name: &str, value: Expr| -> Option<RVar> {
            let info = infer_expr(&mut Facts::new(), &value, &typed.sinfo, &typed.module).ok()?;
            let var = RVar::new(name, dataflow, e.span());
            typed.sinfo.insert(var.clone(), info);
            let value = BindingValue::Expr(value);
            list.push(Binding { var: var.clone(), annotation: None, value, span: e.span() });
            Some(var)
        };
        let mut wide = c.clone();
        for a in &mut wide.args[..tensors] {
            let sum = a.as_var().and_then(|v| self.sums.get(v)).filter(|_| c.is_op("add"));
            *a = match sum {
                Some(sum) => sum.expr(),
                None => bind("wide", astype(a.clone(), DType::F32, e.span())?)?.expr(),
            };
        }
        if wide.attrs.get("out_dtype").is_some() {
            wide.attrs.set("out_dtype", AttrValue::DType(DType::F32));
        }
        let sum = bind(b.var.name(), Expr::new(ExprKind::Call(wide), e.span()))?;
        list.push(Binding { value: BindingValue::Expr(astype(sum.expr(), DType::F16, e.span())?), ..b.clone() });
        let pool = c.op().is_some_and(|o| POOLS.contains(&o.name));
        if !pool && self.readers.get(&b.var) == Some(&1) {
            self.sums.insert(b.var.clone(), sum);
        }
        Some(list)
    }
}
