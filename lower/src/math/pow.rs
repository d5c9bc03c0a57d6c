//! Powers.

use super::build::Build;
use super::log::LOG_F64;
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind};
use relax_ir::DType;

/// `log2((1 + s) / (1 - s)) / s` over `s^2`, good for 42 bits.
const LOG2: &[f64] = &[
    2.8853900817778495,
    0.9617966941141056,
    0.5770779421595226,
    0.41220927196812446,
    0.3199049305782726,
    0.28291067327457053,
];
/// `(2^f - 1) / f` on +-1/2, good for 40 bits.
const EXP2: &[f64] = &[
    0.6931471805482116,
    0.2402265069811081,
    0.055504109352731354,
    0.009618128616020634,
    0.0013333454852706129,
    0.0001540382553751338,
    1.5309158434438917e-05,
    1.3178919564782775e-06,
];
/// 1 / ln(2) in two parts.
const INV_LN2: (f64, f64) = (std::f64::consts::LOG2_E, 2.0355273740931033e-17);

impl Build {
    /// C's `pow`, special cases included. f32: 0.6 ULP. f64: 1 ULP for results within 1e+-30, 8 ULP at the extremes.
    /// Small literal exponents (up to +-4, 1/2) are multiplications and square roots.
    pub fn pow(&mut self, x: &PrimExpr, y: &PrimExpr) -> PrimExpr {
        if let Some(k) = literal(y) {
            if let Some(v) = self.small_power(x, k) {
                return v;
            }
        }
        let a = self.abs(x);
        let magnitude = if self.f64 { self.pow_f64(&a, y) } else { self.pow_f32(&a, y) };
        self.pow_limits(x, &a, y, &magnitude)
    }

    fn small_power(&mut self, x: &PrimExpr, k: f64) -> Option<PrimExpr> {
        let one = self.c(1.0);
        let positive = match k.abs() {
            0.0 => return Some(one),
            1.0 => x.clone(),
            2.0 => self.mul(x, x),
            3.0 => {
                let xx = self.mul(x, x);
                self.mul(&xx, x)
            }
            4.0 => {
                let xx = self.mul(x, x);
                self.mul(&xx, &xx)
            }
            0.5 => {
                // pow(-inf, 1/2) is infinite, pow(-0, 1/2) is +0.
                let a = self.c(f64::NEG_INFINITY);
                let inf = self.c(f64::INFINITY);
                let is = self.op(BinOp::Eq, x, &a);
                let zero = self.c(0.0);
                let x0 = self.add(x, &zero);
                let s = self.sqrt(&x0);
                self.select(is, &inf, &s)
            }
            _ => return None,
        };
        Some(if k < 0.0 { self.div(&one, &positive) } else { positive })
    }

    /// `a^y` in f64, rounded once to f32; infinities of the logarithm included.
    fn pow_f32(&mut self, a: &PrimExpr, y: &PrimExpr) -> PrimExpr {
        let (a, y, narrow) = (a.clone(), y.clone(), self.d);
        let r = self.wide(|w| {
            let x = w.bind(a.cast(w.d));
            let y = w.bind(y.cast(w.d));
            let s = w.split(&x, false);
            let two = w.c(2.0);
            let d = w.add(&s.f, &two);
            let q = w.div(&s.f, &d);
            let z = w.mul(&q, &q);
            let p = w.poly(&z, LOG2);
            let l = w.fma(&q, &p, &s.k);
            let l = w.log_ends(&x, &l);
            let e = w.exponent(&x, &y, &l);
            let e = w.clamp(&e, -160.0, 140.0);
            let n = w.round_small(&e);
            let f = w.sub(&e, &n);
            let p = w.poly(&f, EXP2);
            let one = w.c(1.0);
            let p = w.fma(&f, &p, &one);
            let s = w.power_of_two(&n);
            w.mul(&p, &s)
        });
        self.to(&r, narrow)
    }

    /// The logarithm of 0 and infinity (and NaN).
    fn log_ends(&mut self, x: &PrimExpr, l: &PrimExpr) -> PrimExpr {
        let (zero, inf, minus) = (self.c(0.0), self.c(f64::INFINITY), self.c(f64::NEG_INFINITY));
        let l = self.select(x.clone().lt(inf), l, x);
        self.select(x.clone().eq(zero), &minus, &l)
    }

    /// `y l`, and 0 where `x` is 1 even for an infinite `y`.
    fn exponent(&mut self, x: &PrimExpr, y: &PrimExpr, l: &PrimExpr) -> PrimExpr {
        let (one, zero) = (self.c(1.0), self.c(0.0));
        let e = self.mul(y, l);
        self.select(x.clone().eq(one), &zero, &e)
    }

    /// The exact product as a sum of two, without fused multiply-add.
    fn two_product(&mut self, a: &PrimExpr, b: &PrimExpr) -> (PrimExpr, PrimExpr) {
        let p = self.mul(a, b);
        let (ah, al) = self.halves(a);
        let (bh, bl) = self.halves(b);
        let e = self.mul(&ah, &bh);
        let e = self.sub(&e, &p);
        let t = self.mul(&ah, &bl);
        let e = self.add(&e, &t);
        let t = self.mul(&al, &bh);
        let e = self.add(&e, &t);
        let t = self.mul(&al, &bl);
        (p, self.add(&e, &t))
    }

    /// Upper 26 bits and the rest.
    fn halves(&mut self, a: &PrimExpr) -> (PrimExpr, PrimExpr) {
        let bits = self.bits(a);
        let mask = self.int(!((1 << 27) - 1));
        let high = self.op(BinOp::BitAnd, &bits, &mask);
        let high = self.with_bits(&high);
        let low = self.sub(a, &high);
        (high, low)
    }

    fn pow_f64(&mut self, a: &PrimExpr, y: &PrimExpr) -> PrimExpr {
        let split = self.split(a, true);
        let f = split.f;
        let two = self.c(2.0);
        // s = f / (2 + f) in two parts.
        let d = self.add(&f, &two);
        let back = self.sub(&d, &two);
        let d_low = self.sub(&f, &back);
        let s = self.div(&f, &d);
        let (p, e) = self.two_product(&s, &d);
        let r = self.sub(&f, &p);
        let r = self.sub(&r, &e);
        let t = self.mul(&s, &d_low);
        let r = self.sub(&r, &t);
        let s_low = self.div(&r, &d);
        // log = 2 s + s^3 P(s^2)
        let z = self.mul(&s, &s);
        let poly = self.poly(&z, LOG_F64);
        let sz = self.mul(&s, &z);
        let t = self.mul(&sz, &poly);
        let low = self.add(&s_low, &s_low);
        let low = self.add(&low, &t);
        let high = self.add(&s, &s);
        // Normalised, times 1 / ln 2, plus the exponent.
        let sum = self.add(&high, &low);
        let back = self.sub(&high, &sum);
        let low = self.add(&back, &low);
        let (inv, inv_low) = (self.c(INV_LN2.0), self.c(INV_LN2.1));
        let (p, e) = self.two_product(&sum, &inv);
        let t = self.mul(&sum, &inv_low);
        let e = self.add(&e, &t);
        let t = self.mul(&low, &inv);
        let e = self.add(&e, &t);
        let l = self.add(&split.k, &p);
        let back = self.sub(&split.k, &l);
        let back = self.add(&back, &p);
        // Right where |k| >= |p|; where k is 0 there is nothing to lose.
        let l_low = self.add(&back, &e);
        let (p, e) = self.two_product(y, &l);
        let t = self.mul(y, &l_low);
        let e = self.add(&e, &t);
        // Infinite and NaN operands: the plain product.
        let ends = self.log_ends(a, &l);
        let plain = self.exponent(a, y, &ends);
        let size = self.abs(&plain);
        let limit = self.c(1100.0);
        let (inf, ay) = (self.c(f64::INFINITY), self.abs(y));
        let fine = super::raw(BinOp::And, size.lt(limit), ay.lt(inf));
        let zero = self.c(0.0);
        let p = self.select(fine.clone(), &p, &plain);
        let e = self.select(fine, &e, &zero);
        let p = self.clamp(&p, -1100.0, 1100.0);
        let n = self.round_small(&p);
        let f = self.sub(&p, &n);
        let f = self.add(&f, &e);
        let ln2 = self.c(std::f64::consts::LN_2);
        let r = self.mul(&f, &ln2);
        let v = self.exp_small(&r);
        self.scale(&v, &n)
    }

    /// Signs and special cases, given `|x|^y`.
    fn pow_limits(&mut self, x: &PrimExpr, a: &PrimExpr, y: &PrimExpr, v: &PrimExpr) -> PrimExpr {
        let (zero, one, half) = (self.c(0.0), self.c(1.0), self.c(0.5));
        let (nan, inf) = (self.c(f64::NAN), self.c(f64::INFINITY));
        let whole = self.trunc(y);
        let integral = self.op(BinOp::Eq, &whole, y);
        let h = self.mul(y, &half);
        let t = self.trunc(&h);
        let uneven = self.op(BinOp::Ne, &t, &h);
        let sign = self.copysign(&one, x);
        let negative = self.op(BinOp::Lt, &sign, &zero);
        let flip = super::raw(BinOp::And, super::raw(BinOp::And, negative, integral.clone()), uneven);
        let minus = self.bind(v.clone().neg());
        let v = self.select(flip, &minus, v);
        // A negative number to a fraction; infinities excepted.
        let below = super::raw(BinOp::And, x.clone().lt(zero.clone()), a.clone().lt(inf));
        let fraction = PrimExpr::raw(PrimKind::Not(integral), below.dtype());
        let v = self.select(super::raw(BinOp::And, below, fraction), &nan, &v);
        let nan_y = y.clone().call1(Intrin::IsNan);
        let v = self.select(nan_y, y, &v);
        let unit = super::raw(BinOp::Or, y.clone().eq(zero), x.clone().eq(one.clone()));
        self.select(unit, &one, &v)
    }
}

/// The value of a literal, in every lane the same.
fn literal(e: &PrimExpr) -> Option<f64> {
    match e.kind() {
        PrimKind::Broadcast(a) => literal(a),
        PrimKind::Cast(a) if a.dtype().is_int() => a.as_int().map(|v| v as f64),
        _ => e.as_float().or_else(|| e.as_int().filter(|_| e.dtype() != DType::BOOL).map(|v| v as f64)),
    }
}
