//! Lowering: Relax to PrimFuncs to flat TIR, and the reference interpreter.

#![forbid(unsafe_code)]

pub mod interp;
