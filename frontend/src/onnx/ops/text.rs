//! Strings: the last dim of their tensors is their bytes, filled up with zeros.

use super::movement::iota;
use super::{one, op, op_of, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::kind::Kind;
use crate::onnx::node::{ints, NodeCx};
use crate::onnx::tensor::{read, texts};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::relax::StructInfo;
use relax_ir::{AttrValue, Constant, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("StringConcat", &[(20, concat)]),
    op("StringNormalizer", &[(10, normalize)]),
    op("StringSplit", &[(20, split)]),
    op_of("ai.onnx.ml", "LabelEncoder", &[(1, label_encoder)]),
];

/// Input `i`, strings.
fn text(cx: &NodeCx, i: usize) -> Res<Tensor> {
    let t = cx.input(i)?;
    match t.kind {
        Kind::Text => Ok(t),
        _ => Err(cx.error(format!("input {i} must be strings"))),
    }
}

fn concat(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, y) = (text(cx, 0)?, text(cx, 1)?);
    one(cx.op("onnx.text_concat", &[&x, &y])?.of_kind(Kind::Text))
}

fn case(cx: &mut NodeCx, x: &Tensor, upper: bool) -> Res<Tensor> {
    Ok(cx.call("onnx.text_case", &[x.into()], &[("upper", AttrValue::Bool(upper))])?.of_kind(Kind::Text))
}

/// Strings that are no stop words, in the wanted case; one empty string when there is none.
fn normalize(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = text(cx, 0)?;
    let two = x.rank() == 3;
    let count = if two { x.dims[1].clone() } else { x.dims[0].clone() };
    let bytes = x.dims[x.rank() - 1].clone();
    let x = cx.reshape(&x, &[count.clone(), bytes.clone()])?.of_kind(Kind::Text);
    let sensitive = cx.flag("is_case_sensitive", false);
    let words = cx.strings("stopwords").unwrap_or_default();
    let mut y = x.clone();
    if !words.is_empty() {
        let words = texts(&[1, words.len() as i64], &words);
        let (x, words) = match sensitive {
            true => (x.clone(), words),
            false => (case(cx, &x, false)?, case(cx, &words, false)?),
        };
        let column = cx.reshape(&x, &[count.clone(), PrimExpr::i64(1), bytes.clone()])?;
        let stop = cx.op("onnx.text_equal", &[&column, &words])?;
        let stop = cx.cast(&stop, DType::I32)?;
        let stop = cx.call("max", &[(&stop).into()], &[("axis", ints([1])), ("keepdims", AttrValue::Bool(false))])?;
        // An empty string at the end, kept when nothing else is.
        let none = cx.call("min", &[(&stop).into()], &[("axis", ints([0])), ("keepdims", AttrValue::Bool(true))])?;
        let keep = cx.op("subtract", &[&Tensor::scalar_int(DType::I32, 1), &stop])?;
        let keep = cx.call("concat", &[[keep, none].as_slice().into()], &[("axis", AttrValue::Int(0))])?;
        let keep = cx.cast(&keep, DType::BOOL)?;
        let empty = cx.broadcast_to(&Tensor::scalar_int(DType::U8, 0), &[PrimExpr::i64(1), bytes.clone()])?;
        let plain = y.of_kind(Kind::Plain);
        let all = cx.call("concat", &[[plain, empty].as_slice().into()], &[("axis", AttrValue::Int(0))])?;
        let at = cx.op("nonzero", &[&keep])?;
        let n = at.dims[1].clone();
        let at = cx.reshape(&at, &[n])?;
        y = cx.call("take", &[(&all).into(), (&at).into()], &[("axis", AttrValue::Int(0))])?.of_kind(Kind::Text);
    }
    y = match cx.str("case_change_action", "NONE").as_str() {
        "LOWER" => case(cx, &y, false)?,
        "UPPER" => case(cx, &y, true)?,
        _ => y,
    };
    if two {
        let dims = [PrimExpr::i64(1), y.dims[0].clone(), bytes];
        y = cx.reshape(&y, &dims)?.of_kind(Kind::Text);
    }
    one(y.of_kind(Kind::Text))
}

fn split(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = text(cx, 0)?;
    let delimiter = cx.str("delimiter", "");
    let n = delimiter.len() as i64;
    let delimiter = Tensor::constant(Constant::new(DType::U8, vec![n], delimiter.into_bytes()));
    let limit = ("limit", AttrValue::Int(cx.int("maxsplit", -1)));
    let counts = cx.call("onnx.text_split_count", &[(&x).into(), (&delimiter).into()], &[limit.clone()])?;
    // The longest, 0 of nothing.
    let flat = cx.reshape(&counts, &[PrimExpr::product(&counts.dims)])?;
    let zero = Tensor::known(&[1], DType::I64, vec![PrimExpr::i64(0)]);
    let all = cx.call("concat", &[[flat, zero].as_slice().into()], &[("axis", AttrValue::Int(0))])?;
    let most = cx.call("max", &[(&all).into()], &[("axis", ints([0])), ("keepdims", AttrValue::Bool(false))])?;
    let parts = cx.read(&most)?.into_iter().next().unwrap_or_else(|| PrimExpr::i64(0));
    // No string has more parts than bytes, and one.
    let bound = x.dims[x.rank() - 1].clone() + 1;
    let parts = parts.min(bound);
    let y = cx.call("onnx.text_split", &[(&x).into(), (&delimiter).into(), Arg::shape(&[parts])], &[limit])?;
    // A dim that comes from data has a name of its own at the boundary.
    let (e, rank) = (cx.im.b.expr(&y)?, y.rank());
    let y = cx.im.b.tensor("parts", e, StructInfo::tensor_ndim(Some(rank), Some(DType::U8)))?;
    Ok(vec![y.of_kind(Kind::Text).into(), counts.into()])
}

/// Keys or values of the encoder: of strings, integers, floats, or any tensor.
fn list(cx: &mut NodeCx, what: &str) -> Res<Option<Tensor>> {
    if let Some(s) = cx.strings(&format!("{what}_strings")) {
        return Ok(Some(texts(&[s.len() as i64], &s)));
    }
    if let Some(v) = cx.ints(&format!("{what}_int64s")) {
        return Ok(Some(Tensor::ints(&v)));
    }
    if let Some(v) = cx.floats(&format!("{what}_floats")) {
        let bytes = v.iter().flat_map(|f| (*f as f32).to_le_bytes()).collect();
        return Ok(Some(Tensor::constant(Constant::new(DType::F32, vec![v.len() as i64], bytes))));
    }
    match cx.tensor_attr(&format!("{what}_tensor")).cloned() {
        Some(t) => Ok(Some(read(&t, &mut cx.im.external)?)),
        None => Ok(None),
    }
}

/// What a key that is not in the table becomes, as a tensor of one element like `values`.
fn default_value(cx: &mut NodeCx, values: &Tensor) -> Res<Tensor> {
    if let Some(t) = cx.tensor_attr("default_tensor").cloned() {
        return read(&t, &mut cx.im.external);
    }
    if values.kind == Kind::Text {
        return Ok(texts(&[1], &[cx.str("default_string", "_Unused")]));
    }
    let v = match values.dtype.is_float() {
        true => cx.float("default_float", -0.0),
        false => cx.int("default_int64", -1) as f64,
    };
    let t = Tensor::scalar(values.dtype, v);
    cx.reshape(&t, &[PrimExpr::i64(1)])
}

fn label_encoder(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let (keys, values) = match cx.strings("classes_strings") {
        // Version 1: strings are numbered.
        Some(s) => {
            let words = texts(&[s.len() as i64], &s);
            let numbers = Tensor::ints(&(0..s.len() as i64).collect::<Vec<_>>());
            if x.kind == Kind::Text {
                (Some(words), Some(numbers))
            } else {
                (Some(numbers), Some(words))
            }
        }
        None => (list(cx, "keys")?, list(cx, "values")?),
    };
    let (keys, values) = (cx.required("keys", keys)?, cx.required("values", values)?);
    let default = default_value(cx, &values)?;
    let mut dims = x.logical_dims().to_vec();
    let result = dims.clone();
    dims.push(PrimExpr::i64(1));
    if x.kind == Kind::Text {
        dims.push(x.dims[x.rank() - 1].clone());
    }
    let column = cx.reshape(&x, &dims)?;
    let found = match (x.kind, keys.kind) {
        (Kind::Text, Kind::Text) => cx.op("onnx.text_equal", &[&column, &keys])?,
        (Kind::Text, _) | (_, Kind::Text) => return Err(cx.error("keys and input differ in type")),
        _ => {
            let keys = cx.cast(&keys, x.dtype)?;
            let same = cx.op("equal", &[&column, &keys])?;
            if x.dtype.is_float() {
                let (a, b) = (cx.op("isnan", &[&column])?, cx.op("isnan", &[&keys])?);
                let nan = cx.op("logical_and", &[&a, &b])?;
                cx.op("logical_or", &[&same, &nan])?
            } else {
                same
            }
        }
    };
    // The position of the key; behind the table, where the default stands, when it is not there.
    let count = keys.dims[0].clone();
    let places = iota(cx, &count)?;
    let behind = Tensor::known(&[], DType::I64, vec![count]);
    let places = cx.op("where", &[&found, &places, &behind])?;
    let last = AttrValue::List(vec![AttrValue::Int(result.len() as i64)]);
    let at = cx.call("min", &[(&places).into()], &[("axis", last), ("keepdims", AttrValue::Bool(false))])?;
    let (kind, values, default) = (values.kind, values.of_kind(Kind::Plain), default.of_kind(Kind::Plain));
    let (values, default) = match kind {
        Kind::Text => same_width(cx, &values, &default)?,
        _ => {
            let default = cx.reshape(&default, &[PrimExpr::i64(1)])?;
            (values, default)
        }
    };
    let table = cx.call("concat", &[[values, default].as_slice().into()], &[("axis", AttrValue::Int(0))])?;
    let y = cx.call("take", &[(&table).into(), (&at).into()], &[("axis", AttrValue::Int(0))])?;
    one(y.of_kind(kind))
}

/// Constant strings with as many bytes each.
fn same_width(cx: &mut NodeCx, a: &Tensor, b: &Tensor) -> Res<(Tensor, Tensor)> {
    let (Some(x), Some(y)) = (a.to_constant(), b.to_constant()) else {
        return Err(cx.unsupported("strings that are no constants"));
    };
    let width = |c: &Constant| c.shape.last().copied().unwrap_or(1).max(1) as usize;
    let wide = width(&x).max(width(&y));
    let pad = |c: &Constant| {
        let mut bytes = vec![];
        for s in c.bytes().chunks(width(c)) {
            bytes.extend_from_slice(s);
            bytes.resize(bytes.len() + wide - s.len(), 0);
        }
        let n = (bytes.len() / wide) as i64;
        Tensor::constant(Constant::new(DType::U8, vec![n, wide as i64], bytes))
    };
    Ok((pad(&x), pad(&y)))
}
