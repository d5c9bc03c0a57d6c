//! Pooling to a given output size.

use crate::diag::Diagnostic;
use crate::op::elem::wide_dtype;
use crate::op::families::layout;
use crate::op::families::pool::layouts;
use crate::op::families::rules;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::PrimFunc;

const DOC: &str = "Mean over windows `[floor(i * in / out), ceil((i + 1) * in / out))`, so that the output has `output_size` (default: the size of the input).";

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "nn.adaptive_avg_pool1d",
        DOC,
        &[
            operand("data"),
            attr("output_size", Default::None),
            attr("layout", Default::Str("NCW")),
            attr("out_layout", Default::None),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(4),
    OpDecl::pure(
        "nn.adaptive_avg_pool2d",
        DOC,
        &[
            operand("data"),
            attr("output_size", Default::None),
            attr("layout", Default::Str("NCHW")),
            attr("out_layout", Default::None),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(4),
    OpDecl::pure(
        "nn.adaptive_avg_pool3d",
        DOC,
        &[
            operand("data"),
            attr("output_size", Default::None),
            attr("layout", Default::Str("NCDHW")),
            attr("out_layout", Default::None),
        ],
        infer,
        Compute::Kernel(compute),
    )
    .ulp(4),
];

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let rank = layout::rank_of(cx.op.name);
    let axes = layout::spatial(rank);
    let (data, out) = layouts(cx.attrs, axes).map_err(|e| cx.error(e))?;
    let x = rules::tensor(cx, 0)?;
    rules::require_ndim(cx, 0, data.rank())?;
    let size = match cx.attrs.get("output_size").is_none_or(|v| v.is_none()) {
        true => None,
        false => Some(
            layout::per_dim(cx.attrs, "output_size", rank)
                .filter(|v| v.iter().all(|s| *s > 0))
                .ok_or_else(|| cx.error(format!("`output_size` must be {rank} positive integers")))?,
        ),
    };
    let Some(dims) = x.known_dims() else {
        return Ok(rules::unknown(Some(out.rank()), x.dtype));
    };
    let shape = out.dims(|a| match (&size, axes.find(a)) {
        (Some(size), Some(i)) => PrimExpr::i64(size[i]),
        _ => data.size(dims, a),
    });
    let shape = shape.into_iter().map(|d| cx.simplify(d)).collect();
    Ok(rules::known(shape, x.dtype))
}

/// One axis of the output: where its windows start, how many elements they hold, and the largest number.
struct Axis {
    input: PrimExpr,
    output: PrimExpr,
    /// `input / output`, when every window has that many elements.
    even: Option<PrimExpr>,
    extent: PrimExpr,
}

impl Axis {
    fn new(input: PrimExpr, output: PrimExpr) -> Axis {
        let even = match (input.as_int(), output.as_int()) {
            _ if input == output => Some(PrimExpr::i64(1)),
            (_, Some(1)) => Some(input.clone()),
            (Some(i), Some(o)) if i % o == 0 => Some(PrimExpr::i64(i / o)),
            _ => None,
        };
        let longest = (input.clone() + output.clone() - 1).floor_div(output.clone()) + 1;
        let extent = even.clone().unwrap_or(longest);
        Axis { input, output, even, extent }
    }

    fn start(&self, i: &PrimExpr) -> PrimExpr {
        match &self.even {
            Some(n) => i.clone() * n.clone(),
            None => (i.clone() * self.input.clone()).floor_div(self.output.clone()),
        }
    }

    fn count(&self, i: &PrimExpr) -> PrimExpr {
        match &self.even {
            Some(n) => n.clone(),
            None => {
                let end = (i.clone() + 1) * self.input.clone() + self.output.clone() - 1;
                end.floor_div(self.output.clone()) - self.start(i)
            }
        }
    }
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let letters = layout::spatial(layout::rank_of(cx.op.name));
    let (data, out_layout) = layouts(cx.attrs, letters).map_err(|e| cx.error(e))?;
    let (input, out) = (cx.tensor(0)?, cx.result()?);
    let (mut k, x) = cx.kernel()?;
    let axis = |a: char| Axis::new(data.size(input.dims, a), out_layout.size(out.dims, a));
    let axes: Vec<Axis> = letters.chars().map(axis).collect();
    let extents: Vec<PrimExpr> = axes.iter().map(|a| a.extent.clone()).collect();
    let acc = wide_dtype(out.dtype);
    let sum = k.sum("pool_sum", out.dims, acc, &extents, |s, r| {
        let mut inside = PrimExpr::bool(true);
        for (i, a) in letters.chars().enumerate() {
            if axes[i].even.is_none() {
                inside = inside.and(r[i].clone().lt(axes[i].count(&out_layout.along(s, a))));
            }
        }
        let at = data.index(|a| match letters.find(a) {
            Some(i) => axes[i].start(&out_layout.along(s, a)) + r[i].clone(),
            None => out_layout.along(s, a),
        });
        inside.if_then_else(x[0].at(at).cast(acc), PrimExpr::zero(acc))
    });
    let y = k.compute("pool_avg", out.dims, acc, |s| {
        let mut count = PrimExpr::i64(1);
        for (i, a) in letters.chars().enumerate() {
            count = count * axes[i].count(&out_layout.along(s, a));
        }
        sum.at(s) / count.cast(acc)
    });
    let y = rules::narrow(&mut k, y, out.dtype);
    Ok(k.finish(&[y]))
}
