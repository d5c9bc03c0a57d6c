//! Relax functions: signatures, bindings, dataflow blocks, branches, local functions.

mod branch;
mod builder;
mod scalars;
mod signature;

use super::context::{Births, Cx, Value};
use super::python::Reported;
use super::syntax::*;
use super::unpack::starred_name;
use branch::bound_last;
pub use builder::Said;
use relax_ir::relax::{
    Binding, BindingBlock, BindingValue, Expr as RExpr, ExprKind as RKind, Function, Param, RVar, SeqExpr, StructInfo,
};
use relax_ir::{Attrs, DType, Diagnostic, Span, Var};
use scalars::name_scalars;
use std::sync::Arc;

/// What a list of statements belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Function,
    Dataflow,
    Branch,
}

/// A sequence under construction.
struct Body<'a> {
    blocks: Vec<BindingBlock>,
    result: Option<RExpr>,
    attrs: Attrs,
    /// Nothing was reported.
    ok: bool,
    /// The dataflow block's outputs.
    outputs: Vec<&'a str>,
}

impl<'a> Body<'a> {
    fn new() -> Body<'a> {
        Body { blocks: vec![], result: None, attrs: Attrs::default(), ok: true, outputs: vec![] }
    }

    /// Appends to the block of plain bindings at the end, or begins one.
    fn push(&mut self, b: Binding) {
        match self.blocks.last_mut() {
            Some(block) if !block.dataflow => {
                block.span = block.span.to(b.span);
                block.bindings.push(b);
            }
            _ => {
                let span = b.span;
                self.blocks.push(BindingBlock { dataflow: false, bindings: vec![b], span });
            }
        }
    }
}

impl<'a> Cx<'a> {
    /// A function of the module. `None` when anything in it was reported.
    pub fn relax_function(&mut self, def: &FunctionDef<'a>, span: Span) -> Option<Function> {
        self.begin_names();
        self.function(def, span)
    }

    /// With the names of the enclosing function, if any, already in place.
    fn function(&mut self, def: &FunctionDef<'a>, span: Span) -> Option<Function> {
        let (mut private, mut pure, mut ok) = (false, true, true);
        for d in &def.decorators {
            let Some(call) = d.as_call() else { continue };
            if let Some(e) = call.args.first() {
                let _: Option<()> = self.error("argument", e.span, "R.function takes its arguments by name");
                ok = false;
            }
            for (k, v) in &call.keywords {
                match k.name {
                    "private" => private = self.bool(v)?,
                    "pure" => pure = self.bool(v)?,
                    "check_well_formed" => {}
                    _ => {
                        let _: Option<()> =
                            self.error("argument", k.span, format!("R.function has no argument `{}`", k.name));
                        ok = false;
                    }
                }
            }
        }
        for p in &def.type_params {
            self.names.declare(p.name, Var::with_span(p.name, DType::I64, p.span));
        }
        let written = self.signature_written_out(def).ok()?;
        let def = written.as_ref().unwrap_or(def);
        self.signature_dims(def);
        let mut params = vec![];
        let outer = std::mem::replace(&mut self.names.births, Births::Signature);
        for p in &def.params {
            let annotation = match &p.annotation {
                Some(a) => {
                    let info = self.script_is_visible(a).and_then(|()| self.struct_info(a));
                    ok &= info.is_some();
                    info
                }
                None => {
                    let d = Diagnostic::error("type", p.name.span, format!("`{}` has no type", p.name.name));
                    self.diags.push(d.help(format!("write `{}: R.Tensor((..), dtype=..)`", p.name.name)));
                    ok = false;
                    None
                }
            };
            ok &= self.parameter_name(p, annotation.as_ref()).is_some();
            let var = RVar::new(p.name.name, false, p.name.span);
            if let Some(info) = &annotation {
                self.names.types.state(&var, info);
            }
            if let Some(StructInfo::Prim { dtype, value: None }) = &annotation {
                self.names.scalars.insert(var.clone(), (*dtype, None));
            }
            self.names.bind(p.name.name, Value::Relax(var.clone()));
            params.push(Param { var, annotation });
        }
        let mut ret = None;
        if let Some(r) = &def.returns {
            ret = self.script_is_visible(r).and_then(|()| self.struct_info(r));
            ok &= ret.is_some();
        }
        self.names.births = Births::No;
        let mut body = Body::new();
        let around = (std::mem::take(&mut self.said), std::mem::take(&mut self.ended));
        self.statements(&def.body, &mut body, Place::Function);
        self.names.births = outer;
        let said = std::mem::replace(&mut self.said, around.0);
        self.ended = around.1;
        ok &= self.join_said(said, &mut params, &mut ret).is_some();
        for p in &mut params {
            if let Some((dtype, Some(v))) = self.names.scalars.get(&p.var) {
                p.annotation = Some(StructInfo::Prim { dtype: *dtype, value: Some(v.expr()) });
            }
        }
        let result = match body.result {
            Some(r) => r,
            None => {
                // An unreadable return is reported already.
                if body.ok {
                    let d = Diagnostic::error("syntax", def.name.span, format!("`{}` returns nothing", def.name.name));
                    self.diags.push(d.help("end it with `return ..`; the empty tuple is R.tuple()"));
                }
                return None;
            }
        };
        if !(ok && body.ok) {
            return None;
        }
        name_scalars(&mut body.blocks, &self.names.scalars);
        self.attributes_fit(&params, &body.attrs, def.signature)?;
        Some(Function {
            name: def.name.name.to_string(),
            params,
            ret,
            body: Arc::new(SeqExpr { blocks: body.blocks, body: result }),
            attrs: body.attrs,
            private,
            pure,
            span,
            signature_span: def.signature,
        })
    }

    fn emit(&mut self, body: &mut Body<'a>, b: Binding) {
        self.names.types.bind(&b);
        body.push(b);
    }

    fn statements(&mut self, stmts: &[Stmt<'a>], body: &mut Body<'a>, place: Place) {
        for (i, s) in stmts.iter().enumerate() {
            if self.statement(s, &stmts[i + 1..], body, place).is_none() {
                body.ok = false;
            }
        }
    }

    /// `rest` are the statements that follow in the same list.
    fn statement(&mut self, s: &Stmt<'a>, rest: &[Stmt<'a>], body: &mut Body<'a>, place: Place) -> Option<()> {
        self.script_is_visible_to(s)?;
        let new = self.without_python(s);
        if new.is_err() {
            if let StmtKind::Assign { target, .. } = &s.kind {
                for name in names(target) {
                    self.names.bind(name, Value::Poison);
                }
            }
            return None;
        }
        let new = new.ok().flatten();
        let s = new.as_ref().unwrap_or(s);
        match &s.kind {
            StmtKind::Pass => Some(()),
            StmtKind::Import => self.error("syntax", s.span, "imports stand at the top of the file"),
            StmtKind::Broken(name) => {
                if let Some(n) = name {
                    self.names.bind(n, Value::Poison);
                }
                None
            }
            StmtKind::Expr(e) => self.bare(e, s.span, rest, body, place),
            StmtKind::Assign { target, annotation, value } => {
                if self.declarations(target, value.as_ref())? {
                    return self.declared_as(annotation.as_ref(), value.as_ref());
                }
                if let (Some(names), Some(values)) = (target.elements(), value.as_ref().and_then(Expr::elements)) {
                    if names.len() == values.len()
                        && names.iter().all(|n| n.as_name().is_some())
                        && annotation.is_none()
                    {
                        return self.several(names, values, rest, body, place);
                    }
                }
                if let (Some(_), None, Some(value)) = (target.elements(), annotation, value) {
                    return self.fields_of(target, value, rest, body, place);
                }
                let Some(name) = target.as_name() else { return self.expected(target, "a name") };
                if value.as_ref().is_some_and(|v| self.python_binding(name, v)) {
                    return Some(());
                }
                if value.as_ref().is_some_and(Expr::is_error) {
                    self.names.bind(name, Value::Poison);
                    return None;
                }
                let r = self.assign(name, target.span, annotation.as_ref(), value.as_ref(), s.span, rest, body, place);
                if r.is_none() {
                    self.names.bind(name, Value::Poison);
                }
                r
            }
            StmtKind::With { items, body: inner } => self.dataflow(items, inner, s.span, body, place),
            StmtKind::If { cond, then, otherwise } => {
                if place == Place::Dataflow {
                    let d = Diagnostic::error("syntax", s.span, "a dataflow block has no branches");
                    self.diags.push(d.help("move the `if` out of `with R.dataflow():`"));
                }
                let r = self.branches(cond, then, otherwise, s.span, body);
                if r.is_none() {
                    for n in [then, otherwise].into_iter().filter_map(|b| bound_last(b)) {
                        self.names.bind(n, Value::Poison);
                    }
                }
                r
            }
            StmtKind::Function(def) => self.local_function(def, s.span, rest, body, place),
            StmtKind::Return(value) => {
                if place == Place::Branch {
                    let d = Diagnostic::error("syntax", s.span, "a return belongs at the end of the function");
                    return self.report(d.help("both branches of an `if` bind the same name, which is returned later"));
                }
                let Some(value) = value.as_ref().filter(|v| !matches!(v.kind, ExprKind::None)) else {
                    let d = Diagnostic::error("syntax", s.span, "a Relax function returns a value");
                    return self.report(d.help("the empty tuple is written `return R.tuple()`"));
                };
                if body.result.is_some() {
                    let d = Diagnostic::error("syntax", s.span, "a function returns once");
                    return self.report(d.help("an earlier line returns already; bindings after it count, as in TVM"));
                }
                body.result = Some(self.relax(value)?);
                Some(())
            }
            StmtKind::For { .. } | StmtKind::While { .. } | StmtKind::Break | StmtKind::Continue => {
                let at = first_line(self.text, s.span);
                let d = Diagnostic::error("syntax", at, "a Relax function has no loops");
                self.report(d.help("write a recursive function, or the loop inside of a PrimFunc"))
            }
            StmtKind::Augment { .. } => {
                self.error("syntax", s.span, "augmented assignments belong to PrimFuncs: bind the result to a name")
            }
            StmtKind::Assert(..) => {
                let d = Diagnostic::error("syntax", s.span, "`assert` is no part of Relax");
                self.report(d.help("write R.assert_op(condition, format=..)"))
            }
            StmtKind::Class(_) => {
                self.error("syntax", first_line(self.text, s.span), "a class cannot be in a function")
            }
        }
    }

    /// The statement with what Python computes in it written out; `None` where that is the statement itself.
    fn without_python(&mut self, s: &Stmt<'a>) -> Result<Option<Stmt<'a>>, Reported> {
        let kind = match &s.kind {
            StmtKind::Return(Some(e)) => self.written_out(e)?.map(|e| StmtKind::Return(Some(e))),
            StmtKind::Assign { target, annotation, value: Some(value) } => {
                let stated = match annotation {
                    Some(a) => self.written_out(a)?,
                    None => None,
                };
                let new = match target.elements() {
                    Some(_) => self.apart_written_out(value)?,
                    None => self.bound_written_out(value)?,
                };
                (new.is_some() || stated.is_some()).then(|| StmtKind::Assign {
                    target: target.clone(),
                    annotation: stated.or_else(|| annotation.clone()),
                    value: Some(new.unwrap_or_else(|| value.clone())),
                })
            }
            other => self.kind_written_out(other)?,
        };
        Ok(kind.map(|kind| Stmt { kind, span: s.span }))
    }

    /// `n = T.int64()` and `n, m = T.int64(), T.int64()`: whether the statement is one of them. A name that the
    /// signature has in quotes stays the same variable.
    pub fn declarations(&mut self, target: &Expr<'a>, value: Option<&Expr<'a>>) -> Option<bool> {
        let Some(value) = value else { return Some(false) };
        let (targets, values) = match (target.elements(), value.elements()) {
            (Some(t), Some(v)) if t.len() == v.len() => (t, v),
            (None, None) => (std::slice::from_ref(target), std::slice::from_ref(value)),
            _ => return Some(false),
        };
        let Some(dtypes) = values.iter().map(declared_var).collect::<Option<Vec<DType>>>() else { return Some(false) };
        for ((t, v), dtype) in targets.iter().zip(values).zip(dtypes) {
            match self.names.of_kernel() {
                true => self.kernel_dim(t, dtype)?,
                false => self.shape_variable(t, v, dtype)?,
            }
        }
        Some(true)
    }

    /// `n = T.int64()` in a PrimFunc.
    fn kernel_dim(&mut self, target: &Expr<'a>, dtype: DType) -> Option<()> {
        let Some(name) = target.as_name() else { return self.expected(target, "a name") };
        if matches!(self.names.own(name), Some(v) if !matches!(v, Value::Poison)) || self.names.is_declared(name) {
            let d = Diagnostic::error("tir", target.span, format!("`{name}` is defined in this scope already"));
            return self.report(d.help("take another name"));
        }
        self.names.note_declared(name);
        // Dims of a kernel are int64 whatever it calls them: no dim that fits into int32 differs.
        let wide = dtype.is_int() && !dtype.is_bool() && dtype != DType::I64;
        match self.names.dims.get(name).map(Var::dtype) {
            Some(t) if dtype != DType::I64 && t != dtype => {
                if !dtype.is_int() {
                    let message = format!("`{name}` is a dim of the signature: int64, not {dtype}");
                    return self.error("type", target.span, message);
                }
                self.names.widened = true;
                self.state(name, dtype);
            }
            Some(_) => self.state(name, dtype),
            // So they are where the kernel declares them before it has a buffer of them. It may be what `T.Let` binds, too.
            None => {
                self.names.widened |= wide;
                self.names.dims.insert(name, Var::with_span(name, if wide { DType::I64 } else { dtype }, target.span));
                self.state(name, dtype);
            }
        }
        Some(())
    }

    /// The kernel's text calls the dim `name` a `dtype`.
    fn state(&mut self, name: &str, dtype: DType) {
        if let Some(v) = self.names.dims.get(name) {
            self.names.stated.insert(v.clone(), dtype);
        }
    }

    /// `a, b = x, y`: all values are read before a name is bound.
    fn several(
        &mut self,
        names: &[Expr<'a>],
        values: &[Expr<'a>],
        rest: &[Stmt<'a>],
        body: &mut Body<'a>,
        place: Place,
    ) -> Option<()> {
        let declared: Vec<Option<DType>> = values.iter().map(declared_var).collect();
        let values: Option<Vec<Result<RExpr, &Expr<'a>>>> = (values.iter().zip(&declared))
            .map(|(v, declared)| if declared.is_some() { Some(Err(v)) } else { self.relax(v).map(Ok) })
            .collect();
        for (i, n) in names.iter().enumerate() {
            let Some(name) = n.as_name() else { continue };
            let value = match values.as_ref().map(|v| v[i].clone()) {
                Some(Ok(value)) => value,
                Some(Err(v)) => {
                    self.shape_variable(n, v, declared[i]?)?;
                    continue;
                }
                None => {
                    self.names.bind(name, Value::Poison);
                    continue;
                }
            };
            let var = self.new_var(name, n.span, rest, body, place);
            let span = n.span.to(value.span());
            let value = BindingValue::Expr(value);
            self.scalar_binding(&var, None, &value);
            self.names.bind(name, Value::Relax(var.clone()));
            self.emit(body, Binding { var, annotation: None, value, span });
        }
        values.map(|_| ())
    }

    /// `a, b = t`
    fn fields_of(
        &mut self,
        target: &Expr<'a>,
        value: &Expr<'a>,
        rest: &[Stmt<'a>],
        body: &mut Body<'a>,
        place: Place,
    ) -> Option<()> {
        let mut parts = vec![];
        if self.taken_apart(target, value, &mut parts).is_none() {
            for name in names(target) {
                self.names.bind(name, Value::Poison);
            }
            return None;
        }
        // `*rest` is a list of Python, of what its fields are before any name is bound.
        let (starred, plain): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(n, _)| starred_name(n).is_some());
        let lists: Vec<_> = starred.iter().map(|(n, list)| (starred_name(n), self.python_value(list))).collect();
        let (names, values): (Vec<Expr<'a>>, Vec<Expr<'a>>) = plain.into_iter().map(|(n, v)| (n.clone(), v)).unzip();
        self.several(&names, &values, rest, body, place)?;
        for (name, list) in lists {
            self.names.bind(name?, list);
        }
        Some(())
    }

    /// A statement without a binding.
    /// Python's `print`, which prints while TVM's parser reads: nothing is computed.
    pub fn printed(&mut self, args: &[Expr<'a>]) -> Option<()> {
        for e in args {
            match e.as_name() {
                Some(n) if self.names.get(n).is_none() && self.names.prim(n).is_none() => {
                    return self.unknown_name(n, e.span);
                }
                _ => {}
            }
        }
        Some(())
    }

    fn bare(&mut self, e: &Expr<'a>, span: Span, rest: &[Stmt<'a>], body: &mut Body<'a>, place: Place) -> Option<()> {
        let called = e.called();
        match (called.as_deref(), e.as_call()) {
            (Some("R.func_attr"), Some(call)) => {
                let attrs = self.attrs_argument(call, span)?;
                for (k, v) in attrs.0 {
                    if body.attrs.get(&k).is_some() {
                        let message = format!("the attribute \"{k}\" of this function is given twice");
                        return self.error("argument", span, message);
                    }
                    body.attrs.set(&k, v);
                }
                return Some(());
            }
            (Some("R.func_ret_type"), Some(call)) => return self.stated_result(call, span),
            (Some("R.output"), Some(_)) if place == Place::Dataflow => return Some(()),
            (Some("R.output"), Some(_)) => {
                return self.error("syntax", span, "R.output belongs to a dataflow block");
            }
            (Some("R.func_ret_value"), Some(call)) if place == Place::Function => {
                if let [v] = call.args.as_slice() {
                    body.result = Some(self.relax(v)?);
                    return Some(());
                }
            }
            _ => {}
        }
        if let (Some("print"), Some(call)) = (called.as_deref(), e.as_call()) {
            return self.printed(&call.args);
        }
        if matches!(called.as_deref(), Some("R.match_cast")) {
            let d = Diagnostic::error("syntax", span, "the value of R.match_cast is bound to a name");
            return self.report(d.help("where nothing uses it: `_ = R.match_cast(..)`"));
        }
        if matches!(e.kind, ExprKind::Str(_)) {
            return self.error("syntax", span, "a Relax function has no docstring: write a comment");
        }
        self.assign("_", span, None, Some(e), span, rest, body, place)
    }

    #[allow(clippy::too_many_arguments)]
    fn assign(
        &mut self,
        name: &'a str,
        name_span: Span,
        annotation: Option<&Expr<'a>>,
        value: Option<&Expr<'a>>,
        span: Span,
        rest: &[Stmt<'a>],
        body: &mut Body<'a>,
        place: Place,
    ) -> Option<()> {
        let Some(value) = value else {
            return self.error("syntax", span, format!("`{name}` has no value"));
        };
        if annotation.is_none()
            && value.as_name() == Some(self.module_name)
            && self.names.get(self.module_name).is_none()
        {
            self.names.bind(name, Value::Module);
            return Some(());
        }
        let mut value = value;
        if let (Some("R.emit"), Some(call)) = (value.called().as_deref(), value.as_call()) {
            if let [inner] = call.args.as_slice() {
                value = inner;
            }
        }
        let annotation_info = annotation.map(|a| self.struct_info(a));
        let bound = if matches!(value.called().as_deref(), Some("R.match_cast" | "R.emit_match_cast")) {
            self.match_cast(value)
        } else if python_number(value) && !matches!(annotation_info, Some(Some(StructInfo::Prim { .. }))) {
            // `v = 2` is `v = R.const(2)`.
            let call = CallExpr { func: value.clone(), args: vec![value.clone()], keywords: vec![] };
            let constant = self.constant(&call, value.span);
            constant.map(|c| BindingValue::Expr(RExpr::new(RKind::Constant(c), value.span)))
        } else {
            self.relax(value).map(BindingValue::Expr)
        };
        let annotation = match annotation_info {
            Some(None) => return None,
            Some(info) => info,
            None => None,
        };
        if let (Some(a), Some(BindingValue::MatchCast { struct_info, .. })) = (&annotation, &bound) {
            if a != struct_info {
                let d = Diagnostic::error("annotation", span, format!("`{name}` has another type than it is cast to"));
                return self.report(d.help("leave the annotation out: the cast states the type"));
            }
        }
        let var = self.new_var(name, name_span, rest, body, place);
        if let Some(bound) = &bound {
            self.scalar_binding(&var, annotation.as_ref(), bound);
        }
        if let Some(stated) = self.stated_kernel(value) {
            self.names.kernels.insert(var.clone(), stated);
        }
        self.names.bind(name, Value::Relax(var.clone()));
        self.emit(body, Binding { var, annotation, value: bound?, span });
        Some(())
    }

    /// A fresh variable; a dataflow one unless the block outputs this last binding of the name.
    fn new_var(&self, name: &str, span: Span, rest: &[Stmt<'a>], body: &Body<'a>, place: Place) -> RVar {
        let rebound = || {
            rest.iter().any(|s| match &s.kind {
                StmtKind::Assign { target, .. } => names(target).any(|n| n == name),
                StmtKind::Function(f) => f.name.name == name,
                StmtKind::If { then, .. } => bound_last(then) == Some(name),
                _ => false,
            })
        };
        let dataflow = place == Place::Dataflow && (!body.outputs.contains(&name) || rebound());
        RVar::new(name, dataflow, span)
    }

    /// `R.match_cast(value, TYPE)`
    fn match_cast(&mut self, e: &Expr<'a>) -> Option<BindingValue> {
        let call = e.as_call()?;
        let (Some(value), Some(info)) = (
            call.arg(0, "value"),
            call.args.get(1).or_else(|| call.keyword("struct_info").or_else(|| call.keyword("ty"))),
        ) else {
            return self.error("argument", e.span, "R.match_cast takes a value and a type");
        };
        if let Some(e) = call.args.get(2) {
            return self.error("argument", e.span, "R.match_cast takes a value and a type");
        }
        let value = self.relax(value);
        let struct_info: Option<StructInfo> = self.struct_info(info);
        Some(BindingValue::MatchCast { value: value?, struct_info: struct_info? })
    }

    /// `with R.dataflow():`
    fn dataflow(
        &mut self,
        items: &[(Expr<'a>, Option<Expr<'a>>)],
        inner: &[Stmt<'a>],
        span: Span,
        body: &mut Body<'a>,
        place: Place,
    ) -> Option<()> {
        let [(item, None)] = items else {
            return self.error("syntax", first_line(self.text, span), "only `with R.dataflow():` is understood here");
        };
        if item.called().as_deref() != Some("R.dataflow") {
            if item.is_error() {
                return None;
            }
            return self.error("syntax", item.span, "only `with R.dataflow():` is understood here");
        }
        if place == Place::Dataflow {
            return self.error("syntax", item.span, "a dataflow block cannot be inside of another");
        }
        let mut block = Body::new();
        let mut stated = false;
        for s in inner {
            let output = match &s.kind {
                StmtKind::Expr(e) if e.called().as_deref() == Some("R.output") => e.as_call(),
                _ => None,
            };
            if stated && (output.is_some() || matches!(s.kind, StmtKind::Assign { .. } | StmtKind::Function(_))) {
                let d = Diagnostic::error("syntax", first_line(self.text, s.span), "nothing may follow R.output(..)");
                self.diags.push(d.help("R.output ends its dataflow block and names all that is used later"));
                block.ok = false;
            }
            let Some(call) = output else { continue };
            stated = true;
            for a in &call.args {
                match a.as_name() {
                    Some(n) => block.outputs.push(n),
                    None => {
                        let _: Option<()> = self.expected(a, "the name of a variable of this block");
                        block.ok = false;
                    }
                }
            }
        }
        // What the function returns from inside of the block is an output, named there or not.
        let returned = inner.iter().filter_map(|s| match &s.kind {
            StmtKind::Return(e) => e.as_ref(),
            _ => None,
        });
        let bound: Vec<&str> = inner.iter().flat_map(bound_names).collect();
        for n in returned.flat_map(mentioned) {
            if bound.contains(&n) && !block.outputs.contains(&n) {
                block.outputs.push(n);
            }
        }
        let broken = inner.iter().any(|s| matches!(s.kind, StmtKind::Broken(_)));
        self.names.push();
        self.statements(inner, &mut block, Place::Dataflow);
        // The function's result may stand before R.output, which names it.
        if let Some(result) = block.result.take() {
            if place != Place::Function || body.result.is_some() {
                return self.error("syntax", span, "a return belongs at the end of the function, once");
            }
            body.result = Some(result);
        }
        let outputs: Vec<(&'a str, Option<Value>)> =
            block.outputs.iter().map(|n| (*n, self.names.own(n).cloned())).collect();
        self.names.pop();
        let bound = block.blocks.iter().flat_map(|b| &b.bindings).map(|b| b.var.name());
        self.ended.extend(bound.filter(|n| !block.outputs.contains(n)).map(str::to_string));
        for (n, v) in outputs {
            match v {
                Some(Value::Python(_) | Value::Module) => {
                    let message = format!("this block outputs `{n}`, which is a value of Python");
                    let _: Option<()> = self.error("type", item.span, message);
                    block.ok = false;
                    self.names.bind(n, Value::Poison);
                }
                Some(v) => self.names.bind(n, v),
                None => {
                    if !broken {
                        let named = inner.iter().flat_map(|s| match &s.kind {
                            StmtKind::Expr(e) if e.called().as_deref() == Some("R.output") => e.as_call(),
                            _ => None,
                        });
                        let at =
                            named.flat_map(|c| &c.args).find(|a| a.as_name() == Some(n)).map_or(item.span, |a| a.span);
                        let _: Option<()> =
                            self.error("unknown-name", at, format!("this block outputs `{n}`, which it never binds"));
                    }
                    block.ok = false;
                    self.names.bind(n, Value::Poison);
                }
            }
        }
        // An empty block binds nothing, yet it is there.
        let bindings = block.blocks.into_iter().flat_map(|b| b.bindings).collect();
        body.blocks.push(BindingBlock { dataflow: true, bindings, span });
        block.ok.then_some(())
    }

    /// `@R.function def inner(..)` in a body: a closure bound to its name, which it may call itself.
    fn local_function(
        &mut self,
        def: &FunctionDef<'a>,
        span: Span,
        rest: &[Stmt<'a>],
        body: &mut Body<'a>,
        place: Place,
    ) -> Option<()> {
        let is_relax = def.decorators.iter().any(|d| decorator(d).as_deref() == Some("R.function"));
        if !is_relax {
            self.names.bind(def.name.name, Value::Poison);
            let d = Diagnostic::error("syntax", def.signature, "a local function needs the decorator @R.function");
            return self.report(d.help("PrimFuncs belong to the module, beside this function"));
        }
        self.local_function_name(def.name.name, def.name.span)?;
        let var = self.new_var(def.name.name, def.name.span, rest, body, place);
        self.names.bind(def.name.name, Value::Relax(var.clone()));
        self.names.push();
        let f = self.function(def, span);
        self.names.pop();
        let Some(f) = f else {
            self.names.bind(def.name.name, Value::Poison);
            return None;
        };
        let value = BindingValue::Expr(RExpr::new(RKind::Function(Arc::new(f)), span));
        self.emit(body, Binding { var, annotation: None, value, span });
        Some(())
    }
}

/// A number of Python: a literal, with its sign.
fn python_number(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Bool(_) => true,
        ExprKind::Unary(UnaryOp::Neg, a) => python_number(a),
        _ => false,
    }
}

/// The names in the target of an assignment.
fn names<'e, 'a>(target: &'e Expr<'a>) -> Box<dyn Iterator<Item = &'a str> + 'e> {
    match target.elements() {
        Some(items) => Box::new(items.iter().flat_map(names)),
        None => Box::new(target.as_name().into_iter()),
    }
}

/// The names that a statement of a dataflow block binds.
fn bound_names<'a>(s: &Stmt<'a>) -> Vec<&'a str> {
    match &s.kind {
        StmtKind::Assign { target, .. } => names(target).collect(),
        StmtKind::Function(f) => vec![f.name.name],
        _ => vec![],
    }
}

/// The names in an expression.
fn mentioned<'a>(e: &Expr<'a>) -> Vec<&'a str> {
    match e.as_name() {
        Some(n) => vec![n],
        None => e.children().into_iter().flat_map(mentioned).collect(),
    }
}

/// `R.output(..)`, which binds nothing.
fn outputs(s: &Stmt) -> bool {
    matches!(&s.kind, StmtKind::Expr(e) if e.called().as_deref() == Some("R.output"))
}

/// `T.int64()`: the declaration of a variable.
pub fn declared_var(e: &Expr) -> Option<DType> {
    let call = e.as_call()?;
    // `T.var("int32")`, and `T.Var("n", "int32")`, whose name only prints.
    let typed = match call.func.dotted().as_deref() {
        Some("T.var") => call.arg(0, "dtype").filter(|_| call.args.len() < 2),
        Some("T.Var") => call.arg(0, "name").and_then(Expr::as_str).and(call.arg(1, "dtype")),
        _ => None,
    };
    if let Some(dtype) = typed {
        return dtype.as_str()?.parse().ok();
    }
    if !call.args.is_empty() || !call.keywords.iter().all(|(k, _)| k.name == "is_size_var") {
        return None;
    }
    call.func.dotted()?.strip_prefix("T.")?.parse().ok()
}

/// `R.function`, with or without arguments.
pub fn decorator(e: &Expr) -> Option<String> {
    e.called().or_else(|| e.dotted())
}

/// The first line of a statement that has blocks.
pub fn first_line(text: &str, span: Span) -> Span {
    let slice = text.get(span.lo as usize..span.hi as usize).unwrap_or("");
    let n = slice.find('\n').unwrap_or(slice.len());
    Span::new(span.file, span.lo, span.lo + slice[..n].trim_end().len() as u32)
}
