//! Quotients that become bytes, all by one divisor, as quantised tensors have them: products with its reciprocal.
//!
//! The reciprocal is held in two parts, which together have twice the digits. A first quotient made of both is one of the
//! two numbers beside the exact one, what it leaves of the dividend is exact, and correcting it by that is the division's
//! result to the bit. Dividends are limited before, to those whose bytes are the lowest and the highest: then nothing
//! overflows, and the quotient needs no limits. Divisors that are negative, none, or so large or small that a step would
//! leave the numbers divide.

use super::emit::{Emit, Res};
use super::nest::Target;
use super::stage::{replace, Axis};
use super::SchedOptions;
use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::{DType, PrimExpr, Var};

/// Quotients from which one reciprocal is worth it.
const LEAST: i64 = 96;
/// Divisors between this and its reciprocal.
const SMALLEST: f32 = 1.0 / (1u64 << 60) as f32;

/// `cast(max(min(round(dividend / divisor) + zero, high), low))` in float32, to a type of bytes, inside an output.
pub struct Quotients {
    all: PrimExpr,
    dividend: PrimExpr,
    divisor: PrimExpr,
    /// An integer of 16 bits at most.
    zero: PrimExpr,
    low: i64,
    high: i64,
}

impl Quotients {
    /// The first of these in `outs` whose divisor is the same all along `axes`.
    pub fn of(e: &Emit, outs: &[Target], axes: &[Axis], o: &SchedOptions) -> Option<Quotients> {
        let points = axes.iter().try_fold(1i64, |n, a| n.checked_mul(a.len()?));
        if !o.is_wide() || e.divides || axes.is_empty() || points.is_some_and(|n| n < LEAST) {
            return None;
        }
        let one = |e: &PrimExpr| {
            let fixed = !axes.iter().any(|a| e.uses(&a.var));
            let stored = |n: &PrimExpr| matches!(n.kind(), PrimKind::Load { ptr, .. } if outs.iter().any(|t| ptr.as_var() == Some(&t.ptr)));
            let mut own = false;
            e.walk(&mut |n| own |= stored(n) || matches!(n.kind(), PrimKind::IfThenElse(..)));
            fixed && !own
        };
        outs.iter().find_map(|t| find(&t.value)).filter(|q| one(&q.divisor) && one(&q.zero))
    }

    /// The loops by reciprocal and those that divide, each where the divisor is for it.
    pub fn emit(&self, e: &mut Emit, outs: &[Target], loops: &dyn Fn(&mut Emit, &[Target]) -> Res<()>) -> Res<()> {
        let divisor = e.scalar(&self.divisor)?;
        let divisor = e.bind("divisor", divisor);
        let zero = e.scalar(&self.zero.clone().cast(DType::I32))?;
        let zero = e.bind("zero", zero);
        // As integers: numbers that are not negative have the order of their bits.
        let bits = e.bind("bits", divisor.clone().reinterpret(DType::I32).cast(DType::I64));
        let limit = |d: f32| PrimExpr::i64(d.to_bits() as i64);
        let within = bits.clone().ge(limit(SMALLEST)).and(bits.le(limit(1.0 / SMALLEST)));
        let one = PrimExpr::f32(1.0);
        let minus = e.bind("minus", divisor.clone().neg());
        let first = e.bind("first", one.clone() / divisor.clone());
        let second = e.bind("second", fma(&minus, &first, &one) * first.clone());
        let mut limit = |name: &str, byte: i64| {
            let steps = PrimExpr::i32(byte as i32) - zero.clone();
            e.bind(name, steps.cast(DType::F32) * divisor.clone())
        };
        let (low, high) = (limit("low", self.low), limit("high", self.high));
        let [x, q, left, whole] = ["x", "q", "left", "whole"].map(|name| Var::new(name, DType::F32));
        e.holds_int32(&whole);
        let byte = (whole.expr().call1(Intrin::Round).cast(DType::I32) + zero.clone()).cast(self.all.dtype());
        let byte = PrimExpr::let_in(whole, fma(&left.expr(), &first, &q.expr()), byte);
        let byte = PrimExpr::let_in(left, fma(&q.expr(), &minus, &x.expr()), byte);
        let byte = PrimExpr::let_in(q, fma(&x.expr(), &first, &(x.expr() * second)), byte);
        // Of what is no number the highest byte, as the smaller of both is the second.
        let byte = PrimExpr::let_in(x, self.dividend.clone().min(high).max(low), byte);
        let with = |from: &PrimExpr, to: &PrimExpr| {
            let mut outs = outs.to_vec();
            outs.iter_mut().for_each(|t| t.value = replace(&t.value, from, to));
            outs
        };
        let (by_reciprocal, divided) = (with(&self.all, &byte), with(&self.divisor, &divisor));
        let before = std::mem::replace(&mut e.divides, true);
        let r = e.if_then(within, |e| loops(e, &by_reciprocal), |e| loops(e, &divided));
        e.divides = before;
        r
    }
}

fn fma(a: &PrimExpr, b: &PrimExpr, c: &PrimExpr) -> PrimExpr {
    PrimExpr::call(Intrin::Fma, [a.clone(), b.clone(), c.clone()])
}

/// The first of these inside `e`.
fn find(e: &PrimExpr) -> Option<Quotients> {
    quotient(e).or_else(|| e.children().into_iter().find_map(find))
}

fn quotient(all: &PrimExpr) -> Option<Quotients> {
    let PrimKind::Cast(limited) = all.kind() else { return None };
    let PrimKind::Binary(BinOp::Max, x, low) = limited.kind() else { return None };
    let PrimKind::Binary(BinOp::Min, x, high) = x.kind() else { return None };
    let (round, zero) = match x.kind() {
        PrimKind::Binary(BinOp::Add, round, zero) => (round, integer(zero)?),
        _ => (x, PrimExpr::i32(0)),
    };
    let PrimKind::Call(Intrin::Round | Intrin::NearbyInt, args) = round.kind() else { return None };
    let PrimKind::Binary(BinOp::Div, dividend, divisor) = args.first()?.kind() else { return None };
    let byte = |e: &PrimExpr| e.as_float().map(|v| v as i64);
    let to = all.dtype();
    let (low, high) = (byte(low)?, byte(high)?);
    let bytes = [DType::I8, DType::U8].contains(&to) && (low, high) == (to.int_min(), to.int_max());
    (bytes && dividend.dtype() == DType::F32).then(|| Quotients {
        all: all.clone(),
        dividend: dividend.clone(),
        divisor: divisor.clone(),
        zero,
        low,
        high,
    })
}

/// The integer of 16 bits at most that became a float.
fn integer(e: &PrimExpr) -> Option<PrimExpr> {
    match e.kind() {
        PrimKind::Cast(i) if i.dtype().is_int() && i.dtype().bits <= 16 => Some(i.clone()),
        PrimKind::Float(v) if v.0.fract() == 0.0 && v.0.abs() <= 65535.0 => Some(PrimExpr::i32(v.0 as i32)),
        _ => None,
    }
}
