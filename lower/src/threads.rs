//! Kernels on several threads.
//!
//! A big kernel whose outermost loops run over independent parts of its result takes two more parameters: which share
//! of these loops it runs, in parts of [`WHOLE`]. Host code cuts the whole evenly for as many threads as the library
//! is compiled for and hands the shares to `P__parallel`, which asks the call's `parallel_for`. Each element is computed
//! as by one thread: results do not depend on the number of threads.

use crate::kernel::{kernel_dims, wide_workspace};
use crate::schedule;
use relax_ir::abi::AbiLayout;
use relax_ir::flat::{Callee, FlatFunc, FlatStmt, Linkage};
use relax_ir::prim::{PrimKind, Var};
use relax_ir::program::Program;
use relax_ir::tir::PrimFunc;
use relax_ir::{DType, PrimExpr, Span};
use std::collections::{HashMap, HashSet};

/// Shares are given in parts of this; many small numbers divide it.
const WHOLE: i64 = 960;
/// Multiplications (see [`work`]) below which a kernel stays on one thread: about 80 microseconds.
const LEAST: i64 = 4_000_000;
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
    /// Bytes of workspace for one thread.
    room: PrimExpr,
}

/// What a kernel costs, about: multiplications, or what it takes to fetch its tensors.
fn work(f: &PrimFunc) -> PrimExpr {
    let product = |dims: &[PrimExpr]| dims.iter().fold(PrimExpr::i64(1), |n, d| n * d.clone().cast(DType::I64));
    let elements = f.buffers().fold(PrimExpr::i64(0), |n, b| n + product(&b.shape));
    schedule::steps_of(f) + elements * MEMORY
}

/// Whether the kernel may be worth several threads, and says enough about itself.
pub fn consider(f: &PrimFunc, room: &Room) -> Option<Shared> {
    let work = work(f);
    if work.as_int().is_some_and(|n| n < LEAST) || !schedule::is_staged(f) {
        return None;
    }
    let dims = kernel_dims(f);
    if dims.iter().any(|d| !d.dtype().is_int()) {
        return None;
    }
    Some(Shared { work, dims, buffers: f.buffers().count(), room: room.one(f) })
}

/// The kernel with the bounds of its share as last parameters; `None` when its loops do not allow it.
pub fn split(f: &FlatFunc, s: &Shared) -> Option<FlatFunc> {
    if f.params.iter().any(|p| !matches!(p.dtype(), DType::HANDLE | DType::I64)) {
        return None;
    }
    let mut f = f.clone();
    // Host code passes a workspace to all forms of a kernel when one needs it.
    let own = f.params.len().checked_sub(s.buffers + s.dims.len())?;
    if own == 0 && !s.room.is_int(0) {
        f.params.push(Var::new("workspace", DType::HANDLE));
    }
    let (from, to) = (Var::new("from", DType::I64), Var::new("to", DType::I64));
    let private: HashSet<Var> = f.params.iter().skip(s.buffers + s.dims.len()).cloned().collect();
    let mut facts = Facts { roots: HashMap::new(), private, ..Default::default() };
    facts.roots.extend(f.params.iter().map(|p| (p.clone(), p.clone())));
    let loops = f.body.iter().filter(|s| matches!(s, FlatStmt::For { .. })).count();
    for s in &f.body {
        match s {
            FlatStmt::Let { .. } | FlatStmt::Stack { .. } | FlatStmt::For { .. } => {}
            FlatStmt::Return(None) => {}
            _ => return None,
        }
        facts.statement(s, &mut HashSet::new())?;
    }
    let shared = facts.stored.iter().any(|v| facts.private.contains(v));
    let again = facts.stored.iter().any(|v| facts.loaded.contains(v) && !facts.private.contains(v));
    if loops == 0 || again || (shared && loops > 1) {
        return None;
    }
    for s in &mut f.body {
        let FlatStmt::For { begin, end, step, .. } = s else { continue };
        let count = match (begin.as_int(), end.as_int()) {
            (Some(b), Some(e)) => PrimExpr::i64(((e - b).max(0) + *step - 1) / *step),
            _ => (end.clone() - begin.clone() + (*step - 1)).floor_div(*step).max(0i64),
        };
        let bound = |share: &Var| {
            let rounds = (count.clone() * share.expr()).floor_div(WHOLE);
            (begin.clone() + rounds * *step).min(end.clone())
        };
        (*begin, *end) = (bound(&from), bound(&to));
    }
    f.params.extend([from, to]);
    Some(f)
}

/// What statements load and store, by the pointers that they start from.
#[derive(Default)]
struct Facts {
    /// Of a pointer variable: the parameter or stack slot that it points into.
    roots: HashMap<Var, Var>,
    private: HashSet<Var>,
    stored: HashSet<Var>,
    loaded: HashSet<Var>,
}

impl Facts {
    fn root(&self, p: &PrimExpr) -> Option<Var> {
        match p.kind() {
            PrimKind::Var(v) => self.roots.get(v).cloned(),
            PrimKind::PtrAdd(p, _) => self.root(p),
            _ => None,
        }
    }

    fn value(&mut self, e: &PrimExpr) -> Option<()> {
        let mut known = true;
        let mut found = vec![];
        e.walk(&mut |n| {
            if let PrimKind::Load { ptr, .. } = n.kind() {
                match self.root(ptr) {
                    Some(v) => found.push(v),
                    None => known = false,
                }
            }
        });
        self.loaded.extend(found);
        known.then_some(())
    }

    /// `None` for what must not run twice or in another order. `locals`: registers of the loop that surrounds it.
    fn statement(&mut self, s: &FlatStmt, locals: &mut HashSet<Var>) -> Option<()> {
        match s {
            FlatStmt::Let { var, value } => {
                self.value(value)?;
                if var.dtype() == DType::HANDLE {
                    let root = self.root(value)?;
                    self.roots.insert(var.clone(), root);
                }
            }
            FlatStmt::Local { var, init } => {
                self.value(init)?;
                // Pointers that change are not followed.
                if var.dtype() == DType::HANDLE {
                    return None;
                }
                locals.insert(var.clone());
            }
            FlatStmt::Assign { var, value } => {
                self.value(value)?;
                if !locals.contains(var) {
                    return None;
                }
            }
            FlatStmt::Store { ptr, offset, value } => {
                self.value(offset)?;
                self.value(value)?;
                let root = self.root(ptr)?;
                self.stored.insert(root);
            }
            FlatStmt::For { begin, end, body, .. } => {
                self.value(begin)?;
                self.value(end)?;
                for s in body {
                    self.statement(s, locals)?;
                }
            }
            FlatStmt::While { cond, body } => {
                self.value(cond)?;
                for s in body {
                    self.statement(s, locals)?;
                }
            }
            FlatStmt::If { cond, then, otherwise } => {
                self.value(cond)?;
                for s in then.iter().chain(otherwise) {
                    self.statement(s, locals)?;
                }
            }
            FlatStmt::Stack { var, .. } => {
                self.roots.insert(var.clone(), var.clone());
                self.private.insert(var.clone());
            }
            FlatStmt::Return(None) => {}
            _ => return None,
        }
        Some(())
    }
}

/// Rewrites the calls of kernels in shares, by symbol, and lets entries gather a team.
pub fn apply(program: &mut Program, shared: &HashMap<String, Shared>, threads: i64, pointer_bytes: u32) {
    if shared.is_empty() {
        return;
    }
    let abi = AbiLayout::new(pointer_bytes);
    let prefix = program.prefix.clone();
    let cx = Calls { shared, threads, prefix: &prefix };
    for f in &mut program.module.funcs {
        let call = f.params.first().filter(|p| p.dtype() == DType::HANDLE && p.name() == "call").cloned();
        let fails = f.ret == Some(DType::I32);
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
        if s.room.is_int(0) {
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

    fn kernel(&self, symbol: &str, args: &[PrimExpr], call: Option<&Var>, out: &mut Vec<FlatStmt>) {
        let s = &self.shared[symbol];
        let alone = self.whole(symbol, args, PrimExpr::i64(0), PrimExpr::i64(WHOLE));
        let Some(call) = call else { return out.push(alone) };
        let dims: HashMap<Var, PrimExpr> = (s.dims.iter().zip(args.iter().skip(s.buffers)))
            .map(|(d, a)| (d.clone(), a.clone().cast(d.dtype())))
            .collect();
        let mut body = vec![];
        let context = Var::new("context", DType::HANDLE);
        let bytes = 8 * (args.len() as u32 + 1);
        body.push(FlatStmt::Stack { var: context.clone(), bytes, align: 8 });
        let room = s.room.substitute(&dims);
        for (i, a) in args.iter().chain([&room]).enumerate() {
            body.push(FlatStmt::Store { ptr: context.expr(), offset: PrimExpr::i64(i as i64), value: a.clone() });
        }
        let tasks = address(&mut body, &format!("{symbol}_tasks"));
        let rc = Var::new("rc", DType::I32);
        let (h, n) = (DType::HANDLE, DType::I64);
        let name = format!("{}__parallel", self.prefix);
        body.push(FlatStmt::Call {
            callee: callee(name, vec![h, n, h, h], Some(DType::I32), Linkage::Local),
            args: vec![call.expr(), PrimExpr::i64(self.shares(s)), tasks, context.expr()],
            result: Some(rc.clone()),
        });
        let failed = rc.expr().ne(PrimExpr::i32(0));
        body.push(FlatStmt::If { cond: failed, then: vec![FlatStmt::Return(Some(rc.expr()))], otherwise: vec![] });
        let work = s.work.substitute(&dims);
        match work.as_int() {
            Some(_) => out.extend(body),
            None => out.push(FlatStmt::If { cond: work.lt(PrimExpr::i64(LEAST)), then: vec![alone], otherwise: body }),
        }
    }

    /// `int32_t tasks(void *context, int64_t begin, int64_t end)`: the shares `begin..end`.
    fn tasks(&self, symbol: &str) -> FlatFunc {
        let s = &self.shared[symbol];
        let [context, begin, end] =
            [("context", DType::HANDLE), ("begin", DType::I64), ("end", DType::I64)].map(|(name, d)| Var::new(name, d));
        let mut body = vec![];
        let mut args = vec![];
        let workspace = !s.room.is_int(0);
        let count = s.buffers + s.dims.len() + workspace as usize;
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
        if workspace {
            let room = load(&mut body, count, DType::I64);
            if let Some(p) = args.last_mut() {
                *p = p.clone().ptr_add(i.expr() * room);
            }
        }
        let share = |i: PrimExpr| (i * WHOLE).floor_div(self.shares(s));
        let kernel = self.whole(symbol, &args, share(i.expr()), share(i.expr() + 1i64));
        body.push(FlatStmt::For { var: i, begin: begin.expr(), end: end.expr(), step: 1, body: vec![kernel] });
        body.push(FlatStmt::Return(Some(PrimExpr::i32(0))));
        function(format!("{symbol}_tasks"), vec![context, begin, end], body)
    }
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
    function(format!("{prefix}__parallel"), vec![call, count, work, context], body)
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
