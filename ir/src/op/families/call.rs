//! Calls of PrimFuncs, packed functions and closures.
//!
//! Source: TVM `relax.call_tir`, `relax.call_dps_packed`, ... and relax_spec.md, "Notable Operators". The result's
//! struct info is the annotation that the call carries; what the callee's signature says is checked by analysis, which
//! sees the module.

use crate::diag::Diagnostic;
use crate::op::{operand, positional, Answer, Compute, Default, InferCx, OpDecl, ParamDecl, ParamKind, Purity};
use crate::prim::{BinOp, PrimExpr};
use crate::relax::{ExprKind, StructInfo, TensorInfo, TensorShape};

/// `out_ty=..`: one struct info per output.
const OUT_TY: ParamDecl =
    ParamDecl { name: "out_ty", kind: ParamKind::StructInfo, keyword: true, default: Default::Required };
/// `ty_args=..`: the types of the results.
const TY_ARGS: ParamDecl =
    ParamDecl { name: "ty_args", kind: ParamKind::StructInfo, keyword: true, default: Default::None };
/// As [`TY_ARGS`], where TVM has no default.
const TY_ARGS_STATED: ParamDecl = ParamDecl { default: Default::Required, ..TY_ARGS };
/// `tir_vars=R.shape([..])` of TVM 0.25 and before: scalars that the PrimFunc takes after its outputs.
const TIR_VARS: ParamDecl =
    ParamDecl { name: "tir_vars", kind: ParamKind::Operand, keyword: true, default: Default::None };
const ARGS: ParamDecl = ParamDecl { name: "args", kind: ParamKind::Variadic, keyword: false, default: Default::None };
/// Which arguments the outputs take the place of; -1 is a new buffer.
const INPLACE: ParamDecl =
    ParamDecl { name: "inplace_indices", kind: ParamKind::Attr, keyword: true, default: Default::Required };

const fn host(
    name: &'static str,
    doc: &'static str,
    params: &'static [ParamDecl],
    purity: Purity,
    infer: crate::op::InferFn,
) -> OpDecl {
    OpDecl { name, doc, params, purity, infer, compute: Compute::Host, ulp: 0 }
}

pub static OPS: &[OpDecl] = &[
    host(
        "call_tir",
        "Calls a PrimFunc in destination-passing style: allocates the outputs that `out_ty` states, passes the \
         fields of the tuple `args`, then the outputs, and returns them (a tuple when there are several).",
        &[operand("func"), operand("args"), OUT_TY, TIR_VARS],
        Purity::Pure,
        outputs,
    ),
    host(
        "call_tir_inplace",
        "As `call_tir`; output `i` takes the memory of argument `inplace_indices[i]` (-1: new memory).",
        &[operand("func"), operand("args"), INPLACE, OUT_TY, TIR_VARS],
        Purity::Pure,
        inplace,
    ),
    host(
        "call_tir_with_grad",
        "As `call_tir`; names the gradient function for training, which compiled inference ignores.",
        &[
            operand("func"),
            operand("args"),
            OUT_TY,
            crate::op::attr("te_grad_name", Default::Required),
            crate::op::attr("te_grad_kwargs", Default::None),
            TIR_VARS,
        ],
        Purity::Pure,
        outputs,
    ),
    host(
        "call_dps_packed",
        "Calls a packed function in destination-passing style: the arguments, then the outputs that `out_ty` states.",
        &[operand("func"), operand("args"), OUT_TY],
        Purity::Pure,
        outputs,
    ),
    host(
        "call_packed",
        "Calls a packed function for its result, of type `ty_args` (none: any object). May have effects.",
        &[operand("func"), ARGS, TY_ARGS],
        Purity::Impure,
        packed,
    ),
    host(
        "call_pure_packed",
        "As `call_packed`, for a function without effects.",
        &[operand("func"), ARGS, TY_ARGS_STATED],
        Purity::Pure,
        packed,
    ),
    host(
        "call_inplace_packed",
        "As `call_pure_packed`; the results take the place of the arguments that `inplace_indices` names (-1: new), and every name of these sees what is written.",
        &[operand("func"), ARGS, INPLACE, TY_ARGS_STATED],
        Purity::Pure,
        inplace_packed,
    ),
    host(
        "call_builtin_with_ctx",
        "Calls a built-in of the virtual machine; the tuple `args` holds its arguments.",
        &[operand("func"), operand("args"), TY_ARGS],
        Purity::Impure,
        packed,
    ),
    host(
        "make_closure",
        "A closure of the function `func` over the fields of the tuple `args`.",
        &[operand("func"), operand("args")],
        Purity::Pure,
        |_| Ok(StructInfo::Object),
    ),
    host(
        "invoke_closure",
        "Calls a closure with the fields of the tuple `args`; the result has type `ty_args`. May have effects.",
        &[operand("closure"), operand("args"), TY_ARGS_STATED],
        Purity::Impure,
        packed,
    ),
    host(
        "invoke_pure_closure",
        "As `invoke_closure`, for a closure without effects.",
        &[operand("closure"), operand("args"), TY_ARGS_STATED],
        Purity::Pure,
        packed,
    ),
    host(
        "vm.call_tir_dyn",
        "Calls a PrimFunc with the fields of the tuple `args`, outputs and a shape of scalars included; no result.",
        &[operand("func"), operand("args")],
        Purity::Impure,
        |_| Ok(StructInfo::unit()),
    ),
    OpDecl {
        name: "call_py_func",
        doc: "Calls a Python function: a packed function of its name that the host registers.",
        params: &[operand("func_name"), ARGS, OUT_TY],
        purity: Purity::Pure,
        infer: outputs,
        compute: Compute::Unsupported("its arguments must be a tuple that is written out"),
        ulp: 0,
    },
    worker(
        "ccl.allreduce",
        "Combines the workers' tensors, element by element: a packed function `runtime.disco.allreduce` of the host.",
        &[operand("x"), positional("op_type", Default::Str("sum")), positional("in_group", Default::Bool(true))],
        |cx| {
            let kind = cx.attrs.str("op_type").unwrap_or("sum");
            if !["sum", "prod", "min", "max", "avg"].contains(&kind) {
                return Err(cx.error(format!("op_type must be sum, prod, min, max or avg, not {kind}")));
            }
            Ok(StructInfo::Tensor(cx.tensor(0)?.clone()))
        },
    ),
    worker(
        "ccl.allgather",
        "The workers' tensors side by side along the first axis: `runtime.disco.allgather` of the host.",
        &[operand("x"), positional("num_workers", Default::Required), positional("in_group", Default::Bool(true))],
        |cx| {
            let workers = num_workers(cx)?;
            resized(cx, 0, |_, d| Ok(d * PrimExpr::i64(workers)))
        },
    ),
    worker(
        "ccl.broadcast_from_worker0",
        "The first worker's tensor: `runtime.disco.broadcast_from_worker0` of the host.",
        &[operand("x")],
        |cx| Ok(StructInfo::Tensor(cx.tensor(0)?.clone())),
    ),
    worker(
        "ccl.scatter_from_worker0",
        "This worker's share of the first worker's tensor: `runtime.disco.scatter_from_worker0` of the host.",
        &[operand("x"), positional("num_workers", Default::Required), positional("axis", Default::Int(0))],
        |cx| {
            let workers = num_workers(cx)?;
            let axis = cx.attrs.int("axis").unwrap_or(0);
            resized(cx, axis, |cx, d| {
                let rest = d.clone().floor_mod(PrimExpr::i64(workers));
                cx.require(PrimExpr::raw_binary(BinOp::Eq, rest, PrimExpr::i64(0)), || {
                    format!("the dim is divided among {workers} workers")
                })?;
                Ok(cx.simplify(d.floor_div(PrimExpr::i64(workers))))
            })
        },
    ),
    // Several devices: parsed and typed so that the refusal can name the operator.
    distributed(
        "dist.annotate_sharding",
        &[operand("value"), positional("device_mesh", Default::Required), positional("placement", Default::Required)],
    ),
    distributed(
        "dist.redistribute",
        &[operand("value"), positional("device_mesh", Default::Required), positional("placement", Default::Required)],
    ),
    distributed(
        "dist.redistribute_replica_to_shard",
        &[operand("input"), positional("num_workers", Default::Required), positional("axis", Default::Required)],
    ),
    distributed("dist.call_tir_local_view", &[operand("func"), operand("args"), OUT_TY, TIR_VARS]),
];

const fn worker(
    name: &'static str,
    doc: &'static str,
    params: &'static [ParamDecl],
    infer: crate::op::InferFn,
) -> OpDecl {
    host(name, doc, params, Purity::Pure, infer)
}

fn num_workers(cx: &InferCx) -> Result<i64, Diagnostic> {
    match cx.attrs.int("num_workers") {
        Some(n) if n > 0 => Ok(n),
        _ => Err(cx.error("num_workers must be a positive integer")),
    }
}

/// The operand with another size along `axis`.
fn resized(
    cx: &mut InferCx,
    axis: i64,
    size: impl FnOnce(&mut InferCx, PrimExpr) -> Result<PrimExpr, Diagnostic>,
) -> Result<StructInfo, Diagnostic> {
    let x = cx.tensor(0)?.clone();
    let Some(mut dims) = x.known_dims().map(<[PrimExpr]>::to_vec) else {
        return Ok(StructInfo::Tensor(TensorInfo { shape: None, ..x }));
    };
    let Some(at) = usize::try_from(axis).ok().filter(|a| *a < dims.len()) else {
        return Err(cx.error(format!("axis {axis} is out of range for a tensor of rank {}", dims.len())));
    };
    dims[at] = size(cx, dims[at].clone())?;
    Ok(StructInfo::Tensor(TensorInfo { shape: Some(TensorShape::Dims(dims)), ..x }))
}

/// As [`packed`]; what takes the place of an argument has its type.
fn inplace_packed(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let indices = cx.attrs.ints("inplace_indices").unwrap_or_default();
    let count = cx.args.len().saturating_sub(1) as i64;
    for (n, &i) in indices.iter().enumerate() {
        if i < -1 || i >= count {
            return Err(cx.error(format!("inplace index {i} is out of range")));
        }
        if i >= 0 && indices[..n].contains(&i) {
            return Err(cx.error(format!("inplace index {i} occurs twice")));
        }
    }
    if indices.iter().all(|&i| i == -1) {
        return Err(cx.error("no result takes the place of an argument: use R.call_pure_packed"));
    }
    if indices.len() != cx.sinfo_args.len() {
        let (n, m) = (indices.len(), cx.sinfo_args.len());
        return Err(cx.error(format!("inplace_indices has {n} entries for {m} results")));
    }
    for (n, &i) in indices.iter().enumerate().filter(|(_, i)| **i >= 0) {
        if let (Some(old), Some(new)) = (cx.infos.get(i as usize + 1), cx.sinfo_args.get(n)) {
            let same = match (old.clone(), new.clone()) {
                (StructInfo::Tensor(old), StructInfo::Tensor(new)) => same_tensor(cx, &old, &new),
                (old, new) => old == new,
            };
            if !same {
                return Err(cx.error(format!("result {n} takes the place of argument {i}, but differs from it")));
            }
        }
    }
    packed(cx)
}

const fn distributed(name: &'static str, params: &'static [ParamDecl]) -> OpDecl {
    OpDecl {
        name,
        doc: "Communication between devices or workers.",
        params,
        purity: Purity::Pure,
        infer: |_| Ok(StructInfo::Object),
        compute: Compute::Unsupported("a compiled library runs on one device"),
        ulp: 0,
    }
}

/// The stated outputs: one is itself, several are a tuple.
fn outputs(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    if let Some(info) = cx.infos.get(1) {
        if !matches!(info, StructInfo::Tuple(_) | StructInfo::Object) {
            return Err(cx.error("the arguments must be a tuple"));
        }
    }
    match cx.sinfo_args {
        [] => Err(cx.error("out_ty is missing: the outputs' types must be stated")),
        [one] => Ok(one.clone()),
        several => Ok(StructInfo::Tuple(several.to_vec())),
    }
}

/// Proved to be of one dtype and shape, as far as `old` is known.
fn same_tensor(cx: &mut InferCx, old: &TensorInfo, new: &TensorInfo) -> bool {
    let same_shape = match (old.known_dims(), new.known_dims()) {
        (Some(a), Some(b)) => {
            let equal = |a: &PrimExpr, b: &PrimExpr| PrimExpr::raw_binary(BinOp::Eq, a.clone(), b.clone());
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || cx.facts.prove(&equal(a, b)) == Answer::Yes)
        }
        _ => true,
    };
    same_shape && (old.dtype.is_none() || old.dtype == new.dtype)
}

fn inplace(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let indices = cx.attrs.ints("inplace_indices").unwrap_or_default();
    if indices.len() != cx.sinfo_args.len() {
        return Err(cx.error(format!(
            "inplace_indices has {} entries for {} outputs",
            indices.len(),
            cx.sinfo_args.len()
        )));
    }
    let count = match cx.infos.get(1) {
        Some(StructInfo::Tuple(f)) => Some(f.len() as i64),
        _ => None,
    };
    for (n, &i) in indices.iter().enumerate() {
        if i < -1 || count.is_some_and(|c| i >= c) {
            return Err(cx.error(format!("inplace index {i} is out of range")));
        }
        if i >= 0 && indices[..n].contains(&i) {
            return Err(cx.error(format!("inplace index {i} occurs twice")));
        }
    }
    if indices.iter().all(|&i| i == -1) {
        return Err(cx.error("no output takes the place of an argument: use R.call_tir"));
    }
    // The output is the argument: it must be known to have the argument's shape and dtype.
    for (n, &i) in indices.iter().enumerate().filter(|(_, i)| **i >= 0) {
        let Some(StructInfo::Tuple(fields)) = cx.infos.get(1) else { continue };
        let old = match fields.get(i as usize) {
            Some(StructInfo::Tensor(t)) if t.known_dims().is_some() && t.dtype.is_some() => t.clone(),
            _ => {
                let d = cx.error(format!("argument {i} is written to: its shape and dtype must be known"));
                return Err(d.help("cast it: R.match_cast(x, R.Tensor(shape, dtype))"));
            }
        };
        let Some(StructInfo::Tensor(new)) = cx.sinfo_args.get(n) else { continue };
        let new = new.clone();
        if !same_tensor(cx, &old, &new) {
            return Err(cx.error(format!("output {n} takes the place of argument {i}, but differs in shape or dtype")));
        }
    }
    outputs(cx)
}

/// `default_derive` of the specification: no type argument is any object, several are a tuple.
fn packed(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    if let (Some(arg), "invoke_closure" | "invoke_pure_closure") = (cx.args.get(1), cx.op.name) {
        if !matches!(arg.kind(), ExprKind::Tuple(_)) && !matches!(cx.infos.get(1), Some(StructInfo::Tuple(_))) {
            return Err(cx.error("the arguments must be a tuple"));
        }
    }
    Ok(match cx.sinfo_args {
        [] => StructInfo::Object,
        [one] => one.clone(),
        several => StructInfo::Tuple(several.to_vec()),
    })
}
