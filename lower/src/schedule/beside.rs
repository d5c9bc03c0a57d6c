//! What the tiles of a reduction do beside their sums, in each round of the innermost loop: they ask for memory and copy.

use super::emit::{Emit, Lane, Res};
use super::map::spread;
use super::poly::Poly;
use super::reduce::Spot;
use super::sliver::four;
use relax_ir::flat::FlatStmt;
use relax_ir::{PrimExpr, Var};
use std::collections::HashMap;

/// Bytes of a cache line.
pub const LINE: i64 = 64;

/// Memory that is asked for while sums are made: some lines of [`LINE`] bytes in each round of the innermost loop.
#[derive(Clone)]
pub struct Ahead {
    /// Where the tile begins to ask. It need not be memory of the program.
    pub ptr: PrimExpr,
    /// The lines of a round: bytes behind that place.
    pub lines: Vec<i64>,
    /// Bytes from those of a round to those of the next.
    pub step: i64,
    /// So many rounds share a line: each asks for its own of as many groups of lines, so many bytes apart.
    pub turns: (i64, i64),
}

impl Ahead {
    /// Asks for the lines of the round at step `k`; `unroll` steps are a round.
    pub(super) fn round(&self, e: &mut Emit, ptr: &PrimExpr, k: &Var, unroll: i64) {
        let (turns, apart) = self.turns;
        let at = match turns {
            1 => k.expr() * (self.step / unroll),
            _ => {
                let within = k.expr().floor_div(unroll).floor_mod(turns) * apart;
                k.expr().floor_div(unroll * turns) * (self.step * turns) + within
            }
        };
        ask(e, ptr.clone().ptr_add(at), &self.lines);
    }
}

fn ask(e: &mut Emit, ptr: PrimExpr, lines: &[i64]) {
    let first = e.bind("asked", ptr);
    for line in lines {
        e.push(FlatStmt::Prefetch { ptr: first.clone().ptr_add(*line) });
    }
}

/// A value along the vectors, which each reduction step stores to memory that nothing else of the nest reads or writes.
#[derive(Clone)]
pub struct Copies {
    pub value: PrimExpr,
    pub ptr: Var,
    pub offset: PrimExpr,
}

impl Copies {
    /// The vectors of a row of the tile, with what `k` says of other variables.
    pub(super) fn emit(&self, e: &mut Emit, row: &[Spot], k: &HashMap<Var, PrimExpr>) -> Res<()> {
        for s in row {
            let mut map = s.map.clone();
            map.extend(k.iter().map(|(v, x)| (v.clone(), x.clone())));
            let x = e.value(&self.value.substitute(&map), &s.lane)?;
            let offset = Poly::of(&self.offset.substitute(&map), &e.ranges);
            e.store_apart(&self.ptr, &offset, spread(x, s.lane.lanes))?;
        }
        Ok(())
    }
}

/// What tiles copy while sums are made: some pieces in each round of the innermost loop, up to the last one.
#[derive(Clone)]
pub struct Next {
    pub piece: Piece,
    /// The number of a piece.
    pub number: Var,
    /// The first piece of a tile, the pieces of a round, and the last one of all.
    pub first: PrimExpr,
    pub each: i64,
    pub last: i64,
    /// The points of the tiles that are enough for all.
    pub rows: i64,
    /// What is asked for with a piece: a place, and bytes behind it.
    pub asked: (PrimExpr, Vec<i64>),
}

#[derive(Clone)]
pub enum Piece {
    /// A row of vectors.
    Row(Copies),
    /// Four vectors of four lanes, whose columns go to memory, so many elements apart.
    Square { lane: Var, rows: Vec<PrimExpr>, ptr: Var, offset: PrimExpr, apart: i64 },
}

impl Next {
    /// Copies the pieces of the round at step `k` of a tile that begins with the piece `first`; `unroll` steps are a round.
    pub(super) fn round(&self, e: &mut Emit, first: &PrimExpr, k: &Var, unroll: i64, row: &[Spot]) -> Res<()> {
        let round = k.expr().floor_div(unroll) * self.each + first.clone();
        for i in 0..self.each {
            let number = e.bind("piece", (round.clone() + i).min(PrimExpr::i64(self.last)));
            let map = HashMap::from([(self.number.clone(), number)]);
            match &self.piece {
                Piece::Row(c) => c.emit(e, row, &map)?,
                Piece::Square { lane, rows, ptr, offset, apart } => {
                    e.start_lane(lane, false);
                    let mut values = vec![];
                    for r in rows {
                        let x = e.value(&r.substitute(&map), &Lane::of(lane, rows.len() as u16))?;
                        values.push(e.bind("row", x));
                    }
                    e.end_lane(lane);
                    for (i, column) in four(e, &values).into_iter().enumerate() {
                        let offset = offset.substitute(&map) + i as i64 * apart;
                        e.store_apart(ptr, &Poly::of(&offset, &e.ranges), column)?;
                    }
                }
            }
            ask(e, self.asked.0.substitute(&map), &self.asked.1);
        }
        Ok(())
    }
}
