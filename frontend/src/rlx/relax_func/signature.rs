//! The names of a signature: its shape variables, its parameters, and what `n = T.int64()` in a body makes of them. Variables
//! and shape variables share one scope: the last thing that a name was given is what it stands for.
//!
//! Source: TVM python/tvm/relax/script/parser/parser.py, `collect_symbolic_var_from_params`, `bind_assign_value`.

use super::super::context::{Cx, Value};
use super::super::python::Reported;
use super::super::syntax::*;
use super::super::tir_func::scalar_type;
use super::declared_var;
use relax_ir::relax::StructInfo;
use relax_ir::{DType, Diagnostic, Span, Var};

impl<'a> Cx<'a> {
    /// Brings into scope what the types of the parameters name: dims in quotes, and the TypeVars of the file. Scalar parameters
    /// that stand before name their own value.
    pub(super) fn signature_dims(&mut self, def: &FunctionDef<'a>) {
        let mut scalars: Vec<&'a str> = vec![];
        let called = |n: &str| def.params.iter().any(|p| p.name.name == n);
        let mut born: Vec<(&'a str, Span)> = vec![];
        for p in &def.params {
            let Some(annotation) = &p.annotation else { continue };
            let mut quoted = vec![];
            quoted_dims(annotation, &mut quoted);
            born.extend(
                quoted
                    .into_iter()
                    .filter_map(|e| Some((self.plain_name(e)?, e.span)))
                    .filter(|(n, _)| !scalars.contains(n)),
            );
            self.type_vars_of(annotation, &called, &mut born);
            if scalar_type(annotation).is_some() || annotation.called().as_deref() == Some("R.Prim") {
                scalars.push(p.name.name);
            }
        }
        if let Some(r) = &def.returns {
            self.type_vars_of(r, &called, &mut born);
        }
        for (name, span) in born {
            if !matches!(self.names.own(name), Some(Value::Prim(_))) {
                self.names.bind(name, Value::Prim(Var::with_span(name, DType::I64, span)));
            }
        }
    }

    /// The function with what Python computes in its signature written out; `None` where that is the function itself.
    pub fn signature_written_out(&mut self, def: &FunctionDef<'a>) -> Result<Option<FunctionDef<'a>>, Reported> {
        if self.before.is_empty() {
            return Ok(None);
        }
        let mut new = def.clone();
        for p in &mut new.params {
            if let Some(a) = &mut p.annotation {
                *a = self.written_out(a)?.unwrap_or_else(|| a.clone());
            }
        }
        if let Some(r) = &mut new.returns {
            *r = self.written_out(r)?.unwrap_or_else(|| r.clone());
        }
        Ok(Some(new))
    }

    /// The name in these quotes, where they hold one and nothing else. It is a part of the text.
    fn plain_name(&self, e: &Expr<'a>) -> Option<&'a str> {
        let text = e.as_str()?;
        let (lo, hi) = (e.span.lo as usize + 1, (e.span.hi as usize).checked_sub(1)?);
        let name = self.text.get(lo..hi).filter(|t| *t == text)?;
        is_name(name).then_some(name)
    }

    /// TypeVars of the file that a type mentions, in quotes or not, and that neither a parameter nor a function around this one
    /// has the name of.
    fn type_vars_of(&self, e: &Expr<'a>, called: &dyn Fn(&str) -> bool, out: &mut Vec<(&'a str, Span)>) {
        let mut add = |n: &str| {
            if let Some(v) = self.type_vars.iter().find(|v| **v == n) {
                if !called(v) && self.names.get(v).is_none() {
                    out.push((v, e.span));
                }
            }
        };
        match &e.kind {
            ExprKind::Name(n) => add(n),
            ExprKind::Str(s) => s.split(|c: char| !(c.is_alphanumeric() || c == '_')).for_each(add),
            ExprKind::Call(c) => {
                let keywords = c.keywords.iter().map(|(_, v)| v);
                c.args.iter().chain(keywords).for_each(|a| self.type_vars_of(a, called, out));
            }
            _ => e.children().into_iter().for_each(|c| self.type_vars_of(c, called, out)),
        }
    }

    /// The name of a parameter is new in its signature.
    pub(super) fn parameter_name(&mut self, p: &ParamDef<'a>, annotation: Option<&StructInfo>) -> Option<()> {
        let name = p.name.name;
        match self.names.own(name) {
            Some(Value::Relax(first)) => {
                let first = first.span();
                let d = Diagnostic::error("syntax", p.name.span, format!("two parameters are called `{name}`"));
                self.report(d.label(first, "the first of them"))
            }
            Some(Value::Prim(dim)) => {
                let dim = dim.span();
                let message = format!("the parameter `{name}` is called like a dim of the signature");
                let d = Diagnostic::error("syntax", p.name.span, message).label(dim, "the dim");
                let help = match annotation {
                    Some(StructInfo::Prim { value: None, .. }) => {
                        format!(
                            "write `{name}` before the tensors of which it is a dim, or give one of them another name"
                        )
                    }
                    _ => "give one of them another name".to_string(),
                };
                self.report(d.help(help))
            }
            _ => Some(()),
        }
    }

    /// The type that `n: T.int64 = T.int64()` states is that of the declaration.
    pub(super) fn declared_as(&mut self, annotation: Option<&Expr<'a>>, value: Option<&Expr<'a>>) -> Option<()> {
        let Some(a) = annotation else { return Some(()) };
        let (stated, declared) = (self.struct_info(a)?, value.and_then(declared_var));
        match (stated, declared) {
            (StructInfo::Prim { dtype, value: None }, Some(t)) if dtype == t => Some(()),
            (_, Some(t)) => self.error("annotation", a.span, format!("this declares a variable of type {t}")),
            _ => Some(()),
        }
    }

    /// `n = T.int64()` in a Relax function: a new shape variable, or one that is in scope.
    pub(super) fn shape_variable(&mut self, target: &Expr<'a>, value: &Expr<'a>, dtype: DType) -> Option<()> {
        let Some(name) = target.as_name() else { return self.expected(target, "a name") };
        if dtype.is_handle() {
            return self.error("type", value.span, format!("a shape variable is an integer, not {dtype}"));
        }
        let have = match self.names.get(name) {
            None => {
                self.names.bind(name, Value::Prim(Var::with_span(name, dtype, target.span)));
                return Some(());
            }
            Some(Value::Poison) => return Some(()),
            Some(Value::Prim(v)) => Some(v.dtype()),
            Some(Value::Relax(v)) => match (self.names.scalars.get(v), self.names.known.get(v)) {
                (Some((dtype, _)), _) => Some(*dtype),
                (None, known) => known.map(|e| e.dtype()),
            },
            Some(_) => None,
        };
        match have {
            Some(t) if t == dtype => Some(()),
            Some(t) => self.error("type", value.span, format!("`{name}` is a scalar already: {t}, not {dtype}")),
            None => {
                let d = Diagnostic::error("type", target.span, format!("`{name}` is a value already, not a scalar"));
                self.report(d.help("give the shape variable another name"))
            }
        }
    }
}

/// Dims in quotes that a type names: those of tensors and shapes, also in tuples and in what functions take.
fn quoted_dims<'e, 'a>(e: &'e Expr<'a>, out: &mut Vec<&'e Expr<'a>>) {
    let Some(call) = e.as_call() else { return };
    let list = |e: Option<&'e Expr<'a>>| e.and_then(Expr::elements).unwrap_or(&[]);
    match call.func.dotted().as_deref() {
        Some("R.Tensor") => out.extend(list(call.arg(0, "shape"))),
        Some("R.Shape") => out.extend(list(call.arg(0, "values"))),
        Some("R.Prim") => out.extend(call.keyword("value")),
        Some("R.Tuple") => match call.args.as_slice() {
            [one] if one.elements().is_some() => list(Some(one)).iter().for_each(|f| quoted_dims(f, out)),
            many => many.iter().for_each(|f| quoted_dims(f, out)),
        },
        Some("R.Callable") => match call.arg(0, "params") {
            Some(one) if one.elements().is_none() => quoted_dims(one, out),
            many => list(many).iter().for_each(|f| quoted_dims(f, out)),
        },
        _ => {}
    }
}

fn is_name(s: &str) -> bool {
    let mut chars = s.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_') && chars.all(|c| c.is_alphanumeric() || c == '_')
}
