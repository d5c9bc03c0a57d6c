//! The steps of a function that some of its variables depend on.

use super::value::{BufId, Step};
use relax_ir::Var;
use std::collections::HashSet;

/// The steps of `steps`, in order, that decide the values of `wanted`; checks of variables that are read on the way
/// stay.
pub fn for_vars(steps: &[Step], wanted: HashSet<Var>) -> Vec<Step> {
    let mut needs = Needs { vars: wanted, bufs: HashSet::new() };
    needs.slice(steps)
}

/// The buffers that a step reads or writes.
pub fn touched(s: &Step) -> Vec<BufId> {
    match s {
        Step::Kernel { buffers, scratch, .. } => buffers.iter().chain(scratch).copied().collect(),
        Step::Copy { from, to, .. } => vec![*from, *to],
        Step::Write { to, .. } => vec![*to],
        Step::Read { from, .. } => vec![*from],
        Step::Check { .. } => vec![],
        Step::If { then, otherwise, .. } => then.iter().chain(otherwise).flat_map(touched).collect(),
    }
}

struct Needs {
    vars: HashSet<Var>,
    bufs: HashSet<BufId>,
}

impl Needs {
    fn slice(&mut self, steps: &[Step]) -> Vec<Step> {
        let mut kept: Vec<Step> = steps.iter().rev().filter_map(|s| self.step(s)).collect();
        kept.reverse();
        kept
    }

    fn expr(&mut self, e: &relax_ir::PrimExpr) {
        self.vars.extend(e.vars());
    }

    fn step(&mut self, s: &Step) -> Option<Step> {
        match s {
            Step::Kernel { buffers, dims, reads, .. } => {
                let writes = |(b, r): (&BufId, &bool)| !r && self.bufs.contains(b);
                if !buffers.iter().zip(reads).any(writes) {
                    return None;
                }
                self.bufs.extend(buffers);
                dims.iter().for_each(|d| self.expr(d));
            }
            Step::Copy { from, to, bytes } => {
                if !self.bufs.contains(to) {
                    return None;
                }
                self.bufs.insert(*from);
                self.expr(bytes);
            }
            Step::Write { to, values } => {
                if !self.bufs.contains(to) {
                    return None;
                }
                values.iter().for_each(|v| self.expr(v));
            }
            Step::Read { var, from, .. } => {
                if !self.vars.contains(var) {
                    return None;
                }
                self.bufs.insert(*from);
            }
            Step::Check { condition, wanted, got, numbers, .. } => {
                let known = |e: &relax_ir::PrimExpr| e.vars().iter().all(|v| self.vars.contains(v));
                if !(known(condition)
                    && known(wanted)
                    && known(got)
                    && numbers.iter().all(|(_, n)| n.exprs().into_iter().all(known)))
                {
                    return None;
                }
            }
            Step::If { condition, then, otherwise } => {
                // Both branches start from what is needed behind them.
                let mut other = Needs { vars: self.vars.clone(), bufs: self.bufs.clone() };
                let otherwise = other.slice(otherwise);
                let then = self.slice(then);
                if then.is_empty() && otherwise.is_empty() {
                    return None;
                }
                self.vars.extend(other.vars);
                self.bufs.extend(other.bufs);
                self.expr(condition);
                return Some(Step::If { condition: condition.clone(), then, otherwise });
            }
        }
        Some(s.clone())
    }
}
