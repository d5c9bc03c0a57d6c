//! Likely sizes: calls with these run code of their own.
//!
//! A function attribute ([`VAR_LIKELY`], [`VAR_LIKELY_DIVISOR`]) or the command line names values or divisors that shape
//! variables of an exported function often have. [`add_forms`] copies the function for each of them (its *forms*), with
//! numbers in place of the variables: every pass then treats a form as it treats a module whose dims were written as
//! numbers, so both compute the same bits. The entry asks once per call which form fits its arguments; the general one
//! serves all others ([`crate::host`]). Kernels that a form shares with the general one are there once.

mod kernels;

pub use kernels::{with_divisors, with_numbers};

use relax_ir::analysis::{self, constraints, constraints::solved_text, vars, Typed};
use relax_ir::attrs::{FORM_OF, FORM_WHEN, SHAPE_CONSTRAINTS, SOLVABLE, VAR_DIVISOR, VAR_LIKELY, VAR_LIKELY_DIVISOR};
use relax_ir::relax::{instance, Function};
use relax_ir::{AttrValue, Diagnostic, Diagnostics, Func, IRModule, PrimExpr, Span, Var};
use std::collections::HashMap;

/// Forms of one function, at most.
const MOST: usize = 8;

/// What a form knows of one variable.
#[derive(Clone)]
enum Known {
    Value(i64),
    Divisor(i64),
}

impl Known {
    fn condition(&self, name: &str) -> String {
        match self {
            Known::Value(v) => format!("{name} == {v}"),
            Known::Divisor(k) => format!("{name} % {k} == 0"),
        }
    }

    fn suffix(&self, name: &str) -> String {
        match self {
            Known::Value(v) => format!("_{name}_{v}"),
            Known::Divisor(k) => format!("_{name}_by_{k}"),
        }
    }
}

/// Adds what the command line says (`n=1,128` or `n%16`) to the attributes of every exported function that has a shape
/// variable of that name.
///
/// # Errors
/// Text that is neither, and a name that no exported function has.
pub fn apply(module: &mut IRModule, text: &str) -> Result<(), Diagnostic> {
    let bad = || {
        Diagnostic::error("likely", Span::NONE, format!("`{text}` names no likely values of a shape variable"))
            .help("write n=128, n=1,128 or n%16")
    };
    let number = |s: &str| s.trim().parse::<i64>().ok().filter(|v| *v >= 0).ok_or_else(bad);
    let (name, key, values) = match (text.split_once('%'), text.split_once('=')) {
        (Some((name, k)), _) => {
            let k = k
                .split_once('=')
                .map_or(Some(k), |(k, zero)| (zero.trim_start_matches('=').trim() == "0").then_some(k));
            let k = number(k.ok_or_else(bad)?)?;
            if k < 2 {
                return Err(bad());
            }
            (name.trim(), VAR_LIKELY_DIVISOR, vec![k])
        }
        (None, Some((name, values))) => {
            (name.trim(), VAR_LIKELY, values.split(',').map(number).collect::<Result<_, _>>()?)
        }
        _ => return Err(bad()),
    };
    let (mut known, mut found): (Vec<String>, bool) = (vec![], false);
    for f in &mut module.funcs {
        let Func::Relax(f) = f else { continue };
        if f.global_symbol().is_none() {
            continue;
        }
        let dims = dims(f);
        known.extend(dims.iter().map(|v| constraints::solved_var(f, v.name()).unwrap_or(v.name()).to_string()));
        let (name, values) = match dims.iter().any(|v| v.name() == name) {
            true => (name.to_string(), values.clone()),
            false => match solved(f, name, key, &values)? {
                Some(own) => own,
                None => continue,
            },
        };
        found = true;
        {
            let mut dict = match f.attrs.get(key) {
                Some(AttrValue::Dict(d)) => d.clone(),
                _ => vec![],
            };
            let mut all = dict.iter().find(|(n, _)| *n == name).and_then(|(_, v)| v.as_ints()).unwrap_or_default();
            all.extend(values.iter().filter(|v| !all.contains(v)).copied().collect::<Vec<_>>());
            dict.retain(|(n, _)| *n != name);
            dict.push((name, AttrValue::List(all.into_iter().map(AttrValue::Int).collect())));
            f.attrs.set(key, AttrValue::Dict(dict));
        }
    }
    if found {
        return Ok(());
    }
    known.sort();
    known.dedup();
    let d = Diagnostic::error("likely", Span::NONE, format!("no exported function has a shape variable {name}"));
    Err(match known.is_empty() {
        true => d.help("the model has no shape variables"),
        false => d.help(format!("the shape variables are {}", known.join(", "))),
    })
}

/// What is likely of a variable for which a dim was solved (`m` of `m * 4`), said of the dim.
///
/// # Errors
/// A dim whose sizes take other variables too.
fn solved(f: &Function, name: &str, key: &str, values: &[i64]) -> Result<Option<(String, Vec<i64>)>, Diagnostic> {
    let Some((own, none)) = constraints::solved_for(f, name, 0) else { return Ok(None) };
    let sizes: Option<Vec<i64>> = match key {
        // Multiples of the variable are multiples where nothing is added.
        VAR_LIKELY_DIVISOR if none != Some(0) => None,
        _ => values.iter().map(|v| constraints::solved_for(f, name, *v).and_then(|s| s.1).map(i64::abs)).collect(),
    };
    let text = solved_text(f, &own);
    sizes.map(|s| Some((own.clone(), s))).ok_or_else(|| {
        let what = format!("`{}`: what is likely of {name} does not tell a size of the dim {text}", f.name);
        Diagnostic::error("likely", f.signature_span, what)
            .help(format!("name likely sizes of the dim: --likely {own}=SIZE"))
    })
}

/// Drops what the text of a module says is likely.
pub fn forget(module: &mut IRModule) {
    for f in &mut module.funcs {
        if let Func::Relax(f) = f {
            f.attrs.0.retain(|(name, _)| name != VAR_LIKELY && name != VAR_LIKELY_DIVISOR);
        }
    }
}

/// Adds the forms of every exported function with likely sizes to the module, as private functions with [`FORM_OF`].
///
/// # Errors
/// A likely size that cannot be: outside of the variable's bounds, or one for which the function has an error; more than
/// [`MOST`] forms of a function.
pub fn add_forms(typed: &mut Typed) -> Result<(), Diagnostics> {
    let likely = |f: &&Function| f.attrs.get(VAR_LIKELY).or(f.attrs.get(VAR_LIKELY_DIVISOR)).is_some();
    if !typed.module.relax_funcs().any(|f| f.global_symbol().is_some() && likely(&f)) {
        return Ok(());
    }
    // Dims without a name get one, the same in all forms.
    analysis::materialise(typed)?;
    let mut errors = Diagnostics::default();
    let mut forms: Vec<Function> = vec![];
    for f in typed.module.relax_funcs().filter(|f| f.global_symbol().is_some()) {
        match forms_of(f) {
            Ok(list) => forms.extend(list),
            Err(d) => errors.push(d),
        }
    }
    if errors.has_errors() {
        return Err(errors);
    }
    let with = |forms: &[Function]| {
        let mut t = typed.clone();
        for f in forms {
            let name = t.module.fresh_name(&f.name);
            t.module.funcs.push(Func::Relax(Function { name, ..f.clone() }));
        }
        analysis::materialise(&mut t).map(|_| t)
    };
    match with(&forms) {
        Ok(t) => *typed = t,
        Err(all) => {
            // Which of them it is.
            for f in &forms {
                let Err(d) = with(std::slice::from_ref(f)) else { continue };
                let Some(first) = d.list.into_iter().find(Diagnostic::is_error) else { continue };
                errors.push(first.note(format!("at the likely size {}", when(f).join(" and "))));
            }
            return Err(if errors.has_errors() { errors } else { all });
        }
    }
    Ok(())
}

/// What must hold of the shape variables for this form, as texts.
pub fn when(form: &Function) -> Vec<String> {
    let list = form.attrs.get(FORM_WHEN).and_then(AttrValue::as_list).unwrap_or_default();
    list.iter().filter_map(|t| t.as_str().map(str::to_string)).collect()
}

/// The forms of `name`.
pub fn of<'a>(module: &'a IRModule, name: &'a str) -> impl Iterator<Item = &'a Function> {
    module.relax_funcs().filter(move |f| f.attrs.str(FORM_OF) == Some(name))
}

/// Shape variables of the parameters.
fn dims(f: &Function) -> Vec<Var> {
    let lone = vars::lone_vars(f.params.iter().filter_map(|p| p.annotation.as_ref()));
    lone.into_iter().filter(|(v, is_dim)| *is_dim && v.dtype() == relax_ir::DType::I64).map(|(v, _)| v).collect()
}

fn forms_of(f: &Function) -> Result<Vec<Function>, Diagnostic> {
    let wrong = |m: String| Diagnostic::error("likely", f.signature_span, format!("`{}`: {m}", f.name));
    let stated = |key: &str, v: &Var| match f.attrs.get(key) {
        Some(AttrValue::Dict(d)) => d.iter().find(|(n, _)| n == v.name()).map(|(_, x)| x),
        _ => None,
    };
    let own = dims(f);
    for key in [VAR_LIKELY, VAR_LIKELY_DIVISOR] {
        let Some(value) = f.attrs.get(key) else { continue };
        let AttrValue::Dict(d) = value else {
            return Err(wrong(format!("{key} must be a dictionary")).help("e.g. {\"n\": [1, 128]}"));
        };
        for (name, values) in d {
            if !own.iter().any(|v| v.name() == name) {
                let known: Vec<&str> = own.iter().map(Var::name).collect();
                let d = wrong(format!("{key} names {name}, which is no shape variable of its parameters"));
                return Err(d.help(format!("its shape variables are {}", known.join(", "))));
            }
            let least = if key == VAR_LIKELY { 0 } else { 2 };
            if !values.as_ints().is_some_and(|l| l.iter().all(|v| *v >= least)) {
                return Err(wrong(format!("{key}: the sizes of {name} must be numbers, at least {least}")));
            }
        }
    }
    let mut found: Vec<Vec<(Var, Known)>> = vec![vec![]];
    for v in &own {
        let mut choices = vec![];
        let bound = |key: &str| stated(key, v).and_then(AttrValue::as_int);
        let (lower, upper) = (bound("tir_var_lower_bound"), bound("tir_var_upper_bound"));
        let divisor = bound(VAR_DIVISOR).unwrap_or(1).max(1);
        for value in stated(VAR_LIKELY, v).and_then(AttrValue::as_ints).unwrap_or_default() {
            let name = solved_text(f, v.name());
            if lower.is_some_and(|l| value < l) || upper.is_some_and(|u| value > u) || value % divisor != 0 {
                let mut d = wrong(format!("{name} is never {value}, which is said to be likely"));
                for (word, k) in [("at least", lower), ("at most", upper), ("a multiple of", Some(divisor))] {
                    if let Some(k) = k.filter(|k| *k > 1 || word != "a multiple of") {
                        d = d.note(format!("{name} is {word} {k}"));
                    }
                }
                return Err(d);
            }
            choices.push(Known::Value(value));
        }
        for k in stated(VAR_LIKELY_DIVISOR, v).and_then(AttrValue::as_ints).unwrap_or_default() {
            if divisor % k != 0 {
                choices.push(Known::Divisor(k));
            }
        }
        if choices.is_empty() {
            continue;
        }
        let mut longer = vec![];
        for l in &found {
            longer.extend(choices.iter().map(|c| [l.as_slice(), &[(v.clone(), c.clone())]].concat()));
        }
        found = longer;
    }
    found.retain(|l| !l.is_empty());
    if found.len() > MOST {
        let d = wrong(format!("its likely sizes make {} forms, at most {MOST} are made", found.len()));
        return Err(d.help("name fewer values: those of several variables are taken together"));
    }
    Ok(found.iter().map(|known| form(f, known)).collect())
}

fn form(f: &Function, known: &[(Var, Known)]) -> Function {
    let mut values = HashMap::new();
    let mut suffix = String::new();
    for (v, k) in known {
        suffix += &k.suffix(v.name());
        if let Known::Value(n) = k {
            values.insert(v.clone(), PrimExpr::int(v.dtype(), *n));
        }
    }
    let mut g = with_values(f, &values);
    g.name = format!("{}{suffix}", f.name);
    g.private = true;
    g.attrs.0.retain(|(key, _)| !["global_symbol", VAR_LIKELY, VAR_LIKELY_DIVISOR].contains(&key.as_str()));
    for (v, k) in known {
        let Known::Divisor(k) = k else { continue };
        let mut dict = match g.attrs.get(VAR_DIVISOR) {
            Some(AttrValue::Dict(d)) => d.clone(),
            _ => vec![],
        };
        let old = dict.iter().find(|(n, _)| n == v.name()).and_then(|(_, x)| x.as_int()).unwrap_or(1).max(1);
        dict.retain(|(n, _)| n != v.name());
        dict.push((v.name().to_string(), AttrValue::Int(k / gcd(old, *k) * old)));
        g.attrs.set(VAR_DIVISOR, AttrValue::Dict(dict));
    }
    g.attrs.set(FORM_OF, AttrValue::Str(f.name.clone()));
    let texts = known.iter().map(|(v, k)| AttrValue::Str(k.condition(v.name()))).collect();
    g.attrs.set(FORM_WHEN, AttrValue::List(texts));
    g
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

/// A copy of `f` with numbers in place of shape variables, in what its attributes state of them too.
pub(crate) fn with_values(f: &Function, values: &HashMap<Var, PrimExpr>) -> Function {
    let mut g = instance(f, values);
    let gone = |name: &str| values.keys().any(|v| v.name() == name);
    for (key, value) in &mut g.attrs.0 {
        let stated = std::mem::replace(value, AttrValue::List(vec![]));
        *value = match (key.as_str(), stated) {
            (SHAPE_CONSTRAINTS, AttrValue::List(l)) => {
                AttrValue::List(l.into_iter().map(|t| numbers(t, values)).collect())
            }
            (SHAPE_CONSTRAINTS, t) => numbers(t, values),
            (SOLVABLE, AttrValue::Dict(d)) => {
                let d = d.into_iter().filter(|(n, _)| !gone(n));
                AttrValue::Dict(d.map(|(n, t)| (n, numbers(t, values))).collect())
            }
            (key, AttrValue::Dict(d)) if key.starts_with("tir_var_") => {
                AttrValue::Dict(d.into_iter().filter(|(n, _)| !gone(n)).collect())
            }
            (_, value) => value,
        };
    }
    g
}

/// A condition with numbers in place of names.
fn numbers(text: AttrValue, values: &HashMap<Var, PrimExpr>) -> AttrValue {
    let AttrValue::Str(text) = text else { return text };
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        let len = if word(c) { rest.find(|c| !word(c)).unwrap_or(rest.len()) } else { c.len_utf8() };
        let (token, after) = rest.split_at(len);
        match values.iter().find(|(v, _)| v.name() == token).and_then(|(_, n)| n.as_int()) {
            Some(n) => out += &n.to_string(),
            None => out += token,
        }
        rest = after;
    }
    AttrValue::Str(out)
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
        R.func_attr({"tir_var_upper_bound": {"n": 512}, "shape_constraints": ["n >= m"], "tir_var_likely": {"m": 4}})
        return R.nn.relu(R.flatten(x))
"#;

    fn typed(text: &str) -> Typed {
        let (module, d) = relax_frontend::rlx::parse(relax_ir::FileId(0), text);
        let (typed, more) = analysis::analyze(&module.unwrap_or_else(|| panic!("{:?}", d.list)));
        typed.unwrap_or_else(|| panic!("{:?}", more.list))
    }

    #[test]
    fn forms_have_numbers_for_dims() {
        let mut t = typed(MODULE);
        assert!(apply(&mut t.module, "n=8,128").is_ok());
        assert!(add_forms(&mut t).is_ok());
        let names: Vec<(&str, Vec<String>)> = of(&t.module, "main").map(|f| (f.name.as_str(), when(f))).collect();
        let texts = |a: &str, b: &str| vec![a.to_string(), b.to_string()];
        assert_eq!(names[0], ("main_n_8_m_4", texts("n == 8", "m == 4")));
        assert_eq!(names[1], ("main_n_128_m_4", texts("n == 128", "m == 4")));
        let ret = t.module.relax("main_n_8_m_4").and_then(|f| f.ret.clone());
        assert_eq!(
            ret.map(|s| relax_ir::printer::print_struct_info(&s)).as_deref(),
            Some("R.Tensor((32,), dtype=\"float32\")")
        );
    }

    #[test]
    fn sizes_that_cannot_be_are_errors() {
        for (wrong, word) in [("n=513", "never 513"), ("n=3", "never holds"), ("n=5,6,7,8,9,10,11,12,13", "9 forms")] {
            let mut t = typed(MODULE);
            assert!(apply(&mut t.module, wrong).is_ok());
            let errors = add_forms(&mut t).map_err(|d| d.list[0].message.clone());
            assert!(errors.as_ref().is_err_and(|m| m.contains(word)), "{wrong}: {errors:?}");
        }
        for wrong in ["n", "n=", "n=a", "n%1", "n%8=1", "k=3", "k%4"] {
            assert!(apply(&mut typed(MODULE).module, wrong).is_err(), "{wrong}");
        }
    }
}
