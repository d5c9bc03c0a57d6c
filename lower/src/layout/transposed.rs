//! Transposed convolutions as convolutions: the elements of the result whose places are equal modulo the
//! strides are a convolution by every `stride`-th tap of the kernel, turned around.
//!
//! Along an axis, with kernel `k`, stride `s` and padding `p`, element `s * q + a` of the result is the sum of `data[q + (a + p)
//! / s - t] * weight[(a + p) % s + s * t]` over `t`. Where all of these phases would have few channels, or where no work is
//! lost, one convolution makes them side by side; otherwise each is one of its own, without the points that only others need.
//! Rows and columns may be open: each of these has a known number of points more than the data. Depthwise ones are depthwise
//! convolutions. Weights that are computed are put in order in each call.

use super::computed::COMPUTED_POINTS;
use super::open::{likely, reshape_to};
use super::planes::Sides;
use super::{call, packed, reshape, transpose, Out, Pass};
use crate::schedule::window::{Kind, Plan, Sizes, Window};
use relax_ir::attrs::Attrs;
use relax_ir::op::Answer;
use relax_ir::relax::{Binding, Call, Expr, ExprKind, RVar};
use relax_ir::sym::Facts;
use relax_ir::{AttrValue, DType, PrimExpr};

/// One axis of a transposed convolution, whose result has `stride` times the elements of the data, and `more`.
#[derive(Clone, Copy)]
struct Axis {
    more: i64,
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
    /// So many points more than the data has.
    more: i64,
}

impl Axis {
    /// The elements at `a` modulo the stride.
    fn phase(&self, a: i64) -> Option<Phase> {
        let (first, ahead) = ((a + self.before) % self.stride, (a + self.before) / self.stride);
        let taps = (self.kernel - first + self.stride - 1) / self.stride;
        let even = self.more % self.stride == 0 && taps >= 1 && taps > ahead;
        even.then_some(Phase { first, taps, before: taps - 1 - ahead, more: self.more / self.stride })
    }

    /// What makes all phases.
    fn whole(&self) -> Option<Phase> {
        let (taps, ahead) = ((self.kernel + self.stride - 1) / self.stride, self.before / self.stride);
        let more = (self.more - 1 + self.before).div_euclid(self.stride) - ahead + 1;
        (taps > ahead).then_some(Phase { first: 0, taps, before: taps - 1 - ahead, more })
    }
}

impl Phase {
    /// How far its windows reach behind the data.
    fn after(&self) -> i64 {
        (self.more - self.before + self.taps - 1).max(0)
    }
}

/// The kernel of a transposed convolution over rows and columns: channels taken, channels made by each group, rows, columns.
struct Kernel {
    weight: Expr,
    dims: [i64; 4],
    strides: [i64; 2],
    depthwise: bool,
}

impl Kernel {
    /// The weights of the convolution that makes `p`, or all phases: channels made, channels taken, rows, columns.
    fn weights(&self, p: &[Phase; 2], all: bool, out: &mut Out) -> Option<Expr> {
        let [taken, made, rows, columns] = self.dims;
        let [sy, sx] = self.strides;
        let [ty, tx] = p.map(|p| p.taps);
        let mut x = out.bind("weight", reshape(self.weight.clone(), &self.dims, out.span)?)?;
        let axes = match all {
            true => [2, 4],
            false => [2, 3],
        };
        if all {
            let more = [ty * sy - rows, tx * sx - columns];
            if more != [0, 0] {
                let mut attrs = Attrs::default();
                attrs.set("pad_width", super::ints(&[0, 0, 0, 0, 0, more[0], 0, more[1]]));
                x = out.bind("weight", call("nn.pad", vec![x.expr()], attrs, out.span)?)?;
            }
            x = out.bind("weight", reshape(x.expr(), &[taken, made, ty, sy, tx, sx], out.span)?)?;
        } else if [sy, sx] != [1, 1] {
            let first = p.map(|p| p.first).to_vec();
            let bounds = [vec![2, 3], first, vec![rows, columns], vec![sy, sx]];
            let args = bounds.map(|v| super::slices::list(v.into_iter().map(PrimExpr::i64), out.span));
            let args = [vec![x.expr()], args.to_vec()].concat();
            x = out.bind("weight", call("strided_slice", args, Attrs::default(), out.span)?)?;
        }
        for axis in axes.into_iter().zip([ty, tx]).filter(|(_, taps)| *taps > 1).map(|(axis, _)| axis) {
            let mut attrs = Attrs::default();
            attrs.set("axis", AttrValue::Int(axis));
            x = out.bind("weight", call("flip", vec![x.expr()], attrs, out.span)?)?;
        }
        let order: &[i64] = match all {
            true => &[3, 5, 1, 0, 2, 4],
            false if self.depthwise => return Some(x.expr()),
            false => &[1, 0, 2, 3],
        };
        Some(out.bind("weight", transpose(x.expr(), order, out.span)?)?.expr())
    }
}

impl Pass {
    /// The NHWC form of a transposed convolution over one or two axes, or over frames each of which becomes `stride` ones.
    pub(super) fn transposed(&mut self, b: &Binding, c: &Call, dims: &[PrimExpr], out: &mut Out) -> Option<RVar> {
        let x = c.args.first()?;
        let data = self.shape(x, out)?;
        let weight = c.args.get(1)?;
        let float = out.typed.info_of(weight)?.as_tensor()?.dtype == Some(DType::F32);
        let shape = self.dims(weight, out).filter(|_| float)?;
        let rank = shape.len().checked_sub(2).filter(|r| (1..=3).contains(r))?;
        let sides = Sides::read(c, rank, "IO")?;
        let (taken, filters) = (data[1].as_int()?, dims[1].as_int()?);
        let depthwise = sides.groups > 1 && sides.groups == taken && filters == taken && rank < 3;
        if sides.groups != 1 && !depthwise
            || sides.dilation.iter().any(|d| *d != 1)
            || data.iter().chain(dims).any(|d| d.is_int(0))
        {
            return None;
        }
        let one = Axis { more: 0, kernel: 1, stride: 1, before: 0 };
        let axis = |i: usize| {
            let (data, made) = (&data[2 + i], &dims[2 + i]);
            let stride = sides.stride[i];
            let [few, many] = likely([data, made])?;
            let more = many - few * stride;
            let same = Facts::new().equal(made, &(data.clone() * stride + more)) == Answer::Yes;
            same.then_some(Axis { more, kernel: shape[2 + i], stride, before: sides.before[i] })
        };
        let mut axes = [one; 2];
        let mut sizes = [PrimExpr::i64(1), PrimExpr::i64(1)];
        for i in rank.max(2) - 2..rank {
            axes[2 + i - rank] = axis(i)?;
            sizes[2 + i - rank] = data[2 + i].clone();
        }
        let [rows, columns] = axes;
        // Frames that a frame becomes are channels first.
        let frames = if rank == 3 { axis(0)? } else { one };
        let sz = frames.stride;
        if frames.kernel != sz || frames.before != 0 || frames.more != 0 {
            return None;
        }
        let channels = filters * sz;
        let known = self.constant(weight).map(|w| super::floats(&w));
        let kernel = Kernel {
            weight: weight.clone(),
            dims: [taken, shape[1], rows.kernel, columns.kernel],
            strides: [rows.stride, columns.stride],
            depthwise,
        };
        if known.is_none() && rank == 3 {
            return None;
        }
        let tap = |values: &[f32], o: i64, i: i64, y: i64, x: i64| match y < rows.kernel && x < columns.kernel {
            true => {
                let (frame, o) = (o / filters, o % filters);
                let at = if depthwise { o } else { (i * filters + o) * sz + frame };
                values[((at * rows.kernel + y) * columns.kernel + x) as usize]
            }
            false => 0.0,
        };
        let panel = self.lanes;
        let images = if rank == 3 { data[0].clone() * data[2].clone() } else { data[0].clone() };
        let open = images.as_int().is_none() || sizes.iter().any(|d| d.as_int().is_none());
        let size = likely([&sizes[0], &sizes[1]])?;
        let window = |p: [Phase; 2], made: i64, epilogue: i64| Window {
            kind: if depthwise { Kind::Depthwise } else { Kind::Conv },
            batch: images.as_int().unwrap_or(1),
            size,
            taken,
            pitch: 0,
            out: [size[0] + p[0].more, size[1] + p[1].more],
            made,
            kernel: [p[0].taps, p[1].taps],
            stride: [1, 1],
            dilation: [1, 1],
            groups: 1,
            before: [p[0].before, p[1].before],
            last: true,
            panel,
            open,
            half: None,
            margin: [0, 0],
            plan: Plan { epilogue, ..Plan::default() },
        };
        let (sy, sx) = (rows.stride, columns.stride);
        let phases: Option<Vec<[Phase; 2]>> =
            (0..sy * sx).map(|i| Some([rows.phase(i / sx)?, columns.phase(i % sx)?])).collect();
        let whole = rows.whole().zip(columns.whole()).map(|(r, c)| [r, c]);
        let lossless = whole.is_some_and(|w| w[0].more * sy == rows.more && w[1].more * sx == columns.more);
        let wide = !lossless && channels >= self.lanes;
        let apart = phases.filter(|_| (wide || depthwise) && channels % 4 == 0);
        let points = images.as_int().unwrap_or(1) * size[0] * size[1];
        if apart.is_none() && depthwise || known.is_none() && points < COMPUTED_POINTS {
            return None;
        }
        let last = self.as_last(x, out)?;
        let conv = |pass: &mut Pass, mut w: Window, p: [Phase; 2], shared: bool, out: &mut Out| {
            let x = match open {
                true if depthwise && w.has_edges() => {
                    w.margin = [w.before[1], p[1].after()];
                    last.expr()
                }
                true => pass.bordered(&mut w, p[1].after(), last.expr(), out)?,
                false => last.expr(),
            };
            let first = p.map(|p| p.first);
            pass.choose(&mut w);
            let [ty, tx] = w.kernel;
            let own = |values: &Vec<f32>| {
                let mut own = Vec::with_capacity((w.made * w.taken * ty * tx) as usize);
                for o in 0..w.made {
                    let [ry, rx] = if shared { [o / channels / sx, o / channels % sx] } else { first };
                    for i in 0..if depthwise { 1 } else { w.taken } {
                        for t in 0..ty * tx {
                            let (y, x) = (ry + sy * (ty - 1 - t / tx), rx + sx * (tx - 1 - t % tx));
                            own.push(tap(values, o % channels, i, y, x));
                        }
                    }
                }
                packed(&w, &own)
            };
            let weights = match known.as_ref().map(own) {
                Some(weights) => Expr::new(ExprKind::Constant(weights), b.expr().span()),
                None => {
                    let weights = kernel.weights(&p, shared, out)?;
                    pass.packed_in_call(&mut w, &weights, out)?
                }
            };
            let args = vec![x, weights];
            let sizes = match open {
                true => {
                    let data = pass.shape(&args[0], out)?;
                    let made = [sizes[0].clone() + p[0].more, sizes[1].clone() + p[1].more];
                    Sizes { batch: images.clone(), size: [data[1].clone(), data[2].clone()], out: made }
                }
                false => w.sizes(),
            };
            pass.kernel_of(b, &w, sizes, args, b.expr(), out)
        };
        let epilogue = self.epilogues.get(&b.var).copied().unwrap_or(0);
        let (made, points) = match (apart, whole) {
            (Some(all), _) => {
                let epilogue = if all.len() == 1 { epilogue } else { 0 };
                let mut parts = vec![];
                for p in &all {
                    let w = window(*p, channels, epilogue);
                    parts.push(conv(self, w, *p, false, out)?.expr());
                }
                let points = [all[0][0].more, all[0][1].more];
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
                (conv(self, w, p, true, out)?, [p[0].more, p[1].more])
            }
            _ => return None,
        };
        // Phases to rows and columns.
        let [tall, wide] = [sizes[0].clone() + points[0], sizes[1].clone() + points[1]];
        let int = PrimExpr::i64;
        let mut joined = made;
        if sy > 1 {
            let apart = vec![images.clone(), tall.clone(), wide.clone(), int(sy), int(sx * channels)];
            joined = out.bind("phases", reshape_to(joined.expr(), apart, out)?)?;
            joined = out.bind("phases", transpose(joined.expr(), &[0, 1, 3, 2, 4], out.span)?)?;
        }
        let size = [tall * sy, wide * sx];
        let whole = vec![images.clone(), size[0].clone(), size[1].clone(), int(channels)];
        joined = out.bind("joined", reshape_to(joined.expr(), whole, out)?)?;
        if sz > 1 {
            let [rows, columns] = size;
            let apart = vec![images.clone(), rows.clone() * columns.clone(), int(sz), int(filters)];
            joined = out.bind("frames", reshape_to(joined.expr(), apart, out)?)?;
            joined = out.bind("frames", transpose(joined.expr(), &[0, 2, 1, 3], out.span)?)?;
            let whole = vec![images * sz, rows, columns, int(filters)];
            joined = out.bind("frames", reshape_to(joined.expr(), whole, out)?)?;
        }
        if points[0] * sy == rows.more && points[1] * sx == columns.more {
            return Some(joined);
        }
        // Phases that lie side by side begin at whole strides.
        let begin = axes.map(|a| a.before % a.stride);
        let mut end = vec![];
        for (i, a) in axes.iter().enumerate() {
            end.push(sizes[i].clone() * a.stride + (a.more + begin[i]));
        }
        let bounds = [vec![int(1), int(2)], begin.map(int).to_vec(), end].map(|v| super::slices::list(v, out.span));
        let args = [vec![joined.expr()], bounds.to_vec()].concat();
        out.bind(b.var.name(), call("strided_slice", args, Attrs::default(), out.span)?)
    }
}
