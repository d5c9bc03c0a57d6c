//! Every operator against TVM's results: each line of `data/*.jsonl` is a call with its inputs, attributes and outputs
//! (see `data/ops.py`). Each is run with static and with symbolic dims. `OPS=name` runs one operator and prints.

mod eval;

use eval::{call, compare, json, Dims, Value};
use relax_ir::op;
use serde_json::Value as Json;
use std::collections::BTreeMap;

fn run(case: &Json, mode: Dims) -> Result<(), String> {
    let name = case["op"].as_str().unwrap_or_default();
    let op = op::lookup(name).ok_or("no such operator")?;
    let args: Vec<Value> = case["args"].as_array().map(|a| a.iter().map(json::value).collect()).unwrap_or_default();
    let got = call(op, &args, &json::attrs(op, &case["attrs"]), mode)?;
    let want: Vec<Value> = case["out"].as_array().map(|a| a.iter().map(json::value).collect()).unwrap_or_default();
    let want = Value::Tuple(want);
    let (got, want) = (got.leaves(), want.leaves());
    if got.len() != want.len() {
        return Err(format!("{} results, expected {}", got.len(), want.len()));
    }
    let tol = case["tol"].as_f64().unwrap_or(1e-5);
    for (g, w) in got.iter().zip(&want) {
        compare(g, w, tol, tol)?;
    }
    Ok(())
}

#[test]
fn operators_agree_with_tvm() {
    let only = std::env::var("OPS").ok();
    let cases = json::cases(&format!("{}/tests/data", env!("CARGO_MANIFEST_DIR")));
    let mut failed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut count = 0;
    for (line, case) in cases.iter().enumerate() {
        let name = case["op"].as_str().unwrap_or_default().to_string();
        if only.as_ref().is_some_and(|o| *o != name) {
            continue;
        }
        for mode in [Dims::Static, Dims::Symbolic] {
            count += 1;
            if mode == Dims::Symbolic && case["static"].as_bool().unwrap_or(false) {
                continue;
            }
            if let Err(e) = run(case, mode) {
                let note = case["note"].as_str().unwrap_or_default();
                failed.entry(name.clone()).or_default().push(format!("line {} {mode:?} {note}: {e}", line + 1));
            }
        }
    }
    let report: String = failed.iter().map(|(n, e)| format!("{n}: {}\n", e.join("\n  "))).collect();
    assert!(failed.is_empty(), "{} of {count} runs fail\n{report}", failed.values().map(Vec::len).sum::<usize>());
    assert!(count > 0);
}
