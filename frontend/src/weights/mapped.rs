//! Files mapped into memory, and tensors that borrow from them.

use memmap2::Mmap;
use relax_ir::constant::ConstantData;
use relax_ir::{Diagnostic, Span};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Maps a whole file for reading.
pub fn map(path: &Path) -> Result<Arc<Mmap>, Diagnostic> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Diagnostic::error("cannot-read", Span::NONE, format!("cannot read {}: {why}", path.display()))
    };
    // Asked before: to open a pipe is to wait for whoever writes to it.
    if !path.metadata().map_err(|e| unreadable(&e))?.is_file() {
        return Err(unreadable(&"it is no file"));
    }
    let file = File::open(path).map_err(|e| unreadable(&e))?;
    // Safety: the map is private and read-only, and no reference into it outlives it (`MappedBytes` holds the `Arc`).
    // What remains is another process that changes or truncates the file while it is mapped: the values read are
    // then undefined or the process gets SIGBUS, as with every mapped weight file. We state it to the user instead of
    // copying gigabytes.
    #[allow(unsafe_code)]
    let map = unsafe { Mmap::map(&file) }.map_err(|e| unreadable(&e))?;
    Ok(Arc::new(map))
}

/// A range of a mapped file.
pub struct MappedBytes {
    pub map: Arc<Mmap>,
    /// Within the map: checked by whoever makes this.
    pub range: Range<usize>,
}

impl ConstantData for MappedBytes {
    fn bytes(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }
}

impl std::fmt::Debug for MappedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "mapped {:?}", self.range)
    }
}
