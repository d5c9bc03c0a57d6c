//! Positions: argmax, argmin, buckets, selection.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "argmax",
        "argmax",
        &[operand("x"), attr("axis", Default::None), attr("keepdims", Default::Bool(false))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "argmin",
        "argmin",
        &[operand("x"), attr("axis", Default::None), attr("keepdims", Default::Bool(false))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "where",
        "where",
        &[operand("condition"), operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "bucketize",
        "bucketize",
        &[
            operand("input_tensor"),
            operand("boundaries"),
            attr("out_int32", Default::Bool(false)),
            attr("right", Default::Bool(false)),
        ],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
