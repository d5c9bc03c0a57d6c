//! What a Relax value is while a function is being laid out: structure known, storage by number.

use relax_ir::relax::Function;
use relax_ir::{Constant, DType, PrimExpr};
use std::sync::Arc;

use super::plan::Scope;

/// A storage unit of the function: parameter, result, constant or a piece of the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufId(pub usize);

/// A dense tensor: the whole of its storage, or a view of it with other dims.
#[derive(Clone, Debug)]
pub struct TensorValue {
    pub buf: BufId,
    /// Over the shape variables of the entry and those read from data.
    pub dims: Vec<PrimExpr>,
    pub dtype: DType,
}

/// A parameter whose rank, or dtype too, is known at run time only: a MatchCast makes it a [`TensorValue`].
#[derive(Clone, Debug)]
pub struct UnrankedValue {
    pub buf: BufId,
    /// The flattened parameter.
    pub leaf: usize,
    pub ndim: PrimExpr,
    pub dtype: Option<DType>,
    /// DLPack's dtype word.
    pub dtype_word: PrimExpr,
}

#[derive(Clone, Debug)]
pub enum HostValue {
    Tensor(TensorValue),
    Unranked(UnrankedValue),
    Shape(Vec<PrimExpr>),
    Prim(PrimExpr),
    Tuple(Vec<HostValue>),
    Str(String),
    DType,
    /// A function with what it captured: calls are expanded in place.
    Func(Arc<Function>, Arc<Scope>),
    Global(String),
    Extern(String),
    Absent,
}

impl HostValue {
    pub fn unit() -> HostValue {
        HostValue::Tuple(vec![])
    }

    /// What is inside, tuples flattened left to right.
    pub fn leaves(&self) -> Vec<HostValue> {
        match self {
            HostValue::Tuple(f) => f.iter().flat_map(HostValue::leaves).collect(),
            leaf => vec![leaf.clone()],
        }
    }
}

/// Where a buffer lives.
#[derive(Clone, Debug)]
pub enum Place {
    /// Data pointer of flattened parameter `i`.
    Param(usize),
    /// Data pointer of flattened result `i`.
    Result(usize),
    Constant(Constant),
    /// In the workspace, at an offset that memory planning finds.
    Workspace,
}

#[derive(Clone, Debug)]
pub struct Buf {
    pub place: Place,
    /// Bytes, over the shape variables of the entry (an upper bound where data decides).
    pub bytes: PrimExpr,
}

/// A dim of an unranked parameter, read when its rank is `rank` (else 0).
#[derive(Clone, Debug)]
pub struct LateDim {
    pub leaf: usize,
    pub rank: usize,
    pub axis: usize,
    pub var: relax_ir::Var,
}

/// One thing that the function does, in order.
#[derive(Clone, Debug)]
pub enum Step {
    Kernel {
        /// The PrimFunc's name.
        kernel: String,
        /// Buffers of its parameters, in order, outputs included.
        buffers: Vec<BufId>,
        /// Values of `kernel_dims`.
        dims: Vec<PrimExpr>,
        scratch: Option<BufId>,
        /// Which of `buffers` it only reads (the others are written).
        reads: Vec<bool>,
    },
    Copy {
        from: BufId,
        to: BufId,
        bytes: PrimExpr,
    },
    /// Writes scalars into consecutive elements.
    Write {
        to: BufId,
        values: Vec<PrimExpr>,
    },
    /// Names element `index` of an integer tensor.
    Read {
        var: relax_ir::Var,
        from: BufId,
        index: usize,
        dtype: DType,
    },
    /// Fails unless `condition` holds.
    Check {
        condition: PrimExpr,
        code: i64,
        constraint: u32,
        wanted: PrimExpr,
        got: PrimExpr,
        what: String,
    },
    If {
        condition: PrimExpr,
        then: Vec<Step>,
        otherwise: Vec<Step>,
    },
}

/// Dims that were found to be `wanted`: its numbers take the place of what was computed.
pub fn settled_dims(actual: Vec<PrimExpr>, wanted: Option<&[PrimExpr]>) -> Vec<PrimExpr> {
    match wanted.filter(|w| w.len() == actual.len()) {
        Some(w) => actual.into_iter().zip(w).map(|(a, w)| if w.as_int().is_some() { w.clone() } else { a }).collect(),
        None => actual,
    }
}
