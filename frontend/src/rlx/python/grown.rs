//! Lists of a kernel that grow while it is read: `xs.append(v)`, `xs.extend([..])`.

use super::{meta_var, Reported};
use crate::rlx::context::{Cx, Value};
use crate::rlx::syntax::*;
use relax_ir::Diagnostic;

impl<'a> Cx<'a> {
    /// `xs.append(v)` and `xs.extend(vs)` of a list of Python; `None` where the statement is another one.
    pub fn list_grows(&mut self, e: &Expr<'a>) -> Option<Result<(), Reported>> {
        let call = e.as_call()?;
        let ExprKind::Attribute(base, method) = &call.func.kind else { return None };
        let name = base.as_name()?;
        let Some(Value::Python(at)) = self.names.get(name) else { return None };
        let at = *at;
        let one = match (method.name, call.args.as_slice(), call.keywords.is_empty()) {
            ("append", [v], true) => v,
            ("extend", [vs], true) => vs,
            _ => return None,
        };
        Some(self.grown(name, at, base, one, method.name == "extend"))
    }

    fn grown(
        &mut self,
        name: &str,
        at: usize,
        base: &Expr<'a>,
        more: &Expr<'a>,
        several: bool,
    ) -> Result<(), Reported> {
        let refuse = |cx: &mut Self, d: Diagnostic| {
            let _: Option<()> = cx.report(d);
            Err(Reported)
        };
        let list = self.written_out(base)?.unwrap_or_else(|| base.clone());
        let more = self.written_out(more)?.unwrap_or_else(|| more.clone());
        let ExprKind::List(mut items) = list.kind else {
            let message = format!("`{name}` is {}, only a list grows", list.describe());
            return refuse(self, Diagnostic::error("python-value", base.span, message));
        };
        if self.names.shared.contains(&at) {
            let message = format!("another name may stand for the list `{name}`, which grows here");
            let d = Diagnostic::unsupported("python-value", base.span, message);
            return refuse(self, d.help("make the whole list before it gets another name"));
        }
        let home = self.names.scope_of(name);
        if let Some(inner) = self.inner_name(&more, home) {
            let message = format!("`{name}` outlives `{inner}`, which is put into it");
            let d = Diagnostic::unsupported("python-value", more.span, message);
            return refuse(self, d.help("make the list where its elements are"));
        }
        match (more.elements(), several) {
            (Some(all), true) => items.extend(all.iter().cloned()),
            (None, true) => {
                let message = format!("a list is needed here, not {}", more.describe());
                return refuse(self, Diagnostic::error("python-value", more.span, message));
            }
            (_, false) => items.push(more),
        }
        let depth = items.iter().map(|i| i.depth).max().unwrap_or(0) + 1;
        if depth >= MAX_DEPTH || items.len() > super::MOST {
            let d = Diagnostic::unsupported("nesting", base.span, format!("the list `{name}` becomes too large"));
            return refuse(self, d);
        }
        let grown = Expr { kind: ExprKind::List(items), span: list.span, depth };
        self.python_value(&grown);
        if let (Some(new), Some(old)) = (self.names.pythons.pop(), self.names.pythons.get_mut(at)) {
            *old = new;
        }
        Ok(())
    }

    /// A name in `e` of a scope within the one of this number.
    fn inner_name(&self, e: &Expr<'a>, home: Option<usize>) -> Option<&'a str> {
        let inner = |n: &&'a str| self.names.scope_of(n).is_some_and(|scope| Some(scope) > home);
        e.as_name().filter(inner).or_else(|| e.children().into_iter().find_map(|c| self.inner_name(c, home)))
    }

    /// Notes the lists of Python that `value`, which gets a name, holds as they are.
    pub(super) fn note_shared(&mut self, value: &Expr<'a>) {
        match &value.kind {
            ExprKind::Name(n) => {
                if let Some(Value::Python(at)) = self.names.get(n) {
                    self.names.shared.insert(*at);
                }
            }
            // What is made of a list holds its elements, not the list.
            ExprKind::Subscript(..) | ExprKind::Binary(..) | ExprKind::Unary(..) => {}
            ExprKind::Call(call) if meta_var(value) => call.args.iter().for_each(|a| self.note_shared(a)),
            ExprKind::Call(_) => {}
            _ => value.children().into_iter().for_each(|c| self.note_shared(c)),
        }
    }
}
