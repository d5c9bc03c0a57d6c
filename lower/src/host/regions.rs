//! Placing buffers in several memories, the fastest first: those with the most accesses a byte get the fast ones.
//!
//! Sizes and offsets are those at the dims' upper bounds. What a call brings as its workspace is then an array with an
//! address and a size for each memory.

use super::memory::{align_up, overlap, pack, timeline, Layout};
use super::value::*;
use relax_ir::prim::PrimKind;
use relax_ir::tir::{PrimFunc, Stmt, StmtKind};
use relax_ir::{Diagnostic, PrimExpr, Span, Var};
use std::collections::HashMap;

/// A memory: its name and how much of it there is.
#[derive(Clone, Debug)]
pub struct Region {
    pub name: String,
    pub bytes: u64,
}

/// Lays out the workspace buffers of `steps` in `regions`. `upper` gives the value of a size at the dims' upper bounds.
///
/// # Errors
/// A size without a bound; no region has room for a buffer.
pub fn layout(
    bufs: &[Buf],
    steps: &[Step],
    regions: &[Region],
    kernels: &dyn Fn(&str) -> Option<PrimFunc>,
    upper: &dyn Fn(&PrimExpr) -> Option<u64>,
    pointer: u32,
) -> Result<Layout, Diagnostic> {
    let (names, ranges) = timeline(bufs, steps);
    let mut accesses = vec![0u64; bufs.len()];
    count(steps, kernels, upper, &mut accesses);
    for (i, b) in bufs.iter().enumerate() {
        if let Some(of) = b.inside() {
            accesses[of.0] = accesses[of.0].saturating_add(accesses[i]);
        }
    }
    let mut order: Vec<usize> = vec![];
    let mut sizes = vec![PrimExpr::i64(0); bufs.len()];
    for (i, b) in bufs.iter().enumerate() {
        let (Place::Workspace, Some(range)) = (&b.place, ranges[i]) else { continue };
        let made = names.get(range.0.saturating_sub(1)).map_or("", String::as_str);
        let Some(bytes) = upper(&align_up(b.bytes.clone())) else {
            let m = format!("--region: the size of what {made} makes has no bound");
            return Err(Diagnostic::error("region", Span::NONE, m).help("give each dim an upper bound: --dim n=1..64"));
        };
        sizes[i] = PrimExpr::i64(bytes as i64);
        order.push(i);
    }
    let size = |i: usize| sizes[i].as_int().unwrap_or(0).max(1) as u64;
    // The most accesses a byte first: compared by products, exactly.
    order.sort_by(|&a, &b| {
        let (x, y) = (u128::from(accesses[a]) * u128::from(size(b)), u128::from(accesses[b]) * u128::from(size(a)));
        y.cmp(&x).then(a.cmp(&b))
    });
    let mut members: Vec<Vec<usize>> = vec![vec![]; regions.len()];
    let mut layouts: Vec<Option<Layout>> = regions.iter().map(|_| None).collect();
    for &i in &order {
        let mut placed = false;
        for (r, region) in regions.iter().enumerate() {
            members[r].push(i);
            let l = pack(bufs.len(), &members[r], &sizes, &ranges);
            if l.total.as_int().is_some_and(|n| n as u64 <= region.bytes) {
                layouts[r] = Some(l);
                placed = true;
                break;
            }
            members[r].pop();
        }
        if !placed {
            return Err(full(i, regions, &members, &sizes, &ranges, &names));
        }
    }
    let mut offsets = vec![None; bufs.len()];
    let mut region_of = vec![0; bufs.len()];
    let mut used = vec![];
    for (r, l) in layouts.iter().enumerate() {
        for &i in &members[r] {
            offsets[i] = l.as_ref().and_then(|l| l.offsets[i].clone());
            region_of[i] = r;
        }
        let bytes = l.as_ref().and_then(|l| l.total.as_int()).unwrap_or(0) as u64;
        used.push(Region { name: regions[r].name.clone(), bytes });
    }
    let total = PrimExpr::i64(i64::from(2 * pointer) * regions.len() as i64);
    Ok(Layout { offsets, total, regions: used, region_of })
}

/// The error for buffer `i`: who else is in use meanwhile.
fn full(
    i: usize,
    regions: &[Region],
    members: &[Vec<usize>],
    sizes: &[PrimExpr],
    ranges: &[Option<(usize, usize)>],
    names: &[String],
) -> Diagnostic {
    let size = |i: usize| sizes[i].as_int().unwrap_or(0);
    let made = |i: usize| {
        let first = ranges[i].map_or(0, |r| r.0);
        names.get(first.saturating_sub(1)).map_or("", String::as_str)
    };
    let m = format!("no region has room for {} bytes made by {}", size(i), made(i));
    let mut d = Diagnostic::error("region", Span::NONE, m);
    for (r, region) in regions.iter().enumerate() {
        let meanwhile = |j: &&usize| matches!((ranges[**j], ranges[i]), (Some(a), Some(b)) if overlap(a, b));
        let mut list: Vec<usize> = members[r].iter().filter(meanwhile).copied().collect();
        list.sort_by_key(|&j| (-size(j), j));
        let taken: i64 = list.iter().map(|&j| size(j)).sum();
        d = d.note(format!("{} has {} bytes, {taken} of them in use meanwhile", region.name, region.bytes));
        for &j in list.iter().take(4) {
            d = d.note(format!("  {} bytes made by {}", size(j), made(j)));
        }
    }
    d.help("larger regions, or lower bounds of the dims with --dim")
}

/// Adds how often each buffer's elements are read and written.
fn count(
    steps: &[Step],
    kernels: &dyn Fn(&str) -> Option<PrimFunc>,
    upper: &dyn Fn(&PrimExpr) -> Option<u64>,
    out: &mut [u64],
) {
    for s in steps {
        match s {
            Step::Kernel { kernel, buffers, dims, .. } => {
                let Some(f) = kernels(kernel) else { continue };
                let values: HashMap<Var, PrimExpr> =
                    crate::kernel_dims(&f).into_iter().zip(dims.iter().cloned()).collect();
                let mut by_buffer: HashMap<u32, u64> = HashMap::new();
                walk(&f.body, 1, &|e| upper(&e.substitute(&values)).unwrap_or(1), &mut by_buffer);
                for (b, id) in f.buffers().zip(buffers) {
                    let n = by_buffer.get(&b.id()).copied().unwrap_or(0);
                    out[id.0] = out[id.0].saturating_add(n);
                }
            }
            Step::Copy { from, to, bytes } => {
                for id in [from, to] {
                    out[id.0] = out[id.0].saturating_add(upper(bytes).unwrap_or(1));
                }
            }
            Step::If { then, otherwise, .. } => {
                count(then, kernels, upper, out);
                count(otherwise, kernels, upper, out);
            }
            Step::Write { .. } | Step::Read { .. } | Step::Check { .. } => {}
        }
    }
}

/// Loads and stores of `s`, each `times` its loops' extents.
fn walk(s: &Stmt, times: u64, value: &dyn Fn(&PrimExpr) -> u64, out: &mut HashMap<u32, u64>) {
    let mut add = |id: u32, n: u64| {
        let slot = out.entry(id).or_insert(0);
        *slot = slot.saturating_add(n);
    };
    if let StmtKind::Store { buffer, .. } = s.kind() {
        add(buffer.id(), times);
    }
    for e in s.exprs() {
        e.walk(&mut |e| {
            if let PrimKind::BufferLoad(b, _) = e.kind() {
                add(b.id(), times);
            }
        });
    }
    let inner = match s.kind() {
        StmtKind::For { extent, .. } => times.saturating_mul(value(extent).max(1)),
        _ => times,
    };
    for c in s.children() {
        walk(c, inner, value, out);
    }
}
