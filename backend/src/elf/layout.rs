//! Gives every kept section, and every section of our own, its place in the file and in memory.
//!
//! The file has no gaps: a segment starts where the last one ended, on the next page of memory with the same offset
//! in the page.

use super::arch::STUB;
use super::dynamic::{dynamic, Dynamic, Strings};
use super::fault;
use super::input::{Input, Place, SectionId, SymbolId};
use super::resolve::{Kind, Linked};
use object::elf::*;
use relax_ir::Diagnostic;

/// Output sections, in order of the file; the index is the section header's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    Null,
    BuildId,
    GnuHash,
    Hash,
    DynSym,
    DynStr,
    Rela,
    ReadOnly,
    Plt,
    Text,
    Relocated,
    Dynamic,
    Got,
    Zero,
    SymTab,
    StrTab,
    ShStrTab,
}

pub struct Output {
    pub part: Part,
    pub name: &'static str,
    pub kind: u32,
    pub flags: u64,
    pub address: u64,
    pub offset: u64,
    pub size: u64,
    pub align: u64,
    pub entry: u64,
}

/// A loaded range.
#[derive(Clone, Copy)]
pub struct Segment {
    pub flags: u32,
    pub offset: u64,
    pub address: u64,
    pub file_size: u64,
    pub memory_size: u64,
}

impl Segment {
    /// Whether it asks the loader to begin at a large page, so that the system can map its weights by large pages of the
    /// file, where it keeps some. File systems of containers (overlayfs) do not choose such a place themselves. Costs
    /// nothing in the file: such a segment is at its beginning.
    pub fn in_large_pages(&self) -> bool {
        self.file_size >= LARGE_PAGE && self.offset == 0 && self.address == 0
    }
}

pub struct Layout {
    pub outputs: Vec<Output>,
    pub segments: Vec<Segment>,
    /// What is protected after relocation.
    pub protected: Option<Segment>,
    pub program_headers: u64,
    /// Per input section: its address, when kept.
    pub address: Vec<Option<u64>>,
    pub dynamic: Dynamic,
    pub needed: Option<u32>,
    pub soname: u32,
    /// Dynamic relocations: place, kind of entry.
    pub relocs: Vec<(u64, DynReloc)>,
    /// The symbol table for debuggers, local symbols first.
    pub symtab: Vec<LocalSymbol>,
    pub strtab: Strings,
    pub file_size: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DynReloc {
    /// The library's base plus this.
    Relative(u64),
    /// What the resolver at the library's base plus this returns.
    Indirect(u64),
    /// The address of an import, in the offset table.
    Slot(SymbolId),
    /// The address of an import plus an addend, in data.
    Import(SymbolId, i64),
}

pub struct LocalSymbol {
    pub symbol: SymbolId,
    pub name: u32,
    pub global: bool,
}

impl Layout {
    pub fn output(&self, part: Part) -> Option<(usize, &Output)> {
        self.outputs.iter().enumerate().find(|(_, o)| o.part == part)
    }

    pub fn address_of(&self, part: Part) -> u64 {
        self.output(part).map_or(0, |(_, o)| o.address)
    }

    /// The address of a defined symbol.
    pub fn symbol(&self, input: &Input, id: SymbolId) -> Option<u64> {
        match input.symbols[id].place {
            Place::Section(section, offset) => Some(self.address[section]?.wrapping_add(offset)),
            Place::Absolute(v) => Some(v),
            Place::Undefined => None,
        }
    }

    /// The output section that holds an address; the end of one that another does not follow counts.
    pub fn holder(&self, address: u64) -> Option<usize> {
        let find = |end: u64| {
            (self.outputs.iter()).position(|o| {
                o.flags & SHF_ALLOC as u64 != 0 && (o.address..o.address + o.size + end).contains(&address)
            })
        };
        find(0).or_else(|| find(1))
    }
}

/// What x86-64, AArch64 and RISC-V map at once where memory lies together, in bytes.
pub const LARGE_PAGE: u64 = 2 << 20;
pub const EHDR: u64 = 64;
pub const PHDR: u64 = 56;
pub const SHDR: u64 = 64;
/// Name and descriptor of the build id note.
pub const NOTE: u64 = 16 + 16;

pub fn layout(input: &Input, linked: &Linked, soname: &str) -> Result<Layout, Diagnostic> {
    let mut dynamic = dynamic(input, linked);
    let needed = (!linked.imports.is_empty()).then(|| dynamic.strings.add("libc.so.6"));
    let soname = dynamic.strings.add(soname);

    let mut address: Vec<Option<u64>> = vec![None; input.sections.len()];
    let of = |kind: Kind| linked.live.iter().filter(move |l| l.1 == kind).map(|l| l.0).collect::<Vec<SectionId>>();
    let mut read_only = of(Kind::ReadOnly);
    // Large constants last: code stays near what it uses most.
    read_only.sort_by_key(|&id| (input.sections[id].data.len() as u64) > 1 << 20);
    let groups = [(Part::ReadOnly, read_only), (Part::Text, of(Kind::Code)), (Part::Relocated, of(Kind::Relocated))];
    let group = |part: Part| groups.iter().find(|g| g.0 == part).map_or(&[][..], |g| &g.1);

    let pointers = (linked.pointers.iter())
        .filter(|(s, r)| {
            let symbol = linked.target[input.sections[*s].relocs[*r].symbol];
            !matches!(input.symbols[symbol].place, Place::Absolute(_))
        })
        .count();
    let rela = (linked.got.len() + pointers) as u64 * 24;
    let ends = linked.ahead.is_some() as u64 + linked.rest.is_some() as u64;
    let dynamic_entries = 7 + 2 + 1 + needed.is_some() as u64 + ends + if rela > 0 { 4 } else { 0 };

    let mut outputs = vec![Output {
        part: Part::Null,
        name: "",
        kind: SHT_NULL,
        flags: 0,
        address: 0,
        offset: 0,
        size: 0,
        align: 0,
        entry: 0,
    }];
    let alloc = SHF_ALLOC as u64;
    let (exec, write) = (alloc | SHF_EXECINSTR as u64, alloc | SHF_WRITE as u64);
    let symbols = (dynamic.symbols.len() as u64 + 1) * 24;
    // (part, name, type, flags, size when it is ours, alignment, entry size)
    let plan: [(Part, &str, u32, u64, u64, u64, u64); 12] = [
        (Part::BuildId, ".note.gnu.build-id", SHT_NOTE, alloc, NOTE, 4, 0),
        (Part::GnuHash, ".gnu.hash", SHT_GNU_HASH, alloc, dynamic.gnu_hash.len() as u64, 8, 0),
        (Part::Hash, ".hash", SHT_HASH, alloc, dynamic.hash.len() as u64, 8, 4),
        (Part::DynSym, ".dynsym", SHT_DYNSYM, alloc, symbols, 8, 24),
        (Part::DynStr, ".dynstr", SHT_STRTAB, alloc, dynamic.strings.bytes.len() as u64, 1, 0),
        (Part::Rela, ".rela.dyn", SHT_RELA, alloc, rela, 8, 24),
        (Part::ReadOnly, ".rodata", SHT_PROGBITS, alloc, 0, 1, 0),
        (Part::Plt, ".plt", SHT_PROGBITS, exec, linked.plt.len() as u64 * STUB, 16, STUB),
        (Part::Text, ".text", SHT_PROGBITS, exec, 0, 1, 0),
        (Part::Relocated, ".data.rel.ro", SHT_PROGBITS, write, 0, 1, 0),
        (Part::Dynamic, ".dynamic", SHT_DYNAMIC, write, dynamic_entries * 16, 8, 16),
        (Part::Got, ".got", SHT_PROGBITS, write, linked.got.len() as u64 * 8, 8, 8),
    ];
    let present = |part: Part, size: u64| size > 0 || group(part).iter().any(|s| input.sections[*s].data.len() > 0);
    let has_text = plan.iter().any(|p| p.3 == exec && present(p.0, p.4));
    let zeros = of(Kind::Zero);
    // Loads, then DYNAMIC, NOTE, GNU_STACK, GNU_RELRO.
    let program_headers = 2 + has_text as u64 + !zeros.is_empty() as u64 + 4;

    let page = input.arch.page();
    let mut offset = EHDR + PHDR * program_headers;
    let mut bias = 0;
    let mut segments: Vec<Segment> =
        vec![Segment { flags: PF_R, offset: 0, address: 0, file_size: offset, memory_size: offset }];
    let mut current = alloc;
    for (part, name, kind, flags, size, mut align, entry) in plan {
        if !present(part, size) {
            continue;
        }
        if flags != current {
            // The next page of memory, same place in the page.
            current = flags;
            bias += page;
            let p = if flags == exec { PF_R | PF_X } else { PF_R | PF_W };
            segments.push(Segment { flags: p, offset, address: offset + bias, file_size: 0, memory_size: 0 });
        }
        for &id in group(part) {
            let a = input.sections[id].align;
            if !a.is_power_of_two() || a > page {
                return Err(fault(format!("section {} is aligned to {a}", input.sections[id].name)));
            }
            align = align.max(a);
        }
        offset = offset.next_multiple_of(align);
        let start = offset;
        for &id in group(part) {
            offset = offset.next_multiple_of(input.sections[id].align);
            address[id] = Some(offset + bias);
            offset += input.sections[id].data.len() as u64;
        }
        offset += size;
        outputs.push(Output {
            part,
            name,
            kind,
            flags,
            address: start + bias,
            offset: start,
            size: offset - start,
            align,
            entry,
        });
        if let Some(s) = segments.last_mut() {
            s.file_size = offset - s.offset;
            s.memory_size = s.file_size;
        }
    }
    // The last segment of the file is protected after relocation: whole pages.
    if let Some(s) = segments.last_mut() {
        s.memory_size = (s.address + s.memory_size).next_multiple_of(page) - s.address;
    }
    let protected = segments.last().copied();
    // Behind it, pages of zeros.
    if let Some(last) = protected.filter(|_| !zeros.is_empty()) {
        let start = last.address + last.memory_size;
        let (mut end, mut align) = (start, 1);
        for &id in &zeros {
            let section = &input.sections[id];
            end = end.next_multiple_of(section.align);
            address[id] = Some(end);
            end += section.zeros;
            align = align.max(section.align);
        }
        let (size, offset_of_page) = (end - start, offset - offset % page);
        outputs.push(Output {
            part: Part::Zero,
            name: ".bss",
            kind: SHT_NOBITS,
            flags: write,
            address: start,
            offset,
            size,
            align,
            entry: 0,
        });
        let (flags, offset) = (PF_R | PF_W, offset_of_page);
        segments.push(Segment { flags, offset, address: start, file_size: 0, memory_size: size });
    }

    let mut strtab = Strings::new();
    let symtab = local_symbols(input, linked, &address, &mut strtab);
    let names: u64 = outputs.iter().map(|o| o.name.len() as u64 + 1).sum();
    let tail = [
        (Part::SymTab, ".symtab", SHT_SYMTAB, (symtab.len() as u64 + 1) * 24, 8, 24),
        (Part::StrTab, ".strtab", SHT_STRTAB, strtab.bytes.len() as u64, 1, 0),
        (Part::ShStrTab, ".shstrtab", SHT_STRTAB, names + 8 + 8 + 10, 1, 0),
    ];
    for (part, name, kind, size, align, entry) in tail {
        offset = offset.next_multiple_of(align);
        outputs.push(Output { part, name, kind, flags: 0, address: 0, offset, size, align, entry });
        offset += size;
    }
    let file_size = offset.next_multiple_of(8) + SHDR * outputs.len() as u64;

    let mut layout = Layout {
        outputs,
        segments,
        protected,
        program_headers,
        address,
        dynamic,
        needed,
        soname,
        relocs: vec![],
        symtab,
        strtab,
        file_size,
    };
    layout.relocs = relocs(input, linked, &layout)?;
    debug_assert_eq!(layout.relocs.len() as u64 * 24, rela);
    Ok(layout)
}

/// Named functions and objects, local ones first.
fn local_symbols(input: &Input, linked: &Linked, address: &[Option<u64>], strtab: &mut Strings) -> Vec<LocalSymbol> {
    let mut list = vec![];
    let mut exported = vec![false; input.symbols.len()];
    linked.exports.iter().for_each(|&id| exported[id] = true);
    for global in [false, true] {
        for (id, s) in input.symbols.iter().enumerate() {
            let Place::Section(section, _) = s.place else { continue };
            let kept = address[section].is_some() && linked.target[id] == id;
            let named = !s.name.is_empty()
                && !s.name.starts_with(".L")
                && matches!(s.kind, STT_FUNC | STT_OBJECT | STT_GNU_IFUNC);
            if kept && named && exported[id] == global {
                list.push(LocalSymbol { symbol: id, name: strtab.add(s.name), global });
            }
        }
    }
    list
}

/// Base-relative ones first, those that run code of the library last, each kind by address.
fn relocs(input: &Input, linked: &Linked, layout: &Layout) -> Result<Vec<(u64, DynReloc)>, Diagnostic> {
    let mut list = vec![];
    let got = layout.address_of(Part::Got);
    for (i, &symbol) in linked.got.iter().enumerate() {
        let what = match layout.symbol(input, symbol) {
            Some(address) if linked.is_indirect(input, symbol) => DynReloc::Indirect(address),
            Some(address) => DynReloc::Relative(address),
            None => DynReloc::Slot(symbol),
        };
        list.push((got + i as u64 * 8, what));
    }
    for &(section, index) in &linked.pointers {
        let r = &input.sections[section].relocs[index];
        let symbol = linked.target[r.symbol];
        let base = layout.address[section].ok_or_else(|| fault("a kept section has no place"))?;
        let what = match (input.symbols[symbol].place, layout.symbol(input, symbol)) {
            (Place::Absolute(_), _) => continue,
            (_, Some(address)) if linked.is_indirect(input, symbol) && r.addend == 0 => DynReloc::Indirect(address),
            (_, Some(address)) => DynReloc::Relative(address.wrapping_add_signed(r.addend)),
            (_, None) => DynReloc::Import(symbol, r.addend),
        };
        list.push((base + r.offset, what));
    }
    let turn = |what: &DynReloc| match what {
        DynReloc::Relative(_) => 0,
        DynReloc::Slot(_) | DynReloc::Import(..) => 1,
        DynReloc::Indirect(_) => 2,
    };
    list.sort_by_key(|(place, what)| (turn(what), *place));
    Ok(list)
}
