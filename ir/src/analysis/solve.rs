//! Dims of a signature that only state a multiple of a variable: `Tensor((n, m * 4))` is solved for `m`.
//!
//! The dim gets a name of its own, `m_times_4`, of which 4 is a divisor, and `m` is its quotient everywhere in the function.
//! So binding, proving and checking know nothing new; criterion 5 of the specification alone would refuse such a
//! signature.

use super::vars;
use crate::attrs::{AttrValue, Attrs, SOLVED_DIMS, VAR_DIVISOR};
use crate::module::{Func, IRModule};
use crate::prim::{BinOp, PrimExpr, PrimKind, Var};
use crate::relax::*;
use std::collections::HashMap;
use std::sync::Arc;

/// The module with every such dim solved; `None` when there is none.
pub fn multiples(module: &IRModule) -> Option<IRModule> {
    let mut out: Option<IRModule> = None;
    for (i, f) in module.funcs.iter().enumerate() {
        let Func::Relax(f) = f else { continue };
        if let Some(new) = function(f) {
            out.get_or_insert_with(|| module.clone()).funcs[i] = Func::Relax(new);
        }
    }
    out
}

/// `v * c` for a number above 1.
fn multiple(d: &PrimExpr) -> Option<(Var, i64)> {
    let PrimKind::Binary(BinOp::Mul, a, b) = d.kind() else { return None };
    let (v, c) = match (a.as_var(), b.as_var()) {
        (Some(v), None) => (v, b.as_int()?),
        (None, Some(v)) => (v, a.as_int()?),
        _ => return None,
    };
    (c > 1).then(|| (v.clone(), c))
}

fn function(f: &Function) -> Option<Function> {
    let infos = || f.params.iter().filter_map(|p| p.annotation.as_ref());
    let lone: Vec<Var> = vars::lone_vars(infos()).into_iter().map(|(v, _)| v).collect();
    // By variable: the dim's own name and the factor.
    let mut solved: Vec<(Var, Var, i64)> = vec![];
    for s in infos() {
        vars::each_binding_dim(s, &mut |d, is_dim| {
            let Some((v, c)) = multiple(d).filter(|_| is_dim) else { return };
            if !lone.contains(&v) && !solved.iter().any(|(w, ..)| *w == v) {
                let own = Var::with_span(format!("{}_times_{c}", v.name()), v.dtype(), d.span());
                solved.push((v, own, c));
            }
        });
    }
    if solved.is_empty() {
        return None;
    }
    let map =
        solved.iter().map(|(v, own, c)| (v.clone(), own.expr().floor_div(PrimExpr::int(v.dtype(), *c)))).collect();
    let s = Solve { solved: &solved, map };
    let mut attrs = s.attrs(&f.attrs);
    let mut add = |key: &str, name: &str, value: AttrValue| {
        let mut dict = match attrs.get(key) {
            Some(AttrValue::Dict(d)) => d.clone(),
            _ => vec![],
        };
        dict.push((name.to_string(), value));
        attrs.set(key, AttrValue::Dict(dict));
    };
    for (v, own, c) in &solved {
        add(VAR_DIVISOR, own.name(), AttrValue::Int(*c));
        add(SOLVED_DIMS, own.name(), AttrValue::Str(format!("{} * {c}", v.name())));
    }
    Some(Function { attrs, ..s.function(f) })
}

struct Solve<'a> {
    solved: &'a [(Var, Var, i64)],
    map: HashMap<Var, PrimExpr>,
}

impl Solve<'_> {
    fn dim(&self, d: &PrimExpr) -> PrimExpr {
        if let Some((v, c)) = multiple(d) {
            if let Some((_, own, _)) = self.solved.iter().find(|(w, _, k)| *w == v && *k == c) {
                return own.expr();
            }
        }
        d.substitute(&self.map)
    }

    fn info(&self, s: &StructInfo) -> StructInfo {
        vars::map_dims(s, &mut |d| self.dim(d))
    }

    fn infos(&self, list: &[StructInfo]) -> Vec<StructInfo> {
        list.iter().map(|s| self.info(s)).collect()
    }

    fn function(&self, f: &Function) -> Function {
        let param = |p: &Param| Param { var: p.var.clone(), annotation: p.annotation.as_ref().map(|a| self.info(a)) };
        Function {
            params: f.params.iter().map(param).collect(),
            ret: f.ret.as_ref().map(|r| self.info(r)),
            body: self.seq(&f.body),
            ..f.clone()
        }
    }

    fn seq(&self, s: &SeqExpr) -> Arc<SeqExpr> {
        let binding = |b: &Binding| Binding {
            annotation: b.annotation.as_ref().map(|a| self.info(a)),
            value: match &b.value {
                BindingValue::Expr(e) => BindingValue::Expr(self.expr(e)),
                BindingValue::MatchCast { value, struct_info } => {
                    BindingValue::MatchCast { value: self.expr(value), struct_info: self.info(struct_info) }
                }
            },
            ..b.clone()
        };
        let blocks = s.blocks.iter();
        let blocks = blocks.map(|b| BindingBlock { bindings: b.bindings.iter().map(binding).collect(), ..b.clone() });
        Arc::new(SeqExpr { blocks: blocks.collect(), body: self.expr(&s.body) })
    }

    fn exprs(&self, list: &[Expr]) -> Vec<Expr> {
        list.iter().map(|e| self.expr(e)).collect()
    }

    fn expr(&self, e: &Expr) -> Expr {
        let kind = match e.kind() {
            ExprKind::Tuple(f) => ExprKind::Tuple(self.exprs(f)),
            ExprKind::TupleGetItem(t, i) => ExprKind::TupleGetItem(self.expr(t), *i),
            ExprKind::Seq(s) => ExprKind::Seq(self.seq(s)),
            ExprKind::Function(f) => ExprKind::Function(Arc::new(self.function(f))),
            ExprKind::If { cond, then, otherwise } => {
                ExprKind::If { cond: self.expr(cond), then: self.seq(then), otherwise: self.seq(otherwise) }
            }
            ExprKind::Call(c) => ExprKind::Call(Call {
                callee: match &c.callee {
                    Callee::Expr(f) => Callee::Expr(self.expr(f)),
                    op => op.clone(),
                },
                args: self.exprs(&c.args),
                attrs: self.attrs(&c.attrs),
                sinfo_args: self.infos(&c.sinfo_args),
            }),
            ExprKind::Shape(dims) => ExprKind::Shape(dims.iter().map(|d| self.dim(d)).collect()),
            ExprKind::Prim(p) => ExprKind::Prim(self.dim(p)),
            _ => return e.clone(),
        };
        Expr::new(kind, e.span())
    }

    fn attrs(&self, a: &Attrs) -> Attrs {
        Attrs(a.0.iter().map(|(k, v)| (k.clone(), self.attr(v))).collect())
    }

    fn attr(&self, a: &AttrValue) -> AttrValue {
        match a {
            AttrValue::Prim(p) => AttrValue::Prim(self.dim(p)),
            AttrValue::List(l) => AttrValue::List(l.iter().map(|v| self.attr(v)).collect()),
            AttrValue::StructInfo(s) => AttrValue::StructInfo(Box::new(self.info(s))),
            other => other.clone(),
        }
    }
}
