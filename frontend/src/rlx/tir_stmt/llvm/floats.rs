//! Functions of LLVM of floats that no operator of kernels has as they are.
//!
//! Source: LLVM's language reference, "Standard C/C++ Library Intrinsics", "Saturating floating-point to integer conversions".

use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind};
use relax_ir::{DType, TypeCode};

/// How many floats `name` takes; `None` where it is no function of these.
pub fn operands_of(name: &str) -> Option<usize> {
    Some(match name {
        "round" | "canonicalize" | "arithmetic.fence" => 1,
        "maxnum" | "minnum" | "maximum" | "minimum" | "maximumnum" | "minimumnum" => 2,
        _ => return None,
    })
}

/// `llvm.name` of floats of one type, which is the result's too.
pub fn value(name: &str, args: &[PrimExpr]) -> Option<PrimExpr> {
    Some(match (name, args) {
        ("round", [x]) => away_from_zero(x),
        // The same number.
        ("canonicalize" | "arithmetic.fence", [x]) => x.clone(),
        (_, [x, y]) => {
            let max = name.starts_with("max");
            let none = |e: &PrimExpr| PrimExpr::call(Intrin::IsNan, [e.clone()]);
            match name {
                // `T.max` gives the second where the first is no number: here the second may be none.
                "maxnum" | "minnum" => {
                    let op = if max { BinOp::Max } else { BinOp::Min };
                    choose(none(y), x.clone(), PrimExpr::raw_binary(op, x.clone(), y.clone()))
                }
                // What is no number is the result.
                "maximum" | "minimum" => {
                    let sum = PrimExpr::raw_binary(BinOp::Add, x.clone(), y.clone());
                    choose(none(x), sum.clone(), choose(none(y), sum, better(x, y, max)))
                }
                // What is a number is the result.
                "maximumnum" | "minimumnum" => {
                    choose(none(x), y.clone(), choose(none(y), x.clone(), better(x, y, max)))
                }
                _ => return None,
            }
        }
        _ => return None,
    })
}

/// The nearest whole number, halves away from zero; infinities and what is no number stay.
pub fn away_from_zero(x: &PrimExpr) -> PrimExpr {
    let t = x.dtype();
    let whole = PrimExpr::call(Intrin::Trunc, [x.clone()]);
    let rest = PrimExpr::call(Intrin::Fabs, [PrimExpr::raw_binary(BinOp::Sub, x.clone(), whole.clone())]);
    let up = PrimExpr::raw_binary(BinOp::Ge, rest, PrimExpr::float(t, 0.5));
    let negative = PrimExpr::raw_binary(BinOp::Lt, x.clone(), PrimExpr::float(t, 0.0));
    let step = choose(negative, PrimExpr::float(t, -1.0), PrimExpr::float(t, 1.0));
    choose(up, PrimExpr::raw_binary(BinOp::Add, whole.clone(), step), whole)
}

/// The greater or the lesser of two numbers; the zero below zero is less than the other one.
fn better(x: &PrimExpr, y: &PrimExpr, max: bool) -> PrimExpr {
    let t = x.dtype();
    let bits = DType { code: TypeCode::UInt, ..t };
    let same = PrimExpr::raw_binary(BinOp::Eq, x.clone(), y.clone());
    let op = if max { BinOp::BitAnd } else { BinOp::BitOr };
    let of_both = PrimExpr::raw_binary(op, x.clone().reinterpret(bits), y.clone().reinterpret(bits)).reinterpret(t);
    let first = PrimExpr::raw_binary(if max { BinOp::Gt } else { BinOp::Lt }, x.clone(), y.clone());
    choose(same, of_both, choose(first, x.clone(), y.clone()))
}

fn choose(cond: PrimExpr, then: PrimExpr, otherwise: PrimExpr) -> PrimExpr {
    let t = then.dtype();
    PrimExpr::raw(PrimKind::Select(cond, then, otherwise), t)
}
