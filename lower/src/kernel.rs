//! The calling convention of scheduled kernels: one pointer per buffer, the dims, the workspace.

use crate::schedule::{self, SchedOptions};
use relax_ir::tir::{PrimFunc, PrimParam};
use relax_ir::{PrimExpr, Var};

/// The integer parameters of the kernel of `f`, in order: shape variables by first occurrence over the parameters,
/// scalar parameters among them. Each is passed as int64, except scalar parameters of another kind (floats, bool),
/// which keep their type.
pub fn kernel_dims(f: &PrimFunc) -> Vec<Var> {
    let mut out: Vec<Var> = vec![];
    let mut add = |v: &Var| {
        if !out.contains(v) {
            out.push(v.clone());
        }
    };
    for p in &f.params {
        match p {
            PrimParam::Scalar(v) => add(v),
            PrimParam::Buffer { buffer, .. } => buffer.shape.iter().flat_map(|d| d.vars()).for_each(|v| add(&v)),
            PrimParam::Handle { fields, .. } => fields.iter().for_each(|(_, v)| add(v)),
        }
    }
    out
}

/// Bytes of scratch memory that the kernel of `f` needs, over [`kernel_dims`]; the literal 0 when it takes no
/// workspace pointer. The pointer must be aligned to 64 bytes.
pub fn kernel_workspace(f: &PrimFunc) -> PrimExpr {
    if crate::integer::in_library(f) {
        return PrimExpr::i64(0);
    }
    schedule::workspace(f, &SchedOptions::default())
}

/// As [`kernel_workspace`], enough for each of these sizes of vectors too.
pub fn wide_workspace(f: &PrimFunc, vector_bytes: &[u32]) -> PrimExpr {
    let narrow = kernel_workspace(f);
    if crate::integer::in_library(f) {
        return narrow;
    }
    vector_bytes.iter().fold(narrow, |most, &vector_bytes| {
        let wide = schedule::workspace(f, &SchedOptions::vectors(vector_bytes));
        match (most.as_int(), wide.as_int()) {
            (Some(a), Some(b)) => PrimExpr::i64(a.max(b)),
            _ if most == wide => most,
            _ => most.max(wide),
        }
    })
}
