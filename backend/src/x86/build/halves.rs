//! Floats of 16 bits: float32 in registers, rounded by casts.

use super::*;

/// The upper half of a float32: a bfloat16.
const UPPER: u32 = 0xffff_0000;

impl Builder {
    pub(super) fn load_halves(&mut self, ptr: &PrimExpr, offset: &PrimExpr, d: DType) -> Option<Val> {
        let mut m = self.address(ptr, offset, 2)?;
        let brain = d.element() == DType::BF16;
        if d.lanes == 1 {
            let r = self.lanes_reg();
            self.push(if brain { Inst::SpreadWord { d: r, m } } else { Inst::SpreadHalf { d: r, m } });
            let v = Val::Lanes { regs: vec![r], uniform: true };
            return if brain { self.shifted(Op2::Shl, 1, &v) } else { Some(v) };
        }
        let mut regs = vec![];
        for w in self.widths(d.lanes)? {
            let r = self.lanes_reg();
            self.push(if brain { Inst::LoadWords { w, d: r, m } } else { Inst::LoadHalf { w, d: r, m } });
            m.disp += w as i32 * 2;
            regs.push(r);
        }
        let v = Val::Lanes { regs, uniform: false };
        if brain {
            self.shifted(Op2::Shl, d.lanes, &v)
        } else {
            Some(v)
        }
    }

    /// By 16 bits.
    fn shifted(&mut self, op: Op2, lanes: u16, v: &Val) -> Option<Val> {
        let sixteen = self.literal(16);
        self.two(op, lanes, v, &sixteen)
    }

    /// float32 to the nearest of `to`, half to even; NaN stays one.
    pub(super) fn rounded(&mut self, v: &Val, to: DType) -> Option<Val> {
        let n = to.lanes;
        if to.element() == DType::F16 {
            return self.one(Op1::RoundToHalf, n, v);
        }
        let one = self.literal(1);
        let (upper, half, quiet) = (self.literal(UPPER), self.literal(0x7fff), self.literal(0x40_0000));
        let high = self.shifted(Op2::Shr, n, v)?;
        let odd = self.two(Op2::And, n, &high, &one)?;
        let sum = self.two(Op2::AddI, n, v, &odd)?;
        let sum = self.two(Op2::AddI, n, &sum, &half)?;
        let near = self.two(Op2::And, n, &sum, &upper)?;
        let cut = self.two(Op2::And, n, v, &upper)?;
        let cut = self.two(Op2::Or, n, &cut, &quiet)?;
        let nan = self.compare(Compare::Unordered, n, v, v)?;
        self.each(n, &[&nan, &cut, &near], |s, w, d, r| s.push(Inst::Choose { w, d, c: r[0], t: r[1], f: r[2] }))
    }

    pub(super) fn store_halves(&mut self, ptr: &PrimExpr, offset: &PrimExpr, value: &PrimExpr) -> Option<()> {
        let d = value.dtype();
        let brain = d.element() == DType::BF16;
        let v = match value.kind() {
            // The store rounds.
            PrimKind::Cast(x) if !brain && x.dtype().element() == DType::F32 => self.value(x)?,
            _ => self.value(value)?,
        };
        let mut m = self.address(ptr, offset, 2)?;
        let v = if brain { self.shifted(Op2::Shr, d.lanes, &v)? } else { v };
        if d.lanes == 1 {
            let mut s = piece(&v, 0)?;
            if !brain {
                let a = std::mem::replace(&mut s, self.lanes_reg());
                self.push(Inst::One { op: Op1::ToHalf, w: 4, d: s, a });
            }
            self.push(Inst::StoreWords { w: 1, s, m });
            return Some(());
        }
        for (k, w) in self.widths(d.lanes)?.into_iter().enumerate() {
            let s = piece(&v, k)?;
            match (brain, self.evex) {
                (false, _) => self.push(Inst::StoreHalf { w, s, m }),
                (true, true) => self.push(Inst::StoreWords { w, s, m }),
                (true, false) => self.pack_words(s, w, m),
            }
            m.disp += w as i32 * 2;
        }
        Some(())
    }

    /// int32 below 2^16 as uint16.
    fn pack_words(&mut self, s: Reg, w: u16, m: Mem) {
        let mut packed = self.lanes_reg();
        self.push(Inst::Two { op: Op2::NarrowWords, w, d: packed, a: s, b: s });
        if w == 8 {
            // Both halves hold the words of their lanes twice.
            let order = self.vector(&[0, 1, 4, 5, 2, 3, 6, 7]);
            let b = std::mem::replace(&mut packed, self.lanes_reg());
            self.push(Inst::Two { op: Op2::Permute, w, d: packed, a: order, b });
        }
        self.push(Inst::Store { w: w / 2, s: packed, m });
    }
}
