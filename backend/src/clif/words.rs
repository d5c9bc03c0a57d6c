//! Bytes and int16 in 128-bit registers of int32: what the kernels of 8-bit networks are made of.

use super::func::Fx;
use super::value::*;
use cranelift_codegen::ir::{types, InstBuilder, Value};
use relax_ir::prim::{Intrin, PrimExpr};
use relax_ir::{DType, Diagnostic};

impl Fx<'_> {
    /// The intrinsics over vectors of int32; `args` beyond the vectors are literals.
    pub fn words(&mut self, f: Intrin, v: &[Val], args: &[PrimExpr]) -> Result<Val, Diagnostic> {
        let literal = |i: usize| args.get(i).and_then(PrimExpr::as_int).unwrap_or(0);
        let mut parts: Vec<Vec<Value>> = vec![];
        let operands = match f {
            Intrin::ByteWords | Intrin::Repeat => 1,
            Intrin::Interleave => 2,
            _ => v.len(),
        };
        for v in v.iter().take(operands) {
            let v = self.vectorise(v, 32);
            if v.dtype.bits != 32 || v.rep != Rep::Simd(32) || v.lanes() != 4 * v.parts.len() {
                return Err(self.fault(format!("T.{} of {}", f.name(), v.dtype)));
            }
            parts.push(v.parts.iter().map(|&p| self.as_type(p, types::I32X4)).collect());
        }
        let d = v[0].dtype;
        let result = |parts: Vec<Value>| Val { dtype: d, rep: Rep::Simd(32), parts };
        let pieces = 0..parts[0].len();
        Ok(match f {
            Intrin::ByteWords => {
                let (odd, signed) = (literal(1) != 0, literal(2) != 0);
                result(parts[0].iter().map(|&p| self.byte_words(p, odd, signed)).collect())
            }
            Intrin::DotWords => {
                let (a, x, w) = (&parts[0], &parts[1], &parts[2]);
                result(pieces.map(|i| self.dot_words(a[i], x[i], w[i])).collect())
            }
            Intrin::AddWords | Intrin::SubWords => {
                let mut out = vec![];
                for i in pieces {
                    let (a, b) = (self.as_type(parts[0][i], types::I16X8), self.as_type(parts[1][i], types::I16X8));
                    let r = match f {
                        Intrin::AddWords => self.b.ins().iadd(a, b),
                        _ => self.b.ins().isub(a, b),
                    };
                    out.push(self.as_type(r, types::I32X4));
                }
                result(out)
            }
            Intrin::Interleave => {
                let (n, high) = (literal(2) as usize, literal(3) != 0);
                let mut out = vec![];
                for i in pieces {
                    let r = self.interleave(parts[0][i], parts[1][i], n, high);
                    out.push(if d.is_float() { self.as_type(r, types::F32X4) } else { r });
                }
                result(out)
            }
            Intrin::Repeat => {
                let (n, at) = (literal(1).clamp(1, 4) as usize, literal(2) as usize);
                let mut out = vec![];
                for &p in &parts[0] {
                    let a = self.as_type(p, types::I8X16);
                    let order: Vec<u8> = (0..16).map(|b| ((b / 4 / n * n + at) * 4 + b % 4) as u8).collect();
                    let order = self.b.func.dfg.immediates.push(order.into());
                    let r = self.b.ins().shuffle(a, a, order);
                    out.push(self.as_type(r, if d.is_float() { types::F32X4 } else { types::I32X4 }));
                }
                result(out)
            }
            _ => {
                // With vectors of one register, four lanes of each in turn and one after the other are the same.
                let all: Vec<Value> = parts.concat();
                let mut bytes = vec![];
                for four in all.chunks(4) {
                    let at = |i: usize| four[i.min(four.len() - 1)];
                    let low = self.b.ins().snarrow(at(0), at(1));
                    let high = if four.len() > 2 { self.b.ins().snarrow(at(2), at(3)) } else { low };
                    bytes.push(self.b.ins().unarrow(low, high));
                }
                let lanes = 4 * all.len() as u16;
                Val { dtype: DType::U8.with_lanes(lanes), rep: Rep::Simd(8), parts: bytes }
            }
        })
    }

    fn as_type(&mut self, v: Value, ty: cranelift_codegen::ir::Type) -> Value {
        match self.b.func.dfg.value_type(v) == ty {
            true => v,
            false => self.b.ins().bitcast(ty, lane_flags(), v),
        }
    }

    fn byte_words(&mut self, v: Value, odd: bool, signed: bool) -> Value {
        let mut w = self.as_type(v, types::I16X8);
        if !odd {
            w = self.b.ins().ishl_imm_u(w, 8);
        }
        w = if signed { self.b.ins().sshr_imm_u(w, 8) } else { self.b.ins().ushr_imm_u(w, 8) };
        self.as_type(w, types::I32X4)
    }

    fn dot_words(&mut self, a: Value, x: Value, w: Value) -> Value {
        let (x, w) = (self.as_type(x, types::I16X8), self.as_type(w, types::I16X8));
        let (xl, wl) = (self.b.ins().swiden_low(x), self.b.ins().swiden_low(w));
        let (xh, wh) = (self.b.ins().swiden_high(x), self.b.ins().swiden_high(w));
        let (low, high) = (self.b.ins().imul(xl, wl), self.b.ins().imul(xh, wh));
        let sums = self.b.ins().iadd_pairwise(low, high);
        self.b.ins().iadd(a, sums)
    }

    fn interleave(&mut self, a: Value, b: Value, n: usize, high: bool) -> Value {
        let (a, b) = (self.as_type(a, types::I8X16), self.as_type(b, types::I8X16));
        let first = if high { 8 } else { 0 };
        let mut order = vec![];
        for at in (first..first + 8).step_by(n.clamp(1, 8)) {
            order.extend((at..at + n).map(|i| i as u8));
            order.extend((at..at + n).map(|i| 16 + i as u8));
        }
        let order = self.b.func.dfg.immediates.push(order.into());
        let r = self.b.ins().shuffle(a, b, order);
        self.as_type(r, types::I32X4)
    }
}
