//! Matrix products whose weights stay as codes of 4 or 8 bits, with a scale and an offset for each column of a block of
//! rows: `x [.., k] @ w [k, n]`, `w = code * scale + offset`.
//!
//! [`Streamed::prim_func`] says what is computed, for every target; [`kernel`] is the same for wide vectors. With few
//! rows of `x` the weights become floats in registers, each once for several rows: what has to come from memory is a
//! quarter or an eighth. With many rows a few weights at a time become floats on the stack, for all rows.

use super::int8::{c, let_, load, loop_, Body};
use relax_ir::attrs::AttrValue;
use relax_ir::flat::{FlatFunc, FlatStmt, Linkage};
use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::tir::{KernelBuilder, PrimFunc};
use relax_ir::{DType, PrimExpr, Var};

/// The attribute that holds a [`Streamed`].
pub const ATTR: &str = "relax_aot.streamed";
/// Columns that lie together, at most, and the least.
const PANEL: i64 = 64;
pub const LEAST: i64 = 16;
/// From so many rows on, weights become floats on the stack.
const MANY: i64 = 12;
/// Bytes of weights there.
const STACK: i64 = 8192;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streamed {
    /// Rows of the weights.
    pub k: i64,
    /// Columns; a multiple of [`LEAST`].
    pub n: i64,
    /// Rows that have their scales in common; even, or all.
    pub block: i64,
    /// 4 or 8.
    pub bits: i64,
}

/// A panel of columns: first, and how many.
type Panel = (i64, i64);

impl Streamed {
    /// Of a PrimFunc that [`Streamed::prim_func`] made.
    pub fn of(f: &PrimFunc) -> Option<Streamed> {
        let [k, n, block, bits] = f.attrs.ints(ATTR)?[..] else { return None };
        Some(Streamed { k, n, block, bits })
    }

    /// Blocks of rows, the last of which may have fewer.
    pub fn blocks(&self) -> i64 {
        (self.k + self.block - 1) / self.block
    }

    /// Bytes of a column.
    fn depth(&self) -> i64 {
        if self.bits == 4 {
            (self.k + 1) / 2
        } else {
            self.k
        }
    }

    /// Bytes of the codes.
    pub fn bytes(&self) -> i64 {
        self.depth() * self.n
    }

    /// The last panel, when it is narrower.
    fn rest(&self) -> Panel {
        let whole = self.n / PANEL * PANEL;
        (whole, self.n - whole)
    }

    /// The byte that holds a code.
    fn position(&self, k: PrimExpr, j: PrimExpr) -> PrimExpr {
        let (whole, left) = self.rest();
        let row = if self.bits == 4 { k.floor_div(2) } else { k };
        let rest = row.clone() * left + (j.clone() - whole) + whole * self.depth();
        if whole == 0 {
            return rest;
        }
        let full = (j.clone().floor_div(PANEL) * self.depth() + row) * PANEL + j.clone().floor_mod(PANEL);
        match left {
            0 => full,
            _ => j.lt(c(whole)).select(full, rest),
        }
    }

    /// Codes in the kernel's order; two of 4 bits in a byte, that of the even row in the low half.
    pub fn pack(&self, code: impl Fn(i64, i64) -> u8) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes() as usize);
        let mut panel = |first: i64, width: i64| {
            for row in 0..self.depth() {
                for j in first..first + width {
                    out.push(match self.bits {
                        4 => code(2 * row, j) | (if 2 * row + 1 < self.k { code(2 * row + 1, j) } else { 0 }) << 4,
                        _ => code(row, j),
                    });
                }
            }
        };
        let (whole, left) = self.rest();
        (0..whole).step_by(PANEL as usize).for_each(|first| panel(first, PANEL));
        panel(whole, left);
        out
    }

    /// The meaning: parameters `x, codes, scale, offset, y`. `rows` are the dims of `x` before the last.
    pub fn prim_func(&self, name: &str, rows: &[PrimExpr]) -> PrimFunc {
        let mut f = KernelBuilder::new(name);
        let with = |last: i64| -> Vec<PrimExpr> { rows.iter().cloned().chain([c(last)]).collect() };
        let x = f.input("x", &with(self.k), DType::F32);
        let codes = f.input("codes", &[c(self.bytes())], DType::U8);
        let [scale, offset] = ["scale", "offset"].map(|n| f.input(n, &[c(self.blocks() * self.n)], DType::F32));
        let y = f.sum("y", &with(self.n), DType::F32, &[c(self.k)], |i, r| {
            let (k, j) = (r[0].clone(), i[rows.len()].clone());
            let byte = codes.at([self.position(k.clone(), j.clone())]).cast(DType::I32);
            let code = match self.bits {
                4 => {
                    let high = PrimExpr::raw_binary(BinOp::Shr, byte.clone(), PrimExpr::i32(4));
                    let low = PrimExpr::raw_binary(BinOp::BitAnd, byte, PrimExpr::i32(15));
                    k.clone().floor_mod(2).eq(c(0)).select(low, high)
                }
                _ => byte,
            };
            let at = k.clone().floor_div(self.block) * self.n + j;
            let weight = code.cast(DType::F32) * scale.at([at.clone()]) + offset.at([at]);
            let at: Vec<PrimExpr> = i[..rows.len()].iter().cloned().chain([k]).collect();
            x.at(at) * weight
        });
        let mut f = f.finish(&[y]);
        f.attrs.set(ATTR, AttrValue::List([self.k, self.n, self.block, self.bits].map(AttrValue::Int).to_vec()));
        f
    }
}

/// Columns that are computed together.
struct Group {
    /// The first, and how many vectors.
    first: PrimExpr,
    count: i64,
    /// Bytes of a row of the panel, and where its codes for the first column begin.
    width: i64,
    codes: PrimExpr,
}

struct Writer {
    v: Streamed,
    lanes: i64,
    x: Var,
    codes: Var,
    scale: Var,
    offset: Var,
    y: Var,
    rows: PrimExpr,
    stack: PrimExpr,
}

/// The kernel for vectors of so many bytes.
pub fn kernel(f: &PrimFunc, v: Streamed, vector_bytes: i64) -> FlatFunc {
    let param = |name: &str| Var::new(name, DType::HANDLE);
    let [x, codes, scale, offset, y] = ["x", "codes", "scale", "offset", "y"].map(param);
    let mut params: Vec<Var> = [&x, &codes, &scale, &offset, &y].map(Var::clone).to_vec();
    params.extend(crate::kernel_dims(f));
    let mut body = vec![];
    let dims = f.buffers().next().map_or(vec![], |b| b.shape.to_vec());
    let before = &dims[..dims.len().saturating_sub(1)];
    let rows = before.iter().fold(c(1), |n, d| n * d.clone().cast(DType::I64));
    let rows = let_(&mut body, "rows", rows);
    let stack = param("floats");
    let many = rows.as_int().is_none_or(|n| n >= MANY);
    if many {
        body.push(FlatStmt::Stack { var: stack.clone(), bytes: STACK as u32, align: 64 });
    }
    let w = Writer { v, lanes: vector_bytes / 4, x, codes, scale, offset, y, rows, stack: stack.expr() };
    w.product(&mut body);
    FlatFunc { name: f.name.clone(), params, ret: None, linkage: Linkage::Local, body, span: f.span }
}

impl Writer {
    fn floats(&self) -> DType {
        DType::F32.with_lanes(self.lanes as u16)
    }

    /// Registers side by side.
    fn most(&self) -> i64 {
        if self.lanes == 16 {
            4
        } else {
            2
        }
    }

    /// Panels are the outermost loop, whatever the number of rows: threads share them.
    fn product(&self, out: &mut Body) {
        let (whole, left) = self.v.rest();
        loop_(out, 0, whole, PANEL, &mut |out, first| self.either(out, &first, PANEL));
        if left > 0 {
            self.either(out, &c(whole), left);
        }
    }

    fn either(&self, out: &mut Body, first: &PrimExpr, width: i64) {
        if let Some(n) = self.rows.as_int() {
            return self.panel(out, first, width, n >= MANY);
        }
        let (mut then, mut otherwise) = (vec![], vec![]);
        self.panel(&mut then, first, width, false);
        self.panel(&mut otherwise, first, width, true);
        out.push(FlatStmt::If { cond: self.rows.clone().lt(c(MANY)), then, otherwise });
    }

    fn panel(&self, out: &mut Body, first: &PrimExpr, width: i64, many: bool) {
        let codes = let_(out, "codes", self.codes.expr().ptr_add(first.clone() * self.v.depth()));
        let together = self.most() * self.lanes;
        let mut at = 0;
        while at < width {
            let count = (width - at).min(together) / self.lanes;
            let codes = codes.clone().ptr_add(at);
            let g = Group { first: let_(out, "column", first.clone() + at), count, width, codes };
            if many {
                self.many(out, &g);
            } else {
                self.few(out, &g);
            }
            at += count * self.lanes;
        }
    }

    /// `f(out, first row, rows)` for all rows, `most` of them at a time.
    fn rows(&self, out: &mut Body, most: i64, f: &mut dyn FnMut(&mut Body, PrimExpr, i64)) {
        if let Some(n) = self.rows.as_int() {
            let whole = n / most * most;
            loop_(out, 0, whole, most, &mut |out, i| f(out, i, most));
            if n > whole {
                f(out, c(whole), n - whole);
            }
            return;
        }
        let whole = let_(out, "whole", self.rows.clone().floor_div(most) * most);
        for (begin, end, step) in [(c(0), whole.clone(), most), (whole, self.rows.clone(), 1)] {
            let var = Var::new("row", DType::I64);
            let mut body = vec![];
            f(&mut body, var.expr(), step);
            out.push(FlatStmt::For { var, begin, end, step, body });
        }
    }

    /// The blocks of rows of the weights: first row, its block, and how many.
    fn blocks(&self, out: &mut Body, f: &mut dyn FnMut(&mut Body, PrimExpr, PrimExpr, i64)) {
        let (block, whole) = (self.v.block, self.v.k / self.v.block);
        loop_(out, 0, whole, 1, &mut |out, b| f(out, b.clone() * block, b, block));
        let left = self.v.k - whole * block;
        if left > 0 {
            f(out, c(whole * block), c(whole), left);
        }
    }

    /// Scales and offsets of a block.
    fn factors(&self, out: &mut Body, g: &Group, block: &PrimExpr) -> Vec<(PrimExpr, PrimExpr)> {
        let at = let_(out, "at", block.clone() * self.v.n + g.first.clone());
        (0..g.count)
            .map(|j| {
                let [scale, offset] = [&self.scale, &self.offset].map(|from| {
                    let value = load(&from.expr(), at.clone() + j * self.lanes, self.floats());
                    let_(out, "factor", value)
                });
                (scale, offset)
            })
            .collect()
    }

    /// Codes that are taken at a time, along a column.
    fn together(&self) -> i64 {
        if self.v.bits == 4 {
            2
        } else {
            1
        }
    }

    /// The weights of rows `k..k + together`, as far as there are `rows`: `f(out, row among them, vectors)`. Without
    /// `factors` their codes.
    fn weights(
        &self,
        out: &mut Body,
        g: &Group,
        factors: Option<&[(PrimExpr, PrimExpr)]>,
        k: &PrimExpr,
        rows: i64,
        f: &mut dyn FnMut(&mut Body, i64, Vec<PrimExpr>),
    ) {
        let (bytes, ints) = (DType::U8.with_lanes(self.lanes as u16), DType::I32.with_lanes(self.lanes as u16));
        let line = match (self.v.bits, k.as_int()) {
            (4, Some(k)) => c(k / 2),
            (4, None) => PrimExpr::raw_binary(BinOp::Shr, k.clone(), c(1)),
            _ => k.clone(),
        };
        let line = let_(out, "line", g.codes.clone().ptr_add(line * g.width));
        let byte = |out: &mut Body, j: i64| let_(out, "bytes", load(&line, c(j * self.lanes), bytes).cast(ints));
        let all: Vec<PrimExpr> = (0..g.count).map(|j| byte(out, j)).collect();
        for half in 0..rows {
            let mut made = vec![];
            for (j, byte) in all.iter().enumerate() {
                let literal = |v: i32| PrimExpr::i32(v).broadcast(self.lanes as u16);
                let code = match (self.v.bits, half) {
                    (4, 0) => PrimExpr::raw_binary(BinOp::BitAnd, byte.clone(), literal(15)),
                    (4, _) => PrimExpr::raw_binary(BinOp::Shr, byte.clone(), literal(4)),
                    _ => byte.clone(),
                };
                let code = code.cast(self.floats());
                let value = match factors.and_then(|f| f.get(j)) {
                    Some((scale, offset)) => PrimExpr::call(Intrin::Fma, [code, scale.clone(), offset.clone()]),
                    None => code,
                };
                made.push(let_(out, "weight", value));
            }
            f(out, half, made);
        }
    }

    fn sums(&self, out: &mut Body, rows: i64, count: i64, init: &dyn Fn(i64, i64) -> PrimExpr) -> Vec<Vec<Var>> {
        let mut all = vec![];
        for r in 0..rows {
            let mut row = vec![];
            for j in 0..count {
                let var = Var::new("acc", self.floats());
                out.push(FlatStmt::Local { var: var.clone(), init: init(r, j) });
                row.push(var);
            }
            all.push(row);
        }
        all
    }

    /// `acc += x * w` for each row; `at` is the element of `x` in its row.
    fn add(&self, out: &mut Body, lines: &[PrimExpr], at: &PrimExpr, w: &[PrimExpr], accs: &[Vec<Var>]) {
        for (line, row) in lines.iter().zip(accs) {
            let x = let_(out, "x", load(line, at.clone(), DType::F32).broadcast(self.lanes as u16));
            for (acc, w) in row.iter().zip(w) {
                let value = PrimExpr::call(Intrin::Fma, [x.clone(), w.clone(), acc.expr()]);
                out.push(FlatStmt::Assign { var: acc.clone(), value });
            }
        }
    }

    fn lines(&self, out: &mut Body, first: &PrimExpr, rows: i64, base: &Var, length: i64) -> Vec<PrimExpr> {
        let start = let_(out, "line", base.expr().ptr_add(first.clone() * (length * 4)));
        (0..rows).map(|r| start.clone().ptr_add(r * length * 4)).collect()
    }

    /// Weights become floats in registers.
    fn few(&self, out: &mut Body, g: &Group) {
        let most = match (self.lanes, g.count) {
            (16, _) => 4,
            (_, 1) => 4,
            _ => 2,
        };
        self.rows(out, most, &mut |out, first, rows| {
            let zero = PrimExpr::f32(0.0).broadcast(self.lanes as u16);
            let accs = self.sums(out, rows, g.count, &|_, _| zero.clone());
            if rows == 1 {
                self.one(out, g, &first, &accs);
                return self.store(out, g, &first, &accs);
            }
            let lines = self.lines(out, &first, rows, &self.x, self.v.k);
            self.blocks(out, &mut |out, start, block, length| {
                let factors = self.factors(out, g, &block);
                let step = self.together();
                let whole = length / step * step;
                let some = |out: &mut Body, k: PrimExpr, n: i64| {
                    let k = let_(out, "k", start.clone() + k);
                    self.weights(out, g, Some(&factors), &k, n, &mut |out, half, w| {
                        self.add(out, &lines, &(k.clone() + half), &w, &accs);
                    });
                };
                loop_(out, 0, whole, step, &mut |out, k| some(out, k, step));
                if length > whole {
                    some(out, c(whole), length - whole);
                }
            });
            self.store(out, g, &first, &accs);
        });
    }

    /// One row: codes are multiplied as they are, the factors of a block once, its offsets with the sum of `x`.
    fn one(&self, out: &mut Body, g: &Group, row: &PrimExpr, accs: &[Vec<Var>]) {
        let zero = PrimExpr::f32(0.0).broadcast(self.lanes as u16);
        let lines = self.lines(out, row, 1, &self.x, self.v.k);
        self.blocks(out, &mut |out, start, block, length| {
            let parts = self.sums(out, 1, g.count, &|_, _| zero.clone());
            let total = Var::new("total", self.floats());
            out.push(FlatStmt::Local { var: total.clone(), init: zero.clone() });
            let step = self.together();
            let whole = length / step * step;
            let some = |out: &mut Body, k: PrimExpr, n: i64| {
                let k = let_(out, "k", start.clone() + k);
                self.weights(out, g, None, &k, n, &mut |out, half, codes| {
                    let x = load(&lines[0], k.clone() + half, DType::F32).broadcast(self.lanes as u16);
                    let x = let_(out, "x", x);
                    out.push(FlatStmt::Assign { var: total.clone(), value: total.expr() + x.clone() });
                    for (part, code) in parts[0].iter().zip(codes) {
                        let value = PrimExpr::call(Intrin::Fma, [x.clone(), code, part.expr()]);
                        out.push(FlatStmt::Assign { var: part.clone(), value });
                    }
                });
            };
            loop_(out, 0, whole, step, &mut |out, k| some(out, k, step));
            if length > whole {
                some(out, c(whole), length - whole);
            }
            let factors = self.factors(out, g, &block);
            for ((acc, part), (scale, offset)) in accs[0].iter().zip(&parts[0]).zip(factors) {
                for (by, factor) in [(part, scale), (&total, offset)] {
                    let value = PrimExpr::call(Intrin::Fma, [by.expr(), factor, acc.expr()]);
                    out.push(FlatStmt::Assign { var: acc.clone(), value });
                }
            }
        });
    }

    fn store(&self, out: &mut Body, g: &Group, first: &PrimExpr, accs: &[Vec<Var>]) {
        let lines = self.lines(out, first, accs.len() as i64, &self.y, self.v.n);
        for (line, row) in lines.iter().zip(accs) {
            for (j, acc) in (0..).zip(row) {
                let offset = g.first.clone() + j * self.lanes;
                out.push(FlatStmt::Store { ptr: line.clone(), offset, value: acc.expr() });
            }
        }
    }

    /// Weights become floats on the stack, for all rows.
    fn many(&self, out: &mut Body, g: &Group) {
        let width = g.count * self.lanes;
        let room = STACK / (4 * width);
        let zero = PrimExpr::f32(0.0).broadcast(self.lanes as u16);
        self.rows(out, 1, &mut |out, first, rows| {
            let accs = self.sums(out, rows, g.count, &|_, _| zero.clone());
            self.store(out, g, &first, &accs);
        });
        self.blocks(out, &mut |out, start, block, length| {
            let factors = self.factors(out, g, &block);
            let room = room.min(length);
            let whole = length / room * room;
            let chunk = |out: &mut Body, k: PrimExpr, n: i64| {
                let k = let_(out, "k", start.clone() + k);
                self.chunk(out, g, &factors, &k, n);
            };
            loop_(out, 0, whole, room, &mut |out, k| chunk(out, k, room));
            if length > whole {
                chunk(out, c(whole), length - whole);
            }
        });
    }

    /// `n` rows of the weights, from `k`.
    fn chunk(&self, out: &mut Body, g: &Group, factors: &[(PrimExpr, PrimExpr)], k: &PrimExpr, n: i64) {
        let (width, step) = (g.count * self.lanes, self.together());
        let whole = n / step * step;
        let some = |out: &mut Body, i: PrimExpr, rows: i64| {
            let at = let_(out, "k", k.clone() + i.clone());
            self.weights(out, g, Some(factors), &at, rows, &mut |out, half, w| {
                for (j, w) in (0..).zip(w) {
                    let offset = (i.clone() + half) * width + j * self.lanes;
                    out.push(FlatStmt::Store { ptr: self.stack.clone(), offset, value: w });
                }
            });
        };
        loop_(out, 0, whole, step, &mut |out, i| some(out, i, step));
        if n > whole {
            some(out, c(whole), n - whole);
        }
        let most = match (self.lanes, g.count) {
            (16, 4) => 6,
            (16, _) => 8,
            (_, 2) => 4,
            _ => 6,
        };
        self.rows(out, most, &mut |out, first, rows| {
            let result = self.lines(out, &first, rows, &self.y, self.v.n);
            let before = |r: i64, j: i64| load(&result[r as usize], g.first.clone() + j * self.lanes, self.floats());
            let accs = self.sums(out, rows, g.count, &before);
            let lines = self.lines(out, &first, rows, &self.x, self.v.k);
            let unroll = [4, 2].into_iter().find(|u| n % u == 0).unwrap_or(1);
            loop_(out, 0, n, unroll, &mut |out, i| {
                for u in 0..unroll {
                    let at = let_(out, "at", (i.clone() + u) * width);
                    let w: Vec<PrimExpr> = (0..g.count)
                        .map(|j| {
                            let value = load(&self.stack, at.clone() + j * self.lanes, self.floats());
                            let_(out, "w", value)
                        })
                        .collect();
                    self.add(out, &lines, &(k.clone() + i.clone() + u), &w, &accs);
                }
            });
            self.store(out, g, &first, &accs);
        });
    }
}

/// Whether a dim can be a parameter of the kernel as it is.
pub fn takes(dim: &PrimExpr) -> bool {
    let mut plain = true;
    dim.walk(&mut |e| {
        if let PrimKind::Var(v) = e.kind() {
            plain &= v.dtype() == DType::I64;
        }
    });
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::{run, Arg, Tensor};
    use crate::schedule::{machine, SchedOptions};

    #[test]
    fn kernels_agree_with_their_meaning() {
        let floats = |shape: &[i64], f: &dyn Fn(i64) -> f64| {
            let values: Vec<f64> = (0..shape.iter().product::<i64>()).map(f).collect();
            Tensor::from_f64(DType::F32, shape, &values)
        };
        for (k, n, block, bits) in
            [(64, 64, 32, 4), (40, 80, 16, 4), (33, 32, 33, 4), (50, 112, 50, 8), (70, 128, 32, 8)]
        {
            let v = Streamed { k, n, block, bits };
            for (rows, symbolic) in [(1, false), (3, true), (7, false), (14, false), (15, true)] {
                let dim = if symbolic { Var::dim("m").expr() } else { c(rows) };
                let f = v.prim_func("product", &[c(1), dim]);
                let codes = v.pack(|i, j| ((i * 7 + j * 13) % (1 << bits)) as u8);
                let codes = relax_ir::Constant::new(DType::U8, vec![v.bytes()], codes);
                let size = [v.blocks() * n];
                let args = vec![
                    Arg::Tensor(floats(&[1, rows, k], &|i| ((i * 37 + 11) % 101) as f64 / 50.0 - 1.0)),
                    Arg::Tensor(Tensor::from_constant(&codes)),
                    Arg::Tensor(floats(&size, &|i| (i % 5 + 1) as f64 / 64.0)),
                    Arg::Tensor(floats(&size, &|i| (i % 3) as f64 / 8.0 - 0.1)),
                    Arg::Tensor(Tensor::zeros(DType::F32, &[1, rows, n])),
                ];
                let mut wanted = args.clone();
                run(&f, &mut wanted).unwrap();
                for bytes in [64, 32, 16] {
                    let mut got = args.clone();
                    machine::run(&f, &mut got, &SchedOptions::vectors(bytes)).unwrap();
                    let (Arg::Tensor(a), Arg::Tensor(b)) = (&wanted[4], &got[4]) else { panic!() };
                    for (a, b) in a.to_f64().iter().zip(b.to_f64()) {
                        assert!((a - b).abs() < 1e-3, "{v:?} {rows} {bytes}: {a} {b}");
                    }
                }
            }
        }
    }
}
