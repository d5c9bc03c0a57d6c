//! The value of an integer expression under values of its variables.

use super::{floor_div, floor_mod, BinOp, PrimExpr, PrimKind, Var};
use std::collections::HashMap;

impl PrimExpr {
    /// The value of a scalar integer or bool expression (bools are 0 and 1); `None` where a variable has no value,
    /// something divides by zero or leaves int64, or the expression is no arithmetic (a load, a call).
    pub fn evaluate(&self, values: &HashMap<Var, i64>) -> Option<i64> {
        Some(match self.kind() {
            PrimKind::Int(v) => *v,
            PrimKind::Var(v) => *values.get(v)?,
            PrimKind::Cast(a) => a.evaluate(values)?,
            PrimKind::Neg(a) => a.evaluate(values)?.checked_neg()?,
            PrimKind::Not(a) => (a.evaluate(values)? == 0) as i64,
            PrimKind::Select(c, a, b) | PrimKind::IfThenElse(c, a, b) => {
                (if c.evaluate(values)? != 0 { a } else { b }).evaluate(values)?
            }
            PrimKind::Binary(op, a, b) => {
                let (x, y) = (a.evaluate(values)?, b.evaluate(values)?);
                match op {
                    BinOp::Add => x.checked_add(y)?,
                    BinOp::Sub => x.checked_sub(y)?,
                    BinOp::Mul => x.checked_mul(y)?,
                    BinOp::FloorDiv => floor_div(x, y)?,
                    BinOp::FloorMod => floor_mod(x, y)?,
                    BinOp::TruncDiv | BinOp::Div => x.checked_div(y)?,
                    BinOp::TruncMod => x.checked_rem(y)?,
                    BinOp::Min => x.min(y),
                    BinOp::Max => x.max(y),
                    BinOp::Eq => (x == y) as i64,
                    BinOp::Ne => (x != y) as i64,
                    BinOp::Lt => (x < y) as i64,
                    BinOp::Le => (x <= y) as i64,
                    BinOp::Gt => (x > y) as i64,
                    BinOp::Ge => (x >= y) as i64,
                    BinOp::And => (x != 0 && y != 0) as i64,
                    BinOp::Or => (x != 0 || y != 0) as i64,
                    _ => return None,
                }
            }
            _ => return None,
        })
    }
}
