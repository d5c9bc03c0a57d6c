//! Products of few rows whose sides both lie along the reduction (`a[i, k] * b[j, k]`): dot products, with the lanes of the
//! vectors along the reduction.
//!
//! The reduction goes by blocks, for all rows of which a few columns of `b` stay in the first-level cache, as does that
//! block of `a`: it is copied, vector after vector of all rows, since rows that lie multiples of 4 KiB apart would take each
//! other's place there. Accumulators stay in registers for a block, and their lanes are added by trees, those of two rows at
//! once.

use super::beside::{Ahead, LINE};
use super::contract::{factors, sides, LEAST_WORK, LEFT_FAR};
use super::emit::{Emit, Lane, Res};
use super::map::point;
use super::mirrored::Lines;
use super::nest::Nest;
use super::poly::Poly;
use super::stage::Stage;
use super::transpose::{starts, totals};
use super::SchedOptions;
use relax_ir::prim::PrimKind;
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;
use std::ops::Range;

/// Rows: fewer of them wait for memory, more are the lanes of vectors.
const ROWS: Range<i64> = 4..16;
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
/// Vectors of the sums of a tile, at most.
const PARTS: i64 = 2;
/// Columns of the blocks that threads share.
const BLOCK: i64 = 96;
/// Elements of both sides in a block of the reduction.
const CACHED: i64 = 6144;
/// Steps of an accumulator in a round of the innermost loop.
const UNROLL: i64 = 2;

/// Such a product.
pub(super) struct Dots {
    l: Lines,
    /// Columns of a tile, and the rows of each.
    width: i64,
    tiles: Vec<Range<i64>>,
    /// The other rows have just read the right side.
    near: bool,
}

impl Dots {
    /// `None` for what is better computed otherwise.
    pub fn of(s: &Stage, o: &SchedOptions) -> Option<Dots> {
        let d = Dots { near: false, ..Dots::last_rows(s, o)? };
        let deep = d.l.depth > CACHED / (d.l.rows + d.width) && d.l.rows < DEEP_ROWS;
        (ROWS.contains(&d.l.rows) && !deep).then_some(d)
    }

    /// The last rows of a product whose others are the lanes of vectors: `None` for more of them, or less to do.
    pub fn last_rows(s: &Stage, o: &SchedOptions) -> Option<Dots> {
        let l = Lines::of(s).filter(|_| o.vector_bytes as i64 == LANES * 4)?;
        let zero = s.accs.iter().all(|a| matches!(a.init.kind(), PrimKind::Float(v) if v.0 == 0.0));
        let (width, height) = if l.depth % SAME_PLACE == 0 { NARROW } else { TILE };
        let count = (l.rows + height - 2) / height;
        let tiles = (0..count).map(|t| t * l.rows / count..(t + 1) * l.rows / count).collect();
        let size = l.columns >= LANES && l.depth >= LEAST_STEPS && l.rows * l.columns * l.depth >= LEAST_WORK;
        let fits = l.rows < ROWS.end && l.depth % LANES == 0;
        (zero && size && fits).then_some(Dots { l, width, tiles, near: true })
    }

    /// Bytes of scratch memory: the copy of `a`, then the sums of some columns.
    pub fn scratch(&self) -> i64 {
        (self.l.rows * self.l.depth + self.tiles.len() as i64 * PARTS * LANES) * 4
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
        p.copy(e)?;
        // Too few columns for a vector go with the block before them.
        let mut blocks = self.l.columns / BLOCK;
        if blocks > 0 && (1..TILE.0).contains(&(self.l.columns - blocks * BLOCK)) {
            blocks -= 1;
        }
        let (first, left) = (Var::new("column", DType::I64), self.l.columns - blocks * BLOCK);
        e.ranges.add_loop(&first, Poly::default(), Poly::constant(self.l.columns));
        let end = blocks * BLOCK + left.min(1);
        e.contract = true;
        let r = e.for_loop(&first, PrimExpr::i64(0), PrimExpr::i64(end), BLOCK, |e| {
            if blocks == 0 || left == 0 {
                return p.block(e, &first, if blocks == 0 { left } else { BLOCK });
            }
            let full = first.expr().lt(PrimExpr::i64(blocks * BLOCK));
            e.if_then(full, |e| p.block(e, &first, BLOCK), |e| p.block(e, &first, left))
        });
        e.contract = false;
        r
    }
}

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
        let (l, lane) = (self.l, Var::new("lane", DType::I64));
        e.for_loop(&l.k.var, PrimExpr::i64(0), PrimExpr::i64(l.depth), LANES, |e| {
            for r in 0..l.rows {
                let map = HashMap::from([
                    (l.i.var.clone(), PrimExpr::i64(r)),
                    (l.k.var.clone(), l.k.var.expr() + lane.expr()),
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

    /// `count` columns from `first` on.
    pub fn block(&self, e: &mut Emit, first: &Var, count: i64) -> Res<()> {
        let l = self.l;
        let most = CACHED / (l.rows + self.d.width);
        let blocks = (l.depth + most - 1) / most;
        let steps = ((l.depth + blocks - 1) / blocks + LANES - 1) / LANES * LANES;
        let last = (l.depth - 1) / steps * steps;
        starts(e, &PrimExpr::i64(count), self.d.width, &mut |e, at| {
            let column = e.bind("column", first.expr() + at);
            if last > 0 {
                self.steps(e, &column, &PrimExpr::i64(0), steps, false)?;
            }
            let from = Var::new("from", DType::I64);
            e.ranges.add_loop(&from, Poly::constant(steps), Poly::constant((last - steps).max(0)));
            e.for_loop(&from, PrimExpr::i64(steps), PrimExpr::i64(last), steps, |e| {
                self.steps(e, &column, &from.expr(), steps, true)
            })?;
            self.steps(e, &column, &PrimExpr::i64(last), l.depth - last, last > 0)
        })
    }

    /// Some steps of the reduction for the columns from `column` on; `more`: there are sums of the steps before.
    fn steps(&self, e: &mut Emit, column: &PrimExpr, from: &PrimExpr, steps: i64, more: bool) -> Res<()> {
        let last = from.as_int().is_some_and(|from| from + steps == self.l.depth);
        let (width, tiles) = (self.d.width, self.d.tiles.len() as i64);
        for tile in 0..tiles {
            // The columns that this tile asks for.
            let asked = (tile * width / tiles, (tile + 1) * width / tiles);
            let ahead = match last {
                true => self.ahead(e, column.clone() + width, PrimExpr::i64(0), asked),
                false => self.ahead(e, column.clone(), from.clone() + steps, asked),
            };
            self.tile(e, tile, column, (from, steps, more), ahead)?;
            if last {
                self.finish(e, tile, column)?;
            }
        }
        Ok(())
    }

    /// Elements into scratch memory: the sums of a tile, row by row.
    fn waiting(&self, tile: i64) -> i64 {
        tile * PARTS * LANES + self.l.depth * self.l.rows
    }

    /// The sums of a tile, with those of the steps before where there are any (`more`): as many accumulators, whose
    /// lanes are added by a tree.
    fn tile(
        &self,
        e: &mut Emit,
        tile: i64,
        first: &PrimExpr,
        (from, steps, more): (&PrimExpr, i64, bool),
        ahead: Option<Ahead>,
    ) -> Res<()> {
        let (l, d) = (self.l, DType::F32.with_lanes(LANES as u16));
        let (lane, step) = (Var::new("lane", DType::I64), Var::new("step", DType::I64));
        let acc = &self.n.accs[0].var;
        let rows = self.d.tiles[tile as usize].clone();
        let (start, height) = (rows.start, rows.end - rows.start);
        let zero = PrimExpr::f32(0.0).broadcast(LANES as u16);
        let accs: Vec<Var> = (0..height * self.d.width).map(|_| e.local("acc", zero.clone())).collect();
        // Column by column: the vectors of the rows, of which there are fewer, stay in registers.
        let points = (0..self.d.width).flat_map(|c| (0..height).map(move |r| (r, c)));
        let points: Vec<_> = points.map(|(r, c)| (start + r, c, &accs[(r * self.d.width + c) as usize])).collect();
        let ahead = ahead.map(|a| (e.hoist(a.ptr.clone()), a));
        let round = |e: &mut Emit, unroll: i64| {
            if let (Some((ptr, ahead)), UNROLL) = (&ahead, unroll) {
                ahead.round(e, ptr, &step, UNROLL);
            }
            for u in 0..unroll {
                e.start_lane(&lane, false);
                for (r, c, local) in &points {
                    let k = from.clone() + (step.expr() + u) * LANES;
                    let a = k.clone() * l.rows + r * LANES + lane.expr();
                    let a = PrimExpr::load_ptr(self.scratch.expr(), a, DType::F32);
                    let map = [(l.j.var.clone(), first.clone() + *c), (l.k.var.clone(), k + lane.expr())];
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
            let at = PrimExpr::i64(self.waiting(tile) + part as i64 * LANES);
            let mut sums = totals(e, vectors);
            if more {
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
        let row = Poly::of(offset, &e.ranges).split(&self.l.j.var)?.0.as_const()? * size;
        let map = HashMap::from([(self.l.j.var.clone(), column + low), (self.l.k.var.clone(), k)]);
        let at = Poly::of(&offset.substitute(&map), &e.ranges).scale(size).expr();
        let lines = (0..high - low).flat_map(|c| (0..UNROLL).map(move |u| c * row + u * LINE)).collect();
        let far = !self.d.near && self.l.columns * row >= LEFT_FAR;
        far.then(|| Ahead { ptr: ptr.clone().ptr_add(at), lines, step: UNROLL * LINE, turns: (1, 0) })
    }

    /// Runs the epilogue on the sums of a tile.
    fn finish(&self, e: &mut Emit, tile: i64, column: &PrimExpr) -> Res<()> {
        let (l, width, lane) = (self.l, self.d.width, Var::new("lane", DType::I64));
        let column = column.clone() + lane.expr();
        for (i, row) in self.d.tiles[tile as usize].clone().enumerate() {
            let at = PrimExpr::i64(self.waiting(tile) + i as i64 * width);
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
        for (m, k, n) in [(4, 256, 40), (8, 256, 60), (5, 400, 107), (15, 816, 97), (9, 1024, 34), (7, 2064, 23)] {
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
        for (m, k, n) in [(3, 256, 64), (16, 256, 64), (4, 768, 64), (8, 250, 64), (8, 64, 64), (8, 256, 8)] {
            let f = product(m, k, n, false);
            assert!(!plan(&f, &o).items.iter().any(|i| matches!(i, Item::Stage(s) if Dots::of(s, &o).is_some())));
        }
    }
}
