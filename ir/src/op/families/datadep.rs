//! Results whose shape depends on the data.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "unique",
        "unique",
        &[
            operand("x"),
            optional("sorted"),
            optional("return_index"),
            optional("return_inverse"),
            optional("return_counts"),
            optional("axis"),
        ],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure("nonzero", "nonzero", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
