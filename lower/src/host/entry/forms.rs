//! The forms of an entry for likely sizes (see [`crate::likely`]): bodies of their own, between which one test at the
//! entry chooses.

use super::*;
use crate::host::params::Leaf;
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
    body: Callee,
    /// Variables that the body takes, as the entry has them.
    vars: Vec<PrimExpr>,
    /// Bytes of workspace over the entry's variables, and at most.
    pub total: PrimExpr,
    pub most: Option<u64>,
    regions: Vec<u64>,
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
enum Why {
    /// Some calls.
    Likely,
    /// An image of each call.
    Each,
    /// The same, of tensors that are no results.
    Before,
    /// What follows for all images.
    Rest,
}

fn one(
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
    let planner = Planner::new(typed, facts.clone(), cx.room, &mut cx.checks, &mut cx.kernels);
    let mut plan = planner.plan(f, sig.scope.clone(), sig.bufs.clone())?;
    if cx.parts {
        crate::host::parts::parts(&mut plan, &typed.module, &mut cx.kernels, cx.room);
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
    if why != Why::Before && !alike {
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
    let base = format!("{}_{}__{}", cx.prefix, general.symbol, f.name);
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
        _ => cx.memory.push(memory_use(general.symbol, &sig, &plan, &layout, &mut facts)),
    }
    let total = layout.total.substitute(&map);
    let most = upper_value(&total, general.sig).or_else(|| upper_bound(&total, general.sig, &mut general.sig.facts()));
    let regions = layout.regions.iter().map(|r| r.bytes).collect();
    Ok((Form { when, body: callee, vars, total, most, regions }, sig, results))
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

/// The body of an entry whose images are computed one by one by the function `f`, and its workspace. With `rest` they are
/// not results yet, but that function's last argument.
pub(super) fn each(
    cx: &mut Context,
    typed: &Typed,
    general: &General,
    (f, rest): (&Function, Option<&Function>),
    base: &str,
    layout: &Layout,
) -> Result<(FlatFunc, Layout), Diagnostic> {
    let (form, image, made) = one(cx, typed, general, f, if rest.is_some() { Why::Before } else { Why::Each })?;
    let rest = rest.map(|f| one(cx, typed, general, f, Why::Rest)).transpose()?;
    let (sig, results) = (general.sig, general.results);
    fn dims(l: &Leaf) -> &[PrimExpr] {
        match &l.kind {
            LeafKind::Tensor { dims, .. } => dims,
            _ => &[],
        }
    }
    // The batch of a tensor that has a row for each image.
    let images = |whole: &[PrimExpr], one: &[PrimExpr]| {
        let (whole, one) = (whole.first()?, one.first()?);
        (one.is_int(1) && !whole.is_int(1)).then(|| whole.clone())
    };
    let count = sig.leaves.iter().zip(&image.leaves).find_map(|(all, one)| images(dims(all), dims(one)));
    let count = count.ok_or_else(|| Diagnostic::internal(f.signature_span, "no batch"))?;
    // Bytes of an image.
    let bytes = |dims: &[PrimExpr], one: &[PrimExpr], dtype: DType| match images(dims, one) {
        Some(_) => PrimExpr::product(&dims[1..]) * dtype.bytes() as i64,
        None => PrimExpr::i64(0),
    };
    let (call, workspace, actual) =
        (Var::new("call", DType::HANDLE), Var::new("workspace", DType::HANDLE), Var::new("actual", DType::HANDLE));
    let args: Vec<(Var, PrimExpr)> = sig
        .leaves
        .iter()
        .zip(&image.leaves)
        .filter_map(|(l, one)| match &l.kind {
            LeafKind::Tensor { ptr, dims: all, dtype } => Some((ptr.clone(), bytes(all, dims(one), *dtype))),
            _ => None,
        })
        .collect();
    let image_of = |r: &ResultLeaf| PrimExpr::product(&r.dims[1..]) * r.dtype.bytes() as i64;
    let outs: Vec<(Var, PrimExpr)> =
        results.iter().map(|r| (Var::new(&r.name, DType::HANDLE), image_of(r))).collect();
    // The tensors of all images lie before what the functions work in.
    let (mut before, mut total) = (vec![], PrimExpr::i64(0));
    for r in made.iter().filter(|_| rest.is_some()) {
        let image = image_of(r);
        before.push((Var::new(&r.name, DType::HANDLE), image.clone(), total.clone()));
        total = total + memory::align_up(count.clone() * image);
    }
    let mut params = vec![call.clone(), workspace.clone()];
    params.extend(args.iter().map(|a| a.0.clone()));
    params.extend(sig.body_vars());
    params.extend(outs.iter().map(|o| o.0.clone()));
    params.push(actual.clone());
    let mut b = Builder::new(&mut cx.pool, cx.abi, call.expr());
    let room = workspace.expr().ptr_add(total.clone());
    let tensors: Vec<(Var, PrimExpr)> = before
        .into_iter()
        .map(|(var, bytes, offset)| {
            b.push(FlatStmt::Let { var: var.clone(), value: workspace.expr().ptr_add(offset) });
            (var, bytes)
        })
        .collect();
    b.for_range("image", count, |b, i| {
        let at = |(ptr, bytes): &(Var, PrimExpr)| match bytes.is_int(0) {
            true => ptr.expr(),
            false => ptr.expr().ptr_add(i.clone() * bytes.clone()),
        };
        let mut all = vec![call.expr(), room.clone()];
        all.extend(args.iter().map(at));
        all.extend(form.vars.iter().cloned());
        all.extend(if rest.is_some() { &tensors } else { &outs }.iter().map(at));
        all.push(actual.expr());
        let rc = b.call(form.body.clone(), all);
        b.return_if_failed(rc);
    });
    if let Some((rest, ..)) = &rest {
        let mut all = vec![call.expr(), room];
        all.extend(args.iter().chain(&tensors).map(|(ptr, _)| ptr.expr()));
        all.extend(rest.vars.iter().cloned());
        all.extend(outs.iter().map(|(ptr, _)| ptr.expr()));
        all.push(actual.expr());
        let rc = b.call(rest.body.clone(), all);
        b.return_if_failed(rc);
    }
    b.ret(PrimExpr::i32(0));
    let body = b.finish(format!("{base}__body"), params, Some(DType::I32), Linkage::Local);
    let mut layout = layout.clone();
    layout.total = match rest {
        Some((rest, ..)) => total + form.total.max(rest.total),
        None => form.total,
    };
    for (r, bytes) in layout.regions.iter_mut().zip(form.regions) {
        r.bytes = bytes;
    }
    Ok((body, layout))
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
