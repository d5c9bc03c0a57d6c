//! Bounds that hold: the deepest stack of a call, from the frames of its functions.

use crate::clif::Measures;
use fnv::FnvHashMap;
use relax_ir::flat::{FlatModule, FlatStmt};
use relax_ir::program::Program;
use std::collections::BTreeMap;

/// Bytes of stack that a call of each entry (or its `_infer`) takes at most, by entry name. What the caller's own
/// callbacks take comes on top. Entries that recurse or need functions from elsewhere are left out.
pub fn stack(program: &Program, measures: &Measures) -> BTreeMap<String, u64> {
    let mut graph = Graph::new(&program.module, measures);
    // A callback: what it takes comes on top.
    if let Some(hook) = &program.on_error {
        graph.functions.insert(hook, (0, vec![]));
    }
    let mut out = BTreeMap::new();
    for e in &program.entries {
        let base = format!("{}_{}", program.prefix, e.name);
        let both = [base.clone(), format!("{base}_infer")].map(|f| graph.depth(&f, &mut vec![]));
        if let [Some(a), Some(b)] = both {
            out.insert(e.name.clone(), a.max(b));
        }
    }
    out
}

struct Graph<'a> {
    /// Frame and callees.
    functions: FnvHashMap<&'a str, (u64, Vec<&'a str>)>,
}

impl<'a> Graph<'a> {
    fn new(module: &'a FlatModule, measures: &Measures) -> Graph<'a> {
        let mut functions = FnvHashMap::default();
        for (f, (_, frame)) in module.funcs.iter().zip(&measures.functions) {
            let mut callees = vec![];
            collect(&f.body, &mut callees);
            functions.insert(f.name.as_str(), (u64::from(*frame), callees));
        }
        Graph { functions }
    }

    fn depth<'b>(&'b self, name: &'b str, path: &mut Vec<&'b str>) -> Option<u64> {
        if path.contains(&name) {
            return None;
        }
        let (frame, callees) = self.functions.get(name).filter(|f| f.0 != u64::from(u32::MAX))?;
        path.push(name);
        let mut deepest = 0;
        for c in callees {
            deepest = deepest.max(self.depth(c, path)?);
        }
        path.pop();
        Some(frame + deepest)
    }
}

fn collect<'a>(body: &'a [FlatStmt], out: &mut Vec<&'a str>) {
    for s in body {
        match s {
            FlatStmt::Call { callee, .. } if !out.contains(&callee.name.as_str()) => out.push(&callee.name),
            FlatStmt::For { body, .. } | FlatStmt::While { body, .. } => collect(body, out),
            FlatStmt::If { then, otherwise, .. } => {
                collect(then, out);
                collect(otherwise, out);
            }
            _ => {}
        }
    }
}
