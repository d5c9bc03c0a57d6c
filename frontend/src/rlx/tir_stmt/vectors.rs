//! Stores of vectors (`C[0:8] = A[0:8]`, `C[T.Ramp(0, 1, 8)] = ..`) as loops over their lanes.

use super::*;
use relax_ir::prim::BinOp;

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
        let whole = Buffer::new("vector", vec![extent.clone()], buffer.dtype().element());
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

/// The body of a vectorised loop whose statements share elements other than lane by lane: one statement is done for all lanes before
/// the next; into an element that all lanes write goes what the last one has, and so do scalars with a name (`cells`). `round` makes
/// a loop. `None` where one loop does.
///
/// Source: TVM src/tirx/transform/vectorize_loop.cc, which makes vectors of each statement.
pub(super) fn lanes_together(
    var: &Var,
    last: &PrimExpr,
    body: &TStmt,
    cells: &[Var],
    round: &dyn Fn(Var, TStmt) -> TStmt,
) -> Option<TStmt> {
    let of = |e: &PrimExpr| e.vars().contains(var);
    if let TKind::Let { var: name, value, body: inner } = body.kind() {
        let known = HashMap::from([(var.clone(), last.clone())]);
        let rest = lanes_together(var, last, inner, cells, round);
        let rest = if of(value) { Some(rest.unwrap_or_else(|| round(var.clone(), inner.clone()))) } else { rest };
        let kind = TKind::Let { var: name.clone(), value: value.substitute(&known), body: rest? };
        return cells.contains(name).then(|| TStmt::at(kind, body.span()));
    }
    if let TKind::Alloc { buffer, body: inner } = body.kind() {
        let inner = lanes_together(var, last, inner, cells, round)?;
        return Some(TStmt::at(TKind::Alloc { buffer: buffer.clone(), body: inner }, body.span()));
    }
    let list: Vec<TStmt> = match body.kind() {
        TKind::Seq(list) => list.clone(),
        _ => vec![body.clone()],
    };
    // Memory holds for the statements behind it.
    if let Some((before, (TKind::Alloc { buffer, body }, span))) =
        list.split_last().map(|(s, before)| (before, (s.kind(), s.span())))
    {
        let body = TStmt::seq(before.iter().chain([body]).cloned().collect());
        let whole = TStmt::at(TKind::Alloc { buffer: buffer.clone(), body }, span);
        return lanes_together(var, last, &whole, cells, round);
    }
    let mut accesses: Vec<(usize, bool, Buffer, Vec<PrimExpr>)> = vec![];
    for (k, s) in list.iter().enumerate() {
        let TKind::Store { buffer, indices, value } = s.kind() else { return None };
        accesses.push((k, true, buffer.clone(), indices.clone()));
        for e in indices.iter().chain([value]) {
            e.walk(&mut |e| {
                if let PrimKind::BufferLoad(b, at) = e.kind() {
                    accesses.push((k, false, b.clone(), at.to_vec()));
                }
            });
        }
    }
    let apart = accesses.iter().filter(|(_, written, ..)| *written).any(|(k, _, buffer, indices)| {
        let lanes = indices.iter().any(of);
        let mut others = accesses.iter().filter(|(j, written, b, _)| b == buffer && (j != k || !written));
        others.any(|(j, _, _, at)| if lanes { j != k && at != indices } else { true })
    });
    if !apart {
        return None;
    }
    let each = list.iter().map(|s| match s.kind() {
        TKind::Store { indices, .. } if !indices.iter().any(of) => {
            let known = HashMap::from([(var.clone(), last.clone())]);
            s.rewrite(&mut |e| e.substitute(&known), &mut |s| s)
        }
        _ => {
            let own = Var::with_span(var.name(), var.dtype(), s.span());
            let known = HashMap::from([(var.clone(), own.expr())]);
            round(own, s.rewrite(&mut |e| e.substitute(&known), &mut |s| s))
        }
    });
    Some(TStmt::seq(each.collect()))
}
