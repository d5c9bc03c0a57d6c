//! Activations of neural networks.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure("nn.relu", "nn.relu", &[operand("data")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "nn.leakyrelu",
        "nn.leakyrelu",
        &[operand("data"), attr("alpha", Default::Float(0.01))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "nn.prelu",
        "nn.prelu",
        &[operand("data"), operand("alpha"), attr("axis", Default::Int(1))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure("nn.gelu", "nn.gelu", &[operand("data")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("nn.gelu_tanh", "nn.gelu_tanh", &[operand("data")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("nn.selu", "nn.selu", &[operand("data")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("nn.silu", "nn.silu", &[operand("data")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "nn.softplus",
        "nn.softplus",
        &[operand("data"), attr("beta", Default::Float(1.0)), attr("threshold", Default::Float(20.0))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "nn.dropout",
        "nn.dropout",
        &[operand("data"), attr("rate", Default::Float(0.5))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
