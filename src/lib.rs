//! The command line's parts: files in, diagnostics out, the road from a model to an artifact, and running a compiled
//! library through its C ABI. No compiler logic lives here.

pub mod budget;
pub mod cli;
pub mod compare;
pub mod drawing;
pub mod driver;
pub mod emit_c;
pub mod inspect;
pub mod loader;
pub mod output;
pub mod placement;
pub mod render;
pub mod report;
pub mod run;
pub mod source;
pub mod tune;
