//! Activations of neural networks. Float16 and bfloat16 compute in float32.

use super::unary::{any, float};
use crate::diag::Diagnostic;
use crate::op::elem::{convert, wide};
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::StructInfo;
use crate::tir::PrimFunc;

const DATA: &[ParamDecl] = &[operand("data")];

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "nn.relu",
        "`max(x, 0)`, elementwise; NaN gives 0. Any numeric dtype.",
        DATA,
        any,
        Compute::Kernel(|cx| cx.elementwise(|x| x[0].clone().max(PrimExpr::zero(x[0].dtype())))),
    ),
    OpDecl::pure(
        "nn.leakyrelu",
        "`x` where positive, `alpha * x` elsewhere, float dtypes.",
        &[operand("data"), attr("alpha", Default::Float(0.01))],
        float,
        Compute::Kernel(|cx| {
            let alpha = cx.attrs.float("alpha").ok_or_else(|| cx.error("alpha must be a number"))?;
            cx.elementwise(|x| {
                let (x, d) = (&x[0], x[0].dtype());
                x.clone().gt(PrimExpr::zero(d)).select(x.clone(), x.clone() * PrimExpr::float(d, alpha))
            })
        }),
    ),
    OpDecl::pure(
        "nn.gelu",
        "`x * (0.5 + 0.5 * erf(x / sqrt(2)))`, elementwise, float dtypes.",
        DATA,
        float,
        Compute::Kernel(|cx| {
            cx.elementwise(|x| {
                let c = |v| PrimExpr::float(x[0].dtype(), v);
                let erf = (x[0].clone() * c(std::f64::consts::FRAC_1_SQRT_2)).call1(Intrin::Erf);
                x[0].clone() * (c(0.5) + erf * c(0.5))
            })
        }),
    )
    .ulp(8),
    OpDecl::pure(
        "nn.gelu_tanh",
        "`0.5 * x * (1 + tanh(sqrt(2 / pi) * x * (1 + 0.044715 * x * x)))`, elementwise, float dtypes.",
        DATA,
        float,
        Compute::Kernel(|cx| {
            cx.elementwise(|x| {
                let c = |v| PrimExpr::float(x[0].dtype(), v);
                let x = || x[0].clone();
                let inner = c(0.797_884_560_802_865_4) * x() * (c(1.0) + c(0.044715) * x() * x());
                c(0.5) * x() * (c(1.0) + inner.call1(Intrin::Tanh))
            })
        }),
    )
    .ulp(8),
    OpDecl::pure(
        "nn.selu",
        "`1.0507 * (max(x, 0) + min(0, 1.67326 * (exp(x) - 1)))`, elementwise, float dtypes.",
        DATA,
        float,
        Compute::Kernel(|cx| {
            cx.elementwise(|x| {
                let c = |v| PrimExpr::float(x[0].dtype(), v);
                let below = c(1.673_263_242_354_377_2) * (x[0].clone().call1(Intrin::Exp) - c(1.0));
                c(1.050_700_987_355_480_5) * (x[0].clone().max(c(0.0)) + c(0.0).min(below))
            })
        }),
    )
    .ulp(8),
    OpDecl::pure(
        "nn.silu",
        "`x * sigmoid(x)`, elementwise, float dtypes.",
        DATA,
        float,
        Compute::Kernel(|cx| cx.elementwise(|x| x[0].clone() * x[0].clone().call1(Intrin::Sigmoid))),
    )
    .ulp(4),
    OpDecl::pure(
        "nn.softplus",
        "`log(1 + exp(beta * x)) / beta`, or `x` where `beta * x > threshold`, elementwise, float dtypes.",
        &[operand("data"), attr("beta", Default::Float(1.0)), attr("threshold", Default::Float(20.0))],
        |cx| {
            if cx.attrs.float("beta") == Some(0.0) {
                return Err(cx.error("beta is 0, it is a divisor"));
            }
            float(cx)
        },
        Compute::Kernel(|cx| {
            let beta = cx.attrs.float("beta").unwrap_or(1.0);
            let threshold = cx.attrs.float("threshold").unwrap_or(20.0);
            cx.elementwise(|x| {
                let c = |v| PrimExpr::float(x[0].dtype(), v);
                let scale = |e: PrimExpr, by: f64| if by == 1.0 { e } else { e * c(by) };
                let bx = scale(x[0].clone(), beta);
                let rest = bx.clone().call1(Intrin::Abs).neg().call1(Intrin::Exp).call1(Intrin::Log1p);
                let soft = scale(bx.clone().max(c(0.0)) + rest, 1.0 / beta);
                // From 20 on the sum rounds to `x`, but for float64.
                if beta == 1.0 && threshold >= 20.0 && x[0].dtype().bits <= 32 {
                    return soft;
                }
                bx.gt(c(threshold)).select(x[0].clone(), soft)
            })
        }),
    )
    .ulp(4),
    OpDecl::pure(
        "nn.prelu",
        "`x` where positive, `alpha * x` elsewhere, with one `alpha` per index of dim `axis` (or one for all), float dtypes.",
        &[operand("data"), operand("alpha"), attr("axis", Default::Int(1))],
        infer_prelu,
        Compute::Kernel(prelu),
    ),
    OpDecl::pure(
        "nn.dropout",
        "At inference the identity; the second result is the mask, all ones.",
        &[operand("data"), attr("rate", Default::Float(0.5))],
        |cx| {
            let t = StructInfo::Tensor(cx.tensor(0)?.clone());
            Ok(StructInfo::Tuple(vec![t.clone(), t]))
        },
        Compute::Kernel(|cx| {
            let (mut k, inputs) = cx.kernel()?;
            let x = &inputs[0];
            let y = k.compute("dropout", &x.shape, x.dtype(), |i| x.at(i));
            let mask = k.compute("mask", &x.shape, x.dtype(), |_| PrimExpr::one(x.dtype()));
            Ok(k.finish(&[y, mask]))
        }),
    ),
];

fn infer_prelu(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, alpha) = (cx.tensor(0)?.clone(), cx.tensor(1)?.clone());
    cx.require_float(0, x.dtype)?;
    // A product of both must have the dtype of `data`.
    if let (Some(d), Some(a)) = (x.dtype, alpha.dtype) {
        if d != a && a.is_float() && a.bits >= d.bits {
            return Err(cx
                .error(format!("alpha is {a}, which data, {d}, does not hold"))
                .help("convert one with R.astype"));
        }
    }
    if alpha.ndim.is_some_and(|n| n != 1) {
        return Err(cx.error("alpha must have one dim"));
    }
    if let Some(n) = x.ndim {
        let axis = cx.axis(cx.int("axis")?, n)?;
        if let (Some(d), Some(a)) = (x.known_dims(), alpha.known_dims()) {
            if !a[0].is_int(1) {
                cx.require_eq(&d[axis], &a[0], || {
                    let (a, d) = (rule::dim_text(&a[0]), rule::dim_text(&d[axis]));
                    format!("alpha has {a} elements, axis {axis} of data has {d}")
                })?;
            }
        }
    }
    Ok(StructInfo::Tensor(x))
}

fn prelu(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, alpha) = (&inputs[0], &inputs[1]);
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(1), x.ndim())?;
    let y = k.compute("prelu", &x.shape, x.dtype(), |i| {
        let at = if alpha.shape[0].is_int(1) { PrimExpr::i64(0) } else { i[axis].clone() };
        let (v, a) = (wide(x.at(i)), wide(alpha.at([at]).cast(x.dtype())));
        convert(v.clone().gt(PrimExpr::zero(v.dtype())).select(v.clone(), v * a), x.dtype())
    });
    Ok(k.finish(&[y]))
}
