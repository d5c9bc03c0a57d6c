//! Gathering and scattering by index tensors.
//!
//! Negative indices count from the end, except in `take`, whose modes say what an index means. Scatters skip indices
//! out of range; gathers out of range are undefined.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, flat_index, unflatten, Elem};
use crate::op::rule::{dim_text, dims_text};
use crate::op::*;
use crate::prim::{PrimExpr, Var};
use crate::relax::{StructInfo, TensorInfo};
use crate::tir::{Buffer, KernelBuilder, PrimFunc, Stmt};

const REDUCTION: ParamDecl = attr("reduction", Default::Str("update"));

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "take",
        "The slices of `x` at `indices` along `axis` (`x` is a vector without one). Indices out of range: undefined \
         (\"fast\"), the nearest (\"clip\"), NaN (\"nan\") or modulo (\"wrap\" and any other mode).",
        &[operand("x"), operand("indices"), attr("axis", Default::None), attr("mode", Default::Str("fast"))],
        infer_take,
        Compute::Kernel(take),
    ),
    OpDecl::pure(
        "gather_elements",
        "`out[i][j][k] = data[indices[i][j][k]][j][k]` for axis 0, likewise for others; the shape is that of `indices`.",
        &[operand("data"), operand("indices"), attr("axis", Default::Int(0))],
        infer_gather_elements,
        Compute::Kernel(gather_elements),
    ),
    OpDecl::pure(
        "gather_nd",
        "Slices of `data` at index tuples: the last dim of `indices` is a tuple, the first `batch_dims` dims are common.",
        &[operand("data"), operand("indices"), attr("batch_dims", Default::Int(0))],
        infer_gather_nd,
        Compute::Kernel(gather_nd),
    ),
    OpDecl::pure(
        "scatter_elements",
        "`data` with `out[indices[i][j][k]][j][k]` combined with `updates[i][j][k]` for axis 0, likewise for others; \
         reduction is update, add, mul, mean, max or min, in row-major order of the updates.",
        &[operand("data"), operand("indices"), operand("updates"), attr("axis", Default::Int(0)), REDUCTION],
        infer_scatter_elements,
        Compute::Kernel(scatter_elements),
    ),
    OpDecl::pure(
        "scatter_nd",
        "`data` with slices at index tuples combined with `updates`: the last dim of `indices` is a tuple; reduction is \
         update, add, mul, max or min, in row-major order of the updates.",
        &[operand("data"), operand("indices"), operand("updates"), REDUCTION],
        infer_scatter_nd,
        Compute::Kernel(scatter_nd),
    ),
    OpDecl::pure(
        "index_tensor",
        "`data[indices]` as NumPy's advanced indexing: one integer tensor per leading dim, broadcast together.",
        &[operand("data"), operand("indices")],
        infer_index_tensor,
        Compute::Kernel(index_tensor),
    ),
    OpDecl::pure(
        "index_put",
        "`data` with the elements at `indices` (one integer tensor per leading dim, broadcast together) set to `values`, \
         or increased by them with `accumulate`.",
        &[operand("data"), operand("indices"), operand("values"), attr("accumulate", Default::Bool(false))],
        infer_index_put,
        Compute::Kernel(index_put),
    ),
    OpDecl::pure(
        "one_hot",
        "A new dim of `depth` at `axis`: `on_value` where its index is the element of `indices`, `off_value` elsewhere.",
        &[
            operand("indices"),
            operand("on_value"),
            operand("off_value"),
            attr("depth", Default::Required),
            attr("axis", Default::Int(-1)),
        ],
        infer_one_hot,
        Compute::Kernel(one_hot),
    ),
];

/// `i` counted from the end where negative, as int64.
fn wrap(i: PrimExpr, n: &PrimExpr) -> PrimExpr {
    if i.dtype().is_uint() {
        return i.cast(DType::I64);
    }
    let i = i.cast(DType::I64);
    i.clone().lt(PrimExpr::i64(0)).select(i.clone() + n.clone(), i)
}

fn infer_take(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, i) = (cx.tensor(0)?.clone(), cx.elements(1)?);
    cx.require_int(1, i.dtype)?;
    let rank = match (x.ndim, i.ndim) {
        (Some(a), Some(b)) if a > 0 => Some(a - 1 + b),
        (Some(0), _) => return Err(cx.error("x must have at least one dim")),
        _ => None,
    };
    let axis = match (cx.attrs.int("axis"), x.ndim) {
        (Some(a), Some(n)) => cx.axis(a, n)?,
        (None, Some(n)) if n != 1 => {
            return Err(cx.error(format!("without an axis x must have one dim, it has {n}")));
        }
        _ => 0,
    };
    let dims = match (x.known_dims(), i.known_dims()) {
        (Some(d), Some(i)) => Some([&d[..axis], i, &d[axis + 1..]].concat()),
        _ => None,
    };
    Ok(StructInfo::Tensor(x.with_dims(dims, rank)))
}

fn take(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, elems) = cx.elems()?;
    let (Some(Some(Elem::Buffer(x))), Some(Some(index))) = (elems.first(), elems.get(1)) else {
        return Err(cx.error("x and indices are needed"));
    };
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(0), x.ndim())?;
    let rank = match index {
        Elem::Buffer(b) => b.ndim(),
        Elem::Value(_) => 0,
    };
    let n = x.shape[axis].clone();
    let zero = PrimExpr::i64(0);
    let out = cx.result()?;
    let y = k.compute("take", out.dims, out.dtype, |i| {
        let at = match index {
            Elem::Buffer(b) => b.at(&i[axis..axis + rank]),
            Elem::Value(v) => v.clone(),
        };
        let at = at.cast(DType::I64);
        let x = |at: PrimExpr| x.at([&i[..axis], &[at][..], &i[axis + rank..]].concat());
        match cx.attrs.str("mode") {
            Some("clip") => x(at.max(zero.clone()).min(n - 1)),
            None | Some("fast") => x(at),
            Some("nan") if out.dtype.is_float() => {
                let inside = at.clone().ge(zero.clone()).and(at.clone().lt(n));
                inside.if_then_else(x(at), PrimExpr::float(out.dtype, f64::NAN))
            }
            Some("nan") => x(at),
            Some(_) => x(at.floor_mod(n)),
        }
    });
    Ok(k.finish(&[y]))
}

fn infer_gather_elements(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, i) = (cx.tensor(0)?.clone(), cx.tensor(1)?.clone());
    cx.require_int(1, i.dtype)?;
    if let Some(d) = i.dtype.filter(|d| d.is_uint()) {
        return Err(cx
            .error(format!("indices must be signed integers, they are {d}"))
            .help("convert them with R.astype"));
    }
    if let (Some(a), Some(b)) = (x.ndim, i.ndim) {
        if a != b {
            return Err(cx.error(format!("data has {a} dims, indices has {b}")));
        }
        cx.axis(cx.int("axis")?, a)?;
    }
    Ok(StructInfo::Tensor(TensorInfo { dtype: x.dtype, vdevice: x.vdevice, ..i }))
}

fn gather_elements(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, index) = (&inputs[0], &inputs[1]);
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(0), x.ndim())?;
    let out = cx.result()?;
    let y = k.compute("gather", out.dims, out.dtype, |i| {
        let mut at = i.to_vec();
        at[axis] = wrap(index.at(i), &x.shape[axis]);
        x.at(at)
    });
    Ok(k.finish(&[y]))
}

/// The length of index tuples: the last dim, a literal.
fn tuple_len(dims: &[PrimExpr]) -> Option<usize> {
    dims.last().and_then(PrimExpr::as_int).filter(|n| *n >= 0).map(|n| n as usize)
}

fn infer_gather_nd(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, i) = (cx.tensor(0)?.clone(), cx.tensor(1)?.clone());
    if let Some(d) = i.dtype.filter(|d| *d != DType::I64) {
        return Err(cx.error(format!("indices must be int64, they are {d}")).help("convert them with R.astype"));
    }
    let batch = cx.int("batch_dims")?;
    if i.ndim == Some(0) {
        return Err(cx.error("indices must have at least one dim"));
    }
    let (Some(d), Some(id)) = (x.known_dims(), i.known_dims()) else {
        return Ok(StructInfo::Tensor(x.with_dims(None, None)));
    };
    let Some(len) = tuple_len(id) else { return Ok(StructInfo::Tensor(x.with_dims(None, None))) };
    let batch = usize::try_from(batch).ok().filter(|b| *b < id.len() && b + len <= d.len()).ok_or_else(|| {
        let (d, i) = (dims_text(d), dims_text(id));
        cx.error(format!("data of shape {d} has too few dims for indices of shape {i} and {batch} batch dims"))
    })?;
    for (a, b) in d[..batch].iter().zip(id) {
        // Batches of the data that no index names are left out, as in TVM.
        cx.require(a.clone().ge(b.clone()), || {
            format!("indices have more of a batch dim than the data: {} and {}", dim_text(b), dim_text(a))
        })?;
    }
    let dims = [&id[..id.len() - 1], &d[batch + len..]].concat();
    Ok(StructInfo::Tensor(x.with_dims(Some(dims), None)))
}

fn gather_nd(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, index) = (&inputs[0], &inputs[1]);
    let batch = cx.attrs.int("batch_dims").unwrap_or(0) as usize;
    let len = tuple_len(&index.shape).ok_or_else(|| cx.error("the length of the index tuples must be known"))?;
    let lead = index.ndim() - 1;
    let out = cx.result()?;
    let y = k.compute("gather_nd", out.dims, out.dtype, |i| {
        let mut at = i[..batch].to_vec();
        for t in 0..len {
            let position: Vec<PrimExpr> = i[..lead].iter().cloned().chain([PrimExpr::i64(t as i64)]).collect();
            at.push(wrap(index.at(position), &x.shape[batch + t]));
        }
        at.extend_from_slice(&i[lead..]);
        x.at(at)
    });
    Ok(k.finish(&[y]))
}

fn reduction(cx: &InferCx, allowed: &[&str]) -> Result<(), Diagnostic> {
    match cx.attrs.str("reduction") {
        Some(r) if !allowed.contains(&r) => {
            Err(cx.error(format!("reduction \"{r}\" is not one of {}", allowed.join(", "))))
        }
        _ => Ok(()),
    }
}

fn infer_scatter_elements(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, i, u) = (cx.tensor(0)?.clone(), cx.tensor(1)?.clone(), cx.tensor(2)?.clone());
    cx.require_int(1, i.dtype)?;
    cx.same_dtype(&[("data", x.dtype), ("updates", u.dtype)])?;
    reduction(cx, &["update", "add", "mul", "mean", "max", "min"])?;
    for (t, name) in [(&i, "indices"), (&u, "updates")] {
        if let (Some(a), Some(b)) = (x.ndim, t.ndim) {
            if a != b {
                return Err(cx.error(format!("data has {a} dims, {name} has {b}")));
            }
        }
    }
    if let Some(n) = x.ndim {
        cx.axis(cx.int("axis")?, n)?;
    }
    if let (Some(i), Some(u)) = (i.known_dims(), u.known_dims()) {
        for (a, b) in i.iter().zip(u) {
            cx.require_eq(a, b, || {
                format!("indices of shape {} and updates of shape {} differ", dims_text(i), dims_text(u))
            })?;
        }
    }
    Ok(StructInfo::Tensor(x))
}

/// Combines `value` with the element of `out` at `at`.
fn combine(how: &str, old: PrimExpr, value: PrimExpr) -> PrimExpr {
    match how {
        "add" => old + value,
        "mul" => old * value,
        "mean" => {
            let two = PrimExpr::int(old.dtype(), 2);
            let sum = old + value;
            if sum.dtype().is_float() {
                sum / two
            } else {
                sum.trunc_div(two)
            }
        }
        "max" => old.max(value),
        "min" => old.min(value),
        _ => value,
    }
}

/// Places of updates in what they go into.
struct Places<'a> {
    /// The dims in which they may be out of range; such updates are skipped.
    checked: &'a [usize],
    /// So many axes of the updates decide where in those dims they go.
    rows: usize,
}

/// Copies `x`, then combines `value(i)` into the copy at `to(i)` for every `i` below `extents`, in order.
fn scatter(
    k: &mut KernelBuilder,
    x: &Buffer,
    extents: &[PrimExpr],
    how: &str,
    to: impl FnOnce(&[PrimExpr]) -> Vec<PrimExpr>,
    Places { checked, rows }: Places,
    value: impl FnOnce(&[PrimExpr]) -> PrimExpr,
) -> Buffer {
    let y = k.buffer("scatter", &x.shape, x.dtype());
    k.write("copy", &y, &x.shape, <[PrimExpr]>::to_vec, |i| x.at(i));
    k.rows("scatter", &[], |_| {
        let vars: Vec<Var> = (0..extents.len()).map(|i| Var::dim(format!("i{i}"))).collect();
        let i: Vec<PrimExpr> = vars.iter().map(Var::expr).collect();
        // The places are bound to variables: each is computed once, before the store changes anything.
        let mut at = to(&i);
        let bound: Vec<(Var, PrimExpr)> = checked
            .iter()
            .map(|&d| {
                let v = Var::dim(format!("at{d}"));
                let place = std::mem::replace(&mut at[d], v.expr());
                (v, place)
            })
            .collect();
        let new = convert(combine(how, y.at(at.clone()), value(&i)), y.dtype());
        let inside = checked.iter().zip(&bound).fold(PrimExpr::bool(true), |all, (&d, (v, _))| {
            all.and(v.expr().ge(PrimExpr::i64(0))).and(v.expr().lt(y.shape[d].clone()))
        });
        let mut body = Stmt::store(&y, at, new);
        let around = |body: Stmt, axes: std::ops::Range<usize>| {
            axes.rev().fold(body, |s, a| Stmt::for_serial(&vars[a], extents[a].clone(), s))
        };
        body = around(body, rows..extents.len());
        if inside.as_int().is_none() {
            body = Stmt::if_then(inside, body);
        }
        for (v, place) in bound.into_iter().rev() {
            body = Stmt::let_in(&v, place, body);
        }
        around(body, 0..rows)
    });
    y
}

fn scatter_elements(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, index, updates) = (&inputs[0], &inputs[1], &inputs[2]);
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(0), x.ndim())?;
    let how = cx.attrs.str("reduction").unwrap_or("update");
    let to = |i: &[PrimExpr]| {
        let mut at = i.to_vec();
        at[axis] = wrap(index.at(i), &x.shape[axis]);
        at
    };
    let places = Places { checked: &[axis], rows: updates.ndim() };
    let y = scatter(&mut k, x, &updates.shape, how, to, places, |i| updates.at(i));
    Ok(k.finish(&[y]))
}

fn infer_scatter_nd(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, i, u) = (cx.tensor(0)?.clone(), cx.tensor(1)?.clone(), cx.tensor(2)?.clone());
    cx.require_int(1, i.dtype)?;
    cx.same_dtype(&[("data", x.dtype), ("updates", u.dtype)])?;
    reduction(cx, &["update", "add", "mul", "max", "min"])?;
    if i.ndim == Some(0) {
        return Err(cx.error("indices must have at least one dim"));
    }
    if let (Some(d), Some(id), Some(ud)) = (x.known_dims(), i.known_dims(), u.known_dims()) {
        let len = tuple_len(id).ok_or_else(|| cx.error("the last dim of indices must be a number"))?;
        if len > d.len() {
            return Err(cx.error(format!("index tuples of {len} for data with {} dims", d.len())));
        }
        let wanted = [&id[..id.len() - 1], &d[len..]].concat();
        let text = || format!("updates of shape {}, {} is needed", dims_text(ud), dims_text(&wanted));
        if wanted.len() != ud.len() {
            return Err(cx.error(text()));
        }
        for (a, b) in wanted.iter().zip(ud) {
            cx.require_eq(a, b, text)?;
        }
    }
    Ok(StructInfo::Tensor(x))
}

fn scatter_nd(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, index, updates) = (&inputs[0], &inputs[1], &inputs[2]);
    let len = tuple_len(&index.shape).ok_or_else(|| cx.error("the length of the index tuples must be known"))?;
    let how = cx.attrs.str("reduction").unwrap_or("update");
    let lead = index.ndim() - 1;
    let to = |i: &[PrimExpr]| {
        let mut at = vec![];
        for t in 0..len {
            let position: Vec<PrimExpr> = i[..lead].iter().cloned().chain([PrimExpr::i64(t as i64)]).collect();
            at.push(wrap(index.at(position), &x.shape[t]));
        }
        at.extend_from_slice(&i[lead..]);
        at
    };
    let checked: Vec<usize> = (0..len).collect();
    let places = Places { checked: &checked, rows: lead };
    let y = scatter(&mut k, x, &updates.shape, how, to, places, |i| updates.at(i));
    Ok(k.finish(&[y]))
}

/// The index tensors of operand 1 (a tuple, or a lone tensor) and what they broadcast to.
fn indices(cx: &mut InferCx) -> Result<(usize, TensorInfo), Diagnostic> {
    let list: Vec<TensorInfo> = match cx.infos.get(1) {
        Some(StructInfo::Tensor(t)) if cx.op.name == "index_put" => vec![t.clone()],
        _ => cx.tensors(1)?.into_iter().cloned().collect(),
    };
    if list.is_empty() {
        return Err(cx.error("indices is empty"));
    }
    for t in &list {
        cx.require_int(1, t.dtype)?;
        if let Some(d) = t.dtype.filter(|d| cx.op.name == "index_tensor" && d.is_uint()) {
            return Err(cx.error(format!("indices must be signed integers, not {d}")));
        }
    }
    let n = cx.tensor(0)?.ndim;
    if n.is_some_and(|n| n < list.len()) {
        let n = n.unwrap_or_default();
        return Err(cx.error(format!("{} index tensors for data with {n} dims", list.len())));
    }
    Ok((list.len(), cx.broadcast(&list)?))
}

fn infer_index_tensor(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (count, index) = indices(cx)?;
    let x = cx.tensor(0)?.clone();
    let ndim = x.ndim.zip(index.ndim).map(|(a, b)| a - count + b);
    let dims = match (x.known_dims(), index.known_dims()) {
        (Some(d), Some(i)) => Some([i, &d[count..]].concat()),
        _ => None,
    };
    Ok(StructInfo::Tensor(x.with_dims(dims, ndim)))
}

/// The place in data of the advanced index at `i` (an index of the broadcast index tensors).
fn place(x: &Buffer, index: &[Buffer], i: &[PrimExpr]) -> Vec<PrimExpr> {
    index.iter().zip(&x.shape).map(|(b, n)| wrap(Elem::Buffer(b.clone()).at(i), n)).collect()
}

fn index_tensor(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, index) = (&inputs[0], &inputs[1..]);
    let out = cx.result()?;
    let rank = out.dims.len() - (x.ndim() - index.len());
    let y = k.compute("index_tensor", out.dims, out.dtype, |i| {
        let mut at = place(x, index, &i[..rank]);
        at.extend_from_slice(&i[rank..]);
        x.at(at)
    });
    Ok(k.finish(&[y]))
}

fn infer_index_put(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (count, index) = indices(cx)?;
    let (x, v) = (cx.tensor(0)?.clone(), cx.tensor(2)?.clone());
    cx.same_dtype(&[("data", x.dtype), ("values", v.dtype)])?;
    if let Some(n) = x.ndim.filter(|n| *n != count) {
        return Err(cx.error(format!("one index tensor per dim is needed: data has {n} dims, {count} are given")));
    }
    if let (Some(d), Some(i), Some(v)) = (x.known_dims(), index.known_dims(), v.known_dims()) {
        let wanted = [i, &d[count..]].concat();
        if in_order(v, &wanted) {
            return Ok(StructInfo::Tensor(x));
        }
        let text = || format!("values of shape {} do not broadcast to {}", dims_text(v), dims_text(&wanted));
        if v.len() > wanted.len() {
            return Err(cx.error(text()));
        }
        for (a, b) in v.iter().zip(&wanted[wanted.len() - v.len()..]) {
            if !a.is_int(1) {
                cx.require_eq(a, b, text)?;
            }
        }
    }
    Ok(StructInfo::Tensor(x))
}

/// Whether values of a shape that does not broadcast to the wanted one are taken one after the other, as TVM takes them:
/// where there are as many, or more.
fn in_order(values: &[PrimExpr], wanted: &[PrimExpr]) -> bool {
    let literal = |dims: &[PrimExpr]| dims.iter().map(PrimExpr::as_int).collect::<Option<Vec<i64>>>();
    let (Some(v), Some(w)) = (literal(values), literal(wanted)) else { return false };
    let fits = v.len() <= w.len() && v.iter().rev().zip(w.iter().rev()).all(|(a, b)| *a == 1 || a == b);
    let count = |dims: &[i64]| dims.iter().try_fold(1i64, |n, d| n.checked_mul(*d));
    !fits && count(&v).zip(count(&w)).is_some_and(|(v, w)| v >= w)
}

fn index_put(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let count = inputs.len() - 2;
    let (x, index, values) = (&inputs[0], &inputs[1..=count], &inputs[count + 1]);
    let mut extents: Vec<PrimExpr> = vec![];
    for b in index {
        // Broadcast: aligned at the right, the dim that is not 1.
        for (p, d) in b.shape.iter().rev().enumerate() {
            match extents.get_mut(p) {
                Some(e) if e.is_int(1) => *e = d.clone(),
                Some(_) => {}
                None => extents.push(d.clone()),
            }
        }
    }
    extents.reverse();
    let rank = extents.len();
    extents.extend_from_slice(&x.shape[count..]);
    let how = if cx.attrs.bool("accumulate").unwrap_or(false) { "add" } else { "update" };
    let to = |i: &[PrimExpr]| {
        let mut at = place(x, index, &i[..rank]);
        at.extend_from_slice(&i[rank..]);
        at
    };
    let checked: Vec<usize> = (0..count).collect();
    let flat = in_order(&values.shape, &extents);
    let value = |i: &[PrimExpr]| match flat {
        true => values.at(unflatten(flat_index(i, &extents), &values.shape)),
        false => Elem::Buffer(values.clone()).at(i),
    };
    let places = Places { checked: &checked, rows: extents.len() };
    let y = scatter(&mut k, x, &extents, how, to, places, value);
    Ok(k.finish(&[y]))
}

fn infer_one_hot(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    cx.require_int(0, t.dtype)?;
    let (on, off) = (cx.elements(1)?, cx.elements(2)?);
    let scalar = |i: usize| !matches!(cx.infos.get(i), Some(StructInfo::Tensor(_)));
    if !(scalar(1) && scalar(2)) {
        return Err(cx.error("on_value and off_value must be scalars, such as R.prim_value(1), no tensors"));
    }
    let dtype = cx.same_dtype(&[("on_value", on.dtype), ("off_value", off.dtype)])?;
    let depth = cx.int("depth")?;
    if depth <= 0 {
        return Err(cx.error(format!("depth must be positive, it is {depth}")));
    }
    let t = t.with_dtype(dtype);
    let Some(n) = t.ndim else { return Ok(StructInfo::Tensor(t)) };
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(-1), n + 1)?;
    let dims = t.known_dims().map(|d| [&d[..axis], &[PrimExpr::i64(depth)], &d[axis..]].concat());
    Ok(StructInfo::Tensor(t.with_dims(dims, Some(n + 1))))
}

fn one_hot(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, elems) = cx.elems()?;
    let [Some(Elem::Buffer(index)), Some(on), Some(off)] = &elems[..] else {
        return Err(cx.error("indices, on_value and off_value are needed"));
    };
    let out = cx.result()?;
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(-1), out.dims.len())?;
    let y = k.compute("one_hot", out.dims, out.dtype, |i| {
        let mut at = i.to_vec();
        let class = at.remove(axis);
        let hit = index.at(at).cast(DType::I64).eq(class);
        hit.select(convert(on.at(&[]), out.dtype), convert(off.at(&[]), out.dtype))
    });
    Ok(k.finish(&[y]))
}
