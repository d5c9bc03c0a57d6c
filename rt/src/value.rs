//! The tagged value.
use core::ffi::c_void;

/// A value without static structure.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value {
    pub tag: u32,
    pub reserved: u32,
    pub payload: Payload,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union Payload {
    pub int: i64,
    pub float: f64,
    pub pointer: *mut c_void,
}
