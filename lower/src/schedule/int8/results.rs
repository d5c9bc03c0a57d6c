//! Sums in registers: what they begin with, and how they become results.

use super::{c, let_, load, Body, Group, Panel, Plus, Writer};
use relax_ir::flat::FlatStmt;
use relax_ir::prim::{Intrin, Var};
use relax_ir::{DType, PrimExpr};

impl Writer<'_> {
    /// Sums of so many pixels, begun with what their channels begin with.
    pub(super) fn begun(&self, out: &mut Body, g: &Group, column: &PrimExpr, pixels: i64) -> Vec<Vec<Var>> {
        let ints = DType::I32.with_lanes(g.lanes as u16);
        let sum = |at: &i64| load(&self.sum.expr(), column.clone() + *at, ints);
        let sums: Vec<PrimExpr> = g.at.iter().map(|at| let_(out, "sum", sum(at))).collect();
        let local = |out: &mut Body, init: &PrimExpr| {
            let var = Var::new("acc", ints);
            out.push(FlatStmt::Local { var: var.clone(), init: init.clone() });
            var
        };
        (0..pixels).map(|_| sums.iter().map(|s| local(out, s)).collect()).collect()
    }

    /// The sums of pixels beside one another as they are wanted.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn finish(
        &self,
        out: &mut Body,
        p: &Panel,
        g: &Group,
        column: &PrimExpr,
        accs: &[Vec<Var>],
        other: Option<&(Plus, PrimExpr)>,
        to: &PrimExpr,
    ) {
        match other {
            Some((plus, other)) => self.store_sums(out, g, column, accs, plus, other, to),
            None if self.conv.sums => self.keep(out, g, accs, to),
            None => self.store(out, p, g, column, accs, to),
        }
    }

    /// Sums of products as they are.
    fn keep(&self, out: &mut Body, g: &Group, accs: &[Vec<Var>], to: &PrimExpr) {
        for (r, row) in accs.iter().enumerate() {
            for (acc, at) in row.iter().zip(&g.at) {
                let offset = c(r as i64 * self.conv.channels + at - g.first);
                out.push(FlatStmt::Store { ptr: to.clone(), offset, value: acc.expr() });
            }
        }
    }

    /// Sums of products as bytes.
    fn store(&self, out: &mut Body, p: &Panel, g: &Group, column: &PrimExpr, accs: &[Vec<Var>], to: &PrimExpr) {
        let v = self.conv;
        let floats = DType::F32.with_lanes(g.lanes as u16);
        let mut values = vec![vec![]; accs.len()];
        for (j, at) in g.at.iter().enumerate() {
            let at = column.clone() + *at;
            let scale = let_(out, "scale", load(&self.scale.expr(), at.clone(), floats));
            let bias = let_(out, "bias", load(&self.bias.expr(), at, floats));
            for (values, row) in values.iter_mut().zip(accs) {
                let x = row[j].expr().cast(floats);
                let x = PrimExpr::call(Intrin::Fma, [x, scale.clone(), bias.clone()]);
                values.push(let_(out, "rounded", v.unlimited(x, floats.lanes)));
            }
        }
        for (r, values) in values.into_iter().enumerate() {
            let how = if p.is_woven(v) { Intrin::WovenBytes } else { Intrin::Bytes };
            let ptr = to.clone().ptr_add(r as i64 * v.channels);
            out.push(FlatStmt::Store { ptr, offset: c(0), value: PrimExpr::call(how, values) });
        }
    }

    /// Their sums with another tensor, row by row: scales and biases are read again, which leaves their registers free.
    #[allow(clippy::too_many_arguments)]
    fn store_sums(
        &self,
        out: &mut Body,
        g: &Group,
        column: &PrimExpr,
        accs: &[Vec<Var>],
        plus: &Plus,
        other: &PrimExpr,
        to: &PrimExpr,
    ) {
        let v = self.conv;
        let lanes = g.lanes as u16;
        let floats = DType::F32.with_lanes(lanes);
        for (r, row) in accs.iter().enumerate() {
            let line = r as i64 * v.channels;
            let mut values = vec![];
            for (acc, at) in row.iter().zip(&g.at) {
                let channel = column.clone() + *at;
                let x = acc.expr().cast(floats);
                let scale = load(&self.scale.expr(), channel.clone(), floats);
                let bias = let_(out, "bias", load(&self.bias.expr(), channel, floats));
                let byte = let_(out, "byte", v.byte(PrimExpr::call(Intrin::Fma, [x, scale, bias]), lanes));
                let b = load(other, c(line + at - g.first), DType::U8.with_lanes(lanes));
                values.push(let_(out, "rounded", plus.unlimited(byte, b, lanes)));
            }
            let ptr = to.clone().ptr_add(line);
            out.push(FlatStmt::Store { ptr, offset: c(0), value: PrimExpr::call(Intrin::Bytes, values) });
        }
    }
}
