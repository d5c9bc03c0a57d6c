//! Activations of neural networks.

use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl {
        name: "nn.relu",
        doc: "`max(x, 0)`, elementwise; NaN gives 0. Any numeric dtype.",
        params: &[operand("data")],
        purity: Purity::Pure,
        infer: same_as_input,
        compute: Compute::Kernel(|cx| map(cx, |x| x.clone().max(PrimExpr::zero(x.dtype())))),
        ulp: 0,
    },
    OpDecl {
        name: "nn.silu",
        doc: "`x * sigmoid(x)`, elementwise, float dtypes.",
        params: &[operand("data")],
        purity: Purity::Pure,
        infer: same_as_input,
        compute: Compute::Kernel(|cx| map(cx, |x| x.clone() * x.call1(Intrin::Sigmoid))),
        ulp: 4,
    },
];

/// The result has the shape and dtype of the first operand.
pub fn same_as_input(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Ok(StructInfo::Tensor(cx.tensor(0)?.clone()))
}

/// A kernel that applies `f` to every element of the first operand.
pub fn map(cx: &ComputeCx, f: impl FnOnce(PrimExpr) -> PrimExpr) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let out = cx.result()?;
    let y = k.compute("compute", out.dims, out.dtype, |i| f(inputs[0].at(i)));
    Ok(k.finish(&[y]))
}
