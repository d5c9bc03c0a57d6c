//! The numbered checks of a program.

use relax_ir::analysis::{constraints, show};
use relax_ir::program::{code, CheckInfo};
use relax_ir::{IRModule, Lines, PrimExpr, Span, Var};
use std::sync::Arc;

/// The checks found so far, numbered from 1.
#[derive(Default)]
pub struct Checks {
    list: Vec<CheckInfo>,
    lines: Arc<Lines>,
    /// What casts want of dims that were solved, and these dims as they were written.
    solved: Vec<(String, String)>,
    /// What stands for dims that were solved, and what they were.
    written: Vec<(String, String)>,
}

impl Checks {
    pub fn new(lines: Arc<Lines>, module: &IRModule) -> Checks {
        let mut solved: Vec<(String, String)> = module.relax_funcs().flat_map(constraints::solved_casts).collect();
        solved.sort();
        solved.dedup();
        let written = module.relax_funcs().flat_map(constraints::solved_texts).collect();
        Checks { list: vec![], lines, solved, written }
    }

    /// One more: its number, and what the call record says when it fails.
    pub fn add(&mut self, code: i64, condition: String, message: String, span: Span) -> (u32, String) {
        let number = self.list.len() as u32 + 1;
        let words = condition.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let mut names: Vec<String> = words.filter(|w| !w.is_empty()).map(str::to_string).collect();
        names.sort();
        names.dedup();
        let [condition, message] = [condition, message].map(|t| constraints::as_written(&self.written, &t));
        let info = CheckInfo { number, code, condition, names, message, span, line: self.lines.line(span) };
        let text = info.text();
        self.list.push(info);
        (number, text)
    }

    /// As [`Checks::add`], of a condition that says where the dim comes from and not its name.
    pub fn add_of(&mut self, v: &Var, condition: String, message: String, span: Span) -> (u32, String) {
        let added = self.add(code::DIM, condition, message, span);
        if let Some(info) = self.list.last_mut().filter(|info| !info.names.iter().any(|n| n == v.name())) {
            info.names.push(v.name().to_string());
        }
        added
    }

    /// What a call record says of the argument declared at `span`.
    pub fn place(&self, span: Span, what: String) -> String {
        self.lines.line(span).map(|n| format!("line {n}, ")).unwrap_or_default() + &what
    }

    /// The dim of a cast that has no solution where it is not `wanted`, as it was written.
    pub fn solved(&self, wanted: &PrimExpr) -> Option<&str> {
        if self.solved.is_empty() {
            return None;
        }
        let wanted = show::dim(wanted);
        self.solved.iter().find(|(w, _)| *w == wanted).map(|(_, dim)| dim.as_str())
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
