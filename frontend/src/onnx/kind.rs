//! Element types that cross the boundary of a library as bytes: float8, float4, integers below a byte, and strings.
//!
//! Strings have a dim more: their bytes, filled up with zeros to the longest.
//!
//! The numbers live one element per byte: floats as their codes in uint8, integers as their values in int8 or uint8. That is
//! also how they cross the boundary of a compiled library. Arithmetic happens in the types they are cast to.

use super::builder::Arg;
use super::node::NodeCx;
use super::proto::data_type as T;
use super::tensor::type_name;
use super::value::Tensor;
use super::Res;
use relax_ir::small_float::SmallFloat;
use relax_ir::{AttrValue, Constant, DType};

/// What the bytes of a tensor mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// What the dtype says.
    #[default]
    Plain,
    /// The codes of a small float type.
    Float(SmallFloat),
    /// An integer of so many bits.
    Int { bits: u8, signed: bool },
    /// Float8e8m0: a power of two.
    Exponent,
    /// Strings: the last dim is their bytes, filled up with zeros.
    Text,
}

/// What ONNX calls it.
fn element_type(f: SmallFloat) -> i32 {
    let types = [T::FLOAT8E4M3FN, T::FLOAT8E4M3FNUZ, T::FLOAT8E5M2, T::FLOAT8E5M2FNUZ, T::FLOAT4E2M1];
    types.into_iter().find(|t| storage(*t).is_some_and(|(_, k)| k == Kind::Float(f))).unwrap_or(T::FLOAT8E4M3FN)
}

/// The dtype that holds an element type, and what its bytes mean; `None` for types without a form.
pub fn storage(elem_type: i32) -> Option<(DType, Kind)> {
    let int = |bits, signed| Kind::Int { bits, signed };
    Some(match elem_type {
        T::FLOAT8E4M3FN => (DType::U8, Kind::Float(SmallFloat::E4M3Fn)),
        T::FLOAT8E4M3FNUZ => (DType::U8, Kind::Float(SmallFloat::E4M3Fnuz)),
        T::FLOAT8E5M2 => (DType::U8, Kind::Float(SmallFloat::E5M2)),
        T::FLOAT8E5M2FNUZ => (DType::U8, Kind::Float(SmallFloat::E5M2Fnuz)),
        T::FLOAT4E2M1 => (DType::U8, Kind::Float(SmallFloat::E2M1Fn)),
        T::FLOAT8E8M0 => (DType::U8, Kind::Exponent),
        T::STRING => (DType::U8, Kind::Text),
        T::UINT4 => (DType::U8, int(4, false)),
        T::INT4 => (DType::I8, int(4, true)),
        T::UINT2 => (DType::U8, int(2, false)),
        T::INT2 => (DType::I8, int(2, true)),
        t => (super::tensor::dtype_of(t)?, Kind::Plain),
    })
}

impl Kind {
    /// As the standard names it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Float(f) => type_name(element_type(f)),
            Kind::Exponent => "float8e8m0",
            Kind::Text => "string",
            Kind::Int { bits: 4, signed: true } => "int4",
            Kind::Int { bits: 4, signed: false } => "uint4",
            Kind::Int { signed: true, .. } => "int2",
            Kind::Int { signed: false, .. } => "uint2",
        }
    }

    /// Bits of an element in a file.
    pub fn bits(self) -> usize {
        match self {
            Kind::Int { bits, .. } => bits as usize,
            Kind::Float(f) => f.format().bits as usize,
            _ => 8,
        }
    }

    /// Elements packed from the lowest bits of each byte on, one per byte.
    pub fn unpack(self, packed: &[u8], elements: usize) -> Vec<u8> {
        let dtype = match self {
            Kind::Int { bits, signed: true } => DType { bits, ..DType::I8 },
            Kind::Int { bits, signed: false } => DType { bits, ..DType::U8 },
            Kind::Float(f) => DType::small(f),
            _ => return packed.to_vec(),
        };
        Constant::unpacked(dtype, packed, elements)
    }

    /// The smallest and the largest integer.
    pub fn range(self) -> Option<(i64, i64)> {
        match self {
            Kind::Int { bits, signed: true } => Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
            Kind::Int { bits, signed: false } => Some((0, (1 << bits) - 1)),
            _ => None,
        }
    }
}

/// The values of a tensor of any kind as a plain tensor: integers as they are, floats as float32.
pub fn decode(cx: &mut NodeCx, t: &Tensor) -> Res<Tensor> {
    let value = |code: u8| match t.kind {
        Kind::Float(f) => f.decode(code) as f32,
        _ => SmallFloat::E8M0Fnu.decode(code) as f32,
    };
    match t.kind {
        Kind::Plain => Ok(t.clone()),
        Kind::Text => Err(cx.unsupported("numbers from strings")),
        Kind::Int { .. } => Ok(t.clone().of_kind(Kind::Plain)),
        Kind::Float(_) | Kind::Exponent => {
            let codes = 1usize << t.kind.bits();
            let bytes = (0..codes).flat_map(|c| value(c as u8).to_le_bytes()).collect();
            let table = Tensor::constant(Constant::new(DType::F32, vec![codes as i64], bytes));
            let plain = t.clone().of_kind(Kind::Plain);
            let at = cx.cast(&plain, DType::I32)?;
            cx.call("take", &[table.into(), at.into()], &[("axis", AttrValue::Int(0))])
        }
    }
}

/// A plain tensor as codes or values of `kind`. `saturate`: what is too large becomes the largest number; `rounding`
/// is that of float8e8m0.
pub fn encode(cx: &mut NodeCx, t: &Tensor, kind: Kind, saturate: bool, rounding: &str) -> Res<Tensor> {
    let y = match kind {
        Kind::Plain => return Ok(t.clone()),
        Kind::Text => return Err(cx.unsupported("strings from numbers")),
        Kind::Int { bits, signed } => {
            // The lowest bits, sign-extended.
            let wide = cx.cast(t, DType::I32)?;
            let n = 1i64 << bits;
            let size = Tensor::scalar_int(DType::I32, n);
            let low = cx.op("floor_mod", &[&wide, &size])?;
            match signed {
                false => cx.cast(&low, DType::U8)?,
                true => {
                    let half = Tensor::scalar_int(DType::I32, n / 2);
                    let is_low = cx.op("less", &[&low, &half])?;
                    let negative = cx.op("subtract", &[&low, &size])?;
                    let v = cx.op("where", &[&is_low, &low, &negative])?;
                    cx.cast(&v, DType::I8)?
                }
            }
        }
        Kind::Float(f) => {
            let x = cx.cast(t, DType::F32)?;
            let f = f.format();
            let overflow = if saturate { f.largest } else { f.overflow };
            let int = |v: i64| AttrValue::Int(v);
            cx.call(
                "onnx.float_code",
                &[Arg::from(&x)],
                &[
                    ("mantissa", int(f.mantissa as i64)),
                    ("bias", int(f.bias as i64)),
                    ("sign", int(f.bits as i64 - 1)),
                    ("largest", int(f.largest as i64)),
                    ("overflow", int(overflow as i64)),
                    ("infinite", int(overflow as i64)),
                    ("nan", int(f.nan as i64)),
                    ("negative_zero", AttrValue::Bool(f.negative_zero)),
                ],
            )?
        }
        Kind::Exponent => {
            let x = cx.cast(t, DType::F32)?;
            cx.call("onnx.exponent_code", &[Arg::from(&x)], &[("rounding", AttrValue::Str(rounding.into()))])?
        }
    };
    Ok(y.of_kind(kind))
}

/// Does an operator only move elements, so that the kind of its first data input is that of its results?
pub fn moves(op: &str) -> bool {
    matches!(
        op,
        "Identity"
            | "Reshape"
            | "Transpose"
            | "Concat"
            | "Slice"
            | "Gather"
            | "GatherElements"
            | "GatherND"
            | "Squeeze"
            | "Unsqueeze"
            | "Expand"
            | "Flatten"
            | "Tile"
            | "Split"
            | "Where"
            | "DepthToSpace"
            | "SpaceToDepth"
            | "Compress"
            | "ReverseSequence"
    )
}

/// Does an operator know what to do with tensors of this kind?
pub fn knows(op: &str, kind: Kind) -> bool {
    if kind == Kind::Text {
        return matches!(
            op,
            "Equal"
                | "Identity"
                | "LabelEncoder"
                | "RegexFullMatch"
                | "Shape"
                | "Size"
                | "StringConcat"
                | "StringNormalizer"
                | "StringSplit"
                | "If"
                | "Loop"
                | "Optional"
                | "OptionalGetElement"
                | "OptionalHasElement"
                | "SequenceConstruct"
                | "SequenceInsert"
                | "SequenceAt"
                | "SequenceErase"
                | "SequenceLength"
        );
    }
    matches!(
        op,
        "Cast"
            | "CastLike"
            | "QuantizeLinear"
            | "DequantizeLinear"
            | "Shape"
            | "Size"
            | "If"
            | "Loop"
            | "Scan"
            | "Optional"
            | "OptionalGetElement"
            | "OptionalHasElement"
            | "SequenceConstruct"
            | "SequenceInsert"
            | "SequenceAt"
            | "SequenceErase"
            | "SequenceLength"
            | "BitCast"
    )
}
