//! Compile-time values: attributes of operators, functions, blocks and the module.

use super::context::{Cx, Value};
use super::python::truth;
use super::scalar::{parse_float, parse_int};
use super::syntax::*;
use super::tir_func::named_type;
use crate::suggest::nearest;
use relax_ir::analysis::vars;
use relax_ir::attrs::{IndexMap, VAR_DIVISOR};
use relax_ir::relax;
use relax_ir::{AttrValue, Attrs, DType, Diagnostic, Span, Var};

impl<'a> Cx<'a> {
    pub fn attr_value(&mut self, e: &Expr<'a>) -> Option<AttrValue> {
        Some(match &e.kind {
            ExprKind::None => AttrValue::None,
            ExprKind::Bool(b) => AttrValue::Bool(*b),
            ExprKind::Int(t) => match parse_int(t).and_then(|v| i64::try_from(v).ok()) {
                Some(v) => AttrValue::Int(v),
                None => return self.error("argument", e.span, "this integer does not fit 64 bits"),
            },
            ExprKind::Float(t) => match parse_float(t) {
                Some((v, _)) => AttrValue::Float(v),
                None => return self.error("argument", e.span, "this number cannot be read"),
            },
            ExprKind::Unary(UnaryOp::Neg, inner) => match self.attr_value(inner)? {
                AttrValue::Int(v) => AttrValue::Int(v.wrapping_neg()),
                AttrValue::Float(v) => AttrValue::Float(-v),
                _ => AttrValue::Prim(self.prim(e)?),
            },
            ExprKind::Unary(UnaryOp::Not, inner) if truth(inner).is_some() => {
                AttrValue::Bool(truth(inner) == Some(false))
            }
            ExprKind::Binary(BinaryOp::And | BinaryOp::Or, a, b)
                if [a, b].iter().all(|e| matches!(e.kind, ExprKind::Bool(_))) =>
            {
                AttrValue::Bool(truth(e) == Some(true))
            }
            ExprKind::Str(s) => AttrValue::Str(s.clone()),
            ExprKind::Tuple(items) | ExprKind::List(items) => {
                let all: Vec<Option<AttrValue>> = items.iter().map(|i| self.attr_value(i)).collect();
                AttrValue::List(all.into_iter().collect::<Option<_>>()?)
            }
            ExprKind::Dict(_) => AttrValue::Dict(self.dict(e)?),
            ExprKind::Name(n) => match self.names.get(n) {
                Some(Value::Poison) => return None,
                // Blocks name buffers in their attributes.
                Some(Value::Buffer(b) | Value::Described(b)) => AttrValue::Str(b.name.clone()),
                Some(Value::Relax(_)) if self.names.prim(n).is_none() => {
                    return self.error(
                        "argument",
                        e.span,
                        format!("`{n}` is known at run time only; a constant is needed"),
                    );
                }
                _ => AttrValue::Prim(self.prim(e)?),
            },
            ExprKind::Call(call) => return self.attr_call(call, e),
            ExprKind::Subscript(..) if self.is_metadata(e) => AttrValue::Const(self.metadata_constant(e)?),
            ExprKind::Attribute(..) => {
                let name = e.dotted().unwrap_or_default();
                match name.strip_prefix("T.").and_then(named_type) {
                    Some(d) => AttrValue::DType(d),
                    None if name.starts_with("R.") => AttrValue::StructInfo(Box::new(self.struct_info(e)?)),
                    None => return self.expected(e, "a constant"),
                }
            }
            ExprKind::Unary(..) | ExprKind::Binary(..) => AttrValue::Prim(self.prim(e)?),
            ExprKind::Lambda(..) => AttrValue::IndexMap(self.index_map(Some(e), e.span)?),
            _ => return self.expected(e, "a constant"),
        })
    }

    fn attr_call(&mut self, call: &CallExpr<'a>, e: &Expr<'a>) -> Option<AttrValue> {
        let name = call.func.dotted().unwrap_or_default();
        Some(match name.as_str() {
            "R.dtype" => AttrValue::DType(self.dtype(e)?),
            "R.str" => AttrValue::Str(self.string(e)?),
            "R.prim_value" => match call.args.as_slice() {
                [one] => return self.attr_value(one),
                _ => return self.error("argument", e.span, "R.prim_value takes one argument"),
            },
            "R.shape" => match call.args.as_slice() {
                [list] => AttrValue::List(self.dims(list)?.into_iter().map(AttrValue::Prim).collect()),
                _ => return self.error("argument", e.span, "R.shape takes one list"),
            },
            "R.tuple" => {
                let all: Vec<Option<AttrValue>> = call.args.iter().map(|i| self.attr_value(i)).collect();
                AttrValue::List(all.into_iter().collect::<Option<_>>()?)
            }
            // Python's own, for what has no literal: `float("inf")`, `float("nan")`.
            "float" => match call.args.as_slice() {
                [one] => match self.attr_value(one)? {
                    AttrValue::Float(v) => AttrValue::Float(v),
                    AttrValue::Int(v) => AttrValue::Float(v as f64),
                    AttrValue::Str(s) => match s.trim().parse() {
                        Ok(v) => AttrValue::Float(v),
                        Err(_) => return self.expected(one, "the text of a number"),
                    },
                    _ => return self.expected(one, "a number"),
                },
                _ => return self.error("argument", e.span, "float takes one argument"),
            },
            "R.const" => AttrValue::Const(self.constant(call, e.span)?),
            // What describes a target; code is made for that of the command line.
            "T.target" => match call.args.as_slice() {
                [one] => {
                    self.target(one)?;
                    return self.attr_value(one);
                }
                _ => return self.error("argument", e.span, "T.target takes one argument"),
            },
            "T.index_map" => AttrValue::IndexMap(self.index_map(call.args.first(), e.span)?),
            "R.device" => AttrValue::GlobalInfo(self.device(call, e)?),
            "I.vdevice" => AttrValue::GlobalInfo(self.vdevice(e)?),
            n if n.starts_with("T.") => AttrValue::Prim(self.prim(e)?),
            n if n.starts_with("R.") || n.starts_with("I.") => AttrValue::StructInfo(Box::new(self.struct_info(e)?)),
            _ => return self.expected(e, "a constant"),
        })
    }

    /// `{"key": value}` in the order written.
    pub fn dict(&mut self, e: &Expr<'a>) -> Option<Vec<(String, AttrValue)>> {
        let ExprKind::Dict(pairs) = &e.kind else { return self.expected(e, "a dictionary") };
        let mut out: Vec<(String, AttrValue)> = vec![];
        let mut ok = true;
        for (k, v) in pairs {
            let key = match &k.kind {
                ExprKind::Int(t) => Some(t.to_string()),
                _ => self.string(k),
            };
            match (key, self.attr_value(v)) {
                // The last value of a key counts, as Python has it.
                (Some(k), Some(v)) => match out.iter_mut().find(|(have, _)| *have == k) {
                    Some((_, value)) => *value = v,
                    None => out.push((k, v)),
                },
                _ => ok = false,
            }
        }
        ok.then_some(out)
    }

    /// The dictionary that is the only argument of `R.func_attr`, `I.module_attrs` and their kin.
    pub fn attrs_argument(&mut self, call: &CallExpr<'a>, span: Span) -> Option<Attrs> {
        match call.arg(0, "attrs") {
            Some(d) => {
                let entries = if let ExprKind::Dict(entries) = &d.kind { entries.as_slice() } else { &[] };
                if let Some((key, _)) = entries.iter().find(|(k, _)| !matches!(k.kind, ExprKind::Str(_))) {
                    return self.expected(key, "the name of an attribute in quotes");
                }
                self.dict(d).map(Attrs)
            }
            None => self.error("argument", span, "a dictionary of attributes is needed here"),
        }
    }

    /// `T.index_map(lambda i, j: (i // 4, j, i % 4))`; its scalars are int64.
    fn index_map(&mut self, lambda: Option<&Expr<'a>>, span: Span) -> Option<IndexMap> {
        let Some(ExprKind::Lambda(params, body)) = lambda.map(|a| &a.kind) else {
            return self.error("argument", span, "an index map is written `T.index_map(lambda i, j: (..))`");
        };
        let plain = |p: &&Param| p.kind != ParamKind::Plain || p.default.is_some();
        if let Some(p) = params.iter().find(plain) {
            return self.error("argument", p.name.span, "an index map takes an index for each dim");
        }
        self.names.push();
        let params: Vec<Var> = params
            .iter()
            .map(|p| {
                let v = Var::with_span(p.name.name, DType::I64, p.name.span);
                self.names.bind(p.name.name, Value::Prim(v.clone()));
                v
            })
            .collect();
        let old = std::mem::replace(&mut self.names.int, DType::I64);
        // What is an index of the result must be an expression of TIR, a number of Python is none.
        let results = match body.elements() {
            Some(items) => items
                .iter()
                .map(|i| match i.kind {
                    ExprKind::Int(_) | ExprKind::Bool(_) | ExprKind::Float(_) => self.expected(i, "an index of TIR"),
                    _ => self.prim(i),
                })
                .collect(),
            None => vec![self.prim(body)],
        };
        self.names.int = old;
        self.names.pop();
        Some(IndexMap { params, results: results.into_iter().collect::<Option<_>>()? })
    }

    /// The attributes of a function that speak of its parameters: a number of inputs that there are, and bounds of dims, of
    /// which many models state those of all their functions in each. A name that is nearly that of a dim is a slip.
    pub fn attributes_fit(&mut self, params: &[relax::Param], attrs: &Attrs, signature: Span) -> Option<()> {
        let most = params.len() as i64;
        if let Some(n) = attrs.int("num_input").filter(|n| *n < 0 || *n > most) {
            let there = match most {
                1 => "there is 1 parameter".to_string(),
                n => format!("there are {n} parameters"),
            };
            let d = Diagnostic::error("argument", signature, format!("num_input is {n}, {there}"));
            return self.report(d.help("num_input says how many of the parameters, the first ones, are no weights"));
        }
        let dims = vars::lone_vars(params.iter().filter_map(|p| p.annotation.as_ref()));
        let dims: Vec<&str> = dims.iter().map(|(v, _)| v.name()).collect();
        for key in ["tir_var_lower_bound", "tir_var_upper_bound", VAR_DIVISOR] {
            let Some(AttrValue::Dict(bounds)) = attrs.get(key) else { continue };
            for (name, _) in bounds.iter().filter(|(n, _)| !dims.contains(&n.as_str())) {
                let near = nearest(name, dims.iter().copied()).filter(|_| self.names.prim(name).is_none());
                if let Some(near) = near {
                    let what = format!("{key} states a bound of `{name}`, which is no dim of a parameter");
                    self.diags
                        .push(Diagnostic::warning("argument", signature, what).help(format!("did you mean `{near}`?")));
                }
            }
        }
        Some(())
    }
}
