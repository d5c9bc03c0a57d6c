//! Every text of every corpus case: parsed, compiled to a shared object, loaded, called through `P_run`, compared with
//! the outputs that TVM's own virtual machine recorded. Runs recorded as errors must fail with the matching check.
//!
//! One test per text, named `family::file`. `cargo test --test corpus -- reduce` runs a family.

use libtest_mimic::{Arguments, Failed, Trial};
use relax_aot::cli::{Cli, CodegenArgs, Linker};
use relax_aot::compare::compare;
use relax_aot::driver::{Compiled, Failed as DriverFailed, Session};
use relax_aot::loader::{CallError, Counted, Library, Memory, PackedFunction, Reply};
use relax_aot::render;
use relax_ir::program::{code, EntryKind, EntryValue, Program};
use relax_ir::{Constant, DType, Fault};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Cases over values whose structure is born at run time: the C back end, which has no runtime, must refuse them.
const NEEDS_RUNTIME: &[&str] = &[
    "local_recursion",
    "deep_recursion",
    "grow_recursion",
    "mutual_recursion",
    "recursion_power",
    "assert_op_ok_fail",
    "print_pure_false",
];

/// Results that these texts compute from elements outside of their buffers (`x[v_ax0, v_ax1 - 3]` with `v_ax1` from
/// 0: a fault of TVM's legalisation in these versions): they mean nothing.
const OUT_OF_BOUNDS: &[(&str, usize)] = &[
    ("strided_slice.legalized.v23.rlx", 3),
    ("strided_slice.legalized.v25.rlx", 3),
    ("strided_slice.legalized.v26.rlx", 3),
];

/// Texts that read elements outside of their buffers without using them (TVM's legalisation clamps the rows of `u` to
/// those of `x`): not run between unmapped pages.
const READS_OUTSIDE: &[&str] = &["slice_scatter.legalized.rlx"];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn main() {
    let args = Arguments::from_args();
    let manifest = std::fs::read_to_string(corpus().join("MANIFEST.json")).expect("the corpus has a manifest");
    let manifest: Value = serde_json::from_str(&manifest).expect("the manifest is JSON");
    let through_c = through_c();
    let mut trials = vec![];
    let mut refused = 0;
    for case in manifest["cases"].as_array().into_iter().flatten() {
        let case = Arc::new(case.clone());
        for text in case["texts"].as_array().into_iter().flatten() {
            // Older dialects read to the same modules: the C back end sees nothing new in them.
            if through_c && text["dialect"] != "v27" {
                continue;
            }
            // Its direct calls of kernels are calls over values, which need the runtime.
            if through_c && text["stage"] == "lowered" {
                continue;
            }
            let file = text["file"].as_str().unwrap_or_default().to_string();
            let name = format!("{}::{file}", case["family"].as_str().unwrap_or_default());
            let refuse = through_c && NEEDS_RUNTIME.iter().any(|c| case["name"] == *c);
            refused += refuse as u64;
            let case = case.clone();
            trials.push(Trial::test(name, move || match refuse {
                true => refused_in_c(&file),
                false => run_text(&case, &file).map_err(Failed::from),
            }));
        }
    }
    println!("{} texts of the corpus, {refused} of them to be refused", trials.len());
    let conclusion = libtest_mimic::run(&args, trials);
    let given = conclusion.num_passed - refused.min(conclusion.num_passed);
    println!("{given} texts give the recorded results, {refused} are refused");
    conclusion.exit();
}

/// Do the texts go through the C back end (`RELAX_AOT_TEST_EMIT=c`)?
fn through_c() -> bool {
    std::env::var("RELAX_AOT_TEST_EMIT").is_ok_and(|e| e == "c")
}

fn options() -> CodegenArgs {
    use clap::Parser;
    let mut o = Cli::parse_from(["relax-aot", "model.rlx", "-o", "libmodel.so"]).compile.options;
    if let Ok(level) = std::env::var("RELAX_AOT_TEST_OPT") {
        o.opt_level = level.parse().unwrap_or(o.opt_level);
    }
    if let Ok(cpu) = std::env::var("RELAX_AOT_TEST_CPU") {
        o.target_cpu = cpu;
    }
    if let Ok(threads) = std::env::var("RELAX_AOT_TEST_THREADS") {
        o.threads = threads.parse().expect("RELAX_AOT_TEST_THREADS is a number");
        o.share_all = true;
    }
    o
}

/// As `Session::build`, through `--emit c` and the C compiler `CC` (default `cc`) with `RELAX_AOT_TEST_CFLAGS`.
fn build_through_c(session: &mut Session, model: &Path, so: &Path) -> Result<Result<Program, DriverFailed>, String> {
    let o = options();
    let (program, text) = match session.c_source(model, "model", "model.h", &o, true) {
        Ok(r) => r,
        Err(e) => return Ok(Err(e)),
    };
    let (c, object) = (so.with_file_name("model.c"), so.with_file_name("model.o"));
    let write = |path: &Path, text: &str| std::fs::write(path, text).map_err(|e| e.to_string());
    write(&c, &text)?;
    write(&so.with_file_name("model.h"), &relax_backend::header::write(&program))?;
    let var = |name: &str, default: &str| std::env::var(name).unwrap_or(default.to_string());
    let flags = var("RELAX_AOT_TEST_CFLAGS", "-std=c99 -pedantic -Wall -Wextra -Werror -ffreestanding -O1");
    let mut cc = std::process::Command::new(var("CC", "cc"));
    cc.args(flags.split_whitespace()).arg("-fPIC").arg("-c").arg(&c).arg("-o").arg(&object);
    let done = cc.output().map_err(|e| format!("the C compiler does not run: {e}"))?;
    if !done.status.success() {
        let text: String = String::from_utf8_lossy(&done.stderr).chars().take(3000).collect();
        return Err(format!("the C compiler refuses: {text}"));
    }
    let Ok(target) = session.target(&o) else { return Err("no target".to_string()) };
    let object = std::fs::read(&object).map_err(|e| e.to_string())?;
    let compiled = Compiled { program, object, apart: vec![], target, stack: Default::default() };
    let linked = match session.link(&compiled, "libmodel.so", Linker::System) {
        Ok(bytes) => bytes,
        Err(e) => return Ok(Err(e)),
    };
    std::fs::write(so, linked.contents()).map_err(|e| e.to_string())?;
    Ok(Ok(compiled.program))
}

/// `--emit c` refuses this text as unsupported.
fn refused_in_c(file: &str) -> Result<(), Failed> {
    let mut session = Session::default();
    let text = session.c_source(&corpus().join(file), "model", "model.h", &options(), false);
    match (text, session.diags.worst()) {
        (Err(_), Some(Fault::Unsupported)) => Ok(()),
        (Ok(_), _) => Err(Failed::from("compiled, though it stands in NEEDS_RUNTIME")),
        _ => Err(Failed::from(render::text(&session.diags, &session.sources, false))),
    }
}

/// Compiles one text and makes every run of its case.
fn run_text(case: &Value, file: &str) -> Result<(), String> {
    let mut session = Session::default();
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let so = dir.path().join("libmodel.so");
    let through_c = through_c();
    let program = match through_c {
        true => build_through_c(&mut session, &corpus().join(file), &so)?,
        false => session.build(&corpus().join(file), &so, None, &options()),
    };
    let program = program.map_err(|_| render::text(&session.diags, &session.sources, false))?;
    let entry_name = case["entry"].as_str().unwrap_or("main");
    let entry =
        program.entries.iter().find(|e| e.name == entry_name).ok_or_else(|| format!("no entry {entry_name}"))?;
    let n_results = entry.results.len();
    let is_scalar = |v: &EntryValue| matches!(&v.kind, EntryKind::Tensor { dims: Some(d), .. } if d.is_empty());
    let scalars: Vec<bool> = entry.params.iter().map(is_scalar).collect();
    let library = Library::open(&so, "model").map_err(|d| d.message)?;
    let params = match case["params"].as_str() {
        Some(p) => archive(&corpus().join(p))?,
        None => HashMap::new(),
    };
    let packed = packed_functions();
    let tol = case["tol"].as_f64().unwrap_or(1e-5);
    for run in case["runs"].as_array().into_iter().flatten() {
        let inputs = archive(&corpus().join(run["in"].as_str().unwrap_or_default()))?;
        let mut args = vec![];
        for a in run["args"].as_array().into_iter().flatten() {
            argument(a, &inputs, &params, &mut args)?;
        }
        // The weight files hold scalars as tensors of one element.
        if !params.is_empty() {
            for (c, _) in args.iter_mut().zip(&scalars).filter(|(c, &s)| s && c.shape == [1]) {
                c.shape = vec![];
            }
        }
        let what = run["in"].as_str().unwrap_or_default();
        // Between unmapped pages first: an access out of bounds ends the test run.
        let in_bounds = OUT_OF_BOUNDS.iter().all(|o| o.0 != file) && !READS_OUTSIDE.contains(&file);
        for memory in [Memory::GuardedEnd, Memory::GuardedStart].into_iter().filter(|_| in_bounds) {
            let again = library.run_with(memory, entry_name, &args, n_results, &packed, None);
            if again.is_err() != run["err"].is_string() {
                return Err(format!("{what}: {memory:?}: {again:?}"));
            }
        }
        let counted = Counted::default();
        let result = library.run_with(Memory::Heap, entry_name, &args, n_results, &packed, Some(&counted));
        let live = counted.live() + packed.iter().map(PackedFunction::live).sum::<i64>();
        if live != 0 {
            return Err(format!("{what}: {live} blocks of memory were not given back"));
        }
        match (run["err"].as_str(), result) {
            (Some(err), Err(e)) => matches_record(&corpus().join(err), &e).map_err(|m| format!("{what}: {m}"))?,
            (Some(_), Ok(_)) => return Err(format!("{what}: this run must be refused")),
            (None, Err(e)) => return Err(format!("{what}: failed with {e:?}")),
            (None, Ok(results)) => {
                let outputs = archive(&corpus().join(run["out"].as_str().unwrap_or_default()))?;
                let mut wanted = vec![];
                argument(&run["result"], &outputs, &params, &mut wanted)?;
                if wanted.len() != results.len() {
                    return Err(format!("{what}: {} results, expected {}", results.len(), wanted.len()));
                }
                for (i, (got, want)) in results.iter().zip(&wanted).enumerate() {
                    if OUT_OF_BOUNDS.contains(&(file, i)) {
                        continue;
                    }
                    compare(&format!("{what}, result {i}"), got, want, tol, tol).map_err(|m| m.text)?;
                }
            }
        }
    }
    Ok(())
}

/// The packed functions that cases call: see `externs` in the manifest.
fn packed_functions() -> Vec<PackedFunction> {
    let floats = |c: &Constant| -> Vec<f32> {
        c.bytes().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    let bytes = |v: Vec<f32>| -> Vec<u8> { v.iter().flat_map(|x| x.to_le_bytes()).collect() };
    vec![
        PackedFunction::new("corpus.axpy", move |args| {
            let [x, y, out] = args else { return Err(1) };
            let sum = floats(x).iter().zip(floats(y)).map(|(x, y)| 2.0 * x + y).collect();
            Ok(Reply::Last(Constant::new(DType::F32, out.shape.clone(), bytes(sum))))
        }),
        PackedFunction::new("corpus.concat2", |args| {
            let [a, b] = args else { return Err(1) };
            let data = [a.bytes(), b.bytes()].concat();
            Ok(Reply::Tensor(Constant::new(DType::F32, vec![data.len() as i64 / 4], data)))
        }),
    ]
}

fn archive(path: &Path) -> Result<HashMap<String, Constant>, String> {
    let list = match path.extension().and_then(|e| e.to_str()) {
        Some("safetensors") => relax_frontend::weights::open_safetensors(path),
        _ => relax_frontend::weights::open_npz(path),
    };
    Ok(list.map_err(|d| d.message)?.into_iter().collect())
}

/// Flattens an argument tree of the manifest.
fn argument(
    a: &Value,
    arrays: &HashMap<String, Constant>,
    params: &HashMap<String, Constant>,
    out: &mut Vec<Constant>,
) -> Result<(), String> {
    match a["kind"].as_str().unwrap_or_default() {
        "tensor" => {
            let key = a["key"].as_str().unwrap_or_default();
            let mut c = arrays.get(key).cloned().ok_or_else(|| format!("no array {key}"))?;
            // numpy has no bfloat16: such arrays are stored as their bits.
            if let Some(d) = a["dtype"].as_str().and_then(|d| d.parse::<DType>().ok()) {
                if d != c.dtype && d.bytes() == c.dtype.bytes() {
                    c = Constant::new(d, c.shape.clone(), c.bytes().to_vec());
                }
            }
            out.push(c);
        }
        "param" => {
            let name = a["name"].as_str().unwrap_or_default();
            out.push(params.get(name).cloned().ok_or_else(|| format!("no weight {name}"))?);
        }
        "shape" => {
            let v: Vec<i64> = a["value"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
            let bytes = v.iter().flat_map(|x| x.to_le_bytes()).collect();
            out.push(Constant::new(DType::I64, vec![v.len() as i64], bytes));
        }
        "int" => out.push(Constant::scalar_i64(DType::I64, a["value"].as_i64().unwrap_or(0))),
        "float" => out.push(Constant::scalar_f64(DType::F32, a["value"].as_f64().unwrap_or(0.0))),
        "tuple" => {
            for item in a["items"].as_array().into_iter().flatten() {
                argument(item, arrays, params, out)?;
            }
        }
        other => return Err(format!("argument kind {other}")),
    }
    Ok(())
}

/// The refusal names what TVM's does: code and, for dims, the two values ("Check failed: .. (got vs. wanted)").
fn matches_record(path: &Path, e: &CallError) -> Result<(), String> {
    let record = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let record: Value = serde_json::from_str(&record).map_err(|e| e.to_string())?;
    let text = record["tvm"]["message"].as_str().unwrap_or_default();
    let code = e.code as i64;
    let ok = if text.contains("expect Tensor with dtype") {
        code == code::DTYPE
    } else if text.contains("with ndim") {
        code == code::RANK
    } else if text.contains("expect a Tuple") {
        // Tuples are flattened at the boundary: a wrong one is a wrong number or rank of arguments.
        matches!(code, code::CALL | code::RANK | code::DTYPE)
    } else if let Some((got, wanted)) = versus(text) {
        matches!(code, code::DIM | code::CHECK) && e.got == got && e.wanted == wanted && e.constraint > 0
    } else {
        code == code::ASSERT
    };
    if ok {
        Ok(())
    } else {
        Err(format!("refused with {e:?}, TVM says: {text}"))
    }
}

/// `(6 vs. 5)`
fn versus(text: &str) -> Option<(i64, i64)> {
    let (before, after) = text.split_once(" vs. ")?;
    let got = before.rsplit('(').next()?.trim().parse().ok()?;
    let wanted = after.split(')').next()?.trim().parse().ok()?;
    Some((got, wanted))
}
