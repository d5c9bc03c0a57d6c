//! Vectors of bytes in memory: read as int32, written with what is too large cut off or limited.

use super::*;

/// Truth values in memory that vectors of 32-bit lanes read and write, at most: what computes with bytes alone is better
/// off with vectors of bytes.
const MOST_BOOLS: u16 = 64;

impl Builder {
    /// The low bytes of int32, cut off by a cast, or float32 limited to bytes.
    pub(super) fn store_bytes(&mut self, ptr: &PrimExpr, offset: &PrimExpr, value: &PrimExpr) -> Option<()> {
        if let PrimKind::Call(f @ (Intrin::Bytes | Intrin::WovenBytes), parts) = value.kind() {
            return self.store_limited(ptr, offset, parts, *f == Intrin::WovenBytes);
        }
        let PrimKind::Cast(wide) = value.kind() else { return None };
        let v = self.value(wide)?;
        let v = match wide.dtype().element() {
            DType::I32 => v,
            DType::F32 => self.limited(&v, value.dtype())?,
            _ => return None,
        };
        self.store_low_bytes(ptr, offset, v, value.dtype().lanes)
    }

    /// Truth values as bytes of 0 and 1.
    pub(super) fn store_bools(&mut self, ptr: &PrimExpr, offset: &PrimExpr, value: &PrimExpr) -> Option<()> {
        let n = value.dtype().lanes;
        if n > MOST_BOOLS || is_integer_test(value) {
            return None;
        }
        let (v, one) = (self.chosen(value)?, self.literal(1));
        let v = self.two(Op2::And, n, &v, &one)?;
        self.store_low_bytes(ptr, offset, v, n)
    }

    /// Bytes that are 0 where the answer is no.
    pub(super) fn load_bools(&mut self, ptr: &PrimExpr, offset: &PrimExpr, d: DType) -> Option<Val> {
        if d.lanes > MOST_BOOLS || offset.dtype().lanes > 1 {
            return None;
        }
        let v = self.load_bytes(ptr, offset, DType::U8.with_lanes(d.lanes))?;
        let zero = self.literal(0);
        self.compare(Compare::Int(Cc::Ne), d.lanes, &v, &zero)
    }

    /// The low byte of each lane of 32 bits.
    fn store_low_bytes(&mut self, ptr: &PrimExpr, offset: &PrimExpr, v: Val, lanes: u16) -> Option<()> {
        let Val::Lanes { regs, uniform } = v else { return None };
        let mut m = self.address(ptr, offset, 1)?;
        if !self.evex && lanes > 1 {
            let mask = self.constant(Constant::Single(0xff));
            for (k, w) in self.widths(lanes)?.into_iter().enumerate() {
                let (a, low) = (if uniform { regs[0] } else { *regs.get(k)? }, self.lanes_reg());
                self.push(Inst::Two { op: Op2::And, w, d: low, a, b: mask });
                self.pack_and_store(&[low], w, m, false);
                m.disp += w as i32;
            }
            return Some(());
        }
        if lanes == 1 {
            self.push(Inst::StoreBytes { w: 1, s: regs[0], m, limit: false });
            return Some(());
        }
        for (k, w) in self.widths(lanes)?.into_iter().enumerate() {
            let s = if uniform { regs[0] } else { *regs.get(k)? };
            self.push(Inst::StoreBytes { w, s, m, limit: false });
            m.disp += w as i32;
        }
        Some(())
    }

    /// float32 as int32 that bytes of `to` hold: towards zero, the nearest of what is beyond them, 0 for NaN.
    fn limited(&mut self, v: &Val, to: DType) -> Option<Val> {
        let n = to.lanes;
        let (low, high) = if to.is_signed() { (-128f32, 127f32) } else { (0f32, 255f32) };
        let (low, high) = (self.literal(low.to_bits()), self.literal(high.to_bits()));
        // The larger of NaN and 0 is 0: `vmaxps` takes its second operand.
        let v = match to.is_signed() {
            true => {
                let ordered = self.compare(Compare::Float(Cc::Eq), n, v, v)?;
                self.two(Op2::And, n, v, &ordered)?
            }
            false => v.clone(),
        };
        let v = self.two(Op2::MaxF, n, &v, &low)?;
        let v = self.two(Op2::MinF, n, &v, &high)?;
        self.one(Op1::ToInt, n, &v)
    }

    /// int32 of up to four registers as uint8: what is narrowed lies in 128-bit parts, which a permutation brings in
    /// order where they are not `woven`.
    pub(super) fn store_limited(
        &mut self,
        ptr: &PrimExpr,
        offset: &PrimExpr,
        parts: &[PrimExpr],
        woven: bool,
    ) -> Option<()> {
        let mut regs = vec![];
        for p in parts {
            let Val::Lanes { regs: one, uniform: false } = self.value(p)? else { return None };
            regs.extend(one.into_iter().zip(self.widths(p.dtype().lanes)?));
        }
        let m = self.address(ptr, offset, 1)?;
        let evex = self.evex;
        if let ([(a, w)], true) = (&regs[..], evex) {
            let (a, w) = (*a, *w);
            let (zero, s) = (self.constant(Constant::Single(0)), self.lanes_reg());
            self.push(Inst::Two { op: Op2::MaxI, w, d: s, a, b: zero });
            self.push(Inst::StoreBytes { w, s, m, limit: true });
            return Some(());
        }
        let w = regs.first()?.1;
        let fits = if woven { regs.len() == 4 } else { regs.len() <= 4 && (w == self.wide || regs.len() == 1) };
        if !fits || regs.iter().any(|(_, other)| *other != w) {
            return None;
        }
        let regs: Vec<Reg> = regs.into_iter().map(|(r, _)| r).collect();
        self.pack_and_store(&regs, w, m, woven);
        Some(())
    }

    /// The lanes of up to four registers of `w` lanes as limited bytes.
    pub(super) fn pack_and_store(&mut self, regs: &[Reg], w: u16, mut m: Mem, woven: bool) {
        let part = |i: usize| regs[i.min(regs.len() - 1)];
        let (low, high, all) = (self.lanes_reg(), self.lanes_reg(), self.lanes_reg());
        self.push(Inst::Two { op: Op2::Narrow16, w, d: low, a: part(0), b: part(1) });
        let high = match regs.len() {
            1 | 2 => low,
            _ => {
                self.push(Inst::Two { op: Op2::Narrow16, w, d: high, a: part(2), b: part(3) });
                high
            }
        };
        self.push(Inst::Two { op: Op2::NarrowBytes, w, d: all, a: low, b: high });
        if woven {
            self.push(Inst::Store { w, s: all, m });
            return;
        }
        // Four elements of each part in a lane.
        let (groups, lanes) = (w / 4, regs.len() as u16 * w / 4);
        let mut first = 0;
        for piece in [16, 8, 4, 2, 1] {
            if lanes - first < piece {
                continue;
            }
            let mut s = all;
            if groups > 1 {
                let order: Vec<u32> = (first..first + w).map(|i| (i % groups * 4 + i / groups % 4) as u32).collect();
                let order = self.vector(&order);
                s = self.lanes_reg();
                self.push(Inst::Two { op: Op2::Permute, w, d: s, a: order, b: all });
            }
            self.push(match piece {
                1 => Inst::StoreOne { s, m },
                w => Inst::Store { w, s, m },
            });
            m.disp += piece as i32 * 4;
            first += piece;
        }
    }

    /// Different lanes from the constants.
    pub(super) fn vector(&mut self, lanes: &[u32]) -> Reg {
        let at = match self.p.pool.windows(lanes.len()).position(|w| w == lanes) {
            Some(at) => at,
            None => {
                self.p.pool.extend(lanes);
                self.p.pool.len() - lanes.len()
            }
        };
        let d = self.lanes_reg();
        let m = Mem { base: Base::Pool(at as u32 * 4), index: None, disp: 0 };
        self.push(Inst::Load { w: lanes.len() as u16, d, m });
        d
    }

    /// Bytes from memory, as int32.
    pub(super) fn load_bytes(&mut self, ptr: &PrimExpr, offset: &PrimExpr, d: DType) -> Option<Val> {
        let signed = d.is_signed();
        let mut m = self.address(ptr, offset, 1)?;
        if d.lanes == 1 {
            let r = self.lanes_reg();
            self.push(Inst::SpreadByte { d: r, m, signed });
            return Some(Val::Lanes { regs: vec![r], uniform: true });
        }
        let mut regs = vec![];
        for w in self.widths(d.lanes)? {
            let r = self.lanes_reg();
            self.push(Inst::LoadBytes { w, d: r, m, signed });
            m.disp += w as i32;
            regs.push(r);
        }
        Some(Val::Lanes { regs, uniform: false })
    }
}
