//! Cumulative sums and products.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
