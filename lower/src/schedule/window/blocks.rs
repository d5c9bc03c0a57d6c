//! Convolutions whose reduction goes by blocks: all of the result takes a block of the weights before the next one, and
//! the sums wait on the stack meanwhile.
//!
//! A tile of few rows and vectors reads a value of the weights for a handful of multiplications, so that panels which the
//! second-level cache does not hold come from beyond it for every tile. Vectors of 256 bits that read panels made for
//! wider ones see a part of each line: what a pass over the data touches is up to the whole panel.

use super::super::emit::{Emit, Res};
use super::super::map::spread;
use super::super::poly::Poly;
use super::conv::{multiply, NextPanel, Operands};
use super::tile::{most_pieces, pieces, rows_of, At, Cut, Piece, Run};
use super::Window;
use relax_ir::flat::FlatStmt;
use relax_ir::{DType, PrimExpr, Var};

/// Bytes of a panel that the second-level cache holds beside data and result (512 KiB on processors whose widest vectors
/// have 256 bits).
const PANEL: i64 = 224 << 10;

/// Columns of the result that are a tile or two: the weights come from memory, once, and wait nearer for the other passes
/// over the panel.
const FEW: i64 = 16;
const NEAREST: i64 = 32 << 10;

/// Bytes of sums that may wait on the stack.
const WAITING: i64 = 20 << 10;

/// Vectors side by side in a pass over the data, in panels of `width` channels.
pub(super) fn side_by_side(r: &Run, width: i64) -> usize {
    let most = most_pieces(r.lanes);
    // Two of them are a line of the cache.
    match r.shared && r.lanes == 8 && width > most as i64 * r.lanes && r.w.out[1] > SHORT {
        true => 2,
        false => most,
    }
}

/// Rows of up to so many columns make one tile with two vectors side by side, or two with too few sums to keep the adders busy.
const SHORT: i64 = 7;

/// How the passes over a panel go by blocks.
pub(super) struct Blocks {
    stack: Var,
    /// Passes that share blocks, and blocks.
    passes: usize,
    parts: i64,
}

/// Where panels of `width` channels go by blocks.
pub(super) fn blocks(e: &mut Emit, r: &Run, width: i64) -> Option<Blocks> {
    let w = &r.w;
    // Pictures of a known size may be any number of them.
    let counted = r.sizes.batch.is_int(w.batch);
    let suits = counted && !w.open && r.shared && r.lanes == 8 && w.last && w.groups == 1 && w.dilation == [1, 1];
    let columns = w.batch * w.out[0] * w.out[1];
    let all = pieces(width, r.lanes);
    let each = side_by_side(r, width);
    let waiting = |pieces: &[Piece]| columns * lanes(pieces) * 4;
    let passes = if waiting(&all) <= WAITING { all.len().div_ceil(each) } else { 1 };
    let few = columns <= FEW && passes > 1;
    let parts = parts(w, width, if few { NEAREST } else { PANEL });
    let bytes = all.chunks(each * passes).map(waiting).max().filter(|n| *n <= WAITING)?;
    (suits && parts > 1).then(|| {
        let stack = Var::new("waiting", DType::HANDLE);
        e.push(FlatStmt::Stack { var: stack.clone(), bytes: bytes as u32, align: 64 });
        Blocks { stack, passes, parts }
    })
}

/// Channels of the sums of one column.
fn lanes(pieces: &[Piece]) -> i64 {
    pieces.iter().map(|p| p.lanes).sum()
}

/// Blocks of so many bytes, about: rows of taps, else of the channels taken. Those of a row of several taps lie apart, tap by
/// tap: such a row is one block.
fn parts(w: &Window, width: i64, bytes: i64) -> i64 {
    let least = (w.depth() * width * 4 + bytes - 1) / bytes;
    match w.kernel {
        [1, 1] => (least..=4 * least).find(|n| w.taken % (n * 16) == 0).unwrap_or(1),
        [rows, _] if rows > 1 && least > 1 => rows,
        _ => 1,
    }
}

/// A panel of `width` channels over all of the data.
pub(super) fn emit(
    e: &mut Emit,
    r: &Run,
    weights: &PrimExpr,
    first: &PrimExpr,
    width: i64,
    blocks: &Blocks,
) -> Res<()> {
    let each = side_by_side(r, width);
    for together in pieces(width, r.lanes).chunks(each * blocks.passes) {
        let sums = Waiting::new(r, &blocks.stack, together);
        sums.clear(e)?;
        let block = Var::new("block", DType::I64);
        e.ranges.add_loop(&block, Poly::default(), Poly::constant(blocks.parts));
        e.for_loop(&block, PrimExpr::i64(0), PrimExpr::i64(blocks.parts), 1, |e| {
            together
                .chunks(each)
                .try_for_each(|pieces| pass(e, r, weights, width, pieces, &sums, blocks, &block.expr()))
        })?;
        for pieces in together.chunks(each) {
            walk(e, r, pieces, &mut |e, at, _, _, cut, _| {
                let tile = sums.load(e, at, cut.len, pieces);
                r.finish(e, &At { channel: first.clone(), ..at.clone() }, pieces, &tile)
            })?;
        }
    }
    Ok(())
}

/// A block of the weights over all of the data.
#[allow(clippy::too_many_arguments)]
fn pass(
    e: &mut Emit,
    r: &Run,
    weights: &PrimExpr,
    width: i64,
    pieces: &[Piece],
    sums: &Waiting,
    blocks: &Blocks,
    block: &PrimExpr,
) -> Res<()> {
    let w = &r.w;
    if w.kernel[0] > 1 {
        // A row of taps, for those rows of the result for which it lies inside of the data.
        let bytes = w.kernel[1] * w.taken * width * w.stored().bytes() as i64;
        return walk(e, r, pieces, &mut |e, at, x, (lo, hi), cut, len| {
            let mine = (lo.clone().max(block.clone()), hi.clone().min(block.clone() + 1));
            let cuts = r.cuts(e, len);
            let ahead = NextPanel::of(e, r, at, len, &cuts, bytes);
            let from = Operands { x, weights: weights.clone(), width, ahead };
            let tile = sums.load(e, at, cut.len, pieces);
            multiply(e, r, from, (&mine.0, &mine.1), cut, pieces, &tile)?;
            sums.store(e, at, pieces, &tile);
            Ok(())
        });
    }
    let taken = w.taken / blocks.parts;
    let part = r.with(Window { taken, pitch: w.pixel(), ..w.clone() });
    let bytes = taken * width * w.stored().bytes() as i64;
    let weights = e.bind("p", weights.clone().ptr_add(block.clone() * bytes));
    walk(e, &part, pieces, &mut |e, at, x, (lo, hi), cut, len| {
        let x = e.bind("p", x.ptr_add(block.clone() * (taken * 4)));
        let cuts = part.cuts(e, len);
        let ahead = NextPanel::of(e, &part, at, len, &cuts, bytes);
        let from = Operands { x, weights: weights.clone(), width, ahead };
        let tile = sums.load(e, at, cut.len, pieces);
        multiply(e, &part, from, (lo, hi), cut, pieces, &tile)?;
        sums.store(e, at, pieces, &tile);
        Ok(())
    })
}

type Body<'a> = &'a mut dyn FnMut(&mut Emit, &At, PrimExpr, (&PrimExpr, &PrimExpr), &Cut, i64) -> Res<()>;

/// The tiles of the result: where each is, its data, the rows of taps inside, its cut and the length of whole tiles.
fn walk(e: &mut Emit, r: &Run, pieces: &[Piece], body: Body) -> Res<()> {
    let len = rows_of(&r.w, r.lanes, pieces.len() as i64);
    let cuts = r.cuts(e, len);
    r.rows(e, &mut |e, at, row, lo, hi| {
        cuts.iter().try_for_each(|cut| {
            r.columns(e, cut, row, &mut |e, column, x| body(e, &At { column, ..at.clone() }, x, (lo, hi), cut, len))
        })
    })
}

/// The sums of passes over the data: column by column of the result, vector by vector.
struct Waiting<'a> {
    stack: &'a Var,
    pieces: &'a [Piece],
    /// Elements of a column, and columns of the result in a row, in an image, and in all.
    width: i64,
    columns: [i64; 3],
}

impl Waiting<'_> {
    fn new<'a>(r: &Run, stack: &'a Var, pieces: &'a [Piece]) -> Waiting<'a> {
        let [rows, row] = r.w.out;
        Waiting { stack, pieces, width: lanes(pieces), columns: [row, rows * row, r.w.batch * rows * row] }
    }

    fn offset(&self, at: &At, i: i64, p: &Piece) -> PrimExpr {
        let [row, image, _] = self.columns;
        let column = at.batch.clone() * image + at.row.clone() * row + at.column.clone();
        column * self.width + (i * self.width + p.at - self.pieces[0].at)
    }

    fn clear(&self, e: &mut Emit) -> Res<()> {
        let at = Var::new("at", DType::I64);
        let end = self.columns[2] * self.width;
        e.ranges.add_loop(&at, Poly::default(), Poly::constant(end));
        e.for_loop(&at, PrimExpr::i64(0), PrimExpr::i64(end), self.width, |e| {
            for p in self.pieces {
                let value = spread(PrimExpr::zero(DType::F32), p.lanes as u16);
                let offset = at.expr() + (p.at - self.pieces[0].at);
                e.push(FlatStmt::Store { ptr: self.stack.expr(), offset, value });
            }
            Ok(())
        })
    }

    /// The sums of a tile of `rows` columns and these vectors.
    fn load(&self, e: &mut Emit, at: &At, rows: i64, pieces: &[Piece]) -> Vec<Vec<Var>> {
        let load = |i: i64, p: &Piece| {
            PrimExpr::load_ptr(self.stack.expr(), self.offset(at, i, p), DType::F32.with_lanes(p.lanes as u16))
        };
        (0..rows).map(|i| pieces.iter().map(|p| e.local("acc", load(i, p))).collect()).collect()
    }

    fn store(&self, e: &mut Emit, at: &At, pieces: &[Piece], sums: &[Vec<Var>]) {
        for (i, row) in sums.iter().enumerate() {
            for (p, sum) in pieces.iter().zip(row) {
                let offset = self.offset(at, i as i64, p);
                e.push(FlatStmt::Store { ptr: self.stack.expr(), offset, value: sum.expr() });
            }
        }
    }
}
