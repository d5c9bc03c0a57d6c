//! Operators on shapes: the shape of a tensor, and tensors under other dims.

use super::{one, op, OnnxOp};
use crate::onnx::builder::{Arg, MAX_DIMS};
use crate::onnx::node::{counted, without, Axes, NodeCx};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("Shape", &[(1, shape)]),
    op("Size", &[(1, size)]),
    op("Reshape", &[(1, reshape)]),
    op("Flatten", &[(1, flatten)]),
    op("Squeeze", &[(1, squeeze)]),
    op("Unsqueeze", &[(1, unsqueeze)]),
    op("Expand", &[(8, expand)]),
    op("Dropout", &[(1, dropout)]),
];

fn shape(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let dims = x.logical_dims();
    let n = dims.len() as i64;
    let clamp = |v: i64| if v < 0 { v + n } else { v }.clamp(0, n) as usize;
    let (start, end) = (clamp(cx.int("start", 0)), clamp(cx.int("end", n)));
    one(Tensor::shape(dims.get(start..end).unwrap_or_default().to_vec()))
}

fn size(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let n = cx.simplify(PrimExpr::product(x.logical_dims()));
    one(Tensor::known(&[], DType::I64, vec![n]))
}

fn reshape(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let wanted = match cx.ints("shape") {
        Some(s) => s.into_iter().map(PrimExpr::i64).collect(),
        None => {
            let s = cx.input(1)?;
            match s.elements() {
                Some(v) => v.into_iter().map(|e| e.cast(DType::I64)).collect(),
                None => shape_computed(cx, &x, &s)?,
            }
        }
    };
    let keep_zero = cx.flag("allowzero", false);
    let mut dims = vec![];
    for (i, d) in wanted.into_iter().enumerate() {
        dims.push(match d.as_int() {
            Some(0) if !keep_zero => match x.dims.get(i) {
                Some(d) => d.clone(),
                None => {
                    return Err(
                        cx.error(format!("the shape keeps dim {i}, the tensor has {}", counted(x.rank(), "dim")))
                    )
                }
            },
            _ => d,
        });
    }
    let free: Vec<usize> = (0..dims.len()).filter(|i| dims[*i].is_int(-1)).collect();
    match free.as_slice() {
        [] => {}
        [i] => {
            let total = PrimExpr::product(&x.dims);
            let others = PrimExpr::product(dims.iter().enumerate().filter(|(j, _)| j != i).map(|(_, d)| d));
            let rest = if others.is_int(0) { PrimExpr::i64(0) } else { total.floor_div(others) };
            dims[*i] = cx.simplify(rest);
        }
        _ => return Err(cx.error("the shape has more than one -1")),
    }
    one(cx.reshape(&x, &dims)?)
}

/// The dims that a shape known at run time asks for: 0 keeps the dim, -1 takes what is left.
fn shape_computed(cx: &mut NodeCx, x: &Tensor, shape: &Tensor) -> Res<Vec<PrimExpr>> {
    let Some(n) = shape.literal_len() else {
        return Err(cx.unsupported("a shape of a number of dims that is only known at run time"));
    };
    if n > MAX_DIMS {
        return Err(cx.unsupported(format!("a tensor of {n} dims: a rank is from 0 to {MAX_DIMS}")));
    }
    let mut s = cx.cast(shape, DType::I64)?;
    let (zero, one_) = (Tensor::scalar_int(DType::I64, 0), Tensor::scalar_int(DType::I64, 1));
    if !cx.flag("allowzero", false) {
        let dims = (0..n).map(|i| x.dims.get(i).cloned().unwrap_or_else(|| PrimExpr::i64(1))).collect();
        let dims = Tensor::shape(dims);
        let keep = cx.op("equal", &[&s, &zero])?;
        s = cx.op("where", &[&keep, &dims, &s])?;
    }
    let free = cx.op("less", &[&s, &zero])?;
    let others = cx.op("where", &[&free, &one_, &s])?;
    let others = cx.call("prod", &[(&others).into()], &[("keepdims", AttrValue::Bool(false))])?;
    let others = cx.op("maximum", &[&others, &one_])?;
    let total = Tensor::known(&[], DType::I64, vec![PrimExpr::product(&x.dims)]);
    let rest = cx.op("floor_divide", &[&total, &others])?;
    s = cx.op("where", &[&free, &rest, &s])?;
    cx.read(&s)
}

fn flatten(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axis = cx.int("axis", 1);
    let n = x.rank() as i64;
    if axis < -n || axis > n {
        return Err(cx.error(format!("axis {axis} is out of range for {n} dims")));
    }
    let at = if axis < 0 { axis + n } else { axis } as usize;
    let rows = cx.simplify(PrimExpr::product(&x.dims[..at]));
    let columns = cx.simplify(PrimExpr::product(&x.dims[at..]));
    one(cx.reshape(&x, &[rows, columns])?)
}

fn squeeze(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axes = match cx.axes_attr_or_input(1, x.rank(), 0)? {
        Some(a) => a,
        None => {
            if x.dims.iter().any(|d| d.as_int().is_none()) {
                let message =
                    "Squeeze without axes removes dims of 1: open dims stay, even where they are 1 at run time";
                cx.warn(message, "state the axes, or give the dims their sizes");
            }
            Axes::Known((0..x.rank()).filter(|i| x.dims[*i].is_int(1)).collect())
        }
    };
    if let Axes::Known(a) = &axes {
        if let Some(a) = a.iter().find(|a| x.dims[**a].as_int().is_some_and(|d| d != 1)) {
            let d = x.dims[*a].as_int().unwrap_or(0);
            return Err(cx.error(format!("dim {a} is {d}, only dims of 1 can be removed")));
        }
    }
    if let Axes::Known(a) = &axes {
        let supposed: Vec<i64> = a.iter().filter(|a| cx.im.is_taken_for_one(&x.dims[**a])).map(|a| *a as i64).collect();
        if !supposed.is_empty() && x.elements().is_none() {
            let axis = AttrValue::List(supposed.iter().map(|a| AttrValue::Int(*a)).collect());
            let first = cx.call("max", &[Arg::from(&x)], &[("axis", axis), ("keepdims", AttrValue::Bool(true))])?;
            return one(cx.reshape(&first, &without(&first.dims, &axes))?);
        }
    }
    one(cx.reshape(&x, &without(&x.dims, &axes))?)
}

fn unsqueeze(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axes = cx.axes_attr_or_input(1, x.rank(), 1)?;
    let axes = cx.required("axes", axes)?;
    let known = match &axes {
        Axes::Known(a) => a,
        Axes::Computed(_) => {
            let dims = with_ones(&x.dims, &axes);
            return one(cx.reshape(&x, &dims)?);
        }
    };
    let mut known = known.clone();
    known.sort_unstable();
    if known.windows(2).any(|w| w[0] == w[1]) {
        return Err(cx.error("an axis is given twice"));
    }
    one(cx.unsqueeze(&x, &known)?)
}

/// Dims of 1 put in at axes that are only known at run time.
fn with_ones(dims: &[PrimExpr], axes: &Axes) -> Vec<PrimExpr> {
    let mut taken = PrimExpr::i64(0);
    let mut out = vec![];
    for j in 0..dims.len() + axes.len() {
        let is_new = axes.contains(j);
        let mut old = PrimExpr::i64(1);
        for (i, d) in dims.iter().enumerate() {
            old = taken.clone().eq(PrimExpr::i64(i as i64)).select(d.clone(), old);
        }
        out.push(is_new.clone().select(1, old));
        taken = taken + is_new.select(0, 1);
    }
    out
}

fn expand(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, shape) = (cx.input(0)?, cx.input(1)?);
    let to = cx.read(&shape)?;
    // Which of two unknown dims is 1 may show at run time only.
    let lead = to.len().saturating_sub(x.rank());
    let skip = x.rank().saturating_sub(to.len());
    let open = x.dims[skip..].iter().zip(&to[lead..]).any(|(a, b)| {
        let settled = a == b || a.is_int(1) || b.is_int(1) || a.as_int().is_some() && b.as_int().is_some();
        !settled
    });
    if open {
        return one(cx.call("onnx.expand", &[(&x).into(), Arg::shape(&to)], &[])?);
    }
    let dims = cx.broadcast_dims(&x.dims, &to);
    one(cx.broadcast_to(&x, &dims)?)
}

/// Inference: the identity; nothing is dropped.
fn dropout(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    if let Some(training) = cx.optional(2)? {
        let ratio = match cx.optional(1)? {
            Some(r) => r,
            None => Tensor::scalar(DType::F32, 0.5),
        };
        let nothing = ratio.as_floats().as_deref() == Some(&[0.0]);
        if training.as_ints().as_deref() != Some(&[0]) && !nothing {
            return drop_at_random(cx, &x, &ratio, &training);
        }
    }
    let mut out: Vec<Value> = vec![x.clone().into()];
    if cx.wants(1) {
        let one_ = Tensor::scalar_int(if cx.version < 10 { x.dtype } else { DType::BOOL }, 1);
        out.push(cx.broadcast_to(&one_, &x.dims)?.into());
    }
    Ok(out)
}

/// Elements are zeroed with probability `ratio`, the others scaled up, when `training` holds.
fn drop_at_random(cx: &mut NodeCx, x: &Tensor, ratio: &Tensor, training: &Tensor) -> Res<Vec<Value>> {
    let wide = if x.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let (ratio, training) = (cx.reshape(ratio, &[])?, cx.reshape(training, &[])?);
    let ratio = cx.cast(&ratio, wide)?;
    let ratio = cx.op("where", &[&training, &ratio, &Tensor::scalar(wide, 0.0)])?;
    let u = super::signal::uniform(cx, &x.dims.clone(), wide, 3)?;
    let keep = cx.op("greater_equal", &[&u, &ratio])?;
    let rest = cx.op("subtract", &[&Tensor::scalar(wide, 1.0), &ratio])?;
    let y = cx.cast(x, wide)?;
    let y = cx.op("divide", &[&y, &rest])?;
    let y = cx.op("where", &[&keep, &y, &Tensor::scalar(wide, 0.0)])?;
    let y = cx.cast(&y, x.dtype)?;
    Ok(vec![y.into(), keep.into()])
}
