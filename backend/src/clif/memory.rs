//! Loads and stores.

use super::func::{Fx, Known};
use super::value::*;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{types, InstBuilder, MemFlagsData, Type, Value};
use relax_ir::prim::{BinOp, PrimExpr, PrimKind};
use relax_ir::{DType, Diagnostic};

/// Accesses never trap on purpose; alignment is that of the element at most.
fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// `e` as another expression plus a constant.
fn split_constant(e: &PrimExpr) -> (Option<&PrimExpr>, i64) {
    match e.kind() {
        PrimKind::Int(c) => (None, *c),
        PrimKind::Binary(BinOp::Add, x, c) if c.as_int().is_some() => {
            let (x, k) = split_constant(x);
            (x, k.wrapping_add(c.as_int().unwrap_or(0)))
        }
        PrimKind::Binary(BinOp::Sub, x, c) if c.as_int().is_some() => {
            let (x, k) = split_constant(x);
            (x, k.wrapping_sub(c.as_int().unwrap_or(0)))
        }
        _ => (Some(e), 0),
    }
}

impl Fx<'_> {
    /// Base address and displacement of element `offset` from `ptr`.
    fn address(&mut self, ptr: &PrimExpr, offset: &PrimExpr, bytes: i64) -> Result<(Value, i32), Diagnostic> {
        let mut disp = 0i64;
        let mut ptr = ptr;
        while let PrimKind::PtrAdd(base, k) = ptr.kind() {
            let Some(k) = k.as_int() else { break };
            disp = disp.wrapping_add(k);
            ptr = base;
        }
        let mut base = self.eval(ptr)?.one();
        let (variable, constant) = split_constant(offset);
        if let Some(e) = variable {
            let index = self.eval(e)?;
            let index = self.cast(&index, DType::I64).one();
            let scaled = match bytes {
                1 => index,
                b => self.shift_left(index, b.trailing_zeros() as u8),
            };
            base = self.once(Known::Int(BinOp::Add), base, scaled, |s| s.b.ins().iadd(base, scaled));
        }
        disp = disp.wrapping_add(constant.wrapping_mul(bytes));
        // Leave room for the last part of a vector.
        if disp.abs() > i32::MAX as i64 / 2 {
            let k = self.b.ins().iconst(types::I64, disp);
            return Ok((self.b.ins().iadd(base, k), 0));
        }
        Ok((base, disp as i32))
    }

    pub fn load(&mut self, ptr: &PrimExpr, offset: &PrimExpr, d: DType) -> Result<Val, Diagnostic> {
        if offset.dtype().lanes > 1 {
            return self.gather(ptr, offset, d);
        }
        let (base, disp) = self.address(ptr, offset, d.bytes() as i64)?;
        Ok(self.load_at(d, base, disp))
    }

    /// One element per lane of `offset`; a ramp with a literal stride shares one address.
    fn gather(&mut self, ptr: &PrimExpr, offset: &PrimExpr, d: DType) -> Result<Val, Diagnostic> {
        let bytes = d.bytes() as i64;
        let lane = lane_type(d).unwrap_or(types::I8);
        let mut parts = vec![];
        if let PrimKind::Ramp(base, stride) = offset.kind() {
            let reach = stride.as_int().and_then(|s| s.checked_mul(bytes * d.lanes as i64));
            if let (Some(stride), Some(-0x100_0000..=0x100_0000)) = (stride.as_int(), reach) {
                let (base, disp) = self.address(ptr, base, bytes)?;
                for i in 0..d.lanes as i64 {
                    let at = disp + (i * stride * bytes) as i32;
                    parts.push(self.b.ins().load(lane, flags(), base, at));
                }
                return Ok(Val { dtype: d, rep: Rep::Scalar, parts });
            }
        }
        let (base, disp) = self.address(ptr, &PrimExpr::i64(0), bytes)?;
        let index = self.eval(offset)?;
        for i in 0..d.lanes as usize {
            let index = self.extract(&index, i);
            let scaled = self.b.ins().ishl_imm_u(index, bytes.trailing_zeros() as i64);
            let at = self.b.ins().iadd(base, scaled);
            parts.push(self.b.ins().load(lane, flags(), at, disp));
        }
        Ok(Val { dtype: d, rep: Rep::Scalar, parts })
    }

    pub fn store(&mut self, ptr: &PrimExpr, offset: &PrimExpr, v: &Val) -> Result<(), Diagnostic> {
        let (base, disp) = self.address(ptr, offset, v.dtype.bytes() as i64)?;
        self.store_at(v, base, disp);
        Ok(())
    }

    pub fn load_at(&mut self, d: DType, base: Value, disp: i32) -> Val {
        let lanes = d.lanes as usize;
        let bytes = d.bytes() as i32;
        let lane = lane_type(d).unwrap_or(types::I8);
        if lanes == 1 || !self.simd {
            let parts = (0..lanes as i32).map(|i| self.b.ins().load(lane, flags(), base, disp + i * bytes)).collect();
            return Val { dtype: d, rep: Rep::Scalar, parts };
        }
        let bits = bytes as u8 * 8;
        let per = lanes_per_part(bits);
        let in_memory = if d.is_bool() { DType::U8.with_lanes(d.lanes) } else { d };
        let ty = self.part_type(in_memory, Rep::Simd(bits));
        let mut parts = vec![];
        for first in (0..lanes).step_by(per) {
            let at = disp + first as i32 * bytes;
            let n = per.min(lanes - first);
            parts.push(if n == per {
                self.b.ins().load(ty, flags(), base, at)
            } else {
                self.load_partial(ty, lane, n, bytes, base, at)
            });
        }
        let v = Val { dtype: in_memory, rep: Rep::Simd(bits), parts };
        if !d.is_bool() {
            return v;
        }
        let zero = self.vector_const(types::I8X16, 8, |_| 0);
        let mut m = self.map1(&v, DType::BOOL, |s, x| s.b.ins().icmp(IntCC::NotEqual, x, zero));
        m.dtype = d;
        m
    }

    /// Fewer lanes than a register has.
    fn load_partial(&mut self, ty: Type, lane: Type, n: usize, bytes: i32, base: Value, at: i32) -> Value {
        let whole = match n as i32 * bytes {
            8 => Some((types::I64, types::I64X2)),
            4 => Some((types::I32, types::I32X4)),
            _ => None,
        };
        if let Some((scalar, vector)) = whole {
            let x = self.b.ins().load(scalar, flags(), base, at);
            let v = self.b.ins().scalar_to_vector(vector, x);
            return if vector == ty { v } else { self.b.ins().bitcast(ty, lane_flags(), v) };
        }
        let x = self.b.ins().load(lane, flags(), base, at);
        let mut v = self.first_lane(ty, x);
        for i in 1..n {
            let x = self.b.ins().load(lane, flags(), base, at + i as i32 * bytes);
            v = self.b.ins().insertlane(v, x, i as u8);
        }
        v
    }

    pub fn store_at(&mut self, v: &Val, base: Value, disp: i32) {
        let d = v.dtype;
        let bytes = d.bytes() as i32;
        let bits = bytes as u8 * 8;
        if d.lanes == 1 || !self.simd {
            let v = self.scalarise(v);
            for (i, &x) in v.parts.iter().enumerate() {
                self.b.ins().store(flags(), x, base, disp + i as i32 * bytes);
            }
            return;
        }
        let v = if d.is_bool() {
            let bytes = self.cast(v, DType::U8);
            self.vectorise(&bytes, 8)
        } else {
            self.vectorise(v, bits)
        };
        let per = lanes_per_part(bits);
        for (i, &p) in v.parts.iter().enumerate() {
            let at = disp + (i * per) as i32 * bytes;
            let n = per.min(v.lanes() - i * per);
            if n == per {
                self.b.ins().store(flags(), p, base, at);
                continue;
            }
            let whole = match n as i32 * bytes {
                8 => Some(types::I64X2),
                4 => Some(types::I32X4),
                _ => None,
            };
            if let Some(vector) = whole {
                let same = self.b.func.dfg.value_type(p) == vector;
                let p = if same { p } else { self.b.ins().bitcast(vector, lane_flags(), p) };
                let x = self.b.ins().extractlane(p, 0);
                self.b.ins().store(flags(), x, base, at);
                continue;
            }
            for l in 0..n {
                let x = self.b.ins().extractlane(p, l as u8);
                self.b.ins().store(flags(), x, base, at + l as i32 * bytes);
            }
        }
    }
}
