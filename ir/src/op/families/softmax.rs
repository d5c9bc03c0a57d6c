//! Softmax and its logarithm.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
    OpDecl {
        name: "nn.softmax",
        doc: "`exp(x - max) / sum(exp(x - max))` along `axis`.",
        params: &[operand("data"), attr("axis", Default::Int(-1))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
    OpDecl {
        name: "nn.log_softmax",
        doc: "`x - max - log(sum(exp(x - max)))` along `axis`.",
        params: &[operand("data"), attr("axis", Default::Int(-1))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
];
