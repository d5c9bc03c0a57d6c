//! Lays a Relax function out as steps over buffers: values get structure and storage, calls of Relax functions are
//! expanded in place, shape variables become expressions over the entry's.

mod casts;
mod join;
mod results;
mod tests_of_accesses;

use super::checks::Checks;
use super::kernel_args::{called, match_args, returned, From, KernelArg};
use super::message::Message;
use super::most::Most;
use super::value::*;
use crate::accesses::TESTED;
use crate::threads::Room;
use fnv::FnvHashMap;
use join::Join;
use relax_ir::analysis::{constraints, vars, Check, Typed};
use relax_ir::op::{Answer, ShapeFacts};
use relax_ir::prim::BinOp;
use relax_ir::program::code;
use relax_ir::relax::{BindingValue, Call, Callee, Expr, ExprKind, Function, RVar, SeqExpr, StructInfo, TensorInfo};
use relax_ir::sym::Facts;
use relax_ir::tir::{PrimFunc, StmtKind};
use relax_ir::{DType, Diagnostic, Func, PrimExpr, Span, Var};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Calls nested deeper than this are taken for recursion without end.
const MAX_CALL_DEPTH: usize = 200;

/// Relax variables and shape variables in scope.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub vars: HashMap<RVar, HostValue>,
    /// Shape variable to its value over the entry's variables.
    pub dims: HashMap<Var, PrimExpr>,
}

/// The laid-out function.
pub struct Plan {
    pub bufs: Vec<Buf>,
    pub steps: Vec<Step>,
    pub result: HostValue,
    /// Shape variables read from data, with an upper bound over the entry's variables.
    pub bounds: HashMap<Var, PrimExpr>,
    /// Shape variables read from data without a bound.
    pub unbounded: HashSet<Var>,
    /// Dims of unranked parameters that a MatchCast gave a rank.
    pub late: Vec<LateDim>,
}

impl Plan {
    pub fn most<'a>(&'a self, facts: &'a mut Facts) -> Most<'a> {
        Most { bounds: &self.bounds, unbounded: &self.unbounded, facts }
    }
}

pub struct Planner<'a> {
    typed: &'a Typed,
    checks: FnvHashMap<u32, Vec<&'a Check>>,
    bufs: Vec<Buf>,
    /// The innermost list is last.
    steps: Vec<Vec<Step>>,
    bounds: HashMap<Var, PrimExpr>,
    unbounded: HashSet<Var>,
    /// What is known of the arguments, and what is known now.
    given: Facts,
    facts: Facts,
    /// Of the widest vectors that kernels may be scheduled for.
    room: Room,
    /// Checks found so far in the whole program, numbered from 1.
    infos: &'a mut Checks,
    active: Vec<String>,
    kernels: &'a mut Vec<PrimFunc>,
    late: Vec<LateDim>,
    /// What was known before the first check of each branch that is under way.
    outside: Vec<Option<Box<Facts>>>,
}

type Res<T> = Result<T, Diagnostic>;

impl<'a> Planner<'a> {
    pub fn new(
        typed: &'a Typed,
        facts: Facts,
        room: Room,
        infos: &'a mut Checks,
        kernels: &'a mut Vec<PrimFunc>,
    ) -> Planner<'a> {
        let mut checks: FnvHashMap<u32, Vec<&Check>> = FnvHashMap::default();
        for c in &typed.checks {
            checks.entry(c.before.id()).or_default().push(c);
        }
        Planner {
            typed,
            checks,
            bufs: vec![],
            steps: vec![vec![]],
            bounds: HashMap::new(),
            unbounded: HashSet::new(),
            given: facts.clone(),
            facts,
            room,
            infos,
            active: vec![],
            kernels,
            late: vec![],
            outside: vec![],
        }
    }

    /// Lays out `f`, whose parameters are already bound in `scope`.
    pub fn plan(mut self, f: &Function, mut scope: Scope, bufs: Vec<Buf>) -> Res<Plan> {
        self.bufs = bufs;
        self.active.push(f.name.clone());
        self.entry_checks(f, &mut scope)?;
        let result = self.body(f, &mut scope)?;
        self.steps = std::mem::take(&mut self.steps).into_iter().map(super::early::checks_first).collect();
        let result = self.place_results(result)?;
        Ok(Plan {
            bufs: self.bufs,
            steps: self.steps.pop().unwrap_or_default(),
            result,
            bounds: self.bounds,
            unbounded: self.unbounded,
            late: self.late,
        })
    }

    /// The body of a function with its checks at the end.
    fn body(&mut self, f: &Function, scope: &mut Scope) -> Res<HostValue> {
        self.seq(&f.body, scope)
    }

    fn step(&mut self, s: Step) {
        if let Some(list) = self.steps.last_mut() {
            list.push(s);
        }
    }

    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Res<T>) -> Res<(T, Vec<Step>)> {
        self.steps.push(vec![]);
        self.outside.push(None);
        let r = f(self);
        // What a branch has checked is known in that branch alone.
        if let Some(Some(facts)) = self.outside.pop() {
            self.facts = *facts;
        }
        let steps = self.steps.pop().unwrap_or_default();
        Ok((r?, steps))
    }

    /// A dim of the current function over the entry's variables.
    fn dim(&mut self, e: &PrimExpr, scope: &Scope) -> PrimExpr {
        let e = e.substitute(&scope.dims);
        if e.as_int().is_some() || e.as_var().is_some() {
            return e;
        }
        self.facts.simplify(&e)
    }

    fn dims(&mut self, es: &[PrimExpr], scope: &Scope) -> Vec<PrimExpr> {
        es.iter().map(|e| self.dim(e, scope)).collect()
    }

    /// At or above it whatever the data is. What nothing bounds stays, with dims of any size.
    fn bound(&mut self, e: &PrimExpr) -> PrimExpr {
        let mut most = Most { bounds: &self.bounds, unbounded: &self.unbounded, facts: &mut self.facts };
        let bound = most.of(e);
        bound.unwrap_or_else(|| {
            self.unbounded.extend(e.vars().into_iter().filter(|v| self.bounds.contains_key(v)));
            e.clone()
        })
    }

    /// The most bytes of a dense tensor.
    fn most_bytes(&mut self, dims: &[PrimExpr], dtype: DType) -> PrimExpr {
        let most: Vec<PrimExpr> = dims.iter().map(|d| self.bound(d)).collect();
        self.facts.simplify(&byte_size(&most, dtype))
    }

    fn workspace(&mut self, bytes: PrimExpr) -> BufId {
        let bytes = self.bound(&bytes);
        let bytes = self.facts.simplify(&bytes);
        self.bufs.push(Buf { place: Place::Workspace, bytes });
        BufId(self.bufs.len() - 1)
    }

    fn constant(&mut self, c: &relax_ir::Constant) -> BufId {
        let bytes = PrimExpr::i64(c.size() as i64);
        self.bufs.push(Buf { place: Place::Constant(c.clone()), bytes });
        BufId(self.bufs.len() - 1)
    }

    /// A fresh tensor in the workspace.
    fn tensor(&mut self, dims: Vec<PrimExpr>, dtype: DType) -> TensorValue {
        let bytes = self.most_bytes(&dims, dtype);
        TensorValue { buf: self.workspace(bytes), dims, dtype }
    }

    fn known(&mut self, info: &TensorInfo, scope: &Scope, span: Span) -> Res<(Vec<PrimExpr>, DType)> {
        match (info.known_dims(), info.dtype) {
            (Some(d), Some(t)) => Ok((self.dims(d, scope), t)),
            _ => Err(Diagnostic::unsupported(
                "dynamic-structure",
                span,
                "a tensor whose rank or dtype is not known at compile time cannot be compiled here",
            )
            .help("state its rank and dtype with R.match_cast")),
        }
    }

    fn seq(&mut self, seq: &SeqExpr, scope: &mut Scope) -> Res<HostValue> {
        for block in &seq.blocks {
            for b in &block.bindings {
                let value = match &b.value {
                    BindingValue::Expr(e) => {
                        self.checks_before(&b.var, scope)?;
                        let v = self.binding(&b.var, e, scope)?;
                        self.births(&b.var, &v, scope);
                        match self.typed.sinfo.get(&b.var).filter(|_| calls_value(e)).cloned() {
                            // A cast of a function speaks of its results.
                            Some(info) => {
                                let what = format!("result of the call, {}", b.var.name());
                                self.match_cast(v, &info, scope, &what, b.span)?
                            }
                            None => v,
                        }
                    }
                    BindingValue::MatchCast { value, struct_info } => {
                        let v = self.expr(value, None, scope)?;
                        let info = self.typed.sinfo.get(&b.var).unwrap_or(struct_info).clone();
                        let what = format!("match_cast of {}", b.var.name());
                        self.cast_of_function(value, struct_info, scope, &what, b.span)?;
                        self.match_cast(v, &info, scope, &what, b.span)?
                    }
                };
                scope.vars.insert(b.var.clone(), value);
            }
        }
        self.expr(&seq.body, None, scope)
    }

    /// Shape variables that analysis gave to dims without a name take the value's dims.
    fn births(&mut self, var: &RVar, value: &HostValue, scope: &mut Scope) {
        for birth in self.typed.births.get(var).into_iter().flatten() {
            if let Some(d) = value.birth_dim(birth) {
                scope.dims.entry(birth.var.clone()).or_insert_with(|| d.clone());
            }
        }
    }

    fn binding(&mut self, var: &RVar, e: &Expr, scope: &mut Scope) -> Res<HostValue> {
        let typed = self.typed;
        let info = typed.sinfo.get(var);
        if let ExprKind::Function(f) = e.kind() {
            // A local function sees itself: it is found by its variable when the closure is expanded.
            let mut captured = scope.clone();
            captured.vars.remove(var);
            return Ok(HostValue::Func(f.clone(), Arc::new(captured)));
        }
        self.expr(e, info, scope)
    }

    fn expr(&mut self, e: &Expr, info: Option<&StructInfo>, scope: &mut Scope) -> Res<HostValue> {
        Ok(match e.kind() {
            ExprKind::Var(v) => scope
                .vars
                .get(v)
                .cloned()
                .ok_or_else(|| Diagnostic::internal(e.span(), format!("variable {} has no value", v.name())))?,
            ExprKind::Constant(c) => {
                let dims = c.shape.iter().map(|&d| PrimExpr::i64(d)).collect();
                HostValue::Tensor(TensorValue { buf: self.constant(c), dims, dtype: c.dtype })
            }
            ExprKind::GlobalVar(g) => HostValue::Global(g.clone()),
            // It is looked up where it is evaluated, called or not.
            ExprKind::ExternFunc(g, _) => return Err(unsupported_call(e.span(), &format!("the packed function {g}"))),
            ExprKind::Tuple(fields) => {
                HostValue::Tuple(fields.iter().map(|f| self.expr(f, None, scope)).collect::<Res<_>>()?)
            }
            ExprKind::TupleGetItem(t, i) => match self.expr(t, None, scope)? {
                HostValue::Tuple(mut f) if *i < f.len() => f.swap_remove(*i),
                _ => return Err(Diagnostic::internal(e.span(), "tuple index of a value that is no such tuple")),
            },
            ExprKind::Seq(s) => self.seq(s, &mut scope.clone())?,
            ExprKind::Function(f) => HostValue::Func(f.clone(), Arc::new(scope.clone())),
            ExprKind::If { cond, then, otherwise } => self.branch(e, cond, then, otherwise, info, scope)?,
            ExprKind::Call(c) => self.call(c, e.span(), info, scope)?,
            // The values of a shape are int64, whatever scalars they come from.
            ExprKind::Shape(v) => {
                HostValue::Shape(self.dims(v, scope).into_iter().map(|d| d.cast(DType::I64)).collect())
            }
            ExprKind::Prim(p) => HostValue::Prim(self.dim(p, scope)),
            ExprKind::Str(s) => HostValue::Str(s.clone()),
            ExprKind::DType(_) => HostValue::DType,
            ExprKind::Absent => HostValue::Absent,
            ExprKind::Op(o) => {
                return Err(Diagnostic::error(
                    "op-as-value",
                    e.span(),
                    format!("R.{} is an operator, not a value: it can only be called", o.name),
                ))
            }
        })
    }

    fn call(&mut self, c: &Call, span: Span, info: Option<&StructInfo>, scope: &mut Scope) -> Res<HostValue> {
        match &c.callee {
            Callee::Op(op) => match op.name {
                "call_tir" | "call_tir_inplace" => self.call_tir(c, span, scope),
                _ => super::ops::call(self, c, op, span, info, scope),
            },
            Callee::Expr(f) => {
                let callee = self.expr(f, None, scope)?;
                let args: Vec<HostValue> = c.args.iter().map(|a| self.expr(a, None, scope)).collect::<Res<_>>()?;
                match callee {
                    HostValue::Global(name) => {
                        let typed = self.typed;
                        match typed.module.get(&name) {
                            Some(Func::Relax(f)) => self.expand(f, Scope::default(), args, span),
                            Some(Func::Prim(prim)) if prim.returns.is_some() => {
                                let d = unsupported_call(span, &format!("{name}, which returns a scalar,"));
                                let empty = matches!(prim.body.kind(), StmtKind::Seq(s) if s.is_empty());
                                let scalars = args.iter().map(|a| match a {
                                    HostValue::Prim(p) => Some(p.clone()),
                                    _ => None,
                                });
                                returned(prim, scalars).filter(|_| empty).map(HostValue::Prim).ok_or(d)
                            }
                            Some(Func::Prim(prim)) => {
                                let written = written_buffers(prim);
                                let constant = prim.buffers().zip(&args).any(|(b, a)| match a {
                                    HostValue::Tensor(t) => {
                                        written.contains(&b.id())
                                            && matches!(self.bufs[t.buf.0].place, Place::Constant(_))
                                    }
                                    _ => false,
                                });
                                if constant {
                                    let d = Diagnostic::error("call", span, format!("{name} writes to a constant"));
                                    return Err(d.help("give it a tensor of R.builtin.alloc_tensor"));
                                }
                                match prim.attrs.get(TESTED) {
                                    Some(_) => self.tested_kernel(prim, &args, vec![], span)?,
                                    None => self.kernel(prim, &args, &[], span)?,
                                }
                                Ok(HostValue::unit())
                            }
                            None => Err(unsupported_call(span, &format!("the function {name}"))),
                        }
                    }
                    HostValue::Func(f, captured) => {
                        let mut inner = (*captured).clone();
                        // A recursive local function finds itself under the variable it was bound to.
                        if let ExprKind::Var(v) = f_callee(c) {
                            inner.vars.entry(v.clone()).or_insert(HostValue::Func(f.clone(), captured.clone()));
                        }
                        self.expand(&f, inner, args, span)
                    }
                    _ => Err(unsupported_call(span, "this value")),
                }
            }
        }
    }

    /// Expands a call of a Relax function in place: parameters are matched against their annotations.
    fn expand(&mut self, f: &Function, mut scope: Scope, args: Vec<HostValue>, span: Span) -> Res<HostValue> {
        if self.active.contains(&f.name) || self.active.len() > MAX_CALL_DEPTH {
            return Err(unsupported_call(span, &format!("the recursive function {}", f.name)));
        }
        self.active.push(f.name.clone());
        let typed = self.typed;
        // A dim may name a variable that a later parameter binds.
        let mut later = vec![];
        for (p, a) in f.params.iter().zip(args) {
            let mut value = a;
            if let Some(info) = typed.sinfo.get(&p.var) {
                let what = format!("argument {} of {}", p.var.name(), f.name);
                value = self.match_parameter(value, info, &mut scope, &what, span, &mut later)?;
            }
            scope.vars.insert(p.var.clone(), value);
        }
        self.match_later(later, &scope, span)?;
        self.entry_checks(f, &mut scope)?;
        let result = self.body(f, &mut scope);
        self.active.pop();
        result
    }

    /// Expression dims of the parameters, once every lone variable is bound, and analysis' checks at entry.
    fn entry_checks(&mut self, f: &Function, scope: &mut Scope) -> Res<()> {
        for p in &f.params {
            self.checks_before(&p.var, scope)?;
        }
        Ok(())
    }

    fn checks_before(&mut self, var: &RVar, scope: &mut Scope) -> Res<()> {
        let Some(list) = self.checks.get(&var.id()).cloned() else { return Ok(()) };
        for c in list {
            let condition = c.condition.substitute(&scope.dims);
            let message = c.message.clone();
            self.require(condition, code::CHECK, message, c.span)?;
        }
        Ok(())
    }

    /// Emits a check unless it is proved, known from there on; proved false is an error.
    pub fn require(&mut self, condition: PrimExpr, code: i64, message: String, span: Span) -> Res<()> {
        self.require_filled(condition, code, Message { text: message, numbers: vec![] }, span)
    }

    pub fn require_filled(&mut self, condition: PrimExpr, code: i64, message: Message, span: Span) -> Res<()> {
        let Message { text: message, numbers } = message;
        match self.facts.prove(&condition) {
            Answer::Yes => return Ok(()),
            Answer::No if self.steps.len() == 1 => {
                return Err(Diagnostic::error("check-fails", span, message).here("this can never hold"))
            }
            _ => {}
        }
        let (wanted, got) = match condition.kind() {
            relax_ir::prim::PrimKind::Binary(op, a, b) if op.is_compare() && a.dtype() == DType::I64 => {
                (b.clone(), a.clone())
            }
            _ => (PrimExpr::i64(1), PrimExpr::i64(0)),
        };
        let (number, what) = self.infos.add(code, relax_ir::printer::print_prim(&condition), message, span);
        // Of n % m == 0 the prover concludes what no m = 0 holds.
        let divisors = constraints::open_divisors(&condition, &mut self.facts);
        self.assume(&condition);
        // In a branch it holds there alone.
        if self.steps.len() == 1 {
            self.learn_bound(&condition);
        }
        for d in &divisors {
            self.assume(&d.clone().ne(PrimExpr::int(d.dtype(), 0)));
        }
        let condition = constraints::guarded(&condition, divisors);
        self.step(Step::Check { condition, code, constraint: number, wanted, got, what, numbers });
        Ok(())
    }

    /// What was checked may bound a dim that data tells: `s == min(s, n)` leaves no more than `n`.
    fn learn_bound(&mut self, condition: &PrimExpr) {
        let relax_ir::prim::PrimKind::Binary(op, a, b) = condition.kind() else { return };
        let sides = match op {
            BinOp::Eq => vec![(a, b), (b, a)],
            BinOp::Le | BinOp::Lt => vec![(a, b)],
            BinOp::Ge | BinOp::Gt => vec![(b, a)],
            _ => vec![],
        };
        for (v, most) in sides {
            let Some(v) = v.as_var().filter(|v| self.unbounded.contains(v)) else { continue };
            let mut known = Most { bounds: &self.bounds, unbounded: &self.unbounded, facts: &mut self.facts };
            if let Some(bound) = known.of(most) {
                self.unbounded.remove(v);
                self.bounds.insert(v.clone(), bound);
            }
        }
    }

    /// Takes a condition for true until the end of the branch under way.
    fn assume(&mut self, condition: &PrimExpr) {
        if let Some(outside @ None) = self.outside.last_mut() {
            *outside = Some(Box::new(self.facts.clone()));
        }
        self.facts.assume(condition);
    }

    fn call_tir(&mut self, c: &Call, span: Span, scope: &mut Scope) -> Res<HostValue> {
        let typed = self.typed;
        let prim = called(&typed.module, c, span)?;
        let mut inputs = vec![];
        for a in &c.args[1..] {
            match self.expr(a, None, scope)? {
                HostValue::Tuple(f) => inputs.extend(f),
                // `tir_vars=R.shape([m, n])`
                HostValue::Shape(v) => inputs.extend(v.into_iter().map(HostValue::Prim)),
                v => inputs.push(v),
            }
        }
        let mut outputs = vec![];
        let single = c.sinfo_args.len() == 1 && !matches!(c.sinfo_args[0], StructInfo::Tuple(_));
        let infos: Vec<StructInfo> = match &c.sinfo_args[..] {
            [StructInfo::Tuple(f)] => f.clone(),
            other => other.to_vec(),
        };
        let inplace = c.attrs.ints("inplace_indices").unwrap_or_default();
        for (i, info) in infos.iter().enumerate() {
            let t =
                info.as_tensor().ok_or_else(|| unsupported_call(span, "a PrimFunc with a result that is no tensor"))?;
            let (dims, dtype) = self.known(t, scope, span)?;
            match inplace.get(i).copied().filter(|&k| k >= 0 && c.is_op("call_tir_inplace")) {
                Some(k) => match inputs.get_mut(k as usize) {
                    Some(HostValue::Tensor(x)) => {
                        // What was folded to a constant, or is one, stays what it is.
                        if matches!(self.bufs[x.buf.0].place, Place::Constant(_)) {
                            let own = self.tensor(x.dims.clone(), x.dtype);
                            let bytes = byte_size(&x.dims, x.dtype);
                            self.step(Step::Copy { from: x.buf, to: own.buf, bytes });
                            *x = own;
                        }
                        outputs.push((x.clone(), true));
                    }
                    _ => return Err(Diagnostic::error("inplace", span, "inplace_indices names no tensor argument")),
                },
                None => outputs.push((self.tensor(dims, dtype), false)),
            }
        }
        let fresh: Vec<TensorValue> = outputs.iter().filter(|o| !o.1).map(|o| o.0.clone()).collect();
        match prim.attrs.get(TESTED) {
            Some(_) => self.tested_kernel(prim, &inputs, fresh, span)?,
            None => self.kernel(prim, &inputs, &fresh, span)?,
        }
        let mut values: Vec<HostValue> = outputs.into_iter().map(|o| HostValue::Tensor(o.0)).collect();
        Ok(if single { values.swap_remove(0) } else { HostValue::Tuple(values) })
    }

    /// Calls `prim` on `inputs` (tensors and scalars) and fresh `outputs`.
    pub fn kernel(&mut self, prim: &PrimFunc, inputs: &[HostValue], outputs: &[TensorValue], span: Span) -> Res<()> {
        let ins: Vec<KernelArg> = inputs
            .iter()
            .map(|v| match v {
                HostValue::Tensor(t) => KernelArg::Tensor { dims: &t.dims, dtype: t.dtype },
                HostValue::Prim(e) => KernelArg::Scalar(e.clone()),
                _ => KernelArg::Other,
            })
            .collect();
        let outs: Vec<KernelArg> =
            outputs.iter().map(|t| KernelArg::Tensor { dims: &t.dims, dtype: t.dtype }).collect();
        let m = match_args(prim, &ins, &outs, self.room, span)?;
        for (actual, wanted, what) in m.later {
            self.require(PrimExpr::raw_binary(BinOp::Eq, actual, wanted), code::CHECK, what, span)?;
        }
        let buffers = m.buffers.iter().map(|from| match from {
            From::Input(i) => match &inputs[*i] {
                HostValue::Tensor(t) => t.buf,
                _ => BufId(0),
            },
            From::Output(i) => outputs[*i].buf,
        });
        let buffers = buffers.collect();
        let written = written_buffers(prim);
        let reads = prim.buffers().map(|b| !written.contains(&b.id())).collect();
        let scratch = (!m.scratch.is_int(0)).then(|| self.workspace(m.scratch));
        self.step(Step::Kernel { kernel: prim.name.clone(), buffers, dims: m.dims, scratch, reads });
        Ok(())
    }

    fn branch(
        &mut self,
        e: &Expr,
        cond: &Expr,
        then: &SeqExpr,
        otherwise: &SeqExpr,
        info: Option<&StructInfo>,
        scope: &mut Scope,
    ) -> Res<HostValue> {
        let condition = match self.expr(cond, None, scope)? {
            HostValue::Prim(p) => p,
            HostValue::Tensor(t) if t.dims.is_empty() => {
                let var = Var::new("cond", DType::I64);
                self.step(Step::Read { var: var.clone(), from: t.buf, index: 0, dtype: t.dtype });
                var.expr().ne(PrimExpr::i64(0))
            }
            // Of which rank or dtype it is only the value tells: a look at it, over values.
            _ => {
                return Err(Diagnostic::unsupported("if-condition", cond.span(), "the condition must be a scalar bool"))
            }
        };
        if let Some(known) = condition.as_int() {
            return self.seq(if known != 0 { then } else { otherwise }, &mut scope.clone());
        }
        for d in constraints::decisive_divisors(&condition, &mut self.facts) {
            let zero = PrimExpr::int(d.dtype(), 0);
            self.require(d.ne(zero), code::CHECK, "the condition of `if` divides by it".to_string(), cond.span())?;
        }
        let divisors = constraints::open_divisors(&condition, &mut self.facts);
        let (a, then_steps) = self.nested(|p| {
            divisors.iter().for_each(|d| p.assume(&d.clone().ne(PrimExpr::int(d.dtype(), 0))));
            p.assume(&condition);
            p.seq(then, &mut scope.clone())
        })?;
        let (b, else_steps) = self.nested(|p| {
            if divisors.is_empty() {
                p.assume(&condition.clone().not());
            }
            p.seq(otherwise, &mut scope.clone())
        })?;
        // What analysis knows of the result's dims holds whichever branch was taken.
        let info = info.filter(|i| {
            let mut known = true;
            vars::each_dim(i, &mut |d, _| known &= d.vars().iter().all(|v| scope.dims.contains_key(v)));
            known
        });
        let info = info.map(|i| vars::map_dims(i, &mut |d| self.dim(d, scope)));
        let mut join = Join { then: then_steps, otherwise: else_steps, sizes: vec![], span: e.span() };
        let joined = self.join(&a, &b, info.as_ref(), &mut join)?;
        let condition = constraints::guarded(&condition, divisors);
        self.close(condition, join);
        Ok(joined)
    }

    // What the operators of `ops.rs` need.

    pub fn value(&mut self, e: &Expr, scope: &mut Scope) -> Res<HostValue> {
        self.expr(e, None, scope)
    }
    pub fn result_dims(&mut self, info: Option<&StructInfo>, scope: &Scope, span: Span) -> Res<(Vec<PrimExpr>, DType)> {
        match info {
            Some(StructInfo::Tensor(t)) => self.known(t, scope, span),
            _ => Err(Diagnostic::internal(span, "the result of this call is no tensor")),
        }
    }
    pub fn emit(&mut self, s: Step) {
        self.step(s);
    }
    pub fn tensor_of(&mut self, dims: Vec<PrimExpr>, dtype: DType) -> TensorValue {
        self.tensor(dims, dtype)
    }
    pub fn set_bound(&mut self, v: &Var, bound: PrimExpr) {
        let bound = self.bound(&bound);
        self.assume(&v.expr().le(bound.clone()));
        if bound.vars().iter().any(|v| self.unbounded.contains(v)) {
            self.unbounded.insert(v.clone());
        }
        self.bounds.insert(v.clone(), bound);
    }
    /// A dim read from data, of any size and so far of any sign.
    pub fn declare_unbounded(&mut self, v: &Var) {
        self.facts.declare_signed(v);
        self.unbounded.insert(v.clone());
    }
    pub fn upper(&mut self, e: &PrimExpr) -> PrimExpr {
        self.bound(e)
    }
    pub fn dim_value(&mut self, e: &PrimExpr, scope: &Scope) -> PrimExpr {
        self.dim(e, scope)
    }
    /// Names and keeps a kernel made during planning.
    pub fn place_kernel(&mut self, f: &mut PrimFunc) {
        crate::share::place(f, &self.typed.module, self.kernels);
    }
    pub fn typed(&self) -> &'a Typed {
        self.typed
    }
}

/// Is this a call of a function that is a value?
pub fn calls_value(e: &Expr) -> bool {
    matches!(e.kind(), ExprKind::Call(c) if matches!(f_callee(c), ExprKind::Var(_)))
}

fn f_callee(c: &Call) -> &ExprKind {
    static NONE: ExprKind = ExprKind::Absent;
    match &c.callee {
        Callee::Expr(e) => e.kind(),
        Callee::Op(_) => &NONE,
    }
}

fn unsupported_call(span: Span, what: &str) -> Diagnostic {
    Diagnostic::unsupported("call", span, format!("{what} cannot be called in compiled code"))
}

/// Bytes of a dense tensor.
pub fn byte_size(dims: &[PrimExpr], dtype: DType) -> PrimExpr {
    PrimExpr::product(dims) * PrimExpr::i64(dtype.bytes() as i64)
}

/// Ids of the buffers that the PrimFunc stores to.
pub fn written_buffers(f: &PrimFunc) -> std::collections::HashSet<u32> {
    let mut out = std::collections::HashSet::new();
    f.body.walk(&mut |s| match s.kind() {
        relax_ir::tir::StmtKind::Store { buffer, .. } => drop(out.insert(buffer.id())),
        relax_ir::tir::StmtKind::Block(b) => {
            for m in &b.match_buffers {
                out.insert(m.source.buffer.id());
            }
        }
        _ => {}
    });
    out
}
