//! Fusing the stages of a PrimFunc, so that fused groups run in one pass over memory:
//!
//! * an elementwise stage is substituted into the stages that read it, unless that repeats work;
//! * an elementwise stage that reads a reduction's result point by point becomes its epilogue.
//!
//! Buffers that nothing reads any more are dropped.

use super::attention::Attention;
use super::pools::Pool;
use super::rows::Rows;
use super::stage::{loads, Stage};
use super::window::cascade::Cascade;
use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::tir::{Buffer, Stmt, StmtKind};
use relax_ir::{PrimExpr, Var};
use std::collections::HashMap;

pub enum Item {
    Stage(Box<Stage>),
    /// Made of stages that nothing more is fused with.
    Rows(Rows),
    Pool(Box<Pool>),
    Cascade(Box<Cascade>),
    Attention(Box<Attention>),
    Stmt(Stmt),
}

impl Item {
    pub fn reads(&self, b: &Buffer) -> bool {
        match self {
            Item::Stage(s) => s.reads(b),
            Item::Rows(r) => r.reads(b),
            Item::Pool(p) => p.reads(b),
            Item::Cascade(c) => c.reads(b),
            Item::Attention(a) => a.reads(b),
            Item::Stmt(s) => stmt_uses(s, b).0,
        }
    }
    pub fn writes(&self, b: &Buffer) -> bool {
        match self {
            Item::Stage(s) => s.writes(b),
            Item::Rows(r) => r.writes(b),
            Item::Pool(p) => p.writes(b),
            Item::Cascade(c) => c.writes(b),
            Item::Attention(a) => a.writes(b),
            Item::Stmt(s) => stmt_uses(s, b).1,
        }
    }
}

/// Whether a statement reads and writes `b`; aliases count as both.
fn stmt_uses(s: &Stmt, b: &Buffer) -> (bool, bool) {
    let (mut reads, mut writes) = (false, false);
    s.walk(&mut |s| {
        reads |= s.exprs().iter().any(|e| loads(e, b));
        match s.kind() {
            StmtKind::Store { buffer, .. } => writes |= buffer == b,
            StmtKind::Block(k) if k.match_buffers.iter().any(|m| m.source.buffer == *b) => {
                (reads, writes) = (true, true)
            }
            _ => {}
        }
    });
    (reads, writes)
}

/// Fuses what it can; `local` are the buffers that live inside the function.
pub fn fuse(items: &mut Vec<Item>, local: &mut Vec<Buffer>) {
    let mut budget = 4 * items.len();
    while budget > 0 && (inline_one(items, local) || epilogue_one(items, local)) {
        budget -= 1;
    }
    local.retain(|b| items.iter().any(|i| i.reads(b) || i.writes(b)));
}

/// The items that read `b`, when its only writer is item `at` and they are stages after it.
fn consumers(items: &[Item], at: usize, b: &Buffer) -> Option<Vec<usize>> {
    let mut found = vec![];
    for (i, item) in items.iter().enumerate() {
        if i != at && item.writes(b) {
            return None;
        }
        if item.reads(b) {
            if i <= at || !matches!(item, Item::Stage(_)) {
                return None;
            }
            found.push(i);
        }
    }
    Some(found)
}

/// The buffers a stage reads.
pub fn sources(s: &Stage) -> Vec<Buffer> {
    let mut out: Vec<Buffer> = vec![];
    for e in s.exprs() {
        e.walk(&mut |n| {
            if let PrimKind::BufferLoad(b, _) = n.kind() {
                if !out.contains(b) {
                    out.push(b.clone());
                }
            }
        });
    }
    out
}

/// Whether the index list is the stage's axes, each once (literal 0 for the others).
fn axis_indices(s: &Stage, indices: &[PrimExpr]) -> Option<Vec<Option<Var>>> {
    let mut used = vec![];
    for i in indices {
        match i.kind() {
            PrimKind::Var(v) if s.spatial.iter().any(|a| a.var == *v) && !used.contains(&Some(v.clone())) => {
                used.push(Some(v.clone()))
            }
            PrimKind::Int(0) => used.push(None),
            _ => return None,
        }
    }
    Some(used)
}

#[derive(Default)]
struct Cost {
    ops: usize,
    calls: usize,
    guards: bool,
}

fn cost(e: &PrimExpr) -> Cost {
    let mut c = Cost::default();
    count(e, &mut c);
    c
}

fn count(e: &PrimExpr, c: &mut Cost) {
    match e.kind() {
        PrimKind::Int(_) | PrimKind::Float(_) | PrimKind::Var(_) => {}
        // Indices are address arithmetic.
        PrimKind::BufferLoad(_, idx) => {
            for n in idx.iter() {
                n.walk(&mut |n| {
                    if let PrimKind::BufferLoad(..) = n.kind() {
                        c.ops += 2;
                    }
                });
            }
            return;
        }
        PrimKind::Call(Intrin::Abs | Intrin::Fabs | Intrin::Likely | Intrin::Sqrt | Intrin::Floor, _) => c.ops += 1,
        PrimKind::Call(..) => c.calls += 1,
        PrimKind::Binary(BinOp::Div | BinOp::FloorDiv | BinOp::FloorMod | BinOp::TruncDiv | BinOp::TruncMod, ..) => {
            c.ops += 3
        }
        PrimKind::IfThenElse(..) => {
            c.guards = true;
            c.ops += 1;
        }
        _ => c.ops += 1,
    }
    for x in e.children() {
        count(x, c);
    }
}

/// Substitutes one elementwise stage into its readers.
fn inline_one(items: &mut Vec<Item>, local: &[Buffer]) -> bool {
    for at in 0..items.len() {
        let Item::Stage(p) = &items[at] else { continue };
        if !p.accs.is_empty() || p.outs.len() != 1 || !local.contains(&p.outs[0].buffer) {
            continue;
        }
        let out = &p.outs[0];
        let Some(axes) = axis_indices(p, &out.indices) else { continue };
        // Every axis must be an index, or the map from elements to points is not known.
        if p.spatial.iter().any(|a| !axes.contains(&Some(a.var.clone()))) || p.reads(&out.buffer) {
            continue;
        }
        let Some(users) = consumers(items, at, &out.buffer) else { continue };
        let Some(last) = users.last().copied() else { continue };
        let sources = sources(p);
        let disturbed = items[at + 1..=last].iter().any(|i| sources.iter().any(|b| i.writes(b)));
        if disturbed || !worth_inlining(p, items, &users) {
            continue;
        }
        let Item::Stage(p) = items.remove(at) else { return false };
        for u in users {
            if let Item::Stage(c) = &mut items[u - 1] {
                let (buffer, value) = (&p.outs[0].buffer, &p.outs[0].value);
                c.map_exprs(&mut |e| inline(e, buffer, &axes, value));
            }
        }
        return true;
    }
    false
}

fn inline(e: &PrimExpr, b: &Buffer, axes: &[Option<Var>], value: &PrimExpr) -> PrimExpr {
    let e = e.map_children(&mut |c| inline(c, b, axes, value));
    match e.kind() {
        PrimKind::BufferLoad(x, idx) if x == b => {
            let map: HashMap<Var, PrimExpr> = axes
                .iter()
                .zip(idx.iter())
                .filter_map(|(v, i)| v.clone().map(|v| (v, i.clone().cast(relax_ir::DType::I64))))
                .collect();
            value.substitute(&map)
        }
        _ => e,
    }
}

fn any(e: &PrimExpr, is: &dyn Fn(&PrimExpr) -> bool) -> bool {
    let mut found = false;
    e.walk(&mut |n| found |= is(n));
    found
}

/// Whether `e` reads an element whose index is read from memory.
fn chosen_by_data(e: &PrimExpr) -> bool {
    let is_load = |e: &PrimExpr| matches!(e.kind(), PrimKind::BufferLoad(..));
    any(e, &|n| is_load(n) && n.children().iter().any(|i| any(i, &is_load)))
}

/// Whether an arm of a selection in `e` reads elements of `b` beside its axes: it may drop what lies beyond the last.
fn may_be_dropped(e: &PrimExpr, b: &Buffer) -> bool {
    let plain = |i: &PrimExpr| matches!(i.kind(), PrimKind::Var(_) | PrimKind::Int(_));
    let beside = |n: &PrimExpr| matches!(n.kind(), PrimKind::BufferLoad(x, idx) if x == b && !idx.iter().all(plain));
    any(e, &|n| matches!(n.kind(), PrimKind::Select(_, x, y) if any(x, &beside) || any(y, &beside)))
}

/// Whether recomputing `p` at every use costs less than the trip through memory.
fn worth_inlining(p: &Stage, items: &[Item], users: &[usize]) -> bool {
    let b = &p.outs[0].buffer;
    let value = &p.outs[0].value;
    let c = cost(value);
    let trivial = c.ops <= 1 && c.calls == 0 && !c.guards;
    let mut places: Vec<(usize, PrimExpr)> = vec![];
    let mut repeated = false;
    let mut reductions = false;
    let mut size = 0;
    for &u in users {
        let Item::Stage(s) = &items[u] else { return false };
        for e in s.exprs() {
            e.walk(&mut |n| {
                size += 1;
                if matches!(n.kind(), PrimKind::BufferLoad(x, _) if x == b) && !places.contains(&(u, n.clone())) {
                    places.push((u, n.clone()));
                }
            });
        }
        let in_update = s.accs.iter().any(|a| loads(&a.update, b));
        if in_update && s.window.is_some() {
            // Its kernel takes data from memory.
            return false;
        }
        reductions |= in_update;
        let axes = s.spatial.iter().chain(s.reduce.iter().filter(|_| in_update));
        for a in axes.filter(|a| a.len() != Some(1)) {
            repeated |= places.iter().any(|(v, n)| *v == u && !n.uses(&a.var));
        }
        // Indices that are not plain variables may visit an element many times (windows).
        repeated |= in_update
            && places.iter().any(|(v, n)| {
                *v == u
                    && n.children()
                        .iter()
                        .any(|i| s.reduce.iter().filter(|r| i.uses(&r.var)).count() > 0 && i.as_var().is_none())
            });
    }
    if size > 2000 {
        return false;
    }
    // What lies beyond the last element may be read where a selection drops it; as an index it would choose any address.
    let drops = |u: &usize| matches!(&items[*u], Item::Stage(s) if s.exprs().any(|e| may_be_dropped(e, b)));
    if chosen_by_data(value) && (places.iter().any(|(_, n)| chosen_by_data(n)) || users.iter().any(drops)) {
        return false;
    }
    if c.guards && reductions {
        return false;
    }
    if trivial {
        return true;
    }
    if repeated {
        return false;
    }
    places.len() <= 1 || (c.calls == 0 && c.ops * (places.len() - 1) <= 6)
}

/// Turns one elementwise stage into the epilogue of the reduction that it reads.
fn epilogue_one(items: &mut Vec<Item>, local: &[Buffer]) -> bool {
    for at in 0..items.len() {
        let Item::Stage(r) = &items[at] else { continue };
        if r.accs.is_empty() || r.outs.len() != 1 || !local.contains(&r.outs[0].buffer) {
            continue;
        }
        let out = &r.outs[0];
        let Some(users) = consumers(items, at, &out.buffer) else { continue };
        let [user] = users.as_slice() else { continue };
        let Item::Stage(c) = &items[*user] else { continue };
        let sources = sources(r);
        let disturbed = items[at + 1..=*user].iter().any(|i| sources.iter().any(|b| i.writes(b)));
        if !c.accs.is_empty() || disturbed {
            continue;
        }
        let Some(map) = point_by_point(r, c) else { continue };
        let own = PrimExpr::load(&out.buffer, load_indices(c, &out.buffer).unwrap_or_default());
        let value = out.value.clone();
        let mut outs = c.outs.clone();
        for o in &mut outs {
            o.value = super::stage::replace(&o.value, &own, &value).substitute(&map);
            for i in &mut o.indices {
                *i = i.substitute(&map);
            }
        }
        let (user, mut fused) = (*user, r.clone());
        fused.outs = outs;
        items[user] = Item::Stage(fused);
        items.remove(at);
        return true;
    }
    false
}

/// The only index list with which `c` loads `b`.
fn load_indices(c: &Stage, b: &Buffer) -> Option<Vec<PrimExpr>> {
    let mut found: Vec<Vec<PrimExpr>> = vec![];
    for e in c.exprs() {
        e.walk(&mut |n| {
            if let PrimKind::BufferLoad(x, idx) = n.kind() {
                if x == b && !found.iter().any(|f| f.as_slice() == &idx[..]) {
                    found.push(idx.to_vec());
                }
            }
        });
    }
    match found.len() {
        1 => found.pop(),
        _ => None,
    }
}

/// When `c` reads each element of `r`'s output exactly once: its axes in terms of those of `r`.
fn point_by_point(r: &Stage, c: &Stage) -> Option<HashMap<Var, PrimExpr>> {
    let out = &r.outs[0];
    let writes = axis_indices(r, &out.indices)?;
    if r.spatial.iter().any(|a| !writes.contains(&Some(a.var.clone()))) {
        return None;
    }
    let reads = axis_indices(c, &load_indices(c, &out.buffer)?)?;
    let extent = |s: &Stage, v: &Var| s.spatial.iter().find(|a| a.var == *v).map(|a| a.extent.clone());
    let mut map = HashMap::new();
    for (w, x) in writes.iter().zip(&reads) {
        match (w, x) {
            (Some(w), Some(x)) if extent(r, w) == extent(c, x) => drop(map.insert(x.clone(), w.expr())),
            (Some(w), None) if extent(r, w).is_some_and(|e| e.is_int(1)) => {}
            (None, Some(x)) if extent(c, x).is_some_and(|e| e.is_int(1)) => {
                drop(map.insert(x.clone(), PrimExpr::i64(0)))
            }
            (None, None) => {}
            _ => return None,
        }
    }
    for a in &c.spatial {
        if !map.contains_key(&a.var) {
            if !a.extent.is_int(1) {
                return None;
            }
            map.insert(a.var.clone(), PrimExpr::i64(0));
        }
    }
    Some(map)
}
