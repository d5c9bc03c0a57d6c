//! Calls of operators: `R.name(..)` against the operator's declared parameters.

use super::context::Cx;
use super::scalar::{fits, int_literal, Num};
use super::syntax::*;
use crate::suggest::nearest;
use relax_ir::op::{self, Default, OpDecl, ParamDecl, ParamKind};
use relax_ir::prim::PrimExpr;
use relax_ir::relax::{Call, Callee, Expr as RExpr, ExprKind as RKind, StructInfo};
use relax_ir::{AttrValue, Attrs, DType, Diagnostic, Span};

/// The name that a parameter has in older dialects.
fn today(keyword: &str) -> &str {
    match keyword {
        "out_sinfo" => "out_ty",
        "sinfo_args" => "ty_args",
        other => other,
    }
}

impl<'a> Cx<'a> {
    /// `name` is without `R.`.
    pub fn op_call(&mut self, name: &str, call: &CallExpr<'a>, span: Span) -> Option<RExpr> {
        let name = if name == "stop_lift_params" { "builtin.stop_lift_params" } else { name };
        let Some(decl) = op::lookup(name) else {
            return match name {
                "linear" => self.linear(call, span),
                "nn.relu6" => self.relu6(call, span),
                _ => self.unknown_operator(name, call),
            };
        };
        if decl.name == "assert_op" {
            let call = self.assert_call(call)?;
            return self.declared_call(decl, &call, span);
        }
        self.declared_call(decl, call, span)
    }

    /// The call of an operator, its arguments in the order of its declaration.
    fn declared_call(&mut self, decl: &'static OpDecl, call: &CallExpr<'a>, span: Span) -> Option<RExpr> {
        let given = self.bind(decl, call, span)?;
        let mut args: Vec<RExpr> = vec![];
        let mut attrs = Attrs::default();
        let mut sinfo_args = vec![];
        let mut ok = true;
        for (param, given) in decl.params.iter().zip(given) {
            match param.kind {
                ParamKind::Variadic => {
                    for e in given {
                        if decl.name == "print" && e.elements().is_some() {
                            let _: Option<()> = self.expected(e, "a value");
                            ok = false;
                            continue;
                        }
                        if matches!(e.kind, ExprKind::None) {
                            let d = Diagnostic::error("argument", e.span, "None is no value of Relax");
                            self.diags.push(d.help("R.null_value() gives a value that is none"));
                            ok = false;
                            continue;
                        }
                        match self.relax(e) {
                            Some(e) => args.push(e),
                            None => ok = false,
                        }
                    }
                }
                ParamKind::Operand => {
                    let e = match given.first() {
                        Some(e) => self.operand(decl, param, e),
                        None => Some(default_operand(param)),
                    };
                    match e {
                        Some(e) => args.push(e),
                        None => ok = false,
                    }
                }
                ParamKind::Attr => {
                    let v = match given.first() {
                        Some(e) => self.attribute(decl, param, e),
                        None => Some(default_attr(param)),
                    };
                    match v {
                        Some(v) => attrs.0.push((param.name.to_string(), v)),
                        None => ok = false,
                    }
                }
                ParamKind::StructInfo => {
                    if let Some(e) = given.first() {
                        match self.struct_infos(e) {
                            Some(infos) => sinfo_args = outputs(param, infos),
                            None => ok = false,
                        }
                    }
                }
            }
        }
        if !ok {
            return None;
        }
        while args.last().is_some_and(|a| matches!(a.kind(), RKind::Absent)) {
            args.pop();
        }
        self.operand_divides(decl, &args)?;
        let mut call = Call { callee: Callee::Op(decl), args, attrs, sinfo_args };
        if let Some(kernel) = call.args.first().and_then(|f| self.kernel(f)) {
            match decl.name {
                "call_packed" => {
                    call.args.remove(0);
                    let (callee, args) = (Callee::Expr(kernel), call.args);
                    call = Call { callee, args, attrs: Attrs::default(), sinfo_args: vec![] };
                }
                "call_dps_packed" => {
                    call.callee = op::lookup("call_tir").map_or(call.callee, Callee::Op);
                    call.args[0] = kernel;
                }
                _ => {}
            }
        }
        Some(RExpr::new(RKind::Call(call), span))
    }

    /// A divisor that is written as a scalar is not 0.
    ///
    /// Source: TVM computes with it when a module is built; there a float remainder (`R.mod`) is no division.
    fn operand_divides(&mut self, decl: &OpDecl, args: &[RExpr]) -> Option<()> {
        let Some(divisor) = args.get(1) else { return Some(()) };
        let (integer, zero) = match divisor.kind() {
            RKind::Constant(c) if c.shape.is_empty() => {
                let float = c.dtype.is_float();
                (!float, if float { c.get_f64(0) == 0.0 } else { c.get_i64(0) == 0 })
            }
            RKind::Prim(p) => (p.as_int().is_some(), p.is_int(0) || p.as_float() == Some(0.0)),
            _ => return Some(()),
        };
        let divides = match decl.name {
            "divide" | "floor_divide" | "floor_mod" => true,
            "mod" => integer,
            _ => false,
        };
        if divides && zero {
            return self.error("operator", divisor.span(), format!("R.{} divides by zero", decl.name));
        }
        Some(())
    }

    /// `R.emit_with_ty("relax.name", (x, y), ty_args)`: an operator without attributes by its name.
    ///
    /// Source: TVM `relax.script.builder.ir`, `emit_with_type`.
    pub fn call_by_name(&mut self, call: &CallExpr<'a>, span: Span) -> Option<RExpr> {
        let name = call.arg(0, "op").and_then(Expr::as_str).and_then(|n| n.strip_prefix("relax."));
        let (Some(name), Some(args)) = (name, call.arg(1, "args").and_then(Expr::elements)) else {
            return self.error("argument", span, "an operator's name and a tuple of arguments are needed here");
        };
        let takes_types = op::lookup(name)
            .and_then(|decl| decl.params.iter().find(|p| matches!(p.kind, ParamKind::StructInfo)))
            .map(|p| Ident { name: p.name, span });
        let keywords = takes_types.zip(call.arg(2, "ty_args").cloned()).into_iter().collect();
        self.op_call(name, &CallExpr { func: call.func.clone(), args: args.to_vec(), keywords }, span)
    }

    /// The PrimFunc of the module that a packed function's name stands for (relax_spec.md, "Evaluating Expressions", 8).
    fn kernel(&self, f: &RExpr) -> Option<RExpr> {
        match f.kind() {
            RKind::ExternFunc(symbol, _) => {
                let name = self.kernels.get(symbol.as_str())?;
                Some(RExpr::new(RKind::GlobalVar(name.to_string()), f.span()))
            }
            RKind::GlobalVar(n) if self.kernels.values().any(|name| name == n) => Some(f.clone()),
            _ => None,
        }
    }

    /// `R.linear(data, weight, bias=None, out_dtype=None)`, which TVM reads as a product with the transposed weight.
    fn linear(&mut self, call: &CallExpr<'a>, span: Span) -> Option<RExpr> {
        self.no_more(call, "R.linear", &["data", "weight", "bias", "out_dtype"])?;
        let operand = |i: usize, name: &str| call.arg(i, name).filter(|e| !matches!(e.kind, ExprKind::None));
        let (Some(data), Some(weight)) = (operand(0, "data"), operand(1, "weight")) else {
            return self.error("argument", span, "R.linear takes data and weight");
        };
        let out = operand(3, "out_dtype").map(|e| self.attr_value(e));
        let (data, weight) = (self.relax(data), self.relax(weight));
        let turned = operator("permute_dims", vec![weight?], vec![("axes", AttrValue::None)], span)?;
        let out = out.unwrap_or(Some(AttrValue::None))?;
        let product = operator("matmul", vec![data?, turned], vec![("out_dtype", out)], span)?;
        match operand(2, "bias") {
            Some(bias) => operator("add", vec![product, self.relax(bias)?], vec![], span),
            None => Some(product),
        }
    }

    /// `R.nn.relu6(data)`: clipped to 0 and 6.
    fn relu6(&mut self, call: &CallExpr<'a>, span: Span) -> Option<RExpr> {
        self.no_more(call, "R.nn.relu6", &["data"])?;
        let Some(data) = call.arg(0, "data") else {
            return self.error("argument", span, "R.nn.relu6 takes data");
        };
        let bound = |v: i64| RExpr::new(RKind::Prim(PrimExpr::i64(v)), span);
        operator("clip", vec![self.relax(data)?, bound(0), bound(6)], vec![], span)
    }

    /// Refuses arguments beyond `params`.
    fn no_more(&mut self, call: &CallExpr<'a>, name: &str, params: &[&str]) -> Option<()> {
        if let Some(e) = call.args.get(params.len()) {
            return self.error("argument", e.span, format!("{name} takes {} arguments", params.len()));
        }
        for (k, _) in &call.keywords {
            match params.iter().position(|p| *p == k.name) {
                None => return self.error("argument", k.span, format!("{name} has no argument `{}`", k.name)),
                Some(at) if at < call.args.len() => {
                    return self.error("argument", k.span, format!("`{}` of {name} is given twice", k.name));
                }
                _ => {}
            }
        }
        Some(())
    }

    fn unknown_operator<T>(&mut self, name: &str, call: &CallExpr<'a>) -> Option<T> {
        let mut d =
            Diagnostic::unsupported("unknown-operator", call.func.span, format!("there is no operator `R.{name}`"));
        // The last part alone may be right: `R.relu` for `R.nn.relu`.
        let same_tail = op::all().map(|o| o.name).find(|o| o.rsplit('.').next() == name.rsplit('.').next());
        if let Some(n) = same_tail.or_else(|| nearest(name, op::all().map(|o| o.name))) {
            d = d.help(format!("did you mean `R.{n}`?"));
        }
        self.diags.push(d);
        // Calls among the arguments have mistakes of their own.
        for e in call.args.iter().filter(|e| e.as_call().is_some()) {
            let _ = self.relax(e);
        }
        None
    }

    /// The expressions given for each parameter: at most one, but any number for a variadic one.
    fn bind<'c>(
        &mut self,
        decl: &'static OpDecl,
        call: &'c CallExpr<'a>,
        span: Span,
    ) -> Option<Vec<Vec<&'c Expr<'a>>>> {
        let params = decl.params;
        let mut given: Vec<Vec<&'c Expr<'a>>> = vec![vec![]; params.len()];
        let mut ok = true;
        let mut next = 0;
        for e in &call.args {
            match params.get(next) {
                Some(p) => {
                    given[next].push(e);
                    if p.kind != ParamKind::Variadic {
                        next += 1;
                    }
                }
                None => {
                    let n = params.len();
                    let d = Diagnostic::error(
                        "argument",
                        e.span,
                        format!("R.{} takes {n} arguments, {} given", decl.name, call.args.len()),
                    );
                    self.diags.push(d.help(signature(decl)));
                    ok = false;
                    break;
                }
            }
        }
        // Attributes that TVM's passes leave at calls of packed functions say nothing to these.
        let packed = matches!(decl.name, "call_packed" | "call_pure_packed");
        let attributes = packed && call.keywords.iter().any(|(k, _)| k.name == "attrs_type_key");
        for (k, e) in &call.keywords {
            if attributes && k.name == "attrs_type_key" && e.as_str().is_none_or(str::is_empty) {
                ok &= self.expected::<()>(e, "the name of a type in quotes").is_some();
                continue;
            }
            if attributes && !params.iter().any(|p| today(p.name) == today(k.name)) {
                continue;
            }
            let known = params.iter().position(|p| today(p.name) == today(k.name));
            // So do those that the text states, whatever they are.
            if decl.name == "call_packed" && known.is_none() {
                ok &= self.names_are_known(e).is_some();
                continue;
            }
            // TVM's passes state the type of the tensors that they allocate; the operands say it.
            if decl.name.ends_with(".alloc_tensor") && today(k.name) == "ty_args" {
                let types = e.elements().map_or_else(|| vec![e], |types| types.iter().collect());
                ok &= types.into_iter().all(|t| self.struct_info(t).is_some());
                continue;
            }
            let Some(i) = known else {
                let mut d =
                    Diagnostic::error("argument", k.span, format!("R.{} has no argument `{}`", decl.name, k.name));
                d = match nearest(k.name, params.iter().map(|p| p.name)) {
                    Some(n) => d.help(format!("did you mean `{n}`?")),
                    None => d.help(signature(decl)),
                };
                self.diags.push(d);
                ok = false;
                continue;
            };
            if params[i].kind == ParamKind::Variadic {
                match e.elements() {
                    Some(items) => given[i].extend(items),
                    None => given[i].push(e),
                }
                continue;
            }
            if !given[i].is_empty() {
                let _: Option<()> =
                    self.error("argument", k.span, format!("`{}` of R.{} is given twice", k.name, decl.name));
                ok = false;
                continue;
            }
            given[i].push(e);
        }
        for (p, g) in params.iter().zip(&given) {
            let absent = g.is_empty() || matches!(g[0].kind, ExprKind::None) && p.kind == ParamKind::Operand;
            if absent && matches!(p.default, Default::Required) && p.kind != ParamKind::Variadic {
                let d = Diagnostic::error("argument", span, format!("`{}` of R.{} is missing", p.name, decl.name));
                self.diags.push(d.help(signature(decl)));
                ok = false;
            }
        }
        ok.then_some(given)
    }

    /// Has every name that stands alone in `e` a value?
    fn names_are_known(&mut self, e: &Expr<'a>) -> Option<()> {
        match e.as_name() {
            Some(n) if self.names.get(n).is_none() && !matches!(n, "R" | "T" | "I") && n != self.module_name => {
                self.unknown_name(n, e.span)
            }
            _ => e.children().into_iter().try_for_each(|c| self.names_are_known(c)),
        }
    }

    fn operand(&mut self, decl: &'static OpDecl, param: &ParamDecl, e: &Expr<'a>) -> Option<RExpr> {
        self.of_its_type(decl, param, e)?;
        match (&e.kind, param.name) {
            (ExprKind::Str(name), "func") => Some(RExpr::new(RKind::ExternFunc(name.clone(), None), e.span)),
            // TVM takes a plain tuple for a shape.
            (ExprKind::Tuple(_) | ExprKind::List(_), "shape" | "size" | "tir_vars")
                if decl.name != "builtin.alloc_tensor" =>
            {
                Some(RExpr::new(RKind::Shape(self.dims(e)?), e.span))
            }
            (kind, "args") if decl.name.starts_with("call_tir") || decl.name == "call_dps_packed" => {
                let tuple = matches!(kind, ExprKind::Tuple(_) | ExprKind::List(_))
                    || e.called().is_some_and(|n| n == "R.tuple");
                let inner = self.relax_args(e)?;
                Some(if tuple { inner } else { RExpr::new(RKind::Tuple(vec![inner]), e.span) })
            }
            // What closures are invoked with: one value is a tuple of it, and a name stands for no tuple.
            (_, "args") if matches!(decl.name, "invoke_closure" | "invoke_pure_closure") => {
                if let Some(StructInfo::Tuple(_)) = self.part(e) {
                    let d = Diagnostic::error("argument", e.span, "the arguments of a closure are written down here");
                    return self.report(d.help("write them as a tuple: (a, b)"));
                }
                let called = e.called();
                let inner = self.relax(e)?;
                let tuple = matches!(inner.kind(), RKind::Tuple(_)) || called.as_deref() == Some("R.tuple");
                Some(if tuple { inner } else { RExpr::new(RKind::Tuple(vec![inner]), e.span) })
            }
            (_, "on_value" | "off_value") if matches!(e.kind, ExprKind::Float(_)) => self.wide_float(e),
            (_, "x1" | "x2") if whole(e) => {
                let value = match self.num(e)? {
                    Num::Int(v) if fits(DType::I32, v) => int_literal(DType::I32, v),
                    n => self.settle(n),
                };
                Some(RExpr::new(RKind::Prim(value.with_span(e.span)), e.span))
            }
            _ => self.relax(e),
        }
    }

    /// Arguments of a kernel: numbers of Python are float64, as in TVM.
    fn relax_args(&mut self, e: &Expr<'a>) -> Option<RExpr> {
        let floats = |e: &Expr<'a>| matches!(e.kind, ExprKind::Float(_));
        match e.elements() {
            Some(items) if items.iter().any(floats) => {
                let items = items.iter().map(|i| if floats(i) { self.wide_float(i) } else { self.relax(i) });
                let items: Vec<Option<RExpr>> = items.collect();
                Some(RExpr::new(RKind::Tuple(items.into_iter().collect::<Option<_>>()?), e.span))
            }
            _ => self.relax(e),
        }
    }

    fn wide_float(&mut self, e: &Expr<'a>) -> Option<RExpr> {
        Some(RExpr::new(RKind::Prim(self.python_scalar(e)?), e.span))
    }

    /// One type, or a list or tuple of them.
    pub fn struct_infos(&mut self, e: &Expr<'a>) -> Option<Vec<StructInfo>> {
        match e.elements() {
            Some(items) => {
                let all: Vec<Option<StructInfo>> = items.iter().map(|i| self.struct_info(i)).collect();
                all.into_iter().collect()
            }
            None if matches!(e.kind, ExprKind::None) => Some(vec![]),
            None => Some(vec![self.struct_info(e)?]),
        }
    }
}

pub(super) fn operator(name: &str, args: Vec<RExpr>, attrs: Vec<(&str, AttrValue)>, span: Span) -> Option<RExpr> {
    let attrs = Attrs(attrs.into_iter().map(|(k, v)| (k.to_string(), v)).collect());
    let call = Call { callee: Callee::Op(op::lookup(name)?), args, attrs, sinfo_args: vec![] };
    Some(RExpr::new(RKind::Call(call), span))
}

/// `out_ty=R.Tuple(a, b)` states two outputs, as `[a, b]` does.
/// A whole number of Python: as an operand of arithmetic it is int32 where that holds it, as in TVM (`R.prim_value(1)` and
/// dims are int64).
fn whole(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Int(_) => true,
        ExprKind::Unary(_, a) => whole(a),
        ExprKind::Binary(_, a, b) => whole(a) && whole(b),
        _ => false,
    }
}

fn outputs(param: &ParamDecl, infos: Vec<StructInfo>) -> Vec<StructInfo> {
    if param.name == "out_ty" {
        if let [StructInfo::Tuple(fields)] = infos.as_slice() {
            return fields.clone();
        }
    }
    infos
}

fn default_operand(param: &ParamDecl) -> RExpr {
    let kind = match param.default {
        Default::Required | Default::None => RKind::Absent,
        Default::Int(v) => RKind::Prim(PrimExpr::i64(v)),
        Default::Float(v) => RKind::Prim(PrimExpr::f32(v as f32)),
        Default::Bool(v) => RKind::Prim(PrimExpr::bool(v)),
        Default::Str(s) => RKind::Str(s.to_string()),
        Default::Ints(v) => {
            let fields = v.iter().map(|i| RExpr::new(RKind::Prim(PrimExpr::i64(*i)), Span::NONE));
            RKind::Tuple(fields.collect())
        }
    };
    RExpr::new(kind, Span::NONE)
}

fn default_attr(param: &ParamDecl) -> AttrValue {
    match param.default {
        Default::Required | Default::None => AttrValue::None,
        Default::Int(v) => AttrValue::Int(v),
        Default::Float(v) => AttrValue::Float(v),
        Default::Bool(v) => AttrValue::Bool(v),
        Default::Str(s) => AttrValue::Str(s.to_string()),
        Default::Ints(v) => AttrValue::List(v.iter().map(|i| AttrValue::Int(*i)).collect()),
    }
}

/// `R.name(x, axis=..)`, for help texts.
pub(super) fn signature(decl: &OpDecl) -> String {
    let params: Vec<String> = decl
        .params
        .iter()
        .map(|p| match (p.kind, p.default) {
            (ParamKind::Variadic, _) => format!("*{}", p.name),
            (_, Default::Required) => p.name.to_string(),
            _ => format!("{}=..", p.name),
        })
        .collect();
    format!("the operator is R.{}({})", decl.name, params.join(", "))
}
