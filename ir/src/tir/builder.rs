//! Building PrimFuncs from index expressions: how operators declare their computation.

use super::*;
use crate::prim::PrimKind;
use std::collections::HashSet;

/// How a reduction combines. `init` is what an empty reduction gives.
pub struct Reducer<'a> {
    pub init: PrimExpr,
    pub combine: &'a dyn Fn(PrimExpr, PrimExpr) -> PrimExpr,
}

/// Builds a PrimFunc in block form, one block per stage. Inputs first, then scalars, then [`KernelBuilder::finish`]
/// names the outputs. Every stage writes a buffer of its own; stages that are not outputs become root allocations.
#[derive(Default)]
pub struct KernelBuilder {
    name: String,
    params: Vec<PrimParam>,
    stages: Vec<Buffer>,
    stmts: Vec<Stmt>,
}

impl KernelBuilder {
    pub fn new(name: impl Into<String>) -> KernelBuilder {
        KernelBuilder { name: name.into(), ..Default::default() }
    }

    /// A parameter buffer.
    pub fn input(&mut self, name: &str, shape: &[PrimExpr], dtype: DType) -> Buffer {
        let buffer = Buffer::new(name, shape.to_vec(), dtype);
        self.params.push(PrimParam::Buffer { buffer: buffer.clone(), handle: None });
        buffer
    }

    /// A scalar parameter (e.g. a shape variable that no buffer dim binds).
    pub fn scalar(&mut self, var: &Var) {
        self.params.push(PrimParam::Scalar(var.clone()));
    }

    /// A buffer written by statements that the caller pushes itself.
    pub fn buffer(&mut self, name: &str, shape: &[PrimExpr], dtype: DType) -> Buffer {
        let b = Buffer::new(name, shape.to_vec(), dtype);
        self.stages.push(b.clone());
        b
    }

    /// A hand-written statement: algorithms that are no index expression (sorting, scans).
    pub fn push(&mut self, stmt: Stmt) {
        self.stmts.push(stmt);
    }

    /// The stages that `f` adds run one after the other for each value of `var` from 0 on: recurrences. Buffers made
    /// inside are written anew in each step.
    pub fn sequential(&mut self, var: &Var, extent: PrimExpr, f: impl FnOnce(&mut KernelBuilder)) {
        let outside = std::mem::take(&mut self.stmts);
        f(self);
        let inside = std::mem::replace(&mut self.stmts, outside);
        self.stmts.push(Stmt::for_serial(var, extent, Stmt::seq(inside)));
    }

    /// `out[axes] = f(axes)`, every axis spatial. The value is cast to `dtype` when it differs.
    pub fn compute(
        &mut self,
        name: &str,
        shape: &[PrimExpr],
        dtype: DType,
        f: impl FnOnce(&[PrimExpr]) -> PrimExpr,
    ) -> Buffer {
        let out = self.buffer(name, shape, dtype);
        let (axes, loops) = axes(shape, IterKind::Spatial, "ax");
        let idx: Vec<PrimExpr> = axes.iter().map(|a| a.var.expr()).collect();
        let value = f(&idx).cast(dtype);
        let body = Stmt::store(&out, idx, value);
        self.stmts.push(nest(name, axes, loops, None, body));
        out
    }

    /// `out[to(axes)] = f(axes)` for axes over `extents`, all spatial: writes a region of `out`, a buffer made by
    /// [`KernelBuilder::buffer`]. Several calls may fill disjoint regions. The value is cast to `out`'s dtype.
    pub fn write(
        &mut self,
        name: &str,
        out: &Buffer,
        extents: &[PrimExpr],
        to: impl FnOnce(&[PrimExpr]) -> Vec<PrimExpr>,
        f: impl FnOnce(&[PrimExpr]) -> PrimExpr,
    ) {
        let (axes, loops) = axes(extents, IterKind::Spatial, "ax");
        let idx: Vec<PrimExpr> = axes.iter().map(|a| a.var.expr()).collect();
        let value = f(&idx).cast(out.dtype());
        let body = Stmt::store(out, to(&idx), value);
        self.stmts.push(nest(name, axes, loops, None, body));
    }

    /// A block with one spatial axis per extent and a hand-written body: algorithms that treat a row as a whole.
    pub fn rows(&mut self, name: &str, extents: &[PrimExpr], body: impl FnOnce(&[PrimExpr]) -> Stmt) {
        let (axes, loops) = axes(extents, IterKind::Spatial, "ax");
        let idx: Vec<PrimExpr> = axes.iter().map(|a| a.var.expr()).collect();
        let body = body(&idx);
        self.stmts.push(nest(name, axes, loops, None, body));
    }

    /// `out[axes] = reduce over raxes of f(axes, raxes)`.
    pub fn reduce(
        &mut self,
        name: &str,
        shape: &[PrimExpr],
        dtype: DType,
        extents: &[PrimExpr],
        reducer: Reducer,
        f: impl FnOnce(&[PrimExpr], &[PrimExpr]) -> PrimExpr,
    ) -> Buffer {
        let out = self.buffer(name, shape, dtype);
        let (mut all, mut loops) = axes(shape, IterKind::Spatial, "ax");
        let (raxes, rloops) = axes(extents, IterKind::Reduce, "k");
        let idx: Vec<PrimExpr> = all.iter().map(|a| a.var.expr()).collect();
        let ridx: Vec<PrimExpr> = raxes.iter().map(|a| a.var.expr()).collect();
        all.extend(raxes);
        loops.extend(rloops);
        let value = f(&idx, &ridx).cast(dtype);
        let body = Stmt::store(&out, idx.clone(), (reducer.combine)(out.at(idx.clone()), value));
        let init = Stmt::store(&out, idx, reducer.init);
        self.stmts.push(nest(name, all, loops, Some(init), body));
        out
    }

    pub fn sum(
        &mut self,
        name: &str,
        shape: &[PrimExpr],
        dtype: DType,
        extents: &[PrimExpr],
        f: impl FnOnce(&[PrimExpr], &[PrimExpr]) -> PrimExpr,
    ) -> Buffer {
        let r = Reducer { init: PrimExpr::zero(dtype), combine: &|a, b| a + b };
        self.reduce(name, shape, dtype, extents, r, f)
    }

    /// Makes `outputs` the last parameters, in order; other stages become allocations of the root block. Shape
    /// variables that no parameter's dim binds become scalar parameters before the outputs, in order of first use.
    pub fn finish(mut self, outputs: &[Buffer]) -> PrimFunc {
        let body = Stmt::seq(std::mem::take(&mut self.stmts));
        for v in self.unbound(outputs, &body) {
            self.params.push(PrimParam::Scalar(v));
        }
        for o in outputs {
            self.params.push(PrimParam::Buffer { buffer: o.clone(), handle: None });
        }
        let alloc_buffers = self.stages.into_iter().filter(|b| !outputs.contains(b)).collect();
        let mut attrs = Attrs::default();
        attrs.set("tirx.noalias", AttrValue::Bool(true));
        PrimFunc {
            name: self.name,
            params: self.params,
            ret: None,
            returns: None,
            attrs,
            private: true,
            alloc_buffers,
            body,
            span: Span::NONE,
        }
    }

    /// All stages as one block without axes that allocates the buffers made here: an algorithm inside of another
    /// PrimFunc. Its inputs are that function's buffers.
    pub fn into_block(self) -> Stmt {
        Stmt::new(StmtKind::Block(Box::new(Block {
            name: self.name,
            axes: vec![],
            predicate: None,
            reads: None,
            writes: None,
            attrs: Attrs::default(),
            alloc_buffers: self.stages,
            match_buffers: vec![],
            init: None,
            body: Stmt::seq(self.stmts),
        })))
    }

    fn unbound(&self, outputs: &[Buffer], body: &Stmt) -> Vec<Var> {
        let mut bound: HashSet<Var> = HashSet::new();
        for p in &self.params {
            match p {
                PrimParam::Scalar(v) => drop(bound.insert(v.clone())),
                PrimParam::Buffer { buffer, .. } => {
                    bound.extend(buffer.shape.iter().filter_map(|d| d.as_var().cloned()))
                }
                PrimParam::Handle { fields, .. } => bound.extend(fields.iter().map(|(_, v)| v.clone())),
            }
        }
        for b in outputs {
            bound.extend(b.shape.iter().filter_map(|d| d.as_var().cloned()));
        }
        let mut found: Vec<Var> = vec![];
        let mut see = |e: &PrimExpr, bound: &mut HashSet<Var>| {
            e.walk(&mut |n| match n.kind() {
                PrimKind::Let(v, ..) => drop(bound.insert(v.clone())),
                PrimKind::Var(v) if !bound.contains(v) && !found.contains(v) => found.push(v.clone()),
                _ => {}
            })
        };
        let inputs = self.params.iter().filter_map(PrimParam::buffer);
        for d in inputs.chain(&self.stages).flat_map(|b| &b.shape) {
            see(d, &mut bound);
        }
        body.walk(&mut |s| match s.kind() {
            StmtKind::For { var, .. } => drop(bound.insert(var.clone())),
            StmtKind::Let { var, .. } => drop(bound.insert(var.clone())),
            StmtKind::Block(b) => bound.extend(b.axes.iter().map(|a| a.var.clone())),
            _ => {}
        });
        body.walk(&mut |s| {
            for e in s.exprs() {
                see(e, &mut bound);
            }
        });
        found.retain(|v| !bound.contains(v));
        found
    }
}

/// Block axes over `shape` with a loop variable each.
fn axes(shape: &[PrimExpr], kind: IterKind, prefix: &str) -> (Vec<BlockAxis>, Vec<(Var, PrimExpr)>) {
    let mut axes = vec![];
    let mut loops = vec![];
    for (i, extent) in shape.iter().enumerate() {
        let loop_var = Var::new(format!("{prefix}{i}"), extent.dtype());
        axes.push(BlockAxis {
            var: Var::new(format!("v_{prefix}{i}"), extent.dtype()),
            kind,
            min: PrimExpr::int(extent.dtype(), 0),
            extent: extent.clone(),
            binding: loop_var.expr(),
        });
        loops.push((loop_var, extent.clone()));
    }
    (axes, loops)
}

fn nest(name: &str, axes: Vec<BlockAxis>, loops: Vec<(Var, PrimExpr)>, init: Option<Stmt>, body: Stmt) -> Stmt {
    let block = Block {
        name: name.to_string(),
        axes,
        predicate: None,
        reads: None,
        writes: None,
        attrs: Attrs::default(),
        alloc_buffers: vec![],
        match_buffers: vec![],
        init,
        body,
    };
    let mut stmt = Stmt::new(StmtKind::Block(Box::new(block)));
    for (var, extent) in loops.iter().rev() {
        stmt = Stmt::for_serial(var, extent.clone(), stmt);
    }
    stmt
}
