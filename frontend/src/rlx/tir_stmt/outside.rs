//! Calls that leave a PrimFunc, and what it reads of the struct of a tensor.
//!
//! Source: TVM include/tvm/tirx/builtin.h: `tvm_call_packed`, `call_extern`, `tvm_struct_get`, `tvm_stack_make_array`.

use super::*;
use relax_ir::tir::{PackedArg, TensorField};

impl<'a> Cx<'a> {
    /// `T.call_packed("name", ..)` and its kin as a statement; `None` when `call` is another call.
    pub(super) fn outside_call(&mut self, call: &CallExpr<'a>, span: Span, f: &PrimCx) -> Option<Option<TStmt>> {
        let skip = match call.func.dotted()?.strip_prefix("T.")? {
            "call_packed" | "call_cpacked" | "tvm_call_packed" | "tvm_call_cpacked" => 0,
            // The type of the result comes first.
            "call_extern" | "call_pure_extern" => 1,
            _ => return None,
        };
        Some(self.packed_call(call, skip, span, f))
    }

    fn packed_call(&mut self, call: &CallExpr<'a>, skip: usize, span: Span, f: &PrimCx) -> Option<TStmt> {
        let Some((name, args)) = call.args.get(skip..).and_then(<[_]>::split_first) else {
            return self.error("argument", span, "the name of the function is missing");
        };
        let function = self.string(name)?;
        let args: Vec<Option<PackedArg>> = args.iter().map(|a| self.packed_argument(a, f)).collect();
        let args = args.into_iter().collect::<Option<Vec<_>>>()?;
        Some(TStmt::at(TKind::CallPacked { function, args }, span))
    }

    fn packed_argument(&mut self, e: &Expr<'a>, f: &PrimCx) -> Option<PackedArg> {
        if let Some(s) = self.text_of(e) {
            return Some(PackedArg::Text(s));
        }
        match e.as_name().and_then(|n| self.names.get(n)) {
            Some(Value::Handle(i, handle)) => {
                return Some(match f.params.get(*i) {
                    Some(Some(PrimParam::Buffer { buffer, .. })) => PackedArg::Tensor(buffer.clone()),
                    _ => PackedArg::Handle(handle.clone()),
                })
            }
            Some(Value::Buffer(b)) => return Some(PackedArg::Tensor(b.clone())),
            _ => {}
        }
        if let ExprKind::Attribute(base, field) = &e.kind {
            if field.name == "data" {
                return self.buffer(base).map(PackedArg::Tensor);
            }
        }
        if let Some(call) = e.as_call() {
            match call.func.dotted().as_deref() {
                Some("T.tvm_stack_make_array") => return self.made_array(call, e.span).map(PackedArg::Tensor),
                Some("T.tvm_access_ptr") => match call.args.get(1) {
                    Some(data) if self.pointer(data).is_none() => return self.packed_argument(data, f),
                    _ => {}
                },
                _ => {}
            }
        }
        if let Some(pointer) = self.pointer(e) {
            let pointer = pointer?;
            if !pointer.begin() {
                return self.unsupported("tir-extern", e.span, "a pointer into a buffer cannot be given away");
            }
            return Some(PackedArg::Tensor(pointer.base));
        }
        self.prim(e).map(PackedArg::Scalar)
    }

    /// The buffer behind `T.tvm_stack_make_array(buffer.data, shape, strides, ndim, type, offset)`, all of it.
    fn made_array(&mut self, call: &CallExpr<'a>, span: Span) -> Option<Buffer> {
        let Some(ExprKind::Attribute(base, field)) = call.args.first().map(|a| &a.kind) else {
            return self.error("argument", span, "T.tvm_stack_make_array takes the data of a buffer first");
        };
        if field.name != "data" {
            return self.error("argument", span, "T.tvm_stack_make_array takes the data of a buffer first");
        }
        let buffer = self.buffer(base)?;
        if let Some(shape) = call.args.get(1).and_then(Expr::as_call) {
            let dims: Vec<Option<PrimExpr>> = shape.args.iter().map(|d| self.prim(d)).collect();
            let dims = dims.into_iter().collect::<Option<Vec<_>>>()?;
            let same = |(a, b): (&PrimExpr, &PrimExpr)| a == b || a.as_int().is_some() && a.as_int() == b.as_int();
            if dims.len() != buffer.ndim() || !dims.iter().zip(&buffer.shape).all(same) {
                let what = format!("`{}` under another shape cannot be given away", buffer.name);
                return self.unsupported("tir-extern", span, what);
            }
        }
        Some(buffer)
    }

    /// `T.tvm_struct_get(handle, 0, field, dtype="..")` of a parameter: a variable that the argument binds.
    pub fn struct_field(&mut self, call: &CallExpr<'a>, span: Span) -> Option<PrimExpr> {
        let (Some(from), Some(number)) = (call.args.first(), call.args.get(2)) else {
            return self.error("argument", span, "T.tvm_struct_get takes a handle, an index, a field and a dtype");
        };
        let Some(Value::Handle(i, handle)) = from.as_name().and_then(|n| self.names.get(n)).cloned() else {
            let d = Diagnostic::unsupported("tir-struct", from.span, "only structs of parameters are read");
            return self.report(d.help("the first argument is a parameter `x: T.handle`"));
        };
        if !call.args.get(1).is_none_or(|e| matches!(&e.kind, ExprKind::Int(t) if *t == "0")) {
            return self.unsupported("tir-struct", span, "a parameter is one tensor: its index is 0");
        }
        let number_span = number.span;
        let number = self.int(number)?;
        let Some(field) = TensorField::from_number(number) else {
            let d = Diagnostic::unsupported("tir-struct", number_span, format!("field {number} cannot be read here"));
            return self.report(d.help("match the handle with T.match_buffer: that gives its data, shape and strides"));
        };
        let dtype = match call.arg(3, "dtype") {
            Some(d) => self.dtype(d)?,
            None => DType::I32,
        };
        if !dtype.is_int() || dtype.lanes != 1 {
            return self.error("type", span, format!("a field is an integer, not {dtype}"));
        }
        let known = self.names.read.iter().find(|(at, f, v)| *at == i && *f == field && v.dtype() == dtype);
        if let Some((.., v)) = known {
            return Some(v.expr());
        }
        let v = Var::with_span(format!("{}_field{number}", handle.name()), dtype, span);
        self.names.read.push((i, field, v.clone()));
        Some(v.expr())
    }
}
