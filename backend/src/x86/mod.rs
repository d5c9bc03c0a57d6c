//! Kernels for x86-64 with 256-bit or 512-bit vectors, assembled directly.
//!
//! Cranelift has 128-bit vectors only. A kernel in flat form that keeps to float32, float64, int32, masks, pointers and int64
//! indices (in memory also to floats of 16 bits, bytes and int64) is translated here to instructions over virtual registers ([`build`]), loses
//! loads that multiplications make themselves ([`fold`]), gets registers by linear scan ([`alloc`]) and is encoded with iced ([`emit`]). The code has no relocations: constants stand behind it. Whatever
//! falls outside is refused, and the caller schedules that kernel for Cranelift instead.

mod alloc;
mod build;
mod emit;
mod fold;
mod inst;
#[cfg(test)]
mod tests;

use crate::target::Target;
use build::Held;
use relax_ir::flat::{Assembled, FlatFunc, FlatStmt};
use target_lexicon::Architecture;

/// What the processor can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wide {
    /// float32 lanes of a register: 8 or 16.
    pub lanes: u16,
    /// Vector registers.
    pub registers: u8,
    /// Multiplies four pairs of bytes at a time.
    pub dot4: bool,
    /// And tiles of them.
    pub tiles: bool,
    /// Multiplies two vectors a cycle, see [`Target::multiplies_twice`].
    pub twice: bool,
    /// Tiles of few rows are the faster ones, see [`Target::reads_few_ahead`].
    pub short_tiles: bool,
}

impl Wide {
    /// `None` where Cranelift has to do.
    pub fn of(target: &Target) -> Option<Wide> {
        if target.triple.architecture != Architecture::X86_64 {
            return None;
        }
        let has = |all: &[&str]| all.iter().all(|f| target.has(f));
        if !has(&["avx2", "fma"]) {
            return None;
        }
        // F16C, which Cranelift does not know, came before AVX2 and is in every processor with that and FMA.
        let full = has(&["avx512f", "avx512vl", "avx512dq"]);
        let dot4 = full && target.has("avx512vnni");
        let tiles = dot4 && target.has("amx-int8");
        let twice = full && target.multiplies_twice();
        let short_tiles = twice && target.reads_few_ahead();
        let (lanes, registers) = if full { (16, 32) } else { (8, 16) };
        Some(Wide { lanes, registers, dot4, tiles, twice, short_tiles })
    }

    /// AVX2 and FMA.
    pub const V3: Wide = Wide { lanes: 8, registers: 16, dot4: false, tiles: false, twice: false, short_tiles: false };
    /// AVX-512. Made for servers: tiles for two multiplications a cycle read less for each of them, which processors with
    /// one do not wait for either.
    pub const V4: Wide = Wide { lanes: 16, registers: 32, dot4: false, tiles: false, twice: true, short_tiles: false };

    pub fn vector_bytes(&self) -> u32 {
        self.lanes as u32 * 4
    }

    fn evex(&self) -> bool {
        self.registers == 32
    }
}

/// As instructions over virtual registers; `over` as for [`build::build`].
fn translated(f: &FlatFunc, wide: Wide, held: Held, over: &[u32]) -> Option<inst::Program> {
    let mut program = build::build(f, wide, held, over)?;
    if wide.evex() {
        fold::spreads(&mut program);
    }
    Some(program)
}

/// The machine code of a kernel (System V calling convention), or `None` for what only Cranelift can compile.
pub fn assemble(f: &FlatFunc, wide: Wide) -> Option<Assembled> {
    let program = translated(f, wide, Held::Always, &[])?;
    if let Some(places) = alloc::in_registers(&program, wide) {
        return emit::emit(&program, &places, wide);
    }
    for held in [Held::Runs, Held::Loops] {
        if let Some((program, places)) = in_loops(f, wide, held) {
            return emit::emit(&program, &places, wide);
        }
    }
    emit::emit(&program, &alloc::spilling(&program, wide)?, wide)
}

/// How often a kernel is translated to find out which loops have registers for their constants, and how many instructions
/// that may be in all.
const TRIES: usize = 64;
const TRIED: usize = 500_000;

/// With constants in registers over loops as large as there are registers for.
fn in_loops(f: &FlatFunc, wide: Wide, held: Held) -> Option<(inst::Program, alloc::Places)> {
    let fits = |over: &[u32]| {
        let program = translated(f, wide, held, over)?;
        let places = alloc::in_registers(&program, wide)?;
        Some((program, places))
    };
    let mut over = innermost(&f.body);
    let mut best = match fits(&over) {
        Some(all) => all,
        None => {
            over.clear();
            fits(&over)?
        }
    };
    let mut tries = TRIES.min(TRIED / best.0.code.len().max(1));
    hold(&f.body, &mut over, &mut tries, &mut |over| fits(over).map(|b| best = b).is_some());
    Some(best)
}

/// Adds the outermost loops to `over` for which there are registers.
fn hold(body: &[FlatStmt], over: &mut Vec<u32>, tries: &mut usize, fits: &mut dyn FnMut(&[u32]) -> bool) {
    for s in body {
        match s {
            FlatStmt::For { var, body, .. } if !over.contains(&var.id()) && *tries > 0 => {
                *tries -= 1;
                over.push(var.id());
                if !fits(over) {
                    over.pop();
                    hold(body, over, tries, fits);
                }
            }
            FlatStmt::If { then, otherwise, .. } => {
                hold(then, over, tries, fits);
                hold(otherwise, over, tries, fits);
            }
            _ => {}
        }
    }
}

/// The variables of loops without loops in them.
fn innermost(body: &[FlatStmt]) -> Vec<u32> {
    let mut out = vec![];
    for s in body {
        match s {
            FlatStmt::For { var, body, .. } => match innermost(body) {
                inner if inner.is_empty() => out.push(var.id()),
                inner => out.extend(inner),
            },
            FlatStmt::If { then, otherwise, .. } => {
                out.extend(innermost(then));
                out.extend(innermost(otherwise));
            }
            _ => {}
        }
    }
    out
}
