//! The reference interpreter of whole modules: the meaning of a Relax program, written down plainly.
//!
//! It runs a module **as parsed**: no normal form, no derived struct info, no pass. Every annotation is checked against
//! the value at hand, every operator is computed with the shapes at hand in the reference interpreter of PrimFuncs
//! ([`crate::interp`]). So it shares the operators' declarations with the compiler and nothing else, and is the oracle
//! of differential fuzzing.
//!
//! ```
//! use relax_lower::eval::{run, Value};
//! use relax_lower::interp::Tensor;
//!
//! let text = "
//! @I.ir_module
//! class Module:
//!     @R.function
//!     def main(x: R.Tensor((\"n\",), dtype=\"float32\")) -> R.Tensor((\"n\",), dtype=\"float32\"):
//!         y = R.add(x, x)
//!         return y
//! ";
//! let (module, _) = relax_frontend::rlx::parse(relax_ir::span::FileId(0), text);
//! let x = Value::tensor(Tensor::from_f32(&[2], &[1.0, 2.0]));
//! let y = run(&module.unwrap(), "main", vec![x]).unwrap();
//! let mut out = vec![];
//! y.value.flatten(&mut out);
//! assert_eq!(out[0].to_f32(), [2.0, 4.0]);
//! ```

mod matching;
mod operators;
mod value;

pub use value::{Closure, Scope, Value};

use crate::interp::Tensor;
use matching::{dims, match_cast, scalar};
use relax_ir::relax::{BindingValue, Call, Callee, Expr, ExprKind, Function, RVar, SeqExpr};
use relax_ir::{Func, IRModule, Span};
use std::rc::Rc;
use std::sync::Arc;

/// Why there is no result.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// A check of the program fails: a MatchCast, an annotation, what an operator demands, an assertion.
    Check(String),
    /// A kernel does what it must not: an index out of bounds, a division by zero.
    Fault(String),
    /// The module is broken.
    Other(String),
    /// The interpreter does not know this.
    Unsupported(String),
    /// Calls nest too deeply.
    Depth,
}

/// What a call left behind.
#[derive(Debug)]
pub struct Outcome {
    pub value: Value,
    /// The formats of `R.print`, in order.
    pub prints: Vec<String>,
}

const MAX_DEPTH: u32 = 500;

/// Calls the function `entry` of a module.
pub fn run(module: &IRModule, entry: &str, args: Vec<Value>) -> Result<Outcome, Stop> {
    run_with(module, entry, args, &|_, _| None)
}

/// What packed functions compute: name and arguments (in destination-passing style without the outputs) to the result.
pub type Packed<'a> = &'a dyn Fn(&str, &[Value]) -> Option<Value>;

/// As [`run`], with functions of the host.
pub fn run_with(module: &IRModule, entry: &str, args: Vec<Value>, packed: Packed) -> Result<Outcome, Stop> {
    let mut m = Machine { module, prints: vec![], depth: 0, packed };
    let value = m.global(entry, args)?;
    Ok(Outcome { value, prints: m.prints })
}

struct Machine<'a> {
    module: &'a IRModule,
    prints: Vec<String>,
    depth: u32,
    packed: Packed<'a>,
}

/// A packed function by its name.
fn named(f: &Value) -> Value {
    match f {
        Value::Str(name) => Value::Extern(name.clone()),
        other => other.clone(),
    }
}

/// A bool scalar.
fn truth(v: &Value) -> Result<bool, Stop> {
    match v {
        Value::Tensor(t) if t.shape.is_empty() => Ok(t.to_i64().first().is_some_and(|x| *x != 0)),
        Value::Int(_, x) => Ok(*x != 0),
        other => Err(Stop::Check(format!("a condition that is {}", other.kind()))),
    }
}

impl Machine<'_> {
    fn global(&mut self, name: &str, args: Vec<Value>) -> Result<Value, Stop> {
        match self.module.get(name) {
            Some(Func::Relax(f)) => self.invoke(f, args, Scope::default()),
            Some(Func::Prim(_)) => Err(Stop::Unsupported(format!("a direct call of the PrimFunc {name}"))),
            None => Err(Stop::Other(format!("no function {name}"))),
        }
    }

    fn invoke(&mut self, f: &Function, args: Vec<Value>, mut scope: Scope) -> Result<Value, Stop> {
        if args.len() != f.params.len() {
            return Err(Stop::Check(format!("{} takes {} arguments", f.name, f.params.len())));
        }
        if self.depth >= MAX_DEPTH {
            return Err(Stop::Depth);
        }
        // One tuple of all parameters: a dim may stand before the parameter that its variable comes from.
        for p in &f.params {
            scope.values.remove(&p.var);
        }
        let infos = f.params.iter().map(|p| p.annotation.clone().unwrap_or(relax_ir::relax::StructInfo::Object));
        let infos = relax_ir::relax::StructInfo::Tuple(infos.collect());
        for (p, a) in f.params.iter().zip(&args) {
            scope.values.insert(p.var.clone(), a.clone());
        }
        match_cast(&Value::Tuple(args), &infos, &mut scope)?;
        self.depth += 1;
        let result = self.seq(&f.body, &mut scope);
        self.depth -= 1;
        let result = result?;
        if let Some(ret) = &f.ret {
            match_cast(&result, ret, &mut scope)?;
        }
        Ok(result)
    }

    fn seq(&mut self, s: &SeqExpr, scope: &mut Scope) -> Result<Value, Stop> {
        for b in s.blocks.iter().flat_map(|b| &b.bindings) {
            let value = match &b.value {
                BindingValue::Expr(e) => self.bound(e, Some(&b.var), scope)?,
                BindingValue::MatchCast { value, struct_info } => {
                    let v = self.expr(value, scope)?;
                    match_cast(&v, struct_info, scope)?;
                    v
                }
            };
            scope.values.insert(b.var.clone(), value.clone());
            if let Some(a) = &b.annotation {
                match_cast(&value, a, scope)?;
            }
        }
        self.expr(&s.body, scope)
    }

    fn expr(&mut self, e: &Expr, scope: &mut Scope) -> Result<Value, Stop> {
        self.bound(e, None, scope)
    }

    fn bound(&mut self, e: &Expr, var: Option<&RVar>, scope: &mut Scope) -> Result<Value, Stop> {
        Ok(match e.kind() {
            ExprKind::Constant(c) => Value::tensor(Tensor::from_constant(c)),
            ExprKind::Var(v) => {
                scope.values.get(v).cloned().ok_or_else(|| Stop::Other(format!("{} has no value", v.name())))?
            }
            ExprKind::GlobalVar(name) => Value::Global(name.clone()),
            ExprKind::ExternFunc(name, _) => Value::Extern(name.clone()),
            ExprKind::Tuple(fields) => {
                Value::Tuple(fields.iter().map(|f| self.expr(f, scope)).collect::<Result<_, _>>()?)
            }
            ExprKind::TupleGetItem(t, i) => match self.expr(t, scope)? {
                Value::Tuple(fields) => fields.get(*i).cloned().ok_or_else(|| Stop::Check(format!("no field {i}")))?,
                other => return Err(Stop::Check(format!("a field of {}", other.kind()))),
            },
            ExprKind::Seq(s) => self.seq(s, scope)?,
            ExprKind::Function(f) => {
                Value::Closure(Rc::new(Closure { function: Arc::clone(f), scope: scope.clone(), own: var.cloned() }))
            }
            ExprKind::If { cond, then, otherwise } => {
                let c = self.expr(cond, scope)?;
                let branch = if truth(&c)? { then } else { otherwise };
                self.seq(branch, scope)?
            }
            ExprKind::Call(c) => self.call(c, e.span(), scope)?,
            ExprKind::Shape(v) => Value::Shape(dims(v, scope)?),
            ExprKind::Prim(p) => scalar(p, scope)?,
            ExprKind::Str(s) => Value::Str(s.clone()),
            ExprKind::DType(d) => Value::DType(*d),
            ExprKind::Absent => Value::Absent,
            ExprKind::Op(o) => return Err(Stop::Other(format!("R.{} as a value", o.name))),
        })
    }

    fn apply(&mut self, f: &Value, args: Vec<Value>) -> Result<Value, Stop> {
        match f {
            Value::Global(name) => self.global(name, args),
            Value::Closure(c) => {
                let mut scope = c.scope.clone();
                if let Some(own) = &c.own {
                    scope.values.insert(own.clone(), f.clone());
                }
                self.invoke(&c.function, args, scope)
            }
            Value::Extern(name) => {
                (self.packed)(name, &args).ok_or_else(|| Stop::Unsupported(format!("the packed function {name}")))
            }
            other => Err(Stop::Check(format!("a call of {}", other.kind()))),
        }
    }

    fn call(&mut self, c: &Call, span: Span, scope: &mut Scope) -> Result<Value, Stop> {
        let op = match &c.callee {
            Callee::Expr(f) => {
                let f = self.expr(f, scope)?;
                let args = c.args.iter().map(|a| self.expr(a, scope)).collect::<Result<_, _>>()?;
                return self.apply(&f, args);
            }
            Callee::Op(op) => *op,
        };
        let values: Vec<Value> = c.args.iter().map(|a| self.expr(a, scope)).collect::<Result<_, _>>()?;
        match (op.name, values.as_slice()) {
            ("call_tir" | "call_tir_inplace" | "call_tir_with_grad", [Value::Global(name), ..]) => {
                let prim = self.module.prim(name).ok_or_else(|| Stop::Other(format!("no PrimFunc {name}")))?;
                operators::call_tir(prim, c, &values, scope)
            }
            ("invoke_closure" | "invoke_pure_closure", [f, Value::Tuple(args)]) => self.apply(f, args.clone()),
            ("call_packed" | "call_pure_packed" | "call_inplace_packed", [f, args @ ..]) => {
                self.apply(&named(f), args.to_vec())
            }
            ("call_dps_packed", [f, Value::Tuple(args)]) => self.apply(&named(f), args.clone()),
            ("print", _) => {
                if let Some(Value::Str(format)) = values.last() {
                    self.prints.push(format.clone());
                }
                Ok(Value::Tuple(vec![]))
            }
            _ => operators::host(op, &values).unwrap_or_else(|| operators::call(self.module, op, c, &values, span)),
        }
    }
}
