//! Packed functions in Rust: closures over constants, behind the C signature.

use super::Counted;
use relax_ir::{Constant, DType};
use relax_rt::make::{relax_rt_tensor, relax_rt_tuple};
use relax_rt::value::tag;
use relax_rt::{Call, DLDataType, DLTensor, Value};
use std::ffi::{c_void, CStr, CString};

/// What a packed function leaves.
pub enum Reply {
    Nothing,
    /// The result.
    Tensor(Constant),
    /// The result: a tuple of tensors.
    Tuple(Vec<Constant>),
    /// The elements of the last argument (destination-passing style).
    Last(Constant),
}

type Body = Box<dyn Fn(&[Constant]) -> Result<Reply, i32> + Send + Sync>;

/// A function that a model calls by name. Tensors come as they are, shapes as int64 vectors, scalars as 0-d tensors,
/// strings as their bytes; other values as empty vectors.
pub struct PackedFunction {
    pub(super) name: CString,
    body: Body,
    memory: Counted,
}

impl PackedFunction {
    /// `body` returns an error code of its own, or what it leaves.
    pub fn new(name: &str, body: impl Fn(&[Constant]) -> Result<Reply, i32> + Send + Sync + 'static) -> PackedFunction {
        let name = CString::new(name).unwrap_or_default();
        PackedFunction { name, body: Box::new(body), memory: Counted::default() }
    }

    /// Blocks of its results that the model did not give back.
    pub fn live(&self) -> i64 {
        self.memory.live()
    }
}

/// # Safety
/// As for `relax_rt::abi::PackedFn`; `own` is a [`PackedFunction`].
pub(super) unsafe extern "C" fn call(own: *mut c_void, args: *const Value, n: i32, result: *mut Value) -> i32 {
    // SAFETY: the model passes `n` valid values and a writable result.
    unsafe {
        let f = &*own.cast::<PackedFunction>();
        let args: &[Value] = if n > 0 { std::slice::from_raw_parts(args, n as usize) } else { &[] };
        let constants: Vec<Constant> = args.iter().map(|v| constant(v)).collect();
        match (f.body)(&constants) {
            Err(code) => code,
            Ok(Reply::Nothing) => 0,
            Ok(Reply::Tensor(c)) => tensor(f, &c, result),
            Ok(Reply::Tuple(list)) => {
                let mut fields = vec![Value::NULL; list.len()];
                for (c, to) in list.iter().zip(&mut fields) {
                    if tensor(f, c, to) != 0 {
                        return 1;
                    }
                }
                let mut record = Call::new();
                f.memory.lend(&mut record);
                let count = fields.len() as i64;
                relax_rt_tuple(&mut record, std::ptr::null_mut(), count, fields.as_mut_ptr(), result)
            }
            Ok(Reply::Last(c)) => {
                let Some(last) = args.last().filter(|v| v.tag == tag::TENSOR) else { return 1 };
                let t = &*last.payload.tensor;
                if bytes_of(t) != c.bytes().len() {
                    return 1;
                }
                let to = t.data.cast::<u8>().add(t.byte_offset as usize);
                std::ptr::copy_nonoverlapping(c.bytes().as_ptr(), to, c.bytes().len());
                0
            }
        }
    }
}

/// # Safety
/// The tensor has `ndim` dims.
unsafe fn bytes_of(t: &DLTensor) -> usize {
    // SAFETY: granted by the caller.
    let count: i64 = (0..t.ndim as usize).map(|i| unsafe { *t.shape.add(i) }).product();
    count as usize * (t.dtype.bits as usize / 8).max(1)
}

/// # Safety
/// `v` is valid.
unsafe fn constant(v: &Value) -> Constant {
    // SAFETY: the tag says which member is valid; counts bound what is read.
    unsafe {
        match v.tag {
            tag::TENSOR => {
                let t = &*v.payload.tensor;
                let dtype = DType::from_dlpack(t.dtype.code, t.dtype.bits).unwrap_or(DType::U8);
                let shape: Vec<i64> = (0..t.ndim as usize).map(|i| *t.shape.add(i)).collect();
                let bytes = bytes_of(t);
                let data = if bytes == 0 {
                    vec![]
                } else {
                    std::slice::from_raw_parts(t.data.cast::<u8>().add(t.byte_offset as usize), bytes).to_vec()
                };
                Constant::new(dtype, shape, data)
            }
            tag::INT => Constant::scalar_i64(DType::I64, v.payload.int),
            tag::BOOL => Constant::scalar_i64(DType::BOOL, v.payload.int),
            tag::FLOAT => Constant::scalar_f64(DType::F64, v.payload.float),
            tag::SHAPE => {
                let count = (*v.payload.shape).count as usize;
                let values = v.payload.shape.add(1).cast::<i64>();
                let data = (0..count).flat_map(|i| (*values.add(i)).to_le_bytes()).collect();
                Constant::new(DType::I64, vec![count as i64], data)
            }
            tag::STR => {
                let text = CStr::from_ptr(v.payload.str).to_bytes().to_vec();
                Constant::new(DType::U8, vec![text.len() as i64], text)
            }
            _ => Constant::new(DType::U8, vec![0], vec![]),
        }
    }
}

/// # Safety
/// `result` is writable.
unsafe fn tensor(f: &PackedFunction, c: &Constant, result: *mut Value) -> i32 {
    let (code, bits) = c.dtype.stored().dlpack();
    let dtype = DLDataType { code, bits, lanes: 1 };
    let mut record = Call::new();
    f.memory.lend(&mut record);
    // SAFETY: the new tensor has room for as many elements as the constant has.
    unsafe {
        let null = std::ptr::null_mut();
        let rc = relax_rt_tensor(&mut record, null, dtype, c.shape.len() as i32, c.shape.as_ptr(), result);
        if rc == 0 {
            let t = &*(*result).payload.tensor;
            std::ptr::copy_nonoverlapping(c.bytes().as_ptr(), t.data.cast::<u8>(), c.bytes().len());
        }
        rc
    }
}
