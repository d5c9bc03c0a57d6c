//! Storage, tensors and device hints.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
