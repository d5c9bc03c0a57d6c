//! Tensors from shapes and scalars, and triangular masks.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, wide_dtype, Elem};
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::{StructInfo, TensorInfo};
use crate::tir::PrimFunc;

const DTYPE: ParamDecl = attr("dtype", Default::None);

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "arange",
        "`start, start + step, ..` up to `end` (exclusive) as a vector; `arange(end)` starts at 0. The dtype is int64 when \
         all operands are integers, float32 else.",
        &[operand("start"), optional("end"), optional("step"), DTYPE],
        infer_arange,
        Compute::Kernel(arange),
    ),
    OpDecl::pure(
        "eye",
        "An `n` by `m` matrix with ones on diagonal `k` (`j - i == k`).",
        &[operand("n"), optional("m"), optional("k"), attr("dtype", Default::Str("float32"))],
        infer_eye,
        Compute::Kernel(|cx| eye(cx, 2)),
    ),
    OpDecl::pure(
        "eye_like",
        "A matrix of the shape of `x` with ones on diagonal `k`.",
        &[operand("x"), optional("k"), DTYPE],
        |cx| {
            if let Some(n) = cx.tensor(0)?.ndim.filter(|n| *n != 2) {
                return Err(cx.error(format!("x must have two dims, it has {n}")));
            }
            infer_like(cx)
        },
        Compute::Kernel(|cx| eye(cx, 1)),
    ),
    OpDecl::pure(
        "full",
        "A tensor of the given shape filled with a scalar.",
        &[operand("shape"), operand("fill_value"), DTYPE],
        infer_full,
        Compute::Kernel(fill_operand),
    ),
    OpDecl::pure(
        "full_like",
        "A tensor of the shape of `x` filled with a scalar, in the dtype of `x` unless given.",
        &[operand("x"), operand("fill_value"), DTYPE],
        infer_like,
        Compute::Kernel(fill_operand),
    ),
    OpDecl::pure(
        "ones",
        "A tensor of the given shape filled with one.",
        &[operand("shape"), attr("dtype", Default::Required)],
        infer_shaped,
        Compute::Kernel(|cx| fill(cx, 1)),
    ),
    OpDecl::pure(
        "zeros",
        "A tensor of the given shape filled with zero.",
        &[operand("shape"), attr("dtype", Default::Required)],
        infer_shaped,
        Compute::Kernel(|cx| fill(cx, 0)),
    ),
    OpDecl::pure(
        "ones_like",
        "A tensor of the shape of `x` filled with one.",
        &[operand("x"), DTYPE],
        infer_like,
        Compute::Kernel(|cx| fill(cx, 1)),
    ),
    OpDecl::pure(
        "zeros_like",
        "A tensor of the shape of `x` filled with zero.",
        &[operand("x"), DTYPE],
        infer_like,
        Compute::Kernel(|cx| fill(cx, 0)),
    ),
    OpDecl::pure(
        "tril",
        "The elements of matrices on and below diagonal `k`, zero elsewhere; the last two dims are the matrix.",
        &[operand("x"), optional("k")],
        infer_tri,
        Compute::Kernel(|cx| tri(cx, true)),
    ),
    OpDecl::pure(
        "triu",
        "The elements of matrices on and above diagonal `k`, zero elsewhere; the last two dims are the matrix.",
        &[operand("x"), optional("k")],
        infer_tri,
        Compute::Kernel(|cx| tri(cx, false)),
    ),
    OpDecl::pure(
        "hamming_window",
        "`alpha - beta * cos(2 pi i / N)` for `i` below `window_size`; `N` is the size when periodic, one less else.",
        &[
            operand("window_size"),
            operand("periodic"),
            operand("alpha"),
            operand("beta"),
            attr("dtype", Default::Required),
        ],
        infer_window,
        Compute::Kernel(window),
    )
    .ulp(8),
];

fn result(dims: Option<Vec<PrimExpr>>, ndim: Option<usize>, dtype: Option<DType>) -> Result<StructInfo, Diagnostic> {
    Ok(StructInfo::Tensor(TensorInfo::dims(vec![], dtype).with_dims(dims, ndim)))
}

/// Start, end and step; `arange(end)` and a missing step are filled in.
fn range(
    start: Option<PrimExpr>,
    end: Option<PrimExpr>,
    step: Option<PrimExpr>,
    has_end: bool,
) -> Option<(PrimExpr, PrimExpr, PrimExpr)> {
    let step = step.unwrap_or_else(|| PrimExpr::i64(1));
    if has_end {
        Some((start?, end?, step))
    } else {
        Some((PrimExpr::i64(0), start?, step))
    }
}

fn infer_arange(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    for i in 0..3 {
        if cx.has(i) && cx.scalar(i).is_none() && !matches!(cx.infos.get(i), Some(StructInfo::Prim { .. })) {
            return Err(cx.error(format!("operand {} must be a scalar", cx.operand(i))));
        }
    }
    let is_float = |i: usize| matches!(cx.infos.get(i), Some(StructInfo::Prim { dtype, .. }) if dtype.is_float());
    let floats = (0..3).any(|i| cx.has(i) && is_float(i));
    let dtype = cx.dtype("dtype")?.unwrap_or(if floats { DType::F32 } else { DType::I64 });
    if cx.has(2) && cx.scalar(2).is_none() {
        return result(None, Some(1), Some(dtype));
    }
    let Some((start, end, step)) = range(cx.scalar(0), cx.scalar(1), cx.scalar(2), cx.has(1)) else {
        return result(None, Some(1), Some(dtype));
    };
    if step.is_int(0) || step.as_float() == Some(0.0) {
        return Err(cx.error("step is 0"));
    }
    let number = |e: &PrimExpr| e.as_float().or(e.as_int().map(|v| v as f64));
    let len = match (number(&start), number(&end), number(&step)) {
        (Some(s), Some(e), Some(by)) => PrimExpr::i64(((e - s) / by).ceil().max(0.0) as i64),
        _ if [&start, &end, &step].iter().any(|e| !e.dtype().is_int()) => {
            return Err(cx.error("the length is known only when bounds that are no integers are literals"));
        }
        _ => {
            let (s, e, by) = (start.cast(DType::I64), end.cast(DType::I64), step.cast(DType::I64));
            let len = match by.as_int() {
                Some(v) if v < 0 => (s - e + PrimExpr::i64(-v - 1)).floor_div(PrimExpr::i64(-v)),
                _ => (e - s + by.clone() - 1).floor_div(by),
            };
            cx.simplify(len)
        }
    };
    result(Some(vec![len]), None, Some(dtype))
}

fn arange(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (start, _, step) = range(cx.scalar(0), cx.scalar(1), cx.scalar(2), cx.has(1))
        .ok_or_else(|| cx.error("the bounds are not known"))?;
    let open = |e: Option<PrimExpr>| e.is_some_and(|e| !e.dtype().is_int() && e.as_float().is_none());
    if (0..3).any(|i| open(cx.scalar(i))) {
        return Err(cx.error("the length is known only when bounds that are no integers are literals"));
    }
    let (mut k, _) = cx.kernel()?;
    let out = cx.result()?;
    let y = k.compute("arange", out.dims, out.dtype, |i| {
        let d = if start.dtype().is_float() || step.dtype().is_float() { wide_dtype(out.dtype) } else { DType::I64 };
        convert(convert(start, d) + convert(i[0].clone(), d) * convert(step, d), out.dtype)
    });
    Ok(k.finish(&[y]))
}

fn infer_eye(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let dtype = cx.dtype("dtype")?.unwrap_or(DType::F32);
    for i in 0..3 {
        match cx.infos.get(i) {
            Some(StructInfo::Prim { dtype, .. }) if dtype.is_float() => {
                return Err(cx.error(format!("{} must be an integer, it is {dtype}", cx.operand(i))));
            }
            _ => {}
        }
    }
    let n = cx.scalar(0);
    let m = if cx.has(1) { cx.scalar(1) } else { n.clone() };
    let dims = n.zip(m).map(|(n, m)| vec![n.cast(DType::I64), m.cast(DType::I64)]);
    result(dims, Some(2), Some(dtype))
}

/// Columns that int32 counts.
const MOST_COUNTED: i64 = 1 << 30;

fn eye(cx: &ComputeCx, k_operand: usize) -> Result<PrimFunc, Diagnostic> {
    let diagonal = diagonal(cx, k_operand)?;
    let (mut k, _) = cx.kernel()?;
    let out = cx.result()?;
    // Places of few columns are numbers that wide vectors count.
    let columns = out.dims[1].as_int().filter(|n| *n <= MOST_COUNTED);
    let y = k.compute("eye", out.dims, out.dtype, |i| {
        let one = match columns {
            Some(n) => (i[0].clone() + diagonal).max(-1).min(n).cast(DType::I32).eq(i[1].clone().cast(DType::I32)),
            None => (i[1].clone() - i[0].clone()).eq(diagonal),
        };
        convert(one, out.dtype)
    });
    Ok(k.finish(&[y]))
}

/// Scalar operand `i` as int64, 0 when it is not given.
fn diagonal(cx: &ComputeCx, i: usize) -> Result<PrimExpr, Diagnostic> {
    match cx.scalar(i) {
        Some(k) => Ok(k.cast(DType::I64)),
        None if cx.has(i) => Err(cx.error("the value of k is not known")),
        None => Ok(PrimExpr::i64(0)),
    }
}

/// A tensor of rank 0: scalars are written `R.const(value, dtype)`.
fn fill_value(cx: &InferCx) -> Result<TensorInfo, Diagnostic> {
    match cx.infos.get(1) {
        Some(StructInfo::Tensor(t)) if t.ndim.is_none_or(|n| n == 0) => Ok(t.clone()),
        _ => Err(cx.error("fill_value must be a tensor of rank 0, such as R.const(0, \"float32\")")),
    }
}

fn infer_full(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (dims, ndim) = cx.shape_operand(0)?;
    let value = fill_value(cx)?;
    let dtype = cx.dtype("dtype")?.or(value.dtype);
    result(dims, ndim, dtype)
}

fn infer_shaped(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (dims, ndim) = cx.shape_operand(0)?;
    let dtype = cx.dtype("dtype")?.ok_or_else(|| cx.error("dtype is missing"))?;
    result(dims, ndim, Some(dtype))
}

fn infer_like(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    if cx.op.name == "full_like" {
        fill_value(cx)?;
    }
    let dtype = cx.dtype("dtype")?;
    let t = cx.tensor(0)?;
    Ok(StructInfo::Tensor(t.with_dtype(dtype.or(t.dtype))))
}

fn fill_operand(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, elems) = cx.elems()?;
    let out = cx.result()?;
    let value = elems.into_iter().nth(1).flatten().ok_or_else(|| cx.error("fill_value is missing"))?;
    let value = match value {
        Elem::Buffer(b) => b.at(vec![PrimExpr::i64(0); b.ndim()]),
        Elem::Value(v) => v,
    };
    let y = k.compute("full", out.dims, out.dtype, |_| convert(value, out.dtype));
    Ok(k.finish(&[y]))
}

fn fill(cx: &ComputeCx, value: i64) -> Result<PrimFunc, Diagnostic> {
    let (mut k, _) = cx.kernel()?;
    let out = cx.result()?;
    let y = k.compute("fill", out.dims, out.dtype, |_| PrimExpr::int(out.dtype, value));
    Ok(k.finish(&[y]))
}

fn infer_tri(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    match t.ndim {
        Some(n) if n < 2 => Err(cx.error(format!("x must have at least 2 dims, it has {n}"))),
        _ => Ok(StructInfo::Tensor(t)),
    }
}

fn tri(cx: &ComputeCx, lower: bool) -> Result<PrimFunc, Diagnostic> {
    let diagonal = diagonal(cx, 1)?;
    let (mut k, inputs) = cx.kernel()?;
    let out = cx.result()?;
    let y = k.compute("trilu", out.dims, out.dtype, |i| {
        let (row, col) = (i[i.len() - 2].clone(), i[i.len() - 1].clone());
        let kept = if lower { col.le(row + diagonal) } else { col.ge(row + diagonal) };
        kept.select(inputs[0].at(i), PrimExpr::zero(out.dtype))
    });
    Ok(k.finish(&[y]))
}

fn infer_window(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let dtype = cx.dtype("dtype")?.unwrap_or(DType::F32);
    cx.require_float(0, Some(dtype)).map_err(|_| cx.error(format!("dtype must be a float type, it is {dtype}")))?;
    let size = cx.scalar(0).map(|n| vec![n.cast(DType::I64)]);
    result(size, Some(1), Some(dtype))
}

fn window(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let float = |i: usize| cx.scalar(i).and_then(|e| e.as_float().or(e.as_int().map(|v| v as f64)));
    let (Some(periodic), Some(alpha), Some(beta)) = (float(1), float(2), float(3)) else {
        return Err(cx.error("periodic, alpha and beta must be literals"));
    };
    let (mut k, _) = cx.kernel()?;
    let out = cx.result()?;
    let d = wide_dtype(out.dtype);
    let n = if periodic != 0.0 { out.dims[0].clone() } else { out.dims[0].clone() - 1 };
    let y = k.compute("hamming_window", out.dims, out.dtype, |i| {
        // A window of one element is that element, as in TVM and PyTorch.
        if out.dims[0].is_int(1) {
            return PrimExpr::float(d, 1.0);
        }
        let turn = PrimExpr::float(d, std::f64::consts::TAU) * i[0].clone().cast(d) / n.max(PrimExpr::i64(1)).cast(d);
        PrimExpr::float(d, alpha) - PrimExpr::float(d, beta) * turn.call1(Intrin::Cos)
    });
    Ok(k.finish(&[y]))
}
