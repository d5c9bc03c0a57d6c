//! Strings: bytes in the last dim, filled up with zeros.

use super::each;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::families::rules;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::{Buffer, KernelBuilder, PrimFunc, Stmt};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "onnx.text_equal",
        "Are the strings equal, with broadcasting? Source: ONNX `Equal` of strings.",
        &[operand("x"), operand("y")],
        |cx| infer_pair(cx, |_, _| None, DType::BOOL),
        Compute::Kernel(equal),
    ),
    OpDecl::pure(
        "onnx.text_concat",
        "The strings of `x` followed by those of `y`, with broadcasting. Source: ONNX `StringConcat`.",
        &[operand("x"), operand("y")],
        |cx| infer_pair(cx, |a, b| Some(a + b), DType::U8),
        Compute::Kernel(concat),
    ),
    OpDecl::pure(
        "onnx.text_case",
        "Letters in upper or lower case: ASCII and the Latin-1 supplement (UTF-8). Source: ONNX `StringNormalizer`.",
        &[operand("x"), attr("upper", Default::Required)],
        |cx| Ok(StructInfo::Tensor(rules::tensor(cx, 0)?)),
        Compute::Kernel(case),
    ),
    OpDecl::pure(
        "onnx.text_automaton",
        "Does a deterministic automaton accept the strings? `classes` gives the column of each byte, `table` the next \
         state by state and column, `accepts` the states in which a text may end. Source: ONNX `RegexFullMatch`.",
        &[operand("x"), operand("classes"), operand("table"), operand("accepts"), attr("start", Default::Int(0))],
        |cx| {
            let x = rules::tensor(cx, 0)?;
            let dims = x.known_dims().and_then(|d| d.split_last()).map(|(_, d)| d.to_vec());
            let dims = dims.ok_or_else(|| cx.error("the dims must be known"))?;
            Ok(rules::known(dims, Some(DType::BOOL)))
        },
        Compute::Kernel(automaton),
    ),
    OpDecl::pure(
        "onnx.text_split_count",
        "How many parts each string has between delimiters (of a constant vector of bytes; empty: runs of spaces), \
         after at most `limit` cuts (-1: any). Source: ONNX `StringSplit`.",
        &[operand("x"), operand("delimiter"), attr("limit", Default::Int(-1))],
        |cx| {
            let x = rules::tensor(cx, 0)?;
            let dims = x.known_dims().and_then(|d| d.split_last()).map(|(_, d)| d.to_vec());
            let dims = dims.ok_or_else(|| cx.error("the dims must be known"))?;
            Ok(rules::known(dims, Some(DType::I64)))
        },
        Compute::Kernel(|cx| split(cx, true)),
    ),
    OpDecl::pure(
        "onnx.text_split",
        "The parts that `onnx.text_split_count` counts, in a new dim of `parts` before the bytes; empty where there are \
         fewer. Source: ONNX `StringSplit`.",
        &[operand("x"), operand("delimiter"), operand("parts"), attr("limit", Default::Int(-1))],
        |cx| {
            let x = rules::tensor(cx, 0)?;
            let (parts, _) = cx.shape_operand(2)?;
            let (Some(d), Some([n])) = (x.known_dims(), parts.as_deref()) else {
                return Err(cx.error("the dims must be known"));
            };
            let mut dims = d.to_vec();
            dims.insert(d.len().saturating_sub(1), n.clone());
            Ok(rules::known(dims, Some(DType::U8)))
        },
        Compute::Kernel(|cx| split(cx, false)),
    ),
];

/// Dims of both operands without the bytes, broadcast, and the bytes of the result.
fn infer_pair(
    cx: &mut InferCx,
    bytes: fn(PrimExpr, PrimExpr) -> Option<PrimExpr>,
    dtype: DType,
) -> Result<StructInfo, Diagnostic> {
    let (x, y) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?);
    let parts = |t: &crate::relax::TensorInfo| {
        t.known_dims().and_then(|d| d.split_last()).map(|(l, d)| (l.clone(), d.to_vec()))
    };
    let (Some((la, a)), Some((lb, b))) = (parts(&x), parts(&y)) else {
        return Err(cx.error("the dims must be known"));
    };
    let n = a.len().max(b.len());
    let at = |d: &[PrimExpr], i: usize| (i + d.len()).checked_sub(n).map_or(PrimExpr::i64(1), |j| d[j].clone());
    let mut dims = vec![];
    for i in 0..n {
        let (a, b) = (at(&a, i), at(&b, i));
        dims.push(match (a.is_int(1), b.is_int(1)) {
            (true, _) => b,
            (_, true) => a,
            _ => {
                cx.require_eq(&a, &b, || "the dims do not broadcast".to_string())?;
                a
            }
        });
    }
    if let Some(l) = bytes(la, lb) {
        dims.push(cx.simplify(l));
    }
    Ok(rules::known(dims, Some(dtype)))
}

/// Byte `k` of the string of `b` that broadcasts to `index`; 0 beyond the end.
fn byte(b: &Buffer, index: &[PrimExpr], k: &PrimExpr) -> PrimExpr {
    let n = b.ndim() - 1;
    let mut at = rules::broadcast_index(&b.shape[..n], index);
    at.push(k.clone());
    k.clone().lt(b.shape[n].clone()).if_then_else(b.at(at), PrimExpr::zero(DType::U8))
}

fn equal(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, y) = (inputs[0].clone(), inputs[1].clone());
    let out = cx.result()?;
    let longest = x.shape[x.ndim() - 1].clone().max(y.shape[y.ndim() - 1].clone());
    let differ = k.sum("differ", out.dims, DType::I32, &[longest], |i, r| {
        byte(&x, i, &r[0]).ne(byte(&y, i, &r[0])).select(PrimExpr::i32(1), PrimExpr::i32(0))
    });
    let z = k.compute("equal", out.dims, DType::BOOL, |i| differ.at(i).eq(PrimExpr::i32(0)));
    Ok(k.finish(&[z]))
}

/// The lengths of strings.
fn lengths(k: &mut KernelBuilder, x: &Buffer) -> Buffer {
    let n = x.ndim() - 1;
    k.sum("length", &x.shape[..n], DType::I64, &x.shape[n..], |i, r| {
        let mut at = i.to_vec();
        at.push(r[0].clone());
        x.at(at).ne(PrimExpr::zero(DType::U8)).select(1, 0)
    })
}

fn concat(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, y) = (inputs[0].clone(), inputs[1].clone());
    let out = cx.result()?;
    let length = lengths(&mut k, &x);
    let z = k.compute("concat", out.dims, DType::U8, |i| {
        let (p, i) = match i.split_last() {
            Some((p, i)) => (p.clone(), i),
            None => (PrimExpr::i64(0), i),
        };
        let n = length.at(rules::broadcast_index(&length.shape, i));
        p.clone().lt(n.clone()).if_then_else(byte(&x, i, &p), byte(&y, i, &(p.clone() - n)))
    });
    Ok(k.finish(&[z]))
}

fn case(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = inputs[0].clone();
    let upper = cx.attrs.bool("upper").unwrap_or(false);
    let y = k.compute("case", &x.shape, DType::U8, |i| {
        let c = |v: i64| PrimExpr::int(DType::U8, v);
        let b = x.at(i);
        let within = |b: &PrimExpr, from: i64, to: i64| b.clone().ge(c(from)).and(b.clone().le(c(to)));
        let (ascii, latin, shift) = match upper {
            true => (within(&b, 0x61, 0x7a), within(&b, 0xa0, 0xbe).and(b.clone().ne(c(0xb7))), -0x20),
            false => (within(&b, 0x41, 0x5a), within(&b, 0x80, 0x9e).and(b.clone().ne(c(0x97))), 0x20),
        };
        // The second byte of a character of two, after 0xc3.
        let last = i.len() - 1;
        let mut before = i.to_vec();
        before[last] = i[last].clone() - 1;
        let lead = i[last].clone().gt(0).if_then_else(x.at(before), c(0)).eq(c(0xc3));
        let moved = (b.clone().cast(DType::I32) + PrimExpr::i32(shift)).cast(DType::U8);
        ascii.or(latin.and(lead)).select(moved, b)
    });
    Ok(k.finish(&[y]))
}

/// Runs the automaton over each string.
fn automaton(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, classes, table, accepts) = (&inputs[0], &inputs[1], &inputs[2], &inputs[3]);
    let n = x.ndim() - 1;
    let (dims, length) = (x.shape[..n].to_vec(), x.shape[n].clone());
    let start = PrimExpr::int(DType::I32, cx.attrs.int("start").unwrap_or(0));
    let y = k.buffer("y", &dims, DType::BOOL);
    let state = k.buffer("state", &dims, DType::I32);
    k.rows("run", &dims, |row| {
        let now = state.at(row.to_vec()).cast(DType::I64);
        let walk = each(&length, "p", |p| {
            let mut at = row.to_vec();
            at.push(p.clone());
            let byte = x.at(at);
            let class = classes.at([byte.clone().cast(DType::I64)]).cast(DType::I64);
            let next = Stmt::store(&state, row.to_vec(), table.at([now.clone(), class]));
            Stmt::if_then(byte.ne(PrimExpr::zero(DType::U8)), next)
        });
        let end = Stmt::store(&y, row.to_vec(), accepts.at([now.clone()]));
        Stmt::seq(vec![Stmt::store(&state, row.to_vec(), start.clone()), walk, end])
    });
    Ok(k.finish(&[y]))
}

/// Walks each string: `part` counts parts, `at` is the place in the current one.
fn split(cx: &ComputeCx, count: bool) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, delimiter) = (inputs[0].clone(), inputs[1].clone());
    let out = cx.result()?;
    let limit = cx.attrs.int("limit").unwrap_or(-1);
    let n = x.ndim() - 1;
    let (dims, length) = (x.shape[..n].to_vec(), x.shape[n].clone());
    let width = delimiter.shape[0].clone();
    let y = k.buffer("y", out.dims, out.dtype);
    let spaces = width.is_int(0);
    let zero = PrimExpr::i64(0);
    let one = PrimExpr::i64(1);
    if !count {
        k.write("empty", &y, out.dims, |i| i.to_vec(), |_| PrimExpr::zero(DType::U8));
    }
    // Parts so far, the place in the part, bytes to skip.
    let state = |name: &str| Buffer::new(name, dims.clone(), DType::I64);
    let (part, place, skip) = (state("part"), state("place"), state("skip"));
    let states = [part.clone(), place.clone(), skip.clone()];
    let states: Vec<Buffer> = states.iter().map(|b| k.buffer(&b.name, &b.shape, b.dtype())).collect();
    let (part, place, skip) = (states[0].clone(), states[1].clone(), states[2].clone());
    k.rows("split", &dims, |row| {
        let at = |b: &Buffer| b.at(row.to_vec());
        let put = |b: &Buffer, v: PrimExpr| Stmt::store(b, row.to_vec(), v);
        let char_at = |p: &PrimExpr| {
            let mut i = row.to_vec();
            i.push(p.clone());
            p.clone().lt(length.clone()).if_then_else(x.at(i), PrimExpr::zero(DType::U8))
        };
        let cuts_left = match limit < 0 {
            true => PrimExpr::bool(true),
            false => at(&part).lt(PrimExpr::i64(limit + if spaces { 1 } else { 0 })),
        };
        let store_byte = |p: &PrimExpr, index: PrimExpr| {
            if count {
                return Stmt::nop();
            }
            let mut i = row.to_vec();
            i.push(index);
            i.push(at(&place));
            Stmt::store(&y, i, char_at(p))
        };
        let is = |p: &PrimExpr, v: i64| char_at(p).eq(PrimExpr::int(DType::U8, v));
        let walk = each(&length, "p", |p| {
            if spaces {
                // A byte that is no space starts a part (place 0: between parts) or goes on with one.
                let space = is(p, 0x20).or(is(p, 0x09)).or(is(p, 0x0a)).or(is(p, 0x0d));
                let last = if limit < 0 { PrimExpr::bool(false) } else { at(&part).gt(PrimExpr::i64(limit)) };
                let ends = space.clone().and(last.clone().not().or(at(&place).eq(zero.clone())));
                let starts = at(&place).eq(zero.clone());
                let go = Stmt::seq(vec![
                    Stmt::if_then(starts, put(&part, at(&part) + one.clone())),
                    store_byte(p, at(&part) - 1),
                    put(&place, at(&place) + one.clone()),
                ]);
                let body = Stmt::if_else(ends, put(&place, zero.clone()), go);
                return Stmt::if_then(is(p, 0).not(), body);
            }
            let matches = (0..width.as_int().unwrap_or(0)).fold(PrimExpr::bool(true), |m, j| {
                m.and(char_at(&(p.clone() + j)).eq(delimiter.at([PrimExpr::i64(j)])))
            });
            let cut = Stmt::seq(vec![
                put(&part, at(&part) + one.clone()),
                put(&place, zero.clone()),
                put(&skip, width.clone() - 1),
            ]);
            let go = Stmt::seq(vec![store_byte(p, at(&part)), put(&place, at(&place) + one.clone())]);
            let next = Stmt::if_else(cuts_left.clone().and(matches), cut, go);
            let body = Stmt::if_else(at(&skip).gt(zero.clone()), put(&skip, at(&skip) - 1), next);
            Stmt::if_then(is(p, 0).not(), body)
        });
        let mut all = vec![put(&part, zero.clone()), put(&place, zero.clone()), put(&skip, zero.clone()), walk];
        if count {
            let total = if spaces { at(&part) } else { at(&part) + one.clone() };
            all.push(put(&y, total));
        }
        Stmt::seq(all)
    });
    Ok(k.finish(&[y]))
}
