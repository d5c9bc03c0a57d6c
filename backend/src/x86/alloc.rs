//! Linear scan over live intervals; where registers run out, the values used least (weighted by loop depth) live on
//! the stack. Tiles never do: a kernel that needs more of them than there are is refused.

use super::inst::{Class, Inst, Program, Reg, Role};
use super::Wide;

/// General registers that may hold values, by number; rax, rdx and r11 are kept for the work.
pub const GENERAL: [u8; 12] = [1, 6, 7, 8, 9, 10, 3, 5, 12, 13, 14, 15];
/// Vector registers kept for the work when some values live on the stack.
pub const SCRATCH: u8 = 3;
/// Tile registers.
pub const TILES: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Never used.
    Nowhere,
    Reg(u8),
    /// Number of a slot of its class.
    Slot(u32),
    /// A constant, read where it is used.
    Pool(u32),
}

pub struct Places {
    pub of: Vec<Place>,
    pub general_slots: u32,
    pub vector_slots: u32,
    /// Rows of each tile register, the same for the whole kernel; 0 for those that it does not use.
    pub tile_rows: [u8; TILES],
}

struct Live {
    reg: Reg,
    start: usize,
    end: usize,
    weight: f64,
    /// Shares the register of this one if possible.
    hint: Option<Reg>,
}

/// Every vector in a register, if that is possible.
pub fn in_registers(p: &Program, wide: Wide) -> Option<Places> {
    let (spilled, places) = allocate(p, wide.registers)?;
    (!spilled).then_some(places)
}

/// Vectors on the stack where registers run out; `None` where tiles do.
pub fn spilling(p: &Program, wide: Wide) -> Option<Places> {
    Some(allocate(p, wide.registers - SCRATCH)?.1)
}

fn allocate(p: &Program, vectors: u8) -> Option<(bool, Places)> {
    let lives = lives(p);
    let of = vec![Place::Nowhere; p.classes.len()];
    let mut places = Places { of, general_slots: 0, vector_slots: 0, tile_rows: [0; TILES] };
    tiles(p, &lives, &mut places)?;
    scan(p, &lives, Class::General, &GENERAL, &mut places);
    let all: Vec<u8> = (0..vectors).collect();
    let spilled = scan(p, &lives, Class::Vector, &all, &mut places);
    Some((spilled, places))
}

/// Tiles in registers that have as many rows; in turn, so that none waits for the last use of another.
fn tiles(p: &Program, lives: &[Live], places: &mut Places) -> Option<()> {
    let mut until = [0; TILES];
    for l in lives {
        let Class::Tile(rows) = p.classes[l.reg as usize] else { continue };
        let free = |of: u8| {
            let fits = |t: &usize| places.tile_rows[*t] == of && until[*t] < l.start;
            (0..TILES).filter(fits).min_by_key(|&t| until[t])
        };
        let t = free(0).or_else(|| free(rows))?;
        places.tile_rows[t] = rows;
        until[t] = l.end;
        places.of[l.reg as usize] = Place::Reg(t as u8);
    }
    Some(())
}

fn lives(p: &Program) -> Vec<Live> {
    let mut all: Vec<Live> = (0..p.classes.len() as u32)
        .map(|reg| Live { reg, start: usize::MAX, end: 0, weight: 0.0, hint: None })
        .collect();
    let mut depth = vec![0i32; p.code.len() + 1];
    for &(from, to) in &p.loops {
        depth[from..=to].iter_mut().for_each(|d| *d += 1);
    }
    let first = p.params.iter().chain(p.constants.iter().map(|(r, _)| r));
    for &r in first {
        all[r as usize].start = 0;
    }
    for (i, inst) in p.code.iter().enumerate() {
        inst.visit(&mut |r, role| {
            let l = &mut all[r as usize];
            let at = 2 * i + 2 + (role == Role::Def) as usize;
            l.start = l.start.min(at);
            l.end = l.end.max(at);
            l.weight += 8f64.powi(depth[i].min(12));
        });
        if let Inst::Move { d, s, .. } = inst {
            all[*d as usize].hint.get_or_insert(*s);
        }
    }
    // What comes from outside of a loop and is used in it lives to its end.
    for &(from, to) in &p.loops {
        let (from, to) = (2 * from + 2, 2 * to + 3);
        for l in all.iter_mut().filter(|l| l.start < from && l.end >= from && l.end < to) {
            l.end = to;
        }
    }
    all.retain(|l| l.end > 0);
    all.sort_by_key(|l| l.start);
    all
}

/// Whether some values had to go to the stack.
fn scan(p: &Program, lives: &[Live], class: Class, registers: &[u8], places: &mut Places) -> bool {
    let mut free: Vec<u8> = registers.iter().rev().copied().collect();
    let mut active: Vec<(&Live, u8)> = vec![];
    let mut spilled = false;
    for l in lives.iter().filter(|l| p.classes[l.reg as usize] == class) {
        active.retain(|(a, r)| {
            let over = a.end < l.start;
            if over {
                free.push(*r);
            }
            !over
        });
        let hinted = l.hint.and_then(|h| match places.of[h as usize] {
            Place::Reg(r) => free.iter().position(|&f| f == r),
            _ => None,
        });
        if let Some(r) = hinted.map(|i| free.remove(i)).or_else(|| free.pop()) {
            places.of[l.reg as usize] = Place::Reg(r);
            active.push((l, r));
            continue;
        }
        spilled = true;
        let least = (0..active.len()).min_by(|&a, &b| active[a].0.weight.total_cmp(&active[b].0.weight));
        match least.filter(|&i| active[i].0.weight < l.weight) {
            Some(i) => {
                let (other, r) = active.swap_remove(i);
                places.of[other.reg as usize] = slot(p, other.reg, class, places);
                places.of[l.reg as usize] = Place::Reg(r);
                active.push((l, r));
            }
            None => places.of[l.reg as usize] = slot(p, l.reg, class, places),
        }
    }
    spilled
}

fn slot(p: &Program, reg: Reg, class: Class, places: &mut Places) -> Place {
    if let Some((_, at)) = p.constants.iter().find(|(r, _)| *r == reg) {
        return Place::Pool(*at);
    }
    let count = if class == Class::General { &mut places.general_slots } else { &mut places.vector_slots };
    *count += 1;
    Place::Slot(*count - 1)
}
