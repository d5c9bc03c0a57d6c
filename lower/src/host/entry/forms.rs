//! The forms of an entry for likely sizes (see [`crate::likely`]): bodies of their own, between which one test at the
//! entry chooses.

use super::*;
use crate::host::checks::Checks;
use crate::likely;
use relax_ir::prim::text;
use relax_ir::program::FormInfo;

/// Bytes of weights that all forms together may add, beside the share that the size budget grants.
const FREE: u64 = 300_000;

/// A form that was compiled.
pub(super) struct Form {
    /// Over the variables of the entry's signature.
    when: PrimExpr,
    pub body: Callee,
    /// Variables that the body takes, as the entry has them.
    pub vars: Vec<PrimExpr>,
    /// Bytes of workspace over the entry's variables, and at most.
    pub total: PrimExpr,
    pub most: Option<u64>,
    pub regions: Vec<u64>,
    /// Calls from which on several threads are worth it.
    pub least: i64,
}

/// What the general form of the entry turned out to be.
pub(super) struct General<'a> {
    pub f: &'a Function,
    pub symbol: &'a str,
    pub sig: &'a Signature,
    pub results: &'a [ResultLeaf],
}

/// Compiles the forms of an entry; one that cannot be is left out, with a warning.
pub(super) fn compile(cx: &mut Context, typed: &Typed, general: &General) -> Vec<Form> {
    let mut out = vec![];
    for f in likely::of(&typed.module, &general.f.name) {
        let (checks, kernels, funcs) = (cx.checks.len(), cx.kernels.len(), cx.funcs.len());
        match one(cx, typed, general, f, Why::Likely) {
            Ok((form, ..)) => out.push(form),
            Err(d) => {
                cx.checks.truncate(checks);
                cx.kernels.truncate(kernels);
                cx.funcs.truncate(funcs);
                let mut left = Diagnostic::warning(
                    "likely",
                    f.signature_span,
                    format!(
                        "{}: no code of its own for {}: {}",
                        general.f.name,
                        likely::when(f).join(" and "),
                        d.message
                    ),
                );
                left.help = d.help;
                cx.warnings.push(left);
            }
        }
    }
    out
}

/// What a form is for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Why {
    /// Some calls.
    Likely,
    /// An image of each call.
    Each,
    /// The same, of tensors that are no results.
    Before,
    /// An image of each call, by one thread.
    Alone,
    /// What follows for all images.
    Rest,
}

pub(super) fn one(
    cx: &mut Context,
    typed: &Typed,
    general: &General,
    f: &Function,
    why: Why,
) -> Result<(Form, Signature, Vec<ResultLeaf>), Diagnostic> {
    let other = |what: &str| Diagnostic::unsupported("likely", f.signature_span, what.to_string());
    // The entry has checked the arguments.
    let mut sig = Signature::new(f, &typed.sinfo, &mut Checks::default(), cx.uncallable)?;
    let mut facts = sig.facts();
    let room = match why {
        Why::Alone => crate::threads::Room { threads: 1, ..cx.room },
        _ => cx.room,
    };
    let planner = Planner::new(typed, facts.clone(), room, &mut cx.checks, &mut cx.kernels);
    let mut plan = planner.plan(f, sig.scope.clone(), sig.bufs.clone())?;
    if cx.parts {
        crate::host::parts::parts(&mut plan, &typed.module, &mut cx.kernels, room);
    }
    sig.late = plan.late.clone();
    let map = same_dims(&sig, general.sig);
    let layout = if cx.regions.is_empty() {
        memory::layout(&plan.bufs, &plan.steps, &sig.dims, &mut facts)
    } else {
        let kernel = |name: &str| match typed.module.get(name) {
            Some(relax_ir::Func::Prim(p)) => Some(p.clone()),
            _ => cx.kernels.iter().find(|k| k.name == name).cloned(),
        };
        let upper = |e: &PrimExpr| upper_value(&e.substitute(&map), general.sig);
        regions::layout(&plan.bufs, &plan.steps, &cx.regions, &kernel, &upper, cx.abi.pointer)?
    };
    if plan.most(&mut facts).told(&layout.total) {
        return Err(other("an intermediate tensor has a dim that comes from data and has no bound"));
    }
    let results = result_leaves(f, &plan, &mut facts);
    let same = |(a, b): (&ResultLeaf, &ResultLeaf)| {
        (a.open, a.data_dependent(), a.dtype, a.dims.len(), a.passed.is_some())
            == (b.open, b.data_dependent(), b.dtype, b.dims.len(), b.passed.is_some())
    };
    let alike = results.len() == general.results.len() && results.iter().zip(general.results).all(same);
    if !matches!(why, Why::Before | Why::Alone) && !alike {
        return Err(other("its results are not laid out as those of the general form"));
    }
    let vars: Option<Vec<PrimExpr>> = sig.body_vars().iter().map(|v| map.get(v).cloned()).collect();
    let vars = vars.ok_or_else(|| other("its arguments are not laid out as those of the general form"))?;
    let lookup = |name: &str| general.sig.vars.iter().find(|v| v.name() == name).map(Var::expr);
    let mut when = PrimExpr::bool(true);
    for t in likely::when(f) {
        let c = text::condition(&t, &lookup).map_err(|e| Diagnostic::internal(f.signature_span, e))?;
        when = if when.is_int(1) { c } else { when.and(c) };
    }

    let data_bytes = match why {
        Why::Likely => afford(cx, &plan)?,
        _ => 0,
    };
    let alone = if why == Why::Alone { "_alone" } else { "" };
    let base = format!("{}_{}__{}{alone}", cx.prefix, general.symbol, f.name);
    let body = body_function(cx, &base, &sig, &plan, &layout, &results, Part::Whole);
    let callee = callee_of(&body);
    cx.funcs.push(body);
    match why {
        Why::Likely => {
            cx.form_bytes += data_bytes;
            cx.forms.push(FormInfo {
                entry: general.symbol.to_string(),
                when: likely::when(f).join(" and "),
                body: callee.name.clone(),
                kernels: vec![],
                data_bytes,
                code_bytes: None,
            });
        }
        Why::Alone => drop(cx.alone.insert(callee.name.clone())),
        _ => cx.memory.push(memory_use(general.symbol, &sig, &plan, &layout, &mut facts)),
    }
    let total = layout.total.substitute(&map);
    let most = upper_value(&total, general.sig).or_else(|| upper_bound(&total, general.sig, &mut general.sig.facts()));
    let regions = layout.regions.iter().map(|r| r.bytes).collect();
    let least = match why {
        Why::Alone if !cx.share_all => {
            let mut names = vec![];
            called_kernels(&plan.steps, &mut names);
            let own = cx.kernels.iter().filter(|k| names.contains(&k.name));
            let kernels = names.iter().filter_map(|name| match typed.module.get(name) {
                Some(relax_ir::Func::Prim(p)) => Some(p),
                _ => None,
            });
            crate::threads::least_calls(kernels.chain(own))
        }
        _ => 1,
    };
    Ok((Form { when, body: callee, vars, total, most, regions, least }, sig, results))
}

/// The bytes of weights that a form adds.
fn afford(cx: &Context, plan: &Plan) -> Result<u64, Diagnostic> {
    let constants = plan.bufs.iter().filter_map(|b| match &b.place {
        Place::Constant(c) => Some(c),
        _ => None,
    });
    let data_bytes = cx.constants.missing(constants);
    let granted = cx.size_budget;
    let base = cx.constants.bytes() - cx.form_bytes;
    let most = (base as f64 * (granted - 1.0).max(0.0)) as u64 + FREE;
    if cx.form_bytes + data_bytes > most {
        let factor = ((cx.form_bytes + data_bytes) as f64 / base.max(1) as f64 + 1.0) * 100.0;
        let what =
            format!("weights in another order take {data_bytes} bytes, more than --size-budget {granted} grants");
        let d = Diagnostic::unsupported("likely", Span::NONE, what);
        return Err(d.help(format!("--size-budget {:.2} makes room for them", factor.ceil() / 100.0)));
    }
    Ok(data_bytes)
}

/// The variables of a form's signature as the general one has them.
fn same_dims(form: &Signature, general: &Signature) -> HashMap<Var, PrimExpr> {
    let mut map = HashMap::new();
    let mut pair = |a: &PrimExpr, b: &PrimExpr| {
        if let Some(v) = a.as_var() {
            map.entry(v.clone()).or_insert_with(|| b.clone());
        }
    };
    for (a, b) in form.leaves.iter().zip(&general.leaves) {
        match (&a.kind, &b.kind) {
            (LeafKind::Tensor { dims: a, .. }, LeafKind::Tensor { dims: b, .. })
            | (LeafKind::Shape { values: a }, LeafKind::Shape { values: b }) => {
                a.iter().zip(b).for_each(|(a, b)| pair(a, b))
            }
            (LeafKind::Scalar { var: a, .. }, LeafKind::Scalar { var: b, .. }) => pair(&a.expr(), &b.expr()),
            (LeafKind::Unranked { ndim: a, dtype_word: c, .. }, LeafKind::Unranked { ndim: b, dtype_word: d, .. }) => {
                pair(&a.expr(), &b.expr());
                pair(&c.expr(), &d.expr());
            }
            _ => {}
        }
    }
    for a in &form.late {
        if let Some(b) = general.late.iter().find(|b| (a.leaf, a.rank, a.axis) == (b.leaf, b.rank, b.axis)) {
            pair(&a.var.expr(), &b.var.expr());
        }
    }
    map
}

/// The workspace of a call, whichever form it takes.
pub(super) fn room(layout: &Layout, forms: &[Form]) -> Layout {
    let mut out = layout.clone();
    if layout.regions.is_empty() {
        // The first form that fits is called, so its size goes outermost.
        for f in forms.iter().rev() {
            let values = values(&f.when);
            let general = layout.total.substitute(&values);
            let enough = match (f.total.substitute(&values).as_int(), general.as_int()) {
                (Some(form), Some(general)) => form <= general,
                _ => f.total == layout.total,
            };
            if !enough || out.total != layout.total {
                out.total = f.when.clone().select(f.total.clone(), out.total);
            }
        }
    }
    for f in forms {
        for (r, bytes) in out.regions.iter_mut().zip(&f.regions) {
            r.bytes = r.bytes.max(*bytes);
        }
    }
    out
}

/// The numbers that a conjunction gives variables.
fn values(when: &PrimExpr) -> HashMap<Var, PrimExpr> {
    let mut out = HashMap::new();
    when.walk(&mut |e| {
        if let PrimKind::Binary(BinOp::Eq, a, b) = e.kind() {
            if let (Some(v), Some(_)) = (a.as_var(), b.as_int()) {
                out.insert(v.clone(), b.clone());
            }
        }
    });
    out
}

/// Calls the first form that fits the arguments, else `general`. `args` has what all bodies take before and after the
/// variables.
pub(super) fn call(
    b: &mut Builder,
    forms: &[Form],
    general: (&Callee, Vec<PrimExpr>),
    args: (&[PrimExpr], &[PrimExpr]),
) -> PrimExpr {
    fn with(vars: &[PrimExpr], (before, after): (&[PrimExpr], &[PrimExpr])) -> Vec<PrimExpr> {
        before.iter().chain(vars).chain(after).cloned().collect()
    }
    fn choose(
        b: &mut Builder,
        rc: &Var,
        forms: &[Form],
        general: &(&Callee, Vec<PrimExpr>),
        args: (&[PrimExpr], &[PrimExpr]),
    ) {
        let Some((first, others)) = forms.split_first() else {
            let r = b.call(general.0.clone(), with(&general.1, args));
            return b.assign(rc, r);
        };
        let then = b.nested(|b| {
            let r = b.call(first.body.clone(), with(&first.vars, args));
            b.assign(rc, r);
        });
        let otherwise = b.nested(|b| choose(b, rc, others, general, args));
        b.push(FlatStmt::If { cond: first.when.clone(), then, otherwise });
    }
    if forms.is_empty() {
        return b.call(general.0.clone(), with(&general.1, args));
    }
    let rc = b.local("rc", PrimExpr::i32(0));
    choose(b, &rc, forms, &general, args);
    rc.expr()
}

fn called_kernels(steps: &[Step], out: &mut Vec<String>) {
    for s in steps {
        match s {
            Step::Kernel { kernel, .. } => out.push(kernel.clone()),
            Step::If { then, otherwise, .. } => {
                called_kernels(then, out);
                called_kernels(otherwise, out);
            }
            _ => {}
        }
    }
}
