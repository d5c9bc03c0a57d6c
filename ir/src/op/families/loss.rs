//! Losses.

use crate::diag::Diagnostic;
use crate::op::elem::wide_dtype;
use crate::op::families::rules;
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::{StructInfo, TensorInfo};
use crate::tir::{Buffer, PrimFunc};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "nn.cross_entropy_with_logits",
        "`-sum(predictions * labels)`, divided by the first dim when there is more than one. A scalar tensor.",
        &[operand("predictions"), operand("labels")],
        infer_cross_entropy,
        Compute::Kernel(cross_entropy),
    )
    .ulp(8),
    OpDecl::pure(
        "nn.nll_loss",
        "Negative log likelihood of target classes: `predictions` `(n, c, d..)` or `(c)`, `targets` `(n, d..)` or a scalar tensor, `weights` `(c)` (default: ones). `reduction` is `none`, `sum` or `mean`, which divides by the sum of the weights used; targets equal to `ignore_index` count nothing.",
        &[
            operand("predictions"),
            operand("targets"),
            optional("weights"),
            attr("reduction", Default::Str("mean")),
            attr("ignore_index", Default::Int(-100)),
        ],
        |cx| infer_nll(cx, 0),
        Compute::Kernel(nll_loss),
    )
    .ulp(8),
];

fn infer_cross_entropy(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, y) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?);
    let dtype = cx.same_dtype(&[("predictions", x.dtype), ("labels", y.dtype)])?;
    if let (Some(a), Some(b)) = (x.ndim, y.ndim) {
        if a != b {
            return Err(cx.error(format!("predictions have {a} dims, labels {b}")));
        }
    }
    if let (Some(a), Some(b)) = (x.known_dims(), y.known_dims()) {
        for (a, b) in a.iter().zip(b) {
            cx.require_eq(a, b, || format!("dims differ: predictions {}, labels {}", dim_text(a), dim_text(b)))?;
        }
    }
    Ok(rules::known(vec![], dtype))
}

fn cross_entropy(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (x, out) = (cx.tensor(0)?, cx.result()?);
    let (mut k, inputs) = cx.kernel()?;
    let acc = wide_dtype(out.dtype);
    let sum = k.sum("sum", &[], acc, x.dims, |_, r| inputs[0].at(r).cast(acc) * inputs[1].at(r).cast(acc));
    let y = k.compute("cross_entropy", &[], out.dtype, |i| {
        let total = sum.at(i).neg();
        if x.dims.len() > 1 {
            total / x.dims[0].clone().cast(acc)
        } else {
            total
        }
    });
    Ok(k.finish(&[y]))
}

/// The shape rule of the loss; `first` is the number of the operand `predictions`.
pub fn infer_nll(cx: &mut InferCx, first: usize) -> Result<StructInfo, Diagnostic> {
    let (p, t) = (rules::tensor(cx, first)?, rules::tensor(cx, first + 1)?);
    if first != 0 {
        cx.require_float(first, p.dtype)?;
    }
    cx.require_int(first + 1, t.dtype)?;
    let reduction = cx.attrs.str("reduction").unwrap_or("");
    if !matches!(reduction, "none" | "sum" | "mean") {
        return Err(cx.error(format!("reduction is \"{reduction}\", it must be \"none\", \"sum\" or \"mean\"")));
    }
    if let (Some(a), Some(b)) = (p.ndim, t.ndim) {
        if a == 0 || a != b + 1 {
            return Err(cx.error(format!("predictions have {a} dims, targets {b}: one less is needed")));
        }
    }
    let class = |d: &[PrimExpr]| d[d.len().min(2) - 1].clone();
    if let (Some(pd), Some(td)) = (p.known_dims(), t.known_dims()) {
        let rest = pd.iter().enumerate().filter(|(i, _)| *i != pd.len().min(2) - 1).map(|(_, d)| d);
        for (a, b) in rest.zip(td) {
            cx.require_eq(a, b, || format!("dims differ: predictions {}, targets {}", dim_text(a), dim_text(b)))?;
        }
    }
    if cx.has(first + 2) {
        let w = rules::tensor(cx, first + 2)?;
        rules::require_ndim(cx, first + 2, 1)?;
        cx.same_dtype(&[("predictions", p.dtype), ("weights", w.dtype)])?;
        if let (Some(pd), Some(wd)) = (p.known_dims(), w.known_dims()) {
            let c = class(pd);
            let message = || format!("predictions have {} classes, weights {}", dim_text(&c), dim_text(&wd[0]));
            match first {
                0 => cx.require_eq(&c, &wd[0], message)?,
                // The gradient, as TVM has it, looks up the weights of the classes that there are.
                _ => cx.require(c.clone().le(wd[0].clone()), message)?,
            }
        }
    }
    Ok(match reduction {
        "none" => StructInfo::Tensor(TensorInfo { dtype: p.dtype, ..t }),
        _ => rules::known(vec![], p.dtype),
    })
}

/// The index of class `c` for the target at `at`.
pub fn class_index(at: &[PrimExpr], c: PrimExpr) -> Vec<PrimExpr> {
    let mut index = at.to_vec();
    index.insert(at.len().min(1), c);
    index
}

/// The weight of the class at target `at`: 0 when it is to be ignored.
pub fn weight(cx: &ComputeCx, t: &Buffer, w: Option<&Buffer>, at: &[PrimExpr], acc: crate::DType) -> PrimExpr {
    let target = t.at(at);
    let ignore = PrimExpr::int(target.dtype(), cx.attrs.int("ignore_index").unwrap_or(-100));
    let one = match w {
        Some(w) => w.at([target.clone().cast(crate::DType::I64)]).cast(acc),
        None => PrimExpr::one(acc),
    };
    target.ne(ignore).if_then_else(one, PrimExpr::zero(acc))
}

fn nll_loss(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (targets, out) = (cx.tensor(1)?, cx.result()?);
    let (mut k, inputs) = cx.kernel()?;
    let (p, t, w) = (&inputs[0], &inputs[1], inputs.get(2));
    let acc = wide_dtype(out.dtype);
    let loss = |at: &[PrimExpr]| {
        let target = t.at(at);
        let ignore = PrimExpr::int(target.dtype(), cx.attrs.int("ignore_index").unwrap_or(-100));
        let class = target.clone().cast(crate::DType::I64);
        let value = p.at(class_index(at, class.clone())).cast(acc).neg();
        let value = match w {
            Some(w) => value * w.at([class]).cast(acc),
            None => value,
        };
        target.ne(ignore).if_then_else(value, PrimExpr::zero(acc))
    };
    let y = match cx.attrs.str("reduction") {
        Some("none") => k.compute("nll_loss", out.dims, out.dtype, |i| loss(i)),
        reduction => {
            let sum = k.sum("loss_sum", &[], acc, targets.dims, |_, r| loss(r));
            match reduction {
                Some("sum") => rules::narrow(&mut k, sum, out.dtype),
                _ => {
                    let total = k.sum("weight_sum", &[], acc, targets.dims, |_, r| weight(cx, t, w, r, acc));
                    k.compute("nll_loss", &[], out.dtype, |i| sum.at(i) / total.at(i))
                }
            }
        }
    };
    Ok(k.finish(&[y]))
}
