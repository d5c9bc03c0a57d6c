//! What a compiled model may call at run time.
//!
//! `no_std`, no dependencies, no global state, no allocation of its own: memory comes from the caller's [`Call`]
//! (its workspace or its allocator). The feature `hosted` adds what needs a C library: the generic entry
//! `relax_rt_run`, which allocates results and workspace for its caller, large workspaces that stay between its calls,
//! and the threads of libraries compiled for several; the last two with the only global state.
//!
//! The compiler embeds this crate as one relocatable object in every hosted library, so nothing here may reach a
//! panic: no slice indexing, no `core::fmt`, no checked arithmetic that aborts. The build script of the backend
//! refuses an object that refers to anything but the C library.

#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod abi;
pub mod arena;
pub mod check;
pub mod fail;
#[cfg(feature = "hosted")]
pub mod hosted;
pub mod make;
pub mod packed;
pub mod signature;
mod text;
pub mod value;

pub use abi::{Call, DLDataType, DLDevice, DLManagedTensor, DLTensor, EntryDesc, ModuleDesc, Packed, ValueDesc};
pub use value::Value;
