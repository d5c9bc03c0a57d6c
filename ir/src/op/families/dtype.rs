//! Conversions of the element type.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "astype",
        "conversion",
        &[operand("x"), attr("dtype", Default::Required)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "wrap_param",
        "parameter wrap",
        &[operand("data"), attr("dtype", Default::Str("float32"))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
