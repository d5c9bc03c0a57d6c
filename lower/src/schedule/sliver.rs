//! Copies of a sliver of columns of a right side, in the order in which a register tile reads them.

use super::contract::{outside_loops, stride_is_one};
use super::emit::{compute_type, Emit, Lane, Res};
use super::map::spread;
use super::poly::Poly;
use super::stage::Axis;
use super::transpose::turned;
use relax_ir::flat::FlatStmt;
use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// Rows and columns of the smallest squares that are turned.
const TURNED: i64 = 4;

/// A sliver and where it goes. Columns beyond the last are copies of that: what is computed with them is dropped.
pub(super) struct Sliver<'a> {
    pub b: &'a PrimExpr,
    pub reduce: &'a [Axis],
    /// The columns' axis.
    pub j: &'a Axis,
    /// The axis before `j`, when they are joined.
    pub outer: Option<&'a Axis>,
    /// Sliver within the panel.
    pub slot: Option<&'a Axis>,
    /// First column.
    pub first: PrimExpr,
    /// Column from the first on.
    pub lane: &'a Var,
    /// Elements of a row of the copy, and how many of them are columns.
    pub width: i64,
    pub valid: i64,
    pub scratch: &'a Var,
    /// Where the row of a reduction step begins.
    pub at: Poly,
    pub vector_bytes: u32,
}

impl Sliver<'_> {
    /// Whether rows of the copy lie in rows of `b`.
    pub fn is_plain(&self, e: &Emit) -> bool {
        self.outer.is_none() && self.width > 1 && stride_is_one(e, self.b, &self.j.var)
    }

    /// Emits the copy.
    pub fn pack(&self, e: &mut Emit) -> Res<()> {
        let axes: Vec<Axis> = self.slot.iter().map(|&s| s.clone()).collect();
        if let ([k], None) = (self.reduce, self.outer) {
            let along = !stride_is_one(e, self.b, &self.j.var) && stride_is_one(e, self.b, &k.var);
            if let Some(depth) = k.len().filter(|n| along && *n >= TURNED && self.width % TURNED == 0) {
                return outside_loops(e, &axes, &mut |e| self.turn(e, k, depth));
            }
        }
        outside_loops(e, &axes, &mut |e| match self.places(e)? {
            Some(p) => outside_loops(e, self.reduce, &mut |e| self.single(e, 0, &|e, i| p.element(e, i))),
            None => outside_loops(e, self.reduce, &mut |e| self.row(e)),
        })
    }

    /// Where the joined columns of open rows are, which would take divisions for each element otherwise.
    fn places(&self, e: &mut Emit) -> Res<Option<Places>> {
        let (Some(h), None) = (self.outer, self.j.len()) else { return Ok(None) };
        let PrimKind::Load { ptr, offset } = self.b.kind() else { return Ok(None) };
        let offset = Poly::of(offset, &e.ranges);
        let Some((by_row, rest)) = offset.split(&h.var) else { return Ok(None) };
        let Some((by_column, rest)) = rest.split(&self.j.var) else { return Ok(None) };
        if self.reduce.iter().map(|a| &a.var).any(|v| [&by_row, &by_column].iter().any(|p| p.expr().uses(v))) {
            return Ok(None);
        }
        let table = e.sums((self.width * 8) as u32);
        // Wide kernels have no divisions: the rows before the first column are counted, those behind it follow.
        let before = e.local("before", PrimExpr::i64(0));
        let r = Var::new("row", DType::I64);
        e.ranges.add_loop(&r, Poly::constant(1), Poly::of(&h.extent, &e.ranges));
        let len = e.hoist(self.j.extent.clone());
        e.for_loop(&r, PrimExpr::i64(1), h.extent.clone(), 1, |e| {
            let over = (r.expr() * len.clone()).le(self.first.clone());
            e.assign(&before, before.expr() + over.select(PrimExpr::i64(1), PrimExpr::i64(0)));
            Ok(())
        })?;
        let mut row = e.bind("row", before.expr());
        let mut column = e.bind("column", self.first.clone() - row.clone() * len.clone());
        for i in 0..self.width {
            let place = e.bind("place", by_row.expr() * row.clone() + by_column.expr() * column.clone());
            e.push(FlatStmt::Store { ptr: table.expr(), offset: PrimExpr::i64(i), value: place });
            if i + 1 < self.valid {
                let inside =
                    e.bind("inside", (column.clone() + 1).lt(len.clone()).select(PrimExpr::i64(1), PrimExpr::i64(0)));
                column = e.bind("column", (column + 1) * inside.clone());
                row = e.bind("row", row + 1 - inside);
            }
        }
        Ok(Some(Places { table, ptr: ptr.clone(), rest, dtype: self.b.dtype() }))
    }

    fn dtype(&self) -> DType {
        compute_type(self.b.dtype())
    }

    /// `b` of a column.
    fn column(&self, column: PrimExpr) -> PrimExpr {
        self.b.substitute(&HashMap::from([(self.j.var.clone(), column)]))
    }

    /// One row of the copy.
    fn row(&self, e: &mut Emit) -> Res<()> {
        let d = self.dtype();
        if self.is_plain(e) {
            let whole = self.valid / 4 * 4;
            if whole > 0 {
                e.start_lane(self.lane, false);
                let x =
                    e.value(&self.column(self.first.clone() + self.lane.expr()), &Lane::of(self.lane, whole as u16));
                e.end_lane(self.lane);
                e.store(self.scratch, &self.at, d, spread(x?, whole as u16))?;
            }
            return self.single(e, whole, &|_, i| self.column(self.first.clone() + i));
        }
        let Some(h) = self.outer else { return self.single(e, 0, &|_, i| self.column(self.first.clone() + i)) };
        // Groups that lie in one row; slivers begin at multiples of their width.
        let unit = stride_is_one(e, self.b, &self.j.var);
        let even = |n: Option<i64>, g: i64| n.is_some_and(|n| n % g == 0);
        let whole = |g: &i64| unit && self.width % g == 0 && even(self.j.len(), *g) && even(Some(self.valid), *g);
        let group = [16, 8, 4].into_iter().find(whole).unwrap_or(1);
        let joined = |i: i64, lane: Option<&Var>| {
            let column = self.first.clone() + i;
            let row = PrimExpr::raw_binary(BinOp::FloorDiv, column.clone(), self.j.extent.clone());
            let mut column = PrimExpr::raw_binary(BinOp::FloorMod, column, self.j.extent.clone());
            if let Some(lane) = lane {
                column = column + lane.expr();
            }
            self.b.substitute(&HashMap::from([(h.var.clone(), row), (self.j.var.clone(), column)]))
        };
        if group == 1 {
            return self.single(e, 0, &|_, i| joined(i, None));
        }
        for i in (0..self.valid).step_by(group as usize) {
            e.start_lane(self.lane, false);
            let x = e.value(&joined(i, Some(self.lane)), &Lane::of(self.lane, group as u16));
            e.end_lane(self.lane);
            e.store(self.scratch, &self.at.add(&Poly::constant(i)), d, spread(x?, group as u16))?;
        }
        Ok(())
    }

    /// The elements of a row from one on, one by one.
    fn single(&self, e: &mut Emit, from: i64, element: &dyn Fn(&mut Emit, i64) -> PrimExpr) -> Res<()> {
        for i in from..self.width {
            let x = element(e, i.min(self.valid - 1));
            let x = e.scalar(&x)?;
            e.store(self.scratch, &self.at.add(&Poly::constant(i)), self.dtype(), x)?;
        }
        Ok(())
    }

    /// Values that lie along the reduction: squares of so many columns at a time that their lines stay in the cache.
    fn turn(&self, e: &mut Emit, k: &Axis, depth: i64) -> Res<()> {
        let most = if e.wide && self.dtype() == DType::F32 { self.vector_bytes as i64 / 4 } else { TURNED };
        let mut at = 0;
        while at < self.width {
            let fits = |s: &i64| *s <= most.min(self.width - at) && *s <= depth;
            let side = [16, 8].into_iter().find(fits).unwrap_or(TURNED);
            let count = ((self.valid - at) / side).max(1);
            let group = Var::new("group", DType::I64);
            let end = at + count * side;
            e.ranges.add_loop(&group, Poly::constant(at), Poly::constant(count * side));
            e.for_loop(&group, PrimExpr::i64(at), PrimExpr::i64(end), side, |e| {
                self.squares(e, k, depth, side, &group, (self.valid - at).min(side))
            })?;
            at = end;
        }
        Ok(())
    }

    /// As many columns as `side` from `group` on, `valid` of which there are.
    fn squares(&self, e: &mut Emit, k: &Axis, depth: i64, side: i64, group: &Var, valid: i64) -> Res<()> {
        let d = self.dtype();
        let column = |i: i64| self.column(self.first.clone() + group.expr() + i.min(valid - 1));
        let to = self.at.add(&Poly::var(group));
        let vectors = d == DType::F32 && if side > TURNED { e.wide } else { e.interleaves };
        let whole = if vectors { depth / side * side } else { 0 };
        let lanes = Lane::of(&k.var, side as u16);
        e.for_loop(&k.var, PrimExpr::i64(0), PrimExpr::i64(whole), side, |e| {
            let mut rows = vec![];
            for i in 0..side {
                let x = e.value(&column(i), &lanes)?;
                rows.push(e.bind("row", x));
            }
            let columns = if side > TURNED { turned(e, &rows) } else { four(e, &rows) };
            for (i, column) in columns.into_iter().enumerate() {
                e.store(self.scratch, &to.add(&Poly::constant(i as i64 * self.width)), d, column)?;
            }
            Ok(())
        })?;
        e.for_loop(&k.var, PrimExpr::i64(whole), PrimExpr::i64(depth), 1, |e| {
            for i in 0..side {
                let x = e.scalar(&column(i))?;
                e.store(self.scratch, &to.add(&Poly::constant(i)), d, x)?;
            }
            Ok(())
        })
    }
}

/// A table of the places of a sliver's columns, in elements, beside what all of them share.
struct Places {
    table: Var,
    ptr: PrimExpr,
    rest: Poly,
    dtype: DType,
}

impl Places {
    fn element(&self, e: &mut Emit, i: i64) -> PrimExpr {
        let place = e.bind("place", PrimExpr::load_ptr(self.table.expr(), PrimExpr::i64(i), DType::I64));
        PrimExpr::load_ptr(self.ptr.clone(), self.rest.expr() + place, self.dtype)
    }
}

/// The columns of four rows of four lanes.
pub(super) fn four(e: &mut Emit, rows: &[PrimExpr]) -> Vec<PrimExpr> {
    let (ints, floats) = (DType::I32.with_lanes(4), DType::F32.with_lanes(4));
    let rows: Vec<PrimExpr> = rows.iter().map(|r| e.bind("row", r.clone().reinterpret(ints))).collect();
    let weave = |e: &mut Emit, a: &PrimExpr, b: &PrimExpr, bytes: i64, high: i64| {
        let args = [a.clone(), b.clone(), PrimExpr::i64(bytes), PrimExpr::i64(high)];
        e.bind("pairs", PrimExpr::call(Intrin::Interleave, args))
    };
    let mut columns = vec![];
    for high in 0..2 {
        let (x, y) = (weave(e, &rows[0], &rows[1], 4, high), weave(e, &rows[2], &rows[3], 4, high));
        for half in 0..2 {
            columns.push(weave(e, &x, &y, 8, half).reinterpret(floats));
        }
    }
    columns
}
