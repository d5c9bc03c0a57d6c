//! Which functions of a module call which: order of analysis, recursion.

use crate::module::IRModule;
use crate::relax::{BindingValue, Callee, Expr, ExprKind, SeqExpr};
use std::collections::HashMap;

/// The call graph over the Relax functions of a module, by their index among them.
pub struct CallGraph {
    /// Strongly connected components, callees before callers; functions of one component are mutually recursive.
    pub order: Vec<Vec<usize>>,
    component: Vec<usize>,
    calls: Vec<Vec<usize>>,
}

impl CallGraph {
    pub fn new(module: &IRModule) -> CallGraph {
        let names: HashMap<&str, usize> = module.relax_funcs().enumerate().map(|(i, f)| (f.name.as_str(), i)).collect();
        let calls: Vec<Vec<usize>> = module
            .relax_funcs()
            .map(|f| {
                let mut out = vec![];
                globals(&f.body, &mut |name| {
                    if let Some(&i) = names.get(name) {
                        if !out.contains(&i) {
                            out.push(i);
                        }
                    }
                });
                out
            })
            .collect();
        let mut tarjan = Tarjan::new(&calls);
        for v in 0..calls.len() {
            tarjan.visit(v);
        }
        let order = tarjan.components;
        let mut component = vec![0; calls.len()];
        for (i, c) in order.iter().enumerate() {
            for &v in c {
                component[v] = i;
            }
        }
        CallGraph { order, component, calls }
    }

    /// Do both functions call each other, perhaps through others? Of one function: is it recursive?
    pub fn recursive(&self, a: usize, b: usize) -> bool {
        if a == b {
            return self.calls[a].contains(&a) || self.order[self.component[a]].len() > 1;
        }
        self.component[a] == self.component[b]
    }
}

/// Calls `f` with every global that occurs in a sequence, nested functions and branches included.
pub fn globals(seq: &SeqExpr, f: &mut dyn FnMut(&str)) {
    for block in &seq.blocks {
        for b in &block.bindings {
            match &b.value {
                BindingValue::Expr(e) | BindingValue::MatchCast { value: e, .. } => globals_in(e, f),
            }
        }
    }
    globals_in(&seq.body, f);
}

fn globals_in(e: &Expr, f: &mut dyn FnMut(&str)) {
    match e.kind() {
        ExprKind::GlobalVar(name) => f(name),
        ExprKind::Tuple(fields) => fields.iter().for_each(|e| globals_in(e, f)),
        ExprKind::TupleGetItem(t, _) => globals_in(t, f),
        ExprKind::Seq(seq) => globals(seq, f),
        ExprKind::Function(func) => globals(&func.body, f),
        ExprKind::If { cond, then, otherwise } => {
            globals_in(cond, f);
            globals(then, f);
            globals(otherwise, f);
        }
        ExprKind::Call(c) => {
            if let Callee::Expr(e) = &c.callee {
                globals_in(e, f);
            }
            c.args.iter().for_each(|a| globals_in(a, f));
        }
        _ => {}
    }
}

/// Tarjan's algorithm without recursion: call chains may be long.
struct Tarjan<'g> {
    calls: &'g [Vec<usize>],
    number: Vec<Option<usize>>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    next: usize,
    components: Vec<Vec<usize>>,
}

impl<'g> Tarjan<'g> {
    fn new(calls: &'g [Vec<usize>]) -> Tarjan<'g> {
        let n = calls.len();
        Tarjan {
            calls,
            number: vec![None; n],
            low: vec![0; n],
            on_stack: vec![false; n],
            stack: vec![],
            next: 0,
            components: vec![],
        }
    }

    fn enter(&mut self, v: usize) {
        self.number[v] = Some(self.next);
        self.low[v] = self.next;
        self.next += 1;
        self.stack.push(v);
        self.on_stack[v] = true;
    }

    fn visit(&mut self, root: usize) {
        if self.number[root].is_some() {
            return;
        }
        self.enter(root);
        let mut work = vec![(root, 0)];
        while let Some((v, i)) = work.pop() {
            if let Some(&w) = self.calls[v].get(i) {
                work.push((v, i + 1));
                match self.number[w] {
                    None => {
                        self.enter(w);
                        work.push((w, 0));
                    }
                    Some(n) if self.on_stack[w] => self.low[v] = self.low[v].min(n),
                    Some(_) => {}
                }
                continue;
            }
            if self.number[v] == Some(self.low[v]) {
                let mut component = vec![];
                while let Some(w) = self.stack.pop() {
                    self.on_stack[w] = false;
                    component.push(w);
                    if w == v {
                        break;
                    }
                }
                component.sort();
                self.components.push(component);
            }
            if let Some(&(parent, _)) = work.last() {
                self.low[parent] = self.low[parent].min(self.low[v]);
            }
        }
    }
}
