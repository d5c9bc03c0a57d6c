//! Functions of the library that write a value into the record's message, in the place of a `{}`. They need neither the runtime
//! nor a C library.

use super::Told;
use crate::host::build::{address_of, local_callee, Builder, Pool};
use relax_ir::abi::{AbiLayout, MESSAGE_BYTES};
use relax_ir::flat::{Callee, FlatFunc, FlatStmt, Linkage};
use relax_ir::prim::BinOp;
use relax_ir::{DType, PrimExpr, Var};

/// Bytes of the text of a number: `-1.2345678901234567e-308` and whole numbers of 19 digits.
const TEXT: i64 = 40;
/// Digits of the floats that need the most.
const DIGITS: i64 = 17;
/// Powers of ten that a float has.
const POWERS: i64 = 340;
/// Powers of two that a float has.
const TWOS: i64 = 1100;
/// The exponents below which floats are written without one, as in Python.
const PLAIN: i64 = 16;

/// Which of the functions are called.
#[derive(Clone, Default)]
pub struct Fills {
    whole: bool,
    floats: bool,
    any: bool,
    /// Of tensors of these.
    lists: Vec<DType>,
}

fn name(prefix: &str, what: &str) -> String {
    format!("{prefix}__fill{what}")
}

/// `void P__fill(P_call *, int64_t nth, const char *text, int64_t count)`
fn text_callee(prefix: &str) -> Callee {
    local_callee(&name(prefix, ""), vec![DType::HANDLE, DType::I64, DType::HANDLE, DType::I64], None)
}

/// Writes `told` in the place of `{}` number `nth` of the message of `b`'s call.
pub fn write(b: &mut Builder, nth: i64, told: &Told) {
    let (data, dims, dtype) = match told {
        Told::Number(value) => return scalar(b, int(nth), value),
        Told::Tensor { data, dims, dtype } => (data, dims, *dtype),
    };
    b.pool.fills.any = true;
    if !b.pool.fills.lists.contains(&dtype) {
        b.pool.fills.lists.push(dtype);
    }
    let list = b.stack("dims", 8 * dims.len() as u32, 8);
    for (k, d) in dims.iter().enumerate() {
        b.push(FlatStmt::Store { ptr: list.clone(), offset: int(k as i64), value: d.clone() });
    }
    let prefix = b.pool.prefix().to_string();
    let params = vec![DType::HANDLE, DType::I64, DType::HANDLE, DType::HANDLE, DType::I64];
    let callee = local_callee(&name(&prefix, &format!("_list_{dtype}")), params, None);
    let args = vec![b.call.clone(), int(nth), data.clone(), list, int(dims.len() as i64)];
    b.push(FlatStmt::Call { callee, args, result: None });
}

fn scalar(b: &mut Builder, nth: PrimExpr, value: &PrimExpr) {
    let prefix = b.pool.prefix().to_string();
    let (call, dtype) = (b.call.clone(), value.dtype());
    b.pool.fills.any = true;
    if dtype.is_bool() {
        let value = b.bind("told", value.clone());
        for (text, holds) in [("True", value.clone()), ("False", value.not())] {
            b.if_then(holds, |b| {
                let args = vec![call.clone(), nth.clone(), b.text(text), PrimExpr::i64(text.len() as i64)];
                b.push(FlatStmt::Call { callee: text_callee(&prefix), args, result: None });
            });
        }
        return;
    }
    let (callee, args) = match coarse(dtype) {
        Some(coarse) => {
            b.pool.fills.floats = true;
            let callee =
                local_callee(&name(&prefix, "_float"), vec![DType::HANDLE, DType::I64, DType::F64, DType::F64], None);
            (callee, vec![call, nth, value.clone().cast(DType::F64), PrimExpr::float(DType::F64, coarse)])
        }
        None => {
            b.pool.fills.whole = true;
            let callee = local_callee(&name(&prefix, "_int"), vec![DType::HANDLE, DType::I64, DType::I64], None);
            (callee, vec![call, nth, value.clone()])
        }
    };
    b.push(FlatStmt::Call { callee, args, result: None });
}

/// A float64 that this times its power of two is added to and taken from has been rounded to the bits of a float type. No
/// product is in it that a C compiler might join with the sum; 0 where nothing is rounded.
pub fn coarse(dtype: DType) -> Option<f64> {
    let bits = match dtype {
        DType::F64 => return Some(0.0),
        DType::F32 => 24,
        DType::F16 => 11,
        DType::BF16 => 8,
        _ => return None,
    };
    Some((1i64 << (53 - bits)) as f64)
}

/// The functions that were called.
pub fn functions(pool: &mut Pool, prefix: &str, abi: AbiLayout) -> Vec<FlatFunc> {
    let mut out = vec![];
    for dtype in pool.fills.lists.clone() {
        out.push(list_function(pool, prefix, abi, dtype));
    }
    let Fills { whole, floats, any, .. } = pool.fills.clone();
    if any {
        out.push(text_function(pool, prefix, abi));
    }
    if whole {
        out.push(int_function(pool, prefix, abi));
    }
    if floats {
        out.push(float_function(pool, prefix, abi));
    }
    out
}

fn int(v: i64) -> PrimExpr {
    PrimExpr::i64(v)
}

fn byte(c: u8) -> PrimExpr {
    PrimExpr::int(DType::U8, c as i64)
}

fn read(p: &PrimExpr, i: PrimExpr) -> PrimExpr {
    PrimExpr::load_ptr(p.clone(), i, DType::U8)
}

fn text_function(pool: &mut Pool, prefix: &str, abi: AbiLayout) -> FlatFunc {
    let (call, nth) = (Var::new("call", DType::HANDLE), Var::new("nth", DType::I64));
    let (text, count) = (Var::new("text", DType::HANDLE), Var::new("count", DType::I64));
    let mut b = Builder::new(pool, abi, call.expr());
    let size = MESSAGE_BYTES as i64;
    let given = address_of(call.expr()).ne(int(0));
    b.if_then(given, |b| {
        let message = b.bind("message", call.expr().ptr_add(int(abi.call_message)));
        let before = b.stack("before", size as u32, 1);
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
            b.for_range("i", count.expr(), |b, i| put(b, read(&text.expr(), i)));
            b.for_range("i", int(size) - place.expr() - 2, |b, i| put(b, read(&before, place.expr() + 2 + i)));
            b.push(FlatStmt::Store { ptr: message.clone(), offset: to.expr(), value: byte(0) });
        });
    });
    b.finish(name(prefix, ""), vec![call, nth, text, count], None, Linkage::Local)
}

/// `void P__fill_list_T(P_call *, int64_t nth, const T *data, const int64_t *dims, int64_t rank)`: the elements with a list for
/// each axis, as many as the message has room for. A `{}` behind what is written keeps the place until the end.
fn list_function(pool: &mut Pool, prefix: &str, abi: AbiLayout, dtype: DType) -> FlatFunc {
    let (call, nth) = (Var::new("call", DType::HANDLE), Var::new("nth", DType::I64));
    let (data, dims, rank) =
        (Var::new("data", DType::HANDLE), Var::new("dims", DType::HANDLE), Var::new("rank", DType::I64));
    let mut b = Builder::new(pool, abi, call.expr());
    let put = |b: &mut Builder, text: &str| {
        let args = vec![call.expr(), nth.expr(), b.text(text), int(text.len() as i64)];
        b.push(FlatStmt::Call { callee: text_callee(prefix), args, result: None });
    };
    let dim = |k: PrimExpr| PrimExpr::load_ptr(dims.expr(), k, DType::I64);
    let count = b.local("count", int(1));
    b.for_range("k", rank.expr(), |b, k| b.assign(&count, count.expr() * dim(k)));
    let some = b.bind("some", count.expr().gt(int(0)));
    b.if_then(some.clone().not(), |b| put(b, "[]"));
    // An element takes three bytes or more.
    let most = int(MESSAGE_BYTES as i64 / 3);
    let rounds = b.bind("rounds", count.expr().lt(most.clone()).select(count.expr(), most));
    b.for_range("i", rounds, |b, i| {
        // Elements below the axis.
        let below = b.local("below", count.expr());
        b.for_range("k", rank.expr(), |b, k| {
            b.if_then(i.clone().trunc_mod(below.expr()).eq(int(0)), |b| put(b, "[{}"));
            let inner = b.bind("inner", below.expr().trunc_div(dim(k)));
            b.assign(&below, inner);
        });
        put(b, "{}{}");
        let value = PrimExpr::load_ptr(data.expr(), i.clone(), dtype);
        let value = b.bind("value", if dtype.is_int() { value.cast(DType::I64) } else { value });
        scalar(b, nth.expr(), &value);
        b.for_range("k", rank.expr(), |b, k| {
            let outer = b.bind("outer", below.expr() * dim(rank.expr() - 1 - k));
            b.assign(&below, outer);
            b.if_then((i.clone() + 1).trunc_mod(below.expr()).eq(int(0)), |b| put(b, "]{}"));
        });
        b.if_then((i + 1).lt(count.expr()), |b| put(b, ", {}"));
    });
    b.if_then(some, |b| put(b, ""));
    b.finish(name(prefix, &format!("_list_{dtype}")), vec![call, nth, data, dims, rank], None, Linkage::Local)
}

/// A text under way on the stack.
struct Text {
    at: PrimExpr,
    count: Var,
}

impl Text {
    fn new(b: &mut Builder) -> Text {
        let at = b.stack("text", TEXT as u32, 1);
        Text { at, count: b.local("count", int(0)) }
    }

    fn put(&self, b: &mut Builder, c: PrimExpr) {
        b.push(FlatStmt::Store { ptr: self.at.clone(), offset: self.count.expr(), value: c });
        b.assign(&self.count, self.count.expr() + 1);
    }

    fn puts(&self, b: &mut Builder, text: &str) {
        text.bytes().for_each(|c| self.put(b, byte(c)));
    }

    /// Gives it to the message.
    fn written(self, b: &mut Builder, prefix: &str, nth: &Var) {
        let args = vec![b.call.clone(), nth.expr(), self.at, self.count.expr()];
        b.push(FlatStmt::Call { callee: text_callee(prefix), args, result: None });
    }
}

/// The digits of a whole number that is not above 0, from the last one, and how many.
fn digits(b: &mut Builder, value: PrimExpr) -> (PrimExpr, Var) {
    let digits = b.stack("digits", 20, 1);
    let (rest, count) = (b.local("rest", value), b.local("places", int(0)));
    b.for_range("i", int(20), |b, i| {
        b.if_then(i.eq(int(0)).or(rest.expr().ne(int(0))), |b| {
            let tens = b.bind("tens", rest.expr().trunc_div(int(10)));
            let digit = (tens.clone() * 10 - rest.expr() + b'0' as i64).cast(DType::U8);
            b.push(FlatStmt::Store { ptr: digits.clone(), offset: count.expr(), value: digit });
            b.assign(&count, count.expr() + 1);
            b.assign(&rest, tens);
        });
    });
    (digits, count)
}

/// `void P__fill_int(P_call *, int64_t nth, int64_t value)`
fn int_function(pool: &mut Pool, prefix: &str, abi: AbiLayout) -> FlatFunc {
    let (call, nth, value) =
        (Var::new("call", DType::HANDLE), Var::new("nth", DType::I64), Var::new("value", DType::I64));
    let mut b = Builder::new(pool, abi, call.expr());
    let text = Text::new(&mut b);
    b.if_then(value.expr().lt(int(0)), |b| text.put(b, byte(b'-')));
    // Digits of a number below zero: the smallest has no positive one.
    let low = value.expr().lt(int(0)).select(value.expr(), int(0) - value.expr());
    let (digits, count) = digits(&mut b, low);
    b.for_range("i", count.expr(), |b, i| text.put(b, read(&digits, count.expr() - 1 - i)));
    text.written(&mut b, prefix, &nth);
    b.finish(name(prefix, "_int"), vec![call, nth, value], None, Linkage::Local)
}

/// `void P__fill_float(P_call *, int64_t nth, double value, double coarse)`: the fewest digits that round to the value.
fn float_function(pool: &mut Pool, prefix: &str, abi: AbiLayout) -> FlatFunc {
    let (call, nth) = (Var::new("call", DType::HANDLE), Var::new("nth", DType::I64));
    let (value, coarse) = (Var::new("value", DType::F64), Var::new("coarse", DType::F64));
    let mut b = Builder::new(pool, abi, call.expr());
    let number = |v: f64| PrimExpr::float(DType::F64, v);
    let op = PrimExpr::raw_binary;
    let text = Text::new(&mut b);
    let (minus, v) = (b.local("minus", int(0)), b.local("v", value.expr()));
    b.if_then(op(BinOp::Lt, value.expr(), number(0.0)), |b| b.assign(&minus, int(1)));
    b.if_then(op(BinOp::Eq, value.expr(), number(0.0)), |b| {
        let turned = op(BinOp::Div, number(1.0), value.expr());
        b.if_then(op(BinOp::Lt, turned, number(0.0)), |b| b.assign(&minus, int(1)));
    });
    b.if_then(minus.expr().ne(int(0)), |b| {
        text.put(b, byte(b'-'));
        b.assign(&v, op(BinOp::Sub, number(0.0), value.expr()));
    });
    // 0: no number, 1: zero, 2: a finite number, 3: infinity.
    let kind = b.local("kind", int(0));
    b.if_then(op(BinOp::Ge, v.expr(), number(0.0)), |b| b.assign(&kind, int(1)));
    b.if_then(op(BinOp::Gt, v.expr(), number(0.0)), |b| b.assign(&kind, int(2)));
    b.if_then(op(BinOp::Gt, v.expr(), number(f64::MAX)), |b| b.assign(&kind, int(3)));
    b.if_then(kind.expr().eq(int(0)), |b| text.puts(b, "nan"));
    b.if_then(kind.expr().eq(int(1)), |b| text.puts(b, "0.0"));
    b.if_then(kind.expr().eq(int(3)), |b| text.puts(b, "inf"));
    b.if_then(kind.expr().eq(int(2)), |b| {
        let two = b.local("two", number(1.0));
        b.for_range("i", int(TWOS), |b, _| {
            let more = b.bind("more", op(BinOp::Mul, two.expr(), number(2.0)));
            let less = b.bind("less", op(BinOp::Mul, two.expr(), number(0.5)));
            let high = b.bind("high", op(BinOp::Gt, two.expr(), v.expr()));
            let low = b.bind("low", op(BinOp::Ge, v.expr(), more.clone()));
            b.if_then(high, |b| b.assign(&two, less));
            b.if_then(low, |b| b.assign(&two, more));
        });
        let far = b.bind("far", op(BinOp::Mul, two.expr(), coarse.expr()));
        let half = b.bind("half", op(BinOp::Mul, far.clone(), number(0.5)));
        // The power of ten of its first digit.
        let (power, p) = (b.local("power", int(0)), b.local("p", number(1.0)));
        let times = |v: &Var| op(BinOp::Mul, v.expr(), number(10.0));
        let small = b.bind("small", op(BinOp::Lt, v.expr(), number(1.0)));
        b.for_range("i", int(POWERS), |b, _| {
            let larger = op(BinOp::Ge, v.expr(), times(&p));
            let smaller = op(BinOp::Lt, op(BinOp::Mul, v.expr(), p.expr()), number(1.0));
            b.if_then(small.clone().not().and(larger), |b| {
                b.assign(&p, times(&p));
                b.assign(&power, power.expr() + 1);
            });
            b.if_then(small.clone().and(smaller), |b| {
                b.assign(&p, times(&p));
                b.assign(&power, power.expr() - 1);
            });
        });
        // More and more digits, as a whole number times `10^-scale`.
        let (found, whole, scale) = (b.local("found", int(0)), b.local("whole", int(0)), b.local("scale", int(0)));
        b.for_range("n", int(DIGITS), |b, n| {
            b.if_then(found.expr().eq(int(0)), |b| {
                b.assign(&scale, n - power.expr());
                let up = b.bind("up", scale.expr().ge(int(0)));
                let size = b.bind("size", up.clone().select(scale.expr(), int(0) - scale.expr()));
                // In two factors: 10^309 is no number.
                let (q, r) = (b.local("q", number(1.0)), b.local("r", number(1.0)));
                b.for_range("i", size, |b, i| {
                    let first = b.bind("first", i.lt(int(300)));
                    b.if_then(first.clone(), |b| b.assign(&q, times(&q)));
                    b.if_then(first.not(), |b| b.assign(&r, times(&r)));
                });
                let scaled = b.local("scaled", op(BinOp::Div, v.expr(), q.expr()));
                b.if_then(up.clone(), |b| {
                    b.assign(&scaled, op(BinOp::Mul, op(BinOp::Mul, v.expr(), q.expr()), r.expr()));
                });
                b.assign(&whole, op(BinOp::Add, scaled.expr(), number(0.5)).cast(DType::I64));
                let digits = b.bind("digits", whole.expr().cast(DType::F64));
                let back = b.local("back", op(BinOp::Mul, digits.clone(), q.expr()));
                b.if_then(up, |b| b.assign(&back, op(BinOp::Div, op(BinOp::Div, digits, q.expr()), r.expr())));
                // Below the value's power of two the bits are half as large.
                let below = op(BinOp::Lt, back.expr(), two.expr());
                let near = b.bind("near", below.select(half.clone(), far.clone()));
                let sum = b.bind("sum", op(BinOp::Add, back.expr(), near.clone()));
                let rounded = op(BinOp::Sub, sum, near);
                b.if_then(op(BinOp::Eq, rounded, v.expr()), |b| b.assign(&found, int(1)));
            });
        });
        b.for_range("i", int(DIGITS), |b, _| {
            let tens = b.bind("tens", whole.expr().trunc_div(int(10)));
            b.if_then((tens.clone() * 10).eq(whole.expr()).and(whole.expr().gt(int(9))), |b| {
                b.assign(&whole, tens);
                b.assign(&scale, scale.expr() - 1);
            });
        });
        let (digits, count) = digits(b, int(0) - whole.expr());
        let first = b.bind("exponent", count.expr() - 1 - scale.expr());
        let digit = |i: PrimExpr| read(&digits, count.expr() - 1 - i);
        let plain = b.bind("plain", first.clone().ge(int(-4)).and(first.clone().lt(int(PLAIN))));
        let below = b.bind("below", plain.clone().and(first.clone().lt(int(0))));
        b.if_then(below.clone(), |b| {
            text.puts(b, "0.");
            b.for_range("i", int(-1) - first.clone(), |b, _| text.put(b, byte(b'0')));
            b.for_range("i", count.expr(), |b, i| text.put(b, digit(i)));
        });
        b.if_then(plain.clone().and(below.not()), |b| {
            let more = b.bind("more", count.expr().gt(first.clone() + 1));
            let end = b.bind("end", more.select(count.expr(), first.clone() + 2));
            b.for_range("i", end, |b, i| {
                b.if_then(i.clone().eq(first.clone() + 1), |b| text.put(b, byte(b'.')));
                let there = b.bind("there", i.clone().lt(count.expr()));
                b.if_then(there.clone(), |b| text.put(b, digit(i)));
                b.if_then(there.not(), |b| text.put(b, byte(b'0')));
            });
        });
        b.if_then(plain.not(), |b| {
            b.for_range("i", count.expr(), |b, i| {
                b.if_then(i.clone().eq(int(1)), |b| text.put(b, byte(b'.')));
                text.put(b, digit(i));
            });
            text.put(b, byte(b'e'));
            let minus = b.bind("down", first.clone().lt(int(0)));
            text.put(b, minus.clone().select(byte(b'-'), byte(b'+')));
            let size = b.bind("high", minus.select(int(0) - first.clone(), first.clone()));
            let one = |e: PrimExpr| (e + b'0' as i64).cast(DType::U8);
            b.if_then(size.clone().ge(int(100)), |b| text.put(b, one(size.clone().trunc_div(int(100)))));
            text.put(b, one(size.clone().trunc_div(int(10)).trunc_mod(int(10))));
            text.put(b, one(size.trunc_mod(int(10))));
        });
    });
    text.written(&mut b, prefix, &nth);
    b.finish(name(prefix, "_float"), vec![call, nth, value, coarse], None, Linkage::Local)
}
