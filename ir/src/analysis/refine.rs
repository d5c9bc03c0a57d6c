//! Dims that are numbers where a value is computed, although struct info has names for them: after a check `n == 10`.
//!
//! Source: shape_constraint_ir.md, "Refine types with partial known information globally". The types of the module stay what
//! the derivation rules make them; what is found here serves code generation.

use super::vars;
use crate::op::ShapeFacts;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::sym::Facts;

/// The number that a dim is known to be, when it is none yet.
fn number(d: &PrimExpr, facts: &mut Facts) -> Option<i64> {
    if d.as_int().is_some() {
        return None;
    }
    facts.simplify(d).as_int().filter(|n| *n >= 0)
}

/// `s` with the numbers that its dims are known to be.
pub(super) fn refined(s: &StructInfo, facts: &mut Facts) -> StructInfo {
    vars::map_binding_dims(s, &mut |d| match number(d, facts) {
        Some(n) => PrimExpr::int(d.dtype(), n),
        None => d.clone(),
    })
}

/// Dims of these that are known to be numbers.
pub(super) fn numbers(infos: &[StructInfo], facts: &mut Facts) -> Vec<(PrimExpr, i64)> {
    let mut out: Vec<(PrimExpr, i64)> = vec![];
    for s in infos {
        vars::each_binding_dim(s, &mut |d, is_dim| {
            if is_dim && !out.iter().any(|(known, _)| known == d) {
                out.extend(number(d, facts).map(|n| (d.clone(), n)));
            }
        });
    }
    out
}

/// `s` with numbers for these dims.
pub fn with_numbers(s: &StructInfo, known: &[(PrimExpr, i64)]) -> StructInfo {
    vars::map_binding_dims(s, &mut |d| match known.iter().find(|(e, _)| e == d) {
        Some((_, n)) => PrimExpr::int(d.dtype(), *n),
        None => d.clone(),
    })
}
