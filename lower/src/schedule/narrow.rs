//! Types that are stored in another form than they are computed in: floats of 16 bits and fewer are held in float32,
//! integers of fewer than 8 bits in int8 or uint8.

use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::{DType, PrimExpr, TypeCode, Var};

/// The type in which values of `d` are computed.
pub fn compute_type(d: DType) -> DType {
    match (d.code, d.bits) {
        (TypeCode::Float, 16) | (TypeCode::BFloat | TypeCode::Small(_), _) => DType::F32.with_lanes(d.lanes),
        _ => d.stored(),
    }
}

pub fn is_half(d: DType) -> bool {
    d.is_float() && d.bits <= 16
}

/// Each step of a sum of these is rounded or wrapped.
pub fn is_narrow(d: DType) -> bool {
    d.as_small().is_some() || d.bits < 8
}

/// What memory holds: floats of fewer than 16 bits are codes in uint8.
pub fn memory_type(d: DType) -> DType {
    match d.as_small() {
        Some(_) => DType::U8.with_lanes(d.lanes),
        None => d.stored(),
    }
}

/// What was loaded as [`memory_type`], in compute type.
pub fn loaded(load: PrimExpr, d: DType) -> PrimExpr {
    let lanes = load.dtype().lanes;
    match d.as_small() {
        Some(s) => s.decoded(load),
        None if is_half(d) => load.cast(compute_type(d).with_lanes(lanes)),
        None => wrapped(load, d),
    }
}

/// A value in compute type as [`memory_type`].
pub fn to_store(value: PrimExpr, d: DType) -> PrimExpr {
    let lanes = value.dtype().lanes;
    match d.as_small() {
        Some(s) => s.encoded(value),
        None if is_half(d) => value.cast(d.with_lanes(lanes)),
        None => value,
    }
}

/// The lowest bits of an integer of fewer than 8, the sign in those above.
fn wrapped(v: PrimExpr, d: DType) -> PrimExpr {
    if !d.is_int() || d.bits >= 8 {
        return v;
    }
    let t = v.dtype();
    if d.is_uint() {
        return PrimExpr::binary(BinOp::BitAnd, v, PrimExpr::int(t, d.int_max()));
    }
    let by = PrimExpr::int(t, 8 - d.bits as i64);
    PrimExpr::binary(BinOp::Shr, PrimExpr::binary(BinOp::Shl, v, by.clone()), by)
}

/// float64 as float32, rounded to odd: rounding that again to fewer bits is rounding once.
fn odd(x: PrimExpr) -> PrimExpr {
    let lanes = x.dtype().lanes;
    let (float, int) = (DType::F32.with_lanes(lanes), DType::I32.with_lanes(lanes));
    let wide = Var::new("wide", x.dtype());
    let narrow = Var::new("narrow", float);
    let back = Var::new("back", x.dtype());
    let magnitude = |v: &Var| v.expr().call1(Intrin::Fabs);
    let one = PrimExpr::int(int, 1);
    let bits = narrow.expr().reinterpret(int);
    let down = magnitude(&back).gt(magnitude(&wide)).select(bits.clone() - one.clone(), bits.clone());
    let inexact = magnitude(&back).ne(magnitude(&wide)).and(wide.expr().eq(wide.expr()));
    let r = inexact.select(PrimExpr::binary(BinOp::BitOr, down, one), bits).reinterpret(float);
    let r = PrimExpr::let_in(back.clone(), narrow.expr().cast(x.dtype()), r);
    let r = PrimExpr::let_in(narrow, wide.expr().cast(float), r);
    PrimExpr::let_in(wide, x, r)
}

/// The first float32 that int32 does not hold.
const BEYOND: f64 = 2_147_483_648.0;

/// float32 as int32 where the processor makes the lowest int32 of what none holds: 0 for NaN, the nearest for the others.
pub fn limited(x: PrimExpr) -> PrimExpr {
    let (lanes, v) = (x.dtype().lanes, Var::new("whole", x.dtype()));
    let all = |e: PrimExpr| if lanes == 1 { e } else { e.broadcast(lanes) };
    let number = v.expr().eq(v.expr()).select(v.expr(), all(PrimExpr::f32(0.0)));
    let large = v.expr().ge(all(PrimExpr::f32(BEYOND as f32)));
    let r = large.select(all(PrimExpr::i32(i32::MAX)), number.cast(DType::I32.with_lanes(lanes)));
    PrimExpr::let_in(v, x, r)
}

/// Whether a value is limited by literals that int32 holds: no NaN, as the smaller and the larger of one and a number are
/// the number on the right.
pub fn is_limited(e: &PrimExpr) -> bool {
    if let PrimKind::Call(Intrin::Round | Intrin::NearbyInt, x) = e.kind() {
        return x.first().is_some_and(is_limited);
    }
    let limit = |e: &PrimExpr, op: BinOp| match e.kind() {
        PrimKind::Binary(o, x, c) if *o == op => Some((x.clone(), c.as_float()?.abs() < BEYOND)),
        _ => None,
    };
    [(BinOp::Min, BinOp::Max), (BinOp::Max, BinOp::Min)].into_iter().any(|(outer, inner)| {
        let Some((x, true)) = limit(e, outer) else { return false };
        matches!(limit(&x, inner), Some((_, true)))
    })
}

/// Rounds or wraps a compute-type value to `d`.
pub fn rounded(value: PrimExpr, d: DType) -> PrimExpr {
    if !is_half(d) {
        return wrapped(value, d);
    }
    let t = value.dtype();
    match d.as_small() {
        Some(s) => s.decoded(s.encoded(value)),
        None => value.cast(d.with_lanes(t.lanes)).cast(t),
    }
}

/// Conversion between compute types, by way of the storage type where that rounds.
pub fn convert(x: PrimExpr, to: DType) -> PrimExpr {
    let lanes = x.dtype().lanes;
    let ct = compute_type(to).with_lanes(lanes);
    if to.is_int() && to.bits < 8 {
        if x.dtype().is_float() {
            let limit = |v: i64| PrimExpr::int(ct, v);
            return x.cast(ct).max(limit(to.int_min())).min(limit(to.int_max()));
        }
        return wrapped(x.cast(ct), to);
    }
    if !is_half(to) {
        return x.cast(ct);
    }
    let x = if x.dtype().is_float() { x } else { x.cast(DType::F32.with_lanes(lanes)) };
    if to.as_small().is_some() {
        let x = if x.dtype().bits == 64 { odd(x) } else { x };
        return rounded(x, to);
    }
    x.cast(to.with_lanes(lanes)).cast(ct)
}
