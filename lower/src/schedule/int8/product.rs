//! Products of bytes with packed weights whose sums stay in int32, for any number of rows: the weights have the order
//! that a convolution of one point gives them.
//!
//! [`Product::prim_func`] says what is computed, for every target; [`kernel`] is the same for wide vectors. Rows are taken
//! as many at a time as there are registers for; tiles of bytes take 32 or 16 of them, the last of which may be the
//! second time that a row is computed.

use super::{c, let_, load, loop_, steps, Body, Conv, Form, Panel, Writer};
use relax_ir::attrs::AttrValue;
use relax_ir::flat::{FlatFunc, FlatStmt, Linkage};
use relax_ir::prim::{Intrin, Var};
use relax_ir::tir::{KernelBuilder, PrimFunc};
use relax_ir::{DType, PrimExpr};

/// The attribute that holds a [`Product`].
pub const PRODUCT: &str = "relax_aot.int8_product";

/// Rows and columns of a tile of sums, and bytes of a row of what is multiplied.
const TILE: i64 = 16;
const DEPTH: i64 = 64;
/// Vectors of columns that go together over tiles.
const VECTORS: i64 = 2;
/// Rows beside four vectors, where bytes are multiplied in one step ([`Tile::for_twice`]).
const BESIDE_FOUR: i64 = 6;

/// `y[.., j] = sum of x[.., k] * w[k, j]` of uint8 with int8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// Rows of the weights; a multiple of 4.
    pub k: i64,
    /// Columns; a multiple of 4.
    pub n: i64,
    /// Bytes of a vector register of the widest form.
    pub vector_bytes: i64,
}

impl Product {
    /// Of a PrimFunc that [`Product::prim_func`] made.
    pub fn of(f: &PrimFunc) -> Option<Product> {
        let [k, n, vector_bytes] = f.attrs.ints(PRODUCT)?[..] else { return None };
        Some(Product { k, n, vector_bytes })
    }

    /// A convolution of one point with the same weights.
    fn conv(&self) -> Conv {
        Conv {
            in_w: TILE,
            in_c: self.k,
            columns: TILE,
            channels: self.n,
            out_w: TILE,
            vector_bytes: self.vector_bytes,
            sums: true,
            ..Conv::default()
        }
    }

    /// Whether it has a form over tiles.
    pub fn has_tiles(&self, f: &PrimFunc) -> bool {
        self.conv().has_tiles() && rows(f).as_int().is_none_or(|n| n >= TILE)
    }

    /// Weights in the kernel's order, from `weight(row, column)`.
    pub fn pack(&self, weight: impl Fn(i64, i64) -> i8) -> Vec<u8> {
        self.conv().pack(|_, _, k, j| weight(k, j))
    }

    /// The meaning: parameters `x [.., k]`, the packed weights, `y [.., n]`. `rows` are the dims of `x` before the last.
    pub fn prim_func(&self, name: &str, rows: &[PrimExpr]) -> PrimFunc {
        let mut f = KernelBuilder::new(name);
        let with = |last: i64| -> Vec<PrimExpr> { rows.iter().cloned().chain([c(last)]).collect() };
        let conv = self.conv();
        let x = f.input("x", &with(self.k), DType::U8);
        let w = f.input("w", &[c(conv.weights())], DType::I8);
        let y = f.sum("y", &with(self.n), DType::I32, &[c(self.k)], |i, r| {
            let (row, j) = i.split_at(rows.len());
            let at: Vec<PrimExpr> = row.iter().cloned().chain([r[0].clone()]).collect();
            x.at(at).cast(DType::I32) * w.at([conv.position(r[0].clone(), j[0].clone())]).cast(DType::I32)
        });
        let mut f = f.finish(&[y]);
        f.attrs.set(PRODUCT, AttrValue::List([self.k, self.n, self.vector_bytes].map(AttrValue::Int).to_vec()));
        f
    }
}

/// Of `x`, the first parameter.
fn rows(f: &PrimFunc) -> PrimExpr {
    let dims = f.buffers().next().map_or(vec![], |b| b.shape.to_vec());
    let before = &dims[..dims.len().saturating_sub(1)];
    before.iter().fold(c(1), |n, d| n * d.clone().cast(DType::I64))
}

/// The kernel of a [`Product`] for wide vectors, at most as wide as those of the weights' order.
pub fn kernel(f: &PrimFunc, p: &Product, form: Form) -> FlatFunc {
    let param = |name: &str| Var::new(name, DType::HANDLE);
    let conv = p.conv();
    let w = Writer {
        conv: &conv,
        form,
        x: param("x"),
        w: param("w"),
        sum: param("zeros"),
        scale: param("scale"),
        bias: param("bias"),
        other: param("other"),
        y: param("y"),
        sums: param("sums"),
        workspace: param("workspace"),
        sizes: conv.sizes(),
        stride: c(conv.in_w * conv.in_c),
    };
    let mut params = vec![w.x.clone(), w.w.clone(), w.y.clone()];
    params.extend(crate::kernel_dims(f));
    let mut body = vec![];
    let rows = let_(&mut body, "rows", rows(f));
    let tiles = form.tiles && p.has_tiles(f);
    if tiles {
        body.push(w.slot());
        body.push(FlatStmt::Stack { var: w.sum.clone(), bytes: DEPTH as u32, align: DEPTH as u32 });
    }
    // Panels are the outermost loop: threads share them.
    for panel in conv.panels() {
        loop_(&mut body, panel.start, panel.end, panel.width(), &mut |out, column| {
            let few = |out: &mut Body| w.rows_of_panel(out, &panel, &column, &rows);
            let many = |out: &mut Body| w.tiles_of_panel(out, &panel, &column, &rows);
            match (tiles && panel.lanes == TILE, rows.as_int()) {
                (false, _) => few(out),
                (true, Some(_)) => many(out),
                (true, None) => {
                    let (mut then, mut otherwise) = (vec![], vec![]);
                    few(&mut then);
                    many(&mut otherwise);
                    out.push(FlatStmt::If { cond: rows.clone().lt(c(TILE)), then, otherwise });
                }
            }
        });
    }
    FlatFunc { name: f.name.clone(), params, ret: None, linkage: Linkage::Local, body, span: f.span }
}

impl Writer<'_> {
    /// All rows by the columns of a panel, in registers.
    fn rows_of_panel(&self, out: &mut Body, p: &Panel, column: &PrimExpr, rows: &PrimExpr) {
        for g in self.groups(p) {
            let vectors = g.at.len() as i64;
            let most = self.conv.rows_of(self.form, vectors);
            let most = if vectors == 4 { most.min(BESIDE_FOUR) } else { most };
            let most = rows.as_int().map_or(most, |n| {
                let tiles = (n + most - 1) / most;
                (n + tiles - 1) / tiles.max(1)
            });
            let whole = let_(out, "whole", rows.clone().floor_div(most) * most);
            // What is left of a number that is known is one tile.
            let last = rows.as_int().map_or(1, |n| n % most);
            for (begin, end, count) in [(c(0), whole.clone(), most), (whole, rows.clone(), last)] {
                steps(out, &begin, &end, count.max(1), &mut |out, row| {
                    let ints = DType::I32.with_lanes(g.lanes as u16);
                    let from = let_(out, "from", self.x.expr().ptr_add(row.clone() * self.conv.in_c));
                    let first = row * self.conv.channels + column.clone() + g.first;
                    let first = let_(out, "first", first);
                    let mut accs: Vec<Vec<Var>> = vec![];
                    for _ in 0..count {
                        let acc = |_: &i64| {
                            let var = Var::new("acc", ints);
                            let init = PrimExpr::i32(0).broadcast(ints.lanes);
                            out.push(FlatStmt::Local { var: var.clone(), init });
                            var
                        };
                        accs.push(g.at.iter().map(acc).collect());
                    }
                    self.dots(out, p, &g, &from, column, &accs, ints);
                    for (r, row) in accs.iter().enumerate() {
                        for (acc, at) in row.iter().zip(&g.at) {
                            let offset = first.clone() + (r as i64 * self.conv.channels + at - g.first);
                            out.push(FlatStmt::Store { ptr: self.y.expr(), offset, value: acc.expr() });
                        }
                    }
                });
            }
        }
    }

    /// All rows, of which there are enough for a tile, by the columns of a panel.
    fn tiles_of_panel(&self, out: &mut Body, p: &Panel, column: &PrimExpr, rows: &PrimExpr) {
        let zero = PrimExpr::i32(0).broadcast(TILE as u16);
        out.push(FlatStmt::Store { ptr: self.sum.expr(), offset: c(0), value: zero });
        let panel = let_(out, "panel", self.w.expr().ptr_add(column.clone() * self.conv.in_c));
        // Two tiles at a time, as long as more rows than one tile has are left; where there are less, one by one.
        let pairs = match rows.as_int() {
            Some(n) if n < 2 * TILE => c(0),
            Some(n) => c((n + TILE - 1) / (2 * TILE)),
            None => {
                let pairs = (rows.clone() + (TILE - 1)).floor_div(2 * TILE);
                rows.clone().lt(c(2 * TILE)).select(c(0), pairs)
            }
        };
        let pairs = let_(out, "pairs", pairs * (2 * TILE));
        for first in (0..p.count).step_by(VECTORS as usize) {
            let vectors = VECTORS.min(p.count - first);
            for (begin, end, down) in [(c(0), pairs.clone(), 2), (pairs.clone(), rows.clone(), 1)] {
                // The last rows are computed with those before them.
                steps(out, &begin, &end, down * TILE, &mut |out, row| {
                    let row = let_(out, "row", row.min(rows.clone() - down * TILE));
                    self.sums_of_tiles(out, p, column, &panel, &row, [first, vectors, down]);
                });
            }
        }
    }

    /// `down` tiles of rows by so many vectors from the `first` of a panel on.
    fn sums_of_tiles(
        &self,
        out: &mut Body,
        p: &Panel,
        column: &PrimExpr,
        panel: &PrimExpr,
        row: &PrimExpr,
        [first, vectors, down]: [i64; 3],
    ) {
        let v = self.conv;
        let ints = DType::I32.with_lanes((TILE * TILE) as u16);
        let (left, right) = (DType::U8.with_lanes((TILE * DEPTH) as u16), DType::I8.with_lanes((TILE * DEPTH) as u16));
        let tile = |out: &mut Body, ptr: PrimExpr, stride: i64, d: DType| {
            let var = Var::new("tile", d);
            out.push(FlatStmt::Let { var: var.clone(), value: PrimExpr::tile_rows(ptr, c(stride), d) });
            var.expr()
        };
        let mut sums: Vec<Vec<Var>> = vec![];
        for _ in 0..down {
            let acc = |_: i64| {
                let var = Var::new("acc", ints);
                let init = PrimExpr::tile_rows(self.sum.expr(), c(0), ints);
                out.push(FlatStmt::Local { var: var.clone(), init });
                var
            };
            sums.push((0..vectors).map(acc).collect());
        }
        let from = let_(out, "from", self.x.expr().ptr_add(row.clone() * v.in_c));
        loop_(out, 0, v.in_c, DEPTH, &mut |out, k| {
            let ws = let_(out, "ws", panel.clone().ptr_add(k.clone() * p.width() + first * DEPTH));
            let w: Vec<PrimExpr> =
                (0..vectors).map(|j| tile(out, ws.clone().ptr_add(j * DEPTH), p.width() * 4, right)).collect();
            for (i, row) in sums.iter().enumerate() {
                let a = tile(out, from.clone().ptr_add(k.clone() + i as i64 * TILE * v.in_c), v.in_c, left);
                for (acc, w) in row.iter().zip(&w) {
                    let value = PrimExpr::call(Intrin::TileDot, [acc.expr(), a.clone(), w.clone()]);
                    out.push(FlatStmt::Assign { var: acc.clone(), value });
                }
            }
        });
        for (i, acc) in sums.iter().flatten().enumerate() {
            let offset = c(i as i64 * TILE * TILE);
            out.push(FlatStmt::Store { ptr: self.sums.expr(), offset, value: acc.expr() });
        }
        let to = let_(out, "to", row.clone() * v.channels + column.clone() + first * TILE);
        let line = DType::I32.with_lanes(TILE as u16);
        loop_(out, 0, TILE, 1, &mut |out, r| {
            for (i, j) in (0..down).flat_map(|i| (0..vectors).map(move |j| (i, j))) {
                let at = r.clone() * TILE + (i * vectors + j) * TILE * TILE;
                let value = let_(out, "sums", load(&self.sums.expr(), at, line));
                let offset = to.clone() + r.clone() * v.channels + (i * TILE * v.channels + j * TILE);
                out.push(FlatStmt::Store { ptr: self.y.expr(), offset, value });
            }
        });
    }
}
