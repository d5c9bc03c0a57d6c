//! Kernels on several threads.
//!
//! A big kernel whose outermost loops run over independent parts of its result takes two more parameters: which share
//! of these loops it runs, in parts of [`WHOLE`]. Host code cuts the whole evenly for as many threads as the library
//! is compiled for and hands the shares to `P__parallel`, which asks the call's `parallel_for`. Where loops hand each
//! other data through the workspace (transformed convolutions, windows over a copy with borders) each loop is a phase of
//! its own: the shares of one are all done before the next begins. [`split`] decides what a kernel's loops allow. Each
//! element is computed as by one thread: results do not depend on the number of threads.

mod few;
mod names;
mod rounds;
mod split;
mod steps;
mod turn;

pub use few::{follow, Few};
pub use split::{alone, split, Split};
pub use steps::{split_steps, Stepped};
pub use turn::turn;

use crate::kernel::{kernel_dims, wide_workspace};
use crate::schedule::streamed::Streamed;
use crate::schedule::{self, int8};
use few::FILL;
use relax_ir::abi::AbiLayout;
use relax_ir::flat::{Callee, FlatFunc, FlatStmt, Linkage};
use relax_ir::prim::Var;
use relax_ir::program::Program;
use relax_ir::tir::PrimFunc;
use relax_ir::{DType, PrimExpr, Span};
use std::collections::HashMap;

/// Shares are given in parts of this; many small numbers divide it.
const WHOLE: i64 = 960;
/// Multiplications (see [`work`]) below which a kernel, or a step of a recurrence, stays on one thread: about 2
/// microseconds.
pub const LEAST: i64 = 100_000;
/// Multiplications of all kernels together that are worth waking threads for: about 15 microseconds.
const LEAST_TOGETHER: i64 = 1_000_000;
/// Multiplications from which a kernel has several shares for each thread.
const LARGE: i64 = 4_000_000;
/// Multiplications in the time that an element takes from memory.
const MEMORY: i64 = 4;
/// Shares for each thread where they need no memory of their own: who is late has less to do.
const SHARES: i64 = 4;

/// Scratch memory of kernels: for which vectors, and how often side by side.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub vector_bytes: &'static [u32],
    pub threads: i64,
}

impl Room {
    /// Bytes of one copy, at a multiple of 64.
    pub fn one(&self, f: &PrimFunc) -> PrimExpr {
        let bytes = wide_workspace(f, self.vector_bytes);
        match bytes.as_int() {
            _ if self.threads == 1 => bytes,
            Some(n) => PrimExpr::i64((n + 63) / 64 * 64),
            None => (bytes + 63i64).floor_div(64i64) * 64i64,
        }
    }

    /// Bytes of all.
    pub fn all(&self, f: &PrimFunc) -> PrimExpr {
        let one = self.one(f);
        match self.threads {
            1 => one,
            n => one * n,
        }
    }
}

/// A kernel in shares.
pub struct Shared {
    /// Over [`kernel_dims`]; a number where it is known.
    work: PrimExpr,
    dims: Vec<Var>,
    buffers: usize,
    /// Bytes of workspace for one thread; 0 where all of them work in one.
    room: PrimExpr,
    /// Whether it takes a workspace at all.
    workspace: bool,
    /// Loops that wait for one another.
    phases: i64,
    /// Of a recurrence.
    steps: Option<Steps>,
    /// Of its buffers, those of which two loops may write the same elements.
    again: Vec<usize>,
    /// A round of its outermost loop may read what it wrote itself, never what another round writes.
    apart: bool,
    /// What it fills its workspace with costs little: each share may do so for itself.
    fills: bool,
    /// Multiplications below which it stays on one thread.
    least: i64,
    /// As many as the library is compiled for.
    threads: i64,
    /// In a workspace for all, each share has a piece of its own.
    pieces: bool,
    /// How it runs step by step.
    few: Option<Few>,
}

/// What a recurrence does.
struct Steps {
    /// Over [`kernel_dims`].
    count: PrimExpr,
    /// Of the segments of a step: whether it is dealt out.
    segments: Vec<bool>,
}

impl Shared {
    /// With the loops as they turned out.
    pub fn in_phases(self, phases: i64, pieces: bool) -> Shared {
        Shared { room: PrimExpr::i64(0), phases, pieces, ..self }
    }

    /// With the steps that all forms have.
    pub fn with_few(self, few: Option<Few>) -> Shared {
        Shared { few, ..self }
    }

    /// Whether it is a recurrence.
    pub fn recurs(&self) -> bool {
        self.steps.is_some()
    }

    /// With the steps as they turned out.
    pub fn in_steps(self, segments: Vec<bool>) -> Shared {
        let steps = self.steps.map(|s| Steps { segments, ..s });
        Shared { room: PrimExpr::i64(0), steps, ..self }
    }
}

/// Whether all kernels together are worth several threads.
pub fn worthwhile<'a>(kernels: impl Iterator<Item = &'a PrimFunc>) -> bool {
    let known: Option<i64> = kernels.map(|k| work(k).as_int()).sum();
    known.is_none_or(|n| n >= LEAST_TOGETHER)
}

/// Calls of these kernels that are together worth several threads.
pub fn least_calls<'a>(kernels: impl Iterator<Item = &'a PrimFunc>) -> i64 {
    let known: Option<i64> = kernels.map(|k| work(k).as_int()).sum();
    known.map_or(1, |n| LEAST_TOGETHER / n.max(1) + 1)
}

/// What a kernel costs, about: multiplications, or what it takes to fetch its tensors.
fn work(f: &PrimFunc) -> PrimExpr {
    if let Some(conv) = int8::Conv::of(f) {
        return conv.steps_of(f).floor_div(4);
    }
    let product = |dims: &[PrimExpr]| dims.iter().fold(PrimExpr::i64(1), |n, d| n * d.clone().cast(DType::I64));
    let elements = f.buffers().fold(PrimExpr::i64(0), |n, b| n + product(&b.shape));
    let steps = schedule::steps_of(f);
    // Four at a time.
    let steps = if int8::Product::of(f).is_some() { steps.floor_div(4) } else { steps };
    let recurrent = schedule::recurrence_of(f).map_or(PrimExpr::i64(0), |(count, step)| count * step);
    steps + recurrent + elements * MEMORY
}

/// Whether the kernel may be worth several threads, from `least` multiplications on, and says enough about itself.
pub fn consider(f: &PrimFunc, room: &Room, least: i64) -> Option<Shared> {
    let work = work(f);
    let recurrence = schedule::recurrence_of(f).filter(|(_, step)| step.as_int().is_some_and(|n| n >= least));
    let steps = recurrence.map(|(count, _)| Steps { count, segments: vec![] });
    let apart = Streamed::of(f).is_some() || int8::Product::of(f).is_some() || int8::is_lookup(f);
    let fills = int8::Conv::of(f).is_some();
    let special = apart || fills;
    let parts = steps.is_some() || special || schedule::is_staged(f);
    let again = if special { vec![] } else { schedule::written_again(f) };
    if work.as_int().is_some_and(|n| n < least) || !parts {
        return None;
    }
    let dims = kernel_dims(f);
    if dims.iter().any(|d| !d.dtype().is_int()) {
        return None;
    }
    let threads = room.threads;
    let room = room.one(f);
    let workspace = !room.is_int(0);
    Some(Shared {
        work,
        dims,
        buffers: f.buffers().count(),
        room,
        workspace,
        phases: 1,
        steps,
        again,
        apart,
        fills,
        least,
        threads,
        pieces: false,
        few: None,
    })
}

/// Rewrites the calls of kernels in shares, by symbol, and lets entries gather a team.
pub fn apply(program: &mut Program, shared: &HashMap<String, Shared>, threads: i64, pointer_bytes: u32) {
    if shared.is_empty() && program.alone.is_empty() {
        return;
    }
    let abi = AbiLayout::new(pointer_bytes);
    let prefix = program.prefix.clone();
    let cx = Calls { shared, threads, prefix: &prefix };
    for f in &mut program.module.funcs {
        let call = f.params.first().filter(|p| p.dtype() == DType::HANDLE && p.name() == "call").cloned();
        let fails = f.ret == Some(DType::I32) && !program.alone.contains(&f.name);
        f.body = cx.list(&f.body, call.as_ref().filter(|_| fails));
    }
    let mut symbols: Vec<&String> = shared.keys().collect();
    symbols.sort();
    let new: Vec<FlatFunc> = symbols.into_iter().map(|s| cx.tasks(s)).collect();
    program.module.funcs.extend(new);
    program.module.funcs.push(parallel(&prefix, &abi));
    let entries: Vec<String> = program.entries.iter().map(|e| format!("{prefix}_{}__call", e.name)).collect();
    let mut teams = vec![];
    for f in program.module.funcs.iter_mut().filter(|f| entries.contains(&f.name)) {
        let alone = format!("{}_alone", f.name);
        let name = std::mem::replace(&mut f.name, alone.clone());
        teams.push(team(name, alone, threads));
    }
    program.module.funcs.extend(teams);
}

fn callee(name: String, params: Vec<DType>, ret: Option<DType>, linkage: Linkage) -> Callee {
    Callee { name, params, ret, linkage }
}

fn function(name: String, params: Vec<Var>, body: Vec<FlatStmt>) -> FlatFunc {
    FlatFunc { name, params, ret: Some(DType::I32), linkage: Linkage::Local, body, span: Span::NONE }
}

fn address(body: &mut Vec<FlatStmt>, symbol: &str) -> PrimExpr {
    let var = Var::new("function", DType::HANDLE);
    body.push(FlatStmt::Address { var: var.clone(), symbol: symbol.to_string() });
    var.expr()
}

struct Calls<'a> {
    shared: &'a HashMap<String, Shared>,
    threads: i64,
    prefix: &'a str,
}

impl Calls<'_> {
    fn shares(&self, s: &Shared) -> i64 {
        let large = s.work.as_int().is_none_or(|n| n >= LARGE);
        if large && s.room.is_int(0) && !s.recurs() && !s.pieces {
            self.threads * SHARES
        } else {
            self.threads
        }
    }

    fn list(&self, list: &[FlatStmt], call: Option<&Var>) -> Vec<FlatStmt> {
        let mut out = vec![];
        for s in list {
            match s {
                FlatStmt::Call { callee, args, .. } if self.shared.contains_key(&callee.name) => {
                    self.kernel(&callee.name, args, call, &mut out)
                }
                FlatStmt::For { var, begin, end, step, body } => out.push(FlatStmt::For {
                    var: var.clone(),
                    begin: begin.clone(),
                    end: end.clone(),
                    step: *step,
                    body: self.list(body, call),
                }),
                FlatStmt::While { cond, body } => {
                    out.push(FlatStmt::While { cond: cond.clone(), body: self.list(body, call) })
                }
                FlatStmt::If { cond, then, otherwise } => out.push(FlatStmt::If {
                    cond: cond.clone(),
                    then: self.list(then, call),
                    otherwise: self.list(otherwise, call),
                }),
                other => out.push(other.clone()),
            }
        }
        out
    }

    /// A call of a kernel over shares.
    fn whole(&self, symbol: &str, args: &[PrimExpr], from: PrimExpr, to: PrimExpr) -> FlatStmt {
        let mut args = args.to_vec();
        args.extend([from, to]);
        let params = args.iter().map(PrimExpr::dtype).collect();
        FlatStmt::Call { callee: callee(symbol.to_string(), params, None, Linkage::Local), args, result: None }
    }

    /// A call of a kernel that runs all of it.
    fn alone(&self, symbol: &str, args: &[PrimExpr], dims: &HashMap<Var, PrimExpr>) -> FlatStmt {
        let s = &self.shared[symbol];
        let Some(steps) = &s.steps else {
            return self.whole(symbol, args, PrimExpr::i64(0), PrimExpr::i64(WHOLE * s.phases));
        };
        let at = Var::new("phase", DType::I64);
        let one = self.whole(symbol, args, at.expr() * WHOLE, (at.expr() + 1i64) * WHOLE);
        let end = steps.count.substitute(dims).max(0i64) * steps.segments.len() as i64 + 2i64;
        FlatStmt::For { var: at, begin: PrimExpr::i64(0), end, step: 1, body: vec![one] }
    }

    fn kernel(&self, symbol: &str, args: &[PrimExpr], call: Option<&Var>, out: &mut Vec<FlatStmt>) {
        let s = &self.shared[symbol];
        let dims: HashMap<Var, PrimExpr> = (s.dims.iter().zip(args.iter().skip(s.buffers)))
            .map(|(d, a)| (d.clone(), a.clone().cast(d.dtype())))
            .collect();
        let alone = self.alone(symbol, args, &dims);
        let Some(call) = call else { return out.push(alone) };
        let mut body = vec![];
        let context = Var::new("context", DType::HANDLE);
        let bytes = 8 * (args.len() as u32 + 2);
        body.push(FlatStmt::Stack { var: context.clone(), bytes, align: 8 });
        let room = s.room.substitute(&dims);
        for (i, a) in args.iter().chain([&room]).enumerate() {
            body.push(FlatStmt::Store { ptr: context.expr(), offset: PrimExpr::i64(i as i64), value: a.clone() });
        }
        let tasks = address(&mut body, &format!("{symbol}_tasks"));
        let (h, n) = (DType::HANDLE, DType::I64);
        let phase = |body: &mut Vec<FlatStmt>, phase: PrimExpr| {
            let at = PrimExpr::i64(args.len() as i64 + 1);
            body.push(FlatStmt::Store { ptr: context.expr(), offset: at, value: phase * WHOLE });
            let rc = Var::new("rc", DType::I32);
            let name = parallel_name(self.prefix);
            body.push(FlatStmt::Call {
                callee: callee(name, vec![h, n, h, h], Some(DType::I32), Linkage::Local),
                args: vec![call.expr(), PrimExpr::i64(self.shares(s)), tasks.clone(), context.expr()],
                result: Some(rc.clone()),
            });
            let failed = rc.expr().ne(PrimExpr::i32(0));
            body.push(FlatStmt::If { cond: failed, then: vec![FlatStmt::Return(Some(rc.expr()))], otherwise: vec![] });
        };
        match &s.steps {
            None => {
                let mut whole = vec![];
                (0..s.phases).for_each(|i| phase(&mut whole, PrimExpr::i64(i)));
                match &s.few {
                    Some(few) => {
                        let step = |at: i64| self.whole(symbol, args, PrimExpr::i64(at), PrimExpr::i64(at + WHOLE));
                        let at = PrimExpr::i64(args.len() as i64);
                        let joint = FlatStmt::Store { ptr: context.expr(), offset: at, value: PrimExpr::i64(0) };
                        let round = Var::new("round", DType::I64);
                        let mut row = vec![];
                        for i in 0..few.phases {
                            phase(&mut row, round.expr() * few.phases + (FILL + 1 + i));
                        }
                        let rounds = few.rounds.substitute(&dims);
                        let (begin, end) = (PrimExpr::i64(0), rounds.clone());
                        let rows = FlatStmt::For { var: round, begin, end, step: 1, body: row };
                        let steps = vec![joint, step(FILL * WHOLE), rows];
                        let cond = rounds.lt(self.threads);
                        match cond.is_int(1) {
                            true => body.extend(steps),
                            false => body.push(FlatStmt::If { cond, then: steps, otherwise: whole }),
                        }
                    }
                    None => body.extend(whole),
                }
            }
            Some(steps) => {
                let once = |at: PrimExpr| self.whole(symbol, args, at.clone() * WHOLE, (at + 1i64) * WHOLE);
                let (t, count) = (Var::new("t", DType::I64), steps.segments.len() as i64);
                let rounds = steps.count.substitute(&dims).max(0i64);
                let mut step = vec![];
                for (i, shared) in steps.segments.iter().enumerate() {
                    let at = t.expr() * count + (i as i64 + 1);
                    match shared {
                        true => phase(&mut step, at),
                        false => step.push(once(at)),
                    }
                }
                body.push(once(PrimExpr::i64(0)));
                let (begin, end) = (PrimExpr::i64(0), rounds.clone());
                body.push(FlatStmt::For { var: t, begin, end, step: 1, body: step });
                body.push(once(rounds * count + 1i64));
            }
        }
        let work = s.work.substitute(&dims);
        match work.as_int() {
            Some(_) => out.extend(body),
            None => {
                out.push(FlatStmt::If { cond: work.lt(PrimExpr::i64(s.least)), then: vec![alone], otherwise: body })
            }
        }
    }

    /// `int32_t tasks(void *context, int64_t begin, int64_t end)`: the shares `begin..end`.
    fn tasks(&self, symbol: &str) -> FlatFunc {
        let s = &self.shared[symbol];
        let [context, begin, end] =
            [("context", DType::HANDLE), ("begin", DType::I64), ("end", DType::I64)].map(|(name, d)| Var::new(name, d));
        let mut body = vec![];
        let mut args = vec![];
        let count = s.buffers + s.dims.len() + s.workspace as usize;
        let load = |body: &mut Vec<FlatStmt>, i: usize, d: DType| {
            let var = Var::new("a", d);
            let value = PrimExpr::load_ptr(context.expr(), PrimExpr::i64(i as i64), d);
            body.push(FlatStmt::Let { var: var.clone(), value });
            var.expr()
        };
        for i in 0..count {
            let dim = (s.buffers..s.buffers + s.dims.len()).contains(&i);
            args.push(load(&mut body, i, if dim { DType::I64 } else { DType::HANDLE }));
        }
        let i = Var::new("i", DType::I64);
        if s.workspace {
            let room = load(&mut body, count, DType::I64);
            if let Some(p) = args.last_mut() {
                *p = p.clone().ptr_add(i.expr() * room);
            }
        }
        let first = load(&mut body, count + 1, DType::I64);
        let share = |i: PrimExpr| (i * WHOLE).floor_div(self.shares(s)) + first.clone();
        let kernel = self.whole(symbol, &args, share(i.expr()), share(i.expr() + 1i64));
        body.push(FlatStmt::For { var: i, begin: begin.expr(), end: end.expr(), step: 1, body: vec![kernel] });
        body.push(FlatStmt::Return(Some(PrimExpr::i32(0))));
        function(format!("{symbol}_tasks"), vec![context, begin, end], body)
    }
}

/// Of the function that hands out shares.
pub fn parallel_name(prefix: &str) -> String {
    format!("{prefix}__parallel")
}

/// `int32_t P__parallel(call, int64_t n, body, context)`: through the call's `parallel_for` if there is one.
fn parallel(prefix: &str, abi: &AbiLayout) -> FlatFunc {
    let (h, n) = (DType::HANDLE, DType::I64);
    let [call, count, work, context] =
        [("call", h), ("n", n), ("work", h), ("context", h)].map(|(name, d)| Var::new(name, d));
    let null = |p: &Var| p.expr().reinterpret(DType::I64).eq(PrimExpr::i64(0));
    let field = |at: i64| PrimExpr::load_ptr(call.expr().ptr_add(at), PrimExpr::i64(0), h);
    let (given, own) = (Var::new("given", h), Var::new("own", h));
    let rc = |name: &str| Var::new(name, DType::I32);
    let (other, alone) = (rc("rc"), rc("rc"));
    let named = |params: Vec<DType>| callee(String::new(), params, Some(DType::I32), Linkage::Local);
    let through = vec![
        FlatStmt::Let { var: given.clone(), value: field(abi.call_parallel_for) },
        FlatStmt::If {
            cond: null(&given),
            then: vec![],
            otherwise: vec![
                FlatStmt::Let { var: own.clone(), value: field(abi.call_parallel_self) },
                FlatStmt::CallIndirect {
                    target: given.expr(),
                    callee: named(vec![h, n, h, h]),
                    args: vec![own.expr(), count.expr(), work.expr(), context.expr()],
                    result: Some(other.clone()),
                },
                FlatStmt::Return(Some(other.expr())),
            ],
        },
    ];
    let body = vec![
        FlatStmt::If { cond: null(&call), then: vec![], otherwise: through },
        FlatStmt::CallIndirect {
            target: work.expr(),
            callee: named(vec![h, n, n]),
            args: vec![context.expr(), PrimExpr::i64(0), count.expr()],
            result: Some(alone.clone()),
        },
        FlatStmt::Return(Some(alone.expr())),
    ];
    function(parallel_name(prefix), vec![call, count, work, context], body)
}

/// The entry `name`, which gathers a team around the entry `alone`.
fn team(name: String, alone: String, threads: i64) -> FlatFunc {
    let h = DType::HANDLE;
    let [args, outs, call] = ["args", "outs", "call"].map(|name| Var::new(name, h));
    let mut body = vec![];
    let entry = address(&mut body, &alone);
    let rc = Var::new("rc", DType::I32);
    let params = vec![h, h, h, h, DType::I32];
    body.push(FlatStmt::Call {
        callee: callee("relax_rt_team".to_string(), params, Some(DType::I32), Linkage::Import),
        args: vec![entry, args.expr(), outs.expr(), call.expr(), PrimExpr::i32(threads as i32)],
        result: Some(rc.clone()),
    });
    body.push(FlatStmt::Return(Some(rc.expr())));
    function(name, vec![args, outs, call], body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use relax_ir::prim::PrimKind;

    /// A kernel of one phase whose other forms have two: in the second one it does nothing, neither its loop nor what is left over
    /// behind that.
    #[test]
    fn no_work_in_phases_of_other_forms() {
        let [x, y] = ["x", "y"].map(|name| Var::new(name, DType::HANDLE));
        let i = Var::new("i", DType::I64);
        let copy = |at: PrimExpr| FlatStmt::Store {
            ptr: y.expr(),
            offset: at.clone(),
            value: PrimExpr::load_ptr(x.expr(), at, DType::F32),
        };
        let (begin, end) = (PrimExpr::i64(0), PrimExpr::i64(64));
        let body = vec![
            FlatStmt::For { var: i.clone(), begin, end, step: 1, body: vec![copy(i.expr())] },
            copy(PrimExpr::i64(64)),
        ];
        let mut f = function("copy".to_string(), vec![x.clone(), y.clone()], body);
        f.ret = None;
        let shared = Shared {
            work: PrimExpr::i64(1 << 20),
            dims: vec![],
            buffers: 2,
            room: PrimExpr::i64(64),
            workspace: true,
            phases: 1,
            steps: None,
            again: vec![],
            apart: false,
            fills: false,
            least: 1,
            threads: 2,
            pieces: false,
            few: None,
        };
        let s = split(&f, &shared, true, 2).expect("shares");
        let [from, to] = [s.func.params.len() - 2, s.func.params.len() - 1].map(|p| s.func.params[p].clone());
        // Elements written by a share, and whether it writes the last one.
        let written = |share: i64| {
            let bounds = HashMap::from([
                (from.clone(), PrimExpr::i64(share * WHOLE / 2)),
                (to.clone(), PrimExpr::i64((share + 1) * WHOLE / 2)),
            ]);
            let known = |e: &PrimExpr| e.substitute(&bounds);
            let (mut count, mut last) = (0, false);
            for stmt in &s.func.body {
                match stmt {
                    FlatStmt::For { begin, end, .. } => {
                        let [a, b] = [begin, end].map(|e| known(e).as_int().expect("a known bound"));
                        count += (b - a).max(0);
                    }
                    FlatStmt::If { cond, .. } => last |= matches!(known(cond).kind(), PrimKind::Int(1)),
                    other => panic!("{other:?}"),
                }
            }
            (count, last)
        };
        assert_eq!([0, 1, 2, 3].map(written), [(32, false), (32, true), (0, false), (0, false)]);
    }
}
