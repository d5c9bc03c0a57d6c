//! What `--report`, `check` and `inspect` say about a compiled program.

use crate::cli::Format;
use crate::source::Sources;
use relax_ir::analysis::{constraints, show};
use relax_ir::printer::print_prim;
use relax_ir::program::{BornDim, DimStated, Entry, EntryDim, EntryKind, FormInfo, Program};
use relax_ir::PrimExpr;
use std::fmt::Write;

/// Longer formulas are not shown.
const LONG: usize = 400;

/// Entries with their parameters, results, shape variables and memory.
pub fn summary(p: &Program) -> String {
    let mut out = String::new();
    let written = |text: &str| constraints::as_written(&p.written, text);
    for e in &p.entries {
        let _ = writeln!(out, "entry {}", e.name);
        for v in &e.params {
            let _ = writeln!(out, "  in   {}: {}", v.name, written(&v.text));
        }
        for v in &e.results {
            let most: Vec<String> = v.bounds.iter().flatten().map(print_prim).collect();
            let _ = writeln!(out, "  out  {}: {}{}", v.name, written(&v.text), written(&at_most(&most)));
        }
        for d in &e.dims {
            let _ = writeln!(out, "  dim  {}: {}", named(d), bounds(d));
        }
        match &e.workspace {
            Some(w) => {
                let formula = written(&print_prim(w));
                let _ = match formula.len() {
                    0..=LONG => write!(out, "  workspace: {formula} bytes"),
                    _ => {
                        let names: Vec<String> = w.vars().iter().map(|v| v.name().to_string()).collect();
                        write!(out, "  workspace: a long formula of {}", names.join(", "))
                    }
                };
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

/// What the dims that data decides are at most, behind the type of a result.
pub fn at_most(dims: &[String]) -> String {
    match dims {
        [] => String::new(),
        [one] => format!(", as data decides, at most ({one},)"),
        _ => format!(", as data decides, at most ({})", dims.join(", ")),
    }
}

/// A dim as the model wrote it, and the name that the header has for it.
fn named(d: &EntryDim) -> String {
    match &d.stated {
        DimStated::Solved { text, .. } => format!("{text} ({} in C)", d.var.name()),
        _ => d.var.name().to_string(),
    }
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

/// The summary with what a call checks of its dims, for `check`.
pub fn preflight(p: &Program, sources: &Sources) -> String {
    let mut out = summary(p);
    checks(p, sources, &mut out);
    out
}

/// One line for each check.
fn checks(p: &Program, sources: &Sources, out: &mut String) {
    let place = |span| line(span, sources).map(|n| format!(" (line {n})")).unwrap_or_default();
    for c in &p.checks {
        let _ = writeln!(out, "  {:>4}: {}: {}{}", c.number, c.message, c.condition, place(c.span));
    }
}

/// One line for each argument and output: the number of the check of what it is.
fn arguments(p: &Program, sources: &Sources, out: &mut String) {
    if p.unchecked || p.entries.iter().all(|e| e.values().next().is_none()) {
        return;
    }
    let _ = writeln!(out, "checks of arguments and outputs (pointer, device, dtype, rank, strides, alignment, room):");
    for e in &p.entries {
        for (number, v) in e.values() {
            let text = constraints::as_written(&p.written, &v.text);
            let place = line(v.span, sources).map(|n| format!(" (line {n})")).unwrap_or_default();
            let _ = writeln!(out, "  {number:>4}: {}: {}: {text}{place}", e.name, v.name);
        }
    }
}

/// The report in the format asked for.
pub fn asked(format: Option<Format>, p: &Program, sources: &Sources) -> Option<String> {
    format.map(|f| match f {
        Format::Text => text(p, sources),
        Format::Json => format!("{:#}\n", json(p, sources)),
    })
}

/// A fact that the caller's arguments bring: a dim is what the first tensor that has it says, within its bounds.
struct Assumed {
    entry: String,
    fact: String,
    /// Of the parameter that states it.
    line: Option<usize>,
}

fn assumed(p: &Program, sources: &Sources) -> Vec<Assumed> {
    let mut out = vec![];
    for e in &p.entries {
        for d in &e.dims {
            let name = d.text();
            let from = e.params.iter().find_map(|v| {
                let dims: Vec<Option<&PrimExpr>> = match &v.kind {
                    EntryKind::Tensor { dims: Some(dims), .. } => dims.iter().map(Option::as_ref).collect(),
                    EntryKind::Shape { values: Some(values), .. } => values.iter().map(Some).collect(),
                    _ => return None,
                };
                let axis = dims.iter().position(|x| x.and_then(|x| x.as_var()) == Some(&d.var))?;
                let what = if matches!(v.kind, EntryKind::Shape { .. }) { "value" } else { "dim" };
                Some((format!("{what} {axis} of {}", v.name), v.span))
            });
            let scalar = e.params.iter().find(|v| matches!(v.kind, EntryKind::Scalar { .. }) && v.name == d.var.name());
            let at = from.as_ref().map(|f| f.1).or(scalar.map(|v| v.span));
            let fact = match from {
                Some((from, _)) => format!("{name} is {from}: {}", bounds(d)),
                None => format!("{name}: {}", bounds(d)),
            };
            out.push(Assumed { entry: e.name.clone(), fact, line: at.and_then(|span| line(span, sources)) });
        }
    }
    out
}

/// What a dim that stays open costs.
struct Cost {
    entry: String,
    /// As the model wrote it, and its name in the header.
    dim: String,
    name: String,
    /// Numbers of the checks that mention it.
    checks: Vec<u32>,
    /// Does it decide how much memory a call takes, without a bound?
    open_memory: bool,
    /// Kernels that take it as an argument instead of a number.
    kernels: usize,
    advice: String,
    /// Where it gets its value, when no argument tells it.
    born: Option<relax_ir::Span>,
}

/// The numbers of the checks that mention a dim.
fn checks_of(p: &Program, name: &str) -> Vec<u32> {
    p.checks.iter().filter(|c| c.names.iter().any(|n| n == name)).map(|c| c.number).collect()
}

/// How many kernels of an entry take what a dim decides. The calls of functions over values are not listed: there it is
/// the kernels whose parameter has its name.
fn kernels_for(p: &Program, entry: &str, name: &str) -> usize {
    if let Some(m) = p.memory.iter().find(|m| m.entry == entry) {
        let of_name = m.sized.iter().filter(|(_, vars)| vars.iter().any(|v| v.name() == name));
        return of_name.map(|(kernel, _)| kernel).collect::<std::collections::BTreeSet<_>>().len();
    }
    let start = format!("{}_k_", p.prefix);
    let kernels = p.module.funcs.iter().filter(|f| f.name.starts_with(&start));
    kernels.filter(|f| f.params.iter().any(|v| v.name() == name)).count()
}

/// What divides a dim because of how it is written: 4 of `m * 4`.
fn own_divisor(d: &EntryDim) -> Option<i64> {
    let DimStated::Solved { text, var } = &d.stated else { return None };
    let at = |value: i64| {
        let lookup = |name: &str| (name == var).then(|| PrimExpr::i64(value));
        relax_ir::prim::text::dim(text, &lookup).ok()?.as_int()
    };
    at(0).filter(|rest| *rest == 0).and(at(1)).filter(|k| *k > 1)
}

/// What a user can say of a dim of a signature, and what it changes.
fn advice(e: &Entry, d: &EntryDim, bound: bool, kernels: usize) -> String {
    let name = match &d.stated {
        DimStated::Unranked(parameter) => {
            return format!(
                "a rank in the annotation of {parameter}, R.Tensor(ndim=RANK, dtype=DTYPE), makes it a dim that --dim {}=1..MAX \
                 bounds and --dim {}=SIZE makes a number",
                d.var.name(), d.var.name()
            );
        }
        DimStated::Solved { var, .. } => var,
        DimStated::Named | DimStated::Scalar => d.var.name(),
    };
    let mut words = vec![];
    if bound {
        words.push(format!("--dim {name}=1..MAX bounds the memory"));
    }
    if kernels > 0 && d.stated != DimStated::Scalar {
        if d.divisor == own_divisor(d) {
            words.push(format!("--dim {name}%K tells a divisor"));
        }
        if e.dynamic.is_none() {
            words.push(format!("--likely {name}=SIZE makes code for a size beside that for all"));
        }
    }
    words.push(format!("--dim {name}=SIZE makes it a number"));
    words.join("; ")
}

/// What a user can say of a dim that a value brings: the cast that states it.
fn cast(d: &BornDim) -> String {
    let map = std::collections::HashMap::from([(d.var.clone(), relax_ir::Var::dim("SIZE").expr())]);
    let info = show::info(&relax_ir::analysis::vars::substitute(&d.info, &map));
    format!("R.match_cast({}, {info}) makes what follows for one size", d.binding)
}

fn costs(p: &Program) -> Vec<Cost> {
    let mut out = vec![];
    for e in &p.entries {
        for d in &e.dims {
            let name = d.var.name();
            // Functions over values take memory as they run.
            let open = d.upper.is_none() && e.workspace_max.is_none();
            let bound = open && e.workspace.as_ref().is_none_or(|w| w.vars().contains(&d.var));
            let kernels = kernels_for(p, &e.name, name);
            out.push(Cost {
                entry: e.name.clone(),
                dim: d.text().to_string(),
                name: name.to_string(),
                checks: checks_of(p, name),
                open_memory: bound || e.dynamic.is_some(),
                kernels,
                advice: advice(e, d, bound, kernels),
                born: None,
            });
        }
    }
    for d in &p.born {
        let name = d.var.name();
        out.push(Cost {
            entry: d.function.clone(),
            dim: constraints::as_written(&p.written, name),
            name: name.to_string(),
            checks: checks_of(p, name),
            // Its memory is that of the bound.
            open_memory: false,
            kernels: kernels_for(p, &d.function, name),
            advice: cast(d),
            born: Some(d.span),
        });
    }
    out
}

fn line(span: relax_ir::Span, sources: &Sources) -> Option<usize> {
    sources.line_column(span).filter(|_| !span.is_none()).map(|(line, _)| line)
}

/// The summary, every fact, and what open dims cost.
pub fn text(p: &Program, sources: &Sources) -> String {
    let mut out = summary(p);
    let place = |span| line(span, sources).map(|n| format!(" (line {n})")).unwrap_or_default();
    checks(p, sources, &mut out);
    arguments(p, sources, &mut out);
    let written = |text: &str| constraints::as_written(&p.written, text);
    let given = assumed(p, sources);
    let _ = writeln!(out, "assumed of the arguments: {}", given.len());
    for a in &given {
        let at = a.line.map(|n| format!(" (line {n})")).unwrap_or_default();
        let _ = writeln!(out, "  {}: {}{at}", a.entry, a.fact);
    }
    let _ = writeln!(out, "proved, so not checked: {}", p.proved.len());
    for (condition, span) in &p.proved {
        let _ = writeln!(out, "  {}{}", written(&show::dim(condition)), place(*span));
    }
    if !p.open_accesses.is_empty() {
        let n = p.open_accesses.len();
        let _ = writeln!(
            out,
            "accesses of kernels that are not proved inside of their buffers: {n} (--check-bounds tests them)"
        );
    }
    for a in &p.open_accesses {
        let verb = if a.write { "writes" } else { "reads" };
        let _ =
            writeln!(out, "  {} {verb} {}: index {}, extent {}{}", a.kernel, a.access, a.axis, a.extent, place(a.span));
    }
    if !p.forms.is_empty() {
        let _ = writeln!(out, "code of their own for likely sizes: {}", p.forms.len());
    }
    for f in &p.forms {
        let code = f.code_bytes.map(|n| format!("{n} bytes of code, ")).unwrap_or_default();
        let _ = writeln!(out, "  {}: {}: {code}{} bytes of weights", f.entry, written(&f.when), f.data_bytes);
        for k in kernels_of(f, p) {
            let _ = writeln!(out, "    {k}");
        }
    }
    let costs = costs(p);
    let _ = writeln!(out, "dims left open: {}", costs.len());
    for c in &costs {
        let memory = if c.open_memory { ", memory without a bound" } else { "" };
        let _ = writeln!(
            out,
            "  {}: {}{}: {} checks, {} kernels for any size{memory}; {}",
            c.entry,
            c.dim,
            c.born.map(|span| format!(", which data decides{}", place(span))).unwrap_or_default(),
            c.checks.len(),
            c.kernels,
            c.advice
        );
    }
    out
}

/// The kernels that a form alone calls.
fn kernels_of<'a>(f: &'a FormInfo, p: &Program) -> impl Iterator<Item = &'a str> {
    let start = format!("{}_k_", p.prefix).len();
    f.kernels.iter().map(move |k| &k[start.min(k.len())..])
}

/// The same as a value: `checked`, `arguments`, `assumed`, `proved`, `forms`, `open_accesses`,
/// `open_dims`.
pub fn json(p: &Program, sources: &Sources) -> serde_json::Value {
    use serde_json::json;
    let checked = p.checks.iter().map(|c| {
        json!({"number": c.number, "code": c.code, "condition": c.condition, "message": c.message, "line": line(c.span, sources)})
    });
    let costs = costs(p);
    let arguments = p.entries.iter().filter(|_| !p.unchecked).flat_map(|e| {
        e.values().map(|(number, v)| {
            let text = constraints::as_written(&p.written, &v.text);
            json!({"number": number, "entry": e.name, "name": v.name, "is": text, "line": line(v.span, sources)})
        })
    });
    json!({
        "checked": checked.collect::<Vec<_>>(),
        "arguments": arguments.collect::<Vec<_>>(),
        "assumed": assumed(p, sources).iter().map(|a| json!({"entry": a.entry, "fact": a.fact, "line": a.line})).collect::<Vec<_>>(),
        "proved": p.proved.iter().map(|(c, span)| {
            json!({"condition": constraints::as_written(&p.written, &show::dim(c)), "line": line(*span, sources)})
        }).collect::<Vec<_>>(),
        "forms": p.forms.iter().map(|f| json!({
            "entry": f.entry, "when": constraints::as_written(&p.written, &f.when), "kernels": kernels_of(f, p).collect::<Vec<_>>(),
            "code_bytes": f.code_bytes, "weight_bytes": f.data_bytes,
        })).collect::<Vec<_>>(),
        "open_accesses": p.open_accesses.iter().map(|a| json!({
            "kernel": a.kernel, "access": a.access, "axis": a.axis, "extent": a.extent, "writes": a.write,
            "line": line(a.span, sources),
        })).collect::<Vec<_>>(),
        "open_dims": costs.iter().map(|c| json!({
            "entry": c.entry, "dim": c.dim, "name": c.name, "checks": c.checks, "memory_without_bound": c.open_memory,
            "kernels": c.kernels, "advice": c.advice, "from_data": c.born.is_some(),
            "line": c.born.and_then(|span| line(span, sources)),
        })).collect::<Vec<_>>(),
    })
}
