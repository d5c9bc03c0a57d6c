//! asin, acos, atan, atan2.

use super::build::Build;
use relax_ir::prim::{BinOp, PrimExpr};
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

/// `(asin x - x) / x^3` over `x^2` up to 1/4.
const ASIN_F32: &[f64] =
    &[0.16666752099990845, 0.0749531015753746, 0.045469019562006, 0.024185501039028168, 0.042157020419836044];
const ASIN_F64: &[f64] = &[
    0.1666666666666676,
    0.07499999999970869,
    0.04464285717455755,
    0.03038194271003633,
    0.022372214931140874,
    0.017351612935693723,
    0.0139808103604385,
    0.011398989861365233,
    0.010779844165480607,
    0.0037078677135815087,
    0.021704072793780258,
    -0.020994501773350063,
    0.032625888537915294,
];
/// `(atan x - x) / x^3` over `x^2` for `|x| <= tan(pi/8)`.
const ATAN_F32: &[f64] = &[-0.3333294987678528, 0.19977730512619019, -0.1387784779071808, 0.08054152131080627];
const ATAN_F64: &[f64] = &[
    -0.33333333333333326,
    0.1999999999999726,
    -0.14285714285348025,
    0.1111111108614211,
    -0.09090908082527484,
    0.07692281547611626,
    -0.06666211041966648,
    0.05876884765820344,
    -0.05217610610030868,
    0.0450061992837338,
    -0.03341211365587429,
    0.015136927203744007,
];

/// What the type's pi lacks.
const PI_LOW: (f64, f64) = (-8.742278000372485e-08, 1.2246467991473532e-16);

impl Build {
    fn pi_low(&self, part: f64) -> PrimExpr {
        self.c2(PI_LOW.0 * part, PI_LOW.1 * part)
    }

    /// `asin a` for `0 <= a <= 1`, as `t` with asin = t (near) or pi/2 - 2 t (far), and whether it is far.
    fn asin_parts(&mut self, a: &PrimExpr) -> (PrimExpr, PrimExpr) {
        let (half, one) = (self.c(0.5), self.c(1.0));
        let far = self.op(BinOp::Gt, a, &half);
        let rest = self.sub(&one, a);
        let w = self.mul(&rest, &half);
        let near = self.mul(a, a);
        let z = self.select(far.clone(), &w, &near);
        let root = self.sqrt(&z);
        let s = self.select(far.clone(), &root, a);
        let p = self.poly(&z, self.of(ASIN_F32, ASIN_F64));
        let sz = self.mul(&s, &z);
        (self.fma(&sz, &p, &s), far)
    }

    /// f32: 2.3 ULP, f64: 2 ULP; NaN beyond +-1.
    pub fn asin(&mut self, x: &PrimExpr) -> PrimExpr {
        let a = self.abs(x);
        let (t, far) = self.asin_parts(&a);
        let twice = self.add(&t, &t);
        let low = self.pi_low(0.5);
        let twice = self.sub(&twice, &low);
        let half_pi = self.c(FRAC_PI_2);
        let v = self.sub(&half_pi, &twice);
        let v = self.select(far, &v, &t);
        self.copysign(&v, x)
    }

    /// f32: 1.1 ULP, f64: 1.5 ULP; NaN beyond +-1.
    pub fn acos(&mut self, x: &PrimExpr) -> PrimExpr {
        let a = self.abs(x);
        let (t, far) = self.asin_parts(&a);
        let negative = {
            let zero = self.c(0.0);
            self.op(BinOp::Lt, x, &zero)
        };
        let twice = self.add(&t, &t);
        let low = self.pi_low(1.0);
        let pi = self.c(PI);
        let rest = self.sub(&twice, &low);
        let far_negative = self.sub(&pi, &rest);
        let far_value = self.select(negative, &far_negative, &twice);
        let s = self.copysign(&t, x);
        let low = self.pi_low(0.5);
        let half_pi = self.c(FRAC_PI_2);
        let s = self.sub(&s, &low);
        let near_value = self.sub(&half_pi, &s);
        self.select(far, &far_value, &near_value)
    }

    /// `atan(p / q)` for `0 <= p <= q`, finite and not both zero.
    fn atan_ratio(&mut self, p: &PrimExpr, q: &PrimExpr) -> PrimExpr {
        // Beyond tan(pi/8): the angle to the diagonal.
        let edge = self.c(0.41421356237309503);
        let qe = self.mul(q, &edge);
        let far = self.op(BinOp::Gt, p, &qe);
        let (minus, plus) = (self.sub(p, q), self.add(p, q));
        let top = self.select(far.clone(), &minus, p);
        let bottom = self.select(far.clone(), &plus, q);
        let t = self.div(&top, &bottom);
        let z = self.mul(&t, &t);
        let poly = self.poly(&z, self.of(ATAN_F32, ATAN_F64));
        let tz = self.mul(&t, &z);
        let a = self.mul(&tz, &poly);
        let low = self.pi_low(0.25);
        let (quarter, zero) = (self.c(FRAC_PI_4), self.c(0.0));
        let low = self.select(far.clone(), &low, &zero);
        let base = self.select(far, &quarter, &zero);
        let a = self.add(&a, &low);
        let a = self.add(&t, &a);
        self.add(&base, &a)
    }

    /// f32: 2 ULP, f64: 1.5 ULP.
    pub fn atan(&mut self, x: &PrimExpr) -> PrimExpr {
        let a = self.abs(x);
        let one = self.c(1.0);
        let steep = self.op(BinOp::Gt, &a, &one);
        // Both stay finite: 1/inf is not formed, min(a, max) is.
        let top = self.c2(f32::MAX as f64 / 4.0, f64::MAX / 4.0);
        let a = {
            let m = super::raw(BinOp::Min, top, a);
            self.bind(m)
        };
        let p = self.select(steep.clone(), &one, &a);
        let q = self.select(steep.clone(), &a, &one);
        let v = self.atan_ratio(&p, &q);
        let half_pi = self.c(FRAC_PI_2);
        let low = self.pi_low(0.5);
        let rest = self.sub(&v, &low);
        let other = self.sub(&half_pi, &rest);
        let v = self.select(steep, &other, &v);
        self.copysign(&v, x)
    }

    /// f32: 2 ULP, f64: 1.5 ULP; signs of zeros and infinities as in C.
    pub fn atan2(&mut self, y: &PrimExpr, x: &PrimExpr) -> PrimExpr {
        let (ay, ax) = (self.abs(y), self.abs(x));
        let steep = self.op(BinOp::Gt, &ay, &ax);
        let p = self.select(steep.clone(), &ax, &ay);
        let q = self.select(steep.clone(), &ay, &ax);
        // Sums of both must not overflow, nor small ones vanish.
        let (big, small) = (self.c2(2f64.powi(126), 2f64.powi(1022)), self.c2(2f64.powi(-100), 2f64.powi(-960)));
        let (down, up, one) = (self.c(0.25), self.c2(2f64.powi(24), 2f64.powi(53)), self.c(1.0));
        let by = self.select(q.clone().lt(small), &up, &one);
        let by = self.select(q.clone().gt(big), &down, &by);
        let (p, q) = (self.mul(&p, &by), self.mul(&q, &by));
        // Equal ones: the diagonal, also of infinities; of zeros the axis.
        let (zero, inf) = (self.c(0.0), self.c(f64::INFINITY));
        let both_inf = p.clone().eq(inf);
        let p = self.select(both_inf.clone(), &one, &p);
        let q = self.select(both_inf, &one, &q);
        let q = self.select(q.clone().eq(zero.clone()), &one, &q);
        // One infinite: the ratio is zero, and so is what is made of it.
        let only_inf = {
            let inf = self.c(f64::INFINITY);
            q.clone().eq(inf)
        };
        let p = self.select(only_inf.clone(), &zero, &p);
        let q = self.select(only_inf, &one, &q);
        let v = self.atan_ratio(&p, &q);
        let half_pi = self.c(FRAC_PI_2);
        let low = self.pi_low(0.5);
        let rest = self.sub(&v, &low);
        let other = self.sub(&half_pi, &rest);
        let v = self.select(steep, &other, &v);
        // The left half plane, by the sign bit.
        let sign = self.copysign(&one, x);
        let pi = self.c(PI);
        let low = self.pi_low(1.0);
        let rest = self.sub(&v, &low);
        let other = self.sub(&pi, &rest);
        let v = self.select(sign.lt(zero), &other, &v);
        let v = self.copysign(&v, y);
        let sum = self.add(x, y);
        let x_nan = x.clone().call1(relax_ir::prim::Intrin::IsNan);
        let y_nan = y.clone().call1(relax_ir::prim::Intrin::IsNan);
        let either = super::raw(BinOp::Or, x_nan, y_nan);
        self.select(either, &sum, &v)
    }
}
