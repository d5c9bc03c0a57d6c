//! MatchCast over runtime values: structure and dims against struct info, in code.

use super::expr::{Dyn, Gen, Res, Scope};
use super::{tag, VALUE};
use crate::host::build::Failure;
use crate::host::check_tensor::dtype_word;
use crate::host::message::Message;
use crate::host::value::{match_dims, Later, Shaped};
use relax_ir::analysis::constraints;
use relax_ir::flat::FlatStmt;
use relax_ir::op::{Answer, ShapeFacts};
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::program::code;
use relax_ir::relax::{StructInfo, TensorInfo};
use relax_ir::{DType, PrimExpr, Span};

impl Gen<'_, '_> {
    /// Checks the value against `info`, binds the shape variables that are new, and returns it with what is known.
    pub fn refine(&mut self, v: Dyn, info: &StructInfo, scope: &mut Scope, what: &str, span: Span) -> Res<Dyn> {
        let mut later = vec![];
        let v = self.refine_new(v, info, scope, what, span, &mut later)?;
        self.check_later(later, scope, span)?;
        Ok(v.settled(info))
    }

    /// As [`Gen::refine`], for several values whose dims refer to each other.
    pub fn refine_all(
        &mut self,
        list: Vec<(Dyn, Option<StructInfo>, String)>,
        scope: &mut Scope,
        span: Span,
    ) -> Res<Vec<Dyn>> {
        let mut later = vec![];
        let mut out = vec![];
        for (v, info, what) in list {
            out.push(match info {
                Some(i) => self.refine_new(v, &i, scope, &what, span, &mut later)?,
                None => v,
            });
        }
        self.check_later(later, scope, span)?;
        Ok(out)
    }

    fn check_later(&mut self, later: Later, scope: &Scope, span: Span) -> Res<()> {
        for (actual, wanted, what) in later {
            // In the model's names: here a dim has that of a register.
            let (text, what) = match self.infos.solved(&wanted) {
                Some(dim) => (format!("dim == {dim}"), format!("{what}: {dim} has no solution")),
                None => (format!("dim == {}", relax_ir::printer::print_prim(&wanted)), what),
            };
            let wanted = self.dim(&wanted, scope, span)?;
            let condition = PrimExpr::raw_binary(BinOp::Eq, actual, wanted);
            self.require_named(condition, text, code::CHECK, what, span);
        }
        Ok(())
    }

    /// A scalar that is no dim of a tensor.
    pub fn may_be_negative(&mut self, e: &PrimExpr) {
        if let Some(v) = e.as_var() {
            self.facts.declare_signed(v);
        }
    }

    /// A numbered check, unless it is proved; known from there on.
    pub fn require(&mut self, condition: PrimExpr, code: i64, message: String, span: Span) {
        let text = relax_ir::printer::print_prim(&condition);
        self.require_named(condition, text, code, message, span);
    }

    /// As [`Gen::require`], with the condition as the model has it.
    pub fn require_named(&mut self, condition: PrimExpr, text: String, code: i64, message: String, span: Span) {
        self.require_filled(condition, text, code, Message { text: message, numbers: vec![] }, span);
    }

    /// As [`Gen::require_named`], with the numbers of the message.
    pub fn require_filled(&mut self, condition: PrimExpr, text: String, code: i64, message: Message, span: Span) {
        let Message { text: message, numbers } = message;
        if self.facts.prove(&condition) == Answer::Yes {
            return;
        }
        let divisors = constraints::open_divisors(&condition, &mut self.facts);
        self.facts.assume(&condition);
        for d in &divisors {
            self.facts.assume(&d.clone().ne(PrimExpr::int(d.dtype(), 0)));
        }
        if self.trusted {
            return;
        }
        let (wanted, got) = match condition.kind() {
            PrimKind::Binary(op, a, b) if op.is_compare() && a.dtype() == DType::I64 => (b.clone(), a.clone()),
            _ => (PrimExpr::i64(1), PrimExpr::i64(0)),
        };
        let (number, what) = self.infos.add(code, text, message, span);
        let failure = Failure { code, constraint: number as i32, wanted, got, what: &what };
        self.b.fail_if_filled(constraints::guarded(&condition, divisors).not(), failure, &numbers);
    }

    /// A check of the value's structure: `got` must be `wanted`.
    pub fn structure(&mut self, got: PrimExpr, wanted: i64, code: i64, what: &str, (of, span): (&str, Span)) {
        if self.trusted || got.as_int() == Some(wanted) {
            return;
        }
        let (number, what) = self.infos.add(code, of.to_string(), what.to_string(), span);
        let wanted = PrimExpr::i64(wanted);
        let got = self.b.bind("got", got.cast(DType::I64));
        let differ = got.clone().ne(wanted.clone());
        self.b.fail_if(differ, Failure { code, constraint: number as i32, wanted, got, what: &what });
    }

    fn tag(&mut self, at: &PrimExpr, wanted: i32, what: &str, span: Span) {
        if self.trusted {
            return;
        }
        let got = self.b.load("tag", at, 0, DType::I32);
        let kind = match wanted {
            tag::TENSOR => "a tensor",
            tag::SHAPE => "a shape",
            tag::TUPLE => "a tuple",
            tag::CLOSURE => "a function",
            tag::STR => "a string",
            _ => "a scalar",
        };
        self.structure(got, wanted as i64, code::TYPE, &format!("{what}, kind of value"), (kind, span));
    }

    fn refine_new(
        &mut self,
        v: Dyn,
        info: &StructInfo,
        scope: &mut Scope,
        what: &str,
        span: Span,
        later: &mut Later,
    ) -> Res<Dyn> {
        match (info, v) {
            (StructInfo::Object, v) => Ok(v),
            (StructInfo::Tensor(t), Dyn::Value(at)) => {
                let v = self.tensor_info(&at, t, what, span);
                let dims = match (&v, t.ndim) {
                    (Dyn::Tensor(x), _) => Some(x.dims.clone()),
                    // A tensor of any dtype has dims all the same.
                    (_, Some(n)) if t.shape.is_some() => Some(self.read_tensor(&at, n, DType::U8).dims),
                    _ => None,
                };
                if let Some(dims) = dims {
                    self.dims_against(&dims, t, scope, (what, span), later);
                }
                Ok(v)
            }
            (StructInfo::Tensor(t), Dyn::Tensor(x))
                if t.dtype.is_none_or(|d| d == x.dtype) && t.ndim.is_none_or(|n| n == x.dims.len()) =>
            {
                let dims = x.dims.clone();
                self.dims_against(&dims, t, scope, (what, span), later);
                Ok(Dyn::Tensor(x))
            }
            (StructInfo::Tensor(t), Dyn::Tensor(x)) => {
                // Only a cast that is never reached may ask for this: it fails where it is.
                Ok(self.tensor_info(&x.at, t, what, span))
            }
            (StructInfo::Shape { values, ndim }, Dyn::Value(at)) => {
                self.tag(&at, tag::SHAPE, what, span);
                let Some(n) = ndim.or(values.as_ref().map(Vec::len)) else { return Ok(Dyn::Value(at)) };
                let shape = self.b.load("shape", &at, 8, DType::HANDLE);
                let count = self.b.load("count", &shape, 0, DType::I64);
                let of = format!("number of values == {n}");
                self.structure(count, n as i64, code::RANK, &format!("{what}, number of values"), (&of, span));
                let got: Vec<PrimExpr> =
                    (0..n as i64).map(|i| self.b.load("value", &shape, 8 + i * 8, DType::I64)).collect();
                got.iter().for_each(|v| self.may_be_negative(v));
                match_dims(&got, values.as_deref(), &mut scope.dims, what, later);
                Ok(Dyn::Shape(got))
            }
            (StructInfo::Shape { values, ndim }, Dyn::Shape(got)) => {
                if let Some(n) = ndim {
                    let count = PrimExpr::i64(got.len() as i64);
                    let of = format!("number of values == {n}");
                    self.structure(count, *n as i64, code::RANK, &format!("{what}, number of values"), (&of, span));
                }
                match_dims(&got, values.as_deref(), &mut scope.dims, what, later);
                Ok(Dyn::Shape(got))
            }
            (StructInfo::Prim { dtype, .. }, Dyn::Value(at)) => {
                let x = self.scalar(&at, *dtype, what, span);
                self.refine_new(Dyn::Prim(x), info, scope, what, span, later)
            }
            (StructInfo::Prim { value, .. }, Dyn::Prim(x)) => {
                match_dims(
                    std::slice::from_ref(&x),
                    value.as_ref().map(std::slice::from_ref),
                    &mut scope.dims,
                    what,
                    later,
                );
                Ok(Dyn::Prim(x))
            }
            // A packed function that returns nothing returns unit.
            (StructInfo::Tuple(fields), Dyn::Absent) if fields.is_empty() => Ok(Dyn::Tuple(vec![])),
            (StructInfo::Tuple(fields), Dyn::Value(at)) if fields.is_empty() => {
                self.unit(&at, what, span);
                Ok(Dyn::Tuple(vec![]))
            }
            (StructInfo::Tuple(fields), Dyn::Value(at)) => {
                self.tag(&at, tag::TUPLE, what, span);
                let tuple = self.b.load("tuple", &at, 8, DType::HANDLE);
                let count = self.b.load("count", &tuple, 0, DType::I64);
                let of = format!("number of fields == {}", fields.len());
                self.structure(
                    count,
                    fields.len() as i64,
                    code::TYPE,
                    &format!("{what}, number of fields"),
                    (&of, span),
                );
                let mut out = vec![];
                for (i, f) in fields.iter().enumerate() {
                    let at = tuple.clone().ptr_add(PrimExpr::i64(8 + i as i64 * VALUE));
                    let at = self.b.bind("field", at);
                    out.push(self.refine_new(Dyn::Value(at), f, scope, &format!("{what}, field {i}"), span, later)?);
                }
                Ok(Dyn::Tuple(out))
            }
            (StructInfo::Tuple(fields), Dyn::Tuple(xs)) if fields.len() == xs.len() => {
                let mut out = vec![];
                for (i, (f, x)) in fields.iter().zip(xs).enumerate() {
                    out.push(self.refine_new(x, f, scope, &format!("{what}, field {i}"), span, later)?);
                }
                Ok(Dyn::Tuple(out))
            }
            (StructInfo::Func(f), Dyn::Value(at)) => {
                self.match_function(&at, f, scope, what, span)?;
                Ok(Dyn::Value(at))
            }
            (StructInfo::Str | StructInfo::DType, Dyn::Value(at)) => {
                self.tag(&at, tag::STR, what, span);
                Ok(Dyn::Value(at))
            }
            (StructInfo::Func(_), v @ (Dyn::Global(_) | Dyn::Extern(_) | Dyn::This(_))) => Ok(v),
            (StructInfo::Str, v @ Dyn::Str(_)) | (StructInfo::DType, v @ Dyn::DType(_)) => Ok(v),
            // A cast that can only fail: it does where it runs.
            (_, v) => {
                let at = self.pointer(&v, span)?;
                self.refine_new(Dyn::Value(at), info, scope, what, span, later)
            }
        }
    }

    /// The empty tuple, or no value at all.
    fn unit(&mut self, at: &PrimExpr, what: &str, span: Span) {
        if self.trusted {
            return;
        }
        let got = self.b.load("tag", at, 0, DType::I32);
        self.b.open();
        self.tag(at, tag::TUPLE, what, span);
        let tuple = self.b.load("tuple", at, 8, DType::HANDLE);
        let count = self.b.load("count", &tuple, 0, DType::I64);
        let what = format!("{what}, number of fields");
        self.structure(count, 0, code::TYPE, &what, ("number of fields == 0", span));
        let then = self.b.close();
        self.b.push(FlatStmt::If { cond: got.ne(PrimExpr::i32(tag::NULL)), then, otherwise: vec![] });
    }

    /// The scalar that a value must be.
    fn scalar(&mut self, at: &PrimExpr, dtype: DType, what: &str, span: Span) -> PrimExpr {
        let (kind, word) = if dtype.is_bool() {
            (tag::BOOL, DType::I64)
        } else if dtype.is_float() {
            (tag::FLOAT, DType::F64)
        } else {
            (tag::INT, DType::I64)
        };
        self.tag(at, kind, what, span);
        let x = self.b.load("scalar", at, 8, word);
        let x = if dtype.is_bool() { x.ne(PrimExpr::i64(0)) } else { x.cast(dtype) };
        let x = self.b.bind("scalar", x);
        self.may_be_negative(&x);
        x
    }

    /// Checks kind, dtype and rank as far as `t` states them; a tensor with dims when both are known.
    fn tensor_info(&mut self, at: &PrimExpr, t: &TensorInfo, what: &str, span: Span) -> Dyn {
        self.tag(at, tag::TENSOR, what, span);
        let abi = self.b.abi;
        let tensor = self.dltensor(at);
        if let Some(n) = t.ndim {
            let got = self.b.load("ndim", &tensor, abi.tensor_ndim, DType::I32);
            let of = format!("number of dims == {n}");
            self.structure(got, n as i64, code::RANK, &format!("{what}, number of dims"), (&of, span));
        }
        if let Some(d) = t.dtype {
            let got = self.b.load("dtype", &tensor, abi.tensor_dtype, DType::I32);
            let of = format!("dtype == {d}");
            self.structure(got, dtype_word(d) as i64, code::DTYPE, &format!("{what}, dtype"), (&of, span));
        }
        match (t.ndim, t.dtype) {
            (Some(n), Some(d)) => Dyn::Tensor(self.read_tensor(at, n, d)),
            _ => Dyn::Value(at.clone()),
        }
    }

    fn dims_against(
        &mut self,
        dims: &[PrimExpr],
        t: &TensorInfo,
        scope: &mut Scope,
        (what, span): (&str, Span),
        later: &mut Later,
    ) {
        if let Some(relax_ir::relax::TensorShape::Var(s)) = &t.shape {
            if let Some(Dyn::Shape(values)) = scope.vars.get(s).cloned() {
                for (i, (a, w)) in dims.iter().zip(values).enumerate() {
                    self.require(
                        PrimExpr::raw_binary(BinOp::Eq, a.clone(), w),
                        code::CHECK,
                        format!("{what}, dimension {i}"),
                        span,
                    );
                }
            }
        }
        match_dims(dims, t.known_dims(), &mut scope.dims, what, later);
    }
}
