//! Tensors made from shapes and scalars.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
