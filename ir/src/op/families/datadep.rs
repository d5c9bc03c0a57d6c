//! Results whose shape depends on the data.

use super::onnx::distinct::distinct;
use super::sort::merge_sort;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, unflatten, wide, wide_dtype};
use crate::op::*;
use crate::prim::{PrimExpr, Var};
use crate::relax::{StructInfo, TensorInfo};
use crate::tir::{Buffer, PrimFunc, Stmt, StmtKind};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "unique",
        "The distinct elements in ascending order (in that of their first occurrence where `sorted` is false), with, as \
         asked for: the index of the first of each, the position of every element among them, and how often each occurs \
         (int64 vectors). With an axis, distinct slices. Source: TVM `relax.run.unique`.",
        &[
            operand("x"),
            optional("sorted"),
            optional("return_index"),
            optional("return_inverse"),
            optional("return_counts"),
            optional("axis"),
        ],
        infer_unique,
        Compute::DataDependent(unique),
    ),
    OpDecl::pure(
        "nonzero",
        "The indices of the elements that are not zero, in row-major order: int64 of shape (rank of `x`, count).",
        &[operand("x")],
        infer_nonzero,
        Compute::DataDependent(nonzero),
    ),
];

fn flag(value: Option<PrimExpr>) -> bool {
    value.and_then(|v| v.as_int()).is_some_and(|v| v != 0)
}

fn infer_unique(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let axis = cx.scalar(5);
    if let (Some(a), Some(n)) = (axis.as_ref().and_then(PrimExpr::as_int), t.ndim) {
        cx.axis(a, n)?;
    }
    let ndim = if cx.has(5) { t.ndim } else { Some(1) };
    let values = StructInfo::Tensor(t.with_dims(None, ndim));
    let extra = (2..5).filter(|&i| flag(cx.scalar(i))).count();
    if extra == 0 {
        return Ok(values);
    }
    let index = TensorInfo { shape: None, dtype: Some(DType::I64), ndim: Some(1), vdevice: t.vdevice };
    let mut fields = vec![values];
    fields.extend(vec![StructInfo::Tensor(index); extra]);
    Ok(StructInfo::Tuple(fields))
}

/// Sorts with indices, then walks the sorted elements: outputs are the values, what was asked for, and the dims of
/// all of them.
fn unique(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = inputs[0].clone();
    let unsorted = cx.scalar(1).and_then(|s| s.as_int()).is_some_and(|s| s == 0);
    if cx.has(5) && x.ndim() != 1 {
        let axis = cx.scalar(5).and_then(|a| a.as_int());
        let axis = axis.ok_or_else(|| cx.error("the axis must be a literal"))?;
        return distinct(cx, Some(axis), !unsorted, [2, 3, 4].map(|i| flag(cx.scalar(i))));
    }
    let n = PrimExpr::product(&x.shape);
    let d = if x.dtype().is_bool() { DType::U8 } else { wide_dtype(x.dtype()) };
    let sorted = merge_sort(&mut k, &[], &n, d, false, |_, p| convert(wide(x.at(unflatten(p, &x.shape))), d));
    let values = k.buffer("values", std::slice::from_ref(&n), x.dtype());
    let mut extra =
        |asked: usize, name: &str| flag(cx.scalar(asked)).then(|| k.buffer(name, std::slice::from_ref(&n), DType::I64));
    let (index, inverse, counts) = (extra(2, "index"), extra(3, "inverse"), extra(4, "counts"));
    let mut outputs: Vec<Buffer> = vec![values.clone()];
    outputs.extend([&index, &inverse, &counts].into_iter().flatten().cloned());
    let dims = k.buffer("dims", &[PrimExpr::i64(outputs.len() as i64)], DType::I64);
    let whole = outputs.iter().position(|o| Some(o) == inverse.as_ref());
    let count = k.buffer("count", &[PrimExpr::i64(1)], DType::I64);
    let zero = vec![PrimExpr::i64(0)];
    let p = Var::dim("p");
    let key = |i: PrimExpr| sorted.key(&[], i);
    let is_first = p.expr().eq(PrimExpr::i64(0));
    let new = is_first.if_then_else(PrimExpr::bool(true), key(p.expr() - 1).ne(key(p.expr())));
    // In the order of first occurrence: the first of those that are alike, for each element, and its place.
    let line = std::slice::from_ref(&n);
    let own = unsorted.then(|| (k.buffer("first", line, DType::I64), k.buffer("place", line, DType::I64)));
    if let Some((first, place)) = &own {
        let (here, last) = (sorted.index(&[], p.expr()), count.at(zero.clone()));
        k.rows("alike", &[], |_| {
            let open = Stmt::store(&count, zero.clone(), here.clone());
            let note = Stmt::store(first, vec![here.clone()], last.clone());
            Stmt::for_serial(&p, n.clone(), Stmt::seq(vec![Stmt::if_then(new.clone(), open), note]))
        });
        k.rows("distinct", &[], |_| {
            let (i, at) = (p.expr(), last.clone());
            let mut open = vec![
                Stmt::store(place, vec![i.clone()], at.clone()),
                Stmt::store(&values, vec![at.clone()], x.at(unflatten(i.clone(), &x.shape))),
            ];
            open.extend(index.as_ref().map(|b| Stmt::store(b, vec![at.clone()], i.clone())));
            open.extend(counts.as_ref().map(|b| Stmt::store(b, vec![at.clone()], PrimExpr::i64(0))));
            open.push(Stmt::store(&count, zero.clone(), at + 1));
            let its = place.at([first.at([i.clone()])]);
            let mut every = vec![Stmt::if_then(first.at([i.clone()]).eq(i.clone()), Stmt::seq(open))];
            every.extend(inverse.as_ref().map(|b| Stmt::store(b, vec![i], its.clone())));
            every.extend(counts.as_ref().map(|b| Stmt::store(b, vec![its.clone()], b.at([its.clone()]) + 1)));
            let walk = Stmt::for_serial(&p, n.clone(), Stmt::seq(every));
            Stmt::seq(vec![Stmt::store(&count, zero.clone(), PrimExpr::i64(0)), walk])
        });
    } else {
        k.rows("distinct", &[], |_| {
            let at = count.at(zero.clone()) - 1;
            let mut open = vec![
                Stmt::store(&count, zero.clone(), count.at(zero.clone()) + 1),
                Stmt::store(&values, vec![at.clone()], convert(key(p.expr()), x.dtype())),
            ];
            let mut every = vec![];
            if let Some(b) = &index {
                open.push(Stmt::store(b, vec![at.clone()], sorted.index(&[], p.expr())));
            }
            if let Some(b) = &counts {
                open.push(Stmt::store(b, vec![at.clone()], PrimExpr::i64(0)));
                every.push(Stmt::store(b, vec![at.clone()], b.at([at.clone()]) + 1));
            }
            if let Some(b) = &inverse {
                every.push(Stmt::store(b, vec![sorted.index(&[], p.expr())], at.clone()));
            }
            every.insert(0, Stmt::if_then(new.clone(), Stmt::seq(open)));
            let walk = Stmt::for_serial(&p, n.clone(), Stmt::seq(every));
            Stmt::seq(vec![Stmt::store(&count, zero.clone(), PrimExpr::i64(0)), walk])
        });
    }
    k.rows("dims", &[], |_| {
        let length = |i: usize| if Some(i) == whole { n.clone() } else { count.at([PrimExpr::i64(0)]) };
        let at = |i: usize| vec![PrimExpr::i64(i as i64)];
        Stmt::seq((0..outputs.len()).map(|i| Stmt::store(&dims, at(i), length(i))).collect())
    });
    outputs.push(dims);
    Ok(k.finish(&outputs))
}

fn infer_nonzero(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?;
    Ok(StructInfo::Tensor(t.with_dims(None, Some(2)).with_dtype(Some(DType::I64))))
}

/// Counts, then writes: row `d` of the result starts at `d * count`. Whether an element is one of those nobody guesses, so that
/// each is written, and the next one over it where it was none.
fn nonzero(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = inputs[0].clone();
    // A scalar is taken for a vector of one element. Source: TVM `relax.nonzero`.
    let rank = x.ndim().max(1);
    let bound = [PrimExpr::i64(rank as i64), PrimExpr::product(&x.shape)];
    let y = k.buffer("indices", &bound, DType::I64);
    let dims = k.buffer("dims", &[PrimExpr::i64(2)], DType::I64);
    let hit = |i: &[PrimExpr]| convert(wide(x.at(i.to_vec())), DType::BOOL);
    let [zero, one] = [0, 1].map(PrimExpr::i64);
    let count = k.sum("count", &[], DType::I64, &x.shape, |_, i| hit(i).select(one.clone(), zero.clone()));
    k.rows("nonzero", &[], |_| {
        let vars: Vec<Var> = (0..x.ndim()).map(|i| Var::dim(format!("i{i}"))).collect();
        let i: Vec<PrimExpr> = vars.iter().map(Var::expr).collect();
        let nest = |s: Stmt| vars.iter().zip(&x.shape).rev().fold(s, |s, (v, e)| Stmt::for_serial(v, e.clone(), s));
        let state = Buffer::new("state", vec![one.clone()], DType::I64);
        let next = state.at([zero.clone()]);
        let set_next = |value: PrimExpr| Stmt::store(&state, vec![zero.clone()], value);
        let all = Var::dim("all");
        let mut write: Vec<Stmt> = (0..rank)
            .map(|d| {
                let flat = all.expr() * d as i64 + next.clone();
                Stmt::store(&y, unflatten(flat, &bound), i.get(d).cloned().unwrap_or_else(|| zero.clone()))
            })
            .collect();
        write.push(set_next(next.clone() + hit(&i).select(one.clone(), zero.clone())));
        // Behind the last one the next row begins.
        let write = nest(Stmt::if_then(next.clone().lt(all.expr()), Stmt::seq(write)));
        let body = Stmt::seq(vec![
            Stmt::store(&dims, vec![zero.clone()], PrimExpr::i64(rank as i64)),
            Stmt::store(&dims, vec![one.clone()], all.expr()),
            set_next(zero.clone()),
            write,
        ]);
        Stmt::new(StmtKind::Alloc { buffer: state, body: Stmt::let_in(&all, count.at([]), body) })
    });
    Ok(k.finish(&[y, dims]))
}
