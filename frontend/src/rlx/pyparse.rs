//! Statements of the Python subset, by recursive descent with recovery at the ends of lines.

use super::lexer::{lex, lex_expression, Tok, Token};
use super::syntax::*;
use relax_ir::{Diagnostic, Diagnostics, FileId, Span};

/// Something could not be read; it is reported already.
#[derive(Clone, Copy, Debug)]
pub struct Halt;

pub const KEYWORDS: [&str; 33] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "not", "or",
    "pass", "raise", "return", "try", "while", "with",
];

pub struct Parser<'a, 'd> {
    pub(super) text: &'a str,
    tokens: Vec<Token>,
    pos: usize,
    pub(super) nesting: u32,
    /// Where the current statement begins.
    begin: u32,
    /// The text has what Python alone computes: lambdas, comprehensions, `in`, `is`, `**names`.
    pub(super) python: bool,
    pub(super) diags: &'d mut Diagnostics,
}

/// All statements of a file, and whether Python computes something in them; what could not be read is [`StmtKind::Broken`].
pub fn parse_file<'a>(file: FileId, text: &'a str, diags: &mut Diagnostics) -> (Vec<Stmt<'a>>, bool) {
    let tokens = lex(file, text, diags);
    let mut p = Parser { text, tokens, pos: 0, nesting: 0, begin: 0, python: false, diags };
    let mut out = vec![];
    while p.tok() != Tok::Eof {
        match p.tok() {
            // An indented block where none belongs: reported, its statements are read all the same.
            Tok::Indent => {
                let d =
                    Diagnostic::error("indentation", p.span(), "this line is indented without a block to belong to");
                p.diags.push(d.help("remove the spaces at its beginning, or end the line above with a colon"));
                p.bump();
            }
            Tok::Dedent => p.bump(),
            _ => p.statement(&mut out),
        }
    }
    let python = p.python;
    (out, python)
}

/// An expression inside a string: bytes `lo..hi` of the file.
pub fn parse_expression<'a>(
    file: FileId,
    text: &'a str,
    lo: usize,
    hi: usize,
    diags: &mut Diagnostics,
) -> Option<Expr<'a>> {
    let before = diags.list.len();
    let tokens = lex_expression(file, text, lo, hi, diags);
    let mut p = Parser { text, tokens, pos: 0, nesting: 0, begin: 0, python: false, diags };
    let e = p.expr().ok()?;
    if p.tok() != Tok::Newline {
        p.expected("the end of the string");
        return None;
    }
    (p.diags.list.len() == before).then_some(e)
}

impl<'a> Parser<'a, '_> {
    /// Levels of brackets, calls and prefix operators within one another.
    pub(super) const MAX_NESTING: u32 = 160;

    fn here(&self) -> Token {
        // The last token is Eof and is never passed.
        self.tokens[self.pos.min(self.tokens.len() - 1)]
    }
    pub(super) fn tok(&self) -> Tok {
        self.here().tok
    }
    pub(super) fn span(&self) -> Span {
        self.here().span
    }
    pub(super) fn prev_span(&self) -> Span {
        self.tokens[self.pos.saturating_sub(1)].span
    }
    /// The last token before this one that is text and no end of a statement.
    fn last_span(&self) -> Span {
        let text = |t: &&Token| !matches!(t.tok, Tok::Newline | Tok::Indent | Tok::Dedent | Tok::Op(";"));
        self.tokens[..self.pos].iter().rev().find(text).map_or(self.span(), |t| t.span)
    }
    pub(super) fn peek_tok(&self, n: usize) -> Tok {
        self.tokens[(self.pos + n).min(self.tokens.len() - 1)].tok
    }
    /// The word `n` tokens from here, if one is there.
    pub(super) fn peek_word(&self, n: usize) -> Option<&'a str> {
        let token = &self.tokens[(self.pos + n).min(self.tokens.len() - 1)];
        (token.tok == Tok::Name).then(|| &self.text[token.span.lo as usize..token.span.hi as usize])
    }
    pub(super) fn text_here(&self) -> &'a str {
        let s = self.span();
        &self.text[s.lo as usize..s.hi as usize]
    }
    pub(super) fn bump(&mut self) {
        if self.pos + 1 < self.tokens.len() {
            self.pos += 1;
        }
    }
    pub(super) fn at_op(&self, op: &str) -> bool {
        matches!(self.tok(), Tok::Op(o) if o == op)
    }
    pub(super) fn eat_op(&mut self, op: &str) -> bool {
        let yes = self.at_op(op);
        if yes {
            self.bump();
        }
        yes
    }
    pub(super) fn at_word(&self, word: &str) -> bool {
        self.tok() == Tok::Name && self.text_here() == word
    }
    pub(super) fn expect_op(&mut self, op: &'static str) -> Result<(), Halt> {
        if self.eat_op(op) {
            return Ok(());
        }
        Err(self.expected(&format!("`{op}`")))
    }
    pub(super) fn expect_word(&mut self, word: &'static str) -> Result<(), Halt> {
        if self.at_word(word) {
            self.bump();
            return Ok(());
        }
        Err(self.expected(&format!("`{word}`")))
    }
    pub(super) fn expected(&mut self, what: &str) -> Halt {
        let found = match self.tok() {
            Tok::Newline => "the end of the line".to_string(),
            Tok::Eof => "the end of the file".to_string(),
            Tok::Indent | Tok::Dedent => "a change of indentation".to_string(),
            _ => {
                let t: String = self.text_here().chars().take(20).collect();
                format!("`{t}`")
            }
        };
        self.error_here(&format!("{what} is needed here, not {found}"))
    }
    pub(super) fn error_here(&mut self, message: &str) -> Halt {
        let span = self.span();
        let within = |d: &Diagnostic| d.code == "unclosed" && (self.begin..=span.lo).contains(&d.span().lo);
        // What follows from a bracket that is never closed is no news.
        if !(matches!(self.tok(), Tok::Newline | Tok::Eof) && self.diags.list.iter().any(within)) {
            self.diags.push(Diagnostic::error("syntax", span, message));
        }
        Halt
    }
    pub(super) fn ident(&mut self, what: &str) -> Result<Ident<'a>, Halt> {
        if self.tok() == Tok::Name && !KEYWORDS.contains(&self.text_here()) {
            let id = Ident { name: self.text_here(), span: self.span() };
            self.bump();
            return Ok(id);
        }
        Err(self.expected(what))
    }

    fn error_expr(&self) -> Expr<'a> {
        Expr { kind: ExprKind::Error, span: self.span(), depth: 1 }
    }

    /// To the end of the logical line, which is eaten.
    fn skip_line(&mut self) {
        while !matches!(self.tok(), Tok::Newline | Tok::Eof | Tok::Indent | Tok::Dedent) {
            self.bump();
        }
        if self.tok() == Tok::Newline {
            self.bump();
        }
    }

    /// The end of a simple statement.
    fn end_of_line(&mut self) {
        match self.tok() {
            Tok::Newline => self.bump(),
            Tok::Op(";") => self.bump(),
            Tok::Eof | Tok::Dedent => {}
            _ => {
                self.expected("the end of the line");
                self.skip_line();
            }
        }
    }

    /// Reads one statement into `out`; always moves on.
    fn statement(&mut self, out: &mut Vec<Stmt<'a>>) {
        let lo = self.span();
        let start = self.pos;
        self.begin = lo.lo;
        let kind = match self.tok() {
            Tok::Newline => {
                self.bump();
                return;
            }
            Tok::Op("@") => self.decorated(),
            Tok::Name => match self.text_here() {
                "def" => self.function(vec![]),
                "class" => self.class(vec![]),
                "if" => self.if_statement(),
                "for" => self.for_statement(),
                "while" => self.while_statement(),
                "with" => self.with_statement(),
                _ => self.simple(),
            },
            _ => self.simple(),
        };
        if self.pos == start {
            self.bump();
        }
        let span = lo.to(self.last_span());
        out.push(Stmt { kind, span });
        // A block that belongs to nothing, e.g. after a broken header.
        if self.tok() == Tok::Indent {
            if !matches!(out.last().map(|s| &s.kind), Some(StmtKind::Broken(_))) {
                let d = Diagnostic::error("indentation", self.span(), "this block belongs to no statement");
                self.diags.push(d.here("more indented than the line above"));
            }
            let mut inner = vec![];
            self.block(&mut inner);
            out.extend(inner);
        }
    }

    /// At an indent: the statements up to its dedent.
    fn block(&mut self, out: &mut Vec<Stmt<'a>>) {
        self.bump();
        while !matches!(self.tok(), Tok::Dedent | Tok::Eof) {
            self.statement(out);
        }
        if self.tok() == Tok::Dedent {
            self.bump();
        }
    }

    /// After a header: `:`, then a block, or statements on the same line.
    fn suite(&mut self) -> Vec<Stmt<'a>> {
        let mut body = vec![];
        if !self.eat_op(":") {
            self.expected("`:`");
            self.skip_line();
        } else if self.tok() != Tok::Newline {
            loop {
                let lo = self.span();
                let kind = self.simple();
                body.push(Stmt { kind, span: lo.to(self.last_span()) });
                // `if c: a = f(); b = g()`
                if self.tokens[self.pos - 1].tok != Tok::Op(";") {
                    return body;
                }
                if matches!(self.tok(), Tok::Newline | Tok::Eof) {
                    self.bump();
                    return body;
                }
            }
        } else {
            self.bump();
        }
        if self.tok() == Tok::Indent {
            self.block(&mut body);
        } else {
            let d = Diagnostic::error("indentation", self.span(), "an indented block is needed here");
            self.diags.push(d.help("write `pass` for an empty block"));
        }
        body
    }

    /// An expression of a header; unreadable ones are replaced and the line is skipped up to its colon.
    fn header_expr(&mut self) -> Expr<'a> {
        match self.expr_list() {
            Ok(e) => e,
            Err(Halt) => {
                let e = self.error_expr();
                while !matches!(self.tok(), Tok::Newline | Tok::Eof | Tok::Indent | Tok::Dedent) {
                    if self.at_op(":") && self.peek_tok(1) == Tok::Newline {
                        break;
                    }
                    self.bump();
                }
                e
            }
        }
    }

    fn simple(&mut self) -> StmtKind<'a> {
        let kind = match self.simple_inner() {
            Ok(k) => k,
            Err(Halt) => {
                self.skip_line();
                return StmtKind::Broken(None);
            }
        };
        if let StmtKind::Assign { value: Some(v), .. } = &kind {
            if v.is_error() {
                self.skip_line();
                return kind;
            }
        }
        self.end_of_line();
        kind
    }

    fn simple_inner(&mut self) -> Result<StmtKind<'a>, Halt> {
        if self.tok() == Tok::Name {
            match self.text_here() {
                "return" => {
                    self.bump();
                    let value = if self.starts_expr() || self.at_op("*") { Some(self.expr_list()?) } else { None };
                    return Ok(StmtKind::Return(value));
                }
                "pass" => {
                    self.bump();
                    return Ok(StmtKind::Pass);
                }
                "import" | "from" => {
                    while !matches!(self.tok(), Tok::Newline | Tok::Eof) {
                        self.bump();
                    }
                    return Ok(StmtKind::Import);
                }
                "assert" => {
                    self.bump();
                    let cond = self.expr()?;
                    let message = if self.eat_op(",") { Some(self.expr()?) } else { None };
                    return Ok(StmtKind::Assert(cond, message));
                }
                "break" => {
                    self.bump();
                    return Ok(StmtKind::Break);
                }
                "continue" => {
                    self.bump();
                    return Ok(StmtKind::Continue);
                }
                word @ ("try" | "raise" | "del" | "global" | "async" | "await" | "else" | "elif" | "except"
                | "finally") => {
                    return Err(self.error_here(&format!("`{word}` is not understood here")));
                }
                _ => {}
            }
        }
        let target = self.expr_list()?;
        let annotation = if self.eat_op(":") {
            match self.expr() {
                Ok(e) => Some(e),
                Err(Halt) => {
                    // The name stays bound, the rest of the line is lost.
                    let e = self.error_expr();
                    return Ok(StmtKind::Assign { target, annotation: None, value: Some(e) });
                }
            }
        } else {
            None
        };
        if self.eat_op("=") {
            let value = self.expr_list().unwrap_or_else(|Halt| self.error_expr());
            if self.at_op("=") {
                return Err(self.error_here("chained assignments are no part of TVMScript"));
            }
            return Ok(StmtKind::Assign { target, annotation, value: Some(value) });
        }
        if annotation.is_some() {
            return Ok(StmtKind::Assign { target, annotation, value: None });
        }
        if let Some(op) = self.augmented() {
            self.bump();
            let value = self.expr_list()?;
            let span = target.span.to(value.span);
            let value = self.node(ExprKind::Binary(op, Box::new(target.clone()), Box::new(value)), span)?;
            return Ok(StmtKind::Augment { target, value });
        }
        if self.at_op(":=") {
            return Err(self.error_here("assignments inside of expressions are no part of TVMScript"));
        }
        Ok(StmtKind::Expr(target))
    }

    /// The operator of `target op= value`.
    fn augmented(&self) -> Option<BinaryOp> {
        let Tok::Op(op) = self.tok() else { return None };
        Some(match op {
            "+=" => BinaryOp::Add,
            "-=" => BinaryOp::Sub,
            "*=" => BinaryOp::Mul,
            "/=" => BinaryOp::Div,
            "//=" => BinaryOp::FloorDiv,
            "%=" => BinaryOp::Mod,
            "&=" => BinaryOp::BitAnd,
            "|=" => BinaryOp::BitOr,
            "^=" => BinaryOp::BitXor,
            "<<=" => BinaryOp::Shl,
            ">>=" => BinaryOp::Shr,
            "**=" => BinaryOp::Pow,
            "@=" => BinaryOp::MatMul,
            _ => return None,
        })
    }

    fn decorated(&mut self) -> StmtKind<'a> {
        let mut decorators = vec![];
        while self.eat_op("@") {
            match self.expr() {
                Ok(e) => {
                    decorators.push(e);
                    self.end_of_line();
                }
                Err(Halt) => {
                    decorators.push(self.error_expr());
                    self.skip_line();
                }
            }
        }
        match self.text_here() {
            "def" => self.function(decorators),
            "class" => self.class(decorators),
            _ => {
                self.expected("`def` or `class`");
                self.skip_line();
                StmtKind::Broken(None)
            }
        }
    }

    fn class(&mut self, decorators: Vec<Expr<'a>>) -> StmtKind<'a> {
        self.bump();
        let Ok(name) = self.ident("the name of the class") else {
            self.skip_line();
            return StmtKind::Broken(None);
        };
        // What a class inherits says nothing of the module.
        if self.eat_op("(") && !self.eat_op(")") && (self.expr().is_err() || self.expect_op(")").is_err()) {
            self.skip_line();
            return StmtKind::Broken(Some(name.name));
        }
        let body = self.suite();
        StmtKind::Class(Box::new(ClassDef { decorators, name, body }))
    }

    fn function(&mut self, decorators: Vec<Expr<'a>>) -> StmtKind<'a> {
        let lo = self.span();
        self.bump();
        let Ok(name) = self.ident("the name of the function") else { return self.broken_header(None) };
        let Ok((type_params, params, returns)) = self.signature() else {
            return self.broken_header(Some(name.name));
        };
        let signature = lo.to(self.prev_span());
        let body = self.suite();
        StmtKind::Function(Box::new(FunctionDef { decorators, name, type_params, params, returns, body, signature }))
    }

    /// After an unreadable header: its block is read for its own mistakes and dropped.
    fn broken_header(&mut self, name: Option<&'a str>) -> StmtKind<'a> {
        self.skip_line();
        if self.tok() == Tok::Indent {
            let mut dropped = vec![];
            self.block(&mut dropped);
        }
        StmtKind::Broken(name)
    }

    /// `[n, m: int]`: each is a dim of any size.
    fn type_params(&mut self) -> Result<Vec<Ident<'a>>, Halt> {
        const SPELLING: &str = "a type parameter is a dim of any size: write `n` or `n: int`";
        let mut params: Vec<Ident<'a>> = vec![];
        let lo = self.span();
        if !self.eat_op("[") {
            return Ok(params);
        }
        while !self.at_op("]") {
            if self.at_op("*") || self.at_op("**") {
                return Err(self.error_here(SPELLING));
            }
            let name = self.ident("a type parameter")?;
            if self.eat_op(":") {
                let bound = self.expr()?;
                if bound.as_name() != Some("int") && !bound.is_error() {
                    self.diags.push(Diagnostic::error("syntax", bound.span, SPELLING));
                }
            }
            if self.at_op("=") {
                return Err(self.error_here(SPELLING));
            }
            if let Some(first) = params.iter().find(|p| p.name == name.name) {
                let message = format!("two type parameters are called `{}`", name.name);
                let d = Diagnostic::error("syntax", name.span, message);
                self.diags.push(d.label(first.span, "the first of them"));
            }
            params.push(name);
            if !self.eat_op(",") {
                break;
            }
        }
        self.expect_op("]")?;
        if params.is_empty() {
            let d = Diagnostic::error("syntax", lo.to(self.prev_span()), "this list of type parameters is empty");
            self.diags.push(d.help("leave the brackets out"));
        }
        Ok(params)
    }

    #[allow(clippy::type_complexity)]
    fn signature(&mut self) -> Result<(Vec<Ident<'a>>, Vec<ParamDef<'a>>, Option<Expr<'a>>), Halt> {
        let type_params = self.type_params()?;
        self.expect_op("(")?;
        let mut params = vec![];
        // What stands behind `*` takes no argument by position: TVM's parser passes it over, and what stands before `/`.
        let mut passed_over = false;
        while !self.at_op(")") {
            if self.eat_op("/") {
                params.clear();
                if !self.eat_op(",") {
                    break;
                }
                continue;
            }
            let starred = self.eat_op("*") || self.eat_op("**");
            passed_over |= starred;
            if starred && (self.at_op(",") || self.at_op(")")) {
                if !self.eat_op(",") {
                    break;
                }
                continue;
            }
            let name = self.ident("a parameter")?;
            let annotation = if self.eat_op(":") { Some(self.expr()?) } else { None };
            // Calls give every argument: TVM's parser passes default values over.
            if self.eat_op("=") {
                self.expr()?;
            }
            if !passed_over {
                params.push(ParamDef { name, annotation });
            }
            if !self.eat_op(",") {
                break;
            }
        }
        self.expect_op(")")?;
        let returns = if self.eat_op("->") { Some(self.expr()?) } else { None };
        Ok((type_params, params, returns))
    }

    fn if_statement(&mut self) -> StmtKind<'a> {
        // A chain of elif nests: it counts like brackets do.
        if self.nesting >= Self::MAX_NESTING {
            let span = self.span();
            self.too_deep(span);
            return self.broken_header(None);
        }
        self.bump();
        let cond = self.header_expr();
        let then = self.suite();
        let mut otherwise = vec![];
        if self.at_word("elif") {
            let lo = self.span();
            self.nesting += 1;
            let kind = self.if_statement();
            self.nesting -= 1;
            otherwise.push(Stmt { kind, span: lo.to(self.prev_span()) });
        } else if self.at_word("else") {
            self.bump();
            otherwise = self.suite();
        }
        StmtKind::If { cond, then, otherwise }
    }

    fn for_statement(&mut self) -> StmtKind<'a> {
        self.bump();
        let target = self.target_list();
        let iter = match target {
            Ok(_) if self.at_word("in") => {
                self.bump();
                self.header_expr()
            }
            Ok(_) => {
                self.expected("`in`");
                return self.broken_header(None);
            }
            Err(Halt) => return self.broken_header(None),
        };
        let body = self.suite();
        self.passed_over_else();
        match target {
            Ok(target) => StmtKind::For { target, iter, body },
            Err(Halt) => StmtKind::Broken(None),
        }
    }

    /// `a`, `a, b`, `(a, b)`, `[a, b]` or `a, *b` before `in`; `a,` is a tuple.
    pub(super) fn target_list(&mut self) -> Result<Expr<'a>, Halt> {
        let lo = self.span();
        let close = match self.tok() {
            Tok::Op("(") => Some(")"),
            Tok::Op("[") => Some("]"),
            _ => None,
        };
        if close.is_some() {
            self.bump();
        }
        let (mut names, mut comma) = (vec![], close == Some("]"));
        loop {
            let star = self.at_op("*").then(|| self.span());
            if star.is_some() {
                self.bump();
            }
            let id = self.ident("a loop variable")?;
            let name = Expr { kind: ExprKind::Name(id.name), span: id.span, depth: 1 };
            names.push(match star {
                Some(at) => Expr { kind: ExprKind::Starred(Box::new(name)), span: at.to(id.span), depth: 2 },
                None => name,
            });
            let more = self.eat_op(",");
            comma |= more;
            if !more || !(self.tok() == Tok::Name || self.at_op("*")) || self.at_word("in") {
                break;
            }
        }
        if let Some(close) = close {
            self.expect_op(close)?;
        }
        if names.len() == 1 && !comma {
            return names.pop().ok_or(Halt);
        }
        Ok(Expr { kind: ExprKind::Tuple(names), span: lo.to(self.prev_span()), depth: 3 })
    }

    fn while_statement(&mut self) -> StmtKind<'a> {
        self.bump();
        let cond = self.header_expr();
        let body = self.suite();
        self.passed_over_else();
        StmtKind::While { cond, body }
    }

    /// The `else` of a loop, which TVM's parser reads and drops.
    fn passed_over_else(&mut self) {
        if self.at_word("else") {
            self.bump();
            self.suite();
        }
    }

    fn with_statement(&mut self) -> StmtKind<'a> {
        self.bump();
        let mut items = vec![];
        loop {
            let Ok(e) = self.expr() else { return self.broken_header(None) };
            let mut target = None;
            if self.at_word("as") {
                self.bump();
                match self.expr() {
                    Ok(t) => target = Some(t),
                    Err(Halt) => return self.broken_header(None),
                }
            }
            items.push((e, target));
            if !self.eat_op(",") {
                break;
            }
        }
        let body = self.suite();
        StmtKind::With { items, body }
    }
}
