//! Reductions on register accumulators.
//!
//! A tile of output points is computed at a time: vectors along a contiguous output axis (matmul with a row-major
//! right side, convolution, pooling) or along the reduction axis (dot products, row sums), and several rows where a
//! load serves all of them. Every point of the tile has its accumulator in a register while the reduction loops run;
//! equal loads of a tile are shared. Float sums are reassociated when the vectors run along the reduction; each
//! step is a fused multiply-add where the target has one. Integer results are exact.

pub use super::beside::LINE;
use super::beside::{Ahead, Copies, Next};
use super::contract::contraction;
use super::dots::Dots;
use super::edges::Edge;
use super::emit::{compute_type, Emit, Lane, Res};
use super::map::{point, spread, strips};
use super::mirrored::Mirrored;
use super::nest::{scan, used_plainly, Nest};
use super::pieces::Pieces;
use super::poly::Poly;
use super::stage::{Acc, Axis, Stage};
use super::transpose::totals;
use super::SchedOptions;
use relax_ir::flat::FlatStmt;
use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// The decisions for one reduction.
#[derive(Clone)]
pub struct Tile {
    /// Vectors along this axis; `None` for scalar code.
    pub vector: Option<Vector>,
    /// Rows of the tile: axis and how many points of it.
    pub rows: Vec<(Var, i64)>,
    /// Reduction steps per round of the innermost loop.
    pub unroll: i64,
    /// Of an open count of rows those left over go by one or two smaller tiles, not one by one.
    pub balanced: bool,
    /// What is read is also written elsewhere.
    pub copies: Option<Copies>,
    /// What will be read behind this.
    pub ahead: Vec<Ahead>,
    /// What is copied for the tiles of the next block.
    pub next: Option<Next>,
    /// A long sum is made in pieces.
    pub pieces: Option<Pieces>,
}

/// Rows behind the last tile that share it, and the most that are one tile and two whatever the tile is.
const FEW_LEFT: i64 = 2;
const MOST_LEFT: i64 = 8;

/// Rows side by side where steps are no vectors, and operations of a step at most.
const BESIDE: i64 = 8;
const LIGHT: usize = 4;

#[derive(Clone)]
pub struct Vector {
    pub axis: Axis,
    pub lanes: u16,
    /// Registers side by side.
    pub count: u16,
    /// Behind these, a vector of its own.
    pub last: Option<Last>,
    /// The axis is a reduction axis and these combine the lanes of each accumulator; none along an output.
    pub combine: Vec<BinOp>,
    /// The lanes are those of two registers, which go through long chains of operations side by side.
    pub pair: bool,
}

/// The last vector of a tile, which may be narrower and reach beyond the end of the axis.
#[derive(Clone, Copy)]
pub struct Last {
    pub lanes: u16,
    /// Lanes before the end.
    pub valid: u16,
}

pub fn reduction(e: &mut Emit, s: &Stage, scratch: Option<&Var>, o: &SchedOptions) -> Res<()> {
    if let (Some(edge), Some(scratch)) = (Edge::of(s, o), scratch) {
        return edge.emit(e, scratch, o);
    }
    let mut n = Nest::new(e, s)?;
    if let (Some(m), Some(scratch)) = (Mirrored::of(s, o), scratch) {
        return m.emit(e, &n, scratch, o, &|_, _, _| Ok(()));
    }
    if let (Some(d), Some(scratch)) = (Dots::of(s, o), scratch) {
        return d.emit(e, &n, scratch);
    }
    if contraction(e, &n, scratch, o)? {
        return Ok(());
    }
    let tile = choose(e, &mut n, o);
    e.contract = true;
    let mut axes = n.spatial.clone();
    // Tile axes inside the others, the vector axis last.
    let rank = |a: &Axis| match &tile.vector {
        Some(v) if v.combine.is_empty() && v.axis.var == a.var => 2,
        _ => tile.rows.iter().any(|(r, _)| *r == a.var) as i32,
    };
    axes.sort_by_key(rank);
    let mut point = Point { offsets: vec![], lanes: 1, count: 1 };
    let r = spatial(e, &n, &tile, &axes, &mut point);
    e.contract = false;
    r
}

/// The register tile of one instance of the loops.
#[derive(Clone)]
pub struct Point {
    /// Rows along each tile axis in this instance.
    pub offsets: Vec<(Var, i64)>,
    pub lanes: u16,
    pub count: u16,
}

pub fn spatial(e: &mut Emit, n: &Nest, t: &Tile, axes: &[Axis], p: &mut Point) -> Res<()> {
    let Some((first, rest)) = axes.split_first() else { return kernel(e, n, t, p) };
    let end = Poly::of(&first.extent, &e.ranges);
    let end = e.index(&end)?;
    let end = e.hoist(end);
    let zero = PrimExpr::i64(0);
    if let Some(v) = t.vector.as_ref().filter(|v| v.combine.is_empty() && v.axis.var == first.var) {
        return strips(e, &first.var, zero, end, v.lanes, v.count, 4, |e, lane| {
            let mut p = p.clone();
            p.lanes = v.lanes.min(lane.lanes);
            p.count = (lane.lanes / v.lanes).max(1);
            spatial(e, n, t, rest, &mut p)
        });
    }
    let rows = t.rows.iter().find(|(v, _)| *v == first.var).map_or(1, |(_, k)| *k);
    // No rows at all: a dim of 0.
    if rows <= 1 {
        return e.for_loop(&first.var, zero, end, 1, |e| spatial(e, n, t, rest, p));
    }
    let with = |e: &mut Emit, from: PrimExpr, to: PrimExpr, step: i64| {
        let mut p = p.clone();
        p.offsets.push((first.var.clone(), step));
        e.for_loop(&first.var, from, to, step, |e| spatial(e, n, t, rest, &mut p))
    };
    match end.as_int() {
        Some(len) => {
            let whole = len / rows * rows;
            with(e, zero, PrimExpr::i64(whole), rows)?;
            with(e, PrimExpr::i64(whole), end, len - whole)
        }
        None if t.balanced => {
            let mut at = zero;
            let alone = if rows <= MOST_LEFT { rows } else { MOST_LEFT - 2 };
            for (to, step) in open_tiles(e, &end, rows, alone) {
                with(e, at, to.clone(), step)?;
                at = to;
            }
            Ok(())
        }
        None => {
            let whole = e.whole(&zero, &end, rows);
            with(e, zero, whole.clone(), rows)?;
            with(e, whole, end, 1)
        }
    }
}

/// An open count of points in tiles of `rows` and what is left in one or two of nearly the same size, since each tile
/// reads the packed columns once: where each size ends. So few behind the last tile that they would wait for those share
/// it; up to `alone` points are one tile.
pub(super) fn open_tiles(e: &mut Emit, end: &PrimExpr, rows: i64, alone: i64) -> Vec<(PrimExpr, i64)> {
    if e.ranges.divisor(end) % rows == 0 {
        return vec![(end.clone(), rows)];
    }
    let few = (rows / 2).min(FEW_LEFT);
    let over = e.hoist(end.clone().floor_mod(rows));
    let share = end.clone().gt(rows).and(over.clone().gt(0)).and(over.clone().le(few));
    let mut at = e.hoist(end.clone() - over - share.select(PrimExpr::i64(rows), PrimExpr::i64(0)));
    let mut tiles = vec![(at.clone(), rows)];
    let left = e.hoist(end.clone() - at.clone());
    let first = e.hoist(left.clone().le(alone).select(left.clone(), (left.clone() + 1).floor_div(2)));
    let second = e.hoist(left - first.clone());
    for size in (1..=alone.min(rows - 1).max((rows + few + 1) / 2)).rev() {
        let of = |n: &PrimExpr| n.clone().eq(size).select(PrimExpr::i64(size), PrimExpr::i64(0));
        at = e.hoist(at + of(&first) + of(&second));
        tiles.push((at.clone(), size));
    }
    tiles
}

/// The sizes of these tiles for a known count.
pub(super) fn tiles_of(count: i64, rows: i64, alone: i64) -> Vec<i64> {
    let over = count % rows;
    let share = count > rows && (1..=(rows / 2).min(FEW_LEFT)).contains(&over);
    let left = over + if share { rows } else { 0 };
    let first = if left <= alone { left } else { (left + 1) / 2 };
    let mut tiles = vec![rows; ((count - left) / rows) as usize];
    tiles.extend([first, left - first].into_iter().filter(|n| *n > 0));
    tiles
}

/// One vector of a tile, or one point of scalar code.
pub(super) struct Spot {
    /// What the axis variables stand for.
    pub map: HashMap<Var, PrimExpr>,
    pub lane: Lane,
    /// Its first lane, from the beginning of the tile.
    at: i64,
    /// Lanes before the end of the axis.
    valid: u16,
}

/// The vectors of a tile, row by row.
fn instances(t: &Tile, p: &Point) -> Vec<Spot> {
    let mut rows: Vec<HashMap<Var, PrimExpr>> = vec![HashMap::new()];
    for (v, count) in &p.offsets {
        let mut next = vec![];
        for m in &rows {
            for i in 0..*count {
                let mut m = m.clone();
                if i > 0 {
                    m.insert(v.clone(), v.expr() + i);
                }
                next.push(m);
            }
        }
        rows = next;
    }
    let vector = t.vector.as_ref().filter(|v| v.combine.is_empty());
    let Some(v) = vector.filter(|v| p.lanes > 1 || v.last.is_some()) else {
        let lane = vector.map_or_else(Lane::scalar, |v| Lane::of(&v.axis.var, p.lanes));
        return rows.into_iter().map(|map| Spot { map, lane: lane.clone(), at: 0, valid: p.lanes }).collect();
    };
    let mut pieces: Vec<(i64, u16, u16)> =
        (0..p.count as i64).map(|i| (i * p.lanes as i64, p.lanes, p.lanes)).collect();
    pieces.extend(v.last.map(|l| (p.count as i64 * p.lanes as i64, l.lanes, l.valid)));
    let mut all = vec![];
    for row in rows {
        for &(at, lanes, valid) in &pieces {
            let mut map = row.clone();
            if at > 0 {
                map.insert(v.axis.var.clone(), v.axis.var.expr() + at);
            }
            all.push(Spot { map, lane: Lane::of(&v.axis.var, lanes), at, valid });
        }
    }
    all
}

fn kernel(e: &mut Emit, n: &Nest, t: &Tile, p: &Point) -> Res<()> {
    let points = instances(t, p);
    let along = t.vector.as_ref().filter(|v| !v.combine.is_empty());
    // Initial values.
    let mut finals: Vec<Vec<Var>> = vec![];
    for s in &points {
        let mut accs = vec![];
        for a in &n.accs {
            let init = e.value(&a.init.substitute(&s.map), &s.lane)?;
            accs.push(e.local("acc", spread(init, s.lane.lanes)));
        }
        finals.push(accs);
    }
    match along {
        None => {
            let next = t.next.as_ref().map(|n| (n, e.hoist(n.first.clone())));
            let ahead: Vec<(&Ahead, PrimExpr)> = t.ahead.iter().map(|a| (a, e.hoist(a.ptr.clone()))).collect();
            let mut loops = |e: &mut Emit, axes: &[Axis], range, locals: &[Vec<Var>]| {
                steps(e, t, axes, range, &mut HashMap::new(), &mut |e, k| {
                    let per_row = p.count as usize + t.vector.as_ref().is_some_and(|v| v.last.is_some()) as usize;
                    let row = &points[..per_row.min(points.len())];
                    if let Some(c) = &t.copies {
                        c.emit(e, row, k)?;
                    }
                    if let ([axis], true) = (n.reduce.as_slice(), k.is_empty()) {
                        if let Some((next, first)) = &next {
                            next.round(e, first, &axis.var, t.unroll, row)?;
                        }
                        ahead.iter().for_each(|(a, ptr)| a.round(e, ptr, &axis.var, t.unroll));
                    }
                    update(e, n, &points, locals, k, None)
                })
            };
            match t.pieces {
                Some(p) => p.emit(e, n, &finals, &mut loops)?,
                None => loops(e, &n.reduce, None, &finals)?,
            }
        }
        Some(v) => lanewise(e, n, t, v, &points, &finals)?,
    }
    if side_by_side(e, n, t, p, &points, &finals)? {
        return Ok(());
    }
    for (s, accs) in points.iter().zip(&finals).filter(|(s, _)| s.valid == s.lane.lanes) {
        for (a, local) in n.accs.iter().zip(accs) {
            e.set_value(&a.var, local.expr());
        }
        let mut outs = n.outs.clone();
        for o in &mut outs {
            o.offset = o.offset.substitute(&s.map);
            o.value = o.value.substitute(&s.map);
        }
        point(e, &outs, &s.lane)?;
    }
    let ends: Vec<usize> = (0..points.len()).filter(|&i| points[i].valid < points[i].lane.lanes).collect();
    match (&t.vector, ends.first()) {
        (Some(v), Some(&first)) => {
            let sums: Vec<(&Spot, &Var)> = ends.iter().map(|&i| (&points[i], &finals[i][0])).collect();
            through_memory(e, n, v, p, &sums, &shorter(&points[first]))
        }
        _ => Ok(()),
    }
}

/// The lanes before the end, as vectors of 4 lanes or more and single ones: first lane, lanes.
fn shorter(s: &Spot) -> Vec<(i64, u16)> {
    let (mut at, end) = (s.at, s.at + s.valid as i64);
    let mut out = vec![];
    for lanes in [16, 8, 4, 1] {
        while lanes <= s.lane.lanes && end - at >= lanes as i64 {
            out.push((at, lanes));
            at += lanes as i64;
        }
    }
    out
}

/// Sums go to memory and come back row by row in other vectors (`parts`: first lane, lanes) for the epilogue.
fn through_memory(
    e: &mut Emit,
    n: &Nest,
    v: &Vector,
    p: &Point,
    sums: &[(&Spot, &Var)],
    parts: &[(i64, u16)],
) -> Res<()> {
    let Some(acc) = n.accs.first() else { return Err(e.internal("no accumulator")) };
    let d = compute_type(acc.var.dtype());
    let from = sums.iter().map(|(s, _)| s.at).min().unwrap_or(0);
    let width = sums.iter().map(|(s, _)| s.at + s.lane.lanes as i64).max().unwrap_or(0) - from;
    let rows = p.offsets.first().map_or(1, |(_, n)| *n);
    let stack = e.sums((rows * width) as u32 * d.bytes() as u32);
    for (i, (s, sum)) in sums.iter().enumerate() {
        let row = (i * rows as usize / sums.len()) as i64;
        let offset = PrimExpr::i64(row * width + s.at - from);
        e.push(FlatStmt::Store { ptr: stack.expr(), offset, value: sum.expr() });
    }
    let i = Var::new("i", DType::I64);
    e.ranges.add_loop(&i, Poly::default(), Poly::constant(rows));
    e.for_loop(&i, PrimExpr::i64(0), PrimExpr::i64(rows), 1, |e| {
        for &(at, lanes) in parts {
            let offset = i.expr() * width + (at - from);
            let sum = e.bind("sum", PrimExpr::load_ptr(stack.expr(), offset, d.with_lanes(lanes)));
            e.set_value(&acc.var, sum);
            let first = match lanes {
                1 => PrimExpr::i64(at),
                _ => v.axis.var.expr() + at,
            };
            let mut map = HashMap::from([(v.axis.var.clone(), first)]);
            if let Some((row, _)) = p.offsets.first() {
                map.insert(row.clone(), row.expr() + i.expr());
            }
            let mut outs = n.outs.clone();
            for o in &mut outs {
                o.offset = o.offset.substitute(&map);
                o.value = o.value.substitute(&map);
            }
            point(e, &outs, &Lane::of(&v.axis.var, lanes))?;
        }
        Ok(())
    })
}

/// An epilogue that is a long chain of operations: the sums go to memory, and several vectors at a time go through the
/// chain side by side. `false`, with nothing emitted, for any other.
fn side_by_side(e: &mut Emit, n: &Nest, t: &Tile, p: &Point, points: &[Spot], sums: &[Vec<Var>]) -> Res<bool> {
    let Some(v) = t.vector.as_ref().filter(|v| v.combine.is_empty() && e.wide && p.lanes > 1) else { return Ok(false) };
    let ([acc], true) = (n.accs.as_slice(), p.offsets.len() <= 1) else { return Ok(false) };
    let values: Vec<&PrimExpr> = n.outs.iter().map(|o| &o.value).collect();
    if compute_type(acc.var.dtype()) != DType::F32 || scan(&values, &v.axis.var, e).calls == 0 || sums.len() < 2 {
        return Ok(false);
    }
    let (lanes, count) = (p.lanes as i64, p.count as i64);
    let (mut parts, mut first) = (vec![], 0);
    while first < count {
        // As many as there are registers for.
        let together = (count - first).min(if lanes == 16 { 4 } else { 2 });
        parts.push((first * lanes, (together * lanes) as u16));
        first += together;
    }
    if let (Some(_), Some(s)) = (v.last, points.get(count as usize)) {
        parts.extend(shorter(s));
    }
    let sums: Vec<(&Spot, &Var)> = points.iter().zip(sums.iter().map(|s| &s[0])).collect();
    through_memory(e, n, v, p, &sums, &parts)?;
    Ok(true)
}

/// Vectors along a reduction axis: partial results per lane, combined at the end.
fn lanewise(e: &mut Emit, n: &Nest, t: &Tile, v: &Vector, points: &[Spot], finals: &[Vec<Var>]) -> Res<()> {
    if v.combine.len() != n.accs.len() {
        return Err(e.internal("no way to combine lanes"));
    }
    let others: Vec<Axis> = n.reduce.iter().filter(|a| a.var != v.axis.var).cloned().collect();
    let start = |e: &mut Emit, f: &[Var], lanes: u16| -> Vec<Var> {
        let one = |(op, f): (&BinOp, &Var)| match op {
            BinOp::Add => PrimExpr::zero(f.dtype()),
            BinOp::Mul => PrimExpr::one(f.dtype()),
            _ => f.expr(),
        };
        v.combine.iter().zip(f).map(|x| e.local("acc", spread(one(x), lanes))).collect()
    };
    let mut partial: Vec<Vec<Vec<Var>>> = vec![];
    for f in finals {
        partial.push((0..v.count).map(|_| start(e, f, v.lanes)).collect());
    }
    // A known rest takes shorter vectors before single elements, and so does an open one where steps are dear.
    let rest = match v.axis.len() {
        Some(n) => n % v.lanes as i64,
        None if v.pair => v.lanes as i64 - 1,
        None => 0,
    };
    let mut short: Vec<(u16, Vec<Vec<Var>>)> = vec![];
    let wide = e.wide;
    for lanes in [16, 8, 4].into_iter().filter(|l| wide && *l < v.lanes && rest & *l as i64 != 0) {
        let sums = finals.iter().map(|f| start(e, f, lanes));
        short.push((lanes, sums.collect()));
    }
    let least = if short.is_empty() { v.lanes } else { 4 };
    let end = Poly::of(&v.axis.extent, &e.ranges);
    let end = e.index(&end)?;
    let end = e.hoist(end);
    steps(e, t, &others, None, &mut HashMap::new(), &mut |e, k| {
        strips(e, &v.axis.var, PrimExpr::i64(0), end.clone(), v.lanes, v.count, least, |e, lane| {
            if lane.lanes == 1 {
                return update(e, n, points, finals, k, Some(lane));
            }
            if let Some((_, locals)) = short.iter().find(|(lanes, _)| *lanes == lane.lanes) {
                return update(e, n, points, locals, k, Some(lane));
            }
            for c in 0..lane.lanes / v.lanes {
                let mut k = k.clone();
                if c > 0 {
                    k.insert(v.axis.var.clone(), v.axis.var.expr() + (c * v.lanes) as i64);
                }
                let locals: Vec<Vec<Var>> = partial.iter().map(|p| p[c as usize].clone()).collect();
                update(e, n, points, &locals, &k, Some(&Lane::of(&v.axis.var, v.lanes)))?;
            }
            Ok(())
        })
    })?;
    let reduce = |op: &BinOp| match op {
        BinOp::Add => Intrin::ReduceAdd,
        BinOp::Mul => Intrin::ReduceMul,
        BinOp::Max => Intrin::ReduceMax,
        _ => Intrin::ReduceMin,
    };
    for (x, f) in short.iter().flat_map(|(_, sums)| sums.iter().zip(finals)) {
        for (op, (x, f)) in v.combine.iter().zip(x.iter().zip(f)) {
            let total = PrimExpr::call(reduce(op), [x.expr()]);
            e.assign(f, PrimExpr::binary(*op, f.expr(), total));
        }
    }
    let mut vectors = vec![];
    for (p, i) in partial.iter().flat_map(|p| (0..n.accs.len()).map(move |i| (p, i))) {
        let mut all: Vec<PrimExpr> = p.iter().map(|x| x[i].expr()).collect();
        while all.len() > 1 {
            let half = all.len().div_ceil(2);
            let high = all.split_off(half);
            for (a, b) in all.iter_mut().zip(high) {
                *a = PrimExpr::binary(v.combine[i], a.clone(), b);
            }
        }
        vectors.extend(all);
    }
    // Rows have their lanes added side by side, and each takes its sum from memory.
    let sums =
        matches!(n.accs.as_slice(), [a] if compute_type(a.var.dtype()) == DType::F32) && v.combine == [BinOp::Add];
    if !(e.wide && sums && v.lanes >= 8 && !t.rows.is_empty()) {
        let all = finals.iter().flat_map(|f| f.iter().zip(&v.combine));
        for (x, (f, op)) in vectors.into_iter().zip(all) {
            let total = PrimExpr::call(reduce(op), [x]);
            e.assign(f, PrimExpr::binary(*op, f.expr(), total));
        }
        return Ok(());
    }
    let stack = e.sums(v.lanes as u32 * 4);
    for (vectors, finals) in vectors.chunks(v.lanes as usize).zip(finals.chunks(v.lanes as usize)) {
        let value = totals(e, vectors);
        e.push(FlatStmt::Store { ptr: stack.expr(), offset: PrimExpr::i64(0), value });
        for (i, f) in finals.iter().enumerate() {
            let total = e.bind("sum", PrimExpr::load_ptr(stack.expr(), PrimExpr::i64(i as i64), DType::F32));
            e.assign(&f[0], f[0].expr() + total);
        }
    }
    Ok(())
}

type Step<'a> = &'a mut dyn FnMut(&mut Emit, &HashMap<Var, PrimExpr>) -> Res<()>;

/// The reduction loops, of the first axis over `range`, the innermost one unrolled.
fn steps(
    e: &mut Emit,
    t: &Tile,
    axes: &[Axis],
    range: Option<(PrimExpr, PrimExpr)>,
    k: &mut HashMap<Var, PrimExpr>,
    body: Step,
) -> Res<()> {
    let Some((first, rest)) = axes.split_first() else { return body(e, k) };
    let (from, end) = match range {
        Some(r) => r,
        None => {
            let end = Poly::of(&first.extent, &e.ranges);
            let end = e.index(&end)?;
            (PrimExpr::i64(0), e.hoist(end))
        }
    };
    if !rest.is_empty() || t.unroll == 1 {
        // Short windows are written out.
        return e.for_loop(&first.var, from, end, 1, |e| steps(e, t, rest, None, k, body));
    }
    let unroll = match first.len() {
        Some(len) if len <= 2 * t.unroll => len.max(1),
        _ => t.unroll,
    };
    let whole = e.whole(&from, &end, unroll);
    e.for_loop(&first.var, from, whole.clone(), unroll, |e| {
        for i in 0..unroll {
            let mut k = k.clone();
            if i > 0 {
                k.insert(first.var.clone(), first.var.expr() + i);
            }
            body(e, &k)?;
        }
        Ok(())
    })?;
    e.for_loop(&first.var, whole, end, 1, |e| body(e, k))
}

/// One reduction step of every point of the tile; `lane`: along the reduction.
fn update(
    e: &mut Emit,
    n: &Nest,
    points: &[Spot],
    locals: &[Vec<Var>],
    k: &HashMap<Var, PrimExpr>,
    lane: Option<&Lane>,
) -> Res<()> {
    let apart = are_apart(n);
    for (s, accs) in points.iter().zip(locals) {
        let lane = lane.unwrap_or(&s.lane);
        let mut map = s.map.clone();
        for (v, x) in k {
            map.insert(v.clone(), x.clone());
        }
        for (a, local) in n.accs.iter().zip(accs) {
            e.set_value(&a.var, local.expr());
        }
        let mut values = vec![];
        for a in &n.accs {
            let x = e.value(&a.update.substitute(&map), lane)?;
            let x = spread(x, lane.lanes);
            // Of several accumulators each must see the old state of those that it uses.
            values.push(if apart { x } else { e.bind("next", x) });
        }
        for (local, x) in accs.iter().zip(values) {
            e.assign(local, x);
        }
    }
    Ok(())
}

/// Whether no accumulator uses another.
fn are_apart(n: &Nest) -> bool {
    let others = |a: &Acc| n.accs.iter().filter(|b| b.var != a.var).any(|b| used_plainly(&a.update, &b.var));
    !n.accs.iter().any(others)
}

/// `update = op(acc, term)` of each accumulator with `term` free of all. Products of floats in another order may overflow
/// where those from left to right do not.
fn combiners(n: &Nest, o: &SchedOptions) -> Option<Vec<BinOp>> {
    let of = |acc: &Acc| {
        let d = acc.var.dtype();
        if d.is_bool() || (d.is_float() && d.bits <= 16) || d.bits < 8 {
            return None;
        }
        let PrimKind::Binary(op, a, b) = acc.update.kind() else { return None };
        let free_order = match op {
            BinOp::Add | BinOp::Max | BinOp::Min => true,
            BinOp::Mul => d.bits >= 32 && !(d.is_float() && o.strict),
            _ => false,
        };
        if !free_order {
            return None;
        }
        let free = |e: &PrimExpr| !n.accs.iter().any(|a| used_plainly(e, &a.var));
        let own = |e: &PrimExpr| e.as_var() == Some(&acc.var);
        ((own(a) && free(b)) || (own(b) && free(a))).then_some(*op)
    };
    n.accs.iter().map(of).collect()
}

/// A tile of fewer rows takes as long as one of so many.
const LEAST_PAID: i64 = 3;

/// Points of a tile axis: all of a short one, else the count that leaves none over, or so many that they are worth a tile.
pub fn rows_for(e: &Emit, a: &Axis, most: i64) -> i64 {
    match a.len() {
        Some(len) if len <= most => len,
        Some(len) if len >= 8 * most => most,
        Some(len) => {
            let spent = |r: &i64| (len / r * r).max(0) + if len % r == 0 { 0 } else { (len % r).max(LEAST_PAID) };
            let even = (2..=most).rev().find(|r| len % r == 0 && *r * 2 > most);
            even.or_else(|| (2..=most).rev().filter(|r| *r * 2 > most).min_by_key(spent)).unwrap_or(most)
        }
        None => {
            let divisor = e.ranges.divisor(&Poly::of(&a.extent, &e.ranges).expr());
            let even = (2..=most).rev().find(|r| divisor % r == 0 && *r * 3 >= most * 2);
            even.filter(|_| e.ranges.told).unwrap_or(most)
        }
    }
}

fn choose(e: &Emit, n: &mut Nest, o: &SchedOptions) -> Tile {
    let scalar = Tile {
        vector: None,
        rows: vec![],
        unroll: 1,
        balanced: false,
        copies: None,
        ahead: vec![],
        next: None,
        pieces: None,
    };
    let updates: Vec<&PrimExpr> = n.accs.iter().map(|a| &a.update).collect();
    let values = n.values();
    let acc_bytes = n.accs.iter().map(|a| compute_type(a.var.dtype()).bytes()).max().unwrap_or(4);
    let score = |gather: usize, unit: usize, invariant: usize| gather * 10 + unit * 2 + invariant;
    let mut best: Option<(usize, Vector)> = None;
    if o.vector_bytes == 0 {
        return Tile { pieces: Pieces::of(n), ..scalar };
    }
    for a in n.spatial.iter().rev() {
        if n.out_stride(e, &a.var).and_then(|s| s.as_const()) != Some(1) {
            continue;
        }
        let s = scan(&values, &a.var, e);
        let u = scan(&updates, &a.var, e);
        let lanes = lanes_for(o, s.widest.max(acc_bytes), a);
        let short = a.len().is_some_and(|l| l < lanes as i64);
        if s.blocked || lanes < 2 || short {
            continue;
        }
        let v = Vector { axis: a.clone(), lanes: lanes as u16, count: 1, last: None, combine: vec![], pair: false };
        best = Some((score(u.gather, u.unit, u.invariant), v));
        break;
    }
    if let (Some(combine), Some(a)) = (combiners(n, o), n.reduce.last()) {
        let u = scan(&updates, &a.var, e);
        let lanes = lanes_for(o, u.widest.max(acc_bytes), a);
        let short = a.len().is_some_and(|l| l < lanes as i64);
        let cost = score(u.gather, u.unit, u.invariant) + 1;
        if !u.blocked && lanes >= 2 && !short && u.gather == 0 && best.as_ref().is_none_or(|(c, _)| cost < *c) {
            let v = Vector { axis: a.clone(), lanes: lanes as u16, count: 1, last: None, combine, pair: false };
            best = Some((cost, v));
        }
    }
    let light = n.accs.len() == 1 && updates.iter().all(|u| weight(u) <= LIGHT);
    // Vectors of elements that are read one by one pay where there is much to compute.
    let scattered = |v: &Vector| {
        let u = scan(&updates, &v.axis.var, e);
        v.combine.is_empty() && u.gather > 0 && u.unit == 0
    };
    let Some((_, mut v)) = best.filter(|(_, v)| !(light && scattered(v))) else {
        // Each step waits for the one before it: those of other rows go beside it.
        let row = n.spatial.iter().rev().find(|a| a.len() != Some(1)).filter(|_| light);
        let rows = row.map(|a| (a.var.clone(), rows_for(e, a, BESIDE))).filter(|(_, r)| *r > 1);
        return Tile { rows: rows.into_iter().collect(), pieces: Pieces::of(n), ..scalar };
    };
    // Loads that vary along the vector axis but not along a row axis serve all rows of a tile.
    let loads = distinct_loads(&updates);
    let along: Vec<&PrimExpr> = loads.iter().filter(|l| l.uses(&v.axis.var)).collect();
    let shared = |a: &Axis| loads.iter().filter(|l| !l.uses(&a.var)).count();
    let heavy = {
        let s = scan(&updates, &v.axis.var, e);
        s.calls > 0 || s.ops > 16
    };
    let mut rows = vec![];
    let row_axes: Vec<&Axis> = n.spatial.iter().filter(|a| a.var != v.axis.var && a.len() != Some(1)).collect();
    let single = n.accs.len() == 1;
    if v.combine.is_empty() {
        let gain = |a: &Axis| along.iter().filter(|l| !l.uses(&a.var)).count();
        let row = row_axes.iter().rev().max_by_key(|a| gain(a)).filter(|a| gain(a) > 0 && single && !heavy);
        // Without rows every load serves one vector only: long stretches of memory at a time.
        let alone = if o.is_wide() { 8 } else { 4 };
        v.count = match (row, single && !heavy) {
            (Some(a), _) => {
                let count = vector_count(&v.axis, v.lanes);
                let r = rows_for(e, a, if count == 2 { 4 } else { 3 });
                rows.push((a.var.clone(), r));
                if r == 1 {
                    alone
                } else {
                    count
                }
            }
            (None, true) => alone,
            (None, false) => 1,
        };
        if let Some(len) = v.axis.len() {
            v.count = (len / v.lanes as i64).clamp(1, v.count as i64) as u16;
        }
    } else if single && !heavy {
        // Dot products: rows on up to two axes.
        let mut candidates: Vec<&&Axis> = row_axes.iter().filter(|a| shared(a) > 0).collect();
        candidates.reverse();
        // Each sum takes two registers, of which there are 16 or 32.
        let most = if o.vector_bytes == 64 && candidates.len() > 1 { [3, 4] } else { [3, 3] };
        for (a, most) in candidates.into_iter().zip(most) {
            rows.push((a.var.clone(), rows_for(e, a, most)));
        }
        let product: i64 = rows.iter().map(|(_, r)| r).product();
        if rows.len() == 1 && product == 3 {
            rows[0].1 = rows_for(e, row_axes.iter().find(|a| a.var == rows[0].0).unwrap_or(&&v.axis), 4);
        }
        v.count = if product >= 4 {
            1
        } else if product >= 2 {
            2
        } else {
            4
        };
    } else if !single && !heavy {
        v.count = if n.accs.len() == 2 { 4 } else { 2 };
    } else if single && o.is_wide() && v.axis.len().is_none_or(|n| n >= 2 * v.lanes as i64) {
        v.lanes *= 2;
        v.pair = true;
    }
    rows.retain(|(_, r)| *r > 1);
    let size = updates.iter().map(|u| weight(u)).sum::<usize>();
    let points = rows.iter().map(|(_, r)| *r as usize).product::<usize>() * v.count as usize;
    let unroll = if heavy || !v.combine.is_empty() { 1 } else { (160 / (size * points).max(1)).clamp(1, 4) as i64 };
    let pieces = if v.combine.is_empty() { Pieces::of(n) } else { None };
    Tile { vector: Some(v), rows, unroll, pieces, ..scalar }
}

/// Lanes of vectors along `a`: where registers are wide, no more than it has elements.
fn lanes_for(o: &SchedOptions, bytes: usize, a: &Axis) -> usize {
    let mut lanes = o.vector_bytes as usize / bytes;
    while o.is_wide() && lanes > 4 && a.len().is_some_and(|n| n < lanes as i64) {
        lanes /= 2;
    }
    lanes
}

/// Registers side by side on the vector axis of a tile with rows: 3, or 2 where that divides better.
fn vector_count(a: &Axis, lanes: u16) -> u16 {
    let lanes = lanes as i64;
    match a.len() {
        Some(len) if len % (3 * lanes) == 0 => 3,
        Some(len) if len % (2 * lanes) == 0 && len < 16 * lanes => 2,
        _ => 3,
    }
}

fn distinct_loads(values: &[&PrimExpr]) -> Vec<PrimExpr> {
    let mut out: Vec<PrimExpr> = vec![];
    for v in values {
        v.walk(&mut |n| {
            if matches!(n.kind(), PrimKind::Load { .. }) && !out.contains(n) {
                out.push(n.clone());
            }
        });
    }
    out
}

/// Operations of a value, addresses left out.
fn weight(e: &PrimExpr) -> usize {
    match e.kind() {
        PrimKind::Load { .. } => 1,
        PrimKind::Var(_) | PrimKind::Int(_) | PrimKind::Float(_) => 0,
        _ => 1 + e.children().iter().map(|c| weight(c)).sum::<usize>(),
    }
}
