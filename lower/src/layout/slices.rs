//! Channels last for what cuts tensors, and for pictures of another size.

use super::forms::place;
use super::{Out, Pass};
use relax_ir::attrs::Attrs;
use relax_ir::relax::{Binding, Call, Expr, ExprKind, RVar, StructInfo};
use relax_ir::{AttrValue, DType, PrimExpr, Span};

/// What an NHWC tensor is cut into, along one of its axes: where each piece begins, and the end.
pub(super) struct Pieces {
    of: RVar,
    axis: i64,
    cuts: Vec<i64>,
}

pub(super) fn list<T: Into<PrimExpr>>(values: impl IntoIterator<Item = T>, span: Span) -> Expr {
    let one = |v: T| Expr::new(ExprKind::Prim(v.into()), span);
    Expr::new(ExprKind::Tuple(values.into_iter().map(one).collect()), span)
}

impl Pass {
    /// Slices along axes that are numbers.
    pub(super) fn slice(&mut self, b: &Binding, c: &Call, out: &mut Out) -> Option<RVar> {
        let x = self.last_of(c.args.first()?)?;
        let ExprKind::Tuple(axes) = c.args.get(1)?.kind() else { return None };
        let rank = self.shape(c.args.first()?, out)?.len();
        let axis = |e: &Expr| match e.kind() {
            ExprKind::Prim(p) => place(rank, p.as_int()?),
            _ => None,
        };
        let axes: Vec<i64> = axes.iter().map(axis).collect::<Option<_>>()?;
        let mut c = c.clone();
        c.args[0] = x.expr();
        c.args[1] = list(axes, out.span);
        out.bind(b.var.name(), Expr::new(ExprKind::Call(c), out.span))
    }

    /// Remembers what a tensor is cut into; [`Pass::piece`] makes the pieces.
    pub(super) fn cut(&mut self, b: &Binding, c: &Call, out: &Out) -> Option<()> {
        let of = self.last_of(c.args.first()?)?;
        let rank = self.shape(c.args.first()?, out)?.len();
        let axis = c.attrs.int("axis")?.rem_euclid(rank as i64);
        let mut cuts = vec![0];
        for field in out.typed.sinfo.get(&b.var)?.as_tuple()? {
            let t = field.as_tensor().filter(|t| t.dtype == Some(DType::F32))?;
            cuts.push(cuts.last()? + t.known_dims()?.get(axis as usize)?.as_int()?);
        }
        self.pieces.insert(b.var.clone(), Pieces { of, axis: place(rank, axis)?, cuts });
        None
    }

    /// A field of what was cut.
    pub(super) fn piece(&mut self, b: &Binding, e: &Expr, i: usize, out: &mut Out) -> Option<RVar> {
        let p = self.pieces.get(e.as_var()?)?;
        let (begin, end) = (*p.cuts.get(i)?, *p.cuts.get(i + 1)?);
        let bounds = [[p.axis], [begin], [end]].map(|v| list(v, out.span));
        let args = [vec![p.of.expr()], bounds.to_vec()].concat();
        let value = super::call("strided_slice", args, Attrs::default(), out.span)?;
        out.bind(b.var.name(), value)
    }

    /// Another size along the axis that an attribute names.
    pub(super) fn along_axis(&mut self, b: &Binding, c: &Call, rank: usize, out: &mut Out) -> Option<RVar> {
        let x = c.args.first()?.clone();
        let axis = place(rank, c.attrs.int("axis")?).filter(|_| self.is_last(&x))?;
        let x = self.as_last(&x, out)?;
        let mut c = c.clone();
        c.attrs.set("axis", AttrValue::Int(axis));
        c.args[0] = x.expr();
        out.bind(b.var.name(), Expr::new(ExprKind::Call(c), out.span))
    }

    /// More elements around, or fewer.
    pub(super) fn padded(&mut self, b: &Binding, c: &Call, rank: usize, out: &mut Out) -> Option<RVar> {
        let x = self.last_of(c.args.first()?)?;
        let widths = c.attrs.ints("pad_width").filter(|w| w.len() == 2 * rank)?;
        let mut placed = vec![0; 8];
        for (axis, w) in widths.chunks(2).enumerate().filter(|(_, w)| w.iter().any(|n| *n != 0)) {
            let at = 2 * place(rank, axis as i64)? as usize;
            placed[at..at + 2].copy_from_slice(w);
        }
        let mut c = c.clone();
        c.attrs.set("pad_width", super::ints(&placed));
        c.args[0] = x.expr();
        out.bind(b.var.name(), Expr::new(ExprKind::Call(c), out.span))
    }

    /// The same element along some axes: pictures of what has one row and column for each, and others.
    pub(super) fn broadcast(&mut self, b: &Binding, c: &Call, dims: &[PrimExpr], out: &mut Out) -> Option<RVar> {
        let x = c.args.first()?.clone();
        let [n, channels, rows, columns] = dims else { return None };
        let own = self.shape(&x, out).filter(|s| s.len() == 4)?;
        let point = own[2].is_int(1) && own[3].is_int(1);
        let x = match self.last_of(&x) {
            Some(x) => x,
            None if point => self.as_point(&x, out)?,
            None => return None,
        };
        let to = [n, rows, columns, channels].map(Clone::clone).to_vec();
        let args = vec![x.expr(), Expr::new(ExprKind::Shape(to), out.span)];
        out.bind(b.var.name(), super::call("broadcast_to", args, Attrs::default(), out.span)?)
    }

    /// Pictures of another size.
    pub(super) fn resize(&mut self, b: &Binding, c: &Call, out: &mut Out) -> Option<RVar> {
        let x = c.args.first().filter(|x| self.is_last(x))?.clone();
        let mut c = c.clone();
        // Regions of interest go by axis, where they are read.
        let region = c.attrs.get("roi").and_then(|r| r.as_list()).is_some_and(|r| !r.is_empty());
        let read = c.attrs.str("coordinate_transformation_mode") == Some("tf_crop_and_resize");
        if region && read || c.attrs.str("layout") != Some("NCHW") {
            return None;
        }
        c.attrs.set("layout", AttrValue::Str("NHWC".into()));
        c.args[0] = self.as_last(&x, out)?.expr();
        out.bind(b.var.name(), Expr::new(ExprKind::Call(c), out.span))
    }

    /// [`Pass::piece`] for a binding, with the form that the program names.
    pub(super) fn field(&mut self, b: &Binding, dataflow: bool, typed: &mut super::Typed) -> Option<Vec<Binding>> {
        let e = b.expr();
        let ExprKind::TupleGetItem(of, i) = e.kind() else { return None };
        let StructInfo::Tensor(t) = typed.sinfo.get(&b.var)?.clone() else { return None };
        let known = super::dims_of(&t).filter(|d| (3..=5).contains(&d.len()));
        let shape = t.known_dims().filter(|d| known.is_some() || (3..=4).contains(&d.len()))?;
        let mut out = Out { typed, dataflow, span: e.span(), list: vec![] };
        let new = self.piece(b, of, *i, &mut out)?;
        match known {
            Some(dims) => self.bound(b, new, &dims, out),
            None => self.open_bound(b, new, shape, out),
        }
    }
}
