//! Operators between tensors and shapes.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
