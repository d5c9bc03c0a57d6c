//! Constants, which lie behind the code, and the registers that hold them.

use super::*;

/// Where constants are held in registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// From the beginning to the end, each in one of its own.
    Always,
    /// While the loops run that are named; elsewhere from where they are used to the next label.
    Runs,
    /// While the loops run that are named; elsewhere they are read where they are used.
    Loops,
}

/// The bits of a constant of 32 or 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Constant {
    Single(u32),
    Double(u64),
}

impl Builder {
    /// A register with the constant in every lane.
    pub(super) fn constant(&mut self, c: Constant) -> Reg {
        if let Some(&r) = self.constants.get(&c) {
            return r;
        }
        let end = self.p.pool.len() as u32 * 4;
        let at = *self.pooled.entry(c).or_insert(end);
        if at == end {
            match c {
                Constant::Single(bits) => self.p.pool.push(bits),
                Constant::Double(bits) => {
                    self.p.pool.extend([bits as u32, (bits >> 32) as u32]);
                    self.p.doubles.push(at);
                }
            }
        }
        if let Some(all) = &self.inner {
            let known = all.iter().find(|(place, _)| *place == at).map(|(_, r)| *r);
            let r = known.unwrap_or_else(|| self.lanes_reg());
            if let (Some(all), None) = (&mut self.inner, known) {
                all.push((at, r));
            }
            return r;
        }
        if let Some(&(_, r)) = self.run.iter().find(|(place, _)| *place == at) {
            return r;
        }
        let r = self.lanes_reg();
        if self.held != Held::Always {
            let read = self.read_constant(r, at);
            self.push(read);
            if self.held == Held::Runs {
                self.run.push((at, r));
            }
            return r;
        }
        self.p.constants.push((r, at));
        self.constants.insert(c, r);
        r
    }

    pub(super) fn read_constant(&self, d: Reg, at: u32) -> Inst {
        let m = Mem { base: Base::Pool(at), index: None, disp: 0 };
        match self.p.doubles.contains(&at) {
            true => Inst::SpreadDouble { d, m },
            false => Inst::Spread { d, m },
        }
    }
}
