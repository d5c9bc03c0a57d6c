//! Operand types of kernels for which TVM has no code.
//!
//! Source: TVM 0.27 src/tirx/op/op.cc, src/target/llvm (intrinsics and `codegen_llvm.cc`, which compiles bool as a float
//! where a comparison is asked for).

use super::context::Cx;
use super::scalar::Num;
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind};
use relax_ir::{DType, Diagnostic, Span, TypeCode};

impl Cx<'_> {
    /// Are these the scalars of a PrimFunc? Relax has the same expressions in its dims.
    pub fn in_kernel(&self) -> bool {
        self.names.of_kernel()
    }

    /// The type that the text of a kernel gives to this: dims are int64 here whatever they are declared as.
    pub fn stated_type(&self, e: &PrimExpr) -> DType {
        let wider = |a: DType, b: DType| if b.bits > a.bits { b } else { a };
        match e.kind() {
            PrimKind::Var(v) => self.names.stated.get(v).copied().unwrap_or(v.dtype()),
            PrimKind::Binary(op, a, b) if e.dtype() == DType::I64 && !op.is_compare() => {
                let (a, b) = match (a.as_int(), b.as_int()) {
                    (Some(_), None) => (self.stated_type(b), self.stated_type(b)),
                    (None, Some(_)) => (self.stated_type(a), self.stated_type(a)),
                    _ => (self.stated_type(a), self.stated_type(b)),
                };
                wider(a, b)
            }
            _ => e.dtype(),
        }
    }

    /// Whether `a op b` has code where bools meet: those of kernels are combined by `and` and `or`.
    pub fn bool_operands(&mut self, op: BinOp, a: &Num, b: &Num, span: Span) -> Option<()> {
        if !self.in_kernel() {
            return Some(());
        }
        let bool = |n: &Num| matches!(n, Num::Expr(p) if p.dtype().is_bool());
        let known = |n: &Num| !matches!(n, Num::Expr(p) if p.as_int().is_none());
        let (left, both) = (bool(a), bool(a) && bool(b));
        let compared = matches!(op, BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge);
        let refused = match op {
            _ if compared && known(a) && known(b) => false,
            // A number becomes the bool that it is compared with.
            BinOp::Eq | BinOp::Ne => both || bool(a) && matches!(b, Num::Int(_)) || bool(b) && matches!(a, Num::Int(_)),
            BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div | BinOp::Min | BinOp::Max => both,
            BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge => both,
            BinOp::FloorDiv | BinOp::FloorMod | BinOp::Shl | BinOp::Shr => left,
            _ => false,
        };
        if !refused {
            return Some(());
        }
        let d = Diagnostic::error("type", span, "a kernel computes this of numbers, not of bools");
        self.report(d.help("cast them, T.Cast(\"int32\", x), or combine them by `and`, `or`, `not`"))
    }

    /// Whether the function `f` has code for `dtype`.
    pub fn function_type(&mut self, f: Intrin, dtype: DType, args: &[PrimExpr], span: Span) -> Option<()> {
        if !self.in_kernel() {
            return Some(());
        }
        let half = dtype.code == TypeCode::Float && dtype.bits == 16;
        let small = dtype.is_float() && !(dtype.code == TypeCode::Float && dtype.bits >= 16);
        let bfloat = dtype.code == TypeCode::BFloat;
        let refused = match f {
            Intrin::Fmod => true,
            Intrin::Acos
            | Intrin::Acosh
            | Intrin::Asin
            | Intrin::Asinh
            | Intrin::Atan
            | Intrin::Cosh
            | Intrin::Sinh
            | Intrin::Erf
            | Intrin::Log1p
            | Intrin::Atan2
            | Intrin::Hypot
            | Intrin::CopySign
            | Intrin::NextAfter
            | Intrin::LdExp => half,
            Intrin::Abs | Intrin::Fabs => dtype.is_bool() || small && !bfloat,
            Intrin::IsNan | Intrin::IsInf | Intrin::IsFinite => dtype.is_bool() || small,
            Intrin::Clz => !(dtype.is_int() && matches!(dtype.bits, 32 | 64)),
            Intrin::BitNot => dtype.is_float(),
            Intrin::Likely => !dtype.is_bool() && args.iter().any(|a| a.as_int().is_none()),
            _ => false,
        };
        if !refused {
            return Some(());
        }
        let d = Diagnostic::error("type", span, format!("a kernel has no T.{} of {dtype}", f.name()));
        self.report(match f {
            Intrin::Fmod => d.help("write T.truncmod(a, b)"),
            Intrin::Likely => d.help("it takes a condition"),
            _ => d.help("cast its argument: T.Cast(\"float32\", x)"),
        })
    }
}
