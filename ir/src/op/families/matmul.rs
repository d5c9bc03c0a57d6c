//! Matmul and outer product.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
OpDecl {
        name: "matmul",
        doc: "Matrix product over the last two dims with NumPy broadcasting of the leading ones: `(.., n, k) x (.., k, m) -> (.., n, m)`; a 1-d operand counts as a row (lhs) or column (rhs) and its dim is dropped. Sums in `out_dtype`, which defaults to the dtype of the operands. Source: TVM `relax.matmul`.",
        params: &[operand("x1"), operand("x2"), attr("out_dtype", Default::None)],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 4,
    },
OpDecl {
        name: "outer",
        doc: "Outer product of two vectors: `(n), (m) -> (n, m)`.",
        params: &[operand("x1"), operand("x2")],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 0,
    },
];
