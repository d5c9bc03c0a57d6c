//! Elementwise functions of one tensor. Float16 and bfloat16 compute in float32.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::StructInfo;
use crate::tir::PrimFunc;

const X: &[ParamDecl] = &[operand("x")];

/// A function of floats that is one intrinsic.
macro_rules! float_fn {
    ($name:literal, $intrin:ident, $ulp:literal, $doc:literal) => {
        OpDecl::pure(
            $name,
            $doc,
            X,
            float,
            Compute::Kernel(|cx| cx.elementwise(|x| x[0].clone().call1(Intrin::$intrin))),
        )
        .ulp($ulp)
    };
}

/// A rounding: the identity on integers and bools.
macro_rules! rounding {
    ($name:literal, $intrin:ident, $doc:literal) => {
        OpDecl::pure(
            $name,
            $doc,
            X,
            any,
            Compute::Kernel(|cx| {
                cx.elementwise(
                    |x| if x[0].dtype().is_float() { x[0].clone().call1(Intrin::$intrin) } else { x[0].clone() },
                )
            }),
        )
    };
}

pub static OPS: &[OpDecl] =
    &[
        OpDecl::pure(
            "abs",
            "`|x|`, elementwise. Any dtype but bool.",
            X,
            number,
            Compute::Kernel(|cx| cx.elementwise(|x| abs(&x[0]))),
        ),
        float_fn!("acos", Acos, 4, "Arc cosine, elementwise, float dtypes."),
        float_fn!("acosh", Acosh, 4, "Inverse hyperbolic cosine, elementwise, float dtypes."),
        float_fn!("asin", Asin, 4, "Arc sine, elementwise, float dtypes."),
        float_fn!("asinh", Asinh, 4, "Inverse hyperbolic sine, elementwise, float dtypes."),
        float_fn!("atan", Atan, 4, "Arc tangent, elementwise, float dtypes."),
        float_fn!("atanh", Atanh, 4, "Inverse hyperbolic tangent, elementwise, float dtypes."),
        OpDecl::pure(
            "bitwise_not",
            "Bitwise complement of integers, logical not of bools, elementwise.",
            X,
            complement,
            Compute::Kernel(|cx| {
                cx.elementwise(|x| {
                    if x[0].dtype().is_bool() {
                        x[0].clone().not()
                    } else {
                        x[0].clone().call1(Intrin::BitNot)
                    }
                })
            }),
        ),
        rounding!("ceil", Ceil, "The smallest integer not below, elementwise; the identity on integers."),
        float_fn!("cos", Cos, 4, "Cosine, elementwise, float dtypes."),
        float_fn!("cosh", Cosh, 4, "Hyperbolic cosine, elementwise, float dtypes."),
        float_fn!("erf", Erf, 4, "Gauss error function, elementwise, float dtypes."),
        float_fn!("exp", Exp, 4, "`e**x`, elementwise, float dtypes."),
        rounding!("floor", Floor, "The largest integer not above, elementwise; the identity on integers."),
        OpDecl::pure(
            "isfinite",
            "Neither infinite nor NaN, elementwise, as bool; true of integers.",
            X,
            predicate,
            Compute::Kernel(|cx| test(cx, Intrin::IsFinite, true)),
        ),
        OpDecl::pure(
            "isinf",
            "Infinite, elementwise, as bool; false of integers.",
            X,
            predicate,
            Compute::Kernel(|cx| test(cx, Intrin::IsInf, false)),
        ),
        OpDecl::pure(
            "isnan",
            "Not a number, elementwise, as bool; false of integers.",
            X,
            predicate,
            Compute::Kernel(|cx| test(cx, Intrin::IsNan, false)),
        ),
        float_fn!("log", Log, 4, "Natural logarithm, elementwise, float dtypes."),
        OpDecl::pure(
            "logical_not",
            "Logical not of bools, elementwise.",
            X,
            logical,
            Compute::Kernel(|cx| cx.elementwise(|x| elem::convert(x[0].clone(), DType::BOOL).not())),
        ),
        OpDecl::pure(
            "negative",
            "`-x`, elementwise. Any dtype but bool.",
            X,
            number,
            Compute::Kernel(|cx| cx.elementwise(|x| x[0].clone().neg())),
        ),
        rounding!("round", Round, "The nearest integer, half to even, elementwise; the identity on integers."),
        float_fn!("rsqrt", Rsqrt, 2, "`1 / sqrt(x)`, elementwise, float dtypes."),
        float_fn!("sigmoid", Sigmoid, 4, "`1 / (1 + exp(-x))`, elementwise, float dtypes."),
        OpDecl::pure(
            "sign",
            "-1, 0 or 1 by the sign, elementwise; 0 of -0.0 and of NaN. Any dtype but bool.",
            X,
            number,
            Compute::Kernel(|cx| cx.elementwise(|x| sign(&x[0]))),
        ),
        float_fn!("sin", Sin, 4, "Sine, elementwise, float dtypes."),
        float_fn!("sinh", Sinh, 4, "Hyperbolic sine, elementwise, float dtypes."),
        float_fn!("sqrt", Sqrt, 0, "Square root, elementwise, float dtypes."),
        OpDecl::pure(
            "square",
            "`x * x`, elementwise.",
            X,
            any,
            Compute::Kernel(|cx| {
                cx.elementwise(|x| if x[0].dtype().is_bool() { x[0].clone() } else { x[0].clone() * x[0].clone() })
            }),
        ),
        float_fn!("tan", Tan, 4, "Tangent, elementwise, float dtypes."),
        float_fn!("tanh", Tanh, 4, "Hyperbolic tangent, elementwise, float dtypes."),
        rounding!("trunc", Trunc, "Rounds towards zero, elementwise; the identity on integers."),
        OpDecl::pure(
            "clip",
            "`max(min(x, max), min)`, elementwise; the bounds are scalars and are converted to the dtype of `x`.",
            &[operand("x"), operand("min"), operand("max")],
            clipped,
            Compute::Kernel(|cx| cx.elementwise(|x| clip(&x[0], &x[1], &x[2]))),
        ),
    ];

/// The result has the shape and dtype of the first operand.
pub fn any(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Ok(StructInfo::Tensor(cx.tensor(0)?.clone()))
}

/// As [`any`], all dtypes but bool, for which TVM has no lowering of these.
fn number(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    super::binary::of_bits(cx, 1, "numbers", DType::is_bool)?;
    any(cx)
}

fn complement(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    super::binary::of_bits(cx, 1, "integers or bools", DType::is_float)?;
    any(cx)
}

fn clipped(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    for (at, name) in [(1, "min"), (2, "max")] {
        if let Some(StructInfo::Tensor(_)) = cx.infos.get(at) {
            let d = cx.error(format!("{name} must be a scalar, not a tensor"));
            return Err(
                d.help("write a number or R.prim_value(..); bounds that are tensors are R.maximum and R.minimum")
            );
        }
    }
    any(cx)
}

/// As [`any`], float dtypes only.
pub fn float(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    cx.require_float(0, t.dtype)?;
    Ok(StructInfo::Tensor(t))
}

fn predicate(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    super::binary::of_bits(cx, 1, "numbers", DType::is_bool)?;
    Ok(StructInfo::Tensor(cx.tensor(0)?.with_dtype(Some(DType::BOOL))))
}

fn logical(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    match t.dtype {
        Some(d) if !d.is_bool() => Err(cx.error(format!("the operand must be bool, it is {d}"))),
        _ => Ok(StructInfo::Tensor(t)),
    }
}

fn test(cx: &ComputeCx, f: Intrin, of_integers: bool) -> Result<PrimFunc, Diagnostic> {
    cx.elementwise(|x| if x[0].dtype().is_float() { x[0].clone().call1(f) } else { PrimExpr::bool(of_integers) })
}

fn abs(x: &PrimExpr) -> PrimExpr {
    let d = x.dtype();
    if d.is_uint() || d.is_bool() {
        x.clone()
    } else {
        x.clone().call1(Intrin::Abs)
    }
}

fn sign(x: &PrimExpr) -> PrimExpr {
    let d = x.dtype();
    if d.is_bool() {
        return x.clone();
    }
    let (zero, one) = (PrimExpr::zero(d), PrimExpr::one(d));
    let positive = x.clone().gt(zero.clone());
    if d.is_uint() {
        return positive.select(one, zero);
    }
    let below = x.clone().lt(zero.clone()).select(PrimExpr::int(d, -1), zero);
    positive.select(one, below)
}

/// Infinite bounds of integers are no bounds.
fn clip(x: &PrimExpr, min: &PrimExpr, max: &PrimExpr) -> PrimExpr {
    let d = x.dtype();
    let bounds = |b: &PrimExpr| d.is_float() || b.as_float().is_none_or(f64::is_finite);
    let mut y = x.clone();
    if bounds(max) {
        y = y.min(literal(max, d));
    }
    if bounds(min) {
        y = y.max(literal(min, d));
    }
    y
}

/// A scalar in another dtype; float literals become integer ones when integers are wanted.
fn literal(e: &PrimExpr, to: DType) -> PrimExpr {
    match e.as_float() {
        Some(v) if to.is_int() => PrimExpr::int(to, v as i64),
        _ => e.clone().cast(to),
    }
}
