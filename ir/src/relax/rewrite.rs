//! Rewriting bindings: the one way in which passes change Relax code.

use super::*;

/// Rebuilds a sequence with every binding replaced by what `f` makes of it (in order; an empty list drops it), branches
/// and local functions included. Branches and local functions are rewritten first. The same node comes back when
/// nothing changes.
pub fn map_bindings(seq: &Arc<SeqExpr>, f: &mut dyn FnMut(&Binding, bool) -> Option<Vec<Binding>>) -> Arc<SeqExpr> {
    let mut changed = false;
    let mut blocks = vec![];
    for block in &seq.blocks {
        let mut bindings = vec![];
        for b in &block.bindings {
            let inner = map_inside(b, f);
            let b = match inner {
                Some(new) => {
                    changed = true;
                    new
                }
                None => b.clone(),
            };
            match f(&b, block.dataflow) {
                Some(new) => {
                    changed = true;
                    bindings.extend(new);
                }
                None => bindings.push(b),
            }
        }
        blocks.push(BindingBlock { bindings, ..block.clone() });
    }
    if !changed {
        return seq.clone();
    }
    Arc::new(SeqExpr { blocks, body: seq.body.clone() })
}

/// Branches and local functions inside a binding.
fn map_inside(b: &Binding, f: &mut dyn FnMut(&Binding, bool) -> Option<Vec<Binding>>) -> Option<Binding> {
    let BindingValue::Expr(e) = &b.value else { return None };
    let kind = match e.kind() {
        ExprKind::If { cond, then, otherwise } => {
            let (t, o) = (map_bindings(then, f), map_bindings(otherwise, f));
            if Arc::ptr_eq(&t, then) && Arc::ptr_eq(&o, otherwise) {
                return None;
            }
            ExprKind::If { cond: cond.clone(), then: t, otherwise: o }
        }
        ExprKind::Function(func) => {
            let body = map_bindings(&func.body, f);
            if Arc::ptr_eq(&body, &func.body) {
                return None;
            }
            ExprKind::Function(Arc::new(Function { body, ..(**func).clone() }))
        }
        _ => return None,
    };
    Some(Binding { value: BindingValue::Expr(Expr::new(kind, e.span())), ..b.clone() })
}

impl Expr {
    /// Direct sub-expressions, in order of evaluation; not the bodies of branches and functions.
    pub fn operands(&self) -> Vec<&Expr> {
        match self.kind() {
            ExprKind::Tuple(f) => f.iter().collect(),
            ExprKind::TupleGetItem(t, _) => vec![t],
            ExprKind::If { cond, .. } => vec![cond],
            ExprKind::Call(c) => match &c.callee {
                Callee::Expr(f) => std::iter::once(f).chain(&c.args).collect(),
                Callee::Op(_) => c.args.iter().collect(),
            },
            _ => vec![],
        }
    }

    /// Calls `f` on every expression inside, this one first, branches and local functions included.
    pub fn walk(&self, f: &mut dyn FnMut(&Expr)) {
        f(self);
        for o in self.operands() {
            o.walk(f);
        }
        match self.kind() {
            ExprKind::If { then, otherwise, .. } => {
                then.walk(f);
                otherwise.walk(f);
            }
            ExprKind::Seq(s) => s.walk(f),
            ExprKind::Function(func) => func.body.walk(f),
            _ => {}
        }
    }
}

impl SeqExpr {
    /// Calls `f` on every expression inside.
    pub fn walk(&self, f: &mut dyn FnMut(&Expr)) {
        for b in self.blocks.iter().flat_map(|b| &b.bindings) {
            b.expr().walk(f);
        }
        self.body.walk(f);
    }
}
