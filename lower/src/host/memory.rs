//! Placing buffers in the workspace by liveness.
//!
//! Sizes are closed forms in the entry's shape variables. When all are numbers, buffers are packed by a best-fit over
//! offsets, largest first; else buffers of equal (or provably not larger) size share a slot and slots are laid end
//! to end. Every offset is a multiple of [`ALIGN`].

use super::regions::Region;
use super::value::*;
use relax_ir::op::{Answer, ShapeFacts};
use relax_ir::PrimExpr;

/// Alignment of every buffer in the workspace, in bytes.
pub const ALIGN: i64 = 64;

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

/// Lays out the workspace buffers of `steps`.
pub fn layout(bufs: &[Buf], steps: &[Step], facts: &mut dyn ShapeFacts) -> Layout {
    let mut ranges: Vec<Option<Range>> = vec![None; bufs.len()];
    let mut at = 0;
    mark(steps, &mut at, &mut ranges);
    let live: Vec<usize> =
        (0..bufs.len()).filter(|&i| matches!(bufs[i].place, Place::Workspace) && ranges[i].is_some()).collect();
    let sizes: Vec<PrimExpr> = bufs.iter().map(|b| align_up(b.bytes.clone())).collect();
    if live.iter().all(|&i| sizes[i].as_int().is_some()) {
        pack(bufs.len(), &live, &sizes, &ranges)
    } else {
        share(bufs.len(), &live, &sizes, &ranges, facts)
    }
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
    mark(steps, &mut 0, &mut ranges);
    let mut list = vec![];
    names(steps, &mut list);
    (list, ranges)
}

/// `bytes` rounded up to [`ALIGN`].
pub fn align_up(bytes: PrimExpr) -> PrimExpr {
    (bytes + PrimExpr::i64(ALIGN - 1)).floor_div(PrimExpr::i64(ALIGN)) * PrimExpr::i64(ALIGN)
}

fn mark(steps: &[Step], at: &mut usize, ranges: &mut [Option<Range>]) {
    for s in steps {
        *at += 1;
        let mut touch = |b: BufId| {
            let r = ranges[b.0].get_or_insert((*at, *at));
            r.1 = *at;
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
                mark(then, at, ranges);
                mark(otherwise, at, ranges);
            }
        }
    }
}

pub fn overlap(a: Range, b: Range) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

/// Numbers only: largest first, each at the lowest offset where it fits.
pub fn pack(n: usize, live: &[usize], sizes: &[PrimExpr], ranges: &[Option<Range>]) -> Layout {
    let size = |i: usize| sizes[i].as_int().unwrap_or(0);
    let mut order = live.to_vec();
    order.sort_by_key(|&i| (-size(i), i));
    let mut placed: Vec<(usize, i64)> = vec![];
    let mut offsets = vec![None; n];
    let mut total = 0;
    for i in order {
        let mut busy: Vec<(i64, i64)> = placed
            .iter()
            .filter(|(j, _)| match (ranges[*j], ranges[i]) {
                (Some(a), Some(b)) => overlap(a, b),
                _ => false,
            })
            .map(|&(j, o)| (o, o + size(j)))
            .collect();
        busy.sort();
        let mut offset = 0;
        for (lo, hi) in busy {
            if offset + size(i) <= lo {
                break;
            }
            offset = offset.max(hi);
        }
        placed.push((i, offset));
        total = total.max(offset + size(i));
        offsets[i] = Some(PrimExpr::i64(offset));
    }
    Layout { offsets, total: PrimExpr::i64(total), regions: vec![], region_of: vec![] }
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
