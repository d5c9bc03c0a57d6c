//! Windows over planes, as pools have them: the rows of a window are combined first, whole rows at a time, and then the
//! columns of what came out.
//!
//! A window of 3x3 is then three rows by vectors as they lie in memory, and three columns of the one row between. Padded
//! planes are not copied: the row between has the padding around it, and windows leave out rows that are beyond the plane.

use super::emit::{Emit, Res};
use super::fuse::Item;
use super::map::{point, spread, strips};
use super::nest::Target;
use super::poly::Poly;
use super::stage::{Axis, Stage};
use super::{Ranges, SchedOptions};
use relax_ir::flat::FlatStmt;
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::tir::Buffer;
use relax_ir::{DType, PrimExpr, Var};

/// Bytes of rows between that are made before their columns are combined, at most.
const BYTES: i64 = 8192;
/// Rows of those, and registers of a row that are made at a time.
const ROWS: i64 = 8;
const REGISTERS: i64 = 8;

/// A reduction of windows, and how what they lie in is padded.
pub struct Pool {
    pub stage: Stage,
    op: BinOp,
    /// The planes that are read; the indices of one name axes of the stage.
    source: Buffer,
    lead: Vec<PrimExpr>,
    /// Output axes down and across.
    out: [Axis; 2],
    /// Steps of the windows, elements of one and the distance between these.
    steps: [i64; 2],
    size: [i64; 2],
    apart: [i64; 2],
    /// Padding before the plane.
    before: [i64; 2],
}

/// Padding as a stage writes it.
struct Padding {
    source: Buffer,
    before: Vec<i64>,
    fill: f64,
}

/// Replaces reductions of windows, with the paddings that only they read.
pub fn take(items: &mut Vec<Item>, local: &mut Vec<Buffer>, o: &SchedOptions) {
    if !o.is_wide() {
        return;
    }
    let mut at = 0;
    while at < items.len() {
        let Some((pool, padding)) = found(items, at, local) else {
            at += 1;
            continue;
        };
        items[at] = Item::Pool(Box::new(pool));
        if let Some(first) = padding {
            items.remove(first);
            at -= 1;
        }
        at += 1;
    }
    local.retain(|b| items.iter().any(|i| i.reads(b) || i.writes(b)));
}

/// The reduction at `at`, and the place of the stage that pads what it reads.
fn found(items: &[Item], at: usize, local: &[Buffer]) -> Option<(Pool, Option<usize>)> {
    let Item::Stage(s) = &items[at] else { return None };
    let plain = Pool::of(s)?;
    let b = &plain.source;
    let users: Vec<usize> = (0..items.len()).filter(|&i| items[i].reads(b) || items[i].writes(b)).collect();
    let padding = match users.as_slice() {
        [first, last] if *last == at && local.contains(b) => match &items[*first] {
            Item::Stage(p) => padding(p).map(|p| (*first, p)),
            _ => None,
        },
        _ => None,
    };
    let unpadded = |p: Pool| p.worth().then_some((p, None));
    let Some((first, p)) = padding else { return unpadded(plain) };
    // Nor by the windows themselves, as a kernel that works in place would.
    let stays = !items[first..=at].iter().any(|i| i.writes(&p.source));
    match (s.accs[0].init.kind(), plain.op) {
        (PrimKind::Float(v), op) if stays && unchanged(op, v.0, p.fill) && p.source.ndim() >= 3 => {}
        _ => return unpadded(plain),
    }
    let (lead, rows) = p.before.split_at(p.before.len() - 2);
    let pool = Pool { source: p.source.clone(), before: [rows[0], rows[1]], ..plain };
    (lead.iter().all(|n| *n == 0) && pool.worth()).then_some((pool, Some(first)))
}

/// Whether elements of this value change nothing that begins with `init`.
fn unchanged(op: BinOp, init: f64, fill: f64) -> bool {
    match op {
        BinOp::Add => init == 0.0 && fill == 0.0,
        BinOp::Max => fill <= init,
        _ => fill >= init,
    }
}

/// A stage that is another buffer with a value around it.
fn padding(s: &Stage) -> Option<Padding> {
    let [out] = s.outs.as_slice() else { return None };
    if !s.accs.is_empty() || s.window.is_some() || s.given.is_some() {
        return None;
    }
    let vars: Vec<Var> = s.spatial.iter().map(|a| a.var.clone()).collect();
    if out.indices.len() != vars.len() || !out.indices.iter().zip(&vars).all(|(i, v)| i.as_var() == Some(v)) {
        return None;
    }
    let PrimKind::IfThenElse(inside, load, fill) = out.value.kind() else { return None };
    let (PrimKind::BufferLoad(source, at), PrimKind::Float(fill)) = (load.kind(), fill.kind()) else { return None };
    if source.ndim() != vars.len() || source.dtype() != DType::F32 || out.buffer.dtype() != DType::F32 {
        return None;
    }
    let none = Ranges::default();
    let mut before = vec![];
    for (i, v) in at.iter().zip(&vars) {
        before.push(Poly::var(v).sub(&Poly::of(i, &none)).as_const().filter(|n| *n >= 0)?);
    }
    // Each condition is one side of the source, and each side that there is has its condition.
    let mut sides = vec![[false; 2]; vars.len()];
    let mut rest = vec![inside];
    while let Some(c) = rest.pop() {
        let PrimKind::Binary(op, a, b) = c.kind() else { return None };
        let (op, a, b) = match op {
            BinOp::Le => (BinOp::Ge, b, a),
            BinOp::Gt => (BinOp::Lt, b, a),
            _ => (*op, a, b),
        };
        match op {
            BinOp::And => rest.extend([a, b]),
            BinOp::Ge | BinOp::Lt => {
                let i = vars.iter().position(|v| c.uses(v))?;
                let behind = Poly::var(&vars[i]).sub(&Poly::constant(before[i]));
                let d = Poly::of(a, &none).sub(&Poly::of(b, &none));
                let end = Poly::of(&source.shape[i], &none);
                let (side, is) = match op {
                    BinOp::Ge => (0, d == behind),
                    _ => (1, d == behind.sub(&end)),
                };
                if !is {
                    return None;
                }
                sides[i][side] = true;
            }
            _ => return None,
        }
    }
    for (i, a) in s.spatial.iter().enumerate() {
        let after = Poly::of(&a.extent, &none).sub(&Poly::of(&source.shape[i], &none)).as_const()? - before[i];
        if after < 0 || before[i] > 0 && !sides[i][0] || after > 0 && !sides[i][1] {
            return None;
        }
    }
    Some(Padding { source: source.clone(), before, fill: fill.0 })
}

impl Pool {
    /// Windows of what is read, not padded.
    fn of(s: &Stage) -> Option<Pool> {
        let ([acc], [out], [k0, k1]) = (s.accs.as_slice(), s.outs.as_slice(), s.reduce.as_slice()) else { return None };
        if s.window.is_some() || s.given.is_some() || !matches!(acc.init.kind(), PrimKind::Float(_)) {
            return None;
        }
        let PrimKind::Binary(op @ (BinOp::Add | BinOp::Max | BinOp::Min), a, x) = acc.update.kind() else {
            return None;
        };
        let PrimKind::BufferLoad(source, at) = x.kind() else { return None };
        let f32 = [acc.var.dtype(), source.dtype(), out.buffer.dtype()].iter().all(|d| *d == DType::F32);
        if a.as_var() != Some(&acc.var) || !f32 || at.len() < 3 {
            return None;
        }
        let (lead, rows) = at.split_at(at.len() - 2);
        let [y, x] = out.indices.get(out.indices.len().checked_sub(2)?..)? else { return None };
        let axis = |i: &PrimExpr| s.spatial.iter().find(|a| i.as_var() == Some(&a.var)).cloned();
        let axes = [axis(y)?, axis(x)?];
        let (mut steps, mut size, mut apart) = ([0; 2], [0; 2], [0; 2]);
        for (i, (k, v)) in [k0, k1].into_iter().zip(&axes).enumerate() {
            let p = Poly::of(&rows[i], &Ranges::default());
            let (step, rest) = p.split(&v.var)?;
            let (distance, rest) = rest.split(&k.var)?;
            (steps[i], apart[i], size[i]) = (step.as_const()?, distance.as_const()?, k.len()?);
            if !rest.is_zero() || steps[i] < 1 || apart[i] < 1 || size[i] < 2 {
                return None;
            }
        }
        let ours = |e: &PrimExpr| axes.iter().chain([k0, k1]).any(|a| e.uses(&a.var));
        let others = out.indices[..out.indices.len() - 2].iter();
        if lead.iter().chain(others).any(ours) || axes[0].var == axes[1].var || steps[1] > 2 {
            return None;
        }
        let (source, lead) = (source.clone(), lead.to_vec());
        Some(Pool { stage: s.clone(), op: *op, source, lead, out: axes, steps, size, apart, before: [0; 2] })
    }

    /// Rows of a known length, which are worth vectors and fit between.
    fn worth(&self) -> bool {
        let long = self.out[1].len().is_some_and(|n| n >= 8);
        let row = self.source.shape.last().and_then(|n| n.as_int()).is_some_and(|n| n >= 16);
        long && row && self.pitch() * 4 <= BYTES
    }

    /// Elements of a padded row that windows read.
    fn reach(&self) -> i64 {
        (self.out[1].len().unwrap_or(1) - 1) * self.steps[1] + (self.size[1] - 1) * self.apart[1] + 1
    }

    /// Where the plane begins in a row between, whose vectors lie in lines of the cache.
    fn begin(&self) -> i64 {
        (self.before[1] + 15) / 16 * 16
    }

    /// From one row between to the next.
    fn pitch(&self) -> i64 {
        (self.begin() - self.before[1] + self.reach() + 15) / 16 * 16
    }

    pub fn reads(&self, b: &Buffer) -> bool {
        let others = self.stage.outs.iter().flat_map(|o| o.indices.iter().chain([&o.value]));
        self.source == *b || others.chain(&self.lead).any(|e| super::stage::loads(e, b))
    }

    pub fn writes(&self, b: &Buffer) -> bool {
        self.stage.writes(b)
    }

    pub fn emit(&self, e: &mut Emit, o: &SchedOptions) -> Res<()> {
        for a in &self.stage.spatial {
            let extent = Poly::of(&a.extent, &e.ranges);
            e.ranges.add_loop(&a.var, Poly::default(), extent);
        }
        let planes: Vec<Axis> =
            (self.stage.spatial.iter()).filter(|a| self.out.iter().all(|o| o.var != a.var)).cloned().collect();
        let rows = (BYTES / (self.pitch() * 4)).clamp(1, ROWS);
        let between = e.sums((rows * self.pitch() * 4) as u32);
        self.planes(e, &planes, &between, rows, o)
    }

    fn planes(&self, e: &mut Emit, axes: &[Axis], between: &Var, rows: i64, o: &SchedOptions) -> Res<()> {
        let Some((first, rest)) = axes.split_first() else { return self.plane(e, between, rows, o) };
        let end = extent(e, first)?;
        e.for_loop(&first.var, PrimExpr::i64(0), end, 1, |e| self.planes(e, rest, between, rows, o))
    }

    fn plane(&self, e: &mut Emit, between: &Var, rows: i64, o: &SchedOptions) -> Res<()> {
        self.surround(e, between, rows);
        let [y, _] = &self.out;
        let end = extent(e, y)?;
        let block = Var::new("block", DType::I64);
        let count = Poly::of(&y.extent, &e.ranges);
        e.ranges.add_loop(&block, Poly::default(), count);
        e.for_loop(&block, PrimExpr::i64(0), end.clone(), rows, |e| {
            let last = e.hoist(end.min(block.expr() + rows));
            let at = |y: &Var| Poly::var(y).sub(&Poly::var(&block)).scale(self.pitch());
            e.for_loop(&y.var, block.expr(), last.clone(), 1, |e| self.down(e, between, &at(&y.var), o))?;
            e.for_loop(&y.var, block.expr(), last, 1, |e| self.across(e, between, &at(&y.var), o))
        })
    }

    /// The padding around rows between, which nothing else writes.
    fn surround(&self, e: &mut Emit, between: &Var, rows: i64) {
        let (from, to) = (self.begin() - self.before[1], self.begin() + self.width());
        let end = from + self.reach();
        for row in 0..rows {
            for i in (from..self.begin()).chain(to..end) {
                let (offset, value) = (PrimExpr::i64(row * self.pitch() + i), self.stage.accs[0].init.clone());
                e.push(FlatStmt::Store { ptr: between.expr(), offset, value });
            }
        }
    }

    /// Columns of the plane that windows read.
    fn width(&self) -> i64 {
        let all = self.source.shape.last().and_then(|n| n.as_int()).unwrap_or(0);
        all.min(self.reach() - self.before[1]).max(0)
    }

    /// The rows of the windows at `y`, combined.
    fn down(&self, e: &mut Emit, between: &Var, at: &Poly, o: &SchedOptions) -> Res<()> {
        let (column, k) = (Var::new("column", DType::I64), Var::new("k", DType::I64));
        let width = self.width();
        e.ranges.add_loop(&column, Poly::default(), Poly::constant(width));
        e.ranges.add_loop(&k, Poly::default(), Poly::constant(self.size[0]));
        let top = Poly::var(&self.out[0].var).scale(self.steps[0]).sub(&Poly::constant(self.before[0]));
        let height = Poly::of(&self.source.shape[self.source.ndim() - 2], &e.ranges);
        let row = |k: Poly| top.add(&k.scale(self.apart[0]));
        let load = |e: &Emit, row: &Poly| {
            let indices = [self.lead.as_slice(), &[row.expr(), column.expr()]].concat();
            e.flatten(&PrimExpr::load(&self.source, indices))
        };
        let offset = at.add(&Poly::constant(self.begin())).add(&Poly::var(&column)).expr();
        let store = |e: &mut Emit, value: PrimExpr| {
            let out = [Target { ptr: between.clone(), offset: offset.clone(), dtype: DType::F32, value }];
            let (lanes, registers) = self.strip(width, o);
            let (zero, end) = (PrimExpr::i64(0), PrimExpr::i64(width));
            strips(e, &column, zero, end, lanes, registers, 4, |e, lane| point(e, &out, lane))
        };
        let (first, last) = (row(Poly::default()), row(Poly::constant(self.size[0] - 1)));
        let begins = e.ranges.nonneg(&first);
        let (begin, end) = (e.index(&first)?, e.index(&last.sub(&height))?);
        let all = if begins { PrimExpr::bool(true) } else { begin.ge(0) };
        let all = if e.ranges.below(&last, &height) { all } else { all.and(end.lt(0)) };
        let whole = |e: &mut Emit| {
            let rows: Res<Vec<PrimExpr>> = (0..self.size[0]).map(|k| load(e, &row(Poly::constant(k)))).collect();
            let value = rows?.into_iter().reduce(|a, b| PrimExpr::binary(self.op, a, b));
            let value = value.ok_or_else(|| e.internal("a window without rows"))?;
            store(e, value)
        };
        // At the edges those rows alone that the plane has.
        let some = |e: &mut Emit| {
            store(e, self.stage.accs[0].init.clone())?;
            e.for_loop(&k, PrimExpr::i64(0), PrimExpr::i64(self.size[0]), 1, |e| {
                let row = row(Poly::var(&k));
                let (at, behind) = (e.index(&row)?, e.index(&row.sub(&height))?);
                let more = PrimExpr::load_ptr(between.expr(), offset.clone(), DType::F32);
                let value = PrimExpr::binary(self.op, more, load(e, &row)?);
                e.if_then(at.ge(0).and(behind.lt(0)), |e| store(e, value), |_| Ok(()))
            })
        };
        e.if_then(all, whole, some)
    }

    /// The columns of the windows of a row, combined and stored.
    fn across(&self, e: &mut Emit, between: &Var, at: &Poly, o: &SchedOptions) -> Res<()> {
        let [acc] = self.stage.accs.as_slice() else { return Err(e.internal("no accumulator")) };
        let mut outs = vec![];
        for o in &self.stage.outs {
            let (ptr, offset) = e.offset(&o.buffer, &o.indices)?;
            let value = e.flatten(&o.value)?;
            outs.push(Target { ptr, offset: offset.expr(), dtype: o.buffer.dtype(), value });
        }
        let x = &self.out[1];
        let first = at.add(&Poly::constant(self.begin() - self.before[1])).add(&Poly::var(&x.var).scale(self.steps[1]));
        let column = |k: i64| {
            let offset = first.add(&Poly::constant(k * self.apart[1]));
            PrimExpr::load_ptr(between.expr(), offset.expr(), DType::F32)
        };
        let value = (0..self.size[1]).fold(acc.init.clone(), |v, k| PrimExpr::binary(self.op, v, column(k)));
        let width = x.len().unwrap_or(0);
        let (lanes, registers) = self.strip(width, o);
        strips(e, &x.var, PrimExpr::i64(0), PrimExpr::i64(width), lanes, registers, 4, |e, lane| {
            let combined = e.value(&value, lane)?;
            let combined = e.bind("combined", spread(combined, lane.lanes));
            e.set_value(&acc.var, combined);
            point(e, &outs, lane)
        })
    }

    /// Lanes of a register, and how many are made at a time of a row.
    fn strip(&self, width: i64, o: &SchedOptions) -> (u16, u16) {
        let lanes = o.vector_bytes as i64 / 4;
        let whole = (width / lanes).max(1);
        let rounds = (whole + REGISTERS - 1) / REGISTERS;
        (lanes as u16, (whole / rounds) as u16)
    }
}

fn extent(e: &mut Emit, a: &Axis) -> Res<PrimExpr> {
    let end = Poly::of(&a.extent, &e.ranges);
    let end = e.index(&end)?;
    Ok(e.hoist(end))
}

#[cfg(test)]
mod tests {
    use super::super::{machine, plan, Item, SchedOptions};
    use crate::interp::{run, Arg};
    use crate::schedule::tests::Random;
    use relax_ir::tir::{KernelBuilder, PrimFunc, Reducer};
    use relax_ir::{DType, PrimExpr};

    struct Case {
        /// Of the plane, of a window, its steps, the distance of its elements, and the padding before and behind.
        plane: [i64; 2],
        size: [i64; 2],
        steps: [i64; 2],
        apart: [i64; 2],
        pads: [[i64; 2]; 2],
        mean: bool,
    }

    fn kernel(c: &Case) -> PrimFunc {
        let int = PrimExpr::i64;
        let whole: Vec<i64> = (0..2).map(|i| c.plane[i] + c.pads[i][0] + c.pads[i][1]).collect();
        let out: Vec<i64> = (0..2).map(|i| (whole[i] - (c.size[i] - 1) * c.apart[i] - 1) / c.steps[i] + 1).collect();
        let mut k = KernelBuilder::new("pool");
        let x = k.input("x", &[int(2), int(3), int(c.plane[0]), int(c.plane[1])], DType::F32);
        let lowest = PrimExpr::min_value(DType::F32);
        let fill = if c.mean { PrimExpr::f32(0.0) } else { lowest.clone() };
        let x = match c.pads.iter().flatten().any(|p| *p != 0) {
            false => x,
            true => k.compute("pad", &[int(2), int(3), int(whole[0]), int(whole[1])], DType::F32, |i| {
                let inside = (0..2).fold(PrimExpr::bool(true), |all, a| {
                    let (v, before) = (i[2 + a].clone(), c.pads[a][0]);
                    all.and(v.clone().ge(before)).and(v.lt(c.plane[a] + before))
                });
                let from = [i[0].clone(), i[1].clone(), i[2].clone() - c.pads[0][0], i[3].clone() - c.pads[1][0]];
                inside.if_then_else(x.at(from), fill)
            }),
        };
        let at = |i: &[PrimExpr], r: &[PrimExpr], a: usize| i[2 + a].clone() * c.steps[a] + r[a].clone() * c.apart[a];
        let element = |i: &[PrimExpr], r: &[PrimExpr]| x.at([i[0].clone(), i[1].clone(), at(i, r, 0), at(i, r, 1)]);
        let (shape, window) = ([int(2), int(3), int(out[0]), int(out[1])], c.size.map(int));
        let y = match c.mean {
            true => {
                let sum = k.sum("sum", &shape, DType::F32, &window, element);
                let count = k.compute("count", &[int(out[1])], DType::F32, |i| {
                    i[0].clone().cast(DType::F32) + PrimExpr::f32(1.0)
                });
                k.compute("y", &shape, DType::F32, |i| sum.at(i) / count.at([i[3].clone()]))
            }
            false => {
                k.reduce("y", &shape, DType::F32, &window, Reducer { init: lowest, combine: &|a, b| a.max(b) }, element)
            }
        };
        k.finish(&[y])
    }

    /// Whether all is as the interpreter has it, and whether windows were taken apart for these vectors.
    fn agrees(c: &Case, bytes: u32) -> bool {
        let f = kernel(c);
        let mut random = Random::new(3);
        let mut want: Vec<Arg> = f
            .buffers()
            .map(|b| {
                let shape: Vec<i64> = b.shape.iter().filter_map(PrimExpr::as_int).collect();
                Arg::Tensor(random.tensor(b.dtype(), &shape))
            })
            .collect();
        let mut got = want.clone();
        run(&f, &mut want).unwrap();
        let o = SchedOptions::vectors(bytes);
        machine::run(&f, &mut got, &o).unwrap();
        let (Some(Arg::Tensor(want)), Some(Arg::Tensor(got))) = (want.last(), got.last()) else { panic!("no result") };
        for (w, g) in want.to_f64().iter().zip(got.to_f64()) {
            assert!((w - g).abs() <= 1e-5 * (1.0 + w.abs()), "{w} is {g}");
        }
        plan(&f, &o).items.iter().any(|i| matches!(i, Item::Pool(_)))
    }

    #[test]
    fn windows_by_rows_and_columns() {
        let plain =
            Case { plane: [13, 37], size: [3, 3], steps: [2, 2], apart: [1, 1], pads: [[0, 0]; 2], mean: false };
        let cases = [
            Case { pads: [[1, 1]; 2], ..plain },
            Case { pads: [[1, 1]; 2], mean: true, ..plain },
            Case { steps: [1, 1], pads: [[1, 0], [2, 1]], ..plain },
            Case { size: [2, 2], ..plain },
            // Rows of which the plane has none, dilation, and more rows than are between at a time.
            Case { plane: [3, 130], size: [2, 5], apart: [1, 2], pads: [[4, 3], [8, 0]], ..plain },
            Case { plane: [40, 300], size: [4, 2], steps: [3, 1], apart: [2, 1], mean: true, ..plain },
        ];
        for c in &cases {
            assert!(agrees(c, 64) && agrees(c, 32) && !agrees(c, 16));
        }
        // Narrow planes, and steps that no vector makes.
        for c in [Case { plane: [13, 9], ..plain }, Case { steps: [2, 3], ..plain }] {
            assert!(!agrees(&c, 64));
        }
    }
}
