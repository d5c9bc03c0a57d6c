//! Take, gather, scatter and index_put.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
