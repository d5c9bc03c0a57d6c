//! PrimFuncs in block form.

use super::names::Names;
use super::scalar::{quote, scalar_type};
use super::types::Place;
use super::{Printer, SignatureNames};
use crate::attrs::{AttrValue, Attrs};
use crate::dtype::DType;
use crate::prim::{BinOp, PrimExpr, PrimKind, Var};
use crate::tir::{
    Block, BlockAxis, Buffer, BufferRegion, ForKind, IterKind, MatchBufferRegion, PackedArg, PrimFunc, PrimParam, Stmt,
    StmtKind,
};

fn scalars(f: &PrimFunc) -> impl Iterator<Item = &Var> {
    f.params.iter().filter_map(|p| match p {
        PrimParam::Scalar(v) => Some(v),
        PrimParam::Buffer { .. } | PrimParam::Handle { .. } => None,
    })
}

/// Names the parameters in order.
pub fn declare_params(f: &PrimFunc, names: &mut Names) {
    for p in &f.params {
        match p {
            PrimParam::Scalar(v) | PrimParam::Handle { handle: v, .. } => names.declare(v.id(), v.name()),
            PrimParam::Buffer { buffer, .. } => names.declare(buffer.id(), &buffer.name),
        };
    }
}

/// Variables of the parameters' shapes, strides and offsets that are no parameters themselves, in order.
pub fn signature_vars(f: &PrimFunc) -> Vec<Var> {
    let mut out: Vec<Var> = vec![];
    for b in f.buffers() {
        for v in b.shape.iter().chain(&b.strides).chain(&b.elem_offset).flat_map(|e| e.vars()) {
            if !out.contains(&v) && !scalars(f).any(|s| *s == v) {
                out.push(v);
            }
        }
    }
    out
}

impl Printer<'_> {
    pub fn prim_func(&mut self, f: &PrimFunc, signature: &SignatureNames) {
        self.fresh_names();
        let outer = (std::mem::replace(&mut self.int, DType::I32), std::mem::replace(&mut self.bare_bool, false));
        declare_params(f, &mut self.names);
        for (v, name) in signature {
            self.names.fix(v.id(), name);
        }
        self.undeclared.extend(scalars(f).cloned());
        self.line(if f.private { "@T.prim_func(private=True, s_tir=True)" } else { "@T.prim_func(s_tir=True)" });
        let mut params = vec![];
        for p in &f.params {
            params.push(match p {
                PrimParam::Scalar(v) => {
                    self.undeclared.remove(v);
                    format!("{}: {}", self.var(v), scalar_type(v.dtype()))
                }
                PrimParam::Buffer { buffer, .. } => {
                    let name = self.names.get(buffer.id(), &buffer.name);
                    let args = self.buffer_args(buffer, Place::Signature, true);
                    format!("{name}: T.Buffer({args})")
                }
                PrimParam::Handle { handle, fields } => {
                    let name = self.names.get(handle.id(), handle.name());
                    for (field, v) in fields {
                        let (number, dtype) = (field.number(), v.dtype());
                        let read = format!("T.tvm_struct_get({name}, 0, {number}, dtype=\"{dtype}\")");
                        self.names.fix(v.id(), &read);
                    }
                    format!("{name}: T.handle")
                }
            });
        }
        let ret = f.ret.map(|d| format!(" -> {}", scalar_type(d))).unwrap_or_default();
        self.line(&format!("def {}({}){ret}:", f.name, params.join(", ")));
        self.nested(|p| {
            if !f.attrs.is_empty() {
                let attrs = p.attrs(&f.attrs);
                p.line(&format!("T.func_attr({attrs})"));
            }
            p.declare_free(f);
            let own_root = matches!(f.body.kind(), StmtKind::Block(b) if b.axes.is_empty());
            if !own_root || !f.alloc_buffers.is_empty() {
                p.line("# with T.sblock(\"root\"):");
            }
            for b in &f.alloc_buffers {
                p.alloc(b, "T.sblock_alloc_buffer");
            }
            match is_empty(&f.body) {
                true if f.returns.is_some() => {}
                true => p.line("T.evaluate(0)"),
                false => p.stmt(&f.body),
            }
            if let Some(e) = &f.returns {
                let e = p.prim(e);
                p.line(&format!("return {e}"));
            }
        });
        (self.int, self.bare_bool) = outer;
    }

    /// `v = T.float32()` for what `T.Let` gives a value, and `n = T.int64()` for variables that no parameter brings: such a
    /// function is not well-formed, yet prints.
    fn declare_free(&mut self, f: &PrimFunc) {
        let mut bound: Vec<Var> = scalars(f).cloned().collect();
        f.body.walk(&mut |s| match s.kind() {
            StmtKind::For { var, .. } | StmtKind::Let { var, .. } => bound.push(var.clone()),
            StmtKind::Block(b) => {
                bound.extend(b.axes.iter().map(|a| a.var.clone()));
                for m in &b.match_buffers {
                    let b = &m.buffer;
                    bound.extend(b.strides.iter().chain(&b.elem_offset).flat_map(|e| e.vars()));
                }
            }
            _ => {}
        });
        let see = |e: &PrimExpr, p: &mut Self| {
            let mut vars = vec![];
            e.walk(&mut |e| {
                if let PrimKind::Let(v, ..) = e.kind() {
                    vars.push(v.clone());
                }
            });
            vars.extend(e.vars());
            for v in vars {
                if p.names.known(v.id()).is_none() && !bound.contains(&v) {
                    let type_vars = &p.type_vars;
                    let name = p.names.declare_avoiding(v.id(), v.name(), |n| type_vars.contains(n));
                    p.line(&format!("{name} = T.{}()", v.dtype()));
                }
            }
        };
        for e in f.alloc_buffers.iter().flat_map(|b| &b.shape) {
            see(e, self);
        }
        f.body.walk(&mut |s| s.exprs().into_iter().for_each(|e| see(e, self)));
    }

    /// Shape, dtype and what differs from a plain buffer.
    fn buffer_args(&mut self, b: &Buffer, place: Place, dtype: bool) -> String {
        let mut args = vec![self.dim_tuple(&b.shape, place)];
        if dtype || b.dtype() != DType::F32 {
            args.push(format!("\"{}\"", b.dtype()));
        }
        if !b.strides.is_empty() {
            args.push(format!("strides={}", self.dim_tuple(&b.strides, place)));
        }
        if let Some(o) = &b.elem_offset {
            args.push(format!("elem_offset={}", self.dim(o, place)));
        }
        if b.scope != "global" && !b.scope.is_empty() {
            args.push(format!("scope={}", quote(&b.scope)));
        }
        args.join(", ")
    }

    fn alloc(&mut self, b: &Buffer, function: &str) {
        let args = self.buffer_args(b, Place::Body, false);
        let name = self.names.declare(b.id(), &b.name);
        self.line(&format!("{name} = {function}({args})"));
    }

    /// A statement list that must not be empty.
    fn body(&mut self, s: &Stmt) {
        self.nested(|p| {
            let mark = p.names.mark();
            match is_empty(s) {
                true => p.line("T.evaluate(0)"),
                false => p.stmt(s),
            }
            p.names.leave(mark);
        });
    }

    fn stmt(&mut self, s: &Stmt) {
        match s.kind() {
            StmtKind::Seq(list) => list.iter().for_each(|s| self.stmt(s)),
            StmtKind::For { .. } => self.for_loop(s),
            StmtKind::While { cond, body } => {
                let cond = self.prim(cond);
                self.line(&format!("while {cond}:"));
                self.body(body);
            }
            StmtKind::If { cond, then, otherwise } => {
                let cond = self.prim(cond);
                self.line(&format!("if {cond}:"));
                self.body(then);
                if let Some(s) = otherwise {
                    self.line("else:");
                    self.body(s);
                }
            }
            StmtKind::Block(b) => self.block(b),
            StmtKind::Store { buffer, indices, value } => {
                let name = self.names.get(buffer.id(), &buffer.name);
                let indices = self.indices(indices);
                let value = self.prim(value);
                self.line(&format!("{name}[{indices}] = {value}"));
            }
            StmtKind::Let { var, value, body } => {
                let value = self.prim(value);
                let name = self.names.declare(var.id(), var.name());
                self.line(&format!("{name}: T.let[{}] = {value}", scalar_type(var.dtype())));
                self.stmt(body);
            }
            StmtKind::Assert { cond, message } => {
                let cond = self.prim(cond);
                self.line(&format!("assert {cond}, {}", quote(message)));
            }
            StmtKind::Evaluate(e) => {
                let e = self.prim(e);
                self.line(&format!("T.evaluate({e})"));
            }
            StmtKind::CallPacked { function, args } => {
                let mut all = vec![quote(function)];
                for a in args {
                    all.push(match a {
                        PackedArg::Scalar(e) => self.prim(e),
                        PackedArg::Text(s) => quote(s),
                        PackedArg::Tensor(b) => self.names.get(b.id(), &b.name),
                        PackedArg::Handle(v) => self.names.get(v.id(), v.name()),
                    });
                }
                self.line(&format!("T.call_packed({})", all.join(", ")));
            }
            StmtKind::Attr { node, key, value, body } => {
                let value = self.prim(value);
                let key = quote(key);
                let node = match node {
                    AttrValue::None => None,
                    n if n.as_int() == Some(0) => None,
                    n => Some(self.attr(n)),
                };
                match node {
                    None => self.line(&format!("with T.attr({{{key}: {value}}}):")),
                    Some(n) => self.line(&format!("with T.attr({n}, {key}, {value}):")),
                }
                self.body(body);
            }
            StmtKind::Alloc { buffer, body } => {
                if buffer.scope == "local" && buffer.strides.is_empty() && buffer.elem_offset.is_none() {
                    let shape = self.dim_tuple(&buffer.shape, Place::Body);
                    let dtype = match buffer.dtype() {
                        DType::F32 => String::new(),
                        d => format!(", \"{d}\""),
                    };
                    let name = self.names.declare(buffer.id(), &buffer.name);
                    self.line(&format!("{name} = T.alloc_local({shape}{dtype})"));
                } else {
                    self.alloc(buffer, "T.decl_buffer");
                }
                self.stmt(body);
            }
        }
    }

    /// One line for a nest of plain loops, as `T.grid`.
    fn for_loop(&mut self, s: &Stmt) {
        let StmtKind::For { var, min, extent, kind, annotations, .. } = s.kind() else { return };
        let mark = self.names.mark();
        let mut loops: Vec<(Var, PrimExpr)> = vec![];
        let mut inner = s;
        while let StmtKind::For { var, min, extent, kind: ForKind::Serial, annotations, body } = inner.kind() {
            let fixed = min.is_int(0)
                && min.dtype() == extent.dtype()
                && annotations.is_empty()
                && !loops.iter().any(|(v, _)| extent.uses(v));
            if !fixed {
                break;
            }
            loops.push((var.clone(), extent.clone()));
            inner = body;
        }
        if loops.len() > 1 {
            let extents = self.prims(loops.iter().map(|(_, e)| e));
            let names: Vec<String> = loops.iter().map(|(v, _)| self.names.declare(v.id(), v.name())).collect();
            self.line(&format!("for {} in T.grid({extents}):", names.join(", ")));
            for (v, e) in &loops {
                self.loops.insert(v.clone(), (PrimExpr::int(e.dtype(), 0), e.clone()));
            }
            self.body(inner);
        } else {
            let StmtKind::For { body, .. } = s.kind() else { return };
            let mut args = match min.is_int(0) {
                true => self.prim(extent),
                false => {
                    let stop = self.stop(min, extent);
                    format!("{}, {stop}", self.prim(min))
                }
            };
            let function = match kind {
                ForKind::Serial if annotations.is_empty() => "range",
                ForKind::Serial => "T.serial",
                ForKind::Parallel => "T.parallel",
                ForKind::Vectorized => "T.vectorized",
                ForKind::Unrolled => "T.unroll",
                ForKind::ThreadBinding(_) => "T.thread_binding",
            };
            if let ForKind::ThreadBinding(t) = kind {
                args += &format!(", thread={}", quote(t));
            }
            if !annotations.is_empty() {
                args += &format!(", annotations={}", self.dict(annotations));
            }
            let name = self.names.declare(var.id(), var.name());
            self.line(&format!("for {name} in {function}({args}):"));
            self.loops.insert(var.clone(), (min.clone(), extent.clone()));
            self.body(body);
        }
        self.names.leave(mark);
    }

    /// `min + extent`, undoing how a parser makes an extent from two ends.
    fn stop(&mut self, min: &PrimExpr, extent: &PrimExpr) -> String {
        match extent.kind() {
            PrimKind::Binary(BinOp::Sub, stop, m) if m == min => self.prim(stop),
            _ => self.prim(&PrimExpr::binary(BinOp::Add, min.clone(), extent.clone())),
        }
    }

    fn block(&mut self, b: &Block) {
        self.line(&format!("with T.sblock({}):", quote(&b.name)));
        let mark = self.names.mark();
        self.nested(|p| {
            p.axes(&b.axes);
            if let Some(c) = &b.predicate {
                let c = p.prim(c);
                p.line(&format!("T.where({c})"));
            }
            let found = needs_accesses(b).then(|| accesses(b));
            let (read, written) = found.map_or((None, None), |(r, w)| (Some(r), Some(w)));
            for (name, regions) in
                [("reads", b.reads.as_ref().or(read.as_ref())), ("writes", b.writes.as_ref().or(written.as_ref()))]
            {
                if let Some(regions) = regions {
                    let list: Vec<String> = regions.iter().map(|r| p.region(r)).collect();
                    p.line(&format!("T.{name}({})", list.join(", ")));
                }
            }
            if !b.attrs.is_empty() {
                let attrs = p.block_attrs(&b.attrs);
                p.line(&format!("T.sblock_attr({attrs})"));
            }
            for a in &b.alloc_buffers {
                p.alloc(a, "T.sblock_alloc_buffer");
            }
            for m in &b.match_buffers {
                let source = p.region(&m.source);
                p.match_buffer(&m.buffer, &source);
            }
            if let Some(init) = &b.init {
                p.line("with T.init():");
                p.body(init);
            }
            match is_empty(&b.body) && b.init.is_none() {
                true => p.line("T.evaluate(0)"),
                false => p.stmt(&b.body),
            }
        });
        self.names.leave(mark);
    }

    /// Buffers that an attribute lists are kept by name; they print as buffers again.
    fn block_attrs(&mut self, attrs: &Attrs) -> String {
        let mut entries = vec![];
        for (k, v) in &attrs.0 {
            let names = v.as_list().filter(|_| k == "layout_free_placeholders");
            let names: Option<Vec<&str>> = names.and_then(|list| list.iter().map(AttrValue::as_str).collect());
            let v = match names.filter(|names| names.iter().all(|n| self.names.is_used(n))) {
                Some(names) => format!("[{}]", names.join(", ")),
                None => self.attr(v),
            };
            entries.push(format!("{}: {v}", quote(k)));
        }
        format!("{{{}}}", entries.join(", "))
    }

    fn match_buffer(&mut self, b: &Buffer, source: &str) {
        // Strides and offset may be variables that the match defines.
        for v in b.strides.iter().chain(&b.elem_offset).flat_map(|e| e.vars()) {
            if self.names.known(v.id()).is_none() {
                let type_vars = &self.type_vars;
                let name = self.names.declare_avoiding(v.id(), v.name(), |n| type_vars.contains(n));
                self.line(&format!("{name} = T.{}()", v.dtype()));
            }
        }
        let args = self.buffer_args(b, Place::Body, true);
        let name = self.names.declare(b.id(), &b.name);
        self.line(&format!("{name} = T.match_buffer({source}, {args})"));
    }

    /// Axes that follow their loops share one `T.axis.remap`.
    fn axes(&mut self, axes: &[BlockAxis]) {
        let mut rest = axes;
        while !rest.is_empty() {
            let n = rest.iter().take_while(|a| self.follows_loop(a)).count();
            if n < 2 {
                self.axis(&rest[0]);
                rest = &rest[1..];
                continue;
            }
            let (group, after) = rest.split_at(n);
            rest = after;
            let kinds: String = group.iter().map(|a| if a.kind == IterKind::Reduce { 'R' } else { 'S' }).collect();
            let bindings = self.prims(group.iter().map(|a| &a.binding));
            let names: Vec<String> = group.iter().map(|a| self.names.declare(a.var.id(), a.var.name())).collect();
            self.line(&format!("{} = T.axis.remap(\"{kinds}\", [{bindings}])", names.join(", ")));
        }
    }

    /// Is the axis a loop's variable over the loop's whole range?
    fn follows_loop(&self, a: &BlockAxis) -> bool {
        let range = a.binding.as_var().and_then(|v| self.loops.get(v));
        matches!(a.kind, IterKind::Spatial | IterKind::Reduce)
            && range.is_some_and(|(min, extent)| *min == a.min && *extent == a.extent)
    }

    fn axis(&mut self, a: &BlockAxis) {
        let range = match a.min.is_int(0) {
            true => self.prim(&a.extent),
            false => {
                let stop = self.stop(&a.min, &a.extent);
                format!("({}, {stop})", self.prim(&a.min))
            }
        };
        let kind = match a.kind {
            IterKind::Spatial => "spatial",
            IterKind::Reduce => "reduce",
            IterKind::Scan => "scan",
            IterKind::Opaque => "opaque",
        };
        let binding = self.prim(&a.binding);
        let name = self.names.declare(a.var.id(), a.var.name());
        self.line(&format!("{name} = T.axis.{kind}({range}, {binding})"));
    }

    fn region(&mut self, r: &BufferRegion) -> String {
        let name = self.names.get(r.buffer.id(), &r.buffer.name);
        let mut parts = vec![];
        for (min, extent) in &r.region {
            parts.push(match extent.is_int(1) {
                true => self.prim(min),
                false => {
                    let stop = self.stop(min, extent);
                    format!("{}:{stop}", self.prim(min))
                }
            });
        }
        match parts.is_empty() {
            true => format!("{name}[()]"),
            false => format!("{name}[{}]", parts.join(", ")),
        }
    }
}

/// A statement that prints nothing: Python wants one in every block.
fn is_empty(s: &Stmt) -> bool {
    matches!(s.kind(), StmtKind::Seq(list) if list.iter().all(is_empty))
}

/// A block with memory of its own states what it accesses: TVM would find that memory among it.
fn needs_accesses(b: &Block) -> bool {
    let mut found = false;
    b.body.walk(&mut |s| found |= matches!(s.kind(), StmtKind::Alloc { .. }));
    found && (b.reads.is_none() || b.writes.is_none())
}

/// What a block reads and writes that is not its own, as whole buffers.
fn accesses(b: &Block) -> (Vec<BufferRegion>, Vec<BufferRegion>) {
    let (mut read, mut written, mut own) = (vec![], vec![], b.alloc_buffers.clone());
    let add = |all: &mut Vec<Buffer>, b: &Buffer| {
        if !all.contains(b) {
            all.push(b.clone());
        }
    };
    for s in b.init.iter().chain([&b.body]) {
        s.walk(&mut |s| {
            match s.kind() {
                StmtKind::Alloc { buffer, .. } => own.push(buffer.clone()),
                StmtKind::Block(inner) => {
                    own.extend(inner.alloc_buffers.iter().cloned());
                    for m in &inner.match_buffers {
                        own.push(m.buffer.clone());
                        add(&mut read, &m.source.buffer);
                        add(&mut written, &m.source.buffer);
                    }
                }
                StmtKind::Store { buffer, .. } => add(&mut written, buffer),
                StmtKind::CallPacked { args, .. } => {
                    for b in args.iter().filter_map(PackedArg::tensor) {
                        add(&mut read, b);
                        add(&mut written, b);
                    }
                }
                _ => {}
            }
            for e in s.exprs() {
                e.walk(&mut |e| {
                    if let PrimKind::BufferLoad(buffer, _) = e.kind() {
                        add(&mut read, buffer);
                    }
                });
            }
        });
    }
    let regions = |all: Vec<Buffer>| -> Vec<BufferRegion> {
        let whole = |b: Buffer| {
            let region = b.shape.iter().map(|d| (PrimExpr::int(d.dtype(), 0), d.clone())).collect();
            BufferRegion { buffer: b, region }
        };
        // A buffer over a part of another one is that part.
        let part = |b: Buffer, m: &[MatchBufferRegion]| {
            m.iter().find(|m| m.buffer == b).map_or_else(|| whole(b.clone()), |m| m.source.clone())
        };
        all.into_iter().filter(|b| !own.contains(b)).map(|buffer| part(buffer, &b.match_buffers)).collect()
    };
    (regions(read), regions(written))
}
