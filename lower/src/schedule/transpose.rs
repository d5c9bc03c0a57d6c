//! Transpositions: outputs whose values are read along another axis than they are written.
//!
//! Two axes run in blocks: the one that is written along, and the one that is read along. With wide vectors and elements
//! of 32 bits a block is read in vectors, turned in registers, and written in vectors; else its points are computed one
//! by one, while the cache lines that they share last.

use super::emit::{Emit, Lane, Res};
use super::map::{find_condition, point, range};
use super::nest::{scan, Target};
use super::poly::Poly;
use super::stage::{replace, Axis};
use super::SchedOptions;
use relax_ir::prim::{Intrin, PrimKind};
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// Points along both axes of a block whose points are computed one by one.
const BLOCK: i64 = 16;

/// For outputs whose values are read along another axis than they are written: that axis.
pub fn transposed(e: &Emit, axes: &[Axis], outs: &[Target]) -> Option<usize> {
    let (last, others) = axes.split_last()?;
    let least = if e.wide { 8 } else { 2 * BLOCK };
    let long = |a: &Axis| a.len().is_none_or(|n| n >= least);
    if !long(last) || find_condition(outs, &|_| true).is_some() {
        return None;
    }
    let values: Vec<&PrimExpr> = outs.iter().map(|t| &t.value).collect();
    let s = scan(&values, &last.var, e);
    if s.gather == s.repeated {
        return None;
    }
    let contiguous = |a: &Axis| {
        let s = scan(&values, &a.var, e);
        s.unit > 0 && s.gather == 0
    };
    others.iter().position(|a| long(a) && contiguous(a))
}

/// Two axes in blocks, inside the loops over the others.
pub fn blocks(e: &mut Emit, o: &SchedOptions, axes: &[Axis], across: usize, outs: &[Target]) -> Res<()> {
    let mut outer = axes.to_vec();
    let (Some(last), u) = (outer.pop(), outer.remove(across)) else { return Ok(()) };
    let bound = |e: &mut Emit, a: &Axis| -> Res<PrimExpr> {
        let end = Poly::of(&a.extent, &e.ranges);
        let end = e.index(&end)?;
        Ok(e.hoist(end))
    };
    if let Some((first, rest)) = outer.split_first() {
        let end = bound(e, first)?;
        let mut inner = rest.to_vec();
        inner.extend([u, last]);
        let across = rest.len();
        return e.for_loop(&first.var, PrimExpr::i64(0), end, 1, |e| blocks(e, o, &inner, across, outs));
    }
    let (u_end, v_end) = (bound(e, &u)?, bound(e, &last)?);
    if let Some(tile) = Tile::new(e, o, &u, &last, outs) {
        // Open extents may be shorter than a square.
        let ends = [u_end, v_end];
        let fits = ends.iter().fold(PrimExpr::bool(true), |all, end| match end.as_int() {
            Some(_) => all,
            None => all.and(end.clone().ge(tile.side)),
        });
        return e.if_then(fits, |e| tile.all(e, outs, &ends), |e| points(e, o, [&u, &last], &ends, outs));
    }
    points(e, o, [&u, &last], &[u_end, v_end], outs)
}

/// The points of blocks one by one.
fn points(e: &mut Emit, o: &SchedOptions, [u, last]: [&Axis; 2], ends: &[PrimExpr; 2], outs: &[Target]) -> Res<()> {
    let [u_end, v_end] = ends.clone();
    let (bu, bv) = (Var::new("block", DType::I64), Var::new("block", DType::I64));
    e.for_loop(&bv, PrimExpr::i64(0), v_end.clone(), BLOCK, |e| {
        let v_stop = e.hoist((bv.expr() + BLOCK).min(v_end.clone()));
        e.for_loop(&bu, PrimExpr::i64(0), u_end.clone(), BLOCK, |e| {
            let u_stop = e.hoist((bu.expr() + BLOCK).min(u_end.clone()));
            e.for_loop(&u.var, bu.expr(), u_stop, 1, |e| range(e, o, &last.var, bv.expr(), v_stop, outs, 0))
        })
    })
}

/// A square of elements that is turned in registers: read along `u`, written along `v`.
struct Tile {
    u: Var,
    v: Var,
    side: i64,
    /// Loads that move along both axes.
    loads: Vec<PrimExpr>,
}

impl Tile {
    /// `None` where known extents are short, or elements have other sizes than 4 bytes.
    fn new(e: &Emit, o: &SchedOptions, u: &Axis, v: &Axis, outs: &[Target]) -> Option<Tile> {
        if !e.wide {
            return None;
        }
        let known = [u.len(), v.len()];
        let fits = |side: i64| known.iter().flatten().all(|n| *n >= side);
        let side = [16, 8].into_iter().find(|&s| s <= o.vector_bytes as i64 / 4 && fits(s))?;
        let word = |d: DType| [DType::F32, DType::I32, DType::U32].contains(&d);
        let mut loads: Vec<PrimExpr> = vec![];
        let mut plain = true;
        for t in outs {
            let offset = Poly::of(&t.offset, &e.ranges);
            let linear = |v: &Var| offset.split(v).map(|(stride, _)| stride);
            plain &= word(t.dtype) && linear(&u.var).is_some();
            plain &= linear(&v.var).is_some_and(|stride| stride.as_const() == Some(1));
            t.value.walk(&mut |x| match x.kind() {
                PrimKind::Load { offset, .. } => {
                    let offset = Poly::of(offset, &e.ranges);
                    let stride = |v: &Var| offset.split(v).map(|(stride, _)| stride);
                    match (stride(&u.var), stride(&v.var)) {
                        (Some(_), Some(v)) if v.is_zero() => {}
                        (Some(u), Some(_)) if u.as_const() == Some(1) => {
                            if !loads.contains(x) {
                                loads.push(x.clone());
                            }
                        }
                        _ => plain = false,
                    }
                    plain &= word(x.dtype());
                }
                PrimKind::Let(..) => plain = false,
                _ => {}
            });
        }
        plain.then(|| Tile { u: u.var.clone(), v: v.var.clone(), side, loads })
    }

    /// Tiles over both axes; the last ones reach back where the extents are no multiples.
    fn all(&self, e: &mut Emit, outs: &[Target], [u_end, v_end]: &[PrimExpr; 2]) -> Res<()> {
        let side = self.side;
        starts(e, v_end, side, &mut |e, v| starts(e, u_end, side, &mut |e, u| self.one(e, outs, &u, &v)))
    }

    fn one(&self, e: &mut Emit, outs: &[Target], u: &PrimExpr, v: &PrimExpr) -> Res<()> {
        let lane = Var::new("lane", DType::I64);
        let lanes = Lane::of(&lane, self.side as u16);
        let at = |x: &PrimExpr, u: PrimExpr, v: PrimExpr| {
            x.substitute(&HashMap::from([(self.u.clone(), u), (self.v.clone(), v)]))
        };
        e.start_lane(&lane, false);
        let mut columns = vec![];
        for load in &self.loads {
            let mut rows = vec![];
            for j in 0..self.side {
                let row = at(load, u.clone() + lane.expr(), v.clone() + j);
                rows.push(e.value(&row, &lanes)?);
            }
            columns.push(turned(e, &rows));
        }
        for i in 0..self.side {
            let mut outs = outs.to_vec();
            for (load, columns) in self.loads.iter().zip(&columns) {
                let column = &columns[i as usize];
                let name = Var::new("column", load.dtype());
                e.set_value(&name, column.clone());
                outs.iter_mut().for_each(|o| o.value = replace(&o.value, load, &name.expr()));
            }
            for o in &mut outs {
                o.value = at(&o.value, u.clone() + i, v.clone() + lane.expr());
                o.offset = at(&o.offset, u.clone() + i, v.clone() + lane.expr());
            }
            point(e, &outs, &lanes)?;
        }
        e.end_lane(&lane);
        Ok(())
    }
}

/// Squares of `side` points from 0 to `end`, which is no less; the last one reaches back where that is no multiple.
pub(super) fn starts(
    e: &mut Emit,
    end: &PrimExpr,
    side: i64,
    body: &mut dyn FnMut(&mut Emit, PrimExpr) -> Res<()>,
) -> Res<()> {
    let block = Var::new("block", DType::I64);
    e.ranges.add_loop(&block, Poly::default(), Poly::of(end, &e.ranges));
    e.for_loop(&block, PrimExpr::i64(0), end.clone(), side, |e| {
        if end.as_int().is_some_and(|n| n % side == 0) {
            return body(e, block.expr());
        }
        let start = e.bind("start", block.expr().min(end.clone() - side));
        if let Some(v) = start.as_var() {
            let count = Poly::of(&(end.clone() - (side - 1)), &e.ranges);
            e.ranges.add_loop(v, Poly::default(), count);
        }
        body(e, start)
    })
}

/// Groups of so many bytes by turns from the low or high halves of the 128-bit parts of both.
pub(super) fn weave(e: &mut Emit, a: &PrimExpr, b: &PrimExpr, bytes: i64, high: i64) -> PrimExpr {
    let [bytes, high] = [bytes, high].map(|v| PrimExpr::int(DType::I32, v));
    e.bind("t", PrimExpr::call(Intrin::Interleave, vec![a.clone(), b.clone(), bytes, high]))
}

/// The even or odd 128-bit parts of both.
fn parts(e: &mut Emit, a: &PrimExpr, b: &PrimExpr, odd: i64) -> PrimExpr {
    e.bind("t", PrimExpr::call(Intrin::Parts, vec![a.clone(), b.clone(), PrimExpr::int(DType::I32, odd)]))
}

/// The sums of the lanes of up to as many vectors as these have lanes, 8 or 16, each in its own lane. The lanes of a vector
/// are added in the same order wherever it stands.
pub(super) fn totals(e: &mut Emit, vectors: &[PrimExpr]) -> PrimExpr {
    let lanes = vectors.first().map_or(0, |v| v.dtype().lanes as usize);
    let mut all = vectors.to_vec();
    let mut level = 1;
    while level < lanes {
        let pairs: Vec<[PrimExpr; 2]> =
            all.chunks(2).map(|p| [p[0].clone(), p.last().unwrap_or(&p[0]).clone()]).collect();
        all = vec![];
        for [a, b] in &pairs {
            let halves = [0, 1].map(|half| match level {
                1 => weave(e, a, b, 4, half),
                2 => weave(e, a, b, 8, half),
                _ => parts(e, a, b, half),
            });
            all.push(e.bind("sum", halves[0].clone() + halves[1].clone()));
        }
        level *= 2;
    }
    all.swap_remove(0)
}

/// The columns of as many rows as these have lanes: 8 or 16.
pub(super) fn turned(e: &mut Emit, rows: &[PrimExpr]) -> Vec<PrimExpr> {
    // Squares of four by four: the columns 4 p + k of four rows are part p of vector k.
    let mut squares: Vec<[PrimExpr; 4]> = vec![];
    for r in rows.chunks_exact(4) {
        let (a, b) = (weave(e, &r[0], &r[1], 4, 0), weave(e, &r[0], &r[1], 4, 1));
        let (c, d) = (weave(e, &r[2], &r[3], 4, 0), weave(e, &r[2], &r[3], 4, 1));
        squares.push([weave(e, &a, &c, 8, 0), weave(e, &a, &c, 8, 1), weave(e, &b, &d, 8, 0), weave(e, &b, &d, 8, 1)]);
    }
    let mut out = rows.to_vec();
    for k in 0..4 {
        match squares.as_slice() {
            [a, b] => {
                out[k] = parts(e, &a[k], &b[k], 0);
                out[4 + k] = parts(e, &a[k], &b[k], 1);
            }
            [a, b, c, d] => {
                let (even, odd) = (parts(e, &a[k], &b[k], 0), parts(e, &a[k], &b[k], 1));
                let (even_too, odd_too) = (parts(e, &c[k], &d[k], 0), parts(e, &c[k], &d[k], 1));
                out[k] = parts(e, &even, &even_too, 0);
                out[4 + k] = parts(e, &odd, &odd_too, 0);
                out[8 + k] = parts(e, &even, &even_too, 1);
                out[12 + k] = parts(e, &odd, &odd_too, 1);
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{machine, SchedOptions};
    use crate::interp::{run, Arg, Tensor};
    use relax_ir::tir::KernelBuilder;
    use relax_ir::{DType, PrimExpr, Var};

    /// `relu(x^T) + bias`, by rows or by columns of the result, for matrices in a batch, whose rows or columns are open.
    #[test]
    fn squares_are_turned_in_registers() {
        let sizes = [(1, 16, 16), (2, 49, 24), (1, 8, 35), (3, 33, 17), (1, 9, 70), (1, 64, 7)];
        for ((batch, rows, columns), open) in sizes.into_iter().flat_map(|s| (0..4).map(move |open| (s, open))) {
            let dim = |len: i64, name: &str, open: bool| match open {
                true => Var::new(name, DType::I64).expr(),
                false => PrimExpr::i64(len),
            };
            let (n, m) = (dim(rows, "n", open & 1 != 0), dim(columns, "m", open & 2 != 0));
            let mut k = KernelBuilder::new("turned");
            let x = k.input("x", &[PrimExpr::i64(batch), n.clone(), m.clone()], DType::F32);
            let bias = k.input("bias", &[m.clone()], DType::F32);
            let y = k.compute("y", &[PrimExpr::i64(batch), m, n], DType::F32, |i| {
                x.at([i[0].clone(), i[2].clone(), i[1].clone()]).max(PrimExpr::f32(0.0)) + bias.at([i[1].clone()])
            });
            let f = k.finish(&[y]);
            let tensor = |shape: &[i64]| {
                let values: Vec<f64> =
                    (0..shape.iter().product()).map(|i: i64| (i * 7 % 1001) as f64 - 500.0).collect();
                Tensor::from_f64(DType::F32, shape, &values)
            };
            let out = Tensor::zeros(DType::F32, &[batch, columns, rows]);
            let args = [tensor(&[batch, rows, columns]), tensor(&[columns]), out].map(Arg::Tensor).to_vec();
            let mut wanted = args.clone();
            run(&f, &mut wanted).unwrap();
            for vector_bytes in [16, 32, 64] {
                let mut got = args.clone();
                machine::run(&f, &mut got, &SchedOptions::vectors(vector_bytes)).unwrap();
                let (Arg::Tensor(a), Arg::Tensor(b)) = (&wanted[2], &got[2]) else { panic!() };
                assert!(a.data == b.data, "{batch}x{rows}x{columns} by {vector_bytes}, open: {open}");
            }
        }
    }
}
