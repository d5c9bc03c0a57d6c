//! Reductions along axes.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
