//! Flat TIR as portable C: one C99 file beside the header, for every processor that has a C compiler.
//!
//! The file is freestanding (`stdint.h` and `stddef.h`), allocates nothing, writes nowhere but through its arguments,
//! and needs no library: transcendental functions are already arithmetic. Integers wrap around as the model's do, and
//! arithmetic on indices is plain; division by zero gives 0; floating point is IEEE without contraction, but for
//! `fma_f32`, which rounds once where the processor has an instruction for it. On machines of 32 bits, indices whose
//! range is known to fit are `int32_t`.

mod data;
mod expr;
mod func;
mod integer;
mod lanes;
mod names;
mod pointers;
mod ranges;
mod support;
mod types;

use crate::header;
use fnv::{FnvHashMap, FnvHashSet};
use func::{Fx, Level, Param, Shared, Text};
use pointers::{Definitions, Pointers};
use relax_ir::abi::AbiLayout;
use relax_ir::flat::{Callee, FlatFunc, FlatStmt, Linkage};
use relax_ir::program::Program;
use relax_ir::{DType, Diagnostic, Span};
use std::fmt::Write as _;
use types::{value_type, Pointee};

/// How the file is written.
pub struct Options<'a> {
    /// The header's file name.
    pub header: &'a str,
    /// Bytes of a pointer of the target: 4 or 8.
    pub pointer_bytes: u32,
    /// What a place in the model says, for comments: file and line, and the line's text.
    pub describe: &'a dyn Fn(Span) -> Option<String>,
}

/// The C file of a program.
///
/// # Errors
/// [`relax_ir::Fault::Unsupported`] for types without a C type; internal when the module is not proper flat form.
pub fn write(program: &Program, o: &Options) -> Result<String, Diagnostic> {
    let module = &program.module;
    let (funcs, datas) = reachable(program);
    let functions: FnvHashSet<&str> = module.funcs.iter().map(|f| f.name.as_str()).collect();
    let mut signatures = FnvHashMap::default();
    for f in &funcs {
        signatures.insert(f.name.clone(), signature(f, o.pointer_bytes));
    }
    let elements = datas.iter().map(|d| (d.symbol.clone(), data::element(d))).collect();
    let structs = datas.iter().filter(|d| !d.relocs.is_empty()).map(|d| d.symbol.as_str()).collect();
    let shared = Shared { pointer_bytes: o.pointer_bytes, signatures: &signatures, data: &elements, structs: &structs };

    let mut used = support::Used::new();
    let (mut prototypes, mut bodies) = (String::new(), String::new());
    for f in &funcs {
        let names: Vec<String> = match exported(program, f) {
            Some(params) => params.iter().map(|p| p.1.clone()).collect(),
            None => parameter_names(f),
        };
        let declared = match exported(program, f) {
            Some(params) => params.into_iter().map(|p| p.0).collect(),
            None => declarations(f, &signatures[&f.name], &names),
        };
        let head = head(program, f, &declared);
        if f.linkage == Linkage::Local {
            let _ = writeln!(prototypes, "{head};");
        }
        let bound: Vec<(String, Text)> = f
            .params
            .iter()
            .zip(&names)
            .map(|(v, n)| {
                // The header's types of pointers are not ours.
                let text = match f.linkage == Linkage::Export && v.dtype().is_handle() {
                    true => Text::new(format!("(void *){n}"), Level::Unary),
                    false => Text::atom(n.clone()),
                };
                (n.clone(), text)
            })
            .collect();
        let body = Fx::new(&shared, f, &mut used).body(&bound)?;
        let _ = write!(bodies, "\n{}{head} {{\n{body}}}\n", describe(program, f, o));
    }
    for c in imports(&funcs, &functions) {
        if support::is_helper(&c.name) {
            used.insert(support::known(&c.name));
            continue;
        }
        if program.on_error.as_deref() == Some(c.name.as_str()) {
            continue; // The header declares it.
        }
        let params: Vec<String> = c.params.iter().map(|d| value_type(*d).to_string()).collect();
        let ret = c.ret.map_or("void", value_type);
        let _ = writeln!(prototypes, "{ret} {}({});", c.name, params.join(", "));
    }

    let p = &program.prefix;
    let mut s = format!(
        "/* {p}: C written by relax-aot {}.\n * C99, freestanding: needs no library. {} */\n",
        env!("CARGO_PKG_VERSION"),
        if o.pointer_bytes == 8 { "For machines of 64 bits." } else { "For machines of 32 bits." },
    );
    let _ = write!(s, "#include {}\n#include <stddef.h>\n#include <stdint.h>\n\n", header::literal(o.header));
    s += support::PREAMBLE;
    s += &sections(&module.sections);
    s += &layout_check(p, o.pointer_bytes);
    s += &support::text(&used);
    s.push('\n');
    s += &prototypes;
    if !datas.is_empty() {
        s.push('\n');
    }
    for d in datas {
        s += &data::definition(d, o.pointer_bytes, &|n| functions.contains(n))?;
    }
    s += &bodies;
    Ok(s)
}

/// The data that the C file of a program holds.
pub fn constants(program: &Program) -> Vec<&relax_ir::flat::FlatData> {
    reachable(program).1
}

/// Where code and weights go.
fn sections(s: &relax_ir::flat::Sections) -> String {
    let attribute = |name: &Option<String>| match name {
        Some(n) => format!(" __attribute__((section({})))", header::literal(n)),
        None => String::new(),
    };
    format!("\n#define CODE{}\n#define WEIGHTS{}\n", attribute(&s.code), attribute(&s.weights))
}

/// The layouts that the code relies on, checked by the C compiler.
fn layout_check(prefix: &str, pointer: u32) -> String {
    let a = AbiLayout::new(pointer);
    let call = format!("{prefix}_call");
    let facts = [
        format!("sizeof(void *) == {pointer}"),
        "sizeof(float) == 4 && sizeof(double) == 8".to_string(),
        format!("offsetof(DLTensor, ndim) == {}", a.tensor_ndim),
        format!("offsetof(DLTensor, shape) == {}", a.tensor_shape),
        format!("offsetof(DLTensor, byte_offset) == {}", a.tensor_byte_offset),
        format!("offsetof({call}, constraint) == {}", a.call_constraint),
        format!("offsetof({call}, message) == {}", a.call_message),
    ];
    format!(
        "\n/* Does not compile where memory is laid out in another way: say --target. */\ntypedef char {prefix}_layout[{}\n  ? 1 : -1];\n",
        facts.join(" &&\n  ")
    )
}

/// Functions and data that something exported needs, in the module's order.
fn reachable(program: &Program) -> (Vec<&FlatFunc>, Vec<&relax_ir::flat::FlatData>) {
    let module = &program.module;
    let by_name: FnvHashMap<&str, &FlatFunc> = module.funcs.iter().map(|f| (f.name.as_str(), f)).collect();
    let data: FnvHashMap<&str, &relax_ir::flat::FlatData> =
        module.data.iter().map(|d| (d.symbol.as_str(), d)).collect();
    let mut seen: FnvHashSet<&str> = FnvHashSet::default();
    let exported = module.funcs.iter().filter(|f| f.linkage == Linkage::Export).map(|f| f.name.as_str());
    let mut open: Vec<&str> = exported.collect();
    open.extend(module.data.iter().filter(|d| d.linkage == Linkage::Export).map(|d| d.symbol.as_str()));
    while let Some(n) = open.pop() {
        if !seen.insert(n) {
            continue;
        }
        if let Some(f) = by_name.get(n) {
            mentions(&f.body, &mut open);
        }
        if let Some(d) = data.get(n) {
            open.extend(d.relocs.iter().map(|r| r.1.as_str()));
        }
    }
    let funcs = module.funcs.iter().filter(|f| seen.contains(f.name.as_str())).collect();
    let data = module.data.iter().filter(|d| seen.contains(d.symbol.as_str())).collect();
    (funcs, data)
}

fn mentions<'a>(body: &'a [FlatStmt], out: &mut Vec<&'a str>) {
    for s in body {
        match s {
            FlatStmt::Call { callee, .. } => out.push(&callee.name),
            FlatStmt::Address { symbol, .. } => out.push(symbol),
            FlatStmt::For { body, .. } | FlatStmt::While { body, .. } => mentions(body, out),
            FlatStmt::If { then, otherwise, .. } => {
                mentions(then, out);
                mentions(otherwise, out);
            }
            _ => {}
        }
    }
}

/// Callees that are defined elsewhere, each once.
fn imports<'a>(funcs: &[&'a FlatFunc], defined: &FnvHashSet<&str>) -> Vec<&'a Callee> {
    fn collect<'a>(body: &'a [FlatStmt], defined: &FnvHashSet<&str>, out: &mut Vec<&'a Callee>) {
        for s in body {
            match s {
                FlatStmt::Call { callee, .. }
                    if !defined.contains(callee.name.as_str()) && out.iter().all(|c| c.name != callee.name) =>
                {
                    out.push(callee)
                }
                FlatStmt::For { body, .. } | FlatStmt::While { body, .. } => collect(body, defined, out),
                FlatStmt::If { then, otherwise, .. } => {
                    collect(then, defined, out);
                    collect(otherwise, defined, out);
                }
                _ => {}
            }
        }
    }
    let mut out = vec![];
    funcs.iter().for_each(|f| collect(&f.body, defined, &mut out));
    out
}

/// The C parameter types of a function.
fn signature(f: &FlatFunc, pointer: u32) -> Vec<Param> {
    let definitions = Definitions::new(&f.body);
    let locals = func::locals(&f.body);
    let pointers = Pointers::new(f, &definitions, &locals, pointer);
    f.params
        .iter()
        .map(|v| match v.dtype() {
            d if !d.is_handle() => Param::Number(d),
            _ if f.linkage == Linkage::Export => Param::Pointer(Pointee::VOID),
            _ => Param::Pointer(pointers.pointee(v)),
        })
        .collect()
}

fn parameter_names(f: &FlatFunc) -> Vec<String> {
    let mut names = names::Names::default();
    names.open();
    f.params.iter().map(|v| names.add(v.name())).collect()
}

fn declarations(f: &FlatFunc, signature: &[Param], names: &[String]) -> Vec<String> {
    f.params
        .iter()
        .zip(signature)
        .zip(names)
        .map(|((v, p), n)| match p {
            Param::Pointer(p) => p.declare(n),
            Param::Number(_) => func::declare(v.dtype(), n),
        })
        .collect()
}

/// Declarations and names of the parameters of an exported function, as in the header.
fn exported(program: &Program, f: &FlatFunc) -> Option<Vec<(String, String)>> {
    if f.linkage != Linkage::Export {
        return None;
    }
    let p = &program.prefix;
    if f.name == format!("{p}_run") {
        let all = [
            ("const char *entry", "entry"),
            ("const DLTensor *const *args", "args"),
            ("int32_t n_args", "n_args"),
            ("DLManagedTensor **results", "results"),
            ("int32_t n_results", "n_results"),
        ];
        let mut all: Vec<(String, String)> = all.iter().map(|(d, n)| (d.to_string(), n.to_string())).collect();
        all.push((format!("{p}_call *call"), "call".to_string()));
        return Some(all);
    }
    for e in &program.entries {
        let base = format!("{p}_{}", e.name);
        if f.name == base || f.name == format!("{base}_infer") {
            let (params, _) = header::parameters(p, e);
            return Some(params.into_iter().map(|a| (a.declaration, a.name)).collect());
        }
        if f.name == format!("{base}_workspace_size") {
            return Some(header::dim_names(e).into_iter().map(|n| (format!("int64_t {n}"), n)).collect());
        }
    }
    None
}

fn head(program: &Program, f: &FlatFunc, declared: &[String]) -> String {
    let params = if declared.is_empty() { "void".to_string() } else { declared.join(", ") };
    let p = &program.prefix;
    let ret = match f.ret {
        _ if f.name == format!("{p}_metadata") => "const char *",
        Some(_) if f.linkage == Linkage::Export && f.name.ends_with("_workspace_size") => "size_t ",
        Some(d) if d == DType::HANDLE => "void *",
        Some(d) => return format!("{}{} {}({params})", storage(f), value_type(d), f.name),
        None => "void ",
    };
    format!("{}{ret}{}({params})", storage(f), f.name)
}

fn storage(f: &FlatFunc) -> &'static str {
    if f.linkage == Linkage::Local {
        "static CODE "
    } else {
        "CODE "
    }
}

/// A comment that says what a function is for.
fn describe(program: &Program, f: &FlatFunc, o: &Options) -> String {
    let place = (o.describe)(f.span).map(|t| format!("\n * {}", header::comment(&t))).unwrap_or_default();
    let p = &program.prefix;
    let what = |suffix: &str| {
        let name = f.name.strip_prefix(p.as_str())?.strip_prefix('_')?.strip_suffix(suffix)?;
        Some(name.to_string())
    };
    let text = if let Some(k) = f.name.strip_prefix(&format!("{p}_k_")) {
        format!("Operator {k}.")
    } else if let Some(n) = what("__body") {
        format!("{n}: the operators in order; arguments are checked.")
    } else if let Some(n) = what("__call") {
        format!("{n}: checks the arguments, finds the workspace, runs.")
    } else if let Some(n) = what("__infer") {
        format!("{n}: shapes of the results.")
    } else if let Some(n) = what("__workspace") {
        format!("{n}: bytes of workspace for these arguments.")
    } else if f.name.ends_with("__check_tensor") {
        "A tensor is there, of this type and rank, dense and aligned.".to_string()
    } else if f.name == "relax_rt_fail" {
        "Fills the error record.".to_string()
    } else {
        return if place.is_empty() { place } else { format!("/*{} */\n", place.trim_start_matches("\n *")) };
    };
    format!("/* {}{place} */\n", header::comment(&text))
}
