//! Where the parts of an object go (`--section`), and who hears of errors (`--on-error`).

use crate::cli::CodegenArgs;
use relax_ir::program::Program;
use relax_ir::{Diagnostic, Span};
use relax_lower::Region;

/// Notes sections and the hook in the program.
///
/// # Errors
/// A part or a name that is none, or options that do not go with a hosted library.
pub fn apply(program: &mut Program, o: &CodegenArgs, hosted: bool) -> Result<(), Diagnostic> {
    let fault = |m: String, help: &str| Err(Diagnostic::error("option", Span::NONE, m).help(help));
    if hosted && (o.on_error.is_some() || !o.section.is_empty()) {
        return fault("--section and --on-error are for objects and C".into(), "write model.o, model.a or model.c");
    }
    for text in &o.section {
        let help = "e.g. --section weights=.qspi --section code=.itcm --section workspace=.dtcm";
        let Some((part, name)) = text.split_once('=') else {
            return fault(format!("--section {text}: there is no `=`"), help);
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '$');
        if name.is_empty() || !name.chars().all(plain) {
            return fault(format!("--section {text}: `{name}` is no name of a section"), help);
        }
        let to = match part {
            "code" => &mut program.module.sections.code,
            "weights" => &mut program.module.sections.weights,
            "workspace" => &mut program.workspace_section,
            _ => return fault(format!("--section {text}: there is no part `{part}`"), help),
        };
        *to = Some(name.to_string());
    }
    if let Some(name) = &o.on_error {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(word) {
            let help = "the name of a function in C, e.g. --on-error model_failed";
            return fault(format!("--on-error {name}: no name of a function"), help);
        }
        program.on_error = Some(name.clone());
    }
    Ok(())
}

/// The memories of `--region`.
///
/// # Errors
/// A region without a name or size, or a hosted library.
pub fn regions(
    o: &CodegenArgs,
    hosted: bool,
    size: fn(&str) -> Result<u64, Diagnostic>,
) -> Result<Vec<Region>, Diagnostic> {
    let fault = |m: String| {
        let d = Diagnostic::error("option", Span::NONE, m);
        Err(d.help("e.g. --region fast=64K,slow=256K, the fastest first, for model.o, model.a or model.c"))
    };
    if hosted && !o.region.is_empty() {
        return fault("--region is for objects and C".into());
    }
    let mut out: Vec<Region> = vec![];
    for text in &o.region {
        let Some((name, bytes)) = text.split_once('=') else {
            return fault(format!("--region {text}: there is no `=`"));
        };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(word) || name.starts_with(|c: char| c.is_ascii_digit()) {
            return fault(format!("--region {text}: `{name}` is no identifier of C"));
        }
        if out.iter().any(|r| r.name == name) {
            return fault(format!("--region {text}: `{name}` is given twice"));
        }
        out.push(Region { name: name.to_string(), bytes: size(bytes)? });
    }
    Ok(out)
}
