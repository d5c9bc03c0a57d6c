//! PrimFuncs: signatures, buffers, attributes.

use super::context::{Births, Cx, Value};
use super::relax_func::first_line;
use super::syntax::*;
use super::tir_stmt::{returned_by, root_block, Cell};
use relax_ir::prim::{PrimExpr, PrimKind};
use relax_ir::tir::{Buffer, ForKind, PrimFunc, PrimParam, Stmt as TStmt, StmtKind as TKind, TensorField};
use relax_ir::{Attrs, DType, Diagnostic, Span, Var};
use std::collections::{HashMap, HashSet};

/// A PrimFunc under construction.
pub struct PrimCx {
    /// `None`: a handle that no `T.match_buffer` has taken (yet).
    pub params: Vec<Option<PrimParam>>,
    pub attrs: Attrs,
    pub alloc_buffers: Vec<Buffer>,
    /// The value of the `return` that ends it.
    pub returns: Option<PrimExpr>,
    /// What a `return` in its middle sets.
    pub returned: Option<Buffer>,
    /// The values of those, and where they are returned: before any later one. `None` for one in a loop.
    pub early: Vec<Option<(PrimExpr, PrimExpr)>>,
    /// The conditions of the branches around the statement under way.
    pub path: Vec<PrimExpr>,
    /// Scopes that one statement opens for the rest of its list, counted: each nests the tree deeper.
    pub scopes: u32,
    /// The statement under way binds a name that a loop or a branch after it gives another value.
    pub mutable: bool,
    /// What `break` and `continue` need, for each loop around the statement under way.
    pub jumps: Vec<super::tir_stmt::Jumps>,
    /// Where memory of the block under way is born, outside of `T.sblock_alloc_buffer`.
    pub cells: Vec<Cell>,
    /// How many of them were born outside of the block under way.
    pub block_cells: usize,
    /// The block that is all of the function.
    pub root: Option<Span>,
    /// Where the block under way gives a pointer a name (`p = A.data`).
    pub pointers: Vec<Span>,
    /// Names that were given a value without `T.let`.
    pub scalars: Vec<Var>,
    /// The loops around the statement under way: their kinds, and whether they have one round.
    pub loops: Vec<(ForKind, bool)>,
    /// Buffers that `T.match_buffer` of all of them gave another name, and where.
    pub renamed: Vec<(String, Span)>,
    /// `s_tir=True`: it may have blocks.
    pub blocks: bool,
    pub ok: bool,
}

impl<'a> Cx<'a> {
    /// A PrimFunc of the module. `None` when anything in it was reported.
    pub fn prim_func(&mut self, def: &FunctionDef<'a>, span: Span) -> Option<PrimFunc> {
        self.begin_kernel_names();
        self.one_buffer_each(def)?;
        let written = self.signature_written_out(def).ok()?;
        let def = written.as_ref().unwrap_or(def);
        let mut f = PrimCx {
            params: vec![],
            attrs: Attrs::default(),
            alloc_buffers: vec![],
            returns: None,
            returned: None,
            early: vec![],
            path: vec![],
            scopes: 0,
            mutable: false,
            jumps: vec![],
            cells: vec![],
            pointers: vec![],
            block_cells: 0,
            root: root_block(&def.body),
            scalars: vec![],
            loops: vec![],
            renamed: vec![],
            blocks: false,
            ok: true,
        };
        let mut private = false;
        for call in def.decorators.iter().filter_map(Expr::as_call) {
            let known = ["func", "private", "check_well_formed", "s_tir", "persistent"];
            let stranger = call.keywords.iter().find(|(k, _)| !known.contains(&k.name)).map(|(k, _)| k.span);
            if let Some(span) = stranger.or(call.args.first().map(|a| a.span)) {
                let d = Diagnostic::error("argument", span, "T.prim_func has no such argument");
                return self.report(d.help("write @T.prim_func(private=True, s_tir=True)"));
            }
            if let Some(p) = call.keyword("private") {
                private = self.bool(p)?;
            }
            if let Some(p) = call.keyword("s_tir") {
                f.blocks = self.bool(p)?;
            }
        }
        for p in &def.type_params {
            self.names.dims.insert(p.name, Var::with_span(p.name, DType::I64, p.span));
        }
        // Scalars first: the dims of an earlier buffer may name them.
        let scalars: Vec<Option<Var>> = def
            .params
            .iter()
            .enumerate()
            .map(|(i, p)| {
                let dtype = p.annotation.as_ref().and_then(scalar_type)?;
                let v = Var::with_span(p.name.name, dtype, p.name.span);
                self.names.dims.insert(p.name.name, v.clone());
                // One that a dim in quotes has named before may be declared once more.
                let quoted = |q: &ParamDef<'a>| q.annotation.as_ref().is_some_and(|a| quotes(a, p.name.name));
                if !def.params[..i].iter().any(quoted) {
                    self.names.note_declared(p.name.name);
                }
                Some(v)
            })
            .collect();
        self.names.births = Births::Signature;
        for (i, (p, scalar)) in def.params.iter().zip(scalars).enumerate() {
            if let Some(first) = def.params[..i].iter().find(|q| q.name.name == p.name.name) {
                let d =
                    Diagnostic::error("syntax", p.name.span, format!("two parameters are called `{}`", p.name.name));
                self.diags.push(d.label(first.name.span, "the first of them"));
                f.ok = false;
            }
            if let Some(v) = scalar {
                f.params.push(Some(PrimParam::Scalar(v)));
                continue;
            }
            let param = self.prim_param(p, i);
            if param.is_none() {
                self.names.bind(p.name.name, Value::Poison);
                f.ok = false;
            }
            f.params.push(param.flatten());
        }
        self.names.births = Births::No;
        let ret = match &def.returns {
            None => None,
            Some(r) if matches!(r.kind, ExprKind::None) => None,
            Some(r) => match scalar_type(r) {
                Some(t) => Some(t),
                None => self.expected(r, "a scalar type"),
            },
        };
        // A return at the end of the function itself; elsewhere it jumps.
        let (body, last) = match def.body.split_last().map(|(s, body)| (returned_by(s), body)) {
            Some((Some(value), body)) => (body, Some(value)),
            _ => (&def.body[..], None),
        };
        let stmts = self.tir_statements(body, &mut f, &mut None);
        if let Some(value) = last {
            f.returns = self.prim(value);
            f.ok &= f.returns.is_some();
        }
        let acts = acts(&stmts, f.returned.as_ref());
        self.scalar_returned(&mut f, ret, &stmts, acts, def.body.last().map_or(span, |s| s.span));
        for (name, at) in std::mem::take(&mut f.renamed) {
            f.ok &= self.has_one_name(&name, &def.body, at).is_some();
        }
        if let (true, Some(_)) = (private, f.attrs.get("global_symbol")) {
            let d = Diagnostic::error("tir", def.name.span, "a private function has no global_symbol");
            return self.report(d.help("drop the attribute, or private=True"));
        }
        let mut params = vec![];
        let mut known = HashMap::new();
        for (i, (p, d)) in std::mem::take(&mut f.params).into_iter().zip(&def.params).enumerate() {
            let read = std::mem::take(&mut self.names.read);
            let (own, rest) = read.into_iter().partition(|(at, ..)| *at == i);
            self.names.read = rest;
            let fields: Vec<(TensorField, Var)> =
                (own as Vec<(usize, TensorField, Var)>).into_iter().map(|(_, field, v)| (field, v)).collect();
            match p {
                Some(p) => {
                    let buffer = p.buffer().map(|b| (b.dtype(), b.ndim()));
                    known.extend(fields.into_iter().filter_map(|(field, v)| {
                        let (dtype, ndim) = buffer?;
                        let value = PrimExpr::int(v.dtype(), field.of(Some(dtype), Some(ndim))?);
                        Some((v, value))
                    }));
                    params.push(p);
                }
                None => {
                    if let Some(Value::Handle(_, handle)) = self.names.get(d.name.name) {
                        params.push(PrimParam::Handle { handle: handle.clone(), fields });
                    }
                }
            }
        }
        let mut body = TStmt::seq(stmts);
        match super::tir_stmt::in_lanes(&body, &f.scalars, &self.names.views) {
            Ok(apart) => body = apart,
            Err(span) => {
                f.ok = false;
                let d = Diagnostic::error(
                    "tir",
                    first_line(self.text, span),
                    "this loop has an extent for each lane around it",
                );
                let _: Option<()> = self.report(d.help("write `range` instead of T.vectorized"));
            }
        }
        if !self.names.views.is_empty() {
            body = super::tir_stmt::without_views(&body, &self.names.views);
        }
        match f.returned.take() {
            _ if f.returns.is_some() && !acts => body = TStmt::nop(),
            Some(cell) => body = super::tir_stmt::with_returns(&cell, body),
            None => {}
        }
        known.extend(self.offsets_of(&params));
        if !known.is_empty() {
            body = body.rewrite(&mut |e| e.substitute(&known), &mut |s| s);
            f.returns = f.returns.map(|e| e.substitute(&known));
        }
        if f.ok {
            f.ok = self.bound(&f, &params, &body).is_some();
        }
        f.ok.then(|| PrimFunc {
            name: def.name.name.to_string(),
            params,
            ret: ret.or_else(|| f.returns.as_ref().map(PrimExpr::dtype)),
            returns: f.returns,
            attrs: f.attrs,
            private,
            alloc_buffers: f.alloc_buffers,
            body,
            span,
        })
    }

    /// Notes the variable that stands for the offset of a parameter's buffer; the shape is argument number `first`.
    pub fn note_offset(&mut self, call: &CallExpr<'a>, first: usize) {
        let Some(offset) = buffer_argument(call, first, "elem_offset") else { return };
        let (Some(name), span) = (offset.as_name(), offset.span) else { return };
        let var = self.names.dims.entry(name).or_insert_with(|| Var::with_span(name, DType::I64, span));
        self.names.offsets.push(var.clone());
    }

    /// The variables for the offsets of buffers, where no dim gives them a value: pointers of arguments include the offset.
    fn offsets_of(&mut self, params: &[PrimParam]) -> Vec<(Var, PrimExpr)> {
        let buffers = || params.iter().filter_map(PrimParam::buffer);
        let dims: HashSet<Var> =
            buffers().flat_map(|b| b.shape.iter().chain(&b.strides)).flat_map(|e| e.vars()).collect();
        let offsets = std::mem::take(&mut self.names.offsets);
        let free = |v: &Var| !dims.contains(v) && !params.iter().any(|p| matches!(p, PrimParam::Scalar(s) if s == v));
        offsets.into_iter().filter(free).map(|v| (v.clone(), PrimExpr::int(v.dtype(), 0))).collect()
    }

    /// The scalar that the function returns, in terms of its parameters alone. Of a kernel that writes and states no result it
    /// is left out where it is no such value: who calls kernels by `R.call_tir` does not look at it.
    fn scalar_returned(&mut self, f: &mut PrimCx, ret: Option<DType>, stmts: &[TStmt], acts: bool, span: Span) {
        let may_lack = acts && ret.is_none();
        let early = std::mem::take(&mut f.early);
        if !early.is_empty() {
            f.returns = first_returned(early, f.returns.take(), ret);
            if f.returns.is_none() && !may_lack {
                f.ok = false;
                let _: Option<()> =
                    self.unsupported("tir", span, "what this PrimFunc returns is not one expression of its parameters");
            }
        }
        let mut names = vec![];
        for s in stmts {
            s.walk(&mut |s| {
                if let TKind::Let { var, value, .. } = s.kind() {
                    names.push((var.clone(), value.clone()));
                }
            });
        }
        let value =
            f.returns.take().map(|e| names.into_iter().rev().fold(e, |e, name| e.substitute(&HashMap::from([name]))));
        let loads = |e: &PrimExpr| matches!(e.kind(), PrimKind::Load { .. } | PrimKind::BufferLoad(..));
        let mut reads = false;
        value.iter().for_each(|e| e.walk(&mut |e| reads |= loads(e)));
        if reads && !may_lack {
            f.ok = false;
            let _: Option<()> = self.unsupported("tir", span, "a PrimFunc that returns an element is not supported");
        }
        f.returns = value.filter(|_| !reads);
    }

    /// A variable that the body declares (`n = T.int64()`) is a dim of a parameter's buffer, or a stride of it by itself; or
    /// nothing gives it a value. Those of regions are their buffers'.
    fn bound(&mut self, f: &PrimCx, params: &[PrimParam], body: &TStmt) -> Option<()> {
        let mut known: HashSet<Var> = HashSet::new();
        let alone = |e: &PrimExpr| e.as_var().cloned();
        for b in params.iter().filter_map(PrimParam::buffer) {
            known.extend(b.shape.iter().flat_map(PrimExpr::vars));
            known.extend(b.strides.iter().filter_map(alone));
        }
        body.walk(&mut |s| {
            if let TKind::Block(b) = s.kind() {
                let parts = b.match_buffers.iter().flat_map(|m| m.buffer.shape.iter().chain(&m.buffer.strides));
                known.extend(parts.filter_map(alone));
            }
        });
        known.extend(params.iter().filter_map(|p| match p {
            PrimParam::Scalar(v) => Some(v.clone()),
            _ => None,
        }));
        let declared: HashSet<Var> = self.names.dims.values().filter(|v| !known.contains(v)).cloned().collect();
        let mut free: Option<PrimExpr> = None;
        let mut look = |e: &PrimExpr| {
            e.walk(&mut |e| {
                if e.as_var().is_some_and(|v| declared.contains(v)) {
                    free.get_or_insert_with(|| e.clone());
                }
            });
        };
        let parts =
            |b: &Buffer| -> Vec<PrimExpr> { b.shape.iter().chain(&b.strides).chain(&b.elem_offset).cloned().collect() };
        for b in params.iter().filter_map(PrimParam::buffer).chain(&f.alloc_buffers) {
            parts(b).iter().for_each(&mut look);
        }
        body.walk(&mut |s| {
            s.exprs().into_iter().for_each(&mut look);
            match s.kind() {
                TKind::Alloc { buffer, .. } => parts(buffer).iter().for_each(&mut look),
                TKind::Block(b) => {
                    let buffers = b.alloc_buffers.iter().chain(b.match_buffers.iter().map(|m| &m.buffer));
                    buffers.flat_map(parts).for_each(|e| look(&e));
                }
                _ => {}
            }
        });
        let Some(e) = free else { return Some(()) };
        let name = e.as_var().map_or("?", |v| v.name()).to_string();
        let d = Diagnostic::error("tir", e.span(), format!("nothing gives `{name}` a value"));
        self.report(d.help("a declared variable is a dim of a parameter's buffer"))
    }

    /// A buffer from before the module is the type of one parameter.
    ///
    /// Source: TVM's parser makes the buffer once, with its memory: two parameters would share it.
    fn one_buffer_each(&mut self, def: &FunctionDef<'a>) -> Option<()> {
        let held = |p: &ParamDef<'a>| match p.annotation.as_ref()?.as_name().and_then(|n| self.names.get(n)) {
            Some(Value::Python(at)) => Some(*at),
            _ => None,
        };
        let again = def.params.iter().enumerate().find_map(|(i, p)| {
            let at = held(p)?;
            def.params[..i].iter().find(|q| held(q) == Some(at)).map(|q| (q.name.name, p))
        });
        let Some((other, p)) = again else { return Some(()) };
        let message = format!("`{other}` and `{}` would be one buffer, with one memory", p.name.name);
        let d = Diagnostic::error("type", p.name.span, message);
        self.report(d.help("write T.Buffer(shape, dtype) at each parameter"))
    }

    /// `Some(None)` for a handle.
    fn prim_param(&mut self, p: &ParamDef<'a>, i: usize) -> Option<Option<PrimParam>> {
        let name = p.name.name;
        let Some(annotation) = &p.annotation else {
            let d = Diagnostic::error("type", p.name.span, format!("`{name}` has no type"));
            return self.report(d.help(format!("write `{name}: T.Buffer(shape, dtype)`")));
        };
        let of = match &annotation.kind {
            ExprKind::Subscript(of, _) => of.dotted().filter(|t| t == "T.Buffer"),
            _ => None,
        };
        let called = of.or_else(|| annotation.called()).or_else(|| annotation.dotted());
        match called.as_deref() {
            Some("T.handle") => {
                let handle = Var::with_span(name, DType::HANDLE, p.name.span);
                self.names.bind(name, Value::Handle(i, handle));
                Some(None)
            }
            Some("T.Buffer" | "T.buffer") => {
                // `T.Buffer[(8,), "float32"]`
                let subscript = match &annotation.kind {
                    ExprKind::Subscript(of, index) => Some(CallExpr {
                        func: (**of).clone(),
                        args: index.elements().map_or_else(|| vec![(**index).clone()], <[_]>::to_vec),
                        keywords: vec![],
                    }),
                    _ => None,
                };
                let Some(call) = annotation.as_call().or(subscript.as_ref()) else {
                    return self.error("type", annotation.span, "T.Buffer needs a shape");
                };
                let buffer = self.buffer_type(name, call, 0, "global", annotation.span)?;
                self.note_offset(call, 0);
                self.parameter_offset(call, 0, &buffer)?;
                self.parameter_strides(call, 0, &buffer)?;
                self.names.bind(name, Value::Buffer(buffer.clone()));
                Some(Some(PrimParam::Buffer { buffer, handle: None }))
            }
            _ => self.expected(annotation, "T.Buffer(..), T.handle or a scalar type such as T.int64"),
        }
    }

    /// A buffer from `(shape, dtype, strides=.., elem_offset=.., scope=..)`; the shape is argument number `first`.
    ///
    /// An offset that is a variable of its own says "anywhere in its storage": pointers of arguments include it, so it
    /// is left out. Alignment is kept by every buffer and left out too.
    pub fn buffer_type(
        &mut self,
        name: &str,
        call: &CallExpr<'a>,
        first: usize,
        default_scope: &str,
        span: Span,
    ) -> Option<Buffer> {
        let what = call.func.dotted().unwrap_or_default();
        for (k, value) in &call.keywords {
            match k.name {
                "shape" | "dtype" | "data" | "strides" | "elem_offset" | "scope" | "align" | "offset_factor" => {}
                "byte_offset" if !matches!(what.as_str(), "T.match_buffer" | "T.sblock_alloc_buffer") => {}
                "param" if what == "T.match_buffer" => {}
                // They speak to the passes that they come from, of addresses and alignment.
                "annotations" if matches!(what.as_str(), "T.alloc_buffer" | "T.alloc_local" | "T.alloc_shared") => {
                    if !matches!(value.kind, ExprKind::None) {
                        self.dict(value)?;
                    }
                }
                "buffer_type" if what.starts_with("T.alloc_") => {
                    return self.error("argument", k.span, format!("{what} has no argument `buffer_type`"));
                }
                "buffer_type" | "layout" | "type" | "logical_scope" => {}
                _ => {
                    let message = format!("the argument `{}` of a buffer is not supported", k.name);
                    return self.unsupported("tir", k.span, message);
                }
            }
        }
        if let Some(data) = buffer_argument(call, first, "data") {
            // A view: who calls takes it.
            let described =
                self.names.births != Births::Signature && matches!(what.as_str(), "T.Buffer" | "T.buffer_decl");
            if what != "T.decl_buffer" && !described {
                return self.unsupported("tir", data.span, "the argument `data` of a buffer is not supported");
            }
        }
        let Some(shape) = call.arg(first, "shape") else {
            return self.error("argument", span, "a buffer needs a shape");
        };
        let shape = match shape.elements() {
            Some(_) => self.dims(shape),
            // The shape of another buffer: `x.shape`.
            None if matches!(&shape.kind, ExprKind::Attribute(_, field) if field.name == "shape") => {
                self.spread(shape, shape.span)
            }
            None => self.dim(shape).map(|d| vec![d]),
        };
        let dtype = match call.arg(first + 1, "dtype") {
            Some(d) if !matches!(d.kind, ExprKind::None) => self.dtype(d),
            _ => Some(DType::F32),
        };
        let dtype = dtype?;
        if dtype.is_handle() {
            return self.error("type", span, "a buffer has no handles");
        }
        let strides = match buffer_argument(call, first, "strides") {
            Some(s) => self.strides(s, matches!(what.as_str(), "T.Buffer" | "T.buffer_decl")),
            None => Some(vec![]),
        };
        let elem_offset = match buffer_argument(call, first, "elem_offset") {
            Some(o) if o.as_name().is_some() => Some(None),
            // `T.int64()`: a variable without a name.
            Some(o) if scalar_type(o).is_some() => Some(None),
            Some(o) => self.prim(o).map(Some),
            None => Some(None),
        };
        let elem_offset = match buffer_argument(call, first, "byte_offset") {
            Some(o) => match (self.int(o)?, i64::from(dtype.bits / 8)) {
                (bytes, size) if size > 0 && bytes % size == 0 => Some(Some(PrimExpr::int(DType::I32, bytes / size))),
                _ => return self.error("tir", o.span, format!("this is no place of an element of {dtype}")),
            },
            None => elem_offset,
        };
        let scope = match buffer_argument(call, first, "scope") {
            Some(s) => self.string(s),
            None => Some(default_scope.to_string()),
        };
        let (shape, strides) = (shape?, strides?);
        let made = what == "T.sblock_alloc_buffer" || what.starts_with("T.alloc_");
        // Source: TVM's `cache_index` writes one stride for any number of dims; memory that a kernel makes is dense whatever it states.
        if !strides.is_empty() && strides.len() != shape.len() && !made {
            return self.error("tir", span, "strides and shape differ in length");
        }
        let elem_offset: Option<PrimExpr> = elem_offset?.filter(|o| !o.is_int(0));
        let scope = scope?;
        let known = ["global", "shared", "local", "warp", "wmma.", "texture", "m16n8k8.", "metal.", "tmem"];
        if !known.iter().any(|k| scope.starts_with(k)) {
            return self.error("tir", span, format!("`{scope}` is no scope of memory"));
        }
        Some(Buffer::from_parts(name, shape, dtype, strides, elem_offset, &scope, span))
    }

    /// The strides of a buffer. Text in quotes, whatever it says, names a variable of its own.
    ///
    /// Source: TVM python/tvm/tirx/script/builder/ir.py: `Var(s, "int32") if isinstance(s, str)`.
    /// Those of one that is `described`, without memory, are read by nothing.
    fn strides(&mut self, e: &Expr<'a>, described: bool) -> Option<Vec<PrimExpr>> {
        let Some(items) = e.elements() else { return self.expected(e, "a list of strides") };
        let strides: Vec<Option<PrimExpr>> = items
            .iter()
            .map(|s| match s.as_str() {
                Some(_) if self.names.births != Births::Signature && !described => {
                    let d = Diagnostic::error("type", s.span, "a stride in quotes belongs to a parameter or a region");
                    self.report(d.help("memory of its own has strides that are known: write the number"))
                }
                Some(text) => Some(Var::with_span(as_name(text), DType::I64, s.span).expr().with_span(s.span)),
                None => self.dim(s),
            })
            .collect();
        strides.into_iter().collect()
    }

    /// The offset of a parameter's buffer is a variable or 0: the pointer of an argument includes it.
    pub fn parameter_offset(&mut self, call: &CallExpr<'a>, first: usize, buffer: &Buffer) -> Option<()> {
        let Some(o) = buffer_argument(call, first, "elem_offset").or(buffer_argument(call, first, "byte_offset"))
        else {
            return Some(());
        };
        // Source: TVM's check of an argument's `byte_offset`, which tensors of its virtual machine never meet.
        if buffer.elem_offset.as_ref().is_some_and(|o| o.as_int().is_some()) {
            let d = Diagnostic::error("tir", o.span, "an argument begins where its tensor does: its offset is 0");
            return self.report(d.help("drop the offset; a part of a tensor is a region of it"));
        }
        Some(())
    }

    /// A stride of a parameter's buffer is of the widest type that the dims from its own on have: their product is.
    ///
    /// Source: TVM's binding of an argument's strides; quoted ones as python/tvm/tirx/script/builder/ir.py types them.
    pub fn parameter_strides(&mut self, call: &CallExpr<'a>, first: usize, buffer: &Buffer) -> Option<()> {
        let Some(items) = buffer_argument(call, first, "strides").and_then(Expr::elements) else { return Some(()) };
        let quoted = match (call.func.dotted().as_deref(), buffer.shape.first()) {
            (Some("T.match_buffer"), Some(dim)) => self.stated_type(dim),
            _ => DType::I32,
        };
        let mut wanted = DType::I32;
        for (k, ((item, stride), dim)) in items.iter().zip(&buffer.strides).zip(&buffer.shape).enumerate().rev() {
            let of = self.stated_type(dim);
            if of.bits > wanted.bits || of.bits == wanted.bits && !of.is_signed() {
                wanted = of;
            }
            let t = if item.as_str().is_some() { quoted } else { self.stated_type(stride) };
            if t != wanted {
                let d = Diagnostic::error(
                    "tir",
                    item.span,
                    format!("stride {k} is {t}, the dims that it counts are {wanted}"),
                );
                return self.report(d.help(format!("give it their type: `T.{wanted}(..)`")));
            }
        }
        Some(())
    }
}

/// An argument of `T.Buffer` and its kin by name or by position, from `data` on; the shape is argument number `first`.
/// `None` where it is left out or Python's `None`.
///
/// Source: TVM python/tvm/tirx/script/builder/ir.py: memory of blocks and of parameters has no `byte_offset`.
pub fn buffer_argument<'c, 'a>(call: &'c CallExpr<'a>, first: usize, name: &str) -> Option<&'c Expr<'a>> {
    let short = matches!(call.func.dotted().as_deref(), Some("T.match_buffer" | "T.sblock_alloc_buffer"));
    let order: &[&str] = match short {
        true => &["data", "strides", "elem_offset", "scope", "align", "offset_factor"],
        false => &["data", "strides", "elem_offset", "byte_offset", "scope", "align", "offset_factor"],
    };
    let position = order.iter().position(|n| *n == name).and_then(|k| call.args.get(first + 2 + k));
    position.or_else(|| call.keyword(name)).filter(|e| !matches!(e.kind, ExprKind::None))
}

/// Does this type mention `name` in quotes?
fn quotes(e: &Expr, name: &str) -> bool {
    match &e.kind {
        ExprKind::Str(s) => s.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == name),
        _ => e.children().into_iter().any(|c| quotes(c, name)),
    }
}

/// A name of the letters and digits of `text`.
fn as_name(text: &str) -> String {
    let name: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    match name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        true => format!("s{name}"),
        false => name,
    }
}

/// The first of these values whose condition holds, else the last one. `None` where it is not known which is returned, or where
/// one may be none at all.
fn first_returned(
    mut early: Vec<Option<(PrimExpr, PrimExpr)>>,
    last: Option<PrimExpr>,
    ret: Option<DType>,
) -> Option<PrimExpr> {
    // Both branches at the end return.
    let last = match (last, early.pop()?) {
        (Some(last), found) => {
            early.push(found);
            last
        }
        (None, Some((cond, value))) => match (cond.kind(), early.last()?) {
            (PrimKind::Not(c), Some((before, _))) if c == before => value,
            _ => return None,
        },
        (None, None) => return None,
    };
    let t = ret.unwrap_or(last.dtype());
    let fits = |e: PrimExpr| (e.dtype() == t || e.dtype().is_int() && t.is_int()).then(|| e.cast(t));
    early.into_iter().rev().try_fold(fits(last)?, |rest, found| {
        let (cond, value) = found?;
        Some(cond.if_then_else(fits(value)?, rest))
    })
}

/// Do these statements write anything but that the function has returned?
fn acts(stmts: &[TStmt], returned: Option<&Buffer>) -> bool {
    let mut acts = false;
    for s in stmts {
        s.walk(&mut |s| match s.kind() {
            TKind::Store { buffer, .. } => acts |= Some(buffer) != returned,
            TKind::CallPacked { .. } => acts = true,
            _ => {}
        });
    }
    acts
}

/// `T.int64`, `T.int64()`; not `T.handle`.
pub fn scalar_type(e: &Expr) -> Option<DType> {
    let name = match e.as_call() {
        Some(c) if c.args.is_empty() => c.func.dotted()?,
        Some(_) => return None,
        None => e.dotted()?,
    };
    name.strip_prefix("T.").and_then(named_type).filter(|d| !d.is_handle())
}

/// The type that `T` has under this name: `float32`, `f32`. Source: TVM `tirx.script.builder`.
pub fn named_type(name: &str) -> Option<DType> {
    let short = |prefix: &str, long: &str| {
        let bits = name.strip_prefix(prefix).filter(|bits| ["8", "16", "32", "64"].contains(bits))?;
        format!("{long}{bits}").parse().ok()
    };
    // The names of `T`: integers have 8 bits or more, vectors have one of six sizes.
    let named = name.parse::<DType>().ok().filter(|t| !t.is_int() || [8, 16, 32, 64].contains(&t.bits));
    let named = named.filter(|t| [1, 2, 4, 8, 16, 32, 64].contains(&t.lanes));
    let bool = (name == "boolean").then_some(DType::BOOL);
    named
        .or(bool)
        .or_else(|| short("f", "float"))
        .or_else(|| short("bf", "bfloat"))
        .or_else(|| short("i", "int"))
        .or_else(|| short("u", "uint"))
}
