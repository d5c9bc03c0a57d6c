//! Elementwise arithmetic and bit operations of two tensors.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure("add", "add", &[operand("x1"), operand("x2")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("subtract", "subtract", &[operand("x1"), operand("x2")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("multiply", "multiply", &[operand("x1"), operand("x2")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("divide", "divide", &[operand("x1"), operand("x2")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "floor_divide",
        "floor_divide",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "floor_mod",
        "floor_mod",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure("mod", "mod", &[operand("x1"), operand("x2")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("power", "power", &[operand("x1"), operand("x2")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("atan2", "atan2", &[operand("x1"), operand("x2")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("maximum", "maximum", &[operand("x1"), operand("x2")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("minimum", "minimum", &[operand("x1"), operand("x2")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "log_add_exp",
        "log_add_exp",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "bitwise_and",
        "bitwise_and",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "bitwise_or",
        "bitwise_or",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "bitwise_xor",
        "bitwise_xor",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "left_shift",
        "left_shift",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "right_shift",
        "right_shift",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "logical_and",
        "logical_and",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "logical_or",
        "logical_or",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "logical_xor",
        "logical_xor",
        &[operand("x1"), operand("x2")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "ewise_fma",
        "`x1 * x2 + x3`.",
        &[operand("x1"), operand("x2"), operand("x3")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
