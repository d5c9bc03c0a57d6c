//! Batch norms of inference are a factor and an offset for each channel: rule `batch_norm`, `(x - mean) / sqrt(var + eps) *
//! gamma + beta` is `x * a + b` with `a = gamma / sqrt(var + eps)` and `b = beta - mean * a`, as the operators that this is
//! written with. These go into kernels around them, in any layout, and constants among them into weights ([`crate::scales`]).

use crate::written::Written;
use relax_ir::analysis::Typed;
use relax_ir::relax::{map_bindings, Binding, Call, Expr, ExprKind, RVar};
use relax_ir::{DType, Func, PrimExpr};
use std::collections::HashMap;

/// Rewrites every Relax function. Batch norms of which more than the first result is read stay.
pub fn batch_norms(typed: &mut Typed) {
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut changed = false;
    for f in &mut funcs {
        let Func::Relax(f) = f else { continue };
        let mut found: HashMap<RVar, Call> = HashMap::new();
        for b in f.bindings() {
            if let Some(c) = b.expr().as_op_call("nn.batch_norm").filter(|c| infers(c)) {
                found.insert(b.var.clone(), c.clone());
            }
        }
        if found.is_empty() {
            continue;
        }
        // Reads of a tuple other than of its first field.
        let mut fields: HashMap<RVar, i64> = HashMap::new();
        f.body.walk(&mut |e| match e.kind() {
            ExprKind::Var(v) if found.contains_key(v) => *fields.entry(v.clone()).or_default() += 1,
            ExprKind::TupleGetItem(t, 0) => {
                if let Some(v) = t.as_var().filter(|v| found.contains_key(v)) {
                    *fields.entry(v.clone()).or_default() -= 1;
                }
            }
            _ => {}
        });
        found.retain(|v, _| fields.get(v) == Some(&0));
        f.body = map_bindings(&f.body, &mut |b, _| {
            let ExprKind::TupleGetItem(t, 0) = b.expr().kind() else { return None };
            let call = found.get(t.as_var()?)?;
            let list = written(Written::instead_of(b, typed), call)?;
            changed = true;
            Some(list)
        });
    }
    typed.module.funcs = funcs;
    if changed {
        crate::dead::remove_dead(typed);
    }
}

/// Whether the moments are the operator's own.
fn infers(c: &Call) -> bool {
    c.attrs.bool("training") == Some(false)
}

/// `x * a + b` in the place of the first field.
fn written(mut w: Written, c: &Call) -> Option<Vec<Binding>> {
    let [x, gamma, beta, mean, var] = c.args.as_slice() else { return None };
    let info = w.typed.info_of(x)?.as_tensor()?.clone();
    let rank = info.known_dims()?.len();
    let axis = c.attrs.int("axis").unwrap_or(1);
    let axis = usize::try_from(if axis < 0 { axis + rank as i64 } else { axis }).ok().filter(|a| *a < rank)?;
    let channels = info.known_dims()?[axis].clone();
    // Halves are computed in float32, which the kernel of the operator does.
    let float =
        |e: &Expr| w.typed.info_of(e).is_some_and(|i| i.as_tensor().is_some_and(|t| t.dtype == Some(DType::F32)));
    if ![x, gamma, beta, mean, var].into_iter().all(float) {
        return None;
    }
    let epsilon = w.number(c.attrs.float("epsilon").unwrap_or(1e-5));
    let root = w.op("add", [var.clone(), epsilon])?;
    let root = w.op("sqrt", [root])?;
    let scaled = c.attrs.bool("scale") != Some(false);
    let factor = if scaled { gamma.clone() } else { w.number(1.0) };
    let a = w.op("divide", [factor, root])?;
    let shift = w.op("multiply", [mean.clone(), a.clone()])?;
    let b = match c.attrs.bool("center") != Some(false) {
        true => w.op("subtract", [beta.clone(), shift])?,
        false => w.op("negative", [shift])?,
    };
    let mut dims = vec![channels];
    dims.extend(vec![PrimExpr::i64(1); rank - axis - 1]);
    let shape = Expr::new(ExprKind::Shape(dims), w.span());
    let a = w.op("reshape", [a, shape.clone()])?;
    let b = w.op("reshape", [b, shape])?;
    let y = w.op("multiply", [x.clone(), a])?;
    let last = w.call("add", [y, b])?;
    Some(w.done(last))
}
