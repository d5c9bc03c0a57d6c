//! Operator declarations: one per operator, one file per family.
//!
//! A declaration says everything the compiler knows about an operator: its parameters as TVMScript writes them, its
//! purity, its shape rule and its computation. Parser, printer, analysis, interpreter and lowering all read it here.

mod context;
pub mod elem;
pub mod families;
pub mod rule;
mod takes;

pub use context::{Answer, ComputeCx, InferCx, ShapeFacts, TensorArg};
pub use takes::Takes;

use crate::diag::Diagnostic;
use crate::relax::StructInfo;
use crate::tir::PrimFunc;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::OnceLock;

/// The bytes of the largest tensor: the addresses of today's processors have 48 bits.
pub const MOST_BYTES: i64 = 1 << 48;

/// One operator.
pub struct OpDecl {
    /// The Relax name without `relax.`: `"add"`, `"nn.conv2d"`.
    pub name: &'static str,
    /// What it computes, with shapes, dtypes and source.
    pub doc: &'static str,
    /// Parameters in the order of TVM's Python function (`R.name(..)`): operands and attributes mixed.
    pub params: &'static [ParamDecl],
    pub purity: Purity,
    /// The shape rule.
    pub infer: InferFn,
    /// The computation.
    pub compute: Compute,
    /// Error budget of the result in units in the last place of float32 (0: exact).
    pub ulp: u32,
}

/// Derives the struct info of a call's result; broken requirements are diagnostics in the operator's own words.
pub type InferFn = fn(&mut InferCx) -> Result<StructInfo, Diagnostic>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purity {
    Pure,
    Impure,
}

/// How a call is computed.
#[derive(Clone, Copy)]
pub enum Compute {
    /// A PrimFunc from the operands' struct info: parameters are the tensor operands in order (tuples flattened),
    /// then the shape variables that no buffer dim binds (as scalars), then the outputs.
    Kernel(fn(&ComputeCx) -> Result<PrimFunc, Diagnostic>),
    /// As [`Compute::Kernel`], with an output whose dims depend on the data: each output buffer has its upper bound as
    /// shape, and one more int64 output holds the actual dims of all outputs, one after the other. Outputs are written
    /// densely in their actual dims: element `f` in row-major order of the actual dims is element `f` of the buffer.
    DataDependent(fn(&ComputeCx) -> Result<PrimFunc, Diagnostic>),
    /// A rewrite into other operators: shape and host-level operators that need no kernel of their own, handled by
    /// name in lowering (`call_tir`, `shape_of`, `print`, ...).
    Host,
    /// Refused, with the reason.
    Unsupported(&'static str),
}

/// A parameter as written in `R.name(..)`.
#[derive(Clone, Copy, Debug)]
pub struct ParamDecl {
    pub name: &'static str,
    pub kind: ParamKind,
    /// Whether TVM prints it by keyword (`axis=0`) or by position.
    pub keyword: bool,
    pub default: Default,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A Relax expression: becomes an entry of `Call::args`.
    Operand,
    /// All further positional arguments are operands.
    Variadic,
    /// A compile-time value: becomes an entry of `Call::attrs`.
    Attr,
    /// `out_ty`, `sinfo_args`...: becomes `Call::sinfo_args`.
    StructInfo,
}

/// The value of a parameter that is not written.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    Required,
    /// Operands: not passed. Attributes: `None`.
    None,
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(&'static str),
    Ints(&'static [i64]),
}

/// A required operand.
pub const fn operand(name: &'static str) -> ParamDecl {
    ParamDecl { name, kind: ParamKind::Operand, keyword: false, default: Default::Required }
}
/// An operand that may be left out (always last among the operands, or `None`).
pub const fn optional(name: &'static str) -> ParamDecl {
    ParamDecl { name, kind: ParamKind::Operand, keyword: false, default: Default::None }
}
/// An attribute printed by keyword.
pub const fn attr(name: &'static str, default: Default) -> ParamDecl {
    ParamDecl { name, kind: ParamKind::Attr, keyword: true, default }
}
/// An attribute printed by position.
pub const fn positional(name: &'static str, default: Default) -> ParamDecl {
    ParamDecl { name, kind: ParamKind::Attr, keyword: false, default }
}

impl OpDecl {
    /// A pure operator with exact results.
    pub const fn pure(
        name: &'static str,
        doc: &'static str,
        params: &'static [ParamDecl],
        infer: InferFn,
        compute: Compute,
    ) -> OpDecl {
        OpDecl { name, doc, params, purity: Purity::Pure, infer, compute, ulp: 0 }
    }

    /// The same operator with an error budget.
    pub const fn ulp(self, ulp: u32) -> OpDecl {
        OpDecl { ulp, ..self }
    }
}

impl PartialEq for OpDecl {
    fn eq(&self, o: &OpDecl) -> bool {
        self.name == o.name
    }
}
impl fmt::Debug for OpDecl {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "R.{}", self.name)
    }
}

/// Every operator, by family then in the family's order.
pub fn all() -> impl Iterator<Item = &'static OpDecl> {
    families::ALL.iter().flat_map(|f| f.iter())
}

/// Whether the operator with this name computes each element of its result, with broadcasting, from the elements of its operands
/// at the same place.
pub fn is_elementwise(name: &str) -> bool {
    static TABLE: OnceLock<HashSet<&'static str>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let all = families::ELEMENTWISE.iter().flat_map(|f| f.iter()).map(|o| o.name);
        all.filter(|n| !families::APART.contains(n)).chain(["where"]).collect()
    });
    table.contains(name)
}

/// The operator with this name (without `relax.`).
pub fn lookup(name: &str) -> Option<&'static OpDecl> {
    static TABLE: OnceLock<HashMap<&'static str, &'static OpDecl>> = OnceLock::new();
    TABLE.get_or_init(|| all().map(|o| (o.name, o)).collect()).get(name).copied()
}
