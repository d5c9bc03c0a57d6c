//! Conversions of the element type.

use crate::diag::Diagnostic;
use crate::op::*;
use crate::relax::StructInfo;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "astype",
        "The elements converted to `dtype`: float to integer truncates, to bool is `!= 0`.",
        &[operand("x"), attr("dtype", Default::Required)],
        infer,
        Compute::Kernel(|cx| cx.elementwise(|x| x[0].clone())),
    ),
    OpDecl::pure(
        "wrap_param",
        "A constant parameter converted to `dtype`.",
        &[operand("data"), attr("dtype", Default::Str("float32"))],
        infer,
        Compute::Kernel(|cx| cx.elementwise(|x| x[0].clone())),
    ),
];

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let dtype = cx.dtype("dtype")?;
    if dtype.is_some_and(|d| d.is_handle()) {
        return Err(cx.error("no tensor has elements of type handle"));
    }
    if dtype.is_none() {
        return Err(cx.error("a conversion names its dtype").help("one of float32, int64, bool, .."));
    }
    Ok(StructInfo::Tensor(cx.tensor(0)?.with_dtype(dtype)))
}
