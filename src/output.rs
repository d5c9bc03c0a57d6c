//! Writing files whole or not at all: to temporaries in the same folder, then renames.

use relax_backend::elf::Image;
use relax_ir::program::WeightsFile;
use relax_ir::{Diagnostic, Span};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use tempfile::NamedTempFile;

/// A file to be written.
pub struct Output<'a> {
    pub path: &'a Path,
    pub contents: Contents<'a>,
    /// Sets the mode of a shared object.
    pub executable: bool,
}

/// What a file holds.
pub enum Contents<'a> {
    Bytes(&'a [u8]),
    /// Written piece by piece.
    Weights(&'a WeightsFile),
    Library(&'a Image<'a>),
}

fn cannot_write(path: &Path, e: &io::Error) -> Diagnostic {
    // An error of `tempfile` names the temporary file: of no use to the reader.
    let text = e.to_string();
    let reason = text.split(" at path ").next().unwrap_or(&text);
    let d = Diagnostic::error("cannot-write", Span::NONE, format!("cannot write {}: {reason}", path.display()));
    match folder(path) {
        f if !f.exists() => d.help(format!("make the folder {} first", f.display())),
        _ => d,
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

fn temporary(path: &Path) -> Result<NamedTempFile, Diagnostic> {
    if path.is_dir() {
        let m = format!("cannot write {}: it is a folder", path.display());
        return Err(Diagnostic::error("cannot-write", Span::NONE, m));
    }
    // The file is renamed to its name: a device would be replaced, not written to.
    if path.metadata().is_ok_and(|m| !m.is_file()) {
        let m = format!("cannot write {}: it is no regular file", path.display());
        let d = Diagnostic::error("cannot-write", Span::NONE, m);
        return Err(d.help("name a file; `relax-aot check MODEL` compiles without writing any"));
    }
    let made = tempfile::Builder::new().prefix(".relax-aot-").tempfile_in(folder(path));
    made.map_err(|e| cannot_write(path, &e))
}

/// Whether `path` can be written, asked before the work.
pub fn writable(path: &Path) -> Result<(), Diagnostic> {
    temporary(path).map(drop)
}

/// Refuses an output that is one of the files that are read.
pub fn no_input(out: &Path, read: &[Option<&Path>]) -> Result<(), Diagnostic> {
    let same = |p: &Path| matches!((p.canonicalize(), out.canonicalize()), (Ok(a), Ok(b)) if a == b);
    if !read.iter().flatten().any(|p| same(p)) {
        return Ok(());
    }
    let m = format!("{}: the output would replace an input", out.display());
    Err(Diagnostic::error("output-is-input", Span::NONE, m))
}

/// Bytes that the system is given at once. A file that arrives in such blocks, each at a multiple of its size, is kept in
/// large pages by file systems that have them: a library's weights are then mapped 2 MB at a time when they are first
/// touched (70 MB in 0.1 ms, which take 1 to 2.5 ms otherwise).
const BLOCK: usize = relax_backend::elf::LARGE_PAGE as usize;

/// Collects what is written piece by piece from the beginning of a file to blocks.
struct Blocks<'f> {
    file: &'f mut NamedTempFile,
    /// Less than a block.
    held: Vec<u8>,
}

impl Blocks<'_> {
    fn new(file: &mut NamedTempFile) -> Blocks<'_> {
        Blocks { file, held: vec![] }
    }

    fn put(&mut self, mut piece: &[u8]) -> io::Result<()> {
        if !self.held.is_empty() {
            let (now, later) = piece.split_at(piece.len().min(BLOCK - self.held.len()));
            self.held.extend_from_slice(now);
            piece = later;
            if self.held.len() < BLOCK {
                return Ok(());
            }
            self.file.write_all(&self.held)?;
            self.held.clear();
        }
        let (now, later) = piece.split_at(piece.len() - piece.len() % BLOCK);
        self.file.write_all(now)?;
        self.held.extend_from_slice(later);
        Ok(())
    }

    fn end(self) -> io::Result<()> {
        self.file.write_all(&self.held)
    }
}

/// Writes all files or none: contents first, then the names.
pub fn write_all(files: &[Output]) -> Result<(), Diagnostic> {
    let mut staged = vec![];
    for f in files {
        let fail = |e: io::Error| cannot_write(f.path, &e);
        let mut file = temporary(f.path)?;
        let mut blocks = Blocks::new(&mut file);
        let patch = match f.contents {
            Contents::Bytes(b) => blocks.put(b).map(|()| None),
            Contents::Weights(w) => w.write(&mut |piece| blocks.put(piece)).map(|()| None),
            Contents::Library(image) => image.write(&mut |piece| blocks.put(piece)),
        };
        let patch = patch.and_then(|patch| blocks.end().map(|()| patch)).map_err(fail)?;
        if let Some((at, id)) = patch {
            file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&id)).map_err(fail)?;
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = if f.executable { 0o755 } else { 0o644 };
            file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).map_err(fail)?;
        }
        staged.push((file, f.path));
    }
    for (file, path) in staged {
        file.persist(path).map_err(|e| cannot_write(path, &e.error))?;
    }
    Ok(())
}

/// Writes one file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Diagnostic> {
    write_all(&[Output { path, contents: Contents::Bytes(bytes), executable: false }])
}
