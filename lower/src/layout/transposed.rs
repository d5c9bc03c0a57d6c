//! Transposed convolutions of constant weights as convolutions: the elements of the result whose places are equal modulo the
//! strides are a convolution by every `stride`-th tap of the kernel, turned around.
//!
//! Along an axis, with kernel `k`, stride `s` and padding `p`, element `s * q + a` of the result is the sum of `data[q + (a + p)
//! / s - t] * weight[(a + p) % s + s * t]` over `t`. Where all of these phases would have few channels, or where no work is
//! lost, one convolution makes them side by side; otherwise each is one of its own, without the points that only others need.

use super::planes::Sides;
use super::{call, packed, reshape, transpose, Out, Pass};
use crate::schedule::window::{Kind, Plan, Window};
use relax_ir::attrs::Attrs;
use relax_ir::relax::{Binding, Call, Expr, ExprKind, RVar};
use relax_ir::{AttrValue, DType};

/// One axis of a transposed convolution.
#[derive(Clone, Copy)]
struct Axis {
    data: i64,
    made: i64,
    kernel: i64,
    stride: i64,
    before: i64,
}

/// Some elements of an axis of the result, as a convolution.
#[derive(Clone, Copy)]
struct Phase {
    /// The taps that it begins with and steps over.
    first: i64,
    taps: i64,
    before: i64,
    points: i64,
}

impl Axis {
    /// The elements at `a` modulo the stride.
    fn phase(&self, a: i64) -> Option<Phase> {
        let (first, ahead) = ((a + self.before) % self.stride, (a + self.before) / self.stride);
        let taps = (self.kernel - first + self.stride - 1) / self.stride;
        let even = self.made % self.stride == 0 && taps >= 1 && taps > ahead;
        even.then_some(Phase { first, taps, before: taps - 1 - ahead, points: self.made / self.stride })
    }

    /// What makes all phases.
    fn whole(&self) -> Option<Phase> {
        let (taps, ahead) = ((self.kernel + self.stride - 1) / self.stride, self.before / self.stride);
        let points = (self.made - 1 + self.before) / self.stride - ahead + 1;
        (taps > ahead).then_some(Phase { first: 0, taps, before: taps - 1 - ahead, points })
    }
}

impl Pass {
    /// The NHWC form of a transposed convolution over one or two axes, or over frames each of which becomes `stride` ones.
    pub(super) fn transposed(&mut self, b: &Binding, c: &Call, dims: &[i64], out: &mut Out) -> Option<RVar> {
        let x = c.args.first()?;
        let data = self.dims(x, out)?;
        let weight = self.constant(c.args.get(1)?).filter(|w| w.dtype == DType::F32)?;
        let rank = weight.shape.len().checked_sub(2).filter(|r| (1..=3).contains(r))?;
        let sides = Sides::read(c, rank, "IO")?;
        if sides.groups != 1 || sides.dilation.iter().any(|d| *d != 1) || dims.contains(&0) || data.contains(&0) {
            return None;
        }
        let one = Axis { data: 1, made: 1, kernel: 1, stride: 1, before: 0 };
        let mut axes = [one; 2];
        let axis = |i: usize| Axis {
            data: data[2 + i],
            made: dims[2 + i],
            kernel: weight.shape[2 + i],
            stride: sides.stride[i],
            before: sides.before[i],
        };
        for i in rank.max(2) - 2..rank {
            axes[2 + i - rank] = axis(i);
        }
        let [rows, columns] = axes;
        // Frames that a frame becomes are channels first.
        let frames = if rank == 3 { axis(0) } else { one };
        let sz = frames.stride;
        if frames.kernel != sz || frames.before != 0 || frames.made != frames.data * sz {
            return None;
        }
        let channels = dims[1] * sz;
        let values = super::floats(&weight);
        let tap = |o: i64, i: i64, y: i64, x: i64| match y < rows.kernel && x < columns.kernel {
            true => {
                let (frame, o) = (o / dims[1], o % dims[1]);
                let at = (i * dims[1] + o) * sz + frame;
                values[((at * rows.kernel + y) * columns.kernel + x) as usize]
            }
            false => 0.0,
        };
        let panel = self.lanes;
        let images = data[0] * frames.data;
        let window = |p: [Phase; 2], made: i64, epilogue: i64| Window {
            kind: Kind::Conv,
            batch: images,
            size: [rows.data, columns.data],
            taken: data[1],
            pitch: 0,
            out: [p[0].points, p[1].points],
            made,
            kernel: [p[0].taps, p[1].taps],
            stride: [1, 1],
            dilation: [1, 1],
            groups: 1,
            before: [p[0].before, p[1].before],
            last: true,
            panel,
            open: false,
            margin: [0, 0],
            plan: Plan { epilogue, ..Plan::default() },
        };
        let (sy, sx) = (rows.stride, columns.stride);
        let phases: Option<Vec<[Phase; 2]>> =
            (0..sy * sx).map(|i| Some([rows.phase(i / sx)?, columns.phase(i % sx)?])).collect();
        let whole = rows.whole().zip(columns.whole()).map(|(r, c)| [r, c]);
        let points = |p: &[Phase; 2]| p[0].points * p[1].points;
        let lossless = whole.is_some_and(|w| points(&w) * sy * sx == rows.made * columns.made);
        let apart = phases.filter(|_| !lossless && channels % 4 == 0 && channels >= self.lanes);
        let last = self.as_last(x, out)?;
        let conv = |pass: &mut Pass, mut w: Window, first: [i64; 2], shared: bool, out: &mut Out| {
            pass.choose(&mut w);
            let [ty, tx] = w.kernel;
            let mut own = Vec::with_capacity((w.made * w.taken * ty * tx) as usize);
            for o in 0..w.made {
                let [ry, rx] = if shared { [o / channels / sx, o / channels % sx] } else { first };
                for i in 0..w.taken {
                    for t in 0..ty * tx {
                        let (y, x) = (ry + sy * (ty - 1 - t / tx), rx + sx * (tx - 1 - t % tx));
                        own.push(tap(o % channels, i, y, x));
                    }
                }
            }
            let args = vec![last.expr(), Expr::new(ExprKind::Constant(packed(&w, &own)), b.expr().span())];
            pass.kernel(b, &w, args, b.expr(), out)
        };
        let epilogue = self.epilogues.get(&b.var).copied().unwrap_or(0);
        let (made, points) = match (apart, whole) {
            (Some(all), _) => {
                let epilogue = if all.len() == 1 { epilogue } else { 0 };
                let mut parts = vec![];
                for p in &all {
                    let w = window(*p, channels, epilogue);
                    parts.push(conv(self, w, [p[0].first, p[1].first], false, out)?.expr());
                }
                let points = [all[0][0].points, all[0][1].points];
                if parts.len() == 1 && sz == 1 {
                    return parts.pop()?.as_var().cloned();
                }
                let mut attrs = Attrs::default();
                attrs.set("axis", AttrValue::Int(3));
                let all = Expr::new(ExprKind::Tuple(parts), out.span);
                (out.bind("phases", call("concat", vec![all], attrs, out.span)?)?, points)
            }
            (None, Some(p)) if channels * sy * sx % 4 == 0 => {
                let w = window(p, channels * sy * sx, 0);
                (conv(self, w, [0, 0], true, out)?, [p[0].points, p[1].points])
            }
            _ => return None,
        };
        // Phases to rows and columns.
        let mut joined = made;
        if sy > 1 {
            let apart = [images, points[0], points[1], sy, sx * channels];
            joined = out.bind("phases", reshape(joined.expr(), &apart, out.span)?)?;
            joined = out.bind("phases", transpose(joined.expr(), &[0, 1, 3, 2, 4], out.span)?)?;
        }
        let size = [points[0] * sy, points[1] * sx];
        joined = out.bind("joined", reshape(joined.expr(), &[images, size[0], size[1], channels], out.span)?)?;
        if sz > 1 {
            let apart = [images, size[0] * size[1], sz, dims[1]];
            joined = out.bind("frames", reshape(joined.expr(), &apart, out.span)?)?;
            joined = out.bind("frames", transpose(joined.expr(), &[0, 2, 1, 3], out.span)?)?;
            let whole = [images * sz, size[0], size[1], dims[1]];
            joined = out.bind("frames", reshape(joined.expr(), &whole, out.span)?)?;
        }
        if size == [rows.made, columns.made] {
            return Some(joined);
        }
        // Phases that lie side by side begin at whole strides.
        let begin = axes.map(|a| a.before % a.stride);
        let end = [begin[0] + rows.made, begin[1] + columns.made];
        let bounds = [[1, 2], begin, end].map(|v| super::slices::list(&v, out.span));
        let args = [vec![joined.expr()], bounds.to_vec()].concat();
        out.bind(b.var.name(), call("strided_slice", args, Attrs::default(), out.span)?)
    }
}
