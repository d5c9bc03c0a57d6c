//! `relax-aot inspect`: what a model or a compiled library contains.

use crate::cli::{Format, InspectArgs};
use crate::driver::{prefix_of, Failed, Session};
use crate::loader::Library;
use relax_ir::{Diagnostic, Span};
use serde_json::Value;
use std::fmt::Write;

pub fn inspect(s: &mut Session, a: &InspectArgs) -> Result<String, Failed> {
    if a.file.extension().is_some_and(|e| e == "so") {
        let text = library(a).map_err(|d| {
            s.diags.push(d);
            Failed
        })?;
        return Ok(text);
    }
    let (program, _) = s.lower(&a.file, &prefix_of(&a.file), &a.options, true)?;
    if a.format == Format::Json {
        let metadata = relax_backend::descriptor::metadata(&program);
        return Ok(format!("{metadata}\n"));
    }
    let mut out = crate::report::text(&program, &s.sources);
    let kernels: Vec<&str> =
        program.module.funcs.iter().filter_map(|f| f.name.strip_prefix(&format!("{}_k_", program.prefix))).collect();
    let _ = writeln!(out, "kernels: {}", kernels.join(", "));
    Ok(out)
}

fn library(a: &InspectArgs) -> Result<String, Diagnostic> {
    let path = std::fs::canonicalize(&a.file).map_err(|e| crate::source::cannot_read(&a.file, &e))?;
    let prefix = a.options.prefix.clone().unwrap_or_else(|| prefix_of(&a.file));
    let lib = Library::open(&path, &prefix)
        .map_err(|d| d.help("if the library was built with --prefix, give the same prefix here"))?;
    if a.format == Format::Json {
        return Ok(format!("{}\n", lib.metadata()));
    }
    let json: Value = serde_json::from_str(lib.metadata())
        .map_err(|e| Diagnostic::error("metadata", Span::NONE, format!("{}: bad metadata: {e}", a.file.display())))?;
    let pretty = serde_json::to_string_pretty(&json).unwrap_or_default();
    Ok(format!("{pretty}\n"))
}
