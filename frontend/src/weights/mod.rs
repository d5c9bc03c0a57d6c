//! Weight files: named tensors, without copying where the file allows it.
//!
//! * [`open_safetensors`]: the file is mapped, each [`Constant`] borrows its bytes;
//! * [`open_npz`]: numpy archives; stored (uncompressed) little-endian arrays in row-major order are borrowed from the
//!   map, all others are read into memory;
//! * [`write_npz`]: the results of a run.
//!
//! Every file is untrusted: sizes are checked against the bytes that are there, errors are diagnostics.

pub(crate) mod mapped;
mod npy;
mod npz;
mod safetensors;

pub use npz::{npz_bytes, open_npz, write_npz};
pub use safetensors::open_safetensors;

use relax_ir::{Constant, Diagnostic, Span};
use std::path::Path;

/// Tensors by name, in the order of the file.
pub type Weights = Vec<(String, Constant)>;

/// Opens a weight file by its extension: `.safetensors` or `.npz`.
pub fn open(path: &Path) -> Result<Weights, Diagnostic> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("safetensors") => open_safetensors(path),
        Some("npz") => open_npz(path),
        _ => Err(failed(path, "the kind of file is not known").help("weights come as .safetensors or .npz")),
    }
}

fn failed(path: &Path, why: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::error("weights", Span::NONE, format!("{}: {why}", path.display()))
}

fn unsupported(path: &Path, what: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::unsupported("weights", Span::NONE, format!("{}: {what}", path.display()))
}

/// Bytes of a dense tensor; `None` when they exceed what memory can address or a dim is negative.
fn byte_size(shape: &[i64], element: usize) -> Option<usize> {
    let elements = shape.iter().try_fold(1usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?))?;
    elements.checked_mul(element)
}
