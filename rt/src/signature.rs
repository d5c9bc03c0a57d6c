//! What functions say of themselves at run time: a MatchCast to a function type looks at this (relax_spec.md, "Values in
//! Relax" and "Evaluating MatchCast", 5).
//!
//! A signature is a list of 64-bit words, written by the compiler as read-only data; a closure points to its own, a packed
//! function has none. Each node begins with its [`kind`]:
//!
//! ```text
//! OBJECT
//! TENSOR   rank (-1: any)  dtype (0: any)  n  dim * n
//! SHAPE    count (-1: any)  n  dim * n
//! TUPLE    n  node * n
//! FUNCTION pure  n  parameter * n  result
//! PACKED
//! SCALAR   dtype  n (0 or 1)  dim * n
//! TEXT
//! KERNEL   node
//! ```
//!
//! A PrimFunc is a function and, as the packed function of its symbol, a packed one: its signature begins with `KERNEL`.
//! A dim is two words: [`dim`] and a number. Only what is certainly different is refused: what stays open is checked
//! when the function is called.

use crate::abi::{Call, MESSAGE_BYTES};
use crate::fail::{code, relax_rt_fail};
use crate::text::Text;
use crate::value::{tag, Value};
use core::ffi::c_char;

/// The first word of a node.
pub mod kind {
    pub const OBJECT: i64 = 0;
    pub const TENSOR: i64 = 1;
    pub const SHAPE: i64 = 2;
    pub const TUPLE: i64 = 3;
    pub const FUNCTION: i64 = 4;
    pub const PACKED: i64 = 5;
    pub const SCALAR: i64 = 6;
    pub const TEXT: i64 = 7;
    pub const KERNEL: i64 = 8;
}

/// The first word of a dim.
pub mod dim {
    pub const UNKNOWN: i64 = 0;
    /// The number itself.
    pub const LITERAL: i64 = 1;
    /// Of a closure: the value of a captured scalar. Of a type: an element of the array beside it.
    pub const VALUE: i64 = 2;
    /// A variable that each call of the closure binds.
    pub const OWN: i64 = 3;
}

/// Variables of a closure whose values are compared with each other; others are unknown.
pub const OWN: usize = 16;

/// A difference, and where it is.
struct Refused {
    code: i32,
    of: &'static str,
    /// Which one of these, or -1.
    index: i64,
    wanted: i64,
    got: i64,
}

/// A node of the closure's signature or of the type.
#[derive(Clone, Copy)]
struct Node {
    at: *const i64,
    closure: bool,
}

/// A step from a function to what differs.
#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    /// -1: none.
    index: i64,
}

const STEPS: usize = 4;

struct Match {
    captured: *const Value,
    dims: *const i64,
    own: [Option<i64>; OWN],
    path: [Step; STEPS],
    depth: usize,
}

/// Checks that `value` is a function whose signature does not contradict `wanted`, whose dims are in `dims`.
///
/// Fails with [`code::TYPE`], [`code::RANK`], [`code::DTYPE`] or [`code::CHECK`] under the number `constraint`; the
/// message names `what` and the place of the difference.
///
/// # Safety
/// `call` is null or valid, `value` valid, `wanted` written by the compiler, with as many `dims` as it reads, `what` null
/// or NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_match_function(
    call: *mut Call,
    value: *const Value,
    wanted: *const i64,
    dims: *const i64,
    constraint: i32,
    what: *const c_char,
) -> i32 {
    // SAFETY: granted by the caller; the tag says which member of the payload is valid.
    unsafe {
        let v = &*value;
        let mut m = Match {
            captured: core::ptr::null(),
            dims,
            own: [None; OWN],
            path: [Step { name: "", index: -1 }; STEPS],
            depth: 0,
        };
        let refused = if v.tag != tag::CLOSURE {
            let (wanted, got) = (tag::CLOSURE as i64, v.tag as i64);
            Some(Refused { code: code::TYPE, of: "kind of value", index: -1, wanted, got })
        } else {
            let closure = v.payload.closure;
            let own = (*closure).signature;
            m.captured = closure.add(1).cast();
            let packed = *wanted == kind::PACKED;
            let kernel = !own.is_null() && *own == kind::KERNEL;
            let own = if kernel { own.add(1) } else { own };
            match (own.is_null() || kernel && packed, packed) {
                (true, true) => None,
                (false, false) => m.node(Node { at: own, closure: true }, Node { at: wanted, closure: false }).err(),
                _ => {
                    let (wanted, got) = (packed as i64, !packed as i64);
                    Some(Refused { code: code::TYPE, of: "a packed function", index: -1, wanted, got })
                }
            }
        };
        match refused {
            None => code::OK,
            Some(r) => m.fail(call, &r, constraint, what),
        }
    }
}

impl Match {
    /// # Safety
    /// As for [`relax_rt_match_function`].
    unsafe fn fail(&self, call: *mut Call, r: &Refused, constraint: i32, what: *const c_char) -> i32 {
        let mut buffer = [0u8; MESSAGE_BYTES];
        // SAFETY: the buffer outlives the text and is NUL-terminated by it; the rest is granted by the caller.
        unsafe {
            let mut text = Text::new(buffer.as_mut_ptr(), MESSAGE_BYTES);
            text.c_str(what);
            for step in self.path.iter().take(self.depth) {
                text.str(", ");
                text.str(step.name);
                if step.index >= 0 {
                    text.byte(b' ');
                    text.number(step.index);
                }
            }
            text.str(", ");
            text.str(r.of);
            if r.index >= 0 {
                text.byte(b' ');
                text.number(r.index);
            }
            relax_rt_fail(call, r.code, constraint, r.wanted, r.got, buffer.as_ptr().cast())
        }
    }

    fn enter(&mut self, name: &'static str, index: i64) {
        if let Some(step) = self.path.get_mut(self.depth) {
            *step = Step { name, index };
        }
        self.depth += 1;
    }

    /// May a value of `got` stand where `want` is wanted? A parameter of a function goes the other way round.
    ///
    /// # Safety
    /// Both are nodes that the compiler wrote.
    unsafe fn node(&mut self, got: Node, want: Node) -> Result<(), Refused> {
        // SAFETY: each node has the words that its kind says.
        unsafe {
            let (g, w) = (got.word(0), want.word(0));
            if w == kind::OBJECT || g == kind::OBJECT {
                return Ok(());
            }
            if g != w {
                return Err(refused(got, code::TYPE, "kind of value", tag_of(g), tag_of(w)));
            }
            match g {
                kind::TENSOR => {
                    let (dg, dw) = (got.word(2), want.word(2));
                    if dg != 0 && dw != 0 && dg != dw {
                        return Err(refused(got, code::DTYPE, "dtype", dg, dw));
                    }
                    ranks(got, want, "number of dims")?;
                    self.dims(got.after(3), want.after(3), "dimension")
                }
                kind::SHAPE => {
                    ranks(got, want, "number of values")?;
                    self.dims(got.after(2), want.after(2), "value")
                }
                kind::SCALAR => {
                    if got.word(1) != want.word(1) {
                        return Err(refused(got, code::DTYPE, "dtype", got.word(1), want.word(1)));
                    }
                    self.dims(got.after(2), want.after(2), "value")
                }
                kind::TUPLE => {
                    let (ng, nw) = (got.word(1), want.word(1));
                    if ng != nw {
                        return Err(refused(got, code::TYPE, "number of fields", ng, nw));
                    }
                    let (mut a, mut b) = (got.after(2), want.after(2));
                    for i in 0..ng {
                        self.enter("field", i);
                        self.node(a, b)?;
                        self.depth -= 1;
                        (a, b) = (a.next(), b.next());
                    }
                    Ok(())
                }
                kind::FUNCTION => self.function(got, want),
                _ => Ok(()),
            }
        }
    }

    /// # Safety
    /// As for [`Match::node`]; both are functions.
    unsafe fn function(&mut self, got: Node, want: Node) -> Result<(), Refused> {
        // SAFETY: granted by the caller.
        unsafe {
            let (pg, pw) = (got.word(1), want.word(1));
            if pw != 0 && pg == 0 {
                return Err(refused(got, code::TYPE, "purity", pg, pw));
            }
            let (ng, nw) = (got.word(2), want.word(2));
            if ng != nw {
                return Err(refused(got, code::TYPE, "number of parameters", ng, nw));
            }
            let (mut a, mut b) = (got.after(3), want.after(3));
            for i in 0..ng {
                self.enter("parameter", i + 1);
                self.node(b, a)?;
                self.depth -= 1;
                (a, b) = (a.next(), b.next());
            }
            self.enter("result", -1);
            self.node(a, b)?;
            self.depth -= 1;
        }
        Ok(())
    }

    /// Both begin at the number of their dims.
    ///
    /// # Safety
    /// As for [`Match::node`].
    unsafe fn dims(&mut self, got: Node, want: Node, of: &'static str) -> Result<(), Refused> {
        // SAFETY: granted by the caller.
        unsafe {
            let n = got.word(0).min(want.word(0));
            for i in 0..n {
                let (a, b) = (got.after(1 + 2 * i as isize), want.after(1 + 2 * i as isize));
                let (va, vb) = (self.value(a), self.value(b));
                match (va, vb) {
                    (Some(x), Some(y)) if x != y => {
                        return Err(Refused { index: i, ..refused(got, code::CHECK, of, x, y) });
                    }
                    (None, Some(y)) => self.bind(a, y),
                    (Some(x), None) => self.bind(b, x),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// # Safety
    /// `d` is a dim.
    unsafe fn value(&self, d: Node) -> Option<i64> {
        // SAFETY: granted by the caller; a value is among those that the compiler put beside the signature.
        unsafe {
            let v = d.word(1);
            match d.word(0) {
                dim::LITERAL => Some(v),
                dim::VALUE if d.closure => Some((*self.captured.offset(v as isize)).payload.int),
                dim::VALUE => Some(*self.dims.offset(v as isize)),
                dim::OWN if d.closure => self.own.get(v as usize).copied().flatten(),
                _ => None,
            }
        }
    }

    /// # Safety
    /// `d` is a dim.
    unsafe fn bind(&mut self, d: Node, value: i64) {
        // SAFETY: granted by the caller.
        unsafe {
            if d.closure && d.word(0) == dim::OWN {
                if let Some(own) = self.own.get_mut(d.word(1) as usize) {
                    *own = Some(value);
                }
            }
        }
    }
}

/// `a` is of `node`, `b` of the other side: wanted is what the type says.
fn refused(node: Node, code: i32, of: &'static str, a: i64, b: i64) -> Refused {
    let (wanted, got) = if node.closure { (b, a) } else { (a, b) };
    Refused { code, of, index: -1, wanted, got }
}

/// The tag of values of this kind.
fn tag_of(kind: i64) -> i64 {
    let tag = match kind {
        kind::TENSOR => tag::TENSOR,
        kind::SHAPE => tag::SHAPE,
        kind::TUPLE => tag::TUPLE,
        kind::FUNCTION | kind::PACKED => tag::CLOSURE,
        kind::TEXT => tag::STR,
        _ => tag::INT,
    };
    tag as i64
}

/// # Safety
/// Both are tensors or both are shapes.
unsafe fn ranks(got: Node, want: Node, of: &'static str) -> Result<(), Refused> {
    // SAFETY: granted by the caller.
    let (g, w) = unsafe { (got.word(1), want.word(1)) };
    if g >= 0 && w >= 0 && g != w {
        return Err(refused(got, code::RANK, of, g, w));
    }
    Ok(())
}

impl Node {
    /// # Safety
    /// The node has so many words.
    unsafe fn word(self, i: isize) -> i64 {
        // SAFETY: granted by the caller.
        unsafe { *self.at.offset(i) }
    }

    /// # Safety
    /// As for [`Node::word`].
    unsafe fn after(self, words: isize) -> Node {
        // SAFETY: granted by the caller.
        Node { at: unsafe { self.at.offset(words) }, ..self }
    }

    /// The node behind this one.
    ///
    /// # Safety
    /// As for [`Match::node`].
    unsafe fn next(self) -> Node {
        // SAFETY: each node has the words that its kind says.
        unsafe {
            match self.word(0) {
                kind::TENSOR => self.after(4 + 2 * self.word(3) as isize),
                kind::SHAPE | kind::SCALAR => self.after(3 + 2 * self.word(2) as isize),
                kind::TUPLE => self.after(2).skip(self.word(1)),
                kind::FUNCTION => self.after(3).skip(self.word(2) + 1),
                _ => self.after(1),
            }
        }
    }

    /// # Safety
    /// As for [`Match::node`], for so many nodes.
    unsafe fn skip(self, nodes: i64) -> Node {
        let mut at = self;
        for _ in 0..nodes {
            // SAFETY: granted by the caller.
            at = unsafe { at.next() };
        }
        at
    }
}
