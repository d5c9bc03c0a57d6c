//! Operators of the domain `com.microsoft`, and what ONNX's own suite lacks: models of one node, compiled and compared with what onnxruntime computed.
//!
//! `tests/contrib/generate.py` writes the cases: NAME.onnx, and NAME.npz with its inputs in order and each `result.I`.
//! `cargo test --test contrib -- attention` runs those of a name.

use libtest_mimic::{Arguments, Failed, Trial};
use relax_aot::cli::{Cli, CodegenArgs};
use relax_aot::driver::{scratch, Session};
use relax_aot::loader::Library;
use relax_aot::render;
use relax_frontend::weights::open_npz;
use relax_ir::Constant;
use std::path::{Path, PathBuf};

/// Of the largest value of a result.
const TOLERANCE: f64 = 1e-5;
const HALF_TOLERANCE: f64 = 2e-3;

fn main() {
    let args = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contrib/cases");
    let list = std::fs::read_dir(&folder).expect("the cases are there");
    let mut paths: Vec<PathBuf> = list.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "onnx"));
    paths.sort();
    let name = |p: &Path| p.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let trials = paths.into_iter().map(|p| Trial::test(name(&p), move || run(&p).map_err(Failed::from)));
    libtest_mimic::run(&args, trials.collect()).exit();
}

fn options(cpu: &str) -> CodegenArgs {
    use clap::Parser;
    let cpu: &[&str] = if cpu.is_empty() { &[] } else { &["--target-cpu", cpu] };
    Cli::parse_from([&["relax-aot", "model.onnx", "-o", "libmodel.so"], cpu].concat()).compile.options
}

/// As by default; where sums of bytes stay as they are, or numbers are none, with the kernels of other processors too.
fn run(model: &Path) -> Result<(), String> {
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    let levels: &[&str] = match name.starts_with("bytes_") || name.starts_with("nan_") {
        true if cfg!(target_arch = "x86_64") => &["", "native", "x86-64-v3", "baseline"],
        _ => &[""],
    };
    levels.iter().try_for_each(|cpu| run_for(model, cpu).map_err(|e| format!("{cpu} {e}")))
}

fn run_for(model: &Path, cpu: &str) -> Result<(), String> {
    let folder = scratch().map_err(|d| d.message)?;
    let so = folder.path().join("libmodel.so");
    let mut session = Session::default();
    let Ok(program) = session.build(model, &so, None, &options(cpu)) else {
        return Err(render::text(&session.diags, &session.sources, false));
    };
    let entry = program.entries.first().ok_or("there is no entry")?;
    let library = Library::open(&so, "model").map_err(|d| d.message)?;
    let arrays = open_npz(&model.with_extension("npz")).map_err(|d| d.message)?;
    let (wanted, args): (Vec<_>, Vec<_>) = arrays.into_iter().partition(|(n, _)| n.starts_with("result."));
    let args: Vec<Constant> = args.into_iter().map(|(_, c)| c).collect();
    let results = library.run(&entry.name, &args, wanted.len());
    let results = results.map_err(|e| format!("error {} of the call: {}", e.code, e.message))?;
    for (got, (name, want)) in results.iter().zip(&wanted) {
        same(got, want).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

/// Floats to a part of the largest, bytes to one quantum: onnxruntime rounds some through tables.
fn same(got: &Constant, want: &Constant) -> Result<(), String> {
    if got.dtype != want.dtype || got.shape != want.shape {
        return Err(format!("{}{:?} where {}{:?} is expected", got.dtype, got.shape, want.dtype, want.shape));
    }
    let float = want.dtype.is_float();
    let value = |c: &Constant, i| if float { c.get_f64(i) } else { c.get_i64(i) as f64 };
    let top = (0..want.elements()).map(|i| value(want, i).abs()).filter(|v| v.is_finite()).fold(1e-9, f64::max);
    let limit = match want.dtype.bits {
        8 if !float => 1.0,
        _ if !float => 0.0,
        16 => HALF_TOLERANCE * top,
        _ => TOLERANCE * top,
    };
    for i in 0..want.elements() {
        let (g, w) = (value(got, i), value(want, i));
        if (g - w).abs() > limit || g.is_nan() != w.is_nan() {
            return Err(format!("element {i}: {g}, expected {w}"));
        }
    }
    Ok(())
}
