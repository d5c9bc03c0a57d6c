//! Right sides that are copied in passing: while the tiles of a block of the reduction are computed, they copy what those
//! of the next block read. Only a first, short block is copied before, or by a tile of its own.
//!
//! A copy alone leaves the multipliers idle, since it waits for lines that lie a row apart, or turns squares in registers.
//! Between multiplications it takes loads, stores and shuffles that they leave free.

use super::super::beside::{Ahead, Copies, Next, Piece, LINE};
use super::super::emit::{Emit, Res};
use super::super::nest::Target;
use super::super::poly::Poly;
use super::super::reduce::Tile;
use super::super::stage::Axis;
use super::super::SchedOptions;
use super::{tile_rows, widest, Columns, Part, Product, Right, RIGHT_FAR, UNROLL};
use relax_ir::prim::PrimKind;
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// Rows that share a copy: fewer have too little to do meanwhile, for more a copy is cheap, unless it turns what is far or
/// deep.
const LEAST_ROWS: i64 = 33;
const MOST_ROWS: i64 = 128;
const MOST_ROWS_DEEP: i64 = 256;
const MOST_ROWS_DEEPEST: i64 = 1024;
/// Steps of the shortest reduction, plain and turned.
const LEAST_STEPS: i64 = 512;
const LEAST_STEPS_TURNED: i64 = 256;
/// Steps of those reductions that are the deepest.
const DEEPEST: i64 = 2048;
/// Bytes of a right side that is far; tests multiply less.
const FAR: i64 = if cfg!(test) { RIGHT_FAR / 16 } else { RIGHT_FAR };
/// Steps of the first block, or of a turned one that leaves the others to a second one, at most; and of the longest one: two
/// of these and what tiles read beside them are in reach of a first-level table of pages.
const FIRST: i64 = 64;
const FIRST_OF_TWO: i64 = 128;
pub(super) const LONGEST: i64 = 512;
/// Steps of a turned piece, and of those that share the lines of its rows.
pub(super) const SIDE: i64 = 4;
const SHARING: i64 = 16;
/// A row is asked for so many rows before it is copied.
const BELOW: i64 = 16;

/// Whether a right side that is copied at all is copied in passing; `turned`: it lies along the reduction.
pub(super) fn passing(
    o: &SchedOptions,
    rows: Option<i64>,
    depth: Option<i64>,
    columns: Option<i64>,
    turned: bool,
) -> bool {
    let (Some(rows), Some(depth), Some(columns)) = (rows, depth, columns) else { return false };
    let far = depth * columns * 4 >= FAR;
    let worth = match turned {
        true => {
            let most = match far || depth >= LEAST_STEPS {
                true if far && depth >= DEEPEST => MOST_ROWS_DEEPEST,
                true => MOST_ROWS_DEEP,
                false => MOST_ROWS,
            };
            o.vector_bytes == 64 && rows <= most && depth >= LEAST_STEPS_TURNED && depth % SHARING == 0
        }
        false => rows <= MOST_ROWS && depth >= LEAST_STEPS && far,
    };
    o.is_wide() && rows >= LEAST_ROWS && worth
}

/// A block of the reduction.
#[derive(Clone)]
pub(super) struct Pass {
    /// Where its rows are in scratch memory, and whether they are there yet.
    pub place: PrimExpr,
    pub copied: bool,
    /// Where those of the next one are to be, and its steps.
    next: Option<(PrimExpr, i64)>,
}

/// Steps of the blocks of the reduction. So many tiles copy; `pieces` of a copy are [`SIDE`] steps.
fn blocks(depth: i64, tiles: i64, pieces: i64, turned: bool) -> Vec<i64> {
    // Pieces of a round by which blocks grow by half.
    let each = (3 * pieces + 2 * tiles - 1) / (2 * tiles);
    // Sums wait once less where two blocks do.
    let two = (depth * pieces / (pieces + tiles * each) + SHARING) / SHARING * SHARING;
    let first = if turned && two <= FIRST_OF_TWO { two } else { FIRST };
    let mut all = vec![first.min(depth)];
    let mut left = depth - all[0];
    while left > 0 {
        let most = (all[all.len() - 1] * tiles * each / pieces / SHARING * SHARING).clamp(SHARING, LONGEST);
        // Blocks of nearly the same size where that is all that is left.
        let count = (left + most - 1) / most;
        let even = ((left + count - 1) / count + SHARING - 1) / SHARING * SHARING;
        let next = if most < LONGEST && count > 2 { most } else { even.min(most) };
        all.push(next.min(left));
        left -= next.min(left);
    }
    all
}

/// Columns in groups that are turned together.
fn groups(columns: i64) -> i64 {
    (columns + SIDE - 1) / SIDE
}

/// `n / by` of a small number, without a division.
fn quotient(n: PrimExpr, by: i64) -> PrimExpr {
    if by & (by - 1) == 0 {
        return n.floor_div(by);
    }
    let one = 1i64 << 32;
    (n * (one / by + 1)).floor_div(one)
}

impl Product<'_> {
    /// A sliver of so many columns in rows of so many elements. Blocks take turns with two places in scratch memory, behind which the sums of the rows wait.
    pub(super) fn in_passing(
        &self,
        e: &mut Emit,
        scratch: &Var,
        c: &Columns,
        (width, valid): (i64, i64),
        lanes: u16,
        part: &Part,
    ) -> Res<()> {
        let ([k], [r]) = (self.n.reduce.as_slice(), self.rows.as_slice()) else { return Err(e.internal("axes")) };
        let (Some(depth), Some(rows)) = (k.len(), r.len()) else { return Err(e.internal("sizes")) };
        let vectors = part.count + part.last.is_some() as i64;
        let tiles = (rows / tile_rows(self.o.vector_bytes, vectors as u16) - 1).max(1);
        let sizes = match self.turning {
            true => blocks(depth, tiles, groups(valid), true),
            false => blocks(depth, tiles, SIDE, false),
        };
        let room = LONGEST * widest(self.o, 4);
        let place = |i: PrimExpr| i.floor_mod(2) * room;
        let at = (c.j.var.expr() - c.start.expr()) + r.var.expr() * width + 2 * room;
        let waiting = PrimExpr::load_ptr(scratch.expr(), at.clone(), DType::F32);
        let acc = &self.n.accs[0].var;
        let away = Target { ptr: scratch.clone(), offset: at, dtype: DType::F32, value: acc.expr() };
        let one = |e: &mut Emit, i: PrimExpr, from: PrimExpr, steps: i64, next: Option<i64>, first: bool| {
            let map = HashMap::from([(k.var.clone(), from.clone() + k.var.expr())]);
            let mut n = self.n.clone();
            n.map_exprs(&mut |x| x.substitute(&map));
            n.reduce = vec![Axis { var: k.var.clone(), extent: PrimExpr::i64(steps) }];
            if !first {
                n.accs[0].init = waiting.clone();
            }
            let mut part = part.clone();
            if next.is_some() {
                // Sums of columns that there are not wait beside the others.
                n.outs = vec![away.clone()];
                part.last = part.last.map(|(lanes, _)| (lanes, lanes));
            }
            let next = next.map(|steps| (place(i.clone() + 1), steps));
            let pass = Some(Pass { place: place(i), copied: !first, next });
            let with = self.with(&n, self.a.substitute(&map), self.b.substitute(&map));
            let p = Product { block: None, from, pass, ..with };
            p.rows(e, c, width, valid, lanes, &[part])
        };
        let (mut i, mut from) = (0, 0);
        while i < sizes.len() {
            let (size, next) = (sizes[i], sizes.get(i + 1).copied());
            let same = |j: &usize| sizes[*j] == size && sizes.get(j + 1).copied() == next;
            let count = if i == 0 { 1 } else { (i..sizes.len()).take_while(same).count() };
            let (low, high) = (i as i64, (i + count) as i64);
            if count == 1 {
                one(e, PrimExpr::i64(low), PrimExpr::i64(from), size, next, i == 0)?;
            } else {
                let number = Var::new("block", DType::I64);
                e.ranges.add_loop(&number, Poly::constant(low), Poly::constant(high - low));
                e.for_loop(&number, PrimExpr::i64(low), PrimExpr::i64(high), 1, |e| {
                    let from = e.hoist((number.expr() - low) * size + from);
                    one(e, number.expr(), from, size, next, false)
                })?;
            }
            i += count;
            from += size * (high - low);
        }
        Ok(())
    }

    /// What the tiles of `r` copy for the next block.
    pub(super) fn next(
        &self,
        e: &Emit,
        c: &Columns,
        map: &HashMap<Var, PrimExpr>,
        (width, valid): (i64, i64),
        r: &Axis,
        tile: &Tile,
    ) -> Option<Next> {
        let (place, steps) = self.pass.as_ref()?.next.clone()?;
        let Right::Scratch(scratch) = self.right else { return None };
        let ([k], PrimKind::Load { ptr, offset }) = (self.n.reduce.as_slice(), self.b.kind()) else { return None };
        let (len, height) = (r.len()?, tile.rows.first()?.1);
        let (tiles, rounds) = ((len / height).max(1), k.len()? / UNROLL);
        let number = Var::new("piece", DType::I64);
        // The value of this block begins at its first step.
        let there = |k: PrimExpr| k + rounds * UNROLL;
        let size = self.b.dtype().bytes() as i64;
        let address = |step: PrimExpr, column: PrimExpr| {
            let map = HashMap::from([(k.var.clone(), there(step)), (c.j.var.clone(), column)]);
            ptr.clone().ptr_add(Poly::of(&offset.substitute(&map), &e.ranges).scale(size).expr())
        };
        let next = |count: i64, piece: Piece, asked: (PrimExpr, Vec<i64>)| {
            let each = (count + tiles * rounds - 1) / (tiles * rounds);
            let first = r.var.expr().floor_div(height) * (rounds * each);
            let rows = (count + rounds * each - 1) / (rounds * each) * height;
            Next { piece, number: number.clone(), first, each, last: count - 1, rows, asked }
        };
        if self.turning {
            // All of a line of four columns, then the next four: columns may have the same places in the first-level cache.
            let groups = groups(valid);
            let group = number.expr().floor_div(SHARING / SIDE);
            let line = quotient(group.clone(), groups);
            let (group, within) = ((group - line.clone() * groups) * SIDE, number.expr().floor_mod(SHARING / SIDE));
            // The last columns go with some of those before them.
            let group = if valid % SIDE == 0 { group } else { group.min(PrimExpr::i64(valid - SIDE)) };
            let step = line.clone() * SHARING + within.clone() * SIDE;
            let lane = Var::new("lane", DType::I64);
            let column = |i: i64| {
                let column = c.start.expr() + group.clone() + i;
                let map = [(k.var.clone(), there(step.clone() + lane.expr())), (c.j.var.clone(), column)];
                self.b.substitute(&HashMap::from(map))
            };
            let rows = (0..SIDE).map(column).collect();
            let offset = place + step.clone() * width + group.clone();
            let square = Piece::Square { lane: lane.clone(), rows, ptr: scratch.clone(), offset, apart: width };
            // The next line of one of the columns.
            let asked = address(line * SHARING + SHARING, c.start.expr() + group + within);
            return Some(next(steps / SIDE * groups, square, (asked, vec![0])));
        }
        let value = self.b.substitute(map).substitute(&HashMap::from([(k.var.clone(), there(number.expr()))]));
        let asked = address(number.expr() + BELOW, c.start.expr());
        let offset = place + number.expr() * width + c.lane.expr();
        let row = Piece::Row(Copies { value, ptr: scratch.clone(), offset });
        Some(next(steps, row, (asked, (0..width * size).step_by(LINE as usize).collect())))
    }

    /// What the tiles of the last block ask for: the first rows of the next sliver.
    pub(super) fn next_sliver(&self, e: &Emit, c: &Columns, width: i64) -> Option<Ahead> {
        self.pass.as_ref().filter(|p| p.next.is_none() && !c.rest)?;
        let ([k], PrimKind::Load { ptr, offset }) = (self.n.reduce.as_slice(), self.b.kind()) else { return None };
        let (size, rounds) = (self.b.dtype().bytes() as i64, k.len()? / UNROLL);
        let map = HashMap::from([(c.j.var.clone(), c.start.expr() + width)]);
        let offset = Poly::of(&offset.substitute(&map), &e.ranges);
        let (row, first) = offset.split(&k.var)?;
        let first = first.sub(&Poly::of(&self.from, &e.ranges).mul(&row));
        let ptr = ptr.clone().ptr_add(first.scale(size).expr());
        if self.turning {
            // The first lines of its columns, of one in each round.
            let step = first.split(&c.start)?.0.as_const()? * size;
            let lines = (0..(SIDE * width / rounds.max(1)).clamp(1, SIDE)).map(|l| l * LINE).collect();
            return Some(Ahead { ptr, lines, step, turns: (1, 0) });
        }
        // A part of a row in each round.
        let row = row.as_const()? * size;
        let lines = (width * size + LINE - 1) / LINE;
        let turns = [4, 2].into_iter().find(|t| lines % t == 0 && rounds >= FIRST * t).unwrap_or(1);
        let each = lines / turns;
        let lines = (0..each).map(|l| l * LINE).collect();
        Some(Ahead { ptr, lines, step: row / turns, turns: (turns, each * LINE) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_all_of_the_reduction() {
        for depth in [256, 272, 512, 768, 1000, 1024, 1040, 3072, 4096, 4099] {
            for (tiles, pieces) in [(4, 4), (9, 4), (20, 4), (4, 16), (9, 12), (41, 16)] {
                let all = blocks(depth, tiles, pieces, pieces > 4);
                assert_eq!(all.iter().sum::<i64>(), depth);
                assert!(all.iter().all(|n| (1..=LONGEST).contains(n)));
                // The last one alone may end within a line.
                assert!(all[..all.len() - 1].iter().all(|n| n % SHARING == 0), "{all:?}");
                assert!(all.len() as i64 <= 5 + depth / (LONGEST / 2), "{all:?}");
            }
        }
        assert_eq!(blocks(1024, 20, 4, false), [64, 320, 320, 320]);
        assert_eq!(blocks(1024, 9, 16, true), [64, 96, 160, 256, 224, 224]);
        assert_eq!(blocks(256, 15, 16, true), [96, 160]);
    }

    #[test]
    fn quotients_are_exact() {
        for by in [4, 9, 12, 16, 18, 20] {
            for n in 0..1i64 << 16 {
                assert_eq!(quotient(PrimExpr::i64(n), by).as_int(), Some(n / by));
            }
        }
    }
}
