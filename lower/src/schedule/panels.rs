//! How constant right sides of products lie in memory, and which may.

use super::contract::{alone, factors, model_columns, most_columns, sides, ALONE};
use super::edges::last_columns;
use super::emit::Emit;
use super::narrow::is_half;
use super::poly::Poly;
use super::stage::Stage;
use super::SchedOptions;
use crate::threads::LEAST;
use relax_ir::constant::Order;
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::tir::Buffer;
use relax_ir::{DType, PrimExpr, Var};

/// Fewer columns than this behind the last full sliver go with that.
pub(super) const FEW: i64 = 16;
/// Columns behind the last full vector are a part of the time that counts among as many as this.
const EDGED: i64 = 256;

/// How a constant right side lies in memory: panels of `width` columns, each with all rows (`depth`), then one with the
/// columns left over, whose rows have zeros at their ends where these do not fill a vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Panels {
    pub depth: i64,
    pub columns: i64,
    pub width: i64,
    /// What is left are dot products along the reduction, however few they are.
    pub edge: bool,
}

impl Panels {
    /// As the scope of the packed buffer.
    pub fn scope(&self) -> String {
        let edge = if self.edge { ".edge" } else { "" };
        format!("panels.{}.{}.{}{edge}", self.depth, self.columns, self.width)
    }

    /// From the scope of a buffer.
    pub fn of(b: &Buffer) -> Option<Panels> {
        let scope = b.scope.strip_prefix("panels.")?;
        let whole = scope.strip_suffix(".edge");
        let mut parts = whole.unwrap_or(scope).split('.').map(|p| p.parse().ok());
        let (depth, columns, width) = (parts.next()??, parts.next()??, parts.next()??);
        Some(Panels { depth, columns, width, edge: whole.is_some() })
    }

    /// As the order of a constant; `turned`: that has the matrix column by column.
    pub fn order(&self, turned: bool) -> Order {
        let [depth, columns, width] = [self.depth, self.columns, self.width].map(|n| n as usize);
        Order::Panels { depth, columns, width, whole: self.whole() as usize, last: self.last() as usize, turned }
    }

    /// Elements in all.
    pub fn elements(&self) -> i64 {
        self.depth * (self.whole() + self.last())
    }

    /// Columns in full panels.
    pub(super) fn whole(&self) -> i64 {
        match self.edge {
            true => self.columns / self.width * self.width,
            false => whole_slivers(self.columns, self.width),
        }
    }

    /// Elements of a row of the panel behind the full ones.
    pub(super) fn last(&self) -> i64 {
        padded(self.columns - self.whole())
    }

    /// Where an element is.
    pub fn position(&self, k: PrimExpr, j: PrimExpr) -> PrimExpr {
        let whole = self.whole();
        let rest = (k.clone() * self.last()) + (j.clone() - whole) + whole * self.depth;
        if whole == 0 {
            return rest;
        }
        let panel = j.clone().floor_div(self.width);
        let full = (panel * self.depth + k) * self.width + j.clone().floor_mod(self.width);
        if whole == self.columns {
            return full;
        }
        j.lt(PrimExpr::i64(whole)).select(full, rest)
    }

    /// Registers side by side in a tile: as many as are `given`, where these divide a panel.
    pub(super) fn tile(&self, o: &SchedOptions, lanes: i64, single: bool, given: Option<i64>) -> i64 {
        let fits = given.filter(|g| self.width % (g * lanes) == 0);
        fits.unwrap_or_else(|| self.registers(o, lanes, single))
    }

    /// Registers side by side: a number that divides a panel. `single`: there is one row.
    pub(crate) fn registers(&self, o: &SchedOptions, lanes: i64, single: bool) -> i64 {
        let most = if single {
            alone(o)
        } else if o.is_wide() || self.width % (3 * lanes) == 0 {
            most_columns(o) as i64
        } else {
            2
        };
        (1..=most).rev().find(|n| self.width % (n * lanes) == 0).unwrap_or(1)
    }

    /// The first of `width` columns from `start` in row `k`; with `rest`, behind the full panels.
    pub(super) fn at(&self, e: &mut Emit, start: &Var, rest: bool, k: &Poly, width: i64) -> Poly {
        let whole = self.whole();
        let first = Poly::var(start);
        if rest {
            let first = first.add(&Poly::constant(whole * self.depth - whole));
            return k.scale(self.last()).add(&first);
        }
        if width == self.width {
            return k.scale(width).add(&first.scale(self.depth));
        }
        let panel = PrimExpr::raw_binary(BinOp::FloorDiv, start.expr(), PrimExpr::i64(self.width));
        let lane = PrimExpr::raw_binary(BinOp::FloorMod, start.expr(), PrimExpr::i64(self.width));
        let (panel, lane) = (e.hoist(panel), e.hoist(lane));
        let atom = |x: PrimExpr| x.as_int().map_or_else(|| Poly::atom(x.clone()), Poly::constant);
        atom(panel).scale(self.depth * self.width).add(&k.scale(self.width)).add(&atom(lane))
    }
}

/// Vectors of a panel that one row reads, of so many, where vectors of half the size read it too: all of theirs at once, since
/// a panel that is read in two passes comes from memory twice. As few panels as can be, as even as can be.
fn shared_alone(vectors: i64) -> i64 {
    const MOST: i64 = 6;
    let panels = (vectors + MOST - 1) / MOST;
    (vectors + panels - 1) / panels
}

/// Columns of full slivers: where few are left, they go with the last one, which then counts among the rest.
pub(super) fn whole_slivers(columns: i64, width: i64) -> i64 {
    let whole = columns / width * width;
    match columns - whole {
        1..FEW => (whole - width).max(0),
        _ => whole,
    }
}

/// The elements of a row of so many columns: whole vectors of 16, and one of 4 or 8 where that is enough.
pub(super) fn padded(columns: i64) -> i64 {
    columns / 16 * 16
        + match columns % 16 {
            0 => 0,
            1..=4 => 4,
            5..=8 => 8,
            _ => 16,
        }
}

/// The panels that a factor reads, their pointer, and what their elements are.
pub(super) fn packed_in(e: &Emit, b: &PrimExpr) -> Option<(Var, Panels, DType)> {
    let PrimKind::Load { ptr, .. } = widened(b).kind() else { return None };
    let ptr = ptr.as_var()?;
    let (b, _) = e.places.iter().find(|(_, p)| p.ptr == *ptr)?;
    Some((ptr.clone(), Panels::of(b)?, b.dtype()))
}

/// The float of 16 bits that becomes this float32; what is none is itself.
pub(super) fn widened(b: &PrimExpr) -> &PrimExpr {
    match b.kind() {
        PrimKind::Cast(x) if is_half(x.dtype()) && b.dtype().bits == 32 => x,
        _ => b,
    }
}

/// Whether weights of this type are read in panels: floats of 16 bits are converted as they are read.
fn in_panels(d: DType, o: &SchedOptions) -> bool {
    d == DType::F32 || o.is_wide() && (d == DType::F16 || d == DType::BF16)
}

/// A parameter that may be packed.
pub struct Packable {
    pub buffer: Buffer,
    /// Which of its two axes runs over the columns.
    pub column: usize,
    /// Panels of one column are the columns one after the other: a matrix like any other.
    pub panels: Panels,
}

/// What a stage reads as the right side of a product, when that is a matrix of known size.
pub fn packable(s: &Stage, o: &SchedOptions) -> Option<Packable> {
    let [acc] = s.accs.as_slice() else { return None };
    let d = acc.var.dtype();
    if d != DType::F32 || o.vector_bytes < 16 {
        return None;
    }
    let (x, y) = factors(&acc.update, &acc.var)?;
    let out = s.outs.first()?;
    let axis = |i: &PrimExpr| s.spatial.iter().find(|a| Some(&a.var) == i.as_var() && a.len() != Some(1));
    let j = out.indices.iter().rev().find_map(axis)?;
    let (_, b) = sides(x, y, &j.var)?;
    let mut depths = s.reduce.iter().filter(|k| k.len() != Some(1));
    let (Some(k), None) = (depths.next(), depths.next()) else { return None };
    let PrimKind::BufferLoad(buffer, idx) = widened(&b).kind() else { return None };
    let [p, q] = &idx[..] else { return None };
    let column = match (p.as_var(), q.as_var()) {
        (Some(a), Some(b)) if *a == k.var && *b == j.var => 1,
        (Some(a), Some(b)) if *a == j.var && *b == k.var => 0,
        _ => return None,
    };
    let (depth, columns) = (k.len()?, j.len()?);
    let lanes = o.vector_bytes as i64 / 4;
    let plain = in_panels(buffer.dtype(), o) && buffer.strides.is_empty() && buffer.elem_offset.is_none();
    let exact = buffer.shape[column].is_int(columns) && buffer.shape[1 - column].is_int(depth);
    if !plain || !exact || depth < 8 {
        return None;
    }
    if columns < lanes {
        // Too few for a vector: along the reduction.
        let panels = Panels { depth, columns, width: 1, edge: false };
        return (column == 1 && buffer.dtype() == d).then(|| Packable { buffer: buffer.clone(), column, panels });
    }
    let rows = s.spatial.iter().filter(|i| i.var != j.var).try_fold(1, |n: i64, i| n.checked_mul(i.len()?));
    // The last columns of few are better made as dot products.
    let edge = rows.and_then(|rows| last_columns(rows, columns, depth)).filter(|_| columns <= EDGED);
    if let Some(count) = edge.filter(|_| o.vector_bytes == 64 && !o.shared) {
        let vectors = (columns - count) / lanes;
        let side =
            s.given.and_then(|g| g.columns_for(lanes)).unwrap_or(model_columns(o, rows, Some(columns - count), lanes));
        if let Some(side) = (2..=side).rev().find(|n| vectors % n == 0).or_else(|| (vectors == 1).then_some(1)) {
            let panels = Panels { depth, columns, width: side * lanes, edge: true };
            return Some(Packable { buffer: buffer.clone(), column, panels });
        }
    }
    // One panel is one thread's.
    let halves = o.threads && !o.shared && depth * columns >= LEAST && columns < 2 * ALONE * lanes;
    let model = || match rows {
        Some(1) if halves && columns >= ALONE * lanes => ALONE / 2,
        Some(1) if columns >= ALONE * lanes => match o.shared && lanes == 16 {
            true => shared_alone(columns / lanes),
            false => ALONE,
        },
        rows => model_columns(o, rows, Some(columns), lanes),
    };
    let width = s.given.and_then(|g| g.columns_for(lanes)).unwrap_or_else(model) * lanes;
    Some(Packable { buffer: buffer.clone(), column, panels: Panels { depth, columns, width, edge: false } })
}
