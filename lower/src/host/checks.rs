//! The numbered checks of a program.

use relax_ir::program::CheckInfo;
use relax_ir::{Lines, Span};
use std::sync::Arc;

/// The checks found so far, numbered from 1.
#[derive(Default)]
pub struct Checks {
    list: Vec<CheckInfo>,
    lines: Arc<Lines>,
}

impl Checks {
    pub fn new(lines: Arc<Lines>) -> Checks {
        Checks { list: vec![], lines }
    }

    /// One more: its number, and what the call record says when it fails.
    pub fn add(&mut self, code: i64, condition: String, message: String, span: Span) -> (u32, String) {
        let number = self.list.len() as u32 + 1;
        let info = CheckInfo { number, code, condition, message, span, line: self.lines.line(span) };
        let text = info.text();
        self.list.push(info);
        (number, text)
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Forgets those behind the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.list.truncate(len);
    }

    pub fn into_list(self) -> Vec<CheckInfo> {
        self.list
    }
}
