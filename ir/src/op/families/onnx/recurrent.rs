//! Recurrent layers in one direction: what depends on the state. The products of the input with its weights are
//! computed beforehand, for all steps at once.

use super::{cell, each, local, set};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, wide, wide_dtype};
use crate::op::families::rules;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr};
use crate::relax::StructInfo;
use crate::tir::{Buffer, PrimFunc, Stmt};

pub static OPS: &[OpDecl] = &[OpDecl::pure(
    "onnx.recurrent",
    "One direction of an `rnn`, `gru` or `lstm` of `h` units with `g` gates (1, 3: z r h, 4: i o f c). `gates (t, b, g h)` are the products of the inputs with biases added, `r (g h, h)` the recurrent weights, `rb (g h)` their biases, `h0` and `c0 (b, h)` the states, `p (3 h)` the peepholes (i o f) and `lens (b)` the steps of each sequence. Gives `(t, b, h)` and the final `(b, h)` state, of an lstm the cell too. `activations` are names with `alpha` and `beta` each; steps past the end are 0. Source: ONNX `RNN`, `GRU`, `LSTM`.",
    &[
        operand("gates"),
        operand("r"),
        operand("rb"),
        operand("h0"),
        operand("c0"),
        operand("p"),
        operand("lens"),
        attr("kind", Default::Str("lstm")),
        attr("reverse", Default::Bool(false)),
        attr("activations", Default::Required),
        attr("alpha", Default::Required),
        attr("beta", Default::Required),
        attr("clip", Default::Float(0.0)),
        attr("linear_before_reset", Default::Bool(false)),
        attr("input_forget", Default::Bool(false)),
    ],
    infer,
    Compute::Kernel(compute),
)
.ulp(16)];

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, h) = (rules::tensor(cx, 0)?, rules::tensor(cx, 3)?);
    rules::require_ndim(cx, 0, 3)?;
    rules::require_ndim(cx, 3, 2)?;
    let y = match (x.known_dims(), h.known_dims()) {
        (Some(x), Some(h)) => Some(vec![x[0].clone(), x[1].clone(), h[1].clone()]),
        _ => None,
    };
    let mut fields = vec![StructInfo::Tensor(x.with_dims(y, Some(3))), StructInfo::Tensor(h.clone())];
    match cx.attrs.str("kind") {
        Some("lstm") => fields.push(StructInfo::Tensor(h)),
        Some("rnn" | "gru") => {}
        _ => return Err(cx.error("kind must be rnn, gru or lstm")),
    }
    Ok(StructInfo::Tuple(fields))
}

/// The activation number `n`.
fn activation(cx: &ComputeCx, n: usize, x: PrimExpr) -> Result<PrimExpr, Diagnostic> {
    let d = x.dtype();
    let c = |v: f64| PrimExpr::float(d, v);
    let entry = |name: &str| cx.attrs.get(name).and_then(|a| a.as_list()?.get(n).cloned());
    let number = |name: &str| entry(name).and_then(|v| v.as_float());
    let name = entry("activations").and_then(|v| v.as_str().map(str::to_lowercase)).unwrap_or_default();
    let (alpha, beta) = (number("alpha"), number("beta"));
    Ok(match name.as_str() {
        "sigmoid" => x.call1(Intrin::Sigmoid),
        "tanh" => x.call1(Intrin::Tanh),
        "relu" => x.max(c(0.0)),
        "affine" => x * c(alpha.unwrap_or(1.0)) + c(beta.unwrap_or(0.0)),
        "leakyrelu" => x.clone().lt(c(0.0)).select(x.clone() * c(alpha.unwrap_or(0.01)), x),
        "thresholdedrelu" => x.clone().gt(c(alpha.unwrap_or(1.0))).select(x, c(0.0)),
        "scaledtanh" => (x * c(beta.unwrap_or(1.0))).call1(Intrin::Tanh) * c(alpha.unwrap_or(1.0)),
        "hardsigmoid" => (x * c(alpha.unwrap_or(0.2)) + c(beta.unwrap_or(0.5))).max(c(0.0)).min(c(1.0)),
        "elu" => {
            let low = (x.clone().call1(Intrin::Exp) - c(1.0)) * c(alpha.unwrap_or(1.0));
            x.clone().lt(c(0.0)).select(low, x)
        }
        "softsign" => x.clone() / (c(1.0) + x.call1(Intrin::Fabs)),
        "softplus" => (x.call1(Intrin::Exp) + c(1.0)).call1(Intrin::Log),
        _ => return Err(cx.error(format!("activation `{name}` is unknown"))),
    })
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let [x, r, rb, h0, c0, p, lens] = match inputs.as_slice() {
        [a, b, c, d, e, f, g] => [a, b, c, d, e, f, g],
        _ => return Err(cx.error("takes seven tensors")),
    };
    let outs = cx.results()?;
    let acc = wide_dtype(x.dtype());
    let (steps, batch, units) = (x.shape[0].clone(), x.shape[1].clone(), h0.shape[1].clone());
    let width = x.shape[2].clone();
    let y = k.buffer("y", outs[0].dims, outs[0].dtype);
    let h = k.buffer("h", &h0.shape, acc);
    let c = k.buffer("c", &h0.shape, acc);
    let gates = k.buffer("gate", &[batch.clone(), width.clone()], acc);
    let reset = k.buffer("reset", &h0.shape, acc);
    let kind = cx.attrs.str("kind").unwrap_or("lstm").to_string();
    let (reverse, linear) =
        (cx.attrs.bool("reverse") == Some(true), cx.attrs.bool("linear_before_reset") == Some(true));
    let coupled = cx.attrs.bool("input_forget") == Some(true);
    let limit = cx.attrs.float("clip").unwrap_or(0.0);
    let act = |n: usize, v: PrimExpr| {
        let v = if limit > 0.0 { v.max(PrimExpr::float(acc, -limit)).min(PrimExpr::float(acc, limit)) } else { v };
        activation(cx, n, v)
    };
    let sum = Buffer::new("sum", vec![PrimExpr::i64(1)], acc);
    let failed = std::cell::RefCell::new(None);
    k.rows("recurrent", std::slice::from_ref(&batch), |b| {
        let b = &b[0];
        let at = |buffer: &Buffer, j: &PrimExpr| buffer.at([b.clone(), j.clone()]);
        let put = |buffer: &Buffer, j: &PrimExpr, v: PrimExpr| Stmt::store(buffer, vec![b.clone(), j.clone()], v);
        // `start + sum of state[k] * r[row, k]` into `sum`.
        let product = |state: &Buffer, row: PrimExpr, start: PrimExpr| {
            Stmt::seq(vec![
                set(&sum, 0, start),
                each(&units, "k", |k| {
                    set(&sum, 0, cell(&sum, 0) + at(state, k) * wide(r.at([row.clone(), k.clone()])).cast(acc))
                }),
            ])
        };
        let gate = |n: i64, j: &PrimExpr| gates.at([b.clone(), units.clone() * n + j.clone()]);
        let body = each(&wide_len(lens, b, &steps), "s", |s| {
            let t = if reverse { wide_len(lens, b, &steps) - 1 - s.clone() } else { s.clone() };
            let input = |row: &PrimExpr| wide(x.at([t.clone(), b.clone(), row.clone()])).cast(acc);
            let bias = |row: &PrimExpr| wide(rb.at([row.clone()])).cast(acc);
            let plain = if kind == "gru" { units.clone() * 2 } else { width.clone() };
            let mut step = vec![each(&plain, "g", |g| {
                Stmt::seq(vec![product(&h, g.clone(), input(g) + bias(g)), put(&gates, g, cell(&sum, 0))])
            })];
            let built = match kind.as_str() {
                "rnn" => (|| {
                    step.push(each_try(&units, |j| Ok(put(&h, j, act(0, gate(0, j))?)))?);
                    Ok(())
                })(),
                "gru" => (|| {
                    let hidden = |j: &PrimExpr| units.clone() * 2 + j.clone();
                    // r, then the hidden gate, then the state: the old state is needed until all are known.
                    if linear {
                        step.push(each_try(&units, |j| {
                            let row = hidden(j);
                            let inner = product(&h, row.clone(), bias(&row));
                            let v = act(1, input(&row) + act(0, gate(1, j))? * cell(&sum, 0))?;
                            Ok(Stmt::seq(vec![inner, put(&gates, &row, v)]))
                        })?);
                    } else {
                        step.push(each_try(&units, |j| Ok(put(&reset, j, act(0, gate(1, j))? * at(&h, j))))?);
                        step.push(each_try(&units, |j| {
                            let row = hidden(j);
                            let inner = product(&reset, row.clone(), input(&row) + bias(&row));
                            Ok(Stmt::seq(vec![inner, put(&gates, &row, act(1, cell(&sum, 0))?)]))
                        })?);
                    }
                    step.push(each_try(&units, |j| {
                        let z = act(0, gate(0, j))?;
                        let v = (PrimExpr::one(acc) - z.clone()) * gate(2, j) + z * at(&h, j);
                        Ok(put(&h, j, v))
                    })?);
                    Ok(())
                })(),
                _ => (|| {
                    let peephole = |n: i64, j: &PrimExpr| wide(p.at([units.clone() * n + j.clone()])).cast(acc);
                    step.push(each_try(&units, |j| {
                        let i = act(0, gate(0, j) + peephole(0, j) * at(&c, j))?;
                        let f = match coupled {
                            true => PrimExpr::one(acc) - i.clone(),
                            false => act(0, gate(2, j) + peephole(2, j) * at(&c, j))?,
                        };
                        let new = f * at(&c, j) + i * act(1, gate(3, j))?;
                        let o = act(0, gate(1, j) + peephole(1, j) * at(&c, j))?;
                        Ok(Stmt::seq(vec![put(&c, j, new), put(&h, j, o * act(2, at(&c, j))?)]))
                    })?);
                    Ok(())
                })(),
            };
            if let Err(e) = built {
                *failed.borrow_mut() = Some(e);
            }
            step.push(each(&units, "j", |j| {
                Stmt::store(&y, vec![t.clone(), b.clone(), j.clone()], convert(at(&h, j), y.dtype()))
            }));
            Stmt::seq(step)
        });
        let begin = each(&units, "j", |j| {
            Stmt::seq(vec![put(&h, j, wide(at(h0, j)).cast(acc)), put(&c, j, wide(at(c0, j)).cast(acc))])
        });
        let clear = each(&steps, "t", |t| {
            each(&units, "j", |j| Stmt::store(&y, vec![t.clone(), b.clone(), j.clone()], PrimExpr::zero(y.dtype())))
        });
        local(&sum, Stmt::seq(vec![begin, clear, body]))
    });
    if let Some(e) = failed.into_inner() {
        return Err(e);
    }
    let mut outputs = vec![y];
    outputs.push(k.compute("h_last", &h0.shape, outs[1].dtype, |i| convert(h.at(i), outs[1].dtype)));
    if kind == "lstm" {
        outputs.push(k.compute("c_last", &h0.shape, outs[2].dtype, |i| convert(c.at(i), outs[2].dtype)));
    }
    Ok(k.finish(&outputs))
}

/// The steps of sequence `b`.
fn wide_len(lens: &Buffer, b: &PrimExpr, steps: &PrimExpr) -> PrimExpr {
    lens.at([b.clone()]).cast(DType::I64).min(steps.clone())
}

fn each_try(extent: &PrimExpr, body: impl FnOnce(&PrimExpr) -> Result<Stmt, Diagnostic>) -> Result<Stmt, Diagnostic> {
    let v = crate::prim::Var::dim("j");
    let i = v.expr();
    Ok(Stmt::for_serial(&v, extent.clone(), body(&i)?))
}
