//! Products of few rows whose sides both lie along the reduction (`a[i, k] * b[j, k]`): dot products, with the lanes of the
//! vectors along the reduction.
//!
//! The reduction goes by blocks, each of them for many columns of `b`, of which a few stay in the first-level cache for all
//! rows, as does that block of `a`: it is copied, vector after vector of all rows, since rows that lie multiples of 4 KiB apart
//! would take each other's place there. Accumulators stay in registers for a block, and their lanes are added by trees,
//! those of two rows at once; these sums wait in memory for those of the next block.

use super::beside::{Ahead, LINE};
use super::contract::{factors, sides, LEAST_WORK, LEFT_FAR};
use super::edges;
use super::emit::{Emit, Lane, Res};
use super::map::point;
use super::mirrored::Lines;
use super::nest::Nest;
use super::poly::Poly;
use super::stage::Stage;
use super::transpose::{starts, totals, weave};
use super::SchedOptions;
use relax_ir::prim::PrimKind;
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;
use std::ops::Range;

/// Rows: fewer of them wait for memory, more are the lanes of vectors, unless they fill these badly (see [`many`]).
const ROWS: Range<i64> = 4..16;
const MOST_ROWS: i64 = 48;
/// Steps of the shortest reduction of that many.
const MANY_STEPS: i64 = 512;
/// Rows at least where the reduction goes by blocks: a right side is waited for by fewer of them.
const DEEP_ROWS: i64 = 5;
/// Lanes of an accumulator.
const LANES: i64 = 16;
/// Steps of the shortest reduction: adding the lanes of an accumulator takes the time of one or two of its multiplications.
const LEAST_STEPS: i64 = 128;
/// Columns of a tile and its rows, but for one more.
const TILE: (i64, i64) = (8, 2);
/// The same where columns lie multiples of so many elements apart: they have the same places in the first-level cache, of
/// which there are eight.
const NARROW: (i64, i64) = (4, 4);
const SAME_PLACE: i64 = 1024;
/// Rows, at most, of a tile of half of these columns, where the reduction goes by blocks: such a tile alone reads its columns.
const TALL: i64 = 8;
/// Vectors of the sums of a tile, at most.
const PARTS: i64 = 2;
/// Columns of the blocks that threads share, and of those that copy the left side by blocks of the reduction; tests have
/// fewer.
const BLOCK: i64 = 96;
const LONG_BLOCK: i64 = if cfg!(test) { 48 } else { 1024 };
/// Elements of both sides in a block of the reduction, and in one of tall tiles. The longer it is, the more seldom lanes are
/// added; of half as much again, what columns displace of `a` is read from the second-level cache for each of them.
const CACHED: i64 = 6144;
const CACHED_TALL: i64 = 7168;
/// Steps of an accumulator in a round of the innermost loop.
const UNROLL: i64 = 2;

/// Whether so many rows, which could be the lanes of vectors, are dot products: one vector of them beside another from memory in each
/// step keeps the multipliers waiting, and a tenth of the lanes of several is what adding those of dot products takes. Enough
/// columns share what copying the left side takes.
fn many(rows: i64, columns: i64, depth: i64) -> bool {
    let filled = (rows + LANES - 1) / LANES * LANES;
    // Those behind the others are dot products of their own.
    let edged = rows > 2 * LANES && edges::split(rows).is_some_and(|(_, count)| count > 1);
    let fills = rows > LANES && rows * 10 > filled * 9 || edged;
    (ROWS.end..MOST_ROWS).contains(&rows) && !fills && depth >= MANY_STEPS && columns >= 3 * filled
}

/// Rows in so many tiles.
fn tiles(rows: i64, count: i64) -> Vec<Range<i64>> {
    (0..count).map(|t| t * rows / count..(t + 1) * rows / count).collect()
}

/// Steps of blocks of at most so many.
fn even(depth: i64, most: i64) -> i64 {
    let blocks = (depth + most - 1) / most;
    ((depth + blocks - 1) / blocks + LANES - 1) / LANES * LANES
}

/// Such a product.
pub(super) struct Dots {
    l: Lines,
    /// Columns whose sums are stored together, those of a tile, and the rows of each.
    width: i64,
    across: i64,
    tiles: Vec<Range<i64>>,
    /// The other rows have just read the right side.
    near: bool,
    /// Steps of a block of the reduction, and columns of the blocks that go by these.
    steps: i64,
    block: i64,
    /// Each block of columns copies the left side, by these steps.
    by_steps: bool,
}

impl Dots {
    /// `None` for what is better computed otherwise.
    pub fn of(s: &Stage, o: &SchedOptions) -> Option<Dots> {
        let mut d = Dots { near: false, ..Dots::last_rows(s, o, BLOCK)? };
        let deep = d.l.depth > CACHED / (d.l.rows + d.width);
        if !ROWS.contains(&d.l.rows) && !many(d.l.rows, d.l.columns, d.l.depth) || deep && d.l.rows < DEEP_ROWS {
            return None;
        }
        if deep {
            (d.width, d.across, d.tiles) = (NARROW.0, NARROW.0 / 2, tiles(d.l.rows, (d.l.rows + TALL - 1) / TALL));
            d.steps = even(d.l.depth, CACHED_TALL / (d.l.rows + d.across));
            d.by_steps = !o.threads;
            d.block = if d.by_steps { LONG_BLOCK } else { BLOCK };
        }
        Some(d)
    }

    /// The last rows of a product whose others are the lanes of vectors and go by so many columns: `None` for more of them, or
    /// less to do.
    pub fn last_rows(s: &Stage, o: &SchedOptions, block: i64) -> Option<Dots> {
        let l = Lines::of(s).filter(|_| o.vector_bytes as i64 == LANES * 4)?;
        let zero = s.accs.iter().all(|a| matches!(a.init.kind(), PrimKind::Float(v) if v.0 == 0.0));
        let (width, height) = if l.depth % SAME_PLACE == 0 { NARROW } else { TILE };
        let tiles = tiles(l.rows, (l.rows + height - 2) / height);
        let size = l.columns >= LANES && l.depth >= LEAST_STEPS && l.rows * l.columns * l.depth >= LEAST_WORK;
        let fits = l.rows < MOST_ROWS && l.depth % LANES == 0;
        let steps = even(l.depth, CACHED / (l.rows + width));
        let d = Dots { l, width, across: width, tiles, near: true, steps, block, by_steps: false };
        (zero && size && fits).then_some(d)
    }

    /// Bytes of scratch memory: the copy of `a`, then the sums of some columns.
    pub fn scratch(&self) -> i64 {
        (self.copied() + self.groups(self.l.columns.min(self.block + LANES)) * self.waiting()) * 4
    }

    /// Elements of the copy.
    fn copied(&self) -> i64 {
        self.l.rows * if self.by_steps { self.steps } else { self.l.depth }
    }

    /// Groups of columns whose sums wait, of so many.
    fn groups(&self, columns: i64) -> i64 {
        match self.steps < self.l.depth {
            true => (columns + self.width - 1) / self.width,
            false => 1,
        }
    }

    /// Elements of the sums of one.
    fn waiting(&self) -> i64 {
        self.width / self.across * self.tiles.len() as i64 * PARTS * LANES
    }

    /// The product as its nest has it.
    pub fn product<'a>(&'a self, e: &Emit, n: &'a Nest, scratch: &'a Var) -> Res<Product<'a>> {
        let [acc] = n.accs.as_slice() else { return Err(e.internal("accumulators")) };
        let sides = factors(&acc.update, &acc.var).and_then(|(x, y)| sides(x, y, &self.l.j.var));
        let Some((a, b)) = sides else { return Err(e.internal("factors")) };
        Ok(Product { d: self, l: &self.l, n, a, b, scratch })
    }

    /// Emits the product.
    pub fn emit(&self, e: &mut Emit, n: &Nest, scratch: &Var) -> Res<()> {
        let p = self.product(e, n, scratch)?;
        if !self.by_steps {
            p.copy(e)?;
        }
        // Too few columns for a vector go with the block before them.
        let mut blocks = self.l.columns / self.block;
        if blocks > 0 && (1..TILE.0).contains(&(self.l.columns - blocks * self.block)) {
            blocks -= 1;
        }
        let (first, left) = (Var::new("column", DType::I64), self.l.columns - blocks * self.block);
        e.ranges.add_loop(&first, Poly::default(), Poly::constant(self.l.columns));
        let end = blocks * self.block + left.min(1);
        e.contract = true;
        let r = e.for_loop(&first, PrimExpr::i64(0), PrimExpr::i64(end), self.block, |e| {
            if blocks == 0 || left == 0 {
                return p.block(e, &first, if blocks == 0 { left } else { self.block });
            }
            let full = first.expr().lt(PrimExpr::i64(blocks * self.block));
            e.if_then(full, |e| p.block(e, &first, self.block), |e| p.block(e, &first, left))
        });
        e.contract = false;
        r
    }
}

/// Steps of the reduction: the first one, and how many.
type Steps<'a> = (&'a PrimExpr, i64);

pub(super) struct Product<'a> {
    d: &'a Dots,
    l: &'a Lines,
    n: &'a Nest,
    a: PrimExpr,
    b: PrimExpr,
    scratch: &'a Var,
}

impl Product<'_> {
    /// Copies `a`: one vector of each row, then the next one of each.
    pub fn copy(&self, e: &mut Emit) -> Res<()> {
        self.some(e, (&PrimExpr::i64(0), self.l.depth))
    }

    /// Copies some steps of it.
    fn some(&self, e: &mut Emit, (from, steps): Steps) -> Res<()> {
        let (l, lane) = (self.l, Var::new("lane", DType::I64));
        e.for_loop(&l.k.var, PrimExpr::i64(0), PrimExpr::i64(steps), LANES, |e| {
            for r in 0..l.rows {
                let map = HashMap::from([
                    (l.i.var.clone(), PrimExpr::i64(r)),
                    (l.k.var.clone(), from.clone() + l.k.var.expr() + lane.expr()),
                ]);
                e.start_lane(&lane, false);
                let x = e.value(&self.a.substitute(&map), &Lane::of(&lane, LANES as u16));
                e.end_lane(&lane);
                let at = Poly::var(&l.k.var).scale(l.rows).add(&Poly::constant(r * LANES));
                e.store(self.scratch, &at, DType::F32, x?)?;
            }
            Ok(())
        })
    }

    /// `count` columns from `first` on: some steps of the reduction for all of them, then the next ones.
    pub fn block(&self, e: &mut Emit, first: &Var, count: i64) -> Res<()> {
        let (depth, steps) = (self.l.depth, self.d.steps);
        let last = (depth - 1) / steps * steps;
        let all = |e: &mut Emit, from: PrimExpr, steps: i64| {
            if self.d.by_steps {
                self.some(e, (&from, steps))?;
            }
            starts(e, &PrimExpr::i64(count), self.d.width, &mut |e, at| {
                self.steps(e, (first, count), &at, (&from, steps))
            })
        };
        if last > 0 {
            all(e, PrimExpr::i64(0), steps)?;
        }
        let from = Var::new("from", DType::I64);
        e.ranges.add_loop(&from, Poly::constant(steps), Poly::constant((last - steps).max(0)));
        e.for_loop(&from, PrimExpr::i64(steps), PrimExpr::i64(last), steps, |e| all(e, from.expr(), steps))?;
        all(e, PrimExpr::i64(last), depth - last)
    }

    /// Some steps of the reduction for the columns of a block from the one `at` on, beside the sums of those before.
    fn steps(&self, e: &mut Emit, block @ (start, count): (&Var, i64), at: &PrimExpr, (from, steps): Steps) -> Res<()> {
        let last = from.as_int().is_some_and(|from| from + steps == self.l.depth);
        let (across, tiles) = (self.d.across, self.d.tiles.len() as i64);
        // The last columns reach back, but their sums wait by themselves.
        let number = match self.d.groups(count) {
            1 => PrimExpr::i64(0),
            _ => (at.clone() + (self.d.width - 1)).floor_div(self.d.width),
        };
        let place = e.bind("sums", number * self.d.waiting() + self.d.copied());
        let parts = self.d.width / across;
        for part in 0..parts {
            let first = at.clone() + part * across;
            let next = self.next(e, block, first.clone() + across, (from, steps), last);
            let column = e.bind("column", start.expr() + first);
            for tile in 0..tiles {
                // The columns that this tile asks for.
                let asked = (tile * across / tiles, (tile + 1) * across / tiles);
                let ahead = next.as_ref().and_then(|(column, k)| self.ahead(e, column.clone(), k.clone(), asked));
                let sums = place.clone() + (part * tiles + tile) * (PARTS * LANES);
                self.tile(e, tile, &column, &sums, (from, steps), ahead)?;
                if last && parts == 1 {
                    self.finish(e, tile, &column, &place)?;
                }
            }
        }
        if last && parts > 1 {
            let column = e.bind("column", start.expr() + at.clone());
            for tile in 0..tiles {
                self.finish(e, tile, &column, &place)?;
            }
        }
        Ok(())
    }

    /// What the tiles before the column `behind` of a block ask for: a column and a step. Behind the last columns of it come
    /// the next steps of the first ones, and behind the `last` steps the next block.
    fn next(
        &self,
        e: &mut Emit,
        (first, count): (&Var, i64),
        behind: PrimExpr,
        (from, steps): Steps,
        last: bool,
    ) -> Option<(PrimExpr, PrimExpr)> {
        if self.d.near || self.l.columns * self.row(e)? < LEFT_FAR {
            return None;
        }
        let within = behind.clone().lt(PrimExpr::i64(count));
        let (column, k) = match last {
            true => (behind, PrimExpr::i64(0)),
            false => (within.clone().select(behind, PrimExpr::i64(0)), from.clone() + steps),
        };
        let k = within.select(from.clone(), k);
        Some((first.expr() + e.bind("next", column), e.bind("next", k)))
    }

    /// The sums of a tile, with those of the steps before where there are any: as many accumulators, whose
    /// lanes are added by a tree.
    fn tile(
        &self,
        e: &mut Emit,
        tile: i64,
        first: &PrimExpr,
        place: &PrimExpr,
        (from, steps): Steps,
        ahead: Option<Ahead>,
    ) -> Res<()> {
        let (l, d) = (self.l, DType::F32.with_lanes(LANES as u16));
        let (lane, step) = (Var::new("lane", DType::I64), Var::new("step", DType::I64));
        let acc = &self.n.accs[0].var;
        let rows = self.d.tiles[tile as usize].clone();
        let (start, height) = (rows.start, rows.end - rows.start);
        let zero = PrimExpr::f32(0.0).broadcast(LANES as u16);
        let across = self.d.across;
        let accs: Vec<Var> = (0..height * across).map(|_| e.local("acc", zero.clone())).collect();
        // Column by column: the vectors of the rows, of which there are fewer, stay in registers.
        let points = (0..across).flat_map(|c| (0..height).map(move |r| (r, c)));
        let points: Vec<_> = points.map(|(r, c)| (start + r, c, &accs[(r * across + c) as usize])).collect();
        let ahead = ahead.map(|a| (e.hoist(a.ptr.clone()), a));
        let copied = if self.d.by_steps { PrimExpr::i64(0) } else { from.clone() };
        let round = |e: &mut Emit, unroll: i64| {
            if let (Some((ptr, ahead)), UNROLL) = (&ahead, unroll) {
                ahead.round(e, ptr, &step, UNROLL);
            }
            for u in 0..unroll {
                e.start_lane(&lane, false);
                for (r, c, local) in &points {
                    let k = (step.expr() + u) * LANES;
                    let a = (copied.clone() + k.clone()) * l.rows + r * LANES + lane.expr();
                    let a = PrimExpr::load_ptr(self.scratch.expr(), a, DType::F32);
                    let k = from.clone() + k + lane.expr();
                    let map = [(l.j.var.clone(), first.clone() + *c), (l.k.var.clone(), k)];
                    let b = self.b.substitute(&HashMap::from(map));
                    e.set_value(acc, local.expr());
                    let sum = e.value(&(acc.expr() + a * b), &Lane::of(&lane, LANES as u16))?;
                    e.assign(local, sum);
                }
                e.end_lane(&lane);
            }
            Ok(())
        };
        let (steps, whole) = (steps / LANES, steps / LANES / UNROLL * UNROLL);
        e.ranges.add_loop(&step, Poly::default(), Poly::constant(steps));
        e.for_loop(&step, PrimExpr::i64(0), PrimExpr::i64(whole), UNROLL, |e| round(e, UNROLL))?;
        e.for_loop(&step, PrimExpr::i64(whole), PrimExpr::i64(steps), 1, |e| round(e, 1))?;
        let accs: Vec<PrimExpr> = accs.iter().map(Var::expr).collect();
        for (part, vectors) in accs.chunks(LANES as usize).enumerate() {
            let at = place.clone() + part as i64 * LANES;
            let mut sums = totals(e, vectors);
            if !from.is_int(0) {
                sums = sums + PrimExpr::load_ptr(self.scratch.expr(), at.clone(), d);
            }
            e.store(self.scratch, &Poly::of(&at, &e.ranges), DType::F32, sums)?;
        }
        Ok(())
    }

    /// What a tile asks for: the columns `low..high` from `column` on, and steps of them from `k` on. Each of them begins in
    /// another page, where no processor reads ahead by itself.
    fn ahead(&self, e: &Emit, column: PrimExpr, k: PrimExpr, (low, high): (i64, i64)) -> Option<Ahead> {
        let PrimKind::Load { ptr, offset } = self.b.kind() else { return None };
        let size = 4;
        let row = self.row(e)?;
        let map = HashMap::from([(self.l.j.var.clone(), column + low), (self.l.k.var.clone(), k)]);
        let at = Poly::of(&offset.substitute(&map), &e.ranges).scale(size).expr();
        let lines = (0..high - low).flat_map(|c| (0..UNROLL).map(move |u| c * row + u * LINE)).collect();
        Some(Ahead { ptr: ptr.clone().ptr_add(at), lines, step: UNROLL * LINE, turns: (1, 0) })
    }

    /// Bytes from one column of `b` to the next.
    fn row(&self, e: &Emit) -> Option<i64> {
        let PrimKind::Load { offset, .. } = self.b.kind() else { return None };
        Some(Poly::of(offset, &e.ranges).split(&self.l.j.var)?.0.as_const()? * 4)
    }

    /// Runs the epilogue on the sums of tiles of the same rows, from a column on, which begin at `place`.
    fn finish(&self, e: &mut Emit, tile: i64, column: &PrimExpr, place: &PrimExpr) -> Res<()> {
        let (l, width, lane) = (self.l, self.d.width, Var::new("lane", DType::I64));
        let (parts, tiles) = (width / self.d.across, self.d.tiles.len() as i64);
        let of = |part: i64| place.clone() + (part * tiles + tile) * (PARTS * LANES);
        if parts == 2 {
            // Pairs of sums: those of every other row.
            let d = DType::F32.with_lanes(LANES as u16);
            let sums = [0, 1].map(|part| e.bind("sums", PrimExpr::load_ptr(self.scratch.expr(), of(part), d)));
            for part in 0..2 {
                let rows = weave(e, &sums[0], &sums[1], 8, part);
                e.store(self.scratch, &Poly::of(&of(part), &e.ranges), DType::F32, rows)?;
            }
        }
        let column = column.clone() + lane.expr();
        for (i, row) in self.d.tiles[tile as usize].clone().enumerate() {
            let i = i as i64;
            let at = of(i % parts) + i / parts * width;
            let sums = PrimExpr::load_ptr(self.scratch.expr(), at, DType::F32.with_lanes(width as u16));
            let sums = e.bind("sum", sums);
            e.set_value(&self.n.accs[0].var, sums);
            let map = HashMap::from([(l.i.var.clone(), PrimExpr::i64(row)), (l.j.var.clone(), column.clone())]);
            let mut outs = self.n.outs.clone();
            for o in &mut outs {
                o.offset = o.offset.substitute(&map);
                o.value = o.value.substitute(&map);
            }
            e.start_lane(&lane, false);
            let r = point(e, &outs, &Lane::of(&lane, width as u16));
            e.end_lane(&lane);
            r?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::mirrored::tests::{agrees, product};
    use super::super::{plan, Item, SchedOptions};
    use super::Dots;

    /// Rows and columns that no tile divides, columns with the same places in the cache, and several blocks of the
    /// reduction, which rounds do not divide.
    #[test]
    fn few_rows_are_dot_products() {
        let many = [(16, 512, 50), (21, 528, 97), (28, 1024, 101), (33, 512, 144), (40, 512, 150)];
        let few = [(4, 256, 40), (8, 256, 60), (5, 400, 107), (15, 816, 97), (9, 1024, 34), (7, 2064, 23)];
        for (m, k, n) in few.into_iter().chain(many) {
            for heavy in [false, true] {
                let f = product(m, k, n, heavy);
                let is_dots = |bytes: u32| {
                    let o = SchedOptions::vectors(bytes);
                    plan(&f, &o).items.iter().any(|i| matches!(i, Item::Stage(s) if Dots::of(s, &o).is_some()))
                };
                assert!(is_dots(64) && !is_dots(32), "{m}x{k}x{n}");
                agrees(&f, (m, k, n), 64);
            }
        }
        let o = SchedOptions::vectors(64);
        // Rows that fill vectors, or whose last ones are dot products of their own; few steps, few columns.
        let many = [(29, 512, 100), (32, 512, 150), (36, 512, 150), (16, 256, 64), (28, 512, 95), (48, 1024, 200)];
        let few = [(3, 256, 64), (4, 768, 64), (8, 250, 64), (8, 64, 64), (8, 256, 8)];
        for (m, k, n) in few.into_iter().chain(many) {
            let f = product(m, k, n, false);
            assert!(!plan(&f, &o).items.iter().any(|i| matches!(i, Item::Stage(s) if Dots::of(s, &o).is_some())));
        }
    }
}
