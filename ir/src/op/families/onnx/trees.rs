//! Ensembles of decision trees.

use super::{cell, each, local, set};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, wide};
use crate::op::families::rules;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::StructInfo;
use crate::tir::{Buffer, PrimFunc, Stmt};

pub static OPS: &[OpDecl] = &[OpDecl::pure(
    "onnx.trees",
    "Walks trees from `roots` for each row of `x (n, f)` and joins the weights of the leaves reached (`sum`, `min` or `max`) into `(n, targets)`. `nodes (m, 6)` holds per node: test (0 `<=`, 1 `<`, 2 `>=`, 3 `>`, 4 `==`, 5 `!=`, 6 member, 7 leaf), feature, the nodes where it holds and where not, first and number of its leaf entries or members, and whether NaN passes comes with `missing`; `splits (m)`, `members`, `leaf_targets` and `leaf_weights` go with them. Source: ONNX-ML `TreeEnsemble`.",
    &[
        operand("x"),
        operand("roots"),
        operand("nodes"),
        operand("splits"),
        operand("members"),
        operand("missing"),
        operand("leaf_targets"),
        operand("leaf_weights"),
        attr("targets", Default::Int(1)),
        attr("join", Default::Str("sum")),
    ],
    infer,
    Compute::Kernel(compute),
)
.ulp(8)];

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, w) = (rules::tensor(cx, 0)?, rules::tensor(cx, 7)?);
    rules::require_ndim(cx, 0, 2)?;
    let targets = cx.int("targets")?;
    let dims = x.known_dims().map(|d| vec![d[0].clone(), PrimExpr::i64(targets)]);
    Ok(StructInfo::Tensor(x.with_dims(dims, Some(2)).with_dtype(w.dtype)))
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let [x, roots, nodes, splits, members, missing, targets, weights] = match inputs.as_slice() {
        [a, b, c, d, e, f, g, h] => [a, b, c, d, e, f, g, h],
        _ => return Err(cx.error("takes eight tensors")),
    };
    let out = cx.result()?;
    let join = cx.attrs.str("join").unwrap_or("sum");
    let real = splits.dtype();
    let acc = out.dtype;
    let width = out.dims[1].clone();
    let y = k.buffer("trees", out.dims, acc);
    // State: the node, the verdict of its test.
    let state = Buffer::new("state", vec![PrimExpr::i64(2)], DType::I64);
    k.rows("walk", &out.dims[..1], |row| {
        let n = &row[0];
        let field = |i: &PrimExpr, f: i64| nodes.at([i.clone(), PrimExpr::i64(f)]);
        let node = cell(&state, 0);
        let at = |t: PrimExpr| vec![n.clone(), t];
        let begin = match join {
            "min" => PrimExpr::max_value(acc),
            "max" => PrimExpr::min_value(acc),
            _ => PrimExpr::zero(acc),
        };
        let clear = each(&width, "t", |t| Stmt::store(&y, at(t.clone()), begin));
        let value = wide(x.at([n.clone(), field(&node, 1).max(0).min(x.shape[1].clone() - 1)])).cast(real);
        let split = cell(splits, node.clone());
        let yes = |c: PrimExpr| c.select(PrimExpr::i64(1), PrimExpr::i64(0));
        let test = field(&node, 0);
        let compare = [
            value.clone().le(split.clone()),
            value.clone().lt(split.clone()),
            value.clone().ge(split.clone()),
            value.clone().gt(split.clone()),
            value.clone().eq(split.clone()),
            value.clone().ne(split),
        ];
        let mut verdict = PrimExpr::i64(0);
        for (i, c) in compare.into_iter().enumerate() {
            verdict = test.clone().eq(i as i64).select(yes(c), verdict);
        }
        let search = each(&field(&node, 5), "m", |m| {
            let hit = cell(members, field(&node, 4) + m.clone()).eq(value.clone());
            Stmt::if_then(hit, set(&state, 1, 1))
        });
        let absent = value.call1(Intrin::IsNan).and(cell(missing, node.clone()).ne(0));
        let next = cell(&state, 1).ne(0).select(field(&node, 2), field(&node, 3));
        let step = Stmt::seq(vec![
            set(&state, 1, verdict),
            Stmt::if_then(test.clone().eq(6), search),
            Stmt::if_then(absent, set(&state, 1, 1)),
            set(&state, 0, next),
        ]);
        let leaves = each(&field(&node, 5), "e", |e| {
            let entry = field(&node, 4) + e.clone();
            let to = at(cell(targets, entry.clone()));
            let w = cell(weights, entry);
            let old = y.at(to.clone());
            let new = match join {
                "min" => old.min(w),
                "max" => old.max(w),
                _ => old + w,
            };
            Stmt::store(&y, to, convert(new, acc))
        });
        let walk = each(&roots.shape[0], "r", |r| {
            Stmt::seq(vec![set(&state, 0, cell(roots, r.clone())), Stmt::while_loop(test.clone().ne(7), step), leaves])
        });
        local(&state, Stmt::seq(vec![clear, walk]))
    });
    Ok(k.finish(&[y]))
}
