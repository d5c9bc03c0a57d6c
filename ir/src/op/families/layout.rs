//! Data layouts of windowed operators (`NCHW`, `NHWC`, `NCHW16c`) and what their attributes say.

use crate::attrs::Attrs;
use crate::prim::PrimExpr;
use crate::tir::{Buffer, KernelBuilder};

/// The meaning of each dim: an upper-case letter is an axis, or its outer part when a lower-case one holds the inner.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    axes: Vec<(char, Option<i64>)>,
}

impl Layout {
    /// Parses `NCHW` or `NCHW16c`; `None` when a letter repeats or an inner part has no size or no outer part.
    pub fn parse(text: &str) -> Option<Layout> {
        let mut axes: Vec<(char, Option<i64>)> = vec![];
        let mut number = String::new();
        for c in text.chars() {
            if c.is_ascii_digit() {
                number.push(c);
                continue;
            }
            let inner = match (c.is_ascii_lowercase(), number.is_empty()) {
                (true, false) => Some(number.parse::<i64>().ok().filter(|f| *f > 0)?),
                (false, true) if c.is_ascii_uppercase() => None,
                _ => return None,
            };
            number.clear();
            let axis = (c.to_ascii_uppercase(), inner);
            if axes.iter().any(|a| a.0 == axis.0 && a.1.is_some() == inner.is_some()) {
                return None;
            }
            axes.push(axis);
        }
        let whole = axes.iter().all(|a| axes.contains(&(a.0, None)));
        (number.is_empty() && whole && !axes.is_empty()).then_some(Layout { axes })
    }

    pub fn rank(&self) -> usize {
        self.axes.len()
    }

    /// Has exactly the axes of `letters`.
    pub fn is_over(&self, letters: &str) -> bool {
        let outer = self.axes.iter().filter(|a| a.1.is_none());
        outer.clone().count() == letters.len() && outer.clone().all(|a| letters.contains(a.0))
    }

    fn inner(&self, letter: char) -> Option<i64> {
        self.axes.iter().find(|a| a.0 == letter && a.1.is_some()).and_then(|a| a.1)
    }

    /// Is the axis one dim?
    pub fn is_whole(&self, letter: char) -> bool {
        self.inner(letter).is_none()
    }

    /// The dim of the axis, or of its outer part.
    pub fn position(&self, letter: char) -> usize {
        self.axes.iter().position(|a| *a == (letter, None)).unwrap_or(0)
    }

    /// The extent of an axis in a tensor of these dims.
    pub fn size(&self, dims: &[PrimExpr], letter: char) -> PrimExpr {
        dims[self.position(letter)].clone() * self.inner(letter).unwrap_or(1)
    }

    /// The dims of a tensor whose axes have these extents.
    pub fn dims(&self, size: impl Fn(char) -> PrimExpr) -> Vec<PrimExpr> {
        let mut out = vec![];
        for (letter, inner) in &self.axes {
            out.push(match (inner, self.inner(*letter)) {
                (Some(f), _) => PrimExpr::i64(*f),
                (None, Some(f)) => (size(*letter) + (f - 1)).floor_div(f),
                (None, None) => size(*letter),
            });
        }
        out
    }

    /// The position along an axis of the element at `index`.
    pub fn along(&self, index: &[PrimExpr], letter: char) -> PrimExpr {
        let outer = index[self.position(letter)].clone();
        match self.axes.iter().position(|a| a.0 == letter && a.1.is_some()) {
            Some(p) => outer * self.axes[p].1.unwrap_or(1) + index[p].clone(),
            None => outer,
        }
    }

    /// The index of the element at these positions along the axes.
    pub fn index(&self, at: impl Fn(char) -> PrimExpr) -> Vec<PrimExpr> {
        let mut out = vec![];
        for (letter, inner) in &self.axes {
            out.push(match (inner, self.inner(*letter)) {
                (Some(f), _) => at(*letter).floor_mod(*f),
                (None, Some(f)) => at(*letter).floor_div(f),
                (None, None) => at(*letter),
            });
        }
        out
    }
}

/// The spatial axes of a windowed operator of this rank.
pub fn spatial(rank: usize) -> &'static str {
    &"DHW"[3 - rank.min(3)..]
}

/// The spatial rank that an operator's name states (`nn.conv2d`: 2).
pub fn rank_of(name: &str) -> usize {
    name.chars().find_map(|c| c.to_digit(10)).map_or(0, |d| d as usize)
}

/// A list attribute with one entry per spatial dim; a lone entry counts for all of them.
pub fn per_dim(attrs: &Attrs, name: &str, rank: usize) -> Option<Vec<i64>> {
    let v = attrs.ints(name)?;
    match v.len() {
        1 => Some(vec![v[0]; rank]),
        n if n == rank => Some(v),
        _ => None,
    }
}

/// Padding before and after each spatial dim: one number for all, one per dim, or all begins then all ends.
pub fn padding(attrs: &Attrs, rank: usize) -> Option<(Vec<i64>, Vec<i64>)> {
    let v = attrs.ints("padding")?;
    match v.len() {
        1 => Some((vec![v[0]; rank], vec![v[0]; rank])),
        n if n == rank => Some((v.clone(), v)),
        n if n == 2 * rank => Some((v[..rank].to_vec(), v[rank..].to_vec())),
        _ => None,
    }
}

/// A stage that holds `x` with `before` and `after` more elements of `fill` per spatial axis; `x` itself when there
/// are none. The spatial axes of `layout` must be whole.
pub fn pad_stage(
    k: &mut KernelBuilder,
    x: &Buffer,
    layout: &Layout,
    axes: &str,
    before: &[i64],
    after: &[i64],
    fill: PrimExpr,
) -> Buffer {
    if before.iter().chain(after).all(|p| *p == 0) {
        return x.clone();
    }
    let mut shape = x.shape.clone();
    for (i, a) in axes.chars().enumerate() {
        let p = layout.position(a);
        shape[p] = shape[p].clone() + (before[i] + after[i]);
    }
    k.compute("pad", &shape, x.dtype(), |index| {
        let mut source = index.to_vec();
        let mut inside = PrimExpr::bool(true);
        for (i, a) in axes.chars().enumerate() {
            let p = layout.position(a);
            if before[i] != 0 {
                inside = inside.and(index[p].clone().ge(before[i]));
            }
            if before[i] != 0 || after[i] != 0 {
                inside = inside.and(index[p].clone().lt(x.shape[p].clone() + before[i]));
            }
            source[p] = index[p].clone() - before[i];
        }
        inside.if_then_else(x.at(source), fill)
    })
}
