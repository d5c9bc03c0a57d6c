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
