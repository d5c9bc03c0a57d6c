//! Convolutions as products of tiles: neighbouring columns of the result by the channels of a panel of weights. The
//! data is read in place, one value for all lanes; strides are displacements.

use super::super::emit::{Emit, Res};
use super::super::poly::Poly;
use super::super::reduce::LINE;
use super::blocks;
use super::tile::{inside_of, most_pieces, pieces, rows_of, At, Cut, Group, Piece, Run};
use super::{Outer, Window};
use relax_ir::flat::FlatStmt;
use relax_ir::prim::Intrin;
use relax_ir::{DType, PrimExpr, Var};

/// Multiplications of vectors in the body of the innermost loop.
const BODY: i64 = 120;

/// Weights of at most so many bytes stay in the second-level cache while the rows of the data go by.
const NEAR: i64 = 400 << 10;

/// Weights of at least so many bytes have those behind them asked for.
const AHEAD_FROM: i64 = 8 << 10;

/// Whether small weights are read again for each tile, so that data and result are walked once.
pub fn near(w: &Window, lanes: i64) -> bool {
    let small = match w.plan.outer {
        Outer::Model => w.made * w.depth() * 4 <= NEAR,
        outer => outer == Outer::Data,
    };
    small && w.made > w.panel && w.panel <= most_pieces(lanes) as i64 * lanes
}

pub fn emit(e: &mut Emit, r: &Run) -> Res<()> {
    let w = &r.w;
    if near(w, r.lanes) {
        let len = rows_of(w, r.lanes, pieces(w.panel, r.lanes).len() as i64);
        let cuts = r.cuts(e, len);
        return r.rows(e, &mut |e, at, row, lo, hi| {
            cuts.iter().try_for_each(|cut| {
                r.columns(e, cut, row, &mut |e, column, x| {
                    let at = At { column, ..at.clone() };
                    let ahead = NextPanel::of(e, r, &at, len, &cuts, w.made * w.depth() * w.stored().bytes() as i64);
                    panels(e, r, &mut |e, weights, channel, width| {
                        let at = At { channel, ..at.clone() };
                        let from = Operands { x: x.clone(), weights, width, ahead: ahead.clone() };
                        tile(e, r, &at, from, (lo, hi), cut, &pieces(width, r.lanes))
                    })
                })
            })
        });
    }
    let blocks = blocks::blocks(e, r, w.panel);
    panels(e, r, &mut |e, weights, channel, width| match &blocks {
        Some(blocks) if width == w.panel => blocks::emit(e, r, &weights, &channel, width, blocks),
        _ => channels(e, r, &weights, channel, width),
    })
}

/// A loop over the panels, and the last one where it is narrower: address of the weights, first channel and width.
fn panels(e: &mut Emit, r: &Run, body: &mut dyn FnMut(&mut Emit, PrimExpr, PrimExpr, i64) -> Res<()>) -> Res<()> {
    let w = &r.w;
    let whole = w.made / w.panel;
    let bytes = w.panel * w.depth() * w.stored().bytes() as i64;
    let panel = Var::new("panel", DType::I64);
    e.ranges.add_loop(&panel, Poly::default(), Poly::constant(whole));
    e.for_loop(&panel, PrimExpr::i64(0), PrimExpr::i64(whole), 1, |e| {
        let p = e.bind("p", r.weight.expr().ptr_add(panel.expr() * bytes));
        body(e, p, panel.expr() * w.panel, w.panel)
    })?;
    match w.made % w.panel {
        0 => Ok(()),
        rest => {
            let p = e.bind("p", r.weight.expr().ptr_add(whole * bytes));
            body(e, p, PrimExpr::i64(whole * w.panel), rest)
        }
    }
}

/// Addresses of data and weights, and how far the taps of a channel made lie apart.
#[derive(Clone)]
pub(super) struct Operands {
    pub(super) x: PrimExpr,
    pub(super) weights: PrimExpr,
    pub(super) width: i64,
    pub(super) ahead: Option<NextPanel>,
}

/// What the tiles over a panel ask for while their sums are made: each its part of the next panel's lines.
#[derive(Clone)]
pub(super) struct NextPanel {
    /// How many tiles were before, times [`LINE`].
    turn: PrimExpr,
    tiles: i64,
    /// Of an open row, how many there are.
    counted: Option<PrimExpr>,
    /// How far what is asked for lies behind the weights in use.
    apart: i64,
    /// What else is asked for: where that begins for this panel, and its bytes for each of the panel's.
    behind: Option<(PrimExpr, i64)>,
}

/// What a quotient is multiplied by before it is rounded.
const SHARP: i64 = 1024;

impl NextPanel {
    /// For the tile at `at`, one of those that `cuts` make.
    pub(super) fn of(e: &mut Emit, r: &Run, at: &At, len: i64, cuts: &[Cut], apart: i64) -> Option<NextPanel> {
        let w = &r.w;
        if !r.ahead || w.groups > 1 || !w.last || apart < AHEAD_FROM {
            return None;
        }
        let each = cuts.iter().map(|c| c.count).sum::<i64>();
        // Columns over the length of a tile, as a multiplication and a shift.
        let column = at.column.clone() * ((LINE * SHARP + len - 1) / len.max(1));
        let turn = e.hoist(at.row.clone() * (each * LINE) + column.floor_div(SHARP));
        // An open row may be shorter than the likely one: half of its tiles could ask for all, and each asks for what is
        // its own at the latest.
        let short = w.open && w.out[0] == 1;
        let tiles = if short { (each + 1) / 2 } else { w.out[0] * each };
        let counted = short.then(|| {
            let columns = r.sizes.out[1].clone() + (len.max(1) - 1);
            e.hoist(columns.floor_div(len.max(1)).max(1))
        });
        Some(NextPanel { turn, tiles: tiles.max(1), counted, apart, behind: None })
    }

    /// With its part of what lies behind all weights, for the panel at channel `first`.
    fn and_behind(mut self, e: &mut Emit, r: &Run, first: &PrimExpr) -> NextPanel {
        let w = &r.w;
        let channel = w.depth() * w.stored().bytes() as i64;
        if r.behind > 0 && w.kernel == [1, 1] {
            let times = (r.behind + w.made * channel - 1) / (w.made * channel);
            let begin = r.weight.expr().ptr_add(first.clone() * (channel * times) + w.made * channel);
            self.behind = Some((e.hoist(begin), times));
        }
        self
    }
}

/// A panel of `width` channels over all of the data.
fn channels(e: &mut Emit, r: &Run, weights: &PrimExpr, first: PrimExpr, width: i64) -> Res<()> {
    for (pass, pieces) in pieces(width, r.lanes).chunks(blocks::side_by_side(r, width)).enumerate() {
        let len = rows_of(&r.w, r.lanes, pieces.len() as i64);
        let cuts = r.cuts(e, len);
        r.rows(e, &mut |e, at, row, lo, hi| {
            for cut in &cuts {
                r.columns(e, cut, row, &mut |e, column, x| {
                    let at = At { column, channel: first.clone(), ..at.clone() };
                    let ahead =
                        NextPanel::of(e, r, &at, len, &cuts, r.w.panel * r.w.depth() * r.w.stored().bytes() as i64);
                    let ahead = ahead.map(|a| if pass == 0 { a.and_behind(e, r, &first) } else { a });
                    let from = Operands { x, weights: weights.clone(), width, ahead };
                    tile(e, r, &at, from, (lo, hi), cut, pieces)
                })?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// A tile of neighbouring columns of the result, from zero to its epilogue.
fn tile(
    e: &mut Emit,
    r: &Run,
    at: &At,
    from: Operands,
    rows: (&PrimExpr, &PrimExpr),
    cut: &Cut,
    pieces: &[Piece],
) -> Res<()> {
    let sums = r.sums(e, cut.len, pieces);
    let from = match r.w.groups {
        1 => from,
        // What the panel's groups read.
        _ => Operands { x: e.bind("p", from.x.clone().ptr_add(r.w.panel_taken(at.channel.clone()) * 4)), ..from },
    };
    if cut.asks {
        multiply_asking(e, r, at, from, rows, cut, pieces, &sums)?;
    } else if r.w.is_bordered() && r.w.dilation[1] > 1 {
        multiply_inside(e, r, at, from, rows, cut, pieces, &sums)?;
    } else {
        multiply(e, r, from, rows, cut, pieces, &sums)?;
    }
    r.finish(e, at, pieces, &sums)
}

/// As [`multiply`], for data without columns of zeros, few channels of it: columns that may lie outside are asked for.
#[allow(clippy::too_many_arguments)]
fn multiply_asking(
    e: &mut Emit,
    r: &Run,
    at: &At,
    from: Operands,
    rows: (&PrimExpr, &PrimExpr),
    cut: &Cut,
    pieces: &[Piece],
    sums: &[Vec<Var>],
) -> Res<()> {
    let (w, zero) = (&r.w, PrimExpr::i64(0));
    let (left, right) = r.inside(e, &at.column);
    taps(e, r, from, rows, &mut |e, from| {
        for t in 0..w.kernel[1] {
            let column = |i: i64| i * w.stride[1] + t * w.dilation[1];
            let (sure, asked): (Vec<i64>, Vec<i64>) =
                (0..cut.len).partition(|i| w.may_miss(column(*i), cut.len) == [false, false]);
            let one = |e: &mut Emit, rows: &[i64]| {
                let inside = (0..cut.len).map(|i| rows.contains(&i)).collect();
                let g = Group { tap: t, taps: 1, inside };
                tap(e, r, from, (&zero, &zero, t * (w.dilation[1] - 1)), t, &g, pieces, sums)
            };
            if !sure.is_empty() {
                one(e, &sure)?;
            }
            for i in asked {
                let inside = inside_of(&left, &right, column(i), w.may_miss(column(i), cut.len));
                e.if_then(inside, |e| one(e, &[i]), |_| Ok(()))?;
            }
        }
        Ok(())
    })
}

/// As [`multiply`], without the taps that lie in the zeros at an end of an open row for every column of the tile.
#[allow(clippy::too_many_arguments)]
fn multiply_inside(
    e: &mut Emit,
    r: &Run,
    at: &At,
    from: Operands,
    rows: (&PrimExpr, &PrimExpr),
    cut: &Cut,
    pieces: &[Piece],
    sums: &[Vec<Var>],
) -> Res<()> {
    let (w, [_, columns]) = (&r.w, &r.sizes.size);
    let first = e.hoist(at.column.clone() * w.stride[1]);
    let end = e.hoist(columns.clone() - w.margin[1]);
    taps(e, r, from, rows, &mut |e, from| {
        cut.groups.iter().try_for_each(|g| {
            let tap = first.clone() + g.tap * w.dilation[1];
            let last = tap.clone() + (cut.len - 1) * w.stride[1];
            let inside = last.ge(PrimExpr::i64(w.margin[0])).and(tap.lt(end.clone()));
            e.if_then(inside, |e| group(e, r, from, g, pieces, sums), |_| Ok(()))
        })
    })
}

/// Adds the taps of the rows of taps `rows` to the sums of a tile.
pub(super) fn multiply(
    e: &mut Emit,
    r: &Run,
    from: Operands,
    rows: (&PrimExpr, &PrimExpr),
    cut: &Cut,
    pieces: &[Piece],
    sums: &[Vec<Var>],
) -> Res<()> {
    taps(e, r, from, rows, &mut |e, from| cut.groups.iter().try_for_each(|g| group(e, r, from, g, pieces, sums)))
}

type Body<'a> = &'a mut dyn FnMut(&mut Emit, &Operands) -> Res<()>;

/// Loops over the rows of taps, inside those over channels where the data has channels first.
fn taps(e: &mut Emit, r: &Run, from: Operands, (lo, hi): (&PrimExpr, &PrimExpr), body: Body) -> Res<()> {
    let w = &r.w;
    let strides = r.strides();
    if w.last {
        return rows(e, r, from, w.kernel[1] * w.reach(), (lo, hi), body);
    }
    let c = Var::new("c", DType::I64);
    let plane = e.hoist(strides[3].clone() * 4);
    e.ranges.add_loop(&c, Poly::default(), Poly::constant(w.taken));
    e.for_loop(&c, PrimExpr::i64(0), PrimExpr::i64(w.taken), 1, |e| {
        let x = e.bind("p", from.x.clone().ptr_add(c.expr() * plane));
        let step = w.kernel[0] * w.kernel[1] * from.width * w.stored().bytes() as i64;
        let weights = e.bind("p", from.weights.clone().ptr_add(c.expr() * step));
        rows(e, r, Operands { x, weights, ..from.clone() }, w.kernel[1], (lo, hi), body)
    })
}

/// `run`: taps of a row.
fn rows(e: &mut Emit, r: &Run, from: Operands, run: i64, (lo, hi): (&PrimExpr, &PrimExpr), body: Body) -> Res<()> {
    let stride = e.hoist(r.strides()[1].clone() * (r.w.dilation[0] * 4));
    let y = Var::new("y", DType::I64);
    e.ranges.add_loop(&y, Poly::default(), Poly::constant(r.w.kernel[0]));
    e.for_loop(&y, lo.clone(), hi.clone(), 1, |e| {
        let x = e.bind("p", from.x.clone().ptr_add(y.expr() * stride));
        let bytes = run * from.width * r.w.stored().bytes() as i64;
        let weights = e.bind("p", from.weights.clone().ptr_add(y.expr() * bytes));
        body(e, &Operands { x, weights, ..from.clone() })
    })
}

/// One tap of groups of channels that share vectors: as many multiplications for each sum as a group has channels.
fn shared(e: &mut Emit, r: &Run, from: &Operands, g: &Group, pieces: &[Piece], sums: &[Vec<Var>]) -> Res<()> {
    let n = r.w.reach();
    let (step, apart) = (r.w.stride[1] * r.w.pixel(), g.tap * r.w.dilation[1] * r.w.pixel());
    for (at, p) in pieces.iter().enumerate() {
        let lanes = DType::F32.with_lanes(p.lanes as u16);
        let mut vectors = vec![];
        for c in 0..n {
            let offset = PrimExpr::i64((g.tap * n + c) * from.width + p.at);
            vectors.push(e.bind("w", r.w.weights(&from.weights, offset, p.lanes)));
        }
        for (i, row) in sums.iter().enumerate().filter(|(i, _)| g.inside[*i]) {
            let offset = PrimExpr::i64(apart + i as i64 * step + p.at);
            let x = e.bind("x", PrimExpr::load_ptr(from.x.clone(), offset, lanes));
            let repeat = |x: &PrimExpr, n: i64, i: i64, size: i64| {
                let literals = [n, i, size].map(PrimExpr::i64);
                PrimExpr::call(Intrin::Repeat, [vec![x.clone()], literals.to_vec()].concat())
            };
            for part in 0..(n + 3) / 4 {
                let part_of = if n == 8 { e.bind("x", repeat(&x, 2, part, 4)) } else { x.clone() };
                for c in 0..n.min(4) {
                    let own = repeat(&part_of, n.min(4), c, 1);
                    let w = vectors[(part * 4 + c) as usize].clone();
                    e.assign(&row[at], PrimExpr::call(Intrin::Fma, vec![own, w, row[at].expr()]));
                }
            }
        }
    }
    Ok(())
}

/// The taps of a group, which lie behind one another in data and weights. (With dilation and in groups of channels it is
/// one tap.)
fn group(e: &mut Emit, r: &Run, from: &Operands, g: &Group, pieces: &[Piece], sums: &[Vec<Var>]) -> Res<()> {
    if pieces.iter().any(|p| r.w.is_shared(p.lanes)) {
        return shared(e, r, from, g, pieces, sums);
    }
    let (unit, step) = if r.w.last { (r.w.reach(), r.w.pixel()) } else { (1, 1) };
    let (first, len) = (g.tap * unit, g.taps * unit);
    // The data lies further apart than the weights.
    let apart = g.tap * (r.w.dilation[1] * step - unit);
    let inside = g.inside.iter().filter(|i| **i).count().max(1) as i64;
    let most = (BODY / (inside * pieces.len() as i64)).clamp(1, 16);
    let unroll = match len <= most {
        true => len,
        false => (most / 2 + 1..=most).rev().find(|u| len % u == 0).unwrap_or(most),
    };
    let whole = len / unroll * unroll;
    let k = Var::new("k", DType::I64);
    e.ranges.add_loop(&k, Poly::default(), Poly::constant(whole));
    // Each round asks for the line of its part of the next panel whose turn it is.
    let bytes = r.w.stored().bytes() as i64;
    let round = unroll * from.width * bytes;
    let ahead = from.ahead.as_ref().map(|a| {
        let all = (round + LINE - 1) / LINE;
        let lines = (all + a.tiles - 1) / a.tiles;
        let own = match &a.counted {
            Some(n) => e.hoist((n.clone() + (all - 1)).floor_div(n.clone()).min(lines)),
            None => PrimExpr::i64(lines),
        };
        let turn = (a.turn.clone() * own).min(PrimExpr::i64(round));
        let next = from.weights.clone().ptr_add(turn.clone()).ptr_add(a.apart + first * from.width * bytes);
        let next = e.hoist(next);
        let behind = a.behind.as_ref().map(|(begin, times)| {
            let at = (turn + first * from.width * bytes) * *times;
            (e.hoist(begin.clone().ptr_add(at)), *times)
        });
        (next, lines, behind)
    });
    e.for_loop(&k, PrimExpr::i64(0), PrimExpr::i64(whole), unroll, |e| {
        let at = e.bind("at", k.expr() * from.width);
        if let Some((next, lines, behind)) = &ahead {
            let asked = [(next, 1)].into_iter().chain(behind.as_ref().map(|(p, times)| (p, *times)));
            for (from, times) in asked {
                let from = from.clone().ptr_add(at.clone() * (bytes * times));
                (0..lines * times).for_each(|l| e.push(FlatStmt::Prefetch { ptr: from.clone().ptr_add(l * LINE) }));
            }
        }
        (0..unroll).try_for_each(|u| tap(e, r, from, (&k.expr(), &at, apart), first + u, g, pieces, sums))
    })?;
    let zero = PrimExpr::i64(0);
    (whole..len).try_for_each(|u| tap(e, r, from, (&zero, &zero, apart), first + u, g, pieces, sums))
}

/// One multiplication for each sum.
#[allow(clippy::too_many_arguments)]
fn tap(
    e: &mut Emit,
    r: &Run,
    from: &Operands,
    (k, at, apart): (&PrimExpr, &PrimExpr, i64),
    tap: i64,
    g: &Group,
    pieces: &[Piece],
    sums: &[Vec<Var>],
) -> Res<()> {
    let full = pieces.len() == 4;
    let mut vectors = vec![];
    for (i, p) in pieces.iter().enumerate() {
        let offset = at.clone() + (tap * from.width + p.at);
        let load = r.w.weights(&from.weights, offset, p.lanes);
        // Four vectors and seven rows leave three registers for weights.
        vectors.push(if full && i == 3 && r.w.half.is_none() { load } else { e.bind("w", load) });
    }
    let step = r.w.stride[1] * r.apart();
    // Where the channels of a vector's group begin.
    let [taken, made] = r.w.group();
    let channel = |p: &Piece| if r.w.groups > 1 { p.at / made.max(1) * taken } else { 0 };
    for (i, row) in sums.iter().enumerate().filter(|(i, _)| g.inside[*i]) {
        let lone = pieces.len() == 1;
        let mut before: Option<(i64, PrimExpr)> = None;
        for ((sum, p), w) in row.iter().zip(pieces).zip(&vectors) {
            let first = channel(p);
            let x = match before.take().filter(|(at, _)| *at == first) {
                Some((_, x)) => x,
                None => {
                    let offset = k.clone() + (tap + apart + first + i as i64 * step);
                    let load = PrimExpr::load_ptr(from.x.clone(), offset, DType::F32);
                    if lone {
                        load
                    } else {
                        e.bind("x", load)
                    }
                }
            };
            before = Some((first, x.clone()));
            let x = x.clone().broadcast(p.lanes as u16);
            // The second factor is the one that may be read from memory.
            let (a, b) = if lone { (w.clone(), x) } else { (x, w.clone()) };
            e.assign(sum, PrimExpr::call(Intrin::Fma, vec![a, b, sum.expr()]));
        }
    }
    Ok(())
}
