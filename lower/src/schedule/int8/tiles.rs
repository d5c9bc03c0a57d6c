//! Convolutions and products over tiles ([`Intrin::TileDot`]): rows of 64 bytes of up to 16 pixels by 16 channels at a
//! time. The packed weights have the order of the right side already. Sums go through the stack, from where they become
//! bytes as in the other forms.

use super::{c, let_, load, loop_, steps, Body, Conv, Panel, Writer};
use relax_ir::flat::FlatStmt;
use relax_ir::prim::{Intrin, Var};
use relax_ir::{DType, PrimExpr};

/// Inputs of a tile: bytes of a row.
const DEPTH: i64 = 64;
/// Channels of a tile.
const CHANNELS: i64 = 16;
/// Pixels of a tile at most.
const PIXELS: i64 = 16;
/// With fewer pixels tiles are not faster.
const LEAST: i64 = 4;
/// Tiles of sums that are kept at a time: twice as many leave none for what is multiplied.
const SUMS: i64 = 4;

/// What is computed together: `across` tiles of pixels of a row, in `down` rows, by `vectors` of channels.
#[derive(Clone, Copy)]
struct Block {
    /// Pixels of a tile.
    pixels: i64,
    /// Tiles of a row of pixels.
    row: i64,
    across: i64,
    down: i64,
    vectors: i64,
}

/// The weights of the channels that come next, which blocks fetch ahead, each some rows of their tiles.
struct NextWeights {
    /// Bytes from the weights of this block to the first line that it fetches.
    bytes: PrimExpr,
    rows: i64,
}

/// Channels of a panel, and what their sums need to become bytes.
struct Channels {
    first: i64,
    scale: Vec<PrimExpr>,
    bias: Vec<PrimExpr>,
    /// The panel's weights.
    panel: PrimExpr,
    /// Bytes to those of the channels that come next.
    next: i64,
}

/// Where the pixels of an image or a row begin: of the input, the result, and the other summand.
#[derive(Clone)]
struct At {
    from: PrimExpr,
    to: PrimExpr,
    other: Option<PrimExpr>,
}

impl Conv {
    /// Whether it has a form over tiles: a row of the kernel is whole rows of them.
    pub fn has_tiles(&self) -> bool {
        !self.depthwise
            && self.vector_bytes == 64
            && self.channels >= CHANNELS
            && self.k_w * self.in_c % DEPTH == 0
            && self.even(PIXELS) >= LEAST
    }

    /// Rows of the kernel.
    fn lines(&self) -> i64 {
        if self.row() == self.columns {
            self.rows
        } else {
            1
        }
    }

    /// Whether a row has enough pixels for a tile, where that is open.
    pub(super) fn fills_tiles(&self, pixels: &PrimExpr) -> PrimExpr {
        pixels.clone().ge(c(self.even(PIXELS)))
    }

    /// Blocks of a panel with so many vectors. As many multiplications as tiles that are read, unless the weights of a
    /// panel stay in the first-level cache: then one tile of pixels goes with all of its channels.
    fn block(&self, vectors: i64) -> Block {
        /// Bytes of a panel's weights beside which there is room for pixels in the first-level cache.
        const NEAR: i64 = 16 << 10;
        let pixels = self.even(PIXELS);
        let row = (self.row() + pixels - 1) / pixels;
        let lines = self.lines();
        let wide = self.depth() * vectors * CHANNELS <= NEAR;
        let vectors = vectors.min(if wide || row * lines == 1 { SUMS } else { 2 });
        let all = SUMS / vectors;
        let across = row.min(all);
        Block { pixels, row, across, down: lines.min(all / across), vectors }
    }
}

impl Writer<'_> {
    /// Memory for the sums of a block.
    pub(super) fn slot(&self) -> FlatStmt {
        FlatStmt::Stack { var: self.sums.clone(), bytes: (SUMS * PIXELS * CHANNELS * 4) as u32, align: 64 }
    }

    /// All pixels of some channels.
    pub(super) fn tiles(&self, out: &mut Body, p: &Panel, column: &PrimExpr) {
        let (v, s) = (self.conv, &self.sizes);
        let whole = v.block(p.count);
        let (lines, pixels) = self.lines(out);
        for first in (0..p.count).step_by(whole.vectors as usize) {
            let b = Block { vectors: whole.vectors.min(p.count - first), ..whole };
            let read = |out: &mut Body, what: &Var, name: &str| -> Vec<PrimExpr> {
                let vectors = if v.sums { 0 } else { b.vectors };
                let at = |j: i64| column.clone() + (first + j) * CHANNELS;
                let floats = DType::F32.with_lanes(CHANNELS as u16);
                (0..vectors).map(|j| let_(out, name, load(&what.expr(), at(j), floats))).collect()
            };
            let channels = Channels {
                first: first * CHANNELS,
                scale: read(out, &self.scale, "scale"),
                bias: read(out, &self.bias, "bias"),
                panel: let_(out, "panel", self.w.expr().ptr_add(column.clone() * v.depth())),
                next: match first + b.vectors < p.count {
                    true => b.vectors * CHANNELS * 4,
                    false => v.depth() * p.width() - first * CHANNELS * 4,
                },
            };
            steps(out, &c(0), &s.batch, 1, &mut |out, n| {
                let pixel = n.clone() * (s.in_h.clone() * s.in_w.clone()) + (s.in_w.clone() * v.off_h + v.off_w);
                let from = let_(out, "from", self.x.expr().ptr_add(pixel * v.in_c));
                let pixel = n * (s.out_h.clone() * s.out_w.clone()) + (s.out_w.clone() * v.top + v.left);
                let byte = let_(out, "first", pixel * v.channels + column.clone() + channels.first);
                let to = let_(out, "to", self.y.expr().ptr_add(byte.clone() * v.element()));
                let other = v.plus.map(|_| let_(out, "other", self.other.expr().ptr_add(byte)));
                let image = At { from, to, other };
                let even = let_(out, "even", lines.clone().floor_div(b.down) * b.down);
                // Of an open number of rows those left are taken one by one.
                let left = (lines.clone() - even.clone()).as_int().unwrap_or(if b.down > 1 { 1 } else { 0 });
                for (begin, end, down) in [(c(0), even.clone(), b.down), (even, lines.clone(), left)] {
                    if down == 0 {
                        continue;
                    }
                    steps(out, &begin, &end, down, &mut |out, y| {
                        let line = y.clone() * (self.stride.clone() * v.stride_h);
                        let at = image.moved(out, line, y.clone() * (s.out_w.clone() * (v.channels * v.element())));
                        let blocks = (b.row + b.across - 1) / b.across;
                        let before = let_(out, "before", y.floor_div(b.down) * blocks);
                        let all = (v.lines() + b.down - 1) / b.down * blocks;
                        let b = Block { down, ..b };
                        self.row_of_blocks(out, p, &channels, &b, &at, column, &before, all, &pixels);
                    });
                }
            });
        }
    }

    /// Blocks side by side.
    #[allow(clippy::too_many_arguments)]
    fn row_of_blocks(
        &self,
        out: &mut Body,
        p: &Panel,
        of: &Channels,
        b: &Block,
        at: &At,
        column: &PrimExpr,
        before: &PrimExpr,
        all: i64,
        pixels: &PrimExpr,
    ) {
        let rows = (16 + all - 1) / all;
        let wide = b.across * b.pixels;
        let row = let_(out, "tiles", (pixels.clone() + (b.pixels - 1)).floor_div(b.pixels));
        let even = let_(out, "even", row.clone().floor_div(b.across) * b.across);
        // Of an open number of tiles those left are taken one by one.
        let left = (row.clone() - even.clone()).as_int().unwrap_or(if b.across > 1 { 1 } else { 0 });
        for (begin, end, across) in [(c(0), even.clone(), b.across), (even, row.clone(), left)] {
            let b = Block { across, ..*b };
            if across == 0 {
                continue;
            }
            let ends = row.as_int().is_none() || end == row;
            steps(out, &(begin * b.pixels), &(end * b.pixels), across * b.pixels, &mut |out, x| {
                let number = before.clone() + x.clone().floor_div(wide);
                let line = (number * rows).floor_mod(16i64) * (p.width() * 4);
                let ahead = NextWeights { bytes: let_(out, "ahead", line + of.next), rows };
                self.block(out, p, of, &b, at, &x, ends, column, &ahead, pixels);
            });
        }
    }

    /// The block at pixel `x` of its rows; `ends`: the last tile may reach beyond the row, and begins before its own
    /// pixels then.
    #[allow(clippy::too_many_arguments)]
    fn block(
        &self,
        out: &mut Body,
        p: &Panel,
        of: &Channels,
        b: &Block,
        at: &At,
        x: &PrimExpr,
        ends: bool,
        column: &PrimExpr,
        ahead: &NextWeights,
        pixels: &PrimExpr,
    ) {
        let v = self.conv;
        let pixel = v.stride_w * v.in_c;
        let from = let_(out, "from", at.from.clone().ptr_add(x.clone() * pixel));
        let rest = ends && pixels.as_int().is_none_or(|n| b.row * b.pixels > n);
        // Of the tiles of a row: where each begins, and which of its pixels are new.
        let mut begins: Vec<(PrimExpr, PrimExpr)> = vec![];
        for i in 0..b.across {
            let x = x.clone() + i * b.pixels;
            if !rest || i + 1 < b.across {
                begins.push((from.clone().ptr_add(i * b.pixels * pixel), c(0)));
                continue;
            }
            let begin = let_(out, "begin", x.clone().min(pixels.clone() - b.pixels));
            let from = let_(out, "last", at.from.clone().ptr_add(begin.clone() * pixel));
            begins.push((from, let_(out, "new", x - begin)));
        }
        let ints = DType::I32.with_lanes((b.pixels * CHANNELS) as u16);
        let mut sums: Vec<Vec<Var>> = vec![];
        for _ in 0..b.down * b.across {
            let sum = |j: i64| self.sum.expr().ptr_add((column.clone() + (of.first + j * CHANNELS)) * 4i64);
            let tiles = (0..b.vectors).map(|j| {
                let var = Var::new("acc", ints);
                // The same in every row.
                out.push(FlatStmt::Local { var: var.clone(), init: PrimExpr::tile_rows(sum(j), c(0), ints) });
                var
            });
            sums.push(tiles.collect());
        }
        self.products(out, p, of, b, &begins, &sums, ahead);
        let size = b.pixels * CHANNELS;
        for (i, var) in sums.iter().flatten().enumerate() {
            let offset = c(i as i64 * size);
            out.push(FlatStmt::Store { ptr: self.sums.expr(), offset, value: var.expr() });
        }
        let at = at.moved(out, c(0), x.clone() * (v.channels * v.element()));
        for i in 0..b.down * b.across {
            let (down, across) = (i / b.across, i % b.across);
            let begin = let_(out, "begin", (self.sizes.out_w.clone() * down + across * b.pixels) * v.channels);
            let new = &begins[across as usize].1;
            let row = Var::new("row", DType::I64);
            let mut body = vec![];
            // From the first new pixel on.
            let line = let_(&mut body, "line", (row.expr() - new.clone()) * v.channels + begin);
            self.bytes(&mut body, of, b, &at, i * b.vectors * size, &row.expr(), line);
            out.push(FlatStmt::For { var: row, begin: new.clone(), end: c(b.pixels), step: 1, body });
        }
    }

    /// All products of a block, 64 inputs at a time.
    #[allow(clippy::too_many_arguments)]
    fn products(
        &self,
        out: &mut Body,
        p: &Panel,
        of: &Channels,
        b: &Block,
        begins: &[(PrimExpr, PrimExpr)],
        sums: &[Vec<Var>],
        ahead: &NextWeights,
    ) {
        let v = self.conv;
        let (line, width) = (self.stride.clone(), p.width());
        let inputs = v.k_w * v.in_c;
        let (left, right) = (DType::U8.with_lanes((b.pixels * DEPTH) as u16), DType::I8.with_lanes(1024));
        loop_(out, 0, v.k_h, 1, &mut |out, ky| {
            let ws = let_(out, "ws", of.panel.clone().ptr_add(ky.clone() * (inputs * width)));
            let down = let_(out, "down", ky * line.clone());
            loop_(out, 0, inputs, DEPTH, &mut |out, k| {
                let at = let_(out, "at", down.clone() + k.clone());
                let ws = let_(out, "ws", ws.clone().ptr_add(k * width));
                let tile = |out: &mut Body, ptr: PrimExpr, stride: i64, d: DType| {
                    let var = Var::new("tile", d);
                    out.push(FlatStmt::Let { var: var.clone(), value: PrimExpr::tile_rows(ptr, c(stride), d) });
                    var.expr()
                };
                let next = let_(out, "next", ws.clone().ptr_add(ahead.bytes.clone()));
                for (i, j) in (0..ahead.rows).flat_map(|i| (0..b.vectors).map(move |j| (i, j))) {
                    let ptr = next.clone().ptr_add(of.first * 4 + i * width * 4 + j * CHANNELS * 4);
                    out.push(FlatStmt::Prefetch { ptr });
                }
                let starts: Vec<PrimExpr> =
                    begins.iter().map(|(ptr, _)| let_(out, "ptr", ptr.clone().ptr_add(at.clone()))).collect();
                let pixels = |out: &mut Body, i: i64| {
                    let ptr = starts[(i % b.across) as usize].clone();
                    let ptr = ptr.ptr_add(line.clone() * (i / b.across * v.stride_h));
                    tile(out, ptr, v.stride_w * v.in_c, left)
                };
                let weights = |out: &mut Body, j: i64| {
                    tile(out, ws.clone().ptr_add(of.first * 4 + j * CHANNELS * 4), width * 4, right)
                };
                let dot = |out: &mut Body, acc: &Var, a: &PrimExpr, w: &PrimExpr| {
                    let value = PrimExpr::call(Intrin::TileDot, [acc.expr(), a.clone(), w.clone()]);
                    out.push(FlatStmt::Assign { var: acc.clone(), value });
                };
                let tiles = sums.len() as i64;
                if tiles <= b.vectors {
                    let a: Vec<PrimExpr> = (0..tiles).map(|i| pixels(out, i)).collect();
                    for j in 0..b.vectors {
                        let w = weights(out, j);
                        for (row, a) in sums.iter().zip(&a) {
                            dot(out, &row[j as usize], a, &w);
                        }
                    }
                } else {
                    let w: Vec<PrimExpr> = (0..b.vectors).map(|j| weights(out, j)).collect();
                    for (i, row) in sums.iter().enumerate() {
                        let a = pixels(out, i as i64);
                        for (acc, w) in row.iter().zip(&w) {
                            dot(out, acc, &a, w);
                        }
                    }
                }
            });
        });
    }

    /// The sums of a row of tiles that stand at `slot`, as bytes or as they are.
    #[allow(clippy::too_many_arguments)]
    fn bytes(&self, out: &mut Body, of: &Channels, b: &Block, at: &At, slot: i64, row: &PrimExpr, line: PrimExpr) {
        let v = self.conv;
        let lanes = CHANNELS as u16;
        let (ints, floats) = (DType::I32.with_lanes(lanes), DType::F32.with_lanes(lanes));
        let first = let_(out, "sums", row.clone() * CHANNELS);
        if v.sums {
            for j in 0..b.vectors {
                let value = load(&self.sums.expr(), first.clone() + (slot + j * b.pixels * CHANNELS), ints);
                let value = let_(out, "sum", value);
                out.push(FlatStmt::Store { ptr: at.to.clone(), offset: line.clone() + j * CHANNELS, value });
            }
            return;
        }
        let mut values = vec![];
        for (j, (scale, bias)) in of.scale.iter().zip(&of.bias).enumerate() {
            let j = j as i64;
            let x = load(&self.sums.expr(), first.clone() + (slot + j * b.pixels * CHANNELS), ints).cast(floats);
            let x = PrimExpr::call(Intrin::Fma, [x, scale.clone(), bias.clone()]);
            let value = match (v.plus, &at.other) {
                (Some(plus), Some(other)) => {
                    let byte = let_(out, "byte", v.byte(x, lanes));
                    let b = load(other, line.clone() + j * CHANNELS, DType::U8.with_lanes(lanes));
                    plus.unlimited(byte, b, lanes)
                }
                _ => v.unlimited(x, lanes),
            };
            values.push(let_(out, "rounded", value));
        }
        out.push(FlatStmt::Store { ptr: at.to.clone(), offset: line, value: PrimExpr::call(Intrin::Bytes, values) });
    }
}

impl At {
    /// Further on by so many bytes of the input and of the results.
    fn moved(&self, out: &mut Body, input: PrimExpr, result: PrimExpr) -> At {
        let result = let_(out, "bytes", result);
        At {
            from: let_(out, "from", self.from.clone().ptr_add(input)),
            to: let_(out, "to", self.to.clone().ptr_add(result.clone())),
            other: self.other.as_ref().map(|ptr| let_(out, "other", ptr.clone().ptr_add(result))),
        }
    }
}
