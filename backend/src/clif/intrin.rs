//! The intrinsics that backends translate.

use super::cast::is_half;
use super::func::Fx;
use super::value::*;
use cranelift_codegen::ir::{types, InstBuilder};
use relax_ir::prim::{BinOp, Intrin, PrimExpr};
use relax_ir::{DType, Diagnostic};

impl Fx<'_> {
    pub fn intrinsic(&mut self, f: Intrin, args: &[PrimExpr], e: &PrimExpr) -> Result<Val, Diagnostic> {
        let d = e.dtype();
        let Some(first) = args.first() else {
            return Err(self.fault(format!("T.{} without arguments", f.name())));
        };
        let mut v = vec![];
        for a in args {
            v.push(self.eval(a)?);
        }
        let x = v[0].clone();
        let half = is_half(first.dtype());
        if half && !matches!(f, Intrin::Likely | Intrin::ExtractLane) {
            for a in &mut v {
                *a = self.cast(a, DType::F32);
            }
        }
        let a = v[0].clone();
        let float = a.dtype.is_float();
        let need = |s: &Self, n: usize| match v.get(n) {
            Some(x) => Ok(x.clone()),
            None => Err(s.fault(format!("T.{} needs {} arguments", f.name(), n + 1))),
        };
        let r = match f {
            Intrin::Likely => x,
            Intrin::Sqrt if float => self.map1(&a, a.dtype, |s, x| s.b.ins().sqrt(x)),
            Intrin::Floor if float => self.floor(&a),
            Intrin::Ceil if float => self.ceil(&a),
            Intrin::Trunc if float => self.trunc(&a),
            Intrin::Round | Intrin::NearbyInt if float => self.nearest(&a),
            Intrin::Floor | Intrin::Ceil | Intrin::Trunc | Intrin::Round | Intrin::NearbyInt => a,
            Intrin::Abs | Intrin::Fabs => self.abs(&a),
            Intrin::IsNan if float => self.is_nan(&a),
            Intrin::IsNan => {
                let zero = self.b.ins().iconst(types::I8, 0);
                Val::scalar(d, zero)
            }
            Intrin::CopySign if float => {
                let b = need(self, 1)?;
                self.copysign(&a, &b)
            }
            Intrin::Fma => {
                let (b, c) = (need(self, 1)?, need(self, 2)?);
                self.fma(&a, &b, &c)
            }
            Intrin::BitNot if a.dtype.is_bool() => self.not(&a),
            Intrin::BitNot => self.map1(&a, a.dtype, |s, x| s.b.ins().bnot(x)),
            Intrin::PopCount | Intrin::Clz => {
                let r = self.count_bits(f, &a);
                return Ok(self.cast(&r, d));
            }
            Intrin::ByteWords
            | Intrin::DotWords
            | Intrin::AddWords
            | Intrin::SubWords
            | Intrin::Interleave
            | Intrin::Repeat
            | Intrin::Bytes
            | Intrin::WovenBytes => self.words(f, &v, args)?,
            Intrin::ReduceAdd => self.reduce(BinOp::Add, &a),
            Intrin::ReduceMul => self.reduce(BinOp::Mul, &a),
            Intrin::ReduceMax => self.reduce(BinOp::Max, &a),
            Intrin::ReduceMin => self.reduce(BinOp::Min, &a),
            Intrin::ExtractLane => {
                let Some(i) = args.get(1).and_then(PrimExpr::as_int).filter(|&i| (i as usize) < x.lanes()) else {
                    return Err(self.fault("T.extract_lane needs a literal lane in range"));
                };
                let lane = self.extract(&x, i as usize);
                return Ok(Val::scalar(d, lane));
            }
            _ => {
                return Err(self.fault(format!(
                    "T.{} of {} was not expanded before code generation",
                    f.name(),
                    a.dtype
                )))
            }
        };
        Ok(if half && r.dtype.is_float() && d.is_float() { self.cast(&r, d) } else { r })
    }

    pub fn abs(&mut self, v: &Val) -> Val {
        let d = v.dtype;
        if is_half(d) {
            let bits = self.bits_as(v, DType::U16);
            let r = self.int_imm(BinOp::BitAnd, &bits, 0x7fff);
            return self.bits_as(&r, d);
        }
        if d.is_float() {
            return self.map1(v, d, |s, x| s.b.ins().fabs(x));
        }
        if d.is_signed() {
            return self.map1(v, d, |s, x| s.b.ins().iabs(x));
        }
        v.clone()
    }

    pub fn copysign(&mut self, magnitude: &Val, sign: &Val) -> Val {
        let d = magnitude.dtype;
        let (a, b) = self.unify(magnitude, sign);
        if !matches!(a.rep, Rep::Simd(_)) {
            return self.map2(&a, &b, d, |s, x, y| s.b.ins().fcopysign(x, y));
        }
        let (u, top) = if d.bits == 64 { (DType::U64, i64::MIN) } else { (DType::U32, 0x8000_0000) };
        let (a, b) = (self.bits_as(&a, u), self.bits_as(&b, u));
        let m = self.int_imm(BinOp::BitAnd, &a, !top);
        let s = self.int_imm(BinOp::BitAnd, &b, top);
        let r = self.int_op(BinOp::BitOr, &m, &s);
        self.bits_as(&r, d)
    }

    fn fma(&mut self, a: &Val, b: &Val, c: &Val) -> Val {
        if !self.has_fma || !a.dtype.is_float() {
            let p = self.binary(BinOp::Mul, a, b);
            return self.binary(BinOp::Add, &p, c);
        }
        let (a, b) = self.unify(a, b);
        let (a, c) = self.unify(&a, c);
        let (b, c) = self.unify(&b, &c);
        let d = a.dtype;
        let parts = (0..a.parts.len()).map(|i| self.b.ins().fma(a.parts[i], b.parts[i], c.parts[i])).collect();
        a.with(d, parts)
    }

    // ---- rounding -------------------------------------------------------------------------------------------------

    pub fn floor(&mut self, v: &Val) -> Val {
        if self.has_round {
            return self.map1(v, v.dtype, |s, x| s.b.ins().floor(x));
        }
        self.round_towards(v, BinOp::Gt, -1.0)
    }

    pub fn ceil(&mut self, v: &Val) -> Val {
        if self.has_round {
            return self.map1(v, v.dtype, |s, x| s.b.ins().ceil(x));
        }
        self.round_towards(v, BinOp::Lt, 1.0)
    }

    pub fn trunc(&mut self, v: &Val) -> Val {
        if self.has_round {
            return self.map1(v, v.dtype, |s, x| s.b.ins().trunc(x));
        }
        let a = self.abs(v);
        let r = self.round_towards(&a, BinOp::Gt, -1.0);
        self.copysign(&r, v)
    }

    pub fn nearest(&mut self, v: &Val) -> Val {
        if self.has_round {
            return self.map1(v, v.dtype, |s, x| s.b.ins().nearest(x));
        }
        // Adding 2^23 (2^52) leaves no fraction bits; larger values have none to begin with.
        let d = v.dtype;
        let a = self.abs(v);
        let magic = self.float_like(v, d, if d.bits == 64 { 2f64.powi(52) } else { 2f64.powi(23) });
        let r = self.float_op(BinOp::Add, &a, &magic);
        let r = self.float_op(BinOp::Sub, &r, &magic);
        let r = self.copysign(&r, v);
        let small = self.compare(BinOp::Lt, &a, &magic);
        self.select(&small, &r, v)
    }

    /// The nearest integer, moved by `step` when it lies on the wrong side (`wrong` of it and `v`).
    fn round_towards(&mut self, v: &Val, wrong: BinOp, step: f64) -> Val {
        let d = v.dtype;
        let r = self.nearest(v);
        let step = self.float_like(v, d, step);
        let moved = self.float_op(BinOp::Add, &r, &step);
        let c = self.compare(wrong, &r, v);
        let r = self.select(&c, &moved, &r);
        self.copysign(&r, v)
    }

    // ---- bits and lanes -------------------------------------------------------------------------------------------

    fn count_bits(&mut self, f: Intrin, v: &Val) -> Val {
        let lanes = if v.rep == Rep::Uniform { v.clone() } else { self.scalarise(v) };
        let narrow = lane_bits(v.dtype) < 32;
        let bits = lane_bits(v.dtype) as i64;
        let r = self.map1(&lanes, v.dtype, |s, x| {
            let ty = s.b.func.dfg.value_type(x);
            let w = if narrow { s.b.ins().uextend(types::I32, x) } else { x };
            let n = if f == Intrin::PopCount {
                s.b.ins().popcnt(w)
            } else {
                let n = s.b.ins().clz(w);
                if narrow {
                    s.b.ins().iadd_imm_s(n, bits - 32)
                } else {
                    n
                }
            };
            if narrow {
                s.b.ins().ireduce(ty, n)
            } else {
                n
            }
        });
        match v.rep {
            Rep::Simd(b) => self.vectorise(&r, b),
            _ => r,
        }
    }

    /// Combines the lanes to one: registers first, then pairs of lanes.
    fn reduce(&mut self, op: BinOp, v: &Val) -> Val {
        let d = v.dtype.element();
        if let (true, Rep::Simd(bits)) = (d.is_bool(), v.rep) {
            // Any, or all; unused lanes must not vote.
            if v.lanes().is_multiple_of(lanes_per_part(bits)) {
                let all = op == BinOp::Min;
                let mut acc = v.parts[0];
                for &p in &v.parts[1..] {
                    acc = if all { self.b.ins().band(acc, p) } else { self.b.ins().bor(acc, p) };
                }
                let x = if all { self.b.ins().vall_true(acc) } else { self.b.ins().vany_true(acc) };
                return Val::scalar(d, x);
            }
        }
        if v.rep == Rep::Uniform && matches!(op, BinOp::Max | BinOp::Min) {
            return Val::scalar(d, v.one());
        }
        let mut v = v.clone();
        if let Rep::Simd(bits) = v.rep {
            let per = lanes_per_part(bits);
            while v.lanes() > per && v.lanes().is_multiple_of(per) {
                let n = v.parts.len();
                let half = n / 2;
                let group = DType { lanes: (half * per) as u16, ..v.dtype };
                let a = Val { dtype: group, rep: v.rep, parts: v.parts[..half].to_vec() };
                let b = Val { dtype: group, rep: v.rep, parts: v.parts[half..2 * half].to_vec() };
                let mut r = self.binary(op, &a, &b);
                if n % 2 == 1 {
                    let single = DType { lanes: per as u16, ..v.dtype };
                    let head = Val { dtype: single, rep: v.rep, parts: vec![r.parts[0]] };
                    let rest = Val { dtype: single, rep: v.rep, parts: vec![v.parts[n - 1]] };
                    r.parts[0] = self.binary(op, &head, &rest).parts[0];
                }
                v = r;
            }
        }
        let mut lanes: Vec<Val> = self.scalarise(&v).parts.into_iter().map(|x| Val::scalar(d, x)).collect();
        while lanes.len() > 1 {
            let half = lanes.len().div_ceil(2);
            let upper = lanes.split_off(half);
            for (i, u) in upper.iter().enumerate() {
                lanes[i] = self.binary(op, &lanes[i].clone(), u);
            }
        }
        lanes.swap_remove(0)
    }
}
