//! Calls of TVM's sorting library from inside of PrimFuncs: what TVM's legalisation of sorting operators prints. Each
//! becomes the loops that do it.

use super::context::Cx;
use super::syntax::*;
use relax_ir::op::families::sort;
use relax_ir::tir::{Buffer, Stmt as TStmt};
use relax_ir::{PrimExpr, Span};

impl<'a> Cx<'a> {
    /// `T.call_packed("tvm.contrib.sort.argsort", data, out, axis, is_ascend)` as a block; `None` when `call` is
    /// another call. Source: TVM src/runtime/contrib/sort/sort.cc.
    pub fn tir_sort(&mut self, call: &CallExpr<'a>, span: Span) -> Option<Option<TStmt>> {
        if !matches!(call.func.dotted().as_deref(), Some("T.call_packed" | "T.tvm_call_packed")) {
            return None;
        }
        let name = call.args.first()?.as_str()?.strip_prefix("tvm.contrib.sort.")?;
        let block = match name {
            "argsort" => sort::argsort_block,
            "sort" => sort::values_block,
            "argsort_nms" => return Some(self.sort_some(call, span)),
            "topk" => return Some(self.first_of_sorted(call, span)),
            _ => return None,
        };
        Some(self.sort_call(call, span, block))
    }

    fn sort_call(
        &mut self,
        call: &CallExpr<'a>,
        span: Span,
        block: fn(&Buffer, &Buffer, usize, bool) -> TStmt,
    ) -> Option<TStmt> {
        let [_, data, out, axis, ascending] = call.args.as_slice() else {
            let given = call.args.len();
            return self.error("argument", span, format!("this function takes 5 arguments, {given} given"));
        };
        let (data, out) = (self.stacked_array(data)?, self.stacked_array(out)?);
        let rank = data.ndim() as i64;
        let axis_span = axis.span;
        let axis = self.int(axis)?;
        let ascending = self.prim(ascending)?.as_int().map(|v| v != 0);
        let axis = if axis < 0 { axis + rank } else { axis };
        if !(0..rank).contains(&axis) || out.shape.len() != data.shape.len() {
            return self.error("argument", axis_span, format!("the axis is not one of a tensor of rank {rank}"));
        }
        let Some(ascending) = ascending else {
            return self.error("argument", call.args[4].span, "the direction must be a literal");
        };
        Some(block(&data, &out, axis as usize, !ascending))
    }

    /// `T.call_packed("tvm.contrib.sort.argsort_nms", data, count, out, axis, is_ascend)`.
    fn sort_some(&mut self, call: &CallExpr<'a>, span: Span) -> Option<TStmt> {
        let [_, data, count, out, axis, ascending] = call.args.as_slice() else {
            let given = call.args.len();
            return self.error("argument", span, format!("this function takes 6 arguments, {given} given"));
        };
        let (data, count, out) = (self.stacked_array(data)?, self.stacked_array(count)?, self.stacked_array(out)?);
        let axis = self.int(axis)?;
        let ascending = self.prim(ascending)?.as_int().map(|v| v != 0);
        let fits = (0..data.ndim() as i64).contains(&axis)
            && out.ndim() == data.ndim()
            && count.ndim() + 1 == data.ndim()
            && (data.dtype().is_float() || data.dtype().is_int());
        match (fits, ascending) {
            (true, Some(up)) => Some(sort::argsort_some_block(&data, &count, &out, axis as usize, !up)),
            _ => self.error("argument", span, "the tensors, axis and direction do not fit together".to_string()),
        }
    }

    /// `T.call_packed("tvm.contrib.sort.topk", data, out.., k, axis, ret_type, is_ascend)`.
    fn first_of_sorted(&mut self, call: &CallExpr<'a>, span: Span) -> Option<TStmt> {
        let [_, data, outs @ .., k, axis, which, ascending] = call.args.as_slice() else {
            return self.error("argument", span, "this function takes a tensor, its results, k, axis, what, direction");
        };
        let data = self.stacked_array(data)?;
        let outs = outs.iter().map(|o| self.stacked_array(o)).collect::<Option<Vec<Buffer>>>()?;
        let (k, axis, which) = (self.int(k)?, self.int(axis)?, self.string(which)?);
        let ascending = self.prim(ascending)?.as_int();
        let axis = if axis < 0 { axis + data.ndim() as i64 } else { axis };
        let (values, indices) = match (which.as_str(), outs.as_slice()) {
            ("both", [v, i]) => (Some(v), Some(i)),
            ("values", [v]) => (Some(v), None),
            ("indices", [i]) => (None, Some(i)),
            _ => return self.error("argument", span, format!("these are not the results of \"{which}\"")),
        };
        let at = usize::try_from(axis).ok().filter(|a| *a < data.ndim());
        let fits = |out: &Buffer, at: usize| {
            let lengths = (data.shape[at].as_int(), out.shape.get(at).and_then(PrimExpr::as_int));
            let whole = k < 1 && out.shape.get(at) == data.shape.get(at);
            let part = matches!(lengths, (Some(n), Some(m)) if m == if k < 1 { n } else { k } && m <= n);
            out.ndim() == data.ndim() && (whole || part)
        };
        match (at, ascending) {
            (Some(at), Some(up)) if outs.iter().all(|o| fits(o, at)) => {
                Some(sort::topk_block(&data, values, indices, at, up == 0))
            }
            _ => self.error("argument", span, "the tensors, k, axis and direction do not fit together"),
        }
    }

    /// The buffer behind `T.tvm_stack_make_array(buffer.data, shape, ..)`, of the shape that is stated there: where kernels have
    /// been flattened, the buffer itself has one dim.
    fn stacked_array(&mut self, e: &Expr<'a>) -> Option<Buffer> {
        let array = e.as_call().filter(|_| e.called().as_deref() == Some("T.tvm_stack_make_array"));
        let buffer = match array.and_then(|c| c.args.first()).map(|a| &a.kind) {
            Some(ExprKind::Attribute(buffer, field)) if field.name == "data" => self.buffer(buffer)?,
            _ => return self.expected(e, "T.tvm_stack_make_array of a buffer's data"),
        };
        let stated = array.and_then(|c| c.args.get(1)).and_then(Expr::as_call);
        let stated = stated.filter(|c| c.func.dotted().as_deref() == Some("T.tvm_stack_make_shape"));
        let Some(stated) = stated else { return Some(buffer) };
        let shape = stated.args.iter().map(|d| self.dim(d)).collect::<Option<Vec<_>>>()?;
        let same = |(a, b): (&PrimExpr, &PrimExpr)| a == b || a.as_int().is_some() && a.as_int() == b.as_int();
        if shape.len() == buffer.ndim() && shape.iter().zip(&buffer.shape).all(same) {
            return Some(buffer);
        }
        let view = Buffer::from_parts(&buffer.name, shape, buffer.dtype(), vec![], None, &buffer.scope, e.span);
        let of = self.memory(&buffer);
        self.lies_over(&view, of, e.span)?;
        Some(view)
    }
}
