//! Struct info of every variable (relax_spec.md, "Derivation Rules"), with the checks that annotations leave.

use super::births::{born, dim_at, name_dims};
use super::call::Env;
use super::relate::{self, Relation};
use super::vague::Vague;
use super::{constraints, graph::CallGraph, refine, show, signature, solve, vars, Birth, Check, Proved, Typed};
use crate::attrs::{AttrValue, SIGNATURE};
use crate::diag::{Diagnostic, Diagnostics};
use crate::module::{Func, IRModule};
use crate::op::{Answer, Compute, ShapeFacts};
use crate::prim::{BinOp, PrimExpr, Var};
use crate::relax::{
    Binding, BindingBlock, BindingValue, Call, Callee, Expr, ExprKind, FuncInfo, Function, Param, RVar, SeqExpr,
    StructInfo, StructInfoMap,
};
use crate::span::Span;
use crate::sym::{Facts, Look};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

mod branches;
mod purity;

/// Types a module in normal form; functions come out with their results stated.
pub fn module(mut module: IRModule, name_dims: bool, diags: &mut Diagnostics) -> Typed {
    let graph = CallGraph::new(&module);
    let positions: Vec<usize> =
        (0..module.funcs.len()).filter(|i| matches!(module.funcs[*i], Func::Relax(_))).collect();
    let mut sinfo = StructInfoMap::new();
    let mut parts: Vec<Option<Part>> = positions.iter().map(|_| None).collect();
    let mut after: HashMap<String, Vec<PrimExpr>> = HashMap::new();
    for component in &graph.order {
        for &i in component {
            let Some(Func::Relax(f)) = module.funcs.get(positions[i]).cloned() else { continue };
            let mut d = Deriver {
                module: &module,
                sinfo,
                facts: Facts::new(),
                scope: HashSet::new(),
                name_dims,
                context: Context { pure: signature::is_pure(&f), name: f.name.clone() },
                global: &f.name,
                written: constraints::solved_texts(&f),
                locals: HashMap::new(),
                dataflow: false,
                poisoned: HashSet::new(),
                vague: Vague::default(),
                recursive: HashSet::new(),
                after: &after,
                established: vec![],
                inside: 0,
                part: Part::default(),
            };
            for (j, g) in module.relax_funcs().enumerate() {
                if graph.recursive(i, j) {
                    d.recursive.insert(g.name.clone());
                }
            }
            if d.recursive.contains(&f.name) && f.ret.is_none() {
                d.part.diags.push(
                    Diagnostic::error(
                        "missing-annotation",
                        f.signature_span,
                        format!("recursive function `{}` must state its result (well-formedness 7)", f.name),
                    )
                    .help("write `-> TYPE` after the parameters"),
                );
            }
            let typed = d.function(&f, None);
            sinfo = d.sinfo;
            parts[i] = Some(d.part);
            let own = vars::lone_vars(typed.params.iter().filter_map(|p| p.annotation.as_ref()));
            let mut held = d.established;
            held.retain(|c| c.vars().iter().all(|v| own.iter().any(|(o, _)| o == v)));
            after.insert(f.name.clone(), held);
            module.funcs[positions[i]] = Func::Relax(typed);
        }
    }
    let (births, numbers) = (HashMap::new(), HashMap::new());
    let mut typed = Typed { module, sinfo, checks: vec![], looks: vec![], births, numbers, proved: vec![] };
    for part in parts.into_iter().flatten() {
        diags.extend(part.diags);
        typed.checks.extend(part.checks);
        typed.looks.extend(part.looks);
        typed.proved.extend(part.proved);
        typed.births.extend(part.births);
        typed.numbers.extend(part.numbers);
    }
    typed
}

/// What one function contributes.
#[derive(Default)]
struct Part {
    diags: Diagnostics,
    checks: Vec<Check>,
    looks: Vec<Look>,
    births: HashMap<RVar, Vec<Birth>>,
    numbers: HashMap<RVar, Vec<(PrimExpr, i64)>>,
    proved: Vec<Proved>,
}

/// The function that the current expression belongs to.
#[derive(Clone)]
struct Context {
    name: String,
    pure: bool,
}

struct Deriver<'m> {
    module: &'m IRModule,
    sinfo: StructInfoMap,
    facts: Facts,
    /// Shape variables in scope.
    scope: HashSet<Var>,
    /// Give unknown dims names.
    name_dims: bool,
    context: Context,
    /// The global function at work.
    global: &'m str,
    /// What stands for dims of it that were solved, and what they were.
    written: Vec<(String, String)>,
    /// Local functions, by the variables that they are bound to.
    locals: HashMap<RVar, Arc<Function>>,
    dataflow: bool,
    /// Variables whose struct info could not be derived: what uses them says nothing more.
    poisoned: HashSet<RVar>,
    /// Variables that an annotation declares to be any object, although more is known: operators take no such operands.
    vague: Vague,
    /// Globals that are mutually recursive with the current one.
    recursive: HashSet<String>,
    /// What holds of the shape variables of a global's signature when it has returned, by global: those derived before.
    after: &'m HashMap<String, Vec<PrimExpr>>,
    /// Conditions that every run of the current global checks.
    established: Vec<PrimExpr>,
    /// Above 0 in branches and local functions, which need not run.
    inside: usize,
    part: Part,
}

/// Where shape variables are bound, in messages.
const PARAMETER: &str = "the annotation of a parameter";
const CAST: &str = "R.match_cast";

/// A diagnostic was reported, or the cause was reported before.
struct Failed;

impl Deriver<'_> {
    fn report(&mut self, mut d: Diagnostic) -> Failed {
        if !self.written.is_empty() {
            let texts = d.labels.iter_mut().map(|l| &mut l.text).chain(&mut d.notes);
            for text in texts.chain([&mut d.message]) {
                *text = constraints::as_written(&self.written, text);
            }
        }
        self.part.diags.push(d);
        Failed
    }

    fn env(&mut self) -> Env<'_> {
        Env { module: self.module, sinfo: &self.sinfo, facts: &mut self.facts, scope: &self.scope }
    }

    /// A condition that is checked at run time: what follows may rely on it.
    fn checked(&mut self, condition: &PrimExpr) {
        self.facts.assume(condition);
        // A divisor that is 0 makes it false, see [`constraints::guarded`].
        for d in constraints::divisors(condition) {
            self.facts.assume(&d.clone().ne(PrimExpr::int(d.dtype(), 0)));
        }
        self.established(condition);
    }

    fn established(&mut self, condition: &PrimExpr) {
        if self.inside == 0 {
            self.established.push(condition.clone());
        }
    }

    /// What a function checks holds once it has returned.
    fn returned(&mut self, c: &Call) {
        let Callee::Expr(f) = &c.callee else { return };
        let ExprKind::GlobalVar(name) = f.kind() else { return };
        let (Some(g), Some(conditions)) = (self.module.relax(name), self.after.get(name)) else { return };
        if conditions.is_empty() || g.params.len() != c.args.len() {
            return;
        }
        let params: Vec<StructInfo> =
            g.params.iter().map(|p| p.annotation.clone().unwrap_or(StructInfo::Object)).collect();
        let own: HashSet<Var> = vars::lone_vars(&params).into_iter().map(|(v, _)| v).collect();
        let mut map = HashMap::new();
        for (p, a) in params.iter().zip(&c.args) {
            if let Ok(info) = self.env().infer(a) {
                vars::map_vars(p, &info, &own, &mut map);
            }
        }
        for condition in conditions.iter().filter(|c| c.vars().iter().all(|v| map.contains_key(v))) {
            self.checked(&condition.substitute(&map));
        }
    }

    /// Rule 12. `own` is the variable that a local function is bound to.
    fn function(&mut self, f: &Function, own: Option<&RVar>) -> Function {
        let outer_scope = self.scope.clone();
        let outer_context =
            std::mem::replace(&mut self.context, Context { name: f.name.clone(), pure: signature::is_pure(f) });
        let outer_dataflow = std::mem::replace(&mut self.dataflow, false);
        let outer_facts = own.map(|_| self.facts.clone());
        self.inside += usize::from(own.is_some());

        let mut params: Vec<Param> = f.params.clone();
        for p in &mut params {
            if let Some(info) = p.annotation.as_ref().and_then(|a| vars::named_shapes(a, &self.sinfo)) {
                p.annotation = Some(info);
            }
            if self.name_dims {
                let stated = p.annotation.clone().unwrap_or(StructInfo::Object);
                let mut births = vec![];
                p.annotation = Some(name_dims(&stated, &p.var, &mut vec![], &mut births));
            }
            if let Some(info @ StructInfo::Shape { .. }) = &p.annotation {
                self.sinfo.insert(p.var.clone(), info.clone());
            }
        }
        self.bind_params(f, &params);
        if let Some(ret) = &f.ret {
            self.check_scope(ret, f.signature_span, "the declared result", 4);
        }
        if let Some(v) = own {
            // Within its own body a function is called with new shape variables each time.
            let stated = FuncInfo {
                params: Some(params.iter().map(|p| p.annotation.clone().unwrap_or(StructInfo::Object)).collect()),
                ..signature::of_function(f)
            };
            let renamed = vars::rename(&stated, &outer_scope);
            self.sinfo.insert(v.clone(), StructInfo::Func(Arc::new(renamed)));
        }

        let (mut body, info) = self.sequence(&f.body);
        let mut ret = f.ret.clone();
        match (&f.ret, info) {
            (Some(want), Ok(got)) => {
                let what = "the result".to_string();
                let span = body.body.span();
                let r = relate::relate(&got, want, &what, &mut self.facts);
                self.state_result(f, &mut body, &got, want, r, span);
            }
            (None, Ok(got)) => {
                let got = relate::simplify(&got, &mut self.facts);
                let (scope, sinfo) = (self.visible(&params, &outer_scope), &self.sinfo);
                ret = Some(vars::erase(&got, &|v| scope.contains(v), &|v| sinfo.contains_key(v)));
            }
            (_, Err(Failed)) => {}
        }

        self.inside -= usize::from(own.is_some());
        self.scope = outer_scope;
        self.context = outer_context;
        self.dataflow = outer_dataflow;
        if let Some(facts) = outer_facts {
            self.facts = facts;
        }
        Function { params, ret, body: Arc::new(body), ..f.clone() }
    }

    /// Shape variables that a result may mention.
    fn visible(&self, params: &[Param], outer: &HashSet<Var>) -> HashSet<Var> {
        let lone = vars::lone_vars(params.iter().filter_map(|p| p.annotation.as_ref()));
        outer.iter().cloned().chain(lone.into_iter().map(|(v, _)| v)).collect()
    }

    fn bind_params(&mut self, f: &Function, params: &[Param]) {
        for (v, is_dim) in vars::lone_vars(params.iter().filter_map(|p| p.annotation.as_ref())) {
            if self.scope.insert(v.clone()) {
                if !is_dim {
                    self.facts.declare_signed(&v);
                }
                let bound = |key: &str| match f.attrs.get(key) {
                    Some(AttrValue::Dict(entries)) => {
                        entries.iter().find(|(n, _)| n == v.name()).and_then(|(_, b)| b.as_int())
                    }
                    _ => None,
                };
                let (lo, hi) = (bound("tir_var_lower_bound"), bound("tir_var_upper_bound"));
                if let (Some(hi), low) = (hi, lo.unwrap_or(if is_dim { 0 } else { i64::MIN })) {
                    if hi < low {
                        let why = format!("`{}`: {} is at least {low} and at most {hi}", f.name, v.name());
                        let d = Diagnostic::error("shape-constraint", f.signature_span, why);
                        self.report(d.here("no call can meet these bounds"));
                    }
                }
                if lo.is_some() || hi.is_some() {
                    self.facts.declare_bounds(&v, lo, hi);
                }
                if let Some(k) = bound(crate::attrs::VAR_DIVISOR) {
                    self.facts.declare_divisor(&v, k);
                }
            }
        }
        for p in params {
            let info = p.annotation.clone().unwrap_or(StructInfo::Object);
            self.check_scope(&info, p.var.span(), PARAMETER, 5);
            // Dims are what a tensor has: never negative.
            let mut dims = vec![];
            vars::each_binding_dim(&info, &mut |d, is_dim| {
                if is_dim && d.as_var().is_none() && d.as_int().is_none() {
                    dims.push(d.clone());
                }
            });
            for d in dims {
                self.facts.assume(&d.ge(0));
            }
            self.sinfo.insert(p.var.clone(), info);
        }
        match constraints::of(f, params.iter().filter_map(|p| p.annotation.as_ref())) {
            Ok(stated) => stated.iter().for_each(|s| self.state(f, s)),
            Err(d) => drop(self.report(d)),
        }
    }

    /// A condition of the signature is a fact; one that never holds leaves no call.
    fn state(&mut self, f: &Function, s: &constraints::Stated) {
        if self.facts.prove(&s.condition) == Answer::No {
            let why = format!("`{}`: the shape constraint \"{}\" never holds", f.name, s.text);
            self.report(Diagnostic::error("shape-constraint", f.signature_span, why));
        }
        for d in constraints::divisors(&s.condition) {
            self.facts.assume(&PrimExpr::raw_binary(BinOp::Ne, d.clone(), PrimExpr::int(d.dtype(), 0)));
        }
        self.facts.assume(&s.condition);
    }

    /// Criteria 4, 5, 13, 14: shape variables are bound before they are used.
    fn check_scope(&mut self, s: &StructInfo, span: Span, what: &str, criterion: u8) {
        let own: HashSet<Var> = vars::func_vars(s);
        let binds = matches!(what, PARAMETER | CAST);
        let mut missing: Vec<(Vec<Var>, PrimExpr)> = vec![];
        vars::each_dim(s, &mut |d, _| {
            let mut new = d.vars();
            new.retain(|v| !self.scope.contains(v) && !own.contains(v) && !missing.iter().any(|(m, _)| m.contains(v)));
            if !new.is_empty() {
                missing.push((new, d.clone()));
            }
        });
        for (unbound, dim) in missing {
            let at = dim.span();
            let span = if at.is_none() { span } else { at };
            let names: Vec<String> = unbound.iter().map(|v| format!("`{}`", v.name())).collect();
            let (are, they) = match names.len() {
                1 => ("variable", "is used in WHAT before it is"),
                _ => ("variables", "are used in WHAT before they are"),
            };
            let they = they.replace("WHAT", what);
            let message = format!("shape {are} {} {they} bound (well-formedness {criterion})", names.join(", "));
            let mut d = Diagnostic::error("unbound-shape-variable", span, message).help(format!(
                "a variable is bound where it stands alone as a dim of a parameter or of R.match_cast, as in \
                 R.Tensor(({}, ..))",
                unbound[0].name()
            ));
            if binds {
                d = solve::why_not(&dim, &unbound).into_iter().fold(d, Diagnostic::note);
            }
            self.report(d);
            // Once is enough.
            self.scope.extend(unbound);
        }
    }

    /// The declared result as a MatchCast at the end of the function.
    fn state_result(
        &mut self,
        f: &Function,
        body: &mut SeqExpr,
        got: &StructInfo,
        want: &StructInfo,
        r: Relation,
        span: Span,
    ) {
        if let Some(why) = r.refused {
            let d = Diagnostic::error("result", span, why)
                .here(format!("`{}` returns {}", f.name, show::info(got)))
                .label(f.signature_span, format!("the declared result is {}", show::info(want)));
            self.report(d);
            return;
        }
        if r.structural.is_none() && r.conditions.is_empty() {
            return;
        }
        let var = RVar::new("ret", false, span);
        let value = match r.structural {
            Some(message) => {
                let message = format!("`{}`: {message}", f.name);
                self.part.looks.push(Look { message, stated: show::info(want), span });
                BindingValue::MatchCast { value: body.body.clone(), struct_info: want.clone() }
            }
            None => BindingValue::Expr(body.body.clone()),
        };
        for (condition, message) in r.conditions {
            let message = format!("`{}`: {message}", f.name);
            self.established(&condition);
            self.part.checks.push(Check { before: var.clone(), condition, message, span });
        }
        self.sinfo.insert(var.clone(), relate::meet(got, want));
        let binding = Binding { var: var.clone(), annotation: Some(want.clone()), value, span };
        match body.blocks.last_mut() {
            Some(last) if !last.dataflow => last.bindings.push(binding),
            _ => body.blocks.push(BindingBlock { dataflow: false, bindings: vec![binding], span }),
        }
        body.body = Expr::new(ExprKind::Var(var), span);
    }

    /// Rule 7. Shape variables that are born inside stay in scope: the caller decides what leaves.
    fn sequence(&mut self, seq: &SeqExpr) -> (SeqExpr, Result<StructInfo, Failed>) {
        let mut blocks = vec![];
        let outer = self.dataflow;
        for block in &seq.blocks {
            self.dataflow = block.dataflow;
            let mut bindings = Vec::with_capacity(block.bindings.len());
            for b in &block.bindings {
                self.binding(b, &mut bindings);
            }
            blocks.push(BindingBlock { bindings, ..block.clone() });
        }
        self.dataflow = outer;
        let info = self.leaf(&seq.body);
        (SeqExpr { blocks, body: seq.body.clone() }, info)
    }

    fn leaf(&mut self, e: &Expr) -> Result<StructInfo, Failed> {
        if self.uses_poisoned(e) {
            return Err(Failed);
        }
        self.check_dims(e);
        self.env().infer(e).map_err(|d| self.report(d))
    }

    /// Shape variables used as values are in scope.
    fn check_dims(&mut self, e: &Expr) {
        match e.kind() {
            ExprKind::Shape(v) => self.check_scope(&StructInfo::shape(v.clone()), e.span(), "a shape", 5),
            ExprKind::Prim(p) if p.as_int().is_none() => {
                let s = StructInfo::Prim { dtype: p.dtype(), value: Some(p.clone()) };
                self.check_scope(&s, e.span(), "a scalar", 5)
            }
            ExprKind::Tuple(f) => f.iter().for_each(|f| self.check_dims(f)),
            _ => {}
        }
    }

    fn uses_poisoned(&self, e: &Expr) -> bool {
        if self.poisoned.is_empty() {
            return false;
        }
        match e.kind() {
            ExprKind::Var(v) => self.poisoned.contains(v),
            ExprKind::Tuple(f) => f.iter().any(|f| self.uses_poisoned(f)),
            ExprKind::TupleGetItem(t, _) => self.uses_poisoned(t),
            ExprKind::Call(c) => {
                c.args.iter().any(|a| self.uses_poisoned(a))
                    || matches!(&c.callee, Callee::Expr(f) if self.uses_poisoned(f))
            }
            ExprKind::If { cond, .. } => self.uses_poisoned(cond),
            _ => false,
        }
    }

    /// Rule 8.
    fn binding(&mut self, b: &Binding, out: &mut Vec<Binding>) {
        let resolved = vars::bound_shapes(b, &self.sinfo);
        let b = resolved.as_ref().unwrap_or(b);
        match &b.value {
            BindingValue::MatchCast { value, struct_info } => self.match_cast(b, value, struct_info, out),
            BindingValue::Expr(e) => {
                if let Some(live) = self.live_branch(e) {
                    live.blocks.iter().flat_map(|b| &b.bindings).for_each(|inner| self.binding(inner, out));
                    let value = BindingValue::Expr(live.body.clone());
                    return self.binding(&Binding { value, ..b.clone() }, out);
                }
                let (e, info) = self.value(e, &b.var);
                if let Ok(info) = &info {
                    self.statement(b, e.span(), info);
                }
                let proved = self.facts.take_proved().into_iter();
                self.part.proved.extend(proved.map(|condition| Proved { condition, span: b.span }));
                self.part.looks.extend(self.facts.take_looks());
                for r in self.facts.take_requirements() {
                    self.established(&r.condition);
                    let check =
                        Check { before: b.var.clone(), condition: r.condition, message: r.message, span: r.span };
                    self.part.checks.push(check);
                }
                if let Some(a) = &b.annotation {
                    self.check_scope(a, b.span, "an annotation", 13);
                }
                match (info, &b.annotation) {
                    (Err(Failed), None) => {
                        self.poisoned.insert(b.var.clone());
                        out.push(Binding { value: BindingValue::Expr(e), ..b.clone() });
                    }
                    (Err(Failed), Some(a)) => {
                        self.sinfo.insert(b.var.clone(), a.clone());
                        out.push(Binding { value: BindingValue::Expr(e), ..b.clone() });
                    }
                    (Ok(info), None) => {
                        self.vague.bind(&b.var, None, &e, &info);
                        let info = self.refined(&b.var, info, &e);
                        self.define_sized(&b.var, info, &e);
                        out.push(Binding { value: BindingValue::Expr(e), ..b.clone() });
                    }
                    (Ok(info), Some(a)) => self.annotated(b, e, info, &a.clone(), out),
                }
            }
        }
    }

    /// An expression that is a statement of its own has the empty tuple for its value.
    fn statement(&mut self, b: &Binding, at: Span, info: &StructInfo) {
        let bare = b.var.name() == "_" && b.var.span() == b.span && !b.span.is_none();
        let unit = matches!(info, StructInfo::Tuple(f) if f.is_empty());
        if bare && !unit {
            let d = Diagnostic::error("unused-value", at, format!("nothing uses this value, {}", show::info(info)));
            self.report(d.help("bind it: `_ = ..`"));
        }
    }

    /// The struct info of a call's result with the numbers that its dims are known to be; those of its operands are noted.
    fn refined(&mut self, var: &RVar, info: StructInfo, e: &Expr) -> StructInfo {
        let ExprKind::Call(c) = e.kind() else { return info };
        if !self.name_dims || c.op().is_none() {
            return info;
        }
        let operands: Vec<StructInfo> = c.args.iter().filter_map(|a| self.env().infer(a).ok()).collect();
        let known = refine::numbers(&operands, &mut self.facts);
        if !known.is_empty() {
            self.part.numbers.insert(var.clone(), known);
        }
        refine::refined(&info, &mut self.facts)
    }

    /// As [`Deriver::define`], with what is known of the dims that data decides.
    fn define_sized(&mut self, var: &RVar, info: StructInfo, e: &Expr) {
        let op = match e.kind() {
            ExprKind::Call(c) if self.name_dims => c.op().filter(|o| matches!(o.compute, Compute::DataDependent(_))),
            _ => None,
        };
        let (Some(_), ExprKind::Call(c)) = (op, e.kind()) else { return self.define(var, info) };
        self.define(var, info);
        let Some(named) = self.sinfo.get(var).cloned() else { return };
        for condition in self.env().sizes(c, &named, e.span()) {
            self.facts.assume(&condition);
        }
        for b in self.part.births.get_mut(var).into_iter().flatten() {
            b.known = Some(self.facts.simplify(&b.var.expr())).filter(|d| d.as_int().is_some());
        }
    }

    /// The struct info of a variable that was just bound; with names for its dims when asked for.
    fn define(&mut self, var: &RVar, info: StructInfo) {
        let info = if self.name_dims {
            let mut births = vec![];
            let named = name_dims(&info, var, &mut vec![], &mut births);
            if !births.is_empty() {
                self.scope.extend(births.iter().map(|b| b.var.clone()));
                // A scalar may be negative.
                for (v, _) in vars::lone_vars([&named])
                    .into_iter()
                    .filter(|(v, is_dim)| !is_dim && births.iter().any(|b| b.var == *v))
                {
                    self.facts.declare_signed(&v);
                }
                self.part.births.entry(var.clone()).or_default().extend(births);
            }
            named
        } else {
            info
        };
        self.sinfo.insert(var.clone(), info);
    }

    fn annotated(&mut self, b: &Binding, e: Expr, info: StructInfo, a: &StructInfo, out: &mut Vec<Binding>) {
        let what = format!("`{}`", b.var.name());
        let r = relate::relate(&info, a, &what, &mut self.facts);
        if let Some(why) = r.refused {
            let d = Diagnostic::error("annotation", b.span, why)
                .here(format!("the annotation says {}", show::info(a)))
                .label(e.span(), format!("the value is {}", show::info(&info)));
            self.report(d);
            self.sinfo.insert(b.var.clone(), a.clone());
            out.push(Binding { value: BindingValue::Expr(e), ..b.clone() });
            return;
        }
        let span = b.span;
        for (condition, message) in r.conditions {
            self.checked(&condition);
            self.part.checks.push(Check { before: b.var.clone(), condition, message, span });
        }
        self.vague.bind(&b.var, Some(a), &e, &info);
        if let Some(message) = r.structural {
            self.part.looks.push(Look { message, stated: show::info(a), span });
            let value = RVar::new(b.var.name(), b.var.is_dataflow(), b.var.span());
            self.define(&value, info.clone());
            let known = self.sinfo.get(&value).cloned().unwrap_or(info);
            let expr = Expr::new(ExprKind::Var(value.clone()), e.span());
            out.push(Binding { var: value, annotation: None, value: BindingValue::Expr(e), span });
            // With names for its dims the value may need no more than conditions.
            let r = relate::relate(&known, a, &what, &mut self.facts);
            let more = if r.structural.is_some() {
                BindingValue::MatchCast { value: expr, struct_info: a.clone() }
            } else {
                BindingValue::Expr(expr)
            };
            for (condition, message) in r.conditions {
                self.checked(&condition);
                self.part.checks.push(Check { before: b.var.clone(), condition, message, span });
            }
            self.define(&b.var, relate::meet(&known, a));
            out.push(Binding { value: more, ..b.clone() });
            return;
        }
        let info = self.refined(&b.var, relate::meet(&info, a), &e);
        self.define(&b.var, info);
        out.push(Binding { value: BindingValue::Expr(e), ..b.clone() });
    }

    /// A MatchCast: new shape variables are born, the rest must match.
    fn match_cast(&mut self, b: &Binding, value: &Expr, want: &StructInfo, out: &mut Vec<Binding>) {
        let got = self.leaf(value);
        let mut births = vec![];
        born(want, &self.scope, &mut vec![], &mut births);
        if let Ok(got) = &got {
            for birth in &mut births {
                birth.known = dim_at(got, &birth.path, birth.axis);
            }
        }
        for birth in &births {
            self.scope.insert(birth.var.clone());
            if let Some(known) = &birth.known {
                self.facts.define(&birth.var, known);
            }
        }
        self.check_scope(want, b.span, CAST, 5);
        if let Some(a) = &b.annotation {
            self.check_scope(a, b.span, "an annotation", 13);
        }
        if let Ok(got) = got {
            let r = relate::relate_cast(&got, want, "the value", &mut self.facts);
            let fails = r.refused.is_some();
            if let Some(why) = r.refused {
                let f = self.module.relax(self.global);
                let why = f.and_then(|f| solve::unsolvable(f, &got, want, &mut self.facts)).unwrap_or(why);
                let known = vars::map_dims(&got, &mut |d| self.facts.simplify(d));
                let casts = f.map(constraints::solved_casts).unwrap_or_default();
                let cast = constraints::as_written(&casts, &show::info(want));
                let message = format!("this cast always fails: {why}");
                // What no call needs to reach is no error: it fails where it runs.
                let d = match self.inside {
                    0 => Diagnostic::error("match-cast", b.span, message),
                    _ => Diagnostic::warning("match-cast", b.span, message),
                };
                let here = format!("cast to {cast}");
                self.report(d.here(here).label(value.span(), format!("the value is {}", show::info(&known))));
            }
            for (condition, _) in r.conditions {
                self.facts.assume(&condition);
                // In a dataflow block a cast that nothing uses need not run.
                if !self.dataflow {
                    self.established(&condition);
                }
            }
            self.vague.state(&b.var, Some(want), &got);
            self.define(&b.var, if fails { want.clone() } else { relate::cast(&got, want) });
        } else {
            self.sinfo.insert(b.var.clone(), want.clone());
        }
        if !births.is_empty() {
            self.part.births.entry(b.var.clone()).or_default().extend(births);
        }
        if let (Some(a), Some(info)) = (&b.annotation, self.sinfo.get(&b.var).cloned()) {
            let r = relate::relate(&info, a, &format!("`{}`", b.var.name()), &mut self.facts);
            let vague = || relate::relate(a, want, "", &mut self.facts.clone()).structural.is_some();
            let why =
                r.refused.or_else(|| vague().then(|| "the annotation of a cast says less than the cast".to_string()));
            if let Some(why) = why {
                let d = Diagnostic::error("annotation", b.span, why).here(format!(
                    "the annotation says {}, the cast {}",
                    show::info(a),
                    show::info(want)
                ));
                self.report(d);
            }
        }
        let cast = BindingValue::MatchCast { value: value.clone(), struct_info: want.clone() };
        out.push(Binding { value: cast, ..b.clone() });
    }

    /// A bound value: rebuilt where it holds scopes of its own.
    fn value(&mut self, e: &Expr, var: &RVar) -> (Expr, Result<StructInfo, Failed>) {
        match e.kind() {
            ExprKind::If { cond, then, otherwise } => self.branches(e, cond, then, otherwise),
            ExprKind::Function(f) => {
                if !self.poisoned.is_empty() && f.bindings().next().is_none() && self.uses_poisoned(&f.body.body) {
                    return (e.clone(), Err(Failed));
                }
                let typed = self.function(f, Some(var));
                let info = StructInfo::Func(Arc::new(signature::of_function(&typed)));
                let typed = Arc::new(typed);
                self.locals.insert(var.clone(), typed.clone());
                (Expr::new(ExprKind::Function(typed), e.span()), Ok(info))
            }
            ExprKind::Call(c) => {
                if self.uses_poisoned(e) {
                    return (e.clone(), Err(Failed));
                }
                c.args.iter().for_each(|a| self.check_dims(a));
                for s in &c.sinfo_args {
                    self.check_scope(s, e.span(), "a type argument", 13);
                }
                if let Some(d) = self.vague.operand(c, e.span()) {
                    self.report(d);
                    return (e.clone(), Err(Failed));
                }
                let info = self.env().call(c, e.span());
                if let Some(d) = info.as_ref().ok().and_then(|_| self.unsolvable(c, e.span())) {
                    self.report(d);
                    return (e.clone(), Err(Failed));
                }
                self.check_purity(c, e.span());
                if info.is_ok() && c.is_op("assert_op") {
                    self.asserted(c);
                }
                if info.is_ok() {
                    self.returned(c);
                }
                (e.clone(), info.map_err(|d| self.report(d)))
            }
            _ => {
                if let Some(f) = e.as_var().and_then(|v| self.locals.get(v)).cloned() {
                    self.locals.insert(var.clone(), f);
                }
                if let ExprKind::ExternFunc(_, Some(f)) = e.kind() {
                    self.check_scope(&StructInfo::Func(f.clone()), e.span(), "the type of a function", 13);
                }
                let info = match self.vague.field(e) {
                    Some(d) => Err(self.report(d)),
                    None => self.leaf(e),
                };
                (e.clone(), info)
            }
        }
    }

    /// A call of a local function with a dim that its signature has no solution for.
    fn unsolvable(&mut self, c: &Call, span: Span) -> Option<Diagnostic> {
        let Callee::Expr(callee) = &c.callee else { return None };
        let f = self.locals.get(callee.as_var()?)?.clone();
        let infos = c.args.iter().map(|a| self.env().infer(a).ok()).collect::<Option<Vec<_>>>()?;
        let (i, why) = solve::unsolvable_call(self.module.relax(self.global)?, &f, &infos, &mut self.env())?;
        let d = Diagnostic::error("argument", c.args[i].span(), why).label(span, "in this call");
        Some(d.note(format!("`{}` is {}", f.name, constraints::solved_text(&f, SIGNATURE))))
    }

    /// What `R.assert_op` says of shape variables is known after it.
    fn asserted(&mut self, c: &Call) {
        let condition = c.args.first().and_then(|a| self.env().infer(a).ok());
        if let Some(StructInfo::Prim { value: Some(v), .. }) = condition {
            self.checked(&v);
        }
    }
}
