//! Elementwise functions of one tensor.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
