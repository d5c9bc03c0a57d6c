//! What needs a C library.

#[cfg(target_os = "linux")]
mod ahead;
pub mod kept;
pub mod libc;
mod picture;
mod print;
mod run;
mod team;

#[cfg(target_os = "linux")]
pub use ahead::relax_rt_ahead;
pub use kept::relax_rt_forget;
pub use picture::relax_rt_picture;
pub use print::relax_rt_print;
pub use run::{relax_rt_run, relax_rt_run_keeping};
pub use team::{relax_rt_rest, relax_rt_team};
