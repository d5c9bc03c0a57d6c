//! What differs between architectures: relocations and linkage stubs.

mod aarch64;
mod riscv64;
mod x86_64;

use super::input::Reloc;
use object::elf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    X86_64,
    Aarch64,
    Riscv64,
}

/// What a relocation asks of the linker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A hint, or nothing at all.
    Nothing,
    /// The distance to the symbol.
    Value,
    /// The distance to the symbol, or to a stub that jumps there.
    Call,
    /// The distance to the symbol's slot in the global offset table.
    Slot,
    /// The same, but the instruction can be rewritten to reach a symbol of this library directly.
    SlotUnlessLocal,
    /// The symbol's address, known when the library is loaded.
    Pointer,
    Unsupported,
}

/// A relocation with everything placed.
pub struct Site {
    /// The address of the bytes to patch.
    pub place: u64,
    /// The address of the symbol or its stub, addend included.
    pub value: u64,
    /// The address of the symbol's slot, addend included; `None` when it has none.
    pub slot: Option<u64>,
}

impl Site {
    fn distance(&self) -> i64 {
        self.value.wrapping_sub(self.place) as i64
    }
    fn slot(&self) -> Result<u64, String> {
        self.slot.ok_or_else(|| "no slot was reserved".to_string())
    }
}

/// Bytes of a linkage stub.
pub const STUB: u64 = 16;

impl Arch {
    pub fn from_machine(machine: u16) -> Option<Arch> {
        match machine {
            elf::EM_X86_64 => Some(Arch::X86_64),
            elf::EM_AARCH64 => Some(Arch::Aarch64),
            elf::EM_RISCV => Some(Arch::Riscv64),
            _ => None,
        }
    }

    pub fn machine(self) -> u16 {
        match self {
            Arch::X86_64 => elf::EM_X86_64,
            Arch::Aarch64 => elf::EM_AARCH64,
            Arch::Riscv64 => elf::EM_RISCV,
        }
    }

    /// The largest page that a kernel of this architecture uses.
    pub fn page(self) -> u64 {
        match self {
            Arch::Aarch64 => 0x10000,
            Arch::X86_64 | Arch::Riscv64 => 0x1000,
        }
    }

    /// Dynamic relocation types: the library's own address plus addend, an offset table slot, a pointer to an import,
    /// what a resolver of the library returns.
    pub fn dynamic_types(self) -> (u32, u32, u32, u32) {
        match self {
            Arch::X86_64 => (elf::R_X86_64_RELATIVE, elf::R_X86_64_GLOB_DAT, elf::R_X86_64_64, elf::R_X86_64_IRELATIVE),
            Arch::Aarch64 => {
                (elf::R_AARCH64_RELATIVE, elf::R_AARCH64_GLOB_DAT, elf::R_AARCH64_ABS64, elf::R_AARCH64_IRELATIVE)
            }
            Arch::Riscv64 => (elf::R_RISCV_RELATIVE, elf::R_RISCV_64, elf::R_RISCV_64, elf::R_RISCV_IRELATIVE),
        }
    }

    /// `data` is the section that holds the relocation.
    pub fn need(self, r: &Reloc, data: &[u8]) -> Need {
        match self {
            Arch::X86_64 => x86_64::need(r, data),
            Arch::Aarch64 => aarch64::need(r.kind),
            Arch::Riscv64 => riscv64::need(r.kind),
        }
    }

    /// Patches `bytes` (a section) at `r.offset`.
    pub fn apply(self, r: &Reloc, bytes: &mut [u8], site: &Site) -> Result<(), String> {
        let at = usize::try_from(r.offset).map_err(|e| e.to_string())?;
        match self {
            Arch::X86_64 => x86_64::apply(r, bytes, at, site),
            Arch::Aarch64 => aarch64::apply(r.kind, bytes, at, site),
            Arch::Riscv64 => riscv64::apply(r.kind, bytes, at, site),
        }
    }

    /// Whether the relocation continues the one at the label that it names (RISC-V's low parts).
    pub fn continues(self, kind: u32) -> bool {
        self == Arch::Riscv64 && matches!(kind, elf::R_RISCV_PCREL_LO12_I | elf::R_RISCV_PCREL_LO12_S)
    }

    /// The stub at address `stub` that jumps through the slot at `slot`.
    pub fn stub(self, stub: u64, slot: u64) -> Result<[u8; STUB as usize], String> {
        match self {
            Arch::X86_64 => x86_64::stub(stub, slot),
            Arch::Aarch64 => aarch64::stub(stub, slot),
            Arch::Riscv64 => riscv64::stub(stub, slot),
        }
    }
}

const FAR: &str = "is out of reach";

/// `v` in `bits` bits, signed.
fn fit(v: i64, bits: u32) -> Result<i64, String> {
    let limit = 1i64 << (bits - 1);
    if (-limit..limit).contains(&v) {
        Ok(v)
    } else {
        Err(FAR.to_string())
    }
}

/// Whether an error of [`Arch::apply`] means that the library is too large.
pub fn is_far(error: &str) -> bool {
    error == FAR
}

fn window<const N: usize>(bytes: &mut [u8], at: usize) -> Result<&mut [u8; N], String> {
    bytes
        .get_mut(at..)
        .and_then(|b| b.first_chunk_mut::<N>())
        .ok_or_else(|| "a relocation lies outside its section".to_string())
}

fn put16(bytes: &mut [u8], at: usize, v: u16) -> Result<(), String> {
    *window(bytes, at)? = v.to_le_bytes();
    Ok(())
}

fn put32(bytes: &mut [u8], at: usize, v: u32) -> Result<(), String> {
    *window(bytes, at)? = v.to_le_bytes();
    Ok(())
}

fn put64(bytes: &mut [u8], at: usize, v: u64) -> Result<(), String> {
    *window(bytes, at)? = v.to_le_bytes();
    Ok(())
}

/// Replaces the bits of `mask` in the instruction word at `at`.
fn patch32(bytes: &mut [u8], at: usize, mask: u32, v: u32) -> Result<(), String> {
    let word = window::<4>(bytes, at)?;
    *word = ((u32::from_le_bytes(*word) & !mask) | (v & mask)).to_le_bytes();
    Ok(())
}
