//! What a Relax value is while a function is being laid out: structure known, storage by number.

use relax_ir::analysis::Birth;
use relax_ir::relax::{Function, StructInfo};
use relax_ir::{Constant, DType, PrimExpr, Var};
use std::collections::HashMap;
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
    /// Inside of another buffer, which is no part itself, from that byte on.
    Part {
        of: BufId,
        at: PrimExpr,
    },
}

#[derive(Clone, Debug)]
pub struct Buf {
    pub place: Place,
    /// Bytes, over the shape variables of the entry (an upper bound where data decides).
    pub bytes: PrimExpr,
}

impl Buf {
    /// The buffer that it is a part of.
    pub fn inside(&self) -> Option<BufId> {
        match self.place {
            Place::Part { of, .. } => Some(of),
            _ => None,
        }
    }
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
    /// Names element `index` of a tensor, or its address where `dtype` is a handle.
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
        /// What goes into the places of the message's `{}`.
        numbers: Vec<(i64, super::message::Told)>,
    },
    If {
        condition: PrimExpr,
        then: Vec<Step>,
        otherwise: Vec<Step>,
    },
}

/// What the host's code knows of a value: values laid out in the workspace and values on the runtime's heap alike.
pub trait Shaped: Sized {
    /// The fields of a tuple.
    fn fields(&self) -> Option<&[Self]>;
    fn fields_mut(&mut self) -> Option<&mut Vec<Self>>;
    /// The dims of a tensor, the values of a shape, the one of a scalar.
    fn dims(&self) -> Option<&[PrimExpr]>;
    /// The dims of a tensor or the values of a shape, to be made more precise.
    fn dims_mut(&mut self) -> Option<&mut Vec<PrimExpr>>;

    /// The value whose dims were just found to be those of `info`: numbers take the place of what was computed.
    fn settled(mut self, info: &StructInfo) -> Self {
        let wanted = match info {
            StructInfo::Tensor(t) => t.known_dims(),
            StructInfo::Shape { values, .. } => values.as_deref(),
            StructInfo::Tuple(infos) => {
                if let Some(fields) = self.fields_mut().filter(|f| f.len() == infos.len()) {
                    *fields = std::mem::take(fields).into_iter().zip(infos).map(|(x, i)| x.settled(i)).collect();
                }
                None
            }
            _ => None,
        };
        let dims = self.dims_mut().zip(wanted).filter(|(dims, wanted)| dims.len() == wanted.len());
        for (d, w) in dims.into_iter().flat_map(|(dims, wanted)| dims.iter_mut().zip(wanted)) {
            if w.as_int().is_some() {
                *d = w.clone();
            }
        }
        self
    }

    /// The dim that gives a shape variable its value.
    fn birth_dim(&self, birth: &Birth) -> Option<&PrimExpr> {
        let place = birth.path.iter().try_fold(self, |v, &i| v.fields()?.get(i))?;
        place.dims()?.get(birth.axis)
    }
}

impl Shaped for HostValue {
    fn fields(&self) -> Option<&[HostValue]> {
        match self {
            HostValue::Tuple(f) => Some(f),
            _ => None,
        }
    }

    fn fields_mut(&mut self) -> Option<&mut Vec<HostValue>> {
        match self {
            HostValue::Tuple(f) => Some(f),
            _ => None,
        }
    }

    fn dims(&self) -> Option<&[PrimExpr]> {
        match self {
            HostValue::Tensor(t) => Some(&t.dims),
            HostValue::Shape(d) => Some(d),
            HostValue::Prim(p) => Some(std::slice::from_ref(p)),
            _ => None,
        }
    }

    fn dims_mut(&mut self) -> Option<&mut Vec<PrimExpr>> {
        match self {
            HostValue::Tensor(t) => Some(&mut t.dims),
            HostValue::Shape(d) => Some(d),
            _ => None,
        }
    }
}

/// Equalities that are checked when all variables have values: what is there, what is wanted, where.
pub type Later = Vec<(PrimExpr, PrimExpr, String)>;

/// Dims against a signature's: a variable that stands alone and has no value gets one, the rest is checked later.
pub fn match_dims(
    actual: &[PrimExpr],
    wanted: Option<&[PrimExpr]>,
    known: &mut HashMap<Var, PrimExpr>,
    what: &str,
    later: &mut Later,
) {
    for (i, (a, w)) in actual.iter().zip(wanted.unwrap_or_default()).enumerate() {
        match w.as_var() {
            Some(v) if !known.contains_key(v) => drop(known.insert(v.clone(), a.clone())),
            _ => later.push((a.clone(), w.clone(), format!("{what}, dimension {i}"))),
        }
    }
}
