//! Attention: products of rows, what is computed of each row of their result, and products of that, by bands of rows. A band
//! goes through all of them before the next one begins.
//!
//! What they hand each other, the scores of all rows by all keys, is then some rows of one head that stay in the second-level
//! cache, and is never there as a whole.

mod copies;

use super::contract;
use super::emit::{Emit, Res};
use super::fuse::Item;
use super::poly::Poly;
use super::rows::{accesses, Rows};
use super::stage::{Axis, Stage};
use super::SchedOptions;
use relax_ir::prim::PrimKind;
use relax_ir::tir::Buffer;
use relax_ir::{DType, PrimExpr, Span, Var};
use std::collections::HashMap;

/// Bytes of what they hand each other that are worth it: less stays in the second-level cache as a whole.
const LEAST: i64 = if cfg!(test) { 8 << 10 } else { 256 << 10 };

/// Bytes of the rows of a band: beside what they are multiplied with they stay in the second-level cache.
const BAND: i64 = if cfg!(test) { 16 << 10 } else { 192 << 10 };

/// Rows of a band are multiples of what register tiles have, and so many at least; where a row's length is open, so many, as keys
/// and values are copied for each band.
const EVEN: i64 = 12;
const FEWEST: i64 = 24;
const OPEN: i64 = 96;

/// Stages by bands of rows.
pub struct Attention {
    /// Loops around the bands: batches and heads.
    outer: Vec<Axis>,
    /// All rows; its variable is the first row of a band.
    row: Axis,
    /// Rows of a band.
    rows: i64,
    /// What is copied before the first band.
    copies: Vec<Stage>,
    /// What is computed of a band, and of the rows behind the last one; stages that run by themselves have no axes around them.
    whole: Vec<Rows>,
    rest: Vec<Rows>,
    /// Points, each times the steps of its reduction.
    pub steps: PrimExpr,
}

/// Stages, and their variables for the axes that all members have.
struct Member {
    part: Rows,
    lead: Vec<Option<Var>>,
}

/// Replaces neighbouring items around rows that are normalised. Of `local` buffers that nothing else uses a band of rows is
/// left.
pub fn take(items: &mut Vec<Item>, local: &mut Vec<Buffer>, o: &SchedOptions) {
    let mut at = 0;
    while at < items.len() {
        if let Some((begin, members)) = around(items, at, local) {
            let count = members.len();
            if let Some(a) = Attention::new(members, &items[..begin], &items[begin + count..], local, o) {
                items.splice(begin..begin + count, [Item::Attention(Box::new(a))]);
                at = begin;
            }
        }
        at += 1;
    }
    local.retain(|b| items.iter().any(|i| i.reads(b) || i.writes(b)));
}

/// The rows at `at`, the products whose results they read and the stages that read theirs; the first one's place.
fn around(items: &[Item], at: usize, local: &[Buffer]) -> Option<(usize, Vec<Member>)> {
    let Item::Rows(rows) = &items[at] else { return None };
    if !rows.stages.iter().any(|s| !s.accs.is_empty()) {
        return None;
    }
    let lead = rows.axes.iter().map(|a| Some(a.var.clone())).collect();
    let mut members = vec![Member { part: rows.clone(), lead }];
    let mut begin = at;
    while let Some(Item::Stage(s)) = begin.checked_sub(1).map(|i| &items[i]) {
        let [out] = s.outs.as_slice() else { break };
        let b = &out.buffer;
        let inside = local.contains(b) && members.iter().any(|m| m.part.reads(b));
        let lead = leading(s, &rows.axes, &[b]).filter(|_| inside && is_plain(s) && !s.accs.is_empty());
        let Some(lead) = lead.filter(|_| members.iter().all(|m| follows(m, b) && !m.part.writes(b))) else { break };
        members.insert(0, Member { part: alone(s), lead });
        begin -= 1;
    }
    let mut end = at + 1;
    while let Some(Item::Stage(s)) = items.get(end) {
        let made: Vec<&Buffer> =
            local.iter().filter(|b| s.reads(b) && members.iter().any(|m| m.part.writes(b))).collect();
        let fresh = s.outs.iter().all(|o| !members.iter().any(|m| m.part.reads(&o.buffer) || m.part.writes(&o.buffer)));
        let lead = leading(s, &rows.axes, &made).filter(|_| !made.is_empty() && fresh && is_plain(s));
        let Some(lead) = lead else { break };
        members.push(Member { part: alone(s), lead });
        end += 1;
    }
    (members.len() > 1).then_some((begin, members))
}

fn is_plain(s: &Stage) -> bool {
    s.window.is_none()
}

fn alone(s: &Stage) -> Rows {
    Rows { axes: vec![], stages: vec![s.clone()] }
}

/// The axes of a stage along which it walks the leading dims of these buffers, where all accesses agree.
fn leading(s: &Stage, axes: &[Axis], buffers: &[&Buffer]) -> Option<Vec<Option<Var>>> {
    let mut found: Option<Vec<Option<Var>>> = None;
    for (_, indices) in accesses(s).iter().filter(|(b, _)| buffers.contains(&b)) {
        let own = |(i, all): (&PrimExpr, &Axis)| match i.as_var() {
            Some(v) => s.spatial.iter().any(|a| a.var == *v && a.extent == all.extent).then(|| Some(v.clone())),
            None => (i.is_int(0) && all.len() == Some(1)).then_some(None),
        };
        let all: Vec<Option<Var>> = indices.iter().zip(axes).map(own).collect::<Option<_>>()?;
        let twice = |(i, v): (usize, &Option<Var>)| v.is_some() && all[..i].contains(v);
        if all.len() < axes.len() || all.iter().enumerate().any(twice) || found.as_ref().is_some_and(|f| *f != all) {
            return None;
        }
        found = Some(all);
    }
    found
}

/// Whether an item reads of a buffer its own rows alone.
fn follows(m: &Member, b: &Buffer) -> bool {
    let own = |(other, indices): &(Buffer, Vec<PrimExpr>)| {
        let mut pairs = indices.iter().zip(&m.lead);
        other != b
            || indices.len() >= m.lead.len()
                && pairs.all(|(i, v)| v.as_ref().map_or(i.is_int(0), |v| i.as_var() == Some(v)))
    };
    m.part.stages.iter().flat_map(accesses).all(|access| own(&access))
}

impl Attention {
    fn new(
        mut members: Vec<Member>,
        before: &[Item],
        behind: &[Item],
        local: &mut Vec<Buffer>,
        o: &SchedOptions,
    ) -> Option<Attention> {
        let axes = members.iter().find(|m| !m.part.axes.is_empty())?.part.axes.clone();
        let count = axes.len();
        let elements = |dims: &[PrimExpr]| dims.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_int()?));
        let outside = |b: &Buffer| before.iter().chain(behind).any(|i| i.reads(b) || i.writes(b));
        // What one of them makes and another one reads.
        let handed = |b: &Buffer| {
            let writer = members.iter().position(|m| m.part.writes(b));
            writer.is_some_and(|w| members.iter().enumerate().any(|(i, m)| i != w && m.part.reads(b)))
        };
        let between: Vec<usize> = (0..local.len()).filter(|i| handed(&local[*i]) && !outside(&local[*i])).collect();
        if !between.iter().all(|i| members.iter().all(|m| follows(m, &local[*i]))) {
            return None;
        }
        let all = |b: &Buffer| Some(elements(&b.shape)?.saturating_mul(b.dtype().bytes() as i64));
        let large = |i: &&usize| all(&local[**i]).is_none_or(|n| n >= LEAST);
        let row = axes.last().filter(|r| r.len().is_none_or(|n| n >= FEWEST))?.clone();
        between.iter().find(large)?;
        let steps = members.iter().fold(PrimExpr::i64(0), |n, m| n + points(&m.part));
        // Rows that are normalised where they are take no other room.
        let mut instead: Vec<(Buffer, Buffer)> = vec![];
        for (n, i) in between.iter().enumerate() {
            let b = &local[*i];
            let over = between[..n].iter().map(|i| &local[*i]).find(|a| {
                a.shape == b.shape
                    && a.dtype() == b.dtype()
                    && !instead.iter().any(|(_, to)| to == *a)
                    && members.iter().all(|m| !m.part.reads(a) || m.part.writes(a) || takes_over(m, a, b))
            });
            instead.extend(over.map(|a| (b.clone(), a.clone())));
        }
        for m in &mut members {
            for (b, a) in &instead {
                m.part.stages.iter_mut().for_each(|s| replace(s, b, a));
            }
        }
        let rooms: Vec<usize> =
            between.iter().copied().filter(|i| !instead.iter().any(|(b, _)| *b == local[*i])).collect();
        let line =
            |i: &usize| Some(elements(&local[*i].shape[count..])?.saturating_mul(local[*i].dtype().bytes() as i64));
        let lines: Option<i64> = rooms.iter().map(line).try_fold(0i64, |n, b| Some(n.saturating_add(b?)));
        let rows = match (lines, row.len()) {
            (None, _) => OPEN,
            (Some(line), all) => {
                let most = (BAND / line.max(1)).max(FEWEST) / EVEN * EVEN;
                let bands = all.map_or(1, |n| (n + most - 1) / most);
                let even = all.map_or(OPEN.min(most), |n| (n + bands - 1) / bands);
                match bands {
                    1 => even,
                    _ => (even + EVEN - 1) / EVEN * EVEN,
                }
            }
        };
        let rows = row.len().map_or(rows, |n| rows.min(n));
        let mut copies = vec![];
        let several = row.len().is_some_and(|n| n > rows);
        for m in members.iter_mut().filter(|m| several && m.part.axes.is_empty()) {
            let Some(own) = m.lead.last().cloned().flatten() else { continue };
            for s in &mut m.part.stages {
                if let Some((b, stages)) = copies::copied(s, &own, rows, local, o) {
                    local.push(b);
                    copies.extend(stages.into_iter().map(|s| (s, m.lead.clone())));
                }
            }
        }
        let mut places: Vec<(Buffer, Buffer)> = vec![];
        for i in &rooms {
            let b = &mut local[*i];
            let shape = [vec![PrimExpr::i64(rows)], b.shape[count..].to_vec()].concat();
            let room = Buffer::new(&b.name, shape, b.dtype());
            places.push((std::mem::replace(b, room.clone()), room));
        }
        // A name for each of the outer axes, and one for the first row of a band.
        let named = |a: &Axis| Axis { var: Var::new(a.var.name(), DType::I64), extent: a.extent.clone() };
        let outer: Vec<Axis> = axes[..count - 1].iter().map(named).collect();
        let row = Axis { var: Var::new("band", DType::I64), extent: row.extent };
        let names: Vec<PrimExpr> = outer.iter().chain([&row]).map(|a| a.var.expr()).collect();
        let band = |n: PrimExpr| members.iter().map(|m| m.band(&names, &n, &places)).collect::<Vec<Rows>>();
        let named = |(mut s, lead): (Stage, Vec<Option<Var>>)| {
            s.substitute(&lead.into_iter().zip(names.clone()).filter_map(|(v, name)| Some((v?, name))).collect());
            s
        };
        let copies = copies.into_iter().map(named).collect();
        let left = match row.len() {
            Some(n) => PrimExpr::i64(n % rows),
            None => row.extent.clone() - row.extent.clone().floor_div(rows) * rows,
        };
        let rest = if left.is_int(0) { vec![] } else { band(left) };
        let whole = band(PrimExpr::i64(rows));
        Some(Attention { outer, row, rows, copies, whole, rest, steps })
    }

    /// Bytes that its products copy to, where they do; scalar loops copy nothing.
    pub fn scratch(&self, o: &SchedOptions) -> Option<PrimExpr> {
        if o.vector_bytes < 16 {
            return None;
        }
        let apart = self.whole.iter().chain(&self.rest).filter(|r| r.axes.is_empty());
        let all = apart.flat_map(|r| &r.stages).filter_map(|s| contract::scratch(s, o));
        all.reduce(|a, b| if a == b { a } else { a.max(b) })
    }

    pub fn emit(&self, e: &mut Emit, scratch: Option<&Var>, span: Span, o: &SchedOptions) -> Res<()> {
        for a in self.outer.iter().chain([&self.row]) {
            let extent = Poly::of(&a.extent, &e.ranges);
            e.ranges.add_loop(&a.var, Poly::default(), extent);
        }
        contract::outside_loops(e, &self.outer, &mut |e| {
            let end = Poly::of(&self.row.extent, &e.ranges);
            let end = e.index(&end)?;
            let end = e.hoist(end);
            let whole = e.whole(&PrimExpr::i64(0), &end, self.rows);
            let list = |e: &mut Emit, all: &[Rows]| all.iter().try_for_each(|r| part(e, r, scratch, span, o));
            self.copies.iter().try_for_each(|s| super::stage(e, s, None, span, o))?;
            let band = self.row.var.expr();
            // One loop, of which threads may take parts.
            e.for_loop(&self.row.var, PrimExpr::i64(0), end.clone(), self.rows, |e| match self.rest.is_empty() {
                true => list(e, &self.whole),
                false => e.if_then(band.lt(whole), |e| list(e, &self.whole), |e| list(e, &self.rest)),
            })
        })
    }

    pub fn reads(&self, b: &Buffer) -> bool {
        self.whole.iter().any(|r| r.reads(b)) || self.copies.iter().any(|s| s.reads(b))
    }

    pub fn writes(&self, b: &Buffer) -> bool {
        self.whole.iter().any(|r| r.writes(b)) || self.copies.iter().any(|s| s.writes(b))
    }
}

fn part(e: &mut Emit, r: &Rows, scratch: Option<&Var>, span: Span, o: &SchedOptions) -> Res<()> {
    match r.axes.is_empty() {
        true => r.stages.iter().try_for_each(|s| super::stage(e, s, scratch, span, o)),
        false => r.emit(e, span, o),
    }
}

fn points(r: &Rows) -> PrimExpr {
    super::size(&r.axes) * r.stages.iter().fold(PrimExpr::i64(0), |n, s| n + super::points(s))
}

/// Whether what stages, which read `a`, make of a row may lie where that row was: it is read no more once `b` is written, but
/// for the element that takes its place.
fn takes_over(m: &Member, a: &Buffer, b: &Buffer) -> bool {
    let r = &m.part;
    let Some(first) = r.stages.iter().position(|s| s.writes(b)) else { return false };
    let s = &r.stages[first];
    let own = |indices: &[PrimExpr]| s.outs.iter().filter(|o| o.buffer == *b).all(|o| o.indices == indices);
    s.accs.is_empty()
        && accesses(s).iter().all(|(x, indices)| x != a || own(indices))
        && !r.stages[first + 1..].iter().any(|s| s.reads(a))
}

/// The stage with another buffer of the same shape.
fn replace(s: &mut Stage, from: &Buffer, to: &Buffer) {
    s.map_exprs(&mut |e| moved(e, from, &|indices| PrimExpr::load(to, indices.to_vec())));
    s.outs.iter_mut().filter(|o| o.buffer == *from).for_each(|o| o.buffer = to.clone());
}

fn moved(e: &PrimExpr, from: &Buffer, load: &dyn Fn(&[PrimExpr]) -> PrimExpr) -> PrimExpr {
    let e = e.map_children(&mut |c| moved(c, from, load));
    match e.kind() {
        PrimKind::BufferLoad(b, at) if b == from => load(at),
        _ => e,
    }
}

impl Member {
    /// The stages for so many rows from the first one of a band on; `names` are its place among all rows. The buffers of
    /// `places` have rows of a band alone.
    fn band(&self, names: &[PrimExpr], count: &PrimExpr, places: &[(Buffer, Buffer)]) -> Rows {
        let Rows { axes, mut stages } = self.part.clone();
        let row = Var::new("row", DType::I64);
        let lead = names.len();
        let own = |indices: &[PrimExpr]| [vec![row.expr()], indices[lead..].to_vec()].concat();
        let mut map = HashMap::new();
        for (i, (v, name)) in self.lead.iter().zip(names).enumerate() {
            let at = if i + 1 == lead { name.clone() + row.expr() } else { name.clone() };
            map.extend(v.clone().map(|v| (v, at)));
        }
        let axis = Axis { var: row.clone(), extent: count.clone() };
        let is_lead = |a: &Axis| self.lead.contains(&Some(a.var.clone()));
        for s in &mut stages {
            for (from, to) in places {
                s.map_exprs(&mut |e| moved(e, from, &|indices| PrimExpr::load(to, own(indices))));
                for o in s.outs.iter_mut().filter(|o| o.buffer == *from) {
                    o.indices = own(&o.indices);
                    o.buffer = to.clone();
                }
            }
            s.substitute(&map);
            if let Some(at) = s.spatial.iter().position(|a| self.lead.last() == Some(&Some(a.var.clone()))) {
                s.spatial[at] = axis.clone();
            }
            s.spatial.retain(|a| !is_lead(a));
        }
        Rows { axes: if axes.is_empty() { vec![] } else { vec![axis] }, stages }
    }
}

#[cfg(test)]
mod tests;
