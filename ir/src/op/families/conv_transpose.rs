//! Transposed convolution.

use crate::diag::Diagnostic;
use crate::op::elem::wide_dtype;
use crate::op::families::conv::Window;
use crate::op::families::layout;
use crate::op::families::rules;
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::PrimFunc;

const DOC: &str = "Transposed convolution: the gradient of the convolution with respect to its data. `out = (in - 1) * stride - begin - end + dilation * (kernel - 1) + 1 + output_padding`; kernel axis `I` is the input channel, `O` the output channel within a group.";

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "nn.conv1d_transpose",
        DOC,
        &[
            operand("data"),
            operand("weight"),
            attr("strides", Default::Ints(&[1])),
            attr("padding", Default::Ints(&[0, 0])),
            attr("output_padding", Default::Ints(&[0])),
            attr("dilation", Default::Ints(&[1])),
            attr("groups", Default::Int(1)),
            attr("data_layout", Default::Str("NCW")),
            attr("kernel_layout", Default::Str("IOW")),
            attr("out_layout", Default::None),
            attr("out_dtype", Default::None),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(4),
    OpDecl::pure(
        "nn.conv2d_transpose",
        DOC,
        &[
            operand("data"),
            operand("weight"),
            attr("strides", Default::Ints(&[1, 1])),
            attr("padding", Default::Ints(&[0, 0, 0, 0])),
            attr("output_padding", Default::Ints(&[0, 0])),
            attr("dilation", Default::Ints(&[1, 1])),
            attr("groups", Default::Int(1)),
            attr("data_layout", Default::Str("NCHW")),
            attr("kernel_layout", Default::Str("IOHW")),
            attr("out_layout", Default::None),
            attr("out_dtype", Default::None),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(4),
    OpDecl::pure(
        "nn.conv3d_transpose",
        DOC,
        &[
            operand("data"),
            operand("weight"),
            attr("strides", Default::Ints(&[1, 1, 1])),
            attr("padding", Default::Ints(&[0, 0, 0, 0, 0, 0])),
            attr("output_padding", Default::Ints(&[0, 0, 0])),
            attr("dilation", Default::Ints(&[1, 1, 1])),
            attr("groups", Default::Int(1)),
            attr("data_layout", Default::Str("NCDHW")),
            attr("kernel_layout", Default::Str("IODHW")),
            attr("out_layout", Default::None),
            attr("out_dtype", Default::None),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(4),
];

/// The attributes and the output padding.
fn read(name: &str, attrs: &crate::attrs::Attrs) -> Result<(Window, Vec<i64>), String> {
    let win = Window::read(name, attrs)?;
    let extra = layout::per_dim(attrs, "output_padding", win.rank)
        .ok_or_else(|| format!("`output_padding` must be {} integers", win.rank))?;
    for (i, e) in extra.iter().enumerate() {
        if *e < 0 || *e >= win.strides[i] {
            return Err(format!("output padding {e} must be less than the stride {}", win.strides[i]));
        }
    }
    Ok((win, extra))
}

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, w) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?);
    let (win, extra) = read(cx.op.name, cx.attrs).map_err(|e| cx.error(e))?;
    let dtype = rules::product_dtype(cx, &x, &w)?;
    rules::require_ndim(cx, 0, win.data.rank())?;
    rules::require_ndim(cx, 1, win.kernel.rank())?;
    let (Some(xd), Some(wd)) = (x.known_dims(), w.known_dims()) else {
        return Ok(rules::unknown(Some(win.out.rank()), dtype));
    };
    let (channels, taken) = (win.data.size(xd, 'C'), win.kernel.size(wd, 'I'));
    cx.require_eq(&channels, &taken, || {
        format!("input channels differ: data has {}, weight takes {}", dim_text(&channels), dim_text(&taken))
    })?;
    rules::require_divisible(cx, &channels, win.groups, "input channels")?;
    let mut spatial = vec![];
    for (i, a) in win.axes.chars().enumerate() {
        let (size, kernel) = (win.data.size(xd, a), win.kernel.size(wd, a));
        let out = (size.clone() - 1) * win.strides[i] - (win.before[i] + win.after[i])
            + (kernel - 1) * win.dilation[i]
            + (extra[i] + 1);
        let out = cx.simplify(out);
        cx.require(out.clone().ge(0), || format!("padding takes more than the output of {a} = {}", dim_text(&size)))?;
        spatial.push(out);
    }
    let dims = win.out.dims(|a| match a {
        'N' => win.data.size(xd, 'N'),
        'C' => win.kernel.size(wd, 'O') * win.groups,
        _ => spatial[win.axes.find(a).unwrap_or(0)].clone(),
    });
    let dims = dims.into_iter().map(|d| cx.simplify(d)).collect();
    Ok(rules::known(dims, dtype))
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (win, extra) = read(cx.op.name, cx.attrs).map_err(|e| cx.error(e))?;
    let (d, w, out) = (cx.tensor(0)?, cx.tensor(1)?, cx.result()?);
    let (mut k, inputs) = cx.kernel()?;
    let (data, weight) = (&inputs[0], &inputs[1]);
    let sizes: Vec<PrimExpr> = win.axes.chars().map(|a| win.kernel.size(w.dims, a)).collect();
    // The data spread `stride` apart within zeros, so that a plain convolution with the flipped kernel remains.
    let mut shape = data.shape.clone();
    let mut lead = vec![];
    for (i, a) in win.axes.chars().enumerate() {
        let reach = (sizes[i].clone() - 1) * win.dilation[i];
        let n = data.shape[win.data.position(a)].clone();
        lead.push(reach.clone() - win.before[i]);
        shape[win.data.position(a)] =
            (n - 1) * win.strides[i] + (extra[i] + 1) + reach.clone() + reach - (win.before[i] + win.after[i]);
    }
    let spread = k.compute("spread", &shape, data.dtype(), |index| {
        let mut source = index.to_vec();
        let mut inside = PrimExpr::bool(true);
        for (i, a) in win.axes.chars().enumerate() {
            let p = win.data.position(a);
            let from = index[p].clone() - lead[i].clone();
            let at = from.clone().floor_div(win.strides[i]);
            inside = inside.and(from.clone().ge(0)).and(at.clone().lt(data.shape[p].clone()));
            inside = inside.and(from.floor_mod(win.strides[i]).eq(0));
            source[p] = at;
        }
        inside.if_then_else(data.at(source), PrimExpr::zero(data.dtype()))
    });
    let acc = wide_dtype(out.dtype);
    let taken = win.data.size(d.dims, 'C').floor_div(win.groups);
    let per_group = win.kernel.size(w.dims, 'O');
    let mut extents = vec![taken.clone()];
    extents.extend(sizes.iter().cloned());
    let y = k.sum("conv_transpose", out.dims, acc, &extents, |s, r| {
        let oc = win.out.along(s, 'C');
        let (channel, o) = match win.groups {
            1 => (r[0].clone(), oc.clone()),
            _ => (
                oc.clone().floor_div(per_group.clone()) * taken.clone() + r[0].clone(),
                oc.floor_mod(per_group.clone()),
            ),
        };
        let axis = |a: char| win.axes.find(a).unwrap_or(0);
        let source = win.data.index(|a| match a {
            'N' => win.out.along(s, 'N'),
            'C' => channel.clone(),
            _ => win.out.along(s, a) + r[axis(a) + 1].clone() * win.dilation[axis(a)],
        });
        let tap = win.kernel.index(|a| match a {
            'O' => o.clone(),
            'I' => channel.clone(),
            _ => sizes[axis(a)].clone() - 1 - r[axis(a) + 1].clone(),
        });
        spread.at(source).cast(acc) * weight.at(tap).cast(acc)
    });
    let y = rules::narrow(&mut k, y, out.dtype);
    Ok(k.finish(&[y]))
}
