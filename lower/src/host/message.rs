//! The message of `R.assert_op`: its format with the values filled in, as Python's `str.format` does.
//!
//! What is known when the program is compiled becomes text. Numbers, truths and tensors of them that only the call tells are
//! written into the record's message once the failure is reported (`message/fill.rs`); other values stay `{}`.

pub mod fill;

use relax_ir::relax::{Expr, ExprKind};
use relax_ir::{DType, PrimExpr};

/// Tensors of more elements, or of open dims, are written by a loop.
const ELEMENTS: usize = 16;

/// What only the call tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// A whole number, a float or a truth.
    Number(PrimExpr),
    /// The elements at an address.
    Tensor { data: PrimExpr, dims: Vec<PrimExpr>, dtype: DType },
}

impl Told {
    pub fn exprs(&self) -> Vec<&PrimExpr> {
        match self {
            Told::Number(n) => vec![n],
            Told::Tensor { data, dims, .. } => std::iter::once(data).chain(dims).collect(),
        }
    }
}

/// A value of the format.
pub enum Piece {
    Text(String),
    Told(Told),
    /// One after the other.
    Parts(Vec<Piece>),
    Open,
}

/// A message, and what goes into it: into which `{}`.
pub struct Message {
    pub text: String,
    pub numbers: Vec<(i64, Told)>,
}

impl Message {
    pub fn new(format: &str, values: Vec<Piece>) -> Message {
        let all = vec!["{}"; values.len()].join(", ");
        let mut rest = if format.is_empty() { all.as_str() } else { format };
        let mut out = Message { text: "assertion failed".to_string(), numbers: vec![] };
        if !rest.is_empty() {
            out.text.push_str(": ");
        }
        let mut next = 0;
        while let Some(c) = rest.chars().next() {
            let field = rest.strip_prefix('{').and_then(|r| r.split_once('}')).map(|(name, _)| name);
            let number = match field {
                Some("") => Some(next),
                Some(name) => name.parse::<usize>().ok(),
                None => None,
            };
            let mut length = c.len_utf8();
            if let (Some(value), Some(name)) = (number.and_then(|n| values.get(n)), field) {
                next += name.is_empty() as usize;
                length = name.len() + 2;
                out.write(value, &rest[..length]);
            } else {
                out.text.push(c);
                if rest.starts_with("{{") || rest.starts_with("}}") {
                    length = 2;
                }
            }
            rest = &rest[length..];
        }
        out
    }

    /// Writes the value in the place of `field`.
    fn write(&mut self, value: &Piece, field: &str) {
        match value {
            Piece::Text(t) => self.text.push_str(t),
            Piece::Told(n) => {
                self.numbers.push((self.text.matches("{}").count() as i64, n.clone()));
                self.text.push_str("{}");
            }
            Piece::Parts(parts) => parts.iter().for_each(|p| self.write(p, field)),
            Piece::Open => self.text.push_str(field),
        }
    }
}

impl Piece {
    /// A scalar that is known or has a name.
    pub fn scalar(e: &PrimExpr) -> Piece {
        match (e.as_int(), e.as_float()) {
            (Some(v), _) if e.dtype().is_bool() => Piece::Text(truth(v != 0).to_string()),
            (Some(v), _) => Piece::Text(v.to_string()),
            (None, Some(v)) => Piece::Text(float(v, e.dtype())),
            _ => Piece::told(e),
        }
    }

    /// A scalar that only the call tells.
    pub fn told(e: &PrimExpr) -> Piece {
        match e.dtype() {
            d if d.is_int() => Piece::Told(Told::Number(e.clone().cast(DType::I64))),
            d if is_told(d) => Piece::Told(Told::Number(e.clone())),
            _ => Piece::Open,
        }
    }

    /// A tensor that only the call tells, as `R.print` writes it; `read` gives an element by its number, or the address of all.
    pub fn tensor(dims: &[PrimExpr], dtype: DType, mut read: impl FnMut(Option<usize>) -> PrimExpr) -> Piece {
        let stated = dims;
        let dims: Option<Vec<usize>> = dims.iter().map(|d| usize::try_from(d.as_int()?).ok()).collect();
        let count = |dims: &[usize]| dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        match dims {
            Some(dims) if count(&dims).is_some_and(|n| n <= ELEMENTS) && is_told(dtype) => {
                rows(&dims, &mut 0, &mut |at| Piece::told(&read(Some(at))))
            }
            _ if is_told(dtype) => Piece::Told(Told::Tensor { data: read(None), dims: stated.to_vec(), dtype }),
            _ => Piece::Open,
        }
    }

    /// A constant that is one element.
    pub fn constant(e: &Expr) -> Option<Piece> {
        let ExprKind::Constant(c) = e.kind() else { return None };
        if !c.shape.is_empty() {
            return None;
        }
        Some(Piece::Text(match c.dtype {
            d if d.is_bool() => truth(c.get_i64(0) != 0).to_string(),
            d if d.is_float() => float(c.get_f64(0), d),
            _ => c.get_i64(0).to_string(),
        }))
    }

    /// The values of a shape.
    pub fn shape(values: &[PrimExpr]) -> Piece {
        list("(", values.iter().map(Piece::scalar).collect(), if values.len() == 1 { ",)" } else { ")" })
    }
}

/// What may be read when the call fails.
fn is_told(d: DType) -> bool {
    let float = matches!(d, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
    d.is_bool() || float || d.is_int() && d.bits >= 8
}

fn list(open: &str, items: Vec<Piece>, close: &str) -> Piece {
    let mut parts = vec![Piece::Text(open.to_string())];
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            parts.push(Piece::Text(", ".to_string()));
        }
        parts.push(item);
    }
    parts.push(Piece::Text(close.to_string()));
    Piece::Parts(parts)
}

/// The part of a tensor below some of its axes, whose first element has number `at`; `at` moves behind it.
fn rows(dims: &[usize], at: &mut usize, read: &mut dyn FnMut(usize) -> Piece) -> Piece {
    match dims.split_first() {
        Some((dim, below)) => list("[", (0..*dim).map(|_| rows(below, at, read)).collect(), "]"),
        None => {
            *at += 1;
            read(*at - 1)
        }
    }
}

/// A float as Python writes it: the fewest digits that are this number of its type.
fn float(v: f64, dtype: DType) -> String {
    if !v.is_finite() {
        return if v.is_nan() { "nan".to_string() } else { format!("{v}") };
    }
    let is_same = |text: &str| {
        text.parse::<f64>().is_ok_and(|x| {
            let far = f64::from_bits(x.abs().to_bits() >> 52 << 52) * fill::coarse(dtype).unwrap_or(0.0);
            x.abs() + far - far == v.abs()
        })
    };
    let texts = (0..17).map(|digits| format!("{v:.digits$e}"));
    let text = texts.into_iter().find(|t| is_same(t)).unwrap_or_else(|| format!("{v:e}"));
    let (number, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>() {
        Ok(-4..=15) => {
            let whole: f64 = text.parse().unwrap_or(v);
            if whole.fract() == 0.0 {
                format!("{whole}.0")
            } else {
                format!("{whole}")
            }
        }
        Ok(e) => format!("{number}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs()),
        Err(_) => text,
    }
}

fn truth(v: bool) -> &'static str {
    if v {
        "True"
    } else {
        "False"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        let cases: [(f64, DType, &str); 14] = [
            (0.1f32.into(), DType::F32, "0.1"),
            (0.1, DType::F64, "0.1"),
            (0.0999755859375, DType::F16, "0.1"),
            (0.1f32.into(), DType::F64, "0.10000000149011612"),
            (1e16, DType::F64, "1e+16"),
            (1e15, DType::F64, "1000000000000000.0"),
            (123456792.0, DType::F32, "123456790.0"),
            (1.1754943508222875e-38, DType::F64, "1.1754943508222875e-38"),
            (1e-5f32.into(), DType::F32, "1e-05"),
            (1e-4f32.into(), DType::F32, "0.0001"),
            (-0.0, DType::F32, "-0.0"),
            (-2.5, DType::BF16, "-2.5"),
            (f64::NEG_INFINITY, DType::F32, "-inf"),
            (f64::NAN, DType::F32, "nan"),
        ];
        for (v, dtype, text) in cases {
            assert_eq!(float(v, dtype), text);
        }
    }
}
