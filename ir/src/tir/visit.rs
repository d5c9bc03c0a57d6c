//! Walks over statements.

use super::*;
use crate::prim::PrimKind;

impl Stmt {
    /// Direct sub-statements, in order (a block's init before its body).
    pub fn children(&self) -> Vec<&Stmt> {
        match self.kind() {
            StmtKind::Seq(v) => v.iter().collect(),
            StmtKind::For { body, .. }
            | StmtKind::While { body, .. }
            | StmtKind::Let { body, .. }
            | StmtKind::Attr { body, .. }
            | StmtKind::Alloc { body, .. } => vec![body],
            StmtKind::If { then, otherwise, .. } => std::iter::once(then).chain(otherwise).collect(),
            StmtKind::Block(b) => b.init.iter().chain([&b.body]).collect(),
            StmtKind::Store { .. } | StmtKind::Assert { .. } | StmtKind::Evaluate(_) | StmtKind::CallPacked { .. } => {
                vec![]
            }
        }
    }

    /// Calls `f` on every statement, parents first.
    pub fn walk(&self, f: &mut dyn FnMut(&Stmt)) {
        f(self);
        for c in self.children() {
            c.walk(f);
        }
    }

    /// Expressions held by this statement itself: extents, conditions, indices, values, bindings
    /// (not reads and writes, not those of sub-statements).
    pub fn exprs(&self) -> Vec<&PrimExpr> {
        match self.kind() {
            StmtKind::For { min, extent, .. } => vec![min, extent],
            StmtKind::While { cond, .. } | StmtKind::If { cond, .. } | StmtKind::Assert { cond, .. } => vec![cond],
            StmtKind::Block(b) => {
                b.axes.iter().flat_map(|a| [&a.min, &a.extent, &a.binding]).chain(b.predicate.iter()).collect()
            }
            StmtKind::Store { indices, value, .. } => indices.iter().chain([value]).collect(),
            StmtKind::Let { value, .. } | StmtKind::Evaluate(value) | StmtKind::Attr { value, .. } => vec![value],
            StmtKind::CallPacked { args, .. } => args.iter().filter_map(PackedArg::scalar).collect(),
            StmtKind::Seq(_) | StmtKind::Alloc { .. } => vec![],
        }
    }

    /// Puts another expression in the place of each load for which `with` (buffer, indices) has one. What blocks read
    /// is then derived again.
    pub fn replace_loads(&self, with: &dyn Fn(&Buffer, &[PrimExpr]) -> Option<PrimExpr>) -> Stmt {
        fn replaced(e: &PrimExpr, with: &dyn Fn(&Buffer, &[PrimExpr]) -> Option<PrimExpr>) -> PrimExpr {
            let e = e.map_children(&mut |c| replaced(c, with));
            match e.kind() {
                PrimKind::BufferLoad(b, idx) => with(b, idx).unwrap_or(e),
                _ => e,
            }
        }
        self.rewrite(&mut |e| replaced(e, with), &mut |s| match s.kind() {
            StmtKind::Block(b) => {
                let unread = Block { reads: None, ..(**b).clone() };
                Stmt::at(StmtKind::Block(Box::new(unread)), s.span())
            }
            _ => s,
        })
    }

    /// Rebuilds bottom-up: `fe` maps every expression of a statement (whole, not each node; reads and writes of
    /// blocks too), `fs` the rebuilt statement.
    pub fn rewrite(&self, fe: &mut dyn FnMut(&PrimExpr) -> PrimExpr, fs: &mut dyn FnMut(Stmt) -> Stmt) -> Stmt {
        let kind = match self.kind() {
            StmtKind::Seq(v) => StmtKind::Seq(v.iter().map(|s| s.rewrite(fe, fs)).collect()),
            StmtKind::For { var, min, extent, kind, annotations, body } => StmtKind::For {
                var: var.clone(),
                min: fe(min),
                extent: fe(extent),
                kind: kind.clone(),
                annotations: annotations.clone(),
                body: body.rewrite(fe, fs),
            },
            StmtKind::While { cond, body } => StmtKind::While { cond: fe(cond), body: body.rewrite(fe, fs) },
            StmtKind::If { cond, then, otherwise } => StmtKind::If {
                cond: fe(cond),
                then: then.rewrite(fe, fs),
                otherwise: otherwise.as_ref().map(|s| s.rewrite(fe, fs)),
            },
            StmtKind::Block(b) => {
                let mut b = b.clone();
                for a in &mut b.axes {
                    a.min = fe(&a.min);
                    a.extent = fe(&a.extent);
                    a.binding = fe(&a.binding);
                }
                b.predicate = b.predicate.as_ref().map(&mut *fe);
                for r in b.reads.iter_mut().chain(b.writes.iter_mut()).flatten() {
                    for (m, e) in &mut r.region {
                        *m = fe(m);
                        *e = fe(e);
                    }
                }
                b.init = b.init.as_ref().map(|s| s.rewrite(fe, fs));
                b.body = b.body.rewrite(fe, fs);
                StmtKind::Block(b)
            }
            StmtKind::Store { buffer, indices, value } => StmtKind::Store {
                buffer: buffer.clone(),
                indices: indices.iter().map(&mut *fe).collect(),
                value: fe(value),
            },
            StmtKind::Let { var, value, body } => {
                StmtKind::Let { var: var.clone(), value: fe(value), body: body.rewrite(fe, fs) }
            }
            StmtKind::Assert { cond, message } => StmtKind::Assert { cond: fe(cond), message: message.clone() },
            StmtKind::Evaluate(e) => StmtKind::Evaluate(fe(e)),
            StmtKind::CallPacked { function, args } => StmtKind::CallPacked {
                function: function.clone(),
                args: args
                    .iter()
                    .map(|a| match a {
                        PackedArg::Scalar(e) => PackedArg::Scalar(fe(e)),
                        other => other.clone(),
                    })
                    .collect(),
            },
            StmtKind::Attr { node, key, value, body } => {
                StmtKind::Attr { node: node.clone(), key: key.clone(), value: fe(value), body: body.rewrite(fe, fs) }
            }
            StmtKind::Alloc { buffer, body } => StmtKind::Alloc { buffer: buffer.clone(), body: body.rewrite(fe, fs) },
        };
        fs(Stmt::at(kind, self.span()))
    }
}
