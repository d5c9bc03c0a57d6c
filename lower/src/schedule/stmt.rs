//! Statements as written, in scalar code: the form for everything that is no plain computation of a buffer. Innermost loops
//! over the elements of a row that do not depend on each other are stages all the same, and so are reductions in blocks.
//!
//! Blocks are realised by substituting axis bindings; predicates become guards. A block's init runs in a loop nest of
//! its own before the reduction where the loops allow it (so that an empty reduction gives the init value), else in
//! the first reduction step. Thread, vector and parallel annotations are plain loops. Asserts are dropped: a kernel
//! has no way to report.

use super::emit::{has_load, Emit, Place, Res};
use super::map::elementwise;
use super::poly::Poly;
use super::reduce::reduction;
use super::stage::{recognise, Axis, Out, Stage};
use super::SchedOptions;
use relax_ir::prim::PrimKind;
use relax_ir::tir::{Block, Buffer, IterKind, MatchBufferRegion, Stmt, StmtKind};
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// Emits statements; `env` maps loop variables and block axes to expressions over int64 loop variables.
pub struct StmtEmit<'a> {
    pub e: &'a mut Emit,
    pub options: &'a SchedOptions,
    pub env: HashMap<Var, PrimExpr>,
}

/// Which part of blocks with an init to emit.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Whole,
    Init,
    Update,
}

impl StmtEmit<'_> {
    pub fn stmt(&mut self, s: &Stmt) -> Res<()> {
        self.part(s, Part::Whole)
    }

    fn sub(&self, e: &PrimExpr) -> PrimExpr {
        e.substitute(&self.env)
    }

    fn poly(&self, e: &PrimExpr) -> Poly {
        Poly::of(&self.sub(e), &self.e.ranges)
    }

    fn scalar(&mut self, e: &PrimExpr) -> Res<PrimExpr> {
        let e = self.sub(e);
        self.e.scalar(&e)
    }

    fn part(&mut self, s: &Stmt, part: Part) -> Res<()> {
        if !s.span().is_none() {
            self.e.span = s.span();
        }
        match s.kind() {
            StmtKind::Seq(v) => v.iter().try_for_each(|s| self.part(s, part)),
            StmtKind::For { var, min, extent, body, .. } => {
                if let Some(sums) = self.reduction(s).filter(|_| part == Part::Whole) {
                    return reduction(self.e, &sums, None, self.options);
                }
                if part == Part::Whole && self.splits(s) {
                    self.part(s, Part::Init)?;
                    return self.part(s, Part::Update);
                }
                if part == Part::Init && !init_loops(s).contains(var) {
                    return self.part(body, part);
                }
                if let Some(row) = self.row(s).filter(|_| part == Part::Whole) {
                    return elementwise(self.e, &row, self.options);
                }
                let (begin, count) = (self.poly(min), self.poly(extent));
                let lv = Var::new(var.name(), DType::I64);
                self.env.insert(var.clone(), lv.expr().cast(var.dtype()));
                let end = begin.add(&count);
                self.e.ranges.add_loop(&lv, begin.clone(), count);
                let (b, n) = (self.e.index(&begin)?, self.e.index(&end)?);
                let mut env = std::mem::take(&mut self.env);
                let r = self.e.for_loop(&lv, b, n, 1, |e| {
                    let mut inner = StmtEmit { e, options: self.options, env: std::mem::take(&mut env) };
                    let r = inner.part(body, part);
                    env = inner.env;
                    r
                });
                self.env = env;
                r
            }
            StmtKind::While { cond, body } => {
                let cond = self.sub(cond);
                let mut env = std::mem::take(&mut self.env);
                let r = self.e.while_loop(&cond, |e| {
                    let mut inner = StmtEmit { e, options: self.options, env: std::mem::take(&mut env) };
                    let r = inner.part(body, part);
                    env = inner.env;
                    r
                });
                self.env = env;
                r
            }
            StmtKind::If { cond, then, otherwise } => {
                let cond = self.scalar(cond)?;
                let env = std::cell::RefCell::new(std::mem::take(&mut self.env));
                let branch = |e: &mut Emit, s: &Stmt| {
                    let mut inner = StmtEmit { e, options: self.options, env: env.take() };
                    let r = inner.part(s, part);
                    env.replace(inner.env);
                    r
                };
                let r =
                    self.e.if_then(cond, |e| branch(e, then), |e| otherwise.as_ref().map_or(Ok(()), |s| branch(e, s)));
                self.env = env.into_inner();
                r
            }
            StmtKind::Block(b) => self.block(b, part),
            StmtKind::Store { buffer, indices, value } => {
                let value = self.scalar(value)?;
                let indices: Vec<PrimExpr> = indices.iter().map(|i| self.sub(i)).collect();
                let (ptr, offset) = self.e.offset(buffer, &indices)?;
                self.e.store(&ptr, &offset, buffer.dtype(), value)
            }
            StmtKind::Let { var, value, body } => {
                let value = self.scalar(value)?;
                let x = self.e.bind(var.name(), value);
                self.e.set_value(var, x);
                self.part(body, part)
            }
            StmtKind::Attr { body, .. } => self.part(body, part),
            StmtKind::Alloc { buffer, body } => {
                if let Some(count) = cells(buffer, body) {
                    self.e.cells(buffer, count);
                }
                self.part(body, part)
            }
            StmtKind::Assert { .. } | StmtKind::Evaluate(_) => Ok(()),
            StmtKind::CallPacked { function, .. } => {
                Err(self.e.unsupported(&format!("a kernel cannot call `{function}` itself")))
            }
        }
    }

    /// A loop that stores element after element of a row, each computed from others of its rows or from itself only, so that
    /// the order is free.
    fn row(&self, s: &Stmt) -> Option<Stage> {
        let StmtKind::For { var, min, extent, body, .. } = s.kind() else { return None };
        let StmtKind::Store { buffer, indices, value } = body.kind() else { return None };
        let (last, before) = indices.split_last()?;
        let along = |e: &PrimExpr| e.uses(var);
        let target = self.e.places.get(buffer)?;
        let moves = |e: &PrimExpr| along(e) || reads(e, &target.ptr, self.e);
        if last.as_var() != Some(var) || before.iter().any(moves) {
            return None;
        }
        let mut free = true;
        value.walk(&mut |e| match e.kind() {
            PrimKind::BufferLoad(b, at) if b == buffer => {
                free &= at[..] == indices[..] || self.other_row(at, indices) && !at.iter().any(has_load);
            }
            PrimKind::BufferLoad(b, at) => {
                let apart = self.e.places.get(b).is_some_and(|p| p.ptr != target.ptr);
                free &= apart && !at.iter().any(|i| along(i) && has_load(i));
            }
            _ => {}
        });
        if !free {
            return None;
        }
        let at = Var::new(var.name(), DType::I64);
        let mut env = self.env.clone();
        env.insert(var.clone(), (at.expr() + self.sub(min).cast(DType::I64)).cast(var.dtype()));
        let indices = indices.iter().map(|i| i.substitute(&env)).collect();
        let out = Out { buffer: buffer.clone(), indices, value: value.substitute(&env) };
        let axis = Axis { var: at, extent: self.sub(extent).cast(DType::I64) };
        Some(Stage {
            spatial: vec![axis],
            reduce: vec![],
            accs: vec![],
            outs: vec![out],
            span: s.span(),
            window: None,
            given: None,
        })
    }

    /// A nest around a block that reduces, whose points do not depend on each other.
    fn reduction(&self, s: &Stmt) -> Option<Stage> {
        let reduces = |b: &Block| b.axes.iter().any(|a| a.kind == IterKind::Reduce);
        nest_block(s).filter(|b| b.init.is_some() && reduces(b))?;
        let mut stage = recognise(s)?;
        stage.substitute(&self.env);
        for a in stage.spatial.iter_mut().chain(&mut stage.reduce) {
            a.extent = self.sub(&a.extent);
        }
        // Other buffers may be views of the same memory.
        let apart = |o: &Out| {
            let Some(p) = self.e.places.get(&o.buffer) else { return false };
            let mut own = true;
            for e in stage.exprs() {
                e.walk(&mut |e| match e.kind() {
                    PrimKind::BufferLoad(b, _) if *b != o.buffer => {
                        own &= self.e.places.get(b).is_some_and(|q| q.ptr != p.ptr);
                    }
                    _ => {}
                });
            }
            own
        };
        stage.outs.iter().all(apart).then_some(stage)
    }

    /// Whether an index before the last one differs, whatever the values of the variables are.
    fn other_row(&self, a: &[PrimExpr], b: &[PrimExpr]) -> bool {
        let before = |i: &[PrimExpr]| i[..i.len().saturating_sub(1)].to_vec();
        let mut pairs = before(a).into_iter().zip(before(b));
        pairs.any(|(a, b)| {
            let (least, most) = self.e.ranges.bounds(&self.poly(&a).sub(&self.poly(&b)));
            least.is_some_and(|d| d > 0) || most.is_some_and(|d| d < 0)
        })
    }

    fn block(&mut self, b: &Block, part: Part) -> Res<()> {
        for a in &b.axes {
            let binding = self.sub(&a.binding);
            self.env.insert(a.var.clone(), binding.cast(a.var.dtype()));
        }
        for m in &b.match_buffers {
            self.match_buffer(m)?;
        }
        let Some(p) = &b.predicate else { return self.block_body(b, part) };
        let cond = self.scalar(p)?;
        let mut env = std::mem::take(&mut self.env);
        let r = self.e.if_then(
            cond,
            |e| {
                let mut inner = StmtEmit { e, options: self.options, env: std::mem::take(&mut env) };
                let r = inner.block_body(b, part);
                env = inner.env;
                r
            },
            |_| Ok(()),
        );
        self.env = env;
        r
    }

    fn block_body(&mut self, b: &Block, part: Part) -> Res<()> {
        if let (Some(init), true) = (&b.init, part != Part::Update) {
            if part == Part::Init {
                return self.part(init, Part::Whole);
            }
            let first = b.axes.iter().filter(|a| a.kind == IterKind::Reduce);
            let cond =
                first.fold(PrimExpr::bool(true), |c, a| c.and(a.var.expr().eq(a.min.clone().cast(a.var.dtype()))));
            let cond = self.scalar(&cond)?;
            let env = std::mem::take(&mut self.env);
            let copy = env.clone();
            let r = self.e.if_then(
                cond,
                |e| StmtEmit { e, options: self.options, env: copy }.part(init, Part::Whole),
                |_| Ok(()),
            );
            self.env = env;
            r?;
        }
        self.part(&b.body, Part::Whole)
    }

    /// A buffer that is a region of another one: its strides are the source's where it has none of its own.
    fn match_buffer(&mut self, m: &MatchBufferRegion) -> Res<()> {
        let mins: Vec<PrimExpr> = m.source.region.iter().map(|(min, _)| self.sub(min)).collect();
        let (ptr, offset) = self.e.offset(&m.source.buffer, &mins)?;
        let source = match self.e.places.get(&m.source.buffer) {
            Some(p) => p.strides.clone(),
            None => return Err(self.e.internal("a region of an unknown buffer")),
        };
        let skip = source.len().saturating_sub(m.buffer.ndim());
        for (d, (_, extent)) in m.buffer.shape.iter().zip(m.source.region.iter().skip(skip)) {
            self.bind_var(d, extent)?;
        }
        let mut strides = vec![];
        for i in 0..m.buffer.ndim() {
            let own = m.buffer.strides.get(i).filter(|s| s.as_int().is_some());
            strides.push(match own {
                Some(s) => self.poly(s),
                None => source.get(skip + i).cloned().unwrap_or_else(|| Poly::constant(1)),
            });
        }
        for (s, p) in m.buffer.strides.iter().zip(&strides) {
            self.bind_var(s, &p.expr())?;
        }
        if let Some(o) = &m.buffer.elem_offset {
            self.bind_var(o, &offset.expr())?;
        }
        self.e.places.insert(m.buffer.clone(), Place { ptr, offset, strides });
        Ok(())
    }

    /// Binds `var`, if it is an unbound variable, to `value`.
    fn bind_var(&mut self, var: &PrimExpr, value: &PrimExpr) -> Res<()> {
        if let Some(v) = var.as_var() {
            let value = self.sub(value);
            self.env.insert(v.clone(), value.cast(v.dtype()));
        }
        Ok(())
    }

    /// Whether a nest ends in one block with an init whose reduction loops can be told from the spatial ones.
    fn splits(&self, s: &Stmt) -> bool {
        let Some(b) = nest_block(s) else { return false };
        if b.init.is_none() || !b.match_buffers.is_empty() {
            return false;
        }
        let spatial = init_loops(s);
        let reduce = b.axes.iter().filter(|a| a.kind == IterKind::Reduce);
        // A loop variable that drives both kinds of axes cannot be split.
        reduce.flat_map(|a| a.binding.vars()).all(|v| !spatial.contains(&v))
            && b.predicate.as_ref().is_none_or(|p| {
                let axes: Vec<&Var> = b.axes.iter().filter(|a| a.kind != IterKind::Reduce).map(|a| &a.var).collect();
                p.vars().iter().all(|v| axes.contains(&v) || spatial.contains(v))
            })
    }
}

/// Whether `e` loads from this pointer.
fn reads(e: &PrimExpr, ptr: &Var, emit: &Emit) -> bool {
    let mut found = false;
    e.walk(&mut |e| {
        if let PrimKind::BufferLoad(b, _) = e.kind() {
            found |= emit.places.get(b).is_none_or(|p| p.ptr == *ptr);
        }
    });
    found
}

/// The block at the end of a perfect loop nest.
fn nest_block(s: &Stmt) -> Option<&Block> {
    match s.kind() {
        StmtKind::For { body, .. } => nest_block(body),
        StmtKind::Block(b) => Some(b),
        _ => None,
    }
}

/// The loop variables that the spatial axes of a nest's block are bound to.
fn init_loops(s: &Stmt) -> Vec<Var> {
    let Some(b) = nest_block(s) else { return vec![] };
    b.axes.iter().filter(|a| a.kind != IterKind::Reduce).flat_map(|a| a.binding.vars()).collect()
}

/// The most elements of a buffer that are kept in variables.
const MOST_CELLS: i64 = 8;

/// How many elements a buffer has that lives in `body`, if these can be variables: few, and each access is of one that is
/// known.
fn cells(buffer: &Buffer, body: &Stmt) -> Option<i64> {
    let [count] = buffer.shape.as_slice() else { return None };
    let count = count.as_int().filter(|n| (1..=MOST_CELLS).contains(n))?;
    let plain = matches!(buffer.dtype(), DType::I32 | DType::I64 | DType::F32 | DType::F64);
    let mut known = plain && buffer.strides.is_empty() && buffer.elem_offset.is_none();
    let element = |at: &[PrimExpr]| matches!(at, [i] if i.as_int().is_some_and(|i| (0..count).contains(&i)));
    body.walk(&mut |s| {
        match s.kind() {
            StmtKind::Store { buffer: b, indices, .. } if b == buffer => known &= element(indices),
            StmtKind::Block(b) => {
                known &= b.match_buffers.iter().all(|m| m.source.buffer != *buffer);
            }
            StmtKind::CallPacked { .. } => known = false,
            _ => {}
        }
        for e in s.exprs() {
            e.walk(&mut |e| match e.kind() {
                PrimKind::BufferLoad(b, at) if b == buffer => known &= element(at),
                _ => {}
            });
        }
    });
    known.then_some(count)
}

/// Buffers allocated anywhere inside a statement that need memory.
pub fn nested_allocs(s: &Stmt) -> Vec<Buffer> {
    let mut out = vec![];
    s.walk(&mut |s| match s.kind() {
        StmtKind::Block(b) => out.extend(b.alloc_buffers.iter().cloned()),
        StmtKind::Alloc { buffer, body } if cells(buffer, body).is_none() => out.push(buffer.clone()),
        _ => {}
    });
    out
}
