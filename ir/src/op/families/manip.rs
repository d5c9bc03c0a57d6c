//! Reshape, transpose, concat, split, tile and other rearrangements.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
