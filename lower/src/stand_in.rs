//! Operators for which others stand in: views at a byte offset become slices of bytes, communication between workers
//! becomes calls of the host's functions, by the names that TVM's own lowering gives them, and operators that read only
//! the shape of a tensor whose dtype is not known take the shape.

use crate::host::byte_size;
use relax_ir::analysis::Typed;
use relax_ir::attrs::{AttrValue, Attrs};
use relax_ir::op::lookup;
use relax_ir::relax::{
    map_bindings, Binding, BindingValue, Call, Callee, Expr, ExprKind, RVar, StructInfo, TensorInfo,
};
use relax_ir::{DType, Diagnostic, Diagnostics, Func, PrimExpr, Span};

/// Rewrites the module in place.
pub fn stand_in(typed: &mut Typed) -> Result<(), Diagnostics> {
    let mut errors = Diagnostics::default();
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            f.body = map_bindings(&f.body, &mut |b, dataflow| match binding(b, dataflow, typed) {
                Ok(new) => new,
                Err(d) => {
                    errors.push(d);
                    None
                }
            });
        }
    }
    typed.module.funcs = funcs;
    if errors.has_errors() {
        return Err(errors);
    }
    Ok(())
}

fn binding(b: &Binding, dataflow: bool, typed: &mut Typed) -> Result<Option<Vec<Binding>>, Diagnostic> {
    let BindingValue::Expr(e) = &b.value else { return Ok(None) };
    let Some((call, op)) = e.as_call().and_then(|c| Some((c, c.op()?))) else { return Ok(None) };
    match op.name {
        "memory.view" => view(b, call, dataflow, typed),
        "ccl.allreduce" | "ccl.allgather" | "ccl.broadcast_from_worker0" | "ccl.scatter_from_worker0" => {
            communication(b, call, op.name, dataflow, typed).map(Some)
        }
        "zeros_like" | "ones_like" | "full_like" | "collapse_sum_like" => Ok(like(b, call, op.name, typed)),
        _ => Ok(None),
    }
}

/// Bindings in front of the one that is replaced.
struct Before<'a> {
    typed: &'a mut Typed,
    dataflow: bool,
    span: Span,
    out: Vec<Binding>,
}

impl Before<'_> {
    fn call(&self, op: &str, args: Vec<Expr>, attrs: Attrs, sinfo_args: Vec<StructInfo>) -> Result<Expr, Diagnostic> {
        let decl = lookup(op).ok_or_else(|| Diagnostic::internal(self.span, format!("R.{op} is not declared")))?;
        let call = Call { callee: Callee::Op(decl), args, attrs, sinfo_args };
        Ok(Expr::new(ExprKind::Call(call), self.span))
    }

    fn bind(&mut self, value: Expr, info: StructInfo) -> Expr {
        let var = RVar::new("part", self.dataflow, self.span);
        self.typed.sinfo.insert(var.clone(), info);
        let value = BindingValue::Expr(value);
        self.out.push(Binding { var: var.clone(), annotation: None, value, span: self.span });
        Expr::new(ExprKind::Var(var), self.span)
    }

    fn last(mut self, b: &Binding, value: Expr) -> Vec<Binding> {
        self.out.push(Binding { value: BindingValue::Expr(value), ..b.clone() });
        self.out
    }
}

fn static_tensor(info: Option<StructInfo>) -> Option<(Vec<PrimExpr>, DType)> {
    let info = info?;
    let t = info.as_tensor()?;
    Some((t.known_dims()?.to_vec(), t.dtype?))
}

/// `R.NAME_like` of a tensor with dims and without a dtype: the operator that takes its shape.
fn like(b: &Binding, c: &Call, name: &str, typed: &Typed) -> Option<Vec<Binding>> {
    let StructInfo::Tensor(out) = typed.sinfo.get(&b.var)? else { return None };
    let at = (name == "collapse_sum_like") as usize;
    let of = typed.info_of(c.args.get(at)?)?;
    let StructInfo::Tensor(TensorInfo { dtype: None, .. }) = &of else { return None };
    let dims = of.as_tensor()?.known_dims()?.to_vec();
    let stands = match name {
        "collapse_sum_like" => "collapse_sum_to".to_string(),
        _ => name.trim_end_matches("_like").to_string(),
    };
    let mut args = c.args.clone();
    args[at] = Expr::new(ExprKind::Shape(dims), b.span);
    let attrs = Attrs(vec![("dtype".to_string(), AttrValue::DType(out.dtype?))]);
    let attrs = if at == 0 { attrs } else { Attrs::default() };
    let call = Call { callee: Callee::Op(lookup(&stands)?), args, attrs, sinfo_args: vec![] };
    let value = BindingValue::Expr(Expr::new(ExprKind::Call(call), b.span));
    Some(vec![Binding { value, ..b.clone() }])
}

/// `R.memory.view(x, shape, dtype, offset)`: all bytes, the bytes from the offset on, and these as they are wanted.
fn view(b: &Binding, c: &Call, dataflow: bool, typed: &mut Typed) -> Result<Option<Vec<Binding>>, Diagnostic> {
    let span = b.span;
    let offset = match c.args.get(3).map(|e| (e.kind(), typed.info_of(e))) {
        Some((ExprKind::Prim(p), _)) if !p.is_int(0) => p.clone(),
        Some((_, Some(StructInfo::Prim { value: Some(p), .. }))) if !p.is_int(0) => p,
        _ => return Ok(None),
    };
    let (old, new) = (typed.info_of(&c.args[0]), typed.sinfo.get(&b.var).cloned());
    let (Some((old, from)), Some((new, to))) = (static_tensor(old), static_tensor(new)) else { return Ok(None) };
    let bytes = |n: PrimExpr| StructInfo::tensor(vec![n], DType::U8);
    let value = |kind| Expr::new(kind, span);
    let list = |v: PrimExpr| value(ExprKind::Tuple(vec![value(ExprKind::Prim(v))]));
    let (all, size) = (byte_size(&old, from), byte_size(&new, to));
    let mut before = Before { typed, dataflow, span, out: vec![] };
    let shape = |d: Vec<PrimExpr>| value(ExprKind::Shape(d));
    let dtype = |d| value(ExprKind::DType(d));
    let args = vec![c.args[0].clone(), shape(vec![all.clone()]), dtype(DType::U8)];
    let whole = before.call("memory.view", args, Attrs::default(), vec![])?;
    let whole = before.bind(whole, bytes(all));
    let offset = offset.cast(DType::I64);
    let args =
        vec![whole, list(PrimExpr::i64(0)), list(offset.clone()), list(offset + size.clone()), list(PrimExpr::i64(1))];
    let inbound = Attrs(vec![("assume_inbound".to_string(), AttrValue::Bool(true))]);
    let part = before.call("strided_slice", args, inbound, vec![])?;
    let part = before.bind(part, bytes(size));
    let part = before.call("memory.view", vec![part, shape(new), dtype(to)], Attrs::default(), vec![])?;
    Ok(Some(before.last(b, part)))
}

/// `R.ccl.*`: a packed function of the host, which has the workers.
fn communication(
    b: &Binding,
    c: &Call,
    name: &str,
    dataflow: bool,
    typed: &mut Typed,
) -> Result<Vec<Binding>, Diagnostic> {
    let span = b.span;
    let out = typed.sinfo.get(&b.var).cloned().unwrap_or(StructInfo::Object);
    let flag = |v: bool| Expr::new(ExprKind::Prim(PrimExpr::bool(v)), span);
    let group = || flag(c.attrs.bool("in_group").unwrap_or(true));
    let mut x = c.args[0].clone();
    let old = static_tensor(typed.info_of(&x));
    let mut before = Before { typed, dataflow, span, out: vec![] };
    let mut rest = vec![];
    match name {
        "ccl.allreduce" => {
            let kind = c.attrs.str("op_type").unwrap_or("sum");
            let number = ["sum", "prod", "min", "max", "avg"].iter().position(|k| *k == kind).unwrap_or(0);
            rest.push(Expr::new(ExprKind::Shape(vec![PrimExpr::i64(number as i64)]), span));
            rest.push(group());
        }
        "ccl.allgather" => rest.push(group()),
        "ccl.broadcast_from_worker0" => rest.push(flag(false)),
        _ => {
            rest.push(flag(false));
            // The shares one after another: the axis is cut, and its first part comes first.
            let workers = c.attrs.int("num_workers").unwrap_or(1);
            let axis = c.attrs.int("axis").unwrap_or(0);
            let (Some((dims, dtype)), Ok(axis)) = (old, usize::try_from(axis)) else {
                let message = "R.ccl.scatter_from_worker0 of a tensor whose rank or dtype is not known";
                return Err(Diagnostic::unsupported("dynamic-structure", span, message));
            };
            let mut cut = dims.clone();
            cut[axis] = dims[axis].clone().floor_div(PrimExpr::i64(workers));
            cut.insert(axis, PrimExpr::i64(workers));
            let shape = Expr::new(ExprKind::Shape(cut.clone()), span);
            let parts = before.call("reshape", vec![x, shape], Attrs::default(), vec![])?;
            x = before.bind(parts, StructInfo::tensor(cut.clone(), dtype));
            if axis != 0 {
                let order: Vec<usize> = std::iter::once(axis).chain((0..cut.len()).filter(|i| *i != axis)).collect();
                let axes = order.iter().map(|i| AttrValue::Int(*i as i64)).collect();
                let axes = Attrs(vec![("axes".to_string(), AttrValue::List(axes))]);
                let turned = before.call("permute_dims", vec![x], axes, vec![])?;
                let dims = order.iter().map(|i| cut[*i].clone()).collect();
                x = before.bind(turned, StructInfo::tensor(dims, dtype));
            }
        }
    }
    let name = name.strip_prefix("ccl.").unwrap_or(name);
    let func = Expr::new(ExprKind::ExternFunc(format!("runtime.disco.{name}"), None), span);
    let args = std::iter::once(x).chain(rest).collect();
    let args = Expr::new(ExprKind::Tuple(args), span);
    let info = match &out {
        StructInfo::Tensor(t) => StructInfo::Tensor(TensorInfo { vdevice: None, ..t.clone() }),
        other => other.clone(),
    };
    let call = before.call("call_dps_packed", vec![func, args], Attrs::default(), vec![info])?;
    Ok(before.last(b, call))
}
