//! Where shape variables get their values: the dims of values that give birth to them.

use super::Birth;
use crate::prim::{PrimExpr, Var};
use crate::relax::{RVar, StructInfo, TensorInfo, TensorShape};
use std::collections::HashSet;

/// The shape variables that a MatchCast to `s` binds: those not in scope that stand alone, first occurrence.
pub(super) fn born(s: &StructInfo, scope: &HashSet<Var>, path: &mut Vec<usize>, out: &mut Vec<Birth>) {
    let mut dims = |values: &[PrimExpr], path: &Vec<usize>| {
        for (axis, d) in values.iter().enumerate() {
            if let Some(v) = d.as_var() {
                if !scope.contains(v) && !out.iter().any(|b| b.var == *v) {
                    out.push(Birth { var: v.clone(), path: path.clone(), axis, known: None });
                }
            }
        }
    };
    match s {
        StructInfo::Tensor(TensorInfo { shape: Some(TensorShape::Dims(d)), .. }) => dims(d, path),
        StructInfo::Shape { values: Some(v), .. } => dims(v, path),
        StructInfo::Prim { value: Some(v), .. } => dims(std::slice::from_ref(v), path),
        StructInfo::Tuple(fields) => {
            for (i, f) in fields.iter().enumerate() {
                path.push(i);
                born(f, scope, path, out);
                path.pop();
            }
        }
        _ => {}
    }
}

/// The dim at a place of a struct info, when it is known.
pub(super) fn dim_at(s: &StructInfo, path: &[usize], axis: usize) -> Option<PrimExpr> {
    match (path, s) {
        ([i, rest @ ..], StructInfo::Tuple(f)) => dim_at(f.get(*i)?, rest, axis),
        ([], StructInfo::Tensor(t)) => t.known_dims()?.get(axis).cloned(),
        ([], StructInfo::Shape { values, .. }) => values.as_ref()?.get(axis).cloned(),
        ([], StructInfo::Prim { value, .. }) => value.clone(),
        _ => None,
    }
}

/// The annotation of a parameter with names for the unknown dims of tensors and shapes of known rank, the names that
/// [`super::materialise`] gives them.
pub fn named_dims(s: &StructInfo, var: &RVar) -> StructInfo {
    name_dims(s, var, &mut vec![], &mut vec![])
}

/// Fresh shape variables for the unknown dims of known rank and for unknown scalars.
pub(super) fn name_dims(s: &StructInfo, var: &RVar, path: &mut Vec<usize>, births: &mut Vec<Birth>) -> StructInfo {
    let mut fresh = |n: usize, path: &Vec<usize>| -> Vec<PrimExpr> {
        (0..n)
            .map(|axis| {
                let place: String = path.iter().map(|i| format!("_{i}")).collect();
                let v = Var::dim(format!("{}{place}_d{axis}", var.name()));
                births.push(Birth { var: v.clone(), path: path.clone(), axis, known: None });
                v.expr()
            })
            .collect()
    };
    match s {
        StructInfo::Tensor(t @ TensorInfo { ndim: Some(n), .. }) if t.known_dims().is_none() => {
            let shape = Some(TensorShape::Dims(fresh(*n, path)));
            StructInfo::Tensor(TensorInfo { shape, ..t.clone() })
        }
        StructInfo::Shape { values: None, ndim: Some(n) } => StructInfo::shape(fresh(*n, path)),
        StructInfo::Prim { dtype, value: None } => {
            let place: String = path.iter().map(|i| format!("_{i}")).collect();
            let v = Var::new(format!("{}{place}", var.name()), *dtype);
            births.push(Birth { var: v.clone(), path: path.clone(), axis: 0, known: None });
            StructInfo::Prim { dtype: *dtype, value: Some(v.expr()) }
        }
        StructInfo::Tuple(fields) => StructInfo::Tuple(
            fields
                .iter()
                .enumerate()
                .map(|(i, f)| {
                    path.push(i);
                    let named = name_dims(f, var, path, births);
                    path.pop();
                    named
                })
                .collect(),
        ),
        _ => s.clone(),
    }
}
