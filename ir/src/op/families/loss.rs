//! Losses.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
OpDecl {
        name: "nn.cross_entropy_with_logits",
        doc: "`-sum(predictions * labels)`, divided by the batch for 2-d operands.",
        params: &[operand("predictions"), operand("labels")],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
OpDecl {
        name: "nn.nll_loss",
        doc: "Negative log likelihood of the target classes: `predictions` is `(n, c, d..)` or `(c)`, `targets` `(n, d..)` or scalar, `weights` per class; `reduction` is `none`, `sum` or `mean` (weighted).",
        params: &[operand("predictions"), operand("targets"), optional("weights"), attr("reduction", Default::Str("mean")), attr("ignore_index", Default::Int(-100))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
];
