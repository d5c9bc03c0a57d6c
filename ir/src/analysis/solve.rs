//! Dims of a signature or a MatchCast that state a variable as part of an expression: `Tensor((n, m * 4))` is solved for
//! `m`.
//!
//! Such a dim is `a * m + rest`, where the rest holds numbers and variables that are bound elsewhere. It gets a name of
//! its own, `m_times_4`, and `m` is its quotient everywhere in the function. That there is a solution is stated of the
//! dim: a divisor, a bound, or a condition of a signature. A MatchCast becomes two: the first binds the name, the second
//! wants `m_times_4 // 4 * 4`. So binding, proving and checking know nothing new; criterion 5 of the specification alone
//! would refuse such dims.

use super::{constraints, show, signature, vars};
use crate::attrs::{AttrValue, Attrs, CAST_DIMS, SHAPE_CONSTRAINTS, SIGNATURE, SOLVABLE, SOLVED_DIMS, VAR_DIVISOR};
use crate::module::{Func, IRModule};
use crate::op::{Answer, ShapeFacts};
use crate::prim::{BinOp, PrimExpr, PrimKind, Var};
use crate::relax::*;
use crate::sym::Facts;
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
#[derive(Clone)]
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

    /// What the dim is when it has a solution, and is not otherwise: `factor * max(value, 0) + rest`.
    fn wanted(&self, map: &HashMap<Var, PrimExpr>) -> PrimExpr {
        let value = self.value(map);
        let value = if self.factor > 0 && self.rest.as_int() == Some(0) { value } else { value.max(0) };
        value * PrimExpr::int(self.var.dtype(), self.factor) + self.rest.substitute(map)
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

/// Dims that can be solved, each for a variable that is not `known` and that nothing else in `infos` binds.
fn find(infos: &[&StructInfo], mut known: HashSet<Var>, taken: &dyn Fn(&str) -> bool) -> Vec<Solved> {
    known.extend(vars::lone_vars(infos.iter().copied()).into_iter().map(|(v, _)| v));
    let mut solved: Vec<Solved> = vec![];
    loop {
        let before = solved.len();
        for s in infos {
            vars::each_binding_dim(s, &mut |d, is_dim| {
                if !is_dim || d.as_var().is_some() || d.as_int().is_some() {
                    return;
                }
                let open: Vec<Var> = d.vars().into_iter().filter(|v| !known.contains(v)).collect();
                let [v] = &open[..] else { return };
                let Some((factor, rest)) = linear(d, v).filter(|(a, _)| *a != 0 && *a != i64::MIN) else { return };
                let taken = |n: &str| {
                    known.iter().any(|v| v.name() == n) || solved.iter().any(|s| s.own.name() == n) || taken(n)
                };
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

/// Which dim of a cast in `f` has no solution, when this is why `got` is never `want`.
pub fn unsolvable(f: &Function, got: &StructInfo, want: &StructInfo, facts: &mut Facts) -> Option<String> {
    let (mut have, mut wanted) = (vec![], vec![]);
    vars::each_binding_dim(got, &mut |d, _| have.push(d));
    vars::each_binding_dim(want, &mut |d, _| wanted.push(d));
    have.into_iter().zip(wanted).filter(|(g, w)| g != w).find_map(|(g, w)| {
        let text = g.as_var().and_then(|v| constraints::written(f, v.name()))?;
        let no = facts.equal(g, w) == Answer::No;
        no.then(|| format!("{text} = {} has no solution", show::dim(&facts.simplify(g))))
    })
}

/// Is there such a binding, those of branches and local functions included?
fn any_binding(s: &SeqExpr, is: &dyn Fn(&Binding) -> bool) -> bool {
    let within = |e: &Expr| match e.kind() {
        ExprKind::Seq(s) => any_binding(s, is),
        ExprKind::Function(f) => any_binding(&f.body, is),
        ExprKind::If { then, otherwise, .. } => any_binding(then, is) || any_binding(otherwise, is),
        _ => false,
    };
    let one = |b: &Binding| is(b) || matches!(&b.value, BindingValue::Expr(e) if within(e));
    s.blocks.iter().flat_map(|b| &b.bindings).any(one) || within(&s.body)
}

/// Does a dim hold a variable that does not stand alone?
fn states_parts(s: &StructInfo) -> bool {
    let mut found = false;
    vars::each_binding_dim(s, &mut |d, is_dim| found |= is_dim && d.as_var().is_none() && d.as_int().is_none());
    found
}

fn function(f: &Function) -> Option<Function> {
    let infos: Vec<&StructInfo> = f.params.iter().filter_map(|p| p.annotation.as_ref()).collect();
    let signature = find(&infos, HashSet::new(), &|_| false);
    let cast =
        |b: &Binding| matches!(&b.value, BindingValue::MatchCast { struct_info, .. } if states_parts(struct_info));
    if signature.is_empty() && !any_binding(&f.body, &cast) {
        return None;
    }
    let mut map = HashMap::new();
    for s in &signature {
        let value = s.value(&map);
        map.insert(s.var.clone(), value);
    }
    let mut s = Solve { solved: signature.clone(), map: map.clone(), scope: HashSet::new(), casts: vec![] };
    let new = s.function(f);
    if signature.is_empty() && s.casts.is_empty() {
        return None;
    }
    let mut attrs = Stated { attrs: f.attrs.clone() };
    if !signature.is_empty() {
        attrs = Stated { attrs: s.attrs(&f.attrs) };
        attrs.constraints(f, &signature, &map);
        let text = show::info(&StructInfo::Func(Arc::new(signature::of_function(f))));
        attrs.add(SOLVED_DIMS, SIGNATURE, AttrValue::Str(text));
    }
    for one in &signature {
        attrs.solvable(one, &map);
        attrs.bounds(one, &map);
    }
    for one in signature.iter().chain(s.casts.iter().map(|c| &c.solved)) {
        attrs.add(SOLVED_DIMS, one.own.name(), AttrValue::Str(show::dim(&one.dim)));
    }
    for one in &s.casts {
        attrs.add(CAST_DIMS, &show::dim(&one.wanted), AttrValue::Str(show::dim(&one.solved.dim)));
    }
    Some(Function { attrs: attrs.attrs, ..new })
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
    fn constraints(&mut self, f: &Function, solved: &[Solved], map: &HashMap<Var, PrimExpr>) {
        let infos = f.params.iter().filter_map(|p| p.annotation.as_ref());
        let vars: Vec<Var> =
            vars::lone_vars(infos).into_iter().map(|(v, _)| v).chain(solved.iter().map(|s| s.var.clone())).collect();
        let texts: Vec<AttrValue> = match self.attrs.get(SHAPE_CONSTRAINTS) {
            Some(AttrValue::List(l)) => l.clone(),
            Some(one) => vec![one.clone()],
            None => return,
        };
        self.attrs.set(SHAPE_CONSTRAINTS, AttrValue::List(vec![]));
        let lookup = |name: &str| vars.iter().find(|v| v.name() == name).map(Var::expr);
        for t in texts {
            match t.as_str().map(|t| crate::prim::text::condition(t, &lookup)) {
                Some(Ok(c)) => {
                    let now = c.substitute(map);
                    if now != c {
                        self.add(SOLVED_DIMS, &show::dim(&now), t.clone());
                    }
                    self.constrain(&now);
                }
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

struct Solve {
    /// Of the signature, and of the casts in scope.
    solved: Vec<Solved>,
    map: HashMap<Var, PrimExpr>,
    /// Shape variables that are bound.
    scope: HashSet<Var>,
    /// Every dim of a cast that was solved.
    casts: Vec<Wanted>,
}

/// A dim of a cast, and what it must be.
struct Wanted {
    solved: Solved,
    wanted: PrimExpr,
}

impl Solve {
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

    fn function(&mut self, f: &Function) -> Function {
        let param = |p: &Param| Param { var: p.var.clone(), annotation: p.annotation.as_ref().map(|a| self.info(a)) };
        let params: Vec<Param> = f.params.iter().map(param).collect();
        let ret = f.ret.as_ref().map(|r| self.info(r));
        let outer = self.scope.clone();
        let own = vars::lone_vars(f.params.iter().chain(&params).filter_map(|p| p.annotation.as_ref()));
        self.scope.extend(own.into_iter().map(|(v, _)| v));
        let body = self.seq(&f.body);
        self.scope = outer;
        Function { params, ret, body, ..f.clone() }
    }

    fn seq(&mut self, s: &SeqExpr) -> Arc<SeqExpr> {
        let outer = (self.solved.len(), self.map.clone(), self.scope.clone());
        let mut blocks = Vec::with_capacity(s.blocks.len());
        for b in &s.blocks {
            let mut bindings = Vec::with_capacity(b.bindings.len());
            for b in &b.bindings {
                let value = match &b.value {
                    BindingValue::Expr(e) => BindingValue::Expr(self.expr(e)),
                    BindingValue::MatchCast { value, struct_info } => {
                        let value = self.expr(value);
                        self.cast(b, value, struct_info, &mut bindings)
                    }
                };
                // What the annotation of a cast names is bound by the cast.
                let annotation = b.annotation.as_ref().map(|a| self.info(a));
                bindings.push(Binding { annotation, value, ..b.clone() });
            }
            blocks.push(BindingBlock { bindings, ..b.clone() });
        }
        let body = self.expr(&s.body);
        self.solved.truncate(outer.0);
        (self.map, self.scope) = (outer.1, outer.2);
        Arc::new(SeqExpr { blocks, body })
    }

    /// A MatchCast: where dims are to be solved, one that binds their names goes before it.
    fn cast(&mut self, b: &Binding, value: Expr, info: &StructInfo, out: &mut Vec<Binding>) -> BindingValue {
        let all = self.casts.iter().map(|c| &c.solved).chain(&self.solved);
        let taken = |n: &str| all.clone().any(|s| s.own.name() == n);
        let known = || self.scope.iter().chain(self.map.keys()).cloned().collect();
        let new = if states_parts(info) { find(&[info], known(), &taken) } else { vec![] };
        if new.is_empty() {
            let info = self.info(info);
            self.scope.extend(vars::lone_vars([&info]).into_iter().map(|(v, _)| v));
            return BindingValue::MatchCast { value, struct_info: info };
        }
        let first = self.casts.len();
        for s in new {
            let v = s.value(&self.map);
            self.casts.push(Wanted { solved: s.clone(), wanted: s.wanted(&self.map) });
            self.map.insert(s.var.clone(), v);
            self.solved.push(s);
        }
        let names = self.info(info);
        self.scope.extend(vars::lone_vars([&names]).into_iter().map(|(v, _)| v));
        let named = RVar::new(b.var.name(), b.var.is_dataflow(), b.var.span());
        let at = value.span();
        let cast = BindingValue::MatchCast { value, struct_info: names };
        out.push(Binding { var: named.clone(), annotation: None, value: cast, span: b.span });
        let struct_info =
            vars::map_dims(info, &mut |d| match self.casts[first..].iter().find(|c| c.solved.dim == *d) {
                Some(c) => c.wanted.clone(),
                None => self.dim(d),
            });
        BindingValue::MatchCast { value: Expr::new(ExprKind::Var(named), at), struct_info }
    }

    fn exprs(&mut self, list: &[Expr]) -> Vec<Expr> {
        list.iter().map(|e| self.expr(e)).collect()
    }

    fn expr(&mut self, e: &Expr) -> Expr {
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
