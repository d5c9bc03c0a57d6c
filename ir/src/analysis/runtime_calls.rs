//! Packed functions of TVM's own runtime, which its legalisation puts in the place of operators: they become those
//! operators again, so that one road computes both.

use crate::attrs::Attrs;
use crate::op::lookup;
use crate::relax::{Call, Callee, Expr, ExprKind};

/// The operator call that a call of the packed function `name` stands for.
pub fn operator(name: &str, args: &[Expr]) -> Option<Call> {
    let (op, args) = match (name, args) {
        ("relax.run.shape_to_tensor", [_]) => ("shape_to_tensor", args.to_vec()),
        ("vm.builtin.tensor_to_shape", [_]) => ("tensor_to_shape", args.to_vec()),
        ("relax.run.nonzero", [_]) => ("nonzero", args.to_vec()),
        ("relax.run.unique", [_, _, _, _, _] | [_, _, _, _, _, _]) => ("unique", args.to_vec()),
        // The format comes first there and last here.
        ("relax.run.print", [format, values @ ..]) if is_text(format) => {
            ("print", values.iter().chain([format]).cloned().collect())
        }
        ("relax.run.assert_op", [condition, format, values @ ..]) if is_text(format) => {
            ("assert_op", [condition].into_iter().chain(values).chain([format]).cloned().collect())
        }
        _ => return None,
    };
    Some(Call { callee: Callee::Op(lookup(op)?), args, attrs: Attrs::default(), sinfo_args: vec![] })
}

/// `R.vm.call_tir_dyn(f, (tensors.., R.shape([scalars..])))` as the call of the PrimFunc that it is; `None` where `f` is
/// no function of the module, or the arguments are not written down.
pub fn kernel(f: &Expr, fields: &Expr) -> Option<Call> {
    let (ExprKind::GlobalVar(_), ExprKind::Tuple(fields)) = (f.kind(), fields.kind()) else { return None };
    let (last, tensors) = fields.split_last()?;
    let mut args = tensors.to_vec();
    match last.kind() {
        ExprKind::Shape(values) => {
            args.extend(values.iter().map(|v| Expr::new(ExprKind::Prim(v.clone()), last.span())))
        }
        _ => args.push(last.clone()),
    }
    Some(Call { callee: Callee::Expr(f.clone()), args, attrs: Attrs::default(), sinfo_args: vec![] })
}

fn is_text(e: &Expr) -> bool {
    matches!(e.kind(), ExprKind::Str(_))
}
