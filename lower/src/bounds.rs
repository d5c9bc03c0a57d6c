//! What the command line says of shape variables: bounds and divisors (`n=1..512`, `n<=512`, `n>=1`, `n=64`, `n%8`), and
//! conditions between several (`n % m == 0`, `n < m`).

use crate::likely::with_values;
use relax_ir::analysis::{self, vars};
use relax_ir::attrs::{SHAPE_CONSTRAINTS, VAR_DIVISOR};
use relax_ir::prim::text;
use relax_ir::relax::{Function, StructInfo, TensorShape};
use relax_ir::{AttrValue, DType, Diagnostic, Func, IRModule, PrimExpr, Span, Var};
use std::collections::{HashMap, HashSet};

/// Adds the bound to every exported function that has a shape variable of that name, as the attributes that TVM uses
/// (`tir_var_upper_bound`, `tir_var_lower_bound`) and [`VAR_DIVISOR`].
///
/// # Errors
/// Text that is no bound, and a name that no exported function has.
pub fn apply(module: &mut IRModule, text: &str) -> Result<(), Diagnostic> {
    name_dims(module, text);
    match bound(module, text) {
        Err(d) if d.code == "dim-bound" => constraint(module, text).unwrap_or(Err(d)),
        r => r,
    }
}

/// Gives the dims without a name that `text` speaks of the names that analysis gives them, in exported functions.
pub fn name_dims(module: &mut IRModule, text: &str) {
    let words: Vec<&str> = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
    for f in &mut module.funcs {
        if let Func::Relax(f) = f {
            if f.global_symbol().is_some() {
                name_parameters(f, &words);
            }
        }
    }
}

/// Writes into the annotations of `f` the names that dims without a name get ([`analysis::named_dims`]), where one of them
/// is among `words`.
fn name_parameters(f: &mut Function, words: &[&str]) {
    for p in &mut f.params {
        let Some(named) = p.annotation.as_ref().map(|a| analysis::named_dims(a, &p.var)) else { continue };
        let mut asked = false;
        vars::each_binding_dim(&named, &mut |d, is_dim| {
            asked |= is_dim && d.as_var().is_some_and(|v| words.contains(&v.name()));
        });
        if asked {
            p.annotation = Some(named);
        }
    }
}

/// Adds a condition to every exported function that has all shape variables in it; `None` when the text is none.
fn constraint(module: &mut IRModule, text: &str) -> Option<Result<(), Diagnostic>> {
    let mut found = None;
    for f in &mut module.funcs {
        let Func::Relax(f) = f else { continue };
        if f.global_symbol().is_none() {
            continue;
        }
        let vars: Vec<Var> = shape_variables(f).into_iter().map(Var::dim).collect();
        let lookup = |name: &str| vars.iter().find(|v| v.name() == name).map(Var::expr);
        if text::condition(text, &lookup).is_err() {
            continue;
        }
        let mut list = match f.attrs.get(SHAPE_CONSTRAINTS) {
            Some(AttrValue::List(l)) => l.clone(),
            Some(one) => vec![one.clone()],
            None => vec![],
        };
        list.push(AttrValue::Str(text.trim().to_string()));
        f.attrs.set(SHAPE_CONSTRAINTS, AttrValue::List(list));
        found = Some(Ok(()));
    }
    found
}

fn bound(module: &mut IRModule, text: &str) -> Result<(), Diagnostic> {
    let bad = || {
        Diagnostic::error("dim-bound", Span::NONE, format!("`{text}` is no bound of a shape variable"))
            .help("write n=1..512, n<=512, n>=1, n=64, n%8, or a condition such as 'n % m == 0' or 'n < m'")
    };
    let number = |s: &str| s.trim().parse::<i64>().ok().filter(|v| *v >= 0).ok_or_else(bad);
    let (name, bounds) = if let Some((n, v)) = text.split_once("<=") {
        (n, vec![("tir_var_upper_bound", number(v)?)])
    } else if let Some((n, v)) = text.split_once(">=") {
        (n, vec![("tir_var_lower_bound", number(v)?)])
    } else if let Some((n, v)) = text.split_once('=') {
        let (lo, hi) = v.split_once("..").unwrap_or((v, v));
        let (lo, hi) = (number(lo)?, number(hi.trim_start_matches('='))?);
        if lo > hi {
            return Err(bad().note(format!("no number is at least {lo} and at most {hi}")));
        }
        (n, vec![("tir_var_lower_bound", lo), ("tir_var_upper_bound", hi)])
    } else if let Some((n, v)) = text.split_once('%') {
        let v = number(v)?;
        if v == 0 {
            return Err(bad());
        }
        (n, vec![(VAR_DIVISOR, v)])
    } else {
        return Err(bad());
    };
    let name = name.trim();
    let mut known: Vec<String> = vec![];
    for f in &mut module.funcs {
        let Func::Relax(f) = f else { continue };
        if f.global_symbol().is_none() {
            continue;
        }
        let names = shape_variables(f);
        if names.iter().any(|n| n == name) {
            for (key, value) in &bounds {
                let mut dict = match f.attrs.get(key) {
                    Some(AttrValue::Dict(d)) => d.clone(),
                    _ => vec![],
                };
                // Of two bounds the tighter one holds.
                let stated = dict.iter().find(|(n, _)| n == name).and_then(|(_, v)| v.as_int());
                let value = match (*key, stated) {
                    ("tir_var_upper_bound", Some(other)) => other.min(*value),
                    ("tir_var_lower_bound", Some(other)) => other.max(*value),
                    (_, Some(other)) => common_multiple(other, *value),
                    (_, None) => *value,
                };
                dict.retain(|(n, _)| n != name);
                dict.push((name.to_string(), AttrValue::Int(value)));
                f.attrs.set(key, AttrValue::Dict(dict));
            }
            let stated = |key: &str| match f.attrs.get(key) {
                Some(AttrValue::Dict(d)) => d.iter().find(|(n, _)| n == name).and_then(|(_, v)| v.as_int()),
                _ => None,
            };
            if let (Some(lo), Some(hi)) = (stated("tir_var_lower_bound"), stated("tir_var_upper_bound")) {
                if lo > hi {
                    let what = format!(
                        "`{text}`: with what else is stated, {name} of `{}` is at least {lo} and at most {hi}",
                        f.name
                    );
                    let d =
                        Diagnostic::error("dim-bound", f.signature_span, what).here("no call can meet these bounds");
                    return Err(d.help(
                        "bounds are stated by --dim, and by tir_var_lower_bound and tir_var_upper_bound of the model",
                    ));
                }
            }
        }
        known.extend(names);
    }
    if known.iter().any(|n| n == name) {
        return Ok(());
    }
    known.sort();
    known.dedup();
    let d = Diagnostic::error("dim-bound", Span::NONE, format!("no exported function has a shape variable {name}"));
    Err(match known.is_empty() {
        true => d.help("the model has no shape variables"),
        false => d.help(format!("the shape variables are {}", known.join(", "))),
    })
}

/// The least number that both divide; the second one where there is none in 64 bits.
fn common_multiple(a: i64, b: i64) -> i64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    if x <= 0 {
        return b;
    }
    (a / x).checked_mul(b).unwrap_or(b)
}

/// Dims of exported functions whose bounds leave one number (`n=64`) become that number, as if the model said so: what is
/// behind the check of the argument is made for it.
pub fn settle(module: &mut IRModule) {
    for f in &mut module.funcs {
        let Func::Relax(f) = f else { continue };
        if f.global_symbol().is_none() {
            continue;
        }
        let stated = |key: &str, v: &Var| match f.attrs.get(key) {
            Some(AttrValue::Dict(d)) => d.iter().find(|(n, _)| n == v.name()).and_then(|(_, b)| b.as_int()),
            _ => None,
        };
        let (mut values, mut scalars) = (HashMap::new(), HashSet::new());
        for p in f.params.iter().filter_map(|p| p.annotation.as_ref()) {
            vars::each_binding_dim(p, &mut |d, is_dim| {
                for v in d.vars().into_iter().filter(|v| v.dtype() == DType::I64) {
                    if !is_dim {
                        scalars.insert(v);
                        continue;
                    }
                    let one = stated("tir_var_lower_bound", &v).filter(|n| {
                        let divisor = stated(VAR_DIVISOR, &v).unwrap_or(1).max(1);
                        *n >= 0 && stated("tir_var_upper_bound", &v) == Some(*n) && n % divisor == 0
                    });
                    if let Some(n) = one {
                        values.insert(v, PrimExpr::i64(n));
                    }
                }
            });
        }
        // Scalars are arguments of their own: they stay what the call says.
        values.retain(|v, _| !scalars.contains(v));
        if !values.is_empty() {
            *f = with_values(f, &values);
        }
    }
}

/// Names of the variables among the dims of the parameters.
fn shape_variables(f: &Function) -> Vec<String> {
    fn collect(s: &StructInfo, out: &mut Vec<String>) {
        let mut add =
            |dims: &[PrimExpr]| out.extend(dims.iter().flat_map(PrimExpr::vars).map(|v| v.name().to_string()));
        match s {
            StructInfo::Tensor(t) => {
                if let Some(TensorShape::Dims(d)) = &t.shape {
                    add(d);
                }
            }
            StructInfo::Shape { values: Some(v), .. } => add(v),
            StructInfo::Prim { value: Some(v), .. } => add(std::slice::from_ref(v)),
            StructInfo::Tuple(fields) => fields.iter().for_each(|s| collect(s, out)),
            _ => {}
        }
    }
    let mut out = vec![];
    f.params.iter().filter_map(|p| p.annotation.as_ref()).for_each(|s| collect(s, &mut out));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = r#"
from tvm.script import ir as I, relax as R, tirx as T
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "m"), dtype="float32")):
        return x
    @R.function
    def other(x: R.Tensor(("n",), dtype="float32")):
        return x
"#;

    #[test]
    fn conditions_are_added_where_their_names_are() {
        let (module, _) = relax_frontend::rlx::parse(relax_ir::FileId(0), MODULE);
        let mut module = module.expect("the module is well-formed");
        assert!(apply(&mut module, "n % m == 0").is_ok());
        assert!(apply(&mut module, "n * 2 <= 64").is_ok());
        let constraints =
            |name: &str| module.relax(name).and_then(|f| f.attrs.get(SHAPE_CONSTRAINTS)?.as_list().map(<[_]>::len));
        assert_eq!((constraints("main"), constraints("other")), (Some(2), Some(1)));
        for wrong in ["n % k == 0", "n <", "n % 0", "k=3"] {
            assert_eq!(apply(&mut module, wrong).map_err(|d| d.code), Err("dim-bound"), "{wrong}");
        }
    }

    #[test]
    fn of_two_bounds_the_tighter_one_holds() {
        let stated = |bounds: &[&str]| {
            let (module, _) = relax_frontend::rlx::parse(relax_ir::FileId(0), MODULE);
            let mut module = module.expect("the module is well-formed");
            bounds.iter().try_for_each(|b| apply(&mut module, b)).map_err(|d| d.message)?;
            let f = module.relax("main").expect("the function is there");
            let value = |key| match f.attrs.get(key) {
                Some(AttrValue::Dict(d)) => d.iter().find(|(n, _)| n == "n").and_then(|(_, v)| v.as_int()),
                _ => None,
            };
            Ok::<_, String>(["tir_var_lower_bound", "tir_var_upper_bound", VAR_DIVISOR].map(value))
        };
        assert_eq!(stated(&["n=2..64", "n=1..512", "n%4", "n%6"]), Ok([Some(2), Some(64), Some(12)]));
        assert_eq!(stated(&["n<=512", "n=2..64"]), Ok([Some(2), Some(64), None]));
        let wrong = stated(&["n<=64", "n=100..200"]);
        let what = "`n=100..200`: with what else is stated, n of `main` is at least 100 and at most 64";
        assert_eq!(wrong, Err(what.to_string()));
    }

    #[test]
    fn a_dim_of_one_size_is_a_number() {
        let settled = |bounds: &[&str]| {
            let (module, _) = relax_frontend::rlx::parse(relax_ir::FileId(0), MODULE);
            let mut module = module.expect("the module is well-formed");
            bounds.iter().for_each(|b| assert!(apply(&mut module, b).is_ok(), "{b}"));
            settle(&mut module);
            let f = module.relax("main").expect("the function is there");
            let info = f.params[0].annotation.as_ref().map(relax_ir::analysis::show::info);
            (info.unwrap_or_default(), f.attrs.get("tir_var_upper_bound").cloned())
        };
        assert_eq!(settled(&["n=7"]), (r#"R.Tensor((7, m), dtype="float32")"#.into(), Some(AttrValue::Dict(vec![]))));
        assert_eq!(settled(&["n>=7", "n<=7"]).0, r#"R.Tensor((7, m), dtype="float32")"#);
        // What contradicts itself is left to be reported.
        for open in [&["n=7..8"][..], &["n=7", "n%2"]] {
            assert_eq!(settled(open).0, r#"R.Tensor((n, m), dtype="float32")"#, "{open:?}");
        }
    }
}
