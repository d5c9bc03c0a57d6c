//! The message of `R.assert_op`: its format with the values filled in, as Python's `str.format` does.
//!
//! What is known when the program is compiled becomes text. Whole numbers that only the call tells are written into the
//! record's message once the failure is reported; other values stay `{}`.

use super::build::{local_callee, Builder, Pool};
use relax_ir::abi::{AbiLayout, MESSAGE_BYTES};
use relax_ir::flat::{Callee, FlatFunc, FlatStmt, Linkage};
use relax_ir::relax::{Expr, ExprKind};
use relax_ir::{DType, PrimExpr, Var};

/// A value of the format.
pub enum Piece {
    Text(String),
    /// A whole number that only the call tells.
    Number(PrimExpr),
    Open,
}

/// A message, and the numbers that go into it: into which `{}`.
pub struct Message {
    pub text: String,
    pub numbers: Vec<(i64, PrimExpr)>,
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
                match value {
                    Piece::Text(t) => out.text.push_str(t),
                    Piece::Number(n) => {
                        out.numbers.push((out.text.matches("{}").count() as i64, n.clone()));
                        out.text.push_str("{}");
                    }
                    Piece::Open => out.text.push_str(&rest[..length]),
                }
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
}

impl Piece {
    /// A scalar that is known or has a name.
    pub fn scalar(e: &PrimExpr) -> Piece {
        match (e.as_int(), e.as_float()) {
            (Some(v), _) if e.dtype().is_bool() => Piece::Text(truth(v != 0).to_string()),
            (Some(v), _) => Piece::Text(v.to_string()),
            (None, Some(v)) => Piece::Text(format!("{v:?}")),
            _ if e.dtype().is_int() && !e.dtype().is_bool() => Piece::Number(e.clone().cast(DType::I64)),
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
            DType::F64 => format!("{:?}", c.get_f64(0)),
            d if d.is_float() => format!("{:?}", c.get_f64(0) as f32),
            _ => c.get_i64(0).to_string(),
        }))
    }

    /// The values of a shape, where all are known.
    pub fn shape(values: &[PrimExpr]) -> Piece {
        let known: Option<Vec<String>> = values.iter().map(|v| v.as_int().map(|v| v.to_string())).collect();
        match known {
            Some(v) if v.len() == 1 => Piece::Text(format!("({},)", v[0])),
            Some(v) => Piece::Text(format!("({})", v.join(", "))),
            None => Piece::Open,
        }
    }
}

fn truth(v: bool) -> &'static str {
    if v {
        "True"
    } else {
        "False"
    }
}

/// `void P__fill(P_call *, int64_t nth, int64_t value)`
pub fn callee(prefix: &str) -> Callee {
    local_callee(&format!("{prefix}__fill"), vec![DType::HANDLE, DType::I64, DType::I64], None)
}

/// Writes a number in the place of `{}` number `nth` of the record's message.
pub fn function(pool: &mut Pool, prefix: &str, abi: AbiLayout) -> FlatFunc {
    let (call, nth, value) =
        (Var::new("call", DType::HANDLE), Var::new("nth", DType::I64), Var::new("value", DType::I64));
    let mut b = Builder::new(pool, abi, call.expr());
    let (int, size) = (PrimExpr::i64, MESSAGE_BYTES as i64);
    let byte = |c: u8| PrimExpr::int(DType::U8, c as i64);
    let given = super::build::address_of(call.expr()).ne(int(0));
    b.if_then(given, |b| {
        let message = b.bind("message", call.expr().ptr_add(int(abi.call_message)));
        let before = b.stack("before", size as u32, 1);
        let digits = b.stack("digits", 20, 1);
        let read = |p: &PrimExpr, i: PrimExpr| PrimExpr::load_ptr(p.clone(), i, DType::U8);
        let (place, seen, ended) = (b.local("place", int(-1)), b.local("seen", int(0)), b.local("ended", int(0)));
        b.for_range("i", int(size - 1), |b, i| {
            let c = b.bind("c", read(&message, i.clone()));
            let pair = c.clone().eq(byte(b'{')).and(read(&message, i.clone() + 1).eq(byte(b'}')));
            b.if_then(c.eq(byte(0)), |b| b.assign(&ended, int(1)));
            b.if_then(pair.and(ended.expr().eq(int(0))), |b| {
                b.if_then(seen.expr().eq(nth.expr()), |b| b.assign(&place, i));
                b.assign(&seen, seen.expr() + 1);
            });
        });
        b.if_then(place.expr().ge(int(0)), |b| {
            b.for_range("i", int(size), |b, i| {
                b.push(FlatStmt::Store { ptr: before.clone(), offset: i.clone(), value: read(&message, i) });
            });
            let to = b.local("to", place.expr());
            let put = |b: &mut Builder, c: PrimExpr| {
                b.if_then(to.expr().lt(int(size - 1)), |b| {
                    b.push(FlatStmt::Store { ptr: message.clone(), offset: to.expr(), value: c });
                    b.assign(&to, to.expr() + 1);
                });
            };
            b.if_then(value.expr().lt(int(0)), |b| put(b, byte(b'-')));
            // Digits of a number below zero: the smallest has no positive one.
            let low = value.expr().lt(int(0)).select(value.expr(), int(0) - value.expr());
            let (rest, count) = (b.local("rest", low), b.local("count", int(0)));
            b.for_range("i", int(20), |b, i| {
                b.if_then(i.eq(int(0)).or(rest.expr().ne(int(0))), |b| {
                    let tens = b.bind("tens", rest.expr().trunc_div(int(10)));
                    let digit = (tens.clone() * 10 - rest.expr() + b'0' as i64).cast(DType::U8);
                    b.push(FlatStmt::Store { ptr: digits.clone(), offset: count.expr(), value: digit });
                    b.assign(&count, count.expr() + 1);
                    b.assign(&rest, tens);
                });
            });
            b.for_range("i", count.expr(), |b, i| put(b, read(&digits, count.expr() - 1 - i)));
            b.for_range("i", int(size) - place.expr() - 2, |b, i| put(b, read(&before, place.expr() + 2 + i)));
            b.push(FlatStmt::Store { ptr: message.clone(), offset: to.expr(), value: byte(0) });
        });
    });
    b.finish(format!("{prefix}__fill"), vec![call, nth, value], None, Linkage::Local)
}
