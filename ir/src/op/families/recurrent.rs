//! Recurrent layers of one direction, after the products of the inputs: what runs step by step.
//!
//! Source: ONNX `LSTM`, `GRU`, `RNN` (opset 22). The importer multiplies the whole sequence by the input weights and
//! adds the biases beforehand (`x`, gates side by side); here each step adds the product of the former hidden state.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr, Var};
use crate::relax::StructInfo;
use crate::tir::{Buffer, KernelBuilder, PrimFunc};

/// Activations by name, their parameters (`None`: the function's own default), and how the sequence is walked.
macro_rules! params {
    ($($operand:expr),*) => {
        &[
            $($operand,)*
            attr("activations", Default::Required),
            attr("alpha", Default::Required),
            attr("beta", Default::Required),
            attr("clip", Default::Float(0.0)),
            attr("reverse", Default::Bool(false)),
            attr("coupled", Default::Bool(false)),
            attr("linear_before_reset", Default::Bool(false)),
        ]
    };
}

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "onnx.lstm",
        "One direction of an LSTM: `x` (steps, batch, 4 hidden) with gates i, o, f, c; `weight` (hidden, 4 hidden); \
         `h0`, `c0` (batch, hidden); `peephole` (3 hidden): i, o, f; `lengths` (batch). Results: every hidden state \
         (0 beyond a sequence's length), the last hidden and cell state. `coupled` takes 1 - i for f.",
        params!(
            operand("x"),
            operand("weight"),
            operand("h0"),
            operand("c0"),
            optional("peephole"),
            optional("lengths")
        ),
        |cx| infer(cx, 2, 4),
        Compute::Kernel(lstm),
    )
    .ulp(64),
    OpDecl::pure(
        "onnx.gru",
        "One direction of a GRU: `x` (steps, batch, 3 hidden) with gates z, r, h; `weight` (hidden, 3 hidden); `h0` \
         (batch, hidden); `bias` (hidden) is added to the hidden gate's recurrent product when `linear_before_reset`; \
         `lengths` (batch). Results: every hidden state (0 beyond a sequence's length), and the last one.",
        params!(operand("x"), operand("weight"), operand("h0"), optional("bias"), optional("lengths")),
        |cx| infer(cx, 1, 3),
        Compute::Kernel(gru),
    )
    .ulp(64),
    OpDecl::pure(
        "onnx.rnn",
        "One direction of a simple recurrent layer: `x` (steps, batch, hidden); `weight` (hidden, hidden); `h0` (batch, \
         hidden); `lengths` (batch). Results: every hidden state (0 beyond a sequence's length), and the last one.",
        params!(operand("x"), operand("weight"), operand("h0"), optional("lengths")),
        |cx| infer(cx, 1, 1),
        Compute::Kernel(rnn),
    )
    .ulp(64),
];

fn infer(cx: &mut InferCx, states: usize, gates: i64) -> Result<StructInfo, Diagnostic> {
    let x = cx.tensor(0)?.clone();
    let h = cx.tensor(2)?.clone();
    cx.require_float(0, x.dtype)?;
    let (Some(d), Some(s), Some(dtype)) = (x.known_dims(), h.known_dims(), x.dtype) else {
        return Err(cx.error("shapes and dtypes must be known"));
    };
    if d.len() != 3 || s.len() != 2 {
        return Err(cx.error("x must have 3 dims and h0 2"));
    }
    let (batch, hidden) = (s[0].clone(), s[1].clone());
    let wide = hidden.clone() * gates;
    require_dims(cx, 0, &[d[0].clone(), batch.clone(), wide.clone()])?;
    require_dims(cx, 1, &[hidden.clone(), wide])?;
    for i in 0..states {
        require_dims(cx, 2 + i, s)?;
    }
    // Behind the states: peepholes or a bias, where there are such, then lengths.
    let lengths = if gates == 1 { 3 } else { 3 + states };
    if gates > 1 {
        require_dims(cx, lengths - 1, &[if gates == 4 { hidden.clone() * 3 } else { hidden.clone() }])?;
    }
    require_dims(cx, lengths, &[batch])?;
    let all = StructInfo::tensor(vec![d[0].clone(), s[0].clone(), s[1].clone()], dtype);
    let mut out = vec![all];
    out.extend(vec![StructInfo::tensor(s.to_vec(), dtype); states]);
    Ok(StructInfo::Tuple(out))
}

/// Requires that operand `i`, where it is given, has these dims.
fn require_dims(cx: &mut InferCx, i: usize, wanted: &[PrimExpr]) -> Result<(), Diagnostic> {
    if !cx.has(i) {
        return Ok(());
    }
    let dims = cx.tensor(i)?.known_dims().map(<[PrimExpr]>::to_vec);
    let Some(dims) = dims.filter(|d| d.len() == wanted.len()) else {
        return Err(cx.error(format!("operand {} must have {} dims", cx.operand(i), wanted.len())));
    };
    let name = cx.operand(i).to_string();
    for (axis, (d, w)) in dims.iter().zip(wanted).enumerate() {
        cx.require_eq(d, w, || {
            let (d, w) = (rule::dim_text(d), rule::dim_text(w));
            format!("dim {axis} of {name} is {d}, it must be {w}")
        })?;
    }
    Ok(())
}

/// A layer under construction.
struct Layer {
    k: KernelBuilder,
    x: Buffer,
    weight: Buffer,
    lengths: Option<Buffer>,
    steps: PrimExpr,
    batch: PrimExpr,
    hidden: PrimExpr,
    dtype: DType,
    /// Sums and activations are computed in it.
    wide: DType,
    activations: Vec<Activation>,
    clip: f64,
    reverse: bool,
}

struct Activation {
    name: String,
    alpha: f64,
    beta: f64,
}

/// The operands by position, as buffers; those not given are `None`.
fn operands(cx: &ComputeCx) -> Result<(KernelBuilder, Vec<Option<Buffer>>), Diagnostic> {
    let (k, elems) = cx.elems()?;
    let buffers = elems.into_iter().map(|e| match e {
        Some(elem::Elem::Buffer(b)) => Some(b),
        _ => None,
    });
    Ok((k, buffers.collect()))
}

fn layer(cx: &ComputeCx, lengths: usize) -> Result<(Layer, Vec<Option<Buffer>>), Diagnostic> {
    let (k, mut inputs) = operands(cx)?;
    inputs.resize(7, None);
    let (Some(x), Some(weight), Some(h0)) = (inputs[0].clone(), inputs[1].clone(), inputs[2].clone()) else {
        return Err(cx.error("x, weight and h0 must be tensors"));
    };
    let floats = |name: &str| -> Vec<f64> {
        let list = cx.attrs.get(name).and_then(|a| a.as_list()).unwrap_or_default();
        list.iter().map(|v| v.as_float().unwrap_or(f64::NAN)).collect()
    };
    let names = cx.attrs.get("activations").and_then(|a| a.as_list()).unwrap_or_default();
    let (alpha, beta) = (floats("alpha"), floats("beta"));
    let mut activations = vec![];
    for (i, n) in names.iter().enumerate() {
        let name = n.as_str().unwrap_or("").to_lowercase();
        let (a, b) = defaults(&name).ok_or_else(|| cx.error(format!("activation `{name}` is unknown")))?;
        let pick = |list: &[f64], default: f64| list.get(i).copied().filter(|v| !v.is_nan()).unwrap_or(default);
        activations.push(Activation { alpha: pick(&alpha, a), beta: pick(&beta, b), name });
    }
    let dtype = x.dtype();
    let l = Layer {
        steps: x.shape[0].clone(),
        batch: h0.shape[0].clone(),
        hidden: h0.shape[1].clone(),
        lengths: inputs[lengths].clone(),
        wide: elem::wide_dtype(dtype),
        clip: cx.attrs.float("clip").unwrap_or(0.0),
        reverse: cx.attrs.bool("reverse").unwrap_or(false),
        k,
        x,
        weight,
        dtype,
        activations,
    };
    Ok((l, inputs))
}

/// The parameters that an activation has when the model states none.
fn defaults(name: &str) -> Option<(f64, f64)> {
    Some(match name {
        "relu" | "tanh" | "sigmoid" | "softsign" | "softplus" => (0.0, 0.0),
        "affine" | "scaledtanh" => (1.0, if name == "affine" { 0.0 } else { 1.0 }),
        "leakyrelu" => (0.01, 0.0),
        "thresholdedrelu" | "elu" => (1.0, 0.0),
        "hardsigmoid" => (0.2, 0.5),
        _ => return None,
    })
}

impl Layer {
    fn activate(&self, i: usize, x: PrimExpr) -> PrimExpr {
        let d = x.dtype();
        let lit = |v: f64| PrimExpr::float(d, v);
        let x = if self.clip > 0.0 { x.min(lit(self.clip)).max(lit(-self.clip)) } else { x };
        let Some(f) = self.activations.get(i) else { return x };
        let (a, b) = (lit(f.alpha), lit(f.beta));
        let zero = lit(0.0);
        match f.name.as_str() {
            "relu" => x.max(zero),
            "tanh" => x.call1(Intrin::Tanh),
            "sigmoid" => x.call1(Intrin::Sigmoid),
            "affine" => a * x + b,
            "scaledtanh" => a * (b * x).call1(Intrin::Tanh),
            "leakyrelu" => x.clone().lt(zero).select(a * x.clone(), x),
            "thresholdedrelu" => x.clone().gt(a).select(x, zero),
            "elu" => x.clone().lt(zero).select(a * (x.clone().call1(Intrin::Exp) - lit(1.0)), x),
            "hardsigmoid" => (a * x + b).max(zero).min(lit(1.0)),
            "softsign" => x.clone() / (x.call1(Intrin::Abs) + lit(1.0)),
            "softplus" => (x.call1(Intrin::Exp) + lit(1.0)).call1(Intrin::Log),
            _ => x,
        }
    }

    /// The position that step `t` of sequence `b` reads and writes.
    fn position(&self, t: &PrimExpr, b: &PrimExpr) -> PrimExpr {
        match (&self.lengths, self.reverse) {
            (_, false) => t.clone(),
            (None, true) => self.steps.clone() - t.clone() - 1,
            (Some(n), true) => {
                let n = n.at([b.clone()]).cast(DType::I64);
                t.clone().lt(n.clone()).select(n - t.clone() - 1, t.clone())
            }
        }
    }

    /// Does sequence `b` still run at step `t`?
    fn runs(&self, t: &PrimExpr, b: &PrimExpr) -> Option<PrimExpr> {
        self.lengths.as_ref().map(|n| t.clone().lt(n.at([b.clone()]).cast(DType::I64)))
    }

    /// Gate `g` of what the inputs gave at step `t`.
    fn input(&self, t: &PrimExpr, i: &[PrimExpr], g: i64) -> PrimExpr {
        let column = self.hidden.clone() * g + i[1].clone();
        self.x.at([self.position(t, &i[0]), i[0].clone(), column]).cast(self.wide)
    }

    /// A state that starts as `from`.
    fn state(&mut self, name: &str, from: &Buffer) -> Buffer {
        let dims = [self.batch.clone(), self.hidden.clone()];
        let s = self.k.buffer(name, &dims, self.wide);
        let from = from.clone();
        self.k.write(name, &s, &dims, |i| i.to_vec(), |i| from.at(i));
        s
    }

    /// `h @ weight[:, first * hidden .. (first + gates) * hidden]`
    fn product(&self, k: &mut KernelBuilder, h: &Buffer, first: i64, gates: i64) -> Buffer {
        let dims = [self.batch.clone(), self.hidden.clone() * gates];
        let skip = self.hidden.clone() * first;
        k.sum("gates", &dims, self.wide, &[self.hidden.clone()], |i, r| {
            h.at([i[0].clone(), r[0].clone()]) * self.weight.at([r[0].clone(), i[1].clone() + skip]).cast(self.wide)
        })
    }

    /// Stores a new state, the former one where the sequence has ended.
    fn keep(&self, k: &mut KernelBuilder, t: &PrimExpr, name: &str, state: &Buffer, new: &Buffer) {
        let dims = [self.batch.clone(), self.hidden.clone()];
        k.write(
            name,
            state,
            &dims,
            |i| i.to_vec(),
            |i| match self.runs(t, &i[0]) {
                Some(runs) => runs.select(new.at(i), state.at(i)),
                None => new.at(i),
            },
        );
    }

    /// Stores the hidden state of a step.
    fn record(&self, k: &mut KernelBuilder, t: &PrimExpr, y: &Buffer, new: &Buffer) {
        let dims = [self.batch.clone(), self.hidden.clone()];
        let to = |i: &[PrimExpr]| vec![self.position(t, &i[0]), i[0].clone(), i[1].clone()];
        k.write("hidden_states", y, &dims, to, |i| match self.runs(t, &i[0]) {
            Some(runs) => runs.select(new.at(i), PrimExpr::zero(self.wide)),
            None => new.at(i),
        });
    }

    /// A result: a state in the layer's dtype.
    fn last(&mut self, name: &str, state: &Buffer) -> Buffer {
        let state = state.clone();
        let dims = [self.batch.clone(), self.hidden.clone()];
        self.k.compute(name, &dims, self.dtype, |i| state.at(i))
    }

    fn all(&mut self) -> Buffer {
        let dims = [self.steps.clone(), self.batch.clone(), self.hidden.clone()];
        self.k.buffer("y", &dims, self.dtype)
    }
}

fn lstm(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut l, inputs) = layer(cx, 5)?;
    let (Some(h0), Some(c0)) = (&inputs[2], &inputs[3]) else { return Err(cx.error("h0 and c0 must be tensors")) };
    let peephole = inputs[4].clone();
    let coupled = cx.attrs.bool("coupled").unwrap_or(false);
    let y = l.all();
    let (h, c) = (l.state("h", h0), l.state("c", c0));
    let t = Var::dim("t");
    let step = t.expr();
    let mut k = std::mem::take(&mut l.k);
    let (steps, dims) = (l.steps.clone(), [l.batch.clone(), l.hidden.clone()]);
    k.sequential(&t, steps, |k| {
        let gates = l.product(k, &h, 0, 4);
        let gate = |i: &[PrimExpr], g: i64, p: Option<(i64, &Buffer)>| {
            let column = l.hidden.clone() * g + i[1].clone();
            let v = l.input(&step, i, g) + gates.at([i[0].clone(), column]);
            match (p, &peephole) {
                (Some((p, cell)), Some(w)) => v + w.at([l.hidden.clone() * p + i[1].clone()]).cast(l.wide) * cell.at(i),
                _ => v,
            }
        };
        let cell = k.compute("cell", &dims, l.wide, |i| {
            let input = l.activate(0, gate(i, 0, Some((0, &c))));
            let forget = match coupled {
                true => PrimExpr::one(l.wide) - input.clone(),
                false => l.activate(0, gate(i, 2, Some((2, &c)))),
            };
            forget * c.at(i) + input * l.activate(1, gate(i, 3, None))
        });
        let hidden = k.compute("hidden", &dims, l.wide, |i| {
            l.activate(0, gate(i, 1, Some((1, &cell)))) * l.activate(2, cell.at(i))
        });
        l.record(k, &step, &y, &hidden);
        l.keep(k, &step, "next_h", &h, &hidden);
        l.keep(k, &step, "next_c", &c, &cell);
    });
    l.k = k;
    let (yh, yc) = (l.last("y_h", &h), l.last("y_c", &c));
    Ok(l.k.finish(&[y, yh, yc]))
}

fn gru(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut l, inputs) = layer(cx, 4)?;
    let Some(h0) = &inputs[2] else { return Err(cx.error("h0 must be a tensor")) };
    let bias = inputs[3].clone();
    let before = cx.attrs.bool("linear_before_reset").unwrap_or(false);
    let y = l.all();
    let h = l.state("h", h0);
    let t = Var::dim("t");
    let step = t.expr();
    let mut k = std::mem::take(&mut l.k);
    let (steps, dims) = (l.steps.clone(), [l.batch.clone(), l.hidden.clone()]);
    k.sequential(&t, steps, |k| {
        let gates = l.product(k, &h, 0, if before { 3 } else { 2 });
        let gate = |i: &[PrimExpr], g: i64| gates.at([i[0].clone(), l.hidden.clone() * g + i[1].clone()]);
        let reset = |i: &[PrimExpr]| l.activate(0, l.input(&step, i, 1) + gate(i, 1));
        let inner = match before {
            true => k.compute("reset", &dims, l.wide, |i| {
                let v = gate(i, 2);
                let v = match &bias {
                    Some(b) => v + b.at([i[1].clone()]).cast(l.wide),
                    None => v,
                };
                reset(i) * v
            }),
            false => {
                let r = k.compute("reset", &dims, l.wide, |i| reset(i) * h.at(i));
                l.product(k, &r, 2, 1)
            }
        };
        let hidden = k.compute("hidden", &dims, l.wide, |i| {
            let z = l.activate(0, l.input(&step, i, 0) + gate(i, 0));
            let n = l.activate(1, l.input(&step, i, 2) + inner.at(i));
            (PrimExpr::one(l.wide) - z.clone()) * n + z * h.at(i)
        });
        l.record(k, &step, &y, &hidden);
        l.keep(k, &step, "next_h", &h, &hidden);
    });
    l.k = k;
    let yh = l.last("y_h", &h);
    Ok(l.k.finish(&[y, yh]))
}

fn rnn(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut l, inputs) = layer(cx, 3)?;
    let Some(h0) = &inputs[2] else { return Err(cx.error("h0 must be a tensor")) };
    let y = l.all();
    let h = l.state("h", h0);
    let t = Var::dim("t");
    let step = t.expr();
    let mut k = std::mem::take(&mut l.k);
    let (steps, dims) = (l.steps.clone(), [l.batch.clone(), l.hidden.clone()]);
    k.sequential(&t, steps, |k| {
        let gates = l.product(k, &h, 0, 1);
        let hidden = k.compute("hidden", &dims, l.wide, |i| l.activate(0, l.input(&step, i, 0) + gates.at(i)));
        l.record(k, &step, &y, &hidden);
        l.keep(k, &step, "next_h", &h, &hidden);
    });
    l.k = k;
    let yh = l.last("y_h", &h);
    Ok(l.k.finish(&[y, yh]))
}
