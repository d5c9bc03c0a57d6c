//! Where a node came from.

/// A source file, by its index in the driver's list of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// A half-open byte range of one source file. `Span::NONE` marks nodes the compiler made.
///
/// Spans never take part in structural equality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    pub file: FileId,
    pub lo: u32,
    pub hi: u32,
}

impl Span {
    pub const NONE: Span = Span { file: FileId(u32::MAX), lo: 0, hi: 0 };

    pub fn new(file: FileId, lo: u32, hi: u32) -> Span {
        Span { file, lo, hi }
    }

    pub fn is_none(self) -> bool {
        self.file == FileId(u32::MAX)
    }

    /// The smallest span that covers both; `NONE` is the unit.
    pub fn to(self, end: Span) -> Span {
        if self.is_none() {
            return end;
        }
        if end.is_none() {
            return self;
        }
        Span { file: self.file, lo: self.lo.min(end.lo), hi: self.hi.max(end.hi) }
    }
}

/// The places of source files where lines begin, by file: what tells the line of a span without the text.
#[derive(Clone, Debug, Default)]
pub struct Lines(Vec<Vec<u32>>);

impl Lines {
    /// Of texts in the order of their files; what has no text has no lines.
    pub fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Lines {
        let starts = |t: &str| match t.is_empty() {
            true => vec![],
            false => std::iter::once(0).chain(t.match_indices('\n').map(|(i, _)| i as u32 + 1)).collect(),
        };
        Lines(texts.map(starts).collect())
    }

    /// The line where a span begins, from 1.
    pub fn line(&self, span: Span) -> Option<u32> {
        let starts = self.0.get(span.file.0 as usize).filter(|s| !s.is_empty() && !span.is_none())?;
        Some(starts.partition_point(|s| *s <= span.lo) as u32)
    }
}
