//! `ImageDecoder` of files whose pixels are uncompressed.

use super::movement::slice_axes;
use super::{one, op, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::NodeCx;
use crate::onnx::value::Value;
use crate::onnx::Res;
use relax_ir::{AttrValue, PrimExpr};

pub const OPS: &[OnnxOp] = &[op("ImageDecoder", &[(20, decode)])];

/// Other files are an error at run time: their height is found to be negative.
fn decode(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let data = cx.input(0)?;
    let format = cx.str("pixel_format", "RGB");
    let channels = match format.as_str() {
        "RGB" | "BGR" => 3,
        "Grayscale" => 1,
        f => return Err(cx.error(format!("pixel_format `{f}` is unknown"))),
    };
    let layout = cx.op("onnx.picture_layout", &[&data])?;
    let sizes = slice_axes(cx, &layout, &[0], &[PrimExpr::i64(0)], &[PrimExpr::i64(2)], &[1])?;
    let mut shape = cx.read(&sizes)?;
    shape.push(PrimExpr::i64(channels));
    let args = [(&data).into(), (&layout).into(), Arg::shape(&shape)];
    one(cx.call("onnx.picture_pixels", &args, &[("format", AttrValue::Str(format))])?)
}
