//! Dims of a signature that state a variable as part of an expression: `Tensor((n, m * 4))` is solved for `m`.
//!
//! Such a dim is `a * m + rest`, where the rest holds numbers and variables that are bound elsewhere. It gets a name of
//! its own, `m_times_4`, and `m` is its quotient everywhere in the function. That there is a solution is stated of the
//! dim: a divisor, a bound, or a condition. So binding, proving and checking know nothing new; criterion 5 of the
//! specification alone would refuse such a signature.

use super::{show, signature, vars};
use crate::attrs::{AttrValue, Attrs, SHAPE_CONSTRAINTS, SIGNATURE, SOLVABLE, SOLVED_DIMS, VAR_DIVISOR};
use crate::module::{Func, IRModule};
use crate::prim::{BinOp, PrimExpr, PrimKind, Var};
use crate::relax::*;
use std::collections::{HashMap, HashSet};
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

/// A dim that was solved: `dim = factor * var + rest`.
struct Solved {
    var: Var,
    /// The name that the dim gets.
    own: Var,
    dim: PrimExpr,
    factor: i64,
    rest: PrimExpr,
}

impl Solved {
    /// `(own - rest) // factor`
    fn value(&self, map: &HashMap<Var, PrimExpr>) -> PrimExpr {
        let rest = self.rest.substitute(map);
        let difference = if self.factor > 0 { self.own.expr() - rest } else { rest - self.own.expr() };
        match self.factor.abs() {
            1 => difference,
            k => difference.floor_div(PrimExpr::int(self.var.dtype(), k)),
        }
    }
}

/// `e` as `a * v + rest`.
fn linear(e: &PrimExpr, v: &Var) -> Option<(i64, PrimExpr)> {
    if !e.uses(v) {
        return Some((0, e.clone()));
    }
    match e.kind() {
        PrimKind::Var(_) => Some((1, PrimExpr::int(e.dtype(), 0))),
        PrimKind::Binary(op @ (BinOp::Add | BinOp::Sub), x, y) => {
            let ((a, p), (b, q)) = (linear(x, v)?, linear(y, v)?);
            match op {
                BinOp::Add => Some((a.checked_add(b)?, p + q)),
                _ => Some((a.checked_sub(b)?, p - q)),
            }
        }
        PrimKind::Binary(BinOp::Mul, x, y) => {
            let (x, c) = match (x.as_int(), y.as_int()) {
                (_, Some(c)) => (x, c),
                (Some(c), _) => (y, c),
                _ => return None,
            };
            let (a, p) = linear(x, v)?;
            Some((a.checked_mul(c)?, p * PrimExpr::int(e.dtype(), c)))
        }
        _ => None,
    }
}

/// A name for the dim: `m_times_4_plus_2`.
fn name(d: &PrimExpr, taken: &dyn Fn(&str) -> bool) -> String {
    let words = show::dim(d).replace(" * ", "_times_").replace(" + ", "_plus_").replace(" - ", "_minus_");
    let mut name: String = words.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert_str(0, "dim_");
    }
    while taken(&name) {
        name.push('_');
    }
    name
}

/// Dims that can be solved, each for a variable that nothing else binds.
fn find(f: &Function) -> Vec<Solved> {
    let infos = || f.params.iter().filter_map(|p| p.annotation.as_ref());
    let mut known: HashSet<Var> = vars::lone_vars(infos()).into_iter().map(|(v, _)| v).collect();
    let mut solved: Vec<Solved> = vec![];
    loop {
        let before = solved.len();
        for s in infos() {
            vars::each_binding_dim(s, &mut |d, is_dim| {
                if !is_dim || d.as_var().is_some() || d.as_int().is_some() {
                    return;
                }
                let open: Vec<Var> = d.vars().into_iter().filter(|v| !known.contains(v)).collect();
                let [v] = &open[..] else { return };
                let Some((factor, rest)) = linear(d, v).filter(|(a, _)| *a != 0 && *a != i64::MIN) else { return };
                let taken = |n: &str| known.iter().any(|v| v.name() == n) || solved.iter().any(|s| s.own.name() == n);
                let own = Var::with_span(name(d, &taken), v.dtype(), d.span());
                known.insert(v.clone());
                solved.push(Solved { var: v.clone(), own, dim: d.clone(), factor, rest });
            });
        }
        if solved.len() == before {
            return solved;
        }
    }
}

fn function(f: &Function) -> Option<Function> {
    let solved = find(f);
    if solved.is_empty() {
        return None;
    }
    let mut map = HashMap::new();
    for s in &solved {
        let value = s.value(&map);
        map.insert(s.var.clone(), value);
    }
    let s = Solve { solved: &solved, map };
    let mut attrs = Stated { attrs: s.attrs(&f.attrs) };
    attrs.constraints(f, &s);
    attrs.add(
        SOLVED_DIMS,
        SIGNATURE,
        AttrValue::Str(show::info(&StructInfo::Func(Arc::new(signature::of_function(f))))),
    );
    for one in &solved {
        attrs.solvable(one, &s.map);
        attrs.bounds(one, &s.map);
        attrs.add(SOLVED_DIMS, one.own.name(), AttrValue::Str(show::dim(&one.dim)));
    }
    Some(Function { attrs: attrs.attrs, ..s.function(f) })
}

/// The attributes of a function whose dims are being solved.
struct Stated {
    attrs: Attrs,
}

impl Stated {
    fn add(&mut self, key: &str, name: &str, value: AttrValue) {
        let mut dict = match self.attrs.get(key) {
            Some(AttrValue::Dict(d)) => d.clone(),
            _ => vec![],
        };
        dict.push((name.to_string(), value));
        self.attrs.set(key, AttrValue::Dict(dict));
    }

    fn constrain(&mut self, condition: &PrimExpr) {
        let mut list = match self.attrs.get(SHAPE_CONSTRAINTS) {
            Some(AttrValue::List(l)) => l.clone(),
            Some(one) => vec![one.clone()],
            None => vec![],
        };
        list.push(AttrValue::Str(show::dim(condition)));
        self.attrs.set(SHAPE_CONSTRAINTS, AttrValue::List(list));
    }

    /// What the user states of the variables is stated of the dims.
    fn constraints(&mut self, f: &Function, s: &Solve) {
        let infos = f.params.iter().filter_map(|p| p.annotation.as_ref());
        let vars: Vec<Var> =
            vars::lone_vars(infos).into_iter().map(|(v, _)| v).chain(s.solved.iter().map(|s| s.var.clone())).collect();
        let texts: Vec<AttrValue> = match self.attrs.get(SHAPE_CONSTRAINTS) {
            Some(AttrValue::List(l)) => l.clone(),
            Some(one) => vec![one.clone()],
            None => return,
        };
        self.attrs.set(SHAPE_CONSTRAINTS, AttrValue::List(vec![]));
        let lookup = |name: &str| vars.iter().find(|v| v.name() == name).map(Var::expr);
        for t in texts {
            match t.as_str().map(|t| crate::prim::text::condition(t, &lookup)) {
                Some(Ok(c)) => self.constrain(&c.substitute(&s.map)),
                // Reported where constraints are read.
                _ => {
                    if let Some(AttrValue::List(l)) = self.attrs.get(SHAPE_CONSTRAINTS) {
                        let l = l.iter().cloned().chain([t]).collect();
                        self.attrs.set(SHAPE_CONSTRAINTS, AttrValue::List(l));
                    }
                }
            }
        }
    }

    /// There is a solution, and it is no negative number.
    fn solvable(&mut self, s: &Solved, map: &HashMap<Var, PrimExpr>) {
        let (own, k) = (s.own.name().to_string(), s.factor.abs());
        let rest = s.rest.substitute(map);
        let mut conditions = vec![];
        match rest.as_int() {
            Some(0) if k > 1 => self.add(VAR_DIVISOR, &own, AttrValue::Int(k)),
            _ if k > 1 => conditions.push((s.own.expr() - rest.clone()).floor_mod(k).eq(0)),
            _ => {}
        }
        match (rest.as_int(), s.factor > 0) {
            (Some(b), true) if b <= 0 => {}
            (Some(b), true) => self.add("tir_var_lower_bound", &own, AttrValue::Int(b)),
            (Some(b), false) => self.add("tir_var_upper_bound", &own, AttrValue::Int(b)),
            (None, true) => conditions.push(s.own.expr().ge(rest)),
            (None, false) => conditions.push(s.own.expr().le(rest)),
        }
        let texts: Vec<String> = conditions.iter().map(show::dim).collect();
        if !texts.is_empty() {
            self.add(SOLVABLE, &own, AttrValue::Str(texts.join(" and ")));
        }
    }

    /// Bounds and divisors of the variable.
    fn bounds(&mut self, s: &Solved, map: &HashMap<Var, PrimExpr>) {
        let value = s.value(map);
        for key in ["tir_var_lower_bound", "tir_var_upper_bound", VAR_DIVISOR] {
            let stated = match self.attrs.get(key) {
                Some(AttrValue::Dict(d)) => d.iter().find(|(n, _)| n == s.var.name()).and_then(|(_, x)| x.as_int()),
                _ => None,
            };
            let Some(x) = stated else { continue };
            let dim = s.rest.as_int().and_then(|b| s.factor.checked_mul(x)?.checked_add(b));
            match (key, dim) {
                (VAR_DIVISOR, _) => self.constrain(&value.clone().floor_mod(x).eq(0)),
                (key, Some(d)) if s.factor > 0 => self.add(key, s.own.name(), AttrValue::Int(d)),
                ("tir_var_lower_bound", _) => self.constrain(&value.clone().ge(x)),
                (_, _) => self.constrain(&value.clone().le(x)),
            }
        }
    }
}

struct Solve<'a> {
    solved: &'a [Solved],
    map: HashMap<Var, PrimExpr>,
}

impl Solve<'_> {
    fn dim(&self, d: &PrimExpr) -> PrimExpr {
        match self.solved.iter().find(|s| s.dim == *d) {
            Some(s) => s.own.expr(),
            None => d.substitute(&self.map),
        }
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
