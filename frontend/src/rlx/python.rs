//! What Python computes while TVM's parser reads a Relax function: names for values that are none of Relax
//! (`bias = None`, `kind = "float16"`, `f = lambda a: ..`, `I.meta_var(..)`), comprehensions, and lists made of lists.
//!
//! Expressions are rewritten before they are translated, so that everything behind this sees what is written out.
//!
//! Source: TVM `script.parser.core.evaluator`, `relax.script.parser.parser`, `bind_assign_value`.

use super::context::{Cx, Value};
use super::scalar::parse_int;
use super::syntax::*;
use relax_ir::{Diagnostic, Span};

/// What a name of Python stands for.
pub struct Named<'a> {
    value: Expr<'a>,
    /// The variables that it mentions, as they were then.
    mentions: Vec<(&'a str, Value)>,
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
        Python { cx: self, local: vec![], made: 0, calls: 0 }.value(e)
    }

    /// Binds `name` where `value` is a value of Python: whether it is.
    pub fn python_binding(&mut self, name: &'a str, value: &Expr<'a>) -> bool {
        let value = match &value.kind {
            ExprKind::None | ExprKind::Str(_) | ExprKind::Dict(_) | ExprKind::Lambda(..) => value,
            // A list of sizes stays one of Python, which a shape may be made of; a tuple is a value of Relax.
            ExprKind::List(items) if !items.is_empty() && items.iter().all(|i| self.is_size(i)) => value,
            ExprKind::Call(call) => match (meta_var(value), call.args.as_slice()) {
                (true, [inner]) => inner,
                _ => return false,
            },
            _ => return false,
        };
        let mut mentions = vec![];
        self.mentions(value, &mut mentions);
        self.names.pythons.push(Named { value: value.clone(), mentions });
        self.names.bind(name, Value::Python(self.names.pythons.len() - 1));
        true
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
            _ => self.written_out(e),
        }
    }

    /// The statement of a kernel with what Python computes in it written out; `None` where that is the statement itself.
    pub fn kernel_without_python(&mut self, s: &Stmt<'a>) -> Result<Option<Stmt<'a>>, Reported> {
        let kind = match &s.kind {
            StmtKind::Assign { target, annotation, value: Some(value) } => {
                let (place, new) = (self.element_written_out(target)?, self.bound_written_out(value)?);
                (place.is_some() || new.is_some()).then(|| StmtKind::Assign {
                    target: place.unwrap_or_else(|| target.clone()),
                    annotation: annotation.clone(),
                    value: Some(new.unwrap_or_else(|| value.clone())),
                })
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

    fn mentions(&self, e: &Expr<'a>, out: &mut Vec<(&'a str, Value)>) {
        if let (Some(n), Some(value)) = (e.as_name(), e.as_name().and_then(|n| self.names.get(n))) {
            out.push((n, value.clone()));
        }
        e.children().into_iter().for_each(|c| self.mentions(c, out));
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
            ExprKind::Dict(entries) => {
                let all: Vec<Expr<'a>> = entries.iter().flat_map(|(k, v)| [k.clone(), v.clone()]).collect();
                let Some(new) = self.each(&all)? else { return Ok(None) };
                let pairs = new.chunks(2).map(|p| (p[0].clone(), p[1].clone())).collect();
                self.node(ExprKind::Dict(pairs), e.span).map(Some)
            }
            ExprKind::Attribute(base, field) => match self.value(base)? {
                Some(base) => self.node(ExprKind::Attribute(Box::new(base), *field), e.span).map(Some),
                None => Ok(None),
            },
            ExprKind::Starred(inner) => match self.value(inner)? {
                Some(inner) => self.node(ExprKind::Starred(Box::new(inner)), e.span).map(Some),
                None => Ok(None),
            },
            ExprKind::Subscript(base, index) => {
                let new = self.each(&[(**base).clone(), (**index).clone()])?;
                let (base, index, changed) = match &new {
                    Some(v) => (&v[0], &v[1], true),
                    None => (&**base, &**index, false),
                };
                if let Some(found) = element(base, index) {
                    return Ok(Some(found));
                }
                match changed {
                    true => {
                        let kind = ExprKind::Subscript(Box::new(base.clone()), Box::new(index.clone()));
                        self.node(kind, e.span).map(Some)
                    }
                    false => Ok(None),
                }
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
        let again = |(name, then): &&(&str, Value)| match (self.cx.names.get(name), then) {
            (Some(Value::Relax(a)), Value::Relax(b)) => a != b,
            (Some(Value::Prim(a)), Value::Prim(b)) => a != b,
            (Some(Value::Buffer(a)), Value::Buffer(b)) => a != b,
            (Some(Value::Python(a)), Value::Python(b)) => a != b,
            (now, then) => now.is_none_or(|now| std::mem::discriminant(now) != std::mem::discriminant(then)),
        };
        if let Some((other, _)) = named.mentions.iter().find(again) {
            let message = format!("`{n}` mentions `{other}`, which stands for another value here");
            return self.refuse(Diagnostic::unsupported("python-value", span, message).help("bind it to another name"));
        }
        let value = named.value.clone();
        self.count(size(&value), span)?;
        Ok(Some(Expr { span, ..value }))
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

    fn lambda(&mut self, params: &[Ident<'a>], body: &Expr<'a>, span: Span) -> Rewritten<'a> {
        let free = |n: &str| self.local.iter().any(|(_, v)| v.as_ref().is_some_and(|v| names(v, n)));
        if let Some(p) = params.iter().find(|p| free(p.name)) {
            let message = format!("`{}` stands for two values within this lambda", p.name);
            return self.refuse(Diagnostic::unsupported("python-value", p.span, message).help("give it another name"));
        }
        let depth = self.local.len();
        self.local.extend(params.iter().map(|p| (p.name, None)));
        let body = self.value(body);
        self.local.truncate(depth);
        match body? {
            Some(body) => self.node(ExprKind::Lambda(params.to_vec(), Box::new(body)), span).map(Some),
            None => Ok(None),
        }
    }

    fn call(&mut self, call: &CallExpr<'a>, e: &Expr<'a>) -> Rewritten<'a> {
        let mut all = vec![call.func.clone()];
        all.extend(call.keywords.iter().map(|(_, v)| v.clone()));
        let rest = self.each(&all)?;
        let args = self.items(&call.args)?;
        let changed = rest.is_some() || args.is_some();
        let mut rest = rest.unwrap_or(all);
        let keywords: Vec<Expr<'a>> = rest.drain(1..).collect();
        let (func, args) = (rest.remove(0), args.unwrap_or_else(|| call.args.clone()));
        if let ExprKind::Lambda(params, body) = &func.kind {
            return self.apply(params, body, args, call, keywords, e.span).map(Some);
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
        let keywords = call.keywords.iter().map(|(k, _)| *k).zip(keywords).collect();
        self.node(ExprKind::Call(Box::new(CallExpr { func, args, keywords })), e.span).map(Some)
    }

    /// The lambda's body with its arguments in place.
    fn apply(
        &mut self,
        params: &[Ident<'a>],
        body: &Expr<'a>,
        args: Vec<Expr<'a>>,
        call: &CallExpr<'a>,
        keywords: Vec<Expr<'a>>,
        span: Span,
    ) -> Result<Expr<'a>, Reported> {
        let given = args.len() + keywords.len();
        let mut bound: Local<'a> = params.iter().map(|p| p.name).zip(args.into_iter().map(Some)).collect();
        bound.extend(call.keywords.iter().map(|(k, _)| k.name).zip(keywords.into_iter().map(Some)));
        let all = given == params.len()
            && bound.len() == params.len()
            && params.iter().all(|p| bound.iter().filter(|(n, _)| *n == p.name).count() == 1);
        if !all {
            let names: Vec<&str> = params.iter().map(|p| p.name).collect();
            let message = format!("this lambda takes {} arguments ({}), {given} given", params.len(), names.join(", "));
            return self.refuse(Diagnostic::error("argument", span, message));
        }
        // A lambda may call itself by its name.
        self.count(if self.calls >= CALLS { MOST } else { size(body) }, span)?;
        self.calls += 1;
        let outer = std::mem::replace(&mut self.local, bound);
        let value = self.value(body);
        self.local = outer;
        self.calls -= 1;
        Ok(Expr { span, ..value?.unwrap_or_else(|| body.clone()) })
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
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// What Python goes through: a list, a tuple, `range`, `zip`, `enumerate`, the fields of a variable.
    fn sequence(&mut self, e: &Expr<'a>) -> Result<Option<Vec<Expr<'a>>>, Reported> {
        if let Some(items) = e.elements() {
            return Ok(Some(items.to_vec()));
        }
        if e.as_name().is_some() {
            let starred = Expr { kind: ExprKind::Starred(Box::new(e.clone())), span: e.span, depth: e.depth };
            return Ok(self.cx.unpacked(&[starred]));
        }
        let (Some(name), Some(call)) = (e.called(), e.as_call()) else { return Ok(None) };
        match name.as_str() {
            "range" => {
                let values: Option<Vec<i128>> = call.args.iter().map(integer).collect();
                let (from, to, step) = match values.as_deref() {
                    Some([to]) => (0, *to, 1),
                    Some([from, to]) => (*from, *to, 1),
                    Some([from, to, step]) if *step != 0 => (*from, *to, *step),
                    _ => return Ok(None),
                };
                let (mut at, mut out) = (from, vec![]);
                while if step > 0 { at < to } else { at > to } {
                    out.push(self.int(at, e.span)?);
                    at += step;
                }
                Ok(Some(out))
            }
            "enumerate" if call.args.len() == 1 => {
                let Some(items) = self.sequence(&call.args[0])? else { return Ok(None) };
                let mut out = vec![];
                for (i, item) in items.into_iter().enumerate() {
                    let i = self.int(i as i128, e.span)?;
                    out.push(self.node(ExprKind::Tuple(vec![i, item]), e.span)?);
                }
                Ok(Some(out))
            }
            "zip" => {
                let mut lists = vec![];
                for a in &call.args {
                    match self.sequence(a)? {
                        Some(items) => lists.push(items),
                        None => return Ok(None),
                    }
                }
                let n = lists.iter().map(Vec::len).min().unwrap_or(0);
                let rows = (0..n).map(|i| lists.iter().map(|l| l[i].clone()).collect());
                rows.map(|row| self.node(ExprKind::Tuple(row), e.span)).collect::<Result<Vec<_>, _>>().map(Some)
            }
            _ => Ok(None),
        }
    }

    fn comprehension(&mut self, c: &Comprehension<'a>, span: Span) -> Result<Expr<'a>, Reported> {
        let mut out = vec![];
        let depth = self.local.len();
        let done = self.rounds(&c.element, &c.clauses, &mut out);
        self.local.truncate(depth);
        done?;
        self.node(ExprKind::List(out), span)
    }

    fn rounds(&mut self, element: &Expr<'a>, clauses: &[Clause<'a>], out: &mut Vec<Expr<'a>>) -> Result<(), Reported> {
        let Some((clause, inner)) = clauses.split_first() else {
            self.count(size(element), element.span)?;
            out.push(self.value(element)?.unwrap_or_else(|| element.clone()));
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
                self.rounds(element, inner, out)?;
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

    /// Integers and lists; what was there already stays where nothing changes in it.
    fn binary(&mut self, op: BinaryOp, a: &Expr<'a>, b: &Expr<'a>, span: Span) -> Rewritten<'a> {
        let new = self.each(&[a.clone(), b.clone()])?;
        let (a, b) = match &new {
            Some(v) => (&v[0], &v[1]),
            None => (a, b),
        };
        let list = |e: &Expr<'a>| match &e.kind {
            ExprKind::List(v) => Some(v.clone()),
            _ => None,
        };
        match (op, list(a), list(b), integer(a), integer(b)) {
            (BinaryOp::Add, Some(x), Some(y), ..) => {
                return self.node(ExprKind::List([x, y].concat()), span).map(Some);
            }
            (BinaryOp::Mul, Some(x), _, _, Some(n)) | (BinaryOp::Mul, _, Some(x), Some(n), _) => {
                let n = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
                self.count(n.saturating_mul(x.iter().map(size).sum::<usize>().max(1)), span)?;
                let items = (0..n).flat_map(|_| x.iter().cloned()).collect();
                return self.node(ExprKind::List(items), span).map(Some);
            }
            (_, _, _, Some(x), Some(y)) if new.is_some() => {
                let whole = match op {
                    BinaryOp::Add => x.checked_add(y),
                    BinaryOp::Sub => x.checked_sub(y),
                    BinaryOp::Mul => x.checked_mul(y),
                    BinaryOp::FloorDiv => floor_div(x, y),
                    BinaryOp::Mod => floor_div(x, y).and_then(|q| x.checked_sub(y.checked_mul(q)?)),
                    _ => None,
                };
                if let Some(v) = whole {
                    return self.int(v, span).map(Some);
                }
            }
            _ => {}
        }
        match new {
            Some(_) => self.node(ExprKind::Binary(op, Box::new(a.clone()), Box::new(b.clone())), span).map(Some),
            None => Ok(None),
        }
    }
}

/// `[a, b][1]`, `{"k": a}["k"]`
fn element<'a>(base: &Expr<'a>, index: &Expr<'a>) -> Option<Expr<'a>> {
    match (&base.kind, integer(index), index.as_str()) {
        (ExprKind::List(items), Some(i), _) => {
            let at = if i < 0 { i + items.len() as i128 } else { i };
            items.get(usize::try_from(at).ok()?).cloned()
        }
        (ExprKind::Dict(entries), _, Some(key)) => {
            entries.iter().rev().find(|(k, _)| k.as_str() == Some(key)).map(|(_, v)| v.clone())
        }
        _ => None,
    }
}

fn integer(e: &Expr) -> Option<i128> {
    match &e.kind {
        ExprKind::Int(t) => parse_int(t),
        ExprKind::Unary(UnaryOp::Neg, a) => integer(a).and_then(i128::checked_neg),
        _ => None,
    }
}

fn floor_div(x: i128, y: i128) -> Option<i128> {
    let (q, r) = (x.checked_div_euclid(y)?, x.checked_rem_euclid(y)?);
    Some(if y < 0 && r != 0 { q - 1 } else { q })
}

/// What Python takes a literal, or a comparison of integers, for.
fn truth(e: &Expr) -> Option<bool> {
    match &e.kind {
        ExprKind::Bool(b) => Some(*b),
        ExprKind::None => Some(false),
        ExprKind::Unary(UnaryOp::Not, a) => truth(a).map(|b| !b),
        ExprKind::Binary(BinaryOp::And, a, b) => Some(truth(a)? && truth(b)?),
        ExprKind::Binary(BinaryOp::Or, a, b) => Some(truth(a)? || truth(b)?),
        ExprKind::Binary(op, a, b) => {
            let (a, b) = (integer(a)?, integer(b)?);
            match op {
                BinaryOp::Eq => Some(a == b),
                BinaryOp::Ne => Some(a != b),
                BinaryOp::Lt => Some(a < b),
                BinaryOp::Le => Some(a <= b),
                BinaryOp::Gt => Some(a > b),
                BinaryOp::Ge => Some(a >= b),
                _ => None,
            }
        }
        _ => integer(e).map(|v| v != 0),
    }
}

fn size(e: &Expr) -> usize {
    1 + e.children().into_iter().map(size).sum::<usize>()
}

fn names(e: &Expr, name: &str) -> bool {
    e.as_name() == Some(name) || e.children().into_iter().any(|c| names(c, name))
}
