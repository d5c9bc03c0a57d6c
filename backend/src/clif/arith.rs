//! Arithmetic, comparison and selection on values of any representation.

use super::cast::is_half;
use super::func::{Fx, Known};
use super::value::*;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value};
use relax_ir::prim::BinOp;
use relax_ir::DType;

fn is_simd(v: &Val) -> bool {
    matches!(v.rep, Rep::Simd(_))
}

impl Fx<'_> {
    /// A binary operation on operands of one type.
    pub fn binary(&mut self, op: BinOp, a: &Val, b: &Val) -> Val {
        let d = a.dtype;
        if is_half(d) {
            let (x, y) = (self.cast(a, DType::F32), self.cast(b, DType::F32));
            let r = self.binary(op, &x, &y);
            return if op.is_predicate() { r } else { self.cast(&r, d) };
        }
        if d.is_bool() {
            return self.bool_op(op, a, b);
        }
        if matches!(op, BinOp::And | BinOp::Or) {
            let (x, y) = (self.cast(a, DType::BOOL), self.cast(b, DType::BOOL));
            return self.bool_op(op, &x, &y);
        }
        if op.is_compare() {
            return self.compare(op, a, b);
        }
        if d.is_float() {
            self.float_op(op, a, b)
        } else {
            self.int_op(op, a, b)
        }
    }

    /// Arithmetic on f32 and f64.
    pub fn float_op(&mut self, op: BinOp, a: &Val, b: &Val) -> Val {
        let d = a.dtype;
        match op {
            BinOp::Min | BinOp::Max => {
                // `b < a` rather than `a > b`: the form that x86 has one instruction for.
                let c = if op == BinOp::Min { self.compare(BinOp::Lt, a, b) } else { self.compare(BinOp::Lt, b, a) };
                return self.select(&c, a, b);
            }
            BinOp::FloorDiv | BinOp::TruncDiv => {
                let q = self.float_op(BinOp::Div, a, b);
                return if op == BinOp::FloorDiv { self.floor(&q) } else { self.trunc(&q) };
            }
            BinOp::FloorMod | BinOp::TruncMod => {
                let q = self.float_op(if op == BinOp::FloorMod { BinOp::FloorDiv } else { BinOp::TruncDiv }, a, b);
                let p = self.float_op(BinOp::Mul, &q, b);
                return self.float_op(BinOp::Sub, a, &p);
            }
            _ => {}
        }
        let (a, b) = self.unify(a, b);
        self.map2(&a, &b, d, |s, x, y| match op {
            BinOp::Add => s.b.ins().fadd(x, y),
            BinOp::Sub => s.b.ins().fsub(x, y),
            BinOp::Mul => s.b.ins().fmul(x, y),
            _ => s.b.ins().fdiv(x, y),
        })
    }

    /// With a literal as the second operand.
    pub fn int_imm(&mut self, op: BinOp, a: &Val, b: i64) -> Val {
        let b = self.int_like(a, a.dtype, b);
        self.int_op(op, a, &b)
    }

    /// Arithmetic on integers and pointers; nothing traps.
    pub fn int_op(&mut self, op: BinOp, a: &Val, b: &Val) -> Val {
        let d = a.dtype;
        match op {
            BinOp::Div | BinOp::FloorDiv | BinOp::FloorMod | BinOp::TruncDiv | BinOp::TruncMod => {
                return self.lanewise(a, b, d, |s, x, y| s.divide(op, x, y, d));
            }
            BinOp::Shl | BinOp::Shr => return self.shift(op, a, b),
            BinOp::Mul if d.bits == 8 && !self.has_mul8 && (is_simd(a) || is_simd(b)) => {
                let wide = DType::I16;
                let (x, y) = (self.cast(a, wide), self.cast(b, wide));
                let r = self.int_op(BinOp::Mul, &x, &y);
                return self.cast(&r, d);
            }
            BinOp::Min | BinOp::Max if !self.has_int_min(a, b, d) => {
                let c = self.compare(if op == BinOp::Min { BinOp::Lt } else { BinOp::Gt }, a, b);
                return self.select(&c, a, b);
            }
            _ => {}
        }
        let (a, b) = self.unify(a, b);
        if !is_simd(&a) && matches!(op, BinOp::Add | BinOp::Sub | BinOp::Mul) {
            return self.map2(&a, &b, d, |s, x, y| s.index_op(op, x, y));
        }
        let signed = d.is_signed();
        self.map2(&a, &b, d, |s, x, y| match op {
            BinOp::Add => s.b.ins().iadd(x, y),
            BinOp::Sub => s.b.ins().isub(x, y),
            BinOp::Mul => s.b.ins().imul(x, y),
            BinOp::BitAnd | BinOp::And => s.b.ins().band(x, y),
            BinOp::BitOr | BinOp::Or => s.b.ins().bor(x, y),
            BinOp::BitXor => s.b.ins().bxor(x, y),
            BinOp::Min if signed => s.b.ins().smin(x, y),
            BinOp::Min => s.b.ins().umin(x, y),
            _ if signed => s.b.ins().smax(x, y),
            _ => s.b.ins().umax(x, y),
        })
    }

    /// Scalar sums and products, most of them parts of indices.
    fn index_op(&mut self, op: BinOp, x: Value, y: Value) -> Value {
        if op == BinOp::Mul {
            let bits = self.b.func.dfg.value_type(x).bits();
            for (x, y) in [(x, y), (y, x)] {
                if let Some(k) = self.constant_bits(y).filter(|k| k.is_power_of_two() && k.trailing_zeros() < bits) {
                    return if k == 1 { x } else { self.shift_left(x, k.trailing_zeros() as u8) };
                }
            }
        }
        if let (BinOp::Add | BinOp::Sub, Some(0)) = (op, self.constant_bits(y)) {
            return x;
        }
        if let Some(k) = self.constant_bits(y) {
            // Literals are values of their own each time: remember by what they are.
            let ty = self.b.func.dfg.value_type(x);
            let y = *self.literals.entry((ty, k)).or_insert(y);
            return self.once(Known::Int(op), x, y, |s| s.int_ins(op, x, y));
        }
        self.once(Known::Int(op), x, y, |s| s.int_ins(op, x, y))
    }

    fn int_ins(&mut self, op: BinOp, x: Value, y: Value) -> Value {
        match op {
            BinOp::Add => self.b.ins().iadd(x, y),
            BinOp::Sub => self.b.ins().isub(x, y),
            _ => self.b.ins().imul(x, y),
        }
    }

    fn has_int_min(&self, a: &Val, b: &Val, d: DType) -> bool {
        !(is_simd(a) || is_simd(b)) || lane_bits(d) < 64
    }

    /// Applies a scalar operation to every lane.
    fn lanewise(&mut self, a: &Val, b: &Val, d: DType, f: impl FnMut(&mut Self, Value, Value) -> Value) -> Val {
        if a.rep == Rep::Uniform && b.rep == Rep::Uniform {
            return self.map2(a, b, d, f);
        }
        let simd = is_simd(a) || is_simd(b);
        let (x, y) = (self.scalarise(a), self.scalarise(b));
        let r = self.map2(&x, &y, d, f);
        if simd {
            self.vectorise(&r, lane_bits(d))
        } else {
            r
        }
    }

    fn shift(&mut self, op: BinOp, a: &Val, b: &Val) -> Val {
        let d = a.dtype;
        let one = |s: &mut Self, x: Value, y: Value| match op {
            BinOp::Shl => s.b.ins().ishl(x, y),
            _ if d.is_signed() => s.b.ins().sshr(x, y),
            _ => s.b.ins().ushr(x, y),
        };
        if let (Rep::Simd(_), Rep::Uniform) = (a.rep, b.rep) {
            let amount = b.one();
            return self.map1(a, d, |s, x| one(s, x, amount));
        }
        self.lanewise(a, b, d, one)
    }

    /// Division that never traps: a zero divisor gives 0, the lowest value over -1 wraps.
    fn divide(&mut self, op: BinOp, a: Value, b: Value, d: DType) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        let unsigned = !d.is_signed();
        let modulo = matches!(op, BinOp::FloorMod | BinOp::TruncMod);
        let floor = matches!(op, BinOp::FloorMod | BinOp::FloorDiv) && !unsigned;
        let bits = ty.bits();
        let constant = self.constant_bits(b).map(|c| {
            let shift = 64 - bits;
            if unsigned {
                c << shift >> shift
            } else {
                (((c << shift) as i64) >> shift) as u64
            }
        });
        let zero = self.b.ins().iconst(ty, 0);
        if let Some(c) = constant {
            if c == 0 {
                return zero;
            }
            if c.is_power_of_two() && (unsigned || floor) && (c as i64) > 0 {
                let k = c.trailing_zeros() as i64;
                return if modulo {
                    self.b.ins().band_imm_u(a, (c - 1) as i64)
                } else if unsigned {
                    self.b.ins().ushr_imm_u(a, k)
                } else {
                    self.b.ins().sshr_imm_u(a, k)
                };
            }
        }
        if unsigned {
            if constant.is_some() {
                let Some(q) = constant.and_then(|c| self.divide_by_unsigned(a, c)) else {
                    return if modulo { self.b.ins().urem(a, b) } else { self.b.ins().udiv(a, b) };
                };
                if !modulo {
                    return q;
                }
                let p = self.b.ins().imul(q, b);
                return self.b.ins().isub(a, p);
            }
            let is_zero = self.b.ins().icmp_imm_s(IntCC::Equal, b, 0);
            let one = self.b.ins().iconst(ty, 1);
            let safe = self.b.ins().select(is_zero, one, b);
            if modulo {
                return self.b.ins().urem(a, safe);
            }
            let q = self.b.ins().udiv(a, safe);
            return self.b.ins().select(is_zero, zero, q);
        }
        let minus_one = self.b.ins().icmp_imm_s(IntCC::Equal, b, -1);
        let (safe, guarded) = match constant {
            Some(u64::MAX) => {
                return if modulo { zero } else { self.b.ins().ineg(a) };
            }
            Some(_) => (b, false),
            None => {
                let is_zero = self.b.ins().icmp_imm_s(IntCC::Equal, b, 0);
                let either = self.b.ins().bor(is_zero, minus_one);
                let one = self.b.ins().iconst(ty, 1);
                (self.b.ins().select(either, one, b), true)
            }
        };
        let by_literal = constant.and_then(|c| self.divide_by_signed(a, c as i64));
        let q = by_literal.unwrap_or_else(|| self.b.ins().sdiv(a, safe));
        let p = self.b.ins().imul(q, safe);
        let r = self.b.ins().isub(a, p);
        // The quotient rounds down when there is a remainder whose sign is not the divisor's.
        let off = if floor {
            let some = self.b.ins().icmp_imm_s(IntCC::NotEqual, r, 0);
            let x = self.b.ins().bxor(r, safe);
            let differ = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, x, 0);
            Some(self.b.ins().band(some, differ))
        } else {
            None
        };
        if modulo {
            return match off {
                Some(c) => {
                    let up = self.b.ins().iadd(r, safe);
                    self.b.ins().select(c, up, r)
                }
                None => r,
            };
        }
        let q = match off {
            Some(c) => {
                let down = self.b.ins().iadd_imm_s(q, -1);
                self.b.ins().select(c, down, q)
            }
            None => q,
        };
        if !guarded {
            return q;
        }
        let negated = self.b.ins().ineg(a);
        let q = self.b.ins().select(minus_one, negated, q);
        let is_zero = self.b.ins().icmp_imm_s(IntCC::Equal, b, 0);
        self.b.ins().select(is_zero, zero, q)
    }

    /// The quotient, rounded to zero, by a literal other than 0 and -1: a product's upper half. 32 and 64 bits.
    fn divide_by_signed(&mut self, a: Value, d: i64) -> Option<Value> {
        let ty = self.b.func.dfg.value_type(a);
        let bits = ty.bits();
        if bits < 32 || d.unsigned_abs() < 2 {
            return None;
        }
        // Hacker's Delight, 10-1.
        let ad = d.unsigned_abs() as u128;
        let top = 1u128 << (bits - 1);
        let t = top + (d < 0) as u128;
        let anc = t - 1 - t % ad;
        let mut p = bits - 1;
        let (mut q1, mut r1, mut q2, mut r2) = (top / anc, top % anc, top / ad, top % ad);
        loop {
            p += 1;
            (q1, r1) = if 2 * r1 >= anc { (2 * q1 + 1, 2 * r1 - anc) } else { (2 * q1, 2 * r1) };
            (q2, r2) = if 2 * r2 >= ad { (2 * q2 + 1, 2 * r2 - ad) } else { (2 * q2, 2 * r2) };
            let delta = ad - r2;
            if q1 > delta || (q1 == delta && r1 != 0) {
                break;
            }
        }
        let shift = 64 - bits;
        let m = (((q2 + 1) as u64) << shift) as i64 >> shift;
        let m = if d < 0 { m.wrapping_neg() } else { m };
        let literal = self.b.ins().iconst(ty, if bits == 64 { m } else { m & 0xffff_ffff });
        let mut q = self.b.ins().smulhi(a, literal);
        if d > 0 && m < 0 {
            q = self.b.ins().iadd(q, a);
        } else if d < 0 && m > 0 {
            q = self.b.ins().isub(q, a);
        }
        if p > bits {
            q = self.b.ins().sshr_imm_u(q, (p - bits) as i64);
        }
        let negative = self.b.ins().ushr_imm_u(q, bits as i64 - 1);
        Some(self.b.ins().iadd(q, negative))
    }

    /// Likewise for unsigned numbers and literals that are no power of two.
    fn divide_by_unsigned(&mut self, a: Value, d: u64) -> Option<Value> {
        let ty = self.b.func.dfg.value_type(a);
        let bits = ty.bits();
        if bits < 32 || d < 3 || d.is_power_of_two() {
            return None;
        }
        // Granlund and Montgomery, figure 4.1.
        let l = 64 - (d - 1).leading_zeros();
        let m = (((1u128 << l) - d as u128) << bits) / d as u128 + 1;
        let literal = self.b.ins().iconst(ty, m as u64 as i64);
        let t = self.b.ins().umulhi(a, literal);
        let rest = self.b.ins().isub(a, t);
        let half = self.b.ins().ushr_imm_u(rest, 1);
        let sum = self.b.ins().iadd(t, half);
        Some(self.b.ins().ushr_imm_u(sum, l as i64 - 1))
    }

    /// Logic on bool.
    pub fn bool_op(&mut self, op: BinOp, a: &Val, b: &Val) -> Val {
        let (a, b) = self.unify(a, b);
        let d = a.dtype;
        let simd = is_simd(&a);
        self.map2(&a, &b, d, |s, x, y| {
            let not = |s: &mut Self, v: Value| if simd { s.b.ins().bnot(v) } else { s.b.ins().bxor_imm_u(v, 1) };
            match op {
                BinOp::And | BinOp::BitAnd | BinOp::Min | BinOp::Mul => s.b.ins().band(x, y),
                BinOp::Or | BinOp::BitOr | BinOp::Max | BinOp::Add => s.b.ins().bor(x, y),
                BinOp::Eq => {
                    let n = s.b.ins().bxor(x, y);
                    not(s, n)
                }
                BinOp::Lt | BinOp::Gt => {
                    let (x, y) = if op == BinOp::Lt { (x, y) } else { (y, x) };
                    let n = not(s, x);
                    s.b.ins().band(n, y)
                }
                BinOp::Le | BinOp::Ge => {
                    let (x, y) = if op == BinOp::Le { (x, y) } else { (y, x) };
                    let n = not(s, x);
                    s.b.ins().bor(n, y)
                }
                _ => s.b.ins().bxor(x, y),
            }
        })
    }

    /// Comparison of numbers; with a NaN only `Ne` holds.
    pub fn compare(&mut self, op: BinOp, a: &Val, b: &Val) -> Val {
        let d = a.dtype;
        let (a, b) = self.unify(a, b);
        let mut r = if d.is_float() {
            let cc = match op {
                BinOp::Eq => FloatCC::Equal,
                BinOp::Ne => FloatCC::NotEqual,
                BinOp::Lt => FloatCC::LessThan,
                BinOp::Le => FloatCC::LessThanOrEqual,
                BinOp::Gt => FloatCC::GreaterThan,
                _ => FloatCC::GreaterThanOrEqual,
            };
            self.map2(&a, &b, DType::BOOL, |s, x, y| s.fcmp(cc, x, y))
        } else {
            let cc = match (op, d.is_signed()) {
                (BinOp::Eq, _) => IntCC::Equal,
                (BinOp::Ne, _) => IntCC::NotEqual,
                (BinOp::Lt, true) => IntCC::SignedLessThan,
                (BinOp::Le, true) => IntCC::SignedLessThanOrEqual,
                (BinOp::Gt, true) => IntCC::SignedGreaterThan,
                (_, true) => IntCC::SignedGreaterThanOrEqual,
                (BinOp::Lt, false) => IntCC::UnsignedLessThan,
                (BinOp::Le, false) => IntCC::UnsignedLessThanOrEqual,
                (BinOp::Gt, false) => IntCC::UnsignedGreaterThan,
                (_, false) => IntCC::UnsignedGreaterThanOrEqual,
            };
            self.map2(&a, &b, DType::BOOL, |s, x, y| s.b.ins().icmp(cc, x, y))
        };
        r.dtype = DType::BOOL.with_lanes(a.dtype.lanes);
        r
    }

    /// Compares floats or vectors of them. Cranelift 0.135 takes `cmpps` and `cmppd` for instructions that read memory at
    /// any address, as their AVX forms do: without AVX, loads are kept out of them by a cast that costs nothing.
    pub(super) fn fcmp(&mut self, cc: FloatCC, x: Value, y: Value) -> Value {
        let ty = self.b.func.dfg.value_type(x);
        if !ty.is_vector() || !self.loads_apart {
            return self.b.ins().fcmp(cc, x, y);
        }
        let bits = ty.as_int();
        let [x, y] = [x, y].map(|v| {
            let v = self.b.ins().bitcast(bits, lane_flags(), v);
            self.b.ins().bitcast(ty, lane_flags(), v)
        });
        self.b.ins().fcmp(cc, x, y)
    }

    pub fn is_nan(&mut self, v: &Val) -> Val {
        let v = if is_half(v.dtype) { self.cast(v, DType::F32) } else { v.clone() };
        self.map1(&v, DType::BOOL, |s, x| s.fcmp(FloatCC::Unordered, x, x))
    }

    pub fn not(&mut self, v: &Val) -> Val {
        let simd = is_simd(v);
        self.map1(v, v.dtype, |s, x| if simd { s.b.ins().bnot(x) } else { s.b.ins().bxor_imm_u(x, 1) })
    }

    pub fn neg(&mut self, v: &Val) -> Val {
        if is_half(v.dtype) {
            let bits = self.bits_as(v, DType::U16);
            let r = self.int_imm(BinOp::BitXor, &bits, 0x8000);
            return self.bits_as(&r, v.dtype);
        }
        let float = v.dtype.is_float();
        self.map1(v, v.dtype, |s, x| if float { s.b.ins().fneg(x) } else { s.b.ins().ineg(x) })
    }

    /// Picks lane by lane, both sides being evaluated; a scalar condition picks whole vectors.
    pub fn select(&mut self, c: &Val, t: &Val, f: &Val) -> Val {
        let (t, f) = self.unify(t, f);
        let d = t.dtype;
        match c.rep {
            Rep::Uniform => {
                let c = c.one();
                self.map2(&t, &f, d, |s, x, y| s.b.ins().select(c, x, y))
            }
            Rep::Scalar if c.lanes() == 1 => {
                let c = c.one();
                self.map2(&t, &f, d, |s, x, y| s.b.ins().select(c, x, y))
            }
            Rep::Scalar => {
                let (t, f) = (self.scalarise(&t), self.scalarise(&f));
                let parts = (0..c.lanes()).map(|i| self.b.ins().select(c.parts[i], t.parts[i], f.parts[i])).collect();
                Val { dtype: d, rep: Rep::Scalar, parts }
            }
            Rep::Simd(mask_bits) => {
                let bits = match (d.is_bool(), t.rep) {
                    (true, Rep::Simd(b)) => b,
                    (true, _) => mask_bits,
                    _ => lane_bits(d),
                };
                let (c, t, f) = (self.vectorise(c, bits), self.vectorise(&t, bits), self.vectorise(&f, bits));
                let ty = self.part_type(d, Rep::Simd(bits));
                let parts = (0..c.parts.len())
                    .map(|i| {
                        let m = c.parts[i];
                        let same = self.b.func.dfg.value_type(m) == ty;
                        let m = if same { m } else { self.b.ins().bitcast(ty, lane_flags(), m) };
                        self.b.ins().bitselect(m, t.parts[i], f.parts[i])
                    })
                    .collect();
                Val { dtype: d, rep: Rep::Simd(bits), parts }
            }
        }
    }
}
