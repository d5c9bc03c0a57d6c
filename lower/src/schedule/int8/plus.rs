//! A sum with another tensor in the pass that makes a convolution's bytes.

use relax_ir::prim::Intrin;
use relax_ir::{DType, PrimExpr};

/// The bytes of a sum: `a * of_a + (b * of_b + rest)` of the bytes `a` and `b` of its terms, rounded and limited to 0..255.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plus {
    pub of_a: f32,
    pub of_b: f32,
    pub rest: f32,
    /// The zero point of the sum.
    pub zero: i64,
}

impl Plus {
    pub(super) fn ints(&self) -> [i64; 4] {
        let bits = |v: f32| v.to_bits() as i64;
        [bits(self.of_a), bits(self.of_b), bits(self.rest), self.zero]
    }

    pub(super) fn from(v: &[i64]) -> Option<Plus> {
        let [of_a, of_b, rest, zero] = *v else { return None };
        let float = |bits: i64| Some(f32::from_bits(u32::try_from(bits).ok()?));
        Some(Plus { of_a: float(of_a)?, of_b: float(of_b)?, rest: float(rest)?, zero })
    }

    /// The sum in int32, not limited to 0..255 yet, of bytes that are floats already and others as they are.
    pub(super) fn unlimited(&self, a: PrimExpr, b: PrimExpr, lanes: u16) -> PrimExpr {
        self.float(a, b, lanes).call1(Intrin::NearbyInt).cast(DType::I32.with_lanes(lanes))
    }

    fn float(&self, a: PrimExpr, b: PrimExpr, lanes: u16) -> PrimExpr {
        let f = |v: f32| PrimExpr::f32(v).broadcast(lanes);
        let b = b.cast(DType::I32.with_lanes(lanes)).cast(DType::F32.with_lanes(lanes));
        let inner = PrimExpr::call(Intrin::Fma, [b, f(self.of_b), f(self.rest)]);
        PrimExpr::call(Intrin::Fma, [a, f(self.of_a), inner])
    }

    /// The byte of the sum, of two bytes in int32 or as they are.
    pub fn byte(&self, a: PrimExpr, b: PrimExpr) -> PrimExpr {
        let v = self.float(a.cast(DType::I32).cast(DType::F32), b, 1);
        let v = v.max(PrimExpr::f32(0.0)).min(PrimExpr::f32(255.0));
        v.call1(Intrin::NearbyInt).cast(DType::I32).cast(DType::U8)
    }
}
