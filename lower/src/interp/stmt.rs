//! Statements to closures.

use super::env::{row_major, Env, Flow, Halt, Index, IntFn, StmtFn, View};
use super::expr::{assign, Compiler, Num};
use super::lines::FEW;
use super::scalar::int_to_float;
use relax_ir::prim::{PrimExpr, Var};
use relax_ir::tir::{Block, Buffer, IterKind, MatchBufferRegion, Stmt, StmtKind};
use relax_ir::{DType, Diagnostic, Span};

impl Compiler {
    pub fn stmt(&mut self, s: &Stmt) -> Result<StmtFn, Diagnostic> {
        Ok(match s.kind() {
            StmtKind::Seq(list) => {
                let list = list.iter().map(|s| self.stmt(s)).collect::<Result<Vec<_>, _>>()?;
                Box::new(move |env| list.iter().try_for_each(|s| s(env)))
            }
            StmtKind::For { var, min, extent, body, .. } => self.for_loop(var, min, extent, body, s.span())?,
            StmtKind::While { cond, body } => {
                let (cond, body, span) = (self.truth(cond)?, self.stmt(body)?, s.span());
                Box::new(move |env| {
                    while cond(env) != 0 {
                        env.steps(1, span)?;
                        body(env)?;
                    }
                    env.check()
                })
            }
            StmtKind::If { cond, then, otherwise } => {
                let cond = self.truth(cond)?;
                let then = self.stmt(then)?;
                let otherwise = otherwise.as_ref().map(|s| self.stmt(s)).transpose()?;
                Box::new(move |env| {
                    let c = cond(env) != 0;
                    env.check()?;
                    match (c, &otherwise) {
                        (true, _) => then(env),
                        (false, Some(s)) => s(env),
                        (false, None) => Ok(()),
                    }
                })
            }
            StmtKind::Block(b) => self.block(b, s.span())?,
            StmtKind::Store { buffer, indices, value } => self.store(buffer, indices, value, s.span())?,
            StmtKind::Let { var, value, body } => {
                let value = self.num(value)?;
                let slot = self.define(var);
                let set = assign(slot, value);
                let body = self.stmt(body)?;
                Box::new(move |env| {
                    set(env);
                    env.check()?;
                    body(env)
                })
            }
            StmtKind::Assert { cond, message } => {
                let (cond, message, span) = (self.truth(cond)?, message.clone(), s.span());
                Box::new(move |env| {
                    if cond(env) == 0 {
                        env.fail(|| Diagnostic::error("assert", span, message.clone()));
                    }
                    env.check()
                })
            }
            // Pure: nothing happens.
            StmtKind::Evaluate(_) => Box::new(|_| Ok(())),
            StmtKind::CallPacked { function, .. } => {
                let what = format!("the reference interpreter does not call `{function}`");
                return Err(Diagnostic::unsupported("interpreter", s.span(), what));
            }
            StmtKind::Attr { body, .. } => self.stmt(body)?,
            StmtKind::Alloc { buffer, body } => {
                let alloc = self.alloc(buffer, s.span())?;
                let body = self.stmt(body)?;
                Box::new(move |env| {
                    alloc(env)?;
                    body(env)
                })
            }
        })
    }

    fn for_loop(
        &mut self,
        var: &Var,
        min: &PrimExpr,
        extent: &PrimExpr,
        body: &Stmt,
        span: Span,
    ) -> Result<StmtFn, Diagnostic> {
        let (min, extent) = (self.index(min)?, self.index(extent)?);
        let slot = self.define_int(var)?;
        let inits = self.empty_inits(var, body);
        let line = matches!(min, Index::Const(0)).then(|| self.line(var, body)).flatten();
        let body = self.stmt(body)?;
        Ok(Box::new(move |env| {
            let lo = min.get(env);
            let n = extent.get(env);
            env.check()?;
            env.steps(n, span)?;
            if let Some(line) = line.as_ref().filter(|_| n >= FEW) {
                if line.run(env, slot, n)? {
                    return Ok(());
                }
            }
            for i in 0..n {
                env.ints[slot] = lo + i;
                body(env)?;
            }
            if n <= 0 {
                env.ints[slot] = lo;
                inits.iter().try_for_each(|s| s(env))?;
            }
            Ok(())
        }))
    }

    /// What a loop does when its extent is 0: the inits of the reduction blocks below it for which it is no spatial
    /// loop, each under its spatial loops alone. Those of buffers that live only inside the loop are left out.
    fn empty_inits(&mut self, var: &Var, body: &Stmt) -> Vec<StmtFn> {
        let mut found = vec![];
        find_inits(var, body, &mut vec![], &mut found);
        found.iter().filter_map(|s| self.stmt(s).ok()).collect()
    }

    fn block(&mut self, b: &Block, span: Span) -> Result<StmtFn, Diagnostic> {
        let mut bindings: Vec<(usize, Index)> = vec![];
        let mut reduce: Vec<(usize, Index)> = vec![];
        for a in &b.axes {
            let value = self.index(&a.binding)?;
            let slot = self.define_int(&a.var)?;
            bindings.push((slot, value));
            if a.kind == IterKind::Reduce {
                reduce.push((slot, self.index(&a.min)?));
            }
        }
        let predicate = b.predicate.as_ref().map(|p| self.truth(p)).transpose()?;
        let mut setup = vec![];
        for buffer in &b.alloc_buffers {
            setup.push(self.alloc(buffer, span)?);
        }
        for m in &b.match_buffers {
            setup.push(self.match_buffer(m, span)?);
        }
        let init = b.init.as_ref().map(|s| self.stmt(s)).transpose()?;
        let body = self.stmt(&b.body)?;
        Ok(Box::new(move |env| {
            for (slot, value) in &bindings {
                let v = value.get(env);
                env.ints[*slot] = v;
            }
            if let Some(p) = &predicate {
                if p(env) == 0 {
                    return env.check();
                }
            }
            env.check()?;
            setup.iter().try_for_each(|s| s(env))?;
            if let Some(init) = &init {
                let mut first = true;
                for (slot, min) in &reduce {
                    first &= env.ints[*slot] == min.get(env);
                }
                if first {
                    init(env)?;
                }
            }
            body(env)
        }))
    }

    fn store(
        &mut self,
        buffer: &Buffer,
        indices: &[PrimExpr],
        value: &PrimExpr,
        span: Span,
    ) -> Result<StmtFn, Diagnostic> {
        let access = self.access(buffer, indices, span)?;
        let (to, from) = (buffer.dtype(), value.dtype());
        Ok(match (self.num(value)?, to.is_float()) {
            (Num::Float(f), true) => Box::new(move |env| {
                let v = f(env);
                env.check()?;
                access.store_float(env, v);
                env.check()
            }),
            (Num::Int(f), false) => Box::new(move |env| {
                let v = f(env);
                env.check()?;
                access.store_int(env, v);
                env.check()
            }),
            (Num::Int(f), true) => Box::new(move |env| {
                let v = int_to_float(to, from == DType::U64, f(env));
                env.check()?;
                access.store_float(env, v);
                env.check()
            }),
            (Num::Float(f), false) => Box::new(move |env| {
                let v = f(env) as i64;
                env.check()?;
                access.store_int(env, v);
                env.check()
            }),
        })
    }

    /// Memory of its own, zeroed each time its scope is entered.
    pub fn alloc(&mut self, b: &Buffer, span: Span) -> Result<StmtFn, Diagnostic> {
        let shape = b.shape.iter().map(|d| self.int(d)).collect::<Result<Vec<_>, _>>()?;
        let strides = b.strides.iter().map(|d| self.int(d)).collect::<Result<Vec<_>, _>>()?;
        let view = self.define_buffer(b);
        let (name, bytes) = (b.name.clone(), b.dtype().bytes() as i64 * b.dtype().lanes as i64);
        Ok(Box::new(move |env| {
            let shape: Vec<i64> = shape.iter().map(|d| d(env)).collect();
            let strides = match strides.is_empty() {
                true => row_major(&shape),
                false => strides.iter().map(|d| d(env)).collect(),
            };
            env.check()?;
            let span_of = |(d, s): (&i64, &i64)| (d - 1).max(0).checked_mul(s.abs());
            let last = shape.iter().zip(&strides).try_fold(0i64, |a, p| a.checked_add(span_of(p)?));
            let size = last.and_then(|l| (l + 1).checked_mul(bytes)).filter(|n| *n <= env.budget.bytes);
            let Some(size) = size else {
                env.fail(|| {
                    Diagnostic::error("too-large", span, format!("buffer `{name}` of shape {shape:?} is too large"))
                });
                return Err(Halt);
            };
            let size = if shape.iter().any(|d| *d <= 0) { 0 } else { size as usize };
            // The view owns its store: views are numbered once, stores follow them.
            let store = view;
            env.stores[store].clear();
            env.stores[store].resize(size, 0);
            env.views[view] = View { store, shape, strides, offset: 0 };
            Ok(())
        }))
    }

    /// A window into another buffer; variables in the window's shape, strides and offset are bound by it.
    fn match_buffer(&mut self, m: &MatchBufferRegion, span: Span) -> Result<StmtFn, Diagnostic> {
        let source = &m.source.buffer;
        self.aliased = true;
        let undefined = || Diagnostic::error("undefined", span, format!("buffer `{}` is not in scope", source.name));
        let from = *self.buffers.get(source).ok_or_else(undefined)?;
        if m.source.region.len() != source.ndim() || m.buffer.ndim() > source.ndim() {
            let text = format!("the region of `{}` does not fit `{}`", source.name, m.buffer.name);
            return Err(Diagnostic::error("rank", span, text));
        }
        let mut region: Vec<(IntFn, IntFn)> = vec![];
        for (min, extent) in &m.source.region {
            region.push((self.int(min)?, self.int(extent)?));
        }
        let shape = self.bind_all(&m.buffer.shape)?;
        let strides = self.bind_all(&m.buffer.strides)?;
        let offset = self.bind_all(m.buffer.elem_offset.as_slice())?;
        let view = self.define_buffer(&m.buffer);
        let dims = m.buffer.ndim();
        Ok(Box::new(move |env| {
            let outer = env.views[from].clone();
            let mut at = outer.offset;
            let mut extents = vec![];
            for (i, (min, extent)) in region.iter().enumerate() {
                at += min(env) * outer.strides[i];
                extents.push(extent(env));
            }
            let skip = extents.len() - dims;
            for (slot, v) in shape.iter().zip(&extents[skip..]).chain(strides.iter().zip(&outer.strides[skip..])) {
                if let Some(s) = slot {
                    env.ints[*s] = *v;
                }
            }
            if let Some(Some(s)) = offset.first() {
                env.ints[*s] = at;
            }
            env.check()?;
            env.views[view] = View {
                store: outer.store,
                shape: extents.split_off(skip),
                strides: outer.strides[skip..].to_vec(),
                offset: at,
            };
            Ok(())
        }))
    }

    /// Slots of the variables that a matched buffer defines; `None` for what is known already.
    fn bind_all(&mut self, exprs: &[PrimExpr]) -> Result<Vec<Option<usize>>, Diagnostic> {
        exprs
            .iter()
            .map(|e| match e.as_var() {
                Some(v) if !self.is_defined(v) => Ok(Some(self.define_int(v)?)),
                _ => Ok(None),
            })
            .collect()
    }
}

/// A statement between a loop and a block, kept where the block's spatial axes need it.
enum Around {
    For(Stmt),
    Let(Stmt),
    If(Stmt, bool),
}

fn find_inits(empty: &Var, s: &Stmt, path: &mut Vec<Around>, found: &mut Vec<Stmt>) {
    let around = match s.kind() {
        StmtKind::For { .. } => Around::For(s.clone()),
        StmtKind::Let { .. } => Around::Let(s.clone()),
        StmtKind::If { then, otherwise, .. } => {
            for (branch, chosen) in [(Some(then), true), (otherwise.as_ref(), false)] {
                if let Some(branch) = branch {
                    path.push(Around::If(s.clone(), chosen));
                    find_inits(empty, branch, path, found);
                    path.pop();
                }
            }
            return;
        }
        StmtKind::Block(b) => {
            found.extend(init_alone(empty, b, s.span(), path));
            return;
        }
        _ => {
            for c in s.children() {
                find_inits(empty, c, path, found);
            }
            return;
        }
    };
    path.push(around);
    for c in s.children() {
        find_inits(empty, c, path, found);
    }
    path.pop();
}

/// The init of a block under the loops that its spatial axes use; `None` when the empty loop is one of them.
fn init_alone(empty: &Var, b: &Block, span: Span, path: &[Around]) -> Option<Stmt> {
    let init = b.init.as_ref()?;
    let spatial: Vec<_> = b.axes.iter().filter(|a| a.kind != IterKind::Reduce).cloned().collect();
    let mut needed: Vec<Var> = spatial.iter().flat_map(|a| a.binding.vars()).collect();
    // Lets on the way bring their own variables.
    for a in path.iter().rev() {
        if let Around::Let(s) = a {
            if let StmtKind::Let { var, value, .. } = s.kind() {
                if needed.contains(var) {
                    needed.extend(value.vars());
                }
            }
        }
    }
    if needed.contains(empty) {
        return None;
    }
    let reduced: Vec<&Var> = b.axes.iter().filter(|a| a.kind == IterKind::Reduce).map(|a| &a.var).collect();
    let predicate = b.predicate.clone().filter(|p| {
        p.vars().iter().all(|v| (needed.contains(v) || spatial.iter().any(|a| a.var == *v)) && !reduced.contains(&v))
    });
    let block = Block {
        axes: spatial,
        predicate,
        alloc_buffers: vec![],
        match_buffers: b.match_buffers.clone(),
        init: None,
        body: init.clone(),
        ..b.clone()
    };
    let mut stmt = Stmt::at(StmtKind::Block(Box::new(block)), span);
    for a in path.iter().rev() {
        stmt = match a {
            Around::For(s) => match s.kind() {
                StmtKind::For { var, min, extent, kind, annotations, .. } if needed.contains(var) => {
                    Stmt::new(StmtKind::For {
                        var: var.clone(),
                        min: min.clone(),
                        extent: extent.clone(),
                        kind: kind.clone(),
                        annotations: annotations.clone(),
                        body: stmt,
                    })
                }
                _ => stmt,
            },
            Around::Let(s) => match s.kind() {
                StmtKind::Let { var, value, .. } if needed.contains(var) => Stmt::let_in(var, value.clone(), stmt),
                _ => stmt,
            },
            Around::If(s, chosen) => match s.kind() {
                StmtKind::If { cond, .. } if cond.vars().iter().all(|v| needed.contains(v)) => match chosen {
                    true => Stmt::if_then(cond.clone(), stmt),
                    false => Stmt::if_then(cond.clone().not(), stmt),
                },
                _ => stmt,
            },
        };
    }
    Some(stmt)
}

/// Runs the prologue of a kernel.
pub fn run_all(list: &[StmtFn], env: &mut Env) -> Flow {
    list.iter().try_for_each(|s| s(env))
}
