//! Diagnostics for people (with source and carets) and for programs (JSON).

use crate::source::Sources;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use relax_ir::diag::Severity;
use relax_ir::{Diagnostic, Diagnostics, Fault};
use serde_json::{json, Value};

/// More errors than this are counted, not shown.
const MAX_SHOWN: usize = 50;

/// All diagnostics as text, coloured when `color`.
pub fn text(d: &Diagnostics, sources: &Sources, color: bool) -> String {
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let mut out = String::new();
    for d in d.list.iter().take(MAX_SHOWN) {
        out.push_str(&one(d, sources, &renderer));
        out.push_str("\n\n");
    }
    if d.list.len() > MAX_SHOWN {
        out.push_str(&format!("... and {} more\n", d.list.len() - MAX_SHOWN));
    }
    out
}

fn one(d: &Diagnostic, sources: &Sources, renderer: &Renderer) -> String {
    let level = match d.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let mut group =
        level.primary_title(d.message.as_str()).id(d.code).elements(Vec::<annotate_snippets::Message>::new());
    // One snippet per file, labels of the first file first.
    let mut files: Vec<_> = d.labels.iter().map(|l| l.span).filter(|s| !s.is_none()).map(|s| s.file).collect();
    files.dedup();
    let paths: Vec<String> =
        files.iter().map(|f| sources.get(*f).map_or(String::new(), |s| s.path.display().to_string())).collect();
    for (file, path) in files.iter().zip(&paths) {
        let Some(source) = sources.get(*file) else { continue };
        if source.text.is_empty() {
            continue;
        }
        let mut snippet = Snippet::source(source.text.as_str()).path(path.as_str());
        for (i, l) in d.labels.iter().enumerate().filter(|(_, l)| l.span.file == *file) {
            let (lo, hi) = clamp(&source.text, l.span.lo as usize, l.span.hi as usize);
            let kind = if i == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
            let a = kind.span(lo..hi);
            snippet = snippet.annotation(if l.text.is_empty() { a } else { a.label(l.text.as_str()) });
        }
        group = group.element(snippet);
    }
    for n in &d.notes {
        group = group.element(Level::NOTE.message(n.as_str()));
    }
    if let Some(h) = &d.help {
        group = group.element(Level::HELP.message(h.as_str()));
    }
    if d.fault == Fault::Internal {
        group = group.element(Level::NOTE.message(
            "this is a fault of relax-aot: please report it with the model (or the part that shows it) and this message",
        ));
    }
    renderer.render(&[group])
}

/// A range of characters inside `text`, on one line where it would run on for many.
fn clamp(text: &str, lo: usize, hi: usize) -> (usize, usize) {
    let mut lo = lo.min(text.len());
    while !text.is_char_boundary(lo) {
        lo -= 1;
    }
    let mut hi = hi.clamp(lo, text.len());
    while !text.is_char_boundary(hi) {
        hi += 1;
    }
    let shown = &text[lo..hi];
    if shown.matches('\n').count() > 3 {
        hi = lo + shown.find('\n').unwrap_or(shown.len());
    }
    (lo, hi)
}

/// The node of an ONNX model that a message begins with (``node `NAME` (DOMAIN.OPERATOR version N): ..``), and the
/// attribute that it names.
fn node(message: &str) -> Value {
    let parts = || {
        let (name, rest) = message.strip_prefix("node `")?.split_once("` (")?;
        let (operator, why) = rest.split_once("): ")?;
        let (operator, version) = operator.rsplit_once(" version ").unwrap_or((operator, ""));
        let attribute = why.split_once("attribute ").and_then(|(_, a)| a.split([' ', ',', ':']).next());
        let attribute = attribute.map(|a| a.trim_matches('`'));
        Some(
            json!({ "name": name, "operator": operator, "version": version.parse::<i64>().ok(), "attribute": attribute }),
        )
    };
    parts().unwrap_or(Value::Null)
}

/// All diagnostics as one JSON document: `{"ok": bool, "diagnostics": [..]}`.
pub fn json(d: &Diagnostics, sources: &Sources) -> Value {
    let list: Vec<Value> = d
        .list
        .iter()
        .map(|d| {
            let labels: Vec<Value> = d
                .labels
                .iter()
                .filter(|l| !l.span.is_none())
                .map(|l| {
                    let (line, column) = sources.line_column(l.span).unwrap_or((0, 0));
                    json!({
                        "file": sources.get(l.span.file).map(|f| f.path.display().to_string()),
                        "line": line, "column": column, "start": l.span.lo, "end": l.span.hi, "text": l.text,
                    })
                })
                .collect();
            json!({
                "severity": match d.severity { Severity::Error => "error", Severity::Warning => "warning", Severity::Note => "note" },
                "fault": match d.fault { Fault::User => "user", Fault::Unsupported => "unsupported", Fault::Internal => "internal" },
                "code": d.code, "message": d.message, "labels": labels, "notes": d.notes, "help": d.help,
                "node": node(&d.message),
            })
        })
        .collect();
    json!({ "ok": !d.has_errors(), "diagnostics": list })
}

/// The exit code that the diagnostics ask for: 0, 1 (user), 3 (unsupported), 4 (internal).
pub fn exit_code(d: &Diagnostics) -> u8 {
    match d.worst() {
        None => 0,
        Some(Fault::User) => 1,
        Some(Fault::Unsupported) => 3,
        Some(Fault::Internal) => 4,
    }
}
