//! Gathering and scattering by index tensors.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "take",
        "take",
        &[operand("x"), operand("indices"), attr("axis", Default::None), attr("mode", Default::Str("fast"))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "gather_elements",
        "gather_elements",
        &[operand("data"), operand("indices"), attr("axis", Default::Int(0))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "gather_nd",
        "gather_nd",
        &[operand("data"), operand("indices"), attr("batch_dims", Default::Int(0))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "scatter_elements",
        "scatter_elements",
        &[
            operand("data"),
            operand("indices"),
            operand("updates"),
            attr("axis", Default::Int(0)),
            attr("reduction", Default::Str("update")),
        ],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "scatter_nd",
        "scatter_nd",
        &[operand("data"), operand("indices"), operand("updates"), attr("reduction", Default::Str("update"))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "index_tensor",
        "index_tensor",
        &[operand("data"), operand("indices")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "index_put",
        "index_put",
        &[operand("data"), operand("indices"), operand("values"), attr("accumulate", Default::Bool(false))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "one_hot",
        "one_hot",
        &[
            operand("indices"),
            operand("on_value"),
            operand("off_value"),
            attr("depth", Default::Required),
            attr("axis", Default::Int(-1)),
        ],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
