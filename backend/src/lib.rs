//! Flat TIR to machine code, object files, shared objects and headers.

#![forbid(unsafe_code)]

pub mod elf;
