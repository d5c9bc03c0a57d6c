//! Convolutions whose weights are computed: these are packed in each call, by reshapes and transpositions.

use super::{reshape, transpose, Out, Pass, FEW_CHANNELS};
use crate::schedule::window::{Kind, Window};
use relax_ir::relax::{Binding, Call, Expr, RVar};
use relax_ir::DType;

/// Convolutions whose weights are computed have a kernel of their own from so many points of the result on.
pub(super) const COMPUTED_POINTS: i64 = 64;

impl Pass {
    /// A convolution whose weights are computed: they are packed in each call.
    pub(super) fn computed(
        &mut self,
        b: &Binding,
        c: &Call,
        data: &[i64],
        dims: &[i64],
        at: &Expr,
        out: &mut Out,
    ) -> Option<RVar> {
        let [x, weight] = c.args.as_slice() else { return None };
        let float = out.typed.info_of(weight)?.as_tensor()?.dtype == Some(DType::F32);
        let shape = self.dims(weight, out).filter(|_| float && self.constant(weight).is_none())?;
        if shape.len() != 4 {
            return None;
        }
        let mut w = self.plane_of(&b.var, c, data, dims, &shape)?.window;
        // Few points do not pay for the packing.
        if w.batch * w.out[0] * w.out[1] < COMPUTED_POINTS {
            return None;
        }
        w.last = w.kind == Kind::Depthwise || w.groups > 1 || self.last_of(x).is_some() || w.taken > FEW_CHANNELS;
        self.choose(&mut w);
        let packed = self.packed_in_call(&mut w, weight, out)?;
        let x = if w.last { self.as_last(x, out)?.expr() } else { x.clone() };
        self.kernel(b, &w, vec![x, packed], at, out)
    }

    /// Weights of channels made, channels taken, rows and columns, in the order in which the kernel of `w` reads them.
    pub(super) fn packed_in_call(&self, w: &mut Window, weight: &Expr, out: &mut Out) -> Option<Expr> {
        let [kh, kw] = w.kernel;
        let taken = if w.kind == Kind::Depthwise { 1 } else { w.reach() };
        let (made, taps) = (w.made, kh * kw);
        let mut packed = weight.clone();
        let mut turn = |packed: &mut Expr, dims: &[i64], axes: &[i64]| -> Option<()> {
            let apart = out.bind("weight", reshape(packed.clone(), dims, out.span)?)?;
            *packed = out.bind("weight", transpose(apart.expr(), axes, out.span)?)?.expr();
            Some(())
        };
        if w.kind == Kind::Depthwise {
            turn(&mut packed, &[made, taps], &[1, 0])?;
        } else {
            // Panels of one width alone.
            let even = |n: &i64| made % (n * self.lanes) == 0 && w.takes_panel(n * self.lanes);
            if made % w.panel.min(made) != 0 {
                w.panel = (1..=4).rev().find(even)? * self.lanes;
            }
            let panel = w.panel.min(made);
            turn(&mut packed, &[made / panel, panel, taken * taps], &[0, 2, 1])?;
            if w.last && taps > 1 {
                turn(&mut packed, &[made / panel, taken, taps, panel], &[0, 2, 1, 3])?;
            }
        }
        Some(out.bind("weight", reshape(packed, &[made * taken * taps], out.span)?)?.expr())
    }
}
