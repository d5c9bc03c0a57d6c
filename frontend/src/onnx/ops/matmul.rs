//! Matrix products.

use super::{one, op, OnnxOp};
use crate::onnx::node::{counted, NodeCx};
use crate::onnx::value::Value;
use crate::onnx::Res;

pub const OPS: &[OnnxOp] = &[op("MatMul", &[(1, matmul)]), op("Gemm", &[(1, gemm)])];

fn matmul(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    one(cx.op("matmul", &[&a, &b])?)
}

fn gemm(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (mut a, mut b) = (cx.input(0)?, cx.input(1)?);
    for (i, x) in [&a, &b].into_iter().enumerate() {
        // A row without its dim of 1 is what the runtimes take, too.
        if x.rank() > 2 || x.rank() == 0 || (x.rank() == 1 && i == 1) {
            return Err(cx.error(format!("input {i} has {}, 2 are needed", counted(x.rank(), "dim"))));
        }
    }
    if cx.flag("transA", false) {
        a = cx.transpose(&a, &[1, 0])?;
    }
    if cx.flag("transB", false) {
        b = cx.transpose(&b, &[1, 0])?;
    }
    let mut y = cx.op("matmul", &[&a, &b])?;
    let (alpha, beta) = (cx.float("alpha", 1.0), cx.float("beta", 1.0));
    if alpha != 1.0 {
        let alpha = cx.like(&y, alpha);
        y = cx.op("multiply", &[&y, &alpha])?;
    }
    if let Some(mut c) = cx.optional(2)?.filter(|_| beta != 0.0) {
        if beta != 1.0 {
            let beta = cx.like(&c, beta);
            c = cx.op("multiply", &[&c, &beta])?;
        }
        y = cx.op("add", &[&y, &c])?;
    }
    one(y)
}
