//! Random well-formed programs, run by the reference interpreter of modules and by compiled code in process: kernels
//! for every processor and kernels for this one. No difference, no crash, no block of memory that is not given back,
//! also after errors. Program `i` of a seed is always the same program.

mod functions;
mod generate;
mod operators;
mod types;

use crate::mutate::Rng;
use clap::Parser;
use generate::{program, Program, Role};
use relax_aot::cli::{Cli, CodegenArgs};
use relax_aot::compare::compare;
use relax_aot::driver::Session;
use relax_aot::loader::{CallError, Counted, Library, Memory, PackedFunction, Reply};
use relax_aot::render;
use relax_ir::program::code;
use relax_ir::span::FileId;
use relax_ir::{Constant, Fault, IRModule};
use relax_lower::eval::{self, Stop, Value};
use relax_lower::interp::Tensor;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use types::{Dt, Ty};

/// Calls of each program.
const RUNS: usize = 3;

#[derive(Default)]
struct Count {
    programs: AtomicU64,
    /// Refused by the compiler, rightly: every call of them fails.
    refused: AtomicU64,
    /// The compiler does not support them.
    unsupported: AtomicU64,
    /// The interpreter does not know them.
    unknown: AtomicU64,
    calls: AtomicU64,
    failing: AtomicU64,
}

/// Runs programs of `seed` for a while, or until `programs` are done; the first one alone that is wrong is reported.
pub fn run(seed: u64, seconds: u64, programs: u64, current: &Path, only: Option<u64>) -> Result<(), String> {
    let count = Count::default();
    let next = AtomicU64::new(only.unwrap_or(0));
    let last = only.map_or(programs, |i| i + 1);
    let failure: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let begin = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let mut workers = vec![];
        for t in 0..threads {
            let (count, next, failure) = (&count, &next, &failure);
            let work = move || loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let stop = begin.elapsed() > Duration::from_secs(seconds);
                if i >= last || stop || failure.lock().map_or(true, |f| f.is_some()) {
                    return;
                }
                let at = current.with_extension(format!("{t}.rlx"));
                let result = one(seed, i, &at, count);
                if let (Err(e), Ok(mut f)) = (result, failure.lock()) {
                    f.get_or_insert((i, e));
                }
                let _ = std::fs::remove_file(&at);
            };
            workers.push(std::thread::Builder::new().stack_size(256 << 20).spawn_scoped(scope, work));
        }
        for w in workers.into_iter().flatten() {
            if w.join().is_err() {
                if let Ok(mut f) = failure.lock() {
                    f.get_or_insert((u64::MAX, "a panic: see the text that is left behind".to_string()));
                }
            }
        }
    });
    let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
    println!(
        "{} programs in {} s, {} calls, {} of them fail as they must; {} programs refused because every call fails, \
         {} not supported, {} unknown to the interpreter; seed {seed}",
        get(&count.programs),
        begin.elapsed().as_secs(),
        get(&count.calls),
        get(&count.failing),
        get(&count.refused),
        get(&count.unsupported),
        get(&count.unknown)
    );
    match failure.into_inner() {
        Ok(Some((i, e))) => Err(format!("program {i} of seed {seed} (--only {i}): {e}")),
        _ => Ok(()),
    }
}

/// Whether the first place that a rendered diagnostic names lies within a branch, a block or an inner function.
fn nested(file: &Path, diagnostic: &str) -> bool {
    let place = diagnostic.split("--> ").nth(1).and_then(|p| p.lines().next());
    let line = place.and_then(|p| p.rsplit(':').nth(1)?.parse::<usize>().ok());
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = line.and_then(|n| text.lines().nth(n.checked_sub(1)?));
    line.is_some_and(|l| l.starts_with(&" ".repeat(12)))
}

/// The smallest size of program `i` that is wrong.
fn one(seed: u64, i: u64, at: &Path, count: &Count) -> Result<(), String> {
    let size = 3 + (i % 20) as usize;
    let Err(first) = sized(seed, i, size, at, Some(count)) else { return Ok(()) };
    for smaller in 1..size {
        sized(seed, i, smaller, at, None)?;
    }
    Err(first)
}

fn sized(seed: u64, i: u64, size: usize, at: &Path, count: Option<&Count>) -> Result<(), String> {
    let mut rng = Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(i).wrapping_mul(2) + 1);
    for _ in 0..8 {
        rng.below(2);
    }
    let p = program(&mut rng, size);
    let fail = |e: String| format!("{e}\n{}", p.text);
    std::fs::write(at, format!("# --seed {seed} --only {i}, size {size}\n{}", p.text)).map_err(|e| e.to_string())?;
    let (module, diags) = relax_frontend::rlx::parse(FileId(0), &p.text);
    let Some(module) = module.filter(|_| !diags.has_errors()) else {
        let first = diags.list.iter().map(|d| d.message.clone()).next();
        return Err(fail(format!("the parser refuses it: {}", first.unwrap_or_default())));
    };
    let mut calls = vec![];
    for _ in 0..RUNS {
        let args = arguments(&p, &mut rng);
        let result = interpret(&module, &p, &args);
        calls.push((args, result));
    }
    let add = |c: fn(&Count) -> &AtomicU64, n: usize| {
        if let Some(count) = count {
            c(count).fetch_add(n as u64, Ordering::Relaxed);
        }
    };
    add(|c| &c.programs, 1);
    if let Some((_, Err(Stop::Unsupported(what)))) = calls.iter().find(|c| matches!(c.1, Err(Stop::Unsupported(_)))) {
        add(|c| &c.unknown, 1);
        if std::env::var_os("RELAX_FUZZ_VERBOSE").is_some() {
            eprintln!("{i}: unknown to the interpreter: {what}");
        }
        return Ok(());
    }
    let expected_failures = calls.iter().filter(|c| c.1.is_err()).count();
    for (name, options) in configurations(i) {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let library = match build(at, dir.path(), &options) {
            Ok(l) => l,
            Err((Some(Fault::Unsupported), text)) => {
                add(|c| &c.unsupported, 1);
                if std::env::var_os("RELAX_FUZZ_VERBOSE").is_some() {
                    eprintln!("{i}: {text}");
                }
                return Ok(());
            }
            Err((_, _)) if expected_failures == calls.len() => {
                add(|c| &c.refused, 1);
                return Ok(());
            }
            // A cast that always fails is refused where it stands, also in code that never runs.
            Err((_, text)) if text.starts_with("error[match-cast]") && nested(at, &text) => {
                add(|c| &c.refused, 1);
                return Ok(());
            }
            Err((_, text)) => {
                let input = calls.iter().find(|c| c.1.is_ok()).map(|c| describe(&c.0));
                return Err(fail(format!(
                    "{name}: refused, although a call works (with {}):\n{text}",
                    input.unwrap_or_default()
                )));
            }
        };
        let packed = functions_of_the_host();
        for (args, result) in &calls {
            let counted = Counted::default();
            let got = library.0.run_with(Memory::Heap, "main", args, library.1, &packed, Some(&counted));
            let wrong = |e: String| fail(format!("{name}: called with {}: {e}", describe(args)));
            let live = counted.live() + packed.iter().map(PackedFunction::live).sum::<i64>();
            if live != 0 {
                return Err(wrong(format!("{live} blocks were not given back")));
            }
            judge(&p, result, got).map_err(wrong)?;
        }
    }
    add(|c| &c.calls, calls.len());
    add(|c| &c.failing, expected_failures);
    Ok(())
}

/// What the generator's programs call by name.
fn functions_of_the_host() -> Vec<PackedFunction> {
    let negative = |args: &[Constant]| args.first().map(|c| negative(Tensor::from_constant(c)).into_constant());
    vec![
        PackedFunction::new("fuzz.negative", move |args| negative(args).map(Reply::Tensor).ok_or(1)),
        PackedFunction::new("fuzz.negative_into", move |args| negative(args).map(Reply::Last).ok_or(1)),
    ]
}

fn negative(t: Tensor) -> Tensor {
    let values: Vec<f32> = t.to_f32().iter().map(|v| -v).collect();
    Tensor::from_f32(&t.shape, &values)
}

fn judge(p: &Program, wanted: &Result<Vec<Tensor>, Stop>, got: Result<Vec<Constant>, CallError>) -> Result<(), String> {
    match (wanted, got) {
        (Ok(wanted), Ok(got)) => {
            if wanted.len() != got.len() || wanted.len() != p.results.len() {
                return Err(format!("{} results, expected {}", got.len(), wanted.len()));
            }
            for (i, ((w, g), (exact, bits))) in wanted.iter().zip(&got).zip(&p.results).enumerate() {
                let (rtol, atol) = if *exact { (0.0, 0.0) } else { (1e-4, 1e-5 * 2f64.powi(*bits)) };
                let w = w.clone().into_constant();
                compare(&format!("result {i}"), g, &w, rtol, atol).map_err(|m| m.text)?;
            }
            Ok(())
        }
        // How deep calls may nest is not the program's meaning.
        (Err(Stop::Depth), _) => Ok(()),
        (Err(_), Err(e)) if i64::from(e.code) != code::CALL => Ok(()),
        (Ok(_), Err(e)) => Err(format!("fails with {e:?}, the interpreter has a result")),
        (Err(stop), Err(e)) => Err(format!("fails with {e:?}, the interpreter with {stop:?}")),
        (Err(stop), Ok(_)) => Err(format!("has a result, the interpreter fails with {stop:?}")),
    }
}

fn describe(args: &[Constant]) -> String {
    let one = |c: &Constant| {
        let n = c.elements().min(12);
        let v: Vec<String> = (0..n)
            .map(|i| if c.dtype.is_float() { c.get_f64(i).to_string() } else { c.get_i64(i).to_string() })
            .collect();
        format!("{}{:?}[{}{}]", c.dtype, c.shape, v.join(" "), if n < c.elements() { " .." } else { "" })
    };
    args.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Kernels for every processor, and for this one; now and then without optimisation.
fn configurations(i: u64) -> Vec<(&'static str, CodegenArgs)> {
    let options = |args: &[&str]| {
        let fixed = ["relax-aot", "model.rlx", "-o", "libmodel.so"];
        Cli::parse_from(fixed.iter().chain(args)).compile.options
    };
    let mut out = vec![("baseline", options(&[])), ("native", options(&["--target-cpu", "native"]))];
    if i.is_multiple_of(8) {
        out.push(("-O0", options(&["-O0"])));
    }
    out
}

fn build(model: &Path, dir: &Path, options: &CodegenArgs) -> Result<(Library, usize), (Option<Fault>, String)> {
    let mut session = Session::default();
    let so: PathBuf = dir.join("libmodel.so");
    let program = session.build(model, &so, None, options);
    let program =
        program.map_err(|_| (session.diags.worst(), render::text(&session.diags, &session.sources, false)))?;
    let results = program.entries.iter().find(|e| e.name == "main").map_or(0, |e| e.results.len());
    let library = Library::open(&so, "model").map_err(|d| (None, d.message))?;
    Ok((library, results))
}

/// Flattened arguments; now and then one has another shape than the signature says.
fn arguments(p: &Program, rng: &mut Rng) -> Vec<Constant> {
    let mut at: HashMap<String, i64> = HashMap::new();
    for d in ["n", "m", "k"] {
        let v = [1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 0][rng.below(12)];
        at.insert(d.to_string(), v);
    }
    let mut out = vec![];
    for (ty, role) in &p.params {
        let mut leaves = vec![];
        ty.leaves(&mut leaves);
        for (dims, dt) in leaves {
            let mut shape: Vec<i64> = dims.iter().map(|d| d.value(&at)).collect();
            if !shape.is_empty() && rng.below(40) == 0 {
                let i = rng.below(shape.len());
                shape[i] += 1;
            }
            let n = shape.iter().product::<i64>() as usize;
            let values: Vec<i64> = (0..n)
                .map(|_| match (role, dt) {
                    (Role::Count, _) => rng.below(4) as i64,
                    (_, Dt::Bool) => rng.below(2) as i64,
                    _ => rng.below(9) as i64 - 4,
                })
                .collect();
            let dtype = dt.name().parse().unwrap_or(relax_ir::DType::F32);
            out.push(Tensor::from_i64(dtype, &shape, &values).into_constant());
        }
    }
    out
}

fn interpret(module: &IRModule, p: &Program, args: &[Constant]) -> Result<Vec<Tensor>, Stop> {
    fn build(ty: &Ty, flat: &mut std::slice::Iter<Constant>) -> Value {
        match ty {
            Ty::Tensor(..) => flat.next().map_or(Value::Absent, |c| Value::tensor(Tensor::from_constant(c))),
            Ty::Tuple(f) => Value::Tuple(f.iter().map(|t| build(t, flat)).collect()),
        }
    }
    let mut flat = args.iter();
    let values = p.params.iter().map(|(t, _)| build(t, &mut flat)).collect();
    let packed = |_: &str, args: &[Value]| match args.first() {
        Some(Value::Tensor(t)) => Some(Value::tensor(negative((**t).clone()))),
        _ => None,
    };
    let outcome = eval::run_with(module, "main", values, &packed)?;
    let mut out = vec![];
    outcome.value.flatten(&mut out);
    Ok(out)
}
