//! Evaluates Relax functions binding by binding: what a module means, with no lowering at all.

use super::{call, number, zeros, Dims, Value};
use relax_ir::op::ParamKind;
use relax_ir::prim::{PrimExpr, Var};
use relax_ir::relax::{BindingValue, Call, Callee, Expr, ExprKind, Function, RVar, SeqExpr, StructInfo};
use relax_ir::tir::{PrimFunc, PrimParam};
use relax_ir::{Attrs, DType, Func, IRModule};
use relax_lower::interp::{self, Arg, Tensor};
use std::collections::HashMap;

/// What stands for an error text that means "not evaluated here" (closures, packed functions).
pub const SKIP: &str = "not evaluated: ";

pub struct Program<'a> {
    pub module: &'a IRModule,
    pub mode: Dims,
}

#[derive(Default, Clone)]
struct Scope {
    values: HashMap<RVar, Value>,
    dims: HashMap<Var, PrimExpr>,
}

fn skip<T>(what: impl std::fmt::Display) -> Result<T, String> {
    Err(format!("{SKIP}{what}"))
}

impl Program<'_> {
    pub fn run(&self, function: &str, args: &[Value]) -> Result<Value, String> {
        let f = self.module.relax(function).ok_or_else(|| format!("no function {function}"))?;
        self.function(f, args)
    }

    fn function(&self, f: &Function, args: &[Value]) -> Result<Value, String> {
        if f.params.len() != args.len() {
            return Err(format!("{} arguments for {} parameters", args.len(), f.params.len()));
        }
        let mut scope = Scope::default();
        for (p, a) in f.params.iter().zip(args) {
            if let Some(i) = &p.annotation {
                bind(i, a, &mut scope)?;
            }
            scope.values.insert(p.var.clone(), a.clone());
        }
        self.seq(&f.body, &mut scope)
    }

    fn seq(&self, s: &SeqExpr, scope: &mut Scope) -> Result<Value, String> {
        for b in s.blocks.iter().flat_map(|b| &b.bindings) {
            let v = self.expr(b.expr(), scope).map_err(|e| {
                if e.starts_with(SKIP) || e.contains("in ") {
                    e
                } else {
                    format!("in {}: {e}", b.var.name())
                }
            })?;
            match &b.value {
                BindingValue::MatchCast { struct_info, .. } => bind(struct_info, &v, scope)?,
                BindingValue::Expr(_) => {
                    if let Some(i) = &b.annotation {
                        agrees(i, &v, scope).map_err(|e| format!("in {}: {e}", b.var.name()))?;
                    }
                }
            }
            scope.values.insert(b.var.clone(), v);
        }
        self.expr(&s.body, scope)
    }

    fn expr(&self, e: &Expr, scope: &mut Scope) -> Result<Value, String> {
        match e.kind() {
            ExprKind::Constant(c) => Ok(Value::Tensor(Tensor::from_constant(c))),
            ExprKind::Var(v) => scope.values.get(v).cloned().ok_or_else(|| format!("{} has no value", v.name())),
            ExprKind::Tuple(f) => {
                Ok(Value::Tuple(f.iter().map(|e| self.expr(e, scope)).collect::<Result<Vec<_>, _>>()?))
            }
            ExprKind::TupleGetItem(t, i) => match self.expr(t, scope)? {
                Value::Tuple(mut f) if *i < f.len() => Ok(f.swap_remove(*i)),
                other => Err(format!("no field {i} in {other:?}")),
            },
            ExprKind::Shape(dims) => {
                Ok(Value::Shape(dims.iter().map(|d| number(d, &scope.dims)).collect::<Result<Vec<_>, _>>()?))
            }
            ExprKind::Prim(p) if p.dtype().is_float() => Ok(Value::Prim(p.clone())),
            ExprKind::Prim(p) => Ok(Value::Prim(PrimExpr::int(p.dtype(), number(p, &scope.dims)?))),
            ExprKind::If { cond, then, otherwise } => {
                let c = match self.expr(cond, scope)? {
                    Value::Tensor(t) => t.to_f64().first().is_some_and(|v| *v != 0.0),
                    Value::Prim(p) => p.as_int().is_some_and(|v| v != 0),
                    other => return Err(format!("{other:?} is no condition")),
                };
                self.seq(if c { then } else { otherwise }, &mut scope.clone())
            }
            ExprKind::Call(c) => self.call(c, scope),
            ExprKind::Absent | ExprKind::Str(_) | ExprKind::DType(_) => Ok(Value::Absent),
            ExprKind::Seq(s) => self.seq(s, &mut scope.clone()),
            _ => skip("a closure or packed function"),
        }
    }

    fn call(&self, c: &Call, scope: &mut Scope) -> Result<Value, String> {
        let op = match &c.callee {
            Callee::Op(op) => *op,
            Callee::Expr(f) => {
                let ExprKind::GlobalVar(name) = f.kind() else { return skip("a call of a closure") };
                let args = c.args.iter().map(|a| self.expr(a, scope)).collect::<Result<Vec<_>, _>>()?;
                return match self.module.get(name) {
                    Some(Func::Relax(f)) => self.function(f, &args),
                    _ => skip("a direct call of a PrimFunc"),
                };
            }
        };
        match op.name {
            "call_tir" | "call_tir_inplace" | "call_tir_with_grad" => return self.call_tir(c, scope),
            "call_packed"
            | "call_pure_packed"
            | "call_dps_packed"
            | "call_builtin_with_ctx"
            | "call_inplace_packed"
            | "invoke_closure"
            | "invoke_pure_closure"
            | "make_closure" => return skip(op.name),
            _ if op.name.starts_with("vm.") || op.name.starts_with("builtin.") => return skip(op.name),
            _ => {}
        }
        let args = c.args.iter().map(|a| self.expr(a, scope)).collect::<Result<Vec<_>, _>>()?;
        match (op.name, args.first()) {
            ("shape_of", Some(Value::Tensor(t))) => Ok(Value::Shape(t.shape.clone())),
            ("tensor_to_shape", Some(Value::Tensor(t))) => Ok(Value::Shape(t.to_i64())),
            ("shape_to_tensor", Some(Value::Shape(s))) => {
                Ok(Value::Tensor(Tensor::from_i64(DType::I64, &[s.len() as i64], s)))
            }
            ("size", Some(Value::Tensor(t))) => {
                Ok(Value::Tensor(Tensor::from_i64(DType::I64, &[], &[t.elements() as i64])))
            }
            ("print" | "assert_op" | "null_value", _) => Ok(Value::Tuple(vec![])),
            _ => {
                let attrs = self.attrs(&c.attrs, scope)?;
                call(op, &args, &attrs, self.mode).map_err(|e| format!("{}: {e}", op.name))
            }
        }
    }

    /// Attributes with the values of shape variables put in.
    fn attrs(&self, attrs: &Attrs, scope: &Scope) -> Result<Attrs, String> {
        use relax_ir::AttrValue;
        fn value(v: &AttrValue, scope: &Scope) -> AttrValue {
            match v {
                AttrValue::Prim(p) if !p.dtype().is_float() => {
                    number(p, &scope.dims).map_or_else(|_| v.clone(), AttrValue::Int)
                }
                AttrValue::List(l) => AttrValue::List(l.iter().map(|v| value(v, scope)).collect()),
                other => other.clone(),
            }
        }
        Ok(Attrs(attrs.0.iter().map(|(n, v)| (n.clone(), value(v, scope))).collect()))
    }

    fn call_tir(&self, c: &Call, scope: &mut Scope) -> Result<Value, String> {
        let op = c.op().ok_or("no operator")?;
        let kinds = op.params.iter().filter(|p| matches!(p.kind, ParamKind::Operand | ParamKind::Variadic));
        debug_assert!(kinds.count() >= 2);
        let Some(ExprKind::GlobalVar(name)) = c.args.first().map(Expr::kind) else { return skip("an unknown callee") };
        let f: &PrimFunc = self.module.prim(name).ok_or_else(|| format!("no PrimFunc {name}"))?;
        let mut inputs = vec![];
        let mut scalars = vec![];
        for a in &c.args[1..] {
            let v = self.expr(a, scope)?;
            sort(&v, &mut inputs, &mut scalars)?;
        }
        let mut outputs = vec![];
        for i in &c.sinfo_args {
            outputs.extend(zeros(i, &scope.dims)?);
        }
        if op.name == "call_tir_inplace" {
            let indices = c.attrs.ints("inplace_indices").unwrap_or_default();
            for (o, i) in outputs.iter_mut().zip(indices) {
                if let Some(t) = usize::try_from(i).ok().and_then(|i| inputs.get(i)) {
                    *o = t.clone();
                }
            }
            // The in-place outputs are the arguments themselves.
            let mut params: Vec<Arg> = inputs.iter().cloned().map(Arg::Tensor).collect();
            params.extend(scalars);
            let indices = c.attrs.ints("inplace_indices").unwrap_or_default();
            let fresh = indices.iter().zip(&outputs).filter(|(i, _)| **i < 0).map(|(_, o)| Arg::Tensor(o.clone()));
            params.extend(fresh);
            interp::run(f, &mut params).map_err(|d| d.message)?;
            let mut last = params.len() - indices.iter().filter(|i| **i < 0).count();
            let mut results = vec![];
            for i in indices {
                let at = if i < 0 { last } else { i as usize };
                last += (i < 0) as usize;
                results.extend(params[at].tensor().cloned().map(Value::Tensor));
            }
            return Ok(if results.len() == 1 { results.remove(0) } else { Value::Tuple(results) });
        }
        let n = inputs.len();
        let mut tensors = inputs.into_iter().chain(outputs).map(Arg::Tensor);
        let mut scalars = scalars.into_iter();
        let mut params = vec![];
        for p in &f.params {
            params.push(match p {
                PrimParam::Buffer { .. } | PrimParam::Handle { .. } => tensors.next().ok_or("too few tensors")?,
                PrimParam::Scalar(_) => scalars.next().ok_or("too few scalars")?,
            });
        }
        interp::run(f, &mut params).map_err(|d| d.message)?;
        let mut results: Vec<Value> =
            params.iter().filter_map(Arg::tensor).skip(n).cloned().map(Value::Tensor).collect();
        Ok(if results.len() == 1 { results.remove(0) } else { Value::Tuple(results) })
    }
}

/// Tensors and scalars of the arguments of a PrimFunc, in order.
fn sort(v: &Value, tensors: &mut Vec<Tensor>, scalars: &mut Vec<Arg>) -> Result<(), String> {
    match v {
        Value::Tensor(t) => tensors.push(t.clone()),
        Value::Tuple(f) => f.iter().try_for_each(|v| sort(v, tensors, scalars))?,
        Value::Shape(s) => scalars.extend(s.iter().map(|d| Arg::Scalar(*d))),
        Value::Prim(p) => scalars.push(match p.as_float() {
            Some(v) => Arg::Float(v),
            None => Arg::Scalar(p.as_int().ok_or("a scalar without value")?),
        }),
        Value::Absent => {}
    }
    Ok(())
}

/// Binds the shape variables that stand alone in `info` to the dims of `v` and checks all others.
fn bind(info: &StructInfo, v: &Value, scope: &mut Scope) -> Result<(), String> {
    let dims = |want: &[PrimExpr], got: &[i64], scope: &mut Scope| -> Result<(), String> {
        if want.len() != got.len() {
            return Err(format!("rank {} where {} is wanted", got.len(), want.len()));
        }
        for (w, g) in want.iter().zip(got) {
            match w.as_var() {
                Some(var) if !scope.dims.contains_key(var) => {
                    scope.dims.insert(var.clone(), PrimExpr::i64(*g));
                }
                _ => {}
            }
        }
        for (w, g) in want.iter().zip(got) {
            // Expressions over variables that a later parameter binds are not checked here.
            if number(w, &scope.dims).is_ok_and(|w| w != *g) {
                return Err(format!("dim {g} differs from {w:?}"));
            }
        }
        Ok(())
    };
    match (info, v) {
        (StructInfo::Tensor(t), Value::Tensor(x)) => {
            if t.dtype.is_some_and(|d| d != x.dtype) || t.ndim.is_some_and(|n| n != x.shape.len()) {
                return Err(format!("{} {:?} is no {info:?}", x.dtype, x.shape));
            }
            match t.known_dims() {
                Some(d) => dims(d, &x.shape, scope),
                None => Ok(()),
            }
        }
        (StructInfo::Shape { values: Some(want), .. }, Value::Shape(got)) => dims(want, got, scope),
        (StructInfo::Prim { value: Some(p), .. }, Value::Prim(got)) => match (p.as_var(), got.as_int()) {
            (Some(var), Some(_)) => {
                scope.dims.insert(var.clone(), got.clone());
                Ok(())
            }
            _ => Ok(()),
        },
        (StructInfo::Tuple(f), Value::Tuple(v)) if f.len() == v.len() => {
            f.iter().zip(v).try_for_each(|(f, v)| bind(f, v, scope))
        }
        _ => Ok(()),
    }
}

/// A value against the annotation of its binding: what TVM derived.
fn agrees(info: &StructInfo, v: &Value, scope: &Scope) -> Result<(), String> {
    bind(info, v, &mut scope.clone())
}
