//! Sorting along an axis.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "sort",
        "sort",
        &[operand("x"), attr("axis", Default::Int(-1)), attr("descending", Default::Bool(false))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "argsort",
        "argsort",
        &[
            operand("data"),
            attr("axis", Default::Int(-1)),
            attr("descending", Default::Bool(false)),
            attr("dtype", Default::Str("int32")),
        ],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "topk",
        "topk",
        &[
            operand("data"),
            attr("k", Default::Int(1)),
            attr("axis", Default::Int(-1)),
            attr("ret_type", Default::Str("both")),
            attr("largest", Default::Bool(true)),
            attr("dtype", Default::Str("int32")),
        ],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "multinomial_from_uniform",
        "multinomial_from_uniform",
        &[operand("prob"), operand("uniform_sample"), operand("sample_indices"), attr("dtype", Default::Str("int64"))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
