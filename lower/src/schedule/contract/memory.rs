//! What contractions keep in scratch memory: packed columns, the blocks that these go by, and sums that wait.

use super::super::dots::Dots;
use super::super::edges::Edge;
use super::super::emit::compute_type;
use super::super::mirrored::Mirrored;
use super::super::panels::{widened, Panels, FEW};
use super::super::stage::{Axis, Stage};
use super::super::SchedOptions;
use super::next::{self, LONGEST};
use super::{factors, most_columns, sides, size, FEW_ROWS, LEAST_WORK, SLIVERS, STRETCH};
use relax_ir::prim::PrimKind;
use relax_ir::{DType, PrimExpr, Var};

/// Bytes of rows that stay in the second-level cache while slivers change, and of packed columns that do.
const ROWS_CACHED: i64 = 256 << 10;
const PANEL_BYTES: i64 = 400 << 10;
/// Reductions of more steps than `DEEP` go by blocks of at most so many, whose packed columns stay in the second-level
/// cache; the sums of up to `MOST_ROWS` rows wait in memory meanwhile.
const BLOCK: i64 = 1024;
const DEEP: i64 = 1536;
const MOST_ROWS: i64 = 2048;
/// Of a right side in panels the sums of fewer rows: beside a panel, more of them do not stay in the second-level cache.
pub(super) const MOST_WAITING: i64 = 512;
/// More rows than that, and an open count of them, go by as many at a time; fewer than `LEAST_ROWS` read a panel once, and
/// nothing of it again.
pub(super) const CHUNK: i64 = 240;
const LEAST_ROWS: i64 = 13;
/// So many rows and reduction steps, at least, are worth a copy of a narrow sliver of a panel.
const NARROW_ROWS: i64 = 24;
const NARROW_DEPTH: i64 = 128;

/// See [`least_rows`].
const FEW_DIRECT: i64 = 2;
const FEW_PACKED: i64 = 6;

/// Below this many rows or columns, products of rows of both sides are dot products.
const DOTS: i64 = 16;

/// Bytes of scratch for a stage that may be computed this way.
pub(in super::super) fn scratch(s: &Stage, o: &SchedOptions) -> Option<PrimExpr> {
    let [acc] = s.accs.as_slice() else { return None };
    if let Some(w) = &s.window {
        return w.scratch(s);
    }
    let d = acc.var.dtype();
    if d.is_bool() || d.bits < 32 {
        return None;
    }
    if let Some(edge) = Edge::of(s, o) {
        return Some(edge.scratch(o));
    }
    let lines = Mirrored::of(s, o).map(|m| m.scratch()).or_else(|| Dots::of(s, o).map(|d| d.scratch()));
    if let Some(bytes) = lines {
        return Some(PrimExpr::i64(bytes));
    }
    let (x, y) = factors(&acc.update, &acc.var)?;
    let out = s.outs.first()?;
    let axis = |i: &PrimExpr| s.spatial.iter().find(|a| Some(&a.var) == i.as_var() && a.len() != Some(1));
    let j = out.indices.iter().rev().find_map(axis)?;
    let (a, b) = sides(x, y, &j.var)?;
    let j = j.clone();
    if let PrimKind::BufferLoad(b, _) = widened(&b).kind() {
        if let Some(p) = Panels::of(b) {
            // What waits between the blocks of the reduction, and narrow slivers.
            let rows: Vec<Axis> = s.spatial.iter().filter(|i| i.var != j.var).cloned().collect();
            let blocks = panel_blocks(o, &rows, p.depth);
            let lanes = o.vector_bytes.max(4) as i64 / 4;
            let given = s.given.and_then(|g| g.columns_for(lanes)).filter(|g| *g <= most_columns(o) as i64);
            let copies = p.tile(o, lanes, false, given) * lanes < p.width && narrow(o, &rows, p.depth);
            let step = blocks.map_or(p.depth, |b| b.0);
            let copied = if copies { step * widest(o, 4) } else { 0 };
            let waiting = blocks.map_or(0, |b| b.1 * (p.width + FEW));
            return (copies || blocks.is_some()).then(|| PrimExpr::i64((copied + waiting) * 4));
        }
    }
    let size = |axes: Vec<&Axis>| size(&axes.into_iter().cloned().collect::<Vec<_>>());
    let rows = size(s.spatial.iter().filter(|i| a.uses(&i.var) && !b.uses(&i.var)).collect());
    let columns = size(s.spatial.iter().filter(|i| !a.uses(&i.var) && b.uses(&i.var)).collect());
    let depth = size(s.reduce.iter().collect());
    let small = |n: Option<i64>, least: i64| n.is_some_and(|n| n < least);
    let work = rows.and_then(|r| Some(r.saturating_mul(columns?).saturating_mul(depth?)));
    if small(rows, least_rows(s, o, &a, &b, &j)) || small(columns, 4) || small(depth, 4) || small(work, LEAST_WORK) {
        return None;
    }
    // Both sides contiguous along the reduction: dot products need no packing, which pays for many rows alone.
    let k = s.reduce.iter().rev().find(|k| k.len() != Some(1))?;
    let along = |e: &PrimExpr| match e.kind() {
        PrimKind::BufferLoad(_, idx) => {
            idx.last().and_then(|i| i.as_var()) == Some(&k.var) && idx.iter().filter(|i| i.uses(&k.var)).count() == 1
        }
        _ => false,
    };
    if along(&a) && along(&b) && (small(rows, DOTS) || small(columns, DOTS)) {
        return None;
    }
    let panel = panel(o, rows, depth, compute_type(d).bytes() as i64);
    let blocks = block(o, rows, depth).zip(rows).map(|(step, rows)| (step + rows) * widest(o, 4) * 4);
    // Unless it is seen here to lie the one way, it may be copied in passing as one that lies the other.
    let packed = |e: &PrimExpr, along: &Var| match e.kind() {
        PrimKind::BufferLoad(b, idx) => b.strides.is_empty() && idx.last().and_then(|i| i.as_var()) == Some(along),
        _ => false,
    };
    let passing = |turned, other| !packed(&b, other) && next::passing(o, rows, depth, columns, turned);
    let passing = rows.filter(|_| passing(true, &j.var) || passing(false, &k.var));
    let passing = passing.map(|rows| passing_bytes(o, rows));
    let blocks = blocks.max(passing);
    let sums = rows.filter(|r| *r <= FEW_ROWS).map(|r| (STRETCH + r * SLIVERS) * widest(o, 4) * 4);
    let blocks = blocks.max(sums);
    let depth = s.reduce.iter().fold(PrimExpr::i64(1), |n, k| n * k.extent.clone());
    let bytes = compute_type(d).bytes() as i64;
    let whole = depth * ((panel * (widest(o, bytes) - FEW) + FEW) * bytes);
    Some(blocks.map_or(whole.clone(), |n| whole.max(n)))
}

/// Rows that are worth tiles of their own, at least: of a right side that is read where it is, which one row reads as fast as memory
/// has it, two; else as many as a copy pays for.
fn least_rows(s: &Stage, o: &SchedOptions, a: &PrimExpr, b: &PrimExpr, j: &Axis) -> i64 {
    let along = match b.kind() {
        PrimKind::BufferLoad(b, idx) => {
            let others = &idx[..idx.len().max(1) - 1];
            let once = idx.last().and_then(|i| i.as_var()) == Some(&j.var) && !others.iter().any(|i| i.uses(&j.var));
            once && b.strides.is_empty() && b.elem_offset.is_none() && b.dtype() == DType::F32
        }
        _ => false,
    };
    let one = s.reduce.iter().filter(|k| k.len() != Some(1)).count() == 1;
    // None is joined with the columns.
    let apart = s.spatial.iter().all(|i| i.var == j.var || a.uses(&i.var) || !b.uses(&i.var));
    let lanes = o.vector_bytes.max(4) as i64 / 4;
    let fills = j.len().is_some_and(|n| n >= 4 * lanes && n % lanes == 0);
    if o.is_wide() && along && one && apart && fills {
        FEW_DIRECT
    } else {
        FEW_PACKED
    }
}

/// Bytes of scratch for so many rows where a right side is copied in passing: two blocks, and the sums that wait.
fn passing_bytes(o: &SchedOptions, rows: i64) -> i64 {
    (2 * LONGEST + rows) * widest(o, 4) * 4
}

/// The same where the right side lies along the reduction; `None` where it is not copied in passing.
pub(in super::super) fn passing_scratch(o: &SchedOptions, rows: i64, depth: i64, columns: i64) -> Option<i64> {
    next::passing(o, Some(rows), Some(depth), Some(columns), true).then(|| passing_bytes(o, rows))
}

/// Elements of the longest packed row of a sliver: the last one takes some columns more.
pub(super) fn widest(o: &SchedOptions, bytes: i64) -> i64 {
    most_columns(o) as i64 * (o.vector_bytes.max(16) as i64 / bytes).max(1) + FEW
}

/// Steps of a block of the reduction, where that goes by blocks.
pub(super) fn block(o: &SchedOptions, rows: Option<i64>, depth: Option<i64>) -> Option<i64> {
    let (rows, depth) = (rows?, depth?);
    let blocks = (depth + BLOCK - 1) / BLOCK;
    (o.is_wide() && depth > DEEP && rows <= MOST_ROWS).then(|| ((depth + blocks - 1) / blocks + 15) / 16 * 16)
}

/// Of a right side in panels, where the reduction goes by blocks: their steps, and the rows whose sums wait meanwhile.
pub(super) fn panel_blocks(o: &SchedOptions, rows: &[Axis], depth: i64) -> Option<(i64, i64)> {
    let mut long = rows.iter().filter(|r| r.len() != Some(1));
    let (row, None) = (long.next()?, long.next()) else { return None };
    let waiting = row.len().filter(|n| *n <= MOST_WAITING).unwrap_or(CHUNK);
    Some((block(o, Some(waiting), Some(depth))?, waiting)).filter(|_| waiting >= LEAST_ROWS)
}

/// Whether rows enough read slivers of a panel that is wider than they are for a copy of each to pay: what they read lies in a
/// few lines of each kind in the first-level cache, and no processor reads it ahead.
pub(super) fn narrow(o: &SchedOptions, rows: &[Axis], depth: i64) -> bool {
    let mut long = rows.iter().filter(|r| r.len() != Some(1));
    let (Some(row), None) = (long.next(), long.next()) else { return false };
    o.vector_bytes == 32 && depth >= NARROW_DEPTH && row.len().is_some_and(|n| n >= NARROW_ROWS)
}

/// Slivers to pack at a time: several when the rows do not stay in a cache until the next sliver.
pub(super) fn panel(o: &SchedOptions, rows: Option<i64>, depth: Option<i64>, bytes: i64) -> i64 {
    match (rows, depth) {
        (Some(r), Some(d)) if r * d * bytes > ROWS_CACHED => {
            (PANEL_BYTES / (d * most_columns(o) as i64 * o.vector_bytes.max(16) as i64).max(1)).clamp(1, 8)
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::edges::tests::{holds, plain};
    use super::super::super::{plan, Item, SchedOptions};

    /// Two to five rows of a computed right side whose columns fill vectors are a tile, which reads it once: as a whole, and by blocks of
    /// the reduction where it does not stay in the second-level cache.
    #[test]
    fn few_rows_read_a_right_side_where_it_is() {
        let tiles = |m, k, n, bytes| {
            let (f, o) = (plain(m, k, n), SchedOptions::vectors(bytes));
            plan(&f, &o).items.iter().any(|i| matches!(i, Item::Stage(s) if super::scratch(s, &o).is_some()))
        };
        for (m, k, n) in [(2, 300, 64), (3, 171, 80), (4, 130, 512), (5, 1100, 128), (2, 520, 272)] {
            assert!(tiles(m, k, n, 64), "{m}x{k}x{n}");
            holds(&plain(m, k, n), (m, k, n));
        }
        // One row, little to do, columns that fill no vectors, and vectors of 128 bits.
        for (m, k, n, bytes) in
            [(1, 520, 272, 64), (4, 64, 64, 64), (4, 300, 70, 64), (4, 520, 48, 64), (4, 520, 64, 16)]
        {
            assert!(!tiles(m, k, n, bytes), "{m}x{k}x{n}");
        }
    }
}
