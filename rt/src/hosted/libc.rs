//! The C library, declared raw.

use core::ffi::{c_char, c_int, c_void};

extern "C" {
    pub fn malloc(bytes: usize) -> *mut c_void;
    pub fn free(pointer: *mut c_void);
    /// C11; `bytes` must be a multiple of `align`.
    pub fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void;
    pub fn putchar(byte: c_int) -> c_int;
    pub fn printf(format: *const c_char, ...) -> c_int;
    #[cfg(target_os = "linux")]
    fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int;
}

/// A large page. On Linux blocks of that size begin at one: the first touch of 8 MB takes 0.2 ms so, page by page 3 ms.
pub const LARGE: usize = 2 << 20;
/// `MADV_HUGEPAGE` of Linux.
#[cfg(target_os = "linux")]
const HUGE: c_int = 14;

/// [`crate::abi::Allocate`] over the C library; `free` takes the result back.
///
/// # Safety
/// `align` is a power of two.
pub unsafe extern "C" fn allocate(_: *mut c_void, bytes: usize, align: usize) -> *mut c_void {
    let align = if align < 16 { 16 } else { align };
    #[cfg(target_os = "linux")]
    let align = if bytes >= LARGE && align < LARGE { LARGE } else { align };
    let Some(padded) = bytes.checked_add(align - 1) else {
        return core::ptr::null_mut();
    };
    let padded = padded & !(align - 1);
    // SAFETY: `align` is a power of two not below malloc's own, `padded` a multiple of it (at least one unit).
    let block = unsafe { aligned_alloc(align, if padded == 0 { align } else { padded }) };
    #[cfg(target_os = "linux")]
    if bytes >= LARGE && !block.is_null() {
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
    // SAFETY: `allocate` took it from aligned_alloc.
    unsafe { free(pointer) }
}
