//! The operator families, one file each.

use super::OpDecl;

mod activation;
mod adaptive_pool;
mod attention;
mod binary;
mod border;
mod call;
mod compare;
mod conv;
mod conv_transpose;
mod create;
mod datadep;
mod dtype;
mod effect;
mod einsum;
mod grad;
mod heap;
mod image;
mod index;
mod index_map;
mod layout;
mod loss;
mod manip;
mod matmul;
mod memory;
mod nms;
mod norm;
mod onnx;
mod pad;
mod pool;
mod quant;
mod recurrent;
mod reduce;
mod rules;
mod sampling;
mod scan;
mod search;
mod shape;
mod slice;
mod softmax;
pub mod sort;
mod unary;
pub mod view;
mod vision;

/// Families whose operators compute element by element, with broadcasting; those of [`APART`] do not.
pub static ELEMENTWISE: &[&[OpDecl]] = &[unary::OPS, binary::OPS, compare::OPS, dtype::OPS, activation::OPS];

/// What an axis tells more of, and what returns more than one tensor.
pub static APART: &[&str] = &["nn.prelu", "nn.dropout", "wrap_param"];

/// Every family's operators.
pub static ALL: &[&[OpDecl]] = &[
    unary::OPS,
    binary::OPS,
    compare::OPS,
    dtype::OPS,
    activation::OPS,
    create::OPS,
    reduce::OPS,
    scan::OPS,
    search::OPS,
    sort::OPS,
    manip::OPS,
    pad::OPS,
    index::OPS,
    slice::OPS,
    matmul::OPS,
    einsum::OPS,
    conv::OPS,
    conv_transpose::OPS,
    pool::OPS,
    adaptive_pool::OPS,
    norm::OPS,
    softmax::OPS,
    attention::OPS,
    image::OPS,
    sampling::OPS,
    quant::OPS,
    recurrent::OPS,
    loss::OPS,
    datadep::OPS,
    vision::OPS,
    nms::OPS,
    grad::OPS,
    shape::OPS,
    call::OPS,
    effect::OPS,
    memory::OPS,
    onnx::axes::OPS,
    onnx::bits::OPS,
    onnx::boxes::OPS,
    onnx::distinct::OPS,
    onnx::expand::OPS,
    onnx::text::OPS,
    onnx::linear_attention::OPS,
    onnx::pad::OPS,
    onnx::picture::OPS,
    onnx::pool::OPS,
    onnx::resize::OPS,
    onnx::spectrum::OPS,
    onnx::trees::OPS,
    onnx::window::OPS,
];
