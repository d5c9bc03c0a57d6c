//! Products and convolutions with what follows them.

use super::{by, ms, one, plus};
use crate::onnx::node::NodeCx;
use crate::onnx::ops::nn::{add_bias, convolve};
use crate::onnx::ops::OnnxOp;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::AttrValue;

pub const OPS: &[OnnxOp] = &[
    ms("FusedMatMul", &[(1, matmul)]),
    ms("TransposeMatMul", &[(1, matmul)]),
    ms("FusedMatMulActivation", &[(1, matmul_activation)]),
    ms("FusedGemm", &[(1, gemm)]),
    ms("FusedConv", &[(1, conv)]),
    ms("GemmFastGelu", &[(1, gemm_fast_gelu)]),
];

/// The last two dims exchanged, or (`batch`) the first moved before the last.
fn turned(cx: &mut NodeCx, x: &Tensor, swap: bool, batch: bool) -> Res<Tensor> {
    let n = x.rank();
    if n < 2 {
        return Ok(x.clone());
    }
    let mut perm: Vec<usize> = (0..n).collect();
    if batch {
        // (m, batches.., k) holds what (batches.., m, k) does.
        perm = (1..n - 1).chain([0, n - 1]).collect();
    }
    if swap {
        perm.swap(n - 2, n - 1);
    }
    cx.transpose(x, &perm)
}

fn product(cx: &mut NodeCx) -> Res<Tensor> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let (swap_a, swap_b) = (cx.flag("transA", false), cx.flag("transB", false));
    let (batch_a, batch_b) = (cx.flag("transBatchA", false), cx.flag("transBatchB", false));
    let a = turned(cx, &a, swap_a, batch_a)?;
    let b = turned(cx, &b, swap_b, batch_b)?;
    let y = cx.op("matmul", &[&a, &b])?;
    scaled(cx, y, "alpha")
}

/// `x` times an attribute that is 1 by default.
fn scaled(cx: &mut NodeCx, x: Tensor, attr: &str) -> Res<Tensor> {
    match cx.float(attr, 1.0) {
        1.0 => Ok(x),
        s => by(cx, "multiply", &x, s),
    }
}

fn matmul(cx: &mut NodeCx) -> Res<Vec<Value>> {
    one(product(cx)?)
}

fn matmul_activation(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let y = product(cx)?;
    let [alpha, beta, gamma] = ["alpha", "beta", "gamma"].map(|n| cx.float_opt(&format!("activation_{n}")));
    one(activated(cx, y, &[alpha, beta, gamma])?)
}

fn gemm(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let (swap_a, swap_b) = (cx.flag("transA", false), cx.flag("transB", false));
    let a = turned(cx, &a, swap_a, false)?;
    let b = turned(cx, &b, swap_b, false)?;
    let y = cx.op("matmul", &[&a, &b])?;
    let y = scaled(cx, y, "alpha")?;
    let c = match cx.optional(2)? {
        Some(c) => Some(scaled(cx, c, "beta")?),
        None => None,
    };
    let y = plus(cx, y, c)?;
    let [alpha, beta, gamma] = ["alpha", "beta", "gamma"].map(|n| cx.float_opt(&format!("activation_{n}")));
    one(activated(cx, y, &[alpha, beta, gamma])?)
}

/// Convolution, bias, sum with a fourth input, activation.
fn conv(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    let (bias, rest) = (cx.optional(2)?, cx.optional(3)?);
    let y = convolve(cx, &x, &w)?;
    let y = add_bias(cx, y, bias)?;
    let y = plus(cx, y, rest)?;
    let params: Vec<Option<f64>> = cx.floats("activation_params").unwrap_or_default().into_iter().map(Some).collect();
    one(activated(cx, y, &params)?)
}

fn gemm_fast_gelu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, w, bias) = (cx.input(0)?, cx.input(1)?, cx.optional(2)?);
    let y = cx.op("matmul", &[&x, &w])?;
    let y = plus(cx, y, bias)?;
    one(cx.op("nn.gelu_tanh", &[&y])?)
}

/// The activation that the node names, with its parameters in the standard's order.
fn activated(cx: &mut NodeCx, x: Tensor, params: &[Option<f64>]) -> Res<Tensor> {
    let param = |i: usize, default: f64| params.get(i).copied().flatten().unwrap_or(default);
    match cx.str("activation", "").as_str() {
        "" => Ok(x),
        "Relu" => cx.at_least(&x, 0.0),
        "Sigmoid" => cx.op("sigmoid", &[&x]),
        "Tanh" => cx.op("tanh", &[&x]),
        "Softplus" => cx.op("nn.softplus", &[&x]),
        "LeakyRelu" => cx.call("nn.leakyrelu", &[(&x).into()], &[("alpha", AttrValue::Float(param(0, 0.01)))]),
        "Clip" => {
            let y = cx.at_least(&x, param(0, f32::MIN as f64))?;
            cx.at_most(&y, param(1, f32::MAX as f64))
        }
        "HardSigmoid" => {
            let y = by(cx, "multiply", &x, param(0, 0.2))?;
            let y = by(cx, "add", &y, param(1, 0.5))?;
            let y = cx.at_most(&y, 1.0)?;
            cx.at_least(&y, 0.0)
        }
        "Elu" => {
            let low = cx.at_most(&x, 0.0)?;
            let low = cx.op("exp", &[&low])?;
            let low = by(cx, "subtract", &low, 1.0)?;
            let low = by(cx, "multiply", &low, param(0, 1.0))?;
            let high = cx.at_least(&x, 0.0)?;
            cx.op("add", &[&high, &low])
        }
        a => Err(cx.unsupported(format!("activation `{a}`"))),
    }
}
