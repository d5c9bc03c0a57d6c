//! A stage with flat addresses: what the loop builders work on.

use super::emit::{compute_type, has_load, Emit, Res};
use super::poly::Poly;
use super::product::Given;
use super::stage::{Acc, Axis, Stage};
use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// Lanes of a vector that are the same element, at most.
const MOST_REPEATS: i64 = 8;

/// `ptr[offset] = value`, stored as `dtype`.
#[derive(Clone)]
pub struct Target {
    pub ptr: Var,
    pub offset: PrimExpr,
    pub dtype: DType,
    pub value: PrimExpr,
}

/// See [`Stage`]; every load is from a flat pointer.
#[derive(Clone)]
pub struct Nest {
    pub spatial: Vec<Axis>,
    pub reduce: Vec<Axis>,
    pub accs: Vec<Acc>,
    pub outs: Vec<Target>,
    pub given: Option<Given>,
}

/// What the values of a nest look like along one axis.
#[derive(Default, Debug)]
pub struct Scan {
    /// Distinct loads by how they move along the axis: not at all, in vectors, or element by element.
    pub invariant: usize,
    pub unit: usize,
    pub gather: usize,
    /// Those of them that 512-bit vectors read by one instruction.
    pub named: usize,
    /// Those of them that read elements side by side, each `times` times in a row, or so many such rows by turns.
    pub repeated: usize,
    pub times: Option<i64>,
    /// A condition along the axis guards loads: vectors cannot evaluate both sides.
    pub blocked: bool,
    /// Bytes of the widest value that varies along the axis.
    pub widest: usize,
    pub ops: usize,
    pub calls: usize,
}

impl Nest {
    pub fn new(e: &mut Emit, s: &Stage) -> Res<Nest> {
        for a in s.spatial.iter().chain(&s.reduce) {
            let extent = Poly::of(&a.extent, &e.ranges);
            e.ranges.add_loop(&a.var, Poly::default(), extent);
        }
        let mut accs = vec![];
        for a in &s.accs {
            let (init, update) = (e.flatten(&a.init)?, e.flatten(&a.update)?);
            accs.push(Acc { var: a.var.clone(), init, update });
        }
        let mut outs = vec![];
        for o in &s.outs {
            let (ptr, offset) = e.offset(&o.buffer, &o.indices)?;
            let value = e.flatten(&o.value)?;
            outs.push(Target { ptr, offset: offset.expr(), dtype: o.buffer.dtype(), value });
        }
        let (spatial, reduce) = (s.spatial.clone(), s.reduce.clone());
        let mut n = Nest { spatial, reduce, accs, outs, given: s.given };
        n.drop_units();
        n.spatial = n.merge(e, n.spatial.clone());
        n.reduce = n.merge(e, n.reduce.clone());
        Ok(n)
    }

    pub fn map_exprs(&mut self, f: &mut dyn FnMut(&PrimExpr) -> PrimExpr) {
        for a in &mut self.accs {
            a.init = f(&a.init);
            a.update = f(&a.update);
        }
        for o in &mut self.outs {
            o.offset = f(&o.offset);
            o.value = f(&o.value);
        }
    }

    /// Values computed, offsets of outputs left out.
    pub fn values(&self) -> Vec<&PrimExpr> {
        self.accs.iter().flat_map(|a| [&a.init, &a.update]).chain(self.outs.iter().map(|o| &o.value)).collect()
    }

    fn drop_units(&mut self) {
        let mut map = HashMap::new();
        for a in self.spatial.iter().chain(&self.reduce) {
            if a.len() == Some(1) {
                map.insert(a.var.clone(), PrimExpr::i64(0));
            }
        }
        self.spatial.retain(|a| a.len() != Some(1));
        self.reduce.retain(|a| a.len() != Some(1));
        if !map.is_empty() {
            self.map_exprs(&mut |e| e.substitute(&map));
        }
    }

    /// Offsets of all loads and stores.
    fn offsets(&self, e: &Emit) -> Vec<Poly> {
        let mut out: Vec<Poly> = self.outs.iter().map(|o| Poly::of(&o.offset, &e.ranges)).collect();
        for v in self.values() {
            v.walk(&mut |n| {
                if let PrimKind::Load { offset, .. } = n.kind() {
                    out.push(Poly::of(offset, &e.ranges));
                }
            });
        }
        out
    }

    /// Joins neighbouring axes that all accesses walk as one.
    pub fn merge(&mut self, e: &mut Emit, mut axes: Vec<Axis>) -> Vec<Axis> {
        let mut i = axes.len();
        while i >= 2 {
            i -= 1;
            let (a, b) = (axes[i - 1].clone(), axes[i].clone());
            let extent = Poly::of(&b.extent, &e.ranges);
            let joined = self.offsets(e).iter().all(|p| match (p.split(&a.var), p.split(&b.var)) {
                (Some((x, _)), Some((y, _))) => x == y.mul(&extent),
                _ => false,
            });
            let plain = self.values().iter().any(|v| used_plainly(v, &a.var) || used_plainly(v, &b.var));
            if !joined || plain {
                continue;
            }
            let total = Poly::of(&a.extent, &e.ranges).mul(&extent);
            let var = Var::new(b.var.name(), DType::I64);
            e.ranges.add_loop(&var, Poly::default(), total.clone());
            let map = HashMap::from([(a.var.clone(), PrimExpr::i64(0)), (b.var.clone(), var.expr())]);
            self.map_exprs(&mut |e| e.substitute(&map));
            axes.splice(i - 1..=i, [Axis { var, extent: total.expr() }]);
        }
        axes
    }

    /// The stride of the outputs along `v`, when they agree on it.
    pub fn out_stride(&self, e: &Emit, v: &Var) -> Option<Poly> {
        let mut found: Option<Poly> = None;
        for o in &self.outs {
            let (s, _) = Poly::of(&o.offset, &e.ranges).split(v)?;
            if found.as_ref().is_some_and(|f| *f != s) {
                return None;
            }
            found = Some(s);
        }
        found
    }
}

fn is_word(load: &PrimExpr) -> bool {
    [DType::F32, DType::I32, DType::U32].contains(&load.dtype())
}

/// Whether `v` occurs in `e` other than in the offset of a load.
pub fn used_plainly(e: &PrimExpr, v: &Var) -> bool {
    match e.kind() {
        PrimKind::Var(w) => w == v,
        PrimKind::Load { .. } => false,
        _ => e.children().iter().any(|c| used_plainly(c, v)),
    }
}

/// How the values move along `v`.
pub fn scan(values: &[&PrimExpr], v: &Var, e: &Emit) -> Scan {
    let mut s = Scanner { vars: vec![v.clone()], seen: vec![], out: Scan::default(), e };
    for x in values {
        s.visit(x);
    }
    s.out
}

struct Scanner<'a> {
    /// The axis, and variables bound to values that vary along it.
    vars: Vec<Var>,
    seen: Vec<PrimExpr>,
    out: Scan,
    e: &'a Emit,
}

impl Scanner<'_> {
    fn varies(&self, e: &PrimExpr) -> bool {
        self.vars.iter().any(|v| e.uses(v))
    }

    /// Whether an offset is made of int64 that stand side by side in memory.
    fn is_named(&self, offset: &PrimExpr) -> bool {
        let unit = |at: &PrimExpr| {
            let p = Poly::of(at, &self.e.ranges).split(&self.vars[0]);
            p.is_some_and(|(s, _)| s.is_zero() || s.as_const() == Some(1))
        };
        match offset.kind() {
            PrimKind::Load { offset: at, .. } => offset.dtype() == DType::I64 && unit(at),
            PrimKind::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Min | BinOp::Max, a, b) => {
                self.is_named(a) && self.is_named(b)
            }
            _ => !self.varies(offset),
        }
    }

    fn visit(&mut self, x: &PrimExpr) {
        if self.varies(x) && !x.dtype().is_bool() {
            self.out.widest = self.out.widest.max(compute_type(x.dtype()).bytes());
        }
        match x.kind() {
            PrimKind::Load { offset, .. } => {
                if self.seen.contains(x) {
                    return;
                }
                self.seen.push(x.clone());
                if !self.varies(offset) {
                    self.out.invariant += 1;
                    return;
                }
                let p = Poly::of(offset, &self.e.ranges);
                let others = self.vars[1..].iter().any(|v| p.uses(v));
                match p.split(&self.vars[0]) {
                    Some((s, _)) if s.as_const() == Some(1) && !others => self.out.unit += 1,
                    // Wide vectors of every second element, and backwards, are loads and a shuffle.
                    Some((s, _)) if self.e.wide && matches!(s.as_const(), Some(2 | -1)) && !others && is_word(x) => {
                        self.out.unit += 1
                    }
                    Some((s, _)) if s.is_zero() && !others => self.out.invariant += 1,
                    _ => {
                        self.out.gather += 1;
                        let turns = || p.turns(&self.vars[0]).filter(|n| [2, 4].contains(n));
                        let times = p.repeats(&self.vars[0]).filter(|n| *n <= MOST_REPEATS).or_else(turns);
                        let times = times.filter(|_| !others);
                        let times =
                            times.filter(|n| self.e.wide && is_word(x) && self.out.times.is_none_or(|t| t == *n));
                        if times.is_some() {
                            self.out.repeated += 1;
                            self.out.times = times;
                        }
                        self.out.named += (self.e.interleaves && is_word(x) && self.is_named(offset)) as usize;
                    }
                }
                return;
            }
            PrimKind::Let(v, value, _) if self.varies(value) => self.vars.push(v.clone()),
            PrimKind::IfThenElse(c, t, f) => {
                self.out.blocked |= self.varies(c) && (has_load(t) || has_load(f));
            }
            PrimKind::Binary(BinOp::And | BinOp::Or, a, b) => self.out.blocked |= self.varies(a) && has_load(b),
            PrimKind::Call(f, _) if !matches!(f, Intrin::Abs | Intrin::Fabs | Intrin::Sqrt | Intrin::Floor) => {
                self.out.calls += 1
            }
            _ => {}
        }
        if !matches!(x.kind(), PrimKind::Var(_) | PrimKind::Int(_) | PrimKind::Float(_)) {
            self.out.ops += 1;
        }
        for c in x.children() {
            self.visit(c);
        }
    }
}
