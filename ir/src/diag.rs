//! Structured diagnostics: what is wrong, where, what was expected and what to do.

use crate::span::Span;

/// Whose fault a diagnostic is; decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The user's model, data or options: exit code 1.
    User,
    /// A feature we do not support: exit code 3.
    Unsupported,
    /// Our own fault: exit code 4.
    Internal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Warning,
    Note,
}

/// A span with a remark. The first label of a diagnostic is the primary one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub span: Span,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub fault: Fault,
    /// A stable short name, e.g. `"shape-mismatch"`.
    pub code: &'static str,
    pub message: String,
    pub labels: Vec<Label>,
    pub notes: Vec<String>,
    /// What the user can do about it.
    pub help: Option<String>,
}

impl Diagnostic {
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            fault: Fault::User,
            code,
            message: message.into(),
            labels: vec![Label { span, text: String::new() }],
            notes: vec![],
            help: None,
        }
    }

    pub fn unsupported(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { fault: Fault::Unsupported, ..Diagnostic::error(code, span, message) }
    }

    pub fn internal(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { fault: Fault::Internal, ..Diagnostic::error("internal", span, message) }
    }

    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, span, message) }
    }

    /// Sets the text under the primary span.
    pub fn here(mut self, text: impl Into<String>) -> Diagnostic {
        if let Some(label) = self.labels.first_mut() {
            label.text = text.into();
        }
        self
    }

    pub fn label(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    pub fn note(mut self, note: impl Into<String>) -> Diagnostic {
        self.notes.push(note.into());
        self
    }

    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    pub fn span(&self) -> Span {
        self.labels.first().map_or(Span::NONE, |l| l.span)
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// Diagnostics in the order they were found.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    pub list: Vec<Diagnostic>,
}

impl Diagnostics {
    pub fn push(&mut self, d: Diagnostic) {
        self.list.push(d);
    }

    pub fn extend(&mut self, other: Diagnostics) {
        self.list.extend(other.list);
    }

    pub fn has_errors(&self) -> bool {
        self.list.iter().any(Diagnostic::is_error)
    }

    /// The gravest fault among the errors: `None` when there is no error.
    pub fn worst(&self) -> Option<Fault> {
        self.list.iter().filter(|d| d.is_error()).map(|d| d.fault).max()
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(d: Diagnostic) -> Diagnostics {
        Diagnostics { list: vec![d] }
    }
}
