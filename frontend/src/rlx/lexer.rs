//! Python tokens: names, numbers, strings, operators and the indentation of logical lines.
//!
//! Never fails: bytes that start no token are reported and skipped, a bracket that is never closed ends where a line
//! begins like a statement, and a dedent to no known level goes to the nearest one.

use relax_ir::{Diagnostic, Diagnostics, FileId, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tok {
    /// Names and keywords.
    Name,
    Int,
    Float,
    /// With prefix and quotes; [`decode_string`] gives the value.
    Str,
    Op(&'static str),
    Newline,
    Indent,
    Dedent,
    Eof,
}

#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub tok: Tok,
    pub span: Span,
}

/// Longest first.
const OPERATORS: [&str; 47] = [
    "**=", "//=", ">>=", "<<=", "...", "->", ":=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "@=", "==", "!=",
    "<=", ">=", "//", "**", "<<", ">>", "(", ")", "[", "]", "{", "}", ",", ":", ".", ";", "@", "=", "+", "-", "*", "/",
    "%", "&", "|", "^", "~", "<", ">",
];

/// Levels of indentation, as in CPython.
const MAX_INDENT: usize = 100;

/// Words that begin a statement and cannot begin a continuation line of what TVM prints.
const STATEMENT_WORDS: [&str; 6] = ["def", "class", "with", "return", "while", "@"];

struct Lexer<'a> {
    text: &'a str,
    file: FileId,
    pos: usize,
    end: usize,
    tokens: Vec<Token>,
    /// Open brackets: the character and where it is.
    brackets: Vec<(u8, usize)>,
    indents: Vec<usize>,
    diags: &'a mut Diagnostics,
}

/// The tokens of a whole file; the last one is `Eof`.
pub fn lex(file: FileId, text: &str, diags: &mut Diagnostics) -> Vec<Token> {
    let mut lexer = Lexer {
        text,
        file,
        pos: 0,
        end: text.len(),
        tokens: Vec::with_capacity(text.len() / 4),
        brackets: vec![],
        indents: vec![0],
        diags,
    };
    lexer.file();
    lexer.tokens
}

/// The tokens of one expression inside a string: bytes `lo..hi` of the file, no line structure.
pub fn lex_expression(file: FileId, text: &str, lo: usize, hi: usize, diags: &mut Diagnostics) -> Vec<Token> {
    let mut lexer = Lexer { text, file, pos: lo, end: hi, tokens: vec![], brackets: vec![], indents: vec![0], diags };
    lexer.brackets.push((b'"', lo));
    lexer.line();
    lexer.push(Tok::Newline, hi, hi);
    lexer.push(Tok::Eof, hi, hi);
    lexer.tokens
}

impl Lexer<'_> {
    fn span(&self, lo: usize, hi: usize) -> Span {
        Span::new(self.file, lo as u32, hi as u32)
    }

    fn push(&mut self, tok: Tok, lo: usize, hi: usize) {
        let span = self.span(lo, hi);
        self.tokens.push(Token { tok, span });
    }

    fn byte(&self, i: usize) -> u8 {
        if i < self.end {
            self.text.as_bytes()[i]
        } else {
            0
        }
    }

    fn file(&mut self) {
        if self.text.starts_with('\u{feff}') {
            self.pos = 3;
        }
        while self.pos < self.end {
            if self.indentation() {
                self.line();
            }
        }
        if let Some((open, at)) = self.brackets.pop() {
            self.unclosed(open, at);
            self.brackets.clear();
        }
        let end = self.end;
        if self.tokens.last().is_some_and(|t| !matches!(t.tok, Tok::Newline | Tok::Dedent)) {
            self.push(Tok::Newline, end, end);
        }
        for _ in 1..self.indents.len() {
            self.push(Tok::Dedent, end, end);
        }
        self.push(Tok::Eof, end, end);
    }

    fn unclosed(&mut self, open: u8, at: usize) {
        let d = Diagnostic::error("unclosed", self.span(at, at + 1), format!("`{}` is never closed", open as char));
        self.diags.push(d.here("opened here"));
    }

    /// At the start of a physical line outside of brackets: emits indents and dedents. False when the line is blank.
    fn indentation(&mut self) -> bool {
        let start = self.pos;
        let mut column = 0;
        loop {
            match self.byte(self.pos) {
                b' ' => column += 1,
                b'\t' => column = column / 8 * 8 + 8,
                0x0c => column = 0,
                _ => break,
            }
            self.pos += 1;
        }
        if self.pos >= self.end {
            return false;
        }
        match self.byte(self.pos) {
            b'\n' | b'\r' => {
                self.pos += 1;
                return false;
            }
            b'#' => {
                self.skip_comment();
                return false;
            }
            _ => {}
        }
        let top = self.indents.last().copied().unwrap_or(0);
        let (lo, hi) = (start, self.pos);
        if column > top {
            if self.indents.len() >= MAX_INDENT {
                let d = Diagnostic::error("nesting", self.span(lo, hi.max(lo + 1)), "too many levels of indentation");
                self.diags.push(d.help(format!("at most {MAX_INDENT} levels are read")));
                // The rest of the file cannot be placed.
                self.pos = self.end;
                return false;
            }
            self.indents.push(column);
            self.push(Tok::Indent, lo, hi);
        } else if column < top {
            while self.indents.last().is_some_and(|&i| i > column) {
                self.indents.pop();
                self.push(Tok::Dedent, hi, hi);
            }
            let now = self.indents.last().copied().unwrap_or(0);
            if now != column {
                let d = Diagnostic::error(
                    "indentation",
                    self.span(lo, hi.max(lo + 1)),
                    "this indentation matches no enclosing block",
                );
                self.diags.push(d.help(format!("indent this line by {now} or by {top} spaces")));
            }
        }
        true
    }

    fn skip_comment(&mut self) {
        while self.pos < self.end && self.byte(self.pos) != b'\n' {
            self.pos += 1;
        }
    }

    /// One logical line, up to and with its end.
    fn line(&mut self) {
        while self.pos < self.end {
            let c = self.byte(self.pos);
            match c {
                b'\n' => {
                    let at = self.pos;
                    self.pos += 1;
                    if self.brackets.is_empty() {
                        self.push(Tok::Newline, at, at + 1);
                        return;
                    }
                    if self.statement_follows() {
                        let (open, opened) = self.brackets[0];
                        self.unclosed(open, opened);
                        self.brackets.clear();
                        self.push(Tok::Newline, at, at + 1);
                        return;
                    }
                }
                b' ' | b'\t' | b'\r' | 0x0c => self.pos += 1,
                b'#' => self.skip_comment(),
                b'\\' if self.byte(self.pos + 1) == b'\n' => self.pos += 2,
                b'\\' if self.byte(self.pos + 1) == b'\r' && self.byte(self.pos + 2) == b'\n' => self.pos += 3,
                b'"' | b'\'' => self.string(self.pos),
                b'0'..=b'9' => self.number(),
                b'.' if self.byte(self.pos + 1).is_ascii_digit() => self.number(),
                _ if c == b'_' || c.is_ascii_alphabetic() || c >= 0x80 => self.name(),
                _ => self.operator(),
            }
        }
    }

    /// Inside brackets, at the start of a physical line: does a statement begin here?
    fn statement_follows(&self) -> bool {
        let line = &self.text[self.pos..self.end];
        let rest = line.trim_start_matches([' ', '\t']);
        let column = line.len() - rest.len();
        if column == self.indents.last().copied().unwrap_or(0) {
            // `name = ..` or `name: ..`, as far to the left as the statement that is open.
            let name = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(0);
            let after = &rest[name..];
            if name > 0 && (after.starts_with(" = ") || after.starts_with(": ")) {
                return true;
            }
        }
        STATEMENT_WORDS.iter().any(|w| {
            rest.strip_prefix(w).is_some_and(|after| {
                *w == "@" || !after.starts_with(|c: char| c == '_' || c.is_alphanumeric() || c == '=')
            })
        })
    }

    fn current_char(&self) -> Option<char> {
        self.text.get(self.pos..self.end)?.chars().next()
    }

    fn name(&mut self) {
        let lo = self.pos;
        while let Some(c) = self.current_char() {
            if c == '_' || c.is_alphanumeric() {
                self.pos += c.len_utf8();
            } else {
                break;
            }
        }
        if self.pos == lo {
            self.bad_characters();
            return;
        }
        let word = &self.text[lo..self.pos];
        let prefix = word.len() <= 2 && word.bytes().all(|b| b"rRbBuUfF".contains(&b));
        if prefix && matches!(self.byte(self.pos), b'"' | b'\'') {
            self.string(lo);
        } else {
            self.push(Tok::Name, lo, self.pos);
        }
    }

    /// A string whose prefix begins at `lo` and whose quote is at `self.pos`.
    fn string(&mut self, lo: usize) {
        let quote = self.byte(self.pos);
        let triple = self.byte(self.pos + 1) == quote && self.byte(self.pos + 2) == quote;
        self.pos += if triple { 3 } else { 1 };
        while self.pos < self.end {
            let c = self.byte(self.pos);
            if c == b'\\' {
                self.pos += 2;
            } else if c == quote {
                if !triple {
                    self.pos += 1;
                    return self.push(Tok::Str, lo, self.pos);
                }
                if self.byte(self.pos + 1) == quote && self.byte(self.pos + 2) == quote {
                    self.pos += 3;
                    return self.push(Tok::Str, lo, self.pos);
                }
                self.pos += 1;
            } else if c == b'\n' && !triple {
                break;
            } else {
                self.pos += 1;
            }
        }
        // The escape of a last backslash may have led past the end or into a character.
        self.pos = self.pos.min(self.end);
        while !self.text.is_char_boundary(self.pos) {
            self.pos += 1;
        }
        let hi = if triple { lo + 3 } else { self.pos };
        let d = Diagnostic::error("syntax", self.span(lo, hi.max(lo + 1)), "this string is never closed");
        self.diags.push(d.help(if triple { "close it with three quotes" } else { "close it on the same line" }));
        self.push(Tok::Str, lo, self.pos);
    }

    fn number(&mut self) {
        let lo = self.pos;
        let mut float = false;
        let radix = self.byte(lo) == b'0' && matches!(self.byte(lo + 1), b'x' | b'X' | b'b' | b'B' | b'o' | b'O');
        if radix {
            self.pos += 2;
            while self.byte(self.pos).is_ascii_hexdigit() || self.byte(self.pos) == b'_' {
                self.pos += 1;
            }
        } else {
            self.digits();
            if self.byte(self.pos) == b'.' {
                float = true;
                self.pos += 1;
                self.digits();
            }
            if matches!(self.byte(self.pos), b'e' | b'E') {
                let sign = matches!(self.byte(self.pos + 1), b'+' | b'-') as usize;
                if self.byte(self.pos + 1 + sign).is_ascii_digit() {
                    float = true;
                    self.pos += 1 + sign;
                    self.digits();
                }
            }
        }
        let hi = self.pos;
        if self.current_char().is_some_and(|c| c == '_' || c.is_alphanumeric()) {
            while let Some(c) = self.current_char().filter(|c| *c == '_' || c.is_alphanumeric()) {
                self.pos += c.len_utf8();
            }
            let d = Diagnostic::error("syntax", self.span(lo, self.pos), "a name cannot begin with a digit");
            self.diags.push(d.here("neither a number nor a name"));
        }
        self.push(if float { Tok::Float } else { Tok::Int }, lo, hi);
    }

    fn digits(&mut self) {
        while self.byte(self.pos).is_ascii_digit() || self.byte(self.pos) == b'_' {
            self.pos += 1;
        }
    }

    fn operator(&mut self) {
        let lo = self.pos;
        let rest = &self.text[lo..self.end];
        let Some(op) = OPERATORS.iter().copied().find(|op| rest.starts_with(op)) else {
            return self.bad_characters();
        };
        self.pos += op.len();
        match op {
            "(" | "[" | "{" => self.brackets.push((op.as_bytes()[0], lo)),
            ")" | "]" | "}" => {
                let want = match op {
                    ")" => b'(',
                    "]" => b'[',
                    _ => b'{',
                };
                match self.brackets.last().copied() {
                    Some((open, _)) if open == want => {
                        self.brackets.pop();
                    }
                    // Closes an outer bracket: the inner ones were never closed.
                    Some((open, at)) if self.brackets.iter().any(|b| b.0 == want) => {
                        self.unclosed(open, at);
                        while self.brackets.pop().is_some_and(|b| b.0 != want) {}
                    }
                    _ => {
                        let d = Diagnostic::error("syntax", self.span(lo, lo + 1), format!("`{op}` closes nothing"));
                        self.diags.push(d);
                        return;
                    }
                }
            }
            _ => {}
        }
        self.push(Tok::Op(op), lo, self.pos);
    }

    /// Reports and skips a run of characters that begin no token.
    fn bad_characters(&mut self) {
        let lo = self.pos;
        while let Some(c) = self.current_char() {
            let fine =
                c == '_' || c.is_alphanumeric() || c.is_whitespace() || "\"'#\\()[]{},:.;@=+-*/%&|^~<>".contains(c);
            if fine && self.pos > lo {
                break;
            }
            self.pos += c.len_utf8();
        }
        if self.pos == lo {
            // Only possible at the end of the range.
            self.pos = self.end;
            return;
        }
        let unexpected = &self.text[lo..self.pos];
        let shown: String = unexpected.chars().take(8).flat_map(char::escape_default).collect();
        let d = Diagnostic::error("syntax", self.span(lo, self.pos), format!("unexpected `{shown}`"));
        self.diags.push(d.help(match unexpected.chars().next() {
            Some('\u{2018}'..='\u{201f}') => "write plain quotes, \" or '",
            Some('\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}') => "this character is not to be seen: delete it",
            Some('\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{3000}') => "write a plain space",
            Some('\u{2010}'..='\u{2015}' | '\u{2212}') => "write a plain minus, -",
            _ => "the text must be TVMScript as `mod.script()` prints it",
        }));
    }
}

/// The value of a string token: prefix and quotes removed, escapes replaced. Bytes outside of Unicode and unknown
/// escapes stay as written.
pub fn decode_string(token: &str) -> String {
    let Some(quote_at) = token.find(['"', '\'']) else { return String::new() };
    let raw = token[..quote_at].contains(['r', 'R']);
    let body = &token[quote_at..];
    let q = &body[..1];
    let triple = q.repeat(3);
    let n = if body.len() >= 3 && body.starts_with(&triple) { 3 } else { 1 };
    let body = &body[n..];
    let body = body.strip_suffix(&q.repeat(n)).unwrap_or(body);
    if raw || !body.contains('\\') {
        return body.to_string();
    }
    let mut out = String::with_capacity(body.len());
    let mut chars = body.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('a') => out.push('\x07'),
            Some('b') => out.push('\x08'),
            Some('f') => out.push('\x0c'),
            Some('v') => out.push('\x0b'),
            Some('\n') => {}
            Some(c @ ('\\' | '\'' | '"')) => out.push(c),
            Some(c @ '0'..='7') => {
                let mut v = c.to_digit(8).unwrap_or(0);
                for _ in 0..2 {
                    match chars.peek().and_then(|c| c.to_digit(8)) {
                        Some(d) => v = v * 8 + d,
                        None => break,
                    }
                    chars.next();
                }
                out.extend(char::from_u32(v));
            }
            Some(c @ ('x' | 'u' | 'U')) => {
                let n = match c {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let mut v = 0u32;
                for _ in 0..n {
                    match chars.peek().and_then(|c| c.to_digit(16)) {
                        Some(d) => v = v.wrapping_mul(16).wrapping_add(d),
                        None => break,
                    }
                    chars.next();
                }
                out.push(char::from_u32(v).unwrap_or('\u{fffd}'));
            }
            Some(c) => {
                out.push('\\');
                out.push(c);
            }
            None => out.push('\\'),
        }
    }
    out
}
