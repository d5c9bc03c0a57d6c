//! Sort, argsort, topk.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
