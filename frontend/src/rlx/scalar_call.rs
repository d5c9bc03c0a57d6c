//! Calls within scalar expressions: `T.name(..)`.

use super::context::{Cx, Value};
use super::scalar::{fits, Num};
use super::syntax::*;
use super::tir_func::named_type;
use super::tir_stmt::lanes_of;
use crate::suggest::nearest;
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind};
use relax_ir::tir::Buffer;
use relax_ir::{DType, Diagnostic, Span, Var};
use std::sync::Arc;

/// Functions of `T` other than types and intrinsics, for suggestions.
const FUNCTIONS: [&str; 27] = [
    "Cast",
    "cast",
    "Select",
    "if_then_else",
    "max",
    "min",
    "Div",
    "truncdiv",
    "truncmod",
    "floordiv",
    "floormod",
    "ceildiv",
    "Let",
    "reinterpret",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "shift_left",
    "shift_right",
    "Ramp",
    "Broadcast",
    "And",
    "Or",
    "Not",
    "infinity",
    "max_value",
    "min_value",
];

fn binary_function(name: &str) -> Option<BinOp> {
    Some(match name {
        "Add" => BinOp::Add,
        "Sub" => BinOp::Sub,
        "Mul" => BinOp::Mul,
        "Div" | "div" => BinOp::Div,
        "truncdiv" => BinOp::TruncDiv,
        "Mod" | "truncmod" => BinOp::TruncMod,
        "FloorDiv" | "floordiv" | "indexdiv" => BinOp::FloorDiv,
        "FloorMod" | "floormod" | "indexmod" => BinOp::FloorMod,
        "min" | "Min" => BinOp::Min,
        "max" | "Max" => BinOp::Max,
        "EQ" => BinOp::Eq,
        "NE" => BinOp::Ne,
        "LT" => BinOp::Lt,
        "LE" => BinOp::Le,
        "GT" => BinOp::Gt,
        "GE" => BinOp::Ge,
        "And" => BinOp::And,
        "Or" => BinOp::Or,
        "bitwise_and" | "BitwiseAnd" => BinOp::BitAnd,
        "bitwise_or" | "BitwiseOr" => BinOp::BitOr,
        "bitwise_xor" | "BitwiseXor" => BinOp::BitXor,
        "shift_left" | "LShift" => BinOp::Shl,
        "shift_right" | "RShift" => BinOp::Shr,
        _ => return None,
    })
}

impl<'a> Cx<'a> {
    pub fn scalar_call(&mut self, call: &CallExpr<'a>, span: Span) -> Option<Num> {
        let Some(name) = call.func.dotted() else {
            return match method(call) {
                Some((of, method)) => self.method(of, method, call, span).map(Num::Expr),
                None => self.expected(&call.func, "a function of T"),
            };
        };
        let Some(name) = name.strip_prefix("T.") else {
            if let Some(found) = self.python_function(&name, call, span) {
                return found;
            }
            if let Some((of, method)) = method(call) {
                return self.method(of, method, call, span).map(Num::Expr);
            }
            if matches!(name.as_str(), "min" | "max") {
                let d = Diagnostic::error("unknown-name", call.func.span, format!("`{name}` is Python's"));
                return self.report(d.help(format!("write `T.{name}`")));
            }
            if let ("float", [arg]) = (name.as_str(), call.args.as_slice()) {
                return self.python_float(arg);
            }
            if let ("R.prim_value", Some(arg)) = (name.as_str(), call.args.first()) {
                return self.num(arg);
            }
            if let Some(kernel) = self.function_of_module(&name) {
                let d = Diagnostic::error(
                    "tir-call",
                    span,
                    format!("a kernel calls no function of its module: `{kernel}`"),
                );
                return self.report(d.help("write here what it computes, or call it from a Relax function"));
            }
            return self.error("type", span, format!("`{name}(..)` is no scalar expression"));
        };
        if let Some(op) = binary_function(name) {
            let names = match name {
                "bitwise_and" | "bitwise_or" | "bitwise_xor" | "shift_left" | "shift_right" => ["x", "y"],
                _ => ["a", "b"],
            };
            let [a, b] = self.operands(call, span, names)?;
            let (x, y) = (self.num(a), self.num(b));
            let (mut x, mut y) = (x?, y?);
            self.bool_operands(op, &x, &y, span)?;
            if name.starts_with(|c: char| c.is_ascii_uppercase()) {
                // In a kernel such a node promotes nothing, not even literals.
                if self.names.int == DType::I32 {
                    (x, y) = (Num::Expr(self.settle(x)), Num::Expr(self.settle(y)));
                }
                self.one_type(&x, &y, span)?;
            }
            return self.binary_op(op, x, y, span).map(Num::Expr);
        }
        if let Some(dtype) = named_type(name) {
            return self.typed(dtype, call, span).map(Num::Expr);
        }
        self.scalar_function(name, call, span).map(|p| Num::Expr(p.with_span(span)))
    }

    /// `Module.name` of a function that the module has.
    fn function_of_module<'n>(&self, name: &'n str) -> Option<&'n str> {
        let (module, name) = name.split_once('.')?;
        (module == self.module_name && self.globals.contains(&name)).then_some(name)
    }

    /// Python's `float("inf")`, of the type that the other operand decides.
    fn python_float(&mut self, arg: &Expr<'a>) -> Option<Num> {
        let v = match (arg.as_str(), &arg.kind) {
            (Some("inf" | "infinity"), _) => f64::INFINITY,
            (Some("-inf" | "-infinity"), _) => f64::NEG_INFINITY,
            (Some("nan"), _) => f64::NAN,
            (None, ExprKind::Int(_) | ExprKind::Float(_)) => match self.num(arg)? {
                Num::Int(v) => v as f64,
                n => return Some(n),
            },
            _ => return self.expected(arg, "a number, \"inf\" or \"nan\""),
        };
        Some(Num::Float(v, v as f32))
    }

    /// Python's own functions of literals; `None` for other names and for values that only the kernel computes.
    fn python_function(&mut self, name: &str, call: &CallExpr<'a>, span: Span) -> Option<Option<Num>> {
        if !matches!(name, "len" | "int" | "abs" | "min" | "max") || !call.keywords.is_empty() {
            return None;
        }
        if let ("len", [of]) = (name, call.args.as_slice()) {
            if let Some(text) = self.text_of(of) {
                return Some(Some(Num::Int(text.chars().count() as i128)));
            }
            let dims = self.spread(of, span);
            return Some(dims.map(|d| Num::Int(d.len() as i128)));
        }
        let literal = |e: &Expr| match &e.kind {
            ExprKind::Int(_) | ExprKind::Float(_) => true,
            ExprKind::Unary(_, a) => matches!(a.kind, ExprKind::Int(_) | ExprKind::Float(_)),
            _ => false,
        };
        if !call.args.iter().all(literal) {
            return None;
        }
        let values: Vec<Option<Num>> = call.args.iter().map(|a| self.num(a)).collect();
        let values = values.into_iter().collect::<Option<Vec<Num>>>()?;
        let real = |n: &Num| match n {
            Num::Int(v) => *v as f64,
            Num::Float(d, _) => *d,
            Num::Expr(_) => f64::NAN,
        };
        let picked =
            |more: bool| values.iter().cloned().reduce(|a, b| if (real(&b) > real(&a)) == more { b } else { a });
        let found = match (name, values.as_slice()) {
            ("int", [Num::Float(d, _)]) => Some(Num::Int(*d as i128)),
            ("int", [n]) => Some(n.clone()),
            ("abs", [Num::Int(v)]) => Some(Num::Int(v.abs())),
            ("abs", [Num::Float(d, s)]) => Some(Num::Float(d.abs(), s.abs())),
            ("max", [_, _, ..]) => picked(true),
            ("min", [_, _, ..]) => picked(false),
            _ => None,
        };
        Some(found.or_else(|| self.error("argument", span, format!("`{name}` does not take these arguments"))))
    }

    /// `x.astype("int32")`, `buffer.vload([i], "float32x4")`
    fn method(&mut self, of: &Expr<'a>, name: &str, call: &CallExpr<'a>, span: Span) -> Option<PrimExpr> {
        if name == "astype" {
            let Some(t) = call.arg(0, "dtype") else {
                return self.error("argument", span, "astype takes a data type");
            };
            let (t, v) = (self.dtype(t), self.prim(of));
            let (t, v) = (t?, v?);
            if t.lanes != v.dtype().lanes && self.in_kernel() {
                return self.error("type", span, format!("{} and {t} differ in their lanes", v.dtype()));
            }
            let t = if t.lanes == 1 { t.with_lanes(v.dtype().lanes) } else { t };
            return Some(self.convert(v, t));
        }
        let Some(begin) = call.arg(0, "begin") else {
            return self.error("argument", span, "vload takes the indices of its first element");
        };
        let buffer = self.buffer(of)?;
        let lanes = match call.arg(1, "dtype").filter(|d| !matches!(d.kind, ExprKind::None)) {
            Some(d) => {
                let t = self.dtype(d)?;
                if t.element() != buffer.dtype().element() {
                    let message = format!("`{}` is of {}, not of {}", buffer.name, buffer.dtype(), t.element());
                    return self.error("type", d.span, message);
                }
                t.lanes
            }
            None => 1,
        };
        let indices = self.vector_at(&buffer, begin, lanes)?;
        let lanes = indices.iter().map(|i| i.dtype().lanes).max().unwrap_or(lanes);
        Some(PrimExpr::raw_at(
            PrimKind::BufferLoad(buffer.clone(), indices.into()),
            buffer.dtype().with_lanes(lanes),
            span,
        ))
    }

    /// Indices of `lanes` elements in a row.
    pub fn vector_at(&mut self, buffer: &Buffer, begin: &Expr<'a>, lanes: u16) -> Option<Vec<PrimExpr>> {
        let mut indices = self.indices(buffer, begin)?;
        if let Some(own) = self.vector_lanes(buffer) {
            if lanes == own || lanes == 1 {
                return Some(indices);
            }
            if !lanes.is_multiple_of(own) {
                let message = format!("{lanes} lanes are no vectors of {own}");
                return self.error("type", begin.span, message);
            }
            indices.pop();
            if let Some(last) = indices.last_mut() {
                *last = last.clone().ramp(PrimExpr::int(last.dtype(), 1), lanes / own);
            }
            return self.whole_vectors(indices, own, begin.span);
        }
        if let (Some(last), true) = (indices.last_mut(), lanes > 1) {
            *last = last.clone().ramp(PrimExpr::int(last.dtype(), 1), lanes);
        }
        Some(indices)
    }

    /// Exactly these arguments, by position or by name.
    fn named<'c, const N: usize>(
        &mut self,
        call: &'c CallExpr<'a>,
        span: Span,
        names: [&str; N],
    ) -> Option<[&'c Expr<'a>; N]> {
        let args: Vec<&Expr<'a>> = names.iter().enumerate().filter_map(|(i, n)| call.arg(i, n)).collect();
        self.exactly(args, call, span)
    }

    /// Exactly these operands, by position or by name, and nothing else.
    fn operands<'c, const N: usize>(
        &mut self,
        call: &'c CallExpr<'a>,
        span: Span,
        names: [&str; N],
    ) -> Option<[&'c Expr<'a>; N]> {
        if call.args.len() > N {
            return self.arguments(call, span);
        }
        // TVM passes over `dtype=` and `span=`.
        let known = |k: &str| names.contains(&k) || matches!(k, "dtype" | "span");
        if let Some((k, _)) = call.keywords.iter().find(|(k, _)| !known(k.name)) {
            let what = call.func.dotted().unwrap_or_default();
            let d = Diagnostic::error("argument", k.span, format!("{what} has no argument `{}`", k.name));
            return self.report(d.help(format!("its arguments are {}", names.join(", "))));
        }
        self.named(call, span, names)
    }

    /// Exactly `N` positional arguments.
    fn arguments<'c, const N: usize>(&mut self, call: &'c CallExpr<'a>, span: Span) -> Option<[&'c Expr<'a>; N]> {
        let args: Vec<&Expr<'a>> = call.args.iter().collect();
        self.exactly(args, call, span)
    }

    fn exactly<'c, const N: usize>(
        &mut self,
        args: Vec<&'c Expr<'a>>,
        call: &CallExpr<'a>,
        span: Span,
    ) -> Option<[&'c Expr<'a>; N]> {
        match <[&Expr<'a>; N]>::try_from(args) {
            Ok(a) => Some(a),
            Err(got) => {
                let what = call.func.dotted().unwrap_or_default();
                let s = if N == 1 { "" } else { "s" };
                self.error("argument", span, format!("{what} takes {N} argument{s}, {} given", got.len()))
            }
        }
    }

    /// `T.float32(1.5)`, `T.float32("inf")`, `T.int64(x)`.
    pub fn typed(&mut self, dtype: DType, call: &CallExpr<'a>, span: Span) -> Option<PrimExpr> {
        let Some(arg) = call.arg(0, "expr") else {
            let d = Diagnostic::error("argument", span, "a value is needed here");
            return self.report(d.help(format!("a variable is declared by a line of its own: `n = T.{dtype}()`")));
        };
        if let Some(more) = call.args.get(1) {
            return self.error("argument", more.span, format!("T.{dtype} takes one value"));
        }
        if let Some(s) = arg.as_str() {
            let v = match s {
                "inf" | "infinity" => f64::INFINITY,
                "-inf" | "-infinity" => f64::NEG_INFINITY,
                "nan" => f64::NAN,
                _ => return self.error("argument", arg.span, format!("`{s}` is no {dtype}")),
            };
            if !dtype.is_float() {
                return self.error("type", arg.span, format!("{dtype} has no value \"{s}\""));
            }
            return Some(PrimExpr::float(dtype, v).with_span(span));
        }
        if dtype.is_handle() {
            return self.error("type", span, "a handle is no number");
        }
        match self.num(arg)? {
            Num::Float(d, _) if !dtype.is_float() => Some(PrimExpr::int(dtype, d as i64).with_span(span)),
            Num::Int(v) if (dtype.is_int() || dtype.is_bool()) && dtype.lanes == 1 && !fits(dtype, v) => {
                self.error("type", arg.span, format!("{v} is no value of {dtype}"))
            }
            n => Some(self.settle_as(n, dtype).with_span(span)),
        }
    }

    fn scalar_function(&mut self, name: &str, call: &CallExpr<'a>, span: Span) -> Option<PrimExpr> {
        match name {
            "Cast" => {
                let [t, v] = self.named(call, span, ["dtype", "value"])?;
                let (t, v) = (self.dtype(t), self.prim(v));
                let (t, v) = (t?, v?);
                if t.is_handle() {
                    return self.error("type", span, format!("{} is no handle", v.dtype()));
                }
                let t = if t.lanes == 1 { t.with_lanes(v.dtype().lanes) } else { t };
                Some(self.convert(v, t))
            }
            "cast" => {
                let [v, t] = self.operands(call, span, ["value", "dtype"])?;
                let (t, v) = (self.dtype(t), self.prim(v));
                let (t, v) = (t?, v?);
                let t = if t.lanes == 1 { t.with_lanes(v.dtype().lanes) } else { t };
                Some(self.convert(v, t))
            }
            "reinterpret" => {
                let [t, v] = self.named(call, span, ["dtype", "value"])?;
                let (t, v) = (self.dtype(t), self.prim(v));
                let (t, v) = (t?, v?);
                let from = v.dtype();
                // A bool has one bit where TVM reads it as another type.
                let bits = t.bits as u32 * t.lanes as u32 == from.bits as u32 * from.lanes as u32;
                if !bits || t.is_bool() != from.is_bool() && self.in_kernel() {
                    return self.error("type", span, format!("{from} and {t} differ in size"));
                }
                Some(PrimExpr::raw(PrimKind::Reinterpret(v), t))
            }
            "Select" | "if_then_else" => {
                let names = match name {
                    "Select" => ["condition", "true_value", "false_value"],
                    _ => ["cond", "t", "f"],
                };
                let [c, a, b] = self.named(call, span, names)?;
                let cond = self.condition(c);
                let (a, b) = (self.num(a)?, self.num(b)?);
                // In a kernel `T.Select` promotes nothing, not even literals.
                let (a, b) = match (name, self.names.int) {
                    ("Select", DType::I32) => {
                        let (a, b) = (Num::Expr(self.settle(a)), Num::Expr(self.settle(b)));
                        self.one_type(&a, &b, span)?;
                        (a, b)
                    }
                    _ => (a, b),
                };
                let (cond, (a, b)) = (cond?, self.matched(a, b, span)?);
                let d = a.dtype();
                Some(PrimExpr::raw(
                    if name == "Select" { PrimKind::Select(cond, a, b) } else { PrimKind::IfThenElse(cond, a, b) },
                    d,
                ))
            }
            // Numbers with their type.
            "IntImm" | "FloatImm" => {
                let [dtype, value] = self.named(call, span, ["dtype", "value"])?;
                let dtype = self.dtype(dtype)?;
                if dtype.lanes != 1 || dtype.is_float() != (name == "FloatImm") || dtype.is_handle() {
                    let wanted = if name == "FloatImm" { "floats" } else { "integers" };
                    return self.error("type", span, format!("T.{name} is for {wanted}, not for {dtype}"));
                }
                let literal = CallExpr { func: call.func.clone(), args: vec![value.clone()], keywords: vec![] };
                self.typed(dtype, &literal, span)
            }
            "BufferLoad" => {
                let [base, indices] = self.named(call, span, ["buffer", "indices"])?;
                if indices.elements().is_none() {
                    return self.expected(indices, "a list of indices");
                }
                self.element(base, indices, span)
            }
            // A name of Python for the value.
            "meta_var" | "bind" | "Bind" => {
                let [value] = self.arguments(call, span)?;
                self.prim(value)
            }
            "q_multiply_shift" => {
                let [x, y, q, s] = self.named(call, span, ["x", "y", "q", "s"])?;
                self.fixed_point(x, y, q, s, span)
            }
            "q_multiply_shift_per_axis" => {
                let names = ["x", "y", "ls", "rs", "q", "is_lshift_required", "is_rshift_required"];
                let args = self.named(call, span, names)?;
                self.fixed_point_per_axis(args, span)
            }
            // Advice for threads: the value itself.
            "tvm_thread_invariant" => {
                let [value] = self.operands(call, span, ["cond"])?;
                self.prim(value)
            }
            "ceildiv" => {
                let [a, b] = self.operands(call, span, ["lhs", "rhs"])?;
                let (a, b) = (self.num(a), self.num(b));
                let (a, b) = self.matched(a?, b?, span)?;
                if !a.dtype().is_int() {
                    return self.error("type", span, "integer operands are needed here");
                }
                let one = PrimExpr::int(a.dtype(), 1);
                let sum = PrimExpr::raw_binary(BinOp::Sub, PrimExpr::raw_binary(BinOp::Add, a, b.clone()), one);
                Some(PrimExpr::raw_binary(BinOp::FloorDiv, sum, b))
            }
            "Not" | "logical_not" => {
                let [a] = self.operands(call, span, ["a"])?;
                let a = self.condition(a)?;
                Some(PrimExpr::raw(PrimKind::Not(a), DType::BOOL))
            }
            "BitwiseNot" => {
                let [a] = self.operands(call, span, ["a"])?;
                let a = self.prim(a)?;
                self.function_type(Intrin::BitNot, a.dtype(), &[], span)?;
                Some(match a.dtype().is_bool() {
                    true => PrimExpr::raw(PrimKind::Not(a), DType::BOOL),
                    false => PrimExpr::call(Intrin::BitNot, [a]),
                })
            }
            // Advice for loops: the condition itself.
            "ignore_loop_partition" => {
                let [predicate] = self.operands(call, span, ["predicate"])?;
                self.condition(predicate)
            }
            // The memory of a buffer is there.
            "isnullptr" => {
                let [x] = self.operands(call, span, ["x"])?;
                match self.pointer(x) {
                    Some(pointer) => pointer.map(|_| PrimExpr::bool(false)),
                    None => self.expected(x, "the memory of a buffer, `A.data`,"),
                }
            }
            "Shuffle" => {
                let [vectors, indices] = self.operands(call, span, ["vectors", "indices"])?;
                match (vectors.elements(), indices.elements()) {
                    (Some(vectors), Some(indices)) => self.shuffle(vectors, indices, span),
                    _ => self.error("argument", span, "T.Shuffle takes a list of vectors and a list of indices"),
                }
            }
            "vectorcombine" => {
                let [dtype, a, b] = self.named(call, span, ["dtype", "vec1", "vec2"])?;
                let (dtype, a, b) = (self.dtype(dtype)?, self.prim(a)?, self.prim(b)?);
                self.combined(dtype, a, b, span)
            }
            "vectorlow" | "vectorhigh" => {
                let [dtype, vec] = self.named(call, span, ["dtype", "vec"])?;
                let (dtype, vec) = (self.dtype(dtype)?, self.prim(vec)?);
                let whole = vec.dtype();
                if dtype.lanes.checked_mul(2) != Some(whole.lanes) || dtype.element() != whole.element() {
                    return self.error("type", span, format!("{dtype} is no half of {whole}"));
                }
                let from = if name == "vectorhigh" { dtype.lanes } else { 0 };
                match lanes_of(&vec, from, dtype.lanes) {
                    Some(half) => Some(half),
                    None => self.unsupported("tir", span, "a half of a vector that a name stands for is not supported"),
                }
            }
            // A function of TVM by the name of its operator.
            "call_intrin" if call.keywords.is_empty() && call.args.len() > 2 => {
                let (dtype, op) = (self.dtype(&call.args[0])?, self.string(&call.args[1])?);
                let Some(f) = op.strip_prefix("tirx.").and_then(Intrin::from_name) else {
                    return self.unsupported("tir-extern", span, format!("the operator `{op}` is not supported here"));
                };
                let inner = CallExpr { func: call.func.clone(), args: call.args[2..].to_vec(), keywords: vec![] };
                let value = self.intrinsic(f, &inner, span)?;
                if value.dtype() != dtype {
                    let message = format!("`{op}` gives {}, {dtype} is stated", value.dtype());
                    return self.error("type", span, message);
                }
                Some(value)
            }
            "Let" => self.let_expr(call, span),
            "Ramp" | "ramp" => {
                let [base, stride, lanes] = self.operands(call, span, ["base", "stride", "lanes"])?;
                let (base, stride) = (self.num(base), self.num(stride));
                let (base, stride) = self.matched(base?, stride?, span)?;
                let lanes = self.lanes(lanes)?;
                Some(base.ramp(stride, lanes))
            }
            "Broadcast" | "broadcast" => {
                let [value, lanes] = self.operands(call, span, ["value", "lanes"])?;
                let (value, lanes) = (self.prim(value), self.lanes(lanes));
                Some(value?.broadcast(lanes?))
            }
            "infinity" | "max_value" | "min_value" => {
                let [t] = self.arguments(call, span)?;
                let t = self.dtype(t)?;
                let none = if name == "infinity" { !t.is_float() } else { t.is_bool() || t.is_handle() };
                if none && self.in_kernel() {
                    return self.error("type", span, format!("{t} has no T.{name}"));
                }
                Some(match name {
                    "infinity" => PrimExpr::float(t, f64::INFINITY),
                    "max_value" => PrimExpr::max_value(t),
                    _ => PrimExpr::min_value(t),
                })
            }
            // TVM 0.23 and before.
            "power" => self.intrinsic(Intrin::Pow, call, span),
            "tvm_struct_get" => self.struct_field(call, span),
            "call_extern" | "call_pure_extern" => self.extern_value(call, span),
            "call_llvm_intrin" | "call_llvm_pure_intrin" => self.llvm_function(call, span),
            "tvm_struct_set" => {
                let d = Diagnostic::unsupported("tir-struct", span, "the struct of a tensor cannot be written");
                self.report(d.help("its data is written through a buffer: T.match_buffer"))
            }
            "call_packed" | "call_cpacked" | "call_intrin" | "tvm_call_packed" | "tvm_call_cpacked" => {
                let what = call.args.iter().find_map(Expr::as_str).unwrap_or("?").to_string();
                let d = Diagnostic::unsupported("tir-extern", span, format!("this PrimFunc calls `{what}` outside"))
                    .here("such calls are not supported inside of an expression");
                self.report(
                    d.help("as a statement of its own, `T.call_packed(name, ..)` calls what the host registers"),
                )
            }
            _ => match Intrin::from_name(name) {
                Some(f)
                    if !matches!(
                        f,
                        Intrin::ReduceAdd
                            | Intrin::ReduceMax
                            | Intrin::ReduceMin
                            | Intrin::ExtractLane
                            | Intrin::TileRows
                            | Intrin::TileDot
                    ) =>
                {
                    self.intrinsic(f, call, span)
                }
                _ => {
                    let known = FUNCTIONS.into_iter().chain(Intrin::ALL.iter().map(|i| i.name()));
                    let mut d = Diagnostic::unsupported("tir", call.func.span, format!("`T.{name}` is not supported"));
                    if let Some(n) = nearest(name, known) {
                        d = d.help(format!("did you mean `T.{n}`?"));
                    }
                    self.report(d)
                }
            },
        }
    }

    fn lanes(&mut self, e: &Expr<'a>) -> Option<u16> {
        match u16::try_from(self.int(e)?) {
            Ok(n) if n >= 2 => Some(n),
            _ => self.error("argument", e.span, "a vector has from 2 to 65535 lanes"),
        }
    }

    /// A bool; literals 0 and 1 too where Relax or `T.where` has them.
    pub fn condition_or_number(&mut self, e: &Expr<'a>) -> Option<PrimExpr> {
        match &e.kind {
            ExprKind::Int(_) => match self.num(e)? {
                Num::Int(v @ (0 | 1)) => Some(PrimExpr::bool(v == 1).with_span(e.span)),
                _ => self.condition(e),
            },
            _ => self.condition(e),
        }
    }

    /// A bool.
    pub fn condition(&mut self, e: &Expr<'a>) -> Option<PrimExpr> {
        let p = match self.num(e)? {
            Num::Int(v @ (0 | 1)) if !self.in_kernel() => PrimExpr::bool(v == 1),
            n => self.settle(n),
        };
        if !p.dtype().is_bool() {
            let t = p.dtype();
            let d = Diagnostic::error("type", e.span, format!("a condition must be bool, this is {t}"));
            return self.report(d.help("compare it: `x != 0`"));
        }
        Some(p.with_span(e.span))
    }

    /// Literals among the arguments take the type of the first that has one.
    fn intrinsic(&mut self, f: Intrin, call: &CallExpr<'a>, span: Span) -> Option<PrimExpr> {
        let args: Vec<&Expr<'a>> = match f {
            Intrin::Atan2 | Intrin::Hypot | Intrin::CopySign | Intrin::NextAfter | Intrin::LdExp => {
                self.operands(call, span, ["x1", "x2"])?.into()
            }
            Intrin::Pow | Intrin::Fmod => self.operands(call, span, ["x", "y"])?.into(),
            Intrin::Fma => self.operands(call, span, ["x", "y", "z"])?.into(),
            Intrin::Likely => self.operands(call, span, ["cond"])?.into(),
            _ => self.operands(call, span, ["x"])?.into(),
        };
        let nums: Vec<Option<Num>> = args.into_iter().map(|a| self.num(a)).collect();
        let nums: Option<Vec<Num>> = nums.into_iter().collect();
        let nums = nums?;
        if let (false, Some(Num::Expr(p))) = (takes_integers(f), nums.first()) {
            if p.dtype().is_int() || p.dtype().is_bool() {
                let d = Diagnostic::error("type", span, format!("T.{} of {} is not defined", f.name(), p.dtype()));
                return self.report(d.help("cast its argument to a float: T.Cast(\"float32\", x)"));
            }
        }
        if let (Intrin::PopCount, Some(Num::Expr(p))) = (f, nums.first()) {
            if p.dtype().is_float() {
                let d = Diagnostic::error("type", span, format!("T.{} of {} is not defined", f.name(), p.dtype()));
                return self.report(d.help("it counts the bits of an integer"));
            }
        }
        let dtype = nums.iter().find_map(|n| match n {
            Num::Expr(p) => Some(p.dtype()),
            _ => None,
        });
        let args: Vec<PrimExpr> = nums
            .into_iter()
            .map(|n| match (n, dtype) {
                (n @ (Num::Int(_) | Num::Float(..)), Some(t)) => self.settle_as(n, t),
                (n, _) => self.settle(n),
            })
            .collect();
        let dtype = args.first().map_or(DType::F32, PrimExpr::dtype);
        self.function_type(f, dtype, &args, span)?;
        let args: Arc<[PrimExpr]> = args.into();
        Some(PrimExpr::call(f, args))
    }

    /// `T.q_multiply_shift(x, y, q, s)`: `round(x * y * 2^(s - q))`, halves up, in 64 bits.
    ///
    /// Source: TVM src/tirx/op (`q_multiply_shift`) and its lowering in src/target/intrin_rule.cc.
    fn fixed_point(&mut self, x: &Expr<'a>, y: &Expr<'a>, q: &Expr<'a>, s: &Expr<'a>, span: Span) -> Option<PrimExpr> {
        let (x, y) = (self.prim(x)?, self.prim_as(y, DType::I32)?);
        let (q, s) = (self.int(q)?, self.int(s)?);
        let right = q.checked_sub(s).filter(|r| (1..=62).contains(r));
        let (Some(right), DType::I32) = (right, x.dtype()) else {
            return self.unsupported(
                "tir",
                span,
                "T.q_multiply_shift takes int32 and a shift from 1 to 62 bits in all",
            );
        };
        let wide = |v: i64| PrimExpr::int(DType::I64, v);
        let product = PrimExpr::raw_binary(BinOp::Mul, x.cast(DType::I64), y.cast(DType::I64));
        let sum = PrimExpr::raw_binary(BinOp::Add, product, wide(1 << (right - 1)));
        Some(self.convert(PrimExpr::raw_binary(BinOp::Shr, sum, wide(right)), DType::I32))
    }

    /// `T.q_multiply_shift_per_axis(x, y, ls, rs, q, ..)`: as `T.q_multiply_shift`, `x` shifted to the left before.
    fn fixed_point_per_axis(&mut self, args: [&Expr<'a>; 7], span: Span) -> Option<PrimExpr> {
        let [x, y, left, right, q, shifted, also_right] = args;
        let (x, y) = (self.prim(x)?, self.prim_as(y, DType::I32)?);
        let (left, right) = (self.prim_as(left, DType::I64)?, self.prim_as(right, DType::I64)?);
        let (q, shifted, _) = (self.int(q)?, self.prim(shifted)?.as_int(), self.prim(also_right)?);
        let wide = |v: i64| PrimExpr::int(DType::I64, v);
        let by = PrimExpr::binary(BinOp::Add, right, wide(q));
        let known =
            by.as_int().is_none_or(|n| (1..=62).contains(&n)) && left.as_int().is_none_or(|n| (0..=62).contains(&n));
        let (Some(shifted), DType::I32, true) = (shifted, x.dtype(), known) else {
            let what = "T.q_multiply_shift_per_axis takes int32 and shifts from 1 to 62 bits in all";
            return self.unsupported("tir", span, what);
        };
        let mut value = x.cast(DType::I64);
        if shifted != 0 {
            value = PrimExpr::raw_binary(BinOp::Shl, value, left);
        }
        let product = PrimExpr::raw_binary(BinOp::Mul, value, y.cast(DType::I64));
        let half = PrimExpr::binary(BinOp::Sub, by.clone(), wide(1));
        let sum = PrimExpr::raw_binary(BinOp::Add, product, PrimExpr::raw_binary(BinOp::Shl, wide(1), half));
        Some(self.convert(PrimExpr::raw_binary(BinOp::Shr, sum, by), DType::I32))
    }

    /// `T.Let(body, where={v: value})`
    fn let_expr(&mut self, call: &CallExpr<'a>, span: Span) -> Option<PrimExpr> {
        let body = call.args.first();
        let pairs = call.arg(1, "where").map(|e| (e, &e.kind));
        let (Some(body), Some((at, ExprKind::Dict(pairs)))) = (body, pairs) else {
            return self.error("argument", span, "T.Let is written `T.Let(body, where={v: value})`");
        };
        if pairs.len() != 1 && self.in_kernel() {
            return self.error("argument", at.span, "T.Let gives one name a value");
        }
        let mut bound = vec![];
        self.names.push();
        let mut ok = true;
        for (key, value) in pairs {
            let value = self.prim(value);
            if let (Some(name), Some(value), true) = (key.as_name(), &value, self.in_kernel()) {
                ok &= self.may_be_let(name, key.span, value).is_some();
            }
            match (key.as_name(), value) {
                (Some(name), Some(value)) => {
                    let var = Var::with_span(name, value.dtype(), key.span);
                    self.names.bind(name, Value::Prim(var.clone()));
                    bound.push((var, value));
                }
                (name, _) => {
                    ok = false;
                    match name {
                        Some(n) => self.names.bind(n, Value::Poison),
                        None => {
                            let _: Option<()> = self.expected(at, "a dictionary from names to values");
                        }
                    }
                }
            }
        }
        let body = self.prim(body);
        self.names.pop();
        if !ok {
            return None;
        }
        let mut out = body?;
        for (var, value) in bound.into_iter().rev() {
            out = PrimExpr::let_in(var, value, out);
        }
        Some(out)
    }

    /// `T.Let` gives a value to a name that a line such as `x = T.float32()` declares, with a type.
    fn may_be_let(&mut self, name: &str, at: Span, value: &PrimExpr) -> Option<()> {
        let declared = match (self.names.get(name), self.names.dims.get(name)) {
            (Some(Value::Poison), _) => return Some(()),
            (Some(_), _) => {
                let d = Diagnostic::error("argument", at, format!("`{name}` has a value already"));
                return self.report(d.help("T.Let takes a name that only `x = T.float32()` or the like declares"));
            }
            (None, Some(v)) => v.dtype(),
            (None, None) => {
                let d = Diagnostic::error("unknown-name", at, format!("`{name}` is not defined"));
                return self.report(d.help(format!("declare it before: `{name} = T.{}()`", value.dtype())));
            }
        };
        // A declared integer may be an int64 here that the text calls int32.
        if declared != value.dtype() && !(declared.is_int() && value.dtype().is_int()) {
            let message = format!("`{name}` is declared as {declared}, its value is of {}", value.dtype());
            return self.error("type", at, message);
        }
        Some(())
    }
}

/// `value.name(..)` for the methods that scalars and buffers have.
fn method<'c, 'a>(call: &'c CallExpr<'a>) -> Option<(&'c Expr<'a>, &'a str)> {
    match &call.func.kind {
        ExprKind::Attribute(of, name) if matches!(name.name, "astype" | "vload") => Some((of, name.name)),
        _ => None,
    }
}

/// Does this function take integers? TVM has no code for others: `T.exp` of an int32 has no intrinsic of LLVM.
fn takes_integers(f: Intrin) -> bool {
    matches!(
        f,
        Intrin::Floor
            | Intrin::Ceil
            | Intrin::Trunc
            | Intrin::Round
            | Intrin::NearbyInt
            | Intrin::Abs
            | Intrin::Fabs
            | Intrin::IsNan
            | Intrin::IsInf
            | Intrin::IsFinite
            | Intrin::PopCount
            | Intrin::Clz
            | Intrin::BitNot
            | Intrin::Likely
    )
}
