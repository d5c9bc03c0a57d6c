//! Normalisation.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
OpDecl {
        name: "nn.batch_norm",
        doc: "Batch normalisation over all axes but `axis`: `(x - mean) / sqrt(var + epsilon) * gamma + beta`. Inference takes `moving_mean` and `moving_var` and returns them unchanged; training takes the statistics of the batch and returns the moving ones updated with `momentum`. Returns (data, moving_mean, moving_var).",
        params: &[operand("data"), operand("gamma"), operand("beta"), operand("moving_mean"), operand("moving_var"), attr("axis", Default::Required), attr("epsilon", Default::Float(1e-5)), attr("center", Default::Bool(true)), attr("scale", Default::Bool(true)), attr("momentum", Default::Float(0.1)), attr("training", Default::Bool(true))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
OpDecl {
        name: "nn.layer_norm",
        doc: "Normalisation over `axes` with scale `gamma` and offset `beta` of those axes.",
        params: &[operand("data"), operand("gamma"), operand("beta"), attr("axes", Default::Required), attr("epsilon", Default::Float(1e-5)), attr("center", Default::Bool(true)), attr("scale", Default::Bool(true))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
OpDecl {
        name: "nn.group_norm",
        doc: "Normalisation over groups of channels and over `axes`; `gamma` and `beta` have one entry per channel.",
        params: &[operand("data"), operand("gamma"), operand("beta"), attr("num_groups", Default::Required), attr("channel_axis", Default::Required), attr("axes", Default::Required), attr("epsilon", Default::Float(1e-5)), attr("center", Default::Bool(true)), attr("scale", Default::Bool(true))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
OpDecl {
        name: "nn.instance_norm",
        doc: "Normalisation over `axes`, each channel of each instance on its own; `gamma` and `beta` have one entry per channel.",
        params: &[operand("data"), operand("gamma"), operand("beta"), attr("channel_axis", Default::Required), attr("axes", Default::Required), attr("epsilon", Default::Float(1e-5)), attr("center", Default::Bool(true)), attr("scale", Default::Bool(true))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
OpDecl {
        name: "nn.rms_norm",
        doc: "`x / sqrt(mean(x * x) + epsilon) * weight` over `axes`; computes in float32.",
        params: &[operand("data"), operand("weight"), attr("axes", Default::Int(-1)), attr("epsilon", Default::Float(1e-5))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
];
