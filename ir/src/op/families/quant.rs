//! Quantize and dequantize.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
