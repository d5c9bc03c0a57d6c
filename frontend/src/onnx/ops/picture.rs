//! `ImageDecoder`: a compressed file becomes an uncompressed one in the runtime, whose pixels are then picked.

use super::movement::slice_axes;
use super::{one, op, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::NodeCx;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::op::lookup;
use relax_ir::relax::{Call, Callee, Expr, ExprKind, StructInfo, TensorInfo};
use relax_ir::{AttrValue, DType, Diagnostic, PrimExpr, Span};

pub const OPS: &[OnnxOp] = &[op("ImageDecoder", &[(20, decode)])];

/// The packed function of the runtime that makes PNM files of compressed ones (PNG, JPEG, WebP, JPEG 2000).
const PLAIN: &str = "relax_aot.plain_picture";

/// `data`, not compressed.
fn plain(cx: &mut NodeCx, data: &Tensor) -> Res<Tensor> {
    let packed = lookup("call_pure_packed");
    let packed = packed.ok_or_else(|| Diagnostic::internal(Span::NONE, "there is no call of packed functions"))?;
    let name = Expr::new(ExprKind::ExternFunc(PLAIN.to_string(), None), Span::NONE);
    let args = vec![name, cx.im.b.expr(data)?];
    let info = TensorInfo { shape: None, dtype: Some(DType::U8), ndim: Some(1), vdevice: None };
    let sinfo_args = vec![StructInfo::Tensor(info)];
    let call = Call { callee: Callee::Op(packed), args, attrs: Default::default(), sinfo_args };
    let (e, info) = cx.im.b.emit("plain", Expr::new(ExprKind::Call(call), Span::NONE))?;
    cx.im.b.tensor("plain", e, info)
}

/// Other files are an error at run time: their height is found to be negative.
fn decode(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let data = cx.input(0)?;
    let format = cx.str("pixel_format", "RGB");
    let channels = match format.as_str() {
        "RGB" | "BGR" => 3,
        "Grayscale" => 1,
        f => return Err(cx.error(format!("pixel_format `{f}` is unknown"))),
    };
    let data = plain(cx, &data)?;
    let layout = cx.op("onnx.picture_layout", &[&data])?;
    let sizes = slice_axes(cx, &layout, &[0], &[PrimExpr::i64(0)], &[PrimExpr::i64(2)], &[1])?;
    let mut shape = cx.read(&sizes)?;
    shape.push(PrimExpr::i64(channels));
    let args = [(&data).into(), (&layout).into(), Arg::shape(&shape)];
    one(cx.call("onnx.picture_pixels", &args, &[("format", AttrValue::Str(format))])?)
}
