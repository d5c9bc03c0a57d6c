//! Instructions on float64 and int64: half as many lanes as of 32 bits.

use super::super::inst::*;
use super::{g, wide, x, y, z, Emitter, Res, RAX};
use iced_x86::code_asm::*;

impl Emitter<'_> {
    pub(super) fn doubles(&mut self, i: &Inst) -> Res {
        match *i {
            Inst::SpreadDouble { d, m } => {
                let (n, m) = (self.target(d, 0), self.mem(&m)?);
                match self.wide.lanes {
                    16 => self.a.vbroadcastsd(z(n), qword_ptr(m))?,
                    _ => self.a.vbroadcastsd(y(n), qword_ptr(m))?,
                }
                self.keep_lanes(d, 0)
            }
            Inst::StoreDouble { s, m } => {
                let (n, m) = (self.lanes(s, 0)?, self.mem(&m)?);
                self.a.vmovsd(qword_ptr(m), x(n))
            }
            Inst::DoubleFromGeneral { d, a } => {
                let a = self.general(a, RAX)?;
                let n = self.target(d, 0);
                self.a.vxorps(x(n), x(n), x(n))?;
                self.a.vcvtsi2sd(x(n), x(n), g(a))?;
                self.spread_double(n)?;
                self.keep_lanes(d, 0)
            }
            Inst::LongsFromGeneral { d, a } => {
                let a = self.general(a, RAX)?;
                let n = self.target(d, 0);
                self.a.vmovq(x(n), g(a))?;
                self.spread_double(n)?;
                self.keep_lanes(d, 0)
            }
            Inst::Gather { w, d, m, i } => {
                let (i, n) = (self.lanes(i, 1)?, self.target(d, 0));
                let (base, disp) = self.base(&m)?;
                self.a.kxnorw(k1, k1, k1)?;
                match w {
                    16 => self.a.vgatherqps(y(n).k1(), base + z(i) * 4 + disp)?,
                    8 => self.a.vgatherqps(x(n).k1(), base + y(i) * 4 + disp)?,
                    _ => self.a.vgatherqps(x(n).k1(), base + x(i) * 4 + disp)?,
                }
                self.keep_lanes(d, 0)
            }
            Inst::LongToGeneral { d, a } => {
                let a = self.lanes(a, 0)?;
                let n = self.result(d);
                self.a.vmovq(g(n), x(a))?;
                self.keep(d)
            }
            Inst::Fma { w, d, a, b, .. } => {
                let (a, b) = (self.lanes(a, 0)?, self.lanes(b, 1)?);
                let n = self.lanes(d, 2)?;
                wide!(self.a, w, vfmadd231pd, n, a, b)?;
                self.keep_lanes(d, 2)
            }
            Inst::FmaMem { w, d, a, m, spread, .. } => {
                let a = self.lanes(a, 0)?;
                let n = self.lanes(d, 2)?;
                let m = self.mem(&m)?;
                match (w, spread) {
                    (16, true) => self.a.vfmadd231pd(z(n), z(a), qword_bcst(m))?,
                    (8, true) => self.a.vfmadd231pd(y(n), y(a), qword_bcst(m))?,
                    (_, true) => self.a.vfmadd231pd(x(n), x(a), qword_bcst(m))?,
                    (16, false) => self.a.vfmadd231pd(z(n), z(a), zmmword_ptr(m))?,
                    (8, false) => self.a.vfmadd231pd(y(n), y(a), ymmword_ptr(m))?,
                    (_, false) => self.a.vfmadd231pd(x(n), x(a), xmmword_ptr(m))?,
                }
                self.keep_lanes(d, 2)
            }
            _ => Ok(()),
        }
    }

    /// The first lane of 64 bits into all.
    pub(super) fn spread_double(&mut self, n: u8) -> Res {
        match self.wide.lanes {
            16 => self.a.vbroadcastsd(z(n), x(n)),
            _ => self.a.vbroadcastsd(y(n), x(n)),
        }
    }

    /// Half of the lanes of 32 bits in twice as many bits.
    pub(super) fn widen(&mut self, how: Widen, w: u16, d: u8, mut a: u8, high: bool) -> Res {
        if high {
            match w {
                16 => self.a.vextractf64x4(y(d), z(a), 1)?,
                4 => self.a.vpermilps(x(d), x(a), 0xee)?,
                _ if self.wide.evex() => self.a.vextractf32x4(x(d), y(a), 1)?,
                _ => self.a.vextractf128(x(d), y(a), 1)?,
            }
            a = d;
        }
        macro_rules! half {
            ($m:ident) => {
                match w {
                    16 => self.a.$m(z(d), y(a)),
                    8 => self.a.$m(y(d), x(a)),
                    _ => self.a.$m(x(d), x(a)),
                }
            };
        }
        match how {
            Widen::IntToLong => half!(vpmovsxdq),
            Widen::FloatToLong => half!(vcvttps2qq),
            Widen::IntToDouble => half!(vcvtdq2pd),
            Widen::FloatToDouble => half!(vcvtps2pd),
        }
    }

    pub(super) fn narrow(&mut self, how: Narrow, w: u16, d: u8, a: u8) -> Res {
        macro_rules! half {
            ($m:ident) => {
                match w {
                    16 => self.a.$m(y(d), z(a)),
                    8 => self.a.$m(x(d), y(a)),
                    _ => self.a.$m(x(d), x(a)),
                }
            };
        }
        match how {
            Narrow::LongToFloat => half!(vcvtqq2ps),
            Narrow::DoubleToFloat => half!(vcvtpd2ps),
            Narrow::DoubleToInt => half!(vcvttpd2dq),
        }
    }

    pub(super) fn join(&mut self, w: u16, d: u8, a: u8, b: u8) -> Res {
        match w {
            16 => self.a.vinsertf64x4(z(d), z(a), y(b), 1),
            4 => self.a.vmovlhps(x(d), x(a), x(b)),
            _ if self.wide.evex() => self.a.vinsertf32x4(y(d), y(a), x(b), 1),
            _ => self.a.vinsertf128(y(d), y(a), x(b), 1),
        }
    }

    /// Masks of 64 bits.
    pub(super) fn compare_doubles(&mut self, predicate: i32, w: u16, d: u8, a: u8, b: u8) -> Res {
        match (self.wide.evex(), w) {
            (true, 16) => self.a.vcmppd(k1, z(a), z(b), predicate)?,
            (true, 8) => self.a.vcmppd(k1, y(a), y(b), predicate)?,
            (true, _) => self.a.vcmppd(k1, x(a), x(b), predicate)?,
            (false, 8) => return self.a.vcmppd(y(d), y(a), y(b), predicate),
            (false, _) => return self.a.vcmppd(x(d), x(a), x(b), predicate),
        }
        match w {
            16 => self.a.vpmovm2q(z(d), k1),
            8 => self.a.vpmovm2q(y(d), k1),
            _ => self.a.vpmovm2q(x(d), k1),
        }
    }
}
