//! Exported functions that C could not name or call: two of one name, too many parameters.

use relax_ir::analysis::Typed;
use relax_ir::relax::{Function, StructInfo};
use relax_ir::{Diagnostic, Diagnostics};
use std::collections::HashMap;

/// Functions that every library has beside its entries, types that its header declares.
const FUNCTIONS: [&str; 2] = ["run", "metadata"];
const TYPES: [&str; 5] = ["call", "packed", "shape", "tuple", "value"];

/// More parameters and results than these are not compiled: the code that checks them would take minutes.
const LEAVES: usize = 4_096;

/// Errors, and warnings about names that only the C header has trouble with.
pub(super) fn check(typed: &Typed, prefix: &str) -> Diagnostics {
    let mut out = Diagnostics::default();
    // What is taken, and by whom: `f` takes `f_infer` and `f_workspace_size` too.
    let mut taken: HashMap<String, Option<&Function>> = FUNCTIONS.map(|n| (n.to_string(), None)).into();
    let entries = || typed.module.relax_funcs().filter_map(|f| Some((f, f.global_symbol()?.to_string())));
    for (f, symbol) in entries() {
        for suffix in ["_infer", "_workspace_size", "__call", "__infer"] {
            taken.insert(format!("{symbol}{suffix}"), Some(f));
        }
    }
    for (f, symbol) in entries() {
        if let Some(by) = taken.get(&symbol) {
            let what = format!("the library has another function `{prefix}_{symbol}`");
            let mut d = Diagnostic::error("global-symbol", f.signature_span, what).here("its name is taken");
            d = match by {
                Some(g) => d.label(g.signature_span, format!("`{}` brings it along", g.name)),
                None => d.note("every library has it"),
            };
            out.push(d.help("rename the function, or declare it @R.function(private=True)"));
        } else if TYPES.contains(&symbol.as_str()) {
            let what =
                format!("the C header declares a type `{prefix}_{symbol}`, and cannot declare this function too");
            let d = Diagnostic::warning("global-symbol", f.signature_span, what);
            out.push(d.help("rename it for callers in C; they may also call it by name"));
        }
        let stated = f.params.iter().filter_map(|p| p.annotation.as_ref());
        let n: usize = stated.chain(&f.ret).map(leaves).sum();
        if n > LEAVES {
            let what = format!("`{}` has {n} parameters and results, more than {LEAVES}", f.name);
            let d = Diagnostic::unsupported("parameter", f.signature_span, what);
            out.push(d.help("--params FILE makes constants of weights"));
        }
    }
    out
}

fn leaves(s: &StructInfo) -> usize {
    match s {
        StructInfo::Tuple(fields) => fields.iter().map(leaves).sum(),
        _ => 1,
    }
}
