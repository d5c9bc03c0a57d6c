//! Divisions of int64, which never trap: by 0 quotient and remainder are 0, the lowest value by -1 wraps.

use super::*;

impl Emitter<'_> {
    /// Quotient or remainder of `a`, in `rax`; the last label stands before what comes next.
    pub(super) fn divide(&mut self, a: Reg, by: &Opnd, floor: bool, remainder: bool) -> Res {
        let a = self.general(a, RAX)?;
        if a != RAX {
            self.a.mov(rax, g(a))?;
        }
        let (mut divides, mut end) = (self.a.create_label(), self.a.create_label());
        match by {
            Opnd::Imm(by) => self.a.mov(r11, *by)?,
            Opnd::Reg(by) => {
                let by = self.general(*by, R11)?;
                if by != R11 {
                    self.a.mov(r11, g(by))?;
                }
                // By 0 and -1 a product is the quotient.
                self.a.lea(rdx, r11 + 1)?;
                self.a.cmp(rdx, 1)?;
                self.a.ja(divides)?;
                self.a.imul_2(rax, r11)?;
                if remainder {
                    self.a.mov(rax, 0i64)?;
                }
                self.a.jmp(end)?;
                self.a.set_label(&mut divides)?;
            }
        }
        self.a.cqo()?;
        self.a.idiv(r11)?;
        match (by, floor, remainder) {
            (_, false, false) => {}
            (_, false, true) => self.a.mov(rax, rdx)?,
            (Opnd::Imm(_), true, true) => {
                self.a.mov(rax, rdx)?;
                self.a.sar(rax, 63)?;
                self.a.and(rax, r11)?;
                self.a.add(rax, rdx)?;
            }
            (Opnd::Imm(_), true, false) => {
                self.a.sar(rdx, 63)?;
                self.a.add(rax, rdx)?;
            }
            // Rounded down where there is a remainder whose sign is not the divisor's.
            (Opnd::Reg(_), true, _) => {
                if remainder {
                    self.a.mov(rax, rdx)?;
                }
                self.a.test(rdx, rdx)?;
                self.a.je(end)?;
                self.a.xor(rdx, r11)?;
                self.a.jns(end)?;
                match remainder {
                    true => self.a.add(rax, r11)?,
                    false => self.a.dec(rax)?,
                }
            }
        }
        match by {
            Opnd::Reg(_) => self.a.set_label(&mut end)?,
            Opnd::Imm(_) => {}
        }
        Ok(())
    }
}
