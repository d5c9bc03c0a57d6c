//! The C structs that cross the boundary. Generated code reaches their fields by the offsets of `relax_ir::abi`; a
//! test of the backend holds the two together.

use crate::value::Value;
use core::ffi::{c_char, c_void};

/// DLPack's device of CPU memory.
pub const DEVICE_CPU: i32 = 1;

/// Bytes of [`Call::message`], the final NUL included.
pub const MESSAGE_BYTES: usize = 256;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    pub device_type: i32,
    pub device_id: i32,
}

/// DLPack's element type: code 0 int, 1 uint, 2 float, 3 handle, 4 bfloat, 6 bool.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// DLPack's tensor. The caller owns data, shape and strides.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    pub data: *mut c_void,
    pub device: DLDevice,
    pub ndim: i32,
    pub dtype: DLDataType,
    pub shape: *mut i64,
    /// Null for dense row-major.
    pub strides: *mut i64,
    pub byte_offset: u64,
}

/// DLPack's owned tensor.
#[repr(C)]
pub struct DLManagedTensor {
    pub dl_tensor: DLTensor,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// Returns `bytes` bytes aligned to `align` (a power of two), or null.
pub type Allocate = unsafe extern "C" fn(allocator: *mut c_void, bytes: usize, align: usize) -> *mut c_void;
/// Takes back what [`Allocate`] returned for `bytes`.
pub type Release = unsafe extern "C" fn(allocator: *mut c_void, pointer: *mut c_void, bytes: usize);
/// Runs iterations `begin..end` of a loop; non-zero stops the loop.
pub type ParallelBody = unsafe extern "C" fn(context: *mut c_void, begin: i64, end: i64) -> i32;
/// Covers `0..n` by disjoint calls of `body`, on any threads, and returns when all have returned: 0, or the first
/// non-zero result.
pub type ParallelFor =
    unsafe extern "C" fn(parallel_self: *mut c_void, n: i64, body: ParallelBody, context: *mut c_void) -> i32;
/// A function of the caller, called by name from the model. `args` are borrowed; `result` is owned by the model
/// afterwards. Returns 0 or an error code of its own.
pub type PackedFn = unsafe extern "C" fn(own: *mut c_void, args: *const Value, n: i32, result: *mut Value) -> i32;

/// A row of the caller's packed-function table.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Packed {
    /// NUL-terminated.
    pub name: *const c_char,
    pub function: Option<PackedFn>,
    /// Passed back as the first argument.
    pub own: *mut c_void,
}

/// One call of a model: resources in, error record out. A plain struct of the caller; all zero is valid.
#[repr(C)]
pub struct Call {
    /// Aligned to 64; at least `P_f_workspace_size` bytes.
    pub workspace: *mut c_void,
    pub workspace_size: usize,
    /// Optional: memory whose size depends on data.
    pub allocate: Option<Allocate>,
    pub release: Option<Release>,
    pub allocator: *mut c_void,
    /// Optional.
    pub parallel_for: Option<ParallelFor>,
    pub parallel_self: *mut c_void,
    pub packed: *const Packed,
    pub n_packed: usize,
    /// What the function returned: 0 or one of [`crate::fail::code`].
    pub code: i32,
    /// The number of the failed check in the header, or 0.
    pub constraint: i32,
    pub wanted: i64,
    pub got: i64,
    /// NUL-terminated.
    pub message: [u8; MESSAGE_BYTES],
    /// For models whose weights are in a file: its contents, aligned to 64.
    pub weights: *const c_void,
    pub weights_size: usize,
}

impl Call {
    /// No workspace, no callbacks, no error.
    pub const fn new() -> Call {
        Call {
            workspace: core::ptr::null_mut(),
            workspace_size: 0,
            allocate: None,
            release: None,
            allocator: core::ptr::null_mut(),
            parallel_for: None,
            parallel_self: core::ptr::null_mut(),
            packed: core::ptr::null(),
            n_packed: 0,
            code: 0,
            constraint: 0,
            wanted: 0,
            got: 0,
            message: [0; MESSAGE_BYTES],
            weights: core::ptr::null(),
            weights_size: 0,
        }
    }
}

impl Default for Call {
    fn default() -> Call {
        Call::new()
    }
}

/// The packed convention of generated functions: every flattened parameter and result is a tensor.
pub type EntryFn =
    unsafe extern "C" fn(args: *const *const DLTensor, outs: *const *mut DLTensor, call: *mut Call) -> i32;
/// Workspace bytes for these arguments; -1 when they are malformed.
pub type WorkspaceFn = unsafe extern "C" fn(args: *const *const DLTensor) -> i64;

/// A flattened parameter or result.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ValueDesc {
    /// NUL-terminated.
    pub name: *const c_char,
    /// -1 when unknown at compile time.
    pub ndim: i32,
    /// All zero when unknown at compile time.
    pub dtype: DLDataType,
}

/// An exported function.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EntryDesc {
    /// NUL-terminated.
    pub name: *const c_char,
    pub call: Option<EntryFn>,
    /// Fills rank, type and shape of the results from the arguments.
    pub infer: Option<EntryFn>,
    /// Null when the size depends on data; then `Call::allocate` serves.
    pub workspace: Option<WorkspaceFn>,
    pub params: *const ValueDesc,
    pub results: *const ValueDesc,
    pub n_params: i32,
    pub n_results: i32,
}

/// What the generic entry knows of a library (`P__module`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ModuleDesc {
    /// [`DESC_VERSION`] of the compiler that wrote it.
    pub version: u32,
    pub n_entries: u32,
    pub entries: *const EntryDesc,
}

/// The layout of [`ModuleDesc`] and what it points to.
pub const DESC_VERSION: u32 = 1;
