//! Recurrent layers: LSTM, GRU and RNN.
//!
//! The products of the inputs are one matrix product over the whole sequence; the steps are an operator of their own
//! (`onnx.lstm`, ...) per direction.

use super::movement::{select_at, slice_axes, stack};
use super::{op, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::{counted, NodeCx};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("LSTM", &[(1, |cx| layer(cx, Kind::Lstm, part))]),
    op("GRU", &[(1, |cx| layer(cx, Kind::Gru, part))]),
    op("RNN", &[(1, |cx| layer(cx, Kind::Rnn, part))]),
];

/// The layers that there are.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Lstm,
    Gru,
    Rnn,
}

impl Kind {
    fn gates(self) -> i64 {
        match self {
            Kind::Lstm => 4,
            Kind::Gru => 3,
            Kind::Rnn => 1,
        }
    }
    fn activations(self) -> &'static [&'static str] {
        match self {
            Kind::Lstm => &["Sigmoid", "Tanh", "Tanh"],
            Kind::Gru => &["Sigmoid", "Tanh"],
            Kind::Rnn => &["Tanh"],
        }
    }
    fn relax(self) -> &'static str {
        match self {
            Kind::Lstm => "onnx.lstm",
            Kind::Gru => "onnx.gru",
            Kind::Rnn => "onnx.rnn",
        }
    }
}

/// What one direction of a layer gives.
struct Direction {
    all: Tensor,
    last: Tensor,
    cell: Option<Tensor>,
}

/// The weights at input `i` (1: of the inputs, 2: of the states) of direction `d`: `(gates * hidden, input)`.
pub type Weights = fn(cx: &mut NodeCx, i: usize, d: usize) -> Res<Option<Tensor>>;

/// The values of a layer, whose inputs are where those of the standard's operator are.
pub fn layer(cx: &mut NodeCx, kind: Kind, weights: Weights) -> Res<Vec<Value>> {
    let mut x = cx.input(0)?;
    let batch_first = cx.int("layout", 0) == 1;
    if x.rank() != 3 {
        return Err(cx.error(format!("the input has {}, it must have 3", counted(x.rank(), "dim"))));
    }
    if batch_first {
        x = cx.transpose(&x, &[1, 0, 2])?;
    }
    let directions: &[bool] = match cx.str("direction", "forward").as_str() {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        d => return Err(cx.error(format!("direction `{d}` is unknown"))),
    };
    let mut parts = vec![];
    for (d, reverse) in directions.iter().enumerate() {
        parts.push(direction(cx, kind, &x, weights, Place { d, reverse: *reverse, batch_first })?);
    }
    let all: Vec<Tensor> = parts.iter().map(|p| p.all.clone()).collect();
    let last: Vec<Tensor> = parts.iter().map(|p| p.last.clone()).collect();
    let cells: Vec<Tensor> = parts.iter().filter_map(|p| p.cell.clone()).collect();
    // (steps, directions, batch, hidden), or (batch, steps, directions, hidden).
    let mut y = stack(cx, &all, 1)?;
    let mut h = stack(cx, &last, 0)?;
    if batch_first {
        y = cx.transpose(&y, &[2, 0, 1, 3])?;
        h = cx.transpose(&h, &[1, 0, 2])?;
    }
    let mut out: Vec<Value> = vec![y.into(), h.into()];
    if !cells.is_empty() {
        let mut c = stack(cx, &cells, 0)?;
        if batch_first {
            c = cx.transpose(&c, &[1, 0, 2])?;
        }
        out.push(c.into());
    }
    Ok(out)
}

/// The part of an optional input that belongs to direction `d`, which is along the first dim.
pub fn part(cx: &mut NodeCx, i: usize, d: usize) -> Res<Option<Tensor>> {
    part_along(cx, i, 0, d)
}

fn part_along(cx: &mut NodeCx, i: usize, axis: usize, d: usize) -> Res<Option<Tensor>> {
    match cx.optional(i)? {
        Some(t) => Ok(Some(select_at(cx, &t, axis, d as i64)?)),
        None => Ok(None),
    }
}

/// Which direction of a layer this is.
struct Place {
    d: usize,
    reverse: bool,
    batch_first: bool,
}

fn direction(cx: &mut NodeCx, kind: Kind, x: &Tensor, weights: Weights, place: Place) -> Res<Direction> {
    let Place { d, reverse, batch_first } = place;
    let (Some(w), Some(r)) = (weights(cx, 1, d)?, weights(cx, 2, d)?) else {
        return Err(cx.error("the weights are missing"));
    };
    let hidden = r.dims.last().cloned().unwrap_or_else(|| PrimExpr::i64(1));
    let gates = kind.gates();
    let columns = |from: i64, to: i64| {
        let h = hidden.clone();
        (h.clone() * from, h * to)
    };
    let bias = part(cx, 3, d)?;
    let before = kind == Kind::Gru && cx.int("linear_before_reset", 0) != 0;
    // x @ w^T + b: w (gates * hidden, input).
    let wt = cx.transpose(&w, &[1, 0])?;
    let mut xp = cx.op("matmul", &[x, &wt])?;
    let mut hidden_bias = None;
    if let Some(b) = bias {
        let cut = |cx: &mut NodeCx, from: i64, to: i64| -> Res<Tensor> {
            let (b0, b1) = columns(from, to);
            slice_axes(cx, &b, &[0], &[b0], &[b1], &[1])
        };
        let wb = cut(cx, 0, gates)?;
        xp = cx.op("add", &[&xp, &wb])?;
        if before {
            // The bias of the hidden gate's recurrent product is inside the reset.
            let rb = cut(cx, gates, 2 * gates - 1)?;
            hidden_bias = Some(cut(cx, 2 * gates - 1, 2 * gates)?);
            let zero = Tensor::scalar(b.dtype, 0.0);
            let zero = cx.broadcast_to(&zero, &[hidden.clone()])?;
            let rb = cx.call("concat", &[[rb, zero].as_slice().into()], &[("axis", AttrValue::Int(0))])?;
            xp = cx.op("add", &[&xp, &rb])?;
        } else {
            let rb = cut(cx, gates, 2 * gates)?;
            xp = cx.op("add", &[&xp, &rb])?;
        }
    }
    let weight = cx.transpose(&r, &[1, 0])?;
    let batch = x.dims[1].clone();
    let state_axis = if batch_first { 1 } else { 0 };
    let mut states = vec![];
    for i in 0..if kind == Kind::Lstm { 2 } else { 1 } {
        states.push(match part_along(cx, 5 + i, state_axis, d)? {
            Some(s) => s,
            None => {
                let zero = Tensor::scalar(x.dtype, 0.0);
                cx.broadcast_to(&zero, &[batch.clone(), hidden.clone()])?
            }
        });
    }
    let lengths = cx.optional(4)?.map_or_else(Arg::absent, Arg::from);
    let mut args: Vec<Arg> = vec![xp.into(), weight.into()];
    args.extend(states.into_iter().map(Arg::from));
    match kind {
        Kind::Lstm => args.push(part(cx, 7, d)?.map_or_else(Arg::absent, Arg::from)),
        Kind::Gru => args.push(hidden_bias.map_or_else(Arg::absent, Arg::from)),
        Kind::Rnn => {}
    }
    args.push(lengths);
    let n = kind.activations().len();
    let names = match cx.strings("activations") {
        Some(a) if a.len() >= (d + 1) * n => a[d * n..(d + 1) * n].to_vec(),
        Some(_) => return Err(cx.error("too few activations")),
        None => kind.activations().iter().map(|s| s.to_string()).collect(),
    };
    let alpha = parameters(&names, takes_alpha, cx.floats("activation_alpha"), cx.strings("activations"), d * n);
    let beta = parameters(&names, takes_beta, cx.floats("activation_beta"), cx.strings("activations"), d * n);
    let list = |v: Vec<Option<f64>>| {
        AttrValue::List(v.into_iter().map(|v| v.map_or(AttrValue::None, AttrValue::Float)).collect())
    };
    let attrs = [
        ("activations", AttrValue::List(names.into_iter().map(AttrValue::Str).collect())),
        ("alpha", list(alpha)),
        ("beta", list(beta)),
        ("clip", AttrValue::Float(cx.float("clip", 0.0))),
        ("reverse", AttrValue::Bool(reverse)),
        ("coupled", AttrValue::Bool(cx.int("input_forget", 0) != 0)),
        ("linear_before_reset", AttrValue::Bool(before)),
    ];
    let mut out = cx.call_multi(kind.relax(), &args, &attrs)?.into_iter();
    match (out.next(), out.next()) {
        (Some(all), Some(last)) => Ok(Direction { all, last, cell: out.next() }),
        _ => Err(cx.error("the layer gives no states")),
    }
}

fn takes_alpha(name: &str) -> bool {
    matches!(
        name.to_lowercase().as_str(),
        "affine" | "leakyrelu" | "thresholdedrelu" | "scaledtanh" | "hardsigmoid" | "elu"
    )
}

fn takes_beta(name: &str) -> bool {
    matches!(name.to_lowercase().as_str(), "affine" | "scaledtanh" | "hardsigmoid")
}

/// The parameters of these activations: the attribute lists them in order for the functions that take one;
/// `None`: not stated.
fn parameters(
    names: &[String],
    takes: fn(&str) -> bool,
    values: Option<Vec<f64>>,
    all: Option<Vec<String>>,
    skip: usize,
) -> Vec<Option<f64>> {
    let values = values.unwrap_or_default();
    let all = all.unwrap_or_default();
    let mut next = all.iter().take(skip).filter(|n| takes(n)).count();
    names
        .iter()
        .map(|n| {
            if !takes(n) {
                return None;
            }
            next += 1;
            values.get(next - 1).copied()
        })
        .collect()
}
