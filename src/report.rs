//! What `--report`, `check` and `inspect` say about a compiled program.

use crate::source::Sources;
use relax_ir::printer::print_prim;
use relax_ir::program::{EntryDim, Program};
use std::fmt::Write;

/// Entries with their parameters, results, shape variables and memory.
pub fn summary(p: &Program) -> String {
    let mut out = String::new();
    for e in &p.entries {
        let _ = writeln!(out, "entry {}", e.name);
        for v in &e.params {
            let _ = writeln!(out, "  in   {}: {}", v.name, v.text);
        }
        for v in &e.results {
            let _ = writeln!(out, "  out  {}: {}", v.name, v.text);
        }
        for d in &e.dims {
            let _ = writeln!(out, "  dim  {}: {}", d.var.name(), bounds(d));
        }
        match &e.workspace {
            Some(w) => {
                let _ = write!(out, "  workspace: {} bytes", print_prim(w));
            }
            None => {
                let _ = write!(out, "  workspace: depends on data");
            }
        }
        match e.workspace_max.filter(|_| e.workspace.as_ref().is_some_and(|w| w.as_int().is_none())) {
            Some(m) => {
                let _ = writeln!(out, ", at most {m}");
            }
            None => out.push('\n'),
        }
    }
    let _ = writeln!(out, "weights: {} bytes", p.weight_bytes);
    let _ = writeln!(out, "checks at run time: {}", p.checks.len());
    out
}

fn bounds(d: &EntryDim) -> String {
    let facts = [("at least", d.lower), ("at most", d.upper), ("a multiple of", d.divisor)];
    let facts: Vec<String> = facts.iter().filter_map(|(word, v)| Some(format!("{word} {}", (*v)?))).collect();
    if facts.is_empty() {
        "any".to_string()
    } else {
        facts.join(", ")
    }
}

/// The summary and every check at run time, with its number and source line.
pub fn text(p: &Program, sources: &Sources) -> String {
    let mut out = summary(p);
    for c in &p.checks {
        let at = match sources.line_column(c.span) {
            Some((line, _)) if !c.span.is_none() => format!(" (line {line})"),
            _ => String::new(),
        };
        let _ = writeln!(out, "  {:>4}: {}: {}{at}", c.number, c.message, c.condition);
    }
    out
}
