//! Print, assert and other effects.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
