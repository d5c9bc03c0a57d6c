//! Floats of 4, 6 and 8 bits: one table, from which constants are folded, kernels are written and ONNX tensors read.
//!
//! They are storage types: arithmetic happens in float32. Conversions round half to even, once; a number that is too
//! large becomes infinity, NaN where the format has no infinity, the largest number where it has neither. Source: the
//! Python package ml_dtypes, code by code; codes of DLPack.

use crate::dtype::DType;
use crate::prim::{BinOp, Intrin, PrimExpr, Var};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SmallFloat {
    E3M4,
    E4M3,
    E4M3B11Fnuz,
    E4M3Fn,
    E4M3Fnuz,
    E5M2,
    E5M2Fnuz,
    /// A power of two, without sign.
    E8M0Fnu,
    E2M3Fn,
    E3M2Fn,
    E2M1Fn,
}

/// How the codes of a type are made.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub name: &'static str,
    pub dlpack: u8,
    pub bits: u8,
    pub mantissa: u8,
    /// Exponents begin at `1 - bias`.
    pub bias: i32,
    /// The code of the largest number.
    pub largest: u8,
    /// What is larger, and infinity.
    pub overflow: u8,
    pub nan: u8,
    /// Of zero, infinity and NaN.
    pub negative_zero: bool,
}

const fn format(
    name: &'static str,
    dlpack: u8,
    bits: u8,
    (mantissa, bias): (u8, i32),
    (largest, overflow, nan): (u8, u8, u8),
    negative_zero: bool,
) -> Format {
    Format { name, dlpack, bits, mantissa, bias, largest, overflow, nan, negative_zero }
}

static FORMATS: [Format; 11] = [
    format("float8_e3m4", 7, 8, (4, 3), (0x6f, 0x70, 0x78), true),
    format("float8_e4m3", 8, 8, (3, 7), (0x77, 0x78, 0x7c), true),
    format("float8_e4m3b11fnuz", 9, 8, (3, 11), (0x7f, 0x80, 0x80), false),
    format("float8_e4m3fn", 10, 8, (3, 7), (0x7e, 0x7f, 0x7f), true),
    format("float8_e4m3fnuz", 11, 8, (3, 8), (0x7f, 0x80, 0x80), false),
    format("float8_e5m2", 12, 8, (2, 15), (0x7b, 0x7c, 0x7e), true),
    format("float8_e5m2fnuz", 13, 8, (2, 16), (0x7f, 0x80, 0x80), false),
    format("float8_e8m0fnu", 14, 8, (0, 127), (0xfe, 0xff, 0xff), false),
    format("float6_e2m3fn", 15, 6, (3, 1), (0x1f, 0x1f, 0x20), true),
    format("float6_e3m2fn", 16, 6, (2, 3), (0x1f, 0x1f, 0x20), true),
    format("float4_e2m1fn", 17, 4, (1, 1), (0x07, 0x07, 0x08), true),
];

const I: DType = DType::I32;

impl SmallFloat {
    pub const ALL: [SmallFloat; 11] = [
        SmallFloat::E3M4,
        SmallFloat::E4M3,
        SmallFloat::E4M3B11Fnuz,
        SmallFloat::E4M3Fn,
        SmallFloat::E4M3Fnuz,
        SmallFloat::E5M2,
        SmallFloat::E5M2Fnuz,
        SmallFloat::E8M0Fnu,
        SmallFloat::E2M3Fn,
        SmallFloat::E3M2Fn,
        SmallFloat::E2M1Fn,
    ];

    pub fn format(self) -> &'static Format {
        &FORMATS[self as usize]
    }
    pub fn from_name(name: &str) -> Option<SmallFloat> {
        SmallFloat::ALL.into_iter().find(|s| s.format().name == name)
    }
    pub fn from_dlpack(code: u8) -> Option<SmallFloat> {
        SmallFloat::ALL.into_iter().find(|s| s.format().dlpack == code)
    }
    fn sign_bit(self) -> u8 {
        1 << (self.format().bits - 1)
    }
    /// The largest and the lowest finite number.
    pub fn max(self) -> f64 {
        self.decode(self.format().largest)
    }
    pub fn min(self) -> f64 {
        match self {
            SmallFloat::E8M0Fnu => self.decode(0),
            _ => -self.max(),
        }
    }
    /// The nearest number of the type.
    pub fn round(self, v: f64) -> f64 {
        self.decode(self.encode(v))
    }

    /// The number that a code stands for.
    pub fn decode(self, code: u8) -> f64 {
        let f = self.format();
        if self == SmallFloat::E8M0Fnu {
            return if code == f.nan { f64::NAN } else { 2f64.powi(code as i32 - f.bias) };
        }
        let code = code & (self.sign_bit() | (self.sign_bit() - 1));
        let (magnitude, negative) = (code & (self.sign_bit() - 1), code & self.sign_bit() != 0);
        if !f.negative_zero && code == f.nan {
            return f64::NAN;
        }
        let v = if magnitude <= f.largest {
            let (exponent, unit) = ((magnitude >> f.mantissa) as i32, 1i32 << f.mantissa);
            let fraction = magnitude as i32 & (unit - 1);
            let whole = if exponent == 0 { fraction } else { fraction + unit };
            whole as f64 * 2f64.powi(exponent.max(1) - f.bias - f.mantissa as i32)
        } else if magnitude == f.overflow && f.overflow != f.nan {
            f64::INFINITY
        } else {
            f64::NAN
        };
        if negative {
            -v
        } else {
            v
        }
    }

    /// The code of the nearest number.
    pub fn encode(self, v: f64) -> u8 {
        let f = self.format();
        let exponent = ((v.to_bits() >> 52) & 0x7ff) as i32 - 1023;
        if self == SmallFloat::E8M0Fnu {
            if v.is_nan() || v <= 0.0 {
                return f.nan;
            }
            // Half goes up, and whatever is more than the least number.
            let least = exponent == -f.bias && v.to_bits() << 12 != 0;
            let up = (least || v.to_bits() >> 51 & 1 == 1) as i32;
            return (exponent + up + f.bias).clamp(0, f.nan as i32) as u8;
        }
        let sign = if v.is_sign_negative() { self.sign_bit() } else { 0 };
        if v.is_nan() {
            return if f.negative_zero { f.nan ^ sign } else { f.nan };
        }
        let e = exponent.max(1 - f.bias);
        let units = (v.abs() * 2f64.powi(f.mantissa as i32 - e)).round_ties_even();
        let code = units + ((e + f.bias - 1) << f.mantissa) as f64;
        let code = if code > f.largest as f64 { f.overflow } else { code as u8 };
        match f.negative_zero {
            true => code | sign,
            false if code == 0 || code == f.overflow && f.overflow == f.nan => code,
            false => code | sign,
        }
    }

    /// Codes (uint8, any number of lanes) of float32 numbers, in plain arithmetic.
    pub fn encoded(self, x: PrimExpr) -> PrimExpr {
        let f = self.format();
        let lanes = x.dtype().lanes;
        let i = I.with_lanes(lanes);
        let c = |v: i64| PrimExpr::int(i, v);
        let float = DType::F32.with_lanes(lanes);
        let bytes = DType::U8.with_lanes(lanes);
        named("bits", x.reinterpret(i), |bits| {
            let shifted = |op: BinOp, a: PrimExpr, n: i64| PrimExpr::binary(op, a, c(n));
            named("magnitude", shifted(BinOp::BitAnd, bits.clone(), 0x7fff_ffff), |magnitude| {
                let infinity = 0x7f80_0000;
                if self == SmallFloat::E8M0Fnu {
                    // Half goes up; the least number is a subnormal float32.
                    let half = magnitude.clone().lt(c(0x80_0000)).select(c(0x3f_ffff), c(0x40_0000));
                    let code = shifted(BinOp::Shr, magnitude.clone() + half, 23);
                    let none = bits.clone().le(c(0)).or(magnitude.ge(c(infinity)));
                    return none.select(c(f.nan as i64), code).cast(bytes);
                }
                let exponent = shifted(BinOp::Shr, magnitude.clone(), 23) - c(127);
                named("exponent", exponent.max(c(1 - f.bias as i64)), |e| {
                    // The number in units of its last place.
                    let power = shifted(BinOp::Shl, c(f.mantissa as i64 + 127) - e.clone(), 23).reinterpret(float);
                    let units = (magnitude.clone().reinterpret(float) * power).call1(Intrin::NearbyInt).cast(i);
                    let code = units + (e + c(f.bias as i64 - 1)) * c(1 << f.mantissa);
                    let sign = shifted(BinOp::Shr, bits.clone(), 32 - f.bits as i64);
                    let sign = shifted(BinOp::BitAnd, sign, self.sign_bit() as i64);
                    named("code", code, |code| {
                        let over = code.clone().gt(c(f.largest as i64)).or(magnitude.clone().ge(c(infinity)));
                        let nan = magnitude.clone().gt(c(infinity));
                        let signed = |v: PrimExpr| PrimExpr::binary(BinOp::BitXor, v, sign.clone());
                        let code = match f.negative_zero {
                            true => signed(nan.select(c(f.nan as i64), over.select(c(f.overflow as i64), code))),
                            false => {
                                let finite = code.clone().eq(c(0)).select(code.clone(), signed(code));
                                over.or(nan).select(c(f.nan as i64), finite)
                            }
                        };
                        code.cast(bytes)
                    })
                })
            })
        })
    }

    /// The float32 numbers of codes (uint8, any number of lanes).
    pub fn decoded(self, code: PrimExpr) -> PrimExpr {
        let f = self.format();
        let lanes = code.dtype().lanes;
        let i = I.with_lanes(lanes);
        let c = |v: i64| PrimExpr::int(i, v);
        let float = DType::F32.with_lanes(lanes);
        let quiet = 0x7fc0_0000;
        named("code", code.cast(i), |code| {
            let op = |op: BinOp, a: PrimExpr, n: i64| PrimExpr::binary(op, a, c(n));
            if self == SmallFloat::E8M0Fnu {
                let power = op(BinOp::Shl, code.clone(), 23);
                let power = code.clone().eq(c(0)).select(c(0x40_0000), power);
                return code.eq(c(f.nan as i64)).select(c(quiet), power).reinterpret(float);
            }
            let magnitude = op(BinOp::BitAnd, code.clone(), self.sign_bit() as i64 - 1);
            let sign = op(BinOp::Shl, code.clone(), 32 - f.bits as i64);
            let sign = op(BinOp::BitAnd, sign, i32::MIN as i64);
            named("magnitude", magnitude, |magnitude| {
                // The exponent's bias grows; the multiplication also normalises subnormal numbers.
                let bits = op(BinOp::Shl, magnitude.clone(), 23 - f.mantissa as i64);
                let scale = PrimExpr::float(float, 2f64.powi(127 - f.bias));
                let bits = (bits.reinterpret(float) * scale).reinterpret(i);
                let special = if f.overflow != f.nan && f.overflow > f.largest {
                    let infinite = magnitude.clone().eq(c(f.overflow as i64));
                    infinite.select(c(0x7f80_0000), c(quiet))
                } else {
                    c(quiet)
                };
                let bits = match f.negative_zero {
                    true if f.largest + 1 == self.sign_bit() => bits,
                    true => magnitude.gt(c(f.largest as i64)).select(special, bits),
                    false => op(BinOp::BitAnd, code.clone(), 0xff).eq(c(f.nan as i64)).select(c(quiet), bits),
                };
                PrimExpr::binary(BinOp::BitOr, bits, sign).reinterpret(float)
            })
        })
    }
}

/// `let name = value in body(name)`
fn named(name: &str, value: PrimExpr, body: impl FnOnce(PrimExpr) -> PrimExpr) -> PrimExpr {
    let v = Var::new(name, value.dtype());
    let body = body(v.expr());
    PrimExpr::let_in(v, value, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_comes_back() {
        for s in SmallFloat::ALL {
            for code in 0..1u16 << s.format().bits {
                let (code, v) = (code as u8, s.decode(code as u8));
                if v.is_nan() {
                    assert!(s.decode(s.encode(v)).is_nan(), "{s:?} {code:#x}");
                } else {
                    assert_eq!(s.encode(v), code, "{s:?} {code:#x} is {v}");
                }
            }
        }
    }

    #[test]
    fn what_is_between_rounds_half_to_even() {
        use SmallFloat::*;
        let cases = [
            (E4M3Fn, 448.0, 0x7e),
            (E4M3Fn, 464.0, 0x7e),
            (E4M3Fn, 465.0, 0x7f),
            (E4M3Fn, f64::NEG_INFINITY, 0xff),
            (E4M3Fn, 0.0009765625, 0x00),
            (E4M3Fn, 0.0029296875, 0x02),
            (E5M2, 61439.0, 0x7b),
            (E5M2, 61440.0, 0x7c),
            (E5M2, -f64::INFINITY, 0xfc),
            (E4M3Fnuz, -0.0, 0x00),
            (E4M3Fnuz, 1e10, 0x80),
            (E8M0Fnu, 1.5, 0x80),
            (E8M0Fnu, 3.0, 0x81),
            (E8M0Fnu, 0.0, 0xff),
            (E8M0Fnu, -1.0, 0xff),
            (E8M0Fnu, 3e38, 0xff),
            (E2M1Fn, 2.5, 0x4),
            (E2M1Fn, -100.0, 0xf),
            (E2M1Fn, f64::NAN, 0x8),
        ];
        for (s, v, code) in cases {
            assert_eq!(s.encode(v), code, "{s:?} of {v}");
        }
    }
}
