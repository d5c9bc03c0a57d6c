//! Writing files whole or not at all: to temporaries in the same folder, then renames.

use relax_backend::elf::Image;
use relax_ir::program::WeightsFile;
use relax_ir::{Diagnostic, Span};
use std::io::{Seek, SeekFrom, Write};
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

fn cannot_write(path: &Path, e: &std::io::Error) -> Diagnostic {
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
    let made = tempfile::Builder::new().prefix(".relax-aot-").tempfile_in(folder(path));
    made.map_err(|e| cannot_write(path, &e))
}

/// Whether `path` can be written, asked before the work.
pub fn writable(path: &Path) -> Result<(), Diagnostic> {
    temporary(path).map(drop)
}

/// Writes all files or none: contents first, then the names.
pub fn write_all(files: &[Output]) -> Result<(), Diagnostic> {
    let mut staged = vec![];
    for f in files {
        let fail = |e: std::io::Error| cannot_write(f.path, &e);
        let mut file = temporary(f.path)?;
        match f.contents {
            Contents::Bytes(b) => file.write_all(b),
            Contents::Weights(w) => w.write(&mut |piece| file.write_all(piece)),
            Contents::Library(image) => image.write(&mut |piece| file.write_all(piece)).and_then(|id| {
                let Some((at, id)) = id else { return Ok(()) };
                file.seek(SeekFrom::Start(at))?;
                file.write_all(&id)
            }),
        }
        .map_err(fail)?;
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
