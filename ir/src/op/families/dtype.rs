//! Astype and friends.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
