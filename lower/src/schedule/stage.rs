//! Stages: computations of whole buffers, recognised from plain loop nests around a block.

use super::emit::has_load;
use super::product::Given;
use super::window::Window;
use relax_ir::prim::PrimKind;
use relax_ir::tir::{Block, Buffer, IterKind, Stmt, StmtKind};
use relax_ir::{DType, PrimExpr, Span, Var};
use std::collections::HashMap;

/// An int64 loop variable over `[0, extent)`.
#[derive(Clone, Debug)]
pub struct Axis {
    pub var: Var,
    pub extent: PrimExpr,
}

impl Axis {
    /// The extent, when it is a literal.
    pub fn len(&self) -> Option<i64> {
        self.extent.as_int()
    }
}

/// `acc = init; for the reduction axes: acc = update` (`update` mentions `acc`).
#[derive(Clone, Debug)]
pub struct Acc {
    pub var: Var,
    pub init: PrimExpr,
    pub update: PrimExpr,
}

/// `buffer[indices] = value`
#[derive(Clone, Debug)]
pub struct Out {
    pub buffer: Buffer,
    pub indices: Vec<PrimExpr>,
    pub value: PrimExpr,
}

/// For every point of the spatial axes, in any order: runs the reductions, then stores the outputs, whose values may
/// mention the accumulators. All outputs and accumulators of a point are computed from the state before it.
#[derive(Clone, Debug)]
pub struct Stage {
    pub spatial: Vec<Axis>,
    pub reduce: Vec<Axis>,
    pub accs: Vec<Acc>,
    pub outs: Vec<Out>,
    pub span: Span,
    /// A window operator with kernels of its own.
    pub window: Option<Window>,
    /// The register tile that a product has been given.
    pub given: Option<Given>,
}

impl Stage {
    /// Every expression that is evaluated, indices of outputs included.
    pub fn exprs(&self) -> impl Iterator<Item = &PrimExpr> {
        let accs = self.accs.iter().flat_map(|a| [&a.init, &a.update]);
        accs.chain(self.outs.iter().flat_map(|o| o.indices.iter().chain([&o.value])))
    }

    pub fn map_exprs(&mut self, f: &mut dyn FnMut(&PrimExpr) -> PrimExpr) {
        for a in &mut self.accs {
            a.init = f(&a.init);
            a.update = f(&a.update);
        }
        for o in &mut self.outs {
            for i in &mut o.indices {
                *i = f(i);
            }
            o.value = f(&o.value);
        }
    }

    pub fn substitute(&mut self, map: &HashMap<Var, PrimExpr>) {
        self.map_exprs(&mut |e| e.substitute(map));
    }

    pub fn writes(&self, b: &Buffer) -> bool {
        self.outs.iter().any(|o| o.buffer == *b)
    }

    pub fn reads(&self, b: &Buffer) -> bool {
        let mut found = false;
        for e in self.exprs() {
            e.walk(&mut |n| found |= matches!(n.kind(), PrimKind::BufferLoad(x, _) if x == b));
        }
        found
    }
}

/// Recognises a loop nest that computes buffers point by point; `None` for everything else.
pub fn recognise(s: &Stmt) -> Option<Stage> {
    let mut loops: Vec<(Var, PrimExpr, PrimExpr)> = vec![];
    let mut inner = s;
    let block = loop {
        match inner.kind() {
            StmtKind::For { var, min, extent, body, .. } => {
                if extent.vars().iter().any(|v| loops.iter().any(|(w, ..)| w == v)) {
                    return None;
                }
                loops.push((var.clone(), min.clone(), extent.clone()));
                inner = body;
            }
            StmtKind::Block(b) => break b,
            _ => return None,
        }
    };
    if block.predicate.is_some() || !block.alloc_buffers.is_empty() || !block.match_buffers.is_empty() {
        return None;
    }
    let mut map = HashMap::new();
    let (mut spatial, mut reduce) = (vec![], vec![]);
    for a in &block.axes {
        let binding = match a.binding.kind() {
            PrimKind::Cast(x) => x,
            _ => &a.binding,
        };
        if let Some(c) = binding.as_int() {
            map.insert(a.var.clone(), PrimExpr::int(a.var.dtype(), c));
            continue;
        }
        let at = loops.iter().position(|(v, ..)| Some(v) == binding.as_var());
        let Some(at) = at else {
            // Of a loop around the stage: a step of a recurrence.
            let step = binding.as_var().filter(|_| a.kind == IterKind::Spatial)?;
            map.insert(a.var.clone(), step.expr().cast(a.var.dtype()));
            continue;
        };
        let (lv, min, extent) = loops.remove(at);
        let extent = extent.cast(DType::I64);
        let var = Var::new(lv.name(), DType::I64);
        let value = var.expr() + min.cast(DType::I64);
        map.insert(a.var.clone(), value.clone().cast(a.var.dtype()));
        map.insert(lv.clone(), value.cast(lv.dtype()));
        match a.kind {
            IterKind::Spatial => spatial.push(Axis { var, extent }),
            IterKind::Reduce => reduce.push(Axis { var, extent }),
            IterKind::Scan | IterKind::Opaque => return None,
        }
    }
    // A loop that no axis is bound to repeats the block: only harmless when it runs once.
    for (v, min, extent) in &loops {
        if !extent.is_int(1) {
            return None;
        }
        map.insert(v.clone(), min.clone());
    }
    let mut stage = body(block, s.span())?;
    stage.spatial = spatial;
    stage.reduce = reduce;
    stage.substitute(&map);
    valid(&stage).then_some(stage)
}

/// The stores of a block's body, with lets substituted.
fn stores(s: &Stmt, lets: &mut HashMap<Var, PrimExpr>, out: &mut Vec<Out>) -> Option<()> {
    match s.kind() {
        StmtKind::Seq(v) => v.iter().try_for_each(|s| stores(s, lets, out)),
        StmtKind::Let { var, value, body } => {
            if out.iter().any(|o| loads(value, &o.buffer)) {
                return None;
            }
            lets.insert(var.clone(), value.substitute(lets));
            stores(body, lets, out)
        }
        StmtKind::Store { buffer, indices, value } => {
            // A direct load of what the statement before has stored would see the new value.
            let fresh = |o: &Out| loads(value, &o.buffer) || indices.iter().any(|i| loads(i, &o.buffer));
            if out.iter().any(|o| fresh(o) || o.buffer == *buffer) {
                return None;
            }
            let indices = indices.iter().map(|i| i.substitute(lets)).collect();
            out.push(Out { buffer: buffer.clone(), indices, value: value.substitute(lets) });
            Some(())
        }
        StmtKind::Attr { body, .. } => stores(body, lets, out),
        StmtKind::Evaluate(_) => Some(()),
        _ => None,
    }
}

fn body(block: &Block, span: Span) -> Option<Stage> {
    let mut outs = vec![];
    stores(&block.body, &mut HashMap::new(), &mut outs)?;
    if outs.is_empty() {
        return None;
    }
    let (window, given) = (Window::of(&block.attrs), Given::of(&block.attrs));
    let mut stage = Stage { spatial: vec![], reduce: vec![], accs: vec![], outs, span, window, given };
    if !block.axes.iter().any(|a| a.kind == IterKind::Reduce) && block.init.is_none() {
        return Some(stage);
    }
    let mut inits = vec![];
    if let Some(init) = &block.init {
        stores(init, &mut HashMap::new(), &mut inits)?;
        if inits.len() != stage.outs.len() {
            return None;
        }
    }
    let mut own = vec![];
    for o in &stage.outs {
        let init = match inits.iter().find(|i| i.buffer == o.buffer) {
            Some(i) if i.indices == o.indices && !stage.outs.iter().any(|o| loads(&i.value, &o.buffer)) => {
                i.value.clone()
            }
            None if inits.is_empty() => PrimExpr::load(&o.buffer, o.indices.clone()),
            _ => return None,
        };
        let var = Var::new("acc", o.buffer.dtype());
        own.push((PrimExpr::load(&o.buffer, o.indices.clone()), Acc { var, init, update: o.value.clone() }));
    }
    // What the update reads of its own outputs is the accumulator.
    for i in 0..own.len() {
        let mut update = own[i].1.update.clone();
        for (load, acc) in &own {
            update = replace(&update, load, &acc.var.expr());
        }
        if stage.outs.iter().any(|o| loads(&update, &o.buffer)) {
            return None;
        }
        own[i].1.update = update;
    }
    for (o, (_, acc)) in stage.outs.iter_mut().zip(&own) {
        o.value = acc.var.expr();
    }
    stage.accs = own.into_iter().map(|(_, a)| a).collect();
    Some(stage)
}

/// Whether the points of the stage are independent of one another.
fn valid(s: &Stage) -> bool {
    let reduce = |e: &PrimExpr| s.reduce.iter().any(|r| e.uses(&r.var));
    let no_vectors = |e: &PrimExpr| {
        let mut ok = true;
        e.walk(&mut |n| ok &= n.dtype().lanes == 1 && !matches!(n.kind(), PrimKind::Str(_)));
        ok
    };
    let accs_ok = s.accs.iter().all(|a| !reduce(&a.init));
    let outs_ok = s.outs.iter().all(|o| !o.indices.iter().any(reduce) && !reduce(&o.value));
    // In place: the value may read what it overwrites, nothing else of that buffer.
    let in_place = s.outs.iter().all(|o| {
        let own = PrimExpr::load(&o.buffer, o.indices.clone());
        let hole = PrimExpr::zero(o.buffer.dtype());
        s.exprs().all(|e| !loads(&replace(e, &own, &hole), &o.buffer))
    });
    // Which point wins when two write the same element is known for scalar loops in order only. Points with places of their
    // own along some axes do not.
    let own = |o: &Out| {
        let stripped = |i: &PrimExpr| match i.kind() {
            PrimKind::Cast(x) => x.as_var().cloned(),
            _ => i.as_var().cloned(),
        };
        s.spatial.iter().all(|a| o.indices.iter().any(|i| stripped(i).as_ref() == Some(&a.var)))
    };
    let plain = s.outs.iter().all(|o| own(o) || !o.indices.iter().any(has_load));
    accs_ok && outs_ok && in_place && plain && s.exprs().all(no_vectors)
}

pub fn loads(e: &PrimExpr, b: &Buffer) -> bool {
    let mut found = false;
    e.walk(&mut |n| found |= matches!(n.kind(), PrimKind::BufferLoad(x, _) if x == b));
    found
}

/// Replaces every occurrence of `from`.
pub fn replace(e: &PrimExpr, from: &PrimExpr, to: &PrimExpr) -> PrimExpr {
    if e == from {
        return to.clone();
    }
    e.map_children(&mut |c| replace(c, from, to))
}
