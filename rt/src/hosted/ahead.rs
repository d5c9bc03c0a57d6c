//! Weights in reach before the first call.
//!
//! A library's file is mapped when it is loaded, but its pages are found one by one as they are touched, sixteen at a time: 47 MB
//! of weights take 0.9 ms of the first call so, in one request 0.5.

use core::ffi::{c_char, c_int, c_void};

extern "C" {
    fn dl_iterate_phdr(see: See, own: *mut c_void) -> c_int;
    fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int;
}

type See = unsafe extern "C" fn(*const Loaded, usize, *mut c_void) -> c_int;

/// The beginning of `dl_phdr_info`.
#[repr(C)]
struct Loaded {
    address: usize,
    name: *const c_char,
    headers: *const Header,
    count: u16,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_bytes: u64,
    memory_bytes: u64,
    align: u64,
}

const LOAD: u32 = 1;
const WRITABLE: u32 = 2;
/// Segments of fewer bytes are found soon enough, larger ones may be more than a program touches or memory holds.
const BYTES: core::ops::RangeInclusive<u64> = 1 << 20..=256 << 20;
const PAGE: usize = 4096;
/// `MADV_POPULATE_READ` of Linux 5.14; older ones refuse it, which changes nothing.
const POPULATE: c_int = 22;

/// Finds the pages of the library's weights. The loader runs it when it has mapped the library.
///
/// # Safety
/// The library is mapped.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_ahead() {
    // SAFETY: `see` is called with what `dl_iterate_phdr` says it is.
    unsafe { dl_iterate_phdr(see, (relax_rt_ahead as *const ()).cast_mut().cast()) };
}

/// Whether the search is over: at the library that this function is in.
///
/// # Safety
/// `loaded` is valid, and so are its headers.
unsafe extern "C" fn see(loaded: *const Loaded, _: usize, own: *mut c_void) -> c_int {
    // SAFETY: the caller says so.
    let (address, headers) =
        unsafe { ((*loaded).address, core::slice::from_raw_parts((*loaded).headers, (*loaded).count as usize)) };
    let begin = |h: &Header| address.wrapping_add(h.address as usize);
    let holds = |h: &Header| h.kind == LOAD && own.addr().wrapping_sub(begin(h)) < h.memory_bytes as usize;
    if !headers.iter().any(holds) {
        return 0;
    }
    let large = |h: &&Header| h.kind == LOAD && h.flags & WRITABLE == 0 && BYTES.contains(&h.file_bytes);
    for h in headers.iter().filter(large) {
        let first = begin(h) & !(PAGE - 1);
        let bytes = begin(h).wrapping_add(h.file_bytes as usize).wrapping_sub(first);
        // SAFETY: the pages are those of the segment, which is mapped; that they are found changes nothing of them.
        unsafe { madvise(core::ptr::without_provenance_mut(first), bytes, POPULATE) };
    }
    1
}
