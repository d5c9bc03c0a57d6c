//! Operators between tensors and shapes.
//!
//! Source: TVM `relax.shape_of`, `relax.shape_to_tensor`, `relax.tensor_to_shape`, `relax.size`.

use crate::diag::Diagnostic;
use crate::op::{operand, Compute, InferCx, OpDecl, ParamDecl, Purity};
use crate::prim::PrimExpr;
use crate::relax::{ExprKind, StructInfo, TensorInfo, TensorShape};
use crate::DType;

const fn host(
    name: &'static str,
    doc: &'static str,
    params: &'static [ParamDecl],
    infer: crate::op::InferFn,
) -> OpDecl {
    OpDecl { name, doc, params, purity: Purity::Pure, infer, compute: Compute::Host, ulp: 0 }
}

pub static OPS: &[OpDecl] = &[
    host("shape_of", "The shape of a tensor, a shape value.", &[operand("expr")], shape_of),
    host("shape_to_tensor", "A shape of rank r as an int64 tensor of shape (r,).", &[operand("expr")], shape_to_tensor),
    host(
        "tensor_to_shape",
        "A 1-d int64 tensor of r elements as a shape of rank r; its dims depend on the data.",
        &[operand("expr")],
        tensor_to_shape,
    ),
    OpDecl {
        name: "size",
        doc: "The number of elements of a tensor, an int64 tensor of shape ().",
        params: &[operand("expr")],
        purity: Purity::Pure,
        infer: |cx| {
            cx.tensor(0)?;
            Ok(StructInfo::tensor(vec![], DType::I64))
        },
        compute: Compute::Kernel(|cx| {
            let x = cx.tensor(0)?;
            let (mut k, _) = cx.kernel()?;
            let out = k.compute("size", &[], DType::I64, |_| PrimExpr::product(x.dims));
            Ok(k.finish(&[out]))
        }),
        ulp: 0,
    },
];

fn shape_of(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    // As TVM: of a value that may be no tensor a cast says first that it is one.
    let t = match cx.infos.first() {
        Some(StructInfo::Object) => {
            let d = cx.error("the operand must be a tensor, it may be any object");
            return Err(d.help("R.match_cast(value, R.Tensor) makes it a tensor, or fails"));
        }
        _ => cx.tensor(0)?,
    };
    Ok(StructInfo::Shape { values: t.known_dims().map(<[_]>::to_vec), ndim: t.ndim })
}

fn shape_to_tensor(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let ndim = match cx.infos.first() {
        Some(StructInfo::Shape { ndim, .. }) => *ndim,
        Some(StructInfo::Object) => None,
        _ => return Err(cx.error("the operand must be a shape")),
    };
    Ok(match ndim {
        Some(n) => StructInfo::tensor(vec![PrimExpr::i64(n as i64)], DType::I64),
        None => StructInfo::tensor_ndim(Some(1), Some(DType::I64)),
    })
}

fn tensor_to_shape(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?;
    if let Some(d) = t.dtype.filter(|d| !d.is_int() || d.bits < 8) {
        return Err(cx.error(format!("the elements must be integers, not {d}")));
    }
    match t.ndim {
        Some(1) => {}
        Some(n) => return Err(cx.error(format!("the tensor must have rank 1, not {n}"))),
        None => {
            let d = cx.error("the tensor must have rank 1, its rank is not known");
            return Err(d.help("state it with R.match_cast"));
        }
    }
    if let Some(ExprKind::Constant(c)) = cx.args.first().map(|a| a.kind()) {
        return Ok(StructInfo::shape((0..c.elements()).map(|i| PrimExpr::i64(c.get_i64(i))).collect()));
    }
    let ndim = rank(t);
    Ok(StructInfo::Shape { values: None, ndim })
}

/// The number of elements of a 1-d tensor, when it is a literal.
fn rank(t: &TensorInfo) -> Option<usize> {
    match &t.shape {
        Some(TensorShape::Dims(d)) => d.first()?.as_int().and_then(|n| usize::try_from(n).ok()),
        _ => None,
    }
}
