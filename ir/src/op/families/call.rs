//! Calls of PrimFuncs, packed functions and closures.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
