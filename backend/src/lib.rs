//! Flat TIR to machine code, object files, shared objects and headers.

#![forbid(unsafe_code)]

pub mod archive;
pub mod bounds;
pub mod c;
pub mod clif;
pub mod descriptor;
pub mod elf;
pub mod header;
pub mod target;
pub mod versions;
pub mod x86;

pub use target::{Cpu, OptLevel, Target};
