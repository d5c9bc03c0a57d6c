//! Convolutions and pooling beyond the common ones.

use super::nn::{add_bias, kernel_dims, layouts, padding, per_dim, within};
use super::select::positions;
use super::{one, op, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::{counted, ints, NodeCx};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("CausalConvWithState", &[(1, causal_conv)]),
    op("ConvTranspose", &[(1, conv_transpose)]),
    op("DeformConv", &[(19, deform_conv)]),
    op("GlobalLpPool", &[(1, global_lp_pool)]),
    op("LRN", &[(1, lrn)]),
    op("LpPool", &[(1, lp_pool)]),
    op("MaxUnpool", &[(9, max_unpool)]),
];

fn conv_transpose(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    let n = x.rank().saturating_sub(2);
    if !(1..=3).contains(&n) || w.rank() != x.rank() {
        return Err(cx.unsupported(format!(
            "a transposed convolution of {} by {}",
            counted(x.rank(), "dim"),
            counted(w.rank(), "dim")
        )));
    }
    let auto = cx.str("auto_pad", "NOTSET");
    let wanted = cx.ints("output_shape").map(|s| s[s.len().saturating_sub(n)..].to_vec());
    if let Some(s) = wanted.as_ref().filter(|s| s.len() != n) {
        return Err(
            cx.error(format!("output_shape has {}, one for each spatial dim makes {n}", counted(s.len(), "entry")))
        );
    }
    // Only padding to a size looks at the kernel's dims here.
    let kernel = match kernel_dims(cx, &w) {
        Err(_) if wanted.is_none() && !auto.starts_with("SAME") => vec![1; n],
        k => k?,
    };
    let (strides, dilations) = (per_dim(cx, "strides", n)?, per_dim(cx, "dilations", n)?);
    let mut extra = cx.ints("output_padding").unwrap_or_else(|| vec![0; n]);
    let mut pads = cx.ints("pads").unwrap_or_else(|| vec![0; 2 * n]);
    if extra.len() != n || pads.len() != 2 * n {
        return Err(cx.error(format!("pads and output_padding must be for {n} spatial dims")));
    }
    // What a size asks of a dim that varies is cut off afterwards: from where, and how much stays.
    let mut cuts: Vec<Option<(PrimExpr, i64)>> = vec![None; n];
    if wanted.is_some() || auto.starts_with("SAME") {
        for i in 0..n {
            let reach = (kernel[i] - 1) * dilations[i] + 1;
            // Everything but the pads: stride * (d - 1) + extra + reach.
            let total = match (&wanted, x.dims[i + 2].as_int()) {
                (Some(s), Some(d)) => strides[i] * (d - 1) + extra[i] + reach - s[i],
                (None, _) => extra[i] + reach - strides[i],
                (Some(s), None) => {
                    let rest = extra[i] + reach - s[i] - strides[i];
                    let total = (x.dims[i + 2].clone() * strides[i] + rest).max(0);
                    let small = total.clone().floor_div(2);
                    let begin = if auto == "SAME_UPPER" { small } else { total - small };
                    cuts[i] = Some((cx.simplify(begin), s[i]));
                    (pads[i], pads[i + n]) = (0, 0);
                    continue;
                }
            };
            if total < 0 {
                // Too small without padding: more at the end.
                extra[i] -= total;
                pads[i] = 0;
                pads[i + n] = 0;
                continue;
            }
            let (small, large) = (total / 2, total - total / 2);
            let (b, e) = if auto == "SAME_UPPER" { (small, large) } else { (large, small) };
            pads[i] = b;
            pads[i + n] = e;
        }
    } else if auto == "VALID" {
        pads = vec![0; 2 * n];
    }
    // What goes beyond the stride is no output padding: the padding takes less from the end then, and behind the last
    // element that anything adds to there are zeros.
    let (data, _) = layouts(n);
    let kernel_layout = ["IOW", "IOHW", "IODHW"][n - 1];
    let name = ["nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"][n - 1];
    let mut beyond: Vec<i64> = (0..n).map(|i| (extra[i] + 1 - strides[i]).max(0)).collect();
    for i in 0..n {
        extra[i] -= beyond[i];
        let less = beyond[i].min(pads[i + n]).max(0);
        pads[i + n] -= less;
        beyond[i] -= less;
    }
    let group = cx.int("group", 1);
    let mut y = cx.call(
        name,
        &[(&x).into(), (&w).into()],
        &[
            ("strides", ints(strides)),
            ("padding", ints(pads)),
            ("output_padding", ints(extra)),
            ("dilation", ints(dilations)),
            ("groups", AttrValue::Int(group)),
            ("data_layout", AttrValue::Str(data.into())),
            ("kernel_layout", AttrValue::Str(kernel_layout.into())),
        ],
    )?;
    if beyond.iter().any(|b| *b > 0) || cuts.iter().any(Option::is_some) {
        let mut begin = vec![PrimExpr::i64(0); n + 2];
        let mut dims = y.dims.clone();
        for i in 0..n {
            match &cuts[i] {
                Some((from, size)) => {
                    begin[i + 2] = cx.simplify(PrimExpr::i64(0) - from.clone());
                    dims[i + 2] = PrimExpr::i64(*size);
                }
                None => dims[i + 2] = cx.simplify(dims[i + 2].clone() + beyond[i]),
            }
        }
        y = cx.call("onnx.pad", &[(&y).into(), Arg::prims(&begin), Arg::shape(&dims)], &[])?;
    }
    let bias = cx.optional(2)?;
    one(add_bias(cx, y, bias)?)
}

fn deform_conv(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, w, offset) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    if x.rank() != 4 {
        return Err(cx.unsupported(format!("a deformable convolution of {} dims", x.rank())));
    }
    let (strides, dilations) = (per_dim(cx, "strides", 2)?, per_dim(cx, "dilations", 2)?);
    let pads = cx.ints("pads").unwrap_or_else(|| vec![0; 4]);
    let mask = match cx.optional(4)? {
        Some(m) => m.into(),
        None => Arg::absent(),
    };
    let (group, sets) = (cx.int("group", 1), cx.int("offset_group", 1));
    let y = cx.call(
        "onnx.deform_conv",
        &[(&x).into(), (&w).into(), (&offset).into(), mask],
        &[
            ("strides", ints(strides)),
            ("padding", ints(pads)),
            ("dilation", ints(dilations)),
            ("group", AttrValue::Int(group)),
            ("offset_group", AttrValue::Int(sets)),
        ],
    )?;
    let bias = cx.optional(3)?;
    one(add_bias(cx, y, bias)?)
}

/// Pooling in any number of dims: `kind` as of `onnx.pool`.
pub fn general_pool(cx: &mut NodeCx, x: &Tensor, kind: &str, indices: bool) -> Res<Vec<Tensor>> {
    let kernel = cx.ints("kernel_shape");
    let kernel = cx.required("kernel_shape", kernel)?;
    let kernel = within(cx, "kernel_shape", kernel)?;
    let n = kernel.len();
    if x.rank() != n + 2 {
        return Err(cx.error(format!("a window of {n} dims for a tensor of {}", x.rank())));
    }
    let (strides, dilations) = (per_dim(cx, "strides", n)?, per_dim(cx, "dilations", n)?);
    let pads = padding(cx, &x.dims[2..], &kernel, &strides, &dilations)?;
    let attrs = [
        ("kind", AttrValue::Str(kind.into())),
        ("kernel", ints(kernel)),
        ("strides", ints(strides)),
        ("padding", ints(pads)),
        ("dilation", ints(dilations)),
        ("ceil_mode", AttrValue::Bool(cx.flag("ceil_mode", false))),
        ("count_include_pad", AttrValue::Bool(cx.flag("count_include_pad", false))),
        ("p", AttrValue::Int(cx.int("p", 2))),
        ("indices", AttrValue::Bool(indices)),
        ("column_major", AttrValue::Bool(cx.flag("storage_order", false))),
    ];
    cx.call_multi("onnx.pool", &[x.into()], &attrs)
}

fn lp_pool(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    Ok(general_pool(cx, &x, "lp", false)?.into_iter().map(Value::from).collect())
}

fn global_lp_pool(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let axes: Vec<usize> = (2..x.rank()).collect();
    one(super::normalize::p_norm(cx, &x, cx.int("p", 2), &axes)?)
}

fn lrn(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let size = cx.int_opt("size");
    let size = cx.required("size", size)?;
    let attrs = [
        ("size", AttrValue::Int(size)),
        ("alpha", AttrValue::Float(cx.float("alpha", 0.0001))),
        ("beta", AttrValue::Float(cx.float("beta", 0.75))),
        ("bias", AttrValue::Float(cx.float("bias", 1.0))),
    ];
    one(cx.call("onnx.lrn", &[(&x).into()], &attrs)?)
}

/// Puts the maxima back where the pooling found them.
fn max_unpool(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, index) = (cx.input(0)?, cx.input(1)?);
    let kernel = cx.ints("kernel_shape");
    let kernel = cx.required("kernel_shape", kernel)?;
    let kernel = within(cx, "kernel_shape", kernel)?;
    let n = kernel.len();
    let strides = per_dim(cx, "strides", n)?;
    let pads = cx.ints("pads").unwrap_or_else(|| vec![0; 2 * n]);
    if x.rank() != n + 2 || pads.len() != 2 * n {
        return Err(cx.error(format!("a window of {n} dims for a tensor of {}", x.rank())));
    }
    let mut natural = x.dims[..2].to_vec();
    for i in 0..n {
        let d = (x.dims[i + 2].clone() - 1) * strides[i] + (kernel[i] - pads[i] - pads[i + n]);
        natural.push(cx.simplify(d));
    }
    let dims = match cx.optional(2)? {
        Some(t) => cx.read(&t)?,
        None => natural.clone(),
    };
    let total = |cx: &mut NodeCx, d: &[PrimExpr]| cx.simplify(PrimExpr::product(d));
    // Positions count in the tensor without output_shape; a larger one has zeros around.
    let size = total(cx, &natural);
    let zero = Tensor::scalar(x.dtype, 0.0);
    let zeros = cx.broadcast_to(&zero, &[size])?;
    let count = total(cx, &x.dims.clone());
    let (x, index) = (cx.reshape(&x, &[count.clone()])?, cx.reshape(&index, &[count])?);
    let y = cx.call(
        "scatter_elements",
        &[(&zeros).into(), (&index).into(), (&x).into()],
        &[("axis", AttrValue::Int(0)), ("reduction", AttrValue::Str("update".into()))],
    )?;
    let y = cx.reshape(&y, &natural)?;
    if dims == natural {
        return one(y);
    }
    let begin = vec![PrimExpr::i64(0); n + 2];
    one(cx.call("onnx.pad", &[(&y).into(), Arg::prims(&begin), Arg::shape(&dims)], &[])?)
}

/// A depthwise convolution over the past and the input; the last elements are the next past.
fn causal_conv(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    let (bias, past) = (cx.optional(2)?, cx.optional(3)?);
    if w.rank() != 3 {
        return Err(cx.error(format!("a weight of {}: 3 are needed", counted(w.rank(), "dim"))));
    }
    let k = w.dims[2].clone();
    let before = cx.simplify(k.clone() - 1);
    let past = match past {
        Some(p) if p.rank() != 3 || matches!((p.dims[2].as_int(), before.as_int()), (Some(a), Some(b)) if a != b) => {
            let least = before.as_int().unwrap_or(0);
            return Err(
                cx.error(format!("the state must have three dims, the last of {least}: one less than the kernel"))
            );
        }
        Some(p) => p,
        None => {
            let zero = Tensor::scalar(x.dtype, 0.0);
            cx.broadcast_to(&zero, &[x.dims[0].clone(), x.dims[1].clone(), before.clone()])?
        }
    };
    let all = if k.is_int(1) {
        x.clone()
    } else {
        cx.call("concat", &[[past, x.clone()].as_slice().into()], &[("axis", AttrValue::Int(2))])?
    };
    let y = match w.dims[0].as_int() {
        Some(channels) => cx.call(
            "nn.conv1d",
            &[(&all).into(), (&w).into()],
            &[
                ("strides", ints([1])),
                ("padding", ints([0, 0])),
                ("dilation", ints([1])),
                ("groups", AttrValue::Int(channels)),
                ("data_layout", AttrValue::Str("NCW".into())),
                ("kernel_layout", AttrValue::Str("OIW".into())),
            ],
        )?,
        // As many groups as channels is no attribute when the channels vary: a sum over windows.
        None => {
            let steps = cx.simplify(all.dims[2].clone() - before.clone());
            let (rows, columns) = (positions(cx, &steps, 2, 0)?, positions(cx, &k, 2, 1)?);
            let at = cx.op("add", &[&rows, &columns])?;
            let windows = cx.call("take", &[(&all).into(), (&at).into()], &[("axis", AttrValue::Int(2))])?;
            let w = cx.reshape(&w, &[w.dims[0].clone(), PrimExpr::i64(1), k.clone()])?;
            let (windows, w) = (cx.cast(&windows, DType::F32)?, cx.cast(&w, DType::F32)?);
            let products = cx.op("multiply", &[&windows, &w])?;
            let sum = super::reduce::reduce_axes(cx, &products, "sum", &[3], false)?;
            cx.cast(&sum, x.dtype)?
        }
    };
    let mut y = add_bias(cx, y, bias)?;
    if matches!(cx.str("activation", "none").as_str(), "silu" | "swish") {
        let wide = cx.cast(&y, DType::F32)?;
        let wide = super::activation::swish_of(cx, &wide, 1.0)?;
        y = cx.cast(&wide, x.dtype)?;
    }
    let length = all.dims[2].clone();
    let begin = [PrimExpr::i64(0), PrimExpr::i64(0), cx.simplify(before.clone() - length)];
    let dims = [x.dims[0].clone(), x.dims[1].clone(), before];
    let present = cx.call("onnx.pad", &[(&all).into(), Arg::prims(&begin), Arg::shape(&dims)], &[])?;
    Ok(vec![y.into(), present.into()])
}
