//! Kernels that reach outside of their buffers: those that take a handle get, for each call, the tensor that stands
//! there, and what they read of its struct is a number; those that call functions of the host are cut at these calls
//! (`cut.rs`), which then stand in the Relax function, between kernels that write to the tensors they are given.

mod cut;

use relax_ir::analysis::Typed;
use relax_ir::attrs::Attrs;
use relax_ir::op::lookup;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Callee, Expr, ExprKind, RVar, StructInfo};
use relax_ir::tir::{Buffer, PackedArg, PrimFunc, PrimParam, Stmt, StmtKind, TensorField};
use relax_ir::{DType, Diagnostic, Diagnostics, Func, PrimExpr, Span, Var};
use std::collections::HashMap;

type Res<T> = Result<T, Diagnostic>;

/// Rewrites the module in place. Errors: a function of the host that is given what is no tensor, text or scalar of the call.
pub fn resolve(typed: &mut Typed) -> Result<(), Diagnostics> {
    if !typed.module.funcs.iter().any(|f| matches!(f, Func::Prim(p) if reaches(p))) {
        return Ok(());
    }
    let mut errors = Diagnostics::default();
    let mut new = vec![];
    let mut funcs = typed.module.funcs.clone();
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            f.body = map_bindings(&f.body, &mut |b, dataflow| match binding(b, dataflow, typed, &mut new) {
                Ok(list) => list,
                Err(d) => {
                    errors.push(d);
                    None
                }
            });
        }
    }
    funcs.retain(|f| !matches!(f, Func::Prim(p) if reaches(p)));
    funcs.extend(new.into_iter().map(Func::Prim));
    typed.module.funcs = funcs;
    if errors.has_errors() {
        return Err(errors);
    }
    Ok(())
}

fn reaches(f: &PrimFunc) -> bool {
    calls(&f.body) || f.params.iter().any(|p| matches!(p, PrimParam::Handle { .. }))
}

/// Does it call a function of the host?
fn calls(s: &Stmt) -> bool {
    let mut found = false;
    s.walk(&mut |s| found |= matches!(s.kind(), StmtKind::CallPacked { .. }));
    found
}

fn binding(b: &Binding, dataflow: bool, typed: &mut Typed, new: &mut Vec<PrimFunc>) -> Res<Option<Vec<Binding>>> {
    let BindingValue::Expr(e) = &b.value else { return Ok(None) };
    let Some(call) = e.as_call() else { return Ok(None) };
    let (name, plain) = match &call.callee {
        Callee::Op(op) if op.name.starts_with("call_tir") => match call.args.first().map(Expr::kind) {
            Some(ExprKind::GlobalVar(n)) => (n.clone(), false),
            _ => return Ok(None),
        },
        Callee::Expr(f) => match f.kind() {
            ExprKind::GlobalVar(n) => (n.clone(), true),
            _ => return Ok(None),
        },
        Callee::Op(_) => return Ok(None),
    };
    let Some(prim) = typed.module.prim(&name).filter(|p| reaches(p)).cloned() else { return Ok(None) };
    let mut site = Site { typed, new, dataflow, span: b.span, out: vec![] };
    let value = site.call(&prim, call, plain, b, e.span())?;
    site.out.push(Binding { value: BindingValue::Expr(value), ..b.clone() });
    Ok(Some(site.out))
}

/// The place of a call, with the bindings that come before it.
struct Site<'a> {
    typed: &'a mut Typed,
    new: &'a mut Vec<PrimFunc>,
    dataflow: bool,
    span: Span,
    out: Vec<Binding>,
}

fn static_tensor(info: Option<&StructInfo>) -> Option<(Vec<PrimExpr>, DType)> {
    let t = info?.as_tensor()?;
    Some((t.known_dims()?.to_vec(), t.dtype?))
}

impl Site<'_> {
    fn unsupported(&self, what: impl Into<String>) -> Diagnostic {
        Diagnostic::unsupported("tir-extern", self.span, what.into())
    }

    fn op(&self, op: &str, args: Vec<Expr>) -> Res<Expr> {
        let decl = lookup(op).ok_or_else(|| Diagnostic::internal(self.span, format!("R.{op} is not declared")))?;
        let call = Call { callee: Callee::Op(decl), args, attrs: Attrs::default(), sinfo_args: vec![] };
        Ok(self.value(ExprKind::Call(call)))
    }

    fn value(&self, kind: ExprKind) -> Expr {
        Expr::new(kind, self.span)
    }

    fn bind(&mut self, name: &str, value: Expr, info: StructInfo) -> Expr {
        let var = RVar::new(name, self.dataflow, self.span);
        self.bind_to(var.clone(), value, info);
        self.value(ExprKind::Var(var))
    }

    fn bind_to(&mut self, var: RVar, value: Expr, info: StructInfo) {
        self.typed.sinfo.insert(var.clone(), info);
        let value = BindingValue::Expr(value);
        self.out.push(Binding { var, annotation: None, value, span: self.span });
    }

    fn fresh(&self, base: &str) -> String {
        let taken = |n: &str| self.typed.module.get(n).is_some() || self.new.iter().any(|f| f.name == n);
        (1..).map(|i| format!("{base}_{i}")).find(|n| !taken(n)).unwrap_or_default()
    }

    fn add(&mut self, mut f: PrimFunc) -> String {
        f.name = self.fresh(&f.name);
        f.private = true;
        f.attrs.0.retain(|(n, _)| n != "global_symbol");
        let name = f.name.clone();
        self.new.push(f);
        name
    }

    /// The arguments one by one.
    fn arguments(&mut self, call: &Call, plain: bool) -> Res<Vec<Expr>> {
        if plain {
            return Ok(call.args.clone());
        }
        let Some(all) = call.args.get(1) else { return Ok(vec![]) };
        Ok(match (all.kind(), self.typed.info_of(all)) {
            (ExprKind::Tuple(f), _) => f.clone(),
            (_, Some(StructInfo::Tuple(infos))) => {
                let fields = infos.into_iter().enumerate();
                fields
                    .map(|(i, info)| {
                        let value = self.value(ExprKind::TupleGetItem(all.clone(), i));
                        self.bind("item", value, info)
                    })
                    .collect()
            }
            _ => vec![all.clone()],
        })
    }

    fn call(&mut self, prim: &PrimFunc, call: &Call, plain: bool, b: &Binding, at: Span) -> Res<Expr> {
        let mut args = self.arguments(call, plain)?;
        let inplace = call.attrs.ints("inplace_indices").filter(|_| call.is_op("call_tir_inplace")).unwrap_or_default();
        let outputs: Vec<StructInfo> = match call.sinfo_args.as_slice() {
            [StructInfo::Tuple(f)] => f.clone(),
            list => list.to_vec(),
        };
        let outputs = if plain { vec![] } else { outputs };
        let mut infos: Vec<Option<StructInfo>> = args.iter().map(|a| self.typed.info_of(a)).collect();
        let new_outputs = outputs.iter().enumerate().filter(|(i, _)| inplace.get(*i).is_none_or(|k| *k < 0));
        infos.extend(new_outputs.map(|(_, s)| Some(s.clone())));
        if infos.len() != prim.params.len() {
            return Err(Diagnostic::error("call", at, format!("{}: as many arguments as parameters", prim.name)));
        }
        let inputs = args.len();
        let mut f = prim.clone();
        let removed = self.handles(&mut f, &mut args, &infos, inputs)?;
        if removed && !inplace.is_empty() {
            return Err(self.unsupported(format!("{} in place, on a tensor of unknown rank or dtype", prim.name)));
        }
        if calls(&f.body) {
            return self.cut(&f, &args, &infos, &outputs, plain || !inplace.is_empty(), b);
        }
        let name = self.add(f);
        let global = self.value(ExprKind::GlobalVar(name));
        let mut new = call.clone();
        if plain {
            new.callee = Callee::Expr(global);
            new.args = args;
        } else {
            new.args[0] = global;
            new.args[1] = self.value(ExprKind::Tuple(args));
        }
        Ok(self.value(ExprKind::Call(new)))
    }

    /// Tensors for the handles of `f`; where rank or dtype is not known, a scalar for each field that is read. True
    /// where such arguments went away.
    fn handles(
        &mut self,
        f: &mut PrimFunc,
        args: &mut Vec<Expr>,
        infos: &[Option<StructInfo>],
        inputs: usize,
    ) -> Res<bool> {
        let mut known: HashMap<Var, PrimExpr> = HashMap::new();
        let mut tensors: HashMap<Var, Buffer> = HashMap::new();
        let (mut params, mut new_args, mut removed) = (vec![], vec![], false);
        for (i, (p, info)) in f.params.iter().zip(infos).enumerate() {
            let PrimParam::Handle { handle, fields } = p else {
                params.push(p.clone());
                new_args.extend(args.get(i).cloned());
                continue;
            };
            if let Some((dims, dtype)) = static_tensor(info.as_ref()) {
                let free = |(k, d): (usize, &PrimExpr)| match d.as_int() {
                    Some(_) => d.clone(),
                    None => Var::dim(format!("{}_{k}", handle.name())).expr(),
                };
                let shape = dims.iter().enumerate().map(free).collect();
                let buffer = Buffer::new(handle.name(), shape, dtype);
                for (field, v) in fields {
                    let value = field.of(Some(dtype), Some(dims.len())).unwrap_or(0);
                    known.insert(v.clone(), PrimExpr::int(v.dtype(), value));
                }
                tensors.insert(handle.clone(), buffer.clone());
                params.push(PrimParam::Buffer { buffer, handle: None });
                new_args.extend(args.get(i).cloned());
                continue;
            }
            if i >= inputs || calls(&f.body) {
                let what =
                    format!("{}: `{}` stands for a tensor whose rank or dtype is not known", f.name, handle.name());
                return Err(self.unsupported(what).help("state its rank and dtype with R.match_cast"));
            }
            removed = true;
            let t = info.as_ref().and_then(StructInfo::as_tensor);
            for (field, v) in fields {
                params.push(PrimParam::Scalar(v.clone()));
                let value = field.of(t.and_then(|t| t.dtype), t.and_then(|t| t.ndim));
                let arg = match (value, inspected(*field)) {
                    (None, Some((op, dtype))) => {
                        let value = self.op(op, vec![args[i].clone()])?;
                        self.bind("field", value, StructInfo::Prim { dtype, value: None })
                    }
                    (value, _) => self.value(ExprKind::Prim(PrimExpr::int(v.dtype(), value.unwrap_or(0)))),
                };
                new_args.push(arg);
            }
        }
        f.params = params;
        *args = new_args;
        f.body = f.body.rewrite(&mut |e| e.substitute(&known), &mut |s| match s.kind() {
            StmtKind::CallPacked { function, args } => {
                let given = |a: &PackedArg| match a {
                    PackedArg::Handle(v) => tensors.get(v).cloned().map_or(a.clone(), PackedArg::Tensor),
                    other => other.clone(),
                };
                let (function, args) = (function.clone(), args.iter().map(given).collect());
                Stmt::at(StmtKind::CallPacked { function, args }, s.span())
            }
            _ => s,
        });
        f.returns = f.returns.as_ref().map(|e| e.substitute(&known));
        Ok(removed)
    }

    fn tensor(&mut self, name: &str, dims: Vec<PrimExpr>, dtype: DType) -> Res<Expr> {
        let args = vec![
            self.value(ExprKind::Shape(dims.clone())),
            self.value(ExprKind::DType(dtype)),
            self.value(ExprKind::Prim(PrimExpr::i64(0))),
            self.value(ExprKind::Str("global".to_string())),
        ];
        let made = self.op("builtin.alloc_tensor", args)?;
        Ok(self.bind(name, made, StructInfo::tensor(dims, dtype)))
    }
}

/// The operator that reads a field at run time, and its dtype.
fn inspected(f: TensorField) -> Option<(&'static str, DType)> {
    Some(match f {
        TensorField::NDim => ("inspect.tensor_ndim", DType::I32),
        TensorField::TypeCode => ("inspect.tensor_dtype_code", DType::U8),
        TensorField::TypeBits => ("inspect.tensor_dtype_bits", DType::U8),
        TensorField::TypeLanes => ("inspect.tensor_dtype_lanes", DType::U16),
        TensorField::ByteOffset | TensorField::DeviceId | TensorField::DeviceType => return None,
    })
}
