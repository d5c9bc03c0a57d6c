//! How two struct infos relate: compatibility with its three answers, meet and join.
//!
//! Sources: relax_spec.md, "Checking Compatibility", "Unification", "Rules for Subtyping". Where the pseudo-code slips,
//! the sound reading is taken: the join of anything with an object is an object, the join of shapes of unknown rank
//! has unknown rank.

use super::{show, vars};
use crate::op::{Answer, ShapeFacts};
use crate::prim::{BinOp, PrimExpr, Var};
use crate::relax::{FuncInfo, StructInfo, TensorInfo, TensorShape};
use crate::sym::Facts;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The outcome of asking whether a value may stand where `want` is wanted.
#[derive(Clone, Debug, Default)]
pub struct Relation {
    /// Why it can never be; the first reason found.
    pub refused: Option<String>,
    /// The kind, rank or dtype of the value is not known well enough: only a look at the value itself decides.
    pub structural: Option<String>,
    /// Undecided equalities of dims, `got == wanted`, each with what it says.
    pub conditions: Vec<(PrimExpr, String)>,
}

impl Relation {
    pub fn answer(&self) -> Answer {
        match (&self.refused, &self.structural, self.conditions.is_empty()) {
            (Some(_), ..) => Answer::No,
            (None, None, true) => Answer::Yes,
            _ => Answer::Unknown,
        }
    }
    fn refuse(&mut self, why: String) {
        self.refused.get_or_insert(why);
    }
    fn look(&mut self, why: String) {
        self.structural.get_or_insert(why);
    }
}

/// May a value of struct info `got` stand where `want` is wanted? `what` names the value in reasons.
pub fn relate(got: &StructInfo, want: &StructInfo, what: &str, facts: &mut Facts) -> Relation {
    let mut r = Relation::default();
    visit(got, want, what, facts, &mut r);
    r
}

/// As [`relate`], of a value that is looked at: a function may take more than its type says and may be pure though its type
/// does not promise it ("Rules for Subtyping", 6). Its closure knows.
pub fn relate_cast(got: &StructInfo, want: &StructInfo, what: &str, facts: &mut Facts) -> Relation {
    let r = relate(got, want, what, facts);
    if r.refused.is_none() || relate(&widest(got), want, what, facts).refused.is_some() {
        return r;
    }
    let structural = Some(format!("what {what} takes, and whether it is pure, is not known"));
    Relation { structural, ..Relation::default() }
}

/// What the functions of a value take at most.
fn widest(s: &StructInfo) -> StructInfo {
    match s {
        StructInfo::Tuple(fields) => StructInfo::Tuple(fields.iter().map(widest).collect()),
        StructInfo::Func(f) => {
            let params = f.params.as_ref().map(|p| vec![StructInfo::Object; p.len()]);
            StructInfo::Func(Arc::new(FuncInfo { params, pure: true, ..(**f).clone() }))
        }
        _ => s.clone(),
    }
}

fn kind(s: &StructInfo) -> &'static str {
    match s {
        StructInfo::Tensor(_) => "a tensor",
        StructInfo::Shape { .. } => "a shape",
        StructInfo::Prim { .. } => "a scalar",
        StructInfo::Tuple(_) => "a tuple",
        StructInfo::Func(_) => "a function",
        StructInfo::Object => "any object",
        StructInfo::Str => "a string",
        StructInfo::DType => "a dtype",
    }
}

fn visit(got: &StructInfo, want: &StructInfo, what: &str, facts: &mut Facts, r: &mut Relation) {
    match (got, want) {
        (_, StructInfo::Object) => {}
        (StructInfo::Object, _) => r.look(format!("{what} may be any object, {} is wanted", kind(want))),
        (StructInfo::Tensor(g), StructInfo::Tensor(w)) => tensors(g, w, what, facts, r),
        (StructInfo::Shape { values: gv, ndim: gn }, StructInfo::Shape { values: wv, ndim: wn }) => {
            ranks(*gn, *wn, what, r);
            match (gv, wv) {
                (Some(g), Some(w)) if g.len() == w.len() => dims(g, w, what, facts, r),
                (None, Some(_)) => r.look(format!("the dims of {what} are not known")),
                _ => {}
            }
        }
        (StructInfo::Prim { dtype: gd, value: gv }, StructInfo::Prim { dtype: wd, value: wv }) => {
            if gd != wd {
                r.refuse(format!("{what} has dtype {gd}, {wd} is wanted"));
                return;
            }
            match (gv, wv) {
                (Some(g), Some(w)) => equal(g, w, || format!("the value of {what}"), facts, r),
                (None, Some(_)) => r.look(format!("the value of {what} is not known")),
                _ => {}
            }
        }
        (StructInfo::Tuple(g), StructInfo::Tuple(w)) => {
            if g.len() != w.len() {
                r.refuse(format!("{what} has {} fields, {} are wanted", g.len(), w.len()));
                return;
            }
            for (i, (g, w)) in g.iter().zip(w).enumerate() {
                visit(g, w, &format!("field {i} of {what}"), facts, r);
            }
        }
        (StructInfo::Func(g), StructInfo::Func(w)) => functions(g, w, what, facts, r),
        (StructInfo::Str, StructInfo::Str) | (StructInfo::DType, StructInfo::DType) => {}
        _ => r.refuse(format!("{what} is {}, {} is wanted", kind(got), kind(want))),
    }
}

fn ranks(got: Option<usize>, want: Option<usize>, what: &str, r: &mut Relation) {
    match (got, want) {
        (Some(g), Some(w)) if g != w => r.refuse(format!("{what} has rank {g}, rank {w} is wanted")),
        (None, Some(w)) => r.look(format!("the rank of {what} is not known, rank {w} is wanted")),
        _ => {}
    }
}

fn tensors(g: &TensorInfo, w: &TensorInfo, what: &str, facts: &mut Facts, r: &mut Relation) {
    match (g.dtype, w.dtype) {
        (Some(a), Some(b)) if a != b => r.refuse(format!("{what} has dtype {a}, {b} is wanted")),
        (None, Some(b)) => r.look(format!("the dtype of {what} is not known, {b} is wanted")),
        _ => {}
    }
    ranks(g.ndim, w.ndim, what, r);
    match (&g.shape, &w.shape) {
        (_, None) => {}
        (Some(TensorShape::Dims(a)), Some(TensorShape::Dims(b))) => {
            if a.len() == b.len() {
                dims(a, b, what, facts, r);
            }
        }
        (Some(TensorShape::Var(a)), Some(TensorShape::Var(b))) if a == b => {}
        _ => r.look(format!("the shape of {what} is not known")),
    }
}

fn dims(got: &[PrimExpr], want: &[PrimExpr], what: &str, facts: &mut Facts, r: &mut Relation) {
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        equal(g, w, || format!("dim {i} of {what}"), facts, r);
    }
}

fn equal(got: &PrimExpr, want: &PrimExpr, what: impl Fn() -> String, facts: &mut Facts, r: &mut Relation) {
    if got == want {
        return;
    }
    if got.dtype().is_float() || want.dtype().is_float() {
        return r.look(format!("{} is not known", what()));
    }
    match facts.equal(got, want) {
        Answer::Yes => facts.note_proved(&PrimExpr::raw_binary(BinOp::Eq, got.clone(), want.clone().cast(got.dtype()))),
        Answer::No => r.refuse(format!("{} is {}, {} is wanted", what(), show::dim(got), show::dim(want))),
        Answer::Unknown => {
            let cond = PrimExpr::raw_binary(BinOp::Eq, got.clone(), want.clone().cast(got.dtype()));
            r.conditions.push((cond, format!("{} must be {}", what(), show::dim(want))));
        }
    }
}

/// Parameters go the other way round. What cannot be decided of a function's dims is checked when it is called.
fn functions(g: &FuncInfo, w: &FuncInfo, what: &str, facts: &mut Facts, r: &mut Relation) {
    if w.pure && !g.pure {
        r.refuse(format!("{what} is not pure, a pure function is wanted"));
    }
    match (&g.params, &w.params) {
        (None, None) => {
            if g.derive != w.derive && w.derive.as_deref() != Some("empty") {
                r.look(format!("{what} is another packed function"));
            }
        }
        (Some(gp), Some(wp)) => {
            if gp.len() != wp.len() {
                r.refuse(format!("{what} takes {} parameters, {} are wanted", gp.len(), wp.len()));
                return;
            }
            let inner = signatures((g, gp), (w, wp), what, facts, &|_| false);
            if let Some(why) = inner.refused {
                r.refuse(why);
            } else if let Some(why) = inner.structural {
                r.look(why);
            } else if let Some((_, why)) = inner.conditions.into_iter().next() {
                r.look(why);
            }
        }
        (None, Some(_)) => r.refuse(format!("{what} is a packed function, a closure is wanted")),
        (Some(_), None) => r.refuse(format!("{what} is a closure, a packed function is wanted")),
    }
}

/// The parameters, as many on both sides, and the results. Variables for which `fixed` holds have values, the other ones
/// of `g` are bound by its parameters.
fn signatures(
    (g, gp): (&FuncInfo, &[StructInfo]),
    (w, wp): (&FuncInfo, &[StructInfo]),
    what: &str,
    facts: &mut Facts,
    fixed: &dyn Fn(&Var) -> bool,
) -> Relation {
    let lone = vars::lone_vars(gp).into_iter().map(|(v, _)| v);
    let bindable: HashSet<_> = lone.filter(|v| !fixed(v)).collect();
    let mut map = HashMap::new();
    for (p, q) in gp.iter().zip(wp) {
        vars::map_vars(p, q, &bindable, &mut map);
    }
    let mut inner = Relation::default();
    for (i, (p, q)) in gp.iter().zip(wp).enumerate() {
        visit(q, &vars::substitute(p, &map), &format!("parameter {} of {what}", i + 1), facts, &mut inner);
    }
    visit(&vars::substitute(&g.ret, &map), &w.ret, &format!("the result of {what}"), facts, &mut inner);
    inner
}

/// A cast of a function: what its signature says of captured shape variables, those for which `fixed` holds, and the
/// wanted one contradicts or leaves open. What each call of the function binds is checked when it is called.
pub fn captured(
    got: &StructInfo,
    want: &StructInfo,
    what: &str,
    facts: &mut Facts,
    fixed: &dyn Fn(&Var) -> bool,
) -> Relation {
    let mut r = Relation::default();
    match (got, want) {
        (StructInfo::Tuple(g), StructInfo::Tuple(w)) if g.len() == w.len() => {
            for (i, (g, w)) in g.iter().zip(w).enumerate() {
                let field = captured(g, w, &format!("{what}, field {i}"), facts, fixed);
                r.refused = r.refused.or(field.refused);
                r.conditions.extend(field.conditions);
            }
        }
        (StructInfo::Func(g), StructInfo::Func(w)) => {
            if let (Some(gp), Some(wp)) = (&g.params, &w.params) {
                if gp.len() == wp.len() {
                    r = signatures((g, gp), (w, wp), what, facts, fixed);
                    r.conditions.retain(|(c, _)| c.vars().iter().all(fixed));
                }
            }
        }
        _ => {}
    }
    r
}

/// What is known when both hold: the wanted names where both know a dim, unless the value's is a literal.
pub fn meet(got: &StructInfo, want: &StructInfo) -> StructInfo {
    both(got, want, true)
}

/// As [`meet`] for a MatchCast: a dim that the cast names keeps that name, which the cast may bind.
pub fn cast(got: &StructInfo, want: &StructInfo) -> StructInfo {
    both(got, want, false)
}

fn both(got: &StructInfo, want: &StructInfo, literals: bool) -> StructInfo {
    match (got, want) {
        (_, StructInfo::Object) => got.clone(),
        (StructInfo::Tensor(g), StructInfo::Tensor(w)) => {
            let shape = match (&g.shape, &w.shape) {
                (Some(TensorShape::Dims(a)), Some(TensorShape::Dims(b))) if a.len() == b.len() => {
                    Some(TensorShape::Dims(meet_dims(a, b, literals)))
                }
                (Some(TensorShape::Dims(_)), _) => g.shape.clone(),
                (a, b) => b.clone().or(a.clone()),
            };
            let ndim = match &shape {
                Some(TensorShape::Dims(d)) => Some(d.len()),
                _ => w.ndim.or(g.ndim),
            };
            StructInfo::Tensor(TensorInfo {
                shape,
                ndim,
                dtype: w.dtype.or(g.dtype),
                vdevice: w.vdevice.clone().or(g.vdevice.clone()),
            })
        }
        (StructInfo::Shape { values: Some(a), ndim }, StructInfo::Shape { values, .. }) => {
            let values = match values {
                Some(b) if a.len() == b.len() => meet_dims(a, b, literals),
                _ => a.clone(),
            };
            StructInfo::Shape { values: Some(values), ndim: *ndim }
        }
        (StructInfo::Shape { values: None, ndim }, StructInfo::Shape { values, ndim: wanted }) => {
            StructInfo::Shape { values: values.clone(), ndim: wanted.or(*ndim) }
        }
        (StructInfo::Prim { dtype, value: Some(a) }, StructInfo::Prim { value, .. }) => {
            let value = value.clone().filter(|_| !literals || a.as_int().is_none()).unwrap_or_else(|| a.clone());
            StructInfo::Prim { dtype: *dtype, value: Some(value) }
        }
        (StructInfo::Tuple(a), StructInfo::Tuple(b)) if a.len() == b.len() => {
            StructInfo::Tuple(a.iter().zip(b).map(|(a, b)| both(a, b, literals)).collect())
        }
        (StructInfo::Func(g), StructInfo::Func(w)) => StructInfo::Func(Arc::new(both_functions(g, w, literals))),
        _ => want.clone(),
    }
}

/// A function that is known as `g` and stated to be `w` takes what `w` says; its result is what both say. A call of it
/// checks its result.
fn both_functions(g: &FuncInfo, w: &FuncInfo, literals: bool) -> FuncInfo {
    let (Some(gp), Some(wp)) = (&g.params, &w.params) else { return g.clone() };
    if gp.len() != wp.len() {
        return g.clone();
    }
    let bindable: HashSet<_> = vars::lone_vars(gp).into_iter().map(|(v, _)| v).collect();
    let mut map = HashMap::new();
    for (p, q) in gp.iter().zip(wp) {
        vars::map_vars(p, q, &bindable, &mut map);
    }
    let open = |v: &crate::prim::Var| bindable.contains(v) && !map.contains_key(v);
    let mut ret = vars::substitute(&g.ret, &map);
    let mut known = true;
    vars::each_dim(&ret, &mut |d, _| known &= !d.vars().iter().any(open));
    // Dims that the parameters of `w` do not tell.
    if !known {
        ret = w.ret.clone();
    }
    FuncInfo { params: Some(wp.clone()), ret: both(&ret, &w.ret, literals), pure: g.pure || w.pure, derive: None }
}

fn meet_dims(got: &[PrimExpr], want: &[PrimExpr], literals: bool) -> Vec<PrimExpr> {
    let literal = |g: &PrimExpr| literals && g.as_int().is_some();
    got.iter().zip(want).map(|(g, w)| if literal(g) { g.clone() } else { w.clone() }).collect()
}

/// The least upper bound: what is known of a value that is one or the other (`unify_struct_info`).
pub fn join(a: &StructInfo, b: &StructInfo, facts: &mut Facts) -> StructInfo {
    let same = |x: &[PrimExpr], y: &[PrimExpr], facts: &mut Facts| {
        x.len() == y.len() && x.iter().zip(y).all(|(x, y)| facts.equal(x, y) == Answer::Yes)
    };
    match (a, b) {
        (StructInfo::Tensor(x), StructInfo::Tensor(y)) => {
            let ndim = if x.ndim == y.ndim { x.ndim } else { None };
            let shape = match (&x.shape, &y.shape) {
                (Some(TensorShape::Dims(p)), Some(TensorShape::Dims(q))) if same(p, q, facts) => x.shape.clone(),
                (Some(TensorShape::Var(p)), Some(TensorShape::Var(q))) if p == q => x.shape.clone(),
                _ => None,
            };
            StructInfo::Tensor(TensorInfo {
                shape,
                ndim,
                dtype: if x.dtype == y.dtype { x.dtype } else { None },
                vdevice: if x.vdevice == y.vdevice { x.vdevice.clone() } else { None },
            })
        }
        (StructInfo::Shape { values: p, ndim: m }, StructInfo::Shape { values: q, ndim: n }) => {
            let values = match (p, q) {
                (Some(x), Some(y)) if same(x, y, facts) => p.clone(),
                _ => None,
            };
            StructInfo::Shape { values, ndim: if m == n { *m } else { None } }
        }
        (StructInfo::Prim { dtype: d, value: p }, StructInfo::Prim { dtype: e, value: q }) if d == e => {
            let value = match (p, q) {
                (Some(x), Some(y)) if x == y || d.is_int() && facts.equal(x, y) == Answer::Yes => p.clone(),
                _ => None,
            };
            StructInfo::Prim { dtype: *d, value }
        }
        (StructInfo::Tuple(x), StructInfo::Tuple(y)) if x.len() == y.len() => {
            StructInfo::Tuple(x.iter().zip(y).map(|(x, y)| join(x, y, facts)).collect())
        }
        (StructInfo::Func(f), StructInfo::Func(g)) => join_functions(f, g, facts),
        (StructInfo::Str, StructInfo::Str) => StructInfo::Str,
        (StructInfo::DType, StructInfo::DType) => StructInfo::DType,
        _ => StructInfo::Object,
    }
}

/// Two infos of branches, before they are joined: a dim that in one branch is known to be the other's is called that.
pub fn reconcile(a: &StructInfo, b: &StructInfo, in_a: &mut Facts, in_b: &mut Facts) -> (StructInfo, StructInfo) {
    let (mut of_a, mut of_b): (Vec<PrimExpr>, Vec<PrimExpr>) = (vec![], vec![]);
    vars::each_binding_dim(a, &mut |d, _| of_a.push(d.clone()));
    vars::each_binding_dim(b, &mut |d, _| of_b.push(d.clone()));
    if of_a.len() != of_b.len() || of_a == of_b {
        return (a.clone(), b.clone());
    }
    for (x, y) in of_a.iter_mut().zip(&mut of_b) {
        if x == y || !x.dtype().is_int() || !y.dtype().is_int() {
            continue;
        }
        if in_a.equal(x, y) == Answer::Yes {
            *x = y.clone();
        } else if in_b.equal(x, y) == Answer::Yes {
            *y = x.clone();
        }
    }
    let put = |s: &StructInfo, dims: Vec<PrimExpr>| {
        let mut dims = dims.into_iter();
        vars::map_binding_dims(s, &mut |d| dims.next().unwrap_or_else(|| d.clone()))
    };
    (put(a, of_a), put(b, of_b))
}

/// Functions join only where their parameters are the same.
fn join_functions(f: &Arc<FuncInfo>, g: &Arc<FuncInfo>, facts: &mut Facts) -> StructInfo {
    if f == g {
        return StructInfo::Func(f.clone());
    }
    match (&f.params, &g.params) {
        (None, None) => StructInfo::Func(Arc::new(FuncInfo {
            params: None,
            ret: StructInfo::Object,
            pure: f.pure && g.pure,
            derive: if f.derive == g.derive { f.derive.clone() } else { Some("empty".to_string()) },
        })),
        (Some(p), Some(q)) if p.len() == q.len() => {
            // The variables of the one may be dims of the other.
            for ((f, p), (g, q)) in [((f, p), (g, q)), ((g, q), (f, p))] {
                let bindable: HashSet<_> = vars::lone_vars(p).into_iter().map(|(v, _)| v).collect();
                let mut map = HashMap::new();
                for (x, y) in p.iter().zip(q) {
                    vars::map_vars(x, y, &bindable, &mut map);
                }
                if p.iter().zip(q).all(|(x, y)| same_info(&vars::substitute(x, &map), y, facts)) {
                    let ret = join(&vars::substitute(&f.ret, &map), &g.ret, facts);
                    let params = Some(q.clone());
                    return StructInfo::Func(Arc::new(FuncInfo { params, ret, pure: f.pure && g.pure, derive: None }));
                }
            }
            StructInfo::Object
        }
        _ => StructInfo::Object,
    }
}

fn same_info(a: &StructInfo, b: &StructInfo, facts: &mut Facts) -> bool {
    relate(a, b, "", facts).answer() == Answer::Yes && relate(b, a, "", facts).answer() == Answer::Yes
}

/// Every dim in canonical form.
pub fn simplify(s: &StructInfo, facts: &mut Facts) -> StructInfo {
    vars::map_dims(s, &mut |d| if d.as_var().is_some() { d.clone() } else { facts.simplify(d) })
}
