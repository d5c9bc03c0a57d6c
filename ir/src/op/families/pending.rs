//! The shape rule of operators that have none yet.

use crate::diag::Diagnostic;
use crate::op::InferCx;
use crate::relax::StructInfo;

/// Refuses the call.
pub fn pending(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    Err(Diagnostic::unsupported("operator", cx.span, format!("R.{} has no shape rule yet", cx.op.name)))
}
