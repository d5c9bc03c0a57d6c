//! The functions of one exported Relax function: the body, the packed entry, shape inference, the workspace size and
//! the typed C entries (see `relax_ir::program::Program` for the symbols).

mod forms;
mod images;
mod room;
mod workspace;

use super::body::Body;
use super::build::{address_of, local_callee, null, Builder, Failure, Pool};
use super::check_tensor::{self, dtype_word, Checked};
use super::memory::{self, Layout};
use super::params::{LeafKind, Signature};
use super::plan::{Plan, Planner};
use super::regions;
use super::value::*;
use super::{Context, Stored};
use relax_ir::abi::AbiLayout;
use relax_ir::analysis::Typed;
use relax_ir::flat::{Callee, FlatFunc, FlatStmt, Linkage};
use relax_ir::op::{Answer, ShapeFacts};
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::program::{code, value_check, BufferUse, DimStated, Entry, EntryDim, EntryKind, EntryValue, MemoryUse};
use relax_ir::relax::{Function, StructInfo};
use relax_ir::sym::Facts;
use relax_ir::{DType, Diagnostic, Fault, PrimExpr, Span, Var};
use std::collections::{HashMap, HashSet};
use workspace::with_workspace;

/// A flattened result.
struct ResultLeaf {
    name: String,
    dtype: DType,
    /// Over the entry's variables and those read from data.
    dims: Vec<PrimExpr>,
    /// Upper bounds over the entry's variables.
    bounds: Vec<PrimExpr>,
    kind: EntryKind,
    text: String,
    /// An unranked parameter passed on as it is: its leaf.
    passed: Option<usize>,
    /// Some dim is read from data and has no bound: the caller learns it from `_infer`, which runs what it takes.
    open: bool,
}

impl ResultLeaf {
    /// Do the dims that the call leaves differ from those that its arguments' shapes alone tell?
    fn data_dependent(&self) -> bool {
        self.open || self.dims != self.bounds
    }

    fn value(self) -> EntryValue {
        let bounds = (self.data_dependent() && !self.open).then_some(self.bounds);
        EntryValue { name: self.name, kind: self.kind, text: self.text, bounds, span: Span::NONE }
    }
}

/// Compiles the exported function `f`: laid out at compile time when that is possible, else over values.
pub fn compile(cx: &mut Context, typed: &Typed, f: &Function) -> Result<Entry, Diagnostic> {
    let (checks, kernels, funcs) = (cx.checks.len(), cx.kernels.len(), cx.funcs.len());
    // What a split function computes its own body does not say.
    let whole = crate::each::of(&typed.module, &f.name).is_none();
    match laid_out(cx, typed, f) {
        Err(d) if whole && d.fault == Fault::Unsupported && d.code != "parameter" => {
            cx.checks.truncate(checks);
            cx.kernels.truncate(kernels);
            cx.funcs.truncate(funcs);
            for form in crate::likely::of(&typed.module, &f.name) {
                let when = crate::likely::when(form).join(" and ");
                let what = format!("{}: no code of its own for {when}: its values are laid out at run time", f.name);
                cx.warnings.push(Diagnostic::warning("likely", f.signature_span, what).note(d.message.clone()));
            }
            super::dynamic::compile_entry(cx, typed, f, d)
        }
        r => r,
    }
}

fn laid_out(cx: &mut Context, typed: &Typed, f: &Function) -> Result<Entry, Diagnostic> {
    let symbol = f.global_symbol().unwrap_or(&f.name).to_string();
    let kernels = cx.kernels.len();
    let mut sig = Signature::new(f, &typed.sinfo, &mut cx.checks, cx.uncallable)?;
    if let Some(leaf) = sig.boxed() {
        let what = format!("the structure of parameter {} is known at run time only", leaf.name);
        return Err(Diagnostic::unsupported("object", f.signature_span, what));
    }
    if let Some(name) = sig.untyped_dims() {
        let what = format!("the dtype of parameter {name}, whose dims are stated, is known at run time only");
        return Err(Diagnostic::unsupported("object", f.signature_span, what));
    }
    let mut facts = sig.facts();
    let planner = Planner::new(typed, facts.clone(), cx.room, &mut cx.checks, &mut cx.kernels);
    let mut plan = planner.plan(f, sig.scope.clone(), sig.bufs.clone())?;
    if cx.parts {
        super::parts::parts(&mut plan, &typed.module, &mut cx.kernels, cx.room);
    }
    sig.late = plan.late.clone();
    for l in &plan.late {
        let stated = DimStated::Unranked(sig.leaves.get(l.leaf).map(|leaf| leaf.name.clone()).unwrap_or_default());
        sig.dims.push(EntryDim { var: l.var.clone(), lower: None, upper: None, divisor: None, stated });
    }
    let layout = if cx.regions.is_empty() {
        memory::layout(&plan.bufs, &plan.steps, &sig.dims, &mut facts)
    } else {
        let kernel = |name: &str| match typed.module.get(name) {
            Some(relax_ir::Func::Prim(p)) => Some(p.clone()),
            _ => cx.kernels.iter().find(|k| k.name == name).cloned(),
        };
        let upper = |e: &PrimExpr| upper_value(e, &sig);
        regions::layout(&plan.bufs, &plan.steps, &cx.regions, &kernel, &upper, cx.abi.pointer)?
    };
    if let Some(v) = plan.most(&mut facts).first_told(&layout.total) {
        return Err(Diagnostic::unsupported(
            "unbounded-memory",
            f.span,
            format!(
                "{}: an intermediate tensor has the dim {}, which comes from data and has no bound",
                f.name,
                v.name()
            ),
        )
        .here("its memory cannot be reserved before the call")
        .help("bind the dim by a MatchCast against dims of the parameters, so that its size is known"));
    }
    // `P_f_workspace_size` takes dims, which are int64.
    if let Some(v) = layout.total.vars().iter().find(|v| v.dtype() != DType::I64) {
        let what = format!("the memory of {} depends on the {} scalar {}", f.name, v.dtype(), v.name());
        return Err(Diagnostic::unsupported("object", f.span, what).help("make it a scalar of type int64"));
    }
    let results = result_leaves(f, &plan, &mut facts);
    sig.first = first_checks(&sig, &plan, &results);

    let base = format!("{}_{}", cx.prefix, symbol);
    let abi = cx.abi;
    let (body, layout) = match crate::each::of(&typed.module, &f.name) {
        Some(one) => {
            cx.kernels.truncate(kernels);
            let general = forms::General { f, symbol: &symbol, sig: &sig, results: &results };
            let rest = crate::each::rest_of(&typed.module, &f.name);
            images::each(cx, typed, &general, (one, rest), &base, &layout)?
        }
        None => {
            cx.memory.push(memory_use(&symbol, &sig, &plan, &layout, &mut facts));
            (body_function(cx, &base, &sig, &plan, &layout, &results, Part::Whole), layout)
        }
    };
    let callee = callee_of(&body);
    cx.funcs.push(body);
    let probe = results.iter().any(|r| r.open).then(|| {
        let f = body_function(cx, &base, &sig, &plan, &layout, &results, Part::Dims);
        let callee = callee_of(&f);
        cx.funcs.push(f);
        callee
    });
    let max = upper_value(&layout.total, &sig).or_else(|| upper_bound(&layout.total, &sig, &mut facts));
    let general = forms::General { f, symbol: &symbol, sig: &sig, results: &results };
    let forms = forms::compile(cx, typed, &general);
    let max = max.and_then(|max| forms.iter().try_fold(max, |most, f| Some(most.max(f.most?))));
    let layout = forms::room(&layout, &forms);
    let prefix = cx.prefix.clone();
    let pool = &mut cx.pool;
    let call = call_function(pool, &prefix, &base, abi, &sig, &layout, &results, (&callee, &forms));
    let infer = infer_function(pool, &prefix, &base, abi, &sig, &layout, &results, probe.as_ref());
    let workspace = workspace_function(pool, &prefix, &base, abi, &sig, &layout);
    cx.funcs.extend([call, infer, workspace]);
    let names: Vec<String> = results.iter().map(|r| r.name.clone()).collect();
    for suffix in ["", "_infer"] {
        let inner = format!("{base}_{}", if suffix.is_empty() { "_call" } else { "_infer" });
        cx.funcs.push(typed_function(&mut cx.pool, &format!("{base}{suffix}"), &inner, abi, &sig, &names));
    }
    cx.funcs.push(workspace_size_function(&mut cx.pool, &base, abi, &sig, &layout));

    Ok(Entry {
        name: symbol,
        params: sig.entry_values(),
        results: results.into_iter().map(ResultLeaf::value).collect(),
        dims: sig.dims,
        workspace: Some(layout.total),
        workspace_max: max,
        regions: layout.regions.into_iter().map(|r| (r.name, r.bytes)).collect(),
        dynamic: None,
    })
}

/// The checks with which the body begins and that the arguments' dims decide, where a dim of a result may be negative
/// without them.
fn first_checks(sig: &Signature, plan: &Plan, results: &[ResultLeaf]) -> Vec<Step> {
    let mut facts = sig.facts();
    let mut dims = results.iter().flat_map(|r| &r.bounds);
    if dims.all(|d| facts.prove(&d.clone().ge(0)) == Answer::Yes) {
        return vec![];
    }
    let known = sig.body_vars();
    let decided = |s: &&Step| match s {
        Step::Check { condition, wanted, got, numbers, .. } => {
            let told = [condition, wanted, got].into_iter().chain(numbers.iter().flat_map(|(_, n)| n.exprs()));
            told.flat_map(PrimExpr::vars).all(|v| known.contains(&v))
        }
        _ => false,
    };
    plan.steps.iter().take_while(decided).cloned().collect()
}

/// The kernels that take dims as arguments, with the variables that decide these.
fn sized_kernels(steps: &[Step], out: &mut Vec<(String, Vec<Var>)>) {
    for s in steps {
        match s {
            Step::Kernel { kernel, dims, .. } => {
                let vars: Vec<Var> = dims.iter().flat_map(PrimExpr::vars).collect();
                if !vars.is_empty() {
                    out.push((kernel.clone(), vars));
                }
            }
            Step::If { then, otherwise, .. } => {
                sized_kernels(then, out);
                sized_kernels(otherwise, out);
            }
            _ => {}
        }
    }
}

/// Who uses which piece of the workspace, and when.
fn memory_use(entry: &str, sig: &Signature, plan: &Plan, layout: &Layout, facts: &mut Facts) -> MemoryUse {
    let (steps, ranges) = memory::timeline(&plan.bufs, &plan.steps);
    let mut most = |size: &PrimExpr| upper_value(size, sig).or_else(|| upper_bound(size, sig, facts));
    let mut buffers = vec![];
    for (i, buf) in plan.bufs.iter().enumerate() {
        let (Some(offset), Some((first, last))) = (&layout.offsets[i], ranges[i]) else { continue };
        let bytes = memory::align_up(buf.bytes.clone());
        buffers.push(BufferUse {
            first,
            last,
            max_offset: most(offset),
            max_bytes: most(&bytes),
            offset: offset.clone(),
            bytes,
            region: layout.region_of.get(i).and_then(|&r| layout.regions.get(r)).map(|r| r.name.clone()),
        });
    }
    let mut sized = vec![];
    sized_kernels(&plan.steps, &mut sized);
    MemoryUse { entry: entry.to_string(), steps, sized, buffers }
}

/// The value of a size at the dims' upper bounds, when each has one and the size only grows with them.
fn upper_value(size: &PrimExpr, sig: &Signature) -> Option<u64> {
    fn grows(e: &PrimExpr) -> bool {
        match e.kind() {
            PrimKind::Var(_) | PrimKind::Int(_) => true,
            PrimKind::Binary(BinOp::Add | BinOp::Mul | BinOp::Max | BinOp::Min, a, b) => grows(a) && grows(b),
            PrimKind::Binary(BinOp::FloorDiv, a, b) => grows(a) && b.as_int().is_some_and(|v| v > 0),
            _ => false,
        }
    }
    let map: HashMap<Var, PrimExpr> =
        sig.dims.iter().filter_map(|d| Some((d.var.clone(), PrimExpr::i64(d.upper?)))).collect();
    let value = size.substitute(&map).as_int()?;
    let positive = |e: &PrimExpr| {
        let mut ok = true;
        e.walk(&mut |n| ok &= n.as_int().is_none_or(|v| v >= 0));
        ok
    };
    (grows(size) && positive(size)).then_some(value as u64)
}

/// The interval's end, when each dim has a bound: may lie a little above the largest value.
fn upper_bound(size: &PrimExpr, sig: &Signature, facts: &mut Facts) -> Option<u64> {
    // By its own bound, or by a condition between dims.
    let vars: HashSet<Var> = size.vars().into_iter().collect();
    if !vars.iter().all(|v| sig.dims.iter().any(|d| d.var == *v) && facts.interval(&v.expr()).1.is_some()) {
        return None;
    }
    facts.interval(size).1.and_then(|n| u64::try_from(n).ok())
}

fn result_leaves(f: &Function, plan: &Plan, facts: &mut Facts) -> Vec<ResultLeaf> {
    let mut leaves = vec![];
    name_results("result", &plan.result, f.ret.as_ref(), &mut leaves);
    let count = leaves.len();
    leaves
        .into_iter()
        .map(|(name, value, info)| {
            let name = if count == 1 { "result".to_string() } else { name };
            let t = match value {
                HostValue::Tensor(t) => t,
                HostValue::Unranked(u) => {
                    let dtype = u.dtype.unwrap_or(DType::U8);
                    let kind = EntryKind::Tensor { dtype: u.dtype, dims: None };
                    let info = info.unwrap_or(StructInfo::tensor_ndim(None, u.dtype));
                    let text = relax_ir::printer::print_struct_info(&info);
                    return ResultLeaf {
                        name,
                        dtype,
                        dims: vec![],
                        bounds: vec![],
                        kind,
                        text,
                        passed: Some(u.leaf),
                        open: false,
                    };
                }
                _ => TensorValue { buf: BufId(0), dims: vec![], dtype: DType::U8 },
            };
            let mut most = plan.most(facts);
            let bounds: Vec<PrimExpr> = t.dims.iter().map(|d| most.of(d).unwrap_or_else(|| d.clone())).collect();
            let open = bounds.iter().any(|b| most.told(b));
            let known = |(d, b): (&PrimExpr, &PrimExpr)| (d == b && !most.told(d)).then(|| d.clone());
            let dims = t.dims.iter().zip(&bounds).map(known).collect();
            let kind = match &info {
                Some(StructInfo::Shape { ndim, .. }) => EntryKind::Shape {
                    values: None,
                    ndim: ndim.or(t.dims.first().and_then(|d| d.as_int()).map(|n| n as usize)),
                },
                Some(StructInfo::Prim { dtype, .. }) => EntryKind::Scalar { dtype: *dtype },
                _ => EntryKind::Tensor { dtype: Some(t.dtype), dims: Some(dims) },
            };
            let text = match info {
                Some(i) => relax_ir::printer::print_struct_info(&i),
                None => relax_ir::printer::print_struct_info(&StructInfo::tensor(t.dims.clone(), t.dtype)),
            };
            ResultLeaf { name, dtype: t.dtype, dims: t.dims.clone(), bounds, kind, text, passed: None, open }
        })
        .collect()
}

fn name_results(
    name: &str,
    v: &HostValue,
    info: Option<&StructInfo>,
    out: &mut Vec<(String, HostValue, Option<StructInfo>)>,
) {
    match v {
        HostValue::Tensor(_) | HostValue::Unranked(_) => out.push((name.to_string(), v.clone(), info.cloned())),
        HostValue::Tuple(f) => {
            let infos = info.and_then(StructInfo::as_tuple);
            for (i, x) in f.iter().enumerate() {
                name_results(&format!("{name}.{i}"), x, infos.and_then(|t| t.get(i)), out);
            }
        }
        _ => {}
    }
}

fn callee_of(f: &FlatFunc) -> Callee {
    Callee {
        name: f.name.clone(),
        params: f.params.iter().map(Var::dtype).collect(),
        ret: f.ret,
        linkage: Linkage::Local,
    }
}

/// How much of a function's body is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    /// What it takes to know the dims of the results.
    Dims,
}

/// `i32 body(call, workspace, pointers.., variables.., result pointers.., actual dims)`; the part for the dims alone
/// takes no result pointers. `actual` brings the room of open results in (elements, at their first dim) and takes the
/// dims of all data-dependent ones out.
fn body_function(
    cx: &mut Context,
    base: &str,
    sig: &Signature,
    plan: &Plan,
    layout: &Layout,
    results: &[ResultLeaf],
    part: Part,
) -> FlatFunc {
    let call = Var::new("call", DType::HANDLE);
    let workspace = Var::new("workspace", DType::HANDLE);
    let outs: Vec<Var> = results.iter().map(|r| Var::new(&r.name, DType::HANDLE)).collect();
    let actual = Var::new("actual", DType::HANDLE);
    let mut params = vec![call.clone(), workspace.clone()];
    params.extend(sig.pointers());
    params.extend(sig.body_vars());
    if part == Part::Whole {
        params.extend(outs.iter().cloned());
    }
    params.push(actual.clone());

    let mut constants = HashMap::new();
    for (i, buf) in plan.bufs.iter().enumerate() {
        if let Place::Constant(c) = &buf.place {
            constants.insert(i, cx.constants.place(c));
        }
    }
    let pointers = sig.leaves.iter().enumerate().filter_map(|(i, l)| match &l.kind {
        LeafKind::Tensor { ptr, .. } | LeafKind::Unranked { ptr, .. } => Some((i, ptr.clone())),
        _ => None,
    });
    let prefix = cx.prefix.clone();
    let kernel_symbol = |name: &str| super::kernel_symbol(&prefix, name);
    let external = constants.values().any(|s| matches!(s, Stored::External(_)));
    let mut b = Builder::new(&mut cx.pool, cx.abi, call.expr());
    let p = i64::from(cx.abi.pointer);
    let regions = (0..layout.regions.len() as i64)
        .map(|r| b.load("region", &workspace.expr(), r * 2 * p, DType::HANDLE))
        .collect();
    let body = Body {
        regions,
        weights: external.then(|| super::weights::of_call(&mut b, &prefix)),
        prefix: &prefix,
        plan,
        layout,
        params: pointers.collect(),
        results: outs,
        workspace,
        constants,
        kernel_symbol: &kernel_symbol,
    };
    let name = match part {
        Part::Whole => {
            let rooms = rooms(&mut b, plan, results, &actual);
            let mut done = 0;
            for (before, leaf, room) in rooms {
                body.steps(&mut b, &plan.steps[done..before]);
                done = before;
                let r = &results[leaf];
                let wanted = b.bind("wanted", PrimExpr::product(&r.dims));
                let what = format!("output {}, room in elements", r.name);
                let small = room.clone().lt(wanted.clone());
                let constraint = value_check(sig.leaves.len() + leaf);
                b.fail_if(small, Failure { code: code::DIM, constraint, wanted, got: room, what: &what });
            }
            body.steps(&mut b, &plan.steps[done..]);
            "body"
        }
        Part::Dims => {
            let wanted = results.iter().filter(|r| r.open).flat_map(|r| r.dims.iter().flat_map(PrimExpr::vars));
            body.steps(&mut b, &super::slice::for_vars(&plan.steps, wanted.collect()));
            "dims"
        }
    };
    let mut at = 0;
    for r in results {
        if r.data_dependent() && (part == Part::Whole || r.open) {
            for (i, d) in r.dims.iter().enumerate() {
                b.store(&actual.expr(), (at + i as i64) * 8, d.clone());
            }
        }
        at += r.dims.len() as i64;
    }
    b.ret(PrimExpr::i32(0));
    b.finish(format!("{base}__{name}"), params, Some(DType::I32), Linkage::Local)
}

/// Open results in the order of the first step that writes each: that step's index, the result, its room.
fn rooms(b: &mut Builder, plan: &Plan, results: &[ResultLeaf], actual: &Var) -> Vec<(usize, usize, PrimExpr)> {
    let mut out = vec![];
    let mut at = 0;
    for (leaf, r) in results.iter().enumerate() {
        if r.open {
            let room = b.load("room", &actual.expr(), at * 8, DType::I64);
            let mine = |id: BufId| matches!(plan.bufs[id.0].place, Place::Result(i) if i == leaf);
            let first = plan.steps.iter().position(|s| super::slice::touched(s).into_iter().any(mine));
            out.push((first.unwrap_or(plan.steps.len()), leaf, room));
        }
        at += r.dims.len() as i64;
    }
    out.sort_by_key(|o| o.0);
    out
}

struct Packed {
    args: Var,
    outs: Var,
    call: Var,
}

fn packed_params() -> Packed {
    Packed {
        args: Var::new("args", DType::HANDLE),
        outs: Var::new("outs", DType::HANDLE),
        call: Var::new("call", DType::HANDLE),
    }
}

#[allow(clippy::too_many_arguments)]
fn call_function(
    pool: &mut Pool,
    prefix: &str,
    base: &str,
    abi: AbiLayout,
    sig: &Signature,
    layout: &Layout,
    results: &[ResultLeaf],
    (body, forms): (&Callee, &[forms::Form]),
) -> FlatFunc {
    let p = packed_params();
    let mut b = Builder::new(pool, abi, p.call.expr());
    sig.bind(&mut b, prefix, &p.args.expr());
    super::body::checks(&mut b, &sig.first);
    let mut outs = vec![];
    let mut shapes = vec![];
    let n_dims: usize = results.iter().map(|r| r.dims.len()).sum();
    let actual =
        if results.iter().any(ResultLeaf::data_dependent) { b.stack("actual", 8 * n_dims as u32, 8) } else { null() };
    let mut at = 0;
    for (i, r) in results.iter().enumerate() {
        let first_dim = at;
        at += r.dims.len() as i64;
        let tensor = b.load("out", &p.outs.expr(), i as i64 * abi.pointer as i64, DType::HANDLE);
        let what = format!("output {}", r.name);
        let constraint = value_check(sig.leaves.len() + i);
        let of = Checked { what: &what, number: constraint };
        if let Some(leaf) = r.passed {
            outs.push(pass_on(&mut b, prefix, &p.args.expr(), leaf, &tensor, of));
            shapes.push(null());
            continue;
        }
        check_tensor::check(&mut b, prefix, &tensor, of, r.dtype, r.dims.len());
        let data = b.load("data", &tensor, abi.tensor_data, DType::HANDLE);
        let offset = b.load("offset", &tensor, abi.tensor_byte_offset, DType::I64);
        let data = b.bind("data", data.ptr_add(offset));
        outs.push(data);
        let shape = b.load("shape", &tensor, abi.tensor_shape, DType::HANDLE);
        let mut room = PrimExpr::i64(1);
        for (axis, d) in r.bounds.iter().enumerate() {
            let got = b.load("dim", &shape, axis as i64 * 8, DType::I64);
            if r.data_dependent() {
                room = room * got;
                continue;
            }
            let text = relax_ir::printer::print_prim(d);
            let what = format!("output {}, dimension {axis} ({text})", r.name);
            b.fail_if(
                got.clone().ne(d.clone()),
                Failure { code: code::DIM, constraint, wanted: d.clone(), got, what: &what },
            );
        }
        if r.open {
            b.store(&actual, first_dim * 8, room);
        } else if r.data_dependent() {
            let wanted = PrimExpr::product(&r.bounds);
            let what = format!("output {}, room for its largest size in elements", r.name);
            let small = room.clone().lt(wanted.clone());
            b.fail_if(small, Failure { code: code::DIM, constraint, wanted, got: room, what: &what });
        }
        shapes.push(shape);
    }
    let rc = with_workspace(&mut b, &p.call.expr(), layout, |b, ws| {
        let mut before = vec![p.call.expr(), ws];
        before.extend(sig.pointers().iter().map(Var::expr));
        outs.push(actual.clone());
        forms::call(b, forms, (body, sig.body_vars().iter().map(Var::expr).collect()), (&before, &outs))
    });
    b.return_if_failed(rc);
    let mut at = 0;
    for (r, shape) in results.iter().zip(shapes) {
        if r.data_dependent() {
            for i in 0..r.dims.len() as i64 {
                let d = b.load("actual_dim", &actual, (at + i) * 8, DType::I64);
                b.store(&shape, i * 8, d);
            }
        }
        at += r.dims.len() as i64;
    }
    b.ret(PrimExpr::i32(0));
    b.finish(format!("{base}__call"), vec![p.args, p.outs, p.call], Some(DType::I32), Linkage::Local)
}

/// An unranked argument that is a result too: the output must have its dtype, rank and dims; the data is copied here.
/// Returns the output's data pointer.
fn pass_on(b: &mut Builder, prefix: &str, args: &PrimExpr, leaf: usize, out: &PrimExpr, of: Checked) -> PrimExpr {
    let abi = b.abi;
    let arg = b.load("arg", args, leaf as i64 * abi.pointer as i64, DType::HANDLE);
    check_tensor::check(b, prefix, out, of, None, None);
    let (what, constraint) = (of.what, of.number);
    for (at, code, what) in [
        (abi.tensor_dtype, code::DTYPE, format!("{what}, dtype")),
        (abi.tensor_ndim, code::RANK, format!("{what}, number of dims")),
    ] {
        let both = [&arg, out].map(|t| match code {
            code::DTYPE => b.load_dtype(t),
            _ => b.load("ndim", t, at, DType::I32),
        });
        let [wanted, got] = both;
        let differ = wanted.clone().ne(got.clone());
        let (wanted, got) = (wanted.cast(DType::I64), got.cast(DType::I64));
        b.fail_if(differ, Failure { code, constraint, wanted, got, what: &what });
    }
    let rank = b.load("rank", &arg, abi.tensor_ndim, DType::I32).cast(DType::I64);
    let have = b.load("have", &arg, abi.tensor_shape, DType::HANDLE);
    let room = b.load("room", out, abi.tensor_shape, DType::HANDLE);
    let word = b.load_dtype(&arg);
    let bits =
        PrimExpr::binary(BinOp::BitAnd, PrimExpr::binary(BinOp::Shr, word, PrimExpr::i32(8)), PrimExpr::i32(255));
    let bytes = b.local("bytes", bits.floor_div(PrimExpr::i32(8)).cast(DType::I64));
    let what = format!("{what}, a dimension");
    b.for_range("axis", rank, |b, i| {
        let wanted = b.bind("wanted", PrimExpr::load_ptr(have.clone(), i.clone(), DType::I64));
        let got = b.bind("got", PrimExpr::load_ptr(room.clone(), i, DType::I64));
        let differ = wanted.clone().ne(got.clone());
        b.fail_if(differ, Failure { code: code::DIM, constraint, wanted: wanted.clone(), got, what: &what });
        let next = bytes.expr() * wanted;
        b.assign(&bytes, next);
    });
    let pointer = |b: &mut Builder, t: &PrimExpr| {
        let data = b.load("data", t, abi.tensor_data, DType::HANDLE);
        let offset = b.load("offset", t, abi.tensor_byte_offset, DType::I64);
        b.bind("pointer", data.ptr_add(offset))
    };
    let (from, to) = (pointer(b, &arg), pointer(b, out));
    let callee = super::body::copy_callee(prefix);
    b.push(FlatStmt::Call { callee, args: vec![to.clone(), from, bytes.expr()], result: None });
    to
}

/// `size_t` as an integer type.
pub fn pointer_int(abi: AbiLayout) -> DType {
    if abi.pointer == 8 {
        DType::I64
    } else {
        DType::I32
    }
}

#[allow(clippy::too_many_arguments)]
fn infer_function(
    pool: &mut Pool,
    prefix: &str,
    base: &str,
    abi: AbiLayout,
    sig: &Signature,
    layout: &Layout,
    results: &[ResultLeaf],
    probe: Option<&Callee>,
) -> FlatFunc {
    let p = packed_params();
    let mut b = Builder::new(pool, abi, p.call.expr());
    sig.bind(&mut b, prefix, &p.args.expr());
    super::body::checks(&mut b, &sig.first);
    let n_dims: usize = results.iter().map(|r| r.dims.len()).sum();
    let actual = probe.map(|probe| {
        let actual = b.stack("actual", 8 * n_dims as u32, 8);
        let rc = with_workspace(&mut b, &p.call.expr(), layout, |b, ws| {
            let mut args = vec![p.call.expr(), ws];
            args.extend(sig.pointers().iter().map(Var::expr));
            args.extend(sig.body_vars().iter().map(Var::expr));
            args.push(actual.clone());
            b.call(probe.clone(), args)
        });
        b.return_if_failed(rc);
        actual
    });
    let mut at = 0;
    for (i, r) in results.iter().enumerate() {
        let first_dim = at;
        at += r.dims.len() as i64;
        let tensor = b.load("out", &p.outs.expr(), i as i64 * abi.pointer as i64, DType::HANDLE);
        let what = format!("output {}", r.name);
        let zero = PrimExpr::i64(0);
        let failure = || Failure {
            code: code::NULL,
            constraint: value_check(sig.leaves.len() + i),
            wanted: PrimExpr::i64(0),
            got: PrimExpr::i64(0),
            what: &what,
        };
        b.fail_if(address_of(tensor.clone()).eq(zero.clone()), failure());
        if let Some(leaf) = r.passed {
            let arg = b.load("arg", &p.args.expr(), leaf as i64 * abi.pointer as i64, DType::HANDLE);
            for (at, dtype) in [(abi.tensor_dtype, DType::I32), (abi.tensor_ndim, DType::I32)] {
                let x = b.load("x", &arg, at, dtype);
                b.store(&tensor, at, x);
            }
            let rank = b.load("rank", &arg, abi.tensor_ndim, DType::I32).cast(DType::I64);
            let from = b.load("from", &arg, abi.tensor_shape, DType::HANDLE);
            let to = b.load("to", &tensor, abi.tensor_shape, DType::HANDLE);
            b.for_range("axis", rank, |b, i| {
                let d = PrimExpr::load_ptr(from.clone(), i.clone(), DType::I64);
                b.push(FlatStmt::Store { ptr: to.clone(), offset: i, value: d });
            });
            continue;
        }
        b.store_dtype(&tensor, dtype_word(r.dtype));
        b.store(&tensor, abi.tensor_ndim, PrimExpr::i32(r.dims.len() as i32));
        if r.dims.is_empty() {
            continue;
        }
        let shape = b.load("shape", &tensor, abi.tensor_shape, DType::HANDLE);
        b.fail_if(address_of(shape.clone()).eq(zero), failure());
        for (axis, d) in r.bounds.iter().enumerate() {
            let d = match &actual {
                Some(a) if r.open => b.load("dim", a, (first_dim + axis as i64) * 8, DType::I64),
                _ => d.clone(),
            };
            b.store(&shape, axis as i64 * 8, d);
        }
    }
    b.ret(PrimExpr::i32(0));
    b.finish(format!("{base}__infer"), vec![p.args, p.outs, p.call], Some(DType::I32), Linkage::Local)
}

fn workspace_function(
    pool: &mut Pool,
    prefix: &str,
    base: &str,
    abi: AbiLayout,
    sig: &Signature,
    layout: &Layout,
) -> FlatFunc {
    let args = Var::new("args", DType::HANDLE);
    let mut b = Builder::new(pool, abi, null());
    b.failed = Some(PrimExpr::i64(-1));
    if layout.total.as_int().is_none() {
        sig.bind(&mut b, prefix, &args.expr());
    }
    room::ret_saturated(&mut b, &layout.total, DType::I64, PrimExpr::i64(i64::MAX));
    b.finish(format!("{base}__workspace"), vec![args], Some(DType::I64), Linkage::Local)
}

/// `size_t P_f_workspace_size(int64_t n, ...)`: one argument per entry of `Entry::dims`. `SIZE_MAX` is more than there is.
fn workspace_size_function(pool: &mut Pool, base: &str, abi: AbiLayout, sig: &Signature, layout: &Layout) -> FlatFunc {
    let mut b = Builder::new(pool, abi, null());
    let size = pointer_int(abi);
    room::ret_saturated(&mut b, &layout.total, size, PrimExpr::int(size, -1));
    let params = sig.dims.iter().map(|d| d.var.clone()).collect();
    b.finish(format!("{base}_workspace_size"), params, Some(pointer_int(abi)), Linkage::Export)
}

/// A typed entry: packs its arguments and calls the packed form. Tensors are `DLTensor *`; a shape is
/// `const int64_t *values, int64_t count`; an integer scalar `int64_t`, a float one `double`. Results likewise, by
/// pointer.
pub fn typed_function(
    pool: &mut Pool,
    name: &str,
    inner: &str,
    abi: AbiLayout,
    sig: &Signature,
    results: &[String],
) -> FlatFunc {
    let call = Var::new("call", DType::HANDLE);
    let mut b = Builder::new(pool, abi, call.expr());
    let pointer = abi.pointer;
    let mut params = vec![];
    let args = b.stack("args", pointer * sig.leaves.len() as u32, pointer);
    for (i, leaf) in sig.leaves.iter().enumerate() {
        let at = i as i64 * pointer as i64;
        match &leaf.kind {
            LeafKind::Tensor { .. } | LeafKind::Unranked { .. } => {
                let p = Var::new(&leaf.name, DType::HANDLE);
                b.store(&args, at, p.expr());
                params.push(p);
            }
            LeafKind::Shape { .. } => {
                let values = Var::new(&leaf.name, DType::HANDLE);
                let count = Var::new(format!("{}_count", leaf.name), DType::I64);
                let shape = b.stack("shape", 8, 8);
                b.store(&shape, 0, count.expr());
                let t = stack_tensor(&mut b, values.expr(), DType::I64, 1, shape);
                b.store(&args, at, t);
                params.extend([values, count]);
            }
            LeafKind::Scalar { var, .. } => {
                let p = Var::new(&leaf.name, scalar_type(var.dtype()));
                let slot = b.stack("scalar", 8, 8);
                b.store(&slot, 0, p.expr().cast(var.dtype()));
                let t = stack_tensor(&mut b, slot, var.dtype(), 0, null());
                b.store(&args, at, t);
                params.push(p);
            }
        }
    }
    let outs = b.stack("outs", pointer * results.len() as u32, pointer);
    for (i, r) in results.iter().enumerate() {
        let p = Var::new(r, DType::HANDLE);
        b.store(&outs, i as i64 * pointer as i64, p.expr());
        params.push(p);
    }
    params.push(call.clone());
    let handle = DType::HANDLE;
    let rc = b.call(local_callee(inner, vec![handle; 3], Some(DType::I32)), vec![args, outs, call.expr()]);
    b.ret(rc);
    b.finish(name.to_string(), params, Some(DType::I32), Linkage::Export)
}

/// How a scalar crosses the C ABI.
fn scalar_type(d: DType) -> DType {
    if d.is_float() {
        DType::F64
    } else {
        DType::I64
    }
}

/// A `DLTensor` on the stack over `data`.
fn stack_tensor(b: &mut Builder, data: PrimExpr, dtype: DType, ndim: i32, shape: PrimExpr) -> PrimExpr {
    let abi = b.abi;
    let t = b.stack("tensor", abi.tensor_size, 8);
    b.store(&t, abi.tensor_data, data);
    // The CPU's memory, device 0.
    b.store(&t, abi.tensor_device, PrimExpr::i32(1));
    b.store(&t, abi.tensor_device + 4, PrimExpr::i32(0));
    b.store(&t, abi.tensor_ndim, PrimExpr::i32(ndim));
    b.store_dtype(&t, dtype_word(dtype));
    b.store(&t, abi.tensor_shape, shape);
    b.store(&t, abi.tensor_strides, null());
    b.store(&t, abi.tensor_byte_offset, PrimExpr::i64(0));
    t
}
