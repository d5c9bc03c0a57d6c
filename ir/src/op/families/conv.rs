//! Convolution.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
OpDecl {
        name: "nn.conv1d",
        doc: "1-d convolution with `strides`, `padding` (one number, one per dim or begins then ends), `dilation` and `groups`; any layout of `data_layout`, `kernel_layout`, `out_layout`. Sums in `out_dtype` (default: the dtype of the data).",
        params: &[operand("data"), operand("weight"), attr("strides", Default::Ints(&[1])), attr("padding", Default::Ints(&[0, 0])), attr("dilation", Default::Ints(&[1])), attr("groups", Default::Int(1)), attr("data_layout", Default::Str("NCW")), attr("kernel_layout", Default::Str("OIW")), attr("out_layout", Default::None), attr("out_dtype", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 4,
    },
OpDecl {
        name: "nn.conv2d",
        doc: "2-d convolution with `strides`, `padding` (one number, one per dim or begins then ends), `dilation` and `groups`; any layout of `data_layout`, `kernel_layout`, `out_layout`. Sums in `out_dtype` (default: the dtype of the data).",
        params: &[operand("data"), operand("weight"), attr("strides", Default::Ints(&[1, 1])), attr("padding", Default::Ints(&[0, 0, 0, 0])), attr("dilation", Default::Ints(&[1, 1])), attr("groups", Default::Int(1)), attr("data_layout", Default::Str("NCHW")), attr("kernel_layout", Default::Str("OIHW")), attr("out_layout", Default::None), attr("out_dtype", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 4,
    },
OpDecl {
        name: "nn.conv3d",
        doc: "3-d convolution with `strides`, `padding` (one number, one per dim or begins then ends), `dilation` and `groups`; any layout of `data_layout`, `kernel_layout`, `out_layout`. Sums in `out_dtype` (default: the dtype of the data).",
        params: &[operand("data"), operand("weight"), attr("strides", Default::Ints(&[1, 1, 1])), attr("padding", Default::Ints(&[0, 0, 0, 0, 0, 0])), attr("dilation", Default::Ints(&[1, 1, 1])), attr("groups", Default::Int(1)), attr("data_layout", Default::Str("NCDHW")), attr("kernel_layout", Default::Str("OIDHW")), attr("out_layout", Default::None), attr("out_dtype", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 4,
    },
];
