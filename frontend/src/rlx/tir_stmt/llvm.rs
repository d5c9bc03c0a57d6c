//! `T.call_llvm_intrin("float32", "llvm.sqrt", x)`: functions of LLVM, by what its language reference says of them.

mod classes;
mod fixed_point;
mod floats;
mod integers;

use super::*;
use relax_ir::prim::Intrin;
use relax_ir::TypeCode;

/// Functions of floats that have an operator of their own, by their names without `llvm.`.
const FLOATS: [(&str, Intrin); 28] = [
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
    ("asin", Intrin::Asin),
    ("acos", Intrin::Acos),
    ("atan", Intrin::Atan),
    ("atan2", Intrin::Atan2),
    ("sinh", Intrin::Sinh),
    ("cosh", Intrin::Cosh),
    ("tanh", Intrin::Tanh),
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
        Intrin::Pow | Intrin::CopySign | Intrin::Atan2 => 2,
        _ => 1,
    }
}

/// `llvm.sadd.sat.i32` without `llvm.` and its types.
fn base_name(what: &str) -> &str {
    let mut name = what.strip_prefix("llvm.").unwrap_or("");
    let of_type = |part: &str| {
        let digits = part.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        !digits.is_empty() && digits.len() < part.len() && part.starts_with(['i', 'f', 'v', 'b'])
    };
    while let Some((rest, _)) = name.rsplit_once('.').filter(|(_, part)| of_type(part)) {
        name = rest;
    }
    name
}

/// Values that are read several times, each with a name of its own.
#[derive(Default)]
struct Named(Vec<(Var, PrimExpr)>);

impl Named {
    /// What stands for `e`. Vectors have no names, their elements are apart.
    fn once(&mut self, e: PrimExpr) -> PrimExpr {
        if e.dtype().lanes > 1 || matches!(e.kind(), PrimKind::Var(_) | PrimKind::Int(_) | PrimKind::Float(_)) {
            return e;
        }
        let var = Var::new("v", e.dtype());
        self.0.push((var.clone(), e));
        var.expr()
    }

    fn around(self, body: PrimExpr) -> PrimExpr {
        self.0.into_iter().rev().fold(body, |body, (var, value)| PrimExpr::let_in(var, value, body))
    }
}

impl<'a> Cx<'a> {
    pub fn llvm_function(&mut self, call: &CallExpr<'a>, span: Span) -> Option<PrimExpr> {
        let [dtype, name, args @ ..] = call.args.as_slice() else {
            return self.error("argument", span, "a type and the name of the function are missing");
        };
        let number = name.as_call().filter(|c| c.func.dotted().as_deref() == Some("T.llvm_lookup_intrinsic_id"));
        let name = number.and_then(|c| c.arg(0, "name")).unwrap_or(name);
        let (dtype, what) = (self.dtype(dtype)?, self.string(name)?);
        let base = base_name(&what);
        let args: Vec<Option<PrimExpr>> = args.iter().map(|a| self.prim(a)).collect();
        let mut args = args.into_iter().collect::<Option<Vec<_>>>()?;
        let whole = dtype.is_int() && matches!(dtype.bits, 8 | 16 | 32 | 64);
        let found = FLOATS.iter().find(|(n, _)| *n == base && dtype.is_float()).map(|(_, f)| *f);
        let float = floats::operands_of(base).filter(|_| dtype.is_float());
        let integer = integers::operands_of(base, dtype.bits.into()).filter(|_| whole);
        let value = match (found, float, integer) {
            (Some(f), ..) => {
                self.llvm_operands(&what, dtype, &mut args, operands_of(f), span)?;
                self.llvm_operator(f, dtype, args, span)?
            }
            (_, Some(n), _) => {
                self.llvm_operands(&what, dtype, &mut args, n, span)?;
                let mut named = Named::default();
                let args: Vec<PrimExpr> = args.into_iter().map(|a| named.once(a)).collect();
                floats::value(base, &args).map(|v| named.around(v))?
            }
            (_, _, Some(n)) => {
                if integers::flag(base) {
                    self.llvm_flag(&what, &mut args, n, span)?;
                }
                self.llvm_operands(&what, dtype, &mut args, n, span)?;
                let mut named = Named::default();
                let args: Vec<PrimExpr> = args.into_iter().map(|a| named.once(a)).collect();
                integers::value(base, &args, &mut |e| named.once(e)).map(|v| named.around(v))?
            }
            _ if fixed_point::Function::named(base).is_some() && whole => {
                self.llvm_fixed_point(&what, dtype, args, span)?
            }
            _ => match self.llvm_of_two_types(base, dtype, &args) {
                Some(value) => value,
                None => {
                    let message = format!("`{what}` of {dtype} is not supported");
                    let d = Diagnostic::unsupported("tir-extern", span, message);
                    return self.report(d.help("write what it computes with functions of T"));
                }
            },
        };
        match value.dtype() == dtype {
            true => Some(value),
            false => self.unsupported("tir-extern", span, format!("`{what}` of {dtype} is not supported")),
        }
    }

    /// Exactly `wanted` operands of the result's type; LLVM's integers have no sign.
    fn llvm_operands(
        &mut self,
        what: &str,
        dtype: DType,
        args: &mut [PrimExpr],
        wanted: usize,
        span: Span,
    ) -> Option<()> {
        if args.len() != wanted {
            return self.error("argument", span, format!("`{what}` takes {wanted} arguments, {} given", args.len()));
        }
        for a in args.iter_mut() {
            let t = a.dtype();
            let fits = t.is_int() && dtype.is_int() && (t.bits, t.lanes) == (dtype.bits, dtype.lanes);
            if t != dtype && !fits {
                return self.error("type", span, format!("`{what}` of {t} does not give {dtype}"));
            }
            *a = a.clone().cast(dtype);
        }
        Some(())
    }

    /// The truth that ends the arguments of `llvm.ctlz` and its kin, which LLVM takes as a literal alone.
    fn llvm_flag(&mut self, what: &str, args: &mut Vec<PrimExpr>, operands: usize, span: Span) -> Option<()> {
        if args.len() == operands + 1 && args.last().is_some_and(|f| f.dtype().is_bool() && f.as_int().is_some()) {
            args.pop();
            return Some(());
        }
        let d =
            Diagnostic::error("argument", span, format!("`{what}` takes a value, and T.bool(True) or T.bool(False)"));
        self.report(d.help("whether its result is left open where none is defined"))
    }

    /// `llvm.smul.fix(x, y, scale)` and its kin, whose scale LLVM takes as a literal of 32 bits.
    fn llvm_fixed_point(&mut self, what: &str, dtype: DType, mut args: Vec<PrimExpr>, span: Span) -> Option<PrimExpr> {
        let f = fixed_point::Function::named(base_name(what))?;
        let scale = args.pop().filter(|s| args.len() == 2 && s.dtype().is_int() && s.dtype().bits == 32);
        let Some(scale) = scale.as_ref().and_then(PrimExpr::as_int).filter(|s| f.scales(dtype).contains(s)) else {
            let range = f.scales(dtype);
            let message =
                format!("`{what}` of {dtype} takes two values and a scale from {} to {}", range.start(), range.end());
            return self.report(Diagnostic::error("argument", span, message).help("T.int32(3)"));
        };
        self.llvm_operands(what, dtype, &mut args, 2, span)?;
        let mut named = Named::default();
        let args: Vec<PrimExpr> = args.into_iter().map(|a| named.once(a)).collect();
        match f.value(&args, scale, &mut |e| named.once(e)) {
            Some(value) => Some(named.around(value.cast(dtype))),
            None => self.unsupported("tir-extern", span, format!("`{what}` of {dtype} is not supported")),
        }
    }

    /// A function that is an operator of kernels. What float16 has no operator for is computed in float32, as LLVM does.
    fn llvm_operator(&mut self, f: Intrin, dtype: DType, args: Vec<PrimExpr>, span: Span) -> Option<PrimExpr> {
        if dtype.code == TypeCode::Float && dtype.bits == 16 && !matches!(f, Intrin::Fma) {
            let wide = DType::F32.with_lanes(dtype.lanes);
            let args: Vec<PrimExpr> = args.into_iter().map(|a| a.cast(wide)).collect();
            return Some(PrimExpr::call(f, args).cast(dtype));
        }
        self.function_type(f, dtype, &args, span)?;
        Some(PrimExpr::call(f, args))
    }

    /// Functions whose operands are of another type than their result.
    fn llvm_of_two_types(&mut self, base: &str, dtype: DType, args: &[PrimExpr]) -> Option<PrimExpr> {
        match (base, args) {
            ("lround" | "llround" | "lrint" | "llrint" | "fptosi.sat" | "fptoui.sat", [x]) => {
                let t = x.dtype();
                let whole = dtype.is_int() && matches!(dtype.bits, 8 | 16 | 32 | 64);
                let wide = matches!(dtype.bits, 32 | 64) || base.ends_with(".sat");
                if !t.is_float() || t.lanes != dtype.lanes || !whole || !wide {
                    return None;
                }
                let to = DType { code: if base == "fptoui.sat" { TypeCode::UInt } else { TypeCode::Int }, ..dtype };
                let mut named = Named::default();
                let number = match base {
                    "lround" | "llround" => floats::away_from_zero(&named.once(x.clone())),
                    "lrint" | "llrint" => PrimExpr::call(Intrin::NearbyInt, [x.clone()]),
                    _ => x.clone(),
                };
                Some(named.around(number.cast(to).cast(dtype)))
            }
            ("is.fpclass", [x, mask]) => {
                let mask = mask.as_int().filter(|m| mask.dtype().bits == 32 && (0..1 << classes::COUNT).contains(m))?;
                let of = dtype.is_bool() && x.dtype().lanes == dtype.lanes;
                let mut named = Named::default();
                let x = named.once(x.clone());
                let value = classes::is_in(&x, mask, &mut |e| named.once(e)).filter(|_| of)?;
                Some(named.around(value))
            }
            // `x` to a power, and times a power of two, that are int32.
            ("powi" | "ldexp", [x, n]) => {
                let whole = n.dtype() == DType::I32.with_lanes(dtype.lanes);
                if !dtype.is_float() || x.dtype() != dtype || !whole {
                    return None;
                }
                let value = match base {
                    "powi" => {
                        let wide = DType::F64.with_lanes(dtype.lanes);
                        PrimExpr::call(Intrin::Pow, [x.clone().cast(wide), n.clone().cast(wide)])
                    }
                    _ => {
                        let wide = if dtype.bits == 64 { DType::F64 } else { DType::F32 }.with_lanes(dtype.lanes);
                        PrimExpr::call(Intrin::LdExp, [x.clone().cast(wide), n.clone()])
                    }
                };
                Some(value.cast(dtype))
            }
            _ => None,
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
