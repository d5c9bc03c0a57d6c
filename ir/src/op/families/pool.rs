//! Pooling over windows.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
OpDecl {
        name: "nn.max_pool1d",
        doc: "1-d maximum over windows of `pool_size`; padding never wins. `ceil_mode` rounds the output dims up.",
        params: &[operand("data"), attr("pool_size", Default::Ints(&[1])), attr("strides", Default::Ints(&[1])), attr("padding", Default::Ints(&[0, 0])), attr("dilation", Default::Ints(&[1])), attr("ceil_mode", Default::Bool(false)), attr("count_include_pad", Default::Bool(false)), attr("layout", Default::Str("NCW")), attr("out_layout", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 0,
    },
OpDecl {
        name: "nn.max_pool2d",
        doc: "2-d maximum over windows of `pool_size`; padding never wins. `ceil_mode` rounds the output dims up.",
        params: &[operand("data"), attr("pool_size", Default::Ints(&[1, 1])), attr("strides", Default::Ints(&[1, 1])), attr("padding", Default::Ints(&[0, 0, 0, 0])), attr("dilation", Default::Ints(&[1, 1])), attr("ceil_mode", Default::Bool(false)), attr("count_include_pad", Default::Bool(false)), attr("layout", Default::Str("NCHW")), attr("out_layout", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 0,
    },
OpDecl {
        name: "nn.max_pool3d",
        doc: "3-d maximum over windows of `pool_size`; padding never wins. `ceil_mode` rounds the output dims up.",
        params: &[operand("data"), attr("pool_size", Default::Ints(&[1, 1, 1])), attr("strides", Default::Ints(&[1, 1, 1])), attr("padding", Default::Ints(&[0, 0, 0, 0, 0, 0])), attr("dilation", Default::Ints(&[1, 1, 1])), attr("ceil_mode", Default::Bool(false)), attr("count_include_pad", Default::Bool(false)), attr("layout", Default::Str("NCDHW")), attr("out_layout", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 0,
    },
OpDecl {
        name: "nn.avg_pool1d",
        doc: "1-d mean over windows of `pool_size`; `count_include_pad` divides by the size of the window with its padding, else by the number of elements inside the input.",
        params: &[operand("data"), attr("pool_size", Default::Ints(&[1])), attr("strides", Default::Ints(&[1])), attr("padding", Default::Ints(&[0, 0])), attr("dilation", Default::Ints(&[1])), attr("ceil_mode", Default::Bool(false)), attr("count_include_pad", Default::Bool(true)), attr("layout", Default::Str("NCW")), attr("out_layout", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 2,
    },
OpDecl {
        name: "nn.avg_pool2d",
        doc: "2-d mean over windows of `pool_size`; `count_include_pad` divides by the size of the window with its padding, else by the number of elements inside the input.",
        params: &[operand("data"), attr("pool_size", Default::Ints(&[1, 1])), attr("strides", Default::Ints(&[1, 1])), attr("padding", Default::Ints(&[0, 0, 0, 0])), attr("dilation", Default::Ints(&[1, 1])), attr("ceil_mode", Default::Bool(false)), attr("count_include_pad", Default::Bool(false)), attr("layout", Default::Str("NCHW")), attr("out_layout", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 2,
    },
OpDecl {
        name: "nn.avg_pool3d",
        doc: "3-d mean over windows of `pool_size`; `count_include_pad` divides by the size of the window with its padding, else by the number of elements inside the input.",
        params: &[operand("data"), attr("pool_size", Default::Ints(&[1, 1, 1])), attr("strides", Default::Ints(&[1, 1, 1])), attr("padding", Default::Ints(&[0, 0, 0, 0, 0, 0])), attr("dilation", Default::Ints(&[1, 1, 1])), attr("ceil_mode", Default::Bool(false)), attr("count_include_pad", Default::Bool(true)), attr("layout", Default::Str("NCDHW")), attr("out_layout", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 2,
    },
];
