//! The allocator that calls of a loaded library get: counted, so that tests see what is not given back.

use relax_rt::Call;
use std::alloc::{alloc, dealloc, Layout};
use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Counts blocks.
#[derive(Debug, Default)]
pub struct Counted {
    live: AtomicI64,
    total: AtomicU64,
}

/// Before each block: its size. Blocks are aligned to this.
const HEAD: usize = 64;

impl Counted {
    /// Blocks not given back.
    pub fn live(&self) -> i64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Blocks taken since the beginning.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Makes this the allocator of `call`, which must not outlive it.
    pub(super) fn lend(&self, call: &mut Call) {
        call.allocate = Some(allocate);
        call.release = Some(release);
        call.allocator = std::ptr::from_ref(self).cast_mut().cast();
    }
}

/// # Safety
/// `memory` is a [`Counted`].
unsafe extern "C" fn allocate(memory: *mut c_void, bytes: usize, align: usize) -> *mut c_void {
    let layout = bytes.checked_add(HEAD).and_then(|all| Layout::from_size_align(all, HEAD).ok());
    let (Some(layout), true) = (layout, align <= HEAD) else { return std::ptr::null_mut() };
    // SAFETY: the layout is not empty; the head has room for the size.
    unsafe {
        let block = alloc(layout);
        if block.is_null() {
            return std::ptr::null_mut();
        }
        block.cast::<usize>().write(layout.size());
        let memory = &*memory.cast::<Counted>();
        memory.live.fetch_add(1, Ordering::Relaxed);
        memory.total.fetch_add(1, Ordering::Relaxed);
        block.add(HEAD).cast()
    }
}

/// # Safety
/// `pointer` came from [`allocate`] with the same `memory`, and was not released before.
unsafe extern "C" fn release(memory: *mut c_void, pointer: *mut c_void, _bytes: usize) {
    // SAFETY: the head before the block holds the size it was allocated with.
    unsafe {
        let block = pointer.cast::<u8>().sub(HEAD);
        let size = block.cast::<usize>().read();
        if let Ok(layout) = Layout::from_size_align(size, HEAD) {
            dealloc(block, layout);
        }
        (*memory.cast::<Counted>()).live.fetch_sub(1, Ordering::Relaxed);
    }
}
