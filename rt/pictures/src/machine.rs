//! The edge to the runtime and to the C library.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::ptr::null_mut;

extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn aligned_alloc(align: usize, size: usize) -> *mut c_void;
    fn free(p: *mut c_void);
    fn abort() -> !;
}

struct Heap;

/// What `malloc` guarantees.
const ALIGN: usize = 16;

// SAFETY: blocks come from the C library and go back to it; larger alignments by `aligned_alloc`, whose size must be a
// multiple of them.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the size is not 0.
        unsafe {
            if layout.align() <= ALIGN {
                malloc(layout.size()).cast()
            } else {
                aligned_alloc(layout.align(), layout.size().next_multiple_of(layout.align())).cast()
            }
        }
    }
    unsafe fn dealloc(&self, p: *mut u8, _: Layout) {
        // SAFETY: `p` is of `alloc`.
        unsafe { free(p.cast()) }
    }
}

#[global_allocator]
static HEAP: Heap = Heap;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: it only ends the process.
    unsafe { abort() }
}

/// The PNM file of the compressed picture in the `len` bytes at `data`: `free` it; its length goes to `out`. Null when
/// the file is of another format or damaged.
///
/// # Safety
/// `data` points to `len` bytes, `out` is writable.
#[no_mangle]
pub unsafe extern "C" fn relax_pictures_plain(data: *const u8, len: usize, out: *mut usize) -> *mut u8 {
    // SAFETY: granted by the caller; the block has room for the whole file.
    unsafe {
        out.write(0);
        if data.is_null() || len == 0 {
            return null_mut();
        }
        let Some(plain) = crate::plain(core::slice::from_raw_parts(data, len)) else { return null_mut() };
        let p: *mut u8 = malloc(plain.len()).cast();
        if !p.is_null() {
            core::ptr::copy_nonoverlapping(plain.as_ptr(), p, plain.len());
            out.write(plain.len());
        }
        p
    }
}

/// The code of the standard library was compiled for unwinding, which nothing here begins.
#[no_mangle]
extern "C" fn _Unwind_Resume() -> ! {
    // SAFETY: it only ends the process.
    unsafe { abort() }
}

/// Named by tables of that code, which a system's linker keeps.
#[no_mangle]
extern "C" fn rust_eh_personality() -> ! {
    // SAFETY: it only ends the process.
    unsafe { abort() }
}
