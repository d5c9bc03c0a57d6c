//! Weights that a kernel asks for on behalf of those that are called after it.
//!
//! A product of one row reads each of its weights once, as fast as memory gives them: what a classifier of 5 MB waits for is
//! a fortieth of the time of a small network. Convolutions before it multiply each weight with many points, and memory has
//! nothing to do meanwhile. Constants lie in the order of the calls, so that a convolution finds the weights of the next
//! kernels behind its own.

use crate::host::kernel_symbol;
use crate::schedule;
use relax_ir::flat::{Callee, FlatFunc, FlatModule, FlatStmt};
use relax_ir::prim::{PrimExpr, PrimKind, Var};
use relax_ir::tir::PrimFunc;
use std::collections::HashMap;

/// Bytes that are worth it, and those that a third-level cache holds beside the rest.
const LEAST: i64 = 512 << 10;
const MOST: i64 = 8 << 20;

/// Kernels after another one that may still be what it asks for.
const NEXT: usize = 4;

/// Multiplications from which a kernel asks for its weights in time itself, those of a weight.
const AGAIN: i64 = 2;

/// A call of a kernel.
struct Called<'a> {
    kernel: &'a PrimFunc,
    /// Bytes of its constants.
    constants: i64,
}

/// By kernel that is called once: so many bytes behind its weights are read once by kernels that follow.
pub fn behind(module: &FlatModule, kernels: &[PrimFunc], prefix: &str) -> HashMap<String, i64> {
    let kernels: HashMap<String, &PrimFunc> = kernels.iter().map(|k| (kernel_symbol(prefix, &k.name), k)).collect();
    let bytes: HashMap<&str, i64> =
        module.data.iter().map(|d| (d.symbol.as_str(), d.bytes.get().len() as i64)).collect();
    let calls: Vec<Vec<Called>> = module.funcs.iter().map(|f| calls(f, &kernels, &bytes)).collect();
    let mut count: HashMap<&str, usize> = HashMap::new();
    calls.iter().flatten().for_each(|c| *count.entry(&c.kernel.name).or_default() += 1);
    let mut out = HashMap::new();
    for list in &calls {
        for (i, c) in list.iter().enumerate().filter(|(_, c)| count[c.kernel.name.as_str()] == 1) {
            let next = list[i + 1..].iter().take(NEXT);
            let streams = |c: &&Called| steps(c.kernel) <= AGAIN * (c.constants / 4).max(LEAST / 4);
            let bytes: i64 = next.take_while(streams).map(|c| c.constants).sum();
            if (LEAST..=MOST).contains(&bytes) && c.constants > 0 {
                out.insert(c.kernel.name.clone(), bytes);
            }
        }
    }
    out
}

/// Multiplications of a kernel; many where that is not known.
fn steps(k: &PrimFunc) -> i64 {
    schedule::steps_of(k).as_int().unwrap_or(i64::MAX)
}

/// The kernels that a function calls, in order, where nothing is called again or in its stead.
fn calls<'a>(f: &FlatFunc, kernels: &HashMap<String, &'a PrimFunc>, bytes: &HashMap<&str, i64>) -> Vec<Called<'a>> {
    let mut constants: HashMap<&Var, i64> = HashMap::new();
    let mut out = vec![];
    for s in &f.body {
        match s {
            FlatStmt::Address { var, symbol } => {
                constants.insert(var, bytes.get(symbol.as_str()).copied().unwrap_or(0));
            }
            FlatStmt::Call { callee: Callee { name, .. }, args, .. } => {
                let Some(kernel) = kernels.get(name) else { continue };
                let of = |a: &PrimExpr| match a.kind() {
                    PrimKind::Var(v) => constants.get(v).copied().unwrap_or(0),
                    _ => 0,
                };
                out.push(Called { kernel, constants: args.iter().map(of).sum() });
            }
            _ => {}
        }
    }
    out
}
