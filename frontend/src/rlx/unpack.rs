//! `*t` and `a, b = t`: values taken apart by the number of their fields.
//!
//! TVM's parser derives the type of each binding as it goes. Here types are derived later, so the number is read off
//! the text where the text has it (an annotation, a tuple written out); otherwise the bindings before it are asked for
//! their types, in order and once, from what the analysis says of single calls. A callee's result is what it states.

use super::context::{Cx, Value};
use super::syntax::*;
use relax_ir::analysis::{infer_expr, signature};
use relax_ir::relax::{
    Binding, BindingValue, Callee, Expr as RExpr, ExprKind as RKind, RVar, StructInfo, StructInfoMap, TensorInfo,
};
use relax_ir::sym::Facts;
use relax_ir::{Diagnostic, IRModule, Span};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// The indices of the fields that can be taken apart.
static INDICES: LazyLock<Vec<String>> = LazyLock::new(|| (0..1024).map(|i: usize| i.to_string()).collect());

/// What is known of the types of a function's variables while its text is read.
#[derive(Default)]
pub struct Types {
    known: StructInfoMap,
    /// Bindings that nobody has asked about.
    later: Vec<(RVar, RExpr)>,
}

impl Types {
    pub fn state(&mut self, var: &RVar, info: &StructInfo) {
        self.known.insert(var.clone(), info.clone());
    }

    /// To be told of every binding, in order; those of a local function before its own.
    pub fn bind(&mut self, b: &Binding) {
        match (&b.annotation, &b.value) {
            (Some(info), _) | (None, BindingValue::MatchCast { struct_info: info, .. }) => self.state(&b.var, info),
            (None, BindingValue::Expr(e)) => self.later.push((b.var.clone(), e.clone())),
        }
    }

    fn of(&mut self, var: &RVar, results: &HashMap<&str, StructInfo>) -> &StructInfo {
        for (var, value) in std::mem::take(&mut self.later) {
            let info = self.infer(&value, results);
            self.known.insert(var, info);
        }
        self.known.get(var).unwrap_or(&StructInfo::Object)
    }

    /// Any object where nothing is known.
    fn infer(&self, e: &RExpr, results: &HashMap<&str, StructInfo>) -> StructInfo {
        let info = match e.kind() {
            RKind::If { then, .. } => return self.infer(&then.body, results),
            RKind::Tuple(fields) => {
                return StructInfo::Tuple(fields.iter().map(|f| self.infer(f, results)).collect());
            }
            RKind::TupleGetItem(t, i) => match self.infer(t, results) {
                StructInfo::Tuple(fields) => fields.get(*i).cloned(),
                _ => None,
            },
            RKind::Function(f) => {
                let mut info = signature::of_function(f);
                if f.ret.is_none() {
                    info.ret = self.infer(&f.body.body, results);
                }
                Some(StructInfo::Func(Arc::new(info)))
            }
            RKind::Call(c) => match &c.callee {
                Callee::Expr(f) => match f.kind() {
                    RKind::GlobalVar(name) => results.get(name.as_str()).cloned(),
                    _ => self.asked(e),
                },
                Callee::Op(_) => self.asked(e),
            },
            _ => self.asked(e),
        };
        info.unwrap_or(StructInfo::Object)
    }

    fn asked(&self, e: &RExpr) -> Option<StructInfo> {
        infer_expr(&mut Facts::new(), e, &self.known, &IRModule::default()).ok()
    }
}

/// What a function states of its result, as far as tuples go.
pub fn outline(e: &Expr) -> StructInfo {
    let name = e.called().or_else(|| e.dotted());
    match (name.as_deref(), e.as_call()) {
        (Some("R.Tuple"), Some(c)) => {
            let fields = match c.args.as_slice() {
                [one] if one.elements().is_some() => one.elements().unwrap_or(&[]),
                many => many,
            };
            StructInfo::Tuple(fields.iter().map(outline).collect())
        }
        (Some("R.Tensor"), _) => StructInfo::Tensor(TensorInfo { shape: None, dtype: None, ndim: None, vdevice: None }),
        _ => StructInfo::Object,
    }
}

/// The name in `*rest`, a target that takes what the others leave.
pub fn starred_name<'a>(target: &Expr<'a>) -> Option<&'a str> {
    match &target.kind {
        ExprKind::Starred(inner) => inner.as_name(),
        _ => None,
    }
}

impl<'a> Cx<'a> {
    /// The number of fields of `t`, `t[0]`, ..; `None` for what is no name, or no tuple for all that is known.
    fn fields(&mut self, e: &Expr<'a>) -> Option<usize> {
        match self.part(e)? {
            StructInfo::Tuple(f) if f.len() <= INDICES.len() => Some(f.len()),
            _ => None,
        }
    }

    /// `x.ty` where a type stands: that of a variable, as far as the text before tells it.
    pub fn type_of(&mut self, e: &Expr<'a>) -> Option<StructInfo> {
        match self.part(e) {
            Some(info) if info != StructInfo::Object => Some(info),
            _ => self.expected(e, "a variable whose type is known"),
        }
    }

    /// The type of `x`, `x[0]`, .. as far as the text before tells it.
    pub fn part(&mut self, e: &Expr<'a>) -> Option<StructInfo> {
        match &e.kind {
            ExprKind::Name(n) => match self.names.get(n) {
                Some(Value::Relax(v)) => {
                    let v = v.clone();
                    Some(self.names.types.of(&v, &self.results).clone())
                }
                _ => None,
            },
            ExprKind::Subscript(base, index) => match (self.part(base)?, &index.kind) {
                (StructInfo::Tuple(f), ExprKind::Int(i)) => f.get(i.parse::<usize>().ok()?).cloned(),
                _ => None,
            },
            _ => None,
        }
    }

    fn field(e: &Expr<'a>, i: usize, span: Span) -> Option<Expr<'a>> {
        let depth = e.depth + 1;
        let index = Expr { kind: ExprKind::Int(INDICES.get(i)?.as_str().into()), span, depth };
        Some(Expr { kind: ExprKind::Subscript(Box::new(e.clone()), Box::new(index)), span, depth })
    }

    /// `*t` as `t[0], t[1], ..`; `None` where nothing is unpacked, or the number of fields is not known.
    pub fn unpacked(&mut self, items: &[Expr<'a>]) -> Option<Vec<Expr<'a>>> {
        items.iter().find(|e| matches!(e.kind, ExprKind::Starred(_)))?;
        let mut out = vec![];
        for e in items {
            let ExprKind::Starred(inner) = &e.kind else {
                out.push(e.clone());
                continue;
            };
            for i in 0..self.fields(inner)? {
                out.push(Self::field(inner, i, e.span)?);
            }
        }
        Some(out)
    }

    /// What to say of a `*value` that stays: its fields cannot be counted.
    pub fn uncounted<T>(&mut self, value: &Expr<'a>, span: Span) -> Option<T> {
        if matches!(self.part(value), Some(StructInfo::Tensor(_) | StructInfo::Shape { .. } | StructInfo::Func(_))) {
            return self.error("type", span, "this value is no tuple: it has no fields to unpack");
        }
        let d = Diagnostic::unsupported("syntax", span, "the number of these fields is not written down");
        self.report(d.help("bind them to a tuple, or give the variable a type R.Tuple(..)"))
    }

    /// The names and values of `a, (b, c) = t`, as if each stood alone; `None` where it was reported.
    pub fn taken_apart<'e>(
        &mut self,
        target: &'e Expr<'a>,
        value: &Expr<'a>,
        out: &mut Vec<(&'e Expr<'a>, Expr<'a>)>,
    ) -> Option<()> {
        let Some(items) = target.elements() else {
            return match target.as_name().or(starred_name(target)) {
                Some(_) => {
                    out.push((target, value.clone()));
                    Some(())
                }
                None => self.expected(target, "a name"),
            };
        };
        let written = value.elements().map(|fields| self.unpacked(fields).unwrap_or_else(|| fields.to_vec()));
        let Some(n) = written.as_ref().map(Vec::len).or_else(|| self.fields(value)) else {
            if !matches!(value.kind, ExprKind::Name(_) | ExprKind::Subscript(..)) {
                let d = Diagnostic::error("syntax", target.span, "only a tuple that has a name is taken apart");
                return self.report(d.here("these are several names").label(value.span, "bind this value first"));
            }
            return self.uncounted(value, value.span);
        };
        let field = |i: usize| match &written {
            Some(fields) => fields.get(i).cloned(),
            None => Self::field(value, i, value.span),
        };
        if let Some(at) = items.iter().position(|i| starred_name(i).is_some()).filter(|_| n + 1 >= items.len()) {
            let rest = n + 1 - items.len();
            for (i, item) in items.iter().enumerate() {
                let of = match i.cmp(&at) {
                    Ordering::Less => field(i)?,
                    Ordering::Greater => field(i + rest - 1)?,
                    Ordering::Equal => {
                        let fields = (at..at + rest).map(field).collect::<Option<Vec<_>>>()?;
                        Expr { kind: ExprKind::List(fields), span: value.span, depth: value.depth + 3 }
                    }
                };
                self.taken_apart(item, &of, out)?;
            }
            return Some(());
        }
        if n != items.len() {
            let message = format!("{} names for a tuple of {n} fields", items.len());
            let d = Diagnostic::error("syntax", target.span, message);
            return self.report(d.label(value.span, format!("this has {n} fields")));
        }
        for (i, item) in items.iter().enumerate() {
            self.taken_apart(item, &field(i)?, out)?;
        }
        Some(())
    }
}
