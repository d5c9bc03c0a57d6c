//! The compiled model: what `mlp.h` declares, and a safe function over it.

use std::ffi::{c_char, c_void, CStr};
use std::fmt;
use std::ptr::{null, null_mut};

/// Classes that the model tells apart.
pub const CLASSES: usize = 10;

#[repr(C)]
struct DLDevice {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
struct DLDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DLTensor {
    data: *mut c_void,
    device: DLDevice,
    ndim: i32,
    dtype: DLDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `mlp_call`: what the caller lends, and the error.
#[repr(C)]
struct Call {
    workspace: *mut c_void,
    workspace_size: usize,
    /// Allocator, parallel_for and packed functions, none of which this model needs.
    optional: [*mut c_void; 7],
    code: i32,
    constraint: i32,
    wanted: i64,
    got: i64,
    message: [c_char; 256],
    weights: *const c_void,
    weights_size: usize,
}

extern "C" {
    fn mlp_main(x: *const DLTensor, result: *mut DLTensor, call: *mut Call) -> i32;
    fn mlp_main_workspace_size(rows: i64) -> usize;
}

/// The record of a refused call.
#[derive(Debug)]
pub struct Error {
    pub code: i32,
    pub constraint: i32,
    pub wanted: i64,
    pub got: i64,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Error { code, constraint, wanted, got, message } = self;
        write!(f, "refused with code {code}, check {constraint}: {message}: wanted {wanted}, got {got}")
    }
}

/// 64 bytes at a 64-byte boundary.
#[derive(Clone)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u8; 64]);

/// A dense float32 tensor of `rows` rows over `data`, whose length must be a multiple of `rows`.
fn tensor(data: *mut f32, shape: &mut [i64; 2]) -> DLTensor {
    DLTensor {
        data: data.cast(),
        device: DLDevice { device_type: 1, device_id: 0 },
        ndim: 2,
        dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
        shape: shape.as_mut_ptr(),
        strides: null_mut(),
        byte_offset: 0,
    }
}

/// The probabilities of the classes for each row of `x`, which has `rows` rows.
pub fn infer(x: &[f32], rows: usize) -> Result<Vec<[f32; CLASSES]>, Error> {
    assert!(rows > 0 && x.len() % rows == 0, "whole rows");
    let mut out = vec![[0.0f32; CLASSES]; rows];
    let mut in_shape = [rows as i64, (x.len() / rows) as i64];
    let mut out_shape = [rows as i64, CLASSES as i64];
    // The library only reads its parameters.
    let input = tensor(x.as_ptr().cast_mut(), &mut in_shape);
    let mut output = tensor(out.as_mut_ptr().cast(), &mut out_shape);
    // SAFETY: takes and returns numbers.
    let size = unsafe { mlp_main_workspace_size(rows as i64) };
    let mut workspace = vec![Line([0; 64]); size.div_ceil(64)];
    let mut call = Call {
        workspace: workspace.as_mut_ptr().cast(),
        workspace_size: size,
        optional: [null_mut(); 7],
        code: 0,
        constraint: 0,
        wanted: 0,
        got: 0,
        message: [0; 256],
        weights: null(),
        weights_size: 0,
    };
    // SAFETY: both tensors describe memory that lives until the call returns, with the shapes that they say; the
    // library checks the shapes against the model before it touches the data.
    let code = unsafe { mlp_main(&input, &mut output, &mut call) };
    if code == 0 {
        return Ok(out);
    }
    // The message of a library without the runtime names the check; the numbers are in the record.
    // SAFETY: after a failed call the message is a string with its end inside the array.
    let message = unsafe { CStr::from_ptr(call.message.as_ptr()) }.to_string_lossy().into_owned();
    Err(Error { code, constraint: call.constraint, wanted: call.wanted, got: call.got, message })
}
