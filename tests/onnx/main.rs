//! The ONNX project's own backend suite through compiled libraries.
//!
//!     pip install onnx==1.23.2
//!     python3 tests/onnx/suite.py target/onnx-suite
//!     RELAX_AOT_ONNX_SUITE=target/onnx-suite cargo test --test onnx_suite -- [FILTER]
//!
//! Every case is imported, compiled to a shared object, loaded, called through `P_run` and compared; one in six is also
//! printed as text, which must compile to the same bytes (`RELAX_AOT_ONNX_TEXTS=all`: every case). A table by kind and the
//! reasons of failures by number of cases are printed. The test fails when a case fails that is not in
//! `expected_failures.toml` or one in it passes. `RELAX_AOT_ONNX_REPORT=FILE` writes every outcome as JSON,
//! `RELAX_AOT_ONNX_JOBS` sets the number of processes, `RELAX_AOT_TEST_CPU` the `--target-cpu` that all are compiled for,
//! `RELAX_AOT_TEST_THREADS` the threads that every loop is dealt out to. With `RELAX_AOT_ONNX_COLUMNS=FOLDER`, which `columns.py` wrote, it
//! runs the cases at other shapes instead and holds the numbers that pass to those of `columns.toml`. Without the folder there are no cases and the test passes.

mod case;
mod columns;
mod value;
mod worker;

use case::{Class, Outcome};
use libtest_mimic::Arguments;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

/// Rows that `expected_failures.toml` may have.
const MOST_EXPECTED: usize = 20;

fn main() -> ExitCode {
    if std::env::var_os(worker::MARK).is_some() {
        worker::serve();
        return ExitCode::SUCCESS;
    }
    let args = Arguments::from_args();
    let Some(suite) = std::env::var_os("RELAX_AOT_ONNX_SUITE").map(PathBuf::from) else {
        println!("0 cases: RELAX_AOT_ONNX_SUITE names no folder (written by tests/onnx/suite.py)");
        return ExitCode::SUCCESS;
    };
    let whole = args.filter.is_none() && args.skip.is_empty();
    if let Some(folder) = std::env::var_os("RELAX_AOT_ONNX_COLUMNS").map(PathBuf::from) {
        return columns::main(&folder, &suite, |c| selected(c, &args), whole);
    }
    let cases = match find(&suite, "model.onnx") {
        Ok(cases) => cases,
        Err(e) => {
            eprintln!("cannot read {}: {e}", suite.display());
            return ExitCode::FAILURE;
        }
    };
    let cases: Vec<String> = cases.into_iter().filter(|c| selected(c, &args)).collect();
    if args.list {
        cases.iter().for_each(|c| println!("{c}: test"));
        return ExitCode::SUCCESS;
    }
    let outcomes = run_all(&suite, &cases);
    report(&outcomes);
    print!("{}", table(&outcomes));
    print!("{}", reasons(&outcomes));
    check(&outcomes, whole)
}

/// Writes outcomes as JSON where `RELAX_AOT_ONNX_REPORT` says.
fn report(outcomes: &impl serde::Serialize) {
    let Some(file) = std::env::var_os("RELAX_AOT_ONNX_REPORT") else { return };
    let written = serde_json::to_string_pretty(outcomes).map(|text| std::fs::write(&file, text));
    if !matches!(written, Ok(Ok(()))) {
        eprintln!("cannot write {}", Path::new(&file).display());
    }
}

/// Every case that has this file, as `kind/name`, in order.
fn find(suite: &Path, file: &str) -> std::io::Result<Vec<String>> {
    let mut out = vec![];
    for kind in std::fs::read_dir(suite)? {
        let kind = kind?;
        if !kind.file_type()?.is_dir() {
            continue;
        }
        for case in std::fs::read_dir(kind.path())? {
            let case = case?;
            if case.path().join(file).is_file() {
                out.push(format!("{}/{}", kind.file_name().to_string_lossy(), case.file_name().to_string_lossy()));
            }
        }
    }
    out.sort();
    Ok(out)
}

fn selected(case: &str, args: &Arguments) -> bool {
    let matches = |f: &String| if args.exact { case == f } else { case.contains(f.as_str()) };
    args.filter.as_ref().is_none_or(matches) && !args.skip.iter().any(matches)
}

fn run_all(suite: &Path, cases: &[String]) -> BTreeMap<String, Outcome> {
    let outcomes = Mutex::new(BTreeMap::new());
    parallel(cases, |worker, case| {
        let outcome = worker.run(&suite.join(case));
        if let Ok(mut all) = outcomes.lock() {
            all.insert(case.to_string(), outcome);
        }
    });
    outcomes.into_inner().unwrap_or_default()
}

/// Hands the cases out to workers.
fn parallel(cases: &[String], run: impl Fn(&mut worker::Worker, &str) + Sync) {
    let jobs = std::env::var("RELAX_AOT_ONNX_JOBS").ok().and_then(|j| j.parse().ok());
    let jobs = jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(2usize);
    let next = Mutex::new(cases.iter());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                let mut worker = worker::Worker::default();
                while let Some(case) = next.lock().ok().and_then(|mut n| n.next()) {
                    run(&mut worker, case);
                }
            });
        }
    });
}

/// Numbers by kind.
fn table(outcomes: &BTreeMap<String, Outcome>) -> String {
    let mut rows: BTreeMap<&str, [usize; Class::ALL.len()]> = BTreeMap::new();
    for (case, o) in outcomes {
        let kind = case.split('/').next().unwrap_or_default();
        for name in [kind, "total"] {
            let column = Class::ALL.iter().position(|c| *c == o.class).unwrap_or(0);
            rows.entry(name).or_default()[column] += 1;
        }
    }
    let total = rows.remove_entry("total");
    let mut out = format!("{:<20}{:>8}", "kind", "cases");
    Class::ALL.iter().for_each(|c| out += &format!("{:>13}", c.name()));
    out.push('\n');
    for (name, row) in rows.into_iter().chain(total) {
        out += &format!("{name:<20}{:>8}", row.iter().sum::<usize>());
        row.iter().for_each(|n| out += &format!("{n:>13}"));
        out.push('\n');
    }
    out
}

/// Why cases fail, the commonest reason first; numbers in reasons do not count.
fn reasons(outcomes: &BTreeMap<String, Outcome>) -> String {
    let mut by: BTreeMap<(Class, String), Vec<&str>> = BTreeMap::new();
    for (case, o) in outcomes.iter().filter(|(_, o)| o.class != Class::Pass) {
        let line = o.reason.lines().next().unwrap_or_default();
        // A wrong result is told by its case.
        let line = if o.class == Class::Wrong { "other results".to_string() } else { without_numbers(line) };
        by.entry((o.class, line)).or_default().push(case);
    }
    let mut ranked: Vec<_> = by.into_iter().collect();
    ranked.sort_by_key(|(_, cases)| std::cmp::Reverse(cases.len()));
    let mut out = String::new();
    for ((class, reason), cases) in ranked {
        let more = if cases.len() > 3 { ", .." } else { "" };
        let shown = cases[..cases.len().min(3)].join(", ");
        out += &format!("{:>5} {}: {reason} ({shown}{more})\n", cases.len(), class.name());
    }
    out
}

fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            c if c.is_ascii_digit() && out.ends_with('#') => {}
            c if c.is_ascii_digit() => out.push('#'),
            c => out.push(c),
        }
    }
    out
}

/// The cases that are expected to fail, with the reason.
fn expected() -> Result<BTreeMap<String, String>, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx/expected_failures.toml");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut rows = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#') && !l.starts_with('[')) {
        let parts: Vec<&str> = line.split('"').collect();
        match parts.as_slice() {
            ["", case, eq, reason, ""] if eq.trim() == "=" => rows.insert(case.to_string(), reason.to_string()),
            _ => return Err(format!("{}: `{line}` is not \"CASE\" = \"REASON\"", path.display())),
        };
    }
    Ok(rows)
}

/// Compares with the cases that are expected to fail.
fn check(outcomes: &BTreeMap<String, Outcome>, whole: bool) -> ExitCode {
    let expected = match expected() {
        Ok(rows) => rows,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = false;
    for (case, o) in outcomes {
        match (o.class, expected.get(case)) {
            (Class::Pass, Some(_)) => {
                println!("PASSED {case}: take it out of expected_failures.toml");
                failed = true;
            }
            (Class::Pass, None) => {}
            (Class::Unsupported | Class::Error, Some(why)) => println!("expected {case}: {why}"),
            (class, _) => {
                println!("FAILED {case}: {}: {}", class.name(), o.reason);
                failed = true;
            }
        }
    }
    if whole && expected.keys().any(|c| !outcomes.contains_key(c)) {
        println!("expected_failures.toml names a case that the suite does not have");
        failed = true;
    }
    if expected.len() > MOST_EXPECTED {
        println!("expected_failures.toml has {} rows, more than {MOST_EXPECTED}", expected.len());
        failed = true;
    }
    let passed = outcomes.values().filter(|o| o.class == Class::Pass).count();
    println!("{passed} of {} cases pass", outcomes.len());
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
