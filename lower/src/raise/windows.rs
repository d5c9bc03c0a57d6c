//! Windows over rows and columns: convolutions and pooling.

use super::reductions::step;
use super::{ints, loaded, Raise, Space, Value, MOST_POINTS};
use crate::schedule::poly::Poly;
use crate::schedule::stage::{Acc, Axis, Out, Stage};
use relax_ir::attrs::AttrValue;
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::relax::Expr;
use relax_ir::tir::Buffer;
use relax_ir::{PrimExpr, Var};
use std::collections::HashMap;

/// A window, axis by axis.
#[derive(Clone)]
pub(super) struct Window {
    of: Expr,
    /// The sizes of what it goes over, without padding.
    dims: Vec<Option<i64>>,
    size: Vec<i64>,
    strides: Vec<i64>,
    dilation: Vec<i64>,
    /// Before each axis, then behind each.
    padding: Vec<i64>,
}

/// Steps of one axis: `stride * out + dilation * within`.
struct Steps {
    stride: i64,
    dilation: i64,
}

impl Raise<'_> {
    /// `nn.conv1d`, `nn.conv2d` or `nn.conv3d`, channels second.
    pub(super) fn convolution(
        &mut self,
        s: &Stage,
        x: (&Buffer, &[PrimExpr]),
        w: (&Buffer, &[PrimExpr]),
        space: &Space,
        wide: &AttrValue,
    ) -> Option<Expr> {
        let rank = space.len();
        if !(3..=5).contains(&rank) || x.1.len() != rank || w.1.len() != rank {
            return None;
        }
        let of = |e: &PrimExpr| Poly::of(e, &self.ranges).simplified(&self.ranges);
        let axis = |a: &Option<Axis>| a.as_ref().map_or(Poly::default(), |a| Poly::var(&a.var));
        // Weights: outputs, inputs of a group, the window.
        if of(&w.1[0]) != axis(&space[1]) || of(&x.1[0]) != axis(&space[0]) {
            return None;
        }
        let mut within: Vec<Option<Axis>> = vec![];
        for (i, n) in w.1[1..].iter().zip(&w.0.shape[1..]) {
            let p = of(i);
            if p.is_zero() && n.is_int(1) {
                within.push(None);
                continue;
            }
            let a = s.reduce.iter().find(|a| p == Poly::var(&a.var))?;
            if !self.equal(&a.extent, n) || within.iter().flatten().any(|b: &Axis| b.var == a.var) {
                return None;
            }
            within.push(Some(a.clone()));
        }
        if within.iter().flatten().count() != s.reduce.len() {
            return None;
        }
        let (outputs, own) = (w.0.shape[0].as_int()?, w.0.shape[1].as_int()?);
        let groups = match own {
            0 => return None,
            own => x.0.shape[1].as_int()? / own,
        };
        if groups < 1 || outputs < groups || outputs % groups != 0 {
            return None;
        }
        let mut channel = axis(&within[0]);
        if let Some(f) = space[1].as_ref().filter(|_| groups > 1) {
            let group = f.var.expr().floor_div(outputs / groups) * own;
            channel = channel.add(&Poly::of(&group, &self.ranges)).simplified(&self.ranges);
        }
        if !of(&x.1[1]).sub(&channel).is_zero() {
            return None;
        }
        let (mut strides, mut dilation, mut sizes) = (vec![], vec![], vec![]);
        for d in 2..rank {
            let size = w.0.shape[d].as_int()?;
            let steps = self.steps(&x.1[d], &space[d], &within[d - 1], &x.0.shape[d], size)?;
            sizes.push(size);
            strides.push(steps.stride);
            dilation.push(steps.dilation);
        }
        if let Some(spread) = self.values.get(x.0)?.spread.clone() {
            let weight = self.values.get(w.0)?.weight.clone()?;
            let plain = groups == 1 && strides.iter().all(|s| *s == 1);
            return plain.then(|| self.transposed(spread, weight, &sizes, &dilation, wide))?;
        }
        let name = ["nn.conv1d", "nn.conv2d", "nn.conv3d"][rank - 3];
        let (data, weight) = (self.expr(x.0)?, self.expr(w.0)?);
        let attrs = [
            ("strides", ints(&strides)),
            ("padding", ints(&vec![0; 2 * (rank - 2)])),
            ("dilation", ints(&dilation)),
            ("groups", AttrValue::Int(groups)),
            ("out_dtype", wide.clone()),
        ];
        self.op(name, vec![data, weight], &attrs)
    }

    /// How an index of a window of `size` goes over a dim of `length`.
    fn steps(
        &self,
        index: &PrimExpr,
        out: &Option<Axis>,
        within: &Option<Axis>,
        length: &PrimExpr,
        size: i64,
    ) -> Option<Steps> {
        let mut p = Poly::of(index, &self.ranges).simplified(&self.ranges);
        let mut take = |a: &Axis| -> Option<i64> {
            let (step, rest) = p.split(&a.var)?;
            p = rest;
            step.as_const().filter(|n| *n >= 1)
        };
        let dilation = match within {
            Some(a) => take(a)?,
            None => 1,
        };
        let stride = match out {
            Some(a) => take(a)?,
            // One place for the window, whatever is left behind it.
            None => length.as_int().map_or(1, |n| (n - dilation * (size - 1)).max(1)),
        };
        p.is_zero().then_some(Steps { stride, dilation })
    }

    /// Maxima of windows, and their sums, of which averages are made.
    pub(super) fn windowed(&mut self, s: &Stage, acc: &Acc, out: &Out, space: &Space) -> Option<Value> {
        let (op @ (BinOp::Max | BinOp::Add), term) = step(acc)? else { return None };
        let (b, indices) = loaded(term)?;
        let rank = space.len();
        if !(3..=5).contains(&rank) || indices.len() != rank || !out.buffer.dtype().is_float() {
            return None;
        }
        let of = |e: &PrimExpr| Poly::of(e, &self.ranges).simplified(&self.ranges);
        let axis = |a: &Option<Axis>| a.as_ref().map_or(Poly::default(), |a| Poly::var(&a.var));
        if of(&indices[0]) != axis(&space[0]) || of(&indices[1]) != axis(&space[1]) {
            return None;
        }
        let (mut size, mut strides, mut dilation, mut left) = (vec![], vec![], vec![], s.reduce.clone());
        let mut slides = false;
        for d in 2..rank {
            let p = of(&indices[d]);
            let within = left.iter().position(|a| p.uses(&a.var)).map(|i| left.remove(i));
            let n = within.as_ref().map_or(Some(1), Axis::len)?;
            let steps = self.steps(&indices[d], &space[d], &within, &b.shape[d], n)?;
            slides |= space[d].is_some() && within.is_some();
            size.push(n);
            strides.push(steps.stride);
            dilation.push(steps.dilation);
        }
        if !slides || !left.is_empty() {
            return None;
        }
        let value = self.values.get(b)?.clone();
        let neutral = if op == BinOp::Add { 0.0 } else { acc.init.as_float()? };
        let around = value.padded.filter(|p| p.value == neutral && p.widths[..4].iter().all(|n| *n == 0));
        let (of, dims, widths) = match around {
            Some(p) => (p.of, p.dims[2..].to_vec(), p.widths[4..].to_vec()),
            None => (value.expr?, b.shape[2..].iter().map(PrimExpr::as_int).collect(), vec![0; 2 * (rank - 2)]),
        };
        let side = |end: usize| widths.iter().skip(end).step_by(2).copied();
        let padding = side(0).chain(side(1)).collect();
        let w = Window { of, dims, size, strides, dilation, padding };
        if op == BinOp::Add {
            return Some(Value { window: Some(w), ..Value::default() });
        }
        let name = ["nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d"][rank - 3];
        Some(self.pooled(name, &w, false)?.into())
    }

    fn pooled(&mut self, name: &str, w: &Window, counts: bool) -> Option<Expr> {
        let attrs = [
            ("pool_size", ints(&w.size)),
            ("strides", ints(&w.strides)),
            ("dilation", ints(&w.dilation)),
            ("padding", ints(&w.padding)),
            ("count_include_pad", AttrValue::Bool(counts)),
        ];
        self.op(name, vec![w.of.clone()], &attrs)
    }

    /// Sums of windows by the number of elements in each, with or without padding.
    pub(super) fn average(&mut self, out: &Out, space: &Space) -> Option<Expr> {
        let PrimKind::Binary(BinOp::Div, sum, by) = out.value.kind() else { return None };
        let (b, indices) = loaded(sum)?;
        let w = self.values.get(b)?.window.clone()?;
        let whole = indices == out.indices.as_slice();
        let count = match by.kind() {
            PrimKind::Cast(n) if n.dtype().is_int() => n.clone(),
            PrimKind::Float(n) if n.0.fract() == 0.0 && n.0.abs() < 1e9 => PrimExpr::i64(n.0 as i64),
            _ => return None,
        };
        if !whole || w.dilation.iter().any(|d| *d != 1) {
            return None;
        }
        let dims = w.dims.iter().copied().collect::<Option<Vec<i64>>>()?;
        let n = w.size.len();
        let extent = |a: &Option<Axis>| a.as_ref().map_or(Some(1), Axis::len);
        let extents: Vec<i64> = space[2..].iter().map(extent).collect::<Option<_>>()?;
        let points = extents.iter().try_fold(1i64, |n, e| n.checked_mul(*e)).filter(|n| *n <= MOST_POINTS)?;
        let all: i64 = w.size.iter().product();
        let (mut with, mut without) = (true, true);
        for point in 0..points {
            let (mut rest, mut place, mut inside) = (point, HashMap::<Var, i64>::new(), 1);
            for d in (0..n).rev() {
                let at = rest % extents[d];
                rest /= extents[d];
                if let Some(a) = &space[2 + d] {
                    place.insert(a.var.clone(), at);
                }
                let first = at * w.strides[d] - w.padding[d];
                inside *= (first + w.size[d]).min(dims[d]) - first.max(0);
            }
            let count = count.evaluate(&place)?;
            with &= count == all;
            without &= count == inside.max(1);
        }
        let name = ["nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d"][n - 1];
        match (without, with) {
            (true, _) => self.pooled(name, &w, false),
            (_, true) => self.pooled(name, &w, true),
            _ => None,
        }
    }
}
