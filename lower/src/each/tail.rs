//! Dense layers behind the last convolution, for all images of a batch at once.

use super::{Kind, Search};
use relax_ir::analysis::Typed;
use relax_ir::attrs::REST_OF;
use relax_ir::op::is_elementwise;
use relax_ir::relax::{
    instance, Binding, BindingBlock, BindingValue, Expr, ExprKind, Function, Param, RVar, SeqExpr, StructInfo,
};
use relax_ir::{AttrValue, DType, Var};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Bytes of weights that caches do not keep from one image to the next.
const LARGE: i64 = 8 << 20;

/// Operators of the tail besides elementwise ones.
const DENSE: &[&str] = &["matmul", "permute_dims", "reshape"];

/// The function up to the tail, which gives the tensor that goes on, and the function of the tail, which takes it as its last
/// parameter; `None` where there is no tail, or weights are small.
pub(super) fn cut(f: &Function, typed: &Typed, n: &Var) -> Option<(Function, Function)> {
    let s = Search { typed, n };
    let all: Vec<&Binding> = f.bindings().collect();
    let at = all.iter().rposition(|b| !is_dense(&s, b))? + 1;
    let weights: i64 = all[at..].iter().filter_map(|b| weights(&s, b)).sum();
    if weights < LARGE {
        return None;
    }
    // What the tail reads of what was before: one tensor of images, and what is the same for all of them.
    let before: HashMap<&RVar, usize> = all[..at].iter().enumerate().map(|(i, b)| (&b.var, i)).collect();
    let (mut images, mut moved): (Vec<RVar>, HashSet<usize>) = Default::default();
    let mut open: Vec<Expr> = all[at..].iter().filter_map(|b| value(b).cloned()).collect();
    open.push(f.body.body.clone());
    while let Some(e) = open.pop() {
        let mut used = vec![];
        e.walk(&mut |e| used.extend(e.as_var().cloned()));
        for v in used {
            let Some(&i) = before.get(&v) else { continue };
            match typed.sinfo.get(&v).and_then(|info| s.tensor(info.as_tensor()?)) {
                Some(Kind::Free) if moved.insert(i) => open.push(value(all[i])?.clone()),
                Some(Kind::Free) => {}
                Some(Kind::Each(1)) if !images.contains(&v) => images.push(v),
                Some(Kind::Each(1)) => {}
                Some(Kind::Each(_)) | None => return None,
            }
        }
    }
    let [live] = images.as_slice() else { return None };
    let info = typed.sinfo.get(live)?;
    (info.as_tensor()?.dtype == Some(DType::F32))
        .then(|| (head(f, live, info, at), tail(f, live, info, &all, at, &moved)))
}

fn value(b: &Binding) -> Option<&Expr> {
    match &b.value {
        BindingValue::Expr(e) => Some(e),
        _ => None,
    }
}

/// Whether it may belong to the tail: of floats, by an operator that is as fast for an open batch.
fn is_dense(s: &Search, b: &Binding) -> bool {
    let (Some(e), Some(info)) = (value(b), s.typed.sinfo.get(&b.var)) else { return false };
    match e.kind() {
        ExprKind::Shape(_) | ExprKind::Prim(_) => true,
        _ if info.as_tensor().is_none_or(|t| t.dtype != Some(DType::F32)) => false,
        ExprKind::Var(_) | ExprKind::Constant(_) => true,
        ExprKind::Call(c) => {
            let floats = |a: &Expr| match s.typed.info_of(a).and_then(|i| i.as_tensor()?.dtype) {
                Some(d) => d == DType::F32,
                None => matches!(a.kind(), ExprKind::Shape(_) | ExprKind::Prim(_)),
            };
            let known = |name: &str| DENSE.contains(&name) || is_elementwise(name);
            c.op().is_some_and(|o| known(o.name)) && c.args.iter().all(floats) && is_matrix(s, info, e)
        }
        _ => false,
    }
}

/// A row for each image, or nothing of images.
fn is_matrix(s: &Search, info: &StructInfo, e: &Expr) -> bool {
    let Some(t) = info.as_tensor() else { return false };
    let rows = t.known_dims().is_some_and(|d| d.len() == 2);
    match s.tensor(t) {
        Some(Kind::Each(n)) => rows && n == 1,
        Some(Kind::Free) => true,
        None => e.as_var().is_some(),
    }
}

/// Bytes of the right side that a product of images reads.
fn weights(s: &Search, b: &Binding) -> Option<i64> {
    let c = value(b)?.as_call().filter(|c| c.is_op("matmul"))?;
    let right = s.typed.info_of(c.args.get(1)?)?;
    let right = right.as_tensor()?;
    let own = s.rows(c.args.first()?) == Some(1) && s.tensor(right) == Some(Kind::Free);
    let dims = right.known_dims().filter(|_| own)?;
    Some(4 * dims.iter().filter_map(|d| d.as_int()).product::<i64>())
}

/// The first `at` bindings, of which `live` is the result.
fn head(f: &Function, live: &RVar, info: &StructInfo, at: usize) -> Function {
    let result = RVar::new("images", false, live.span());
    let mut left = at;
    let mut blocks: Vec<BindingBlock> = vec![];
    for b in &f.body.blocks {
        let bindings: Vec<Binding> = b.bindings.iter().take(left).cloned().collect();
        left -= bindings.len();
        if !bindings.is_empty() {
            blocks.push(BindingBlock { bindings, ..b.clone() });
        }
    }
    if let Some(last) = blocks.last_mut() {
        let value = BindingValue::Expr(live.expr());
        last.bindings.push(Binding { var: result.clone(), annotation: None, value, span: live.span() });
    }
    Function { ret: Some(info.clone()), body: Arc::new(SeqExpr { blocks, body: result.expr() }), ..f.clone() }
}

/// The bindings from `at` on, and those before that they need.
fn tail(f: &Function, live: &RVar, info: &StructInfo, all: &[&Binding], at: usize, moved: &HashSet<usize>) -> Function {
    let images = RVar::new("images", false, live.span());
    let value = BindingValue::Expr(images.expr());
    let mut bindings = vec![Binding { var: live.clone(), annotation: None, value, span: live.span() }];
    let taken = |i: &usize| *i >= at || moved.contains(i);
    bindings.extend((0..all.len()).filter(taken).map(|i| all[i].clone()));
    let blocks = vec![BindingBlock { dataflow: true, bindings, span: f.span }];
    let mut g = f.clone();
    g.body = Arc::new(SeqExpr { blocks, body: f.body.body.clone() });
    g.params.push(Param { var: images, annotation: Some(info.clone()) });
    g.name = format!("{}_rest", f.name);
    g.private = true;
    g.attrs.0.retain(|(key, _)| key != "global_symbol");
    g.attrs.set(REST_OF, AttrValue::Str(f.name.clone()));
    instance(&g, &HashMap::new())
}
