//! The edge to the runtime and to the C library.
//!
//! Files come from anywhere, and the decoders are other people's code: one of them that panics over a damaged file, or
//! wants more memory than [`MOST`], must not end the process. So a call keeps a [`Guard`] on its stack, which knows every
//! block of the call and the way back; a panic takes that way, and the file counts as damaged. Nothing global: the panic
//! handler and the allocator find the guard by its mark, further up on their own stack.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn aligned_alloc(align: usize, size: usize) -> *mut c_void;
    fn free(p: *mut c_void);
    fn abort() -> !;
    fn _setjmp(jump: *mut Jump) -> c_int;
    fn longjmp(jump: *mut Jump, value: c_int) -> !;
}

/// Bytes that a file may take while it is decoded.
const MOST: usize = 2 << 30;
/// What `malloc` guarantees, and the size of [`Link`].
const ALIGN: usize = 16;
/// With the guard's own address, what no other words of a stack are.
const MARK: [usize; 2] = [0x7065_6c61_7867_7561u64 as usize, 0x70c7_1235_a01d_9e3bu64 as usize];

/// More than the C library's `jmp_buf` on any machine.
#[repr(C, align(16))]
struct Jump([u64; 128]);

/// What a call of the decoders holds on to. So few places can be one that it is found at once.
#[repr(C, align(4096))]
struct Guard {
    mark: [usize; 2],
    /// The blocks of the call, in a ring.
    blocks: Link,
    /// Bytes in them.
    held: usize,
    jump: Jump,
}

/// In front of every block.
#[repr(C, align(16))]
struct Link {
    before: *mut Link,
    after: *mut Link,
}

impl Guard {
    /// The guard of the call that runs on this stack. Calls are by [`relax_pictures_plain`] alone, so there is one.
    fn find() -> *mut Guard {
        let here = 0usize;
        let mut at = (&raw const here as usize).next_multiple_of(align_of::<Guard>());
        loop {
            let guard = at as *mut Guard;
            // SAFETY: between here and the guard lies this thread's stack, which is readable.
            let mark = unsafe { (&raw const (*guard).mark).read_volatile() };
            if mark == [MARK[0] ^ at, MARK[1] ^ at] {
                return guard;
            }
            at += align_of::<Guard>();
        }
    }
}

struct Heap;

// SAFETY: blocks come from the C library and go back to it, a link in front of each; larger alignments by
// `aligned_alloc`, whose size must be a multiple of them.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let guard = Guard::find();
        let head = layout.align().max(ALIGN);
        let Some(size) = layout.size().checked_add(2 * head) else { return null_mut() };
        // SAFETY: the guard is alive; the block has room for a link before what is handed out.
        unsafe {
            if (*guard).held + size > MOST {
                return null_mut();
            }
            let block: *mut u8 = match head {
                ALIGN => malloc(size).cast(),
                _ => aligned_alloc(head, size.next_multiple_of(head)).cast(),
            };
            if block.is_null() {
                return block;
            }
            (*guard).held += size;
            let (link, ring) = (block.cast::<Link>(), &raw mut (*guard).blocks);
            link.write(Link { before: ring, after: (*ring).after });
            (*(*ring).after).before = link;
            (*ring).after = link;
            block.add(head)
        }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        let head = layout.align().max(ALIGN);
        // SAFETY: `p` is of `alloc` with the same layout, and in the ring.
        unsafe {
            let link: *mut Link = p.sub(head).cast();
            (*(*link).before).after = (*link).after;
            (*(*link).after).before = (*link).before;
            (*Guard::find()).held -= layout.size() + 2 * head;
            free(link.cast());
        }
    }
}

#[global_allocator]
static HEAP: Heap = Heap;

/// Ends the call as one over a damaged file.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: the guard's frame and that of `guarded` are alive: everything here runs below them.
    unsafe { longjmp(&raw mut (*Guard::find()).jump, 1) }
}

/// A file and what comes of it.
struct Job {
    data: *const u8,
    len: usize,
    out: *mut usize,
    plain: *mut u8,
    /// It came to its end.
    ended: bool,
}

/// Runs the job; comes back early from a panic. What is needed then lies behind the pointers: this function has no
/// variables of its own. The note at the end keeps its frame until then: it outlives every jump to it.
#[inline(never)]
unsafe extern "C" fn guarded(guard: *mut Guard, job: *mut Job) {
    // SAFETY: granted by the caller.
    unsafe {
        if _setjmp(&raw mut (*guard).jump) == 0 {
            run(job);
            (&raw mut (*job).ended).write_volatile(true);
        }
    }
}

#[inline(never)]
unsafe extern "C" fn run(job: *mut Job) {
    // SAFETY: granted by the caller of `relax_pictures_plain`; the block has room for the whole file.
    unsafe {
        let Some(plain) = crate::plain(core::slice::from_raw_parts((*job).data, (*job).len)) else { return };
        let p: *mut u8 = malloc(plain.len()).cast();
        if !p.is_null() {
            core::ptr::copy_nonoverlapping(plain.as_ptr(), p, plain.len());
            (*job).out.write(plain.len());
        }
        (*job).plain = p;
    }
}

/// The PNM file of the compressed picture in the `len` bytes at `data`: `free` it; its length goes to `out`. Null when
/// the file is of another format or damaged.
///
/// # Safety
/// `data` points to `len` bytes, `out` is writable.
#[no_mangle]
pub unsafe extern "C" fn relax_pictures_plain(data: *const u8, len: usize, out: *mut usize) -> *mut u8 {
    let mut guard = Guard {
        mark: [0; 2],
        blocks: Link { before: null_mut(), after: null_mut() },
        held: 0,
        jump: Jump([0; 128]),
    };
    let mut job = Job { data, len, out, plain: null_mut(), ended: false };
    let (guard, job) = (&raw mut guard, &raw mut job);
    // SAFETY: granted by the caller; the guard stays where it is until the call ends.
    unsafe {
        out.write(0);
        if data.is_null() || len == 0 {
            return null_mut();
        }
        let (ring, at) = (&raw mut (*guard).blocks, guard as usize);
        ring.write(Link { before: ring, after: ring });
        (&raw mut (*guard).mark).write_volatile([MARK[0] ^ at, MARK[1] ^ at]);
        guarded(guard, job);
        // A later call must not take what is left of this one for its own.
        (&raw mut (*guard).mark).write_volatile([0; 2]);
        // What a panic left behind.
        let mut link = (&raw const (*ring).after).read_volatile();
        while link != ring {
            let after = (*link).after;
            free(link.cast());
            link = after;
        }
        match (&raw const (*job).ended).read_volatile() {
            true => (&raw const (*job).plain).read_volatile(),
            false => null_mut(),
        }
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
