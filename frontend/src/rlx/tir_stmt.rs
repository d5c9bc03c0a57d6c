//! Statements of PrimFuncs: loops, blocks, stores, lets.

mod axes;
mod builder;
mod jumps;
mod lanes;
mod llvm;
mod loops;
mod matching;
mod mathematics;
mod memory;
mod never;
mod outside;
mod owned;
mod pointers;
mod regions;
mod scalars;
mod shuffle;
mod vectors;
mod views;
mod with;

pub use jumps::{returned_by, with_returns, Jumps};
pub use lanes::in_lanes;
pub use owned::{root_block, Cell};
pub use pointers::Pointer;
pub use shuffle::all_lanes;
pub use vectors::lanes_of;
pub use views::{without_views, View};

use super::context::{Cx, Value};
use super::relax_func::first_line;
use super::scalar::{span_of, Num};
use super::syntax::*;
use super::tir_func::{buffer_argument, scalar_type, PrimCx};
use relax_ir::prim::{PrimExpr, PrimKind};
use relax_ir::tir::{
    Block, BlockAxis, Buffer, BufferRegion, ForKind, IterKind, MatchBufferRegion, PrimParam, Stmt as TStmt,
    StmtKind as TKind,
};
use relax_ir::{AttrValue, Attrs, DType, Diagnostic, Span, Var};
use std::collections::HashMap;

/// Loops of one `T.grid`.
const MAX_GRID: usize = 64;
/// Lets, allocations and attributes of one PrimFunc that reach to the end of their list.
const MAX_SCOPES: u32 = 512;

/// A block's parts that its first statements state. `None` where statements belong to no block.
#[derive(Default)]
pub struct BlockParts {
    axes: Vec<BlockAxis>,
    predicate: Option<PrimExpr>,
    reads: Option<Vec<BufferRegion>>,
    writes: Option<Vec<BufferRegion>>,
    attrs: Attrs,
    alloc_buffers: Vec<Buffer>,
    match_buffers: Vec<MatchBufferRegion>,
    /// The values of the variables that are the offsets and strides of these.
    values: HashMap<Var, PrimExpr>,
    init: Option<TStmt>,
    /// A statement before encloses the rest.
    enclosed: bool,
}

/// A translated statement, or one that encloses all that follow in its list.
enum Item {
    Stmt(TStmt),
    Let(Var, PrimExpr, Span),
    Alloc(Buffer, Span),
    Attr(AttrValue, String, PrimExpr, Span),
    Loop(Var, PrimExpr, ForKind, Span),
    /// What follows runs only where this holds.
    Guard(PrimExpr, Span),
}

/// Where a list of statements stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The function's body, or a block's.
    Body,
    /// Inside of a loop, a branch, an init.
    Nested,
}

impl<'a> Cx<'a> {
    /// The body of the function (`block` is `None`) or of a block.
    pub fn tir_statements(&mut self, stmts: &[Stmt<'a>], f: &mut PrimCx, block: &mut Option<BlockParts>) -> Vec<TStmt> {
        self.tir_list(stmts, f, block, Place::Body)
    }

    /// The statements of a loop or branch: in a scope of their own.
    fn nested(&mut self, stmts: &[Stmt<'a>], f: &mut PrimCx) -> TStmt {
        self.names.push();
        let list = self.tir_list(stmts, f, &mut None, Place::Nested);
        self.names.pop();
        TStmt::seq(list)
    }

    /// The statements of a branch, which run where `cond` holds.
    fn kernel_branch(&mut self, stmts: &[Stmt<'a>], cond: Option<PrimExpr>, f: &mut PrimCx) -> TStmt {
        let outside = f.path.len();
        f.path.extend(cond);
        let body = self.nested(stmts, f);
        f.path.truncate(outside);
        body
    }

    fn tir_list(
        &mut self,
        stmts: &[Stmt<'a>],
        f: &mut PrimCx,
        block: &mut Option<BlockParts>,
        place: Place,
    ) -> Vec<TStmt> {
        // From the end: an enclosing item takes all that follows it.
        let mut out: Vec<TStmt> = vec![];
        for item in self.tir_items(stmts, f, block, place).into_iter().rev() {
            let rest = |out: &mut Vec<TStmt>| {
                let mut all = std::mem::take(out);
                all.reverse();
                TStmt::seq(all)
            };
            let (kind, span) = match item {
                Item::Stmt(s) => {
                    out.push(s);
                    continue;
                }
                Item::Let(var, value, span) => (TKind::Let { var, value, body: rest(&mut out) }, span),
                Item::Alloc(buffer, span) => (TKind::Alloc { buffer, body: rest(&mut out) }, span),
                Item::Guard(cond, span) => (TKind::If { cond, then: rest(&mut out), otherwise: None }, span),
                Item::Attr(node, key, value, span) => (TKind::Attr { node, key, value, body: rest(&mut out) }, span),
                Item::Loop(var, extent, kind, span) => {
                    let min = PrimExpr::int(var.dtype(), 0);
                    (TKind::For { var, min, extent, kind, annotations: vec![], body: rest(&mut out) }, span)
                }
            };
            out.push(TStmt::at(kind, span));
        }
        out.reverse();
        out
    }

    /// The statements one by one.
    fn tir_items(
        &mut self,
        stmts: &[Stmt<'a>],
        f: &mut PrimCx,
        block: &mut Option<BlockParts>,
        place: Place,
    ) -> Vec<Item> {
        let mut items = vec![];
        for (i, s) in stmts.iter().enumerate() {
            f.mutable = scalars::is_mutable(s, &stmts[i + 1..]);
            let found = self.describes_first(s, block, place).and_then(|()| self.tir_statement(s, f, block, place));
            match found {
                Some(found) => {
                    items.extend(found);
                    let goes_on = Some(s).filter(|_| i + 1 < stmts.len()).and_then(|s| self.goes_on(s, f));
                    items.extend(goes_on.map(|c| Item::Guard(c, s.span)));
                }
                None => {
                    f.ok = false;
                    self.poison_targets(s);
                }
            }
        }
        items
    }

    fn poison_targets(&mut self, s: &Stmt<'a>) {
        let mut names = vec![];
        match &s.kind {
            StmtKind::Assign { target, .. } | StmtKind::Augment { target, .. } => match target.elements() {
                Some(items) => names.extend(items.iter().filter_map(Expr::as_name)),
                None => names.extend(target.as_name()),
            },
            StmtKind::Broken(Some(n)) => names.push(*n),
            StmtKind::With { items, .. } => names.extend(items.iter().filter_map(|(_, t)| t.as_ref()?.as_name())),
            _ => {}
        }
        for n in names {
            if !matches!(self.names.get(n), Some(Value::Buffer(_))) {
                self.names.bind(n, Value::Poison);
            }
        }
    }

    fn scope(&mut self, f: &mut PrimCx, span: Span) -> Option<()> {
        f.scopes += 1;
        if f.scopes > MAX_SCOPES {
            if f.scopes == MAX_SCOPES + 1 {
                let d = Diagnostic::error("nesting", span, "this PrimFunc has too many lets and allocations");
                self.diags.push(d.help(format!("at most {MAX_SCOPES} are read")));
            }
            return None;
        }
        Some(())
    }

    fn tir_statement(
        &mut self,
        s: &Stmt<'a>,
        f: &mut PrimCx,
        block: &mut Option<BlockParts>,
        place: Place,
    ) -> Option<Vec<Item>> {
        let one = |kind: TKind| Some(vec![Item::Stmt(TStmt::at(kind, s.span))]);
        let written = match self.python || !self.names.pythons.is_empty() {
            true => self.kernel_without_python(s).ok()?,
            false => None,
        };
        let s = written.as_ref().unwrap_or(s);
        match &s.kind {
            StmtKind::Pass => Some(vec![]),
            StmtKind::Import => self.error("syntax", s.span, "imports stand at the top of the file"),
            StmtKind::Break => self.jump(true, s.span, f),
            StmtKind::Continue => self.jump(false, s.span, f),
            StmtKind::Broken(_) => None,
            StmtKind::Expr(e) => self.tir_bare(e, s.span, f, block, place),
            StmtKind::Assign { target, annotation, value } => {
                let Some(value) = value else {
                    self.bound_once(target, false, f)?;
                    // `x: T.float32[4]`: a buffer.
                    if let Some(ExprKind::Subscript(of, shape)) = annotation.as_ref().map(|a| &a.kind) {
                        if let (Some(name), Some(dtype)) = (target.as_name(), scalar_type(of)) {
                            return self.local_vector(name, dtype, shape, s.span, f);
                        }
                    }
                    // `x: T.float32`: its value comes later.
                    return match (target.as_name(), annotation.as_ref().and_then(scalar_type)) {
                        (Some(name), Some(dtype)) => {
                            self.scope(f, s.span)?;
                            let made = self.mutable(name, dtype, None, s.span);
                            self.born(name, s.span, f);
                            made
                        }
                        _ => self.error("syntax", s.span, "a value is needed here"),
                    };
                };
                if value.is_error() || target.is_error() {
                    return None;
                }
                self.tir_assign(target, annotation.as_ref(), value, s.span, f, block, place)
            }
            StmtKind::Augment { target, value } => self.tir_assign(target, None, value, s.span, f, block, place),
            StmtKind::For { target, iter, body } => {
                let s = self.for_loop(target, iter, body, s.span, f)?;
                Some(vec![Item::Stmt(s)])
            }
            StmtKind::While { cond, body } => {
                let s = self.while_loop(cond, body, s.span, f)?;
                Some(vec![Item::Stmt(s)])
            }
            // Python decides it while it reads: the other branch is not looked at, and this one is no scope of its own.
            StmtKind::If { cond, then, otherwise } if self.decided(cond).is_some() => {
                let holds = self.decided(cond) == Some(true);
                Some(self.tir_items(if holds { then } else { otherwise }, f, block, place))
            }
            StmtKind::If { cond, then, otherwise } => {
                let cond = if cond.is_error() { None } else { self.condition(cond) };
                if cond.as_ref().is_some_and(|c| self.never(c)) && then.iter().any(jumps::has_jump) {
                    let before = f.jumps.last().cloned();
                    self.nested(then, f);
                    if let (Some(now), Some(before)) = (f.jumps.last_mut(), before) {
                        *now = before;
                    }
                    let other = self.nested(otherwise, f);
                    return Some(vec![Item::Stmt(other)]);
                }
                let then = self.kernel_branch(then, cond.clone(), f);
                let other = cond.clone().map(PrimExpr::not);
                let otherwise = if otherwise.is_empty() { None } else { Some(self.kernel_branch(otherwise, other, f)) };
                one(TKind::If { cond: cond?, then, otherwise })
            }
            StmtKind::With { items, body } => self.tir_with(items, body, s.span, f, block, place),
            StmtKind::Assert(cond, message) => {
                let cond = self.condition(cond);
                let message = match message {
                    Some(m) => self.assertion(m)?,
                    None => {
                        let d = Diagnostic::error("syntax", s.span, "an assertion of a PrimFunc says what it is about");
                        return self.report(d.help("write `assert condition, \"message\"`"));
                    }
                };
                one(TKind::Assert { cond: cond?, message })
            }
            StmtKind::Return(None) => {
                let d = Diagnostic::error("syntax", s.span, "a PrimFunc has no bare return");
                self.report(d.help("it ends where its text does; what a loop shall not do is behind an `if`"))
            }
            StmtKind::Return(Some(value)) => self.early_return(value, s.span, f),
            StmtKind::Function(_) | StmtKind::Class(_) => {
                self.error("syntax", first_line(self.text, s.span), "this cannot be inside of a PrimFunc")
            }
        }
    }

    // --- statements without a target -----------------------------------------------------------------------------

    fn tir_bare(
        &mut self,
        e: &Expr<'a>,
        span: Span,
        f: &mut PrimCx,
        block: &mut Option<BlockParts>,
        place: Place,
    ) -> Option<Vec<Item>> {
        if matches!(e.kind, ExprKind::Str(_)) {
            return Some(vec![]);
        }
        if let Some(found) = self.builder_statement(e, span, f) {
            return found;
        }
        if let ("T.Return", Some(call)) = (e.called().as_deref().unwrap_or(""), e.as_call()) {
            let Some(value) = call.arg(0, "value") else {
                return self.error("argument", e.span, "T.Return takes a value");
            };
            return self.early_return(value, span, f);
        }
        let (Some(name), Some(call)) = (e.called(), e.as_call()) else {
            let value = match &e.kind {
                ExprKind::Tuple(_) | ExprKind::List(_) | ExprKind::Name(_) | ExprKind::None => None,
                _ => Some(self.prim(e)?),
            };
            return match value {
                Some(v) => Some(vec![Item::Stmt(TStmt::at(TKind::Evaluate(v), span))]),
                None => self.expected(e, "a statement"),
            };
        };
        if let Some(sort) = self.tir_sort(call, span) {
            return Some(vec![Item::Stmt(sort?)]);
        }
        let inner = match (name.as_str(), call.args.as_slice()) {
            ("T.evaluate", [inner]) => inner.as_call(),
            _ => Some(call),
        };
        if let Some(outside) = inner.and_then(|c| self.outside_call(c, span, f)) {
            return Some(vec![Item::Stmt(outside?)]);
        }
        match name.as_str() {
            "T.buffer_store" => {
                if let Some(more) = call.args.get(3) {
                    return self.error("argument", more.span, "T.buffer_store takes a buffer, a value and indices");
                }
                let named = (call.arg(0, "buffer"), call.arg(1, "value"), call.arg(2, "indices"));
                let (Some(buffer), Some(value), Some(indices)) = named else {
                    return self.error("argument", span, "T.buffer_store takes a buffer, a value and indices");
                };
                self.store(buffer, indices, value, span).map(|s| vec![Item::Stmt(s)])
            }
            _ if name.ends_with(".vstore") => {
                let (ExprKind::Attribute(of, _), Some(begin), Some(value)) =
                    (&call.func.kind, call.arg(0, "begin"), call.arg(1, "value"))
                else {
                    return self.error("argument", span, "vstore takes indices and a value");
                };
                let (buffer, value) = (self.buffer(of)?, self.prim(value)?);
                let indices = self.vector_at(&buffer, begin, value.dtype().lanes)?;
                let value = self.convert(value.clone(), buffer.dtype().with_lanes(value.dtype().lanes));
                let stored = match value.dtype().lanes {
                    1 => TStmt::at(TKind::Store { buffer, indices, value }, span),
                    _ => self.vector_store(buffer, indices, value, span)?,
                };
                Some(vec![Item::Stmt(stored)])
            }
            "T.func_attr" => {
                if place != Place::Body || block.is_some() {
                    let d = Diagnostic::error("tir", span, "T.func_attr belongs directly into the function");
                    return self.report(d.help("write it as the first statement"));
                }
                for (k, v) in self.attrs_argument(call, span)?.0 {
                    // TVM 0.23 and before called the dialect `tir`.
                    let k = k.strip_prefix("tir.").map_or(k.clone(), |rest| format!("tirx.{rest}"));
                    // Source: TVM's packed interface, which this says to be there already.
                    if k == "calling_conv" && v != AttrValue::Int(0) {
                        let d = Diagnostic::error("tir", span, "a kernel is called in one way");
                        return self.report(d.help("drop the attribute `calling_conv`"));
                    }
                    if f.attrs.get(&k).is_some() {
                        return self.error("tir", span, format!("the attribute `{k}` is stated already"));
                    }
                    f.attrs.set(&k, v);
                }
                Some(vec![])
            }
            "T.reads" | "T.writes" => {
                let items: &[Expr<'a>] = match call.args.as_slice() {
                    [one] if one.elements().is_some() => one.elements().unwrap_or(&[]),
                    many => many,
                };
                let regions: Vec<Option<BufferRegion>> = items.iter().map(|r| self.accessed(r)).collect();
                let regions = regions.into_iter().collect::<Option<Vec<_>>>()?;
                for (r, e) in regions.iter().zip(items) {
                    self.not_own(r, e.span, f)?;
                }
                let b = self.parts(block, place, &name, span)?;
                let slot = if name == "T.reads" { &mut b.reads } else { &mut b.writes };
                if slot.is_some() {
                    return self.error("tir", span, format!("`{name}` of this block is stated already"));
                }
                *slot = Some(regions);
                Some(vec![])
            }
            "T.where" => {
                let Some(cond) = call.arg(0, "predicate") else {
                    return self.error("argument", span, "T.where takes a condition");
                };
                let cond = self.condition_or_number(cond)?;
                let b = self.parts(block, place, &name, span)?;
                if b.predicate.replace(cond).is_some() {
                    let d = Diagnostic::error("tir", span, "`T.where` of this block is stated already");
                    return self.report(d.help("join the conditions by `and`"));
                }
                Some(vec![])
            }
            "T.sblock_attr" | "T.block_attr" => {
                let attrs = self.attrs_argument(call, span)?;
                let b = self.parts(block, place, &name, span)?;
                for (k, v) in attrs.0 {
                    if b.attrs.get(&k).is_some_and(|first| *first != v) {
                        return self.error("tir", span, format!("the attribute `{k}` has another value already"));
                    }
                    b.attrs.set(&k, v);
                }
                Some(vec![])
            }
            "T.attr" => {
                self.scope(f, span)?;
                let mut items = vec![];
                for (node, key, value) in self.tir_attr(call, span)? {
                    items.push(Item::Attr(node, key, value, span));
                }
                Some(items)
            }
            "T.add_to_parent" => match call.args.as_slice() {
                [one] if matches!(one.kind, ExprKind::None) => Some(vec![]),
                // They stand where they are written, and give it nothing.
                [one]
                    if matches!(one.called().as_deref(), Some("T.evaluate" | "T.buffer_store" | "T.add_to_parent")) =>
                {
                    self.tir_bare(one, span, f, block, place)
                }
                _ => self.error("argument", span, "T.add_to_parent takes one statement"),
            },
            "print" => self.printed(&call.args).map(|()| vec![]),
            // What the author knows of the elements: nothing is computed.
            "T.assume" => match call.args.as_slice() {
                [v] => self.condition(v).map(|_| vec![]),
                _ => self.error("argument", span, "T.assume takes one condition"),
            },
            "T.evaluate" => match call.args.as_slice() {
                [v] if v.called().as_deref() == Some("T.assume") => self.tir_bare(v, span, f, block, place),
                [v] => {
                    let v = self.prim(v)?;
                    Some(vec![Item::Stmt(TStmt::at(TKind::Evaluate(v), span))])
                }
                _ => self.error("argument", span, "T.evaluate takes one expression"),
            },
            _ => {
                let v = self.prim(e)?;
                Some(vec![Item::Stmt(TStmt::at(TKind::Evaluate(v), span))])
            }
        }
    }

    /// The block whose direct statement this is.
    fn parts<'b>(
        &mut self,
        block: &'b mut Option<BlockParts>,
        place: Place,
        what: &str,
        span: Span,
    ) -> Option<&'b mut BlockParts> {
        match block {
            Some(b) if place == Place::Body => Some(b),
            _ => self.error("tir", span, format!("{what} belongs directly into a block (`with T.sblock(..):`)")),
        }
    }

    /// `T.attr({"key": value})` and `T.attr(node, "key", value)`.
    fn tir_attr(&mut self, call: &CallExpr<'a>, span: Span) -> Option<Vec<(AttrValue, String, PrimExpr)>> {
        let scalar = |v: &AttrValue| match v {
            AttrValue::Prim(p) => p.clone(),
            AttrValue::Str(s) => PrimExpr::raw(PrimKind::Str(s.as_str().into()), DType::HANDLE),
            AttrValue::Bool(b) => PrimExpr::bool(*b),
            AttrValue::Int(v) => PrimExpr::int(DType::I32, *v),
            AttrValue::Float(v) => PrimExpr::float(DType::F32, *v),
            _ => PrimExpr::int(DType::I32, 0),
        };
        match call.args.as_slice() {
            [dict] => {
                let pairs = self.dict(dict)?;
                Some(pairs.into_iter().map(|(k, v)| (AttrValue::Int(0), k, scalar(&v))).collect())
            }
            [node, key, value] => {
                // The memory of a buffer stands for it.
                let node = match &node.kind {
                    ExprKind::Attribute(base, field) if field.name == "data" => base,
                    ExprKind::None => return self.expected(node, "a node"),
                    _ => node,
                };
                let at = key.span;
                let (node, key, value) = (self.attr_value(node), self.string(key), self.attr_value(value));
                if let Some(key) = key.as_deref().filter(|k| matches!(*k, "compute_scope" | "storage_alignment")) {
                    let d = Diagnostic::error("tir", at, format!("`{key}` asks for another form of code"));
                    return self.report(d.help("drop the attribute"));
                }
                Some(vec![(node?, key?, scalar(&value?))])
            }
            _ => self.error("argument", span, "T.attr takes a dictionary, or a node, a key and a value"),
        }
    }

    // --- assignments ----------------------------------------------------------------------------------------------

    #[allow(clippy::too_many_arguments)]
    fn tir_assign(
        &mut self,
        target: &Expr<'a>,
        annotation: Option<&Expr<'a>>,
        value: &Expr<'a>,
        span: Span,
        f: &mut PrimCx,
        block: &mut Option<BlockParts>,
        place: Place,
    ) -> Option<Vec<Item>> {
        if let ExprKind::Subscript(base, index) = &target.kind {
            let stored = self.store(base, index, value, span);
            return stored.map(|s| vec![Item::Stmt(s)]);
        }
        if annotation.is_none() && self.declarations(target, Some(value))? {
            return Some(vec![]);
        }
        let called = value.called();
        let call = value.as_call();
        if let (Some(name), Some(call)) = (called.as_deref(), call) {
            if let Some(axis) = name.strip_prefix("T.axis.") {
                let axes = self.axes(target, axis, call, span)?;
                let b = self.parts(block, place, "T.axis", span)?;
                let names = |v: &Var| b.axes.iter().any(|a| a.var.name() == v.name());
                if let Some(again) = axes.iter().find(|a| names(&a.var)) {
                    let message = format!("`{}` is an axis of this block already", again.var.name());
                    return self.error("tir", span, message);
                }
                b.axes.extend(axes);
                return Some(vec![]);
            }
        }
        if let (Some(names), Some(values), None) = (target.elements(), value.elements(), annotation) {
            if names.len() == values.len() && names.iter().all(|n| n.as_name().is_some()) {
                let mut items = vec![];
                for n in names {
                    self.bound_once(n, false, f)?;
                }
                for (n, v) in names.iter().zip(values) {
                    items.extend(self.tir_assign(n, None, v, span, f, block, place)?);
                }
                return Some(items);
            }
        }
        // `a, b = T.meta_var([..])`
        if let (Some(names), Some((call, values)), None) = (target.elements(), builder::held_list(value), annotation) {
            if names.len() == values.len() && names.iter().all(|n| n.as_name().is_some()) {
                let mut items = vec![];
                for (n, v) in names.iter().zip(values) {
                    let call = CallExpr { func: call.func.clone(), args: vec![v.clone()], keywords: vec![] };
                    let one = Expr { kind: ExprKind::Call(Box::new(call)), ..value.clone() };
                    items.extend(self.tir_assign(n, None, &one, span, f, block, place)?);
                }
                return Some(items);
            }
        }
        let Some(name) = target.as_name() else { return self.expected(target, "a name or an element of a buffer") };
        if annotation.is_none() && self.collection_of(value).is_some() {
            self.bound_once(target, false, f)?;
            self.python_binding(name, value);
            return Some(vec![]);
        }
        if annotation.is_none() && (builder::several(value) || value.elements().is_some()) {
            self.bound_once(target, false, f)?;
            self.list_of_values(value)?;
            let (made, held) = self.memory_in_list(name, value, span, f, block, place)?;
            if self.python_binding(name, held.as_ref().unwrap_or(value)) {
                return Some(made);
            }
        }
        if annotation.is_none() && builder::idle_loop(value) {
            // Nothing can be said of it: no value has this name.
            self.bound_once(target, false, f)?;
            self.names.note_declared(name);
            return Some(vec![]);
        }
        // Memory and what only Python knows has no other value later.
        let fixed = called.as_deref().is_some_and(|c| {
            c == "T.meta_var"
                || c == "T.match_buffer"
                || c.contains("alloc_")
                || c.contains("decl_")
                || c.contains("scalar")
        });
        self.bound_once(target, annotation.is_none() && !fixed, f)?;
        let held = match (called.as_deref(), call.map(|c| c.args.as_slice())) {
            (Some("T.meta_var" | "I.meta_var"), Some([inner])) => inner,
            _ => value,
        };
        if let (Some("T.tvm_stack_alloca"), Some(call)) = (called.as_deref(), call) {
            self.scope(f, span)?;
            let memory = self.stack_memory(name, call, span)?;
            let to = Pointer { base: memory.clone(), at: PrimExpr::int(DType::I64, 0), to: None };
            self.names.bind(name, Value::Data(to));
            return Some(vec![Item::Alloc(memory, span)]);
        }
        if let Some(pointer) = self.pointer(held) {
            let pointer = pointer?;
            if annotation.is_none_or(|a| self.pointer_let(a, pointer.to)) {
                if matches!(held.kind, ExprKind::Attribute(..)) {
                    f.pointers.push(held.span);
                }
                return self.named_pointer(name, pointer, annotation.is_some(), span, f);
            }
        }
        if annotation.is_none() {
            if let Some(found) = self.named_part(name, held, f) {
                return found;
            }
        }
        if let (Some(fname), Some(call), None) = (called.as_deref(), call, annotation) {
            match fname {
                "T.match_buffer" => return self.match_buffer(name, call, span, f, block, place),
                _ if memory::makes(fname) => return self.made_memory(name, name, call, span, f, block, place),
                "T.decl_scalar" => {
                    self.scalar_view(name, call, span)?;
                    self.born(name, span, f);
                    return Some(vec![]);
                }
                "T.local_scalar" | "T.shared_scalar" | "T.alloc_scalar" => {
                    let dtype = match call.arg(0, "dtype") {
                        Some(d) => self.dtype(d)?,
                        None => DType::F32,
                    };
                    self.scope(f, span)?;
                    let made = self.mutable(name, dtype, None, span);
                    self.born(name, span, f);
                    return made;
                }
                "T.launch_thread" => {
                    self.scope(f, span)?;
                    let (thread, extent) = self.thread(call, span)?;
                    let var = self.loop_var(name, target.span, &PrimExpr::int(extent.dtype(), 0), &extent);
                    return Some(vec![Item::Loop(var, extent, ForKind::ThreadBinding(thread), span)]);
                }
                "T.Buffer" | "T.buffer_decl" => return self.described(name, call, span),
                _ if annotation.is_none() && builder::valueless(call) => {
                    self.names.note_declared(name);
                    self.names.dims.insert(name, Var::with_span(name, DType::HANDLE, target.span));
                    return Some(vec![]);
                }
                "T.allocate" | "T.allocate_const" => {
                    let d = Diagnostic::unsupported("tir", value.span, format!("`{fname}` is not supported"));
                    return self.report(d.help("print the PrimFunc before it is lowered: in block form"));
                }
                _ => {}
            }
        }
        if let (Some(ExprKind::Attribute(of, method)), Some(call), None) =
            (call.map(|c| &c.func.kind), call, annotation)
        {
            if method.name == "view"
                && of.as_name().is_some_and(|n| matches!(self.names.get(n), Some(Value::Buffer(_))))
            {
                self.reshaped(name, of, call, span)?;
                self.born(name, span, f);
                return Some(vec![]);
            }
        }
        if annotation.is_none() {
            if let Some(store) = self.reassign(name, value, span) {
                return store.map(|s| vec![Item::Stmt(s)]);
            }
        }
        // `v: T.let[T.float32] = value`, `v: T.float32 = value`, `v = value`
        let is_let = annotation.is_some_and(|a| match &a.kind {
            ExprKind::Subscript(base, _) => base.dotted().as_deref() == Some("T.let"),
            _ => a.dotted().as_deref() == Some("T.let"),
        });
        // Such a name stands for the value, also where a scope inside gives it another one.
        let bound = matches!(called.as_deref(), Some("T.bind" | "T.Bind" | "T.meta_var"));
        let mutable = f.mutable && !is_let && !bound;
        let dtype = match annotation {
            None => None,
            Some(a) => match &a.kind {
                ExprKind::Subscript(base, t) if base.dotted().as_deref() == Some("T.let") => match scalar_type(t) {
                    Some(t) => Some(t),
                    None => return self.expected(t, "a scalar type"),
                },
                _ if a.dotted().as_deref() == Some("T.let") => None,
                _ => match scalar_type(a) {
                    Some(t) => Some(t),
                    None => return self.expected(a, "T.let[..] or a scalar type"),
                },
            },
        };
        self.scope(f, span)?;
        // A name that has a value keeps its type.
        let dtype = dtype.or(match self.names.get(name) {
            Some(Value::Prim(v)) if !is_let && f.scalars.contains(v) => Some(v.dtype()),
            _ => None,
        });
        let value = match dtype {
            Some(t) if is_let => self.let_value(value, t)?,
            Some(t) => self.prim_as(value, t)?,
            None => self.prim(value)?,
        };
        if mutable || value.dtype().lanes > 1 {
            let made = self.mutable(name, value.dtype(), Some(value), span);
            if !is_let && !bound {
                self.born(name, span, f);
            }
            return made;
        }
        let var = Var::with_span(name, value.dtype(), target.span);
        self.names.bind(name, Value::Prim(var.clone()));
        if !is_let && !bound {
            f.scalars.push(var.clone());
            self.born(name, span, f);
        }
        self.note_let(&var, &value);
        Some(vec![Item::Let(var, value, span)])
    }

    /// The value of `v: T.let[dtype] = value`, which is of that type.
    fn let_value(&mut self, value: &Expr<'a>, dtype: DType) -> Option<PrimExpr> {
        let found = self.prim(value)?;
        let t = found.dtype();
        // A dim is an int64 whatever it was declared as.
        let stated = self.stated_type(&found);
        let dims = stated == DType::I64 && self.names.widened && t.is_signed() && dtype.is_signed();
        if stated == dtype || dims && found.as_var().is_none() {
            return Some(self.convert(found, dtype).with_span(value.span));
        }
        let d = Diagnostic::error("type", value.span, format!("this is {stated}, {dtype} is stated"));
        self.report(d.help(format!("write T.{dtype}(..), or T.let without a type")))
    }

    /// `buffer[indices] = value`; the value takes the buffer's type.
    fn store(&mut self, base: &Expr<'a>, index: &Expr<'a>, value: &Expr<'a>, span: Span) -> Option<TStmt> {
        let buffer = self.buffer(base);
        let n = self.num(value);
        let buffer = buffer?;
        let indices = self.indices(&buffer, index)?;
        let lanes = indices.iter().map(|i| i.dtype().lanes).max().unwrap_or(1);
        let dtype = buffer.dtype().with_lanes(lanes.max(buffer.dtype().lanes));
        let n = n?;
        let scalar = !matches!(&n, Num::Expr(p) if p.dtype().lanes == dtype.lanes);
        let value = self.settle_as(n, dtype).with_span(value.span);
        if dtype.lanes > 1 && scalar {
            let d = Diagnostic::error("type", span, format!("a scalar is stored where {dtype} is"));
            return self.report(d.help(format!("write T.Broadcast(value, {})", dtype.lanes)));
        }
        if value.dtype().lanes != dtype.lanes {
            return self.error("type", span, format!("{} is stored where {dtype} is", value.dtype()));
        }
        if dtype.lanes > 1 {
            return self.vector_store(buffer, indices, value, span);
        }
        Some(TStmt::at(TKind::Store { buffer, indices, value }, span))
    }
}
