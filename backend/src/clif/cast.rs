//! Conversions between types, f16 and bf16 by integer arithmetic, reinterpretation of bits.

use super::func::Fx;
use super::value::*;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{types, InstBuilder, StackSlotData, StackSlotKind, Value};
use relax_ir::prim::BinOp;
use relax_ir::{DType, TypeCode};

pub(super) fn is_half(d: DType) -> bool {
    d.is_float() && d.bits == 16
}

impl Fx<'_> {
    /// Converts lane by lane to the element type of `to`: integers wrap, floats to integers saturate (NaN to 0),
    /// to bool is `!= 0`, to smaller floats rounds half to even, once.
    pub fn cast(&mut self, v: &Val, to: DType) -> Val {
        let to = to.with_lanes(v.dtype.lanes);
        let from = v.dtype;
        if from == to {
            return v.clone();
        }
        if is_half(from) && is_half(to) {
            let wide = self.cast(v, DType::F32);
            return self.cast(&wide, to);
        }
        if is_half(from) {
            if to.is_bool() {
                let magnitude = self.bits_as(v, DType::U16);
                let mask = self.int_like(v, DType::U16, 0x7fff);
                let magnitude = self.int_op(BinOp::BitAnd, &magnitude, &mask);
                return self.cast(&magnitude, to);
            }
            let wide = if from.code == TypeCode::BFloat { self.bf16_to_f32(v) } else { self.f16_to_f32(v) };
            return self.cast(&wide, to);
        }
        if is_half(to) {
            let f = match (from.code, from.bits) {
                (TypeCode::Float, 32) => v.clone(),
                (TypeCode::Float, 64) => self.f64_to_odd_f32(v),
                _ => self.cast(v, DType::F32),
            };
            return if to.code == TypeCode::BFloat { self.f32_to_bf16(&f) } else { self.f32_to_f16(&f) };
        }
        match v.rep {
            Rep::Scalar | Rep::Uniform => self.map1(v, to, |s, x| s.cast_scalar(x, from, to)),
            Rep::Simd(bits) => match self.cast_simd(v, bits, to) {
                Some(r) => r,
                None => {
                    let lanes = self.scalarise(v);
                    let r = self.map1(&lanes, to, |s, x| s.cast_scalar(x, from, to));
                    let bits = if to.is_bool() { bits } else { lane_bits(to) };
                    self.vectorise(&r, bits)
                }
            },
        }
    }

    fn cast_scalar(&mut self, x: Value, from: DType, to: DType) -> Value {
        let ty = lane_type(to).unwrap_or(types::I8);
        let from_ty = self.b.func.dfg.value_type(x);
        let unsigned = !from.is_signed();
        if to.is_bool() {
            if from.is_bool() {
                return x;
            }
            if from.is_float() {
                let zero = self.float_const(from, 0.0);
                return self.b.ins().fcmp(FloatCC::NotEqual, x, zero);
            }
            return self.b.ins().icmp_imm_s(IntCC::NotEqual, x, 0);
        }
        if from.is_float() && to.is_float() {
            return if to.bits > from.bits { self.b.ins().fpromote(ty, x) } else { self.b.ins().fdemote(ty, x) };
        }
        if from.is_float() {
            if ty.bits() >= 32 {
                return match to.is_signed() {
                    true => self.b.ins().fcvt_to_sint_sat(ty, x),
                    false => self.b.ins().fcvt_to_uint_sat(ty, x),
                };
            }
            let wide = self.b.ins().fcvt_to_sint_sat(types::I32, x);
            let (lo, hi) = (to.int_min(), to.int_max());
            let (lo, hi) = (self.b.ins().iconst(types::I32, lo & 0xffff_ffff), self.b.ins().iconst(types::I32, hi));
            let c = self.b.ins().icmp(IntCC::SignedLessThan, wide, lo);
            let wide = self.b.ins().select(c, lo, wide);
            let c = self.b.ins().icmp(IntCC::SignedGreaterThan, wide, hi);
            let wide = self.b.ins().select(c, hi, wide);
            return self.b.ins().ireduce(ty, wide);
        }
        if to.is_float() {
            let x = match (from_ty.bits() < 32, unsigned) {
                (true, true) => self.b.ins().uextend(types::I32, x),
                (true, false) => self.b.ins().sextend(types::I32, x),
                _ => x,
            };
            return match unsigned {
                true => self.b.ins().fcvt_from_uint(ty, x),
                false => self.b.ins().fcvt_from_sint(ty, x),
            };
        }
        match ty.bits().cmp(&from_ty.bits()) {
            std::cmp::Ordering::Equal => x,
            std::cmp::Ordering::Less => self.b.ins().ireduce(ty, x),
            std::cmp::Ordering::Greater if unsigned => self.b.ins().uextend(ty, x),
            std::cmp::Ordering::Greater => self.b.ins().sextend(ty, x),
        }
    }

    /// `None`: there are no vector instructions for it.
    fn cast_simd(&mut self, v: &Val, bits: u8, to: DType) -> Option<Val> {
        let from = v.dtype;
        let lanes = v.lanes();
        let simd = |d: DType, parts: Vec<Value>| Val {
            dtype: d.with_lanes(v.dtype.lanes),
            rep: Rep::Simd(lane_bits(d)),
            parts,
        };
        if to.is_bool() {
            let ty = self.part_type(from, v.rep);
            let zero = self.vector_const(ty, bits, |_| 0);
            let parts = v
                .parts
                .iter()
                .map(|&p| match from.is_float() {
                    true => self.fcmp(FloatCC::NotEqual, p, zero),
                    false => self.b.ins().icmp(IntCC::NotEqual, p, zero),
                })
                .collect();
            return Some(Val { dtype: to, rep: Rep::Simd(bits), parts });
        }
        if from.is_bool() {
            let m = self.vectorise(v, lane_bits(to));
            let one = if to.is_float() { self.float_const(to, 1.0) } else { self.int_const(to, 1) };
            let one = self.constant_bits(one)?;
            let ty = int_vector(lane_bits(to));
            let one = self.vector_const(ty, lane_bits(to), |_| one);
            let parts = m.parts.iter().map(|&p| self.b.ins().band(p, one)).collect();
            let ints = simd(DType { code: TypeCode::UInt, bits: lane_bits(to), lanes: 1 }, parts);
            return Some(self.bits_as(&ints, to));
        }
        if from.is_int() && (to.is_int() || to.is_handle()) {
            let mut parts = v.parts.clone();
            let mut b = bits;
            while b < lane_bits(to) {
                parts = self.widen_parts(&parts, b, lanes, from.is_signed());
                b *= 2;
            }
            while b > lane_bits(to) {
                parts = self.narrow_parts(&parts, b, Narrow::Wrap);
                b /= 2;
            }
            return Some(simd(to, parts));
        }
        if from.is_int() && to.is_float() {
            if bits == 64 {
                return None;
            }
            let unsigned = from == DType::U32.with_lanes(from.lanes);
            let wide = self.cast(v, if unsigned { DType::U32 } else { DType::I32 });
            let mut parts = vec![];
            for &p in &wide.parts {
                if to.bits == 32 {
                    parts.push(match unsigned {
                        true => self.b.ins().fcvt_from_uint(types::F32X4, p),
                        false => self.b.ins().fcvt_from_sint(types::F32X4, p),
                    });
                    continue;
                }
                for high in [false, true] {
                    if parts.len() == part_count(lanes, 64) {
                        break;
                    }
                    let p = if high { self.shuffle32(p, p, [2, 3, 2, 3]) } else { p };
                    parts.push(if unsigned {
                        let w = self.b.ins().uwiden_low(p);
                        self.b.ins().fcvt_from_uint(types::F64X2, w)
                    } else {
                        let w = self.b.ins().swiden_low(p);
                        self.b.ins().fcvt_from_sint(types::F64X2, w)
                    });
                }
            }
            return Some(simd(to, parts));
        }
        if from.is_float() && to.is_float() {
            let mut parts = vec![];
            if to.bits == 64 {
                for &p in &v.parts {
                    parts.push(self.b.ins().fvpromote_low(p));
                    if parts.len() < part_count(lanes, 64) {
                        let p = self.b.ins().bitcast(types::I32X4, lane_flags(), p);
                        let high = self.shuffle32(p, p, [2, 3, 2, 3]);
                        let high = self.b.ins().bitcast(types::F32X4, lane_flags(), high);
                        parts.push(self.b.ins().fvpromote_low(high));
                    }
                }
            } else {
                for pair in v.parts.chunks(2) {
                    let low = self.b.ins().fvdemote(pair[0]);
                    let Some(&second) = pair.get(1) else {
                        parts.push(low);
                        continue;
                    };
                    let high = self.b.ins().fvdemote(second);
                    let low = self.b.ins().bitcast(types::I32X4, lane_flags(), low);
                    let high = self.b.ins().bitcast(types::I32X4, lane_flags(), high);
                    let both = self.shuffle32(low, high, [0, 1, 4, 5]);
                    parts.push(self.b.ins().bitcast(types::F32X4, lane_flags(), both));
                }
            }
            return Some(simd(to, parts));
        }
        if from.is_float() && from.bits == 32 && to.is_int() && to.bits <= 32 {
            if to == DType::U32.with_lanes(to.lanes) {
                let parts = v.parts.iter().map(|&p| self.b.ins().fcvt_to_uint_sat(types::I32X4, p)).collect();
                return Some(simd(to, parts));
            }
            let mut parts: Vec<Value> =
                v.parts.iter().map(|&p| self.b.ins().fcvt_to_sint_sat(types::I32X4, p)).collect();
            match (to.code, to.bits) {
                (TypeCode::Int, 16) => parts = self.narrow_parts(&parts, 32, Narrow::Signed),
                (TypeCode::Int, 8) => {
                    parts = self.narrow_parts(&parts, 32, Narrow::Signed);
                    parts = self.narrow_parts(&parts, 16, Narrow::Signed);
                }
                (TypeCode::UInt, 8) => {
                    parts = self.narrow_parts(&parts, 32, Narrow::Signed);
                    parts = self.narrow_parts(&parts, 16, Narrow::ToUnsigned);
                }
                (TypeCode::UInt, 16) => {
                    let zero = self.vector_const(types::I32X4, 32, |_| 0);
                    let top = self.vector_const(types::I32X4, 32, |_| 0xffff);
                    parts = parts
                        .iter()
                        .map(|&p| {
                            let c = self.b.ins().icmp(IntCC::SignedGreaterThan, p, zero);
                            let p = self.b.ins().band(p, c);
                            let c = self.b.ins().icmp(IntCC::SignedLessThan, p, top);
                            self.b.ins().bitselect(c, p, top)
                        })
                        .collect();
                    parts = self.narrow_parts(&parts, 32, Narrow::Wrap);
                }
                _ => {}
            }
            return Some(simd(to, parts));
        }
        None
    }

    // ---- f16, bf16 ------------------------------------------------------------------------------------------------

    fn bf16_to_f32(&mut self, v: &Val) -> Val {
        let bits = self.bits_as(v, DType::U16);
        let wide = self.cast(&bits, DType::U32);
        let sixteen = self.int_like(v, DType::U32, 16);
        let up = self.int_op(BinOp::Shl, &wide, &sixteen);
        self.bits_as(&up, DType::F32)
    }

    fn f16_to_f32(&mut self, v: &Val) -> Val {
        let u = DType::U32;
        let bits = self.bits_as(v, DType::U16);
        let h = self.cast(&bits, u);
        let magnitude = self.int_imm(BinOp::BitAnd, &h, 0x7fff);
        let shifted = self.int_imm(BinOp::Shl, &magnitude, 13);
        // The exponent's bias grows by 112; the multiplication also normalises denormals.
        let f = self.bits_as(&shifted, DType::F32);
        let scale = self.float_like(v, DType::F32, 2f64.powi(112));
        let f = self.float_op(BinOp::Mul, &f, &scale);
        let f = self.bits_as(&f, u);
        let limit = self.int_like(v, u, 0x7bff);
        let special = self.compare(BinOp::Gt, &magnitude, &limit);
        let exponent = self.int_imm(BinOp::BitOr, &shifted, 0x7f80_0000);
        let f = self.select(&special, &exponent, &f);
        let sign = self.int_imm(BinOp::BitAnd, &h, 0x8000);
        let sign = self.int_imm(BinOp::Shl, &sign, 16);
        let r = self.int_op(BinOp::BitOr, &f, &sign);
        self.bits_as(&r, DType::F32)
    }

    fn f32_to_bf16(&mut self, v: &Val) -> Val {
        let u = DType::U32;
        let bits = self.bits_as(v, u);
        let high = self.int_imm(BinOp::Shr, &bits, 16);
        let odd = self.int_imm(BinOp::BitAnd, &high, 1);
        let r = self.int_op(BinOp::Add, &bits, &odd);
        let r = self.int_imm(BinOp::Add, &r, 0x7fff);
        let r = self.int_imm(BinOp::Shr, &r, 16);
        let nan = self.is_nan(v);
        let quiet = self.int_imm(BinOp::BitOr, &high, 0x40);
        let r = self.select(&nan, &quiet, &r);
        let r = self.cast(&r, DType::U16);
        self.bits_as(&r, DType::BF16)
    }

    fn f32_to_f16(&mut self, v: &Val) -> Val {
        let u = DType::U32;
        let bits = self.bits_as(v, u);
        let a = self.int_imm(BinOp::BitAnd, &bits, 0x7fff_ffff);
        // Normal: round the mantissa, the carry runs into the exponent.
        let odd = self.int_imm(BinOp::Shr, &a, 13);
        let odd = self.int_imm(BinOp::BitAnd, &odd, 1);
        let n = self.int_imm(BinOp::Add, &a, 0xc800_0fff);
        let n = self.int_op(BinOp::Add, &n, &odd);
        let n = self.int_imm(BinOp::Shr, &n, 13);
        // Denormal: an addition lines the mantissa up and rounds it.
        let magic = self.float_like(v, DType::F32, 0.5);
        let af = self.bits_as(&a, DType::F32);
        let d = self.float_op(BinOp::Add, &af, &magic);
        let d = self.bits_as(&d, u);
        let d = self.int_imm(BinOp::Sub, &d, 0x3f00_0000);
        // Overflow, infinity and NaN (quiet, upper payload bits kept).
        let payload = self.int_imm(BinOp::Shr, &a, 13);
        let payload = self.int_imm(BinOp::BitAnd, &payload, 0x3ff);
        let payload = self.int_imm(BinOp::BitOr, &payload, 0x7e00);
        let infinity = self.int_like(v, u, 0x7c00);
        let nan = self.is_nan(v);
        let special = self.select(&nan, &payload, &infinity);
        let big = self.int_like(v, DType::I32, 0x477f_ffff);
        let small = self.int_like(v, DType::I32, 0x3880_0000);
        let signed = self.bits_as(&a, DType::I32);
        let is_big = self.compare(BinOp::Gt, &signed, &big);
        let is_small = self.compare(BinOp::Lt, &signed, &small);
        let r = self.select(&is_small, &d, &n);
        let r = self.select(&is_big, &special, &r);
        let sign = self.int_imm(BinOp::Shr, &bits, 16);
        let sign = self.int_imm(BinOp::BitAnd, &sign, 0x8000);
        let r = self.int_op(BinOp::BitOr, &r, &sign);
        let r = self.cast(&r, DType::U16);
        self.bits_as(&r, DType::F16)
    }

    /// f64 to f32 rounded to odd, so that rounding again to 16 bits equals rounding once.
    fn f64_to_odd_f32(&mut self, v: &Val) -> Val {
        let f = self.cast(v, DType::F32);
        let back = self.cast(&f, DType::F64);
        let (x, y) = (self.abs(v), self.abs(&back));
        let above = self.compare(BinOp::Gt, &y, &x);
        let inexact = self.compare(BinOp::Ne, &x, &y);
        let nan = self.is_nan(v);
        let inexact = {
            let not_nan = self.not(&nan);
            self.bool_op(BinOp::And, &inexact, &not_nan)
        };
        let bits = self.bits_as(&f, DType::U32);
        let down = self.int_imm(BinOp::Sub, &bits, 1);
        let r = self.select(&above, &down, &bits);
        let odd = self.int_imm(BinOp::BitOr, &r, 1);
        let r = self.select(&inexact, &odd, &r);
        self.bits_as(&r, DType::F32)
    }

    // ---- bits -----------------------------------------------------------------------------------------------------

    /// The same bits as another type of the same total width; lane counts may differ.
    pub fn reinterpret(&mut self, v: &Val, to: DType) -> Val {
        if v.dtype.lanes == to.lanes && v.dtype.is_bool() == to.is_bool() && lane_bits(v.dtype) == lane_bits(to) {
            let r = self.bits_as(v, to);
            return Val { dtype: to, ..r };
        }
        if v.dtype.lanes == to.lanes && to.is_bool() {
            return self.cast(v, to);
        }
        if v.dtype.lanes == to.lanes && v.dtype.is_bool() {
            let byte = self.cast(v, DType::U8);
            return self.bits_as(&byte, to);
        }
        let bytes = (v.lanes() * lane_bits(v.dtype) as usize / 8) as u32;
        let slot = self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, bytes.max(16), 4));
        let base = self.b.ins().stack_addr(types::I64, slot, 0);
        self.store_at(v, base, 0);
        self.load_at(to, base, 0)
    }
}
