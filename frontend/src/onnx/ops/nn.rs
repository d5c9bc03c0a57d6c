//! Convolutions and activations.

use super::elementwise::arith;
use super::movement::pad_by;
use super::reduce::reduce_axes;
use super::{one, op, OnnxOp};
use crate::onnx::node::{ints, NodeCx};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::{known, Res};
use relax_ir::prim::BinOp;
use relax_ir::{AttrValue, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("Conv", &[(1, conv)]),
    op("Softmax", &[(1, |cx| softmax_2d(cx, "nn.softmax")), (13, |cx| softmax(cx, "nn.softmax"))]),
    op("LogSoftmax", &[(1, |cx| softmax_2d(cx, "nn.log_softmax")), (13, |cx| softmax(cx, "nn.log_softmax"))]),
    op("LeakyRelu", &[(1, leaky_relu)]),
    op("Clip", &[(1, clip)]),
    op("Softplus", &[(1, softplus)]),
    op("Gelu", &[(20, gelu)]),
];

/// The layouts of `n` spatial dims: of data and of kernels.
pub fn layouts(n: usize) -> (&'static str, &'static str) {
    match n {
        1 => ("NCW", "OIW"),
        2 => ("NCHW", "OIHW"),
        _ => ("NCDHW", "OIDHW"),
    }
}

/// Padding of a window operator: begins then ends. `auto_pad` and `pads` together say it.
pub fn padding(
    cx: &mut NodeCx,
    input: &[PrimExpr],
    kernel: &[i64],
    strides: &[i64],
    dilations: &[i64],
) -> Res<Vec<i64>> {
    let n = kernel.len();
    match cx.str("auto_pad", "NOTSET").as_str() {
        "NOTSET" | "" => {
            let p = cx.ints("pads").unwrap_or_else(|| vec![0; 2 * n]);
            if p.len() != 2 * n {
                return Err(cx.error(format!("{} pads for {n} spatial dims", p.len())));
            }
            Ok(p)
        }
        "VALID" => Ok(vec![0; 2 * n]),
        mode @ ("SAME_UPPER" | "SAME_LOWER") => {
            let mut out = vec![0; 2 * n];
            for i in 0..n {
                let reach = (kernel[i] - 1) * dilations[i] + 1;
                let total = match input[i].as_int() {
                    Some(d) => (((d + strides[i] - 1) / strides[i] - 1) * strides[i] + reach - d).max(0),
                    None if strides[i] == 1 => reach - 1,
                    None => return Err(cx.unsupported("auto_pad of a dim that varies, with strides")),
                };
                let (small, large) = (total / 2, total - total / 2);
                let (b, e) = if mode == "SAME_UPPER" { (small, large) } else { (large, small) };
                out[i] = b;
                out[i + n] = e;
            }
            Ok(out)
        }
        m => Err(cx.error(format!("auto_pad `{m}` is unknown"))),
    }
}

/// As [`padding`] where the amount depends on a dim that varies: `x` with `fill` around it. `None` when all is known, or
/// nothing says that the size stays.
pub fn padded(
    cx: &mut NodeCx,
    x: &Tensor,
    kernel: &[i64],
    strides: &[i64],
    dilations: &[i64],
    fill: f64,
) -> Res<Option<Tensor>> {
    let mode = cx.str("auto_pad", "NOTSET");
    let varies = |i: usize| x.dims[i + 2].as_int().is_none() && strides[i] > 1;
    if !mode.starts_with("SAME") || !(0..kernel.len()).any(varies) {
        return Ok(None);
    }
    let (mut before, mut after) = (vec![PrimExpr::i64(0); 2], vec![PrimExpr::i64(0); 2]);
    for i in 0..kernel.len() {
        let (d, s, reach) = (x.dims[i + 2].clone(), strides[i], (kernel[i] - 1) * dilations[i] + 1);
        // What the last window reaches beyond the end.
        let mut total = (d.clone() + (s - 1)).floor_div(s) * s - d + (reach - s);
        if reach < s {
            total = total.max(0);
        }
        let (small, large) = (total.clone().floor_div(2), total.clone() - total.floor_div(2));
        let (b, e) = if mode == "SAME_UPPER" { (small, large) } else { (large, small) };
        before.push(cx.simplify(b));
        after.push(cx.simplify(e));
    }
    let fill = Tensor::scalar(x.dtype, fill);
    pad_by(cx, x.clone(), &before, &after, "constant", &fill).map(Some)
}

/// Literal spatial dims of a kernel.
pub fn kernel_dims(cx: &NodeCx, w: &Tensor) -> Res<Vec<i64>> {
    if let Some(k) = cx.ints("kernel_shape") {
        return within(cx, "kernel_shape", k);
    }
    let dims: Option<Vec<i64>> = w.dims.get(2..).unwrap_or_default().iter().map(PrimExpr::as_int).collect();
    dims.ok_or_else(|| cx.unsupported("a kernel whose dims vary"))
}

/// Numbers of which products of two are numbers.
pub fn within(cx: &NodeCx, name: &str, v: Vec<i64>) -> Res<Vec<i64>> {
    match v.iter().find(|v| v.unsigned_abs() > 1 << 31) {
        Some(far) => Err(cx.error(format!("{name} of {far}"))),
        None => Ok(v),
    }
}

/// A list attribute with one entry per spatial dim.
pub fn per_dim(cx: &NodeCx, name: &str, n: usize) -> Res<Vec<i64>> {
    let v = cx.ints(name).unwrap_or_else(|| vec![1; n]);
    if v.len() != n {
        return Err(cx.error(format!("{} {name} for {n} spatial dims", v.len())));
    }
    within(cx, name, v)
}

fn conv(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    let bias = cx.optional(2)?;
    let y = convolve(cx, &x, &w)?;
    one(add_bias(cx, y, bias)?)
}

/// The convolution that the node's attributes state.
pub fn convolve(cx: &mut NodeCx, x: &Tensor, w: &Tensor) -> Res<Tensor> {
    let n = x.rank().saturating_sub(2);
    if !(1..=3).contains(&n) || w.rank() != x.rank() {
        return Err(cx.unsupported(format!("a convolution of {} dims by {} dims", x.rank(), w.rank())));
    }
    // Only padding to the same size looks at the kernel's dims here.
    let kernel = match kernel_dims(cx, w) {
        Err(_) if !cx.str("auto_pad", "").starts_with("SAME") => vec![1; n],
        k => k?,
    };
    let (strides, dilations) = (per_dim(cx, "strides", n)?, per_dim(cx, "dilations", n)?);
    let around = padded(cx, x, &kernel, &strides, &dilations, 0.0)?;
    let (x, pads) = match &around {
        Some(y) => (y, vec![0; 2 * n]),
        None => (x, padding(cx, &x.dims[2..], &kernel, &strides, &dilations)?),
    };
    let (data_layout, kernel_layout) = layouts(n);
    let name = ["nn.conv1d", "nn.conv2d", "nn.conv3d"][n - 1];
    cx.call(
        name,
        &[x.into(), w.into()],
        &[
            ("strides", ints(strides)),
            ("padding", ints(pads)),
            ("dilation", ints(dilations)),
            ("groups", AttrValue::Int(cx.int("group", 1))),
            ("data_layout", AttrValue::Str(data_layout.into())),
            ("kernel_layout", AttrValue::Str(kernel_layout.into())),
        ],
    )
}

/// Adds a bias per channel (dim 1).
pub fn add_bias(cx: &mut NodeCx, y: Tensor, bias: Option<Tensor>) -> Res<Tensor> {
    let Some(b) = bias else { return Ok(y) };
    let mut dims = vec![b.dims.first().cloned().unwrap_or_else(|| PrimExpr::i64(1))];
    dims.extend(vec![PrimExpr::i64(1); y.rank() - 2]);
    let b = cx.reshape(&b, &dims)?;
    cx.op("add", &[&y, &b])
}

fn softmax(cx: &mut NodeCx, relax: &str) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", -1), x.rank())?;
    if x.dtype == DType::F16 && relax == "nn.softmax" {
        return one(softmax_f16(cx, &x, axis)?);
    }
    one(cx.call(relax, &[(&x).into()], &[("axis", AttrValue::Int(axis as i64))])?)
}

/// Softmax of float16 in the steps of the operator's function body, each rounded to float16: single rounding at the end
/// is nearer to the exact value, but differs from every implementation that follows the body by more than the
/// tolerance of ONNX's own tests.
pub fn softmax_f16(cx: &mut NodeCx, x: &Tensor, axis: usize) -> Res<Tensor> {
    let top = reduce_axes(cx, x, "max", &[axis], true)?;
    let y = cx.op("subtract", &[x, &top])?;
    let y = cx.op("exp", &[&y])?;
    let sum = reduce_axes(cx, &y, "sum", &[axis], true)?;
    cx.op("divide", &[&y, &sum])
}

/// Before version 13: of the tensor made a matrix at `axis`.
fn softmax_2d(cx: &mut NodeCx, relax: &str) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", 1), x.rank())?;
    let columns = cx.simplify(PrimExpr::product(&x.dims[axis..]));
    let mut dims = x.dims[..axis].to_vec();
    dims.push(columns);
    let y = cx.reshape(&x, &dims)?;
    let y = cx.call(relax, &[(&y).into()], &[("axis", AttrValue::Int(-1))])?;
    one(cx.reshape(&y, &x.dims.clone())?)
}

fn leaky_relu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let alpha = cx.float("alpha", 0.01);
    one(cx.call("nn.leakyrelu", &[(&x).into()], &[("alpha", AttrValue::Float(alpha))])?)
}

fn clip(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let low = match (cx.float_opt("min"), cx.optional(1)?) {
        (Some(v), _) => Some(cx.like(&x, v)),
        (None, t) => t,
    };
    let high = match (cx.float_opt("max"), cx.optional(2)?) {
        (Some(v), _) => Some(cx.like(&x, v)),
        (None, t) => t,
    };
    // min(max(x, low), high): the upper bound wins when they cross.
    let mut y = x;
    for (relax, op, bound) in [("maximum", BinOp::Max, low), ("minimum", BinOp::Min, high)] {
        let Some(bound) = bound else { continue };
        // Exporters compute paddings with it.
        let literal = |x: PrimExpr| (x.as_int().is_some() || x.as_float().is_some()).then_some(x);
        y = match known::zip(&[&bound, &y], y.dtype, |v| literal(arith(op, &v[0], &v[1])?)) {
            Some(known) => known,
            None => cx.op(relax, &[&bound, &y])?,
        };
    }
    one(y)
}

fn softplus(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    one(cx.op("nn.softplus", &[&x])?)
}

fn gelu(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let relax = if cx.str("approximate", "none") == "tanh" { "nn.gelu_tanh" } else { "nn.gelu" };
    one(cx.op(relax, &[&x])?)
}
