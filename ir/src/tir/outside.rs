//! What a PrimFunc has to do with the world outside of its buffers: the struct of a tensor, functions of the host.

use super::Buffer;
use crate::dtype::DType;
use crate::prim::{PrimExpr, Var};

/// A field of `DLTensor` that `T.tvm_struct_get` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorField {
    NDim,
    TypeCode,
    TypeBits,
    TypeLanes,
    ByteOffset,
    DeviceId,
    DeviceType,
}

impl TensorField {
    const NUMBERS: [(TensorField, i64); 7] = [
        (TensorField::NDim, 4),
        (TensorField::TypeCode, 5),
        (TensorField::TypeBits, 6),
        (TensorField::TypeLanes, 7),
        (TensorField::ByteOffset, 8),
        (TensorField::DeviceId, 9),
        (TensorField::DeviceType, 10),
    ];

    /// Source: TVM include/tvm/tirx/builtin.h, `TVMStructFieldKind`.
    pub fn from_number(n: i64) -> Option<TensorField> {
        TensorField::NUMBERS.iter().find(|(_, k)| *k == n).map(|(f, _)| *f)
    }
    pub fn number(self) -> i64 {
        TensorField::NUMBERS.iter().find(|(f, _)| *f == self).map_or(0, |(_, k)| *k)
    }
    /// Its value for a dense tensor in the memory of a CPU; `None` where a part that decides is not known.
    pub fn of(self, dtype: Option<DType>, ndim: Option<usize>) -> Option<i64> {
        Some(match self {
            TensorField::NDim => ndim? as i64,
            TensorField::TypeCode => dtype?.dlpack().0 as i64,
            TensorField::TypeBits => dtype?.dlpack().1 as i64,
            TensorField::TypeLanes => dtype?.lanes as i64,
            TensorField::ByteOffset | TensorField::DeviceId => 0,
            TensorField::DeviceType => 1,
        })
    }
}

/// An argument of a function of the host.
#[derive(Clone, Debug, PartialEq)]
pub enum PackedArg {
    Scalar(PrimExpr),
    Text(String),
    /// A whole buffer, as a tensor.
    Tensor(Buffer),
    /// A parameter that is a handle.
    Handle(Var),
}

impl PackedArg {
    pub fn scalar(&self) -> Option<&PrimExpr> {
        match self {
            PackedArg::Scalar(e) => Some(e),
            _ => None,
        }
    }
    pub fn tensor(&self) -> Option<&Buffer> {
        match self {
            PackedArg::Tensor(b) => Some(b),
            _ => None,
        }
    }
}
