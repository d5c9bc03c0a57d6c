//! `llvm.is.fpclass`: what kind of number a float is, told by its bits.
//!
//! Source: LLVM's language reference, "llvm.is.fpclass": the bits of its mask.

use relax_ir::prim::{BinOp, PrimExpr, PrimKind};
use relax_ir::{DType, TypeCode};

/// Bits of a mask.
pub const COUNT: u32 = 10;

/// Is `x` in one of the classes of the mask? `x` is a variable, a literal or an element. `None` where it is no float of a
/// machine.
pub fn is_in(x: &PrimExpr, mask: i64, let_in: &mut dyn FnMut(PrimExpr) -> PrimExpr) -> Option<PrimExpr> {
    let t = x.dtype();
    let fraction = match t.element() {
        DType::F16 => 10,
        DType::BF16 => 7,
        DType::F32 => 23,
        DType::F64 => 52,
        _ => return None,
    };
    let code = DType { code: TypeCode::UInt, ..t };
    let number = |v: i64| PrimExpr::int(code, v);
    let truth = |v: bool| PrimExpr::int(DType::BOOL.with_lanes(t.lanes), i64::from(v));
    let both = |a, b| PrimExpr::raw_binary(BinOp::And, a, b);
    let bits = let_in(PrimExpr::raw(PrimKind::Reinterpret(x.clone()), code));
    let sign = 1i64 << (t.bits - 1);
    let size = let_in(PrimExpr::raw_binary(BinOp::BitAnd, bits.clone(), number(sign.wrapping_sub(1) & !sign)));
    let negative = PrimExpr::raw_binary(BinOp::Ne, PrimExpr::raw_binary(BinOp::BitAnd, bits, number(sign)), number(0));
    // Sizes begin with zero; then come what is below the normal numbers, these, infinity, and what is no number.
    let least = 1i64 << fraction;
    let infinity = ((1i64 << (i64::from(t.bits) - 1 - fraction)) - 1) << fraction;
    let quiet = infinity | 1 << (fraction - 1);
    let at_least = |v: i64| PrimExpr::raw_binary(BinOp::Ge, size.clone(), number(v));
    let below = |v: i64| PrimExpr::raw_binary(BinOp::Lt, size.clone(), number(v));
    let equal = |v: i64| PrimExpr::raw_binary(BinOp::Eq, size.clone(), number(v));
    let signed = |e: PrimExpr, minus: bool| {
        let sign = PrimExpr::raw_binary(BinOp::Eq, negative.clone(), truth(minus));
        both(sign, e)
    };
    let class = |k: u32| match k {
        0 => both(at_least(infinity + 1), below(quiet)),
        1 => at_least(quiet),
        2 | 9 => signed(equal(infinity), k == 2),
        3 | 8 => signed(both(at_least(least), below(infinity)), k == 3),
        4 | 7 => signed(both(at_least(1), below(least)), k == 4),
        _ => signed(equal(0), k == 5),
    };
    let any = |a, b| PrimExpr::raw_binary(BinOp::Or, a, b);
    let classes = (0..COUNT).filter(|k| mask >> k & 1 != 0).map(class);
    Some(classes.reduce(any).unwrap_or_else(|| truth(false)))
}
