//! Slices and their inverses.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "strided_slice",
        "strided_slice",
        &[
            operand("x"),
            operand("axes"),
            operand("begin"),
            operand("end"),
            optional("strides"),
            attr("assume_inbound", Default::Bool(false)),
        ],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "dynamic_strided_slice",
        "dynamic_strided_slice",
        &[operand("x"), operand("begin"), operand("end"), operand("strides")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "slice_scatter",
        "slice_scatter",
        &[
            operand("input_tensor"),
            operand("src"),
            operand("start"),
            operand("end"),
            operand("step"),
            attr("axis", Default::Int(0)),
        ],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
