//! Vectors made of lanes (`T.Shuffle`, `T.vectorcombine`), and memory of vectors: a buffer of vectors is one of their
//! elements, with a dim more.

use super::*;
use relax_ir::prim::BinOp;

/// Lanes of a vector that is made of single ones.
const MOST_LANES: usize = 64;

/// A vector of these scalars, which are of one type. `None` where there are none.
fn gathered(lanes: Vec<PrimExpr>) -> Option<PrimExpr> {
    let n = u16::try_from(lanes.len()).ok()?;
    let number = PrimExpr::int(DType::I32, 0).ramp(PrimExpr::int(DType::I32, 1), n);
    let mut rest = lanes.into_iter().enumerate().rev();
    let (_, last) = rest.next()?;
    if n == 1 {
        return Some(last);
    }
    Some(rest.fold(last.broadcast(n), |out, (k, lane)| {
        let here = PrimExpr::int(DType::I32, k as i64).broadcast(n);
        let here = PrimExpr::raw_binary(BinOp::Eq, number.clone(), here);
        let dtype = out.dtype();
        PrimExpr::raw(PrimKind::IfThenElse(here, lane.broadcast(n), out), dtype)
    }))
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
