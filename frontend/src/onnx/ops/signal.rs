//! Transforms, windows and random numbers.

use super::movement::{iota, slice_axes};
use super::{one, op, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::{ints, NodeCx};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, Constant, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("Bernoulli", &[(15, bernoulli)]),
    op("BlackmanWindow", &[(17, |cx| window(cx, &[0.42, -0.5, 0.08]))]),
    op("DFT", &[(17, dft)]),
    op("Det", &[(11, det)]),
    op("Einsum", &[(12, einsum)]),
    op("HammingWindow", &[(17, |cx| window(cx, &[25.0 / 46.0, 25.0 / 46.0 - 1.0]))]),
    op("HannWindow", &[(17, |cx| window(cx, &[0.5, -0.5]))]),
    op("MelWeightMatrix", &[(17, mel_weights)]),
    op("RandomNormal", &[(1, |cx| random(cx, false, true))]),
    op("RandomNormalLike", &[(1, |cx| random(cx, true, true))]),
    op("RandomUniform", &[(1, |cx| random(cx, false, false))]),
    op("RandomUniformLike", &[(1, |cx| random(cx, true, false))]),
    op("STFT", &[(17, stft)]),
];

fn einsum(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let all = cx.tensors(0)?;
    let equation = cx.str("equation", "");
    one(cx.call("einsum", &[all.as_slice().into()], &[("subscripts", AttrValue::Str(equation))])?)
}

fn det(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    one(cx.op("onnx.det", &[&x])?)
}

/// A tensor of one integer, as a scalar of the function.
fn scalar(cx: &mut NodeCx, t: &Tensor) -> Res<PrimExpr> {
    let t = cx.reshape(t, &[PrimExpr::i64(1)])?;
    let t = cx.cast(&t, DType::I64)?;
    Ok(cx.read(&t)?.into_iter().next().unwrap_or_else(|| PrimExpr::i64(0)))
}

fn dft(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let rank = x.rank();
    let (inverse, onesided) = (cx.flag("inverse", false), cx.flag("onesided", false));
    let length = match cx.optional(1)? {
        Some(t) => Some(scalar(cx, &t)?),
        None => None,
    };
    // The axis is an attribute before version 20, then an input; by default the last but one, which is dim 1 before.
    let axis = match cx.optional(2)? {
        Some(t) => match t.as_ints().and_then(|v| v.first().copied()) {
            Some(a) => Some(a),
            None => return dft_computed(cx, &x, &t, length, inverse, onesided),
        },
        None if cx.version >= 20 => Some(-2),
        None => cx.int_opt("axis"),
    };
    let axis = cx.axis(axis.unwrap_or(1), rank)?;
    one(transform(cx, &x, axis, length, inverse, onesided)?)
}

fn transform(
    cx: &mut NodeCx,
    x: &Tensor,
    axis: usize,
    length: Option<PrimExpr>,
    inverse: bool,
    onesided: bool,
) -> Res<Tensor> {
    let length = length.unwrap_or_else(|| match inverse && onesided {
        true => (x.dims[axis].clone() - 1) * 2,
        false => x.dims[axis].clone(),
    });
    let length = cx.simplify(length);
    if let Some(y) = multiplied(cx, x, axis, &length, inverse, onesided)? {
        return Ok(y);
    }
    let attrs = [
        ("axis", AttrValue::Int(axis as i64)),
        ("inverse", AttrValue::Bool(inverse)),
        ("onesided", AttrValue::Bool(onesided)),
    ];
    cx.call("onnx.dft", &[x.into(), Arg::prim(length)], &attrs)
}

/// Elements of a matrix of a transform, at most: 4 MB.
const MOST_FACTORS: i64 = 1 << 20;

/// Factors of terms of a transform of `length` elements: that of element `t` in term `k` of the real (0) or imaginary (1)
/// part, where the element is real.
fn factor(length: i64, k: i64, t: i64, part: i64, inverse: bool) -> f64 {
    let angle = (k * t % length) as f64 / length as f64 * std::f64::consts::TAU;
    match (part, inverse) {
        (0, _) => angle.cos(),
        (_, true) => angle.sin(),
        _ => -angle.sin(),
    }
}

fn floats(shape: &[i64], values: impl Iterator<Item = f64>) -> Tensor {
    let bytes = values.flat_map(|v| (v as f32).to_le_bytes()).collect::<Vec<u8>>();
    Tensor::constant(Constant::new(DType::F32, shape.to_vec(), bytes))
}

/// A transform of known lengths along the last axis but that of the parts: a product with a matrix.
fn multiplied(
    cx: &mut NodeCx,
    x: &Tensor,
    axis: usize,
    length: &PrimExpr,
    inverse: bool,
    onesided: bool,
) -> Res<Option<Tensor>> {
    let rank = x.rank();
    let sizes = (length.as_int(), x.dims[axis].as_int(), x.dims[rank - 1].as_int());
    let (Some(length), Some(taken), Some(parts)) = sizes else { return Ok(None) };
    let plain = x.dtype == DType::F32 && axis + 2 == rank && !(inverse && onesided);
    if !plain || !(1..=2).contains(&parts) || !(1..=length).contains(&taken) || length > MOST_FACTORS {
        return Ok(None);
    }
    // Of real elements the other terms are the conjugates of these.
    let halved = parts == 1 && !onesided;
    let terms = if onesided || halved { length / 2 + 1 } else { length };
    let (rows, columns) = (taken * parts, terms * 2);
    if rows * columns > MOST_FACTORS {
        return Ok(None);
    }
    let scale = if inverse { 1.0 / length as f64 } else { 1.0 };
    let entry = |i: i64| {
        let (t, of) = (i / columns / parts, i / columns % parts);
        let (k, part) = (i % columns / 2, i % 2);
        // An imaginary element turns what is real into what is imaginary.
        let sign = if of == 1 && part == 0 { -1.0 } else { 1.0 };
        scale * sign * factor(length, k, t, (part + of) % 2, inverse)
    };
    let matrix = floats(&[rows, columns], (0..rows * columns).map(entry));
    let outer = &x.dims[..axis];
    let flat = cx.reshape(x, &[outer, &[PrimExpr::i64(rows)]].concat())?;
    let y = cx.op("matmul", &[&flat, &matrix])?;
    let y = cx.reshape(&y, &[outer, &[PrimExpr::i64(terms), PrimExpr::i64(2)]].concat())?;
    if !halved || terms == length {
        return Ok(Some(y));
    }
    let (first, end) = ([PrimExpr::i64(length - terms)], [PrimExpr::i64(0)]);
    let others = super::movement::slice_axes(cx, &y, &[axis], &first, &end, &[-1])?;
    let others = cx.op("multiply", &[&others, &floats(&[2], [1.0, -1.0].into_iter())])?;
    let both = [y, others];
    Ok(Some(cx.call("concat", &[both.as_slice().into()], &[("axis", AttrValue::Int(axis as i64))])?))
}

/// An axis that is only known at run time: the result has the dims of the input, so all axes can be tried.
fn dft_computed(
    cx: &mut NodeCx,
    x: &Tensor,
    axis: &Tensor,
    length: Option<PrimExpr>,
    inverse: bool,
    onesided: bool,
) -> Res<Vec<Value>> {
    if length.is_some() || x.rank() < 3 {
        return Err(cx.unsupported("a transform whose axis and length are only known at run time"));
    }
    let at = scalar(cx, axis)?;
    let n = x.rank() as i64;
    let at = at.clone().lt(0).select(at.clone() + n, at);
    if !onesided {
        let at = Tensor::known(&[], DType::I64, vec![at]);
        let mut y: Option<Tensor> = None;
        for axis in 0..x.rank() - 1 {
            let t = transform(cx, x, axis, None, inverse, false)?;
            let here = Tensor::scalar_int(DType::I64, axis as i64);
            let hit = cx.op("equal", &[&at, &here])?;
            y = Some(match y {
                Some(y) => cx.op("where", &[&hit, &t, &y])?,
                None => t,
            });
        }
        let y = y.ok_or_else(|| cx.error("the input has no axis to transform"))?;
        return one(y);
    }
    // The dims of the result depend on the axis: each candidate is padded to the largest, the chosen one is cut out.
    let last = x.rank() - 1;
    let grown = |d: &PrimExpr| if inverse { (d.clone() - 1) * 2 } else { d.clone().floor_div(2) + 1 };
    let mut room: Vec<PrimExpr> = vec![];
    let mut dims: Vec<PrimExpr> = vec![];
    for (i, d) in x.dims.iter().enumerate() {
        if i == last {
            room.push(PrimExpr::i64(if inverse { 1 } else { 2 }));
            dims.push(PrimExpr::i64(if inverse { 1 } else { 2 }));
            continue;
        }
        let g = cx.simplify(grown(d));
        let most = cx.simplify(d.clone().max(g.clone()));
        room.push(most);
        dims.push(at.clone().eq(i as i64).select(g, d.clone()));
    }
    let begin = vec![PrimExpr::i64(0); x.rank()];
    let chosen = Tensor::known(&[], DType::I64, vec![at]);
    let mut y: Option<Tensor> = None;
    for axis in 0..last {
        let t = transform(cx, x, axis, None, inverse, true)?;
        let t = cx.call("onnx.pad", &[(&t).into(), Arg::prims(&begin), Arg::shape(&room)], &[])?;
        let here = Tensor::scalar_int(DType::I64, axis as i64);
        let hit = cx.op("equal", &[&chosen, &here])?;
        y = Some(match y {
            Some(y) => cx.op("where", &[&hit, &t, &y])?,
            None => t,
        });
    }
    let y = y.ok_or_else(|| cx.error("the input has no axis to transform"))?;
    one(cx.call("onnx.pad", &[(&y).into(), Arg::prims(&begin), Arg::shape(&dims)], &[])?)
}

fn stft(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, step) = (cx.input(0)?, cx.input(1)?);
    let step = scalar(cx, &step)?;
    let window = cx.optional(2)?;
    let length = match (cx.optional(3)?, &window) {
        (Some(t), _) => scalar(cx, &t)?,
        (None, Some(w)) => w.dims[0].clone(),
        (None, None) => return Err(cx.error("frame_length or window is needed")),
    };
    let x = if x.rank() == 2 { cx.unsqueeze(&x, &[2])? } else { x };
    let onesided = cx.flag("onesided", true);
    if let Some(y) = convolved(cx, &x, &step, &length, window.as_ref(), onesided)? {
        return one(y);
    }
    let window = match window {
        Some(w) => w.into(),
        None => Arg::absent(),
    };
    let args = [(&x).into(), Arg::prim(step), Arg::prim(length), window];
    one(cx.call("onnx.stft", &args, &[("onesided", AttrValue::Bool(onesided))])?)
}

/// Transforms of frames of a known length, with a known window: a convolution.
fn convolved(
    cx: &mut NodeCx,
    x: &Tensor,
    step: &PrimExpr,
    length: &PrimExpr,
    window: Option<&Tensor>,
    onesided: bool,
) -> Res<Option<Tensor>> {
    let (Some(step), Some(length)) = (step.as_int(), length.as_int()) else { return Ok(None) };
    let known = match window {
        None => Some(vec![1.0; length.clamp(0, MOST_FACTORS) as usize]),
        Some(w) => {
            w.as_constant().filter(|c| c.dtype == DType::F32).map(|c| (0..c.elements()).map(|i| c.get_f64(i)).collect())
        }
    };
    let Some(window) = known.filter(|w: &Vec<f64>| w.len() as i64 == length) else { return Ok(None) };
    let terms = if onesided { length / 2 + 1 } else { length };
    if x.dtype != DType::F32 || !x.dims[2].is_int(1) || step < 1 || length < 1 || terms * 2 * length > MOST_FACTORS {
        return Ok(None);
    }
    let entry = |i: i64| {
        let (k, part, t) = (i / length / 2, i / length % 2, i % length);
        window[t as usize] * factor(length, k, t, part, false)
    };
    let kernel = floats(&[terms * 2, 1, length], (0..terms * 2 * length).map(entry));
    let row = cx.reshape(x, &[x.dims[0].clone(), PrimExpr::i64(1), x.dims[1].clone()])?;
    let attrs = [("strides", ints([step])), ("padding", ints([0, 0])), ("dilation", ints([1]))];
    let y = cx.call("nn.conv1d", &[(&row).into(), (&kernel).into()], &attrs)?;
    let y = cx.call("permute_dims", &[(&y).into()], &[("axes", ints([0, 2, 1]))])?;
    let dims = [y.dims[0].clone(), y.dims[1].clone(), PrimExpr::i64(terms), PrimExpr::i64(2)];
    Ok(Some(cx.reshape(&y, &dims)?))
}

/// A window that is a sum of cosines.
fn window(cx: &mut NodeCx, terms: &[f64]) -> Res<Vec<Value>> {
    let size = cx.input(0)?;
    let size = scalar(cx, &size)?;
    let dtype = cx.dtype_opt("output_datatype")?.unwrap_or(DType::F32);
    let attrs = [
        ("terms", AttrValue::List(terms.iter().map(|t| AttrValue::Float(*t)).collect())),
        ("periodic", AttrValue::Bool(cx.flag("periodic", true))),
        ("dtype", AttrValue::DType(dtype)),
    ];
    one(cx.call("onnx.window", &[Arg::prim(size)], &attrs)?)
}

/// Weights that map the bins of a spectrum to those of the mel scale: triangles between neighbours. As ONNX's reference
/// has it, in float64.
fn mel_weights(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (bands, length) = (cx.input(0)?, cx.input(1)?);
    let (bands, length) = (scalar(cx, &bands)?, scalar(cx, &length)?);
    let dtype = cx.dtype_opt("output_datatype")?.unwrap_or(DType::F32);
    let wide = |cx: &mut NodeCx, i: usize| -> Res<Tensor> {
        let t = cx.input(i)?;
        let t = cx.reshape(&t, &[])?;
        cx.cast(&t, DType::F64)
    };
    let (rate, low, high) = (wide(cx, 2)?, wide(cx, 3)?, wide(cx, 4)?);
    let number = |v: f64| Tensor::scalar(DType::F64, v);
    let mel = |cx: &mut NodeCx, hertz: &Tensor| -> Res<Tensor> {
        let x = cx.op("divide", &[hertz, &number(700.0)])?;
        let x = cx.op("add", &[&x, &number(1.0)])?;
        let x = cx.op("log", &[&x])?;
        cx.op("multiply", &[&x, &number(2595.0 / std::f64::consts::LN_10)])
    };
    let (low, high) = (mel(cx, &low)?, mel(cx, &high)?);
    // The edges of the triangles, in bins of the spectrum.
    let edges = cx.simplify(bands.clone() + 2);
    let count = Tensor::known(&[], DType::I64, vec![edges.clone()]);
    let count = cx.cast(&count, DType::F64)?;
    let step = cx.op("subtract", &[&high, &low])?;
    let step = cx.op("divide", &[&step, &count])?;
    let at = iota(cx, &edges)?;
    let at = cx.cast(&at, DType::F64)?;
    let at = cx.op("multiply", &[&at, &step])?;
    let at = cx.op("add", &[&at, &low])?;
    let at = cx.op("multiply", &[&at, &number(std::f64::consts::LN_10 / 2595.0)])?;
    let at = cx.op("exp", &[&at])?;
    let at = cx.op("subtract", &[&at, &number(1.0)])?;
    let at = cx.op("multiply", &[&at, &number(700.0)])?;
    let points = Tensor::known(&[], DType::I64, vec![length.clone() + 1]);
    let points = cx.cast(&points, DType::F64)?;
    let at = cx.op("multiply", &[&at, &points])?;
    let at = cx.op("divide", &[&at, &rate])?;
    let at = cx.op("floor", &[&at])?;
    let at = cx.cast(&at, DType::I64)?;
    let mut edge = vec![];
    for i in 0..3 {
        let end = cx.simplify(bands.clone() + i);
        edge.push(slice_axes(cx, &at, &[0], &[PrimExpr::i64(i)], &[end], &[1])?);
    }
    let bins = cx.simplify(length.floor_div(2) + 1);
    let j = iota(cx, &bins)?;
    let j = cx.reshape(&j, &[bins.clone(), PrimExpr::i64(1)])?;
    let [lower, center, higher] = &edge[..] else { return Err(cx.error("no edges")) };
    let ratio = |cx: &mut NodeCx, a: &Tensor, b: &Tensor| -> Res<Tensor> {
        let (a, b) = (cx.cast(a, DType::F64)?, cx.cast(b, DType::F64)?);
        cx.op("divide", &[&a, &b])
    };
    let zero = Tensor::scalar_int(DType::I64, 0);
    let rise = cx.op("subtract", &[center, lower])?;
    let up = cx.op("subtract", &[&j, lower])?;
    let up = ratio(cx, &up, &rise)?;
    let flat = cx.op("equal", &[&rise, &zero])?;
    let up = cx.op("where", &[&flat, &number(1.0), &up])?;
    let (above, below) = (cx.op("greater_equal", &[&j, lower])?, cx.op("less_equal", &[&j, center])?);
    let rising = cx.op("logical_and", &[&above, &below])?;
    let y = cx.op("where", &[&rising, &up, &number(0.0)])?;
    let fall = cx.op("subtract", &[higher, center])?;
    let down = cx.op("subtract", &[higher, &j])?;
    let down = ratio(cx, &down, &fall)?;
    let (above, below) = (cx.op("greater_equal", &[&j, center])?, cx.op("less", &[&j, higher])?);
    let falling = cx.op("logical_and", &[&above, &below])?;
    let y = cx.op("where", &[&falling, &down, &y])?;
    one(cx.cast(&y, dtype)?)
}

/// Numbers of [0, 1) for a shape.
pub fn uniform(cx: &mut NodeCx, dims: &[PrimExpr], dtype: DType, salt: i64) -> Res<Tensor> {
    // Dropout has an integer, the others a float.
    let seed = match cx.attr("seed") {
        Some(a) => a.f.map_or(a.i.unwrap_or(0), |f| f.to_bits() as i64),
        None => 0,
    };
    let attrs = [("seed", AttrValue::Int(seed.wrapping_add(salt))), ("dtype", AttrValue::DType(dtype))];
    cx.call("onnx.random", &[Arg::shape(dims)], &attrs)
}

fn bernoulli(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let dtype = cx.dtype_opt("dtype")?.unwrap_or(x.dtype);
    let wide = if x.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let p = cx.cast(&x, wide)?;
    let u = uniform(cx, &x.dims.clone(), wide, 1)?;
    let y = cx.op("less", &[&u, &p])?;
    one(cx.cast(&y, dtype)?)
}

fn random(cx: &mut NodeCx, like: bool, normal: bool) -> Res<Vec<Value>> {
    let (dims, default) = match like {
        true => {
            let x = cx.input(0)?;
            (x.dims.clone(), x.dtype)
        }
        false => {
            let shape = cx.ints("shape");
            let shape = cx.required("shape", shape)?;
            (shape.into_iter().map(PrimExpr::i64).collect(), DType::F32)
        }
    };
    let dtype = cx.dtype_opt("dtype")?.unwrap_or(default);
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let u = uniform(cx, &dims, wide, 1)?;
    let (from, by) = match normal {
        true => (cx.float("mean", 0.0), cx.float("scale", 1.0)),
        false => {
            let low = cx.float("low", 0.0);
            (low, cx.float("high", 1.0) - low)
        }
    };
    let mut y = u;
    if normal {
        // Box and Muller: sqrt(-2 ln(1 - u)) cos(2 pi v).
        let unit = cx.like(&y, 1.0);
        let r = cx.op("subtract", &[&unit, &y])?;
        let r = cx.op("log", &[&r])?;
        let factor = cx.like(&r, -2.0);
        let r = cx.op("multiply", &[&r, &factor])?;
        let r = cx.op("sqrt", &[&r])?;
        let v = uniform(cx, &dims, wide, 2)?;
        let turn = cx.like(&v, std::f64::consts::TAU);
        let v = cx.op("multiply", &[&v, &turn])?;
        let v = cx.op("cos", &[&v])?;
        y = cx.op("multiply", &[&r, &v])?;
    }
    let by = cx.like(&y, by);
    let y = cx.op("multiply", &[&y, &by])?;
    let from = cx.like(&y, from);
    let y = cx.op("add", &[&y, &from])?;
    one(cx.cast(&y, dtype)?)
}
