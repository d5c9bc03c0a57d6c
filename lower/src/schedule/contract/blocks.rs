//! Products in blocks: of rows, of columns, of the reduction.

use super::super::emit::{Emit, Res};
use super::super::nest::{Nest, Target};
use super::super::poly::Poly;
use super::super::stage::Axis;
use super::{widest, Columns, Part, Product, Right, CHUNK, MOST_WAITING, SLIVERS, STRETCH};
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

impl Product<'_> {
    /// Runs `body` over as many rows at a time as may wait for blocks of the reduction.
    pub(super) fn chunks(&self, e: &mut Emit, body: &mut dyn FnMut(&mut Emit, &Product) -> Res<()>) -> Res<()> {
        let long = |r: &Axis| r.len().is_none_or(|n| n > MOST_WAITING);
        let (Some(_), Right::Panels(..), Some(at)) = (self.block, &self.right, self.rows.iter().position(long)) else {
            return body(e, self);
        };
        let row = &self.rows[at];
        let first = Var::new("chunk", DType::I64);
        let end = Poly::of(&row.extent, &e.ranges);
        e.ranges.add_loop(&first, Poly::default(), end.clone());
        let end = e.index(&end)?;
        let end = e.hoist(end);
        e.for_loop(&first, PrimExpr::i64(0), end.clone(), CHUNK, |e| {
            let extent = e.hoist((end.clone() - first.expr()).min(CHUNK));
            let map = HashMap::from([(row.var.clone(), first.expr() + row.var.expr())]);
            let mut n = self.n.clone();
            n.map_exprs(&mut |x| x.substitute(&map));
            let mut p = self.with(&n, self.a.substitute(&map), self.b.clone());
            p.rows[at].extent = extent;
            e.ranges.add_loop(&row.var, Poly::default(), Poly::of(&p.rows[at].extent, &e.ranges));
            body(e, &p)
        })
    }

    /// The first `whole` columns, with `b` where it is: blocks of columns, within these blocks of the reduction, and the
    /// slivers of a block for all rows.
    pub(super) fn stretches(
        &self,
        e: &mut Emit,
        scratch: &Var,
        c: &Columns,
        whole: i64,
        width: i64,
        lanes: u16,
    ) -> Res<()> {
        // Two blocks at least: one for each of two threads.
        let slivers = whole / width;
        let most = SLIVERS.min((slivers + 1) / 2).max(1);
        let blocks = (slivers + most - 1) / most;
        let columns = (slivers + blocks - 1) / blocks.max(1) * width;
        let first = Var::new("block", DType::I64);
        e.ranges.add_loop(&first, Poly::default(), Poly::constant(whole));
        let part = [Part { at: 0, count: width / lanes as i64, last: None }];
        e.for_loop(&first, PrimExpr::i64(0), PrimExpr::i64(whole), columns.max(1), |e| {
            let end = e.hoist((first.expr() + columns).min(whole));
            let mut at = c.j.var.expr() - first.expr();
            if !self.direct {
                at = at + STRETCH * widest(self.o, 4);
            }
            self.blocks(e, scratch, STRETCH, (at, columns), &mut |e, p| {
                e.for_loop(&c.start, first.expr(), end.clone(), width, |e| p.rows(e, c, width, width, lanes, &part))
            })
        })
    }

    /// The reduction in blocks of `step`. `wait`: where the sum of a column waits in scratch memory, and how many there are
    /// for a row.
    pub(super) fn blocks(
        &self,
        e: &mut Emit,
        scratch: &Var,
        step: i64,
        wait: (PrimExpr, i64),
        run: &mut dyn FnMut(&mut Emit, &Product) -> Res<()>,
    ) -> Res<()> {
        let [k] = self.n.reduce.as_slice() else { return Err(e.internal("one reduction")) };
        let Some(depth) = k.len() else { return Err(e.internal("depth")) };
        let (mut at, mut size) = wait;
        for r in self.rows.iter().rev() {
            at = at + r.var.expr() * size;
            size *= r.len().unwrap_or(1);
        }
        let waiting = PrimExpr::load_ptr(scratch.expr(), at.clone(), DType::F32);
        let acc = &self.n.accs[0].var;
        let away = Target { ptr: scratch.clone(), offset: at, dtype: DType::F32, value: acc.expr() };
        let last = (depth - 1) / step * step;
        let of = |from: PrimExpr, steps: i64| {
            let mut n = self.n.clone();
            let map = HashMap::from([(k.var.clone(), from.clone() + k.var.expr())]);
            n.map_exprs(&mut |x| x.substitute(&map));
            n.reduce = vec![Axis { var: k.var.clone(), extent: PrimExpr::i64(steps) }];
            (n, self.a.substitute(&map), self.b.substitute(&map), from)
        };
        let mut some = |e: &mut Emit, (n, a, b, from): (Nest, PrimExpr, PrimExpr, PrimExpr)| {
            run(e, &Product { block: None, from, ..self.with(&n, a, b) })
        };
        let (mut n, a, b, from) = of(PrimExpr::i64(0), step);
        n.outs = vec![away.clone()];
        some(e, (n, a, b, from))?;
        let first = Var::new("from", DType::I64);
        e.ranges.add_loop(&first, Poly::constant(step), Poly::constant(last - step));
        e.for_loop(&first, PrimExpr::i64(step), PrimExpr::i64(last), step, |e| {
            let (mut n, a, b, from) = of(first.expr(), step);
            n.accs[0].init = waiting.clone();
            n.outs = vec![away.clone()];
            some(e, (n, a, b, from))
        })?;
        let (mut n, a, b, from) = of(PrimExpr::i64(last), depth - last);
        n.accs[0].init = waiting.clone();
        some(e, (n, a, b, from))
    }
}
