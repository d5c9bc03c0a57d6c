//! Expressions of the Python subset, by precedence climbing.

use super::lexer::{decode_string, Tok};
use super::pyparse::{parse_expression, Halt, Parser, KEYWORDS};
use super::syntax::*;
use relax_ir::{Diagnostic, Span};

type Parsed<'a> = Result<Expr<'a>, Halt>;

impl<'a> Parser<'a, '_> {
    /// A node over `children`; refuses trees that are too tall.
    pub(super) fn node(&mut self, kind: ExprKind<'a>, span: Span) -> Parsed<'a> {
        let mut e = Expr { kind, span, depth: 0 };
        let below = e.children().iter().map(|c| c.depth).max().unwrap_or(0);
        if below >= MAX_DEPTH {
            // Taken apart here, while it is known to be small enough to recurse.
            return Err(self.too_deep(span));
        }
        e.depth = below + 1;
        Ok(e)
    }

    pub(super) fn too_deep(&mut self, span: Span) -> Halt {
        let at = Span::new(span.file, span.lo, span.hi.min(span.lo + 1).max(span.lo));
        let d = Diagnostic::error("nesting", at, "this expression is nested too deeply");
        self.diags.push(d.help("bind parts of it to variables of their own"));
        Halt
    }

    /// `a, b, c` without parentheses, or one expression.
    pub(super) fn expr_list(&mut self) -> Parsed<'a> {
        let lo = self.span();
        let starred = self.at_op("*");
        let mut items = vec![];
        self.item(&mut items)?;
        if !self.at_op(",") {
            match items.pop() {
                Some(first) if !starred => return Ok(first),
                _ => return Err(self.expected("`,`: fields are unpacked into a tuple")),
            }
        }
        while self.eat_op(",") {
            if !self.starts_expr() && !self.at_op("*") {
                break;
            }
            self.item(&mut items)?;
        }
        let span = lo.to(self.prev_span());
        self.node(ExprKind::Tuple(items), span)
    }

    pub(super) fn starts_expr(&self) -> bool {
        match self.tok() {
            Tok::Name => {
                let t = self.text_here();
                !KEYWORDS.contains(&t) || matches!(t, "not" | "lambda" | "True" | "False" | "None")
            }
            Tok::Int | Tok::Float | Tok::Str => true,
            Tok::Op(op) => matches!(op, "(" | "[" | "{" | "-" | "+" | "~" | "..."),
            _ => false,
        }
    }

    pub(super) fn expr(&mut self) -> Parsed<'a> {
        self.guarded(Self::ternary)
    }

    /// Counts the levels of recursion around `f`.
    fn guarded(&mut self, f: fn(&mut Self) -> Parsed<'a>) -> Parsed<'a> {
        if self.nesting >= Self::MAX_NESTING {
            let span = self.span();
            return Err(self.too_deep(span));
        }
        self.nesting += 1;
        let r = f(self);
        self.nesting -= 1;
        r
    }

    fn ternary(&mut self) -> Parsed<'a> {
        if self.at_word("lambda") {
            return self.lambda();
        }
        let then = self.or_test()?;
        if !self.at_word("if") {
            return Ok(then);
        }
        self.bump();
        let cond = self.or_test()?;
        self.expect_word("else")?;
        let otherwise = self.expr()?;
        let span = then.span.to(otherwise.span);
        let kind = ExprKind::Ternary { cond: Box::new(cond), then: Box::new(then), otherwise: Box::new(otherwise) };
        self.node(kind, span)
    }

    fn lambda(&mut self) -> Parsed<'a> {
        let lo = self.span();
        self.bump();
        self.python = true;
        let mut params: Vec<Param<'a>> = vec![];
        let mut plain = ParamKind::Plain;
        while !self.at_op(":") {
            let kind = match self.tok() {
                Tok::Op("*") => {
                    self.bump();
                    plain = ParamKind::Named;
                    if self.at_op(",") {
                        self.bump();
                        continue;
                    }
                    ParamKind::Rest
                }
                Tok::Op("**") => {
                    self.bump();
                    ParamKind::Keywords
                }
                _ => plain,
            };
            let name = self.ident("a parameter of the lambda")?;
            let takes = matches!(kind, ParamKind::Plain | ParamKind::Named);
            let default = if takes && self.eat_op("=") { Some(self.expr()?) } else { None };
            params.push(Param { name, kind, default });
            if !self.eat_op(",") {
                break;
            }
        }
        self.expect_op(":")?;
        let body = self.expr()?;
        let span = lo.to(body.span);
        self.node(ExprKind::Lambda(params, Box::new(body)), span)
    }

    fn binary_node(&mut self, op: BinaryOp, a: Expr<'a>, b: Expr<'a>) -> Parsed<'a> {
        self.python |= matches!(a.kind, ExprKind::List(_)) || matches!(b.kind, ExprKind::List(_));
        let span = a.span.to(b.span);
        self.node(ExprKind::Binary(op, Box::new(a), Box::new(b)), span)
    }

    fn or_test(&mut self) -> Parsed<'a> {
        let mut a = self.and_test()?;
        while self.at_word("or") {
            self.bump();
            let b = self.and_test()?;
            a = self.binary_node(BinaryOp::Or, a, b)?;
        }
        Ok(a)
    }

    fn and_test(&mut self) -> Parsed<'a> {
        let mut a = self.not_test()?;
        while self.at_word("and") {
            self.bump();
            let b = self.not_test()?;
            a = self.binary_node(BinaryOp::And, a, b)?;
        }
        Ok(a)
    }

    fn not_test(&mut self) -> Parsed<'a> {
        if self.at_word("not") {
            let lo = self.span();
            self.bump();
            let a = self.guarded(Self::not_test)?;
            let span = lo.to(a.span);
            return self.node(ExprKind::Unary(UnaryOp::Not, Box::new(a)), span);
        }
        self.comparison()
    }

    /// `a < b < c` means `a < b and b < c`.
    fn comparison(&mut self) -> Parsed<'a> {
        let first = self.binary(0)?;
        let mut left = first;
        let mut chain: Option<Expr<'a>> = None;
        loop {
            let op = match self.tok() {
                Tok::Op("==") => BinaryOp::Eq,
                Tok::Op("!=") => BinaryOp::Ne,
                Tok::Op("<") => BinaryOp::Lt,
                Tok::Op("<=") => BinaryOp::Le,
                Tok::Op(">") => BinaryOp::Gt,
                Tok::Op(">=") => BinaryOp::Ge,
                Tok::Name => match self.membership() {
                    Some(op) => op,
                    None => return Ok(chain.unwrap_or(left)),
                },
                _ => return Ok(chain.unwrap_or(left)),
            };
            self.bump();
            let right = self.binary(0)?;
            // Only a chain needs its middle operand twice.
            let another = matches!(self.tok(), Tok::Op("==" | "!=" | "<" | "<=" | ">" | ">="));
            let next = if another { Some(right.clone()) } else { None };
            let one = self.binary_node(op, left, right)?;
            let all = match chain.take() {
                None => one,
                Some(c) => self.binary_node(BinaryOp::And, c, one)?,
            };
            match next {
                Some(n) => {
                    chain = Some(all);
                    left = n;
                }
                None => return Ok(all),
            }
        }
    }

    /// `in`, `not in`, `is` or `is not` at the word under way, of which the last is left to be passed over.
    fn membership(&mut self) -> Option<BinaryOp> {
        let next = self.peek_word(1);
        let (op, long) = match (self.text_here(), next) {
            ("in", _) => (BinaryOp::In, false),
            ("not", Some("in")) => (BinaryOp::NotIn, true),
            ("is", Some("not")) => (BinaryOp::IsNot, true),
            ("is", _) => (BinaryOp::Is, false),
            _ => return None,
        };
        self.python = true;
        if long {
            self.bump();
        }
        Some(op)
    }

    fn binary_operator(&self) -> Option<(BinaryOp, u8)> {
        let Tok::Op(op) = self.tok() else { return None };
        Some(match op {
            "|" => (BinaryOp::BitOr, 1),
            "^" => (BinaryOp::BitXor, 2),
            "&" => (BinaryOp::BitAnd, 3),
            "<<" => (BinaryOp::Shl, 4),
            ">>" => (BinaryOp::Shr, 4),
            "+" => (BinaryOp::Add, 5),
            "-" => (BinaryOp::Sub, 5),
            "*" => (BinaryOp::Mul, 6),
            "/" => (BinaryOp::Div, 6),
            "//" => (BinaryOp::FloorDiv, 6),
            "%" => (BinaryOp::Mod, 6),
            "@" => (BinaryOp::MatMul, 6),
            _ => return None,
        })
    }

    /// Operators that bind tighter than `level`; the recursion is as deep as there are levels.
    fn binary(&mut self, level: u8) -> Parsed<'a> {
        let mut a = self.unary()?;
        while let Some((op, l)) = self.binary_operator() {
            if l <= level {
                break;
            }
            self.bump();
            let b = self.binary(l)?;
            a = self.binary_node(op, a, b)?;
        }
        Ok(a)
    }

    fn unary(&mut self) -> Parsed<'a> {
        let op = match self.tok() {
            Tok::Op("-") => UnaryOp::Neg,
            Tok::Op("+") => UnaryOp::Plus,
            Tok::Op("~") => UnaryOp::Invert,
            _ => return self.power(),
        };
        let lo = self.span();
        self.bump();
        let a = self.guarded(Self::unary)?;
        let span = lo.to(a.span);
        self.node(ExprKind::Unary(op, Box::new(a)), span)
    }

    fn power(&mut self) -> Parsed<'a> {
        let a = self.postfix()?;
        if !self.eat_op("**") {
            return Ok(a);
        }
        let b = self.guarded(Self::unary)?;
        self.binary_node(BinaryOp::Pow, a, b)
    }

    fn postfix(&mut self) -> Parsed<'a> {
        let mut e = self.atom()?;
        loop {
            match self.tok() {
                Tok::Op(".") => {
                    self.bump();
                    let name = self.ident("a name after the dot")?;
                    let span = e.span.to(name.span);
                    e = self.node(ExprKind::Attribute(Box::new(e), name), span)?;
                }
                Tok::Op("(") => e = self.call(e)?,
                Tok::Op("[") => {
                    self.bump();
                    let index = self.subscript()?;
                    self.expect_op("]")?;
                    let span = e.span.to(self.prev_span());
                    e = self.node(ExprKind::Subscript(Box::new(e), Box::new(index)), span)?;
                }
                _ => return Ok(e),
            }
        }
    }

    fn call(&mut self, func: Expr<'a>) -> Parsed<'a> {
        let lo = func.span;
        self.bump();
        let mut args = vec![];
        let mut keywords: Vec<(Ident<'a>, Expr<'a>)> = vec![];
        while !self.at_op(")") {
            if self.tok() == Tok::Op("**") {
                self.named_arguments(&mut args, &mut keywords)?;
            } else if self.tok() == Tok::Op("*") {
                self.starred(&mut args)?;
            } else if self.tok() == Tok::Name && self.peek_tok(1) == Tok::Op("=") {
                let name = self.ident("a keyword")?;
                self.bump();
                let value = self.expr()?;
                keywords.push((name, value));
            } else {
                let span = self.span();
                let mut e = self.expr()?;
                if self.at_word("for") && args.is_empty() && keywords.is_empty() {
                    e = self.comprehension(None, e)?;
                }
                if !keywords.is_empty() {
                    let d = Diagnostic::error("syntax", span.to(e.span), "a positional argument follows a keyword one");
                    self.diags.push(d.help("write it before the first `name=value`"));
                }
                args.push(e);
            }
            if !self.eat_op(",") {
                break;
            }
        }
        self.expect_op(")")?;
        let span = lo.to(self.prev_span());
        self.python |=
            matches!(func.as_name(), Some("isinstance" | "any" | "all" | "sum" | "sorted" | "max" | "min" | "len"));
        self.node(ExprKind::Call(Box::new(CallExpr { func, args, keywords })), span)
    }

    /// An element of a tuple: an expression, or several that are unpacked.
    fn item(&mut self, items: &mut Vec<Expr<'a>>) -> Result<(), Halt> {
        if self.at_op("*") {
            return self.starred(items);
        }
        items.push(self.expr()?);
        Ok(())
    }

    /// `*(a, b)` among arguments or elements.
    fn starred(&mut self, items: &mut Vec<Expr<'a>>) -> Result<(), Halt> {
        let lo = self.span();
        self.bump();
        let e = self.expr()?;
        match e.kind {
            ExprKind::Tuple(v) | ExprKind::List(v) => items.extend(v),
            _ => {
                let span = lo.to(e.span);
                items.push(self.node(ExprKind::Starred(Box::new(e)), span)?);
            }
        }
        Ok(())
    }

    /// `**{"axis": 1}`, `**names`
    fn named_arguments(
        &mut self,
        args: &mut Vec<Expr<'a>>,
        keywords: &mut Vec<(Ident<'a>, Expr<'a>)>,
    ) -> Result<(), Halt> {
        let lo = self.span();
        self.bump();
        let e = self.expr()?;
        let ExprKind::Dict(entries) = e.kind else {
            self.python = true;
            let span = lo.to(e.span);
            args.push(self.node(ExprKind::Keywords(Box::new(e)), span)?);
            return Ok(());
        };
        for (k, v) in entries {
            // The name as written between its quotes.
            let inner = self.text.get(k.span.lo as usize + 1..(k.span.hi as usize).saturating_sub(1));
            match (k.as_str(), inner) {
                (Some(name), Some(inner)) if name == inner => {
                    keywords.push((Ident { name: inner, span: k.span }, v));
                }
                _ => return Err(self.error_here("the keys of unpacked arguments are plain strings")),
            }
        }
        Ok(())
    }

    fn subscript(&mut self) -> Parsed<'a> {
        let lo = self.span();
        let first = self.slice_item()?;
        if !self.at_op(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.eat_op(",") {
            if self.at_op("]") {
                break;
            }
            items.push(self.slice_item()?);
        }
        let span = lo.to(self.prev_span());
        self.node(ExprKind::Tuple(items), span)
    }

    fn slice_item(&mut self) -> Parsed<'a> {
        let lo = self.span();
        let start = if self.at_op(":") { None } else { Some(Box::new(self.expr()?)) };
        if !self.at_op(":") {
            return match start {
                Some(e) => Ok(*e),
                None => Err(self.error_here("an index is needed here")),
            };
        }
        self.bump();
        let ends = |p: &Self| matches!(p.tok(), Tok::Op(":" | "," | "]"));
        let stop = if ends(self) { None } else { Some(Box::new(self.expr()?)) };
        let step = if self.eat_op(":") && !ends(self) { Some(Box::new(self.expr()?)) } else { None };
        let span = lo.to(self.prev_span());
        self.node(ExprKind::Slice(start, stop, step), span)
    }

    fn atom(&mut self) -> Parsed<'a> {
        let span = self.span();
        match self.tok() {
            Tok::Int => {
                let t = self.text_here();
                self.bump();
                self.node(ExprKind::Int(t.into()), span)
            }
            Tok::Float => {
                let t = self.text_here();
                self.bump();
                self.node(ExprKind::Float(t), span)
            }
            Tok::Str => {
                let mut s = String::new();
                let mut parts = vec![];
                while self.tok() == Tok::Str {
                    let prefix = self.text_here().split(['"', '\'']).next().unwrap_or("");
                    if prefix.contains(['b', 'B']) {
                        return Err(self.error_here("byte strings are no part of TVMScript"));
                    }
                    match prefix.contains(['f', 'F']) {
                        true => self.formatted(&mut s, &mut parts)?,
                        false => s.push_str(&decode_string(self.text_here())),
                    }
                    self.bump();
                }
                let span = span.to(self.prev_span());
                if parts.is_empty() {
                    return self.node(ExprKind::Str(s), span);
                }
                self.python = true;
                parts.push(self.node(ExprKind::Str(s), span)?);
                self.node(ExprKind::Formatted(parts), span)
            }
            Tok::Name => {
                let name = self.text_here();
                let kind = match name {
                    "True" => ExprKind::Bool(true),
                    "False" => ExprKind::Bool(false),
                    "None" => ExprKind::None,
                    _ if KEYWORDS.contains(&name) => {
                        return Err(self.error_here(&format!("an expression is needed here, not `{name}`")))
                    }
                    _ => ExprKind::Name(name),
                };
                self.bump();
                self.node(kind, span)
            }
            Tok::Op("(") => self.parenthesized(),
            Tok::Op("[") => {
                self.bump();
                let mut items = self.items("]")?;
                if let [Expr { kind: ExprKind::Comprehension(_), .. }] = items.as_slice() {
                    if let Some(one) = items.pop() {
                        return Ok(one);
                    }
                }
                let span = span.to(self.prev_span());
                self.node(ExprKind::List(items), span)
            }
            Tok::Op("{") => self.dict(),
            _ => Err(self.error_here("an expression is needed here")),
        }
    }

    /// `a, b, c CLOSE`, the closing bracket included.
    fn items(&mut self, close: &'static str) -> Result<Vec<Expr<'a>>, Halt> {
        let mut items = vec![];
        while !self.at_op(close) {
            if self.at_op("*") {
                self.starred(&mut items)?;
            } else {
                let element = self.expr()?;
                if self.at_word("for") && items.is_empty() && close == "]" {
                    items.push(self.comprehension(None, element)?);
                    break;
                }
                items.push(element);
            }
            if !self.eat_op(",") {
                break;
            }
        }
        self.expect_op(close)?;
        Ok(items)
    }

    /// `for target in iter if condition ..`, behind the element.
    fn comprehension(&mut self, key: Option<Expr<'a>>, element: Expr<'a>) -> Parsed<'a> {
        self.python = true;
        let mut clauses = vec![];
        while self.at_word("for") {
            self.bump();
            let target = self.target_list()?;
            self.expect_word("in")?;
            let iter = self.or_test()?;
            let mut conditions = vec![];
            while self.at_word("if") {
                self.bump();
                conditions.push(self.or_test()?);
            }
            clauses.push(Clause { target, iter, conditions });
        }
        let span = key.as_ref().unwrap_or(&element).span.to(self.prev_span());
        self.node(ExprKind::Comprehension(Box::new(Comprehension { key, element, clauses })), span)
    }

    fn parenthesized(&mut self) -> Parsed<'a> {
        let lo = self.span();
        self.bump();
        if self.eat_op(")") {
            let span = lo.to(self.prev_span());
            return self.node(ExprKind::Tuple(vec![]), span);
        }
        let starred = self.at_op("*");
        let mut items = vec![];
        self.item(&mut items)?;
        if !starred && self.eat_op(")") {
            if let Some(first) = items.pop() {
                return Ok(first);
            }
        }
        if !self.eat_op(",") {
            return Err(self.expected("`,` or `)`"));
        }
        items.extend(self.items(")")?);
        let span = lo.to(self.prev_span());
        self.node(ExprKind::Tuple(items), span)
    }

    fn dict(&mut self) -> Parsed<'a> {
        let lo = self.span();
        self.bump();
        let mut items = vec![];
        while !self.at_op("}") {
            let key = self.expr()?;
            self.expect_op(":")?;
            let value = self.expr()?;
            if self.at_word("for") && items.is_empty() {
                let made = self.comprehension(Some(key), value)?;
                self.expect_op("}")?;
                return Ok(made);
            }
            items.push((key, value));
            if !self.eat_op(",") {
                break;
            }
        }
        self.expect_op("}")?;
        let span = lo.to(self.prev_span());
        self.node(ExprKind::Dict(items), span)
    }

    /// The parts of the formatted string here: `text` is what stands before the next field, `parts` all before that.
    fn formatted(&mut self, text: &mut String, parts: &mut Vec<Expr<'a>>) -> Result<(), Halt> {
        let (written, span) = (self.text_here(), self.span());
        let Some(quote) = written.find(['"', '\'']) else { return Ok(()) };
        let mark = &written[quote..=quote];
        let quotes = if written.len() >= quote + 6 && written[quote..].starts_with(&mark.repeat(3)) { 3 } else { 1 };
        let (begin, end) = (quote + quotes, written.len().saturating_sub(quotes));
        let (head, tail) = (&written[..begin], &written[end..]);
        let plain = |part: &str| decode_string(&format!("{head}{part}{tail}"));
        let mut at = begin;
        while let Some(found) = written[at..end].find(['{', '}']).map(|k| at + k) {
            text.push_str(&plain(&written[at..found]));
            if written[found..end].starts_with("{{") || written[found..end].starts_with("}}") {
                text.push_str(&written[found..=found]);
                at = found + 2;
                continue;
            }
            let parted = field_parts(&written[..end], found + 1).filter(|_| written[found..].starts_with('{'));
            let Some(FieldParts { value, conversion, format, close }) = parted else {
                let message = "a field of a formatted string is one expression and what it looks like: `{n + 1:03d}`";
                return Err(self.error_here(message));
            };
            let lo = span.lo as usize;
            let field = parse_expression(span.file, self.text, lo + found + 1, lo + value, self.diags).ok_or(Halt)?;
            let before = self.node(ExprKind::Str(std::mem::take(text)), span)?;
            let shown = match (conversion, format) {
                (None, "") => field,
                _ => self.node(ExprKind::Field(Box::new(field), conversion, format.to_string()), span)?,
            };
            parts.extend([before, shown]);
            at = close + 1;
        }
        text.push_str(&plain(&written[at..end]));
        Ok(())
    }
}

/// The field of a formatted string: where its expression ends and where itself, and what stands between.
struct FieldParts<'t> {
    value: usize,
    conversion: Option<char>,
    format: &'t str,
    close: usize,
}

/// The field that begins at `at`; `None` where it does not end, or its format has fields or escapes of its own.
fn field_parts(text: &str, at: usize) -> Option<FieldParts<'_>> {
    let value = expression_end(text, at)?;
    let (conversion, rest) = match text[value..].strip_prefix('!') {
        Some(rest) => {
            let c = rest.chars().next().filter(|c| matches!(c, 'r' | 's' | 'a'))?;
            (Some(c), &rest[1..])
        }
        None => (None, &text[value..]),
    };
    let begin = text.len() - rest.len();
    let close = begin + rest.find('}')?;
    let format = match close - begin {
        0 => "",
        _ => rest[..close - begin].strip_prefix(':')?,
    };
    let plain = !format.contains(['{', '\\', '"', '\'', '\n']);
    plain.then_some(FieldParts { value, conversion, format, close })
}

/// Where the expression of the field that begins at `at` ends: before `!r`, `:` or the brace.
fn expression_end(text: &str, at: usize) -> Option<usize> {
    let mut open = vec![];
    let mut quote = None;
    for (k, c) in text.char_indices().skip_while(|(k, _)| *k < at) {
        match (quote, c) {
            (Some(q), _) => quote = (q != c).then_some(q),
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => open.push(c),
            (None, '}' | ':') if open.is_empty() => return Some(k),
            (None, '!') if open.is_empty() && !text[k..].starts_with("!=") => return Some(k),
            (None, ')' | ']' | '}') => drop(open.pop()?),
            _ => {}
        }
    }
    None
}
