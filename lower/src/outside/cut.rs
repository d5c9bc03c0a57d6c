//! A kernel that calls functions of the host, as kernels and calls in the Relax function. A loop around a call is a local function
//! that ends in a call of itself, which compiles to rounds; a branch is an `If`.

use super::{calls, static_tensor, Res, Site};
use relax_ir::attrs::Attrs;
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::relax::{
    Binding, BindingBlock, Call, Callee, Expr, ExprKind, FuncInfo, Function, Param, RVar, SeqExpr, StructInfo,
};
use relax_ir::tir::{Block, Buffer, IterKind, PackedArg, PrimFunc, PrimParam, Stmt, StmtKind};
use relax_ir::{DType, Diagnostic, PrimExpr, Span, Var};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A piece of a kernel.
enum Part {
    /// Statements without calls.
    Stmts(Vec<Stmt>),
    Call {
        function: String,
        args: Vec<PackedArg>,
        span: Span,
    },
    Loop {
        var: Var,
        min: PrimExpr,
        extent: PrimExpr,
        body: Vec<Part>,
        span: Span,
    },
    While {
        cond: PrimExpr,
        body: Vec<Part>,
        span: Span,
    },
    If {
        cond: PrimExpr,
        then: Vec<Part>,
        otherwise: Vec<Part>,
        span: Span,
    },
}

/// A kernel under the knife: what its names stand for in the Relax function.
struct Cut<'a> {
    f: &'a PrimFunc,
    /// Memory of its own.
    allocs: Vec<Buffer>,
    dims: HashMap<Var, PrimExpr>,
    scalars: HashMap<Var, Expr>,
    tensors: HashMap<u32, Expr>,
}

impl Site<'_> {
    /// The kernel as kernels that write to their arguments, and calls between them.
    pub(super) fn cut(
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
        let allocs = f.alloc_buffers.clone();
        let mut c = Cut { f, allocs, dims: HashMap::new(), scalars: HashMap::new(), tensors: HashMap::new() };
        for (p, info) in f.params.iter().zip(infos) {
            match (p, info) {
                (PrimParam::Scalar(v), Some(StructInfo::Prim { value: Some(e), .. })) => {
                    c.dims.insert(v.clone(), e.clone().cast(v.dtype()));
                }
                (PrimParam::Buffer { buffer, .. }, info) => {
                    let known = static_tensor(info.as_ref()).map(|(d, _)| d).unwrap_or_default();
                    for (d, a) in buffer.shape.iter().zip(known) {
                        if let Some(v) = d.as_var() {
                            c.dims.entry(v.clone()).or_insert_with(|| a.cast(v.dtype()));
                        }
                    }
                }
                _ => {}
            }
        }
        let parts = c.parts(&f.body)?;
        let mut results = vec![];
        for (i, p) in f.params.iter().enumerate() {
            match (p, args.get(i)) {
                (PrimParam::Buffer { buffer, .. }, Some(a)) => drop(c.tensors.insert(buffer.id(), a.clone())),
                (PrimParam::Scalar(v), Some(a)) => drop(c.scalars.insert(v.clone(), a.clone())),
                (PrimParam::Buffer { buffer, .. }, None) => {
                    let (d, t) = static_tensor(infos[i].as_ref())
                        .ok_or_else(|| self.unsupported(format!("{}: an output of unknown dims", f.name)))?;
                    let made = self.tensor(&buffer.name, d, t)?;
                    c.tensors.insert(buffer.id(), made.clone());
                    results.push(made);
                }
                _ => {}
            }
        }
        for buffer in &c.allocs {
            if uses(&parts, buffer) > 1 {
                let d = buffer.shape.iter().map(|d| d.substitute(&c.dims).cast(DType::I64)).collect();
                let made = self.tensor(&buffer.name, d, buffer.dtype())?;
                c.tensors.insert(buffer.id(), made);
            }
        }
        self.write_all(parts, &mut c)?;
        let whole = matches!(self.typed.sinfo.get(&b.var), Some(StructInfo::Tuple(_)));
        Ok(match results.len() {
            1 if !whole => results.swap_remove(0),
            _ => self.value(ExprKind::Tuple(results)),
        })
    }

    fn write_all(&mut self, parts: Vec<Part>, c: &mut Cut) -> Res<()> {
        parts.into_iter().try_for_each(|p| self.write(p, c))
    }

    fn write(&mut self, part: Part, c: &mut Cut) -> Res<()> {
        match part {
            Part::Stmts(list) => self.kernel(list, c),
            Part::Call { function, args, span } => {
                let mut list = vec![self.value(ExprKind::ExternFunc(function, None))];
                for a in args {
                    list.push(self.given(a, c, span)?);
                }
                let call = self.op("call_packed", list)?;
                self.bind("_", call, StructInfo::Object);
                Ok(())
            }
            Part::If { cond, then, otherwise, span } => {
                let cond = self.condition(cond, c, span)?;
                let then = self.inside(|site| site.write_all(then, c))?;
                let otherwise = self.inside(|site| site.write_all(otherwise, c))?;
                self.branch(cond, then, otherwise);
                Ok(())
            }
            Part::While { cond, body, span } => self.rounds(None, cond, body, c, span),
            Part::Loop { var, min, extent, body, span } => {
                if reads(&min) || reads(&extent) || min.vars().iter().any(|v| !c.dims.contains_key(v)) {
                    let message =
                        format!("elements of memory tell how often {} calls a function of the host", c.f.name);
                    return Err(Diagnostic::unsupported("tir-extern", span, message).help("state the count in dims"));
                }
                let counter = Var::dim(var.name());
                let value = PrimExpr::binary(BinOp::Add, min.substitute(&c.dims), counter.expr().cast(min.dtype()));
                c.dims.insert(var.clone(), value.cast(var.dtype()));
                let end = PrimExpr::binary(BinOp::Add, min, extent);
                let more = PrimExpr::binary(BinOp::Lt, var.expr(), end.cast(var.dtype()));
                self.rounds(Some(counter), more, body, c, span)
            }
        }
    }

    /// A local function that does `body` and calls itself while `more` holds, and its first call.
    fn rounds(&mut self, counter: Option<Var>, more: PrimExpr, body: Vec<Part>, c: &mut Cut, span: Span) -> Res<()> {
        let this = RVar::new("rounds", self.dataflow, self.span);
        let counted = |v: &Var| StructInfo::Prim { dtype: DType::I64, value: Some(v.expr()) };
        let params: Vec<(RVar, StructInfo)> =
            counter.iter().map(|v| (RVar::new(v.name(), false, self.span), counted(v))).collect();
        let bindings = self.inside(|site| {
            let cond = site.condition(more, c, span)?;
            let then = site.inside(|site| {
                site.write_all(body, c)?;
                site.again(&this, counter.as_ref().map(|v| v.expr() + 1));
                Ok(())
            })?;
            site.branch(cond, then, vec![]);
            Ok(())
        })?;
        let info = FuncInfo {
            params: Some(params.iter().map(|(_, info)| info.clone()).collect()),
            ret: StructInfo::unit(),
            pure: false,
            derive: None,
        };
        for (var, info) in &params {
            self.typed.sinfo.insert(var.clone(), info.clone());
        }
        let function = Function {
            name: this.name().to_string(),
            params: params.into_iter().map(|(var, info)| Param { var, annotation: Some(info) }).collect(),
            ret: Some(StructInfo::unit()),
            body: self.sequence(bindings),
            attrs: Attrs::default(),
            private: true,
            pure: false,
            span: self.span,
            signature_span: self.span,
        };
        let value = self.value(ExprKind::Function(Arc::new(function)));
        self.bind_to(this.clone(), value, StructInfo::Func(Arc::new(info)));
        self.again(&this, counter.map(|_| PrimExpr::i64(0)));
        Ok(())
    }

    fn again(&mut self, function: &RVar, round: Option<PrimExpr>) {
        let callee = Callee::Expr(self.value(ExprKind::Var(function.clone())));
        let args = round.into_iter().map(|e| self.value(ExprKind::Prim(e))).collect();
        let call = self.value(ExprKind::Call(Call { callee, args, attrs: Attrs::default(), sinfo_args: vec![] }));
        self.bind("_", call, StructInfo::unit());
    }

    fn branch(&mut self, cond: Expr, then: Vec<Binding>, otherwise: Vec<Binding>) {
        let (then, otherwise) = (self.sequence(then), self.sequence(otherwise));
        let branch = self.value(ExprKind::If { cond, then, otherwise });
        self.bind("_", branch, StructInfo::unit());
    }

    /// The bindings that `f` makes, in a branch or a function.
    fn inside(&mut self, f: impl FnOnce(&mut Self) -> Res<()>) -> Res<Vec<Binding>> {
        let (out, dataflow) = (std::mem::take(&mut self.out), std::mem::replace(&mut self.dataflow, false));
        let done = f(self);
        self.dataflow = dataflow;
        let made = std::mem::replace(&mut self.out, out);
        done.map(|()| made)
    }

    /// These bindings; the value is the last one where that is no value, so that a call there is the function's last.
    fn sequence(&self, bindings: Vec<Binding>) -> Arc<SeqExpr> {
        let last = bindings.last().filter(|b| self.typed.sinfo.get(&b.var) == Some(&StructInfo::unit()));
        let body = match last {
            Some(b) => self.value(ExprKind::Var(b.var.clone())),
            None => self.value(ExprKind::Tuple(vec![])),
        };
        let blocks = match bindings.is_empty() {
            true => vec![],
            false => vec![BindingBlock { dataflow: false, bindings, span: self.span }],
        };
        Arc::new(SeqExpr { blocks, body })
    }

    /// Whether `cond` holds: a scalar where dims tell, else a kernel writes it down.
    fn condition(&mut self, cond: PrimExpr, c: &mut Cut, span: Span) -> Res<Expr> {
        let cond = match cond.dtype() {
            DType::BOOL => cond,
            t => cond.ne(PrimExpr::int(t, 0)),
        };
        if !reads(&cond) && cond.vars().iter().all(|v| c.dims.contains_key(v)) {
            return Ok(self.value(ExprKind::Prim(cond.substitute(&c.dims))));
        }
        let answer = Buffer::new("holds", vec![], DType::BOOL);
        let made = self.tensor("holds", vec![], DType::BOOL)?;
        c.tensors.insert(answer.id(), made.clone());
        c.allocs.push(answer.clone());
        let kind = StmtKind::Store { buffer: answer, indices: vec![], value: cond };
        self.kernel(vec![Stmt::at(kind, span)], c)?;
        c.allocs.pop();
        Ok(made)
    }

    /// An argument of a function of the host.
    fn given(&self, a: PackedArg, c: &Cut, span: Span) -> Res<Expr> {
        let unknown = |what: &str| Diagnostic::unsupported("tir-extern", span, what.to_string());
        match a {
            PackedArg::Text(s) => Ok(self.value(ExprKind::Str(s))),
            PackedArg::Tensor(t) => {
                c.tensors.get(&t.id()).cloned().ok_or_else(|| unknown("a buffer of a region cannot be given away"))
            }
            PackedArg::Handle(_) => Err(unknown("a handle that is no parameter cannot be given away")),
            PackedArg::Scalar(e) => {
                if reads(&e) {
                    return Err(unknown("an element of a buffer cannot be given away: give the buffer"));
                }
                if let Some(arg) = e.as_var().and_then(|v| c.scalars.get(v)) {
                    return Ok(arg.clone());
                }
                if e.vars().iter().any(|v| !c.dims.contains_key(v)) {
                    return Err(unknown("a scalar that the call does not know cannot be given away"));
                }
                Ok(self.value(ExprKind::Prim(e.substitute(&c.dims))))
            }
        }
    }

    /// A kernel of these statements, called with what it uses.
    fn kernel(&mut self, list: Vec<Stmt>, c: &Cut) -> Res<()> {
        let f = c.f;
        let body = Stmt::seq(list);
        let used = buffers_of(&body);
        let mut stored = false;
        body.walk(&mut |s| stored |= matches!(s.kind(), StmtKind::Store { .. }));
        if !stored {
            return Ok(());
        }
        let (mut params, mut args, mut own) = (vec![], vec![], vec![]);
        let mut bound: HashSet<Var> = HashSet::new();
        for buffer in f.buffers().chain(&c.allocs).filter(|b| used.contains(&b.id())) {
            match c.tensors.get(&buffer.id()) {
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
            let arg = match (c.scalars.get(&v), c.dims.get(&v)) {
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
}

impl Cut<'_> {
    /// The statements between the calls, and these.
    fn parts(&mut self, s: &Stmt) -> Res<Vec<Part>> {
        let mut out = vec![];
        self.split(s, &mut out)?;
        Ok(out)
    }

    fn split(&mut self, s: &Stmt, out: &mut Vec<Part>) -> Res<()> {
        if !calls(s) {
            match out.last_mut() {
                Some(Part::Stmts(list)) => list.push(s.clone()),
                _ => out.push(Part::Stmts(vec![s.clone()])),
            }
            return Ok(());
        }
        let span = s.span();
        match s.kind() {
            StmtKind::Seq(list) => list.iter().try_for_each(|s| self.split(s, out)),
            StmtKind::CallPacked { function, args } => {
                out.push(Part::Call { function: function.clone(), args: args.clone(), span });
                Ok(())
            }
            StmtKind::Attr { body, .. } => self.split(body, out),
            StmtKind::Alloc { buffer, body } => {
                self.own(std::slice::from_ref(buffer));
                self.split(body, out)
            }
            StmtKind::Let { var, value, body } => {
                let mut value = value.clone();
                if reads(&value) {
                    // What the memory holds now.
                    let cell = Buffer::new(var.name(), vec![PrimExpr::i64(1)], value.dtype());
                    let at = vec![PrimExpr::i64(0)];
                    self.own(std::slice::from_ref(&cell));
                    self.split(&Stmt::store(&cell, at.clone(), value), out)?;
                    value = cell.at(at);
                }
                self.split(&with(body, HashMap::from([(var.clone(), value)])), out)
            }
            StmtKind::For { var, min, extent, body, .. } => {
                let body = self.parts(body)?;
                out.push(Part::Loop { var: var.clone(), min: min.clone(), extent: extent.clone(), body, span });
                Ok(())
            }
            StmtKind::While { cond, body } => {
                let body = self.parts(body)?;
                out.push(Part::While { cond: cond.clone(), body, span });
                Ok(())
            }
            StmtKind::If { cond, then, otherwise } => {
                let then = self.parts(then)?;
                let otherwise = otherwise.as_ref().map_or(Ok(vec![]), |s| self.parts(s))?;
                out.push(Part::If { cond: cond.clone(), then, otherwise, span });
                Ok(())
            }
            StmtKind::Block(b) if b.match_buffers.is_empty() => {
                self.own(&b.alloc_buffers);
                self.split(&without_axes(b, span), out)
            }
            _ => {
                let what = format!("{} calls a function of the host in a block with regions", self.f.name);
                let d = Diagnostic::unsupported("tir-extern", span, what);
                Err(d.help("call it outside of T.match_buffer, on whole buffers"))
            }
        }
    }

    fn own(&mut self, buffers: &[Buffer]) {
        let new = buffers.iter().filter(|b| !self.allocs.contains(b)).cloned();
        self.allocs.extend(new.collect::<Vec<_>>());
    }
}

fn with(s: &Stmt, known: HashMap<Var, PrimExpr>) -> Stmt {
    s.rewrite(&mut |e| e.substitute(&known), &mut |s| s)
}

/// What a block does in one of its rounds.
fn without_axes(b: &Block, span: Span) -> Stmt {
    let first = b.axes.iter().filter(|a| a.kind == IterKind::Reduce);
    let first = first.map(|a| a.var.expr().eq(a.min.clone().cast(a.var.dtype()))).reduce(|a, b| a.and(b));
    let init = b.init.iter().map(|init| match &first {
        Some(first) => Stmt::if_then(first.clone(), init.clone()),
        None => init.clone(),
    });
    let body = Stmt::seq(init.chain([b.body.clone()]).collect());
    let body = match &b.predicate {
        Some(p) => Stmt::at(StmtKind::If { cond: p.clone(), then: body, otherwise: None }, span),
        None => body,
    };
    with(&body, b.axes.iter().map(|a| (a.var.clone(), a.binding.clone().cast(a.var.dtype()))).collect())
}

fn reads(e: &PrimExpr) -> bool {
    let mut found = false;
    e.walk(&mut |e| found |= matches!(e.kind(), PrimKind::BufferLoad(..)));
    found
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

/// In how many parts a buffer is used; what a call gets, and what the rounds of a loop or a branch share, counts for more than one.
fn uses(parts: &[Part], b: &Buffer) -> usize {
    let read = |e: &PrimExpr| {
        let mut found = false;
        e.walk(&mut |e| found |= matches!(e.kind(), PrimKind::BufferLoad(of, _) if of == b));
        2 * usize::from(found)
    };
    let one = |p: &Part| match p {
        Part::Stmts(list) => usize::from(list.iter().any(|s| buffers_of(s).contains(&b.id()))),
        Part::Call { args, .. } => {
            let scalars: usize = args.iter().filter_map(PackedArg::scalar).map(read).sum();
            scalars + 2 * args.iter().filter_map(PackedArg::tensor).filter(|t| *t == b).count()
        }
        Part::Loop { min, extent, body, .. } => read(min) + read(extent) + 2 * uses(body, b),
        Part::While { cond, body, .. } => read(cond) + 2 * uses(body, b),
        Part::If { cond, then, otherwise, .. } => read(cond) + uses(then, b) + uses(otherwise, b),
    };
    parts.iter().map(one).sum()
}
