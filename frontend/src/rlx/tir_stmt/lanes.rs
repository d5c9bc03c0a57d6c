//! Vectorised loops whose lanes meet in memory, or whose statements run lane by lane: TVM makes a vector of each statement.
//!
//! A loop whose lanes have elements of their own alone stays one loop. Any other is taken apart: each statement is done for all
//! lanes before the next, loops and branches around statements that all lanes share run once, and what TVM has no vector for runs
//! lane by lane.
//!
//! Source: TVM src/tirx/transform/vectorize_loop.cc.

use super::vectors::VECTOR;
use super::*;
use relax_ir::prim::{BinOp, Intrin};
use std::collections::HashSet;

/// What the loops of one function share.
struct Kernel<'k> {
    /// Scalars with a name (`v = A[i]`): memory for TVM, lets here.
    scalars: &'k [Var],
    /// The buffers that regions are parts of and views show.
    regions: HashMap<Buffer, Buffer>,
}

/// A vectorised loop.
struct Lanes<'k> {
    kernel: &'k Kernel<'k>,
    var: Var,
    min: PrimExpr,
    extent: PrimExpr,
    annotations: Vec<(String, AttrValue)>,
    span: Span,
}

/// One access of a buffer in the loop's body.
struct Access {
    buffer: Buffer,
    root: Buffer,
    indices: Vec<PrimExpr>,
    stored: bool,
}

/// The body with its vectorised loops taken apart where that differs from one lane after the other. The error is an extent that
/// TVM has no vector for.
pub fn in_lanes(body: &TStmt, scalars: &[Var], views: &[View]) -> Result<TStmt, Span> {
    let mut regions: HashMap<Buffer, Buffer> = views.iter().map(|v| (v.buffer.clone(), v.of.base.clone())).collect();
    let mut vectorised = false;
    body.walk(&mut |s| match s.kind() {
        TKind::Block(b) => {
            regions.extend(b.match_buffers.iter().map(|m| (m.buffer.clone(), m.source.buffer.clone())));
        }
        TKind::For { kind: ForKind::Vectorized, .. } => vectorised = true,
        _ => {}
    });
    if !vectorised {
        return Ok(body.clone());
    }
    let kernel = Kernel { scalars, regions };
    let mut refused = None;
    let body = body.rewrite(&mut |e| e.clone(), &mut |s| match s.kind() {
        TKind::For { var, min, extent, kind: ForKind::Vectorized, annotations, body }
            if extent.as_int().is_some_and(|n| n > 1) =>
        {
            let (kernel, annotations) = (&kernel, annotations.clone());
            let (var, min, extent) = (var.clone(), min.clone(), extent.clone());
            let lanes = Lanes { kernel, var, min, extent, annotations, span: s.span() };
            refused = refused.or(lanes.extent_in_lanes(body));
            if lanes.meet(body) {
                lanes.each(body)
            } else {
                s
            }
        }
        _ => s,
    });
    refused.map_or(Ok(body), Err)
}

impl Kernel<'_> {
    fn root(&self, buffer: &Buffer) -> Buffer {
        let mut at = buffer;
        while let Some(of) = self.regions.get(at) {
            at = of;
        }
        at.clone()
    }
}

impl Lanes<'_> {
    fn in_lanes(&self, e: &PrimExpr) -> bool {
        e.uses(&self.var)
    }

    /// Has TVM no vector for this?
    fn lane_by_lane(&self, e: &PrimExpr) -> bool {
        let mut found = false;
        e.walk(&mut |e| {
            found |= match e.kind() {
                PrimKind::IfThenElse(cond, ..) => self.in_lanes(cond),
                PrimKind::Call(f, args) => !has_vectors(*f) && args.iter().any(|a| self.in_lanes(a)),
                PrimKind::Broadcast(value) => self.in_lanes(value),
                _ => false,
            }
        });
        found
    }

    /// A loop inside whose extent TVM would compute lane by lane.
    fn extent_in_lanes(&self, body: &TStmt) -> Option<Span> {
        let mut found = None;
        body.walk(&mut |s| {
            if let TKind::For { extent, .. } = s.kind() {
                if self.lane_by_lane(extent) {
                    found.get_or_insert(s.span());
                }
            }
        });
        found
    }

    /// Do lanes share elements, or lets and conditions that tell?
    fn meet(&self, body: &TStmt) -> bool {
        let mut accesses = vec![];
        // Variables that differ between two rounds of one lane.
        let mut inner = HashSet::new();
        let mut apart = false;
        self.look(body, &HashMap::new(), &mut accesses, &mut inner, &mut apart);
        if apart {
            return true;
        }
        let stored: HashSet<&Buffer> = accesses.iter().filter(|a| a.stored).map(|a| &a.root).collect();
        stored.into_iter().any(|root| {
            let all: Vec<&Access> = accesses.iter().filter(|a| a.root == *root).collect();
            if all.len() == 1 && inner.is_empty() {
                return false;
            }
            let first = all[0];
            let own = |d: usize, e: &PrimExpr| {
                let fixed = !e.vars().iter().any(|v| inner.contains(v)) && !reads_memory(e);
                fixed && self.linear(e) && all.iter().all(|a| a.indices[d] == *e)
            };
            let one_buffer = all.iter().all(|a| a.buffer == first.buffer);
            !one_buffer || !first.indices.iter().enumerate().any(|(d, e)| own(d, e))
        })
    }

    /// The accesses below `s`, where axes of blocks have the values of `known`.
    fn look(
        &self,
        s: &TStmt,
        known: &HashMap<Var, PrimExpr>,
        accesses: &mut Vec<Access>,
        inner: &mut HashSet<Var>,
        apart: &mut bool,
    ) {
        let mut note = |buffer: &Buffer, indices: &[PrimExpr], stored: bool| {
            let indices = indices.iter().map(|i| i.substitute(known)).collect();
            accesses.push(Access { buffer: buffer.clone(), root: self.kernel.root(buffer), indices, stored });
        };
        for e in s.exprs() {
            e.walk(&mut |e| {
                if let PrimKind::BufferLoad(b, indices) = e.kind() {
                    note(b, indices, false);
                }
            });
        }
        match s.kind() {
            TKind::Store { buffer, indices, .. } => note(buffer, indices, true),
            TKind::For { var, .. } => {
                inner.insert(var.clone());
            }
            TKind::Let { var, value, body } => {
                let value = value.substitute(known);
                if self.kernel.scalars.contains(var) || self.lane_by_lane(&value) {
                    *apart |= self.in_lanes(&value);
                    inner.insert(var.clone());
                } else {
                    let mut inside = known.clone();
                    inside.insert(var.clone(), value);
                    self.look(body, &inside, accesses, inner, apart);
                    return;
                }
            }
            TKind::Block(b) => {
                let mut inside = known.clone();
                inside.extend(b.axes.iter().map(|a| (a.var.clone(), a.binding.substitute(known))));
                s.children().into_iter().for_each(|c| self.look(c, &inside, accesses, inner, apart));
                return;
            }
            TKind::CallPacked { .. } => *apart = true,
            _ => {}
        }
        s.children().into_iter().for_each(|c| self.look(c, known, accesses, inner, apart));
    }

    /// Has this another value in each lane: a multiple of the lane's number and something that all lanes share?
    fn linear(&self, e: &PrimExpr) -> bool {
        match e.kind() {
            PrimKind::Var(v) => *v == self.var,
            PrimKind::Cast(v) => e.dtype().bits >= v.dtype().bits && self.linear(v),
            PrimKind::Binary(BinOp::Add | BinOp::Sub, a, b) => {
                self.linear(a) && !self.in_lanes(b) || self.linear(b) && !self.in_lanes(a)
            }
            PrimKind::Binary(BinOp::Mul, a, b) => {
                let number = |e: &PrimExpr| e.as_int().is_some_and(|n| n != 0);
                self.linear(a) && number(b) || self.linear(b) && number(a)
            }
            _ => false,
        }
    }

    /// `s` in each lane, one after the other.
    fn round(&self, s: &TStmt) -> TStmt {
        let var = Var::with_span(self.var.name(), self.var.dtype(), self.span);
        let known = HashMap::from([(self.var.clone(), var.expr())]);
        let body = s.rewrite(&mut |e| e.substitute(&known), &mut |s| s);
        let (min, extent, annotations) = (self.min.clone(), self.extent.clone(), self.annotations.clone());
        TStmt::at(TKind::For { var, min, extent, kind: ForKind::Vectorized, annotations, body }, self.span)
    }

    /// `s` in the last lane.
    fn last(&self, s: &TStmt) -> TStmt {
        let known = HashMap::from([(self.var.clone(), self.last_lane())]);
        s.rewrite(&mut |e| e.substitute(&known), &mut |s| s)
    }

    fn last_lane(&self) -> PrimExpr {
        let end = PrimExpr::binary(BinOp::Add, self.min.clone(), self.extent.clone());
        PrimExpr::binary(BinOp::Sub, end, PrimExpr::one(self.extent.dtype()))
    }

    /// `s` in all lanes at once.
    fn each(&self, s: &TStmt) -> TStmt {
        let at = |kind: TKind| TStmt::at(kind, s.span());
        match s.kind() {
            TKind::Seq(list) => TStmt::seq(list.iter().map(|s| self.each(s)).collect()),
            TKind::Store { .. } => self.store(s),
            TKind::Let { var, value, body } => self.binding(var, value, body, s.span()),
            TKind::Alloc { buffer, .. } if is_one_vector(buffer) => self.round(s),
            TKind::Alloc { buffer, body } => at(TKind::Alloc { buffer: buffer.clone(), body: self.each(body) }),
            TKind::Attr { node, key, value, body } => {
                at(TKind::Attr { node: node.clone(), key: key.clone(), value: value.clone(), body: self.each(body) })
            }
            TKind::If { cond, then, otherwise } if !self.in_lanes(cond) => {
                let (then, otherwise) = (self.each(then), otherwise.as_ref().map(|s| self.each(s)));
                at(TKind::If { cond: cond.clone(), then, otherwise })
            }
            TKind::For { var, min, extent, kind, annotations, body } if !self.in_lanes(extent) => {
                let (var, min, extent) = (var.clone(), min.clone(), extent.clone());
                let (kind, annotations, body) = (kind.clone(), annotations.clone(), self.each(body));
                at(TKind::For { var, min, extent, kind, annotations, body })
            }
            TKind::Block(b) => self.each(&unblocked(b)),
            _ if s.exprs().into_iter().any(|e| self.in_lanes(e)) => self.round(s),
            _ => s.clone(),
        }
    }

    /// A let of vectors has each lane's value, a scalar with a name that of the last.
    fn binding(&self, var: &Var, value: &PrimExpr, body: &TStmt, span: Span) -> TStmt {
        let at = |value: PrimExpr, body: TStmt| TStmt::at(TKind::Let { var: var.clone(), value, body }, span);
        if !self.in_lanes(value) {
            return at(value.clone(), self.each(body));
        }
        if self.kernel.scalars.contains(var) || self.lane_by_lane(value) {
            let last = value.substitute(&HashMap::from([(self.var.clone(), self.last_lane())]));
            return at(last, self.each(body));
        }
        let values = |with: &PrimExpr| {
            let known = HashMap::from([(var.clone(), with.clone())]);
            self.each(&body.rewrite(&mut |e| e.substitute(&known), &mut |s| s))
        };
        if !reads_memory(value) {
            return values(value);
        }
        let (kept, place) = self.room(var.name(), value.dtype());
        let fill = self.round(&TStmt::store(&kept, vec![place.clone()], value.clone()));
        let rest = values(&kept.at(vec![place]));
        TStmt::at(TKind::Alloc { buffer: kept, body: TStmt::seq(vec![fill, rest]) }, span)
    }

    /// Memory with an element for each lane, and which is this lane's.
    fn room(&self, name: &str, dtype: DType) -> (Buffer, PrimExpr) {
        let buffer = Buffer::new(name, vec![self.extent.clone()], dtype);
        (buffer, PrimExpr::binary(BinOp::Sub, self.var.expr(), self.min.clone()))
    }

    /// All lanes read before the first writes; of those that write to one element the last one stays.
    fn store(&self, s: &TStmt) -> TStmt {
        let TKind::Store { buffer, indices, value } = s.kind() else { return s.clone() };
        let parts = || indices.iter().chain([value]);
        if !parts().any(|e| self.in_lanes(e)) {
            return s.clone();
        }
        if parts().any(|e| self.lane_by_lane(e)) {
            return self.round(s);
        }
        if !indices.iter().any(|i| self.in_lanes(i)) {
            return self.last(s);
        }
        let root = self.kernel.root(buffer);
        let own = indices.iter().any(|i| self.linear(i));
        let elsewhere = |e: &PrimExpr| {
            let mut found = false;
            e.walk(&mut |e| {
                if let PrimKind::BufferLoad(b, at) = e.kind() {
                    found |= self.kernel.root(b) == root && !(own && b == buffer && at[..] == indices[..]);
                }
            });
            found
        };
        let mut made = vec![];
        let mut first = vec![];
        let mut before = |e: &PrimExpr| {
            if !elsewhere(e) {
                return e.clone();
            }
            let (kept, place) = self.room("lanes", e.dtype());
            first.push(self.round(&TStmt::store(&kept, vec![place.clone()], e.clone())));
            made.push(kept.clone());
            kept.at(vec![place])
        };
        let indices = indices.iter().map(&mut before).collect();
        let value = before(value);
        let kind = TKind::Store { buffer: buffer.clone(), indices, value };
        first.push(self.round(&TStmt::at(kind, s.span())));
        let body = TStmt::seq(first);
        made.into_iter().fold(body, |body, buffer| TStmt::at(TKind::Alloc { buffer, body }, s.span()))
    }
}

/// A block as the statements that it stands for.
fn unblocked(b: &Block) -> TStmt {
    let begins = |a: &BlockAxis| PrimExpr::binary(BinOp::Eq, a.var.expr(), a.min.clone());
    let both = |a: PrimExpr, b: PrimExpr| PrimExpr::binary(BinOp::And, a, b);
    let first = b.axes.iter().filter(|a| a.kind == IterKind::Reduce).map(begins).reduce(both);
    let init = b.init.clone().map(|init| match first {
        Some(first) => TStmt::if_then(first, init),
        None => init,
    });
    let mut body = TStmt::seq(init.into_iter().chain([b.body.clone()]).collect());
    for m in &b.match_buffers {
        body = within(&body, m);
    }
    let known: HashMap<Var, PrimExpr> = b.axes.iter().map(|a| (a.var.clone(), a.binding.clone())).collect();
    body = body.rewrite(&mut |e| e.substitute(&known), &mut |s| s);
    for buffer in b.alloc_buffers.iter().rev() {
        body = TStmt::new(TKind::Alloc { buffer: buffer.clone(), body });
    }
    match &b.predicate {
        Some(holds) => TStmt::if_then(holds.clone(), body),
        None => body,
    }
}

/// The statement with a region's elements as those of the buffer that it is a part of.
fn within(body: &TStmt, m: &MatchBufferRegion) -> TStmt {
    let place = |indices: &[PrimExpr]| -> Vec<PrimExpr> {
        let begins = m.source.region.iter().map(|(min, _)| min.clone());
        let whole = m.source.region.len().saturating_sub(indices.len());
        let add = |(d, min): (usize, PrimExpr)| match d.checked_sub(whole) {
            Some(k) => PrimExpr::binary(BinOp::Add, min.clone(), indices[k].clone().cast(min.dtype())),
            None => min,
        };
        begins.enumerate().map(add).collect()
    };
    let load = |b: &Buffer, at: &[PrimExpr]| (*b == m.buffer).then(|| m.source.buffer.at(place(at)));
    body.replace_loads(&load).rewrite(&mut |e| e.clone(), &mut |s| match s.kind() {
        TKind::Store { buffer, indices, value } if *buffer == m.buffer => {
            let (buffer, indices) = (m.source.buffer.clone(), place(indices));
            TStmt::at(TKind::Store { buffer, indices, value: value.clone() }, s.span())
        }
        _ => s,
    })
}

/// The memory that holds one vector between its reads and its writes.
fn is_one_vector(b: &Buffer) -> bool {
    b.name == VECTOR && b.span == Span::NONE
}

fn reads_memory(e: &PrimExpr) -> bool {
    let mut found = false;
    e.walk(&mut |e| found |= matches!(e.kind(), PrimKind::BufferLoad(..)));
    found
}

/// Does TVM make vectors of this function (`TVectorizable`)?
fn has_vectors(f: Intrin) -> bool {
    use Intrin::*;
    !matches!(
        f,
        Log1p
            | Rsqrt
            | Asin
            | Acos
            | Atan
            | Atan2
            | Asinh
            | Acosh
            | Atanh
            | Erf
            | Fmod
            | Hypot
            | CopySign
            | NextAfter
            | LdExp
            | NearbyInt
            | IsNan
            | IsInf
            | IsFinite
            | Clz
    )
}
