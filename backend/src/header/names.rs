//! Names of the model as C names.

/// Reserved in C or C++ (lower-case words that a parameter may be called), and names that the header itself uses.
const RESERVED: &[&str] = &[
    "alignas",
    "alignof",
    "and",
    "asm",
    "auto",
    "bitand",
    "bitor",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "compl",
    "concept",
    "const",
    "constexpr",
    "continue",
    "decltype",
    "default",
    "delete",
    "do",
    "double",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "for",
    "friend",
    "goto",
    "if",
    "inline",
    "int",
    "long",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "nullptr",
    "operator",
    "or",
    "private",
    "protected",
    "public",
    "register",
    "requires",
    "restrict",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "switch",
    "template",
    "this",
    "throw",
    "true",
    "try",
    "typedef",
    "typeid",
    "typename",
    "typeof",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "while",
    "xor",
    "call",
    "linux",
    "unix",
];

/// A C identifier close to `name`.
pub fn identifier(name: &str) -> String {
    let mut s: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if s.is_empty() || s.starts_with(|c: char| c.is_ascii_digit() || c == '_') {
        s.insert(0, 'v');
    }
    if RESERVED.contains(&s.as_str()) {
        s.push('_');
    }
    s
}

/// The name of a macro.
pub fn macro_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// C identifiers of one parameter list, all different.
#[derive(Default)]
pub struct Scope {
    used: Vec<String>,
}

impl Scope {
    pub fn add(&mut self, name: &str) -> String {
        let base = identifier(name);
        let mut s = base.clone();
        let mut n = 2;
        while self.used.contains(&s) {
            s = format!("{base}_{n}");
            n += 1;
        }
        self.used.push(s.clone());
        s
    }
}

/// Text that may stand in a block comment.
pub fn comment(text: &str) -> String {
    text.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").replace(['\n', '\r'], " ")
}

/// A C string literal.
pub fn literal(text: &str) -> String {
    let mut s = String::from("\"");
    for b in text.bytes() {
        match b {
            b'"' | b'\\' => s.extend(['\\', b as char]),
            // `?` could start a trigraph.
            b'?' => s.push_str("\\?"),
            0x20..=0x7e => s.push(b as char),
            // Three digits: an escape that the next character cannot lengthen.
            _ => s.push_str(&format!("\\{b:03o}")),
        }
    }
    s.push('"');
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(identifier("result.0"), "result_0");
        assert_eq!(identifier("class"), "class_");
        assert_eq!(identifier("0x"), "v0x");
        let mut scope = Scope::default();
        assert_eq!([scope.add("a.b"), scope.add("a_b"), scope.add("a b")], ["a_b", "a_b_2", "a_b_3"]);
        assert_eq!(literal("a\"b\n??é"), "\"a\\\"b\\012\\?\\?\\303\\251\"");
    }
}
