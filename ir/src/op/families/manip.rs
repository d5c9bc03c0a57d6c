//! Shape manipulation and data movement.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure("reshape", "reshape", &[operand("x"), operand("shape")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure("flatten", "flatten", &[operand("x")], later, Compute::Unsupported("no kernel yet")),
    OpDecl::pure(
        "nn.batch_flatten",
        "nn.batch_flatten",
        &[operand("data")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "expand_dims",
        "expand_dims",
        &[operand("x"), attr("axis", Default::Required)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "squeeze",
        "squeeze",
        &[operand("x"), attr("axis", Default::None)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "permute_dims",
        "permute_dims",
        &[operand("x"), attr("axes", Default::None)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "broadcast_to",
        "broadcast_to",
        &[operand("x"), operand("shape")],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "concat",
        "concat",
        &[operand("tensors"), attr("axis", Default::Int(0))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "split",
        "split",
        &[operand("x"), attr("indices_or_sections", Default::Required), attr("axis", Default::Int(0))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "stack",
        "stack",
        &[operand("tensors"), attr("axis", Default::Int(0))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "tile",
        "tile",
        &[operand("data"), attr("repeats", Default::Required)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "repeat",
        "repeat",
        &[operand("data"), attr("repeats", Default::Required), attr("axis", Default::None)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "flip",
        "flip",
        &[operand("data"), attr("axis", Default::Required)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "layout_transform",
        "layout_transform",
        &[operand("x"), attr("index_map", Default::Required), attr("pad_value", Default::None)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "nn.pad",
        "nn.pad",
        &[
            operand("data"),
            attr("pad_width", Default::Required),
            attr("pad_mode", Default::Str("constant")),
            attr("pad_value", Default::Float(0.0)),
        ],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "nn.pixel_shuffle",
        "nn.pixel_shuffle",
        &[operand("data"), attr("upscale_factor", Default::Required)],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "meshgrid",
        "meshgrid",
        &[operand("tensors"), attr("indexing", Default::Str("ij"))],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
    OpDecl::pure(
        "reverse_sequence",
        "reverse_sequence",
        &[
            operand("data"),
            operand("seq_lengths"),
            attr("seq_axis", Default::Int(1)),
            attr("batch_axis", Default::Int(0)),
        ],
        later,
        Compute::Unsupported("no kernel yet"),
    ),
];

fn later(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule", cx.op.name)))
}
