//! Stages over the same rows, as softmax and the norms have them: all of them run for one row before the next row begins.
//!
//! What they hand each other is then a row that stays in the first-level cache, instead of a tensor that goes through
//! memory once for each stage, and takes workspace.

use super::emit::{Emit, Res};
use super::fuse::{sources, Item};
use super::map::elementwise;
use super::poly::Poly;
use super::reduce::reduction;
use super::stage::{Axis, Stage};
use super::SchedOptions;
use relax_ir::prim::PrimKind;
use relax_ir::tir::Buffer;
use relax_ir::{PrimExpr, Span, Var};
use std::collections::HashMap;

/// Elements from which a row is worth loops of its own: shorter ones are computed several at a time.
const LEAST_ROW: i64 = 64;
/// Elements from which the rows together leave the first-level cache, to which they go where stages hand each other rows.
const LEAST: i64 = 1 << 12;
/// Elements from which reading the same rows again, from beyond the first-level cache, is dear.
const LARGE: i64 = 1 << 13;

/// Stages over the same leading axes, which are no axes of theirs any more.
#[derive(Clone)]
pub struct Rows {
    pub axes: Vec<Axis>,
    pub stages: Vec<Stage>,
}

impl Rows {
    /// Emits the loops over rows with all stages in them.
    pub fn emit(&self, e: &mut Emit, span: Span, o: &SchedOptions) -> Res<()> {
        let mut rows = self.clone();
        for a in &rows.axes {
            let extent = Poly::of(&a.extent, &e.ranges);
            e.ranges.add_loop(&a.var, Poly::default(), extent);
        }
        rows.merge(e)?;
        level(e, &rows.axes, &rows.stages, span, o)
    }

    /// Joins neighbouring axes of rows that all accesses walk as one: threads share the outermost loop.
    fn merge(&mut self, e: &mut Emit) -> Res<()> {
        for at in (1..self.axes.len()).rev() {
            let (a, b) = (self.axes[at - 1].clone(), self.axes[at].clone());
            let extent = Poly::of(&b.extent, &e.ranges);
            let mut joined = !self.stages.iter().any(|s| s.exprs().any(|x| plain(x, &a.var) || plain(x, &b.var)));
            for (buffer, indices) in self.stages.iter().flat_map(accesses) {
                let (_, offset) = e.offset(&buffer, &indices)?;
                joined &= match (offset.split(&a.var), offset.split(&b.var)) {
                    (Some((x, _)), Some((y, _))) => x == y.mul(&extent),
                    _ => false,
                };
            }
            if !joined {
                continue;
            }
            let total = Poly::of(&a.extent, &e.ranges).mul(&extent);
            let var = Var::new(b.var.name(), relax_ir::DType::I64);
            e.ranges.add_loop(&var, Poly::default(), total.clone());
            let map = HashMap::from([(a.var.clone(), PrimExpr::i64(0)), (b.var.clone(), var.expr())]);
            self.stages.iter_mut().for_each(|s| s.substitute(&map));
            self.axes.splice(at - 1..=at, [Axis { var, extent: total.expr() }]);
        }
        Ok(())
    }
}

fn level(e: &mut Emit, axes: &[Axis], stages: &[Stage], span: Span, o: &SchedOptions) -> Res<()> {
    let Some((first, rest)) = axes.split_first() else {
        for s in stages {
            e.span = if s.span.is_none() { span } else { s.span };
            match s.accs.is_empty() {
                true => elementwise(e, s, o)?,
                false => reduction(e, s, None, o)?,
            }
        }
        return Ok(());
    };
    let end = Poly::of(&first.extent, &e.ranges);
    let end = e.index(&end)?;
    let end = e.hoist(end);
    e.for_loop(&first.var, PrimExpr::i64(0), end, 1, |e| level(e, rest, stages, span, o))
}

/// What a stage loads and stores.
pub(super) fn accesses(s: &Stage) -> Vec<(Buffer, Vec<PrimExpr>)> {
    let mut all: Vec<(Buffer, Vec<PrimExpr>)> = s.outs.iter().map(|o| (o.buffer.clone(), o.indices.clone())).collect();
    for e in s.exprs() {
        e.walk(&mut |n| {
            if let PrimKind::BufferLoad(b, indices) = n.kind() {
                all.push((b.clone(), indices.to_vec()));
            }
        });
    }
    all
}

/// Whether `v` occurs other than in the indices of a load or of the output.
fn plain(e: &PrimExpr, v: &Var) -> bool {
    match e.kind() {
        PrimKind::Var(w) => w == v,
        PrimKind::BufferLoad(..) => false,
        _ => e.children().iter().any(|c| plain(c, v)),
    }
}

/// Replaces neighbouring stages over the same rows, one of them a reduction of each row. Of `local` buffers that nothing
/// else uses one row is left.
pub fn group(items: &mut Vec<Item>, local: &mut [Buffer]) {
    let mut at = 0;
    while at < items.len() {
        let Some(axes) = row_axes(&items[at]) else {
            at += 1;
            continue;
        };
        let fits = |item: &Item| matches!(item, Item::Stage(s) if over(s, &axes));
        let begin = items[..at].iter().rposition(|i| !fits(i)).map_or(0, |i| i + 1);
        let end = items[at..].iter().position(|i| !fits(i)).map_or(items.len(), |n| at + n);
        let rest = || items[..begin].iter().chain(&items[end..]);
        let own = |b: &Buffer| !rest().any(|i| i.reads(b) || i.writes(b));
        let found = rows(&items[begin..end], &axes).filter(|r| {
            let row = |b: &Buffer| b.shape[axes.len()..].iter().any(|d| !d.is_int(1));
            r.elements().is_some_and(|n| n >= LARGE) || local.iter().any(|b| r.writes(b) && own(b) && row(b))
        });
        let Some(mut rows) = found else {
            at = end;
            continue;
        };
        let own: Vec<bool> = local.iter().map(own).collect();
        local.iter_mut().zip(own).filter(|(_, own)| *own).for_each(|(b, _)| rows.shrink(b));
        items.splice(begin..end, [Item::Rows(rows)]);
        at = begin + 1;
    }
}

/// Where a reduction reads windows of what a stage before it pads, both run for one plane after the other. Of the buffer
/// between them, one of `local`, a plane is left.
pub fn planes(items: &mut Vec<Item>, local: &mut [Buffer]) {
    let mut at = 0;
    while at < items.len() {
        if let Some((first, b, rows)) = padded(items, at) {
            if let Some(b) = local.iter_mut().find(|l| **l == b) {
                let mut rows = rows;
                rows.shrink(b);
                items[at] = Item::Rows(rows);
                items.remove(first);
                continue;
            }
        }
        at += 1;
    }
}

/// The stage that makes what the reduction at `at` reads and nothing else does, the buffer, and both over their planes.
fn padded(items: &[Item], at: usize) -> Option<(usize, Buffer, Rows)> {
    let Item::Stage(s) = &items[at] else { return None };
    let [acc] = s.accs.as_slice() else { return None };
    if s.window.is_some() || s.given.is_some() {
        return None;
    }
    let PrimKind::Binary(_, a, x) = acc.update.kind() else { return None };
    let PrimKind::BufferLoad(b, indices) = x.kind() else { return None };
    let mut users = (0..items.len()).filter(|&i| items[i].reads(b) || items[i].writes(b));
    let (first, only) = (users.next()?, users.next() == Some(at) && users.next().is_none());
    let Item::Stage(pad) = &items[first] else { return None };
    let [out] = pad.outs.as_slice() else { return None };
    let loads_once = accesses(s).iter().filter(|(l, _)| l == b).count() == 1;
    if a.as_var() != Some(&acc.var) || !only || first >= at || !loads_once || !pad.accs.is_empty() || out.buffer != *b {
        return None;
    }
    let stays = |i: &Item| !sources(pad).iter().any(|b| i.writes(b));
    if pad.window.is_some() || pad.given.is_some() || !items[first..at].iter().all(stays) {
        return None;
    }
    let same = |i: &usize| {
        let (p, r) = (&pad.spatial[*i], &s.spatial[*i]);
        let along = |indices: &[PrimExpr], v: &Var| indices.get(*i).and_then(|e| e.as_var()) == Some(v);
        p.extent == r.extent && along(&out.indices, &p.var) && along(indices, &r.var)
    };
    let lead = (0..pad.spatial.len().min(s.spatial.len())).take_while(same).count();
    let all = length(&pad.spatial).is_none_or(|n| n >= LEAST);
    if lead == pad.spatial.len() || length(&pad.spatial[..lead]) == Some(1) || !all {
        return None;
    }
    let axes: Vec<Axis> = (s.spatial[..lead].iter())
        .map(|a| Axis { var: Var::new(a.var.name(), a.var.dtype()), extent: a.extent.clone() })
        .collect();
    let stages = [pad, s].map(|s| {
        let mut s = (**s).clone();
        let map = s.spatial.iter().zip(&axes).map(|(own, a)| (own.var.clone(), a.var.expr())).collect();
        s.spatial.drain(..lead);
        s.substitute(&map);
        s
    });
    Some((first, b.clone(), Rows { stages: stages.into(), axes }))
}

/// The axes of the rows that a stage reduces: all that it has.
fn row_axes(item: &Item) -> Option<Vec<Axis>> {
    let Item::Stage(s) = item else { return None };
    if s.accs.is_empty() || !over(s, &s.spatial) {
        return None;
    }
    let (rows, row) = (length(&s.spatial), length(&s.reduce));
    let worth = rows != Some(1)
        && row.is_none_or(|n| n >= LEAST_ROW)
        && rows.zip(row).is_none_or(|(m, n)| m.saturating_mul(n) >= LEAST);
    worth.then(|| s.spatial.clone())
}

/// Points of these axes, where that is known.
fn length(axes: &[Axis]) -> Option<i64> {
    axes.iter().try_fold(1i64, |n, a| n.checked_mul(a.len()?))
}

/// Whether a stage computes rows over these axes: a reduction of each, or points of each in the order of memory.
fn over(s: &Stage, axes: &[Axis]) -> bool {
    let same = s.spatial.len() >= axes.len() && s.spatial.iter().zip(axes).all(|(a, b)| a.extent == b.extent);
    if !same || s.window.is_some() || s.given.is_some() {
        return false;
    }
    let (lead, rest) = s.spatial.split_at(axes.len());
    let at_rows = |indices: &[PrimExpr]| {
        indices.len() >= lead.len() && indices.iter().zip(lead).all(|(i, a)| i.as_var() == Some(&a.var))
    };
    if !s.outs.iter().all(|o| at_rows(&o.indices)) {
        return false;
    }
    if !s.accs.is_empty() {
        return rest.iter().all(|a| a.len() == Some(1));
    }
    let Some(last) = rest.last() else { return true };
    let long = length(rest).is_none_or(|n| n >= LEAST_ROW);
    let in_order = |(_, indices): &(Buffer, Vec<PrimExpr>)| match indices.split_last() {
        Some((i, others)) => !others.iter().any(|o| o.uses(&last.var)) && (!i.uses(&last.var) || i.as_var().is_some()),
        None => true,
    };
    long && accesses(s).iter().all(in_order)
}

/// These stages for one row after the other, unless one reads what another writes of other rows.
fn rows(items: &[Item], axes: &[Axis]) -> Option<Rows> {
    let all: Vec<&Stage> =
        items.iter().filter_map(|i| if let Item::Stage(s) = i { Some(&**s) } else { None }).collect();
    if all.len() < 2 {
        return None;
    }
    let written: Vec<&Buffer> = all.iter().flat_map(|s| s.outs.iter().map(|o| &o.buffer)).collect();
    // Without a tensor between the stages there is nothing to gain.
    if !all.iter().any(|s| sources(s).iter().any(|b| written.contains(&b))) {
        return None;
    }
    for s in &all {
        let own = |(b, indices): &(Buffer, Vec<PrimExpr>)| {
            !written.contains(&b)
                || indices.len() >= axes.len()
                    && indices.iter().zip(&s.spatial[..axes.len()]).all(|(i, a)| i.as_var() == Some(&a.var))
        };
        if !accesses(s).iter().all(own) {
            return None;
        }
    }
    let axes: Vec<Axis> =
        axes.iter().map(|a| Axis { var: Var::new(a.var.name(), a.var.dtype()), extent: a.extent.clone() }).collect();
    let stages = all.into_iter().map(|s| {
        let mut s = s.clone();
        let map = s.spatial.iter().zip(&axes).map(|(own, a)| (own.var.clone(), a.var.expr())).collect();
        s.spatial.drain(..axes.len());
        s.substitute(&map);
        s
    });
    Some(Rows { stages: stages.collect(), axes })
}

impl Rows {
    /// Of the largest stage, if it is known.
    fn elements(&self) -> Option<i64> {
        let rows = length(&self.axes)?;
        let row = |s: &Stage| length(&s.spatial)?.checked_mul(length(&s.reduce)?);
        let all: Option<Vec<i64>> = self.stages.iter().map(row).collect();
        all?.into_iter().max()?.checked_mul(rows)
    }

    pub fn reads(&self, b: &Buffer) -> bool {
        self.stages.iter().any(|s| s.reads(b))
    }

    pub fn writes(&self, b: &Buffer) -> bool {
        self.stages.iter().any(|s| s.writes(b))
    }

    /// `b` becomes a buffer for one row, where these stages write it.
    fn shrink(&mut self, b: &mut Buffer) {
        if !self.writes(b) {
            return;
        }
        let lead = self.axes.len();
        let inner = |all: &[PrimExpr], none: i64| match &all[lead..] {
            [] => vec![PrimExpr::i64(none)],
            rest => rest.to_vec(),
        };
        let row = Buffer::new(&b.name, inner(&b.shape, 1), b.dtype());
        for s in &mut self.stages {
            s.map_exprs(&mut |e| one_row(e, b, &row, &|indices| inner(indices, 0)));
            for o in s.outs.iter_mut().filter(|o| o.buffer == *b) {
                o.indices = inner(&o.indices, 0);
                o.buffer = row.clone();
            }
        }
        *b = row;
    }
}

fn one_row(e: &PrimExpr, from: &Buffer, to: &Buffer, indices: &dyn Fn(&[PrimExpr]) -> Vec<PrimExpr>) -> PrimExpr {
    let e = e.map_children(&mut |c| one_row(c, from, to, indices));
    match e.kind() {
        PrimKind::BufferLoad(b, at) if b == from => PrimExpr::load(to, indices(at)),
        _ => e,
    }
}
