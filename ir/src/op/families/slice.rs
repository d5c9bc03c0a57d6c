//! Slices and their inverses.
//!
//! Begin and end count from the end when negative and are clipped to the dim, as in Python; those of slice_scatter do not.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::unflatten;
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::{PrimFunc, Stmt};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "strided_slice",
        "`x[begin:end:stride]` on each of `axes`; with `assume_inbound` begin and end are taken as they are.",
        &[
            operand("x"),
            operand("axes"),
            operand("begin"),
            operand("end"),
            optional("strides"),
            attr("assume_inbound", Default::Bool(false)),
        ],
        infer_strided_slice,
        Compute::Kernel(strided_slice),
    ),
    OpDecl::pure(
        "dynamic_strided_slice",
        "`x[begin:end:stride]` on every axis, the bounds in int64 tensors; the shape depends on their values.",
        &[operand("x"), operand("begin"), operand("end"), operand("strides")],
        infer_dynamic,
        Compute::DataDependent(dynamic),
    ),
    OpDecl::pure(
        "slice_scatter",
        "`input_tensor` with `[start:end:step]` on `axis` replaced by `src`; what lies outside of it is dropped.",
        &[
            operand("input_tensor"),
            operand("src"),
            operand("start"),
            operand("end"),
            operand("step"),
            attr("axis", Default::Int(0)),
        ],
        infer_slice_scatter,
        Compute::Kernel(slice_scatter),
    ),
];

/// One axis of a slice: where it starts, its step and its length.
struct Cut {
    begin: PrimExpr,
    step: i64,
    len: PrimExpr,
    /// What `assume_inbound` assumes of begin and end: a slice that breaks it would read outside of the tensor.
    assumed: Vec<PrimExpr>,
}

/// Python's slice of a dim of `n`. `known(c)` tells whether a condition is known to hold: what need not be clipped is
/// not.
fn cut(
    begin: PrimExpr,
    end: PrimExpr,
    step: i64,
    n: &PrimExpr,
    inbound: bool,
    known: &mut dyn FnMut(PrimExpr) -> bool,
) -> Cut {
    let zero = PrimExpr::i64(0);
    let up = step > 0;
    // The range that a bound is clipped to: [0, n] forwards, [-1, n - 1] backwards.
    let (low, high) = if up { (zero.clone(), n.clone()) } else { (PrimExpr::i64(-1), n.clone() - 1) };
    let mut clip = |i: PrimExpr| {
        let i = i.cast(DType::I64);
        // A bound that may be negative is clipped at both ends, as TVM states it: then stated and derived dims agree.
        match i.as_int() {
            // No memory holds a longer dim: to its end, or from before its begin.
            Some(v) if v >= MOST_BYTES => return high.clone(),
            Some(v) if v <= -MOST_BYTES => return low.clone(),
            Some(v) if v < 0 => return (i + n.clone()).max(low.clone()).min(high.clone()),
            None if !known(i.clone().ge(zero.clone())) => {
                let wrapped = i.clone().lt(zero.clone()).if_then_else(i.clone() + n.clone(), i);
                return wrapped.max(low.clone()).min(high.clone());
            }
            _ => {}
        }
        if known(i.clone().le(high.clone())) {
            i
        } else {
            i.min(high.clone())
        }
    };
    // What is assumed costs nothing to see to where the dim is known.
    let inbound = inbound && n.as_int().is_none();
    let wrap = |i: PrimExpr| {
        let i = i.cast(DType::I64);
        if i.as_int().is_some_and(|v| v < 0) {
            i + n.clone()
        } else {
            i
        }
    };
    let (b, e) = if inbound { (wrap(begin), wrap(end)) } else { (clip(begin), clip(end)) };
    let inside = |i: &PrimExpr| [i.clone().ge(low.clone()), i.clone().le(high.clone())];
    let assumed = if inbound { [inside(&b), inside(&e)].concat() } else { vec![] };
    let span = if up { rule::length(&b, &e) } else { b.clone() - e };
    let by = step.abs();
    let len = (span.clone() + (by - 1)).floor_div(PrimExpr::i64(by));
    let len = if inbound || known(span.ge(zero.clone())) { len } else { len.max(zero) };
    Cut { begin: b, step, len, assumed }
}

/// The cuts of a strided slice by axis; `None` where a bound is not stated.
fn cuts(
    operands: [Option<Vec<PrimExpr>>; 4],
    dims: &[PrimExpr],
    inbound: bool,
    known: &mut dyn FnMut(PrimExpr) -> bool,
) -> Result<Option<Vec<Option<Cut>>>, String> {
    let [Some(axes), Some(begin), Some(end), strides] = operands else { return Ok(None) };
    if begin.len() != axes.len() || end.len() != axes.len() || strides.as_ref().is_some_and(|s| s.len() != axes.len()) {
        return Err("axes, begin, end and strides must have as many entries each".to_string());
    }
    let mut out: Vec<Option<Cut>> = dims.iter().map(|_| None).collect();
    for (p, a) in axes.iter().enumerate() {
        let a = a.as_int().ok_or("axes must be integers")?;
        let axis = rule::wrap_axis(a, dims.len())
            .ok_or_else(|| format!("axis {a} is out of range for a tensor of rank {}", dims.len()))?;
        let step = match &strides {
            Some(s) => s[p].as_int().ok_or("strides must be integers")?,
            None => 1,
        };
        // Beyond this every slice has one element: no memory holds a longer dim.
        let step = step.clamp(-MOST_BYTES, MOST_BYTES);
        if step == 0 {
            return Err("a stride is 0".to_string());
        }
        if out[axis].is_some() {
            return Err(format!("axis {axis} is given twice"));
        }
        out[axis] = Some(cut(begin[p].clone(), end[p].clone(), step, &dims[axis], inbound, known));
    }
    Ok(Some(out))
}

fn infer_strided_slice(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    // As TVM: bounds are tuples, also where a name stands for them.
    if let Some(i) = (1..5).find(|&i| matches!(cx.infos.get(i), Some(StructInfo::Shape { .. }))) {
        return Err(cx.error(format!("operand {} must be a tuple of integers, not a shape", cx.operand(i))));
    }
    let other = |info: &StructInfo| matches!(info, StructInfo::Prim { dtype, .. } if *dtype != DType::I64);
    let narrow = |i: &usize| matches!(cx.infos.get(*i), Some(StructInfo::Tuple(f)) if f.iter().any(other));
    if let Some(i) = (1..5).find(narrow) {
        return Err(
            cx.error(format!("operand {} must be a tuple of int64, with an element of another type", cx.operand(i)))
        );
    }
    let list =
        |i: usize| rule::scalar_values(cx.args.get(i).filter(|_| cx.has(i)), cx.infos.get(i).filter(|_| cx.has(i)));
    let operands = [list(1), list(2), list(3), list(4)];
    if cx.has(4) && operands[3].is_none() {
        return Ok(StructInfo::Tensor(t.with_dims(None, t.ndim)));
    }
    let Some(dims) = t.known_dims() else { return Ok(StructInfo::Tensor(t.with_dims(None, t.ndim))) };
    let inbound = cx.attrs.bool("assume_inbound").unwrap_or(false);
    let facts = &mut *cx.facts;
    let found = cuts(operands, dims, inbound, &mut |c| facts.prove(&c) == Answer::Yes).map_err(|e| cx.error(e))?;
    let Some(found) = found else { return Ok(StructInfo::Tensor(t.with_dims(None, t.ndim))) };
    for (axis, c) in found.iter().enumerate() {
        for condition in c.iter().flat_map(|c| &c.assumed) {
            let text = || {
                let n = dim_text(&dims[axis]);
                format!("begin and end on axis {axis} must be inside of its {n} elements, as assume_inbound says")
            };
            cx.require(condition.clone(), text)?;
        }
    }
    let dims = dims.iter().zip(found).map(|(d, c)| match c {
        Some(c) => cx.simplify(c.len),
        None => d.clone(),
    });
    let dims = dims.collect();
    Ok(StructInfo::Tensor(t.with_dims(Some(dims), None)))
}

/// What is obvious without a prover: literals.
fn literally(c: PrimExpr) -> bool {
    c.is_int(1)
}

fn strided_slice(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, out) = (&inputs[0], cx.result()?);
    let operands = [cx.scalars(1), cx.scalars(2), cx.scalars(3), cx.scalars(4)];
    let inbound = cx.attrs.bool("assume_inbound").unwrap_or(false);
    let cuts = cuts(operands, &x.shape, inbound, &mut literally)
        .map_err(|e| cx.error(e))?
        .ok_or_else(|| cx.error("the bounds are not known"))?;
    let y = k.compute("slice", out.dims, out.dtype, |i| {
        let at = |(i, c): (&PrimExpr, &Option<Cut>)| match c {
            Some(c) => c.begin.clone() + i.clone() * c.step,
            None => i.clone(),
        };
        x.at(i.iter().zip(&cuts).map(at).collect::<Vec<_>>())
    });
    Ok(k.finish(&[y]))
}

fn infer_dynamic(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    for i in 1..4 {
        let b = cx.tensor(i)?.clone();
        if let Some(d) = b.dtype.filter(|d| *d != DType::I64) {
            return Err(cx.error(format!("operand {} must be int64, it is {d}", cx.operand(i))));
        }
        if b.known_dims().is_none() {
            return Err(cx.error(format!("the shape of operand {} must be known", cx.operand(i))));
        }
        if b.ndim.is_some_and(|n| n != 1) {
            return Err(cx.error(format!("operand {} must have one dim", cx.operand(i))));
        }
        if let (Some(n), Some(d)) = (t.ndim, b.known_dims()) {
            cx.require_eq(&d[0], &PrimExpr::i64(n as i64), || {
                format!("operand {} has {} entries, x has {n} dims", i + 1, dim_text(&d[0]))
            })?;
        }
    }
    Ok(StructInfo::Tensor(t.with_dims(None, t.ndim)))
}

/// The actual dims go to the second output; a slice is never larger than `x`.
fn dynamic(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = inputs[0].clone();
    let rank = x.ndim();
    let y = k.buffer("slice", &x.shape, x.dtype());
    let dims = k.buffer("dims", &[PrimExpr::i64(rank as i64)], DType::I64);
    let bound = |b: usize, axis: usize| inputs[b].at([PrimExpr::i64(axis as i64)]).cast(DType::I64);
    let zero = PrimExpr::i64(0);
    let mut begins = vec![];
    for (axis, n) in x.shape.iter().enumerate() {
        let step = bound(3, axis);
        let back = step.clone().lt(zero.clone());
        let low = back.clone().select(PrimExpr::i64(-1), zero.clone());
        let high = back.clone().select(n.clone() - 1, n.clone());
        let clip = |i: PrimExpr| {
            i.clone().lt(zero.clone()).select(i.clone() + n.clone(), i).max(low.clone()).min(high.clone())
        };
        let (b, e) = (clip(bound(1, axis)), clip(bound(2, axis)));
        let forward = (e.clone() - b.clone() + step.clone() - 1).floor_div(step.clone());
        let backward = (b.clone() - e - step.clone() - 1).floor_div(step.clone().neg());
        // A step of 0 is taken as nothing selected.
        let none = step.clone().eq(zero.clone());
        let len = none.if_then_else(zero.clone(), back.if_then_else(backward, forward)).max(zero.clone());
        k.write(&format!("dims_{axis}"), &dims, &[], |_| vec![PrimExpr::i64(axis as i64)], |_| len);
        begins.push((b, step));
    }
    let axes: Vec<PrimExpr> = (0..rank).map(|a| dims.at([PrimExpr::i64(a as i64)])).collect();
    k.rows("slice", &[], |_| {
        let vars: Vec<crate::Var> = (0..rank).map(|i| crate::Var::dim(format!("i{i}"))).collect();
        let i: Vec<PrimExpr> = vars.iter().map(|v| v.expr()).collect();
        let from: Vec<PrimExpr> = begins.iter().zip(&i).map(|((b, s), i)| b.clone() + i.clone() * s.clone()).collect();
        let body = Stmt::store(&y, unflatten(elem::flat_index(&i, &axes), &y.shape), x.at(from));
        vars.iter().zip(&axes).rev().fold(body, |s, (v, e)| Stmt::for_serial(v, e.clone(), s))
    });
    Ok(k.finish(&[y, dims]))
}

fn infer_slice_scatter(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (t, src) = (cx.tensor(0)?.clone(), cx.tensor(1)?.clone());
    for i in 2..5 {
        match cx.infos.get(i) {
            Some(StructInfo::Prim { dtype, .. }) if !dtype.is_int() => {
                return Err(cx.error(format!("{} must be an integer, it is {dtype}", cx.operand(i))));
            }
            _ => {}
        }
    }
    cx.same_dtype(&[("input_tensor", t.dtype), ("src", src.dtype)])?;
    if let (Some(a), Some(b)) = (t.ndim, src.ndim) {
        if a != b {
            return Err(cx.error(format!("input_tensor has {a} dims, src has {b}")));
        }
    }
    let (Some(d), Some(s)) = (t.known_dims(), src.known_dims()) else { return Ok(StructInfo::Tensor(t)) };
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(0), d.len())?;
    let Some((begin, end, step)) = bounds([cx.scalar(2), cx.scalar(3), cx.scalar(4)]) else {
        return Ok(StructInfo::Tensor(t));
    };
    if step < 1 {
        return Err(cx.error(format!("step must be positive, it is {step}")));
    }
    if cx.facts.prove(&begin.clone().le(end.clone())) == Answer::No {
        return Err(cx.error(format!("start {} is beyond end {}", dim_text(&begin), dim_text(&end))));
    }
    let len = cx.simplify(steps(&begin, &end, step));
    for (i, (a, b)) in d.iter().zip(s).enumerate() {
        let wanted = if i == axis { len.clone() } else { a.clone() };
        let text = || format!("src has {} elements on axis {i}, the slice has {}", dim_text(b), dim_text(&wanted));
        cx.require_eq(&wanted, b, text)?;
    }
    Ok(StructInfo::Tensor(t))
}

/// How many elements there are from `begin` to `end`, whether the tensor has them or not.
///
/// Source: TVM src/relax/op/tensor/manipulate.cc, InferStructInfoSliceScatter: bounds do not wrap and are not clipped.
fn steps(begin: &PrimExpr, end: &PrimExpr, step: i64) -> PrimExpr {
    match (begin.as_int(), end.as_int()) {
        // Literals may be as far apart as an int64 cannot say: no tensor is as long either.
        (Some(b), Some(e)) => PrimExpr::i64(e.saturating_sub(b).saturating_add(step - 1).div_euclid(step)),
        _ => (end.clone() - begin.clone() + (step - 1)).floor_div(PrimExpr::i64(step)),
    }
}

fn bounds(list: [Option<PrimExpr>; 3]) -> Option<(PrimExpr, PrimExpr, i64)> {
    let [begin, end, step] = list;
    Some((begin?.cast(DType::I64), end?.cast(DType::I64), step?.as_int()?))
}

fn slice_scatter(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, src) = (&inputs[0], &inputs[1]);
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(0), x.ndim())?;
    let (begin, end, step) = bounds([cx.scalar(2), cx.scalar(3), cx.scalar(4)])
        .ok_or_else(|| cx.error("start and end must be known, step a number"))?;
    // The elements of src that lie inside of the tensor.
    let (zero, n, rows) = (PrimExpr::i64(0), &x.shape[axis], &src.shape[axis]);
    let ceil = |e: PrimExpr| (e + (step - 1)).floor_div(PrimExpr::i64(step));
    let first = if literally(begin.clone().ge(zero.clone())) {
        zero.clone()
    } else {
        ceil(zero.clone() - begin.clone()).max(zero.clone())
    };
    let mut extents = src.shape.clone();
    if !literally(first.clone().eq(zero.clone())) || !(end == *n || literally(end.clone().le(n.clone()))) {
        let behind = rows.clone().min(ceil(n.clone() - begin.clone()));
        extents[axis] = (behind - first.clone()).max(zero);
    }
    let y = k.buffer("slice_scatter", &x.shape, x.dtype());
    k.write("copy", &y, &x.shape, <[PrimExpr]>::to_vec, |i| x.at(i));
    let from = |i: &[PrimExpr]| {
        let mut at = i.to_vec();
        at[axis] = first.clone() + i[axis].clone();
        at
    };
    let to = |i: &[PrimExpr]| {
        let mut at = from(i);
        at[axis] = begin.clone() + at[axis].clone() * step;
        at
    };
    // TVM's look-ups end with the row that is the tensor's last, which is written again.
    let looked_up = |i: &[PrimExpr]| {
        let mut at = from(i);
        if !literally(first.clone().eq(PrimExpr::i64(0))) {
            at[axis] = at[axis].clone().min(n.clone() - 1);
        }
        at
    };
    k.write("slice_scatter", &y, &extents, to, |i| src.at(looked_up(i)));
    Ok(k.finish(&[y]))
}
