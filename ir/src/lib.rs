//! The intermediate representations of relax-aot.
//!
//! One IR per level, no fourth one:
//!
//! * [`relax`]: the Relax AST (the specification's grammar), with [`relax::StructInfo`];
//! * [`tir`]: PrimFuncs in block form, what users write and what operators are declared in;
//! * [`flat`]: loops, vector expressions and flat pointers, what every backend translates.
//!
//! [`prim`] is the scalar expression language that all three share. [`op`] declares every
//! operator once. Nothing here knows files, targets or code generation.

#![forbid(unsafe_code)]

pub mod abi;
pub mod analysis;
pub mod attrs;
pub mod constant;
pub mod diag;
pub mod dtype;
pub mod flat;
pub mod module;
pub mod op;
pub mod prim;
pub mod printer;
pub mod program;
pub mod relax;
pub mod small_float;
pub mod span;
pub mod structural;
pub mod sym;
pub mod tir;

pub use attrs::{AttrValue, Attrs};
pub use constant::Constant;
pub use diag::{Diagnostic, Diagnostics, Fault};
pub use dtype::{DType, TypeCode};
pub use module::{Func, IRModule};
pub use prim::{PrimExpr, Var};
pub use span::{FileId, Lines, Span};
