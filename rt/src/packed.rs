//! Calls whose target is known at run time only: packed functions by name, closures by value.

use crate::abi::{Call, Packed};
use crate::fail::{code, relax_rt_fail};
use crate::text::same;
use crate::value::{tag, Closure, Value};
use core::ffi::c_char;
use core::ptr::null;

/// The row of the caller's table with this name, or null.
///
/// # Safety
/// `call` is null or valid, with a table of `n_packed` rows; `name` is NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_find_packed(call: *const Call, name: *const c_char) -> *const Packed {
    // SAFETY: rows are within the table and their names NUL-terminated.
    unsafe {
        if call.is_null() || (*call).packed.is_null() {
            return null();
        }
        let mut i = 0;
        while i < (*call).n_packed {
            let row = (*call).packed.add(i);
            if !(*row).name.is_null() && same((*row).name, name) {
                return row;
            }
            i += 1;
        }
    }
    null()
}

/// Calls the packed function `name`. Fails with [`code::PACKED`] when it is not in the table, with
/// [`code::PACKED_FAILED`] (got: its result) when it fails.
///
/// # Safety
/// As for [`relax_rt_find_packed`]; `args` points to `n` values, `result` is writable.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_call_packed(
    call: *mut Call,
    name: *const c_char,
    args: *const Value,
    n: i32,
    result: *mut Value,
) -> i32 {
    // SAFETY: granted by the caller.
    unsafe {
        result.write(Value::NULL);
        let row = relax_rt_find_packed(call, name);
        let function = if row.is_null() { None } else { (*row).function };
        let Some(function) = function else {
            return relax_rt_fail(call, code::PACKED, 0, 0, 0, name);
        };
        match function((*row).own, args, n, result) {
            0 => code::OK,
            rc => relax_rt_fail(call, code::PACKED_FAILED, 0, 0, rc as i64, name),
        }
    }
}

/// Calls a closure.
///
/// # Safety
/// `call` is null or valid, `closure` a valid value, `args` points to `n` values, `result` is writable.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_invoke(
    call: *mut Call,
    closure: *const Value,
    args: *const Value,
    n: i32,
    result: *mut Value,
) -> i32 {
    // SAFETY: the tag says that the payload is a closure; its captured values follow it.
    unsafe {
        result.write(Value::NULL);
        let v = &*closure;
        if v.tag != tag::CLOSURE {
            return relax_rt_fail(call, code::TYPE, 0, tag::CLOSURE as i64, v.tag as i64, c"callee".as_ptr());
        }
        let c: *const Closure = v.payload.closure;
        ((*c).code)(call, c.add(1).cast(), args, n, result)
    }
}
