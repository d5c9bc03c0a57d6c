//! The struct info of global functions.

use super::vars;
use crate::dtype::DType;
use crate::module::Func;
use crate::relax::{FuncInfo, Function, StructInfo, TensorInfo};
use crate::tir::{PrimFunc, PrimParam};
use std::collections::HashSet;
use std::sync::Arc;

/// The type of a Relax function as its annotations state it; parts left out are any object.
pub fn of_function(f: &Function) -> FuncInfo {
    let stated = |s: &Option<StructInfo>| s.clone().unwrap_or(StructInfo::Object);
    FuncInfo {
        params: Some(f.params.iter().map(|p| stated(&p.annotation)).collect()),
        ret: stated(&f.ret),
        pure: is_pure(f),
        derive: None,
    }
}

/// Declared pure, or forced to count as pure.
pub fn is_pure(f: &Function) -> bool {
    f.pure || forced_pure(f)
}

pub fn forced_pure(f: &Function) -> bool {
    ["relax.force_pure", "force_pure"].iter().any(|k| f.attrs.bool(k) == Some(true))
}

/// The type of a PrimFunc called directly: tensors and scalars, outputs among them; it writes to them.
pub fn of_prim_func(f: &PrimFunc) -> FuncInfo {
    let param = |p: &PrimParam| match p {
        PrimParam::Buffer { buffer, .. } => {
            let dims = buffer.shape.iter().map(|d| d.clone().cast(DType::I64)).collect();
            StructInfo::tensor(dims, buffer.dtype())
        }
        PrimParam::Scalar(v) => StructInfo::Prim { dtype: v.dtype(), value: Some(v.expr()) },
        PrimParam::Handle { .. } => {
            StructInfo::Tensor(TensorInfo { shape: None, dtype: None, ndim: None, vdevice: None })
        }
    };
    let ret = match f.ret {
        Some(dtype) => StructInfo::Prim { dtype, value: f.returns.clone().filter(|e| e.dtype() == dtype) },
        None => StructInfo::unit(),
    };
    FuncInfo { params: Some(f.params.iter().map(param).collect()), ret, pure: false, derive: None }
}

/// The type of a global function, its variables renamed: they have nothing to do with the caller's.
pub fn of_global(f: &Func) -> StructInfo {
    let info = match f {
        Func::Relax(f) => of_function(f),
        Func::Prim(f) => of_prim_func(f),
    };
    StructInfo::Func(Arc::new(vars::rename(&info, &HashSet::new())))
}

/// The type of an extern function that states none: any arguments, a result as the call states it.
pub fn packed(pure: bool) -> StructInfo {
    StructInfo::Func(Arc::new(FuncInfo {
        params: None,
        ret: StructInfo::Object,
        pure,
        derive: Some("default".to_string()),
    }))
}
