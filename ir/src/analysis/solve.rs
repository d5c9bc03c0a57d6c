//! Dims of a signature or a MatchCast that state a variable as part of an expression: `Tensor((n, m * 4))` is solved for
//! `m`.
//!
//! Such a dim is `a * m + rest`, where the rest holds numbers and variables that are bound elsewhere. It gets a name of
//! its own, `m_times_4`, and `m` is its quotient everywhere in the function. That there is a solution is stated of the
//! dim: a divisor, a bound, or a condition of a signature. A MatchCast becomes two: the first binds the name, the second
//! wants `m_times_4 // 4 * 4`. The signature of a local function binds the name, and casts of its parameters at the head of
//! its body want the same: closures go where no call knows their attributes. So binding, proving and checking know nothing
//! new; criterion 5 of the specification alone would refuse such dims.

use super::{constraints, show, signature, vars, Env};
use crate::attrs::{
    AttrValue, Attrs, CAST_DIMS, SHAPE_CONSTRAINTS, SIGNATURE, SOLVABLE, SOLVED_DIMS, SOLVED_VARS, VAR_DIVISOR,
};
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

/// A dim that was solved: `dim = factor * by * var + rest`.
#[derive(Clone)]
struct Solved {
    var: Var,
    /// The name that the dim gets.
    own: Var,
    dim: PrimExpr,
    factor: i64,
    /// Of variables that are bound elsewhere; at least 1 where a signature has a solution.
    by: Option<PrimExpr>,
    /// Of a cast or a local function: no condition goes before it, so `by` may be 0 where it divides.
    cast: bool,
    rest: PrimExpr,
}

impl Solved {
    /// `(own - rest) // factor`
    fn value(&self, map: &HashMap<Var, PrimExpr>) -> PrimExpr {
        let rest = self.rest.substitute(map);
        let difference = if self.factor > 0 { self.own.expr() - rest } else { rest - self.own.expr() };
        match (&self.by, self.factor.abs()) {
            (None, 1) => difference,
            _ => difference.floor_div(self.divisor(map)),
        }
    }

    /// What stands for the variable, as messages show it.
    fn value_text(&self, map: &HashMap<Var, PrimExpr>) -> String {
        show::dim(&self.value(map))
    }

    /// `|factor| * by`
    fn divisor(&self, map: &HashMap<Var, PrimExpr>) -> PrimExpr {
        let k = PrimExpr::int(self.var.dtype(), self.factor.abs());
        match &self.by {
            Some(by) if self.cast => by.substitute(map).max(1) * k,
            Some(by) => by.substitute(map) * k,
            None => k,
        }
    }

    /// What the dim is when it has a solution, and is not otherwise: `factor * max(value, 0) + rest`.
    fn wanted(&self, map: &HashMap<Var, PrimExpr>) -> PrimExpr {
        let value = self.value(map);
        let value = if self.factor > 0 && self.rest.as_int() == Some(0) { value } else { value.max(0) };
        let value = self.by.as_ref().map_or(value.clone(), |by| value * by.substitute(map));
        value * PrimExpr::int(self.var.dtype(), self.factor) + self.rest.substitute(map)
    }
}

/// `e` as `a * by * v + rest`: the number, what `by` holds of other variables, and the rest.
fn linear(e: &PrimExpr, v: &Var) -> Option<(i64, Option<PrimExpr>, PrimExpr)> {
    if !e.uses(v) {
        return Some((0, None, e.clone()));
    }
    match e.kind() {
        PrimKind::Var(_) => Some((1, None, PrimExpr::int(e.dtype(), 0))),
        PrimKind::Binary(op @ (BinOp::Add | BinOp::Sub), x, y) => {
            let ((a, s, p), (b, t, q)) = (linear(x, v)?, linear(y, v)?);
            let by = match (a, b) {
                (_, 0) => s,
                (0, _) => t,
                _ => (s == t).then_some(s)?,
            };
            match op {
                BinOp::Add => Some((a.checked_add(b)?, by, p + q)),
                _ => Some((a.checked_sub(b)?, by, p - q)),
            }
        }
        PrimKind::Binary(BinOp::Mul, x, y) => {
            let (x, c) = if x.uses(v) { (x, y) } else { (y, x) };
            let (a, by, p) = linear(x, v)?;
            let rest = if p.as_int() == Some(0) { p } else { p * c.clone() };
            match (c.as_int(), by) {
                (Some(k), by) => Some((a.checked_mul(k)?, by, rest)),
                (None, _) if c.uses(v) => None,
                (None, Some(by)) => Some((a, Some(by * c.clone()), rest)),
                (None, None) => Some((a, Some(c.clone()), rest)),
            }
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

/// Dims that can be solved, each for a variable that is not `known` and that nothing else in `infos` binds. `cast`: what
/// says that there is a solution comes with the dim, see [`Solved::wanted`].
fn find(infos: &[&StructInfo], mut known: HashSet<Var>, cast: bool, taken: &dyn Fn(&str) -> bool) -> Vec<Solved> {
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
                let Some((factor, by, rest)) = linear(d, v).filter(|(a, ..)| *a != 0 && *a != i64::MIN) else { return };
                let taken = |n: &str| {
                    known.iter().any(|v| v.name() == n) || solved.iter().any(|s| s.own.name() == n) || taken(n)
                };
                let own = Var::with_span(name(d, &taken), v.dtype(), d.span());
                known.insert(v.clone());
                solved.push(Solved { var: v.clone(), own, dim: d.clone(), factor, by, cast, rest });
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

/// Why a call of the local function `f` always fails: a dim of an argument has no solution. With the argument's number.
/// `global` is the function around it.
pub fn unsolvable_call(global: &Function, f: &Function, args: &[StructInfo], env: &mut Env) -> Option<(usize, String)> {
    let head = f.body.blocks.first().filter(|b| !b.dataflow)?;
    let own: Vec<(Var, bool)> = vars::lone_vars(annotations(f));
    let own: HashSet<Var> = own.into_iter().map(|(v, _)| v).filter(|v| !env.scope.contains(v)).collect();
    let mut bound = HashMap::new();
    for (p, a) in f.params.iter().zip(args) {
        vars::map_vars(p.annotation.as_ref().unwrap_or(&StructInfo::Object), a, &own, &mut bound);
    }
    let casts = constraints::solved_casts(global);
    for b in &head.bindings {
        let BindingValue::MatchCast { value, struct_info } = &b.value else { return None };
        let i = f.params.iter().position(|p| Some(&p.var) == value.as_var())?;
        let (mut have, mut wanted) = (vec![], vec![]);
        vars::each_binding_dim(args.get(i)?, &mut |d, _| have.push(d));
        vars::each_binding_dim(struct_info, &mut |d, _| wanted.push(d));
        for (axis, (g, w)) in have.into_iter().zip(wanted).enumerate() {
            let (text, written) = (show::dim(w), constraints::as_written(&casts, &show::dim(w)));
            if text != written && env.facts.equal(g, &w.substitute(&bound)) == Answer::No {
                let what = format!("dim {axis} of argument {} of `{}`", i + 1, f.name);
                return Some((i, format!("{what}: {written} = {} has no solution", show::dim(&env.facts.simplify(g)))));
            }
        }
    }
    None
}

/// Why a dim of a signature or a cast does not tell these variables, of which nothing else is known.
pub fn why_not(dim: &PrimExpr, unknown: &[Var]) -> Option<String> {
    let text = show::dim(dim);
    match unknown {
        [v] => linear(dim, v).is_none().then(|| {
            format!("`{text}` is not solved for {}: a dim is solved where it is a number, or a known dim, times a variable \
                     plus what is known", v.name())
        }),
        several => {
            let names: Vec<&str> = several.iter().map(Var::name).collect();
            Some(format!("`{text}` holds {} unknowns, {}: one size does not tell them apart", names.len(), names.join(" and ")))
        }
    }
}

/// Does a cast or a local function state dims that may have to be solved, in branches and local functions too?
fn any_part(s: &SeqExpr) -> bool {
    let within = |e: &Expr| match e.kind() {
        ExprKind::Seq(s) => any_part(s),
        ExprKind::Function(f) => annotations(f).into_iter().any(states_parts) || any_part(&f.body),
        ExprKind::If { then, otherwise, .. } => any_part(then) || any_part(otherwise),
        _ => false,
    };
    let one = |b: &Binding| match &b.value {
        BindingValue::MatchCast { struct_info, .. } => states_parts(struct_info),
        BindingValue::Expr(e) => within(e),
    };
    s.blocks.iter().flat_map(|b| &b.bindings).any(one) || within(&s.body)
}

fn annotations(f: &Function) -> Vec<&StructInfo> {
    f.params.iter().filter_map(|p| p.annotation.as_ref()).collect()
}

/// Does a dim hold a variable that does not stand alone?
fn states_parts(s: &StructInfo) -> bool {
    let mut found = false;
    vars::each_binding_dim(s, &mut |d, is_dim| found |= is_dim && d.as_var().is_none() && d.as_int().is_none());
    found
}

fn function(f: &Function) -> Option<Function> {
    let signature = find(&annotations(f), HashSet::new(), false, &|_| false);
    if signature.is_empty() && !any_part(&f.body) {
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
        attrs.signature(f);
    }
    for one in &signature {
        attrs.add(SOLVED_VARS, one.own.name(), AttrValue::Str(one.var.name().to_string()));
        attrs.solvable(one, &map);
        attrs.bounds(one, &map);
    }
    for one in signature.iter().chain(s.casts.iter().map(|c| &c.solved)) {
        attrs.add(SOLVED_DIMS, one.own.name(), AttrValue::Str(show::dim(&one.dim)));
        attrs.add(SOLVED_DIMS, &one.value_text(&map), AttrValue::Str(one.var.name().to_string()));
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

    /// The signature as it was.
    fn signature(&mut self, f: &Function) {
        let text = show::info(&StructInfo::Func(Arc::new(signature::of_function(f))));
        self.add(SOLVED_DIMS, SIGNATURE, AttrValue::Str(text));
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
        if let Some(by) = &s.by {
            conditions.push(by.substitute(map).ge(1));
        }
        match rest.as_int() {
            _ if s.by.is_some() => conditions.push((s.own.expr() - rest.clone()).floor_mod(s.divisor(map)).eq(0)),
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

    /// What the user states of a variable.
    fn stated(&self, key: &str, name: &str) -> Option<i64> {
        match self.attrs.get(key) {
            Some(AttrValue::Dict(d)) => d.iter().find(|(n, _)| n == name).and_then(|(_, x)| x.as_int()),
            _ => None,
        }
    }

    /// Bounds and divisors of the variable.
    fn bounds(&mut self, s: &Solved, map: &HashMap<Var, PrimExpr>) {
        let value = s.value(map);
        let number = s.rest.as_int().filter(|_| s.by.is_none());
        if number.is_none() && self.stated("tir_var_upper_bound", s.own.name()).is_none() {
            let mut facts = Facts::new();
            for v in s.dim.vars() {
                let [lower, upper] = ["tir_var_lower_bound", "tir_var_upper_bound"].map(|k| self.stated(k, v.name()));
                facts.declare_bounds(&v, lower, upper);
            }
            if let Some(most) = facts.interval(&s.dim).1 {
                self.add("tir_var_upper_bound", s.own.name(), AttrValue::Int(most));
            }
        }
        for key in ["tir_var_lower_bound", "tir_var_upper_bound", VAR_DIVISOR] {
            let Some(x) = self.stated(key, s.var.name()) else { continue };
            let dim = number.and_then(|b| s.factor.checked_mul(x)?.checked_add(b));
            match (key, dim) {
                // One divisor says both: that there is a solution, and what the solution is a multiple of.
                (VAR_DIVISOR, Some(k)) if number == Some(0) && k != 0 => {
                    if let Some(AttrValue::Dict(d)) = self.attrs.get(key) {
                        let others = d.iter().filter(|(n, _)| n != s.own.name()).cloned().collect();
                        self.attrs.set(key, AttrValue::Dict(others));
                    }
                    self.add(key, s.own.name(), AttrValue::Int(k.abs()));
                }
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

    /// The dims of `infos` that are to be solved, as dims with names from here on; how many casts there were before.
    fn solve(&mut self, infos: &[&StructInfo]) -> usize {
        let all = self.casts.iter().map(|c| &c.solved).chain(&self.solved);
        let taken = |n: &str| all.clone().any(|s| s.own.name() == n);
        let known = || self.scope.iter().chain(self.map.keys()).cloned().collect();
        let parts = infos.iter().any(|s| states_parts(s));
        let new = if parts { find(infos, known(), true, &taken) } else { vec![] };
        let before = self.casts.len();
        for s in new {
            let v = s.value(&self.map);
            self.casts.push(Wanted { solved: s.clone(), wanted: s.wanted(&self.map) });
            self.map.insert(s.var.clone(), v);
            self.solved.push(s);
        }
        before
    }

    /// What a cast wants of a value: that dims solved since `first` have a solution.
    fn wanted(&self, info: &StructInfo, first: usize) -> StructInfo {
        vars::map_binding_dims(&self.info(info), &mut |d| match self.casts[first..]
            .iter()
            .find(|c| Some(&c.solved.own) == d.as_var())
        {
            Some(c) => c.wanted.clone(),
            None => d.clone(),
        })
    }

    /// A local function: its annotations are MatchCasts (relax_spec.md, derivation 8.1).
    fn local(&mut self, f: &Function) -> Function {
        let outer = (self.solved.len(), self.map.clone());
        let first = self.solve(&annotations(f));
        let mut bindings = vec![];
        if first < self.casts.len() {
            for p in &f.params {
                let Some(a) = &p.annotation else { continue };
                let struct_info = self.wanted(a, first);
                if struct_info != self.info(a) {
                    let value = BindingValue::MatchCast { value: p.var.expr(), struct_info };
                    let var = RVar::new(p.var.name(), false, p.var.span());
                    bindings.push(Binding { var, annotation: None, value, span: p.var.span() });
                }
            }
        }
        let mut new = self.function(f);
        self.solved.truncate(outer.0);
        self.map = outer.1;
        if !bindings.is_empty() {
            let mut attrs = Stated { attrs: std::mem::take(&mut new.attrs) };
            attrs.signature(f);
            new.attrs = attrs.attrs;
            let block = BindingBlock { dataflow: false, bindings, span: f.signature_span };
            let blocks = [block].into_iter().chain(new.body.blocks.iter().cloned()).collect();
            new.body = Arc::new(SeqExpr { blocks, body: new.body.body.clone() });
        }
        new
    }

    /// A MatchCast: where dims are to be solved, one that binds their names goes before it.
    fn cast(&mut self, b: &Binding, value: Expr, info: &StructInfo, out: &mut Vec<Binding>) -> BindingValue {
        let first = self.solve(&[info]);
        let names = self.info(info);
        self.scope.extend(vars::lone_vars([&names]).into_iter().map(|(v, _)| v));
        if first == self.casts.len() {
            return BindingValue::MatchCast { value, struct_info: names };
        }
        let struct_info = self.wanted(info, first);
        let named = RVar::new(b.var.name(), b.var.is_dataflow(), b.var.span());
        let at = value.span();
        let cast = BindingValue::MatchCast { value, struct_info: names };
        out.push(Binding { var: named.clone(), annotation: None, value: cast, span: b.span });
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
            ExprKind::Function(f) => ExprKind::Function(Arc::new(self.local(f))),
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
            ExprKind::ExternFunc(name, Some(f)) => match self.info(&StructInfo::Func(f.clone())) {
                StructInfo::Func(f) => ExprKind::ExternFunc(name.clone(), Some(f)),
                _ => return e.clone(),
            },
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
