//! Suppression of overlapping boxes.

use super::{bind, cell, each, local, set};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::wide;
use crate::op::families::heap::{self, Heap};
use crate::op::families::rules;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::{Buffer, PrimFunc, Stmt};

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
        let zero = || PrimExpr::zero(f);
        let overlap = |b: &PrimExpr, i: &PrimExpr, j: &PrimExpr| {
            let mut both = PrimExpr::one(f);
            let mut areas = [PrimExpr::one(f), PrimExpr::one(f)];
            for d in 0..2 {
                let (ai, bi) = side(b, i, d);
                let (aj, bj) = side(b, j, d);
                both = both * (bi.clone().min(bj.clone()) - ai.clone().max(aj.clone())).max(zero());
                areas[0] = areas[0].clone() * (bi - ai);
                areas[1] = areas[1].clone() * (bj - aj);
            }
            let [a, c] = areas;
            let all = a + c - both.clone();
            all.clone().gt(zero()).select(both / all, zero())
        };
        let limit = only(max_boxes).cast(DType::I64);
        let body = each(&batches, "b", |b| {
            each(&classes, "c", |c| {
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
                    let keep = Stmt::seq(vec![heap.put(left.clone(), i.clone()), set(&state, 2, left.clone() + 1)]);
                    Stmt::if_then(good, keep)
                });
                let place = |j: i64| vec![count.clone(), PrimExpr::i64(j)];
                let consider = |best: &PrimExpr| {
                    let other = y.at([count.clone() - taken.clone() + compared.clone(), PrimExpr::i64(2)]);
                    let compare = bind("other", other, |other| {
                        let over = overlap(b, other, best).gt(wide(only(iou)).cast(f));
                        Stmt::seq(vec![Stmt::if_then(over, set(&state, 4, 1)), set(&state, 3, compared.clone() + 1)])
                    });
                    let open = compared.clone().lt(taken.clone()).and(hit.clone().eq(0));
                    let take = Stmt::seq(vec![
                        Stmt::store(&y, place(0), b.clone()),
                        Stmt::store(&y, place(1), c.clone()),
                        Stmt::store(&y, place(2), best.clone()),
                        set(&state, 0, count.clone() + 1),
                        set(&state, 1, taken.clone() + 1),
                    ]);
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
                    Stmt::seq([shrink, vec![consider(best)]].concat())
                });
                let more = taken.clone().lt(limit.clone()).and(left.clone().gt(0));
                Stmt::seq(vec![
                    set(&state, 1, 0),
                    set(&state, 2, 0),
                    find,
                    heap.build(left.clone()),
                    Stmt::while_loop(more, next),
                ])
            })
        });
        let body = Stmt::seq(vec![set(&state, 0, 0), body, set(&dims, 0, cell(&state, 0)), set(&dims, 1, 3)]);
        local(&state, bind("nothing", PrimExpr::i64(0), |_| body))
    });
    Ok(k.finish(&[y, dims]))
}
