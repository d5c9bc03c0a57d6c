//! Quantisation.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
    OpDecl {
        name: "quantize",
        doc: "`clip(round(data / scale) + zero_point)` to `out_dtype`, per tensor or along `axis`.",
        params: &[
            operand("data"),
            operand("scale"),
            operand("zero_point"),
            attr("axis", Default::Int(-1)),
            attr("out_dtype", Default::Str("int8")),
        ],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 0,
    },
    OpDecl {
        name: "dequantize",
        doc: "`(data - zero_point) * scale` in `out_dtype`, per tensor or along `axis`.",
        params: &[
            operand("data"),
            operand("scale"),
            operand("zero_point"),
            attr("axis", Default::Int(-1)),
            attr("out_dtype", Default::Str("float32")),
        ],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 1,
    },
];
