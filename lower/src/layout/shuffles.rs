//! Channels last for elements that move between channels, rows and columns: a reshape that takes axes apart, a
//! transposition of the parts and a reshape that joins them, as shuffled channels and pixels are written, do the same to the
//! parts of the NHWC form.

use super::{reshape, transpose, Out, Pass};
use relax_ir::relax::{Binding, Call, Expr, RVar};

/// The axes of pictures in the order of their NHWC form.
const LAST: [usize; 4] = [0, 2, 3, 1];

/// Elements side by side that are worth it: less are written one by one, which takes longer than turning squares of elements
/// before and behind.
const RUN: i64 = 4;

/// A tensor with the parts of the axes of another one as its dims.
#[derive(Clone)]
pub(super) struct Shuffled {
    /// The NHWC form of the other one.
    of: RVar,
    /// The axis of each part, channels second, and its size, axis by axis.
    parts: Vec<(usize, i64)>,
    /// Which part each dim is.
    dims: Vec<usize>,
}

impl Shuffled {
    /// The parts of axes that `dims` are.
    fn apart(of: RVar, axes: [i64; 4], dims: &[i64]) -> Option<Shuffled> {
        let counts = grouped(&axes, dims)?;
        let axis = (0..4).flat_map(|a| std::iter::repeat_n(a, counts[a]));
        let parts: Vec<(usize, i64)> = axis.zip(dims.iter().copied()).collect();
        Some(Shuffled { of, dims: (0..parts.len()).collect(), parts })
    }

    /// The NHWC form of the dims joined to pictures.
    fn together(&self, dims: [i64; 4], out: &mut Out) -> Option<RVar> {
        let sizes = |order: &[usize]| order.iter().map(|i| self.parts[*i].1).collect::<Vec<i64>>();
        let counts = grouped(&dims, &sizes(&self.dims))?;
        let begin = |axis: usize| counts[..axis].iter().sum::<usize>();
        let of_axis = |axis: &usize| self.dims[begin(*axis)..begin(*axis) + counts[*axis]].to_vec();
        let to: Vec<usize> = LAST.iter().flat_map(of_axis).collect();
        let all = |axis: &usize| (0..self.parts.len()).filter(|i| self.parts[*i].0 == *axis).collect::<Vec<_>>();
        let from: Vec<usize> = LAST.iter().flat_map(all).collect();
        // Windows of pictures are no channels.
        if !of_axis(&1).iter().any(|i| self.parts[*i].0 == 1 && self.parts[*i].1 > 1) {
            return None;
        }
        if to != from && to.last().is_none_or(|i| self.parts[*i].1 < RUN) {
            return None;
        }
        let mut x = self.of.expr();
        if to != from {
            let axes: Vec<i64> =
                to.iter().map(|t| from.iter().position(|f| f == t).map(|p| p as i64)).collect::<Option<_>>()?;
            let apart = out.bind("parts", reshape(x, &sizes(&from), out.span)?)?;
            x = out.bind("shuffled", transpose(apart.expr(), &axes, out.span)?)?.expr();
        }
        out.bind("channels_last", reshape(x, &LAST.map(|a| dims[a]), out.span)?)
    }
}

/// How many neighbouring `parts` multiply to each of `whole`, one at least.
fn grouped(whole: &[i64; 4], parts: &[i64]) -> Option<[usize; 4]> {
    let (mut counts, mut rest) = ([0; 4], parts.iter());
    for (count, size) in counts.iter_mut().zip(whole) {
        let mut product = *rest.next()?;
        *count = 1;
        while product < *size {
            product *= *rest.next()?;
            *count += 1;
        }
        if product != *size {
            return None;
        }
    }
    rest.next().is_none().then_some(counts)
}

impl Pass {
    /// Remembers a reshape that takes the axes of pictures apart; of one that joins parts, the NHWC form.
    pub(super) fn reshaped(&mut self, b: &Binding, x: &Expr, dims: &[i64], out: &mut Out) -> Option<RVar> {
        if let (Some(of), true) = (self.last_of(x), dims.len() > 4) {
            let from = self.dims(x, out)?.try_into().ok()?;
            let apart = Shuffled::apart(of, from, dims)?;
            self.shuffled.insert(b.var.clone(), apart);
            return None;
        }
        let parts = self.shuffled.get(x.as_var()?)?.clone();
        parts.together(dims.try_into().ok()?, out)
    }

    /// Remembers a transposition of parts.
    pub(super) fn reordered(&mut self, b: &Binding, c: &Call) -> Option<()> {
        let x = c.args.first().filter(|x| self.apart(b, x))?;
        let parts = self.shuffled.get(x.as_var()?)?;
        let rank = parts.dims.len() as i64;
        let axes = c.attrs.ints("axes").filter(|a| a.len() as i64 == rank)?;
        let dims = axes.iter().map(|a| parts.dims[a.rem_euclid(rank) as usize]).collect();
        let new = Shuffled { dims, ..parts.clone() };
        self.shuffled.insert(b.var.clone(), new);
        None
    }

    /// `nn.pixel_shuffle`: parts of the channels become rows and columns.
    pub(super) fn pixels(&mut self, b: &Binding, c: &Call, dims: &[i64], out: &mut Out) -> Option<RVar> {
        let x = c.args.first().filter(|x| self.apart(b, x))?;
        let r = c.attrs.int("upscale_factor")?;
        let from: [i64; 4] = self.dims(x, out)?.try_into().ok()?;
        let [n, channels, rows, columns] = from;
        let apart = Shuffled::apart(self.last_of(x)?, from, &[n, channels / (r * r), r, r, rows, columns])?;
        Shuffled { dims: vec![0, 1, 4, 2, 5, 3], ..apart }.together(dims.try_into().ok()?, out)
    }
}
