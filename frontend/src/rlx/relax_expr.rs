//! Relax expressions.

use super::call::operator;
use super::context::{Cx, Value};
use super::scalar::{fits, Num};
use super::syntax::*;
use crate::suggest::nearest;
use relax_ir::op;
use relax_ir::prim::PrimExpr;
use relax_ir::relax::{Call, Callee, Expr as RExpr, ExprKind as RKind, FuncInfo, StructInfo};
use relax_ir::{Attrs, Constant, DType, Diagnostic, Span};
use std::sync::Arc;

impl<'a> Cx<'a> {
    pub fn relax(&mut self, e: &Expr<'a>) -> Option<RExpr> {
        let kind = match &e.kind {
            ExprKind::Name(n) => return self.relax_name(n, e),
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Bool(_) => RKind::Prim(self.prim(e)?),
            ExprKind::Str(s) => RKind::Str(s.clone()),
            ExprKind::None => RKind::Absent,
            ExprKind::Tuple(items) | ExprKind::List(items) => {
                if let Some(none) = items.iter().find(|i| matches!(i.kind, ExprKind::None)) {
                    let d = Diagnostic::error("argument", none.span, "None is no value of Relax");
                    return self.report(d.help("R.null_value() gives a value that is none"));
                }
                RKind::Tuple(self.relax_list(items)?)
            }
            ExprKind::Attribute(base, field) => {
                if let Some(name) = self.global_name(base, field) {
                    RKind::GlobalVar(name?)
                } else {
                    let name = e.dotted().unwrap_or_default();
                    return self.error("unknown-name", e.span, format!("`{name}` is no value"));
                }
            }
            ExprKind::Subscript(base, index) => {
                if self.is_metadata(e) {
                    RKind::Constant(self.metadata_constant(e)?)
                } else {
                    // Python's own rule for a tuple that is written out.
                    let fields = base.elements().map_or(0, <[_]>::len) as i64;
                    let (base, i) = (self.relax(base), self.int(index));
                    match usize::try_from(i.map(|i| if i < 0 && -i <= fields { i + fields } else { i })?) {
                        Ok(i) => RKind::TupleGetItem(base?, i),
                        Err(_) => return self.error("argument", index.span, "the index of a tuple field is from 0 on"),
                    }
                }
            }
            ExprKind::Call(call) => return self.relax_call(call, e.span),
            ExprKind::Unary(..) | ExprKind::Binary(..) if self.is_scalar(e) => RKind::Prim(self.prim(e)?),
            ExprKind::Binary(op, a, b) => return self.operator_sign(*op, a, b, e.span),
            ExprKind::Unary(UnaryOp::Neg, a) => {
                let a = self.relax(a);
                return self.op_of("negative", vec![a?], e.span);
            }
            ExprKind::Starred(value) => return self.uncounted(value, e.span),
            _ => return self.expected(e, "a Relax expression"),
        };
        Some(RExpr::new(kind, e.span))
    }

    pub fn relax_list(&mut self, items: &[Expr<'a>]) -> Option<Vec<RExpr>> {
        if let Some(all) = self.unpacked(items) {
            return self.relax_list(&all);
        }
        let all: Vec<Option<RExpr>> = items.iter().map(|i| self.relax(i)).collect();
        all.into_iter().collect()
    }

    fn relax_name(&mut self, n: &'a str, e: &Expr<'a>) -> Option<RExpr> {
        match self.names.get(n) {
            Some(Value::Relax(v)) => return Some(RExpr::new(RKind::Var(v.clone()), e.span)),
            Some(Value::Poison) => return None,
            Some(Value::Module) => {
                return self.error("unknown-name", e.span, format!("`{n}` is the module, a value is needed here"));
            }
            _ => {}
        }
        if self.names.prim(n).is_some() {
            return Some(RExpr::new(RKind::Prim(self.prim(e)?), e.span));
        }
        if self.globals.contains(&n) {
            let d = Diagnostic::error("unknown-name", e.span, format!("`{n}` is not defined here"));
            let module = self.module_name;
            return self.report(d.help(format!("the module's function of that name is written `{module}.{n}`")));
        }
        self.unknown_name(n, e.span)
    }

    /// For `cls.f`: the function's name, or `Some(None)` when there is none; `None` when this is no such thing.
    fn global_name(&mut self, base: &Expr<'a>, field: &Ident<'a>) -> Option<Option<String>> {
        let base = base.as_name()?;
        let is_module = match self.names.get(base) {
            Some(Value::Module) => true,
            None => base == self.module_name,
            _ => false,
        };
        if !is_module {
            return None;
        }
        if self.globals.contains(&field.name) {
            return Some(Some(field.name.to_string()));
        }
        let mut d =
            Diagnostic::error("unknown-function", field.span, format!("the module has no function `{}`", field.name));
        if let Some(n) = nearest(field.name, self.globals.iter().copied()) {
            d = d.help(format!("did you mean `{n}`?"));
        }
        Some(self.report(d))
    }

    /// Does this compute on scalars (as opposed to tensors)?
    fn is_scalar(&self, e: &Expr<'a>) -> bool {
        match &e.kind {
            ExprKind::Name(n) => match self.names.get(n) {
                Some(Value::Relax(v)) => self.names.scalars.contains_key(v) || self.names.known.contains_key(v),
                _ => self.names.prim(n).is_some(),
            },
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Bool(_) => true,
            ExprKind::Unary(_, a) => self.is_scalar(a),
            ExprKind::Binary(_, a, b) => self.is_scalar(a) && self.is_scalar(b),
            ExprKind::Call(c) => c.func.dotted().is_some_and(|n| n.starts_with("T.")),
            _ => false,
        }
    }

    /// The scalar of `R.prim_value(..)`: numbers of Python are float64, as in TVM.
    pub(super) fn python_scalar(&mut self, e: &Expr<'a>) -> Option<PrimExpr> {
        Some(match self.num(e)? {
            Num::Float(v, _) => PrimExpr::float(DType::F64, v).with_span(e.span),
            n => self.settle(n).with_span(e.span),
        })
    }

    /// `x + y` on tensors.
    fn operator_sign(&mut self, op: BinaryOp, a: &Expr<'a>, b: &Expr<'a>, span: Span) -> Option<RExpr> {
        let name = match op {
            BinaryOp::Add => "add",
            BinaryOp::Sub => "subtract",
            BinaryOp::Mul => "multiply",
            BinaryOp::Div => "divide",
            BinaryOp::FloorDiv => "floor_divide",
            BinaryOp::Mod => "mod",
            BinaryOp::Pow => "power",
            BinaryOp::Lt => "less",
            BinaryOp::Le => "less_equal",
            BinaryOp::Gt => "greater",
            BinaryOp::Ge => "greater_equal",
            _ => {
                let message = format!("`{}` does not apply to Relax values", op.symbol());
                return self.error("type", span, message);
            }
        };
        if let Some(n) = [a, b].into_iter().find(|e| matches!(e.kind, ExprKind::Int(_) | ExprKind::Float(_))) {
            let what = match op {
                BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => "a comparison".to_string(),
                _ => format!("`{}`", op.symbol()),
            };
            let d = Diagnostic::error("type", n.span, format!("{what} takes Relax values on both sides"));
            let number = self.text.get(n.span.lo as usize..n.span.hi as usize).unwrap_or("..");
            return self.report(d.help(format!("write R.const({number}, dtype)")));
        }
        let (a, b) = (self.relax(a), self.relax(b));
        self.op_of(name, vec![a?, b?], span)
    }

    fn op_of(&mut self, name: &'static str, args: Vec<RExpr>, span: Span) -> Option<RExpr> {
        let Some(decl) = op::lookup(name) else {
            return self.unsupported("unknown-operator", span, format!("the operator R.{name} is not supported"));
        };
        let call = Call { callee: Callee::Op(decl), args, attrs: Attrs::default(), sinfo_args: vec![] };
        Some(RExpr::new(RKind::Call(call), span))
    }

    fn relax_call(&mut self, call: &CallExpr<'a>, span: Span) -> Option<RExpr> {
        if let Some(args) = self.unpacked(&call.args) {
            let call = CallExpr { func: call.func.clone(), args, keywords: call.keywords.clone() };
            return self.relax_call(&call, span);
        }
        for e in &call.args {
            if let ExprKind::Starred(value) = &e.kind {
                return self.uncounted(value, e.span);
            }
        }
        if let ExprKind::Attribute(base, method) = &call.func.kind {
            let module = base.as_name().is_some_and(|n| {
                matches!(n, "R" | "T" | "I") || !matches!(self.names.get(n), Some(Value::Relax(_) | Value::Poison))
            });
            // The one method that TVM's tensors have.
            if method.name == "astype" && !module && base.dotted().is_none_or(|n| !n.contains('.')) {
                let (base, dtype) = (self.relax(base), call.arg(0, "dtype").map(|d| self.attr_value(d)));
                let Some(dtype) = dtype else { return self.error("argument", span, "astype takes a dtype") };
                return operator("astype", vec![base?], vec![("dtype", dtype?)], span);
            }
        }
        let Some(name) = call.func.dotted() else { return self.value_call(call, span) };
        let kind = match name.as_str() {
            "R.emit_with_type" | "R.emit_with_ty" => return self.call_by_name(call, span),
            "R.emit" if call.keywords.is_empty() && call.args.len() == 1 => return self.relax(&call.args[0]),
            "R.arg" => return self.stated_parameter(call, span),
            "R.const" => RKind::Constant(self.constant(call, span)?),
            "R.str" => match call.arg(0, "value").and_then(Expr::as_str) {
                Some(s) => RKind::Str(s.to_string()),
                None => return self.error("argument", span, "R.str takes one string"),
            },
            "R.dtype" => match call.arg(0, "value") {
                // TVM 0.25 has a dtype for none.
                Some(d) if d.as_str() == Some("void") => return operator("null_value", vec![], vec![], span),
                Some(d) => RKind::DType(self.dtype(d)?),
                None => return self.error("argument", span, "R.dtype takes one string"),
            },
            "R.TupleGetItem" => {
                let [t, i] = call.args.as_slice() else {
                    return self.error("argument", span, "R.TupleGetItem takes a tuple and an index");
                };
                let (t, at) = (self.relax(t), self.int(i));
                match usize::try_from(at?) {
                    Ok(at) => RKind::TupleGetItem(t?, at),
                    Err(_) => return self.error("argument", i.span, "the index of a tuple field is from 0 on"),
                }
            }
            "R.shape" | "R.ShapeExpr" => match call.args.as_slice() {
                [list] => RKind::Shape(self.dims(list)?),
                _ => return self.error("argument", span, "R.shape takes one list of dims"),
            },
            "R.prim_value" => match call.args.as_slice() {
                [v] => RKind::Prim(self.python_scalar(v)?),
                _ => return self.error("argument", span, "R.prim_value takes one value"),
            },
            "R.tuple" => match call.args.iter().find(|e| e.elements().is_some()) {
                Some(e) => return self.expected(e, "a field of R.tuple, not a list of them,"),
                None => RKind::Tuple(self.relax_list(&call.args)?),
            },
            "R.ExternFunc" => match call.arg(0, "global_symbol").and_then(Expr::as_str) {
                Some(s) => self.extern_function(s, call)?,
                None => return self.error("argument", span, "R.ExternFunc takes the name of a function"),
            },
            "R.match_cast" => {
                let d = Diagnostic::error("syntax", span, "R.match_cast must be bound on a line of its own");
                return self.report(d.help("write `y: TYPE = R.match_cast(x, TYPE)`"));
            }
            n if n.starts_with("T.") => RKind::Prim(self.scalar_value(call, span)?),
            n => match n.strip_prefix("R.") {
                Some(op) => return self.op_call(op, call, span),
                None => return self.value_call(call, span),
            },
        };
        Some(RExpr::new(kind, span))
    }

    fn scalar_value(&mut self, call: &CallExpr<'a>, span: Span) -> Option<relax_ir::PrimExpr> {
        let n = self.scalar_call(call, span)?;
        Some(self.settle(n).with_span(span))
    }

    /// A call of a function of the module, a closure, or an extern function.
    fn value_call(&mut self, call: &CallExpr<'a>, span: Span) -> Option<RExpr> {
        let callee = self.relax(&call.func);
        let of_module = matches!(callee.as_ref().map(RExpr::kind), Some(RKind::GlobalVar(_)));
        if let Some(e) = call.args.iter().find(|e| of_module && of_python(e)) {
            let d = Diagnostic::error(
                "argument",
                e.span,
                format!("a function takes values of Relax, this is {}", e.describe()),
            );
            return self.report(match &e.kind {
                ExprKind::List(_) => d.help("write a tuple: `(a, b)`"),
                _ => d.help("write R.prim_value(..), or R.const(.., dtype) for a tensor"),
            });
        }
        let args = match of_module {
            true => self.relax_list(&call.args),
            false => self.closure_arguments(&call.args),
        };
        let mut sinfo_args = vec![];
        for (k, v) in &call.keywords {
            match k.name {
                // How older versions of TVM print the types of a call.
                "sinfo_args" => sinfo_args = self.struct_infos(v)?,
                _ => {
                    let message = format!("a function takes no argument by name (`{}`)", k.name);
                    return self.error("argument", k.span, message);
                }
            }
        }
        let stated = self.stated_kernel(&call.func);
        let (callee, mut args) = (callee?, args?);
        if let Some(stated) = &stated {
            if let Some(wanted) = stated.params.as_ref().map(Vec::len).filter(|wanted| *wanted != args.len()) {
                let message = format!("this function states {wanted} parameters, {} arguments given", args.len());
                return self.error("argument", span, message);
            }
            if sinfo_args.is_empty() && stated.pure {
                sinfo_args = vec![stated.ret.clone()];
            }
        }
        let callee = match (stated, op::lookup("call_pure_packed")) {
            (Some(stated), Some(op)) if stated.pure => {
                args.insert(0, callee);
                Callee::Op(op)
            }
            _ => Callee::Expr(callee),
        };
        let call = Call { callee, args, attrs: Attrs::default(), sinfo_args };
        Some(RExpr::new(RKind::Call(call), span))
    }

    /// What a closure is called with: numbers of Python are int32 and float32, as in TVM, and lists no values.
    fn closure_arguments(&mut self, args: &[Expr<'a>]) -> Option<Vec<RExpr>> {
        if let Some(all) = self.unpacked(args) {
            return self.closure_arguments(&all);
        }
        let all: Vec<Option<RExpr>> = args.iter().map(|e| self.closure_argument(e)).collect();
        all.into_iter().collect()
    }

    fn closure_argument(&mut self, e: &Expr<'a>) -> Option<RExpr> {
        match &e.kind {
            ExprKind::None => {
                let d = Diagnostic::error("argument", e.span, "None is no value of Relax");
                self.report(d.help("R.null_value() gives a value that is none"))
            }
            ExprKind::List(_) => {
                let message = format!("a function takes values of Relax, this is {} of Python", e.describe());
                self.report(
                    Diagnostic::error("argument", e.span, message).help("bind it to a name, or write R.tuple(..)"),
                )
            }
            ExprKind::Int(_) | ExprKind::Unary(..) | ExprKind::Binary(..) if of_python(e) => match self.num(e)? {
                Num::Int(v) => {
                    let dtype = if fits(DType::I32, v) { DType::I32 } else { DType::I64 };
                    let Ok(v) = i64::try_from(v) else {
                        return self.error("argument", e.span, format!("{v} does not fit into 64 bits"));
                    };
                    Some(RExpr::new(RKind::Prim(PrimExpr::int(dtype, v).with_span(e.span)), e.span))
                }
                _ => self.relax(e),
            },
            _ => self.relax(e),
        }
    }

    /// The packed function of this symbol, or the PrimFunc of the module that has it (relax_spec.md, "Evaluating
    /// Expressions", 8).
    fn extern_function(&mut self, symbol: &str, call: &CallExpr<'a>) -> Option<RKind> {
        let stated = self.extern_type(call)?;
        Some(match self.kernels.get(symbol) {
            Some(name) => RKind::GlobalVar(name.to_string()),
            None => RKind::ExternFunc(symbol.to_string(), stated),
        })
    }

    /// The type that `R.ExternFunc("f", R.Callable(..))` states.
    fn extern_type(&mut self, call: &CallExpr<'a>) -> Option<Option<Arc<FuncInfo>>> {
        if let Some(e) = call.args.get(2) {
            return self.error("argument", e.span, "R.ExternFunc takes the name of a function and its type");
        }
        let Some(ty) = call.arg(1, "ty").filter(|e| !matches!(e.kind, ExprKind::None)) else { return Some(None) };
        let info = match ty.kind {
            ExprKind::Attribute(..) => None,
            _ => Some(self.struct_info(ty)?),
        };
        match info {
            Some(StructInfo::Func(f)) => Some(Some(f)),
            _ => {
                let d = Diagnostic::error("argument", ty.span, "the type of a function is needed here");
                self.report(d.help("write R.Callable((PARAMETERS), RESULT)"))
            }
        }
    }

    /// What an `R.ExternFunc` that is a PrimFunc of the module, or a name of it, states.
    pub fn stated_kernel(&mut self, e: &Expr<'a>) -> Option<Arc<FuncInfo>> {
        if let Some(Value::Relax(var)) = e.as_name().and_then(|n| self.names.get(n)) {
            return self.names.kernels.get(var).cloned();
        }
        let call = e.as_call().filter(|_| e.called().as_deref() == Some("R.ExternFunc"))?;
        let symbol = call.arg(0, "global_symbol").and_then(Expr::as_str)?;
        self.kernels.contains_key(symbol).then(|| self.extern_type(call))??
    }

    /// `R.const(1.5, "float32")`; lists make tensors.
    pub fn constant(&mut self, call: &CallExpr<'a>, span: Span) -> Option<Constant> {
        let Some(value) = call.arg(0, "value") else {
            return self.error("argument", span, "R.const takes a value and a data type");
        };
        if let Some(e) = call.args.get(2) {
            return self.error("argument", e.span, "R.const takes a value and a data type");
        }
        if matches!(value.kind, ExprKind::Tuple(_)) {
            return self.expected(value, "a number or a list");
        }
        let dtype = match call.arg(1, "dtype").filter(|d| !matches!(d.kind, ExprKind::None)) {
            Some(d) => match d.as_str().and_then(numpy_dtype) {
                Some(t) => t,
                None => self.dtype(d)?,
            },
            None => self.unstated_dtype(value)?,
        };
        if dtype.is_handle() || dtype.lanes != 1 {
            return self.unsupported("dtype", span, format!("constants of type {dtype} are not supported"));
        }
        let mut shape = vec![];
        let mut level = value;
        while let Some(items) = level.elements() {
            shape.push(items.len() as i64);
            match items.first() {
                Some(first) => level = first,
                None => break,
            }
        }
        let mut bytes = vec![];
        let stated = call.arg(1, "dtype").is_some_and(|d| !matches!(d.kind, ExprKind::None));
        self.constant_elements(value, (dtype, stated), &shape, &mut bytes)?;
        Some(Constant::new(dtype, shape, bytes))
    }

    /// What numpy makes of literals: whole numbers are int32 in TVM, uint64 where 64 bits with a sign do not hold them, and
    /// floats where some are the one and some the other.
    fn unstated_dtype(&mut self, value: &Expr<'a>) -> Option<DType> {
        let natural = natural_dtype(value);
        if natural != DType::I32 {
            return Some(natural);
        }
        let mut all = vec![];
        self.whole_numbers_of(value, &mut all)?;
        let large = all.iter().filter(|(v, _)| !fits(DType::I64, *v)).count();
        if let Some((v, span)) = all.iter().find(|(v, _)| !fits(DType::I64, *v) && !fits(DType::U64, *v)) {
            let d = Diagnostic::error("argument", *span, format!("{v} does not fit into 64 bits"));
            return self.report(d.help("state a float type: R.const(.., \"float32\")"));
        }
        Some(match large {
            0 => DType::I32,
            n if n == all.len() => DType::U64,
            _ => DType::F32,
        })
    }

    fn whole_numbers_of(&mut self, e: &Expr<'a>, out: &mut Vec<(i128, Span)>) -> Option<()> {
        match (&e.kind, e.elements()) {
            (_, Some(items)) => items.iter().try_for_each(|i| self.whole_numbers_of(i, out)),
            (ExprKind::Int(_) | ExprKind::Unary(..) | ExprKind::Binary(..), None) => {
                if let Num::Int(v) = self.num(e)? {
                    out.push((v, e.span));
                }
                Some(())
            }
            _ => Some(()),
        }
    }

    /// `dtype` is stated or not: integers wrap to the int32 that they are otherwise, as numpy's do.
    fn constant_elements(
        &mut self,
        e: &Expr<'a>,
        dtype: (DType, bool),
        shape: &[i64],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        if let Some((n, rest)) = shape.split_first() {
            return match e.elements() {
                Some(items) if items.len() as i64 == *n => {
                    items.iter().try_for_each(|i| self.constant_elements(i, dtype, rest, out))
                }
                _ => self.error("argument", e.span, "the lists of a constant must all have the same length"),
            };
        }
        let c = self.scalar_constant(e, dtype)?;
        out.extend_from_slice(c.bytes());
        Some(())
    }

    fn scalar_constant(&mut self, e: &Expr<'a>, (dtype, stated): (DType, bool)) -> Option<Constant> {
        match &e.kind {
            ExprKind::Bool(b) => return Some(Constant::scalar_i64(dtype, *b as i64)),
            ExprKind::Str(s) if dtype.is_float() => {
                return match s.as_str() {
                    "inf" => Some(Constant::scalar_f64(dtype, f64::INFINITY)),
                    "-inf" => Some(Constant::scalar_f64(dtype, f64::NEG_INFINITY)),
                    "nan" => Some(Constant::scalar_f64(dtype, f64::NAN)),
                    _ => self.error("argument", e.span, format!("\"{s}\" is no number")),
                }
            }
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Unary(..) | ExprKind::Binary(..) => {}
            // Python's own: `float("inf")`, `int(2.5)`.
            ExprKind::Call(c) if c.func.as_name().is_some() => {}
            _ => return self.expected(e, "a number"),
        }
        match self.num(e)? {
            Num::Int(v) => {
                if stated && !i64::try_from(v).is_ok_and(|v| holds(dtype, v)) && !(dtype.is_float() || fits(dtype, v)) {
                    return self.error("argument", e.span, format!("{v} is no value of {dtype}"));
                }
                Some(match dtype.is_float() {
                    true => Constant::scalar_f64(dtype, v as f64),
                    false if stated || dtype == DType::U64 => Constant::scalar_i64(dtype, v as i64),
                    false => Constant::scalar_i64(dtype, v as i32 as i64),
                })
            }
            Num::Float(d, s) => Some(match dtype {
                DType::F32 => Constant::new(dtype, vec![], s.to_le_bytes().to_vec()),
                _ => Constant::scalar_f64(dtype, d),
            }),
            Num::Expr(_) => self.expected(e, "a number"),
        }
    }
}

/// A value of Python, none of Relax: a number, a string, None, a list. Tuples are taken for those of Relax.
fn of_python(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Bool(_) | ExprKind::Str(_) | ExprKind::None => true,
        ExprKind::List(_) => true,
        ExprKind::Unary(UnaryOp::Neg, a) => of_python(a),
        ExprKind::Binary(_, a, b) => of_python(a) && of_python(b),
        _ => false,
    }
}

/// The types that numpy has other names for than TVM: constants are made by numpy.
fn numpy_dtype(name: &str) -> Option<DType> {
    Some(match name {
        "float" | "double" | "f8" => DType::F64,
        "single" | "f4" => DType::F32,
        "half" | "f2" => DType::F16,
        "int" | "long" | "longlong" | "i8" => DType::I64,
        "intc" | "i4" => DType::I32,
        "short" | "i2" => DType::I16,
        "byte" | "i1" => DType::I8,
        "uint" | "ulong" | "ulonglong" | "u8" => DType::U64,
        "uintc" | "u4" => DType::U32,
        "ushort" | "u2" => DType::U16,
        "ubyte" | "u1" => DType::U8,
        "b1" => DType::BOOL,
        _ => return None,
    })
}

/// What numpy makes of a literal in `R.const(v)`.
fn natural_dtype(e: &Expr) -> DType {
    match &e.kind {
        ExprKind::Bool(_) => DType::BOOL,
        ExprKind::Int(_) => DType::I32,
        ExprKind::Unary(_, a) => natural_dtype(a),
        ExprKind::Binary(BinaryOp::Pow, _, b) if matches!(b.kind, ExprKind::Unary(UnaryOp::Neg, _)) => DType::F32,
        ExprKind::Binary(op, a, b) if *op != BinaryOp::Div => match natural_dtype(a) {
            DType::F32 => DType::F32,
            _ => natural_dtype(b),
        },
        ExprKind::Call(c) if matches!(c.func.as_name(), Some("int" | "len")) => DType::I32,
        ExprKind::Tuple(v) | ExprKind::List(v) => {
            let all: Vec<DType> = v.iter().map(natural_dtype).collect();
            let widest = [DType::F32, DType::I32, DType::BOOL].into_iter().find(|t| all.contains(t));
            widest.unwrap_or(DType::F32)
        }
        _ => DType::F32,
    }
}

/// Is `v` a value of the integer type?
fn holds(dtype: DType, v: i64) -> bool {
    if dtype.is_bool() || !(dtype.is_int() || dtype.is_uint()) || dtype.bits >= 64 {
        return true;
    }
    let (low, high) = match dtype.is_uint() {
        true => (0, (1i64 << dtype.bits) - 1),
        false => (-(1i64 << (dtype.bits - 1)), (1i64 << (dtype.bits - 1)) - 1),
    };
    (low..=high).contains(&v)
}
