//! Values: made, shared, matched, called and dropped, with every byte given back.

use relax_rt::abi::{DLDataType, Packed};
use relax_rt::arena::{relax_rt_arena, Arena};
use relax_rt::check::{relax_rt_field, relax_rt_match, Found, Pattern, ANY};
use relax_rt::fail::code;
use relax_rt::make::*;
use relax_rt::packed::*;
use relax_rt::value::{relax_rt_drop, relax_rt_retain, tag, Value};
use relax_rt::Call;
use std::alloc::Layout;
use std::ffi::c_void;
use std::ptr::{null, null_mut};

const F32: DLDataType = DLDataType { code: 2, bits: 32, lanes: 1 };
const ANY_TYPE: DLDataType = DLDataType { code: 0, bits: 0, lanes: 0 };

/// Bytes in use, and how many more allocations succeed.
struct Heap {
    used: usize,
    left: usize,
}

unsafe extern "C" fn allocate(heap: *mut c_void, bytes: usize, align: usize) -> *mut c_void {
    // SAFETY: the tests pass a heap; sizes are above zero.
    unsafe {
        let heap = &mut *heap.cast::<Heap>();
        if heap.left == 0 {
            return null_mut();
        }
        heap.left -= 1;
        heap.used += bytes;
        std::alloc::alloc(Layout::from_size_align(bytes, align).expect("layout")).cast()
    }
}

unsafe extern "C" fn release(heap: *mut c_void, pointer: *mut c_void, bytes: usize) {
    // SAFETY: from `allocate`, with the alignment of all boxes.
    unsafe {
        (*heap.cast::<Heap>()).used -= bytes;
        std::alloc::dealloc(pointer.cast(), Layout::from_size_align(bytes, 64).expect("layout"));
    }
}

fn call(heap: &mut Heap) -> Call {
    let mut call = Call::new();
    call.allocator = (&raw mut *heap).cast();
    call.allocate = Some(allocate);
    call.release = Some(release);
    call
}

fn message(call: &Call) -> &str {
    std::ffi::CStr::from_bytes_until_nul(&call.message).expect("terminated").to_str().expect("text")
}

#[test]
fn rows_behind_rows() {
    let mut heap = Heap { used: 0, left: usize::MAX };
    let mut call = call(&mut heap);
    let call = &raw mut call;
    // SAFETY: all pointers are to locals that live long enough; every append is followed by writes to its rows.
    unsafe {
        let mut all = Value::NULL;
        assert_eq!(relax_rt_tensor(call, null_mut(), F32, 2, [1i64, 3].as_ptr(), &mut all), code::OK);
        let row = |v: &Value, i: usize| (*v.payload.tensor).data.cast::<f32>().add(3 * i);
        std::slice::from_raw_parts_mut(row(&all, 0), 3).fill(0.5);
        let (mut boxes, limit) = (1, 100);
        for i in 1..limit {
            let mut longer = Value::NULL;
            assert_eq!(relax_rt_append(call, &all, (i > 1) as i32, 1, 12, &mut longer), code::OK);
            std::slice::from_raw_parts_mut(row(&longer, i), 3).fill(i as f32 + 0.5);
            boxes += (longer.payload.tensor != all.payload.tensor) as i32;
            relax_rt_drop(&mut all);
            all = longer;
            assert_eq!(*(*all.payload.tensor).shape, i as i64 + 1);
        }
        // It doubles.
        assert!(boxes <= 9, "{boxes}");
        assert!((0..limit).all(|i| *row(&all, i) == i as f32 + 0.5 && *row(&all, i).add(2) == i as f32 + 0.5));
        // Another owner, or a caller that keeps it: a tensor of its own.
        for (owners, again) in [(2, 1), (1, 0)] {
            if owners == 2 {
                relax_rt_retain(&all);
            }
            let mut longer = Value::NULL;
            assert_eq!(relax_rt_append(call, &all, again, 2, 24, &mut longer), code::OK);
            assert_ne!(longer.payload.tensor, all.payload.tensor);
            assert_eq!((*(*all.payload.tensor).shape, *(*longer.payload.tensor).shape), (100, 102));
            relax_rt_drop(&mut longer);
            if owners == 2 {
                relax_rt_drop(&mut { all });
            }
        }
        // Nothing is left of one that there is no memory for.
        heap.left = 0;
        let mut longer = Value::NULL;
        assert_eq!(relax_rt_append(call, &all, 0, 1, 12, &mut longer), code::MEMORY);
        assert_eq!((longer.tag, *(*all.payload.tensor).shape), (tag::NULL, 100));
        assert_eq!(relax_rt_append(call, &all, 0, i64::MAX, i64::MAX, &mut longer), code::MEMORY);
        relax_rt_drop(&mut all);
    }
    assert_eq!(heap.used, 0);
}

#[test]
fn tensors_and_tuples() {
    let mut heap = Heap { used: 0, left: usize::MAX };
    let mut call = call(&mut heap);
    let call = &raw mut call;
    // SAFETY: all pointers are to locals that live long enough.
    unsafe {
        let (mut t, mut s, mut pair, mut outer) = (Value::NULL, Value::NULL, Value::NULL, Value::NULL);
        assert_eq!(relax_rt_tensor(call, null_mut(), F32, 2, [3i64, 5].as_ptr(), &mut t), code::OK);
        let tensor = &*t.payload.tensor;
        assert_eq!((tensor.data as usize % 64, *tensor.shape.add(1)), (0, 5));
        std::slice::from_raw_parts_mut(tensor.data.cast::<f32>(), 15).fill(1.5);
        assert_eq!(relax_rt_shape(call, null_mut(), 2, [7i64, 8].as_ptr(), &mut s), code::OK);
        let mut fields = [t, s];
        assert_eq!(relax_rt_tuple(call, null_mut(), 2, fields.as_mut_ptr(), &mut pair), code::OK);
        // The same tuple twice, and a plain number.
        relax_rt_retain(&pair);
        let mut fields = [pair, pair, Value::int(4)];
        assert_eq!(relax_rt_tuple(call, null_mut(), 3, fields.as_mut_ptr(), &mut outer), code::OK);

        let pattern = |tag, count, dtype, fields: &[Pattern]| Pattern {
            tag,
            count,
            dtype,
            reserved: 0,
            fields: if fields.is_empty() { null() } else { fields.as_ptr() },
        };
        let leaves = |ndim, dtype| [pattern(tag::TENSOR, ndim, dtype, &[]), pattern(tag::SHAPE, 2, ANY_TYPE, &[])];
        let good = leaves(2, F32);
        let open = leaves(-1, ANY_TYPE);
        let list = [
            pattern(tag::TUPLE, 2, ANY_TYPE, &good),
            pattern(tag::TUPLE, 2, ANY_TYPE, &open),
            pattern(ANY, -1, ANY_TYPE, &[]),
        ];
        let whole = pattern(tag::TUPLE, 3, ANY_TYPE, &list);
        let mut dims = [0i64; 8];
        let mut found_leaves = [Value::NULL; 8];
        let mut found = Found { dims: dims.as_mut_ptr(), leaves: found_leaves.as_mut_ptr() };
        assert_eq!(relax_rt_match(call, &outer, &whole, &mut found, 3, c"v".as_ptr()), code::OK);
        assert_eq!(dims, [3, 5, 7, 8, 7, 8, 0, 0]);
        assert_eq!(found.leaves.offset_from(found_leaves.as_ptr()), 5);
        assert_eq!((found_leaves[4].tag, found_leaves[4].payload.int, found_leaves[0].owned), (tag::INT, 4, 0));

        for (bad, wanted, text) in [
            (pattern(tag::TENSOR, 2, F32, &[]), code::TYPE, "v: wanted 8, got 10"),
            (pattern(tag::TUPLE, 2, F32, &list), code::TYPE, "v: wanted 2, got 3"),
            (
                pattern(tag::TUPLE, 3, F32, &[pattern(tag::TUPLE, 2, ANY_TYPE, &leaves(3, F32))]),
                code::RANK,
                "v: wanted 3, got 2",
            ),
            (
                pattern(
                    tag::TUPLE,
                    3,
                    F32,
                    &[pattern(tag::TUPLE, 2, ANY_TYPE, &leaves(2, DLDataType { code: 6, bits: 8, lanes: 1 }))],
                ),
                code::DTYPE,
                "v: wanted bool, got float32",
            ),
        ] {
            let mut found = Found { dims: dims.as_mut_ptr(), leaves: found_leaves.as_mut_ptr() };
            assert_eq!(relax_rt_match(call, &outer, &bad, &mut found, 3, c"v".as_ptr()), wanted);
            assert_eq!((message(&*call), (*call).constraint), (text, 3));
        }

        let mut field = Value::NULL;
        assert_eq!(relax_rt_field(call, &outer, 2, &mut field), code::OK);
        assert_eq!(field.payload.int, 4);
        assert_eq!(relax_rt_field(call, &outer, 3, &mut field), code::TYPE);
        assert_eq!(relax_rt_field(call, &Value::int(1), 0, &mut field), code::TYPE);

        assert!(heap.used > 0);
        relax_rt_drop(&mut outer);
        assert_eq!((outer.tag, heap.used), (tag::NULL, 0));
    }
}

#[test]
fn long_lists_need_no_stack() {
    let mut heap = Heap { used: 0, left: usize::MAX };
    let mut call = call(&mut heap);
    let mut list = Value::NULL;
    // SAFETY: all pointers are to locals that live long enough.
    unsafe {
        for i in 0..1_000_000 {
            let mut fields = [Value::int(i), list];
            assert_eq!(relax_rt_tuple(&mut call, null_mut(), 2, fields.as_mut_ptr(), &mut list), code::OK);
        }
        relax_rt_drop(&mut list);
    }
    assert_eq!(heap.used, 0);
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the tests pass a counter.
    unsafe { *data.cast::<i32>() += 1 };
}

#[test]
fn failures_leak_nothing() {
    let mut destroyed = 0i32;
    for left in 0..3 {
        let mut heap = Heap { used: 0, left };
        let mut call = call(&mut heap);
        let call = &raw mut call;
        // SAFETY: all pointers are to locals that live long enough.
        unsafe {
            let (mut object, mut text, mut pair) = (Value::NULL, Value::NULL, Value::NULL);
            let data = (&raw mut destroyed).cast();
            let a = relax_rt_object(call, null_mut(), c"counter".as_ptr(), data, Some(count), &mut object);
            let b = relax_rt_str(call, null_mut(), 3, c"abc".as_ptr().cast(), &mut text);
            let mut fields = [object, text];
            let c = relax_rt_tuple(call, null_mut(), 2, fields.as_mut_ptr(), &mut pair);
            let results = [a, b, c].map(|rc| rc == code::OK);
            assert_eq!(results, [left > 0, left > 1, left > 2]);
            assert!(message(&*call).contains("no memory for"));
            assert_eq!((pair.tag, heap.used, destroyed), (tag::NULL, 0, left as i32 + 1));
        }
    }
    let mut heap = Heap { used: 0, left: 9 };
    let mut call = call(&mut heap);
    let mut out = Value::NULL;
    // SAFETY: as above.
    unsafe {
        let huge = [i64::MAX, 2];
        assert_eq!(relax_rt_tensor(&mut call, null_mut(), F32, 2, huge.as_ptr(), &mut out), code::MEMORY);
        assert_eq!(relax_rt_tensor(&mut call, null_mut(), F32, 1, [-1i64].as_ptr(), &mut out), code::MEMORY);
        assert_eq!(relax_rt_shape(&mut call, null_mut(), -1, null(), &mut out), code::MEMORY);
        assert_eq!(relax_rt_shape(null_mut(), null_mut(), 1, null(), &mut out), code::MEMORY);
        assert_eq!(relax_rt_shape(&mut Call::new(), null_mut(), 1, null(), &mut out), code::MEMORY);
    }
    assert_eq!(heap.left, 9);
}

#[test]
fn arena() {
    let mut memory = vec![0u8; 1000];
    let mut arena = Arena { next: null_mut(), end: null_mut() };
    // SAFETY: the arena lies over `memory`, which outlives the values.
    unsafe {
        relax_rt_arena(&mut arena, memory.as_mut_ptr().cast(), memory.len());
        let mut made = 0;
        let mut values = vec![];
        loop {
            let mut v = Value::NULL;
            if relax_rt_shape(null_mut(), &mut arena, 3, [1i64, 2, 3].as_ptr(), &mut v) != code::OK {
                break;
            }
            assert_eq!((*v.payload.shape).count, 3);
            values.push(v);
            made += 1;
        }
        assert!((7..=8).contains(&made), "{made}");
        values.iter_mut().for_each(|v| relax_rt_drop(v));
    }
}

unsafe extern "C" fn add(own: *mut c_void, args: *const Value, n: i32, result: *mut Value) -> i32 {
    // SAFETY: called with integers below.
    unsafe {
        let base = *own.cast::<i64>();
        if n != 2 {
            return 40 + n;
        }
        *result = Value::int(base + (*args).payload.int + (*args.add(1)).payload.int);
    }
    0
}

unsafe extern "C" fn scaled(call: *mut Call, captured: *const Value, args: *const Value, n: i32, r: *mut Value) -> i32 {
    // SAFETY: captured and called with integers below.
    unsafe {
        assert!(!call.is_null() && n == 1);
        *r = Value::int((*captured).payload.int * (*args).payload.int);
    }
    0
}

#[test]
fn calls() {
    let mut base = 100i64;
    let table = [
        Packed { name: c"other".as_ptr(), function: None, own: null_mut() },
        Packed { name: c"test.add".as_ptr(), function: Some(add), own: (&raw mut base).cast() },
    ];
    let mut heap = Heap { used: 0, left: 9 };
    let mut call = call(&mut heap);
    (call.packed, call.n_packed) = (table.as_ptr(), table.len());
    let args = [Value::int(1), Value::int(2)];
    let mut r = Value::NULL;
    // SAFETY: all pointers are to locals that live long enough.
    unsafe {
        assert_eq!(relax_rt_call_packed(&mut call, c"test.add".as_ptr(), args.as_ptr(), 2, &mut r), code::OK);
        assert_eq!(r.payload.int, 103);
        let rc = relax_rt_call_packed(&mut call, c"test.add".as_ptr(), args.as_ptr(), 1, &mut r);
        assert_eq!((rc, message(&call)), (code::PACKED_FAILED, "test.add: returned 41"));
        for name in [c"test.ad", c"other"] {
            assert_eq!(relax_rt_call_packed(&mut call, name.as_ptr(), args.as_ptr(), 2, &mut r), code::PACKED);
        }
        assert_eq!(relax_rt_call_packed(null_mut(), c"x".as_ptr(), args.as_ptr(), 2, &mut r), code::PACKED);

        let mut closure = Value::NULL;
        let mut captured = [Value::int(6)];
        assert_eq!(
            relax_rt_closure(&mut call, null_mut(), scaled, null(), 1, captured.as_mut_ptr(), &mut closure),
            code::OK
        );
        assert_eq!(relax_rt_invoke(&mut call, &closure, [Value::int(7)].as_ptr(), 1, &mut r), code::OK);
        assert_eq!(r.payload.int, 42);
        assert_eq!(relax_rt_invoke(&mut call, &args[0], args.as_ptr(), 1, &mut r), code::TYPE);
        relax_rt_drop(&mut closure);
    }
    assert_eq!(heap.used, 0);
}
