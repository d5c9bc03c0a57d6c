//! Scaled dot-product attention.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
