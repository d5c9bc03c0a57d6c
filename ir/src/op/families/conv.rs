//! Convolution.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::wide_dtype;
use crate::op::families::layout::{self, Layout};
use crate::op::families::rules;
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::PrimFunc;

const DOC: &str = "Convolution with `strides`, `padding` (one number, one per dim, or begins then ends), `dilation` and `groups`; any layout of `data_layout`, `kernel_layout`, `out_layout`. Sums in `out_dtype` (float32 for the 16-bit floats), which defaults to the dtype of the operands.";

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "nn.conv1d",
        DOC,
        &[
            operand("data"),
            operand("weight"),
            attr("strides", Default::Ints(&[1])),
            attr("padding", Default::Ints(&[0, 0])),
            attr("dilation", Default::Ints(&[1])),
            attr("groups", Default::Int(1)),
            attr("data_layout", Default::Str("NCW")),
            attr("kernel_layout", Default::Str("OIW")),
            attr("out_layout", Default::None),
            attr("out_dtype", Default::None),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(4),
    OpDecl::pure(
        "nn.conv2d",
        DOC,
        &[
            operand("data"),
            operand("weight"),
            attr("strides", Default::Ints(&[1, 1])),
            attr("padding", Default::Ints(&[0, 0, 0, 0])),
            attr("dilation", Default::Ints(&[1, 1])),
            attr("groups", Default::Int(1)),
            attr("data_layout", Default::Str("NCHW")),
            attr("kernel_layout", Default::Str("OIHW")),
            attr("out_layout", Default::None),
            attr("out_dtype", Default::None),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(4),
    OpDecl::pure(
        "nn.conv3d",
        DOC,
        &[
            operand("data"),
            operand("weight"),
            attr("strides", Default::Ints(&[1, 1, 1])),
            attr("padding", Default::Ints(&[0, 0, 0, 0, 0, 0])),
            attr("dilation", Default::Ints(&[1, 1, 1])),
            attr("groups", Default::Int(1)),
            attr("data_layout", Default::Str("NCDHW")),
            attr("kernel_layout", Default::Str("OIDHW")),
            attr("out_layout", Default::None),
            attr("out_dtype", Default::None),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(4),
];

/// The attributes of a convolution, transposed or not.
pub struct Window {
    pub rank: usize,
    /// The letters of the spatial axes.
    pub axes: &'static str,
    pub strides: Vec<i64>,
    pub before: Vec<i64>,
    pub after: Vec<i64>,
    pub dilation: Vec<i64>,
    pub groups: i64,
    pub data: Layout,
    pub kernel: Layout,
    pub out: Layout,
}

impl Window {
    /// Reads the attributes; the error says which one is wrong.
    pub fn read(name: &str, attrs: &crate::attrs::Attrs) -> Result<Window, String> {
        let rank = layout::rank_of(name);
        let axes = layout::spatial(rank);
        let list = |name: &str| {
            let v = layout::per_dim(attrs, name, rank).filter(|v| v.iter().all(|x| *x > 0));
            v.ok_or_else(|| format!("`{name}` must be {rank} positive integers"))
        };
        let (before, after) = layout::padding(attrs, rank)
            .ok_or_else(|| format!("`padding` must be 1, {rank} or {} integers", 2 * rank))?;
        let groups = attrs.int("groups").filter(|g| *g > 0).ok_or("`groups` must be a positive integer")?;
        let data_layout = attrs.str("data_layout").unwrap_or("");
        let out_layout = attrs.str("out_layout").unwrap_or(data_layout);
        let data = layout_over("data_layout", data_layout, "NC", axes)?;
        let out = layout_over("out_layout", out_layout, "NC", axes)?;
        let kernel = layout_over("kernel_layout", attrs.str("kernel_layout").unwrap_or(""), "OI", axes)?;
        Ok(Window {
            rank,
            axes,
            strides: list("strides")?,
            dilation: list("dilation")?,
            before,
            after,
            groups,
            data,
            kernel,
            out,
        })
    }
}

/// A layout over the channel axes `pair` and the spatial `axes`, which must be whole.
pub fn layout_over(name: &str, text: &str, pair: &str, axes: &str) -> Result<Layout, String> {
    Layout::parse(text)
        .filter(|l| l.is_over(&format!("{pair}{axes}")) && axes.chars().all(|a| l.is_whole(a)))
        .ok_or_else(|| format!("`{name}` \"{text}\" is not a layout over {pair}{axes}"))
}

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, w) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?);
    let win = Window::read(cx.op.name, cx.attrs).map_err(|e| cx.error(e))?;
    let dtype = rules::product_dtype(cx, &x, &w)?;
    rules::require_ndim(cx, 0, win.data.rank())?;
    rules::require_ndim(cx, 1, win.kernel.rank())?;
    let (Some(xd), Some(wd)) = (x.known_dims(), w.known_dims()) else {
        return Ok(rules::unknown(Some(win.out.rank()), dtype));
    };
    let channels = win.data.size(xd, 'C');
    let wanted = win.kernel.size(wd, 'I') * win.groups;
    cx.require_eq(&channels, &wanted, || {
        let (c, w, g) = (dim_text(&channels), dim_text(&wanted), win.groups);
        format!("input channels differ: data has {c}, weight with groups = {g} takes {w}")
    })?;
    let outputs = win.kernel.size(wd, 'O');
    rules::require_divisible(cx, &outputs, win.groups, "output channels")?;
    let mut spatial = vec![];
    for (i, a) in win.axes.chars().enumerate() {
        let (size, kernel) = (win.data.size(xd, a), win.kernel.size(wd, a));
        let reach = (kernel - 1) * win.dilation[i] + 1;
        let (shown, wide) = (dim_text(&size), dim_text(&reach));
        let count = window_count(cx, a, size, win.before[i] + win.after[i], reach, win.strides[i], false)?;
        if count.is_int(0) {
            return Err(cx.error(format!(
                "a kernel that reaches over {wide} elements does not fit {a} = {shown} with its padding: there is no output"
            )));
        }
        spatial.push(count);
    }
    let dims = win.out.dims(|a| match a {
        'N' => win.data.size(xd, 'N'),
        'C' => outputs.clone(),
        _ => spatial[win.axes.find(a).unwrap_or(0)].clone(),
    });
    let dims = dims.into_iter().map(|d| cx.simplify(d)).collect();
    Ok(rules::known(dims, dtype))
}

/// The number of windows that span `reach` elements of a dim, `stride` apart; requires that it is not negative.
pub fn window_count(
    cx: &mut InferCx,
    axis: char,
    size: PrimExpr,
    padding: i64,
    reach: PrimExpr,
    stride: i64,
    ceil: bool,
) -> Result<PrimExpr, Diagnostic> {
    let slack = if ceil { stride - 1 } else { 0 };
    let span = cx.simplify(size.clone() + padding - reach.clone() + slack);
    let count = cx.simplify(span.floor_div(stride) + 1);
    let (shown, wide) = (dim_text(&size), dim_text(&reach));
    cx.require(count.clone().ge(0), || {
        format!("a window of {wide} does not fit into {axis} = {shown} with padding {padding}")
    })?;
    Ok(count)
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let win = Window::read(cx.op.name, cx.attrs).map_err(|e| cx.error(e))?;
    let (w, out) = (cx.tensor(1)?, cx.result()?);
    let (mut k, inputs) = cx.kernel()?;
    let zero = PrimExpr::zero(inputs[0].dtype());
    let x = layout::pad_stage(&mut k, &inputs[0], &win.data, win.axes, &win.before, &win.after, zero);
    let weight = &inputs[1];
    let acc: DType = wide_dtype(out.dtype);
    let per_group = win.kernel.size(w.dims, 'O').floor_div(win.groups);
    let taken = win.kernel.size(w.dims, 'I');
    // A lone input channel per group (depthwise) needs no axis; channels last are reduced innermost.
    let kernel: Vec<PrimExpr> = win.axes.chars().map(|a| win.kernel.size(w.dims, a)).collect();
    let lone = taken.is_int(1);
    let last = win.data.position('C') + 1 == win.data.rank();
    let mut extents = kernel;
    match (lone, last) {
        (true, _) => {}
        (false, true) => extents.push(taken.clone()),
        (false, false) => extents.insert(0, taken.clone()),
    }
    let y = k.sum("conv", out.dims, acc, &extents, |s, r| {
        let (rc, ry) = match (lone, last) {
            (true, _) => (PrimExpr::i64(0), r),
            (false, true) => (r[win.rank].clone(), &r[..win.rank]),
            (false, false) => (r[0].clone(), &r[1..]),
        };
        let oc = win.out.along(s, 'C');
        let source = win.data.index(|a| match a {
            'N' => win.out.along(s, 'N'),
            'C' if win.groups == 1 => rc.clone(),
            'C' => oc.clone().floor_div(per_group.clone()) * taken.clone() + rc.clone(),
            _ => {
                let i = win.axes.find(a).unwrap_or(0);
                win.out.along(s, a) * win.strides[i] + ry[i].clone() * win.dilation[i]
            }
        });
        let tap = win.kernel.index(|a| match a {
            'O' => oc.clone(),
            'I' => rc.clone(),
            _ => ry[win.axes.find(a).unwrap_or(0)].clone(),
        });
        x.at(source).cast(acc) * weight.at(tap).cast(acc)
    });
    let y = rules::narrow(&mut k, y, out.dtype);
    Ok(k.finish(&[y]))
}
