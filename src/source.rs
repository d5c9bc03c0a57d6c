//! The source files of one invocation, by number: what spans point into.

use relax_ir::{Diagnostic, FileId, Lines, Span};
use std::path::{Path, PathBuf};

#[derive(Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

pub struct SourceFile {
    pub path: PathBuf,
    /// Empty for binary models.
    pub text: String,
}

impl Sources {
    pub fn add(&mut self, path: &Path, text: String) -> FileId {
        self.files.push(SourceFile { path: path.to_path_buf(), text });
        FileId(self.files.len() as u32 - 1)
    }

    /// Reads a text file.
    pub fn read(&mut self, path: &Path) -> Result<FileId, Diagnostic> {
        let bytes = std::fs::read(path).map_err(|e| cannot_read(path, &e))?;
        let text = String::from_utf8(bytes).map_err(|e| {
            Diagnostic::error(
                "not-text",
                Span::NONE,
                format!("{}: byte {} is not UTF-8 text", path.display(), e.utf8_error().valid_up_to()),
            )
            .help("an .rlx model is the text that mod.script() prints")
        })?;
        Ok(self.add(path, with_line_ends(text)))
    }

    pub fn get(&self, id: FileId) -> Option<&SourceFile> {
        self.files.get(id.0 as usize)
    }

    /// Where lines begin.
    pub fn lines(&self) -> Lines {
        Lines::of(self.files.iter().map(|f| f.text.as_str()))
    }

    /// File and line of a span with the line's text, for comments in generated code.
    pub fn place(&self, span: Span) -> Option<String> {
        let f = self.get(span.file).filter(|f| !f.text.is_empty() && span.hi > span.lo)?;
        let (line, _) = self.line_column(span)?;
        let name = f.path.file_name()?.to_string_lossy();
        let text: String = f.text.lines().nth(line - 1)?.trim().chars().take(100).collect();
        Some(format!("{name}:{line}: {text}"))
    }

    /// Line and column of a byte offset, both from 1; columns count characters.
    pub fn line_column(&self, span: Span) -> Option<(usize, usize)> {
        let f = self.get(span.file)?;
        let at = (span.lo as usize).min(f.text.len());
        let before = f.text.get(..at).unwrap_or(&f.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Some((line, column))
    }
}

/// A carriage return alone ends a line, as in Python: spans, lines and the parser then see one kind of end.
fn with_line_ends(text: String) -> String {
    let alone = |(i, _): &(usize, &str)| text.as_bytes().get(i + 1) != Some(&b'\n');
    let ends: Vec<usize> = text.match_indices('\r').filter(alone).map(|(i, _)| i).collect();
    let mut bytes = text.into_bytes();
    ends.into_iter().for_each(|i| bytes[i] = b'\n');
    // One byte of ASCII for another.
    String::from_utf8(bytes).unwrap_or_default()
}

/// The diagnostic for a file that cannot be read.
pub fn cannot_read(path: &Path, e: &std::io::Error) -> Diagnostic {
    Diagnostic::error("cannot-read", Span::NONE, format!("cannot read {}: {e}", path.display()))
}
