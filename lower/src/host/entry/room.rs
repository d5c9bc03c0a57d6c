//! Sizes that no memory has: the bytes of a workspace are a formula in 64 bits over dims that a call chooses.
//!
//! As long as every dim is below a power of two, the formula cannot leave 64 bits: one comparison of all dims at once.
//! Beyond it the formula is evaluated once more, from above, with products that stop at [`LIMIT`].

use crate::host::build::{Builder, Failure};
use relax_ir::op::MOST_BYTES;
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::program::code;
use relax_ir::{DType, PrimExpr};

/// Where products stop; the sum of two such numbers still has 63 bits.
const LIMIT: i64 = 1 << 61;

/// Fails when `bytes` is more than any memory, before it is computed.
pub(super) fn check(b: &mut Builder, bytes: &PrimExpr) {
    if b.pool.leaves_out(code::MEMORY) {
        return;
    }
    beyond(b, bytes, |b, size| {
        let what = "workspace in bytes";
        b.fail(Failure { code: code::MEMORY, constraint: 0, wanted: size, got: PrimExpr::i64(0), what });
    });
}

/// Returns `bytes`, or the largest number of the type (unsigned) where that is more than any memory.
pub(super) fn ret_saturated(b: &mut Builder, bytes: &PrimExpr, dtype: DType, most: PrimExpr) {
    beyond(b, bytes, |b, _| b.ret(most.clone()));
    if dtype.bits == 32 && bytes.as_int().is_none() {
        let wide = bytes.clone().gt(PrimExpr::i64(i64::from(u32::MAX)));
        b.if_then(wide, |b| b.ret(most));
    }
    b.ret(bytes.clone().cast(dtype));
}

/// Runs `then` when `bytes` is more than any memory; it sees how many these are at most.
fn beyond(b: &mut Builder, bytes: &PrimExpr, then: impl FnOnce(&mut Builder, PrimExpr)) {
    let vars = bytes.vars();
    let Some(bits) = (1..=47).rev().find(|bits| most(bytes, 1 << bits) < LIMIT).filter(|_| !vars.is_empty()) else {
        return;
    };
    let all = vars.iter().map(|v| v.expr().cast(DType::I64));
    let all = all.reduce(|a, b| PrimExpr::binary(BinOp::BitOr, a, b)).unwrap_or_else(|| PrimExpr::i64(0));
    let large = PrimExpr::binary(BinOp::Shr, all, PrimExpr::i64(bits)).ne(PrimExpr::i64(0));
    b.if_then(large, |b| {
        let size = above(b, bytes);
        let size = b.bind("size", size);
        b.if_then(size.clone().gt(PrimExpr::i64(MOST_BYTES)), |b| then(b, size));
    });
}

/// The operands of an operation that counts from above: what makes it larger.
fn parts(e: &PrimExpr) -> Option<(BinOp, &PrimExpr, &PrimExpr)> {
    match e.kind() {
        PrimKind::Binary(op, x, y) => Some((*op, x, y)),
        PrimKind::Select(_, x, y) | PrimKind::IfThenElse(_, x, y) => Some((BinOp::Max, x, y)),
        _ => None,
    }
}

/// No value of `e` is larger while every variable is at most `at`.
fn most(e: &PrimExpr, at: i64) -> i64 {
    if let Some(v) = e.as_int() {
        return v.max(0);
    }
    if let PrimKind::Cast(x) = e.kind() {
        return most(x, at);
    }
    let Some((op, x, y)) = parts(e) else { return at };
    let (a, c) = (most(x, at), most(y, at));
    match op {
        BinOp::Add => a.saturating_add(c),
        BinOp::Mul => a.saturating_mul(c),
        BinOp::Max => a.max(c),
        BinOp::Min => a.min(c),
        BinOp::FloorDiv | BinOp::TruncDiv | BinOp::Div => a / y.as_int().filter(|k| *k > 0).unwrap_or(1),
        BinOp::FloorMod | BinOp::TruncMod => a.min(c),
        // What is taken away only makes it smaller, unless it is negative.
        BinOp::Sub => a.saturating_add(y.as_int().map_or(0, |k| k.saturating_neg().max(0))),
        _ => i64::MAX,
    }
}

/// As [`most`], when the call runs: at most [`LIMIT`].
fn above(b: &mut Builder, e: &PrimExpr) -> PrimExpr {
    let limit = PrimExpr::i64(LIMIT);
    if let Some(v) = e.as_int() {
        return PrimExpr::i64(v.clamp(0, LIMIT));
    }
    if let PrimKind::Cast(x) = e.kind() {
        return above(b, x);
    }
    let Some((op, x, y)) = parts(e) else {
        let v = e.clone().cast(DType::I64).max(PrimExpr::i64(0)).min(limit);
        return b.bind("dim", v);
    };
    let (p, q) = (above(b, x), above(b, y));
    let out = match op {
        BinOp::Add => (p + q).min(limit),
        BinOp::Mul => {
            let least = p.clone().max(PrimExpr::i64(1));
            q.clone().gt(limit.clone().floor_div(least)).if_then_else(limit, p * q)
        }
        BinOp::Max => p.max(q),
        BinOp::Min | BinOp::FloorMod | BinOp::TruncMod => p.min(q),
        BinOp::FloorDiv | BinOp::TruncDiv | BinOp::Div => match y.as_int().filter(|k| *k > 0) {
            Some(k) => p.floor_div(PrimExpr::i64(k)),
            None => p,
        },
        BinOp::Sub => match y.as_int().filter(|k| *k < 0) {
            Some(k) => (p + PrimExpr::i64(k.saturating_neg().min(LIMIT))).min(limit),
            None => p,
        },
        _ => limit,
    };
    b.bind("above", out)
}
