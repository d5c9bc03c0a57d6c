//! Large workspaces, kept between calls of the generic entry until the library is unloaded.
//!
//! The C library gives a large block back to the system as soon as it is freed (glibc from 32 MB on): each call would
//! fault all its pages in again, which takes 20 to 100 ms for 225 MB, most after a pause. Each call at the same time has
//! a block of its own; one more than there are places for goes back after its call. What a fork finds here is as
//! private to the child as everything else that was allocated.

use crate::hosted::libc;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Calls at the same time whose workspaces are kept.
const PLACES: usize = 8;
/// Workspaces of so many bytes are kept here; what is smaller the C library keeps.
pub const FROM: usize = 25 << 20;

/// Kept blocks: where one begins, at a multiple of [`libc::LARGE`], plus the multiple of it that it is long; 0: none.
/// Written memory, which only libraries have that may need as large a workspace.
pub struct Kept([AtomicUsize; PLACES]);

#[link_section = ".bss.relax_rt_kept"]
pub static KEPT: Kept = Kept([const { AtomicUsize::new(0) }; PLACES]);

/// A block that a call has for itself.
pub struct Lease {
    pub block: *mut c_void,
    pub bytes: usize,
}

impl Kept {
    /// A block of at least `bytes` bytes at a multiple of [`libc::LARGE`]: a kept one, or one from the C library; `block`
    /// is null where that has none. Kept ones that are too small go back.
    pub fn take(&self, bytes: usize) -> Lease {
        for place in &self.0 {
            let word = place.load(Ordering::Relaxed);
            if word == 0 || place.compare_exchange(word, 0, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            let lease = Lease::of(word);
            if lease.bytes >= bytes {
                return lease;
            }
            lease.give_back();
        }
        let bytes = bytes.saturating_add(libc::LARGE - 1) & !(libc::LARGE - 1);
        // SAFETY: the alignment is a power of two.
        Lease { block: unsafe { libc::allocate(null_mut(), bytes, libc::LARGE) }, bytes }
    }

    /// Keeps a block that came from [`Kept::take`], if there is a place for it.
    pub fn put(&self, lease: Lease) {
        // What does not fit in a word, 4 TB and more, goes back.
        let word = if lease.bytes / libc::LARGE < libc::LARGE { lease.word() } else { 0 };
        for place in &self.0 {
            if word != 0 && place.compare_exchange(0, word, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        lease.give_back();
    }
}

impl Lease {
    fn of(word: usize) -> Lease {
        let large = word & (libc::LARGE - 1);
        Lease { block: core::ptr::with_exposed_provenance_mut(word - large), bytes: large * libc::LARGE }
    }

    fn word(&self) -> usize {
        self.block.expose_provenance() + self.bytes / libc::LARGE
    }

    fn give_back(self) {
        // SAFETY: the block came from `allocate`, and whoever has the lease has it alone.
        unsafe { libc::release(null_mut(), self.block, self.bytes) }
    }
}

/// Frees kept workspaces. The loader runs it before it unmaps the library, and when the process ends.
#[no_mangle]
pub extern "C" fn relax_rt_forget() {
    for place in &KEPT.0 {
        let word = place.swap(0, Ordering::Acquire);
        if word != 0 {
            Lease::of(word).give_back();
        }
    }
}
