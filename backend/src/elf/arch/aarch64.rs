//! AArch64 (small PIC model).

use super::{fit, patch32, put32, put64, Need, Site, STUB};
use object::elf::*;

pub fn need(kind: u32) -> Need {
    match kind {
        R_AARCH64_NONE => Need::Nothing,
        R_AARCH64_ABS64 => Need::Pointer,
        R_AARCH64_CALL26 | R_AARCH64_JUMP26 => Need::Call,
        R_AARCH64_ADR_GOT_PAGE | R_AARCH64_LD64_GOT_LO12_NC => Need::Slot,
        R_AARCH64_PREL64
        | R_AARCH64_PREL32
        | R_AARCH64_LD_PREL_LO19
        | R_AARCH64_ADR_PREL_LO21
        | R_AARCH64_ADR_PREL_PG_HI21
        | R_AARCH64_ADR_PREL_PG_HI21_NC
        | R_AARCH64_ADD_ABS_LO12_NC
        | R_AARCH64_LDST8_ABS_LO12_NC
        | R_AARCH64_LDST16_ABS_LO12_NC
        | R_AARCH64_LDST32_ABS_LO12_NC
        | R_AARCH64_LDST64_ABS_LO12_NC
        | R_AARCH64_LDST128_ABS_LO12_NC
        | R_AARCH64_TSTBR14
        | R_AARCH64_CONDBR19 => Need::Value,
        _ => Need::Unsupported,
    }
}

pub fn apply(kind: u32, bytes: &mut [u8], at: usize, site: &Site) -> Result<(), String> {
    match kind {
        R_AARCH64_NONE => Ok(()),
        R_AARCH64_ABS64 => put64(bytes, at, site.value),
        R_AARCH64_PREL64 => put64(bytes, at, site.distance() as u64),
        R_AARCH64_PREL32 => put32(bytes, at, fit(site.distance(), 32)? as u32),
        R_AARCH64_CALL26 | R_AARCH64_JUMP26 => patch32(bytes, at, 0x03ff_ffff, (fit(site.distance(), 28)? >> 2) as u32),
        R_AARCH64_CONDBR19 | R_AARCH64_LD_PREL_LO19 => {
            patch32(bytes, at, 0x7ffff << 5, ((fit(site.distance(), 21)? >> 2) as u32) << 5)
        }
        R_AARCH64_TSTBR14 => patch32(bytes, at, 0x3fff << 5, ((fit(site.distance(), 16)? >> 2) as u32) << 5),
        R_AARCH64_ADR_PREL_LO21 => patch_adr(bytes, at, fit(site.distance(), 21)?),
        R_AARCH64_ADR_PREL_PG_HI21 | R_AARCH64_ADR_PREL_PG_HI21_NC => {
            patch_adr(bytes, at, pages(site.value, site.place)?)
        }
        R_AARCH64_ADR_GOT_PAGE => patch_adr(bytes, at, pages(site.slot()?, site.place)?),
        R_AARCH64_LD64_GOT_LO12_NC => patch_low(bytes, at, site.slot()?, 3),
        R_AARCH64_ADD_ABS_LO12_NC | R_AARCH64_LDST8_ABS_LO12_NC => patch_low(bytes, at, site.value, 0),
        R_AARCH64_LDST16_ABS_LO12_NC => patch_low(bytes, at, site.value, 1),
        R_AARCH64_LDST32_ABS_LO12_NC => patch_low(bytes, at, site.value, 2),
        R_AARCH64_LDST64_ABS_LO12_NC => patch_low(bytes, at, site.value, 3),
        R_AARCH64_LDST128_ABS_LO12_NC => patch_low(bytes, at, site.value, 4),
        _ => Err(format!("relocation type {kind}")),
    }
}

/// The distance in pages of 4 KiB, in the 21 bits of `adrp`.
fn pages(to: u64, from: u64) -> Result<i64, String> {
    fit((to & !0xfff).wrapping_sub(from & !0xfff) as i64 >> 12, 21)
}

fn patch_adr(bytes: &mut [u8], at: usize, v: i64) -> Result<(), String> {
    let v = v as u32;
    patch32(bytes, at, 3 << 29 | 0x7ffff << 5, (v & 3) << 29 | ((v >> 2) & 0x7ffff) << 5)
}

/// The low 12 bits of an address, in units of `1 << scale`.
fn patch_low(bytes: &mut [u8], at: usize, address: u64, scale: u32) -> Result<(), String> {
    patch32(bytes, at, 0xfff << 10, (((address & 0xfff) >> scale) as u32) << 10)
}

/// `adrp x16, slot; ldr x17, [x16, slot]; br x17`.
pub fn stub(stub: u64, slot: u64) -> Result<[u8; STUB as usize], String> {
    let mut code = [0; STUB as usize];
    for (i, word) in [0x9000_0010u32, 0xf940_0211, 0xd61f_0220, 0xd503_201f].into_iter().enumerate() {
        put32(&mut code, i * 4, word)?;
    }
    patch_adr(&mut code, 0, pages(slot, stub)?)?;
    patch_low(&mut code, 4, slot, 3)?;
    Ok(code)
}
