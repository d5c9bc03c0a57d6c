//! Constants, which lie behind the code, and the registers that hold them.

use super::*;

/// Where constants are held in registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// From the beginning to the end, each in one of its own.
    Always,
    /// While the innermost loop runs that uses them; elsewhere they are read where they are used.
    Loops,
    Nowhere,
}

impl Builder {
    pub(super) fn constant(&mut self, bits: u32) -> Reg {
        if let Some(&r) = self.constants.get(&bits) {
            return r;
        }
        let end = self.p.pool.len() as u32 * 4;
        let at = *self.pooled.entry(bits).or_insert(end);
        if at == end {
            self.p.pool.push(bits);
        }
        if let Some(r) = self.inner_constant(bits.into(), at) {
            return r;
        }
        let r = self.lanes_reg();
        if self.held != Held::Always {
            self.push(Inst::Spread { d: r, m: Mem { base: Base::Pool(at), index: None, disp: 0 } });
            return r;
        }
        self.p.constants.push((r, at));
        self.constants.insert(bits, r);
        r
    }

    pub(super) fn constant_double(&mut self, bits: u64) -> Reg {
        if let Some(&r) = self.doubles.get(&bits) {
            return r;
        }
        let end = self.p.pool.len() as u32 * 4;
        let at = *self.pooled_doubles.entry(bits).or_insert(end);
        if at == end {
            self.p.pool.extend([bits as u32, (bits >> 32) as u32]);
            self.p.doubles.push(at);
        }
        if let Some(r) = self.inner_constant(bits, at) {
            return r;
        }
        let r = self.lanes_reg();
        if self.held != Held::Always {
            self.push(Inst::SpreadDouble { d: r, m: Mem { base: Base::Pool(at), index: None, disp: 0 } });
            return r;
        }
        self.p.constants.push((r, at));
        self.doubles.insert(bits, r);
        r
    }

    /// The register of a constant of the innermost loop, inside of one.
    fn inner_constant(&mut self, bits: u64, at: u32) -> Option<Reg> {
        let all = self.inner.as_ref()?;
        if let Some((.., r)) = all.iter().find(|(b, place, _)| (*b, *place) == (bits, at)) {
            return Some(*r);
        }
        let r = self.lanes_reg();
        self.inner.as_mut()?.push((bits, at, r));
        Some(r)
    }

    pub(super) fn read_constant(&self, d: Reg, at: u32) -> Inst {
        let m = Mem { base: Base::Pool(at), index: None, disp: 0 };
        match self.p.doubles.contains(&at) {
            true => Inst::SpreadDouble { d, m },
            false => Inst::Spread { d, m },
        }
    }
}
