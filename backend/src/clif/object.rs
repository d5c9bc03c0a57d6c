//! The object file: code, read-only data, symbols and relocations.

use super::symbols::{Kind, Symbols};
use super::{Apart, Code, NOWHERE};
use crate::target::Target;
use crate::versions::Expanded;
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::ExternalName;
use cranelift_codegen::FinalizedRelocTarget;
use fnv::FnvHashMap;
use object::write::{Object, Relocation, SectionId, StandardSection, Symbol, SymbolId, SymbolSection};
use object::{
    elf, Architecture as Arch, BinaryFormat, Endianness, FileFlags, RelocationEncoding, RelocationFlags,
    RelocationKind, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};
use relax_ir::flat::{DataBytes, Linkage};
use relax_ir::Diagnostic;
use std::borrow::Cow;
use target_lexicon::{Architecture, BinaryFormat as Format};

/// Data larger than this gets a section of its own, so that its bytes are copied once only, into the file.
const OWN_SECTION: usize = 1 << 16;

/// Constants that go into a section of their own are left out as undefined symbols where `apart` takes them.
pub(super) fn write(
    expanded: &Expanded,
    symbols: &Symbols,
    codes: &[Code],
    target: &Target,
    mut apart: Option<&mut Vec<Apart>>,
) -> Result<Vec<u8>, Diagnostic> {
    let module = &*expanded.module;
    let fault = |m: String| Diagnostic::internal(NOWHERE, m);
    if target.triple.binary_format != Format::Elf {
        let message = format!("objects for `{}` are not ELF", target.triple);
        return Err(Diagnostic::unsupported("object-format", NOWHERE, message));
    }
    let arch = match target.triple.architecture {
        Architecture::X86_64 => Arch::X86_64,
        Architecture::Aarch64(_) => Arch::Aarch64,
        Architecture::Riscv64(_) => Arch::Riscv64,
        Architecture::S390x => Arch::S390x,
        other => return Err(Diagnostic::unsupported("target", NOWHERE, format!("no native code for {other}"))),
    };
    let endian = if target.big_endian() { Endianness::Big } else { Endianness::Little };
    let mut object = Object::new(BinaryFormat::Elf, arch, endian);
    if arch == Arch::Riscv64 {
        object.flags =
            FileFlags::Elf { os_abi: elf::ELFOSABI_NONE, abi_version: 0, e_flags: elf::EF_RISCV_FLOAT_ABI_DOUBLE };
    }

    if expanded.resolver.is_some() {
        object.flags = FileFlags::Elf { os_abi: elf::ELFOSABI_GNU, abi_version: 0, e_flags: 0 };
    }

    let ids: Vec<SymbolId> = symbols
        .list
        .iter()
        .map(|s| {
            object.add_symbol(Symbol {
                name: s.name.as_bytes().to_vec(),
                value: 0,
                size: 0,
                kind: match (&s.kind, s.linkage) {
                    // An undefined symbol has no type.
                    (_, Linkage::Import) => SymbolKind::Unknown,
                    _ if s.is_func() => SymbolKind::Text,
                    _ => SymbolKind::Data,
                },
                scope: match s.linkage {
                    Linkage::Export => SymbolScope::Dynamic,
                    Linkage::Local => SymbolScope::Compilation,
                    Linkage::Import => SymbolScope::Unknown,
                },
                weak: false,
                section: SymbolSection::Undefined,
                flags: match expanded.resolver.as_ref() == Some(&s.name) {
                    true => SymbolFlags::Elf { st_info: elf::STB_LOCAL << 4 | elf::STT_GNU_IFUNC, st_other: 0 },
                    false => SymbolFlags::None,
                },
            })
        })
        .collect();

    let text = match &module.sections.code {
        Some(name) => object.add_section(vec![], name.as_bytes().to_vec(), SectionKind::Text),
        None => object.section_id(StandardSection::Text),
    };
    let weights = module
        .sections
        .weights
        .as_ref()
        .map(|name| object.add_section(vec![], name.as_bytes().to_vec(), SectionKind::ReadOnlyData));
    let mut labels: FnvHashMap<(usize, u32), SymbolId> = FnvHashMap::default();
    for (n, symbol) in symbols.list.iter().enumerate() {
        let Kind::Func(i) = symbol.kind else { continue };
        let code = &codes[i];
        let at = object.add_symbol_data(ids[n], text, &code.bytes, code.align as u64);
        for r in &code.relocs {
            let to = match r.target {
                FinalizedRelocTarget::ExternalName(ExternalName::User(name)) => {
                    let name = &code.func.params.user_named_funcs()[name];
                    ids[name.index as usize]
                }
                FinalizedRelocTarget::Func(offset) => *labels.entry((i, offset)).or_insert_with(|| {
                    object.add_symbol(Symbol {
                        name: format!(".L{n}_{offset}").into_bytes(),
                        value: at + offset as u64,
                        size: 0,
                        kind: SymbolKind::Label,
                        scope: SymbolScope::Compilation,
                        weak: false,
                        section: SymbolSection::Section(text),
                        flags: SymbolFlags::None,
                    })
                }),
                ref other => {
                    return Err(fault(format!("`{}` needs {other:?}, which generated code must not", symbol.name)));
                }
            };
            let flags = reloc_flags(r.kind).ok_or_else(|| fault(format!("relocation {:?} is not known", r.kind)))?;
            object
                .add_relocation(text, Relocation { offset: at + r.offset as u64, symbol: to, addend: r.addend, flags })
                .map_err(|e| fault(format!("relocation of `{}`: {e}", symbol.name)))?;
        }
    }

    // s390x reaches data by halfwords (`larl`): nothing may lie at an odd address.
    let least: u32 = if target.big_endian() { 2 } else { 1 };
    for (n, symbol) in symbols.list.iter().enumerate() {
        match &symbol.kind {
            Kind::Text(t) => {
                let section = object.section_id(StandardSection::ReadOnlyData);
                let mut bytes = t.as_bytes().to_vec();
                bytes.push(0);
                object.add_symbol_data(ids[n], section, &bytes, u64::from(least));
            }
            Kind::Data(i) => {
                let data = &module.data[*i];
                let align = data.align.max(least).next_power_of_two() as u64;
                if let (Some(list), DataBytes::Constant(c)) = (&mut apart, &data.bytes) {
                    if data.relocs.is_empty() && weights.is_none() && c.size() >= OWN_SECTION {
                        let s = object.symbol_mut(ids[n]);
                        (s.kind, s.scope) = (SymbolKind::Unknown, SymbolScope::Unknown);
                        list.push(Apart { symbol: symbol.name.to_string(), align, constant: c.clone() });
                        continue;
                    }
                }
                let bytes = native_bytes(&data.bytes, target.big_endian());
                let section = if !data.relocs.is_empty() && target.pic {
                    object.section_id(StandardSection::ReadOnlyDataWithRel)
                } else if let (Some(weights), DataBytes::Constant(_)) = (weights, &data.bytes) {
                    weights
                } else if bytes.len() >= OWN_SECTION {
                    own_section(&mut object, ids[n], &symbol.name, bytes, align);
                    continue;
                } else {
                    object.section_id(StandardSection::ReadOnlyData)
                };
                let at = object.add_symbol_data(ids[n], section, &bytes, align);
                for (offset, to, addend) in &data.relocs {
                    let Some((to, _)) = symbols.get(to) else {
                        return Err(fault(format!("`{}` points to `{to}`, which is not declared", symbol.name)));
                    };
                    let relocation = Relocation {
                        offset: at + *offset as u64,
                        symbol: ids[to as usize],
                        addend: *addend,
                        flags: RelocationFlags::Generic {
                            kind: RelocationKind::Absolute,
                            encoding: RelocationEncoding::Generic,
                            size: (target.pointer_bytes() * 8) as u8,
                        },
                    };
                    object
                        .add_relocation(section, relocation)
                        .map_err(|e| fault(format!("relocation of `{}`: {e}", symbol.name)))?;
                }
            }
            Kind::Func(_) | Kind::ImportFunc | Kind::ImportData => {}
        }
    }
    // The stack need not be executable.
    object.add_section(vec![], b".note.GNU-stack".to_vec(), SectionKind::Linker);
    object.write().map_err(|e| fault(format!("object file: {e}")))
}

fn own_section<'a>(object: &mut Object<'a>, id: SymbolId, name: &str, bytes: Cow<'a, [u8]>, align: u64) {
    let section: SectionId =
        object.add_section(vec![], format!(".rodata.{name}").into_bytes(), SectionKind::ReadOnlyData);
    let size = bytes.len() as u64;
    object.set_section_data(section, bytes, align);
    let symbol = object.symbol_mut(id);
    symbol.section = SymbolSection::Section(section);
    symbol.value = 0;
    symbol.size = size;
}

/// Constants are little-endian; a big-endian machine wants its own order.
fn native_bytes(data: &DataBytes, big: bool) -> Cow<'_, [u8]> {
    match data {
        DataBytes::Constant(c) if big && c.dtype.bytes() > 1 => {
            let mut bytes = c.bytes().to_vec();
            bytes.chunks_mut(c.dtype.bytes()).for_each(|e| e.reverse());
            Cow::Owned(bytes)
        }
        _ => Cow::Borrowed(data.get()),
    }
}

fn reloc_flags(kind: Reloc) -> Option<RelocationFlags> {
    let generic = |kind, encoding, size| Some(RelocationFlags::Generic { kind, encoding, size });
    let raw = |r_type| Some(RelocationFlags::Elf { r_type });
    match kind {
        Reloc::Abs4 => generic(RelocationKind::Absolute, RelocationEncoding::Generic, 32),
        Reloc::Abs8 => generic(RelocationKind::Absolute, RelocationEncoding::Generic, 64),
        Reloc::X86PCRel4 => generic(RelocationKind::Relative, RelocationEncoding::Generic, 32),
        Reloc::X86CallPCRel4 => generic(RelocationKind::Relative, RelocationEncoding::X86Branch, 32),
        Reloc::X86CallPLTRel4 => generic(RelocationKind::PltRelative, RelocationEncoding::X86Branch, 32),
        Reloc::X86GOTPCRel4 => generic(RelocationKind::GotRelative, RelocationEncoding::Generic, 32),
        Reloc::Arm64Call => generic(RelocationKind::Relative, RelocationEncoding::AArch64Call, 26),
        Reloc::Aarch64AdrGotPage21 => raw(elf::R_AARCH64_ADR_GOT_PAGE),
        Reloc::Aarch64Ld64GotLo12Nc => raw(elf::R_AARCH64_LD64_GOT_LO12_NC),
        Reloc::Aarch64AdrPrelPgHi21 => raw(elf::R_AARCH64_ADR_PREL_PG_HI21),
        Reloc::Aarch64AddAbsLo12Nc => raw(elf::R_AARCH64_ADD_ABS_LO12_NC),
        Reloc::S390xPCRel32Dbl => generic(RelocationKind::Relative, RelocationEncoding::S390xDbl, 32),
        Reloc::S390xPLTRel32Dbl => generic(RelocationKind::PltRelative, RelocationEncoding::S390xDbl, 32),
        Reloc::RiscvCallPlt => raw(elf::R_RISCV_CALL_PLT),
        Reloc::RiscvPCRelLo12I => raw(elf::R_RISCV_PCREL_LO12_I),
        Reloc::RiscvPCRelHi20 => raw(elf::R_RISCV_PCREL_HI20),
        Reloc::RiscvGotHi20 => raw(elf::R_RISCV_GOT_HI20),
        _ => None,
    }
}
