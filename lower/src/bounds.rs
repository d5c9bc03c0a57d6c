//! Bounds of shape variables from the command line: `n=1..512`, `n<=512`, `n>=1`, `n%8`.

use relax_ir::{AttrValue, Diagnostic, Func, IRModule, Span};

/// Adds the bound to every exported function that has a shape variable of that name, as the attributes that TVM uses
/// (`tir_var_upper_bound`, `tir_var_lower_bound`).
pub fn apply(module: &mut IRModule, text: &str) -> Result<(), Diagnostic> {
    let bad = || {
        Diagnostic::error("dim-bound", Span::NONE, format!("`{text}` is no bound of a shape variable"))
            .help("write n=1..512, n<=512, n>=1 or n=64")
    };
    let number = |s: &str| s.trim().parse::<i64>().map_err(|_| bad());
    let (name, lower, upper) = if let Some((n, v)) = text.split_once("<=") {
        (n, None, Some(number(v)?))
    } else if let Some((n, v)) = text.split_once(">=") {
        (n, Some(number(v)?), None)
    } else if let Some((n, v)) = text.split_once('=') {
        match v.split_once("..") {
            Some((lo, hi)) => (n, Some(number(lo)?), Some(number(hi.trim_start_matches('='))?)),
            None => (n, Some(number(v)?), Some(number(v)?)),
        }
    } else {
        return Err(bad());
    };
    let name = name.trim();
    for f in &mut module.funcs {
        let Func::Relax(f) = f else { continue };
        if f.global_symbol().is_none() {
            continue;
        }
        for (key, value) in [("tir_var_lower_bound", lower), ("tir_var_upper_bound", upper)] {
            let Some(value) = value else { continue };
            let mut dict = match f.attrs.get(key) {
                Some(AttrValue::Dict(d)) => d.clone(),
                _ => vec![],
            };
            dict.retain(|(n, _)| n != name);
            dict.push((name.to_string(), AttrValue::Int(value)));
            f.attrs.set(key, AttrValue::Dict(dict));
        }
    }
    Ok(())
}
