//! Relax functions, bindings and expressions.

use super::scalar::quote;
use super::types::Place;
use super::{Printer, SignatureNames};
use crate::attrs::AttrValue;
use crate::op::{Default, OpDecl, ParamKind};
use crate::prim::{PrimExpr, Var};
use crate::relax::*;
use std::collections::HashSet;

/// Shape variables that parameters' and results' types mention, those of local functions too, in order. What the body
/// around a local function brings is not among them.
pub fn signature_vars(f: &Function) -> Vec<Var> {
    let mut out = vec![];
    let mut seen = HashSet::new();
    let mut own = |f: &Function, seen: &mut HashSet<Var>| {
        let infos = f.params.iter().filter_map(|p| p.annotation.as_ref()).chain(&f.ret);
        for s in infos {
            walk_info(s, &mut |e| {
                for v in e.vars() {
                    if seen.insert(v.clone()) {
                        out.push(v);
                    }
                }
            });
        }
    };
    own(f, &mut seen);
    walk_seq(&f.body, &mut |item| match item {
        Item::Prim(e) => seen.extend(e.vars()),
        Item::Function(f) => own(f, &mut seen),
        Item::Use(_) | Item::Global => {}
    });
    out
}

/// What a walk over a body meets. A local function is reported before what is in it.
enum Item<'a> {
    Prim(&'a PrimExpr),
    Use(&'a RVar),
    Global,
    Function(&'a Function),
}

fn walk_seq<'a>(s: &'a SeqExpr, f: &mut dyn FnMut(Item<'a>)) {
    for b in s.blocks.iter().flat_map(|b| &b.bindings) {
        if let Some(a) = &b.annotation {
            walk_info(a, &mut |e| f(Item::Prim(e)));
        }
        if let BindingValue::MatchCast { struct_info, .. } = &b.value {
            walk_info(struct_info, &mut |e| f(Item::Prim(e)));
        }
        walk_expr(b.expr(), f);
    }
    walk_expr(&s.body, f);
}

fn walk_expr<'a>(e: &'a Expr, f: &mut dyn FnMut(Item<'a>)) {
    match e.kind() {
        ExprKind::Var(v) => f(Item::Use(v)),
        ExprKind::GlobalVar(_) => f(Item::Global),
        ExprKind::Tuple(fields) => fields.iter().for_each(|x| walk_expr(x, f)),
        ExprKind::TupleGetItem(x, _) => walk_expr(x, f),
        ExprKind::Seq(s) => walk_seq(s, f),
        ExprKind::Function(func) => {
            f(Item::Function(func));
            walk_seq(&func.body, f);
        }
        ExprKind::If { cond, then, otherwise } => {
            walk_expr(cond, f);
            walk_seq(then, f);
            walk_seq(otherwise, f);
        }
        ExprKind::Call(c) => {
            if let Callee::Expr(callee) = &c.callee {
                walk_expr(callee, f);
            }
            c.args.iter().for_each(|a| walk_expr(a, f));
            c.attrs.0.iter().for_each(|(_, a)| walk_attr(a, &mut |e| f(Item::Prim(e))));
            c.sinfo_args.iter().for_each(|s| walk_info(s, &mut |e| f(Item::Prim(e))));
        }
        ExprKind::Shape(dims) => dims.iter().for_each(|d| f(Item::Prim(d))),
        ExprKind::Prim(p) => f(Item::Prim(p)),
        ExprKind::ExternFunc(_, Some(func)) => {
            func.params.iter().flatten().for_each(|s| walk_info(s, &mut |e| f(Item::Prim(e))));
            walk_info(&func.ret, &mut |e| f(Item::Prim(e)));
        }
        _ => {}
    }
}

fn walk_attr<'a>(a: &'a AttrValue, f: &mut dyn FnMut(&'a PrimExpr)) {
    match a {
        AttrValue::List(list) => list.iter().for_each(|x| walk_attr(x, f)),
        AttrValue::Dict(entries) => entries.iter().for_each(|(_, x)| walk_attr(x, f)),
        AttrValue::Prim(p) => f(p),
        AttrValue::StructInfo(s) => walk_info(s, f),
        _ => {}
    }
}

fn walk_info<'a>(s: &'a StructInfo, f: &mut dyn FnMut(&'a PrimExpr)) {
    match s {
        StructInfo::Tensor(TensorInfo { shape: Some(TensorShape::Dims(dims)), .. }) => dims.iter().for_each(f),
        StructInfo::Shape { values: Some(dims), .. } => dims.iter().for_each(f),
        StructInfo::Prim { value: Some(v), .. } => f(v),
        StructInfo::Tuple(fields) => fields.iter().for_each(|x| walk_info(x, f)),
        StructInfo::Func(func) => {
            func.params.iter().flatten().for_each(|x| walk_info(x, f));
            walk_info(&func.ret, f);
        }
        _ => {}
    }
}

impl Printer<'_> {
    pub fn global_function(&mut self, f: &Function, signature: &SignatureNames) {
        self.fresh_names();
        self.int = crate::DType::I64;
        self.bare_bool = true;
        self.used.clear();
        let mut used = HashSet::new();
        let mut globals = false;
        walk_seq(&f.body, &mut |item| match item {
            Item::Use(v) => drop(used.insert(v.id())),
            Item::Global => globals = true,
            _ => {}
        });
        self.used = used;
        for p in &f.params {
            self.names.declare(p.var.id(), p.var.name());
        }
        for (v, name) in signature {
            self.names.fix(v.id(), name);
        }
        let name = f.name.clone();
        self.function(&name, f, globals);
    }

    fn function(&mut self, name: &str, f: &Function, globals: bool) {
        let mut options = vec![];
        if f.private {
            options.push("private=True");
        }
        if !f.pure {
            options.push("pure=False");
        }
        match options.is_empty() {
            true => self.line("@R.function"),
            false => self.line(&format!("@R.function({})", options.join(", "))),
        }
        let mut params = vec![];
        for p in &f.params {
            let v = self.names.get(p.var.id(), p.var.name());
            params.push(match &p.annotation {
                Some(a) => format!("{v}: {}", self.info(a, Place::Signature)),
                None => v,
            });
        }
        let ret = f.ret.as_ref().map(|r| format!(" -> {}", self.info(r, Place::Signature))).unwrap_or_default();
        self.line(&format!("def {name}({}){ret}:", params.join(", ")));
        self.nested(|p| {
            if !f.attrs.is_empty() {
                let attrs = p.attrs(&f.attrs);
                p.line(&format!("R.func_attr({attrs})"));
            }
            if globals {
                let module = p.module.clone();
                p.line(&format!("cls = {module}"));
            }
            p.declare_born(f);
            p.seq_bindings(&f.body);
            let result = p.expr(&f.body.body);
            p.line(&format!("return {result}"));
        });
    }

    /// `m = T.int64()` for the shape variables that the body brings.
    fn declare_born(&mut self, f: &Function) {
        let mut born: Vec<Var> = vec![];
        walk_seq(&f.body, &mut |item| {
            if let Item::Prim(e) = item {
                for v in e.vars() {
                    if !born.contains(&v) {
                        born.push(v);
                    }
                }
            }
        });
        for v in born {
            if self.names.known(v.id()).is_none() {
                let type_vars = &self.type_vars;
                let name = self.names.declare_avoiding(v.id(), v.name(), |n| type_vars.contains(n));
                self.line(&format!("{name} = T.{}()", v.dtype()));
            }
        }
    }

    fn seq_bindings(&mut self, s: &SeqExpr) {
        for block in &s.blocks {
            if !block.dataflow {
                block.bindings.iter().for_each(|b| self.binding(b));
                continue;
            }
            self.line("with R.dataflow():");
            self.nested(|p| {
                block.bindings.iter().for_each(|b| p.binding(b));
                let outputs = block.bindings.iter().map(|b| &b.var).filter(|v| !v.is_dataflow());
                let outputs: Vec<String> = outputs.map(|v| p.names.get(v.id(), v.name())).collect();
                p.line(&format!("R.output({})", outputs.join(", ")));
            });
        }
    }

    fn binding(&mut self, b: &Binding) {
        let unused = b.var.name() == "_" && !self.used.contains(&b.var.id());
        let annotation = b.annotation.as_ref().or_else(|| self.types?.get(&b.var));
        match &b.value {
            BindingValue::MatchCast { value, struct_info } => {
                let value = self.expr(value);
                let info = self.info(struct_info, Place::Body);
                // Where more is known than the cast says, only the cast is written: an annotation has to be the same.
                let annotation = annotation.filter(|a| *a == struct_info);
                let target = self.target(&b.var, annotation, unused);
                self.line(&format!("{target} = R.match_cast({value}, {info})"));
            }
            BindingValue::Expr(e) => match e.kind() {
                ExprKind::If { cond, then, otherwise } => {
                    let name = self.names.get(b.var.id(), b.var.name());
                    self.branches(&name, annotation, cond, then, otherwise);
                }
                ExprKind::Function(f) => {
                    let name = self.names.get(b.var.id(), b.var.name());
                    self.local_function(&name, f);
                }
                ExprKind::Seq(s) => {
                    self.seq_bindings(s);
                    let inner = Binding { value: BindingValue::Expr(s.body.clone()), ..b.clone() };
                    self.binding(&inner);
                }
                ExprKind::Call(_) if unused && b.annotation.is_none() => {
                    let value = self.expr(e);
                    self.line(&value);
                }
                ExprKind::Tuple(fields) if fields.len() > 1 => {
                    let value = self.exprs(fields);
                    let target = self.target(&b.var, annotation, unused);
                    self.line(&format!("{target} = {value}"));
                }
                _ => {
                    let value = self.expr(e);
                    let target = self.target(&b.var, annotation, unused);
                    self.line(&format!("{target} = {value}"));
                }
            },
        }
    }

    /// `v: TYPE`; the name comes into scope.
    fn target(&mut self, v: &RVar, annotation: Option<&StructInfo>, unused: bool) -> String {
        let name = if unused { "_".to_string() } else { self.names.get(v.id(), v.name()) };
        match annotation {
            Some(a) => format!("{name}: {}", self.info(a, Place::Body)),
            None => name,
        }
    }

    fn branches(
        &mut self,
        name: &str,
        annotation: Option<&StructInfo>,
        cond: &Expr,
        then: &SeqExpr,
        otherwise: &SeqExpr,
    ) {
        let cond = self.expr(cond);
        self.line(&format!("if {cond}:"));
        self.nested(|p| p.branch(name, annotation, then));
        self.line("else:");
        self.nested(|p| p.branch(name, annotation, otherwise));
    }

    /// A branch ends by binding the name of the whole to its value.
    fn branch(&mut self, name: &str, annotation: Option<&StructInfo>, s: &SeqExpr) {
        let mark = self.names.mark();
        self.seq_bindings(s);
        let value = self.expr(&s.body);
        let typed = annotation.map(|a| format!(": {}", self.info(a, Place::Body))).unwrap_or_default();
        self.line(&format!("{name}{typed} = {value}"));
        self.names.leave(mark);
    }

    fn local_function(&mut self, name: &str, f: &Function) {
        self.line("# from tvm.script import relax as R");
        self.out.extend(std::iter::repeat_n("    ", self.indent));
        self.out.push('\n');
        let mark = self.names.mark();
        for p in &f.params {
            self.names.declare(p.var.id(), p.var.name());
        }
        self.function(name, f, false);
        self.names.leave(mark);
        self.out.push('\n');
    }

    pub fn exprs(&mut self, list: &[Expr]) -> String {
        let list: Vec<String> = list.iter().map(|e| self.expr(e)).collect();
        list.join(", ")
    }

    /// An expression in one line; branches and functions inside of it are bound by lines of their own first.
    pub fn expr(&mut self, e: &Expr) -> String {
        match e.kind() {
            ExprKind::Constant(c) => self.constant(c),
            ExprKind::Var(v) => self.names.get(v.id(), v.name()),
            ExprKind::GlobalVar(name) => format!("cls.{name}"),
            ExprKind::Tuple(fields) => match fields.len() {
                0 => "R.tuple()".to_string(),
                1 => format!("({},)", self.expr(&fields[0])),
                _ => format!("({})", self.exprs(fields)),
            },
            ExprKind::TupleGetItem(x, i) => format!("{}[{i}]", self.expr(x)),
            ExprKind::Seq(_) | ExprKind::Function(_) | ExprKind::If { .. } if self.names.plain => match e.kind() {
                ExprKind::Function(_) => "<function>",
                ExprKind::If { .. } => "<if>",
                _ => "<bindings>",
            }
            .to_string(),
            ExprKind::Seq(s) => {
                self.seq_bindings(s);
                self.expr(&s.body)
            }
            ExprKind::Function(f) => {
                let name = self.names.declare(crate::prim::fresh_id(), "func");
                self.local_function(&name, f);
                name
            }
            ExprKind::If { cond, then, otherwise } => {
                let name = self.names.declare(crate::prim::fresh_id(), "gv");
                self.branches(&name, None, cond, then, otherwise);
                name
            }
            ExprKind::ExternFunc(name, None) => format!("R.ExternFunc({})", quote(name)),
            ExprKind::ExternFunc(name, Some(f)) => {
                let stated = self.infos(&[StructInfo::Func(f.clone())], Place::Body);
                format!("R.ExternFunc({}, {stated})", quote(name))
            }
            ExprKind::Call(c) => self.call(c),
            ExprKind::Shape(dims) => format!("R.shape([{}])", self.prims(dims)),
            ExprKind::Prim(p) => self.prim(p),
            ExprKind::Str(s) => format!("R.str({})", quote(s)),
            ExprKind::DType(d) => format!("R.dtype(\"{d}\")"),
            ExprKind::Absent => "None".to_string(),
            ExprKind::Op(op) => format!("R.{}", op.name),
        }
    }

    fn call(&mut self, c: &Call) -> String {
        let op = match &c.callee {
            Callee::Op(op) => op,
            Callee::Expr(f) => {
                if let ExprKind::ExternFunc(name, None) = f.kind() {
                    let mut args = vec![quote(name)];
                    args.extend(c.args.iter().map(|a| self.expr(a)));
                    if !c.sinfo_args.is_empty() {
                        args.push(format!("ty_args={}", self.type_args("ty_args", &c.sinfo_args)));
                    }
                    return format!("R.call_packed({})", args.join(", "));
                }
                let f = self.expr(f);
                let args: Vec<String> = c.args.iter().map(|a| self.argument(a)).collect();
                return format!("{f}({})", args.join(", "));
            }
        };
        format!("R.{}({})", op.name, self.arguments(op, c).join(", "))
    }

    /// What a function is called with: a bare literal is a number of Python there, which has another type.
    fn argument(&mut self, e: &Expr) -> String {
        let text = self.expr(e);
        match e.kind() {
            ExprKind::Prim(p) if p.as_int().is_some() && !text.starts_with("T.") => format!("T.{}({text})", p.dtype()),
            _ => text,
        }
    }

    /// The arguments in declared order; what is missing at the end is left out.
    fn arguments(&mut self, op: &OpDecl, c: &Call) -> Vec<String> {
        let after = |i: usize| op.params[i + 1..].iter().filter(|p| p.kind == ParamKind::Operand).count();
        let mut out = vec![];
        let mut operand = 0;
        // Positional operands that are missing so far: they show only when something positional follows.
        let mut skipped = 0;
        for (i, p) in op.params.iter().enumerate() {
            let value = match p.kind {
                ParamKind::Operand => {
                    let arg = c.args.get(operand);
                    operand += 1;
                    match arg {
                        Some(a) if !matches!(a.kind(), ExprKind::Absent) => Some(self.operand(a, p.name)),
                        _ => None,
                    }
                }
                ParamKind::Variadic => {
                    let end = c.args.len().saturating_sub(after(i)).max(operand);
                    for a in &c.args[operand..end] {
                        out.push(self.operand(a, p.name));
                    }
                    operand = end;
                    continue;
                }
                ParamKind::Attr => c.attrs.get(p.name).map(|v| self.attr(v)),
                ParamKind::StructInfo if c.sinfo_args.is_empty() && !matches!(p.default, Default::Required) => None,
                ParamKind::StructInfo => Some(self.type_args(p.name, &c.sinfo_args)),
            };
            match (value, p.keyword) {
                (Some(v), true) => out.push(format!("{}={v}", p.name)),
                (Some(v), false) => {
                    out.extend(std::iter::repeat_n("None".to_string(), skipped));
                    skipped = 0;
                    out.push(v);
                }
                (None, true) => {}
                (None, false) => skipped += 1,
            }
        }
        out
    }

    /// An operand; packed functions are named by a plain string.
    fn operand(&mut self, e: &Expr, param: &str) -> String {
        match e.kind() {
            ExprKind::ExternFunc(name, None) if param == "func" => quote(name),
            _ => self.expr(e),
        }
    }

    fn type_args(&mut self, param: &str, infos: &[StructInfo]) -> String {
        let list = self.infos(infos, Place::Body);
        match (param, infos.len()) {
            ("ty_args", 1) => format!("({list},)"),
            ("ty_args", _) => format!("({list})"),
            (_, 1) => list,
            _ => format!("[{list}]"),
        }
    }
}
