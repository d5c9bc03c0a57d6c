//! Fixed-point functions of LLVM: products and quotients of integers that count parts of `2^-scale`.
//!
//! Source: LLVM's language reference, "Fixed Point Arithmetic Intrinsics". Results are rounded down, as LLVM's code does.

use relax_ir::prim::{BinOp, PrimExpr, PrimKind};
use relax_ir::{DType, TypeCode};
use std::ops::RangeInclusive;

/// `llvm.smul.fix`, `llvm.udiv.fix.sat` and so on.
#[derive(Clone, Copy)]
pub struct Function {
    signed: bool,
    divides: bool,
    /// What is beyond the type's range becomes its limit.
    limits: bool,
}

fn op(op: BinOp, a: PrimExpr, b: PrimExpr) -> PrimExpr {
    PrimExpr::raw_binary(op, a, b)
}

fn choose(cond: PrimExpr, then: PrimExpr, otherwise: PrimExpr) -> PrimExpr {
    let t = then.dtype();
    PrimExpr::raw(PrimKind::Select(cond, then, otherwise), t)
}

impl Function {
    pub fn named(name: &str) -> Option<Function> {
        let (exact, limits) = name.strip_suffix(".sat").map_or((name, false), |n| (n, true));
        let (signed, divides) = match exact {
            "smul.fix" => (true, false),
            "umul.fix" => (false, false),
            "sdiv.fix" => (true, true),
            "udiv.fix" => (false, true),
            _ => return None,
        };
        Some(Function { signed, divides, limits })
    }

    /// The scales that values of this type have.
    pub fn scales(self, t: DType) -> RangeInclusive<i64> {
        0..=i64::from(t.bits) - i64::from(self.signed)
    }

    fn code(self) -> TypeCode {
        if self.signed {
            TypeCode::Int
        } else {
            TypeCode::UInt
        }
    }

    /// Of two operands that are variables, literals or elements. `None` where a quotient would have more than 64 bits.
    pub fn value(
        self,
        args: &[PrimExpr],
        scale: i64,
        let_in: &mut dyn FnMut(PrimExpr) -> PrimExpr,
    ) -> Option<PrimExpr> {
        let [x, y] = args else { return None };
        let t = DType { code: self.code(), ..x.dtype() };
        if t.bits == 64 {
            return (!self.divides).then(|| self.long_product(x, y, scale, let_in));
        }
        // All bits of the result.
        let wide = DType { bits: 2 * t.bits, ..t };
        let number = |v: i64| PrimExpr::int(wide, v);
        let (x, y) = (x.clone().cast(t).cast(wide), y.clone().cast(t).cast(wide));
        let whole = match self.divides {
            true => op(BinOp::FloorDiv, op(BinOp::Mul, x, number(1i64 << scale)), y),
            false => op(BinOp::Shr, op(BinOp::Mul, x, y), number(scale)),
        };
        if !self.limits {
            return Some(whole.cast(t));
        }
        let least = op(BinOp::Min, whole, number(t.element().int_max()));
        let within = if self.signed { op(BinOp::Max, least, number(t.element().int_min())) } else { least };
        Some(within.cast(t))
    }

    /// A product of 128 bits, in two halves.
    fn long_product(
        self,
        x: &PrimExpr,
        y: &PrimExpr,
        scale: i64,
        let_in: &mut dyn FnMut(PrimExpr) -> PrimExpr,
    ) -> PrimExpr {
        let unsigned = DType { code: TypeCode::UInt, ..x.dtype() };
        let signed = DType { code: TypeCode::Int, ..x.dtype() };
        let number = |v: i64| PrimExpr::int(unsigned, v);
        let low = |e: &PrimExpr| op(BinOp::BitAnd, e.clone(), number(0xffff_ffff));
        let high = |e: &PrimExpr| op(BinOp::Shr, e.clone(), number(32));
        let (x, y) = (let_in(x.clone().cast(unsigned)), let_in(y.clone().cast(unsigned)));
        let cross = let_in(op(BinOp::Mul, low(&x), high(&y)));
        let other = let_in(op(BinOp::Mul, high(&x), low(&y)));
        let carry = high(&op(BinOp::Mul, low(&x), low(&y)));
        let middle = let_in(op(BinOp::Add, op(BinOp::Add, carry, low(&cross)), low(&other)));
        let upper = op(BinOp::Mul, high(&x), high(&y));
        let mut upper =
            [high(&cross), high(&other), high(&middle)].into_iter().fold(upper, |a, b| op(BinOp::Add, a, b));
        if self.signed {
            let negative = |e: &PrimExpr| op(BinOp::Lt, e.clone().cast(signed), PrimExpr::int(signed, 0));
            for (of, by) in [(&x, &y), (&y, &x)] {
                upper = op(BinOp::Sub, upper, choose(negative(of), by.clone(), number(0)));
            }
        }
        let (upper, lower) = (let_in(upper), op(BinOp::Mul, x, y));
        let found = match scale {
            0 => lower,
            64 => upper.clone(),
            _ => op(
                BinOp::BitOr,
                op(BinOp::Shl, upper.clone(), number(64 - scale)),
                op(BinOp::Shr, lower, number(scale)),
            ),
        };
        if !self.limits {
            return found;
        }
        let found = let_in(found);
        if !self.signed {
            let lost = match scale {
                64 => return found,
                _ => op(BinOp::Shr, upper, number(scale)),
            };
            return choose(op(BinOp::Ne, lost, number(0)), number(-1), found);
        }
        let upper = upper.cast(signed);
        let lost = op(BinOp::Shr, upper.clone(), PrimExpr::int(signed, scale));
        let sign = op(BinOp::Shr, found.clone().cast(signed), PrimExpr::int(signed, 63));
        let limit = choose(
            op(BinOp::Lt, upper, PrimExpr::int(signed, 0)),
            PrimExpr::int(signed, i64::MIN),
            PrimExpr::int(signed, i64::MAX),
        );
        choose(op(BinOp::Ne, lost, sign), limit.cast(unsigned), found)
    }
}
