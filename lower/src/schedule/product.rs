//! Matrix products of float32 as [`crate::choice`] sees them.

use super::contract::{factors, model_columns, most_columns, sides, tile_rows, ALONE};
use super::stage::{loads, recognise, Axis, Stage};
use super::SchedOptions;
use crate::choice::{epilogue_class, Algorithm, Config};
use crate::schedule::window::Outer;
use relax_ir::attrs::Attrs;
use relax_ir::prim::{Intrin, PrimKind};
use relax_ir::tir::{Buffer, PrimFunc, Stmt, StmtKind};
use relax_ir::{AttrValue, DType, PrimExpr};

/// The attribute of a block.
const KEY: &str = "register_tile";

/// A register tile for vectors of so many lanes: vectors side by side, and rows at most. A number of 0 is left to the
/// model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    pub columns: i64,
    pub rows: i64,
    pub lanes: i64,
}

impl Given {
    /// What a block says about itself.
    pub fn of(attrs: &Attrs) -> Option<Given> {
        match attrs.ints(KEY)?.as_slice() {
            &[columns, rows, lanes] => Some(Given { columns, rows, lanes }),
            _ => None,
        }
    }

    /// Vectors side by side, where they are as wide.
    pub fn columns_for(&self, lanes: i64) -> Option<i64> {
        (self.lanes == lanes && self.columns > 0).then_some(self.columns)
    }
}

/// `out[i, j] += a[i, k] * b[k, j]` with known depth and columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// `None`: only known in a call.
    pub rows: Option<i64>,
    pub depth: i64,
    pub columns: i64,
    /// See [`epilogue_class`].
    pub epilogue: i64,
    pub given: Option<Given>,
}

impl Product {
    fn of(s: &Stage, f: &PrimFunc) -> Option<Product> {
        let ([acc], None) = (s.accs.as_slice(), &s.window) else { return None };
        let (x, y) = factors(&acc.update, &acc.var)?;
        let out = s.outs.first()?;
        let axis = |i: &PrimExpr| s.spatial.iter().find(|a| Some(&a.var) == i.as_var() && a.len() != Some(1));
        let j = out.indices.iter().rev().find_map(axis)?;
        let (a, b) = sides(x, y, &j.var)?;
        let plain = |e: &PrimExpr| matches!(e.kind(), PrimKind::BufferLoad(..)) && e.dtype() == DType::F32;
        if acc.var.dtype() != DType::F32 || !plain(&a) || !plain(&b) {
            return None;
        }
        let mut rows = Some(1);
        for i in s.spatial.iter().filter(|i| i.var != j.var && i.len() != Some(1)) {
            if !a.uses(&i.var) || b.uses(&i.var) {
                return None;
            }
            rows = rows.and_then(|n: i64| n.checked_mul(i.len()?));
        }
        let mut depths = s.reduce.iter().filter(|k: &&Axis| k.len() != Some(1));
        let (Some(k), None) = (depths.next(), depths.next()) else { return None };
        let (depth, columns) = (k.len()?, j.len()?);
        let epilogue = class(f, &acc.update);
        (depth >= 8 && columns >= 8).then_some(Product { rows, depth, columns, epilogue, given: s.given })
    }

    fn options(lanes: i64) -> SchedOptions {
        SchedOptions::vectors((lanes * 4) as u32)
    }

    /// How it is computed with vectors of so many lanes.
    pub fn config(&self, lanes: i64) -> Config {
        let o = Product::options(lanes);
        let given = self.given.filter(|g| g.lanes == lanes);
        let alone = self.rows == Some(1) && self.columns >= ALONE * lanes;
        let model = || if alone { ALONE } else { model_columns(&o, self.rows, Some(self.columns), lanes) };
        let columns = given.map(|g| g.columns).filter(|n| *n > 0).unwrap_or_else(model);
        let rows = match given {
            Some(g) if g.rows > 0 => g.rows,
            _ if self.rows == Some(1) => 1,
            _ => tile_rows(o.vector_bytes, columns as u16),
        };
        Config { algorithm: Algorithm::Direct, columns, rows, outer: Outer::Model }
    }

    /// All ways and their costs, in cycles, about.
    pub fn candidates(&self, lanes: i64) -> Vec<(Config, f64)> {
        let registers = if lanes == 16 { 32 } else { 16 };
        let o = Product::options(lanes);
        let config = |columns, rows| Config { algorithm: Algorithm::Direct, columns, rows, outer: Outer::Model };
        if self.rows == Some(1) {
            let fit = [ALONE, 6, 4, 2, 1].into_iter().filter(|c| self.columns >= c * lanes);
            return fit.map(|c| (config(c, 1), -c as f64)).collect();
        }
        let mut out = vec![];
        for columns in 1..=most_columns(&o) as i64 {
            if columns > 1 && (columns - 1) * lanes >= self.columns {
                break;
            }
            // One column of `b` may be read from memory.
            let most = ((registers - columns) / columns).min(14);
            let usual = tile_rows(o.vector_bytes, columns as u16);
            let mut heights = vec![most, most - 1, usual, 8, 6, 4];
            heights.retain(|r| (1..=most).contains(r) && self.rows.is_none_or(|n| *r <= n));
            heights.sort();
            heights.dedup();
            for rows in heights {
                out.push((config(columns, rows), self.cost(columns, rows, lanes)));
            }
        }
        out
    }

    fn cost(&self, columns: i64, rows: i64, lanes: i64) -> f64 {
        let slivers = (self.columns as f64 / (columns * lanes) as f64).ceil();
        let tile = |r: i64| {
            let step = ((r * columns) as f64).max(columns as f64 + r as f64 * 0.5).max(4.0);
            self.depth as f64 * step + (20 + 3 * r * columns) as f64
        };
        match self.rows {
            None => slivers * tile(rows) / rows as f64,
            Some(n) => {
                let rest = if n % rows > 0 { tile(n % rows) } else { 0.0 };
                slivers * ((n / rows) as f64 * tile(rows) + rest)
            }
        }
    }
}

/// What the other stages of a kernel do to a product, whose own operands are in `update`.
fn class(f: &PrimFunc, update: &PrimExpr) -> i64 {
    let mut calls = false;
    f.body.walk(&mut |s| {
        for e in s.exprs() {
            e.walk(&mut |x| {
                let cheap = [Intrin::Abs, Intrin::Fabs, Intrin::Sqrt, Intrin::Floor, Intrin::Fma];
                calls |= matches!(x.kind(), PrimKind::Call(i, _) if !cheap.contains(i));
            });
        }
    });
    let mut others: Vec<&Buffer> = f.buffers().filter(|b| !loads(update, b)).collect();
    let out = others.pop();
    let residual = out.is_some_and(|out| out.ndim() > 1 && others.iter().any(|b| b.shape == out.shape));
    epilogue_class(residual, calls)
}

fn statements(f: &PrimFunc) -> &[Stmt] {
    match f.body.kind() {
        StmtKind::Seq(v) => v.as_slice(),
        _ => std::slice::from_ref(&f.body),
    }
}

/// The products of a kernel.
pub fn products(f: &PrimFunc) -> Vec<Product> {
    statements(f).iter().filter_map(|s| Product::of(&recognise(s)?, f)).collect()
}

/// Writes to the blocks of products how they are to be computed, and for vectors of how many lanes.
pub fn choose_products(f: &mut PrimFunc, choose: &dyn Fn(&Product) -> Option<(Config, i64)>) {
    let mut list = statements(f).to_vec();
    let mut changed = false;
    for s in &mut list {
        let Some((c, lanes)) = recognise(s).and_then(|s| Product::of(&s, f)).and_then(|p| choose(&p)) else {
            continue;
        };
        changed = true;
        *s = s.rewrite(&mut |e| e.clone(), &mut |s| match s.kind() {
            StmtKind::Block(b) => {
                let mut b = b.clone();
                let list = [c.columns, c.rows, lanes].map(AttrValue::Int).to_vec();
                b.attrs.set(KEY, AttrValue::List(list));
                Stmt::at(StmtKind::Block(b), s.span())
            }
            _ => s,
        });
    }
    if changed {
        f.body = Stmt::seq(list);
    }
}
