//! `T.call_llvm_intrin("float32", "llvm.sqrt", x)`: the functions of LLVM that have an operator of their own here.

use super::*;
use relax_ir::prim::{BinOp, Intrin};

/// By their names without `llvm.`, of floats.
const FLOATS: [(&str, Intrin); 21] = [
    ("fma", Intrin::Fma),
    ("fmuladd", Intrin::Fma),
    ("sqrt", Intrin::Sqrt),
    ("exp", Intrin::Exp),
    ("exp2", Intrin::Exp2),
    ("exp10", Intrin::Exp10),
    ("log", Intrin::Log),
    ("log2", Intrin::Log2),
    ("log10", Intrin::Log10),
    ("sin", Intrin::Sin),
    ("cos", Intrin::Cos),
    ("tan", Intrin::Tan),
    ("pow", Intrin::Pow),
    ("fabs", Intrin::Fabs),
    ("floor", Intrin::Floor),
    ("ceil", Intrin::Ceil),
    ("trunc", Intrin::Trunc),
    ("rint", Intrin::NearbyInt),
    ("nearbyint", Intrin::NearbyInt),
    ("roundeven", Intrin::NearbyInt),
    ("copysign", Intrin::CopySign),
];

fn operands_of(f: Intrin) -> usize {
    match f {
        Intrin::Fma => 3,
        Intrin::Pow | Intrin::CopySign => 2,
        _ => 1,
    }
}

impl<'a> Cx<'a> {
    pub fn llvm_function(&mut self, call: &CallExpr<'a>, span: Span) -> Option<PrimExpr> {
        let [dtype, name, args @ ..] = call.args.as_slice() else {
            return self.error("argument", span, "a type and the name of the function are missing");
        };
        let (dtype, what) = (self.dtype(dtype)?, self.string(name)?);
        // `llvm.sqrt.f32` is `llvm.sqrt` of a type.
        let base = what.strip_prefix("llvm.").map(|n| n.split('.').next().unwrap_or(n)).unwrap_or("");
        let args: Vec<Option<PrimExpr>> = args.iter().map(|a| self.prim(a)).collect();
        let args = args.into_iter().collect::<Option<Vec<_>>>()?;
        let (signed, unsigned) = (dtype.is_signed(), dtype.is_uint());
        let found = FLOATS.iter().find(|(n, _)| *n == base && dtype.is_float()).map(|(_, f)| *f);
        let wanted = match (base, found) {
            (_, Some(f)) => operands_of(f),
            ("maxnum" | "minnum", _) if dtype.is_float() => 2,
            ("smax" | "smin", _) if signed => 2,
            ("umax" | "umin", _) if unsigned => 2,
            ("ctpop", _) if signed || unsigned => 1,
            _ => {
                let d = Diagnostic::unsupported("tir-extern", span, format!("`{what}` of {dtype} is not supported"));
                return self.report(d.help("write what it computes with functions of T"));
            }
        };
        if args.len() != wanted {
            return self.error("argument", span, format!("`{what}` takes {wanted} arguments, {} given", args.len()));
        }
        if let Some(other) = args.iter().find(|a| a.dtype() != dtype) {
            let message = format!("`{what}` of {} does not give {dtype}", other.dtype());
            return self.error("type", span, message);
        }
        let value = match (found, args.as_slice()) {
            (Some(f), _) => {
                self.function_type(f, dtype, &args, span)?;
                PrimExpr::call(f, args.clone())
            }
            (None, [x]) => {
                self.function_type(Intrin::PopCount, dtype, &args, span)?;
                PrimExpr::call(Intrin::PopCount, [x.clone()])
            }
            (None, [x, y]) => {
                let op = if base.contains("max") { BinOp::Max } else { BinOp::Min };
                let better = PrimExpr::raw_binary(op, x.clone(), y.clone());
                match dtype.is_float() {
                    // `T.max` gives the second where the first is no number: here the second may be none.
                    true => {
                        let none = PrimExpr::call(Intrin::IsNan, [y.clone()]);
                        PrimExpr::raw(PrimKind::Select(none, x.clone(), better), dtype)
                    }
                    false => better,
                }
            }
            _ => return self.error("argument", span, format!("`{what}` does not take these arguments")),
        };
        match value.dtype() == dtype {
            true => Some(value),
            false => self.unsupported("tir-extern", span, format!("`{what}` of {dtype} is not supported")),
        }
    }

    /// `T.tvm_stack_alloca("shape", 4)`: memory on the stack. Source: TVM src/tirx/transform/lower_tvm_builtin.cc.
    pub(super) fn stack_memory(&mut self, name: &str, call: &CallExpr<'a>, span: Span) -> Option<Buffer> {
        let (Some(of), Some(count)) = (call.arg(0, "dtype_str"), call.arg(1, "num")) else {
            return self.error("argument", span, "T.tvm_stack_alloca takes what it holds and a number of these");
        };
        // In words of 64 bits.
        let words = match self.string(of)?.as_str() {
            "shape" => 1,
            "tvm_ffi_any" => 2,
            "array" => 6,
            other => {
                let d = Diagnostic::error("argument", of.span, format!("a stack holds no `{other}`"));
                return self.report(d.help("\"shape\", \"array\" or \"tvm_ffi_any\""));
            }
        };
        let n = self.int(count)?;
        if !(1..=4096).contains(&n) {
            return self.error("argument", count.span, "from 1 to 4096 of them can be had");
        }
        Some(Buffer::new(name, vec![PrimExpr::int(DType::I32, n * words)], DType::I64))
    }
}
