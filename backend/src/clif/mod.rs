//! Flat TIR to machine code through Cranelift: every target it has, 128-bit vectors.
//!
//! Each function is translated and compiled on its own, in parallel; the object is put together in the module's order,
//! so the bytes do not depend on the number of threads. Code never calls anything but what the flat module calls: no
//! compiler run time, no `memcpy`. Where the processor lacks an instruction (rounding and fused multiply-add on plain
//! x86-64, vectors on plain riscv64) arithmetic stands in.

mod arith;
mod cast;
mod func;
mod intrin;
mod memory;
mod object;
mod symbols;
mod value;
mod words;

use crate::target::{isa_has, Cpu, OptLevel, Target};
use crate::versions::{self, Expanded};
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::{settings, Context, FinalizedMachReloc};
use func::Machine;
use rayon::prelude::*;
use relax_ir::flat::{Assembled, FlatFunc, FlatModule, FlatStmt};
use relax_ir::{Constant, Diagnostic, Span};
use std::fmt::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};
use symbols::{stmt_bodies, Symbols};
use target_lexicon::Architecture;

/// A compiled function.
struct Code {
    bytes: Vec<u8>,
    align: u32,
    relocs: Vec<FinalizedMachReloc>,
    /// Kept for the names its relocations refer to.
    func: Function,
    disassembly: Option<String>,
    /// Bytes of stack for spilled values and saved registers.
    spilled: u32,
    /// Bytes of stack in all; `u32::MAX` when not known.
    frame: u32,
}

/// What the functions of a module take.
#[derive(Clone, Debug, Default)]
pub struct Measures {
    /// By the module's functions: bytes of code, bytes of stack (return address included, callees not; `u32::MAX` when
    /// not known).
    pub functions: Vec<(u32, u32)>,
}

/// A constant that the object only names: its bytes go straight into the library.
#[derive(Clone, Debug)]
pub struct Apart {
    pub symbol: String,
    pub align: u64,
    pub constant: Constant,
}

/// A compiled module.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// An ELF object file.
    pub bytes: Vec<u8>,
    /// Its undefined symbols that are constants of the module.
    pub apart: Vec<Apart>,
    pub measures: Measures,
}

impl Code {
    fn assembled(a: &Assembled) -> Code {
        Code {
            bytes: a.bytes.clone(),
            align: 64,
            relocs: vec![],
            func: Function::new(),
            disassembly: None,
            spilled: 0,
            frame: a.frame,
        }
    }
}

/// The target machines of a compilation.
struct Isas {
    kernel: OwnedTargetIsa,
    host: OwnedTargetIsa,
    /// For functions so large that optimising them would take minutes.
    quick: OwnedTargetIsa,
}

impl Isas {
    fn new(target: &Target) -> Result<Isas, Diagnostic> {
        Ok(Isas {
            kernel: target.isa(target.kernel_opt)?,
            host: target.isa(target.host_opt)?,
            quick: target.isa(OptLevel::None)?,
        })
    }

    fn of(&self, f: &FlatFunc) -> &OwnedTargetIsa {
        if has_loop(&f.body) {
            &self.kernel
        } else {
            &self.host
        }
    }
}

/// Cranelift's optimiser is superlinear: beyond this many instructions it is left out.
const LARGE: usize = 20_000;

pub(crate) fn has_loop(body: &[FlatStmt]) -> bool {
    body.iter()
        .any(|s| matches!(s, FlatStmt::For { .. } | FlatStmt::While { .. }) || stmt_bodies(s).into_iter().any(has_loop))
}

fn machine<'a>(target: &Target, isa: &'a OwnedTargetIsa) -> Machine<'a> {
    let x86 = target.triple.architecture == Architecture::X86_64;
    let simd = match target.triple.architecture {
        Architecture::Riscv64(_) => isa_has(&**isa, "v"),
        Architecture::S390x => false,
        _ => true,
    };
    Machine {
        isa: &**isa,
        simd,
        has_fma: !x86 || (isa_has(&**isa, "fma") && isa_has(&**isa, "avx")),
        has_round: !x86 || isa_has(&**isa, "sse41"),
        has_mul8: !x86,
        loads_apart: x86 && !isa_has(&**isa, "avx"),
        pic: target.pic,
    }
}

/// Compiles a module to an ELF object file.
///
/// Exported functions and data are global symbols, the rest local; the only undefined symbols are those that the module
/// itself imports.
///
/// # Errors
/// [`relax_ir::Fault::Unsupported`] for a target without native code or a type without registers; internal when the
/// module is not proper flat form.
pub fn compile(module: &FlatModule, target: &Target) -> Result<Vec<u8>, Diagnostic> {
    compile_measured(module, target, false).map(|o| o.bytes)
}

/// As [`compile`], with the sizes of code and stack frames; with `apart`, large constants stay outside of the object.
///
/// # Errors
/// As [`compile`].
pub fn compile_measured(module: &FlatModule, target: &Target, apart: bool) -> Result<Object, Diagnostic> {
    let expanded = versions::expand(module)?;
    let symbols = Symbols::new(&expanded.module)?;
    let codes = compile_all(&expanded, &symbols, target, false)?;
    // A function stands for all of its forms.
    let measure = |(at, others): (usize, &Vec<usize>)| {
        let forms = || std::iter::once(&at).chain(others).map(|&i| &codes[i]);
        (forms().map(|c| c.bytes.len() as u32).sum(), forms().map(|c| c.frame).max().unwrap_or(0))
    };
    let measures = Measures { functions: expanded.forms.iter().enumerate().map(measure).collect() };
    let mut list = vec![];
    let bytes = object::write(&expanded, &symbols, &codes, target, apart.then_some(&mut list))?;
    Ok(Object { bytes, apart: list, measures })
}

/// The Cranelift IR of every function, before optimisation.
///
/// # Errors
/// As [`compile`].
pub fn print(module: &FlatModule, target: &Target) -> Result<String, Diagnostic> {
    let expanded = versions::expand(module)?;
    let module = &*expanded.module;
    let symbols = Symbols::new(module)?;
    let isas = Isas::new(target)?;
    let mut out = String::new();
    for f in module.funcs.iter().filter(|f| !module.assembled.contains_key(&f.name)) {
        let func = guarded(f, || func::build(f, &symbols, machine(target, isas.of(f))))?;
        let _ = writeln!(out, "; {}\n{}", f.name, func.display());
    }
    Ok(out)
}

/// The machine code of every function as text.
///
/// # Errors
/// As [`compile`].
pub fn asm(module: &FlatModule, target: &Target) -> Result<String, Diagnostic> {
    let expanded = versions::expand(module)?;
    let symbols = Symbols::new(&expanded.module)?;
    let codes = compile_all(&expanded, &symbols, target, true)?;
    let mut out = String::new();
    for (f, code) in expanded.module.funcs.iter().zip(&codes) {
        let _ = writeln!(out, "{}: ; {} bytes", f.name, code.bytes.len());
        let _ = writeln!(out, "{}", code.disassembly.as_deref().unwrap_or(""));
    }
    Ok(out)
}

fn compile_all(
    expanded: &Expanded,
    symbols: &Symbols,
    target: &Target,
    disassemble: bool,
) -> Result<Vec<Code>, Diagnostic> {
    let module = &*expanded.module;
    let mut levels = vec![(target.clone(), Isas::new(target)?)];
    if !expanded.levels.is_empty() {
        for cpu in versions::LEVELS {
            let target = Target { cpu: Cpu::Named(cpu.to_string()), ..target.clone() };
            let isas = Isas::new(&target)?;
            levels.push((target, isas));
        }
    }
    let of = |name: &str| &levels[expanded.levels.get(name).copied().unwrap_or(0)];
    module
        .funcs
        .par_iter()
        .map(|f| match module.assembled.get(&f.name) {
            Some(bytes) => Ok(Code::assembled(bytes)),
            None => guarded(f, || {
                let (target, isas) = of(&f.name);
                compile_one(f, symbols, target, isas, disassemble)
            }),
        })
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

/// Turns a panic inside the code generator into a diagnostic.
fn guarded<T>(f: &FlatFunc, run: impl FnOnce() -> Result<T, Diagnostic>) -> Result<T, Diagnostic> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("unknown reason");
        Err(Diagnostic::internal(f.span, format!("code generation of `{}` failed: {what}", f.name)))
    })
}

fn compile_one(
    f: &FlatFunc,
    symbols: &Symbols,
    target: &Target,
    isas: &Isas,
    disassemble: bool,
) -> Result<Code, Diagnostic> {
    let isa = isas.of(f);
    let func = func::build(f, symbols, machine(target, isa))?;
    if func.dfg.num_insts() > LARGE {
        return generate(f, func, &isas.quick, disassemble);
    }
    let optimised = isa.flags().opt_level() != settings::OptLevel::None;
    let other = (optimised && has_loop(&f.body)).then(|| func.clone());
    let code = generate(f, func, isa, disassemble)?;
    // The optimiser moves computations to their last possible place and constants out of loops, which keeps many values
    // alive: kernels that fill the registers are better off in the order they were written.
    match other {
        Some(func) if code.spilled > SPILLED => {
            let plain = generate(f, func, &isas.quick, disassemble)?;
            Ok(if plain.spilled < code.spilled { plain } else { code })
        }
        _ => Ok(code),
    }
}

/// Bytes of frame that saved registers explain.
const SPILLED: u32 = 64;

fn generate(f: &FlatFunc, func: Function, isa: &OwnedTargetIsa, disassemble: bool) -> Result<Code, Diagnostic> {
    let slots: u32 = func.sized_stack_slots.values().map(|s| s.size.next_multiple_of(1 << s.align_shift)).sum();
    let mut context = Context::for_function(func);
    context.set_disasm(disassemble);
    if let Err(e) = context.compile(&**isa, &mut ControlPlane::default()) {
        let message = format!("code generation of `{}` failed: {:?}", f.name, e.inner);
        return Err(Diagnostic::internal(f.span, message).help("--emit clif shows the code in question"));
    }
    let Some(code) = context.take_compiled_code() else {
        return Err(Diagnostic::internal(f.span, format!("no code for `{}`", f.name)));
    };
    let frame = code.buffer.frame_layout().map_or(0, |l| l.frame_to_fp_offset);
    Ok(Code {
        bytes: code.buffer.data().to_vec(),
        align: code.buffer.alignment.max(16),
        relocs: code.buffer.relocs().to_vec(),
        disassembly: code.vcode.clone(),
        func: context.func,
        spilled: frame.saturating_sub(slots),
        // The caller's frame pointer and the return address lie above.
        frame: frame + 16,
    })
}

/// Where an internal fault has no better place.
const NOWHERE: Span = Span::NONE;
