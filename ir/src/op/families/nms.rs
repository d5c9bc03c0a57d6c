//! Non-maximum suppression.

use super::sort::merge_sort;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{wide_dtype, Elem};
use crate::op::families::rules;
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::{Intrin, PrimExpr, Var};
use crate::relax::{StructInfo, TensorInfo};
use crate::tir::{Buffer, PrimFunc, Stmt, StmtKind};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "vision.get_valid_counts",
        "Moves the boxes of `(b, n, e)` whose score exceeds `score_threshold` (and whose class is not negative, unless `id_index` is) to the front and fills the rest with -1. Returns (count `(b)` int32, boxes, their former indices `(b, n)` int32).",
        &[
            operand("data"),
            attr("score_threshold", Default::Float(0.0)),
            attr("id_index", Default::Int(0)),
            attr("score_index", Default::Int(1)),
        ],
        infer_valid_counts,
        Compute::Kernel(valid_counts),
    ),
    OpDecl::pure(
        "vision.non_max_suppression",
        "Greedy suppression of boxes `(b, n, e)` that overlap a better one by `iou_threshold` (of the same class, unless `force_suppress` or `id_index` is negative), of the first `valid_count` boxes and the best `top_k` of them; `soft_nms_sigma` above 0 lowers scores instead, down to `score_threshold`. Returns (indices `(b, n)`, count `(b, 1)`), with the boxes in front when soft, or the boxes alone when `return_indices` is false, suppressed ones as -1 (at the end with `invalid_to_bottom`).",
        &[
            operand("data"),
            operand("valid_count"),
            operand("indices"),
            attr("max_output_size", Default::Int(-1)),
            attr("iou_threshold", Default::Float(0.5)),
            attr("force_suppress", Default::Bool(false)),
            attr("top_k", Default::Int(-1)),
            attr("coord_start", Default::Int(2)),
            attr("score_index", Default::Int(1)),
            attr("id_index", Default::Int(0)),
            attr("return_indices", Default::Bool(true)),
            attr("invalid_to_bottom", Default::Bool(false)),
            attr("soft_nms_sigma", Default::Float(0.0)),
            attr("score_threshold", Default::Float(0.0)),
        ],
        infer_nms,
        Compute::Kernel(nms),
    ),
    OpDecl::pure(
        "vision.all_class_non_max_suppression",
        "Greedy suppression for each class of each batch on its own: boxes `(b, n, 4)`, scores `(b, c, n)`. `onnx` returns (rows of (batch, class, box) `(b c n, 3)` int64, their number `(1)`), `tensorflow` (rows of (class, box) `(b, c n, 2)`, scores `(b, c n)`, numbers `(b)`). Rows beyond the number are 0. Source: ONNX `NonMaxSuppression`, TVM `topi.vision.all_class_non_max_suppression`.",
        &[
            operand("boxes"),
            operand("scores"),
            operand("max_output_boxes_per_class"),
            operand("iou_threshold"),
            operand("score_threshold"),
            attr("output_format", Default::Str("onnx")),
        ],
        infer_all_class,
        Compute::Kernel(all_class),
    ),
];

/// Where the numbers of a box lie: `score_index`, `id_index` (-1: there is no class) and, when `corners`, four from
/// `coord_start` on.
fn box_indices(cx: &InferCx, x: &TensorInfo, corners: bool) -> Result<(), Diagnostic> {
    let Some(n) = x.known_dims().and_then(|d| d.get(2)).and_then(PrimExpr::as_int) else { return Ok(()) };
    let mut ranges = vec![("score_index", 1, 0..n), ("id_index", 0, -1..n)];
    if corners {
        ranges.push(("coord_start", 2, 0..n - 3));
    }
    for (name, default, range) in ranges {
        let i = cx.attrs.int(name).unwrap_or(default);
        if !range.contains(&i) {
            return Err(cx.error(format!("{name} is {i}, a box has {n} numbers")));
        }
    }
    Ok(())
}

fn infer_valid_counts(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    cx.require_float(0, x.dtype)?;
    rules::require_ndim(cx, 0, 3)?;
    box_indices(cx, &x, false)?;
    let int = Some(DType::I32);
    let (count, index) = match x.known_dims() {
        Some(d) => (rules::known(d[..1].to_vec(), int), rules::known(d[..2].to_vec(), int)),
        None => (rules::unknown(Some(1), int), rules::unknown(Some(2), int)),
    };
    Ok(StructInfo::Tuple(vec![count, StructInfo::Tensor(x), index]))
}

fn int(e: PrimExpr) -> PrimExpr {
    e.cast(DType::I64)
}

/// `for v in range(extent): body`
fn each(v: &Var, extent: &PrimExpr, body: Vec<Stmt>) -> Stmt {
    Stmt::for_serial(v, extent.clone(), Stmt::seq(body))
}

/// Sets all numbers of box `j` of batch `b` to -1.
fn erase(boxes: &Buffer, b: &PrimExpr, j: &PrimExpr) -> Stmt {
    let e = Var::dim("e");
    let minus = PrimExpr::float(boxes.dtype(), -1.0);
    each(&e, &boxes.shape[2], vec![Stmt::store(boxes, vec![b.clone(), j.clone(), e.expr()], minus)])
}

/// Copies box `from` of `source` to box `to` of `target`, both of batch `b`.
fn copy_box(target: &Buffer, to: &PrimExpr, source: &Buffer, from: PrimExpr, b: &PrimExpr) -> Stmt {
    let e = Var::dim("e");
    let value = source.at([b.clone(), from, e.expr()]);
    each(&e, &target.shape[2], vec![Stmt::store(target, vec![b.clone(), to.clone(), e.expr()], value)])
}

fn valid_counts(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let outs = cx.results()?;
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let count = k.buffer("count", outs[0].dims, outs[0].dtype);
    let boxes = k.buffer("boxes", outs[1].dims, outs[1].dtype);
    let index = k.buffer("indices", outs[2].dims, outs[2].dtype);
    let (score, id) = (cx.attrs.int("score_index").unwrap_or(1), cx.attrs.int("id_index").unwrap_or(0));
    let threshold = PrimExpr::float(x.dtype(), cx.attrs.float("score_threshold").unwrap_or(0.0));
    k.rows("get_valid_counts", outs[0].dims, |row| {
        let b = &row[0];
        let (j, rest) = (Var::dim("j"), Var::dim("rest"));
        let n = &x.shape[1];
        let value = |e: i64| x.at([b.clone(), j.expr(), PrimExpr::i64(e)]);
        let mut valid = value(score).gt(threshold);
        if id >= 0 {
            valid = valid.and(value(id).ge(PrimExpr::zero(x.dtype())));
        }
        let next = || int(count.at([b.clone()]));
        let one = PrimExpr::i32(1);
        let keep = Stmt::seq(vec![
            copy_box(&boxes, &next(), x, j.expr(), b),
            Stmt::store(&index, vec![b.clone(), next()], j.expr().cast(DType::I32)),
            Stmt::store(&count, vec![b.clone()], count.at([b.clone()]) + one),
        ]);
        let fill = Stmt::seq(vec![
            erase(&boxes, b, &rest.expr()),
            Stmt::store(&index, vec![b.clone(), rest.expr()], PrimExpr::i32(-1)),
        ]);
        Stmt::seq(vec![
            Stmt::store(&count, vec![b.clone()], PrimExpr::i32(0)),
            each(&j, n, vec![Stmt::if_then(valid, keep)]),
            each(&rest, n, vec![Stmt::if_then(rest.expr().ge(next()), fill)]),
        ])
    });
    Ok(k.finish(&[count, boxes, index]))
}

fn infer_nms(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (x, c, i) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?, rules::tensor(cx, 2)?);
    cx.require_float(0, x.dtype)?;
    for (operand, ndim) in [(0, 3), (1, 1), (2, 2)] {
        rules::require_ndim(cx, operand, ndim)?;
    }
    for (name, t) in [("valid_count", &c), ("indices", &i)] {
        if let Some(d) = t.dtype.filter(|d| *d != DType::I32) {
            return Err(cx.error(format!("{name} must be of dtype int32, it is {d}")));
        }
    }
    box_indices(cx, &x, true)?;
    if let Some(d) = x.known_dims() {
        let wanted = [(c.known_dims(), "valid_count", 1), (i.known_dims(), "indices", 2)];
        for (dims, name, n) in wanted {
            for (a, b) in dims.unwrap_or(&[]).iter().zip(&d[..n]) {
                cx.require_eq(a, b, || format!("{name} has dim {}, the data has {}", dim_text(a), dim_text(b)))?;
            }
        }
    }
    if cx.attrs.bool("return_indices") == Some(false) {
        return Ok(StructInfo::Tensor(x));
    }
    let dtype = Some(DType::I32);
    let mut out = match x.known_dims() {
        Some(d) => {
            let count = vec![d[0].clone(), PrimExpr::i64(1)];
            vec![rules::known(d[..2].to_vec(), dtype), rules::known(count, dtype)]
        }
        None => vec![rules::unknown(Some(2), dtype), rules::unknown(Some(2), dtype)],
    };
    if cx.attrs.float("soft_nms_sigma").unwrap_or(0.0) > 0.0 {
        out.insert(0, StructInfo::Tensor(x));
    }
    Ok(StructInfo::Tuple(out))
}

/// Intersection over union of two boxes given by number (0 to 3) of their corners.
fn overlap(real: DType, a: impl Fn(i64) -> PrimExpr, b: impl Fn(i64) -> PrimExpr) -> PrimExpr {
    let zero = PrimExpr::zero(real);
    let side = |f: &dyn Fn(i64) -> PrimExpr, n: i64| (f(n).min(f(n + 2)), f(n).max(f(n + 2)));
    let ((al, ar), (at, ab)) = (side(&a, 0), side(&a, 1));
    let ((bl, br), (bt, bb)) = (side(&b, 0), side(&b, 1));
    let width = (ar.clone().min(br.clone()) - al.clone().max(bl.clone())).max(zero.clone());
    let height = (ab.clone().min(bb.clone()) - at.clone().max(bt.clone())).max(zero.clone());
    let common = height * width;
    let union = (ar - al) * (ab - at) + (br - bl) * (bb - bt) - common.clone();
    union.clone().le(zero.clone()).select(zero, common / union)
}

/// What the statements of the suppression share.
struct Nms<'a> {
    cx: &'a ComputeCx<'a>,
    /// Boxes in order of score, scores of suppressed ones -1.
    boxes: Buffer,
    /// Where they came from; -1 for suppressed ones.
    index: Buffer,
    /// Cell 0: number of boxes selected; 1: best candidate; 2: boxes taking part.
    state: Buffer,
    batch: PrimExpr,
    real: DType,
}

impl Nms<'_> {
    fn attr(&self, name: &str, default: i64) -> i64 {
        self.cx.attrs.int(name).unwrap_or(default)
    }
    fn float(&self, name: &str, default: f64) -> PrimExpr {
        PrimExpr::float(self.real, self.cx.attrs.float(name).unwrap_or(default))
    }
    fn cell(&self, n: i64) -> PrimExpr {
        self.state.at([PrimExpr::i64(n)])
    }
    fn set(&self, n: i64, value: PrimExpr) -> Stmt {
        Stmt::store(&self.state, vec![PrimExpr::i64(n)], value)
    }
    fn number(&self, j: &PrimExpr, e: i64) -> PrimExpr {
        self.boxes.at([self.batch.clone(), j.clone(), PrimExpr::i64(e)])
    }
    fn score(&self, j: &PrimExpr) -> PrimExpr {
        self.number(j, self.attr("score_index", 1))
    }
    fn set_score(&self, j: &PrimExpr, value: PrimExpr) -> Stmt {
        let e = PrimExpr::i64(self.attr("score_index", 1));
        Stmt::store(&self.boxes, vec![self.batch.clone(), j.clone(), e], value)
    }
    fn origin(&self, j: &PrimExpr) -> PrimExpr {
        self.index.at([self.batch.clone(), j.clone()])
    }
    fn set_origin(&self, j: &PrimExpr, value: PrimExpr) -> Stmt {
        Stmt::store(&self.index, vec![self.batch.clone(), j.clone()], value)
    }
    /// May box `j` suppress box `k`?
    fn compete(&self, j: &PrimExpr, k: &PrimExpr) -> PrimExpr {
        let id = self.attr("id_index", 0);
        if id < 0 || self.cx.attrs.bool("force_suppress") == Some(true) {
            return PrimExpr::bool(true);
        }
        self.number(j, id).eq(self.number(k, id))
    }
    fn overlap(&self, j: &PrimExpr, k: &PrimExpr) -> PrimExpr {
        let from = self.attr("coord_start", 2);
        overlap(self.real, |n| self.number(j, from + n), |n| self.number(k, from + n))
    }
    /// Are more boxes wanted?
    fn room(&self) -> PrimExpr {
        match self.attr("max_output_size", -1) {
            n if n > 0 => self.cell(0).lt(n),
            _ => PrimExpr::bool(true),
        }
    }

    fn hard(&self) -> Stmt {
        let (j, k) = (Var::dim("j"), Var::dim("k"));
        let (ji, ki) = (j.expr(), k.expr());
        let zero = PrimExpr::zero(self.real);
        let minus = PrimExpr::i64(-1);
        let near = self.overlap(&ji, &ki).ge(self.float("iou_threshold", 0.5));
        let suppress =
            Stmt::seq(vec![self.set_score(&ki, PrimExpr::float(self.real, -1.0)), self.set_origin(&ki, minus.clone())]);
        let rival = ki.clone().gt(ji.clone()).and(self.score(&ki).gt(zero.clone()));
        let inner = Stmt::if_then(rival, Stmt::if_then(self.compete(&ji, &ki), Stmt::if_then(near, suppress)));
        let select = Stmt::seq(vec![self.set(0, self.cell(0) + 1), each(&k, &self.cell(2), vec![inner])]);
        let drop = Stmt::seq(vec![erase(&self.boxes, &self.batch, &ji), self.set_origin(&ji, minus)]);
        let good = self.score(&ji).gt(zero).and(self.room());
        each(&j, &self.cell(2), vec![Stmt::if_else(good, select, drop)])
    }

    /// Takes the best candidate each round and lowers the scores of those that overlap it.
    fn soft(&self, sigma: f64) -> Stmt {
        let (round, j, k, e) = (Var::dim("round"), Var::dim("j"), Var::dim("k"), Var::dim("e"));
        let (ji, ki) = (j.expr(), k.expr());
        let threshold = self.float("score_threshold", 0.0);
        // Where there is no candidate yet it is the one behind the last: addresses stay in their arrays.
        let (selected, best, none) = (self.cell(0), self.cell(1), self.boxes.shape[1].clone());
        let beaten = best.clone().ge(none.clone()).if_then_else(threshold.clone(), self.score(&best));
        let open = |i: &PrimExpr| self.origin(i).ge(0);
        let better = ji.clone().ge(selected.clone()).and(open(&ji)).and(self.score(&ji).gt(beaten));
        let search = each(&j, &self.cell(2), vec![Stmt::if_then(better, self.set(1, ji.clone()))]);
        let at = |i: &PrimExpr| vec![self.batch.clone(), i.clone(), e.expr()];
        let held = Var::new("held", self.real);
        let swap_number = Stmt::let_in(
            &held,
            self.boxes.at(at(&selected)),
            Stmt::seq(vec![
                Stmt::store(&self.boxes, at(&selected), self.boxes.at(at(&best))),
                Stmt::store(&self.boxes, at(&best), held.expr()),
            ]),
        );
        let former = Var::dim("former");
        let swap_origin = Stmt::let_in(
            &former,
            self.origin(&selected),
            Stmt::seq(vec![self.set_origin(&selected, self.origin(&best)), self.set_origin(&best, former.expr())]),
        );
        let swap = Stmt::seq(vec![swap_origin, each(&e, &self.boxes.shape[2], vec![swap_number])]);
        let iou = Var::new("iou", self.real);
        let factor = (PrimExpr::float(self.real, -0.5 / sigma) * iou.expr() * iou.expr()).call1(Intrin::Exp);
        let close = self.set_origin(&ki, PrimExpr::i64(-1));
        let lower = Stmt::seq(vec![
            self.set_score(&ki, self.score(&ki) * factor),
            Stmt::if_then(self.score(&ki).le(threshold.clone()), close.clone()),
        ]);
        let near = iou.expr().ge(self.float("iou_threshold", 0.5));
        let weigh = Stmt::let_in(&iou, self.overlap(&selected, &ki), Stmt::if_else(near, close, lower));
        let rival = ki.clone().gt(selected.clone()).and(open(&ki)).and(self.score(&ki).gt(threshold));
        let decay = Stmt::if_then(rival, Stmt::if_then(self.compete(&selected, &ki), weigh));
        let take = Stmt::seq(vec![
            Stmt::if_then(best.clone().ne(selected.clone()), swap),
            each(&k, &self.cell(2), vec![decay]),
            self.set(0, selected + 1),
        ]);
        let body = Stmt::seq(vec![self.set(1, none.clone()), search, Stmt::if_then(best.lt(none), take)]);
        each(&round, &self.cell(2), vec![Stmt::if_then(self.room(), body)])
    }
}

fn nms(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let outs = cx.results()?;
    let (mut k, x) = cx.kernel()?;
    let (data, valid, indices) = (&x[0], &x[1], &x[2]);
    let real = data.dtype();
    let (b, n) = (data.shape[0].clone(), data.shape[1].clone());
    let rows = [b.clone()];
    let score = cx.attrs.int("score_index").unwrap_or(1);
    let sigma = cx.attrs.float("soft_nms_sigma").unwrap_or(0.0);
    let top_k = cx.attrs.int("top_k").unwrap_or(-1);
    let key = wide_dtype(real);
    let sorted = merge_sort(&mut k, &rows, &n, key, true, |row, p| {
        let inside = p.clone().lt(int(valid.at(row)));
        let value = data.at([row[0].clone(), p, PrimExpr::i64(score)]).cast(key);
        inside.select(value, PrimExpr::min_value(key))
    });
    let boxes = k.buffer("boxes", &data.shape, real);
    let index = k.buffer("origin", &[b.clone(), n.clone()], DType::I64);
    let with_indices = cx.attrs.bool("return_indices") != Some(false);
    let (out_index, out_count) = (
        k.buffer("box_indices", &[b.clone(), n.clone()], DType::I32),
        k.buffer("box_count", &[b, PrimExpr::i64(1)], DType::I32),
    );
    k.rows("non_max_suppression", &rows, |row| {
        let state = Buffer::new("state", vec![PrimExpr::i64(3)], DType::I64);
        let nms = Nms { cx, boxes: boxes.clone(), index: index.clone(), state, batch: row[0].clone(), real };
        let b = &row[0];
        let kept = int(valid.at(row));
        let kept = if top_k > 0 { kept.min(top_k) } else { kept };
        let (j, p) = (Var::dim("j"), Var::dim("p"));
        let take = Stmt::seq(vec![
            copy_box(&boxes, &j.expr(), data, sorted.index(row, j.expr()), b),
            nms.set_origin(&j.expr(), sorted.index(row, j.expr())),
        ]);
        let blank = Stmt::seq(vec![erase(&boxes, b, &j.expr()), nms.set_origin(&j.expr(), PrimExpr::i64(-1))]);
        let mut stmts = vec![
            nms.set(2, kept.min(n.clone())),
            nms.set(0, PrimExpr::i64(0)),
            each(&j, &n, vec![Stmt::if_else(j.expr().lt(nms.cell(2)), take, blank)]),
            if sigma > 0.0 { nms.soft(sigma) } else { nms.hard() },
        ];
        let pi = p.expr();
        if sigma > 0.0 {
            // The selected boxes stand in front.
            let close = Stmt::seq(vec![erase(&boxes, b, &pi), nms.set_origin(&pi, PrimExpr::i64(-1))]);
            stmts.push(each(&p, &n, vec![Stmt::if_then(pi.clone().ge(nms.cell(0)), close)]));
        }
        let (q, rest) = (Var::dim("q"), Var::dim("rest"));
        let at = |i: PrimExpr| vec![b.clone(), i];
        let name = |i: PrimExpr| indices.at([b.clone(), i]).cast(DType::I32);
        let keep = Stmt::seq(vec![
            Stmt::store(&out_index, at(nms.cell(0)), name(nms.origin(&q.expr()))),
            nms.set(0, nms.cell(0) + 1),
        ]);
        let fill = Stmt::store(&out_index, at(rest.expr()), PrimExpr::i32(-1));
        stmts.extend([
            nms.set(0, PrimExpr::i64(0)),
            each(&q, &n, vec![Stmt::if_then(nms.origin(&q.expr()).ge(0), keep)]),
            each(&rest, &n, vec![Stmt::if_then(rest.expr().ge(nms.cell(0)), fill)]),
            Stmt::store(&out_count, vec![b.clone(), PrimExpr::i64(0)], nms.cell(0).cast(DType::I32)),
        ]);
        let state = nms.state.clone();
        Stmt::new(StmtKind::Alloc { buffer: state, body: Stmt::seq(stmts) })
    });
    if with_indices {
        let mut results = vec![out_index, out_count];
        if sigma > 0.0 {
            results.insert(0, boxes);
        }
        return Ok(k.finish(&results));
    }
    if cx.attrs.bool("invalid_to_bottom") != Some(true) {
        return Ok(k.finish(&[boxes]));
    }
    let y = k.buffer("rearranged", outs[0].dims, outs[0].dtype);
    k.rows("rearrange", &rows, |row| {
        let next = Buffer::new("next", vec![PrimExpr::i64(1)], DType::I64);
        let cell = || next.at([PrimExpr::i64(0)]);
        let set = |v: PrimExpr| Stmt::store(&next, vec![PrimExpr::i64(0)], v);
        let (j, rest) = (Var::dim("j"), Var::dim("rest"));
        let valid = boxes.at([row[0].clone(), j.expr(), PrimExpr::i64(score)]).ge(PrimExpr::zero(real));
        let keep = Stmt::seq(vec![copy_box(&y, &cell(), &boxes, j.expr(), &row[0]), set(cell() + 1)]);
        let body = Stmt::seq(vec![
            set(PrimExpr::i64(0)),
            each(&j, &n, vec![Stmt::if_then(valid, keep)]),
            each(&rest, &n, vec![Stmt::if_then(rest.expr().ge(cell()), erase(&y, &row[0], &rest.expr()))]),
        ]);
        Stmt::new(StmtKind::Alloc { buffer: next.clone(), body })
    });
    Ok(k.finish(&[y]))
}

fn infer_all_class(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (boxes, scores) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?);
    cx.require_float(0, boxes.dtype)?;
    cx.require_float(1, scores.dtype)?;
    rules::require_ndim(cx, 0, 3)?;
    rules::require_ndim(cx, 1, 3)?;
    for i in 2..5 {
        let t = rules::tensor(cx, i)?;
        let one =
            t.known_dims().is_none_or(|d| d.is_empty() || d.len() == 1 && (d[0].is_int(1) || d[0].as_int().is_none()));
        if !one {
            return Err(cx.error(format!("{} must hold one number", cx.operand(i))));
        }
    }
    let tensorflow = match cx.attrs.str("output_format") {
        Some("onnx") => false,
        Some("tensorflow") => true,
        _ => return Err(cx.error("output_format must be \"onnx\" or \"tensorflow\"")),
    };
    let int = Some(DType::I64);
    let ranks: &[usize] = if tensorflow { &[3, 2, 1] } else { &[2, 1] };
    let (Some(bd), Some(sd)) = (boxes.known_dims(), scores.known_dims()) else {
        let unknown =
            |(i, r): (usize, &usize)| rules::unknown(Some(*r), if tensorflow && i == 1 { scores.dtype } else { int });
        return Ok(StructInfo::Tuple(ranks.iter().enumerate().map(unknown).collect()));
    };
    for (a, b, what) in [(&bd[0], &sd[0], "batch"), (&bd[1], &sd[2], "number of boxes")] {
        cx.require_eq(a, b, || format!("{what} differs: boxes {}, scores {}", dim_text(a), dim_text(b)))?;
    }
    cx.require_eq(&bd[2], &PrimExpr::i64(4), || format!("a box has 4 numbers, here {}", dim_text(&bd[2])))?;
    let per_batch = cx.simplify(sd[1].clone() * sd[2].clone());
    Ok(StructInfo::Tuple(if tensorflow {
        vec![
            rules::known(vec![sd[0].clone(), per_batch.clone(), PrimExpr::i64(2)], int),
            rules::known(vec![sd[0].clone(), per_batch], scores.dtype),
            rules::known(vec![sd[0].clone()], int),
        ]
    } else {
        let rows = cx.simplify(sd[0].clone() * per_batch);
        vec![rules::known(vec![rows, PrimExpr::i64(3)], int), rules::known(vec![PrimExpr::i64(1)], int)]
    }))
}

fn all_class(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let outs = cx.results()?;
    let (mut k, elems) = cx.elems()?;
    let [boxes, scores] = match (&elems[0], &elems[1]) {
        (Some(Elem::Buffer(b)), Some(Elem::Buffer(s))) => [b.clone(), s.clone()],
        _ => return Err(cx.error("boxes and scores must be tensors")),
    };
    let number = |i: usize| match elems.get(i).and_then(Option::as_ref) {
        Some(Elem::Value(v)) => Ok(v.clone()),
        Some(Elem::Buffer(b)) => Ok(b.at(vec![PrimExpr::i64(0); b.ndim()])),
        None => Err(cx.error("a threshold is missing")),
    };
    let (most, near, least) = (int(number(2)?), number(3)?, number(4)?);
    let real = scores.dtype();
    let (near, least) = (near.cast(real), least.cast(real));
    let rows = [scores.shape[0].clone(), scores.shape[1].clone()];
    let n = scores.shape[2].clone();
    let key = wide_dtype(real);
    let sorted =
        merge_sort(&mut k, &rows, &n, key, true, |row, p| scores.at([row[0].clone(), row[1].clone(), p]).cast(key));
    let chosen = k.buffer("chosen", &scores.shape, DType::I64);
    let count = k.buffer("count", &rows, DType::I64);
    k.rows("all_class_nms", &rows, |row| {
        let at = |i: PrimExpr| vec![row[0].clone(), row[1].clone(), i];
        // Cell 0: which of the chosen boxes is compared; 1: whether one of them was too near.
        let state = Buffer::new("state", vec![PrimExpr::i64(2)], DType::I64);
        let cell = |n: i64| state.at([PrimExpr::i64(n)]);
        let set = |n: i64, v: PrimExpr| Stmt::store(&state, vec![PrimExpr::i64(n)], v);
        let j = Var::dim("j");
        let ji = j.expr();
        let corner = |i: &PrimExpr, e: i64| {
            boxes.at([row[0].clone(), sorted.index(row, i.clone()), PrimExpr::i64(e)]).cast(real)
        };
        let taken = chosen.at(at(cell(0)));
        let iou = overlap(real, |e| corner(&taken, e), |e| corner(&ji, e));
        let total = count.at(row);
        let open = cell(0).lt(total.clone()).and(cell(1).eq(0));
        let compare =
            Stmt::seq(vec![Stmt::if_then(iou.ge(near.clone()), set(1, PrimExpr::i64(1))), set(0, cell(0) + 1)]);
        let score = sorted.key(row, ji.clone()).cast(real);
        // Only positive scores are suppressed.
        let rival = score.clone().gt(PrimExpr::zero(real));
        let select = Stmt::seq(vec![
            Stmt::store(&chosen, at(total.clone()), ji),
            Stmt::store(&count, row.to_vec(), total.clone() + 1),
        ]);
        let consider = Stmt::seq(vec![
            set(0, PrimExpr::i64(0)),
            set(1, PrimExpr::i64(0)),
            Stmt::if_then(rival, Stmt::while_loop(open, compare)),
            Stmt::if_then(cell(1).eq(0), select),
        ]);
        let good = score.clone().gt(PrimExpr::float(real, -1.0)).and(score.gt(least));
        let good = good.and(total.lt(most)).and(near.gt(PrimExpr::zero(real)));
        let body = Stmt::seq(vec![
            Stmt::store(&count, row.to_vec(), PrimExpr::i64(0)),
            each(&j, &n, vec![Stmt::if_then(good, consider)]),
        ]);
        Stmt::new(StmtKind::Alloc { buffer: state.clone(), body })
    });
    let results: Vec<Buffer> = outs.iter().map(|o| k.buffer("result", o.dims, o.dtype)).collect();
    let zero = |b: &Buffer, at: Vec<PrimExpr>| Stmt::store(b, at, PrimExpr::zero(b.dtype()));
    let (c, j, r) = (Var::dim("c"), Var::dim("j"), Var::dim("r"));
    let class_axis = &rows[1];
    let place = |b: &PrimExpr| [b.clone(), c.expr(), j.expr()];
    let box_of = |b: &PrimExpr| {
        let row = [b.clone(), c.expr()];
        sorted.index(&row, chosen.at(place(b)))
    };
    if outs.len() == 2 {
        let (out, total) = (&results[0], &results[1]);
        let b = Var::dim("b");
        let next = total.at([PrimExpr::i64(0)]);
        let set = |e: i64, v: PrimExpr| Stmt::store(out, vec![next.clone(), PrimExpr::i64(e)], v);
        let body = vec![
            set(0, b.expr()),
            set(1, c.expr()),
            set(2, box_of(&b.expr())),
            Stmt::store(total, vec![PrimExpr::i64(0)], next.clone() + 1),
        ];
        let found = count.at([b.expr(), c.expr()]);
        let clear = (0..3).map(|e| zero(out, vec![r.expr(), PrimExpr::i64(e)])).collect();
        k.push(Stmt::seq(vec![
            zero(total, vec![PrimExpr::i64(0)]),
            each(&r, &out.shape[0], clear),
            each(&b, &rows[0], vec![each(&c, class_axis, vec![each(&j, &found, body)])]),
        ]));
    } else {
        let (out, out_scores, total) = (&results[0], &results[1], &results[2]);
        k.rows("collect", &rows[..1], |row| {
            let b = &row[0];
            let next = total.at([b.clone()]);
            let set = |e: i64, v: PrimExpr| Stmt::store(out, vec![b.clone(), next.clone(), PrimExpr::i64(e)], v);
            let score = sorted.key(&[b.clone(), c.expr()], chosen.at(place(b))).cast(real);
            let body = vec![
                set(0, c.expr()),
                set(1, box_of(b)),
                Stmt::store(out_scores, vec![b.clone(), next.clone()], score),
                Stmt::store(total, vec![b.clone()], next.clone() + 1),
            ];
            let found = count.at([b.clone(), c.expr()]);
            let clear = vec![
                zero(out, vec![b.clone(), r.expr(), PrimExpr::i64(0)]),
                zero(out, vec![b.clone(), r.expr(), PrimExpr::i64(1)]),
                zero(out_scores, vec![b.clone(), r.expr()]),
            ];
            Stmt::seq(vec![
                zero(total, vec![b.clone()]),
                each(&r, &out.shape[1], clear),
                each(&c, class_axis, vec![each(&j, &found, body)]),
            ])
        });
    }
    Ok(k.finish(&results))
}
