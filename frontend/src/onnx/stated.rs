//! What a model states of its outputs, beside what they are.

use super::kind::{storage, Kind};
use super::node::counted;
use super::proto::{DimValue, Dimension, TypeValue, ValueInfoProto};
use super::tensor::{dtype_of, type_name};
use super::value::Value;
use relax_ir::{Diagnostic, PrimExpr, Span};

/// What is wrong in what the model states of an output's type. Elements of another type are an error; dims are derived,
/// and of stated ones that differ a warning tells: editors of models leave such behind.
pub fn wrong(o: &ValueInfoProto, v: &Value) -> Option<Diagnostic> {
    let Some(TypeValue::Tensor(stated)) = o.r#type.as_ref().and_then(|t| t.value.as_ref()) else { return None };
    let Value::Tensor(v) = v else { return None };
    let elem_type = stated.elem_type.filter(|t| *t != 0)?;
    let wanted = storage(elem_type).or_else(|| Some((dtype_of(elem_type)?, Kind::Plain)));
    if wanted.is_some_and(|s| s != (v.dtype, v.kind)) {
        let is = match v.kind {
            Kind::Plain => v.dtype.to_string(),
            kind => kind.name().to_string(),
        };
        let what = format!("the model states elements of type {}, they are {is}", type_name(elem_type));
        return Some(Diagnostic::error("onnx-type", Span::NONE, what));
    }
    let differs =
        |what: String| Some(Diagnostic::warning("onnx-type", Span::NONE, what).help("correct the model's output"));
    let shape = stated.shape.as_ref()?;
    // Texts have a dim of bytes behind those of the model.
    let (wanted, rank) = (shape.dim.len(), v.rank() - usize::from(v.kind == Kind::Text));
    if wanted != rank {
        return differs(format!("the model states {}, it has {rank}", counted(wanted, "dim")));
    }
    let other = |(i, (wanted, is)): (usize, (&Dimension, &PrimExpr))| match (&wanted.value, is.as_int()) {
        (Some(DimValue::Value(wanted)), Some(is)) if *wanted >= 0 && *wanted != is => Some((i, *wanted, is)),
        _ => None,
    };
    let (i, wanted, is) = shape.dim.iter().zip(&v.dims).enumerate().find_map(other)?;
    differs(format!("the model states that dim {i} is {wanted}, it is {is}"))
}
