//! Images of sizes that are known when a kernel runs: where its loops get them from, and rows cut into tiles.

use super::{c, let_, steps, Body, Conv, Writer};
use relax_ir::flat::FlatStmt;
use relax_ir::tir::PrimFunc;
use relax_ir::{DType, PrimExpr};

/// How many images there are, and their rows and columns: of the data and of the result with their borders, and of what
/// is computed. See [`Conv`].
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    pub batch: PrimExpr,
    pub in_h: PrimExpr,
    pub in_w: PrimExpr,
    pub rows: PrimExpr,
    pub columns: PrimExpr,
    pub out_h: PrimExpr,
    pub out_w: PrimExpr,
}

impl Conv {
    /// The sizes, where they are known.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            batch: c(self.batch),
            in_h: c(self.in_h),
            in_w: c(self.in_w),
            rows: c(self.rows),
            columns: c(self.columns),
            out_h: c(self.out_h),
            out_w: c(self.out_w),
        }
    }

    /// The sizes over data and a result of these: batch, rows and columns with the borders.
    pub fn sizes_of(&self, x: &[PrimExpr; 3], y: &[PrimExpr; 3]) -> Sizes {
        let [batch, in_h, in_w] = x.clone();
        let [_, out_h, out_w] = y.clone();
        let rows = out_h.clone() - (self.out_h - self.rows);
        let columns = out_w.clone() - (self.out_w - self.columns);
        Sizes { batch, in_h, in_w, rows, columns, out_h, out_w }
    }
}

impl Sizes {
    /// Dims of the data.
    pub(super) fn input(&self, channels: i64) -> [PrimExpr; 4] {
        [self.batch.clone(), self.in_h.clone(), self.in_w.clone(), c(channels)]
    }

    /// Dims of the result.
    pub(super) fn output(&self, channels: i64) -> [PrimExpr; 4] {
        [self.batch.clone(), self.out_h.clone(), self.out_w.clone(), c(channels)]
    }

    /// Dims of what is computed.
    pub(super) fn computed(&self, channels: i64) -> [PrimExpr; 4] {
        [self.batch.clone(), self.rows.clone(), self.columns.clone(), c(channels)]
    }

    /// Bytes from one row of the data to the next.
    pub(super) fn stride(&self, conv: &Conv, out: &mut Body) -> PrimExpr {
        let_(out, "stride", self.in_w.clone() * conv.in_c)
    }

    /// Those of a kernel's arguments, the first and the last of which are data and result.
    pub(super) fn of(f: &PrimFunc, conv: &Conv) -> Sizes {
        let images = |shape: &[PrimExpr]| Some([0, 1, 2].map(|i| shape[i].clone().cast(DType::I64)));
        let first = f.buffers().next().filter(|b| b.ndim() == 4).and_then(|b| images(&b.shape));
        let last = f.buffers().last().filter(|b| b.ndim() == 4).and_then(|b| images(&b.shape));
        match (first, last) {
            (Some(x), Some(y)) if conv.open => conv.sizes_of(&x, &y),
            _ => conv.sizes(),
        }
    }

    /// The same where the data is planes of floats without a border.
    pub(super) fn of_planes(f: &PrimFunc, conv: &Conv) -> Sizes {
        let y = f.buffers().last().filter(|b| b.ndim() == 4 && conv.open);
        let y = y.map(|b| [0, 1, 2].map(|i| b.shape[i].clone().cast(DType::I64)));
        y.map_or_else(|| conv.sizes(), |y| conv.sizes_of(&y, &y))
    }

    /// As names, numbers aside.
    pub(super) fn named(self, out: &mut Body) -> Sizes {
        let Sizes { batch, in_h, in_w, rows, columns, out_h, out_w } = self;
        let count = |out: &mut Body, name: &str, n: PrimExpr| match n.as_int() {
            Some(_) => n,
            None => let_(out, name, n.max(0i64)),
        };
        let rows = count(out, "rows", rows);
        let columns = count(out, "columns", columns);
        Sizes { batch, in_h, in_w, rows, columns, out_h, out_w }
    }
}

impl Writer<'_> {
    /// Rows of the kernel and their pixels: all pixels of an image are one row, where nothing lies between its rows.
    pub(super) fn lines(&self, out: &mut Body) -> (PrimExpr, PrimExpr) {
        let s = &self.sizes;
        match self.conv.is_dense() {
            true => (c(1), let_(out, "pixels", s.rows.clone() * s.columns.clone())),
            false => (s.rows.clone(), s.columns.clone()),
        }
    }

    /// Where the rows under a window that begins at `from` begin, if that is open.
    pub(super) fn kernel_rows(&self, out: &mut Body, from: &PrimExpr) -> Option<Vec<PrimExpr>> {
        if self.sizes.in_w.as_int().is_some() {
            return None;
        }
        let mut lines = vec![let_(out, "line", from.clone())];
        for i in 1..self.conv.k_h as usize {
            let next = lines[i - 1].clone().ptr_add(self.stride.clone());
            lines.push(let_(out, "line", next));
        }
        Some(lines)
    }

    /// A row of so many pixels in tiles of `most`.
    pub(super) fn cut(&self, out: &mut Body, row: &PrimExpr, most: i64) -> Cut {
        let most = most.max(1);
        if let Some(n) = row.as_int() {
            let whole = n / most * most;
            return Cut { most, whole: c(whole), left: c(n - whole), tiles: c(1), first: c(n - whole) };
        }
        if most == 1 {
            return Cut { most, whole: row.clone(), left: c(0), tiles: c(0), first: c(0) };
        }
        let rest = let_(out, "rest", row.clone().floor_mod(most));
        let longest = longest_left(most);
        let few = rest.clone().gt(0).and(rest.clone().le((most / 2).min(2 * longest - most))).and(row.clone().gt(most));
        let whole = let_(out, "whole", row.clone() - rest - few.select(c(most), c(0)));
        let left = let_(out, "left", row.clone() - whole.clone());
        let tiles = let_(out, "tiles", (left.clone() + (longest - 1)).floor_div(longest));
        // The first of two is the larger one.
        let first = let_(out, "first", left.clone() - (tiles.clone() - 1i64) * left.clone().floor_div(2i64));
        Cut { most, whole, left, tiles, first }
    }

    /// `f(first, pixels)` for all tiles of a row.
    pub(super) fn in_tiles(&self, out: &mut Body, cut: &Cut, f: &mut dyn FnMut(&mut Body, PrimExpr, i64)) {
        let Cut { most, whole, left, tiles, first } = cut;
        steps(out, &c(0), whole, *most, &mut |out, x| f(out, x, *most));
        if let Some(left) = left.as_int() {
            if left > 0 {
                f(out, whole.clone(), left);
            }
            return;
        }
        steps(out, &c(0), tiles, 1, &mut |out, i| {
            let size = let_(out, "size", first.clone() + i.clone() * (left.clone() - first.clone() * 2i64));
            let x = let_(out, "x", whole.clone() + i * first.clone());
            one_of(out, &size, 1, longest_left(*most), &mut |out, size| f(out, x.clone(), size));
        });
    }
}

/// Pixels of a tile of what is left of an open row, at most: there is code for each number up to it.
fn longest_left(most: i64) -> i64 {
    (most - 1).min(8)
}

/// A row of pixels in tiles: whole ones of `most`, and what is left in one. Of an open row what is left is one or two tiles
/// of nearly the same size, with the last whole one where it would be small.
pub(super) struct Cut {
    most: i64,
    /// Pixels of the whole tiles.
    whole: PrimExpr,
    /// Pixels behind them, in so many tiles, the first of which has so many.
    left: PrimExpr,
    tiles: PrimExpr,
    first: PrimExpr,
}

/// `f` of `n`, which is one of `low..=high`.
fn one_of(out: &mut Body, n: &PrimExpr, low: i64, high: i64, f: &mut dyn FnMut(&mut Body, i64)) {
    if low == high {
        return f(out, low);
    }
    let half = (low + high + 1) / 2;
    let (mut then, mut otherwise) = (vec![], vec![]);
    one_of(&mut then, n, low, half - 1, f);
    one_of(&mut otherwise, n, half, high, f);
    out.push(FlatStmt::If { cond: n.clone().lt(c(half)), then, otherwise });
}
