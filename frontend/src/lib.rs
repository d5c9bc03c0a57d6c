//! Readers of models and weights: TVMScript text ([`rlx`]) and weight files ([`weights`]).
//!
//! A reader never stops at the first mistake: it returns what it understood together with every diagnostic.

#![deny(unsafe_code)]

pub mod onnx;
pub mod rlx;
mod suggest;
pub mod weights;
