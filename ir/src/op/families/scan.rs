//! Running sums and products.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "cumsum",
        "cumsum",
        &[
            operand("data"),
            attr("axis", Default::None),
            attr("dtype", Default::None),
            attr("exclusive", Default::Bool(false)),
        ],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "cumprod",
        "cumprod",
        &[
            operand("data"),
            attr("axis", Default::None),
            attr("dtype", Default::None),
            attr("exclusive", Default::Bool(false)),
        ],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
