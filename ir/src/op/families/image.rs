//! Resize, grid sample, affine grid.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
