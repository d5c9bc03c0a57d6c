//! Sorting along an axis. Sorts are stable, row by row: equal elements keep their order, also when descending. All of a row
//! is sorted by merging; the first few of a sorted row are selected.

use super::heap::{self, Heap};
use super::reduce::{one_axis, Reduction};
use crate::attrs::AttrValue;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, unflatten, wide, wide_dtype};
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::{PrimExpr, Var};
use crate::relax::StructInfo;
use crate::tir::{Buffer, KernelBuilder, PrimFunc, Stmt, StmtKind};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "sort",
        "The elements in order along `axis`.",
        &[operand("x"), attr("axis", Default::Int(-1)), attr("descending", Default::Bool(false))],
        infer_sort,
        Compute::Kernel(sort),
    ),
    OpDecl::pure(
        "argsort",
        "The indices that sort `data` along `axis`; equal elements keep their order.",
        &[
            operand("data"),
            attr("axis", Default::Int(-1)),
            attr("descending", Default::Bool(false)),
            attr("dtype", Default::Str("int32")),
        ],
        infer_argsort,
        Compute::Kernel(argsort),
    ),
    OpDecl::pure(
        "topk",
        "The `k` largest (or smallest) elements along `axis` in order, their indices, or both; all for `k` below 1.",
        &[
            operand("data"),
            attr("k", Default::Int(1)),
            attr("axis", Default::Int(-1)),
            attr("ret_type", Default::Str("both")),
            attr("largest", Default::Bool(true)),
            attr("dtype", Default::Str("int32")),
        ],
        infer_topk,
        Compute::Kernel(topk),
    ),
    OpDecl::pure(
        "multinomial_from_uniform",
        "For row `i` the first class whose cumulated probability in row `sample_indices[i, 0]` of `prob` exceeds \
         `uniform_sample[i, 0]`, the last class where none does.",
        &[operand("prob"), operand("uniform_sample"), operand("sample_indices"), attr("dtype", Default::Str("int64"))],
        infer_multinomial,
        Compute::Kernel(multinomial),
    ),
];

fn infer_sort(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    if let Some(n) = t.ndim {
        cx.axis(cx.int("axis")?, n)?;
    }
    Ok(StructInfo::Tensor(t))
}

/// The dtype of indices: what `dtype` says, that of the data where it is None.
fn index_dtype(cx: &InferCx, data: Option<DType>) -> Result<Option<DType>, Diagnostic> {
    match cx.attrs.get("dtype") {
        Some(AttrValue::None) => Ok(data),
        _ => Ok(Some(cx.dtype("dtype")?.unwrap_or(DType::I32))),
    }
}

fn infer_argsort(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    infer_sort(cx)?;
    let t = cx.tensor(0)?.clone();
    let dtype = index_dtype(cx, t.dtype)?;
    Ok(StructInfo::Tensor(t.with_dtype(dtype)))
}

fn infer_topk(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let t = cx.tensor(0)?.clone();
    let k = cx.int("k")?;
    let dtype = index_dtype(cx, t.dtype)?;
    let mut values = t.with_dims(t.known_dims().map(<[PrimExpr]>::to_vec), t.ndim);
    if let (Some(n), Some(dims)) = (t.ndim, t.known_dims()) {
        let axis = cx.axis(cx.int("axis")?, n)?;
        let mut dims = dims.to_vec();
        match dims[axis].as_int() {
            Some(d) if k < 1 || k >= d => {}
            _ if k < 1 => {}
            Some(_) => dims[axis] = PrimExpr::i64(k),
            None => {
                let enough = dims[axis].clone().ge(PrimExpr::i64(k));
                let text = dim_text(&dims[axis]);
                cx.require(enough, || format!("k is {k}, axis {axis} must have as many elements, it has {text}"))?;
                dims[axis] = PrimExpr::i64(k);
            }
        }
        values = t.with_dims(Some(dims), None);
    }
    let indices = StructInfo::Tensor(values.with_dtype(dtype));
    Ok(match cx.attrs.str("ret_type") {
        Some("values") => StructInfo::Tensor(values),
        Some("indices") => indices,
        Some("both") | None => StructInfo::Tuple(vec![StructInfo::Tensor(values), indices]),
        Some(other) => {
            return Err(cx.error(format!("ret_type is \"{other}\", it must be \"both\", \"values\" or \"indices\"")));
        }
    })
}

/// One cell of the little array that holds a sort's counters.
fn cell(state: &Buffer, i: i64) -> PrimExpr {
    state.at([PrimExpr::i64(i)])
}

fn set(state: &Buffer, i: i64, value: PrimExpr) -> Stmt {
    Stmt::store(state, vec![PrimExpr::i64(i)], value)
}

/// What a sort leaves behind: in row `r`, the sorted elements are `keys[r.., side[r..], 0..n]` and where they came from
/// is `index[r.., side[r..], 0..n]`. A selection has no sides.
pub struct Sorted {
    keys: Buffer,
    index: Buffer,
    side: Option<Buffer>,
}

impl Sorted {
    fn at(&self, b: &Buffer, row: &[PrimExpr], position: PrimExpr) -> PrimExpr {
        let side = self.side.as_ref().map(|s| s.at(row));
        b.at(row.iter().cloned().chain(side).chain([position]).collect::<Vec<_>>())
    }
    /// The element at `position` of row `row`.
    pub fn key(&self, row: &[PrimExpr], position: PrimExpr) -> PrimExpr {
        self.at(&self.keys, row, position)
    }
    /// Where it came from: int64.
    pub fn index(&self, row: &[PrimExpr], position: PrimExpr) -> PrimExpr {
        self.at(&self.index, row, position)
    }
}

/// Sorts rows of `n` elements: bottom-up merges between the two sides of a scratch buffer. `element(row, i)` is element
/// `i` of a row.
pub fn merge_sort(
    k: &mut KernelBuilder,
    rows: &[PrimExpr],
    n: &PrimExpr,
    dtype: DType,
    descending: bool,
    element: impl Fn(&[PrimExpr], PrimExpr) -> PrimExpr,
) -> Sorted {
    let scratch: Vec<PrimExpr> = rows.iter().cloned().chain([PrimExpr::i64(2), n.clone()]).collect();
    let keys = k.buffer("keys", &scratch, dtype);
    let index = k.buffer("index", &scratch, DType::I64);
    let side = k.buffer("side", rows, DType::I64);
    let sorted = Sorted { keys, index, side: Some(side.clone()) };
    k.rows("sort", rows, |row| {
        let at = |side: PrimExpr, i: PrimExpr| -> Vec<PrimExpr> { row.iter().cloned().chain([side, i]).collect() };
        // Counters: side that holds the runs, length of the runs, start of the current pair and of what is not written of it,
        // next of its left and of its right run, and the last ones.
        let state = Buffer::new("state", vec![PrimExpr::i64(7)], DType::I64);
        let [from, width, lo, i, j, last_i, last_j] = [0, 1, 2, 3, 4, 5, 6].map(|c| cell(&state, c));
        let zero = PrimExpr::i64(0);
        // Whether `y`, behind `x`, goes before it. Numbers go before what is none, so that runs have an order.
        let comes_first = |x: PrimExpr, y: PrimExpr| match (dtype.is_float(), descending) {
            (true, true) => x.ge(y.clone()).not().and(y.clone().eq(y)),
            (true, false) => x.le(y.clone()).not().and(y.clone().eq(y)),
            (false, true) => y.gt(x),
            (false, false) => y.lt(x),
        };
        let one = |c: PrimExpr| c.select(PrimExpr::i64(1), PrimExpr::i64(0));
        // Runs of two, and one that is left over.
        let (p, x, y) = (Var::dim("p"), Var::new("x", dtype), Var::new("y", dtype));
        let right = Var::new("right", DType::BOOL);
        let put = |to: PrimExpr, key: PrimExpr, index: PrimExpr| {
            let to = at(zero.clone(), to);
            Stmt::seq(vec![Stmt::store(&sorted.keys, to.clone(), key), Stmt::store(&sorted.index, to, index)])
        };
        let (first, second, moved) = (p.expr() * 2, p.expr() * 2 + 1, one(right.expr()));
        let both = Stmt::seq(vec![
            put(first.clone() + moved.clone(), x.expr(), first.clone()),
            put(second.clone() - moved, y.expr(), second.clone()),
        ]);
        let both = Stmt::let_in(&right, comes_first(x.expr(), y.expr()), both);
        let both = Stmt::let_in(&x, element(row, first), Stmt::let_in(&y, element(row, second), both));
        let pairs = Stmt::for_serial(&p, n.clone().floor_div(2), both);
        let last = n.clone() - 1;
        let single = put(last.clone(), element(row, last.clone()), last);
        let load = Stmt::seq(vec![pairs, Stmt::if_then(n.clone().floor_mod(2).eq(1), single)]);
        let (mid, hi) = (Var::dim("mid"), Var::dim("hi"));
        let key = |i: &PrimExpr| sorted.keys.at(at(from.clone(), i.clone()));
        let copy = |source: PrimExpr, to: PrimExpr| {
            let (source, to) = (at(from.clone(), source), at(PrimExpr::i64(1) - from.clone(), to));
            Stmt::seq(vec![
                Stmt::store(&sorted.keys, to.clone(), sorted.keys.at(source.clone())),
                Stmt::store(&sorted.index, to, sorted.index.at(source)),
            ])
        };
        // Which of two comes next nobody guesses: a choice of the place it is read from, not of a way to go. Both are read
        // before they are compared.
        let compared = |name: &Var, i: &PrimExpr, j: &PrimExpr, body: Stmt| {
            let (x, y) = (Var::new("x", dtype), Var::new("y", dtype));
            let body = Stmt::let_in(name, comes_first(x.expr(), y.expr()), body);
            Stmt::let_in(&x, key(i), Stmt::let_in(&y, key(j), body))
        };
        let next = |to: PrimExpr, behind: Stmt| {
            let right = Var::new("right", DType::BOOL);
            let steps = vec![
                copy(right.expr().select(j.clone(), i.clone()), to),
                set(&state, 3, i.clone() + one(right.expr().not())),
                set(&state, 4, j.clone() + one(right.expr())),
                behind,
            ];
            compared(&right, &i, &j, Stmt::seq(steps))
        };
        // Of the last ones of both runs the one that goes behind the other.
        let (left, q) = (Var::new("left", DType::BOOL), Var::dim("q"));
        let last = Stmt::seq(vec![
            copy(left.expr().select(last_i.clone(), last_j.clone()), hi.expr() - 1 - q.expr()),
            set(&state, 5, last_i.clone() - one(left.expr())),
            set(&state, 6, last_j.clone() - one(left.expr().not())),
        ]);
        let last = compared(&left, &last_i, &last_j, last);
        let both = i.clone().lt(mid.expr()).and(j.clone().lt(hi.expr()));
        let left_over = |from: &PrimExpr, end: &Var, to: PrimExpr| {
            let r = Var::dim("r");
            Stmt::for_serial(&r, end.expr() - from.clone(), copy(from.clone() + r.expr(), to + r.expr()))
        };
        let merge = Stmt::seq(vec![
            Stmt::while_loop(both, next(lo.clone(), set(&state, 2, lo.clone() + 1))),
            left_over(&i, &mid, lo.clone()),
            left_over(&j, &hi, lo.clone()),
        ]);
        // Runs of the same length meet in the middle, and neither is used up before.
        let even = Stmt::seq(vec![
            set(&state, 5, mid.expr() - 1),
            set(&state, 6, hi.expr() - 1),
            Stmt::for_serial(&q, width.clone(), next(lo.clone() + q.expr(), last)),
        ]);
        let merge = Stmt::if_else((hi.expr() - mid.expr()).eq(width.clone()), even, merge);
        let pair = Stmt::let_in(
            &mid,
            (lo.clone() + width.clone()).min(n.clone()),
            Stmt::let_in(
                &hi,
                (lo.clone() + width.clone() * 2).min(n.clone()),
                Stmt::seq(vec![
                    set(&state, 3, lo.clone()),
                    set(&state, 4, mid.expr()),
                    merge,
                    set(&state, 2, hi.expr()),
                ]),
            ),
        );
        let pass = Stmt::seq(vec![
            set(&state, 2, zero.clone()),
            Stmt::while_loop(lo.clone().lt(n.clone()), pair),
            set(&state, 0, PrimExpr::i64(1) - from.clone()),
            set(&state, 1, width.clone() * 2),
        ]);
        let body = Stmt::seq(vec![
            load,
            set(&state, 0, zero.clone()),
            set(&state, 1, PrimExpr::i64(2)),
            Stmt::while_loop(width.lt(n.clone()), pass),
            Stmt::store(&side, row.to_vec(), from.clone()),
        ]);
        Stmt::new(StmtKind::Alloc { buffer: state, body })
    });
    sorted
}

/// Up to this many elements are selected: inserted one by one they take no more time than a sort in any order.
const MOST_SELECTED: i64 = 64;

/// Of rows of unknown length as many are selected by a heap.
const MOST_IN_HEAP: i64 = 1024;

/// So many elements at a time are compared with the last one found so far, of which most often none comes before it.
const BLOCK: i64 = 32;

/// For elements `from` to `n` of a row: `take` of each that comes before `last`, which may change with each that is taken.
/// `first(x, y)` is whether `x` comes before `y`. Where neighbours lie `beside` each other, vectors pass over them.
fn each_before(
    p: &Var,
    (from, n): (&PrimExpr, &PrimExpr),
    element: &dyn Fn(PrimExpr) -> PrimExpr,
    last: &dyn Fn() -> PrimExpr,
    first: &dyn Fn(PrimExpr, PrimExpr) -> PrimExpr,
    (take, beside): (Stmt, bool),
) -> Stmt {
    let one = |min: PrimExpr, extent: PrimExpr| {
        Stmt::new(StmtKind::For {
            var: p.clone(),
            min,
            extent,
            kind: crate::tir::ForKind::Serial,
            annotations: vec![],
            body: Stmt::if_then(first(element(p.expr()), last()), take.clone()),
        })
    };
    if !beside {
        return one(from.clone(), n.clone() - from.clone());
    }
    let blocks = (n.clone() - from.clone()).floor_div(BLOCK);
    let (b, least) = (Var::dim("b"), Var::new("least", last().dtype()));
    let begin = from.clone() + b.expr() * BLOCK;
    let mut block = KernelBuilder::new("before");
    let [zero, one_] = [0, 1].map(|v| PrimExpr::int(DType::I32, v));
    let count = block.sum("before", &[], DType::I32, &[PrimExpr::i64(BLOCK)], |_, j| {
        first(element(begin.clone() + j[0].clone()), least.expr()).select(one_, zero.clone())
    });
    block.push(Stmt::if_then(count.at([]).gt(zero), one(begin, PrimExpr::i64(BLOCK))));
    let all = Stmt::for_serial(&b, blocks.clone(), Stmt::let_in(&least, last(), block.into_block()));
    let end = from.clone() + blocks * BLOCK;
    Stmt::seq(vec![all, one(end.clone(), n.clone() - end)])
}

/// The first `count` elements of the sorted rows of `n`: each element that comes before the last one found so far is
/// inserted among these. Arguments as those of [`merge_sort`] and of [`each_before`].
fn select(
    k: &mut KernelBuilder,
    rows: &[PrimExpr],
    n: &PrimExpr,
    count: i64,
    dtype: DType,
    (descending, beside): (bool, bool),
    element: impl Fn(&[PrimExpr], PrimExpr) -> PrimExpr,
) -> Sorted {
    let found: Vec<PrimExpr> = rows.iter().cloned().chain([PrimExpr::i64(count)]).collect();
    let keys = k.buffer("keys", &found, dtype);
    let index = k.buffer("index", &found, DType::I64);
    let sorted = Sorted { keys, index, side: None };
    k.rows("select", rows, |row| {
        let at = |i: PrimExpr| -> Vec<PrimExpr> { row.iter().cloned().chain([i]).collect() };
        // Where the element goes.
        let state = Buffer::new("state", vec![PrimExpr::i64(1)], DType::I64);
        let to = cell(&state, 0);
        let (p, x) = (Var::dim("p"), Var::new("x", dtype));
        let first = |a: PrimExpr, b: PrimExpr| if descending { a.gt(b) } else { a.lt(b) };
        let before = to.clone() - 1;
        let moves = to.clone().gt(PrimExpr::i64(0));
        let moves = moves.if_then_else(first(x.expr(), sorted.keys.at(at(before.clone()))), PrimExpr::bool(false));
        let shift = |b: &Buffer| Stmt::store(b, at(to.clone()), b.at(at(before.clone())));
        let insert = |place: PrimExpr| {
            Stmt::seq(vec![
                set(&state, 0, place),
                Stmt::while_loop(
                    moves.clone(),
                    Stmt::seq(vec![shift(&sorted.keys), shift(&sorted.index), set(&state, 0, before.clone())]),
                ),
                Stmt::store(&sorted.keys, at(to.clone()), x.expr()),
                Stmt::store(&sorted.index, at(to.clone()), p.expr()),
            ])
        };
        let with = |body: Stmt| Stmt::let_in(&x, element(row, p.expr()), body);
        let last = PrimExpr::i64(count - 1);
        let full = n.clone().min(PrimExpr::i64(count));
        let worst = || sorted.keys.at(at(last.clone()));
        let others = (with(insert(last.clone())), beside);
        let body = Stmt::seq(vec![
            Stmt::for_serial(&p, full.clone(), with(insert(p.expr()))),
            each_before(&p, (&full, n), &|p| element(row, p), &worst, &first, others),
        ]);
        Stmt::new(StmtKind::Alloc { buffer: state, body })
    });
    sorted
}

/// As [`select`], for more elements: a heap of those found so far has the one at the root that the next better one
/// takes the place of.
fn select_many(
    k: &mut KernelBuilder,
    rows: &[PrimExpr],
    n: &PrimExpr,
    count: i64,
    dtype: DType,
    (descending, beside): (bool, bool),
    element: impl Fn(&[PrimExpr], PrimExpr) -> PrimExpr,
) -> Sorted {
    let found: Vec<PrimExpr> = rows.iter().cloned().chain([PrimExpr::i64(count)]).collect();
    let keys = k.buffer("keys", &found, dtype);
    let index = k.buffer("index", &found, DType::I64);
    let sorted = Sorted { keys, index, side: None };
    k.rows("select", rows, |row| {
        let at = |i: PrimExpr| -> Vec<PrimExpr> { row.iter().cloned().chain([i]).collect() };
        let state = Buffer::new("state", vec![PrimExpr::i64(heap::CELLS + 1)], DType::I64);
        let first = |a: PrimExpr, b: PrimExpr| if descending { a.gt(b) } else { a.lt(b) };
        let above = |a: &PrimExpr, b: &PrimExpr| {
            let (x, y) = (element(row, a.clone()), element(row, b.clone()));
            let equal = x.clone().eq(y.clone()).select(a.clone().gt(b.clone()), PrimExpr::bool(false));
            first(y, x).select(PrimExpr::bool(true), equal)
        };
        let heap = Heap { items: &sorted.index, at: &at, above: &above, state: &state, cell: 1 };
        let (zero, left) = (PrimExpr::i64(0), cell(&state, 0));
        let full = n.clone().min(PrimExpr::i64(count));
        let (f, p, o, last) = (Var::dim("f"), Var::dim("p"), Var::dim("o"), Var::dim("last"));
        let worst = || element(row, heap.item(zero.clone()));
        let take = (heap.sink(zero.clone(), full.clone(), p.expr()), beside);
        let others = each_before(&p, (&full, n), &|p| element(row, p), &worst, &first, take);
        let out = Stmt::let_in(
            &last,
            heap.item(left.clone()),
            Stmt::seq(vec![
                heap.put(left.clone(), heap.item(zero.clone())),
                heap.sink(zero.clone(), left.clone(), last.expr()),
            ]),
        );
        let copy = Stmt::store(&sorted.keys, at(o.expr()), element(row, heap.item(o.expr())));
        let body = Stmt::seq(vec![
            Stmt::for_serial(&f, full.clone(), heap.put(f.expr(), f.expr())),
            heap.build(full.clone()),
            others,
            set(&state, 0, full.clone()),
            Stmt::while_loop(left.clone().gt(1), Stmt::seq(vec![set(&state, 0, left - 1), out])),
            Stmt::for_serial(&o, full, copy),
        ]);
        Stmt::new(StmtKind::Alloc { buffer: state.clone(), body })
    });
    sorted
}

/// Sorts operand 0 along attribute `axis`; also gives the axis.
fn sort_operand(cx: &ComputeCx, descending: bool) -> Result<(KernelBuilder, Sorted, usize), Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(-1), x.ndim())?;
    let (sorted, _) = sort_rows(&mut k, x, axis, descending);
    Ok((k, sorted, axis))
}

/// Writes the indices that sort `x` along `axis` into `out` (same dims; any integer dtype), as one block: what TVM's
/// library function `tvm.contrib.sort.argsort` does when a PrimFunc calls it. The sort is stable.
pub fn argsort_block(x: &Buffer, out: &Buffer, axis: usize, descending: bool) -> Stmt {
    sort_block("argsort", x, out, axis, descending, Sorted::index)
}

/// Writes the sorted elements of `x` into `out`: `tvm.contrib.sort.sort`.
pub fn values_block(x: &Buffer, out: &Buffer, axis: usize, descending: bool) -> Stmt {
    sort_block("sort", x, out, axis, descending, Sorted::key)
}

/// Writes the first of the sorted elements of `x` along `axis`, and where they are, into as many of `values` and `indices`
/// as there are: `tvm.contrib.sort.topk`. Neither has more elements along the axis than `x`.
pub fn topk_block(
    x: &Buffer,
    values: Option<&Buffer>,
    indices: Option<&Buffer>,
    axis: usize,
    descending: bool,
) -> Stmt {
    let mut k = KernelBuilder::new("topk");
    let count = values.or(indices).and_then(|b| b.shape[axis].as_int());
    let sorted = first_of_rows(&mut k, x, axis, count, descending);
    if let Some(out) = values {
        k.write("values", out, &out.shape, <[PrimExpr]>::to_vec, |i| {
            let (row, p) = split_row(i, axis);
            convert(sorted.key(&row, p), out.dtype())
        });
    }
    if let Some(out) = indices {
        k.write("indices", out, &out.shape, <[PrimExpr]>::to_vec, |i| {
            let (row, p) = split_row(i, axis);
            convert(sorted.index(&row, p), out.dtype())
        });
    }
    k.into_block()
}

/// As [`argsort_block`] for the first `count[row]` elements of each row; those behind keep their places:
/// `tvm.contrib.sort.argsort_nms`. `count` has a dim for each of `x` but the axis.
pub fn argsort_some_block(x: &Buffer, count: &Buffer, out: &Buffer, axis: usize, descending: bool) -> Stmt {
    let mut k = KernelBuilder::new("argsort_nms");
    let mut rows = x.shape.clone();
    let n = rows.remove(axis);
    let d = wide_dtype(x.dtype());
    let last = if descending { PrimExpr::min_value(d) } else { PrimExpr::max_value(d) };
    let sorted = merge_sort(&mut k, &rows, &n, d, descending, |row, p| {
        let mut i = row.to_vec();
        i.insert(axis, p.clone());
        let counted = p.lt(count.at(row).cast(DType::I64));
        counted.if_then_else(convert(wide(x.at(i)), d), last.clone())
    });
    k.write("argsort_nms", out, &x.shape, <[PrimExpr]>::to_vec, |i| {
        let (row, p) = split_row(i, axis);
        convert(sorted.index(&row, p), out.dtype())
    });
    k.into_block()
}

fn sort_block(
    name: &str,
    x: &Buffer,
    out: &Buffer,
    axis: usize,
    descending: bool,
    value: fn(&Sorted, &[PrimExpr], PrimExpr) -> PrimExpr,
) -> Stmt {
    let mut k = KernelBuilder::new(name);
    let (sorted, dims) = sort_rows(&mut k, x, axis, descending);
    let place = |i: &[PrimExpr]| i.to_vec();
    k.write(name, out, &dims, place, |i| {
        let (row, p) = split_row(i, axis);
        convert(value(&sorted, &row, p), out.dtype())
    });
    k.into_block()
}

/// Sorts `x` along `axis`; also gives its dims.
fn sort_rows(k: &mut KernelBuilder, x: &Buffer, axis: usize, descending: bool) -> (Sorted, Vec<PrimExpr>) {
    let mut rows = x.shape.clone();
    let n = rows.remove(axis);
    let d = key_dtype(x);
    let sorted = merge_sort(k, &rows, &n, d, descending, |row, p| key(x, axis, row, p, d));
    (sorted, x.shape.clone())
}

/// The first elements of the sorted rows of `x` along `axis`, as many as are known to be asked for.
fn first_of_rows(k: &mut KernelBuilder, x: &Buffer, axis: usize, count: Option<i64>, descending: bool) -> Sorted {
    let mut rows = x.shape.clone();
    let n = rows.remove(axis);
    let d = key_dtype(x);
    let element = |row: &[PrimExpr], p: PrimExpr| key(x, axis, row, p, d);
    let how = (descending, axis == rows.len() && [DType::F32, DType::I32].contains(&x.dtype()));
    match count.filter(|c| *c >= 1) {
        Some(c) if c <= MOST_SELECTED => select(k, &rows, &n, c, d, how, element),
        Some(c) if n.as_int().map_or(c <= MOST_IN_HEAP, |n| c <= n / 4) => {
            select_many(k, &rows, &n, c, d, how, element)
        }
        _ => sort_rows(k, x, axis, descending).0,
    }
}

/// What keys of the elements of `x` are: of booleans bytes.
fn key_dtype(x: &Buffer) -> DType {
    if x.dtype().is_bool() {
        DType::U8
    } else {
        wide_dtype(x.dtype())
    }
}

/// The key of element `p` of a row of `x` along `axis`.
fn key(x: &Buffer, axis: usize, row: &[PrimExpr], p: PrimExpr, d: DType) -> PrimExpr {
    let mut i = row.to_vec();
    i.insert(axis, p);
    convert(wide(x.at(i)), d)
}

fn split_row(i: &[PrimExpr], axis: usize) -> (Vec<PrimExpr>, PrimExpr) {
    let mut row = i.to_vec();
    let p = row.remove(axis);
    (row, p)
}

fn sort(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, sorted, axis) = sort_operand(cx, cx.attrs.bool("descending").unwrap_or(false))?;
    let out = cx.result()?;
    let y = k.compute("sorted", out.dims, out.dtype, |i| {
        let (row, p) = split_row(i, axis);
        convert(sorted.key(&row, p), out.dtype)
    });
    Ok(k.finish(&[y]))
}

fn argsort(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, sorted, axis) = sort_operand(cx, cx.attrs.bool("descending").unwrap_or(false))?;
    let out = cx.result()?;
    let y = k.compute("argsort", out.dims, out.dtype, |i| {
        let (row, p) = split_row(i, axis);
        convert(sorted.index(&row, p), out.dtype)
    });
    Ok(k.finish(&[y]))
}

fn topk(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(-1), x.ndim())?;
    let outs = cx.results()?;
    let count = outs.first().and_then(|o| o.dims.get(axis)?.as_int());
    let sorted = first_of_rows(&mut k, x, axis, count, cx.attrs.bool("largest").unwrap_or(true));
    let mut outputs = vec![];
    for (n, out) in outs.iter().enumerate() {
        let index = n == 1 || cx.attrs.str("ret_type") == Some("indices");
        outputs.push(k.compute(if index { "indices" } else { "values" }, out.dims, out.dtype, |i| {
            let (row, p) = split_row(i, axis);
            convert(if index { sorted.index(&row, p) } else { sorted.key(&row, p) }, out.dtype)
        }));
    }
    Ok(k.finish(&outputs))
}

/// The lower median: element `(n - 1) // 2` of the sorted elements. Several axes are sorted as one.
pub fn median(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let r = Reduction::of(cx)?;
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let outs = cx.results()?;
    let n = r.count();
    let d = wide_dtype(x.dtype());
    let sorted = merge_sort(&mut k, &r.out, &n, d, false, |row, p| wide(x.at(r.index(row, &unflatten(p, &r.extents)))));
    let middle = (n - 1).floor_div(PrimExpr::i64(2));
    let value =
        k.compute("median", outs[0].dims, outs[0].dtype, |i| convert(sorted.key(i, middle.clone()), outs[0].dtype));
    if !one_axis(cx.attrs) || outs.len() < 2 {
        return Ok(k.finish(&[value]));
    }
    let index =
        k.compute("index", outs[1].dims, outs[1].dtype, |i| convert(sorted.index(i, middle.clone()), outs[1].dtype));
    Ok(k.finish(&[value, index]))
}

fn infer_multinomial(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (prob, uniform, index) = (cx.tensor(0)?.clone(), cx.tensor(1)?.clone(), cx.tensor(2)?.clone());
    cx.require_float(0, prob.dtype)?;
    cx.require_float(1, uniform.dtype)?;
    cx.require_int(2, index.dtype)?;
    if let Some(d) = index.dtype.filter(|d| d.is_uint()) {
        return Err(cx.error(format!("sample_indices must be signed integers, not {d}")));
    }
    for (i, t) in [&prob, &uniform, &index].into_iter().enumerate() {
        if t.ndim.is_some_and(|n| n != 2) {
            return Err(cx.error(format!("operand {} must have 2 dims", cx.operand(i))));
        }
    }
    let dtype = cx.dtype("dtype")?.unwrap_or(DType::I64);
    if let (Some(u), Some(s)) = (uniform.known_dims(), index.known_dims()) {
        cx.require_eq(&u[0], &s[0], || {
            format!("uniform_sample has {} rows, sample_indices has {}", dim_text(&u[0]), dim_text(&s[0]))
        })?;
        for (d, name) in [(&u[1], "uniform_sample"), (&s[1], "sample_indices")] {
            cx.require_eq(d, &PrimExpr::i64(1), || format!("{name} must have one column, it has {}", dim_text(d)))?;
        }
    }
    let dims = uniform.known_dims().map(|u| vec![u[0].clone(), PrimExpr::i64(1)]);
    Ok(StructInfo::Tensor(uniform.with_dims(dims, Some(2)).with_dtype(Some(dtype))))
}

fn multinomial(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (prob, uniform, index) = (inputs[0].clone(), inputs[1].clone(), inputs[2].clone());
    let out = cx.result()?;
    let classes = prob.shape[1].clone();
    let d = wide_dtype(prob.dtype());
    let y = k.buffer("sample", out.dims, out.dtype);
    k.rows("sample", &out.dims[..1], |i| {
        let zero = PrimExpr::i64(0);
        let first = [i[0].clone(), zero.clone()];
        let row = Var::dim("row");
        let class = Buffer::new("class", vec![PrimExpr::i64(1)], DType::I64);
        let sum = Buffer::new("sum", vec![PrimExpr::i64(1)], d);
        let v = cell(&class, 0);
        let p = |c: PrimExpr| wide(prob.at([row.expr(), c]));
        let u = wide(uniform.at(first.clone())).cast(d);
        let more = (v.clone() + 1).lt(classes).and(u.lt(cell(&sum, 0)).not());
        let step = Stmt::seq(vec![set(&class, 0, v.clone() + 1), set(&sum, 0, cell(&sum, 0) + p(v.clone()))]);
        let body = Stmt::seq(vec![
            set(&class, 0, zero.clone()),
            set(&sum, 0, p(zero.clone())),
            Stmt::while_loop(more, step),
            Stmt::store(&y, first.to_vec(), convert(v.clone(), out.dtype)),
        ]);
        let body = Stmt::let_in(&row, index.at(first.clone()).cast(DType::I64), body);
        let body = Stmt::new(StmtKind::Alloc { buffer: sum.clone(), body });
        Stmt::new(StmtKind::Alloc { buffer: class.clone(), body })
    });
    Ok(k.finish(&[y]))
}
