//! What no machine holds: tensors beyond [`MOST_BYTES`], those with less than no elements, and attributes beyond [`MOST`] in
//! operators that count with them.
//!
//! Both keep the arithmetic of everything that follows (dims, strides, offsets in bytes) inside of 64 bits. What only a
//! call tells is tested there, where memory is sized.

use super::show;
use crate::attrs::{AttrValue, Attrs};
use crate::diag::{Diagnostic, Diagnostics};
use crate::module::IRModule;
use crate::op::{OpDecl, MOST_BYTES};
use crate::relax::{Binding, BindingValue, ExprKind, Function, SeqExpr, StructInfo, StructInfoMap};
use crate::span::Span;

/// The largest count, size, stride or axis in an attribute, either way from 0.
pub const MOST: i64 = 1 << 31;

/// Attributes that hold values and no counts: they are compared, never calculated with.
const VALUES: &[&str] = &["ignore_index", "indices", "indices_or_sections", "seed", "targets", "terms", "values"];

/// Refuses attributes that are out of every range.
pub fn attributes(op: &OpDecl, attrs: &Attrs, span: Span) -> Result<(), Diagnostic> {
    fn beyond(v: &AttrValue) -> Option<i64> {
        match v {
            AttrValue::Int(v) => Some(*v).filter(|v| !(-MOST..=MOST).contains(v)),
            AttrValue::Prim(p) if p.dtype().is_int() => p.as_int().and_then(|v| beyond(&AttrValue::Int(v))),
            AttrValue::List(list) => list.iter().find_map(beyond),
            _ => None,
        }
    }
    for p in op.params.iter().filter(|p| !VALUES.contains(&p.name)) {
        if let Some(v) = attrs.get(p.name).and_then(beyond) {
            let message = format!("R.{}: {} = {v} is out of range: at most {MOST} either way from 0", op.name, p.name);
            return Err(Diagnostic::error("operator", span, message));
        }
    }
    Ok(())
}

/// The bytes of one row of dims that are numbers, and the tensor that has too many of them.
fn beyond(info: &StructInfo) -> Option<(StructInfo, String)> {
    match info {
        StructInfo::Tensor(t) => {
            let known = t.known_dims()?.iter().filter_map(|d| d.as_int()).filter(|d| *d != 0);
            let each = t.dtype.map_or(1, |d| d.bytes() as i64);
            let bytes = known.clone().try_fold(each, |n, d| n.checked_mul(d));
            if bytes.is_some_and(|b| b <= MOST_BYTES) {
                return None;
            }
            let about = known.map(|d| d as f64).product::<f64>() * each as f64;
            Some((info.clone(), bytes.map_or_else(|| format!("{about:.1e}"), |b| b.to_string())))
        }
        StructInfo::Tuple(fields) => fields.iter().find_map(beyond),
        _ => None,
    }
}

/// A tensor with a dim that is a number below 0.
fn negative(info: &StructInfo) -> Option<StructInfo> {
    match info {
        StructInfo::Tensor(t) => {
            let mut dims = t.known_dims()?.iter().filter_map(|d| d.as_int());
            dims.any(|d| d < 0).then(|| info.clone())
        }
        StructInfo::Tuple(fields) => fields.iter().find_map(negative),
        _ => None,
    }
}

/// As [`tensor`], of a value that every call has or makes. What a branch or a local function makes may never be made.
fn always(info: &StructInfo, name: &str, span: Span, diags: &mut Diagnostics) {
    match negative(info) {
        Some(tensor) => {
            let message = format!("{name} has a negative dim: no tensor is {}", show::info(&tensor));
            diags.push(Diagnostic::error("tensor-size", span, message));
        }
        None => tensor(info, name, span, diags),
    }
}

fn tensor(info: &StructInfo, name: &str, span: Span, diags: &mut Diagnostics) {
    if let Some((tensor, bytes)) = beyond(info) {
        let message = format!("{name} does not fit into any memory: {bytes} bytes");
        let here = format!("{}; a tensor has at most 2^48 bytes", show::info(&tensor));
        diags.push(Diagnostic::error("tensor-size", span, message).here(here));
    }
}

/// Refuses tensors whose dims, as far as they are numbers, make more than [`MOST_BYTES`], and negative dims of what is made.
pub(super) fn tensors(module: &IRModule, sinfo: &StructInfoMap, diags: &mut Diagnostics) {
    for f in module.relax_funcs() {
        function(f, true, sinfo, diags);
    }
}

fn function(f: &Function, top: bool, sinfo: &StructInfoMap, diags: &mut Diagnostics) {
    let before = diags.list.len();
    for p in &f.params {
        let Some(info) = sinfo.get(&p.var) else { continue };
        let name = format!("`{}`", p.var.name());
        match negative(info) {
            // A type without values may be written; that of an argument is checked.
            Some(tensor) => {
                let message = format!("{name} has a negative dim: no tensor is {}", show::info(&tensor));
                diags.push(Diagnostic::warning("tensor-size", p.var.span(), message).note("every call fails"));
            }
            None => tensor(info, &name, p.var.span(), diags),
        }
    }
    sequence(&f.body, top, sinfo, diags);
    // A result that is a binding was reported there.
    if let Some(ret) = f.ret.as_ref().filter(|_| diags.list.len() == before) {
        tensor(ret, &format!("the result of `{}`", f.name), f.signature_span, diags);
    }
}

fn sequence(s: &SeqExpr, top: bool, sinfo: &StructInfoMap, diags: &mut Diagnostics) {
    for b in s.blocks.iter().flat_map(|b| &b.bindings) {
        binding(b, top, sinfo, diags);
    }
}

fn binding(b: &Binding, top: bool, sinfo: &StructInfoMap, diags: &mut Diagnostics) {
    let (BindingValue::Expr(e) | BindingValue::MatchCast { value: e, .. }) = &b.value;
    match e.kind() {
        ExprKind::Function(f) => return function(f, false, sinfo, diags),
        ExprKind::If { then, otherwise, .. } => {
            sequence(then, false, sinfo, diags);
            sequence(otherwise, false, sinfo, diags);
        }
        // Another name for what was reported.
        _ if e.is_leaf() && matches!(b.value, BindingValue::Expr(_)) => return,
        _ => {}
    }
    if let Some(info) = sinfo.get(&b.var) {
        let span = if e.span().is_none() { b.span } else { e.span() };
        let check = if top { always } else { tensor };
        check(info, &format!("`{}`", b.var.name()), span, diags);
    }
}
