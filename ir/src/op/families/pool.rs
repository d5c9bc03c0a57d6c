//! Pooling.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
