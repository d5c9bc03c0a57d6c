//! Elementwise stages: merged loops, a vector loop along the contiguous axis with a scalar tail, conditions on loop
//! variables resolved by leaving loops (invariant conditions) or splitting them (conditions along the vector axis).

use super::emit::value::widen;
use super::emit::{has_load, Emit, Lane, Res};
use super::nest::{scan, used_plainly, Nest, Scan, Target};
use super::poly::Poly;
use super::quotients::Quotients;
use super::stage::{replace, Axis, Stage};
use super::transpose::{blocks, transposed};
use super::SchedOptions;
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::{PrimExpr, Var};

/// How often a nest may be duplicated to get rid of a condition, counted along one path.
const SPLITS: usize = 6;
/// Points of a stage that hardly take time.
const TABLE: i64 = 256;

pub fn elementwise(e: &mut Emit, s: &Stage, o: &SchedOptions) -> Res<()> {
    let mut n = Nest::new(e, s)?;
    let unit = |e: &Emit, a: &Axis| n.out_stride(e, &a.var).and_then(|s| s.as_const()) == Some(1);
    if let Some(i) = n.spatial.iter().rposition(|a| unit(e, a)) {
        // Independent points: the contiguous axis may go innermost.
        let a = n.spatial.remove(i);
        n.spatial.push(a);
    }
    let axes = n.spatial.clone();
    if o.is_wide() && is_table(&axes, &n.outs) {
        return level(e, &SchedOptions::vectors(0), &axes, &n.outs, SPLITS);
    }
    if let Some(across) = transposed(e, &axes, &n.outs) {
        return blocks(e, o, &axes, across, &n.outs);
    }
    level(e, o, &axes, &n.outs, SPLITS)
}

/// Few numbers that are worked out of indices, which wide vectors do not hold: one after the other, so that what reads them
/// has its vectors.
fn is_table(axes: &[Axis], outs: &[Target]) -> bool {
    let points = axes.iter().try_fold(1i64, |n, a| n.checked_mul(a.len()?));
    let counts = |t: &Target| axes.iter().any(|a| used_plainly(&t.value, &a.var));
    points.is_some_and(|n| n <= TABLE) && outs.iter().any(counts)
}

fn level(e: &mut Emit, o: &SchedOptions, axes: &[Axis], outs: &[Target], splits: usize) -> Res<()> {
    if splits > 0 {
        let bound = |c: &PrimExpr| !axes.iter().any(|a| c.uses(&a.var)) && !has_load(c);
        if let Some(c) = find_condition(outs, &bound) {
            let cond = e.scalar(&c)?;
            let then = assume(outs, &c, true);
            let otherwise = assume(outs, &c, false);
            return e.if_then(
                cond,
                |e| level(e, o, axes, &then, splits - 1),
                |e| level(e, o, axes, &otherwise, splits - 1),
            );
        }
    }
    if let Some(q) = Quotients::of(e, outs, axes, o) {
        return q.emit(e, outs, &|e, outs| level(e, o, axes, outs, splits));
    }
    let Some((first, rest)) = axes.split_first() else { return point(e, outs, &Lane::scalar()) };
    let end = Poly::of(&first.extent, &e.ranges);
    let end = e.index(&end)?;
    let end = e.hoist(end);
    if rest.is_empty() {
        return range(e, o, &first.var, PrimExpr::i64(0), end, outs, splits);
    }
    e.for_loop(&first.var, PrimExpr::i64(0), end, 1, |e| level(e, o, rest, outs, splits))
}

/// The innermost loop over `[lo, hi)`, cut where conditions change.
pub fn range(
    e: &mut Emit,
    o: &SchedOptions,
    v: &Var,
    lo: PrimExpr,
    hi: PrimExpr,
    outs: &[Target],
    splits: usize,
) -> Res<()> {
    if let (Some(a), Some(b)) = (lo.as_int(), hi.as_int()) {
        if a >= b {
            return Ok(());
        }
    }
    let along = |c: &PrimExpr| flips(e, c, v).is_some();
    if splits > 0 {
        if let Some(c) = find_condition(outs, &along) {
            if let Some((at, width, first)) = flips(e, &c, v) {
                let clamp = |e: &mut Emit, p: &Poly| -> Res<PrimExpr> {
                    let p = e.index(p)?;
                    let p = p.max(lo.clone()).min(hi.clone());
                    Ok(e.hoist(p))
                };
                let a = clamp(e, &at)?;
                let (inside, outside) = (assume(outs, &c, !first), assume(outs, &c, first));
                range(e, o, v, lo.clone(), a.clone(), &outside, splits - 1)?;
                return match width {
                    None => range(e, o, v, a, hi, &inside, splits - 1),
                    Some(w) => {
                        let b = clamp(e, &at.add(&Poly::constant(w)))?;
                        range(e, o, v, a, b.clone(), &inside, splits - 1)?;
                        range(e, o, v, b, hi, &outside, splits - 1)
                    }
                };
            }
        }
    }
    let values: Vec<&PrimExpr> = outs.iter().map(|t| &t.value).collect();
    let s = scan(&values, v, e);
    let unit =
        outs.iter().all(|t| Poly::of(&t.offset, &e.ranges).split(v).is_some_and(|(s, _)| s.as_const() == Some(1)));
    let times = s.times.filter(|n| e.ranges.divisor(&lo) % n == 0);
    let (lanes, unroll) = lanes(o, &s, times, outs);
    if !unit || lanes < 2 {
        return e.for_loop(v, lo, hi, 1, |e| point(e, outs, &Lane::scalar()));
    }
    // Vectors begin where the elements that they repeat do.
    let times = times.unwrap_or(1);
    strips(e, v, lo, hi, lanes * times as u16, unroll, 4 * times as u16, |e, lane| {
        e.ranges.set_divisor(v, if lane.lanes > 1 { times } else { 1 });
        let r = point(e, outs, lane);
        e.ranges.set_divisor(v, 1);
        r
    })
}

/// Lanes of one register and how many registers to use at a time: of elements that are each read so many `times`, those
/// that are read.
fn lanes(o: &SchedOptions, s: &Scan, times: Option<i64>, outs: &[Target]) -> (u16, u16) {
    let widest = outs.iter().map(|t| super::emit::compute_type(t.dtype).bytes()).max().unwrap_or(1).max(s.widest);
    let heavy = s.calls > 0 || s.ops > 24;
    let lanes = o.vector_bytes as usize / widest.max(1);
    // Lane by lane is as good as a gather, unless there is much to compute.
    let gather = s.gather - times.map_or(0, |_| s.repeated);
    let gathers = gather > 0 && ((gather - s.named) * 6 + s.named * 2 > s.ops + 12 * s.calls);
    if s.blocked || gathers {
        return (1, 1);
    }
    let unroll = if heavy { 2 } else { 4 };
    (lanes as u16, (unroll / times.unwrap_or(1) as u16).max(1))
}

/// Runs `body` over `[lo, hi)`: `unroll` vectors at a time, then one, then shorter ones where vectors are wide and these
/// have at least `least` lanes, then scalars.
#[allow(clippy::too_many_arguments)]
pub fn strips(
    e: &mut Emit,
    v: &Var,
    lo: PrimExpr,
    hi: PrimExpr,
    lanes: u16,
    unroll: u16,
    least: u16,
    mut body: impl FnMut(&mut Emit, &Lane) -> Res<()>,
) -> Res<()> {
    let mut at = lo;
    let mut steps = vec![lanes * unroll];
    if unroll > 1 {
        steps.push(lanes);
    }
    let mut half = lanes / 2;
    while e.wide && half >= least.max(4) {
        steps.push(half);
        half /= 2;
    }
    for step in steps {
        if at == hi {
            return Ok(());
        }
        let step = step as i64;
        let end = e.whole(&at, &hi, step);
        e.for_loop(v, at, end.clone(), step, |e| body(e, &Lane::of(v, step as u16)))?;
        at = end;
    }
    e.for_loop(v, at, hi, 1, |e| body(e, &Lane::scalar()))
}

/// Computes and stores one point, or one vector of points.
pub fn point(e: &mut Emit, outs: &[Target], lane: &Lane) -> Res<()> {
    let mut values = vec![];
    for t in outs {
        values.push(e.value(&t.value, lane)?);
    }
    for (t, x) in outs.iter().zip(values) {
        let x = if lane.lanes > 1 { spread(x, lane.lanes) } else { x };
        let offset = Poly::of(&t.offset, &e.ranges);
        e.store(&t.ptr, &offset, t.dtype, x)?;
    }
    Ok(())
}

pub fn spread(x: PrimExpr, lanes: u16) -> PrimExpr {
    if x.dtype().lanes == 1 {
        x.broadcast(lanes)
    } else {
        widen(vec![x]).swap_remove(0)
    }
}

/// A comparison inside a condition that guards loads, for which `wanted` holds.
pub fn find_condition(outs: &[Target], wanted: &dyn Fn(&PrimExpr) -> bool) -> Option<PrimExpr> {
    fn leaf(c: &PrimExpr, wanted: &dyn Fn(&PrimExpr) -> bool) -> Option<PrimExpr> {
        match c.kind() {
            PrimKind::Binary(BinOp::And | BinOp::Or, a, b) => leaf(a, wanted).or_else(|| leaf(b, wanted)),
            PrimKind::Not(a) => leaf(a, wanted),
            PrimKind::Call(_, args) => args.first().and_then(|a| leaf(a, wanted)),
            PrimKind::Binary(op, ..) if op.is_compare() && wanted(c) => Some(c.clone()),
            _ => None,
        }
    }
    fn find(e: &PrimExpr, wanted: &dyn Fn(&PrimExpr) -> bool) -> Option<PrimExpr> {
        if let PrimKind::IfThenElse(c, t, f) = e.kind() {
            if has_load(t) || has_load(f) {
                if let Some(c) = leaf(c, wanted) {
                    return Some(c);
                }
            }
        }
        e.children().into_iter().find_map(|c| find(c, wanted))
    }
    outs.iter().find_map(|t| find(&t.value, wanted))
}

fn assume(outs: &[Target], c: &PrimExpr, holds: bool) -> Vec<Target> {
    let mut outs = outs.to_vec();
    for t in &mut outs {
        t.value = replace(&t.value, c, &PrimExpr::bool(holds));
    }
    outs
}

/// Where an integer comparison changes along `v`: the point, the width of the other value (to the end if `None`),
/// and the value before the point.
fn flips(e: &Emit, c: &PrimExpr, v: &Var) -> Option<(Poly, Option<i64>, bool)> {
    let PrimKind::Binary(op, a, b) = c.kind() else { return None };
    if !a.dtype().is_int() || has_load(c) || !c.uses(v) {
        return None;
    }
    let d = Poly::of(a, &e.ranges).sub(&Poly::of(b, &e.ranges));
    let (s, r) = d.split(v)?;
    let up = match s.as_const()? {
        1 => true,
        -1 => false,
        _ => return None,
    };
    // up: v + r, crosses 0 at -r; down: r - v, crosses 0 at r.
    let zero = if up { r.scale(-1) } else { r };
    let one = Poly::constant(1);
    let after = zero.add(&one);
    Some(match (op, up) {
        (BinOp::Lt, true) => (zero, None, true),
        (BinOp::Le, true) => (after, None, true),
        (BinOp::Gt, true) => (after, None, false),
        (BinOp::Ge, true) => (zero, None, false),
        (BinOp::Lt, false) => (after, None, false),
        (BinOp::Le, false) => (zero, None, false),
        (BinOp::Gt, false) => (zero, None, true),
        (BinOp::Ge, false) => (after, None, true),
        (BinOp::Eq, _) => (zero, Some(1), false),
        (BinOp::Ne, _) => (zero, Some(1), true),
        _ => return None,
    })
}
