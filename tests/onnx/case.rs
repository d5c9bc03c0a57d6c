//! One case: imported and compiled in this process, loaded, called through `P_run`, compared.

use super::value::{self, Info, Value};
use relax_aot::cli::{Cli, CodegenArgs};
use relax_aot::compare::compare;
use relax_aot::driver::Session;
use relax_aot::loader::Library;
use relax_aot::render;
use relax_ir::diag::{Fault, Severity};
use relax_ir::{Constant, DType};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Pass,
    /// Refused as something we do not support (exit code 3).
    Unsupported,
    /// Refused for another reason, or failed at run time.
    Error,
    /// Ran, with other results.
    Wrong,
    /// A panic, a signal or a time-out.
    Crash,
}

impl Class {
    pub const ALL: [Class; 5] = [Class::Pass, Class::Unsupported, Class::Error, Class::Wrong, Class::Crash];

    pub fn name(self) -> &'static str {
        match self {
            Class::Pass => "pass",
            Class::Unsupported => "unsupported",
            Class::Error => "error",
            Class::Wrong => "wrong",
            Class::Crash => "crash",
        }
    }
}

/// The outcome of a case, with the reason where it does not pass.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub class: Class,
    pub reason: String,
    pub seconds: f64,
}

type Failure = (Class, String);

/// Runs the case in `folder`.
pub fn run(folder: &Path) -> Outcome {
    let start = std::time::Instant::now();
    let result = std::panic::catch_unwind(|| run_case(folder)).unwrap_or_else(|p| {
        let text = p.downcast_ref::<String>().cloned();
        let text = text.or_else(|| p.downcast_ref::<&str>().map(|s| s.to_string()));
        Err((Class::Crash, format!("panic: {}", text.unwrap_or_default())))
    });
    let seconds = start.elapsed().as_secs_f64();
    match result {
        Ok(()) => Outcome { class: Class::Pass, reason: String::new(), seconds },
        Err((class, reason)) => Outcome { class, reason, seconds },
    }
}

fn options() -> CodegenArgs {
    use clap::Parser;
    Cli::parse_from(["relax-aot", "model.onnx", "-o", "libmodel.so"]).compile.options
}

fn run_case(folder: &Path) -> Result<(), Failure> {
    let broken = |what: String| (Class::Error, format!("the case cannot be read: {what}"));
    let path = folder.join("model.onnx");
    let dir = tempfile::tempdir().map_err(|e| broken(e.to_string()))?;
    let so = dir.path().join("libmodel.so");
    let mut session = Session::default();
    let model = std::fs::read(&path).map_err(|e| broken(e.to_string()))?;
    let (inputs, outputs) = value::signature(&model).ok_or_else(|| broken("no protobuf".into()))?;
    let mut options = options();
    options.structure = structures(folder, &inputs);
    let Ok(program) = session.build(&path, &so, None, &options) else { return Err(refused(&session)) };
    let entry = program.entries.first().ok_or_else(|| (Class::Error, "no entry".to_string()))?;
    let library = Library::open(&so, "model").map_err(|d| (Class::Error, d.message))?;
    let (rtol, atol) = tolerances(folder).ok_or_else(|| broken("tolerance.txt".into()))?;
    for k in 0.. {
        let set = folder.join(format!("test_data_set_{k}"));
        if !set.is_dir() {
            break;
        }
        let args = tensors(&values(&set, "input", &inputs).map_err(broken)?)?;
        let wanted = values(&set, "output", &outputs).map_err(broken)?;
        let texts: Vec<bool> = wanted.iter().map(|v| matches!(v, Value::Tensor(t) if t.elem_type == 8)).collect();
        let wanted = tensors(&wanted)?;
        if entry.results.len() != wanted.len() {
            return Err((Class::Wrong, format!("{} results, expected {}", entry.results.len(), wanted.len())));
        }
        let results = library
            .run(&entry.name, &args, wanted.len())
            .map_err(|e| (Class::Error, format!("run-time error {}: {}", e.code, e.message)))?;
        for (i, (got, want)) in results.iter().zip(&wanted).enumerate() {
            // As ONNX's own runner: two units in the last place of bfloat16.
            let rtol = if want.dtype == DType::BF16 { rtol.max(1.0 / 64.0) } else { rtol };
            let name = format!("set {k}, output {i}");
            if random(folder) {
                same_type(&name, got, want).map_err(|m| (Class::Wrong, m))?;
            } else {
                let text = texts.get(i) == Some(&true);
                let got = match want.shape.last() {
                    Some(w) if text => &value::with_width(got, *w).unwrap_or_else(|| got.clone()),
                    _ => got,
                };
                compare(&name, got, want, rtol, atol).map_err(|m| (Class::Wrong, m.text))?;
            }
        }
    }
    Ok(())
}

/// Cases whose results are drawn at random: only shape and dtype are specified.
fn random(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    name.starts_with("test_bernoulli") || (name.starts_with("test_training_dropout") && !name.contains("zero_ratio"))
}

fn same_type(name: &str, got: &Constant, want: &Constant) -> Result<(), String> {
    if got.dtype == want.dtype && got.shape == want.shape {
        return Ok(());
    }
    Err(format!("{name}: {:?} of {}, expected {:?} of {}", got.shape, got.dtype, want.shape, want.dtype))
}

/// Why compilation failed: the first error; unsupported when nothing but that is wrong.
fn refused(session: &Session) -> Failure {
    let errors: Vec<_> = session.diags.list.iter().filter(|d| d.severity == Severity::Error).collect();
    let all_unsupported = errors.iter().all(|d| d.fault == Fault::Unsupported);
    let class = if all_unsupported { Class::Unsupported } else { Class::Error };
    let first = errors.iter().find(|d| all_unsupported || d.fault != Fault::Unsupported);
    let reason = match first {
        Some(d) => d.message.clone(),
        None => render::text(&session.diags, &session.sources, false),
    };
    (class, reason)
}

/// The structure of the inputs that are sequences or optionals, as the first data set has it: code is compiled for it.
fn structures(folder: &Path, inputs: &[Info]) -> Vec<String> {
    let set = folder.join("test_data_set_0");
    let mut out = vec![];
    for (i, info) in inputs.iter().enumerate().filter(|(_, i)| i.kind != value::Kind::Tensor) {
        let data = std::fs::read(set.join(format!("input_{i}.pb"))).unwrap_or_default();
        let mut v = value::read(&data, info.kind);
        while let Some(Value::Optional(Some(inner))) = v {
            v = Some(*inner);
        }
        match v {
            Some(Value::Optional(None)) => out.push(format!("{}=none", info.name)),
            Some(Value::Sequence(list)) => out.push(match list.first() {
                Some(Value::Tensor(t)) => format!("{}={}:{}", info.name, list.len(), t.dims.len()),
                _ => format!("{}={}", info.name, list.len()),
            }),
            _ => {}
        }
    }
    out
}

fn tensors(values: &[Value]) -> Result<Vec<Constant>, Failure> {
    let mut out = vec![];
    values.iter().try_for_each(|v| v.flatten(&mut out)).map_err(|e| (Class::Unsupported, e))?;
    Ok(out)
}

/// The stored values of a data set, in order.
fn values(set: &Path, what: &str, infos: &[Info]) -> Result<Vec<Value>, String> {
    let mut out = vec![];
    for (i, info) in infos.iter().enumerate() {
        let path = set.join(format!("{what}_{i}.pb"));
        let Ok(data) = std::fs::read(&path) else { break };
        let v = value::read(&data, info.kind);
        out.push(v.ok_or_else(|| format!("{} is no value", path.display()))?);
    }
    Ok(out)
}

fn tolerances(folder: &Path) -> Option<(f64, f64)> {
    let text = std::fs::read_to_string(folder.join("tolerance.txt")).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
