//! Conditions that no round of the loops around them meets. TVM drops such branches before it looks at their jumps.
//!
//! Source: TVM src/tirx/transform: `Simplify` comes before the loops are looked at.

use super::*;
use relax_ir::prim::BinOp;

impl Cx<'_> {
    /// Is the condition false whatever the loop variables are?
    pub(super) fn never(&self, cond: &PrimExpr) -> bool {
        match cond.kind() {
            PrimKind::Int(v) => *v == 0,
            PrimKind::Binary(BinOp::And, a, b) => self.never(a) || self.never(b),
            PrimKind::Binary(BinOp::Or, a, b) => self.never(a) && self.never(b),
            PrimKind::Binary(op, a, b) => {
                let (Some((a0, a1)), Some((b0, b1))) = (self.between(a), self.between(b)) else { return false };
                match op {
                    BinOp::Lt => a0 >= b1,
                    BinOp::Le => a0 > b1,
                    BinOp::Gt => a1 <= b0,
                    BinOp::Ge => a1 < b0,
                    BinOp::Eq => a1 < b0 || b1 < a0,
                    _ => false,
                }
            }
            _ => false,
        }
    }

    /// The least and the greatest value of a sum or product of numbers and loop variables, where it fits 32 bits.
    fn between(&self, e: &PrimExpr) -> Option<(i64, i64)> {
        let (least, most) = match e.kind() {
            PrimKind::Int(v) => (*v, *v),
            PrimKind::Var(v) => {
                let (min, extent) = self.names.loops.get(&v.id())?;
                let (min, extent) = (min.as_int()?, extent.as_int().filter(|n| *n > 0)?);
                (min, min.checked_add(extent - 1)?)
            }
            PrimKind::Cast(a) if e.dtype().is_signed() && a.dtype().is_signed() => self.between(a)?,
            PrimKind::Binary(op, a, b) => {
                let ((a0, a1), (b0, b1)) = (self.between(a)?, self.between(b)?);
                match op {
                    BinOp::Add => (a0 + b0, a1 + b1),
                    BinOp::Sub => (a0 - b1, a1 - b0),
                    BinOp::Mul => {
                        let all = [a0 * b0, a0 * b1, a1 * b0, a1 * b1];
                        (*all.iter().min()?, *all.iter().max()?)
                    }
                    _ => return None,
                }
            }
            _ => return None,
        };
        let fits = |v: i64| i32::try_from(v).is_ok();
        (fits(least) && fits(most)).then_some((least, most))
    }
}
