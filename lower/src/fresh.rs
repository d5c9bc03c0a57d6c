//! Constants that somebody may write to are tensors of their own.
//!
//! "The node `Constant(value)` creates a new tensor whose contents are `value`", and packed functions "may mutate values
//! that are passed to them" (relax_spec.md, "Evaluating Expressions", 1 and "Optimizations"). Constants lie in read-only
//! data that all calls share, so those whose tensor may reach a packed function, or a kernel that is called as it is and
//! writes there, or a call of `R.call_tir_inplace` or `R.call_inplace_packed`, are copied where they are evaluated. Which
//! these are is a question of flow: through names, tuples, branches, views, calls and closures, from where a tensor is
//! written back to where it is made. Pure functions write to nothing but what they make (so do kernels of `R.call_tir` and
//! packed functions of `R.call_dps_packed`).

use crate::host::{written_buffers, VIEWS};
use relax_ir::analysis::Typed;
use relax_ir::attrs::Attrs;
use relax_ir::op;
use relax_ir::relax::{
    Binding, BindingBlock, BindingValue, Call, Callee, Expr, ExprKind, Function, RVar, SeqExpr, StructInfo,
};
use relax_ir::Func;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The operator that copies.
const COPY: &str = "builtin.copy";

/// Operators whose result is their operand.
const SAME: &[&str] = &[
    "builtin.stop_lift_params",
    "to_vdevice",
    "memory.ensure_zero_offset",
    "memory.view",
    "grad.start_checkpoint",
    "grad.end_checkpoint",
    "grad.no_grad",
];

/// Where a value may be.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Place {
    Var(RVar),
    /// What the function of the module, or the local one of this variable, returns.
    Result(String),
    LocalResult(RVar),
    /// What some function returns, called as a value.
    AnyResult,
    /// An argument that is written to, or what comes from where it may be written to later.
    Written,
}

/// Copies every constant that may be written to.
pub fn constants(typed: &mut Typed) {
    let flow = Flow::of(typed);
    if !flow.writes {
        return;
    }
    let written = flow.written();
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    for f in &mut funcs {
        let Func::Relax(f) = f else { continue };
        let result = Place::Result(f.name.clone());
        let mut r = Rewrite { flow: &flow, written: &written, typed, out: vec![], dataflow: false };
        f.body = r.sequence(&f.body, &result);
    }
    typed.module.funcs = funcs;
}

/// The variables whose tensor somebody may write to, and those that may share one with them: what is written through one
/// name is read through the other, so no rewriting may let two of them share a tensor that were apart, or read for one of
/// them what was computed beside it.
pub fn shared(typed: &Typed) -> HashSet<RVar> {
    let flow = Flow::of(typed);
    if !flow.writes {
        return HashSet::new();
    }
    let mut reached: HashMap<&Place, Vec<&Place>> = HashMap::new();
    for (to, from) in flow.sources.iter().flat_map(|(to, all)| all.iter().map(move |from| (to, from))) {
        reached.entry(from).or_default().push(to);
    }
    let written = flow.written();
    let mut found: HashSet<&Place> = written.iter().collect();
    let mut open: Vec<&Place> = found.iter().copied().collect();
    while let Some(p) = open.pop() {
        open.extend(reached.get(p).into_iter().flatten().filter(|p| found.insert(p)));
    }
    let var = |p: &Place| match p {
        Place::Var(v) => Some(v.clone()),
        _ => None,
    };
    found.into_iter().filter_map(var).collect()
}

/// From which places the values of each place come.
struct Flow {
    sources: HashMap<Place, HashSet<Place>>,
    /// Local functions by the variable that they are bound to, with their parameters.
    locals: HashMap<RVar, Vec<RVar>>,
    globals: HashMap<String, Vec<RVar>>,
    /// Of functions that are called: the positions that a kernel writes to.
    kernels: HashMap<String, Vec<bool>>,
    /// The variables that hold functions without effects.
    pure: HashSet<RVar>,
    /// Does a function write to its arguments by `R.call_tir_inplace` or `R.call_inplace_packed`? Functions are pure all the same.
    in_place: bool,
    writes: bool,
}

impl Flow {
    fn of(typed: &Typed) -> Flow {
        let mut flow = Flow {
            sources: HashMap::new(),
            locals: HashMap::new(),
            globals: HashMap::new(),
            kernels: HashMap::new(),
            pure: HashSet::new(),
            in_place: false,
            writes: false,
        };
        for (v, info) in &typed.sinfo {
            if matches!(info, StructInfo::Func(f) if f.pure) {
                flow.pure.insert(v.clone());
            }
        }
        for f in &typed.module.funcs {
            match f {
                Func::Relax(f) => {
                    flow.globals.insert(f.name.clone(), params(f));
                    flow.declare(&f.body);
                }
                Func::Prim(f) => {
                    let written = written_buffers(f);
                    let at = f.buffers().map(|b| written.contains(&b.id())).collect();
                    flow.kernels.insert(f.name.clone(), at);
                }
            }
        }
        for f in typed.module.relax_funcs() {
            flow.function(f, Place::Result(f.name.clone()));
        }
        flow
    }

    fn declare(&mut self, seq: &SeqExpr) {
        for b in seq.blocks.iter().flat_map(|b| &b.bindings) {
            match b.expr().kind() {
                ExprKind::Function(f) => {
                    self.locals.insert(b.var.clone(), params(f));
                    self.declare(&f.body);
                }
                ExprKind::If { then, otherwise, .. } => {
                    self.declare(then);
                    self.declare(otherwise);
                }
                ExprKind::Call(c) if c.is_op("call_tir_inplace") || c.is_op("call_inplace_packed") => {
                    self.in_place = true
                }
                _ => {}
            }
        }
    }

    fn function(&mut self, f: &Function, result: Place) {
        self.sequence(&f.body, &result);
        self.edge(result, Place::AnyResult);
    }

    fn sequence(&mut self, seq: &SeqExpr, to: &Place) {
        for b in seq.blocks.iter().flat_map(|b| &b.bindings) {
            self.value(b.expr(), &Place::Var(b.var.clone()));
        }
        self.value(&seq.body, to);
    }

    fn edge(&mut self, from: Place, to: Place) {
        self.writes |= to == Place::Written;
        self.sources.entry(to).or_default().insert(from);
    }

    /// The value of `e` comes to `to`.
    fn value(&mut self, e: &Expr, to: &Place) {
        match e.kind() {
            ExprKind::Constant(_) if *to == Place::Written => self.writes = true,
            ExprKind::Var(v) => self.edge(Place::Var(v.clone()), to.clone()),
            ExprKind::Tuple(fields) => fields.iter().for_each(|f| self.value(f, to)),
            ExprKind::TupleGetItem(t, _) => self.value(t, to),
            ExprKind::Seq(s) => self.sequence(s, to),
            ExprKind::If { then, otherwise, .. } => {
                self.sequence(then, to);
                self.sequence(otherwise, to);
            }
            ExprKind::Function(f) => {
                let result = match to {
                    Place::Var(v) => Place::LocalResult(v.clone()),
                    _ => Place::AnyResult,
                };
                self.function(f, result);
            }
            ExprKind::Call(c) => {
                for (a, to) in self.operands(c, to) {
                    self.value(&a, &to);
                }
                for from in self.results(c) {
                    self.edge(from, to.clone());
                }
            }
            _ => {}
        }
    }

    /// Which operands of the call come where; `to` is where its result comes.
    fn operands(&self, c: &Call, to: &Place) -> Vec<(Expr, Place)> {
        let all = |args: &[Expr], to: &Place| args.iter().map(|a| (a.clone(), to.clone())).collect();
        // A function that is a value keeps what it is given, or returns it; an impure one may write to it.
        let unknown = |args: &[Expr], pure: bool| all(args, if pure { to } else { &Place::Written });
        let pure = !self.in_place;
        let to_params = |args: &[Expr], params: &[RVar]| {
            args.iter().zip(params).map(|(a, p)| (a.clone(), Place::Var(p.clone()))).collect()
        };
        match &c.callee {
            Callee::Op(o) => match o.name {
                name if VIEWS.contains(&name) || SAME.contains(&name) => all(&c.args[..1.min(c.args.len())], to),
                "invoke_closure" => unknown(&c.args[1..], false),
                "invoke_pure_closure" => unknown(&c.args[1..], pure),
                "call_pure_packed" => unknown(&c.args[1..], true),
                "call_tir_inplace" | "call_inplace_packed" => {
                    written_in_place(c).into_iter().map(|a| (a, Place::Written)).collect()
                }
                // Captured values follow the arguments: which parameters they are, only the call tells.
                "make_closure" => match c.args.first().map(Expr::kind) {
                    Some(ExprKind::GlobalVar(name)) => {
                        let params = self.globals.get(name).map(Vec::as_slice).unwrap_or_default();
                        params.iter().flat_map(|p| to_param(&c.args[1..], p)).collect()
                    }
                    _ => vec![],
                },
                _ => vec![],
            },
            Callee::Expr(f) => match f.kind() {
                ExprKind::GlobalVar(name) => match (self.globals.get(name), self.kernels.get(name)) {
                    (Some(params), _) => to_params(&c.args, params),
                    (None, Some(written)) => {
                        let args = c.args.iter().zip(written).filter(|(_, w)| **w);
                        args.map(|(a, _)| (a.clone(), Place::Written)).collect()
                    }
                    (None, None) => vec![],
                },
                ExprKind::Var(v) => match self.locals.get(v) {
                    Some(params) => to_params(&c.args, params),
                    None => unknown(&c.args, pure && self.pure.contains(v)),
                },
                _ => unknown(&c.args, false),
            },
        }
    }

    /// What the result of the call may be beside its operands.
    fn results(&self, c: &Call) -> Vec<Place> {
        match &c.callee {
            Callee::Op(o) if matches!(o.name, "invoke_closure" | "invoke_pure_closure") => vec![Place::AnyResult],
            Callee::Op(o) if matches!(o.name, "call_tir_inplace" | "call_inplace_packed") => vec![Place::Written],
            Callee::Op(_) => vec![],
            Callee::Expr(f) => match f.kind() {
                ExprKind::GlobalVar(name) => vec![Place::Result(name.clone())],
                ExprKind::Var(v) if self.locals.contains_key(v) => vec![Place::LocalResult(v.clone())],
                ExprKind::Var(_) => vec![Place::AnyResult],
                _ => vec![Place::Written],
            },
        }
    }

    /// The places whose values may be written to.
    fn written(&self) -> HashSet<Place> {
        let mut out = HashSet::from([Place::Written]);
        let mut open = vec![Place::Written];
        while let Some(p) = open.pop() {
            for from in self.sources.get(&p).into_iter().flatten() {
                if out.insert(from.clone()) {
                    open.push(from.clone());
                }
            }
        }
        out
    }
}

fn params(f: &Function) -> Vec<RVar> {
    f.params.iter().map(|p| p.var.clone()).collect()
}

fn to_param(args: &[Expr], param: &RVar) -> Vec<(Expr, Place)> {
    args.iter().map(|a| (a.clone(), Place::Var(param.clone()))).collect()
}

/// The arguments of `R.call_tir_inplace` that the kernel writes its outputs to, of `R.call_inplace_packed` all: it may
/// return any of them.
fn written_in_place(c: &Call) -> Vec<Expr> {
    if c.is_op("call_inplace_packed") {
        return c.args.iter().skip(1).cloned().collect();
    }
    let named = c.attrs.ints("inplace_indices").unwrap_or_default().into_iter().filter_map(|i| usize::try_from(i).ok());
    match c.args.get(1).map(|a| (a, a.kind())) {
        Some((_, ExprKind::Tuple(fields))) => named.filter_map(|i| fields.get(i).cloned()).collect(),
        Some((a, _)) => vec![a.clone()],
        None => vec![],
    }
}

/// Puts the copies in.
struct Rewrite<'a> {
    flow: &'a Flow,
    written: &'a HashSet<Place>,
    typed: &'a mut Typed,
    /// Bindings of the block under way.
    out: Vec<Binding>,
    dataflow: bool,
}

impl Rewrite<'_> {
    fn sequence(&mut self, seq: &Arc<SeqExpr>, to: &Place) -> Arc<SeqExpr> {
        let outer = (std::mem::take(&mut self.out), self.dataflow);
        let mut blocks = vec![];
        for block in &seq.blocks {
            self.dataflow = block.dataflow;
            for b in &block.bindings {
                let value = self.value(b.expr(), &Place::Var(b.var.clone()));
                let value = match &b.value {
                    BindingValue::Expr(_) => BindingValue::Expr(value),
                    BindingValue::MatchCast { struct_info, .. } => {
                        BindingValue::MatchCast { value, struct_info: struct_info.clone() }
                    }
                };
                self.out.push(Binding { value, ..b.clone() });
            }
            blocks.push(BindingBlock { bindings: std::mem::take(&mut self.out), ..block.clone() });
        }
        self.dataflow = false;
        let body = self.value(&seq.body, to);
        let last = std::mem::take(&mut self.out);
        if !last.is_empty() {
            blocks.push(BindingBlock { dataflow: false, span: body.span(), bindings: last });
        }
        (self.out, self.dataflow) = outer;
        Arc::new(SeqExpr { blocks, body })
    }

    fn value(&mut self, e: &Expr, to: &Place) -> Expr {
        let kind = match e.kind() {
            ExprKind::Constant(_) => return self.constant(e, to),
            ExprKind::Tuple(fields) => ExprKind::Tuple(fields.iter().map(|f| self.value(f, to)).collect()),
            ExprKind::If { cond, then, otherwise } => ExprKind::If {
                cond: cond.clone(),
                then: self.sequence(then, to),
                otherwise: self.sequence(otherwise, to),
            },
            ExprKind::Function(f) => {
                let result = match to {
                    Place::Var(v) => Place::LocalResult(v.clone()),
                    _ => Place::AnyResult,
                };
                let body = self.sequence(&f.body, &result);
                ExprKind::Function(Arc::new(Function { body, ..(**f).clone() }))
            }
            ExprKind::Call(c) => {
                let places: Vec<(Expr, Place)> = self.flow.operands(c, to);
                let mut c = c.clone();
                let written = self.written;
                let place = |a: &Expr| places.iter().find(|(e, p)| e.same(a) && written.contains(p)).map(|(_, p)| p);
                for a in &mut c.args {
                    match (place(a), a.kind()) {
                        (Some(place), _) => *a = self.value(a, place),
                        (None, ExprKind::Tuple(fields)) if fields.iter().any(|f| place(f).is_some()) => {
                            let one = |f: &Expr| match place(f) {
                                Some(to) => self.value(f, to),
                                None => f.clone(),
                            };
                            let fields: Vec<Expr> = fields.iter().map(one).collect();
                            *a = Expr::new(ExprKind::Tuple(fields), a.span());
                        }
                        _ => {}
                    }
                }
                ExprKind::Call(c)
            }
            _ => return e.clone(),
        };
        Expr::new(kind, e.span())
    }

    /// The constant itself, or a variable that holds a copy of it.
    fn constant(&mut self, e: &Expr, to: &Place) -> Expr {
        let ExprKind::Constant(c) = e.kind() else { return e.clone() };
        let Some(copy) = op::lookup(COPY).filter(|_| self.written.contains(to)) else { return e.clone() };
        let var = RVar::new("copy", self.dataflow, e.span());
        let dims = c.shape.iter().map(|&d| relax_ir::PrimExpr::i64(d)).collect();
        self.typed.sinfo.insert(var.clone(), StructInfo::tensor(dims, c.dtype));
        let call =
            Call { callee: Callee::Op(copy), args: vec![e.clone()], attrs: Attrs::default(), sinfo_args: vec![] };
        let value = BindingValue::Expr(Expr::new(ExprKind::Call(call), e.span()));
        self.out.push(Binding { var: var.clone(), annotation: None, value, span: e.span() });
        Expr::new(ExprKind::Var(var), e.span())
    }
}
