//! Structural information (relax_spec.md, "Structural Information in Relax"); TVM 0.26 and later print it as types.

use super::RVar;
use crate::dtype::DType;
use crate::prim::PrimExpr;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum StructInfo {
    Tensor(TensorInfo),
    /// `R.Shape([n, 3])`, `R.Shape(ndim=2)`, `R.Shape`
    Shape {
        values: Option<Vec<PrimExpr>>,
        ndim: Option<usize>,
    },
    /// A scalar: `T.int64`, `R.Prim("int64")`, `R.Prim(value=n)`.
    Prim {
        dtype: DType,
        value: Option<PrimExpr>,
    },
    /// `R.Tuple(..)`; the empty tuple is unit.
    Tuple(Vec<StructInfo>),
    Func(Arc<FuncInfo>),
    /// `R.Any`, `R.Object`
    Object,
    /// `I.StringType()`
    Str,
    /// The type of `R.dtype(..)` values.
    DType,
}

/// `dtype` `None` is unknown (Void). `ndim` is known whenever the shape is a list.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    pub shape: Option<TensorShape>,
    pub dtype: Option<DType>,
    pub ndim: Option<usize>,
    pub vdevice: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TensorShape {
    Dims(Vec<PrimExpr>),
    /// A variable that holds a shape value.
    Var(RVar),
}

/// `R.Callable((T1,), T2, True)`; `params` `None` is a packed function of any arity.
#[derive(Clone, Debug, PartialEq)]
pub struct FuncInfo {
    pub params: Option<Vec<StructInfo>>,
    pub ret: StructInfo,
    pub pure: bool,
    /// `derive_func` of packed functions, by name: `"default"`, `"empty"` or an environment function.
    pub derive: Option<String>,
}

impl StructInfo {
    /// A tensor with known dims.
    pub fn tensor(dims: Vec<PrimExpr>, dtype: DType) -> StructInfo {
        StructInfo::Tensor(TensorInfo::dims(dims, Some(dtype)))
    }
    /// A tensor of known rank and unknown dims, or of unknown rank.
    pub fn tensor_ndim(ndim: Option<usize>, dtype: Option<DType>) -> StructInfo {
        StructInfo::Tensor(TensorInfo { shape: None, dtype, ndim, vdevice: None })
    }
    pub fn shape(values: Vec<PrimExpr>) -> StructInfo {
        let ndim = Some(values.len());
        StructInfo::Shape { values: Some(values), ndim }
    }
    pub fn unit() -> StructInfo {
        StructInfo::Tuple(vec![])
    }
    pub fn as_tensor(&self) -> Option<&TensorInfo> {
        match self {
            StructInfo::Tensor(t) => Some(t),
            _ => None,
        }
    }
    pub fn as_tuple(&self) -> Option<&[StructInfo]> {
        match self {
            StructInfo::Tuple(f) => Some(f),
            _ => None,
        }
    }
}

impl TensorInfo {
    pub fn dims(dims: Vec<PrimExpr>, dtype: Option<DType>) -> TensorInfo {
        let ndim = Some(dims.len());
        TensorInfo { shape: Some(TensorShape::Dims(dims)), dtype, ndim, vdevice: None }
    }
    /// The dims, when the shape is a list.
    pub fn known_dims(&self) -> Option<&[PrimExpr]> {
        match &self.shape {
            Some(TensorShape::Dims(d)) => Some(d),
            _ => None,
        }
    }
}
