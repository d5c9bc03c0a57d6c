//! Products of two computed sides with a few columns behind the last full vector (100, 197), or with a few rows behind it
//! where rows are the lanes: those few are dot products along the reduction, whose vectors are all full. A narrower vector
//! of them takes the time of half of one, or of a whole one.

use super::contract::{factors, scratch as scratch_of, sides, some_steps};
use super::dots::Dots;
use super::emit::{Emit, Lane, Res};
use super::map::point;
use super::mirrored::{Lines, Mirrored};
use super::nest::{Nest, Target};
use super::panels::Panels;
use super::poly::Poly;
use super::reduce::reduction;
use super::sliver::four;
use super::stage::{Axis, Stage};
use super::transpose::{starts, totals};
use super::SchedOptions;
use relax_ir::flat::FlatStmt;
use relax_ir::prim::PrimKind;
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// Lanes of a vector.
const LANES: i64 = 16;
/// Columns behind the last full vector, at most: with the sums of their lanes, more of them take as long as they do as a
/// vector.
const MOST: i64 = 5;
/// Rows and steps at least. Adding the lanes of 16 accumulators takes the time of some 40 multiplications.
const LEAST_ROWS: i64 = 32;
const LEAST_STEPS: i64 = 256;
/// Accumulators of a tile, at most.
const TILE: i64 = 24;
/// Rows of the blocks that threads share.
const BLOCK: i64 = 128;
/// Steps of an accumulator in a round of the innermost loop.
const UNROLL: i64 = 2;
/// Bytes of both sides that stay in the second-level cache while the last columns follow the others, and of those steps of
/// the left side that do where they do not.
const NEAR: i64 = if cfg!(test) { 64 << 10 } else { 768 << 10 };
const LEFT_NEAR: i64 = if cfg!(test) { 64 << 10 } else { 512 << 10 };
/// Rows of such a block, and steps of such a part of the reduction, at most; tests multiply less.
const MOST_ROWS: i64 = if cfg!(test) { 64 } else { 256 };
const MOST_PART: i64 = 1024;

/// Such a product: what fills vectors, which is a product of its own, and the rest.
pub(super) struct Edge {
    main: Stage,
    rest: Rest,
}

enum Rest {
    Columns(Box<Columns>),
    /// Whose columns go by the blocks of the others.
    Rows(Box<Stage>, Box<Mirrored>, Box<Dots>),
}

/// The last columns of a product.
struct Columns {
    /// The stage of these alone, its axes, and the sizes of two.
    stage: Stage,
    i: Var,
    j: Var,
    k: Var,
    /// All rows, and those of a block.
    all: i64,
    rows: i64,
    depth: i64,
    count: i64,
    /// The rows and the columns of the others, and how many of these there are.
    main: (Var, Var),
    first: i64,
    /// Steps of the parts of the reduction that all columns go by, one after the other.
    steps: i64,
    /// The right side lies along the reduction.
    turned: bool,
    /// It is in panels, these columns behind them.
    packed: bool,
}

impl Edge {
    /// `None` for what is better computed as one.
    pub fn of(s: &Stage, o: &SchedOptions) -> Option<Edge> {
        let wide = o.vector_bytes as i64 == LANES * 4;
        let zero = s.accs.iter().all(|a| matches!(a.init.kind(), PrimKind::Float(v) if v.0 == 0.0));
        if !wide || !zero || s.window.is_some() {
            return None;
        }
        Edge::rows(s, o).or_else(|| Edge::columns(s, o))
    }

    /// Where the rows of the left side are the lanes of vectors.
    fn rows(s: &Stage, o: &SchedOptions) -> Option<Edge> {
        let l = Lines::of(s)?;
        let (first, count) = split(l.rows)?;
        let (main, _) = part(s, &l.i.var, 0, first);
        let mirrored = Mirrored::of(&main, o)?;
        let (rest, _) = part(s, &l.i.var, first, count);
        let dots = Dots::last_rows(&rest, o, mirrored.block())?;
        Some(Edge { main, rest: Rest::Rows(Box::new(rest), Box::new(mirrored), Box::new(dots)) })
    }

    fn columns(s: &Stage, o: &SchedOptions) -> Option<Edge> {
        if Mirrored::of(s, o).is_some() || Dots::of(s, o).is_some() {
            return None;
        }
        let (main, mut columns) = Columns::of(s)?;
        if !columns.packed {
            // Too few of them are not copied.
            scratch_of(&main, o)?;
        }
        let product = |s: &Stage| {
            let plain = Mirrored::of(s, o).is_none() && Dots::of(s, o).is_none() && Edge::of(s, o).is_none();
            plain && (columns.packed || scratch_of(s, o).is_some())
        };
        // Threads share the rows of the whole.
        if o.threads || !columns.pieces(&main).iter().all(product) {
            (columns.rows, columns.steps) = (columns.all, columns.depth);
        }
        Some(Edge { main, rest: Rest::Columns(Box::new(columns)) })
    }

    /// Bytes of scratch memory: that of the product, then that of the rest.
    pub fn scratch(&self, o: &SchedOptions) -> PrimExpr {
        let rest = match &self.rest {
            Rest::Columns(c) => c.scratch(),
            Rest::Rows(_, _, d) => d.scratch(),
        };
        self.before(o) + rest
    }

    /// Bytes of the product's own, at a multiple of 64.
    fn before(&self, o: &SchedOptions) -> PrimExpr {
        let own = self.own(o);
        match &self.rest {
            Rest::Columns(c) if c.is_split() => own + c.rows * c.first * 4,
            _ => own,
        }
    }

    /// The same without the sums that wait between the parts of the reduction, which follow.
    fn own(&self, o: &SchedOptions) -> PrimExpr {
        let bytes = match &self.rest {
            // What is packed needs none.
            Rest::Columns(c) if c.is_split() && c.packed => PrimExpr::i64(0),
            Rest::Columns(c) if c.is_split() => c
                .pieces(&self.main)
                .iter()
                .fold(PrimExpr::i64(0), |most, s| most.max(scratch_of(s, o).unwrap_or(PrimExpr::i64(0)))),
            _ => scratch_of(&self.main, o).unwrap_or(PrimExpr::i64(0)),
        };
        (bytes + 63).floor_div(64) * 64
    }

    /// Emits the product.
    pub fn emit(&self, e: &mut Emit, scratch: &Var, o: &SchedOptions) -> Res<()> {
        // Two places under names of their own: what loops hand each other is seen by them.
        let [own, behind] = [PrimExpr::i64(0), self.before(o)].map(|at| {
            let var = Var::new("packed", DType::HANDLE);
            e.push(FlatStmt::Let { var: var.clone(), value: scratch.expr().ptr_add(at) });
            var
        });
        match &self.rest {
            Rest::Columns(c) if c.is_split() => self.in_parts(e, c, &own, &behind, o),
            Rest::Columns(c) => {
                reduction(e, &self.main, Some(&own), o)?;
                c.emit(e, &behind, &Steps::all(c.depth))
            }
            Rest::Rows(s, mirrored, dots) => {
                let (n, last) = (Nest::new(e, &self.main)?, Nest::new(e, s)?);
                let last = dots.product(e, &last, &behind)?;
                last.copy(e)?;
                mirrored.emit(e, &n, &own, o, &|e, first, count| last.block(e, first, count))
            }
        }
    }
}

impl Edge {
    /// All columns by parts of the reduction, whose steps of the left side the last ones find where the others had them.
    fn in_parts(&self, e: &mut Emit, c: &Columns, own: &Var, behind: &Var, o: &SchedOptions) -> Res<()> {
        let n = Nest::new(e, &self.main)?;
        let ([k], [acc]) = (n.reduce.as_slice(), n.accs.as_slice()) else { return Err(e.internal("axes")) };
        let bytes = self.own(o).as_int().ok_or_else(|| e.internal("scratch memory"))?;
        let at = c.main.0.expr() * c.first + c.main.1.expr() + bytes / 4;
        let waiting = PrimExpr::load_ptr(own.expr(), at.clone(), DType::F32);
        let away = Target { ptr: own.clone(), offset: at, dtype: DType::F32, value: acc.var.expr() };
        let last = c.parts() - 1;
        let part = |e: &mut Emit, top: &PrimExpr, number: PrimExpr, place: (bool, bool)| {
            let (is_first, is_last) = place;
            let (from, steps) = (number.clone() * c.steps, if is_last { c.depth - c.steps * last } else { c.steps });
            let mut n = n.clone();
            let row = (c.main.0.clone(), top.clone() + c.main.0.expr());
            let map = HashMap::from([(k.var.clone(), from.clone() + k.var.expr()), row]);
            n.map_exprs(&mut |x| x.substitute(&map));
            for i in n.spatial.iter_mut().filter(|i| i.var == c.main.0) {
                i.extent = PrimExpr::i64(c.rows);
            }
            n.reduce = vec![Axis { var: k.var.clone(), extent: PrimExpr::i64(steps) }];
            if !is_first {
                n.accs[0].init = waiting.clone();
            }
            if !is_last {
                n.outs = vec![away.clone()];
            }
            if !some_steps(e, &n, own, o, from.clone())? {
                return Err(e.internal("a product"));
            }
            let sums = |number: PrimExpr| number.floor_mod(2) * c.waiting() + (c.steps * c.count + c.tile());
            let before = (!is_first).then(|| sums(number.clone() + 1));
            let behind_it = (!is_last).then(|| sums(number.clone()));
            c.emit(e, behind, &Steps { top: top.clone(), from, count: steps, before, behind: behind_it })
        };
        let (top, number) = (Var::new("top", DType::I64), Var::new("part", DType::I64));
        e.ranges.add_loop(&top, Poly::default(), Poly::constant(c.all));
        e.for_loop(&top, PrimExpr::i64(0), PrimExpr::i64(c.all), c.rows, |e| {
            let row = top.expr();
            e.ranges.add_loop(&c.main.0, Poly::default(), Poly::constant(c.rows));
            if last == 0 {
                return part(e, &row, PrimExpr::i64(0), (true, true));
            }
            part(e, &row, PrimExpr::i64(0), (true, false))?;
            e.ranges.add_loop(&number, Poly::constant(1), Poly::constant(last - 1));
            let between = |e: &mut Emit| part(e, &row, number.expr(), (false, false));
            e.for_loop(&number, PrimExpr::i64(1), PrimExpr::i64(last), 1, between)?;
            part(e, &row, PrimExpr::i64(last), (false, true))
        })
    }
}

/// Steps of a reduction, of a block of rows.
struct Steps {
    top: PrimExpr,
    from: PrimExpr,
    count: i64,
    /// Where the sums of those before them wait, and where those of these are to wait for others.
    before: Option<PrimExpr>,
    behind: Option<PrimExpr>,
}

impl Steps {
    fn all(count: i64) -> Steps {
        Steps { top: PrimExpr::i64(0), from: PrimExpr::i64(0), count, before: None, behind: None }
    }
}

/// Points in full vectors, and those behind them, where there are a few.
pub(super) fn split(points: i64) -> Option<(i64, i64)> {
    let first = points / LANES * LANES;
    let count = points - first;
    (first > 0 && (1..=MOST).contains(&count)).then_some((first, count))
}

/// Columns of such a product that are dot products.
pub(super) fn last_columns(rows: i64, columns: i64, depth: i64) -> Option<i64> {
    let (_, count) = split(columns)?;
    (rows >= LEAST_ROWS && depth >= LEAST_STEPS && depth % LANES == 0).then_some(count)
}

/// Rows of the blocks, and steps of the parts of the reduction, that all columns go by: all of them where both sides stay in
/// the second-level cache.
fn parts_of(rows: i64, columns: i64, depth: i64) -> (i64, i64) {
    let block = (1..=rows / LEAST_ROWS).filter(|n| rows % n == 0).map(|n| rows / n).find(|n| *n <= MOST_ROWS);
    let (Some(block), true) = (block, (rows.min(MOST_ROWS) + columns) * depth * 4 > NEAR) else { return (rows, depth) };
    let most = (LEFT_NEAR / 4 / block).min(MOST_PART);
    let parts = (depth + most - 1) / most;
    (block, ((depth + parts - 1) / parts + LANES - 1) / LANES * LANES)
}

/// The stage for so many points of an axis from one on, with names of its own: by those that they were.
fn part(s: &Stage, axis: &Var, first: i64, count: i64) -> (Stage, HashMap<Var, Var>) {
    let mut s = s.clone();
    let (mut map, mut names) = (HashMap::new(), HashMap::new());
    for a in s.spatial.iter_mut().chain(&mut s.reduce) {
        let var = Var::new(a.var.name(), DType::I64);
        let mut value = var.expr();
        if a.var == *axis {
            value = value + first;
            a.extent = PrimExpr::i64(count);
        }
        names.insert(a.var.clone(), var.clone());
        map.insert(std::mem::replace(&mut a.var, var), value);
    }
    for a in &mut s.accs {
        let var = Var::new(a.var.name(), a.var.dtype());
        map.insert(std::mem::replace(&mut a.var, var.clone()), var.expr());
    }
    s.substitute(&map);
    (s, names)
}

impl Columns {
    /// What fills vectors, and the rest.
    fn of(s: &Stage) -> Option<(Stage, Columns)> {
        let [acc] = s.accs.as_slice() else { return None };
        let long = |axes: &[Axis]| axes.iter().filter(|a| a.len() != Some(1)).cloned().collect::<Vec<Axis>>();
        let (spatial, reduce) = (long(&s.spatial), long(&s.reduce));
        let ([x, y], [k]) = (spatial.as_slice(), reduce.as_slice()) else { return None };
        let last = s.outs.first()?.indices.last()?.as_var()?;
        let (i, j) = if *last == y.var { (x, y) } else { (y, x) };
        let across = s.outs.iter().all(|o| o.indices.last().and_then(|x| x.as_var()) == Some(&j.var));
        let written = s.outs.iter().any(|o| s.reads(&o.buffer));
        let (x, y) = factors(&acc.update, &acc.var)?;
        let (a, b) = sides(x, y, &j.var)?;
        // A tensor whose rows run along an axis.
        let along = |e: &PrimExpr, last: &Var, own: &Var, other: &Var| match e.kind() {
            PrimKind::BufferLoad(b, idx) => {
                let rows = idx.last().and_then(|x| x.as_var()) == Some(last);
                let plain = b.strides.is_empty() && b.elem_offset.is_none() && Panels::of(b).is_none();
                let once = |v: &Var| idx.iter().filter(|x| x.uses(v)).count() == 1;
                rows && plain && once(last) && once(own) && !e.uses(other) && e.dtype() == DType::F32
            }
            _ => false,
        };
        let panels = match b.kind() {
            PrimKind::BufferLoad(b, _) => Panels::of(b).filter(|p| p.edge && b.dtype() == DType::F32),
            _ => None,
        };
        let turned = along(&b, &k.var, &j.var, &i.var);
        let fits = turned || panels.is_some() || along(&b, &j.var, &k.var, &i.var);
        let fits = along(&a, &k.var, &i.var, &j.var) && fits;
        if acc.var.dtype() != DType::F32 || *last != j.var || !across || written || !fits {
            return None;
        }
        let (rows, columns, depth) = (i.len()?, j.len()?, k.len()?);
        let count = last_columns(rows, columns, depth)?;
        let first = columns - count;
        let (whole, own) = part(s, &j.var, 0, first);
        let main = (own.get(&i.var)?.clone(), own.get(&j.var)?.clone());
        let (mut stage, names) = part(s, &j.var, first, count);
        if let Some(p) = panels {
            if (p.depth, p.columns, p.whole()) != (depth, columns, first) {
                return None;
            }
            let at = names.get(&k.var)?.expr() * p.last() + names.get(&j.var)?.expr() + p.whole() * depth;
            let acc = &mut stage.accs[0];
            let (x, y) = factors(&acc.update, &acc.var)?;
            let (a, b) = sides(x, y, names.get(&j.var)?)?;
            let PrimKind::BufferLoad(b, _) = b.kind() else { return None };
            acc.update = acc.var.expr() + a * PrimExpr::load(b, vec![at]);
        }
        let [i, j, k] = [i, j, k].map(|a| names.get(&a.var).cloned());
        let (block, steps) = parts_of(rows, columns, depth);
        Some((
            whole,
            Columns {
                stage,
                i: i?,
                j: j?,
                k: k?,
                all: rows,
                rows: block,
                depth,
                count,
                main,
                first,
                steps,
                turned,
                packed: panels.is_some(),
            },
        ))
    }

    /// Blocks and parts are not all of it.
    fn is_split(&self) -> bool {
        self.rows < self.all || self.steps < self.depth
    }

    /// Parts of the reduction.
    fn parts(&self) -> i64 {
        (self.depth + self.steps - 1) / self.steps
    }

    /// What the other columns are of a block of rows and of steps: the first, and the last.
    fn pieces(&self, main: &Stage) -> [Stage; 2] {
        [self.steps, self.depth - self.steps * (self.parts() - 1)].map(|steps| {
            let mut s = main.clone();
            for i in s.spatial.iter_mut().filter(|i| i.var == self.main.0) {
                i.extent = PrimExpr::i64(self.rows);
            }
            for k in s.reduce.iter_mut().filter(|k| k.len() != Some(1)) {
                k.extent = PrimExpr::i64(steps);
            }
            s
        })
    }

    /// Elements of the sums of a tile, and of those of all rows.
    fn tile(&self) -> i64 {
        (self.height() * self.count + LANES - 1) / LANES * LANES
    }

    fn waiting(&self) -> i64 {
        (self.rows * self.count + 2 * LANES - 1) / LANES * LANES
    }

    /// Rows of a tile.
    fn height(&self) -> i64 {
        (TILE / self.count).min(8)
    }

    /// Bytes of scratch memory: the right side, then the sums of a tile, and twice those of all rows where they wait.
    fn scratch(&self) -> i64 {
        let waiting = if self.is_split() { 2 * self.waiting() } else { 0 };
        (self.steps * self.count + self.tile() + waiting) * 4
    }

    fn emit(&self, e: &mut Emit, scratch: &Var, steps: &Steps) -> Res<()> {
        let n = Nest::new(e, &self.stage)?;
        let [acc] = n.accs.as_slice() else { return Err(e.internal("accumulators")) };
        let sides = factors(&acc.update, &acc.var).and_then(|(x, y)| sides(x, y, &self.i));
        let Some((b, a)) = sides else { return Err(e.internal("factors")) };
        let p = Product { c: self, n: &n, a, b, scratch, steps };
        // Too few rows for a tile go with the block before them.
        let mut blocks = self.rows / BLOCK;
        if blocks > 0 && (1..self.height()).contains(&(self.rows - blocks * BLOCK)) {
            blocks -= 1;
        }
        let (first, left) = (Var::new("row", DType::I64), self.rows - blocks * BLOCK);
        e.ranges.add_loop(&first, Poly::default(), Poly::constant(self.rows));
        let end = blocks * BLOCK + left.min(1);
        e.contract = true;
        let r = e.for_loop(&first, PrimExpr::i64(0), PrimExpr::i64(end), BLOCK, |e| {
            p.copy(e)?;
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

struct Product<'a> {
    c: &'a Columns,
    n: &'a Nest,
    a: PrimExpr,
    b: PrimExpr,
    scratch: &'a Var,
    steps: &'a Steps,
}

impl Product<'_> {
    /// An element of the right side.
    fn right(&self, k: PrimExpr, column: PrimExpr) -> PrimExpr {
        let k = self.steps.from.clone() + k;
        self.b.substitute(&HashMap::from([(self.c.k.clone(), k), (self.c.j.clone(), column)]))
    }

    /// Where the copy has a column from step `k` on, a multiple of the lanes.
    fn place(&self, k: PrimExpr, column: i64) -> PrimExpr {
        k * self.c.count + column * LANES
    }

    /// Copies the right side: one vector of steps of each column, then the next one of each. Where they lie, its columns
    /// and the rows of the left side may take each other's place in the first-level cache.
    fn copy(&self, e: &mut Emit) -> Res<()> {
        let (c, k, lane) = (self.c, Var::new("k", DType::I64), Var::new("lane", DType::I64));
        let fours = c.count / 4 * 4;
        e.ranges.add_loop(&k, Poly::default(), Poly::constant(self.steps.count));
        e.for_loop(&k, PrimExpr::i64(0), PrimExpr::i64(self.steps.count), LANES, |e| {
            if c.turned {
                for column in 0..c.count {
                    e.start_lane(&lane, false);
                    let x = self.right(k.expr() + lane.expr(), PrimExpr::i64(column));
                    let x = e.value(&x, &Lane::of(&lane, LANES as u16));
                    e.end_lane(&lane);
                    let at = Poly::of(&self.place(k.expr(), column), &e.ranges);
                    e.store(self.scratch, &at, DType::F32, x?)?;
                }
                return Ok(());
            }
            for (column, step) in (0..fours).step_by(4).flat_map(|j| (0..LANES).step_by(4).map(move |s| (j, s))) {
                let mut rows = vec![];
                e.start_lane(&lane, false);
                for s in step..step + 4 {
                    let x = e.value(&self.right(k.expr() + s, lane.expr() + column), &Lane::of(&lane, 4))?;
                    rows.push(e.bind("row", x));
                }
                e.end_lane(&lane);
                for (j, x) in four(e, &rows).into_iter().enumerate() {
                    let at = self.place(k.expr(), column + j as i64) + step;
                    e.store(self.scratch, &Poly::of(&at, &e.ranges), DType::F32, x)?;
                }
            }
            for (column, step) in (fours..c.count).flat_map(|j| (0..LANES).map(move |s| (j, s))) {
                let x = e.scalar(&self.right(k.expr() + step, PrimExpr::i64(column)))?;
                let at = self.place(k.expr(), column) + step;
                e.store(self.scratch, &Poly::of(&at, &e.ranges), DType::F32, x)?;
            }
            Ok(())
        })
    }

    /// `count` rows from `first` on.
    fn block(&self, e: &mut Emit, first: &Var, count: i64) -> Res<()> {
        starts(e, &PrimExpr::i64(count), self.c.height().min(count), &mut |e, at| {
            let row = e.bind("row", first.expr() + at);
            self.tile(e, &row)?;
            match self.steps.behind {
                Some(_) => Ok(()),
                None => self.finish(e, &row),
            }
        })
    }

    /// The sums of a tile from `row` on, into scratch memory: those of a row side by side. Those that wait may follow one another
    /// too closely for whole vectors, but a tile is written behind those before it.
    fn tile(&self, e: &mut Emit, row: &PrimExpr) -> Res<()> {
        let (c, lane, step) = (self.c, Var::new("lane", DType::I64), Var::new("step", DType::I64));
        let lanes = Lane::of(&lane, LANES as u16);
        let acc = &self.n.accs[0].var;
        let zero = PrimExpr::f32(0.0).broadcast(LANES as u16);
        let accs: Vec<Var> = (0..c.height() * c.count).map(|_| e.local("acc", zero.clone())).collect();
        let round = |e: &mut Emit, unroll: i64| {
            for u in 0..unroll {
                e.start_lane(&lane, false);
                for (n, local) in accs.iter().enumerate() {
                    let (r, column) = (n as i64 / c.count, n as i64 % c.count);
                    let k = (step.expr() + u) * LANES;
                    let at = self.steps.from.clone() + k.clone() + lane.expr();
                    let map = [(c.i.clone(), self.steps.top.clone() + row.clone() + r), (c.k.clone(), at)];
                    let a = self.a.substitute(&HashMap::from(map));
                    let at = self.place(k, column) + lane.expr();
                    let b = PrimExpr::load_ptr(self.scratch.expr(), at, DType::F32);
                    e.set_value(acc, local.expr());
                    let sum = e.value(&(acc.expr() + a * b), &lanes)?;
                    e.assign(local, sum);
                }
                e.end_lane(&lane);
            }
            Ok(())
        };
        let steps = self.steps.count / LANES;
        let whole = steps / UNROLL * UNROLL;
        e.ranges.add_loop(&step, Poly::default(), Poly::constant(steps));
        e.for_loop(&step, PrimExpr::i64(0), PrimExpr::i64(whole), UNROLL, |e| round(e, UNROLL))?;
        e.for_loop(&step, PrimExpr::i64(whole), PrimExpr::i64(steps), 1, |e| round(e, 1))?;
        let accs: Vec<PrimExpr> = accs.iter().map(Var::expr).collect();
        for (part, vectors) in accs.chunks(LANES as usize).enumerate() {
            let mut sums = totals(e, vectors);
            let of_rows = |e: &Emit, at: &PrimExpr| {
                Poly::of(&(at.clone() + row.clone() * c.count + part as i64 * LANES), &e.ranges)
            };
            if let Some(before) = &self.steps.before {
                let at = of_rows(e, before).expr();
                sums = e.bind("sum", PrimExpr::load_ptr(self.scratch.expr(), at, sums.dtype()) + sums);
            }
            let at = match &self.steps.behind {
                Some(behind) => of_rows(e, behind),
                None => Poly::constant(c.steps * c.count + part as i64 * LANES),
            };
            e.store(self.scratch, &at, DType::F32, sums)?;
        }
        Ok(())
    }

    /// Runs the epilogue on the sums of a tile.
    fn finish(&self, e: &mut Emit, row: &PrimExpr) -> Res<()> {
        let (c, lane) = (self.c, Var::new("lane", DType::I64));
        let fours = c.count / 4 * 4;
        let pieces = (0..fours).step_by(4).map(|j| (j, 4)).chain((fours..c.count).map(|j| (j, 1)));
        let pieces: Vec<(i64, u16)> = pieces.collect();
        for (r, (column, lanes)) in (0..c.height()).flat_map(|r| pieces.iter().map(move |p| (r, *p))) {
            let at = PrimExpr::i64(c.steps * c.count + r * c.count + column);
            let sums = PrimExpr::load_ptr(self.scratch.expr(), at, DType::F32.with_lanes(lanes));
            let sums = e.bind("sum", sums);
            e.set_value(&self.n.accs[0].var, sums);
            let row = self.steps.top.clone() + row.clone() + r;
            let map = HashMap::from([(c.i.clone(), row), (c.j.clone(), lane.expr() + column)]);
            let mut outs = self.n.outs.clone();
            for o in &mut outs {
                o.offset = o.offset.substitute(&map);
                o.value = o.value.substitute(&map);
            }
            e.start_lane(&lane, lanes == 1);
            let done = point(e, &outs, &Lane::of(&lane, lanes));
            e.end_lane(&lane);
            done?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::mirrored::tests::{agrees, product};
    use super::super::{machine, plan, Item, SchedOptions};
    use super::{Edge, Rest};
    use crate::interp::{run, Arg, Tensor};
    use relax_ir::tir::{KernelBuilder, PrimFunc};
    use relax_ir::{DType, PrimExpr};

    /// Whether the last rows (`true`) or columns of a kernel's product are dot products.
    fn edge(f: &PrimFunc, vector_bytes: u32) -> Option<bool> {
        let o = SchedOptions::vectors(vector_bytes);
        plan(f, &o).items.iter().find_map(|i| match i {
            Item::Stage(s) => Edge::of(s, &o).map(|e| matches!(e.rest, Rest::Rows(..))),
            _ => None,
        })
    }

    /// `relu(a * b) + a bias`, whose right side lies along its columns.
    pub fn plain(m: i64, k: i64, n: i64) -> PrimFunc {
        let c = PrimExpr::i64;
        let mut f = KernelBuilder::new("product");
        let a = f.input("a", &[c(m), c(k)], DType::F32);
        let b = f.input("b", &[c(k), c(n)], DType::F32);
        let bias = f.input("bias", &[c(n)], DType::F32);
        let y = f.sum("y", &[c(m), c(n)], DType::F32, &[c(k)], |i, r| {
            a.at([i[0].clone(), r[0].clone()]) * b.at([r[0].clone(), i[1].clone()])
        });
        let z =
            f.compute("z", &[c(m), c(n)], DType::F32, |i| y.at(i).max(PrimExpr::f32(0.0)) + bias.at([i[1].clone()]));
        f.finish(&[z])
    }

    /// Holds such a product to its meaning.
    pub fn holds(f: &PrimFunc, (m, k, n): (i64, i64, i64)) {
        let tensor = |shape: &[i64]| {
            let count: i64 = shape.iter().product();
            let values: Vec<f64> = (0..count).map(|i| ((i * 37 + 11) % 101) as f64 / 400.0 - 0.125).collect();
            Tensor::from_f64(DType::F32, shape, &values)
        };
        let out = Tensor::zeros(DType::F32, &[m, n]);
        let mut wanted = [tensor(&[m, k]), tensor(&[k, n]), tensor(&[n]), out].map(Arg::Tensor).to_vec();
        let mut got = wanted.clone();
        run(f, &mut wanted).unwrap();
        machine::run(f, &mut got, &SchedOptions::vectors(64)).unwrap();
        let (Arg::Tensor(x), Arg::Tensor(y)) = (&wanted[3], &got[3]) else { panic!() };
        for (x, y) in x.to_f64().iter().zip(y.to_f64()) {
            assert!((x - y).abs() <= 1e-4 * (1.0 + x.abs()), "{m}x{k}x{n}: {x} {y}");
        }
    }

    /// One to five columns and rows behind the last full vector, tiles and blocks that rows do not fill, rounds that steps do not.
    #[test]
    fn the_last_few_are_dot_products() {
        let sizes = [(40, 256, 100), (131, 272, 36), (33, 512, 49), (150, 256, 50), (34, 400, 21), (260, 256, 19)];
        for (m, k, n) in sizes {
            assert_eq!((edge(&plain(m, k, n), 64), edge(&plain(m, k, n), 32)), (Some(false), None), "{m}x{k}x{n}");
        }
        // By one part, by two and three and four of the reduction, by blocks of rows, by both.
        let deep = [(50, 368, 51), (40, 512, 36), (40, 1024, 20), (64, 1024, 17), (128, 256, 36), (120, 768, 53)];
        for (m, k, n) in sizes.into_iter().chain(deep) {
            let f = plain(m, k, n);
            holds(&f, (m, k, n));
        }
        let turned = [(200, 256, 100, false), (50, 256, 512, true), (35, 1024, 107, true), (98, 304, 300, true)];
        for (m, k, n, rows) in turned {
            for heavy in [false, true] {
                let f = product(m, k, n, heavy);
                assert_eq!(edge(&f, 64), Some(rows), "{m}x{k}x{n}");
                agrees(&f, (m, k, n), 64);
            }
        }
        for (m, k, n) in [(64, 256, 96), (64, 250, 100), (64, 128, 100), (64, 256, 102), (16, 256, 100)] {
            assert_eq!(edge(&plain(m, k, n), 64), None, "{m}x{k}x{n}");
        }
    }
}
