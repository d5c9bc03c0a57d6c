//! Constant folding: kernels whose every input is a constant run at compile time, in the reference interpreter; sums of
//! products natively.

mod products;

use crate::interp::{self, Arg, Budget, Tensor};
use crate::legalize::legalize_those;
use crate::relayout;
use relax_ir::analysis::Typed;
use relax_ir::op::Compute;
use relax_ir::relax::{map_bindings, BindingValue, Expr, ExprKind, RVar, StructInfo, StructInfoMap};
use relax_ir::{Constant, Diagnostics, Func, IRModule};
use std::collections::{HashMap, HashSet};

/// Results of kernels without inputs (`R.zeros`) are folded only up to this many bytes: a loop is smaller than data.
const MAX_BYTES_FROM_NOTHING: i64 = 4096;
/// Results this much larger than the constants they are made of, and larger than this many bytes, are not folded: a few
/// bytes of a model would become as much data as its tensors are large.
const MAX_GROWTH: i64 = 8;
const MAX_BYTES_FROM_LITTLE: i64 = 2 << 20;
/// Interpreting more steps in a module than this, and so many for each element of its weights, is not worth the compile
/// time.
const STEPS: u64 = 1 << 25;
const STEPS_AN_ELEMENT: u64 = 4;
/// Of a result, and of a buffer within its kernel.
const MAX_BYTES: i64 = 1 << 28;

/// Folds in dataflow order; variables bound to constants are replaced where they are used.
pub fn fold_constants(typed: &mut Typed) {
    let module = typed.module.clone();
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut known: HashMap<RVar, Constant> = HashMap::new();
    let mut weights = 0;
    for f in module.relax_funcs() {
        f.body.walk(&mut |e| {
            if let ExprKind::Constant(c) = e.kind() {
                weights += c.elements() as u64;
            }
        });
    }
    let steps = weights.saturating_mul(STEPS_AN_ELEMENT).saturating_add(STEPS);
    let mut budget = Budget { steps, bytes: MAX_BYTES };
    for f in &mut funcs {
        let Func::Relax(f) = f else { continue };
        f.body = map_bindings(&f.body, &mut |b, _| {
            let BindingValue::Expr(e) = &b.value else { return None };
            let c = view(e, &b.var, &known, &typed.sinfo).or_else(|| value_of(e, &known, &module, &mut budget))?;
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

/// Rule `computed weights`: what convolutions multiply by, and what is added to or multiplied by what they make, is a constant
/// before layouts are chosen, where it is computed from constants alone (norms of weights, batch norms behind activations).
pub fn computed_weights(typed: &mut Typed) -> Result<(), Diagnostics> {
    // By variables computed from constants alone: those that they are computed from; none for constants.
    let mut made: HashMap<RVar, Option<Vec<RVar>>> = HashMap::new();
    let (mut wanted, mut read): (Vec<RVar>, Vec<RVar>) = (vec![], vec![]);
    let mut convolved = false;
    let mut halves: HashSet<RVar> = HashSet::new();
    for b in typed.module.relax_funcs().flat_map(|f| f.bindings()) {
        let Some(c) = b.expr().as_call() else {
            if matches!(b.expr().kind(), ExprKind::Constant(_)) {
                made.insert(b.var.clone(), None);
            }
            continue;
        };
        let Some(op) = c.op() else { continue };
        if op.name.starts_with("nn.conv") {
            convolved = true;
            wanted.extend(c.args.get(1).and_then(|w| w.as_var()).filter(|w| !halves.contains(w)).cloned());
        }
        // Weights of float16 stay so.
        let constant = |a: &Expr| match a.kind() {
            ExprKind::Constant(_) => true,
            ExprKind::Var(v) => made.get(v).is_some_and(Option::is_none),
            _ => false,
        };
        if op.name == "astype" && c.args.first().is_some_and(constant) {
            halves.insert(b.var.clone());
        }
        if crate::layout::follows(op.name) {
            read.extend(c.args.iter().filter_map(|a| a.as_var()).cloned());
        }
        let mut from = vec![];
        let mut known = matches!(op.compute, Compute::Kernel(_)) || crate::host::VIEWS.contains(&op.name);
        for a in &c.args {
            a.walk(&mut |e| match e.kind() {
                ExprKind::Var(v) => {
                    known &= made.contains_key(v);
                    from.push(v.clone());
                }
                ExprKind::Shape(dims) => known &= dims.iter().all(|d| d.as_int().is_some()),
                _ => {}
            });
        }
        if known {
            made.insert(b.var.clone(), Some(from));
        }
    }
    if convolved {
        wanted.append(&mut read);
    }
    let mut those: HashSet<RVar> = HashSet::new();
    while let Some(v) = wanted.pop() {
        let Some(Some(from)) = made.get(&v) else { continue };
        if those.insert(v) {
            wanted.extend(from.iter().cloned());
        }
    }
    if those.is_empty() {
        return Ok(());
    }
    legalize_those(typed, &|v| those.contains(v))?;
    fold_constants(typed);
    crate::dead::remove_dead(typed);
    Ok(())
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

fn value_of(e: &Expr, known: &HashMap<RVar, Constant>, module: &IRModule, budget: &mut Budget) -> Option<Constant> {
    match e.kind() {
        ExprKind::Constant(c) => Some(c.clone()),
        ExprKind::Var(v) => known.get(v).cloned(),
        ExprKind::Call(c) if c.is_op("call_tir") && c.args.len() == 2 && c.sinfo_args.len() == 1 => {
            let ExprKind::GlobalVar(name) = c.args[0].kind() else { return None };
            let prim = module.prim(name)?;
            let inputs: Vec<Constant> = match c.args[1].kind() {
                ExprKind::Tuple(f) => f.iter().map(|x| value_of(x, known, module, budget)).collect::<Option<_>>()?,
                _ => vec![value_of(&c.args[1], known, module, budget)?],
            };
            let StructInfo::Tensor(t) = &c.sinfo_args[0] else { return None };
            let dtype = t.dtype?;
            let dims: Vec<i64> = t.known_dims()?.iter().map(|d| d.as_int()).collect::<Option<_>>()?;
            let bytes = dims.iter().try_fold(dtype.bytes() as i64, |n, d| n.checked_mul(*d))?;
            let from = inputs.iter().map(|c| c.size() as i64).sum::<i64>();
            let most = match inputs.is_empty() {
                true => MAX_BYTES_FROM_NOTHING,
                false => from.saturating_mul(MAX_GROWTH).clamp(MAX_BYTES_FROM_LITTLE, MAX_BYTES),
            };
            if bytes > most {
                return None;
            }
            if let Some(c) = products::product(prim, &inputs, &dims, budget) {
                return Some(c);
            }
            let mut args: Vec<Arg> = inputs.iter().map(|c| Arg::Tensor(Tensor::from_constant(c))).collect();
            args.push(Arg::Tensor(Tensor::zeros(dtype, &dims)));
            // A kernel that fails here fails in the same way at run time: leave it.
            interp::run_within(prim, &mut args, budget).ok()?;
            match args.pop()? {
                Arg::Tensor(t) => Some(t.into_constant()),
                _ => None,
            }
        }
        ExprKind::Call(c) if c.op().is_some_and(|o| crate::host::VIEWS.contains(&o.name)) => None,
        _ => None,
    }
}
