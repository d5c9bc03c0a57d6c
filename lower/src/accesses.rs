//! Whether kernels that users wrote stay inside of their buffers.
//!
//! Each index of each access is compared with the extent of its dim: loop variables are in their ranges, axes of blocks
//! are what they are bound to, conditions around an access hold. What is proved costs nothing. A write that is outside
//! in some round of its loops, whatever the dims are, is an error, such a read a warning: its value means nothing, and
//! perhaps nobody uses it. The rest is known at run time only ([`OpenAccess`]): `--report` lists it, and with
//! `--check-bounds` kernels test it.

use crate::host::checks::Checks;
use relax_ir::analysis::show;
use relax_ir::op::{Answer, ShapeFacts};
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::program::{code, OpenAccess};
use relax_ir::sym::Facts;
use relax_ir::tir::{Buffer, PrimFunc, PrimParam, Stmt, StmtKind};
use relax_ir::{AttrValue, DType, Diagnostic, Diagnostics, Func, IRModule, PrimExpr, Span, Var};
use std::collections::{HashMap, HashSet};

mod tested;

pub use tested::{tested, STATUS};

/// The attribute of a kernel whose accesses are tested when it runs.
pub const TESTED: &str = "relax_aot.check_bounds";

/// An index that is not proved to be inside.
#[derive(Clone)]
pub struct Found {
    pub buffer: Buffer,
    pub indices: Vec<PrimExpr>,
    pub axis: usize,
    pub write: bool,
    pub span: Span,
}

impl Found {
    /// `A[i + 1]`
    pub fn text(&self) -> String {
        text(&self.buffer, &self.indices)
    }

    /// The check of the access in a kernel that tests it, called at `at`: its number and text.
    pub fn check(&self, kernel: &str, checks: &mut Checks, at: Span) -> (u32, String) {
        let verb = if self.write { "writes" } else { "reads" };
        let extent = relax_ir::printer::print_prim(&self.buffer.shape[self.axis]);
        let index = relax_ir::printer::print_prim(&self.indices[self.axis]);
        let condition = format!("0 <= {index} < {extent}");
        let message = format!("{kernel} {verb} {} outside of its buffer, index {}", self.text(), self.axis);
        checks.add(code::CHECK, condition, message, if self.span.is_none() { at } else { self.span })
    }
}

/// Marks the kernels that have accesses which are not proved: they test them when they run.
pub fn test_open(module: &mut IRModule) {
    for f in &mut module.funcs {
        if let Func::Prim(f) = f {
            if !loads_of(f).is_empty() {
                f.attrs.set(TESTED, AttrValue::Bool(true));
            }
        }
    }
}

/// The accesses of a kernel that are not proved.
pub fn loads_of(f: &PrimFunc) -> Vec<Found> {
    of(f).0
}

/// The accesses of all kernels of a module that are not proved to be inside.
///
/// # Errors
/// A write that is outside whenever its loops run; such a read is a warning.
pub fn check(module: &IRModule) -> (Vec<OpenAccess>, Diagnostics) {
    let (mut open, mut errors) = (vec![], Diagnostics::default());
    for f in &module.funcs {
        if let Func::Prim(f) = f {
            let (more, d) = of(f);
            open.extend(more.into_iter().map(|a| OpenAccess {
                kernel: f.name.clone(),
                access: a.text(),
                axis: a.axis,
                extent: show::dim(&a.buffer.shape[a.axis]),
                write: a.write,
                span: a.span,
            }));
            errors.extend(d);
        }
    }
    (open, errors)
}

fn of(f: &PrimFunc) -> (Vec<Found>, Diagnostics) {
    let mut stored = HashSet::new();
    f.body.walk(&mut |s| {
        if let StmtKind::Store { buffer, .. } = s.kind() {
            stored.insert(buffer.id());
        }
    });
    let mut w = Walk {
        f,
        stored,
        facts: Facts::new(),
        loops: vec![],
        values: HashMap::new(),
        guarded: false,
        span: f.span,
        open: vec![],
        errors: Diagnostics::default(),
    };
    let dims: HashSet<Var> = f.buffers().flat_map(|b| b.shape.iter().filter_map(|d| d.as_var().cloned())).collect();
    for p in &f.params {
        if let PrimParam::Scalar(v) = p {
            if !dims.contains(v) {
                w.facts.declare_signed(v);
            }
        }
    }
    w.stmt(&f.body);
    (w.open, w.errors)
}

struct Walk<'a> {
    f: &'a PrimFunc,
    /// Buffers that the kernel writes: what was loaded from them may change.
    stored: HashSet<u32>,
    facts: Facts,
    /// Loops around, the innermost last: variable, first value, rounds.
    loops: Vec<(Var, PrimExpr, PrimExpr)>,
    /// Axes of blocks and names, over loop variables.
    values: HashMap<Var, PrimExpr>,
    /// What is here need not run in every round.
    guarded: bool,
    span: Span,
    open: Vec<Found>,
    errors: Diagnostics,
}

fn int(e: &PrimExpr) -> bool {
    e.dtype().is_int() && e.dtype().lanes == 1
}

fn loads(e: &PrimExpr) -> bool {
    let mut found = false;
    e.walk(&mut |e| found |= matches!(e.kind(), PrimKind::BufferLoad(..) | PrimKind::Load { .. } | PrimKind::Call(..)));
    found
}

impl Walk<'_> {
    /// Runs `f` where `condition` holds.
    fn under(&mut self, condition: Option<&PrimExpr>, f: impl FnOnce(&mut Self)) {
        let (facts, guarded) = (self.facts.clone(), self.guarded);
        if let Some(c) = condition {
            self.assume(c);
        }
        self.guarded = true;
        f(self);
        (self.facts, self.guarded) = (facts, guarded);
    }

    fn assume(&mut self, condition: &PrimExpr) {
        let mut stays = true;
        condition.walk(&mut |e| match e.kind() {
            PrimKind::BufferLoad(b, _) => stays &= !self.stored.contains(&b.id()),
            PrimKind::Load { .. } => stays = false,
            _ => {}
        });
        if stays && condition.dtype().is_bool() {
            self.facts.assume(condition);
        }
    }

    /// `v` is another name for `value`.
    fn name(&mut self, v: &Var, value: &PrimExpr) {
        if !v.dtype().is_int() {
            return;
        }
        if loads(value) {
            self.facts.declare_signed(v);
            return;
        }
        self.facts.define(v, value);
        let value = value.substitute(&self.values);
        self.values.insert(v.clone(), value);
    }

    fn stmt(&mut self, s: &Stmt) {
        let outer = self.span;
        if !s.span().is_none() {
            self.span = s.span();
        }
        match s.kind() {
            StmtKind::Seq(list) => list.iter().for_each(|s| self.stmt(s)),
            StmtKind::For { var, min, extent, body, .. } => {
                self.expr(min);
                self.expr(extent);
                self.repeated(var, min, extent, body);
            }
            StmtKind::While { cond, body } => {
                self.expr(cond);
                self.under(None, |w| w.stmt(body));
            }
            StmtKind::If { cond, then, otherwise } => {
                self.expr(cond);
                self.under(Some(cond), |w| w.stmt(then));
                if let Some(s) = otherwise {
                    self.under(Some(&cond.clone().not()), |w| w.stmt(s));
                }
            }
            StmtKind::Block(b) => {
                for a in &b.axes {
                    self.expr(&a.binding);
                    self.name(&a.var, &a.binding);
                }
                let inside = |w: &mut Self| {
                    b.init.iter().for_each(|s| w.stmt(s));
                    w.stmt(&b.body);
                };
                match &b.predicate {
                    Some(p) => {
                        self.expr(p);
                        self.under(Some(p), inside);
                    }
                    None => inside(self),
                }
            }
            StmtKind::Store { buffer, indices, value } => {
                indices.iter().for_each(|i| self.expr(i));
                self.expr(value);
                self.access(buffer, indices, true);
            }
            StmtKind::Let { var, value, body } => {
                self.expr(value);
                self.name(var, value);
                self.stmt(body);
            }
            StmtKind::Assert { cond, .. } => {
                self.expr(cond);
                self.assume(cond);
            }
            StmtKind::Evaluate(e) => self.expr(e),
            StmtKind::CallPacked { .. } => s.exprs().into_iter().for_each(|e| self.expr(e)),
            StmtKind::Attr { value, body, .. } => {
                self.expr(value);
                self.stmt(body);
            }
            StmtKind::Alloc { body, .. } => self.stmt(body),
        }
        self.span = outer;
    }

    fn repeated(&mut self, var: &Var, min: &PrimExpr, extent: &PrimExpr, body: &Stmt) {
        let some = extent.clone().ge(PrimExpr::int(extent.dtype(), 1));
        if loads(min) || loads(extent) {
            self.facts.declare_signed(var);
            return self.under(None, |w| w.stmt(body));
        }
        if self.facts.prove(&some) == Answer::No {
            return;
        }
        let facts = self.facts.clone();
        if !min.is_int(0) {
            self.facts.declare_signed(var);
        }
        self.facts.assume(&some);
        self.facts.assume(&var.expr().ge(min.clone()));
        self.facts.assume(&var.expr().lt(min.clone() + extent.clone()));
        let (min, extent) = (min.substitute(&self.values), extent.substitute(&self.values));
        self.loops.push((var.clone(), min, extent));
        self.stmt(body);
        self.loops.pop();
        self.facts = facts;
    }

    fn expr(&mut self, e: &PrimExpr) {
        match e.kind() {
            PrimKind::BufferLoad(b, indices) => {
                indices.iter().for_each(|i| self.expr(i));
                self.access(b, indices, false);
            }
            PrimKind::IfThenElse(c, t, f) => {
                self.expr(c);
                self.under(Some(c), |w| w.expr(t));
                self.under(Some(&c.clone().not()), |w| w.expr(f));
            }
            PrimKind::Select(c, t, f) => {
                self.expr(c);
                self.under(None, |w| w.expr(t));
                self.under(None, |w| w.expr(f));
            }
            PrimKind::Binary(BinOp::And, a, b) => {
                self.expr(a);
                self.under(Some(a), |w| w.expr(b));
            }
            PrimKind::Binary(BinOp::Or, a, b) => {
                self.expr(a);
                self.under(Some(&a.clone().not()), |w| w.expr(b));
            }
            PrimKind::Let(v, value, body) => {
                self.expr(value);
                self.name(v, value);
                self.expr(body);
            }
            _ => e.children().into_iter().for_each(|c| self.expr(c)),
        }
    }

    fn access(&mut self, buffer: &Buffer, indices: &[PrimExpr], write: bool) {
        if indices.len() != buffer.ndim() {
            return;
        }
        for (axis, (index, extent)) in indices.iter().zip(&buffer.shape).enumerate() {
            if !int(index) {
                self.leave(buffer, indices, axis, write);
                continue;
            }
            let (i, n) = (index.clone().cast(DType::I64), extent.clone().cast(DType::I64));
            let zero = PrimExpr::i64(0);
            let holds = |w: &mut Self, c: PrimExpr| w.facts.prove(&c) == Answer::Yes;
            if holds(self, i.clone().ge(zero)) && holds(self, i.clone().lt(n.clone())) {
                continue;
            }
            match self.outside(&i, &n) {
                Some((lo, hi)) => {
                    self.refuse(buffer, indices, axis, write, (&lo, &hi));
                    self.leave(buffer, indices, axis, write);
                }
                None => self.leave(buffer, indices, axis, write),
            }
        }
    }

    /// The first and last value of an index that is outside for sure in one of these rounds.
    fn outside(&mut self, index: &PrimExpr, extent: &PrimExpr) -> Option<(PrimExpr, PrimExpr)> {
        if self.guarded || loads(index) {
            return None;
        }
        let e = index.substitute(&self.values);
        let (mut lo, mut hi) = (e.clone(), e.clone());
        let all: HashSet<Var> = self.loops.iter().map(|(v, ..)| v.clone()).collect();
        for (v, min, rounds) in self.loops.clone() {
            if !e.uses(&v) {
                continue;
            }
            if min.vars().iter().chain(&rounds.vars()).any(|u| all.contains(u)) {
                return None;
            }
            let next = HashMap::from([(v.clone(), v.expr() + PrimExpr::int(v.dtype(), 1))]);
            let step = self.facts.simplify(&(e.substitute(&next) - e.clone())).as_int()?;
            let last = min.clone() + rounds.clone() - PrimExpr::int(rounds.dtype(), 1);
            let (low, high) = if step >= 0 { (min, last) } else { (last, min) };
            lo = lo.substitute(&HashMap::from([(v.clone(), low.cast(v.dtype()))]));
            hi = hi.substitute(&HashMap::from([(v.clone(), high.cast(v.dtype()))]));
        }
        let (lo, hi) = (self.facts.simplify(&lo), self.facts.simplify(&hi));
        let below = self.facts.prove(&lo.clone().ge(PrimExpr::i64(0))) == Answer::No;
        let above = self.facts.prove(&hi.clone().lt(extent.clone())) == Answer::No;
        (below || above).then_some((lo, hi))
    }

    fn refuse(
        &mut self,
        buffer: &Buffer,
        indices: &[PrimExpr],
        axis: usize,
        write: bool,
        (lo, hi): (&PrimExpr, &PrimExpr),
    ) {
        let range = match lo == hi {
            true => format!("is {}", show::dim(lo)),
            false => format!("runs from {} to {}", show::dim(lo), show::dim(hi)),
        };
        let extent = show::dim(&buffer.shape[axis]);
        let what = format!(
            "{}: `{}` is outside of its buffer: index {axis} {range}, dim {axis} of `{}` is {extent}",
            self.f.name,
            text(buffer, indices),
            buffer.name,
        );
        let shape: Vec<String> = buffer.shape.iter().map(show::dim).collect();
        // TVM's own legalisation (0.23 to 0.26) reads before a tensor where a slice begins at a negative index.
        let d = match write {
            true => Diagnostic::error("access-outside", self.span, what).here("written here"),
            false => Diagnostic::warning("access-outside", self.span, what).here("read here"),
        };
        let d = d.note(format!("`{}` has the shape ({})", buffer.name, shape.join(", ")));
        self.errors.push(d.help("an index of a dim of extent n is at least 0 and at most n - 1"));
    }

    fn leave(&mut self, buffer: &Buffer, indices: &[PrimExpr], axis: usize, write: bool) {
        let known = |f: &Found| f.buffer == *buffer && f.indices == indices && f.axis == axis && f.write == write;
        if !self.open.iter().any(known) {
            let (buffer, indices) = (buffer.clone(), indices.to_vec());
            self.open.push(Found { buffer, indices, axis, write, span: self.span });
        }
    }
}

fn text(buffer: &Buffer, indices: &[PrimExpr]) -> String {
    let shown: Vec<String> = indices.iter().map(relax_ir::printer::print_prim).collect();
    format!("{}[{}]", buffer.name, shown.join(", "))
}
