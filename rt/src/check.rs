//! MatchCast over runtime values: the structure is checked here, against a static pattern; the dims come back for
//! the generated code to bind and compare.

use crate::abi::{Call, DLDataType, DLTensor};
use crate::fail::{code, relax_rt_fail};
use crate::value::{tag, Shape, Tuple, Value};
use core::ffi::c_char;

/// What a value must look like. Written by the compiler as read-only data.
#[repr(C)]
pub struct Pattern {
    /// One of [`tag`]; [`ANY`] takes every value.
    pub tag: u32,
    /// Rank of a tensor, length of a shape, fields of a tuple; -1: any (of a tuple: fields are not looked at).
    pub count: i32,
    /// Of a tensor; all zero: any.
    pub dtype: DLDataType,
    pub reserved: u32,
    /// Of a tuple.
    pub fields: *const Pattern,
}

/// [`Pattern::tag`] of an object of any kind.
pub const ANY: u32 = u32::MAX;

/// What a match found, in order of the pattern's leaves.
#[repr(C)]
pub struct Found {
    /// Dims of tensors and values of shapes whose count the pattern knows.
    pub dims: *mut i64,
    /// Leaves (everything but tuples), borrowed from the value.
    pub leaves: *mut Value,
}

/// Checks `value` against `pattern`. `found` must have room for what the pattern has; its pointers are moved on.
///
/// Fails with [`code::TYPE`], [`code::RANK`] or [`code::DTYPE`] under the number `constraint` and the name `what`.
///
/// # Safety
/// `call` is null or valid, `value` valid, `pattern` written by the compiler, `found` as said, `what` null or
/// NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_match(
    call: *mut Call,
    value: *const Value,
    pattern: *const Pattern,
    found: *mut Found,
    constraint: i32,
    what: *const c_char,
) -> i32 {
    // SAFETY: the tag says which member of the payload is valid; counts bound what follows each struct. Recursion is
    // as deep as the pattern.
    unsafe {
        let (v, p) = (&*value, &*pattern);
        if p.tag != ANY && p.tag != v.tag {
            return relax_rt_fail(call, code::TYPE, constraint, p.tag as i64, v.tag as i64, what);
        }
        if p.tag == tag::TUPLE {
            let t = v.payload.tuple;
            if p.count < 0 {
                return code::OK;
            }
            if (*t).count != p.count as i64 {
                return relax_rt_fail(call, code::TYPE, constraint, p.count as i64, (*t).count, what);
            }
            let fields: *const Value = t.add(1).cast();
            let mut i = 0;
            while i < p.count as isize {
                let rc = relax_rt_match(call, fields.offset(i), p.fields.offset(i), found, constraint, what);
                if rc != code::OK {
                    return rc;
                }
                i += 1;
            }
            return code::OK;
        }
        (*found).leaves.write(Value { owned: 0, ..*v });
        (*found).leaves = (*found).leaves.add(1);
        match p.tag {
            tag::TENSOR => {
                let t: *const DLTensor = v.payload.tensor;
                let (wanted, got) = (word(p.dtype), word((*t).dtype));
                if wanted != 0 && wanted != got {
                    return relax_rt_fail(call, code::DTYPE, constraint, wanted, got, what);
                }
                if p.count < 0 {
                    return code::OK;
                }
                if (*t).ndim != p.count {
                    return relax_rt_fail(call, code::RANK, constraint, p.count as i64, (*t).ndim as i64, what);
                }
                take_dims((*t).shape, p.count, found);
            }
            tag::SHAPE => {
                let s: *const Shape = v.payload.shape;
                if p.count < 0 {
                    return code::OK;
                }
                if (*s).count != p.count as i64 {
                    return relax_rt_fail(call, code::RANK, constraint, p.count as i64, (*s).count, what);
                }
                take_dims(s.add(1).cast(), p.count, found);
            }
            _ => {}
        }
    }
    code::OK
}

fn word(d: DLDataType) -> i64 {
    d.code as i64 | (d.bits as i64) << 8 | (d.lanes as i64) << 16
}

/// # Safety
/// Both sides have room for `count` integers.
unsafe fn take_dims(from: *const i64, count: i32, found: *mut Found) {
    let mut i = 0;
    while i < count as isize {
        // SAFETY: within both, see above.
        unsafe {
            (*found).dims.write(*from.offset(i));
            (*found).dims = (*found).dims.add(1);
        }
        i += 1;
    }
}

/// Field `index` of a tuple, borrowed.
///
/// # Safety
/// As for [`relax_rt_match`]; `out` is writable.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_field(call: *mut Call, value: *const Value, index: i64, out: *mut Value) -> i32 {
    // SAFETY: the tag says that the payload is a tuple; the index is checked against its count.
    unsafe {
        let v = &*value;
        if v.tag != tag::TUPLE {
            return relax_rt_fail(call, code::TYPE, 0, tag::TUPLE as i64, v.tag as i64, c"kind of a value".as_ptr());
        }
        let t: *const Tuple = v.payload.tuple;
        if index < 0 || index >= (*t).count {
            return relax_rt_fail(call, code::TYPE, 0, (*t).count, index, c"index of a tuple".as_ptr());
        }
        let fields: *const Value = t.add(1).cast();
        out.write(Value { owned: 0, ..*fields.offset(index as isize) });
    }
    code::OK
}
