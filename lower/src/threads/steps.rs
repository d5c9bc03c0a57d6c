//! Recurrences: what their steps allow.
//!
//! Each step of a recurrence is a row of segments: products, whose columns are dealt out to the threads (each of which
//! thereby reads its own part of the weights in every step), and what connects them, which the caller's thread does alone.
//! Before the first step and after the last one, too, it works alone. The kernel runs one segment of one step in a call:
//! these are its phases, in order, with the beginning as the first and the end as the last.

use super::split::{loads, mentions, takes_shares, with_workspace, Facts};
use super::{Shared, WHOLE};
use relax_ir::flat::{FlatFunc, FlatStmt};
use relax_ir::prim::Var;
use relax_ir::{DType, PrimExpr};
use std::collections::HashSet;

/// A recurrence in phases.
pub struct Stepped {
    pub func: FlatFunc,
    /// Of the segments of a step: whether it is dealt out.
    pub segments: Vec<bool>,
}

/// A piece of a step.
enum Piece {
    /// A loop over independent parts, cut into shares.
    Loop(FlatStmt),
    /// What is left over behind such a loop: the last share has it.
    Rest(Vec<FlatStmt>),
    /// Statements that run once.
    Once(Vec<FlatStmt>),
}

#[derive(Default)]
struct Segment {
    shared: bool,
    pieces: Vec<Piece>,
    stored: HashSet<Var>,
    loaded: HashSet<Var>,
    /// Names bound inside.
    bound: HashSet<Var>,
}

/// The kernel with the bounds of its share as last parameters; `None` when it is no recurrence whose products can be
/// dealt out.
pub fn split_steps(f: &FlatFunc, s: &Shared) -> Option<Stepped> {
    let (mut f, private) = with_workspace(f, s).filter(|_| takes_shares(f))?;
    let body = std::mem::take(&mut f.body);
    let at = single(&body)?;
    let FlatStmt::For { var: t, begin, end, step: 1, body: step } = &body[at] else { return None };
    if !begin.is_int(0) {
        return None;
    }
    let mut facts = Facts { private, ..Default::default() };
    facts.roots.extend(f.params.iter().map(|p| (p.clone(), vec![p.clone()])));
    // Names that all phases have.
    let mut names = vec![];
    let (mut first, mut last) = (vec![], vec![]);
    for (i, s) in body.iter().enumerate() {
        match s {
            FlatStmt::Let { var, value } if !loads(value) => {
                if var.dtype() == DType::HANDLE {
                    // A piece of the workspace is memory of its own.
                    let root = facts.root(value)?;
                    let piece = root.iter().all(|r| facts.private.contains(r));
                    facts.roots.insert(var.clone(), if piece { vec![var.clone()] } else { root });
                    if piece {
                        facts.private.insert(var.clone());
                    }
                }
                names.push(s.clone());
            }
            FlatStmt::Return(None) => {}
            FlatStmt::For { .. } if i < at => first.push(s.clone()),
            FlatStmt::For { .. } if i > at => last.push(s.clone()),
            _ if i == at => {}
            // A stack slot would not outlive its phase.
            _ => return None,
        }
    }
    let (inner, segments) = segments(step, &mut facts)?;

    let (from, to) = (Var::new("from", DType::I64), Var::new("to", DType::I64));
    let (phase, q) = (Var::new("phase", DType::I64), Var::new("q", DType::I64));
    let count = segments.len() as i64;
    let bind = |var: &Var, value: PrimExpr| FlatStmt::Let { var: var.clone(), value };
    let mut steps = vec![bind(&q, phase.expr() - 1i64), bind(t, q.expr().floor_div(count))];
    steps.extend(inner);
    for (i, segment) in segments.iter().enumerate() {
        let start = Var::new("start", DType::I64);
        let mut then = vec![bind(&start, phase.expr() * WHOLE)];
        for p in &segment.pieces {
            match p {
                Piece::Loop(FlatStmt::For { var, begin, end, step, body }) => {
                    let rounds = (end.clone() - begin.clone() + (*step - 1)).floor_div(*step).max(0i64);
                    let rounds = match (begin.as_int(), end.as_int()) {
                        (Some(b), Some(e)) => PrimExpr::i64(((e - b).max(0) + *step - 1) / *step),
                        _ => rounds,
                    };
                    let bound = |share: &Var| {
                        let round = (rounds.clone() * (share.expr() - start.expr())).floor_div(WHOLE);
                        (begin.clone() + round * *step).min(end.clone())
                    };
                    let (begin, end) = (bound(&from), bound(&to));
                    then.push(FlatStmt::For { var: var.clone(), begin, end, step: *step, body: body.clone() });
                }
                Piece::Rest(list) => then.push(FlatStmt::If {
                    cond: (to.expr() - start.expr()).ge(PrimExpr::i64(WHOLE)),
                    then: list.clone(),
                    otherwise: vec![],
                }),
                Piece::Loop(s) => then.push(s.clone()),
                Piece::Once(list) => then.extend(list.iter().cloned()),
            }
        }
        let cond = (q.expr() - t.expr() * count).eq(PrimExpr::i64(i as i64));
        steps.push(FlatStmt::If { cond, then, otherwise: vec![] });
    }
    let after = end.clone().max(0i64) * count + 1i64;
    f.body = names;
    f.body.push(bind(&phase, from.expr().floor_div(WHOLE)));
    let when = |cond: PrimExpr, then: Vec<FlatStmt>| FlatStmt::If { cond, then, otherwise: vec![] };
    f.body.push(when(phase.expr().eq(PrimExpr::i64(0)), first));
    let inside = vec![when(phase.expr().lt(after.clone()), steps)];
    f.body.push(when(phase.expr().ge(PrimExpr::i64(1)), inside));
    f.body.push(when(phase.expr().eq(after), last));
    f.params.extend([from, to]);
    let segments = segments.iter().map(|s| s.shared).collect();
    Some(Stepped { func: f, segments })
}

pub(super) fn is_heavy(s: &FlatStmt) -> bool {
    fn loops(s: &FlatStmt) -> bool {
        match s {
            FlatStmt::For { .. } => true,
            FlatStmt::If { then, otherwise, .. } => then.iter().chain(otherwise).any(loops),
            _ => false,
        }
    }
    matches!(s, FlatStmt::For { body, .. } if body.iter().any(loops))
}

/// The one loop whose body has loops of loops.
pub(super) fn single(body: &[FlatStmt]) -> Option<usize> {
    let steps = |s: &FlatStmt| matches!(s, FlatStmt::For { body, .. } if body.iter().any(is_heavy));
    let mut found = (0..body.len()).filter(|i| steps(&body[*i]));
    let at = found.next()?;
    found.next().is_none().then_some(at)
}

/// The names that all segments of a step have, and the segments.
fn segments(step: &[FlatStmt], facts: &mut Facts) -> Option<(Vec<FlatStmt>, Vec<Segment>)> {
    let mut names = vec![];
    let mut all: Vec<Segment> = vec![];
    // Of the statements that run once and are one piece: names that are open.
    let mut open: HashSet<Var> = HashSet::new();
    let mut piece: Vec<FlatStmt> = vec![];
    for (i, s) in step.iter().enumerate() {
        (facts.stored, facts.loaded) = Default::default();
        match s {
            FlatStmt::Let { var, value } if !loads(value) && !mentions(s, &open) => {
                if var.dtype() == DType::HANDLE {
                    let root = facts.root(value)?;
                    facts.roots.insert(var.clone(), root);
                }
                names.push(s.clone());
                continue;
            }
            FlatStmt::Stack { .. } => return None,
            _ => {}
        }
        let lone = open.is_empty() && is_heavy(s);
        let mut locals = open.clone();
        if let FlatStmt::Local { var, .. } | FlatStmt::Let { var, .. } = s {
            open.insert(var.clone());
        }
        facts.statement(s, &mut locals)?;
        let (stored, loaded) = (std::mem::take(&mut facts.stored), std::mem::take(&mut facts.loaded));
        if lone {
            // Its rounds are dealt out when they leave nothing to each other and nothing outside the workspace.
            let alone = stored.iter().all(|v| facts.private.contains(v) && !loaded.contains(v));
            if alone {
                let joins = all.last().is_some_and(|g| g.shared && g.apart(&stored, &loaded));
                if !joins {
                    all.push(Segment { shared: true, ..Default::default() });
                }
                let g = all.last_mut()?;
                g.pieces.push(Piece::Loop(s.clone()));
                g.stored.extend(stored);
                g.loaded.extend(loaded);
                continue;
            }
        }
        // A piece ends where no statement needs its names any more.
        let g = pending(&mut all, &mut piece);
        g.stored.extend(stored);
        g.loaded.extend(loaded);
        g.bound.extend(open.iter().cloned());
        piece.push(s.clone());
        if !step[i + 1..].iter().any(|s| mentions(s, &open)) {
            close(&mut all, std::mem::take(&mut piece), &facts.private);
            open.clear();
        }
    }
    // Names of one segment do not stand in another.
    for (i, g) in all.iter().enumerate() {
        let uses = |p: &Piece| match p {
            Piece::Loop(s) => mentions(s, &g.bound),
            Piece::Rest(list) | Piece::Once(list) => list.iter().any(|s| mentions(s, &g.bound)),
        };
        if all.iter().enumerate().any(|(j, o)| j != i && o.pieces.iter().any(uses)) {
            return None;
        }
        if names.iter().any(|s| mentions(s, &g.bound)) {
            return None;
        }
    }
    all.iter().any(|g| g.shared).then_some((names, all))
}

/// The segment that collects a piece under way.
fn pending<'a>(all: &'a mut Vec<Segment>, piece: &mut [FlatStmt]) -> &'a mut Segment {
    if piece.is_empty() {
        all.push(Segment::default());
    }
    let last = all.len() - 1;
    &mut all[last]
}

/// Puts a finished piece where it belongs: behind the loop whose rest it is, or to the other statements that run once.
fn close(all: &mut Vec<Segment>, piece: Vec<FlatStmt>, private: &HashSet<Var>) {
    let Some(mut new) = all.pop() else { return };
    let product = piece.iter().any(|s| matches!(s, FlatStmt::For { .. })) && piece.len() > 1;
    let product = product && new.stored.is_subset(private);
    match all.last_mut() {
        Some(g) if g.shared && product && g.apart(&new.stored, &new.loaded) => {
            g.pieces.push(Piece::Rest(piece));
            g.stored.extend(new.stored);
            g.loaded.extend(new.loaded);
            g.bound.extend(new.bound);
        }
        Some(g) if !g.shared => {
            g.pieces.push(Piece::Once(piece));
            g.stored.extend(new.stored);
            g.loaded.extend(new.loaded);
            g.bound.extend(new.bound);
        }
        _ => {
            new.pieces.push(Piece::Once(piece));
            all.push(new);
        }
    }
}

impl Segment {
    /// Whether what stores and loads this can run at the same time: it neither reads what the segment writes nor writes
    /// what it reads. (Both may write other elements of one result.)
    fn apart(&self, stored: &HashSet<Var>, loaded: &HashSet<Var>) -> bool {
        self.stored.is_disjoint(loaded) && self.loaded.is_disjoint(stored)
    }
}
