//! sin, cos, tan.
//!
//! Arguments are reduced to +-pi/4 with pi/2 in parts: for f32 in f64 arithmetic up to 2^28, for f64 in three parts up
//! to 2^20. Beyond that the argument is first multiplied by the binary digits of 2/pi that matter, in a branch taken
//! only when some lane needs it; good for all f32 and for f64 up to 2^120 (beyond, results are in [-1, 1] but mean
//! nothing).

use super::any;
use super::build::Build;
use relax_ir::prim::{BinOp, PrimExpr, PrimKind};
use relax_ir::DType;

/// `(sin r - r) / r^3` and `(cos r - 1 + r^2/2) / r^4` over `r^2`, on +-pi/4.
const SIN_F32: &[f64] = &[-0.16666655242443085, 0.008332190103828907, -0.0001951844897121191];
const SIN_F64: &[f64] = &[
    -0.1666666666666663,
    0.008333333333321919,
    -0.00019841269829458697,
    2.755731358240555e-06,
    -2.5050742354515907e-08,
    1.5895946244941175e-10,
];
const COS_F32: &[f64] = &[0.04166664555668831, -0.0013887310633435845, 2.4432563805021346e-05];
const COS_F64: &[f64] = &[
    0.041666666666666595,
    -0.0013888888888873348,
    2.4801587289007656e-05,
    -2.755731421875815e-07,
    2.0875705623094577e-09,
    -1.135876011223865e-11,
];

/// pi/2 in parts of 25, 33, 33 and 33 bits and what follows.
const PIO2_25: (f64, f64) = (1.5707963109016418, 1.5893254773528196e-08);
const PIO2_33: [f64; 3] = [1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21];

/// The digits of 2/pi, 24 bits each.
const TWO_OVER_PI: [u32; 9] =
    [0xA2F983, 0x6E4E44, 0x1529FC, 0x2757D1, 0xF534DD, 0xC0DB62, 0x95993C, 0x439041, 0xFE5163];

/// An argument reduced to +-pi/4, and the number of quarter turns taken off, in the low bits of an integer.
struct Reduced {
    r: PrimExpr,
    quarter: PrimExpr,
}

impl Build {
    fn reduce(&mut self, x: &PrimExpr) -> Reduced {
        let limit = self.c2(2f64.powi(28), 2f64.powi(20));
        let magnitude = self.abs(x);
        let huge = self.op(BinOp::Gt, &magnitude, &limit);
        let some = any(huge.clone());
        let x = x.clone();
        let f64 = self.f64;
        let narrow = self.d;
        let (r, t) = self.wide(|w| {
            let x = w.bind(x.cast(w.d));
            let y = PrimExpr::raw(PrimKind::IfThenElse(some, w.unwind(&x, huge, f64), x.clone()), w.d);
            let y = w.bind(y);
            let two_over_pi = w.c(std::f64::consts::FRAC_2_PI);
            let magic = w.c(w.magic());
            let t = w.fma(&y, &two_over_pi, &magic);
            let n = w.sub(&t, &magic);
            let r = if f64 {
                let [p1, p2, p3] = PIO2_33.map(|p| w.c(-p));
                let a = w.fma(&n, &p1, &y);
                let b = w.mul(&n, &p2);
                let r = w.add(&a, &b);
                let back = w.sub(&a, &r);
                let low = w.add(&back, &b);
                let low = w.fma(&n, &p3, &low);
                w.add(&r, &low)
            } else {
                let (hi, lo) = (w.c(-PIO2_25.0), w.c(-PIO2_25.1));
                let r = w.fma(&n, &hi, &y);
                w.fma(&n, &lo, &r)
            };
            (r, w.bits(&t))
        });
        if f64 {
            return Reduced { r, quarter: t };
        }
        Reduced { r: self.to(&r, narrow), quarter: self.to(&t, DType::I32) }
    }

    /// Huge arguments to equivalent ones within two turns (f64 arithmetic; `x` holds f32 values unless `exact64`).
    fn unwind(&self, x: &PrimExpr, huge: PrimExpr, exact64: bool) -> PrimExpr {
        let mut b = Build::new(self.d);
        let mut parts = vec![x.clone()];
        if exact64 {
            // 26 and 27 bits, so that products with 24 digits are exact.
            let bits = b.bits(x);
            let mask = b.int(!((1 << 27) - 1));
            let high = b.op(BinOp::BitAnd, &bits, &mask);
            let high = b.with_bits(&high);
            let low = b.sub(x, &high);
            parts = vec![high, low];
        }
        let (quarter, four) = (b.c(0.25), b.c(-4.0));
        let mut rest = b.c(0.0);
        let mut turns = b.c(0.0);
        for (i, digits) in TWO_OVER_PI.iter().enumerate() {
            let digits = b.c(*digits as f64 * 2f64.powi(-24 * (i as i32 + 1)));
            for part in &parts {
                // Whole turns fall away exactly, in every product.
                let p = b.mul(part, &digits);
                let q = b.mul(&p, &quarter);
                let q = b.nearest(&q);
                let q = b.mul(&q, &four);
                let p = b.add(&p, &q);
                let s = b.add(&rest, &p);
                let n = b.nearest(&s);
                rest = b.sub(&s, &n);
                turns = b.add(&turns, &n);
            }
        }
        let q = b.mul(&turns, &quarter);
        let q = b.nearest(&q);
        let q = b.mul(&q, &four);
        let turns = b.add(&turns, &q);
        let all = b.add(&turns, &rest);
        let half_pi = b.c(std::f64::consts::FRAC_PI_2);
        let y = b.mul(&all, &half_pi);
        // Infinity has no angle: what came of it is NaN.
        let y = b.select(huge, &y, x);
        b.finish(y)
    }

    fn sin_cos_small(&mut self, r: &PrimExpr) -> (PrimExpr, PrimExpr) {
        let z = self.mul(r, r);
        let p = self.poly(&z, self.of(SIN_F32, SIN_F64));
        let rz = self.mul(r, &z);
        let s = self.fma(&rz, &p, r);
        let p = self.poly(&z, self.of(COS_F32, COS_F64));
        let zz = self.mul(&z, &z);
        let (half, one) = (self.c(0.5), self.c(1.0));
        let h = self.mul(&half, &z);
        let w = self.sub(&one, &h);
        // What 1 - z/2 lost.
        let back = self.sub(&one, &w);
        let lost = self.sub(&back, &h);
        let t = self.fma(&zz, &p, &lost);
        let c = self.add(&w, &t);
        (s, c)
    }

    /// The sine of a reduced argument `offset` quarter turns further on.
    fn turned_sine(&mut self, x: &PrimExpr, offset: i64) -> PrimExpr {
        let q = self.reduce(x);
        let (s, c) = self.sin_cos_small(&q.r);
        let (one, two, zero) = (self.int(1), self.int(2), self.int(0));
        let offset = self.int(offset);
        let quarter = self.add(&q.quarter, &offset);
        let odd = self.op(BinOp::BitAnd, &quarter, &one);
        let odd = self.op(BinOp::Ne, &odd, &zero);
        let v = self.select(odd, &c, &s);
        let negative = self.op(BinOp::BitAnd, &quarter, &two);
        let by = self.int2(30, 62);
        let sign = self.op(BinOp::Shl, &negative, &by);
        let v = self.bits(&v);
        let v = self.op(BinOp::BitXor, &v, &sign);
        self.with_bits(&v)
    }

    /// f32: 1.5 ULP, f64: 1.5 ULP (|x| > 2^20: absolute error 1e-15).
    pub fn sin(&mut self, x: &PrimExpr) -> PrimExpr {
        let v = self.turned_sine(x, 0);
        let zero = self.c(0.0);
        self.select(x.clone().eq(zero), x, &v)
    }

    /// f32: 1.5 ULP, f64: 1.5 ULP (|x| > 2^20: absolute error 1e-15).
    pub fn cos(&mut self, x: &PrimExpr) -> PrimExpr {
        self.turned_sine(x, 1)
    }

    /// f32: 2.6 ULP, f64: 3 ULP (|x| > 2^20: relative error 1e-15 away from the zeros and poles).
    pub fn tan(&mut self, x: &PrimExpr) -> PrimExpr {
        let q = self.reduce(x);
        let (s, c) = self.sin_cos_small(&q.r);
        let (one, zero) = (self.int(1), self.int(0));
        let odd = self.op(BinOp::BitAnd, &q.quarter, &one);
        let odd = self.op(BinOp::Ne, &odd, &zero);
        let minus = self.bind(s.clone().neg());
        let top = self.select(odd.clone(), &c, &s);
        let bottom = self.select(odd, &minus, &c);
        let v = self.div(&top, &bottom);
        let zero = self.c(0.0);
        self.select(x.clone().eq(zero), x, &v)
    }
}
