//! Losses.

use super::reduce::reduce_axes;
use super::{op, OnnxOp};
use crate::onnx::node::NodeCx;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, DType};

pub const OPS: &[OnnxOp] =
    &[op("NegativeLogLikelihoodLoss", &[(12, nll)]), op("SoftmaxCrossEntropyLoss", &[(12, cross_entropy)])];

/// The loss of log-probabilities `(n, c, d..)` by classes `(n, d..)`.
fn loss(cx: &mut NodeCx, log: &Tensor, target: &Tensor, weight: Option<Tensor>) -> Res<Tensor> {
    let dtype = log.dtype;
    let mut target = cx.cast(target, DType::I64)?;
    let zero = Tensor::scalar_int(DType::I64, 0);
    let ignored = match cx.int_opt("ignore_index") {
        Some(i) => {
            let i = Tensor::scalar_int(DType::I64, i);
            let hit = cx.op("equal", &[&target, &i])?;
            target = cx.op("where", &[&hit, &zero, &target])?;
            Some(hit)
        }
        None => None,
    };
    let wide = cx.unsqueeze(&target, &[1])?;
    let picked = cx.call("gather_elements", &[log.into(), (&wide).into()], &[("axis", AttrValue::Int(1))])?;
    let picked = cx.reshape(&picked, &target.dims.clone())?;
    let mut y = cx.op("negative", &[&picked])?;
    let mean = cx.str("reduction", "mean") == "mean";
    // The weight of each element: what the mean divides by.
    let mut weights = match weight {
        Some(w) => Some(cx.call("take", &[(&w).into(), (&target).into()], &[("axis", AttrValue::Int(0))])?),
        None if ignored.is_some() && mean => {
            let unit = Tensor::scalar(dtype, 1.0);
            Some(cx.broadcast_to(&unit, &target.dims.clone())?)
        }
        None => None,
    };
    if let Some(w) = &weights {
        y = cx.op("multiply", &[&y, w])?;
    }
    if let Some(hit) = &ignored {
        let nothing = Tensor::scalar(dtype, 0.0);
        y = cx.op("where", &[hit, &nothing, &y])?;
        if let Some(w) = weights {
            weights = Some(cx.op("where", &[hit, &nothing, &w])?);
        }
    }
    let all: Vec<usize> = (0..y.rank()).collect();
    match cx.str("reduction", "mean").as_str() {
        "none" => Ok(y),
        "sum" => reduce_axes(cx, &y, "sum", &all, false),
        _ => match weights {
            None => reduce_axes(cx, &y, "mean", &all, false),
            Some(w) => {
                let total = reduce_axes(cx, &y, "sum", &all, false)?;
                let w = reduce_axes(cx, &w, "sum", &all, false)?;
                cx.op("divide", &[&total, &w])
            }
        },
    }
}

fn nll(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, target, weight) = (cx.input(0)?, cx.input(1)?, cx.optional(2)?);
    if x.rank() < 2 || target.rank() + 1 != x.rank() {
        return Err(cx.error("the input must have one dim more than the target"));
    }
    Ok(vec![loss(cx, &x, &target, weight)?.into()])
}

fn cross_entropy(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, target, weight) = (cx.input(0)?, cx.input(1)?, cx.optional(2)?);
    if x.rank() < 2 || target.rank() + 1 != x.rank() {
        return Err(cx.error("the scores must have one dim more than the labels"));
    }
    let log = cx.call("nn.log_softmax", &[(&x).into()], &[("axis", AttrValue::Int(1))])?;
    let y = loss(cx, &log, &target, weight)?;
    Ok(vec![y.into(), log.into()])
}
