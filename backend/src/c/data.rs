//! Read-only data: weights as arrays of numbers, texts as strings.

use super::types::{unsigned, value_type};
use crate::header::literal;
use relax_ir::flat::{DataBytes, FlatData, Linkage};
use relax_ir::{DType, Diagnostic, Span, TypeCode};
use std::fmt::Write as _;

/// The element type of the C array; `None` for bytes and texts.
pub fn element(d: &FlatData) -> Option<DType> {
    match &d.bytes {
        DataBytes::Constant(c) if d.relocs.is_empty() && c.dtype.bits >= 8 => {
            Some(literal_type(c.dtype.element(), c.bytes()))
        }
        _ => None,
    }
}

/// The type itself, or the unsigned integer of its bits when there are numbers without a literal among them.
fn literal_type(d: DType, bytes: &[u8]) -> DType {
    let finite = match (d.code, d.bits) {
        (TypeCode::Float, 32) => {
            bytes.chunks_exact(4).all(|b| f32::from_le_bytes(b.try_into().unwrap_or_default()).is_finite())
        }
        (TypeCode::Float, 64) => {
            bytes.chunks_exact(8).all(|b| f64::from_le_bytes(b.try_into().unwrap_or_default()).is_finite())
        }
        _ => true,
    };
    if finite {
        d
    } else {
        unsigned(d)
    }
}

fn head(d: &FlatData) -> String {
    let storage = match d.linkage {
        Linkage::Export => "const",
        _ => "static const",
    };
    match d.bytes {
        DataBytes::Constant(_) => format!("{storage} WEIGHTS"),
        DataBytes::Owned(_) => storage.to_string(),
    }
}

/// The definition of `d`. `functions` tells which names are functions.
///
/// # Errors
/// Pointers that overlap.
pub fn definition(d: &FlatData, pointer: u32, functions: &dyn Fn(&str) -> bool) -> Result<String, Diagnostic> {
    let bytes = d.bytes.get();
    let name = &d.symbol;
    if !d.relocs.is_empty() {
        return with_pointers(d, pointer, functions);
    }
    // No code reads more than an element at once.
    let align = d.align.clamp(1, 8);
    let aligned = if align > 1 { format!(" ALIGNED({align})") } else { String::new() };
    if let Some(e) = element(d) {
        let (kind, list) = numbers(e, bytes);
        let count = (bytes.len() / e.bytes()).max(1);
        return Ok(format!("{}{aligned} {kind} {name}[{count}] = {{{list}}};\n", head(d)));
    }
    let is_text = align == 1 && bytes.last() == Some(&0) && bytes.len() < 4000;
    match std::str::from_utf8(&bytes[..bytes.len().saturating_sub(1)]) {
        Ok(text) if is_text && !text.contains('\0') => {
            Ok(format!("{} char {name}[{}] = {};\n", head(d), bytes.len(), literal(text)))
        }
        _ => {
            let (kind, list) = numbers(DType::U8, bytes);
            Ok(format!("{}{aligned} {kind} {name}[{}] = {{{list}}};\n", head(d), bytes.len().max(1)))
        }
    }
}

/// The numbers, in lines; those that have no literal as their bits.
fn numbers(d: DType, bytes: &[u8]) -> (&'static str, String) {
    let mut items = Lines::default();
    if bytes.is_empty() {
        items.add("0");
    }
    for b in bytes.chunks_exact(d.bytes()) {
        let mut word = [0u8; 8];
        word[..b.len()].copy_from_slice(b);
        let raw = u64::from_le_bytes(word);
        let text = match (d.code, d.bits) {
            (TypeCode::Float, 32) => {
                let v = f32::from_bits(raw as u32);
                if v == v.trunc() && v.abs() < 1e6 {
                    format!("{v:?}f")
                } else {
                    format!("{v:e}f")
                }
            }
            (TypeCode::Float, 64) => format!("{:?}", f64::from_bits(raw)),
            (TypeCode::Int, 64) if raw == 1 << 63 => "(-9223372036854775807LL - 1)".to_string(),
            (TypeCode::Int, 64) => format!("{}LL", raw as i64),
            (TypeCode::Int, 32) if raw == 1 << 31 => "(-2147483647 - 1)".to_string(),
            (TypeCode::Int, bits) => format!("{}", ((raw << (64 - bits)) as i64) >> (64 - bits)),
            (TypeCode::UInt, 64) => format!("{raw}ULL"),
            (TypeCode::UInt, 32) => format!("{raw}u"),
            _ => raw.to_string(),
        };
        items.add(&text);
    }
    (value_type(d), items.finish())
}

/// Items in lines of bounded length.
#[derive(Default)]
struct Lines {
    text: String,
    at: usize,
}

impl Lines {
    fn add(&mut self, item: &str) {
        if self.text.is_empty() || self.at + item.len() + 2 > 116 {
            self.text += if self.text.is_empty() { "\n  " } else { ",\n  " };
            self.at = 2;
        } else {
            self.text += ", ";
            self.at += 2;
        }
        self.text += item;
        self.at += item.len();
    }

    fn finish(mut self) -> String {
        self.text.push('\n');
        self.text
    }
}

/// A struct of bytes and pointers in turn.
fn with_pointers(d: &FlatData, pointer: u32, functions: &dyn Fn(&str) -> bool) -> Result<String, Diagnostic> {
    let bytes = d.bytes.get();
    let mut relocs = d.relocs.clone();
    relocs.sort_by_key(|r| r.0);
    let (mut fields, mut values) = (String::new(), String::new());
    let mut at = 0usize;
    for (i, (offset, symbol, addend)) in relocs.iter().enumerate() {
        let offset = *offset as usize;
        let Some(gap) = offset.checked_sub(at) else {
            return Err(Diagnostic::internal(Span::NONE, format!("pointers overlap in `{}`", d.symbol)));
        };
        if gap > 0 {
            let _ = writeln!(fields, "  uint8_t bytes{i}[{gap}];");
            let _ = writeln!(values, "  {{{}}},", numbers(DType::U8, &bytes[at..offset]).1);
        }
        if functions(symbol) {
            let _ = writeln!(fields, "  void (*pointer{i})(void);");
            let _ = writeln!(values, "  (void (*)(void)){symbol},");
        } else {
            let _ = writeln!(fields, "  const void *pointer{i};");
            let _ = writeln!(values, "  (const char *)&{symbol} + {addend},");
        }
        at = offset + pointer as usize;
    }
    if at < bytes.len() {
        let _ = writeln!(fields, "  uint8_t rest[{}];", bytes.len() - at);
        let _ = writeln!(values, "  {{{}}},", numbers(DType::U8, &bytes[at..]).1);
    }
    let name = &d.symbol;
    Ok(format!("{} struct {{\n{fields}}} {name} = {{\n{values}}};\n", head(d)))
}
