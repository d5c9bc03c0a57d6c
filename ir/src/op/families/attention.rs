//! Attention.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
OpDecl {
        name: "nn.attention",
        doc: "`softmax(q k^T * scale + bias) v` per head on `(batch, sequence, heads, head dim)`; `scale` defaults to `1 / sqrt(head dim)`, `causal_mask` is `TopLeft` or `BottomRight`.",
        params: &[operand("query"), operand("key"), operand("value"), optional("bias"), attr("scale", Default::None), attr("causal_mask", Default::None), attr("window_size", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 16,
    },
OpDecl {
        name: "nn.attention_bias",
        doc: "`nn.attention` with a bias that broadcasts to `(batch, heads, queries, keys)`.",
        params: &[operand("query"), operand("key"), operand("value"), operand("bias"), attr("scale", Default::None), attr("causal_mask", Default::None), attr("window_size", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 16,
    },
OpDecl {
        name: "nn.attention_var_len",
        doc: "Attention over sequences of different lengths packed along the second axis (batch 1): `seqstart_q` and `seqstart_k` hold the prefix sums of the lengths.",
        params: &[operand("queries"), operand("keys"), operand("values"), operand("seqstart_q"), operand("max_seqlen_q"), optional("seqstart_k"), optional("max_seqlen_k"), attr("scale", Default::None), attr("causal_mask", Default::None), attr("window_size", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 16,
    },
];
