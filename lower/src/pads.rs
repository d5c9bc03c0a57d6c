//! Zeros around what a convolution reads are padding of its own: rule `own padding`, a constant `nn.pad` of rows and columns in
//! front of a convolution is in the convolution's `padding`, and not made.

use relax_ir::analysis::Typed;
use relax_ir::attrs::AttrValue;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Expr, ExprKind, RVar};
use relax_ir::Func;
use std::collections::{HashMap, HashSet};

use crate::layout::CONVOLUTIONS;

/// Rewrites every Relax function. What is written to between, one of `shared`, is made.
pub fn pads(typed: &mut Typed, shared: &HashSet<RVar>) {
    let mut changed = false;
    // What is padded, and with how many zeros before and after each dim.
    let mut padded: HashMap<RVar, (Expr, Vec<i64>)> = HashMap::new();
    for f in &mut typed.module.funcs {
        let Func::Relax(f) = f else { continue };
        f.body = map_bindings(&f.body, &mut |b, _| {
            let c = b.expr().as_call()?;
            let x = c.args.first()?;
            let of = |e: &Expr| e.as_var().is_some_and(|v| shared.contains(v));
            if c.is_op("nn.pad") && zeros(c) && !of(x) && !shared.contains(&b.var) {
                padded.insert(b.var.clone(), (x.clone(), c.attrs.ints("pad_width")?));
                return None;
            }
            let (data, widths) = padded.get(x.as_var()?)?;
            let new = joined(c, data, widths)?;
            changed = true;
            let value = BindingValue::Expr(Expr::new(ExprKind::Call(new), b.expr().span()));
            Some(vec![Binding { value, ..b.clone() }])
        });
    }
    if changed {
        crate::dead::remove_dead(typed);
    }
}

/// Whether zeros are added, and nothing is cropped.
fn zeros(c: &Call) -> bool {
    let mode = c.attrs.str("pad_mode").unwrap_or("constant");
    let value = c.attrs.float("pad_value").unwrap_or(0.0);
    let added = c.attrs.ints("pad_width").is_some_and(|w| w.iter().all(|n| *n >= 0));
    !["reflect", "replicate", "circular"].contains(&mode) && value == 0.0 && added
}

/// The convolution of `data` with its own zeros and those of `widths`.
fn joined(c: &Call, data: &Expr, widths: &[i64]) -> Option<Call> {
    let name = c.op()?.name;
    let text = |name: &str| c.attrs.str(name).unwrap_or("");
    let axes = 1 + CONVOLUTIONS.iter().position(|n| *n == name)?;
    let plain = ["NCW", "NCHW", "NCDHW"][axes - 1] == text("data_layout");
    let beside = widths.len() == 2 * (axes + 2) && widths[..4].iter().all(|n| *n == 0);
    let own = c.attrs.ints("padding")?;
    // One number for all, one for both ends of each axis, or all in front and all behind.
    let own: Vec<i64> = match own.len() {
        1 => vec![own[0]; 2 * axes],
        n if n == axes => [own.clone(), own].concat(),
        n if n == 2 * axes => own,
        _ => return None,
    };
    if !plain || !beside {
        return None;
    }
    let at = |axis: usize, end: usize| own[end * axes + axis] + widths[4 + 2 * axis + end];
    let all = (0..2).flat_map(|end| (0..axes).map(move |axis| (axis, end))).map(|(axis, end)| at(axis, end));
    let mut new = c.clone();
    new.attrs.set("padding", AttrValue::List(all.map(AttrValue::Int).collect()));
    new.args[0] = data.clone();
    Some(new)
}
