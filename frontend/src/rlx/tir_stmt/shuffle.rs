//! Vectors made of lanes (`T.Shuffle`, `T.vectorcombine`), and memory of vectors: a buffer of vectors is one of their
//! elements, with a dim more.

use super::*;
use relax_ir::prim::BinOp;

/// Lanes of a vector that is made of single ones.
const MOST_LANES: usize = 1024;

/// A vector of these scalars, which are of one type. `None` where there are none.
fn gathered(lanes: Vec<PrimExpr>) -> Option<PrimExpr> {
    let n = u16::try_from(lanes.len()).ok()?;
    if n <= 1 {
        return lanes.into_iter().next();
    }
    Some(chosen(&lanes, 0, n))
}

/// The lanes from number `from` on, by halves, as a vector of `n`.
fn chosen(lanes: &[PrimExpr], from: usize, n: u16) -> PrimExpr {
    let (left, right) = match lanes {
        [one] => return one.clone().broadcast(n),
        _ => lanes.split_at(lanes.len() / 2),
    };
    let middle = PrimExpr::int(DType::I32, (from + left.len()) as i64).broadcast(n);
    let before = PrimExpr::raw_binary(BinOp::Lt, all_lanes(n), middle);
    let (left, right) = (chosen(left, from, n), chosen(right, from + left.len(), n));
    let dtype = left.dtype();
    PrimExpr::raw(PrimKind::IfThenElse(before, left, right), dtype)
}

/// An index of several vectors as one of their elements: each lane `of` times. `None` for what is no sum of lanes.
fn stretched(e: &PrimExpr, of: u16) -> Option<PrimExpr> {
    let t = e.dtype();
    let lanes = t.lanes.checked_mul(of)?;
    Some(match e.kind() {
        _ if t.lanes == 1 => e.clone(),
        PrimKind::Broadcast(v) => v.clone().broadcast(lanes),
        PrimKind::Ramp(base, stride) => {
            let which = PrimExpr::raw_binary(
                BinOp::FloorDiv,
                all_lanes(lanes),
                PrimExpr::int(DType::I32, of.into()).broadcast(lanes),
            );
            let which = which.cast(stride.dtype().with_lanes(lanes));
            let step = PrimExpr::raw_binary(BinOp::Mul, which, stride.clone().broadcast(lanes));
            PrimExpr::raw_binary(BinOp::Add, base.clone().broadcast(lanes), step)
        }
        PrimKind::Cast(v) => PrimExpr::raw(PrimKind::Cast(stretched(v, of)?), t.with_lanes(lanes)),
        PrimKind::Binary(op, a, b) => PrimExpr::raw_binary(*op, stretched(a, of)?, stretched(b, of)?),
        _ => return None,
    })
}

impl<'a> Cx<'a> {
    /// `T.Shuffle(vectors, indices)`: lanes of the vectors, which are counted one after the other.
    pub fn shuffle(&mut self, vectors: &[Expr<'a>], indices: &[Expr<'a>], span: Span) -> Option<PrimExpr> {
        let vectors = vectors.iter().map(|v| self.prim(v)).collect::<Option<Vec<_>>>()?;
        self.one_element_type(&vectors, span)?;
        let mut lanes = vec![];
        for index in indices {
            let at = self.int(index)?;
            lanes.push(self.numbered_lane(&vectors, at, index.span)?);
        }
        self.vector_of(lanes, span)
    }

    /// `T.vectorcombine(dtype, a, b)`
    pub fn combined(&mut self, dtype: DType, a: PrimExpr, b: PrimExpr, span: Span) -> Option<PrimExpr> {
        let both = [a, b];
        self.one_element_type(&both, span)?;
        let total: i64 = both.iter().map(|v| i64::from(v.dtype().lanes)).sum();
        if i64::from(dtype.lanes) != total || dtype.element() != both[0].dtype().element() {
            let message = format!("{dtype} is not {} and {}", both[0].dtype(), both[1].dtype());
            return self.error("type", span, message);
        }
        if total as usize > MOST_LANES {
            return self.vector_of(vec![], span);
        }
        let lanes = (0..total).map(|at| self.numbered_lane(&both, at, span)).collect::<Option<Vec<_>>>()?;
        self.vector_of(lanes, span)
    }

    fn vector_of(&mut self, lanes: Vec<PrimExpr>, span: Span) -> Option<PrimExpr> {
        match gathered(lanes).filter(|v| usize::from(v.dtype().lanes) <= MOST_LANES) {
            Some(v) => Some(v.with_span(span)),
            None => self.unsupported("tir", span, format!("a vector of single lanes has from 1 to {MOST_LANES}")),
        }
    }

    fn one_element_type(&mut self, vectors: &[PrimExpr], span: Span) -> Option<()> {
        let Some(first) = vectors.first() else { return self.error("argument", span, "a vector is needed here") };
        match vectors.iter().find(|v| v.dtype().element() != first.dtype().element()) {
            Some(other) => {
                let (s, t) = (first.dtype(), other.dtype());
                self.error("type", span, format!("the vectors are {s} and {t}, one type is needed here"))
            }
            None => Some(()),
        }
    }

    fn numbered_lane(&mut self, vectors: &[PrimExpr], mut at: i64, span: Span) -> Option<PrimExpr> {
        for v in vectors {
            let lanes = i64::from(v.dtype().lanes);
            if (0..lanes).contains(&at) {
                return match lanes_of(v, at as u16, 1) {
                    Some(lane) => Some(lane),
                    None => self.unsupported("tir", span, "a lane of such a vector is not supported"),
                };
            }
            at -= lanes;
        }
        self.error("argument", span, "the vectors have no lane of this number")
    }

    /// The indices of all `own` lanes of the vectors at `indices`, which are one or several.
    pub fn whole_vectors(&mut self, mut indices: Vec<PrimExpr>, own: u16, span: Span) -> Option<Vec<PrimExpr>> {
        let several = indices.iter().map(|i| i.dtype().lanes).max().unwrap_or(1);
        if several == 1 {
            indices.push(all_lanes(own));
            return Some(indices);
        }
        let Some(lanes) = several.checked_mul(own) else {
            return self.error("argument", span, "a vector has from 2 to 65535 lanes");
        };
        let Some(mut all) = indices.iter().map(|i| stretched(i, own)).collect::<Option<Vec<_>>>() else {
            return self.unsupported("tir", span, "several vectors at such an index are not supported");
        };
        let own = PrimExpr::int(DType::I32, own.into()).broadcast(lanes);
        all.push(PrimExpr::raw_binary(BinOp::FloorMod, all_lanes(lanes), own));
        Some(all)
    }

    /// The buffer of the elements of a buffer of vectors.
    pub(super) fn lanes_apart(&mut self, b: Buffer, span: Span) -> Option<Buffer> {
        if b.dtype().lanes == 1 {
            return Some(b);
        }
        if !b.strides.is_empty() || b.elem_offset.is_some() {
            return self.unsupported("tir", span, "a buffer of vectors with strides or an offset is not supported");
        }
        let mut shape = b.shape.clone();
        shape.push(PrimExpr::int(DType::I32, b.dtype().lanes.into()));
        let apart = Buffer::from_parts(&b.name, shape, b.dtype().element(), vec![], None, &b.scope, span);
        self.names.vectors.insert(apart.id());
        Some(apart)
    }

    /// Lanes of the elements of a buffer of vectors.
    pub fn vector_lanes(&self, b: &Buffer) -> Option<u16> {
        let known = self.names.vectors.contains(&b.id());
        b.shape.last().filter(|_| known).and_then(PrimExpr::as_int).and_then(|n| u16::try_from(n).ok())
    }

    /// Does this buffer stand for the vector in it?
    pub fn vector_cell(&self, b: &Buffer) -> bool {
        b.ndim() == 1 && self.vector_lanes(b).is_some()
    }
}

/// The index that says all lanes.
pub fn all_lanes(lanes: u16) -> PrimExpr {
    PrimExpr::int(DType::I32, 0).ramp(PrimExpr::int(DType::I32, 1), lanes)
}
