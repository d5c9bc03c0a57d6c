//! Writing files whole or not at all: to a temporary in the same folder, then a rename.

use relax_ir::{Diagnostic, Span};
use std::io::Write;
use std::path::Path;

/// Writes `bytes` to `path`; `executable` sets the mode of a shared object.
pub fn write(path: &Path, bytes: &[u8], executable: bool) -> Result<(), Diagnostic> {
    let fail = |e: std::io::Error| {
        Diagnostic::error("cannot-write", Span::NONE, format!("cannot write {}: {e}", path.display()))
    };
    let dir = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let mut file = tempfile::Builder::new().prefix(".relax-aot-").tempfile_in(dir).map_err(fail)?;
    file.write_all(bytes).map_err(fail)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = if executable { 0o755 } else { 0o644 };
        file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).map_err(fail)?;
    }
    let _ = executable;
    file.persist(path).map_err(|e| fail(e.error))?;
    Ok(())
}
