//! What the generator knows of a value: enough to write well-formed programs, and how exactly it can be compared.

use std::collections::HashMap;
use std::fmt;

/// A dim.
#[derive(Clone, Debug, PartialEq)]
pub enum Dim {
    Const(i64),
    Var(String),
    Add(Box<Dim>, Box<Dim>),
    Mul(Box<Dim>, Box<Dim>),
}

impl Dim {
    pub fn var(name: &str) -> Dim {
        Dim::Var(name.to_string())
    }

    pub fn plus(&self, o: &Dim) -> Dim {
        Dim::Add(Box::new(self.clone()), Box::new(o.clone()))
    }

    pub fn times(&self, o: &Dim) -> Dim {
        match (self, o) {
            (Dim::Const(1), d) | (d, Dim::Const(1)) => d.clone(),
            _ => Dim::Mul(Box::new(self.clone()), Box::new(o.clone())),
        }
    }

    pub fn substitute(&self, map: &HashMap<String, Dim>) -> Dim {
        match self {
            Dim::Const(_) => self.clone(),
            Dim::Var(v) => map.get(v).cloned().unwrap_or_else(|| self.clone()),
            Dim::Add(a, b) => a.substitute(map).plus(&b.substitute(map)),
            Dim::Mul(a, b) => a.substitute(map).times(&b.substitute(map)),
        }
    }

    /// How many variables and numbers it has.
    pub fn size(&self) -> usize {
        match self {
            Dim::Const(_) | Dim::Var(_) => 1,
            Dim::Add(a, b) | Dim::Mul(a, b) => a.size() + b.size(),
        }
    }

    pub fn value(&self, at: &HashMap<String, i64>) -> i64 {
        match self {
            Dim::Const(v) => *v,
            Dim::Var(v) => at.get(v).copied().unwrap_or(1),
            Dim::Add(a, b) => a.value(at) + b.value(at),
            Dim::Mul(a, b) => a.value(at) * b.value(at),
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Dim::Const(v) => write!(f, "{v}"),
            Dim::Var(v) => write!(f, "{v}"),
            Dim::Add(a, b) => write!(f, "({a} + {b})"),
            Dim::Mul(a, b) => write!(f, "{a} * {b}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dt {
    F32,
    F64,
    I32,
    I64,
    Bool,
}

impl Dt {
    pub fn name(self) -> &'static str {
        match self {
            Dt::F32 => "float32",
            Dt::F64 => "float64",
            Dt::I32 => "int32",
            Dt::I64 => "int64",
            Dt::Bool => "bool",
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Dt::F32 | Dt::F64)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Ty {
    Tensor(Vec<Dim>, Dt),
    Tuple(Vec<Ty>),
}

/// Where a struct info stands: in a signature dims are quoted.
#[derive(Clone, Copy, PartialEq)]
pub enum Place {
    Signature,
    Body,
}

impl Ty {
    pub fn text(&self, place: Place) -> String {
        match self {
            Ty::Tensor(dims, dt) => {
                let one = |d: &Dim| match (place, d) {
                    (_, Dim::Const(v)) => v.to_string(),
                    (Place::Signature, d) => format!("\"{d}\""),
                    (Place::Body, d) => d.to_string(),
                };
                let list: Vec<String> = dims.iter().map(one).collect();
                let comma = if list.len() == 1 { "," } else { "" };
                format!("R.Tensor(({}{comma}), dtype=\"{}\")", list.join(", "), dt.name())
            }
            Ty::Tuple(f) => {
                let list: Vec<String> = f.iter().map(|t| t.text(place)).collect();
                format!("R.Tuple({})", list.join(", "))
            }
        }
    }

    pub fn substitute(&self, map: &HashMap<String, Dim>) -> Ty {
        match self {
            Ty::Tensor(d, dt) => Ty::Tensor(d.iter().map(|d| d.substitute(map)).collect(), *dt),
            Ty::Tuple(f) => Ty::Tuple(f.iter().map(|t| t.substitute(map)).collect()),
        }
    }

    /// The tensors inside, from the left.
    pub fn leaves<'a>(&'a self, out: &mut Vec<(&'a [Dim], Dt)>) {
        match self {
            Ty::Tensor(d, dt) => out.push((d, *dt)),
            Ty::Tuple(f) => f.iter().for_each(|t| t.leaves(out)),
        }
    }
}

/// A variable in scope.
#[derive(Clone, Debug)]
pub struct Var {
    pub name: String,
    pub ty: Ty,
    /// Nothing was rounded on the way: results are compared bit by bit, and decisions may depend on it.
    pub exact: bool,
    /// No element is greater than 2 to this.
    pub bits: i32,
}

impl Var {
    pub fn tensor(&self) -> Option<(&[Dim], Dt)> {
        match &self.ty {
            Ty::Tensor(d, dt) => Some((d, *dt)),
            Ty::Tuple(_) => None,
        }
    }
}
