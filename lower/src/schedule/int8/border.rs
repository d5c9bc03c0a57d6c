//! What surrounds the pixels that a kernel computes.

use super::{c, let_, steps, Body, Writer};
use relax_ir::flat::FlatStmt;
use relax_ir::PrimExpr;

impl Writer<'_> {
    /// The border of the output.
    pub(super) fn border(&self, out: &mut Body) {
        let (v, s) = (self.conv, &self.sizes);
        let pixel = v.channels;
        let (bottom, right) = (v.out_h - v.top - v.rows, v.out_w - v.left - v.columns);
        if v.open && v.top + bottom + v.left + right == 0 {
            return;
        }
        let row = let_(out, "row", s.out_w.clone() * pixel);
        steps(out, &c(0), &s.batch, 1, &mut |out, n| {
            let first = let_(out, "first", self.y.expr().ptr_add(n * (s.out_h.clone() * row.clone())));
            self.fill(out, &first, row.clone() * v.top);
            let below = let_(out, "below", first.clone().ptr_add((s.rows.clone() + v.top) * row.clone()));
            self.fill(out, &below, row.clone() * bottom);
            if v.left + right == 0 {
                return;
            }
            steps(out, &c(v.top), &(s.rows.clone() + v.top), 1, &mut |out, y| {
                let line = let_(out, "line", first.clone().ptr_add(y * row.clone()));
                self.fill(out, &line, c(v.left * pixel));
                let end = let_(out, "end", line.ptr_add((s.columns.clone() + v.left) * pixel));
                self.fill(out, &end, c(right * pixel));
            });
        });
    }

    /// `bytes` (a multiple of 4) of the border.
    fn fill(&self, out: &mut Body, at: &PrimExpr, bytes: PrimExpr) {
        let value = PrimExpr::i32((self.conv.border() as u32).wrapping_mul(0x0101_0101) as i32);
        let (mut from, words) = (c(0), let_(out, "words", bytes.floor_div(4)));
        let mut lanes = self.form.vector_bytes / 4;
        while lanes >= 1 && !words.is_int(0) {
            let end = let_(out, "end", from.clone() + (words.clone() - from.clone()).floor_div(lanes) * lanes);
            steps(out, &from, &end, lanes, &mut |out, i| {
                let value = if lanes > 1 { value.clone().broadcast(lanes as u16) } else { value.clone() };
                out.push(FlatStmt::Store { ptr: at.clone(), offset: i, value });
            });
            from = end;
            lanes = if lanes > 4 { lanes / 2 } else { lanes / 4 };
        }
    }
}
