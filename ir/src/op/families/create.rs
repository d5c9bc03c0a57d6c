//! Tensors from shapes and scalars, and triangular masks.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "arange",
        "arange",
        &[operand("start"), optional("end"), optional("step"), attr("dtype", Default::None)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "eye",
        "eye",
        &[operand("n"), optional("m"), optional("k"), attr("dtype", Default::Str("float32"))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "eye_like",
        "eye_like",
        &[operand("x"), optional("k"), attr("dtype", Default::None)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "full",
        "full",
        &[operand("shape"), operand("fill_value"), attr("dtype", Default::None)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "full_like",
        "full_like",
        &[operand("x"), operand("fill_value"), attr("dtype", Default::None)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "ones",
        "ones",
        &[operand("shape"), attr("dtype", Default::Required)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "zeros",
        "zeros",
        &[operand("shape"), attr("dtype", Default::Required)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "ones_like",
        "ones_like",
        &[operand("x"), attr("dtype", Default::None)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "zeros_like",
        "zeros_like",
        &[operand("x"), attr("dtype", Default::None)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure("tril", "tril", &[operand("x"), optional("k")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("triu", "triu", &[operand("x"), optional("k")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "hamming_window",
        "hamming_window",
        &[
            operand("window_size"),
            operand("periodic"),
            operand("alpha"),
            operand("beta"),
            attr("dtype", Default::Required),
        ],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
