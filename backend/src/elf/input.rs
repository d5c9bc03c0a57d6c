//! Relocatable objects, read into one flat list of sections and one of symbols.

use super::arch::Arch;
use super::fault;
use super::resolve::is_writable;
use crate::clif::Apart;
use object::elf;
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};
use object::LittleEndian;
use relax_ir::{Constant, Diagnostic};
use std::borrow::Cow;

const LE: LittleEndian = LittleEndian;
type Header = elf::FileHeader64<LittleEndian>;

/// Index into [`Input::sections`].
pub type SectionId = usize;
/// Index into [`Input::symbols`].
pub type SymbolId = usize;

/// Of files that live for `'a`, and constants that live longer.
pub struct Input<'a, 'c> {
    pub arch: Arch,
    /// `e_flags` of the first file.
    pub flags: u32,
    pub sections: Vec<Section<'a, 'c>>,
    pub symbols: Vec<Symbol<'a>>,
}

/// A section that takes memory at run time.
pub struct Section<'a, 'c> {
    pub name: &'a str,
    pub flags: u64,
    pub align: u64,
    pub data: Data<'a, 'c>,
    /// Bytes of memory that starts as zeros and is not in the file.
    pub zeros: u64,
    /// By offset.
    pub relocs: Vec<Reloc>,
}

/// The bytes of a section.
#[derive(Clone, Copy)]
pub enum Data<'a, 'c> {
    Bytes(&'a [u8]),
    /// Never in memory as a whole; no relocations.
    Constant(&'c Constant),
}

impl<'a> Data<'a, '_> {
    pub fn len(self) -> usize {
        match self {
            Data::Bytes(b) => b.len(),
            Data::Constant(c) => c.size(),
        }
    }

    /// What relocations may patch.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Data::Bytes(b) => b,
            Data::Constant(_) => &[],
        }
    }
}

pub struct Reloc {
    pub offset: u64,
    pub kind: u32,
    pub symbol: SymbolId,
    pub addend: i64,
}

pub struct Symbol<'a> {
    pub name: &'a str,
    pub place: Place,
    pub size: u64,
    /// `STT_FUNC` and so on.
    pub kind: u8,
    pub global: bool,
    pub weak: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Undefined,
    Absolute(u64),
    Section(SectionId, u64),
}

/// The reader needs eight-byte alignment; embedded bytes may lack it.
pub fn aligned(bytes: &[u8]) -> Cow<'_, [u8]> {
    if (bytes.as_ptr() as usize).is_multiple_of(8) {
        Cow::Borrowed(bytes)
    } else {
        Cow::Owned(bytes.to_vec())
    }
}

pub fn read<'a, 'c: 'a>(files: &'a [Cow<'a, [u8]>], apart: &'c [Apart]) -> Result<Input<'a, 'c>, Diagnostic> {
    let mut input = Input { arch: Arch::X86_64, flags: 0, sections: vec![], symbols: vec![] };
    for (i, file) in files.iter().enumerate() {
        read_file(file, i == 0, &mut input).map_err(|e| fault(format!("object {i}: {e}")))?;
    }
    for a in apart {
        input.symbols.push(Symbol {
            name: &a.symbol,
            place: Place::Section(input.sections.len(), 0),
            size: a.constant.size() as u64,
            kind: elf::STT_OBJECT,
            global: true,
            weak: false,
        });
        input.sections.push(Section {
            name: &a.symbol,
            flags: elf::SHF_ALLOC as u64,
            align: a.align,
            data: Data::Constant(&a.constant),
            zeros: 0,
            relocs: vec![],
        });
    }
    Ok(input)
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "a name is not UTF-8".to_string())
}

fn read_file<'a>(bytes: &'a [u8], first: bool, input: &mut Input<'a, '_>) -> Result<(), String> {
    let err = |e: object::read::Error| e.to_string();
    let header = Header::parse(bytes).map_err(err)?;
    if header.e_type(LE) != elf::ET_REL {
        return Err("not relocatable".into());
    }
    let arch = Arch::from_machine(header.e_machine(LE))
        .ok_or_else(|| format!("no support for machine {}", header.e_machine(LE)))?;
    if first {
        (input.arch, input.flags) = (arch, header.e_flags(LE));
    } else if input.arch != arch {
        return Err("built for another architecture than the first object".into());
    }
    let sections = header.sections(LE, bytes).map_err(err)?;
    let symbols = sections.symbols(LE, bytes, elf::SHT_SYMTAB).map_err(err)?;

    // The file's section index -> ours.
    let mut ids: Vec<Option<SectionId>> = vec![None; sections.len()];
    for (index, section) in sections.iter().enumerate() {
        let name = text(sections.section_name(LE, section).map_err(err)?)?;
        let flags = section.sh_flags(LE);
        if flags & elf::SHF_ALLOC as u64 == 0 {
            continue;
        }
        match section.sh_type(LE) {
            elf::SHT_PROGBITS | elf::SHT_X86_64_UNWIND => {}
            elf::SHT_NOBITS if section.sh_size(LE) == 0 || is_writable(name) => {}
            elf::SHT_NOBITS => return Err(format!("section {name} is writable memory: a library has none")),
            elf::SHT_INIT_ARRAY | elf::SHT_FINI_ARRAY => {
                return Err(format!("section {name} holds constructors: a library has none"))
            }
            _ => continue,
        }
        if flags & elf::SHF_TLS as u64 != 0 {
            return Err(format!("section {name} is thread-local: a library has no such data"));
        }
        ids[index] = Some(input.sections.len());
        input.sections.push(Section {
            name,
            flags,
            align: section.sh_addralign(LE).max(1),
            data: Data::Bytes(section.data(LE, bytes).map_err(err)?),
            zeros: if section.sh_type(LE) == elf::SHT_NOBITS { section.sh_size(LE) } else { 0 },
            relocs: vec![],
        });
    }

    let base = input.symbols.len();
    for (index, symbol) in symbols.enumerate() {
        let place = match symbol.st_shndx(LE) {
            elf::SHN_UNDEF => Place::Undefined,
            elf::SHN_ABS => Place::Absolute(symbol.st_value(LE)),
            elf::SHN_COMMON => return Err("a common symbol: a library has no writable memory".into()),
            _ => {
                let section = symbols.symbol_section(LE, symbol, index).map_err(err)?;
                match section.and_then(|s| ids.get(s.0).copied().flatten()) {
                    Some(id) => Place::Section(id, symbol.st_value(LE)),
                    // In a section that takes no memory.
                    None => Place::Absolute(symbol.st_value(LE)),
                }
            }
        };
        input.symbols.push(Symbol {
            name: text(symbols.symbol_name(LE, symbol).map_err(err)?)?,
            place,
            size: symbol.st_size(LE),
            kind: symbol.st_type(),
            global: symbol.st_bind() != elf::STB_LOCAL,
            weak: symbol.st_bind() == elf::STB_WEAK,
        });
    }

    for section in sections.iter() {
        if section.sh_type(LE) == elf::SHT_REL && section.sh_size(LE) != 0 {
            return Err("relocations without addends".into());
        }
        let Some((relocs, _)) = section.rela(LE, bytes).map_err(err)? else { continue };
        let target = section.info_link(LE).0;
        let Some(id) = ids.get(target).copied().flatten() else { continue };
        let list = &mut input.sections[id].relocs;
        list.reserve(relocs.len());
        for r in relocs {
            let symbol = base + r.r_sym(LE, false) as usize;
            if symbol >= input.symbols.len() {
                return Err("a relocation names no symbol".into());
            }
            list.push(Reloc { offset: r.r_offset(LE), kind: r.r_type(LE, false), symbol, addend: r.r_addend(LE) });
        }
        list.sort_by_key(|r| r.offset);
    }
    Ok(())
}
