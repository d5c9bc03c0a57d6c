//! Elementwise operators of one, two or more tensors, and casts.

use super::{one, op, OnnxOp};
use crate::onnx::kind::Kind;
use crate::onnx::known;
use crate::onnx::node::NodeCx;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::prim::BinOp;
use relax_ir::{DType, PrimExpr};

/// A Relax operator of one tensor.
macro_rules! unary {
    ($name:literal, $relax:literal) => {
        op(
            $name,
            &[(1, |cx| {
                let x = cx.input(0)?;
                one(cx.op($relax, &[&x])?)
            })],
        )
    };
}

/// A Relax operator of one float tensor that also exists on integers in ONNX with the same meaning.
macro_rules! binary {
    ($name:literal, $relax:literal, $fold:expr) => {
        op($name, &[(1, |cx| legacy_binary(cx, $relax, $fold)), (7, |cx| binary(cx, $relax, $fold))])
    };
}

/// A fold of n tensors.
macro_rules! variadic {
    ($name:literal, $relax:literal) => {
        op($name, &[(1, |cx| variadic(cx, $relax))])
    };
}

type Fold = fn(&PrimExpr, &PrimExpr) -> Option<PrimExpr>;

pub const OPS: &[OnnxOp] = &[
    op("Abs", &[(1, abs)]),
    unary!("Acos", "acos"),
    unary!("Acosh", "acosh"),
    unary!("Asin", "asin"),
    unary!("Asinh", "asinh"),
    unary!("Atan", "atan"),
    unary!("Atanh", "atanh"),
    unary!("BitwiseNot", "bitwise_not"),
    op("Ceil", &[(1, |cx| rounding(cx, "ceil", f64::ceil))]),
    unary!("Cos", "cos"),
    unary!("Cosh", "cosh"),
    unary!("Erf", "erf"),
    unary!("Exp", "exp"),
    op("Floor", &[(1, |cx| rounding(cx, "floor", f64::floor))]),
    unary!("IsNaN", "isnan"),
    unary!("Log", "log"),
    op("Neg", &[(1, neg)]),
    op("Not", &[(1, not)]),
    op("Reciprocal", &[(1, reciprocal)]),
    op("Relu", &[(1, relu)]),
    op("Round", &[(11, |cx| rounding(cx, "round", f64::round_ties_even))]),
    unary!("Sigmoid", "sigmoid"),
    op("Sign", &[(1, sign)]),
    unary!("Sin", "sin"),
    unary!("Sinh", "sinh"),
    op("Sqrt", &[(1, sqrt)]),
    unary!("Tan", "tan"),
    unary!("Tanh", "tanh"),
    binary!("Add", "add", |a, b| arith(BinOp::Add, a, b)),
    binary!("Sub", "subtract", |a, b| arith(BinOp::Sub, a, b)),
    binary!("Mul", "multiply", |a, b| arith(BinOp::Mul, a, b)),
    op("Div", &[(1, |cx| legacy_binary(cx, "divide", div_fold)), (7, div)]),
    binary!("Pow", "power", no_fold),
    binary!("Equal", "equal", |a, b| compare(BinOp::Eq, a, b)),
    binary!("Greater", "greater", |a, b| compare(BinOp::Gt, a, b)),
    binary!("GreaterOrEqual", "greater_equal", |a, b| compare(BinOp::Ge, a, b)),
    binary!("Less", "less", |a, b| compare(BinOp::Lt, a, b)),
    binary!("LessOrEqual", "less_equal", |a, b| compare(BinOp::Le, a, b)),
    binary!("And", "logical_and", |a, b| arith(BinOp::And, a, b)),
    binary!("Or", "logical_or", |a, b| arith(BinOp::Or, a, b)),
    binary!("Xor", "logical_xor", no_fold),
    binary!("BitwiseAnd", "bitwise_and", no_fold),
    binary!("BitwiseOr", "bitwise_or", no_fold),
    binary!("BitwiseXor", "bitwise_xor", no_fold),
    variadic!("Max", "maximum"),
    variadic!("Min", "minimum"),
    variadic!("Sum", "add"),
    op("Mean", &[(1, mean)]),
    op("Where", &[(9, where_)]),
    op("Cast", &[(1, cast)]),
    op("CastLike", &[(15, cast_like)]),
];

fn no_fold(_: &PrimExpr, _: &PrimExpr) -> Option<PrimExpr> {
    None
}

/// Integers fold symbolically, floats when both are literals.
pub(super) fn arith(op: BinOp, a: &PrimExpr, b: &PrimExpr) -> Option<PrimExpr> {
    if let (Some(x), Some(y)) = (a.as_float(), b.as_float()) {
        let v = match op {
            BinOp::Add => x + y,
            BinOp::Sub => x - y,
            BinOp::Mul => x * y,
            BinOp::Div => x / y,
            BinOp::Max if !x.is_nan() && !y.is_nan() => x.max(y),
            BinOp::Min if !x.is_nan() && !y.is_nan() => x.min(y),
            _ => return None,
        };
        return Some(PrimExpr::float(a.dtype(), v));
    }
    (!a.dtype().is_float()).then(|| PrimExpr::binary(op, a.clone(), b.clone()))
}

fn compare(op: BinOp, a: &PrimExpr, b: &PrimExpr) -> Option<PrimExpr> {
    if let (Some(x), Some(y)) = (a.as_float(), b.as_float()) {
        return Some(PrimExpr::bool(match op {
            BinOp::Eq => x == y,
            BinOp::Gt => x > y,
            BinOp::Ge => x >= y,
            BinOp::Lt => x < y,
            BinOp::Le => x <= y,
            _ => return None,
        }));
    }
    if a.dtype().is_bool() {
        return match (a.as_int(), b.as_int()) {
            (Some(x), Some(y)) if op == BinOp::Eq => Some(PrimExpr::bool(x == y)),
            _ => None,
        };
    }
    // A dim is never negative.
    match (op, b.as_int()) {
        (BinOp::Eq, Some(v)) if v < 0 && a.as_var().is_some() => return Some(PrimExpr::bool(false)),
        _ => {}
    }
    (!a.dtype().is_float()).then(|| PrimExpr::binary(op, a.clone(), b.clone()))
}

/// Integer division truncates.
fn div_fold(a: &PrimExpr, b: &PrimExpr) -> Option<PrimExpr> {
    if a.dtype().is_float() {
        return arith(BinOp::Div, a, b);
    }
    match b.as_int() {
        Some(0) => None,
        // Dims are not negative: floor and truncation agree, and floor division is what the prover knows best.
        Some(v) if v > 0 && a.as_int().is_none() && non_negative(a) => Some(a.clone().floor_div(b.clone())),
        _ => Some(a.clone().trunc_div(b.clone())),
    }
}

/// Made of dims by sums, products and divisions alone.
fn non_negative(e: &PrimExpr) -> bool {
    use relax_ir::prim::PrimKind;
    match e.kind() {
        PrimKind::Var(_) => true,
        PrimKind::Int(v) => *v >= 0,
        PrimKind::Cast(a) => non_negative(a),
        PrimKind::Binary(BinOp::Add | BinOp::Mul | BinOp::FloorDiv | BinOp::FloorMod, a, b) => {
            non_negative(a) && non_negative(b)
        }
        _ => false,
    }
}

/// The folded elements of two known tensors.
fn folded(cx: &mut NodeCx, a: &Tensor, b: &Tensor, dtype: DType, fold: Fold) -> Option<Tensor> {
    let t = known::zip(&[a, b], dtype, |x| fold(&x[0], &x[1]))?;
    let elements = t.elements()?.into_iter().map(|e| cx.simplify(e)).collect();
    Some(t.with_elements(elements))
}

fn is_predicate(relax: &str) -> bool {
    ["equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or", "logical_xor"]
        .contains(&relax)
}

fn two(cx: &mut NodeCx, relax: &str, a: Tensor, b: Tensor, fold: Fold) -> Res<Vec<Value>> {
    let dtype = if is_predicate(relax) { DType::BOOL } else { a.dtype };
    if let Some(t) = folded(cx, &a, &b, dtype, fold) {
        return one(t);
    }
    if relax == "power" {
        return one(power(cx, a, b)?);
    }
    one(cx.op(relax, &[&a, &b])?)
}

/// The result has the dtype of the base; a power of an integer by a float is one of floats, without its fraction.
fn power(cx: &mut NodeCx, base: Tensor, exponent: Tensor) -> Res<Tensor> {
    let dtype = base.dtype;
    if dtype.is_float() || !exponent.dtype.is_float() {
        let exponent = cx.cast(&exponent, dtype)?;
        return cx.op("power", &[&base, &exponent]);
    }
    let (base, exponent) = (cx.cast(&base, DType::F64)?, cx.cast(&exponent, DType::F64)?);
    let y = cx.op("power", &[&base, &exponent])?;
    cx.cast(&y, dtype)
}

fn binary(cx: &mut NodeCx, relax: &str, fold: Fold) -> Res<Vec<Value>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    if a.kind == Kind::Text && b.kind == Kind::Text {
        return one(cx.op("onnx.text_equal", &[&a, &b])?);
    }
    two(cx, relax, a, b, fold)
}

/// Before version 7: no broadcasting unless `broadcast` is set, then of the second operand from `axis` on.
fn legacy_binary(cx: &mut NodeCx, relax: &str, fold: Fold) -> Res<Vec<Value>> {
    let (a, mut b) = (cx.input(0)?, cx.input(1)?);
    if cx.flag("broadcast", false) {
        if let Some(axis) = cx.int_opt("axis") {
            let axis = cx.axis(axis, a.rank())?;
            let trailing = (a.rank() - axis).saturating_sub(b.rank());
            let mut dims = b.dims.clone();
            dims.extend(vec![PrimExpr::i64(1); trailing]);
            b = cx.reshape(&b, &dims)?;
        }
    }
    two(cx, relax, a, b, fold)
}

fn div(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    two(cx, "divide", a, b, div_fold)
}

fn variadic(cx: &mut NodeCx, relax: &str) -> Res<Vec<Value>> {
    let mut x = cx.input(0)?;
    for t in cx.tensors(1)? {
        let fold: Fold = match relax {
            "add" => |a, b| arith(BinOp::Add, a, b),
            "maximum" => |a, b| arith(BinOp::Max, a, b),
            _ => |a, b| arith(BinOp::Min, a, b),
        };
        x = match folded(cx, &x, &t, x.dtype, fold) {
            Some(t) => t,
            None if relax == "add" => cx.op(relax, &[&x, &t])?,
            None => extremum(cx, relax, &x, &t)?,
        };
    }
    one(x)
}

/// The larger or the smaller of two tensors, element by element; NaN where one of them is, as in ONNX's reference. Where they
/// compare with NaN, `maximum` and `minimum` give their second operand.
fn extremum(cx: &mut NodeCx, relax: &str, a: &Tensor, b: &Tensor) -> Res<Tensor> {
    let numbers = |t: &Tensor| !t.dtype.is_float() || t.as_floats().is_some_and(|v| v.iter().all(|v| !v.is_nan()));
    if numbers(a) {
        return cx.op(relax, &[a, b]);
    }
    let y = cx.op(relax, &[b, a])?;
    if numbers(b) {
        return Ok(y);
    }
    let none = cx.op("isnan", &[b])?;
    cx.op("where", &[&none, b, &y])
}

fn mean(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let all = cx.tensors(0)?;
    let n = all.len();
    let mut x = cx.input(0)?;
    for t in &all[1..] {
        x = cx.op("add", &[&x, t])?;
    }
    let n = cx.like(&x, n as f64);
    one(cx.op("divide", &[&x, &n])?)
}

fn abs(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    one(cx.op("abs", &[&x])?)
}

fn neg(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    if let Some(t) = known::zip(&[&x], x.dtype, |v| (v[0].as_float().is_none()).then(|| v[0].clone().neg())) {
        return one(t);
    }
    one(cx.op("negative", &[&x])?)
}

fn not(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    if let Some(t) = known::zip(&[&x], x.dtype, |v| Some(v[0].clone().not())) {
        return one(t);
    }
    one(cx.op("logical_not", &[&x])?)
}

fn rounding(cx: &mut NodeCx, relax: &str, f: fn(f64) -> f64) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    if let Some(t) = known::zip(&[&x], x.dtype, |v| v[0].as_float().map(|v| PrimExpr::float(x.dtype, f(v)))) {
        return one(t);
    }
    one(cx.op(relax, &[&x])?)
}

fn sqrt(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    if let Some(t) = known::zip(&[&x], x.dtype, |v| v[0].as_float().map(|v| PrimExpr::float(x.dtype, v.sqrt()))) {
        return one(t);
    }
    one(cx.op("sqrt", &[&x])?)
}

fn reciprocal(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let one_ = cx.like(&x, 1.0);
    two(cx, "divide", one_, x, div_fold)
}

fn relu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    one(cx.at_least(&x, 0.0)?)
}

/// Relax's sign of NaN is 0, ONNX's is NaN.
fn sign(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let y = cx.op("sign", &[&x])?;
    if !x.dtype.is_float() {
        return one(y);
    }
    let none = cx.op("isnan", &[&x])?;
    one(cx.op("where", &[&none, &x, &y])?)
}

fn where_(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (c, a, b) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let pick = |v: &[PrimExpr]| {
        if v[1].dtype().is_float() && v[0].as_int().is_none() {
            return None;
        }
        Some(v[0].clone().select(v[1].clone(), v[2].clone()))
    };
    if let Some(t) = known::zip(&[&c, &a, &b], a.dtype, pick) {
        return one(t);
    }
    one(cx.op("where", &[&c, &a, &b])?)
}

fn cast(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    // Before version 6 the type was written as a word.
    let word = cx.attr("to").and_then(|a| a.s.as_deref()).filter(|s| !s.is_empty());
    let to = match word.map(String::from_utf8_lossy) {
        Some(word) => {
            let dtype = named_dtype(&word).ok_or_else(|| cx.unsupported(format!("a cast to {word}")))?;
            (dtype, Kind::Plain)
        }
        None => {
            let to = cx.storage_opt("to")?;
            cx.required("to", to)?
        }
    };
    one(cx.cast_kind(&x, to, cx.flag("saturate", true), &cx.str("round_mode", "up"))?)
}

fn named_dtype(word: &str) -> Option<DType> {
    match word.to_ascii_lowercase().as_str() {
        "float" => Some(DType::F32),
        "double" => Some(DType::F64),
        w => w.parse().ok(),
    }
}

fn cast_like(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, like) = (cx.input(0)?, cx.input(1)?);
    let to = (like.dtype, like.kind);
    one(cx.cast_kind(&x, to, cx.flag("saturate", true), &cx.str("round_mode", "up"))?)
}
