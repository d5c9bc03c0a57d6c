//! Lowering: Relax to PrimFuncs to flat TIR, and the reference interpreter.

#![forbid(unsafe_code)]

pub mod interp;
pub mod kernel;
pub mod math;
pub mod schedule;

pub use kernel::{kernel_dims, kernel_workspace};
