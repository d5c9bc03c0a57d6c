//! Feature extraction: counts of n-grams, columns, thresholds.

use super::{one, op, op_of, OnnxOp};
use crate::onnx::node::{ints, NodeCx};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, Constant, DType, PrimExpr};

const ML: &str = "ai.onnx.ml";

pub const OPS: &[OnnxOp] = &[
    op("TfIdfVectorizer", &[(9, tf_idf)]),
    op_of(ML, "ArrayFeatureExtractor", &[(1, columns)]),
    op_of(ML, "Binarizer", &[(1, binarizer)]),
    op_of(ML, "Scaler", &[(1, scaler)]),
    op_of(ML, "LinearRegressor", &[(1, linear_regressor)]),
];

fn floats(values: &[f64]) -> Tensor {
    let bytes = values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect();
    Tensor::constant(Constant::new(DType::F32, vec![values.len() as i64], bytes))
}

fn tf_idf(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let pool = cx.ints("pool_int64s");
    let pool = pool.ok_or_else(|| cx.unsupported("n-grams of strings"))?;
    let (starts, indexes) = (cx.ints("ngram_counts"), cx.ints("ngram_indexes"));
    let (starts, indexes) = (cx.required("ngram_counts", starts)?, cx.required("ngram_indexes", indexes)?);
    let (shortest, longest) = (cx.int("min_gram_length", 1), cx.int("max_gram_length", 1));
    // Grams of one length follow each other; `ngram_counts` holds where each length begins.
    let (mut sizes, mut values, mut places) = (vec![], vec![], vec![]);
    let mut next = 0;
    for (n, start) in starts.iter().enumerate() {
        let size = n + 1;
        let end = starts.get(n + 1).copied().unwrap_or(pool.len() as i64);
        let part = usize::try_from(*start).ok().zip(usize::try_from(end).ok()).and_then(|(a, b)| pool.get(a..b));
        let part = part.filter(|p| p.len() % size == 0);
        let part = part.ok_or_else(|| cx.error("ngram_counts do not fit pool_int64s"))?;
        for gram in part.chunks_exact(size) {
            let column = indexes.get(next).copied();
            next += 1;
            if (shortest..=longest).contains(&(size as i64)) {
                sizes.push(size as i64);
                values.extend_from_slice(gram);
                places.push(column.ok_or_else(|| cx.error("ngram_indexes are too few"))?);
            }
        }
    }
    let width = indexes.iter().copied().max().unwrap_or(-1) + 1;
    let attrs = [
        ("sizes", ints(sizes)),
        ("values", ints(values)),
        ("columns", ints(places)),
        ("width", AttrValue::Int(width)),
        ("max_skip", AttrValue::Int(cx.int("max_skip_count", 0))),
    ];
    let mut y = cx.call("onnx.ngrams", &[(&x).into()], &attrs)?;
    let mode = cx.str("mode", "TF");
    if mode == "IDF" {
        let zero = cx.like(&y, 0.0);
        let found = cx.op("greater", &[&y, &zero])?;
        y = cx.cast(&found, DType::F32)?;
    }
    if mode != "TF" {
        if let Some(w) = cx.floats("weights") {
            // One weight per n-gram: to the column where it is counted.
            let mut by_column = vec![1.0; width as usize];
            for (i, w) in indexes.iter().zip(&w) {
                if let Some(slot) = usize::try_from(*i).ok().and_then(|i| by_column.get_mut(i)) {
                    *slot = *w;
                }
            }
            y = cx.op("multiply", &[&y, &floats(&by_column)])?;
        }
    }
    one(y)
}

fn columns(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, at) = (cx.input(0)?, cx.input(1)?);
    let n = cx.simplify(PrimExpr::product(&at.dims));
    let at = cx.reshape(&at, &[n])?;
    let x = if x.rank() == 1 { cx.unsqueeze(&x, &[0])? } else { x };
    let axis = x.rank() as i64 - 1;
    one(cx.call("take", &[(&x).into(), (&at).into()], &[("axis", AttrValue::Int(axis))])?)
}

fn binarizer(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let limit = cx.like(&x, cx.float("threshold", 0.0));
    let y = cx.op("greater", &[&x, &limit])?;
    one(cx.cast(&y, x.dtype)?)
}

/// `(x - offset) * scale`
fn scaler(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let mut y = cx.cast(&x, DType::F32)?;
    if let Some(offset) = cx.floats("offset") {
        y = cx.op("subtract", &[&y, &floats(&offset)])?;
    }
    if let Some(scale) = cx.floats("scale") {
        y = cx.op("multiply", &[&y, &floats(&scale)])?;
    }
    one(y)
}

fn linear_regressor(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    if cx.str("post_transform", "NONE") != "NONE" {
        return Err(cx.unsupported("a post_transform"));
    }
    let targets = cx.int("targets", 1);
    let w = cx.floats("coefficients");
    let w = floats(&cx.required("coefficients", w)?);
    let features = w.dims[0].as_int().unwrap_or(0) / targets.max(1);
    let w = cx.reshape(&w, &[PrimExpr::i64(targets), PrimExpr::i64(features)])?;
    let w = cx.transpose(&w, &[1, 0])?;
    let x = cx.cast(&x, DType::F32)?;
    let mut y = cx.op("matmul", &[&x, &w])?;
    if let Some(b) = cx.floats("intercepts") {
        y = cx.op("add", &[&y, &floats(&b)])?;
    }
    one(y)
}
