//! Runs single operators on plain values: infer, compute, then the reference interpreter.

// Each test uses a part.
#![allow(dead_code)]

pub mod json;
pub mod program;

use relax_ir::op::{Compute, ComputeCx, InferCx, OpDecl};
use relax_ir::prim::{PrimExpr, Var};
use relax_ir::relax::{Expr, ExprKind, StructInfo};
use relax_ir::sym::Facts;
use relax_ir::tir::{PrimFunc, PrimParam};
use relax_ir::{Attrs, DType, Span};
use relax_lower::interp::{self, Arg, Tensor};
use relax_lower::schedule::{machine, SchedOptions};
use std::collections::HashMap;

/// A value at run time.
#[derive(Clone, Debug)]
pub enum Value {
    Tensor(Tensor),
    Shape(Vec<i64>),
    Prim(PrimExpr),
    Tuple(Vec<Value>),
    Absent,
}

impl Value {
    /// The tensors of a value, tuples flattened.
    pub fn leaves(&self) -> Vec<&Tensor> {
        match self {
            Value::Tensor(t) => vec![t],
            Value::Tuple(f) => f.iter().flat_map(Value::leaves).collect(),
            _ => vec![],
        }
    }
}

/// How dims reach shape rules and kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dims {
    /// As numbers.
    Static,
    /// As shape variables, one per distinct extent above 1: kernels are built symbolically and bound when they run.
    Symbolic,
}

/// Shape variables in use, by extent.
struct Names {
    mode: Dims,
    of: HashMap<i64, Var>,
}

impl Names {
    fn dim(&mut self, d: i64) -> PrimExpr {
        if self.mode == Dims::Static || d <= 1 {
            return PrimExpr::i64(d);
        }
        self.of.entry(d).or_insert_with(|| Var::dim(format!("d{d}"))).expr()
    }

    fn values(&self) -> HashMap<Var, PrimExpr> {
        self.of.iter().map(|(d, v)| (v.clone(), PrimExpr::i64(*d))).collect()
    }

    fn info(&mut self, v: &Value) -> StructInfo {
        match v {
            Value::Tensor(t) => {
                let dims = t.shape.iter().map(|d| self.dim(*d)).collect();
                StructInfo::tensor(dims, t.dtype)
            }
            Value::Shape(s) => StructInfo::shape(s.iter().map(|d| self.dim(*d)).collect()),
            Value::Prim(p) => StructInfo::Prim { dtype: p.dtype(), value: Some(p.clone()) },
            Value::Tuple(f) => StructInfo::Tuple(f.iter().map(|v| self.info(v)).collect()),
            Value::Absent => StructInfo::Object,
        }
    }

    fn expr(&mut self, v: &Value) -> Expr {
        let kind = match v {
            Value::Tensor(_) => ExprKind::Var(relax_ir::relax::RVar::new("x", false, Span::NONE)),
            Value::Shape(s) => ExprKind::Shape(s.iter().map(|d| self.dim(*d)).collect()),
            Value::Prim(p) => ExprKind::Prim(p.clone()),
            Value::Tuple(f) => ExprKind::Tuple(f.iter().map(|v| self.expr(v)).collect()),
            Value::Absent => ExprKind::Absent,
        };
        Expr::new(kind, Span::NONE)
    }
}

fn number(e: &PrimExpr, at: &HashMap<Var, PrimExpr>) -> Result<i64, String> {
    use relax_ir::op::ShapeFacts;
    let e = e.substitute(at);
    e.as_int().or_else(|| Facts::new().simplify(&e).as_int()).ok_or_else(|| format!("{e:?} has no value"))
}

fn zeros(info: &StructInfo, at: &HashMap<Var, PrimExpr>) -> Result<Vec<Tensor>, String> {
    match info {
        StructInfo::Tuple(f) => f.iter().map(|i| zeros(i, at)).collect::<Result<Vec<_>, _>>().map(|v| v.concat()),
        StructInfo::Tensor(t) => {
            let dims = t.known_dims().ok_or("the shape is not derived")?;
            let dims = dims.iter().map(|d| number(d, at)).collect::<Result<Vec<_>, _>>()?;
            Ok(vec![Tensor::zeros(t.dtype.ok_or("the dtype is not derived")?, &dims)])
        }
        other => Err(format!("{other:?} is no tensor")),
    }
}

/// A kernel with its arguments, outputs included.
pub struct Ready {
    pub kernel: PrimFunc,
    pub params: Vec<Arg>,
    pub n_inputs: usize,
    /// Values of the shape variables.
    pub dims: HashMap<Var, PrimExpr>,
    out: StructInfo,
    dynamic: bool,
}

impl Ready {
    /// Evaluates an expression over the shape variables.
    pub fn number(&self, e: &PrimExpr) -> Result<i64, String> {
        number(e, &self.dims)
    }
}

/// Infers one call, builds its kernel and allocates its outputs.
pub fn prepare(op: &'static OpDecl, args: &[Value], attrs: &Attrs, mode: Dims) -> Result<Ready, String> {
    let mut names = Names { mode, of: HashMap::new() };
    let mut infos: Vec<StructInfo> = args.iter().map(|a| names.info(a)).collect();
    if matches!(op.name, "gather_nd" | "scatter_nd") {
        // The length of index tuples is a number.
        if let (Some(StructInfo::Tensor(info)), Some(Value::Tensor(t))) = (infos.get_mut(1), args.get(1)) {
            let mut dims = info.known_dims().map(<[PrimExpr]>::to_vec).unwrap_or_default();
            if let (Some(d), Some(v)) = (dims.last_mut(), t.shape.last()) {
                *d = PrimExpr::i64(*v);
            }
            *info = info.with_dims(Some(dims), None);
        }
    }
    let exprs: Vec<Expr> = args.iter().map(|a| names.expr(a)).collect();
    let at = names.values();
    let mut facts = Facts::new();
    let mut cx =
        InferCx { op, args: &exprs, infos: &infos, attrs, sinfo_args: &[], span: Span::NONE, facts: &mut facts };
    let out = (op.infer)(&mut cx).map_err(|d| d.message)?;
    for r in facts.take_requirements() {
        if number(&r.condition, &at)? == 0 {
            return Err(r.message);
        }
    }
    let cx = ComputeCx { op, args: &exprs, infos: &infos, attrs, out: &out, span: Span::NONE };
    let (kernel, dynamic) = match op.compute {
        Compute::Kernel(f) => (f(&cx), false),
        Compute::DataDependent(f) => (f(&cx), true),
        Compute::Host => return Err("a host operator".to_string()),
        Compute::Unsupported(why) => return Err(why.to_string()),
    };
    let kernel = kernel.map_err(|d| d.message)?;
    let mut params = vec![];
    let inputs: Vec<&Tensor> = args.iter().flat_map(Value::leaves).collect();
    let mut inputs = inputs.into_iter().cloned();
    let buffers = kernel.buffers().count();
    let n_inputs = inputs.len();
    if buffers <= n_inputs {
        return Err(format!("{buffers} buffer parameters for {n_inputs} inputs and at least one output"));
    }
    let mut outputs = if dynamic {
        // Upper bounds come from the kernel itself.
        let outs = kernel.buffers().skip(n_inputs);
        let zero = |b: &relax_ir::tir::Buffer| {
            let dims = b.shape.iter().map(|d| number(d, &at)).collect::<Result<Vec<_>, _>>()?;
            Ok::<_, String>(Tensor::zeros(b.dtype(), &dims))
        };
        outs.map(zero).collect::<Result<Vec<_>, _>>()?
    } else {
        zeros(&out, &at)?
    }
    .into_iter();
    for p in &kernel.params {
        params.push(match p {
            PrimParam::Scalar(v) => Arg::Scalar(number(&v.expr(), &at)?),
            PrimParam::Buffer { .. } | PrimParam::Handle { .. } => {
                let t = inputs.next().or_else(|| outputs.next());
                Arg::Tensor(t.ok_or("more buffer parameters than inputs and outputs")?)
            }
        });
    }
    if outputs.next().is_some() {
        return Err("fewer buffer parameters than inputs and outputs".to_string());
    }
    Ok(Ready { kernel, params, n_inputs, dims: at, out, dynamic })
}

/// Runs one call in the reference interpreter and as a scheduled kernel. The result has the structure of the derived
/// struct info.
pub fn call(op: &'static OpDecl, args: &[Value], attrs: &Attrs, mode: Dims) -> Result<Value, String> {
    let Ready { kernel, mut params, n_inputs, out, dynamic, .. } = prepare(op, args, attrs, mode)?;
    let mut scheduled = params.clone();
    interp::run(&kernel, &mut params).map_err(|d| d.message)?;
    machine::run(&kernel, &mut scheduled, &SchedOptions::default()).map_err(|e| format!("scheduled: {e}"))?;
    for (want, got) in params.iter().zip(&scheduled) {
        if let (Some(want), Some(got)) = (want.tensor(), got.tensor()) {
            compare(got, want, 1e-4, 1e-4).map_err(|e| format!("scheduled: {e}"))?;
        }
    }
    let tensors: Vec<Tensor> = params.into_iter().filter_map(|a| a.tensor().cloned()).skip(n_inputs).collect();
    let mut results = if dynamic { actual(tensors)? } else { tensors }.into_iter();
    shape_like(&out, &mut results).ok_or_else(|| "results are missing".to_string())
}

/// Cuts data-dependent outputs to their actual dims, which the last one holds.
fn actual(mut tensors: Vec<Tensor>) -> Result<Vec<Tensor>, String> {
    let mut dims = tensors.pop().ok_or("no dims output")?.to_i64().into_iter();
    let cut = |t: &Tensor| {
        let shape: Vec<i64> = dims.by_ref().take(t.shape.len()).collect();
        let n = shape.iter().product::<i64>() as usize * t.dtype.bytes();
        Tensor { dtype: t.dtype, shape, data: t.data[..n].to_vec() }
    };
    Ok(tensors.iter().map(cut).collect())
}

fn shape_like(info: &StructInfo, tensors: &mut impl Iterator<Item = Tensor>) -> Option<Value> {
    match info {
        StructInfo::Tuple(f) => {
            Some(Value::Tuple(f.iter().map(|i| shape_like(i, tensors)).collect::<Option<Vec<_>>>()?))
        }
        _ => tensors.next().map(Value::Tensor),
    }
}

/// The worst difference of two tensors; an error text when they are not close.
pub fn compare(got: &Tensor, want: &Tensor, rtol: f64, atol: f64) -> Result<(), String> {
    if got.dtype != want.dtype || got.shape != want.shape {
        return Err(format!("{} {:?}, expected {} {:?}", got.dtype, got.shape, want.dtype, want.shape));
    }
    let half = want.dtype.is_float() && want.dtype.bits == 16;
    let (rtol, atol) = if half { (rtol.max(2e-3), atol.max(2e-3)) } else { (rtol, atol) };
    let (a, b) = if want.dtype.is_float() || want.dtype == DType::BOOL {
        (got.to_f64(), want.to_f64())
    } else {
        if got.to_i64() != want.to_i64() {
            return Err(format!("{:?}\nexpected {:?}", short(&got.to_i64()), short(&want.to_i64())));
        }
        return Ok(());
    };
    for (i, (x, y)) in a.iter().zip(&b).enumerate() {
        let same = x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= atol + rtol * y.abs();
        if !same {
            return Err(format!("element {i} is {x}, expected {y}\n{:?}\nexpected {:?}", short(&a), short(&b)));
        }
    }
    Ok(())
}

fn short<T: Clone>(v: &[T]) -> Vec<T> {
    v.iter().take(24).cloned().collect()
}
