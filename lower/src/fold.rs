//! Constant folding: kernels whose every input is a constant run at compile time, in the reference interpreter.

use crate::interp::{self, Arg, Tensor};
use crate::relayout;
use relax_ir::analysis::Typed;
use relax_ir::relax::{map_bindings, BindingValue, Expr, ExprKind, RVar, StructInfo, StructInfoMap};
use relax_ir::{Constant, Func, IRModule};
use std::collections::HashMap;

/// Results of kernels without inputs (`R.zeros`) are folded only up to this many bytes: a loop is smaller than data.
const MAX_BYTES_FROM_NOTHING: i64 = 4096;
/// Interpreting more steps than this is not worth the compile time.
const MAX_ELEMENTS: i64 = 1 << 26;

/// Folds in dataflow order; variables bound to constants are replaced where they are used.
pub fn fold_constants(typed: &mut Typed) {
    let module = typed.module.clone();
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut known: HashMap<RVar, Constant> = HashMap::new();
    for f in &mut funcs {
        let Func::Relax(f) = f else { continue };
        f.body = map_bindings(&f.body, &mut |b, _| {
            let BindingValue::Expr(e) = &b.value else { return None };
            let c = view(e, &b.var, &known, &typed.sinfo).or_else(|| value_of(e, &known, &module))?;
            known.insert(b.var.clone(), c.clone());
            if matches!(e.kind(), ExprKind::Constant(_)) {
                return None;
            }
            let e = Expr::new(ExprKind::Constant(c), e.span());
            Some(vec![relax_ir::relax::Binding { value: BindingValue::Expr(e), ..b.clone() }])
        });
    }
    typed.module.funcs = funcs;
}

/// Rule `transposed weights`: `permute_dims` of a constant matrix is the other matrix, moved natively. Runs before
/// operators become kernels, which the interpreter runs much slower.
pub fn transpose_constants(typed: &mut Typed) {
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut known: HashMap<RVar, Constant> = HashMap::new();
    for f in &mut funcs {
        let Func::Relax(f) = f else { continue };
        f.body = map_bindings(&f.body, &mut |b, _| {
            let BindingValue::Expr(e) = &b.value else { return None };
            if let ExprKind::Constant(c) = e.kind() {
                known.insert(b.var.clone(), c.clone());
                return None;
            }
            let call = e.as_op_call("permute_dims")?;
            let turned = call.attrs.ints("axes").is_none_or(|a| a == [1, 0] || a == [-1, 0] || a == [1, -2]);
            let c = match call.args.first()?.kind() {
                ExprKind::Constant(c) => c,
                ExprKind::Var(v) => known.get(v)?,
                _ => return None,
            };
            let c = turned.then(|| relayout::transposed(c)).flatten()?;
            known.insert(b.var.clone(), c.clone());
            let e = Expr::new(ExprKind::Constant(c), e.span());
            Some(vec![relax_ir::relax::Binding { value: BindingValue::Expr(e), ..b.clone() }])
        });
    }
    typed.module.funcs = funcs;
}

/// The same data with other dims.
fn view(e: &Expr, var: &RVar, known: &HashMap<RVar, Constant>, sinfo: &StructInfoMap) -> Option<Constant> {
    let call = e.as_call()?;
    if !call.op().is_some_and(|o| crate::host::VIEWS.contains(&o.name)) {
        return None;
    }
    let c = match call.args.first()?.kind() {
        ExprKind::Constant(c) => c,
        ExprKind::Var(v) => known.get(v)?,
        _ => return None,
    };
    let info = sinfo.get(var)?.as_tensor()?;
    let shape: Vec<i64> = info.known_dims()?.iter().map(|d| d.as_int()).collect::<Option<_>>()?;
    let fits = info.dtype == Some(c.dtype) && shape.iter().product::<i64>() as usize == c.elements();
    fits.then(|| Constant { dtype: c.dtype, shape, data: c.data.clone() })
}

fn value_of(e: &Expr, known: &HashMap<RVar, Constant>, module: &IRModule) -> Option<Constant> {
    match e.kind() {
        ExprKind::Constant(c) => Some(c.clone()),
        ExprKind::Var(v) => known.get(v).cloned(),
        ExprKind::Call(c) if c.is_op("call_tir") && c.args.len() == 2 && c.sinfo_args.len() == 1 => {
            let ExprKind::GlobalVar(name) = c.args[0].kind() else { return None };
            let prim = module.prim(name)?;
            let inputs: Vec<Constant> = match c.args[1].kind() {
                ExprKind::Tuple(f) => f.iter().map(|x| value_of(x, known, module)).collect::<Option<_>>()?,
                _ => vec![value_of(&c.args[1], known, module)?],
            };
            let StructInfo::Tensor(t) = &c.sinfo_args[0] else { return None };
            let dtype = t.dtype?;
            let dims: Vec<i64> = t.known_dims()?.iter().map(|d| d.as_int()).collect::<Option<_>>()?;
            let elements: i64 = dims.iter().product();
            if inputs.is_empty() && elements * dtype.bytes() as i64 > MAX_BYTES_FROM_NOTHING || elements > MAX_ELEMENTS
            {
                return None;
            }
            let mut args: Vec<Arg> = inputs.iter().map(|c| Arg::Tensor(Tensor::from_constant(c))).collect();
            args.push(Arg::Tensor(Tensor::zeros(dtype, &dims)));
            // A kernel that fails here fails in the same way at run time: leave it.
            interp::run(prim, &mut args).ok()?;
            match args.pop()? {
                Arg::Tensor(t) => Some(t.into_constant()),
                _ => None,
            }
        }
        ExprKind::Call(c) if c.op().is_some_and(|o| crate::host::VIEWS.contains(&o.name)) => None,
        _ => None,
    }
}
