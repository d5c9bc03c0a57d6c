//! Argmax, argmin, where, bucketize.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
