//! Baking weights in: parameters of a function become constants.

use relax_ir::relax::{Binding, BindingBlock, BindingValue, Expr, ExprKind, Function, Param, SeqExpr, StructInfo};
use relax_ir::{Constant, DType, Diagnostic, Diagnostics, Func, IRModule};
use std::collections::HashMap;
use std::sync::Arc;

/// Binds every parameter of every exported function whose name `weights` has, or has with other characters where TVM's printer
/// writes underscores (`layer.0.bias` is `layer_0_bias` in its text). Shapes and dtypes must agree with the annotation. Returns
/// how many were bound.
///
/// The attribute `num_input` of a function says how many of its parameters, the first ones, are no weights: a weight
/// that is missing is an error then. So is a file of which no weight is used; one that no parameter takes is a warning.
pub fn bind_params(module: &mut IRModule, weights: &HashMap<String, Constant>) -> (usize, Diagnostics) {
    let mut diags = Diagnostics::default();
    let mut used: HashMap<String, bool> = weights.keys().map(|k| (k.clone(), false)).collect();
    let named = Named::of(weights);
    let mut count = 0;
    for f in &mut module.funcs {
        let Func::Relax(f) = f else { continue };
        if f.global_symbol().is_none() {
            continue;
        }
        let inputs = f.attrs.int("num_input").map_or(usize::MAX, |n| n.max(0) as usize);
        for p in f.params.iter().skip(inputs).filter(|p| named.get(p).is_none()) {
            diags.push(missing(f, p, weights));
        }
        let (bound, kept): (Vec<Param>, Vec<Param>) = f.params.iter().cloned().partition(|p| named.get(p).is_some());
        if bound.is_empty() {
            continue;
        }
        let mut bindings = vec![];
        for p in bound {
            let Some((name, c)) = named.get(&p) else { continue };
            let c = &as_scalar(&p, c);
            used.insert(name.to_string(), true);
            if let Err(d) = fits(f, &p, c) {
                diags.push(d);
            }
            count += 1;
            let value = Expr::new(ExprKind::Constant(c.clone()), p.var.span());
            let value = match &p.annotation {
                // A constant knows its dims; a shape variable of the annotation is matched against them.
                Some(info) if !is_constant(info) => BindingValue::MatchCast { value, struct_info: info.clone() },
                _ => BindingValue::Expr(value),
            };
            bindings.push(Binding { var: p.var.clone(), annotation: None, value, span: p.var.span() });
        }
        let mut blocks = vec![BindingBlock { dataflow: false, bindings, span: f.span }];
        blocks.extend(f.body.blocks.iter().cloned());
        let body = Arc::new(SeqExpr { blocks, body: f.body.body.clone() });
        *f = Function { params: kept, body, ..f.clone() };
    }
    if count == 0 && !weights.is_empty() && !diags.has_errors() {
        let d = Diagnostic::error(
            "no-weight-used",
            relax_ir::Span::NONE,
            "no weight of the file is the name of a parameter of an exported function",
        );
        return (
            0,
            d.help(format!("weights are matched to parameters by name; the file has {}", some(weights))).into(),
        );
    }
    for (name, _) in used.iter().filter(|(_, &u)| !u) {
        diags.push(
            Diagnostic::warning(
                "unused-weight",
                relax_ir::Span::NONE,
                format!("the weight {name} is the name of no parameter of an exported function"),
            )
            .help("weights are matched to parameters by name"),
        );
    }
    diags.list.sort_by(|a, b| (a.span().lo, &a.message).cmp(&(b.span().lo, &b.message)));
    (count, diags)
}

/// Weights by their names and by those names as TVM prints them, where one weight alone has that.
struct Named<'a> {
    weights: &'a HashMap<String, Constant>,
    printed: HashMap<String, Option<&'a str>>,
}

impl<'a> Named<'a> {
    fn of(weights: &'a HashMap<String, Constant>) -> Named<'a> {
        let mut printed: HashMap<String, Option<&'a str>> = HashMap::new();
        for name in weights.keys() {
            let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            let own = Some(name.as_str());
            printed.entry(name.chars().map(plain).collect()).and_modify(|n| *n = None).or_insert(own);
        }
        Named { weights, printed }
    }

    fn get(&self, p: &Param) -> Option<(&'a str, &'a Constant)> {
        let name = p.var.name();
        let (name, c) =
            self.weights.get_key_value(name).or_else(|| self.weights.get_key_value((*self.printed.get(name)?)?))?;
        Some((name.as_str(), c))
    }
}

fn missing(f: &Function, p: &Param, weights: &HashMap<String, Constant>) -> Diagnostic {
    let name = p.var.name();
    Diagnostic::error("missing-weight", p.var.span(), format!("the weight {name} is not in the file"))
        .here("this parameter is a weight")
        .note(format!("num_input of {} says that its weights begin behind the first parameters", f.name))
        .help(format!("the file has {}", some(weights)))
}

/// The names of a few weights, for messages.
fn some(weights: &HashMap<String, Constant>) -> String {
    let mut names: Vec<&str> = weights.keys().map(String::as_str).collect();
    names.sort_unstable();
    let rest = names.len().saturating_sub(8);
    names.truncate(8);
    match (names.is_empty(), rest) {
        (true, _) => "none".into(),
        (_, 0) => names.join(", "),
        _ => format!("{} and {rest} more", names.join(", ")),
    }
}

fn is_constant(info: &StructInfo) -> bool {
    info.as_tensor().and_then(|t| t.known_dims()).is_some_and(|d| d.iter().all(|d| d.as_int().is_some()))
}

/// A weight of one element stands for a scalar parameter: some writers of weight files know no tensors without dims.
fn as_scalar(p: &Param, c: &Constant) -> Constant {
    let scalar = p.annotation.as_ref().and_then(StructInfo::as_tensor).is_some_and(|t| t.ndim == Some(0));
    let c = match p.annotation.as_ref().and_then(StructInfo::as_tensor).and_then(|t| t.dtype) {
        Some(dtype) => of_bytes(c.clone(), dtype),
        None => c.clone(),
    };
    if scalar && c.shape == [1] {
        return Constant { shape: vec![], ..c };
    }
    c
}

/// Bytes where elements of `dtype` are wanted, which numpy has no name for, are their codes or values.
pub fn of_bytes(c: Constant, dtype: DType) -> Constant {
    let narrow = dtype.as_small().is_some() || dtype.bits < 8;
    if narrow && (c.dtype == DType::U8 || c.dtype == DType::I8) {
        return Constant { dtype, ..c };
    }
    c
}

fn fits(f: &Function, p: &Param, c: &Constant) -> Result<(), Diagnostic> {
    let name = p.var.name();
    let Some(StructInfo::Tensor(t)) = &p.annotation else {
        return Err(Diagnostic::error("weight", p.var.span(), format!("parameter {name} of {} is no tensor", f.name)));
    };
    let wrong = |what: String| {
        Diagnostic::error("weight", p.var.span(), format!("the weight {name} does not fit its parameter: {what}"))
            .here("declared here")
    };
    if let Some(d) = t.dtype.filter(|&d| d != c.dtype) {
        return Err(wrong(format!("expected dtype {d}, the file has {}", c.dtype)));
    }
    if let Some(n) = t.ndim.filter(|&n| n != c.shape.len()) {
        return Err(wrong(format!("expected {n} dims, the file has {:?}", c.shape)));
    }
    for (i, d) in t.known_dims().unwrap_or_default().iter().enumerate() {
        if d.as_int().is_some_and(|d| d != c.shape[i]) {
            return Err(wrong(format!(
                "expected {} in dimension {i}, the file has {:?}",
                d.as_int().unwrap_or(0),
                c.shape
            )));
        }
    }
    Ok(())
}
