//! The laws of relax_spec.md's relations over all pairs and triples of a set of small struct infos: subtyping ("Unification",
//! `<<:`), `check_compatibility`, `unify_struct_info`, `erase_to_well_defined`, `get_shape_var_mapping`. What the pseudo-code
//! says of one pair stands in tests/rules/relations.md.

use relax_ir::analysis::{relate, vars};
use relax_ir::op::Answer;
use relax_ir::relax::{FuncInfo, StructInfo};
use relax_ir::sym::Facts;
use relax_ir::{DType, PrimExpr, Var};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Shape variables: `n` and `m` of the scope, `k` one that has left it, `own` bound by functions.
struct Dims {
    n: Var,
    m: Var,
    k: Var,
    own: Var,
}

impl Dims {
    fn new() -> Dims {
        Dims { n: Var::dim("n"), m: Var::dim("m"), k: Var::dim("k"), own: Var::dim("own") }
    }

    /// Lists of dims: one variable, another, numbers, sums, two of them.
    fn lists(&self) -> Vec<Vec<PrimExpr>> {
        let (n, m, k) = (self.n.expr(), self.m.expr(), self.k.expr());
        let (next, again) = (n.clone() + 1, PrimExpr::i64(1) + n.clone());
        let one = [n.clone(), m.clone(), k.clone(), 3.into(), 4.into(), next, again, n.clone() + m.clone()];
        let two = [[n.clone(), 3.into()], [3.into(), n.clone()], [n.clone(), n.clone()], [k, m]];
        std::iter::once(vec![]).chain(one.into_iter().map(|d| vec![d])).chain(two.into_iter().map(Vec::from)).collect()
    }
}

fn function(params: &[StructInfo], ret: &StructInfo, pure: bool) -> StructInfo {
    let params = Some(params.to_vec());
    StructInfo::Func(Arc::new(FuncInfo { params, ret: ret.clone(), pure, derive: None }))
}

fn packed(derive: &str) -> StructInfo {
    let derive = Some(derive.to_string());
    StructInfo::Func(Arc::new(FuncInfo { params: None, ret: StructInfo::Object, pure: false, derive }))
}

fn leaves(d: &Dims) -> Vec<StructInfo> {
    let mut out = vec![StructInfo::Object, StructInfo::Str, StructInfo::DType];
    for dtype in [Some(DType::F32), Some(DType::I32), None] {
        out.extend([None, Some(0), Some(1), Some(2)].map(|n| StructInfo::tensor_ndim(n, dtype)));
        for dims in d.lists() {
            out.push(StructInfo::Tensor(relax_ir::relax::TensorInfo::dims(dims, dtype)));
        }
    }
    out.extend([None, Some(0), Some(1), Some(2)].map(|ndim| StructInfo::Shape { values: None, ndim }));
    out.extend(d.lists().into_iter().map(StructInfo::shape));
    for value in [None, Some(d.n.expr()), Some(d.m.expr()), Some(3.into())] {
        out.push(StructInfo::Prim { dtype: DType::I64, value });
    }
    out.push(StructInfo::Prim { dtype: DType::F32, value: None });
    out
}

/// Leaves, tuples of some of them, packed functions and closures over some of them.
fn infos(d: &Dims) -> Vec<StructInfo> {
    let mut out = leaves(d);
    let by_n = StructInfo::tensor(vec![d.n.expr()], DType::F32);
    let by_m = StructInfo::tensor(vec![d.m.expr()], DType::F32);
    let few = [
        StructInfo::Object,
        StructInfo::tensor_ndim(None, None),
        StructInfo::tensor_ndim(Some(1), Some(DType::F32)),
        by_n.clone(),
        StructInfo::tensor(vec![3.into()], DType::F32),
        StructInfo::tensor(vec![3.into()], DType::I32),
        StructInfo::shape(vec![d.n.expr()]),
    ];
    out.extend([StructInfo::unit(), StructInfo::Tuple(vec![by_n.clone()]), StructInfo::Tuple(vec![by_m])]);
    for a in &few {
        out.extend(few.iter().map(|b| StructInfo::Tuple(vec![a.clone(), b.clone()])));
    }
    let own = HashMap::from([(d.n.clone(), d.own.expr())]);
    let by_own = vars::substitute(&by_n, &own);
    for a in few.iter().map(|a| vars::substitute(a, &own)) {
        out.extend(few.iter().map(|b| function(std::slice::from_ref(&a), b, true)));
        out.push(function(std::slice::from_ref(&a), &by_n, false));
        out.push(function(&[by_own.clone(), a.clone()], &by_own, true));
        out.push(StructInfo::Tuple(vec![function(std::slice::from_ref(&a), &StructInfo::Object, true)]));
    }
    out.extend([packed("default"), packed("empty"), function(&[], &StructInfo::Object, true)]);
    out
}

fn answer(got: &StructInfo, want: &StructInfo, facts: &mut Facts) -> Answer {
    relate::relate(got, want, "", facts).answer()
}

/// `relate` of every pair.
fn answers(all: &[StructInfo]) -> Vec<Vec<Answer>> {
    let facts = &mut Facts::new();
    all.iter().map(|a| all.iter().map(|b| answer(a, b, facts)).collect()).collect()
}

fn has_functions(s: &StructInfo) -> bool {
    match s {
        StructInfo::Func(_) => true,
        StructInfo::Tuple(f) => f.iter().any(has_functions),
        _ => false,
    }
}

/// The struct info without dims: what is left of it is the type ("Erasing Structural Information into Types").
fn erased(s: &StructInfo) -> StructInfo {
    match s {
        StructInfo::Tensor(t) => StructInfo::tensor_ndim(t.ndim, t.dtype),
        StructInfo::Shape { ndim, values } => {
            StructInfo::Shape { values: None, ndim: ndim.or(values.as_ref().map(Vec::len)) }
        }
        StructInfo::Prim { dtype, .. } => StructInfo::Prim { dtype: *dtype, value: None },
        StructInfo::Tuple(f) => StructInfo::Tuple(f.iter().map(erased).collect()),
        StructInfo::Func(f) => {
            let params = f.params.as_ref().map(|p| p.iter().map(erased).collect());
            StructInfo::Func(Arc::new(FuncInfo { params, ret: erased(&f.ret), ..(**f).clone() }))
        }
        other => other.clone(),
    }
}

/// All infos, and which is below which.
fn lattice() -> (Vec<StructInfo>, Vec<Vec<Answer>>) {
    let all = infos(&Dims::new());
    let below = answers(&all);
    (all, below)
}

#[test]
fn subtyping_is_an_order() {
    let (all, below) = lattice();
    let object = all.iter().position(|s| *s == StructInfo::Object).expect("objects are among them");
    for (i, s) in all.iter().enumerate() {
        assert_eq!(below[i][i], Answer::Yes, "1 reflexivity: {s:?}");
        assert_eq!(below[i][object], Answer::Yes, "3 everything is an object: {s:?}");
    }
    for i in 0..all.len() {
        for j in (0..all.len()).filter(|&j| below[i][j] == Answer::Yes) {
            for k in (0..all.len()).filter(|&k| below[j][k] == Answer::Yes) {
                assert_eq!(below[i][k], Answer::Yes, "2 transitivity: {:?} {:?} {:?}", all[i], all[j], all[k]);
            }
            if below[j][i] == Answer::Yes {
                // Equal up to the spelling of dims: each join is the other's, and they erase to the same type.
                assert_eq!(erased(&all[i]), erased(&all[j]), "antisymmetry: {:?} {:?}", all[i], all[j]);
            }
        }
    }
}

#[test]
fn compatibility_agrees_with_subtyping() {
    let (all, below) = lattice();
    let facts = &mut Facts::new();
    for i in 0..all.len() {
        for j in 0..all.len() {
            let types = answer(&erased(&all[i]), &erased(&all[j]), facts);
            match below[i][j] {
                // "If S1 <<: S2 holds, then erase_struct_info(S1) <: erase_struct_info(S2)."
                Answer::Yes => assert_eq!(types, Answer::Yes, "{:?} {:?}", all[i], all[j]),
                Answer::Unknown => assert_ne!(types, Answer::No, "{:?} {:?}", all[i], all[j]),
                Answer::No => {}
            }
            // What is incompatible has no value in common; functions of few kinds of arguments may be known as both.
            if below[i][j] == Answer::No && !has_functions(&all[i]) {
                for (k, s) in all.iter().enumerate() {
                    let both = below[k][i] == Answer::Yes && below[k][j] == Answer::Yes;
                    assert!(!both, "{s:?} is {:?} and {:?}", all[i], all[j]);
                }
            }
        }
    }
}

#[test]
fn unification_is_a_least_upper_bound() {
    let (all, below) = lattice();
    let facts = &mut Facts::new();
    for i in 0..all.len() {
        for j in 0..all.len() {
            let (a, b) = (&all[i], &all[j]);
            let join = relate::join(a, b, facts);
            assert_eq!(answer(a, &join, facts), Answer::Yes, "an upper bound: {a:?} {b:?} {join:?}");
            assert_eq!(answer(b, &join, facts), Answer::Yes, "an upper bound: {a:?} {b:?} {join:?}");
            let other = relate::join(b, a, facts);
            assert_eq!(answer(&join, &other, facts), Answer::Yes, "commutative: {a:?} {b:?}");
            // unify_struct_info joins functions only where their parameters are equal, so for these it is not the least.
            if has_functions(a) || has_functions(b) {
                continue;
            }
            if below[i][j] == Answer::Yes {
                assert_eq!(answer(&join, b, facts), Answer::Yes, "the upper of two: {a:?} {b:?} {join:?}");
            }
            for (k, u) in all.iter().enumerate() {
                if below[i][k] == Answer::Yes && below[j][k] == Answer::Yes {
                    assert_eq!(answer(&join, u, facts), Answer::Yes, "the least: {a:?} {b:?} {join:?} {u:?}");
                }
            }
        }
    }
}

/// The greatest lower bound, which names the dims as wanted: what stays open of them is checked.
#[test]
fn meeting_is_a_lower_bound() {
    let (all, below) = lattice();
    let facts = &mut Facts::new();
    for i in 0..all.len() {
        for j in (0..all.len()).filter(|&j| below[i][j] != Answer::No) {
            let (a, b) = (&all[i], &all[j]);
            let meet = relate::meet(a, b);
            assert_ne!(answer(&meet, a, facts), Answer::No, "{a:?} {b:?} {meet:?}");
            assert_ne!(answer(&meet, b, facts), Answer::No, "{a:?} {b:?} {meet:?}");
            if has_functions(a) || has_functions(b) {
                continue;
            }
            if below[i][j] == Answer::Yes {
                assert_eq!(answer(&meet, a, facts), Answer::Yes, "the lower of two: {a:?} {b:?} {meet:?}");
            }
            let types = (erased(a), erased(b), erased(&meet));
            assert_eq!(answer(&types.2, &types.0, facts), Answer::Yes, "below the value: {a:?} {b:?} {meet:?}");
            assert_eq!(answer(&types.2, &types.1, facts), Answer::Yes, "below what is wanted: {a:?} {b:?} {meet:?}");
            for (k, low) in all.iter().enumerate() {
                if below[k][i] == Answer::Yes && below[k][j] == Answer::Yes {
                    let type_of = erased(low);
                    assert_eq!(answer(&type_of, &types.2, facts), Answer::Yes, "the greatest: {a:?} {b:?} {low:?}");
                }
            }
        }
    }
}

#[test]
fn erasing_to_the_scope_is_idempotent() {
    let d = Dims::new();
    let facts = &mut Facts::new();
    let in_scope = |v: &Var| *v != d.k;
    let erase = |s: &StructInfo| vars::erase(s, &in_scope, &|_| true);
    for s in &infos(&d) {
        let once = erase(s);
        assert_eq!(erase(&once), once, "idempotent: {s:?}");
        let mut mentions = false;
        vars::each_dim(s, &mut |dim, _| mentions |= dim.vars().contains(&d.k));
        if !mentions {
            assert_eq!(once, *s, "nothing to forget");
        }
        if !has_functions(s) {
            assert_eq!(answer(s, &once, facts), Answer::Yes, "what is forgotten is weaker: {s:?} {once:?}");
            vars::each_dim(&once, &mut |dim, _| assert!(!dim.vars().contains(&d.k), "{s:?} {once:?}"));
        }
        assert_eq!(erased(&once), erased(s), "the type stays");
        // What mentions a variable loses its dims whole, as the pseudo-code has it.
        if mentions && !has_functions(s) {
            assert_ne!(once, *s);
        }
    }
}

#[test]
fn mapped_parameters_are_their_arguments() {
    let d = Dims::new();
    let facts = &mut Facts::new();
    let all: Vec<StructInfo> = leaves(&d);
    // Parameters over variables of their own; arguments over those of the caller.
    let own: HashMap<Var, PrimExpr> = [&d.n, &d.m, &d.k].map(|v| (v.clone(), Var::dim(v.name()).expr())).into();
    for p in &all {
        let p = vars::substitute(p, &own);
        let bindable: HashSet<Var> = vars::lone_vars([&p]).into_iter().map(|(v, _)| v).collect();
        for arg in &all {
            let mut map = HashMap::new();
            vars::map_vars(&p, arg, &bindable, &mut map);
            assert!(map.keys().all(|v| bindable.contains(v)), "only dims that stand alone: {p:?} {arg:?}");
            let mut given = vec![];
            vars::each_dim(arg, &mut |dim, _| given.push(dim.clone()));
            assert!(map.values().all(|v| given.contains(v)), "to dims of the argument: {p:?} {arg:?} {map:?}");
            // With every variable mapped, a parameter whose dims stand alone is the argument.
            let mut alone = HashSet::new();
            let mut simple = true;
            vars::each_dim(&p, &mut |dim, _| simple &= dim.as_var().is_some_and(|v| alone.insert(v.clone())));
            if simple && map.len() == bindable.len() && answer(arg, &p, facts) != Answer::No {
                let wanted = vars::substitute(&p, &map);
                assert_ne!(answer(arg, &wanted, facts), Answer::No, "{p:?} {arg:?}");
                assert_eq!(relate::relate(arg, &wanted, "", facts).conditions, [], "{p:?} {arg:?}");
            }
        }
    }
}
