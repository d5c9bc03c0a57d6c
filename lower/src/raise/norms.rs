//! Norms by groups of channels and by instances, which TVM writes as `(x - mean) * rsqrt(variance + eps) * gamma + beta` of a picture, or of
//! one whose channels are split into groups.

use super::{same, Raise};
use relax_ir::attrs::AttrValue;
use relax_ir::relax::{Call, Expr, ExprKind};
use relax_ir::PrimExpr;

impl Raise<'_> {
    /// The norm that the operators behind `result` are.
    pub(super) fn norm(&mut self, result: &Expr) -> Option<Expr> {
        let sum = self.behind(result);
        let (scaled, beta) = self.two(&sum, "add")?;
        let (normed, gamma) = self.two(&scaled, "multiply")?;
        let (centred, factor) = self.two(&normed, "multiply")?;
        let (x, mean) = self.two(&centred, "subtract")?;
        let root = self.made(&factor, "rsqrt")?.args[0].clone();
        let (variance, epsilon) = self.two(&root, "add")?;
        let ExprKind::Constant(epsilon) = epsilon.kind() else { return None };
        let (mean, variance) = (self.made(&mean, "mean")?.clone(), self.made(&variance, "variance")?.clone());
        let axes = mean.attrs.ints("axis")?;
        let of_x = [&mean, &variance].iter().all(|c| c.args[0] == x && c.attrs.bool("keepdims") == Some(true));
        if !of_x || variance.attrs.ints("axis")? != axes || epsilon.elements() != 1 {
            return None;
        }
        let (whole, picture) = (self.known(&x)?, self.behind(&x));
        let (dims, weights) = (self.known(&picture)?, [self.behind(&gamma), self.behind(&beta)]);
        let channels = *dims.get(1)?;
        // All behind the batch and the groups, or the channels.
        let split = whole.len() == dims.len() + 1;
        let rows: Vec<i64> = (2..whole.len() as i64).collect();
        let fits = match split {
            true => whole[0] == dims[0] && whole[1] * whole[2] == channels && whole[3..] == dims[2..],
            false => whole == dims && x == picture,
        };
        let of_channels = weights.iter().all(|w| self.known(w).is_some_and(|d| d == [channels]));
        // Along the channels, with ones for what is behind them.
        let shape: Vec<i64> =
            whole[1..].iter().enumerate().map(|(d, n)| if d < 1 + split as usize { *n } else { 1 }).collect();
        let along = [&gamma, &beta].iter().all(|w| self.known(w).is_some_and(|d| d == shape));
        let kept = same(self.info(result)?.known_dims()?, self.info(&picture)?.known_dims()?);
        if dims.len() < 3 || axes != rows || !fits || !of_channels || !along || !kept {
            return None;
        }
        let [gamma, beta] = weights;
        let axes: Vec<i64> = (2..dims.len() as i64).collect();
        let attrs = [
            ("num_groups", AttrValue::Int(whole[1])),
            ("channel_axis", AttrValue::Int(1)),
            ("axes", super::ints(&axes)),
            ("epsilon", AttrValue::Float(epsilon.get_f64(0))),
        ];
        self.op(if split { "nn.group_norm" } else { "nn.instance_norm" }, vec![picture, gamma, beta], &attrs)
    }

    fn made(&self, e: &Expr, op: &str) -> Option<&Call> {
        self.w.value(e)?.as_call().filter(|c| c.is_op(op))
    }

    fn two(&self, e: &Expr, op: &str) -> Option<(Expr, Expr)> {
        let c = self.made(e, op)?;
        Some((c.args[0].clone(), c.args[1].clone()))
    }

    /// What reshapes have made it from.
    fn behind(&self, e: &Expr) -> Expr {
        let mut e = e.clone();
        while let Some(c) = self.made(&e, "reshape") {
            e = c.args[0].clone();
        }
        e
    }

    fn known(&self, e: &Expr) -> Option<Vec<i64>> {
        self.info(e)?.known_dims()?.iter().map(PrimExpr::as_int).collect()
    }
}
