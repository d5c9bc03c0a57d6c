//! Shape rules alone: with operands of which little is known, and with operands that do not fit.

mod eval;

use eval::{call, json, Dims, Value};
use relax_ir::op::{self, InferCx, OpDecl};
use relax_ir::prim::PrimExpr;
use relax_ir::relax::{Expr, ExprKind, RVar, StructInfo, TensorInfo};
use relax_ir::sym::Facts;
use relax_ir::{AttrValue, Attrs, DType, Span};
use relax_lower::interp::Tensor;

/// What is hidden from the rule.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hide {
    Nothing,
    Dtype,
    Dims,
    Rank,
    All,
}

fn info(v: &Value, hide: Hide) -> StructInfo {
    let dims = |s: &[i64]| s.iter().map(|d| PrimExpr::i64(*d)).collect::<Vec<_>>();
    match v {
        Value::Tensor(t) => {
            let full = TensorInfo::dims(dims(&t.shape), Some(t.dtype));
            StructInfo::Tensor(match hide {
                Hide::Nothing => full,
                Hide::Dtype => TensorInfo { dtype: None, ..full },
                Hide::Dims => TensorInfo { shape: None, ..full },
                Hide::Rank => TensorInfo { shape: None, ndim: None, ..full },
                Hide::All => TensorInfo { shape: None, ndim: None, dtype: None, vdevice: None },
            })
        }
        Value::Shape(s) if matches!(hide, Hide::Nothing | Hide::Dtype) => StructInfo::shape(dims(s)),
        Value::Shape(s) => StructInfo::Shape { values: None, ndim: (hide == Hide::Dims).then_some(s.len()) },
        Value::Prim(p) => StructInfo::Prim { dtype: p.dtype(), value: Some(p.clone()) },
        Value::Tuple(f) => StructInfo::Tuple(f.iter().map(|v| info(v, hide)).collect()),
        Value::Absent => StructInfo::Object,
    }
}

fn expr(v: &Value, hide: Hide) -> Expr {
    let kind = match v {
        Value::Shape(s) if hide == Hide::Nothing => ExprKind::Shape(s.iter().map(|d| PrimExpr::i64(*d)).collect()),
        Value::Prim(p) => ExprKind::Prim(p.clone()),
        Value::Tuple(f) => ExprKind::Tuple(f.iter().map(|v| expr(v, hide)).collect()),
        Value::Absent => ExprKind::Absent,
        _ => ExprKind::Var(RVar::new("x", false, Span::NONE)),
    };
    Expr::new(kind, Span::NONE)
}

/// Infers with operand `only` (or all of them) hidden.
fn infer(
    op: &'static OpDecl,
    args: &[Value],
    attrs: &Attrs,
    hide: Hide,
    only: Option<usize>,
) -> Result<StructInfo, String> {
    let of = |i: usize| if only.is_none_or(|o| o == i) { hide } else { Hide::Nothing };
    let infos: Vec<StructInfo> = args.iter().enumerate().map(|(i, v)| info(v, of(i))).collect();
    let exprs: Vec<Expr> = args.iter().enumerate().map(|(i, v)| expr(v, of(i))).collect();
    let mut facts = Facts::new();
    let mut cx =
        InferCx { op, args: &exprs, infos: &infos, attrs, sinfo_args: &[], span: Span::NONE, facts: &mut facts };
    (op.infer)(&mut cx).map_err(|d| d.message)
}

/// Does `part` say nothing but what `full` says?
fn weaker(full: &StructInfo, part: &StructInfo) -> bool {
    match (full, part) {
        (StructInfo::Tensor(a), StructInfo::Tensor(b)) => {
            b.dtype.is_none_or(|d| a.dtype == Some(d))
                && b.ndim.is_none_or(|n| a.ndim == Some(n))
                && a.known_dims().zip(b.known_dims()).is_none_or(|(x, y)| x == y)
        }
        (StructInfo::Tuple(a), StructInfo::Tuple(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| weaker(a, b))
        }
        (_, StructInfo::Object) => true,
        (a, b) => a == b,
    }
}

/// As in TVM, the lengths of begin, end and strides are part of the operator's type.
const NEEDS_SHAPES: &[&str] = &["dynamic_strided_slice"];

#[test]
fn rules_accept_operands_of_which_little_is_known() {
    let cases = json::cases(&format!("{}/tests/data", env!("CARGO_MANIFEST_DIR")));
    let mut failed = vec![];
    let mut count = 0;
    for case in cases {
        let name = case["op"].as_str().unwrap_or_default().to_string();
        let Some(op) = op::lookup(&name) else { continue };
        let args: Vec<Value> = case["args"].as_array().map(|a| a.iter().map(json::value).collect()).unwrap_or_default();
        let attrs = json::attrs(op, &case["attrs"]);
        let Ok(full) = infer(op, &args, &attrs, Hide::Nothing, None) else { continue };
        for hide in [Hide::Dtype, Hide::Dims, Hide::Rank, Hide::All] {
            for only in std::iter::once(None).chain((0..args.len()).map(Some)) {
                count += 1;
                match infer(op, &args, &attrs, hide, only) {
                    Ok(part) if weaker(&full, &part) => {}
                    Err(e) if NEEDS_SHAPES.contains(&name.as_str()) && e.contains("must be known") => {}
                    other => failed.push(format!("{name} {hide:?} of {only:?}: {other:?}, all known: {full:?}")),
                }
            }
        }
    }
    assert!(failed.is_empty(), "{} of {count}\n{}", failed.len(), failed.join("\n"));
    assert!(count > 5000, "{count}");
}

fn zeros(shape: &[i64]) -> Value {
    Value::Tensor(Tensor::zeros(DType::F32, shape))
}

fn ints(v: &[i64]) -> AttrValue {
    AttrValue::List(v.iter().map(|v| AttrValue::Int(*v)).collect())
}

/// The message of a call that must be refused, the same at compile time and at run time.
fn refused(name: &str, shapes: &[&[i64]], given: &[(&str, AttrValue)], message: &str) {
    let op = op::lookup(name).unwrap();
    let mut attrs = json::attrs(op, &serde_json::Value::Null);
    for (name, value) in given {
        attrs.set(name, value.clone());
    }
    let args: Vec<Value> = shapes.iter().map(|s| zeros(s)).collect();
    let fixed = call(op, &args, &attrs, Dims::Static).unwrap_err();
    assert_eq!(fixed, format!("R.{name}: {message}"));
    let symbolic = call(op, &args, &attrs, Dims::Symbolic).unwrap_err();
    assert!(symbolic.starts_with(&format!("R.{name}: ")), "{symbolic}");
}

#[test]
fn requirements_speak_the_operators_words() {
    refused("matmul", &[&[4, 15], &[16, 8]], &[], "reduction dims differ: lhs k = 15, rhs k = 16");
    refused(
        "nn.conv2d",
        &[&[2, 3, 8, 8], &[4, 5, 3, 3]],
        &[],
        "input channels differ: data has 3, weight with groups = 1 takes 5",
    );
    refused(
        "nn.conv2d",
        &[&[2, 3, 8, 8], &[4, 3, 12, 3]],
        &[],
        "a window of 12 does not fit into H = 8 with padding 0",
    );
    refused(
        "nn.conv2d",
        &[&[2, 4, 8, 8], &[5, 2, 3, 3]],
        &[("groups", AttrValue::Int(2))],
        "output channels 5 are not divisible by 2",
    );
    refused(
        "nn.conv2d_transpose",
        &[&[2, 3, 8, 8], &[4, 3, 3, 3]],
        &[],
        "input channels differ: data has 3, weight takes 4",
    );
    refused(
        "nn.max_pool2d",
        &[&[2, 3, 2, 8]],
        &[("pool_size", ints(&[7, 4]))],
        "a window of 7 does not fit into H = 2 with padding 0",
    );
    refused("nn.layer_norm", &[&[2, 8], &[7], &[8]], &[("axes", ints(&[-1]))], "gamma has dim 7, the data has 8");
    refused(
        "nn.attention",
        &[&[2, 6, 4, 8], &[2, 6, 3, 8], &[2, 6, 4, 8]],
        &[],
        "the number of heads is no multiple: query has 4, key has 3",
    );
    refused("nn.cross_entropy_with_logits", &[&[2, 8], &[2, 9]], &[], "dims differ: predictions 8, labels 9");
}
