//! Sums of two quantised tensors without a division.
//!
//! ONNX rounds `((a - za) * sa + (b - zb) * sb) / sy`, where `a` and `b` are bytes: 65,536 cases. One linear form gives the
//! same bytes in each of them, for nearly all scales, when its coefficients are chosen a few units in the last place from
//! their exact values; that it does is tried out while compiling, with and without fused multiply-adds.

use super::kernels::{real, rounded};
use super::{Scale, Value};
use crate::schedule::int8::Plus;
use relax_ir::tir::{KernelBuilder, PrimFunc};
use relax_ir::{DType, PrimExpr};

/// A sum of tensors with equal borders: those of the terms give that of the sum.
pub(super) fn sum(value: &Value, a: &Value, b: &Value) -> PrimFunc {
    let mut k = KernelBuilder::new("qadd");
    let shape = value.shape();
    let (x, y) = (k.input("a", &shape, DType::U8), k.input("b", &shape, DType::U8));
    let linear = linear(&a.scale, &b.scale, &value.scale);
    let z = k.compute("y", &shape, DType::U8, |i| match linear {
        Some(p) => p.byte(x.at(i), y.at(i)),
        None => {
            let total = real(x.at(i), &a.scale) + real(y.at(i), &b.scale);
            rounded(total / PrimExpr::f32(value.scale.scale), &value.scale)
        }
    });
    k.finish(&[z])
}

/// The bytes that ONNX defines.
fn defined(a: u8, b: u8, of: [&Scale; 3]) -> u8 {
    let real = |v: u8, s: &Scale| (v as i64 - s.zero) as f32 * s.scale;
    let y = (real(a, of[0]) + real(b, of[1])) / of[2].scale;
    let y = y.clamp(-of[2].zero as f32, (255 - of[2].zero) as f32);
    (y.round_ties_even() as i64 + of[2].zero) as u8
}

/// The linear form that gives the defined bytes in all cases, if one is found.
pub(super) fn linear(a: &Scale, b: &Scale, y: &Scale) -> Option<Plus> {
    let (of_a, of_b) = (a.scale as f64 / y.scale as f64, b.scale as f64 / y.scale as f64);
    let rest = y.zero as f64 - a.zero as f64 * of_a - b.zero as f64 * of_b;
    if ![of_a, of_b, rest].iter().all(|v| v.is_finite() && v.abs() < 1e6) {
        return None;
    }
    let cases = || (0..=255u8).flat_map(|a| (0..=255u8).map(move |b| (a, b)));
    // Where the result is next to a half, which is where forms differ.
    let near: Vec<(u8, u8, u8)> = cases()
        .filter(|(a, b)| {
            let v = *a as f64 * of_a + *b as f64 * of_b + rest;
            (-1.0..256.0).contains(&v) && ((v - v.floor()) - 0.5).abs() < 1e-3
        })
        .map(|(p, q)| (p, q, defined(p, q, [a, b, y])))
        .collect();
    let moved = |v: f64, by: i32| f32::from_bits(((v as f32).to_bits() as i32 + by) as u32);
    let steps = |most: i32| (0..=most).flat_map(|s| if s == 0 { vec![0] } else { vec![s, -s] });
    let forms = steps(3).flat_map(|r| steps(3).flat_map(move |p| steps(3).map(move |q| (p, q, r))));
    forms
        .map(|(p, q, r)| Plus { of_a: moved(of_a, p), of_b: moved(of_b, q), rest: moved(rest, r), zero: y.zero })
        .filter(|l| near.iter().all(|(p, q, y)| gives(l, *p, *q, *y)))
        .find(|l| cases().all(|(p, q)| gives(l, p, q, defined(p, q, [a, b, y]))))
}

/// Whether the result is `y`, with fused multiply-adds and without.
fn gives(p: &Plus, a: u8, b: u8, y: u8) -> bool {
    let (a, b) = (a as f32, b as f32);
    let (plain, fused) = (b * p.of_b + p.rest, b.mul_add(p.of_b, p.rest));
    [a * p.of_a + plain, a.mul_add(p.of_a, fused)]
        .iter()
        .all(|v| v.clamp(0.0, 255.0).round_ties_even() as i64 == y as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(scale: f32, zero: i64) -> Scale {
        Scale { scale, zero, dtype: DType::U8 }
    }

    /// ONNX QuantizeLinear: "round to nearest, ties to even", of `x / y_scale`.
    #[test]
    fn linear_forms_give_what_the_division_gives() {
        let mut found = 0;
        let mut seed = 7u64;
        let mut next = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 40) as f32 / (1u64 << 24) as f32
        };
        for _ in 0..40 {
            let (a, b) = (scale(0.005 + 0.1 * next(), (255.0 * next()) as i64), scale(0.005 + 0.1 * next(), 0));
            let y = scale((a.scale + b.scale) * (0.3 + next()), (255.0 * next()) as i64);
            let Some(l) = linear(&a, &b, &y) else { continue };
            found += 1;
            for (p, q) in (0..=255u8).flat_map(|p| (0..=255u8).map(move |q| (p, q))) {
                assert!(gives(&l, p, q, defined(p, q, [&a, &b, &y])), "{l:?} of {p} and {q}");
            }
        }
        assert!(found >= 36, "{found} of 40 sums have a linear form");
    }

    /// Sums that lie on halves, which round to even.
    #[test]
    fn halves_round_to_even() {
        let (a, b, y) = (scale(0.5, 0), scale(0.5, 3), scale(1.0, 10));
        assert_eq!([defined(1, 3, [&a, &b, &y]), defined(3, 3, [&a, &b, &y])], [10, 12]);
        let l = linear(&a, &b, &y);
        assert!(l.is_some_and(|l| gives(&l, 1, 3, 10) && gives(&l, 3, 3, 12)));
    }
}
