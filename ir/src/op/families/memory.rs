//! Memory as TVM's lowered modules and hand-written ones handle it: storage, tensors in storage, views.
//!
//! Source: TVM `relax.memory.*`, `relax.builtin.*`, `relax.vm.*`, `relax.inspect.*`. Which device an index names has
//! no meaning on one device; storage is a buffer that lives until the last tensor in it dies.

use crate::diag::Diagnostic;
use crate::op::{operand, optional, Compute, Default, InferCx, OpDecl, ParamDecl, ParamKind, Purity};
use crate::prim::BinOp;
use crate::relax::{ExprKind, StructInfo, TensorInfo, TensorShape};
use crate::{DType, PrimExpr};

const SCOPE: ParamDecl =
    ParamDecl { name: "storage_scope", kind: ParamKind::Operand, keyword: false, default: Default::Str("global") };
const DEVICE: ParamDecl =
    ParamDecl { name: "runtime_device_ind", kind: ParamKind::Operand, keyword: false, default: Default::Int(0) };

const fn host(
    name: &'static str,
    doc: &'static str,
    params: &'static [ParamDecl],
    purity: Purity,
    infer: crate::op::InferFn,
) -> OpDecl {
    OpDecl { name, doc, params, purity, infer, compute: Compute::Host, ulp: 0 }
}

const TENSOR: &[ParamDecl] = &[operand("tensor")];

const fn inspect(name: &'static str, doc: &'static str, infer: crate::op::InferFn) -> OpDecl {
    host(name, doc, TENSOR, Purity::Pure, infer)
}

pub static OPS: &[OpDecl] = &[
    host(
        "memory.alloc_storage",
        "A block of memory of `total_space` (a shape of one dim) elements of `dtype`.",
        &[operand("size"), operand("virtual_device_index"), operand("storage_scope"), operand("dtype")],
        Purity::Pure,
        |_| Ok(StructInfo::Object),
    ),
    host(
        "memory.alloc_tensor",
        "A tensor of the given shape and dtype at byte `offset` of a storage.",
        &[operand("storage"), operand("offset"), operand("shape"), operand("dtype"), DEVICE],
        Purity::Pure,
        placed,
    ),
    host("memory.kill_storage", "Ends a storage's life.", &[operand("storage")], Purity::Impure, unit),
    host("memory.kill_tensor", "Ends a tensor's life.", &[operand("tensor")], Purity::Impure, unit),
    host(
        "memory.view",
        "The same bytes under another shape, dtype or byte offset; what is not given stays.",
        &[operand("data"), optional("shape"), optional("dtype"), optional("relative_byte_offset")],
        Purity::Pure,
        view,
    ),
    host(
        "memory.ensure_zero_offset",
        "The tensor, copied if its byte offset is not 0.",
        &[operand("data")],
        Purity::Pure,
        |cx| Ok(StructInfo::Tensor(cx.tensor(0)?.clone())),
    ),
    host(
        "builtin.alloc_tensor",
        "A new tensor of the given shape and dtype, uninitialised.",
        &[operand("shape"), operand("dtype"), operand("runtime_device_index"), SCOPE],
        Purity::Pure,
        |cx| tensor_at(cx, 0, 1),
    ),
    host(
        "vm.alloc_storage",
        "A block of memory of `shape` elements of `dtype`.",
        &[operand("shape"), operand("runtime_device_index"), operand("dtype"), SCOPE],
        Purity::Pure,
        |_| Ok(StructInfo::Object),
    ),
    host(
        "vm.alloc_tensor",
        "A tensor of the given shape and dtype at byte `offset` of a storage.",
        &[operand("storage"), operand("offset"), operand("shape"), operand("dtype"), DEVICE],
        Purity::Pure,
        placed,
    ),
    host("vm.kill_object", "Ends an object's life.", &[operand("obj")], Purity::Impure, unit),
    inspect("inspect.tensor_dtype_code", "DLPack's type code of the elements, int64... as uint8.", |cx| {
        known_dtype(cx, DType::U8, |d| d.dlpack().0 as i64)
    }),
    inspect("inspect.tensor_dtype_bits", "Bits of an element.", |cx| {
        known_dtype(cx, DType::U8, |d| d.dlpack().1 as i64)
    }),
    inspect("inspect.tensor_dtype_lanes", "Lanes of an element: 1.", |cx| {
        known_dtype(cx, DType::U16, |d| d.lanes as i64)
    }),
    inspect("inspect.tensor_ndim", "The rank, int32.", |cx| {
        let ndim = cx.tensor(0)?.ndim;
        Ok(prim(DType::I32, ndim.map(|n| PrimExpr::int(DType::I32, n as i64))))
    }),
    host(
        "inspect.tensor_shape_i",
        "Dim `axis` of a tensor, int64.",
        &[operand("tensor"), operand("axis")],
        Purity::Pure,
        |cx| {
            let i = axis(cx)?;
            let dims = cx.tensor(0)?.known_dims();
            Ok(prim(DType::I64, i.and_then(|i| dims.and_then(|d| d.get(i).cloned()))))
        },
    ),
    host(
        "inspect.tensor_stride_i",
        "The stride of dim `axis` in elements (tensors are dense and row-major), int64.",
        &[operand("tensor"), operand("axis")],
        Purity::Pure,
        |cx| {
            let i = axis(cx)?;
            let dims = cx.tensor(0)?.known_dims();
            Ok(prim(DType::I64, i.and_then(|i| dims.and_then(|d| d.get(i + 1..)).map(PrimExpr::product))))
        },
    ),
    inspect("inspect.tensor_byte_offset", "Where the first element lies, in bytes from the data pointer.", |cx| {
        cx.tensor(0)?;
        Ok(prim(DType::U64, None))
    }),
    inspect("inspect.tensor_elem_offset", "Where the first element lies, in elements from the data pointer.", |cx| {
        cx.tensor(0)?;
        Ok(prim(DType::U64, None))
    }),
];

fn unit(_: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Ok(StructInfo::unit())
}

fn prim(dtype: DType, value: Option<PrimExpr>) -> StructInfo {
    StructInfo::Prim { dtype, value }
}

fn known_dtype(cx: &mut InferCx, dtype: DType, f: fn(DType) -> i64) -> Result<StructInfo, Diagnostic> {
    let value = cx.tensor(0)?.dtype.map(|d| PrimExpr::int(dtype, f(d)));
    Ok(prim(dtype, value))
}

/// The `axis` operand, when it is a literal within the known rank.
fn axis(cx: &mut InferCx) -> Result<Option<usize>, Diagnostic> {
    let value = match (cx.args.get(1).map(|a| a.kind()), cx.infos.get(1)) {
        (Some(ExprKind::Prim(p)), _) => p.as_int(),
        (_, Some(StructInfo::Prim { value: Some(p), .. })) => p.as_int(),
        _ => None,
    };
    let Some(i) = value else { return Ok(None) };
    if i < 0 || cx.tensor(0)?.ndim.is_some_and(|n| i >= n as i64) {
        return Err(cx.error(format!("axis {i} is out of range")));
    }
    Ok(Some(i as usize))
}

/// The dtype that operand `i` states, if it is a literal.
fn dtype_operand(cx: &InferCx, i: usize) -> Option<DType> {
    match cx.args.get(i).map(|a| a.kind()) {
        Some(ExprKind::DType(d)) => Some(*d),
        Some(ExprKind::Str(s)) => s.parse().ok(),
        _ => None,
    }
}

/// A tensor in a storage.
fn placed(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    if !matches!(cx.infos.get(1), Some(StructInfo::Prim { .. }) | None) {
        return Err(cx.error("the offset must be a scalar"));
    }
    tensor_at(cx, 2, 3)
}

/// A tensor whose shape and dtype are operands.
fn tensor_at(cx: &mut InferCx, shape: usize, dtype: usize) -> Result<StructInfo, Diagnostic> {
    let dtype = dtype_operand(cx, dtype);
    Ok(StructInfo::Tensor(shaped(cx, shape, dtype)?))
}

fn shaped(cx: &InferCx, i: usize, dtype: Option<DType>) -> Result<TensorInfo, Diagnostic> {
    match cx.infos.get(i) {
        Some(StructInfo::Shape { values: Some(v), .. }) => Ok(TensorInfo::dims(v.clone(), dtype)),
        Some(StructInfo::Shape { values: None, ndim }) => {
            let shape = cx.args.get(i).and_then(|a| a.as_var()).map(|v| TensorShape::Var(v.clone()));
            Ok(TensorInfo { shape, dtype, ndim: *ndim, vdevice: None })
        }
        Some(StructInfo::Object) => Ok(TensorInfo { shape: None, dtype, ndim: None, vdevice: None }),
        _ => Err(cx.error(format!("operand {} must be a shape", i + 1))),
    }
}

/// Requires the new tensor's bytes to lie within the old one's, where both are known.
fn view(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let old = cx.tensor(0)?.clone();
    let dtype = if cx.has(2) { dtype_operand(cx, 2) } else { old.dtype };
    let mut new = if cx.has(1) { shaped(cx, 1, dtype)? } else { TensorInfo { dtype, ..old.clone() } };
    new.vdevice = old.vdevice.clone();
    match cx.infos.get(3).filter(|_| cx.has(3)) {
        Some(StructInfo::Prim { dtype, .. }) if *dtype != DType::I64 => {
            return Err(cx.error(format!("relative_byte_offset must be int64, it is {dtype}")));
        }
        Some(StructInfo::Tensor(_) | StructInfo::Shape { .. }) => {
            return Err(cx.error("relative_byte_offset must be a scalar"));
        }
        _ => {}
    }
    let offset = match (cx.has(3), cx.args.get(3).map(|a| a.kind()), cx.infos.get(3)) {
        (false, ..) => Some(PrimExpr::i64(0)),
        (_, Some(ExprKind::Prim(p)), _) => Some(p.clone()),
        (_, _, Some(StructInfo::Prim { value, .. })) => value.clone(),
        _ => None,
    };
    if let (Some(a), Some(da), Some(b), Some(db), Some(offset)) =
        (old.known_dims(), old.dtype, new.known_dims(), new.dtype, offset)
    {
        let have = PrimExpr::product(a) * PrimExpr::i64(da.bytes() as i64);
        let need = PrimExpr::product(b) * PrimExpr::i64(db.bytes() as i64) + offset.clone();
        let given = cx.has(3);
        cx.require(PrimExpr::raw_binary(BinOp::Le, need, have), || {
            "the view reaches past the end of the tensor".to_string()
        })?;
        if given {
            cx.require(PrimExpr::raw_binary(BinOp::Ge, offset, PrimExpr::i64(0)), || {
                "the byte offset of a view must not be negative".to_string()
            })?;
        }
    }
    // Of one dtype, known or not: more elements are more bytes.
    if let (None, None, false, Some(a), Some(b)) = (old.dtype, new.dtype, cx.has(2), old.known_dims(), new.known_dims())
    {
        let more = PrimExpr::raw_binary(BinOp::Gt, PrimExpr::product(b), PrimExpr::product(a));
        if cx.facts.prove(&more) == crate::op::Answer::Yes {
            return Err(cx.error("the view reaches past the end of the tensor"));
        }
    }
    Ok(StructInfo::Tensor(new))
}
