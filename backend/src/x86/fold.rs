//! What one multiplication alone reads: it spreads the element itself, instead of an instruction before it.
//!
//! Tiles of one vector side by side need each element once. With a load for each multiplication they reach three quarters
//! of what multiplications with operands in memory do.

use super::inst::{Base, Inst, Mem, Program, Reg, Role};

/// Instructions behind a load in which its reader is looked for.
const REACH: usize = 64;

/// For processors whose instructions spread what they read.
pub fn spreads(p: &mut Program) {
    let (mut uses, mut defs) = (vec![0u32; p.classes.len()], vec![0u32; p.classes.len()]);
    for i in &p.code {
        i.visit(&mut |r, role| match role {
            Role::Use => uses[r as usize] += 1,
            _ => defs[r as usize] += 1,
        });
    }
    // Ascending.
    let mut gone = vec![];
    for at in 0..p.code.len() {
        let Inst::Spread { d, m } = p.code[at] else { continue };
        if uses[d as usize] != 1 || defs[d as usize] != 1 {
            continue;
        }
        if let Some((to, fused)) = reader(&p.code, at, d, m) {
            p.code[to] = fused;
            gone.push(at);
        }
    }
    let place = |i: usize| i - gone.partition_point(|g| *g < i);
    for (first, last) in &mut p.loops {
        (*first, *last) = (place(*first), place(*last));
    }
    let mut next = 0..;
    p.code.retain(|_| next.next().is_none_or(|i| gone.binary_search(&i).is_err()));
}

/// The multiplication that reads `d`, before which neither memory nor the address changes, with `m` as its operand.
fn reader(code: &[Inst], at: usize, d: Reg, m: Mem) -> Option<(usize, Inst)> {
    let place = |r: Reg| matches!(m.base, Base::Reg(b) if b == r) || m.index.is_some_and(|(i, _)| i == r);
    for (to, i) in code.iter().enumerate().skip(at + 1).take(REACH) {
        match *i {
            Inst::Fma { double: false, w, d: sum, a, b } if (a == d) != (b == d) && sum != d => {
                let a = if a == d { b } else { a };
                return Some((to, Inst::FmaMem { double: false, w, d: sum, a, m, spread: true }));
            }
            Inst::Label(_) | Inst::Jump(_) | Inst::Branch { .. } | Inst::BranchAny { .. } => return None,
            Inst::Store { .. }
            | Inst::StoreOne { .. }
            | Inst::StoreDouble { .. }
            | Inst::StoreBytes { .. }
            | Inst::StoreWords { .. }
            | Inst::StoreHalf { .. }
            | Inst::WriteGeneral { .. }
            | Inst::TileStore { .. } => return None,
            _ => {}
        }
        let mut stays = true;
        i.visit(&mut |r, role| stays &= r != d && (role == Role::Use || !place(r)));
        if !stays {
            return None;
        }
    }
    None
}
