//! What Python's operators make of literals and lists, and of what class a value is.

use super::formats::{self, Refused, Shown};
use super::literals::{among, float, floor_div, integer, size};
use super::{Python, Reported, Rewritten};
use crate::rlx::syntax::*;
use relax_ir::{Diagnostic, Span};

impl<'a> Python<'_, 'a> {
    /// `isinstance(value, int)` and of the other classes that literals have. Values of TVM are of none of these.
    pub(super) fn is_instance(&mut self, of: &Expr<'a>, classes: &Expr<'a>, span: Span) -> Result<Expr<'a>, Reported> {
        let known = ["int", "float", "bool", "str", "list", "tuple", "dict"];
        let mut holds = false;
        for class in classes.elements().unwrap_or(std::slice::from_ref(classes)) {
            let Some(class) = class.as_name().filter(|n| known.contains(n)) else {
                let d = Diagnostic::error("syntax", class.span, "a class of Python is needed here");
                return self.refuse(d.help("int, float, bool, str, list, tuple or dict"));
            };
            holds |= match &of.kind {
                ExprKind::Bool(_) => matches!(class, "bool" | "int"),
                ExprKind::Float(_) => class == "float",
                ExprKind::Str(_) => class == "str",
                ExprKind::List(_) => class == "list",
                ExprKind::Tuple(_) => class == "tuple",
                ExprKind::Dict(_) => class == "dict",
                _ => class == "int" && integer(of).is_some(),
            };
        }
        self.node(ExprKind::Bool(holds), span)
    }

    /// `a in b`, `a is b` and their opposites; `None` where only the values themselves tell.
    fn membership(&mut self, op: BinaryOp, a: &Expr<'a>, b: &Expr<'a>, span: Span) -> Rewritten<'a> {
        let holds = match op {
            BinaryOp::Is | BinaryOp::IsNot => match (&a.kind, &b.kind) {
                (ExprKind::None, ExprKind::None) => Some(true),
                (ExprKind::Bool(x), ExprKind::Bool(y)) => Some(x == y),
                (ExprKind::None | ExprKind::Bool(_), _) | (_, ExprKind::None | ExprKind::Bool(_)) => Some(false),
                _ => None,
            },
            _ => match (&b.kind, a.as_str()) {
                (ExprKind::List(items) | ExprKind::Tuple(items), _) => among(a, items.iter()),
                (ExprKind::Dict(entries), _) => among(a, entries.iter().map(|(k, _)| k)),
                (ExprKind::Str(text), Some(part)) => Some(text.contains(part)),
                _ => None,
            },
        };
        let Some(holds) = holds else {
            let what = format!("what `{}` says here is not known while the text is read", op.symbol());
            return self.refuse(Diagnostic::error("syntax", span, what));
        };
        self.node(ExprKind::Bool(holds != matches!(op, BinaryOp::NotIn | BinaryOp::IsNot)), span).map(Some)
    }

    /// Integers and lists; what was there already stays where nothing changes in it.
    pub(super) fn binary(&mut self, op: BinaryOp, a: &Expr<'a>, b: &Expr<'a>, span: Span) -> Rewritten<'a> {
        // In Relax, a tuple is a value of its own.
        let tuples = self.computes || self.cx.in_kernel();
        let new = self.each(&[a.clone(), b.clone()])?;
        let (a, b) = match &new {
            Some(v) => (&v[0], &v[1]),
            None => (a, b),
        };
        let lists = |a: &Expr<'a>, b: &Expr<'a>| match (&a.kind, &b.kind) {
            (ExprKind::List(x), ExprKind::List(y)) => Some(ExprKind::List([&x[..], y].concat())),
            (ExprKind::Tuple(x), ExprKind::Tuple(y)) if tuples => Some(ExprKind::Tuple([&x[..], y].concat())),
            _ => None,
        };
        let repeated = |e: &Expr<'a>, n: &Expr<'a>| match (&e.kind, integer(n)) {
            (ExprKind::List(v), Some(n)) => Some((v.clone(), n, false)),
            (ExprKind::Tuple(v), Some(n)) if tuples => Some((v.clone(), n, true)),
            _ => None,
        };
        if matches!(op, BinaryOp::In | BinaryOp::NotIn | BinaryOp::Is | BinaryOp::IsNot) {
            return self.membership(op, a, b, span);
        }
        if let (BinaryOp::Add, Some(x), Some(y)) = (op, a.as_str(), b.as_str()) {
            self.count((x.len() + y.len()) / 16, span)?;
            return self.node(ExprKind::Str(format!("{x}{y}")), span).map(Some);
        }
        if let (BinaryOp::Add, Some(both)) = (op, lists(a, b)) {
            return self.node(both, span).map(Some);
        }
        if let (BinaryOp::Mul, Some((x, n, tuple))) = (op, repeated(a, b).or_else(|| repeated(b, a))) {
            let n = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
            self.count(n.saturating_mul(x.iter().map(size).sum::<usize>().max(1)), span)?;
            let items = (0..n).flat_map(|_| x.iter().cloned()).collect();
            return self.node(if tuple { ExprKind::Tuple(items) } else { ExprKind::List(items) }, span).map(Some);
        }
        match (integer(a), integer(b)) {
            (Some(x), Some(y)) if new.is_some() || self.computes => {
                let bits = u32::try_from(y).ok();
                let whole = match op {
                    BinaryOp::Pow => bits.and_then(|n| x.checked_pow(n)),
                    BinaryOp::Shl => bits.filter(|n| *n < 64).and_then(|n| x.checked_mul(1 << n)),
                    BinaryOp::Shr => bits.map(|n| x >> n.min(127)),
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

    /// The text that Python makes of `f"a {b}"`. A variable's text is its name.
    pub(super) fn formatted(&mut self, parts: &[Expr<'a>], span: Span) -> Result<Expr<'a>, Reported> {
        let mut text = String::new();
        let computed = std::mem::replace(&mut self.computes, true);
        for part in parts {
            let (written, conversion, format) = match &part.kind {
                ExprKind::Field(value, conversion, format) => (&**value, *conversion, format.as_str()),
                _ => (part, None, ""),
            };
            let value = self.value(written)?.unwrap_or_else(|| written.clone());
            let shown = match (&value.kind, integer(&value), self.cx.text_of(&value)) {
                (_, Some(v), _) => Shown::Integer(v),
                _ if float(&value).is_some() => Shown::Float(float(&value).unwrap_or_default()),
                (_, _, Some(said)) => Shown::Text(said),
                (ExprKind::Name(n), ..) => Shown::Object(n.to_string()),
                (ExprKind::Bool(b), ..) => Shown::Bool(*b),
                (ExprKind::None, ..) => Shown::Object("None".to_string()),
                _ => {
                    let what = format!("what text {} has is not known while this is read", value.describe());
                    let d = Diagnostic::unsupported("syntax", part.span, what);
                    return self.refuse(d.help("a field may hold names, integers and texts"));
                }
            };
            match formats::show(shown, conversion, format) {
                Ok(shown) => text.push_str(&shown),
                Err(Refused::Wrong(why)) => return self.refuse(Diagnostic::error("python-value", part.span, why)),
                Err(Refused::Unknown(why)) => return self.refuse(Diagnostic::unsupported("syntax", part.span, why)),
            }
            self.count(text.len() / 16, span)?;
        }
        self.computes = computed;
        self.count(text.len() / 16, span)?;
        self.node(ExprKind::Str(text), span)
    }
}
