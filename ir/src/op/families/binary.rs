//! Elementwise arithmetic, bit and logical operations of two tensors, with broadcasting.
//!
//! Shapes align at the right; dims are equal or 1. Both operands have the same dtype; either may be a scalar value.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::{BinOp, Intrin, PrimExpr};
use crate::relax::StructInfo;

const XY: &[ParamDecl] = &[operand("x1"), operand("x2")];

macro_rules! binary {
    ($name:literal, $doc:literal, $f:expr) => {
        binary!($name, $doc, arith, $f)
    };
    ($name:literal, $doc:literal, $infer:expr, $f:expr) => {
        OpDecl::pure(
            $name,
            $doc,
            XY,
            $infer,
            Compute::Kernel(|cx| {
                cx.elementwise(|x| {
                    let (a, b) = alike(&x[0], &x[1]);
                    $f(a, b)
                })
            }),
        )
    };
}

pub static OPS: &[OpDecl] = &[
    binary!("add", "`x1 + x2` with broadcasting.", |a, b| number(a) + number(b)),
    binary!("subtract", "`x1 - x2` with broadcasting.", |a, b| number(a) - number(b)),
    binary!("multiply", "`x1 * x2` with broadcasting.", |a, b| number(a) * number(b)),
    binary!("divide", "`x1 / x2` with broadcasting; integers truncate.", |a: PrimExpr, b| {
        if a.dtype().is_float() {
            a / b
        } else {
            number(a).trunc_div(number(b))
        }
    }),
    binary!("floor_divide", "`floor(x1 / x2)` with broadcasting.", |a: PrimExpr, b| {
        if a.dtype().is_float() {
            (a / b).call1(Intrin::Floor)
        } else {
            number(a).floor_div(number(b))
        }
    }),
    binary!("floor_mod", "`x1 - floor(x1 / x2) * x2` with broadcasting.", |a: PrimExpr, b: PrimExpr| {
        if a.dtype().is_float() {
            let floor = (a.clone() / b.clone()).call1(Intrin::Floor);
            a - floor * b
        } else {
            number(a).floor_mod(number(b))
        }
    }),
    binary!(
        "mod",
        "The remainder of the truncated quotient (C's `%` and `fmod`), with broadcasting.",
        |a: PrimExpr, b| {
            if a.dtype().is_float() {
                PrimExpr::call(Intrin::Fmod, [a, b])
            } else {
                number(a).trunc_mod(number(b))
            }
        }
    ),
    binary!("power", "`x1 ** x2` with broadcasting.", |a: PrimExpr, b: PrimExpr| {
        if a.dtype().is_float() {
            PrimExpr::call(Intrin::Pow, [a, b])
        } else {
            PrimExpr::call(Intrin::Pow, [number(a).cast(DType::F64), number(b).cast(DType::F64)])
        }
    })
    .ulp(4),
    binary!(
        "atan2",
        "The angle of the point `(x2, x1)`, with broadcasting, float dtypes.",
        float_arith,
        |a: PrimExpr, b| PrimExpr::call(Intrin::Atan2, [a, b])
    )
    .ulp(4),
    binary!("maximum", "The larger of both, with broadcasting; `x2` when `x1` is NaN.", |a: PrimExpr, b| {
        if a.dtype().is_bool() {
            a.or(b)
        } else {
            a.max(b)
        }
    }),
    binary!("minimum", "The smaller of both, with broadcasting; `x2` when `x1` is NaN.", |a: PrimExpr, b| {
        if a.dtype().is_bool() {
            a.and(b)
        } else {
            a.min(b)
        }
    }),
    binary!(
        "log_add_exp",
        "`log(exp(x1) + exp(x2))` with broadcasting, without overflow, float dtypes.",
        float_arith,
        |a: PrimExpr, b: PrimExpr| log_add_exp(&a, &b)
    )
    .ulp(8),
    binary!("bitwise_and", "Bitwise and of integers or bools, with broadcasting.", bitwise, |a, b| bits(
        BinOp::BitAnd,
        a,
        b
    )),
    binary!("bitwise_or", "Bitwise or of integers or bools, with broadcasting.", bitwise, |a, b| bits(
        BinOp::BitOr,
        a,
        b
    )),
    binary!("bitwise_xor", "Bitwise exclusive or of integers or bools, with broadcasting.", bitwise, |a, b| bits(
        BinOp::BitXor,
        a,
        b
    )),
    binary!("left_shift", "`x1 << x2` of integers, with broadcasting.", shift, |a, b| PrimExpr::binary(
        BinOp::Shl,
        a,
        b
    )),
    binary!("right_shift", "`x1 >> x2` of integers, with broadcasting; keeps the sign.", shift, |a, b| {
        PrimExpr::binary(BinOp::Shr, a, b)
    }),
    binary!("logical_and", "Logical and of bools, with broadcasting.", |a, b| both(truth(a), truth(b))),
    binary!("logical_or", "Logical or of bools, with broadcasting.", |a, b| either(truth(a), truth(b))),
    binary!("logical_xor", "Logical exclusive or of bools, with broadcasting.", |a, b| truth(a).ne(truth(b))),
    OpDecl::pure(
        "ewise_fma",
        "`x1 * x2 + x3`, elementwise; the three operands have the same shape and dtype.",
        &[operand("x1"), operand("x2"), operand("x3")],
        arith3,
        Compute::Kernel(|cx| cx.elementwise(|x| x[0].clone() * x[1].clone() + x[2].clone())),
    ),
];

fn arith(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (a, b) = (cx.elements(0)?, cx.elements(1)?);
    if let (Some(x), Some(y)) = (&a.vdevice, &b.vdevice) {
        if x != y {
            return Err(cx.error(format!("x1 is on {x} and x2 on {y}: both must be on one device")));
        }
    }
    let dtype = cx.arithmetic_dtype(("x1", a.dtype), ("x2", b.dtype))?;
    Ok(StructInfo::Tensor(cx.broadcast(&[a, b])?.with_dtype(dtype)))
}

fn float_arith(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let d = cx.elements(0)?.dtype;
    cx.require_float(0, d)?;
    arith(cx)
}

fn bitwise(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    of_bits(cx, 2, "integers or bools", DType::is_float)?;
    arith(cx)
}

fn shift(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    of_bits(cx, 2, "integers", |d| d.is_float() || d.is_bool())?;
    arith(cx)
}

/// Refuses dtypes of operands whose bits mean nothing to an operator on bits.
pub fn of_bits(cx: &InferCx, operands: usize, of: &str, bad: fn(DType) -> bool) -> Result<(), Diagnostic> {
    for at in 0..operands {
        if let Some(d) = cx.elements(at)?.dtype.filter(|d| bad(*d)) {
            return Err(cx.error(format!("operand {} must be of {of}, it is {d}", cx.op.params[at].name)));
        }
    }
    Ok(())
}

fn arith3(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (a, b, c) = (cx.elements(0)?, cx.elements(1)?, cx.elements(2)?);
    let dtype = cx.same_dtype(&[("x1", a.dtype), ("x2", b.dtype), ("x3", c.dtype)])?;
    if let (Some(x), Some(y), Some(z)) = (a.ndim, b.ndim, c.ndim) {
        if x != y || y != z {
            return Err(cx.error(format!("the operands have {x}, {y} and {z} dims; they must have as many")));
        }
    }
    let known: Vec<(&str, &[PrimExpr])> =
        [("x1", &a), ("x2", &b), ("x3", &c)].into_iter().filter_map(|(n, t)| Some((n, t.known_dims()?))).collect();
    for (axis, pair) in known.windows(2).flat_map(|p| (0..p[0].1.len()).map(move |axis| (axis, p))) {
        let ((n, x), (m, y)) = ((pair[0].0, &pair[0].1[axis]), (pair[1].0, &pair[1].1[axis]));
        cx.require_eq(x, y, || {
            let (x, y) = (dim_text(x), dim_text(y));
            format!("the operands must have one shape: dim {axis} of {n} is {x}, that of {m} is {y}")
        })?;
    }
    let ndim = a.ndim.or(b.ndim).or(c.ndim);
    let dims = known.first().map(|(_, dims)| dims.to_vec());
    Ok(StructInfo::Tensor(a.with_dims(dims, ndim).with_dtype(dtype)))
}

/// A bool beside a number becomes a number of its dtype.
fn alike(a: &PrimExpr, b: &PrimExpr) -> (PrimExpr, PrimExpr) {
    match (a.dtype(), b.dtype()) {
        (x, y) if x == y => (a.clone(), b.clone()),
        (x, _) if x.is_bool() => (elem::convert(a.clone(), b.dtype()), b.clone()),
        (x, _) => (a.clone(), elem::convert(b.clone(), x)),
    }
}

/// Bools count as 0 and 1 in arithmetic.
fn number(e: PrimExpr) -> PrimExpr {
    if e.dtype().is_bool() {
        e.cast(DType::I32)
    } else {
        e
    }
}

fn truth(e: PrimExpr) -> PrimExpr {
    elem::convert(e, DType::BOOL)
}

/// Whether both hold, where both may be read: `and` of kernels leaves the second alone when the first fails.
fn both(a: PrimExpr, b: PrimExpr) -> PrimExpr {
    a.select(b, PrimExpr::bool(false))
}

/// Whether one of them holds, where both may be read.
fn either(a: PrimExpr, b: PrimExpr) -> PrimExpr {
    a.select(PrimExpr::bool(true), b)
}

fn bits(op: BinOp, a: PrimExpr, b: PrimExpr) -> PrimExpr {
    match op {
        _ if !a.dtype().is_bool() => PrimExpr::binary(op, a, b),
        BinOp::BitAnd => both(a, b),
        BinOp::BitOr => either(a, b),
        _ => a.ne(b),
    }
}

/// `max + log1p(exp(-|a - b|))`; equal operands, infinite ones included, give `a + log 2`.
fn log_add_exp(a: &PrimExpr, b: &PrimExpr) -> PrimExpr {
    let d = a.dtype();
    let gap = (a.clone() - b.clone()).call1(Intrin::Abs).neg();
    let sum = a.clone().max(b.clone()) + gap.call1(Intrin::Exp).call1(Intrin::Log1p);
    a.clone().eq(b.clone()).select(a.clone() + PrimExpr::float(d, std::f64::consts::LN_2), sum)
}
