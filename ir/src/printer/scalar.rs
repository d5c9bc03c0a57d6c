//! Scalar expressions, literals and strings.

use super::Printer;
use crate::dtype::{DType, TypeCode};
use crate::prim::{round_float, BinOp, PrimExpr, PrimKind, Var};

/// Binding strengths of Python's operators.
mod level {
    pub const NONE: u8 = 0;
    pub const OR: u8 = 1;
    pub const AND: u8 = 2;
    pub const NOT: u8 = 3;
    pub const COMPARE: u8 = 4;
    pub const BIT_OR: u8 = 5;
    pub const BIT_XOR: u8 = 6;
    pub const BIT_AND: u8 = 7;
    pub const SHIFT: u8 = 8;
    pub const SUM: u8 = 9;
    pub const PRODUCT: u8 = 10;
    pub const UNARY: u8 = 11;
}

fn operator(op: BinOp, operand: DType) -> Result<(&'static str, u8), &'static str> {
    use BinOp::*;
    Ok(match op {
        Add => ("+", level::SUM),
        Sub => ("-", level::SUM),
        Mul => ("*", level::PRODUCT),
        Div if operand.is_float() => ("/", level::PRODUCT),
        Div => return Err("T.Div"),
        FloorDiv => ("//", level::PRODUCT),
        FloorMod => ("%", level::PRODUCT),
        TruncDiv => return Err("T.truncdiv"),
        TruncMod => return Err("T.truncmod"),
        Min => return Err("T.min"),
        Max => return Err("T.max"),
        Eq => ("==", level::COMPARE),
        Ne => ("!=", level::COMPARE),
        Lt => ("<", level::COMPARE),
        Le => ("<=", level::COMPARE),
        Gt => (">", level::COMPARE),
        Ge => (">=", level::COMPARE),
        And => ("and", level::AND),
        Or => ("or", level::OR),
        BitAnd => ("&", level::BIT_AND),
        BitOr => ("|", level::BIT_OR),
        BitXor => ("^", level::BIT_XOR),
        Shl => ("<<", level::SHIFT),
        Shr => (">>", level::SHIFT),
    })
}

impl Printer<'_> {
    pub fn var(&mut self, v: &Var) -> String {
        self.names.get(v.id(), v.name())
    }

    pub fn prim(&mut self, e: &PrimExpr) -> String {
        self.prim_at(e, level::NONE)
    }

    /// In parentheses unless it is one word.
    pub fn operand_of(&mut self, e: &PrimExpr) -> String {
        self.prim_at(e, u8::MAX)
    }

    pub fn prims<'e>(&mut self, list: impl IntoIterator<Item = &'e PrimExpr>) -> String {
        let list: Vec<String> = list.into_iter().map(|e| self.prim(e)).collect();
        list.join(", ")
    }

    /// Is this a literal that prints without its type?
    fn is_bare(&self, e: &PrimExpr) -> bool {
        matches!(e.kind(), PrimKind::Int(_)) && e.dtype() == self.int
    }

    /// Operands whose type no neighbour states carry it themselves.
    fn typed(&mut self, e: &PrimExpr, at: u8) -> String {
        match e.kind() {
            PrimKind::Int(v) if self.is_bare(e) => format!("T.{}({v})", e.dtype()),
            _ => self.prim_at(e, at),
        }
    }

    fn prim_at(&mut self, e: &PrimExpr, at: u8) -> String {
        let d = e.dtype();
        let (text, own) = match e.kind() {
            PrimKind::Var(v) => return self.var(v),
            PrimKind::Int(v) => {
                let text = self.int_literal(d, *v);
                let own = if text.starts_with('-') { level::UNARY } else { u8::MAX };
                (text, own)
            }
            // TVM refuses decimals this large.
            PrimKind::Float(v) if d == DType::F64 && v.0 == f64::MIN => return "T.min_value(\"float64\")".to_string(),
            PrimKind::Float(v) if d == DType::F64 && v.0 == f64::MAX => return "T.max_value(\"float64\")".to_string(),
            PrimKind::Float(v) => return format!("T.{d}({})", float_literal_of(d, v.0)),
            PrimKind::Str(s) => return quote(s),
            PrimKind::Cast(a) => (format!("T.Cast(\"{d}\", {})", self.prim(a)), u8::MAX),
            PrimKind::Reinterpret(a) => (format!("T.reinterpret(\"{d}\", {})", self.prim(a)), u8::MAX),
            PrimKind::Binary(op, a, b) => match operator(*op, a.dtype()) {
                Err(name) if self.is_bare(a) && self.is_bare(b) => {
                    let a = self.typed(a, level::NONE);
                    (format!("{name}({a}, {})", self.prim(b)), u8::MAX)
                }
                Err(name) => (format!("{name}({}, {})", self.prim(a), self.prim(b)), u8::MAX),
                Ok((sign, own)) => {
                    let left = if own == level::COMPARE { own + 1 } else { own };
                    let a = if self.is_bare(b) { self.typed_left(a, left) } else { self.prim_at(a, left) };
                    (format!("{a} {sign} {}", self.prim_at(b, own + 1)), own)
                }
            },
            PrimKind::Not(a) => (format!("not {}", self.prim_at(a, level::NOT)), level::NOT),
            PrimKind::Neg(a) => (format!("-{}", self.typed(a, level::UNARY)), level::UNARY),
            PrimKind::Select(c, a, b) => (self.call_of("T.Select", &[c, a, b]), u8::MAX),
            PrimKind::IfThenElse(c, a, b) => (self.call_of("T.if_then_else", &[c, a, b]), u8::MAX),
            PrimKind::BufferLoad(b, indices) => {
                let name = self.names.get(b.id(), &b.name);
                (format!("{name}[{}]", self.indices(indices)), u8::MAX)
            }
            PrimKind::Call(crate::prim::Intrin::BitNot, args) if args.len() == 1 => {
                (format!("~{}", self.typed(&args[0], level::UNARY)), level::UNARY)
            }
            PrimKind::Call(f, args) => {
                let first = args.first().map(|a| a.dtype());
                let mut list = vec![];
                for a in args.iter() {
                    // A bare literal takes the type of its neighbours.
                    list.push(if Some(a.dtype()) == first { self.prim(a) } else { self.typed(a, level::NONE) });
                }
                // TVM has no code for its own `T.fmod`.
                let name = if *f == crate::prim::Intrin::Fmod { "truncmod" } else { f.name() };
                (format!("T.{name}({})", list.join(", ")), u8::MAX)
            }
            PrimKind::Let(v, value, body) => {
                let value = self.prim(value);
                // Kernels declare it where they begin.
                let mark = self.names.mark();
                let name = self.names.get(v.id(), v.name());
                let text = format!("T.Let({}, where={{{name}: {value}}})", self.prim(body));
                self.names.leave(mark);
                (text, u8::MAX)
            }
            PrimKind::Ramp(a, b) => (format!("T.Ramp({}, {}, {})", self.prim(a), self.prim(b), d.lanes), u8::MAX),
            PrimKind::Broadcast(a) => (format!("T.Broadcast({}, {})", self.prim(a), d.lanes), u8::MAX),
            // Flat form only.
            PrimKind::Load { ptr, offset } => {
                (format!("T.{d}({}[{}])", self.prim_at(ptr, u8::MAX), self.prim(offset)), u8::MAX)
            }
            PrimKind::PtrAdd(a, b) => {
                (format!("{} + {}", self.prim_at(a, level::SUM), self.prim_at(b, level::SUM + 1)), level::SUM)
            }
        };
        if own < at {
            format!("({text})")
        } else {
            text
        }
    }

    /// The left operand of a bare literal: of two literals one must say its type, or they would be one number.
    fn typed_left(&mut self, a: &PrimExpr, at: u8) -> String {
        if self.is_bare(a) {
            self.typed(a, at)
        } else {
            self.prim_at(a, at)
        }
    }

    fn call_of(&mut self, name: &str, args: &[&PrimExpr]) -> String {
        let args: Vec<String> = args.iter().map(|a| self.prim(a)).collect();
        format!("{name}({})", args.join(", "))
    }

    /// What stands between the brackets of an element.
    pub fn indices(&mut self, indices: &[PrimExpr]) -> String {
        if indices.is_empty() {
            return "()".to_string();
        }
        self.prims(indices)
    }

    pub fn int_literal(&self, d: DType, v: i64) -> String {
        if d.is_bool() {
            let v = if v != 0 { "True" } else { "False" };
            return if self.bare_bool { v.to_string() } else { format!("T.bool({v})") };
        }
        let v = if d == DType::U64 { (v as u64).to_string() } else { v.to_string() };
        if d == self.int {
            v
        } else {
            format!("T.{d}({v})")
        }
    }

    /// A dim of a signature: expressions go in quotes.
    pub fn signature_dim(&mut self, e: &PrimExpr) -> String {
        let text = self.prim(e);
        match e.kind() {
            PrimKind::Int(_) => text,
            PrimKind::Var(v) if !self.undeclared.contains(v) => text,
            _ => quote(&text),
        }
    }
}

/// As [`float_literal`], the shortest digits that round to the value in type `d`.
pub fn float_literal_of(d: DType, v: f64) -> String {
    if !v.is_finite() || d == DType::F64 {
        return float_literal(v);
    }
    let most = PrimExpr::max_value(d).as_float().unwrap_or(f64::MAX);
    let shortest = match d {
        DType::F32 => format!("{:?}", v as f32).parse().ok(),
        _ => {
            let mut texts = (0..17).map(|digits| format!("{v:.digits$e}"));
            texts.find_map(|t| t.parse::<f64>().ok().filter(|r| round_float(d, *r) == v))
        }
    };
    // TVM refuses decimals beyond the largest value, even those that round to it.
    float_literal(shortest.filter(|s| s.abs() <= most).unwrap_or(v))
}

/// The value of a float literal: decimal digits that round to it, or one of TVM's words in quotes.
pub fn float_literal(v: f64) -> String {
    if v.is_nan() {
        "\"nan\"".to_string()
    } else if v.is_infinite() {
        if v > 0.0 { "\"inf\"" } else { "\"-inf\"" }.to_string()
    } else {
        format!("{v:?}")
    }
}

/// A string literal.
pub fn quote(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out + "\""
}

/// `T.int64`, `T.float32`...
pub fn scalar_type(d: DType) -> String {
    match d.code {
        TypeCode::Handle => "T.handle".to_string(),
        _ => format!("T.{d}"),
    }
}
