//! Operators that need no kernel of their own: views, shapes as values, checks, and kernels whose result size the data
//! decides.

use super::message::{Message, Piece};
use super::plan::{byte_size, Planner, Scope};
use super::value::*;
use relax_ir::op::{Compute, ComputeCx, OpDecl};
use relax_ir::program::code;
use relax_ir::relax::{Call, Expr, StructInfo};
use relax_ir::{DType, Diagnostic, PrimExpr, Span, Var};

type Res<T> = Result<T, Diagnostic>;

/// Operators whose result is the operand's storage with other dims.
pub const VIEWS: &[&str] = &["reshape", "expand_dims", "squeeze", "flatten", "nn.batch_flatten"];

pub fn call(
    p: &mut Planner,
    c: &Call,
    op: &'static OpDecl,
    span: Span,
    info: Option<&StructInfo>,
    scope: &mut Scope,
) -> Res<HostValue> {
    if VIEWS.contains(&op.name) {
        return view(p, c, span, info, scope);
    }
    match op.name {
        "builtin.stop_lift_params"
        | "wrap_param"
        | "to_vdevice"
        | "memory.ensure_zero_offset"
        | "grad.start_checkpoint"
        | "grad.end_checkpoint"
        | "grad.no_grad" => operand(p, c, 0, span, scope),
        "shape_of" => match operand(p, c, 0, span, scope)? {
            HostValue::Tensor(t) => Ok(HostValue::Shape(t.dims)),
            _ => Err(open(span, op)),
        },
        "shape_to_tensor" => match operand(p, c, 0, span, scope)? {
            HostValue::Shape(values) => {
                let t = p.tensor_of(vec![PrimExpr::i64(values.len() as i64)], DType::I64);
                p.emit(Step::Write { to: t.buf, values });
                Ok(HostValue::Tensor(t))
            }
            _ => Err(open(span, op)),
        },
        "tensor_to_shape" => tensor_to_shape(p, c, op, span, info, scope),
        "builtin.copy" => match operand(p, c, 0, span, scope)? {
            HostValue::Tensor(t) => {
                let own = p.tensor_of(t.dims.clone(), t.dtype);
                let bytes = byte_size(&t.dims, t.dtype);
                p.emit(Step::Copy { from: t.buf, to: own.buf, bytes });
                Ok(HostValue::Tensor(own))
            }
            _ => Err(open(span, op)),
        },
        "null_value" => Ok(HostValue::unit()),
        name if name.starts_with("inspect.") && !matches!(operand(p, c, 0, span, scope)?, HostValue::Tensor(_)) => {
            let what = format!("R.{name} of a tensor whose rank or dtype is not known");
            Err(Diagnostic::unsupported("dynamic-structure", span, what))
        }
        "inspect.tensor_shape_i" => match (operand(p, c, 0, span, scope)?, operand(p, c, 1, span, scope)?) {
            (HostValue::Tensor(t), HostValue::Prim(i)) => match i.as_int().and_then(|i| t.dims.get(i as usize)) {
                Some(d) => Ok(HostValue::Prim(d.clone())),
                None => Err(wrong(span, op, "a literal axis within the rank")),
            },
            _ => Err(wrong(span, op, "a tensor and an axis")),
        },
        "inspect.tensor_ndim" => match operand(p, c, 0, span, scope)? {
            HostValue::Tensor(t) => Ok(HostValue::Prim(PrimExpr::i32(t.dims.len() as i32))),
            _ => Err(wrong(span, op, "a tensor")),
        },
        "inspect.tensor_dtype_code" => {
            inspect_dtype(p, c, op, span, scope, |d| PrimExpr::int(DType::U8, d.dlpack().0 as i64))
        }
        "inspect.tensor_dtype_bits" => {
            inspect_dtype(p, c, op, span, scope, |d| PrimExpr::int(DType::U8, d.dlpack().1 as i64))
        }
        "inspect.tensor_dtype_lanes" => {
            inspect_dtype(p, c, op, span, scope, |d| PrimExpr::int(DType::U16, d.lanes as i64))
        }
        "inspect.tensor_stride_i" => match (operand(p, c, 0, span, scope)?, operand(p, c, 1, span, scope)?) {
            (HostValue::Tensor(t), HostValue::Prim(i)) => match i.as_int().filter(|&i| (i as usize) < t.dims.len()) {
                Some(i) => Ok(HostValue::Prim(PrimExpr::product(&t.dims[i as usize + 1..]))),
                None => Err(wrong(span, op, "a literal axis within the rank")),
            },
            _ => Err(wrong(span, op, "a tensor and an axis")),
        },
        "inspect.tensor_byte_offset" | "inspect.tensor_elem_offset" => Ok(HostValue::Prim(PrimExpr::i64(0))),
        "assert_op" => assert_op(p, c, span, scope),
        // Storage is nobody's business but the memory plan's: each tensor gets its own.
        "memory.alloc_storage"
        | "vm.alloc_storage"
        | "memory.kill_storage"
        | "memory.kill_tensor"
        | "vm.kill_object" => Ok(HostValue::unit()),
        "builtin.alloc_tensor" | "memory.alloc_tensor" | "vm.alloc_tensor" => {
            let (dims, dtype) = p.result_dims(info, scope, span)?;
            Ok(HostValue::Tensor(p.tensor_of(dims, dtype)))
        }
        "memory.view" => memory_view(p, c, op, span, info, scope),
        _ => match op.compute {
            Compute::Kernel(f) => kernel(p, c, op, span, info, scope, f, false),
            Compute::DataDependent(f) => kernel(p, c, op, span, info, scope, f, true),
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

/// The same bytes under another shape and dtype.
fn memory_view(
    p: &mut Planner,
    c: &Call,
    op: &OpDecl,
    span: Span,
    info: Option<&StructInfo>,
    scope: &mut Scope,
) -> Res<HostValue> {
    let HostValue::Tensor(t) = operand(p, c, 0, span, scope)? else { return Err(open(span, op)) };
    if let Some(e) = c.args.get(3) {
        match p.value(e, scope)? {
            HostValue::Absent => {}
            HostValue::Prim(e) if e.is_int(0) => {}
            _ => {
                let d = Diagnostic::unsupported("operator", span, "R.memory.view with a byte offset is not supported");
                return Err(d.help("a view begins where its tensor begins; use R.strided_slice"));
            }
        }
    }
    let (dims, dtype) = p.result_dims(info, scope, span)?;
    let fits = byte_size(&dims, dtype).le(byte_size(&t.dims, t.dtype));
    p.require(fits, code::CHECK, format!("bytes of R.{}", op.name), span)?;
    Ok(HostValue::Tensor(TensorValue { buf: t.buf, dims, dtype }))
}

fn wrong(span: Span, op: &OpDecl, expected: &str) -> Diagnostic {
    Diagnostic::error("operator", span, format!("R.{}: the operand must be {expected}", op.name))
}

/// Of a value that only the call tells more about: [`super::dynamic`] has code for it.
fn open(span: Span, op: &OpDecl) -> Diagnostic {
    Diagnostic::unsupported("dynamic-structure", span, format!("R.{} of a value whose rank is not known", op.name))
}

fn operand(p: &mut Planner, c: &Call, i: usize, span: Span, scope: &mut Scope) -> Res<HostValue> {
    let e =
        c.args.get(i).ok_or_else(|| Diagnostic::error("operator", span, format!("operand {} is missing", i + 1)))?;
    p.value(e, scope)
}

fn inspect_dtype(
    p: &mut Planner,
    c: &Call,
    op: &OpDecl,
    span: Span,
    scope: &mut Scope,
    f: impl FnOnce(DType) -> PrimExpr,
) -> Res<HostValue> {
    match operand(p, c, 0, span, scope)? {
        HostValue::Tensor(t) => Ok(HostValue::Prim(f(t.dtype))),
        _ => Err(wrong(span, op, "a tensor")),
    }
}

fn view(p: &mut Planner, c: &Call, span: Span, info: Option<&StructInfo>, scope: &mut Scope) -> Res<HostValue> {
    let HostValue::Tensor(t) = operand(p, c, 0, span, scope)? else {
        let d =
            Diagnostic::unsupported("dynamic-structure", span, "a view of a tensor whose rank or dtype is not known");
        return Err(d.help("state its rank and dtype with R.match_cast"));
    };
    let (dims, dtype) = p.result_dims(info, scope, span)?;
    Ok(HostValue::Tensor(TensorValue { buf: t.buf, dims, dtype }))
}

/// The values of an int64 tensor as a shape: each becomes a shape variable read from data.
fn tensor_to_shape(
    p: &mut Planner,
    c: &Call,
    op: &OpDecl,
    span: Span,
    info: Option<&StructInfo>,
    scope: &mut Scope,
) -> Res<HostValue> {
    let HostValue::Tensor(t) = operand(p, c, 0, span, scope)? else { return Err(open(span, op)) };
    let n = t.dims.first().and_then(PrimExpr::as_int).ok_or_else(|| {
        Diagnostic::unsupported("dynamic-structure", span, "R.tensor_to_shape of a tensor whose length is not known")
    })?;
    let declared = match info {
        Some(StructInfo::Shape { values: Some(v), .. }) => v.clone(),
        _ => vec![],
    };
    let mut values = vec![];
    for i in 0..n as usize {
        let var = Var::dim(format!("s{i}"));
        p.emit(Step::Read { var: var.clone(), from: t.buf, index: i, dtype: t.dtype });
        let what = format!("tensor_to_shape: value {i} is negative");
        p.declare_unbounded(&var);
        p.require(var.expr().ge(PrimExpr::i64(0)), code::CHECK, what, span)?;
        if let Some(v) = declared.get(i).and_then(PrimExpr::as_var) {
            scope.dims.entry(v.clone()).or_insert_with(|| var.expr());
        }
        values.push(var.expr());
    }
    Ok(HostValue::Shape(values))
}

fn assert_op(p: &mut Planner, c: &Call, span: Span, scope: &mut Scope) -> Res<HostValue> {
    let condition = match operand(p, c, 0, span, scope)? {
        HostValue::Prim(e) => e,
        HostValue::Tensor(t) if t.dims.is_empty() => {
            let var = Var::new("asserted", DType::I64);
            p.emit(Step::Read { var: var.clone(), from: t.buf, index: 0, dtype: t.dtype });
            var.expr().ne(PrimExpr::i64(0))
        }
        _ => return Err(Diagnostic::error("assert", span, "R.assert_op: the condition must be a scalar bool")),
    };
    let (format, values) = match c.args.split_last() {
        Some((last, rest)) => match p.value(last, scope)? {
            HostValue::Str(s) => (s, rest.get(1..).unwrap_or_default()),
            _ => (String::new(), c.args.get(1..).unwrap_or_default()),
        },
        None => (String::new(), &[][..]),
    };
    let mut pieces = vec![];
    for e in values {
        pieces.push(match (Piece::constant(e), p.value(e, scope)?) {
            (Some(piece), _) => piece,
            (None, HostValue::Prim(e)) => Piece::scalar(&e),
            (None, HostValue::Shape(values)) => Piece::shape(&values),
            (None, HostValue::Str(s)) => Piece::Text(s),
            (None, HostValue::Tensor(t)) => Piece::tensor(&t.dims, t.dtype, |index| {
                let (named, dtype) = match index {
                    Some(_) if t.dtype.is_int() => (DType::I64, t.dtype),
                    Some(_) => (t.dtype, t.dtype),
                    None => (DType::HANDLE, DType::HANDLE),
                };
                let var = Var::new("told", named);
                p.emit(Step::Read { var: var.clone(), from: t.buf, index: index.unwrap_or(0), dtype });
                var.expr()
            }),
            _ => Piece::Open,
        });
    }
    p.require_filled(condition, code::ASSERT, Message::new(&format, pieces), span)?;
    Ok(HostValue::unit())
}

/// An operator's own kernel, not legalised before (results whose size the data decides, mostly).
#[allow(clippy::too_many_arguments)]
fn kernel(
    p: &mut Planner,
    c: &Call,
    op: &'static OpDecl,
    span: Span,
    info: Option<&StructInfo>,
    scope: &mut Scope,
    compute: fn(&ComputeCx) -> Result<relax_ir::tir::PrimFunc, Diagnostic>,
    data_dependent: bool,
) -> Res<HostValue> {
    let out = info.ok_or_else(|| Diagnostic::internal(span, "a call without struct info"))?;
    let infos: Vec<StructInfo> = c.args.iter().map(|a| p.info_of(a)).collect::<Res<_>>()?;
    let cx = ComputeCx { op, args: &c.args, infos: &infos, attrs: &c.attrs, out, span };
    let mut prim = compute(&cx)?;
    p.place_kernel(&mut prim);
    let mut inputs = vec![];
    for a in &c.args {
        let v = p.value(a, scope)?;
        flatten_tensors(&v, &mut inputs);
    }
    for s in &prim.params {
        if let relax_ir::tir::PrimParam::Scalar(v) = s {
            inputs.push(HostValue::Prim(p.dim_value(&v.expr(), scope)));
        }
    }
    let n_in = inputs.iter().filter(|v| matches!(v, HostValue::Tensor(_))).count();
    // Outputs have the dims that the kernel declares, over the variables of this function.
    let (mut outputs, mut stated) = (vec![], vec![]);
    let buffers: Vec<_> = prim.buffers().skip(n_in).cloned().collect();
    for b in &buffers {
        let dims: Vec<PrimExpr> = b.shape.iter().map(|d| p.dim_value(d, scope)).collect();
        // Memory for the most there can be, also where the operand's own dims were read from data; what the kernel
        // sees are the dims that it declares.
        let most = if data_dependent { dims.iter().map(|d| p.upper(d)).collect() } else { dims.clone() };
        let output = p.tensor_of(most, b.dtype());
        stated.push(TensorValue { dims, ..output.clone() });
        outputs.push(output);
    }
    p.kernel(&prim, &inputs, &stated, span)?;
    if !data_dependent {
        let mut v: Vec<HostValue> = outputs.into_iter().map(HostValue::Tensor).collect();
        return Ok(if v.len() == 1 && !matches!(out, StructInfo::Tuple(_)) {
            v.swap_remove(0)
        } else {
            HostValue::Tuple(v)
        });
    }
    let sizes = outputs.pop().ok_or_else(|| Diagnostic::internal(span, "a data-dependent kernel without dims"))?;
    let mut index = 0;
    let fields: Vec<&StructInfo> = match out {
        StructInfo::Tuple(f) => f.iter().collect(),
        one => vec![one],
    };
    let mut values = vec![];
    for (field, t) in fields.iter().zip(outputs) {
        let declared = field.as_tensor().and_then(|t| t.known_dims()).unwrap_or_default().to_vec();
        let first = index == 0;
        let mut dims = vec![];
        for (i, bound) in t.dims.iter().enumerate() {
            match declared.get(i).and_then(PrimExpr::as_var) {
                // The first dim of `R.nonzero` is the operand's rank, 1 for a scalar.
                Some(v) if op.name == "nonzero" && i == 0 && !scope.dims.contains_key(v) => {
                    scope.dims.insert(v.clone(), bound.clone());
                    dims.push(bound.clone());
                    index += 1;
                }
                Some(v) if !scope.dims.contains_key(v) => {
                    let var = Var::dim(v.name());
                    p.emit(Step::Read { var: var.clone(), from: sizes.buf, index, dtype: DType::I64 });
                    p.set_bound(&var, bound.clone());
                    scope.dims.insert(v.clone(), var.expr());
                    dims.push(var.expr());
                    index += 1;
                }
                _ => match declared.get(i) {
                    Some(d) => {
                        dims.push(p.dim_value(d, scope));
                        index += first as usize;
                    }
                    None => return Err(Diagnostic::internal(span, "a data-dependent result without dims")),
                },
            }
        }
        values.push(HostValue::Tensor(TensorValue { buf: t.buf, dims, dtype: t.dtype }));
    }
    Ok(if values.len() == 1 && !matches!(out, StructInfo::Tuple(_)) {
        values.swap_remove(0)
    } else {
        HostValue::Tuple(values)
    })
}

fn flatten_tensors(v: &HostValue, out: &mut Vec<HostValue>) {
    match v {
        HostValue::Tensor(_) => out.push(v.clone()),
        HostValue::Tuple(f) => f.iter().for_each(|x| flatten_tensors(x, out)),
        _ => {}
    }
}

impl Planner<'_> {
    /// Struct info of a leaf expression.
    pub fn info_of(&self, e: &Expr) -> Res<StructInfo> {
        self.typed().info_of(e).ok_or_else(|| Diagnostic::internal(e.span(), "an operand without struct info"))
    }
}
