//! Compressed pictures, by the decoders of `rt/pictures`, which are linked to models that have them.

use super::libc::free;
use crate::abi::Call;
use crate::fail::{code, relax_rt_fail};
use crate::make::relax_rt_tensor;
use crate::value::{relax_rt_retain, tag, Value};
use core::ptr::copy_nonoverlapping;

extern "C" {
    fn relax_pictures_plain(data: *const u8, len: usize, out: *mut usize) -> *mut u8;
}

/// The picture in the file `args[0]` (a vector of bytes) as a PNM file when it is compressed, else the file itself.
///
/// # Safety
/// `call` is null or valid, `args` points to `n` values, `result` is writable.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_picture(call: *mut Call, args: *const Value, n: i32, result: *mut Value) -> i32 {
    // SAFETY: the tag says that the payload is a tensor; the decoder's block has `len` bytes, the tensor's, too.
    unsafe {
        result.write(Value::NULL);
        let what = c"file of a picture".as_ptr();
        if n < 1 || (*args).tag != tag::TENSOR {
            return relax_rt_fail(call, code::TYPE, 0, tag::TENSOR as i64, 0, what);
        }
        let file = (*args).payload.tensor;
        if (*file).ndim != 1 {
            return relax_rt_fail(call, code::RANK, 0, 1, (*file).ndim as i64, what);
        }
        let bytes: *const u8 = (*file).data.cast::<u8>().add((*file).byte_offset as usize);
        let mut len = 0;
        let plain = relax_pictures_plain(bytes, *(*file).shape as usize, &mut len);
        if plain.is_null() {
            result.write(*args);
            relax_rt_retain(result);
            return code::OK;
        }
        let dims = [len as i64];
        let rc = relax_rt_tensor(call, core::ptr::null_mut(), (*file).dtype, 1, dims.as_ptr(), result);
        if rc == code::OK {
            let to = (*result).payload.tensor;
            copy_nonoverlapping(plain, (*to).data.cast::<u8>().add((*to).byte_offset as usize), len);
        }
        free(plain.cast());
        rc
    }
}
