//! What Python computes while TVM's parser reads a Relax function: names for values that are none of Relax
//! (`bias = None`, `kind = "float16"`, `f = lambda a: ..`, `I.meta_var(..)`), comprehensions, and lists made of lists.
//!
//! Expressions are rewritten before they are translated, so that everything behind this sees what is written out.
//!
//! Source: TVM `script.parser.core.evaluator`, `relax.script.parser.parser`, `bind_assign_value`.

mod formats;
mod lists;
mod literals;
mod operations;
mod sequence;
mod typed;

use super::context::{Cx, Value};
use super::syntax::*;
pub use literals::truth;
use literals::{element, equal, integer, names, size, slice};
use relax_ir::{Diagnostic, Span};
use typed::{dim_of, of_dims, shape_of};

/// What a name of Python stands for.
pub struct Named<'a> {
    value: Expr<'a>,
    /// The variables that it mentions, as they were then, and their scopes.
    mentions: Vec<(&'a str, Value, Option<usize>)>,
    /// Names in it that had no value then.
    absent: Vec<&'a str>,
}

/// It was reported.
pub struct Reported;

type Rewritten<'a> = Result<Option<Expr<'a>>, Reported>;
/// What the parameters of lambdas and comprehensions stand for; `None`: themselves, within a lambda.
type Local<'a> = Vec<(&'a str, Option<Expr<'a>>)>;

/// Expressions that the comprehensions and calls of one statement may make.
const MOST: usize = 20_000;
/// Lambdas that may call each other.
const CALLS: usize = 50;

impl<'a> Cx<'a> {
    /// `e` with what Python computes written out; `None` where that is `e` itself.
    pub fn written_out(&mut self, e: &Expr<'a>) -> Rewritten<'a> {
        Python { cx: self, local: vec![], made: 0, calls: 0, defers: 0, computes: false }.value(e)
    }

    /// As [`Cx::written_out`], with arithmetic of literals computed too.
    pub fn computed(&mut self, e: &Expr<'a>) -> Rewritten<'a> {
        Python { cx: self, local: vec![], made: 0, calls: 0, defers: 0, computes: true }.value(e)
    }

    /// Binds `name` where `value` is a value of Python: whether it is.
    pub fn python_binding(&mut self, name: &'a str, value: &Expr<'a>) -> bool {
        if let Some(at) = Some(value).filter(|_| self.in_kernel()).and_then(|v| self.collection_of(v)) {
            self.names.bind(name, Value::Python(at));
            return true;
        }
        let value = match &value.kind {
            ExprKind::None | ExprKind::Str(_) | ExprKind::Dict(_) | ExprKind::Lambda(..) => value,
            // A list of sizes stays one of Python, which a shape may be made of; a tuple is a value of Relax.
            ExprKind::List(items) if !items.is_empty() && items.iter().all(|i| self.is_size(i)) => value,
            // In a kernel both are Python's.
            ExprKind::List(_) | ExprKind::Tuple(_) if self.in_kernel() => value,
            ExprKind::Call(call) => match (meta_var(value), call.args.as_slice()) {
                (true, [inner]) => inner,
                _ => return false,
            },
            _ => return false,
        };
        let held = self.python_value(value);
        self.names.bind(name, held);
        true
    }

    /// A value of Python, as it is now.
    pub fn python_value(&mut self, value: &Expr<'a>) -> Value {
        let mut mentions = vec![];
        self.mentions(value, &mut mentions);
        let (mut bound, mut absent) = (vec![], vec![]);
        self.absent(value, &mut bound, &mut absent);
        self.names.pythons.push(Named { value: value.clone(), mentions, absent });
        Value::Python(self.names.pythons.len() - 1)
    }

    /// A whole number or a dim.
    fn is_size(&self, e: &Expr<'a>) -> bool {
        match &e.kind {
            ExprKind::Int(_) => true,
            ExprKind::Name(n) => self.names.prim(n).is_some(),
            ExprKind::Unary(_, a) => self.is_size(a),
            ExprKind::Binary(_, a, b) => self.is_size(a) && self.is_size(b),
            _ => false,
        }
    }

    /// As [`Cx::written_out`], for what is bound to a name: `I.meta_var(..)` stays, around what is written out.
    pub fn bound_written_out(&mut self, e: &Expr<'a>) -> Rewritten<'a> {
        match (meta_var(e), e.as_call()) {
            (true, Some(call)) if call.args.len() == 1 => {
                let Some(inner) = self.written_out(&call.args[0])? else { return Ok(None) };
                let call = CallExpr { func: call.func.clone(), args: vec![inner], keywords: vec![] };
                Ok(Some(Expr { kind: ExprKind::Call(Box::new(call)), ..e.clone() }))
            }
            // A shape that gets a name is a value of Relax, and so is a dim.
            _ => match (&e.kind, self.written_out(e)?) {
                (ExprKind::Attribute(..), Some(new)) if matches!(new.kind, ExprKind::List(_)) => {
                    Ok(Some(shape_of(new)))
                }
                (_, Some(new)) if of_dims(e) && integer(&new).is_some() => Ok(Some(dim_of(new))),
                (_, new) => Ok(new),
            },
        }
    }

    /// The statement of a kernel with what Python computes in it written out; `None` where that is the statement itself.
    pub fn kernel_without_python(&mut self, s: &Stmt<'a>) -> Result<Option<Stmt<'a>>, Reported> {
        let kind = match &s.kind {
            StmtKind::Assign { target, annotation, value: Some(value) } => {
                // Another name for a list is that list.
                let alias = target.as_name().is_some() && annotation.is_none() && self.collection_of(value).is_some();
                // Python looks at the value first.
                let new = if alias { None } else { self.bound_written_out(value)? };
                let place = self.element_written_out(target)?;
                if !alias {
                    self.note_shared(value);
                    self.note_entangled(value, new.as_ref().unwrap_or(value));
                }
                let stated = annotation.as_ref().map_or(Ok(None), |a| self.written_out(a))?;
                (place.is_some() || new.is_some() || stated.is_some()).then(|| StmtKind::Assign {
                    target: place.unwrap_or_else(|| target.clone()),
                    annotation: stated.or_else(|| annotation.clone()),
                    value: Some(new.unwrap_or_else(|| value.clone())),
                })
            }
            StmtKind::Assign { target, annotation: Some(stated), value: None } => self
                .written_out(stated)?
                .map(|new| StmtKind::Assign { target: target.clone(), annotation: Some(new), value: None }),
            StmtKind::With { items, body } => {
                let mut new = items.clone();
                let mut changed = false;
                for (item, _) in &mut new {
                    if let Some(other) = self.written_out(item)? {
                        (*item, changed) = (other, true);
                    }
                }
                changed.then(|| StmtKind::With { items: new, body: body.clone() })
            }
            StmtKind::Augment { target, .. } if lists::changes_collections(target) => {
                let d = Diagnostic::unsupported(
                    "python-value",
                    target.span,
                    "this changes a list each time it is looked at",
                );
                let _: Option<()> = self.report(d.help("give the index a name: `at = T.meta_var(xs.pop())`"));
                return Err(Reported);
            }
            StmtKind::Augment { target, value } => {
                let (place, new) = (self.element_written_out(target)?, self.written_out(value)?);
                (place.is_some() || new.is_some()).then(|| StmtKind::Augment {
                    target: place.unwrap_or_else(|| target.clone()),
                    value: new.unwrap_or_else(|| value.clone()),
                })
            }
            StmtKind::For { target, iter, body } => {
                self.written_out(iter)?.map(|iter| StmtKind::For { target: target.clone(), iter, body: body.clone() })
            }
            StmtKind::While { cond, body } => {
                self.written_out(cond)?.map(|cond| StmtKind::While { cond, body: body.clone() })
            }
            StmtKind::Return(Some(e)) => self.written_out(e)?.map(|e| StmtKind::Return(Some(e))),
            StmtKind::Assert(cond, message) => {
                let new = self.written_out(cond)?;
                let said = message.as_ref().map_or(Ok(None), |m| self.written_out(m))?;
                (new.is_some() || said.is_some())
                    .then(|| StmtKind::Assert(new.unwrap_or_else(|| cond.clone()), said.or_else(|| message.clone())))
            }
            other => self.kind_written_out(other)?,
        };
        Ok(kind.map(|kind| Stmt { kind, span: s.span }))
    }

    /// A statement that Relax and kernels share, with what Python computes in it written out; `None` where that is the
    /// statement itself.
    pub fn kind_written_out(&mut self, kind: &StmtKind<'a>) -> Result<Option<StmtKind<'a>>, Reported> {
        Ok(match kind {
            StmtKind::Expr(e) => self.written_out(e)?.map(StmtKind::Expr),
            StmtKind::If { cond, then, otherwise } => self.written_out(cond)?.map(|cond| StmtKind::If {
                cond,
                then: then.clone(),
                otherwise: otherwise.clone(),
            }),
            _ => None,
        })
    }

    /// An element that is given a value; a name that is, stays.
    fn element_written_out(&mut self, target: &Expr<'a>) -> Rewritten<'a> {
        match target.kind {
            ExprKind::Subscript(..) => self.written_out(target),
            _ => Ok(None),
        }
    }

    /// Is this a value of a kernel's scope that is no longer open?
    fn has_ended(&self, value: &Value, scope: Option<usize>) -> bool {
        let of_scope = !matches!(value, Value::Python(_) | Value::Module | Value::Poison);
        of_scope && self.in_kernel() && !self.names.is_open(scope)
    }

    fn mentions(&self, e: &Expr<'a>, out: &mut Vec<(&'a str, Value, Option<usize>)>) {
        if let (Some(n), Some(value)) = (e.as_name(), e.as_name().and_then(|n| self.names.get(n))) {
            out.push((n, value.clone(), self.names.scope_of(n)));
        }
        e.children().into_iter().for_each(|c| self.mentions(c, out));
    }

    /// The names in lambdas that have no value yet, but for those of their parameters.
    fn absent(&self, e: &Expr<'a>, bound: &mut Vec<&'a str>, out: &mut Vec<&'a str>) {
        let depth = bound.len();
        match &e.kind {
            ExprKind::Name(n) if depth > 0 && !bound.contains(n) && self.names.get(n).is_none() => out.push(n),
            ExprKind::Lambda(params, _) => bound.extend(params.iter().map(|p| p.name.name)),
            ExprKind::Comprehension(c) => {
                let targets =
                    c.clauses.iter().flat_map(|c| c.target.elements().unwrap_or(std::slice::from_ref(&c.target)));
                bound.extend(targets.filter_map(|t| t.as_name()));
            }
            _ => {}
        }
        e.children().into_iter().for_each(|c| self.absent(c, bound, out));
        bound.truncate(depth);
    }
}

fn meta_var(e: &Expr) -> bool {
    matches!(e.called().as_deref(), Some("I.meta_var" | "T.meta_var"))
}

struct Python<'c, 'a> {
    cx: &'c mut Cx<'a>,
    local: Local<'a>,
    made: usize,
    /// Lambdas whose bodies are under way.
    calls: usize,
    /// Lambdas whose bodies are looked at where they stand.
    defers: usize,
    /// Arithmetic of literals that stand as they are is computed.
    computes: bool,
}

impl<'a> Python<'_, 'a> {
    fn refuse<T>(&mut self, d: Diagnostic) -> Result<T, Reported> {
        let _: Option<()> = self.cx.report(d);
        Err(Reported)
    }

    /// A node over `kind`, of bounded height; all nodes made are counted.
    fn node(&mut self, kind: ExprKind<'a>, span: Span) -> Result<Expr<'a>, Reported> {
        let mut e = Expr { kind, span, depth: 0 };
        let below = e.children().iter().map(|c| c.depth).max().unwrap_or(0);
        self.count(if below >= MAX_DEPTH { MOST } else { 1 }, span)?;
        e.depth = below + 1;
        Ok(e)
    }

    fn count(&mut self, nodes: usize, span: Span) -> Result<(), Reported> {
        self.made = self.made.saturating_add(nodes);
        if self.made <= MOST {
            return Ok(());
        }
        let d = Diagnostic::unsupported("nesting", span, "what Python makes of this is too large to be written out");
        self.refuse(d.help("write fewer elements, or bind parts of them"))
    }

    fn int(&mut self, v: i128, span: Span) -> Result<Expr<'a>, Reported> {
        let digits = self.node(ExprKind::Int(v.unsigned_abs().to_string().into()), span)?;
        if v < 0 {
            return self.node(ExprKind::Unary(UnaryOp::Neg, Box::new(digits)), span);
        }
        Ok(digits)
    }

    fn value(&mut self, e: &Expr<'a>) -> Rewritten<'a> {
        match &e.kind {
            ExprKind::Name(n) => self.name(n, e.span),
            ExprKind::Lambda(params, body) => self.lambda(params, body, e.span),
            ExprKind::Comprehension(c) => self.comprehension(c, e.span).map(Some),
            ExprKind::Call(call) => self.call(call, e),
            ExprKind::Tuple(items) => {
                Ok(self.items(items)?.map(|v| self.node(ExprKind::Tuple(v), e.span)).transpose()?)
            }
            ExprKind::List(items) => {
                Ok(self.items(items)?.map(|v| self.node(ExprKind::List(v), e.span)).transpose()?)
            }
            ExprKind::Formatted(parts) => self.formatted(parts, e.span).map(Some),
            ExprKind::Dict(entries) => {
                let all: Vec<Expr<'a>> = entries.iter().flat_map(|(k, v)| [k.clone(), v.clone()]).collect();
                let Some(new) = self.each(&all)? else { return Ok(None) };
                let pairs = new.chunks(2).map(|p| (p[0].clone(), p[1].clone())).collect();
                self.node(ExprKind::Dict(pairs), e.span).map(Some)
            }
            ExprKind::Attribute(base, field) => match self.of_type(base, field.name, e.span)? {
                Some(told) => Ok(Some(told)),
                None => match self.value(base)? {
                    Some(base) => self.node(ExprKind::Attribute(Box::new(base), *field), e.span).map(Some),
                    None => Ok(None),
                },
            },
            ExprKind::Starred(inner) => match self.value(inner)? {
                Some(inner) => self.node(ExprKind::Starred(Box::new(inner)), e.span).map(Some),
                None => Ok(None),
            },
            ExprKind::Keywords(inner) => match self.value(inner)? {
                Some(inner) => self.node(ExprKind::Keywords(Box::new(inner)), e.span).map(Some),
                None => Ok(None),
            },
            ExprKind::Subscript(base, index) => {
                self.no_part_of_shape(base, index)?;
                let new = self.each(&[(**base).clone(), (**index).clone()])?;
                let (base, index, changed) = match &new {
                    Some(v) => (&v[0], &v[1], true),
                    None => (&**base, &**index, false),
                };
                // In Relax, a tuple that stands there is a value of its own; one that a name stands for is Python's.
                let tuples = self.computes || self.cx.in_kernel() || new.is_some();
                if let Some(found) = element(base, index, tuples) {
                    return Ok(Some(found));
                }
                if let Some(part) = slice(base, index) {
                    return self.node(part, e.span).map(Some);
                }
                match changed {
                    true => {
                        let kind = ExprKind::Subscript(Box::new(base.clone()), Box::new(index.clone()));
                        self.node(kind, e.span).map(Some)
                    }
                    false => Ok(None),
                }
            }
            ExprKind::Slice(from, to, step) => {
                let mut bounds = [from.clone(), to.clone(), step.clone()];
                let mut changed = false;
                for bound in bounds.iter_mut().flatten() {
                    if let Some(new) = self.value(bound)? {
                        **bound = new;
                        changed = true;
                    }
                }
                let [from, to, step] = bounds;
                changed.then(|| self.node(ExprKind::Slice(from, to, step), e.span)).transpose()
            }
            ExprKind::Unary(UnaryOp::Not, a) if self.computes && truth(a).is_some() => {
                self.node(ExprKind::Bool(truth(a) == Some(false)), e.span).map(Some)
            }
            ExprKind::Unary(op, a) => match self.value(a)? {
                Some(a) => self.node(ExprKind::Unary(*op, Box::new(a)), e.span).map(Some),
                None => Ok(None),
            },
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b, e.span),
            ExprKind::Ternary { cond, then, otherwise } => {
                let cond = self.value(cond)?.unwrap_or_else(|| (**cond).clone());
                let chosen = match truth(&cond) {
                    Some(true) => then,
                    Some(false) => otherwise,
                    None => {
                        let new = self.each(&[cond, (**then).clone(), (**otherwise).clone()])?;
                        let Some(mut v) = new else { return Ok(None) };
                        let (otherwise, then, cond) = (v.pop(), v.pop(), v.pop());
                        let (Some(c), Some(t), Some(o)) = (cond, then, otherwise) else { return Ok(None) };
                        let kind = ExprKind::Ternary { cond: Box::new(c), then: Box::new(t), otherwise: Box::new(o) };
                        return self.node(kind, e.span).map(Some);
                    }
                };
                Ok(Some(self.value(chosen)?.unwrap_or_else(|| (**chosen).clone())))
            }
            _ => Ok(None),
        }
    }

    fn name(&mut self, n: &'a str, span: Span) -> Rewritten<'a> {
        if let Some((_, value)) = self.local.iter().rev().find(|(name, _)| *name == n) {
            let value = value.clone();
            self.count(value.as_ref().map_or(0, size), span)?;
            return Ok(value);
        }
        let Some(Value::Python(at)) = self.cx.names.get(n) else { return Ok(None) };
        let Some(named) = self.cx.names.pythons.get(*at) else { return Ok(None) };
        let again = |(name, then, scope): &&(&str, Value, Option<usize>)| match (self.cx.names.get(name), then) {
            // In a kernel, a name of a scope that has another value now is the same memory cell.
            (Some(Value::Prim(_)), Value::Prim(_)) if self.cx.in_kernel() => self.cx.names.scope_of(name) != *scope,
            (_, then) if self.cx.has_ended(then, *scope) => true,
            (Some(Value::Relax(a)), Value::Relax(b)) => a != b,
            (Some(Value::Prim(a)), Value::Prim(b)) => a != b,
            (Some(Value::Buffer(a)), Value::Buffer(b)) => a != b,
            (Some(Value::Python(a)), Value::Python(b)) => a != b,
            (now, then) => now.is_none_or(|now| std::mem::discriminant(now) != std::mem::discriminant(then)),
        };
        if let Some(other) = named.absent.iter().find(|other| self.cx.names.get(other).is_some()) {
            let message = format!("`{n}` mentions `{other}`, which had no value where `{n}` was made");
            let d = Diagnostic::error("python-value", span, message);
            return self.refuse(d.help(format!("bind `{other}` before it")));
        }
        let mut then: Vec<(&'a str, Value, Option<usize>)> = vec![];
        for (name, value, scope) in named.mentions.iter().filter(again) {
            if then.iter().all(|(n, ..)| n != name) {
                then.push((*name, value.clone(), *scope));
            }
        }
        let mut value = named.value.clone();
        self.count(size(&value), span)?;
        if !then.is_empty() {
            value = self.as_it_was(n, value, then, span)?;
        }
        Ok(Some(Expr { span, ..value }))
    }

    /// `value` with these names standing for what they stood for where it was made.
    fn as_it_was(
        &mut self,
        n: &str,
        value: Expr<'a>,
        then: Vec<(&'a str, Value, Option<usize>)>,
        span: Span,
    ) -> Result<Expr<'a>, Reported> {
        let mut local: Local<'a> = vec![];
        for (name, meant, scope) in then {
            let ended = self.cx.has_ended(&meant, scope);
            let Some(hidden) = self.cx.names.hide(name, (!ended).then_some(meant), scope) else {
                let message = format!("`{n}` mentions `{name}`, which stands for another value here");
                let d = Diagnostic::unsupported("python-value", span, message);
                return self.refuse(d.help("bind it to another name"));
            };
            local.push((name, Some(self.node(ExprKind::Name(hidden), span)?)));
        }
        let outer = std::mem::replace(&mut self.local, local);
        let new = self.value(&value);
        self.local = outer;
        Ok(new?.unwrap_or(value))
    }

    /// The new list, each element unpacked where it is `*` of a list; `None` where nothing changes.
    fn items(&mut self, items: &[Expr<'a>]) -> Result<Option<Vec<Expr<'a>>>, Reported> {
        let Some(new) = self.each(items)? else { return Ok(None) };
        let unpacked = new.into_iter().flat_map(|e| match e.kind {
            ExprKind::Starred(inner) if inner.elements().is_some() => inner.elements().unwrap_or(&[]).to_vec(),
            _ => vec![e],
        });
        Ok(Some(unpacked.collect()))
    }

    fn each(&mut self, items: &[Expr<'a>]) -> Result<Option<Vec<Expr<'a>>>, Reported> {
        let mut out: Option<Vec<Expr<'a>>> = None;
        for (i, e) in items.iter().enumerate() {
            match (self.value(e)?, &mut out) {
                (Some(new), Some(out)) => out.push(new),
                (Some(new), None) => out = Some(items[..i].iter().cloned().chain([new]).collect()),
                (None, Some(out)) => out.push(e.clone()),
                (None, None) => {}
            }
        }
        Ok(out)
    }

    /// Default values are looked at where the lambda stands, its body too as far as it does not mention its parameters.
    fn lambda(&mut self, params: &[Param<'a>], body: &Expr<'a>, span: Span) -> Rewritten<'a> {
        let free = |n: &str| self.local.iter().any(|(_, v)| v.as_ref().is_some_and(|v| names(v, n)));
        if let Some(p) = params.iter().find(|p| free(p.name.name)) {
            let message = format!("`{}` stands for two values within this lambda", p.name.name);
            let d = Diagnostic::unsupported("python-value", p.name.span, message);
            return self.refuse(d.help("give it another name"));
        }
        let defaults: Vec<Expr<'a>> = params.iter().filter_map(|p| p.default.clone()).collect();
        let defaults = self.each(&defaults)?;
        let depth = self.local.len();
        // Without values of comprehensions and lambdas around it, it is looked at where it is called.
        let new = if self.cx.in_kernel() && depth == 0 {
            None
        } else {
            self.local.extend(params.iter().map(|p| (p.name.name, None)));
            self.defers += 1;
            let new = self.value(body);
            self.defers -= 1;
            self.local.truncate(depth);
            new?
        };
        if new.is_none() && defaults.is_none() {
            return Ok(None);
        }
        let mut params = params.to_vec();
        let stated = params.iter_mut().filter_map(|p| p.default.as_mut());
        stated.zip(defaults.into_iter().flatten()).for_each(|(p, value)| *p = value);
        let body = new.unwrap_or_else(|| body.clone());
        self.node(ExprKind::Lambda(params, Box::new(body)), span).map(Some)
    }

    fn call(&mut self, call: &CallExpr<'a>, e: &Expr<'a>) -> Rewritten<'a> {
        if let Some(answer) = self.method(call, e.span)? {
            return Ok(Some(answer));
        }
        // In Python's order.
        let func = self.value(&call.func)?;
        let args = self.items(&call.args)?;
        let stated: Vec<Expr<'a>> = call.keywords.iter().map(|(_, v)| v.clone()).collect();
        let rest = self.each(&stated)?;
        let changed = func.is_some() || args.is_some() || rest.is_some();
        let (func, args) = (func.unwrap_or_else(|| call.func.clone()), args.unwrap_or_else(|| call.args.clone()));
        let mut keywords: Vec<(Ident<'a>, Expr<'a>)> =
            call.keywords.iter().map(|(k, _)| *k).zip(rest.unwrap_or(stated)).collect();
        let args = self.named_arguments(args, &mut keywords)?;
        if let ExprKind::Lambda(params, body) = &func.kind {
            return self.apply(params, body, args, keywords, e.span).map(Some);
        }
        if meta_var(e) && args.len() == 1 {
            return Ok(args.into_iter().next());
        }
        if let (Some(name), [_, ..]) = (func.as_name(), args.as_slice()) {
            if keywords.is_empty() && self.cx.names.get(name).is_none() {
                if let Some(found) = self.function(name, &args, e.span)? {
                    return Ok(Some(found));
                }
            }
        }
        if !changed {
            return Ok(None);
        }
        self.node(ExprKind::Call(Box::new(CallExpr { func, args, keywords })), e.span).map(Some)
    }

    /// The arguments without `**names`, whose entries are arguments by name.
    fn named_arguments(
        &mut self,
        args: Vec<Expr<'a>>,
        keywords: &mut Vec<(Ident<'a>, Expr<'a>)>,
    ) -> Result<Vec<Expr<'a>>, Reported> {
        let mut out = vec![];
        for e in args {
            let ExprKind::Keywords(of) = &e.kind else {
                out.push(e);
                continue;
            };
            let ExprKind::Dict(entries) = &of.kind else {
                let d = Diagnostic::error("syntax", e.span, "only a dictionary that is written down can be unpacked");
                return self
                    .refuse(d.help("bind it to a name of Python: `d = {\"axis\": 1}`, in a kernel T.meta_var({..})"));
            };
            for (key, value) in entries {
                // The name as it is written between its quotes.
                let inner = self.cx.text.get(key.span.lo as usize + 1..(key.span.hi as usize).saturating_sub(1));
                let Some(name) = inner.filter(|inner| key.as_str() == Some(inner)) else {
                    let d = Diagnostic::error("syntax", key.span, "the keys of unpacked arguments are plain strings");
                    return self.refuse(d);
                };
                keywords.push((Ident { name, span: key.span }, value.clone()));
            }
        }
        Ok(out)
    }

    /// The lambda's body with its arguments in place.
    fn apply(
        &mut self,
        params: &[Param<'a>],
        body: &Expr<'a>,
        args: Vec<Expr<'a>>,
        keywords: Vec<(Ident<'a>, Expr<'a>)>,
        span: Span,
    ) -> Result<Expr<'a>, Reported> {
        let given = args.len() + keywords.len();
        let Some(bound) = self.given(params, args, keywords, span)? else {
            let names: Vec<&str> = params.iter().map(|p| p.name.name).collect();
            let message = format!("this lambda takes {} arguments ({}), {given} given", params.len(), names.join(", "));
            return self.refuse(Diagnostic::error("argument", span, message));
        };
        // A lambda may be given itself.
        self.count(if self.calls >= CALLS { MOST } else { size(body) }, span)?;
        self.calls += 1;
        let outer = std::mem::replace(&mut self.local, bound);
        let value = self.value(body);
        self.local = outer;
        self.calls -= 1;
        Ok(Expr { span, ..value?.unwrap_or_else(|| body.clone()) })
    }

    /// What the parameters of a lambda stand for; `None` where the arguments are others.
    fn given(
        &mut self,
        params: &[Param<'a>],
        args: Vec<Expr<'a>>,
        keywords: Vec<(Ident<'a>, Expr<'a>)>,
        span: Span,
    ) -> Result<Option<Local<'a>>, Reported> {
        let mut args = args.into_iter();
        let mut keywords: Vec<Option<(Ident<'a>, Expr<'a>)>> = keywords.into_iter().map(Some).collect();
        let mut bound: Local<'a> = vec![];
        for p in params {
            let mut by_name = || {
                let at = keywords.iter().position(|k| k.as_ref().is_some_and(|(k, _)| k.name == p.name.name))?;
                keywords[at].take().map(|(_, value)| value)
            };
            let value = match p.kind {
                ParamKind::Plain => args.next().or_else(&mut by_name).or_else(|| p.default.clone()),
                ParamKind::Named => by_name().or_else(|| p.default.clone()),
                ParamKind::Rest => Some(self.node(ExprKind::List(args.by_ref().collect()), span)?),
                ParamKind::Keywords => {
                    let mut entries = vec![];
                    for (k, value) in keywords.iter_mut().filter_map(Option::take) {
                        entries.push((self.node(ExprKind::Str(k.name.to_string()), k.span)?, value));
                    }
                    Some(self.node(ExprKind::Dict(entries), span)?)
                }
            };
            match value {
                Some(value) => bound.push((p.name.name, Some(value))),
                None => return Ok(None),
            }
        }
        let all = args.next().is_none() && keywords.iter().all(Option::is_none);
        Ok(all.then_some(bound))
    }

    /// Python's own functions of lists; `None` for others, and for what is no list.
    fn function(&mut self, name: &str, args: &[Expr<'a>], span: Span) -> Rewritten<'a> {
        match (name, args) {
            ("list" | "tuple", [of]) => match self.sequence(of)? {
                Some(items) if name == "list" => self.node(ExprKind::List(items), span).map(Some),
                Some(items) => self.node(ExprKind::Tuple(items), span).map(Some),
                None => Ok(None),
            },
            ("len", [of]) => match of.elements() {
                Some(items) if items.iter().all(|e| !matches!(e.kind, ExprKind::Starred(_))) => {
                    self.int(items.len() as i128, span).map(Some)
                }
                _ => match &of.kind {
                    ExprKind::Dict(entries) => {
                        let again = |i: usize| entries[..i].iter().any(|(k, _)| equal(k, &entries[i].0) == Some(true));
                        let n = (0..entries.len()).filter(|i| !again(*i)).count();
                        self.int(n as i128, span).map(Some)
                    }
                    _ => Ok(None),
                },
            },
            ("isinstance", [of, classes]) => self.is_instance(of, classes, span).map(Some),
            ("str", [of]) => match (integer(of), of.as_str()) {
                (Some(v), _) => self.node(ExprKind::Str(v.to_string()), span).map(Some),
                (_, Some(text)) => self.node(ExprKind::Str(text.to_string()), span).map(Some),
                _ => Ok(None),
            },
            ("any" | "all" | "sum" | "sorted", _) if self.cx.in_kernel() && self.generates(span) => {
                let d = Diagnostic::error("syntax", span, "kernels have no generators");
                self.refuse(d.help("write a list: `[.. for .. in ..]`"))
            }
            ("any" | "all", [of]) => {
                let Some(items) = self.sequence(of)? else { return Ok(None) };
                let Some(truths) = items.iter().map(truth).collect::<Option<Vec<bool>>>() else { return Ok(None) };
                let holds = if name == "any" { truths.contains(&true) } else { !truths.contains(&false) };
                self.node(ExprKind::Bool(holds), span).map(Some)
            }
            ("max" | "min", _) => {
                let items = match args {
                    [of] => self.sequence(of)?,
                    _ => Some(args.to_vec()),
                };
                let whole = items.and_then(|items| items.iter().map(integer).collect::<Option<Vec<i128>>>());
                let found = whole.and_then(|v| if name == "max" { v.into_iter().max() } else { v.into_iter().min() });
                found.map(|v| self.int(v, span)).transpose()
            }
            ("sum" | "sorted", [of]) => {
                let Some(items) = self.sequence(of)? else { return Ok(None) };
                let Some(mut whole) = items.iter().map(integer).collect::<Option<Vec<i128>>>() else {
                    if name == "sum" && self.cx.in_kernel() {
                        return self.sum(items, span).map(Some);
                    }
                    return Ok(None);
                };
                if name == "sum" {
                    return self.int(whole.iter().fold(0, |a, b| a.saturating_add(*b)), span).map(Some);
                }
                whole.sort_unstable();
                let items = whole.into_iter().map(|v| self.int(v, span)).collect::<Result<Vec<_>, _>>()?;
                self.node(ExprKind::List(items), span).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// `0 + a + b + ..`, the zero left out.
    fn sum(&mut self, items: Vec<Expr<'a>>, span: Span) -> Result<Expr<'a>, Reported> {
        let mut items = items.into_iter();
        let Some(mut whole) = items.next() else { return self.int(0, span) };
        for item in items {
            whole = self.node(ExprKind::Binary(BinaryOp::Add, Box::new(whole), Box::new(item)), span)?;
        }
        Ok(whole)
    }

    /// Is the call at `span` one of a generator, `f(e for x in list)`? TVM's parser of kernels does not know its names.
    fn generates(&self, span: Span) -> bool {
        let text = self.cx.text.get(span.lo as usize..span.hi as usize).unwrap_or("");
        text.contains(" for ") && text.split_once('(').is_some_and(|(_, args)| !args.trim_start().starts_with('['))
    }

    fn comprehension(&mut self, c: &Comprehension<'a>, span: Span) -> Result<Expr<'a>, Reported> {
        let mut out = vec![];
        let depth = self.local.len();
        let done = self.rounds(c, &c.clauses, &mut out);
        self.local.truncate(depth);
        done?;
        match c.key {
            // Keys and elements in turn.
            Some(_) => {
                let entries = out.chunks(2).map(|p| (p[0].clone(), p[1].clone())).collect();
                self.node(ExprKind::Dict(entries), span)
            }
            None => self.node(ExprKind::List(out), span),
        }
    }

    fn rounds(
        &mut self,
        made: &Comprehension<'a>,
        clauses: &[Clause<'a>],
        out: &mut Vec<Expr<'a>>,
    ) -> Result<(), Reported> {
        let Some((clause, inner)) = clauses.split_first() else {
            for e in made.key.iter().chain([&made.element]) {
                self.count(size(e), e.span)?;
                out.push(self.value(e)?.unwrap_or_else(|| e.clone()));
            }
            return Ok(());
        };
        let iter = self.value(&clause.iter)?.unwrap_or_else(|| clause.iter.clone());
        let Some(items) = self.sequence(&iter)? else {
            let d = Diagnostic::error("syntax", clause.iter.span, "a comprehension goes through what is written down");
            return self.refuse(d.help("a list, range(..), zip(..), enumerate(..) or a tuple that has a name"));
        };
        for item in items {
            let depth = self.local.len();
            self.bind(&clause.target, item)?;
            let mut taken = true;
            for cond in &clause.conditions {
                let value = self.value(cond)?.unwrap_or_else(|| cond.clone());
                match truth(&value) {
                    Some(t) => taken &= t,
                    None => {
                        let message = "what this condition is, is not known while the text is read";
                        return self.refuse(Diagnostic::error("syntax", cond.span, message));
                    }
                }
            }
            if taken {
                self.rounds(made, inner, out)?;
            }
            self.local.truncate(depth);
        }
        Ok(())
    }

    fn bind(&mut self, target: &Expr<'a>, value: Expr<'a>) -> Result<(), Reported> {
        match (target.as_name(), target.elements(), value.elements()) {
            (Some(n), ..) => self.local.push((n, Some(value))),
            (_, Some(names), Some(values)) if names.len() == values.len() => {
                for (n, v) in names.iter().zip(values) {
                    self.bind(n, v.clone())?;
                }
            }
            _ => {
                let d = Diagnostic::error("syntax", target.span, "these names do not take the elements apart");
                return self.refuse(d);
            }
        }
        Ok(())
    }
}
