//! Constants and the identity.

use super::{one, op, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::NodeCx;
use crate::onnx::tensor::{constant, dense, read, texts};
use crate::onnx::value::{Tensor, Value, MAX_KNOWN};
use crate::onnx::Res;
use relax_ir::{AttrValue, Constant, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("Constant", &[(1, constant_value)]),
    op("Identity", &[(1, identity)]),
    op("ConstantOfShape", &[(9, constant_of_shape)]),
];

fn constant_value(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let Some(a) = cx.node.attribute.first() else { return Err(cx.error("a value is missing")) };
    let t = match a.name.as_deref() {
        Some("value") => match &a.t {
            Some(t) => read(t, &mut cx.im.external)?,
            None => return Err(cx.error("attribute `value` is no tensor")),
        },
        Some("sparse_value") => match &a.sparse_tensor {
            Some(s) => Tensor::constant(dense(s, &mut cx.im.external)?),
            None => return Err(cx.error("attribute `sparse_value` is no sparse tensor")),
        },
        Some("value_int") => Tensor::scalar_int(DType::I64, a.i.unwrap_or(0)),
        Some("value_float") => Tensor::scalar(DType::F32, a.f.unwrap_or(0.0) as f64),
        Some("value_ints") => {
            let bytes = a.ints.iter().flat_map(|v| v.to_le_bytes()).collect();
            Tensor::constant(Constant::new(DType::I64, vec![a.ints.len() as i64], bytes))
        }
        Some("value_floats") => {
            let bytes = a.floats.iter().flat_map(|v| v.to_le_bytes()).collect();
            Tensor::constant(Constant::new(DType::F32, vec![a.floats.len() as i64], bytes))
        }
        Some("value_string") => texts(&[], &[a.s.clone().unwrap_or_default()]),
        Some("value_strings") => texts(&[a.strings.len() as i64], &a.strings),
        name => return Err(cx.unsupported(format!("attribute `{}` is not supported", name.unwrap_or("")))),
    };
    one(t)
}

fn identity(cx: &mut NodeCx) -> Res<Vec<Value>> {
    one(cx.value(0)?)
}

fn constant_of_shape(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let shape = cx.input(0)?;
    let value = match cx.tensor_attr("value").cloned() {
        Some(t) => constant(&t, &mut cx.im.external)?,
        None => Constant::scalar_f64(DType::F32, 0.0),
    };
    if value.elements() != 1 {
        return Err(cx.error("attribute `value` must have one element"));
    }
    if shape.rank() != 1 || !shape.dtype.is_int() {
        return Err(cx.error("the shape must be a vector of integers"));
    }
    let dims = cx.read(&shape)?;
    let value = Constant { shape: vec![], ..value };
    let literal: Option<Vec<usize>> = dims.iter().map(|d| d.as_int().and_then(|v| v.try_into().ok())).collect();
    if let Some(d) = literal.filter(|d| d.iter().product::<usize>() <= MAX_KNOWN) {
        let e = match value.dtype.is_float() {
            true => PrimExpr::float(value.dtype, value.get_f64(0)),
            false => PrimExpr::int(value.dtype, value.get_i64(0)),
        };
        return one(Tensor::known(&d, value.dtype, vec![e; d.iter().product()]));
    }
    let dtype = value.dtype;
    let t =
        cx.call("full", &[Arg::shape(&dims), Tensor::constant(value).into()], &[("dtype", AttrValue::DType(dtype))])?;
    one(t)
}
