//! Fusion: a chain of kernels becomes one.
//!
//! Each `call_tir` of a private PrimFunc is classed by what its body does (the classes of TVM's pattern analysis). A
//! value that one kernel makes and that only kernels of one group use may become an
//! intermediate of a joint kernel; scheduling then computes it in registers where it can. What may join:
//!
//! * elementwise, broadcast and injective kernels with each other, in any order;
//! * elementwise kernels behind a reduction-like kernel (matmul, convolution, pooling, sums): its epilogue;
//! * permutations in front of a matrix product and behind it, where rows stay in one piece or are copied anyway;
//! * elementwise kernels in front of a plain reduction: its prologue.
//!
//! Permutations that take rows apart stay beside what mixes elements that data chooses.

mod pattern;

use crate::attention;
use crate::cascades;
use crate::legalize::{call_tir, Names};
use crate::schedule::PARTS;
pub use pattern::{classify, Pattern};
use pattern::{is_product, mixed, of_angles, permutation, pieced};
pub(crate) use pattern::{product_operands, reads_inputs_once};
use relax_ir::analysis::Typed;
use relax_ir::attrs::Attrs;
use relax_ir::prim::{PrimExpr, PrimKind};
use relax_ir::relax::{
    Binding, BindingBlock, BindingValue, Call, Expr, ExprKind, Function, RVar, SeqExpr, StructInfo, StructInfoMap,
};
use relax_ir::tir::{Buffer, PrimFunc, PrimParam, Stmt, StmtKind};
use relax_ir::{AttrValue, Func, Span, Var};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Rows of a product that fill its tiles.
const FLAT: i64 = 16;

/// More blocks than this in one kernel are not joined further: code generation is superlinear.
const MAX_STAGES: usize = 12;

/// Fuses in every Relax function.
pub fn fuse(typed: &mut Typed) {
    run(typed, Way::Chains);
}

/// Joins fused convolutions that go by bands of rows together ([`cascades`]).
pub fn cascade(typed: &mut Typed) {
    run(typed, Way::Cascades);
}

/// Joins products and norms of their rows that go by bands of rows together ([`attention`]).
pub fn attend(typed: &mut Typed) {
    run(typed, Way::Attention);
}

/// What is joined.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Chains,
    Cascades,
    Attention,
}

fn run(typed: &mut Typed, way: Way) {
    let mut names = Names::new(&typed.module);
    let prims: HashMap<String, PrimFunc> = typed
        .module
        .funcs
        .iter()
        .filter_map(|f| match f {
            Func::Prim(p) if p.private => Some((p.name.clone(), p.clone())),
            _ => None,
        })
        .collect();
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut pass = Fuse { way, prims, names: &mut names, new: vec![], sinfo: &typed.sinfo, behind: HashMap::new() };
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            pass.function(f);
        }
    }
    let (new, behind) = (pass.new, pass.behind);
    // What was checked before a kernel that is now part of a later one is still checked at its place: kernels in
    // between may rely on it.
    for c in &mut typed.checks {
        if let Some(v) = behind.get(&c.before) {
            c.before = v.clone();
        }
    }
    funcs.extend(new.into_iter().map(Func::Prim));
    typed.module.funcs = funcs;
    crate::dead::remove_dead(typed);
}

struct Fuse<'a> {
    way: Way,
    prims: HashMap<String, PrimFunc>,
    names: &'a mut Names,
    new: Vec<PrimFunc>,
    sinfo: &'a StructInfoMap,
    /// Variables that are gone, and the next one that is bound behind each.
    behind: HashMap<RVar, RVar>,
}

/// A kernel call that may take part.
struct Node {
    /// Position of its binding: block, index.
    at: (usize, usize),
    var: RVar,
    prim: String,
    args: Vec<Expr>,
    out: StructInfo,
    pattern: Pattern,
}

impl Fuse<'_> {
    fn function(&mut self, f: &mut Function) {
        let mut uses: HashMap<RVar, usize> = HashMap::new();
        f.body.walk(&mut |e| {
            if let ExprKind::Var(v) = e.kind() {
                *uses.entry(v.clone()).or_default() += 1;
            }
        });
        let body = (*f.body).clone();
        let mut blocks = body.blocks.clone();
        for (bi, block) in body.blocks.iter().enumerate() {
            let new = self.block(block, bi, &uses);
            blocks[bi] = BindingBlock { bindings: new, ..block.clone() };
        }
        f.body = Arc::new(SeqExpr { blocks, body: body.body });
    }

    /// Joins the kernels of one block. Only kernels (pure, destination passing) move, and only to a later place: that
    /// of the last of their group.
    fn block(&mut self, block: &BindingBlock, bi: usize, uses: &HashMap<RVar, usize>) -> Vec<Binding> {
        let mut nodes: Vec<Node> = vec![];
        let mut by_var: HashMap<RVar, usize> = HashMap::new();
        for (i, b) in block.bindings.iter().enumerate() {
            if let Some(n) = self.node(b, (bi, i)) {
                by_var.insert(n.var.clone(), nodes.len());
                nodes.push(n);
            }
        }
        // In order of the program: a node joins the group of the producer of one of its arguments.
        let mut group: Vec<usize> = (0..nodes.len()).collect();
        let mut members: Vec<Vec<usize>> = (0..nodes.len()).map(|i| vec![i]).collect();
        for i in 0..nodes.len() {
            // A producer may join once all of its readers have: again until nothing changes.
            while let Some(gp) = self.producer(&nodes, &by_var, &group, &members, uses, i) {
                let gi = group[i];
                let moved = std::mem::take(&mut members[gp]);
                for &m in &moved {
                    group[m] = gi;
                }
                let mut all = moved;
                all.append(&mut members[gi]);
                members[gi] = all;
            }
        }
        let mut replaced: HashMap<usize, Binding> = HashMap::new();
        let mut dropped: HashSet<usize> = HashSet::new();
        for m in members.iter().filter(|m| m.len() > 1) {
            let Some(&last) = m.iter().max_by_key(|&&i| nodes[i].at) else { continue };
            let b = &block.bindings[nodes[last].at.1];
            let Some(new) = self.join(&nodes, m, last, b) else { continue };
            for &i in m {
                dropped.insert(nodes[i].at.1);
            }
            replaced.insert(nodes[last].at.1, new);
        }
        let mut out = vec![];
        let mut gone = vec![];
        for (i, b) in block.bindings.iter().enumerate() {
            let kept = match replaced.remove(&i) {
                Some(new) => new,
                None if dropped.contains(&i) => {
                    gone.push(b.var.clone());
                    continue;
                }
                None => b.clone(),
            };
            self.behind.extend(gone.drain(..).map(|v| (v, kept.var.clone())));
            out.push(kept);
        }
        out
    }

    /// A group that may join the one of node `i`: that of a producer all of whose readers are in it.
    fn producer(
        &self,
        nodes: &[Node],
        by_var: &HashMap<RVar, usize>,
        group: &[usize],
        members: &[Vec<usize>],
        uses: &HashMap<RVar, usize>,
        i: usize,
    ) -> Option<usize> {
        let gi = group[i];
        nodes[i].args.iter().find_map(|a| {
            let &p = by_var.get(a.as_var()?)?;
            let gp = group[p];
            let reads = |m: &usize| nodes[*m].args.iter().filter(|a| a.as_var() == Some(&nodes[p].var)).count();
            let inside: usize = members[gi].iter().map(reads).sum();
            if gp == gi || uses.get(&nodes[p].var) != Some(&inside) {
                return None;
            }
            // What is put together of several parts may be written by those who make the parts.
            if self.prims.get(&nodes[p].prim).is_some_and(pieced) {
                return None;
            }
            let mut readers = members[gi].iter().filter(|m| reads(m) > 0);
            let fits = members[gp].len() + members[gi].len() <= MAX_STAGES
                && readers.all(|&c| self.may_join(nodes, &members[gp], &members[gi], p, c));
            // The producer's group must have this value as its only way out.
            let outside = members[gp].iter().any(|&m| m != p && !self.feeds_only(nodes, m, &members[gp]));
            (fits && !outside).then_some(gp)
        })
    }

    fn feeds_only(&self, nodes: &[Node], m: usize, group: &[usize]) -> bool {
        group.iter().any(|&g| nodes[g].args.iter().any(|a| a.as_var() == Some(&nodes[m].var)))
    }

    fn node(&self, b: &Binding, at: (usize, usize)) -> Option<Node> {
        let BindingValue::Expr(e) = &b.value else { return None };
        let c: &Call = e.as_op_call("call_tir")?;
        if c.args.len() != 2 || c.sinfo_args.len() != 1 {
            return None;
        }
        let ExprKind::GlobalVar(name) = c.args[0].kind() else { return None };
        let ExprKind::Tuple(args) = c.args[1].kind() else { return None };
        let out = c.sinfo_args[0].clone();
        out.as_tensor()?.known_dims()?;
        let prim = self.prims.get(name)?;
        if crate::schedule::is_special(prim) {
            return None;
        }
        let whole = |fits: bool| if fits { Pattern::Reduction } else { Pattern::Opaque };
        let pattern = match self.way {
            Way::Chains => classify(prim),
            Way::Cascades => whole(cascades::window(prim).is_some()),
            Way::Attention => whole(attention::is_part(prim)),
        };
        if pattern == Pattern::Opaque || crate::integer::in_library(prim) {
            return None;
        }
        Some(Node { at, var: b.var.clone(), prim: name.clone(), args: args.clone(), out, pattern })
    }

    fn may_join(&self, nodes: &[Node], producers: &[usize], consumers: &[usize], p: usize, c: usize) -> bool {
        if self.way != Way::Chains {
            let at = nodes[c].args.iter().position(|a| a.as_var() == Some(&nodes[p].var));
            let prims = self.prims.get(&nodes[p].prim).zip(self.prims.get(&nodes[c].prim));
            let follows = if self.way == Way::Cascades { cascades::may_follow } else { attention::may_follow };
            return prims.zip(at).is_some_and(|((first, second), at)| follows(first, second, at));
        }
        let reductions = |g: &[usize]| g.iter().filter(|&&i| nodes[i].pattern == Pattern::Reduction).count();
        let turns =
            |g: &[usize]| g.iter().any(|&i| self.permutation(&nodes[i]).is_some() && !self.moves_rows(&nodes[i]));
        let mixes = |i: usize| self.prims.get(&nodes[i].prim).and_then(mixed);
        // What mixes elements that data chooses has them side by side for all channels, or one by one.
        let from = mixes(c).and_then(|n| nodes[c].args.get(n)?.as_var());
        if from == Some(&nodes[p].var) && turns(producers)
            || turns(consumers) && producers.iter().any(|&i| mixes(i).is_some())
        {
            return false;
        }
        let (rp, rc) = (reductions(producers), reductions(consumers));
        if rp + rc > 1 {
            return false;
        }
        if rp == 1 {
            let is = |i: &usize, what: &dyn Fn(&PrimFunc) -> bool| self.prims.get(&nodes[*i].prim).is_some_and(what);
            let multiplies = |i: &usize| nodes[*i].pattern == Pattern::Reduction && !is(i, &reads_inputs_once);
            if consumers.iter().any(|i| is(i, &of_angles)) && producers.iter().any(multiplies) {
                return false;
            }
            // An epilogue: the same elements in the same order, or each elsewhere.
            if consumers.iter().all(|&i| self.moves_rows(&nodes[i])) {
                let moved = |n: &Node| self.is_product(n) && !self.has_flat_rows(n);
                return producers.iter().all(|&i| nodes[i].pattern != Pattern::Reduction || moved(&nodes[i]));
            }
            return nodes[c].pattern == Pattern::Elementwise
                && consumers.iter().all(|&i| nodes[i].pattern == Pattern::Elementwise)
                && same_dims(&nodes[p].out, &nodes[c].out);
        }
        if rc == 1 && nodes[c].pattern == Pattern::Reduction && self.is_product(&nodes[c]) {
            // A product reads its left side row by row, and copies its right side in any case.
            let right = nodes[c].args.get(1).and_then(|a| a.as_var()) == Some(&nodes[p].var)
                && nodes[c].args.first().and_then(|a| a.as_var()) != Some(&nodes[p].var);
            return match producers {
                [only] if right => {
                    self.permutation(&nodes[*only]).and_then(|p| Some(p.last()? + 2 >= p.len())) == Some(true)
                }
                _ => producers.iter().all(|&i| self.moves_rows(&nodes[i])) && !self.has_flat_rows(&nodes[c]),
            };
        }
        if rc == 1 {
            // A prologue is computed once per element of the reduction's input: worth it only when each input
            // element is read once.
            return nodes[c].pattern == Pattern::Reduction
                && self.prims.get(&nodes[c].prim).is_some_and(reads_inputs_once)
                && producers.iter().all(|&i| nodes[i].pattern == Pattern::Elementwise);
        }
        // A broadcast consumer would compute the producer again per copy.
        nodes[c].pattern != Pattern::Elementwise || same_dims(&nodes[p].out, &nodes[c].out)
    }

    /// Of a kernel that moves elements and does nothing else: the axis of its result that each dim is read along.
    fn permutation(&self, n: &Node) -> Option<Vec<usize>> {
        permutation(self.prims.get(&n.prim)?)
    }

    /// Of a product whose right side is one matrix: whether all rows of the left side go by as one axis where they lie
    /// behind one another, and by no more than a few else.
    fn has_flat_rows(&self, n: &Node) -> bool {
        let dims = n.out.as_tensor().and_then(|t| t.known_dims());
        let Some([outer @ .., rows, _]) = dims else { return false };
        let right = n.args.get(1).map(|a| match a.kind() {
            ExprKind::Constant(c) => c.shape.len(),
            ExprKind::Var(v) => {
                self.sinfo.get(v).and_then(|i| i.as_tensor()?.known_dims().map(<[_]>::len)).unwrap_or_default()
            }
            _ => 0,
        });
        right == Some(2) && rows.as_int().is_none_or(|n| n < FLAT) && outer.iter().any(|d| !d.is_int(1))
    }

    /// A permutation that leaves rows in one piece.
    fn moves_rows(&self, n: &Node) -> bool {
        self.permutation(n).is_some_and(|p| p.last() == Some(&(p.len() - 1)))
    }

    fn is_product(&self, n: &Node) -> bool {
        self.prims.get(&n.prim).is_some_and(is_product)
    }

    /// One PrimFunc for the group, and the binding that calls it.
    fn join(&mut self, nodes: &[Node], members: &[usize], last: usize, b: &Binding) -> Option<Binding> {
        let mut order = members.to_vec();
        order.sort_by_key(|&i| nodes[i].at);
        let mut params: Vec<PrimParam> = vec![];
        let mut args: Vec<Expr> = vec![];
        let mut made: HashMap<RVar, Buffer> = HashMap::new();
        let mut inputs: Vec<(Expr, Buffer)> = vec![];
        let mut allocs: Vec<Buffer> = vec![];
        let mut stmts: Vec<Stmt> = vec![];
        let mut counts = vec![];
        let mut scalars: Vec<(Var, Expr)> = vec![];
        let mut output = None;
        for &i in &order {
            let n = &nodes[i];
            let prim = self.prims.get(&n.prim)?.clone();
            let mut dims: HashMap<Var, PrimExpr> = HashMap::new();
            let mut buffers: HashMap<u32, Buffer> = HashMap::new();
            let mut it = n.args.iter();
            let n_buffers = prim.buffers().count();
            let mut seen = 0;
            // Shape variables of the callee become those of the caller.
            for p in &prim.params {
                match p {
                    PrimParam::Handle { .. } => return None,
                    PrimParam::Scalar(v) => {
                        let a = it.next()?;
                        let ExprKind::Prim(value) = a.kind() else { return None };
                        if value.as_var().is_none_or(|w| w.dtype() != v.dtype()) && value.as_int().is_none() {
                            return None;
                        }
                        if let Some(w) = value.as_var() {
                            if !scalars.iter().any(|(x, _)| x == w) {
                                scalars.push((w.clone(), a.clone()));
                            }
                        }
                        dims.insert(v.clone(), value.clone());
                    }
                    PrimParam::Buffer { buffer, .. } => {
                        seen += 1;
                        let info = if seen == n_buffers {
                            n.out.clone()
                        } else {
                            let a = it.next()?;
                            match a.as_var().and_then(|v| made.get(v)) {
                                Some(m) => StructInfo::tensor(m.shape.clone(), m.dtype()),
                                None => self.input_info(a, buffer),
                            }
                        };
                        let actual = info.as_tensor()?.known_dims()?.to_vec();
                        if actual.len() != buffer.ndim() {
                            return None;
                        }
                        for (d, x) in buffer.shape.iter().zip(&actual) {
                            if let Some(v) = d.as_var() {
                                dims.entry(v.clone()).or_insert_with(|| x.clone());
                            }
                        }
                    }
                }
            }
            let mut it = n.args.iter();
            let mut seen = 0;
            for p in &prim.params {
                let PrimParam::Buffer { buffer, .. } = p else {
                    it.next();
                    continue;
                };
                seen += 1;
                if seen == n_buffers {
                    let shape = n.out.as_tensor()?.known_dims()?.to_vec();
                    let out = Buffer::new(&buffer.name, shape, buffer.dtype());
                    if i == last {
                        output = Some(out.clone());
                    } else {
                        allocs.push(out.clone());
                    }
                    made.insert(n.var.clone(), out.clone());
                    buffers.insert(buffer.id(), out);
                    continue;
                }
                let a = it.next()?;
                let target = match a.as_var().and_then(|v| made.get(v)) {
                    Some(m) => m.clone(),
                    None => match inputs.iter().find(|(e, _)| e == a && !matches!(a.kind(), ExprKind::Constant(_))) {
                        Some((_, m)) => m.clone(),
                        None => {
                            let shape = buffer.shape.iter().map(|d| d.substitute(&dims)).collect();
                            let new = Buffer::new(&buffer.name, shape, buffer.dtype());
                            inputs.push((a.clone(), new.clone()));
                            params.push(PrimParam::Buffer { buffer: new.clone(), handle: None });
                            args.push(a.clone());
                            new
                        }
                    },
                };
                if target.ndim() != buffer.ndim() {
                    return None;
                }
                buffers.insert(buffer.id(), target);
            }
            for a in &prim.alloc_buffers {
                let shape = a.shape.iter().map(|d| d.substitute(&dims)).collect();
                let new = Buffer::new(&a.name, shape, a.dtype());
                buffers.insert(a.id(), new.clone());
                allocs.push(new);
            }
            let body = rebuild(&prim.body, &dims, &buffers)?;
            counts.push(AttrValue::Int(if let StmtKind::Seq(all) = body.kind() { all.len() as i64 } else { 1 }));
            stmts.push(body);
        }
        let output = output?;
        // Shape variables that no buffer binds are passed as scalars.
        let body = Stmt::seq(stmts);
        let bound: HashSet<Var> = params
            .iter()
            .filter_map(PrimParam::buffer)
            .chain([&output])
            .flat_map(|b| b.shape.iter().filter_map(|d| d.as_var().cloned()))
            .collect();
        let mut free: Vec<Var> = vec![];
        let mut see = |e: &PrimExpr| {
            for v in e.vars() {
                if !free.contains(&v) {
                    free.push(v);
                }
            }
        };
        params
            .iter()
            .filter_map(PrimParam::buffer)
            .chain([&output])
            .chain(&allocs)
            .for_each(|b| b.shape.iter().for_each(&mut see));
        body.walk(&mut |s| s.exprs().into_iter().for_each(&mut see));
        let local = locals(&body);
        for v in free {
            if bound.contains(&v) || local.contains(&v) {
                continue;
            }
            args.push(Expr::new(ExprKind::Prim(v.expr()), Span::NONE));
            params.push(PrimParam::Scalar(v));
        }
        params.push(PrimParam::Buffer { buffer: output, handle: None });
        let base: Vec<&str> =
            order.iter().map(|&i| nodes[i].prim.trim_end_matches(|c: char| c.is_ascii_digit())).collect();
        let mut base = format!("fused_{}", base.join("_"));
        base.truncate(60);
        let name = self.names.fresh(base.trim_end_matches('_'));
        let mut attrs = Attrs::default();
        attrs.set("tirx.noalias", AttrValue::Bool(true));
        if self.way == Way::Attention {
            attrs.set(PARTS, AttrValue::List(counts));
        }
        let prim = PrimFunc {
            name: name.clone(),
            params,
            ret: None,
            returns: None,
            attrs,
            private: true,
            alloc_buffers: allocs,
            body,
            span: b.span,
        };
        if self.way == Way::Attention && !crate::schedule::is_attention(&prim) {
            return None;
        }
        self.new.push(prim);
        let value = call_tir(&name, args, vec![nodes[last].out.clone()], b.expr()).ok()?;
        Some(Binding { value: BindingValue::Expr(value), ..b.clone() })
    }

    /// Struct info of an argument that the group does not make, over the caller's shape variables.
    fn input_info(&self, a: &Expr, buffer: &Buffer) -> StructInfo {
        let known = match a.kind() {
            ExprKind::Var(v) => self.sinfo.get(v).cloned(),
            ExprKind::Constant(c) => {
                Some(StructInfo::tensor(c.shape.iter().map(|&d| PrimExpr::i64(d)).collect(), c.dtype))
            }
            _ => None,
        };
        match known {
            Some(i) if i.as_tensor().is_some_and(|t| t.known_dims().is_some()) => i,
            _ => StructInfo::tensor(buffer.shape.clone(), buffer.dtype()),
        }
    }
}

/// Variables that a statement binds itself.
fn locals(s: &Stmt) -> HashSet<Var> {
    let mut out = HashSet::new();
    s.walk(&mut |s| {
        match s.kind() {
            StmtKind::For { var, .. } | StmtKind::Let { var, .. } => drop(out.insert(var.clone())),
            StmtKind::Block(b) => out.extend(b.axes.iter().map(|a| a.var.clone())),
            _ => {}
        }
        for e in s.exprs() {
            e.walk(&mut |n| {
                if let PrimKind::Let(v, ..) = n.kind() {
                    out.insert(v.clone());
                }
            });
        }
    });
    out
}

/// The statement with other buffers, other shape variables and fresh loop and block variables.
pub(crate) fn rebuild(s: &Stmt, dims: &HashMap<Var, PrimExpr>, buffers: &HashMap<u32, Buffer>) -> Option<Stmt> {
    let mut vars = dims.clone();
    let mut fresh: HashMap<Var, Var> = HashMap::new();
    for v in locals(s) {
        let new = Var::new(v.name(), v.dtype());
        vars.insert(v.clone(), new.expr());
        fresh.insert(v, new);
    }
    let swap = |b: &Buffer| buffers.get(&b.id()).cloned().unwrap_or_else(|| b.clone());
    fn expr(e: &PrimExpr, vars: &HashMap<Var, PrimExpr>, swap: &dyn Fn(&Buffer) -> Buffer) -> PrimExpr {
        match e.kind() {
            PrimKind::Var(v) => vars.get(v).cloned().map_or_else(|| e.clone(), |x| x.cast(e.dtype())),
            PrimKind::BufferLoad(b, idx) => {
                let idx: Vec<PrimExpr> = idx.iter().map(|i| expr(i, vars, swap)).collect();
                PrimExpr::load(&swap(b), idx)
            }
            PrimKind::Let(v, value, body) => {
                let value = expr(value, vars, swap);
                let body = expr(body, vars, swap);
                match vars.get(v).and_then(|x| x.as_var().cloned()) {
                    Some(n) => PrimExpr::let_in(n, value, body),
                    None => PrimExpr::let_in(v.clone(), value, body),
                }
            }
            _ => e.map_children(&mut |c| expr(c, vars, swap)),
        }
    }
    let out = s.rewrite(&mut |e| expr(e, &vars, &swap), &mut |s| match s.kind() {
        StmtKind::For { var, min, extent, kind, annotations, body } => Stmt::at(
            StmtKind::For {
                var: fresh.get(var).cloned().unwrap_or_else(|| var.clone()),
                min: min.clone(),
                extent: extent.clone(),
                kind: kind.clone(),
                annotations: annotations.clone(),
                body: body.clone(),
            },
            s.span(),
        ),
        StmtKind::Let { var, value, body } => Stmt::at(
            StmtKind::Let {
                var: fresh.get(var).cloned().unwrap_or_else(|| var.clone()),
                value: value.clone(),
                body: body.clone(),
            },
            s.span(),
        ),
        StmtKind::Store { buffer, indices, value } => {
            Stmt::at(StmtKind::Store { buffer: swap(buffer), indices: indices.clone(), value: value.clone() }, s.span())
        }
        StmtKind::Block(b) => {
            let mut b = b.clone();
            for a in &mut b.axes {
                if let Some(n) = fresh.get(&a.var) {
                    a.var = n.clone();
                }
            }
            for r in b.reads.iter_mut().chain(b.writes.iter_mut()).flatten() {
                r.buffer = swap(&r.buffer);
            }
            Stmt::at(StmtKind::Block(b), s.span())
        }
        _ => s,
    });
    Some(out)
}

fn same_dims(a: &StructInfo, b: &StructInfo) -> bool {
    match (a.as_tensor().and_then(|t| t.known_dims()), b.as_tensor().and_then(|t| t.known_dims())) {
        (Some(x), Some(y)) => x == y,
        _ => false,
    }
}
