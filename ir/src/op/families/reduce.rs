//! Reductions over axes. Float16 and bfloat16 accumulate in float32.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, wide, wide_dtype};
use crate::op::rule::dims_text;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::{StructInfo, TensorInfo};
use crate::tir::{Buffer, KernelBuilder, PrimFunc, Reducer};

const RED: &[ParamDecl] = &[operand("x"), attr("axis", Default::None), attr("keepdims", Default::Bool(false))];

macro_rules! reduction {
    ($name:literal, $fold:expr, $doc:literal) => {
        OpDecl::pure($name, $doc, RED, infer, Compute::Kernel(|cx| reduce(cx, $fold)))
    };
}

pub static OPS: &[OpDecl] = &[
    reduction!("sum", Fold::Sum, "The sum over `axis` (one, several or all); of bools, whether any is true."),
    reduction!("prod", Fold::Prod, "The product over `axis` (one, several or all); of bools, whether all are true."),
    reduction!("max", Fold::Max, "The maximum over `axis` (one, several or all); the least value of an empty range."),
    reduction!("min", Fold::Min, "The minimum over `axis` (one, several or all); the largest value of an empty range."),
    OpDecl::pure(
        "mean",
        "The mean over `axis` (one, several or all); integers truncate.",
        RED,
        infer,
        Compute::Kernel(|cx| moments(cx, Moment::Mean)),
    )
    .ulp(4),
    OpDecl::pure(
        "variance",
        "The mean of the squared distances from the mean over `axis` (one, several or all).",
        RED,
        infer,
        Compute::Kernel(|cx| moments(cx, Moment::Variance)),
    )
    .ulp(8),
    OpDecl::pure(
        "std",
        "The square root of the variance over `axis` (one, several or all).",
        RED,
        infer,
        Compute::Kernel(|cx| moments(cx, Moment::Std)),
    )
    .ulp(8),
    OpDecl::pure(
        "median",
        "The median over `axis`: the lower one of an even number of elements. Over a single axis the result is a tuple of \
         the median and its int64 index.",
        RED,
        infer_median,
        Compute::Kernel(super::sort::median),
    ),
    OpDecl::pure(
        "collapse_sum_like",
        "The sum of `data` over the dims that broadcasting the shape of `collapse_target` to it would add or repeat.",
        &[operand("data"), operand("collapse_target")],
        infer_collapse_like,
        Compute::Kernel(collapse),
    ),
    OpDecl::pure(
        "collapse_sum_to",
        "The sum of `data` over the dims that broadcasting `shape` to it would add or repeat.",
        &[operand("data"), operand("shape")],
        infer_collapse_to,
        Compute::Kernel(collapse),
    ),
];

/// The shape of a reduction of operand 0 by attributes `axis` and `keepdims`.
pub fn reduced(cx: &InferCx) -> Result<TensorInfo, Diagnostic> {
    let t = cx.tensor(0)?;
    let keep = cx.attrs.bool("keepdims").unwrap_or(false);
    let Some(ndim) = t.ndim else {
        let all = cx.attrs.get("axis").is_none_or(|a| a.is_none());
        return Ok(if all && !keep { t.with_dims(Some(vec![]), None) } else { t.with_dims(None, None) });
    };
    let axes = cx.axes("axis", ndim)?.unwrap_or_else(|| (0..ndim).collect());
    let left = if keep { ndim } else { ndim - axes.len() };
    let dims = match t.known_dims() {
        Some(d) => Some(reduced_dims(d, &axes, keep)),
        None if left == 0 => Some(vec![]),
        None if keep && axes.len() == ndim => Some(vec![PrimExpr::i64(1); ndim]),
        None => None,
    };
    Ok(t.with_dims(dims, Some(left)))
}

fn reduced_dims(dims: &[PrimExpr], axes: &[usize], keep: bool) -> Vec<PrimExpr> {
    dims.iter()
        .enumerate()
        .filter_map(|(i, d)| match axes.contains(&i) {
            false => Some(d.clone()),
            true if keep => Some(PrimExpr::i64(1)),
            true => None,
        })
        .collect()
}

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Ok(StructInfo::Tensor(reduced(cx)?))
}

/// Whether attribute `axis` names a single axis.
pub fn one_axis(attrs: &crate::Attrs) -> bool {
    attrs.ints("axis").is_some_and(|a| a.len() == 1)
}

fn infer_median(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = reduced(cx)?;
    if !one_axis(cx.attrs) {
        return Ok(StructInfo::Tensor(t));
    }
    let index = t.with_dtype(Some(DType::I64));
    Ok(StructInfo::Tuple(vec![StructInfo::Tensor(t), StructInfo::Tensor(index)]))
}

/// How a reduction maps indices: over which dims of the input, and where the dims of the result come from.
pub struct Reduction {
    pub axes: Vec<usize>,
    pub keep: bool,
    pub ndim: usize,
    /// Dims of the result.
    pub out: Vec<PrimExpr>,
    /// Dims reduced over.
    pub extents: Vec<PrimExpr>,
}

impl Reduction {
    /// The reduction that attributes `axis` and `keepdims` describe.
    pub fn of(cx: &ComputeCx) -> Result<Reduction, Diagnostic> {
        let x = cx.tensor(0)?;
        let mut axes = cx.axes("axis", x.dims.len())?.unwrap_or_else(|| (0..x.dims.len()).collect());
        axes.sort_unstable();
        Ok(Reduction::new(x.dims, axes, cx.attrs.bool("keepdims").unwrap_or(false)))
    }

    pub fn new(dims: &[PrimExpr], axes: Vec<usize>, keep: bool) -> Reduction {
        let out = reduced_dims(dims, &axes, keep);
        let extents = axes.iter().map(|&a| dims[a].clone()).collect();
        Reduction { axes, keep, ndim: dims.len(), out, extents }
    }

    /// The index of the input for index `i` of the result and `r` of the reduced dims.
    pub fn index(&self, i: &[PrimExpr], r: &[PrimExpr]) -> Vec<PrimExpr> {
        let mut spatial = i.iter();
        let mut out = vec![];
        for d in 0..self.ndim {
            match self.axes.iter().position(|&a| a == d) {
                Some(p) => {
                    out.push(r[p].clone());
                    if self.keep {
                        spatial.next();
                    }
                }
                None => out.extend(spatial.next().cloned()),
            }
        }
        out
    }

    /// The number of elements that make one element of the result.
    pub fn count(&self) -> PrimExpr {
        PrimExpr::product(&self.extents)
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum Fold {
    Sum,
    Prod,
    Max,
    Min,
}

impl Fold {
    fn init(self, d: DType) -> PrimExpr {
        match self {
            Fold::Sum => PrimExpr::zero(d),
            Fold::Prod => PrimExpr::one(d),
            Fold::Max if d.is_float() => PrimExpr::float(d, f64::NEG_INFINITY),
            Fold::Min if d.is_float() => PrimExpr::float(d, f64::INFINITY),
            Fold::Max => PrimExpr::min_value(d),
            Fold::Min => PrimExpr::max_value(d),
        }
    }

    fn combine(self, a: PrimExpr, b: PrimExpr) -> PrimExpr {
        let bools = a.dtype().is_bool();
        match self {
            Fold::Sum | Fold::Max if bools => a.or(b),
            Fold::Prod | Fold::Min if bools => a.and(b),
            Fold::Sum => a + b,
            Fold::Prod => a * b,
            Fold::Max => a.max(b),
            Fold::Min => a.min(b),
        }
    }
}

/// A stage that folds `f` over the reduced dims, in `d`.
pub fn fold(
    k: &mut KernelBuilder,
    name: &str,
    r: &Reduction,
    d: DType,
    how: Fold,
    f: impl FnOnce(&[PrimExpr], &[PrimExpr]) -> PrimExpr,
) -> Buffer {
    let reducer = Reducer { init: how.init(d), combine: &|a, b| how.combine(a, b) };
    k.reduce(name, &r.out, d, &r.extents, reducer, f)
}

/// The stage in the dtype of the result.
fn narrow(k: &mut KernelBuilder, b: Buffer, to: DType) -> Buffer {
    if b.dtype() == to {
        return b;
    }
    let dims = b.shape.clone();
    k.compute("cast", &dims, to, |i| convert(b.at(i), to))
}

fn reduce(cx: &ComputeCx, how: Fold) -> Result<PrimFunc, Diagnostic> {
    let r = Reduction::of(cx)?;
    let (mut k, inputs) = cx.kernel()?;
    let d = inputs[0].dtype();
    let acc = fold(&mut k, "red", &r, wide_dtype(d), how, |i, j| wide(inputs[0].at(r.index(i, j))));
    let y = narrow(&mut k, acc, d);
    Ok(k.finish(&[y]))
}

#[derive(Clone, Copy, PartialEq)]
enum Moment {
    Mean,
    Variance,
    Std,
}

fn moments(cx: &ComputeCx, what: Moment) -> Result<PrimFunc, Diagnostic> {
    let r = Reduction::of(cx)?;
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let out = x.dtype();
    let d = if out.is_bool() { DType::I32 } else { wide_dtype(out) };
    let divide = |e: PrimExpr| if d.is_float() { e / r.count().cast(d) } else { e.trunc_div(r.count().cast(d)) };
    let element = |i: &[PrimExpr], j: &[PrimExpr]| convert(x.at(r.index(i, j)), d);
    let sum = fold(&mut k, "sum", &r, d, Fold::Sum, element);
    if what == Moment::Mean {
        let y = k.compute("mean", &r.out, out, |i| convert(divide(sum.at(i)), out));
        return Ok(k.finish(&[y]));
    }
    let mean = k.compute("mean", &r.out, d, |i| divide(sum.at(i)));
    let squares = fold(&mut k, "squares", &r, d, Fold::Sum, |i, j| {
        let gap = element(i, j) - mean.at(i);
        gap.clone() * gap
    });
    let y = k.compute("variance", &r.out, out, |i| {
        let v = divide(squares.at(i));
        convert(if what == Moment::Std && d.is_float() { v.call1(Intrin::Sqrt) } else { v }, out)
    });
    Ok(k.finish(&[y]))
}

fn infer_collapse_like(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let target = cx.tensor(1)?.clone();
    let dims = target.known_dims().map(<[PrimExpr]>::to_vec);
    collapse_rule(cx, dims, target.ndim)
}

fn infer_collapse_to(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (dims, ndim) = cx.shape_operand(1)?;
    collapse_rule(cx, dims, ndim)
}

fn collapse_rule(
    cx: &mut InferCx,
    target: Option<Vec<PrimExpr>>,
    ndim: Option<usize>,
) -> Result<StructInfo, Diagnostic> {
    let data = cx.tensor(0)?.clone();
    if let (Some(n), Some(m)) = (data.ndim, ndim) {
        if m > n {
            return Err(cx.error(format!("the target has {m} dims, more than the {n} of data")));
        }
    }
    if let (Some(from), Some(to)) = (data.known_dims(), &target) {
        let lead = from.len() - to.len();
        for (a, b) in from[lead..].iter().zip(to) {
            if !b.is_int(1) {
                cx.require_eq(a, b, || {
                    format!("data of shape {} does not collapse to {}", dims_text(from), dims_text(to))
                })?;
            }
        }
    }
    Ok(StructInfo::Tensor(data.with_dims(target, ndim)))
}

fn collapse(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let out = cx.result()?;
    let lead = x.ndim() - out.dims.len();
    let axes: Vec<usize> =
        (0..x.ndim()).filter(|&a| a < lead || (out.dims[a - lead].is_int(1) && !x.shape[a].is_int(1))).collect();
    if axes.is_empty() {
        let y = k.compute("copy", out.dims, out.dtype, |i| x.at(i));
        return Ok(k.finish(&[y]));
    }
    let r = Reduction {
        extents: axes.iter().map(|&a| x.shape[a].clone()).collect(),
        axes,
        keep: false,
        ndim: 0,
        out: out.dims.to_vec(),
    };
    let acc = fold(&mut k, "red", &r, wide_dtype(out.dtype), Fold::Sum, |i, j| {
        let at = |a: usize| match r.axes.iter().position(|&b| b == a) {
            Some(p) => j[p].clone(),
            None => i[a - lead].clone(),
        };
        wide(x.at((0..x.ndim()).map(at).collect::<Vec<_>>()))
    });
    let y = narrow(&mut k, acc, out.dtype);
    Ok(k.finish(&[y]))
}
