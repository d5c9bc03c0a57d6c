//! Checks before work: a requirement on shapes is asked as soon as its shape variables have values, not where the value
//! is made that states it. So a call that must fail fails before a kernel has run, and what a check says of the size of
//! a buffer holds before anything is written there. Steps have no effect but on buffers, so no caller can tell.

use super::value::Step;
use relax_ir::prim::PrimExpr;
use relax_ir::Var;
use std::collections::HashSet;

/// Moves the checks of a straight line of steps to the front of the steps that they do not depend on. They stay in their
/// order: one may divide by what another has found not to be 0.
pub fn checks_first(steps: Vec<Step>) -> Vec<Step> {
    let mut out = Vec::with_capacity(steps.len());
    let (mut checks, mut others): (Vec<Step>, Vec<Step>) = (vec![], vec![]);
    let mut read: HashSet<Var> = HashSet::new();
    for s in steps {
        match &s {
            Step::Check { condition, wanted, got, numbers, .. } => {
                let told = [condition, wanted, got].into_iter().chain(numbers.iter().flat_map(|(_, n)| n.exprs()));
                if told.flat_map(PrimExpr::vars).any(|v| read.contains(&v)) {
                    out.append(&mut checks);
                    out.append(&mut others);
                    read.clear();
                }
                checks.push(s);
            }
            Step::If { .. } => {
                out.append(&mut checks);
                out.append(&mut others);
                read.clear();
                out.push(s);
            }
            Step::Read { var, .. } => {
                read.insert(var.clone());
                others.push(s);
            }
            _ => others.push(s),
        }
    }
    out.append(&mut checks);
    out.append(&mut others);
    out
}
