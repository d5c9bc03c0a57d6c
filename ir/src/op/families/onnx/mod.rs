//! Operators of ONNX that Relax has no equivalent of. Their names start with `onnx.`; the importer emits them.

pub mod axes;
pub mod bits;
pub mod boxes;
pub mod distinct;
pub mod expand;
pub mod linear_attention;
pub mod pad;
pub mod picture;
pub mod pool;
pub mod resize;
pub mod spectrum;
pub mod text;
pub mod trees;
pub mod window;

use crate::prim::{PrimExpr, Var};
use crate::tir::{Buffer, ForKind, Stmt, StmtKind};

/// Element `i` of a vector.
fn cell(b: &Buffer, i: impl Into<PrimExpr>) -> PrimExpr {
    b.at([i.into()])
}

/// `b[i] = value` of a vector.
fn set(b: &Buffer, i: impl Into<PrimExpr>, value: impl Into<PrimExpr>) -> Stmt {
    Stmt::store(b, vec![i.into()], value.into())
}

/// A loop nest over `extents`.
fn nest(extents: &[PrimExpr], name: &str, body: impl FnOnce(&[PrimExpr]) -> Stmt) -> Stmt {
    let vars: Vec<Var> = (0..extents.len()).map(|i| Var::dim(format!("{name}{i}"))).collect();
    let index: Vec<PrimExpr> = vars.iter().map(Var::expr).collect();
    let body = body(&index);
    vars.iter().zip(extents).rev().fold(body, |s, (v, e)| Stmt::for_serial(v, e.clone(), s))
}

/// A loop over `extent`.
fn each(extent: &PrimExpr, name: &str, body: impl FnOnce(&PrimExpr) -> Stmt) -> Stmt {
    let v = Var::dim(name);
    let i = v.expr();
    Stmt::for_serial(&v, extent.clone(), body(&i))
}

/// A loop from `first` to before `end`, which is no less.
fn each_from(first: &PrimExpr, end: &PrimExpr, name: &str, body: impl FnOnce(&PrimExpr) -> Stmt) -> Stmt {
    let var = Var::dim(name);
    let body = body(&var.expr());
    let (min, extent) = (first.clone(), end.clone() - first.clone());
    Stmt::new(StmtKind::For { var, min, extent, kind: ForKind::Serial, annotations: vec![], body })
}

/// A value that is computed once.
fn bind(name: &str, value: PrimExpr, body: impl FnOnce(&PrimExpr) -> Stmt) -> Stmt {
    let v = Var::new(name, value.dtype());
    let e = v.expr();
    Stmt::let_in(&v, value, body(&e))
}

/// A buffer that lives in `body`.
fn local(buffer: &Buffer, body: Stmt) -> Stmt {
    Stmt::new(StmtKind::Alloc { buffer: buffer.clone(), body })
}
