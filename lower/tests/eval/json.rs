//! Calls written as JSON (`data/*.jsonl`).

use super::Value;
use relax_ir::op::{self, Default, ParamKind};
use relax_ir::prim::{PrimExpr, Var};
use relax_ir::{AttrValue, Attrs, DType};
use relax_lower::interp::Tensor;
use serde_json::Value as Json;

/// All cases of a folder, in the order of file names and lines.
pub fn cases(folder: &str) -> Vec<Json> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let mut files: Vec<_> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "jsonl"));
    files.sort();
    let read = |f: &std::path::PathBuf| std::fs::read_to_string(f).unwrap_or_else(|e| panic!("{}: {e}", f.display()));
    let text: String = files.iter().map(read).collect();
    let parse = |(n, line): (usize, &str)| serde_json::from_str(line).unwrap_or_else(|e| panic!("line {}: {e}", n + 1));
    text.lines().enumerate().map(parse).collect()
}

fn dtype(j: &Json) -> DType {
    j.as_str().and_then(|s| s.parse().ok()).unwrap_or(DType::F32)
}

fn numbers(j: &Json) -> Vec<f64> {
    let one = |v: &Json| match v.as_str() {
        Some("nan") => f64::NAN,
        Some("inf") => f64::INFINITY,
        Some("-inf") => f64::NEG_INFINITY,
        _ => v.as_f64().unwrap_or_default(),
    };
    j.as_array().map(|v| v.iter().map(one).collect()).unwrap_or_default()
}

fn ints(j: &Json) -> Vec<i64> {
    j.as_array().map(|v| v.iter().map(|x| x.as_i64().unwrap_or_default()).collect()).unwrap_or_default()
}

pub fn value(j: &Json) -> Value {
    if let Some(shape) = j.get("t") {
        let d = dtype(&j["d"]);
        let t = if d.is_float() {
            Tensor::from_f64(d, &ints(shape), &numbers(&j["v"]))
        } else {
            Tensor::from_i64(d, &ints(shape), &ints(&j["v"]))
        };
        return Value::Tensor(t);
    }
    if let Some(v) = j.get("shape") {
        return Value::Shape(ints(v));
    }
    if let Some(v) = j.get("prim") {
        let d = dtype(&j["d"]);
        let v = numbers(&Json::Array(vec![v.clone()]))[0];
        return Value::Prim(if d.is_float() { PrimExpr::float(d, v) } else { PrimExpr::int(d, v as i64) });
    }
    match j.get("tuple").and_then(Json::as_array) {
        Some(f) => Value::Tuple(f.iter().map(value).collect()),
        None => Value::Absent,
    }
}

fn attr(j: &Json) -> AttrValue {
    match j {
        Json::Null => AttrValue::None,
        Json::Bool(b) => AttrValue::Bool(*b),
        Json::Number(n) => n.as_i64().map_or_else(|| AttrValue::Float(n.as_f64().unwrap_or_default()), AttrValue::Int),
        Json::String(s) => s.parse().map_or_else(|()| AttrValue::Str(s.clone()), AttrValue::DType),
        Json::Array(v) => AttrValue::List(v.iter().map(attr).collect()),
        Json::Object(o) => {
            // {"map": rank, "to": [[op, a, b], ..]}: an index map over variables "0", "1", ..
            let n = o["map"].as_i64().unwrap_or_default();
            let params: Vec<Var> = (0..n).map(|i| Var::dim(format!("i{i}"))).collect();
            let results = o["to"].as_array().map(|v| v.iter().map(|e| index_expr(e, &params)).collect());
            AttrValue::IndexMap(relax_ir::attrs::IndexMap { params, results: results.unwrap_or_default() })
        }
    }
}

fn index_expr(j: &Json, params: &[Var]) -> PrimExpr {
    match j {
        Json::String(s) => params[s.parse::<usize>().unwrap_or_default()].expr(),
        Json::Array(v) => {
            let (a, b) = (index_expr(&v[1], params), index_expr(&v[2], params));
            match v[0].as_str() {
                Some("//") => a.floor_div(b),
                Some("%") => a.floor_mod(b),
                Some("*") => a * b,
                _ => a + b,
            }
        }
        other => PrimExpr::i64(other.as_i64().unwrap_or_default()),
    }
}

/// The declared attributes with the defaults filled in, as a parser does.
pub fn attrs(op: &op::OpDecl, given: &Json) -> Attrs {
    let mut out = Attrs::default();
    for p in op.params.iter().filter(|p| p.kind == ParamKind::Attr) {
        let v = match given.get(p.name) {
            Some(v) => attr(v),
            None => match p.default {
                Default::Required | Default::None => AttrValue::None,
                Default::Int(v) => AttrValue::Int(v),
                Default::Float(v) => AttrValue::Float(v),
                Default::Bool(v) => AttrValue::Bool(v),
                Default::Str(v) => AttrValue::Str(v.to_string()),
                Default::Ints(v) => AttrValue::List(v.iter().map(|v| AttrValue::Int(*v)).collect()),
            },
        };
        out.set(p.name, v);
    }
    out
}
