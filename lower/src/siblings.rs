//! Reductions of the same operand over the same axes become one kernel with several results, which reads it once.
//!
//! The first of them stands for all, each of which takes its item. A result may no longer have an epilogue, so that only
//! reductions to far fewer elements than they read are joined, and only those along what lies side by side: of columns many
//! are summed at a time, for which several results have no registers.

use crate::fuse::{classify, reads_inputs_once, rebuild, Pattern};
use crate::legalize::{call_tir, Names};
use relax_ir::analysis::Typed;
use relax_ir::prim::{PrimExpr, PrimKind};
use relax_ir::relax::{Binding, BindingBlock, BindingValue, Expr, ExprKind, Function, RVar, SeqExpr, StructInfo};
use relax_ir::tir::{Block, Buffer, ForKind, IterKind, PrimFunc, PrimParam, Stmt, StmtKind};
use relax_ir::{Func, Var};
use std::collections::HashMap;
use std::sync::Arc;

/// Elements that one of the result is made of.
const LEAST: i64 = 64;
/// Results of a kernel: each has its sums in registers.
const MOST: usize = 4;

/// Joins them in every Relax function.
pub fn siblings(typed: &mut Typed) {
    let prims = (typed.module.funcs.iter())
        .filter_map(|f| match f {
            Func::Prim(p) if p.private && !crate::integer::in_library(p) && !crate::schedule::is_special(p) => {
                Some((p.name.clone(), p.clone()))
            }
            _ => None,
        })
        .collect();
    let names = Names::new(&typed.module);
    let mut pass = Siblings { prims, names, made: HashMap::new(), new: vec![], sinfo: vec![] };
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            pass.function(f);
        }
    }
    funcs.extend(pass.new.into_iter().map(Func::Prim));
    typed.module.funcs = funcs;
    typed.sinfo.extend(pass.sinfo);
    crate::dead::remove_dead(typed);
}

struct Siblings {
    prims: HashMap<String, PrimFunc>,
    names: Names,
    /// What the joint kernel of these is called.
    made: HashMap<Vec<String>, String>,
    new: Vec<PrimFunc>,
    sinfo: Vec<(RVar, StructInfo)>,
}

/// Calls of reductions of one operand, by their places in the block.
struct Group {
    operand: RVar,
    members: Vec<(usize, String, StructInfo)>,
}

impl Siblings {
    fn function(&mut self, f: &mut Function) {
        let body = (*f.body).clone();
        let blocks = body.blocks.iter().map(|b| BindingBlock { bindings: self.block(b), ..b.clone() }).collect();
        f.body = Arc::new(SeqExpr { blocks, body: body.body });
    }

    fn block(&mut self, block: &BindingBlock) -> Vec<Binding> {
        // What may write to an operand closes the groups before it.
        let (mut open, mut closed): (Vec<Group>, Vec<Group>) = Default::default();
        for (i, b) in block.bindings.iter().enumerate() {
            let BindingValue::Expr(e) = &b.value else {
                closed.append(&mut open);
                continue;
            };
            if e.as_op_call("call_tir").is_none() && matches!(e.kind(), ExprKind::Call(_) | ExprKind::If { .. }) {
                closed.append(&mut open);
                continue;
            }
            let Some((operand, name, info)) = self.reduction(e) else { continue };
            let fits = |g: &&mut Group| {
                let first = self.prims.get(&g.members[0].1).zip(self.prims.get(&name));
                g.operand == operand
                    && g.members.len() < MOST
                    && first.is_some_and(|(a, b)| joint(&[a, b], "").is_some())
            };
            match open.iter_mut().find(fits) {
                Some(g) => g.members.push((i, name, info)),
                None => open.push(Group { operand, members: vec![(i, name, info)] }),
            }
        }
        closed.append(&mut open);
        let mut instead: HashMap<usize, Vec<Binding>> = HashMap::new();
        for g in closed.iter().filter(|g| g.members.len() > 1) {
            self.join(g, block, &mut instead);
        }
        let with = |(i, b): (usize, &Binding)| instead.remove(&i).unwrap_or_else(|| vec![b.clone()]);
        block.bindings.iter().enumerate().flat_map(with).collect()
    }

    /// The operand, the kernel and the result of a call of a reduction.
    fn reduction(&self, e: &Expr) -> Option<(RVar, String, StructInfo)> {
        let call = e.as_op_call("call_tir")?;
        let [func, args] = call.args.as_slice() else { return None };
        let (ExprKind::GlobalVar(name), ExprKind::Tuple(args)) = (func.kind(), args.kind()) else { return None };
        let ([operand], [info]) = (args.as_slice(), call.sinfo_args.as_slice()) else { return None };
        Reduction::of(self.prims.get(name)?)?;
        Some((operand.as_var()?.clone(), name.clone(), info.clone()))
    }

    fn join(&mut self, g: &Group, block: &BindingBlock, instead: &mut HashMap<usize, Vec<Binding>>) -> Option<()> {
        let members: Vec<String> = g.members.iter().map(|m| m.1.clone()).collect();
        let name = match self.made.get(&members) {
            Some(name) => name.clone(),
            None => {
                let all = members.iter().map(|n| self.prims.get(n)).collect::<Option<Vec<_>>>()?;
                let name = self.names.fresh(&members.join("_"));
                self.new.push(joint(&all, &name)?);
                self.made.insert(members, name.clone());
                name
            }
        };
        let first = &block.bindings[g.members[0].0];
        let infos: Vec<StructInfo> = g.members.iter().map(|m| m.2.clone()).collect();
        let operand = Expr::new(ExprKind::Var(g.operand.clone()), first.expr().span());
        let call = call_tir(&name, vec![operand], infos.clone(), first.expr()).ok()?;
        let all = RVar::new("siblings", first.var.is_dataflow(), first.span);
        self.sinfo.push((all.clone(), StructInfo::Tuple(infos)));
        for (k, (i, ..)) in g.members.iter().enumerate() {
            let b = &block.bindings[*i];
            let tuple = Expr::new(ExprKind::Var(all.clone()), b.expr().span());
            let item = Expr::new(ExprKind::TupleGetItem(tuple, k), b.expr().span());
            instead.insert(*i, vec![Binding { value: BindingValue::Expr(item), ..b.clone() }]);
        }
        let call = Binding { var: all, annotation: None, value: BindingValue::Expr(call), span: first.span };
        instead.entry(g.members[0].0).or_default().insert(0, call);
        Some(())
    }
}

/// A kernel that reduces its one input, and may go on with the result.
struct Reduction<'a> {
    input: &'a Buffer,
    output: &'a Buffer,
    /// Variables and extents, from the outside in.
    loops: Vec<(&'a Var, &'a PrimExpr)>,
    nest: &'a Stmt,
    block: &'a Block,
    rest: &'a [Stmt],
}

impl Reduction<'_> {
    fn of(f: &PrimFunc) -> Option<Reduction<'_>> {
        let [PrimParam::Buffer { buffer: input, .. }, PrimParam::Buffer { buffer: output, .. }] = f.params.as_slice()
        else {
            return None;
        };
        if classify(f) != Pattern::Reduction || !reads_inputs_once(f) {
            return None;
        }
        let stmts = match f.body.kind() {
            StmtKind::Seq(all) => all.as_slice(),
            _ => std::slice::from_ref(&f.body),
        };
        let (nest, rest) = stmts.split_first()?;
        let (mut loops, mut at) = (vec![], nest);
        while let StmtKind::For { var, min, extent, kind: ForKind::Serial, body, .. } = at.kind() {
            if !min.is_int(0) {
                return None;
            }
            loops.push((var, extent));
            at = body;
        }
        let StmtKind::Block(block) = at.kind() else { return None };
        let known = (block.axes.iter().filter(|a| a.kind == IterKind::Reduce))
            .try_fold(1i64, |n, a| n.checked_mul(a.extent.as_int()?));
        let worth = block.axes.iter().any(|a| a.kind == IterKind::Reduce) && known.is_none_or(|n| n >= LEAST);
        let StmtKind::Store { value, .. } = block.body.kind() else { return None };
        let reduced =
            |e: &PrimExpr| block.axes.iter().any(|a| a.kind == IterKind::Reduce && e.as_var() == Some(&a.var));
        let mut beside = true;
        value.walk(&mut |e| {
            if let PrimKind::BufferLoad(b, at) = e.kind() {
                beside &= b != input || at.last().is_some_and(reduced);
            }
        });
        let worth = worth && beside;
        let plain = block.attrs.is_empty() && block.init.is_some() && block.axes.iter().all(|a| a.min.is_int(0));
        (worth && plain).then_some(Reduction { input, output, loops, nest, block, rest })
    }
}

/// One kernel for these, with their results in order; `None` where their axes differ.
fn joint(kernels: &[&PrimFunc], name: &str) -> Option<PrimFunc> {
    let first = Reduction::of(kernels.first()?)?;
    let (mut inits, mut bodies, mut rest, mut allocs, mut outputs) = (vec![], vec![], vec![], vec![], vec![]);
    for f in kernels {
        let r = Reduction::of(f)?;
        // Dims and axes of this one by those of the first.
        let mut map: HashMap<Var, PrimExpr> = HashMap::new();
        if r.input.ndim() != first.input.ndim() || r.input.dtype() != first.input.dtype() {
            return None;
        }
        for (d, x) in r.input.shape.iter().zip(&first.input.shape) {
            match d.as_var() {
                Some(v) => drop(map.entry(v.clone()).or_insert_with(|| x.clone())),
                None if d == x => {}
                None => return None,
            }
        }
        let shape = |b: &Buffer| b.shape.iter().map(|d| d.substitute(&map)).collect::<Vec<_>>();
        if shape(r.input) != first.input.shape || r.loops.len() != first.loops.len() {
            return None;
        }
        let mut buffers: HashMap<u32, Buffer> = HashMap::from([(r.input.id(), first.input.clone())]);
        let output = Buffer::new(&r.output.name, shape(r.output), r.output.dtype());
        buffers.insert(r.output.id(), output.clone());
        outputs.push(output);
        for a in &f.alloc_buffers {
            let new = Buffer::new(&a.name, shape(a), a.dtype());
            buffers.insert(a.id(), new.clone());
            allocs.push(new);
        }
        for s in r.rest {
            rest.push(rebuild(s, &map, &buffers)?);
        }
        let same_loops = r.loops.iter().zip(&first.loops).all(|((_, x), (_, y))| x.substitute(&map) == **y);
        for ((v, _), (w, _)) in r.loops.iter().zip(&first.loops) {
            map.insert((*v).clone(), w.expr());
        }
        let (own, axes) = (&r.block.axes, &first.block.axes);
        let same_axes = own.len() == axes.len()
            && own.iter().zip(axes).all(|(a, b)| {
                let same = |x: &PrimExpr, y: &PrimExpr| x.substitute(&map) == *y;
                a.kind == b.kind && same(&a.extent, &b.extent) && same(&a.binding, &b.binding)
            });
        if !same_loops || !same_axes {
            return None;
        }
        map.extend(own.iter().zip(axes).map(|(a, b)| (a.var.clone(), b.var.expr())));
        inits.push(rebuild(r.block.init.as_ref()?, &map, &buffers)?);
        bodies.push(rebuild(&r.block.body, &map, &buffers)?);
    }
    let block = Block {
        init: Some(Stmt::seq(inits)),
        body: Stmt::seq(bodies),
        reads: None,
        writes: None,
        ..first.block.clone()
    };
    rest.insert(0, around(first.nest, block));
    let mut params = vec![PrimParam::Buffer { buffer: first.input.clone(), handle: None }];
    params.extend(outputs.into_iter().map(|buffer| PrimParam::Buffer { buffer, handle: None }));
    let body = Stmt::seq(rest);
    Some(PrimFunc { name: name.to_string(), params, alloc_buffers: allocs, body, ..(*kernels.first()?).clone() })
}

/// The loops of a nest around another block.
fn around(nest: &Stmt, block: Block) -> Stmt {
    match nest.kind() {
        StmtKind::For { var, min, extent, kind, annotations, body } => Stmt::at(
            StmtKind::For {
                var: var.clone(),
                min: min.clone(),
                extent: extent.clone(),
                kind: kind.clone(),
                annotations: annotations.clone(),
                body: around(body, block),
            },
            nest.span(),
        ),
        _ => Stmt::at(StmtKind::Block(Box::new(block)), nest.span()),
    }
}
