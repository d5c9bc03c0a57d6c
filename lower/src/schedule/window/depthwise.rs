//! Depthwise convolutions, maxima and sums: vectors of channels, tiles of neighbouring columns that share what they read.

use super::super::emit::{Emit, Res};
use super::super::poly::Poly;
use super::tile::{inside_of, pieces, registers, At, Cut, Piece, Run};
use super::{Kind, Window};
use relax_ir::prim::Intrin;
use relax_ir::{DType, PrimExpr, Var};

/// Vectors side by side, and columns of a tile.
pub fn shape(w: &Window, lanes: i64) -> (i64, i64) {
    if w.plan.rows > 0 && w.plan.lanes == lanes {
        return ((w.panel / lanes).clamp(1, 2), w.plan.rows.min(w.out[1].max(1)));
    }
    let wide = if registers(lanes) == 32 && w.made >= 2 * lanes { 2 } else { 1 };
    let most = most(w, lanes, wide);
    let tiles = |len: i64| (w.out[1] + len - 1) / len;
    let least = tiles(most);
    (wide, (1..=most).find(|&l| tiles(l) == least).unwrap_or(1))
}

/// Columns of a tile, at most: registers hold sums, the weights of a row of taps and one value read.
fn most(w: &Window, lanes: i64, wide: i64) -> i64 {
    ((registers(lanes) - 1) / wide - w.kernel[1] - 1).clamp(1, 14).min(w.out[1].max(1))
}

/// All shapes with different counts of tiles, and what they cost.
pub fn shapes(w: &Window, lanes: i64) -> Vec<(i64, i64, f64)> {
    let mut out = vec![];
    for wide in (1..=2).filter(|n| *n == 1 || w.made >= 2 * lanes) {
        let mut last = 0;
        for len in 1..=most(w, lanes, wide) {
            let tiles = (w.out[1] + len - 1) / len;
            if tiles == last {
                continue;
            }
            last = tiles;
            let [kh, kw] = w.kernel;
            let reads = ((len - 1) * w.stride[1] + 2 * kw) as f64;
            let tile = wide as f64 * (kh as f64 * reads.max((len * kw) as f64) + 3.0 * len as f64) + 12.0;
            let blocks = (w.made as f64 / (wide * lanes) as f64).ceil() * (w.batch * w.out[0]) as f64;
            out.push((wide, len, tile * tiles as f64 * blocks));
        }
    }
    out
}

pub fn emit(e: &mut Emit, r: &Run) -> Res<()> {
    let w = &r.w;
    let (wide, len) = shape(w, r.lanes);
    let cuts = r.cuts(e, len);
    let block = wide * r.lanes;
    let whole = w.made / block * block;
    let band = match r.rows {
        // They are a band already.
        Some(_) => w.out[0].max(1),
        None => band(w, block),
    };
    r.bands(e, band, &mut |e, at, image, rows| {
        for cut in &cuts {
            r.columns(e, cut, image, &mut |e, column, p| {
                let at = At { column, ..at.clone() };
                let c = Var::new("c", DType::I64);
                e.ranges.add_loop(&c, Poly::default(), Poly::constant(whole));
                e.for_loop(&c, PrimExpr::i64(0), PrimExpr::i64(whole), block, |e| {
                    let at = At { channel: c.expr(), ..at.clone() };
                    down(e, r, &at, &p, rows, cut, &pieces(block, r.lanes))
                })?;
                let at = At { channel: PrimExpr::i64(whole), ..at.clone() };
                pieces(w.made - whole, r.lanes)
                    .chunks(wide as usize)
                    .try_for_each(|pieces| down(e, r, &at, &p, rows, cut, pieces))
            })?;
        }
        Ok(())
    })
}

/// Bytes of data that a band goes over, at most.
const BAND: i64 = 2 << 20;

/// Bytes of the rows of data under a row of the result that the first-level cache holds until the next one.
const NEAR: i64 = 16 << 10;

/// Bytes of a result that does not wait for its tiles in the second-level cache.
const FAR: i64 = 1 << 20;

/// Threads share blocks of channels or bands: so many of these, or a multiple.
const SHARES: i64 = 4;

/// Rows of the result that are computed together, one tile below the other: all but the first one find the rows of data that
/// they share with the one above in the first-level cache. `block`: channels of a tile.
fn band(w: &Window, block: i64) -> i64 {
    let line = (w.size[1] * w.pixel() * 4).max(1);
    let under = (w.kernel[0] - 1) * w.dilation[0] + 1;
    if line * under <= NEAR {
        return 1;
    }
    let rows = ((BAND / line - under) / w.stride[0] + 1).max(w.kernel[0]);
    let all = w.out[0].max(1);
    let bands = (all + rows - 1) / rows;
    if bands == 1 && w.made / block >= SHARES {
        return all;
    }
    let bands = (bands + SHARES - 1) / SHARES * SHARES;
    ((all + bands - 1) / bands).max(w.kernel[0]).min(all)
}

/// The tiles of a band, one below the other.
fn down(
    e: &mut Emit,
    r: &Run,
    at: &At,
    p: &PrimExpr,
    (first, end): (&PrimExpr, &PrimExpr),
    cut: &Cut,
    pieces: &[Piece],
) -> Res<()> {
    let row = Var::new("row", DType::I64);
    let begin = Poly::of(first, &e.ranges);
    let extent = Poly::of(end, &e.ranges).sub(&begin);
    e.ranges.add_loop(&row, begin, extent);
    let line = e.hoist(r.strides()[1].clone() * 4);
    e.for_loop(&row, first.clone(), end.clone(), 1, |e| {
        let (top, lo, hi) = r.taps(e, &row.expr());
        let p = e.bind("p", p.clone().ptr_add(top * line));
        let at = At { row: row.expr(), ..at.clone() };
        tile(e, r, &at, &p, (&lo, &hi), cut, pieces)
    })
}

fn tile(
    e: &mut Emit,
    r: &Run,
    at: &At,
    p: &PrimExpr,
    (lo, hi): (&PrimExpr, &PrimExpr),
    cut: &Cut,
    pieces: &[Piece],
) -> Res<()> {
    let w = &r.w;
    let line = e.hoist(r.strides()[1].clone() * (w.dilation[0] * 4));
    // The columns under the tile that are inside of the data, where that is asked.
    let bounds = cut.asks.then(|| r.inside(e, &at.column));
    let pool = w.is_pool();
    let sums = match w.kind {
        Kind::Max => r.starting(e, cut.len, pieces, PrimExpr::min_value(DType::F32)),
        _ => r.sums(e, cut.len, pieces),
    };
    if r.ahead && !r.passed && w.batch * w.out[0] * w.out[1] * w.made * 4 > FAR {
        r.ask_below(e, at, cut.len, pieces);
    }
    let y = Var::new("y", DType::I64);
    e.ranges.add_loop(&y, Poly::default(), Poly::constant(w.kernel[0]));
    e.for_loop(&y, lo.clone(), hi.clone(), 1, |e| {
        let channel = at.channel.clone() * 4;
        let x = e.bind("p", p.clone().ptr_add(y.expr() * line + channel));
        let own = w.stored().bytes() as i64;
        let offset = y.expr() * (w.kernel[1] * w.made * own) + at.channel.clone() * own;
        let weights = e.bind("p", r.weight.expr().ptr_add(offset));
        let load = |p: &PrimExpr, at: i64, lanes: i64| {
            PrimExpr::load_ptr(p.clone(), PrimExpr::i64(at), DType::F32.with_lanes(lanes as u16))
        };
        let mut vectors = vec![];
        for tap in (0..w.kernel[1]).filter(|_| !pool) {
            let row: Vec<PrimExpr> = pieces
                .iter()
                .map(|q| e.bind("w", w.weights(&weights, PrimExpr::i64(tap * w.made + q.at), q.lanes)))
                .collect();
            vectors.push(row);
        }
        let inside = |tap: i64, i: i64| {
            cut.groups.iter().any(|g| (g.tap..g.tap + g.taps).contains(&tap) && g.inside[i as usize])
        };
        // Every column of the data serves the windows over it.
        for column in 0..(cut.len - 1) * w.stride[1] + (w.kernel[1] - 1) * w.dilation[1] + 1 {
            let uses: Vec<(i64, i64)> = (0..cut.len)
                .map(|i| (i, column - i * w.stride[1]))
                .filter(|(_, at)| at % w.dilation[1] == 0)
                .map(|(i, at)| (i, at / w.dilation[1]))
                .filter(|&(i, tap)| (0..w.kernel[1]).contains(&tap) && inside(tap, i))
                .collect();
            if uses.is_empty() {
                continue;
            }
            let add = |e: &mut Emit| {
                for (k, q) in pieces.iter().enumerate() {
                    let x = e.bind("x", load(&x, column * r.apart() + q.at, q.lanes));
                    for &(i, tap) in &uses {
                        let sum = &sums[i as usize][k];
                        let value = match w.kind {
                            Kind::Max => sum.expr().max(x.clone()),
                            Kind::Sum => sum.expr() + x.clone(),
                            _ => PrimExpr::call(
                                Intrin::Fma,
                                vec![x.clone(), vectors[tap as usize][k].clone(), sum.expr()],
                            ),
                        };
                        e.assign(sum, value);
                    }
                }
                Ok(())
            };
            match &bounds {
                Some((left, right)) => {
                    // A tile that is not the first one begins behind these, one that is not the last one ends before those.
                    let inside = inside_of(left, right, column, w.may_miss(column, cut.len));
                    e.if_then(inside, add, |_| Ok(()))?;
                }
                None => add(e)?,
            }
        }
        Ok(())
    })?;
    r.finish(e, at, pieces, &sums)
}
