//! What the kernels of window operators share: how rows and columns of the result are cut into tiles, and what happens
//! to the sums of a tile.

use super::super::emit::{Emit, Lane, Res};
use super::super::map::{point, spread};
use super::super::nest::{used_plainly, Target};
use super::super::poly::Poly;
use super::super::reduce::{open_tiles, tiles_of, LINE};
use super::super::stage::Stage;
use super::super::SchedOptions;
use super::alike::{flattened, laid_down, pinned, product};
use super::{Kind, Sizes, Window};
use relax_ir::flat::FlatStmt;
use relax_ir::prim::{Intrin, PrimKind};
use relax_ir::tir::Buffer;
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// Vector registers for vectors of so many lanes.
pub fn registers(lanes: i64) -> i64 {
    if lanes == 16 {
        32
    } else {
        16
    }
}

/// Vectors of one tap that lie side by side: offset and lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    pub at: i64,
    pub lanes: i64,
}

/// `width` channels as vectors, and what is left of a multiple of 4 one by one.
pub fn pieces(width: i64, lanes: i64) -> Vec<Piece> {
    let mut out = vec![];
    let mut at = 0;
    for l in [16, 8, 4, 1] {
        while l <= lanes && width - at >= l {
            out.push(Piece { at, lanes: l });
            at += l;
        }
    }
    out
}

/// Vectors side by side in a tile of a convolution, at most.
pub fn most_pieces(lanes: i64) -> usize {
    match lanes {
        16 => 4,
        8 => 3,
        _ => 3,
    }
}

/// Rows of a tile of a convolution with so many vectors side by side, at most.
pub fn most_rows(lanes: i64, pieces: i64) -> i64 {
    match (registers(lanes), pieces) {
        // One vector of weights is read from memory.
        (32, 4) => 7,
        (32, 3) => 9,
        (32, _) => 14,
        (_, 1) => 10,
        (n, p) => (n - 1 - p) / p,
    }
}

/// Columns of the result that are computed alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// The first column, and the one behind the last.
    pub start: PrimExpr,
    pub end: PrimExpr,
    pub len: i64,
    /// Tiles of that length in a row, of a likely one where that is open.
    pub count: i64,
    /// Runs of taps, with the columns for which they lie inside of the data.
    pub groups: Vec<Group>,
    /// Whether they do is asked when the kernel runs.
    pub asks: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub tap: i64,
    pub taps: i64,
    pub inside: Vec<bool>,
}

/// Whether taps that lie behind one another in the weights do in the data, too.
fn is_run(w: &Window) -> bool {
    w.dilation[1] == 1 && w.groups == 1 && w.pitch == 0
}

/// The columns of a row of known length in tiles of `len`.
fn cuts(w: &Window, len: i64) -> Vec<Cut> {
    let mut out: Vec<Cut> = vec![];
    let columns = w.out[1];
    for start in (0..columns).step_by(len as usize) {
        let len = len.min(columns - start);
        let at = |tap: i64, i: i64| (start + i) * w.stride[1] + tap * w.dilation[1] - w.before[1];
        let groups = groups(w, &|tap| (0..len).map(|i| (0..w.size[1]).contains(&at(tap, i))).collect());
        match out.last_mut() {
            Some(c) if c.len == len && c.groups == groups => {
                c.count += 1;
                c.end = PrimExpr::i64(start + len);
            }
            _ => {
                let (start, end) = (PrimExpr::i64(start), PrimExpr::i64(start + len));
                out.push(Cut { start, end, len, count: 1, groups, asks: false });
            }
        }
    }
    out
}

/// The taps of a whole row of so many columns that are not multiplied with columns of zeros at its ends.
fn inner(w: &Window, columns: i64) -> Vec<Group> {
    // Where the steps are longer than a column, how many of those behind the last window is not known.
    let end = match w.stride[1] {
        1 => columns + (w.kernel[1] - 1) * w.dilation[1] - w.margin[1],
        _ => i64::MAX,
    };
    let at = |tap: i64, i: i64| i * w.stride[1] + tap * w.dilation[1];
    groups(w, &|tap| (0..columns).map(|i| (w.margin[0]..end).contains(&at(tap, i))).collect())
}

/// Runs of taps that are inside of the data for the same columns.
fn groups(w: &Window, inside: &dyn Fn(i64) -> Vec<bool>) -> Vec<Group> {
    let mut groups: Vec<Group> = vec![];
    for tap in 0..w.kernel[1] {
        let inside = inside(tap);
        match groups.last_mut() {
            Some(g) if is_run(w) && g.inside == inside && g.tap + g.taps == tap => g.taps += 1,
            _ if inside.contains(&true) => groups.push(Group { tap, taps: 1, inside }),
            _ => {}
        }
    }
    groups
}

/// Whether a column is inside of these bounds, of which those count that it [may miss](Window::may_miss).
pub fn inside_of(left: &PrimExpr, right: &PrimExpr, column: i64, misses: [bool; 2]) -> PrimExpr {
    match misses {
        [false, false] => PrimExpr::bool(true),
        [true, false] => left.clone().le(column),
        [false, true] => right.clone().gt(column),
        [true, true] => left.clone().le(column).and(right.clone().gt(column)),
    }
}

/// The longest tile for which there are registers, and lines of a set of the cache.
pub fn most_tile(w: &Window, lanes: i64, pieces: i64) -> i64 {
    // What is converted is no operand from memory.
    let fewer = w.half.is_some() && registers(lanes) == 32 && pieces == 4;
    let most = most_rows(lanes, pieces) - fewer as i64;
    match w.last && w.stride[1] * w.pixel() * 4 % 4096 == 0 {
        true => most.min(8),
        false => most,
    }
}

/// Cycles for a row of a window in panels of so many vectors and tiles of so many rows, where two vectors are multiplied
/// in a cycle. What a step reads is as dear as half of its multiplications there: weights come from the second-level cache.
pub fn cost_twice(w: &Window, lanes: i64, vectors: i64, rows: i64) -> f64 {
    let tile = |len: i64, vectors: i64| {
        let (len, vectors) = (len as f64, vectors as f64);
        let bytes = vectors * (4 * lanes) as f64 + len * 4.0;
        w.depth() as f64 * (step_twice(len, vectors) + bytes / 64.0) + 20.0 + len * vectors * 3.0
    };
    cost_of(w, lanes, vectors, rows, &tile)
}

/// The same where weights are in the first-level cache: four vectors side by side, of which one is read for every row, take
/// a little longer than two or three.
pub fn cost_near(w: &Window, lanes: i64, vectors: i64, rows: i64) -> f64 {
    let tile = |len: i64, vectors: i64| {
        let (len, vectors) = (len as f64, vectors as f64);
        let again = if vectors == 4.0 { 1.06 } else { 1.0 };
        w.depth() as f64 * step_twice(len, vectors) * again + 20.0 + len * vectors * 3.0
    };
    cost_of(w, lanes, vectors, rows, &tile)
}

/// The same where what a step reads comes in time for few rows alone.
pub fn cost_short(w: &Window, lanes: i64, vectors: i64, rows: i64) -> f64 {
    let tile = |len: i64, vectors: i64| {
        let (len, vectors) = (len as f64, vectors as f64);
        let waits = 1.0 + WAIT * (len - IN_TIME).max(0.0);
        w.depth() as f64 * step_twice(len, vectors) * waits + 20.0 + len * vectors * 3.0
    };
    cost_of(w, lanes, vectors, rows, &tile)
}

/// Rows that are read in time, and what each further one adds to the cycles of a step.
const IN_TIME: f64 = 8.0;
const WAIT: f64 = 0.012;

/// Cycles of a step of the reduction in a tile, where two vectors are multiplied and two are read in a cycle.
fn step_twice(len: f64, vectors: f64) -> f64 {
    // The last of four vectors of weights has no register.
    let again = if vectors == 4.0 { len } else { 0.0 };
    (len * vectors / 2.0).max((len + vectors + again) / 2.0).max(4.0)
}

/// Cycles for a row of a window, from those of a tile of so many rows and vectors.
fn cost_of(w: &Window, lanes: i64, vectors: i64, rows: i64, tile: &dyn Fn(i64, i64) -> f64) -> f64 {
    let row = |vectors: i64| {
        let rest = w.out[1] % rows;
        (w.out[1] / rows) as f64 * tile(rows, vectors) + if rest > 0 { tile(rest, vectors) } else { 0.0 }
    };
    let panel = vectors * lanes;
    let rest = pieces(w.made % panel, lanes).len() as i64;
    let cost = (w.made / panel) as f64 * row(vectors) + if rest > 0 { row(rest) } else { 0.0 };
    if comes_again(w, panel) {
        cost * 1.25
    } else {
        cost
    }
}

/// Whether the second-level cache does not hold a panel, so that it comes from beyond it for every row.
fn comes_again(w: &Window, panel: i64) -> bool {
    w.depth() * panel * 4 > NEAR_PANEL && w.out[0] > 1
}

/// The length of tiles that takes the least time, and that time in cycles for all columns of a row.
pub fn best_rows(w: &Window, lanes: i64, pieces: i64) -> (i64, f64) {
    let mut most = most_tile(w, lanes, pieces);
    if w.is_shared(lanes) {
        // The weights of all channels of a group stay in registers.
        most = most.min((registers(lanes) - w.reach() - 2) / pieces).max(1);
    }
    let mut best = (1, f64::MAX);
    for r in 1..=most.min(w.out[1].max(1)) {
        let cost = rows_cost(w, pieces, r);
        if cost < best.1 * 0.999 || cost < best.1 && r == w.out[1] {
            best = (r, cost);
        }
    }
    best
}

/// Products of so many steps: what tiles do beside them is next to nothing, so that those of few rows look as good as any. They read
/// their weights the more often, faster than a second-level cache has them.
const DEEP: i64 = 1024;

/// The length of tiles that takes the least time, weights that are read counted.
pub(super) fn deep_rows(w: &Window, lanes: i64) -> i64 {
    let vectors = pieces(w.panel, lanes).len() as i64;
    let most = most_tile(w, lanes, vectors).min(w.out[1].max(1));
    let cost = |rows: &i64| cost_twice(w, lanes, vectors, *rows);
    (1..=most).min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(1)
}

/// Cycles for all columns of a row in tiles of that length.
fn rows_cost(w: &Window, pieces: i64, rows: i64) -> f64 {
    let tile = |len: i64| {
        let step = ((len * pieces) as f64).max(pieces as f64 + len as f64 * 0.5).max(4.0);
        w.depth() as f64 * step + (20 + len * pieces * 3) as f64
    };
    let rest = w.out[1] % rows;
    (w.out[1] / rows) as f64 * tile(rows) + if rest > 0 { tile(rest) } else { 0.0 }
}

/// The length of tiles: as it has been chosen for a whole panel, else the best.
pub fn rows_of(w: &Window, lanes: i64, pieces: i64) -> i64 {
    match w.plan.rows {
        n if n > 0 && w.plan.lanes == lanes && pieces * lanes == w.panel => n.min(w.out[1].max(1)),
        _ => best_rows(w, lanes, pieces).0,
    }
}

/// Weights of a panel, in bytes, that stay in the first-level cache.
const NEAREST: i64 = 32 << 10;

/// Columns left over of an open row that are one tile, where weights are near.
const FEW_ALONE: i64 = 6;

/// Weights of a panel, in bytes, that stay in the second-level cache while tiles go by.
const NEAR_PANEL: i64 = 768 << 10;

/// As [`Window::choose_panel`].
pub fn best_panel(w: &Window, lanes: i64) -> i64 {
    if let Kind::Winograd(made) = w.kind {
        return best_panel(&product(w, super::winograd::Shape::new(w, made).tiles), lanes);
    }
    let mut best = (lanes, f64::MAX);
    for panel in w.panels(lanes).into_iter().rev() {
        let flat = flattened(w).or_else(|| laid_down(w));
        let cost = panel_cost(flat.as_ref().unwrap_or(w), lanes, (panel / lanes).max(1), None);
        if cost < best.1 * 0.99 || panel % lanes != 0 {
            best = (panel, cost);
        }
    }
    best.0
}

/// Cycles for a row of a window (flattened where that is possible) with panels of so many vectors; tiles of so many
/// rows, or the best.
pub fn panel_cost(w: &Window, lanes: i64, vectors: i64, rows: Option<i64>) -> f64 {
    let panel = vectors * lanes;
    let w = &Window { panel, ..w.clone() };
    let full = w.made / panel;
    let whole = || rows.map_or_else(|| best_rows(w, lanes, vectors).1, |r| rows_cost(w, vectors, r));
    let mut cost = if full > 0 { full as f64 * whole() } else { 0.0 };
    let rest = pieces(w.made % panel, lanes).len() as i64;
    if rest > 0 {
        cost += best_rows(w, lanes, rest).1;
    }
    if comes_again(w, panel) {
        cost *= 1.1;
    }
    // The data is read once for each panel.
    cost + (w.made as f64 / panel as f64).ceil() * (w.out[0] * w.out[1] * w.taken) as f64 * 0.02 / w.out[0] as f64
}

/// A stage on its way to a kernel.
#[derive(Clone)]
pub struct Run {
    pub w: Window,
    pub sizes: Sizes,
    pub x: Var,
    pub weight: Var,
    pub lanes: i64,
    /// The axes of the result.
    axes: Vec<Var>,
    acc: Var,
    targets: Vec<Target>,
    lane: Var,
    /// Sums go through memory before the epilogue, which needs many registers.
    stack: Option<Var>,
    /// Whether weights are asked for ahead.
    pub ahead: bool,
    /// Bytes behind them that are asked for, too.
    pub behind: i64,
    /// Panels of weights may be wider than the vectors side by side in a tile: they are made for wider ones.
    pub shared: bool,
    /// Rows of the result that are made, and the one behind them; without, all.
    pub rows: Option<(PrimExpr, PrimExpr)>,
    /// The result is read at once, and goes to memory that is in use.
    pub passed: bool,
}

/// What is emitted for a row of the result: where it is, the first tap's address, and the bounds of the rows of taps
/// that lie inside.
pub type RowBody<'a> = dyn FnMut(&mut Emit, &At, &PrimExpr, &PrimExpr, &PrimExpr) -> Res<()> + 'a;

/// What is emitted for a band of rows of the result.
pub type BandBody<'a> = dyn FnMut(&mut Emit, &At, &PrimExpr, (&PrimExpr, &PrimExpr)) -> Res<()> + 'a;

/// Where a tile is.
#[derive(Clone)]
pub struct At {
    pub batch: PrimExpr,
    pub row: PrimExpr,
    pub column: PrimExpr,
    pub channel: PrimExpr,
}

impl Run {
    /// `data`: the data and its weights.
    pub fn new(
        e: &mut Emit,
        s: &Stage,
        w: &Window,
        o: &SchedOptions,
        (x, weight): (&Buffer, &Buffer),
        sizes: Sizes,
        as_one_row: bool,
    ) -> Res<Run> {
        for a in &s.spatial {
            let extent = Poly::of(&a.extent, &e.ranges);
            e.ranges.add_loop(&a.var, Poly::default(), extent);
        }
        let mut axes: Vec<Var> = s.spatial.iter().map(|a| a.var.clone()).collect();
        let mut targets = vec![];
        for o in &s.outs {
            let (ptr, offset) = e.offset(&o.buffer, &o.indices)?;
            let value = e.flatten(&o.value)?;
            targets.push(Target { ptr, offset: offset.expr(), dtype: o.buffer.dtype(), value });
        }
        let pointer = |b: &Buffer| e.places.get(b).map(|p| p.ptr.clone());
        let (Some(x), Some(weight)) = (pointer(x), pointer(weight)) else {
            return Err(e.internal("a window without operands"));
        };
        let same = |e: &Emit, i: usize| Poly::of(&sizes.size[i], &e.ranges) == Poly::of(&sizes.out[i], &e.ranges);
        let flat = flattened(w).filter(|_| as_one_row);
        let flat = flat.filter(|_| same(e, 0) && same(e, 1) && walks_as_one(e, &targets, &axes, &sizes));
        let w = &pinned(w, &sizes).filter(|_| flat.is_none()).unwrap_or_else(|| w.clone());
        let laid = laid_down(w).filter(|_| as_one_row && flat.is_none() && !w.open);
        let sizes = sizes.flat(e)?;
        let sizes = match &flat {
            _ if laid.is_some() => {
                axes.swap(1, 2);
                let Sizes { batch, size: [h, w], out: [rows, columns] } = sizes;
                Sizes { batch, size: [w, h], out: [columns, rows] }
            }
            Some(_) => {
                let all = e.hoist(sizes.batch.clone() * sizes.size[0].clone() * sizes.size[1].clone());
                let one = PrimExpr::i64(1);
                Sizes { batch: one.clone(), size: [one.clone(), all.clone()], out: [one, all] }
            }
            None => sizes,
        };
        let heavy = targets.iter().map(|t| weight_of(&t.value)).sum::<usize>() > 6;
        let stack = heavy.then(|| e.sums(28 * 64));
        Ok(Run {
            w: flat.or(laid).unwrap_or_else(|| w.clone()),
            sizes,
            x,
            weight,
            lanes: o.vector_bytes as i64 / 4,
            axes,
            acc: s.accs[0].var.clone(),
            targets,
            lane: Var::new("lane", DType::I64),
            stack,
            ahead: o.is_wide() && o.ahead,
            behind: o.behind,
            shared: o.shared,
            rows: None,
            passed: false,
        })
    }

    /// The product of rows of `x` with weights, stored to `out` as it is: `rows`, or `count` where that is open.
    pub fn product(&self, x: Var, weight: Var, out: Var, rows: i64, count: PrimExpr) -> Run {
        let axes: Vec<Var> = ["n", "h", "w", "c"].iter().map(|n| Var::new(*n, DType::I64)).collect();
        let acc = Var::new("acc", DType::F32);
        let offset = axes[2].expr() * self.w.made + axes[3].expr();
        let targets = vec![Target { ptr: out, offset, dtype: DType::F32, value: acc.expr() }];
        let mut w = product(&self.w, rows);
        if w.plan.rows == 0 && w.taken >= DEEP {
            (w.plan.rows, w.plan.lanes) = (deep_rows(&w, self.lanes), self.lanes);
        }
        let sizes = match w.open {
            true => {
                let one = PrimExpr::i64(1);
                Sizes { batch: one.clone(), size: [one.clone(), count.clone()], out: [one, count] }
            }
            false => w.sizes(),
        };
        let lane = Var::new("lane", DType::I64);
        let ahead = self.ahead;
        let (behind, shared, stack, rows, passed) = (0, false, None, None, false);
        Run {
            w,
            sizes,
            x,
            weight,
            lanes: self.lanes,
            axes,
            acc,
            targets,
            lane,
            stack,
            ahead,
            behind,
            shared,
            rows,
            passed,
        }
    }

    /// The same with another window over the same tensors.
    pub fn with(&self, w: Window) -> Run {
        Run { w, ..self.clone() }
    }

    pub fn registers(&self) -> i64 {
        registers(self.lanes)
    }

    /// Elements between neighbours of the data: batch, row, column, channel.
    pub fn strides(&self) -> [PrimExpr; 4] {
        let [h, w] = self.sizes.size.clone();
        let (c, p) = (self.w.taken, self.w.pixel());
        let area = h * w.clone();
        match self.w.last {
            true => [area * p, w * p, PrimExpr::i64(p), PrimExpr::i64(1)],
            false => [area.clone() * c, w, PrimExpr::i64(1), area],
        }
    }

    /// Elements between neighbouring columns of the data.
    pub fn apart(&self) -> i64 {
        if self.w.last {
            self.w.pixel()
        } else {
            1
        }
    }

    /// The columns of a row in tiles of `len`.
    pub fn cuts(&self, e: &mut Emit, len: i64) -> Vec<Cut> {
        let w = &self.w;
        if !w.open {
            return cuts(w, len);
        }
        let columns = self.sizes.out[1].clone();
        // Weights from beyond the first-level cache are read once more for another tile.
        let far = w.depth() * w.panel * 4 > NEAREST;
        let alone = if far { len } else { len.min(FEW_ALONE) };
        let all = |len: i64| groups(w, &|_| vec![true; len as usize]);
        let (mut out, mut start) = (vec![], PrimExpr::i64(0));
        if w.has_edges() {
            // Tiles of whole length: those with columns whose windows begin before the data, and those whose windows all
            // lie inside of it. All others ask.
            let (before, stride) = (w.before[1], w.stride[1]);
            let left = (before + stride * len - 1) / (stride * len) * len;
            let reach = self.sizes.size[1].clone() + (before - (w.kernel[1] - 1) * w.dilation[1] + stride - 1);
            let inside = e.hoist(reach.floor_div(stride).min(columns.clone()));
            let wide = columns.clone().ge(left);
            let first = e.hoist(wide.clone().select(PrimExpr::i64(left), PrimExpr::i64(0)));
            let whole = e.whole(&first, &inside, len);
            let end = e.hoist(wide.select(whole.max(first.clone()), PrimExpr::i64(0)));
            let count = w.out[1] / len;
            let zero = PrimExpr::i64(0);
            out.push(Cut { start: zero, end: first.clone(), len, count, groups: all(len), asks: true });
            out.push(Cut { start: first, end: end.clone(), len, count, groups: all(len), asks: false });
            start = end;
        }
        let mut likely = tiles_of(w.out[1], len, alone);
        if w.is_bordered() && far && len >= w.out[1] {
            // A row that is one tile leaves out the zeros at its ends.
            for size in (len / 2 + 1..=len).rev() {
                let here = columns.clone().eq(size).select(PrimExpr::i64(size), start.clone());
                let end = e.hoist(here);
                let count = (size == w.out[1]) as i64;
                let groups = inner(w, size);
                out.push(Cut { start, end: end.clone(), len: size, count, groups, asks: false });
                start = end;
            }
            likely.retain(|_| w.out[1] <= len / 2);
        }
        let left = e.hoist(columns - start.clone());
        let first = start.clone();
        for (end, len) in open_tiles(e, &left, len, alone) {
            let end = e.hoist(first.clone() + end);
            let count = likely.iter().filter(|l| **l == len).count() as i64;
            out.push(Cut { start, end: end.clone(), len, count, groups: all(len), asks: w.has_edges() });
            start = end;
        }
        out
    }

    /// The first column under a tile that begins at this one of the result which is inside of the data, and the one behind
    /// the last.
    pub fn inside(&self, e: &mut Emit, column: &PrimExpr) -> (PrimExpr, PrimExpr) {
        let left = e.hoist(PrimExpr::i64(self.w.before[1]) - column.clone() * self.w.stride[1]);
        (left.clone(), e.hoist(left + self.sizes.size[1].clone()))
    }

    /// Loops over batch and rows; the body gets both, the address of the first tap's row at the first column, and the
    /// bounds of the rows of taps that lie inside.
    pub fn rows(&self, e: &mut Emit, body: &mut RowBody) -> Res<()> {
        let line = e.hoist(self.strides()[1].clone() * 4);
        self.bands(e, 1, &mut |e, at, image, (row, _)| {
            let (first, lo, hi) = self.taps(e, row);
            let pointer = e.bind("p", image.clone().ptr_add(first * line.clone()));
            body(e, at, &pointer, &lo, &hi)
        })
    }

    /// Loops over batch and bands of so many rows; the body gets the first row, the address of the data's first row at the
    /// first column, and the band's first row and the one behind its last.
    pub fn bands(&self, e: &mut Emit, band: i64, body: &mut BandBody) -> Res<()> {
        let (n, row) = (Var::new("n", DType::I64), Var::new("row", DType::I64));
        let Sizes { batch, out, .. } = self.sizes.clone();
        for (v, end) in [(&n, &batch), (&row, &out[0])] {
            let extent = Poly::of(end, &e.ranges);
            e.ranges.add_loop(v, Poly::default(), extent);
        }
        let image = e.hoist(self.strides()[0].clone() * 4);
        let zero = PrimExpr::i64(0);
        let (first, end) = self.rows.clone().unwrap_or((zero.clone(), out[0].clone()));
        e.for_loop(&n, zero.clone(), batch, 1, |e| {
            e.for_loop(&row, first, end.clone(), band, |e| {
                let at = n.expr() * image - self.w.before[1] * self.apart() * 4;
                let pointer = e.bind("p", self.x.expr().ptr_add(at));
                let end = match band {
                    1 => row.expr() + 1,
                    _ => e.bind("end", (row.expr() + band).min(end.clone())),
                };
                let at = At { batch: n.expr(), row: row.expr(), column: zero.clone(), channel: zero.clone() };
                body(e, &at, &pointer, (&row.expr(), &end))
            })
        })
    }

    /// The first row of data under a row of the result, and the bounds of the rows of taps that lie inside.
    pub fn taps(&self, e: &mut Emit, row: &PrimExpr) -> (PrimExpr, PrimExpr, PrimExpr) {
        let w = &self.w;
        let Sizes { size, out, .. } = &self.sizes;
        let first = row.clone() * w.stride[0] - w.before[0];
        let dilation = w.dilation[0];
        let reach = (w.out[0] - 1) * w.stride[0] + (w.kernel[0] - 1) * dilation - w.before[0];
        // Taps from the first row of the data on, and before its end.
        let taps = |rows: PrimExpr| match dilation {
            1 => rows,
            d => (rows + (d - 1)).floor_div(d),
        };
        let lo = match w.before[0] {
            0 => PrimExpr::i64(0),
            _ => e.bind("lo", taps((PrimExpr::i64(0) - first.clone()).max(0))),
        };
        // With one tap, too, open rows may end behind the data: where it is padded there alone.
        let as_tall = w.stride[0] == 1 && Poly::of(&out[0], &e.ranges) == Poly::of(&size[0], &e.ranges);
        let beyond = match w.open {
            true => w.kernel[0] > 1 || w.before[0] > 0 || !as_tall,
            false => reach >= w.size[0],
        };
        let hi = match beyond {
            true => e.bind("hi", taps(size[0].clone() - first.clone()).min(w.kernel[0])),
            false => PrimExpr::i64(w.kernel[0]),
        };
        (first, lo, hi)
    }

    /// A loop over the tiles of a cut; the body gets the first column and its address.
    pub fn columns(
        &self,
        e: &mut Emit,
        cut: &Cut,
        row: &PrimExpr,
        body: &mut dyn FnMut(&mut Emit, PrimExpr, PrimExpr) -> Res<()>,
    ) -> Res<()> {
        let column = Var::new("column", DType::I64);
        let start = Poly::of(&cut.start, &e.ranges);
        let extent = Poly::of(&cut.end, &e.ranges).sub(&start);
        e.ranges.add_loop(&column, start, extent);
        let step = self.w.stride[1] * self.apart() * 4;
        e.for_loop(&column, cut.start.clone(), cut.end.clone(), cut.len, |e| {
            let p = e.bind("p", row.clone().ptr_add(column.expr() * step));
            body(e, column.expr(), p)
        })
    }

    /// Accumulators of a tile, rows first.
    pub fn sums(&self, e: &mut Emit, rows: i64, pieces: &[Piece]) -> Vec<Vec<Var>> {
        self.starting(e, rows, pieces, PrimExpr::zero(DType::F32))
    }

    /// The same, with another value to begin with.
    pub fn starting(&self, e: &mut Emit, rows: i64, pieces: &[Piece], value: PrimExpr) -> Vec<Vec<Var>> {
        let start = |e: &mut Emit, p: &Piece| e.local("acc", spread(value.clone(), p.lanes as u16));
        (0..rows).map(|_| pieces.iter().map(|p| start(e, p)).collect()).collect()
    }

    /// The epilogue of a tile: rows are neighbouring columns of the result.
    pub fn finish(&self, e: &mut Emit, at: &At, pieces: &[Piece], sums: &[Vec<Var>]) -> Res<()> {
        let Some(stack) = &self.stack else {
            for (i, row) in sums.iter().enumerate() {
                for (p, sum) in pieces.iter().zip(row) {
                    self.point(e, at, PrimExpr::i64(i as i64), p, sum.expr())?;
                }
            }
            return Ok(());
        };
        let width: i64 = pieces.iter().map(|p| p.lanes).sum();
        let first = pieces.first().map_or(0, |p| p.at);
        for (i, row) in sums.iter().enumerate() {
            for (p, sum) in pieces.iter().zip(row) {
                let offset = PrimExpr::i64(i as i64 * width + p.at - first);
                e.push(FlatStmt::Store { ptr: stack.expr(), offset, value: sum.expr() });
            }
        }
        // Long chains of operations overlap where several vectors go through them side by side.
        let together = if self.registers() == 32 { 4 } else { 2 };
        let i = Var::new("i", DType::I64);
        e.ranges.add_loop(&i, Poly::default(), Poly::constant(sums.len() as i64));
        e.for_loop(&i, PrimExpr::i64(0), PrimExpr::i64(sums.len() as i64), 1, |e| {
            for side_by_side in pieces.chunks(together) {
                let lanes = side_by_side.iter().map(|p| p.lanes).sum();
                let p = Piece { at: side_by_side[0].at, lanes };
                let offset = i.expr() * width + (p.at - first);
                let sum = PrimExpr::load_ptr(stack.expr(), offset, DType::F32.with_lanes(p.lanes as u16));
                let sum = e.bind("sum", sum);
                self.point(e, at, i.expr(), &p, sum)?;
            }
            Ok(())
        })
    }

    /// Asks for the lines of the results that the tile one row further down will write.
    pub fn ask_below(&self, e: &mut Emit, at: &At, len: i64, pieces: &[Piece]) {
        let width: i64 = pieces.iter().map(|p| p.lanes).sum();
        let first = pieces.first().map_or(0, |p| p.at);
        for o in &self.targets {
            let offset = Poly::of(&o.offset, &e.ranges);
            let apart = |axis: usize| offset.split(&self.axes[axis]).and_then(|(stride, _)| stride.as_const());
            let (Some(column), Some(1)) = (apart(2), apart(3)) else { continue };
            let values = [at.batch.clone(), at.row.clone() + 1, at.column.clone(), at.channel.clone() + first];
            let map: HashMap<Var, PrimExpr> = self.axes.iter().cloned().zip(values).collect();
            let bytes = o.dtype.bytes() as i64;
            let below = e.bind("below", o.ptr.expr().ptr_add(o.offset.substitute(&map) * bytes));
            for i in 0..len {
                for line in (0..width * bytes).step_by(LINE as usize) {
                    e.push(FlatStmt::Prefetch { ptr: below.clone().ptr_add(i * column * bytes + line) });
                }
            }
        }
    }

    /// The outputs of one vector of sums.
    pub fn point(&self, e: &mut Emit, at: &At, i: PrimExpr, p: &Piece, sum: PrimExpr) -> Res<()> {
        let channel = at.channel.clone() + p.at + self.lane.expr();
        let values = [at.batch.clone(), at.row.clone(), at.column.clone() + i, channel];
        let map: HashMap<Var, PrimExpr> = self.axes.iter().cloned().zip(values).collect();
        let mut outs = self.targets.clone();
        for o in &mut outs {
            o.offset = o.offset.substitute(&map);
            o.value = o.value.substitute(&map);
        }
        e.set_value(&self.acc, sum);
        e.start_lane(&self.lane, false);
        let r = point(e, &outs, &Lane::of(&self.lane, p.lanes as u16));
        e.end_lane(&self.lane);
        r
    }
}

/// Operations of an epilogue that take registers of their own; what is read twice is computed once.
fn weight_of(value: &PrimExpr) -> usize {
    let mut met: Vec<PrimExpr> = vec![];
    let mut n = 0;
    value.walk(&mut |x| {
        let own = match x.kind() {
            PrimKind::Call(Intrin::Abs | Intrin::Fabs | Intrin::Sqrt | Intrin::Floor | Intrin::Fma, _) => 1,
            PrimKind::Call(..) => 100,
            PrimKind::Binary(..) if x.dtype().is_float() => 1,
            PrimKind::Select(..) | PrimKind::IfThenElse(..) => 2,
            _ => return,
        };
        if !met.contains(x) {
            met.push(x.clone());
            n += own;
        }
    });
    n
}

/// Whether batch, rows and columns of everything outside of the window lie behind one another.
fn walks_as_one(e: &Emit, targets: &[Target], axes: &[Var], sizes: &Sizes) -> bool {
    let [rows, columns] = [0, 1].map(|i| Poly::of(&sizes.size[i], &e.ranges));
    let [n, h, c] = [&axes[0], &axes[1], &axes[2]];
    let mut offsets = vec![];
    for t in targets {
        offsets.push(Poly::of(&t.offset, &e.ranges));
        if [n, h, c].iter().any(|v| used_plainly(&t.value, v)) {
            return false;
        }
        t.value.walk(&mut |x| {
            if let PrimKind::Load { offset, .. } = x.kind() {
                offsets.push(Poly::of(offset, &e.ranges));
            }
        });
    }
    offsets.iter().all(|p| {
        let stride = |v: &Var| p.split(v).map(|(s, _)| s);
        match (stride(n), stride(h), stride(c)) {
            (Some(n), Some(h), Some(c)) => {
                (sizes.size[0].is_int(1) || h == c.mul(&columns))
                    && (sizes.batch.is_int(1) || n == c.mul(&columns).mul(&rows))
            }
            _ => false,
        }
    })
}
