//! Methods of the lists and dictionaries that Python has while a kernel is read: `xs.append(v)`, `xs.pop()`, `d.get("k")`.
//!
//! The body of a loop and each branch are read once, so each call happens once. An element may outlive the scope of what it
//! mentions: it is an error only where it is used then.

use super::{meta_var, Python, Reported, Rewritten};
use crate::rlx::context::{Cx, Value};
use crate::rlx::python::literals::{equal, integer};
use crate::rlx::syntax::*;
use relax_ir::{Diagnostic, Span};

/// Methods that change what they belong to.
const CHANGING: [&str; 11] =
    ["append", "extend", "insert", "pop", "remove", "reverse", "clear", "sort", "update", "setdefault", "popitem"];
const READING: [&str; 7] = ["index", "count", "copy", "get", "keys", "values", "items"];

type Entries<'a> = Vec<(Expr<'a>, Expr<'a>)>;

impl<'a> Cx<'a> {
    /// The number of the list or dictionary that `e` names, or holds by `T.meta_var(name)`.
    pub fn collection_of(&self, e: &Expr<'a>) -> Option<usize> {
        let name = match (meta_var(e), e.as_call()) {
            (true, Some(call)) => call.args.first()?.as_name()?,
            _ => e.as_name()?,
        };
        let Some(Value::Python(at)) = self.names.get(name) else { return None };
        let named = self.names.pythons.get(*at)?;
        matches!(named.value.kind, ExprKind::List(_) | ExprKind::Dict(_)).then_some(*at)
    }

    /// Notes that `value`, which gets a name, is `new`: a list within another one, or one that holds the same lists.
    pub(super) fn note_entangled(&mut self, value: &Expr<'a>, new: &Expr<'a>) {
        let (value, new) = match (value.as_call(), new.as_call()) {
            (Some(v), Some(n)) if meta_var(value) && meta_var(new) => match (v.args.first(), n.args.first()) {
                (Some(v), Some(n)) => (v, n),
                _ => return,
            },
            (Some(v), _) if meta_var(value) => (v.args.first().unwrap_or(value), new),
            _ => (value, new),
        };
        let taken = |e: &Expr| matches!(e.kind, ExprKind::Subscript(..) | ExprKind::Ternary { .. } | ExprKind::Call(_));
        let holds = |e: &Expr| e.children().into_iter().any(is_collection);
        let same = match &value.kind {
            ExprKind::Subscript(_, index) if !matches!(index.kind, ExprKind::Slice(..)) => is_collection(new),
            ExprKind::Ternary { .. } => is_collection(new),
            ExprKind::Subscript(..) | ExprKind::Binary(..) | ExprKind::Call(_) => is_collection(new) && holds(new),
            ExprKind::List(_) | ExprKind::Dict(_) | ExprKind::Tuple(_) => {
                let given = value.children().into_iter().zip(new.children());
                given.into_iter().any(|(v, n)| taken(v) && is_collection(n))
            }
            _ => false,
        };
        self.names.entangled |= same;
    }

    /// Notes the collections of Python that `value`, which gets a name, holds as they are.
    pub(super) fn note_shared(&mut self, value: &Expr<'a>) {
        match &value.kind {
            ExprKind::Name(n) => {
                if let Some(Value::Python(at)) = self.names.get(n) {
                    self.names.shared.insert(*at);
                }
            }
            ExprKind::Call(call) if meta_var(value) => call.args.iter().for_each(|a| self.note_shared(a)),
            // What is made of a list holds its elements, not the list.
            ExprKind::Subscript(..) | ExprKind::Binary(..) | ExprKind::Unary(..) | ExprKind::Call(_) => {}
            _ => value.children().into_iter().for_each(|c| self.note_shared(c)),
        }
    }
}

impl<'a> Python<'_, 'a> {
    /// `xs.append(v)` and its kin of what Python has under a name; `None` for other calls.
    pub(super) fn method(&mut self, call: &CallExpr<'a>, span: Span) -> Rewritten<'a> {
        let ExprKind::Attribute(base, method) = &call.func.kind else { return Ok(None) };
        let changes = CHANGING.contains(&method.name);
        if !self.cx.in_kernel() || !changes && !READING.contains(&method.name) {
            return Ok(None);
        }
        let place = if changes { self.place(base)? } else { None };
        if changes && place.is_none() {
            let held = match base.as_name().and_then(|n| self.cx.names.get(n)) {
                Some(Value::Python(at)) => self.cx.names.pythons.get(*at).map(|named| named.value.describe()),
                _ => None,
            };
            let (Some(n), Some(what)) = (base.as_name(), held) else { return Ok(None) };
            let message = format!("`{n}` is {what}, only lists and dictionaries change");
            return self.refuse(Diagnostic::error("python-value", base.span, message));
        }
        if changes && self.defers > 0 {
            let d = Diagnostic::unsupported("python-value", span, "a lambda that changes a list is not followed");
            return self.refuse(d.help("change the list in a statement of its own"));
        }
        // Python looks at the arguments before it calls.
        let args = self.items(&call.args)?.unwrap_or_else(|| call.args.clone());
        let reversed = match call.keywords.as_slice() {
            [] => None,
            [(k, value)] if method.name == "sort" && k.name == "reverse" => super::truth(value),
            _ => return self.wrong_arguments(method.name, span),
        };
        let Some((at, name, path)) = place else {
            let whole = self.value(base)?.unwrap_or_else(|| (**base).clone());
            return Ok(self.answer(method.name, whole, &args, reversed, span)?.map(|(_, answer)| answer));
        };
        let names = &self.cx.names;
        if names.entangled || names.shared.contains(&at) || !path.is_empty() && !names.shared.is_empty() {
            let message = format!("another list may hold `{name}` or what is in it, which changes here");
            let d = Diagnostic::unsupported("python-value", base.span, message);
            return self.refuse(d.help("make it complete before it gets another name"));
        }
        match method.name {
            // The elements go over, not the list.
            "extend" => self.cx.names.entangled |= args.iter().any(|a| a.children().into_iter().any(is_collection)),
            _ => call.args.iter().for_each(|a| self.cx.note_shared(a)),
        }
        let mut root = base.clone();
        while let ExprKind::Subscript(of, _) = root.kind {
            root = of;
        }
        let whole = self.value(&root)?.unwrap_or_else(|| (*root).clone());
        let Some((new, answer)) = self.within(whole, &path, method.name, &args, reversed, span)? else {
            return Ok(None);
        };
        if new.children().len() > super::MOST {
            let d = Diagnostic::unsupported("nesting", span, format!("`{name}` becomes too large"));
            return self.refuse(d);
        }
        self.cx.python_value(&new);
        if let (Some(new), Some(old)) = (self.cx.names.pythons.pop(), self.cx.names.pythons.get_mut(at)) {
            *old = new;
        }
        Ok(Some(answer))
    }

    /// The collection that `xs` or `xs[1]["k"]` is: its number, the name, and the way from there.
    #[allow(clippy::type_complexity)]
    fn place(&mut self, base: &Expr<'a>) -> Result<Option<(usize, &'a str, Vec<Expr<'a>>)>, Reported> {
        match &base.kind {
            ExprKind::Name(n) if self.local.iter().all(|(name, _)| name != n) => {
                Ok(self.cx.collection_of(base).map(|at| (at, *n, vec![])))
            }
            ExprKind::Subscript(of, index) => {
                let Some((at, name, mut path)) = self.place(of)? else { return Ok(None) };
                path.push(self.value(index)?.unwrap_or_else(|| (**index).clone()));
                Ok(Some((at, name, path)))
            }
            _ => Ok(None),
        }
    }

    /// `e` after the call of this method of what stands at `path` in it, and the answer.
    fn within(
        &mut self,
        mut e: Expr<'a>,
        path: &[Expr<'a>],
        method: &str,
        args: &[Expr<'a>],
        reversed: Option<bool>,
        span: Span,
    ) -> Result<Option<(Expr<'a>, Expr<'a>)>, Reported> {
        let Some((index, rest)) = path.split_first() else { return self.answer(method, e, args, reversed, span) };
        let inner = match &mut e.kind {
            ExprKind::List(items) => {
                let n = items.len() as i128;
                let at = integer(index).map(|i| if i < 0 { i.saturating_add(n) } else { i });
                at.and_then(|i| usize::try_from(i).ok()).and_then(|i| items.get_mut(i))
            }
            ExprKind::Dict(entries) => {
                entries.iter_mut().rev().find(|(k, _)| equal(k, index) == Some(true)).map(|(_, v)| v)
            }
            _ => None,
        };
        let Some(inner) = inner else {
            let d = Diagnostic::error("python-value", index.span, "the list or dictionary has no such element");
            return self.refuse(d);
        };
        let Some((new, answer)) = self.within(inner.clone(), rest, method, args, reversed, span)? else {
            return Ok(None);
        };
        *inner = new;
        Ok(Some((self.node(e.kind, e.span)?, answer)))
    }

    /// What the collection `e` is after the call of this method, and the answer; `None` where it has no such method.
    fn answer(
        &mut self,
        method: &str,
        e: Expr<'a>,
        args: &[Expr<'a>],
        reversed: Option<bool>,
        span: Span,
    ) -> Result<Option<(Expr<'a>, Expr<'a>)>, Reported> {
        let at = e.span;
        let (kind, answer) = match e.kind {
            ExprKind::List(mut items) => {
                let answer = self.of_list(method, &mut items, args, reversed, span)?;
                (ExprKind::List(items), answer)
            }
            ExprKind::Tuple(mut items) if matches!(method, "index" | "count") => {
                let answer = self.of_list(method, &mut items, args, reversed, span)?;
                (ExprKind::Tuple(items), answer)
            }
            ExprKind::Dict(mut entries) => {
                let answer = self.of_dict(method, &mut entries, args, span)?;
                (ExprKind::Dict(entries), answer)
            }
            _ => return Ok(None),
        };
        Ok(Some((self.node(kind, at)?, answer)))
    }

    fn wrong_arguments<T>(&mut self, method: &str, span: Span) -> Result<T, Reported> {
        let d = Diagnostic::error("argument", span, format!("`{method}` does not take these arguments"));
        self.refuse(d)
    }

    /// What an element must be equal to is compared with each before it.
    fn position(&mut self, items: &[Expr<'a>], wanted: &Expr<'a>) -> Result<Option<usize>, Reported> {
        for (i, item) in items.iter().enumerate() {
            match equal(item, wanted) {
                Some(true) => return Ok(Some(i)),
                Some(false) => {}
                None => {
                    let what = "whether two values of the kernel are one is not known while the text is read";
                    return self.refuse(Diagnostic::unsupported("python-value", wanted.span, what));
                }
            }
        }
        Ok(None)
    }

    fn of_list(
        &mut self,
        method: &str,
        items: &mut Vec<Expr<'a>>,
        args: &[Expr<'a>],
        reversed: Option<bool>,
        span: Span,
    ) -> Result<Expr<'a>, Reported> {
        let missing = |cx: &mut Self, what: &str| {
            cx.refuse(Diagnostic::error("python-value", span, format!("`{method}`: {what}")))
        };
        let mut answer = ExprKind::None;
        match (method, args) {
            ("append", [v]) => items.push(v.clone()),
            ("extend", [vs]) => match self.sequence(vs)? {
                Some(more) => items.extend(more),
                None => {
                    let message = format!("a list is needed here, not {}", vs.describe());
                    return self.refuse(Diagnostic::error("python-value", vs.span, message));
                }
            },
            ("insert", [at, v]) => {
                let Some(at) = integer(at) else { return self.wrong_arguments(method, span) };
                let n = items.len() as i128;
                let at = if at < 0 { at.saturating_add(n) } else { at }.clamp(0, n);
                items.insert(usize::try_from(at).unwrap_or(items.len()), v.clone());
            }
            ("pop", [] | [_]) => {
                let Some(at) = args.first().map_or(Some(-1), integer) else {
                    return self.wrong_arguments(method, span);
                };
                let at = if at < 0 { at.saturating_add(items.len() as i128) } else { at };
                return match usize::try_from(at).ok().filter(|at| *at < items.len()) {
                    Some(at) => Ok(Expr { span, ..items.remove(at) }),
                    None if items.is_empty() => missing(self, "the list is empty"),
                    None => missing(self, "the list has no such element"),
                };
            }
            ("remove", [v]) => match self.position(items, v)? {
                Some(at) => drop(items.remove(at)),
                None => return missing(self, "the list has no such element"),
            },
            ("index", [v]) => match self.position(items, v)? {
                Some(at) => return self.int(at as i128, span),
                None => return missing(self, "the list has no such element"),
            },
            ("count", [v]) => {
                let mut n = 0;
                for item in items.iter() {
                    n += i128::from(self.position(std::slice::from_ref(item), v)?.is_some());
                }
                return self.int(n, span);
            }
            ("reverse", []) => items.reverse(),
            ("clear", []) => items.clear(),
            ("copy", []) => answer = ExprKind::List(items.clone()),
            ("sort", []) => {
                let Some(mut whole) = items.iter().map(integer).collect::<Option<Vec<i128>>>() else {
                    let d = Diagnostic::unsupported("python-value", span, "only lists of integers are sorted here");
                    return self.refuse(d);
                };
                whole.sort_unstable();
                if reversed == Some(true) {
                    whole.reverse();
                }
                *items = whole.into_iter().map(|v| self.int(v, span)).collect::<Result<_, _>>()?;
            }
            _ => return self.wrong_arguments(method, span),
        }
        self.node(answer, span)
    }

    fn of_dict(
        &mut self,
        method: &str,
        entries: &mut Entries<'a>,
        args: &[Expr<'a>],
        span: Span,
    ) -> Result<Expr<'a>, Reported> {
        // The last one of a key counts, in the place of the first.
        let mut unique: Entries<'a> = vec![];
        for (k, v) in entries.drain(..) {
            put(&mut unique, k, v);
        }
        *entries = unique;
        let place =
            |entries: &Entries<'a>, key: &Expr<'a>| entries.iter().position(|(k, _)| equal(k, key) == Some(true));
        let answer = match (method, args) {
            ("get", [key] | [key, _]) => match (place(entries, key), args.get(1)) {
                (Some(at), _) => return Ok(Expr { span, ..entries[at].1.clone() }),
                (None, Some(other)) => return Ok(Expr { span, ..other.clone() }),
                (None, None) => ExprKind::None,
            },
            ("pop", [key] | [key, _]) => match (place(entries, key), args.get(1)) {
                (Some(at), _) => return Ok(Expr { span, ..entries.remove(at).1 }),
                (None, Some(other)) => return Ok(Expr { span, ..other.clone() }),
                (None, None) => {
                    let d = Diagnostic::error("python-value", span, "`pop`: the dictionary has no such key");
                    return self.refuse(d);
                }
            },
            ("setdefault", [key] | [key, _]) => match place(entries, key) {
                Some(at) => return Ok(Expr { span, ..entries[at].1.clone() }),
                None => {
                    let value = match args.get(1) {
                        Some(v) => v.clone(),
                        None => self.node(ExprKind::None, span)?,
                    };
                    entries.push((key.clone(), value.clone()));
                    return Ok(Expr { span, ..value });
                }
            },
            ("update", [of]) => match &of.kind {
                ExprKind::Dict(more) => {
                    more.iter().for_each(|(k, v)| put(entries, k.clone(), v.clone()));
                    ExprKind::None
                }
                _ => return self.wrong_arguments(method, span),
            },
            ("clear", []) => {
                entries.clear();
                ExprKind::None
            }
            ("copy", []) => ExprKind::Dict(entries.clone()),
            ("keys", []) => ExprKind::List(entries.iter().map(|(k, _)| k.clone()).collect()),
            ("values", []) => ExprKind::List(entries.iter().map(|(_, v)| v.clone()).collect()),
            ("popitem", []) => match entries.pop() {
                Some((k, v)) => ExprKind::Tuple(vec![k, v]),
                None => {
                    let d = Diagnostic::error("python-value", span, "`popitem`: the dictionary is empty");
                    return self.refuse(d);
                }
            },
            ("items", []) => {
                let pairs = entries.iter().map(|(k, v)| ExprKind::Tuple(vec![k.clone(), v.clone()]));
                let pairs = pairs.map(|pair| self.node(pair, span)).collect::<Result<Vec<_>, _>>()?;
                ExprKind::List(pairs)
            }
            _ => return self.wrong_arguments(method, span),
        };
        self.node(answer, span)
    }
}

/// Does a call in `e` change a collection?
pub(super) fn changes_collections(e: &Expr) -> bool {
    let changes = e.as_call().is_some_and(|c| match &c.func.kind {
        ExprKind::Attribute(_, method) => CHANGING.contains(&method.name),
        _ => false,
    });
    changes || e.children().into_iter().any(changes_collections)
}

fn is_collection(e: &Expr) -> bool {
    matches!(e.kind, ExprKind::List(_) | ExprKind::Dict(_))
}

fn put<'a>(entries: &mut Entries<'a>, key: Expr<'a>, value: Expr<'a>) {
    match entries.iter().position(|(k, _)| equal(k, &key) == Some(true)) {
        Some(at) => entries[at].1 = value,
        None => entries.push((key, value)),
    }
}
