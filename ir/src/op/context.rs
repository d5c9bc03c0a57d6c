//! What an operator's shape rule and computation see of a call.

use super::OpDecl;
use crate::attrs::{AttrValue, Attrs};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::prim::PrimExpr;
use crate::relax::{Expr, ExprKind, StructInfo, TensorInfo};
use crate::span::Span;
use crate::tir::{Buffer, KernelBuilder};

/// The three answers of the shape prover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Equal (or true) under every legal assignment.
    Yes,
    /// Different (or false) under every legal assignment.
    No,
    Unknown,
}

/// The shape prover and the place where requirements are recorded; analysis implements it.
pub trait ShapeFacts {
    /// Is this boolean expression always true, always false, or unknown? Equalities included.
    fn prove(&mut self, condition: &PrimExpr) -> Answer;
    /// Canonical form of a dim.
    fn simplify(&mut self, dim: &PrimExpr) -> PrimExpr;
    /// Records a requirement that could not be decided: it becomes a numbered check at run time.
    fn check_at_run_time(&mut self, condition: PrimExpr, message: String, span: Span);
    /// Notes a requirement that holds in every case, for the report.
    fn note_proved(&mut self, condition: &PrimExpr) {
        let _ = condition;
    }
}

/// A call as its shape rule sees it.
pub struct InferCx<'a> {
    pub op: &'static OpDecl,
    /// The operands; missing optional ones are left out at the end and `ExprKind::Absent` in the middle.
    pub args: &'a [Expr],
    /// Struct info of `args`, one each.
    pub infos: &'a [StructInfo],
    pub attrs: &'a Attrs,
    pub sinfo_args: &'a [StructInfo],
    pub span: Span,
    pub facts: &'a mut dyn ShapeFacts,
}

impl InferCx<'_> {
    pub fn error(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error("operator", self.span, format!("R.{}: {}", self.op.name, message.into()))
    }

    /// Is operand `i` given?
    pub fn has(&self, i: usize) -> bool {
        self.args.get(i).is_some_and(|a| !matches!(a.kind(), ExprKind::Absent))
    }

    /// Operand `i` as a tensor.
    pub fn tensor(&self, i: usize) -> Result<&TensorInfo, Diagnostic> {
        match self.infos.get(i) {
            Some(StructInfo::Tensor(t)) => Ok(t),
            Some(_) => Err(self.error(format!("operand {} ({}) must be a tensor", i + 1, self.operand_name(i)))),
            None => Err(self.error(format!("operand {} ({}) is missing", i + 1, self.operand_name(i)))),
        }
    }

    /// Operand `i` as a tuple of tensors; a lone tensor is not accepted.
    pub fn tensors(&self, i: usize) -> Result<Vec<&TensorInfo>, Diagnostic> {
        let fields = match self.infos.get(i) {
            Some(StructInfo::Tuple(f)) => f,
            _ => return Err(self.error(format!("operand {} must be a tuple of tensors", i + 1))),
        };
        fields
            .iter()
            .map(|f| f.as_tensor().ok_or_else(|| self.error(format!("operand {} must be a tuple of tensors", i + 1))))
            .collect()
    }

    /// Attribute `name` is one axis, not a list of them.
    pub fn one_axis(&self, name: &str) -> Result<(), Diagnostic> {
        match self.attrs.get(name) {
            Some(AttrValue::List(_)) => Err(self.error(format!("{name} is one axis, a list is given"))),
            _ => Ok(()),
        }
    }

    fn operand_name(&self, i: usize) -> &'static str {
        let mut operands = self.op.params.iter().filter(|p| p.kind == super::ParamKind::Operand);
        operands.nth(i).map_or("?", |p| p.name)
    }

    /// Requires `a == b`: a diagnostic when they are proved different, a run-time check when unknown.
    pub fn require_eq(
        &mut self,
        a: &PrimExpr,
        b: &PrimExpr,
        message: impl FnOnce() -> String,
    ) -> Result<(), Diagnostic> {
        self.require(PrimExpr::raw_binary(crate::prim::BinOp::Eq, a.clone(), b.clone()), message)
    }

    /// Requires a boolean expression over dims.
    pub fn require(&mut self, condition: PrimExpr, message: impl FnOnce() -> String) -> Result<(), Diagnostic> {
        match self.facts.prove(&condition) {
            Answer::Yes => {
                self.facts.note_proved(&condition);
                Ok(())
            }
            Answer::No => Err(self.error(message())),
            Answer::Unknown => {
                let text = format!("R.{}: {}", self.op.name, message());
                self.facts.check_at_run_time(condition, text, self.span);
                Ok(())
            }
        }
    }

    /// Canonical form of a dim.
    pub fn simplify(&mut self, dim: PrimExpr) -> PrimExpr {
        self.facts.simplify(&dim)
    }
}

/// A tensor operand with known dims.
#[derive(Clone, Debug)]
pub struct TensorArg<'a> {
    pub dims: &'a [PrimExpr],
    pub dtype: DType,
}

/// A call as its computation sees it: every tensor has known dims and dtype (unknown ones were given fresh shape
/// variables before).
pub struct ComputeCx<'a> {
    pub op: &'static OpDecl,
    pub args: &'a [Expr],
    pub infos: &'a [StructInfo],
    pub attrs: &'a Attrs,
    /// The derived struct info of the result.
    pub out: &'a StructInfo,
    pub span: Span,
}

impl<'a> ComputeCx<'a> {
    pub fn error(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::unsupported("operator", self.span, format!("R.{}: {}", self.op.name, message.into()))
    }

    pub fn has(&self, i: usize) -> bool {
        self.args.get(i).is_some_and(|a| !matches!(a.kind(), ExprKind::Absent))
    }

    fn known(&self, info: &'a StructInfo) -> Result<TensorArg<'a>, Diagnostic> {
        let t = info.as_tensor().ok_or_else(|| self.error("a tensor is needed here"))?;
        match (t.known_dims(), t.dtype) {
            (Some(dims), Some(dtype)) => Ok(TensorArg { dims, dtype }),
            _ => Err(self.error("shape and dtype of the tensor must be known")),
        }
    }

    pub fn tensor(&self, i: usize) -> Result<TensorArg<'a>, Diagnostic> {
        self.known(self.infos.get(i).ok_or_else(|| self.error(format!("operand {} is missing", i + 1)))?)
    }

    pub fn tensors(&self, i: usize) -> Result<Vec<TensorArg<'a>>, Diagnostic> {
        match self.infos.get(i) {
            Some(StructInfo::Tuple(f)) => f.iter().map(|x| self.known(x)).collect(),
            _ => Err(self.error(format!("operand {} must be a tuple of tensors", i + 1))),
        }
    }

    /// Operand `i` as a shape (`R.shape([..])`, or anything whose struct info states the values).
    pub fn shape(&self, i: usize) -> Result<Vec<PrimExpr>, Diagnostic> {
        match (self.args.get(i).map(Expr::kind), self.infos.get(i)) {
            (Some(ExprKind::Shape(v)), _) => Ok(v.clone()),
            (_, Some(StructInfo::Shape { values: Some(v), .. })) => Ok(v.clone()),
            _ => Err(self.error(format!("operand {} must be a shape", i + 1))),
        }
    }

    /// The result as one tensor.
    pub fn result(&self) -> Result<TensorArg<'a>, Diagnostic> {
        self.known(self.out)
    }

    /// The result as a tuple of tensors.
    pub fn results(&self) -> Result<Vec<TensorArg<'a>>, Diagnostic> {
        match self.out {
            StructInfo::Tuple(f) => f.iter().map(|x| self.known(x)).collect(),
            other => Ok(vec![self.known(other)?]),
        }
    }

    /// A builder whose inputs are all tensor operands in order (tuples flattened), named after the parameters.
    pub fn kernel(&self) -> Result<(KernelBuilder, Vec<Buffer>), Diagnostic> {
        let mut builder = KernelBuilder::new(self.op.name.replace('.', "_"));
        let mut inputs = vec![];
        let names = self.op.params.iter().filter(|p| p.kind == super::ParamKind::Operand).map(|p| p.name);
        let names: Vec<&str> = names.collect();
        for (i, info) in self.infos.iter().enumerate() {
            let name = names.get(i).copied().unwrap_or("x");
            match info {
                StructInfo::Tensor(_) => {
                    let t = self.known(info)?;
                    inputs.push(builder.input(name, t.dims, t.dtype));
                }
                StructInfo::Tuple(fields) => {
                    for (j, f) in fields.iter().enumerate().filter(|(_, f)| f.as_tensor().is_some()) {
                        let t = self.known(f)?;
                        inputs.push(builder.input(&format!("{name}_{j}"), t.dims, t.dtype));
                    }
                }
                _ => {}
            }
        }
        Ok((builder, inputs))
    }
}
