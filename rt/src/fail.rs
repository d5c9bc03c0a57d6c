//! The error record of a call.

use crate::abi::{Call, MESSAGE_BYTES};
use crate::text::Text;
use core::ffi::c_char;

/// Return codes, as in `relax_ir::program::code`.
pub mod code {
    pub const OK: i32 = 0;
    /// A required pointer is null.
    pub const NULL: i32 = 1;
    /// Wanted and got are the four bytes of a `DLDataType` as a little-endian integer.
    pub const DTYPE: i32 = 2;
    /// Wrong number of dims.
    pub const RANK: i32 = 3;
    /// A dim differs from a constant or from an earlier dim.
    pub const DIM: i32 = 4;
    /// The tensor is not dense row-major.
    pub const STRIDES: i32 = 5;
    /// The data pointer is not aligned to the element.
    pub const ALIGN: i32 = 6;
    /// The workspace is too small.
    pub const WORKSPACE: i32 = 7;
    /// A MatchCast or operator requirement failed.
    pub const CHECK: i32 = 8;
    /// `R.assert_op` failed.
    pub const ASSERT: i32 = 9;
    /// The allocator returned null.
    pub const MEMORY: i32 = 10;
    /// Wrong number of arguments or results, or no such entry.
    pub const CALL: i32 = 11;
    /// A packed function is not registered.
    pub const PACKED: i32 = 12;
    /// A packed function returned an error.
    pub const PACKED_FAILED: i32 = 13;
    /// A value has another structure than expected (boxed values).
    pub const TYPE: i32 = 14;
    /// Recursion took more stack than is granted (bytes).
    pub const STACK: i32 = 15;
    /// The tensor is not in the CPU's memory; wanted and got are DLPack's device types.
    pub const DEVICE: i32 = 16;
}

/// Fills the error record and returns `code`. A null `call` is tolerated.
///
/// `constraint` is the number of the check in the header, or 0; `what` names the value (null: nothing). The message
/// is `WHAT: wanted W, got G`, with type names for [`code::DTYPE`] and what is counted for others that tensors are asked for,
/// without the values where they say nothing.
///
/// # Safety
/// `call` is null or points to a `Call`; `what` is null or NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_fail(
    call: *mut Call,
    code: i32,
    constraint: i32,
    wanted: i64,
    got: i64,
    what: *const c_char,
) -> i32 {
    if call.is_null() {
        return code;
    }
    // SAFETY: the caller passes a `Call` that no other thread uses during the call.
    let mut text = unsafe {
        (*call).code = code;
        (*call).constraint = constraint;
        (*call).wanted = wanted;
        (*call).got = got;
        Text::new((&raw mut (*call).message).cast::<u8>(), MESSAGE_BYTES)
    };
    // SAFETY: `what` is null or NUL-terminated.
    unsafe { text.c_str(what) };
    match code {
        code::NULL => text.str(": wanted a pointer, got null"),
        code::DTYPE => {
            text.str(": wanted ");
            text.dtype(wanted);
            text.str(", got ");
            text.dtype(got);
        }
        code::DEVICE => {
            text.str(": wanted device type ");
            text.number(wanted);
            text.str(" (CPU), got ");
            text.number(got);
        }
        code::PACKED => text.str(": no packed function of this name is registered"),
        code::PACKED_FAILED => {
            text.str(": returned ");
            text.number(got);
        }
        code::MEMORY => {
            text.str(": no memory for ");
            text.number(wanted);
            text.str(" bytes");
        }
        // A check of something that has no two values, e.g. a condition.
        code::CHECK | code::ASSERT | code::STRIDES | code::CALL | code::TYPE if wanted == got => {}
        code::ALIGN => {
            text.str(": wanted an address by ");
            text.number(wanted);
            text.str(" bytes, got one ");
            text.number(got);
            text.str(" beyond");
        }
        _ => {
            text.str(match code {
                // Of tensors of the call; checks of the model say what they count.
                code::RANK if constraint < 0 => ": wanted rank ",
                code::STRIDES => ": wanted a stride of ",
                code::DIM if constraint < 0 && wanted == 0 && got < 0 => ": wanted a dim of at least ",
                _ => ": wanted ",
            });
            text.number(wanted);
            text.str(", got ");
            text.number(got);
        }
    }
    code
}
