//! Values without static structure: a tag and a payload of eight bytes.
//!
//! What a payload points to is a plain C struct ([`DLTensor`], [`Shape`], [`Tuple`], ...). A *borrowed* value points
//! to memory of someone else, valid for the call. An *owned* one points into a reference-counted box: a hidden
//! header lies before the struct, so that both kinds read alike. Boxes come from an arena or from the allocator of
//! the call and remember how to go back.
//!
//! Dropping never recurses: boxes whose count reaches zero queue through their own headers, so a list of a million
//! cells needs no stack.

use crate::abi::{Call, DLTensor, Release};
use crate::arena::{take, Arena};
use core::ffi::{c_char, c_void};
use core::ptr::null_mut;
#[cfg(target_has_atomic = "ptr")]
use core::sync::atomic::{fence, AtomicUsize, Ordering};

/// `RELAX_VALUE_...` of the C header.
pub mod tag {
    pub const NULL: u32 = 0;
    pub const INT: u32 = 1;
    pub const FLOAT: u32 = 2;
    /// 0 or 1 in `int`.
    pub const BOOL: u32 = 3;
    pub const TENSOR: u32 = 8;
    pub const SHAPE: u32 = 9;
    pub const TUPLE: u32 = 10;
    pub const CLOSURE: u32 = 11;
    pub const OBJECT: u32 = 12;
    pub const STR: u32 = 13;
}

/// The tag in the header of a tensor over the memory of another value; that one lies behind the `DLTensor`.
pub(crate) const VIEW: u32 = 0x100;

/// A tagged value. Copying the bits of an owned value does not count: see [`relax_rt_retain`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value {
    pub tag: u32,
    /// Not 0: the payload is counted.
    pub owned: u32,
    pub payload: Payload,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union Payload {
    pub int: i64,
    pub float: f64,
    pub tensor: *mut DLTensor,
    pub shape: *const Shape,
    pub tuple: *const Tuple,
    pub closure: *const Closure,
    pub object: *const Object,
    pub str: *const c_char,
    pub pointer: *mut c_void,
}

/// Followed by `count` values of type `i64`.
#[repr(C)]
pub struct Shape {
    pub count: i64,
}

/// Followed by `count` fields of type [`Value`].
#[repr(C)]
pub struct Tuple {
    pub count: i64,
}

/// The code of a closure: `captured` are its own values, `result` is owned by the caller afterwards.
pub type ClosureFn = unsafe extern "C" fn(
    call: *mut Call,
    captured: *const Value,
    args: *const Value,
    n: i32,
    result: *mut Value,
) -> i32;

/// Followed by `count` captured values.
#[repr(C)]
pub struct Closure {
    pub code: ClosureFn,
    pub count: i64,
    /// What the function says of itself ([`crate::signature`]); null for a packed function.
    pub signature: *const i64,
}

/// Something of the caller's.
#[repr(C)]
pub struct Object {
    /// NUL-terminated, static.
    pub kind: *const c_char,
    pub data: *mut c_void,
    /// Called once with `data`, when the last owner is gone.
    pub destroy: Option<unsafe extern "C" fn(data: *mut c_void)>,
}

impl Value {
    pub const NULL: Value = Value { tag: tag::NULL, owned: 0, payload: Payload { int: 0 } };

    pub const fn int(v: i64) -> Value {
        Value { tag: tag::INT, owned: 0, payload: Payload { int: v } }
    }
    pub const fn float(v: f64) -> Value {
        Value { tag: tag::FLOAT, owned: 0, payload: Payload { float: v } }
    }
    pub const fn bool(v: bool) -> Value {
        Value { tag: tag::BOOL, owned: 0, payload: Payload { int: v as i64 } }
    }
    /// A tensor of someone else.
    pub const fn borrowed(tensor: *mut DLTensor) -> Value {
        Value { tag: tag::TENSOR, owned: 0, payload: Payload { tensor } }
    }
    const fn boxed(tag: u32, pointer: *mut c_void) -> Value {
        Value { tag, owned: 1, payload: Payload { pointer } }
    }
}

/// The number of owners.
#[repr(transparent)]
struct Count {
    #[cfg(target_has_atomic = "ptr")]
    n: AtomicUsize,
    #[cfg(not(target_has_atomic = "ptr"))]
    n: core::cell::Cell<usize>,
}

impl Count {
    const fn one() -> Count {
        #[cfg(target_has_atomic = "ptr")]
        return Count { n: AtomicUsize::new(1) };
        #[cfg(not(target_has_atomic = "ptr"))]
        return Count { n: core::cell::Cell::new(1) };
    }
    fn add(&self) {
        // A new owner is made from an existing one: nothing to order.
        #[cfg(target_has_atomic = "ptr")]
        self.n.fetch_add(1, Ordering::Relaxed);
        #[cfg(not(target_has_atomic = "ptr"))]
        self.n.set(self.n.get().wrapping_add(1));
    }
    /// Whether there is no other owner: who asks is one.
    fn is_one(&self) -> bool {
        // What others wrote before they gave it up happens before what the last owner does.
        #[cfg(target_has_atomic = "ptr")]
        return self.n.load(Ordering::Acquire) == 1;
        #[cfg(not(target_has_atomic = "ptr"))]
        return self.n.get() == 1;
    }
    /// Whether this was the last owner.
    fn subtract(&self) -> bool {
        #[cfg(target_has_atomic = "ptr")]
        {
            let last = self.n.fetch_sub(1, Ordering::Release) == 1;
            if last {
                // What other owners wrote happens before the release of the memory.
                fence(Ordering::Acquire);
            }
            last
        }
        #[cfg(not(target_has_atomic = "ptr"))]
        {
            self.n.set(self.n.get().wrapping_sub(1));
            self.n.get() == 0
        }
    }
}

/// Before every counted struct.
#[repr(C, align(16))]
struct Header {
    count: Count,
    tag: u32,
    /// Of the whole box.
    bytes: usize,
    release: Option<Release>,
    allocator: *mut c_void,
    /// Links boxes that wait to be dropped.
    next: *mut Header,
}

const HEADER: usize = core::mem::size_of::<Header>();
/// Alignment of boxes; tensor data starts at the multiple of 64 after its struct.
const ALIGN: usize = 64;

/// A box with `bytes` bytes of payload, or null.
///
/// # Safety
/// As for [`take`].
pub(crate) unsafe fn new_box(call: *mut Call, arena: *mut Arena, tag: u32, bytes: usize) -> *mut c_void {
    let Some(all) = bytes.checked_add(HEADER).filter(|b| *b <= isize::MAX as usize) else {
        return null_mut();
    };
    // SAFETY: granted by the caller; the block has room for the header and is aligned for it.
    unsafe {
        let block = take(call, arena, all, ALIGN);
        if block.pointer.is_null() {
            return null_mut();
        }
        let h = block.pointer.cast::<Header>();
        h.write(Header {
            count: Count::one(),
            tag,
            bytes: all,
            release: block.release,
            allocator: block.allocator,
            next: null_mut(),
        });
        h.add(1).cast()
    }
}

/// The owned value over a payload from [`new_box`].
pub(crate) const fn own(tag: u32, payload: *mut c_void) -> Value {
    Value::boxed(tag, payload)
}

/// Bytes from a box's start to the data of a tensor whose struct and dims take `bytes`.
pub(crate) const fn data_offset(bytes: usize) -> usize {
    (HEADER + bytes).next_multiple_of(ALIGN) - HEADER
}

/// Bytes of elements for which the box of a tensor has room; 0 where it has several owners, or its elements are not in
/// the box.
///
/// # Safety
/// `value` is a tensor, valid and alive.
pub(crate) unsafe fn room_of(value: &Value) -> usize {
    // SAFETY: an owned payload lies behind a header, and the box goes up to the bytes that this counts.
    unsafe {
        let t = value.payload.tensor;
        if value.owned == 0 {
            return 0;
        }
        let h = t.cast::<Header>().sub(1);
        let data = (*t).data as usize;
        let end = h as usize + (*h).bytes;
        let inside = (*h).tag == tag::TENSOR && (*t).byte_offset == 0 && data > t as usize && data < end;
        // One byte more than the elements take: see `relax_rt_tensor`.
        if inside && (*h).count.is_one() {
            end - data - 1
        } else {
            0
        }
    }
}

/// One more owner. Does nothing for borrowed values.
///
/// # Safety
/// `value` is valid and alive.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_retain(value: *const Value) {
    // SAFETY: an owned payload lies behind a header.
    unsafe {
        if (*value).owned != 0 {
            let h = (*value).payload.pointer.cast::<Header>().sub(1);
            (*h).count.add();
        }
    }
}

/// One owner less; `value` becomes null. Does nothing else for borrowed values.
///
/// # Safety
/// `value` is valid, and its owner does not use it again.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_drop(value: *mut Value) {
    // SAFETY: every box in the queue has no owner left and is reached only from here; each is freed once, after its
    // fields were given up.
    unsafe {
        let mut queue: *mut Header = null_mut();
        give_up(&*value, &mut queue);
        value.write(Value::NULL);
        while !queue.is_null() {
            let h = queue;
            queue = (*h).next;
            let payload = h.add(1);
            match (*h).tag {
                tag::TUPLE => {
                    let t = payload.cast::<Tuple>();
                    give_up_all(t.add(1).cast(), (*t).count, &mut queue);
                }
                tag::CLOSURE => {
                    let c = payload.cast::<Closure>();
                    give_up_all(c.add(1).cast(), (*c).count, &mut queue);
                }
                tag::OBJECT => {
                    let o = payload.cast::<Object>();
                    if let Some(destroy) = (*o).destroy {
                        destroy((*o).data);
                    }
                }
                VIEW => give_up(&*payload.cast::<DLTensor>().add(1).cast::<Value>(), &mut queue),
                _ => {}
            }
            if let Some(release) = (*h).release {
                release((*h).allocator, h.cast(), (*h).bytes);
            }
        }
    }
}

/// # Safety
/// As for [`relax_rt_drop`]; `values` points to `count` values.
unsafe fn give_up_all(values: *const Value, count: i64, queue: &mut *mut Header) {
    let mut i = 0;
    while i < count as isize {
        // SAFETY: within the fields.
        unsafe { give_up(&*values.offset(i), queue) };
        i += 1;
    }
}

/// # Safety
/// As for [`relax_rt_drop`].
unsafe fn give_up(value: &Value, queue: &mut *mut Header) {
    if value.owned == 0 {
        return;
    }
    // SAFETY: an owned payload lies behind a header; after the last owner nobody else reaches it.
    unsafe {
        let h = value.payload.pointer.cast::<Header>().sub(1);
        if (*h).count.subtract() {
            (*h).next = *queue;
            *queue = h;
        }
    }
}
