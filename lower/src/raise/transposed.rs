//! Transposed convolutions, which TVM writes as convolutions of what it makes before: zeros between the elements of the data and around
//! them, and weights with inputs and outputs exchanged and windows turned round.

use super::{ints, loaded, Raise, Space, Value};
use crate::schedule::poly::Poly;
use crate::schedule::stage::Out;
use relax_ir::attrs::AttrValue;
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::relax::Expr;
use relax_ir::tir::Buffer;
use relax_ir::PrimExpr;

/// Elements with zeros between them and around them, by rows, columns and so on.
#[derive(Clone)]
pub(super) struct Spread {
    of: Expr,
    /// From one element to the next.
    steps: Vec<i64>,
    /// Before and after each axis.
    pub(super) widths: Vec<i64>,
}

impl Raise<'_> {
    /// `if every i % step is 0 then x[i // step] else 0`, for all dims behind the second.
    pub(super) fn spread(
        &mut self,
        cond: &PrimExpr,
        x: &PrimExpr,
        zero: &PrimExpr,
        out: &Out,
        space: &Space,
    ) -> Option<Value> {
        let (b, indices) = loaded(x)?;
        if zero.as_float() != Some(0.0) || indices.len() != space.len() || space.len() < 3 {
            return None;
        }
        let mut steps = vec![1; space.len()];
        let mut all = vec![];
        super::copies::conjuncts(cond, &mut all);
        for c in all {
            let PrimKind::Binary(BinOp::Eq, rest, none) = c.kind() else { return None };
            let PrimKind::Binary(BinOp::FloorMod, i, n) = rest.kind() else { return None };
            let p = Poly::of(i, &self.ranges);
            let d = space.iter().position(|a| a.as_ref().is_some_and(|a| p == Poly::var(&a.var)))?;
            if !none.is_int(0) || steps[d] != 1 {
                return None;
            }
            steps[d] = n.as_int().filter(|n| *n > 1)?;
        }
        for (d, (i, a)) in indices.iter().zip(space).enumerate() {
            let wanted = match a {
                Some(a) => a.var.expr().floor_div(steps[d]),
                None => PrimExpr::i64(0),
            };
            let p = |e: &PrimExpr| Poly::of(e, &self.ranges);
            let (size, total) = (b.shape[d].as_int()?, out.buffer.shape[d].as_int()?);
            if !p(i).sub(&p(&wanted)).is_zero() || size < 1 || total != (size - 1) * steps[d] + 1 {
                return None;
            }
        }
        if steps[..2] != [1, 1] {
            return None;
        }
        let steps = steps[2..].to_vec();
        let spread = Spread { of: self.expr(b)?, widths: vec![0; 2 * steps.len()], steps };
        Some(Value { spread: Some(spread), ..Value::default() })
    }

    /// `x[i, o, n - 1 - y, ..]` for `[o, i, y, ..]`.
    pub(super) fn turned_weights(&mut self, b: &Buffer, indices: &[PrimExpr], space: &Space) -> Option<Value> {
        if space.len() < 3 || indices.len() != space.len() {
            return None;
        }
        for (d, i) in indices.iter().enumerate() {
            let axis = |d: usize| space[d].as_ref().map_or(Poly::default(), |a| Poly::var(&a.var));
            let wanted = match d {
                0 => axis(1),
                1 => axis(0),
                _ => Poly::constant(b.shape[d].as_int()? - 1).sub(&axis(d)),
            };
            if !Poly::of(i, &self.ranges).sub(&wanted).is_zero() {
                return None;
            }
        }
        let weight = self.expr(b)?;
        let mut order: Vec<i64> = (0..space.len() as i64).collect();
        order.swap(0, 1);
        let mut x = self.op("permute_dims", vec![weight.clone()], &[("axes", ints(&order))])?;
        for axis in 2..space.len() as i64 {
            x = self.op("flip", vec![x], &[("axis", AttrValue::Int(axis))])?;
        }
        Some(Value { expr: Some(x), weight: Some(weight), ..Value::default() })
    }

    /// The transposed convolution that a convolution with such data and weights is, its window of `size` with `dilation`.
    pub(super) fn transposed(
        &mut self,
        data: Spread,
        weight: Expr,
        size: &[i64],
        dilation: &[i64],
        wide: &AttrValue,
    ) -> Option<Expr> {
        let n = size.len();
        let (mut before, mut after, mut more) = (vec![], vec![], vec![]);
        for d in 0..n {
            let reach = dilation[d] * (size[d] - 1);
            before.push(reach - data.widths[2 * d]);
            let behind = reach - data.widths[2 * d + 1];
            after.push(behind.max(0));
            more.push((-behind).max(0));
        }
        if before.iter().any(|p| *p < 0) {
            return None;
        }
        let name = ["nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"][n - 1];
        let attrs = [
            ("strides", ints(&data.steps)),
            ("padding", ints(&[before, after].concat())),
            ("output_padding", ints(&more)),
            ("dilation", ints(dilation)),
            ("out_dtype", wide.clone()),
        ];
        self.op(name, vec![data.of, weight], &attrs)
    }
}
