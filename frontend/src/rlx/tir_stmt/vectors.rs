//! Stores of vectors (`C[0:8] = A[0:8]`, `C[T.Ramp(0, 1, 8)] = ..`) as loops over their lanes.

use super::*;
use relax_ir::prim::BinOp;

/// The name of the memory that holds a vector between its reads and its writes.
pub(super) const VECTOR: &str = "vector";

impl<'a> Cx<'a> {
    /// `buffer[indices] = value` for vectors: all lanes of the value are read before the first is written.
    pub(super) fn vector_store(
        &mut self,
        buffer: Buffer,
        indices: Vec<PrimExpr>,
        value: PrimExpr,
        span: Span,
    ) -> Option<TStmt> {
        let lanes = value.dtype().lanes;
        let var = Var::with_span("lane", DType::I32, span);
        let at = |e: &PrimExpr| lane(e, &var.expr());
        let Some(value) = at(&value) else {
            return self.unsupported("tir", span, "a vector that a name stands for cannot be stored");
        };
        let Some(places) = indices.iter().map(at).collect::<Option<Vec<_>>>() else {
            return self.unsupported("tir", span, "a vector that a name stands for is no index");
        };
        let extent = PrimExpr::int(DType::I32, lanes as i64);
        let mut elsewhere = false;
        value.walk(&mut |e| {
            if let PrimKind::BufferLoad(b, idx) = e.kind() {
                elsewhere |= *b == buffer && idx[..] != places[..];
            }
        });
        let over = |body: TStmt| TStmt::at(TStmt::for_serial(&var, extent.clone(), body).kind().clone(), span);
        if !elsewhere {
            return Some(over(TStmt::at(TKind::Store { buffer, indices: places, value }, span)));
        }
        let whole = Buffer::new(VECTOR, vec![extent.clone()], buffer.dtype().element());
        let read = over(TStmt::store(&whole, vec![var.expr()], value));
        let value = whole.at(vec![var.expr()]);
        let write = over(TStmt::at(TKind::Store { buffer, indices: places, value }, span));
        Some(TStmt::at(TKind::Alloc { buffer: whole, body: TStmt::seq(vec![read, write]) }, span))
    }
}

/// One lane of a vector. `None` where a variable is one.
fn lane(e: &PrimExpr, i: &PrimExpr) -> Option<PrimExpr> {
    let d = e.dtype();
    if d.lanes == 1 {
        return Some(e.clone());
    }
    Some(match e.kind() {
        PrimKind::Var(_) | PrimKind::Let(..) => return None,
        PrimKind::Ramp(base, stride) => {
            let step = PrimExpr::binary(BinOp::Mul, i.clone().cast(stride.dtype()), stride.clone());
            PrimExpr::binary(BinOp::Add, base.clone(), step)
        }
        PrimKind::Broadcast(v) => v.clone(),
        PrimKind::Cast(v) => lane(v, i)?.cast(d.element()),
        PrimKind::Reinterpret(v) if v.dtype().lanes == d.lanes => lane(v, i)?.reinterpret(d.element()),
        PrimKind::Call(f, args) => {
            let args = args.iter().map(|a| lane(a, i)).collect::<Option<Vec<_>>>()?;
            PrimExpr::raw(PrimKind::Call(*f, args.into()), d.element())
        }
        PrimKind::Binary(..)
        | PrimKind::Not(_)
        | PrimKind::Neg(_)
        | PrimKind::Select(..)
        | PrimKind::IfThenElse(..)
        | PrimKind::BufferLoad(..) => {
            let parts = e.children().into_iter().map(|c| lane(c, i)).collect::<Option<Vec<_>>>()?;
            e.with_children(parts)
        }
        _ => return None,
    })
}

/// `count` lanes of a vector from number `from` on; one is a scalar. `None` where a variable is a vector.
pub fn lanes_of(e: &PrimExpr, from: u16, count: u16) -> Option<PrimExpr> {
    let d = e.dtype();
    if d.lanes == 1 {
        return Some(e.clone());
    }
    let part = |e: &PrimExpr| lanes_of(e, from, count);
    let dtype = d.with_lanes(count);
    Some(match e.kind() {
        PrimKind::Var(_) | PrimKind::Let(..) => return None,
        PrimKind::Ramp(base, stride) => {
            let step = PrimExpr::binary(BinOp::Mul, PrimExpr::int(stride.dtype(), from.into()), stride.clone());
            let base = PrimExpr::binary(BinOp::Add, base.clone(), step);
            if count == 1 {
                base
            } else {
                base.ramp(stride.clone(), count)
            }
        }
        PrimKind::Broadcast(v) if count == 1 => v.clone(),
        PrimKind::Broadcast(v) => v.clone().broadcast(count),
        PrimKind::Cast(v) => PrimExpr::raw(PrimKind::Cast(part(v)?), dtype),
        PrimKind::Reinterpret(v) if v.dtype().lanes == d.lanes => PrimExpr::raw(PrimKind::Reinterpret(part(v)?), dtype),
        PrimKind::Call(f, args) => {
            let args = args.iter().map(part).collect::<Option<Vec<_>>>()?;
            PrimExpr::raw(PrimKind::Call(*f, args.into()), dtype)
        }
        PrimKind::BufferLoad(buffer, indices) => {
            let indices = indices.iter().map(part).collect::<Option<Vec<_>>>()?;
            PrimExpr::raw(PrimKind::BufferLoad(buffer.clone(), indices.into()), dtype)
        }
        PrimKind::Binary(..)
        | PrimKind::Not(_)
        | PrimKind::Neg(_)
        | PrimKind::Select(..)
        | PrimKind::IfThenElse(..) => {
            let parts = e.children().into_iter().map(part).collect::<Option<Vec<_>>>()?;
            e.with_children(parts)
        }
        _ => return None,
    })
}
