//! Placing buffers in the workspace by liveness.
//!
//! Sizes are closed forms in the entry's shape variables. When all are numbers, buffers are packed at the lowest offsets
//! where they fit, in the best of several orders; else buffers of equal (or provably not larger) size share a slot and slots
//! are laid end to end, or they lie as they do for sizes that dims may have ([`arrange`](super::arrange)), whichever takes
//! less. Every offset is a multiple of [`ALIGN`].

use super::arrange::{arrange, Open};
use super::regions::Region;
use super::value::*;
use relax_ir::op::{Answer, ShapeFacts};
use relax_ir::program::EntryDim;
use relax_ir::PrimExpr;

/// Alignment of every buffer in the workspace, in bytes.
pub const ALIGN: i64 = 64;

#[derive(Clone)]
pub struct Layout {
    /// By buffer; `None` for those that do not live in the workspace.
    pub offsets: Vec<Option<PrimExpr>>,
    /// Bytes of the whole workspace.
    pub total: PrimExpr,
    /// The memories, each with what is used of it (see [`super::regions`]); empty for a workspace in one piece.
    pub regions: Vec<Region>,
    /// By buffer, when there are several.
    pub region_of: Vec<usize>,
}

/// First and last position at which a buffer is in use.
pub type Range = (usize, usize);

/// Lays out the workspace buffers of `steps`, in an entry with these dims.
pub fn layout(bufs: &[Buf], steps: &[Step], dims: &[EntryDim], facts: &mut dyn ShapeFacts) -> Layout {
    let mut ranges: Vec<Option<Range>> = vec![None; bufs.len()];
    let mut at = 0;
    mark(bufs, steps, &mut at, &mut ranges);
    let live: Vec<usize> =
        (0..bufs.len()).filter(|&i| matches!(bufs[i].place, Place::Workspace) && ranges[i].is_some()).collect();
    let sizes: Vec<PrimExpr> = bufs.iter().map(|b| align_up(b.bytes.clone())).collect();
    if live.iter().all(|&i| sizes[i].as_int().is_some()) {
        pack(bufs.len(), &live, &sizes, &ranges)
    } else {
        let shared = share(bufs.len(), &live, &sizes, &ranges, facts);
        let open = |&buffer: &usize| Some(Open { buffer, bytes: &sizes[buffer], range: ranges[buffer]? });
        arrange(&live.iter().filter_map(open).collect::<Vec<_>>(), dims, shared, facts)
    }
}

/// Bytes of the workspace that are in use at once where it is most, with these values of sizes.
pub fn least(bufs: &[Buf], steps: &[Step], size: &dyn Fn(&PrimExpr) -> i64) -> i64 {
    let mut ranges: Vec<Option<Range>> = vec![None; bufs.len()];
    mark(bufs, steps, &mut 0, &mut ranges);
    let own = bufs.iter().zip(ranges).filter(|(b, _)| matches!(b.place, Place::Workspace));
    let item =
        |(b, range): (&Buf, Option<Range>)| Some(Item { bytes: size(&align_up(b.bytes.clone())), range: range? });
    peak(&own.filter_map(item).collect::<Vec<_>>())
}

/// The names of the steps, and the first and last step at which each buffer is in use.
pub fn timeline(bufs: &[Buf], steps: &[Step]) -> (Vec<String>, Vec<Option<(usize, usize)>>) {
    fn names(steps: &[Step], out: &mut Vec<String>) {
        for s in steps {
            out.push(match s {
                Step::Kernel { kernel, .. } => kernel.clone(),
                Step::Copy { .. } => "copy".to_string(),
                Step::Write { .. } => "write".to_string(),
                Step::Read { .. } => "read".to_string(),
                Step::Check { .. } => "check".to_string(),
                Step::If { .. } => "if".to_string(),
            });
            if let Step::If { then, otherwise, .. } = s {
                names(then, out);
                names(otherwise, out);
            }
        }
    }
    let mut ranges: Vec<Option<Range>> = vec![None; bufs.len()];
    mark(bufs, steps, &mut 0, &mut ranges);
    let mut list = vec![];
    names(steps, &mut list);
    (list, ranges)
}

/// `bytes` rounded up to [`ALIGN`].
pub fn align_up(bytes: PrimExpr) -> PrimExpr {
    (bytes + PrimExpr::i64(ALIGN - 1)).floor_div(PrimExpr::i64(ALIGN)) * PrimExpr::i64(ALIGN)
}

fn mark(bufs: &[Buf], steps: &[Step], at: &mut usize, ranges: &mut [Option<Range>]) {
    for s in steps {
        *at += 1;
        let mut touch = |b: BufId| {
            for b in [Some(b), bufs[b.0].inside()].into_iter().flatten() {
                let r = ranges[b.0].get_or_insert((*at, *at));
                r.1 = *at;
            }
        };
        match s {
            Step::Kernel { buffers, scratch, .. } => buffers.iter().chain(scratch).for_each(|&b| touch(b)),
            Step::Copy { from, to, .. } => {
                touch(*from);
                touch(*to);
            }
            Step::Write { to, .. } => touch(*to),
            Step::Read { from, .. } => touch(*from),
            Step::Check { .. } => {}
            Step::If { then, otherwise, .. } => {
                mark(bufs, then, at, ranges);
                mark(bufs, otherwise, at, ranges);
            }
        }
    }
}

pub fn overlap(a: Range, b: Range) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

/// Numbers only.
pub fn pack(n: usize, live: &[usize], sizes: &[PrimExpr], ranges: &[Option<Range>]) -> Layout {
    let mut buffers: Vec<usize> = vec![];
    let mut items: Vec<Item> = vec![];
    for &i in live {
        if let Some(range) = ranges[i] {
            buffers.push(i);
            items.push(Item { bytes: sizes[i].as_int().unwrap_or(0), range });
        }
    }
    let packed = Packed::new(&items);
    let mut offsets = vec![None; n];
    for (buffer, offset) in buffers.into_iter().zip(packed.offsets) {
        offsets[buffer] = Some(PrimExpr::i64(offset));
    }
    Layout { offsets, total: PrimExpr::i64(packed.total), regions: vec![], region_of: vec![] }
}

/// Pairs of buffers that [`Packed::new`] compares for each order, beyond the first attempt: a millisecond or two.
const EFFORT: usize = 500_000;

/// A buffer to be placed.
pub struct Item {
    pub bytes: i64,
    pub range: Range,
}

/// Buffers of known sizes in little memory.
pub struct Packed {
    /// By item.
    pub offsets: Vec<i64>,
    pub total: i64,
    /// Bytes in use at the step that uses most: no layout takes less.
    pub least: i64,
}

impl Packed {
    /// Each buffer goes to the lowest offset where it fits, in several orders: largest first, those that are
    /// large for long first, by first use; then again and again with the buffer that reaches highest before all others.
    /// The search ends when no layout can be smaller (all is in use at one step), or after about [`EFFORT`] comparisons an
    /// order.
    pub fn new(items: &[Item]) -> Packed {
        let least = peak(items);
        let mut orders: [Vec<usize>; 3] = std::array::from_fn(|_| (0..items.len()).collect());
        orders[0].sort_by_key(|&k| -items[k].bytes);
        orders[1].sort_by_key(|&k| {
            let long = (items[k].range.1 - items[k].range.0 + 1) as i64;
            (-items[k].bytes.saturating_mul(long), -items[k].bytes)
        });
        orders[2].sort_by_key(|&k| (items[k].range.0, -items[k].bytes));
        let mut best: Option<(i64, Vec<i64>)> = None;
        let rounds = (EFFORT / (items.len() * items.len()).max(1)).min(200);
        for mut order in orders.into_iter().take(if rounds == 0 { 1 } else { 3 }) {
            for _ in 0..=rounds {
                let (total, offsets) = place(items, &order);
                let top = order.iter().position(|&k| offsets[k] + items[k].bytes == total);
                if best.as_ref().is_none_or(|(t, _)| total < *t) {
                    best = Some((total, offsets));
                }
                if best.as_ref().is_some_and(|(t, _)| *t <= least) {
                    break;
                }
                match top {
                    Some(at) if at > 0 => order[..=at].rotate_right(1),
                    _ => break,
                }
            }
        }
        let (total, offsets) = best.unwrap_or_default();
        Packed { offsets, total, least }
    }
}

/// Bytes in use at the step that uses most: no layout takes less.
fn peak(items: &[Item]) -> i64 {
    let mut changes: Vec<(usize, i64)> = vec![];
    for item in items {
        changes.push((item.range.0, item.bytes));
        changes.push((item.range.1 + 1, -item.bytes));
    }
    // What ends before a step makes room for what begins there.
    changes.sort();
    let (mut now, mut most) = (0, 0);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    most
}

/// The total, and the offset of each item, when they are placed in this order.
fn place(items: &[Item], order: &[usize]) -> (i64, Vec<i64>) {
    let mut offsets = vec![0; items.len()];
    let mut total = 0;
    let mut busy: Vec<(i64, i64)> = vec![];
    for (count, &k) in order.iter().enumerate() {
        let item = &items[k];
        let together = order[..count].iter().filter(|&&j| overlap(items[j].range, item.range));
        busy.clear();
        busy.extend(together.map(|&j| (offsets[j], offsets[j] + items[j].bytes)));
        busy.sort_unstable();
        let mut offset = 0;
        for &(low, high) in &busy {
            if offset + item.bytes <= low {
                break;
            }
            offset = offset.max(high);
        }
        offsets[k] = offset;
        total = total.max(offset + item.bytes);
    }
    (total, offsets)
}

struct Slot {
    size: PrimExpr,
    users: Vec<Range>,
    members: Vec<usize>,
}

/// Symbolic sizes: slots shared by buffers whose lives do not overlap.
fn share(n: usize, live: &[usize], sizes: &[PrimExpr], ranges: &[Option<Range>], facts: &mut dyn ShapeFacts) -> Layout {
    let mut slots: Vec<Slot> = vec![];
    for &i in live {
        let Some(range) = ranges[i] else { continue };
        let mut chosen = None;
        for (k, slot) in slots.iter().enumerate() {
            if slot.users.iter().any(|&u| overlap(u, range)) {
                continue;
            }
            if slot.size == sizes[i] {
                chosen = Some((k, false));
                break;
            }
            if chosen.is_none() && facts.prove(&sizes[i].clone().le(slot.size.clone())) == Answer::Yes {
                chosen = Some((k, false));
            } else if chosen.is_none() && facts.prove(&slot.size.clone().le(sizes[i].clone())) == Answer::Yes {
                chosen = Some((k, true));
            }
        }
        match chosen {
            Some((k, grow)) => {
                if grow {
                    slots[k].size = sizes[i].clone();
                }
                slots[k].users.push(range);
                slots[k].members.push(i);
            }
            None => slots.push(Slot { size: sizes[i].clone(), users: vec![range], members: vec![i] }),
        }
    }
    let mut offsets = vec![None; n];
    let mut total = PrimExpr::i64(0);
    for s in slots {
        for m in s.members {
            offsets[m] = Some(total.clone());
        }
        total = facts.simplify(&(total + s.size));
    }
    Layout { offsets, total, regions: vec![], region_of: vec![] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The begin of a MobileNet: largest first, the third buffer comes to lie above the first two.
    #[test]
    fn no_more_than_what_is_in_use_at_once() {
        let sizes = [27_648, 18_432, 18_432, 36_864].map(PrimExpr::i64);
        let ranges: Vec<Option<Range>> = (1..=4).map(|i| Some((i, i + 1))).collect();
        let layout = pack(4, &[0, 1, 2, 3], &sizes, &ranges);
        assert_eq!(layout.total.as_int(), Some(55_296));
        let at = |i: usize| layout.offsets[i].as_ref().and_then(PrimExpr::as_int).unwrap();
        for i in 0..3 {
            let end = |i: usize| at(i) + sizes[i].as_int().unwrap();
            assert!(end(i) <= at(i + 1) || end(i + 1) <= at(i), "{i}");
        }
    }
}
