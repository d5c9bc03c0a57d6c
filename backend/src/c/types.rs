//! C types of values, and of numbers in memory.

use relax_ir::{DType, TypeCode};

/// f16 or bf16: kept as their bits.
pub fn is_half(d: DType) -> bool {
    d.is_float() && d.bits == 16
}

/// The type of a variable.
pub fn value_type(d: DType) -> &'static str {
    match (d.code, d.bits) {
        (TypeCode::Int, 8) => "int8_t",
        (TypeCode::Int, 16) => "int16_t",
        (TypeCode::Int, 32) => "int32_t",
        (TypeCode::Int, _) => "int64_t",
        (TypeCode::Bool | TypeCode::Small(_), _) | (TypeCode::UInt, 8) => "uint8_t",
        (TypeCode::UInt, 16) | (TypeCode::Float, 16) | (TypeCode::BFloat, _) => "uint16_t",
        (TypeCode::UInt, 32) => "uint32_t",
        (TypeCode::UInt, _) => "uint64_t",
        (TypeCode::Float, 32) => "float",
        (TypeCode::Float, _) => "double",
        (TypeCode::Handle, _) => "void *",
    }
}

/// The type of an element of a buffer: may alias any other.
pub fn memory_type(d: DType) -> &'static str {
    match value_type(d) {
        "int8_t" => "i8",
        "int16_t" => "i16",
        "int32_t" => "i32",
        "int64_t" => "i64",
        "uint8_t" => "u8",
        "uint16_t" => "u16",
        "uint32_t" => "u32",
        "uint64_t" => "u64",
        "float" => "f32",
        "double" => "f64",
        _ => "handle",
    }
}

/// Short name for helper functions: arithmetic happens in 32 or 64 bits.
pub fn wide_name(d: DType) -> &'static str {
    match (d.code, d.bits) {
        (TypeCode::Float, 64) => "f64",
        (TypeCode::Float | TypeCode::BFloat, _) => "f32",
        (TypeCode::Int, 64) => "i64",
        (TypeCode::Int, _) => "i32",
        (TypeCode::UInt, 64) => "u64",
        _ => "u32",
    }
}

/// The unsigned integer of the same width.
pub fn unsigned(d: DType) -> DType {
    DType { code: TypeCode::UInt, bits: d.bits, lanes: 1 }
}

/// What a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointee {
    /// `None`: void.
    pub element: Option<DType>,
    pub writable: bool,
}

impl Pointee {
    pub const VOID: Pointee = Pointee { element: None, writable: true };

    /// The declaration of a pointer `name`.
    pub fn declare(&self, name: &str) -> String {
        let element = self.element.map_or("void", memory_type);
        match (self.writable, element) {
            (true, _) => format!("{element} *{name}"),
            (false, "handle") => format!("handle const *{name}"),
            (false, _) => format!("const {element} *{name}"),
        }
    }
}
