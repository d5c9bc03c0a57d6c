//! What a name of a graph stands for during import.

use super::kind::Kind;
use relax_ir::relax::{Expr, ExprKind};
use relax_ir::{Constant, DType, PrimExpr};
use std::sync::Arc;

/// Tensors of at most so many elements are followed element by element.
pub const MAX_KNOWN: usize = 1024;

/// A value of the graph. Sequences and optionals exist during import only: their structure is static.
#[derive(Clone, Debug)]
pub enum Value {
    Tensor(Tensor),
    Sequence(Vec<Value>),
    /// `None` is the empty optional.
    Optional(Option<Box<Value>>),
    /// One of two values of different structure: the first where the scalar holds.
    Choice(Tensor, Box<(Value, Value)>),
    /// What a node that failed left behind: its users are skipped, so that each mistake is reported once.
    Poison,
}

impl From<Tensor> for Value {
    fn from(t: Tensor) -> Value {
        Value::Tensor(t)
    }
}

/// A tensor: dims and dtype are always stated; a dim that nothing is known of is a shape variable of its own.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub dims: Vec<PrimExpr>,
    pub dtype: DType,
    /// What the elements mean, where the dtype does not say.
    pub kind: Kind,
    repr: Repr,
}

#[derive(Clone, Debug)]
enum Repr {
    /// A leaf of the Relax function: a variable or a constant.
    Expr(Expr),
    /// The elements in row-major order, known (symbolically) at import; code is made when someone needs the tensor.
    Known(Arc<[PrimExpr]>),
    /// Both: computed at run time, and known.
    Both(Expr, Arc<[PrimExpr]>),
}

impl Tensor {
    /// A tensor that the Relax leaf `expr` holds.
    pub fn new(expr: Expr, dims: Vec<PrimExpr>, dtype: DType) -> Tensor {
        Tensor { dims, dtype, kind: Kind::Plain, repr: Repr::Expr(expr) }
    }

    pub fn of_kind(self, kind: Kind) -> Tensor {
        Tensor { kind, ..self }
    }

    pub fn constant(c: Constant) -> Tensor {
        let dims = c.shape.iter().map(|d| PrimExpr::i64(*d)).collect();
        let dtype = c.dtype;
        Tensor::new(Expr::new(ExprKind::Constant(c), relax_ir::Span::NONE), dims, dtype)
    }

    /// A tensor of known elements; `dims` are literals whose product is their number.
    pub fn known(dims: &[usize], dtype: DType, elements: Vec<PrimExpr>) -> Tensor {
        let dims = dims.iter().map(|d| PrimExpr::i64(*d as i64)).collect();
        Tensor { dims, dtype, kind: Kind::Plain, repr: Repr::Known(elements.into()) }
    }

    /// The same tensor with its elements known too.
    pub fn with_elements(self, elements: Vec<PrimExpr>) -> Tensor {
        let repr = match self.repr {
            Repr::Expr(e) | Repr::Both(e, _) => Repr::Both(e, elements.into()),
            Repr::Known(_) => Repr::Known(elements.into()),
        };
        Tensor { repr, ..self }
    }

    /// A vector of int64.
    pub fn ints(values: &[i64]) -> Tensor {
        Tensor::known(&[values.len()], DType::I64, values.iter().map(|v| PrimExpr::i64(*v)).collect())
    }

    /// Dims as an int64 vector.
    pub fn shape(values: Vec<PrimExpr>) -> Tensor {
        Tensor::known(&[values.len()], DType::I64, values)
    }

    /// A scalar of any numeric dtype.
    pub fn scalar(dtype: DType, v: f64) -> Tensor {
        Tensor::constant(Constant::scalar_f64(dtype, v))
    }

    pub fn scalar_int(dtype: DType, v: i64) -> Tensor {
        Tensor::constant(Constant::scalar_i64(dtype, v))
    }

    /// The dims as the model sees them: without the bytes of strings.
    pub fn logical_dims(&self) -> &[PrimExpr] {
        match (self.kind, self.dims.split_last()) {
            (Kind::Text, Some((_, d))) => d,
            _ => &self.dims,
        }
    }

    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The dims, when all are numbers.
    pub fn literal_dims(&self) -> Option<Vec<usize>> {
        self.dims.iter().map(|d| d.as_int().and_then(|v| usize::try_from(v).ok())).collect()
    }

    /// The number of elements, when all dims are numbers.
    pub fn literal_len(&self) -> Option<usize> {
        self.literal_dims()?.into_iter().try_fold(1usize, |n, d| n.checked_mul(d))
    }

    /// The Relax leaf, when there is one already.
    pub fn leaf(&self) -> Option<&Expr> {
        match &self.repr {
            Repr::Expr(e) | Repr::Both(e, _) => Some(e),
            Repr::Known(_) => None,
        }
    }

    /// The constant that the tensor is, if it is one.
    pub fn as_constant(&self) -> Option<&Constant> {
        match self.leaf()?.kind() {
            ExprKind::Constant(c) => Some(c),
            _ => None,
        }
    }

    /// The elements in row-major order, as far as known: integers and bools symbolically, floats as literals.
    pub fn elements(&self) -> Option<Vec<PrimExpr>> {
        if self.dims.iter().any(|d| d.is_int(0)) {
            return Some(vec![]);
        }
        match &self.repr {
            Repr::Known(v) | Repr::Both(_, v) => Some(v.to_vec()),
            Repr::Expr(e) => match e.kind() {
                ExprKind::Constant(c) if c.elements() <= MAX_KNOWN => {
                    let element = |i| match c.dtype.is_float() {
                        true => PrimExpr::float(c.dtype, c.get_f64(i)),
                        false => PrimExpr::int(c.dtype, c.get_i64(i)),
                    };
                    Some((0..c.elements()).map(element).collect())
                }
                _ => None,
            },
        }
    }

    /// The elements as numbers, when all are literals (of a float tensor: truncated).
    pub fn as_ints(&self) -> Option<Vec<i64>> {
        self.elements()?.iter().map(|e| e.as_int().or_else(|| e.as_float().map(|f| f as i64))).collect()
    }

    pub fn as_floats(&self) -> Option<Vec<f64>> {
        self.elements()?.iter().map(|e| e.as_float().or_else(|| e.as_int().map(|i| i as f64))).collect()
    }

    /// The tensor as a constant when every element is a literal.
    pub fn to_constant(&self) -> Option<Constant> {
        if let Some(c) = self.as_constant() {
            return Some(c.clone());
        }
        let shape: Vec<i64> = self.dims.iter().map(PrimExpr::as_int).collect::<Option<_>>()?;
        let mut bytes = vec![];
        for e in self.elements()? {
            let c = match (e.as_int(), e.as_float()) {
                (Some(v), _) => Constant::scalar_i64(self.dtype, v),
                (_, Some(v)) => Constant::scalar_f64(self.dtype, v),
                _ => return None,
            };
            bytes.extend_from_slice(c.bytes());
        }
        Some(Constant::new(self.dtype, shape, bytes))
    }
}
