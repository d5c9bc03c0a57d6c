//! `relax-aot inspect`: what a model, a compiled library or an object contains.

use crate::cli::{Format, InspectArgs};
use crate::driver::{prefix_of, Failed, Session};
use crate::loader::Library;
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};
use relax_ir::relax::ExprKind;
use relax_ir::{Diagnostic, IRModule, Span};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

/// The text for standard output.
pub fn inspect(s: &mut Session, a: &InspectArgs) -> Result<String, Failed> {
    let found = match (elf_type(&a.file), a.file.extension().and_then(|e| e.to_str())) {
        (Some(object::elf::ET_DYN), _) | (None, Some("so")) => library(a),
        (Some(_), _) | (None, Some("o")) => binary(a),
        (None, _) => return model(s, a),
    };
    found.map_err(|d| {
        s.diags.push(d);
        Failed
    })
}

/// What kind of ELF file it is, whatever its name says.
fn elf_type(file: &Path) -> Option<u16> {
    let mut head = [0; 18];
    std::fs::File::open(file).ok()?.read_exact(&mut head).ok()?;
    let word = [head[16], head[17]];
    let little = head[5] == object::elf::ELFDATA2LSB;
    head.starts_with(&object::elf::ELFMAG).then(|| {
        if little {
            u16::from_le_bytes(word)
        } else {
            u16::from_be_bytes(word)
        }
    })
}

fn model(s: &mut Session, a: &InspectArgs) -> Result<String, Failed> {
    let module = s.parse(&a.file, &a.options)?;
    // The same warnings come again below.
    s.diags.list.clear();
    let prefix = prefix_of(&a.file);
    let program = match a.options.target.is_some() {
        true => embedded(s, a, &prefix)?.0,
        false => s.lower(&a.file, &prefix, &a.options, true)?.0,
    };
    let kernels: Vec<&str> =
        program.module.funcs.iter().filter_map(|f| f.name.strip_prefix(&format!("{prefix}_k_"))).collect();
    let operators = operators(&module);
    if let Some(path) = &a.svg {
        let written = crate::output::write(path, crate::drawing::svg(&program).as_bytes());
        s.ok(written)?;
    }
    if a.format == Format::Json {
        let mut all = relax_backend::descriptor::metadata(&program);
        all["operators"] = json!(operators);
        all["kernels"] = json!(kernels);
        return Ok(format!("{all:#}\n"));
    }
    let mut out = crate::report::text(&program, &s.sources);
    let list: Vec<String> = operators.iter().map(|(name, n)| format!("{name} {n}")).collect();
    let _ = writeln!(out, "operators: {}", list.join(", "));
    let _ = writeln!(out, "kernels: {}", kernels.join(", "));
    out += &crate::budget::timeline(&program);
    if a.options.target.is_some() {
        out += &memory_map(s, a, &prefix)?;
    }
    Ok(out)
}

/// The program for a target without an operating system, and whether it has native code (else C serves it).
fn embedded(s: &mut Session, a: &InspectArgs, prefix: &str) -> Result<(relax_ir::program::Program, bool), Failed> {
    let seen = s.diags.list.len();
    let native = s.target(&a.options).is_ok();
    s.diags.list.truncate(seen);
    let program = match native {
        true => s.lower(&a.file, prefix, &a.options, false)?.0,
        false => s.c_source(&a.file, prefix, "model.h", &a.options, false)?.0,
    };
    Ok((program, native))
}

/// What the object for the target takes in each memory. For targets that only C serves: the part that does not depend
/// on the C compiler.
fn memory_map(s: &mut Session, a: &InspectArgs, prefix: &str) -> Result<String, Failed> {
    let (program, native) = embedded(s, a, prefix)?;
    let mut out = String::new();
    let section = |name: &Option<String>| name.as_ref().map_or(String::new(), |n| format!(" in {n}"));
    let (program, stack) = if native {
        let c = s.compile(&a.file, prefix, &a.options, false)?;
        let parsed = parse(&a.file, &c.object);
        let file = s.ok(parsed)?;
        let of = |kinds: &[SectionKind]| -> u64 {
            file.sections().filter(|x| kinds.contains(&x.kind())).map(|x| x.size()).sum()
        };
        let code = of(&[SectionKind::Text]);
        let constants = of(&[SectionKind::ReadOnlyData, SectionKind::ReadOnlyDataWithRel, SectionKind::ReadOnlyString]);
        let _ = writeln!(out, "memory map for {}:", c.target.triple);
        let _ = writeln!(out, "  flash  {code:>9} bytes of code{}", section(&c.program.module.sections.code));
        let weights = section(&c.program.module.sections.weights);
        let _ = writeln!(out, "  flash  {constants:>9} bytes of constants{weights}");
        (c.program, c.stack)
    } else {
        let _ = writeln!(out, "memory map as C, code and stack as the C compiler makes them:");
        let weights = section(&program.module.sections.weights);
        let _ = writeln!(out, "  flash  {:>9} bytes of weights{weights}", program.weight_bytes);
        (program, Default::default())
    };
    for e in &program.entries {
        let place = section(&program.workspace_section);
        let (name, most) = (&e.name, e.workspace_max.map_or("unbounded".to_string(), |n| n.to_string()));
        if e.regions.is_empty() {
            let _ = writeln!(out, "  RAM    {most:>9} bytes of workspace of {name}{place}");
        }
        for (region, bytes) in &e.regions {
            let _ = writeln!(out, "  RAM    {bytes:>9} bytes of workspace of {name} in {region}");
        }
        if let Some(n) = stack.get(name) {
            let _ = writeln!(out, "  stack  {n:>9} bytes of a call of {name}");
        }
    }
    Ok(out)
}

/// How often each operator is called.
fn operators(module: &IRModule) -> BTreeMap<&'static str, usize> {
    let mut count = BTreeMap::new();
    for f in module.relax_funcs() {
        f.body.walk(&mut |e| {
            if let ExprKind::Call(c) = e.kind() {
                if let Some(op) = c.op() {
                    *count.entry(op.name).or_insert(0) += 1;
                }
            }
        });
    }
    count
}

fn read(path: &Path) -> Result<Vec<u8>, Diagnostic> {
    std::fs::read(path).map_err(|e| crate::source::cannot_read(path, &e))
}

fn parse<'d>(path: &Path, bytes: &'d [u8]) -> Result<object::File<'d>, Diagnostic> {
    object::File::parse(bytes)
        .map_err(|e| Diagnostic::error("bad-library", Span::NONE, format!("{}: no object file: {e}", path.display())))
}

/// The prefix of a library's names: what stands before `_metadata`.
fn prefix(path: &Path) -> Result<String, Diagnostic> {
    let bytes = read(path)?;
    let file = parse(path, &bytes)?;
    let mut names = file.dynamic_symbols().filter(|s| s.is_definition()).filter_map(|s| s.name().ok());
    let found = names.find_map(|n| n.strip_suffix("_metadata").map(str::to_string));
    found.ok_or_else(|| {
        Diagnostic::error("bad-library", Span::NONE, format!("{}: no library of relax-aot", path.display()))
    })
}

fn library(a: &InspectArgs) -> Result<String, Diagnostic> {
    let prefix = prefix(&a.file)?;
    let path = std::fs::canonicalize(&a.file).map_err(|e| crate::source::cannot_read(&a.file, &e))?;
    let lib = Library::open(&path, &prefix)?;
    let data: Value = serde_json::from_str(lib.metadata())
        .map_err(|e| Diagnostic::error("bad-library", Span::NONE, format!("{}: {e}", a.file.display())))?;
    if a.format == Format::Json {
        return Ok(format!("{data:#}\n"));
    }
    let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_string);
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let mut out = String::new();
    let _ = writeln!(out, "library of {}, prefix {}", text(&data["compiler"]), text(&data["prefix"]));
    for e in list(&data["entries"]) {
        let _ = writeln!(out, "entry {}: {}", text(&e["name"]), text(&e["symbol"]));
        for (what, values) in [("in ", &e["params"]), ("out", &e["results"])] {
            for v in list(values) {
                let most: Vec<String> = list(&v["at_most"]).iter().map(text).collect();
                let most = crate::report::at_most(&most);
                let _ = writeln!(out, "  {what}  {}: {}{most}", text(&v["name"]), text(&v["text"]));
            }
        }
        for d in list(&e["dims"]) {
            let facts = [("at least", "lower"), ("at most", "upper"), ("a multiple of", "divisor")];
            let facts: Vec<String> =
                facts.iter().filter_map(|(word, key)| Some(format!("{word} {}", d[*key].as_i64()?))).collect();
            let facts = if facts.is_empty() { "any".to_string() } else { facts.join(", ") };
            let _ = writeln!(out, "  dim  {}: {facts}", text(&d["name"]));
        }
        let most = e["workspace_max"].as_i64().filter(|_| e["workspace"].is_string());
        let most = most.map_or(String::new(), |n| format!(", at most {n}"));
        let _ = writeln!(out, "  workspace: {} bytes{most}", text(&e["workspace"]));
    }
    let _ = writeln!(out, "weights: {} bytes", text(&data["memory"]["weights"]));
    let checks = list(&data["constraints"]);
    let _ = writeln!(out, "checks at run time: {}", checks.len());
    for c in checks {
        let _ = writeln!(out, "  {:>4}: {}: {}", text(&c["number"]), text(&c["message"]), text(&c["condition"]));
    }
    Ok(out)
}

/// An object for any machine: nothing of it is run.
fn binary(a: &InspectArgs) -> Result<String, Diagnostic> {
    let bytes = read(&a.file)?;
    let file = parse(&a.file, &bytes)?;
    let total = |wanted: &[SectionKind]| -> u64 {
        file.sections().filter(|s| wanted.contains(&s.kind())).map(|s| s.size()).sum()
    };
    let code = total(&[SectionKind::Text]);
    let constants = total(&[SectionKind::ReadOnlyData, SectionKind::ReadOnlyDataWithRel, SectionKind::ReadOnlyString]);
    let writable = total(&[SectionKind::Data, SectionKind::UninitializedData]);
    let names = |keep: &dyn Fn(&object::Symbol) -> bool| -> Vec<String> {
        file.symbols().filter(|s| keep(s)).filter_map(|s| s.name().ok()).map(str::to_string).collect()
    };
    let exports = names(&|s| s.is_global() && s.is_definition());
    let undefined = names(&|s| s.is_undefined() && s.name().is_ok_and(|n| !n.is_empty()));
    let machine = format!("{:?}", file.architecture());
    if a.format == Format::Json {
        let all = json!({
            "machine": machine, "code": code, "constants": constants, "writable": writable,
            "exports": exports, "undefined": undefined,
        });
        return Ok(format!("{all:#}\n"));
    }
    let or_none = |v: &[String]| if v.is_empty() { "none".to_string() } else { v.join(", ") };
    let mut out = String::new();
    let _ = writeln!(out, "object for {machine}");
    let _ = writeln!(out, "code: {code} bytes\nconstants: {constants} bytes\nwritable: {writable} bytes");
    let _ = writeln!(out, "exported: {}\nundefined: {}", or_none(&exports), or_none(&undefined));
    Ok(out)
}
