//! Resizing of images and volumes.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
OpDecl {
        name: "image.resize2d",
        doc: "Resizes the 2 spatial dims to `size` by `nearest_neighbor`, `linear` or `cubic` interpolation. Source: ONNX `Resize`, TVM `topi.image.resize2d`.",
        params: &[operand("data"), operand("size"), attr("roi", Default::None), attr("layout", Default::Str("NCHW")), attr("method", Default::Str("linear")), attr("coordinate_transformation_mode", Default::Str("half_pixel")), attr("rounding_method", Default::Str("round")), attr("cubic_alpha", Default::Float(-0.75)), attr("cubic_exclude", Default::Int(0)), attr("extrapolation_value", Default::Float(0.0)), attr("out_dtype", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
OpDecl {
        name: "image.resize3d",
        doc: "Resizes the 3 spatial dims to `size` by `nearest_neighbor`, `linear` or `cubic` interpolation. Source: ONNX `Resize`, TVM `topi.image.resize3d`.",
        params: &[operand("data"), operand("size"), attr("roi", Default::None), attr("layout", Default::Str("NCDHW")), attr("method", Default::Str("linear")), attr("coordinate_transformation_mode", Default::Str("half_pixel")), attr("rounding_method", Default::Str("")), attr("cubic_alpha", Default::Float(-0.75)), attr("cubic_exclude", Default::Int(0)), attr("extrapolation_value", Default::Float(0.0)), attr("out_dtype", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
];
