//! Binds symbols by name, keeps what the exports reach, and finds out what the kept relocations need: offset table
//! slots, linkage stubs, relocations when the library is loaded.

use super::arch::Need;
use super::fault;
use super::input::{Input, Place, SectionId, SymbolId};
use object::elf;
use relax_ir::Diagnostic;
use std::collections::BTreeMap;

/// The C library's functions that a library may leave undefined.
const LIBC: [&str; 31] = [
    "_setjmp",
    "abort",
    "aligned_alloc",
    "calloc",
    "close",
    "dl_iterate_phdr",
    "free",
    "longjmp",
    "madvise",
    "malloc",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "mmap",
    "munmap",
    "nanosleep",
    "open",
    "printf",
    "pthread_cond_broadcast",
    "pthread_cond_wait",
    "pthread_create",
    "pthread_join",
    "pthread_setaffinity_np",
    "pthread_sigmask",
    "putchar",
    "sched_getaffinity",
    "sched_getcpu",
    "sched_yield",
    "strlen",
    "syscall",
];
/// The sections that stay writable, where the runtime notes the threads that it has started and the workspaces that it
/// keeps, and what ends or frees them before the library is unloaded. The first one's does so for both.
pub const WRITABLE: [(&str, &str); 2] =
    [(".bss.relax_rt_teams", "relax_rt_rest"), (".bss.relax_rt_kept", "relax_rt_forget")];
/// Finds the pages of weights when the library is loaded, where there are as many bytes of them.
pub const AHEAD: &str = "relax_rt_ahead";
pub const AHEAD_FROM: u64 = 1 << 20;

/// Where a kept section goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    ReadOnly,
    Code,
    /// Holds pointers: written once when the library is loaded.
    Relocated,
    /// [`WRITABLE`]: all zero when the library is loaded.
    Zero,
}

pub struct Linked {
    /// Per symbol: the symbol that defines it (itself unless another file does).
    pub target: Vec<SymbolId>,
    /// Kept sections in input order.
    pub live: Vec<(SectionId, Kind)>,
    /// Dynamic symbols: exports in the caller's order.
    pub exports: Vec<SymbolId>,
    /// What runs when the library is loaded.
    pub ahead: Option<SymbolId>,
    /// What runs before the library is unloaded.
    pub rest: Option<SymbolId>,
    /// Undefined symbols in use, by name.
    pub imports: Vec<SymbolId>,
    /// Symbols with a slot in the global offset table, in order of first use.
    pub got: Vec<SymbolId>,
    /// Imports and indirect functions that are called through a stub; each has a slot, too.
    pub plt: Vec<SymbolId>,
    /// Per symbol: its place in `got` and in `plt`.
    pub slot: Vec<Option<u32>>,
    pub stub: Vec<Option<u32>>,
    /// Absolute pointers in kept sections: section, index of the relocation.
    pub pointers: Vec<(SectionId, usize)>,
}

impl Linked {
    pub fn is_import(&self, input: &Input, symbol: SymbolId) -> bool {
        input.symbols[symbol].place == Place::Undefined
    }

    /// Whether the symbol is a resolver: a function that returns where the function is.
    pub fn is_indirect(&self, input: &Input, symbol: SymbolId) -> bool {
        input.symbols[symbol].kind == elf::STT_GNU_IFUNC && !self.is_import(input, symbol)
    }
}

pub fn resolve(input: &Input, exports: &[String]) -> Result<Linked, Diagnostic> {
    // Name -> definition, strong before weak, else the first undefined reference.
    let mut by_name: BTreeMap<&str, SymbolId> = BTreeMap::new();
    for (id, s) in input.symbols.iter().enumerate() {
        if !s.global || s.name.is_empty() {
            continue;
        }
        let Some(&old) = by_name.get(s.name) else {
            by_name.insert(s.name, id);
            continue;
        };
        let o = &input.symbols[old];
        if s.place == Place::Undefined {
            continue;
        }
        if o.place == Place::Undefined || (o.weak && !s.weak) {
            by_name.insert(s.name, id);
        } else if !s.weak && !o.weak {
            return Err(fault(format!("`{}` is defined twice", s.name)));
        }
    }
    let target: Vec<SymbolId> = (input.symbols.iter().enumerate())
        .map(|(id, s)| if s.global { by_name.get(s.name).copied().unwrap_or(id) } else { id })
        .collect();

    let mut roots = vec![];
    for name in exports {
        match by_name.get(name.as_str()) {
            Some(&id) if input.symbols[id].place != Place::Undefined => roots.push(id),
            _ => return Err(fault(format!("the exported symbol `{name}` is not defined"))),
        }
    }

    let mut kept = vec![false; input.sections.len()];
    let mut work: Vec<SectionId> = vec![];
    let reach = |symbol: SymbolId, kept: &mut Vec<bool>, work: &mut Vec<SectionId>| {
        if let Place::Section(section, _) = input.symbols[symbol].place {
            if !std::mem::replace(&mut kept[section], true) {
                work.push(section);
            }
        }
    };
    for &root in &roots {
        reach(root, &mut kept, &mut work);
    }
    let (mut rest, mut ahead, mut all) = (None::<(usize, SymbolId)>, None, false);
    loop {
        let Some(section) = work.pop() else {
            if std::mem::replace(&mut all, true) {
                break;
            }
            let bytes = |(id, _): (usize, &bool)| input.sections[id].data.len() as u64;
            let bytes: u64 = kept.iter().enumerate().filter(|(_, kept)| **kept).map(bytes).sum();
            let defined = |id: &SymbolId| input.symbols[*id].place != Place::Undefined;
            ahead = by_name.get(AHEAD).copied().filter(|id| bytes >= AHEAD_FROM && defined(id));
            if let Some(id) = ahead {
                reach(id, &mut kept, &mut work);
            }
            continue;
        };
        let writable = WRITABLE.iter().position(|(name, _)| *name == input.sections[section].name);
        if let Some(which) = writable.filter(|which| rest.is_none_or(|(other, _)| *which < other)) {
            let (name, end) = WRITABLE[which];
            let defined = by_name.get(end).copied().filter(|id| input.symbols[*id].place != Place::Undefined);
            let id = defined.ok_or_else(|| fault(format!("{name} without `{end}`")))?;
            rest = Some((which, id));
            reach(id, &mut kept, &mut work);
        }
        for r in &input.sections[section].relocs {
            if input.arch.need(r, input.sections[section].data.bytes()) != Need::Nothing {
                reach(target[r.symbol], &mut kept, &mut work);
            }
        }
    }

    let mut linked = Linked {
        target,
        live: vec![],
        exports: roots,
        ahead,
        rest: rest.map(|(_, id)| id),
        imports: vec![],
        got: vec![],
        plt: vec![],
        slot: vec![None; input.symbols.len()],
        stub: vec![None; input.symbols.len()],
        pointers: vec![],
    };
    let mut imported: BTreeMap<&str, SymbolId> = BTreeMap::new();
    for (id, section) in input.sections.iter().enumerate().filter(|(id, _)| kept[*id]) {
        let mut kind = kind_of(section.name, section.flags)?;
        for (index, r) in section.relocs.iter().enumerate() {
            let symbol = linked.target[r.symbol];
            let import = linked.is_import(input, symbol);
            let name = input.symbols[symbol].name;
            let need = input.arch.need(r, section.data.bytes());
            if import && need != Need::Nothing {
                if !LIBC.contains(&name) {
                    return Err(fault(format!("`{name}` is used in {} but not defined", section.name)));
                }
                imported.entry(name).or_insert(symbol);
            }
            let (mut wants_slot, mut wants_stub) = (false, false);
            // Where the function is, its resolver tells when the library is loaded.
            let indirect = linked.is_indirect(input, symbol);
            match need {
                Need::Nothing => {}
                Need::Value | Need::Call if !import && !indirect => {}
                Need::Call => (wants_slot, wants_stub) = (true, true),
                Need::Value if indirect => {
                    return Err(fault(format!("`{name}` is reached without an indirection")));
                }
                Need::Value => {
                    return Err(fault(format!("`{name}` of the C library is reached without an indirection")))
                }
                Need::SlotUnlessLocal if !import && !indirect => {}
                Need::Slot | Need::SlotUnlessLocal => wants_slot = true,
                Need::Pointer => {
                    if kind == Kind::Code {
                        return Err(fault(format!("{} needs a relocation in code", section.name)));
                    }
                    kind = Kind::Relocated;
                    linked.pointers.push((id, index));
                }
                Need::Unsupported => {
                    let (kind, name) = (r.kind, section.name);
                    return Err(fault(format!(
                        "relocation type {kind} in {name} is not position-independent or unknown"
                    )));
                }
            }
            if wants_slot && linked.slot[symbol].is_none() {
                linked.slot[symbol] = Some(linked.got.len() as u32);
                linked.got.push(symbol);
            }
            if wants_stub && linked.stub[symbol].is_none() {
                linked.stub[symbol] = Some(linked.plt.len() as u32);
                linked.plt.push(symbol);
            }
        }
        linked.live.push((id, kind));
    }
    linked.imports = imported.into_values().collect();
    Ok(linked)
}

/// Whether a section of this name may be written.
pub fn is_writable(name: &str) -> bool {
    WRITABLE.iter().any(|(writable, _)| *writable == name)
}

fn kind_of(name: &str, flags: u64) -> Result<Kind, Diagnostic> {
    if flags & elf::SHF_EXECINSTR as u64 != 0 {
        return Ok(Kind::Code);
    }
    if flags & elf::SHF_WRITE as u64 == 0 {
        return Ok(Kind::ReadOnly);
    }
    if is_writable(name) {
        return Ok(Kind::Zero);
    }
    if name.starts_with(".data.rel.ro") {
        return Ok(Kind::Relocated);
    }
    Err(fault(format!("section {name} is writable: a library has no writable data")))
}
