//! Values in memory of the caller: from `arena` when it is not null, else from the allocator of the call.
//!
//! Each function writes an owned value to `out` and returns 0, or fails with [`code::MEMORY`] (named `what`) and
//! writes the null value. Tuples and closures take over the owners of their fields, also on failure.

use crate::abi::{Call, DLDataType, DLDevice, DLTensor, DEVICE_CPU};
use crate::arena::Arena;
use crate::fail::{code, relax_rt_fail};
use crate::value::{
    data_offset, new_box, own, relax_rt_drop, relax_rt_retain, room_of, tag, Closure, ClosureFn, Object, Shape, Tuple,
    Value, VIEW,
};
use core::ffi::{c_char, c_void};
use core::mem::size_of;
use core::ptr::{copy_nonoverlapping, null_mut};

/// `head + count * each`; `None` when negative or too large.
fn bytes_of(head: usize, count: i64, each: usize) -> Option<usize> {
    usize::try_from(count).ok()?.checked_mul(each)?.checked_add(head)
}

/// A box, or a reported failure and null.
///
/// # Safety
/// As for the functions below.
unsafe fn make(call: *mut Call, arena: *mut Arena, tag: u32, bytes: Option<usize>, out: *mut Value) -> *mut c_void {
    // SAFETY: granted by the caller.
    unsafe {
        let p = match bytes {
            Some(b) => new_box(call, arena, tag, b),
            None => null_mut(),
        };
        out.write(if p.is_null() { Value::NULL } else { own(tag, p) });
        if p.is_null() {
            let wanted = bytes.map_or(i64::MAX, |b| b as i64);
            relax_rt_fail(call, code::MEMORY, 0, wanted, 0, c"a value".as_ptr());
        }
        p
    }
}

/// A shape of `count` values, copied from `values` unless that is null.
///
/// # Safety
/// `call` and `arena` are null or valid, `out` writable, `values` null or of `count` integers.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_shape(
    call: *mut Call,
    arena: *mut Arena,
    count: i64,
    values: *const i64,
    out: *mut Value,
) -> i32 {
    // SAFETY: the box has room for the struct and `count` values.
    unsafe {
        let bytes = bytes_of(size_of::<Shape>(), count, 8);
        let p = make(call, arena, tag::SHAPE, bytes, out).cast::<Shape>();
        if p.is_null() {
            return code::MEMORY;
        }
        p.write(Shape { count });
        if !values.is_null() {
            copy_nonoverlapping(values, p.add(1).cast::<i64>(), count as usize);
        }
    }
    code::OK
}

/// A tuple of `count` fields.
///
/// # Safety
/// As for [`relax_rt_shape`]; `fields` points to `count` values that the tuple takes over.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_tuple(
    call: *mut Call,
    arena: *mut Arena,
    count: i64,
    fields: *mut Value,
    out: *mut Value,
) -> i32 {
    // SAFETY: the box has room for the struct (8 bytes) and the fields (aligned to 8).
    unsafe {
        let bytes = bytes_of(size_of::<Tuple>(), count, size_of::<Value>());
        let p = make(call, arena, tag::TUPLE, bytes, out).cast::<Tuple>();
        if p.is_null() {
            drop_all(fields, count);
            return code::MEMORY;
        }
        p.write(Tuple { count });
        copy_nonoverlapping(fields, p.add(1).cast::<Value>(), count as usize);
    }
    code::OK
}

/// A closure of `body` over `count` captured values; `signature` says what it takes and returns (null: a packed function).
///
/// # Safety
/// As for [`relax_rt_tuple`]; the compiler wrote the signature.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_closure(
    call: *mut Call,
    arena: *mut Arena,
    body: ClosureFn,
    signature: *const i64,
    count: i64,
    captured: *mut Value,
    out: *mut Value,
) -> i32 {
    // SAFETY: the box has room for the struct and the captured values.
    unsafe {
        let bytes = bytes_of(size_of::<Closure>(), count, size_of::<Value>());
        let p = make(call, arena, tag::CLOSURE, bytes, out).cast::<Closure>();
        if p.is_null() {
            drop_all(captured, count);
            return code::MEMORY;
        }
        p.write(Closure { code: body, count, signature });
        copy_nonoverlapping(captured, p.add(1).cast::<Value>(), count as usize);
    }
    code::OK
}

/// A tensor with uninitialised data, dense, aligned to 64.
///
/// # Safety
/// As for [`relax_rt_shape`]; `shape` points to `ndim` dims.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_tensor(
    call: *mut Call,
    arena: *mut Arena,
    dtype: DLDataType,
    ndim: i32,
    shape: *const i64,
    out: *mut Value,
) -> i32 {
    // SAFETY: granted by the caller.
    unsafe { tensor(call, arena, dtype, ndim, shape, (0, 0), out) }
}

/// As [`relax_rt_tensor`], with so many more rows than `shape` has, and room for so many bytes behind the elements.
///
/// # Safety
/// The same.
unsafe fn tensor(
    call: *mut Call,
    arena: *mut Arena,
    dtype: DLDataType,
    ndim: i32,
    shape: *const i64,
    (rows, spare): (i64, usize),
    out: *mut Value,
) -> i32 {
    // SAFETY: the box has room for the struct, `ndim` dims, and the data behind them.
    unsafe {
        let head = bytes_of(size_of::<DLTensor>(), ndim as i64, 8);
        let mut bits = Some(dtype.bits as usize * dtype.lanes as usize);
        let mut i = 0;
        while i < ndim as isize {
            let more = if i == 0 { rows } else { 0 };
            let dim = (*shape.offset(i)).checked_add(more).and_then(|d| usize::try_from(d).ok());
            bits = bits.and_then(|b| b.checked_mul(dim?));
            i += 1;
        }
        let data = head.map(data_offset);
        let bytes = data.and_then(|d| d.checked_add(bits? / 8 + 1)?.checked_add(spare));
        let p = make(call, arena, tag::TENSOR, bytes, out).cast::<DLTensor>();
        let (false, Some(data)) = (p.is_null(), data) else {
            return code::MEMORY;
        };
        let dims = p.add(1).cast::<i64>();
        copy_nonoverlapping(shape, dims, if ndim > 0 { ndim as usize } else { 0 });
        if rows != 0 {
            *dims += rows;
        }
        p.write(DLTensor {
            data: p.cast::<u8>().add(data).cast(),
            device: DLDevice { device_type: DEVICE_CPU, device_id: 0 },
            ndim,
            dtype,
            shape: dims,
            strides: null_mut(),
            byte_offset: 0,
        });
    }
    code::OK
}

/// The elements of the tensor `source` under other dims: shares its memory and is one of its owners.
///
/// # Safety
/// As for [`relax_rt_shape`]; `source` is a tensor, `shape` points to `ndim` dims that ask for no more than it holds.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_view(
    call: *mut Call,
    arena: *mut Arena,
    source: *const Value,
    ndim: i32,
    shape: *const i64,
    out: *mut Value,
) -> i32 {
    // SAFETY: the box has room for the struct, the owner and `ndim` dims.
    unsafe {
        let from = *source;
        let bytes = bytes_of(size_of::<DLTensor>() + size_of::<Value>(), ndim as i64, 8);
        let p = match bytes {
            Some(b) => new_box(call, arena, VIEW, b),
            None => null_mut(),
        };
        out.write(if p.is_null() { Value::NULL } else { own(tag::TENSOR, p) });
        if p.is_null() {
            return relax_rt_fail(call, code::MEMORY, 0, bytes.map_or(i64::MAX, |b| b as i64), 0, c"a value".as_ptr());
        }
        let t = p.cast::<DLTensor>();
        let owner = t.add(1).cast::<Value>();
        let dims = owner.add(1).cast::<i64>();
        copy_nonoverlapping(shape, dims, if ndim > 0 { ndim as usize } else { 0 });
        t.write(DLTensor { ndim, shape: dims, strides: null_mut(), ..*from.payload.tensor });
        owner.write(from);
        relax_rt_retain(owner);
    }
    code::OK
}

/// The tensor `all` with `rows` more rows, of `more` bytes, which the caller writes: `all` itself where it has one owner
/// alone, which `again` says gives it up, and room for them; else a copy, which gets as much room again if it may be
/// appended to in this way. Fails as [`relax_rt_tensor`] does.
///
/// # Safety
/// As for [`relax_rt_shape`]; `all` is a dense tensor of whole bytes with at least one dim. Where `again` is not 0 its
/// owner does not read it again but to drop it.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_append(
    call: *mut Call,
    all: *const Value,
    again: i32,
    rows: i64,
    more: i64,
    out: *mut Value,
) -> i32 {
    // SAFETY: a tensor has `ndim` dims, and its elements lie behind `data`; those of a box of its own up to its end.
    unsafe {
        let t = (*all).payload.tensor;
        let (ndim, dtype) = ((*t).ndim, (*t).dtype);
        let mut bytes = (dtype.bits / 8) as usize;
        let mut i = 0;
        while i < ndim as isize {
            bytes *= *(*t).shape.offset(i) as usize;
            i += 1;
        }
        let wanted = bytes.checked_add(more as usize);
        let room = if again != 0 { room_of(&*all) } else { 0 };
        if wanted.is_some_and(|w| w <= room) {
            *(*t).shape += rows;
            out.write(*all);
            relax_rt_retain(all);
            return code::OK;
        }
        let spare = if again != 0 { wanted.unwrap_or(0) } else { 0 };
        let rc = tensor(call, null_mut(), dtype, ndim, (*t).shape, (rows, spare), out);
        if rc == code::OK {
            let from = (*t).data.cast::<u8>().add((*t).byte_offset as usize);
            copy_nonoverlapping(from, (*(*out).payload.tensor).data.cast::<u8>(), bytes);
        }
        rc
    }
}

/// A string of `length` bytes; a NUL is appended.
///
/// # Safety
/// As for [`relax_rt_shape`]; `bytes` points to `length` bytes.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_str(
    call: *mut Call,
    arena: *mut Arena,
    length: i64,
    bytes: *const u8,
    out: *mut Value,
) -> i32 {
    // SAFETY: the box has room for the bytes and the NUL.
    unsafe {
        let p = make(call, arena, tag::STR, bytes_of(1, length, 1), out).cast::<u8>();
        if p.is_null() {
            return code::MEMORY;
        }
        copy_nonoverlapping(bytes, p, length as usize);
        p.add(length as usize).write(0);
    }
    code::OK
}

/// A value as a tensor: a tensor itself (borrowed), a scalar with no dims, a shape as integers, a string as its bytes.
/// Fails with [`code::TYPE`] under the name `what` for every other kind.
///
/// # Safety
/// As for [`relax_rt_shape`]; `value` is valid and outlives `out`, `what` null or NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_as_tensor(
    call: *mut Call,
    value: *const Value,
    out: *mut Value,
    what: *const c_char,
) -> i32 {
    // SAFETY: the tag says which member of the payload is valid; the new tensor has room for what is copied.
    unsafe {
        let v = *value;
        out.write(Value::NULL);
        let (code, bits, count, ndim, from): (u8, u8, i64, i32, *const u8) = match v.tag {
            tag::TENSOR => {
                out.write(Value { owned: 0, ..v });
                return code::OK;
            }
            tag::INT => (0, 64, 1, 0, (&raw const v.payload).cast()),
            tag::FLOAT => (2, 64, 1, 0, (&raw const v.payload).cast()),
            // The low byte of the integer, on every processor that there is a back end for.
            tag::BOOL => (6, 8, 1, 0, (&raw const v.payload).cast()),
            tag::SHAPE => (0, 64, (*v.payload.shape).count, 1, v.payload.shape.add(1).cast()),
            tag::STR => {
                let mut n = 0;
                while *v.payload.str.offset(n) != 0 {
                    n += 1;
                }
                (1, 8, n as i64, 1, v.payload.str.cast())
            }
            other => return relax_rt_fail(call, code::TYPE, 0, tag::TENSOR as i64, other as i64, what),
        };
        let dtype = DLDataType { code, bits, lanes: 1 };
        let rc = relax_rt_tensor(call, null_mut(), dtype, ndim, &count, out);
        if rc == code::OK {
            let t = (*out).payload.tensor;
            copy_nonoverlapping(from, (*t).data.cast::<u8>(), count as usize * (bits as usize / 8));
        }
        rc
    }
}

/// The elements of a dense tensor of integers with one dim, as a shape. One that is negative fails with `negative`, the
/// code and the number of a check.
///
/// # Safety
/// As for [`relax_rt_shape`]; `tensor` is valid, `what` null or NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_as_shape(
    call: *mut Call,
    tensor: *const DLTensor,
    out: *mut Value,
    what: *const c_char,
    negative: i32,
    number: i32,
) -> i32 {
    // SAFETY: one dim, which counts the elements behind the data pointer.
    unsafe {
        out.write(Value::NULL);
        let t = &*tensor;
        if t.ndim != 1 {
            return relax_rt_fail(call, code::RANK, 0, 1, t.ndim as i64, what);
        }
        let width = t.dtype.bits / 8;
        if t.dtype.code > 1 || !matches!(t.dtype.bits, 8 | 16 | 32 | 64) || t.dtype.lanes != 1 {
            return relax_rt_fail(call, code::DTYPE, 0, 64, t.dtype.bits as i64, what);
        }
        let data = t.data.cast::<u8>().add(t.byte_offset as usize);
        let p = make(call, null_mut(), tag::SHAPE, bytes_of(size_of::<Shape>(), *t.shape, 8), out).cast::<Shape>();
        if p.is_null() {
            return code::MEMORY;
        }
        p.write(Shape { count: *t.shape });
        let values = p.add(1).cast::<i64>();
        for i in 0..*t.shape as usize {
            let value = match (t.dtype.code, width) {
                (0, 1) => data.cast::<i8>().add(i).read() as i64,
                (0, 2) => data.cast::<i16>().add(i).read() as i64,
                (0, 4) => data.cast::<i32>().add(i).read() as i64,
                (_, 1) => data.add(i).read() as i64,
                (_, 2) => data.cast::<u16>().add(i).read() as i64,
                (_, 4) => data.cast::<u32>().add(i).read() as i64,
                _ => data.cast::<i64>().add(i).read(),
            };
            if value < 0 {
                return relax_rt_fail(call, negative, number, 0, value, what);
            }
            values.add(i).write(value);
        }
        code::OK
    }
}

/// Wraps `data` of the caller; `destroy` is called with it when the last owner is gone, and on failure.
///
/// # Safety
/// As for [`relax_rt_shape`]; `kind` is NUL-terminated and outlives the value.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_object(
    call: *mut Call,
    arena: *mut Arena,
    kind: *const c_char,
    data: *mut c_void,
    destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    out: *mut Value,
) -> i32 {
    // SAFETY: the box has room for the struct.
    unsafe {
        let p = make(call, arena, tag::OBJECT, Some(size_of::<Object>()), out).cast::<Object>();
        if p.is_null() {
            if let Some(destroy) = destroy {
                destroy(data);
            }
            return code::MEMORY;
        }
        p.write(Object { kind, data, destroy });
    }
    code::OK
}

/// # Safety
/// `values` points to `count` values that are given up.
unsafe fn drop_all(values: *mut Value, count: i64) {
    let mut i = 0;
    while i < count as isize {
        // SAFETY: within the array.
        unsafe { relax_rt_drop(values.offset(i)) };
        i += 1;
    }
}
