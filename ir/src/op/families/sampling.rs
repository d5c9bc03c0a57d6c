//! Sampling at computed positions.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
    OpDecl {
        name: "image.grid_sample",
        doc: "Samples `data` at the normalised positions of `grid` (-1 and 1 are the borders).",
        params: &[
            operand("data"),
            operand("grid"),
            attr("method", Default::Str("bilinear")),
            attr("layout", Default::Str("NCHW")),
            attr("padding_mode", Default::Str("zeros")),
            attr("align_corners", Default::Bool(false)),
        ],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
    OpDecl {
        name: "image.affine_grid",
        doc: "The grid of normalised positions of an affine map `(n, 2, 3)`: `(n, 2, height, width)`.",
        params: &[operand("data"), operand("size"), attr("align_corners", Default::Bool(true))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 4,
    },
];
