//! Depthwise convolutions, one output channel for each input channel: the bytes of up to four kernel rows in a column
//! are woven to the four bytes of a lane, so that one multiplication of bytes takes all rows at a time.
//!
//! Weaving whole registers deals four channels at a time to each of four parts; sums, scales and weights are stored in
//! that order ([`Conv::place`]), and narrowing the parts to bytes again restores the order of the channels.

use super::{c, let_, load, words, Body, Conv, Group, Panel, Writer};
use relax_ir::flat::FlatStmt;
use relax_ir::prim::{Intrin, Var};
use relax_ir::{DType, PrimExpr};

impl Panel {
    /// Channels are dealt to four parts.
    pub(super) fn is_woven(&self, v: &Conv) -> bool {
        v.weaves() && self.count == 4
    }
}

impl Conv {
    /// Kernel rows are multiplied together.
    pub(super) fn weaves(&self) -> bool {
        self.depthwise && (2..=4).contains(&self.k_h)
    }

    /// `f(first channel of the group, position in it, channels of the group)` of the panel that has channel `j`.
    fn grouped(&self, j: &PrimExpr, f: &dyn Fn(PrimExpr, PrimExpr, i64) -> PrimExpr) -> PrimExpr {
        let mut at: Option<PrimExpr> = None;
        for p in self.panels().into_iter().rev() {
            let column = j.clone() - p.start;
            let first = column.clone().floor_div(p.width()) * p.width();
            let i = column - first.clone();
            let inside = match p.is_woven(self) {
                true => i.clone().floor_mod(16).floor_div(4) * p.lanes + i.clone().floor_div(16) * 4 + i.floor_mod(4),
                false => i,
            };
            let here = f(first + p.start, inside, p.width());
            at = Some(match at {
                None => here,
                Some(rest) => j.clone().lt(c(p.end)).select(here, rest),
            });
        }
        at.unwrap_or_else(|| c(0))
    }

    /// Where the sum, scale and bias of channel `j` are.
    pub fn place(&self, j: PrimExpr) -> PrimExpr {
        match self.weaves() {
            true => self.grouped(&j, &|first, inside, _| first + inside),
            false => j,
        }
    }

    /// Where the weight at a row and column of the kernel is: four rows of a channel stand together.
    pub(super) fn woven_position(&self, y: PrimExpr, x: PrimExpr, j: &PrimExpr) -> PrimExpr {
        self.grouped(j, &|first, inside, width| {
            first * (self.k_w * 4) + x.clone() * (width * 4) + inside * 4 + y.clone()
        })
    }

    /// Weights in that order.
    pub(super) fn pack_woven(&self, weight: &dyn Fn(i64, i64, i64, i64) -> i8) -> Vec<u8> {
        let mut out = vec![0; self.weights() as usize];
        for j in 0..self.channels {
            let first = self.woven_position(c(0), c(0), &c(j)).as_int().unwrap_or(0);
            for x in 0..self.k_w {
                let at = self.woven_position(c(0), c(x), &c(j)).as_int().unwrap_or(first);
                for y in 0..self.k_h {
                    out[(at + y) as usize] = weight(y, x, 0, j) as u8;
                }
            }
        }
        out
    }
}

impl Writer<'_> {
    /// The weights of some channels, all kernel columns of each part: in registers as far as there are enough. Where
    /// int16 are multiplied, the even bytes and then the odd ones of each, on the stack.
    pub(super) fn woven_weights(&self, out: &mut Body, p: &Panel, g: &Group, column: &PrimExpr) -> Vec<PrimExpr> {
        let ints = DType::I32.with_lanes(g.lanes as u16);
        let first = let_(out, "first", self.w.expr().ptr_add(column.clone() * (self.conv.k_w * 4)));
        let at = (0..self.conv.k_w).flat_map(|x| g.at.iter().map(move |at| x * p.width() + at));
        let all: Vec<PrimExpr> = at.map(|at| load(&first, c(at), ints)).collect();
        if self.form.dot4 {
            let kept = all.len() <= 12;
            return all.into_iter().map(|w| if kept { let_(out, "w", w) } else { w }).collect();
        }
        let halves = all.iter().flat_map(|w| [0, 1].map(|odd| words(w, odd, true)));
        if all.len() > 16 {
            return halves.collect();
        }
        let stack = Var::new("weights", DType::HANDLE);
        let bytes = 2 * all.len() as u32 * ints.lanes as u32 * 4;
        out.push(FlatStmt::Stack { var: stack.clone(), bytes, align: 64 });
        let mut kept = vec![];
        for (i, value) in halves.enumerate() {
            let offset = c(i as i64 * g.lanes);
            out.push(FlatStmt::Store { ptr: stack.expr(), offset: offset.clone(), value });
            kept.push(load(&stack.expr(), offset, ints));
        }
        kept
    }

    /// A column of pixels, as many rows as the kernel has: what each part is made of.
    fn weave(&self, out: &mut Body, p: &Panel, g: &Group, row: &dyn Fn(i64) -> PrimExpr) -> Vec<PrimExpr> {
        let v = self.conv;
        let lanes = g.lanes as u16;
        let ints = DType::I32.with_lanes(lanes);
        if !p.is_woven(v) {
            let bytes = |y: i64| load(&row(y), c(0), DType::U8.with_lanes(lanes)).cast(ints);
            let shifted = (1..v.k_h).map(|y| bytes(y) * PrimExpr::i32(1 << (8 * y)).broadcast(lanes));
            return vec![shifted.fold(bytes(0), |a, b| a + b)];
        }
        let mut pair = |y: i64| {
            let mut part = |y: i64| match y < v.k_h {
                true => let_(out, "row", load(&row(y), c(0), ints)),
                false => PrimExpr::i32(0).broadcast(lanes),
            };
            let (a, b) = (part(y), part(y + 1));
            [0, 1].map(|high| let_(out, "pair", interleave(&a, &b, 1, high)))
        };
        let (upper, lower) = (pair(0), pair(2));
        let mut parts = vec![];
        for (a, b) in upper.iter().zip(&lower) {
            parts.extend([0, 1].map(|high| interleave(a, b, 2, high)));
        }
        parts
    }

    /// All products of a row of outputs; columns that several windows share are woven once.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn woven_taps(
        &self,
        out: &mut Body,
        p: &Panel,
        g: &Group,
        from: &PrimExpr,
        column: &PrimExpr,
        weights: &[PrimExpr],
        accs: &[Vec<Var>],
    ) {
        let v = self.conv;
        let last = (accs.len() as i64 - 1) * v.stride_w + v.k_w;
        let lines = self.kernel_rows(out, &from.clone().ptr_add(column.clone()));
        for x in 0..last {
            let users = |(r, _): &(usize, &Vec<Var>)| (0..v.k_w).contains(&(x - *r as i64 * v.stride_w));
            if !accs.iter().enumerate().any(|u| users(&u)) {
                continue;
            }
            let row = |y: i64| match &lines {
                Some(lines) => lines[y as usize].clone().ptr_add(x * v.in_c),
                None => from.clone().ptr_add(x * v.in_c).ptr_add(column.clone()).ptr_add(y * v.in_w * v.in_c),
            };
            let parts = self.weave(out, p, g, &row);
            let tap = |r: usize| ((x - r as i64 * v.stride_w) as usize) * parts.len();
            if self.form.dot4 {
                let parts: Vec<PrimExpr> = parts.iter().map(|x| let_(out, "x", x.clone())).collect();
                for (r, row) in accs.iter().enumerate().filter(users) {
                    for (j, (acc, x)) in row.iter().zip(&parts).enumerate() {
                        let w = weights[tap(r) + j].clone();
                        let value = PrimExpr::call(Intrin::Dot4, [acc.expr(), x.clone(), w]);
                        out.push(FlatStmt::Assign { var: acc.clone(), value });
                    }
                }
                continue;
            }
            for (j, part) in parts.iter().enumerate() {
                let part = let_(out, "x", part.clone());
                // Kernels of two rows leave the last two bytes at zero, those of three the last.
                for odd in [0, 1] {
                    let part = let_(out, "words", words(&part, odd, false));
                    for (r, row) in accs.iter().enumerate().filter(users) {
                        let w = weights[2 * (tap(r) + j) + odd as usize].clone();
                        let value = PrimExpr::call(Intrin::DotWords, [row[j].expr(), part.clone(), w]);
                        out.push(FlatStmt::Assign { var: row[j].clone(), value });
                    }
                }
            }
        }
    }
}

pub(super) fn interleave(a: &PrimExpr, b: &PrimExpr, bytes: i64, high: i64) -> PrimExpr {
    PrimExpr::call(Intrin::Interleave, [a.clone(), b.clone(), c(bytes), c(high)])
}
