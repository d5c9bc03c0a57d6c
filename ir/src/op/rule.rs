//! Pieces of shape rules that several families share: axes, broadcasting, dtypes, shape operands.

use super::{Answer, InferCx};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::prim::{BinOp, PrimExpr, PrimKind};
use crate::relax::{Expr, ExprKind, StructInfo, TensorInfo, TensorShape};

/// A dim as a user writes it, for messages.
pub fn dim_text(e: &PrimExpr) -> String {
    fn text(e: &PrimExpr, level: u8) -> String {
        match e.kind() {
            PrimKind::Int(v) => v.to_string(),
            PrimKind::Var(v) => v.name().to_string(),
            PrimKind::Cast(a) => text(a, level),
            PrimKind::Neg(a) => format!("-{}", text(a, 2)),
            PrimKind::Binary(BinOp::Min, a, b) => format!("min({}, {})", text(a, 0), text(b, 0)),
            PrimKind::Binary(BinOp::Max, a, b) => format!("max({}, {})", text(a, 0), text(b, 0)),
            PrimKind::Binary(op, a, b) => {
                let (sign, at) = match op {
                    BinOp::Add => ("+", 1),
                    BinOp::Sub => ("-", 1),
                    BinOp::Mul => ("*", 2),
                    BinOp::FloorDiv | BinOp::TruncDiv | BinOp::Div => ("//", 2),
                    BinOp::FloorMod | BinOp::TruncMod => ("%", 2),
                    _ => return "?".to_string(),
                };
                let s = format!("{} {sign} {}", text(a, at), text(b, at + 1));
                if level > at {
                    format!("({s})")
                } else {
                    s
                }
            }
            _ => "?".to_string(),
        }
    }
    text(e, 0)
}

/// Dims as a user writes them: `(n, 3)`.
pub fn dims_text(dims: &[PrimExpr]) -> String {
    let v: Vec<String> = dims.iter().map(dim_text).collect();
    format!("({})", v.join(", "))
}

/// `axis`, counted from the end when negative, of a tensor with `ndim` dims.
pub fn wrap_axis(axis: i64, ndim: usize) -> Option<usize> {
    let n = ndim as i64;
    let a = if axis < 0 { axis + n } else { axis };
    (0..n).contains(&a).then_some(a as usize)
}

/// `end - begin`, at least 0 where `begin` is clipped to `end`: `max(end - x, 0)` for a begin of `min(x, end)`.
pub fn length(begin: &PrimExpr, end: &PrimExpr) -> PrimExpr {
    let zero = PrimExpr::i64(0);
    match begin.kind() {
        PrimKind::Binary(BinOp::Min, x, n) if n == end => (end.clone() - x.clone()).max(zero),
        _ => end.clone() - begin.clone(),
    }
}

/// Operand `e` (or its struct info) as scalar expression, when it states one.
pub fn scalar_value(e: Option<&Expr>, info: Option<&StructInfo>) -> Option<PrimExpr> {
    match (e.map(Expr::kind), info) {
        (Some(ExprKind::Prim(p)), _) => Some(p.clone()),
        (_, Some(StructInfo::Prim { value: Some(p), .. })) => Some(p.clone()),
        (Some(ExprKind::Constant(c)), _) if c.shape.is_empty() => Some(if c.dtype.is_float() {
            PrimExpr::float(c.dtype, c.get_f64(0))
        } else {
            PrimExpr::int(c.dtype, c.get_i64(0))
        }),
        _ => None,
    }
}

/// The scalars of a tuple operand (`(0, 1)`) or of a shape; `None` when one is not stated.
pub fn scalar_values(e: Option<&Expr>, info: Option<&StructInfo>) -> Option<Vec<PrimExpr>> {
    match (e.map(Expr::kind), info) {
        (Some(ExprKind::Shape(v)), _) => Some(v.clone()),
        (_, Some(StructInfo::Shape { values: Some(v), .. })) => Some(v.clone()),
        (Some(ExprKind::Tuple(fields)), Some(StructInfo::Tuple(infos))) => {
            fields.iter().zip(infos).map(|(f, i)| scalar_value(Some(f), Some(i))).collect()
        }
        (Some(ExprKind::Tuple(fields)), _) => fields.iter().map(|f| scalar_value(Some(f), None)).collect(),
        (_, Some(StructInfo::Tuple(infos))) => infos.iter().map(|i| scalar_value(None, Some(i))).collect(),
        _ => None,
    }
}

impl TensorInfo {
    /// The same shape with another dtype.
    pub fn with_dtype(&self, dtype: Option<DType>) -> TensorInfo {
        TensorInfo { dtype, ..self.clone() }
    }
    /// The same dtype and device with other dims; `ndim` counts when they are unknown.
    pub fn with_dims(&self, dims: Option<Vec<PrimExpr>>, ndim: Option<usize>) -> TensorInfo {
        let ndim = dims.as_ref().map(Vec::len).or(ndim);
        TensorInfo { shape: dims.map(TensorShape::Dims), ndim, ..self.clone() }
    }
}

impl InferCx<'_> {
    /// Operand `i` as an elementwise input: a tensor, or a scalar value, which counts as a tensor without dims.
    pub fn elements(&self, i: usize) -> Result<TensorInfo, Diagnostic> {
        match self.infos.get(i) {
            Some(StructInfo::Prim { dtype, .. }) => Ok(TensorInfo::dims(vec![], Some(*dtype))),
            _ => self.tensor(i).cloned(),
        }
    }

    /// `axis` of a tensor of rank `ndim`, counted from the end when negative.
    pub fn axis(&self, axis: i64, ndim: usize) -> Result<usize, Diagnostic> {
        wrap_axis(axis, ndim)
            .ok_or_else(|| self.error(format!("axis {axis} is out of range for a tensor of rank {ndim}")))
    }

    /// The axes of attribute `name` (one or a list) in the order written; `None` when it is `None`. Repeated axes are
    /// errors.
    pub fn axes(&self, name: &str, ndim: usize) -> Result<Option<Vec<usize>>, Diagnostic> {
        match self.attrs.get(name) {
            None => return Ok(None),
            Some(v) if v.is_none() => return Ok(None),
            _ => {}
        }
        let list = self.attrs.ints(name).ok_or_else(|| self.error(format!("{name} must be integers")))?;
        let mut out = vec![];
        for a in list {
            let axis = self.axis(a, ndim)?;
            if out.contains(&axis) {
                return Err(self.error(format!("axis {a} occurs twice in {name}")));
            }
            out.push(axis);
        }
        Ok(Some(out))
    }

    /// Integer attribute `name`.
    pub fn int(&self, name: &str) -> Result<i64, Diagnostic> {
        self.attrs.int(name).ok_or_else(|| self.error(format!("{name} must be an integer")))
    }

    /// The dtype attribute `name`; `None` when it is `None` or `"void"`.
    pub fn dtype(&self, name: &str) -> Result<Option<DType>, Diagnostic> {
        match self.attrs.get(name) {
            None => Ok(None),
            Some(v) if v.is_none() || matches!(v.as_str(), Some("void" | "")) => Ok(None),
            Some(v) => v.as_dtype().map(Some).ok_or_else(|| self.error(format!("{name} must be a dtype"))),
        }
    }

    /// Requires float elements where the dtype is known.
    pub fn require_float(&self, i: usize, dtype: Option<DType>) -> Result<(), Diagnostic> {
        match dtype {
            Some(d) if !d.is_float() => {
                Err(self.error(format!("operand {} must have a float dtype, it is {d}", self.operand(i))))
            }
            _ => Ok(()),
        }
    }

    /// Requires integer elements where the dtype is known.
    pub fn require_int(&self, i: usize, dtype: Option<DType>) -> Result<(), Diagnostic> {
        match dtype {
            Some(d) if !d.is_int() => {
                Err(self.error(format!("operand {} must have an integer dtype, it is {d}", self.operand(i))))
            }
            _ => Ok(()),
        }
    }

    /// The name of operand `i` in messages.
    pub fn operand(&self, i: usize) -> &'static str {
        let mut operands = self.op.params.iter().filter(|p| p.kind == super::ParamKind::Operand);
        operands.nth(i).map_or("?", |p| p.name)
    }

    /// The common dtype of operands; different known ones are an error.
    pub fn same_dtype(&self, operands: &[(&str, Option<DType>)]) -> Result<Option<DType>, Diagnostic> {
        let known: Vec<(&str, DType)> = operands.iter().filter_map(|(n, d)| d.map(|d| (*n, d))).collect();
        if let Some(w) = known.windows(2).find(|w| w[0].1 != w[1].1) {
            let ((a, da), (b, db)) = (w[0], w[1]);
            return Err(self
                .error(format!("operands have different dtypes: {a} is {da}, {b} is {db}"))
                .help("convert one with R.astype"));
        }
        Ok(if known.len() == operands.len() { known.first().map(|k| k.1) } else { None })
    }

    /// The dtype of arithmetic on two operands: their common one, or that of the first when one of them is bool, which
    /// then counts as 0 and 1.
    pub fn arithmetic_dtype(
        &self,
        a: (&str, Option<DType>),
        b: (&str, Option<DType>),
    ) -> Result<Option<DType>, Diagnostic> {
        match (a.1, b.1) {
            (Some(x), Some(y)) if x.is_bool() || y.is_bool() => Ok(Some(x)),
            _ => self.same_dtype(&[a, b]),
        }
    }

    /// The dims of a broadcast of `a` with `b`: aligned at the right, equal or 1. Dims that may or may not be equal are
    /// required to be equal at run time.
    pub fn broadcast_dims(&mut self, a: &[PrimExpr], b: &[PrimExpr]) -> Result<Vec<PrimExpr>, Diagnostic> {
        let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
        let lead = long.len() - short.len();
        let mut out = long[..lead].to_vec();
        for (x, y) in long[lead..].iter().zip(short) {
            let dim = if x == y || y.is_int(1) {
                x.clone()
            } else if x.is_int(1) {
                y.clone()
            } else {
                self.require_eq(x, y, || {
                    let (x, y, ta, tb) = (dim_text(x), dim_text(y), dims_text(a), dims_text(b));
                    format!("shapes {ta} and {tb} do not broadcast: dims {x} and {y} differ and neither is 1")
                })?;
                if x.as_int().is_some() {
                    x.clone()
                } else {
                    y.clone()
                }
            };
            out.push(dim);
        }
        Ok(out)
    }

    /// The shape and rank of a broadcast of tensors.
    pub fn broadcast(&mut self, infos: &[TensorInfo]) -> Result<TensorInfo, Diagnostic> {
        let mut acc = match infos.first() {
            Some(t) => t.clone(),
            None => return Err(self.error("no operands")),
        };
        for t in &infos[1..] {
            let ndim = match (acc.ndim, t.ndim) {
                (Some(a), Some(b)) => Some(a.max(b)),
                _ => None,
            };
            acc = match (&acc.shape, &t.shape) {
                (Some(TensorShape::Dims(a)), Some(TensorShape::Dims(b))) => {
                    let dims = self.broadcast_dims(a, b)?;
                    acc.with_dims(Some(dims), None)
                }
                (Some(TensorShape::Var(a)), Some(TensorShape::Var(b))) if a == b => acc,
                (_, Some(TensorShape::Dims(b))) if b.is_empty() => acc,
                (Some(TensorShape::Dims(a)), s) if a.is_empty() => {
                    TensorInfo { shape: s.clone(), ndim: t.ndim, ..acc.clone() }
                }
                _ => acc.with_dims(None, ndim),
            };
        }
        Ok(acc)
    }

    /// Operand `i` as a shape: its values where stated, and its rank.
    pub fn shape_operand(&self, i: usize) -> Result<(Option<Vec<PrimExpr>>, Option<usize>), Diagnostic> {
        // A tuple of Python written in the call is a shape for the parser; a value that is a tuple is none.
        if matches!(self.infos.get(i), Some(StructInfo::Tuple(_))) && !self.op.name.starts_with("onnx.") {
            let d = self.error(format!("operand {} must be a shape, not a tuple", self.operand(i)));
            return Err(d.help("write R.shape([..])"));
        }
        if let Some(v) = scalar_values(self.args.get(i), self.infos.get(i)) {
            let n = v.len();
            return Ok((Some(v.into_iter().map(|d| d.cast(DType::I64)).collect()), Some(n)));
        }
        match self.infos.get(i) {
            Some(StructInfo::Shape { ndim, .. }) => Ok((None, *ndim)),
            Some(StructInfo::Tuple(f)) => Ok((None, Some(f.len()))),
            _ => Err(self.error(format!("operand {} must be a shape", self.operand(i)))),
        }
    }

    /// The value of scalar operand `i`, when it is given and stated.
    pub fn scalar(&self, i: usize) -> Option<PrimExpr> {
        self.args.get(i).filter(|_| self.has(i)).and_then(|a| scalar_value(Some(a), self.infos.get(i)))
    }

    /// Is `a == b` proved?
    pub fn proved_eq(&mut self, a: &PrimExpr, b: &PrimExpr) -> bool {
        a == b || self.facts.prove(&PrimExpr::raw_binary(BinOp::Eq, a.clone(), b.clone())) == Answer::Yes
    }
}
