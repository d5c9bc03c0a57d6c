//! Tune files: what was measured, as JSON.
//!
//! ```json
//! {
//!   "format": "relax-aot-tune",
//!   "version": 1,
//!   "compiler": "0.1.0",
//!   "cpu": "AMD EPYC, family 25 model 17 stepping 1",
//!   "vector_bytes": 64,
//!   "kernels": [
//!     {
//!       "kernel": "conv float32 1 56x56x64 to 56x56x64 kernel 3x3 stride 1x1 pad 1x1",
//!       "ways": [
//!         {"algorithm": "winograd4", "rows": 7, "columns": 4, "outer": "weights", "microseconds": 812.4},
//!         {"algorithm": "direct", "rows": 14, "columns": 2, "outer": "data", "microseconds": 1977.0}
//!       ]
//!     }
//!   ]
//! }
//! ```
//!
//! `kernel` is [`relax_lower::choice::Site::key`]; `ways` the fastest way of each algorithm, the fastest first. Files of
//! another version, compiler, processor or vector size are refused: their choices mean nothing here.

use relax_ir::{Diagnostic, Span};
use relax_lower::choice::{Algorithm, Config, Tuned};
use relax_lower::schedule::window::Outer;
use serde_json::{json, Value};
use std::path::Path;

const FORMAT: &str = "relax-aot-tune";
const VERSION: u64 = 1;

/// Why a file cannot be used.
pub enum Refused {
    /// It is no tune file, or a damaged one.
    Damaged(Diagnostic),
    /// It is one, for something else.
    Foreign(Diagnostic),
}

impl Refused {
    pub fn diagnostic(self) -> Diagnostic {
        match self {
            Refused::Damaged(d) | Refused::Foreign(d) => d,
        }
    }
}

/// The processor, by name and model: what the system says of it.
pub fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = text.split("\n\n").next().unwrap_or_default();
    let field = |name: &str| {
        first.lines().find_map(|l| {
            let (key, value) = l.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_string())
        })
    };
    let mut name = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_string());
    if let (Some(f), Some(m), Some(s)) = (field("cpu family"), field("model"), field("stepping")) {
        name.push_str(&format!(", family {f} model {m} stepping {s}"));
    }
    name
}

/// The contents of a file.
pub fn text(tuned: &Tuned) -> String {
    let way = |(c, us): &(Config, f64)| {
        json!({
            "algorithm": c.algorithm.to_string(),
            "rows": c.rows,
            "columns": c.columns,
            "outer": c.outer.to_string(),
            "microseconds": (us * 1e3).round() / 1e3,
        })
    };
    let kernels: Vec<Value> = tuned
        .sites
        .iter()
        .map(|(key, ways)| json!({ "kernel": key, "ways": ways.iter().map(way).collect::<Vec<_>>() }))
        .collect();
    let all = json!({
        "format": FORMAT,
        "version": VERSION,
        "compiler": env!("CARGO_PKG_VERSION"),
        "cpu": cpu(),
        "vector_bytes": tuned.vector_bytes,
        "kernels": kernels,
    });
    format!("{all:#}\n")
}

/// Reads a file for kernels with vectors of so many bytes.
pub fn read(path: &Path, vector_bytes: u32) -> Result<Tuned, Refused> {
    let damaged = |what: String| {
        let d = Diagnostic::error("tune-file", Span::NONE, format!("{}: {what}", path.display()));
        Refused::Damaged(d.help("--tune writes the file anew"))
    };
    let text = std::fs::read_to_string(path).map_err(|e| damaged(format!("cannot be read: {e}")))?;
    let all: Value = serde_json::from_str(&text).map_err(|e| damaged(format!("is no JSON: {e}")))?;
    if all["format"].as_str() != Some(FORMAT) {
        return Err(damaged(format!("is no tune file: \"format\" is not \"{FORMAT}\"")));
    }
    let foreign = |what: &str, theirs: String, ours: String| {
        let m = format!("{}: the {what} is {theirs}, here it is {ours}", path.display());
        Refused::Foreign(Diagnostic::error("tune-file", Span::NONE, m).help("measure here with --tune"))
    };
    let shown = |v: &Value| v.as_str().map_or_else(|| v.to_string(), |s| s.to_string());
    for (name, ours) in [
        ("version", json!(VERSION)),
        ("compiler", json!(env!("CARGO_PKG_VERSION"))),
        ("cpu", json!(cpu())),
        ("vector_bytes", json!(vector_bytes)),
    ] {
        if all[name] != ours {
            return Err(foreign(name, shown(&all[name]), shown(&ours)));
        }
    }
    let mut tuned = Tuned { vector_bytes, ..Tuned::default() };
    let Some(kernels) = all["kernels"].as_array() else {
        return Err(damaged("\"kernels\" is no list".into()));
    };
    for (i, k) in kernels.iter().enumerate() {
        let broken = |what: &str| damaged(format!("kernel {}: {what}", i + 1));
        let Some(key) = k["kernel"].as_str() else { return Err(broken("\"kernel\" is no text")) };
        let Some(list) = k["ways"].as_array().filter(|l| !l.is_empty()) else {
            return Err(broken("\"ways\" is no list of at least one way"));
        };
        let ways = list.iter().map(|w| way(w).map_err(|what| broken(&what))).collect::<Result<Vec<_>, _>>()?;
        if tuned.sites.insert(key.to_string(), ways).is_some() {
            return Err(broken("is there twice"));
        }
    }
    Ok(tuned)
}

fn way(w: &Value) -> Result<(Config, f64), String> {
    let name = |field: &str| w[field].as_str().ok_or(format!("\"{field}\" is no text"));
    let number = |field: &str| w[field].as_i64().ok_or(format!("\"{field}\" is no number"));
    let unknown = |field: &str, text: &str| format!("no {field} is called {text}");
    let (algorithm, outer) = (name("algorithm")?, name("outer")?);
    let config = Config {
        algorithm: Algorithm::parse(algorithm).ok_or_else(|| unknown("algorithm", algorithm))?,
        rows: number("rows")?,
        columns: number("columns")?,
        outer: Outer::parse(outer).ok_or_else(|| unknown("outer", outer))?,
    };
    if !config.is_sane() {
        return Err("\"rows\" or \"columns\" is beyond what a kernel can have".into());
    }
    let us = w["microseconds"].as_f64().filter(|t| t.is_finite() && *t >= 0.0);
    Ok((config, us.ok_or("\"microseconds\" is no time")?))
}
