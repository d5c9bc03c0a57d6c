//! Walks over expressions.

use super::*;
use std::collections::HashMap;

impl PrimExpr {
    /// Direct operands, left to right.
    pub fn children(&self) -> Vec<&PrimExpr> {
        match self.kind() {
            PrimKind::Var(_) | PrimKind::Int(_) | PrimKind::Float(_) | PrimKind::Str(_) => vec![],
            PrimKind::Cast(a)
            | PrimKind::Reinterpret(a)
            | PrimKind::Not(a)
            | PrimKind::Neg(a)
            | PrimKind::Broadcast(a) => vec![a],
            PrimKind::Binary(_, a, b)
            | PrimKind::Ramp(a, b)
            | PrimKind::PtrAdd(a, b)
            | PrimKind::Let(_, a, b)
            | PrimKind::Load { ptr: a, offset: b } => vec![a, b],
            PrimKind::Select(a, b, c) | PrimKind::IfThenElse(a, b, c) => vec![a, b, c],
            PrimKind::BufferLoad(_, idx) => idx.iter().collect(),
            PrimKind::Call(_, args) => args.iter().collect(),
        }
    }

    /// Calls `f` on every node, parents first.
    pub fn walk(&self, f: &mut dyn FnMut(&PrimExpr)) {
        f(self);
        for c in self.children() {
            c.walk(f);
        }
    }

    /// Whether the tree has more than `limit` nodes, shared ones counted as often as they occur. Looks at no more than
    /// that, so that it is fast for expressions that every other walk would take too long for.
    pub fn exceeds(&self, limit: usize) -> bool {
        let (mut open, mut seen) = (vec![self], 0);
        while let Some(e) = open.pop() {
            seen += 1;
            if seen > limit {
                return true;
            }
            open.extend(e.children());
        }
        false
    }

    /// Rebuilds with each direct operand replaced by `f(operand)`; the same node when nothing changes.
    /// Rebuilding folds (see [`PrimExpr::binary`]).
    pub fn map_children(&self, f: &mut dyn FnMut(&PrimExpr) -> PrimExpr) -> PrimExpr {
        let old = self.children();
        if old.is_empty() {
            return self.clone();
        }
        let new: Vec<PrimExpr> = old.iter().map(|c| f(c)).collect();
        if old.iter().zip(&new).all(|(a, b)| a.same(b)) {
            return self.clone();
        }
        self.with_children(new)
    }

    /// Rebuilds with other operands, in the order of [`PrimExpr::children`].
    pub fn with_children(&self, new: Vec<PrimExpr>) -> PrimExpr {
        let mut it = new.into_iter();
        let mut next = || it.next().unwrap_or_else(|| self.clone());
        let d = self.dtype();
        match self.kind() {
            PrimKind::Var(_) | PrimKind::Int(_) | PrimKind::Float(_) | PrimKind::Str(_) => self.clone(),
            PrimKind::Cast(_) => next().cast(d),
            PrimKind::Reinterpret(_) => next().reinterpret(d),
            PrimKind::Not(_) => next().not(),
            PrimKind::Neg(_) => next().neg(),
            PrimKind::Broadcast(_) => next().broadcast(d.lanes),
            PrimKind::Binary(op, ..) => {
                let a = next();
                PrimExpr::binary(*op, a, next())
            }
            PrimKind::Ramp(..) => {
                let a = next();
                a.ramp(next(), d.lanes)
            }
            PrimKind::PtrAdd(..) => {
                let a = next();
                a.ptr_add(next())
            }
            PrimKind::Let(v, ..) => {
                let a = next();
                PrimExpr::let_in(v.clone(), a, next())
            }
            PrimKind::Load { .. } => {
                let a = next();
                PrimExpr::load_ptr(a, next(), d)
            }
            PrimKind::Select(..) => {
                let (a, b) = (next(), next());
                a.select(b, next())
            }
            PrimKind::IfThenElse(..) => {
                let (a, b) = (next(), next());
                a.if_then_else(b, next())
            }
            PrimKind::BufferLoad(buf, idx) => {
                let new: Vec<PrimExpr> = idx.iter().map(|_| next()).collect();
                PrimExpr::load(buf, new)
            }
            PrimKind::Call(f, args) => {
                let new: Vec<PrimExpr> = args.iter().map(|_| next()).collect();
                PrimExpr::raw(PrimKind::Call(*f, new.into()), d)
            }
        }
    }

    /// Replaces variables; bound variables of `Let` keep their identity.
    pub fn substitute(&self, map: &HashMap<Var, PrimExpr>) -> PrimExpr {
        if map.is_empty() {
            return self.clone();
        }
        match self.kind() {
            PrimKind::Var(v) => map.get(v).cloned().unwrap_or_else(|| self.clone()),
            _ => self.map_children(&mut |c| c.substitute(map)),
        }
    }

    /// Free and bound variables in order of first occurrence.
    pub fn vars(&self) -> Vec<Var> {
        let mut out: Vec<Var> = vec![];
        self.walk(&mut |e| {
            if let PrimKind::Var(v) = e.kind() {
                if !out.contains(v) {
                    out.push(v.clone());
                }
            }
        });
        out
    }

    pub fn uses(&self, v: &Var) -> bool {
        match self.kind() {
            PrimKind::Var(w) => w == v,
            _ => self.children().into_iter().any(|c| c.uses(v)),
        }
    }
}
