//! TIR in block form: PrimFuncs as users write them and as operators are declared.

mod builder;
mod outside;
mod visit;

pub use builder::{KernelBuilder, Reducer};
pub use outside::{PackedArg, TensorField};

use crate::attrs::AttrValue;
use crate::attrs::Attrs;
use crate::dtype::DType;
use crate::prim::{fresh_id, PrimExpr, Var};
use crate::span::Span;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A typed n-dimensional view of memory; identity decides equality. Row-major unless `strides` says otherwise.
#[derive(Clone)]
pub struct Buffer(Arc<BufferNode>);

#[derive(Debug)]
pub struct BufferNode {
    id: u32,
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<PrimExpr>,
    /// Empty: row-major and contiguous. In elements.
    pub strides: Vec<PrimExpr>,
    pub elem_offset: Option<PrimExpr>,
    /// `"global"`, `"local"`, `"shared"`...: kept for printing, no meaning on a CPU.
    pub scope: String,
    pub span: Span,
}

impl Buffer {
    pub fn new(name: impl Into<String>, shape: Vec<PrimExpr>, dtype: DType) -> Buffer {
        Buffer::from_parts(name, shape, dtype, vec![], None, "global", Span::NONE)
    }
    pub fn from_parts(
        name: impl Into<String>,
        shape: Vec<PrimExpr>,
        dtype: DType,
        strides: Vec<PrimExpr>,
        elem_offset: Option<PrimExpr>,
        scope: &str,
        span: Span,
    ) -> Buffer {
        let name = name.into();
        let scope = scope.to_string();
        Buffer(Arc::new(BufferNode { id: fresh_id(), name, dtype, shape, strides, elem_offset, scope, span }))
    }
    pub fn id(&self) -> u32 {
        self.0.id
    }
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }
    pub fn ndim(&self) -> usize {
        self.0.shape.len()
    }
    /// The element at `indices`.
    pub fn at(&self, indices: impl Into<Arc<[PrimExpr]>>) -> PrimExpr {
        PrimExpr::load(self, indices)
    }
}
impl std::ops::Deref for Buffer {
    type Target = BufferNode;
    fn deref(&self) -> &BufferNode {
        &self.0
    }
}
impl PartialEq for Buffer {
    fn eq(&self, o: &Buffer) -> bool {
        self.0.id == o.0.id
    }
}
impl Eq for Buffer {}
impl Hash for Buffer {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.0.id.hash(h)
    }
}
impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}@{}", self.0.name, self.0.id)
    }
}

/// Reads or writes `buffer[min .. min + extent]` per dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferRegion {
    pub buffer: Buffer,
    /// `(min, extent)`; extent 1 prints as a plain index.
    pub region: Vec<(PrimExpr, PrimExpr)>,
}

/// A buffer that aliases a region of another (`T.match_buffer` inside a block).
#[derive(Clone, Debug, PartialEq)]
pub struct MatchBufferRegion {
    pub buffer: Buffer,
    pub source: BufferRegion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IterKind {
    Spatial,
    Reduce,
    Scan,
    Opaque,
}

/// An axis of a block: `var` ranges over `[min, min + extent)` and takes the value `binding`.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockAxis {
    pub var: Var,
    pub kind: IterKind,
    pub min: PrimExpr,
    pub extent: PrimExpr,
    pub binding: PrimExpr,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    pub name: String,
    pub axes: Vec<BlockAxis>,
    /// `T.where`: the block runs only where this holds.
    pub predicate: Option<PrimExpr>,
    /// As written; `None` when not given (they are derived then).
    pub reads: Option<Vec<BufferRegion>>,
    pub writes: Option<Vec<BufferRegion>>,
    pub attrs: Attrs,
    pub alloc_buffers: Vec<Buffer>,
    pub match_buffers: Vec<MatchBufferRegion>,
    /// Runs once per spatial point, before the first reduction step.
    pub init: Option<Stmt>,
    pub body: Stmt,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ForKind {
    Serial,
    Parallel,
    Vectorized,
    Unrolled,
    /// `T.thread_binding(extent, thread="blockIdx.x")`: a plain loop on a CPU.
    ThreadBinding(String),
}

/// A statement; cheap to clone.
#[derive(Clone)]
pub struct Stmt(Arc<(StmtKind, Span)>);

#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    Seq(Vec<Stmt>),
    For {
        var: Var,
        min: PrimExpr,
        extent: PrimExpr,
        kind: ForKind,
        annotations: Vec<(String, AttrValue)>,
        body: Stmt,
    },
    While {
        cond: PrimExpr,
        body: Stmt,
    },
    If {
        cond: PrimExpr,
        then: Stmt,
        otherwise: Option<Stmt>,
    },
    Block(Box<Block>),
    Store {
        buffer: Buffer,
        indices: Vec<PrimExpr>,
        value: PrimExpr,
    },
    /// `with T.let(v, value):` or `v: T.int32 = value`
    Let {
        var: Var,
        value: PrimExpr,
        body: Stmt,
    },
    Assert {
        cond: PrimExpr,
        message: String,
    },
    Evaluate(PrimExpr),
    /// `T.call_packed("name", ..)`: a function that the host registers.
    CallPacked {
        function: String,
        args: Vec<PackedArg>,
    },
    /// `with T.attr(node, key, value):`, kept for printing, no meaning.
    Attr {
        node: AttrValue,
        key: String,
        value: PrimExpr,
        body: Stmt,
    },
    /// A buffer that lives in `body` only, outside of any block (`T.alloc_local`, `T.decl_buffer`).
    Alloc {
        buffer: Buffer,
        body: Stmt,
    },
}

impl Stmt {
    pub fn new(kind: StmtKind) -> Stmt {
        Stmt(Arc::new((kind, Span::NONE)))
    }
    pub fn at(kind: StmtKind, span: Span) -> Stmt {
        Stmt(Arc::new((kind, span)))
    }
    pub fn kind(&self) -> &StmtKind {
        &self.0 .0
    }
    pub fn span(&self) -> Span {
        self.0 .1
    }
    pub fn nop() -> Stmt {
        Stmt::new(StmtKind::Seq(vec![]))
    }
    /// Flattens nested sequences; a lone statement stays itself.
    pub fn seq(stmts: Vec<Stmt>) -> Stmt {
        let mut out = vec![];
        for s in stmts {
            match s.kind() {
                StmtKind::Seq(inner) => out.extend(inner.iter().cloned()),
                _ => out.push(s),
            }
        }
        match out.len() {
            1 => out.swap_remove(0),
            _ => Stmt::new(StmtKind::Seq(out)),
        }
    }
    pub fn store(buffer: &Buffer, indices: Vec<PrimExpr>, value: PrimExpr) -> Stmt {
        Stmt::new(StmtKind::Store { buffer: buffer.clone(), indices, value })
    }
    /// A serial loop over `[0, extent)`.
    pub fn for_serial(var: &Var, extent: PrimExpr, body: Stmt) -> Stmt {
        let min = PrimExpr::int(var.dtype(), 0);
        Stmt::new(StmtKind::For { var: var.clone(), min, extent, kind: ForKind::Serial, annotations: vec![], body })
    }
    pub fn if_then(cond: PrimExpr, then: Stmt) -> Stmt {
        Stmt::new(StmtKind::If { cond, then, otherwise: None })
    }
    pub fn if_else(cond: PrimExpr, then: Stmt, otherwise: Stmt) -> Stmt {
        Stmt::new(StmtKind::If { cond, then, otherwise: Some(otherwise) })
    }
    pub fn while_loop(cond: PrimExpr, body: Stmt) -> Stmt {
        Stmt::new(StmtKind::While { cond, body })
    }
    pub fn let_in(var: &Var, value: PrimExpr, body: Stmt) -> Stmt {
        Stmt::new(StmtKind::Let { var: var.clone(), value, body })
    }
}
impl PartialEq for Stmt {
    fn eq(&self, o: &Stmt) -> bool {
        self.kind() == o.kind()
    }
}
impl fmt::Debug for Stmt {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.kind().fmt(f)
    }
}

/// A parameter of a PrimFunc, in calling order.
#[derive(Clone, Debug, PartialEq)]
pub enum PrimParam {
    /// `x: T.Buffer(..)`, or `var_x: T.handle` + `T.match_buffer` (then `handle` names the handle).
    Buffer { buffer: Buffer, handle: Option<String> },
    /// `m: T.int64`
    Scalar(Var),
    /// `x: T.handle` that no `T.match_buffer` takes: any tensor. What the body reads of its struct has a variable each.
    Handle { handle: Var, fields: Vec<(TensorField, Var)> },
}

impl PrimParam {
    pub fn buffer(&self) -> Option<&Buffer> {
        match self {
            PrimParam::Buffer { buffer, .. } => Some(buffer),
            PrimParam::Scalar(_) | PrimParam::Handle { .. } => None,
        }
    }
}

/// A TIR function. Shape variables that occur alone as a dim of a parameter's buffer are bound by the argument;
/// scalar parameters bind themselves. Outputs come last among the parameters (destination passing).
#[derive(Clone, Debug, PartialEq)]
pub struct PrimFunc {
    pub name: String,
    pub params: Vec<PrimParam>,
    pub ret: Option<DType>,
    /// What a function of scalars returns behind its body, over its parameters.
    pub returns: Option<PrimExpr>,
    pub attrs: Attrs,
    pub private: bool,
    /// Buffers of the root block (`T.sblock_alloc_buffer` at function level).
    pub alloc_buffers: Vec<Buffer>,
    pub body: Stmt,
    pub span: Span,
}

impl PrimFunc {
    pub fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.params.iter().filter_map(PrimParam::buffer)
    }

    /// Does a call of it write nothing but what it allocates itself, and call nothing of the host? A function that
    /// computes a scalar is such a one.
    pub fn is_pure(&self) -> bool {
        let (mut own, mut pure) = (vec![], true);
        self.body.walk(&mut |s| match s.kind() {
            StmtKind::Alloc { buffer, .. } => own.push(buffer.clone()),
            StmtKind::Store { buffer, .. } => pure &= own.contains(buffer),
            StmtKind::CallPacked { .. } => pure = false,
            _ => {}
        });
        pure
    }
}
