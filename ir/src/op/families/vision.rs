//! Boxes and regions.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
