//! Relax expressions as code over values.

use super::direct::Direct;
use super::{Kind, Queue, VALUE};
use crate::host::build::Builder;
use crate::host::calls_value;
use crate::host::checks::Checks;
use crate::host::constants::Constants;
use crate::host::value::Shaped;
use crate::host::Context;
use crate::threads::Room;
use fnv::FnvHashMap;
use relax_ir::analysis::{constraints, relate, vars, Check, Typed};
use relax_ir::flat::FlatStmt;
use relax_ir::op::ShapeFacts;
use relax_ir::program::code;
use relax_ir::relax::{BindingValue, Callee, Expr, ExprKind, Function, RVar, SeqExpr, StructInfo};
use relax_ir::sym::Facts;
use relax_ir::tir::PrimFunc;
use relax_ir::{DType, Diagnostic, PrimExpr, Span, Var};
use std::collections::HashMap;
use std::sync::Arc;

pub type Res<T> = Result<T, Diagnostic>;

/// A tensor of known rank and dtype.
#[derive(Clone)]
pub struct TensorAt {
    /// Pointer to its value.
    pub at: PrimExpr,
    pub data: PrimExpr,
    pub dims: Vec<PrimExpr>,
    pub dtype: DType,
}

/// What is known of a value while code is written.
#[derive(Clone)]
pub enum Dyn {
    Tensor(TensorAt),
    Shape(Vec<PrimExpr>),
    Prim(PrimExpr),
    Tuple(Vec<Dyn>),
    Str(String),
    DType(DType),
    Absent,
    Global(String),
    Extern(String),
    /// The closure under way, by the pointer to its captured values.
    This(PrimExpr),
    /// Pointer to a value of any kind.
    Value(PrimExpr),
}

impl Shaped for Dyn {
    fn fields(&self) -> Option<&[Dyn]> {
        match self {
            Dyn::Tuple(f) => Some(f),
            _ => None,
        }
    }

    fn fields_mut(&mut self) -> Option<&mut Vec<Dyn>> {
        match self {
            Dyn::Tuple(f) => Some(f),
            _ => None,
        }
    }

    fn dims(&self) -> Option<&[PrimExpr]> {
        match self {
            Dyn::Tensor(t) => Some(&t.dims),
            Dyn::Shape(d) => Some(d),
            Dyn::Prim(p) => Some(std::slice::from_ref(p)),
            _ => None,
        }
    }

    fn dims_mut(&mut self) -> Option<&mut Vec<PrimExpr>> {
        match self {
            Dyn::Tensor(t) => Some(&mut t.dims),
            Dyn::Shape(d) => Some(d),
            _ => None,
        }
    }
}

#[derive(Clone, Default)]
pub struct Scope {
    pub vars: HashMap<RVar, Dyn>,
    pub dims: HashMap<Var, PrimExpr>,
}

/// How a sequence ends.
pub enum Flow {
    Value(Dyn),
    /// The code has returned.
    Done,
}

/// Writes one function.
pub struct Gen<'a, 'p> {
    pub b: Builder<'p>,
    pub typed: &'a Typed,
    pub prefix: &'p str,
    pub constants: &'p mut Constants,
    pub infos: &'p mut Checks,
    pub kernels: &'p mut Vec<PrimFunc>,
    pub queue: &'p mut Queue,
    pub facts: Facts,
    pub room: Room,
    direct: std::rc::Rc<Direct>,
    pub slots: usize,
    pub frame: PrimExpr,
    /// Where the arguments of another round go.
    pub next: PrimExpr,
    pub result: PrimExpr,
    /// Whether this is another round, whose arguments no caller has.
    pub again: PrimExpr,
    /// Pointers to the arguments.
    pub args: Vec<PrimExpr>,
    checks: FnvHashMap<u32, Vec<&'a Check>>,
    /// What a call of the function itself names.
    this: Option<ExprKind>,
    ret: Option<StructInfo>,
    what: String,
    /// Whether a round was asked for.
    tail: bool,
    /// What is asked of the value at hand holds already: nothing is checked.
    pub trusted: bool,
    /// What was known before each branch that is under way.
    outside: Vec<Facts>,
}

impl<'a, 'p> Gen<'a, 'p> {
    pub fn new(cx: &'p mut Context, typed: &'a Typed, call: &Var, frame: &Var) -> Gen<'a, 'p> {
        let mut checks: FnvHashMap<u32, Vec<&Check>> = FnvHashMap::default();
        for c in &typed.checks {
            checks.entry(c.before.id()).or_default().push(c);
        }
        let direct = cx.dynamic.direct(typed);
        Gen {
            b: Builder::new(&mut cx.pool, cx.abi, call.expr()),
            typed,
            prefix: &cx.prefix,
            constants: &mut cx.constants,
            infos: &mut cx.checks,
            kernels: &mut cx.kernels,
            queue: &mut cx.dynamic,
            facts: Facts::new(),
            room: cx.room,
            direct,
            slots: 0,
            frame: frame.expr(),
            next: crate::host::build::null(),
            result: crate::host::build::null(),
            again: PrimExpr::i32(0),
            args: vec![],
            checks,
            this: None,
            ret: None,
            what: String::new(),
            tail: false,
            trusted: false,
            outside: vec![],
        }
    }

    /// What follows, up to [`Gen::end_branch`], may not be reached: what it checks is known there alone.
    pub fn begin_branch(&mut self) {
        self.b.open();
        self.outside.push(self.facts.clone());
    }

    /// What a branch knows of its condition; these of its divisors may be 0, and then it does not hold.
    fn in_branch(&mut self, condition: &PrimExpr, divisors: &[PrimExpr], holds: bool) {
        if holds {
            divisors.iter().for_each(|d| self.facts.assume(&d.clone().ne(PrimExpr::int(d.dtype(), 0))));
            self.facts.assume(condition);
        } else if divisors.is_empty() {
            self.facts.assume(&condition.clone().not());
        }
    }

    pub fn end_branch(&mut self) -> Vec<FlatStmt> {
        if let Some(facts) = self.outside.pop() {
            self.facts = facts;
        }
        self.b.close()
    }

    /// [`Gen::refine`] without checks when `trusted`: only what is known of the value is read off.
    fn refine_trusted(
        &mut self,
        v: Dyn,
        info: &StructInfo,
        scope: &mut Scope,
        what: &str,
        span: Span,
        trusted: bool,
    ) -> Res<Dyn> {
        let before = std::mem::replace(&mut self.trusted, trusted);
        let v = self.refine(v, info, scope, what, span);
        self.trusted = before;
        v
    }

    /// The number of slots of the frame, and the code.
    pub fn finish(self) -> (usize, Builder<'p>) {
        (self.slots, self.b)
    }

    /// The whole function; tells whether its outer function needs rounds.
    pub fn function(
        &mut self,
        f: &Function,
        this: Option<RVar>,
        captured: &[RVar],
        dims: &[Var],
        captured_at: &PrimExpr,
        args_at: &PrimExpr,
    ) -> Res<bool> {
        let mut scope = Scope::default();
        for (i, v) in captured.iter().enumerate() {
            let at = self.b.bind("captured", captured_at.clone().ptr_add(PrimExpr::i64(i as i64 * VALUE)));
            let value = match self.typed.sinfo.get(v) {
                // Checked where it was made; its dims are variables of their own here.
                Some(StructInfo::Tensor(t)) => match (t.ndim, t.dtype) {
                    (Some(n), Some(d)) => Dyn::Tensor(self.read_tensor(&at, n, d)),
                    _ => Dyn::Value(at),
                },
                _ => Dyn::Value(at),
            };
            scope.vars.insert(v.clone(), value);
        }
        for (i, d) in dims.iter().enumerate() {
            let at = (captured.len() + i) as i64 * VALUE + 8;
            let value = self.b.load(d.name(), captured_at, at, DType::I64);
            self.may_be_negative(&value);
            scope.dims.insert(d.clone(), value);
        }
        // Now that the captured dims are known, what is known of captured tuples, shapes and scalars.
        for v in captured {
            let value = match (self.typed.sinfo.get(v).cloned(), scope.vars.get(v).cloned()) {
                (Some(info), Some(Dyn::Value(at))) => {
                    self.refine(Dyn::Value(at), &info, &mut scope, v.name(), f.span)?
                }
                (Some(info), Some(value @ Dyn::Tensor(_))) => {
                    let mut known = true;
                    let dims = &scope.dims;
                    vars::each_dim(&info, &mut |d, _| known &= d.vars().iter().all(|v| dims.contains_key(v)));
                    if !known {
                        continue;
                    }
                    self.refine_trusted(value, &info, &mut scope, v.name(), f.span, true)?
                }
                _ => continue,
            };
            scope.vars.insert(v.clone(), value);
        }
        self.this = match &this {
            Some(v) => Some(ExprKind::Var(v.clone())),
            None => Some(ExprKind::GlobalVar(f.name.clone())),
        };
        if let Some(v) = &this {
            scope.vars.insert(v.clone(), Dyn::This(captured_at.clone()));
        }
        self.what = format!("result of {}", f.name);
        self.ret = f.ret.clone();
        let mut list = vec![];
        for (i, p) in f.params.iter().enumerate() {
            let at = self.b.bind("arg", args_at.clone().ptr_add(PrimExpr::i64(i as i64 * VALUE)));
            let info = self.typed.sinfo.get(&p.var).or(p.annotation.as_ref()).cloned();
            self.args.push(at.clone());
            list.push((Dyn::Value(at), info, format!("argument {} of {}", p.var.name(), f.name)));
        }
        // Where all calls are known, each of them has checked its arguments, as the entry has.
        self.trusted = self.direct.arguments_of(f, this.as_ref());
        let values = self.refine_all(list, &mut scope, f.span)?;
        for s in constraints::of(f, f.params.iter().filter_map(|p| p.annotation.as_ref()))? {
            if s.condition.vars().iter().all(|v| scope.dims.contains_key(v)) {
                let condition = s.condition.substitute(&scope.dims);
                let message = format!("shape constraint {}", s.text);
                self.require_named(condition, s.text.clone(), code::CHECK, message, f.signature_span);
            }
        }
        self.trusted = false;
        for (p, v) in f.params.iter().zip(values) {
            self.checks_before(&p.var, &scope, f.span)?;
            scope.vars.insert(p.var.clone(), v);
        }
        if let Flow::Value(v) = self.seq(&f.body, &mut scope, true)? {
            self.give(v, &mut scope, f.body.body.span())?;
        }
        self.b.ret(PrimExpr::i32(0));
        Ok(self.tail)
    }

    /// Returns `v`.
    fn give(&mut self, v: Dyn, scope: &mut Scope, span: Span) -> Res<()> {
        let v = match self.ret.clone() {
            Some(info) => {
                let what = self.what.clone();
                self.refine(v, &info, scope, &what, span)?
            }
            None => v,
        };
        let to = self.result.clone();
        self.own(&v, &to, span)?;
        self.b.ret(PrimExpr::i32(0));
        Ok(())
    }

    /// A dim over the function's variables.
    pub fn dim(&mut self, e: &PrimExpr, scope: &Scope, span: Span) -> Res<PrimExpr> {
        if let Some(v) = e.vars().into_iter().find(|v| !scope.dims.contains_key(v)) {
            return Err(Diagnostic::unsupported(
                "dynamic-structure",
                span,
                format!("the shape variable {} has no value here", v.name()),
            ));
        }
        let e = e.substitute(&scope.dims);
        if e.as_int().is_some() || e.as_var().is_some() {
            return Ok(e);
        }
        let e = if e.dtype() == DType::I64 { self.facts.simplify(&e) } else { e };
        let bound = self.b.bind("dim", e.clone());
        if let Some(v) = bound.as_var().filter(|v| v.dtype() == DType::I64 && e.as_var() != Some(v)) {
            self.facts.define(v, &e);
        }
        Ok(bound)
    }

    pub fn dims(&mut self, es: &[PrimExpr], scope: &Scope, span: Span) -> Res<Vec<PrimExpr>> {
        es.iter().map(|e| self.dim(e, scope, span)).collect()
    }

    fn checks_before(&mut self, var: &RVar, scope: &Scope, span: Span) -> Res<()> {
        for c in self.checks.get(&var.id()).cloned().unwrap_or_default() {
            if c.condition.vars().iter().any(|v| !scope.dims.contains_key(v)) {
                return Err(Diagnostic::unsupported(
                    "check",
                    span,
                    format!("{}: its dims have no value here", c.message),
                ));
            }
            let text = relax_ir::printer::print_prim(&c.condition);
            let condition = c.condition.substitute(&scope.dims);
            self.require_named(condition, text, code::CHECK, c.message.clone(), c.span);
        }
        Ok(())
    }

    /// `tail`: the sequence's value is the function's.
    pub fn seq(&mut self, seq: &SeqExpr, scope: &mut Scope, tail: bool) -> Res<Flow> {
        let last = if tail { tail_binding(seq) } else { None };
        for b in seq.blocks.iter().flat_map(|b| &b.bindings) {
            let value = match &b.value {
                BindingValue::Expr(e) => {
                    self.checks_before(&b.var, scope, b.span)?;
                    if last == Some(&b.var) && self.in_tail(e, scope)? {
                        return Ok(Flow::Done);
                    }
                    let v = self.binding(&b.var, e, scope)?;
                    match self.typed.sinfo.get(&b.var).filter(|_| calls_value(e)).cloned() {
                        // A cast of a function speaks of its results.
                        Some(info) => {
                            let what = format!("result of the call, {}", b.var.name());
                            self.refine(v, &info, scope, &what, b.span)?
                        }
                        None => v,
                    }
                }
                BindingValue::MatchCast { value, struct_info } => {
                    let v = self.expr(value, None, scope)?;
                    let info = self.typed.sinfo.get(&b.var).unwrap_or(struct_info).clone();
                    let what = format!("match_cast of {}", b.var.name());
                    let got = self.typed.info_of(value);
                    let never =
                        got.and_then(|g| relate::relate_cast(&g, struct_info, &what, &mut Facts::new()).refused);
                    let v = self.refine(v, &info, scope, &what, b.span)?;
                    // What the value itself does not show: int32 and int64 are scalars alike.
                    if let Some(why) = never {
                        let wanted = relax_ir::printer::print_struct_info(struct_info);
                        self.require_named(PrimExpr::bool(false), wanted, code::CHECK, why, b.span);
                    }
                    v
                }
            };
            self.births(&b.var, &value, scope);
            scope.vars.insert(b.var.clone(), value);
        }
        Ok(Flow::Value(self.expr(&seq.body, None, scope)?))
    }

    /// Writes `e` as the end of the function, when it is a branch or a call of the function itself.
    fn in_tail(&mut self, e: &Expr, scope: &mut Scope) -> Res<bool> {
        match e.kind() {
            ExprKind::If { cond, then, otherwise } => {
                let condition = self.condition(cond, scope)?;
                self.require_answer(cond, &condition, scope);
                let divisors = constraints::open_divisors(&condition, &mut self.facts);
                let mut lists = vec![];
                for (branch, holds) in [(then, true), (otherwise, false)] {
                    self.begin_branch();
                    self.in_branch(&condition, &divisors, holds);
                    let mut inner = scope.clone();
                    if let Flow::Value(v) = self.seq(branch, &mut inner, true)? {
                        self.give(v, &mut inner, branch.body.span())?;
                    }
                    lists.push(self.end_branch());
                }
                let otherwise = lists.pop().unwrap_or_default();
                let then = lists.pop().unwrap_or_default();
                self.b.push(FlatStmt::If { cond: constraints::guarded(&condition, divisors), then, otherwise });
                Ok(true)
            }
            ExprKind::Call(c) => {
                let Callee::Expr(f) = &c.callee else { return Ok(false) };
                // The result is checked against this round's annotation, which must then mean the same in the next.
                let fixed = self.ret.as_ref().is_none_or(|r| {
                    let mut fixed = true;
                    relax_ir::analysis::vars::each_dim(r, &mut |d, _| fixed &= d.vars().is_empty());
                    fixed
                });
                if !fixed || self.this.as_ref() != Some(f.kind()) {
                    return Ok(false);
                }
                for (i, a) in c.args.iter().enumerate() {
                    let v = self.expr(a, None, scope)?;
                    let to = self.next.clone().ptr_add(PrimExpr::i64(i as i64 * VALUE));
                    self.own(&v, &to, e.span())?;
                }
                self.tail = true;
                self.b.ret(PrimExpr::i32(super::AGAIN));
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn births(&mut self, var: &RVar, value: &Dyn, scope: &mut Scope) {
        for birth in self.typed.births.get(var).into_iter().flatten() {
            if let Some(d) = value.birth_dim(birth) {
                scope.dims.entry(birth.var.clone()).or_insert_with(|| d.clone());
            }
        }
    }

    fn binding(&mut self, var: &RVar, e: &Expr, scope: &mut Scope) -> Res<Dyn> {
        let info = self.typed.sinfo.get(var).cloned();
        if let ExprKind::Function(f) = e.kind() {
            return self.local_function(f, Some(var), scope, e.span());
        }
        let v = self.expr(e, info.as_ref(), scope)?;
        match (&v, info) {
            // What a packed function without result leaves is not looked at.
            (Dyn::Value(_), Some(StructInfo::Tuple(f))) if f.is_empty() => Ok(Dyn::Tuple(vec![])),
            // A function of the module has checked its result.
            (Dyn::Value(_), Some(info)) => {
                let trusted = self.direct.result_of(e);
                self.refine_trusted(v, &info, scope, var.name(), e.span(), trusted)
            }
            _ => Ok(v),
        }
    }

    /// A closure over the variables in scope that the function uses, and over all dims in scope.
    fn local_function(&mut self, f: &Arc<Function>, this: Option<&RVar>, scope: &Scope, span: Span) -> Res<Dyn> {
        let mut captured: Vec<RVar> = vec![];
        used_vars(&f.body, &mut |v| {
            if Some(v) != this && scope.vars.contains_key(v) && !captured.contains(v) {
                captured.push(v.clone());
            }
        });
        let mut dims: Vec<Var> = scope.dims.keys().filter(|v| v.dtype() == DType::I64).cloned().collect();
        dims.sort_by_key(Var::id);
        let mut values: Vec<Dyn> = captured.iter().map(|v| scope.vars[v].clone()).collect();
        values.extend(dims.iter().map(|v| Dyn::Prim(scope.dims[v].clone())));
        let signature = self.signature_of_local(f, this, scope, &mut values, span)?;
        let kind = Kind::Local { function: f.clone(), this: this.cloned(), captured, dims };
        let symbol = self.queue.other(self.prefix, &f.name, kind);
        let to = self.slot();
        self.closure(&symbol, Some(signature), &values, &to, span)?;
        Ok(Dyn::Value(to))
    }

    pub fn expr(&mut self, e: &Expr, info: Option<&StructInfo>, scope: &mut Scope) -> Res<Dyn> {
        Ok(match e.kind() {
            ExprKind::Var(v) => scope
                .vars
                .get(v)
                .cloned()
                .ok_or_else(|| Diagnostic::internal(e.span(), format!("variable {} has no value", v.name())))?,
            ExprKind::Constant(c) => {
                let symbol = self.constants.tensor(c, self.b.abi, self.b.pool);
                let tensor = self.b.address(&symbol);
                let at = self.slot();
                self.b.store(&at, 0, PrimExpr::i32(super::tag::TENSOR));
                self.b.store(&at, 8, tensor);
                let data = self.constants.symbol(c);
                let data = self.b.address(&data);
                let dims = c.shape.iter().map(|&d| PrimExpr::i64(d)).collect();
                Dyn::Tensor(TensorAt { at, data, dims, dtype: c.dtype })
            }
            ExprKind::GlobalVar(g) => Dyn::Global(g.clone()),
            ExprKind::ExternFunc(g, _) => {
                self.must_be_registered(g);
                Dyn::Extern(g.clone())
            }
            ExprKind::Tuple(fields) => {
                Dyn::Tuple(fields.iter().map(|f| self.expr(f, None, scope)).collect::<Res<_>>()?)
            }
            ExprKind::TupleGetItem(t, i) => match self.expr(t, None, scope)? {
                Dyn::Tuple(mut f) if *i < f.len() => f.swap_remove(*i),
                v => {
                    let at = self.pointer(&v, e.span())?;
                    let to = self.slot();
                    let call = self.b.call.clone();
                    let args = vec![call, at, PrimExpr::i64(*i as i64), to.clone()];
                    self.runtime("relax_rt_field", args);
                    Dyn::Value(to)
                }
            },
            ExprKind::Seq(s) => match self.seq(s, &mut scope.clone(), false)? {
                Flow::Value(v) => v,
                Flow::Done => return Err(Diagnostic::internal(e.span(), "a nested sequence returned")),
            },
            ExprKind::Function(f) => self.local_function(f, None, scope, e.span())?,
            ExprKind::If { cond, then, otherwise } => {
                let condition = self.condition(cond, scope)?;
                self.require_answer(cond, &condition, scope);
                let divisors = constraints::open_divisors(&condition, &mut self.facts);
                let to = self.slot();
                let mut lists = vec![];
                for (branch, holds) in [(then, true), (otherwise, false)] {
                    self.begin_branch();
                    self.in_branch(&condition, &divisors, holds);
                    if let Flow::Value(v) = self.seq(branch, &mut scope.clone(), false)? {
                        self.own(&v, &to, branch.body.span())?;
                    }
                    lists.push(self.end_branch());
                }
                let otherwise = lists.pop().unwrap_or_default();
                let then = lists.pop().unwrap_or_default();
                self.b.push(FlatStmt::If { cond: constraints::guarded(&condition, divisors), then, otherwise });
                Dyn::Value(to)
            }
            ExprKind::Call(c) => self.call(c, e.span(), info, scope)?,
            ExprKind::Shape(v) => {
                let values = self.dims(v, scope, e.span())?.into_iter();
                Dyn::Shape(values.map(|d| d.cast(DType::I64)).collect())
            }
            ExprKind::Prim(p) => Dyn::Prim(self.dim(p, scope, e.span())?),
            ExprKind::Str(s) => Dyn::Str(s.clone()),
            ExprKind::DType(d) => Dyn::DType(*d),
            ExprKind::Absent => Dyn::Absent,
            ExprKind::Op(o) => {
                return Err(Diagnostic::error(
                    "op-as-value",
                    e.span(),
                    format!("R.{} is an operator, not a value: it can only be called", o.name),
                ))
            }
        })
    }

    /// The condition of a branch has an answer: what divides in it is not 0.
    fn require_answer(&mut self, cond: &Expr, condition: &PrimExpr, scope: &Scope) {
        // In the model's names where it is written in place.
        let stated = match cond.kind() {
            ExprKind::Prim(p) if p.vars().iter().all(|v| scope.dims.contains_key(v)) => p,
            _ => condition,
        };
        for d in constraints::decisive_divisors(stated, &mut self.facts) {
            let zero = PrimExpr::int(d.dtype(), 0);
            let answers = d.ne(zero);
            let text = relax_ir::printer::print_prim(&answers);
            let message = "the condition of `if` divides by it".to_string();
            self.require_named(answers.substitute(&scope.dims), text, code::CHECK, message, cond.span());
        }
    }

    /// A scalar bool.
    pub fn condition(&mut self, e: &Expr, scope: &mut Scope) -> Res<PrimExpr> {
        let v = match self.expr(e, None, scope)? {
            v @ Dyn::Value(_) => {
                let info = StructInfo::tensor(vec![], DType::BOOL);
                self.refine(v, &info, scope, "condition", e.span())?
            }
            v => v,
        };
        match v {
            Dyn::Prim(p) => Ok(p),
            Dyn::Tensor(t) if t.dims.is_empty() => {
                Ok(self.b.load("condition", &t.data, 0, t.dtype).cast(DType::I64).ne(PrimExpr::i64(0)))
            }
            _ => Err(Diagnostic::error("if-condition", e.span(), "the condition must be a scalar bool")),
        }
    }
}

/// The binding whose value is the sequence's: behind it there are only other names for it.
fn tail_binding(seq: &SeqExpr) -> Option<&RVar> {
    let mut target = seq.body.as_var()?;
    for b in seq.blocks.iter().rev().flat_map(|b| b.bindings.iter().rev()) {
        if &b.var != target {
            return None;
        }
        match &b.value {
            BindingValue::Expr(e) => match e.as_var() {
                Some(v) => target = v,
                None => return Some(&b.var),
            },
            BindingValue::MatchCast { .. } => return None,
        }
    }
    None
}

/// Calls `f` on every variable that occurs.
fn used_vars(seq: &SeqExpr, f: &mut dyn FnMut(&RVar)) {
    for b in seq.blocks.iter().flat_map(|b| &b.bindings) {
        used_in(b.expr(), f);
    }
    used_in(&seq.body, f);
}

fn used_in(e: &Expr, f: &mut dyn FnMut(&RVar)) {
    match e.kind() {
        ExprKind::Var(v) => f(v),
        ExprKind::Tuple(fields) => fields.iter().for_each(|x| used_in(x, f)),
        ExprKind::TupleGetItem(t, _) => used_in(t, f),
        ExprKind::Seq(s) => used_vars(s, f),
        ExprKind::Function(g) => used_vars(&g.body, f),
        ExprKind::If { cond, then, otherwise } => {
            used_in(cond, f);
            used_vars(then, f);
            used_vars(otherwise, f);
        }
        ExprKind::Call(c) => {
            if let Callee::Expr(g) = &c.callee {
                used_in(g, f);
            }
            c.args.iter().for_each(|a| used_in(a, f));
        }
        _ => {}
    }
}
