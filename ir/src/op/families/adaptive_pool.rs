//! Pooling to a given output size.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
OpDecl {
        name: "nn.adaptive_avg_pool1d",
        doc: "1-d mean over windows `[floor(i * in / out), ceil((i + 1) * in / out))`, so that the output has `output_size` (default: the input size).",
        params: &[operand("data"), attr("output_size", Default::None), attr("layout", Default::Str("NCW")), attr("out_layout", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 2,
    },
OpDecl {
        name: "nn.adaptive_avg_pool2d",
        doc: "2-d mean over windows `[floor(i * in / out), ceil((i + 1) * in / out))`, so that the output has `output_size` (default: the input size).",
        params: &[operand("data"), attr("output_size", Default::None), attr("layout", Default::Str("NCHW")), attr("out_layout", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 2,
    },
OpDecl {
        name: "nn.adaptive_avg_pool3d",
        doc: "3-d mean over windows `[floor(i * in / out), ceil((i + 1) * in / out))`, so that the output has `output_size` (default: the input size).",
        params: &[operand("data"), attr("output_size", Default::None), attr("layout", Default::Str("NCDHW")), attr("out_layout", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 2,
    },
];
