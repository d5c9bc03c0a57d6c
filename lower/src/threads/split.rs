//! What the loops of a kernel allow.

use super::few::{steps, Few, Steps, FILL};
use super::names::bound_once;
use super::rounds::Cut;
use super::{Shared, WHOLE};
use relax_ir::flat::{FlatFunc, FlatStmt};
use relax_ir::prim::{Intrin, PrimKind, Var};
use relax_ir::{DType, PrimExpr};
use std::collections::{HashMap, HashSet};

/// A kernel in shares.
pub struct Split {
    pub func: FlatFunc,
    /// How often all shares run, one after the other over another loop; 1 where each has a workspace of its own.
    pub phases: i64,
    /// The workspace is one for all.
    pub joint: bool,
    /// In it each share has a piece of its own, of those that are there for each thread.
    pub pieces: bool,
    /// Where it can be called step by step, too.
    pub few: Option<Few>,
}

/// A statement of the kernel's body.
struct Top<'a> {
    s: &'a FlatStmt,
    kind: Kind,
    stored: HashSet<Var>,
    loaded: HashSet<Var>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Names, addresses, and what is put on the stack: every share has them.
    Keep,
    /// A loop over independent parts.
    Loop,
    /// Code that runs once: what is left over behind a loop.
    Once,
}

/// Whether a kernel can be told its share: pointers and int64 go through the loop's context.
pub(super) fn takes_shares(f: &FlatFunc) -> bool {
    f.params.iter().all(|p| matches!(p.dtype(), DType::HANDLE | DType::I64))
}

/// A kernel with the workspace that host code passes to all its forms when one needs it, and what of its parameters is
/// memory of its own. Each of its names is bound once.
pub(super) fn with_workspace(f: &FlatFunc, s: &Shared) -> Option<(FlatFunc, HashSet<Var>)> {
    let mut f = FlatFunc { body: bound_once(&f.body), ..f.clone() };
    let own = f.params.len().checked_sub(s.buffers + s.dims.len())?;
    if own == 0 && s.workspace {
        f.params.push(Var::new("workspace", DType::HANDLE));
    }
    let private = f.params.iter().skip(s.buffers + s.dims.len()).cloned().collect();
    Some((f, private))
}

/// The kernel with the bounds of its share as last parameters; `None` when its loops do not allow it. With `joint`, all
/// shares work in one workspace and loops that hand each other data are phases. Rounds are cut where shares for so many
/// threads would be uneven (1: never).
pub fn split(f: &FlatFunc, s: &Shared, joint: bool, threads: i64) -> Option<Split> {
    let (mut f, private) = with_workspace(f, s).filter(|_| takes_shares(f))?;
    let body = std::mem::take(&mut f.body);
    let again = s.again.iter().filter_map(|i| f.params.get(*i).cloned()).collect();
    let (tops, facts) = classify(&f, &body, Facts { private, again, ..Default::default() }, s.apart)?;
    if !tops.iter().any(|t| t.kind == Kind::Loop) {
        return None;
    }
    let (phases, scratch) = match joint {
        true => phases(&tops, &facts)?,
        false => (own_workspace(&tops, &facts, s.fills)?, HashSet::new()),
    };
    let last = phases.iter().copied().max().filter(|last| *last >= 0)?;
    let (from, to) = (Var::new("from", DType::I64), Var::new("to", DType::I64));
    let few = (!joint).then(|| few(&f, s, &tops, &phases, &facts, threads, [&from, &to])).flatten();
    let dims = &f.params[s.buffers..s.buffers + s.dims.len()];
    let dims: HashMap<Var, PrimExpr> =
        s.dims.iter().zip(dims).map(|(d, p)| (d.clone(), p.expr().cast(d.dtype()))).collect();
    // Of a piece of scratch memory that a round keeps to itself, each share has another copy of the workspace.
    let copy = Var::new("copy", DType::I64);
    if !scratch.is_empty() {
        let share = from.expr() - from.expr().floor_div(WHOLE) * WHOLE;
        let which = (share * s.threads + (WHOLE - 1)).floor_div(WHOLE);
        f.body.push(FlatStmt::Let { var: copy.clone(), value: which * s.room.substitute(&dims) });
    }
    if let Some(few) = &few {
        f.body.extend(few.names.iter().cloned());
    }
    // Names that stand among code that runs once are there too; they may be bound again later.
    let (mut once, mut names): (Vec<FlatStmt>, Vec<FlatStmt>) = Default::default();
    let flush = |phase: i64, once: &mut Vec<FlatStmt>, names: &mut Vec<FlatStmt>, out: &mut Vec<FlatStmt>| {
        if !once.is_empty() {
            let then = std::mem::take(once);
            let end = to.expr().ge((phase + 1) * WHOLE);
            let cond = if joint { end.and(from.expr().lt((phase + 1) * WHOLE)) } else { end };
            out.push(FlatStmt::If { cond, then, otherwise: vec![] });
            out.append(names);
        }
    };
    // The phase of the code that runs once, which ends at a loop.
    let mut at = 0;
    for (t, phase) in tops.iter().zip(&phases) {
        match (t.kind, t.s) {
            (Kind::Once, s) => {
                at = *phase;
                once.push(s.clone());
            }
            (Kind::Loop, _) if *phase >= 0 => {
                flush(at, &mut once, &mut names, &mut f.body);
                // Another form may have more phases: of those this one does nothing.
                let share = |share: &Var| match joint {
                    false => share.expr(),
                    true => (share.expr() - phase * WHOLE).max(0i64).min(WHOLE),
                };
                if let Some(few) = &few {
                    let [low, high] = few.share.clone();
                    f.body.extend(Cut { threads, own: true }.piece(&few.nest, &facts, low, high));
                    continue;
                }
                let mut facts = facts.clone();
                let own = scratch.iter().any(|v| t.stored.contains(v));
                if own {
                    facts.private.clone_from(&scratch);
                }
                let cut = Cut { threads, own: own || !joint };
                f.body.extend(cut.piece(t.s, &facts, share(&from), share(&to)));
            }
            (Kind::Loop, s) => {
                flush(at, &mut once, &mut names, &mut f.body);
                f.body.push(match &few {
                    Some(few) => {
                        let cond = few.step.expr().le(FILL);
                        FlatStmt::If { cond, then: vec![s.clone()], otherwise: vec![] }
                    }
                    None => s.clone(),
                });
            }
            (Kind::Keep, FlatStmt::Let { var, value }) => {
                let value = match scratch.contains(var) {
                    true => value.clone().ptr_add(copy.expr()),
                    false => value.clone(),
                };
                let s = FlatStmt::Let { var: var.clone(), value };
                match once.is_empty() {
                    true => f.body.push(s),
                    false => {
                        once.push(s.clone());
                        names.push(s);
                    }
                }
            }
            (Kind::Keep, s) => {
                // What code that runs once leaves on the stack is for itself.
                if !matches!(s, FlatStmt::Stack { .. }) {
                    flush(at, &mut once, &mut names, &mut f.body);
                }
                f.body.push(s.clone());
            }
        }
    }
    flush(at, &mut once, &mut names, &mut f.body);
    f.params.extend([from, to]);
    let few = few.map(|f| f.few);
    Some(Split { func: f, phases: last + 1, joint, pieces: !scratch.is_empty(), few })
}

/// The one loop over rounds of a kernel whose other loops fill the workspace, with steps.
fn few(
    f: &FlatFunc,
    s: &Shared,
    tops: &[Top],
    phases: &[i64],
    facts: &Facts,
    threads: i64,
    share: [&Var; 2],
) -> Option<Steps> {
    let mut rounds = tops.iter().zip(phases).filter(|(t, phase)| t.kind != Kind::Keep && **phase >= 0);
    let (t, _) = rounds.next().filter(|(t, _)| t.kind == Kind::Loop)?;
    if rounds.next().is_some() || s.threads == 1 {
        return None;
    }
    let params = &f.params[s.buffers..s.buffers + s.dims.len()];
    let mut known: HashMap<Var, PrimExpr> =
        params.iter().zip(&s.dims).map(|(p, d)| (p.clone(), d.expr().cast(p.dtype()))).collect();
    for t in tops {
        if let FlatStmt::Let { var, value } = t.s {
            known.insert(var.clone(), value.substitute(&known));
        }
    }
    steps(t.s, facts, threads, share, &known, &s.dims)
}

/// The kernel as the work of the first share alone: for a form that is not worth more.
pub fn alone(f: &FlatFunc, s: &Shared, joint: bool) -> Option<Split> {
    let (mut f, _) = with_workspace(f, s)?;
    let (from, to) = (Var::new("from", DType::I64), Var::new("to", DType::I64));
    let mut then = std::mem::take(&mut f.body);
    then.retain(|s| !matches!(s, FlatStmt::Return(None)));
    let (stack, then) = then.into_iter().partition(|s| matches!(s, FlatStmt::Stack { .. }));
    f.body = stack;
    let first = from.expr().eq(PrimExpr::i64(0));
    f.body.push(FlatStmt::If { cond: first, then, otherwise: vec![] });
    f.params.extend([from, to]);
    Some(Split { func: f, phases: 1, joint, pieces: false, few: None })
}

/// Phases of the statements when each share has a workspace of its own: all 0, or -1 for a loop that every share runs
/// whole because it fills the workspace: out of nothing, or out of what nobody writes where the kernel `fills`.
fn own_workspace(tops: &[Top], facts: &Facts, fills: bool) -> Option<Vec<i64>> {
    let private = &facts.private;
    // Who comes last is not known.
    let writers = |v: &Var| tops.iter().filter(|t| t.stored.contains(v)).count();
    if facts.again.iter().any(|v| writers(v) > 1) {
        return None;
    }
    let given = |v: &Var| fills && !private.contains(v) && writers(v) == 0;
    let fill = |t: &Top| {
        let own = t.stored.iter().all(|v| private.contains(v));
        t.kind == Kind::Loop && own && t.loaded.iter().all(given)
    };
    for (i, t) in tops.iter().enumerate() {
        // What a share leaves in its workspace is a part; nobody else may read it.
        let part = t.stored.iter().filter(|v| private.contains(*v) && t.kind != Kind::Keep && !fill(t));
        for v in part {
            if tops.iter().enumerate().any(|(j, o)| j != i && o.kind != Kind::Once && o.loaded.contains(v)) {
                return None;
            }
            if t.kind == Kind::Loop && tops.iter().any(|o| o.kind == Kind::Once && o.loaded.contains(v)) {
                return None;
            }
        }
    }
    Some(tops.iter().map(|t| if fill(t) { -1 } else { 0 }).collect())
}

/// Phases of the statements when all shares work in one workspace, and its pieces that a round of a loop keeps to itself,
/// of which each share has its own.
fn phases(tops: &[Top], facts: &Facts) -> Option<(Vec<i64>, HashSet<Var>)> {
    let private = &facts.private;
    let bound = |v: &Var| tops.iter().any(|t| matches!(t.s, FlatStmt::Let { var, .. } if var == v));
    let users = |v: &Var| tops.iter().filter(|t| t.stored.contains(v) || t.loaded.contains(v)).count();
    let mut scratch: HashSet<Var> = HashSet::new();
    let mut phase = -1;
    let mut all = vec![];
    let (mut stored, mut loaded): (HashSet<&Var>, HashSet<&Var>) = Default::default();
    for (i, t) in tops.iter().enumerate() {
        let own = |v: &&Var| private.contains(*v);
        if t.kind == Kind::Keep && (t.loaded.iter().any(|v| own(&v)) || !t.stored.is_empty()) {
            return None;
        }
        // Code that runs once is one piece up to the next loop: all of its phase is known at its beginning.
        let of_once = tops[..i].iter().rev().find(|t| t.kind != Kind::Keep).is_some_and(|t| t.kind == Kind::Once);
        if t.kind == Kind::Keep || t.kind == Kind::Once && of_once {
            all.push(phase.max(0));
            continue;
        }
        let piece: Vec<&Top> = match t.kind {
            Kind::Once => {
                tops[i..].iter().take_while(|t| t.kind != Kind::Loop).filter(|t| t.kind == Kind::Once).collect()
            }
            _ => vec![t],
        };
        let writes: HashSet<&Var> = piece.iter().flat_map(|t| &t.stored).collect();
        let reads: HashSet<&Var> = piece.iter().flat_map(|t| &t.loaded).collect();
        let kept: Vec<&Var> = writes.iter().copied().filter(|v| own(v) && reads.contains(v)).collect();
        if t.kind == Kind::Once && !kept.is_empty() || kept.iter().any(|v| users(v) > 1 || !bound(v)) {
            return None;
        }
        scratch.extend(kept.into_iter().cloned());
        let meets = reads.iter().any(|v| stored.contains(v))
            || writes.iter().any(|v| own(v) && (stored.contains(v) || loaded.contains(v)))
            || writes.iter().any(|v| facts.again.contains(*v) && stored.contains(v));
        if phase < 0 || meets {
            phase += 1;
            stored.clear();
            loaded.clear();
        }
        stored.extend(writes);
        loaded.extend(reads);
        all.push(phase);
    }
    Some((all, scratch))
}

/// The statements of the body with what they load and store, and the memory that belongs to the workspace; `None` for
/// what must not run twice or in another order.
fn classify<'a>(f: &FlatFunc, body: &'a [FlatStmt], mut facts: Facts, apart: bool) -> Option<(Vec<Top<'a>>, Facts)> {
    let mut pieces: Vec<(Var, Var)> = vec![];
    facts.roots.extend(f.params.iter().map(|p| (p.clone(), vec![p.clone()])));
    let mut tops = vec![];
    let mut stacks: HashSet<Var> = HashSet::new();
    // Of the code that runs once: names that are open, and those that are closed by a loop.
    let (mut open, mut closed): (HashSet<Var>, HashSet<Var>) = Default::default();
    // Stack slots that it has filled.
    let mut held: HashSet<Var> = HashSet::new();
    for s in body {
        (facts.stored, facts.loaded) = Default::default();
        if mentions(s, &closed) {
            return None;
        }
        let kind = match s {
            FlatStmt::Return(None) => continue,
            FlatStmt::Stack { var, .. } => {
                stacks.insert(var.clone());
                Kind::Keep
            }
            FlatStmt::Let { var, value } if !mentions(s, &open) && (open.is_empty() || !loads(value)) => {
                // A piece of the workspace is memory of its own.
                let root = facts.root(value).filter(|r| r.iter().all(|r| facts.private.contains(r)));
                if let (DType::HANDLE, Some(root), PrimKind::Var(_) | PrimKind::PtrAdd(..)) =
                    (var.dtype(), root, value.kind())
                {
                    pieces.extend(root.into_iter().map(|of| (var.clone(), of)));
                    facts.roots.insert(var.clone(), vec![var.clone()]);
                    facts.private.insert(var.clone());
                    tops.push(Top { s, kind: Kind::Keep, stored: HashSet::new(), loaded: HashSet::new() });
                    continue;
                }
                Kind::Keep
            }
            s if !mentions(s, &open) && facts.is_fill(s) => Kind::Keep,
            s if !mentions(s, &open) && facts.is_loop(s) && !facts.takes(s, &held)? => Kind::Loop,
            _ => Kind::Once,
        };
        let mut locals = if kind == Kind::Once { open.clone() } else { HashSet::new() };
        facts.statement(s, &mut locals)?;
        match (kind, s) {
            (Kind::Once, FlatStmt::Local { var, .. } | FlatStmt::Let { var, .. }) => drop(open.insert(var.clone())),
            (Kind::Loop, _) => closed.extend(open.drain()),
            (Kind::Keep, _) if !facts.stored.is_empty() => closed.extend(open.drain()),
            _ => {}
        }
        let (stored, loaded) = (std::mem::take(&mut facts.stored), std::mem::take(&mut facts.loaded));
        match kind {
            Kind::Once => held.extend(stored.intersection(&stacks).cloned()),
            Kind::Loop => held.clear(),
            Kind::Keep => {}
        }
        tops.push(Top { s, kind, stored, loaded });
    }
    // A place in memory that is used by another name, too, is no piece apart from that.
    for (piece, _) in pieces.iter().rev() {
        let within = |v: &Var| pieces.iter().find(|(p, _)| p == v).map(|(_, of)| of);
        let used = |of: &&Var| tops.iter().any(|t| t.stored.contains(*of) || t.loaded.contains(*of));
        let Some(of) = std::iter::successors(within(piece), |of| within(of)).find(used) else { continue };
        for t in &mut tops {
            for all in [&mut t.stored, &mut t.loaded] {
                if all.remove(piece) {
                    all.insert(of.clone());
                }
            }
        }
        facts.roots.values_mut().flatten().filter(|r| *r == piece).for_each(|r| *r = of.clone());
    }
    // What every share puts on its stack is there before the others begin.
    let given = |t: &Top| t.loaded.iter().all(|v| tops.iter().all(|o| !o.stored.contains(v)));
    if tops.iter().any(|t| t.kind == Kind::Keep && !given(t)) {
        return None;
    }
    // A tensor that the kernel reads and writes: shares would see each other's work, unless they are known not to.
    let again =
        |t: &Top| t.stored.iter().any(|v| !facts.private.contains(v) && tops.iter().any(|o| o.loaded.contains(v)));
    if !apart && tops.iter().any(again) {
        return None;
    }
    // Each share has a stack of its own, which holds nothing from one loop to the next.
    for v in &stacks {
        let uses = |once: bool| {
            let of = |t: &&Top| (t.kind == Kind::Once) == once;
            tops.iter().filter(of).map(|t| (t.stored.contains(v), t.loaded.contains(v))).collect::<Vec<_>>()
        };
        // Code that runs once is one piece.
        let once = uses(true).into_iter().fold((false, false), |a, b| (a.0 | b.0, a.1 | b.1));
        if uses(false).into_iter().chain([once]).any(|(stored, loaded)| loaded && !stored) {
            return None;
        }
    }
    for t in &mut tops {
        t.stored.retain(|v| !stacks.contains(v));
        t.loaded.retain(|v| !stacks.contains(v));
    }
    Some((tops, facts))
}

/// Where an expression itself reads memory.
fn read_from(e: &PrimExpr) -> Option<&PrimExpr> {
    match e.kind() {
        PrimKind::Load { ptr, .. } => Some(ptr),
        PrimKind::Call(Intrin::TileRows, args) => args.first(),
        _ => None,
    }
}

pub(super) fn loads(e: &PrimExpr) -> bool {
    let mut found = false;
    e.walk(&mut |n| found |= read_from(n).is_some());
    found
}

/// Whether a statement uses one of these names.
pub(super) fn mentions(s: &FlatStmt, names: &HashSet<Var>) -> bool {
    if names.is_empty() {
        return false;
    }
    let uses = |e: &PrimExpr| {
        let mut found = false;
        e.walk(&mut |n| found |= n.as_var().is_some_and(|v| names.contains(v)));
        found
    };
    let any = |list: &[FlatStmt]| list.iter().any(|s| mentions(s, names));
    match s {
        FlatStmt::Let { value, .. } => uses(value),
        FlatStmt::Local { init, .. } => uses(init),
        FlatStmt::Prefetch { ptr } => uses(ptr),
        FlatStmt::Assign { var, value } => names.contains(var) || uses(value),
        FlatStmt::Store { ptr, offset, value } => uses(ptr) || uses(offset) || uses(value),
        FlatStmt::For { begin, end, body, .. } => uses(begin) || uses(end) || any(body),
        FlatStmt::While { cond, body } => uses(cond) || any(body),
        FlatStmt::If { cond, then, otherwise } => uses(cond) || any(then) || any(otherwise),
        FlatStmt::Stack { .. } | FlatStmt::Return(None) => false,
        _ => true,
    }
}

/// What statements load and store, by the pointers that they start from.
#[derive(Clone, Default)]
pub(super) struct Facts {
    /// Of a pointer variable: the parameters, pieces of the workspace or stack slots that it may point into.
    pub(super) roots: HashMap<Var, Vec<Var>>,
    pub(super) private: HashSet<Var>,
    /// Parameters of which two loops may write the same elements.
    pub(super) again: HashSet<Var>,
    /// Stack slots: each share has its own.
    pub(super) stacks: HashSet<Var>,
    pub(super) stored: HashSet<Var>,
    pub(super) loaded: HashSet<Var>,
}

impl Facts {
    pub(super) fn root(&self, p: &PrimExpr) -> Option<Vec<Var>> {
        match p.kind() {
            PrimKind::Var(v) => self.roots.get(v).cloned(),
            PrimKind::PtrAdd(p, _) => self.root(p),
            PrimKind::IfThenElse(_, a, b) | PrimKind::Select(_, a, b) => {
                let mut all = self.root(a)?;
                all.extend(self.root(b)?);
                Some(all)
            }
            _ => None,
        }
    }

    /// Whether a statement is a loop, or one of two lists of loops that hand each other nothing but stack slots, by a condition
    /// that reads no memory; names may stand among them.
    pub(super) fn is_loop(&self, s: &FlatStmt) -> bool {
        match s {
            FlatStmt::For { .. } => true,
            FlatStmt::If { cond, then, otherwise } => {
                !then.is_empty() && !loads(cond) && self.are_loops(then) && self.are_loops(otherwise)
            }
            _ => false,
        }
    }

    fn are_loops(&self, list: &[FlatStmt]) -> bool {
        let mut own = self.clone();
        let (mut written, mut read): (HashSet<Var>, HashSet<Var>) = Default::default();
        // Scratch memory that rounds keep to themselves.
        let mut kept: HashSet<Var> = HashSet::new();
        // Stack slots that loops have filled, each of which every share runs whole.
        let mut filled: HashSet<Var> = HashSet::new();
        for s in list {
            (own.stored, own.loaded) = Default::default();
            if own.statement(s, &mut HashSet::new()).is_none() {
                return false;
            }
            match s {
                FlatStmt::Let { value, .. } if !loads(value) => continue,
                s if own.is_loop(s) => {}
                _ => return false,
            }
            if own.fills() {
                filled.extend(own.stored.iter().cloned());
            }
            let (mut stored, mut loaded) = (std::mem::take(&mut own.stored), std::mem::take(&mut own.loaded));
            // A slot that a share has filled in part is as good as none.
            let left = |v: &&Var| own.stacks.contains(*v) && !stored.contains(*v);
            if loaded.iter().filter(left).any(|v| !filled.contains(v)) {
                return false;
            }
            stored.retain(|v| !own.stacks.contains(v));
            loaded.retain(|v| !own.stacks.contains(v));
            let rounds: HashSet<Var> =
                stored.intersection(&loaded).filter(|v| own.private.contains(v)).cloned().collect();
            stored.retain(|v| !rounds.contains(v));
            loaded.retain(|v| !rounds.contains(v));
            kept.extend(rounds);
            let once = |v: &Var| own.private.contains(v) || own.again.contains(v);
            if stored.iter().any(|v| read.contains(v) || once(v) && written.contains(v))
                || !loaded.is_disjoint(&written)
            {
                return false;
            }
            written.extend(stored);
            read.extend(loaded);
        }
        kept.is_disjoint(&written) && kept.is_disjoint(&read)
    }

    /// Whether what was stored went into stack slots alone, and was not made of what is in them or in scratch memory: every
    /// share runs that.
    pub(super) fn fills(&self) -> bool {
        let given = self.loaded.iter().all(|v| !self.private.contains(v));
        !self.stored.is_empty() && self.stored.is_subset(&self.stacks) && given
    }

    /// The same of a statement.
    fn is_fill(&self, s: &FlatStmt) -> bool {
        let mut own = Facts { stored: HashSet::new(), loaded: HashSet::new(), ..self.clone() };
        own.statement(s, &mut HashSet::new()).is_some() && own.fills()
    }

    /// Whether a loop reads of these slots what was left there before it.
    fn takes(&self, s: &FlatStmt, slots: &HashSet<Var>) -> Option<bool> {
        if slots.is_empty() {
            return Some(false);
        }
        let mut own = Facts { stored: HashSet::new(), loaded: HashSet::new(), ..self.clone() };
        own.statement(s, &mut HashSet::new())?;
        Some(own.loaded.iter().any(|v| slots.contains(v) && !own.stored.contains(v)))
    }

    fn value(&mut self, e: &PrimExpr) -> Option<()> {
        let mut known = true;
        let mut found = vec![];
        e.walk(&mut |n| {
            if let Some(ptr) = read_from(n) {
                match self.root(ptr) {
                    Some(v) => found.extend(v),
                    None => known = false,
                }
            }
        });
        self.loaded.extend(found);
        known.then_some(())
    }

    /// `None` for what must not run twice or in another order. `locals`: registers of the loop that surrounds it.
    pub(super) fn statement(&mut self, s: &FlatStmt, locals: &mut HashSet<Var>) -> Option<()> {
        match s {
            FlatStmt::Let { var, value } => {
                self.value(value)?;
                if var.dtype() == DType::HANDLE {
                    let root = self.root(value)?;
                    self.roots.insert(var.clone(), root);
                }
            }
            FlatStmt::Local { var, init } => {
                self.value(init)?;
                // Pointers that change are not followed.
                if var.dtype() == DType::HANDLE {
                    return None;
                }
                locals.insert(var.clone());
            }
            FlatStmt::Assign { var, value } => {
                self.value(value)?;
                if !locals.contains(var) {
                    return None;
                }
            }
            FlatStmt::Store { ptr, offset, value } => {
                self.value(offset)?;
                self.value(value)?;
                let root = self.root(ptr)?;
                self.stored.extend(root);
            }
            FlatStmt::For { begin, end, body, .. } => {
                self.value(begin)?;
                self.value(end)?;
                for s in body {
                    self.statement(s, locals)?;
                }
            }
            FlatStmt::While { cond, body } => {
                self.value(cond)?;
                for s in body {
                    self.statement(s, locals)?;
                }
            }
            FlatStmt::If { cond, then, otherwise } => {
                self.value(cond)?;
                for s in then.iter().chain(otherwise) {
                    self.statement(s, locals)?;
                }
            }
            FlatStmt::Stack { var, .. } => {
                self.roots.insert(var.clone(), vec![var.clone()]);
                self.private.insert(var.clone());
                self.stacks.insert(var.clone());
            }
            FlatStmt::Prefetch { .. } | FlatStmt::Return(None) => {}
            _ => return None,
        }
        Some(())
    }
}
