//! Shape variables in struct info: which occur, which are bound, renaming and substitution.

use crate::prim::{PrimExpr, Var};
use crate::relax::{
    Binding, BindingValue, Call, Expr, ExprKind, FuncInfo, RVar, StructInfo, StructInfoMap, TensorInfo, TensorShape,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Calls `f` on every dim of a struct info, left to right; parameters and results of functions too. The flag is true
/// for dims of tensors and shapes and false for the values of scalars.
pub fn each_dim<'a>(s: &'a StructInfo, f: &mut dyn FnMut(&'a PrimExpr, bool)) {
    match s {
        StructInfo::Tensor(TensorInfo { shape: Some(TensorShape::Dims(d)), .. }) => d.iter().for_each(|d| f(d, true)),
        StructInfo::Shape { values: Some(v), .. } => v.iter().for_each(|d| f(d, true)),
        StructInfo::Prim { value: Some(v), .. } => f(v, false),
        StructInfo::Tuple(fields) => fields.iter().for_each(|s| each_dim(s, f)),
        StructInfo::Func(func) => {
            func.params.iter().flatten().for_each(|s| each_dim(s, f));
            each_dim(&func.ret, f);
        }
        _ => {}
    }
}

/// Calls `f` on every tensor of a value.
pub fn each_tensor<'a>(s: &'a StructInfo, f: &mut dyn FnMut(&'a TensorInfo)) {
    match s {
        StructInfo::Tensor(t) => f(t),
        StructInfo::Tuple(fields) => fields.iter().for_each(|s| each_tensor(s, f)),
        _ => {}
    }
}

/// Calls `f` on every function of a value.
pub fn each_func<'a>(s: &'a StructInfo, f: &mut dyn FnMut(&'a FuncInfo)) {
    match s {
        StructInfo::Func(func) => f(func),
        StructInfo::Tuple(fields) => fields.iter().for_each(|s| each_func(s, f)),
        _ => {}
    }
}

/// The dims in binding positions: not those inside function types.
pub fn each_binding_dim<'a>(s: &'a StructInfo, f: &mut dyn FnMut(&'a PrimExpr, bool)) {
    match s {
        StructInfo::Func(_) => {}
        StructInfo::Tuple(fields) => fields.iter().for_each(|s| each_binding_dim(s, f)),
        _ => each_dim(s, f),
    }
}

/// Variables that stand alone in a binding position, in order of first occurrence. The flag tells whether one occurs
/// as a dim (of a tensor or shape) and not only as the value of a scalar.
pub fn lone_vars<'a>(infos: impl IntoIterator<Item = &'a StructInfo>) -> Vec<(Var, bool)> {
    let mut out: Vec<(Var, bool)> = vec![];
    let mut seen: HashMap<Var, usize> = HashMap::new();
    for s in infos {
        each_binding_dim(s, &mut |d, is_dim| {
            if let Some(v) = d.as_var() {
                match seen.get(v) {
                    Some(&i) => out[i].1 |= is_dim,
                    None => {
                        seen.insert(v.clone(), out.len());
                        out.push((v.clone(), is_dim));
                    }
                }
            }
        });
    }
    out
}

/// Rebuilds a struct info with every dim mapped.
pub fn map_dims(s: &StructInfo, f: &mut dyn FnMut(&PrimExpr) -> PrimExpr) -> StructInfo {
    match s {
        StructInfo::Tensor(t) => match &t.shape {
            Some(TensorShape::Dims(d)) => {
                let dims = d.iter().map(f).collect();
                StructInfo::Tensor(TensorInfo { shape: Some(TensorShape::Dims(dims)), ..t.clone() })
            }
            _ => s.clone(),
        },
        StructInfo::Shape { values: Some(v), ndim } => {
            StructInfo::Shape { values: Some(v.iter().map(f).collect()), ndim: *ndim }
        }
        StructInfo::Prim { dtype, value: Some(v) } => StructInfo::Prim { dtype: *dtype, value: Some(f(v)) },
        StructInfo::Tuple(fields) => StructInfo::Tuple(fields.iter().map(|s| map_dims(s, f)).collect()),
        StructInfo::Func(func) => {
            let params = func.params.as_ref().map(|p| p.iter().map(|s| map_dims(s, f)).collect());
            let ret = map_dims(&func.ret, f);
            StructInfo::Func(Arc::new(FuncInfo { params, ret, ..(**func).clone() }))
        }
        _ => s.clone(),
    }
}

/// As [`map_dims`], for the dims of [`each_binding_dim`].
pub fn map_binding_dims(s: &StructInfo, f: &mut dyn FnMut(&PrimExpr) -> PrimExpr) -> StructInfo {
    match s {
        StructInfo::Func(_) => s.clone(),
        StructInfo::Tuple(fields) => StructInfo::Tuple(fields.iter().map(|s| map_binding_dims(s, f)).collect()),
        _ => map_dims(s, f),
    }
}

/// `s` with the dims, or at least the rank, of the shapes that its tensors name; `None` where nothing changes.
pub fn named_shapes(s: &StructInfo, sinfo: &StructInfoMap) -> Option<StructInfo> {
    match s {
        StructInfo::Tensor(t) => {
            let Some(TensorShape::Var(v)) = &t.shape else { return None };
            match sinfo.get(v)? {
                StructInfo::Shape { values: Some(d), .. } if t.ndim.is_none_or(|n| n == d.len()) => {
                    let (shape, ndim) = (Some(TensorShape::Dims(d.clone())), Some(d.len()));
                    Some(StructInfo::Tensor(TensorInfo { shape, ndim, ..t.clone() }))
                }
                StructInfo::Shape { ndim: n @ Some(_), .. } if t.ndim.is_none() => {
                    Some(StructInfo::Tensor(TensorInfo { ndim: *n, ..t.clone() }))
                }
                _ => None,
            }
        }
        StructInfo::Tuple(fields) => {
            let new: Vec<Option<StructInfo>> = fields.iter().map(|f| named_shapes(f, sinfo)).collect();
            new.iter().any(Option::is_some).then(|| {
                StructInfo::Tuple(new.into_iter().zip(fields).map(|(n, f)| n.unwrap_or_else(|| f.clone())).collect())
            })
        }
        _ => None,
    }
}

/// The binding with the dims of the shapes that its types name; `None` where nothing changes.
pub fn bound_shapes(b: &Binding, sinfo: &StructInfoMap) -> Option<Binding> {
    let annotation = b.annotation.as_ref().and_then(|a| named_shapes(a, sinfo));
    let value = match &b.value {
        BindingValue::MatchCast { value, struct_info } => named_shapes(struct_info, sinfo)
            .map(|struct_info| BindingValue::MatchCast { value: value.clone(), struct_info }),
        BindingValue::Expr(e) => e.as_call().and_then(|c| {
            let new: Vec<Option<StructInfo>> = c.sinfo_args.iter().map(|s| named_shapes(s, sinfo)).collect();
            new.iter().any(Option::is_some).then(|| {
                let new = new.into_iter().zip(&c.sinfo_args).map(|(n, s)| n.unwrap_or_else(|| s.clone()));
                let call = Call { sinfo_args: new.collect(), ..c.clone() };
                BindingValue::Expr(Expr::new(ExprKind::Call(call), e.span()))
            })
        }),
    };
    if annotation.is_none() && value.is_none() {
        return None;
    }
    let kept = b.clone();
    Some(Binding { annotation: annotation.or(kept.annotation), value: value.unwrap_or(kept.value), ..kept })
}

/// Replaces shape variables.
pub fn substitute(s: &StructInfo, map: &HashMap<Var, PrimExpr>) -> StructInfo {
    if map.is_empty() {
        return s.clone();
    }
    map_dims(s, &mut |d| d.substitute(map))
}

/// A copy of a signature whose own variables (those that its parameters bind, `outer` excepted) are new.
pub fn rename(f: &FuncInfo, outer: &HashSet<Var>) -> FuncInfo {
    let Some(params) = &f.params else { return f.clone() };
    let mut map = HashMap::new();
    for (v, _) in lone_vars(params) {
        if !outer.contains(&v) {
            let fresh = Var::with_span(v.name(), v.dtype(), v.span());
            map.insert(v, fresh.expr());
        }
    }
    FuncInfo {
        params: Some(params.iter().map(|p| substitute(p, &map)).collect()),
        ret: substitute(&f.ret, &map),
        ..f.clone()
    }
}

/// `get_shape_var_mapping` of the specification: what each variable that stands alone in `param` is in `arg`.
/// Variables in `bindable` only; the first occurrence with a known dim decides.
pub fn map_vars(param: &StructInfo, arg: &StructInfo, bindable: &HashSet<Var>, map: &mut HashMap<Var, PrimExpr>) {
    let mut pair = |p: &PrimExpr, a: &PrimExpr| {
        if let Some(v) = p.as_var() {
            if bindable.contains(v) && !map.contains_key(v) {
                map.insert(v.clone(), a.clone().cast(v.dtype()));
            }
        }
    };
    match (param, arg) {
        (StructInfo::Tensor(p), StructInfo::Tensor(a)) => {
            if let (Some(p), Some(a)) = (p.known_dims(), a.known_dims()) {
                if p.len() == a.len() {
                    p.iter().zip(a).for_each(|(p, a)| pair(p, a));
                }
            }
        }
        (StructInfo::Shape { values: Some(p), .. }, StructInfo::Shape { values: Some(a), .. })
            if p.len() == a.len() =>
        {
            p.iter().zip(a).for_each(|(p, a)| pair(p, a));
        }
        (StructInfo::Prim { value: Some(p), .. }, StructInfo::Prim { value: Some(a), .. }) => pair(p, a),
        (StructInfo::Tuple(p), StructInfo::Tuple(a)) if p.len() == a.len() => {
            p.iter().zip(a).for_each(|(p, a)| map_vars(p, a, bindable, map));
        }
        _ => {}
    }
}

/// `erase_to_well_defined` of the specification: forgets shapes that use variables out of scope. Parameters of function
/// types bind their own variables.
pub fn erase(s: &StructInfo, dims: &dyn Fn(&Var) -> bool, vars: &dyn Fn(&RVar) -> bool) -> StructInfo {
    let known = |d: &PrimExpr| d.vars().iter().all(dims);
    match s {
        StructInfo::Tensor(t) => {
            let keep = match &t.shape {
                Some(TensorShape::Dims(d)) => d.iter().all(known),
                Some(TensorShape::Var(v)) => vars(v),
                None => true,
            };
            if keep {
                s.clone()
            } else {
                StructInfo::Tensor(TensorInfo { shape: None, ..t.clone() })
            }
        }
        StructInfo::Shape { values: Some(v), ndim } if !v.iter().all(known) => {
            StructInfo::Shape { values: None, ndim: *ndim }
        }
        StructInfo::Prim { dtype, value: Some(v) } if !known(v) => StructInfo::Prim { dtype: *dtype, value: None },
        StructInfo::Tuple(fields) => StructInfo::Tuple(fields.iter().map(|f| erase(f, dims, vars)).collect()),
        StructInfo::Func(f) => {
            let own: HashSet<Var> = lone_vars(f.params.iter().flatten()).into_iter().map(|(v, _)| v).collect();
            let inner = |v: &Var| own.contains(v) || dims(v);
            let params = f.params.as_ref().map(|p| p.iter().map(|s| erase(s, &inner, vars)).collect());
            let ret = erase(&f.ret, &inner, vars);
            StructInfo::Func(Arc::new(FuncInfo { params, ret, ..(**f).clone() }))
        }
        _ => s.clone(),
    }
}

/// Variables that function types inside `s` bind themselves.
pub(super) fn func_vars(s: &StructInfo) -> HashSet<Var> {
    match s {
        StructInfo::Func(f) => {
            let mut own: HashSet<Var> = lone_vars(f.params.iter().flatten()).into_iter().map(|(v, _)| v).collect();
            f.params.iter().flatten().for_each(|p| own.extend(func_vars(p)));
            own.extend(func_vars(&f.ret));
            own
        }
        StructInfo::Tuple(f) => f.iter().flat_map(func_vars).collect(),
        _ => HashSet::new(),
    }
}
