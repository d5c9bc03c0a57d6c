//! Vector instructions of two operands, comparisons and sums of lanes.

use super::super::inst::*;
use super::{mask, wide, x, y, z, Emitter, Res};
use iced_x86::code_asm::*;

impl Emitter<'_> {
    pub(super) fn two(&mut self, op: Op2, w: u16, d: u8, a: u8, b: u8) -> Res {
        match op {
            Op2::AddF => wide!(self.a, w, vaddps, d, a, b),
            Op2::SubF => wide!(self.a, w, vsubps, d, a, b),
            Op2::MulF => wide!(self.a, w, vmulps, d, a, b),
            Op2::DivF => wide!(self.a, w, vdivps, d, a, b),
            Op2::MinF => wide!(self.a, w, vminps, d, a, b),
            Op2::MaxF => wide!(self.a, w, vmaxps, d, a, b),
            Op2::AddD => wide!(self.a, w, vaddpd, d, a, b),
            Op2::SubD => wide!(self.a, w, vsubpd, d, a, b),
            Op2::MulD => wide!(self.a, w, vmulpd, d, a, b),
            Op2::DivD => wide!(self.a, w, vdivpd, d, a, b),
            Op2::MinD => wide!(self.a, w, vminpd, d, a, b),
            Op2::MaxD => wide!(self.a, w, vmaxpd, d, a, b),
            Op2::Join => self.join(w, d, a, b),
            Op2::AddL => wide!(self.a, w, vpaddq, d, a, b),
            Op2::SubL => wide!(self.a, w, vpsubq, d, a, b),
            Op2::ShlL => wide!(self.a, w, vpsllvq, d, a, b),
            Op2::ShrL => wide!(self.a, w, vpsrlvq, d, a, b),
            Op2::MulL => wide!(self.a, w, vpmullq, d, a, b),
            Op2::MinL => wide!(self.a, w, vpminsq, d, a, b),
            Op2::MaxL => wide!(self.a, w, vpmaxsq, d, a, b),
            Op2::And => wide!(self.a, w, vandps, d, a, b),
            Op2::Or => wide!(self.a, w, vorps, d, a, b),
            Op2::Xor => wide!(self.a, w, vxorps, d, a, b),
            Op2::AddI => wide!(self.a, w, vpaddd, d, a, b),
            Op2::SubI => wide!(self.a, w, vpsubd, d, a, b),
            Op2::MulI => wide!(self.a, w, vpmulld, d, a, b),
            Op2::MinI => wide!(self.a, w, vpminsd, d, a, b),
            Op2::MaxI => wide!(self.a, w, vpmaxsd, d, a, b),
            Op2::Shl => wide!(self.a, w, vpsllvd, d, a, b),
            Op2::Shr => wide!(self.a, w, vpsrlvd, d, a, b),
            Op2::Sar => wide!(self.a, w, vpsravd, d, a, b),
            Op2::Narrow16 => wide!(self.a, w, vpackssdw, d, a, b),
            Op2::NarrowBytes => wide!(self.a, w, vpackuswb, d, a, b),
            Op2::Weave { bytes: 1, high: false } => wide!(self.a, w, vpunpcklbw, d, a, b),
            Op2::Weave { bytes: 1, high: true } => wide!(self.a, w, vpunpckhbw, d, a, b),
            Op2::Weave { bytes: 4, high: false } => wide!(self.a, w, vunpcklps, d, a, b),
            Op2::Weave { bytes: 4, high: true } => wide!(self.a, w, vunpckhps, d, a, b),
            Op2::Weave { bytes: 8, high: false } => wide!(self.a, w, vunpcklpd, d, a, b),
            Op2::Weave { bytes: 8, high: true } => wide!(self.a, w, vunpckhpd, d, a, b),
            Op2::Weave { high: false, .. } => wide!(self.a, w, vpunpcklwd, d, a, b),
            Op2::Weave { high: true, .. } => wide!(self.a, w, vpunpckhwd, d, a, b),
            Op2::EvenOdd => wide!(self.a, w, vshufps, d, a, b; 0xd8),
            Op2::NarrowWords => wide!(self.a, w, vpackusdw, d, a, b),
            Op2::Parts { odd } if w == 16 => self.a.vshuff32x4(z(d), z(a), z(b), if odd { 0xdd } else { 0x88 }),
            // Of registers beyond the first sixteen, which the other form cannot name.
            Op2::Parts { odd } if self.wide.evex() => self.a.vshuff32x4(y(d), y(a), y(b), if odd { 3 } else { 0 }),
            Op2::Parts { odd } => self.a.vperm2f128(y(d), y(a), y(b), if odd { 0x31 } else { 0x20 }),
            Op2::Permute if w == 16 => self.a.vpermd(z(d), z(a), z(b)),
            Op2::Permute => self.a.vpermd(y(d), y(a), y(b)),
            Op2::DotWords => wide!(self.a, w, vpmaddwd, d, a, b),
            Op2::AddWords => wide!(self.a, w, vpaddw, d, a, b),
            Op2::SubWords => wide!(self.a, w, vpsubw, d, a, b),
        }
    }

    pub(super) fn compare(&mut self, what: Compare, w: u16, d: u8, a: u8, b: u8) -> Res {
        let predicate = match what {
            Compare::Float(cc) | Compare::Double(cc) => match cc {
                Cc::Eq => 0,
                Cc::Ne => 4,
                Cc::Lt => 0x11,
                Cc::Le => 0x12,
                Cc::Gt => 0x1e,
                Cc::Ge => 0x1d,
            },
            Compare::Unordered | Compare::UnorderedDouble => 3,
            Compare::Int(cc) => match cc {
                Cc::Eq => 0,
                Cc::Ne => 4,
                Cc::Lt => 1,
                Cc::Le => 2,
                Cc::Gt => 6,
                Cc::Ge => 5,
            },
        };
        let int = matches!(what, Compare::Int(_));
        if matches!(what, Compare::Double(_) | Compare::UnorderedDouble) {
            return self.compare_doubles(predicate, w, d, a, b);
        }
        if self.wide.evex() {
            if int {
                mask!(self.a, w, vpcmpd, a, b; predicate)?;
            } else {
                mask!(self.a, w, vcmpps, a, b; predicate)?;
            }
            return match w {
                16 => self.a.vpmovm2d(z(d), k1),
                8 => self.a.vpmovm2d(y(d), k1),
                _ => self.a.vpmovm2d(x(d), k1),
            };
        }
        match (what, w) {
            (Compare::Int(Cc::Eq), 8) => self.a.vpcmpeqd(y(d), y(a), y(b)),
            (Compare::Int(Cc::Eq), _) => self.a.vpcmpeqd(x(d), x(a), x(b)),
            (Compare::Int(_), 8) => self.a.vpcmpgtd(y(d), y(a), y(b)),
            (Compare::Int(_), _) => self.a.vpcmpgtd(x(d), x(a), x(b)),
            (_, 8) => self.a.vcmpps(y(d), y(a), y(b), predicate),
            (_, _) => self.a.vcmpps(x(d), x(a), x(b), predicate),
        }
    }

    pub(super) fn reduce(&mut self, op: Op2, w: u16, d: Reg, a: Reg, t: Reg) -> Res {
        let mut a = self.lanes(a, 0)?;
        let (n, t) = (self.target(d, 2), self.target(t, 1));
        if w == 16 {
            self.a.vextractf64x4(y(t), z(a), 1)?;
            self.two(op, 8, n, a, t)?;
            a = n;
        }
        if w >= 8 {
            if self.wide.evex() {
                self.a.vextractf32x4(x(t), y(a), 1)?;
            } else {
                self.a.vextractf128(x(t), y(a), 1)?;
            }
            self.two(op, 4, n, a, t)?;
            a = n;
        }
        let orders: &[i32] = if op.is_double() { &[0x4e] } else { &[0x4e, 0xb1] };
        for &order in orders {
            self.a.vpermilps(x(t), x(a), order)?;
            self.two(op, 4, n, a, t)?;
            a = n;
        }
        if op.is_double() {
            self.spread_double(n)?;
        } else {
            self.spread(n)?;
        }
        self.keep_lanes(d, 2)
    }
}
