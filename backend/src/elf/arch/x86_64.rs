//! x86-64 (System V ABI, small PIC model).

use super::{fit, put32, put64, window, Need, Site, STUB};
use crate::elf::input::Reloc;
use object::elf::*;

/// Instructions that reach a slot and can reach the symbol itself instead.
enum Direct {
    /// `mov slot(%rip), reg` becomes `lea symbol(%rip), reg`.
    Load,
    /// `call *slot(%rip)` becomes `addr32 call symbol`.
    Call,
    /// `jmp *slot(%rip)` becomes `jmp symbol; nop`.
    Jump,
}

fn direct(r: &Reloc, data: &[u8]) -> Option<Direct> {
    let at = usize::try_from(r.offset).ok()?;
    let (op, modrm) = (*data.get(at.checked_sub(2)?)?, *data.get(at - 1)?);
    if r.addend != -4 {
        return None;
    }
    match (op, modrm) {
        (0x8b, m) if m & 0xc7 == 0x05 => Some(Direct::Load),
        (0xff, 0x15) => Some(Direct::Call),
        (0xff, 0x25) => Some(Direct::Jump),
        _ => None,
    }
}

pub fn need(r: &Reloc, data: &[u8]) -> Need {
    match r.kind {
        R_X86_64_NONE => Need::Nothing,
        R_X86_64_64 => Need::Pointer,
        R_X86_64_PC64 => Need::Value,
        R_X86_64_PC32 | R_X86_64_PLT32 => Need::Call,
        R_X86_64_GOTPCREL | R_X86_64_GOTPCRELX | R_X86_64_REX_GOTPCRELX => match direct(r, data) {
            Some(_) => Need::SlotUnlessLocal,
            None => Need::Slot,
        },
        _ => Need::Unsupported,
    }
}

pub fn apply(r: &Reloc, bytes: &mut [u8], at: usize, site: &Site) -> Result<(), String> {
    match r.kind {
        R_X86_64_NONE => Ok(()),
        R_X86_64_64 => put64(bytes, at, site.value),
        R_X86_64_PC64 => put64(bytes, at, site.distance() as u64),
        R_X86_64_PC32 | R_X86_64_PLT32 => put32(bytes, at, fit(site.distance(), 32)? as u32),
        R_X86_64_GOTPCREL | R_X86_64_GOTPCRELX | R_X86_64_REX_GOTPCRELX => {
            if let Some(slot) = site.slot {
                return put32(bytes, at, fit(slot.wrapping_sub(site.place) as i64, 32)? as u32);
            }
            let distance = fit(site.distance(), 32)?;
            match direct(r, bytes).ok_or("no slot was reserved")? {
                Direct::Load => {
                    window::<1>(bytes, at - 2)?[0] = 0x8d;
                    put32(bytes, at, distance as u32)
                }
                Direct::Call => {
                    *window(bytes, at - 2)? = [0x67, 0xe8];
                    put32(bytes, at, distance as u32)
                }
                Direct::Jump => {
                    window::<1>(bytes, at - 2)?[0] = 0xe9;
                    // The displacement moves one byte forward, and counts from one byte earlier.
                    put32(bytes, at - 1, fit(distance + 1, 32)? as u32)?;
                    window::<1>(bytes, at + 3)?[0] = 0x90;
                    Ok(())
                }
            }
        }
        _ => Err(format!("relocation type {}", r.kind)),
    }
}

/// `jmp *slot(%rip)`.
pub fn stub(stub: u64, slot: u64) -> Result<[u8; STUB as usize], String> {
    let mut code = [0xcc; STUB as usize];
    code[0] = 0xff;
    code[1] = 0x25;
    put32(&mut code, 2, fit(slot.wrapping_sub(stub + 6) as i64, 32)? as u32)?;
    Ok(code)
}
