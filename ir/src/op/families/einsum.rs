//! Einstein summation.

use crate::diag::Diagnostic;
use crate::op::elem::wide_dtype;
use crate::op::families::rules;
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::PrimFunc;

pub static OPS: &[OpDecl] = &[OpDecl::pure(
    "einsum",
    "Einstein summation over a tuple of tensors: labels left out of the result are summed, a label repeated within an operand takes its diagonal, `...` stands for broadcast dims; without `->` the result has the labels that occur once, in alphabetical order. Source: NumPy `einsum`, TVM `topi.einsum`.",
    &[operand("operands"), attr("subscripts", Default::Required)],
    infer,
    Compute::Kernel(compute),
)
.ulp(4)];

/// A dim of an operand or of the result: a letter, or one of the dims of `...`, counted from its end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Label {
    Letter(char),
    Broadcast(usize),
}

struct Equation {
    operands: Vec<Vec<Label>>,
    result: Vec<Label>,
}

impl Equation {
    /// Parses `subscripts` for operands of these ranks.
    fn parse(subscripts: &str, ranks: &[usize]) -> Result<Equation, String> {
        let text: String = subscripts.chars().filter(|c| !c.is_whitespace()).collect();
        let (inputs, output) = match text.split_once("->") {
            Some((i, o)) => (i, Some(o)),
            None => (text.as_str(), None),
        };
        let terms: Vec<&str> = inputs.split(',').collect();
        if terms.len() != ranks.len() {
            return Err(format!("\"{subscripts}\" is for {} operands, {} are given", terms.len(), ranks.len()));
        }
        let mut operands = vec![];
        let mut broadcast = 0;
        for (i, (term, rank)) in terms.iter().zip(ranks).enumerate() {
            let (labels, wide) = expand(term, Some(*rank))?;
            if labels.len() != *rank {
                return Err(format!("\"{term}\" has {} labels, operand {} has {rank} dims", labels.len(), i + 1));
            }
            broadcast = broadcast.max(wide);
            operands.push(labels);
        }
        let result = match output {
            Some(o) => expand_result(o, broadcast)?,
            None => {
                let all: Vec<Label> = operands.iter().flatten().copied().collect();
                let mut letters: Vec<char> = all
                    .iter()
                    .filter_map(|l| match l {
                        Label::Letter(c) => Some(*c),
                        Label::Broadcast(_) => None,
                    })
                    .filter(|c| all.iter().filter(|l| **l == Label::Letter(*c)).count() == 1)
                    .collect();
                letters.sort_unstable();
                (0..broadcast).rev().map(Label::Broadcast).chain(letters.into_iter().map(Label::Letter)).collect()
            }
        };
        for (i, l) in result.iter().enumerate() {
            if result[..i].contains(l) {
                return Err(format!("the result of \"{subscripts}\" repeats a label"));
            }
            if let Label::Letter(c) = l {
                if !operands.iter().flatten().any(|x| x == l) {
                    return Err(format!("label `{c}` of the result is in no operand"));
                }
            }
        }
        Ok(Equation { operands, result })
    }

    /// Labels that are summed, in order of appearance.
    fn summed(&self) -> Vec<Label> {
        let mut out: Vec<Label> = vec![];
        for l in self.operands.iter().flatten() {
            if !self.result.contains(l) && !out.contains(l) {
                out.push(*l);
            }
        }
        out
    }
}

/// The labels of a term and how many dims its `...` stands for, which follows from `rank`.
fn expand(term: &str, rank: Option<usize>) -> Result<(Vec<Label>, usize), String> {
    let (before, after) = match term.split_once("...") {
        None => return Ok((letters(term)?, 0)),
        Some(parts) => parts,
    };
    let (before, after) = (letters(before)?, letters(after)?);
    let named = before.len() + after.len();
    let wide = rank.unwrap_or(named).checked_sub(named);
    let wide = wide.ok_or_else(|| format!("\"{term}\" has more labels than its operand has dims"))?;
    Ok(([before, (0..wide).rev().map(Label::Broadcast).collect(), after].concat(), wide))
}

fn expand_result(term: &str, broadcast: usize) -> Result<Vec<Label>, String> {
    match term.split_once("...") {
        None => letters(term),
        Some((a, b)) => Ok([letters(a)?, (0..broadcast).rev().map(Label::Broadcast).collect(), letters(b)?].concat()),
    }
}

fn letters(text: &str) -> Result<Vec<Label>, String> {
    let one = |c: char| if c.is_ascii_alphabetic() { Ok(Label::Letter(c)) } else { Err(format!("`{c}` is no label")) };
    text.chars().map(one).collect()
}

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let tensors: Vec<_> = cx.tensors(0)?.into_iter().cloned().collect();
    let subscripts = cx.attrs.str("subscripts").ok_or_else(|| cx.error("subscripts must be a string"))?;
    let dtypes: Vec<_> = tensors.iter().map(|t| ("operand", t.dtype)).collect();
    let dtype = cx.same_dtype(&dtypes)?;
    let Some(ranks) = tensors.iter().map(|t| t.ndim).collect::<Option<Vec<_>>>() else {
        return Ok(rules::unknown(None, dtype));
    };
    let equation = Equation::parse(subscripts, &ranks).map_err(|e| cx.error(e))?;
    let Some(dims) = tensors.iter().map(|t| t.known_dims()).collect::<Option<Vec<_>>>() else {
        return Ok(rules::unknown(Some(equation.result.len()), dtype));
    };
    let mut sizes: Vec<(Label, PrimExpr)> = vec![];
    for (labels, dims) in equation.operands.iter().zip(dims) {
        for (label, dim) in labels.iter().zip(dims) {
            let Some((_, known)) = sizes.iter_mut().find(|(l, _)| l == label) else {
                sizes.push((*label, dim.clone()));
                continue;
            };
            if known.is_int(1) {
                *known = dim.clone();
            } else if !dim.is_int(1) {
                let name = match label {
                    Label::Letter(c) => c.to_string(),
                    Label::Broadcast(_) => "...".to_string(),
                };
                let (a, b) = (dim_text(known), dim_text(dim));
                cx.require_eq(known, dim, || format!("dims of label `{name}` differ: {a} and {b}"))?;
            }
        }
    }
    let size = |l: &Label| sizes.iter().find(|(x, _)| x == l).map_or(PrimExpr::i64(1), |(_, d)| d.clone());
    Ok(rules::known(equation.result.iter().map(size).collect(), dtype))
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (tensors, out) = (cx.tensors(0)?, cx.result()?);
    let ranks: Vec<usize> = tensors.iter().map(|t| t.dims.len()).collect();
    let equation = Equation::parse(cx.attrs.str("subscripts").unwrap_or(""), &ranks).map_err(|e| cx.error(e))?;
    let (mut k, inputs) = cx.kernel()?;
    let summed = equation.summed();
    let extent = |l: &Label| {
        let dims = equation.operands.iter().zip(&tensors).flat_map(|(ls, t)| ls.iter().zip(t.dims));
        let of_label = dims.filter(|(x, _)| *x == l).map(|(_, d)| d);
        of_label.fold(PrimExpr::i64(1), |a, d| if a.is_int(1) { d.clone() } else { a })
    };
    let extents: Vec<PrimExpr> = summed.iter().map(extent).collect();
    let acc = wide_dtype(out.dtype);
    let value = |s: &[PrimExpr], r: &[PrimExpr]| {
        let mut product: Option<PrimExpr> = None;
        for (labels, x) in equation.operands.iter().zip(&inputs) {
            let at = labels.iter().zip(&x.shape).map(|(l, d)| {
                let i = equation.result.iter().position(|x| x == l).map(|p| s[p].clone());
                let i = i.or_else(|| summed.iter().position(|x| x == l).map(|p| r[p].clone()));
                i.filter(|_| !d.is_int(1)).unwrap_or(PrimExpr::i64(0))
            });
            let v = x.at(at.collect::<Vec<_>>()).cast(acc);
            product = Some(match product {
                Some(p) => p * v,
                None => v,
            });
        }
        product.unwrap_or(PrimExpr::one(acc))
    };
    let y = match summed.is_empty() {
        true => k.compute("einsum", out.dims, out.dtype, |s| value(s, &[])),
        false => {
            let y = k.sum("einsum", out.dims, acc, &extents, value);
            rules::narrow(&mut k, y, out.dtype)
        }
    };
    Ok(k.finish(&[y]))
}
