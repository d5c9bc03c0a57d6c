//! Instructions to bytes.

mod divide;
mod doubles;
mod pairs;

use super::alloc::{Place, Places, SCRATCH, TILES};
use super::inst::*;
use super::Wide;
use iced_x86::code_asm::*;
use iced_x86::{IcedError, Register};
use relax_ir::flat::Assembled;

type Res = Result<(), IcedError>;

/// General registers kept for the work, by number.
const RAX: u8 = 0;
const RDX: u8 = 2;
const R11: u8 = 11;
/// Those that a function must leave as they were.
const SAVED: [u8; 6] = [3, 5, 12, 13, 14, 15];
const ARGUMENTS: [u8; 6] = [7, 6, 2, 1, 8, 9];
/// The immediate of `vcvtps2ph`: half to even.
const NEAREST: u32 = 0;
/// Bytes of a page of memory, at least.
const PAGE: i32 = 4096;

fn g(n: u8) -> AsmRegister64 {
    registers::gpr64::get_gpr64(Register::RAX + n as u32).unwrap_or(rax)
}

fn g32(n: u8) -> AsmRegister32 {
    registers::gpr32::get_gpr32(Register::EAX + n as u32).unwrap_or(eax)
}

fn x(n: u8) -> AsmRegisterXmm {
    registers::xmm::get_xmm(Register::XMM0 + n as u32).unwrap_or(xmm0)
}

fn y(n: u8) -> AsmRegisterYmm {
    registers::ymm::get_ymm(Register::YMM0 + n as u32).unwrap_or(ymm0)
}

fn z(n: u8) -> AsmRegisterZmm {
    registers::zmm::get_zmm(Register::ZMM0 + n as u32).unwrap_or(zmm0)
}

fn t(n: u8) -> AsmRegisterTmm {
    registers::tmm::get_tmm(Register::TMM0 + n as u32).unwrap_or(tmm0)
}

/// What `ldtilecfg` loads: palette 1, for each register its bytes a row and its rows.
fn tile_config(rows: &[u8; TILES]) -> [u32; 16] {
    let mut bytes = [0u8; 64];
    bytes[0] = 1;
    for (i, &rows) in rows.iter().enumerate().filter(|(_, rows)| **rows > 0) {
        bytes[16 + 2 * i] = 64;
        bytes[48 + i] = rows;
    }
    std::array::from_fn(|i| u32::from_le_bytes(std::array::from_fn(|k| bytes[4 * i + k])))
}

/// An instruction at one of three widths.
macro_rules! wide {
    ($a:expr, $w:expr, $m:ident, $d:expr $(, $s:expr)* $(; $imm:expr)?) => {
        match $w {
            16 => $a.$m(z($d) $(, z($s))* $(, $imm)?),
            8 => $a.$m(y($d) $(, y($s))* $(, $imm)?),
            _ => $a.$m(x($d) $(, x($s))* $(, $imm)?),
        }
    };
}

/// The same with a mask as result.
macro_rules! mask {
    ($a:expr, $w:expr, $m:ident $(, $s:expr)* $(; $imm:expr)?) => {
        match $w {
            16 => $a.$m(k1 $(, z($s))* $(, $imm)?),
            8 => $a.$m(k1 $(, y($s))* $(, $imm)?),
            _ => $a.$m(k1 $(, x($s))* $(, $imm)?),
        }
    };
}

use {mask, wide};

struct Emitter<'a> {
    a: CodeAssembler,
    p: &'a Program,
    places: &'a Places,
    wide: Wide,
    labels: Vec<CodeLabel>,
    pool: Vec<CodeLabel>,
    /// Bytes from the stack pointer.
    objects: i32,
    slots: i32,
    /// The last thing was a label: the assembler takes one for each instruction.
    labelled: bool,
}

pub fn emit(p: &Program, places: &Places, wide: Wide) -> Option<Assembled> {
    let objects = places.vector_slots as i32 * 64;
    let slots = objects + p.stack as i32;
    let mut a = CodeAssembler::new(64).ok()?;
    a.set_prefer_vex(!wide.evex());
    let labels = (0..p.labels).map(|_| a.create_label()).collect();
    let pool = p.pool.iter().map(|_| a.create_label()).collect();
    let mut e = Emitter { a, p, places, wide, labels, pool, objects, slots, labelled: false };
    let frame = e.function().ok()?;
    Some(Assembled { bytes: e.a.assemble(0).ok()?, frame })
}

impl Emitter<'_> {
    /// The whole function; bytes of stack that it takes at most.
    fn function(&mut self) -> Result<u32, IcedError> {
        let used = |n: &&u8| self.places.of.contains(&Place::Reg(**n));
        let p = self.p;
        let general = |n: &&u8| {
            used(n)
                && (0..p.classes.len()).any(|r| p.classes[r] == Class::General && self.places.of[r] == Place::Reg(**n))
        };
        let saved: Vec<u8> = SAVED.iter().filter(general).copied().collect();
        for &n in &saved {
            self.a.push(g(n))?;
        }
        let arguments = self.slots + self.places.general_slots as i32 * 8;
        let old = arguments + 48;
        self.a.mov(rax, rsp)?;
        let size = (old + 8 + 63) / 64 * 64;
        // Each page of the frame is touched in turn, so that none of them lies beyond a guard page.
        for page in 1..=size / PAGE {
            self.a.test(qword_ptr(rax - page * PAGE), rax)?;
        }
        self.a.sub(rsp, size)?;
        self.a.and(rsp, -64)?;
        self.a.mov(qword_ptr(rsp + old), rax)?;
        for (i, &n) in ARGUMENTS.iter().enumerate().take(p.params.len()) {
            self.a.mov(qword_ptr(rsp + arguments + i as i32 * 8), g(n))?;
        }
        for (i, &r) in p.params.iter().enumerate() {
            let from = match i {
                0..6 => qword_ptr(rsp + arguments + i as i32 * 8),
                _ => qword_ptr(rax + (saved.len() as i32 + 1 + i as i32 - 6) * 8),
            };
            match self.places.of[r as usize] {
                Place::Reg(n) => self.a.mov(g(n), from)?,
                Place::Slot(s) => {
                    self.a.mov(r11, from)?;
                    self.a.mov(self.slot(s), r11)?;
                }
                _ => {}
            }
        }
        for &(r, at) in &p.constants {
            if let Place::Reg(n) = self.places.of[r as usize] {
                self.spread_constant(n, at)?;
            }
        }
        let tiles = self.places.tile_rows != [0; TILES];
        let mut config = self.a.create_label();
        if tiles {
            self.a.ldtilecfg(ptr(config))?;
        }
        for i in &p.code {
            self.inst(i)?;
        }
        if tiles {
            self.a.tilerelease()?;
        }
        self.a.vzeroupper()?;
        self.a.mov(rsp, qword_ptr(rsp + old))?;
        for &n in saved.iter().rev() {
            self.a.pop(g(n))?;
        }
        self.a.ret()?;
        for (i, &bits) in p.pool.iter().enumerate() {
            self.a.set_label(&mut self.pool[i])?;
            self.a.dd(&[bits])?;
        }
        if tiles {
            self.a.set_label(&mut config)?;
            self.a.dd(&tile_config(&self.places.tile_rows))?;
        }
        // The return address, what is saved, and what aligning takes.
        Ok(8 + saved.len() as u32 * 8 + size as u32 + 63)
    }

    fn slot(&self, s: u32) -> AsmMemoryOperand {
        qword_ptr(rsp + self.slots + s as i32 * 8)
    }

    fn spread_constant(&mut self, n: u8, at: u32) -> Res {
        let label = self.pool[at as usize / 4];
        match self.wide.lanes {
            16 if self.p.doubles.contains(&at) => self.a.vbroadcastsd(z(n), qword_ptr(label)),
            _ if self.p.doubles.contains(&at) => self.a.vbroadcastsd(y(n), qword_ptr(label)),
            16 => self.a.vbroadcastss(z(n), dword_ptr(label)),
            _ => self.a.vbroadcastss(y(n), dword_ptr(label)),
        }
    }

    // ---- operands -------------------------------------------------------------------------------------------------

    /// The register of a general value; from the stack it goes to `scratch`.
    fn general(&mut self, r: Reg, scratch: u8) -> Result<u8, IcedError> {
        Ok(match self.places.of[r as usize] {
            Place::Reg(n) => n,
            Place::Slot(s) => {
                self.a.mov(g(scratch), self.slot(s))?;
                scratch
            }
            _ => scratch,
        })
    }

    /// Where a general result is made; `rax` when it goes to the stack.
    fn result(&self, r: Reg) -> u8 {
        match self.places.of[r as usize] {
            Place::Reg(n) => n,
            _ => RAX,
        }
    }

    fn keep(&mut self, r: Reg) -> Res {
        match self.places.of[r as usize] {
            Place::Slot(s) => self.a.mov(self.slot(s), rax),
            _ => Ok(()),
        }
    }

    fn mem(&mut self, m: &Mem) -> Result<AsmMemoryOperand, IcedError> {
        let (base, disp) = match m.base {
            Base::Reg(r) => (g(self.general(r, RAX)?), m.disp),
            Base::Pool(at) => return Ok(ptr(self.pool[at as usize / 4])),
            Base::Stack(at) => (rsp, self.objects + at as i32 + m.disp),
        };
        Ok(match m.index {
            None => base + disp,
            Some((i, scale)) => base + g(self.general(i, R11)?) * scale + disp,
        })
    }

    /// Rows of a tile, from the address of the first and the register with the way to the next.
    fn rows(&mut self, m: &Mem, stride: u8) -> Result<AsmMemoryOperand, IcedError> {
        let (base, disp) = self.base(m)?;
        Ok(base + g(stride) * 1 + disp)
    }

    /// The address without an index.
    fn base(&mut self, m: &Mem) -> Result<(AsmRegister64, i32), IcedError> {
        Ok(match m.base {
            Base::Stack(at) => (rsp, self.objects + at as i32 + m.disp),
            Base::Reg(r) => (g(self.general(r, RAX)?), m.disp),
            // Constants are not addressed by registers.
            Base::Pool(_) => (rax, m.disp),
        })
    }

    fn scratch(&self, k: u8) -> u8 {
        self.wide.registers - SCRATCH + k
    }

    fn move_full(&mut self, n: u8, slot: u32, store: bool) -> Res {
        let at = rsp + slot as i32 * 64;
        match (self.wide.lanes, store) {
            (16, false) => self.a.vmovups(z(n), zmmword_ptr(at)),
            (16, true) => self.a.vmovups(zmmword_ptr(at), z(n)),
            (_, false) => self.a.vmovups(y(n), ymmword_ptr(at)),
            (_, true) => self.a.vmovups(ymmword_ptr(at), y(n)),
        }
    }

    /// The register of a vector value; from the stack it goes to scratch register `k`.
    fn lanes(&mut self, r: Reg, k: u8) -> Result<u8, IcedError> {
        let n = self.scratch(k);
        match self.places.of[r as usize] {
            Place::Reg(n) => return Ok(n),
            Place::Slot(s) => self.move_full(n, s, false)?,
            Place::Pool(at) => self.spread_constant(n, at)?,
            Place::Nowhere => {}
        }
        Ok(n)
    }

    fn target(&self, r: Reg, k: u8) -> u8 {
        match self.places.of[r as usize] {
            Place::Reg(n) => n,
            _ => self.scratch(k),
        }
    }

    fn keep_lanes(&mut self, r: Reg, k: u8) -> Res {
        match self.places.of[r as usize] {
            Place::Slot(s) => self.move_full(self.scratch(k), s, true),
            _ => Ok(()),
        }
    }

    fn operand(&mut self, o: &Opnd) -> Result<u8, IcedError> {
        match o {
            Opnd::Reg(r) => self.general(*r, RDX),
            Opnd::Imm(c) => {
                self.a.mov(rdx, *c)?;
                Ok(RDX)
            }
        }
    }

    // ---- instructions ---------------------------------------------------------------------------------------------

    fn inst(&mut self, i: &Inst) -> Res {
        if let Inst::Label(l) = i {
            if self.labelled {
                self.a.nop()?;
            }
            self.labelled = true;
            return self.a.set_label(&mut self.labels[*l as usize]);
        }
        self.labelled = false;
        match *i {
            Inst::Load { w, d, m } => {
                let (n, m) = (self.target(d, 0), self.mem(&m)?);
                match w {
                    16 => self.a.vmovups(z(n), zmmword_ptr(m))?,
                    8 => self.a.vmovups(y(n), ymmword_ptr(m))?,
                    _ => self.a.vmovups(x(n), xmmword_ptr(m))?,
                }
                self.keep_lanes(d, 0)?;
            }
            Inst::Spread { d, m } => {
                let (n, m) = (self.target(d, 0), self.mem(&m)?);
                match self.wide.lanes {
                    16 => self.a.vbroadcastss(z(n), dword_ptr(m))?,
                    _ => self.a.vbroadcastss(y(n), dword_ptr(m))?,
                }
                self.keep_lanes(d, 0)?;
            }
            Inst::Store { w, s, m } => {
                let (n, m) = (self.lanes(s, 0)?, self.mem(&m)?);
                match w {
                    16 => self.a.vmovups(zmmword_ptr(m), z(n))?,
                    8 => self.a.vmovups(ymmword_ptr(m), y(n))?,
                    2 => self.a.vmovlps(qword_ptr(m), x(n))?,
                    _ => self.a.vmovups(xmmword_ptr(m), x(n))?,
                }
            }
            Inst::StoreOne { s, m } => {
                let (n, m) = (self.lanes(s, 0)?, self.mem(&m)?);
                self.a.vmovss(dword_ptr(m), x(n))?;
            }
            Inst::SpreadDouble { .. }
            | Inst::StoreDouble { .. }
            | Inst::DoubleFromGeneral { .. }
            | Inst::LongToGeneral { .. }
            | Inst::LongsFromGeneral { .. }
            | Inst::Gather { .. }
            | Inst::Fma { double: true, .. }
            | Inst::FmaMem { double: true, .. } => self.doubles(i)?,
            Inst::Two { op, w, d, a, b } => {
                let (a, b) = (self.lanes(a, 0)?, self.lanes(b, 1)?);
                let n = self.target(d, 0);
                self.two(op, w, n, a, b)?;
                self.keep_lanes(d, 0)?;
            }
            Inst::Fma { w, d, a, b, .. } => {
                let (a, b) = (self.lanes(a, 0)?, self.lanes(b, 1)?);
                let n = self.lanes(d, 2)?;
                wide!(self.a, w, vfmadd231ps, n, a, b)?;
                self.keep_lanes(d, 2)?;
            }
            Inst::Among { w, d, a, b } => {
                let (a, b) = (self.lanes(a, 0)?, self.lanes(b, 1)?);
                let n = self.lanes(d, 2)?;
                wide!(self.a, w, vpermt2ps, n, a, b)?;
                self.keep_lanes(d, 2)?;
            }
            Inst::Dot { w, d, a, b } => {
                let (a, b) = (self.lanes(a, 0)?, self.lanes(b, 1)?);
                let n = self.lanes(d, 2)?;
                wide!(self.a, w, vpdpbusd, n, a, b)?;
                self.keep_lanes(d, 2)?;
            }
            Inst::DotMem { w, d, a, m } => {
                let a = self.lanes(a, 0)?;
                let n = self.lanes(d, 2)?;
                let m = self.mem(&m)?;
                match w {
                    16 => self.a.vpdpbusd(z(n), z(a), zmmword_ptr(m))?,
                    8 => self.a.vpdpbusd(y(n), y(a), ymmword_ptr(m))?,
                    _ => self.a.vpdpbusd(x(n), x(a), xmmword_ptr(m))?,
                }
                self.keep_lanes(d, 2)?;
            }
            Inst::DotWordsMem { w, d, a, m } => {
                let a = self.lanes(a, 1)?;
                let n = self.target(d, 0);
                let m = self.mem(&m)?;
                match w {
                    16 => self.a.vpmaddwd(z(n), z(a), zmmword_ptr(m))?,
                    8 => self.a.vpmaddwd(y(n), y(a), ymmword_ptr(m))?,
                    _ => self.a.vpmaddwd(x(n), x(a), xmmword_ptr(m))?,
                }
                self.keep_lanes(d, 0)?;
            }
            Inst::LoadBytes { w, d, m, signed } => {
                let (n, m) = (self.target(d, 0), self.mem(&m)?);
                match (w, signed) {
                    (16, false) => self.a.vpmovzxbd(z(n), xmmword_ptr(m))?,
                    (16, true) => self.a.vpmovsxbd(z(n), xmmword_ptr(m))?,
                    (8, false) => self.a.vpmovzxbd(y(n), qword_ptr(m))?,
                    (8, true) => self.a.vpmovsxbd(y(n), qword_ptr(m))?,
                    (_, false) => self.a.vpmovzxbd(x(n), dword_ptr(m))?,
                    (_, true) => self.a.vpmovsxbd(x(n), dword_ptr(m))?,
                }
                self.keep_lanes(d, 0)?;
            }
            Inst::SpreadByte { d, m, signed } => {
                let (n, m) = (self.target(d, 0), self.mem(&m)?);
                if signed {
                    self.a.movsx(edx, byte_ptr(m))?;
                } else {
                    self.a.movzx(edx, byte_ptr(m))?;
                }
                self.a.vmovd(x(n), edx)?;
                self.spread(n)?;
                self.keep_lanes(d, 0)?;
            }
            Inst::LoadHalf { w, d, m } => {
                let (n, m) = (self.target(d, 0), self.mem(&m)?);
                match w {
                    16 => self.a.vcvtph2ps(z(n), ymmword_ptr(m))?,
                    8 => self.a.vcvtph2ps(y(n), xmmword_ptr(m))?,
                    _ => self.a.vcvtph2ps(x(n), qword_ptr(m))?,
                }
                self.keep_lanes(d, 0)?;
            }
            Inst::LoadWords { w, d, m } => {
                let (n, m) = (self.target(d, 0), self.mem(&m)?);
                match w {
                    16 => self.a.vpmovzxwd(z(n), ymmword_ptr(m))?,
                    8 => self.a.vpmovzxwd(y(n), xmmword_ptr(m))?,
                    _ => self.a.vpmovzxwd(x(n), qword_ptr(m))?,
                }
                self.keep_lanes(d, 0)?;
            }
            Inst::SpreadHalf { d, m } | Inst::SpreadWord { d, m } => {
                let (n, m) = (self.target(d, 0), self.mem(&m)?);
                self.a.movzx(edx, word_ptr(m))?;
                self.a.vmovd(x(n), edx)?;
                if matches!(i, Inst::SpreadHalf { .. }) {
                    self.a.vcvtph2ps(x(n), x(n))?;
                }
                self.spread(n)?;
                self.keep_lanes(d, 0)?;
            }
            Inst::StoreHalf { w, s, m } => {
                let (n, m) = (self.lanes(s, 0)?, self.mem(&m)?);
                match w {
                    16 => self.a.vcvtps2ph(ymmword_ptr(m), z(n), NEAREST)?,
                    8 => self.a.vcvtps2ph(xmmword_ptr(m), y(n), NEAREST)?,
                    _ => self.a.vcvtps2ph(qword_ptr(m), x(n), NEAREST)?,
                }
            }
            Inst::StoreWords { w, s, m } => {
                let (n, m) = (self.lanes(s, 0)?, self.mem(&m)?);
                match w {
                    16 => self.a.vpmovdw(ymmword_ptr(m), z(n))?,
                    8 => self.a.vpmovdw(xmmword_ptr(m), y(n))?,
                    4 => self.a.vpmovdw(qword_ptr(m), x(n))?,
                    _ => self.a.vpextrw(word_ptr(m), x(n), 0)?,
                }
            }
            Inst::StoreBytes { w, s, m, limit } => {
                let (n, m) = (self.lanes(s, 0)?, self.mem(&m)?);
                match w {
                    16 if limit => self.a.vpmovusdb(xmmword_ptr(m), z(n))?,
                    8 if limit => self.a.vpmovusdb(qword_ptr(m), y(n))?,
                    4 if limit => self.a.vpmovusdb(dword_ptr(m), x(n))?,
                    16 => self.a.vpmovdb(xmmword_ptr(m), z(n))?,
                    8 => self.a.vpmovdb(qword_ptr(m), y(n))?,
                    4 => self.a.vpmovdb(dword_ptr(m), x(n))?,
                    _ => self.a.vpextrb(byte_ptr(m), x(n), 0)?,
                }
            }
            Inst::FmaMem { w, d, a, m, spread, .. } => {
                let a = self.lanes(a, 0)?;
                let n = self.lanes(d, 2)?;
                let m = self.mem(&m)?;
                match (w, spread) {
                    (16, true) => self.a.vfmadd231ps(z(n), z(a), dword_bcst(m))?,
                    (8, true) => self.a.vfmadd231ps(y(n), y(a), dword_bcst(m))?,
                    (_, true) => self.a.vfmadd231ps(x(n), x(a), dword_bcst(m))?,
                    (16, false) => self.a.vfmadd231ps(z(n), z(a), zmmword_ptr(m))?,
                    (8, false) => self.a.vfmadd231ps(y(n), y(a), ymmword_ptr(m))?,
                    (_, false) => self.a.vfmadd231ps(x(n), x(a), xmmword_ptr(m))?,
                }
                self.keep_lanes(d, 2)?;
            }
            Inst::One { op, w, d, a } => {
                let a = self.lanes(a, 0)?;
                let n = self.target(d, 0);
                match op {
                    Op1::Sqrt => wide!(self.a, w, vsqrtps, n, a)?,
                    Op1::ToFloat => wide!(self.a, w, vcvtdq2ps, n, a)?,
                    Op1::ToInt => wide!(self.a, w, vcvttps2dq, n, a)?,
                    Op1::RoundToInt => wide!(self.a, w, vcvtps2dq, n, a)?,
                    Op1::RoundToHalf if w == 16 => {
                        self.a.vcvtps2ph(y(n), z(a), NEAREST)?;
                        self.a.vcvtph2ps(z(n), y(n))?;
                    }
                    Op1::RoundToHalf if w == 8 => {
                        self.a.vcvtps2ph(x(n), y(a), NEAREST)?;
                        self.a.vcvtph2ps(y(n), x(n))?;
                    }
                    Op1::RoundToHalf => {
                        self.a.vcvtps2ph(x(n), x(a), NEAREST)?;
                        self.a.vcvtph2ps(x(n), x(n))?;
                    }
                    Op1::ToHalf => self.a.vcvtps2ph(x(n), x(a), NEAREST)?,
                    Op1::Widen { how, high } => self.widen(how, w, n, a, high)?,
                    Op1::Narrow(how) => self.narrow(how, w, n, a)?,
                    Op1::SqrtD => wide!(self.a, w, vsqrtpd, n, a)?,
                    Op1::DoubleToLong => wide!(self.a, w, vcvttpd2qq, n, a)?,
                    Op1::LongToDouble => wide!(self.a, w, vcvtqq2pd, n, a)?,
                    Op1::RoundD(how) if self.wide.evex() => wide!(self.a, w, vrndscalepd, n, a; how)?,
                    Op1::RoundD(how) if w == 8 => self.a.vroundpd(y(n), y(a), how)?,
                    Op1::RoundD(how) => self.a.vroundpd(x(n), x(a), how)?,
                    Op1::Within(order) => wide!(self.a, w, vpermilps, n, a; order as i32)?,
                    Op1::Twice(i) if w == 16 => {
                        self.a.vshuff32x4(z(n), z(a), z(a), if i == 0 { 0xa0 } else { 0xf5 })?
                    }
                    Op1::Twice(i) if self.wide.evex() => {
                        self.a.vshuff32x4(y(n), y(a), y(a), if i == 0 { 0 } else { 3 })?
                    }
                    Op1::Twice(i) => self.a.vperm2f128(y(n), y(a), y(a), if i == 0 { 0 } else { 0x11 })?,
                    Op1::WordsUp => wide!(self.a, w, vpsllw, n, a; 8)?,
                    Op1::WordsDown => wide!(self.a, w, vpsrlw, n, a; 8)?,
                    Op1::WordsDownSigned => wide!(self.a, w, vpsraw, n, a; 8)?,
                    Op1::Round(how) if self.wide.evex() => wide!(self.a, w, vrndscaleps, n, a; how)?,
                    Op1::Round(how) if w == 8 => self.a.vroundps(y(n), y(a), how)?,
                    Op1::Round(how) => self.a.vroundps(x(n), x(a), how)?,
                }
                self.keep_lanes(d, 0)?;
            }
            Inst::Compare { what, w, d, a, b } => {
                let (a, b) = (self.lanes(a, 0)?, self.lanes(b, 1)?);
                let n = self.target(d, 0);
                self.compare(what, w, n, a, b)?;
                self.keep_lanes(d, 0)?;
            }
            Inst::Choose { w, d, c, t, f } => {
                let (c, t, f) = (self.lanes(c, 0)?, self.lanes(t, 1)?, self.lanes(f, 2)?);
                let n = self.target(d, 0);
                if self.wide.evex() {
                    mask!(self.a, w, vpmovd2m, c)?;
                    match w {
                        16 => self.a.vblendmps(z(n).k1(), z(f), z(t))?,
                        8 => self.a.vblendmps(y(n).k1(), y(f), y(t))?,
                        _ => self.a.vblendmps(x(n).k1(), x(f), x(t))?,
                    }
                } else if w == 8 {
                    self.a.vblendvps(y(n), y(f), y(t), y(c))?;
                } else {
                    self.a.vblendvps(x(n), x(f), x(t), x(c))?;
                }
                self.keep_lanes(d, 0)?;
            }
            Inst::Move { w, d, s } => {
                let s = self.lanes(s, 0)?;
                let n = self.target(d, 0);
                if n != s {
                    wide!(self.a, w, vmovaps, n, s)?;
                }
                self.keep_lanes(d, 0)?;
            }
            Inst::Zero { d } => {
                let n = self.target(d, 0);
                wide!(self.a, self.wide.lanes, vxorps, n, n, n)?;
                self.keep_lanes(d, 0)?;
            }
            Inst::Reduce { op, w, d, a, t } => self.reduce(op, w, d, a, t)?,
            Inst::FromGeneral { d, a, float } => {
                let a = self.general(a, RAX)?;
                let n = self.target(d, 0);
                if float {
                    self.a.vxorps(x(n), x(n), x(n))?;
                    self.a.vcvtsi2ss(x(n), x(n), g(a))?;
                } else {
                    self.a.vmovd(x(n), g32(a))?;
                }
                self.spread(n)?;
                self.keep_lanes(d, 0)?;
            }
            Inst::ToGeneral { d, a } => {
                let a = self.lanes(a, 0)?;
                self.a.vmovd(eax, x(a))?;
                let n = self.result(d);
                self.a.movsxd(g(n), eax)?;
                self.keep(d)?;
            }
            Inst::Set { d, s } => {
                let n = self.result(d);
                match s {
                    Opnd::Imm(c) => self.a.mov(g(n), c)?,
                    Opnd::Reg(r) => {
                        let s = self.general(r, RAX)?;
                        if s != n {
                            self.a.mov(g(n), g(s))?;
                        }
                    }
                }
                self.keep(d)?;
            }
            Inst::Arith { op, d, a, b } => {
                let a = self.general(a, RAX)?;
                let n = self.result(d);
                if n != a {
                    self.a.mov(g(n), g(a))?;
                }
                self.arith(op, n, &b)?;
                self.keep(d)?;
            }
            Inst::Address { d, m } => {
                let m = self.mem(&m)?;
                let n = self.result(d);
                self.a.lea(g(n), m)?;
                self.keep(d)?;
            }
            Inst::Divide { d, a, by, floor, remainder } => {
                self.divide(a, &by, floor, remainder)?;
                let n = self.result(d);
                if n != RAX {
                    self.a.mov(g(n), rax)?;
                }
                self.keep(d)?;
            }
            Inst::Pick { cc, d, a, b } => {
                let a = self.general(a, RAX)?;
                let b = self.operand(&b)?;
                let n = self.result(d);
                if n != a {
                    self.a.mov(g(n), g(a))?;
                }
                self.a.cmp(g(n), g(b))?;
                if cc == Cc::Lt {
                    self.a.cmovg(g(n), g(b))?;
                } else {
                    self.a.cmovl(g(n), g(b))?;
                }
                self.keep(d)?;
            }
            Inst::ReadGeneral { d, m } => {
                let m = self.mem(&m)?;
                let n = self.result(d);
                self.a.mov(g(n), qword_ptr(m))?;
                self.keep(d)?;
            }
            Inst::WriteGeneral { s, m } => {
                let s = self.general(s, RDX)?;
                let m = self.mem(&m)?;
                self.a.mov(qword_ptr(m), g(s))?;
            }
            Inst::TileLoad { d, m, stride } => {
                let stride = match stride {
                    Opnd::Reg(r) => self.general(r, R11)?,
                    Opnd::Imm(c) => {
                        match u32::try_from(c) {
                            Ok(c) => self.a.mov(r11d, c)?,
                            Err(_) => self.a.mov(r11, c)?,
                        }
                        R11
                    }
                };
                let m = self.rows(&m, stride)?;
                self.a.tileloadd(t(self.target(d, 0)), m)?;
            }
            Inst::TileStore { s, m } => {
                self.a.mov(r11d, 64)?;
                let m = self.rows(&m, R11)?;
                self.a.tilestored(m, t(self.target(s, 0)))?;
            }
            Inst::TileDot { d, a, b } => {
                self.a.tdpbusd(t(self.target(d, 0)), t(self.target(a, 0)), t(self.target(b, 0)))?
            }
            Inst::Prefetch { m } => {
                let m = self.mem(&m)?;
                self.a.prefetcht1(byte_ptr(m))?;
            }
            Inst::Jump(l) => self.a.jmp(self.labels[l as usize])?,
            Inst::Branch { cc, a, b, to } => {
                let a = self.general(a, RAX)?;
                match b {
                    Opnd::Imm(c) if i32::try_from(c).is_ok() => self.a.cmp(g(a), c as i32)?,
                    b => {
                        let b = self.operand(&b)?;
                        self.a.cmp(g(a), g(b))?;
                    }
                }
                let to = self.labels[to as usize];
                match cc {
                    Cc::Eq => self.a.je(to)?,
                    Cc::Ne => self.a.jne(to)?,
                    Cc::Lt => self.a.jl(to)?,
                    Cc::Le => self.a.jle(to)?,
                    Cc::Gt => self.a.jg(to)?,
                    Cc::Ge => self.a.jge(to)?,
                }
            }
            Inst::BranchAny { w, a, to } => {
                let a = self.lanes(a, 0)?;
                if self.wide.evex() {
                    mask!(self.a, w, vptestmd, a, a)?;
                    self.a.kortestw(k1, k1)?;
                } else if w == 8 {
                    self.a.vptest(y(a), y(a))?;
                } else {
                    self.a.vptest(x(a), x(a))?;
                }
                self.a.jne(self.labels[to as usize])?;
            }
            Inst::Label(_) => {}
        }
        Ok(())
    }

    /// The first lane into all.
    fn spread(&mut self, n: u8) -> Res {
        match self.wide.lanes {
            16 => self.a.vbroadcastss(z(n), x(n)),
            _ => self.a.vbroadcastss(y(n), x(n)),
        }
    }

    fn arith(&mut self, op: Arith, n: u8, b: &Opnd) -> Res {
        let small = match b {
            Opnd::Imm(c) => i32::try_from(*c).ok(),
            Opnd::Reg(_) => None,
        };
        let d = g(n);
        if let Some(c) = small {
            return match op {
                Arith::Add => self.a.add(d, c),
                Arith::Sub => self.a.sub(d, c),
                Arith::Mul => self.a.imul_3(d, d, c),
                Arith::And => self.a.and(d, c),
                Arith::Or => self.a.or(d, c),
                Arith::Xor => self.a.xor(d, c),
                Arith::Shl => self.a.shl(d, c),
                Arith::Sar => self.a.sar(d, c),
            };
        }
        let b = g(self.operand(b)?);
        match op {
            Arith::Add => self.a.add(d, b),
            Arith::Sub => self.a.sub(d, b),
            Arith::Mul => self.a.imul_2(d, b),
            Arith::And => self.a.and(d, b),
            Arith::Or => self.a.or(d, b),
            Arith::Xor => self.a.xor(d, b),
            // Only by literals.
            Arith::Shl | Arith::Sar => Ok(()),
        }
    }
}
