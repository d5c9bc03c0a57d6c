//! Operators with integers at the ends of their range: each attribute, scalar, shape value and dim of the recorded calls
//! in turn. A rule may refuse, with a message; nothing panics or overflows, and no dim comes out negative.

mod eval;

use eval::{json, Value};
use relax_ir::analysis::limits;
use relax_ir::op::{self, Compute, ComputeCx, InferCx, OpDecl};
use relax_ir::prim::{PrimExpr, Var};
use relax_ir::relax::{Expr, ExprKind, RVar, StructInfo};
use relax_ir::sym::Facts;
use relax_ir::{AttrValue, Attrs, Span};
use relax_lower::schedule::{schedule, SchedOptions};
use std::collections::{BTreeMap, HashMap};
use std::panic::{catch_unwind, AssertUnwindSafe};

const ENDS: &[i64] = &[i64::MIN, i64::MIN + 1, -(1 << 40), -1, 0, 7, 1 << 31, 1 << 40, 1 << 62, i64::MAX - 1, i64::MAX];

/// Dims of recorded calls as numbers, or as shape variables: one for each extent above 1.
struct Dims(Option<HashMap<i64, Var>>);

impl Dims {
    fn list(&mut self, v: &[i64]) -> Vec<PrimExpr> {
        let of = |d: &i64| match &mut self.0 {
            Some(names) if (2..1000).contains(d) => names.entry(*d).or_insert_with(|| Var::dim(format!("d{d}"))).expr(),
            _ => PrimExpr::i64(*d),
        };
        v.iter().map(of).collect()
    }

    fn info(&mut self, v: &Value) -> StructInfo {
        match v {
            Value::Tensor(t) => StructInfo::tensor(self.list(&t.shape), t.dtype),
            Value::Shape(s) => StructInfo::shape(self.list(s)),
            Value::Prim(p) => StructInfo::Prim { dtype: p.dtype(), value: Some(p.clone()) },
            Value::Tuple(f) => StructInfo::Tuple(f.iter().map(|v| self.info(v)).collect()),
            Value::Absent => StructInfo::Object,
        }
    }

    fn expr(&mut self, v: &Value) -> Expr {
        let kind = match v {
            Value::Shape(s) => ExprKind::Shape(self.list(s)),
            Value::Prim(p) => ExprKind::Prim(p.clone()),
            Value::Tuple(f) => ExprKind::Tuple(f.iter().map(|v| self.expr(v)).collect()),
            Value::Absent => ExprKind::Absent,
            Value::Tensor(_) => ExprKind::Var(RVar::new("x", false, Span::NONE)),
        };
        Expr::new(kind, Span::NONE)
    }
}

/// Shows every integer of a call to `f`, which may change it.
fn each_integer(args: &mut [Value], attrs: &mut Attrs, op: &OpDecl, f: &mut dyn FnMut(&mut i64)) {
    fn in_prim(p: &mut PrimExpr, f: &mut dyn FnMut(&mut i64)) {
        if let Some(mut v) = p.as_int().filter(|_| p.dtype().is_int()) {
            f(&mut v);
            *p = PrimExpr::int(p.dtype(), v);
        }
    }
    fn in_attr(v: &mut AttrValue, f: &mut dyn FnMut(&mut i64)) {
        match v {
            AttrValue::Int(v) => f(v),
            AttrValue::Prim(p) => in_prim(p, f),
            AttrValue::List(v) => v.iter_mut().for_each(|v| in_attr(v, f)),
            _ => {}
        }
    }
    fn in_value(v: &mut Value, f: &mut dyn FnMut(&mut i64)) {
        match v {
            Value::Tensor(t) => t.shape.iter_mut().for_each(f),
            Value::Shape(s) => s.iter_mut().for_each(f),
            Value::Prim(p) => in_prim(p, f),
            Value::Tuple(v) => v.iter_mut().for_each(|v| in_value(v, f)),
            Value::Absent => {}
        }
    }
    for p in op.params {
        if let Some(mut v) = attrs.get(p.name).cloned() {
            in_attr(&mut v, f);
            attrs.set(p.name, v);
        }
    }
    args.iter_mut().for_each(|v| in_value(v, f));
}

/// Every known dim of a struct info.
fn dims(info: &StructInfo) -> Vec<PrimExpr> {
    match info {
        StructInfo::Tensor(t) => t.known_dims().unwrap_or_default().to_vec(),
        StructInfo::Tuple(f) => f.iter().flat_map(dims).collect(),
        _ => vec![],
    }
}

/// Infers a call that has `stated` somewhere, builds its kernel and schedules it. An error text for what must not be: a dim
/// that is `stated` itself fails when the call asks for memory.
fn attempt(op: &'static OpDecl, args: &[Value], attrs: &Attrs, stated: i64, symbolic: bool) -> Result<(), String> {
    let mut names = Dims(symbolic.then(HashMap::new));
    let infos: Vec<StructInfo> = args.iter().map(|a| names.info(a)).collect();
    let exprs: Vec<Expr> = args.iter().map(|a| names.expr(a)).collect();
    // What analysis refuses before it asks for a type, and tensors that it refuses wherever they come from.
    let fits = |i: &StructInfo| {
        let known: Vec<i64> = dims(i).into_iter().filter_map(|d| d.as_int()).collect();
        known.iter().all(|d| *d >= 0) && known.iter().map(|d| (*d).max(1) as f64).product::<f64>() < 1e13
    };
    if !infos.iter().all(fits) || limits::attributes(op, attrs, Span::NONE).is_err() {
        return Ok(());
    }
    let mut facts = Facts::new();
    let mut cx =
        InferCx { op, args: &exprs, infos: &infos, attrs, sinfo_args: &[], span: Span::NONE, facts: &mut facts };
    let Ok(out) = (op.infer)(&mut cx) else { return Ok(()) };
    if let Some(d) = dims(&out).iter().find(|d| d.as_int().is_some_and(|d| d < 0 && d != stated)) {
        return Err(format!("a dim of {d:?} in {out:?}"));
    }
    if !fits(&out) {
        return Ok(());
    }
    let cx = ComputeCx { op, args: &exprs, infos: &infos, attrs, out: &out, span: Span::NONE };
    if let Compute::Kernel(f) | Compute::DataDependent(f) = op.compute {
        if let Ok(kernel) = f(&cx) {
            for bytes in [0, 16] {
                let _ = schedule(&kernel, &SchedOptions { vector_bytes: bytes, ..SchedOptions::default() });
            }
        }
    }
    Ok(())
}

#[test]
fn nothing_overflows() {
    let cases = json::cases(&format!("{}/tests/data", env!("CARGO_MANIFEST_DIR")));
    let only = std::env::var("OPS").ok();
    let mut failed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut count = 0;
    for case in cases {
        let name = case["op"].as_str().unwrap_or_default().to_string();
        let Some(op) = op::lookup(&name) else { continue };
        if only.as_ref().is_some_and(|o| *o != name) {
            continue;
        }
        let args: Vec<Value> = case["args"].as_array().map(|a| a.iter().map(json::value).collect()).unwrap_or_default();
        let attrs = json::attrs(op, &case["attrs"]);
        let nth = seen.entry(name.clone()).or_default();
        *nth += 1;
        if *nth > 12 {
            continue;
        }
        let mut places = 0;
        each_integer(&mut args.clone(), &mut attrs.clone(), op, &mut |_| places += 1);
        for place in 0..places {
            for end in ENDS {
                let (mut args, mut attrs, mut at) = (args.clone(), attrs.clone(), 0);
                each_integer(&mut args, &mut attrs, op, &mut |v| {
                    if at == place {
                        *v = *end;
                    }
                    at += 1;
                });
                for symbolic in [false, true] {
                    count += 1;
                    let done = catch_unwind(AssertUnwindSafe(|| attempt(op, &args, &attrs, *end, symbolic)));
                    let why = match done {
                        Ok(Ok(())) => continue,
                        Ok(Err(why)) => why,
                        Err(_) => "a panic".to_string(),
                    };
                    let shapes: Vec<_> = args.iter().flat_map(Value::leaves).map(|t| t.shape.clone()).collect();
                    let list = failed.entry(name.clone()).or_default();
                    if list.len() < 3 {
                        list.push(format!("{why}: place {place} = {end}, symbolic {symbolic}, {shapes:?} {attrs:?}"));
                    }
                }
            }
        }
    }
    let report: String = failed.iter().map(|(n, e)| format!("{n}:\n  {}\n", e.join("\n  "))).collect();
    assert!(failed.is_empty(), "{} operators of {count} calls\n{report}", failed.len());
    assert!(count > 10_000 || only.is_some(), "{count}");
}
