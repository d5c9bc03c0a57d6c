//! Statements of kernels that move elements and do nothing else, and what strides kernels take.

use super::fuse::Item;
use super::poly::Poly;
use super::stage::{recognise, Stage};
use super::window::Kind;
use super::{plan, Ranges, SchedOptions};
use relax_ir::op::{Answer, ShapeFacts};
use relax_ir::prim::PrimKind;
use relax_ir::sym::Facts;
use relax_ir::tir::{Buffer, PrimFunc, Stmt, StmtKind};
use relax_ir::PrimExpr;

/// `to[to_at + i] = from[from_at + i]` for `i` over `extent`, in as many dims as both have.
pub struct Move {
    /// Which statement of the body.
    pub stmt: usize,
    pub from: Buffer,
    pub to: Buffer,
    pub from_at: Vec<PrimExpr>,
    pub to_at: Vec<PrimExpr>,
    pub extent: Vec<PrimExpr>,
}

/// The statements of a kernel's body.
pub fn statements(f: &PrimFunc) -> &[Stmt] {
    match f.body.kind() {
        StmtKind::Seq(v) => v.as_slice(),
        _ => std::slice::from_ref(&f.body),
    }
}

/// Whether a statement reads or writes `b`.
pub fn touches(s: &Stmt, b: &Buffer) -> bool {
    let item = Item::Stmt(s.clone());
    item.reads(b) || item.writes(b)
}

/// Those that move a part of a parameter to a part of another one, as it is.
pub fn moves(f: &PrimFunc) -> Vec<Move> {
    let plain = |b: &Buffer| f.buffers().any(|p| p == b) && b.strides.is_empty() && b.elem_offset.is_none();
    let found = statements(f).iter().enumerate().filter_map(|(i, s)| one(i, s));
    found.filter(|m| plain(&m.from) && plain(&m.to) && m.from != m.to && m.from.dtype() == m.to.dtype()).collect()
}

fn one(stmt: usize, s: &Stmt) -> Option<Move> {
    let stage = recognise(s).filter(|s| s.accs.is_empty() && s.window.is_none())?;
    let [out] = stage.outs.as_slice() else { return None };
    let PrimKind::BufferLoad(from, index) = out.value.kind() else { return None };
    if index.len() != out.indices.len() {
        return None;
    }
    let mut m =
        Move { stmt, from: from.clone(), to: out.buffer.clone(), from_at: vec![], to_at: vec![], extent: vec![] };
    let mut walked = vec![];
    for (to, from) in out.indices.iter().zip(index.iter()) {
        let ((a, to), (b, from)) = (walk(&stage, to)?, walk(&stage, from)?);
        if a != b || a.is_some_and(|a| walked.contains(&a)) {
            return None;
        }
        walked.extend(a);
        m.extent.push(a.map_or(PrimExpr::i64(1), |a| stage.spatial[a].extent.clone()));
        m.to_at.push(to);
        m.from_at.push(from);
    }
    let all = (0..stage.spatial.len()).all(|a| walked.contains(&a) || stage.spatial[a].extent.is_int(1));
    all.then_some(m)
}

/// The axis that an index walks along, by steps of one, and where it begins.
fn walk(stage: &Stage, e: &PrimExpr) -> Option<(Option<usize>, PrimExpr)> {
    let p = Poly::of(e, &Ranges::default());
    let mut used = (0..stage.spatial.len()).filter(|&i| e.uses(&stage.spatial[i].var));
    let Some(axis) = used.next() else { return Some((None, p.expr())) };
    let (step, rest) = p.split(&stage.spatial[axis].var)?;
    (used.next().is_none() && step.as_const() == Some(1)).then(|| (Some(axis), rest.expr()))
}

/// Whether a statement touches no element that the move writes, as the parts of a concatenation do not.
pub fn apart(s: &Stmt, m: &Move) -> bool {
    if !touches(s, &m.to) {
        return true;
    }
    let Some(stage) = recognise(s) else { return false };
    let [out] = stage.outs.as_slice() else { return false };
    if out.buffer != m.to || stage.reads(&m.to) || out.indices.len() != m.to_at.len() {
        return false;
    }
    let ends_before = |(at, extent): (&PrimExpr, &PrimExpr), other: &PrimExpr| {
        Facts::new().prove(&(at.clone() + extent.clone()).le(other.clone())) == Answer::Yes
    };
    out.indices.iter().zip(&m.to_at).zip(&m.extent).any(|((index, at), extent)| {
        let Some((axis, begin)) = walk(&stage, index) else { return false };
        let own = axis.map_or(PrimExpr::i64(1), |a| stage.spatial[a].extent.clone());
        ends_before((&begin, &own), at) || ends_before((at, extent), &begin)
    })
}

/// Whether the kernel may find parameter `b`, which it takes to be dense, at these strides.
pub fn takes_strides(f: &PrimFunc, b: &Buffer, strides: &[i64]) -> bool {
    if super::is_special(f) || !b.strides.is_empty() || b.elem_offset.is_some() || strides.len() != b.ndim() {
        return false;
    }
    plan(f, &SchedOptions::default()).items.iter().all(|item| match item {
        Item::Stage(s) => match &s.window {
            Some(w) if s.accs.iter().any(|a| super::stage::loads(&a.update, b)) => {
                !matches!(w.kind, Kind::Winograd(_)) && w.with_strides(strides).is_some()
            }
            _ => true,
        },
        Item::Rows(_) | Item::Pool(_) => true,
        Item::Cascade(c) => !c.reads(b),
        Item::Attention(_) => true,
        Item::Stmt(_) => !item.reads(b) && !item.writes(b),
    })
}
