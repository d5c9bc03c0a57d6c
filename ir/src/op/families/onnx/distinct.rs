//! Distinct slices, marks at given places, counts of sequences.

use super::{bind, cell, each, local, set};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{unflatten, wide};
use crate::op::families::rules;
use crate::op::families::sort::{merge_sort, Sorted};
use crate::op::rule::scalar_value;
use crate::op::*;
use crate::prim::PrimExpr;
use crate::relax::StructInfo;
use crate::tir::{Buffer, PrimFunc, Stmt};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "onnx.one_hot",
        "`values[1]` where the position along the new dim `axis` of `depth` elements is that which `index` holds (negative ones count from the end), `values[0]` elsewhere. Source: ONNX `OneHot`.",
        &[operand("index"), operand("depth"), operand("values"), attr("axis", Default::Int(-1))],
        infer_one_hot,
        Compute::Kernel(one_hot),
    ),
    OpDecl::pure(
        "onnx.ngrams",
        "How often sequences occur in the rows of the integers `x` (`(n)` or `(b, n)`): sequence `i` has `sizes[i]` elements, the next ones of `values`, and is counted in column `columns[i]` of `width`, for every distance of up to `max_skip + 1` between its elements. Float32. Source: ONNX `TfIdfVectorizer`.",
        &[
            operand("x"),
            attr("sizes", Default::Required),
            attr("values", Default::Required),
            attr("columns", Default::Required),
            attr("width", Default::Required),
            attr("max_skip", Default::Int(0)),
        ],
        infer_ngrams,
        Compute::Kernel(ngrams),
    ),
    OpDecl::pure(
    "onnx.unique",
    "The distinct slices of `x` along `axis` (without one: its distinct elements), sorted or in the order of first occurrence; the index of the first of each, for every slice its number among them, and how often each occurs (int64 vectors). Source: ONNX `Unique`.",
    &[operand("x"), attr("axis", Default::None), attr("sorted", Default::Bool(true))],
    infer,
    Compute::DataDependent(compute),
),
];

fn infer_one_hot(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (index, values) = (rules::tensor(cx, 0)?, rules::tensor(cx, 2)?);
    cx.require_int(0, index.dtype)?;
    rules::require_ndim(cx, 2, 1)?;
    let depth = scalar_value(cx.args.get(1), cx.infos.get(1));
    let Some(n) = index.ndim else { return Ok(rules::unknown(None, values.dtype)) };
    let axis = cx.axis(cx.int("axis")?, n + 1)?;
    Ok(match (index.known_dims(), depth) {
        (Some(d), Some(depth)) => {
            let mut d = d.to_vec();
            d.insert(axis, depth.cast(DType::I64));
            rules::known(d, values.dtype)
        }
        _ => rules::unknown(Some(n + 1), values.dtype),
    })
}

fn one_hot(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (index, values) = (&inputs[0], &inputs[1]);
    let out = cx.result()?;
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(-1), out.dims.len())?;
    let depth = out.dims[axis].clone();
    let y = k.compute("one_hot", out.dims, out.dtype, |i| {
        let mut at = i.to_vec();
        let place = at.remove(axis);
        let v = index.at(at).cast(DType::I64);
        let v = v.clone().lt(0).select(v.clone() + depth, v);
        let (off, on) = (cell(values, 0), cell(values, 1));
        place.eq(v).select(on, off)
    });
    Ok(k.finish(&[y]))
}

fn infer_ngrams(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    cx.require_int(0, x.dtype)?;
    let width = cx.int("width")?;
    let Some(n) = x.ndim else { return Ok(rules::unknown(None, Some(DType::F32))) };
    if n == 0 || n > 2 {
        return Err(cx.error(format!("x must have one or two dims, it has {n}")));
    }
    let dims = x.known_dims().map(|d| d[..n - 1].iter().cloned().chain([PrimExpr::i64(width)]).collect());
    Ok(StructInfo::Tensor(x.with_dims(dims, Some(n)).with_dtype(Some(DType::F32))))
}

fn ngrams(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let list = |name: &str| cx.attrs.ints(name).ok_or_else(|| cx.error(format!("{name} must be integers")));
    let (sizes, values, columns) = (list("sizes")?, list("values")?, list("columns")?);
    let width = cx.attrs.int("width").unwrap_or(0);
    let skips = cx.attrs.int("max_skip").unwrap_or(0);
    if sizes.len() != columns.len() || sizes.iter().any(|s| *s < 1) || sizes.iter().sum::<i64>() != values.len() as i64
    {
        return Err(cx.error("sizes, values and columns do not fit together"));
    }
    if columns.iter().any(|c| !(0..width).contains(c)) {
        return Err(cx.error("a column is out of range"));
    }
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let out = cx.result()?;
    let (rows, n) = (&x.shape[..x.ndim() - 1], x.shape[x.ndim() - 1].clone());
    let y = k.buffer("counts", out.dims, DType::F32);
    k.rows("count", rows, |row| {
        let at = |b: &Buffer, i: PrimExpr| b.at(row.iter().cloned().chain([i]).collect::<Vec<_>>());
        let to = |c: i64| -> Vec<PrimExpr> { row.iter().cloned().chain([PrimExpr::i64(c)]).collect() };
        let mut body: Vec<Stmt> = (0..width).map(|c| Stmt::store(&y, to(c), PrimExpr::f32(0.0))).collect();
        let mut rest = values.as_slice();
        for (size, column) in sizes.iter().zip(&columns) {
            let (gram, after) = rest.split_at(*size as usize);
            rest = after;
            let steps = if *size == 1 { 1 } else { skips + 1 };
            for step in 1..=steps {
                let places = (n.clone() - (size - 1) * step).max(0);
                body.push(each(&places, "s", |s| {
                    let hit = gram.iter().enumerate().fold(PrimExpr::bool(true), |hit, (j, v)| {
                        let e = at(x, s.clone() + j as i64 * step).cast(DType::I64);
                        hit.and(e.eq(*v))
                    });
                    Stmt::if_then(hit, Stmt::store(&y, to(*column), y.at(to(*column)) + PrimExpr::f32(1.0)))
                }));
            }
        }
        Stmt::seq(body)
    });
    Ok(k.finish(&[y]))
}

fn infer(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    let rank = match cx.attrs.int("axis") {
        Some(a) => {
            if let Some(n) = x.ndim {
                cx.axis(a, n)?;
            }
            x.ndim
        }
        None => Some(1),
    };
    let index = || rules::unknown(Some(1), Some(DType::I64));
    Ok(StructInfo::Tuple(vec![rules::unknown(rank, x.dtype), index(), index(), index()]))
}

fn compute(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    distinct(cx, cx.attrs.int("axis"), cx.attrs.bool("sorted").unwrap_or(true), [true; 3])
}

/// The distinct slices of operand 0, with those of (index, inverse, counts) that are asked for, and the dims of all.
pub fn distinct(cx: &ComputeCx, axis: Option<i64>, sorted: bool, asked: [bool; 3]) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let axis = match axis {
        Some(a) => Some(cx.axis(a, x.ndim())?),
        None => None,
    };
    // `n` slices of `m` elements.
    let (n, rest) = match axis {
        Some(a) => {
            let mut rest = x.shape.clone();
            let n = rest.remove(a);
            (n, rest)
        }
        None => (PrimExpr::product(&x.shape), vec![]),
    };
    let m = PrimExpr::product(&rest);
    let at = |i: &PrimExpr, e: &PrimExpr| match axis {
        Some(a) => {
            let mut at = unflatten(e.clone(), &rest);
            at.insert(a, i.clone());
            at
        }
        None => unflatten(i.clone(), &x.shape),
    };
    let element = |i: &PrimExpr, e: &PrimExpr| {
        let v = wide(x.at(at(i, e)));
        if v.dtype().is_bool() {
            v.cast(DType::U8)
        } else {
            v
        }
    };
    let line = std::slice::from_ref(&n);
    let bound = match axis {
        Some(_) => x.shape.clone(),
        None => line.to_vec(),
    };
    let rank = bound.len();
    let values = k.buffer("values", &bound, x.dtype());
    let index = k.buffer("index", line, DType::I64);
    let inverse = k.buffer("inverse", line, DType::I64);
    let counts = k.buffer("counts", line, DType::I64);
    let extra = asked.iter().filter(|a| **a).count();
    let dims = k.buffer("dims", &[PrimExpr::i64((rank + extra) as i64)], DType::I64);
    // Elements are sorted, slices compared.
    let order = axis.is_none().then(|| {
        let d = element(&PrimExpr::i64(0), &PrimExpr::i64(0)).dtype();
        merge_sort(&mut k, &[], &n, d, false, |_, p| element(&p, &PrimExpr::i64(0)))
    });
    let renumbered = (order.is_some() && !sorted).then(|| {
        [k.buffer("number", line, DType::I64), k.buffer("first", line, DType::I64), k.buffer("often", line, DType::I64)]
    });
    // State: number of distinct slices, candidate or place, element, verdict of a comparison (-1, 0, 1).
    let state = Buffer::new("state", vec![PrimExpr::i64(4)], DType::I64);
    k.rows("unique", &[], |_| {
        let (count, place, step, verdict) = (cell(&state, 0), cell(&state, 1), cell(&state, 2), cell(&state, 3));
        // Compares slice `a` with slice `b`.
        let compare = |a: &PrimExpr, b: &PrimExpr| {
            let (va, vb) = (element(a, &step), element(b, &step));
            let less = va.clone().lt(vb.clone());
            let other = va.clone().gt(vb).select(PrimExpr::i64(1), PrimExpr::i64(0));
            let body = Stmt::seq(vec![
                set(&state, 3, less.select(PrimExpr::i64(-1), other)),
                set(&state, 2, step.clone() + 1),
            ]);
            let more = verdict.clone().eq(0).and(step.clone().lt(m.clone()));
            Stmt::seq(vec![set(&state, 2, 0), set(&state, 3, 0), Stmt::while_loop(more, body)])
        };
        // `index` holds the first of each distinct slice, in order. Where is slice `i` among them?
        let insert = each(&n, "i", |i| {
            let current = cell(&index, place.clone().max(0));
            // Walk while the slice there is another one (sorted: a lesser one).
            let walk = Stmt::seq(vec![
                compare(&current, i),
                Stmt::if_else(
                    if sorted { verdict.clone().lt(0) } else { verdict.clone().ne(0) },
                    set(&state, 1, place.clone() + 1),
                    // Found (0), or the place before which it belongs (1).
                    set(&state, 3, verdict.clone() + 2),
                ),
            ]);
            let going = place.clone().lt(count.clone()).and(verdict.clone().lt(2));
            let shift = each(&(count.clone() - place.clone()), "s", |s| {
                let to = count.clone() - s.clone();
                Stmt::seq(vec![
                    set(&index, to.clone(), cell(&index, to.clone() - 1)),
                    set(&counts, to.clone(), cell(&counts, to - 1)),
                ])
            });
            let found = place.clone().lt(count.clone()).and(verdict.clone().eq(2));
            let again = set(&counts, place.clone(), cell(&counts, place.clone()) + 1);
            let new = Stmt::seq(vec![
                shift,
                set(&index, place.clone(), i.clone()),
                set(&counts, place.clone(), 1),
                set(&state, 0, count.clone() + 1),
            ]);
            Stmt::seq(vec![
                set(&state, 1, 0),
                set(&state, 3, 0),
                Stmt::while_loop(going, walk),
                Stmt::if_else(found, again, new),
            ])
        });
        let number = each(&n, "i", |i| {
            each(&count, "u", |u| {
                let same = Stmt::if_then(verdict.clone().eq(0), set(&inverse, i.clone(), u.clone()));
                Stmt::seq(vec![compare(&cell(&index, u.clone()), i), same])
            })
        });
        let find = match &order {
            None => vec![insert, number],
            Some(order) => by_order(order, &n, &state, [&index, &inverse, &counts], renumbered.as_ref()),
        };
        let mut actual = bound.clone();
        actual[axis.unwrap_or(0)] = count.clone();
        let write = each(&count, "u", |u| {
            each(&m, "e", |e| {
                let from = x.at(at(&cell(&index, u.clone()), e));
                let mut to = match axis {
                    Some(_) => at(u, e),
                    None => vec![u.clone()],
                };
                // Dense in the actual dims.
                let flat = crate::op::elem::flat_index(&to, &actual);
                to = unflatten(flat, &bound);
                Stmt::store(&values, to, from)
            })
        });
        let mut body = [vec![set(&state, 0, 0)], find, vec![write]].concat();
        for (d, v) in actual.iter().enumerate() {
            body.push(set(&dims, d as i64, v.clone()));
        }
        let lengths = [count.clone(), n.clone(), count.clone()].into_iter().zip(asked);
        for (d, (v, _)) in lengths.filter(|(_, asked)| *asked).enumerate() {
            body.push(set(&dims, (rank + d) as i64, v));
        }
        local(&state, bind("nothing", PrimExpr::i64(0), |_| Stmt::seq(body)))
    });
    let extra = [index, inverse, counts].into_iter().zip(asked).filter(|(_, asked)| *asked).map(|(b, _)| b);
    let outputs: Vec<Buffer> = std::iter::once(values).chain(extra).chain([dims]).collect();
    Ok(k.finish(&outputs))
}

/// Numbers sorted elements: equal ones stand side by side, the first of them in front. `renumbered` are vectors for another
/// order, that of first occurrence.
fn by_order(
    order: &Sorted,
    n: &PrimExpr,
    state: &Buffer,
    [index, inverse, counts]: [&Buffer; 3],
    renumbered: Option<&[Buffer; 3]>,
) -> Vec<Stmt> {
    let count = cell(state, 0);
    let number = each(n, "p", |p| {
        let before = (p.clone() - 1).max(0);
        let other = order.key(&[], p.clone()).ne(order.key(&[], before));
        let new = p.clone().eq(0).select(PrimExpr::bool(true), other);
        bind("i", order.index(&[], p.clone()), |i| {
            let begin = Stmt::seq(vec![
                set(index, count.clone(), i.clone()),
                set(counts, count.clone(), 0),
                set(state, 0, count.clone() + 1),
            ]);
            let last = count.clone() - 1;
            let again = set(counts, last.clone(), cell(counts, last.clone()) + 1);
            Stmt::seq(vec![Stmt::if_then(new, begin), again, set(inverse, i.clone(), last)])
        })
    });
    let Some([number_of, first, often]) = renumbered else { return vec![number] };
    let place = cell(state, 1);
    let rename = each(n, "i", |i| {
        bind("g", cell(inverse, i.clone()), |g| {
            let next = Stmt::seq(vec![
                set(number_of, g.clone(), place.clone()),
                set(first, place.clone(), i.clone()),
                set(often, place.clone(), cell(counts, g.clone())),
                set(state, 1, place.clone() + 1),
            ]);
            let met = cell(index, g.clone()).eq(i.clone());
            Stmt::seq(vec![Stmt::if_then(met, next), set(inverse, i.clone(), cell(number_of, g.clone()))])
        })
    });
    let copy = each(&count, "u", |u| {
        Stmt::seq(vec![set(index, u.clone(), cell(first, u.clone())), set(counts, u.clone(), cell(often, u.clone()))])
    });
    vec![number, set(state, 1, 0), rename, copy]
}
