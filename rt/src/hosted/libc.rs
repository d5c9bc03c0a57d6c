//! The C library, declared raw.

use core::ffi::{c_char, c_int, c_void};

extern "C" {
    pub fn malloc(bytes: usize) -> *mut c_void;
    pub fn free(pointer: *mut c_void);
    /// C11; `bytes` must be a multiple of `align`.
    pub fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void;
    pub fn putchar(byte: c_int) -> c_int;
    pub fn printf(format: *const c_char, ...) -> c_int;
}

/// [`crate::abi::Allocate`] over the C library; `free` takes the result back.
///
/// # Safety
/// `align` is a power of two.
pub unsafe extern "C" fn allocate(_: *mut c_void, bytes: usize, align: usize) -> *mut c_void {
    let align = if align < 16 { 16 } else { align };
    let Some(padded) = bytes.checked_add(align - 1) else {
        return core::ptr::null_mut();
    };
    let padded = padded & !(align - 1);
    // SAFETY: `align` is a power of two not below malloc's own, `padded` a multiple of it (at least one unit).
    unsafe { aligned_alloc(align, if padded == 0 { align } else { padded }) }
}

/// [`crate::abi::Release`] over the C library.
///
/// # Safety
/// `pointer` is null or came from [`allocate`] and was not released before.
pub unsafe extern "C" fn release(_: *mut c_void, pointer: *mut c_void, _: usize) {
    // SAFETY: `allocate` took it from aligned_alloc.
    unsafe { free(pointer) }
}
