//! Weights of the channels that come next are asked for while those before them are in use, where they do not stay in the
//! second-level cache. They become int16 in one pass over lines that lie apart, which would wait for each of them.

use super::words::{in_round, TOGETHER};
use super::{let_, Body, Conv, Panel, Writer};
use relax_ir::flat::FlatStmt;
use relax_ir::PrimExpr;

/// Bytes of weights that stay there.
const NEAR: i64 = 128 << 10;

/// The lines that a tile asks for, one at each round of its innermost loop; other tiles ask for those between them.
pub(super) struct Ahead {
    /// The first one.
    line: PrimExpr,
    /// Bytes from the line of four inputs to that of the next four.
    apart: i64,
}

impl Conv {
    /// Whether weights are asked for ahead.
    pub(super) fn asks_ahead(&self) -> bool {
        self.channels * self.depth() > NEAR
    }
}

impl Writer<'_> {
    /// Where the weights of the channels behind those from `channel` on begin: beyond the last ones nothing is read.
    pub(super) fn next_weights(&self, out: &mut Body, p: &Panel, channel: &PrimExpr) -> Option<PrimExpr> {
        self.conv.asks_ahead().then(|| {
            let next = let_(out, "next", channel.clone() + TOGETHER);
            self.weights_of(out, p, &next)
        })
    }
}

impl Ahead {
    /// Of the tile with this number, over so many pairs of inputs, whose weights are `p`'s from `next` on.
    pub(super) fn new(out: &mut Body, p: &Panel, next: &PrimExpr, pairs: i64, tile: PrimExpr) -> Option<Ahead> {
        let fours = in_round(pairs) / 2;
        (in_round(pairs) % 2 == 0).then(|| {
            let apart = p.width() * 4;
            Ahead { line: let_(out, "line", next.clone().ptr_add(tile.floor_mod(fours) * apart)), apart }
        })
    }

    /// Further on by so many fours of inputs.
    pub(super) fn behind(&self, fours: PrimExpr) -> Ahead {
        Ahead { line: self.line.clone().ptr_add(fours * self.apart), apart: self.apart }
    }

    /// Asks at pair `k`.
    pub(super) fn ask(&self, out: &mut Body, k: &PrimExpr) {
        out.push(FlatStmt::Prefetch { ptr: self.line.clone().ptr_add(k.clone() * (self.apart / 2)) });
    }
}
