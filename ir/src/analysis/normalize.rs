//! The normal form (relax_spec.md, "Normal Form").
//!
//! 1. Every value of a binding is a leaf or has only leaves below it; other sub-expressions are bound to fresh variables
//!    first, left to right.
//! 2. `SeqExpr`s stand only as bodies of functions and branches; others are flattened.
//! 3. Bodies and branches are `SeqExpr`s whose body is a leaf.
//! 4. Neighbouring blocks of one kind are one block; there are no empty blocks.
//!
//! `R.call_packed` of a name is a call of the extern function with that name; functions of TVM's runtime that stand for
//! operators become those ([`runtime_calls`]).

use super::{runtime_calls, signature};
use crate::attrs::Attrs;
use crate::diag::{Diagnostic, Diagnostics};
use crate::op::lookup;
use crate::relax::{
    Binding, BindingBlock, BindingValue, Call, Callee, Expr, ExprKind, Function, RVar, SeqExpr, StructInfo,
};
use crate::span::Span;
use std::collections::HashMap;
use std::sync::Arc;

/// The function in normal form.
pub fn function(f: &Function, diags: &mut Diagnostics) -> Function {
    inner_function(f, &Names::new(), diags)
}

/// Other names of functions of the module.
type Names = HashMap<RVar, Expr>;

fn inner_function(f: &Function, outer: &Names, diags: &mut Diagnostics) -> Function {
    let impure = !signature::is_pure(f) || signature::forced_pure(f);
    Function { body: Arc::new(sequence(&f.body, impure, outer, diags)), ..f.clone() }
}

fn sequence(seq: &SeqExpr, impure: bool, outer: &Names, diags: &mut Diagnostics) -> SeqExpr {
    let mut n = Normalizer { blocks: vec![], dataflow: false, fresh: 0, impure, names: outer.clone(), diags };
    for block in &seq.blocks {
        n.block(block);
    }
    n.open(false, seq.body.span());
    let body = n.leaf(&seq.body);
    n.blocks.retain(|b| !b.bindings.is_empty());
    SeqExpr { blocks: n.blocks, body }
}

struct Normalizer<'d> {
    blocks: Vec<BindingBlock>,
    /// The kind of block under way.
    dataflow: bool,
    fresh: usize,
    /// The function may call what has effects.
    impure: bool,
    names: Names,
    diags: &'d mut Diagnostics,
}

impl Normalizer<'_> {
    /// Bindings go to a block of this kind from here on; the last one goes on when it is of the same kind.
    fn open(&mut self, dataflow: bool, span: Span) {
        self.dataflow = dataflow;
        match self.blocks.last_mut() {
            Some(last) if last.dataflow == dataflow => last.span = last.span.to(span),
            Some(last) if last.bindings.is_empty() => *last = BindingBlock { dataflow, bindings: vec![], span },
            _ => self.blocks.push(BindingBlock { dataflow, bindings: vec![], span }),
        }
        // An empty block that was replaced may now follow one of its own kind.
        let n = self.blocks.len();
        if n >= 2 && self.blocks[n - 1].bindings.is_empty() && self.blocks[n - 2].dataflow == dataflow {
            self.blocks.pop();
        }
    }

    fn push(&mut self, b: Binding) {
        match self.blocks.last_mut() {
            Some(last) => last.bindings.push(b),
            None => {
                self.blocks.push(BindingBlock { dataflow: self.dataflow, span: b.span, bindings: vec![b] });
            }
        }
    }

    fn block(&mut self, block: &BindingBlock) {
        self.open(block.dataflow, block.span);
        for b in &block.bindings {
            self.binding(b);
        }
    }

    fn binding(&mut self, b: &Binding) {
        let value = match &b.value {
            BindingValue::MatchCast { value, struct_info } => {
                BindingValue::MatchCast { value: self.leaf(value), struct_info: struct_info.clone() }
            }
            BindingValue::Expr(e) => BindingValue::Expr(self.value(e)),
        };
        if let BindingValue::Expr(e) = &value {
            if let Some(global) = self.global(e) {
                self.names.insert(b.var.clone(), global);
            }
        }
        self.push(Binding { value, ..b.clone() });
    }

    /// An expression that may be bound: its operands are leaves.
    fn value(&mut self, e: &Expr) -> Expr {
        let kind = match e.kind() {
            ExprKind::Seq(seq) => {
                self.flatten(seq);
                return self.value(&seq.body);
            }
            ExprKind::Tuple(_) => return self.leaf(e),
            ExprKind::TupleGetItem(t, i) => ExprKind::TupleGetItem(self.leaf(t), *i),
            ExprKind::Function(f) => ExprKind::Function(Arc::new(inner_function(f, &self.names, self.diags))),
            ExprKind::If { cond, then, otherwise } => ExprKind::If {
                cond: self.leaf(cond),
                then: Arc::new(sequence(then, self.impure, &self.names, self.diags)),
                otherwise: Arc::new(sequence(otherwise, self.impure, &self.names, self.diags)),
            },
            ExprKind::Call(c) => ExprKind::Call(self.call(c)),
            _ => return e.clone(),
        };
        Expr::new(kind, e.span())
    }

    fn call(&mut self, c: &Call) -> Call {
        let mut callee = match &c.callee {
            Callee::Expr(e) => match e.kind() {
                // An operator as an expression in callee position is an ordinary operator call.
                ExprKind::Op(op) => Callee::Op(op),
                _ => Callee::Expr(self.leaf(e)),
            },
            Callee::Op(op) => Callee::Op(op),
        };
        let mut args: Vec<Expr> = c.args.iter().map(|a| self.leaf(a)).collect();
        if let Callee::Op(op) = callee {
            // The PrimFunc may go by another name.
            if let (true, Some(f)) = (op.name.starts_with("call_tir"), args.first_mut()) {
                if let Some(global) = self.global(f) {
                    *f = global;
                }
            }
            let target = match args.first().map(Expr::kind) {
                Some(ExprKind::Str(name) | ExprKind::ExternFunc(name, _)) => Some(name.clone()),
                _ => None,
            };
            if let ("vm.call_tir_dyn", [f, fields]) = (op.name, args.as_slice()) {
                if let Some(call) = runtime_calls::kernel(f, fields) {
                    return call;
                }
            }
            // A compiled library holds no Python: the host registers the function under its name.
            if let (Some(name), "call_py_func", Some(ExprKind::Tuple(fields)), Some(packed)) =
                (&target, op.name, args.get(1).map(Expr::kind), lookup("call_pure_packed"))
            {
                let f = Expr::new(ExprKind::ExternFunc(name.clone(), None), args[0].span());
                let args = std::iter::once(f).chain(fields.iter().cloned()).collect();
                let sinfo_args = c.sinfo_args.clone();
                return Call { callee: Callee::Op(packed), args, attrs: Attrs::default(), sinfo_args };
            }
            if let (Some(name), "call_packed" | "call_pure_packed") = (target, op.name) {
                // Without effects only where this one may have them, or says that it has none.
                if op.name == "call_pure_packed" || self.impure {
                    if let Some(call) = runtime_calls::operator(&name, &args[1..]) {
                        return call;
                    }
                }
                if op.name == "call_packed" {
                    let f = args.remove(0);
                    callee = Callee::Expr(Expr::new(ExprKind::ExternFunc(name, None), f.span()));
                }
            }
        } else if let Callee::Expr(f) = &callee {
            if let (ExprKind::ExternFunc(name, None), true) = (f.kind(), self.impure) {
                if let Some(call) = runtime_calls::operator(name, &args) {
                    return call;
                }
            }
        }
        Call { callee, args, attrs: c.attrs.clone(), sinfo_args: c.sinfo_args.clone() }
    }

    /// The function of the module that `e` names, directly or by a variable.
    fn global(&self, e: &Expr) -> Option<Expr> {
        match e.kind() {
            ExprKind::GlobalVar(_) => Some(e.clone()),
            ExprKind::Var(v) => self.names.get(v).cloned(),
            _ => None,
        }
    }

    /// A leaf: other expressions are bound to a fresh variable.
    fn leaf(&mut self, e: &Expr) -> Expr {
        match e.kind() {
            _ if e.is_leaf() => e.clone(),
            ExprKind::Tuple(fields) => {
                let fields = fields.iter().map(|f| self.leaf(f)).collect();
                Expr::new(ExprKind::Tuple(fields), e.span())
            }
            ExprKind::Seq(seq) => {
                self.flatten(seq);
                self.leaf(&seq.body)
            }
            _ => {
                let value = self.value(e);
                self.bind(value, None).with_span(e.span())
            }
        }
    }

    fn bind(&mut self, value: Expr, annotation: Option<StructInfo>) -> FreshVar {
        let base = if self.dataflow { "lv" } else { "gv" };
        let name = if self.fresh == 0 { base.to_string() } else { format!("{base}{}", self.fresh) };
        self.fresh += 1;
        let span = value.span();
        let var = RVar::new(name, self.dataflow, span);
        self.push(Binding { var: var.clone(), annotation, value: BindingValue::Expr(value), span });
        FreshVar(var)
    }

    /// The bindings of a nested sequence join the scope it stands in.
    fn flatten(&mut self, seq: &SeqExpr) {
        let outer = self.dataflow;
        for block in &seq.blocks {
            if outer && !block.dataflow && !block.bindings.is_empty() {
                self.diags.push(
                    Diagnostic::error(
                        "normal-form",
                        block.span,
                        "a dataflow block holds an ordinary block of bindings",
                    )
                    .help("move the bindings out of the dataflow block"),
                );
            }
            self.block(block);
        }
        self.open(outer, seq.body.span());
    }
}

struct FreshVar(RVar);

impl FreshVar {
    fn with_span(self, span: Span) -> Expr {
        Expr::new(ExprKind::Var(self.0), span)
    }
}
