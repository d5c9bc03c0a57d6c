//! Values of single points: a tree of scalar operations is one of elementwise operators.

use super::{loaded, Raise, Space, Sum};
use relax_ir::attrs::AttrValue;
use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::relax::{Expr, ExprKind};
use relax_ir::tir::Buffer;
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
                // A bool as a number that is more than zero.
                if let (BinOp::Lt, PrimKind::Int(0), PrimKind::Cast(c)) = (op, a.kind(), b.kind()) {
                    if c.dtype().is_bool() {
                        return self.value(c, space, made);
                    }
                }
                if let Some(moment) = self.mean(*op, a, b, space).or_else(|| self.variance(*op, a, b, space)) {
                    return Some(moment);
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
        let (b, indices, sum) = self.averaged(op, sum, count)?;
        self.moment("mean", &sum, b, indices, space)
    }

    /// The mean of squares less the square of the mean. Where sums are strict it stays that.
    fn variance(&mut self, op: BinOp, squares: &PrimExpr, square: &PrimExpr, space: &Space) -> Option<Expr> {
        let (PrimKind::Binary(a, x, n), PrimKind::Binary(BinOp::Mul, m, same)) = (squares.kind(), square.kind()) else {
            return None;
        };
        let PrimKind::Binary(b, y, k) = m.kind() else { return None };
        let (squares, mean) = (self.averaged(*a, x, n)?.2, self.averaged(*b, y, k)?);
        let product = self.w.value(&squares.of).and_then(Expr::as_call).filter(|c| c.is_op("multiply"))?;
        let of_same = product.args.iter().all(|x| *x == mean.2.of) && squares.axes == mean.2.axes;
        if op != BinOp::Sub || m != same || !of_same || self.strict {
            return None;
        }
        self.moment("variance", &mean.2, mean.0, mean.1, space)
    }

    /// The load of such a sum, and of what.
    fn averaged<'e>(
        &self,
        op: BinOp,
        sum: &'e PrimExpr,
        count: &PrimExpr,
    ) -> Option<(&'e Buffer, &'e [PrimExpr], Sum)> {
        let (b, indices) = loaded(sum).filter(|_| op == BinOp::Div)?;
        let sum = self.values.get(b)?.sum.clone()?;
        (count.as_float()? == sum.count as f64).then_some((b, indices, sum))
    }

    /// `name` of what is summed in `b`, in the place of an element of it.
    fn moment(&mut self, name: &str, sum: &Sum, b: &Buffer, indices: &[PrimExpr], space: &Space) -> Option<Expr> {
        let keep = [("axis", super::ints(&sum.axes)), ("keepdims", AttrValue::Bool(true))];
        let kept = self.op(name, vec![sum.of.clone()], &keep)?;
        let dims = self.info(&kept)?.known_dims()?.to_vec();
        let whole = self.reshaped(kept.clone(), self.shape(b))?;
        // Its buffer holds it for this moment.
        let value = super::Value { expr: Some(whole), kept: Some((kept, dims)), ..super::Value::default() };
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
