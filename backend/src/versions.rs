//! Kernels in several forms, one of which is chosen when the library is loaded.
//!
//! The forms of all kernels stand in one table of addresses, level by level. A function of the module returns where the
//! row of this processor's level begins. It is an indirect function (`STT_GNU_IFUNC`): what its symbol names is the
//! resolver, which asks the processor once, when the library is relocated, and picks one of a few functions that return
//! a constant each. Host code asks it once in a call and calls kernels through the table; nothing stays writable.

use iced_x86::code_asm::*;
use iced_x86::IcedError;
use relax_ir::flat::{Assembled, Callee, DataBytes, FlatData, FlatFunc, FlatModule, FlatStmt, Linkage};
use relax_ir::prim::{PrimExpr, Var};
use relax_ir::{DType, Diagnostic, Span};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// The processors of the levels above the target's own.
pub const LEVELS: [&str; 4] = ["x86-64-v3", "x86-64-v4", "x86-64-v4,+avx512vnni", "x86-64-v4,+avx512vnni,+amx-int8"];
/// Of these, from 1, the level with tiles, which the kernel of the operating system is asked for.
pub const TILES: usize = 4;
/// How the names of their forms end.
const SUFFIXES: [&str; LEVELS.len()] = ["_v3", "_v4", "_v4_vnni", "_v4_amx"];

/// A module with every form of its kernels as a function.
pub(crate) struct Expanded<'a> {
    pub module: Cow<'a, FlatModule>,
    /// Functions that are compiled for a level above the target's, from 1.
    pub levels: HashMap<String, usize>,
    /// The indirect function.
    pub resolver: Option<String>,
    /// By function of the module as it was: its other forms, by index in the expanded one.
    pub forms: Vec<Vec<usize>>,
}

/// Adds the forms, the table and the function that chooses.
///
/// # Errors
/// An internal fault of the assembler.
pub(crate) fn expand(module: &FlatModule) -> Result<Expanded<'_>, Diagnostic> {
    let mut out = Expanded {
        module: Cow::Borrowed(module),
        levels: HashMap::new(),
        resolver: None,
        forms: vec![vec![]; module.funcs.len()],
    };
    let versions = &module.versions;
    let mut new: Vec<FlatFunc> = vec![];
    let mut assembled: Vec<(String, Assembled)> = vec![];
    // By kernel: its place in a row; by level: the row.
    let mut index: BTreeMap<&str, usize> = BTreeMap::new();
    let own = versions.own.min(LEVELS.len());
    let mut rows: Vec<Vec<String>> = vec![vec![]; LEVELS.len() + 1 - own];
    for (at, f) in module.funcs.iter().enumerate() {
        let Some(forms) = versions.kernels.get(&f.name) else { continue };
        if forms.iter().all(Option::is_none) && !crate::clif::has_loop(&f.body) {
            continue;
        }
        index.insert(&f.name, rows[0].len());
        rows[0].push(f.name.clone());
        for row in 1..rows.len() {
            let level = own + row;
            let name = format!("{}{}", f.name, SUFFIXES[level - 1]);
            let body = match forms.get(row - 1).cloned().flatten() {
                Some(code) => {
                    assembled.push((name.clone(), code));
                    vec![]
                }
                None if level == 1 => {
                    out.levels.insert(name.clone(), level);
                    f.body.clone()
                }
                None => {
                    let below = rows[row - 1].last().cloned().unwrap_or_default();
                    rows[row].push(below);
                    continue;
                }
            };
            out.forms[at].push(module.funcs.len() + new.len());
            new.push(FlatFunc { name: name.clone(), body, ..f.clone() });
            rows[row].push(name);
        }
    }
    if index.is_empty() {
        return Ok(out);
    }
    let (resolver, table) = (format!("{}__level", versions.prefix), format!("{}__kernels", versions.prefix));
    let mut whole = module.clone();
    let host = Host { index: &index, resolver: &resolver, table: &table };
    for f in whole.funcs.iter_mut().filter(|f| !versions.kernels.contains_key(&f.name)) {
        host.rewrite(f);
    }
    whole.funcs.extend(new);
    whole.assembled.extend(assembled);
    let row_bytes = rows[0].len() as u32 * 8;
    let code = assemble(row_bytes, own, versions.fixed)
        .map_err(|e| Diagnostic::internal(Span::NONE, format!("the function that chooses kernels: {e}")))?;
    whole.funcs.push(FlatFunc {
        name: resolver.clone(),
        params: vec![],
        ret: Some(DType::I64),
        linkage: Linkage::Local,
        body: vec![],
        span: Span::NONE,
    });
    whole.assembled.insert(resolver.clone(), Assembled { bytes: code, frame: 8 });
    whole.data.push(FlatData {
        symbol: table.clone(),
        align: 8,
        bytes: DataBytes::Owned(vec![0; row_bytes as usize * rows.len()]),
        relocs: rows.into_iter().flatten().enumerate().map(|(i, name)| (i as u32 * 8, name, 0)).collect(),
        linkage: Linkage::Local,
    });
    out.module = Cow::Owned(whole);
    out.resolver = Some(resolver);
    Ok(out)
}

/// Calls through the table.
struct Host<'a> {
    index: &'a BTreeMap<&'a str, usize>,
    resolver: &'a str,
    table: &'a str,
}

impl Host<'_> {
    fn rewrite(&self, f: &mut FlatFunc) {
        let row = Var::new("kernels", DType::HANDLE);
        let (body, changed) = self.stmts(&f.body, &row);
        if !changed {
            return;
        }
        let (offset, table) = (Var::new("level", DType::I64), Var::new("table", DType::HANDLE));
        let callee =
            Callee { name: self.resolver.to_string(), params: vec![], ret: Some(DType::I64), linkage: Linkage::Local };
        f.body = vec![
            FlatStmt::Call { callee, args: vec![], result: Some(offset.clone()) },
            FlatStmt::Address { var: table.clone(), symbol: self.table.to_string() },
            FlatStmt::Let { var: row, value: table.expr().ptr_add(offset.expr()) },
        ];
        f.body.extend(body);
    }

    fn stmts(&self, list: &[FlatStmt], row: &Var) -> (Vec<FlatStmt>, bool) {
        let mut changed = false;
        let mut inner = |body: &[FlatStmt]| {
            let (body, c) = self.stmts(body, row);
            changed |= c;
            body
        };
        let mut out = vec![];
        let mut calls = false;
        for s in list {
            out.push(match s {
                FlatStmt::Call { callee, args, result } if self.index.contains_key(callee.name.as_str()) => {
                    calls = true;
                    let at = PrimExpr::i64(self.index[callee.name.as_str()] as i64);
                    let target = PrimExpr::load_ptr(row.expr(), at, DType::HANDLE);
                    FlatStmt::CallIndirect {
                        target,
                        callee: callee.clone(),
                        args: args.clone(),
                        result: result.clone(),
                    }
                }
                FlatStmt::For { var, begin, end, step, body } => FlatStmt::For {
                    var: var.clone(),
                    begin: begin.clone(),
                    end: end.clone(),
                    step: *step,
                    body: inner(body),
                },
                FlatStmt::While { cond, body } => FlatStmt::While { cond: cond.clone(), body: inner(body) },
                FlatStmt::If { cond, then, otherwise } => {
                    FlatStmt::If { cond: cond.clone(), then: inner(then), otherwise: inner(otherwise) }
                }
                other => other.clone(),
            });
        }
        (out, changed | calls)
    }
}

// What `x86-64-v3` is, as `cpuid` tells it: leaf 1 (ecx), leaf 7 (ebx), leaf 0x8000_0001 (ecx).
/// SSSE3, FMA, CMPXCHG16B, SSE4.1, SSE4.2, MOVBE, POPCNT, OSXSAVE, AVX, F16C.
const V3_LEAF1: u32 = 1 << 9 | 1 << 12 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 22 | 1 << 23 | 1 << 27 | 1 << 28 | 1 << 29;
/// BMI1, AVX2, BMI2.
const V3_LEAF7: u32 = 1 << 3 | 1 << 5 | 1 << 8;
/// LZCNT.
const V3_EXTENDED: u32 = 1 << 5;
/// AVX-512 F, DQ, CD, BW, VL.
const V4_LEAF7: u32 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31;
/// AVX-512 VNNI, in ecx.
const VNNI_LEAF7: u32 = 1 << 11;
/// AMX: tiles, and of bytes, in edx.
const TILES_LEAF7: u32 = 1 << 24 | 1 << 25;
/// What the operating system saves (`xgetbv`): 256-bit registers; masks and 512-bit registers too; tiles.
const YMM: u32 = 0x6;
const ZMM: u32 = 0xe6;
const TILE: u32 = 1 << 17 | 1 << 18;

/// The resolver, and behind it the functions that it chooses from: each returns the offset of its level's row. Levels up
/// to the target's `own` are the first row.
fn assemble(row_bytes: u32, own: usize, fixed: Option<usize>) -> Result<Vec<u8>, IcedError> {
    let mut a = CodeAssembler::new(64)?;
    let mut rows: Vec<CodeLabel> = (own..=LEVELS.len()).map(|_| a.create_label()).collect();
    let functions: Vec<CodeLabel> = (0..=LEVELS.len()).map(|level| rows[level.saturating_sub(own)]).collect();
    match fixed {
        Some(level) => {
            if level >= TILES {
                request_tiles(&mut a)?;
            }
            a.lea(rax, qword_ptr(functions[level.min(LEVELS.len())]))?;
            a.ret()?;
        }
        None => ask(&mut a, &functions)?,
    }
    for (row, label) in rows.iter_mut().enumerate() {
        a.set_label(label)?;
        a.mov(eax, row as u32 * row_bytes)?;
        a.ret()?;
    }
    a.assemble(0)
}

/// Linux keeps tiles for those who ask, once for all threads: `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`. 0 in
/// eax where it grants them; rcx, rsi, rdi and r11 are used.
fn request_tiles(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.mov(eax, 158)?;
    a.mov(edi, 0x1023)?;
    a.mov(esi, 18)?;
    a.syscall()
}

fn ask(a: &mut CodeAssembler, functions: &[CodeLabel]) -> Result<(), IcedError> {
    let mut done = a.create_label();
    let all = |a: &mut CodeAssembler, r: AsmRegister32, bits: u32, otherwise: CodeLabel| {
        a.and(r, bits as i32)?;
        a.cmp(r, bits as i32)?;
        a.jne(otherwise)
    };
    a.push(rbx)?;
    a.lea(r8, qword_ptr(functions[0]))?;
    a.xor(eax, eax)?;
    a.cpuid()?;
    a.cmp(eax, 7)?;
    a.jb(done)?;
    a.mov(eax, 1)?;
    a.xor(ecx, ecx)?;
    a.cpuid()?;
    all(a, ecx, V3_LEAF1, done)?;
    a.xor(ecx, ecx)?;
    a.xgetbv()?;
    a.mov(r9d, eax)?;
    a.mov(edi, eax)?;
    all(a, eax, YMM, done)?;
    a.mov(eax, 7)?;
    a.xor(ecx, ecx)?;
    a.cpuid()?;
    a.mov(r10d, ebx)?;
    a.mov(r11d, ecx)?;
    a.mov(esi, edx)?;
    all(a, ebx, V3_LEAF7, done)?;
    a.mov(eax, 0x8000_0001u32)?;
    a.cpuid()?;
    all(a, ecx, V3_EXTENDED, done)?;
    a.lea(r8, qword_ptr(functions[1]))?;
    all(a, r9d, ZMM, done)?;
    all(a, r10d, V4_LEAF7, done)?;
    a.lea(r8, qword_ptr(functions[2]))?;
    all(a, r11d, VNNI_LEAF7, done)?;
    a.lea(r8, qword_ptr(functions[3]))?;
    all(a, esi, TILES_LEAF7, done)?;
    all(a, edi, TILE, done)?;
    request_tiles(a)?;
    a.test(eax, eax)?;
    a.jne(done)?;
    a.lea(r8, qword_ptr(functions[TILES]))?;
    a.set_label(&mut done)?;
    a.mov(rax, r8)?;
    a.pop(rbx)?;
    a.ret()
}
