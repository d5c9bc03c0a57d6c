//! Operators whose output shape depends on data.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
