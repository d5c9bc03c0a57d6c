//! `relax-aot run`: compile, load through the C interface, call, compare, time.

use crate::cli::RunArgs;
use crate::compare::compare;
use crate::driver::{library_path, scratch, Failed, Session};
use crate::loader::Library;
use crate::output;
use relax_ir::program::{EntryKind, EntryValue};
use relax_ir::{Constant, Diagnostic, Span};
use relax_lower::of_bytes;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Runs; what was printed on success.
pub fn run(s: &mut Session, a: &RunArgs) -> Result<String, Failed> {
    if let Some(out) = &a.outputs {
        let read = [Some(&a.model), a.inputs.as_ref(), a.expect.as_ref(), a.options.params.as_ref()];
        take(s, output::no_input(out, &read.map(|p| p.map(PathBuf::as_path))))?;
    }
    let dir = take(s, scratch())?;
    let path = library_path(&dir);
    let mut options = a.options.clone();
    options.prefix = Some("model".into());
    let program = s.build(&a.model, &path, None, &options)?;
    let entry = program.entries.iter().find(|e| e.name == a.entry).ok_or_else(|| {
        let names: Vec<&str> = program.entries.iter().map(|e| e.name.as_str()).collect();
        let d = Diagnostic::error("entry", Span::NONE, format!("the model has no entry named {}", a.entry))
            .help(format!("its entries are: {}", names.join(", ")));
        s.diags.push(d);
        Failed
    });
    let entry = entry?;
    let inputs = match &a.inputs {
        Some(p) => tensors(s, p, "input")?,
        None => vec![],
    };
    let args = take(s, arguments(&entry.params, inputs))?;
    let mut library = take(s, Library::open(&path, "model"))?;
    if let Some(w) = &program.weights_file {
        library.set_weights(&w.contents());
    }
    let n = entry.results.len();
    let call = || library.run(&a.entry, &args, n);
    let results = match call() {
        Ok(r) => r,
        Err(e) => {
            let check = program.checks.iter().find(|c| i64::from(c.number) == i64::from(e.constraint));
            let argument = entry.values().find(|(n, _)| *n == e.constraint).map(|(_, v)| v.span);
            let at = check.map(|c| c.span).or(argument).unwrap_or(Span::NONE);
            let mut d = Diagnostic::error("run", at, format!("{} failed with code {}: {}", a.entry, e.code, e.message));
            if let Some(c) = check {
                let what = format!("check number {}, {}", c.number, c.condition);
                d = d.here("checked here").note(format!("{what}: wanted {}, got {}", e.wanted, e.got));
            } else if e.constraint != 0 {
                d = if argument.is_some_and(|s| !s.is_none()) { d.here("declared here") } else { d };
                d = d.note(format!("check number {}: wanted {}, got {}", e.constraint, e.wanted, e.got));
            }
            s.diags.push(d);
            return Err(Failed);
        }
    };
    // By the model's own names, where it has some and they differ.
    let labels = program.result_labels.iter().find(|(e, _)| *e == entry.name).map(|(_, names)| names.clone());
    let names = labels.filter(|n| n.iter().collect::<HashSet<_>>().len() == n.len());
    let names = names.unwrap_or_else(|| entry.results.iter().map(|r| r.name.clone()).collect());
    let mut text = String::new();
    for (name, r) in names.iter().zip(&results) {
        text.push_str(&format!("{name}: {} {:?}{}\n", r.dtype, r.shape, preview(r)));
    }
    if a.repeat > 1 {
        let mut times: Vec<f64> = vec![];
        for _ in 0..a.repeat {
            let start = Instant::now();
            if call().is_err() {
                break;
            }
            times.push(start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        if let (Some(best), Some(median)) = (times.first(), times.get(times.len() / 2)) {
            text.push_str(&format!("{} calls: best {:.6} s, median {:.6} s\n", times.len(), best, median));
        }
    }
    if let Some(out) = &a.outputs {
        let named: Vec<(String, Constant)> = names.iter().cloned().zip(results.iter().cloned()).collect();
        let bytes = relax_frontend::weights::npz_bytes(&named)
            .map_err(|e| Diagnostic::error("outputs", Span::NONE, format!("cannot write {}: {e}", out.display())));
        let bytes = take(s, bytes)?;
        take(s, output::write(out, &bytes))?;
    }
    if let Some(reference) = &a.expect {
        let want = tensors(s, reference, "output")?;
        if want.len() != results.len() {
            let d = Diagnostic::error(
                "expect",
                Span::NONE,
                format!("the reference has {} arrays, the model {} results", want.len(), results.len()),
            );
            return take(s, Err(d));
        }
        let mut failed = false;
        for ((name, got), (_, want)) in names.iter().zip(&results).zip(&want) {
            if let Err(m) = compare(name, got, want, a.rtol, a.atol) {
                s.diags.push(Diagnostic::error("mismatch", Span::NONE, m.text));
                failed = true;
            }
        }
        if failed {
            return Err(Failed);
        }
        text.push_str("the results agree with the reference\n");
    }
    Ok(text)
}

fn take<T>(s: &mut Session, r: Result<T, Diagnostic>) -> Result<T, Failed> {
    r.map_err(|d| {
        s.diags.push(d);
        Failed
    })
}

/// The arrays of a file, or the `what_I.pb` of a folder in the layout of ONNX's tests.
fn tensors(s: &mut Session, p: &Path, what: &str) -> Result<Vec<(String, Constant)>, Failed> {
    match p.is_dir() {
        true => take(s, relax_frontend::onnx::data_set(p, what)),
        false => s.weights(p),
    }
}

/// The arrays in the order of the parameters where they have just their names, else in the order of the file.
fn ordered(params: &[EntryValue], mut inputs: Vec<(String, Constant)>) -> Vec<(String, Constant)> {
    let place = |name: &str| params.iter().position(|p| p.name == name);
    let places: HashSet<_> = inputs.iter().filter_map(|(name, _)| place(name)).collect();
    if places.len() == params.len() {
        inputs.sort_by_key(|(name, _)| place(name));
    }
    inputs
}

/// Matches the arrays of a file to parameters. A 1-d array may stand for a shape, a 0-d one for a scalar.
fn arguments(params: &[EntryValue], inputs: Vec<(String, Constant)>) -> Result<Vec<Constant>, Diagnostic> {
    if params.len() != inputs.len() {
        let names: Vec<&str> = params.iter().map(|p| p.name.as_str()).collect();
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let takes = format!("the model takes {} ({})", plural(params.len(), "argument"), names.join(", "));
        let text = format!(
            "{takes}, there {} {}",
            if inputs.len() == 1 { "is" } else { "are" },
            plural(inputs.len(), "array")
        );
        let d = Diagnostic::error("inputs", Span::NONE, text);
        return Err(d.help("--inputs IN.npz brings one array for each argument, by name or in their order"));
    }
    Ok(params
        .iter()
        .zip(ordered(params, inputs))
        .map(|(p, (_, c))| match p.kind {
            EntryKind::Scalar { dtype } if c.shape.is_empty() && c.dtype != dtype => {
                if dtype.is_float() {
                    Constant::scalar_f64(dtype, c.get_f64(0))
                } else {
                    Constant::scalar_i64(dtype, c.get_i64(0))
                }
            }
            EntryKind::Tensor { dtype: Some(dtype), .. } => of_bytes(c, dtype),
            _ => c,
        })
        .collect())
}

/// The first values of a tensor.
fn preview(c: &Constant) -> String {
    let n = c.elements().min(8);
    let values: Vec<String> = (0..n)
        .map(|i| if c.dtype.is_float() { format!("{:.6}", c.get_f64(i)) } else { c.get_i64(i).to_string() })
        .collect();
    let more = if c.elements() > n { ", ..." } else { "" };
    format!(" [{}{more}]", values.join(", "))
}
