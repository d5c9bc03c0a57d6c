//! Einstein summation.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
OpDecl {
        name: "einsum",
        doc: "Einstein summation over a tuple of tensors: labels left out of the result are summed, `...` stands for broadcast dims, without `->` the labels that occur once are the result in alphabetical order. Source: NumPy `einsum`, TVM `topi.einsum`.",
        params: &[operand("operands"), attr("subscripts", Default::Required)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 4,
    },
];
