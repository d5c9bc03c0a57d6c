//! What operations mean, in plain Rust.

use crate::harness::V;
use relax_ir::prim::{wrap_int, BinOp};
use relax_ir::DType;

pub fn binary(op: BinOp, d: DType, a: V, b: V) -> V {
    match (a, b) {
        (V::F(x), V::F(y)) => {
            let r = |v: f64| V::F(v);
            let f = |v: f64, w: f32| if d.bits == 64 { r(v) } else { r(w as f64) };
            let (p, q) = (x as f32, y as f32);
            match op {
                BinOp::Add => f(x + y, p + q),
                BinOp::Sub => f(x - y, p - q),
                BinOp::Mul => f(x * y, p * q),
                BinOp::Div => f(x / y, p / q),
                BinOp::Min => r(if x < y { x } else { y }),
                BinOp::Max => r(if x > y { x } else { y }),
                BinOp::FloorDiv => f((x / y).floor(), (p / q).floor()),
                BinOp::FloorMod => f(x - (x / y).floor() * y, p - (p / q).floor() * q),
                BinOp::Eq => V::I((x == y) as i64),
                BinOp::Ne => V::I((x != y) as i64),
                BinOp::Lt => V::I((x < y) as i64),
                BinOp::Le => V::I((x <= y) as i64),
                BinOp::Gt => V::I((x > y) as i64),
                BinOp::Ge => V::I((x >= y) as i64),
                _ => unreachable!(),
            }
        }
        (V::I(x), V::I(y)) => {
            let (u, w) = (x as u64, y as u64);
            let unsigned = d.is_uint();
            let (lx, ly): (i128, i128) = if unsigned { (u as i128, w as i128) } else { (x as i128, y as i128) };
            let i = |v: i128| V::I(wrap_int(d, v as i64));
            let sh = (y & (d.bits as i64 - 1)) as u32;
            match op {
                BinOp::Add => i(lx + ly),
                BinOp::Sub => i(lx - ly),
                BinOp::Mul => V::I(wrap_int(d, x.wrapping_mul(y))),
                BinOp::Div | BinOp::TruncDiv => i(if ly == 0 { 0 } else { lx / ly }),
                BinOp::TruncMod => i(if ly == 0 { 0 } else { lx % ly }),
                BinOp::FloorDiv => {
                    i(if ly == 0 { 0 } else { lx.div_euclid(ly) - ((lx.rem_euclid(ly) != 0 && ly < 0) as i128) })
                }
                BinOp::FloorMod => {
                    let r = if ly == 0 { 0 } else { lx % ly };
                    i(if r != 0 && (r < 0) != (ly < 0) { r + ly } else { r })
                }
                BinOp::Min => i(lx.min(ly)),
                BinOp::Max => i(lx.max(ly)),
                BinOp::Eq => V::I((x == y) as i64),
                BinOp::Ne => V::I((x != y) as i64),
                BinOp::Lt => V::I((lx < ly) as i64),
                BinOp::Le => V::I((lx <= ly) as i64),
                BinOp::Gt => V::I((lx > ly) as i64),
                BinOp::Ge => V::I((lx >= ly) as i64),
                BinOp::BitAnd => i((x & y) as i128),
                BinOp::BitOr => i((x | y) as i128),
                BinOp::BitXor => i((x ^ y) as i128),
                BinOp::And => V::I((x != 0 && y != 0) as i64),
                BinOp::Or => V::I((x != 0 || y != 0) as i64),
                BinOp::Shl => V::I(wrap_int(d, x.wrapping_shl(sh))),
                BinOp::Shr => V::I(wrap_int(d, if unsigned { u.wrapping_shr(sh) as i64 } else { x >> sh })),
            }
        }
        _ => unreachable!(),
    }
}

pub fn convert(from: DType, to: DType, v: V) -> V {
    match v {
        V::F(x) if to.is_float() => V::F(relax_ir::prim::round_float(to, x)),
        V::F(x) if to.is_bool() => V::I((x != 0.0) as i64),
        V::F(x) if to.is_uint() && to.bits == 64 => V::I(x as u64 as i64),
        V::F(x) if to.is_uint() => V::I((x as u64 as i128).min(to.int_max() as i128) as i64),
        V::F(x) => V::I((x as i64).clamp(to.int_min(), to.int_max())),
        V::I(x) if to.is_float() => {
            let (x, w) = if from == DType::U64 { (x as u64 as f64, x as u64 as f32) } else { (x as f64, x as f32) };
            V::F(if to.bits == 64 { x } else { relax_ir::prim::round_float(to, w as f64) })
        }
        V::I(x) => V::I(wrap_int(to, x)),
    }
}
