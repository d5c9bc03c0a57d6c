//! Data types: a code, a width in bits and a number of vector lanes.

use crate::small_float::SmallFloat;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TypeCode {
    Int,
    UInt,
    Float,
    BFloat,
    /// Fewer than 16 bits.
    Small(SmallFloat),
    /// One byte in memory, 0 or 1.
    Bool,
    /// A pointer.
    Handle,
}

/// `bits` is the width of one lane (8 for bool, 64 for handle). What has fewer than 8 bits takes a byte in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DType {
    pub code: TypeCode,
    pub bits: u8,
    pub lanes: u16,
}

impl DType {
    const fn scalar(code: TypeCode, bits: u8) -> DType {
        DType { code, bits, lanes: 1 }
    }
    pub const BOOL: DType = DType::scalar(TypeCode::Bool, 8);
    pub const I8: DType = DType::scalar(TypeCode::Int, 8);
    pub const I16: DType = DType::scalar(TypeCode::Int, 16);
    pub const I32: DType = DType::scalar(TypeCode::Int, 32);
    pub const I64: DType = DType::scalar(TypeCode::Int, 64);
    pub const U8: DType = DType::scalar(TypeCode::UInt, 8);
    pub const U16: DType = DType::scalar(TypeCode::UInt, 16);
    pub const U32: DType = DType::scalar(TypeCode::UInt, 32);
    pub const U64: DType = DType::scalar(TypeCode::UInt, 64);
    pub const F16: DType = DType::scalar(TypeCode::Float, 16);
    pub const F32: DType = DType::scalar(TypeCode::Float, 32);
    pub const F64: DType = DType::scalar(TypeCode::Float, 64);
    pub const BF16: DType = DType::scalar(TypeCode::BFloat, 16);
    pub const HANDLE: DType = DType::scalar(TypeCode::Handle, 64);

    pub fn with_lanes(self, lanes: u16) -> DType {
        DType { lanes, ..self }
    }
    /// The type of one lane.
    pub fn element(self) -> DType {
        self.with_lanes(1)
    }
    /// Bytes of one lane in memory.
    pub fn bytes(self) -> usize {
        (self.bits as usize).div_ceil(8)
    }
    /// A float of so few bits.
    pub const fn small(s: SmallFloat) -> DType {
        let bits = match s {
            SmallFloat::E2M3Fn | SmallFloat::E3M2Fn => 6,
            SmallFloat::E2M1Fn => 4,
            _ => 8,
        };
        DType::scalar(TypeCode::Small(s), bits)
    }
    pub fn as_small(self) -> Option<SmallFloat> {
        match self.code {
            TypeCode::Small(s) => Some(s),
            _ => None,
        }
    }
    /// The type of the bytes in memory: elements of fewer than 8 bits are values in int8 or uint8, or codes in uint8.
    pub fn stored(self) -> DType {
        match self.code {
            TypeCode::Int if self.bits < 8 => DType::I8.with_lanes(self.lanes),
            TypeCode::UInt | TypeCode::Small(_) if self.bits < 8 => DType::U8.with_lanes(self.lanes),
            _ => self,
        }
    }
    /// A float.
    pub fn is_float(self) -> bool {
        matches!(self.code, TypeCode::Float | TypeCode::BFloat | TypeCode::Small(_))
    }
    /// Signed or unsigned integer, bool excluded.
    pub fn is_int(self) -> bool {
        matches!(self.code, TypeCode::Int | TypeCode::UInt)
    }
    pub fn is_signed(self) -> bool {
        self.code == TypeCode::Int
    }
    pub fn is_uint(self) -> bool {
        self.code == TypeCode::UInt
    }
    pub fn is_bool(self) -> bool {
        self.code == TypeCode::Bool
    }
    pub fn is_handle(self) -> bool {
        self.code == TypeCode::Handle
    }
    /// Smallest value of an integer type.
    pub fn int_min(self) -> i64 {
        match (self.code, self.bits) {
            (TypeCode::Int, 64) => i64::MIN,
            (TypeCode::Int, b) => -(1i64 << (b - 1)),
            _ => 0,
        }
    }
    /// Largest value of an integer type, as i64 (uint64 gives `u64::MAX as i64`, that is -1).
    pub fn int_max(self) -> i64 {
        match (self.code, self.bits) {
            (TypeCode::Int, 64) => i64::MAX,
            (TypeCode::Int, b) => (1i64 << (b - 1)) - 1,
            (TypeCode::UInt, 64) => -1,
            (TypeCode::UInt, b) => ((1u64 << b) - 1) as i64,
            _ => 1,
        }
    }
    /// DLPack's (code, bits).
    pub fn dlpack(self) -> (u8, u8) {
        match self.code {
            TypeCode::Int => (0, self.bits),
            TypeCode::UInt => (1, self.bits),
            TypeCode::Float => (2, self.bits),
            TypeCode::Handle => (3, 64),
            TypeCode::BFloat => (4, 16),
            TypeCode::Bool => (6, 8),
            TypeCode::Small(s) => (s.format().dlpack, self.bits),
        }
    }
    pub fn from_dlpack(code: u8, bits: u8) -> Option<DType> {
        Some(match (code, bits) {
            (0, b) => DType::scalar(TypeCode::Int, b),
            (1, 1) => DType::BOOL,
            (1, b) => DType::scalar(TypeCode::UInt, b),
            (2, b) => DType::scalar(TypeCode::Float, b),
            (3, _) => DType::HANDLE,
            (4, 16) => DType::BF16,
            (6, 8) => DType::BOOL,
            _ => return SmallFloat::from_dlpack(code).map(DType::small).filter(|d| d.bits == bits),
        })
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.code {
            TypeCode::Int => write!(f, "int{}", self.bits)?,
            TypeCode::UInt => write!(f, "uint{}", self.bits)?,
            TypeCode::Float => write!(f, "float{}", self.bits)?,
            TypeCode::BFloat => write!(f, "bfloat{}", self.bits)?,
            TypeCode::Bool => write!(f, "bool")?,
            TypeCode::Small(s) => write!(f, "{}", s.format().name)?,
            TypeCode::Handle => write!(f, "handle")?,
        }
        if self.lanes != 1 {
            write!(f, "x{}", self.lanes)?;
        }
        Ok(())
    }
}

impl FromStr for DType {
    type Err = ();
    /// Parses `float32`, `int64`, `bool`, `bfloat16`, `handle`, `float32x4`.
    fn from_str(s: &str) -> Result<DType, ()> {
        let (body, lanes) = match s.split_once('x') {
            Some((b, l)) => (b, l.parse::<u16>().map_err(|_| ())?),
            None => (s, 1),
        };
        if let Some(s) = SmallFloat::from_name(body) {
            return Ok(DType::small(s).with_lanes(lanes));
        }
        let split = body.find(|c: char| c.is_ascii_digit()).unwrap_or(body.len());
        let (name, bits) = body.split_at(split);
        let bits: u8 = if bits.is_empty() { 0 } else { bits.parse().map_err(|_| ())? };
        let d = match (name, bits) {
            ("bool", 0) => DType::BOOL,
            ("handle", 0) => DType::HANDLE,
            ("int", 1 | 2 | 4 | 8 | 16 | 32 | 64) => DType::scalar(TypeCode::Int, bits),
            ("uint", 1) => DType::BOOL,
            ("uint", 2 | 4 | 8 | 16 | 32 | 64) => DType::scalar(TypeCode::UInt, bits),
            ("float", 16 | 32 | 64) => DType::scalar(TypeCode::Float, bits),
            ("bfloat", 16) => DType::BF16,
            _ => return Err(()),
        };
        Ok(d.with_lanes(lanes))
    }
}
