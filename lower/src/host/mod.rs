//! Relax functions as host programs in flat TIR.
//!
//! [`plan`] lays a function out as steps over buffers, [`memory`] places the buffers, [`body`] writes the steps as
//! code, [`entry`] adds what C calls.

mod arrange;
mod body;
mod bound;
mod build;
mod check_tensor;
pub(crate) mod checks;
mod constants;
mod dynamic;
mod early;
mod entry;
mod kernel_args;
mod memory;
mod message;
mod most;
mod names;
mod ops;
mod params;
mod parts;
mod plan;
mod regions;
mod slice;
mod value;
mod weights;

pub use constants::Stored;
pub use ops::VIEWS;
pub(crate) use plan::{byte_size, calls_value, written_buffers};
pub use regions::Region;

use crate::threads::Room;
use build::Pool;
use checks::Checks;
use constants::Constants;
use relax_ir::abi::AbiLayout;
use relax_ir::analysis::{constraints, vars, Typed};
use relax_ir::flat::{DataBytes, FlatData, FlatFunc, Linkage};
use relax_ir::program::{BornDim, FormInfo, MemoryUse, Program, LABELS, RESULT_LABELS};
use relax_ir::relax::{BindingValue, ExprKind, Function, SeqExpr, StructInfo};
use relax_ir::tir::PrimFunc;
use relax_ir::{AttrValue, DType, Diagnostic, Diagnostics, Span};
use std::collections::HashSet;

/// What the functions of one program share.
pub struct Context {
    pub prefix: String,
    pub abi: AbiLayout,
    pub pool: Pool,
    pub funcs: Vec<FlatFunc>,
    pub checks: Checks,
    /// Of the widest vectors that kernels may be scheduled for.
    pub room: Room,
    /// Whatever it costs, work is shared out to threads.
    pub share_all: bool,
    /// Functions whose kernels run on one thread, as several of them run at once.
    pub alone: HashSet<String>,
    /// Tensors may be parts of others.
    pub parts: bool,
    /// Kernels made while planning.
    pub kernels: Vec<PrimFunc>,
    /// Memories for the workspace, the fastest first; none for one piece.
    pub regions: Vec<Region>,
    constants: Constants,
    dynamic: dynamic::Queue,
    memory: Vec<MemoryUse>,
    /// The forms of entries for likely sizes, and the bytes of weights that they added.
    forms: Vec<FormInfo>,
    form_bytes: u64,
    /// See [`crate::Options::size_budget`].
    size_budget: f64,
    warnings: Diagnostics,
    /// Functions take part that no C program can call with success: their parameters or results are functions.
    uncallable: bool,
}

/// Dims that get their values inside of functions and that no expression over other dims is known for.
fn born(typed: &Typed) -> Vec<BornDim> {
    fn visit(function: &Function, seq: &SeqExpr, typed: &Typed, out: &mut Vec<BornDim>) {
        for b in seq.blocks.iter().flat_map(|b| &b.bindings) {
            // An argument of unknown rank tells its dims.
            if let BindingValue::MatchCast { value, .. } = &b.value {
                let param = function.params.iter().any(|p| value.as_var() == Some(&p.var));
                if param && function.global_symbol().is_some() {
                    continue;
                }
            }
            let open = typed.births.get(&b.var).into_iter().flatten().filter(|d| d.known.is_none());
            let dims = open.filter(|d| d.var.dtype() == DType::I64);
            let known = typed.births.get(&b.var).into_iter().flatten();
            let known = known.filter_map(|d| Some((d.var.clone(), d.known.clone()?))).collect();
            let info = typed.sinfo.get(&b.var).map(|s| vars::substitute(s, &known)).unwrap_or(StructInfo::Object);
            out.extend(dims.map(|d| BornDim {
                function: function.name.clone(),
                var: d.var.clone(),
                span: b.span,
                binding: b.var.name().to_string(),
                info: info.clone(),
            }));
            match &b.value {
                BindingValue::Expr(e) => match e.kind() {
                    ExprKind::If { then, otherwise, .. } => {
                        visit(function, then, typed, out);
                        visit(function, otherwise, typed, out);
                    }
                    ExprKind::Function(f) => visit(f, &f.body, typed, out),
                    _ => {}
                },
                BindingValue::MatchCast { .. } => {}
            }
        }
    }
    let mut out = vec![];
    typed.module.relax_funcs().for_each(|f| visit(f, &f.body, typed, &mut out));
    out
}

/// Compiles every exported Relax function. Kernels are returned by name for scheduling: those of the module that are
/// called, and those made on the way.
pub fn compile(typed: &Typed, options: &crate::Options) -> Result<(Program, Vec<PrimFunc>, Diagnostics), Diagnostics> {
    let (prefix, unchecked) = (options.prefix.as_str(), options.unchecked);
    let abi = AbiLayout::new(options.pointer_bytes);
    let mut cx = Context {
        prefix: prefix.to_string(),
        abi,
        room: Room { vector_bytes: options.wide_levels(), threads: options.threads },
        pool: Pool::new(prefix, unchecked, options.silent),
        funcs: vec![],
        checks: Checks::new(options.lines.clone(), &typed.module),
        share_all: options.share_all,
        alone: HashSet::new(),
        parts: options.opt_level >= 2,
        kernels: vec![],
        regions: options.regions.clone(),
        constants: Constants::new(prefix, options.external_weights),
        dynamic: dynamic::Queue::default(),
        memory: vec![],
        forms: vec![],
        form_bytes: 0,
        size_budget: options.size_budget,
        warnings: Diagnostics::default(),
        uncallable: false,
    };
    let narrow = narrow_scalars(typed);
    if narrow.has_errors() {
        return Err(narrow);
    }
    let mut warnings = names::check(typed, prefix);
    if warnings.has_errors() {
        return Err(warnings);
    }
    let mut program = Program { prefix: prefix.to_string(), unchecked, ..Default::default() };
    program.born = born(typed);
    program.written = typed.module.relax_funcs().flat_map(constraints::solved_texts).collect();
    program.written.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    program.proved = typed.proved.iter().map(|p| (p.condition.clone(), p.span)).collect();
    let mut errors = Diagnostics::default();
    for f in typed.module.relax_funcs() {
        if f.global_symbol().is_none() {
            continue;
        }
        match entry::compile(&mut cx, typed, f) {
            Ok(e) => {
                if let Some(AttrValue::Dict(names)) = f.attrs.get(LABELS) {
                    let label =
                        |(id, name): &(String, AttrValue)| Some((e.name.clone(), id.clone(), name.as_str()?.into()));
                    program.labels.extend(names.iter().filter_map(label));
                }
                if let Some(AttrValue::List(names)) = f.attrs.get(RESULT_LABELS) {
                    let names: Vec<String> = names.iter().filter_map(|n| Some(n.as_str()?.to_string())).collect();
                    if names.len() == e.results.len() {
                        program.result_labels.push((e.name.clone(), names));
                    }
                }
                program.entries.push(e);
            }
            Err(d) => errors.push(d),
        }
    }
    // A public function that C cannot call (a function among its parameters, say) is left out with a warning, as long
    // as an entry remains.
    let crossing = |d: &relax_ir::Diagnostic| matches!(d.code, "parameter" | "result");
    if program.entries.is_empty() && errors.list.iter().all(crossing) {
        // Without any, calls of them fail at run time and say why.
        cx.uncallable = true;
        for f in typed.module.relax_funcs().filter(|f| f.global_symbol().is_some()) {
            match entry::compile(&mut cx, typed, f) {
                Ok(e) => program.entries.push(e),
                Err(d) => errors.push(d),
            }
        }
        if !program.entries.is_empty() {
            let (crossed, kept) = errors.list.into_iter().partition(crossing);
            errors.list = kept;
            for d in crossed as Vec<relax_ir::Diagnostic> {
                warnings.push(relax_ir::Diagnostic {
                    severity: relax_ir::diag::Severity::Warning,
                    notes: vec!["every call of it from C fails".into()],
                    ..d
                });
            }
        }
    }
    if !program.entries.is_empty() {
        let (left_out, kept) = errors.list.into_iter().partition(|d| matches!(d.code, "parameter" | "result"));
        errors.list = kept;
        for d in left_out as Vec<relax_ir::Diagnostic> {
            warnings.push(relax_ir::Diagnostic {
                severity: relax_ir::diag::Severity::Warning,
                notes: vec!["the function is not exported".into()],
                ..d
            });
        }
    }
    if errors.has_errors() {
        return Err(errors);
    }
    if program.entries.is_empty() {
        return Err(relax_ir::Diagnostic::error(
            "no-entry",
            relax_ir::Span::NONE,
            "the module has no function to export (well-formedness criterion 11)",
        )
        .help("a function is exported unless it says private=True")
        .into());
    }
    program.checks = cx.checks.into_list();
    if unchecked {
        program.checks.retain(|c| c.code == relax_ir::program::code::ASSERT);
    } else {
        cx.funcs.push(check_tensor::function(&mut cx.pool, prefix, abi));
    }
    cx.funcs.push(body::copy_function(&mut cx.pool, prefix, abi));
    cx.funcs.extend(message::fill::functions(&mut cx.pool, prefix, abi));
    program.memory = cx.memory;
    program.alone = cx.alone;
    warnings.extend(cx.warnings);
    program.module.funcs = cx.funcs;
    program.weights_file = cx.constants.external.and_then(|e| e.finish(&mut cx.pool, prefix));
    program.module.data = cx.pool.data;
    for (c, stored) in cx.constants.list {
        program.weight_bytes += c.size() as u64;
        let Stored::Symbol(symbol) = stored else { continue };
        program.module.data.push(FlatData {
            symbol,
            align: 64,
            bytes: DataBytes::Constant(c),
            relocs: vec![],
            linkage: Linkage::Local,
        });
    }
    let mut kernels: Vec<PrimFunc> = vec![];
    let mut called = HashSet::new();
    for f in &program.module.funcs {
        calls(&f.body, &mut called);
    }
    let own: HashSet<&String> = cx.forms.iter().map(|f| &f.body).collect();
    let mut elsewhere = HashSet::new();
    for f in program.module.funcs.iter().filter(|f| !own.contains(&f.name)) {
        calls(&f.body, &mut elsewhere);
    }
    program.forms = cx.forms.clone();
    for form in &mut program.forms {
        let mut kernels = HashSet::new();
        let body = program.module.funcs.iter().filter(|f| f.name == form.body);
        body.for_each(|f| calls(&f.body, &mut kernels));
        let kernel = kernel_symbol(prefix, "");
        form.kernels = kernels.into_iter().filter(|k| k.starts_with(&kernel) && !elsewhere.contains(k)).collect();
        form.kernels.sort();
    }
    for f in &typed.module.funcs {
        if let relax_ir::Func::Prim(p) = f {
            if called.contains(&kernel_symbol(prefix, &p.name)) {
                kernels.push(p.clone());
            }
        }
    }
    kernels.extend(cx.kernels);
    Ok((program, kernels, warnings))
}

/// Scalars of types that only memory or a kernel has: host code holds scalars in registers.
fn narrow_scalars(typed: &Typed) -> Diagnostics {
    let narrow = |d: DType| d.as_small().is_some() || d.bits < 8 || d.lanes > 1;
    let mut errors = Diagnostics::default();
    let mut refuse = |d: DType, span: Span| {
        let what = format!("a scalar of type {d} is not supported");
        errors.push(Diagnostic::unsupported("dtype", span, what).help("a tensor without dims may have this type"));
    };
    for f in typed.module.relax_funcs() {
        for p in &f.params {
            match typed.sinfo.get(&p.var) {
                Some(StructInfo::Prim { dtype, .. }) if narrow(*dtype) => refuse(*dtype, p.var.span()),
                _ => {}
            }
        }
        f.body.walk(&mut |e| {
            if let ExprKind::Prim(p) = e.kind() {
                let mut found = None;
                p.walk(&mut |n| found = found.or(Some(n.dtype()).filter(|d| narrow(*d))));
                found.into_iter().for_each(|d| refuse(d, e.span()));
            }
        });
    }
    errors
}

/// The symbol of a kernel.
pub fn kernel_symbol(prefix: &str, kernel: &str) -> String {
    format!("{prefix}_k_{kernel}")
}

/// Names of all functions called.
fn calls(body: &[relax_ir::flat::FlatStmt], out: &mut HashSet<String>) {
    use relax_ir::flat::FlatStmt::*;
    for s in body {
        match s {
            Call { callee, .. } => drop(out.insert(callee.name.clone())),
            If { then, otherwise, .. } => {
                calls(then, out);
                calls(otherwise, out);
            }
            For { body, .. } | While { body, .. } => calls(body, out),
            _ => {}
        }
    }
}
