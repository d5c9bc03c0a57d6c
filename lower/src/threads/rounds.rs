//! Rounds of a kernel's loop that are cut themselves.
//!
//! Three panels of columns do not make two equal shares, and a batch may be one. Where a round of the outermost loop
//! holds a loop over independent parts (heads, rows), a share begins and ends inside a round: it has a piece of each such
//! loop. What fills scratch memory in a round is run by all that have a piece of the round, what is left over behind the
//! loops by who has its end.

use super::split::{loads, mentions, Facts};
use super::WHOLE;
use relax_ir::flat::FlatStmt;
use relax_ir::prim::Var;
use relax_ir::{DType, PrimExpr};
use std::collections::HashSet;

/// Rounds for each thread from which whole rounds are even enough.
const MANY: i64 = 16;

/// What shares are cut for.
#[derive(Clone, Copy)]
pub struct Cut {
    /// 1: rounds stay whole.
    pub threads: i64,
    /// Each share has a workspace of its own.
    pub own: bool,
}

impl Cut {
    /// Whether shares of whole rounds would be uneven, or may be.
    fn inside(self, rounds: &PrimExpr) -> bool {
        let uneven = |n: i64| n > 0 && n < MANY * self.threads && n % self.threads != 0;
        self.threads > 1 && rounds.as_int().is_none_or(uneven)
    }

    /// The loop `s` from `low` to `high`, in parts of [`WHOLE`]: with its rounds cut where that is better and possible.
    /// `facts` are those of the place where it stands.
    pub fn piece(self, s: &FlatStmt, facts: &Facts, low: PrimExpr, high: PrimExpr) -> Vec<FlatStmt> {
        let FlatStmt::For { var, begin, end, step, body } = s else { return vec![self.either(s, facts, &low, &high)] };
        let count = match (begin.as_int(), end.as_int()) {
            (Some(b), Some(e)) => PrimExpr::i64(((e - b).max(0) + *step - 1) / *step),
            _ => (end.clone() - begin.clone() + (*step - 1)).floor_div(*step).max(0i64),
        };
        let names = ["low", "high"].map(|name| Var::new(name, DType::I64));
        let inside = self.inside(&count).then(|| self.round(body, facts, &names[0], &names[1])).flatten();
        let (Some(inside), Some(first)) = (inside, begin.as_int()) else {
            let bound = |share: PrimExpr| {
                let rounds = (count.clone() * share).floor_div(WHOLE);
                (begin.clone() + rounds * *step).min(end.clone())
            };
            let (begin, end) = (bound(low), bound(high));
            return vec![FlatStmt::For { var: var.clone(), begin, end, step: *step, body: body.clone() }];
        };
        let (a, b) = (Var::new("a", DType::I64), Var::new("b", DType::I64));
        let bind = |var: &Var, value: PrimExpr| FlatStmt::Let { var: var.clone(), value };
        let at = (var.expr() - first).floor_div(*step) * WHOLE;
        let piece = |bound: &Var| (bound.expr() - at.clone()).max(0i64).min(WHOLE);
        let mut round = vec![bind(&names[0], piece(&a)), bind(&names[1], piece(&b))];
        round.extend(inside);
        let begin = a.expr().floor_div(WHOLE) * *step + first;
        let end = (b.expr() + (WHOLE - 1)).floor_div(WHOLE) * *step + first;
        let whole = FlatStmt::For { var: var.clone(), begin, end, step: *step, body: round };
        vec![bind(&a, count.clone() * low), bind(&b, count * high), whole]
    }

    /// The loops of one of two lists, each from `low` to `high`, but for those that fill stack slots.
    fn either(self, s: &FlatStmt, facts: &Facts, low: &PrimExpr, high: &PrimExpr) -> FlatStmt {
        let FlatStmt::If { cond, then, otherwise } = s else { return s.clone() };
        let branch = |list: &[FlatStmt]| {
            let mut facts = facts.clone();
            let mut out = vec![];
            for s in list {
                (facts.stored, facts.loaded) = Default::default();
                // All of it was asked before.
                let _known = facts.statement(s, &mut HashSet::new());
                match s {
                    // Each share has a stack of its own.
                    _ if matches!(s, FlatStmt::Let { .. }) || facts.fills() => out.push(s.clone()),
                    _ => out.extend(self.piece(s, &facts, low.clone(), high.clone())),
                }
            }
            out
        };
        FlatStmt::If { cond: cond.clone(), then: branch(then), otherwise: branch(otherwise) }
    }

    /// The body of a round of which `low..high` is run; `None` where it cannot be cut.
    fn round(self, body: &[FlatStmt], facts: &Facts, low: &Var, high: &Var) -> Option<Vec<FlatStmt>> {
        let mut facts = facts.clone();
        let touched = touched(body, &mut facts)?;
        let (mut written, mut read): (HashSet<&Var>, HashSet<&Var>) = Default::default();
        let mut out = vec![];
        let mut any = false;
        let mut open: HashSet<Var> = HashSet::new();
        let mut piece: Vec<FlatStmt> = vec![];
        // A loop that is all of a round is one over independent parts, as that around it: what it leaves in scratch memory is for
        // nobody else.
        let sole = body.iter().filter(|s| !matches!(s, FlatStmt::Let { .. })).count() == 1;
        for (i, (s, Touched { stored, loaded, fills })) in body.iter().zip(&touched).enumerate() {
            let own = |v: &&Var| facts.private.contains(*v);
            if *fills && !mentions(s, &open) {
                if !piece.is_empty() {
                    return None;
                }
                read.extend(loaded);
                out.push(s.clone());
                continue;
            }
            match s {
                FlatStmt::Let { value, .. } if !mentions(s, &open) && !loads(value) => {
                    out.push(s.clone());
                    continue;
                }
                FlatStmt::Stack { .. } => return None,
                s if piece.is_empty() && facts.is_loop(s) => {
                    let part = stored.iter().any(|v| own(&v));
                    if stored.iter().any(|v| facts.again.contains(v) && written.contains(v)) {
                        return None;
                    }
                    if self.own && part && stored.iter().all(|v| own(&v)) && !loaded.iter().any(|v| own(&v)) {
                        // A part of scratch memory is as good as none to what follows.
                        read.extend(loaded);
                        out.push(s.clone());
                        continue;
                    }
                    if part && !self.own {
                        return None;
                    }
                    if part && !sole {
                        // Panels of columns, each of which fills scratch memory, then runs over the rows: of each, a
                        // piece. A round may use what an earlier one has left there, so none is left out.
                        let FlatStmt::For { var, begin, end, step, body } = s else { return None };
                        let body = self.round(body, &facts, low, high)?;
                        let (var, begin, end) = (var.clone(), begin.clone(), end.clone());
                        out.push(FlatStmt::For { var, begin, end, step: *step, body });
                    } else {
                        out.extend(self.piece(s, &facts, low.expr(), high.expr()));
                    }
                    written.extend(stored.iter().filter(|v| !own(v)));
                    read.extend(loaded);
                    any = true;
                    continue;
                }
                _ => {}
            }
            if stored.iter().any(|v| own(&v)) {
                return None;
            }
            if let FlatStmt::Local { var, .. } | FlatStmt::Let { var, .. } = s {
                open.insert(var.clone());
            }
            if stored.iter().any(|v| facts.again.contains(v) && written.contains(v)) {
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
}

/// What a statement stores and loads, apart from stack slots, of which each share has its own.
struct Touched {
    stored: HashSet<Var>,
    loaded: HashSet<Var>,
    /// It puts something on the stack, and does nothing else.
    fills: bool,
}

/// What each statement touches; `None` for what must not run twice or in another order.
fn touched(body: &[FlatStmt], facts: &mut Facts) -> Option<Vec<Touched>> {
    let mut all = vec![];
    let mut locals = HashSet::new();
    for s in body {
        (facts.stored, facts.loaded) = Default::default();
        // A loop keeps no register from round to round, unless it belongs to what is left over.
        facts.statement(s, &mut locals)?;
        let fills = facts.fills();
        let (mut stored, mut loaded) = (std::mem::take(&mut facts.stored), std::mem::take(&mut facts.loaded));
        // A stack slot holds nothing from one statement to the next.
        if facts.stacks.iter().any(|v| loaded.contains(v) && !stored.contains(v)) {
            return None;
        }
        stored.retain(|v| !facts.stacks.contains(v));
        loaded.retain(|v| !facts.stacks.contains(v));
        all.push(Touched { stored, loaded, fills });
    }
    Some(all)
}
