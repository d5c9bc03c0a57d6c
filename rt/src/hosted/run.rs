//! The generic entry: by name, with results allocated for the caller.

use crate::abi::*;
use crate::fail::{code, relax_rt_fail};
use crate::hosted::kept::{self, Kept, KEPT};
use crate::hosted::libc;
use crate::text::same;
use core::ffi::{c_char, c_void};
use core::ptr::null_mut;

/// Result data and workspace start at multiples of this.
const ALIGN: usize = 64;
/// Bytes of results for which the C library is told that they come again.
const LEARNED_FROM: u64 = 128 << 10;
const LEARNED_TO: u64 = kept::FROM as u64;
/// Room for the dims of a result whose rank is only known at run time.
const MAX_RANK: usize = 32;

/// Runs the entry named `entry` (null: the first one).
///
/// Writes `n_results` tensors to `results`; each one is freed by its own deleter. After an error all of them are
/// null. Uses workspace and allocator of `call` when they suffice, else the C library for the time of the call.
///
/// # Safety
/// `desc` points to a descriptor that the compiler wrote. `entry` is null or NUL-terminated. `args` points to
/// `n_args` pointers, each null or to a valid tensor; `results` to `n_results` writable pointers; `call` is null or
/// points to a `Call` that no other thread uses meanwhile.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_run(
    desc: *const ModuleDesc,
    entry: *const c_char,
    args: *const *const DLTensor,
    n_args: i32,
    results: *mut *mut DLManagedTensor,
    n_results: i32,
    call: *mut Call,
) -> i32 {
    // SAFETY: the caller's contract.
    unsafe { run(desc, entry, args, n_args, results, n_results, call, None) }
}

/// [`relax_rt_run`] of a library that may need a large workspace, which it keeps until it is unloaded.
///
/// # Safety
/// The same.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_run_keeping(
    desc: *const ModuleDesc,
    entry: *const c_char,
    args: *const *const DLTensor,
    n_args: i32,
    results: *mut *mut DLManagedTensor,
    n_results: i32,
    call: *mut Call,
) -> i32 {
    // SAFETY: the caller's contract.
    unsafe { run(desc, entry, args, n_args, results, n_results, call, Some(&KEPT)) }
}

/// # Safety
/// As for [`relax_rt_run`].
#[allow(clippy::too_many_arguments)]
unsafe fn run(
    desc: *const ModuleDesc,
    entry: *const c_char,
    args: *const *const DLTensor,
    n_args: i32,
    results: *mut *mut DLManagedTensor,
    n_results: i32,
    call: *mut Call,
    kept: Option<&Kept>,
) -> i32 {
    let mut own = Call::new();
    let call = if call.is_null() { &raw mut own } else { call };
    // SAFETY: `call` is the caller's or `own`; the caller grants `n_results` pointers, `desc` and `entry`.
    let found = unsafe {
        (*call).code = code::OK;
        (*call).constraint = 0;
        (*call).wanted = 0;
        (*call).got = 0;
        (*call).message[0] = 0;
        if !results.is_null() {
            let mut i = 0;
            while i < n_results as isize {
                results.offset(i).write(null_mut());
                i += 1;
            }
        }
        find(desc, entry)
    };
    // SAFETY: as above; every failure below leaves `results` null and nothing allocated.
    unsafe {
        if found.is_null() {
            let what = if entry.is_null() { c"the library has no entry".as_ptr() } else { entry };
            let rc = relax_rt_fail(call, code::CALL, 0, 0, 0, what);
            if !entry.is_null() {
                let mut text = crate::text::Text::new((&raw mut (*call).message).cast(), MESSAGE_BYTES);
                text.str("no entry is named ");
                text.c_str(entry);
            }
            return rc;
        }
        let e = &*found;
        if n_args != e.n_params {
            return relax_rt_fail(
                call,
                code::CALL,
                0,
                e.n_params as i64,
                n_args as i64,
                c"number of arguments".as_ptr(),
            );
        }
        if n_results != e.n_results {
            let what = c"number of results".as_ptr();
            return relax_rt_fail(call, code::CALL, 0, e.n_results as i64, n_results as i64, what);
        }
        if args.is_null() && n_args > 0 {
            return relax_rt_fail(call, code::NULL, 0, 0, 0, c"args".as_ptr());
        }
        if results.is_null() && n_results > 0 {
            return relax_rt_fail(call, code::NULL, 0, 0, 0, c"results".as_ptr());
        }
        let mut i = 0;
        while i < n_args as isize {
            if (*args.offset(i)).is_null() {
                return relax_rt_fail(call, code::NULL, 0, 0, 0, (*e.params.offset(i)).name);
            }
            i += 1;
        }
        let rc = call_entry(e, args, results, call, kept);
        if rc != code::OK {
            let mut i = 0;
            while i < n_results as isize {
                drop_result(*results.offset(i));
                results.offset(i).write(null_mut());
                i += 1;
            }
            if (*call).code == code::OK {
                (*call).code = rc;
            }
        }
        rc
    }
}

/// The entry of this name, or null.
///
/// # Safety
/// As for [`relax_rt_run`].
unsafe fn find(desc: *const ModuleDesc, name: *const c_char) -> *const EntryDesc {
    // SAFETY: the descriptor holds `n_entries` entries with NUL-terminated names.
    unsafe {
        if desc.is_null() || (*desc).version != DESC_VERSION {
            return core::ptr::null();
        }
        let mut i = 0;
        while i < (*desc).n_entries as usize {
            let e = (*desc).entries.add(i);
            if name.is_null() || same(name, (*e).name) {
                return e;
            }
            i += 1;
        }
    }
    core::ptr::null()
}

/// Allocates results and workspace and calls. On an error, results may be partly allocated.
///
/// # Safety
/// Counts and pointers have been checked by [`relax_rt_run`].
unsafe fn call_entry(
    e: &EntryDesc,
    args: *const *const DLTensor,
    results: *mut *mut DLManagedTensor,
    call: *mut Call,
    kept: Option<&Kept>,
) -> i32 {
    // SAFETY: `e` describes functions of the packed convention; a managed tensor begins with its tensor, so
    // `results` serves as the array of result tensors.
    unsafe {
        let mut i = 0;
        while i < e.n_results as isize {
            let r = new_result(&*e.results.offset(i));
            if r.is_null() {
                return relax_rt_fail(call, code::MEMORY, 0, 0, 0, (*e.results.offset(i)).name);
            }
            results.offset(i).write(r);
            i += 1;
        }
        let (workspace, workspace_size) = ((*call).workspace, (*call).workspace_size);
        let (allocate, release, allocator) = ((*call).allocate, (*call).release, (*call).allocator);
        let given = allocate.is_some() && release.is_some();
        if !given {
            (*call).allocate = Some(libc::allocate);
            (*call).release = Some(libc::release);
            (*call).allocator = null_mut();
        }
        let outs = results as *const *mut DLTensor;
        let mut rc = infer_and_call(e, args, outs, given, kept, call);
        let mut i = 0;
        while i < e.n_results as isize {
            let copied = own_data(*outs.offset(i), given, (*e.results.offset(i)).name, call);
            rc = if rc == code::OK { copied } else { rc };
            i += 1;
        }
        (*call).workspace = workspace;
        (*call).workspace_size = workspace_size;
        (*call).allocate = allocate;
        (*call).release = release;
        (*call).allocator = allocator;
        rc
    }
}

/// Shapes of the results, their memory, the workspace (lent to the call where the caller gave none that serves), the
/// call itself.
///
/// # Safety
/// As for [`call_entry`]; `outs` are results without data, `call` has an allocator.
unsafe fn infer_and_call(
    e: &EntryDesc,
    args: *const *const DLTensor,
    outs: *const *mut DLTensor,
    given: bool,
    kept: Option<&Kept>,
    call: *mut Call,
) -> i32 {
    // SAFETY: the caller's contract.
    unsafe {
        let (Some(entry), Some(infer)) = (e.call, e.infer) else {
            return relax_rt_fail(call, code::CALL, 0, 0, 0, c"the entry cannot be called generically".as_ptr());
        };
        let rc = infer(args, outs, call);
        if rc != code::OK {
            return rc;
        }
        let need = match e.workspace {
            Some(size) => size(args),
            None => 0,
        };
        if need < 0 {
            return relax_rt_fail(call, code::WORKSPACE, 0, 0, need, c"workspace size".as_ptr());
        }
        if need as u64 >= usize::MAX as u64 / 2 {
            return relax_rt_fail(call, code::MEMORY, 0, need, 0, c"workspace".as_ptr());
        }
        let need = need as usize;
        let lent = (*call).workspace;
        let usable = !lent.is_null() && (*call).workspace_size >= need && (lent as usize).is_multiple_of(ALIGN);
        let own = need > 0 && !usable;
        let kept = kept.filter(|_| own && !given && need >= kept::FROM);
        let need = if given { need } else { libc::in_large_pages(need) };
        if !given {
            let freed = own && kept.is_none();
            let mut total = if freed { need as u64 } else { 0 };
            let mut i = 0;
            while i < e.n_results as isize {
                total = total.saturating_add(bytes_of(&**outs.offset(i)).unwrap_or(0));
                i += 1;
            }
            // A function over values asks as it runs, nobody knows yet for how much.
            let asks = e.workspace.is_none();
            let total = if asks { LEARNED_TO - 1 } else { total };
            if (LEARNED_FROM..LEARNED_TO).contains(&total) && (asks || e.n_results + freed as i32 > 1) {
                // Results and workspace freed one by one go back to the system, and their pages come back by faults.
                // An allocator that learns from what it frees keeps as much as this for the next call.
                // Beginning at large pages, blocks take up to one more each, and what is learned is up to one less.
                let more = if total as usize >= libc::LARGE { 2 * libc::LARGE } else { 0 };
                let total = total as usize + more;
                let block = core::hint::black_box(libc::allocate(null_mut(), total, ALIGN));
                libc::release(null_mut(), block, total);
            }
        }
        let mut i = 0;
        while i < e.n_results as isize {
            let rc = allocate_data(*outs.offset(i), (*e.results.offset(i)).name, call);
            if rc != code::OK {
                return rc;
            }
            i += 1;
        }
        if !own {
            return entry(args, outs, call);
        }
        if let Some(kept) = kept {
            let lease = kept.take(need);
            let rc = call_in(entry, args, outs, lease.block, need, call);
            if !lease.block.is_null() {
                kept.put(lease);
            }
            return rc;
        }
        let (Some(allocate), Some(release)) = ((*call).allocate, (*call).release) else {
            return relax_rt_fail(call, code::MEMORY, 0, need as i64, 0, c"workspace".as_ptr());
        };
        let block = allocate((*call).allocator, need, ALIGN);
        let rc = call_in(entry, args, outs, block, need, call);
        if !block.is_null() {
            release((*call).allocator, block, need);
        }
        rc
    }
}

/// Calls the entry in this workspace; null: there is none to be had.
///
/// # Safety
/// As for [`infer_and_call`]; the block has `bytes` bytes.
unsafe fn call_in(
    entry: EntryFn,
    args: *const *const DLTensor,
    outs: *const *mut DLTensor,
    block: *mut c_void,
    bytes: usize,
    call: *mut Call,
) -> i32 {
    // SAFETY: the caller's contract.
    unsafe {
        if block.is_null() {
            return relax_rt_fail(call, code::MEMORY, 0, bytes as i64, 0, c"workspace".as_ptr());
        }
        (*call).workspace = block;
        (*call).workspace_size = bytes;
        entry(args, outs, call)
    }
}

/// A result without data: one block that holds the managed tensor and its dims. Null when out of memory.
///
/// # Safety
/// `d` is a row of the descriptor.
unsafe fn new_result(d: &ValueDesc) -> *mut DLManagedTensor {
    let rank = if d.ndim < 0 { MAX_RANK } else { d.ndim as usize };
    let header = core::mem::size_of::<DLManagedTensor>();
    // SAFETY: the block has room for the header and `rank` (a signed 32-bit count) dims behind it; the header's
    // size is a multiple of 8, so the dims are aligned.
    unsafe {
        let block = libc::malloc(header + rank * 8) as *mut DLManagedTensor;
        if block.is_null() {
            return block;
        }
        let shape = block.cast::<u8>().add(header).cast::<i64>();
        let mut i = 0;
        while i < rank {
            shape.add(i).write(0);
            i += 1;
        }
        block.write(DLManagedTensor {
            dl_tensor: DLTensor {
                data: null_mut(),
                device: DLDevice { device_type: DEVICE_CPU, device_id: 0 },
                ndim: rank as i32,
                dtype: d.dtype,
                shape,
                strides: null_mut(),
                byte_offset: 0,
            },
            manager_ctx: null_mut(),
            deleter: Some(delete),
        });
        block
    }
}

/// Bytes of a dense tensor; `None` when negative or too large.
///
/// # Safety
/// The shape has `ndim` dims.
unsafe fn bytes_of(t: &DLTensor) -> Option<u64> {
    let mut bits = t.dtype.bits as u64 * t.dtype.lanes as u64;
    let mut i = 0;
    while i < t.ndim as isize {
        // SAFETY: within the dims.
        let dim = unsafe { *t.shape.offset(i) };
        bits = bits.checked_mul(u64::try_from(dim).ok()?)?;
        i += 1;
    }
    Some(bits / 8 + !bits.is_multiple_of(8) as u64).filter(|b| *b < usize::MAX as u64 / 2)
}

/// A result that the call allocated becomes the caller's: where the memory came from the caller's allocator (`given`)
/// it is copied, because results outlive that.
///
/// # Safety
/// `t` came from [`new_result`]; `call` has the allocator of the call.
unsafe fn own_data(t: *mut DLTensor, given: bool, name: *const c_char, call: *mut Call) -> i32 {
    // SAFETY: the call wrote dims and data of a dense tensor, or left the data null.
    unsafe {
        let managed = t.cast::<DLManagedTensor>();
        if (*managed).manager_ctx.is_null() {
            return code::OK;
        }
        (*managed).manager_ctx = null_mut();
        if !given || (*t).data.is_null() {
            return code::OK;
        }
        let from = (*t).data;
        let bytes = bytes_of(&*t).unwrap_or(0) as usize;
        let to = libc::allocate(null_mut(), bytes, ALIGN);
        if !to.is_null() {
            core::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), bytes);
        }
        (*t).data = to;
        if let Some(release) = (*call).release {
            release((*call).allocator, from, bytes);
        }
        if to.is_null() {
            return relax_rt_fail(call, code::MEMORY, 0, bytes as i64, 0, name);
        }
    }
    code::OK
}

/// Gives a result whose shape is known the memory for its elements (at least one byte, so never null).
///
/// # Safety
/// `t` came from [`new_result`] and was filled by the entry's infer function (-1: unknown before the call).
unsafe fn allocate_data(t: *mut DLTensor, name: *const c_char, call: *mut Call) -> i32 {
    // SAFETY: infer wrote `ndim` dims within the capacity of the block.
    unsafe {
        let mut open = (*t).ndim < 0;
        let mut i = 0;
        while i < (*t).ndim as isize {
            open |= *(*t).shape.offset(i) == -1;
            i += 1;
        }
        if open {
            // Only the call itself tells the size: it allocates.
            (*t.cast::<DLManagedTensor>()).manager_ctx = t.cast();
            if (*t).ndim < 0 {
                (*t).ndim = MAX_RANK as i32;
            }
            return code::OK;
        }
        let Some(bytes) = bytes_of(&*t) else {
            return relax_rt_fail(call, code::MEMORY, 0, i64::MAX, 0, name);
        };
        (*t).data = libc::allocate(null_mut(), bytes as usize, ALIGN);
        if (*t).data.is_null() {
            return relax_rt_fail(call, code::MEMORY, 0, bytes as i64, 0, name);
        }
    }
    code::OK
}

/// The deleter of every result.
unsafe extern "C" fn delete(t: *mut DLManagedTensor) {
    // SAFETY: DLPack calls the deleter once with the tensor it belongs to.
    unsafe { drop_result(t) }
}

/// # Safety
/// `t` is null or came from [`new_result`] and was not dropped before.
unsafe fn drop_result(t: *mut DLManagedTensor) {
    if !t.is_null() {
        // SAFETY: data (or null) and block both came from the C library's allocator.
        unsafe {
            libc::release(null_mut(), (*t).dl_tensor.data, 0);
            libc::free(t as *mut c_void);
        }
    }
}
