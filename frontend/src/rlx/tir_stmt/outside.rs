//! Calls that leave a PrimFunc, and what it reads of the struct of a tensor.
//!
//! Source: TVM include/tvm/tirx/builtin.h: `tvm_call_packed`, `call_extern`, `tvm_struct_get`, `tvm_stack_make_array`.

use super::*;
use relax_ir::prim::Intrin;
use relax_ir::tir::{PackedArg, TensorField};

/// Functions of C's mathematical library that have an intrinsic of their own, for float64; those for float32 end in `f`.
const MATHEMATICS: [(&str, Intrin); 33] = [
    ("exp", Intrin::Exp),
    ("exp2", Intrin::Exp2),
    ("exp10", Intrin::Exp10),
    ("log", Intrin::Log),
    ("log2", Intrin::Log2),
    ("log10", Intrin::Log10),
    ("log1p", Intrin::Log1p),
    ("sqrt", Intrin::Sqrt),
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
    ("asinh", Intrin::Asinh),
    ("acosh", Intrin::Acosh),
    ("atanh", Intrin::Atanh),
    ("erf", Intrin::Erf),
    ("pow", Intrin::Pow),
    ("fmod", Intrin::Fmod),
    ("hypot", Intrin::Hypot),
    ("copysign", Intrin::CopySign),
    ("nextafter", Intrin::NextAfter),
    ("floor", Intrin::Floor),
    ("ceil", Intrin::Ceil),
    ("trunc", Intrin::Trunc),
    ("nearbyint", Intrin::NearbyInt),
    ("fabs", Intrin::Fabs),
    ("fma", Intrin::Fma),
];

/// Functions of C's mathematical library that others make exactly.
#[derive(Clone, Copy)]
enum Composed {
    /// The greater one; the number where the other is none.
    FMax,
    FMin,
    /// How much the first exceeds the second.
    FDim,
    /// Halves away from zero.
    Round,
    /// In the rounding direction of the machine, which is half to even.
    RInt,
}

const COMPOSED: [(&str, Composed); 5] = [
    ("fmax", Composed::FMax),
    ("fmin", Composed::FMin),
    ("fdim", Composed::FDim),
    ("round", Composed::Round),
    ("rint", Composed::RInt),
];

#[derive(Clone, Copy)]
enum Mathematics {
    Intrinsic(Intrin),
    Composed(Composed),
}

impl Mathematics {
    fn arity(self) -> usize {
        match self {
            Mathematics::Intrinsic(
                Intrin::Atan2 | Intrin::Pow | Intrin::Fmod | Intrin::Hypot | Intrin::CopySign | Intrin::NextAfter,
            ) => 2,
            Mathematics::Intrinsic(Intrin::Fma) => 3,
            Mathematics::Composed(Composed::FMax | Composed::FMin | Composed::FDim) => 2,
            Mathematics::Intrinsic(_) | Mathematics::Composed(Composed::Round | Composed::RInt) => 1,
        }
    }
}

/// Each argument has a name: it is computed once.
fn composed_of(f: Composed, args: Vec<PrimExpr>, dtype: DType, span: Span) -> PrimExpr {
    let names: Vec<Var> = (0..args.len()).map(|i| Var::with_span(format!("of_{i}"), dtype, span)).collect();
    let arg = |i: usize| names.get(i).unwrap_or(&names[0]).expr();
    let none = |i: usize| PrimExpr::call(Intrin::IsNan, vec![arg(i)]);
    let number = |first: PrimExpr| none(0).select(arg(1), none(1).select(arg(0), first.select(arg(0), arg(1))));
    let body = match f {
        Composed::FMax => number(arg(1).lt(arg(0))),
        Composed::FMin => number(arg(0).lt(arg(1))),
        Composed::FDim => arg(0).le(arg(1)).select(PrimExpr::float(dtype, 0.0), arg(0) - arg(1)),
        Composed::Round => {
            // What is cut off is exact; so is the sum with one, up to where floats have no fractions.
            let whole = PrimExpr::call(Intrin::Trunc, vec![arg(0)]);
            let signed = |v: PrimExpr| PrimExpr::call(Intrin::CopySign, vec![v, arg(0)]);
            let rest = PrimExpr::call(Intrin::Fabs, vec![arg(0) - whole.clone()]);
            let half = PrimExpr::float(dtype, 0.5);
            half.le(rest).select(whole.clone() + signed(PrimExpr::float(dtype, 1.0)), whole)
        }
        Composed::RInt => PrimExpr::call(Intrin::NearbyInt, vec![arg(0)]),
    };
    names.into_iter().zip(args).rev().fold(body, |body, (name, value)| PrimExpr::let_in(name, value, body))
}

impl<'a> Cx<'a> {
    /// `T.call_packed("name", ..)` and its kin as a statement; `None` when `call` is another call.
    pub(super) fn outside_call(&mut self, call: &CallExpr<'a>, span: Span, f: &PrimCx) -> Option<Option<TStmt>> {
        let skip = match call.func.dotted()?.strip_prefix("T.")? {
            "call_packed" | "call_cpacked" | "tvm_call_packed" | "tvm_call_cpacked" => 0,
            // The type of the result comes first.
            "call_extern" | "call_pure_extern" => 1,
            _ => return None,
        };
        Some(self.packed_call(call, skip, span, f))
    }

    fn packed_call(&mut self, call: &CallExpr<'a>, skip: usize, span: Span, f: &PrimCx) -> Option<TStmt> {
        let Some((name, args)) = call.args.get(skip..).and_then(<[_]>::split_first) else {
            return self.error("argument", span, "the name of the function is missing");
        };
        let function = self.string(name)?;
        let args: Vec<Option<PackedArg>> = args.iter().map(|a| self.packed_argument(a, f)).collect();
        let args = args.into_iter().collect::<Option<Vec<_>>>()?;
        Some(TStmt::at(TKind::CallPacked { function, args }, span))
    }

    fn packed_argument(&mut self, e: &Expr<'a>, f: &PrimCx) -> Option<PackedArg> {
        if let Some(s) = self.text_of(e) {
            return Some(PackedArg::Text(s));
        }
        match e.as_name().and_then(|n| self.names.get(n)) {
            Some(Value::Handle(i, handle)) => {
                return Some(match f.params.get(*i) {
                    Some(Some(PrimParam::Buffer { buffer, .. })) => PackedArg::Tensor(buffer.clone()),
                    _ => PackedArg::Handle(handle.clone()),
                })
            }
            Some(Value::Buffer(b)) => return Some(PackedArg::Tensor(b.clone())),
            _ => {}
        }
        if let ExprKind::Attribute(base, field) = &e.kind {
            if field.name == "data" {
                return self.buffer(base).map(PackedArg::Tensor);
            }
        }
        if let Some(call) = e.as_call() {
            match call.func.dotted().as_deref() {
                Some("T.tvm_stack_make_array") => return self.made_array(call, e.span).map(PackedArg::Tensor),
                Some("T.tvm_access_ptr") => match call.args.get(1) {
                    Some(data) if self.pointer(data).is_none() => return self.packed_argument(data, f),
                    _ => {}
                },
                _ => {}
            }
        }
        if let Some(pointer) = self.pointer(e) {
            let pointer = pointer?;
            if !pointer.begin() {
                return self.unsupported("tir-extern", e.span, "a pointer into a buffer cannot be given away");
            }
            return Some(PackedArg::Tensor(pointer.base));
        }
        self.prim(e).map(PackedArg::Scalar)
    }

    /// The buffer behind `T.tvm_stack_make_array(buffer.data, shape, strides, ndim, type, offset)`, all of it.
    fn made_array(&mut self, call: &CallExpr<'a>, span: Span) -> Option<Buffer> {
        let Some(ExprKind::Attribute(base, field)) = call.args.first().map(|a| &a.kind) else {
            return self.error("argument", span, "T.tvm_stack_make_array takes the data of a buffer first");
        };
        if field.name != "data" {
            return self.error("argument", span, "T.tvm_stack_make_array takes the data of a buffer first");
        }
        let buffer = self.buffer(base)?;
        if let Some(shape) = call.args.get(1).and_then(Expr::as_call) {
            let dims: Vec<Option<PrimExpr>> = shape.args.iter().map(|d| self.prim(d)).collect();
            let dims = dims.into_iter().collect::<Option<Vec<_>>>()?;
            let same = |(a, b): (&PrimExpr, &PrimExpr)| a == b || a.as_int().is_some() && a.as_int() == b.as_int();
            if dims.len() != buffer.ndim() || !dims.iter().zip(&buffer.shape).all(same) {
                let what = format!("`{}` under another shape cannot be given away", buffer.name);
                return self.unsupported("tir-extern", span, what);
            }
        }
        Some(buffer)
    }

    /// `T.tvm_struct_get(handle, 0, field, dtype="..")` of a parameter: a variable that the argument binds.
    pub fn struct_field(&mut self, call: &CallExpr<'a>, span: Span) -> Option<PrimExpr> {
        let (Some(from), Some(number)) = (call.args.first(), call.args.get(2)) else {
            return self.error("argument", span, "T.tvm_struct_get takes a handle, an index, a field and a dtype");
        };
        let Some(Value::Handle(i, handle)) = from.as_name().and_then(|n| self.names.get(n)).cloned() else {
            let d = Diagnostic::unsupported("tir-struct", from.span, "only structs of parameters are read");
            return self.report(d.help("the first argument is a parameter `x: T.handle`"));
        };
        if !call.args.get(1).is_none_or(|e| matches!(&e.kind, ExprKind::Int(t) if *t == "0")) {
            return self.unsupported("tir-struct", span, "a parameter is one tensor: its index is 0");
        }
        let number_span = number.span;
        let number = self.int(number)?;
        let Some(field) = TensorField::from_number(number) else {
            let d = Diagnostic::unsupported("tir-struct", number_span, format!("field {number} cannot be read here"));
            return self.report(d.help("match the handle with T.match_buffer: that gives its data, shape and strides"));
        };
        let dtype = match call.arg(3, "dtype") {
            Some(d) => self.dtype(d)?,
            None => DType::I32,
        };
        if !dtype.is_int() || dtype.lanes != 1 {
            return self.error("type", span, format!("a field is an integer, not {dtype}"));
        }
        let known = self.names.read.iter().find(|(at, f, v)| *at == i && *f == field && v.dtype() == dtype);
        if let Some((.., v)) = known {
            return Some(v.expr());
        }
        let v = Var::with_span(format!("{}_field{number}", handle.name()), dtype, span);
        self.names.read.push((i, field, v.clone()));
        Some(v.expr())
    }

    /// `T.call_extern("float32", "expf", x)` inside of an expression: functions of C's mathematical library.
    pub fn extern_value(&mut self, call: &CallExpr<'a>, span: Span) -> Option<PrimExpr> {
        let [dtype, name, args @ ..] = call.args.as_slice() else {
            return self.error("argument", span, "a type and the name of the function are missing");
        };
        let (dtype, what) = (self.dtype(dtype)?, self.string(name)?);
        let base = match dtype {
            DType::F32 => what.strip_suffix('f').unwrap_or(&what),
            _ => what.as_str(),
        };
        let function =
            MATHEMATICS.iter().find(|(n, _)| *n == base || *n == what).map(|(_, f)| Mathematics::Intrinsic(*f));
        let exactly = match dtype {
            DType::F32 => what.strip_suffix('f'),
            DType::F64 => Some(what.as_str()),
            _ => None,
        };
        let composed = COMPOSED.iter().find(|(n, _)| Some(*n) == exactly).map(|(_, f)| Mathematics::Composed(*f));
        let Some(f) = function.or(composed).filter(|_| dtype.is_float()) else {
            let d = Diagnostic::unsupported("tir-extern", span, format!("this PrimFunc calls `{what}` outside"))
                .here("inside of an expression only functions of C's mathematical library can be called");
            return self
                .report(d.help("as a statement of its own, `T.call_packed(name, ..)` calls what the host registers"));
        };
        let args: Vec<Option<PrimExpr>> = args.iter().map(|a| self.prim_as(a, dtype)).collect();
        let args = args.into_iter().collect::<Option<Vec<_>>>()?;
        if args.len() != f.arity() {
            let message = format!("`{what}` takes {} arguments, {} given", f.arity(), args.len());
            return self.error("argument", span, message);
        }
        Some(match f {
            Mathematics::Intrinsic(f) => PrimExpr::call(f, args),
            Mathematics::Composed(f) => composed_of(f, args, dtype, span),
        })
    }
}
