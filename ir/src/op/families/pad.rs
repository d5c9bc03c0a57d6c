//! Padding and layers that only move or mask elements.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
OpDecl {
        name: "nn.pad",
        doc: "Pads each dim with `pad_width` (before and after, pairwise): `constant`, `reflect`, `replicate` or `circular`.",
        params: &[operand("data"), attr("pad_width", Default::Required), attr("pad_mode", Default::Str("constant")), attr("pad_value", Default::Float(0.0))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 0,
    },
OpDecl {
        name: "nn.pixel_shuffle",
        doc: "`(.., c * r * r, h, w) -> (.., c, h * r, w * r)`.",
        params: &[operand("data"), attr("upscale_factor", Default::Required)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 0,
    },
OpDecl {
        name: "nn.dropout",
        doc: "At inference the identity: returns the data and a mask of ones.",
        params: &[operand("data"), attr("rate", Default::Float(0.5))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 0,
    },
OpDecl {
        name: "nn.prelu",
        doc: "`x > 0 ? x : x * alpha` with one `alpha` per entry of `axis`.",
        params: &[operand("data"), operand("alpha"), attr("axis", Default::Int(1))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 0,
    },
OpDecl {
        name: "ewise_fma",
        doc: "`x1 * x2 + x3`, elementwise.",
        params: &[operand("x1"), operand("x2"), operand("x3")],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 1,
    },
];
