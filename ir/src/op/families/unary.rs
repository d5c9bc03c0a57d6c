//! Elementwise functions of one tensor.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "abs",
        "`|x|`, elementwise. Any numeric dtype.",
        &[operand("x")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure("acos", "Arc cosine, elementwise.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "acosh",
        "Inverse hyperbolic cosine, elementwise.",
        &[operand("x")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure("asin", "Arc sine, elementwise.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "asinh",
        "Inverse hyperbolic sine, elementwise.",
        &[operand("x")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure("atan", "Arc tangent, elementwise.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "atanh",
        "Inverse hyperbolic tangent, elementwise.",
        &[operand("x")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "bitwise_not",
        "Bitwise complement of integers; logical not of bools.",
        &[operand("x")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "ceil",
        "Smallest integer not below, elementwise; identity on integers.",
        &[operand("x")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure("cos", "Cosine.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("cosh", "Hyperbolic cosine.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("erf", "Gauss error function.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("exp", "e to the power.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("floor", "Largest integer not above.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "isfinite",
        "Neither infinite nor NaN, as bool.",
        &[operand("x")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure("isinf", "Infinite, as bool.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("isnan", "NaN, as bool.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("log", "Natural logarithm.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("logical_not", "Logical not.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("negative", "`-x`.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "round",
        "Nearest integer, half to even.",
        &[operand("x")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure("rsqrt", "`1 / sqrt(x)`.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("sigmoid", "`1 / (1 + exp(-x))`.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "sign",
        "-1, 0 or 1 by the sign; 0 for -0.0.",
        &[operand("x")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure("sin", "Sine.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("sinh", "Hyperbolic sine.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("sqrt", "Square root.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("square", "`x * x`.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("tan", "Tangent.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("tanh", "Hyperbolic tangent.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("trunc", "Rounds towards zero.", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "clip",
        "`min(max(x, min), max)`.",
        &[operand("x"), operand("min"), operand("max")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
