//! Selection: positions, order, gathers and scatters by element, masks.

use super::movement::{leading, within, wrap_indices};
use super::{one, op, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::{counted, NodeCx};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::relax::{Expr, ExprKind, StructInfo};
use relax_ir::{AttrValue, DType, PrimExpr, Span};

pub const OPS: &[OnnxOp] = &[
    op("Compress", &[(9, compress)]),
    op("CumProd", &[(26, |cx| cumulate(cx, "prod"))]),
    op("CumSum", &[(11, |cx| cumulate(cx, "sum"))]),
    op("EyeLike", &[(9, eye_like)]),
    op("GatherElements", &[(11, gather_elements)]),
    op("NonMaxSuppression", &[(10, nms)]),
    op("NonZero", &[(9, non_zero)]),
    op("OneHot", &[(9, one_hot)]),
    op("ReverseSequence", &[(10, reverse_sequence)]),
    op("Scatter", &[(9, scatter_elements)]),
    op("ScatterElements", &[(11, scatter_elements)]),
    op("ScatterND", &[(11, scatter_nd)]),
    op("TensorScatter", &[(24, tensor_scatter)]),
    op("TopK", &[(1, top_k)]),
    op("Trilu", &[(14, trilu)]),
    op("Unique", &[(11, unique)]),
];

/// 0, 1, ... along `axis` of a tensor of `rank` dims that are 1 elsewhere: int64.
pub fn positions(cx: &mut NodeCx, n: &PrimExpr, rank: usize, axis: usize) -> Res<Tensor> {
    let t = cx.call(
        "arange",
        &[Arg::prim(PrimExpr::i64(0)), Arg::prim(n.clone()), Arg::prim(PrimExpr::i64(1))],
        &[("dtype", AttrValue::DType(DType::I64))],
    )?;
    let mut dims = vec![PrimExpr::i64(1); rank];
    dims[axis] = n.clone();
    let mut t = t;
    t.dims = vec![n.clone()];
    cx.reshape(&t, &dims)
}

fn axis_attr(axis: usize) -> (&'static str, AttrValue) {
    ("axis", AttrValue::Int(axis as i64))
}

/// A tensor of one element as a vector or a scalar.
fn single(cx: &mut NodeCx, t: &Tensor, rank: usize) -> Res<Tensor> {
    cx.reshape(t, &vec![PrimExpr::i64(1); rank])
}

fn flatten(cx: &mut NodeCx, t: &Tensor) -> Res<Tensor> {
    let n = cx.simplify(PrimExpr::product(&t.dims));
    cx.reshape(t, &[n])
}

fn compress(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (mut x, condition) = (cx.input(0)?, cx.input(1)?);
    let axis = match cx.int_opt("axis") {
        Some(a) => cx.axis(a, x.rank())?,
        None => {
            x = flatten(cx, &x)?;
            0
        }
    };
    let at = cx.op("nonzero", &[&condition])?;
    let at = cx.reshape(&at, &[at.dims[1].clone()])?;
    one(cx.call("take", &[(&x).into(), (&at).into()], &[axis_attr(axis)])?)
}

fn cumulate(cx: &mut NodeCx, kind: &str) -> Res<Vec<Value>> {
    let (x, axis) = (cx.input(0)?, cx.input(1)?);
    let axis = single(cx, &axis, 0)?;
    let along = axis.as_constant().map(|c| cx.axis(c.get_i64(0), x.rank())).transpose()?;
    // Whole rows are added to rows, where it is not the last axis; backwards there is no other operator.
    if let Some(axis) = along.filter(|a| a + 1 < x.rank() && !cx.flag("reverse", false)) {
        let attrs = [axis_attr(axis), ("exclusive", AttrValue::Bool(cx.flag("exclusive", false)))];
        return one(cx.call(if kind == "sum" { "cumsum" } else { "cumprod" }, &[(&x).into()], &attrs)?);
    }
    let attrs = [
        ("kind", AttrValue::Str(kind.into())),
        ("exclusive", AttrValue::Bool(cx.flag("exclusive", false))),
        ("reverse", AttrValue::Bool(cx.flag("reverse", false))),
    ];
    one(cx.call("onnx.cumulate", &[(&x).into(), (&axis).into()], &attrs)?)
}

fn eye_like(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    if x.rank() != 2 {
        return Err(cx.error(format!("a matrix is needed, the input has {}", counted(x.rank(), "dim"))));
    }
    let dtype = cx.dtype_opt("dtype")?.unwrap_or(x.dtype);
    let k = Arg::prim(cx.int("k", 0));
    one(cx.call("eye_like", &[(&x).into(), k], &[("dtype", AttrValue::DType(dtype))])?)
}

fn gather_elements(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, index) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.axis(cx.int("axis", 0), x.rank())?;
    within(cx, &index, &x, &[axis])?;
    let index = wrap_indices(cx, &index, &x.dims[axis])?;
    one(cx.call("gather_elements", &[(&x).into(), (&index).into()], &[axis_attr(axis)])?)
}

fn reduction(cx: &NodeCx) -> AttrValue {
    AttrValue::Str(match cx.str("reduction", "none").as_str() {
        "none" => "update".into(),
        r => r.into(),
    })
}

fn scatter_elements(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, index, updates) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let axis = cx.axis(cx.int("axis", 0), x.rank())?;
    within(cx, &index, &x, &[axis])?;
    let how = reduction(cx);
    let args = [(&x).into(), (&index).into(), (&updates).into()];
    one(cx.call("scatter_elements", &args, &[axis_attr(axis), ("reduction", how)])?)
}

fn scatter_nd(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, index, updates) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    within(cx, &index, &x, &leading(&index, 0, x.rank()))?;
    let how = reduction(cx);
    one(cx.call("scatter_nd", &[(&x).into(), (&index).into(), (&updates).into()], &[("reduction", how)])?)
}

/// Writes `update` into the cache at each batch element's own place along `axis`.
fn tensor_scatter(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, update) = (cx.input(0)?, cx.input(1)?);
    let rank = x.rank();
    let axis = cx.axis(cx.int("axis", -2), rank)?;
    if update.rank() != rank {
        return Err(cx.error(format!("the update has {}, the cache {rank}", counted(update.rank(), "dim"))));
    }
    let mut at = positions(cx, &update.dims[axis].clone(), rank, axis)?;
    if let Some(start) = cx.optional(2)? {
        let start = cx.cast(&start, DType::I64)?;
        let mut dims = vec![PrimExpr::i64(1); rank];
        dims[0] = x.dims[0].clone();
        let start = cx.reshape(&start, &dims)?;
        at = cx.op("add", &[&at, &start])?;
    }
    if cx.str("mode", "linear") == "circular" {
        let n = Tensor::known(&[], DType::I64, vec![x.dims[axis].clone()]);
        at = cx.op("floor_mod", &[&at, &n])?;
    }
    let at = cx.broadcast_to(&at, &update.dims.clone())?;
    let args = [(&x).into(), (&at).into(), (&update).into()];
    one(cx.call("scatter_elements", &args, &[axis_attr(axis), ("reduction", AttrValue::Str("update".into()))])?)
}

fn nms(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (boxes, scores) = (cx.input(0)?, cx.input(1)?);
    let most = cx.optional(2)?.unwrap_or_else(|| Tensor::scalar_int(DType::I64, 0));
    let iou = cx.optional(3)?.unwrap_or_else(|| Tensor::scalar(DType::F32, 0.0));
    let least = cx.optional(4)?.unwrap_or_else(|| Tensor::scalar(DType::F32, f64::NEG_INFINITY));
    let center = cx.flag("center_point_box", false);
    let args: Vec<Arg> = [&boxes, &scores, &most, &iou, &least].into_iter().map(Arg::from).collect();
    one(cx.call("onnx.nms", &args, &[("center", AttrValue::Bool(center))])?)
}

fn non_zero(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    // A row for each dim.
    let rows = PrimExpr::i64(x.rank() as i64);
    if x.rank() > 0 {
        return one(cx.builder().call_of_dims("nonzero", &[(&x).into()], &[Some(rows), None])?);
    }
    // "for scalar input, NonZero produces output shape (0, N)", where Relax has (1, N). Source: ONNX, NonZero-13.
    let found = cx.builder().call_of_dims("nonzero", &[(&x).into()], &[Some(PrimExpr::i64(1)), None])?;
    one(cx.broadcast_to(&Tensor::scalar_int(DType::I64, 0), &[rows, found.dims[1].clone()])?)
}

fn one_hot(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (index, depth, values) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let depth = single(cx, &depth, 1)?;
    let depth = cx.cast(&depth, DType::I64)?;
    let depth = cx.read(&depth)?.into_iter().next().unwrap_or_else(|| PrimExpr::i64(0));
    let rank = index.rank() + 1;
    let axis = cx.axis(cx.int("axis", -1), rank)?;
    let index = cx.cast(&index, DType::I64)?;
    let args = [(&index).into(), Arg::prim(depth), (&values).into()];
    one(cx.call("onnx.one_hot", &args, &[axis_attr(axis)])?)
}

fn reverse_sequence(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, lens) = (cx.input(0)?, cx.input(1)?);
    let (time, batch) = (cx.int("time_axis", 0), cx.int("batch_axis", 1));
    let lens = cx.cast(&lens, DType::I64)?;
    let (time, batch) = (cx.axis(time, x.rank())?, cx.axis(batch, x.rank())?);
    // Position t of a sequence of n steps comes from n - 1 - t, later ones stay.
    let at = positions(cx, &x.dims[time].clone(), x.rank(), time)?;
    let mut dims = vec![PrimExpr::i64(1); x.rank()];
    dims[batch] = x.dims[batch].clone();
    let lens = cx.reshape(&lens, &dims)?;
    let steps = Tensor::known(&[], DType::I64, vec![x.dims[time].clone()]);
    let lens = cx.op("minimum", &[&lens, &steps])?;
    let one_ = Tensor::scalar_int(DType::I64, 1);
    let last = cx.op("subtract", &[&lens, &one_])?;
    let back = cx.op("subtract", &[&last, &at])?;
    let inside = cx.op("less", &[&at, &lens])?;
    let source = cx.op("where", &[&inside, &back, &at])?;
    let source = cx.broadcast_to(&source, &x.dims.clone())?;
    one(cx.call("gather_elements", &[(&x).into(), (&source).into()], &[axis_attr(time)])?)
}

fn top_k(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", -1), x.rank())?;
    let k = match (cx.int_opt("k"), cx.optional(1)?) {
        (Some(k), _) => PrimExpr::i64(k),
        (None, Some(t)) => {
            let t = single(cx, &t, 1)?;
            cx.read(&t)?.into_iter().next().unwrap_or_else(|| PrimExpr::i64(0))
        }
        (None, None) => return Err(cx.error("k is missing")),
    };
    let size = x.dims[axis].clone();
    match (k.as_int(), size.as_int()) {
        (Some(k), _) if k < 0 => return Err(cx.error(format!("k is {k}, it must not be negative"))),
        (Some(k), Some(n)) if k > n => return Err(cx.error(format!("k is {k}, axis {axis} has {n}"))),
        (Some(_), _) => {}
        // The first k of so many elements: fewer are an error of the call.
        (None, _) => {
            let there = k.clone().max(PrimExpr::i64(0)).min(size);
            let stated = Expr::new(ExprKind::Shape(vec![k.clone()]), Span::NONE);
            cx.builder().match_cast("k_within_axis", stated, StructInfo::shape(vec![there]));
        }
    }
    let largest = cx.flag("largest", true);
    let known = k.as_int().filter(|k| *k > 0);
    let both = cx.call_multi(
        "topk",
        &[(&x).into()],
        &[
            ("k", AttrValue::Int(known.unwrap_or(0))),
            axis_attr(axis),
            ("ret_type", AttrValue::Str("both".into())),
            ("largest", AttrValue::Bool(largest)),
            ("dtype", AttrValue::DType(DType::I64)),
        ],
    )?;
    if known.is_some() {
        return Ok(both.into_iter().map(Value::from).collect());
    }
    let mut out = vec![];
    for t in both {
        let mut dims = t.dims.clone();
        dims[axis] = k.clone();
        let begin = vec![PrimExpr::i64(0); x.rank()];
        out.push(cx.call("onnx.pad", &[(&t).into(), Arg::prims(&begin), Arg::shape(&dims)], &[])?.into());
    }
    Ok(out)
}

fn trilu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let rank = x.rank();
    if rank < 2 {
        return Err(cx.error("a tensor of at least two dims is needed"));
    }
    let k = match cx.optional(1)? {
        Some(t) => single(cx, &t, 0)?,
        None => Tensor::scalar_int(DType::I64, 0),
    };
    let rows = positions(cx, &x.dims[rank - 2].clone(), 2, 0)?;
    let columns = positions(cx, &x.dims[rank - 1].clone(), 2, 1)?;
    let edge = cx.op("add", &[&rows, &k])?;
    let relax = if cx.flag("upper", true) { "greater_equal" } else { "less_equal" };
    let keep = cx.op(relax, &[&columns, &edge])?;
    let zero = cx.like(&x, 0.0);
    one(cx.op("where", &[&keep, &x, &zero])?)
}

fn unique(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axis = match cx.int_opt("axis") {
        Some(a) => AttrValue::Int(cx.axis(a, x.rank())? as i64),
        None => AttrValue::None,
    };
    let sorted = cx.flag("sorted", true);
    let all = cx.call_multi("onnx.unique", &[(&x).into()], &[("axis", axis), ("sorted", AttrValue::Bool(sorted))])?;
    Ok(all.into_iter().map(Value::from).collect())
}
