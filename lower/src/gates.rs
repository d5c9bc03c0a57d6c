//! Gates in front of pointwise convolutions go into their weights: rule `gated weights`, a convolution of one picture times a
//! factor for each channel, as squeeze and excitation has it, is a convolution of the picture with weights times these
//! factors, where that is less to multiply.

use crate::layout::CONVOLUTIONS;
use crate::written::Written;
use relax_ir::analysis::Typed;
use relax_ir::relax::{map_bindings, Call, Expr, ExprKind, Function, RVar};
use relax_ir::{Constant, DType, Func};
use std::collections::HashMap;

/// Channels that a convolution makes at most: its weights are one panel, which is packed in each call.
const MOST_MADE: i64 = 64;

/// Pixels for each channel that is made, at least.
const PIXELS: i64 = 8;

/// Elements of a picture from which it is worth the kernels that make the weights.
const LEAST: i64 = 1 << 17;

/// Rewrites every Relax function, before layouts are chosen.
pub fn gates(typed: &mut Typed) {
    let mut known: HashMap<RVar, Constant> = HashMap::new();
    for b in typed.module.relax_funcs().flat_map(|f| f.bindings()) {
        if let ExprKind::Constant(c) = b.expr().kind() {
            known.insert(b.var.clone(), c.clone());
        }
    }
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut changed = false;
    for f in &mut funcs {
        let Func::Relax(f) = f else { continue };
        let found = found(f, typed, &known);
        if found.is_empty() {
            continue;
        }
        changed = true;
        f.body = map_bindings(&f.body, &mut |b, _| {
            let [picture, gate] = found.get(&b.var)?;
            let mut c = b.expr().as_call()?.clone();
            let mut w = Written::instead_of(b, typed);
            let weights = w.op("multiply", [c.args[1].clone(), gate.clone()])?;
            c.args = vec![picture.clone(), weights];
            Some(w.done(Expr::new(ExprKind::Call(c), b.expr().span())))
        });
    }
    typed.module.funcs = funcs;
    if changed {
        crate::dead::remove_dead(typed);
    }
}

/// The convolutions, and the picture and the gate of each.
fn found(f: &Function, typed: &Typed, known: &HashMap<RVar, Constant>) -> HashMap<RVar, [Expr; 2]> {
    let mut uses: HashMap<RVar, usize> = HashMap::new();
    f.body.walk(&mut |e| {
        if let ExprKind::Var(v) = e.kind() {
            *uses.entry(v.clone()).or_default() += 1;
        }
    });
    let calls: HashMap<&RVar, &Call> = f.bindings().filter_map(|b| Some((&b.var, b.expr().as_call()?))).collect();
    let dims = |e: &Expr| -> Option<Vec<i64>> {
        let info = typed.info_of(e)?;
        let t = info.as_tensor().filter(|t| t.dtype == Some(DType::F32))?;
        t.known_dims()?.iter().map(|d| d.as_int()).collect()
    };
    let one = |c: &Call| -> Option<[Expr; 2]> {
        let name = c.op()?.name;
        let number = |name: &str, n: i64| c.attrs.ints(name).is_some_and(|v| v.iter().all(|v| *v == n));
        let plain = number("strides", 1) && number("padding", 0) && c.attrs.int("groups").unwrap_or(1) == 1;
        let layout = c.attrs.str("data_layout") == Some("NCHW") && c.attrs.str("kernel_layout") == Some("OIHW");
        if !CONVOLUTIONS.contains(&name) || !plain || !layout {
            return None;
        }
        let weights = match c.args.get(1)?.kind() {
            ExprKind::Constant(c) => c,
            ExprKind::Var(v) => known.get(v)?,
            _ => return None,
        };
        let [made, taken, 1, 1] = weights.shape[..] else { return None };
        let product = c.args.first()?.as_var().filter(|v| uses.get(v) == Some(&1))?;
        let product = calls.get(product).filter(|p| p.is_op("multiply"))?;
        let [a, b] = product.args.as_slice() else { return None };
        let gate = |e: &Expr| e.as_var().is_some() && dims(e).is_some_and(|d| d == [1, taken, 1, 1]);
        let (picture, gate) = if gate(b) { (a, b) } else { Some((b, a)).filter(|_| gate(a))? };
        let [1, _, rows, columns] = dims(picture)?[..] else { return None };
        let worth = made <= MOST_MADE && rows * columns >= PIXELS * made && rows * columns * taken >= LEAST;
        (worth && weights.dtype == DType::F32).then(|| [picture.clone(), gate.clone()])
    };
    f.bindings().filter_map(|b| Some((b.var.clone(), one(b.expr().as_call()?)?))).collect()
}
