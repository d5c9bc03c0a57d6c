//! Scalar arithmetic of every type: integers are carried as `i64`, floats as `f64`, each result brought back to its
//! type. For f32, f16 and bf16 the detour over f64 rounds `+ - * / sqrt` exactly as the type itself would (f64 has
//! more than twice their precision).

use half::{bf16, f16};
use relax_ir::prim::{BinOp, Intrin};
use relax_ir::small_float::SmallFloat;
use relax_ir::{DType, TypeCode};

/// A float format: how a value computed in f64 becomes one of the type.
pub trait Precision: 'static {
    fn round(v: f64) -> f64;
    /// `a * b + c` rounded once.
    fn fma(a: f64, b: f64, c: f64) -> f64 {
        Self::round(a.mul_add(b, c))
    }
    fn next(v: f64, up: bool) -> f64;
}

pub struct P64;
pub struct P32;
pub struct P16;
pub struct PBf16;
/// The small float of this number in [`SmallFloat::ALL`].
pub struct PSmall<const N: usize>;

impl<const N: usize> Precision for PSmall<N> {
    fn round(v: f64) -> f64 {
        SmallFloat::ALL[N].round(v)
    }
    /// The neighbour by code; past the largest number it stays there.
    fn next(v: f64, up: bool) -> f64 {
        let s = SmallFloat::ALL[N];
        let all = (0..=u8::MAX).filter(|c| (*c as u32) < 1 << s.format().bits).map(|c| s.decode(c));
        let finite = all.filter(|x| x.is_finite());
        let found = match up {
            true => finite.filter(|x| *x > v).reduce(f64::min),
            false => finite.filter(|x| *x < v).reduce(f64::max),
        };
        found.unwrap_or(v)
    }
}

/// `$run!(P)` for the precision of a float type.
macro_rules! with_precision {
    ($d:expr, $run:ident) => {
        match ($d.code, $d.bits) {
            (relax_ir::TypeCode::BFloat, _) => $run!($crate::interp::scalar::PBf16),
            (relax_ir::TypeCode::Small(s), _) => match s as usize {
                0 => $run!($crate::interp::scalar::PSmall<0>),
                1 => $run!($crate::interp::scalar::PSmall<1>),
                2 => $run!($crate::interp::scalar::PSmall<2>),
                3 => $run!($crate::interp::scalar::PSmall<3>),
                4 => $run!($crate::interp::scalar::PSmall<4>),
                5 => $run!($crate::interp::scalar::PSmall<5>),
                6 => $run!($crate::interp::scalar::PSmall<6>),
                7 => $run!($crate::interp::scalar::PSmall<7>),
                8 => $run!($crate::interp::scalar::PSmall<8>),
                9 => $run!($crate::interp::scalar::PSmall<9>),
                _ => $run!($crate::interp::scalar::PSmall<10>),
            },
            (_, 16) => $run!($crate::interp::scalar::P16),
            (_, 32) => $run!($crate::interp::scalar::P32),
            _ => $run!($crate::interp::scalar::P64),
        }
    };
}
pub(crate) use with_precision;

impl Precision for P64 {
    fn round(v: f64) -> f64 {
        v
    }
    fn next(v: f64, up: bool) -> f64 {
        if up {
            v.next_up()
        } else {
            v.next_down()
        }
    }
}
impl Precision for P32 {
    fn round(v: f64) -> f64 {
        v as f32 as f64
    }
    fn fma(a: f64, b: f64, c: f64) -> f64 {
        (a as f32).mul_add(b as f32, c as f32) as f64
    }
    fn next(v: f64, up: bool) -> f64 {
        let v = v as f32;
        (if up { v.next_up() } else { v.next_down() }) as f64
    }
}
impl Precision for P16 {
    fn round(v: f64) -> f64 {
        f16::from_f64(v).to_f64()
    }
    fn next(v: f64, up: bool) -> f64 {
        f16::from_bits(next_bits(f16::from_f64(v).to_bits(), up)).to_f64()
    }
}
impl Precision for PBf16 {
    fn round(v: f64) -> f64 {
        bf16::from_f64(v).to_f64()
    }
    fn next(v: f64, up: bool) -> f64 {
        bf16::from_bits(next_bits(bf16::from_f64(v).to_bits(), up)).to_f64()
    }
}

/// The neighbour of a finite 16-bit float given by its bits.
fn next_bits(bits: u16, up: bool) -> u16 {
    let negative = bits & 0x8000 != 0;
    match bits & 0x7fff {
        0 => 1 | if up { 0 } else { 0x8000 },
        _ if negative == up => bits - 1,
        _ => bits + 1,
    }
}

/// Brings an integer back to its type. Bool is `!= 0`.
#[derive(Clone, Copy)]
pub struct Wrap {
    shift: u32,
    signed: bool,
    bool: bool,
}

impl Wrap {
    pub fn new(d: DType) -> Wrap {
        let bits = if d.bits == 0 { 64 } else { d.bits as u32 };
        Wrap { shift: 64 - bits.min(64), signed: d.is_signed() || d.is_handle(), bool: d.is_bool() }
    }
    pub fn apply(self, v: i64) -> i64 {
        if self.bool {
            (v != 0) as i64
        } else if self.signed {
            (v << self.shift) >> self.shift
        } else {
            ((v as u64) << self.shift >> self.shift) as i64
        }
    }
}

/// An integer operation on operands of one type; `None` on division by zero. The result is not wrapped yet, except
/// that it is exact modulo 2^64.
pub fn int_binary(op: BinOp, unsigned: bool, bits: u32, a: i64, b: i64) -> Option<i64> {
    use BinOp::*;
    let (ua, ub) = (a as u64, b as u64);
    let less = if unsigned { ua < ub } else { a < b };
    let greater = if unsigned { ua > ub } else { a > b };
    Some(match op {
        Add => a.wrapping_add(b),
        Sub => a.wrapping_sub(b),
        Mul => a.wrapping_mul(b),
        Div | TruncDiv | FloorDiv if unsigned => ua.checked_div(ub)? as i64,
        TruncMod | FloorMod if unsigned => ua.checked_rem(ub)? as i64,
        _ if b == 0 && matches!(op, Div | TruncDiv | FloorDiv | TruncMod | FloorMod) => return None,
        Div | TruncDiv => a.wrapping_div(b),
        TruncMod => a.wrapping_rem(b),
        FloorDiv => {
            let q = a.wrapping_div(b);
            q - (a.wrapping_rem(b) != 0 && (a < 0) != (b < 0)) as i64
        }
        FloorMod => {
            let r = a.wrapping_rem(b);
            if r != 0 && (r < 0) != (b < 0) {
                r + b
            } else {
                r
            }
        }
        Min => {
            if less {
                a
            } else {
                b
            }
        }
        Max => {
            if greater {
                a
            } else {
                b
            }
        }
        Eq => (a == b) as i64,
        Ne => (a != b) as i64,
        Lt => less as i64,
        Le => !greater as i64,
        Gt => greater as i64,
        Ge => !less as i64,
        And => (a != 0 && b != 0) as i64,
        Or => (a != 0 || b != 0) as i64,
        BitAnd => a & b,
        BitOr => a | b,
        BitXor => a ^ b,
        // A shift by the width or more is undefined in TVM; here everything is shifted out.
        Shl if ub >= bits as u64 => 0,
        Shl => a << b,
        Shr if ub >= bits as u64 => -((!unsigned && a < 0) as i64),
        Shr if unsigned => (ua >> b) as i64,
        Shr => a >> b,
    })
}

/// A float operation with a float result, rounded to `P` (floor division and modulus round every step).
pub fn float_binary<P: Precision>(op: BinOp, a: f64, b: f64) -> f64 {
    match op {
        BinOp::Add => P::round(a + b),
        BinOp::Sub => P::round(a - b),
        BinOp::Mul => P::round(a * b),
        BinOp::Div => P::round(a / b),
        BinOp::TruncDiv => P::round(a / b).trunc(),
        BinOp::FloorDiv => P::round(a / b).floor(),
        BinOp::TruncMod => a % b,
        BinOp::FloorMod => P::round(a - P::round(P::round(a / b).floor() * b)),
        BinOp::Min if a < b => a,
        BinOp::Max if a > b => a,
        _ => b,
    }
}

/// A comparison of floats, or a logical operation on their truth.
pub fn float_compare(op: BinOp, a: f64, b: f64) -> bool {
    match op {
        BinOp::Eq => a == b,
        BinOp::Ne => a != b,
        BinOp::Lt => a < b,
        BinOp::Le => a <= b,
        BinOp::Gt => a > b,
        BinOp::Ge => a >= b,
        BinOp::And => a != 0.0 && b != 0.0,
        BinOp::Or => a != 0.0 || b != 0.0,
        _ => false,
    }
}

/// A float intrinsic of one argument, computed in f64 and not rounded yet; `None` for those of other shapes.
pub fn float_unary(f: Intrin) -> Option<fn(f64) -> f64> {
    Some(match f {
        Intrin::Exp => f64::exp,
        Intrin::Exp2 => f64::exp2,
        Intrin::Exp10 => |x| 10f64.powf(x),
        Intrin::Log => f64::ln,
        Intrin::Log2 => f64::log2,
        Intrin::Log10 => f64::log10,
        Intrin::Log1p => f64::ln_1p,
        Intrin::Sqrt => f64::sqrt,
        Intrin::Rsqrt => |x| 1.0 / x.sqrt(),
        Intrin::Sin => f64::sin,
        Intrin::Cos => f64::cos,
        Intrin::Tan => f64::tan,
        Intrin::Asin => f64::asin,
        Intrin::Acos => f64::acos,
        Intrin::Atan => f64::atan,
        Intrin::Sinh => f64::sinh,
        Intrin::Cosh => f64::cosh,
        Intrin::Tanh => f64::tanh,
        Intrin::Asinh => f64::asinh,
        Intrin::Acosh => f64::acosh,
        Intrin::Atanh => f64::atanh,
        Intrin::Sigmoid => |x| 1.0 / (1.0 + (-x).exp()),
        Intrin::Erf => erf,
        Intrin::Floor => f64::floor,
        Intrin::Ceil => f64::ceil,
        Intrin::Trunc => f64::trunc,
        Intrin::Round | Intrin::NearbyInt => f64::round_ties_even,
        Intrin::Abs | Intrin::Fabs => f64::abs,
        _ => return None,
    })
}

/// A float intrinsic of two arguments, computed in f64 and not rounded yet.
pub fn float_of_two(f: Intrin) -> Option<fn(f64, f64) -> f64> {
    Some(match f {
        Intrin::Pow => f64::powf,
        Intrin::Atan2 => f64::atan2,
        Intrin::Fmod => |a, b| a % b,
        Intrin::Hypot => f64::hypot,
        Intrin::CopySign => f64::copysign,
        Intrin::LdExp => |a, n| a * n.exp2(),
        _ => return None,
    })
}

/// The neighbour of `a` in the direction of `b`.
pub fn next_after<P: Precision>(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == b {
        b
    } else {
        P::next(a, b > a)
    }
}

/// The error function, to about 1e-15: the series of positive terms
/// `erf x = 2/sqrt(pi) exp(-x^2) sum_n 2^n x^(2n+1) / (1*3*...*(2n+1))`.
pub fn erf(x: f64) -> f64 {
    if x.is_nan() || x.abs() >= 6.0 {
        return if x.is_nan() { x } else { x.signum() };
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > sum.abs() * 1e-18 {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    sum * (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI
}

/// An integer intrinsic whose arguments and result are integers; the result is not wrapped yet.
pub fn int_intrin(f: Intrin, d: DType, args: &[i64]) -> Option<i64> {
    let a = *args.first()?;
    let bits = d.bits as u32;
    let raw = if bits >= 64 { a as u64 } else { a as u64 & ((1u64 << bits) - 1) };
    Some(match f {
        Intrin::Abs | Intrin::Fabs => {
            if d.is_signed() {
                a.wrapping_abs()
            } else {
                a
            }
        }
        Intrin::PopCount => raw.count_ones() as i64,
        Intrin::Clz => raw.leading_zeros() as i64 - (64 - bits as i64),
        Intrin::BitNot => !a,
        Intrin::Floor | Intrin::Ceil | Intrin::Trunc | Intrin::Round | Intrin::NearbyInt | Intrin::Likely => a,
        Intrin::ReduceAdd | Intrin::ReduceMul | Intrin::ReduceMax | Intrin::ReduceMin | Intrin::ExtractLane => a,
        Intrin::Fma => a.wrapping_mul(*args.get(1)?).wrapping_add(*args.get(2)?),
        Intrin::Dot4 => {
            let (x, w) = (*args.get(1)? as u32, *args.get(2)? as u32);
            let product = |i: u32| (x >> (8 * i)) as u8 as i64 * ((w >> (8 * i)) as u8 as i8) as i64;
            (0..4).fold(a, |a, i| a.wrapping_add(product(i)))
        }
        Intrin::ByteWords => {
            let (odd, signed) = (*args.get(1)?, *args.get(2)? != 0);
            let word = |i: i64| {
                let byte = (a >> (8 * (2 * i + odd))) as u8;
                let word = if signed { byte as i8 as i16 as u16 } else { byte as u16 };
                (word as u32) << (16 * i)
            };
            (word(0) | word(1)) as i32 as i64
        }
        Intrin::DotWords => {
            let (x, w) = (*args.get(1)?, *args.get(2)?);
            let product = |i: i64| (x >> (16 * i)) as i16 as i64 * (w >> (16 * i)) as i16 as i64;
            a.wrapping_add(product(0)).wrapping_add(product(1))
        }
        Intrin::AddWords | Intrin::SubWords => {
            let b = *args.get(1)?;
            let word = |i: u32| {
                let (a, b) = ((a >> (16 * i)) as i16, (b >> (16 * i)) as i16);
                let word = if f == Intrin::AddWords { a.wrapping_add(b) } else { a.wrapping_sub(b) };
                (word as u16 as u32) << (16 * i)
            };
            (word(0) | word(1)) as i32 as i64
        }
        Intrin::Pow => int_pow(a, *args.get(1)?),
        Intrin::Fmod => a.checked_rem(*args.get(1)?)?,
        _ => return None,
    })
}

/// Wrapping power; a negative exponent gives the integer part of the reciprocal.
fn int_pow(base: i64, exponent: i64) -> i64 {
    match (base, exponent) {
        (1, _) => 1,
        (-1, e) => 1 - 2 * (e & 1),
        (_, e) if e < 0 => 0,
        (mut b, mut e) => {
            let mut r = 1i64;
            while e > 0 {
                if e & 1 == 1 {
                    r = r.wrapping_mul(b);
                }
                b = b.wrapping_mul(b);
                e >>= 1;
            }
            r
        }
    }
}

/// Float to integer, as compiled code does it: truncates, and saturates at the range of the type; NaN gives 0.
pub fn float_to_int(d: DType, v: f64) -> i64 {
    match (d.is_signed(), d.bits) {
        (false, 64) => v as u64 as i64,
        (true, 64) => v as i64,
        _ => (v as i64).clamp(d.int_min(), d.int_max()),
    }
}

/// Integer to float, rounded once.
pub fn int_to_float(to: DType, unsigned: bool, v: i64) -> f64 {
    match (to.code, to.bits) {
        (TypeCode::Float, 32) if unsigned => v as u64 as f32 as f64,
        (TypeCode::Float, 32) => v as f32 as f64,
        // By way of float32, as compiled code does it.
        (TypeCode::Small(s), _) => s.round(if unsigned { v as u64 as f32 as f64 } else { v as f32 as f64 }),
        _ if unsigned => relax_ir::prim::round_float(to, v as u64 as f64),
        _ => relax_ir::prim::round_float(to, v as f64),
    }
}

/// The bits of a float of type `d`, zero-extended.
pub fn float_bits(d: DType, v: f64) -> u64 {
    match (d.code, d.bits) {
        (TypeCode::BFloat, _) => bf16::from_f64(v).to_bits() as u64,
        (TypeCode::Small(s), _) => s.encode(v) as u64,
        (_, 16) => f16::from_f64(v).to_bits() as u64,
        (_, 32) => (v as f32).to_bits() as u64,
        _ => v.to_bits(),
    }
}

/// The float of type `d` with these bits.
pub fn float_from_bits(d: DType, bits: u64) -> f64 {
    match (d.code, d.bits) {
        (TypeCode::BFloat, _) => bf16::from_bits(bits as u16).to_f64(),
        (TypeCode::Small(s), _) => s.decode(bits as u8),
        (_, 16) => f16::from_bits(bits as u16).to_f64(),
        (_, 32) => f32::from_bits(bits as u32) as f64,
        _ => f64::from_bits(bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_agrees_with_tables() {
        let table = [
            (0.5, 0.5204998778130465),
            (1.0, 0.8427007929497149),
            (2.0, 0.9953222650189527),
            (-3.0, -0.9999779095030014),
        ];
        for (x, want) in table {
            assert!((erf(x) - want).abs() < 1e-15, "erf({x}) = {}", erf(x));
        }
    }

    #[test]
    fn floor_and_truncation_differ_on_negatives() {
        assert_eq!(int_binary(BinOp::FloorDiv, false, 32, -7, 2), Some(-4));
        assert_eq!(int_binary(BinOp::FloorMod, false, 32, -7, 2), Some(1));
        assert_eq!(int_binary(BinOp::TruncDiv, false, 32, -7, 2), Some(-3));
        assert_eq!(int_binary(BinOp::TruncMod, false, 32, -7, 2), Some(-1));
        assert_eq!(int_binary(BinOp::FloorDiv, false, 32, 1, 0), None);
    }

    #[test]
    fn integers_wrap_at_their_width() {
        assert_eq!(Wrap::new(DType::I8).apply(200), -56);
        assert_eq!(Wrap::new(DType::U8).apply(-1), 255);
        assert_eq!(Wrap::new(DType::U64).apply(-1), -1);
        assert_eq!(Wrap::new(DType::BOOL).apply(7), 1);
    }

    #[test]
    fn neighbours_of_half_precision() {
        assert_eq!(next_after::<P16>(1.0, 2.0), 1.0009765625);
        assert_eq!(next_after::<P16>(0.0, -1.0), -5.960464477539063e-8);
    }
}
