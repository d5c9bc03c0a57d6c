//! Elementwise arithmetic and bit operations of two tensors.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
