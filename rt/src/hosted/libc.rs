//! The C library, declared raw.

use core::ffi::{c_char, c_int, c_void};

extern "C" {
    pub fn malloc(bytes: usize) -> *mut c_void;
    pub fn free(pointer: *mut c_void);
    pub fn putchar(byte: c_int) -> c_int;
    pub fn printf(format: *const c_char, ...) -> c_int;
    #[cfg(target_os = "linux")]
    fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int;
}

/// A large page. On Linux blocks of that size begin at one: the first touch of 6 MB takes 0.45 ms so, page by page 2.2 ms.
pub const LARGE: usize = 2 << 20;
/// Less than this is touched in less time page by page, 1.5 microseconds each, than as a large one.
const PART: usize = 400 << 10;
/// `MADV_HUGEPAGE` of Linux.
#[cfg(target_os = "linux")]
const HUGE: c_int = 14;

/// What to ask for where `bytes` are used for a while: a whole large page for an end that touches much of one.
pub fn in_large_pages(bytes: usize) -> usize {
    let rest = bytes % LARGE;
    if cfg!(target_os = "linux") && rest >= PART {
        bytes.saturating_add(LARGE - rest)
    } else {
        bytes
    }
}

/// [`crate::abi::Allocate`] over the C library; only [`release`] takes the result back. `malloc` finds the same place
/// again for the same bytes, where `aligned_alloc` does not: what it left beside a block is too small for the next one.
///
/// # Safety
/// `align` is a power of two.
pub unsafe extern "C" fn allocate(_: *mut c_void, bytes: usize, align: usize) -> *mut c_void {
    let align = if align < 16 { 16 } else { align };
    let align = if cfg!(target_os = "linux") && bytes >= LARGE && align < LARGE { LARGE } else { align };
    // In front, at least a pointer: to the block as `malloc` gave it.
    let front = size_of::<*mut c_void>() + align - 1;
    let Some(all) = bytes.checked_add(front) else {
        return core::ptr::null_mut();
    };
    // SAFETY: any size may be asked for.
    let whole = unsafe { malloc(all) };
    if whole.is_null() {
        return whole;
    }
    let skip = front - (whole.addr().wrapping_add(front) & (align - 1));
    // SAFETY: `skip` is at least a pointer's size and at most `front`, so `block` and the pointer in front of it, which
    // `align` aligns, lie inside.
    let block = unsafe {
        let block = whole.cast::<u8>().add(skip);
        block.cast::<*mut c_void>().sub(1).write(whole);
        block.cast::<c_void>()
    };
    #[cfg(target_os = "linux")]
    if bytes >= LARGE {
        // The large pages that lie wholly inside; what is left over takes small ones. A system that has none says so,
        // which changes nothing.
        // SAFETY: the range is part of the block, and the advice leaves its contents as they are.
        unsafe { madvise(block, bytes & !(LARGE - 1), HUGE) };
    }
    block
}

/// [`crate::abi::Release`] over the C library.
///
/// # Safety
/// `pointer` is null or came from [`allocate`] and was not released before.
pub unsafe extern "C" fn release(_: *mut c_void, pointer: *mut c_void, _: usize) {
    if !pointer.is_null() {
        // SAFETY: `allocate` put the block that `malloc` gave in front.
        unsafe { free(pointer.cast::<*mut c_void>().sub(1).read()) }
    }
}
