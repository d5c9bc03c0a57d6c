//! The corpus, evaluated binding by binding with the operators' own computations: every text of every case against the
//! recorded outputs, with static and with symbolic kernels. `CASE=name` runs one case.

mod eval;

use eval::program::{Program, SKIP};
use eval::{compare, Dims, Value};
use relax_frontend::{rlx, weights};
use relax_ir::prim::PrimExpr;
use relax_ir::{Constant, DType, FileId};
use relax_lower::interp::Tensor;
use serde_json::Value as Json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus")
}

/// Texts that TVM itself got wrong, or that call its runtime.
const KNOWN: &[(&str, &str)] = &[
    ("median_bucketize.legalized.rlx", "calls TVM's own argsort from a PrimFunc"),
    ("slice_scatter.legalized.rlx", "reads past the end of a tensor, then drops what it read"),
    ("strided_slice.legalized.v23.rlx", "a begin of -3 is not counted from the end"),
    ("strided_slice.legalized.v25.rlx", "a begin of -3 is not counted from the end"),
    ("strided_slice.legalized.v26.rlx", "a begin of -3 is not counted from the end"),
];

type Arrays = HashMap<String, Constant>;

fn open(file: &str) -> Result<Arrays, String> {
    let list = weights::open(&corpus().join(file)).map_err(|d| d.message)?;
    Ok(list.into_iter().collect())
}

fn value(j: &Json, arrays: &Arrays, params: &Arrays) -> Result<Value, String> {
    let find = |from: &Arrays, key: &Json| {
        let key = key.as_str().unwrap_or_default();
        let c = from.get(key).ok_or_else(|| format!("no array {key}"))?;
        let mut t = Tensor::from_constant(c);
        // Archives hold bfloat16 as 16-bit integers and bool as bytes.
        if let Some(d) = j["dtype"].as_str().and_then(|d| d.parse::<DType>().ok()) {
            if d.bytes() == t.dtype.bytes() {
                t.dtype = d;
            }
        }
        Ok::<_, String>(Value::Tensor(t))
    };
    match j["kind"].as_str() {
        Some("tensor") => find(arrays, &j["key"]),
        Some("param") => find(params, &j["name"]),
        Some("shape") => {
            let v = j["value"].as_array().map(|v| v.iter().filter_map(Json::as_i64).collect());
            Ok(Value::Shape(v.unwrap_or_default()))
        }
        Some("int") => Ok(Value::Prim(PrimExpr::i64(j["value"].as_i64().unwrap_or_default()))),
        Some("tuple") => {
            let items = j["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            Ok(Value::Tuple(items.iter().map(|i| value(i, arrays, params)).collect::<Result<_, _>>()?))
        }
        other => Err(format!("kind {other:?}")),
    }
}

fn same(got: &Value, want: &Value, tol: f64) -> Result<(), String> {
    match (got, want) {
        (Value::Tensor(g), Value::Tensor(w)) => compare(g, w, tol, tol),
        (Value::Shape(g), Value::Shape(w)) if g == w => Ok(()),
        (Value::Prim(g), Value::Prim(w)) if g.as_int() == w.as_int() => Ok(()),
        (Value::Tuple(g), Value::Tuple(w)) if g.len() == w.len() => {
            g.iter().zip(w).try_for_each(|(g, w)| same(g, w, tol))
        }
        _ => Err(format!("{got:?}, expected {want:?}")),
    }
}

fn run_text(case: &Json, file: &str, mode: Dims) -> Result<usize, String> {
    let text = std::fs::read_to_string(corpus().join(file)).map_err(|e| e.to_string())?;
    let (module, diags) = rlx::parse(FileId(0), &text);
    let module = module.filter(|_| !diags.has_errors()).ok_or_else(|| {
        let all: Vec<&str> = diags.list.iter().map(|d| d.message.as_str()).collect();
        format!("does not parse: {}", all.join("; "))
    })?;
    let params = match case["params"].as_str() {
        Some(p) => open(p)?,
        None => Arrays::new(),
    };
    let entry = case["entry"].as_str().unwrap_or("main");
    let tol = case["tol"].as_f64().or_else(|| case["tol"][0].as_f64()).unwrap_or(1e-5).max(1e-5);
    let mut count = 0;
    for run in case["runs"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let Some(out) = run["out"].as_str() else { continue };
        let inputs = open(run["in"].as_str().unwrap_or_default())?;
        let args = run["args"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut args = args.iter().map(|a| value(a, &inputs, &params)).collect::<Result<Vec<_>, _>>()?;
        // Safetensors files of the corpus hold scalars as one element.
        for (a, p) in args.iter_mut().zip(module.relax(entry).iter().flat_map(|f| &f.params)) {
            if let (Value::Tensor(t), Some(0)) = (a, p.annotation.as_ref().and_then(|i| i.as_tensor()?.ndim)) {
                t.shape.clear();
            }
        }
        let want = value(&run["result"], &open(out)?, &params)?;
        let got = Program { module: &module, mode }.run(entry, &args)?;
        same(&got, &want, tol)?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn the_corpus_evaluates() {
    let only = std::env::var("CASE").ok();
    let text = std::fs::read_to_string(corpus().join("MANIFEST.json")).expect("tests/corpus/MANIFEST.json");
    let manifest: Json = serde_json::from_str(&text).expect("the manifest is JSON");
    let (mut runs, mut skipped, mut failed) = (0, vec![], vec![]);
    for case in manifest["cases"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let name = case["name"].as_str().unwrap_or_default();
        if only.as_ref().is_some_and(|o| o != name) {
            continue;
        }
        for t in case["texts"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let file = t["file"].as_str().unwrap_or_default();
            if t["stage"] == "lowered" || KNOWN.iter().any(|(k, _)| *k == file) {
                continue;
            }
            // Kernels of texts after legalisation are the text's own: one mode says all.
            let high = matches!(t["stage"].as_str(), Some("highlevel" | "meta"));
            let modes: &[Dims] = if high { &[Dims::Static, Dims::Symbolic] } else { &[Dims::Static] };
            for &mode in modes {
                match run_text(case, file, mode) {
                    Ok(n) => runs += n,
                    Err(e) if e.contains(SKIP) => skipped.push(format!("{file}: {e}")),
                    Err(e) => failed.push(format!("{file} {mode:?}: {e}")),
                }
            }
        }
    }
    println!("{runs} runs agree, {} texts skipped", skipped.len());
    if std::env::var("SKIPPED").is_ok() {
        println!("{}", skipped.join("\n"));
    }
    assert!(failed.is_empty(), "{} texts fail\n{}", failed.len(), failed.join("\n"));
    assert!(runs > 0);
}
