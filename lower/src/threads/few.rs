//! Rounds that are too few to be shared out.
//!
//! A round of a convolution over transformed tiles is a row of loops that hand each other scratch memory, and a batch of
//! one in one block of tiles is one round. Such a kernel has two ways to be called. With a share of [`WHOLE`] it runs its
//! part of the rounds, in a workspace of its own. With a share of a later whole it runs a *step*: the first fills the
//! workspace, each other one is a phase of one round, of which all threads have a part, in one workspace. Host code takes
//! the second way when the call shows that there are fewer rounds than threads.

use super::rounds::Cut;
use super::split::{loads, Facts};
use super::WHOLE;
use relax_ir::flat::{FlatFunc, FlatStmt};
use relax_ir::prim::Var;
use relax_ir::{DType, PrimExpr};
use std::collections::{HashMap, HashSet};

/// What host code knows of the second way, over [`crate::kernel_dims`].
#[derive(Clone, PartialEq)]
pub struct Few {
    pub rounds: PrimExpr,
    /// Phases of a round.
    pub phases: i64,
}

/// The step that fills the workspace; the phases follow.
pub const FILL: i64 = 1;
/// A round that there is not.
const NONE: i64 = i64::MAX;

/// A loop with both ways.
pub struct Steps {
    /// Names that it needs.
    pub names: Vec<FlatStmt>,
    pub nest: FlatStmt,
    /// The share of the rounds.
    pub share: [PrimExpr; 2],
    /// Which step it is; 0 for the first way.
    pub step: Var,
    pub few: Few,
}

/// The loop `s` with both ways; `None` where its rounds are not rows of loops that hand each other scratch memory, or where
/// the caller could not count them. `known`: names by what they are over `dims`, those of the kernel.
pub fn steps(
    s: &FlatStmt,
    facts: &Facts,
    threads: i64,
    [from, to]: [&Var; 2],
    known: &HashMap<Var, PrimExpr>,
    dims: &[Var],
) -> Option<Steps> {
    let mut nest = Nest { facts: facts.clone(), known, dims, levels: vec![] };
    let row = nest.row(std::slice::from_ref(s))?;
    let (phase_of, phases) = nest.phases(row)?;
    let rounds = nest.levels.iter().fold(PrimExpr::i64(1), |n, l| n * l.count.substitute(known));
    if rounds.as_int().is_some_and(|n| n >= threads) {
        return None;
    }
    let few = Few { rounds, phases };

    let name = |name: &str| Var::new(name, DType::I64);
    let (step, round, phase) = (name("step"), name("round"), name("phase"));
    let bind = |var: &Var, value: PrimExpr| FlatStmt::Let { var: var.clone(), value };
    let first = step.expr().eq(0i64);
    let behind = (step.expr() + (phases - FILL - 1)).floor_div(phases) - 1i64;
    let mut names = vec![
        bind(&step, from.expr().floor_div(WHOLE)),
        bind(&round, step.expr().eq(FILL).select(NONE, behind)),
        bind(&phase, step.expr() - (FILL + 1) - round.expr() * phases),
    ];
    let mut bounds = vec![];
    for i in 0..phases {
        let of = |share: &Var, whole: i64| {
            let part = phase.expr().eq(i).select(share.expr() - step.expr() * WHOLE, 0i64);
            first.clone().select(whole, part)
        };
        let (low, high) = (name("low"), name("high"));
        names.extend([bind(&low, of(from, 0)), bind(&high, of(to, WHOLE))]);
        bounds.push([low, high]);
    }
    let at = nest.levels.iter().fold(PrimExpr::i64(0), |at, l| at * l.count.clone() + l.at.clone());
    let cut = Cut { threads, own: false };
    let mut then = vec![];
    for (s, phase) in row.iter().zip(phase_of) {
        match phase {
            Some(p) => {
                let [low, high] = &bounds[p as usize];
                then.extend(cut.piece(s, &nest.facts, low.expr(), high.expr()));
            }
            None => then.push(s.clone()),
        }
    }
    let cond = first.clone().or(at.eq(round.expr()));
    let row = vec![FlatStmt::If { cond, then, otherwise: vec![] }];
    let share = [first.clone().select(from.expr(), 0i64), first.select(to.expr(), WHOLE)];
    Some(Steps { names, nest: around(s, row), share, step, few })
}

/// A form without these steps for a caller that may take them: one share of the first step runs all of it.
pub fn follow(mut f: FlatFunc) -> Option<FlatFunc> {
    let (to, from) = (f.params.pop()?, f.params.pop()?);
    let (begin, end) = (Var::new("begin", DType::I64), Var::new("end", DType::I64));
    let bind = |var: Var, value: PrimExpr| FlatStmt::Let { var, value };
    let whole = begin.expr().ge(WHOLE);
    let mut then = std::mem::take(&mut f.body);
    then.retain(|s| !matches!(s, FlatStmt::Return(None)));
    let (stack, then) = then.into_iter().partition(|s| matches!(s, FlatStmt::Stack { .. }));
    f.body = stack;
    f.body.push(bind(from, whole.clone().select(0i64, begin.expr())));
    f.body.push(bind(to, whole.select(WHOLE, end.expr())));
    let cond = begin.expr().le(FILL * WHOLE);
    f.body.push(FlatStmt::If { cond, then, otherwise: vec![] });
    f.params.extend([begin, end]);
    Some(f)
}

/// A loop around the row.
struct Level {
    count: PrimExpr,
    /// Which of its rounds it is.
    at: PrimExpr,
}

struct Nest<'a> {
    facts: Facts,
    known: &'a HashMap<Var, PrimExpr>,
    dims: &'a [Var],
    levels: Vec<Level>,
}

/// The names at the beginning of a list, and the statements behind them.
fn named(list: &[FlatStmt]) -> (&[FlatStmt], &[FlatStmt]) {
    let names = list.iter().take_while(|s| matches!(s, FlatStmt::Let { value, .. } if !loads(value))).count();
    list.split_at(names)
}

impl Nest<'_> {
    /// Down to the row of loops.
    fn row<'s>(&mut self, list: &'s [FlatStmt]) -> Option<&'s [FlatStmt]> {
        let (names, rest) = named(list);
        match rest {
            [FlatStmt::For { var, begin, end, step, body }] => {
                self.names(names)?;
                let count = match (begin.as_int(), end.as_int()) {
                    (Some(b), Some(e)) => PrimExpr::i64(((e - b).max(0) + *step - 1) / *step),
                    _ => (end.clone() - begin.clone() + (*step - 1)).floor_div(*step).max(0i64),
                };
                let closed = count.substitute(self.known);
                if loads(&closed) || !closed.vars().iter().all(|v| self.dims.contains(v)) {
                    return None;
                }
                let at = (var.expr() - begin.clone()).floor_div(*step);
                self.levels.push(Level { count, at });
                self.row(body)
            }
            [FlatStmt::If { cond, then, otherwise }] if otherwise.is_empty() && !loads(cond) => {
                self.names(names)?;
                self.row(then)
            }
            _ => Some(list),
        }
    }

    fn names(&mut self, names: &[FlatStmt]) -> Option<()> {
        names.iter().try_for_each(|s| self.facts.statement(s, &mut HashSet::new()))
    }

    /// Of the statements of a row: the phase of each loop; and how many there are, at least two.
    fn phases(&mut self, row: &[FlatStmt]) -> Option<(Vec<Option<i64>>, i64)> {
        let mut all = vec![];
        let mut phase = 0;
        let (mut stored, mut loaded): (HashSet<Var>, HashSet<Var>) = Default::default();
        for s in row {
            let facts = &mut self.facts;
            (facts.stored, facts.loaded) = Default::default();
            facts.statement(s, &mut HashSet::new())?;
            let (mut writes, mut reads) = (std::mem::take(&mut facts.stored), std::mem::take(&mut facts.loaded));
            match s {
                FlatStmt::Let { value, .. } if !loads(value) => {
                    all.push(None);
                    continue;
                }
                FlatStmt::For { .. } => {}
                _ => return None,
            }
            if facts.stacks.iter().any(|v| reads.contains(v) && !writes.contains(v)) {
                return None;
            }
            writes.retain(|v| !facts.stacks.contains(v));
            reads.retain(|v| !facts.stacks.contains(v));
            let own = |v: &Var| facts.private.contains(v);
            if writes.iter().any(|v| reads.contains(v)) {
                return None;
            }
            let meets = reads.iter().any(|v| stored.contains(v))
                || writes.iter().any(|v| own(v) && (stored.contains(v) || loaded.contains(v)))
                || writes.iter().any(|v| facts.again.contains(v) && stored.contains(v));
            if meets {
                phase += 1;
                stored.clear();
                loaded.clear();
            }
            stored.extend(writes);
            loaded.extend(reads);
            all.push(Some(phase));
        }
        (phase > 0).then_some((all, phase + 1))
    }
}

/// The nest with another row.
fn around(s: &FlatStmt, row: Vec<FlatStmt>) -> FlatStmt {
    let list = |list: &[FlatStmt], row: Vec<FlatStmt>| match named(list) {
        (names, [s @ (FlatStmt::For { .. } | FlatStmt::If { .. })]) => {
            let mut out = names.to_vec();
            out.push(around(s, row));
            out
        }
        _ => row,
    };
    match s {
        FlatStmt::For { var, begin, end, step, body } => FlatStmt::For {
            var: var.clone(),
            begin: begin.clone(),
            end: end.clone(),
            step: *step,
            body: list(body, row),
        },
        FlatStmt::If { cond, then, .. } => {
            FlatStmt::If { cond: cond.clone(), then: list(then, row), otherwise: vec![] }
        }
        other => other.clone(),
    }
}
