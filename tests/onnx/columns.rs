//! The cases at other shapes, as `columns.py` wrote them: with symbolic input dims, and at sizes of 0, 1 and a prime.
//!
//! One library with symbolic dims serves all sizes; where it is refused, or refuses a size at run time, the model with
//! these dims as numbers is compiled.

use super::case::{self, Class, Compiled, Failure, Outcome};
use super::{reasons, table, worker};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

const COLUMNS: [&str; 4] = ["symbolic", "zero", "one", "ragged"];
/// Of the largest value: what sums in another order may differ by.
const SCALED: f64 = 1e-6;

/// Serves one request in a worker: a line per column.
pub fn serve(folder: &Path, origin: &Path, columns: &str) {
    let mut symbolic: Option<Result<Compiled, Failure>> = None;
    for column in columns.split(',') {
        let outcome = case::outcome(|| {
            let path = folder.join("symbolic/model.onnx");
            let model = symbolic.get_or_insert_with(|| case::compile(&path, origin));
            let place = folder.join(column);
            if place.join("refused.txt").is_file() {
                return case::refusal(&place, origin);
            }
            if column == "symbolic" {
                return case::run_sets(model.as_ref().map_err(Clone::clone)?, origin, SCALED);
            }
            if let Ok(model) = model {
                match case::run_set(model, origin, &place, SCALED) {
                    Err((Class::Error, _)) => {}
                    done => return done,
                }
            }
            let model = case::compile(&place.join("model.onnx"), origin)?;
            case::run_set(&model, origin, &place, SCALED)
        });
        let Ok(text) = serde_json::to_string(&outcome) else { return };
        println!("{text}");
        let _ = std::io::stdout().flush();
    }
}

/// The outcomes of a case by column. Who dies leaves the columns behind to another worker.
fn run(worker: &mut worker::Worker, folder: &Path, origin: &Path) -> Vec<(&'static str, Outcome)> {
    let there = |c: &&'static str| folder.join(c).join("model.onnx").is_file();
    let mut left: Vec<&'static str> = COLUMNS.iter().copied().filter(there).collect();
    let mut out = vec![];
    while !left.is_empty() {
        let request = format!("columns\t{}\t{}\t{}", folder.display(), origin.display(), left.join(","));
        for outcome in worker.ask(&request, left.len()) {
            out.push((left.remove(0), outcome));
        }
    }
    out
}

/// Runs the columns of the selected cases, prints the table of each and holds them to the recorded floors.
pub fn main(columns: &Path, suite: &Path, selected: impl Fn(&str) -> bool, whole: bool) -> ExitCode {
    let cases: Vec<String> = match super::find(columns, "symbolic/model.onnx") {
        Ok(cases) => cases.into_iter().filter(|c| selected(c)).collect(),
        Err(e) => {
            eprintln!("cannot read {}: {e}", columns.display());
            return ExitCode::FAILURE;
        }
    };
    let outcomes: Mutex<BTreeMap<&str, BTreeMap<String, Outcome>>> = Mutex::new(BTreeMap::new());
    super::parallel(&cases, |worker, case| {
        for (column, outcome) in run(worker, &columns.join(case), &suite.join(case)) {
            if let Ok(mut all) = outcomes.lock() {
                all.entry(column).or_default().insert(case.to_string(), outcome);
            }
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_default();
    super::report(&outcomes);
    for (case, column, section, why) in notes(columns, &cases) {
        println!("reference wrong: {case}, {column}: {why} (expected: {section})");
    }
    let set = std::fs::read_to_string(columns.join("set.txt")).unwrap_or_default();
    let floors = if whole { floors(set.trim()) } else { BTreeMap::new() };
    let mut failed = false;
    for column in COLUMNS {
        let Some(all) = outcomes.get(column) else { continue };
        println!("== {column}");
        print!("{}{}", table(all), reasons(all));
        for (case, o) in all.iter().filter(|(_, o)| o.class == Class::Crash) {
            println!("FAILED {case}, {column}: crash: {}", o.reason);
            failed = true;
        }
    }
    for column in COLUMNS {
        let empty = BTreeMap::new();
        let all = outcomes.get(column).unwrap_or(&empty);
        let passed = all.values().filter(|o| o.class == Class::Pass).count();
        let floor = floors.get(column).copied();
        let told = floor.map_or(String::new(), |f| format!(", at least {f} must"));
        println!("{column}: {passed} of {} pass{told}", all.len());
        if floor.is_some_and(|f| passed < f) {
            println!("FAILED {column}: fewer cases pass than {} records", floors_path().display());
            failed = true;
        }
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// What reference.toml says of these cases, as columns.py laid it down: case, column, what is expected, why.
fn notes(columns: &Path, cases: &[String]) -> Vec<(String, &'static str, &'static str, String)> {
    let mut out = vec![];
    for case in cases {
        for column in COLUMNS {
            for section in ["refused", "unspecified", "onnxruntime", "numpy"] {
                let file = columns.join(case).join(column).join(format!("{section}.txt"));
                if let Ok(why) = std::fs::read_to_string(file) {
                    out.push((case.clone(), column, section, why.trim().to_string()));
                }
            }
        }
    }
    out
}

fn floors_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx/columns.toml")
}

/// The floors of a set of cases, by column.
fn floors(set: &str) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(floors_path()).unwrap_or_default();
    let mut rows = BTreeMap::new();
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name;
        } else if let (true, Some((name, n))) = (section == set, line.split_once('=')) {
            rows.extend(n.trim().parse().ok().map(|n| (name.trim().to_string(), n)));
        }
    }
    rows
}
