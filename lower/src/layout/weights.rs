//! Which convolutions are transformed, within the bytes that weights may grow by, and what follows each of them.

use super::open::likely_sides;
use super::planes::CONVOLUTIONS;
use super::{dims_of, follows, Choice, Pass};
use crate::choice::{epilogue_class, Algorithm, Site};
use crate::schedule::window::Pace;
use relax_ir::analysis::Typed;
use relax_ir::relax::{Binding, BindingValue, Expr, ExprKind, RVar, StructInfo};
use relax_ir::Func;
use std::collections::HashMap;

/// Bytes that a library may hold beyond the grown weights.
const ALLOWANCE: f64 = 200.0 * 1024.0;

/// Cycles of a microsecond, about.
const CYCLES: f64 = 3500.0;

/// Operators that evaluate transcendental functions.
const CALLS: &[&str] = &["nn.silu", "nn.gelu", "nn.gelu_tanh", "nn.softplus", "sigmoid", "tanh", "exp", "erf"];

/// Operators that kernels with an epilogue compute.
const STARTS: &[&str] = &[
    "nn.conv1d",
    "nn.conv2d",
    "nn.conv3d",
    "nn.conv1d_transpose",
    "nn.conv2d_transpose",
    "nn.conv3d_transpose",
    "nn.max_pool2d",
];

/// What the elementwise operators behind each value do that one operator alone reads, see [`epilogue_class`].
pub(super) fn epilogues(typed: &Typed) -> HashMap<RVar, i64> {
    let mut users: HashMap<RVar, Vec<&Binding>> = HashMap::new();
    let mut starts = vec![];
    for f in &typed.module.funcs {
        let Func::Relax(f) = f else { continue };
        for b in f.bindings() {
            let Some(c) = b.expr().as_call() else { continue };
            for a in &c.args {
                if let Some(v) = a.as_var() {
                    users.entry(v.clone()).or_default().push(b);
                }
            }
            if c.op().is_some_and(|o| STARTS.contains(&o.name)) {
                starts.push(b.var.clone());
            }
        }
    }
    let name = |b: &Binding| b.expr().as_call().and_then(|c| c.op()).map_or("", |o| o.name);
    let dims = |e: &Expr| dims_of(typed.info_of(e)?.as_tensor()?);
    let class = |start: &RVar| {
        let (mut residual, mut calls) = (false, false);
        let mut at = start.clone();
        for _ in 0..8 {
            let Some(list) = users.get(&at).filter(|l| l.len() <= 2) else { break };
            if !list.iter().all(|b| follows(name(b))) {
                break;
            }
            calls |= list.iter().any(|b| CALLS.contains(&name(b)));
            let Some(last) = list.last() else { break };
            let Some(c) = last.expr().as_call().filter(|_| ["add", "subtract"].contains(&name(last))) else {
                at = last.var.clone();
                continue;
            };
            let size = dims(&at.expr());
            let other = |a: &&Expr| a.as_var().is_some_and(|v| *v != at) && dims(a) == size;
            residual |= c.args.iter().filter(other).count() > 0;
            at = last.var.clone();
        }
        epilogue_class(residual, calls)
    };
    starts.into_iter().map(|v| (v.clone(), class(&v))).collect()
}

/// The convolutions worth transforming: those that save the most time for each byte that their weights grow, as far as
/// the weights may grow.
pub(super) fn transformed(pass: &Pass, typed: &Typed, choice: &Choice) -> HashMap<RVar, i64> {
    let mut total = 0.0;
    let mut found: Vec<(f64, f64, RVar, i64)> = vec![];
    // A library for all processors has one form of the weights: where the paces differ, it loses less by this one.
    let pace = if pass.twice && !pass.short_tiles { Pace::TWICE } else { Pace::ONCE };
    for f in &typed.module.funcs {
        let Func::Relax(f) = f else { continue };
        f.body.walk(&mut |e| {
            if let ExprKind::Constant(c) = e.kind() {
                total += c.size() as f64;
            }
        });
        for b in f.bindings() {
            let BindingValue::Expr(e) = &b.value else { continue };
            let Some(c) = e.as_call().filter(|c| c.op().is_some_and(|o| CONVOLUTIONS.contains(&o.name))) else {
                continue;
            };
            let dims = |info: Option<StructInfo>| Some(info?.as_tensor()?.known_dims()?.to_vec());
            let data = c.args.first().and_then(|x| dims(typed.info_of(x)));
            let (Some(data), Some(out)) = (data, dims(typed.sinfo.get(&b.var).cloned())) else { continue };
            let Some([data, out]) = likely_sides(&data, &out) else { continue };
            let Some((plane, _)) = pass.plane(&b.var, c, &data, &out) else { continue };
            let w = plane.window;
            if !w.suits_winograd(pass.lanes) {
                continue;
            }
            let key = Site::Window(w.clone()).key();
            for made in [2, 4] {
                let algorithm = Algorithm::Winograd(made);
                let measured = pass.tuned.as_ref().filter(|t| t.best(&key, None).is_some());
                let gain = match measured {
                    Some(t) => match t.saved(&key, algorithm) {
                        Some(us) => us * CYCLES,
                        // The only way that is left.
                        None if t.best(&key, None).map(|c| c.algorithm) == Some(algorithm) => f64::MAX,
                        None => 0.0,
                    },
                    None => w.winograd_gain(made, choice.lanes, pace),
                };
                let bytes = if gain == f64::MAX { 1e-3 } else { w.winograd_growth(made) };
                if gain > 0.0 {
                    found.push((gain, bytes, b.var.clone(), made));
                }
            }
        }
    }
    found.sort_by(|a, b| (b.0 / b.1).total_cmp(&(a.0 / a.1)));
    let mut left = (choice.growth - 1.0).max(0.0) * total + ALLOWANCE;
    if choice.growth <= 1.0 {
        left = 0.0;
    }
    let mut chosen: HashMap<RVar, (f64, f64, i64)> = HashMap::new();
    for (gain, bytes, var, made) in found {
        let (old_gain, old_bytes) = chosen.get(&var).map_or((0.0, 0.0), |c| (c.0, c.1));
        if gain > old_gain && bytes - old_bytes <= left {
            left -= bytes - old_bytes;
            chosen.insert(var, (gain, bytes, made));
        }
    }
    chosen.into_iter().map(|(v, c)| (v, c.2)).collect()
}
