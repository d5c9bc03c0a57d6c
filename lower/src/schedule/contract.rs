//! Contractions `out[i, j] += a[i, k] * b[k, j]` of some size: matrix products and convolutions alike.
//!
//! The columns `j` (the contiguous output axis, joined with the axis before it where rows are short) are taken in
//! slivers as wide as the register tile. The values of `b` for a sliver are first copied to scratch memory in the
//! order in which the tile reads them; strides, windows, conversions and conditions of `b` are paid once per sliver
//! instead of once per row, and the rows then run on consecutive memory.

mod ahead;
mod blocks;
mod memory;
mod next;
mod single;

use super::beside::Copies;
use super::emit::{compute_type, has_load, is_narrow, Emit, Res};
use super::map::strips;
use super::nest::{used_plainly, Nest};
use super::panels::{packed_in, padded, whole_slivers, Panels, FEW};
use super::poly::Poly;
use super::reduce::{rows_for, spatial, Last, Point, Tile, Vector};
use super::sliver::Sliver;
use super::stage::Axis;
use super::SchedOptions;
use ahead::Rows;
use ahead::RIGHT_FAR;
pub(super) use ahead::{rows_ahead, LEFT_FAR};
use memory::{block, narrow, panel, panel_blocks, widest, CHUNK, MOST_WAITING};
pub(super) use memory::{passing_scratch, scratch};
use next::{Pass, SIDE as LEAST_PASSING};
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// Registers side by side in a tile, at most.
pub(super) fn most_columns(o: &SchedOptions) -> u16 {
    match o.vector_bytes {
        64 => 4,
        _ => 3,
    }
}

/// Registers side by side for so many columns, and rows of the tile: as many accumulators as there are registers for,
/// with one for each column of `b` and one of `a`.
pub(super) fn tile_columns(o: &SchedOptions, columns: Option<i64>, lanes: i64) -> u16 {
    let most = most_columns(o);
    if !o.is_wide() {
        return most;
    }
    match columns.map(|c| c / lanes) {
        Some(n) if n >= 1 && n <= most as i64 => n as u16,
        Some(n) if most == 4 && n % 4 != 0 && n % 3 == 0 => 3,
        _ => most,
    }
}

/// The same for so many rows. Few multiples of eight are tiles of 8 rows and 3 vectors: twelve loads for 24 products,
/// where with four vectors rows would have to be halved.
pub(super) fn model_columns(o: &SchedOptions, rows: Option<i64>, columns: Option<i64>, lanes: i64) -> i64 {
    match rows {
        Some(r) if lanes == 16 && r <= EIGHTS && r % 8 == 0 => columns.map_or(3, |n| (n / 16).clamp(1, 3)),
        _ => tile_columns(o, columns, lanes) as i64,
    }
}

pub(super) fn tile_rows(vector_bytes: u32, count: u16) -> i64 {
    match (vector_bytes, count) {
        (64, 5) => 5,
        (64, 4) => 6,
        (64, 3) => 8,
        (64, 2) => 12,
        (64, _) => 12,
        (32, 3) => 4,
        (32, 2) => 6,
        (32, _) => 8,
        (_, 3) => 3,
        _ => 4,
    }
}

/// Registers side by side where there is one row: enough to keep the adders busy.
pub(super) const ALONE: i64 = 8;

/// As many of them as there may be: with 256 bits all of a panel that wider vectors read, too.
pub(super) fn alone(o: &SchedOptions) -> i64 {
    match o.vector_bytes {
        32 => 12,
        _ => ALONE,
    }
}

/// Below this many multiplications packing does not pay.
pub(super) const LEAST_WORK: i64 = 32768;

/// Up to so many rows read each value of `b` too seldom for a copy of it to pay.
const FEW_ROWS: i64 = 64;
/// Rows of `b` whose distance is a multiple of this take each other's place in the first-level cache: more than
/// `FEWEST_ROWS` rows read a copy.
const PAGE: i64 = 4096;
const FEWEST_ROWS: i64 = 8;
/// Up to so many rows, where they are multiples of 8, are tiles of 8 rows and 3 vectors.
const EIGHTS: i64 = 32;
/// Bytes of a right side that stays in the second-level cache.
const RIGHT_CACHED: i64 = 512 << 10;
/// Of a right side that is read where it is and does not stay there: steps of a block of the reduction, and slivers at
/// most of a block of columns. The rows of such a block follow one another in memory, or nearly so.
const STRETCH: i64 = 128;
const SLIVERS: i64 = 16;

/// Reduction steps written out in the innermost loop.
const UNROLL: i64 = 4;
/// Loads in the innermost loop, at most, where what they read comes once from beyond the first-level cache. A Zen 5 foresees what some
/// thirty loads read: 192x576 from the second-level cache come at 60 bytes a cycle with up to 28 loads, at 31 with 32 and more.
const FORESEEN: i64 = 28;

/// Steps to write out where each has so many loads.
pub(super) fn foreseen(loads: i64) -> i64 {
    [UNROLL, 2].into_iter().find(|u| u * loads <= FORESEEN).unwrap_or(1)
}
/// `acc + x * y`: the factors.
pub(super) fn factors(update: &PrimExpr, acc: &Var) -> Option<(PrimExpr, PrimExpr)> {
    let PrimKind::Binary(BinOp::Add, a, b) = update.kind() else { return None };
    let product = match (a.as_var() == Some(acc), b.as_var() == Some(acc)) {
        (true, false) => b,
        (false, true) => a,
        _ => return None,
    };
    let PrimKind::Binary(BinOp::Mul, x, y) = product.kind() else { return None };
    (!used_plainly(product, acc)).then(|| (x.clone(), y.clone()))
}

fn size(axes: &[Axis]) -> Option<i64> {
    axes.iter().try_fold(1i64, |n, a| Some(n * a.len()?))
}

/// The factor without and the factor with the axis.
pub(super) fn sides(x: PrimExpr, y: PrimExpr, j: &Var) -> Option<(PrimExpr, PrimExpr)> {
    match (x.uses(j), y.uses(j)) {
        (false, true) => Some((x, y)),
        (true, false) => Some((y, x)),
        _ => None,
    }
}

/// How the columns of a sliver map to axes.
#[derive(Clone)]
struct Columns {
    /// First column of the sliver and column within it.
    start: Var,
    lane: Var,
    /// Sliver within the panel.
    slot: Option<Axis>,
    j: Axis,
    /// The axis before `j`, when they are joined.
    outer: Option<Axis>,
    /// Behind the full slivers.
    rest: bool,
}

/// Vectors of a sliver that are one tile: its first column, full vectors, and what comes behind them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub at: i64,
    pub count: i64,
    pub last: Option<(i64, i64)>,
}

/// A sliver of so many columns, whose packed rows have `width` elements, in tiles of at most so many vectors.
pub(super) fn parts(width: i64, columns: i64, lanes: i64, most: i64) -> Vec<Part> {
    // First column, lanes, lanes that there are.
    let mut pieces: Vec<(i64, i64, i64)> = vec![];
    let mut at = 0;
    while at < columns.min(width) {
        let mut lanes = lanes;
        while lanes > width - at {
            lanes /= 2;
        }
        pieces.push((at, lanes, lanes.min(columns - at)));
        at += lanes;
    }
    let tiles = (pieces.len() as i64 + most - 1) / most;
    let each = (pieces.len() as i64 + tiles - 1) / tiles.max(1);
    let part = |p: &[(i64, i64, i64)]| {
        let last = p.last().filter(|l| l.1 < lanes || l.2 < l.1).map(|l| (l.1, l.2));
        Part { at: p[0].0, count: p.len() as i64 - last.is_some() as i64, last }
    };
    pieces.chunks(each.max(1) as usize).map(part).collect()
}

/// Where the packed values of `b` are.
enum Right<'a> {
    /// They are packed sliver by sliver into this memory.
    Scratch(&'a Var),
    /// They were packed when the model was compiled.
    Panels(Var, Panels, DType),
}

/// Rows that read the values of `b` where they are.
struct Copying<'a> {
    row: &'a Axis,
    /// Points of it in a tile.
    tile: i64,
    /// So many do.
    first: PrimExpr,
    /// So many follow, which read what the first have copied.
    behind: i64,
}

/// A nest of the form.
struct Product<'a> {
    n: &'a Nest,
    a: PrimExpr,
    b: PrimExpr,
    right: Right<'a>,
    rows: Vec<Axis>,
    /// Steps of the blocks that the reduction goes by, and where sums wait between them.
    block: Option<(i64, &'a Var)>,
    /// The first step of this one.
    from: PrimExpr,
    /// `b` is read where it is, by all rows.
    direct: bool,
    /// It stays in no cache near enough to be read without asking ahead.
    far: bool,
    /// The tiles of a block of the reduction copy what those of the next one read; that lies along the reduction.
    passing: bool,
    turning: bool,
    /// Such a block.
    pass: Option<Pass>,
    /// Where the first rows copy a narrow sliver of a panel for the others.
    narrow: Option<&'a Var>,
    o: &'a SchedOptions,
}

/// Emits the nest; `false`, with nothing emitted, when it does not have the form.
pub fn contraction(e: &mut Emit, n: &Nest, scratch: Option<&Var>, o: &SchedOptions) -> Res<bool> {
    contract(e, n, scratch, o, None, None)
}

/// The same of some steps of a reduction, from one on.
pub(super) fn some_steps(e: &mut Emit, n: &Nest, scratch: &Var, o: &SchedOptions, from: PrimExpr) -> Res<bool> {
    contract(e, n, Some(scratch), o, None, Some(from))
}

/// Rows of columns of an open length that has so many vectors go by themselves; shorter ones are joined.
const LONG_ROWS: i64 = 3;

/// `join`: what becomes of rows of columns of an open length, where that is decided. `part`: the nest has some steps of a
/// reduction, from this one on.
fn contract(
    e: &mut Emit,
    n: &Nest,
    scratch: Option<&Var>,
    o: &SchedOptions,
    join: Option<bool>,
    part: Option<PrimExpr>,
) -> Res<bool> {
    let [acc] = n.accs.as_slice() else { return Ok(false) };
    if is_narrow(acc.var.dtype()) {
        return Ok(false);
    }
    let ct = compute_type(acc.var.dtype());
    let lanes = o.vector_bytes as usize / ct.bytes();
    if lanes < 2 {
        return Ok(false);
    }
    let unit = |a: &&Axis| n.out_stride(e, &a.var).and_then(|s| s.as_const()) == Some(1);
    let Some(j) = n.spatial.iter().rev().find(unit).cloned() else { return Ok(false) };
    let Some((x, y)) = factors(&acc.update, &acc.var) else { return Ok(false) };
    let Some((a, b)) = sides(x, y, &j.var) else { return Ok(false) };
    let right = match (packed_in(e, &b), scratch) {
        (Some((ptr, p, d)), _) => Right::Panels(ptr, p, d),
        (None, Some(scratch)) => Right::Scratch(scratch),
        (None, None) => return Ok(false),
    };
    let is_part = part.is_some();
    let from = part.clone().unwrap_or(PrimExpr::i64(0));
    let mut p = Product {
        n,
        a,
        b,
        right,
        rows: vec![],
        block: None,
        from,
        direct: false,
        far: false,
        passing: false,
        turning: false,
        pass: None,
        narrow: None,
        o,
    };
    let (a, b, rows) = (&p.a, &p.b, &mut p.rows);
    let mut outside = vec![];
    for i in n.spatial.iter().filter(|i| i.var != j.var) {
        if a.uses(&i.var) && !b.uses(&i.var) {
            rows.push(i.clone());
        } else {
            outside.push(i.clone());
        }
    }
    let packed = match &p.right {
        Right::Panels(_, p, _) => Some(*p),
        Right::Scratch(_) => None,
    };
    let fits = |p: &Panels| {
        let deep = n.reduce.len() == 1 && (is_part || n.reduce[0].len() == Some(p.depth));
        deep && (j.len() == Some(p.columns) || p.edge && j.len() == Some(p.whole()))
    };
    if packed.map_or(rows.is_empty(), |p| !fits(&p)) {
        return Ok(false);
    }
    // Join short or awkward rows of columns with the axis before them.
    let joined = outside.iter().rposition(|h| !a.uses(&h.var) && b.uses(&h.var) && joins(e, n, h, &j));
    let unit_b = stride_is_one(e, b, &j.var);
    let step = lanes as i64;
    let awkward = j.len().is_none_or(|w| !unit_b || w % step != 0 || w < 4 * step);
    let joined = joined.filter(|_| awkward && packed.is_none());
    if let (None, Some(_), None, true) = (join, joined, j.len(), o.is_wide()) {
        let long = e.hoist(j.extent.clone().ge(LONG_ROWS * lanes as i64));
        let both = |e: &mut Emit, join: bool| contract(e, n, scratch, o, Some(join), part.clone()).map(|_| ());
        return e.if_then(long, |e| both(e, false), |e| both(e, true)).map(|_| true);
    }
    let outer = joined.filter(|_| join != Some(false)).map(|at| outside.remove(at));
    let total = match &outer {
        Some(h) => Poly::of(&h.extent, &e.ranges).mul(&Poly::of(&j.extent, &e.ranges)),
        None => Poly::of(&j.extent, &e.ranges),
    };
    let apart = outer.is_none() && unit_b && matches!(b.kind(), PrimKind::Load { .. });
    let (start, lane) = (Var::new("column", DType::I64), Var::new("lane", DType::I64));
    let columns = Columns { start, lane, slot: None, j, outer, rest: false };
    let deep = packed.is_none() && n.reduce.len() == 1 && ct == DType::F32;
    let few = size(rows).filter(|r| rows.len() == 1 && *r <= FEW_ROWS);
    let short = deep && o.is_wide() && few.is_some() && apart;
    let collide = columns.j.len().is_some_and(|n| n * 4 % PAGE == 0);
    p.direct = short && (!collide || few.is_some_and(|r| r <= FEWEST_ROWS));
    let step = match packed {
        Some(_) if is_part => None,
        Some(p) => panel_blocks(o, rows, p.depth).map(|(step, _)| step).filter(|_| ct == DType::F32),
        None => block(o, size(rows), size(&n.reduce)).filter(|_| deep),
    };
    let far = columns.j.len().zip(size(&n.reduce)).is_some_and(|(n, k)| n * k * 4 >= RIGHT_FAR);
    p.far = deep && o.is_wide() && apart && far;
    p.block = step.zip(scratch);
    let known = size(rows).filter(|_| rows.len() == 1);
    let passing = |turned| next::passing(o, known, size(&n.reduce), columns.j.len(), turned);
    let plain = deep && columns.outer.is_none() && matches!(b.kind(), PrimKind::Load { .. }) && b.dtype() == DType::F32;
    p.turning = plain && !unit_b && passing(true) && stride_is_one(e, b, &n.reduce[0].var);
    p.passing = p.turning || plain && unit_b && !p.direct && passing(false);
    let panel = match packed {
        Some(_) => 1,
        None if p.block.is_some() || short || p.passing => 1,
        None => panel(o, size(rows), size(&n.reduce), ct.bytes() as i64),
    };
    let most = if rows.is_empty() { alone(o) } else { most_columns(o) as i64 };
    let given = n.given.and_then(|g| g.columns_for(lanes as i64)).filter(|g| *g <= most);
    let side = match (packed, given) {
        (Some(p), given) => p.tile(o, lanes as i64, rows.is_empty(), given),
        (None, Some(g)) => g,
        (None, None) if short => model_columns(o, few, total.as_const(), lanes as i64),
        (None, None) => tile_columns(o, total.as_const(), lanes as i64) as i64,
    };
    e.ranges.add_loop(&columns.start, Poly::default(), total.clone());
    e.contract = true;
    let (lanes, width) = (lanes as u16, lanes as i64 * side);
    p.narrow = scratch.filter(|_| packed.is_some_and(|p| width < p.width && narrow(o, rows, p.depth)));
    // Columns that do not fill a vector are computed with others that are not stored.
    let fills = ct.bytes() == 4 && lanes >= 4 && !has_load(&acc.init) && !acc.init.uses(&columns.j.var);
    let known = total.as_const().filter(|_| fills);
    let long = known.zip(size(&n.reduce)).is_some_and(|(n, k)| n * k * 4 > RIGHT_CACHED && k > STRETCH);
    // Of an open count of rows a few read `b` where it is.
    let open = deep && o.is_wide() && apart && !long && matches!(p.rows.as_slice(), [r] if r.len().is_none());
    let most_direct = if collide { FEWEST_ROWS } else { FEW_ROWS };
    let product = |e: &mut Emit, p: &Product| {
        p.chunks(e, &mut |e, p| {
            let mut columns = columns.clone();
            let end = e.index(&total)?;
            let end = e.hoist(end);
            let whole = match (packed, known) {
                (Some(p), _) => PrimExpr::i64(p.whole()),
                (None, Some(n)) => PrimExpr::i64(whole_slivers(n, width)),
                (None, None) => e.whole(&PrimExpr::i64(0), &end, width),
            };
            let start = columns.start.clone();
            if let (true, true, Some(w), Right::Scratch(scratch)) =
                (short && !p.passing, long, whole.as_int(), &p.right)
            {
                p.stretches(e, scratch, &columns, w, width, lanes)?;
            } else if let (Some(one), Some(whole)) = (p.one_row(width, lanes), whole.as_int()) {
                p.panels(e, &columns, whole, width, lanes, &one)?;
            } else {
                e.for_loop(&start, PrimExpr::i64(0), whole.clone(), width * panel, |e| {
                    (columns.slot, columns.rest) = (None, false);
                    if panel > 1 {
                        let left = (whole.clone() - start.expr()).floor_div(width);
                        let even = whole.as_int().is_some_and(|w| w % (width * panel) == 0);
                        let extent = if even { PrimExpr::i64(panel) } else { e.hoist(left.min(panel)) };
                        let var = Var::new("slot", DType::I64);
                        e.ranges.add_loop(&var, Poly::default(), Poly::of(&extent, &e.ranges));
                        columns.slot = Some(Axis { var, extent });
                    }
                    p.sliver(e, &columns, width, width, lanes, &[Part { at: 0, count: side, last: None }])
                })?;
            }
            columns.slot = None;
            columns.rest = true;
            if let (Some(n), Some(whole)) = (known, whole.as_int()) {
                let valid = n - whole;
                let most = if p.rows.is_empty() { alone(o) } else { most_columns(o) as i64 };
                // With so many registers one vector more costs less than another tile.
                let spare = (o.vector_bytes == 64 && valid % FEW > 0) as i64;
                let parts = parts(padded(valid), valid, lanes as i64, most + spare);
                return e.for_loop(&start, PrimExpr::i64(whole), end, valid.max(1), |e| {
                    p.sliver(e, &columns, padded(valid), valid, lanes, &parts)
                });
            }
            // What is left takes as many vectors at a time as it has.
            let open = if join == Some(false) { LONG_ROWS } else { 1 };
            let left = whole.as_int().zip(end.as_int()).map_or(open, |(w, e)| (e - w) / lanes as i64);
            let together = if o.is_wide() { left.max(1) as u16 } else { 1 };
            strips(e, &start, whole, end, lanes, together, 4, |e, l| {
                let count = (l.lanes / lanes).max(1) as i64;
                let part = Part { at: 0, count, last: None };
                p.sliver(e, &columns, l.lanes as i64, l.lanes as i64, lanes.min(l.lanes), &[part])
            })
        })
    };
    let r = outside_loops(e, &outside, &mut |e| match p.rows.first() {
        Some(row) if open => {
            let few = Product { direct: true, ..p.with(p.n, p.a.clone(), p.b.clone()) };
            let is_few = e.hoist(row.extent.clone().le(most_direct));
            e.if_then(is_few, |e| product(e, &few), |e| product(e, &p))
        }
        _ => product(e, &p),
    });
    e.contract = false;
    r.map(|_| true)
}

pub(super) fn outside_loops(e: &mut Emit, axes: &[Axis], body: &mut dyn FnMut(&mut Emit) -> Res<()>) -> Res<()> {
    let Some((first, rest)) = axes.split_first() else { return body(e) };
    let end = Poly::of(&first.extent, &e.ranges);
    let end = e.index(&end)?;
    let end = e.hoist(end);
    e.for_loop(&first.var, PrimExpr::i64(0), end, 1, |e| outside_loops(e, rest, body))
}

/// Whether the outputs and what the epilogue reads walk `h` and `j` as one axis.
fn joins(e: &Emit, n: &Nest, h: &Axis, j: &Axis) -> bool {
    let extent = Poly::of(&j.extent, &e.ranges);
    let mut values: Vec<&PrimExpr> = n.outs.iter().map(|o| &o.value).collect();
    values.extend(n.accs.iter().map(|a| &a.init));
    let mut offsets: Vec<Poly> = n.outs.iter().map(|o| Poly::of(&o.offset, &e.ranges)).collect();
    let mut plain = false;
    for v in values {
        plain |= used_plainly(v, &h.var) || used_plainly(v, &j.var);
        v.walk(&mut |x| {
            if let PrimKind::Load { offset, .. } = x.kind() {
                offsets.push(Poly::of(offset, &e.ranges));
            }
        });
    }
    !plain
        && offsets.iter().all(|p| match (p.split(&h.var), p.split(&j.var)) {
            (Some((x, _)), Some((y, _))) => x == y.mul(&extent),
            _ => false,
        })
}

pub(super) fn stride_is_one(e: &Emit, b: &PrimExpr, j: &Var) -> bool {
    let s = super::nest::scan(&[b], j, e);
    s.gather == 0 && !s.blocked
}

impl Product<'_> {
    /// Whether the right side is read by one row, or where it is by few.
    fn reads_once(&self, tiled: Option<&Axis>) -> bool {
        self.direct || tiled.is_none_or(|r| r.len() == Some(1))
    }

    /// The same of another nest and its factors.
    fn with<'b>(&'b self, n: &'b Nest, a: PrimExpr, b: PrimExpr) -> Product<'b> {
        let right = match &self.right {
            Right::Scratch(scratch) => Right::Scratch(scratch),
            Right::Panels(ptr, p, d) => Right::Panels(ptr.clone(), *p, *d),
        };
        let (rows, from) = (self.rows.clone(), self.from.clone());
        let (direct, far, passing, turning) = (self.direct, self.far, self.passing, self.turning);
        let (block, pass, narrow) = (self.block, self.pass.clone(), self.narrow);
        Product { n, a, b, right, rows, block, from, direct, far, passing, turning, pass, narrow, o: self.o }
    }

    /// A sliver of `valid` columns, whose packed rows have `width` elements.
    fn sliver(&self, e: &mut Emit, c: &Columns, width: i64, valid: i64, lanes: u16, parts: &[Part]) -> Res<()> {
        // Rows of a right side are read whole; squares of it may end before the columns of a vector do.
        let whole = lanes as u32 * 4 == self.o.vector_bytes && valid >= LEAST_PASSING;
        // Tiles of so many vectors leave no registers for what is copied beside them.
        let registers = parts.first().is_none_or(|p| p.count + p.last.is_some() as i64 <= most_columns(self.o) as i64);
        let passing = self.passing && whole && registers && (self.turning || width == valid);
        if let (true, Right::Scratch(scratch), [part]) = (passing, &self.right, parts) {
            return self.in_passing(e, scratch, c, (width, valid), lanes, part);
        }
        let Some((step, scratch)) = self.block else {
            return self.rows(e, c, width, valid, lanes, parts);
        };
        let mut at = c.j.var.expr() - c.start.expr();
        if matches!(self.right, Right::Scratch(_)) || self.narrow.is_some() {
            // The sums of a row wait behind the packed values.
            at = at + step * widest(self.o, 4);
        }
        self.blocks(e, scratch, step, (at, width), &mut |e, p| p.rows(e, c, width, valid, lanes, parts))
    }

    /// Packs the sliver, then runs all rows over it.
    fn rows(&self, e: &mut Emit, c: &Columns, width: i64, valid: i64, lanes: u16, parts: &[Part]) -> Res<()> {
        let n = self.n;
        let Some(acc) = n.accs.first() else { return Err(e.internal("no accumulator")) };
        // Position in the sliver: k * width + lane.
        let mut depth = Poly::constant(1);
        let mut k = Poly::default();
        for r in n.reduce.iter().rev() {
            k = k.add(&Poly::var(&r.var).mul(&depth));
            depth = depth.mul(&Poly::of(&r.extent, &e.ranges));
        }
        let mut at = k.scale(width);
        if let Some(pass) = &self.pass {
            at = at.add(&Poly::of(&pass.place, &e.ranges));
        }
        let mut first = c.start.expr();
        if let Some(slot) = &c.slot {
            at = at.add(&depth.mul(&Poly::var(&slot.var)).scale(width));
            first = first + slot.var.expr() * width;
        }
        // The longest row axis is tiled.
        let tiled = self.rows.iter().rev().max_by_key(|r| r.len().unwrap_or(i64::MAX));
        let height = |e: &Emit, r: &Axis, part: &Part| {
            let count = part.count + part.last.is_some() as i64;
            let given =
                n.given.filter(|g| g.lanes * 4 == self.o.vector_bytes as i64 && g.columns == count && g.rows > 0);
            rows_for(e, r, given.map_or_else(|| tile_rows(self.o.vector_bytes, count as u16), |g| g.rows))
        };
        let mut copying = None;
        // Where the first rows find what they copy.
        let mut from = None;
        let d = compute_type(acc.var.dtype());
        let (scratch, stored) = match &self.right {
            Right::Scratch(scratch) => {
                let sliver = Sliver {
                    b: &self.b,
                    reduce: &n.reduce,
                    j: &c.j,
                    outer: c.outer.as_ref(),
                    slot: c.slot.as_ref(),
                    first: first.clone(),
                    lane: &c.lane,
                    width,
                    valid,
                    scratch,
                    at: at.clone(),
                    vector_bytes: self.o.vector_bytes,
                };
                // The first rows read the values where they are, and copy them on the way for those that follow.
                let plain = sliver.is_plain(e) && n.reduce.len() == 1 && lanes > 1 && width == valid;
                copying = match (self.rows.as_slice(), parts) {
                    ([r], [part]) if plain => {
                        let height = height(e, r, part);
                        let tile = r.len().map_or(height, |len| height.min(len));
                        let (first, behind) = match r.len() {
                            _ if self.direct => (r.extent.clone(), 0),
                            Some(len) => (PrimExpr::i64(tile), len - tile),
                            None => (PrimExpr::i64(0), 0),
                        };
                        (!first.is_int(0)).then_some(Copying { row: r, tile, first, behind })
                    }
                    _ => None,
                };
                if self.pass.as_ref().is_some_and(|p| p.copied) {
                    copying = None;
                } else if copying.is_none() {
                    sliver.pack(e)?;
                }
                (*scratch, d)
            }
            Right::Panels(ptr, p, stored) => {
                let k = k.add(&Poly::of(&self.from, &e.ranges));
                let mut place = p.at(e, &c.start, c.rest, &k, width);
                if let Some(slot) = &c.slot {
                    place = place.add(&Poly::var(&slot.var).scale(p.depth * p.width));
                }
                match (self.narrow.filter(|_| !c.rest && width < p.width), self.rows.as_slice(), parts) {
                    (Some(scratch), [row], [part]) => {
                        let tile = height(e, row, part);
                        let (first, behind) = (PrimExpr::i64(tile), row.len().unwrap_or(tile) - tile);
                        copying = Some(Copying { row, tile, first, behind });
                        from = Some((ptr, place, *stored));
                        (scratch, d)
                    }
                    _ => {
                        at = place;
                        (ptr, *stored)
                    }
                }
            }
        };
        for part in parts {
            let lane = c.lane.expr() + part.at;
            let mut map = HashMap::from([(c.j.var.clone(), first.clone() + lane)]);
            if let Some(h) = &c.outer {
                map.insert(h.var.clone(), PrimExpr::i64(0));
            }
            let mut inner = n.clone();
            inner.map_exprs(&mut |x| x.substitute(&map));
            let along = |at: &Poly| at.add(&Poly::constant(part.at)).add(&Poly::var(&c.lane)).expr();
            let place = along(&at);
            let packed = PrimExpr::load_ptr(scratch.expr(), place.clone(), stored).cast(d);
            inner.accs[0].update = acc.var.expr() + self.a.clone() * packed;
            inner.spatial = self.rows.clone();
            inner.reduce = inner.merge(e, inner.reduce.clone());
            let mut tile = Tile {
                vector: Some(Vector {
                    axis: Axis { var: c.lane.clone(), extent: PrimExpr::i64(width) },
                    lanes,
                    count: part.count as u16,
                    last: part.last.map(|(lanes, valid)| Last { lanes: lanes as u16, valid: valid as u16 }),
                    combine: vec![],
                    pair: false,
                }),
                rows: tiled.map(|r| (r.var.clone(), height(e, r, part))).into_iter().collect(),
                unroll: UNROLL,
                balanced: true,
                pieces: None,
                copies: None,
                ahead: vec![],
                next: None,
            };
            if self.reads_once(tiled) {
                let rows = tile.rows.first().map_or(1, |(_, n)| *n);
                let panels = c.slot.as_ref().and_then(|s| s.len()).unwrap_or(1);
                tile.unroll =
                    foreseen(if rows == 1 { 0 } else { rows } + panels * (part.count + part.last.is_some() as i64));
            }
            let asking =
                tiled.zip(tile.rows.first()).map(|(r, (_, height))| Rows { r, height: *height, unroll: tile.unroll });
            let right = match &self.pass {
                Some(_) => self.next_sliver(e, c, width),
                None => self.ahead(e, c, width, asking).or_else(|| self.beside(e, c, width, asking)),
            };
            let left = self.left(e, asking);
            tile.ahead = right.into_iter().chain(left.clone()).collect();
            if let (Some(slot), Right::Panels(..)) = (&c.slot, &self.right) {
                // Of one row: a tile has a row of sums for each panel.
                tile.rows = slot.len().map(|panels| (slot.var.clone(), panels)).into_iter().collect();
            }
            let mut order = self.rows.clone();
            inner.spatial.extend(c.slot.clone());
            order.sort_by_key(|r| tile.rows.iter().any(|(v, _)| *v == r.var));
            order.extend(c.slot.clone());
            let mut point = Point { offsets: vec![], lanes, count: part.count as u16 };
            e.start_lane(&c.lane, width == 1);
            let below = copying.as_ref().filter(|c| c.behind > 0).and_then(|_| self.below(e, c, width));
            if let Some(c) = &copying {
                let b = match &from {
                    Some((ptr, place, stored)) => PrimExpr::load_ptr(ptr.expr(), along(place), *stored).cast(d),
                    None => self.b.substitute(&map),
                };
                let mut direct = inner.clone();
                direct.accs[0].update = acc.var.expr() + self.a.clone() * b.clone();
                let mut first = order.clone();
                first[0].extent = c.first.clone();
                let copies = Copies { value: b, ptr: scratch.clone(), offset: place };
                let copying = Tile {
                    rows: vec![(c.row.var.clone(), c.tile)],
                    copies: (c.behind > 0).then_some(copies),
                    ahead: match below {
                        Some(below) => left.into_iter().chain([below]).collect(),
                        None => tile.ahead.clone(),
                    },
                    ..tile.clone()
                };
                spatial(e, &direct, &copying, &first, &mut point.clone())?;
                // The others follow.
                let behind = HashMap::from([(c.row.var.clone(), c.row.var.expr() + c.first.clone())]);
                inner.map_exprs(&mut |x| x.substitute(&behind));
                tile.ahead.iter_mut().for_each(|a| a.ptr = a.ptr.substitute(&behind));
                order[0].extent = PrimExpr::i64(c.behind);
            }
            if copying.as_ref().is_none_or(|c| c.behind > 0) {
                if let (Some(c), Some(own)) = (&copying, tile.rows.first_mut()) {
                    own.1 = rows_for(e, &order[0], c.tile);
                }
                // Tiles that copy for the next block, and those behind them.
                tile.next = order.first().and_then(|r| self.next(e, c, &map, (width, valid), r, &tile));
                if let (Some(rows), [r]) = (tile.next.as_ref().map(|n| n.rows), order.as_mut_slice()) {
                    if let Some(len) = r.len().filter(|len| rows < *len) {
                        let copying = Axis { extent: PrimExpr::i64(rows), ..r.clone() };
                        spatial(e, &inner, &tile, &[copying], &mut point.clone())?;
                        let others = HashMap::from([(r.var.clone(), r.var.expr() + rows)]);
                        inner.map_exprs(&mut |x| x.substitute(&others));
                        tile.ahead.iter_mut().for_each(|a| a.ptr = a.ptr.substitute(&others));
                        tile.next = None;
                        r.extent = PrimExpr::i64(len - rows);
                    }
                }
                spatial(e, &inner, &tile, &order, &mut point)?;
            }
            e.end_lane(&c.lane);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_columns_go_with_the_last_sliver() {
        assert_eq!([64, 128, 197, 100, 30, 7, 150].map(|n| whole_slivers(n, 64)), [64, 128, 128, 64, 0, 0, 128]);
        assert_eq!([0, 3, 5, 9, 16, 36, 69].map(padded), [0, 4, 8, 16, 16, 36, 72]);
        let part = |at, count, last| Part { at, count, last };
        assert_eq!(parts(72, 69, 16, 5), [part(0, 4, Some((8, 5)))]);
        assert_eq!(parts(72, 69, 8, 3), [part(0, 3, None), part(24, 3, None), part(48, 2, Some((8, 5)))]);
        assert_eq!(parts(16, 9, 4, 3), [part(0, 2, Some((4, 1)))]);
        assert_eq!(parts(36, 36, 16, 4), [part(0, 2, Some((4, 4)))]);
    }
}
