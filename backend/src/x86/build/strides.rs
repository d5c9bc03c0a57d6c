//! Vectors of every second element, backwards, and of every element several times.

use super::*;

impl Builder {
    /// A load by a ramp of offsets, by steps of 2 or -1, or by any other vector of them.
    pub(super) fn load_by_steps(&mut self, ptr: &PrimExpr, offset: &PrimExpr, d: DType) -> Option<Val> {
        if is_double(d) {
            return None;
        }
        let PrimKind::Ramp(first, step) = offset.kind() else { return self.gathered(ptr, offset) };
        let mut m = self.address(ptr, first, 4)?;
        let step = step.as_int()?;
        let mut regs = vec![];
        for w in self.widths(offset.dtype().lanes)? {
            regs.push(match step {
                2 => self.every_second(w, m),
                -1 => self.backwards(w, m),
                _ => return None,
            });
            m.disp += (w as i64 * step * 4) as i32;
        }
        Some(Val::Lanes { regs, uniform: false })
    }

    fn read(&mut self, w: u16, m: Mem, elements: i32) -> Reg {
        let d = self.lanes_reg();
        self.push(Inst::Load { w, d, m: Mem { disp: m.disp + elements * 4, ..m } });
        d
    }

    fn permuted(&mut self, w: u16, order: &[u32], b: Reg) -> Reg {
        let (a, d) = (self.vector(order), self.lanes_reg());
        self.push(Inst::Two { op: Op2::Permute, w, d, a, b });
        d
    }

    /// The even elements of one vector and the odd ones of another, which ends with the last one that is wanted.
    fn every_second(&mut self, w: u16, m: Mem) -> Reg {
        if self.evex && w > 4 {
            let order: Vec<u32> = (0..w as u32).map(|i| 2 * i + (2 * i >= w as u32) as u32).collect();
            let (d, a, b) = (self.read(w, m, 0), self.vector(&order), self.read(w, m, w as i32 - 1));
            self.push(Inst::Among { w, d, a, b });
            return d;
        }
        let (a, b, d) = (self.read(w, m, 0), self.read(w, m, w as i32 - 1), self.lanes_reg());
        self.push(Inst::Two { op: Op2::EvenOdd, w, d, a, b });
        if w == 4 {
            return d;
        }
        // Pairs of the first vector and of the second take turns.
        let pairs = (0..w as u32 / 2).map(|i| i * 2 % (w as u32 / 2) + i / (w as u32 / 4));
        let order: Vec<u32> = pairs.flat_map(|p| [2 * p, 2 * p + 1]).collect();
        self.permuted(w, &order, d)
    }

    /// Every one of `lanes` lanes `times` times.
    pub(super) fn stretched(&mut self, a: &Val, lanes: u16, times: u16) -> Option<Val> {
        let Val::Lanes { regs: from, uniform: false } = a else { return None };
        let sources = self.widths(lanes)?;
        let (mut regs, mut at) = (vec![], 0);
        for w in self.widths(lanes * times)? {
            let (first, last) = (at / times, (at + w - 1) / times);
            // The register with both, and its first lane.
            let (mut k, mut start) = (0, 0);
            while start + sources.get(k)? <= first {
                start += sources[k];
                k += 1;
            }
            if last >= start + sources[k] || last - start >= w.max(8) {
                return None;
            }
            let order: Vec<u32> = (at..at + w).map(|l| (l / times - start) as u32).collect();
            regs.push(self.permuted(w, &order, from[k]));
            at += w;
        }
        Some(Val::Lanes { regs, uniform: false })
    }

    /// The lanes of two vectors of `lanes` by turns.
    pub(super) fn by_turns(&mut self, a: &Val, b: &Val, lanes: u16) -> Option<Val> {
        let (Val::Lanes { regs: a, uniform: false }, Val::Lanes { regs: b, uniform: false }) = (a, b) else {
            return None;
        };
        let mut out = vec![];
        for (k, w) in self.widths(lanes)?.into_iter().enumerate() {
            // So many are in one register, or in two.
            let whole = (2 * w).min(self.wide);
            for high in 0..2 * w / whole {
                out.push(self.one_by_turns(whole, a[k], b[k], high * whole / 2));
            }
        }
        // Registers are as wide as they are for twice as many lanes.
        (self.widths(2 * lanes)?.len() == out.len()).then_some(Val::Lanes { regs: out, uniform: false })
    }

    /// `w` lanes of both by turns, those from lane `first` on.
    fn one_by_turns(&mut self, w: u16, a: Reg, b: Reg, first: u16) -> Reg {
        if self.evex && w > 4 {
            let order: Vec<u32> = (0..w as u32).map(|i| first as u32 + i / 2 + i % 2 * w as u32).collect();
            let (order, d) = (self.vector(&order), self.lanes_reg());
            self.push(Inst::Move { w, d, s: a });
            self.push(Inst::Among { w, d, a: order, b });
            return d;
        }
        let halves = [false, true].map(|high| {
            let d = self.lanes_reg();
            self.push(Inst::Two { op: Op2::Weave { bytes: 4, high }, w, d, a, b });
            d
        });
        let d = self.lanes_reg();
        self.push(Inst::Two { op: Op2::Parts { odd: first > 0 }, w, d, a: halves[0], b: halves[1] });
        d
    }

    fn backwards(&mut self, w: u16, m: Mem) -> Reg {
        let a = self.read(w, m, 1 - w as i32);
        if w == 4 {
            let d = self.lanes_reg();
            self.push(Inst::One { op: Op1::Within(0x1b), w, d, a });
            return d;
        }
        let order: Vec<u32> = (0..w as u32).rev().collect();
        self.permuted(w, &order, a)
    }

    /// int32 that counts up from an int64 and a number.
    pub(super) fn count(&mut self, first: &PrimExpr, step: &PrimExpr, behind: i64, lanes: u16) -> Option<Val> {
        let Val::General(first) = self.value(first)? else { return None };
        let step = i32::try_from(step.as_int()?).ok()?;
        let (a, d) = (self.in_register(first), self.lanes_reg());
        self.push(Inst::FromGeneral { d, a, float: false });
        let (mut regs, mut at) = (vec![], 0);
        for w in self.widths(lanes)? {
            let steps: Vec<u32> =
                (at..at + w as i32).map(|i| i.wrapping_mul(step).wrapping_add(behind as i32) as u32).collect();
            let (b, r) = (self.vector(&steps), self.lanes_reg());
            self.push(Inst::Two { op: Op2::AddI, w, d: r, a: d, b });
            at += w as i32;
            regs.push(r);
        }
        Some(Val::Lanes { regs, uniform: false })
    }
}
