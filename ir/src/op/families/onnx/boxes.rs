//! Suppression of overlapping boxes.

use super::{bind, cell, each, local, set};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::wide;
use crate::op::families::heap::{self, Heap};
use crate::op::families::rules;
use crate::op::*;
use crate::prim::{PrimExpr, Var};
use crate::relax::StructInfo;
use crate::tir::{Buffer, KernelBuilder, PrimFunc, Reducer, Stmt};

pub static OPS: &[OpDecl] = &[OpDecl::pure(
    "onnx.nms",
    "The boxes `(b, n, 4)` that stay, per batch and class of `scores (b, c, n)`, best first: int64 rows `(batch, class, box)`. Of each class at most `max_boxes` that overlap by no more than `iou` and score above `threshold` (each a tensor of one element). `center` boxes are `(x, y, width, height)`, others two corners `(y, x, y, x)`. Source: ONNX `NonMaxSuppression`.",
    &[
        operand("boxes"),
        operand("scores"),
        operand("max_boxes"),
        operand("iou"),
        operand("threshold"),
        attr("center", Default::Bool(false)),
    ],
    infer,
    Compute::DataDependent(compute),
)];

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    rules::require_ndim(cx, 0, 3)?;
    rules::require_ndim(cx, 1, 3)?;
    Ok(rules::unknown(Some(2), Some(DType::I64)))
}

/// Boxes that are compared at a time.
const TOGETHER: i64 = 32;
/// What is kept of each box that was taken, in rows: lower corner, upper corner, area.
const KEPT: usize = 5;

/// What overlaps of two boxes, and what both cover.
fn overlap(a: &[PrimExpr], b: &[PrimExpr]) -> (PrimExpr, PrimExpr) {
    let side = |d: usize| {
        let (low, high) = (a[d].clone().max(b[d].clone()), a[d + 2].clone().min(b[d + 2].clone()));
        (high - low).max(PrimExpr::zero(DType::F32))
    };
    let both = side(0) * side(1);
    let all = a[4].clone() + b[4].clone() - both.clone();
    (both, all)
}

/// Values that are computed once.
fn bind_all(name: &str, values: Vec<PrimExpr>, body: impl FnOnce(&[PrimExpr]) -> Stmt) -> Stmt {
    let vars: Vec<Var> = values.iter().map(|v| Var::new(name, v.dtype())).collect();
    let bound: Vec<PrimExpr> = vars.iter().map(Var::expr).collect();
    let body = body(&bound);
    vars.iter().zip(values).rev().fold(body, |s, (v, x)| Stmt::let_in(v, x, s))
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let [boxes, scores, max_boxes, iou, threshold] = match inputs.as_slice() {
        [a, b, c, d, e] => [a, b, c, d, e],
        _ => return Err(cx.error("takes five tensors")),
    };
    let center = cx.attrs.bool("center").unwrap_or(false);
    let (batches, classes, n) = (scores.shape[0].clone(), scores.shape[1].clone(), scores.shape[2].clone());
    let only = |b: &Buffer| b.at(vec![PrimExpr::i64(0); b.ndim()]);
    let bound = [batches.clone() * classes.clone() * n.clone(), PrimExpr::i64(3)];
    let y = k.buffer("selected", &bound, DType::I64);
    let dims = k.buffer("dims", &[PrimExpr::i64(2)], DType::I64);
    let out = k.buffer("out", std::slice::from_ref(&n), DType::I64);
    let f = DType::F32;
    let kept = k.buffer("kept", &[PrimExpr::i64(KEPT as i64), n.clone() + TOGETHER], f);
    // State: number of rows, of rows of this class, of its boxes that are left, of those of its rows that the best one of
    // them was compared to, whether it overlaps one; then the heap's.
    let state = Buffer::new("state", vec![PrimExpr::i64(5 + heap::CELLS)], DType::I64);
    k.rows("nms", &[], |_| {
        let [count, taken, left, compared, hit] = [0, 1, 2, 3, 4].map(|i| cell(&state, i));
        let score =
            |b: &PrimExpr, c: &PrimExpr, i: &PrimExpr| wide(scores.at([b.clone(), c.clone(), i.clone()])).cast(f);
        // Corners of a box: lower and upper, in two dims.
        let side = |b: &PrimExpr, i: &PrimExpr, d: i64| -> (PrimExpr, PrimExpr) {
            let v = |j: i64| wide(boxes.at([b.clone(), i.clone(), PrimExpr::i64(j)])).cast(f);
            if center {
                let half = v(d + 2) / PrimExpr::float(f, 2.0);
                (v(d) - half.clone(), v(d) + half)
            } else {
                (v(d).min(v(d + 2)), v(d).max(v(d + 2)))
            }
        };
        let measures = |b: &PrimExpr, i: &PrimExpr| {
            let [(low, high), (left, right)] = [side(b, i, 0), side(b, i, 1)];
            let area = (high.clone() - low.clone()) * (right.clone() - left.clone());
            vec![low, left, high, right, area]
        };
        let keep = |at: &PrimExpr, values: &[PrimExpr]| {
            let store =
                |(r, v): (usize, &PrimExpr)| Stmt::store(&kept, vec![PrimExpr::i64(r as i64), at.clone()], v.clone());
            Stmt::seq(values.iter().enumerate().map(store).collect())
        };
        let box_at = |at: &PrimExpr| -> Vec<PrimExpr> {
            (0..KEPT as i64).map(|r| kept.at([PrimExpr::i64(r), at.clone()])).collect()
        };
        // Boxes that overlap none.
        let nothing = || {
            let (least, most) = (PrimExpr::float(f, f64::NEG_INFINITY), PrimExpr::float(f, f64::INFINITY));
            [most.clone(), most, least.clone(), least, PrimExpr::zero(f)]
        };
        // `near` is a little less than `iou`: only what overlaps by more of it is divided.
        let suppress = |own: &[PrimExpr], first: &PrimExpr, iou: &PrimExpr, near: &PrimExpr| {
            let mut close = KernelBuilder::new("close");
            let most = Reducer { init: PrimExpr::zero(f), combine: &|a, b| a.max(b) };
            let found = close.reduce("close", &[], f, &[PrimExpr::i64(TOGETHER)], most, |_, j| {
                let (both, all) = overlap(&box_at(&(first.clone() + j[0].clone())), own);
                both.le(near.clone() * all).select(PrimExpr::zero(f), PrimExpr::one(f))
            });
            let some = (taken.clone() - first.clone()).min(PrimExpr::i64(TOGETHER));
            let check = each(&some, "j", |j| {
                let (both, all) = overlap(&box_at(&(first.clone() + j.clone())), own);
                let part = all.clone().gt(PrimExpr::zero(f)).select(both / all, PrimExpr::zero(f));
                Stmt::if_then(part.gt(iou.clone()), set(&state, 4, 1))
            });
            close.push(Stmt::if_then(found.at([]).gt(PrimExpr::zero(f)), check));
            close.into_block()
        };
        let limit = only(max_boxes).cast(DType::I64);
        let class = |b: &PrimExpr, c: &PrimExpr, iou: &PrimExpr, near: &PrimExpr| {
            let at = |i: PrimExpr| vec![i];
            // The best score, and of equal ones the first.
            let above = |i: &PrimExpr, j: &PrimExpr| {
                let (x, y) = (score(b, c, i), score(b, c, j));
                let equal = x.clone().eq(y.clone()).select(i.clone().lt(j.clone()), PrimExpr::bool(false));
                x.gt(y).select(PrimExpr::bool(true), equal)
            };
            let heap = Heap { items: &out, at: &at, above: &above, state: &state, cell: 5 };
            let find = each(&n, "i", |i| {
                let good = score(b, c, i).gt(wide(only(threshold)).cast(f));
                let put = Stmt::seq(vec![heap.put(left.clone(), i.clone()), set(&state, 2, left.clone() + 1)]);
                Stmt::if_then(good, put)
            });
            let place = |j: i64| vec![count.clone(), PrimExpr::i64(j)];
            let consider = |best: &PrimExpr, own: &[PrimExpr]| {
                let compare = bind("first", compared.clone(), |first| {
                    Stmt::seq(vec![suppress(own, first, iou, near), set(&state, 3, first.clone() + TOGETHER)])
                });
                let open = compared.clone().lt(taken.clone()).and(hit.clone().eq(0));
                let take = bind("row", taken.clone(), |row| {
                    let fresh = each(&PrimExpr::i64(TOGETHER), "j", |j| keep(&(row.clone() + j.clone()), &nothing()));
                    Stmt::seq(vec![
                        Stmt::if_then(row.clone().floor_mod(TOGETHER).eq(0), fresh),
                        keep(row, own),
                        Stmt::store(&y, place(0), b.clone()),
                        Stmt::store(&y, place(1), c.clone()),
                        Stmt::store(&y, place(2), best.clone()),
                        set(&state, 0, count.clone() + 1),
                        set(&state, 1, row.clone() + 1),
                    ])
                });
                Stmt::seq(vec![
                    set(&state, 3, 0),
                    set(&state, 4, 0),
                    Stmt::while_loop(open, compare),
                    Stmt::if_then(hit.clone().eq(0), take),
                ])
            };
            let next = bind("best", heap.item(PrimExpr::i64(0)), |best| {
                let rest = bind("last", heap.item(left.clone()), |last| {
                    heap.sink(PrimExpr::i64(0), left.clone(), last.clone())
                });
                let shrink = vec![set(&state, 2, left.clone() - 1), Stmt::if_then(left.clone().gt(0), rest)];
                let consider = bind_all("own", measures(b, best), |own| consider(best, own));
                Stmt::seq([shrink, vec![consider]].concat())
            });
            let more = taken.clone().lt(limit.clone()).and(left.clone().gt(0));
            Stmt::seq(vec![
                set(&state, 1, 0),
                set(&state, 2, 0),
                find,
                heap.build(left.clone()),
                Stmt::while_loop(more, next),
            ])
        };
        let rows = bind("iou", wide(only(iou)).cast(f), |iou| {
            let some = iou.clone().gt(PrimExpr::float(f, 1e-30));
            let none = iou.clone().lt(PrimExpr::zero(f));
            let other = none.select(PrimExpr::float(f, f64::NEG_INFINITY), PrimExpr::zero(f));
            let near = some.select(iou.clone() * PrimExpr::float(f, 1.0 - 1e-6), other);
            bind("near", near, |near| each(&batches, "b", |b| each(&classes, "c", |c| class(b, c, iou, near))))
        });
        let body = Stmt::seq(vec![set(&state, 0, 0), rows, set(&dims, 0, cell(&state, 0)), set(&dims, 1, 3)]);
        local(&state, bind("nothing", PrimExpr::i64(0), |_| body))
    });
    Ok(k.finish(&[y, dims]))
}
