//! What the tiles of a product ask for while they are computed: right sides that no cache nearby holds.

use super::super::beside::{Ahead, LINE};
use super::super::emit::Emit;
use super::super::poly::Poly;
use super::super::stage::Axis;
use super::{Columns, Product, Right, UNROLL};
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::{PrimExpr, Var};
use std::collections::HashMap;

/// Constant right sides of at least so many bytes are asked for ahead.
const AHEAD_FROM: i64 = 128 << 10;
/// Tiles that ask for all of a panel, where their count is open, and where there is one: it reads each panel once, in order, and all of
/// the next one would displace what it reads (an eighth is where the processor reads ahead by itself).
const FEW_TILES: i64 = 8;

/// Right sides of at least so many bytes that are no constants are asked for ahead, by the tiles of up to so many.
pub(super) const RIGHT_FAR: i64 = 4 << 20;
const MOST_ASKING: i64 = 96;

/// Lines of a row that are not worth asking for.
const SHORT: i64 = 4;

/// The tile that copies a sliver of them asks for the rows that are so many further down.
const BELOW: i64 = 32;

/// Sides of at least so many bytes that are read element by element are asked for ahead.
pub(in super::super) const LEFT_FAR: i64 = 1 << 20;

/// Rows in tiles of so many, whose innermost loop writes out so many steps.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub r: &'a Axis,
    pub height: i64,
    pub unroll: i64,
}

impl Product<'_> {
    /// What tiles of `height` rows ask for while they are computed: each its part of the panel behind this one. The first
    /// tile over a panel would wait for memory otherwise, at a fraction of the rate of those that follow; asked for all
    /// at once, the lines would keep the values of this panel waiting.
    pub(super) fn ahead(&self, e: &mut Emit, c: &Columns, width: i64, rows: Option<Rows>) -> Option<Ahead> {
        let Right::Panels(ptr, p, stored) = &self.right else { return None };
        let [k] = self.n.reduce.as_slice() else { return None };
        // One row reads everything once, in order.
        let Rows { r, height, unroll } = rows.filter(|rows| rows.r.len() != Some(1))?;
        let rounds = k.len()? / unroll;
        let (whole, size) = (width == p.width, stored.bytes() as i64);
        let wide = self.o.is_wide() && self.o.ahead && (whole || self.narrow.is_some());
        if !wide || c.rest || p.elements() * size < AHEAD_FROM || rounds == 0 {
            return None;
        }
        let (panel, height) = (k.len()? * width * size, height.max(1));
        let tiles = r.len().map(|n| n / height).filter(|n| *n > 1).unwrap_or(FEW_TILES);
        let lines = (panel / LINE + tiles * rounds - 1) / (tiles * rounds);
        // Rows of tiles that find everything asked for begin behind it.
        let at = (r.var.expr() * (rounds * lines * LINE / height)).min(PrimExpr::i64(panel));
        let from = Poly::of(&self.from, &e.ranges);
        let this = p.at(e, &c.start, false, &from, width);
        // The next block of the reduction, or the first of the next panel: each follows this one in memory. Narrow slivers share
        // the same block of the next panel.
        let next = match whole {
            true => this.add(&Poly::constant(k.len()? * width)),
            false => {
                let lane = e.hoist(PrimExpr::raw_binary(BinOp::FloorMod, c.start.expr(), PrimExpr::i64(p.width)));
                let lane = lane.as_int().map_or_else(|| Poly::atom(lane.clone()), Poly::constant);
                this.add(&Poly::constant(p.depth * p.width)).add(&lane.scale(k.len()? - 1))
            }
        };
        let ptr = ptr.expr().ptr_add(next.scale(size).expr()).ptr_add(at);
        Some(Ahead { ptr, lines: (0..lines).map(|l| l * LINE).collect(), step: lines * LINE, turns: (1, 0) })
    }

    /// The same of a right side that is read where it is, row by row of `width` columns: the lines of the next sliver. No
    /// processor finds them by itself, since each is a row of the right side away from the last.
    pub(super) fn beside(&self, e: &mut Emit, c: &Columns, width: i64, rows: Option<Rows>) -> Option<Ahead> {
        let ([k], PrimKind::Load { ptr, offset }) = (self.n.reduce.as_slice(), self.b.kind()) else { return None };
        let Rows { r, height, unroll } = rows.filter(|_| self.far && !c.rest)?;
        let (tiles, rounds) = (r.len()? / height.max(1), k.len()? / unroll);
        if tiles == 0 || tiles > MOST_ASKING || rounds == 0 {
            return None;
        }
        let size = self.b.dtype().bytes() as i64;
        let first = offset.substitute(&HashMap::from([(c.j.var.clone(), c.start.expr())]));
        let (row, first) = Poly::of(&first, &e.ranges).split(&k.var)?;
        let (row, first, bytes) = (row.as_const()? * size, first.scale(size), width * size);
        // So many tiles share the rows, and so many of these groups the lines of a row.
        let sharing = if tiles < unroll { tiles } else { unroll };
        let lines = (bytes + LINE - 1) / LINE;
        let groups = (tiles / sharing).clamp(1, lines);
        let (rows, lines) = ((unroll + sharing - 1) / sharing, (lines + groups - 1) / groups);
        let tile = r.var.expr().floor_div(height);
        let start = tile.clone().floor_mod(sharing) * (rounds * rows * row);
        let group = tile.floor_div(sharing) * (lines * LINE);
        let ptr = ptr.clone().ptr_add(first.expr()).ptr_add(start + group + bytes);
        let lines = (0..rows).flat_map(|r| (0..lines).map(move |l| r * row + l * LINE)).collect();
        Some(Ahead { ptr, lines, step: rows * row, turns: (1, 0) })
    }

    /// The same of the tile that copies a sliver for those that follow: the lines of rows further down in the same sliver.
    pub(super) fn below(&self, e: &mut Emit, c: &Columns, width: i64) -> Option<Ahead> {
        let ([k], PrimKind::Load { ptr, offset }) = (self.n.reduce.as_slice(), self.b.kind()) else { return None };
        if !self.far || c.rest || k.len()? < UNROLL {
            return None;
        }
        let size = self.b.dtype().bytes() as i64;
        let first = offset.substitute(&HashMap::from([(c.j.var.clone(), c.start.expr())]));
        let (row, first) = Poly::of(&first, &e.ranges).split(&k.var)?;
        let row = row.as_const()? * size;
        let ptr = ptr.clone().ptr_add(first.scale(size).expr()).ptr_add(BELOW * row);
        let lines =
            (0..UNROLL).flat_map(|r| (0..width * size).step_by(LINE as usize).map(move |l| r * row + l)).collect();
        Some(Ahead { ptr, lines, step: UNROLL * row, turns: (1, 0) })
    }

    /// The same of a left side: the rows of the next tile.
    pub(super) fn left(&self, e: &Emit, rows: Option<Rows>) -> Option<Ahead> {
        let [k] = self.n.reduce.as_slice() else { return None };
        let rows = rows.filter(|_| self.o.is_wide())?;
        let far = |bytes: i64| self.rows.iter().try_fold(bytes, |n, r| n.checked_mul(r.len()?)) >= Some(LEFT_FAR);
        let (ahead, row) = rows_ahead(e, &self.a, k, (&rows.r.var, rows.height), rows.unroll)?;
        (rows.r.len()? > rows.height && far(row)).then_some(ahead)
    }
}

/// What asks for the rows `r` of the next tile of `height` of them, and the bytes from one to the next, of a side that lies along the
/// reduction. Each row, or each block of the reduction in it, begins in another page, where no processor reads ahead before
/// some lines of it were read: a tile would wait for its first steps.
pub(in super::super) fn rows_ahead(
    e: &Emit,
    side: &PrimExpr,
    k: &Axis,
    (r, height): (&Var, i64),
    unroll: i64,
) -> Option<(Ahead, i64)> {
    let PrimKind::Load { ptr, offset } = side.kind() else { return None };
    let size = side.dtype().bytes() as i64;
    // Rounds that read the same line of a row: each asks for that of other rows.
    let turns = LINE / size / unroll;
    let offset = Poly::of(offset, &e.ranges);
    let along = offset.split(&k.var)?.0.as_const() == Some(1);
    if !along || turns < 1 || k.len()? < SHORT * turns * unroll {
        return None;
    }
    let row = offset.split(r)?.0.as_const()? * size;
    let map = HashMap::from([(k.var.clone(), PrimExpr::i64(0)), (r.clone(), r.expr() + height)]);
    let first = Poly::of(&offset.expr().substitute(&map), &e.ranges).scale(size).expr();
    let each = (height + turns - 1) / turns;
    let lines = (0..each).map(|i| i * row).collect();
    Some((Ahead { ptr: ptr.clone().ptr_add(first), lines, step: LINE / turns, turns: (turns, each * row) }, row))
}
