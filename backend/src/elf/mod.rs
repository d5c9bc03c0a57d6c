//! Shared objects without a linker.
//!
//! [`link_shared`] reads relocatable objects (the model's, the runtime's, the decoders of pictures for a model that has
//! them), keeps the sections that the exports reach, and writes a dynamic library for x86-64, AArch64 or RISC-V:
//!
//! | segment | sections |
//! |---|---|
//! | R | headers, `.note.gnu.build-id`, `.gnu.hash`, `.hash`, `.dynsym`, `.dynstr`, `.rela.dyn`, `.rodata` |
//! | R X | `.plt`, `.text` |
//! | R W, read-only after relocation | `.data.rel.ro`, `.dynamic`, `.got` |
//! | R W, of libraries with threads or with workspaces that may be large | `.bss` |
//!
//! Nothing else stays writable: live writable data other than the runtime's lists of threads and of kept workspaces is an
//! error. All symbols are bound when the library is loaded, so a procedure linkage stub is one jump through the global
//! offset table. Only the C library may stay undefined; it is named as needed when something is.
//!
//! The steps, in order: [`input`] reads, [`resolve`] binds symbols and collects garbage, [`layout`] places,
//! [`write`](mod@write) emits, with the architectures' relocations in [`arch`]. Large constants never pass through memory as
//! a whole: the [`Image`] writes them from where they are.
//!
//! [`link_system`] does the same through the system's C compiler, as a cross-check.

mod arch;
mod dynamic;
mod image;
mod input;
mod layout;
mod resolve;
mod system;
mod write;

pub use image::{Image, Patch};
pub use layout::LARGE_PAGE;
pub use system::link_system;

use crate::clif::Apart;
use relax_ir::{Diagnostic, Span};

/// The hosted runtime as one relocatable object, for the platform that the compiler runs on. `None` for others.
pub fn runtime_object(triple: &str) -> Option<&'static [u8]> {
    #[repr(align(16))]
    struct Aligned<T: ?Sized>(T);
    static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(env!("RELAX_RT_OBJECT")));
    let same = |a: &str, b: &str| {
        let arch = |t: &str| t.split('-').next().map(str::to_owned);
        arch(a) == arch(b) && a.contains("linux") && b.contains("linux")
    };
    same(triple, env!("RELAX_RT_TARGET")).then_some(&OBJECT.0)
}

/// The decoders of compressed pictures, for an object that calls them through the runtime.
fn pictures(object: &[u8]) -> Option<&'static [u8]> {
    #[repr(align(16))]
    struct Aligned<T: ?Sized>(T);
    static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(env!("RELAX_PICTURES_OBJECT")));
    const NAME: &[u8] = b"relax_rt_picture\0";
    object.windows(NAME.len()).any(|w| w == NAME).then_some(&OBJECT.0)
}

/// A shared library from the model's object and the runtime.
///
/// `exports` become the dynamic symbols; each must be defined. Same input, same bytes.
///
/// # Errors
/// Malformed or foreign objects, symbols that nothing defines, writable data, thread-local data and constructors are
/// internal faults; a library that outgrows the reach of its code (2 GiB on x86-64) is the user's: weights of that
/// size belong in a file of their own.
pub fn link_shared(
    object: &[u8],
    runtime: Option<&[u8]>,
    soname: &str,
    exports: &[String],
) -> Result<Vec<u8>, Diagnostic> {
    link(object, &[], runtime, soname, exports).map(|i| i.contents())
}

/// As [`link_shared`]: the library as it is written to a file. The object leaves the constants of `apart` undefined.
///
/// # Errors
/// As [`link_shared`].
pub fn link<'a>(
    object: &[u8],
    apart: &'a [Apart],
    runtime: Option<&[u8]>,
    soname: &str,
    exports: &[String],
) -> Result<Image<'a>, Diagnostic> {
    let mut files = vec![input::aligned(object)];
    files.extend(runtime.map(input::aligned));
    files.extend(runtime.and_then(|_| pictures(object)).map(input::aligned));
    let input = input::read(&files, apart)?;
    let linked = resolve::resolve(&input, exports)?;
    let layout = layout::layout(&input, &linked, soname)?;
    write::write(&input, &linked, &layout)
}

/// A fault of the compiler itself.
fn fault(message: impl Into<String>) -> Diagnostic {
    Diagnostic::internal(Span::NONE, format!("linking: {}", message.into()))
}
