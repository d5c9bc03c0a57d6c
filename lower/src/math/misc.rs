//! Remainder, hypotenuse, neighbours, scaling by powers of two.

use super::build::Build;
use super::{any, raw};
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind};
use relax_ir::DType;

impl Build {
    /// C's `fmod`: the sign of `x`. Exact.
    pub fn fmod(&mut self, x: &PrimExpr, y: &PrimExpr) -> PrimExpr {
        let (a, m) = (self.abs(x), self.abs(y));
        let r = if self.f64 { self.fmod_f64(&a, &m) } else { self.fmod_f32(&a, &m) };
        let r = self.copysign(&r, x);
        // Infinite x or zero y: NaN. Infinite y: x.
        let (zero, inf, nan) = (self.c(0.0), self.c(f64::INFINITY), self.c(f64::NAN));
        let r = self.select(m.clone().eq(inf.clone()), x, &r);
        let r = self.select(raw(BinOp::Or, a.clone().eq(inf), m.clone().eq(zero)), &nan, &r);
        let sum = self.add(x, y);
        let either = raw(BinOp::Or, x.clone().call1(Intrin::IsNan), y.clone().call1(Intrin::IsNan));
        self.select(either, &sum, &r)
    }

    /// One exact step: `r - trunc(r / m) m`, corrected when the quotient was rounded up.
    fn fmod_step(&mut self, r: &PrimExpr, m: &PrimExpr) -> PrimExpr {
        let q = self.div(r, m);
        let q = self.trunc(&q);
        let p = self.mul(&q, m);
        let s = self.sub(r, &p);
        let up = self.add(&s, m);
        let zero = self.c(0.0);
        self.select(s.clone().lt(zero), &up, &s)
    }

    fn fmod_f32(&mut self, a: &PrimExpr, m: &PrimExpr) -> PrimExpr {
        let (a, m, narrow) = (a.clone(), m.clone(), self.d);
        let r = self.wide(|w| {
            let a = w.bind(a.cast(w.d));
            let m = w.bind(m.cast(w.d));
            // 24 bits of divisor and 28 of quotient fit a product; larger quotients take several steps.
            let limit = w.c(2f64.powi(28));
            let most = w.mul(&m, &limit);
            let some = any(raw(BinOp::Gt, a.clone(), most));
            let mut b = Build::new(w.d);
            let mut r = a.clone();
            for i in (1..10).rev() {
                let by = b.c(2f64.powi(28 * i));
                let mi = b.mul(&m, &by);
                r = b.fmod_step(&r, &mi);
            }
            let slow = b.finish(r);
            let a = PrimExpr::raw(PrimKind::IfThenElse(some, slow, a.clone()), w.d);
            let a = w.bind(a);
            w.fmod_step(&a, &m)
        });
        self.to(&r, narrow)
    }

    fn fmod_f64(&mut self, a: &PrimExpr, m: &PrimExpr) -> PrimExpr {
        let limit = self.c(2f64.powi(52));
        let most = self.mul(m, &limit);
        let some = any(raw(BinOp::Gt, a.clone(), most));
        let mut b = Build::new(self.d);
        let mut r = a.clone();
        // Larger quotients by 52 bits a step, from the largest one that two floats have.
        for i in (1..=40).rev() {
            let (mut mi, mut left) = (m.clone(), 52 * i);
            while left > 0 {
                let by = b.c(2f64.powi(left.min(1000)));
                mi = b.mul(&mi, &by);
                left -= left.min(1000);
            }
            let step = b.fmod_step_f64(&r, &mi);
            r = b.select(mi.le(r.clone()), &step, &r);
        }
        let slow = b.finish(r);
        let a = PrimExpr::raw(PrimKind::IfThenElse(some, slow, a.clone()), self.d);
        let a = self.bind(a);
        self.fmod_step_f64(&a, m)
    }

    /// As [`Build::fmod_step`], for quotients below 2^53: the product exactly, by halves.
    fn fmod_step_f64(&mut self, a: &PrimExpr, m: &PrimExpr) -> PrimExpr {
        let q = self.div(a, m);
        let q = self.trunc(&q);
        let half = |b: &mut Build, v: &PrimExpr| {
            let bits = b.bits(v);
            let mask = b.int(!((1 << 27) - 1));
            let h = b.op(BinOp::BitAnd, &bits, &mask);
            let h = b.with_bits(&h);
            let l = b.sub(v, &h);
            (h, l)
        };
        let (qh, ql) = half(self, &q);
        let (mh, ml) = half(self, m);
        let mut r = a.clone();
        for (x, y) in [(&qh, &mh), (&qh, &ml), (&ql, &mh), (&ql, &ml)] {
            let p = self.mul(x, y);
            r = self.sub(&r, &p);
        }
        let zero = self.c(0.0);
        let up = self.add(&r, m);
        let r = self.select(r.clone().lt(zero), &up, &r);
        let down = self.sub(&r, m);
        self.select(r.clone().ge(m.clone()), &down, &r)
    }

    /// f32: 0.5 ULP, f64: 2 ULP; infinite when either side is.
    pub fn hypot(&mut self, x: &PrimExpr, y: &PrimExpr) -> PrimExpr {
        let (a, b) = (self.abs(x), self.abs(y));
        let r = if self.f64 {
            let less = self.op(BinOp::Lt, &a, &b);
            let big = self.select(less.clone(), &b, &a);
            let small = self.select(less, &a, &b);
            let (zero, one) = (self.c(0.0), self.c(1.0));
            let d = self.select(big.clone().eq(zero), &one, &big);
            let q = self.div(&small, &d);
            let s = self.fma(&q, &q, &one);
            let s = self.sqrt(&s);
            self.mul(&s, &big)
        } else {
            let (a, b, narrow) = (a.clone(), b.clone(), self.d);
            let r = self.wide(|w| {
                let a = w.bind(a.cast(w.d));
                let b = w.bind(b.cast(w.d));
                let bb = w.mul(&b, &b);
                let s = w.fma(&a, &a, &bb);
                w.sqrt(&s)
            });
            self.to(&r, narrow)
        };
        let inf = self.c(f64::INFINITY);
        let sum = self.add(x, y);
        let nan = raw(BinOp::Or, x.clone().call1(Intrin::IsNan), y.clone().call1(Intrin::IsNan));
        let r = self.select(nan, &sum, &r);
        self.select(raw(BinOp::Or, a.eq(inf.clone()), b.eq(inf.clone())), &inf, &r)
    }

    /// The next value towards `y`.
    pub fn nextafter(&mut self, x: &PrimExpr, y: &PrimExpr) -> PrimExpr {
        let bits = self.bits(x);
        let forward = x.clone().lt(y.clone());
        let next = neighbour(self, &bits, x, y, forward, self.i);
        let next = self.with_bits(&next);
        let r = self.select(x.clone().eq(y.clone()), y, &next);
        let sum = self.add(x, y);
        let nan = raw(BinOp::Or, x.clone().call1(Intrin::IsNan), y.clone().call1(Intrin::IsNan));
        self.select(nan, &sum, &r)
    }

    /// `x 2^n`; `n` an integer (or an integral float) of any size. Exact but for denormal results.
    pub fn ldexp(&mut self, x: &PrimExpr, n: &PrimExpr) -> PrimExpr {
        let mut n = if n.dtype().is_float() {
            n.clone()
        } else {
            let e = n.clone().cast(self.d);
            self.bind(e)
        };
        let (least, most) = if self.f64 { (-1022.0, 1023.0) } else { (-126.0, 127.0) };
        let mut r = x.clone();
        for _ in 0..3 {
            let part = self.clamp(&n, least, most);
            n = self.sub(&n, &part);
            let s = self.power_of_two(&part);
            r = self.mul(&r, &s);
        }
        r
    }
}

/// The bits of the neighbour of `x` towards `y`; `i` is the integer type of the width.
fn neighbour(b: &mut Build, bits: &PrimExpr, x: &PrimExpr, y: &PrimExpr, forward: PrimExpr, i: DType) -> PrimExpr {
    let (one, zero) = (PrimExpr::int(i, 1), PrimExpr::int(i, 0));
    let up = b.add(bits, &one);
    let down = b.sub(bits, &one);
    // Away from zero when the direction agrees with the sign.
    let positive = raw(BinOp::Ge, bits.clone(), zero);
    let away = raw(BinOp::Eq, forward, positive);
    let moved = b.select(away, &up, &down);
    // From zero: the least denormal with the sign of y.
    let sign = raw(BinOp::Lt, y.clone(), PrimExpr::zero(y.dtype()));
    let top = PrimExpr::int(i, 1i64 << (i.bits - 1));
    let least = b.select(sign, &(raw(BinOp::Add, top, one.clone())), &one);
    b.select(raw(BinOp::Eq, x.clone(), PrimExpr::zero(x.dtype())), &least, &moved)
}

/// `nextafter` on f16 and bf16, by their bits.
pub(super) fn nextafter_half(x: &PrimExpr, y: &PrimExpr) -> PrimExpr {
    let d = x.dtype();
    let wide = DType::F32.with_lanes(d.lanes);
    let i = DType::I16.with_lanes(d.lanes);
    let mut b = Build::new(wide);
    let (fx, fy) = (b.bind(x.clone().cast(wide)), b.bind(y.clone().cast(wide)));
    let bits = b.bind(x.clone().reinterpret(i));
    let target = b.bind(y.clone().reinterpret(i));
    let forward = fx.clone().lt(fy.clone());
    let next = neighbour(&mut b, &bits, &fx, &fy, forward, i);
    let r = b.select(fx.clone().eq(fy.clone()), &target, &next);
    let (x_nan, y_nan) = (fx.call1(Intrin::IsNan), fy.call1(Intrin::IsNan));
    let r = b.select(y_nan, &target, &r);
    let r = b.select(x_nan, &bits, &r);
    b.finish(r.reinterpret(d))
}
