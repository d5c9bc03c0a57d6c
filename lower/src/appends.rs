//! Which concatenations append to a tensor that nothing else reads: what a loop gathers from step to step.
//!
//! A local function that gathers (`frontend/src/onnx/ops/rolled.rs`, or a user's own recursion) concatenates a parameter
//! with what the step makes and calls itself with the result. Copying what is there already makes a loop of n steps copy
//! n² / 2 elements. Where the parameter is read by nothing else on the way, its kernel is marked with [`APPENDS`]; the
//! host then asks the runtime for a tensor with room to spare, and only copies what is new.

use relax_ir::relax::{Binding, BindingValue, Callee, Expr, ExprKind, Function, RVar, SeqExpr};
use relax_ir::{Func, IRModule};
use std::collections::{HashMap, HashSet};

/// The attribute of a kernel whose result is its first operand with the second one behind it.
pub const APPENDS: &str = "relax_aot.appends";

/// The variables bound to `R.concat((a, b), axis=0)` where `a` is a parameter of the function, under any name, that
/// nothing else reads in a call that reaches the concatenation.
pub fn appended(module: &IRModule) -> HashSet<RVar> {
    let mut found = HashSet::new();
    for f in &module.funcs {
        if let Func::Relax(f) = f {
            function(f, &mut found);
        }
    }
    found
}

/// Which side of which branches is taken to get somewhere.
type Path = Vec<(usize, bool)>;

struct Use {
    param: RVar,
    path: Path,
    /// What an append binds.
    bound: Option<RVar>,
}

struct Walk<'a> {
    /// Parameters by all of their names.
    names: HashMap<RVar, RVar>,
    uses: Vec<Use>,
    path: Path,
    branches: usize,
    found: &'a mut HashSet<RVar>,
}

fn function(f: &Function, found: &mut HashSet<RVar>) {
    let names = f.params.iter().map(|p| (p.var.clone(), p.var.clone())).collect();
    let mut w = Walk { names, uses: vec![], path: vec![], branches: 0, found };
    w.seq(&f.body);
    let Walk { uses, found, .. } = w;
    let apart = |a: &Path, b: &Path| a.iter().any(|(at, side)| b.contains(&(*at, !side)));
    for (i, u) in uses.iter().enumerate() {
        let Some(bound) = &u.bound else { continue };
        let mut others = uses.iter().enumerate().filter(|(k, o)| *k != i && o.param == u.param);
        if others.all(|(_, o)| apart(&o.path, &u.path)) {
            found.insert(bound.clone());
        }
    }
}

impl Walk<'_> {
    fn seq(&mut self, s: &SeqExpr) {
        s.blocks.iter().flat_map(|b| &b.bindings).for_each(|b| self.binding(b));
        self.expr(&s.body);
    }

    fn binding(&mut self, b: &Binding) {
        // Another name.
        let whole = match &b.value {
            BindingValue::Expr(e) => e,
            BindingValue::MatchCast { value, .. } => value,
        };
        if let Some(param) = whole.as_var().and_then(|v| self.names.get(v)).cloned() {
            self.names.insert(b.var.clone(), param);
            return;
        }
        match operands(whole) {
            Some((a, other)) if self.names.contains_key(a) => {
                self.read(a.clone(), Some(b.var.clone()));
                self.expr(other);
            }
            _ => self.expr(whole),
        }
    }

    fn read(&mut self, v: RVar, bound: Option<RVar>) {
        if let Some(param) = self.names.get(&v).cloned() {
            self.uses.push(Use { param, path: self.path.clone(), bound });
        }
    }

    fn expr(&mut self, e: &Expr) {
        match e.kind() {
            ExprKind::Var(v) => self.read(v.clone(), None),
            ExprKind::Tuple(fields) => fields.iter().for_each(|x| self.expr(x)),
            ExprKind::TupleGetItem(t, _) => self.expr(t),
            ExprKind::Seq(s) => self.seq(s),
            ExprKind::Function(f) => {
                function(f, self.found);
                // What it captures.
                self.seq(&f.body);
            }
            ExprKind::If { cond, then, otherwise } => {
                self.expr(cond);
                self.branches += 1;
                let at = self.branches;
                for (branch, side) in [(then, true), (otherwise, false)] {
                    self.path.push((at, side));
                    self.seq(branch);
                    self.path.pop();
                }
            }
            ExprKind::Call(c) => {
                if let Callee::Expr(f) = &c.callee {
                    self.expr(f);
                }
                c.args.iter().for_each(|a| self.expr(a));
            }
            _ => {}
        }
    }
}

/// The operands of a concatenation of two tensors along the first axis, of which the first is a variable.
fn operands(e: &Expr) -> Option<(&RVar, &Expr)> {
    let c = e.as_op_call("concat")?;
    let ExprKind::Tuple(items) = c.args.first()?.kind() else { return None };
    match (items.as_slice(), c.attrs.int("axis").unwrap_or(0)) {
        ([a, b], 0) => Some((a.as_var()?, b)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of what appends in a function of this body, over `all: (k, 2)`, `x: (1, 2)` and a condition.
    fn names(body: &str) -> Vec<String> {
        let text = format!(
            "@I.ir_module\nclass Module:\n    @R.function\n    def main(go: R.Tensor((), \"bool\"), all: R.Tensor((\"k\", 2), \
             \"float32\"), x: R.Tensor((1, 2), \"float32\")):\n        cls = Module\n        {}\n",
            body.replace('\n', "\n        ")
        );
        let (module, d) = relax_frontend::rlx::parse(relax_ir::FileId(0), &text);
        assert!(!d.has_errors(), "{text}");
        let mut found: Vec<String> =
            appended(&module.expect("a module")).iter().map(|v| v.name().to_string()).collect();
        found.sort();
        found
    }

    #[test]
    fn nothing_else_reads_it() {
        let by_branch =
            "if go:\n    y = R.concat((all, x), axis=0)\n    r = cls.main(go, y, x)\nelse:\n    r = all\nreturn r";
        assert_eq!(names(by_branch), ["y"]);
        let renamed =
            "m = T.int64()\na = R.match_cast(all, R.Tensor((m, 2), \"float32\"))\nb = a\ny = R.concat((b, x), axis=0)\nreturn y";
        assert_eq!(names(renamed), ["y"]);
        // Before and behind the branch both sides are reached.
        let before =
            "z = R.sum(all)\nif go:\n    y = R.concat((all, x), axis=0)\n    r = y\nelse:\n    r = all\nreturn (r, z)";
        assert!(names(before).is_empty());
    }

    #[test]
    fn others_read_it() {
        for body in [
            "y = R.concat((all, x), axis=0)\nreturn (y, all)",
            "y = R.concat((all, all), axis=0)\nreturn y",
            "y = R.concat((all, x), axis=0)\nz = R.concat((all, x), axis=0)\nreturn (y, z)",
            "y = R.concat((all, x, x), axis=0)\nreturn y",
            "y = R.concat((all, x), axis=1)\nreturn y",
            "z = R.add(all, all)\ny = R.concat((z, x), axis=0)\nreturn y",
        ] {
            assert!(names(body).is_empty(), "{body}");
        }
    }
}
