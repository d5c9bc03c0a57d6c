//! Values of Relax expressions, as the specification lists them.

use crate::interp::Tensor;
use relax_ir::relax::{Function, RVar};
use relax_ir::{DType, Var};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// What a Relax variable can hold.
#[derive(Clone, Debug)]
pub enum Value {
    Tensor(Rc<Tensor>),
    /// The empty one is unit.
    Tuple(Vec<Value>),
    Shape(Vec<i64>),
    Int(DType, i64),
    Float(DType, f64),
    Str(String),
    DType(DType),
    Closure(Rc<Closure>),
    /// A function of the module.
    Global(String),
    /// A packed function.
    Extern(String),
    /// `R.null_value()`, and operands that are not given.
    Absent,
}

/// A local function and what it captured.
#[derive(Clone, Debug)]
pub struct Closure {
    pub function: Arc<Function>,
    pub scope: Scope,
    /// The variable it is bound to, by which it calls itself.
    pub own: Option<RVar>,
}

/// What is visible inside a function.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub values: HashMap<RVar, Value>,
    pub dims: HashMap<Var, i64>,
}

impl Value {
    pub fn tensor(t: Tensor) -> Value {
        Value::Tensor(Rc::new(t))
    }

    /// The tensors inside, tuples flattened from the left; shapes and scalars as the tensors that a caller gets.
    pub fn flatten(&self, out: &mut Vec<Tensor>) {
        match self {
            Value::Tensor(t) => out.push((**t).clone()),
            Value::Tuple(fields) => fields.iter().for_each(|f| f.flatten(out)),
            Value::Shape(v) => out.push(Tensor::from_i64(DType::I64, &[v.len() as i64], v)),
            Value::Int(d, v) => out.push(Tensor::from_i64(*d, &[], &[*v])),
            Value::Float(d, v) => out.push(Tensor::from_f64(*d, &[], &[*v])),
            _ => {}
        }
    }

    /// In messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Tensor(_) => "a tensor",
            Value::Tuple(_) => "a tuple",
            Value::Shape(_) => "a shape",
            Value::Int(..) | Value::Float(..) => "a scalar",
            Value::Str(_) => "a string",
            Value::DType(_) => "a dtype",
            Value::Closure(_) | Value::Global(_) | Value::Extern(_) => "a function",
            Value::Absent => "no value",
        }
    }
}
