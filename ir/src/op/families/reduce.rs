//! Reductions over axes.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "sum",
        "sum",
        &[operand("x"), attr("axis", Default::None), attr("keepdims", Default::Bool(false))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "prod",
        "prod",
        &[operand("x"), attr("axis", Default::None), attr("keepdims", Default::Bool(false))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "max",
        "max",
        &[operand("x"), attr("axis", Default::None), attr("keepdims", Default::Bool(false))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "min",
        "min",
        &[operand("x"), attr("axis", Default::None), attr("keepdims", Default::Bool(false))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "mean",
        "mean",
        &[operand("x"), attr("axis", Default::None), attr("keepdims", Default::Bool(false))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "variance",
        "variance",
        &[operand("x"), attr("axis", Default::None), attr("keepdims", Default::Bool(false))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "std",
        "std",
        &[operand("x"), attr("axis", Default::None), attr("keepdims", Default::Bool(false))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "median",
        "median",
        &[operand("x"), attr("axis", Default::None), attr("keepdims", Default::Bool(false))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "collapse_sum_like",
        "collapse_sum_like",
        &[operand("data"), operand("collapse_target")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "collapse_sum_to",
        "collapse_sum_to",
        &[operand("data"), operand("shape")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
