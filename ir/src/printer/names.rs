//! Names that are unique where they are visible.

use std::collections::{HashMap, HashSet};

/// Words that no variable may be called.
const RESERVED: [&str; 44] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield", "R", "T", "I", "cls", "metadata", "range",
    "TypeVar", "tvm", "Axis",
];

/// Whether a text can have no variable of this name.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// The names of one function. Variables, Relax variables and buffers share one space of ids, so one table serves all.
#[derive(Default)]
pub struct Names {
    by_id: HashMap<u32, String>,
    used: HashSet<String>,
    /// In the order declared, for leaving scopes.
    log: Vec<(u32, String)>,
    /// Diagnostics show names as they are.
    pub plain: bool,
}

impl Names {
    pub fn reserve(&mut self, name: &str) {
        self.used.insert(name.to_string());
    }

    /// Gives `id` a name close to `hint`.
    pub fn declare(&mut self, id: u32, hint: &str) -> String {
        self.declare_avoiding(id, hint, |_| false)
    }

    /// As [`Names::declare`], and none that `taken` says is taken.
    pub fn declare_avoiding(&mut self, id: u32, hint: &str, taken: impl Fn(&str) -> bool) -> String {
        let base = if self.plain { hint.to_string() } else { identifier(hint) };
        let mut name = base.clone();
        let mut i = 0;
        while !self.plain && (self.used.contains(&name) || RESERVED.contains(&name.as_str()) || taken(&name)) {
            i += 1;
            name = format!("{base}_{i}");
        }
        self.used.insert(name.clone());
        self.by_id.insert(id, name.clone());
        self.log.push((id, name.clone()));
        name
    }

    pub fn known(&self, id: u32) -> Option<&str> {
        self.by_id.get(&id).map(String::as_str)
    }

    /// The name of `id`; declares it when it is new.
    pub fn get(&mut self, id: u32, hint: &str) -> String {
        match self.by_id.get(&id) {
            Some(n) => n.clone(),
            None => self.declare(id, hint),
        }
    }

    /// Takes a name for an id that keeps it beyond any scope.
    pub fn fix(&mut self, id: u32, name: &str) {
        self.by_id.insert(id, name.to_string());
        self.used.insert(name.to_string());
    }

    /// Does something in scope have this name?
    pub fn is_used(&self, name: &str) -> bool {
        self.used.contains(name)
    }

    pub fn mark(&self) -> usize {
        self.log.len()
    }

    /// Leaves the scopes entered since `mark`.
    pub fn leave(&mut self, mark: usize) {
        for (id, name) in self.log.drain(mark..) {
            self.by_id.remove(&id);
            self.used.remove(&name);
        }
    }
}

/// A Python identifier close to `hint`.
pub fn identifier(hint: &str) -> String {
    let mut out: String = hint.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if out.is_empty() || out.starts_with(char::is_numeric) {
        out.insert(0, 'v');
    }
    out
}
