//! What needs a C library.

pub mod libc;
mod print;
mod run;

pub use print::relax_rt_print;
pub use run::relax_rt_run;
