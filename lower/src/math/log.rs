//! Logarithms.

use super::build::Build;
use super::exp::{LG2_F32, LG2_F64, LN2_F32, LN2_F64};
use relax_ir::prim::{BinOp, PrimExpr};

/// `(log((1 + s) / (1 - s)) - 2 s) / s^3` over `s^2`, for arguments between sqrt(1/2) and sqrt(2).
const LOG_F32: &[f64] = &[0.6666666269302368, 0.40000849962234497, 0.28510141372680664, 0.24029208719730377];
pub(super) const LOG_F64: &[f64] = &[
    0.6666666666666734,
    0.39999999999416624,
    0.2857142874204094,
    0.2222219860271699,
    0.18183563025765306,
    0.15314079076508424,
    0.14795703383523703,
];

/// `log(1 + e) / e` for `e` from 0 to 1.
const LOG1P_F32: &[f64] = &[
    1.0,
    -0.4999990165233612,
    0.3332996368408203,
    -0.24954134225845337,
    0.1967593878507614,
    -0.15305592119693756,
    0.10603655129671097,
    -0.05695953220129013,
    0.01985146291553974,
    -0.0032440251670777798,
];

/// `x = 2^k (1 + f)`, `1 + f` between sqrt(1/2) and sqrt(2).
pub(super) struct Split {
    pub k: PrimExpr,
    pub f: PrimExpr,
}

impl Build {
    /// Takes a positive finite number apart.
    pub fn split(&mut self, x: &PrimExpr, denormals: bool) -> Split {
        let m = self.mantissa();
        let (mut x, mut shift) = (x.clone(), None);
        if denormals {
            let least = self.c2(f32::MIN_POSITIVE as f64, f64::MIN_POSITIVE);
            let small = self.op(BinOp::Lt, &x, &least);
            let by = self.c2(2f64.powi(25), 2f64.powi(54));
            let up = self.mul(&x, &by);
            x = self.select(small.clone(), &up, &x);
            let (moved, still) = (self.c2(25.0, 54.0), self.c(0.0));
            shift = Some(self.select(small, &moved, &still));
        }
        let sqrt_half = self.int2(0x3f3504f3, 0x3fe6a09e667f3bcd);
        let one = self.int2(0x3f800000, 0x3ff0000000000000);
        let bits = self.bits(&x);
        let h = self.sub(&bits, &sqrt_half);
        let h = self.add(&h, &one);
        // The exponent, as a float: put below the bits of 2^m and subtract that again.
        let by = self.int(m);
        let e = {
            let unsigned = relax_ir::DType { code: relax_ir::TypeCode::UInt, ..self.i };
            let h = h.clone().reinterpret(unsigned);
            let by = by.reinterpret(unsigned);
            let e = super::raw(BinOp::Shr, h, by).reinterpret(self.i);
            self.bind(e)
        };
        let frame = self.int2(0x4b000000, 0x4330000000000000);
        let e = self.op(BinOp::BitOr, &e, &frame);
        let e = self.with_bits(&e);
        let mut offset = self.c(2f64.powi(m as i32) + self.bias() as f64);
        if let Some(s) = shift {
            offset = self.add(&s, &offset);
        }
        let k = self.sub(&e, &offset);
        let mask = self.int((1 << m) - 1);
        let low = self.op(BinOp::BitAnd, &h, &mask);
        let y = self.add(&low, &sqrt_half);
        let y = self.with_bits(&y);
        let one = self.c(1.0);
        let f = self.sub(&y, &one);
        Split { k, f }
    }

    /// `log(1 + f)` as `f - (h - s (h + r))`: returns `f` and what is subtracted.
    fn log_parts(&mut self, f: &PrimExpr) -> PrimExpr {
        let two = self.c(2.0);
        let d = self.add(f, &two);
        let s = self.div(f, &d);
        let z = self.mul(&s, &s);
        let p = self.poly(&z, self.of(LOG_F32, LOG_F64));
        let r = self.mul(&z, &p);
        let half = self.c(0.5);
        let ff = self.mul(f, f);
        let h = self.mul(&half, &ff);
        let hr = self.add(&h, &r);
        let t = self.mul(&s, &hr);
        self.sub(&h, &t)
    }

    /// NaN below zero, -inf at zero, infinity and NaN as they are.
    fn log_limits(&mut self, x: &PrimExpr, r: &PrimExpr) -> PrimExpr {
        let (zero, inf) = (self.c(0.0), self.c(f64::INFINITY));
        let (nan, minus_inf) = (self.c(f64::NAN), self.c(f64::NEG_INFINITY));
        let r = self.select(x.clone().lt(inf), r, x);
        let r = self.select(x.clone().lt(zero.clone()), &nan, &r);
        self.select(x.clone().eq(zero), &minus_inf, &r)
    }

    fn log_positive(&mut self, s: &Split, correction: Option<&PrimExpr>) -> PrimExpr {
        let (hi, lo) = if self.f64 { LN2_F64 } else { LN2_F32 };
        let minus = self.log_parts(&s.f);
        let (hi, lo) = (self.c(hi), self.c(lo));
        let mut low = self.mul(&s.k, &lo);
        if let Some(c) = correction {
            low = self.add(&low, c);
        }
        let low = self.sub(&low, &minus);
        let t = self.add(&low, &s.f);
        self.fma(&s.k, &hi, &t)
    }

    /// f32: 0.8 ULP, f64: 1 ULP.
    pub fn log(&mut self, x: &PrimExpr) -> PrimExpr {
        let s = self.split(x, true);
        let r = self.log_positive(&s, None);
        self.log_limits(x, &r)
    }

    /// f32: 1.7 ULP, f64: 2 ULP; exact for powers of two.
    pub fn log2(&mut self, x: &PrimExpr) -> PrimExpr {
        let s = self.split(x, true);
        let minus = self.log_parts(&s.f);
        let l = self.sub(&s.f, &minus);
        let k = self.c(std::f64::consts::LOG2_E);
        let r = self.fma(&l, &k, &s.k);
        self.log_limits(x, &r)
    }

    /// f32: 1.8 ULP, f64: 2 ULP.
    pub fn log10(&mut self, x: &PrimExpr) -> PrimExpr {
        let (hi, lo) = if self.f64 { LG2_F64 } else { LG2_F32 };
        let s = self.split(x, true);
        let minus = self.log_parts(&s.f);
        let l = self.sub(&s.f, &minus);
        let (hi, lo, k) = (self.c(hi), self.c(lo), self.c(std::f64::consts::LOG10_E));
        let low = self.mul(&s.k, &lo);
        let t = self.fma(&l, &k, &low);
        let r = self.fma(&s.k, &hi, &t);
        self.log_limits(x, &r)
    }

    /// `log(1 + e^x)` in f32 for `x` from minus infinity to 0: 2.5 ULP; 0 where `e^x` is below 2^-126.
    pub fn log1p_exp(&mut self, x: &PrimExpr) -> PrimExpr {
        // The second operand stays where it is NaN.
        let x = super::raw(BinOp::Max, self.c(-88.0), x.clone());
        let x = self.bind(x);
        let (q, s) = self.exp_split(&x, 0);
        let e = self.fma(&q, &s, &s);
        let p = self.poly(&e, LOG1P_F32);
        self.mul(&e, &p)
    }

    /// f32: 0.8 ULP, f64: 1.5 ULP.
    pub fn log1p(&mut self, x: &PrimExpr) -> PrimExpr {
        let (zero, one) = (self.c(0.0), self.c(1.0));
        let u = self.add(x, &one);
        let s = self.split(&u, false);
        // What was lost in 1 + x, relative to it.
        let back = self.sub(&u, &one);
        let lost = self.sub(x, &back);
        let apart = self.sub(&u, x);
        let lost_big = self.sub(&one, &apart);
        let lost = self.select(x.clone().ge(one), &lost_big, &lost);
        let c = self.div(&lost, &u);
        // Where 1 + x stays within one binade of 1, x itself is the exact fraction.
        let same = s.k.clone().eq(zero.clone());
        let f = self.select(same.clone(), x, &s.f);
        let c = self.select(same, &zero, &c);
        let r = self.log_positive(&Split { k: s.k, f }, Some(&c));
        let r = self.log_limits(&u, &r);
        self.select(x.clone().eq(zero), x, &r)
    }
}
