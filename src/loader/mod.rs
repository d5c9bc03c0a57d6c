//! Loading a compiled library and calling it through its public C interface (`P_metadata`, `P_run`).
//!
//! With its submodules the only unsafe code outside the runtime. What it trusts: that the file was written by this compiler (its metadata
//! says so), hence that the two symbols have the signatures of the header.

use relax_ir::{Constant, DType, Diagnostic, Span};
use relax_rt::{Call, DLDataType, DLDevice, DLManagedTensor, DLTensor, Packed};
use std::ffi::{c_char, CStr, CString};
use std::path::Path;

mod guard;

type RunFn =
    unsafe extern "C" fn(*const c_char, *const *const DLTensor, i32, *mut *mut DLManagedTensor, i32, *mut Call) -> i32;
type MetadataFn = unsafe extern "C" fn() -> *const c_char;

mod counted;
mod exact;
mod packed;
mod prepared;

pub use counted::Counted;
pub use exact::Argument;
pub use packed::{PackedFunction, Reply};
pub use prepared::{Prepared, Shared};

/// A loaded library.
pub struct Library {
    // Dropped last: the function pointers live in it.
    run: RunFn,
    metadata: String,
    /// The weights file, for libraries compiled with `--weights external`.
    weights: Option<(Bytes, usize)>,
    _library: libloading::Library,
}

/// Where arguments and workspace lie during a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Heap,
    /// Each between unmapped pages, its last byte before one: a read or write beyond the end ends the process.
    GuardedEnd,
    /// Each with its first byte behind an unmapped page.
    GuardedStart,
}

/// A call that returned an error code: the record it left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    pub code: i32,
    pub constraint: i32,
    pub wanted: i64,
    pub got: i64,
    pub message: String,
}

impl CallError {
    /// What a call that returned `code` left in its record.
    fn left_in(call: &Call, code: i32) -> CallError {
        let end = call.message.iter().position(|&b| b == 0).unwrap_or(call.message.len());
        let message = String::from_utf8_lossy(&call.message[..end]).into_owned();
        CallError { code, constraint: call.constraint, wanted: call.wanted, got: call.got, message }
    }
}

impl Library {
    /// Loads `path`, whose exported names start with `prefix`.
    pub fn open(path: &Path, prefix: &str) -> Result<Library, Diagnostic> {
        let fail = |e: libloading::Error| {
            Diagnostic::error("cannot-load", Span::NONE, format!("cannot load {}: {e}", path.display()))
        };
        // SAFETY: a library of this compiler has no constructors, so loading runs no code of it.
        let library = unsafe { libloading::Library::new(path) }.map_err(fail)?;
        // SAFETY: the header of every hosted library declares the two symbols with these signatures.
        let (run, metadata) = unsafe {
            let run = *library.get::<RunFn>(format!("{prefix}_run\0").as_bytes()).map_err(fail)?;
            let metadata = *library.get::<MetadataFn>(format!("{prefix}_metadata\0").as_bytes()).map_err(fail)?;
            (run, metadata)
        };
        // SAFETY: `P_metadata` takes nothing and returns a NUL-terminated string in the library's read-only data.
        let metadata = unsafe { CStr::from_ptr(metadata()) }.to_string_lossy().into_owned();
        Ok(Library { run, metadata, weights: None, _library: library })
    }

    /// The contents of the weights file, handed to every call from now on.
    pub fn set_weights(&mut self, bytes: &[u8]) {
        self.weights = Some((Bytes::new(bytes, Memory::Heap), bytes.len()));
    }

    /// The metadata JSON.
    pub fn metadata(&self) -> &str {
        &self.metadata
    }

    /// Calls `entry` with dense tensors; `n_results` flattened results come back.
    pub fn run(&self, entry: &str, args: &[Constant], n_results: usize) -> Result<Vec<Constant>, CallError> {
        self.run_in(Memory::Heap, entry, args, n_results)
    }

    /// As [`Library::run`], with arguments and workspace in `memory`.
    pub fn run_in(
        &self,
        memory: Memory,
        entry: &str,
        args: &[Constant],
        n_results: usize,
    ) -> Result<Vec<Constant>, CallError> {
        self.run_with(memory, entry, args, n_results, &[], None)
    }

    /// As [`Library::run_in`], with packed functions that the model may call; what it takes from the heap is counted.
    pub fn run_with(
        &self,
        memory: Memory,
        entry: &str,
        args: &[Constant],
        n_results: usize,
        packed: &[PackedFunction],
        counted: Option<&Counted>,
    ) -> Result<Vec<Constant>, CallError> {
        let name = CString::new(entry).unwrap_or_default();
        let mut aligned: Vec<Bytes> = args.iter().map(|a| Bytes::new(a.bytes(), memory)).collect();
        let mut shapes: Vec<Vec<i64>> = args.iter().map(|a| a.shape.clone()).collect();
        let tensors: Vec<DLTensor> = args
            .iter()
            .zip(aligned.iter_mut().zip(&mut shapes))
            .map(|(a, (bytes, shape))| dense(a.dtype, shape, bytes.pointer()))
            .collect();
        let pointers: Vec<*const DLTensor> = tensors.iter().map(|t| t as *const DLTensor).collect();
        let mut results: Vec<*mut DLManagedTensor> = vec![std::ptr::null_mut(); n_results];
        let mut call = Call::new();
        if let Some((bytes, size)) = &self.weights {
            (call.weights, call.weights_size) = (bytes.as_pointer().cast(), *size);
        }
        if memory != Memory::Heap {
            call.allocate =
                Some(if memory == Memory::GuardedEnd { guard::allocate_end } else { guard::allocate_start });
            call.release = Some(guard::release);
        }
        let table: Vec<Packed> = packed
            .iter()
            .map(|p| Packed {
                name: p.name.as_ptr(),
                function: Some(packed::call),
                own: std::ptr::from_ref(p).cast_mut().cast(),
            })
            .collect();
        call.packed = table.as_ptr();
        call.n_packed = table.len();
        if let (Some(counted), Memory::Heap) = (counted, memory) {
            counted.lend(&mut call);
        }
        // SAFETY: every pointer is valid for the call: the tensors own their data and shapes above, `results` has
        // `n_results` slots, the call record is ours.
        let code = unsafe {
            (self.run)(
                name.as_ptr(),
                pointers.as_ptr(),
                pointers.len() as i32,
                results.as_mut_ptr(),
                n_results as i32,
                &mut call,
            )
        };
        if code != 0 {
            return Err(CallError::left_in(&call, code));
        }
        Ok(results.into_iter().map(take).collect())
    }
}

/// A dense tensor on the CPU; it refers to `shape` and `data`, which must outlive it.
fn dense(dtype: DType, shape: &mut [i64], data: *mut u8) -> DLTensor {
    let (code, bits) = dtype.stored().dlpack();
    DLTensor {
        data: data.cast(),
        device: DLDevice { device_type: 1, device_id: 0 },
        ndim: shape.len() as i32,
        dtype: DLDataType { code, bits, lanes: 1 },
        shape: shape.as_mut_ptr(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    }
}

/// Copies a result out and releases it.
fn take(t: *mut DLManagedTensor) -> Constant {
    // SAFETY: after a successful run every result is a valid managed tensor that is ours to release: dense, with `ndim`
    // dims and as many elements of its dtype as they say.
    unsafe {
        let tensor = &(*t).dl_tensor;
        let dtype = DType::from_dlpack(tensor.dtype.code, tensor.dtype.bits).unwrap_or(DType::U8);
        let shape = if tensor.ndim > 0 {
            std::slice::from_raw_parts(tensor.shape, tensor.ndim as usize).to_vec()
        } else {
            vec![]
        };
        let bytes = shape.iter().product::<i64>() as usize * dtype.bytes();
        let data = if bytes == 0 {
            vec![]
        } else {
            let start = tensor.data.cast::<u8>().add(tensor.byte_offset as usize);
            std::slice::from_raw_parts(start, bytes).to_vec()
        };
        if let Some(deleter) = (*t).deleter {
            deleter(t);
        }
        Constant::new(dtype, shape, data)
    }
}

/// A copy of an argument's bytes.
enum Bytes {
    /// At a 64-byte boundary.
    Heap {
        storage: Vec<u8>,
        start: usize,
    },
    Guarded(guard::Pages),
}

impl Bytes {
    fn new(bytes: &[u8], memory: Memory) -> Bytes {
        if let Some(pages) = (memory != Memory::Heap).then(|| guard::Pages::holding(bytes, memory)).flatten() {
            return Bytes::Guarded(pages);
        }
        let mut storage = vec![0u8; bytes.len() + 64];
        let start = storage.as_ptr().align_offset(64);
        storage[start..start + bytes.len()].copy_from_slice(bytes);
        Bytes::Heap { storage, start }
    }

    fn as_pointer(&self) -> *const u8 {
        match self {
            Bytes::Heap { storage, start } => storage[*start..].as_ptr(),
            Bytes::Guarded(p) => p.pointer(),
        }
    }

    fn pointer(&mut self) -> *mut u8 {
        match self {
            Bytes::Heap { storage, start } => storage[*start..].as_mut_ptr(),
            Bytes::Guarded(p) => p.pointer(),
        }
    }
}
