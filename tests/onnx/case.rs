//! One case: imported and compiled in this process, loaded, called through `P_run`, compared.

use super::value::{self, Info, Value};
use relax_aot::cli::{Cli, CodegenArgs, Stage};
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

pub type Failure = (Class, String);

/// One in so many cases, by the length of its name, is printed and compiled again; `RELAX_AOT_ONNX_TEXTS=all` prints all.
const SAMPLE: usize = 6;

/// Runs the case in `folder`.
pub fn run(folder: &Path) -> Outcome {
    outcome(|| {
        let path = folder.join("model.onnx");
        let model = compile(&path, folder)?;
        let all = std::env::var("RELAX_AOT_ONNX_TEXTS").is_ok_and(|v| v == "all");
        if all || folder.file_name().is_some_and(|n| n.len() % SAMPLE == 0) {
            printed(&model, &path)?;
        }
        run_sets(&model, folder, noise(folder))
    })
}

/// Times `f` and catches its panics.
pub fn outcome(f: impl FnOnce() -> Result<(), Failure>) -> Outcome {
    let start = std::time::Instant::now();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or_else(|p| {
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
    let mut options = Cli::parse_from(["relax-aot", "model.onnx", "-o", "libmodel.so"]).compile.options;
    if let Ok(cpu) = std::env::var("RELAX_AOT_TEST_CPU") {
        options.target_cpu = cpu;
    }
    if let Ok(threads) = std::env::var("RELAX_AOT_TEST_THREADS") {
        options.threads = threads.parse().expect("RELAX_AOT_TEST_THREADS is a number");
        options.share_all = true;
    }
    options
}

/// A compiled and loaded model.
pub struct Compiled {
    library: Library,
    entry: String,
    results: usize,
    inputs: Vec<Info>,
    outputs: Vec<Info>,
    /// What the options say of the structure of inputs.
    structure: Vec<String>,
    dir: tempfile::TempDir,
}

fn broken(what: impl ToString) -> Failure {
    (Class::Error, format!("the case cannot be read: {}", what.to_string()))
}

/// Compiles the model at `path`; the structure of its inputs is that of the case in `folder`.
pub fn compile(path: &Path, folder: &Path) -> Result<Compiled, Failure> {
    let dir = tempfile::tempdir().map_err(broken)?;
    let so = dir.path().join("libmodel.so");
    let mut session = Session::default();
    let model = std::fs::read(path).map_err(broken)?;
    let (inputs, outputs) = value::signature(&model).ok_or_else(|| broken("no protobuf"))?;
    let mut options = options();
    options.structure = structures(folder, &inputs);
    let mut built = session.build(path, &so, None, &options);
    let helps = |d: &relax_ir::Diagnostic| d.help.iter().any(|h| h.contains("--structure"));
    if built.is_err() && session.diags.list.iter().any(helps) {
        // The structure of the results hangs on values: code is compiled for those of the first data set.
        options.structure.extend(stated_values(folder, &inputs));
        session = Session::default();
        built = session.build(path, &so, None, &options);
    }
    let Ok(program) = built else { return Err(refused(&session)) };
    let entry = program.entries.first().ok_or_else(|| (Class::Error, "no entry".to_string()))?;
    let library = Library::open(&so, "model").map_err(|d| (Class::Error, d.message))?;
    let (entry, results) = (entry.name.clone(), entry.results.len());
    Ok(Compiled { library, entry, results, inputs, outputs, structure: options.structure, dir })
}

/// A case that the specification rules out: refused, when it is compiled or when it runs.
pub fn refusal(place: &Path, folder: &Path) -> Result<(), Failure> {
    match compile(&place.join("model.onnx"), folder).and_then(|m| run_set(&m, folder, place, 0.0)) {
        Err((Class::Error, _)) => Ok(()),
        Err(other) => Err(other),
        Ok(()) => Err((Class::Wrong, "accepted, though the specification rules it out".into())),
    }
}

/// The text that is printed of the model at `path` compiles to the bytes of the library, but for its lines: ONNX has none.
fn printed(model: &Compiled, path: &Path) -> Result<(), Failure> {
    let again = tempfile::tempdir().map_err(broken)?;
    let (text, so) = (again.path().join("model.rlx"), again.path().join("libmodel.so"));
    let mut session = Session { without_lines: true, ..Session::default() };
    let asked = CodegenArgs { structure: model.structure.clone(), ..options() };
    let Ok(rlx) = session.print(path, Stage::Relax, &asked) else { return Err(refused(&session)) };
    std::fs::write(&text, rlx).map_err(broken)?;
    if session.build(&text, &so, None, &options()).is_err() {
        let (class, why) = refused(&session);
        return Err((class, format!("what is printed is refused: {why}")));
    }
    let read = |p: &Path| std::fs::read(p).map_err(broken);
    match read(&so)? == read(&model.dir.path().join("libmodel.so"))? {
        true => Ok(()),
        false => Err((Class::Wrong, "what is printed compiles to other bytes".into())),
    }
}

/// Runs every data set of the case in `folder`.
pub fn run_sets(model: &Compiled, folder: &Path, scaled: f64) -> Result<(), Failure> {
    for k in 0.. {
        let set = folder.join(format!("test_data_set_{k}"));
        if !set.is_dir() {
            break;
        }
        run_set(model, folder, &set, scaled).map_err(|(c, m)| (c, format!("set {k}, {m}")))?;
    }
    Ok(())
}

/// Runs the data set in `set` with the tolerances of the case in `folder`; `scaled` times the largest value wanted is
/// tolerated too.
pub fn run_set(model: &Compiled, folder: &Path, set: &Path, scaled: f64) -> Result<(), Failure> {
    let (rtol, atol) = tolerances(folder).ok_or_else(|| broken("tolerance.txt"))?;
    let args = tensors(&values(set, "input", &model.inputs).map_err(broken)?)?;
    let wanted = values(set, "output", &model.outputs).map_err(broken)?;
    let texts: Vec<bool> = wanted.iter().map(|v| matches!(v, Value::Tensor(t) if t.elem_type == 8)).collect();
    let wanted = tensors(&wanted)?;
    if model.results != wanted.len() {
        return Err((Class::Wrong, format!("{} results, expected {}", model.results, wanted.len())));
    }
    let results = model
        .library
        .run(&model.entry, &args, wanted.len())
        .map_err(|e| (Class::Error, format!("run-time error {}: {}", e.code, e.message)))?;
    for (i, (got, want)) in results.iter().zip(&wanted).enumerate() {
        // As ONNX's own runner: two units in the last place of bfloat16.
        let rtol = if want.dtype == DType::BF16 { rtol.max(1.0 / 64.0) } else { rtol };
        let name = format!("output {i}");
        if random(folder) || set.join("unspecified.txt").is_file() {
            same_type(&name, got, want).map_err(|m| (Class::Wrong, m))?;
            continue;
        }
        let text = texts.get(i) == Some(&true);
        let got = match want.shape.last() {
            Some(w) if text => &value::with_width(got, *w).unwrap_or_else(|| got.clone()),
            _ => got,
        };
        let atol = match want.dtype.is_float() && scaled > 0.0 {
            true => {
                let sizes = (0..want.elements()).map(|i| want.get_f64(i).abs()).filter(|v| v.is_finite());
                atol.max(scaled * sizes.fold(0.0, f64::max))
            }
            false => atol,
        };
        compare(&name, got, want, rtol, atol).map_err(|m| (Class::Wrong, m.text))?;
    }
    Ok(())
}

/// What of the largest value is tolerated. The results of the DFT cases are those of a float32 FFT: where the transform is
/// exactly 0 they hold its rounding errors, about a unit in the last place of the largest value.
fn noise(folder: &Path) -> f64 {
    let name = folder.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    match name.starts_with("test_dft") {
        true => f32::EPSILON as f64,
        false => 0.0,
    }
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

/// The values of the integers and bools among the inputs, as the first data set has them.
fn stated_values(folder: &Path, inputs: &[Info]) -> Vec<String> {
    let set = folder.join("test_data_set_0");
    let mut out = vec![];
    for (i, info) in inputs.iter().enumerate().filter(|(_, i)| i.kind == value::Kind::Tensor) {
        let data = std::fs::read(set.join(format!("input_{i}.pb"))).unwrap_or_default();
        let mut flat = vec![];
        match value::read(&data, info.kind) {
            Some(v @ Value::Tensor(_)) if v.flatten(&mut flat).is_ok() => {}
            _ => continue,
        }
        let Some(c) = flat.first().filter(|c| !c.dtype.is_float() && c.elements() <= 8) else { continue };
        let values: Vec<String> = (0..c.elements()).map(|i| c.get_i64(i).to_string()).collect();
        out.push(format!("{}=[{}]", info.name, values.join(",")));
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
