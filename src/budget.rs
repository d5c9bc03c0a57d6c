//! What a compiled model takes: code, constants, workspace and stack; budgets, and who breaks them.

use crate::source::Sources;
use relax_backend::clif::Measures;
use relax_ir::program::{MemoryUse, Program};
use relax_ir::{Diagnostic, Span};
use std::fmt::Write;

/// A contributor: bytes, and what it is.
type Share = (u64, String);

/// How many contributors are named.
const NAMED: usize = 8;

fn ranked(mut shares: Vec<Share>, total: u64) -> Vec<String> {
    shares.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let rest: u64 = shares.iter().skip(NAMED).map(|s| s.0).sum();
    let percent = |n: u64| 100.0 * n as f64 / total.max(1) as f64;
    let mut out: Vec<String> =
        shares.iter().take(NAMED).map(|(n, what)| format!("{n:>9} bytes {:>5.1} %  {what}", percent(*n))).collect();
    if rest > 0 {
        out.push(format!("{rest:>9} bytes {:>5.1} %  {} others", percent(rest), shares.len() - NAMED));
    }
    out
}

/// Code and constants, each with its bytes.
fn flash(program: &Program, measures: Option<&Measures>, sources: &Sources) -> Vec<Share> {
    let p = &program.prefix;
    let mut out = vec![];
    for (f, (code, _)) in program.module.funcs.iter().zip(measures.iter().flat_map(|m| &m.functions)) {
        let name = f.name.strip_prefix(&format!("{p}_k_")).unwrap_or(&f.name);
        let place = sources.place(f.span).map(|t| format!(": {t}")).unwrap_or_default();
        out.push((u64::from(*code), format!("code of {name}{place}")));
    }
    let mut texts = 0;
    let data = match measures {
        Some(_) => program.module.data.iter().collect(),
        None => relax_backend::c::constants(program),
    };
    for d in data {
        let n = d.bytes.get().len() as u64;
        match &d.bytes {
            relax_ir::flat::DataBytes::Constant(c) => {
                let dims: Vec<String> = c.shape.iter().map(i64::to_string).collect();
                out.push((n, format!("constant {}: {} of shape ({})", d.symbol, c.dtype, dims.join(", "))));
            }
            _ => texts += n,
        }
    }
    out.push((texts, "messages and descriptors (--messages none leaves the messages out)".to_string()));
    out
}

/// Fails when code and constants take more than `limit` bytes. Without measures (C: only its compiler knows the code)
/// constants alone are counted.
///
/// # Errors
/// The budget is exceeded: the ranked contributors are notes.
pub fn check_flash(
    program: &Program,
    measures: Option<&Measures>,
    sources: &Sources,
    limit: u64,
) -> Result<(), Diagnostic> {
    let shares = flash(program, measures, sources);
    let total: u64 = shares.iter().map(|s| s.0).sum();
    if total <= limit {
        return Ok(());
    }
    let what = measures.map_or("constants alone", |_| "code and constants");
    let message = format!("{what} take {total} bytes, {} more than the budget of {limit}", total - limit);
    let mut d = Diagnostic::error("max-flash", Span::NONE, message);
    for line in ranked(shares, total) {
        d = d.note(line);
    }
    Err(d.help("smaller types (int8, float16) for the largest constants, -O1 for less unrolled code"))
}

/// Fails when the workspace and stack of an entry take more than `limit` bytes.
///
/// # Errors
/// The budget is exceeded, or there is no bound.
pub fn check_ram(program: &Program, stack: &dyn Fn(&str) -> Option<u64>, limit: u64) -> Result<(), Diagnostic> {
    for e in &program.entries {
        if e.dynamic.is_some() {
            let message = format!("the memory of {} has no bound: its values have no static structure", e.name);
            let help = "bound it by the allocator of the call, which may refuse";
            return Err(Diagnostic::error("max-ram", Span::NONE, message).help(help));
        }
        let Some(workspace) = e.workspace_max else {
            let free: Vec<&str> = e.dims.iter().filter(|d| d.upper.is_none()).map(|d| d.var.name()).collect();
            let message = format!("the workspace of {} has no bound: it depends on {}", e.name, free.join(", "));
            let help = format!("give each an upper bound, e.g. --dim {}=1..64", free.first().unwrap_or(&"n"));
            return Err(Diagnostic::error("max-ram", Span::NONE, message).help(help));
        };
        let stack = stack(&e.name).unwrap_or(0);
        let workspace = workspace + e.regions.iter().map(|r| r.1).sum::<u64>();
        let total = workspace + stack;
        if total <= limit {
            continue;
        }
        let parts = if stack > 0 {
            format!(" of memory ({workspace} workspace, {stack} stack)")
        } else {
            " of workspace".into()
        };
        let message =
            format!("{} takes {total} bytes{parts}, {} more than the budget of {limit}", e.name, total - limit);
        let mut d = Diagnostic::error("max-ram", Span::NONE, message);
        if let Some(m) = program.memory.iter().find(|m| m.entry == e.name) {
            let (step, live) = peak(m);
            let name = m.steps.get(step.saturating_sub(1)).map_or("", String::as_str);
            d = d.note(format!("most is in use at step {step} ({name}):"));
            for line in ranked(live, total) {
                d = d.note(line);
            }
        }
        let bounded: Vec<String> =
            e.dims.iter().filter_map(|d| Some(format!("{} <= {}", d.var.name(), d.upper?))).collect();
        let help = match bounded.is_empty() {
            true => "a smaller input or fewer channels where most is in use".to_string(),
            false => format!("lower bounds of the dims ({}) with --dim", bounded.join(", ")),
        };
        return Err(d.help(help));
    }
    Ok(())
}

/// The step with the most bytes in use, and what is in use there.
fn peak(m: &MemoryUse) -> (usize, Vec<Share>) {
    let live = |step: usize| m.buffers.iter().filter(move |b| b.first <= step && step <= b.last);
    let bytes = |step: usize| live(step).filter_map(|b| b.max_bytes).sum::<u64>();
    let step = (1..=m.steps.len()).max_by_key(|&s| (bytes(s), usize::MAX - s)).unwrap_or(0);
    let shares = live(step).filter_map(|b| {
        let name = m.steps.get(b.first.saturating_sub(1)).map_or("", String::as_str);
        Some((b.max_bytes?, format!("made by {name} (step {}), in use until step {}", b.first, b.last)))
    });
    (step, shares.collect())
}

/// Which buffers are in use at which step, a line each; sizes at the dims' bounds.
pub fn timeline(program: &Program) -> String {
    let mut out = String::new();
    for m in program.memory.iter().filter(|m| !m.buffers.is_empty()) {
        let total = program.entries.iter().find(|e| e.name == m.entry).and_then(|e| e.workspace_max);
        let total = total.map_or("unbounded".to_string(), |n| format!("{n} bytes"));
        let _ = writeln!(out, "memory of {}: workspace {total}", m.entry);
        let _ = writeln!(out, "  {:>9} {:>9}  steps {}", "offset", "bytes", ruler(m.steps.len()));
        let number = |n: Option<u64>, e: &relax_ir::PrimExpr| {
            n.map_or_else(|| relax_ir::printer::print_prim(e), |n| n.to_string())
        };
        for b in &m.buffers {
            let bar: String =
                (1..=m.steps.len()).map(|s| if (b.first..=b.last).contains(&s) { '#' } else { '.' }).collect();
            let name = m.steps.get(b.first.saturating_sub(1)).map_or("", String::as_str);
            let _ = writeln!(
                out,
                "  {:>9} {:>9}        {bar}  {}made by {name}",
                number(b.max_offset, &b.offset),
                number(b.max_bytes, &b.bytes),
                b.region.as_ref().map_or(String::new(), |r| format!("in {r}, "))
            );
        }
        let (step, live) = peak(m);
        let used: u64 = live.iter().map(|s| s.0).sum();
        let name = m.steps.get(step.saturating_sub(1)).map_or("", String::as_str);
        let _ = writeln!(out, "  most in use: {used} bytes at step {step} ({name})");
    }
    out
}

/// `1        10        20`: step numbers above the bars.
fn ruler(n: usize) -> String {
    let mut out = String::new();
    for s in (0..n).step_by(10) {
        let label = if s == 0 { "1".to_string() } else { s.to_string() };
        let width = if s == 0 { 9 } else { 10 };
        let _ = write!(out, "{label:<width$}");
    }
    out.trim_end().to_string()
}
