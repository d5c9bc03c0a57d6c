//! Statements in the words of TVM's script builder: `with T.While(..)`, `T.break_loop()`, `T.static_assert(..)`.
//!
//! Source: TVM python/tvm/tirx/script/builder/ir.py and `visit_expr_stmt` of its parser.

use super::*;

/// `T.break_loop()` and its kin, in `T.evaluate` or not: does it leave the loop?
pub(super) fn jump_call(e: &Expr) -> Option<bool> {
    match (e.called()?.as_str(), e.as_call()?.args.as_slice()) {
        ("T.evaluate", [inner]) => jump_call(inner),
        ("T.break_loop", []) => Some(true),
        ("T.continue_loop", []) => Some(false),
        _ => None,
    }
}

/// A mark for a profiler, which code for processors does not have.
///
/// Source: TVM src/target/llvm/codegen_llvm.cc: `start_profile_intrinsic` is no code but for Hexagon.
fn profile_mark(e: &Expr) -> bool {
    let mark = matches!(e.called().as_deref(), Some("T.start_profile_intrinsic" | "T.end_profile_intrinsic"));
    mark && e.as_call().is_some_and(|c| matches!(c.args.as_slice(), [id] if matches!(id.kind, ExprKind::Int(_))))
}

/// A value that says something of types or of the processor, and computes nothing where it is not used.
///
/// Source: TVM src/target/llvm/codegen_llvm.cc has no code for `type_annotation`; `vscale` is one of processors with scalable vectors.
fn speaks_of_types(e: &Expr) -> bool {
    let args = e.as_call().map_or(0, |c| c.args.len() + c.keywords.len());
    match e.called().as_deref() {
        Some("T.type_annotation" | "T.llvm_lookup_intrinsic_id") => args == 1,
        Some("T.vscale") => args == 0,
        _ => false,
    }
}

impl<'a> Cx<'a> {
    /// A statement that is none of PrimFuncs in Python's words; `None` where `e` is another one.
    pub(super) fn builder_statement(&mut self, e: &Expr<'a>, span: Span, f: &mut PrimCx) -> Option<Option<Vec<Item>>> {
        if let Some(out) = jump_call(e) {
            return Some(self.jump(out, span, f));
        }
        let nothing = |known: Option<()>| Some(known.map(|()| vec![]));
        if let ExprKind::None = e.kind {
            return nothing(Some(()));
        }
        if let Some(name) = e.as_name().filter(|n| self.names.get(n).is_some() || self.names.dims.contains_key(n)) {
            return nothing((!matches!(self.names.get(name), Some(Value::Poison))).then_some(()));
        }
        if let Some(pointer) = self.pointer(e) {
            return nothing(pointer.map(|_| ()));
        }
        let call = e.as_call()?;
        if let ("T.evaluate", Some(inner)) = (e.called()?.as_str(), call.arg(0, "value")) {
            if let (Some("T.tvm_stack_alloca"), Some(of)) = (inner.called().as_deref(), inner.as_call()) {
                return nothing(self.stack_memory("memory", of, span).map(|_| ()));
            }
            if let Some(pointer) = self.pointer(inner) {
                return nothing(pointer.map(|_| ()));
            }
        }
        match (e.called()?.as_str(), call.args.as_slice(), call.keywords.as_slice()) {
            ("T.evaluate", [inner], []) | ("T.evaluate", [], [(_, inner)]) if self.text_of(inner).is_some() => {
                nothing(Some(()))
            }
            ("T.evaluate", [], [(k, inner)]) if k.name == "value" => {
                let value = self.prim(inner);
                Some(value.map(|v| vec![Item::Stmt(TStmt::at(TKind::Evaluate(v), span))]))
            }
            // Advice to schedulers; where the part of the kernel begins that a device runs.
            ("T.hint", ..) | ("T.device_entry", [], []) => nothing(Some(())),
            ("T.evaluate", [inner], []) if profile_mark(inner) => nothing(Some(())),
            _ if profile_mark(e) => nothing(Some(())),
            ("T.evaluate", [inner], []) if speaks_of_types(inner) => nothing(self.spoken_of(inner)),
            _ if speaks_of_types(e) => nothing(self.spoken_of(e)),
            ("T.static_assert", ..) => nothing(self.static_assertion(call, span)),
            ("T.Assert", ..) => Some(self.assertion_of(call, span).map(|s| vec![Item::Stmt(s)])),
            _ => None,
        }
    }

    /// The type or the function that [`speaks_of_types`] names is one.
    fn spoken_of(&mut self, e: &Expr<'a>) -> Option<()> {
        match (e.called().as_deref(), e.as_call().and_then(|c| c.args.first())) {
            (Some("T.type_annotation"), Some(dtype)) => self.dtype(dtype).map(|_| ()),
            (Some("T.llvm_lookup_intrinsic_id"), Some(name)) => self.string(name).map(|_| ()),
            _ => Some(()),
        }
    }

    /// Python looks at the condition while it reads: it is made of literals.
    fn static_assertion(&mut self, call: &CallExpr<'a>, span: Span) -> Option<()> {
        let Some(x) = call.arg(0, "x") else {
            return self.error("argument", span, "T.static_assert takes a condition");
        };
        let holds = match self.num(x)? {
            Num::Int(v) => v != 0,
            Num::Float(v, _) => v != 0.0,
            Num::Expr(p) => match p.as_int() {
                Some(v) => v != 0,
                None => return self.error("type", x.span, "Python cannot decide this while it reads the kernel"),
            },
        };
        if holds {
            return Some(());
        }
        self.error("tir", span, "this static assertion does not hold")
    }

    /// `T.Assert(condition, message)`
    pub(super) fn assertion_of(&mut self, call: &CallExpr<'a>, span: Span) -> Option<TStmt> {
        let (Some(cond), Some(message)) = (call.arg(0, "condition"), call.arg(1, "message")) else {
            return self.error("argument", span, "T.Assert takes a condition and a message");
        };
        let (cond, message) = (self.condition(cond), self.assertion(message));
        Some(TStmt::at(TKind::Assert { cond: cond?, message: message? }, span))
    }

    /// What an assertion says: a text, or the kind of error and the parts of the text.
    pub(super) fn assertion(&mut self, e: &Expr<'a>) -> Option<String> {
        match e.elements() {
            Some([_, parts]) => match parts.elements() {
                Some(parts) => parts.iter().map(|p| self.string(p)).collect(),
                None => self.string(parts),
            },
            _ => self.string(e),
        }
    }

    /// `while` in either spelling.
    pub(super) fn while_loop(
        &mut self,
        cond: &Expr<'a>,
        body: &[Stmt<'a>],
        span: Span,
        f: &mut PrimCx,
    ) -> Option<TStmt> {
        if f.loops.iter().any(|(kind, single)| *kind == ForKind::Vectorized && !single) {
            let d = Diagnostic::error("tir", first_line(self.text, span), "a vectorised loop holds no `while`");
            return self.report(d.help("make the loop around it serial"));
        }
        let cond = if cond.is_error() { None } else { self.condition(cond) };
        f.jumps.push(Jumps::default());
        let body = self.nested(body, f);
        let jumps = f.jumps.pop().unwrap_or_default();
        let body = jumps.round(body);
        let cond = jumps.condition(cond?);
        Some(jumps.around(TStmt::at(TKind::While { cond, body }, span)))
    }

    /// `with T.If(condition):` around `with T.Then():` and `with T.Else():`.
    pub(super) fn if_statement(
        &mut self,
        call: &CallExpr<'a>,
        body: &[Stmt<'a>],
        span: Span,
        f: &mut PrimCx,
    ) -> Option<TStmt> {
        let usage = "T.If holds `with T.Then():` and perhaps `with T.Else():`";
        let Some(cond) = call.arg(0, "condition") else {
            return self.error("argument", span, "T.If takes a condition");
        };
        let cond = self.condition(cond);
        let other = cond.clone().map(PrimExpr::not);
        let (mut then, mut otherwise) = (None, None);
        for s in body {
            let part = match &s.kind {
                StmtKind::With { items, body } => match items.as_slice() {
                    [(item, None)] => item.called().map(|what| (what, body)),
                    _ => None,
                },
                _ => None,
            };
            match part {
                Some((what, body)) if what == "T.Then" && then.is_none() => {
                    then = Some(self.kernel_branch(body, cond.clone(), f))
                }
                Some((what, body)) if what == "T.Else" && otherwise.is_none() => {
                    otherwise = Some(self.kernel_branch(body, other.clone(), f));
                }
                _ => return self.error("tir", s.span, usage),
            }
        }
        let Some(then) = then else { return self.error("tir", first_line(self.text, span), usage) };
        Some(TStmt::at(TKind::If { cond: cond?, then, otherwise }, span))
    }

    /// `T.let` of the memory of a buffer: a pointer to its elements, where a type is stated.
    pub(super) fn pointer_let(&mut self, annotation: &Expr<'a>, to: Option<DType>) -> bool {
        let ExprKind::Subscript(base, of) = &annotation.kind else {
            return annotation.dotted().as_deref() == Some("T.let");
        };
        let handle = of.as_call().filter(|c| c.func.dotted().as_deref() == Some("T.handle"));
        let stated = handle.and_then(|c| c.arg(0, "dtype"));
        let stated = match stated {
            Some(t) if t.as_str() == Some("void") => None,
            Some(t) => Some(self.dtype(t)),
            None if handle.is_some() || of.dotted().as_deref() == Some("T.handle") => None,
            None => return false,
        };
        base.dotted().as_deref() == Some("T.let") && stated == to.map(Some)
    }

    /// A name that the scope under way has already stands for that: Python would bind it again, TVM does not. Names of
    /// values are given another value.
    pub(super) fn bound_once(&mut self, target: &Expr<'a>, again: bool, f: &PrimCx) -> Option<()> {
        let Some(name) = target.as_name() else { return Some(()) };
        let assigned = match self.names.own(name) {
            None if self.names.is_declared(name) => false,
            None | Some(Value::Poison) => return Some(()),
            Some(Value::Prim(v)) => f.scalars.contains(v),
            Some(Value::Buffer(b)) => b.ndim() == 0 || b.ndim() == 1 && b.shape[0].is_int(1) || self.vector_cell(b),
            Some(_) => false,
        };
        if again && assigned {
            return Some(());
        }
        let d = Diagnostic::error("tir", target.span, format!("`{name}` is defined in this scope already"));
        self.report(d.help("take another name"))
    }

    /// The elements of a list with a name are values of TVM, each of which has a name of its own there: no texts, no dictionaries.
    ///
    /// Source: TVM `tirx.script.parser.parser`, `bind_assign_value`.
    pub(super) fn list_of_values(&mut self, e: &Expr<'a>) -> Option<()> {
        for item in e.elements().unwrap_or(&[]) {
            self.list_of_values(item)?;
            if matches!(item.kind, ExprKind::Str(_) | ExprKind::None | ExprKind::Dict(_) | ExprKind::Lambda(..)) {
                let message = format!("an element of a list in a kernel is a value, not {}", item.describe());
                return self.report(Diagnostic::error("tir", item.span, message).help("write T.meta_var([..])"));
            }
        }
        Some(())
    }
}

/// A name for what only code for other devices gives a value: a pointer to come, the number of a thread.
pub(super) fn valueless(call: &CallExpr) -> bool {
    match call.func.dotted().as_deref() {
        Some("T.handle") => !call.args.is_empty(),
        Some("T.ptr" | "T.buffer_var" | "T.env_thread") => true,
        _ => false,
    }
}

/// What makes a loop of one variable.
const LOOPS: [&str; 4] = ["T.serial", "T.parallel", "T.vectorized", "T.unroll"];

/// `v = T.parallel(8)`: a loop that nobody goes through. TVM's parser takes it as a statement, and no name for it in a `for`.
pub(super) fn idle_loop(value: &Expr) -> bool {
    value.called().is_some_and(|c| LOOPS.contains(&c.as_str()))
}

/// The elements of `T.meta_var([..])`, and the call.
pub(super) fn held_list<'e, 'a>(value: &'e Expr<'a>) -> Option<(&'e CallExpr<'a>, &'e [Expr<'a>])> {
    let call = value.as_call().filter(|_| several(value))?;
    Some((call, call.args.first()?.elements()?))
}

/// `T.meta_var(..)` of what Python has: a literal, a list, a tuple, a dictionary, a lambda.
pub(super) fn several(value: &Expr) -> bool {
    let made = matches!(value.called().as_deref(), Some("T.meta_var" | "I.meta_var"));
    let inner = value.as_call().filter(|_| made).and_then(|c| c.args.first());
    inner.is_some_and(|e| {
        let list = matches!(e.kind, ExprKind::Tuple(_) | ExprKind::List(_) | ExprKind::Dict(_));
        let named = ["T.Range", "T.iter_var", "T.comm_reducer", "T.index_map", "T.grid", "T.llvm_lookup_intrinsic_id"];
        let named = named.iter().chain(&LOOPS);
        if e.called().is_some_and(|c| named.into_iter().any(|n| *n == c)) {
            return true;
        }
        let literal = matches!(
            e.kind,
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Bool(_) | ExprKind::Str(_) | ExprKind::None
        );
        list || literal || matches!(e.kind, ExprKind::Lambda(..) | ExprKind::Comprehension(_))
    })
}
