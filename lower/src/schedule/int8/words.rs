//! Convolutions for 256-bit vectors that multiply int16: the data becomes int16 in the workspace, once for all channels,
//! block of rows by block of rows.
//!
//! Of each four bytes the even ones stand before the odd ones, as the multiplications take them.

use super::ahead::Ahead;
use super::depthwise::interleave;
use super::{c, for_, let_, load, steps, words, Body, Conv, Form, Group, Panel, Writer};
use relax_ir::flat::FlatStmt;
use relax_ir::prim::{Intrin, Var};
use relax_ir::{DType, PrimExpr};

/// Bytes of a block in the workspace, about: a part of the second-level cache.
pub(super) const BLOCK: i64 = 416 << 10;
/// Lanes of a vector, and channels that are computed together.
pub(super) const LANES: i64 = 8;
pub(super) const TOGETHER: i64 = 2 * LANES;
/// Pixels beside them, at most.
const PIXELS: i64 = 6;
/// Pairs of inputs in a round of the innermost loop, at most.
const UNROLLED: i64 = 8;
/// Pixels that are worth it.
const LEAST: i64 = 16;

/// Rows of the result that are computed together.
pub(super) struct Words {
    /// So many.
    rows: i64,
    /// Rows of the data under them.
    lines: i64,
    /// Rows of the data in the workspace from one row of the result to the next, and in the data.
    step: i64,
    apart: i64,
}

impl Words {
    /// Of the data in the workspace.
    fn bytes(&self, v: &Conv) -> i64 {
        self.lines * v.in_w * v.in_c * 2
    }
}

impl Panel {
    /// Its channels are some times those that are computed together.
    pub(super) fn in_words(&self) -> bool {
        self.lanes >= LANES && self.width() % TOGETHER == 0
    }
}

impl Conv {
    /// Pairs of inputs in a row of the window.
    fn pairs(&self) -> i64 {
        self.k_w * self.in_c / 2
    }

    /// Whether it is worth to have int16 of the data.
    pub(super) fn takes_words(&self, form: Form) -> bool {
        let most = self.panels().iter().filter(|p| p.in_words()).map(|p| p.end - p.start).sum::<i64>();
        let fits = form.vector_bytes == 32 && !form.dot4 && !self.open && !self.depthwise;
        let uses = most * self.k_h * self.k_w;
        fits && uses >= 2 * TOGETHER && self.rows * self.columns >= LEAST && self.in_w * self.in_c >= 16
    }

    /// How the data becomes int16.
    pub(super) fn in_words(&self, form: Form) -> Option<Words> {
        if !self.takes_words(form) {
            return None;
        }
        let one = self.k_h == 1;
        let lines = |rows: i64| if one { rows } else { (rows - 1) * self.stride_h + self.k_h };
        let bytes = |rows: i64| lines(rows) * self.in_w * self.in_c * 2;
        let rows = (1..=self.rows).rev().find(|n| self.rows % n == 0 && (bytes(*n) <= BLOCK || *n == 1))?;
        let (step, apart) = if one { (1, self.stride_h) } else { (self.stride_h, 1) };
        Some(Words { rows, lines: lines(rows), step, apart })
    }

    /// Bytes of workspace of the form with vectors of so many bytes.
    pub fn workspace(&self, vector_bytes: i64) -> i64 {
        let form = Form { vector_bytes, dot4: false, tiles: false };
        match (self.in_squares(form), self.in_words(form)) {
            (Some(s), _) => self.square_bytes(&s).iter().sum(),
            (None, Some(w)) => w.bytes(self) + self.depth() * TOGETHER * 2,
            (None, None) => 0,
        }
    }
}

impl Writer<'_> {
    /// All pixels of all channels.
    pub(super) fn in_words(&self, out: &mut Body, w: &Words) {
        let v = self.conv;
        let panels = v.panels();
        let ws = self.piece(out, "words", 0);
        let data = self.piece(out, "data", v.depth() * TOGETHER * 2);
        steps(out, &c(0), &c(v.batch), 1, &mut |out, n| {
            steps(out, &c(0), &c(v.rows), w.rows, &mut |out, row| {
                let first = (n.clone() * v.in_h + row.clone() * v.stride_h + v.off_h) * (v.in_w * v.in_c);
                let from = let_(out, "from", self.x.expr().ptr_add(first));
                self.fill_words(out, w, &from, &data);
                let first = (n.clone() * v.out_h + row + v.top) * v.out_w + v.left;
                let first = let_(out, "first", first * v.channels);
                for p in panels.iter().filter(|p| p.in_words()) {
                    for_(out, c(p.start), c(p.end), TOGETHER, &mut |out, channel| {
                        self.fill_weights(out, p, &channel, &ws);
                        self.rows_of_block(out, w, p, [&channel, &first, &data, &ws]);
                    });
                }
            });
        });
        panels.iter().filter(|p| !p.in_words()).for_each(|p| self.all_of(out, p));
    }

    /// Rows of the data as int16.
    fn fill_words(&self, out: &mut Body, w: &Words, from: &PrimExpr, data: &PrimExpr) {
        let v = self.conv;
        let line = v.in_w * v.in_c;
        // The last vector of a row may begin within the one before.
        let lanes = if line % 32 == 0 { LANES } else { LANES / 2 };
        let ints = DType::I32.with_lanes(lanes as u16);
        for_(out, c(0), c(w.lines), 1, &mut |out, i| {
            let from = let_(out, "from", from.clone().ptr_add(i.clone() * (w.apart * line)));
            let to = let_(out, "to", data.clone().ptr_add(i * (line * 2)));
            for_(out, c(0), c(line / 4), lanes, &mut |out, at| {
                let at = if line / 4 % lanes == 0 { at } else { let_(out, "at", at.min(c(line / 4 - lanes))) };
                let bytes = let_(out, "bytes", load(&from, at.clone(), ints));
                let [even, odd] = [0, 1].map(|odd| words(&bytes, odd, false));
                let (even, odd) = (let_(out, "even", even), let_(out, "odd", odd));
                let both = [0, 1].map(|high| let_(out, "both", interleave(&even, &odd, 4, high)));
                for (i, both_of) in [0, 1].into_iter().zip(&both) {
                    let part = || PrimExpr::call(Intrin::Parts, [both[0].clone(), both[1].clone(), c(i)]);
                    let value = if lanes == LANES { part() } else { both_of.clone() };
                    out.push(FlatStmt::Store { ptr: to.clone(), offset: at.clone() * 2 + i * lanes, value });
                }
            });
        });
    }

    /// A part of the workspace, which has no other name.
    pub(super) fn piece(&self, out: &mut Body, name: &str, at: i64) -> PrimExpr {
        let var = Var::new(name, DType::HANDLE);
        out.push(FlatStmt::Let { var: var.clone(), value: self.workspace.expr().ptr_add(at) });
        var.expr()
    }

    /// Where the weights of some channels of a panel begin.
    pub(super) fn weights_of(&self, out: &mut Body, p: &Panel, channel: &PrimExpr) -> PrimExpr {
        let inside = channel.clone() - p.start;
        let panel = let_(out, "panel", inside.clone().floor_div(p.width()) * p.width());
        let at = (panel.clone() + p.start) * self.conv.depth() + (inside - panel) * 4;
        let_(out, "ws", self.w.expr().ptr_add(at))
    }

    /// The weights of some channels as int16.
    fn fill_weights(&self, out: &mut Body, p: &Panel, channel: &PrimExpr, to: &PrimExpr) {
        let ints = DType::I32.with_lanes(LANES as u16);
        let from = self.weights_of(out, p, channel);
        steps(out, &c(0), &c(self.conv.depth() / 4), 1, &mut |out, quad| {
            let from = let_(out, "from", from.clone().ptr_add(quad.clone() * (p.width() * 4)));
            let to = let_(out, "to", to.clone().ptr_add(quad * (TOGETHER * 8)));
            for vector in [0, LANES] {
                let bytes = let_(out, "bytes", load(&from, c(vector), ints));
                for odd in [0, 1] {
                    let offset = c(odd * TOGETHER + vector);
                    out.push(FlatStmt::Store { ptr: to.clone(), offset, value: words(&bytes, odd, true) });
                }
            }
        });
    }

    /// The rows of a block by some channels, of which the first result is the `first` one but for the channel.
    fn rows_of_block(&self, out: &mut Body, w: &Words, p: &Panel, [channel, first, data, ws]: [&PrimExpr; 4]) {
        let v = self.conv;
        let next = self.next_weights(out, p, channel);
        let g = Group { lanes: LANES, at: vec![0, LANES], first: 0 };
        let first = let_(out, "first", first.clone() + channel.clone());
        let to = let_(out, "to", self.y.expr().ptr_add(first.clone() * v.element()));
        let other = v.plus.map(|p| (p, self.other.expr().ptr_add(first)));
        let (lines, columns) = if v.is_dense() { (1, w.rows * v.columns) } else { (w.rows, v.columns) };
        let most = evenly(columns);
        let cut = self.cut(out, &c(columns), most);
        steps(out, &c(0), &c(lines), 1, &mut |out, y| {
            let line_of_tiles = y.clone();
            let from = y.clone() * (w.step * v.in_w * v.in_c * 2) + v.off_w * v.in_c * 2;
            let from = let_(out, "from", data.clone().ptr_add(from));
            let line = let_(out, "line", y * (v.out_w * v.channels));
            let to = let_(out, "to", to.clone().ptr_add(line.clone() * v.element()));
            let other = other.clone().map(|(p, ptr)| (p, ptr.ptr_add(line)));
            self.in_tiles(out, &cut, &mut |out, x, size| {
                let tile = line_of_tiles.clone() + x.clone().floor_div(most);
                let ahead = next.as_ref().and_then(|next| Ahead::new(out, p, next, v.pairs(), tile));
                let from = let_(out, "from", from.clone().ptr_add(x.clone() * (v.stride_w * v.in_c * 2)));
                let pixel = let_(out, "pixel", x * v.channels);
                let to = let_(out, "to", to.clone().ptr_add(pixel.clone() * v.element()));
                let other = other.clone().map(|(p, ptr)| (p, let_(out, "other", ptr.ptr_add(pixel))));
                let accs = self.begun(out, &g, channel, size);
                self.dots_of_words(out, &from, ws, &accs, ahead.as_ref());
                self.finish(out, p, &g, channel, &accs, other.as_ref(), &to);
            });
        });
    }

    /// All inputs of the pixels of a tile.
    fn dots_of_words(&self, out: &mut Body, from: &PrimExpr, ws: &PrimExpr, accs: &[Vec<Var>], ahead: Option<&Ahead>) {
        let v = self.conv;
        let pairs = v.pairs();
        steps(out, &c(0), &c(v.k_h), 1, &mut |out, ky| {
            let line = let_(out, "line", from.clone().ptr_add(ky.clone() * (v.in_w * v.in_c * 2)));
            let ahead = ahead.map(|a| a.behind(ky.clone() * (pairs / 2)));
            let ws = let_(out, "ws", ws.clone().ptr_add(ky * (pairs * TOGETHER * 4)));
            dots(out, &line, v.stride_w * v.in_c / 2, &ws, pairs, accs, ahead.as_ref());
        });
    }
}

/// Adds the products of so many pairs of int16 of each row of data, of which each is `apart` (in pairs) from the one before,
/// with two vectors of weights each.
pub(super) fn dots(
    out: &mut Body,
    data: &PrimExpr,
    apart: i64,
    ws: &PrimExpr,
    pairs: i64,
    accs: &[Vec<Var>],
    ahead: Option<&Ahead>,
) {
    let ints = DType::I32.with_lanes(LANES as u16);
    let unrolled = in_round(pairs);
    steps(out, &c(0), &c(pairs), unrolled, &mut |out, k| {
        let at = let_(out, "at", k.clone() * TOGETHER);
        if let Some(ahead) = ahead {
            ahead.ask(out, &k);
        }
        for u in 0..unrolled {
            let weights = [0, LANES].map(|j| load(ws, at.clone() + (u * TOGETHER + j), ints));
            let weights = weights.map(|w| let_(out, "w", w));
            for (r, row) in accs.iter().enumerate() {
                let a = load(data, k.clone() + (u + r as i64 * apart), DType::I32).broadcast(ints.lanes);
                let a = let_(out, "a", a);
                for (acc, w) in row.iter().zip(&weights) {
                    let value = PrimExpr::call(Intrin::DotWords, [acc.expr(), a.clone(), w.clone()]);
                    out.push(FlatStmt::Assign { var: acc.clone(), value });
                }
            }
        }
    });
}

/// Pairs of inputs in a round of the innermost loop over so many.
pub(super) fn in_round(pairs: i64) -> i64 {
    (1..=UNROLLED).rev().find(|n| pairs % n == 0).unwrap_or(1)
}

/// Pixels of a tile of a row of so many: what is left takes the least time.
pub(super) fn evenly(row: i64) -> i64 {
    let cost = |most: i64| {
        let left = row % most;
        row / most * (2 * most + 1) + if left > 0 { (2 * left + 1).max(5) } else { 0 }
    };
    (1..=PIXELS.min(row)).rev().min_by_key(|n| cost(*n)).unwrap_or(1)
}
