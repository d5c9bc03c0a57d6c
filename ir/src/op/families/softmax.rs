//! Softmax and log_softmax.

use crate::op::OpDecl;

pub static OPS: &[OpDecl] = &[];
