//! Comparisons and logical operators.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
