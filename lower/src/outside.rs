//! Kernels that reach outside of their buffers: those that take a handle get, for each call, the tensor that stands
//! there, and what they read of its struct is a number; those that call functions of the host are cut at these calls,
//! which then stand in the Relax function, between kernels that write to the tensors they are given. Short loops around
//! calls are written out.

use relax_ir::analysis::Typed;
use relax_ir::attrs::Attrs;
use relax_ir::op::lookup;
use relax_ir::prim::PrimKind;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Callee, Expr, ExprKind, RVar, StructInfo};
use relax_ir::tir::{Buffer, PackedArg, PrimFunc, PrimParam, Stmt, StmtKind, TensorField};
use relax_ir::{DType, Diagnostic, Diagnostics, Func, PrimExpr, Span, Var};
use std::collections::{HashMap, HashSet};

type Res<T> = Result<T, Diagnostic>;

/// Rewrites the module in place. Errors: a function of the host that is called in a long loop or a branch of a kernel.
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

/// A statement list without calls, or a call.
enum Part {
    Stmts(Vec<Stmt>),
    Call { function: String, args: Vec<PackedArg>, span: Span },
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
        self.typed.sinfo.insert(var.clone(), info);
        let value = BindingValue::Expr(value);
        self.out.push(Binding { var: var.clone(), annotation: None, value, span: self.span });
        self.value(ExprKind::Var(var))
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

    /// The kernel as kernels that write to their arguments, and calls between them.
    fn cut(
        &mut self,
        f: &PrimFunc,
        args: &[Expr],
        infos: &[Option<StructInfo>],
        outputs: &[StructInfo],
        given: bool,
        b: &Binding,
    ) -> Res<Expr> {
        if given && !outputs.is_empty() || f.returns.is_some() {
            let what =
                format!("{} calls functions of the host: it can neither write in place nor return a scalar", f.name);
            return Err(self.unsupported(what));
        }
        let mut dims: HashMap<Var, PrimExpr> = HashMap::new();
        for (p, info) in f.params.iter().zip(infos) {
            match (p, info) {
                (PrimParam::Scalar(v), Some(StructInfo::Prim { value: Some(e), .. })) => {
                    dims.insert(v.clone(), e.clone().cast(v.dtype()));
                }
                (PrimParam::Buffer { buffer, .. }, info) => {
                    let known = static_tensor(info.as_ref()).map(|(d, _)| d).unwrap_or_default();
                    for (d, a) in buffer.shape.iter().zip(known) {
                        if let Some(v) = d.as_var() {
                            dims.entry(v.clone()).or_insert_with(|| a.cast(v.dtype()));
                        }
                    }
                }
                _ => {}
            }
        }
        let (mut parts, mut allocs) = (vec![], f.alloc_buffers.clone());
        self.parts(&f.body, f, &mut allocs, &mut parts)?;
        let mut tensors: HashMap<u32, Expr> = HashMap::new();
        let mut scalars: HashMap<Var, Expr> = HashMap::new();
        let mut results = vec![];
        for (i, p) in f.params.iter().enumerate() {
            match (p, args.get(i)) {
                (PrimParam::Buffer { buffer, .. }, Some(a)) => drop(tensors.insert(buffer.id(), a.clone())),
                (PrimParam::Scalar(v), Some(a)) => drop(scalars.insert(v.clone(), a.clone())),
                (PrimParam::Buffer { buffer, .. }, None) => {
                    let (d, t) = static_tensor(infos[i].as_ref())
                        .ok_or_else(|| self.unsupported(format!("{}: an output of unknown dims", f.name)))?;
                    let made = self.tensor(&buffer.name, d, t)?;
                    tensors.insert(buffer.id(), made.clone());
                    results.push(made);
                }
                _ => {}
            }
        }
        for buffer in &allocs {
            let shared = parts.iter().filter(|p| uses(p, buffer)).count() > 1;
            if shared || parts.iter().any(|p| matches!(p, Part::Call { .. }) && uses(p, buffer)) {
                let d = buffer.shape.iter().map(|d| d.substitute(&dims).cast(DType::I64)).collect();
                let made = self.tensor(&buffer.name, d, buffer.dtype())?;
                tensors.insert(buffer.id(), made);
            }
        }
        for part in parts {
            match part {
                Part::Call { function, args, span } => {
                    let mut list = vec![self.value(ExprKind::ExternFunc(function))];
                    for a in args {
                        list.push(self.given(a, &dims, &scalars, &tensors, span)?);
                    }
                    let call = self.op("call_packed", list)?;
                    self.bind("_", call, StructInfo::Object);
                }
                Part::Stmts(list) => self.kernel(f, list, &allocs, &dims, &scalars, &tensors)?,
            }
        }
        let whole = matches!(self.typed.sinfo.get(&b.var), Some(StructInfo::Tuple(_)));
        Ok(match results.len() {
            1 if !whole => results.swap_remove(0),
            _ => self.value(ExprKind::Tuple(results)),
        })
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

    /// An argument of a function of the host.
    fn given(
        &self,
        a: PackedArg,
        dims: &HashMap<Var, PrimExpr>,
        scalars: &HashMap<Var, Expr>,
        tensors: &HashMap<u32, Expr>,
        span: Span,
    ) -> Res<Expr> {
        let unknown = |what: &str| Diagnostic::unsupported("tir-extern", span, what.to_string());
        match a {
            PackedArg::Text(s) => Ok(self.value(ExprKind::Str(s))),
            PackedArg::Tensor(t) => {
                tensors.get(&t.id()).cloned().ok_or_else(|| unknown("a buffer of a region cannot be given away"))
            }
            PackedArg::Handle(_) => Err(unknown("a handle that is no parameter cannot be given away")),
            PackedArg::Scalar(e) => {
                let mut reads = false;
                e.walk(&mut |e| reads |= matches!(e.kind(), PrimKind::BufferLoad(..)));
                if reads {
                    return Err(unknown("an element of a buffer cannot be given away: give the buffer"));
                }
                if let Some(arg) = e.as_var().and_then(|v| scalars.get(v)) {
                    return Ok(arg.clone());
                }
                if e.vars().iter().any(|v| !dims.contains_key(v)) {
                    return Err(unknown("a scalar that the call does not know cannot be given away"));
                }
                Ok(self.value(ExprKind::Prim(e.substitute(dims))))
            }
        }
    }

    /// A kernel of these statements, called with what it uses.
    fn kernel(
        &mut self,
        f: &PrimFunc,
        list: Vec<Stmt>,
        allocs: &[Buffer],
        dims: &HashMap<Var, PrimExpr>,
        scalars: &HashMap<Var, Expr>,
        tensors: &HashMap<u32, Expr>,
    ) -> Res<()> {
        let body = Stmt::seq(list);
        let used = buffers_of(&body);
        let mut stored = false;
        body.walk(&mut |s| stored |= matches!(s.kind(), StmtKind::Store { .. }));
        if !stored {
            return Ok(());
        }
        let (mut params, mut args, mut own) = (vec![], vec![], vec![]);
        let mut bound: HashSet<Var> = HashSet::new();
        for buffer in f.buffers().chain(allocs).filter(|b| used.contains(&b.id())) {
            match tensors.get(&buffer.id()) {
                Some(t) => {
                    bound.extend(buffer.shape.iter().filter_map(|d| d.as_var().cloned()));
                    params.push(PrimParam::Buffer { buffer: buffer.clone(), handle: None });
                    args.push(t.clone());
                }
                None => own.push(buffer.clone()),
            }
        }
        let mut vars: Vec<Var> = vec![];
        let mut see = |e: &PrimExpr| vars.extend(e.vars());
        body.walk(&mut |s| s.exprs().into_iter().for_each(&mut see));
        let shapes = params.iter().filter_map(PrimParam::buffer).chain(&own);
        shapes.flat_map(|b| b.shape.iter().chain(&b.strides)).for_each(&mut see);
        vars.sort();
        vars.dedup();
        for v in vars.into_iter().filter(|v| !bound.contains(v)) {
            let arg = match (scalars.get(&v), dims.get(&v)) {
                (Some(a), _) => a.clone(),
                (None, Some(e)) => self.value(ExprKind::Prim(e.clone())),
                _ => continue,
            };
            params.push(PrimParam::Scalar(v));
            args.push(arg);
        }
        let name = self.add(PrimFunc { params, alloc_buffers: own, body, ..f.clone() });
        let callee = Callee::Expr(self.value(ExprKind::GlobalVar(name)));
        let call = Call { callee, args, attrs: Attrs::default(), sinfo_args: vec![] };
        let call = self.value(ExprKind::Call(call));
        self.bind("_", call, StructInfo::unit());
        Ok(())
    }

    /// The statements between the calls, and these.
    fn parts(&self, s: &Stmt, f: &PrimFunc, allocs: &mut Vec<Buffer>, out: &mut Vec<Part>) -> Res<()> {
        if !calls(s) {
            match out.last_mut() {
                Some(Part::Stmts(list)) => list.push(s.clone()),
                _ => out.push(Part::Stmts(vec![s.clone()])),
            }
            return Ok(());
        }
        match s.kind() {
            StmtKind::Seq(list) => list.iter().try_for_each(|s| self.parts(s, f, allocs, out)),
            StmtKind::CallPacked { function, args } => {
                out.push(Part::Call { function: function.clone(), args: args.clone(), span: s.span() });
                Ok(())
            }
            StmtKind::Attr { body, .. } => self.parts(body, f, allocs, out),
            StmtKind::Alloc { buffer, body } => {
                allocs.push(buffer.clone());
                self.parts(body, f, allocs, out)
            }
            StmtKind::Let { var, value, body } => {
                let known = HashMap::from([(var.clone(), value.clone())]);
                self.parts(&body.rewrite(&mut |e| e.substitute(&known), &mut |s| s), f, allocs, out)
            }
            StmtKind::Block(b) if b.axes.is_empty() && b.predicate.is_none() && b.match_buffers.is_empty() => {
                allocs.extend(b.alloc_buffers.iter().cloned());
                b.init.iter().chain([&b.body]).try_for_each(|s| self.parts(s, f, allocs, out))
            }
            // Round by round.
            StmtKind::For { var, min, extent, body, .. } if rounds(min, extent).is_some() => {
                let (first, count) = rounds(min, extent).unwrap_or((0, 0));
                (first..first + count).try_for_each(|i| {
                    let known = HashMap::from([(var.clone(), PrimExpr::int(var.dtype(), i))]);
                    self.parts(&body.rewrite(&mut |e| e.substitute(&known), &mut |s| s), f, allocs, out)
                })
            }
            StmtKind::Block(b) if b.init.is_none() && b.predicate.is_none() && b.match_buffers.is_empty() => {
                allocs.extend(b.alloc_buffers.iter().filter(|a| !allocs.contains(a)).cloned().collect::<Vec<_>>());
                let known = b.axes.iter().map(|a| (a.var.clone(), a.binding.clone().cast(a.var.dtype()))).collect();
                self.parts(&b.body.rewrite(&mut |e| e.substitute(&known), &mut |s| s), f, allocs, out)
            }
            _ => {
                let what = format!("{} calls a function of the host in a long loop or a branch", f.name);
                let d = Diagnostic::unsupported("tir-extern", s.span(), what);
                Err(d.help("call it once, on whole buffers"))
            }
        }
    }
}

/// The first value and the rounds of a loop that is written out for the calls in it.
fn rounds(min: &PrimExpr, extent: &PrimExpr) -> Option<(i64, i64)> {
    const MOST: i64 = 64;
    Some((min.as_int()?, extent.as_int().filter(|n| *n <= MOST)?))
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

/// The buffers that a statement reads or writes.
fn buffers_of(s: &Stmt) -> HashSet<u32> {
    let mut out = HashSet::new();
    let see = |e: &PrimExpr, out: &mut HashSet<u32>| {
        e.walk(&mut |e| {
            if let PrimKind::BufferLoad(b, _) = e.kind() {
                out.insert(b.id());
            }
        });
    };
    s.walk(&mut |s| {
        s.exprs().into_iter().for_each(|e| see(e, &mut out));
        match s.kind() {
            StmtKind::Store { buffer, .. } => drop(out.insert(buffer.id())),
            StmtKind::Block(b) => out.extend(b.match_buffers.iter().map(|m| m.source.buffer.id())),
            StmtKind::CallPacked { args, .. } => out.extend(args.iter().filter_map(PackedArg::tensor).map(Buffer::id)),
            _ => {}
        }
    });
    out
}

fn uses(p: &Part, b: &Buffer) -> bool {
    match p {
        Part::Stmts(list) => list.iter().any(|s| buffers_of(s).contains(&b.id())),
        Part::Call { args, .. } => args.iter().filter_map(PackedArg::tensor).any(|t| t == b),
    }
}
