//! What Python computes of two literals.

use super::Num;
use relax_ir::prim::{BinOp, PrimExpr};

/// Python's own arithmetic of numbers one of which is a float: in 64 bits.
pub(super) fn float_arithmetic(op: BinOp, a: &Num, b: &Num) -> Option<Num> {
    let (x, y) = match (a, b) {
        (Num::Float(x, _), Num::Float(y, _)) => (*x, *y),
        (Num::Float(x, _), Num::Int(y)) => (*x, *y as f64),
        (Num::Int(x), Num::Float(y, _)) => (*x as f64, *y),
        _ => return None,
    };
    let v = match op {
        BinOp::Add => x + y,
        BinOp::Sub => x - y,
        BinOp::Mul => x * y,
        BinOp::Div if y != 0.0 => x / y,
        _ => return None,
    };
    Some(Num::Float(v, v as f32))
}

/// Python's arithmetic on two integers.
pub(super) fn literal_arithmetic(op: BinOp, x: i128, y: i128) -> Option<Num> {
    let int = |v: Option<i128>| v.map(Num::Int);
    let bool = |v| Some(Num::Expr(PrimExpr::bool(v)));
    match op {
        BinOp::Add => int(x.checked_add(y)),
        BinOp::Sub => int(x.checked_sub(y)),
        BinOp::Mul => int(x.checked_mul(y)),
        BinOp::FloorDiv => {
            let q = x.checked_div(y)?;
            int(Some(if x % y != 0 && (x < 0) != (y < 0) { q - 1 } else { q }))
        }
        BinOp::FloorMod => {
            let r = x.checked_rem(y)?;
            int(Some(if r != 0 && (r < 0) != (y < 0) { r + y } else { r }))
        }
        BinOp::BitAnd => int(Some(x & y)),
        BinOp::BitOr => int(Some(x | y)),
        BinOp::BitXor => int(Some(x ^ y)),
        BinOp::Shl => int(u32::try_from(y).ok().filter(|s| *s < 64 && x.abs() < 1 << 63).map(|s| x << s)),
        BinOp::Shr => int(u32::try_from(y).ok().filter(|s| *s < 128).map(|s| x >> s)),
        BinOp::Eq => bool(x == y),
        BinOp::Ne => bool(x != y),
        BinOp::Lt => bool(x < y),
        BinOp::Le => bool(x <= y),
        BinOp::Gt => bool(x > y),
        BinOp::Ge => bool(x >= y),
        _ => None,
    }
}

/// `x ** y`: whole where both are and `y` is not negative, else a float that is a number.
pub(super) fn power(a: &Num, b: &Num) -> Option<Num> {
    let number = |n: &Num| match n {
        Num::Int(v) => Some(*v as f64),
        Num::Float(v, _) => Some(*v),
        Num::Expr(_) => None,
    };
    match (a, b) {
        (Num::Int(x), Num::Int(y)) if *y >= 0 => x.checked_pow(u32::try_from(*y).ok()?).map(Num::Int),
        _ => {
            let v = number(a)?.powf(number(b)?);
            v.is_finite().then_some(Num::Float(v, v as f32))
        }
    }
}
