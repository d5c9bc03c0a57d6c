//! Activations, remainders, shifts and bits.

use super::{one, op, OnnxOp};
use crate::onnx::node::NodeCx;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("Elu", &[(1, elu)]),
    op("Selu", &[(1, selu)]),
    op("Celu", &[(12, celu)]),
    op("HardSigmoid", &[(1, hard_sigmoid)]),
    op("HardSwish", &[(14, hard_swish)]),
    op("Mish", &[(18, mish)]),
    op("PRelu", &[(1, prelu)]),
    op("Shrink", &[(9, shrink)]),
    op("Softsign", &[(1, softsign)]),
    op("Swish", &[(24, swish)]),
    op("SwiGLU", &[(1, swiglu)]),
    op("ThresholdedRelu", &[(1, thresholded_relu)]),
    op("Hardmax", &[(1, hardmax_2d), (13, hardmax)]),
    op("IsInf", &[(10, is_inf)]),
    op("Mod", &[(10, modulo)]),
    op("BitShift", &[(11, bit_shift)]),
    op("BitCast", &[(1, bit_cast)]),
    op("Affine", &[(1, affine)]),
    op("ParametricSoftplus", &[(1, parametric_softplus)]),
    op("ScaledTanh", &[(1, scaled_tanh)]),
];

/// `x` by a scalar of its dtype.
fn by(cx: &mut NodeCx, relax: &str, x: &Tensor, v: f64) -> Res<Tensor> {
    let v = cx.like(x, v);
    cx.op(relax, &[x, &v])
}

/// 16-bit floats as float32: constants and steps between are rounded there.
fn widened(cx: &mut NodeCx) -> Res<(Tensor, DType)> {
    let x = cx.input(0)?;
    let dtype = x.dtype;
    let x = if dtype.is_float() && dtype.bits < 32 { cx.cast(&x, DType::F32)? } else { x };
    Ok((x, dtype))
}

/// `alpha * (exp(x / scale) - 1)` where `x` is negative.
fn exponential(cx: &mut NodeCx, x: &Tensor, alpha: f64, scale: f64) -> Res<Tensor> {
    let low = cx.at_most(x, 0.0)?;
    let low = if scale == 1.0 { low } else { by(cx, "divide", &low, scale)? };
    let low = cx.op("exp", &[&low])?;
    let low = by(cx, "subtract", &low, 1.0)?;
    let low = by(cx, "multiply", &low, alpha)?;
    let high = cx.at_least(x, 0.0)?;
    cx.op("add", &[&high, &low])
}

fn elu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, dtype) = widened(cx)?;
    let y = exponential(cx, &x, cx.float("alpha", 1.0), 1.0)?;
    one(cx.cast(&y, dtype)?)
}

fn selu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, dtype) = widened(cx)?;
    let early = cx.version < 6;
    let alpha = cx.float("alpha", if early { 1.6732 } else { 1.6732632 });
    let gamma = cx.float("gamma", if early { 1.0507 } else { 1.050701 });
    let y = exponential(cx, &x, alpha, 1.0)?;
    let y = by(cx, "multiply", &y, gamma)?;
    one(cx.cast(&y, dtype)?)
}

fn celu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, dtype) = widened(cx)?;
    let alpha = cx.float("alpha", 1.0);
    let y = exponential(cx, &x, alpha, alpha)?;
    one(cx.cast(&y, dtype)?)
}

/// `max(0, min(1, alpha * x + beta))`
fn hard(cx: &mut NodeCx, x: &Tensor, alpha: f64, beta: f64) -> Res<Tensor> {
    let y = by(cx, "multiply", x, alpha)?;
    let y = by(cx, "add", &y, beta)?;
    let y = cx.at_most(&y, 1.0)?;
    cx.at_least(&y, 0.0)
}

fn hard_sigmoid(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, dtype) = widened(cx)?;
    let (alpha, beta) = (cx.float("alpha", 0.2), cx.float("beta", 0.5));
    let y = hard(cx, &x, alpha, beta)?;
    one(cx.cast(&y, dtype)?)
}

fn hard_swish(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, dtype) = widened(cx)?;
    let y = hard(cx, &x, 1.0 / 6.0, 0.5)?;
    let y = cx.op("multiply", &[&x, &y])?;
    one(cx.cast(&y, dtype)?)
}

/// `x * tanh(log(1 + e^x))` with one exponential: the hyperbolic tangent is `n / (n + 2)` with `n = e^x * (e^x + 2)`, and 1
/// from 20 on.
fn mish(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, dtype) = widened(cx)?;
    let two = cx.like(&x, 2.0);
    let e = cx.at_most(&x, 20.0)?;
    let e = cx.op("exp", &[&e])?;
    let n = cx.op("add", &[&e, &two])?;
    let n = cx.op("multiply", &[&e, &n])?;
    let y = cx.op("add", &[&n, &two])?;
    let y = cx.op("divide", &[&n, &y])?;
    let y = cx.op("multiply", &[&x, &y])?;
    one(cx.cast(&y, dtype)?)
}

fn prelu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, mut slope) = (cx.input(0)?, cx.input(1)?);
    // Before version 9 the slope runs over the channels.
    if cx.version < 7 && slope.rank() == 1 && x.rank() > 1 && !slope.dims[0].is_int(1) {
        let mut dims = slope.dims.clone();
        dims.extend(vec![PrimExpr::i64(1); x.rank() - 2]);
        slope = cx.reshape(&slope, &dims)?;
    }
    let zero = cx.like(&x, 0.0);
    let negative = cx.op("less", &[&x, &zero])?;
    let low = cx.op("multiply", &[&x, &slope])?;
    one(cx.op("where", &[&negative, &low, &x])?)
}

fn shrink(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, dtype) = (cx.input(0)?, cx.input(0)?.dtype);
    let wide = if dtype == DType::F64 || dtype == DType::F32 { dtype } else { DType::F32 };
    let x = cx.cast(&x, wide)?;
    let (lambda, bias) = (cx.float("lambd", 0.5), cx.float("bias", 0.0));
    let low = by(cx, "less", &x, -lambda)?;
    let high = by(cx, "greater", &x, lambda)?;
    let up = by(cx, "add", &x, bias)?;
    let down = by(cx, "subtract", &x, bias)?;
    let zero = cx.like(&x, 0.0);
    let y = cx.op("where", &[&high, &down, &zero])?;
    let y = cx.op("where", &[&low, &up, &y])?;
    one(cx.cast(&y, dtype)?)
}

fn softsign(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, dtype) = widened(cx)?;
    let y = cx.op("abs", &[&x])?;
    let y = by(cx, "add", &y, 1.0)?;
    let y = cx.op("divide", &[&x, &y])?;
    one(cx.cast(&y, dtype)?)
}

/// `x * sigmoid(alpha * x)`
pub fn swish_of(cx: &mut NodeCx, x: &Tensor, alpha: f64) -> Res<Tensor> {
    let y = if alpha == 1.0 { x.clone() } else { by(cx, "multiply", x, alpha)? };
    let y = cx.op("sigmoid", &[&y])?;
    cx.op("multiply", &[x, &y])
}

fn swish(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, dtype) = widened(cx)?;
    let y = swish_of(cx, &x, cx.float("alpha", 1.0))?;
    one(cx.cast(&y, dtype)?)
}

fn swiglu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (a, dtype) = widened(cx)?;
    let b = cx.input(1)?;
    let y = swish_of(cx, &a, cx.float("alpha", 1.0))?;
    let b = cx.cast(&b, y.dtype)?;
    let y = cx.op("multiply", &[&y, &b])?;
    one(cx.cast(&y, dtype)?)
}

fn thresholded_relu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let alpha = cx.float("alpha", 1.0);
    let above = by(cx, "greater", &x, alpha)?;
    let zero = cx.like(&x, 0.0);
    one(cx.op("where", &[&above, &x, &zero])?)
}

fn affine(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let y = by(cx, "multiply", &x, cx.float("alpha", 1.0))?;
    one(by(cx, "add", &y, cx.float("beta", 0.0))?)
}

fn parametric_softplus(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let y = by(cx, "multiply", &x, cx.float("beta", 1.0))?;
    let y = cx.op("nn.softplus", &[&y])?;
    one(by(cx, "multiply", &y, cx.float("alpha", 1.0))?)
}

fn scaled_tanh(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let y = by(cx, "multiply", &x, cx.float("beta", 1.0))?;
    let y = cx.op("tanh", &[&y])?;
    one(by(cx, "multiply", &y, cx.float("alpha", 1.0))?)
}

/// 1 where the first maximum along `axis` is, 0 elsewhere.
fn hardmax_of(cx: &mut NodeCx, x: &Tensor, axis: usize) -> Res<Tensor> {
    let at =
        cx.call("argmax", &[x.into()], &[("axis", AttrValue::Int(axis as i64)), ("keepdims", AttrValue::Bool(true))])?;
    let places = super::select::positions(cx, &x.dims[axis].clone(), x.rank(), axis)?;
    // Vectors hold more numbers of 32 bits.
    let small = x.dims[axis].as_int().is_some_and(|n| n <= i32::MAX as i64);
    let number = if small { DType::I32 } else { DType::I64 };
    let (at, places) = (cx.cast(&at, number)?, cx.cast(&places, number)?);
    let hit = cx.op("equal", &[&at, &places])?;
    cx.cast(&hit, x.dtype)
}

fn hardmax(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", -1), x.rank())?;
    one(hardmax_of(cx, &x, axis)?)
}

/// Before version 13: of the tensor made a matrix at `axis`.
fn hardmax_2d(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", 1), x.rank())?;
    let rows = cx.simplify(PrimExpr::product(&x.dims[..axis]));
    let columns = cx.simplify(PrimExpr::product(&x.dims[axis..]));
    let y = cx.reshape(&x, &[rows, columns])?;
    let y = hardmax_of(cx, &y, 1)?;
    one(cx.reshape(&y, &x.dims.clone())?)
}

fn is_inf(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, _) = widened(cx)?;
    let (low, high) = (cx.flag("detect_negative", true), cx.flag("detect_positive", true));
    let y = cx.op("isinf", &[&x])?;
    let side = match (low, high) {
        (true, true) => return one(y),
        (false, false) => by(cx, "not_equal", &x, f64::INFINITY).and_then(|t| {
            let f = Tensor::scalar_int(DType::BOOL, 0);
            cx.op("logical_and", &[&t, &f])
        })?,
        (true, false) => by(cx, "less", &x, 0.0)?,
        (false, true) => by(cx, "greater", &x, 0.0)?,
    };
    one(cx.op("logical_and", &[&y, &side])?)
}

/// The remainder has the sign of the divisor; with `fmod` (always, of floats, until a version says otherwise) that of
/// the dividend.
fn modulo(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    if a.dtype.is_float() {
        let dtype = a.dtype;
        let wide = if dtype.bits < 32 { DType::F32 } else { dtype };
        let (a, b) = (cx.cast(&a, wide)?, cx.cast(&b, wide)?);
        let name = if cx.flag("fmod", false) { "mod" } else { "floor_mod" };
        let mut y = cx.op(name, &[&a, &b])?;
        // By an infinite divisor: the dividend, or (floored, of other sign) the divisor.
        let endless = cx.op("isinf", &[&b])?;
        let finite = cx.op("isfinite", &[&a])?;
        let endless = cx.op("logical_and", &[&endless, &finite])?;
        let mut rest = a.clone();
        if name == "floor_mod" {
            let zero = cx.like(&a, 0.0);
            let (low, high) = (cx.op("less", &[&a, &zero])?, cx.op("less", &[&zero, &a])?);
            let (down, up) = (cx.op("less", &[&b, &zero])?, cx.op("less", &[&zero, &b])?);
            let (one_, other) = (cx.op("logical_and", &[&low, &up])?, cx.op("logical_and", &[&high, &down])?);
            let differ = cx.op("logical_or", &[&one_, &other])?;
            rest = cx.op("where", &[&differ, &b, &a])?;
        }
        y = cx.op("where", &[&endless, &rest, &y])?;
        return one(cx.cast(&y, dtype)?);
    }
    let relax = if cx.flag("fmod", false) { "mod" } else { "floor_mod" };
    if relax == "floor_mod" {
        let known = crate::onnx::known::zip(&[&a, &b], a.dtype, |v| match v[1].as_int() {
            Some(n) if n > 0 => Some(v[0].clone().floor_mod(v[1].clone())),
            _ => None,
        });
        if let Some(t) = known {
            return one(t);
        }
    }
    one(cx.op(relax, &[&a, &b])?)
}

/// Shifts by the width or more give 0 (or the sign); so do negative numbers of bits, seen as large ones.
fn bit_shift(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, n) = (cx.input(0)?, cx.input(1)?);
    let left = cx.str("direction", "").eq_ignore_ascii_case("left");
    let d = x.dtype;
    let top = Tensor::scalar_int(d, d.bits as i64 - 1);
    let zero = Tensor::scalar_int(d, 0);
    let small = cx.op("less_equal", &[&n, &top])?;
    let fits = match d.is_signed() {
        true => {
            let positive = cx.op("greater_equal", &[&n, &zero])?;
            cx.op("logical_and", &[&small, &positive])?
        }
        false => small,
    };
    let by = cx.op("where", &[&fits, &n, &top])?;
    let y = cx.op(if left { "left_shift" } else { "right_shift" }, &[&x, &by])?;
    if !left && d.is_signed() {
        return one(y);
    }
    one(cx.op("where", &[&fits, &y, &zero])?)
}

fn bit_cast(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let to = cx.dtype_opt("to")?;
    let to = cx.required("to", to)?;
    if x.dtype == to {
        return one(x);
    }
    one(cx.call("onnx.bitcast", &[(&x).into()], &[("dtype", AttrValue::DType(to))])?)
}
