//! Intrinsics on integers.

use super::raw;
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind, Var};

/// `None`: not a function of integers; the backend reports it.
pub(super) fn expand(f: Intrin, args: &[PrimExpr]) -> Option<PrimExpr> {
    let x = args.first()?;
    match f {
        Intrin::Pow => Some(power(x, args.get(1)?)),
        Intrin::Fmod => Some(raw(BinOp::TruncMod, x.clone(), args.get(1)?.clone())),
        Intrin::IsInf => Some(constant_bool(x, false)),
        Intrin::IsFinite => Some(constant_bool(x, true)),
        _ => None,
    }
}

fn constant_bool(x: &PrimExpr, v: bool) -> PrimExpr {
    PrimExpr::bool(v).broadcast(x.dtype().lanes)
}

/// `x^n` by repeated squaring, wrapping; a negative exponent gives the integer part of the fraction (0, or +-1 for
/// +-1; 0 for 0).
fn power(x: &PrimExpr, n: &PrimExpr) -> PrimExpr {
    let d = x.dtype();
    let mut lets: Vec<(Var, PrimExpr)> = vec![];
    let mut bind = |e: PrimExpr| {
        let v = Var::new("t", e.dtype());
        lets.push((v.clone(), e));
        v.expr()
    };
    let literal = match n.kind() {
        PrimKind::Broadcast(a) => a.as_int(),
        _ => n.as_int(),
    };
    let one = PrimExpr::int(d, 1);
    let x = bind(x.clone());
    let mut result = one.clone();
    match literal {
        Some(k) if k >= 0 => {
            let mut base = x;
            let mut k = k as u64;
            while k > 0 {
                if k & 1 == 1 {
                    result = bind(raw(BinOp::Mul, result, base.clone()));
                }
                k >>= 1;
                if k > 0 {
                    base = bind(raw(BinOp::Mul, base.clone(), base));
                }
            }
        }
        _ => {
            let n = bind(n.clone());
            let (mut base, mut rest) = (x.clone(), n.clone());
            let zero = PrimExpr::int(d, 0);
            let steps = if d.is_signed() { d.bits - 1 } else { d.bits };
            for _ in 0..steps {
                let bit = raw(BinOp::BitAnd, rest.clone(), one.clone());
                let more = raw(BinOp::Mul, result.clone(), base.clone());
                result = bind(raw(BinOp::Ne, bit, zero.clone()).select(more, result));
                base = bind(raw(BinOp::Mul, base.clone(), base));
                rest = bind(raw(BinOp::Shr, rest, one.clone()));
            }
            if d.is_signed() {
                let minus = PrimExpr::int(d, -1);
                let odd = raw(BinOp::Ne, raw(BinOp::BitAnd, n.clone(), one.clone()), zero.clone());
                let sign = odd.select(minus.clone(), one.clone());
                let unit = raw(BinOp::Eq, x.clone(), minus).select(sign, zero.clone());
                let unit = raw(BinOp::Eq, x, one.clone()).select(one, unit);
                result = raw(BinOp::Lt, n, zero).select(unit, result);
            }
        }
    }
    lets.into_iter().rev().fold(result, |body, (v, value)| PrimExpr::let_in(v, value, body))
}
