//! The function that checks one `DLTensor` against a dtype and a rank; every entry calls it per tensor.

use super::build::{address_of, local_callee, Builder, Pool};
use relax_ir::abi::AbiLayout;
use relax_ir::flat::{Callee, FlatFunc, Linkage};
use relax_ir::op::MOST_BYTES;
use relax_ir::program::code;
use relax_ir::{DType, PrimExpr, Var};

/// DLPack's type of the CPU's memory.
const DEVICE_CPU: i32 = 1;

/// `int32_t P__check_tensor(const DLTensor *t, P_call *call, const char *what, int32_t dtype, int32_t ndim, int32_t number)`:
/// null pointers, device, dtype (-1: any), rank (-1: any), negative dims, density (strides), alignment of the data to the
/// element.
pub fn callee(prefix: &str) -> Callee {
    let p = vec![DType::HANDLE, DType::HANDLE, DType::HANDLE, DType::I32, DType::I32, DType::I32];
    local_callee(&format!("{prefix}__check_tensor"), p, Some(DType::I32))
}

/// DLPack's dtype as a word: code, bits, lanes from the lowest byte on, as little-endian machines have it in memory.
pub fn dtype_word(d: DType) -> i32 {
    let (code, bits) = d.stored().dlpack();
    code as i32 | (bits as i32) << 8 | (d.lanes as i32) << 16
}

pub fn function(pool: &mut Pool, prefix: &str, abi: AbiLayout) -> FlatFunc {
    let t = Var::new("t", DType::HANDLE);
    let call = Var::new("call", DType::HANDLE);
    let what = Var::new("what", DType::HANDLE);
    let dtype = Var::new("dtype", DType::I32);
    let ndim = Var::new("ndim", DType::I32);
    let number = Var::new("number", DType::I32);
    let mut b = Builder::new(pool, abi, call.expr());
    let what_expr = what.expr();
    let zero = PrimExpr::i64(0);
    let fail = |b: &mut Builder, cond: PrimExpr, code: i64, wanted: PrimExpr, got: PrimExpr| {
        let what = what_expr.clone();
        b.if_then(cond, |b| {
            let (code, number) = (PrimExpr::i32(code as i32), number.expr());
            let args = vec![b.call.clone(), code, number, wanted.clone(), got.clone(), what];
            let rc = b.call(super::build::fail_callee(), args);
            b.ret(rc);
        });
    };
    let is_null = |p: &PrimExpr| address_of(p.clone()).eq(PrimExpr::i64(0));

    let tensor = t.expr();
    fail(&mut b, is_null(&tensor), code::NULL, zero.clone(), zero.clone());
    let got = b.load("device", &tensor, abi.tensor_device, DType::I32);
    let elsewhere = got.clone().ne(PrimExpr::i32(DEVICE_CPU));
    fail(&mut b, elsewhere, code::DEVICE, PrimExpr::i64(DEVICE_CPU as i64), got.cast(DType::I64));
    let got = b.load_dtype(&tensor);
    let differ = got.clone().ne(dtype.expr()).and(dtype.expr().ge(PrimExpr::i32(0)));
    let element = b.bind("element", got.clone());
    fail(&mut b, differ, code::DTYPE, dtype.expr().cast(DType::I64), got.cast(DType::I64));
    let got = b.load("got_ndim", &tensor, abi.tensor_ndim, DType::I32);
    let differ = got.clone().ne(ndim.expr()).and(ndim.expr().ge(PrimExpr::i32(0)));
    fail(&mut b, differ, code::RANK, ndim.expr().cast(DType::I64), got.clone().cast(DType::I64));
    let rank = b.bind("rank", got.cast(DType::I64));
    let shape = b.load("shape", &tensor, abi.tensor_shape, DType::HANDLE);
    let missing = rank.clone().gt(zero.clone()).and(is_null(&shape));
    fail(&mut b, missing, code::NULL, zero.clone(), zero.clone());

    // The number of elements, then the strides against the dense row-major ones.
    let count = b.local("count", PrimExpr::i64(1));
    b.for_range("i", rank.clone(), |b, i| {
        let d = b.bind("d", PrimExpr::load_ptr(shape.clone(), i, DType::I64));
        fail(b, d.clone().lt(PrimExpr::i64(0)), code::DIM, PrimExpr::i64(0), d.clone());
        // More elements than any memory has: the product must not leave 64 bits.
        let most = PrimExpr::i64(MOST_BYTES);
        b.if_then(d.clone().gt(PrimExpr::i64(1 << 14)), |b| {
            let beyond = count.expr().gt(most.clone().floor_div(d.clone()));
            fail(b, beyond, code::DIM, most.clone(), d.clone());
        });
        let product = count.expr() * d.clone();
        b.assign(&count, product);
        fail(b, count.expr().gt(most.clone()), code::DIM, most, d);
    });
    let strides = b.load("strides", &tensor, abi.tensor_strides, DType::HANDLE);
    let given = is_null(&strides).not().and(count.expr().gt(PrimExpr::i64(1)));
    b.if_then(given, |b| {
        let dense = b.local("dense", PrimExpr::i64(1));
        b.for_range("j", rank.clone(), |b, j| {
            let axis = b.bind("axis", rank.clone() - PrimExpr::i64(1) - j);
            let d = b.bind("d", PrimExpr::load_ptr(shape.clone(), axis.clone(), DType::I64));
            let s = b.bind("s", PrimExpr::load_ptr(strides.clone(), axis, DType::I64));
            let wrong = d.clone().ne(PrimExpr::i64(1)).and(s.clone().ne(dense.expr()));
            fail(b, wrong, code::STRIDES, dense.expr(), s);
            let next = dense.expr() * d;
            b.assign(&dense, next);
        });
    });
    let data = b.load("data", &tensor, abi.tensor_data, DType::HANDLE);
    let missing = count.expr().ne(PrimExpr::i64(0)).and(is_null(&data));
    fail(&mut b, missing, code::NULL, zero.clone(), zero);
    // Natural alignment of the element; the bits of the dtype word say its size.
    let offset = b.load("byte_offset", &tensor, abi.tensor_byte_offset, DType::I64);
    let bits = PrimExpr::binary(
        relax_ir::prim::BinOp::BitAnd,
        PrimExpr::binary(relax_ir::prim::BinOp::Shr, element, PrimExpr::i32(8)),
        PrimExpr::i32(255),
    );
    let bytes = b.bind("bytes", PrimExpr::binary(relax_ir::prim::BinOp::Shr, bits, PrimExpr::i32(3)).cast(DType::I64));
    let start = b.bind("start", address_of(data) + offset);
    let off = PrimExpr::binary(relax_ir::prim::BinOp::BitAnd, start, bytes.clone() - PrimExpr::i64(1));
    let off = b.bind("off", off);
    let wrong = count.expr().ne(PrimExpr::i64(0)).and(off.clone().ne(PrimExpr::i64(0)));
    fail(&mut b, wrong, code::ALIGN, bytes, off);
    b.ret(PrimExpr::i32(0));
    b.finish(
        format!("{prefix}__check_tensor"),
        vec![t, call, what, dtype, ndim, number.clone()],
        Some(DType::I32),
        Linkage::Local,
    )
}

/// A value of the entry as its check knows it: what it is called, and the number
/// ([`relax_ir::program::value_check`]).
#[derive(Clone, Copy)]
pub struct Checked<'a> {
    pub what: &'a str,
    pub number: i32,
}

/// Checks `tensor`; returns from the function under construction when it is not as wanted. `None`: any.
pub fn check(
    b: &mut Builder,
    prefix: &str,
    tensor: &PrimExpr,
    of: Checked,
    dtype: impl Into<Option<DType>>,
    ndim: impl Into<Option<usize>>,
) {
    if b.pool.leaves_out(code::NULL) {
        return;
    }
    let what = b.text(of.what);
    let args = vec![
        tensor.clone(),
        b.call.clone(),
        what,
        PrimExpr::i32(dtype.into().map_or(-1, dtype_word)),
        PrimExpr::i32(ndim.into().map_or(-1, |n| n as i32)),
        PrimExpr::i32(of.number),
    ];
    let rc = b.call(callee(prefix), args);
    b.return_if_failed(rc);
}
