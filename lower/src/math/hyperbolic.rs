//! Hyperbolic functions and their inverses.

use super::build::Build;
use relax_ir::prim::{BinOp, PrimExpr};

/// `(tanh x - x) / x^3` over `x^2`, for `|x| <= 0.625`.
const TANH_F64: &[f64] = &[
    -0.3333333333333333,
    0.13333333333333028,
    -0.053968253968064046,
    0.02186948852995795,
    -0.008863235407455978,
    0.0035921264528229924,
    -0.0014558203455886049,
    0.0005899398097961694,
    -0.00023873933744730406,
    9.567958959703063e-05,
    -3.652032570646264e-05,
    1.1704083121700885e-05,
    -2.237210697164499e-06,
];
/// `(sinh x - x) / x^3` over `x^2`, for `|x| <= 1`.
const SINH_F32: &[f64] = &[0.1666666716337204, 0.008333315141499043, 0.00019841665925923735, 2.7899839096789947e-06];
const SINH_F64: &[f64] = &[
    0.16666666666666666,
    0.00833333333333352,
    0.00019841269841131145,
    2.755731927486812e-06,
    2.5052098126714676e-08,
    1.6060201955681736e-10,
    7.578409758702685e-13,
    4.493426063083253e-15,
];

impl Build {
    fn odd_poly(&mut self, x: &PrimExpr, c: &[f64]) -> PrimExpr {
        let z = self.mul(x, x);
        let p = self.poly(&z, c);
        let xz = self.mul(x, &z);
        self.fma(&xz, &p, x)
    }

    /// `e^a / 2` for `a >= 0`, up to the overflow of that half.
    fn half_exp(&mut self, a: &PrimExpr) -> PrimExpr {
        let top = self.c2(89.7, 711.0);
        let a = self.op(BinOp::Min, &top, a);
        let (p, n) = self.exp_parts(&a);
        let two = self.c(2.0);
        let n = self.sub(&n, &two);
        let s = self.power_of_two(&n);
        let h = self.mul(&p, &s);
        self.add(&h, &h)
    }

    /// f32: 1.5 ULP, f64: 2 ULP.
    pub fn sinh(&mut self, x: &PrimExpr) -> PrimExpr {
        let a = self.abs(x);
        let near = self.odd_poly(&a, self.of(SINH_F32, SINH_F64));
        let h = self.half_exp(&a);
        let quarter = self.c(0.25);
        let back = self.div(&quarter, &h);
        let far = self.sub(&h, &back);
        let one = self.c(1.0);
        let v = self.select(a.lt(one), &near, &far);
        self.copysign(&v, x)
    }

    /// f32: 1.3 ULP, f64: 1.5 ULP.
    pub fn cosh(&mut self, x: &PrimExpr) -> PrimExpr {
        let a = self.abs(x);
        let h = self.half_exp(&a);
        let quarter = self.c(0.25);
        let back = self.div(&quarter, &h);
        self.add(&h, &back)
    }

    /// f32: 2.6 ULP, f64: 2 ULP.
    pub fn tanh(&mut self, x: &PrimExpr) -> PrimExpr {
        let a = self.abs(x);
        // From 20 (f32: 10) on it is 1.
        let top = self.c2(10.0, 20.0);
        let b = self.op(BinOp::Min, &top, &a);
        let twice = self.add(&b, &b);
        let (one, two) = (self.c(1.0), self.c(2.0));
        if !self.f64 {
            // e / (e + 2) with e = e^2a - 1
            let e = self.exp_less_one(&twice);
            let d = self.add(&e, &two);
            let v = self.div(&e, &d);
            return self.copysign(&v, x);
        }
        let near = self.odd_poly(&a, TANH_F64);
        // 1 - 2 / (e^2a + 1)
        let (p, n) = self.exp_parts(&twice);
        let s = self.power_of_two(&n);
        let e = self.mul(&p, &s);
        let d = self.add(&e, &one);
        let q = self.div(&two, &d);
        let far = self.sub(&one, &q);
        let edge = self.c(0.625);
        let v = self.select(a.lt(edge), &near, &far);
        self.copysign(&v, x)
    }

    /// f32: 1.5 ULP, f64: 1.5 ULP.
    pub fn asinh(&mut self, x: &PrimExpr) -> PrimExpr {
        // log1p(a + a^2 / (1 + sqrt(a^2 + 1))); beyond 2^12 (2^28) log(2 a).
        let a = self.abs(x);
        let edge = self.c2(2f64.powi(12), 2f64.powi(28));
        let big = self.op(BinOp::Gt, &a, &edge);
        let one = self.c(1.0);
        let b = self.select(big.clone(), &one, &a);
        let z = self.mul(&b, &b);
        let z1 = self.add(&z, &one);
        let root = self.sqrt(&z1);
        let d = self.add(&one, &root);
        let q = self.div(&z, &d);
        let t = self.add(&b, &q);
        let near = self.log1p(&t);
        let far = self.log_twice(&a);
        let v = self.select(big, &far, &near);
        self.copysign(&v, x)
    }

    /// `log(2 a)` without overflow.
    fn log_twice(&mut self, a: &PrimExpr) -> PrimExpr {
        let l = self.log(a);
        let ln2 = self.c(std::f64::consts::LN_2);
        self.add(&l, &ln2)
    }

    /// f32: 1.5 ULP, f64: 2 ULP; NaN below 1.
    pub fn acosh(&mut self, x: &PrimExpr) -> PrimExpr {
        // With t = x - 1: log1p(t + sqrt(2 t + t^2)).
        let edge = self.c2(2f64.powi(12), 2f64.powi(28));
        let big = self.op(BinOp::Gt, x, &edge);
        let one = self.c(1.0);
        let b = self.select(big.clone(), &one, x);
        let t = self.sub(&b, &one);
        let twice = self.add(&t, &t);
        let s = self.fma(&t, &t, &twice);
        let root = self.sqrt(&s);
        let t = self.add(&t, &root);
        let near = self.log1p(&t);
        let far = self.log_twice(x);
        let v = self.select(big, &far, &near);
        let nan = self.c(f64::NAN);
        self.select(x.clone().lt(one), &nan, &v)
    }

    /// f32: 1.9 ULP, f64: 2 ULP; infinite at +-1, NaN beyond.
    pub fn atanh(&mut self, x: &PrimExpr) -> PrimExpr {
        let a = self.abs(x);
        let (one, half) = (self.c(1.0), self.c(0.5));
        let d = self.sub(&one, &a);
        let twice = self.add(&a, &a);
        let q = self.div(&twice, &d);
        let l = self.log1p(&q);
        let v = self.mul(&half, &l);
        let nan = self.c(f64::NAN);
        let v = self.select(a.gt(one), &nan, &v);
        self.copysign(&v, x)
    }
}
