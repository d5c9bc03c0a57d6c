//! Expressions that are alike within a statement, so that each is computed once.

use relax_ir::prim::PrimExpr;
use std::collections::hash_map::DefaultHasher;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::mem::discriminant;

/// One node for each expression that was met.
#[derive(Default)]
pub(super) struct Alike {
    /// By a hash that takes operands for the nodes they are.
    met: HashMap<u64, Vec<PrimExpr>>,
    /// Nodes in memory, which are kept, and what stands for them.
    known: HashMap<usize, (PrimExpr, PrimExpr)>,
}

impl Alike {
    /// The node that stands for all expressions like `e`.
    pub(super) fn one(&mut self, e: &PrimExpr) -> PrimExpr {
        if e.children().is_empty() {
            return e.clone();
        }
        if let Some((_, one)) = self.known.get(&address(e)) {
            return one.clone();
        }
        let inner = e.map_children(&mut |c| self.one(c));
        let all = self.met.entry(shallow(&inner)).or_default();
        let one = match all.iter().find(|other| **other == inner) {
            Some(other) => other.clone(),
            None => {
                all.push(inner.clone());
                inner
            }
        };
        self.known.insert(address(e), (e.clone(), one.clone()));
        one
    }
}

fn address(e: &PrimExpr) -> usize {
    e.kind() as *const _ as usize
}

fn shallow(e: &PrimExpr) -> u64 {
    let mut h = DefaultHasher::new();
    discriminant(e.kind()).hash(&mut h);
    e.dtype().hash(&mut h);
    for c in e.children() {
        match c.children().is_empty() {
            true => c.hash(&mut h),
            false => address(c).hash(&mut h),
        }
    }
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::super::expand;
    use relax_ir::flat::{FlatFunc, FlatStmt, Linkage};
    use relax_ir::prim::{Intrin, PrimExpr, PrimKind, Var};
    use relax_ir::{DType, Span};

    /// `e^x (e^x + 2)`, whose sides were written apart.
    #[test]
    fn what_is_alike_becomes_one_node() {
        let [x, y] = ["x", "y"].map(|n| Var::new(n, DType::HANDLE));
        let exp = || PrimExpr::load_ptr(x.expr(), 0.into(), DType::F32.with_lanes(8)).call1(Intrin::Exp);
        let value = exp() * (exp() + PrimExpr::f32(2.0).broadcast(8));
        let body = vec![FlatStmt::Store { ptr: y.expr(), offset: 0.into(), value }];
        let (name, params) = ("kernel".to_string(), vec![x, y]);
        let mut f = FlatFunc { name, params, ret: None, linkage: Linkage::Local, body, span: Span::NONE };
        expand(&mut f, 32);
        let [FlatStmt::Store { value, .. }] = &f.body[..] else { panic!("a store") };
        let PrimKind::Binary(_, a, b) = value.kind() else { panic!("a product") };
        let PrimKind::Binary(_, b, _) = b.kind() else { panic!("a sum") };
        assert!(matches!(a.kind(), PrimKind::Let(..)) && a.same(b));
    }
}
