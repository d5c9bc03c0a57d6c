//! Memory for values: a bump arena over a part of the workspace, or the allocator of the call.

use crate::abi::{Call, Release};
use core::ffi::c_void;
use core::ptr::null_mut;

/// Memory that is taken from the front and given back all at once.
#[repr(C)]
pub struct Arena {
    pub next: *mut u8,
    pub end: *mut u8,
}

/// An arena over `bytes` bytes at `memory`.
///
/// # Safety
/// `arena` is writable; `memory` points to `bytes` bytes that outlive every value taken from it.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_arena(arena: *mut Arena, memory: *mut c_void, bytes: usize) {
    let next = memory.cast::<u8>();
    // SAFETY: the caller grants the arena.
    unsafe { arena.write(Arena { next, end: next.wrapping_add(bytes) }) };
}

/// `bytes` bytes aligned to `align` (a power of two), or null when the arena is full.
///
/// # Safety
/// `arena` was set up by [`relax_rt_arena`] and no other thread uses it meanwhile.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_arena_take(arena: *mut Arena, bytes: usize, align: usize) -> *mut c_void {
    // SAFETY: the caller grants the arena.
    let a = unsafe { &mut *arena };
    let skip = (a.next as usize).wrapping_neg() & align.wrapping_sub(1);
    let room = (a.end as usize).wrapping_sub(a.next as usize);
    match skip.checked_add(bytes) {
        Some(all) if all <= room => {
            let p = a.next.wrapping_add(skip);
            a.next = a.next.wrapping_add(all);
            p.cast()
        }
        _ => null_mut(),
    }
}

/// Memory with how to give it back.
pub(crate) struct Block {
    pub pointer: *mut c_void,
    /// `None`: it belongs to an arena.
    pub release: Option<Release>,
    pub allocator: *mut c_void,
}

/// From the arena when there is one, else from the call's allocator. The pointer is null when neither has it.
///
/// # Safety
/// `call` is null or a valid record; `arena` null or valid.
pub(crate) unsafe fn take(call: *mut Call, arena: *mut Arena, bytes: usize, align: usize) -> Block {
    let none = Block { pointer: null_mut(), release: None, allocator: null_mut() };
    if !arena.is_null() {
        // SAFETY: granted by the caller.
        let pointer = unsafe { relax_rt_arena_take(arena, bytes, align) };
        return Block { pointer, ..none };
    }
    if call.is_null() {
        return none;
    }
    // SAFETY: a valid record; its allocator keeps the contract of `Allocate`.
    unsafe {
        match ((*call).allocate, (*call).release) {
            (Some(allocate), Some(release)) => {
                let allocator = (*call).allocator;
                Block { pointer: allocate(allocator, bytes, align), release: Some(release), allocator }
            }
            _ => none,
        }
    }
}
