//! Names of variables: the model's own, made unique within their scope.

use super::support::reserved;
use crate::header::identifier;
use std::collections::HashSet;

/// Nested scopes of one function.
#[derive(Default)]
pub struct Names {
    scopes: Vec<HashSet<String>>,
}

impl Names {
    pub fn open(&mut self) {
        self.scopes.push(HashSet::new());
    }

    pub fn close(&mut self) {
        self.scopes.pop();
    }

    /// A name close to `wanted` that no enclosing scope has.
    pub fn add(&mut self, wanted: &str) -> String {
        let base = identifier(wanted);
        let mut name = base.clone();
        let mut n = 1;
        while reserved(&name) || self.scopes.iter().any(|s| s.contains(&name)) {
            name = format!("{base}_{n}");
            n += 1;
        }
        self.take(&name);
        name
    }

    /// A name that is taken from outside.
    pub fn take(&mut self, name: &str) {
        if let Some(s) = self.scopes.last_mut() {
            s.insert(name.to_string());
        }
    }
}
