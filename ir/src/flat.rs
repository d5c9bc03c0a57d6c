//! TIR in flat form: what every backend translates. Kernels and host code are both written in it.
//!
//! Expressions are [`PrimExpr`] without `BufferLoad`: scalars and vectors, loads from flat pointers. By the time a
//! backend sees a function, transcendental intrinsics are expanded into arithmetic; what remains is listed at
//! [`FlatFunc`].

use crate::constant::Constant;
use crate::dtype::DType;
use crate::prim::{PrimExpr, Var};
use crate::span::Span;
use std::collections::{BTreeMap, HashMap};

/// Who may call a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// Exported from the library.
    Export,
    /// Inside this object only.
    Local,
    /// Defined elsewhere (the runtime).
    Import,
}

/// A callee with its signature; bool is passed as one byte, handles as pointers.
#[derive(Clone, Debug, PartialEq)]
pub struct Callee {
    pub name: String,
    pub params: Vec<DType>,
    pub ret: Option<DType>,
    pub linkage: Linkage,
}

/// Flat statements. Variables are single-assignment except those of [`FlatStmt::Local`].
#[derive(Clone, Debug, PartialEq)]
pub enum FlatStmt {
    /// An immutable value.
    Let {
        var: Var,
        value: PrimExpr,
    },
    /// A mutable register; vectors allowed.
    Local {
        var: Var,
        init: PrimExpr,
    },
    Assign {
        var: Var,
        value: PrimExpr,
    },
    /// `ptr[offset .. offset + lanes] = value`; offset (scalar int64) in elements of the value's type. bool is a byte.
    Store {
        ptr: PrimExpr,
        offset: PrimExpr,
        value: PrimExpr,
    },
    /// The line of memory at `ptr` will be read soon. A hint: the address may lie outside of everything.
    Prefetch {
        ptr: PrimExpr,
    },
    /// `for (var = begin; var < end; var += step)`, `step > 0`.
    For {
        var: Var,
        begin: PrimExpr,
        end: PrimExpr,
        step: i64,
        body: Vec<FlatStmt>,
    },
    While {
        cond: PrimExpr,
        body: Vec<FlatStmt>,
    },
    If {
        cond: PrimExpr,
        then: Vec<FlatStmt>,
        otherwise: Vec<FlatStmt>,
    },
    /// `result` is bound to the value when the callee has one.
    Call {
        callee: Callee,
        args: Vec<PrimExpr>,
        result: Option<Var>,
    },
    /// Calls through a pointer with the signature of `callee` (its name is not used).
    CallIndirect {
        target: PrimExpr,
        callee: Callee,
        args: Vec<PrimExpr>,
        result: Option<Var>,
    },
    /// A stack slot of constant size; `var` is its address.
    Stack {
        var: Var,
        bytes: u32,
        align: u32,
    },
    /// `var` is the address of the data object or function `symbol`.
    Address {
        var: Var,
        symbol: String,
    },
    Return(Option<PrimExpr>),
}

impl FlatStmt {
    /// The expressions of this statement, nested statements left out.
    pub fn exprs(&self) -> Vec<&PrimExpr> {
        match self {
            FlatStmt::Let { value, .. } | FlatStmt::Assign { value, .. } => vec![value],
            FlatStmt::Local { init, .. } => vec![init],
            FlatStmt::Store { ptr, offset, value } => vec![ptr, offset, value],
            FlatStmt::Prefetch { ptr } => vec![ptr],
            FlatStmt::For { begin, end, .. } => vec![begin, end],
            FlatStmt::While { cond, .. } | FlatStmt::If { cond, .. } => vec![cond],
            FlatStmt::Call { args, .. } => args.iter().collect(),
            FlatStmt::CallIndirect { target, args, .. } => std::iter::once(target).chain(args).collect(),
            FlatStmt::Return(Some(e)) => vec![e],
            FlatStmt::Stack { .. } | FlatStmt::Address { .. } | FlatStmt::Return(None) => vec![],
        }
    }
}

/// A function in flat form.
///
/// Backends must translate: literals, `Var`, `Cast`, `Reinterpret`, `Binary`, `Not`, `Neg`, `Select`, `IfThenElse`,
/// `Load`, `Let`, `Ramp`, `Broadcast`, `PtrAdd`, and the intrinsics `sqrt floor ceil trunc nearbyint abs fabs isnan
/// popcount clz bitwise_not fma copysign likely vector_reduce_add/max/min extract_lane`. f16 and bf16 occur only as
/// the type of loads, stores and casts (storage types: lowering computes in f32). Vectors have 128 bits of the
/// widest element type in use, or several of them (`float32x8` is two registers): backends split. Tiles
/// ([`Intrin::TileRows`](crate::prim::Intrin::TileRows)) are for the assembler of wide vectors alone: they are bound to
/// names, summed up in a [`FlatStmt::Local`] and stored row after row.
#[derive(Clone, Debug, PartialEq)]
pub struct FlatFunc {
    pub name: String,
    pub params: Vec<Var>,
    pub ret: Option<DType>,
    pub linkage: Linkage,
    pub body: Vec<FlatStmt>,
    /// The model construct this came from, for error messages and the assembly listing.
    pub span: Span,
}

/// Read-only data.
#[derive(Clone, Debug)]
pub struct FlatData {
    pub symbol: String,
    pub align: u32,
    pub bytes: DataBytes,
    /// Pointers inside the data: at byte offset, to symbol plus addend.
    pub relocs: Vec<(u32, String, i64)>,
    pub linkage: Linkage,
}

#[derive(Clone, Debug)]
pub enum DataBytes {
    Owned(Vec<u8>),
    /// A tensor constant, not copied.
    Constant(Constant),
}

impl DataBytes {
    pub fn get(&self) -> &[u8] {
        match self {
            DataBytes::Owned(v) => v,
            DataBytes::Constant(c) => c.bytes(),
        }
    }
}

/// A whole program for the backend.
#[derive(Clone, Debug, Default)]
pub struct FlatModule {
    pub funcs: Vec<FlatFunc>,
    pub data: Vec<FlatData>,
    /// Functions that are compiled already, by name.
    pub assembled: HashMap<String, Assembled>,
    /// Kernels that stand in the library several times.
    pub versions: Versions,
    pub sections: Sections,
}

/// Machine code without relocations, in the target's calling convention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembled {
    pub bytes: Vec<u8>,
    /// Bytes of stack, the return address included.
    pub frame: u32,
}

/// Forms of kernels for processors that can do more than the target's. Which one is called is decided when the library
/// is loaded: level 0 is the lowest, up to [`Versions::own`] the target has them all.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    /// What the names of the symbols that decide start with.
    pub prefix: String,
    /// The level that the target has itself.
    pub own: usize,
    /// By kernel: machine code for each level above the target's own; `None` where the level's code generator has to make it, or
    /// the level below serves.
    pub kernels: BTreeMap<String, Vec<Option<Assembled>>>,
    /// Take this level and ask no processor (for tests).
    pub fixed: Option<usize>,
}

/// Sections of the object that code and weights go to; the usual ones where there is no name.
#[derive(Clone, Debug, Default)]
pub struct Sections {
    pub code: Option<String>,
    pub weights: Option<String>,
}
