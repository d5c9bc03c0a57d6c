//! Rule `pairs`: bytes that are moved, and quantised again as they were, are the bytes that were moved.
//!
//! Quantisers put a pair of `quantize` and `dequantize` behind every operator, those that only move elements too. Floats
//! that stand on a scale already are what such a pair makes of them, so it goes away. Where a kernel of bytes reads what
//! was moved, the pair before the move goes instead, unless a kernel makes these bytes.

use crate::aliases::renamed;
use crate::host::VIEWS;
use crate::layout::follows;
use relax_ir::analysis::Typed;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Expr, ExprKind, Function, RVar, StructInfo};
use relax_ir::DType;
use std::collections::HashMap;

/// Operators besides views that only move elements.
const MOVES: &[&str] = &["permute_dims", "strided_slice", "flip"];
/// Elementwise operators that are done to several tensors, or to one in passing.
const PLAIN: &[&str] = &["add", "subtract"];

pub(super) fn pairs(f: &mut Function, typed: &mut Typed) {
    let values: HashMap<RVar, Expr> = f.bindings().map(|b| (b.var.clone(), b.expr().clone())).collect();
    let mut readers: HashMap<RVar, Vec<(&Call, usize)>> = HashMap::new();
    for c in values.values().filter_map(Expr::as_call) {
        for (i, a) in c.args.iter().enumerate() {
            a.walk(&mut |e| {
                if let ExprKind::Var(v) = e.kind() {
                    readers.entry(v.clone()).or_default().push((c, i));
                }
            });
        }
    }
    let find = Find { values: &values, readers: &readers, typed };
    // Floats by the pair that makes them again; what moves before a pair that stays.
    let mut names: HashMap<RVar, Expr> = HashMap::new();
    let mut before: HashMap<RVar, (Vec<RVar>, Expr)> = HashMap::new();
    for b in f.bindings() {
        let Some(pair) = find.pair(b) else { continue };
        if !find.is_for_bytes(&b.var) {
            if pair.moves.iter().all(|v| find.is_view(v)) || find.is_moved_well(&b.var) {
                names.insert(b.var.clone(), pair.floats);
            }
        } else if !find.is_product(&pair.source) {
            before.insert(pair.bytes, (pair.moves, pair.source));
        }
    }
    if names.is_empty() && before.is_empty() {
        return;
    }
    let mut made: Vec<(RVar, StructInfo)> = vec![];
    f.body = map_bindings(&f.body, &mut |b, _| {
        let BindingValue::Expr(e) = &b.value else { return None };
        let e = match before.get(&b.var) {
            Some((moves, source)) => {
                let mut x = renamed(source, &names).unwrap_or_else(|| source.clone());
                let mut list = vec![];
                for m in moves.iter().rev() {
                    let c = values.get(m)?.as_call()?;
                    let args = [&[x], &c.args[1..]].concat();
                    let var = RVar::new(m.name(), b.var.is_dataflow(), b.span);
                    made.push((var.clone(), typed.sinfo.get(m)?.clone()));
                    x = var.expr();
                    let value = Expr::new(ExprKind::Call(Call { args, ..c.clone() }), b.span);
                    list.push(Binding { var, annotation: None, value: BindingValue::Expr(value), span: b.span });
                }
                let c = e.as_call()?;
                let args = [&[x], &c.args[1..]].concat();
                let value = BindingValue::Expr(Expr::new(ExprKind::Call(Call { args, ..c.clone() }), e.span()));
                list.push(Binding { value, ..b.clone() });
                return Some(list);
            }
            None => renamed(e, &names)?,
        };
        Some(vec![Binding { value: BindingValue::Expr(e), ..b.clone() }])
    });
    // A function returns what it did.
    if let Some(result) = renamed(&f.body.body, &names) {
        let mut body = (*f.body).clone();
        body.body = result;
        f.body = body.into();
    }
    typed.sinfo.extend(made);
}

/// `dequantize(quantize(floats))`, where `floats` are `dequantize(quantize(source))` with the same scale, moved.
struct Pair {
    floats: Expr,
    /// What the later `quantize` makes.
    bytes: RVar,
    source: Expr,
    /// From the last one.
    moves: Vec<RVar>,
}

struct Find<'a> {
    values: &'a HashMap<RVar, Expr>,
    readers: &'a HashMap<RVar, Vec<(&'a Call, usize)>>,
    typed: &'a Typed,
}

impl Find<'_> {
    fn call(&self, e: &Expr, op: &str) -> Option<&Call> {
        self.values.get(e.as_var()?)?.as_op_call(op)
    }

    /// Scale, zero point and dtype of the bytes `q`, of one number each.
    fn scale(&self, c: &Call, q: &Expr) -> Option<(u64, i64, DType)> {
        let one = |e: &Expr| match e.as_var().and_then(|v| self.values.get(v)).unwrap_or(e).kind() {
            ExprKind::Constant(c) if c.elements() == 1 => Some(c.clone()),
            _ => None,
        };
        let (scale, zero) = (one(&c.args[1])?, one(&c.args[2])?);
        let dtype = self.typed.sinfo.get(q.as_var()?)?.as_tensor()?.dtype?;
        (scale.dtype == DType::F32).then(|| (scale.get_f64(0).to_bits(), zero.get_i64(0), dtype))
    }

    fn floats<'a>(&'a self, e: &Expr) -> Option<(&'a Call, &'a Call)> {
        let d = self.call(e, "dequantize")?;
        let q = self.call(&d.args[0], "quantize")?;
        let float = |e: &Expr| Some(self.typed.sinfo.get(e.as_var()?)?.as_tensor()?.dtype == Some(DType::F32));
        let same = self.scale(d, &d.args[0])? == self.scale(q, &d.args[0])?;
        (same && float(e)? && float(&q.args[0])?).then_some((d, q))
    }

    fn pair(&self, b: &Binding) -> Option<Pair> {
        let (d, q) = self.floats(&b.var.expr())?;
        let scale = self.scale(d, &d.args[0])?;
        let (mut at, mut moves) = (q.args[0].clone(), vec![]);
        while let Some(v) = at.as_var().filter(|v| self.is_view(v) || self.is_move(v)).cloned() {
            at = self.values.get(&v)?.as_call()?.args.first()?.clone();
            moves.push(v);
        }
        let (first, of) = self.floats(&at)?;
        let same = self.scale(first, &first.args[0])? == scale;
        let bytes = d.args[0].as_var()?.clone();
        same.then(|| Pair { floats: q.args[0].clone(), bytes, source: of.args[0].clone(), moves })
    }

    fn name(&self, v: &RVar) -> Option<&'static str> {
        Some(self.values.get(v)?.as_call()?.op()?.name)
    }

    fn is_view(&self, v: &RVar) -> bool {
        self.name(v).is_some_and(|n| VIEWS.contains(&n))
    }

    fn is_move(&self, v: &RVar) -> bool {
        self.name(v).is_some_and(|n| MOVES.contains(&n))
    }

    /// Whether a kernel of bytes may read these floats.
    fn is_for_bytes(&self, v: &RVar) -> bool {
        let weights = |e: &Expr| {
            let e = self.call(e, "permute_dims").map_or(e, |c| &c.args[0]);
            let constant = |e: &Expr| match e.as_var() {
                Some(v) => matches!(self.values.get(v).map(|e| e.kind()), Some(ExprKind::Constant(_))),
                None => matches!(e.kind(), ExprKind::Constant(_)),
            };
            self.call(e, "dequantize").is_some_and(|c| constant(&c.args[0]))
        };
        self.readers.get(v).into_iter().flatten().any(|(c, i)| match c.op().map(|o| o.name) {
            Some("nn.conv2d" | "matmul") => *i == 0 && weights(&c.args[1]),
            Some("nn.max_pool2d") => true,
            _ => false,
        })
    }

    /// Whether what reads moved floats does nothing that a table of bytes would do.
    fn is_moved_well(&self, v: &RVar) -> bool {
        let names = self.readers.get(v).into_iter().flatten().filter_map(|(c, _)| c.op());
        names.map(|o| o.name).all(|n| !follows(n) || PLAIN.contains(&n))
    }

    /// Whether a kernel may make bytes of what these floats are made of.
    fn is_product(&self, e: &Expr) -> bool {
        let made = |e: &Expr| ["nn.conv2d", "matmul", "nn.max_pool2d"].iter().any(|op| self.call(e, op).is_some());
        made(e)
            || self
                .call(e, "add")
                .is_some_and(|c| c.args.iter().any(made) || c.args.iter().all(|a| self.call(a, "dequantize").is_some()))
    }
}
