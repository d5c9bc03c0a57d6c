//! How values live in registers: scalars, vectors split over 128-bit registers, or lane by lane.

use super::func::{Fx, Known};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::immediates::{Ieee32, Ieee64};
use cranelift_codegen::ir::{
    types, ConstantData, Endianness, InstBuilder, InstructionData, MemFlagsData, Opcode, Type, Value, ValueDef,
};
use relax_ir::{DType, TypeCode};

/// The layout of a value's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rep {
    /// One CLIF scalar per lane; bool is an `i8` of 0 or 1.
    Scalar,
    /// 128-bit registers with lanes of this many bits; unused lanes of the last one hold anything. Bool lanes are
    /// all ones or all zeros, in the width of what was compared.
    Simd(u8),
    /// The same scalar in every lane, not yet spread.
    Uniform,
}

#[derive(Clone, Debug)]
pub(super) struct Val {
    pub dtype: DType,
    pub rep: Rep,
    pub parts: Vec<Value>,
}

impl Val {
    pub fn scalar(dtype: DType, v: Value) -> Val {
        Val { dtype, rep: if dtype.lanes == 1 { Rep::Scalar } else { Rep::Uniform }, parts: vec![v] }
    }
    pub fn lanes(&self) -> usize {
        self.dtype.lanes as usize
    }
    /// The only part of a scalar.
    pub fn one(&self) -> Value {
        self.parts[0]
    }
    pub fn with(&self, dtype: DType, parts: Vec<Value>) -> Val {
        Val { dtype: dtype.with_lanes(self.dtype.lanes), rep: self.rep, parts }
    }
}

/// The CLIF type of one lane; f16 and bf16 are kept as their bits. `None`: a width we have no type for (int4).
pub(super) fn lane_type(d: DType) -> Option<Type> {
    Some(match (d.code, d.bits) {
        (TypeCode::Bool, _) => types::I8,
        (TypeCode::Int | TypeCode::UInt, 8) => types::I8,
        (TypeCode::Int | TypeCode::UInt, 16) => types::I16,
        (TypeCode::Int | TypeCode::UInt, 32) => types::I32,
        (TypeCode::Int | TypeCode::UInt, 64) => types::I64,
        (TypeCode::Float, 16) | (TypeCode::BFloat, 16) => types::I16,
        (TypeCode::Float, 32) => types::F32,
        (TypeCode::Float, 64) => types::F64,
        (TypeCode::Handle, _) => types::I64,
        _ => return None,
    })
}

pub(super) fn int_type(bits: u8) -> Type {
    match bits {
        8 => types::I8,
        16 => types::I16,
        32 => types::I32,
        _ => types::I64,
    }
}

/// The 128-bit integer vector type with lanes of `bits`.
pub(super) fn int_vector(bits: u8) -> Type {
    match bits {
        8 => types::I8X16,
        16 => types::I16X8,
        32 => types::I32X4,
        _ => types::I64X2,
    }
}

pub(super) fn lanes_per_part(bits: u8) -> usize {
    128 / bits as usize
}

/// Registers for `lanes` lanes of `bits`.
pub(super) fn part_count(lanes: usize, bits: u8) -> usize {
    lanes.div_ceil(lanes_per_part(bits))
}

/// Width of a lane in a register when it is not a mask; a bool in memory form has 8 bits.
pub(super) fn lane_bits(d: DType) -> u8 {
    if d.is_handle() {
        64
    } else {
        d.bits
    }
}

pub(super) fn lane_flags() -> MemFlagsData {
    MemFlagsData::new().with_endianness(Endianness::Little)
}

impl Fx<'_> {
    /// The CLIF type of each part of a value of this type and representation.
    pub fn part_type(&self, d: DType, rep: Rep) -> Type {
        let lane = lane_type(d).unwrap_or(types::I8);
        match rep {
            Rep::Scalar | Rep::Uniform => lane,
            Rep::Simd(bits) if d.is_bool() || lane.is_int() => int_vector(bits),
            Rep::Simd(32) => types::F32X4,
            Rep::Simd(_) => types::F64X2,
        }
    }

    /// The representation of variables and merged values.
    pub fn canonical(&self, d: DType) -> Rep {
        if d.lanes == 1 || !self.simd {
            Rep::Scalar
        } else if d.is_bool() {
            Rep::Simd(32)
        } else {
            Rep::Simd(lane_bits(d))
        }
    }

    pub fn rep_parts(&self, d: DType, rep: Rep) -> usize {
        match rep {
            Rep::Scalar => d.lanes as usize,
            Rep::Uniform => 1,
            Rep::Simd(bits) => part_count(d.lanes as usize, bits),
        }
    }

    /// Changes the representation, not the value.
    pub fn represent(&mut self, v: &Val, rep: Rep) -> Val {
        if v.rep == rep {
            return v.clone();
        }
        match rep {
            Rep::Scalar => self.scalarise(v),
            Rep::Simd(bits) => self.vectorise(v, bits),
            Rep::Uniform => v.clone(),
        }
    }

    pub fn canonicalise(&mut self, v: &Val) -> Val {
        let rep = self.canonical(v.dtype);
        self.represent(v, rep)
    }

    /// One scalar per lane.
    pub fn scalarise(&mut self, v: &Val) -> Val {
        let parts = match v.rep {
            Rep::Scalar => v.parts.clone(),
            Rep::Uniform => vec![v.one(); v.lanes()],
            Rep::Simd(bits) => (0..v.lanes()).map(|i| self.lane(v, bits, i)).collect(),
        };
        Val { dtype: v.dtype, rep: Rep::Scalar, parts }
    }

    /// Lane `i` as a scalar.
    pub fn extract(&mut self, v: &Val, i: usize) -> Value {
        match v.rep {
            Rep::Scalar => v.parts[i.min(v.parts.len() - 1)],
            Rep::Uniform => v.one(),
            Rep::Simd(bits) => self.lane(v, bits, i),
        }
    }

    fn lane(&mut self, v: &Val, bits: u8, i: usize) -> Value {
        let per = lanes_per_part(bits);
        let x = self.b.ins().extractlane(v.parts[i / per], (i % per) as u8);
        if v.dtype.is_bool() {
            return self.b.ins().icmp_imm_s(IntCC::NotEqual, x, 0);
        }
        x
    }

    /// 128-bit registers with lanes of `bits`. Non-bool values must have lanes of that width.
    pub fn vectorise(&mut self, v: &Val, bits: u8) -> Val {
        let ty = self.part_type(v.dtype, Rep::Simd(bits));
        let n = part_count(v.lanes(), bits);
        let parts = match v.rep {
            Rep::Simd(from) if from == bits => v.parts.clone(),
            Rep::Simd(from) => self.resize_mask(v, from, bits),
            Rep::Uniform => {
                let x = self.splat(v.one(), v.dtype, ty, bits);
                vec![x; n]
            }
            Rep::Scalar => {
                let per = lanes_per_part(bits);
                let lanes: Vec<Value> =
                    v.parts.iter().map(|&x| if v.dtype.is_bool() { self.mask_of(x, bits) } else { x }).collect();
                lanes
                    .chunks(per)
                    .map(|chunk| {
                        let mut acc = self.first_lane(ty, chunk[0]);
                        for (i, &x) in chunk.iter().enumerate().skip(1) {
                            acc = self.b.ins().insertlane(acc, x, i as u8);
                        }
                        acc
                    })
                    .collect()
            }
        };
        Val { dtype: v.dtype, rep: Rep::Simd(bits), parts }
    }

    /// A register with `x` in lane 0; there are instructions for 32 and 64 bits only.
    pub fn first_lane(&mut self, ty: Type, x: Value) -> Value {
        if ty.lane_bits() >= 32 {
            return self.b.ins().scalar_to_vector(ty, x);
        }
        let wide = self.b.ins().uextend(types::I32, x);
        let v = self.b.ins().scalar_to_vector(types::I32X4, wide);
        self.b.ins().bitcast(ty, lane_flags(), v)
    }

    /// 0 or 1 to 0 or -1 of the width.
    fn mask_of(&mut self, bool_value: Value, bits: u8) -> Value {
        let wide = if bits == 8 { bool_value } else { self.b.ins().uextend(int_type(bits), bool_value) };
        self.b.ins().ineg(wide)
    }

    fn splat(&mut self, x: Value, d: DType, ty: Type, bits: u8) -> Value {
        if let Some(raw) = self.constant_bits(x) {
            let raw = if d.is_bool() { (raw & 1).wrapping_neg() } else { raw };
            return self.vector_const(ty, bits, |_| raw);
        }
        if d.is_bool() {
            let x = self.mask_of(x, bits);
            return self.b.ins().splat(ty, x);
        }
        self.once(Known::Splat(bits), x, x, |s| s.b.ins().splat(ty, x))
    }

    /// A vector constant, lane by lane.
    pub fn vector_const(&mut self, ty: Type, bits: u8, lane: impl Fn(usize) -> u64) -> Value {
        let n = bits as usize / 8;
        let bytes: Vec<u8> = (0..lanes_per_part(bits)).flat_map(|i| lane(i).to_le_bytes()[..n].to_vec()).collect();
        let c = self.b.func.dfg.constants.insert(ConstantData::from(bytes));
        self.b.ins().vconst(ty, c)
    }

    /// The bits of a constant value.
    pub fn constant_bits(&self, v: Value) -> Option<u64> {
        let ValueDef::Result(inst, _) = self.b.func.dfg.value_def(v) else { return None };
        match self.b.func.dfg.insts[inst] {
            InstructionData::UnaryIeee32 { imm, .. } => Some(imm.bits() as u64),
            InstructionData::UnaryIeee64 { imm, .. } => Some(imm.bits()),
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits() as u64),
            _ => None,
        }
    }

    /// Masks of another lane width.
    fn resize_mask(&mut self, v: &Val, from: u8, to: u8) -> Vec<Value> {
        let mut parts = v.parts.clone();
        let mut bits = from;
        while bits < to {
            parts = self.widen_parts(&parts, bits, v.lanes(), true);
            bits *= 2;
        }
        while bits > to {
            parts = self.narrow_parts(&parts, bits, Narrow::Signed);
            bits /= 2;
        }
        parts
    }

    /// Doubles the width of integer lanes.
    pub fn widen_parts(&mut self, parts: &[Value], bits: u8, lanes: usize, signed: bool) -> Vec<Value> {
        let n = part_count(lanes, bits * 2);
        let mut out = Vec::with_capacity(n);
        for &p in parts {
            for high in [false, true] {
                if out.len() == n {
                    break;
                }
                out.push(match (high, signed) {
                    (false, true) => self.b.ins().swiden_low(p),
                    (true, true) => self.b.ins().swiden_high(p),
                    (false, false) => self.b.ins().uwiden_low(p),
                    (true, false) => self.b.ins().uwiden_high(p),
                });
            }
        }
        out
    }

    /// Halves the width of integer lanes.
    pub fn narrow_parts(&mut self, parts: &[Value], bits: u8, how: Narrow) -> Vec<Value> {
        parts
            .chunks(2)
            .map(|pair| {
                let (a, b) = (pair[0], pair.get(1).copied().unwrap_or(pair[0]));
                match (bits, how) {
                    (64, _) => {
                        let a = self.b.ins().bitcast(types::I32X4, lane_flags(), a);
                        let b = self.b.ins().bitcast(types::I32X4, lane_flags(), b);
                        self.shuffle32(a, b, [0, 2, 4, 6])
                    }
                    (_, Narrow::Signed) => self.b.ins().snarrow(a, b),
                    (_, Narrow::ToUnsigned) => self.b.ins().unarrow(a, b),
                    (_, Narrow::Wrap) => {
                        let half = bits as i64 / 2;
                        let (a, b) = (self.sign_low(a, half), self.sign_low(b, half));
                        self.b.ins().snarrow(a, b)
                    }
                }
            })
            .collect()
    }

    /// Sign-extends the lower half of each lane in place, so that a saturating narrow keeps its bits.
    fn sign_low(&mut self, v: Value, half: i64) -> Value {
        let up = self.b.ins().ishl_imm_u(v, half);
        self.b.ins().sshr_imm_u(up, half)
    }

    /// Picks 32-bit lanes from `a` (0-3) and `b` (4-7), both `I32X4`.
    pub fn shuffle32(&mut self, a: Value, b: Value, lanes: [u8; 4]) -> Value {
        let mask: Vec<u8> = lanes.iter().flat_map(|&l| (0..4).map(move |i| l * 4 + i)).collect();
        let a = self.b.ins().bitcast(types::I8X16, lane_flags(), a);
        let b = self.b.ins().bitcast(types::I8X16, lane_flags(), b);
        let imm = self.b.func.dfg.immediates.push(ConstantData::from(mask));
        let r = self.b.ins().shuffle(a, b, imm);
        self.b.ins().bitcast(types::I32X4, lane_flags(), r)
    }

    /// Both in one representation, so that they can be combined part by part.
    pub fn unify(&mut self, a: &Val, b: &Val) -> (Val, Val) {
        match (a.rep, b.rep) {
            (x, y) if x == y => (a.clone(), b.clone()),
            // A scalar with a vector only by mistake of the caller: spread it.
            (Rep::Scalar, _) if a.lanes() == 1 && b.lanes() > 1 => {
                let a = Val::scalar(a.dtype.with_lanes(b.dtype.lanes), a.one());
                self.unify(&a, b)
            }
            (_, Rep::Scalar) if b.lanes() == 1 && a.lanes() > 1 => {
                let b = Val::scalar(b.dtype.with_lanes(a.dtype.lanes), b.one());
                self.unify(a, &b)
            }
            (Rep::Simd(x), Rep::Simd(y)) if a.dtype.is_bool() => {
                // The wider lanes: widening masks is cheaper than it is to lose what follows.
                let w = x.max(y);
                (self.vectorise(a, w), self.vectorise(b, w))
            }
            (Rep::Simd(x), _) => (a.clone(), self.vectorise(b, x)),
            (_, Rep::Simd(y)) => (self.vectorise(a, y), b.clone()),
            _ => (self.scalarise(a), self.scalarise(b)),
        }
    }

    /// Applies `f` to each part.
    pub fn map1(&mut self, v: &Val, d: DType, mut f: impl FnMut(&mut Self, Value) -> Value) -> Val {
        let parts = v.parts.iter().map(|&p| f(self, p)).collect();
        v.with(d, parts)
    }

    /// Applies `f` to each pair of parts; both must have the same representation.
    pub fn map2(&mut self, a: &Val, b: &Val, d: DType, mut f: impl FnMut(&mut Self, Value, Value) -> Value) -> Val {
        let parts = a.parts.iter().zip(&b.parts).map(|(&x, &y)| f(self, x, y)).collect();
        a.with(d, parts)
    }

    /// A literal with the shape of `like`.
    pub fn int_like(&mut self, like: &Val, d: DType, v: i64) -> Val {
        let x = self.int_const(d, v);
        Val::scalar(d.with_lanes(like.dtype.lanes), x)
    }

    pub fn float_like(&mut self, like: &Val, d: DType, v: f64) -> Val {
        let x = self.float_const(d, v);
        Val::scalar(d.with_lanes(like.dtype.lanes), x)
    }

    pub fn int_const(&mut self, d: DType, v: i64) -> Value {
        let ty = lane_type(d).unwrap_or(types::I64);
        let bits = ty.bits();
        let v = if bits == 64 { v } else { v & ((1i64 << bits) - 1) };
        self.b.ins().iconst(ty, v)
    }

    /// A literal of float type; f16 and bf16 become their bits.
    pub fn float_const(&mut self, d: DType, v: f64) -> Value {
        match (d.code, d.bits) {
            (TypeCode::Float, 64) => self.b.ins().f64const(Ieee64::with_bits(v.to_bits())),
            (TypeCode::Float, 16) => self.b.ins().iconst(types::I16, half::f16::from_f64(v).to_bits() as i64),
            (TypeCode::BFloat, _) => self.b.ins().iconst(types::I16, half::bf16::from_f64(v).to_bits() as i64),
            _ => self.b.ins().f32const(Ieee32::with_bits((v as f32).to_bits())),
        }
    }

    /// The same bits as another lane type of the same width.
    pub fn bits_as(&mut self, v: &Val, d: DType) -> Val {
        let ty = self.part_type(d, v.rep);
        self.map1(v, d, |s, p| {
            if s.b.func.dfg.value_type(p) == ty {
                return p;
            }
            match s.constant_bits(p) {
                Some(raw) if ty == types::F32 => s.b.ins().f32const(Ieee32::with_bits(raw as u32)),
                Some(raw) if ty == types::F64 => s.b.ins().f64const(Ieee64::with_bits(raw)),
                Some(raw) if ty.is_int() => s.int_const(d, raw as i64),
                _ => s.b.ins().bitcast(ty, if ty.is_vector() { lane_flags() } else { MemFlagsData::new() }, p),
            }
        })
    }
}

/// What becomes of values that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Narrow {
    Wrap,
    /// Saturates signed to signed.
    Signed,
    /// Saturates signed to unsigned.
    ToUnsigned,
}
