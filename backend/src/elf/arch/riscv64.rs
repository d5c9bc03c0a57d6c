//! RISC-V, 64 bits. Linker relaxation is optional and not done.

use super::{fit, patch32, put16, put32, put64, window, Need, Site, STUB};
use object::elf::*;

pub fn need(kind: u32) -> Need {
    match kind {
        R_RISCV_NONE | R_RISCV_RELAX | R_RISCV_ALIGN => Need::Nothing,
        R_RISCV_64 => Need::Pointer,
        R_RISCV_CALL | R_RISCV_CALL_PLT => Need::Call,
        R_RISCV_GOT_HI20 => Need::Slot,
        R_RISCV_PCREL_HI20 | R_RISCV_PCREL_LO12_I | R_RISCV_PCREL_LO12_S | R_RISCV_BRANCH | R_RISCV_JAL
        | R_RISCV_RVC_BRANCH | R_RISCV_RVC_JUMP | R_RISCV_32_PCREL | R_RISCV_ADD32 | R_RISCV_ADD64 | R_RISCV_SUB32
        | R_RISCV_SUB64 => Need::Value,
        _ => Need::Unsupported,
    }
}

pub fn apply(kind: u32, bytes: &mut [u8], at: usize, site: &Site) -> Result<(), String> {
    let distance = site.distance();
    match kind {
        R_RISCV_NONE | R_RISCV_RELAX | R_RISCV_ALIGN => Ok(()),
        R_RISCV_64 => put64(bytes, at, site.value),
        R_RISCV_32_PCREL => put32(bytes, at, fit(distance, 32)? as u32),
        R_RISCV_ADD32 | R_RISCV_SUB32 => {
            let old = u32::from_le_bytes(*window(bytes, at)?);
            let v = site.value as u32;
            put32(bytes, at, if kind == R_RISCV_ADD32 { old.wrapping_add(v) } else { old.wrapping_sub(v) })
        }
        R_RISCV_ADD64 | R_RISCV_SUB64 => {
            let old = u64::from_le_bytes(*window(bytes, at)?);
            let v = site.value;
            put64(bytes, at, if kind == R_RISCV_ADD64 { old.wrapping_add(v) } else { old.wrapping_sub(v) })
        }
        R_RISCV_CALL | R_RISCV_CALL_PLT => {
            patch_high(bytes, at, distance)?;
            patch_low(bytes, at + 4, distance)
        }
        R_RISCV_PCREL_HI20 => patch_high(bytes, at, distance),
        R_RISCV_GOT_HI20 => patch_high(bytes, at, site.slot()?.wrapping_sub(site.place) as i64),
        R_RISCV_PCREL_LO12_I => patch_low(bytes, at, distance),
        R_RISCV_PCREL_LO12_S => {
            let v = distance as u32;
            patch32(bytes, at, 0x7f << 25 | 0x1f << 7, ((v >> 5) & 0x7f) << 25 | (v & 0x1f) << 7)
        }
        R_RISCV_BRANCH => {
            let v = fit(distance, 13)? as u32;
            let bits = ((v >> 12) & 1) << 31 | ((v >> 5) & 0x3f) << 25 | ((v >> 1) & 0xf) << 8 | ((v >> 11) & 1) << 7;
            patch32(bytes, at, 0xfe00_0f80, bits)
        }
        R_RISCV_JAL => {
            let v = fit(distance, 21)? as u32;
            let bits = ((v >> 20) & 1) << 31 | ((v >> 1) & 0x3ff) << 21 | ((v >> 11) & 1) << 20 | (v & 0xff000);
            patch32(bytes, at, 0xffff_f000, bits)
        }
        R_RISCV_RVC_BRANCH => {
            let v = fit(distance, 9)? as u16;
            let bits = ((v >> 8) & 1) << 12
                | ((v >> 3) & 3) << 10
                | ((v >> 6) & 3) << 5
                | ((v >> 1) & 3) << 3
                | ((v >> 5) & 1) << 2;
            patch16(bytes, at, 0x1c7c, bits)
        }
        R_RISCV_RVC_JUMP => {
            let v = fit(distance, 12)? as u16;
            let bits = ((v >> 11) & 1) << 12
                | ((v >> 4) & 1) << 11
                | ((v >> 8) & 3) << 9
                | ((v >> 10) & 1) << 8
                | ((v >> 6) & 1) << 7
                | ((v >> 7) & 1) << 6
                | ((v >> 1) & 7) << 3
                | ((v >> 5) & 1) << 2;
            patch16(bytes, at, 0x1ffc, bits)
        }
        _ => Err(format!("relocation type {kind}")),
    }
}

fn patch16(bytes: &mut [u8], at: usize, mask: u16, v: u16) -> Result<(), String> {
    let old = u16::from_le_bytes(*window(bytes, at)?);
    put16(bytes, at, (old & !mask) | v)
}

/// The upper 20 bits, rounded so that the signed low part completes them.
fn patch_high(bytes: &mut [u8], at: usize, v: i64) -> Result<(), String> {
    let high = fit(v + 0x800, 32)? as u32;
    patch32(bytes, at, 0xffff_f000, high)
}

fn patch_low(bytes: &mut [u8], at: usize, v: i64) -> Result<(), String> {
    patch32(bytes, at, 0xfff0_0000, (v as u32) << 20)
}

/// `auipc t3, slot; ld t3, slot(t3); jalr t1, t3; nop`.
pub fn stub(stub: u64, slot: u64) -> Result<[u8; STUB as usize], String> {
    let mut code = [0; STUB as usize];
    for (i, word) in [0x0000_0e17u32, 0x000e_3e03, 0x000e_0367, 0x0000_0013].into_iter().enumerate() {
        put32(&mut code, i * 4, word)?;
    }
    let distance = slot.wrapping_sub(stub) as i64;
    patch_high(&mut code, 0, distance)?;
    patch_low(&mut code, 4, distance)?;
    Ok(code)
}
