//! Writing arithmetic: literals, named intermediate values, polynomials, bit tricks.

use super::raw;
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind, Var};
use relax_ir::DType;

/// Builds one expression of type f32 or f64, of any number of lanes.
pub(super) struct Build {
    /// Of the values.
    pub d: DType,
    /// Integers of the same width.
    pub i: DType,
    pub f64: bool,
    /// [`Intrin::Sixteenths`] may be used.
    pub sixteenths: bool,
    lets: Vec<(Var, PrimExpr)>,
}

impl Build {
    pub fn new(d: DType) -> Build {
        let f64 = d.bits == 64;
        let i = if f64 { DType::I64 } else { DType::I32 }.with_lanes(d.lanes);
        Build { d, i, f64, sixteenths: false, lets: vec![] }
    }

    /// For processors with vectors of 512 bits, where `wide` says so.
    pub fn wide_as(d: DType, wide: bool) -> Build {
        Build { sixteenths: wide && d.bits == 32 && d.lanes > 1, ..Build::new(d) }
    }

    /// Names a value, so that it is computed once.
    pub fn bind(&mut self, e: PrimExpr) -> PrimExpr {
        if matches!(e.kind(), PrimKind::Var(_) | PrimKind::Int(_) | PrimKind::Float(_))
            || matches!(e.kind(), PrimKind::Broadcast(a) if a.children().is_empty())
        {
            return e;
        }
        let v = Var::new("t", e.dtype());
        self.lets.push((v.clone(), e));
        v.expr()
    }

    /// Wraps `e` in the names that were bound since.
    pub fn finish(self, e: PrimExpr) -> PrimExpr {
        self.lets.into_iter().rev().fold(e, |body, (v, value)| PrimExpr::let_in(v, value, body))
    }

    /// A literal.
    pub fn c(&self, v: f64) -> PrimExpr {
        PrimExpr::float(self.d, v)
    }
    /// One literal for f32, another for f64.
    pub fn c2(&self, f32_value: f64, f64_value: f64) -> PrimExpr {
        self.c(if self.f64 { f64_value } else { f32_value })
    }
    pub fn int(&self, v: i64) -> PrimExpr {
        PrimExpr::int(self.i, v)
    }
    pub fn int2(&self, f32_value: i64, f64_value: i64) -> PrimExpr {
        self.int(if self.f64 { f64_value } else { f32_value })
    }
    pub fn of<'a>(&self, f32_table: &'a [f64], f64_table: &'a [f64]) -> &'a [f64] {
        if self.f64 {
            f64_table
        } else {
            f32_table
        }
    }

    pub fn fma(&mut self, a: &PrimExpr, b: &PrimExpr, c: &PrimExpr) -> PrimExpr {
        let e = PrimExpr::call(Intrin::Fma, [a.clone(), b.clone(), c.clone()]);
        self.bind(e)
    }
    pub fn mul(&mut self, a: &PrimExpr, b: &PrimExpr) -> PrimExpr {
        let e = raw(BinOp::Mul, a.clone(), b.clone());
        self.bind(e)
    }
    pub fn add(&mut self, a: &PrimExpr, b: &PrimExpr) -> PrimExpr {
        let e = raw(BinOp::Add, a.clone(), b.clone());
        self.bind(e)
    }
    pub fn sub(&mut self, a: &PrimExpr, b: &PrimExpr) -> PrimExpr {
        let e = raw(BinOp::Sub, a.clone(), b.clone());
        self.bind(e)
    }
    pub fn div(&mut self, a: &PrimExpr, b: &PrimExpr) -> PrimExpr {
        let e = raw(BinOp::Div, a.clone(), b.clone());
        self.bind(e)
    }
    pub fn op(&mut self, op: BinOp, a: &PrimExpr, b: &PrimExpr) -> PrimExpr {
        let e = raw(op, a.clone(), b.clone());
        self.bind(e)
    }
    pub fn sqrt(&mut self, a: &PrimExpr) -> PrimExpr {
        let e = a.clone().call1(Intrin::Sqrt);
        self.bind(e)
    }
    pub fn abs(&mut self, a: &PrimExpr) -> PrimExpr {
        let e = a.clone().call1(Intrin::Fabs);
        self.bind(e)
    }
    pub fn trunc(&mut self, a: &PrimExpr) -> PrimExpr {
        let e = a.clone().call1(Intrin::Trunc);
        self.bind(e)
    }
    /// The nearest integer, for values of any size.
    pub fn nearest(&mut self, a: &PrimExpr) -> PrimExpr {
        let e = a.clone().call1(Intrin::NearbyInt);
        self.bind(e)
    }
    pub fn copysign(&mut self, magnitude: &PrimExpr, sign: &PrimExpr) -> PrimExpr {
        let e = PrimExpr::call(Intrin::CopySign, [magnitude.clone(), sign.clone()]);
        self.bind(e)
    }
    pub fn select(&mut self, c: PrimExpr, t: &PrimExpr, f: &PrimExpr) -> PrimExpr {
        let e = PrimExpr::raw(PrimKind::Select(c, t.clone(), f.clone()), t.dtype());
        self.bind(e)
    }
    /// Keeps a NaN.
    pub fn clamp(&mut self, x: &PrimExpr, low: f64, high: f64) -> PrimExpr {
        // `Min` and `Max` return the second operand when they meet a NaN.
        let e = raw(BinOp::Max, self.c(low), raw(BinOp::Min, self.c(high), x.clone()));
        self.bind(e)
    }

    /// `c[0] + c[1] x + c[2] x^2 ...`
    pub fn poly(&mut self, x: &PrimExpr, c: &[f64]) -> PrimExpr {
        let Some((last, rest)) = c.split_last() else { return self.c(0.0) };
        let mut acc = self.c(*last);
        for k in rest.iter().rev() {
            let k = self.c(*k);
            acc = self.fma(&acc, x, &k);
        }
        acc
    }

    pub fn bits(&mut self, x: &PrimExpr) -> PrimExpr {
        let e = x.clone().reinterpret(self.i);
        self.bind(e)
    }
    pub fn with_bits(&mut self, x: &PrimExpr) -> PrimExpr {
        let e = x.clone().reinterpret(self.d);
        self.bind(e)
    }
    /// Bits of the fraction.
    pub fn mantissa(&self) -> i64 {
        if self.f64 {
            52
        } else {
            23
        }
    }
    pub fn bias(&self) -> i64 {
        if self.f64 {
            1023
        } else {
            127
        }
    }
    /// Adding this to a value leaves its nearest integer in the low bits: 1.5 times 2 to the mantissa's width.
    pub fn magic(&self) -> f64 {
        1.5 * 2f64.powi(self.mantissa() as i32)
    }
    /// The nearest integer of a value below 2^22 (2^51).
    pub fn round_small(&mut self, x: &PrimExpr) -> PrimExpr {
        let magic = self.c(self.magic());
        let t = self.add(x, &magic);
        self.sub(&t, &magic)
    }
    /// `2^n` for an integral float `n` with `n + bias` between 0 and all ones; those two give 0 and infinity.
    pub fn power_of_two(&mut self, n: &PrimExpr) -> PrimExpr {
        let magic = self.c(self.magic() + self.bias() as f64);
        let t = self.add(n, &magic);
        let b = self.bits(&t);
        let up = self.int(self.mantissa());
        let s = self.op(BinOp::Shl, &b, &up);
        self.with_bits(&s)
    }

    /// Converts to f64 (or from it) for intermediate results.
    pub fn to(&mut self, x: &PrimExpr, d: DType) -> PrimExpr {
        let e = x.clone().cast(d.with_lanes(self.d.lanes));
        self.bind(e)
    }

    /// Runs `f` on the f64 twin of this builder; names are kept in order.
    pub fn wide<T>(&mut self, f: impl FnOnce(&mut Build) -> T) -> T {
        let mut w = Build::new(DType::F64.with_lanes(self.d.lanes));
        std::mem::swap(&mut w.lets, &mut self.lets);
        let r = f(&mut w);
        std::mem::swap(&mut w.lets, &mut self.lets);
        r
    }
}
