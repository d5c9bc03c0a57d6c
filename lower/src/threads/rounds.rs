//! Rounds of a kernel's loop that are cut themselves.
//!
//! Three panels of columns do not make two equal shares. Where a round of the outermost loop is a loop over independent
//! parts (rows), a share begins and ends inside a round: it has a piece of each such loop. What fills scratch memory in
//! a round is run by all that have a piece of the round, what is left over behind the loops by who has its end.

use super::split::{loads, mentions, Facts};
use super::WHOLE;
use relax_ir::flat::FlatStmt;
use relax_ir::prim::Var;
use relax_ir::{DType, PrimExpr};
use std::collections::HashSet;

/// Rounds for each thread from which whole rounds are even enough.
const MANY: i64 = 16;

/// Whether shares of whole rounds would be uneven.
pub fn uneven(rounds: &PrimExpr, threads: i64) -> bool {
    rounds.as_int().is_some_and(|n| n > 0 && n < MANY * threads && n % threads != 0)
}

/// The body of a round of which `low..high` of [`WHOLE`] is run; `None` where it cannot be cut. `own`: each share has a
/// workspace of its own.
pub fn cut(body: &[FlatStmt], facts: &Facts, own: bool, low: &Var, high: &Var) -> Option<Vec<FlatStmt>> {
    let mut facts = facts.clone();
    let (mut written, mut read): (HashSet<Var>, HashSet<Var>) = Default::default();
    let mut out = vec![];
    let mut any = false;
    let mut open: HashSet<Var> = HashSet::new();
    let mut piece: Vec<FlatStmt> = vec![];
    for (i, s) in body.iter().enumerate() {
        (facts.stored, facts.loaded) = Default::default();
        let free = open.is_empty() || !mentions(s, &open);
        match s {
            FlatStmt::Let { var, value } if free && !loads(value) => {
                if var.dtype() == DType::HANDLE {
                    let root = facts.root(value)?;
                    facts.roots.insert(var.clone(), root);
                }
                out.push(s.clone());
                continue;
            }
            FlatStmt::Stack { .. } => return None,
            _ => {}
        }
        let lone = piece.is_empty() && matches!(s, FlatStmt::For { .. });
        let mut locals = open.clone();
        if let FlatStmt::Local { var, .. } | FlatStmt::Let { var, .. } = s {
            open.insert(var.clone());
        }
        facts.statement(s, &mut locals)?;
        let (mut stored, mut loaded) = (std::mem::take(&mut facts.stored), std::mem::take(&mut facts.loaded));
        // A stack slot holds nothing from one statement to the next.
        if facts.stacks.iter().any(|v| loaded.contains(v) && !stored.contains(v)) {
            return None;
        }
        stored.retain(|v| !facts.stacks.contains(v));
        loaded.retain(|v| !facts.stacks.contains(v));
        let private = |list: &HashSet<Var>| list.iter().any(|v| facts.private.contains(v));
        if lone {
            if own && !stored.is_empty() && stored.iter().all(|v| facts.private.contains(v)) && !private(&loaded) {
                read.extend(loaded);
                out.push(s.clone());
                continue;
            }
            if let (false, FlatStmt::For { var, begin, end, step, body }) = (private(&stored), s) {
                let rounds = match (begin.as_int(), end.as_int()) {
                    (Some(b), Some(e)) => PrimExpr::i64(((e - b).max(0) + *step - 1) / *step),
                    _ => (end.clone() - begin.clone() + (*step - 1)).floor_div(*step).max(0i64),
                };
                let bound = |share: &Var| {
                    let round = (rounds.clone() * share.expr()).floor_div(WHOLE);
                    (begin.clone() + round * *step).min(end.clone())
                };
                let (begin, end) = (bound(low), bound(high));
                out.push(FlatStmt::For { var: var.clone(), begin, end, step: *step, body: body.clone() });
                written.extend(stored);
                read.extend(loaded);
                any = true;
                continue;
            }
            return None;
        }
        if private(&stored) {
            return None;
        }
        written.extend(stored);
        read.extend(loaded);
        piece.push(s.clone());
        if !body[i + 1..].iter().any(|s| mentions(s, &open)) {
            let cond = high.expr().ge(PrimExpr::i64(WHOLE));
            out.push(FlatStmt::If { cond, then: std::mem::take(&mut piece), otherwise: vec![] });
            open.clear();
        }
    }
    (any && written.is_disjoint(&read)).then_some(out)
}
