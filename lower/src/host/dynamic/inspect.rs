//! `R.inspect.*`: fields of the struct of a tensor.

use super::expr::{Dyn, Gen, Res, Scope};
use crate::host::build::Failure;
use relax_ir::op::OpDecl;
use relax_ir::program::code;
use relax_ir::relax::Call;
use relax_ir::{DType, Diagnostic, PrimExpr, Span};

impl Gen<'_, '_> {
    /// The field that `op` names: known, or read from the struct.
    pub fn inspect(&mut self, c: &Call, op: &'static OpDecl, span: Span, scope: &mut Scope) -> Res<Dyn> {
        let value = self.operand(c, 0, span, scope)?;
        let axis = match c.args.len() {
            0 | 1 => None,
            _ => match self.operand(c, 1, span, scope)? {
                Dyn::Prim(p) => p.as_int(),
                _ => None,
            },
        };
        let known = |d: DType, v: i64| Ok(Dyn::Prim(PrimExpr::int(d, v)));
        match (op.name, &value) {
            ("inspect.tensor_byte_offset" | "inspect.tensor_elem_offset", _) => known(DType::U64, 0),
            ("inspect.tensor_dtype_code", Dyn::Tensor(t)) => known(DType::U8, t.dtype.dlpack().0 as i64),
            ("inspect.tensor_dtype_bits", Dyn::Tensor(t)) => known(DType::U8, t.dtype.dlpack().1 as i64),
            ("inspect.tensor_dtype_lanes", Dyn::Tensor(_)) => known(DType::U16, 1),
            ("inspect.tensor_ndim", Dyn::Tensor(t)) => known(DType::I32, t.dims.len() as i64),
            ("inspect.tensor_shape_i" | "inspect.tensor_stride_i", Dyn::Tensor(t)) => {
                let i = axis.and_then(|i| usize::try_from(i).ok()).filter(|i| *i < t.dims.len());
                let i = i.ok_or_else(|| self.inspected(op, span, "a literal axis within the rank"))?;
                let stride = op.name == "inspect.tensor_stride_i";
                Ok(Dyn::Prim(if stride { PrimExpr::product(&t.dims[i + 1..]) } else { t.dims[i].clone() }))
            }
            (_, Dyn::Value(_)) => {
                let Dyn::Value(at) = self.as_tensor(&value, "the operand", span)? else {
                    return Err(self.inspected(op, span, "a tensor"));
                };
                let (abi, tensor) = (self.b.abi, self.dltensor(&at));
                if matches!(op.name, "inspect.tensor_shape_i" | "inspect.tensor_stride_i") {
                    return self.open_axis(op, &tensor, axis, span);
                }
                let (offset, dtype) = match op.name {
                    "inspect.tensor_dtype_code" => (abi.tensor_dtype, DType::U8),
                    "inspect.tensor_dtype_bits" => (abi.tensor_dtype + 1, DType::U8),
                    "inspect.tensor_dtype_lanes" => (abi.tensor_dtype + 2, DType::U16),
                    "inspect.tensor_ndim" => (abi.tensor_ndim, DType::I32),
                    _ => return Err(self.inspected(op, span, "a tensor of known rank and dtype")),
                };
                Ok(Dyn::Prim(self.b.load("field", &tensor, offset, dtype)))
            }
            _ => Err(self.inspected(op, span, "a tensor")),
        }
    }

    /// Dim `axis` of a tensor of any rank, or its stride: the product of those behind it, as tensors are dense.
    fn open_axis(&mut self, op: &OpDecl, tensor: &PrimExpr, axis: Option<i64>, span: Span) -> Res<Dyn> {
        let i = axis.filter(|i| *i >= 0).ok_or_else(|| self.inspected(op, span, "a tensor, with a literal axis"))?;
        let abi = self.b.abi;
        let rank = self.b.load("rank", tensor, abi.tensor_ndim, DType::I32).cast(DType::I64);
        let rank = self.b.bind("rank", rank);
        let what = format!("R.{} of axis {i}, number of dims at least", op.name);
        let (wanted, got) = (PrimExpr::i64(i + 1), rank.clone());
        let wrong = rank.clone().le(PrimExpr::i64(i));
        self.b.fail_if(wrong, Failure { code: code::RANK, constraint: 0, wanted, got, what: &what });
        let shape = self.b.load("shape", tensor, abi.tensor_shape, DType::HANDLE);
        Ok(Dyn::Prim(match op.name {
            "inspect.tensor_shape_i" => self.b.load("dim", &shape, i * 8, DType::I64),
            _ => self.product(shape.ptr_add(PrimExpr::i64((i + 1) * 8)), rank - (i + 1)),
        }))
    }

    fn inspected(&self, op: &OpDecl, span: Span, wanted: &str) -> Diagnostic {
        Diagnostic::unsupported("operator", span, format!("R.{}: the operand must be {wanted}", op.name))
    }
}
