//! What needs a C library.

pub mod libc;
mod run;

pub use run::relax_rt_run;
