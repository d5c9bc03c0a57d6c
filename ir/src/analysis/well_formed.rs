//! Scopes and syntax (relax_spec.md, "Well-Formedness Criteria"), before normalisation.
//!
//! Here: criteria 1, 2, 3, 10, 11, 12, 13 (ranks, shape variables of Relax), 14 (ranks), 15. Struct-info derivation
//! finds the others, which need shape variables in scope, types or the call graph: 4 to 8. Criterion 9 has no object:
//! an annotation is one struct info.

use crate::diag::{Diagnostic, Diagnostics};
use crate::module::{Func, IRModule};
use crate::relax::{
    BindingValue, Callee, Expr, ExprKind, Function, RVar, SeqExpr, StructInfo, TensorInfo, TensorShape,
};
use crate::span::Span;
use std::collections::{HashMap, HashSet};

pub fn module(m: &IRModule, diags: &mut Diagnostics) {
    let mut names: HashMap<&str, Span> = HashMap::new();
    for f in &m.funcs {
        let span = match f {
            Func::Relax(f) => f.signature_span,
            Func::Prim(f) => f.span,
        };
        if let Some(first) = names.insert(f.name(), span) {
            diags.push(
                Diagnostic::error("duplicate-function", span, format!("function `{}` is defined twice", f.name()))
                    .label(first, "first defined here"),
            );
        }
    }
    for f in &m.funcs {
        let Func::Prim(f) = f else { continue };
        let symbol = f.attrs.str("global_symbol").filter(|s| *s != f.name);
        if let Some((symbol, other)) = symbol.and_then(|s| Some((s, names.get(s)?))) {
            let message = format!("PrimFunc `{}` has the global_symbol of another function, \"{symbol}\"", f.name);
            let d = Diagnostic::error("global-symbol", f.span, message).label(*other, "this one");
            diags.push(d.help("names of functions are unique (well-formedness 12)"));
        }
    }
    let mut exported = m.funcs.is_empty();
    for f in m.relax_funcs() {
        exported |= f.global_symbol().is_some();
        if let Some(symbol) = f.attrs.str("global_symbol").filter(|s| *s != f.name) {
            diags.push(
                Diagnostic::error(
                    "global-symbol",
                    f.signature_span,
                    format!("function `{}` has the global_symbol \"{symbol}\" (well-formedness 12)", f.name),
                )
                .help("both names must be the same"),
            );
        }
        if let Some(symbol) = f.attrs.str("global_symbol").filter(|_| f.private) {
            diags.push(
                Diagnostic::error(
                    "global-symbol",
                    f.signature_span,
                    format!("function `{}` is private and has the global_symbol \"{symbol}\"", f.name),
                )
                .help("drop one of them: a private function has no symbol (well-formedness 12)"),
            );
        }
        let forced = f.attrs.get("relax.force_pure");
        if forced.is_some_and(|v| v.as_bool().is_none()) {
            let what = format!("relax.force_pure of function `{}` is no bool", f.name);
            diags.push(Diagnostic::error("purity", f.signature_span, what).help("write True or False"));
        }
        if super::signature::forced_pure(f) && !f.pure {
            diags.push(
                Diagnostic::error(
                    "purity",
                    f.signature_span,
                    format!("function `{}` is forced to count as pure, and declared impure", f.name),
                )
                .help("drop pure=False or relax.force_pure"),
            );
        }
        let mut w = Scopes {
            diags,
            bound: HashSet::new(),
            scope: HashMap::new(),
            block: 0,
            blocks: 0,
            unstated: HashMap::new(),
        };
        w.function(f, None);
    }
    let only_prims = m.relax_funcs().next().is_none();
    if !exported && !only_prims {
        diags.push(
            Diagnostic::warning(
                "no-entry",
                Span::NONE,
                "no function of the module is exported: all are private (well-formedness 11)",
            )
            .help("drop private=True from the entry function"),
        );
    }
}

struct Scopes<'d> {
    diags: &'d mut Diagnostics,
    /// Every variable bound so far, in scope or not.
    bound: HashSet<RVar>,
    /// Variables in scope, with the dataflow block that a DataflowVar belongs to.
    scope: HashMap<RVar, u32>,
    /// The dataflow block under way; 0 outside.
    block: u32,
    blocks: u32,
    /// Local functions under way that state no result, and whether they were met in their own bodies.
    unstated: HashMap<RVar, bool>,
}

impl Scopes<'_> {
    fn error(&mut self, code: &'static str, span: Span, message: String) {
        self.diags.push(Diagnostic::error(code, span, message));
    }

    fn function(&mut self, f: &Function, own: Option<&RVar>) {
        let outer = std::mem::replace(&mut self.block, 0);
        let mut undo = vec![];
        if let Some(v) = own {
            self.enter(v, 0, &mut undo);
            if f.ret.is_none() {
                self.unstated.insert(v.clone(), false);
            }
        }
        for p in &f.params {
            if p.var.is_dataflow() {
                self.error(
                    "dataflow-variable",
                    p.var.span(),
                    format!("parameter `{}` is a dataflow variable (well-formedness 1)", p.var.name()),
                );
            }
            self.bind(&p.var, p.var.span(), &mut undo);
            if let Some(a) = &p.annotation {
                self.info(a, p.var.span());
            }
        }
        if let Some(ret) = &f.ret {
            self.info(ret, f.signature_span);
        }
        self.sequence(&f.body);
        if own.and_then(|v| self.unstated.remove(v)) == Some(true) {
            let what = format!("recursive function `{}` must state its result (well-formedness 7)", f.name);
            let d = Diagnostic::error("missing-annotation", f.signature_span, what);
            self.diags.push(d.help("write `-> TYPE` after the parameters"));
        }
        self.leave(undo);
        self.block = outer;
    }

    fn enter(&mut self, v: &RVar, block: u32, undo: &mut Vec<RVar>) {
        self.scope.insert(v.clone(), block);
        undo.push(v.clone());
    }

    fn leave(&mut self, undo: Vec<RVar>) {
        for v in undo {
            self.scope.remove(&v);
        }
    }

    fn bind(&mut self, v: &RVar, span: Span, undo: &mut Vec<RVar>) {
        if !self.bound.insert(v.clone()) {
            self.error(
                "bound-twice",
                span,
                format!("variable `{}` is bound more than once (well-formedness 2)", v.name()),
            );
        }
        let block = if v.is_dataflow() { self.block } else { 0 };
        self.enter(v, block, undo);
    }

    fn sequence(&mut self, seq: &SeqExpr) {
        let mut undo = vec![];
        for block in &seq.blocks {
            let outer = self.block;
            if block.dataflow {
                self.blocks += 1;
                self.block = self.blocks;
            }
            for b in &block.bindings {
                let local = match &b.value {
                    BindingValue::Expr(e) => match e.kind() {
                        ExprKind::Function(f) => {
                            self.function(f, Some(&b.var));
                            true
                        }
                        _ => false,
                    },
                    BindingValue::MatchCast { struct_info, .. } => {
                        self.info(struct_info, b.span);
                        false
                    }
                };
                if !local {
                    self.expr(b.expr(), b.span);
                }
                if let Some(a) = &b.annotation {
                    self.info(a, b.span);
                }
                if b.var.is_dataflow() && self.block == 0 {
                    self.error(
                        "dataflow-variable",
                        b.span,
                        format!(
                            "dataflow variable `{}` is bound outside of a dataflow block (well-formedness 1)",
                            b.var.name()
                        ),
                    );
                }
                self.bind(&b.var, b.span, &mut undo);
            }
            self.block = outer;
        }
        self.expr(&seq.body, seq.body.span());
        self.leave(undo);
    }

    fn uses(&mut self, v: &RVar, span: Span) {
        if let Some(met) = self.unstated.get_mut(v) {
            *met = true;
        }
        let (code, why) = match self.scope.get(v) {
            Some(0) => return,
            Some(block) if *block == self.block => return,
            // Inside a function that a dataflow block defines, the block is left.
            Some(_) => (
                "dataflow-variable",
                "is a dataflow variable: it may not be used outside of its dataflow block nor in functions defined \
                 there (well-formedness 1, 10)",
            ),
            None if self.bound.contains(v) => ("undefined-variable", "is not in scope here (well-formedness 3)"),
            None => ("undefined-variable", "is used before it is bound (well-formedness 2, 3)"),
        };
        self.error(code, span, format!("variable `{}` {why}", v.name()));
    }

    fn expr(&mut self, e: &Expr, outer: Span) {
        let span = if e.span().is_none() { outer } else { e.span() };
        match e.kind() {
            ExprKind::Var(v) => self.uses(v, span),
            ExprKind::Tuple(fields) => fields.iter().for_each(|f| self.expr(f, span)),
            ExprKind::TupleGetItem(t, _) => self.expr(t, span),
            ExprKind::Seq(seq) => self.sequence(seq),
            ExprKind::Function(f) => self.function(f, None),
            ExprKind::If { cond, then, otherwise } => {
                self.expr(cond, span);
                self.sequence(then);
                self.sequence(otherwise);
            }
            ExprKind::Call(c) => {
                if let Callee::Expr(f) = &c.callee {
                    self.expr(f, span);
                }
                c.args.iter().for_each(|a| self.expr(a, span));
                c.sinfo_args.iter().for_each(|s| self.info(s, span));
            }
            ExprKind::ExternFunc(_, Some(f)) => self.info(&StructInfo::Func(f.clone()), span),
            _ => {}
        }
    }

    fn info(&mut self, s: &StructInfo, span: Span) {
        match s {
            StructInfo::Tensor(TensorInfo { shape: Some(shape), ndim, .. }) => match shape {
                TensorShape::Dims(d) => {
                    if ndim.is_some_and(|n| n != d.len()) {
                        self.error(
                            "rank",
                            span,
                            format!(
                                "a tensor of {} dims is said to have rank {} (well-formedness 13)",
                                d.len(),
                                ndim.unwrap_or(0)
                            ),
                        );
                    }
                }
                TensorShape::Var(v) => self.uses(v, span),
            },
            StructInfo::Shape { values: Some(v), ndim: Some(n) } if v.len() != *n => {
                self.error(
                    "rank",
                    span,
                    format!("a shape of {} dims is said to have rank {n} (well-formedness 14)", v.len()),
                );
            }
            StructInfo::Tuple(fields) => fields.iter().for_each(|f| self.info(f, span)),
            StructInfo::Func(f) => {
                if f.params.is_some() == f.derive.is_some() {
                    let what = if f.params.is_some() { "both" } else { "neither" };
                    self.error(
                        "function-type",
                        span,
                        format!("a function type has {what} parameters and a derive function (well-formedness 15)"),
                    );
                }
                f.params.iter().flatten().for_each(|p| self.info(p, span));
                self.info(&f.ret, span);
            }
            _ => {}
        }
    }
}
