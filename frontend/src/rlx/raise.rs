//! Text behind TVM's whole pipeline, brought back to Relax.
//!
//! Lowering for TVM's virtual machine turns shapes into slots of a *heap*, an int64 tensor: `vm.builtin.match_shape`
//! stores or compares dims there, PrimFuncs of host code compute slots from others, `vm.builtin.make_shape` and
//! `make_prim_value` read them. Slots are written before they are read, so what each holds is known here as an
//! expression over shape variables: matches become MatchCasts, reads become shapes and scalars, and the heap vanishes.
//! Storage and direct calls of kernels stay: the compiler knows them. Other functions of the virtual machine are packed
//! functions that the host registers.
//!
//! Source: TVM's passes `VMShapeLower` and `VMBuiltinLower` (what the numbers of a call mean).

use relax_ir::analysis::relate::relate;
use relax_ir::analysis::signature::forced_pure;
use relax_ir::op::{lookup, Purity};
use relax_ir::prim::{PrimExpr, PrimKind};
use relax_ir::relax::{
    Binding, BindingBlock, BindingValue, Call, Callee, Expr, ExprKind, FuncInfo, Function, RVar, SeqExpr, StructInfo,
    TensorInfo, TensorShape,
};
use relax_ir::sym::Facts;
use relax_ir::tir::{PrimFunc, Stmt, StmtKind};
use relax_ir::{Attrs, DType, Diagnostic, Diagnostics, Func, IRModule, Span, Var};
use std::collections::HashMap;
use std::sync::Arc;

/// What `match_shape` does with a dim, and `make_shape` with a value.
mod code {
    pub const IMMEDIATE: i64 = 0;
    /// Of a match: the dim goes to a slot.
    pub const STORE: i64 = 1;
    /// Of a match: the dim may be anything.
    pub const ANY: i64 = 2;
    /// Of a match: the dim is what a slot holds.
    pub const EQUAL: i64 = 3;
    /// Of a shape or scalar made: what a slot holds.
    pub const LOAD: i64 = 1;
}

/// Brings functions that were lowered for the virtual machine back to Relax.
pub fn raise(module: &mut IRModule, diags: &mut Diagnostics) {
    for i in 0..module.funcs.len() {
        let Func::Relax(f) = &module.funcs[i] else { continue };
        let (infos, heaps, nulls) = (HashMap::new(), HashMap::new(), vec![]);
        let new = Raise {
            module,
            infos,
            heaps,
            nulls,
            tuples: HashMap::new(),
            shapes: HashMap::new(),
            used: false,
            fresh: 0,
            pure: true,
            diags: &mut *diags,
        }
        .function(f);
        if let Some(new) = new {
            module.funcs[i] = Func::Relax(new);
        }
    }
}

/// The dims that a heap holds, by slot.
type Slots = HashMap<i64, PrimExpr>;

struct Raise<'a> {
    module: &'a IRModule,
    /// As annotated.
    infos: HashMap<RVar, StructInfo>,
    heaps: HashMap<RVar, Slots>,
    /// Variables without a value.
    nulls: Vec<RVar>,
    /// What a check has found to be a tuple, by what it was before.
    tuples: HashMap<RVar, RVar>,
    /// The dims of shapes that are made of slots.
    shapes: HashMap<RVar, Vec<PrimExpr>>,
    used: bool,
    fresh: usize,
    /// What is not pure may not stand here.
    pure: bool,
    diags: &'a mut Diagnostics,
}

type Raised = Result<Vec<Binding>, Diagnostic>;

impl Raise<'_> {
    /// `None` when nothing in it is of the virtual machine.
    fn function(&mut self, f: &Function) -> Option<Function> {
        for p in &f.params {
            if let Some(info) = &p.annotation {
                self.infos.insert(p.var.clone(), info.clone());
            }
        }
        let body = self.body(f);
        self.used.then(|| Function { body, ..f.clone() })
    }

    fn body(&mut self, f: &Function) -> Arc<SeqExpr> {
        let outer = std::mem::replace(&mut self.pure, f.pure && !forced_pure(f));
        let body = self.sequence(&f.body);
        self.pure = outer;
        body
    }

    fn sequence(&mut self, seq: &SeqExpr) -> Arc<SeqExpr> {
        let mut blocks = vec![];
        for b in &seq.blocks {
            let mut bindings = vec![];
            let pure = self.pure || b.dataflow;
            let outer = std::mem::replace(&mut self.pure, pure);
            for x in &b.bindings {
                match self.binding(x) {
                    Ok(Some(new)) => bindings.extend(new),
                    Ok(None) => bindings.push(x.clone()),
                    Err(d) => self.diags.push(d),
                }
            }
            self.pure = outer;
            blocks.push(BindingBlock { bindings, ..b.clone() });
        }
        Arc::new(SeqExpr { blocks, body: seq.body.clone() })
    }

    /// What stands in the place of a binding; `None`: itself.
    fn binding(&mut self, b: &Binding) -> Result<Option<Vec<Binding>>, Diagnostic> {
        let info = match &b.value {
            BindingValue::MatchCast { struct_info, .. } => Some(struct_info),
            BindingValue::Expr(_) => b.annotation.as_ref(),
        };
        let info = match (info, &b.value) {
            (None, BindingValue::Expr(e)) => self.said(e),
            (info, _) => info.cloned(),
        };
        if let Some(info) = info {
            self.infos.insert(b.var.clone(), info);
        }
        let BindingValue::Expr(e) = &b.value else { return Ok(None) };
        let kind = match e.kind() {
            ExprKind::If { cond, then, otherwise } => {
                let before = self.heaps.clone();
                let then = self.sequence(then);
                self.heaps.clone_from(&before);
                let otherwise = self.sequence(otherwise);
                self.heaps = before;
                ExprKind::If { cond: cond.clone(), then, otherwise }
            }
            ExprKind::Function(f) => {
                let body = self.body(f);
                ExprKind::Function(Arc::new(Function { body, ..(**f).clone() }))
            }
            ExprKind::Call(c) => {
                let Some(mut new) = self.call(c, b).transpose()? else { return Ok(None) };
                self.used = true;
                stated_alike(c, b)?;
                // A call that may not stand here stays, for the analysis to say so.
                let impure = self.pure && c.op().is_none_or(|op| op.purity == Purity::Impure);
                if impure || unused(c, b) {
                    new.retain(|n| n.var != b.var);
                    new.insert(0, b.clone());
                }
                return Ok(Some(new));
            }
            _ => return Ok(None),
        };
        let value = BindingValue::Expr(Expr::new(kind, e.span()));
        Ok(Some(vec![Binding { value, ..b.clone() }]))
    }

    fn call(&mut self, c: &Call, b: &Binding) -> Option<Raised> {
        if (c.is_op("vm.kill_object") || c.is_op("memory.kill_tensor"))
            && c.args.first().is_some_and(|a| self.heap(a).is_some())
        {
            return Some(Ok(vec![]));
        }
        if let (Callee::Expr(f), [heap]) = (&c.callee, c.args.as_slice()) {
            if let (ExprKind::GlobalVar(name), Some(heap)) = (f.kind(), self.heap(heap)) {
                let prim = self.module.prim(name)?;
                return Some(self.compute(prim, &heap, b.span).map(|()| vec![]));
            }
        }
        if c.is_op("null_value") {
            self.nulls.push(b.var.clone());
        }
        if c.is_op("memory.view") {
            let view = self.view(c);
            return (view != *c).then(|| Ok(vec![bound(b, ExprKind::Call(view))]));
        }
        let (name, args) = runtime_call(c)?;
        // An operator in the place of a text: for the analysis to say so.
        if matches!(args.last().map(Expr::kind), Some(ExprKind::Call(_))) {
            return None;
        }
        if name == "runtime.TVMTensorCreateView" {
            let view = self.view(&operator("memory.view", args)?);
            return Some(Ok(vec![bound(b, ExprKind::Call(view))]));
        }
        match name.strip_prefix("vm.builtin.")? {
            "alloc_shape_heap" => {
                self.heaps.insert(b.var.clone(), Slots::new());
                Some(Ok(vec![]))
            }
            "match_shape" => {
                let [x, heap, n, rest @ ..] = args else { return None };
                Some(self.match_shape(x, heap, n, rest, b.span))
            }
            "match_prim_value" => {
                let [x, heap, rest @ ..] = args else { return None };
                Some(self.match_prim(x, heap, rest, b.span))
            }
            "make_shape" => {
                let [heap, n, rest @ ..] = args else { return None };
                let n = usize::try_from(int(n)?).ok()?;
                let made = self.made(heap, n, rest, b.span);
                if let Ok(dims) = &made {
                    self.shapes.insert(b.var.clone(), dims.clone());
                }
                Some(made.map(|v| vec![bound(b, ExprKind::Shape(v))]))
            }
            "make_prim_value" => {
                let [heap, rest @ ..] = args else { return None };
                let made = self.made(heap, 1, rest, b.span);
                Some(made.map(|v| v.into_iter().map(|v| bound(b, ExprKind::Prim(v))).collect()))
            }
            // It gives what it is given; a type that is not written at its argument is what the call says.
            "copy" => {
                let [x] = args else { return None };
                let want = match c.sinfo_args.as_slice() {
                    [StructInfo::Object] | [] => None,
                    [want] => x.as_var().filter(|v| self.infos.get(*v).is_none_or(|i| i != want)).map(|_| want.clone()),
                    _ => return None,
                };
                let value = match want {
                    Some(struct_info) => BindingValue::MatchCast { value: x.clone(), struct_info },
                    None => BindingValue::Expr(x.clone()),
                };
                Some(Ok(vec![Binding { value, ..b.clone() }]))
            }
            "reshape" => Some(Ok(vec![bound(b, ExprKind::Call(operator("reshape", args)?))])),
            "shape_of" => Some(Ok(vec![bound(b, ExprKind::Call(operator("shape_of", args)?))])),
            "make_closure" => {
                let (f, captured) = args.split_first()?;
                let captured = Expr::new(ExprKind::Tuple(captured.to_vec()), b.span);
                Some(Ok(vec![bound(b, ExprKind::Call(operator("make_closure", &[f.clone(), captured])?))]))
            }
            "invoke_closure" => {
                let (closure, given) = args.split_first()?;
                let given = Expr::new(ExprKind::Tuple(given.to_vec()), b.span);
                let call = operator("invoke_closure", &[closure.clone(), given])?;
                Some(Ok(vec![bound(b, ExprKind::Call(Call { sinfo_args: c.sinfo_args.clone(), ..call }))]))
            }
            "ensure_zero_offset" => {
                Some(Ok(vec![bound(b, ExprKind::Call(operator("memory.ensure_zero_offset", args)?))]))
            }
            // TVM 0.25: a kernel, its tensors, and a shape that holds its scalars.
            "call_tir_dyn" => {
                let [f, tensors @ .., scalars] = args else { return None };
                let made = scalars.as_var().and_then(|v| self.shapes.get(v));
                let scalars =
                    made.map_or_else(|| scalars.clone(), |d| Expr::new(ExprKind::Shape(d.clone()), scalars.span()));
                let fields = tensors.iter().cloned().chain([scalars]).collect();
                let fields = Expr::new(ExprKind::Tuple(fields), b.span);
                Some(Ok(vec![bound(b, ExprKind::Call(operator("vm.call_tir_dyn", &[f.clone(), fields])?))]))
            }
            "tuple_getitem" => {
                let [x, i] = args else { return None };
                let i = usize::try_from(int(i)?).ok()?;
                // What was found to be a tuple by a check is one in the check's result.
                let x = x.as_var().and_then(|v| self.tuples.get(v)).map_or_else(|| x.clone(), RVar::expr);
                Some(Ok(vec![bound(b, ExprKind::TupleGetItem(x, i))]))
            }
            // There is no graph to replay: the function that would be captured, or that allocates once, is called.
            "cuda_graph.get_cached_alloc" => Some(Ok(vec![bound(b, called(args.first()?, vec![]))])),
            "cuda_graph.run_or_capture" => {
                let [f, given, ..] = args else { return None };
                let ExprKind::GlobalVar(name) = f.kind() else { return None };
                let fields = match given.kind() {
                    ExprKind::Tuple(fields) => fields.clone(),
                    _ => {
                        let field = |i| Expr::new(ExprKind::TupleGetItem(given.clone(), i), given.span());
                        (0..self.module.relax(name)?.params.len()).map(field).collect()
                    }
                };
                Some(Ok(vec![bound(b, called(f, fields))]))
            }
            check => {
                let (x, want) = checked(check, args)?;
                Some(Ok(match self.info(x).is_some_and(|i| says(&i, &want)) {
                    true => vec![],
                    false => {
                        let is_tuple = matches!(want, StructInfo::Tuple(_));
                        let cast = cast(x, want, b.span);
                        if let (true, Some(v)) = (is_tuple, x.as_var()) {
                            self.tuples.insert(v.clone(), cast.var.clone());
                        }
                        vec![cast]
                    }
                }))
            }
        }
    }

    /// A view without the parts that are not given.
    fn view(&self, c: &Call) -> Call {
        let given = |a: &Expr| match a.kind() {
            ExprKind::Tuple(f) => !f.is_empty(),
            ExprKind::Var(v) => !self.nulls.contains(v),
            _ => true,
        };
        let absent = |a: &Expr| Expr::new(ExprKind::Absent, a.span());
        let args = c.args.iter().map(|a| if given(a) { a.clone() } else { absent(a) }).collect();
        Call { args, ..c.clone() }
    }

    /// The heap that a leaf names.
    fn heap(&self, e: &Expr) -> Option<RVar> {
        e.as_var().filter(|v| self.heaps.contains_key(v)).cloned()
    }

    fn info(&self, e: &Expr) -> Option<StructInfo> {
        self.infos.get(e.as_var()?).cloned()
    }

    /// What a value without an annotation says of its type: TVM's printer may leave annotations out (`show_all_ty=False`).
    fn said(&self, e: &Expr) -> Option<StructInfo> {
        match e.kind() {
            ExprKind::Var(_) => self.info(e),
            ExprKind::Tuple(fields) => {
                Some(StructInfo::Tuple(fields.iter().map(|f| self.said(f).unwrap_or(StructInfo::Object)).collect()))
            }
            ExprKind::TupleGetItem(t, i) => match self.said(t)? {
                StructInfo::Tuple(fields) => fields.get(*i).cloned(),
                _ => None,
            },
            ExprKind::Call(c) => match (&c.callee, c.sinfo_args.as_slice()) {
                (Callee::Op(_), [info]) => Some(info.clone()),
                (Callee::Op(op), []) if op.name.ends_with(".alloc_tensor") => {
                    let rank = c.args.iter().find_map(|a| match (a.kind(), self.info(a)) {
                        (ExprKind::Shape(dims), _) => Some(dims.len()),
                        (_, Some(StructInfo::Shape { ndim, .. })) => ndim,
                        _ => None,
                    });
                    Some(StructInfo::Tensor(TensorInfo { shape: None, dtype: None, ndim: rank, vdevice: None }))
                }
                // The dims are the callee's own.
                (Callee::Expr(f), []) => match f.kind() {
                    ExprKind::GlobalVar(name) => self.module.relax(name)?.ret.as_ref().map(without_dims),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    fn variable(&mut self) -> PrimExpr {
        self.fresh += 1;
        Var::new(format!("d{}", self.fresh - 1), DType::I64).expr()
    }

    fn slot(&self, heap: &Expr, i: i64, span: Span) -> Result<PrimExpr, Diagnostic> {
        let slots = self.heap(heap).and_then(|h| self.heaps.get(&h));
        slots
            .and_then(|s| s.get(&i))
            .cloned()
            .ok_or_else(|| refused(span, format!("slot {i} of the shape heap is read before it is written")))
    }

    fn store(&mut self, heap: &Expr, i: i64, value: PrimExpr, span: Span) -> Result<(), Diagnostic> {
        let heap = self.heap(heap).ok_or_else(|| garbled(span))?;
        self.heaps.entry(heap).or_default().insert(i, value);
        Ok(())
    }

    /// A code and a value for each dim of `x`.
    fn match_shape(&mut self, x: &Expr, heap: &Expr, n: &Expr, rest: &[Expr], span: Span) -> Raised {
        let n = int(n).and_then(|n| usize::try_from(n).ok()).ok_or_else(|| garbled(span))?;
        let pairs = pairs(n, rest).ok_or_else(|| garbled(span))?;
        let info = self.info(x);
        let known = match &info {
            Some(StructInfo::Tensor(t)) => t.known_dims().map(<[PrimExpr]>::to_vec),
            Some(StructInfo::Shape { values, .. }) => values.clone(),
            Some(_) => None,
            None => return Err(refused(span, "the type of what is matched here is not written down".to_string())),
        };
        let known = known.filter(|k| k.len() == n);
        let mut dims = vec![];
        for (i, (what, value)) in pairs.into_iter().enumerate() {
            let stated = known.as_ref().map(|k| k[i].clone());
            dims.push(match what {
                code::IMMEDIATE => PrimExpr::i64(value),
                code::STORE => {
                    let dim = stated.unwrap_or_else(|| self.variable());
                    self.store(heap, value, dim.clone(), span)?;
                    dim
                }
                code::ANY => stated.unwrap_or_else(|| self.variable()),
                code::EQUAL => self.slot(heap, value, span)?,
                _ => return Err(garbled(span)),
            });
        }
        if known.as_ref() == Some(&dims) {
            return Ok(vec![]);
        }
        let want = match info {
            Some(StructInfo::Shape { .. }) => StructInfo::shape(dims),
            _ => {
                let shape = Some(TensorShape::Dims(dims));
                StructInfo::Tensor(TensorInfo { shape, dtype: None, ndim: Some(n), vdevice: None })
            }
        };
        Ok(vec![cast(x, want, span)])
    }

    fn match_prim(&mut self, x: &Expr, heap: &Expr, rest: &[Expr], span: Span) -> Raised {
        let pairs = pairs(1, rest).ok_or_else(|| garbled(span))?;
        let (what, value) = pairs[0];
        let stated = match self.info(x) {
            Some(StructInfo::Prim { value, .. }) => value,
            _ => None,
        };
        let want = match what {
            code::IMMEDIATE => PrimExpr::i64(value),
            code::STORE => {
                let v = stated.clone().unwrap_or_else(|| self.variable());
                self.store(heap, value, v.clone(), span)?;
                v
            }
            code::ANY => return Ok(vec![]),
            code::EQUAL => self.slot(heap, value, span)?,
            _ => return Err(garbled(span)),
        };
        if stated.as_ref() == Some(&want) {
            return Ok(vec![]);
        }
        Ok(vec![cast(x, StructInfo::Prim { dtype: want.dtype(), value: Some(want) }, span)])
    }

    /// The values of a shape or scalar that is made of slots and literals.
    fn made(&self, heap: &Expr, n: usize, rest: &[Expr], span: Span) -> Result<Vec<PrimExpr>, Diagnostic> {
        let value = |(what, value)| match what {
            code::IMMEDIATE => Ok(PrimExpr::i64(value)),
            code::LOAD => self.slot(heap, value, span),
            _ => Err(garbled(span)),
        };
        pairs(n, rest).ok_or_else(|| garbled(span))?.into_iter().map(value).collect()
    }

    /// A PrimFunc of host code: it writes slots.
    fn compute(&mut self, prim: &PrimFunc, heap: &RVar, span: Span) -> Result<(), Diagnostic> {
        let mut slots = self.heaps.get(heap).cloned().unwrap_or_default();
        if !statements(&prim.body, &mut slots) {
            let d = refused(span, "this PrimFunc does more than compute slots of the shape heap".to_string());
            return Err(d.label(prim.span, "the PrimFunc"));
        }
        self.heaps.insert(heap.clone(), slots);
        Ok(())
    }
}

/// A type without the dims that it states.
fn without_dims(info: &StructInfo) -> StructInfo {
    match info {
        StructInfo::Tensor(t) => StructInfo::Tensor(TensorInfo { shape: None, ..t.clone() }),
        StructInfo::Shape { ndim, .. } => StructInfo::Shape { values: None, ndim: *ndim },
        StructInfo::Prim { dtype, .. } => StructInfo::Prim { dtype: *dtype, value: None },
        StructInfo::Tuple(fields) => StructInfo::Tuple(fields.iter().map(without_dims).collect()),
        StructInfo::Func(_) | StructInfo::Object | StructInfo::Str | StructInfo::DType => info.clone(),
    }
}

/// A statement of its own whose value is said to be more than the empty tuple.
fn unused(c: &Call, b: &Binding) -> bool {
    let bare = b.var.name() == "_" && b.var.span() == b.span && !b.span.is_none();
    bare && !matches!(c.sinfo_args.as_slice(), [] | [StructInfo::Tuple(_)])
}

/// What a call is said to give must be able to be what its variable is said to be, though neither is derived.
fn stated_alike(c: &Call, b: &Binding) -> Result<(), Diagnostic> {
    let (Some(annotation), [given]) = (&b.annotation, c.sinfo_args.as_slice()) else { return Ok(()) };
    match relate(given, annotation, "the call", &mut Facts::new()).refused {
        Some(why) => Err(Diagnostic::error("annotation", b.span, format!("{}: {why}", b.var.name()))
            .help("the annotation and ty_args are of one type")),
        None => Ok(()),
    }
}

/// A call of a function of the module.
fn called(f: &Expr, args: Vec<Expr>) -> ExprKind {
    let callee = Callee::Expr(f.clone());
    ExprKind::Call(Call { callee, args, attrs: Attrs::default(), sinfo_args: vec![] })
}

/// Runs stores to slots; false when there is anything else.
fn statements(s: &Stmt, slots: &mut Slots) -> bool {
    match s.kind() {
        StmtKind::Seq(list) => list.iter().all(|s| statements(s, slots)),
        StmtKind::Store { indices, value, .. } => {
            let [index] = indices.as_slice() else { return false };
            let (Some(i), Some(v)) = (index.as_int(), loaded(value, slots)) else { return false };
            slots.insert(i, v);
            true
        }
        _ => false,
    }
}

/// An expression over slots, with what they hold; `None` when it reads anything else.
fn loaded(e: &PrimExpr, slots: &Slots) -> Option<PrimExpr> {
    if let PrimKind::BufferLoad(_, indices) = e.kind() {
        let [index] = &indices[..] else { return None };
        return slots.get(&index.as_int()?).cloned();
    }
    let mut all = true;
    let new = e.map_children(&mut |c| {
        let new = loaded(c, slots);
        all &= new.is_some();
        new.unwrap_or_else(|| c.clone())
    });
    all.then_some(new)
}

/// The name of a function of the runtime, and its arguments.
fn runtime_call(c: &Call) -> Option<(&str, &[Expr])> {
    let (ExprKind::Str(name) | ExprKind::ExternFunc(name, _)) = c.args.first()?.kind() else { return None };
    match c.op()?.name {
        "call_packed" | "call_pure_packed" => Some((name.as_str(), &c.args[1..])),
        "call_builtin_with_ctx" => match c.args.get(1)?.kind() {
            ExprKind::Tuple(fields) => Some((name.as_str(), fields.as_slice())),
            _ => None,
        },
        _ => None,
    }
}

/// What a check wants of its first argument.
fn checked<'e>(check: &str, args: &'e [Expr]) -> Option<(&'e Expr, StructInfo)> {
    let x = args.first()?;
    let count = || int(args.get(1)?).map(|n| usize::try_from(n).ok());
    let dtype = |i: usize| match args.get(i).map(Expr::kind) {
        Some(ExprKind::DType(d)) => Some(*d),
        _ => None,
    };
    let want = match check {
        "check_tensor_info" => StructInfo::tensor_ndim(count()?, dtype(2)),
        "check_shape_info" => StructInfo::Shape { values: None, ndim: count()? },
        "check_tuple_info" => StructInfo::Tuple(vec![StructInfo::Object; count()?.filter(|n| *n < 10_000)?]),
        "check_prim_value_info" => StructInfo::Prim { dtype: dtype(1)?, value: None },
        "check_func_info" => {
            let any = FuncInfo { params: None, ret: StructInfo::Object, pure: false, derive: None };
            StructInfo::Func(Arc::new(any))
        }
        _ => return None,
    };
    Some((x, want))
}

/// Whether an annotation says all that a check wants to know.
fn says(info: &StructInfo, want: &StructInfo) -> bool {
    match (info, want) {
        (StructInfo::Tensor(t), StructInfo::Tensor(w)) => {
            (w.ndim.is_none() || t.ndim == w.ndim) && (w.dtype.is_none() || t.dtype == w.dtype)
        }
        (StructInfo::Shape { ndim, .. }, StructInfo::Shape { ndim: w, .. }) => w.is_none() || ndim == w,
        (StructInfo::Tuple(f), StructInfo::Tuple(w)) => f.len() == w.len(),
        (StructInfo::Prim { dtype, .. }, StructInfo::Prim { dtype: w, .. }) => dtype == w,
        (StructInfo::Func(_), StructInfo::Func(_)) => true,
        _ => false,
    }
}

fn int(e: &Expr) -> Option<i64> {
    match e.kind() {
        ExprKind::Prim(p) => p.as_int(),
        _ => None,
    }
}

/// `n` pairs of a code and a value.
fn pairs(n: usize, rest: &[Expr]) -> Option<Vec<(i64, i64)>> {
    let flat = rest.get(..n.checked_mul(2)?)?;
    flat.chunks(2).map(|p| Some((int(&p[0])?, int(&p[1])?))).collect()
}

fn operator(name: &str, args: &[Expr]) -> Option<Call> {
    Some(Call { callee: Callee::Op(lookup(name)?), args: args.to_vec(), attrs: Attrs::default(), sinfo_args: vec![] })
}

fn bound(b: &Binding, kind: ExprKind) -> Binding {
    Binding { value: BindingValue::Expr(Expr::new(kind, b.span)), ..b.clone() }
}

fn cast(x: &Expr, want: StructInfo, span: Span) -> Binding {
    let value = BindingValue::MatchCast { value: x.clone(), struct_info: want };
    Binding { var: RVar::new("_", false, span), annotation: None, value, span }
}

fn refused(span: Span, message: String) -> Diagnostic {
    Diagnostic::unsupported("lowered-text", span, message)
        .help("print an earlier stage: call mod.script() before relax.build or the default pipeline")
}

fn garbled(span: Span) -> Diagnostic {
    Diagnostic::error("lowered-text", span, "this call is not as TVM's lowering for its virtual machine writes it")
}
