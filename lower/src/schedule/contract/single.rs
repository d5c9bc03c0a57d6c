//! One row, which reads each value of a packed right side once: by several panels at a time.

use super::super::emit::{Emit, Res};
use super::super::poly::Poly;
use super::super::stage::Axis;
use super::super::SchedOptions;
use super::{alone, Columns, Part, Product, Right};
use relax_ir::{DType, PrimExpr, Var};

/// One row, and how many panels of which width it reads at once.
pub(super) struct Single<'a> {
    row: Product<'a>,
    panel: i64,
    together: i64,
}

/// The same over several panels side by side: processors read further ahead in several streams than in one.
fn streams(o: &SchedOptions) -> i64 {
    match o.vector_bytes {
        64 => 24,
        _ => alone(o),
    }
}

/// Weights of so many bytes come from beyond the nearest caches.
const FAR: i64 = 512 << 10;

/// Of so many panels, how many at a time, up to `most`: two times at least, for each of two threads one, and none left over
/// where that takes no more than twice as many times.
fn together(panels: i64, most: i64) -> i64 {
    let few = (2..=most).rev().take_while(|t| 2 * t > most).filter(|t| panels / t >= 2);
    let even = few.clone().find(|t| panels % (2 * t) == 0).or_else(|| few.clone().find(|t| panels % t == 0));
    even.or_else(|| (2..=most).rev().find(|t| panels / t >= 2)).unwrap_or(1)
}

impl Product<'_> {
    /// What one row does: reads several panels side by side, and panels that are wider than the tiles of several rows at once.
    /// Few sums of an open count would wait for each other, and a single stream of weights for memory.
    pub(super) fn one_row(&self, width: i64, lanes: u16) -> Option<Single<'_>> {
        let Right::Panels(_, panels, stored) = &self.right else { return None };
        let mut row = self.with(self.n, self.a.clone(), self.b.clone());
        let rows_known = row.rows.is_empty();
        match row.rows.as_mut_slice() {
            [] => {}
            [rows] if rows.len().is_none() => rows.extent = PrimExpr::i64(1),
            _ => return None,
        }
        if rows_known && panels.elements() * (stored.bytes() as i64) < FAR {
            return None;
        }
        let panel = panels.width;
        let together = together(panels.whole() / panel, streams(self.o) * lanes as i64 / panel);
        if panel == width {
            // It reads nothing twice.
            row.block = None;
        }
        let wide = panel > width && panel <= alone(self.o) * lanes as i64;
        (wide || panel == width && together > 1).then_some(Single { row, panel, together })
    }

    /// The first `whole` columns of an open count of rows, panel by panel: slivers of `width` columns, or all of some panels
    /// for one row.
    pub(super) fn panels(
        &self,
        e: &mut Emit,
        c: &Columns,
        whole: i64,
        width: i64,
        lanes: u16,
        one: &Single,
    ) -> Res<()> {
        let part = |width: i64| [Part { at: 0, count: width / lanes as i64, last: None }];
        let first = Var::new("panel", DType::I64);
        e.ranges.add_loop(&first, Poly::default(), Poly::constant(whole));
        let step = one.panel * one.together;
        let full = whole / step * step;
        for (from, to, count) in [(0, full, one.together), (full, whole, (whole - full) / one.panel)] {
            if from == to {
                continue;
            }
            let step = one.panel * count;
            e.for_loop(&first, PrimExpr::i64(from), PrimExpr::i64(to), step, |e| {
                let single = self.rows.first().map(|rows| rows.extent.clone().eq(PrimExpr::i64(1)));
                let end = first.expr() + step;
                let alone = |e: &mut Emit| {
                    let slot = Axis { var: Var::new("slot", DType::I64), extent: PrimExpr::i64(count) };
                    e.ranges.add_loop(&slot.var, Poly::default(), Poly::constant(count));
                    let slot = (count > 1).then_some(slot);
                    let c = Columns { slot, ..c.clone() };
                    e.for_loop(&c.start, first.expr(), end.clone(), step, |e| {
                        one.row.sliver(e, &c, one.panel, one.panel, lanes, &part(one.panel))
                    })
                };
                let Some(single) = single else { return alone(e) };
                e.if_then(single, alone, |e| {
                    e.for_loop(&c.start, first.expr(), end.clone(), width, |e| {
                        self.sliver(e, c, width, width, lanes, &part(width))
                    })
                })
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_are_shared_out_evenly() {
        assert_eq!([1, 2, 3, 8, 12, 36, 48].map(|panels| together(panels, 6)), [1, 1, 1, 4, 6, 6, 6]);
        assert_eq!([5, 8, 21, 22, 24].map(|panels| together(panels, 4)), [2, 4, 3, 4, 4]);
        assert_eq!(together(100, 1), 1);
    }
}
