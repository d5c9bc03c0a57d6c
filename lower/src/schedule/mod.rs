//! Scheduling: a PrimFunc in block form becomes a kernel in flat TIR.
//!
//! The kernel takes a pointer per buffer parameter (dense, row-major), the dims of [`crate::kernel_dims`], and a
//! workspace pointer when [`crate::kernel_workspace`] is not 0; it returns nothing.

mod again;
mod attention;
mod beside;
mod contract;
mod dots;
mod edges;
mod emit;
mod fuse;
pub mod int8;
pub mod machine;
mod map;
mod mirrored;
mod moves;
mod narrow;
mod nest;
mod panels;
mod pieces;
pub(crate) mod poly;
mod pools;
mod product;
mod quotients;
mod ranges;
mod reduce;
mod rows;
mod sliver;
pub(crate) mod stage;
mod stmt;
pub mod streamed;
mod transpose;
pub mod window;

pub use moves::{apart, moves, statements, takes_strides, touches, Move};
pub use panels::{Packable, Panels};
pub use product::{choose_products, products, Product};
pub use ranges::Ranges;

use crate::kernel::kernel_dims;
pub use again::written_again;
use emit::{Emit, Place};
use fuse::{fuse, Item};
use map::elementwise;
use poly::Poly;
use reduce::reduction;
use relax_ir::flat::{FlatFunc, FlatStmt, Linkage};
use relax_ir::prim::PrimKind;
use relax_ir::tir::{Buffer, PrimFunc, Stmt, StmtKind};
use relax_ir::{DType, Diagnostic, PrimExpr, Span, Var};
use stage::{recognise, Axis, Stage};
use std::ops::Range;
use stmt::{nested_allocs, StmtEmit};

/// Choices of the target that shape the loops.
#[derive(Clone, Debug)]
pub struct SchedOptions {
    /// Bytes of a vector register; 0 for scalar code.
    pub vector_bytes: u32,
    /// Wide vectors multiply four pairs of bytes at a time ([`relax_ir::prim::Intrin::Dot4`]).
    pub dot4: bool,
    /// And there are tiles of bytes ([`relax_ir::prim::Intrin::TileDot`]).
    pub tiles: bool,
    /// Weights come from beyond the second-level cache in each call: they are asked for ahead.
    pub ahead: bool,
    /// Bytes behind its weights that kernels after it read once: it asks for them, too.
    pub behind: i64,
    /// Panels of weights are those of the widest vectors, which narrower ones read, too. The size of the workspace is worked out
    /// without it.
    pub shared: bool,
    /// Loops are shared out: what goes by blocks, of which threads take some, does not become one.
    pub threads: bool,
    /// Floats are multiplied from left to right.
    pub strict: bool,
    /// Bytes of the rows that windows hand each other in a band, at most.
    pub band: i64,
}

/// What a second-level cache holds beside weights.
const BAND: i64 = 448 << 10;

impl SchedOptions {
    /// Vectors of so many bytes.
    pub fn vectors(vector_bytes: u32) -> SchedOptions {
        let (dot4, tiles, ahead, shared) = (false, false, false, false);
        SchedOptions { vector_bytes, dot4, tiles, ahead, behind: 0, shared, threads: false, strict: false, band: BAND }
    }

    /// Wider vectors than Cranelift has.
    pub fn is_wide(&self) -> bool {
        self.vector_bytes > 16
    }
}

impl Default for SchedOptions {
    fn default() -> SchedOptions {
        SchedOptions::vectors(16)
    }
}

/// Allocations of constant size up to this many bytes live on the stack.
const STACK_BYTES: i64 = 1024;

/// What a kernel computes, after the decisions that do not depend on the target.
struct Plan {
    items: Vec<Item>,
    allocs: Vec<Buffer>,
    /// Packed operands of contractions: one buffer that all of them use in turn.
    scratch: Option<Buffer>,
    /// By item, whether it uses that.
    uses_scratch: Vec<bool>,
}

fn plan(f: &PrimFunc, o: &SchedOptions) -> Plan {
    let mut shared = f.alloc_buffers.clone();
    shared.extend(nested_allocs(&f.body));
    let (mut items, mut allocs) = (vec![], vec![]);
    let stmts = statements(f);
    for part in parts(f) {
        let item = |s: &Stmt| recognise(s).map_or_else(|| Item::Stmt(s.clone()), |s| Item::Stage(Box::new(s)));
        let mut own: Vec<Item> = stmts[part.clone()].iter().map(item).collect();
        let inside = |b: &Buffer| !stmts[..part.start].iter().chain(&stmts[part.end..]).any(|s| touches(s, b));
        let (mut local, others): (Vec<Buffer>, Vec<Buffer>) = shared.into_iter().partition(inside);
        fuse(&mut own, &mut local);
        rows::group(&mut own, &mut local);
        pools::take(&mut own, &mut local, o);
        rows::planes(&mut own, &mut local);
        allocs.extend(local);
        shared = others;
        items.extend(own);
    }
    allocs.extend(shared);
    if o.vector_bytes >= 16 {
        window::cascade::take(&mut items, &mut allocs, o.band);
    }
    // Whatever the vectors are: a kernel's workspace is that of the plan with the usual ones.
    attention::take(&mut items, &mut allocs, o);
    let bytes = items.iter().map(|i| match i {
        Item::Stage(s) => contract::scratch(s, o),
        Item::Attention(a) => a.scratch(o),
        Item::Rows(_) | Item::Pool(_) | Item::Cascade(_) | Item::Stmt(_) => None,
    });
    let bytes: Vec<Option<PrimExpr>> = bytes.collect();
    let uses_scratch = bytes.iter().map(|b| b.is_some()).collect();
    let bytes = bytes.into_iter().flatten().reduce(|a: PrimExpr, b| a.max(b));
    let scratch = bytes.map(|b| Buffer::new("packed", vec![b], DType::U8));
    allocs.extend(scratch.clone());
    Plan { items, allocs, scratch, uses_scratch }
}

/// The attribute of a PrimFunc that was made of several: the numbers of their statements. What they compute is not mixed.
pub const PARTS: &str = "relax_aot.parts";

/// The statements of the kernels that a kernel is made of, by [`PARTS`].
fn parts(f: &PrimFunc) -> Vec<Range<usize>> {
    let all = statements(f).len();
    let mut out = vec![];
    let mut at = 0;
    for n in f.attrs.ints(PARTS).unwrap_or_default() {
        let end = (at + n.max(0) as usize).min(all);
        out.push(at..end);
        at = end;
    }
    out.push(at..all);
    out.retain(|part| !part.is_empty());
    out
}

/// The attribute of a PrimFunc with numbers that its dims ([`kernel_dims`]) are multiples of.
pub const DIVISORS: &str = "relax_aot.divisors";

/// Schedules `f`. Errors: a construct that has no scalar form (explicit vectors, strings).
pub fn schedule(f: &PrimFunc, options: &SchedOptions) -> Result<FlatFunc, Diagnostic> {
    if options.vector_bytes >= 16 {
        let SchedOptions { vector_bytes, dot4, tiles, .. } = *options;
        let form = int8::Form { vector_bytes: vector_bytes as i64, dot4, tiles };
        let special = int8::Conv::of(f).map(|conv| int8::kernel(f, &conv, form));
        let special = special.or_else(|| int8::Pixels::of(f).map(|p| int8::pixels(f, &p, form.vector_bytes)));
        let special = special.or_else(|| int8::lookup(f));
        let special = special.or_else(|| int8::Product::of(f).map(|p| int8::product(f, &p, form)));
        let streamed = || streamed::Streamed::of(f).map(|v| streamed::kernel(f, v, form.vector_bytes));
        if let Some(f) = special.or_else(streamed) {
            return Ok(f);
        }
    }
    let plan = plan(f, options);
    let mut e = Emit::new(f.span);
    e.wide = options.is_wide();
    e.interleaves = options.vector_bytes == 64;
    let mut params = vec![];
    let dims = kernel_dims(f);
    let mut dim_params = vec![];
    let divisors = f.attrs.ints(DIVISORS).unwrap_or_default();
    for (i, v) in dims.iter().enumerate() {
        let divisor = divisors.get(i).copied().unwrap_or(1).max(1);
        e.ranges.set_divisor(v, divisor);
        e.ranges.told |= divisor > 1;
        e.ranges.add_dim(v);
        let d = v.dtype();
        if d == DType::I64 || !d.is_int() {
            dim_params.push(v.clone());
            continue;
        }
        let p = Var::new(v.name(), DType::I64);
        e.ranges.add_dim(&p);
        e.ranges.set_divisor(&p, divisor);
        e.ranges.set_value(v, Poly::var(&p));
        e.set_value(v, p.expr().cast(emit::compute_type(d)));
        dim_params.push(p);
    }
    for b in f.buffers() {
        let ptr = Var::new(&b.name, DType::HANDLE);
        params.push(ptr.clone());
        place(&mut e, b, ptr, &dims)?;
    }
    params.extend(dim_params);
    let (slots, total) = layout(&plan);
    if !total.is_int(0) {
        let workspace = Var::new("workspace", DType::HANDLE);
        params.push(workspace.clone());
        // Buffers that share memory share its name, so that whoever looks for what loops hand each other sees it.
        let mut pieces: Vec<(&PrimExpr, Var)> = vec![];
        for (b, slot) in plan.allocs.iter().zip(&slots) {
            let Slot::Workspace(offset) = slot else { continue };
            let ptr = match pieces.iter().find(|(at, _)| *at == offset) {
                Some((_, ptr)) => ptr.clone(),
                None => {
                    let ptr = Var::new(&b.name, DType::HANDLE);
                    let at = e.index(&Poly::of(offset, &e.ranges))?;
                    e.push(FlatStmt::Let { var: ptr.clone(), value: workspace.expr().ptr_add(at) });
                    pieces.push((offset, ptr.clone()));
                    ptr
                }
            };
            place(&mut e, b, ptr, &dims)?;
        }
    }
    for (b, slot) in plan.allocs.iter().zip(&slots) {
        if let Slot::Stack(bytes) = slot {
            let ptr = Var::new(&b.name, DType::HANDLE);
            e.push(FlatStmt::Stack { var: ptr.clone(), bytes: *bytes, align: 16 });
            place(&mut e, b, ptr, &dims)?;
        }
    }
    for item in &plan.items {
        match item {
            Item::Stmt(s) => match recurrence(s) {
                Some((var, extent, stages)) => steps(&mut e, &var, &extent, &stages, f.span, options)?,
                None => StmtEmit { e: &mut e, options, env: Default::default() }.stmt(s)?,
            },
            Item::Rows(rows) => rows.emit(&mut e, f.span, options)?,
            Item::Pool(p) => p.emit(&mut e, options)?,
            Item::Cascade(c) => c.emit(&mut e, options)?,
            Item::Attention(a) => {
                let pack = plan.scratch.as_ref().filter(|_| a.scratch(options).is_some());
                let pack = pack.and_then(|b| e.places.get(b)).map(|p| p.ptr.clone());
                a.emit(&mut e, pack.as_ref(), f.span, options)?;
            }
            Item::Stage(s) => {
                e.span = if s.span.is_none() { f.span } else { s.span };
                if let Some(w) = &s.window {
                    let scratch =
                        plan.scratch.as_ref().filter(|_| w.scratch(s).is_some()).and_then(|b| e.places.get(b));
                    let scratch = scratch.map(|p| p.ptr.clone());
                    if window::emit(&mut e, s, w, scratch.as_ref(), options)? {
                        continue;
                    }
                }
                let pack = plan.scratch.as_ref().and_then(|b| e.places.get(b)).map(|p| p.ptr.clone());
                stage(&mut e, s, pack.as_ref(), f.span, options)?;
            }
        }
    }
    Ok(FlatFunc { name: f.name.clone(), params, ret: None, linkage: Linkage::Local, body: e.finish(), span: f.span })
}

/// A stage that is no window; `scratch` is memory for what it copies, where it copies anything.
fn stage(e: &mut Emit, s: &Stage, scratch: Option<&Var>, span: Span, o: &SchedOptions) -> Result<(), Diagnostic> {
    e.span = if s.span.is_none() { span } else { s.span };
    match s.accs.is_empty() {
        true => elementwise(e, s, o),
        false => reduction(e, s, scratch.filter(|_| contract::scratch(s, o).is_some()), o),
    }
}

/// Parameters that are faster when they are packed before the kernel runs.
pub fn packable(f: &PrimFunc, o: &SchedOptions) -> Vec<Packable> {
    let plan = plan(f, o);
    // What a recurrence reads step by step stays in a cache, where several passes over a panel cost little.
    let again = SchedOptions { shared: false, ..o.clone() };
    let all = plan.items.iter().flat_map(|i| match i {
        Item::Stage(s) => panels::packable(s, o).into_iter().collect(),
        Item::Rows(_) | Item::Pool(_) | Item::Cascade(_) | Item::Attention(_) => vec![],
        Item::Stmt(s) => {
            let stages = recurrence(s).map_or(vec![], |(_, _, stages)| stages);
            stages.iter().filter_map(|s| panels::packable(s, &again)).collect()
        }
    });
    all.filter(|p| f.buffers().any(|b| *b == p.buffer)).collect()
}

/// Whether a PrimFunc has a kernel of its own here, and so must stay as it is.
pub fn is_special(f: &PrimFunc) -> bool {
    int8::is_special(f) || f.attrs.get(streamed::ATTR).is_some()
}

/// Whether the kernel is made of stages alone, each point of which is computed once.
pub fn is_staged(f: &PrimFunc) -> bool {
    !is_special(f) && plan(f, &SchedOptions::default()).items.iter().all(|i| !matches!(i, Item::Stmt(_)))
}

/// Whether the kernel normalises rows, one after the other, and does nothing else.
pub fn is_rows(f: &PrimFunc) -> bool {
    !is_special(f) && matches!(plan(f, &SchedOptions::default()).items.as_slice(), [Item::Rows(_)])
}

/// Whether all of the kernel goes by bands of rows.
pub fn is_attention(f: &PrimFunc) -> bool {
    !is_special(f) && matches!(plan(f, &SchedOptions::default()).items.as_slice(), [Item::Attention(_)])
}

/// Points of all stages, each times the steps of its reduction.
pub fn steps_of(f: &PrimFunc) -> PrimExpr {
    let plan = plan(f, &SchedOptions::default());
    plan.items.iter().fold(PrimExpr::i64(0), |n, i| match i {
        Item::Stage(s) => n + points(s),
        Item::Pool(p) => n + points(&p.stage),
        Item::Cascade(c) => c.stages.iter().fold(n, |n, s| n + points(s)),
        Item::Attention(a) => n + a.steps.clone(),
        Item::Rows(r) => n + size(&r.axes) * r.stages.iter().fold(PrimExpr::i64(0), |n, s| n + points(s)),
        Item::Stmt(_) => n,
    })
}

/// Of a kernel that is a recurrence, with stages before and after it: the number of its steps, and the points of one,
/// each times the steps of its reduction.
pub fn recurrence_of(f: &PrimFunc) -> Option<(PrimExpr, PrimExpr)> {
    let plan = plan(f, &SchedOptions::default());
    let mut found = None;
    for i in &plan.items {
        if let Item::Stmt(s) = i {
            let (_, extent, stages) = recurrence(s).filter(|_| found.is_none())?;
            found = Some((extent, stages.iter().fold(PrimExpr::i64(0), |n, s| n + points(s))));
        }
    }
    found
}

fn points(s: &Stage) -> PrimExpr {
    size(&s.spatial) * size(&s.reduce)
}

fn size(axes: &[Axis]) -> PrimExpr {
    axes.iter().fold(PrimExpr::i64(1), |n, a| n * a.extent.clone().cast(DType::I64))
}

/// A serial loop over plain stages: a recurrence.
fn recurrence(s: &Stmt) -> Option<(Var, PrimExpr, Vec<Stage>)> {
    let StmtKind::For { var, min, extent, body, .. } = s.kind() else { return None };
    let StmtKind::Seq(list) = body.kind() else { return None };
    let stages = list.iter().map(recognise).collect::<Option<Vec<_>>>()?;
    (min.is_int(0) && var.dtype() == DType::I64).then(|| (var.clone(), extent.clone(), stages))
}

/// Each step runs the stages as if they stood alone.
fn steps(
    e: &mut Emit,
    var: &Var,
    extent: &PrimExpr,
    stages: &[Stage],
    span: Span,
    options: &SchedOptions,
) -> Result<(), Diagnostic> {
    let count = Poly::of(extent, &e.ranges);
    e.ranges.add_loop(var, Poly::default(), count.clone());
    let n = e.index(&count)?;
    e.for_loop(var, PrimExpr::i64(0), n, 1, |e| {
        for s in stages {
            e.span = if s.span.is_none() { span } else { s.span };
            match s.accs.is_empty() {
                true => elementwise(e, s, options)?,
                false => reduction(e, s, None, options)?,
            }
        }
        Ok(())
    })
}

/// Bytes of workspace, see [`crate::kernel_workspace`]. What has a kernel of its own keeps its sums in registers.
pub(crate) fn workspace(f: &PrimFunc, o: &SchedOptions) -> PrimExpr {
    if let Some(conv) = int8::Conv::of(f) {
        return PrimExpr::i64(conv.workspace(o.vector_bytes as i64));
    }
    match is_special(f) {
        true => PrimExpr::i64(0),
        false => layout(&plan(f, o)).1,
    }
}

/// Where an allocation goes.
enum Slot {
    Stack(u32),
    /// At this byte offset.
    Workspace(PrimExpr),
}

/// Slots of all allocations and the bytes of workspace in total. Buffers whose lives do not overlap share memory when
/// one is known to fit into the other.
fn layout(plan: &Plan) -> (Vec<Slot>, PrimExpr) {
    struct Piece {
        offset: PrimExpr,
        bytes: PrimExpr,
        last: usize,
    }
    let mut total = PrimExpr::i64(0);
    let mut pieces: Vec<Piece> = vec![];
    let mut slots: Vec<Slot> = plan.allocs.iter().map(|_| Slot::Stack(1)).collect();
    let mut order: Vec<(usize, usize, usize)> = vec![];
    // What a recurrence keeps from step to step outlives a call of a share.
    let recurs = plan.items.iter().any(|i| matches!(i, Item::Stmt(s) if recurrence(s).is_some()));
    let most = if recurs { 0 } else { STACK_BYTES };
    for (i, b) in plan.allocs.iter().enumerate() {
        let (first, last) = life(plan, b);
        order.push((first, last, i));
    }
    order.sort();
    for (first, last, i) in order {
        let b = &plan.allocs[i];
        let elements = b.shape.iter().fold(PrimExpr::i64(1), |n, d| n * d.clone().cast(DType::I64));
        let bytes = elements * b.dtype().bytes() as i64;
        let bytes = match bytes.as_int() {
            Some(n) if n <= most => {
                slots[i] = Slot::Stack(n.max(1) as u32);
                continue;
            }
            Some(n) => PrimExpr::i64((n + 63) / 64 * 64),
            None => (bytes + 63i64).floor_div(64i64) * 64i64,
        };
        let fits = |p: &&mut Piece| {
            let larger = p.bytes.as_int().zip(bytes.as_int()).is_some_and(|(have, need)| have >= need);
            p.last < first && (larger || p.bytes == bytes)
        };
        match pieces.iter_mut().filter(fits).min_by_key(|p| p.bytes.as_int()) {
            Some(p) => {
                p.last = last;
                slots[i] = Slot::Workspace(p.offset.clone());
            }
            None => {
                slots[i] = Slot::Workspace(total.clone());
                pieces.push(Piece { offset: total.clone(), bytes: bytes.clone(), last });
                total = total + bytes;
            }
        }
    }
    (slots, total)
}

/// The first and last item that use a buffer.
fn life(plan: &Plan, b: &Buffer) -> (usize, usize) {
    let uses = |n: usize, item: &Item| match item {
        Item::Stage(_) | Item::Attention(_) if plan.scratch.as_ref() == Some(b) => plan.uses_scratch[n],
        Item::Stmt(s) if nested_allocs(s).contains(b) => true,
        item => item.reads(b) || item.writes(b),
    };
    let mut used = plan.items.iter().enumerate().filter(|(n, i)| uses(*n, i)).map(|(n, _)| n);
    let first = used.next().unwrap_or(0);
    (first, used.next_back().unwrap_or(first))
}

/// Records where `b` lives. Strides and offsets that are variables of their own (as `T.match_buffer` declares them)
/// take the values of a dense row-major tensor.
fn place(e: &mut Emit, b: &Buffer, ptr: Var, dims: &[Var]) -> Result<(), Diagnostic> {
    if b.dtype().lanes != 1 {
        return Err(e.unsupported(&format!(
            "buffer `{}` has dtype {}, which kernels do not support",
            b.name,
            b.dtype()
        )));
    }
    let free = |p: &PrimExpr| match p.kind() {
        PrimKind::Var(v) if !dims.contains(v) => Some(v.clone()),
        _ => None,
    };
    let mut dense = vec![];
    let mut size = Poly::constant(1);
    for d in b.shape.iter().rev() {
        dense.push(size.clone());
        size = size.mul(&Poly::of(d, &e.ranges));
    }
    dense.reverse();
    let mut strides = dense.clone();
    for (i, s) in b.strides.iter().enumerate().take(dense.len()) {
        match free(s) {
            Some(v) => {
                let value = e.index(&dense[i])?;
                e.set_value(&v, value.cast(v.dtype()));
                e.ranges.set_value(&v, dense[i].clone());
            }
            None => strides[i] = Poly::of(s, &e.ranges),
        }
    }
    let mut offset = Poly::default();
    if let Some(o) = &b.elem_offset {
        match free(o) {
            Some(v) => e.ranges.set_value(&v, Poly::default()),
            None => offset = Poly::of(o, &e.ranges),
        }
    }
    e.places.insert(b.clone(), Place { ptr, offset, strides });
    Ok(())
}

#[cfg(test)]
mod tests;
