//! Calls within scalar expressions: `T.name(..)`.

use super::context::{Cx, Value};
use super::scalar::Num;
use super::suggest::nearest;
use super::syntax::*;
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind};
use relax_ir::{DType, Diagnostic, Span, Var};
use std::sync::Arc;

/// Functions of `T` other than types and intrinsics, for suggestions.
const FUNCTIONS: [&str; 28] = [
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
    "power",
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
        "bitwise_and" => BinOp::BitAnd,
        "bitwise_or" => BinOp::BitOr,
        "bitwise_xor" => BinOp::BitXor,
        "shift_left" => BinOp::Shl,
        "shift_right" => BinOp::Shr,
        _ => return None,
    })
}

impl<'a> Cx<'a> {
    pub fn scalar_call(&mut self, call: &CallExpr<'a>, span: Span) -> Option<Num> {
        let Some(name) = call.func.dotted() else { return self.expected(&call.func, "a function of T") };
        let Some(name) = name.strip_prefix("T.") else {
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
            return self.error("type", span, format!("`{name}(..)` is no scalar expression"));
        };
        if let Some(op) = binary_function(name) {
            let [a, b] = self.arguments(call, span)?;
            let (x, y) = (self.num(a), self.num(b));
            return self.binary_op(op, x?, y?, span).map(Num::Expr);
        }
        if let Ok(dtype) = name.parse::<DType>() {
            return self.typed(dtype, call, span).map(Num::Expr);
        }
        self.scalar_function(name, call, span).map(|p| Num::Expr(p.with_span(span)))
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

    /// Exactly `N` positional arguments.
    fn arguments<'c, const N: usize>(&mut self, call: &'c CallExpr<'a>, span: Span) -> Option<[&'c Expr<'a>; N]> {
        let args: Vec<&Expr<'a>> = call.args.iter().collect();
        match <[&Expr<'a>; N]>::try_from(args) {
            Ok(a) => Some(a),
            Err(got) => {
                let what = call.func.dotted().unwrap_or_default();
                self.error("argument", span, format!("{what} takes {N} arguments, {} given", got.len()))
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
        match self.num(arg)? {
            Num::Float(d, _) if !dtype.is_float() => {
                if dtype.is_handle() {
                    return self.error("type", span, "a handle has no literals");
                }
                Some(PrimExpr::int(dtype, d as i64).with_span(span))
            }
            n => Some(self.settle_as(n, dtype).with_span(span)),
        }
    }

    fn scalar_function(&mut self, name: &str, call: &CallExpr<'a>, span: Span) -> Option<PrimExpr> {
        match name {
            "Cast" => {
                let [t, v] = self.arguments(call, span)?;
                let (t, v) = (self.dtype(t), self.prim(v));
                let (t, v) = (t?, v?);
                let t = if t.lanes == 1 { t.with_lanes(v.dtype().lanes) } else { t };
                Some(self.convert(v, t))
            }
            "cast" => {
                let [v, t] = self.arguments(call, span)?;
                let (t, v) = (self.dtype(t), self.prim(v));
                let (t, v) = (t?, v?);
                let t = if t.lanes == 1 { t.with_lanes(v.dtype().lanes) } else { t };
                Some(self.convert(v, t))
            }
            "reinterpret" => {
                let [t, v] = self.arguments(call, span)?;
                let (t, v) = (self.dtype(t), self.prim(v));
                let (t, v) = (t?, v?);
                if t.bits as u32 * t.lanes as u32 != v.dtype().bits as u32 * v.dtype().lanes as u32 {
                    return self.error("type", span, format!("{} and {t} differ in size", v.dtype()));
                }
                Some(PrimExpr::raw(PrimKind::Reinterpret(v), t))
            }
            "Select" | "if_then_else" => {
                let [c, a, b] = self.arguments(call, span)?;
                let cond = self.condition(c);
                let (a, b) = (self.num(a), self.num(b));
                let (cond, (a, b)) = (cond?, self.matched(a?, b?, span)?);
                let d = a.dtype();
                Some(PrimExpr::raw(
                    if name == "Select" { PrimKind::Select(cond, a, b) } else { PrimKind::IfThenElse(cond, a, b) },
                    d,
                ))
            }
            "ceildiv" => {
                let [a, b] = self.arguments(call, span)?;
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
                let [a] = self.arguments(call, span)?;
                let a = self.condition(a)?;
                Some(PrimExpr::raw(PrimKind::Not(a), DType::BOOL))
            }
            "Let" => self.let_expr(call, span),
            "Ramp" => {
                let [base, stride, lanes] = self.arguments(call, span)?;
                let (base, stride) = (self.num(base), self.num(stride));
                let (base, stride) = self.matched(base?, stride?, span)?;
                let lanes = self.lanes(lanes)?;
                Some(base.ramp(stride, lanes))
            }
            "Broadcast" => {
                let [value, lanes] = self.arguments(call, span)?;
                let (value, lanes) = (self.prim(value), self.lanes(lanes));
                Some(value?.broadcast(lanes?))
            }
            "infinity" | "max_value" | "min_value" => {
                let [t] = self.arguments(call, span)?;
                let t = self.dtype(t)?;
                Some(match name {
                    "infinity" => PrimExpr::float(t, f64::INFINITY),
                    "max_value" => PrimExpr::max_value(t),
                    _ => PrimExpr::min_value(t),
                })
            }
            "power" => self.intrinsic(Intrin::Pow, call, span),
            "tvm_struct_get" => self.struct_field(call, span),
            "call_extern" | "call_pure_extern" => self.extern_value(call, span),
            "tvm_struct_set" => {
                let d = Diagnostic::unsupported("tir-struct", span, "the struct of a tensor cannot be written");
                self.report(d.help("its data is written through a buffer: T.match_buffer"))
            }
            "call_packed"
            | "call_cpacked"
            | "call_llvm_intrin"
            | "call_llvm_pure_intrin"
            | "call_intrin"
            | "tvm_call_packed"
            | "tvm_call_cpacked" => {
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

    /// A bool; literals 0 and 1 too.
    pub fn condition(&mut self, e: &Expr<'a>) -> Option<PrimExpr> {
        let p = match self.num(e)? {
            Num::Int(v @ (0 | 1)) => PrimExpr::bool(v == 1),
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
        let wanted = match f {
            Intrin::Atan2
            | Intrin::Pow
            | Intrin::Fmod
            | Intrin::Hypot
            | Intrin::CopySign
            | Intrin::NextAfter
            | Intrin::LdExp => 2,
            Intrin::Fma => 3,
            _ => 1,
        };
        if call.args.len() != wanted {
            let s = if wanted == 1 { "" } else { "s" };
            let message = format!("T.{} takes {wanted} argument{s}, {} given", f.name(), call.args.len());
            return self.error("argument", span, message);
        }
        let nums: Vec<Option<Num>> = call.args.iter().map(|a| self.num(a)).collect();
        let nums: Option<Vec<Num>> = nums.into_iter().collect();
        let nums = nums?;
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
        let args: Arc<[PrimExpr]> = args.into();
        Some(PrimExpr::call(f, args))
    }

    /// `T.Let(body, where={v: value})`
    fn let_expr(&mut self, call: &CallExpr<'a>, span: Span) -> Option<PrimExpr> {
        let body = call.args.first();
        let pairs = call.arg(1, "where").map(|e| (e, &e.kind));
        let (Some(body), Some((at, ExprKind::Dict(pairs)))) = (body, pairs) else {
            return self.error("argument", span, "T.Let is written `T.Let(body, where={v: value})`");
        };
        let mut bound = vec![];
        self.names.push();
        let mut ok = true;
        for (key, value) in pairs {
            let value = self.prim(value);
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
}
