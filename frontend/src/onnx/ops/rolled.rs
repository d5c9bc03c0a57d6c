//! Loops whose number of steps is only known at run time: a local function that calls itself at its end.
//!
//! Its parameters are the step's number, whether to go on, the states, and what each scan output has gathered so far;
//! values of the graphs around the loop are captured, and so are states that every step hands on as they are (weights of
//! TensorFlow's loops). A dim of a state is what it is before the first step when the body keeps it, and a variable of its
//! own otherwise. What the first step alone changes, the rank of a state say, needs
//! that step in front of the function: see [`Outcome::Changed`].

use super::control::{flatten, rebuild, same_structure};
use crate::onnx::builder::Arg;
use crate::onnx::node::NodeCx;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::relax::{Call, Callee, Expr, ExprKind, FuncInfo, Function, Param, RVar, StructInfo};
use relax_ir::{AttrValue, Attrs, DType, Diagnostic, PrimExpr, Span};
use std::sync::Arc;

/// What one step leaves.
pub struct Step {
    pub go: Tensor,
    pub states: Vec<Value>,
    pub scans: Vec<Tensor>,
}

/// Translates the body of one step, of this number, over these states.
pub type Body<'b> = &'b mut dyn FnMut(&mut NodeCx, &Tensor, Vec<Value>) -> Res<Option<Step>>;

/// Where a loop begins.
pub struct Start {
    /// Does the first step run? `None`: yes.
    pub go: Option<Tensor>,
    pub states: Vec<Value>,
    /// Steps that were translated in front of the loop; it counts from there.
    pub done: i64,
    /// What the scan outputs gathered in those steps, if there were any.
    pub scans: Vec<Tensor>,
}

/// What became of a loop.
pub enum Outcome {
    /// The body failed, and said so.
    Failed,
    /// A state is of another rank, dtype or structure behind a step than before it: why that is no loop.
    Changed(Diagnostic),
    /// The states, and the scan outputs stacked along a new first dim.
    Done(Vec<Value>, Vec<Tensor>),
}

/// Repeats `body` up to step `trip` (`None`: without end) while it wants to go on.
pub fn run(cx: &mut NodeCx, trip: Option<&Tensor>, start: &Start, body: Body) -> Res<Outcome> {
    let trip = match trip {
        Some(t) => {
            let t = cx.cast(t, DType::I64)?;
            Some(cx.reshape(&t, &[])?)
        }
        None => None,
    };
    let go = match &start.go {
        Some(t) => cx.reshape(t, &[])?,
        None => Tensor::scalar_int(DType::BOOL, 1),
    };
    let mut first = vec![];
    start.states.iter().for_each(|s| flatten(s, &mut first));
    // Dims that the body keeps; fewer from round to round.
    let literal = |t: &Tensor| t.dims.iter().map(|d| d.as_int().map(PrimExpr::i64)).collect();
    let mut kept: Vec<Kept> = first.iter().map(literal).map(Kept::Dims).collect();
    loop {
        let before = cx.im.diags.list.len();
        match attempt(cx, trip.as_ref(), start, &first, &kept, body)? {
            Attempt::Failed => return Ok(Outcome::Failed),
            Attempt::Changed(d) => {
                cx.im.diags.list.truncate(before);
                return Ok(Outcome::Changed(d));
            }
            Attempt::Narrowed(k) => {
                cx.im.diags.list.truncate(before);
                kept = k;
            }
            Attempt::Done(f) => return start_loop(cx, *f, start, &first, &kept, go),
        }
    }
}

/// What stays of a state from step to step.
#[derive(Clone, PartialEq)]
enum Kept {
    /// All of it.
    Whole,
    /// These dims, as far as is known.
    Dims(Vec<Option<PrimExpr>>),
}

/// The local function.
struct Loop {
    var: RVar,
    function: Function,
    info: StructInfo,
    ret: StructInfo,
    /// Dims of the scan outputs' elements where they are numbers, and their dtypes.
    scans: Vec<(Vec<Option<i64>>, DType)>,
}

enum Attempt {
    Failed,
    Changed(Diagnostic),
    /// Fewer dims stay than was assumed, or whole states do.
    Narrowed(Vec<Kept>),
    Done(Box<Loop>),
}

fn param(cx: &mut NodeCx, name: &str, dims: Vec<PrimExpr>, dtype: DType, params: &mut Vec<Param>) -> Tensor {
    let var = cx.im.b.var(name);
    let info = StructInfo::tensor(dims.clone(), dtype);
    cx.im.b.sinfo.insert(var.clone(), info.clone());
    params.push(Param { var: var.clone(), annotation: Some(info) });
    Tensor::new(var.expr(), dims, dtype)
}

fn attempt(
    cx: &mut NodeCx,
    trip: Option<&Tensor>,
    start: &Start,
    first: &[Tensor],
    kept: &[Kept],
    body: Body,
) -> Res<Attempt> {
    let mut params = vec![];
    let i = param(cx, "i", vec![], DType::I64, &mut params);
    let go = param(cx, "go", vec![], DType::BOOL, &mut params);
    let mut now = vec![];
    for (k, (t, kept)) in first.iter().zip(kept).enumerate() {
        let Kept::Dims(dims) = kept else {
            now.push(t.clone());
            continue;
        };
        let dims = dims.iter().enumerate();
        let dims = dims.map(|(d, e)| e.clone().unwrap_or_else(|| cx.im.b.fresh_dim(&format!("state_{k}_{d}"))));
        let dims: Vec<PrimExpr> = dims.collect();
        now.push(param(cx, &format!("state_{k}"), dims, t.dtype, &mut params).of_kind(t.kind));
    }
    cx.im.b.open();
    cx.im.b.open();
    let result = step(cx, &i, &start.states, &now, kept, body);
    let step = match result {
        Ok(Ok(s)) => s,
        other => {
            cx.im.b.discard();
            cx.im.b.discard();
            return other.map(|r| r.err().unwrap_or(Attempt::Failed));
        }
    };
    // Behind the body: what the scan outputs gather.
    let mut gathered = vec![];
    let mut scans = vec![];
    let varies = |(t, kept): (Tensor, &Kept)| (*kept != Kept::Whole).then_some(t);
    let mut next: Vec<Tensor> = step.states.into_iter().zip(kept).filter_map(varies).collect();
    let now: Vec<Tensor> = now.into_iter().zip(kept).filter_map(varies).collect();
    for (k, t) in step.scans.iter().enumerate() {
        let literal: Vec<Option<i64>> = t.dims.iter().map(PrimExpr::as_int).collect();
        let mut dims = vec![cx.im.b.fresh_dim(&format!("scan_{k}"))];
        for (d, l) in literal.iter().enumerate() {
            dims.push(l.map_or_else(|| cx.im.b.fresh_dim(&format!("scan_{k}_{d}")), PrimExpr::i64));
        }
        let all = param(cx, &format!("scan_{k}"), dims, t.dtype, &mut params);
        next.push(match start.done {
            0 => append(cx, &i, &all, t)?,
            _ => append_next(cx, &all, t)?,
        });
        gathered.push(all);
        scans.push((literal, t.dtype));
    }
    let one = Tensor::scalar_int(DType::I64, 1);
    let counted = cx.op("add", &[&i, &one])?;
    let mut args = vec![cx.im.b.expr(&counted)?, cx.im.b.expr(&step.go)?];
    for t in &next {
        args.push(cx.im.b.expr(t)?);
    }
    let open = |dims: &[PrimExpr], dtype: DType| match dims.iter().all(|d| d.as_int().is_some()) {
        true => StructInfo::tensor(dims.to_vec(), dtype),
        false => StructInfo::tensor_ndim(Some(dims.len()), Some(dtype)),
    };
    let all: Vec<&Tensor> = now.iter().chain(&gathered).collect();
    let ret = StructInfo::Tuple(all.iter().map(|t| open(&t.dims, t.dtype)).collect());
    let var = cx.im.b.var("rounds");
    let types = params.iter().filter_map(|p| p.annotation.clone()).collect();
    let info = FuncInfo { params: Some(types), ret: ret.clone(), pure: true, derive: None };
    let info = StructInfo::Func(Arc::new(info));
    cx.im.b.sinfo.insert(var.clone(), info.clone());
    let again = Call { callee: Callee::Expr(var.expr()), args, attrs: Attrs::default(), sinfo_args: vec![] };
    let again = Expr::new(ExprKind::Call(again), Span::NONE);
    let again = cx.im.b.bind_typed("again", again, ret.clone());
    let then = cx.im.b.close(again);
    cx.im.b.open();
    let fields = all.iter().map(|t| cx.im.b.expr(t)).collect::<Res<Vec<_>>>()?;
    let done = cx.im.b.bind_typed("done", Expr::new(ExprKind::Tuple(fields), Span::NONE), ret.clone());
    let otherwise = cx.im.b.close(done);
    let more = match trip {
        Some(n) => {
            let left = cx.op("less", &[&i, n])?;
            cx.op("logical_and", &[&go, &left])?
        }
        None => go,
    };
    let cond = cx.im.b.expr(&more)?;
    let e = ExprKind::If { cond, then: Arc::new(then), otherwise: Arc::new(otherwise) };
    let e = cx.im.b.bind_typed("round", Expr::new(e, Span::NONE), ret.clone());
    let body = cx.im.b.close(e);
    let function = Function {
        name: "rounds".into(),
        params,
        ret: Some(ret.clone()),
        body: Arc::new(body),
        attrs: Attrs::default(),
        private: true,
        pure: true,
        span: Span::NONE,
        signature_span: Span::NONE,
    };
    Ok(Attempt::Done(Box::new(Loop { var, function, info, ret, scans })))
}

/// One step whose states are flat tensors.
struct FlatStep {
    go: Tensor,
    states: Vec<Tensor>,
    scans: Vec<Tensor>,
}

fn step(
    cx: &mut NodeCx,
    i: &Tensor,
    states: &[Value],
    now: &[Tensor],
    kept: &[Kept],
    body: Body,
) -> Res<Result<FlatStep, Attempt>> {
    let mut tensors = now.iter().cloned();
    let values: Vec<Value> = states.iter().map(|s| rebuild(s, &mut tensors)).collect();
    let Some(step) = body(cx, i, values)? else { return Ok(Err(Attempt::Failed)) };
    if step.states.iter().any(|v| matches!(v, Value::Poison)) {
        return Ok(Err(Attempt::Failed));
    }
    if step.states.len() != states.len() || !step.states.iter().zip(states).all(|(a, b)| same_structure(a, b)) {
        let d = "a loop that changes the structure of a state in steps whose number is only known at run time";
        let d = cx.unsupported(d).help("state the number of steps with --structure NAME=[STEPS]");
        return Ok(Err(Attempt::Changed(d)));
    }
    let mut next = vec![];
    step.states.iter().for_each(|s| flatten(s, &mut next));
    let mut narrowed = kept.to_vec();
    for (k, (a, b)) in next.iter().zip(now).enumerate() {
        if a.dtype != b.dtype || a.rank() != b.rank() {
            let d = cx.unsupported(format!(
                "state {k} of a loop has {} dims of {} before a step and {} of {} behind it",
                b.rank(),
                b.dtype,
                a.rank(),
                a.dtype
            ));
            let d = d.help(
                "a first step that is known to run is translated on its own: make the trip count and the condition \
                 constants, or state the input that decides them with --structure NAME=[VALUE]",
            );
            return Ok(Err(Attempt::Changed(d)));
        }
        let Kept::Dims(dims) = &mut narrowed[k] else { continue };
        if a.leaf().is_some() && a.leaf() == b.leaf() {
            narrowed[k] = Kept::Whole;
            continue;
        }
        for (slot, d) in dims.iter_mut().zip(&a.dims) {
            if slot.as_ref().is_some_and(|s| s != d) {
                *slot = None;
            }
        }
    }
    if narrowed != kept {
        return Ok(Err(Attempt::Narrowed(narrowed)));
    }
    let go = cx.reshape(&step.go, &[])?;
    Ok(Ok(FlatStep { go, states: next, scans: step.scans }))
}

/// `all` and one more.
fn append_next(cx: &mut NodeCx, all: &Tensor, t: &Tensor) -> Res<Tensor> {
    let mut dims = vec![all.dims[0].clone()];
    dims.extend(t.dims.iter().cloned());
    let leaf = cx.im.b.expr(all)?;
    let cast = cx.im.b.match_cast("gathered", leaf, StructInfo::tensor(dims.clone(), t.dtype));
    let gathered = Tensor::new(cast, dims, t.dtype);
    let single = cx.unsqueeze(t, &[0])?;
    cx.call("concat", &[[gathered, single].as_slice().into()], &[("axis", AttrValue::Int(0))])
}

/// As [`append_next`]; `all` may have nothing yet.
fn append(cx: &mut NodeCx, i: &Tensor, all: &Tensor, t: &Tensor) -> Res<Tensor> {
    let axis = [("axis", AttrValue::Int(0))];
    if t.dims.iter().all(|d| d.as_int().is_some()) {
        let t = cx.unsqueeze(t, &[0])?;
        return cx.call("concat", &[[all.clone(), t].as_slice().into()], &axis);
    }
    // Before the first step the dims of the elements are not known; afterwards they are those of the first.
    let zero = Tensor::scalar_int(DType::I64, 0);
    let fresh = cx.op("equal", &[i, &zero])?;
    let cond = cx.im.b.expr(&fresh)?;
    cx.im.b.open();
    let single = cx.unsqueeze(t, &[0])?;
    let single = cx.im.b.expr(&single)?;
    let then = cx.im.b.close(single);
    cx.im.b.open();
    let longer = append_next(cx, all, t)?;
    let longer = cx.im.b.expr(&longer)?;
    let otherwise = cx.im.b.close(longer);
    let info = StructInfo::tensor_ndim(Some(all.rank()), Some(t.dtype));
    let e = ExprKind::If { cond, then: Arc::new(then), otherwise: Arc::new(otherwise) };
    let e = cx.im.b.bind_typed("gathered", Expr::new(e, Span::NONE), info.clone());
    cx.im.b.tensor("gathered", e, info)
}

/// Defines the function and calls it for its first step.
fn start_loop(cx: &mut NodeCx, f: Loop, start: &Start, first: &[Tensor], kept: &[Kept], go: Tensor) -> Res<Outcome> {
    let e = Expr::new(ExprKind::Function(Arc::new(f.function)), Span::NONE);
    cx.im.b.define(f.var.clone(), e, f.info);
    let done = Tensor::scalar_int(DType::I64, start.done);
    let mut args = vec![cx.im.b.expr(&done)?, cx.im.b.expr(&go)?];
    let varying: Vec<&Tensor> = first.iter().zip(kept).filter(|(_, k)| **k != Kept::Whole).map(|(t, _)| t).collect();
    for t in &varying {
        args.push(cx.im.b.expr(t)?);
    }
    for (k, (dims, dtype)) in f.scans.iter().enumerate() {
        if let Some(t) = start.scans.get(k) {
            let fits = |(a, b): (&PrimExpr, &Option<i64>)| a.as_int().is_none() || b.is_none() || a.as_int() == *b;
            if t.dtype != *dtype || t.rank() != dims.len() + 1 || !t.dims[1..].iter().zip(dims).all(fits) {
                return Err(cx.error(format!("the elements of scan output {k} differ from step to step")));
            }
            args.push(cx.im.b.expr(t)?);
            continue;
        }
        let mut empty = vec![PrimExpr::i64(0)];
        empty.extend(dims.iter().map(|d| PrimExpr::i64(d.unwrap_or(0))));
        let none = Tensor::scalar(*dtype, 0.0);
        let none = cx.call("full", &[Arg::shape(&empty), none.into()], &[("dtype", AttrValue::DType(*dtype))])?;
        args.push(cx.im.b.expr(&none)?);
    }
    let call = Call { callee: Callee::Expr(f.var.expr()), args, attrs: Attrs::default(), sinfo_args: vec![] };
    let e = cx.im.b.bind_typed("looped", Expr::new(ExprKind::Call(call), Span::NONE), f.ret.clone());
    let mut all = cx.im.b.tensors("looped", e, f.ret)?;
    let scans = all.split_off(varying.len());
    let mut all = all.into_iter();
    let mut all = first.iter().zip(kept).map(|(f, kept)| match kept {
        Kept::Whole => f.clone(),
        Kept::Dims(_) => all.next().map_or_else(|| f.clone(), |t| t.of_kind(f.kind)),
    });
    let states = start.states.iter().map(|s| rebuild(s, &mut all)).collect();
    Ok(Outcome::Done(states, scans))
}
