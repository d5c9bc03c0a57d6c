//! Operators without a kernel of their own, and those whose result's size the data decides.

use super::expr::{Dyn, Gen, Res, Scope, TensorAt};
use super::open::OPEN;
use crate::host::message::{Message, Piece};
use crate::host::VIEWS;
use relax_ir::op::{Compute, ComputeCx, OpDecl};
use relax_ir::prim::BinOp;
use relax_ir::program::code;
use relax_ir::relax::{Call, ExprKind, StructInfo};
use relax_ir::tir::{PrimFunc, PrimParam};
use relax_ir::{DType, Diagnostic, PrimExpr, Span};

impl Gen<'_, '_> {
    pub fn operator(
        &mut self,
        c: &Call,
        op: &'static OpDecl,
        span: Span,
        info: Option<&StructInfo>,
        scope: &mut Scope,
    ) -> Res<Dyn> {
        let wrong = |expected: &str| {
            Err(Diagnostic::unsupported("operator", span, format!("R.{}: the operand must be {expected}", op.name)))
        };
        if VIEWS.contains(&op.name) {
            let v = self.operand(c, 0, span, scope)?;
            let dims = info.and_then(StructInfo::as_tensor).and_then(|t| t.known_dims());
            let (t, dims) = match (v, dims) {
                (Dyn::Tensor(t), Some(dims)) => (t, dims),
                (v @ (Dyn::Tensor(_) | Dyn::Value(_)), _) if op.name == "reshape" => {
                    return self.open_reshape(c, op, v, scope, span)
                }
                (Dyn::Tensor(_), None) => return wrong("a tensor whose new dims are known"),
                _ => return wrong("a tensor of known rank and dtype"),
            };
            let operand = c.args.first().and_then(|a| self.typed.info_of(a));
            let operand = operand.as_ref().and_then(StructInfo::as_tensor).and_then(|t| t.known_dims());
            let equal = |a: &[PrimExpr], b: &[PrimExpr]| {
                PrimExpr::raw_binary(BinOp::Eq, PrimExpr::product(a), PrimExpr::product(b))
            };
            let text = operand.map(|of| relax_ir::printer::print_prim(&equal(dims, of)));
            let dims = self.dims(dims, scope, span)?;
            // Never more elements than there are.
            let condition = equal(&dims, &t.dims);
            let text = text.unwrap_or_else(|| relax_ir::printer::print_prim(&condition));
            let message = format!("number of elements of R.{}", op.name);
            self.require_named(condition, text, code::CHECK, message, span);
            return Ok(Dyn::Tensor(self.view(&t, dims)));
        }
        match op.name {
            "builtin.stop_lift_params"
            | "to_vdevice"
            | "memory.ensure_zero_offset"
            | "grad.start_checkpoint"
            | "grad.end_checkpoint"
            | "grad.no_grad" => self.operand(c, 0, span, scope),
            "shape_of" => match self.operand(c, 0, span, scope)? {
                Dyn::Tensor(t) => Ok(Dyn::Shape(t.dims)),
                Dyn::Value(at) => Ok(self.open_shape(&at)),
                _ => wrong("a tensor"),
            },
            "shape_to_tensor" => match self.operand(c, 0, span, scope)? {
                Dyn::Shape(values) => {
                    let t = self.tensor(vec![PrimExpr::i64(values.len() as i64)], DType::I64);
                    for (i, v) in values.into_iter().enumerate() {
                        self.b.store(&t.data, i as i64 * 8, v);
                    }
                    Ok(Dyn::Tensor(t))
                }
                Dyn::Value(at) => Ok(self.open_values(&at)),
                _ => wrong("a shape"),
            },
            "tensor_to_shape" => match self.operand(c, 0, span, scope)? {
                Dyn::Tensor(t) if t.dims.len() == 1 && t.dims[0].as_int().is_some() && t.dtype.is_int() => {
                    let n = t.dims[0].as_int().unwrap_or(0);
                    let mut values = vec![];
                    for i in 0..n {
                        let at = t.data.clone().ptr_add(PrimExpr::i64(i * t.dtype.bytes() as i64));
                        let v = PrimExpr::load_ptr(at, PrimExpr::i64(0), t.dtype).cast(DType::I64);
                        let v = self.b.bind("value", v);
                        self.may_be_negative(&v);
                        let what = format!("tensor_to_shape: value {i} is negative");
                        self.require(v.clone().ge(PrimExpr::i64(0)), code::CHECK, what, span);
                        values.push(v);
                    }
                    if let Some(StructInfo::Shape { values: Some(names), .. }) = info {
                        for (name, v) in names.iter().zip(&values) {
                            if let Some(var) = name.as_var() {
                                scope.dims.entry(var.clone()).or_insert_with(|| v.clone());
                            }
                        }
                    }
                    Ok(Dyn::Shape(values))
                }
                v @ (Dyn::Tensor(_) | Dyn::Value(_)) => {
                    let tensor = self.pointer(&v, span)?;
                    let tensor = self.dltensor(&tensor);
                    self.as_shape(tensor, "R.tensor_to_shape, its operand", code::CHECK, span)
                }
                _ => wrong("an int64 tensor"),
            },
            "memory.alloc_storage"
            | "vm.alloc_storage"
            | "memory.kill_storage"
            | "memory.kill_tensor"
            | "vm.kill_object" => Ok(Dyn::Tuple(vec![])),
            "builtin.alloc_tensor" | "memory.alloc_tensor" | "vm.alloc_tensor" => {
                match info.and_then(StructInfo::as_tensor).and_then(|t| Some((t.known_dims()?, t.dtype?))) {
                    Some((dims, dtype)) => {
                        let dims = self.dims(dims, scope, span)?;
                        Ok(Dyn::Tensor(self.tensor(dims, dtype)))
                    }
                    None => wrong("a shape and a dtype that are known"),
                }
            }
            "memory.view" => {
                let v = self.operand(c, 0, span, scope)?;
                match c.args.get(3).map(|e| e.kind()) {
                    None | Some(ExprKind::Absent) => self.open_view(c, v, info, scope, span),
                    _ => wrong("a tensor of known rank and dtype, for a view at an offset"),
                }
            }
            "builtin.copy" => match self.operand(c, 0, span, scope)? {
                Dyn::Tensor(t) => Ok(Dyn::Tensor(self.copied(&t))),
                _ => wrong("a tensor of known rank and dtype"),
            },
            "null_value" => Ok(Dyn::Absent),
            name if name.starts_with("inspect.") => self.inspect(c, op, span, scope),
            "print" => self.print(c, span, scope),
            "assert_op" => {
                let Some(first) = c.args.first() else { return wrong("a condition") };
                let condition = self.condition(first, scope)?;
                let message = self.asserted(c, scope)?;
                let stated = match self.typed.info_of(first) {
                    Some(StructInfo::Prim { value: Some(v), .. }) if v.as_var().is_none() => v,
                    _ => condition.clone(),
                };
                let stated = relax_ir::printer::print_prim(&stated);
                self.require_filled(condition, stated, code::ASSERT, message, span);
                Ok(Dyn::Tuple(vec![]))
            }
            _ => match op.compute {
                Compute::Kernel(f) => self.own_kernel(c, op, span, info, scope, f, false),
                Compute::DataDependent(f) => self.own_kernel(c, op, span, info, scope, f, true),
                Compute::Unsupported(why) => {
                    Err(Diagnostic::unsupported("operator", span, format!("R.{} is not supported: {why}", op.name)))
                }
                Compute::Host => Err(Diagnostic::unsupported(
                    "operator",
                    span,
                    format!("R.{} cannot be compiled in this position", op.name),
                )),
            },
        }
    }

    /// The message of `R.assert_op`.
    fn asserted(&mut self, c: &Call, scope: &mut Scope) -> Res<Message> {
        let mut format = String::new();
        let mut pieces = vec![];
        for (i, e) in c.args.iter().enumerate().skip(1) {
            let value = self.expr(e, None, scope)?;
            pieces.push(match (Piece::constant(e), value) {
                (Some(piece), _) => piece,
                (None, Dyn::Str(s)) if i + 1 == c.args.len() => {
                    format = s;
                    break;
                }
                (None, Dyn::Prim(e)) => Piece::scalar(&e),
                (None, Dyn::Shape(values)) => Piece::shape(&values),
                (None, Dyn::Str(s)) => Piece::Text(s),
                (None, Dyn::Tensor(t)) => Piece::tensor(&t.dims, t.dtype, |index| match index {
                    Some(index) => self.b.load("told", &t.data, (index * t.dtype.bytes()) as i64, t.dtype),
                    None => t.data.clone(),
                }),
                _ => Piece::Open,
            });
        }
        Ok(Message::new(&format, pieces))
    }

    /// An operator's kernel, made here.
    #[allow(clippy::too_many_arguments)]
    fn own_kernel(
        &mut self,
        c: &Call,
        op: &'static OpDecl,
        span: Span,
        info: Option<&StructInfo>,
        scope: &mut Scope,
        compute: fn(&ComputeCx) -> Result<PrimFunc, Diagnostic>,
        data_dependent: bool,
    ) -> Res<Dyn> {
        let out = info.ok_or_else(|| Diagnostic::internal(span, "a call without struct info"))?;
        let no_info = || Diagnostic::internal(span, "an operand without struct info");
        let infos: Vec<StructInfo> =
            c.args.iter().map(|a| self.typed.info_of(a).ok_or_else(no_info)).collect::<Res<_>>()?;
        let known = |i: &StructInfo| i.as_tensor().is_none_or(|t| t.dtype.is_some() && t.known_dims().is_some());
        let values: Vec<Dyn> = c.args.iter().map(|a| self.expr(a, None, scope)).collect::<Res<_>>()?;
        let cx = ComputeCx { op, args: &c.args, infos: &infos, attrs: &c.attrs, out, span };
        match infos.iter().position(|i| !known(i)) {
            None => self.computed(&cx, values, scope, compute, data_dependent),
            Some(at) if OPEN.contains(&op.name) => self.open_kernel(&cx, at, values, scope, compute, data_dependent),
            Some(_) => Err(Diagnostic::unsupported(
                "dynamic-structure",
                span,
                format!("R.{} of a tensor whose rank or dtype is not known", op.name),
            )
            .help("state its rank and dtype with R.match_cast")),
        }
    }

    /// The kernel of `cx`, whose tensors are known, on the operands `values`.
    pub fn computed(
        &mut self,
        cx: &ComputeCx,
        values: Vec<Dyn>,
        scope: &mut Scope,
        compute: fn(&ComputeCx) -> Result<PrimFunc, Diagnostic>,
        data_dependent: bool,
    ) -> Res<Dyn> {
        let (out, span) = (cx.out, cx.span);
        let mut prim = compute(cx)?;
        crate::share::place(&mut prim, &self.typed.module, self.kernels);
        let mut inputs = vec![];
        values.iter().for_each(|v| flatten(v, &mut inputs));
        let n_in = inputs.len();
        for s in &prim.params {
            if let PrimParam::Scalar(v) = s {
                inputs.push(Dyn::Prim(self.dim(&v.expr(), scope, span)?));
            }
        }
        let buffers: Vec<_> = prim.buffers().skip(n_in).cloned().collect();
        let mut outputs = vec![];
        for b in &buffers {
            let dims = self.dims(&b.shape, scope, span)?;
            outputs.push(self.tensor(dims, b.dtype()));
        }
        self.kernel(&prim, &inputs, &outputs, span)?;
        let single = !matches!(out, StructInfo::Tuple(_));
        if data_dependent {
            outputs = self.actual_sizes(out, outputs, scope, span)?;
        }
        let mut values: Vec<Dyn> = outputs.into_iter().map(Dyn::Tensor).collect();
        Ok(if values.len() == 1 && single { values.swap_remove(0) } else { Dyn::Tuple(values) })
    }

    /// The last output holds the dims that the kernel found: the others are views of that size.
    fn actual_sizes(
        &mut self,
        out: &StructInfo,
        mut outputs: Vec<TensorAt>,
        scope: &mut Scope,
        span: Span,
    ) -> Res<Vec<TensorAt>> {
        let sizes = outputs.pop().ok_or_else(|| Diagnostic::internal(span, "a data-dependent kernel without dims"))?;
        let fields: Vec<&StructInfo> = match out {
            StructInfo::Tuple(f) => f.iter().collect(),
            one => vec![one],
        };
        let mut index = 0;
        let mut values = vec![];
        for (k, (field, t)) in fields.iter().zip(outputs).enumerate() {
            let declared = field.as_tensor().and_then(|t| t.known_dims()).unwrap_or_default().to_vec();
            let mut dims = vec![];
            for i in 0..t.dims.len() {
                let declared = declared
                    .get(i)
                    .ok_or_else(|| Diagnostic::internal(span, "a data-dependent result without dims"))?;
                match declared.as_var() {
                    Some(v) if !scope.dims.contains_key(v) => {
                        let d = self.b.load(v.name(), &sizes.data, index * 8, DType::I64);
                        scope.dims.insert(v.clone(), d.clone());
                        dims.push(d);
                        index += 1;
                    }
                    _ => {
                        dims.push(self.dim(declared, scope, span)?);
                        index += (k == 0) as i64;
                    }
                }
            }
            values.push(self.view(&t, dims));
        }
        Ok(values)
    }
}

fn flatten(v: &Dyn, out: &mut Vec<Dyn>) {
    match v {
        Dyn::Tensor(_) => out.push(v.clone()),
        Dyn::Tuple(f) => f.iter().for_each(|x| flatten(x, out)),
        _ => {}
    }
}
