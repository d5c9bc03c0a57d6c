//! Pooling.

use super::nn::{layouts, padded, padding, per_dim, within};
use super::reduce::reduce_axes;
use super::windows::general_pool;
use super::{one, op, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::{ints, NodeCx};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("MaxPool", &[(1, |cx| pool(cx, "max"))]),
    op("AveragePool", &[(1, |cx| pool(cx, "avg"))]),
    op("GlobalAveragePool", &[(1, |cx| global(cx, "mean"))]),
    op("GlobalMaxPool", &[(1, |cx| global(cx, "max"))]),
];

fn pool(cx: &mut NodeCx, kind: &str) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    if kind == "max" && cx.wants(1) {
        window(cx, &x)?;
        return Ok(general_pool(cx, &x, kind, true)?.into_iter().map(Value::from).collect());
    }
    one(pool_of(cx, &x, kind)?)
}

/// The dims of the window.
fn window(cx: &mut NodeCx, x: &Tensor) -> Res<Vec<i64>> {
    let kernel = cx.ints("kernel_shape");
    let kernel = cx.required("kernel_shape", kernel)?;
    let kernel = within(cx, "kernel_shape", kernel)?;
    let n = kernel.len();
    if !(1..=3).contains(&n) || x.rank() != n + 2 {
        return Err(cx.unsupported(format!("pooling of {} dims with a window of {n}", x.rank())));
    }
    Ok(kernel)
}

/// `x` pooled as the node's attributes state; `kind` is `max` or `avg`.
pub fn pool_of(cx: &mut NodeCx, x: &Tensor, kind: &str) -> Res<Tensor> {
    let kernel = window(cx, x)?;
    let n = kernel.len();
    let (strides, dilations) = (per_dim(cx, "strides", n)?, per_dim(cx, "dilations", n)?);
    let inside = cx.flag("count_include_pad", false);
    let average = kind == "avg";
    // Elements of whole numbers have no least value that is known here.
    let fill = match kind {
        "max" if x.dtype.is_float() => Some(f64::NEG_INFINITY),
        "avg" => Some(0.0),
        _ => None,
    };
    let around = match fill {
        Some(v) => padded(cx, x, &kernel, &strides, &dilations, v)?,
        None => None,
    };
    let Some(y) = around else {
        let pads = padding(cx, &x.dims[2..], &kernel, &strides, &dilations)?;
        return pooled(cx, x, kind, [kernel, strides, pads, dilations], inside);
    };
    let parts = [kernel.clone(), strides.clone(), vec![0; 2 * n], dilations.clone()];
    let y = pooled(cx, &y, kind, parts.clone(), true)?;
    if !average || inside {
        return Ok(y);
    }
    // Of each window the part that is inside.
    let one = Tensor::scalar(x.dtype, 1.0);
    let mut dims = vec![PrimExpr::i64(1); 2];
    dims.extend_from_slice(&x.dims[2..]);
    let ones = cx.call("broadcast_to", &[(&one).into(), Arg::shape(&dims)], &[])?;
    let ones = padded(cx, &ones, &kernel, &strides, &dilations, 0.0)?.unwrap_or(ones);
    let part = pooled(cx, &ones, kind, parts, true)?;
    cx.op("divide", &[&y, &part])
}

/// A pool of a window, strides, pads and dilations.
fn pooled(cx: &mut NodeCx, x: &Tensor, kind: &str, parts: [Vec<i64>; 4], inside: bool) -> Res<Tensor> {
    let [kernel, strides, pads, dilations] = parts;
    let n = kernel.len();
    let name = format!("nn.{kind}_pool{n}d");
    cx.call(
        &name,
        &[x.into()],
        &[
            ("pool_size", ints(kernel)),
            ("strides", ints(strides)),
            ("padding", ints(pads)),
            ("dilation", ints(dilations)),
            ("ceil_mode", AttrValue::Bool(cx.flag("ceil_mode", false))),
            ("count_include_pad", AttrValue::Bool(inside)),
            ("layout", AttrValue::Str(layouts(n).0.into())),
        ],
    )
}

fn global(cx: &mut NodeCx, relax: &str) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axes: Vec<usize> = (2..x.rank()).collect();
    one(reduce_axes(cx, &x, relax, &axes, true)?)
}
