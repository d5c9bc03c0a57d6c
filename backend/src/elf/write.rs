//! Writes the file: everything but the constants in memory, these piece by piece.

use super::arch::{is_far, Site, STUB};
use super::fault;
use super::image::Image;
use super::input::{Data, Input, Place, Reloc, SectionId};
use super::layout::*;
use super::resolve::Linked;
use object::elf::*;
use relax_ir::{Constant, Diagnostic, Span};

pub fn write<'c>(input: &Input<'_, 'c>, linked: &Linked, layout: &Layout) -> Result<Image<'c>, Diagnostic> {
    let mut constants: Vec<(u64, &'c Constant)> = vec![];
    for &(id, _) in &linked.live {
        if let Data::Constant(c) = input.sections[id].data {
            constants.push((file_offset(input, layout, id)?, c));
        }
    }
    constants.sort_by_key(|c| c.0);
    let left_out = constants.iter().map(|(_, c)| c.size() as u64).sum();
    let size = usize::try_from(layout.file_size.saturating_sub(left_out)).map_err(|e| fault(e.to_string()))?;
    let mut out = Out { bytes: vec![0; size], at: 0, holes: vec![] };
    let mut left_out = 0;
    for (offset, c) in &constants {
        left_out += c.size();
        out.holes.push((*offset as usize + c.size(), left_out));
    }
    headers(input, layout, &mut out);

    for o in &layout.outputs {
        out.at = o.offset as usize;
        match o.part {
            Part::GnuHash => out.put(&layout.dynamic.gnu_hash),
            Part::Hash => out.put(&layout.dynamic.hash),
            Part::DynStr => out.put(&layout.dynamic.strings.bytes),
            Part::DynSym => {
                out.symbol(0, 0, 0, 0, 0);
                for &(id, name) in &layout.dynamic.symbols {
                    let s = &input.symbols[id];
                    match layout.symbol(input, id) {
                        Some(address) => {
                            let holder = section_index(layout, address);
                            out.symbol(name, STB_GLOBAL << 4 | s.kind, holder, address, s.size);
                        }
                        None => out.symbol(name, STB_GLOBAL << 4 | STT_FUNC, 0, 0, 0),
                    }
                }
            }
            Part::Rela => {
                let (relative, slot, import, indirect) = input.arch.dynamic_types();
                for &(place, what) in &layout.relocs {
                    let index = |id| layout.dynamic.index(id).ok_or_else(|| fault("an import has no dynamic symbol"));
                    let (info, addend) = match what {
                        DynReloc::Relative(v) => (relative as u64, v),
                        DynReloc::Indirect(v) => (indirect as u64, v),
                        DynReloc::Slot(id) => (index(id)? << 32 | slot as u64, 0),
                        DynReloc::Import(id, a) => (index(id)? << 32 | import as u64, a as u64),
                    };
                    out.u64(place);
                    out.u64(info);
                    out.u64(addend);
                }
            }
            Part::Plt => {
                let got = layout.address_of(Part::Got);
                for (i, id) in linked.plt.iter().enumerate() {
                    let slot = linked.slot[*id].unwrap_or(0) as u64 * 8 + got;
                    let stub = input.arch.stub(o.address + i as u64 * STUB, slot).map_err(|e| mend(&e, ".plt"))?;
                    out.put(&stub);
                }
            }
            Part::Dynamic => {
                let rest = linked.rest.and_then(|id| layout.symbol(input, id));
                let ahead = linked.ahead.and_then(|id| layout.symbol(input, id));
                dynamic_entries(layout, [ahead, rest], &mut out)
            }
            Part::SymTab => {
                out.symbol(0, 0, 0, 0, 0);
                for l in &layout.symtab {
                    let s = &input.symbols[l.symbol];
                    let address = layout.symbol(input, l.symbol).unwrap_or(0);
                    let bind = if l.global { STB_GLOBAL } else { STB_LOCAL };
                    out.symbol(l.name, bind << 4 | s.kind, section_index(layout, address), address, s.size);
                }
            }
            Part::StrTab => out.put(&layout.strtab.bytes),
            Part::ShStrTab => {
                for o in &layout.outputs {
                    out.put(o.name.as_bytes());
                    out.put(&[0]);
                }
            }
            // Offset table: the loader fills it. Model sections: below. Build id: last.
            Part::Null | Part::BuildId | Part::ReadOnly | Part::Text | Part::Relocated | Part::Got | Part::Zero => {}
        }
    }

    for &(id, _) in &linked.live {
        place_section(input, linked, layout, id, &mut out)?;
    }
    section_headers(layout, &mut out);
    let build_id = layout.output(Part::BuildId).map(|(_, o)| o.offset);
    if let Some(offset) = build_id {
        out.at = offset as usize;
        out.u32(4);
        out.u32(16);
        out.u32(NT_GNU_BUILD_ID);
        out.put(b"GNU\0");
    }
    Ok(Image { bytes: out.bytes, constants, id: build_id.map(|o| o + 16) })
}

struct Out {
    /// The file without the constants.
    bytes: Vec<u8>,
    /// In the file.
    at: usize,
    /// Ends of the constants in the file, with the bytes that are left out up to there.
    holes: Vec<(usize, usize)>,
}

impl Out {
    /// What is in memory of a range of the file that has no constants.
    fn range(&mut self, at: usize, len: usize) -> Option<&mut [u8]> {
        let before = self.holes.partition_point(|h| h.0 <= at);
        let left_out = before.checked_sub(1).map_or(0, |i| self.holes[i].1);
        let at = at.checked_sub(left_out)?;
        self.bytes.get_mut(at..at.checked_add(len)?)
    }
    fn put(&mut self, b: &[u8]) {
        if let Some(to) = self.range(self.at, b.len()) {
            to.copy_from_slice(b);
        }
        self.at += b.len();
    }
    fn u16(&mut self, v: u16) {
        self.put(&v.to_le_bytes());
    }
    fn u32(&mut self, v: u32) {
        self.put(&v.to_le_bytes());
    }
    fn u64(&mut self, v: u64) {
        self.put(&v.to_le_bytes());
    }
    fn symbol(&mut self, name: u32, info: u8, section: u16, value: u64, size: u64) {
        self.u32(name);
        self.put(&[info, STV_DEFAULT]);
        self.u16(section);
        self.u64(value);
        self.u64(size);
    }
}

fn section_index(layout: &Layout, address: u64) -> u16 {
    layout.holder(address).map_or(SHN_ABS, |i| i as u16)
}

fn headers(input: &Input, layout: &Layout, out: &mut Out) {
    let indirect = layout.relocs.iter().any(|r| matches!(r.1, DynReloc::Indirect(_)));
    let abi = if indirect { ELFOSABI_GNU } else { ELFOSABI_NONE };
    out.put(&ELFMAG);
    out.put(&[ELFCLASS64, ELFDATA2LSB, EV_CURRENT, abi, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.u16(ET_DYN);
    out.u16(input.arch.machine());
    out.u32(EV_CURRENT as u32);
    out.u64(0);
    out.u64(EHDR);
    out.u64(layout.file_size - SHDR * layout.outputs.len() as u64);
    out.u32(input.flags);
    out.u16(EHDR as u16);
    out.u16(PHDR as u16);
    out.u16(layout.program_headers as u16);
    out.u16(SHDR as u16);
    out.u16(layout.outputs.len() as u16);
    out.u16(layout.outputs.len() as u16 - 1);

    let mut header = |kind: u32, flags: u32, s: [u64; 4], align: u64| {
        let [offset, address, file_size, memory_size] = s;
        out.u32(kind);
        out.u32(flags);
        out.u64(offset);
        out.u64(address);
        out.u64(address);
        out.u64(file_size);
        out.u64(memory_size);
        out.u64(align);
    };
    for s in &layout.segments {
        let align = if s.in_large_pages() { LARGE_PAGE } else { input.arch.page() };
        header(PT_LOAD, s.flags, [s.offset, s.address, s.file_size, s.memory_size], align);
    }
    if let Some((_, o)) = layout.output(Part::Dynamic) {
        header(PT_DYNAMIC, PF_R | PF_W, [o.offset, o.address, o.size, o.size], 8);
    }
    if let Some((_, o)) = layout.output(Part::BuildId) {
        header(PT_NOTE, PF_R, [o.offset, o.address, o.size, o.size], 4);
    }
    header(PT_GNU_STACK, PF_R | PF_W, [0; 4], 16);
    if let Some(s) = layout.protected {
        header(PT_GNU_RELRO, PF_R, [s.offset, s.address, s.file_size, s.memory_size], 1);
    }
}

fn dynamic_entries(layout: &Layout, [ahead, rest]: [Option<u64>; 2], out: &mut Out) {
    let at = |part| layout.address_of(part);
    let size = |part| layout.output(part).map_or(0, |(_, o)| o.size);
    let mut entry = |tag: i64, v: u64| {
        out.u64(tag as u64);
        out.u64(v);
    };
    if let Some(needed) = layout.needed {
        entry(DT_NEEDED, needed as u64);
    }
    entry(DT_SONAME, layout.soname as u64);
    if let Some(ahead) = ahead {
        entry(DT_INIT, ahead);
    }
    if let Some(rest) = rest {
        entry(DT_FINI, rest);
    }
    entry(DT_HASH, at(Part::Hash));
    entry(DT_GNU_HASH, at(Part::GnuHash));
    entry(DT_STRTAB, at(Part::DynStr));
    entry(DT_SYMTAB, at(Part::DynSym));
    entry(DT_STRSZ, size(Part::DynStr));
    entry(DT_SYMENT, 24);
    if size(Part::Rela) > 0 {
        entry(DT_RELA, at(Part::Rela));
        entry(DT_RELASZ, size(Part::Rela));
        entry(DT_RELAENT, 24);
        let relative = layout.relocs.iter().filter(|r| matches!(r.1, DynReloc::Relative(_))).count();
        entry(DT_RELACOUNT, relative as u64);
    }
    entry(DT_FLAGS, DF_BIND_NOW as u64);
    entry(DT_FLAGS_1, DF_1_NOW as u64);
    entry(DT_NULL, 0);
}

fn section_headers(layout: &Layout, out: &mut Out) {
    out.at = (layout.file_size - SHDR * layout.outputs.len() as u64) as usize;
    let index = |part| layout.output(part).map_or(0, |(i, _)| i as u32);
    let mut name = 0u32;
    for o in &layout.outputs {
        let (link, info) = match o.part {
            Part::GnuHash | Part::Hash | Part::Rela => (index(Part::DynSym), 0),
            Part::DynSym => (index(Part::DynStr), 1),
            Part::Dynamic => (index(Part::DynStr), 0),
            Part::SymTab => (index(Part::StrTab), layout.symtab.iter().filter(|s| !s.global).count() as u32 + 1),
            _ => (0, 0),
        };
        out.u32(name);
        out.u32(o.kind);
        out.u64(o.flags);
        out.u64(o.address);
        out.u64(o.offset);
        out.u64(o.size);
        out.u32(link);
        out.u32(info);
        out.u64(o.align);
        out.u64(o.entry);
        name += o.name.len() as u32 + 1;
    }
}

fn mend(error: &str, section: &str) -> Diagnostic {
    if is_far(error) {
        return Diagnostic::error(
            "library-too-large",
            Span::NONE,
            "the library is too large: its code cannot reach all of its embedded weights",
        )
        .help("keep the weights in a file of their own: `--weights external`");
    }
    fault(format!("{section}: {error}"))
}

/// Where a kept section is in the file.
fn file_offset(input: &Input, layout: &Layout, id: SectionId) -> Result<u64, Diagnostic> {
    let lost = || fault(format!("{} has no place", input.sections[id].name));
    let base = layout.address[id].ok_or_else(lost)?;
    let holder = layout.holder(base).and_then(|i| layout.outputs.get(i)).ok_or_else(lost)?;
    Ok(base - holder.address + holder.offset)
}

/// Copies an input section to its place and patches it.
fn place_section(
    input: &Input,
    linked: &Linked,
    layout: &Layout,
    id: SectionId,
    out: &mut Out,
) -> Result<(), Diagnostic> {
    let section = &input.sections[id];
    let Data::Bytes(data) = section.data else { return Ok(()) };
    if data.is_empty() {
        return Ok(());
    }
    let lost = || fault(format!("{} has no place", section.name));
    let base = layout.address[id].ok_or_else(lost)?;
    let bytes = out.range(file_offset(input, layout, id)? as usize, data.len()).ok_or_else(lost)?;
    bytes.copy_from_slice(data);
    for r in &section.relocs {
        let site = if input.arch.continues(r.kind) {
            continued(input, linked, layout, r).map_err(|e| mend(&e, section.name))?
        } else {
            site(input, linked, layout, base, r)
        };
        input.arch.apply(r, bytes, &site).map_err(|e| mend(&e, section.name))?;
    }
    Ok(())
}

fn site(input: &Input, linked: &Linked, layout: &Layout, base: u64, r: &Reloc) -> Site {
    let symbol = linked.target[r.symbol];
    let entry = |index: Option<u32>, part, each: u64| index.map(|i| layout.address_of(part) + i as u64 * each);
    let stub = entry(linked.stub[symbol], Part::Plt, STUB);
    let value = stub.or_else(|| layout.symbol(input, symbol)).unwrap_or(0);
    Site {
        place: base + r.offset,
        value: value.wrapping_add_signed(r.addend),
        slot: entry(linked.slot[symbol], Part::Got, 8).map(|a| a.wrapping_add_signed(r.addend)),
    }
}

/// The low part of a distance whose high part is at the label that the relocation names.
fn continued(input: &Input, linked: &Linked, layout: &Layout, r: &Reloc) -> Result<Site, String> {
    let missing = || "a low part without its high part".to_string();
    let Place::Section(section, offset) = input.symbols[linked.target[r.symbol]].place else {
        return Err(missing());
    };
    let high = (input.sections[section].relocs.iter())
        .find(|h| h.offset == offset && matches!(h.kind, R_RISCV_PCREL_HI20 | R_RISCV_GOT_HI20))
        .ok_or_else(missing)?;
    let base = layout.address[section].ok_or_else(missing)?;
    let at = site(input, linked, layout, base, high);
    let value = if high.kind == R_RISCV_GOT_HI20 { at.slot.ok_or_else(missing)? } else { at.value };
    Ok(Site { place: at.place, value, slot: None })
}
