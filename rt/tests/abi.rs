//! The runtime's structs have the offsets that generated code uses, and its codes are the compiler's.

use relax_ir::abi::{self, AbiLayout};
use relax_ir::program::code as ir;
use relax_rt::abi::MESSAGE_BYTES;
use relax_rt::fail::{code, relax_rt_fail};
use relax_rt::{Call, DLTensor};
use std::mem::{offset_of, size_of};

#[test]
fn layout() {
    let l = AbiLayout::new(size_of::<usize>() as u32);
    let tensor = [
        (l.tensor_data, offset_of!(DLTensor, data)),
        (l.tensor_device, offset_of!(DLTensor, device)),
        (l.tensor_ndim, offset_of!(DLTensor, ndim)),
        (l.tensor_dtype, offset_of!(DLTensor, dtype)),
        (l.tensor_shape, offset_of!(DLTensor, shape)),
        (l.tensor_strides, offset_of!(DLTensor, strides)),
        (l.tensor_byte_offset, offset_of!(DLTensor, byte_offset)),
        (l.tensor_size as i64, size_of::<DLTensor>()),
    ];
    let call = [
        (l.call_workspace, offset_of!(Call, workspace)),
        (l.call_workspace_size, offset_of!(Call, workspace_size)),
        (l.call_allocate, offset_of!(Call, allocate)),
        (l.call_release, offset_of!(Call, release)),
        (l.call_allocator, offset_of!(Call, allocator)),
        (l.call_parallel_for, offset_of!(Call, parallel_for)),
        (l.call_parallel_self, offset_of!(Call, parallel_self)),
        (l.call_packed, offset_of!(Call, packed)),
        (l.call_n_packed, offset_of!(Call, n_packed)),
        (l.call_code, offset_of!(Call, code)),
        (l.call_constraint, offset_of!(Call, constraint)),
        (l.call_wanted, offset_of!(Call, wanted)),
        (l.call_got, offset_of!(Call, got)),
        (l.call_message, offset_of!(Call, message)),
        (l.call_weights, offset_of!(Call, weights)),
        (l.call_weights_size, offset_of!(Call, weights_size)),
        (l.call_size as i64, size_of::<Call>()),
    ];
    for (i, (ir, rt)) in tensor.into_iter().chain(call).enumerate() {
        assert_eq!(ir, rt as i64, "field {i}");
    }
    assert_eq!(abi::MESSAGE_BYTES as usize, MESSAGE_BYTES);
}

#[test]
fn codes() {
    let pairs = [
        (ir::OK, code::OK),
        (ir::NULL, code::NULL),
        (ir::DTYPE, code::DTYPE),
        (ir::RANK, code::RANK),
        (ir::DIM, code::DIM),
        (ir::STRIDES, code::STRIDES),
        (ir::ALIGN, code::ALIGN),
        (ir::WORKSPACE, code::WORKSPACE),
        (ir::CHECK, code::CHECK),
        (ir::ASSERT, code::ASSERT),
        (ir::MEMORY, code::MEMORY),
        (ir::CALL, code::CALL),
        (ir::PACKED, code::PACKED),
        (ir::PACKED_FAILED, code::PACKED_FAILED),
        (ir::TYPE, code::TYPE),
        (ir::DEVICE, code::DEVICE),
    ];
    for (ir, rt) in pairs {
        assert_eq!(ir, rt as i64);
    }
}

fn message(code: i32, wanted: i64, got: i64, what: &std::ffi::CStr) -> String {
    let mut call = Call::new();
    // SAFETY: a valid record and a NUL-terminated text.
    let rc = unsafe { relax_rt_fail(&mut call, code, 7, wanted, got, what.as_ptr()) };
    assert_eq!((rc, call.code, call.constraint, call.wanted, call.got), (code, code, 7, wanted, got));
    let end = call.message.iter().position(|b| *b == 0).expect("terminated");
    String::from_utf8(call.message[..end].to_vec()).expect("text")
}

#[test]
fn messages() {
    assert_eq!(message(code::DIM, 16, -3, c"x.shape[1]"), "x.shape[1]: wanted 16, got -3");
    assert_eq!(message(code::DIM, i64::MIN, i64::MAX, c""), ": wanted -9223372036854775808, got 9223372036854775807");
    assert_eq!(message(code::DTYPE, 0x12002, 0x14000, c"x"), "x: wanted float32, got int64");
    assert_eq!(message(code::DTYPE, 0x10806, 0x41004, c"x"), "x: wanted bool, got bfloat16x4");
    assert_eq!(message(code::CHECK, 0, 0, c"n is even"), "n is even");
    assert_eq!(message(code::NULL, 0, 0, c"x"), "x: wanted a pointer, got null");
    let long = std::ffi::CString::new(vec![b'a'; 1000]).expect("no NUL");
    assert_eq!(message(code::DIM, 1, 2, &long).len(), MESSAGE_BYTES - 1);
    // SAFETY: a null record is allowed.
    assert_eq!(unsafe { relax_rt_fail(std::ptr::null_mut(), code::DIM, 0, 0, 0, std::ptr::null()) }, code::DIM);
}
