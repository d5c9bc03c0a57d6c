//! Memory between unmapped pages: whoever reads or writes beyond its bounds is stopped at once.

use super::Memory;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Mutex;

extern "C" {
    fn mmap(at: *mut c_void, bytes: usize, protection: i32, flags: i32, file: i32, offset: i64) -> *mut c_void;
    fn mprotect(at: *mut c_void, bytes: usize, protection: i32) -> i32;
    fn munmap(at: *mut c_void, bytes: usize) -> i32;
}

/// No page of a supported host is larger.
const PAGE: usize = 64 * 1024;
const PROT_NONE: i32 = 0;
const PROT_READ_WRITE: i32 = 3;
/// `MAP_PRIVATE | MAP_ANONYMOUS` of Linux.
const PRIVATE_ANONYMOUS: i32 = 0x22;

/// `bytes` bytes in pages of their own, unmapped pages on both sides.
pub struct Pages {
    base: *mut u8,
    mapped: usize,
    start: *mut u8,
}

// SAFETY: a mapping belongs to the process, not to a thread; `Pages` is its only owner.
unsafe impl Send for Pages {}

/// Blocks given by the allocators, by their address.
static GIVEN: Mutex<Option<HashMap<usize, Pages>>> = Mutex::new(None);

impl Pages {
    /// `None` when there is no memory.
    fn new(bytes: usize, memory: Memory) -> Option<Pages> {
        let inner = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let mapped = inner.checked_add(2 * PAGE)?;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice; nothing else refers to it.
        let base = unsafe { mmap(std::ptr::null_mut(), mapped, PROT_NONE, PRIVATE_ANONYMOUS, -1, 0) };
        if base as isize == -1 {
            return None;
        }
        let base = base.cast::<u8>();
        // SAFETY: the pages in the middle belong to the mapping above.
        let usable = unsafe { mprotect(base.add(PAGE).cast(), inner, PROT_READ_WRITE) } == 0;
        let offset = if memory == Memory::GuardedEnd { PAGE + inner - bytes } else { PAGE };
        // SAFETY: `offset` is within the mapping.
        let pages = Pages { base, mapped, start: unsafe { base.add(offset) } };
        usable.then_some(pages)
    }

    /// A copy of `bytes`. Their end, or their start, touches an unmapped page.
    pub fn holding(bytes: &[u8], memory: Memory) -> Option<Pages> {
        let pages = Pages::new(bytes.len(), memory)?;
        // SAFETY: `start` is followed by at least `bytes.len()` writable bytes, which nothing else refers to.
        unsafe { pages.start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Some(pages)
    }

    pub fn pointer(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `base` and `mapped` are those of the mapping made in `new`, unmapped only here.
        unsafe { munmap(self.base.cast(), self.mapped) };
    }
}

/// [`relax_rt::Call`]'s allocator: `align` divides the page, so a block that ends at a page's end is aligned when its
/// size is a multiple of it; others are padded at their end.
///
/// # Safety
/// `align` is a power of two.
pub unsafe extern "C" fn allocate_end(_: *mut c_void, bytes: usize, align: usize) -> *mut c_void {
    match bytes.checked_next_multiple_of(align.max(1)) {
        Some(padded) => keep(padded, Memory::GuardedEnd),
        None => std::ptr::null_mut(),
    }
}

/// As [`allocate_end`], with the start behind an unmapped page.
///
/// # Safety
/// `align` is a power of two not above the size of a page.
pub unsafe extern "C" fn allocate_start(_: *mut c_void, bytes: usize, _: usize) -> *mut c_void {
    keep(bytes, Memory::GuardedStart)
}

fn keep(bytes: usize, memory: Memory) -> *mut c_void {
    let (Some(pages), Ok(mut given)) = (Pages::new(bytes, memory), GIVEN.lock()) else {
        return std::ptr::null_mut();
    };
    let start = pages.pointer();
    given.get_or_insert_default().insert(start as usize, pages);
    start.cast()
}

/// Unmaps what the two allocators gave.
///
/// # Safety
/// Nothing refers to the block any more.
pub unsafe extern "C" fn release(_: *mut c_void, pointer: *mut c_void, _: usize) {
    if let Ok(mut given) = GIVEN.lock() {
        given.get_or_insert_default().remove(&(pointer as usize));
    }
}
