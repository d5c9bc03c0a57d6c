//! Values of single points: a tree of scalar operations is one of elementwise operators.

use super::{loaded, Raise, Space};
use relax_ir::attrs::AttrValue;
use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::relax::{Expr, ExprKind};
use relax_ir::{Constant, DType, PrimExpr};
use std::collections::HashMap;

impl Raise<'_> {
    /// A tensor that broadcasts in the dims of `space`. `made`: what has been computed for the same points.
    pub(super) fn value(&mut self, e: &PrimExpr, space: &Space, made: &mut HashMap<PrimExpr, Expr>) -> Option<Expr> {
        if let Some(x) = made.get(e) {
            return Some(x.clone());
        }
        let x = self.new_value(e, space, made)?;
        if self.info(&x)?.dtype != Some(e.dtype()) {
            return None;
        }
        made.insert(e.clone(), x.clone());
        Some(x)
    }

    fn new_value(&mut self, e: &PrimExpr, space: &Space, made: &mut HashMap<PrimExpr, Expr>) -> Option<Expr> {
        match e.kind() {
            PrimKind::BufferLoad(b, indices) => self.view(b, indices, space),
            PrimKind::Int(v) => Some(self.number(Constant::scalar_i64(e.dtype(), *v))),
            PrimKind::Float(v) => Some(self.number(Constant::scalar_f64(e.dtype(), v.0))),
            PrimKind::Cast(x) => {
                let x = self.value(x, space, made)?;
                self.op("astype", vec![x], &[("dtype", AttrValue::DType(e.dtype()))])
            }
            PrimKind::Binary(op, a, b) => {
                if let Some(mean) = self.mean(*op, a, b, space) {
                    return Some(mean);
                }
                let (x, y) = (self.value(a, space, made)?, self.value(b, space, made)?);
                self.op(binary(*op, a.dtype())?, vec![x, y], &[])
            }
            PrimKind::Not(x) => {
                let x = self.value(x, space, made)?;
                self.op("logical_not", vec![x], &[])
            }
            PrimKind::Neg(x) => {
                let x = self.value(x, space, made)?;
                self.op("negative", vec![x], &[])
            }
            // Loads are of elements that are there, whatever the condition says.
            PrimKind::Select(c, a, b) | PrimKind::IfThenElse(c, a, b) => {
                let c = self.value(c, space, made)?;
                let (a, b) = (self.value(a, space, made)?, self.value(b, space, made)?);
                self.op("where", vec![c, a, b], &[])
            }
            PrimKind::Call(f, args) => {
                let name = intrinsic(*f)?;
                let args = args.iter().map(|a| self.value(a, space, made)).collect::<Option<Vec<Expr>>>()?;
                self.op(name, args, &[])
            }
            _ => None,
        }
    }

    pub(super) fn number(&self, c: Constant) -> Expr {
        Expr::new(ExprKind::Constant(c), self.w.span())
    }

    /// A sum that is divided by the number of its terms.
    fn mean(&mut self, op: BinOp, sum: &PrimExpr, count: &PrimExpr, space: &Space) -> Option<Expr> {
        let (b, indices) = loaded(sum).filter(|_| op == BinOp::Div)?;
        let sum = self.values.get(b)?.sum.clone()?;
        if count.as_float()? != sum.count as f64 {
            return None;
        }
        let keep = [("axis", super::ints(&sum.axes)), ("keepdims", AttrValue::Bool(true))];
        let mean = self.op("mean", vec![sum.of], &keep)?;
        let dims = self.info(&mean)?.known_dims()?.to_vec();
        let whole = self.reshaped(mean.clone(), self.shape(b))?;
        // Its buffer holds the mean for this moment.
        let value = super::Value { expr: Some(whole), kept: Some((mean, dims)), ..super::Value::default() };
        let old = self.values.insert(b.clone(), value);
        let x = self.view(b, indices, space);
        self.values.insert(b.clone(), old?);
        x
    }
}

fn binary(op: BinOp, d: DType) -> Option<&'static str> {
    Some(match op {
        BinOp::Add => "add",
        BinOp::Sub => "subtract",
        BinOp::Mul => "multiply",
        BinOp::Div if d.is_float() => "divide",
        BinOp::FloorDiv if d.is_int() => "floor_divide",
        BinOp::FloorMod if d.is_int() => "floor_mod",
        BinOp::Max => "maximum",
        BinOp::Min => "minimum",
        BinOp::Eq => "equal",
        BinOp::Ne => "not_equal",
        BinOp::Lt => "less",
        BinOp::Le => "less_equal",
        BinOp::Gt => "greater",
        BinOp::Ge => "greater_equal",
        BinOp::And => "logical_and",
        BinOp::Or => "logical_or",
        BinOp::BitAnd => "bitwise_and",
        BinOp::BitOr => "bitwise_or",
        BinOp::BitXor => "bitwise_xor",
        _ => return None,
    })
}

fn intrinsic(f: Intrin) -> Option<&'static str> {
    Some(match f {
        Intrin::Pow => "power",
        Intrin::Fabs => "abs",
        Intrin::NearbyInt => "round",
        Intrin::Exp
        | Intrin::Log
        | Intrin::Sqrt
        | Intrin::Rsqrt
        | Intrin::Sin
        | Intrin::Cos
        | Intrin::Tan
        | Intrin::Asin
        | Intrin::Acos
        | Intrin::Atan
        | Intrin::Sinh
        | Intrin::Cosh
        | Intrin::Tanh
        | Intrin::Asinh
        | Intrin::Acosh
        | Intrin::Atanh
        | Intrin::Sigmoid
        | Intrin::Erf
        | Intrin::Floor
        | Intrin::Ceil
        | Intrin::Trunc
        | Intrin::Round
        | Intrin::Abs
        | Intrin::IsNan
        | Intrin::IsInf
        | Intrin::IsFinite => f.name(),
        _ => return None,
    })
}
