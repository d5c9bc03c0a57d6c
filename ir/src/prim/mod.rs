//! Scalar (and vector) expressions: shape dims, TIR bodies and flat TIR share them.
//!
//! Semantics are TVM's: integer arithmetic wraps at the width of the type, `//` and `%` floor
//! ([`BinOp::FloorDiv`], [`BinOp::FloorMod`]), [`BinOp::TruncDiv`]/[`BinOp::TruncMod`] truncate,
//! [`PrimKind::Select`] evaluates both sides, [`PrimKind::IfThenElse`] only the chosen one.

mod build;
mod evaluate;
mod intrin;
pub mod text;
mod visit;

pub use build::*;
pub use intrin::Intrin;

use crate::dtype::DType;
use crate::span::Span;
use crate::tir::Buffer;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

static NEXT_ID: AtomicU32 = AtomicU32::new(1);

/// A fresh identity for a variable or a buffer. Ids order by creation and never reach the output.
pub fn fresh_id() -> u32 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// A scalar variable: a shape variable, loop variable, block axis, let-bound value or pointer.
/// Identity, not the name, decides equality.
#[derive(Clone)]
pub struct Var(Arc<VarNode>);

struct VarNode {
    id: u32,
    name: String,
    dtype: DType,
    span: Span,
}

impl Var {
    pub fn new(name: impl Into<String>, dtype: DType) -> Var {
        Var::with_span(name, dtype, Span::NONE)
    }
    pub fn with_span(name: impl Into<String>, dtype: DType, span: Span) -> Var {
        Var(Arc::new(VarNode { id: fresh_id(), name: name.into(), dtype, span }))
    }
    /// A shape variable: int64.
    pub fn dim(name: impl Into<String>) -> Var {
        Var::new(name, DType::I64)
    }
    pub fn id(&self) -> u32 {
        self.0.id
    }
    pub fn name(&self) -> &str {
        &self.0.name
    }
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }
    pub fn span(&self) -> Span {
        self.0.span
    }
    pub fn expr(&self) -> PrimExpr {
        PrimExpr::var(self)
    }
}

impl PartialEq for Var {
    fn eq(&self, o: &Var) -> bool {
        self.0.id == o.0.id
    }
}
impl Eq for Var {}
impl Hash for Var {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.0.id.hash(h)
    }
}
impl PartialOrd for Var {
    fn partial_cmp(&self, o: &Var) -> Option<std::cmp::Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for Var {
    fn cmp(&self, o: &Var) -> std::cmp::Ordering {
        self.0.id.cmp(&o.0.id)
    }
}
impl fmt::Debug for Var {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}#{}", self.0.name, self.0.id)
    }
}

/// A float literal; equality and hash are by bits.
#[derive(Clone, Copy, Debug)]
pub struct FloatBits(pub f64);
impl PartialEq for FloatBits {
    fn eq(&self, o: &FloatBits) -> bool {
        self.0.to_bits() == o.0.to_bits()
    }
}
impl Eq for FloatBits {}
impl Hash for FloatBits {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.0.to_bits().hash(h)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinOp {
    Add,
    Sub,
    Mul,
    /// Float division; on integers TVM's `T.Div`, which truncates.
    Div,
    FloorDiv,
    FloorMod,
    TruncDiv,
    TruncMod,
    /// Returns the second operand when the first is NaN (`a < b ? a : b`).
    Min,
    /// Returns the second operand when the first is NaN (`a > b ? a : b`).
    Max,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    BitAnd,
    BitOr,
    BitXor,
    Shl,
    /// Arithmetic on signed, logical on unsigned types.
    Shr,
}

impl BinOp {
    pub fn is_compare(self) -> bool {
        matches!(self, BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge)
    }
    /// The result has type bool.
    pub fn is_predicate(self) -> bool {
        self.is_compare() || matches!(self, BinOp::And | BinOp::Or)
    }
}

/// An expression; cheap to clone. Equality is structural, spans left out.
#[derive(Clone)]
pub struct PrimExpr(Arc<Node>);

struct Node {
    kind: PrimKind,
    dtype: DType,
    span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PrimKind {
    Var(Var),
    /// Sign-extended for signed types, zero-extended for unsigned (uint64: as i64 bits); bool 0/1.
    Int(i64),
    Float(FloatBits),
    Str(Arc<str>),
    /// Float to int truncates; int to bool is `!= 0`.
    Cast(PrimExpr),
    /// Same bits, other type of the same total width.
    Reinterpret(PrimExpr),
    Binary(BinOp, PrimExpr, PrimExpr),
    /// Logical not of bool.
    Not(PrimExpr),
    Neg(PrimExpr),
    /// Both sides are evaluated (vectorisable).
    Select(PrimExpr, PrimExpr, PrimExpr),
    /// Only the chosen side is evaluated: guards loads.
    IfThenElse(PrimExpr, PrimExpr, PrimExpr),
    /// Block form only: element of a buffer.
    BufferLoad(Buffer, Arc<[PrimExpr]>),
    /// Flat form only: `lanes` consecutive elements at `ptr + offset`, `offset` (scalar int64) in elements of the
    /// loaded type; the node's dtype carries the lanes. A vector `offset` gathers: one element per lane.
    Load {
        ptr: PrimExpr,
        offset: PrimExpr,
    },
    Call(Intrin, Arc<[PrimExpr]>),
    /// `let var = value in body`
    Let(Var, PrimExpr, PrimExpr),
    /// `[base, base + stride, ...]`, as many as the dtype has lanes.
    Ramp(PrimExpr, PrimExpr),
    /// The scalar in every lane.
    Broadcast(PrimExpr),
    /// Address of a flat pointer plus bytes (flat form): `ptr + offset` with offset int64 in bytes.
    PtrAdd(PrimExpr, PrimExpr),
}

impl PrimExpr {
    /// No folding: exactly this node.
    pub fn raw(kind: PrimKind, dtype: DType) -> PrimExpr {
        PrimExpr(Arc::new(Node { kind, dtype, span: Span::NONE }))
    }
    pub fn raw_at(kind: PrimKind, dtype: DType, span: Span) -> PrimExpr {
        PrimExpr(Arc::new(Node { kind, dtype, span }))
    }
    pub fn kind(&self) -> &PrimKind {
        &self.0.kind
    }
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }
    pub fn span(&self) -> Span {
        self.0.span
    }
    pub fn with_span(&self, span: Span) -> PrimExpr {
        PrimExpr::raw_at(self.0.kind.clone(), self.0.dtype, span)
    }
    /// Same node in memory: a quick positive answer for equality.
    pub fn same(&self, o: &PrimExpr) -> bool {
        Arc::ptr_eq(&self.0, &o.0)
    }

    pub fn as_var(&self) -> Option<&Var> {
        match self.kind() {
            PrimKind::Var(v) => Some(v),
            _ => None,
        }
    }
    /// The value of an integer or bool literal.
    pub fn as_int(&self) -> Option<i64> {
        match self.kind() {
            PrimKind::Int(v) => Some(*v),
            _ => None,
        }
    }
    pub fn as_float(&self) -> Option<f64> {
        match self.kind() {
            PrimKind::Float(v) => Some(v.0),
            _ => None,
        }
    }
    pub fn is_int(&self, v: i64) -> bool {
        self.as_int() == Some(v)
    }
}

impl PartialEq for PrimExpr {
    fn eq(&self, o: &PrimExpr) -> bool {
        self.same(o) || (self.0.dtype == o.0.dtype && self.0.kind == o.0.kind)
    }
}
impl Eq for PrimExpr {}
impl Hash for PrimExpr {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.0.dtype.hash(h);
        self.0.kind.hash(h)
    }
}
impl fmt::Debug for PrimExpr {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:?}:{}", self.0.kind, self.0.dtype)
    }
}
impl From<&Var> for PrimExpr {
    fn from(v: &Var) -> PrimExpr {
        PrimExpr::var(v)
    }
}
impl From<i64> for PrimExpr {
    /// An int64 literal.
    fn from(v: i64) -> PrimExpr {
        PrimExpr::int(DType::I64, v)
    }
}
