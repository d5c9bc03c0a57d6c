//! Tensors that are parts of others: what a concatenation puts together is written there in the first place, and what
//! cuts a tensor reads it where it is.
//!
//! A statement of a kernel that only moves elements ([`Move`]) need not run when one of its two tensors can live inside
//! of the other. Where such a part is a piece of memory, its users get another address. Where it has gaps (channels of
//! channels-last data) they become kernels with strides. A tensor becomes a part when one kernel writes it, in a
//! straight line of steps, when nobody sees a part change, and when the workspace does not grow.

use super::memory;
use super::plan::Plan;
use super::slice::touched;
use super::value::*;
use crate::fuse::rebuild;
use crate::schedule::{self, Move};
use crate::threads::Room;
use relax_ir::op::ShapeFacts;
use relax_ir::sym::Facts;
use relax_ir::tir::{Buffer, PrimFunc, PrimParam, Stmt};
use relax_ir::{DType, Func, IRModule, PrimExpr, Var};
use std::collections::{HashMap, HashSet};

/// A tensor inside of another one.
#[derive(Clone)]
struct Part {
    of: BufId,
    /// Bytes from its beginning.
    at: PrimExpr,
    /// Dims and strides where it has gaps; the first dim is -1 when it is open.
    gaps: Option<(Vec<i64>, Vec<i64>)>,
    /// The step that would have moved it.
    step: usize,
}

/// A buffer as a parameter of a kernel.
struct Use {
    step: usize,
    param: usize,
    writes: bool,
}

/// How the steps use a buffer.
#[derive(Default)]
struct Life {
    uses: Vec<Use>,
    /// Also by something else than a kernel, or in a branch.
    otherwise: bool,
    first: Option<usize>,
    written: Option<usize>,
}

/// Decisions so far: parts by buffer, and statements that need not run by step.
#[derive(Clone, Default)]
struct Decided {
    parts: Vec<Option<Part>>,
    left_out: HashMap<usize, HashSet<usize>>,
}

struct Parts<'a> {
    bufs: &'a [Buf],
    steps: &'a [Step],
    lives: Vec<Life>,
    /// How many checks there are before each step.
    checks: Vec<usize>,
    /// The step that names a dim which data decides.
    named: HashMap<&'a Var, usize>,
    kernels: HashMap<String, PrimFunc>,
    /// Those that do nothing but move.
    moves_only: HashSet<String>,
    room: Room,
    /// Results have dims that data decides.
    open: bool,
}

/// Makes tensors of `plan` parts of others where that saves a copy. Kernels with strides are added to `made`.
pub fn parts(plan: &mut Plan, module: &IRModule, made: &mut Vec<PrimFunc>, room: Room) {
    // What decides open dims is found by following whole buffers.
    if !plan.unbounded.is_empty() {
        return;
    }
    let mut names: HashSet<&str> = HashSet::new();
    names.extend(plan.steps.iter().filter_map(|s| match s {
        Step::Kernel { kernel, .. } => Some(kernel.as_str()),
        _ => None,
    }));
    let funcs = module.funcs.iter().filter_map(|f| match f {
        Func::Prim(p) => Some(p),
        _ => None,
    });
    let all = funcs.chain(made.iter()).filter(|p| names.contains(p.name.as_str()));
    let kernels: HashMap<String, PrimFunc> = all.map(|p| (p.name.clone(), p.clone())).collect();
    let mut moving: HashMap<&str, Vec<Move>> = kernels.iter().map(|(n, f)| (n.as_str(), schedule::moves(f))).collect();
    moving.retain(|_, m| !m.is_empty());
    if moving.is_empty() {
        return;
    }
    let only =
        |(n, m): (&&str, &Vec<Move>)| (schedule::statements(&kernels[*n]).len() == m.len()).then(|| n.to_string());
    let p = Parts {
        moves_only: moving.iter().filter_map(only).collect(),
        bufs: &plan.bufs,
        steps: &plan.steps,
        lives: lives(plan),
        checks: checks_before(&plan.steps),
        named: named(&plan.steps),
        room,
        open: !plan.bounds.is_empty(),
        kernels: kernels.clone(),
    };
    let decided = p.decide(&moving);
    let (steps, bufs) = p.apply(decided, module, made);
    (plan.steps, plan.bufs) = (steps, bufs);
}

fn checks_before(steps: &[Step]) -> Vec<usize> {
    let mut seen = 0;
    let count = |s: &Step| {
        let before = seen;
        seen += usize::from(matches!(s, Step::Check { .. }));
        before
    };
    steps.iter().map(count).collect()
}

fn named(steps: &[Step]) -> HashMap<&Var, usize> {
    let reads = steps.iter().enumerate().filter_map(|(i, s)| match s {
        Step::Read { var, .. } => Some((var, i)),
        _ => None,
    });
    reads.collect()
}

fn lives(plan: &Plan) -> Vec<Life> {
    let mut out: Vec<Life> = plan.bufs.iter().map(|_| Life::default()).collect();
    for (step, s) in plan.steps.iter().enumerate() {
        if let Step::Kernel { buffers, reads, scratch, .. } = s {
            for (param, (b, reads)) in buffers.iter().zip(reads).enumerate() {
                let life = &mut out[b.0];
                life.first.get_or_insert(step);
                life.uses.push(Use { step, param, writes: !reads });
                life.written = if *reads { life.written } else { Some(step) };
            }
            scratch.iter().for_each(|b| out[b.0].otherwise = true);
            continue;
        }
        for b in touched(s) {
            let life = &mut out[b.0];
            life.first.get_or_insert(step);
            life.otherwise = true;
            life.written = if matches!(s, Step::Read { .. }) { life.written } else { Some(step) };
        }
    }
    out
}

impl Parts<'_> {
    fn decide(&self, moving: &HashMap<&str, Vec<Move>>) -> Decided {
        let none = Decided { parts: vec![None; self.bufs.len()], left_out: HashMap::new() };
        let before = self.least(&none);
        // The last first: what it puts together may be what those before it put together, and more.
        let mut all = none.clone();
        (0..self.steps.len()).rev().for_each(|i| self.step(i, moving, &mut all));
        if all.left_out.is_empty() || self.least(&all) <= before {
            return all;
        }
        let mut some = none;
        for i in (0..self.steps.len()).rev() {
            let mut more = some.clone();
            self.step(i, moving, &mut more);
            if more.left_out.len() > some.left_out.len() && self.least(&more) <= before {
                some = more;
            }
        }
        some
    }

    /// Bytes that are in use at once at the worst step, with a number for what is open.
    fn least(&self, d: &Decided) -> i64 {
        let size = |e: &PrimExpr| {
            let map: HashMap<Var, PrimExpr> =
                e.vars().into_iter().map(|v| (v.clone(), PrimExpr::int(v.dtype(), 64))).collect();
            e.substitute(&map).as_int().unwrap_or(0)
        };
        memory::least(&self.placed(d), self.steps, &size)
    }

    /// The buffers as they would be.
    fn placed(&self, d: &Decided) -> Vec<Buf> {
        let mut bufs = self.bufs.to_vec();
        for (i, b) in bufs.iter_mut().enumerate() {
            let (mut of, mut at) = (BufId(i), PrimExpr::i64(0));
            while let Some(p) = &d.parts[of.0] {
                (of, at) = (p.of, at + p.at.clone());
            }
            if of.0 != i {
                b.place = Place::Part { of, at };
            }
        }
        bufs
    }

    /// Makes parts of what step `i` moves.
    fn step(&self, i: usize, moving: &HashMap<&str, Vec<Move>>, d: &mut Decided) {
        let Step::Kernel { kernel, buffers, dims, .. } = &self.steps[i] else { return };
        let (Some(f), Some(list)) = (self.kernels.get(kernel), moving.get(kernel.as_str())) else { return };
        let map: HashMap<Var, PrimExpr> = crate::kernel_dims(f).into_iter().zip(dims.iter().cloned()).collect();
        if map.keys().any(|v| v.dtype() != DType::I64) {
            return;
        }
        let value = |e: &PrimExpr| e.substitute(&map);
        let of = |b: &Buffer| f.buffers().position(|p| p == b).and_then(|at| buffers.get(at)).copied();
        if let Some((id, part)) = self.together(f, list, &of, i, d) {
            d.parts[id.0] = Some(part);
            d.left_out.insert(i, list.iter().map(|m| m.stmt).collect());
            return;
        }
        // Whether the step has nothing else to do with a tensor than this move. What is moved to two places, as by
        // `concat((b, b))`, can lie in one of them only, and whoever else reads it here would look for it without gaps.
        let only = |m: &Move, b: &Buffer| {
            let once = of(b).is_some_and(|b| buffers.iter().filter(|x| **x == b).count() == 1);
            let others = schedule::statements(f).iter().enumerate().filter(|(n, _)| *n != m.stmt);
            once && others.into_iter().all(|(_, s)| !schedule::touches(s, b))
        };
        // What lies there before the step begins is not written over by a statement before the move.
        let last = |m: &Move| schedule::statements(f).iter().take(m.stmt).all(|s| schedule::apart(s, m));
        for m in list {
            let (Some(from), Some(to)) = (of(&m.from), of(&m.to)) else { continue };
            let zero = |at: &[PrimExpr]| at.iter().all(|e| e.is_int(0));
            let found = if zero(&m.from_at)
                && m.extent == m.from.shape
                && only(m, &m.from)
                && last(m)
                && self.may_begin_in(from, to, i, d)
            {
                let part = self.part(from, to, (&m.from, &m.to, &m.to_at), &value, i, d);
                part.filter(|p| self.known_to_maker(from, p, d)).map(|p| (from, p))
            } else if zero(&m.to_at) && m.extent == m.to.shape && only(m, &m.to) && self.may_stay_in(to, from, i, d) {
                self.part(to, from, (&m.to, &m.from, &m.from_at), &value, i, d).map(|p| (to, p))
            } else {
                None
            };
            if let Some((id, part)) = found {
                d.parts[id.0] = Some(part);
                d.left_out.entry(i).or_default().insert(m.stmt);
            }
        }
    }

    /// What step `i` puts together when that lies side by side already, inside of something larger.
    fn together(
        &self,
        f: &PrimFunc,
        list: &[Move],
        of: &dyn Fn(&Buffer) -> Option<BufId>,
        i: usize,
        d: &Decided,
    ) -> Option<(BufId, Part)> {
        let whole = |dims: &[PrimExpr]| PrimExpr::product(dims).as_int();
        let to = &list.first()?.to;
        let moved: i64 = list.iter().map(|m| whole(&m.extent)).sum::<Option<i64>>()?;
        let all = list.len() == schedule::statements(f).len() && list.iter().all(|m| m.to == *to);
        if list.len() < 2 || !all || moved != whole(&to.shape)? {
            return None;
        }
        let parts: Vec<&Part> =
            list.iter().map(|m| d.parts[of(&m.from)?.0].as_ref()).collect::<Option<_>>().unwrap_or_default();
        let first = parts.first()?;
        let (_, strides) = first.gaps.as_ref()?;
        let bytes = to.dtype().bytes() as i64;
        let begins = |m: &Move, p: &Part| {
            let zero = m.from_at.iter().all(|e| e.is_int(0)) && m.extent == m.from.shape;
            let at = m.to_at.iter().zip(strides).map(|(i, s)| Some(i.as_int()? * s)).sum::<Option<i64>>()?;
            let same = p.of == first.of && p.gaps.as_ref().is_some_and(|(_, s)| s == strides);
            (zero && same).then_some(p.at.as_int()? - at * bytes)
        };
        let begins: Vec<i64> = list.iter().zip(&parts).map(|(m, p)| begins(m, p)).collect::<Option<_>>()?;
        let dims = to.shape.iter().map(PrimExpr::as_int).collect::<Option<_>>()?;
        let id = of(to)?;
        let life = &self.lives[id.0];
        let alone = matches!(self.bufs[id.0].place, Place::Workspace) && !life.otherwise && d.parts[id.0].is_none();
        let fresh = life.first == Some(i) && life.uses.iter().filter(|u| u.writes || u.step == i).count() == 1;
        let size = same_size(&self.bufs[id.0].bytes, &super::byte_size(&to.shape, to.dtype()));
        let at = PrimExpr::i64(*begins.first()?);
        let part = Part { of: first.of, at, gaps: Some((dims, strides.clone())), step: i };
        let same = begins.iter().all(|b| Some(b) == begins.first());
        // Its own parts are all that the step that puts the larger one together writes there.
        let since = first.step.max(i);
        let fits = alone && fresh && size && same && self.unseen(id, first.of, since, d);
        let fits = fits && !self.checked_between(i, first.step) && self.accepted(id, &part, d);
        fits.then_some((id, part))
    }

    /// Whether `a`, which step `i` would copy into `b`, can be written there by who makes it.
    fn may_begin_in(&self, a: BufId, b: BufId, i: usize, d: &Decided) -> bool {
        let (x, y) = (&self.lives[a.0], &self.lives[b.0]);
        let place = match self.bufs[b.0].place {
            Place::Workspace => true,
            Place::Result(_) => !self.open,
            _ => false,
        };
        let alone = matches!(self.bufs[a.0].place, Place::Workspace) && !x.otherwise && d.parts[a.0].is_none();
        let maker = x.uses.first().filter(|u| u.writes && u.step < i).map(|u| u.step);
        let once = x.uses.iter().filter(|u| u.writes || Some(u.step) == maker).count() == 1;
        // A check in between may be what says that `a` fits into `b`.
        let once = once && maker.is_none_or(|m| !self.checked_between(m, i));
        let fresh = y.first == Some(i) && y.uses.iter().filter(|u| u.step == i).count() == 1;
        let own = d.parts[b.0].as_ref().is_none_or(|p| p.step > i);
        a != b && place && alone && once && fresh && own && self.unseen(a, b, i, d)
    }

    /// Whether `b`, which step `i` would copy out of `a`, can stay there.
    fn may_stay_in(&self, b: BufId, a: BufId, i: usize, d: &Decided) -> bool {
        let (x, y) = (&self.lives[a.0], &self.lives[b.0]);
        let alone = matches!(self.bufs[b.0].place, Place::Workspace) && !y.otherwise && d.parts[b.0].is_none();
        let fresh = y.first == Some(i) && y.uses.iter().filter(|u| u.writes || u.step == i).count() == 1;
        let done = x.written.is_none_or(|w| w < i);
        a != b && alone && fresh && done && self.unseen(b, a, i, d)
    }

    /// Whether it is known where `part` lies when `a` is made: a dim that data decides may get its value later.
    fn known_to_maker(&self, a: BufId, part: &Part, d: &Decided) -> bool {
        let maker = self.lives[a.0].first;
        let later = |p: &Part| p.at.vars().iter().any(|v| self.named.get(v).is_some_and(|i| Some(*i) > maker));
        let mut around = std::iter::successors(Some(part), |p| d.parts[p.of.0].as_ref());
        !around.any(later)
    }

    fn checked_between(&self, a: usize, b: usize) -> bool {
        self.checks[a] != self.checks[b]
    }

    /// Whether nobody writes to `whole` (and what that is a part of) while `part` is still used, from step `i` on.
    fn unseen(&self, part: BufId, whole: BufId, i: usize, d: &Decided) -> bool {
        let last = self.last(part, d);
        let (mut whole, mut since) = (whole, i);
        loop {
            if last > since && self.lives[whole.0].written.is_some_and(|w| w > since) {
                return false;
            }
            match &d.parts[whole.0] {
                Some(p) => (whole, since) = (p.of, p.step.max(i)),
                None => return true,
            }
        }
    }

    /// The last step that uses a buffer or a part of it.
    fn last(&self, b: BufId, d: &Decided) -> usize {
        let own = self.lives[b.0].uses.iter().map(|u| u.step).max().unwrap_or(0);
        let inside = d.parts.iter().enumerate().filter(|(_, p)| p.as_ref().is_some_and(|p| p.of == b));
        inside.map(|(k, _)| self.last(BufId(k), d)).fold(own, usize::max)
    }

    /// `a` as a part of `b`, beginning at `at`; parameters of the moving kernel stand for both.
    fn part(
        &self,
        a: BufId,
        b: BufId,
        (of_a, of_b, at): (&Buffer, &Buffer, &[PrimExpr]),
        value: &dyn Fn(&PrimExpr) -> PrimExpr,
        step: usize,
        d: &Decided,
    ) -> Option<Part> {
        let shape = |b: &Buffer| b.shape.iter().map(value).collect::<Vec<_>>();
        let (dims, around) = (shape(of_a), shape(of_b));
        let bytes = of_a.dtype().bytes() as i64;
        // A view of either with other dims lies elsewhere.
        if !same_size(&self.bufs[a.0].bytes, &super::byte_size(&dims, of_a.dtype())) {
            return None;
        }
        let strides = match d.parts[b.0].as_ref().and_then(|p| p.gaps.as_ref()) {
            Some((known, strides)) => {
                let same = known.len() == around.len()
                    && known.iter().zip(&around).all(|(k, a)| *k == -1 || a.as_int() == Some(*k));
                same.then(|| strides.iter().map(|&s| PrimExpr::i64(s)).collect())?
            }
            None => dense(&around),
        };
        let offset = at.iter().zip(&strides).fold(PrimExpr::i64(0), |n, (i, s)| n + value(i) * s.clone()) * bytes;
        let gapless = dims.iter().zip(&strides).zip(dense(&dims)).all(|((d, s), own)| d.is_int(1) || *s == own);
        let gaps = match gapless {
            true => None,
            false => {
                let mut known: Vec<i64> = dims.iter().map(|d| d.as_int().unwrap_or(-1)).collect();
                let strides: Vec<i64> = strides.iter().map(PrimExpr::as_int).collect::<Option<_>>()?;
                known.iter().skip(1).all(|d| *d >= 0).then_some(())?;
                known.iter_mut().for_each(|d| *d = (*d).max(-1));
                offset.as_int()?;
                Some((known, strides))
            }
        };
        let part = Part { of: b, at: offset, gaps, step };
        self.accepted(a, &part, d).then_some(part)
    }

    /// Whether all users of `a`, but for the step that would move it, can take it as this part; so too parts of it.
    fn accepted(&self, a: BufId, part: &Part, d: &Decided) -> bool {
        let Some((dims, strides)) = &part.gaps else { return true };
        // Its own parts were laid out without gaps.
        if d.parts.iter().flatten().any(|p| p.of == a) {
            return false;
        }
        let users = self.lives[a.0].uses.iter().filter(|u| u.step != part.step);
        users.into_iter().all(|u| {
            let Step::Kernel { kernel, .. } = &self.steps[u.step] else { return false };
            let Some(f) = self.kernels.get(kernel) else { return false };
            let Some(b) = f.buffers().nth(u.param) else { return false };
            let dim = |(d, s): (&i64, &PrimExpr)| *d == -1 || s.as_int() == Some(*d);
            let shape = b.ndim() == dims.len() && dims.iter().zip(&b.shape).all(dim);
            if shape && self.moves_only.contains(kernel) {
                return true;
            }
            if !shape || crate::integer::in_library(f) || !schedule::takes_strides(f, b, strides) {
                return false;
            }
            let strided = with_strides(f, &HashMap::from([(u.param, strides.clone())]));
            strided.is_some_and(|s| self.room.all(&s) == self.room.all(f))
        })
    }

    /// The steps and buffers as they are now.
    fn apply(&self, d: Decided, module: &IRModule, made: &mut Vec<PrimFunc>) -> (Vec<Step>, Vec<Buf>) {
        let mut steps = vec![];
        for (i, s) in self.steps.iter().enumerate() {
            let changed = match s {
                Step::Kernel { kernel, buffers, .. } => self.kernels.get(kernel).map(|f| (f, buffers)),
                _ => None,
            };
            let Some((f, buffers)) = changed else {
                steps.push(s.clone());
                continue;
            };
            let mut f = f.clone();
            let mut strides: HashMap<usize, Vec<i64>> = HashMap::new();
            for (at, b) in buffers.iter().enumerate() {
                if let Some(part) = d.parts[b.0].as_ref().filter(|p| p.step != i) {
                    strides.extend(part.gaps.as_ref().map(|(_, s)| (at, s.clone())));
                }
            }
            if let Some(left_out) = d.left_out.get(&i) {
                let all = schedule::statements(&f);
                let kept = all.iter().enumerate().filter(|(n, _)| !left_out.contains(n)).map(|(_, s)| s.clone());
                let kept: Vec<Stmt> = kept.collect();
                if kept.is_empty() {
                    continue;
                }
                f.body = Stmt::seq(kept);
            } else if strides.is_empty() {
                steps.push(s.clone());
                continue;
            }
            let Some(mut f) = with_strides(&f, &strides) else {
                steps.push(s.clone());
                continue;
            };
            crate::share::place(&mut f, module, made);
            let mut s = s.clone();
            if let Step::Kernel { kernel, .. } = &mut s {
                *kernel = f.name;
            }
            steps.push(s);
        }
        (steps, self.placed(&d))
    }
}

fn same_size(a: &PrimExpr, b: &PrimExpr) -> bool {
    a == b || Facts::new().simplify(&(a.clone() - b.clone())).is_int(0)
}

/// Row-major strides.
fn dense(dims: &[PrimExpr]) -> Vec<PrimExpr> {
    (0..dims.len()).map(|i| PrimExpr::product(&dims[i + 1..])).collect()
}

/// The kernel with other strides of some of its buffers.
fn with_strides(f: &PrimFunc, strides: &HashMap<usize, Vec<i64>>) -> Option<PrimFunc> {
    let mut buffers = HashMap::new();
    let mut params = f.params.clone();
    let places = params.iter_mut().filter(|p| matches!(p, PrimParam::Buffer { .. }));
    for (at, p) in places.enumerate() {
        let PrimParam::Buffer { buffer, .. } = p else { continue };
        let Some(strides) = strides.get(&at) else { continue };
        let strides = strides.iter().map(|&s| PrimExpr::i64(s)).collect();
        let (shape, scope) = (buffer.shape.clone(), buffer.scope.clone());
        let new = Buffer::from_parts(&buffer.name, shape, buffer.dtype(), strides, None, &scope, buffer.span);
        buffers.insert(buffer.id(), new.clone());
        *buffer = new;
    }
    let body = rebuild(&f.body, &HashMap::new(), &buffers)?;
    Some(PrimFunc { params, body, ..f.clone() })
}
