//! Steps of optimisers (ai.onnx.preview.training).

use super::{op_of, OnnxOp};
use crate::onnx::node::NodeCx;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::DType;

const DOMAIN: &str = "ai.onnx.preview.training";

pub const OPS: &[OnnxOp] = &[
    op_of(DOMAIN, "Adagrad", &[(1, adagrad)]),
    op_of(DOMAIN, "Adam", &[(1, adam)]),
    op_of(DOMAIN, "Momentum", &[(1, momentum)]),
];

/// Inputs after rate and step: `per` groups of as many tensors.
fn groups(cx: &NodeCx, per: usize) -> Res<Vec<Vec<Tensor>>> {
    let all = cx.tensors(2)?;
    if all.is_empty() || all.len() % per != 0 {
        return Err(cx.error(format!("inputs in {per} groups of the same size are needed")));
    }
    let n = all.len() / per;
    Ok((0..n).map(|i| (0..per).map(|g| all[g * n + i].clone()).collect()).collect())
}

/// Results in groups: all of the first kind, then all of the second...
fn regrouped(rows: Vec<Vec<Tensor>>) -> Vec<Value> {
    let kinds = rows.first().map_or(0, Vec::len);
    (0..kinds).flat_map(|k| rows.iter().map(move |r| Value::from(r[k].clone()))).collect()
}

fn times(cx: &mut NodeCx, x: &Tensor, v: f64) -> Res<Tensor> {
    let v = cx.like(x, v);
    cx.op("multiply", &[x, &v])
}

/// The gradient with that of the regularisation added.
fn regularised(cx: &mut NodeCx, x: &Tensor, g: &Tensor) -> Res<Tensor> {
    let norm = cx.float("norm_coefficient", 0.0);
    let n = times(cx, x, norm)?;
    cx.op("add", &[&n, g])
}

/// `sqrt(h) + epsilon`
fn root(cx: &mut NodeCx, h: &Tensor, epsilon: f64) -> Res<Tensor> {
    let r = cx.op("sqrt", &[h])?;
    let e = cx.like(&r, epsilon);
    cx.op("add", &[&r, &e])
}

fn adagrad(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (rate, step) = (cx.input(0)?, cx.input(1)?);
    let step = cx.cast(&step, rate.dtype)?;
    let decay = times(cx, &step, cx.float("decay_factor", 0.0))?;
    let unit = cx.like(&decay, 1.0);
    let decay = cx.op("add", &[&decay, &unit])?;
    let rate = cx.op("divide", &[&rate, &decay])?;
    let mut rows = vec![];
    for t in groups(cx, 3)? {
        let (x, g, h) = (&t[0], &t[1], &t[2]);
        let g = regularised(cx, x, g)?;
        let square = cx.op("multiply", &[&g, &g])?;
        let h = cx.op("add", &[h, &square])?;
        let by = root(cx, &h, cx.float("epsilon", 1e-6))?;
        let rate = cx.cast(&rate, x.dtype)?;
        let move_ = cx.op("multiply", &[&rate, &g])?;
        let move_ = cx.op("divide", &[&move_, &by])?;
        rows.push(vec![cx.op("subtract", &[x, &move_])?, h]);
    }
    Ok(regrouped(rows))
}

/// 1 until the first step is done, then `later(step)`.
fn after_first(cx: &mut NodeCx, step: &Tensor, later: &Tensor) -> Res<Tensor> {
    let zero = Tensor::scalar(step.dtype, 0.0);
    let done = cx.op("greater", &[step, &zero])?;
    let unit = cx.like(later, 1.0);
    cx.op("where", &[&done, later, &unit])
}

fn adam(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (rate, step) = (cx.input(0)?, cx.input(1)?);
    let (alpha, beta) = (cx.float("alpha", 0.9), cx.float("beta", 0.999));
    let t = cx.cast(&step, DType::F64)?;
    // rate * sqrt(1 - beta^t) / (1 - alpha^t)
    let rest = |cx: &mut NodeCx, base: f64| {
        let base = Tensor::scalar(DType::F64, base);
        let p = cx.op("power", &[&base, &t])?;
        let unit = Tensor::scalar(DType::F64, 1.0);
        cx.op("subtract", &[&unit, &p])
    };
    let b = rest(cx, beta)?;
    let b = cx.op("sqrt", &[&b])?;
    let a = rest(cx, alpha)?;
    let correction = cx.op("divide", &[&b, &a])?;
    let correction = after_first(cx, &t, &correction)?;
    let correction = cx.cast(&correction, rate.dtype)?;
    let rate = cx.op("multiply", &[&rate, &correction])?;
    let mut rows = vec![];
    for t in groups(cx, 4)? {
        let (x, g, v, h) = (&t[0], &t[1], &t[2], &t[3]);
        let g = regularised(cx, x, g)?;
        let mixed = |cx: &mut NodeCx, old: &Tensor, new: &Tensor, keep: f64| {
            let old = times(cx, old, keep)?;
            let new = times(cx, new, 1.0 - keep)?;
            cx.op("add", &[&old, &new])
        };
        let v = mixed(cx, v, &g, alpha)?;
        let square = cx.op("multiply", &[&g, &g])?;
        let h = mixed(cx, h, &square, beta)?;
        let by = root(cx, &h, cx.float("epsilon", 1e-6))?;
        let move_ = cx.op("divide", &[&v, &by])?;
        let rate = cx.cast(&rate, x.dtype)?;
        let move_ = cx.op("multiply", &[&rate, &move_])?;
        let x = cx.op("subtract", &[x, &move_])?;
        let x = times(cx, &x, 1.0 - cx.float("norm_coefficient_post", 0.0))?;
        rows.push(vec![x, v, h]);
    }
    Ok(regrouped(rows))
}

fn momentum(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (rate, step) = (cx.input(0)?, cx.input(1)?);
    let (alpha, beta) = (cx.float("alpha", 0.9), cx.float("beta", 1.0));
    let nesterov = cx.str("mode", "standard") == "nesterov";
    let t = cx.cast(&step, rate.dtype)?;
    let later = cx.like(&rate, beta);
    let factor = after_first(cx, &t, &later)?;
    let mut rows = vec![];
    for t in groups(cx, 3)? {
        let (x, g, v) = (&t[0], &t[1], &t[2]);
        let g = regularised(cx, x, g)?;
        let factor = cx.cast(&factor, x.dtype)?;
        let new = cx.op("multiply", &[&factor, &g])?;
        let old = times(cx, v, alpha)?;
        let v = cx.op("add", &[&old, &new])?;
        let mut move_ = v.clone();
        if nesterov {
            let ahead = times(cx, &v, alpha)?;
            move_ = cx.op("add", &[&g, &ahead])?;
        }
        let rate = cx.cast(&rate, x.dtype)?;
        let move_ = cx.op("multiply", &[&rate, &move_])?;
        rows.push(vec![cx.op("subtract", &[x, &move_])?, v]);
    }
    Ok(regrouped(rows))
}
