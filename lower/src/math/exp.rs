//! exp, exp2, exp10 and the logistic function.

use super::build::Build;
use relax_ir::prim::{BinOp, PrimExpr};

/// `(e^r - 1 - r) / r^2` on +-ln(2)/2.
const EXP_F32: &[f64] =
    &[0.4999999403953552, 0.1666652113199234, 0.04166825860738754, 0.00836867094039917, 0.0013821370666846633];
const EXP_F64: &[f64] = &[
    0.5000000000000011,
    0.16666666666666421,
    0.04166666666652696,
    0.008333333333488475,
    0.0013888888944346993,
    0.00019841269519894105,
    2.4801492443576133e-05,
    2.755757426240056e-06,
    2.763045931669263e-07,
    2.5003944632468294e-08,
];
/// ln(2) in two parts; products of the first with exponents are exact.
pub(super) const LN2_F32: (f64, f64) = (0.693138122558594, 9.05800061445916e-06);
pub(super) const LN2_F64: (f64, f64) = (0.6931471803691238, 1.9082149292705877e-10);
/// log10(2), likewise.
pub(super) const LG2_F32: (f64, f64) = (0.301025390625, 4.605039066518657e-06);
pub(super) const LG2_F64: (f64, f64) = (0.3010299955494702, 1.1451100898021838e-10);

impl Build {
    fn ln2(&self) -> (f64, f64) {
        if self.f64 {
            LN2_F64
        } else {
            LN2_F32
        }
    }

    /// `e^r` for `|r| <= ln(2)/2`.
    pub fn exp_small(&mut self, r: &PrimExpr) -> PrimExpr {
        let p = self.poly(r, self.of(EXP_F32, EXP_F64));
        let rr = self.mul(r, r);
        let q = self.fma(&rr, &p, r);
        let one = self.c(1.0);
        self.add(&q, &one)
    }

    /// `(p, n)` with `e^x = p 2^n`, `n` integral; `x` within the range of a few hundred exponents.
    pub fn exp_parts(&mut self, x: &PrimExpr) -> (PrimExpr, PrimExpr) {
        let (hi, lo) = self.ln2();
        let log2e = self.c(std::f64::consts::LOG2_E);
        let magic = self.c(self.magic());
        let t = self.fma(x, &log2e, &magic);
        let n = self.sub(&t, &magic);
        let (hi, lo) = (self.c(-hi), self.c(-lo));
        let r = self.fma(&n, &hi, x);
        let r = self.fma(&n, &lo, &r);
        (self.exp_small(&r), n)
    }

    /// `(q, s)` with `e^x = (1 + q) 2^less s`, `s` a power of two and `1 + q` about one; `s` is 0 or infinite one exponent
    /// outside of those of normal numbers.
    pub fn exp_split(&mut self, x: &PrimExpr, less: i64) -> (PrimExpr, PrimExpr) {
        let (hi, lo) = self.ln2();
        let log2e = self.c(std::f64::consts::LOG2_E);
        // The nearest integer, but for 2^less, lies in the low bits as an exponent has it.
        let magic = self.c(self.magic() + (self.bias() - less) as f64);
        let t = self.fma(x, &log2e, &magic);
        let n = self.sub(&t, &magic);
        let (hi, lo) = (self.c(-hi), self.c(-lo));
        let r = self.fma(&n, &hi, x);
        let r = self.fma(&n, &lo, &r);
        let p = self.poly(&r, self.of(EXP_F32, EXP_F64));
        let rr = self.mul(&r, &r);
        let q = self.fma(&rr, &p, &r);
        let bits = self.bits(&t);
        let up = self.int(self.mantissa());
        let s = self.op(BinOp::Shl, &bits, &up);
        (q, self.with_bits(&s))
    }

    /// `e^x - 1` for `x` as in [`Build::exp_split`], with few rounding errors where that is small.
    pub fn exp_less_one(&mut self, x: &PrimExpr) -> PrimExpr {
        let (q, s) = self.exp_split(x, 0);
        let one = self.c(1.0);
        let less = self.sub(&s, &one);
        self.fma(&q, &s, &less)
    }

    /// `p 2^n`; for f32 what is below 2^-125 becomes 0.
    pub fn scale(&mut self, p: &PrimExpr, n: &PrimExpr) -> PrimExpr {
        if !self.f64 {
            // One exponent less, so that 2^128 times less than one does not overflow too early.
            let one = self.c(1.0);
            let n = self.sub(n, &one);
            let s = self.power_of_two(&n);
            let r = self.mul(p, &s);
            return self.add(&r, &r);
        }
        let half = self.c(0.5);
        let half = self.mul(n, &half);
        let n1 = self.round_small(&half);
        let n2 = self.sub(n, &n1);
        let (s1, s2) = (self.power_of_two(&n1), self.power_of_two(&n2));
        let r = self.mul(p, &s1);
        self.mul(&r, &s2)
    }

    /// f32: 1.5 ULP, f64: 1.5 ULP.
    pub fn exp(&mut self, x: &PrimExpr) -> PrimExpr {
        let x = if self.f64 { self.clamp(x, -746.0, 710.0) } else { self.clamp(x, -87.4, 89.0) };
        if self.f64 {
            let (p, n) = self.exp_parts(&x);
            return self.scale(&p, &n);
        }
        // As `scale` does.
        let (q, s) = self.exp_split(&x, 1);
        let one = self.c(1.0);
        let p = self.add(&q, &one);
        let r = self.mul(&p, &s);
        self.add(&r, &r)
    }

    /// f32: 1.5 ULP, f64: 1.5 ULP; exact for integers.
    pub fn exp2(&mut self, x: &PrimExpr) -> PrimExpr {
        let x = if self.f64 { self.clamp(x, -1076.0, 1025.0) } else { self.clamp(x, -126.0, 129.0) };
        let n = self.round_small(&x);
        let f = self.sub(&x, &n);
        let ln2 = self.c(std::f64::consts::LN_2);
        let r = self.mul(&f, &ln2);
        let p = self.exp_small(&r);
        self.scale(&p, &n)
    }

    /// f32: 1.5 ULP, f64: 1.5 ULP.
    pub fn exp10(&mut self, x: &PrimExpr) -> PrimExpr {
        let x = if self.f64 { self.clamp(x, -325.0, 309.0) } else { self.clamp(x, -37.95, 38.75) };
        let (hi, lo) = if self.f64 { LG2_F64 } else { LG2_F32 };
        let k = self.c(std::f64::consts::LOG2_10);
        let magic = self.c(self.magic());
        let t = self.fma(&x, &k, &magic);
        let n = self.sub(&t, &magic);
        let (hi, lo) = (self.c(-hi), self.c(-lo));
        let f = self.fma(&n, &hi, &x);
        let f = self.fma(&n, &lo, &f);
        let ln10 = self.c(std::f64::consts::LN_10);
        let r = self.mul(&f, &ln10);
        let p = self.exp_small(&r);
        self.scale(&p, &n)
    }

    /// `1 / (1 + e^-x)`. f32: 2.4 ULP, f64: 3 ULP; f32 results below 2^-125 become 0.
    pub fn sigmoid(&mut self, x: &PrimExpr) -> PrimExpr {
        let one = self.c(1.0);
        self.logistic(x, &one)
    }

    /// `top / (1 + e^-x)`, as [`Build::sigmoid`].
    pub fn logistic(&mut self, x: &PrimExpr, top: &PrimExpr) -> PrimExpr {
        let minus = x.clone().neg();
        let one = self.c(1.0);
        let d = if self.f64 {
            let e = self.exp(&minus);
            self.add(&one, &e)
        } else {
            // Only what 1 + e can see matters: one scaling will do, infinity included.
            let x = self.clamp(&minus, -87.0, 89.0);
            let (q, s) = self.exp_split(&x, 0);
            let p = self.add(&q, &one);
            self.fma(&p, &s, &one)
        };
        self.div(top, &d)
    }
}
