//! Transposed convolution.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
OpDecl {
        name: "nn.conv1d_transpose",
        doc: "1-d transposed convolution: the gradient of the convolution with respect to its data, `out = (in - 1) * stride - begin - end + dilation * (kernel - 1) + 1 + output_padding`; kernel `I` is the input channel, `O` the output channel of a group.",
        params: &[operand("data"), operand("weight"), attr("strides", Default::Ints(&[1])), attr("padding", Default::Ints(&[0, 0])), attr("output_padding", Default::Ints(&[0])), attr("dilation", Default::Ints(&[1])), attr("groups", Default::Int(1)), attr("data_layout", Default::Str("NCW")), attr("kernel_layout", Default::Str("IOW")), attr("out_layout", Default::None), attr("out_dtype", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 4,
    },
OpDecl {
        name: "nn.conv2d_transpose",
        doc: "2-d transposed convolution: the gradient of the convolution with respect to its data, `out = (in - 1) * stride - begin - end + dilation * (kernel - 1) + 1 + output_padding`; kernel `I` is the input channel, `O` the output channel of a group.",
        params: &[operand("data"), operand("weight"), attr("strides", Default::Ints(&[1, 1])), attr("padding", Default::Ints(&[0, 0, 0, 0])), attr("output_padding", Default::Ints(&[0, 0])), attr("dilation", Default::Ints(&[1, 1])), attr("groups", Default::Int(1)), attr("data_layout", Default::Str("NCHW")), attr("kernel_layout", Default::Str("IOHW")), attr("out_layout", Default::None), attr("out_dtype", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 4,
    },
OpDecl {
        name: "nn.conv3d_transpose",
        doc: "3-d transposed convolution: the gradient of the convolution with respect to its data, `out = (in - 1) * stride - begin - end + dilation * (kernel - 1) + 1 + output_padding`; kernel `I` is the input channel, `O` the output channel of a group.",
        params: &[operand("data"), operand("weight"), attr("strides", Default::Ints(&[1, 1, 1])), attr("padding", Default::Ints(&[0, 0, 0, 0, 0, 0])), attr("output_padding", Default::Ints(&[0, 0, 0])), attr("dilation", Default::Ints(&[1, 1, 1])), attr("groups", Default::Int(1)), attr("data_layout", Default::Str("NCDHW")), attr("kernel_layout", Default::Str("IODHW")), attr("out_layout", Default::None), attr("out_dtype", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 4,
    },
];
