//! PrimFuncs: signatures, buffers, attributes.

use super::context::{Births, Cx, Names, Value};
use super::syntax::*;
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
    /// Scopes that one statement opens for the rest of its list, counted: each nests the tree deeper.
    pub scopes: u32,
    /// The statement under way binds a name that a loop or a branch after it gives another value.
    pub mutable: bool,
    /// What `break` and `continue` need, for each loop around the statement under way.
    pub jumps: Vec<super::tir_stmt::Jumps>,
    /// Where memory of the block under way is born, outside of `T.sblock_alloc_buffer`.
    pub cells: Vec<Span>,
    /// Names that were given a value without `T.let`.
    pub scalars: Vec<Var>,
    /// The loops around the statement under way: their kinds, and whether they have one round.
    pub loops: Vec<(ForKind, bool)>,
    /// `s_tir=True`: it may have blocks.
    pub blocks: bool,
    pub ok: bool,
}

impl<'a> Cx<'a> {
    /// A PrimFunc of the module. `None` when anything in it was reported.
    pub fn prim_func(&mut self, def: &FunctionDef<'a>, span: Span) -> Option<PrimFunc> {
        self.names = Names::new(DType::I32);
        let mut f = PrimCx {
            params: vec![],
            attrs: Attrs::default(),
            alloc_buffers: vec![],
            returns: None,
            scopes: 0,
            mutable: false,
            jumps: vec![],
            cells: vec![],
            scalars: vec![],
            loops: vec![],
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
            .map(|p| {
                let dtype = p.annotation.as_ref().and_then(scalar_type)?;
                let v = Var::with_span(p.name.name, dtype, p.name.span);
                self.names.dims.insert(p.name.name, v.clone());
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
        // A return at the end of the function itself; elsewhere it would jump.
        let (body, last) = match def.body.split_last() {
            Some((Stmt { kind: StmtKind::Return(Some(value)), .. }, body)) => (body, Some(value)),
            // The same in a word of the script builder.
            Some((Stmt { kind: StmtKind::Expr(e), .. }, body)) if e.called().as_deref() == Some("T.Return") => {
                match e.as_call().and_then(|c| c.arg(0, "value")) {
                    Some(value) => (body, Some(value)),
                    None => return self.error("argument", e.span, "T.Return takes a value"),
                }
            }
            _ => (&def.body[..], None),
        };
        let stmts = self.tir_statements(body, &mut f, &mut None);
        if let Some(value) = last {
            f.returns = self.prim(value);
            f.ok &= f.returns.is_some();
            f.returns = f.returns.map(|e| stmts.iter().fold(e, |e, s| without_names(s, e)));
            let loads = |e: &PrimExpr| matches!(e.kind(), PrimKind::Load { .. } | PrimKind::BufferLoad(..));
            let mut reads = false;
            f.returns.iter().for_each(|e| e.walk(&mut |e| reads |= loads(e)));
            if reads {
                f.ok = false;
                let _: Option<()> =
                    self.unsupported("tir", value.span, "a PrimFunc that returns an element is not supported");
            }
        }
        if let (true, Some(_)) = (private, f.attrs.get("global_symbol")) {
            let d = Diagnostic::error("tir", def.name.span, "a private function has no global_symbol");
            return self.report(d.help("drop the attribute, or private=True"));
        }
        let mut params = vec![];
        let mut known = HashMap::new();
        for (i, (p, d)) in f.params.into_iter().zip(&def.params).enumerate() {
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
        if !self.names.views.is_empty() {
            body = super::tir_stmt::without_views(&body, &self.names.views);
        }
        let mut acts = false;
        body.walk(&mut |s| acts |= matches!(s.kind(), TKind::Store { .. } | TKind::CallPacked { .. }));
        if f.returns.is_some() && !acts {
            body = TStmt::nop();
        }
        known.extend(self.offsets_of(&params));
        if !known.is_empty() {
            body = body.rewrite(&mut |e| e.substitute(&known), &mut |s| s);
            f.returns = f.returns.map(|e| e.substitute(&known));
        }
        if f.ok {
            f.ok = self.bound(&params, &body).is_some();
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
        let name = match offset.as_name() {
            Some(name) => Some(name),
            None => offset.as_str().and_then(|_| self.quoted(offset)).and_then(|e| e.as_name()),
        };
        let (Some(name), span) = (name, offset.span) else { return };
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

    /// A variable that the body declares (`n = T.int64()`) is a dim of a buffer, or nothing gives it a value.
    fn bound(&mut self, params: &[PrimParam], body: &TStmt) -> Option<()> {
        let mut known: HashSet<Var> = HashSet::new();
        let mut see = |b: &Buffer| {
            let all = b.shape.iter().chain(&b.strides).chain(&b.elem_offset);
            all.for_each(|e| known.extend(e.vars()));
        };
        params.iter().filter_map(PrimParam::buffer).for_each(&mut see);
        body.walk(&mut |s| match s.kind() {
            TKind::Block(b) => b.match_buffers.iter().for_each(|m| see(&m.buffer)),
            TKind::Alloc { buffer, .. } => see(buffer),
            _ => {}
        });
        known.extend(params.iter().filter_map(|p| match p {
            PrimParam::Scalar(v) => Some(v.clone()),
            _ => None,
        }));
        let declared: HashSet<Var> = self.names.dims.values().filter(|v| !known.contains(v)).cloned().collect();
        let mut free: Option<PrimExpr> = None;
        body.walk(&mut |s| {
            for e in s.exprs() {
                e.walk(&mut |e| {
                    if e.as_var().is_some_and(|v| declared.contains(v)) {
                        free.get_or_insert_with(|| e.clone());
                    }
                });
            }
        });
        let Some(e) = free else { return Some(()) };
        let name = e.as_var().map_or("?", |v| v.name()).to_string();
        let d = Diagnostic::error("tir", e.span(), format!("nothing gives `{name}` a value"));
        self.report(d.help("a declared variable is a dim of a parameter's buffer"))
    }

    /// `Some(None)` for a handle.
    fn prim_param(&mut self, p: &ParamDef<'a>, i: usize) -> Option<Option<PrimParam>> {
        let name = p.name.name;
        let Some(annotation) = &p.annotation else {
            let d = Diagnostic::error("type", p.name.span, format!("`{name}` has no type"));
            return self.report(d.help(format!("write `{name}: T.Buffer(shape, dtype)`")));
        };
        let called = annotation.called().or_else(|| annotation.dotted());
        match called.as_deref() {
            Some("T.handle") => {
                let handle = Var::with_span(name, DType::HANDLE, p.name.span);
                self.names.bind(name, Value::Handle(i, handle));
                Some(None)
            }
            Some("T.Buffer" | "T.buffer") => {
                let Some(call) = annotation.as_call() else {
                    return self.error("type", annotation.span, "T.Buffer needs a shape");
                };
                let buffer = self.buffer_type(name, call, 0, "global", annotation.span)?;
                self.note_offset(call, 0);
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
                "buffer_type" | "layout" | "type" | "logical_scope" => {}
                _ => {
                    let message = format!("the argument `{}` of a buffer is not supported", k.name);
                    return self.unsupported("tir", k.span, message);
                }
            }
        }
        if let Some(data) = buffer_argument(call, first, "data") {
            // A view: who calls takes it.
            if what != "T.decl_buffer" {
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
            Some(s) => self.dims(s),
            None => Some(vec![]),
        };
        let elem_offset = match buffer_argument(call, first, "elem_offset") {
            Some(o) if o.as_name().is_some() || o.as_str().is_some() => Some(None),
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
        if !strides.is_empty() && strides.len() != shape.len() {
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

/// What a function returns, without the names that its statements give to values.
fn without_names(s: &TStmt, e: PrimExpr) -> PrimExpr {
    match s.kind() {
        TKind::Seq(list) => list.iter().fold(e, |e, s| without_names(s, e)),
        TKind::Attr { body, .. } | TKind::Alloc { body, .. } => without_names(body, e),
        TKind::Let { var, value, body } => {
            without_names(body, e).substitute(&HashMap::from([(var.clone(), value.clone())]))
        }
        _ => e,
    }
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
