//! Matching the arguments of a kernel call against the PrimFunc's parameters.

use crate::kernel::kernel_dims;
use crate::threads::Room;
use relax_ir::relax::{Call, ExprKind};
use relax_ir::tir::{PrimFunc, PrimParam};
use relax_ir::{DType, Diagnostic, IRModule, PrimExpr, Span, Var};
use std::collections::HashMap;

/// An argument as the caller knows it.
pub enum KernelArg<'a> {
    Tensor { dims: &'a [PrimExpr], dtype: DType },
    Scalar(PrimExpr),
    Other,
}

/// Where a buffer parameter's tensor comes from, by index into inputs or outputs.
#[derive(Clone, Copy)]
pub enum From {
    Input(usize),
    Output(usize),
}

/// What a call needs.
pub struct Matched {
    /// Of the buffer parameters, in order.
    pub buffers: Vec<From>,
    /// Values of [`kernel_dims`].
    pub dims: Vec<PrimExpr>,
    /// Bytes of scratch memory; 0: none.
    pub scratch: PrimExpr,
    /// Dims and scalars that must agree: (actual, wanted, what).
    pub later: Vec<(PrimExpr, PrimExpr, String)>,
}

/// The PrimFunc that `call_tir` names.
pub fn called<'m>(module: &'m IRModule, c: &Call, span: Span) -> Result<&'m PrimFunc, Diagnostic> {
    let Some(ExprKind::GlobalVar(name)) = c.args.first().map(|a| a.kind()) else {
        return Err(Diagnostic::unsupported("call", span, "a PrimFunc that is not named directly"));
    };
    let unknown = || Diagnostic::error("unknown-function", span, format!("the module has no PrimFunc named {name}"));
    module.prim(name).ok_or_else(unknown)
}

/// The scalar that `prim` returns, in terms of those among its arguments (`None`: another value). `None` when it takes more
/// than those.
pub fn returned(prim: &PrimFunc, args: impl Iterator<Item = Option<PrimExpr>>) -> Option<PrimExpr> {
    let scalar = |(param, arg): (&PrimParam, Option<PrimExpr>)| match param {
        PrimParam::Scalar(v) => Some((v.clone(), arg?)),
        PrimParam::Buffer { .. } | PrimParam::Handle { .. } => None,
    };
    let known: HashMap<Var, PrimExpr> = prim.params.iter().zip(args).filter_map(scalar).collect();
    let value = prim.returns.as_ref()?;
    value.vars().iter().all(|v| known.contains_key(v)).then(|| value.substitute(&known))
}

/// Matches `inputs`, then `outputs`, with the parameters of `prim`; its last buffers are the outputs. Kernels use vectors of
/// `room`.
pub fn match_args(
    prim: &PrimFunc,
    inputs: &[KernelArg],
    outputs: &[KernelArg],
    room: Room,
    span: Span,
) -> Result<Matched, Diagnostic> {
    let error = |m: String| Diagnostic::error("call-tir", span, format!("{}: {m}", prim.name));
    let missing = || error("too few arguments for its parameters".into());
    let mut map: HashMap<Var, PrimExpr> = HashMap::new();
    let mut later = vec![];
    let mut buffers = vec![];
    let (mut ins, mut outs) = (0, 0);
    let n_buffers = prim.buffers().count();
    for p in &prim.params {
        match p {
            // Calls of kernels have tensors for them by now.
            PrimParam::Handle { handle, .. } => {
                let what = format!("{}: the handle `{}` in this position", prim.name, handle.name());
                return Err(Diagnostic::unsupported("tir", span, what));
            }
            PrimParam::Scalar(v) => {
                let arg = inputs.get(ins).ok_or_else(missing)?;
                ins += 1;
                let KernelArg::Scalar(e) = arg else {
                    return Err(error(format!("parameter {} takes a scalar", v.name())));
                };
                let e = e.clone().cast(v.dtype());
                if let Some(old) = map.insert(v.clone(), e.clone()) {
                    later.push((old, e, format!("{}: scalar {}", prim.name, v.name())));
                }
            }
            PrimParam::Buffer { buffer, .. } => {
                let (arg, from) = if buffers.len() + outputs.len() >= n_buffers {
                    outs += 1;
                    (outputs.get(outs - 1).ok_or_else(missing)?, From::Output(outs - 1))
                } else {
                    ins += 1;
                    (inputs.get(ins - 1).ok_or_else(missing)?, From::Input(ins - 1))
                };
                let KernelArg::Tensor { dims, dtype } = arg else {
                    return Err(error(format!("parameter {} takes a tensor", buffer.name)));
                };
                if *dtype != buffer.dtype() || dims.len() != buffer.ndim() {
                    return Err(error(format!(
                        "parameter {} takes {} of rank {}, the argument is {dtype} of rank {}",
                        buffer.name,
                        buffer.dtype(),
                        buffer.ndim(),
                        dims.len()
                    )));
                }
                for (i, (d, a)) in buffer.shape.iter().zip(dims.iter()).enumerate() {
                    match d.as_var() {
                        Some(v) if !map.contains_key(v) => drop(map.insert(v.clone(), a.clone().cast(v.dtype()))),
                        _ => {
                            let what = format!("{}: parameter {}, dimension {i}", prim.name, buffer.name);
                            later.push((a.clone(), d.clone(), what));
                        }
                    }
                }
                let mut dense = PrimExpr::i64(1);
                for (i, s) in buffer.strides.iter().enumerate().rev() {
                    match s.as_var() {
                        Some(v) if !map.contains_key(v) => drop(map.insert(v.clone(), dense.clone().cast(v.dtype()))),
                        _ if buffer.shape[i].is_int(1) => {}
                        _ => {
                            let what =
                                format!("{}: parameter {}, stride {i} of a dense tensor", prim.name, buffer.name);
                            later.push((dense.clone(), s.clone(), what));
                        }
                    }
                    dense = dense * dims[i].clone().cast(DType::I64);
                }
                buffers.push(from);
            }
        }
    }
    let dims = kernel_dims(prim)
        .iter()
        .map(|v| {
            let pass = |e: &PrimExpr| if v.dtype().is_int() { e.clone().cast(DType::I64) } else { e.clone() };
            let unbound = || error(format!("the shape variable {} is bound by no parameter", v.name()));
            map.get(v).map(pass).ok_or_else(unbound)
        })
        .collect::<Result<_, _>>()?;
    // A kernel that takes a workspace takes the pointer also where these dims need none of it.
    let scratch = match room.all(prim) {
        none if none.is_int(0) => none,
        some => Some(some.substitute(&map)).filter(|s| !s.is_int(0)).unwrap_or(PrimExpr::i64(64)),
    };
    let later =
        later.into_iter().map(|(a, w, what)| (a.cast(DType::I64), w.substitute(&map).cast(DType::I64), what)).collect();
    Ok(Matched { buffers, dims, scratch, later })
}
