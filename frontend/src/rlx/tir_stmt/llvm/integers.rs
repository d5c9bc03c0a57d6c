//! Functions of LLVM of integers, in the arithmetic of kernels: sums and products wrap there too.
//!
//! Source: LLVM's language reference, "Bit Manipulation Intrinsics", "Saturation Arithmetic Intrinsics", "Three-way compare".
//! LLVM's integers have no sign: each function says how it reads them.

use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind};
use relax_ir::{DType, TypeCode};

/// How many values `name` takes beside the literal that [`flag`] tells of; `None` where it is no function of these.
pub fn operands_of(name: &str, bits: u16) -> Option<usize> {
    Some(match name {
        "ctpop" | "ctlz" | "cttz" | "abs" | "bitreverse" => 1,
        "bswap" if bits >= 16 => 1,
        "smax" | "smin" | "umax" | "umin" | "scmp" | "ucmp" | "expect" => 2,
        "sadd.sat" | "uadd.sat" | "ssub.sat" | "usub.sat" | "sshl.sat" | "ushl.sat" => 2,
        "fshl" | "fshr" => 3,
        _ => return None,
    })
}

/// The last argument of these is a literal: what the result is where none is defined is left open. Here one always is.
pub fn flag(name: &str) -> bool {
    matches!(name, "ctlz" | "cttz" | "abs")
}

/// `llvm.name` of operands that are variables, literals or elements, as often as they are read here. Their type is an integer
/// of 8, 16, 32 or 64 bits, the result has it too.
pub fn value(name: &str, args: &[PrimExpr], let_in: &mut dyn FnMut(PrimExpr) -> PrimExpr) -> Option<PrimExpr> {
    let t = args.first()?.dtype();
    let bits = i64::from(t.bits);
    let unsigned = |e: &PrimExpr| e.clone().cast(with_code(t, TypeCode::UInt));
    let signed = |e: &PrimExpr| e.clone().cast(with_code(t, TypeCode::Int));
    let number = |v: i64| PrimExpr::int(with_code(t, TypeCode::UInt), v);
    let out = match (name, args) {
        ("ctpop", [x]) => PrimExpr::call(Intrin::PopCount, [x.clone()]),
        ("ctlz", [x]) => PrimExpr::call(Intrin::Clz, [unsigned(x)]),
        // The zeros below the lowest one are the ones of `!x & (x - 1)`.
        ("cttz", [x]) => {
            let x = unsigned(x);
            let below = op(BinOp::Sub, x.clone(), number(1));
            PrimExpr::call(Intrin::PopCount, [op(BinOp::BitAnd, PrimExpr::call(Intrin::BitNot, [x]), below)])
        }
        ("abs", [x]) => {
            let negative = op(BinOp::Lt, signed(x), PrimExpr::int(with_code(t, TypeCode::Int), 0));
            choose(negative, op(BinOp::Sub, number(0), unsigned(x)), unsigned(x))
        }
        ("bswap", [x]) => {
            let x = unsigned(x);
            let byte = |k: i64| op(BinOp::BitAnd, op(BinOp::Shr, x.clone(), number(8 * k)), number(255));
            let placed = |k: i64| op(BinOp::Shl, byte(k), number(bits - 8 - 8 * k));
            (1..bits / 8).fold(placed(0), |all, k| op(BinOp::BitOr, all, placed(k)))
        }
        // Neighbours change places: bits, pairs, and so on.
        ("bitreverse", [x]) => {
            let mut x = unsigned(x);
            let mut width = 1;
            while width < bits {
                let whole = let_in(x);
                let mask = number((0..64).filter(|k| k / width % 2 == 0).fold(0, |m, k| m | 1i64 << k));
                let high = op(BinOp::BitAnd, op(BinOp::Shr, whole.clone(), number(width)), mask.clone());
                let low = op(BinOp::Shl, op(BinOp::BitAnd, whole, mask), number(width));
                x = op(BinOp::BitOr, high, low);
                width *= 2;
            }
            x
        }
        ("smax" | "smin", [x, y]) => op(most(name), signed(x), signed(y)),
        ("umax" | "umin", [x, y]) => op(most(name), unsigned(x), unsigned(y)),
        ("scmp", [x, y]) => compared(signed(x), signed(y), t),
        ("ucmp", [x, y]) => compared(unsigned(x), unsigned(y), t),
        // What is likely, and what it is likely to be.
        ("expect", [x, _]) => x.clone(),
        ("uadd.sat", [x, y]) => {
            let sum = let_in(op(BinOp::Add, unsigned(x), unsigned(y)));
            choose(op(BinOp::Lt, sum.clone(), unsigned(x)), number(-1), sum)
        }
        ("usub.sat", [x, y]) => {
            let less = op(BinOp::Lt, unsigned(x), unsigned(y));
            choose(less, number(0), op(BinOp::Sub, unsigned(x), unsigned(y)))
        }
        ("sadd.sat" | "ssub.sat", [x, y]) => {
            let (x, y) = (unsigned(x), unsigned(y));
            let sum = name == "sadd.sat";
            let found = let_in(op(if sum { BinOp::Add } else { BinOp::Sub }, x.clone(), y.clone()));
            // The result has the sign that neither side gives it.
            let other = if sum { found.clone() } else { x.clone() };
            let turned = op(BinOp::BitXor, x.clone(), found.clone());
            let over = op(BinOp::BitAnd, turned, op(BinOp::BitXor, y, other));
            limited(over, x, found, t)
        }
        ("ushl.sat" | "sshl.sat", [x, y]) => {
            let found = let_in(op(BinOp::Shl, unsigned(x), unsigned(y)));
            if name == "ushl.sat" {
                let lost = op(BinOp::Ne, op(BinOp::Shr, found.clone(), unsigned(y)), unsigned(x));
                choose(lost, number(-1), found)
            } else {
                let lost = op(BinOp::Ne, op(BinOp::Shr, signed(&found), signed(y)), signed(x));
                choose(lost, bound_by(unsigned(x), t), found)
            }
        }
        // The upper half of `x:y << z`, the lower one of `x:y >> z`; z counts modulo the width.
        ("fshl" | "fshr", [x, y, z]) => {
            let by = let_in(op(BinOp::BitAnd, unsigned(z), number(bits - 1)));
            let rest = op(BinOp::Sub, number(bits - 1), by.clone());
            let twice = |f: BinOp, e: PrimExpr| op(f, op(f, e, number(1)), rest.clone());
            let (x, y) = (unsigned(x), unsigned(y));
            match name {
                "fshl" => op(BinOp::BitOr, op(BinOp::Shl, x, by), twice(BinOp::Shr, y)),
                _ => op(BinOp::BitOr, twice(BinOp::Shl, x), op(BinOp::Shr, y, by)),
            }
        }
        _ => return None,
    };
    Some(out.cast(t))
}

fn op(op: BinOp, a: PrimExpr, b: PrimExpr) -> PrimExpr {
    PrimExpr::raw_binary(op, a, b)
}

fn with_code(t: DType, code: TypeCode) -> DType {
    DType { code, ..t }
}

fn choose(cond: PrimExpr, then: PrimExpr, otherwise: PrimExpr) -> PrimExpr {
    let t = then.dtype();
    PrimExpr::raw(PrimKind::Select(cond, then, otherwise), t)
}

fn most(name: &str) -> BinOp {
    if name.ends_with("max") {
        BinOp::Max
    } else {
        BinOp::Min
    }
}

/// -1, 0 or 1 as `t`.
fn compared(x: PrimExpr, y: PrimExpr, t: DType) -> PrimExpr {
    let number = |v: i64| PrimExpr::int(with_code(t, TypeCode::Int), v);
    let less = op(BinOp::Lt, x.clone(), y.clone());
    choose(less, number(-1), choose(op(BinOp::Gt, x, y), number(1), number(0)))
}

/// The limit of signed integers on the side where the unsigned `x`, read with its sign, lies.
fn bound_by(x: PrimExpr, t: DType) -> PrimExpr {
    let s = with_code(t, TypeCode::Int);
    let u = with_code(t, TypeCode::UInt);
    let negative = op(BinOp::Lt, x.cast(s), PrimExpr::int(s, 0));
    choose(negative, PrimExpr::int(u, s.element().int_min()), PrimExpr::int(u, s.element().int_max()))
}

/// `found`, or the limit on the side of `x` where `over` is negative.
fn limited(over: PrimExpr, x: PrimExpr, found: PrimExpr, t: DType) -> PrimExpr {
    let s = with_code(t, TypeCode::Int);
    choose(op(BinOp::Lt, over.cast(s), PrimExpr::int(s, 0)), bound_by(x, t), found)
}
