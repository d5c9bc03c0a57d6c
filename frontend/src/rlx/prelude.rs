//! What stands before the module: TypeVars, metadata, dims, and values that Python has while it reads the module
//! (`N = 4`, `shape = (2, N)`, `n = T.int64()`). And names of Python that a function's values may hide (`R`, `T`, `I`).

use super::context::{Births, Cx, Value};
use super::relax_func::declared_var;
use super::syntax::*;
use super::tir_func::scalar_type;
use relax_ir::{DType, Diagnostic, Span};

impl<'a> Cx<'a> {
    /// Lines before the module.
    pub fn prelude(&mut self, target: &Expr<'a>, value: &Expr<'a>) {
        if let (Some(names), Some(values)) = (target.elements(), value.elements()) {
            if names.len() == values.len() {
                names.iter().zip(values).for_each(|(n, v)| self.prelude(n, v));
                return;
            }
        }
        match (target.as_name(), value.called().as_deref(), value.as_call()) {
            (Some(name), Some("TypeVar"), Some(call)) => self.type_var(name, call),
            (Some("metadata"), Some("tvm.ir.load_json"), Some(call)) => self.load_metadata(call, value.span),
            // Each function that names it in its signature has a dim of its own, as with a TypeVar.
            (Some(name), ..) if declared_var(value) == Some(DType::I64) => self.type_vars.push(name),
            // Another name for what has one.
            (Some(name), ..) if value.as_name().is_some_and(|n| self.before.iter().any(|(name, _)| *name == n)) => {
                let Some(held) = value.as_name().and_then(|n| self.names.get(n)).cloned() else { return };
                self.names.bind(name, held.clone());
                self.before.push((name, held));
            }
            (Some(name), ..) if self.of_python(value, &mut vec![]) => {
                let Ok(new) = self.computed(value) else { return };
                let held = self.python_value(new.as_ref().unwrap_or(value));
                self.names.bind(name, held.clone());
                self.before.push((name, held));
            }
            _ => {
                if value.is_error() {
                    return;
                }
                let d = Diagnostic::error("module", target.span.to(value.span), "this line is not understood here");
                self.diags.push(d.help(
                    "before the module stand `n = TypeVar(\"n\")`, `metadata = ..` and names for values: `N = 4`",
                ));
            }
        }
    }

    fn type_var(&mut self, name: &'a str, call: &CallExpr<'a>) {
        if let Some(stated) = call.args.first().filter(|a| a.as_str().is_some_and(|s| s != name)) {
            let d = Diagnostic::error("module", stated.span, format!("the TypeVar `{name}` has another name here"));
            self.diags.push(d.help(format!("write {name} = TypeVar(\"{name}\")")));
        }
        if let Some(at) = call.args.get(1).map(|a| a.span).or(call.keywords.first().map(|(k, _)| k.span)) {
            let d = Diagnostic::error("module", at, format!("the TypeVar `{name}` stands for any size"));
            self.diags.push(d.help("leave bounds and constraints out"));
        }
        self.type_vars.push(name);
    }

    /// A TypeVar that the signature of a kernel names, not in quotes, is defined there: its body does not declare it again.
    pub fn type_vars_defined(&mut self, e: &Expr<'a>) {
        if self.names.births != Births::Signature || !self.names.of_kernel() {
            return;
        }
        if let Some(n) = e.as_name().filter(|n| self.type_vars.contains(n) && !self.names.is_declared(n)) {
            self.names.note_declared(n);
        }
        e.children().into_iter().for_each(|c| self.type_vars_defined(c));
    }

    /// A literal, a call of TVMScript, or what Python makes of such and of those before it. `bound` are the names of comprehensions
    /// around it.
    fn of_python(&self, e: &Expr<'a>, bound: &mut Vec<&'a str>) -> bool {
        let before = |n: &str| self.before.iter().any(|(name, _)| *name == n);
        match &e.kind {
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Bool(_) | ExprKind::Str(_) | ExprKind::None => true,
            ExprKind::Lambda(..) => true,
            ExprKind::Name(n) => bound.contains(n) || before(n),
            ExprKind::Tuple(_)
            | ExprKind::List(_)
            | ExprKind::Dict(_)
            | ExprKind::Unary(..)
            | ExprKind::Binary(..)
            | ExprKind::Subscript(..)
            | ExprKind::Slice(..)
            | ExprKind::Starred(_)
            | ExprKind::Ternary { .. } => e.children().into_iter().all(|c| self.of_python(c, bound)),
            ExprKind::Comprehension(c) => {
                let depth = bound.len();
                for clause in &c.clauses {
                    let targets = clause.target.elements().unwrap_or(std::slice::from_ref(&clause.target));
                    bound.extend(targets.iter().filter_map(Expr::as_name));
                }
                let clauses = c.clauses.iter().flat_map(|c| c.conditions.iter().chain([&c.iter]));
                let all = clauses.chain(c.key.iter()).chain([&c.element]).all(|part| self.of_python(part, bound));
                bound.truncate(depth);
                all
            }
            ExprKind::Call(call) => {
                let own = ["len", "max", "min", "sum", "sorted", "list", "tuple", "range", "zip", "enumerate", "str"];
                let made = |n: &str| own.contains(&n) || before(n);
                let script = match call.func.dotted() {
                    Some(n) if n.starts_with("T.") => n == "T.Buffer" || scalar_type(&call.func).is_some(),
                    Some(n) => n.starts_with("R.") || n.starts_with("I.vdevice") || made(&n),
                    None => false,
                };
                let mut all = call.args.iter().chain(call.keywords.iter().map(|(_, v)| v));
                script && all.all(|a| self.of_python(a, bound))
            }
            _ => false,
        }
    }

    /// The names of Python's values before the module, for a function of Relax.
    pub fn begin_names(&mut self) {
        self.names = self.names.following(DType::I64);
        for (name, value) in &self.before {
            self.names.bind(name, value.clone());
        }
    }

    /// As [`Cx::begin_names`], for a kernel: its own names are in a scope within.
    pub fn begin_kernel_names(&mut self) {
        self.begin_names();
        self.names.int = DType::I32;
        self.names.push();
    }

    /// `R`, `T` and `I` are names like others: where a value took one, nothing of TVMScript is found behind it.
    pub fn script_is_visible(&mut self, e: &Expr<'a>) -> Option<()> {
        if let ExprKind::Attribute(base, field) = &e.kind {
            if let Some(letter @ ("R" | "T" | "I")) = base.as_name() {
                if matches!(self.names.get(letter), Some(Value::Relax(_) | Value::Prim(_))) {
                    let message = format!("`{letter}` is a value of this function, it has no `{}`", field.name);
                    let d = Diagnostic::error("unknown-name", base.span, message);
                    return self.report(d.help(format!("give the value another name than `{letter}`")));
                }
            }
        }
        e.children().into_iter().try_for_each(|c| self.script_is_visible(c))
    }

    /// Is one of the letters of TVMScript hidden by a value?
    pub fn letters_hidden(&self) -> bool {
        ["R", "T", "I"].iter().any(|n| matches!(self.names.get(n), Some(Value::Relax(_) | Value::Prim(_))))
    }

    /// As [`Cx::script_is_visible`], for what a statement itself says (statements inside of it come later).
    pub fn script_is_visible_to(&mut self, s: &Stmt<'a>) -> Option<()> {
        if !self.letters_hidden() {
            return Some(());
        }
        let all: Vec<&Expr<'a>> = match &s.kind {
            StmtKind::Assign { annotation, value, .. } => annotation.iter().chain(value).collect(),
            StmtKind::Expr(e) | StmtKind::Return(Some(e)) => vec![e],
            StmtKind::If { cond, .. } => vec![cond],
            StmtKind::With { items, .. } => items.iter().map(|(e, _)| e).collect(),
            StmtKind::Function(def) => def.decorators.iter().collect(),
            _ => vec![],
        };
        all.into_iter().try_for_each(|e| self.script_is_visible(e))
    }

    /// A local function takes no name that Python has for something of its own.
    pub fn local_function_name(&mut self, name: &'a str, span: Span) -> Option<()> {
        let what = match self.names.get(name) {
            Some(Value::Python(_) | Value::Module) => "a value of Python",
            None if name == self.module_name => "the module",
            None if matches!(name, "R" | "T" | "I") => "a part of TVMScript",
            _ => return Some(()),
        };
        let d =
            Diagnostic::error("syntax", span, format!("a local function cannot be called `{name}`: that is {what}"));
        self.report(d.help("give the function another name"))
    }
}
