//! Offsets of buffers whose sizes are open, in closed form, as they lie for sizes that dims may have.
//!
//! For some values of the dims sizes are numbers, and [`memory`](super::memory) packs these well. Of two buffers in use at
//! the same time one then lies below the other. Where each is put on top of those that lie below it there, the
//! arrangement is right for all sizes and as small as the packed one for those values: an offset is the largest of the ends
//! below. Ends are [`Bound`]s; those that are below others are left out, and those that one bound is hardly above are one.

use super::bound::Bound;
use super::memory::{align_up, overlap, Item, Layout, Packed, Range};
use relax_ir::op::ShapeFacts;
use relax_ir::program::EntryDim;
use relax_ir::{PrimExpr, Var};
use std::collections::HashMap;

/// Ends that an offset may be the largest of; more are one.
const MOST_ENDS: usize = 24;
/// How many times the largest of two ends a bound of both may be, for values of the dims that were looked at.
const HARDLY: f64 = 1.002;
/// Times what is in use at once with the dims at their bounds: arrangements below are as good as another there.
const NEAR: f64 = 1.05;
/// Bytes of all buffers beyond which values of dims are no example.
const MOST_BYTES: i64 = 1 << 48;
/// Buffers beyond which packing for several values would take too long.
const MOST_BUFFERS: usize = 2000;

/// A buffer to be placed: its size and when it is in use.
pub struct Open<'a> {
    pub buffer: usize,
    pub bytes: &'a PrimExpr,
    pub range: Range,
}

/// The smallest of the arrangements for several values of the dims and of `other`, where it is worst for these values; where
/// every dim has an upper bound first of all one that is small there.
pub fn arrange(items: &[Open], dims: &[EntryDim], other: Layout, facts: &mut dyn ShapeFacts) -> Layout {
    if items.len() > MOST_BUFFERS {
        return other;
    }
    let bounded = dims.iter().all(|d| d.upper.is_some());
    let mut samples = samples(items, dims);
    let at_bounds = bounded && items_at(items, &samples[0]).is_some();
    samples.retain(|s| items_at(items, s).is_some());
    let sizes: Vec<Vec<Item>> = samples.iter().filter_map(|s| items_at(items, s)).collect();
    let Some(bounds) = items.iter().map(|i| Bound::of(i.bytes, facts)).collect::<Option<Vec<Bound>>>() else {
        return other;
    };
    let packed: Vec<Packed> = sizes.iter().map(|items| Packed::new(items)).collect();
    // How many times what is in use at once, for the bounds, and where it is worst.
    let cost = |total: &PrimExpr| {
        let mut times = samples.iter().zip(&packed).map(|(values, p)| {
            let total = total.evaluate(values).unwrap_or(i64::MAX);
            total as f64 / p.least.max(1) as f64
        });
        let bounds = if at_bounds { times.next() } else { None };
        let rest = times.fold((0.0, 0.0), |(worst, sum): (f64, f64), t| (worst.max(t), sum + t));
        (bounds.unwrap_or_default().max(NEAR), rest.0, rest.1)
    };
    let mut best = (cost(&other.total), other);
    for p in &packed {
        let Some(layout) = stack(items, &bounds, p, best.1.offsets.len(), &samples) else { continue };
        let own = cost(&layout.total);
        // What is as small is kept as it is.
        if own < (best.0 .0, best.0 .1, best.0 .2 * 0.99) {
            best = (own, layout);
        }
    }
    best.1
}

/// Values of the dims: the upper bounds first, then some around which sizes of models lie, and each dim alone at its least.
fn samples(items: &[Open], dims: &[EntryDim]) -> Vec<HashMap<Var, i64>> {
    let free = free(items);
    let all = |value: i64| free.iter().map(|v| (v.clone(), near(dims, v, value))).collect::<HashMap<_, _>>();
    let bounds = free.iter().map(|v| {
        let upper = dims.iter().find(|d| d.var == *v).and_then(|d| d.upper);
        (v.clone(), near(dims, v, upper.unwrap_or(128)))
    });
    let mut out = vec![bounds.collect(), all(128), all(16), all(1024)];
    if free.len() > 1 {
        out.extend(free.iter().take(4).map(|v| {
            let mut values = all(128);
            values.insert(v.clone(), near(dims, v, 1));
            values
        }));
    }
    out
}

/// The dims of the sizes.
fn free(items: &[Open]) -> Vec<Var> {
    let mut free: Vec<Var> = vec![];
    for item in items {
        free.extend(item.bytes.vars());
        free.sort();
        free.dedup();
    }
    free
}

/// What `v` may be next to `value`.
fn near(dims: &[EntryDim], v: &Var, value: i64) -> i64 {
    let d = dims.iter().find(|d| d.var == *v);
    let step = d.and_then(|d| d.divisor).unwrap_or(1).max(1);
    let value = value.max(d.and_then(|d| d.lower).unwrap_or(1)).max(1);
    let value = value.min(d.and_then(|d| d.upper).unwrap_or(i64::MAX));
    (value - value % step).max(step)
}

/// The buffers for these values; `None` where a size is no number, or all of them together are more than memory has.
fn items_at(items: &[Open], values: &HashMap<Var, i64>) -> Option<Vec<Item>> {
    let mut room = MOST_BYTES;
    let item = |i: &Open| {
        let bytes = i.bytes.evaluate(values).filter(|b| (0..=room).contains(b))?;
        room -= bytes;
        Some(Item { bytes, range: i.range })
    };
    items.iter().map(item).collect()
}

/// Places of which the largest is at or above all of these; `samples` are values of the dims.
fn largest(ends: Vec<Bound>, samples: &[HashMap<Var, i64>]) -> Vec<Bound> {
    let mut out: Vec<Bound> = vec![];
    for e in ends {
        if out.iter().any(|o| e.at_most(o)) {
            continue;
        }
        out.retain(|o| !o.at_most(&e));
        out.push(e);
    }
    let hardly_above = |both: &Bound, a: &Bound, b: &Bound| {
        let at = |e: &Bound, s| e.evaluate(s).unwrap_or(i64::MAX) as f64;
        samples.iter().all(|s| at(both, s) <= HARDLY * at(a, s).max(at(b, s)))
    };
    let mut k = 0;
    while k < out.len() {
        let one = (k + 1..out.len()).find_map(|i| {
            let both = out[k].join(&out[i]);
            (out.len() > MOST_ENDS || hardly_above(&both, &out[k], &out[i])).then_some((i, both))
        });
        match one {
            Some((i, both)) => {
                out.remove(i);
                out[k] = both;
            }
            None => k += 1,
        }
    }
    out
}

/// Each buffer on top of those below it in `packed`; `None` where sizes are no int64.
fn stack(
    items: &[Open],
    bounds: &[Bound],
    packed: &Packed,
    buffers: usize,
    samples: &[HashMap<Var, i64>],
) -> Option<Layout> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&k| (packed.offsets[k], k));
    let mut ends: Vec<Vec<Bound>> = vec![vec![]; items.len()];
    let mut offsets: Vec<Option<PrimExpr>> = vec![None; buffers];
    // Buffers on which no other lies yet at some step.
    let mut top: Vec<bool> = vec![true; items.len()];
    for (at, &k) in order.iter().enumerate() {
        let mut below: Vec<usize> = vec![];
        for &j in order[..at].iter().rev().filter(|&&j| overlap(items[j].range, items[k].range)) {
            // What another of them lies on is lower.
            if !below.iter().any(|&b| overlap(items[b].range, items[j].range)) {
                below.push(j);
            }
        }
        below.iter().for_each(|&j| top[j] = false);
        let under = below.iter().flat_map(|&j| ends[j].iter().cloned()).collect();
        let mut own = largest(under, samples);
        if own.is_empty() {
            own.push(Bound::default());
        }
        // An offset is rounded up, where it is not a multiple as it stands.
        let past = |o: &Bound| o.plus(&Bound::constant(o.slack()))?.plus(&bounds[k]);
        ends[k] = own.iter().map(past).collect::<Option<_>>()?;
        offsets[items[k].buffer] = Some(greatest(&own));
    }
    let all = (0..items.len()).filter(|&k| top[k]).flat_map(|k| ends[k].clone()).collect();
    let total = greatest(&largest(all, samples));
    Some(Layout { offsets, total, regions: vec![], region_of: vec![] })
}

/// The largest, as an offset.
fn greatest(of: &[Bound]) -> PrimExpr {
    let offset = |b: &Bound| if b.slack() == 0 { b.expr() } else { align_up(b.expr()) };
    of.iter().map(offset).reduce(PrimExpr::max).unwrap_or_else(|| PrimExpr::i64(0))
}

#[cfg(test)]
mod tests {
    use super::super::memory::ALIGN;
    use super::*;
    use proptest::prelude::*;
    use relax_ir::sym::Facts;
    use relax_ir::DType;

    proptest! {
        /// Whatever the dims are, buffers in use together lie apart, and inside of the whole.
        #[test]
        fn buffers_in_use_together_lie_apart(
            buffers in proptest::collection::vec((0..5usize, 1..9i64, 1..12usize, 0..5usize), 1..24),
        ) {
            let (n, m) = (Var::new("n", DType::I64), Var::new("m", DType::I64));
            let mut facts = Facts::default();
            for v in [&n, &m] {
                facts.assume(&v.expr().ge(0));
            }
            let sizes: Vec<PrimExpr> = buffers
                .iter()
                .map(|&(kind, c, _, _)| {
                    let of = |e: PrimExpr| e * PrimExpr::i64(64 * c);
                    match kind {
                        0 => PrimExpr::i64(64 * c),
                        1 => of(n.expr()),
                        2 => of(m.expr()),
                        3 => of(n.expr() * n.expr()),
                        _ => crate::host::memory::align_up(n.expr() * m.expr() * PrimExpr::i64(c)),
                    }
                })
                .collect();
            let items: Vec<Open> = (sizes.iter().zip(&buffers).enumerate())
                .map(|(buffer, (bytes, b))| Open { buffer, bytes, range: (b.2, b.2 + b.3) })
                .collect();
            // End to end: what an arrangement only exceeds by roundings.
            let mut at = PrimExpr::i64(0);
            let mut offsets = vec![];
            for bytes in &sizes {
                offsets.push(Some(at.clone()));
                at = at + bytes.clone();
            }
            let other = Layout { offsets, total: at, regions: vec![], region_of: vec![] };
            let layout = arrange(&items, &[], other.clone(), &mut facts);
            for (a, b) in [(0, 0), (1, 1), (1, 700), (3, 5), (16, 1), (128, 128), (33, 1000), (1000, 2)] {
                let values = HashMap::from([(n.clone(), a), (m.clone(), b)]);
                let of = |e: &PrimExpr| e.evaluate(&values).expect("a number");
                let begin = |k: usize| of(layout.offsets[k].as_ref().expect("placed"));
                let total = of(&layout.total);
                prop_assert!(total <= of(&other.total) + 2 * ALIGN * 24);
                for (k, item) in items.iter().enumerate() {
                    let end = begin(k) + of(item.bytes);
                    prop_assert!(begin(k) >= 0 && begin(k) % 64 == 0 && end <= total);
                    for (j, before) in items[..k].iter().enumerate() {
                        let apart = end <= begin(j) || begin(j) + of(before.bytes) <= begin(k);
                        prop_assert!(!overlap(before.range, item.range) || apart, "{j} {k} at {a}, {b}");
                    }
                }
            }
        }
    }

    /// ONNX case nllloss_NCd1d2d3d4d5: of seven dims of 1024 a size is no int64.
    #[test]
    fn values_that_no_memory_holds_are_no_example() {
        let dims: Vec<Var> = (0..7).map(|i| Var::new(format!("d{i}"), DType::I64)).collect();
        let mut facts = Facts::default();
        dims.iter().for_each(|d| facts.assume(&d.expr().ge(1)));
        let size = dims.iter().fold(PrimExpr::i64(64), |e, d| e * d.expr());
        let items: Vec<Open> =
            (0..3).map(|buffer| Open { buffer, bytes: &size, range: (buffer, buffer + 1) }).collect();
        let total = size.clone() * PrimExpr::i64(3);
        let other = Layout { offsets: vec![None; 3], total, regions: vec![], region_of: vec![] };
        let layout = arrange(&items, &[], other, &mut facts);
        assert_eq!(facts.simplify(&layout.total), facts.simplify(&(size * PrimExpr::i64(2))));
    }

    /// As in a transformer: three buffers of the size of its rows lie where one of four times that size was.
    #[test]
    fn what_is_in_use_at_once_for_one_size_is_for_all() {
        let n = Var::new("n", DType::I64);
        let rows = |c: i64| n.expr() * PrimExpr::i64(2048 * c);
        let sizes = [rows(1), rows(1), rows(1), rows(1), rows(4), rows(1)];
        let ranges = [(1, 9), (2, 5), (3, 5), (4, 6), (7, 8), (8, 9)];
        let open = |(buffer, (bytes, &range))| Open { buffer, bytes, range };
        let items: Vec<Open> = sizes.iter().zip(&ranges).enumerate().map(open).collect();
        let mut facts = Facts::default();
        facts.assume(&n.expr().ge(1));
        let shared = Layout { offsets: vec![None; 6], total: rows(8), regions: vec![], region_of: vec![] };
        let layout = arrange(&items, &[], shared, &mut facts);
        assert_eq!(layout.total, rows(6), "{:?}", layout.offsets);
    }
}
