//! Pooling over windows.

use crate::attrs::Attrs;
use crate::diag::Diagnostic;
use crate::op::elem::wide_dtype;
use crate::op::families::conv::{layout_over, window_count};
use crate::op::families::layout::{self, Layout};
use crate::op::families::rules;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::{PrimFunc, Reducer};

const MAX: &str = "Maximum over windows of `pool_size` with `strides`, `padding` and `dilation`; padding never wins. `ceil_mode` rounds the output dims up.";
const AVG: &str = "Mean over windows of `pool_size` with `strides`, `padding` and `dilation`; `ceil_mode` rounds the output dims up. `count_include_pad` divides by the elements of the window within the padded input, else by those within the input.";

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "nn.max_pool1d",
        MAX,
        &[
            operand("data"),
            attr("pool_size", Default::Ints(&[1])),
            attr("strides", Default::Ints(&[1])),
            attr("padding", Default::Ints(&[0, 0])),
            attr("dilation", Default::Ints(&[1])),
            attr("ceil_mode", Default::Bool(false)),
            attr("count_include_pad", Default::Bool(false)),
            attr("layout", Default::Str("NCW")),
            attr("out_layout", Default::None),
        ],
        infer,
        Compute::Kernel(max_pool),
    ),
    OpDecl::pure(
        "nn.max_pool2d",
        MAX,
        &[
            operand("data"),
            attr("pool_size", Default::Ints(&[1, 1])),
            attr("strides", Default::Ints(&[1, 1])),
            attr("padding", Default::Ints(&[0, 0, 0, 0])),
            attr("dilation", Default::Ints(&[1, 1])),
            attr("ceil_mode", Default::Bool(false)),
            attr("count_include_pad", Default::Bool(false)),
            attr("layout", Default::Str("NCHW")),
            attr("out_layout", Default::None),
        ],
        infer,
        Compute::Kernel(max_pool),
    ),
    OpDecl::pure(
        "nn.max_pool3d",
        MAX,
        &[
            operand("data"),
            attr("pool_size", Default::Ints(&[1, 1, 1])),
            attr("strides", Default::Ints(&[1, 1, 1])),
            attr("padding", Default::Ints(&[0, 0, 0, 0, 0, 0])),
            attr("dilation", Default::Ints(&[1, 1, 1])),
            attr("ceil_mode", Default::Bool(false)),
            attr("count_include_pad", Default::Bool(false)),
            attr("layout", Default::Str("NCDHW")),
            attr("out_layout", Default::None),
        ],
        infer,
        Compute::Kernel(max_pool),
    ),
    OpDecl::pure(
        "nn.avg_pool1d",
        AVG,
        &[
            operand("data"),
            attr("pool_size", Default::Ints(&[1])),
            attr("strides", Default::Ints(&[1])),
            attr("padding", Default::Ints(&[0, 0])),
            attr("dilation", Default::Ints(&[1])),
            attr("ceil_mode", Default::Bool(false)),
            attr("count_include_pad", Default::Bool(true)),
            attr("layout", Default::Str("NCW")),
            attr("out_layout", Default::None),
        ],
        infer,
        Compute::Kernel(avg_pool),
    )
    .ulp(4),
    OpDecl::pure(
        "nn.avg_pool2d",
        AVG,
        &[
            operand("data"),
            attr("pool_size", Default::Ints(&[1, 1])),
            attr("strides", Default::Ints(&[1, 1])),
            attr("padding", Default::Ints(&[0, 0, 0, 0])),
            attr("dilation", Default::Ints(&[1, 1])),
            attr("ceil_mode", Default::Bool(false)),
            attr("count_include_pad", Default::Bool(false)),
            attr("layout", Default::Str("NCHW")),
            attr("out_layout", Default::None),
        ],
        infer,
        Compute::Kernel(avg_pool),
    )
    .ulp(4),
    OpDecl::pure(
        "nn.avg_pool3d",
        AVG,
        &[
            operand("data"),
            attr("pool_size", Default::Ints(&[1, 1, 1])),
            attr("strides", Default::Ints(&[1, 1, 1])),
            attr("padding", Default::Ints(&[0, 0, 0, 0, 0, 0])),
            attr("dilation", Default::Ints(&[1, 1, 1])),
            attr("ceil_mode", Default::Bool(false)),
            attr("count_include_pad", Default::Bool(true)),
            attr("layout", Default::Str("NCDHW")),
            attr("out_layout", Default::None),
        ],
        infer,
        Compute::Kernel(avg_pool),
    )
    .ulp(4),
];

/// The attributes of a pooling operator.
pub struct Window {
    /// The letters of the spatial axes.
    pub axes: &'static str,
    pub size: Vec<i64>,
    pub strides: Vec<i64>,
    pub before: Vec<i64>,
    pub after: Vec<i64>,
    pub dilation: Vec<i64>,
    pub ceil: bool,
    pub count_include_pad: bool,
    pub data: Layout,
    pub out: Layout,
}

impl Window {
    /// Reads the attributes; the error says which one is wrong.
    pub fn read(name: &str, attrs: &Attrs) -> Result<Window, String> {
        let rank = layout::rank_of(name);
        let axes = layout::spatial(rank);
        let list = |name: &str| {
            let v = layout::per_dim(attrs, name, rank).filter(|v| v.iter().all(|x| *x > 0));
            v.ok_or_else(|| format!("`{name}` must be {rank} positive integers"))
        };
        let (before, after) = layout::padding(attrs, rank)
            .filter(|(b, a)| b.iter().chain(a).all(|p| *p >= 0))
            .ok_or_else(|| format!("`padding` must be 1, {rank} or {} integers of at least 0", 2 * rank))?;
        let (data, out) = layouts(attrs, axes)?;
        Ok(Window {
            axes,
            size: list("pool_size")?,
            strides: list("strides")?,
            before,
            after,
            dilation: list("dilation")?,
            ceil: attrs.bool("ceil_mode").unwrap_or(false),
            count_include_pad: attrs.bool("count_include_pad").unwrap_or(false),
            data,
            out,
        })
    }

    fn axis(&self, letter: char) -> usize {
        self.axes.find(letter).unwrap_or(0)
    }

    /// Padding behind, with what the last windows of `ceil_mode` need beyond it.
    pub fn reach_after(&self) -> Vec<i64> {
        let more = |i: usize| if self.ceil { self.strides[i] - 1 } else { 0 };
        self.after.iter().enumerate().map(|(i, a)| a + more(i)).collect()
    }

    fn extents(&self) -> Vec<PrimExpr> {
        self.size.iter().map(|s| PrimExpr::i64(*s)).collect()
    }

    /// The element of the padded input that tap `r` of the window at `s` reads.
    fn source(&self, s: &[PrimExpr], r: &[PrimExpr]) -> Vec<PrimExpr> {
        self.data.index(|a| match a {
            'N' | 'C' => self.out.along(s, a),
            _ => {
                let i = self.axis(a);
                self.out.along(s, a) * self.strides[i] + r[i].clone() * self.dilation[i]
            }
        })
    }

    /// How many elements the mean at `s` divides by.
    pub fn count(&self, s: &[PrimExpr], dims: &[PrimExpr]) -> PrimExpr {
        let along = self.axes.chars().enumerate();
        along.fold(PrimExpr::i64(1), |c, (i, a)| c * self.count_along(i, self.out.along(s, a), self.data.size(dims, a)))
    }

    /// Do all windows lie inside the input along axis `i`?
    fn is_exact(&self, i: usize) -> bool {
        self.before[i] == 0 && self.after[i] == 0 && !self.ceil
    }

    /// How many of those lie along axis `i` for the window at `at`, at least 1.
    fn count_along(&self, i: usize, at: PrimExpr, size: PrimExpr) -> PrimExpr {
        let d = self.dilation[i];
        if self.is_exact(i) {
            return PrimExpr::i64(self.size[i]);
        }
        let start = at * self.strides[i] - self.before[i];
        let end = start.clone() + (self.size[i] - 1) * d;
        let count = if self.count_include_pad {
            let end = end.min(size + (self.after[i] - 1));
            (end - start).floor_div(d) + 1
        } else {
            let skip = (PrimExpr::i64(d - 1) - start.clone()).floor_div(d).max(0);
            let end = end.min(size - 1);
            (end - (start + skip * d)).floor_div(d) + 1
        };
        count.max(1)
    }
}

/// `layout` and `out_layout` of a pooling operator.
pub fn layouts(attrs: &Attrs, axes: &str) -> Result<(Layout, Layout), String> {
    let text = attrs.str("layout").unwrap_or("");
    let out = attrs.str("out_layout").unwrap_or(text);
    Ok((layout_over("layout", text, "NC", axes)?, layout_over("out_layout", out, "NC", axes)?))
}

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let win = Window::read(cx.op.name, cx.attrs).map_err(|e| cx.error(e))?;
    let x = rules::tensor(cx, 0)?;
    rules::require_ndim(cx, 0, win.data.rank())?;
    let Some(dims) = x.known_dims() else {
        return Ok(rules::unknown(Some(win.out.rank()), x.dtype));
    };
    let mut spatial = vec![];
    for (i, a) in win.axes.chars().enumerate() {
        let reach = PrimExpr::i64((win.size[i] - 1) * win.dilation[i] + 1);
        let size = win.data.size(dims, a);
        let padding = win.before[i] + win.after[i];
        let count = window_count(cx, a, size.clone(), padding, reach.clone(), win.strides[i], win.ceil)?;
        // A last window that would start behind the input is dropped.
        spatial.push(match reach.as_int() {
            Some(reach) if win.ceil && win.after[i] + win.strides[i] > reach => {
                let start = (count.clone() - 1) * win.strides[i];
                start.ge(size + win.before[i]).if_then_else(count.clone() - 1, count)
            }
            _ => count,
        });
    }
    let out = win.out.dims(|a| match a {
        'N' | 'C' => win.data.size(dims, a),
        _ => spatial[win.axis(a)].clone(),
    });
    let out = out.into_iter().map(|d| cx.simplify(d)).collect();
    Ok(rules::known(out, x.dtype))
}

fn max_pool(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let win = Window::read(cx.op.name, cx.attrs).map_err(|e| cx.error(e))?;
    let out = cx.result()?;
    let (mut k, x) = cx.kernel()?;
    let lowest = PrimExpr::min_value(x[0].dtype());
    let x = layout::pad_stage(&mut k, &x[0], &win.data, win.axes, &win.before, &win.reach_after(), lowest.clone());
    let reducer = Reducer { init: lowest, combine: &|a, b| a.max(b) };
    let y = k.reduce("pool_max", out.dims, out.dtype, &win.extents(), reducer, |s, r| x.at(win.source(s, r)));
    Ok(k.finish(&[y]))
}

fn avg_pool(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let win = Window::read(cx.op.name, cx.attrs).map_err(|e| cx.error(e))?;
    let (data, out) = (cx.tensor(0)?, cx.result()?);
    let (mut k, x) = cx.kernel()?;
    let zero = PrimExpr::zero(x[0].dtype());
    let x = layout::pad_stage(&mut k, &x[0], &win.data, win.axes, &win.before, &win.reach_after(), zero);
    let acc = wide_dtype(out.dtype);
    let sum = k.sum("pool_sum", out.dims, acc, &win.extents(), |s, r| x.at(win.source(s, r)).cast(acc));
    // The counts along each axis, so that they are not worked out for every element.
    let mut counts = vec![];
    for (i, a) in win.axes.chars().enumerate() {
        let extent = [win.out.size(out.dims, a)];
        let size = win.data.size(data.dims, a);
        counts.push(match win.is_exact(i) {
            true => Err(PrimExpr::int(acc, win.size[i])),
            false => Ok(k.compute(&format!("count_{a}"), &extent, acc, |o| win.count_along(i, o[0].clone(), size))),
        });
    }
    let y = k.compute("pool_avg", out.dims, acc, |s| {
        let count = win.axes.chars().zip(&counts).map(|(a, c)| match c {
            Ok(table) => table.at([win.out.along(s, a)]),
            Err(n) => n.clone(),
        });
        sum.at(s) / count.reduce(|a, b| a * b).unwrap_or(PrimExpr::one(acc))
    });
    let y = rules::narrow(&mut k, y, out.dtype);
    Ok(k.finish(&[y]))
}
