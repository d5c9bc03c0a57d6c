//! exp, exp2, exp10 and the logistic function.

use super::build::Build;
use relax_ir::prim::{BinOp, Intrin, PrimExpr};

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
/// The same on +-ln(2)/32.
const EXP_SIXTEENTHS: &[f64] = &[0.5, 0.16667];
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

    /// `(q, s)` as [`Build::exp_split`] has it, with `1 + q` within a 32nd of an exponent of one: a shorter polynomial. `s` is what
    /// the limits of normal numbers allow: `x` stays within them, or is one of both, where `s` is 0 or infinite.
    fn exp_sixteenths(&mut self, x: &PrimExpr, less: i64) -> (PrimExpr, PrimExpr) {
        let (hi, lo) = LN2_F32;
        let log2e = self.c(16.0 * std::f64::consts::LOG2_E);
        let magic = self.c(self.magic() + (16 * (self.bias() - less)) as f64);
        let t = self.fma(x, &log2e, &magic);
        let n = self.sub(&t, &magic);
        let (hi, lo) = (self.c(-hi / 16.0), self.c(-lo / 16.0));
        let r = self.fma(&n, &hi, x);
        let r = self.fma(&n, &lo, &r);
        let p = self.poly(&r, EXP_SIXTEENTHS);
        let rr = self.mul(&r, &r);
        let q = self.fma(&rr, &p, &r);
        let bits = self.bits(&t);
        let part = self.bind(bits.clone().call1(Intrin::Sixteenths));
        let up = self.int(self.mantissa() - 4);
        let whole = self.op(BinOp::Shl, &bits, &up);
        let s = self.add(&whole, &part);
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

    /// f32: 1.5 ULP (in sixteenths 1.6), f64: 1.5 ULP.
    pub fn exp(&mut self, x: &PrimExpr) -> PrimExpr {
        if self.f64 {
            let x = self.clamp(x, -746.0, 710.0);
            let (p, n) = self.exp_parts(&x);
            return self.scale(&p, &n);
        }
        // As `scale` does.
        let (q, s) = if self.sixteenths {
            let x = self.clamp(x, -126.0 * std::f64::consts::LN_2, 89.0);
            self.exp_sixteenths(&x, 1)
        } else {
            let x = self.clamp(x, -87.4, 89.0);
            self.exp_split(&x, 1)
        };
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

    /// `1 / (1 + e^-x)`. f32: 2.4 ULP (in sixteenths 2.9), f64: 3 ULP; f32 results below 2^-125 become 0.
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
            let (q, s) = if self.sixteenths {
                let x = self.clamp(&minus, -87.0, 128.0 * std::f64::consts::LN_2);
                self.exp_sixteenths(&x, 0)
            } else {
                let x = self.clamp(&minus, -87.0, 89.0);
                self.exp_split(&x, 0)
            };
            let p = self.add(&q, &one);
            self.fma(&p, &s, &one)
        };
        self.div(top, &d)
    }
}

#[cfg(test)]
mod tests {
    use crate::math::expand;
    use crate::schedule::machine::{pointer, Machine, Value};
    use relax_ir::flat::{FlatFunc, FlatStmt, Linkage};
    use relax_ir::prim::{Intrin, PrimExpr, Var};
    use relax_ir::{DType, Span};

    /// What the form for vectors of 512 bits gives for these.
    fn wide(f: Intrin, x: &[f32]) -> Vec<f32> {
        let (a, o, i) = (Var::new("x", DType::HANDLE), Var::new("out", DType::HANDLE), Var::dim("i"));
        let value = PrimExpr::load_ptr(a.expr(), i.expr(), DType::F32.with_lanes(16)).call1(f);
        let end = PrimExpr::i64(x.len() as i64);
        let store = FlatStmt::Store { ptr: o.expr(), offset: i.expr(), value };
        let body = vec![FlatStmt::For { var: i, begin: PrimExpr::i64(0), end, step: 16, body: vec![store] }];
        let (name, params) = (f.name().to_string(), vec![a, o]);
        let mut f = FlatFunc { name, params, ret: None, linkage: Linkage::Export, body, span: Span::NONE };
        expand(&mut f, 64);
        assert!(format!("{:?}", f.body).contains("Sixteenths"), "{:?}", f.body);
        let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut m = Machine::default();
        m.memory.extend([bytes.clone(), bytes]);
        m.call(&f, [0, 1].map(|i| Value::Int(vec![pointer(i)])).to_vec()).expect("the function runs");
        m.memory[1].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    fn ulps(got: f32, wanted: f64) -> f64 {
        let unit = (wanted as f32).abs().max(f32::MIN_POSITIVE).log2().floor().exp2() as f64 / (1u64 << 23) as f64;
        (got as f64 - wanted).abs() / unit
    }

    /// The bounds that `exp` and `sigmoid` have, and the limits; what is below 2^-125 stays below it.
    #[test]
    fn powers_in_sixteenths() {
        const LEAST: f64 = 2.350_988_7e-38;
        let mut x: Vec<f32> = (0..40_000).map(|i| (i as f32 - 20_000.0) * 0.004_451).collect();
        x.extend((0..2000).map(|i| (i as f32 - 1000.0) * 1e-4));
        x.extend((0..1600).map(|i| -88.0 + i as f32 * 1e-3));
        x.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -0.0, 88.722_84, 88.71, 1e30, -1e30, 1e-40]);
        x.resize(x.len().div_ceil(16) * 16, 0.0);
        let mut most = [0.0f64; 2];
        let (exp, sigmoid) = (wide(Intrin::Exp, &x), wide(Intrin::Sigmoid, &x));
        for ((x, e), s) in x.iter().zip(exp).zip(sigmoid) {
            let wanted = (*x as f64).exp();
            let both = [(e, wanted), (s, 1.0 / (1.0 + (-*x as f64).exp()))];
            for ((got, wanted), most) in both.into_iter().zip(&mut most) {
                match wanted as f32 {
                    w if w.is_nan() => assert!(got.is_nan(), "{x}: {got}"),
                    w if w.is_infinite() || w == 0.0 && x.is_infinite() => assert_eq!(got, w, "{x}"),
                    _ if wanted < LEAST => assert!((0.0..LEAST).contains(&(got as f64)), "{x}: {got}"),
                    _ => *most = most.max(ulps(got, wanted)),
                }
            }
        }
        assert!(most[0] <= 1.6 && most[1] <= 2.9, "{most:?}");
    }
}
