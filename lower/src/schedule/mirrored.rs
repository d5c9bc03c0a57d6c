//! Products of two computed sides whose right side lies along the reduction (`a[i, k] * b[j, k]`), with fewer rows than
//! columns: the rows of `a` become the lanes of the vectors.
//!
//! Register tiles need one side in slivers, row of the reduction by row, and take the other one element by element
//! from where it is. Turning `a` instead of `b` and then the sums costs `rows * depth + rows * columns` instead of
//! `columns * depth`, and `b`, the larger one, is read once, along its rows. The sums of a block of columns wait in scratch
//! memory, turned the wrong way, and are turned by squares in registers for the epilogue. Each sum is made in the order of
//! the reduction, as in [`super::contract`]: the same bits. Of few columns all are a block, and their tiles turn `a` in
//! passing.

use super::beside::Ahead;
use super::contract::{
    contraction, factors, parts, passing_scratch, rows_ahead, sides, tile_columns, tile_rows, Part, LEAST_WORK,
    LEFT_FAR,
};
use super::dots::Dots;
use super::edges::last_columns;
use super::emit::{has_load, Emit, Lane, Res};
use super::map::point;
use super::nest::{Nest, Target};
use super::panels::{padded, whole_slivers};
use super::poly::Poly;
use super::reduce::{rows_for, spatial, Last, Point, Tile, Vector};
use super::sliver::{four, Sliver};
use super::stage::{Axis, Stage};
use super::transpose::{starts, turned};
use super::SchedOptions;
use relax_ir::prim::PrimKind;
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// Columns whose sums wait at a time, of many and of few: multiples of the heights of most tiles.
const BLOCKS: [i64; 2] = [96, 48];
/// Rows and columns of the largest squares that are turned.
const SQUARE: i64 = 16;
/// The same of the smallest.
const FOUR: i64 = 4;
/// Elements of the turned left side, at most.
const MOST: i64 = 1 << 20;
/// Rows, at most: more of them, turned, do not stay in the second-level cache.
const ROWS: i64 = 128;
/// Elements of a right side beyond which its rows are waited for.
const FAR: i64 = 1 << 18;
/// Bytes that stay in the second-level cache.
const NEAR: i64 = 768 << 10;
/// Rows whose elements are multiples of these apart have the same places in the first-level cache, of which there are eight.
const SAME_PLACE: i64 = 1024;
/// Steps written out in the innermost loop: more have more loads than a Zen 5 foresees, up to a tenth of the time in all.
const UNROLL: i64 = 2;
/// Steps of the reduction from one stop of the sums in memory to the next, at most, where slivers of `a` take turns over
/// the same rows of `b`, and where there is only one.
const STEPS: [i64; 2] = [1024, 2048];

/// Lanes of the vectors for so many points, of each.
fn lanes_of(points: i64, lanes: i64) -> f64 {
    ((points + lanes - 1) / lanes * lanes) as f64 / points as f64
}

/// What a mirrored product takes, of what its multiplications take: a square of 16 by 16 is turned in the time of 64 of its
/// vectors. One vector beside another from memory in each step keeps the multipliers waiting.
fn cost(rows: i64, columns: i64, depth: i64, lanes: i64) -> f64 {
    let single = if rows <= lanes { 0.1 } else { 0.0 };
    lanes_of(rows, lanes) + single + 4.0 / columns as f64 + 4.0 / depth as f64
}

/// The same where the right side is turned, by squares whose rows lie far apart. A few columns behind full vectors are dot
/// products, each sixteen of which take the time of some 40 multiplications more.
fn written_cost(rows: i64, columns: i64, depth: i64, lanes: i64) -> f64 {
    let far = if columns * depth > FAR { 0.02 } else { 0.0 };
    let across = match last_columns(rows, columns, depth).filter(|_| lanes == SQUARE) {
        Some(few) => 1.0 + 40.0 * few as f64 / (columns * depth) as f64,
        None => lanes_of(columns, lanes),
    };
    across + far + 4.0 / rows as f64
}

/// A product both of whose sides lie along the reduction: its rows, columns and steps, of known counts.
pub(super) struct Lines {
    pub i: Axis,
    pub j: Axis,
    pub k: Axis,
    pub rows: i64,
    pub columns: i64,
    pub depth: i64,
}

impl Lines {
    pub fn of(s: &Stage) -> Option<Lines> {
        let ([acc], None) = (s.accs.as_slice(), &s.window) else { return None };
        let long = |axes: &[Axis]| axes.iter().filter(|a| a.len() != Some(1)).cloned().collect::<Vec<Axis>>();
        let (spatial, reduce) = (long(&s.spatial), long(&s.reduce));
        let ([x, y], [k]) = (spatial.as_slice(), reduce.as_slice()) else { return None };
        let last = s.outs.first()?.indices.last()?.as_var()?.clone();
        let (i, j) = if last == y.var { (x, y) } else { (y, x) };
        let rows_of = |e: &PrimExpr, own: &Var, other: &Var| match e.kind() {
            PrimKind::BufferLoad(b, idx) => {
                let along = idx.last().and_then(|x| x.as_var()) == Some(&k.var);
                let plain = b.strides.is_empty() && b.elem_offset.is_none();
                let once = |v: &Var| idx.iter().filter(|x| x.uses(v)).count() == 1;
                along && plain && once(&k.var) && once(own) && !e.uses(other) && e.dtype() == DType::F32
            }
            _ => false,
        };
        let (x, y) = factors(&acc.update, &acc.var)?;
        let (a, b) = sides(x, y, &j.var)?;
        let written = s.outs.iter().any(|o| s.reads(&o.buffer));
        let across = s.outs.iter().all(|o| o.indices.last().and_then(|x| x.as_var()) == Some(&j.var));
        let open = has_load(&acc.init) || acc.init.uses(&i.var) || acc.init.uses(&j.var);
        if acc.var.dtype() != DType::F32 || written || !across || open {
            return None;
        }
        if last != j.var || !rows_of(&a, &i.var, &j.var) || !rows_of(&b, &j.var, &i.var) {
            return None;
        }
        let (rows, columns, depth) = (i.len()?, j.len()?, k.len()?);
        Some(Lines { i: i.clone(), j: j.clone(), k: k.clone(), rows, columns, depth })
    }
}

/// Such a product.
pub(super) struct Mirrored {
    i: Axis,
    j: Axis,
    k: Axis,
    rows: i64,
    columns: i64,
    depth: i64,
    /// Lanes of a register.
    lanes: i64,
    /// Columns of a full sliver of the turned left side; and all columns of full ones.
    width: i64,
    whole: i64,
    /// Columns whose sums wait at a time.
    block: i64,
    /// All columns are a block, whose tiles turn the left side in passing: so many bytes of scratch memory.
    passing: Option<i64>,
}

impl Mirrored {
    /// `None` for what is better computed as it is written.
    pub fn of(s: &Stage, o: &SchedOptions) -> Option<Mirrored> {
        let Lines { i, j, k, rows, columns, depth } = Lines::of(s).filter(|_| o.is_wide())?;
        let lanes = o.vector_bytes as i64 / 4;
        if !(SQUARE..=ROWS).contains(&rows)
            || columns < 2 * SQUARE
            || depth < 2 * SQUARE
            || rows * depth > MOST
            || rows * columns * depth < LEAST_WORK
        {
            return None;
        }
        if Dots::of(s, o).is_some() {
            return None;
        }
        if cost(rows, columns, depth, lanes) + 0.01 > written_cost(rows, columns, depth, lanes) {
            return None;
        }
        let width = tile_columns(o, Some(rows), lanes) as i64 * lanes;
        let whole = whole_slivers(rows, width);
        let few = columns < 2 * BLOCKS[0];
        let passing = passing_scratch(o, columns, depth, rows).filter(|_| few && !o.threads);
        // The few rows that are left over read a block again, beside which there is the turned left side.
        let far = (BLOCKS[0] + rows) * depth * 4 > NEAR;
        let block = if passing.is_some() { columns } else { BLOCKS[(few || far) as usize] };
        Some(Mirrored { i, j, k, rows, columns, depth, lanes, width, whole, block, passing })
    }

    /// Elements of a row of waiting sums: a lane for each row of `a`, and those that fill its vectors.
    fn row(&self) -> i64 {
        self.whole + padded(self.rows - self.whole)
    }

    /// Elements of the turned left side in scratch memory.
    fn turned(&self) -> i64 {
        self.passing.map_or(self.depth * self.row(), |bytes| bytes / 4)
    }

    /// Columns of a block: the last one may have fewer than a square more.
    pub fn block(&self) -> i64 {
        self.block
    }

    /// Bytes of scratch memory: the turned left side, then the sums of a block.
    pub fn scratch(&self) -> i64 {
        (self.turned() + (self.block + SQUARE) * self.row()) * 4
    }

    /// Emits the product. `behind`: what is done for the columns of a block, from one on, while they are near.
    pub fn emit(
        &self,
        e: &mut Emit,
        n: &Nest,
        scratch: &Var,
        o: &SchedOptions,
        behind: &dyn Fn(&mut Emit, &Var, i64) -> Res<()>,
    ) -> Res<()> {
        let [acc] = n.accs.as_slice() else { return Err(e.internal("accumulators")) };
        let sides = factors(&acc.update, &acc.var).and_then(|(x, y)| sides(x, y, &self.j.var));
        let Some((a, b)) = sides else { return Err(e.internal("factors")) };
        let p = Product { m: self, n, b, scratch, o };
        if self.passing.is_none() {
            p.pack_all(e, &a)?;
        }
        // Too few columns for a square go with the block before them.
        let (mut blocks, block) = (self.columns / self.block, self.block);
        if (1..SQUARE).contains(&(self.columns - blocks * block)) && blocks > 0 {
            blocks -= 1;
        }
        let (first, left) = (Var::new("column", DType::I64), self.columns - blocks * block);
        e.ranges.add_loop(&first, Poly::default(), Poly::constant(self.columns));
        let end = blocks * block + left.min(1);
        e.contract = true;
        let all = |e: &mut Emit, count: i64| {
            if self.passing.is_some() {
                p.in_passing(e, &a)?;
            } else {
                p.block(e, &first, count)?;
            }
            p.turn(e, &first, count)?;
            behind(e, &first, count)
        };
        let r = e.for_loop(&first, PrimExpr::i64(0), PrimExpr::i64(end), block, |e| {
            if blocks == 0 || left == 0 {
                return all(e, if blocks == 0 { left } else { block });
            }
            let full = first.expr().lt(PrimExpr::i64(blocks * block));
            e.if_then(full, |e| all(e, block), |e| all(e, left))
        });
        e.contract = false;
        r
    }
}

struct Product<'a> {
    m: &'a Mirrored,
    n: &'a Nest,
    b: PrimExpr,
    scratch: &'a Var,
    o: &'a SchedOptions,
}

impl Product<'_> {
    /// Turns the left side.
    fn pack_all(&self, e: &mut Emit, a: &PrimExpr) -> Res<()> {
        let (m, start) = (self.m, Var::new("row", DType::I64));
        e.ranges.add_loop(&start, Poly::default(), Poly::constant(m.rows));
        e.for_loop(&start, PrimExpr::i64(0), PrimExpr::i64(m.whole), m.width, |e| {
            self.pack(e, a, &start, m.width, m.width)
        })?;
        let valid = m.rows - m.whole;
        e.for_loop(&start, PrimExpr::i64(m.whole), PrimExpr::i64(m.rows), valid.max(1), |e| {
            self.pack(e, a, &start, padded(valid), valid)
        })
    }

    /// All sums as those of a product whose rows are the columns, so that its right side is turned.
    fn in_passing(&self, e: &mut Emit, a: &PrimExpr) -> Res<()> {
        let (m, mut n) = (self.m, self.n.clone());
        let acc = n.accs[0].var.clone();
        n.accs[0].update = acc.expr() + self.b.clone() * a.clone();
        let offset = self.waiting(m.j.var.expr()) + m.i.var.expr();
        n.outs = vec![Target { ptr: self.scratch.clone(), offset, dtype: DType::F32, value: acc.expr() }];
        n.spatial = vec![m.j.clone(), m.i.clone()];
        n.given = None;
        let done = contraction(e, &n, Some(self.scratch), self.o)?;
        e.contract = true;
        if done {
            return Ok(());
        }
        Err(e.internal("a turned product"))
    }

    /// Turns the rows of `a` from `start` on: `valid` of them into packed rows of `width` elements.
    fn pack(&self, e: &mut Emit, a: &PrimExpr, start: &Var, width: i64, valid: i64) -> Res<()> {
        let (m, lane) = (self.m, Var::new("lane", DType::I64));
        let at = Poly::var(start).scale(m.depth).add(&Poly::var(&m.k.var).scale(width));
        let sliver = Sliver {
            b: a,
            reduce: std::slice::from_ref(&m.k),
            j: &m.i,
            outer: None,
            slot: None,
            first: start.expr(),
            lane: &lane,
            width,
            valid,
            scratch: self.scratch,
            at,
            vector_bytes: self.o.vector_bytes,
        };
        sliver.pack(e)
    }

    /// `count` columns from `first` on.
    fn block(&self, e: &mut Emit, first: &Var, count: i64) -> Res<()> {
        let m = self.m;
        let most = STEPS[(m.row() <= m.width) as usize];
        let blocks = (m.depth + most - 1) / most;
        let steps = ((m.depth + blocks - 1) / blocks + 15) / 16 * 16;
        let last = (m.depth - 1) / steps * steps;
        self.sums(e, first, count, &PrimExpr::i64(0), steps.min(m.depth), false)?;
        let from = Var::new("from", DType::I64);
        e.ranges.add_loop(&from, Poly::constant(steps), Poly::constant((last - steps).max(0)));
        e.for_loop(&from, PrimExpr::i64(steps), PrimExpr::i64(last), steps, |e| {
            self.sums(e, first, count, &from.expr(), steps, true)
        })?;
        if last > 0 {
            self.sums(e, first, count, &PrimExpr::i64(last), m.depth - last, true)?;
        }
        Ok(())
    }

    /// Elements into scratch memory: the waiting sums of a column of the block.
    fn waiting(&self, column: PrimExpr) -> PrimExpr {
        column * self.m.row() + self.m.turned()
    }

    /// Some steps of the reduction for all rows of `a`; `more`: there are sums of the steps before.
    fn sums(&self, e: &mut Emit, first: &Var, count: i64, from: &PrimExpr, steps: i64, more: bool) -> Res<()> {
        let m = self.m;
        let start = Var::new("row", DType::I64);
        e.ranges.add_loop(&start, Poly::default(), Poly::constant(m.rows));
        e.for_loop(&start, PrimExpr::i64(0), PrimExpr::i64(m.whole), m.width, |e| {
            let part = Part { at: 0, count: m.width / m.lanes, last: None };
            self.tiles(e, (first, count), (from, steps, more), (&start, m.width), &part)
        })?;
        let width = padded(m.rows - m.whole);
        e.for_loop(&start, PrimExpr::i64(m.whole), PrimExpr::i64(m.rows), width.max(1), |e| {
            let most = m.width / m.lanes + (self.o.vector_bytes == 64) as i64;
            for part in parts(width, width, m.lanes, most) {
                self.tiles(e, (first, count), (from, steps, more), (&start, width), &part)?;
            }
            Ok(())
        })
    }

    /// One sliver of `a`, whose packed rows have `width` elements, or some vectors of it.
    fn tiles(
        &self,
        e: &mut Emit,
        (first, count): (&Var, i64),
        (from, steps, more): (&PrimExpr, i64, bool),
        (start, width): (&Var, i64),
        part: &Part,
    ) -> Res<()> {
        let m = self.m;
        let (lane, column) = (Var::new("lane", DType::I64), Var::new("at", DType::I64));
        let columns = Axis { var: column.clone(), extent: PrimExpr::i64(count) };
        e.ranges.add_loop(&column, Poly::default(), Poly::constant(count));
        let k = from.clone() + m.k.var.expr();
        let packed = start.expr() * m.depth + k.clone() * width + part.at + lane.expr();
        let packed = PrimExpr::load_ptr(self.scratch.expr(), packed, DType::F32);
        let sum = self.waiting(column.expr()) + start.expr() + part.at + lane.expr();
        let map = HashMap::from([(m.j.var.clone(), first.expr() + column.expr()), (m.k.var.clone(), k)]);
        let b = self.b.substitute(&map);
        let mut inner = self.n.clone();
        let acc = inner.accs[0].var.clone();
        inner.accs[0].update = acc.expr() + b.clone() * packed;
        if more {
            inner.accs[0].init = PrimExpr::load_ptr(self.scratch.expr(), sum.clone(), DType::F32);
        }
        inner.outs = vec![Target { ptr: self.scratch.clone(), offset: sum, dtype: DType::F32, value: acc.expr() }];
        inner.reduce = vec![Axis { var: m.k.var.clone(), extent: PrimExpr::i64(steps) }];
        let vectors = part.count + part.last.is_some() as i64;
        let rows = tile_rows(self.o.vector_bytes, vectors as u16);
        let rows = if m.depth % SAME_PLACE == 0 { rows.min(8) } else { rows };
        let height = rows_for(e, &columns, rows);
        let tile = Tile {
            vector: Some(Vector {
                axis: Axis { var: lane.clone(), extent: PrimExpr::i64(width) },
                lanes: m.lanes as u16,
                count: part.count as u16,
                last: part.last.map(|(lanes, valid)| Last { lanes: lanes as u16, valid: valid as u16 }),
                combine: vec![],
                pair: false,
            }),
            rows: vec![(column.clone(), height)],
            unroll: UNROLL,
            balanced: true,
            pieces: None,
            copies: None,
            ahead: self.ahead(e, &b, &inner.reduce[0], (&column, height)).into_iter().collect(),
            next: None,
        };
        inner.spatial = vec![columns.clone()];
        let mut point = Point { offsets: vec![], lanes: m.lanes as u16, count: part.count as u16 };
        e.start_lane(&lane, false);
        let r = spatial(e, &inner, &tile, &[columns], &mut point);
        e.end_lane(&lane);
        r
    }

    /// What tiles of so many columns ask for: those of the next one.
    fn ahead(&self, e: &Emit, b: &PrimExpr, k: &Axis, columns: (&Var, i64)) -> Option<Ahead> {
        let (ahead, row) = rows_ahead(e, b, k, columns, UNROLL)?;
        (self.m.columns * row >= LEFT_FAR).then_some(ahead)
    }

    /// Turns the sums of a block and runs the epilogue on them: by squares as large as registers are, of which the last ones
    /// reach back; where four rows or columns are left of them, by squares of four.
    fn turn(&self, e: &mut Emit, first: &Var, count: i64) -> Res<()> {
        let m = self.m;
        let side = if m.lanes >= SQUARE { SQUARE } else { SQUARE / 2 };
        let by_squares = |n: i64| if n % side == FOUR && e.interleaves { n - FOUR } else { n };
        let (rows, columns) = (by_squares(m.rows), by_squares(count));
        let [last_row, last_column] = [rows, columns].map(PrimExpr::i64);
        starts(e, &last_row, side, &mut |e, row| {
            starts(e, &last_column, side, &mut |e, column| self.square(e, first, side, &row, &column))
        })?;
        if columns < count {
            starts(e, &last_row, FOUR, &mut |e, row| self.square(e, first, FOUR, &row, &last_column))?;
        }
        if rows < m.rows {
            let all = PrimExpr::i64(count);
            starts(e, &all, FOUR, &mut |e, column| self.square(e, first, FOUR, &last_row, &column))?;
        }
        Ok(())
    }

    /// Turns a square of the sums of a block, from a row and a column of it on, and runs the epilogue on them.
    fn square(&self, e: &mut Emit, first: &Var, side: i64, row: &PrimExpr, column: &PrimExpr) -> Res<()> {
        let (m, lane) = (self.m, Var::new("lane", DType::I64));
        let lanes = Lane::of(&lane, side as u16);
        e.start_lane(&lane, false);
        let mut rows = vec![];
        for c in 0..side {
            let at = self.waiting(column.clone() + c) + row.clone() + lane.expr();
            rows.push(e.value(&PrimExpr::load_ptr(self.scratch.expr(), at, DType::F32), &lanes)?);
        }
        let sums = if side == FOUR { four(e, &rows) } else { turned(e, &rows) };
        for (r, sums) in sums.into_iter().enumerate() {
            e.set_value(&self.n.accs[0].var, sums);
            let map = HashMap::from([
                (m.i.var.clone(), row.clone() + r as i64),
                (m.j.var.clone(), first.expr() + column.clone() + lane.expr()),
            ]);
            let mut outs = self.n.outs.clone();
            for o in &mut outs {
                o.offset = o.offset.substitute(&map);
                o.value = o.value.substitute(&map);
            }
            point(e, &outs, &lanes)?;
        }
        e.end_lane(&lane);
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{machine, plan, Item, SchedOptions};
    use super::Mirrored;
    use crate::interp::{run, Arg, Tensor};
    use relax_ir::prim::Intrin;
    use relax_ir::tir::{KernelBuilder, PrimFunc};
    use relax_ir::{DType, PrimExpr};

    /// `tanh(a * b^T + bias) + residual`, or without the epilogue.
    pub fn product(m: i64, k: i64, n: i64, heavy: bool) -> PrimFunc {
        let c = PrimExpr::i64;
        let mut f = KernelBuilder::new("product");
        let a = f.input("a", &[c(m), c(k)], DType::F32);
        let b = f.input("b", &[c(n), c(k)], DType::F32);
        let bias = f.input("bias", &[c(n)], DType::F32);
        let residual = f.input("residual", &[c(m), c(n)], DType::F32);
        let y = f.sum("y", &[c(m), c(n)], DType::F32, &[c(k)], |i, r| {
            a.at([i[0].clone(), r[0].clone()]) * b.at([i[1].clone(), r[0].clone()])
        });
        let z = f.compute("z", &[c(m), c(n)], DType::F32, |i| {
            let sum = y.at(i) + bias.at([i[1].clone()]);
            if heavy {
                sum.call1(Intrin::Tanh) + residual.at(i)
            } else {
                sum
            }
        });
        f.finish(&[z])
    }

    fn is_mirrored(f: &PrimFunc, vector_bytes: u32) -> bool {
        let o = SchedOptions::vectors(vector_bytes);
        let stage = |i: &Item| matches!(i, Item::Stage(s) if Mirrored::of(s, &o).is_some());
        plan(f, &o).items.iter().any(stage)
    }

    #[test]
    fn the_smaller_side_is_turned() {
        let sizes = [(64, 256, 256), (16, 256, 512), (64, 64, 64), (256, 256, 64), (50, 256, 512)];
        for ((m, k, n), wanted) in sizes.into_iter().zip([true, true, false, false, false]) {
            assert_eq!(is_mirrored(&product(m, k, n, false), 64), wanted, "{m}x{k}x{n}");
            assert!(!is_mirrored(&product(m, k, n, false), 16), "{m}x{k}x{n}");
        }
        assert!(!is_mirrored(&product(8, 256, 512, false), 64));
    }

    /// Holds such a product to its meaning.
    pub fn agrees(f: &PrimFunc, (m, k, n): (i64, i64, i64), vector_bytes: u32) {
        let tensor = |shape: &[i64]| {
            let count: i64 = shape.iter().product();
            let values: Vec<f64> = (0..count).map(|i| ((i * 37 + 11) % 101) as f64 / 400.0 - 0.125).collect();
            Tensor::from_f64(DType::F32, shape, &values)
        };
        let out = Tensor::zeros(DType::F32, &[m, n]);
        let inputs = [tensor(&[m, k]), tensor(&[n, k]), tensor(&[n]), tensor(&[m, n]), out];
        let mut wanted = inputs.map(Arg::Tensor).to_vec();
        let mut got = wanted.clone();
        run(f, &mut wanted).unwrap();
        machine::run(f, &mut got, &SchedOptions::vectors(vector_bytes)).unwrap();
        let (Arg::Tensor(x), Arg::Tensor(y)) = (&wanted[4], &got[4]) else { panic!() };
        for (x, y) in x.to_f64().iter().zip(y.to_f64()) {
            assert!((x - y).abs() <= 1e-4 * (1.0 + x.abs()), "{m}x{k}x{n} by {vector_bytes}: {x} {y}");
        }
    }

    /// Rows that do not fill vectors or slivers, few columns and blocks of them, depths of several stops.
    #[test]
    fn mirrored_products_agree_with_their_meaning() {
        for (m, k, n) in [(16, 40, 60), (30, 100, 100), (48, 2060, 107), (64, 1030, 200), (68, 300, 33), (100, 300, 33)]
        {
            for heavy in [false, true] {
                let f = product(m, k, n, heavy);
                for vector_bytes in [32, 64] {
                    assert!(is_mirrored(&f, vector_bytes), "{m}x{k}x{n}");
                    agrees(&f, (m, k, n), vector_bytes);
                }
            }
        }
    }

    /// Few columns turn the left side in passing, in one block and in less memory than all of it takes; shared out, they
    /// go by blocks.
    #[test]
    fn few_columns_turn_the_left_side_in_passing() {
        let o = SchedOptions::vectors(64);
        for (m, k, n) in [(32, 256, 70), (48, 272, 40), (64, 4096, 100)] {
            for heavy in [false, true] {
                let f = product(m, k, n, heavy);
                let of = |o: &SchedOptions| {
                    plan(&f, o).items.iter().find_map(|i| match i {
                        Item::Stage(s) => Mirrored::of(s, o),
                        _ => None,
                    })
                };
                let (alone, shared) = (of(&o).unwrap(), of(&SchedOptions { threads: true, ..o }).unwrap());
                assert!(alone.passing.is_some() && shared.passing.is_none(), "{m}x{k}x{n}");
                match k < 4096 {
                    true => agrees(&f, (m, k, n), 64),
                    false => assert!(alone.scratch() < shared.scratch()),
                }
            }
        }
    }
}
