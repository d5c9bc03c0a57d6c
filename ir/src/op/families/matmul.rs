//! Matmul, einsum, outer.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
