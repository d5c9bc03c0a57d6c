//! The NHWC form of tensors of 3 to 5 dims whose channels are the second: of `[n, c, w]` it has one row, of
//! `[n, c, d, h, w]` each frame is a picture of its own.

use super::open::reshape_to;
use super::{dims_of, reshape, transpose, Out, Pass};
use relax_ir::relax::{Binding, BindingValue, Call, Expr, RVar};
use relax_ir::PrimExpr;

/// The dims of the NHWC form of a tensor with these.
pub(super) fn last_dims(dims: &[i64]) -> Option<[i64; 4]> {
    match *dims {
        [n, c, w] => Some([n, 1, w, c]),
        [n, c, h, w] => Some([n, h, w, c]),
        [n, c, d, h, w] => Some([n * d, h, w, c]),
        _ => None,
    }
}

/// Where the axis of a tensor of `rank` dims is in its NHWC form; none where it is a part of one.
pub(super) fn place(rank: usize, axis: i64) -> Option<i64> {
    let all: &[Option<i64>] = match rank {
        3 => &[Some(0), Some(3), Some(2)],
        4 => &[Some(0), Some(3), Some(1), Some(2)],
        5 => &[None, Some(3), None, Some(1), Some(2)],
        _ => &[],
    };
    all.get(axis.rem_euclid(rank.max(1) as i64) as usize).copied().flatten()
}

/// An attribute of two numbers, or of one that stands for both.
pub(super) fn two(c: &Call, name: &str) -> Option<[i64; 2]> {
    match c.attrs.ints(name)?.as_slice() {
        [a] => Some([*a, *a]),
        [a, b] => Some([*a, *b]),
        _ => None,
    }
}

/// The axes that put the channels last, and those that put them second again.
fn turns(rank: usize) -> Option<(&'static [i64], &'static [i64])> {
    match rank {
        3 => Some((&[0, 2, 1], &[0, 2, 1])),
        4 => Some((&[0, 2, 3, 1], &[0, 3, 1, 2])),
        5 => Some((&[0, 2, 3, 4, 1], &[0, 4, 1, 2, 3])),
        _ => None,
    }
}

impl Pass {
    pub(super) fn dims(&self, e: &Expr, out: &Out) -> Option<Vec<i64>> {
        dims_of(out.typed.info_of(e)?.as_tensor()?)
    }

    pub(super) fn last_of(&self, e: &Expr) -> Option<RVar> {
        e.as_var().and_then(|v| self.last.get(v)).cloned()
    }

    /// Whether the NHWC form of `e` costs nothing.
    pub(super) fn is_last(&self, e: &Expr) -> bool {
        e.as_var().is_some_and(|v| self.last.contains_key(v) || self.turned.contains_key(v))
    }

    /// The NHWC form, made where there is none.
    pub(super) fn as_last(&mut self, e: &Expr, out: &mut Out) -> Option<RVar> {
        if let Some(v) = self.last_of(e) {
            return Some(v);
        }
        let Some(dims) = self.dims(e, out) else { return self.open_last(e, out) };
        let to = last_dims(&dims)?;
        if let Some(x) = e.as_var().and_then(|v| self.turned.get(v)).cloned() {
            return out.bind("channels_last", reshape(x.expr(), &to, out.span)?);
        }
        if self.own(e) && (dims[1] == 1 || dims[2..].iter().product::<i64>() == 1) {
            return out.bind("channels_last", reshape(e.clone(), &to, out.span)?);
        }
        let turned = out.bind("channels_last", transpose(e.clone(), turns(dims.len())?.0, out.span)?)?;
        match dims.len() {
            4 => Some(turned),
            _ => out.bind("channels_last", reshape(turned.expr(), &to, out.span)?),
        }
    }

    /// The NHWC form of what has at most one row and column: the same elements in the same order. Dims that are left out in front
    /// are 1.
    pub(super) fn as_point(&mut self, e: &Expr, out: &mut Out) -> Option<RVar> {
        let own = self.shape(e, out)?;
        let mut dims = vec![PrimExpr::i64(1); 4usize.checked_sub(own.len())?];
        dims.extend(own);
        let [n, channels, rows, columns] = dims.as_slice() else { return None };
        if !self.own(e) || !rows.is_int(1) || !columns.is_int(1) {
            return None;
        }
        let one = PrimExpr::i64(1);
        let to = vec![n.clone(), one.clone(), one, channels.clone()];
        out.bind("channels_last", reshape_to(e.clone(), to, out)?)
    }

    /// The form that the program names, of these dims, of an NHWC tensor.
    pub(super) fn named(&self, new: &RVar, dims: &[i64], out: &mut Out) -> Option<Expr> {
        if dims[2..].iter().product::<i64>() == 1 {
            return reshape(new.expr(), dims, out.span);
        }
        let whole = match dims.len() {
            4 => new.clone(),
            _ => {
                let apart: Vec<i64> = [&dims[..1], &dims[2..], &dims[1..2]].concat();
                out.bind("channels_last", reshape(new.expr(), &apart, out.span)?)?
            }
        };
        transpose(whole.expr(), turns(dims.len())?.1, out.span)
    }

    /// A transposition between channels second and last: behind an NHWC form it is that form, and before one it need not
    /// be made.
    pub(super) fn turn(&mut self, b: &Binding, c: &Call, dims: &[i64], mut out: Out) -> Option<Vec<Binding>> {
        let x = c.args.first()?;
        let axes = c.attrs.ints("axes")?;
        let rank = dims.len();
        let (to, from) = turns(rank).filter(|_| axes.len() == rank && self.apart(b, x))?;
        let axes: Vec<i64> = axes.iter().map(|a| a.rem_euclid(rank as i64)).collect();
        let whole = self.last_of(x).or_else(|| x.as_var().and_then(|v| self.turned.get(v)).cloned());
        if let Some(last) = whole.filter(|_| axes == to) {
            let value = reshape(last.expr(), dims, out.span)?;
            out.list.push(Binding { value: BindingValue::Expr(value), ..b.clone() });
            return Some(out.list);
        }
        if axes == from {
            let x = x.as_var()?.clone();
            if self.ready.contains(&x) {
                self.last.insert(b.var.clone(), x.clone());
            }
            self.turned.insert(b.var.clone(), x);
        }
        None
    }

    /// Tensors of other dims with the same elements.
    pub(super) fn viewed(&mut self, b: &Binding, c: &Call, dims: &[i64], mut out: Out) -> Option<Vec<Binding>> {
        let x = c.args.first().filter(|x| self.apart(b, x))?;
        let all: Vec<PrimExpr> = dims.iter().map(|d| PrimExpr::i64(*d)).collect();
        if let Some(new) = self.reshaped(b, x, dims, &mut out).or_else(|| self.written_norm(b, &all, &mut out)) {
            return Some(self.also(b, new, out));
        }
        let from = self.dims(x, &out)?;
        let points = |dims: &[i64]| dims.get(2..).map(|d| d.iter().product::<i64>());
        // Without rows and columns the order of the elements is the same in both forms.
        if let Some(last) = self.last_of(x).filter(|_| points(&from) == Some(1)) {
            let value = reshape(last.expr(), dims, out.span)?;
            out.list.push(Binding { value: BindingValue::Expr(value), ..b.clone() });
            return Some(out.list);
        }
        // With other rows and columns it is the same in both NHWC forms.
        let to = last_dims(dims)?;
        if from.len() < 3 || from[..2] != dims[..2] || points(&from) != points(dims) {
            return None;
        }
        if let Some(last) = self.last_of(x) {
            let new = out.bind(b.var.name(), reshape(last.expr(), &to, out.span)?)?;
            return Some(self.also(b, new, out));
        }
        let whole = self.turned.get(x.as_var()?)?.clone();
        self.turned.insert(b.var.clone(), whole);
        None
    }

    /// Binds what the program names as it does, and `new` as its NHWC form: who reads one of them has the other for nothing.
    pub(super) fn also(&mut self, b: &Binding, new: RVar, mut out: Out) -> Vec<Binding> {
        self.last.insert(b.var.clone(), new);
        out.list.push(b.clone());
        out.list
    }

    /// Whether nobody writes to what the call returns, nor to its operand: they may share a tensor.
    pub(super) fn apart(&self, b: &Binding, x: &Expr) -> bool {
        !self.written.contains(&b.var) && self.own(x)
    }

    /// Whether nobody writes to the tensor of `x` but what makes it.
    fn own(&self, x: &Expr) -> bool {
        !x.as_var().is_some_and(|v| self.written.contains(v))
    }

    /// Binds `new`, the NHWC form, as what the program names.
    pub(super) fn bound(&mut self, b: &Binding, new: RVar, dims: &[i64], mut out: Out) -> Option<Vec<Binding>> {
        let value = self.named(&new, dims, &mut out)?;
        if !self.written.contains(&b.var) {
            self.last.insert(b.var.clone(), new);
        }
        out.list.push(Binding { value: BindingValue::Expr(value), ..b.clone() });
        Some(out.list)
    }
}
