//! Sums of products of two constants, computed natively: each in the order of the reference interpreter, so that the result
//! has the same bits.

use crate::interp::Budget;
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::tir::{Block, IterKind, PrimFunc, Stmt, StmtKind};
use relax_ir::{Constant, DType, PrimExpr, Var};

/// Products that take about as long as a step of the interpreter.
const IN_A_STEP: u64 = 256;
/// Fewer are left to it.
const FEW: u64 = 1 << 12;
/// Rows and columns of the result that are computed together.
const ROWS: usize = 4;
const COLUMNS: usize = 8;

/// An axis with its extent and how far apart its elements are in the left side, the right side and the result; `None` where
/// it is none of their dims.
struct Axis {
    extent: usize,
    strides: [Option<usize>; 3],
}

/// The float32 result of `f`, of these dims, where that is a sum of products of two of `inputs`; `None` where it is another
/// kernel, a small one, or takes more than the budget.
pub(super) fn product(f: &PrimFunc, inputs: &[Constant], dims: &[i64], budget: &mut Budget) -> Option<Constant> {
    let buffers: Vec<_> = f.buffers().collect();
    let [_, _, out] = buffers[..] else { return None };
    let plain = f.alloc_buffers.is_empty() && inputs.iter().all(|c| c.dtype == DType::F32) && out.dtype() == DType::F32;
    if !plain || inputs.len() != 2 || f.params.len() != 3 {
        return None;
    }
    let block = only_block(&f.body)?;
    let StmtKind::Store { buffer, indices, value } = block.body.kind() else { return None };
    let PrimKind::Binary(BinOp::Add, acc, terms) = value.kind() else { return None };
    let PrimKind::Binary(BinOp::Mul, x, y) = terms.kind() else { return None };
    let own = matches!(acc.kind(), PrimKind::BufferLoad(b, i) if b == buffer && **i == **indices);
    let StmtKind::Store { buffer: begun, indices: first, value: zero } = block.init.as_ref()?.kind() else {
        return None;
    };
    let zeroed = begun == buffer && first == indices && zero.as_float() == Some(0.0);
    if !own || !zeroed || buffer != out {
        return None;
    }
    let sides = [x, y].map(|side| match side.kind() {
        PrimKind::BufferLoad(b, at) => {
            let i = buffers[..2].iter().position(|other| *other == b)?;
            Some((&inputs[i], at.to_vec()))
        }
        _ => None,
    });
    let [Some((x, of_x)), Some((y, of_y))] = sides else { return None };
    let shapes = [&x.shape[..], &y.shape[..], dims];
    let axes = axes(block, [&of_x, &of_y, indices], shapes)?;
    let total = axes.iter().try_fold(1u64, |n, (_, a)| n.checked_mul(a.extent as u64))?;
    if total < FEW || total / IN_A_STEP > budget.steps {
        return None;
    }
    budget.steps -= total / IN_A_STEP;
    Some(computed(&axes, x, y, dims))
}

/// The block of a nest of loops from 0 in which the axes, in their order, are the loops.
fn only_block(s: &Stmt) -> Option<&Block> {
    let (mut s, mut loops) = (s, vec![]);
    loop {
        match s.kind() {
            StmtKind::For { var, min, extent, body, .. } if min.is_int(0) => {
                loops.push((var, extent));
                s = body;
            }
            StmtKind::Block(b) if b.axes.is_empty() && b.init.is_none() && bare(b) => s = &b.body,
            StmtKind::Block(b) if bare(b) && b.axes.len() == loops.len() => {
                let same = |(a, (var, extent)): (&relax_ir::tir::BlockAxis, &(&Var, &PrimExpr))| {
                    a.binding.as_var() == Some(*var) && a.extent == **extent && a.min.is_int(0)
                };
                return b.axes.iter().zip(&loops).all(same).then_some(b);
            }
            _ => return None,
        }
    }
}

fn bare(b: &Block) -> bool {
    b.predicate.is_none() && b.alloc_buffers.is_empty() && b.match_buffers.is_empty()
}

/// The axes of a block by what they are: of both sides and the result, of one and the result, or summed.
fn axes(b: &Block, indices: [&[PrimExpr]; 3], shapes: [&[i64]; 3]) -> Option<Vec<(Kind, Axis)>> {
    let strides = |shape: &[i64]| -> Vec<usize> {
        (0..shape.len()).map(|i| shape[i + 1..].iter().product::<i64>() as usize).collect()
    };
    let strides = shapes.map(strides);
    // Each index is an axis, or 0.
    let known = |i: &PrimExpr| i.is_int(0) || i.as_var().is_some_and(|v| b.axes.iter().any(|a| a.var == *v));
    let mut out = vec![];
    for a in &b.axes {
        let extent = a.extent.as_int().filter(|n| *n >= 0)?;
        let mut own = [None; 3];
        for side in 0..3 {
            for (i, index) in indices[side].iter().enumerate() {
                if !known(index) || indices[side].len() != shapes[side].len() {
                    return None;
                }
                if index.as_var() == Some(&a.var) {
                    if shapes[side][i] != extent {
                        return None;
                    }
                    *own[side].get_or_insert(0) += strides[side][i];
                }
            }
        }
        // What has one element is any of these.
        if extent == 1 {
            continue;
        }
        let kind = match (a.kind == IterKind::Reduce, own.map(|s| s.is_some())) {
            (false, [true, true, true]) => Kind::Batch,
            (false, [true, false, true]) => Kind::Row,
            (false, [false, true, true]) => Kind::Column,
            (true, [true, true, false]) => Kind::Sum,
            _ => return None,
        };
        out.push((kind, Axis { extent: extent as usize, strides: own }));
    }
    // Every element of the result is one of the points.
    let whole = indices[2].iter().zip(shapes[2]).all(|(i, n)| i.as_var().is_some() || *n == 1);
    whole.then_some(out)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Batch,
    Row,
    Column,
    Sum,
}

/// Where the elements of all axes of a kind are on a side, the last axis fastest.
fn places(axes: &[(Kind, Axis)], kind: Kind, side: usize) -> Vec<usize> {
    axes.iter().filter(|(k, _)| *k == kind).fold(vec![0], |before, (_, a)| {
        let stride = a.strides[side].unwrap_or(0);
        before.iter().flat_map(|at| (0..a.extent).map(move |i| at + i * stride)).collect()
    })
}

fn computed(axes: &[(Kind, Axis)], x: &Constant, y: &Constant, dims: &[i64]) -> Constant {
    let floats = |c: &Constant| -> Vec<f32> {
        c.bytes().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    let (x, y) = (floats(x), floats(y));
    let of = |kind, side| places(axes, kind, side);
    let (sums_x, sums_y) = (of(Kind::Sum, 0), of(Kind::Sum, 1));
    let (rows_x, rows) = (of(Kind::Row, 0), of(Kind::Row, 2));
    let (columns_y, columns) = (of(Kind::Column, 1), of(Kind::Column, 2));
    let mut out = vec![0f32; dims.iter().product::<i64>() as usize];
    let batches = of(Kind::Batch, 0).into_iter().zip(of(Kind::Batch, 1)).zip(of(Kind::Batch, 2));
    let mut panel = vec![[0f32; COLUMNS]; sums_y.len()];
    let mut left = vec![[0f32; ROWS]; sums_x.len()];
    for ((from_x, from_y), to) in batches {
        for (some_y, some) in columns_y.chunks(COLUMNS).zip(columns.chunks(COLUMNS)) {
            for (line, k) in panel.iter_mut().zip(&sums_y) {
                some_y.iter().zip(line).for_each(|(j, v)| *v = y[from_y + k + j]);
            }
            for (some_x, these) in rows_x.chunks(ROWS).zip(rows.chunks(ROWS)) {
                for (line, k) in left.iter_mut().zip(&sums_x) {
                    some_x.iter().zip(line).for_each(|(i, v)| *v = x[from_x + k + i]);
                }
                let tile = tile(&left, &panel);
                for (i, line) in these.iter().zip(&tile) {
                    some.iter().zip(line).for_each(|(j, v)| out[to + i + j] = *v);
                }
            }
        }
    }
    Constant::new(DType::F32, dims.to_vec(), out.into_iter().flat_map(f32::to_le_bytes).collect())
}

/// Some rows by some columns.
fn tile(left: &[[f32; ROWS]], right: &[[f32; COLUMNS]]) -> [[f32; COLUMNS]; ROWS] {
    let mut acc = [[0f32; COLUMNS]; ROWS];
    for (a, b) in left.iter().zip(right) {
        for (line, a) in acc.iter_mut().zip(a) {
            for (v, b) in line.iter_mut().zip(b) {
                *v += a * b;
            }
        }
    }
    acc
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::{run, Arg, Tensor};
    use relax_ir::tir::KernelBuilder;

    fn numbers(shape: &[i64], seed: i64) -> Constant {
        let value = |i: i64| ((i * 7919 + seed) % 1013 - 506) as f32 / 97.0;
        let n = shape.iter().product();
        Constant::new(DType::F32, shape.to_vec(), (0..n).flat_map(|i| value(i).to_le_bytes()).collect())
    }

    /// `y[b, j, o, i] = sum over k, l of x[b, k, i, l] * w[l, j, k, b]`, one `o`: batches, rows and columns that are turned, two
    /// axes of sums, and tiles that are not whole; the bits of the interpreter.
    #[test]
    fn products_have_the_bits_of_the_interpreter() {
        let [b, j, i, k, l] = [2, 13, 9, 5, 11];
        let shapes = [vec![b, k, i, l], vec![l, j, k, b], vec![b, j, 1, i]];
        let dims = shapes.clone().map(|s| s.into_iter().map(PrimExpr::i64).collect::<Vec<_>>());
        let mut builder = KernelBuilder::new("einsum");
        let x = builder.input("x", &dims[0], DType::F32);
        let w = builder.input("w", &dims[1], DType::F32);
        let sums = [k, l].map(PrimExpr::i64);
        let y = builder.sum("y", &dims[2], DType::F32, &sums, |at, r| {
            let [b, j, _, i] = at else { unreachable!("four axes") };
            let left = x.at([b.clone(), r[0].clone(), i.clone(), r[1].clone()]);
            left * w.at([r[1].clone(), j.clone(), r[0].clone(), b.clone()])
        });
        let f = builder.finish(&[y]);
        let inputs = [numbers(&shapes[0], 3), numbers(&shapes[1], 8)];
        let mut args: Vec<Arg> = inputs.iter().map(|c| Arg::Tensor(Tensor::from_constant(c))).collect();
        args.push(Arg::Tensor(Tensor::zeros(DType::F32, &shapes[2])));
        run(&f, &mut args).expect("it runs");
        let mut budget = Budget { steps: 1 << 10, ..Budget::default() };
        let made = product(&f, &inputs, &shapes[2], &mut budget).expect("a product");
        assert_eq!(made.bytes(), args[2].tensor().expect("a tensor").data);
        assert_eq!(budget.steps, (1 << 10) - (b * j * i * k * l) as u64 / IN_A_STEP);
        budget.steps = 10;
        assert!(product(&f, &inputs, &shapes[2], &mut budget).is_none(), "more than there is time for");
        assert_eq!(budget.steps, 10);
    }
}
