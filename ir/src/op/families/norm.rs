//! Normalisation.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::wide_dtype;
use crate::op::families::rules;
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::StructInfo;
use crate::tir::{Buffer, KernelBuilder, PrimFunc};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "nn.batch_norm",
        "Batch normalisation over all axes but `axis`: `(x - mean) / sqrt(var + epsilon) * gamma + beta`, without `gamma` when `scale` is false, without `beta` when `center` is false. Inference takes `moving_mean` and `moving_var` and returns them unchanged; `training` takes the statistics of the batch and returns the moving ones mixed with them by `momentum`. Returns (data, moving_mean, moving_var).",
        &[
            operand("data"),
            operand("gamma"),
            operand("beta"),
            operand("moving_mean"),
            operand("moving_var"),
            attr("axis", Default::Required),
            attr("epsilon", Default::Float(1e-5)),
            attr("center", Default::Bool(true)),
            attr("scale", Default::Bool(true)),
            attr("momentum", Default::Float(0.1)),
            attr("training", Default::Bool(true)),
        ],
        infer_batch_norm,
        Compute::Kernel(batch_norm),
    )
    .ulp(8),
    OpDecl::pure(
        "nn.layer_norm",
        "Normalisation over `axes`: `(x - mean) / sqrt(var + epsilon) * gamma + beta` with `gamma` and `beta` of the shape of those axes. As in TVM `gamma` and `beta` apply whatever `scale` and `center` say.",
        &[
            operand("data"),
            operand("gamma"),
            operand("beta"),
            attr("axes", Default::Required),
            attr("epsilon", Default::Float(1e-5)),
            attr("center", Default::Bool(true)),
            attr("scale", Default::Bool(true)),
        ],
        |cx| infer_over_axes(cx, 2),
        Compute::Kernel(layer_norm),
    )
    .ulp(8),
    OpDecl::pure(
        "nn.group_norm",
        "Normalisation over each of `num_groups` groups of channels and over `axes`; `gamma` and `beta` have one entry per channel and apply whatever `scale` and `center` say.",
        &[
            operand("data"),
            operand("gamma"),
            operand("beta"),
            attr("num_groups", Default::Required),
            attr("channel_axis", Default::Required),
            attr("axes", Default::Required),
            attr("epsilon", Default::Float(1e-5)),
            attr("center", Default::Bool(true)),
            attr("scale", Default::Bool(true)),
        ],
        infer_per_channel,
        Compute::Kernel(group_norm),
    )
    .ulp(8),
    OpDecl::pure(
        "nn.instance_norm",
        "Normalisation over `axes`, each channel of each instance on its own; `gamma` and `beta` have one entry per channel and apply whatever `scale` and `center` say.",
        &[
            operand("data"),
            operand("gamma"),
            operand("beta"),
            attr("channel_axis", Default::Required),
            attr("axes", Default::Required),
            attr("epsilon", Default::Float(1e-5)),
            attr("center", Default::Bool(true)),
            attr("scale", Default::Bool(true)),
        ],
        infer_per_channel,
        Compute::Kernel(group_norm),
    )
    .ulp(8),
    OpDecl::pure(
        "nn.rms_norm",
        "`x / sqrt(mean(x * x) + epsilon) * weight` over `axes` with `weight` of the shape of those axes; the 16-bit floats compute in float32.",
        &[operand("data"), operand("weight"), attr("axes", Default::Int(-1)), attr("epsilon", Default::Float(1e-5))],
        |cx| infer_over_axes(cx, 1),
        Compute::Kernel(rms_norm),
    )
    .ulp(8),
];

/// Requires operand `i` to have the dims `wanted` of the data.
fn require_shape(cx: &mut InferCx, i: usize, wanted: &[PrimExpr]) -> Result<(), Diagnostic> {
    let t = rules::tensor(cx, i)?;
    rules::require_ndim(cx, i, wanted.len())?;
    for (a, b) in t.known_dims().unwrap_or(&[]).iter().zip(wanted) {
        let name = cx.operand(i);
        cx.require_eq(a, b, || format!("{name} has dim {}, the data has {}", dim_text(a), dim_text(b)))?;
    }
    Ok(())
}

fn infer_over_axes(cx: &mut InferCx, parameters: usize) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    cx.require_float(0, x.dtype)?;
    let mut dtypes = vec![("data", x.dtype)];
    for i in 1..=parameters {
        dtypes.push((cx.operand(i), cx.tensor(i)?.dtype));
    }
    cx.same_dtype(&dtypes)?;
    if let Some(n) = x.ndim {
        let axes = cx.axes("axes", n)?.ok_or_else(|| cx.error("axes must be integers"))?;
        for i in 1..=parameters {
            match x.known_dims() {
                Some(d) => require_shape(cx, i, &axes.iter().map(|a| d[*a].clone()).collect::<Vec<_>>())?,
                None => rules::require_ndim(cx, i, axes.len())?,
            }
        }
    }
    Ok(StructInfo::Tensor(x))
}

fn infer_per_channel(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    cx.require_float(0, x.dtype)?;
    cx.same_dtype(&[("data", x.dtype), ("gamma", cx.tensor(1)?.dtype), ("beta", cx.tensor(2)?.dtype)])?;
    rules::require_ndim(cx, 1, 1)?;
    rules::require_ndim(cx, 2, 1)?;
    let groups = match cx.attrs.get("num_groups") {
        Some(_) => cx.int("num_groups")?,
        None => 1,
    };
    if groups < 1 {
        return Err(cx.error("num_groups must be positive"));
    }
    if let Some(n) = x.ndim {
        let channel = cx.axis(cx.int("channel_axis")?, n)?;
        let axes = cx.axes("axes", n)?.ok_or_else(|| cx.error("axes must be integers"))?;
        if axes.contains(&channel) {
            return Err(cx.error(format!("axes contain the channel axis {channel}")));
        }
        if let Some(d) = x.known_dims() {
            rules::require_divisible(cx, &d[channel], groups, "channels")?;
            require_shape(cx, 1, &d[channel..=channel])?;
            require_shape(cx, 2, &d[channel..=channel])?;
        }
    }
    Ok(StructInfo::Tensor(x))
}

fn infer_batch_norm(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    cx.require_float(0, x.dtype)?;
    let mut dtypes = vec![("data", x.dtype)];
    for i in 1..5 {
        dtypes.push((cx.operand(i), cx.tensor(i)?.dtype));
        rules::require_ndim(cx, i, 1)?;
    }
    cx.same_dtype(&dtypes)?;
    if let Some(n) = x.ndim {
        let axis = cx.axis(cx.int("axis")?, n)?;
        if let Some(d) = x.known_dims() {
            for i in 1..5 {
                require_shape(cx, i, &d[axis..=axis])?;
            }
        }
    }
    let moving = [rules::tensor(cx, 3)?, rules::tensor(cx, 4)?];
    let [mean, var] = moving.map(StructInfo::Tensor);
    Ok(StructInfo::Tuple(vec![StructInfo::Tensor(x), mean, var]))
}

/// Mean and `1 / sqrt(variance + epsilon)` over `extents`, for each index of `shape`.
struct Moments {
    mean: Buffer,
    variance: Buffer,
}

/// Two passes: the mean, then the mean square of the differences from it.
fn moments(
    k: &mut KernelBuilder,
    shape: &[PrimExpr],
    acc: DType,
    extents: &[PrimExpr],
    x: impl Fn(&[PrimExpr], &[PrimExpr]) -> PrimExpr,
) -> Moments {
    let count = PrimExpr::product(extents).cast(acc);
    let sum = k.sum("sum", shape, acc, extents, |s, r| x(s, r).cast(acc));
    let mean = k.compute("mean", shape, acc, |i| sum.at(i) / count.clone());
    let square = k.sum("square", shape, acc, extents, |s, r| {
        let d = x(s, r).cast(acc) - mean.at(s);
        d.clone() * d
    });
    let variance = k.compute("variance", shape, acc, |i| square.at(i) / count);
    Moments { mean, variance }
}

fn reciprocal_root(k: &mut KernelBuilder, variance: &Buffer, epsilon: f64) -> Buffer {
    let acc = variance.dtype();
    let shape = variance.shape.clone();
    k.compute("scale", &shape, acc, |i| (variance.at(i) + PrimExpr::float(acc, epsilon)).call1(Intrin::Rsqrt))
}

fn epsilon(cx: &ComputeCx) -> f64 {
    cx.attrs.float("epsilon").unwrap_or(1e-5)
}

/// Splits dims into those outside and those along `axes` (in the order of `axes`).
struct Split {
    outer: Vec<usize>,
    axes: Vec<usize>,
}

impl Split {
    fn new(ndim: usize, axes: Vec<usize>) -> Split {
        Split { outer: (0..ndim).filter(|d| !axes.contains(d)).collect(), axes }
    }
    fn outer<T: Clone>(&self, v: &[T]) -> Vec<T> {
        self.outer.iter().map(|d| v[*d].clone()).collect()
    }
    fn along<T: Clone>(&self, v: &[T]) -> Vec<T> {
        self.axes.iter().map(|d| v[*d].clone()).collect()
    }
    fn join(&self, outer: &[PrimExpr], along: &[PrimExpr]) -> Vec<PrimExpr> {
        let mut index = vec![PrimExpr::i64(0); outer.len() + along.len()];
        for (d, i) in self.outer.iter().zip(outer).chain(self.axes.iter().zip(along)) {
            index[*d] = i.clone();
        }
        index
    }
}

fn axes_of(cx: &ComputeCx, ndim: usize) -> Result<Vec<usize>, Diagnostic> {
    cx.axes("axes", ndim)?.ok_or_else(|| cx.error("axes must be integers"))
}

fn layer_norm(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let out = cx.result()?;
    let (mut k, inputs) = cx.kernel()?;
    let (x, gamma, beta) = (&inputs[0], &inputs[1], &inputs[2]);
    let acc = wide_dtype(x.dtype());
    let split = Split::new(out.dims.len(), axes_of(cx, out.dims.len())?);
    let (shape, extents) = (split.outer(out.dims), split.along(out.dims));
    let m = moments(&mut k, &shape, acc, &extents, |s, r| x.at(split.join(s, r)));
    let scale = reciprocal_root(&mut k, &m.variance, epsilon(cx));
    let y = k.compute("layer_norm", out.dims, out.dtype, |i| {
        let (o, a) = (split.outer(i), split.along(i));
        (x.at(i).cast(acc) - m.mean.at(o.clone())) * scale.at(o) * gamma.at(a.clone()).cast(acc) + beta.at(a).cast(acc)
    });
    Ok(k.finish(&[y]))
}

fn rms_norm(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let out = cx.result()?;
    let (mut k, inputs) = cx.kernel()?;
    let (x, weight) = (&inputs[0], &inputs[1]);
    let acc = wide_dtype(x.dtype());
    let split = Split::new(out.dims.len(), axes_of(cx, out.dims.len())?);
    let (shape, extents) = (split.outer(out.dims), split.along(out.dims));
    let count = PrimExpr::product(&extents).cast(acc);
    let square = k.sum("square", &shape, acc, &extents, |s, r| {
        let v = x.at(split.join(s, r)).cast(acc);
        v.clone() * v
    });
    let eps = PrimExpr::float(acc, epsilon(cx));
    let scale = k.compute("scale", &shape, acc, |i| (square.at(i) / count + eps).call1(Intrin::Rsqrt));
    let y = k.compute("rms_norm", out.dims, out.dtype, |i| {
        scale.at(split.outer(i)) * x.at(i).cast(acc) * weight.at(split.along(i)).cast(acc)
    });
    Ok(k.finish(&[y]))
}

/// Group normalisation; instance normalisation is the one with a group per channel.
fn group_norm(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let out = cx.result()?;
    let ndim = out.dims.len();
    let (mut k, inputs) = cx.kernel()?;
    let (x, gamma, beta) = (&inputs[0], &inputs[1], &inputs[2]);
    let acc = wide_dtype(x.dtype());
    let channel = cx.axis(cx.attrs.int("channel_axis").unwrap_or(1), ndim)?;
    let split = Split::new(ndim, axes_of(cx, ndim)?);
    let at = split.outer.iter().position(|d| *d == channel);
    let at = at.ok_or_else(|| cx.error("axes contain the channel axis"))?;
    let groups = cx.attrs.int("num_groups");
    let size = groups.map(|g| out.dims[channel].clone().floor_div(g));
    let (mut shape, mut extents) = (split.outer(out.dims), split.along(out.dims));
    if let (Some(g), Some(size)) = (groups, &size) {
        shape[at] = PrimExpr::i64(g);
        extents.insert(0, size.clone());
    }
    let m = moments(&mut k, &shape, acc, &extents, |s, r| {
        let (mut s, mut r) = (s.to_vec(), r);
        if let Some(size) = &size {
            s[at] = s[at].clone() * size.clone() + r[0].clone();
            r = &r[1..];
        }
        x.at(split.join(&s, r))
    });
    let scale = reciprocal_root(&mut k, &m.variance, epsilon(cx));
    let y = k.compute("group_norm", out.dims, out.dtype, |i| {
        let mut o = split.outer(i);
        let c = i[channel].clone();
        if let Some(size) = &size {
            o[at] = c.clone().floor_div(size.clone());
        }
        let d = x.at(i).cast(acc) - m.mean.at(o.clone());
        d * scale.at(o) * gamma.at([c.clone()]).cast(acc) + beta.at([c]).cast(acc)
    });
    Ok(k.finish(&[y]))
}

fn batch_norm(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let outs = cx.results()?;
    let out = outs[0].clone();
    let ndim = out.dims.len();
    let (mut k, inputs) = cx.kernel()?;
    let [x, gamma, beta, mean, var] = match inputs.as_slice() {
        [a, b, c, d, e] => [a, b, c, d, e],
        _ => return Err(cx.error("takes five tensors")),
    };
    let acc = wide_dtype(x.dtype());
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(1), ndim)?;
    let (center, with_scale) = (cx.attrs.bool("center") != Some(false), cx.attrs.bool("scale") != Some(false));
    let training = cx.attrs.bool("training").unwrap_or(true);
    let channels = [out.dims[axis].clone()];
    let batch = if training {
        let split = Split::new(ndim, (0..ndim).filter(|d| *d != axis).collect());
        let extents = split.along(out.dims);
        Some(moments(&mut k, &channels, acc, &extents, |s, r| x.at(split.join(s, r))))
    } else {
        None
    };
    let (used_mean, used_var) = match &batch {
        Some(m) => (&m.mean, &m.variance),
        None => (mean, var),
    };
    let eps = PrimExpr::float(acc, epsilon(cx));
    let scale = k.compute("scale", &channels, acc, |c| {
        let root = (used_var.at(c).cast(acc) + eps).call1(Intrin::Sqrt);
        if with_scale {
            gamma.at(c).cast(acc) / root
        } else {
            PrimExpr::one(acc) / root
        }
    });
    let y = k.compute("batch_norm", out.dims, out.dtype, |i| {
        let c = [i[axis].clone()];
        let v = (x.at(i).cast(acc) - used_mean.at(c.clone()).cast(acc)) * scale.at(c.clone());
        if center {
            v + beta.at(c).cast(acc)
        } else {
            v
        }
    });
    let momentum = cx.attrs.float("momentum").unwrap_or(0.1);
    let mut moving = |name: &str, old: &Buffer, new: Option<&Buffer>, to: DType| {
        k.compute(name, &channels, to, |c| match new {
            None => old.at(c),
            Some(n) => {
                let keep = PrimExpr::float(acc, 1.0 - momentum) * old.at(c).cast(acc);
                keep + PrimExpr::float(acc, momentum) * n.at(c)
            }
        })
    };
    let new_mean = moving("moving_mean", mean, batch.as_ref().map(|m| &m.mean), outs[1].dtype);
    let new_var = moving("moving_var", var, batch.as_ref().map(|m| &m.variance), outs[2].dtype);
    Ok(k.finish(&[y, new_mean, new_var]))
}
