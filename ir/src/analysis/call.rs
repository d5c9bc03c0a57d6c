//! The struct info of leaves and calls, for analysis and for passes that make new calls.

use super::{constraints, limits, relate, show, signature, vars};
use crate::attrs::AttrValue;
use crate::diag::Diagnostic;
use crate::module::{Func, IRModule};
use crate::op::{Answer, Compute, ComputeCx, InferCx, ShapeFacts};
use crate::prim::{BinOp, PrimExpr, PrimKind, Var};
use crate::relax::{
    Call, Callee, Expr, ExprKind, FuncInfo, Function, StructInfo, StructInfoMap, TensorInfo, TensorShape,
};
use crate::span::Span;
use crate::sym::{Facts, Look};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What the struct info of an expression depends on. Requirements that stay open are left in `facts`
/// ([`Facts::take_requirements`]).
pub struct Env<'a> {
    pub module: &'a IRModule,
    pub sinfo: &'a StructInfoMap,
    pub facts: &'a mut Facts,
    /// Shape variables in scope: those of a callee's type that are among them are not bound by the call.
    pub scope: &'a HashSet<Var>,
}

/// More terms than any dim of a real model has.
const TERMS: usize = 2_000;

/// Operators whose result has the dims that the call states.
const SHAPED: &[&str] = &["broadcast_to", "call_dps_packed", "call_tir", "full", "ones", "reshape", "zeros"];

impl Env<'_> {
    /// The struct info of an expression in normal form that needs no scope of its own (no `If`, no function).
    pub fn infer(&mut self, e: &Expr) -> Result<StructInfo, Diagnostic> {
        Ok(match e.kind() {
            ExprKind::Constant(c) => StructInfo::tensor(c.shape.iter().map(|d| (*d).into()).collect(), c.dtype),
            ExprKind::Var(v) => match self.sinfo.get(v) {
                Some(s) => s.clone(),
                None => {
                    return Err(Diagnostic::error(
                        "undefined-variable",
                        e.span(),
                        format!("variable `{}` is used before it is bound (well-formedness 3)", v.name()),
                    ))
                }
            },
            ExprKind::GlobalVar(name) => match self.module.get(name) {
                Some(f) => signature::of_global(f),
                None => {
                    return Err(Diagnostic::error(
                        "undefined-function",
                        e.span(),
                        format!("the module has no function `{name}`"),
                    ))
                }
            },
            ExprKind::Tuple(fields) => {
                StructInfo::Tuple(fields.iter().map(|f| self.infer(f)).collect::<Result<_, _>>()?)
            }
            ExprKind::TupleGetItem(t, i) => match self.infer(t)? {
                StructInfo::Tuple(fields) => match fields.get(*i) {
                    Some(s) => s.clone(),
                    None => {
                        return Err(Diagnostic::error(
                            "tuple-index",
                            e.span(),
                            format!("field {i} of a tuple of {} fields", fields.len()),
                        ))
                    }
                },
                other => {
                    return Err(Diagnostic::error(
                        "tuple-index",
                        e.span(),
                        format!("field {i} of a value that is no tuple: {}", show::info(&other)),
                    )
                    .help("R.match_cast gives a value a more precise type"))
                }
            },
            ExprKind::ExternFunc(_, None) => signature::packed(false),
            ExprKind::ExternFunc(_, Some(stated)) => self.extern_type(stated),
            ExprKind::Call(c) => return self.call(c, e.span()),
            ExprKind::Shape(values) => StructInfo::shape(values.clone()),
            ExprKind::Prim(p) => StructInfo::Prim { dtype: p.dtype(), value: Some(p.clone()) },
            ExprKind::Str(_) => StructInfo::Str,
            ExprKind::DType(_) => StructInfo::DType,
            ExprKind::Absent => StructInfo::Object,
            ExprKind::Op(op) => {
                return Err(Diagnostic::error(
                    "operator-value",
                    e.span(),
                    format!("operator R.{} may only be called, it is no value (well-formedness 8)", op.name),
                ))
            }
            ExprKind::Seq(_) | ExprKind::Function(_) | ExprKind::If { .. } => {
                return Err(Diagnostic::internal(e.span(), "struct info of an expression with a scope of its own"))
            }
        })
    }

    pub fn call(&mut self, c: &Call, span: Span) -> Result<StructInfo, Diagnostic> {
        let infos: Vec<StructInfo> =
            c.args.iter().map(|a| self.infer(a).map(|s| self.with_dims(s))).collect::<Result<_, _>>()?;
        match &c.callee {
            Callee::Op(op) => {
                limits::attributes(op, &c.attrs, span)?;
                if op.name.starts_with("call_tir") {
                    self.call_tir(c, &infos, span)?;
                }
                let mut cx = InferCx {
                    op,
                    args: &c.args,
                    infos: &infos,
                    attrs: &c.attrs,
                    sinfo_args: &c.sinfo_args,
                    span,
                    facts: self.facts,
                };
                let info = (op.infer)(&mut cx)?;
                self.bounded(&info, op.name, span)?;
                if SHAPED.contains(&op.name) {
                    self.sizes_stated(c, &infos, op.name, span)?;
                }
                Ok(info)
            }
            Callee::Expr(f) => {
                let name = match f.kind() {
                    ExprKind::GlobalVar(n) | ExprKind::ExternFunc(n, _) => n.clone(),
                    ExprKind::Var(v) => v.name().to_string(),
                    _ => "the function".to_string(),
                };
                match self.infer(f)? {
                    StructInfo::Func(info) => self.apply(&name, &info, c, &infos, span),
                    other => Err(Diagnostic::error(
                        "call",
                        span,
                        format!("`{name}` is called but is no function: {}", show::info(&other)),
                    )
                    .help("R.match_cast gives a value a more precise type")),
                }
            }
        }
    }

    /// The type that an extern function states; what neither its parameters nor the scope know is forgotten.
    fn extern_type(&self, f: &FuncInfo) -> StructInfo {
        let own: HashSet<Var> = vars::lone_vars(f.params.iter().flatten()).into_iter().map(|(v, _)| v).collect();
        let known = |s: &StructInfo| {
            vars::erase(s, &|v| own.contains(v) || self.scope.contains(v), &|v| self.sinfo.contains_key(v))
        };
        let params = f.params.as_ref().map(|params| params.iter().map(known).collect());
        StructInfo::Func(Arc::new(FuncInfo { params, ret: known(&f.ret), ..f.clone() }))
    }

    /// What a call states to be a size is no negative number: proved, refused, or checked.
    fn sizes_stated(&mut self, c: &Call, infos: &[StructInfo], op: &str, span: Span) -> Result<(), Diagnostic> {
        let shapes = infos.iter().filter(|s| matches!(s, StructInfo::Shape { .. }));
        let mut stated: Vec<PrimExpr> = vec![];
        for s in shapes.chain(&c.sinfo_args) {
            vars::each_binding_dim(s, &mut |d, is_dim| {
                if is_dim && d.as_int().is_none() && d.as_var().is_none() && d.dtype().is_int() {
                    stated.push(d.clone());
                }
            });
        }
        for d in stated {
            if natural(&d, self.facts) {
                continue;
            }
            let condition = d.clone().ge(0);
            let message = format!("R.{op}: the dim {} is negative", show::dim(&d));
            match self.facts.prove(&condition) {
                Answer::Yes => {}
                Answer::No => return Err(Diagnostic::error("operator", span, message)),
                Answer::Unknown => self.facts.check_at_run_time(condition, message, span),
            }
        }
        Ok(())
    }

    /// Refuses results with dims of very many terms: each operator may double them, and everything that follows
    /// walks them as trees.
    fn bounded(&mut self, info: &StructInfo, name: &str, span: Span) -> Result<(), Diagnostic> {
        let (mut large, mut beyond) = (false, None);
        vars::each_dim(info, &mut |d, _| {
            large |= d.exceeds(TERMS);
            if d.as_int().is_none() && d.as_var().is_none() && d.vars().is_empty() {
                let mut whole = true;
                d.walk(&mut |n| whole &= n.dtype().is_int());
                beyond = beyond.take().or_else(|| whole.then(|| d.clone()));
            }
        });
        // A number that did not fold.
        if let Some(d) = beyond.filter(|d| self.facts.simplify(d).as_int().is_none()) {
            let message = format!("R.{name}: the dim {} does not fit 64 bits", show::dim(&d));
            return Err(Diagnostic::error("operator", span, message));
        }
        if !large {
            return Ok(());
        }
        Err(Diagnostic::unsupported(
            "dim-size",
            span,
            format!("the dims of R.{name} become formulas of more than {TERMS} terms over the shape variables"),
        )
        .help("name such a dim: R.match_cast to a new shape variable; or fix dims of the inputs (--dim)"))
    }

    /// A tensor whose shape is a variable of known dims has those dims.
    fn with_dims(&self, s: StructInfo) -> StructInfo {
        if let StructInfo::Tensor(TensorInfo { shape: Some(TensorShape::Var(v)), .. }) = &s {
            if let Some(StructInfo::Shape { values: Some(d), .. }) = self.sinfo.get(v) {
                if let StructInfo::Tensor(t) = s {
                    let (shape, ndim) = (Some(TensorShape::Dims(d.clone())), Some(d.len()));
                    return StructInfo::Tensor(TensorInfo { shape, ndim, ..t });
                }
            }
        }
        s
    }

    /// Derivation rule 11: the result of calling a function of this type.
    fn apply(
        &mut self,
        name: &str,
        f: &FuncInfo,
        c: &Call,
        infos: &[StructInfo],
        span: Span,
    ) -> Result<StructInfo, Diagnostic> {
        let Some(params) = &f.params else {
            return Ok(match (f.derive.as_deref(), c.sinfo_args.as_slice()) {
                (Some("empty"), _) => f.ret.clone(),
                (_, []) => StructInfo::Object,
                (_, [one]) => one.clone(),
                (_, several) => StructInfo::Tuple(several.to_vec()),
            });
        };
        if params.len() != infos.len() {
            return Err(Diagnostic::error(
                "call",
                span,
                format!("`{name}` takes {} arguments, {} are given", params.len(), infos.len()),
            )
            .note(format!("its type is {}", show::info(&StructInfo::Func(f.clone().into())))));
        }
        let map = self.bind(params, infos);
        let global = match &c.callee {
            Callee::Expr(e) => match e.kind() {
                ExprKind::GlobalVar(n) => self.module.relax(n),
                _ => None,
            },
            Callee::Op(_) => None,
        };
        if let Some(g) = global {
            self.stated(g, params, c, &map, span)?;
        }
        for (i, (param, arg)) in params.iter().zip(infos).enumerate() {
            let want = vars::substitute(param, &map);
            let what = format!("argument {} of `{name}`", i + 1);
            let at = c.args[i].span();
            let at = if at.is_none() { span } else { at };
            let name_of = |v: &Var| match global {
                Some(g) => constraints::solved_text(g, v.name()).to_string(),
                None => v.name().to_string(),
            };
            let related = self.require(arg, &want, &what, at, || {
                let written = |d: &PrimExpr| match d.as_var() {
                    Some(v) => Var::new(name_of(v), v.dtype()).expr(),
                    None => d.clone(),
                };
                let expected = show::info(&vars::map_dims(param, &mut |d| written(d)));
                format!("`{name}` expects {expected} here, the argument is {}", show::info(arg))
            });
            match related {
                Err(mut d) => {
                    if at != span {
                        d = d.label(span, "in this call");
                    }
                    return Err(origins(param, params, &map, &name_of).into_iter().fold(d, Diagnostic::note));
                }
                Ok(Some(why)) if demands(&want, params, &map) => {
                    let stated = show::info(&vars::map_dims(&want, &mut |d| self.facts.simplify(d)));
                    self.facts.note_look(Look { message: why, stated, span: at });
                }
                Ok(_) => {}
            }
        }
        let own: HashSet<Var> = vars::lone_vars(params).into_iter().map(|(v, _)| v).collect();
        let ret = vars::map_dims(&vars::substitute(&f.ret, &map), &mut |d| self.facts.simplify(d));
        let scope = self.scope;
        Ok(vars::erase(&ret, &|v| !own.contains(v) || scope.contains(v), &|v| self.sinfo.contains_key(v)))
    }

    /// The callee's dims keep their stated divisors, bounds and constraints; `m * 4` has a solution for each argument.
    fn stated(
        &mut self,
        g: &Function,
        params: &[StructInfo],
        c: &Call,
        map: &HashMap<Var, PrimExpr>,
        span: Span,
    ) -> Result<(), Diagnostic> {
        let place = |var: &Var| {
            let mut at = (0, 0);
            for (i, p) in params.iter().enumerate() {
                let mut axis = 0;
                vars::each_binding_dim(p, &mut |d, _| {
                    if d.as_var() == Some(var) {
                        at = (i, axis);
                    }
                    axis += 1;
                });
            }
            at
        };
        let bounds = [
            (crate::attrs::VAR_DIVISOR, "is no multiple of"),
            ("tir_var_lower_bound", "is less than"),
            ("tir_var_upper_bound", "is more than"),
        ];
        for (key, words) in bounds {
            let Some(AttrValue::Dict(entries)) = g.attrs.get(key) else { continue };
            for (n, limit) in entries.iter().filter_map(|(n, v)| Some((n, v.as_int()?))) {
                let Some((var, value)) = map.iter().find(|(v, _)| v.name() == n) else { continue };
                let condition = match key {
                    "tir_var_lower_bound" => value.clone().ge(limit),
                    "tir_var_upper_bound" => value.clone().le(limit),
                    _ => value.clone().floor_mod(limit).eq(0),
                };
                let (i, axis) = place(var);
                let shown = show::dim(value);
                let text = constraints::solved_text(g, n);
                let said = match text == n {
                    true => format!("{n} = {shown} {words} {limit}"),
                    false => format!("{text} = {shown} has no solution"),
                };
                let message = format!("dim {axis} of argument {} of `{}`: {said}", i + 1, g.name);
                let label = format!("{shown} {words} {limit}");
                self.demand(condition, message, label, g, c.args.get(i), span)?;
            }
        }
        let own: Vec<StructInfo> = g.params.iter().filter_map(|p| p.annotation.clone()).collect();
        // A text that is no condition was reported of the callee.
        for s in constraints::of(g, own.iter()).unwrap_or_default() {
            // The callee's variables were renamed for this call: by name they are the same.
            let values: HashMap<Var, PrimExpr> = s
                .condition
                .vars()
                .into_iter()
                .filter_map(|v| {
                    let (_, value) = map.iter().find(|(w, _)| w.name() == v.name())?;
                    Some((v, value.clone()))
                })
                .collect();
            if values.len() < s.condition.vars().len() {
                continue;
            }
            let condition = s.condition.substitute(&values);
            match &s.solves {
                Some((dim, text)) => {
                    let place = map.keys().find(|w| w.name() == dim.name()).map_or((0, 0), place);
                    let shown = values.get(dim).map(show::dim).unwrap_or_default();
                    let what = format!("dim {} of argument {} of `{}`", place.1, place.0 + 1, g.name);
                    let message = format!("{what}: {text} = {shown} has no solution");
                    let label = format!("this dim is {shown}");
                    self.demand(condition, message, label, g, c.args.get(place.0), span)?;
                }
                None => {
                    let mut known: Vec<String> = values
                        .iter()
                        .map(|(v, x)| format!("{} = {}", constraints::solved_text(g, v.name()), show::dim(x)))
                        .collect();
                    known.sort();
                    let message = format!("`{}` demands {}, here {}", g.name, s.text, known.join(", "));
                    self.demand(condition, message, "called here".to_string(), g, None, span)?;
                }
            }
        }
        Ok(())
    }

    /// A condition that a call must meet: proved, refused, or checked.
    fn demand(
        &mut self,
        condition: PrimExpr,
        message: String,
        label: String,
        g: &Function,
        at: Option<&Expr>,
        span: Span,
    ) -> Result<(), Diagnostic> {
        match self.facts.prove(&condition) {
            Answer::Yes => self.facts.note_proved(&condition),
            Answer::No => {
                let at = at.map_or(span, Expr::span);
                let at = if at.is_none() { span } else { at };
                let label = if at == span { "called here".to_string() } else { label };
                let now = show::info(&StructInfo::Func(std::sync::Arc::new(signature::of_function(g))));
                let signature = match constraints::solved_text(g, crate::attrs::SIGNATURE) {
                    "" => now.as_str(),
                    before => before,
                };
                let mut d = Diagnostic::error("argument", at, message).here(label);
                if at != span {
                    d = d.label(span, "in this call");
                }
                return Err(d.note(format!("`{}` is {signature}", g.name)));
            }
            Answer::Unknown => self.facts.check_at_run_time(condition, message, span),
        }
        Ok(())
    }

    /// What is known of dims that data decides: they are at most the dims of the memory that the kernel writes to.
    pub fn sizes(&mut self, c: &Call, out: &StructInfo, span: Span) -> Vec<PrimExpr> {
        let Callee::Op(op) = &c.callee else { return vec![] };
        let Compute::DataDependent(compute) = op.compute else { return vec![] };
        let Ok(infos) = c.args.iter().map(|a| self.infer(a)).collect::<Result<Vec<_>, _>>() else { return vec![] };
        let known = |i: &StructInfo| i.as_tensor().is_none_or(|t| t.dtype.is_some() && t.known_dims().is_some());
        if !infos.iter().all(known) {
            return vec![];
        }
        let cx = ComputeCx { op, args: &c.args, infos: &infos, attrs: &c.attrs, out, span };
        let Ok(prim) = compute(&cx) else { return vec![] };
        let fields = out.as_tuple().map_or(vec![out], |f| f.iter().collect());
        let tensors = |infos: &[StructInfo]| {
            let mut count = 0;
            infos.iter().for_each(|i| vars::each_tensor(i, &mut |_| count += 1));
            count
        };
        let outputs: Vec<_> = prim.buffers().skip(tensors(&infos)).collect();
        let mut conditions = vec![];
        for (field, buffer) in fields.into_iter().zip(outputs) {
            let dims = field.as_tensor().and_then(TensorInfo::known_dims).unwrap_or_default();
            for (axis, (d, most)) in dims.iter().zip(buffer.shape.iter()).enumerate() {
                if op.name == "nonzero" && axis == 0 {
                    // The operand's rank.
                    conditions.push(d.clone().eq(most.clone().cast(d.dtype())));
                    continue;
                }
                let own = |v: &Var| dims.iter().any(|d| d.as_var() == Some(v));
                if d.as_var().is_some() && !most.vars().iter().any(own) {
                    conditions.push(d.clone().le(most.clone().cast(d.dtype())));
                }
            }
        }
        conditions
    }

    /// What the variables of a signature stand for in a call.
    fn bind(&self, params: &[StructInfo], infos: &[StructInfo]) -> HashMap<Var, PrimExpr> {
        let bindable = vars::lone_vars(params).into_iter().map(|(v, _)| v).filter(|v| !self.scope.contains(v));
        let bindable: HashSet<Var> = bindable.collect();
        let mut map = HashMap::new();
        for (p, a) in params.iter().zip(infos) {
            vars::map_vars(p, a, &bindable, &mut map);
        }
        map
    }

    /// Requires that a value of struct info `got` may stand where `want` is wanted; open equalities of dims become
    /// requirements, a kind, rank or dtype that is not known is an error. Returns why it is not known whether the value fits,
    /// where only a look at it decides.
    fn require(
        &mut self,
        got: &StructInfo,
        want: &StructInfo,
        what: &str,
        span: Span,
        label: impl Fn() -> String,
    ) -> Result<Option<String>, Diagnostic> {
        let r = relate::relate(got, want, what, self.facts);
        // Variables of the scope have values: what a function captures is not bound by its parameters.
        let scope = self.scope;
        let captured = relate::captured(got, want, what, self.facts, &|v| scope.contains(v));
        if let Some(why) = r.refused.or(captured.refused) {
            return Err(Diagnostic::error("argument", span, why).here(label()));
        }
        let open = captured.conditions.into_iter().map(|(_, why)| why).next();
        // Dims may stay unknown (materialisation names them); the kind of value must be known.
        if let Some(why) = &r.structural {
            if !same_type(got, want) {
                return Err(Diagnostic::error("argument", span, why.clone())
                    .here(label())
                    .help("R.match_cast gives a value a more precise type"));
            }
        }
        for (condition, message) in r.conditions {
            self.facts.check_at_run_time(condition, message, span);
        }
        Ok(r.structural.or(open))
    }

    /// The arguments and stated outputs of a `call_tir` against the PrimFunc's parameters.
    fn call_tir(&mut self, c: &Call, infos: &[StructInfo], span: Span) -> Result<(), Diagnostic> {
        let name = match c.args.first().map(Expr::kind) {
            Some(ExprKind::GlobalVar(name)) => name,
            _ => return Err(Diagnostic::error("call", span, "the callee must be a PrimFunc of the module")),
        };
        let prim = match self.module.get(name) {
            Some(Func::Prim(f)) => f,
            Some(Func::Relax(_)) => {
                return Err(Diagnostic::error("call", span, format!("`{name}` is no PrimFunc"))
                    .help(format!("call a Relax function as `cls.{name}(..)`")))
            }
            None => {
                return Err(Diagnostic::error(
                    "undefined-function",
                    span,
                    format!("the module has no function `{name}`"),
                ))
            }
        };
        let Some(StructInfo::Tuple(args)) = infos.get(1) else { return Ok(()) };
        let mut given: Vec<StructInfo> = args.iter().map(|s| self.with_dims(s.clone())).collect();
        let inputs = given.len();
        // In place: an output that takes an argument's memory is no parameter of its own.
        match c.attrs.ints("inplace_indices").filter(|_| c.is_op("call_tir_inplace")) {
            Some(inplace) => {
                let new = c.sinfo_args.iter().zip(&inplace).filter(|(_, i)| **i < 0).map(|(s, _)| s.clone());
                given.extend(new);
            }
            None => given.extend(c.sinfo_args.iter().cloned()),
        }
        let outputs = given.len();
        match infos.get(2) {
            Some(StructInfo::Shape { values: Some(v), .. }) => {
                given.extend(v.iter().map(|p| StructInfo::Prim { dtype: p.dtype(), value: Some(p.clone()) }))
            }
            Some(StructInfo::Shape { values: None, .. }) => return Ok(()),
            _ => {}
        }
        let FuncInfo { params: Some(params), .. } = vars::rename(&signature::of_prim_func(prim), &HashSet::new())
        else {
            return Ok(());
        };
        if params.len() != given.len() {
            return Err(Diagnostic::error(
                "call",
                span,
                format!(
                    "PrimFunc `{name}` takes {} parameters, {} are given, outputs included",
                    params.len(),
                    given.len()
                ),
            )
            .label(prim.span, "the PrimFunc"));
        }
        let map = self.bind(&params, &given);
        for (i, (param, got)) in params.iter().zip(&given).enumerate() {
            let what = match i {
                _ if i < inputs => format!("argument {} of `{name}`", i + 1),
                _ if i < outputs => format!("output {} of `{name}`", i - inputs + 1),
                _ => format!("scalar {} of `{name}`", i - outputs + 1),
            };
            let want = vars::substitute(param, &map);
            // What is stated of an output must follow: that some variable happens to be 5 is nothing to state here.
            if let (true, StructInfo::Tensor(g), StructInfo::Tensor(w)) = (i >= inputs && i < outputs, got, &want) {
                let dims = g.known_dims().unwrap_or_default().iter().zip(w.known_dims().unwrap_or_default());
                let simple = |d: &PrimExpr| d.as_int().is_some() || d.as_var().is_some();
                for (g, w) in dims.filter(|(g, w)| simple(g) && simple(w)) {
                    if self.facts.equal(g, w) == Answer::Unknown {
                        return Err(Diagnostic::error(
                            "argument",
                            span,
                            format!("a dim of {what} is {}, {} is stated", show::dim(w), show::dim(g)),
                        )
                        .help("R.match_cast makes a dim what it is believed to be"));
                    }
                }
            }
            self.require(got, &want, &what, span, || {
                format!("the PrimFunc's parameter is {}, it gets {}", show::info(&want), show::info(got))
            })?;
        }
        Ok(())
    }
}

/// Is `e` at least 0 because all that it is made of is?
fn natural(e: &PrimExpr, facts: &mut Facts) -> bool {
    match e.kind() {
        PrimKind::Binary(BinOp::Add | BinOp::Mul | BinOp::Min, a, b) => natural(a, facts) && natural(b, facts),
        PrimKind::Binary(BinOp::Max, a, b) => natural(a, facts) || natural(b, facts),
        PrimKind::Binary(BinOp::FloorDiv, a, b) => b.as_int().is_some_and(|k| k > 0) && natural(a, facts),
        PrimKind::Binary(BinOp::FloorMod, _, b) => b.as_int().is_some_and(|k| k > 0),
        PrimKind::Cast(a) => natural(a, facts),
        PrimKind::Var(_) | PrimKind::Int(_) => facts.interval(e).0.is_some_and(|low| low >= 0),
        _ => false,
    }
}

/// What the variables in `param` are in a call, and where that came from.
fn origins(
    param: &StructInfo,
    params: &[StructInfo],
    map: &HashMap<Var, PrimExpr>,
    name_of: &dyn Fn(&Var) -> String,
) -> Vec<String> {
    let mut used: Vec<Var> = vec![];
    vars::each_binding_dim(param, &mut |d, _| {
        used.extend(d.vars().into_iter().filter(|v| map.contains_key(v)));
    });
    used.dedup();
    let mut out: Vec<String> = vec![];
    for v in used {
        let mut place = None;
        for (i, p) in params.iter().enumerate() {
            let mut axis = 0;
            vars::each_binding_dim(p, &mut |d, _| {
                if d.as_var() == Some(&v) && place.is_none() {
                    place = Some((i, axis));
                }
                axis += 1;
            });
        }
        let (Some((i, axis)), Some(value)) = (place, map.get(&v)) else { continue };
        let said = format!("{} is {}, from dim {axis} of argument {}", name_of(&v), show::dim(value), i + 1);
        if !out.contains(&said) {
            out.push(said);
        }
    }
    out
}

/// Does a parameter ask more of its argument than kind, rank and dtype? A variable of the callee that is to be bound fits
/// any dim, unless the parameters name it twice.
fn demands(want: &StructInfo, params: &[StructInfo], map: &HashMap<Var, PrimExpr>) -> bool {
    let own: HashSet<Var> =
        vars::lone_vars(params).into_iter().map(|(v, _)| v).filter(|v| !map.contains_key(v)).collect();
    let named = |v: &Var| {
        let mut count = 0;
        params.iter().for_each(|p| vars::each_binding_dim(p, &mut |d, _| count += usize::from(d.vars().contains(v))));
        count
    };
    let mut dims = false;
    vars::each_binding_dim(want, &mut |d, _| dims |= !d.as_var().is_some_and(|v| own.contains(v) && named(v) == 1));
    let mut functions = false;
    vars::each_func(want, &mut |_| functions = true);
    dims || functions
}

/// Do both have the same type once struct info is erased: kind, rank and dtype?
fn same_type(got: &StructInfo, want: &StructInfo) -> bool {
    match (got, want) {
        (_, StructInfo::Object) => true,
        (StructInfo::Tensor(g), StructInfo::Tensor(w)) => {
            (w.dtype.is_none() || g.dtype.is_some()) && (w.ndim.is_none() || g.ndim.is_some())
        }
        (StructInfo::Shape { ndim: g, .. }, StructInfo::Shape { ndim: w, .. }) => w.is_none() || g.is_some(),
        (StructInfo::Tuple(g), StructInfo::Tuple(w)) => {
            g.len() == w.len() && g.iter().zip(w).all(|(g, w)| same_type(g, w))
        }
        (StructInfo::Object, _) => false,
        _ => true,
    }
}
