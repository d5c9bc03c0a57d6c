//! Channels last for what samples pictures at places that data tells: all channels of a sample lie side by side then, where
//! channels second each is read alone.

use super::{Out, Pass};
use relax_ir::relax::{Binding, Call, Expr, ExprKind, RVar};
use relax_ir::{AttrValue, PrimExpr};

/// What reads pictures at such places.
pub(super) const SAMPLERS: &[&str] = &["image.grid_sample", "vision.roi_align"];

/// Elements that a sample mixes.
const MIXED: i64 = 4;

impl Pass {
    /// [`SAMPLERS`], where the picture has channels last anyway, or more is read of it than it takes to turn it.
    pub(super) fn sampled(&mut self, b: &Binding, c: &Call, dims: &[PrimExpr], out: &mut Out) -> Option<RVar> {
        if c.attrs.str("layout") != Some("NCHW") || c.attrs.str("method") == Some("bicubic") {
            return None;
        }
        let x = c.args.first()?;
        let data = self.shape(x, out)?;
        // Of regions how many samples each bin takes must be known: else they are taken one by one.
        let samples = match c.op()?.name {
            "vision.roi_align" => c.attrs.int("sample_ratio").filter(|n| *n > 0)?.saturating_pow(2),
            _ => 1,
        };
        let known = |d: &[PrimExpr]| d.iter().try_fold(1i64, |n, d| Some(n.saturating_mul(d.as_int()?)));
        let wide = data[1].as_int().is_some_and(|n| n >= self.lanes);
        let read = known(dims).map(|n| n.saturating_mul(samples.saturating_mul(MIXED)));
        let much = known(&data).zip(read).is_none_or(|(all, read)| read >= all);
        if !(self.is_last(x) || wide && much) {
            return None;
        }
        let mut c = c.clone();
        c.args[0] = self.as_last(x, out)?.expr();
        c.attrs.set("layout", AttrValue::Str("NHWC".into()));
        out.bind(b.var.name(), Expr::new(ExprKind::Call(c), out.span))
    }
}
