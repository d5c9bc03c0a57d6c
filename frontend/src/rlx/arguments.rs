//! Arguments of operators by the types of their parameters: what TVM's functions take of Python's values.

use super::call::signature;
use super::context::{Cx, Value};
use super::syntax::*;
use relax_ir::op::{Default, OpDecl, ParamDecl, ParamKind, Takes};
use relax_ir::{AttrValue, Diagnostic};

impl<'a> Cx<'a> {
    /// The attribute `param` of a call of `decl`.
    pub(super) fn attribute(&mut self, decl: &'static OpDecl, param: &ParamDecl, e: &Expr<'a>) -> Option<AttrValue> {
        if matches!(e.kind, ExprKind::None) {
            if may_be_none(decl, param) {
                return Some(AttrValue::None);
            }
            let message = format!("`{}` of R.{} cannot be None", param.name, decl.name);
            return self.report(Diagnostic::error("argument", e.span, message).help(signature(decl)));
        }
        if param.name == "dst_vdevice" {
            if e.as_str().is_some() {
                return self.listed_device(e, true).map(AttrValue::Str);
            }
            let device = e.called().is_some_and(|n| matches!(n.as_str(), "I.vdevice" | "R.device"));
            if decl.name == "to_vdevice" && !device && !matches!(e.kind, ExprKind::Name(_)) {
                return self.takes(decl, param, e, "a device");
            }
        }
        match (decl.name, param.name) {
            ("topk", "k") if e.called().as_deref() != Some("R.const") && self.number(e) != Some(false) => {
                return self.takes(decl, param, e, "a constant integer");
            }
            (_, "roi") if e.elements().is_none() && self.number(e) != Some(true) => {
                return self.takes(decl, param, e, "a list of numbers");
            }
            ("nn.attention" | "nn.attention_bias" | "nn.attention_var_len", "window_size")
                if self.number(e) == Some(true) =>
            {
                return self.takes(decl, param, e, "a constant integer");
            }
            (_, "variances") => {
                let numbers = e.elements().is_some_and(|l| l.iter().all(|i| self.number(i).is_some()));
                if !numbers {
                    return self.takes(decl, param, e, "a list of numbers");
                }
            }
            _ => {}
        }
        match param.takes(decl) {
            Takes::Scalar => {
                self.of_its_type(decl, param, e)?;
                self.attr_value(e)
            }
            Takes::Rule | Takes::Scalars => self.attr_value(e),
            Takes::DType => match e.as_str() {
                // How TVM 0.25 and before says that the result has the operands' type.
                Some("void" | "") => Some(AttrValue::None),
                // `T.float32` and `R.dtype(..)` are values, no names of types.
                None if !matches!(e.kind, ExprKind::Name(_)) => self.takes(decl, param, e, "a data type in quotes"),
                _ => self.dtype(e).map(|d| AttrValue::Str(d.to_string())),
            },
            Takes::Str => match e.kind {
                ExprKind::Str(_) => self.attr_value(e),
                ExprKind::Name(_) if self.number(e).is_some() => self.attr_value(e),
                _ => self.takes(decl, param, e, "a string"),
            },
            Takes::Int => match self.number(e) {
                Some(false) => Some(whole(self.attr_value(e)?)),
                _ => self.takes(decl, param, e, "a constant integer"),
            },
            Takes::Bool => match self.number(e) {
                Some(false) => Some(match whole(self.attr_value(e)?) {
                    AttrValue::Int(v) => AttrValue::Bool(v != 0),
                    other => other,
                }),
                _ => self.takes(decl, param, e, "True or False"),
            },
            Takes::Float => match self.number(e) {
                Some(_) => Some(match whole(self.attr_value(e)?) {
                    AttrValue::Int(v) => AttrValue::Float(v as f64),
                    other => other,
                }),
                None => self.takes(decl, param, e, "a constant number"),
            },
            Takes::Ints => match e.elements() {
                Some(items) => self.whole_numbers(decl, param, items),
                None if matches!(e.kind, ExprKind::Name(_)) => self.attr_value(e),
                None => self.takes(decl, param, e, "a list of constant integers"),
            },
            Takes::IntOrInts => match (e.elements(), self.number(e)) {
                (Some(items), _) => self.whole_numbers(decl, param, items),
                (None, Some(false)) => Some(whole(self.attr_value(e)?)),
                _ => self.takes(decl, param, e, "a constant integer or a list of them"),
            },
        }
    }

    fn whole_numbers(&mut self, decl: &'static OpDecl, param: &ParamDecl, items: &[Expr<'a>]) -> Option<AttrValue> {
        let mut list = vec![];
        for item in items {
            match self.number(item) {
                Some(false) => list.push(whole(self.attr_value(item)?)),
                _ if item.is_error() => return None,
                _ => {
                    let of = format!("an element of `{}` of R.{}", param.name, decl.name);
                    let message = format!("{of} is a constant integer, not {}", item.describe());
                    return self.error("argument", item.span, message);
                }
            }
        }
        Some(AttrValue::List(list))
    }

    /// "`axis` of R.sum is an integer, not a string".
    fn takes<T>(&mut self, decl: &OpDecl, param: &ParamDecl, e: &Expr<'a>, what: &str) -> Option<T> {
        if e.is_error() {
            return None;
        }
        let (of, given) = (format!("`{}` of R.{}", param.name, decl.name), e.describe());
        self.error("argument", e.span, format!("{of} is {what}, not {given}"))
    }

    /// Is this a number of Python, and one with a fraction? Scalars of Relax and TIR are none.
    fn number(&self, e: &Expr<'a>) -> Option<bool> {
        match &e.kind {
            ExprKind::Int(_) | ExprKind::Bool(_) => Some(false),
            ExprKind::Float(_) => Some(true),
            ExprKind::Unary(_, a) => self.number(a),
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.number(a)?, self.number(b)?);
                Some(a || b || matches!(op, BinaryOp::Div))
            }
            ExprKind::Call(_) => match e.called().as_deref() {
                Some("float") => Some(true),
                Some("int" | "len" | "max" | "min" | "abs" | "sum") => Some(false),
                _ => None,
            },
            ExprKind::Name(n) => match self.names.get(n) {
                Some(Value::Relax(_) | Value::Prim(_)) => None,
                _ if self.names.prim(n).is_some() => None,
                _ => Some(false),
            },
            _ => None,
        }
    }

    /// `R.assert_op(condition, format_args=None, format="")`, with the values and the format by name where they stand by
    /// position. TVM prints all values one after the other before `format=..`.
    pub(super) fn assert_call(&mut self, call: &CallExpr<'a>) -> Option<CallExpr<'a>> {
        let mut new = call.clone();
        let named = new.keywords.iter().any(|(k, _)| k.name == "format");
        let mut values = new.args.split_off(new.args.len().min(1));
        if !named && values.len() > 1 {
            let format = values.remove(1);
            if let Some(e) = values.get(1) {
                return self.error("argument", e.span, "R.assert_op takes a condition, the values and a format");
            }
            new.keywords.push((Ident { name: "format", span: format.span }, format));
        }
        if let Some(at) = new.keywords.iter().position(|(k, _)| k.name == "format_args") {
            let (k, e) = new.keywords.remove(at);
            if !values.is_empty() {
                return self.error("argument", k.span, "`format_args` of R.assert_op is given twice");
            }
            values.push(e);
        }
        if let [one] = values.as_slice() {
            if one.as_str().is_some() || self.number(one).is_some() {
                let what = "the values of the format: a list of them, or one value of Relax,";
                return self.expected(one, what);
            }
            values = match (&one.kind, one.elements()) {
                (ExprKind::None, _) => vec![],
                (_, Some(items)) => items.to_vec(),
                _ => values,
            };
        }
        new.args.extend(values);
        Some(new)
    }

    /// Refuses what is written for an operand that must be a scalar, a list of them, a data type or a name, and is
    /// none. `None` when it was refused.
    pub(super) fn of_its_type(&mut self, decl: &'static OpDecl, param: &ParamDecl, e: &Expr<'a>) -> Option<()> {
        let call = e.called();
        let called = |names: &[&str]| call.as_deref().is_some_and(|n| names.contains(&n));
        let text = matches!(e.kind, ExprKind::Str(_)) || called(&["R.str", "R.dtype"]);
        let list = e.elements().is_some() || called(&["R.shape", "R.tuple"]);
        match param.takes(decl) {
            Takes::Scalar => {
                let none = matches!(e.kind, ExprKind::None) && !matches!(param.default, Default::None);
                let part = self.number(e) == Some(true) && param.name.starts_with("return_");
                let step = matches!(e.kind, ExprKind::None) && matches!(param.name, "step" | "k");
                if text || list || part || none || step || called(&["R.const"]) {
                    return self.takes(decl, param, e, "a scalar: a number, a dim or R.prim_value(..)");
                }
            }
            Takes::Scalars => {
                let float = |i: &Expr<'a>| self.number(i) == Some(true);
                let wrong = e.elements().is_some_and(|items| items.iter().any(float));
                let scalar = self.number(e).is_some() && !matches!(e.kind, ExprKind::Name(_))
                    || call.as_deref().is_some_and(|n| n.starts_with("T."));
                if text || wrong || scalar || called(&["R.shape", "R.const", "R.prim_value"]) {
                    return self.takes(decl, param, e, "a list of integers");
                }
            }
            _ if param.name == "format" => {
                let python = matches!(e.kind, ExprKind::Name(_)) && self.number(e).is_some();
                if !matches!(e.kind, ExprKind::Str(_)) && !python && !called(&["R.str"]) {
                    return self.takes(decl, param, e, "a format in quotes");
                }
            }
            _ if param.name == "dtype" && param.kind == ParamKind::Operand => {
                if e.elements().is_some() || self.number(e).is_some() && !matches!(e.kind, ExprKind::Name(_)) {
                    return self.takes(decl, param, e, "a data type");
                }
                if let Some(name) = e.as_str().filter(|s| !matches!(*s, "" | "void")) {
                    self.dtype_text(name, e.span)?;
                }
            }
            _ if param.name == "storage_scope"
                && !matches!(e.kind, ExprKind::Str(_) | ExprKind::Name(_))
                && !called(&["R.str"]) =>
            {
                return self.takes(decl, param, e, "the name of a scope in quotes");
            }
            _ => {}
        }
        Some(())
    }
}

/// True and False are 1 and 0 where a number is wanted, and what Python computes is a number.
fn whole(v: AttrValue) -> AttrValue {
    match &v {
        AttrValue::Bool(b) => AttrValue::Int(*b as i64),
        AttrValue::Prim(p) => match (p.as_int(), p.as_float()) {
            (Some(n), _) => AttrValue::Int(n),
            (None, Some(f)) => AttrValue::Float(f),
            _ => v,
        },
        _ => v,
    }
}

/// Attributes that TVM takes `None` for: those that it is the default of, and these.
fn may_be_none(decl: &OpDecl, param: &ParamDecl) -> bool {
    const OPTIONAL: [(&str, &str); 7] = [
        ("argsort", "dtype"),
        ("concat", "axis"),
        ("cumprod", "exclusive"),
        ("cumsum", "exclusive"),
        ("meshgrid", "indexing"),
        ("stack", "axis"),
        ("topk", "dtype"),
    ];
    matches!(param.default, Default::None) || OPTIONAL.contains(&(decl.name, param.name))
}
