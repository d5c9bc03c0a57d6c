//! Expressions to closures.

use super::env::{Access, Env, FloatFn, Index, IntFn};
use super::scalar::*;
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind, Var};
use relax_ir::tir::Buffer;
use relax_ir::{DType, Diagnostic, Span};
use std::collections::HashMap;

/// A compiled expression: floats on one side, integers, bools and handles on the other.
pub enum Num {
    Int(IntFn),
    Float(FloatFn),
}

#[derive(Clone, Copy)]
pub enum Slot {
    Int(usize),
    Float(usize),
}

/// What is in scope while a kernel is compiled. Variables have identity, so a slot is never reused.
#[derive(Default)]
pub struct Compiler {
    pub vars: HashMap<Var, Slot>,
    pub buffers: HashMap<Buffer, usize>,
    pub n_ints: usize,
    pub n_floats: usize,
    pub n_views: usize,
    /// A buffer is a part of another one.
    pub aliased: bool,
}

impl Compiler {
    /// Brings a variable into scope.
    pub fn define(&mut self, v: &Var) -> Slot {
        if let Some(s) = self.vars.get(v) {
            return *s;
        }
        let slot = if v.dtype().is_float() {
            self.n_floats += 1;
            Slot::Float(self.n_floats - 1)
        } else {
            self.n_ints += 1;
            Slot::Int(self.n_ints - 1)
        };
        self.vars.insert(v.clone(), slot);
        slot
    }

    /// Brings an integer variable into scope.
    pub fn define_int(&mut self, v: &Var) -> Result<usize, Diagnostic> {
        match self.define(v) {
            Slot::Int(s) => Ok(s),
            Slot::Float(_) => {
                Err(Diagnostic::error("type", v.span(), format!("`{}` must be an integer variable", v.name())))
            }
        }
    }

    pub fn define_buffer(&mut self, b: &Buffer) -> usize {
        let next = self.n_views;
        let view = *self.buffers.entry(b.clone()).or_insert(next);
        if view == next {
            self.n_views += 1;
        }
        view
    }

    pub fn is_defined(&self, v: &Var) -> bool {
        self.vars.contains_key(v)
    }

    pub fn int(&mut self, e: &PrimExpr) -> Result<IntFn, Diagnostic> {
        match self.num(e)? {
            Num::Int(f) => Ok(f),
            Num::Float(f) => Ok(Box::new(move |env| f(env) as i64)),
        }
    }

    pub fn float(&mut self, e: &PrimExpr) -> Result<FloatFn, Diagnostic> {
        match self.num(e)? {
            Num::Float(f) => Ok(f),
            Num::Int(f) if e.dtype() == DType::U64 => Ok(Box::new(move |env| f(env) as u64 as f64)),
            Num::Int(f) => Ok(Box::new(move |env| f(env) as f64)),
        }
    }

    pub fn index(&mut self, e: &PrimExpr) -> Result<Index, Diagnostic> {
        match e.kind() {
            PrimKind::Int(v) => return Ok(Index::Const(*v)),
            PrimKind::Var(v) => {
                if let Some(Slot::Int(s)) = self.vars.get(v) {
                    return Ok(Index::Slot(*s));
                }
            }
            _ => {}
        }
        Ok(Index::Fn(self.int(e)?))
    }

    pub fn access(&mut self, b: &Buffer, indices: &[PrimExpr], span: Span) -> Result<Access, Diagnostic> {
        let Some(view) = self.buffers.get(b).copied() else {
            let text = format!("buffer `{}` is used outside of its scope", b.name);
            return Err(Diagnostic::error("undefined", span, text));
        };
        if indices.len() != b.ndim() {
            let text = format!("buffer `{}` has {} dims and is given {} indices", b.name, b.ndim(), indices.len());
            return Err(Diagnostic::error("rank", span, text));
        }
        let indices = indices.iter().map(|i| self.index(i)).collect::<Result<_, _>>()?;
        Ok(Access { buffer: b.name.clone(), dtype: b.dtype(), view, indices, span })
    }

    /// Compiles an expression; the result has its exact value in its type.
    pub fn num(&mut self, e: &PrimExpr) -> Result<Num, Diagnostic> {
        let d = e.dtype();
        if d.lanes != 1 {
            return Err(unsupported(e, "vector expressions"));
        }
        Ok(match e.kind() {
            PrimKind::Var(v) => match self.vars.get(v) {
                Some(Slot::Int(s)) => {
                    let s = *s;
                    Num::Int(Box::new(move |env| env.ints[s]))
                }
                Some(Slot::Float(s)) => {
                    let s = *s;
                    Num::Float(Box::new(move |env| env.floats[s]))
                }
                None => {
                    let span = if e.span().is_none() { v.span() } else { e.span() };
                    return Err(Diagnostic::error("undefined", span, format!("variable `{}` has no value", v.name())));
                }
            },
            PrimKind::Int(v) => {
                let v = *v;
                Num::Int(Box::new(move |_| v))
            }
            PrimKind::Float(v) => {
                let v = v.0;
                Num::Float(Box::new(move |_| v))
            }
            PrimKind::Str(_) => return Err(unsupported(e, "strings")),
            PrimKind::Cast(a) => self.cast(a, d)?,
            PrimKind::Reinterpret(a) => self.reinterpret(a, d)?,
            PrimKind::Binary(op, a, b) => self.binary(*op, a, b, e)?,
            PrimKind::Not(a) => {
                let a = self.truth(a)?;
                Num::Int(Box::new(move |env| (a(env) == 0) as i64))
            }
            PrimKind::Neg(a) => match self.num(a)? {
                Num::Float(a) if d.as_small().is_some() => {
                    Num::Float(Box::new(move |env| relax_ir::prim::round_float(d, -a(env))))
                }
                Num::Float(a) => Num::Float(Box::new(move |env| -a(env))),
                Num::Int(a) => {
                    let w = Wrap::new(d);
                    Num::Int(Box::new(move |env| w.apply(a(env).wrapping_neg())))
                }
            },
            // TVM makes a Select safe by guarding its loads, so only the chosen side counts.
            PrimKind::Select(c, t, f) | PrimKind::IfThenElse(c, t, f) => {
                let c = self.truth(c)?;
                if d.is_float() {
                    let (t, f) = (self.float(t)?, self.float(f)?);
                    Num::Float(Box::new(move |env| if c(env) != 0 { t(env) } else { f(env) }))
                } else {
                    let (t, f) = (self.int(t)?, self.int(f)?);
                    Num::Int(Box::new(move |env| if c(env) != 0 { t(env) } else { f(env) }))
                }
            }
            PrimKind::BufferLoad(b, indices) => {
                let access = self.access(b, indices, e.span())?;
                if d.is_float() {
                    Num::Float(Box::new(move |env| access.load_float(env)))
                } else {
                    Num::Int(Box::new(move |env| access.load_int(env)))
                }
            }
            PrimKind::Call(f, args) => self.call(*f, args, e)?,
            PrimKind::Let(v, value, body) => {
                let value = self.num(value)?;
                let slot = self.define(v);
                let body = self.num(body)?;
                let set = assign(slot, value);
                match body {
                    Num::Int(b) => Num::Int(Box::new(move |env| {
                        set(env);
                        b(env)
                    })),
                    Num::Float(b) => Num::Float(Box::new(move |env| {
                        set(env);
                        b(env)
                    })),
                }
            }
            PrimKind::Load { .. } | PrimKind::PtrAdd(..) => return Err(unsupported(e, "flat pointers")),
            PrimKind::Ramp(..) | PrimKind::Broadcast(_) => return Err(unsupported(e, "vector expressions")),
        })
    }

    /// A condition: any number, true when not 0.
    pub fn truth(&mut self, e: &PrimExpr) -> Result<IntFn, Diagnostic> {
        Ok(match self.num(e)? {
            Num::Int(f) => f,
            Num::Float(f) => Box::new(move |env| (f(env) != 0.0) as i64),
        })
    }

    fn cast(&mut self, a: &PrimExpr, d: DType) -> Result<Num, Diagnostic> {
        let from = a.dtype();
        Ok(match (self.num(a)?, d.is_float()) {
            (Num::Float(a), true) => Num::Float(Box::new(move |env| relax_ir::prim::round_float(d, a(env)))),
            (Num::Float(a), false) if d.is_bool() => Num::Int(Box::new(move |env| (a(env) != 0.0) as i64)),
            (Num::Float(a), false) => {
                let w = Wrap::new(d);
                Num::Int(Box::new(move |env| w.apply(float_to_int(d, a(env)))))
            }
            (Num::Int(a), true) => {
                let unsigned = from.is_uint();
                Num::Float(Box::new(move |env| int_to_float(d, unsigned, a(env))))
            }
            (Num::Int(a), false) => {
                let w = Wrap::new(d);
                Num::Int(Box::new(move |env| w.apply(a(env))))
            }
        })
    }

    fn reinterpret(&mut self, a: &PrimExpr, d: DType) -> Result<Num, Diagnostic> {
        let from = a.dtype();
        let w = Wrap::new(d);
        Ok(match (self.num(a)?, d.is_float()) {
            (Num::Float(a), true) => Num::Float(Box::new(move |env| float_from_bits(d, float_bits(from, a(env))))),
            (Num::Float(a), false) => Num::Int(Box::new(move |env| w.apply(float_bits(from, a(env)) as i64))),
            (Num::Int(a), true) => Num::Float(Box::new(move |env| float_from_bits(d, a(env) as u64))),
            (Num::Int(a), false) => Num::Int(Box::new(move |env| w.apply(a(env)))),
        })
    }

    fn binary(&mut self, op: BinOp, a: &PrimExpr, b: &PrimExpr, e: &PrimExpr) -> Result<Num, Diagnostic> {
        if op == BinOp::And || op == BinOp::Or {
            let (a, b) = (self.truth(a)?, self.truth(b)?);
            return Ok(Num::Int(match op {
                BinOp::And => Box::new(move |env| (a(env) != 0 && b(env) != 0) as i64),
                _ => Box::new(move |env| (a(env) != 0 || b(env) != 0) as i64),
            }));
        }
        let operand = a.dtype();
        if operand.is_float() || b.dtype().is_float() {
            let (x, y) = (self.float(a)?, self.float(b)?);
            if op.is_compare() {
                return Ok(Num::Int(match op {
                    BinOp::Lt => Box::new(move |env| (x(env) < y(env)) as i64),
                    _ => Box::new(move |env| float_compare(op, x(env), y(env)) as i64),
                }));
            }
            if !matches!(
                op,
                BinOp::Add
                    | BinOp::Sub
                    | BinOp::Mul
                    | BinOp::Div
                    | BinOp::FloorDiv
                    | BinOp::FloorMod
                    | BinOp::TruncDiv
                    | BinOp::TruncMod
                    | BinOp::Min
                    | BinOp::Max
            ) {
                return Err(unsupported(e, "bit operations on floats"));
            }
            macro_rules! run {
                ($p:ty) => {
                    float_op::<$p>(op, x, y)
                };
            }
            return Ok(Num::Float(with_precision!(operand, run)));
        }
        let (x, y) = (self.index(a)?, self.index(b)?);
        Ok(Num::Int(int_op(op, operand, x, y, e.span())))
    }

    fn call(&mut self, f: Intrin, args: &[PrimExpr], e: &PrimExpr) -> Result<Num, Diagnostic> {
        let d = e.dtype();
        let Some(first) = args.first() else {
            return Err(unsupported(e, &format!("`T.{}` without arguments", f.name())));
        };
        if matches!(f, Intrin::IsNan | Intrin::IsInf | Intrin::IsFinite) {
            let a = self.float(first)?;
            return Ok(Num::Int(match f {
                Intrin::IsNan => Box::new(move |env| a(env).is_nan() as i64),
                Intrin::IsInf => Box::new(move |env| a(env).is_infinite() as i64),
                _ => Box::new(move |env| a(env).is_finite() as i64),
            }));
        }
        if matches!(f, Intrin::Likely) {
            return self.num(first);
        }
        if !d.is_float() {
            let of = first.dtype();
            let args = args.iter().map(|a| self.int(a)).collect::<Result<Vec<_>, _>>()?;
            let (w, span) = (Wrap::new(d), e.span());
            return Ok(Num::Int(Box::new(move |env| {
                let mut values = [0i64; 4];
                for (v, a) in values.iter_mut().zip(&args) {
                    *v = a(env);
                }
                match int_intrin(f, of, &values[..args.len().min(4)]) {
                    Some(v) => w.apply(v),
                    None => {
                        env.fail(|| {
                            let text = format!("`T.{}` is not defined for these {d} values", f.name());
                            Diagnostic::unsupported("intrinsic", span, text)
                        });
                        0
                    }
                }
            })));
        }
        let arity = |n: usize| match args.len() == n {
            true => Ok(()),
            false => Err(Diagnostic::error("arity", e.span(), format!("`T.{}` takes {n} arguments", f.name()))),
        };
        if let Some(op) = float_unary(f) {
            arity(1)?;
            let a = self.float(first)?;
            return Ok(Num::Float(match d {
                DType::F32 => Box::new(move |env| P32::round(op(a(env)))),
                DType::F64 => Box::new(move |env| op(a(env))),
                _ => Box::new(move |env| relax_ir::prim::round_float(d, op(a(env)))),
            }));
        }
        if let Some(op) = float_of_two(f) {
            arity(2)?;
            let (a, b) = (self.float(first)?, self.float(&args[1])?);
            return Ok(Num::Float(Box::new(move |env| relax_ir::prim::round_float(d, op(a(env), b(env))))));
        }
        match f {
            Intrin::NextAfter => {
                arity(2)?;
                let (a, b) = (self.float(first)?, self.float(&args[1])?);
                macro_rules! run {
                    ($p:ty) => {
                        next_after::<$p> as fn(f64, f64) -> f64
                    };
                }
                let op = with_precision!(d, run);
                Ok(Num::Float(Box::new(move |env| op(a(env), b(env)))))
            }
            Intrin::Fma => {
                arity(3)?;
                let (a, b, c) = (self.float(first)?, self.float(&args[1])?, self.float(&args[2])?);
                macro_rules! run {
                    ($p:ty) => {
                        <$p>::fma as fn(f64, f64, f64) -> f64
                    };
                }
                let op = with_precision!(d, run);
                Ok(Num::Float(Box::new(move |env| op(a(env), b(env), c(env)))))
            }
            _ => Err(unsupported(e, &format!("`T.{}` on {d}", f.name()))),
        }
    }
}

/// Sets a variable.
pub fn assign(slot: Slot, value: Num) -> Box<dyn Fn(&mut Env)> {
    match (slot, value) {
        (Slot::Int(s), Num::Int(f)) => Box::new(move |env| env.ints[s] = f(env)),
        (Slot::Float(s), Num::Float(f)) => Box::new(move |env| env.floats[s] = f(env)),
        (Slot::Int(s), Num::Float(f)) => Box::new(move |env| env.ints[s] = f(env) as i64),
        (Slot::Float(s), Num::Int(f)) => Box::new(move |env| env.floats[s] = f(env) as f64),
    }
}

fn float_op<P: Precision>(op: BinOp, x: FloatFn, y: FloatFn) -> FloatFn {
    match op {
        BinOp::Add => Box::new(move |env| P::round(x(env) + y(env))),
        BinOp::Sub => Box::new(move |env| P::round(x(env) - y(env))),
        BinOp::Mul => Box::new(move |env| P::round(x(env) * y(env))),
        _ => Box::new(move |env| float_binary::<P>(op, x(env), y(env))),
    }
}

fn int_op(op: BinOp, d: DType, x: Index, y: Index, span: Span) -> IntFn {
    let w = Wrap::new(if op.is_predicate() { DType::BOOL } else { d });
    let (unsigned, bits) = (d.is_uint() || d.is_bool(), d.bits as u32);
    match op {
        BinOp::Add => Box::new(move |env| w.apply(x.get(env).wrapping_add(y.get(env)))),
        BinOp::Sub => Box::new(move |env| w.apply(x.get(env).wrapping_sub(y.get(env)))),
        BinOp::Mul => Box::new(move |env| w.apply(x.get(env).wrapping_mul(y.get(env)))),
        BinOp::Lt if !unsigned => Box::new(move |env| (x.get(env) < y.get(env)) as i64),
        _ => Box::new(move |env| {
            let (a, b) = (x.get(env), y.get(env));
            match int_binary(op, unsigned, bits, a, b) {
                Some(v) => w.apply(v),
                None => {
                    env.fail(|| Diagnostic::error("division-by-zero", span, format!("division of {a} by zero")));
                    0
                }
            }
        }),
    }
}

fn unsupported(e: &PrimExpr, what: &str) -> Diagnostic {
    Diagnostic::unsupported("interpreter", e.span(), format!("the reference interpreter does not evaluate {what}"))
}
