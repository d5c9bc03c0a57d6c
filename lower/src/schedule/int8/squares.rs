//! Windows of three by three at steps of one, for 256-bit vectors that multiply int16: Winograd's algorithm for squares of
//! two by two results, which takes 16 multiplications for 36.
//!
//! It is exact: transformed data lies within ±1020, weights (transformed with twice the usual matrix on both sides, so that
//! nothing is halved) within ±1152, and sums, which wrap in int32, end as four times the result, which int32 holds.
//!
//! Each of the 16 positions in a square is a product of matrices: the transformed data of all squares of a block in the
//! workspace, by the transformed weights of 16 channels.

use super::ahead::Ahead;
use super::words::{dots, evenly, BLOCK, LANES, TOGETHER};
use super::{c, for_, let_, load, steps, words, Body, Conv, Form, Group, Panel, Writer};
use relax_ir::flat::FlatStmt;
use relax_ir::prim::{BinOp, Intrin, Var};
use relax_ir::{DType, PrimExpr};

/// Positions in a side of a square of data, and in a square.
const SIDE: i64 = 4;
const POSITIONS: i64 = SIDE * SIDE;
const TAPS: i64 = 9;
/// Where few squares make three tiles.
const LEFT_OUT: i64 = 3;
/// Pairs of inputs between two positions of the weights, beyond their own: with a power of two all positions would want
/// the same lines of the first-level cache.
const BETWEEN: i64 = 2;
/// Squares that are worth it.
const LEAST: i64 = 8;
/// Channels on both sides that are worth the transformations.
const LEAST_CHANNELS: i64 = 32;
/// Channels of the data for which int32 holds four times the result.
const MOST_CHANNELS: i64 = 1792;

/// Squares of results.
pub(super) struct Squares {
    /// In a column of the result, and in a row.
    down: i64,
    across: i64,
    /// Rows of squares that are computed together.
    rows: i64,
    /// Fours of inputs of the data of which the even ones stand before the odd ones.
    quads: i64,
}

impl Squares {
    /// Of a block.
    fn count(&self) -> i64 {
        self.rows * self.across
    }
}

/// What lies in the workspace: transformed data, weights and sums.
struct Places {
    data: PrimExpr,
    weights: PrimExpr,
    sums: PrimExpr,
}

impl Conv {
    /// The squares, where that is worth it.
    pub(super) fn in_squares(&self, form: Form) -> Option<Squares> {
        let quads = [8, 4].into_iter().find(|n| self.in_c % (4 * n) == 0)?;
        let window = [self.k_h, self.k_w, self.stride_h, self.stride_w] == [3, 3, 1, 1];
        let (down, across) = ((self.rows + 1) / 2, (self.columns + 1) / 2);
        // Squares at an odd edge compute some results again.
        let again = self.rows % 2 + self.columns % 2 > 0 && self.plus.is_some();
        let many = self.in_c.min(self.channels) >= LEAST_CHANNELS;
        let fits = self.takes_words(form) && window && many && !again;
        if !fits || self.rows.min(self.columns) < 2 || self.in_c > MOST_CHANNELS || down * across < LEAST {
            return None;
        }
        let bytes = |rows: i64| rows * across * POSITIONS * self.in_c * 2;
        let rows = (1..=down).rev().find(|n| down % n == 0 && (bytes(*n) <= BLOCK || *n == 1))?;
        // What is computed again belongs to one block.
        if self.rows % 2 > 0 && rows == 1 && down > 1 {
            return None;
        }
        Some(Squares { down, across, rows, quads })
    }

    /// Bytes of the transformed data, weights and sums.
    pub(super) fn square_bytes(&self, s: &Squares) -> [i64; 3] {
        let positions = POSITIONS * s.count();
        [positions * self.in_c * 2, POSITIONS * (self.in_c / 2 + BETWEEN) * TOGETHER * 4, positions * TOGETHER * 4]
    }
}

impl Writer<'_> {
    /// All pixels of all channels.
    pub(super) fn in_squares(&self, out: &mut Body, s: &Squares) {
        let v = self.conv;
        let [data, weights, _] = v.square_bytes(s);
        let places = Places {
            data: self.piece(out, "squares", 0),
            weights: self.piece(out, "turned", data),
            sums: self.piece(out, "totals", data + weights),
        };
        let panels = v.panels();
        steps(out, &c(0), &c(v.batch), 1, &mut |out, n| {
            steps(out, &c(0), &c(s.down), s.rows, &mut |out, first| {
                self.squares_of_data(out, s, &places, &n, &first);
                for p in panels.iter().filter(|p| p.in_words()) {
                    for_(out, c(p.start), c(p.end), TOGETHER, &mut |out, channel| {
                        self.squares_of_weights(out, s, &places, p, &channel);
                        let next = self.next_weights(out, p, &channel);
                        self.products_of_squares(out, s, &places, p, next.as_ref());
                        self.results_of_squares(out, s, &places, p, [&n, &first, &channel]);
                    });
                }
            });
        });
        panels.iter().filter(|p| !p.in_words()).for_each(|p| self.all_of(out, p));
    }

    /// Where each square of a block begins: `f(its number, row and column of the result)`. The last ones of an odd edge
    /// begin earlier.
    fn squares(
        &self,
        out: &mut Body,
        s: &Squares,
        first: &PrimExpr,
        f: &mut dyn FnMut(&mut Body, PrimExpr, PrimExpr, PrimExpr),
    ) {
        let v = self.conv;
        let begin = |i: PrimExpr, of: i64| match of % 2 {
            0 => i * 2,
            _ => (i * 2).min(c(of - 2)),
        };
        for_(out, c(0), c(s.rows), 1, &mut |out, i| {
            let row = let_(out, "row", begin(first.clone() + i.clone(), v.rows));
            steps(out, &c(0), &c(s.across), 1, &mut |out, x| {
                let column = let_(out, "column", begin(x.clone(), v.columns));
                let number = let_(out, "number", i.clone() * s.across + x);
                f(out, number, row.clone(), column);
            });
        });
    }

    /// The data of a block: of each column the sums and differences of rows, and of these those of columns.
    fn squares_of_data(&self, out: &mut Body, s: &Squares, places: &Places, n: &PrimExpr, first: &PrimExpr) {
        let v = self.conv;
        let ints = DType::I32.with_lanes(s.quads as u16);
        let positions = s.count() * v.in_c / 2;
        self.squares(out, s, first, &mut |out, number, row, column| {
            let at = (n.clone() * v.in_h + row + v.off_h) * v.in_w + column + v.off_w;
            let from = let_(out, "from", self.x.expr().ptr_add(at * v.in_c));
            let to = let_(out, "to", places.data.clone().ptr_add(number * (v.in_c * 2)));
            steps(out, &c(0), &c(v.in_c / 4), s.quads, &mut |out, quad| {
                for (odd, i) in [0, 1].into_iter().flat_map(|odd| (0..SIDE).map(move |i| (odd, i))) {
                    let byte = |row: i64, column: i64| {
                        let at = (row * v.in_w + column) * v.in_c / 4;
                        words(&load(&from, quad.clone() + at, ints), odd, false)
                    };
                    let rows: Vec<PrimExpr> =
                        (0..SIDE).map(|j| let_(out, "d", between(i, &|row| byte(row, j)))).collect();
                    for j in 0..SIDE {
                        let value = between(j, &|column| rows[column as usize].clone());
                        let offset = quad.clone() * 2 + ((i * SIDE + j) * positions + odd * s.quads);
                        out.push(FlatStmt::Store { ptr: to.clone(), offset, value });
                    }
                }
            });
        });
    }

    /// The weights of some channels.
    fn squares_of_weights(&self, out: &mut Body, s: &Squares, places: &Places, p: &Panel, channel: &PrimExpr) {
        let v = self.conv;
        let ints = DType::I32.with_lanes(LANES as u16);
        let ws = self.weights_of(out, p, channel);
        steps(out, &c(0), &c(v.in_c / 4), s.quads, &mut |out, piece| {
            steps(out, &c(0), &c(s.quads), 1, &mut |out, quad| {
                let from = (piece.clone() + quad.clone()) * (p.width() * 4);
                let from = let_(out, "from", ws.clone().ptr_add(from));
                let to = (piece.clone() * 2 + quad) * (TOGETHER * 4);
                let to = let_(out, "to", places.weights.clone().ptr_add(to));
                for (vector, odd) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let at = |row: i64, column: i64| (row * 3 + column) * (v.in_c / 4) * p.width() + vector * LANES;
                    let mut rows = vec![vec![]; SIDE as usize];
                    for column in 0..3 {
                        let g: Vec<PrimExpr> = (0..3)
                            .map(|row| let_(out, "g", words(&load(&from, c(at(row, column)), ints), odd, true)))
                            .collect();
                        for (rows, value) in rows.iter_mut().zip(doubled(out, &g)) {
                            rows.push(value);
                        }
                    }
                    for (i, row) in rows.iter().enumerate() {
                        for (j, value) in doubled(out, row).into_iter().enumerate() {
                            let position = i as i64 * SIDE + j as i64;
                            let offset = (position * (v.in_c / 2 + BETWEEN) + odd * s.quads) * TOGETHER;
                            let offset = c(offset + vector * LANES);
                            out.push(FlatStmt::Store { ptr: to.clone(), offset, value });
                        }
                    }
                }
            });
        });
    }

    /// The sums of each position.
    fn products_of_squares(&self, out: &mut Body, s: &Squares, places: &Places, p: &Panel, next: Option<&PrimExpr>) {
        let v = self.conv;
        let ints = DType::I32.with_lanes(LANES as u16);
        let (count, depth) = (s.count(), v.in_c / 2);
        let most = evenly(count);
        let cut = self.cut(out, &c(count), most);
        for_(out, c(0), c(POSITIONS), 1, &mut |out, position| {
            let data = let_(out, "data", places.data.clone().ptr_add(position.clone() * (count * depth * 4)));
            let ws = position.clone() * ((depth + BETWEEN) * TOGETHER * 4);
            let ws = let_(out, "ws", places.weights.clone().ptr_add(ws));
            let to = let_(out, "to", places.sums.clone().ptr_add(position.clone() * (count * TOGETHER * 4)));
            self.in_tiles(out, &cut, &mut |out, first, size| {
                // Each position asks for the weights of a tap; those beyond the taps for what the others leave out.
                let tile = first.clone().floor_div(most) + position.clone().floor_div(TAPS) * LEFT_OUT;
                let tap = position.clone().floor_mod(TAPS) * (v.in_c / 4);
                let ahead = next.and_then(|next| Ahead::new(out, p, next, depth, tile)).map(|a| a.behind(tap));
                let from = let_(out, "from", data.clone().ptr_add(first.clone() * (depth * 4)));
                let to = let_(out, "to", to.clone().ptr_add(first * (TOGETHER * 4)));
                let mut accs: Vec<Vec<Var>> = vec![];
                for _ in 0..size {
                    let acc = |_| {
                        let var = Var::new("acc", ints);
                        let init = PrimExpr::i32(0).broadcast(ints.lanes);
                        out.push(FlatStmt::Local { var: var.clone(), init });
                        var
                    };
                    accs.push((0..2).map(acc).collect());
                }
                dots(out, &from, depth, &ws, depth, &accs, ahead.as_ref());
                for (r, row) in accs.iter().enumerate() {
                    for (j, acc) in row.iter().enumerate() {
                        let offset = c(r as i64 * TOGETHER + j as i64 * LANES);
                        out.push(FlatStmt::Store { ptr: to.clone(), offset, value: acc.expr() });
                    }
                }
            });
        });
    }

    /// The results of a block.
    fn results_of_squares(
        &self,
        out: &mut Body,
        s: &Squares,
        places: &Places,
        p: &Panel,
        [n, first, channel]: [&PrimExpr; 3],
    ) {
        let v = self.conv;
        let ints = DType::I32.with_lanes(LANES as u16);
        let g = Group { lanes: LANES, at: vec![0, LANES], first: 0 };
        self.squares(out, s, first, &mut |out, number, row, column| {
            let from = let_(out, "from", places.sums.clone().ptr_add(number * (TOGETHER * 4)));
            let at = (n.clone() * v.out_h + row + v.top) * v.out_w + column + v.left;
            let at = let_(out, "at", at * v.channels + channel.clone());
            // By row and column of the square.
            let mut results: [[Vec<Var>; 2]; 2] = Default::default();
            for vector in 0..2 {
                let sum = let_(out, "sum", load(&self.sum.expr(), channel.clone() + vector * LANES, ints));
                let mut rows: [Vec<PrimExpr>; 2] = Default::default();
                for j in 0..SIDE {
                    let m: Vec<PrimExpr> = (0..SIDE)
                        .map(|i| (i * SIDE + j) * s.count() * TOGETHER + vector * LANES)
                        .map(|at| let_(out, "m", load(&from, c(at), ints)))
                        .collect();
                    for (rows, value) in rows.iter_mut().zip(halved(out, &m)) {
                        rows.push(value);
                    }
                }
                for (results, row) in results.iter_mut().zip(&rows) {
                    for (results, four) in results.iter_mut().zip(halved(out, row)) {
                        let two = PrimExpr::i32(2).broadcast(ints.lanes);
                        let value = PrimExpr::raw_binary(BinOp::Shr, four, two) + sum.clone();
                        let var = Var::new("result", ints);
                        out.push(FlatStmt::Let { var: var.clone(), value });
                        results.push(var);
                    }
                }
            }
            for (i, row) in results.iter().enumerate() {
                let at = at.clone() + i as i64 * v.out_w * v.channels;
                let to = let_(out, "to", self.y.expr().ptr_add(at.clone() * v.element()));
                let other = v.plus.map(|p| (p, self.other.expr().ptr_add(at)));
                self.finish(out, p, &g, channel, row, other.as_ref(), &to);
            }
        });
    }
}

/// Row `i` of the data's transformation.
fn between(i: i64, of: &dyn Fn(i64) -> PrimExpr) -> PrimExpr {
    match i {
        0 => PrimExpr::call(Intrin::SubWords, [of(0), of(2)]),
        1 => PrimExpr::call(Intrin::AddWords, [of(1), of(2)]),
        2 => PrimExpr::call(Intrin::SubWords, [of(2), of(1)]),
        _ => PrimExpr::call(Intrin::SubWords, [of(1), of(3)]),
    }
}

/// Twice the usual transformation of three weights.
fn doubled(out: &mut Body, g: &[PrimExpr]) -> [PrimExpr; 4] {
    let add = |a: &PrimExpr, b: &PrimExpr| PrimExpr::call(Intrin::AddWords, [a.clone(), b.clone()]);
    let outer = let_(out, "outer", add(&g[0], &g[2]));
    let minus = PrimExpr::call(Intrin::SubWords, [outer.clone(), g[1].clone()]);
    let all = [add(&g[0], &g[0]), add(&outer, &g[1]), minus, add(&g[2], &g[2])];
    all.map(|value| let_(out, "u", value))
}

/// Two results of four positions.
fn halved(out: &mut Body, m: &[PrimExpr]) -> [PrimExpr; 2] {
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| m[i].clone());
    let first = let_(out, "y", a + b.clone() + c.clone());
    [first, let_(out, "y", b - c - d)]
}
