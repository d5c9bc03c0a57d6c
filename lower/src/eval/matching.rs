//! MatchCast: does a value have a struct info? Shape variables that stand alone in it get their values.

use super::{Scope, Stop, Value};
use relax_ir::analysis::{relate, signature, vars};
use relax_ir::prim::PrimExpr;
use relax_ir::relax::{StructInfo, TensorShape};
use relax_ir::sym::Facts;
use relax_ir::{DType, Var};
use std::collections::HashMap;

/// The dims of a list; a variable that has no value is an error of the module.
pub fn dims(list: &[PrimExpr], scope: &Scope) -> Result<Vec<i64>, Stop> {
    list.iter().map(|d| d.evaluate(&scope.dims).ok_or_else(|| Stop::Other(format!("{d:?} has no value")))).collect()
}

/// Requires that `value` has `info`.
pub fn match_cast(value: &Value, info: &StructInfo, scope: &mut Scope) -> Result<(), Stop> {
    let mut later = vec![];
    first(value, info, scope, &mut later)?;
    // Dims that are expressions, once every variable that stands alone has its value.
    for (got, wanted) in later {
        let value = wanted.evaluate(&scope.dims).ok_or_else(|| Stop::Other(format!("{wanted:?} has no value")))?;
        if value != got {
            return Err(Stop::Check(format!("wanted {value}, got {got}")));
        }
    }
    Ok(())
}

fn first(value: &Value, info: &StructInfo, scope: &mut Scope, later: &mut Vec<(i64, PrimExpr)>) -> Result<(), Stop> {
    let wrong = |what: &str| Err(Stop::Check(format!("wanted {what}, got {}", value.kind())));
    match (info, value) {
        (StructInfo::Object, _) => Ok(()),
        (StructInfo::Tensor(t), Value::Tensor(x)) => {
            if t.dtype.is_some_and(|d| d != x.dtype) {
                return Err(Stop::Check(format!("wanted dtype {:?}, got {}", t.dtype, x.dtype)));
            }
            if t.ndim.is_some_and(|n| n != x.shape.len()) {
                return Err(Stop::Check(format!("wanted rank {:?}, got {}", t.ndim, x.shape.len())));
            }
            match &t.shape {
                Some(TensorShape::Dims(d)) => list(&x.shape, d, scope, later),
                Some(TensorShape::Var(v)) => match scope.values.get(v) {
                    Some(Value::Shape(s)) if s == &x.shape => Ok(()),
                    other => Err(Stop::Check(format!("wanted shape {other:?}, got {:?}", x.shape))),
                },
                None => Ok(()),
            }
        }
        (StructInfo::Tensor(_), _) => wrong("a tensor"),
        (StructInfo::Shape { values, ndim }, Value::Shape(s)) => {
            if ndim.is_some_and(|n| n != s.len()) {
                return Err(Stop::Check(format!("wanted rank {ndim:?}, got {}", s.len())));
            }
            values.as_ref().map_or(Ok(()), |d| list(s, d, scope, later))
        }
        (StructInfo::Shape { .. }, _) => wrong("a shape"),
        (StructInfo::Prim { dtype, value: wanted }, Value::Int(d, v)) => {
            if dtype != d {
                return Err(Stop::Check(format!("wanted dtype {dtype}, got {d}")));
            }
            wanted.as_ref().map_or(Ok(()), |w| list(&[*v], std::slice::from_ref(w), scope, later))
        }
        (StructInfo::Prim { dtype, .. }, Value::Float(d, _)) if dtype == d => Ok(()),
        // At the boundary a scalar comes as a tensor without dims.
        (StructInfo::Prim { .. }, _) => wrong("a scalar"),
        (StructInfo::Tuple(infos), Value::Tuple(fields)) if infos.len() == fields.len() => {
            infos.iter().zip(fields).try_for_each(|(i, f)| first(f, i, scope, later))
        }
        // A packed function that returns nothing returns unit.
        (StructInfo::Tuple(infos), Value::Absent) if infos.is_empty() => Ok(()),
        (StructInfo::Tuple(_), _) => wrong("a tuple of so many fields"),
        (StructInfo::Func(f), Value::Extern(_)) if f.params.is_some() => wrong("a closure"),
        (StructInfo::Func(_), Value::Closure(c)) => {
            let own = StructInfo::Func(signature::of_function(&c.function).into());
            let got = vars::substitute(&own, &literals(&c.scope));
            let wanted = vars::substitute(info, &literals(scope));
            let relation = relate::relate(&got, &wanted, "the function", &mut Facts::new());
            relation.refused.map_or(Ok(()), |why| Err(Stop::Check(why)))
        }
        (StructInfo::Func(_), Value::Global(_) | Value::Extern(_)) => Ok(()),
        (StructInfo::Func(_), _) => wrong("a function"),
        (StructInfo::Str, Value::Str(_)) | (StructInfo::DType, Value::DType(_)) => Ok(()),
        (StructInfo::Str | StructInfo::DType, _) => wrong("a string or dtype"),
    }
}

/// What each shape variable is.
fn literals(scope: &Scope) -> HashMap<Var, PrimExpr> {
    scope.dims.iter().map(|(v, n)| (v.clone(), PrimExpr::i64(*n))).collect()
}

fn list(got: &[i64], wanted: &[PrimExpr], scope: &mut Scope, later: &mut Vec<(i64, PrimExpr)>) -> Result<(), Stop> {
    for (g, w) in got.iter().zip(wanted) {
        match w.as_var() {
            Some(v) if !scope.dims.contains_key(v) => {
                scope.dims.insert(v.clone(), *g);
            }
            _ => later.push((*g, w.clone())),
        }
    }
    Ok(())
}

/// A scalar as the dtype of its struct info has it.
pub fn scalar(e: &PrimExpr, scope: &Scope) -> Result<Value, Stop> {
    if let Some(v) = e.as_float() {
        return Ok(Value::Float(e.dtype(), v));
    }
    let v = e.evaluate(&scope.dims).ok_or_else(|| Stop::Other(format!("{e:?} has no value")))?;
    Ok(Value::Int(if e.dtype() == DType::BOOL { DType::BOOL } else { e.dtype() }, v))
}
