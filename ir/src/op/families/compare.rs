//! Elementwise comparisons.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure("equal", "equal", &[operand("x1"), operand("x2")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "not_equal",
        "not_equal",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure("less", "less", &[operand("x1"), operand("x2")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "less_equal",
        "less_equal",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure("greater", "greater", &[operand("x1"), operand("x2")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "greater_equal",
        "greater_equal",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
