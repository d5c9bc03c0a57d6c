//! Discrete Fourier transforms, whole and of frames.

use super::signal::scalar;
use super::{one, op, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::{ints, NodeCx};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, Constant, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[op("DFT", &[(17, dft)]), op("STFT", &[(17, stft)])];

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

/// How long the moves of a stage take, as products of complex numbers for each.
const MOVES: i64 = 64;

/// A transform of a known length.
#[derive(Clone, Copy)]
struct Known {
    length: i64,
    /// 1 where the elements are real, else 2.
    parts: i64,
    inverse: bool,
    /// What is asked for: the first half of the terms.
    onesided: bool,
}

impl Known {
    /// Of real elements the other terms are the conjugates of the first half.
    fn terms(&self) -> i64 {
        match self.parts == 1 || self.onesided {
            true => self.length / 2 + 1,
            false => self.length,
        }
    }

    /// Products of complex numbers for each element as one product with a matrix; `None` where that is too large.
    fn direct(&self) -> Option<i64> {
        let factors = (self.length * self.parts).checked_mul(self.terms() * 2)?;
        (factors <= MOST_FACTORS).then(|| self.terms() * self.parts / 2)
    }

    /// The same in the best way, and how many elements each transform of its last stage has (1: it is one stage).
    fn best(&self) -> Option<(i64, i64)> {
        let all = (2..=self.length / 2).take_while(|n| n * n <= self.length).filter(|n| self.length % n == 0);
        let stage = |last: i64| {
            let first = Known { length: self.length / last, onesided: false, ..*self };
            let fits = self.length * last * 4 <= MOST_FACTORS;
            fits.then(|| Some((first.best()?.0 + last + MOVES, last)))?
        };
        let direct = self.direct().map(|n| (n, 1));
        // No stage takes less than its moves.
        let stages = direct.is_none_or(|(n, _)| n > MOVES);
        direct.into_iter().chain(all.filter(|_| stages).filter_map(stage)).min()
    }
}

/// A transform of known lengths in float32, as products with matrices.
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
    let plain = x.dtype == DType::F32 && axis + 1 < rank && !(inverse && onesided);
    if !plain || !(1..=2).contains(&parts) || !(1..=length).contains(&taken) || length > MOST_FACTORS {
        return Ok(None);
    }
    let known = Known { length, parts, inverse, onesided };
    let Some((_, last)) = known.best() else { return Ok(None) };
    // The transform runs along the last axis but that of the parts.
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(axis, rank - 2);
    let mut x = cx.transpose(x, &order)?;
    let scale = if inverse { 1.0 / length as f64 } else { 1.0 };
    if last == 1 {
        let y = in_one_stage(cx, &x, known, known.terms(), scale)?;
        let y = if onesided { y } else { with_conjugates(cx, y, length)? };
        return Ok(Some(cx.transpose(&y, &order)?));
    }
    if taken < length {
        let mut dims = x.dims.clone();
        dims[rank - 2] = PrimExpr::i64(length);
        let begin = vec![PrimExpr::i64(0); rank];
        x = cx.call("onnx.pad", &[(&x).into(), Arg::prims(&begin), Arg::shape(&dims)], &[])?;
    }
    let mut y = in_stages(cx, &x, known, last, scale)?;
    if onesided {
        let (first, end) = ([PrimExpr::i64(0)], [PrimExpr::i64(known.terms())]);
        y = super::movement::slice_axes(cx, &y, &[rank - 2], &first, &end, &[1])?;
    }
    Ok(Some(cx.transpose(&y, &order)?))
}

/// All terms of transforms along the last axis but one, without a matrix that is too large.
fn all_terms(cx: &mut NodeCx, x: &Tensor, known: Known) -> Res<Tensor> {
    match known.best() {
        Some((_, last)) if last > 1 => in_stages(cx, x, known, last, 1.0),
        _ => in_one_stage(cx, x, known, known.length, 1.0),
    }
}

/// The first terms, as a product with the matrix of their factors; elements that are not there are 0.
fn in_one_stage(cx: &mut NodeCx, x: &Tensor, known: Known, terms: i64, scale: f64) -> Res<Tensor> {
    let Known { length, parts, inverse, .. } = known;
    let axis = x.rank() - 2;
    let taken = x.dims[axis].as_int().unwrap_or(length);
    let (rows, columns) = (taken * parts, terms * 2);
    let entry = |i: i64| {
        let (t, of) = (i / columns / parts, i / columns % parts);
        let (k, part) = (i % columns / 2, i % 2);
        scale * signed(length, k, t, part, of, inverse)
    };
    let matrix = floats(&[rows, columns], (0..rows * columns).map(entry));
    let outer = &x.dims[..axis];
    let flat = cx.reshape(x, &[outer, &[PrimExpr::i64(rows)]].concat())?;
    let y = cx.op("matmul", &[&flat, &matrix])?;
    cx.reshape(&y, &[outer, &[PrimExpr::i64(terms), PrimExpr::i64(2)]].concat())
}

/// The first terms of a transform of real elements, with the others where they are not all.
fn with_conjugates(cx: &mut NodeCx, y: Tensor, length: i64) -> Res<Tensor> {
    let axis = y.rank() - 2;
    let Some(terms) = y.dims[axis].as_int().filter(|n| *n < length) else { return Ok(y) };
    let (first, end) = ([PrimExpr::i64(length - terms)], [PrimExpr::i64(0)]);
    let others = super::movement::slice_axes(cx, &y, &[axis], &first, &end, &[-1])?;
    let others = cx.op("multiply", &[&others, &floats(&[2], [1.0, -1.0].into_iter())])?;
    let both = [y, others];
    cx.call("concat", &[both.as_slice().into()], &[("axis", AttrValue::Int(axis as i64))])
}

/// Cooley and Tukey's algorithm (Math. Comp. 19, 1965), by stages that are products of matrices: element
/// `last * t + u` of `first * last`, and term `k + first * j`. Of each `u` the transform over `t`, then of each `k` that
/// over `u`, in whose matrix the twiddle factors are.
fn in_stages(cx: &mut NodeCx, x: &Tensor, known: Known, last: i64, scale: f64) -> Res<Tensor> {
    let Known { length, parts, inverse, .. } = known;
    let n = x.rank() - 2;
    let first = length / last;
    let number = PrimExpr::i64;
    let outer = x.dims[..n].to_vec();
    let with = |dims: &[i64]| outer.iter().cloned().chain(dims.iter().map(|d| number(*d))).collect::<Vec<_>>();
    // [.., t, u, part] to [.., u, t, part] to [.., u, k, part].
    let turned: Vec<usize> = (0..n).chain([n + 1, n, n + 2]).collect();
    let y = cx.reshape(x, &with(&[first, last, parts]))?;
    let y = cx.transpose(&y, &turned)?;
    let y = all_terms(cx, &y, Known { length: first, parts, inverse, onesided: false })?;
    // To [k, .., u, part], in which everything between is rows.
    let forth: Vec<usize> = [n + 1].into_iter().chain(0..n).chain([n, n + 2]).collect();
    let y = cx.transpose(&y, &forth)?;
    let rows = cx.simplify(outer.iter().cloned().reduce(|a, b| a * b).unwrap_or_else(|| number(1)));
    let y = cx.reshape(&y, &[number(first), rows, number(2 * last)])?;
    let side = 2 * last;
    let entry = |i: i64| {
        let (k, (u, of), (j, part)) = (i / side / side, (i / side % side / 2, i / side % 2), (i % side / 2, i % 2));
        scale * signed(length, k + first * j, u, part, of, inverse)
    };
    let matrices = floats(&[first, side, side], (0..first * side * side).map(entry));
    let y = cx.op("matmul", &[&y, &matrices])?;
    // [k, .., j, part] to [.., j, k, part].
    let dims = [&[number(first)][..], &outer, &[number(last), number(2)]].concat();
    let y = cx.reshape(&y, &dims)?;
    let back: Vec<usize> = (1..=n + 1).chain([0, n + 2]).collect();
    let y = cx.transpose(&y, &back)?;
    cx.reshape(&y, &with(&[length, 2]))
}

/// The factor of a part of element `t` in a part of term `k`: an imaginary element turns what is real into what is imaginary.
fn signed(length: i64, k: i64, t: i64, part: i64, of: i64, inverse: bool) -> f64 {
    let sign = if of == 1 && part == 0 { -1.0 } else { 1.0 };
    sign * factor(length, k, t, (part + of) % 2, inverse)
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
