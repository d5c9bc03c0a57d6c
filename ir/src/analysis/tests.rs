//! What no text can say: scopes that the parser would not build, and the normal form itself.

use super::*;
use crate::attrs::Attrs;
use crate::diag::Diagnostics;
use crate::dtype::DType;
use crate::op::lookup;
use crate::relax::{
    Binding, BindingBlock, BindingValue, Call, Callee, ExprKind, FuncInfo, Function, Param, SeqExpr, TensorInfo,
    TensorShape,
};
use std::sync::Arc;

fn tensor(dims: &[i64]) -> StructInfo {
    StructInfo::tensor(dims.iter().map(|d| (*d).into()).collect(), DType::F32)
}

fn var(name: &str) -> RVar {
    RVar::new(name, false, Span::NONE)
}

fn dataflow_var(name: &str) -> RVar {
    RVar::new(name, true, Span::NONE)
}

fn expr(kind: ExprKind) -> Expr {
    Expr::new(kind, Span::NONE)
}

fn exp(x: Expr) -> Expr {
    let op = lookup("exp").expect("exp is declared");
    expr(ExprKind::Call(Call { callee: Callee::Op(op), args: vec![x], attrs: Attrs::default(), sinfo_args: vec![] }))
}

fn bind(v: &RVar, e: Expr) -> Binding {
    Binding { var: v.clone(), annotation: None, value: BindingValue::Expr(e), span: Span::NONE }
}

fn block(dataflow: bool, bindings: Vec<Binding>) -> BindingBlock {
    BindingBlock { dataflow, bindings, span: Span::NONE }
}

fn function(name: &str, params: &[(&RVar, StructInfo)], blocks: Vec<BindingBlock>, body: Expr) -> Function {
    Function {
        name: name.to_string(),
        params: params.iter().map(|(v, s)| Param { var: (*v).clone(), annotation: Some(s.clone()) }).collect(),
        ret: None,
        body: Arc::new(SeqExpr { blocks, body }),
        attrs: Attrs::default(),
        private: false,
        pure: true,
        span: Span::NONE,
        signature_span: Span::NONE,
    }
}

fn analyse(f: Function) -> (Option<Typed>, Diagnostics) {
    analyze(&IRModule { name: "Module".into(), funcs: vec![Func::Relax(f)], ..IRModule::default() })
}

fn codes(f: Function) -> Vec<&'static str> {
    analyse(f).1.list.iter().map(|d| d.code).collect()
}

#[test]
fn nested_calls_are_bound_from_the_left() {
    let x = var("x");
    let pair = expr(ExprKind::Tuple(vec![exp(exp(x.expr())), exp(x.expr())]));
    let (t, d) = analyse(function("main", &[(&x, tensor(&[2]))], vec![], pair));
    let t = t.unwrap_or_else(|| panic!("{:?}", d.list));
    let f = t.module.relax("main").expect("main");
    assert_eq!(f.body.blocks.len(), 1);
    let bound: Vec<&RVar> = f.bindings().map(|b| &b.var).collect();
    assert_eq!(bound.len(), 3);
    assert!(f.bindings().all(|b| b.expr().as_call().is_some_and(|c| c.args.iter().all(Expr::is_leaf))));
    assert_eq!(f.body.body, expr(ExprKind::Tuple(vec![bound[1].expr(), bound[2].expr()])));
    assert_eq!(f.ret, Some(StructInfo::Tuple(vec![tensor(&[2]), tensor(&[2])])));
}

#[test]
fn blocks_are_consolidated_and_sequences_flattened() {
    let (x, a, b, c, d) = (var("x"), var("a"), var("b"), dataflow_var("c"), var("d"));
    let inner = SeqExpr { blocks: vec![block(false, vec![bind(&a, exp(x.expr()))])], body: exp(a.expr()) };
    let blocks = vec![
        block(false, vec![]),
        block(false, vec![bind(&b, expr(ExprKind::Seq(Arc::new(inner))))]),
        block(true, vec![]),
        block(false, vec![]),
        block(true, vec![bind(&c, exp(b.expr()))]),
        block(true, vec![bind(&d, exp(c.expr()))]),
    ];
    // The second dataflow block uses a variable of the first: only after consolidation would that be legal.
    let f = function("main", &[(&x, tensor(&[2]))], blocks.clone(), d.expr());
    assert_eq!(codes(f), ["dataflow-variable"]);
    let mut blocks = blocks;
    blocks[5].bindings = vec![bind(&d, exp(b.expr()))];
    let (t, diags) = analyse(function("main", &[(&x, tensor(&[2]))], blocks, d.expr()));
    let t = t.unwrap_or_else(|| panic!("{:?}", diags.list));
    let f = t.module.relax("main").expect("main");
    let shape: Vec<(bool, usize)> = f.body.blocks.iter().map(|b| (b.dataflow, b.bindings.len())).collect();
    assert_eq!(shape, [(false, 2), (true, 2)]);
}

#[test]
fn well_formedness_1_dataflow_variables_stay_in_their_block() {
    let (x, a) = (var("x"), dataflow_var("a"));
    let outside = vec![block(false, vec![bind(&a, exp(x.expr()))])];
    assert_eq!(codes(function("main", &[(&x, tensor(&[2]))], outside, x.expr())), ["dataflow-variable"]);
    let used = vec![block(true, vec![bind(&a, exp(x.expr()))])];
    assert_eq!(codes(function("main", &[(&x, tensor(&[2]))], used, a.expr())), ["dataflow-variable"]);
}

#[test]
fn well_formedness_2_and_3_variables_are_bound_once_and_before_use() {
    let (x, a, b) = (var("x"), var("a"), var("b"));
    let twice = vec![block(false, vec![bind(&a, exp(x.expr())), bind(&a, exp(x.expr()))])];
    assert_eq!(codes(function("main", &[(&x, tensor(&[2]))], twice, a.expr())), ["bound-twice"]);
    let early = vec![block(false, vec![bind(&a, exp(b.expr())), bind(&b, exp(x.expr()))])];
    assert_eq!(codes(function("main", &[(&x, tensor(&[2]))], early, b.expr())), ["undefined-variable"]);
    let never = function("main", &[(&x, tensor(&[2]))], vec![], a.expr());
    assert_eq!(codes(never), ["undefined-variable"]);
}

#[test]
fn well_formedness_8_operators_are_only_called() {
    let (x, a) = (var("x"), var("a"));
    let op = lookup("exp").expect("exp is declared");
    let blocks = vec![block(false, vec![bind(&a, expr(ExprKind::Op(op)))])];
    assert_eq!(codes(function("main", &[(&x, tensor(&[2]))], blocks, a.expr())), ["operator-value"]);
}

#[test]
fn well_formedness_10_functions_in_dataflow_blocks_capture_no_dataflow_variables() {
    let (x, a, y, f) = (var("x"), dataflow_var("a"), var("y"), dataflow_var("f"));
    let inner = function("f", &[(&y, tensor(&[2]))], vec![], a.expr());
    let blocks = vec![block(true, vec![bind(&a, exp(x.expr())), bind(&f, expr(ExprKind::Function(Arc::new(inner))))])];
    assert_eq!(codes(function("main", &[(&x, tensor(&[2]))], blocks, x.expr())), ["dataflow-variable"]);
}

#[test]
fn well_formedness_13_to_15_annotations_are_consistent() {
    let bad_rank = StructInfo::Tensor(TensorInfo {
        shape: Some(TensorShape::Dims(vec![2.into()])),
        dtype: Some(DType::F32),
        ndim: Some(3),
        vdevice: None,
    });
    let bad_shape = StructInfo::Shape { values: Some(vec![2.into()]), ndim: Some(2) };
    let neither = FuncInfo { params: None, ret: StructInfo::Object, pure: true, derive: None };
    let both = FuncInfo { params: Some(vec![]), derive: Some("default".into()), ..neither.clone() };
    for (info, code) in [
        (bad_rank, "rank"),
        (bad_shape, "rank"),
        (StructInfo::Func(Arc::new(neither)), "function-type"),
        (StructInfo::Func(Arc::new(both)), "function-type"),
    ] {
        let x = var("x");
        assert_eq!(codes(function("main", &[(&x, info)], vec![], x.expr())), [code]);
    }
}

#[test]
fn shapes_may_be_variables() {
    // s: R.Shape([n, 3]) and x: R.Tensor(s): the dims of x are those of s.
    let n = Var::dim("n");
    let (s, x, y) = (var("s"), var("x"), var("y"));
    let shape = StructInfo::shape(vec![n.expr(), 3.into()]);
    let by_var = StructInfo::Tensor(TensorInfo {
        shape: Some(TensorShape::Var(s.clone())),
        dtype: Some(DType::F32),
        ndim: Some(2),
        vdevice: None,
    });
    let blocks = vec![block(false, vec![bind(&y, exp(x.expr()))])];
    let (t, d) = analyse(function("main", &[(&s, shape), (&x, by_var)], blocks, y.expr()));
    let t = t.unwrap_or_else(|| panic!("{:?}", d.list));
    assert_eq!(t.sinfo[&y], StructInfo::tensor(vec![n.expr(), 3.into()], DType::F32));
}

#[test]
fn joins_are_upper_bounds() {
    let mut f = Facts::new();
    let n = Var::dim("n").expr();
    let a = StructInfo::tensor(vec![n.clone() * 2, 3.into()], DType::F32);
    let b = StructInfo::tensor(vec![n.clone() + n.clone(), 3.into()], DType::F32);
    let c = StructInfo::tensor(vec![n.clone(), 4.into()], DType::F32);
    let d = StructInfo::tensor(vec![n], DType::I32);
    let unknown = StructInfo::Shape { values: None, ndim: None };
    let infos = [a.clone(), b.clone(), c, d, StructInfo::Object, StructInfo::unit(), unknown, tensor(&[])];
    assert_eq!(relate::join(&a, &b, &mut f), a);
    for x in &infos {
        for y in &infos {
            let j = relate::join(x, y, &mut f);
            for z in [x, y] {
                assert_eq!(relate::relate(z, &j, "", &mut f).answer(), crate::op::Answer::Yes, "{z:?} {j:?}");
            }
        }
    }
}
