//! `R.print`: values on the standard output, unless the caller registered a function for it.

use crate::abi::{Call, DLTensor};
use crate::hosted::libc::{printf, putchar};
use crate::packed::{relax_rt_call_packed, relax_rt_find_packed};
use crate::value::{relax_rt_drop, tag, Value};
use core::ffi::{c_char, c_int};

/// The packed function that takes the place of printing: gets the format, then the values.
const NAME: *const c_char = c"relax.run.print".as_ptr();
/// Tensors of more elements are printed with this many at each end of an axis.
const WHOLE: i64 = 1000;
const EDGE: i64 = 3;

/// Prints `args[1..n]` through the format `args[0]`, a string whose every `{}` stands for the next value and `{{`, `}}`
/// for braces, as in Python; an empty one separates the values by blanks. A line end follows.
///
/// # Safety
/// `call` is null or valid, `args` points to `n` valid values, the first a string.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_print(call: *mut Call, args: *const Value, n: i32) -> i32 {
    // SAFETY: granted by the caller; `next` stays below `n`.
    unsafe {
        if !relax_rt_find_packed(call, NAME).is_null() {
            let mut result = Value::NULL;
            let rc = relax_rt_call_packed(call, NAME, args, n, &raw mut result);
            relax_rt_drop(&raw mut result);
            return rc;
        }
        let n = n as isize;
        let mut next = 1;
        let mut p = (*args).payload.str.cast::<u8>();
        if (*args).tag != tag::STR || *p == 0 {
            while next < n {
                if next > 1 {
                    byte(b' ');
                }
                value(&*args.offset(next));
                next += 1;
            }
        } else {
            while *p != 0 {
                if *p == b'{' && *p.add(1) == b'}' && next < n {
                    value(&*args.offset(next));
                    next += 1;
                    p = p.add(2);
                } else {
                    let brace = matches!(*p, b'{' | b'}') && *p.add(1) == *p;
                    byte(*p);
                    p = p.add(if brace { 2 } else { 1 });
                }
            }
        }
        byte(b'\n');
    }
    0
}

fn byte(b: u8) {
    // SAFETY: any value may be printed.
    unsafe { putchar(b as c_int) };
}

fn text(s: &str) {
    s.bytes().for_each(byte);
}

fn int(v: i64) {
    // SAFETY: the format matches the argument.
    unsafe { printf(c"%lld".as_ptr(), v) };
}

fn float(v: f64, digits: c_int) {
    // SAFETY: the format matches the arguments.
    unsafe { printf(c"%.*g".as_ptr(), digits, v) };
}

/// # Safety
/// `v` is valid. Recursion is as deep as tuples are nested.
unsafe fn value(v: &Value) {
    // SAFETY: the tag says which member is valid; counts bound what follows each struct.
    unsafe {
        match v.tag {
            tag::NULL => text("None"),
            tag::INT => int(v.payload.int),
            tag::FLOAT => float(v.payload.float, 9),
            tag::BOOL => text(if v.payload.int != 0 { "True" } else { "False" }),
            tag::TENSOR => {
                let t = &*v.payload.tensor;
                let mut count: i64 = 1;
                let mut i = 0;
                while i < t.ndim as isize {
                    count = count.wrapping_mul(*t.shape.offset(i));
                    i += 1;
                }
                let mut at = 0;
                tensor(t, 0, &mut at, count > WHOLE);
            }
            tag::SHAPE => {
                let s = v.payload.shape;
                text("(");
                let mut i = 0;
                while i < (*s).count as isize {
                    if i > 0 {
                        text(", ");
                    }
                    int(*s.add(1).cast::<i64>().offset(i));
                    i += 1;
                }
                text(if (*s).count == 1 { ",)" } else { ")" });
            }
            tag::TUPLE => {
                let t = v.payload.tuple;
                text("(");
                let mut i = 0;
                while i < (*t).count as isize {
                    if i > 0 {
                        text(", ");
                    }
                    value(&*t.add(1).cast::<Value>().offset(i));
                    i += 1;
                }
                text(if (*t).count == 1 { ",)" } else { ")" });
            }
            tag::CLOSURE => text("<function>"),
            tag::STR => {
                let mut p = v.payload.str.cast::<u8>();
                while *p != 0 {
                    byte(*p);
                    p = p.add(1);
                }
            }
            _ => text("<object>"),
        }
    }
}

/// The part of `t` below `axis`, whose first element has index `at`; `at` moves behind it.
///
/// # Safety
/// `t` is a dense tensor with data. Recursion is as deep as its rank.
unsafe fn tensor(t: &DLTensor, axis: i32, at: &mut i64, cut: bool) {
    // SAFETY: `axis` is below the rank, `at` below the number of elements.
    unsafe {
        if axis >= t.ndim {
            element(t, *at);
            *at += 1;
            return;
        }
        let dim = *t.shape.offset(axis as isize);
        let mut below: i64 = 1;
        let mut i = axis + 1;
        while i < t.ndim {
            below = below.wrapping_mul(*t.shape.offset(i as isize));
            i += 1;
        }
        text("[");
        let mut i = 0;
        while i < dim {
            if i > 0 {
                text(", ");
            }
            if cut && i == EDGE && dim > 2 * EDGE {
                text("..., ");
                *at += below.wrapping_mul(dim - 2 * EDGE);
                i = dim - EDGE;
            }
            tensor(t, axis + 1, at, cut);
            i += 1;
        }
        text("]");
    }
}

/// # Safety
/// `at` is the index of an element.
unsafe fn element(t: &DLTensor, at: i64) {
    let bytes = (t.dtype.bits as usize / 8).max(1);
    // SAFETY: within the data; elements may be unaligned here.
    unsafe {
        let p = t.data.cast::<u8>().add(t.byte_offset as usize).add(at as usize * bytes);
        match (t.dtype.code, t.dtype.bits) {
            (6, _) => text(if *p != 0 { "True" } else { "False" }),
            (0, 8) => int(p.cast::<i8>().read() as i64),
            (0, 16) => int(p.cast::<i16>().read_unaligned() as i64),
            (0, 32) => int(p.cast::<i32>().read_unaligned() as i64),
            (0, 64) => int(p.cast::<i64>().read_unaligned()),
            (1, 8) => int(p.read() as i64),
            (1, 16) => int(p.cast::<u16>().read_unaligned() as i64),
            (1, 32) => int(p.cast::<u32>().read_unaligned() as i64),
            (1, 64) => {
                printf(c"%llu".as_ptr(), p.cast::<u64>().read_unaligned());
            }
            (2, 16) => float(half(p.cast::<u16>().read_unaligned()), 5),
            (2, 32) => float(p.cast::<f32>().read_unaligned() as f64, 9),
            (2, 64) => float(p.cast::<f64>().read_unaligned(), 17),
            (4, 16) => float(f32::from_bits((p.cast::<u16>().read_unaligned() as u32) << 16) as f64, 4),
            _ => text("?"),
        }
    }
}

/// IEEE half precision.
fn half(bits: u16) -> f64 {
    let sign = ((bits as u32) & 0x8000) << 16;
    let exponent = (bits >> 10) & 31;
    let fraction = (bits & 1023) as u32;
    let wide = match exponent {
        0 => return if sign == 0 { 1.0 } else { -1.0 } * fraction as f64 / 16_777_216.0,
        31 => 0x7f80_0000 | fraction << 13,
        e => (e as u32 + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | wide) as f64
}
