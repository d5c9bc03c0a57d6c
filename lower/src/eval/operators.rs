//! Calls of operators: with the shapes of the values at hand each one is a kernel without shape variables.

use super::matching::dims;
use super::{Scope, Stop, Value};
use crate::interp::{self, Arg, Tensor};
use relax_ir::analysis;
use relax_ir::op::{Compute, ComputeCx, OpDecl};
use relax_ir::prim::PrimExpr;
use relax_ir::relax::{Call, Callee, Expr, ExprKind, RVar, StructInfo, StructInfoMap, TensorInfo};
use relax_ir::sym::Facts;
use relax_ir::tir::{PrimFunc, PrimParam};
use relax_ir::{DType, IRModule, Span};
use std::rc::Rc;

/// The struct info of a value: everything is known.
fn info_of(v: &Value) -> StructInfo {
    let constant = |d: &i64| PrimExpr::i64(*d);
    match v {
        Value::Tensor(t) => StructInfo::tensor(t.shape.iter().map(constant).collect(), t.dtype),
        Value::Tuple(f) => StructInfo::Tuple(f.iter().map(info_of).collect()),
        Value::Shape(s) => StructInfo::shape(s.iter().map(constant).collect()),
        Value::Int(d, v) => StructInfo::Prim { dtype: *d, value: Some(PrimExpr::int(*d, *v)) },
        Value::Float(d, v) => StructInfo::Prim { dtype: *d, value: Some(PrimExpr::float(*d, *v)) },
        Value::Str(_) => StructInfo::Str,
        Value::DType(_) => StructInfo::DType,
        _ => StructInfo::Object,
    }
}

/// A value as an operand: tensors are variables of known struct info, the rest is literal.
fn operand(v: &Value, sinfo: &mut StructInfoMap) -> Expr {
    let kind = match v {
        Value::Shape(s) => ExprKind::Shape(s.iter().map(|d| PrimExpr::i64(*d)).collect()),
        Value::Int(d, v) => ExprKind::Prim(PrimExpr::int(*d, *v)),
        Value::Float(d, v) => ExprKind::Prim(PrimExpr::float(*d, *v)),
        Value::Str(s) => ExprKind::Str(s.clone()),
        Value::DType(d) => ExprKind::DType(*d),
        Value::Tuple(f) => ExprKind::Tuple(f.iter().map(|v| operand(v, sinfo)).collect()),
        Value::Absent => ExprKind::Absent,
        _ => {
            let var = RVar::new("v", false, Span::NONE);
            sinfo.insert(var.clone(), info_of(v));
            ExprKind::Var(var)
        }
    };
    Expr::new(kind, Span::NONE)
}

/// Calls `op` on evaluated operands; `written` are the operands as they stand in the module.
pub fn call(module: &IRModule, op: &'static OpDecl, call: &Call, values: &[Value], span: Span) -> Result<Value, Stop> {
    let compute = match op.compute {
        Compute::Kernel(f) | Compute::DataDependent(f) => f,
        _ => return Err(Stop::Unsupported(format!("R.{}", op.name))),
    };
    let mut sinfo = StructInfoMap::new();
    let args: Vec<Expr> = call
        .args
        .iter()
        .zip(values)
        .map(|(written, v)| match written.kind() {
            ExprKind::Constant(_) => written.clone(),
            _ => operand(v, &mut sinfo),
        })
        .collect();
    let infos: Vec<StructInfo> = values.iter().map(info_of).collect();
    let known = Call { callee: Callee::Op(op), args: args.clone(), attrs: call.attrs.clone(), sinfo_args: vec![] };
    let mut facts = Facts::new();
    let out = analysis::infer_expr(&mut facts, &Expr::new(ExprKind::Call(known), span), &sinfo, module)
        .map_err(|d| Stop::Check(d.message))?;
    if let Some(r) = facts.take_requirements().first() {
        return Err(Stop::Unsupported(format!("R.{}: open: {}", op.name, r.message)));
    }
    let cx = ComputeCx { op, args: &args, infos: &infos, attrs: &call.attrs, out: &out, span };
    let prim = compute(&cx).map_err(|d| Stop::Unsupported(d.message))?;
    let mut inputs = vec![];
    for v in values {
        v.tensors(&mut inputs);
    }
    let n = inputs.len();
    let mut args: Vec<Arg> = inputs.into_iter().map(|t| Arg::Tensor((*t).clone())).collect();
    for p in &prim.params[n.min(prim.params.len())..] {
        let PrimParam::Buffer { buffer, .. } = p else {
            return Err(Stop::Unsupported(format!("R.{}: a kernel with scalars", op.name)));
        };
        let shape = dims(&buffer.shape, &Scope::default())?;
        args.push(Arg::Tensor(Tensor::zeros(buffer.dtype, &shape)));
    }
    interp::run(&prim, &mut args).map_err(|d| Stop::Fault(d.message))?;
    let mut outputs = vec![];
    for a in args.drain(n..) {
        if let Arg::Tensor(t) = a {
            outputs.push(t);
        }
    }
    if matches!(op.compute, Compute::DataDependent(_)) {
        let actual = outputs.pop().map(|t| t.to_i64()).unwrap_or_default();
        let mut rest = actual.as_slice();
        for t in &mut outputs {
            let (shape, more) = rest.split_at(t.shape.len().min(rest.len()));
            rest = more;
            t.shape = shape.to_vec();
            t.data.truncate(shape.iter().product::<i64>().max(0) as usize * t.dtype.bytes());
        }
    }
    let mut outputs = outputs.into_iter();
    shaped(&out, &mut outputs).ok_or_else(|| Stop::Unsupported(format!("R.{}: results of another number", op.name)))
}

fn shaped(info: &StructInfo, outputs: &mut impl Iterator<Item = Tensor>) -> Option<Value> {
    match info {
        StructInfo::Tuple(f) => Some(Value::Tuple(f.iter().map(|i| shaped(i, outputs)).collect::<Option<_>>()?)),
        _ => outputs.next().map(Value::tensor),
    }
}

/// `R.call_tir` and its kin: `prim` on the fields of a tuple, then the outputs that are stated.
pub fn call_tir(prim: &PrimFunc, call: &Call, values: &[Value], scope: &Scope) -> Result<Value, Stop> {
    let fields = match values.get(1) {
        Some(Value::Tuple(f)) => f.clone(),
        Some(one) => vec![one.clone()],
        None => vec![],
    };
    let mut args = vec![];
    for f in &fields {
        match f {
            Value::Tensor(t) => args.push(Arg::Tensor((**t).clone())),
            Value::Int(_, v) => args.push(Arg::Scalar(*v)),
            Value::Float(_, v) => args.push(Arg::Float(*v)),
            Value::Shape(s) => args.extend(s.iter().map(|d| Arg::Scalar(*d))),
            other => return Err(Stop::Unsupported(format!("{} as argument of a PrimFunc", other.kind()))),
        }
    }
    let inplace = call.attrs.ints("inplace_indices").unwrap_or_default();
    let mut places = vec![];
    for (i, info) in call.sinfo_args.iter().enumerate() {
        if let Some(&at) = inplace.get(i).filter(|at| **at >= 0) {
            places.push(at as usize);
            continue;
        }
        let StructInfo::Tensor(TensorInfo { dtype: Some(dtype), .. }) = info else {
            return Err(Stop::Unsupported("an output that is no tensor of known dtype".to_string()));
        };
        let Some(shape) = info.as_tensor().and_then(TensorInfo::known_dims) else {
            return Err(Stop::Unsupported("an output of unknown shape".to_string()));
        };
        places.push(args.len());
        args.push(Arg::Tensor(Tensor::zeros(*dtype, &dims(shape, scope)?)));
    }
    if let Some(Value::Shape(s)) = values.get(2) {
        args.extend(s.iter().map(|d| Arg::Scalar(*d)));
    }
    interp::run(prim, &mut args).map_err(|d| Stop::Fault(d.message))?;
    let mut outputs = vec![];
    for at in places {
        match args.get(at) {
            Some(Arg::Tensor(t)) => outputs.push(Value::Tensor(Rc::new(t.clone()))),
            _ => return Err(Stop::Unsupported("an output that is no tensor".to_string())),
        }
    }
    Ok(if outputs.len() == 1 { outputs.swap_remove(0) } else { Value::Tuple(outputs) })
}

/// Operators of the host that are more than a kernel; `None` for others.
pub fn host(op: &OpDecl, values: &[Value]) -> Option<Result<Value, Stop>> {
    Some(Ok(match (op.name, values) {
        ("shape_of", [Value::Tensor(t)]) => Value::Shape(t.shape.clone()),
        ("shape_to_tensor", [Value::Shape(s)]) => Value::tensor(Tensor::from_i64(DType::I64, &[s.len() as i64], s)),
        ("tensor_to_shape", [Value::Tensor(t)]) => Value::Shape(t.to_i64()),
        ("null_value", _) => Value::Absent,
        ("assert_op", [condition, ..]) => match super::truth(condition) {
            Ok(true) => Value::Tuple(vec![]),
            Ok(false) => return Some(Err(Stop::Check("assert_op".to_string()))),
            Err(e) => return Some(Err(e)),
        },
        ("builtin.copy" | "builtin.stop_lift_params" | "to_vdevice", [x]) => x.clone(),
        _ => return None,
    }))
}

impl Value {
    fn tensors(&self, out: &mut Vec<Rc<Tensor>>) {
        match self {
            Value::Tensor(t) => out.push(t.clone()),
            Value::Tuple(f) => f.iter().for_each(|v| v.tensors(out)),
            _ => {}
        }
    }
}
